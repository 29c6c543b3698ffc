//! Tickets, with which clients resume sessions (RFC 8446 sections 2.2 and 4.6.1, RFC 5077).

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ring::digest;
use rustls::{pki_types::ServerName, time_provider::TimeProvider};

use super::{
    Transcript,
    keys::{Secret, Suite},
};
use crate::{Psk, hello::octets::Octets};

/// Maximum number of tickets. Further ones are not kept.
const MOST: usize = 65_536;
/// Maximum octets of all of them, because the server chooses their length: 65,536 of the longest
/// would take 1 GiB.
const MOST_OCTETS: usize = 32 << 20;
/// The longest ticket that is kept, so that a hello with it has less than 2^16 octets.
const LONGEST: usize = 1 << 14;

/// The longest lifetime in seconds, seven days.
const LONGEST_LIFETIME: u32 = 604_800;
/// The lifetime of a ticket of TLS 1.2 whose server leaves it open, as in BoringSSL.
const USUAL_LIFETIME: u32 = 7_200;

/// A ticket, and the key of its session.
pub(super) struct Ticket {
    suite: &'static Suite,
    /// The key for further sessions (PSK), or the master secret of TLS 1.2.
    pub secret: Secret,
    identity: Vec<u8>,
    kind: Kind,
    /// Seconds.
    lifetime: u32,
    /// When it came, and when it was taken, in seconds of the clock.
    issued: u64,
    taken: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    Tls13 {
        age_add: u32,
    },
    /// Whether its master secret is an extended one (RFC 7627).
    Tls12 {
        extended: bool,
    },
}

impl Ticket {
    /// Reads a NewSessionTicket; `resumption`: the secret of the session's tickets, `now`: seconds.
    pub fn read(body: &[u8], suite: &'static Suite, resumption: &Secret, now: u64) -> Option<Self> {
        let (lifetime, age_add, nonce, identity) = Octets(body).all(|octets| {
            let (lifetime, age_add) = (u32_of(octets)?, u32_of(octets)?);
            let (nonce, identity) = (octets.counted8()?, octets.counted16()?);
            // The only extension that is defined is for early data, which this client does not send.
            octets.counted16()?;
            Some((lifetime, age_add, nonce, identity)).filter(|_| !identity.is_empty())
        })?;
        Some(Self {
            suite,
            secret: suite.psk(resumption, nonce),
            identity: identity.to_vec(),
            kind: Kind::Tls13 { age_add },
            lifetime: lifetime.min(LONGEST_LIFETIME),
            issued: now,
            taken: now,
        })
    }

    /// Reads the NewSessionTicket of a session of TLS 1.2 (RFC 5077 section 3.3). It may be empty.
    pub fn read12(
        body: &[u8],
        (suite, master, extended): (&'static Suite, &[u8; 48], bool),
        now: u64,
    ) -> Option<Option<Self>> {
        let (lifetime, identity) =
            Octets(body).all(|octets| Some((u32_of(octets)?, octets.counted16()?)))?;
        let lifetime = if lifetime == 0 { USUAL_LIFETIME } else { lifetime.min(LONGEST_LIFETIME) };
        let ticket = || Self {
            suite,
            secret: Secret::new(master),
            identity: identity.to_vec(),
            kind: Kind::Tls12 { extended },
            lifetime,
            issued: now,
            taken: now,
        };
        Some((!identity.is_empty()).then(ticket))
    }

    pub fn is_of_tls12(&self) -> bool {
        matches!(self.kind, Kind::Tls12 { .. })
    }

    /// Whether a session of TLS 1.2 with this suite and kind of master secret can go on from it
    /// (RFC 5246 section 7.4.1.3, RFC 7627 section 5.3).
    pub fn fits12(&self, suite: &Suite, extended: bool) -> bool {
        self.suite.id == suite.id
            && matches!(self.kind, Kind::Tls12 { extended: of } if of == extended)
    }

    /// Whether a session with this suite can use it (RFC 8446 section 4.2.11).
    pub fn fits(&self, suite: &Suite) -> bool {
        self.suite.digest() == suite.digest()
    }

    fn is_valid(&self, now: u64) -> bool {
        now.saturating_sub(self.issued) < self.lifetime.into()
    }

    /// The hello's extension with it: that of TLS 1.3, or the content of that of TLS 1.2.
    pub fn offer(&self) -> (Option<Psk<'_>>, Option<&[u8]>) {
        let Kind::Tls13 { age_add } = self.kind else { return (None, Some(&self.identity)) };
        // In whole seconds: servers compare it only if early data follow.
        let age = self.taken.saturating_sub(self.issued).saturating_mul(1_000);
        let age = u32::try_from(age).unwrap_or(u32::MAX);
        let binder = self.suite.digest().output_len();
        let psk = Psk {
            identity: &self.identity,
            obfuscated_age: age.wrapping_add(age_add),
            binder: u8::try_from(binder).expect("a hash has at most 48 octets"),
        };
        (Some(psk), None)
    }

    /// Writes the binder into the hello that ends with it. `transcript`: the messages before.
    pub fn bind(&self, transcript: &Transcript, hello: &mut [u8]) {
        let (rest, binder) = hello.split_at_mut(hello.len() - self.suite.digest().output_len());
        // Neither the length of the list of binders nor that of the binder (section 4.2.11.2).
        let hash = transcript.hash_with(self.suite, &rest[..rest.len() - 3]);
        binder.copy_from_slice(self.suite.binder(&self.secret, hash.as_ref()).as_ref());
    }
}

fn u32_of(octets: &mut Octets<'_>) -> Option<u32> {
    octets.take(4)?.first_chunk().map(|octets| u32::from_be_bytes(*octets))
}

impl Transcript {
    /// The hash of the messages and of `more`, which is not added.
    fn hash_with(&self, suite: &Suite, more: &[u8]) -> digest::Digest {
        let mut context = match self {
            Self::Hash(context) => context.clone(),
            Self::Messages(messages) => {
                let mut context = digest::Context::new(suite.digest());
                context.update(messages);
                context
            }
        };
        context.update(more);
        context.finish()
    }
}

/// The tickets of a client's sessions, by server. Each is used once (RFC 8446 appendix C.4), but one of
/// TLS 1.2 comes back if the server gives no other.
pub(super) struct Tickets {
    kept: Mutex<Kept>,
    clock: Arc<dyn TimeProvider>,
}

#[derive(Default)]
struct Kept {
    of: HashMap<ServerName<'static>, VecDeque<Ticket>>,
    count: usize,
    /// Octets of all tickets.
    octets: usize,
    /// When expired ones were last searched for, in seconds.
    searched: u64,
}

impl Kept {
    fn has_room(&self, octets: usize) -> bool {
        self.count < MOST && octets <= MOST_OCTETS.saturating_sub(self.octets)
    }

    /// Drops tickets that have expired: nothing else drops those of servers that no client uses any
    /// more. Checks all tickets, so it does so at most once a second.
    fn drop_expired(&mut self, now: u64) {
        if self.searched == now {
            return;
        }
        self.searched = now;
        self.of.retain(|_, tickets| {
            tickets.retain(|ticket| ticket.is_valid(now));
            !tickets.is_empty()
        });
        self.count = self.of.values().map(VecDeque::len).sum();
        self.octets = self.of.values().flatten().map(|ticket| ticket.identity.len()).sum();
    }
}

/// Prints no keys.
impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tickets", self.kept().count)
    }
}

impl Tickets {
    pub fn new(clock: Arc<dyn TimeProvider>) -> Self {
        Self { kept: Mutex::default(), clock }
    }

    /// Seconds of the clock.
    pub fn now(&self) -> u64 {
        self.clock.current_time().map_or(0, |now| now.as_secs())
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, server: &ServerName<'static>, ticket: Ticket) {
        let (mut kept, now) = (self.kept(), self.now());
        let octets = ticket.identity.len();
        if octets > LONGEST || !ticket.is_valid(now) {
            return;
        }
        if !kept.has_room(octets) {
            kept.drop_expired(now);
        }
        if !kept.has_room(octets) {
            return;
        }
        kept.count += 1;
        kept.octets += octets;
        kept.of.entry(server.clone()).or_default().push_back(ticket);
    }

    /// The latest valid ticket of a server.
    pub fn take(&self, server: &ServerName<'static>) -> Option<Ticket> {
        let (kept, now) = (&mut *self.kept(), self.now());
        let tickets = kept.of.get_mut(server)?;
        let mut found = None;
        while found.is_none()
            && let Some(mut ticket) = tickets.pop_back()
        {
            ticket.taken = now;
            kept.count -= 1;
            kept.octets -= ticket.identity.len();
            found = Some(ticket).filter(|ticket| ticket.is_valid(now));
        }
        if tickets.is_empty() {
            kept.of.remove(server);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU64, Ordering::Relaxed},
        time::Duration,
    };

    use rustls::pki_types::UnixTime;

    use super::*;

    /// Seconds, which a test sets.
    #[derive(Debug)]
    struct Clock(AtomicU64);

    impl TimeProvider for Clock {
        fn current_time(&self) -> Option<UnixTime> {
            Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.load(Relaxed))))
        }
    }

    fn tickets() -> (Tickets, Arc<Clock>) {
        let clock = Arc::new(Clock(AtomicU64::new(1_000)));
        (Tickets::new(clock.clone()), clock)
    }

    fn server(name: &str) -> ServerName<'static> {
        ServerName::try_from(name.to_owned()).unwrap()
    }

    /// A ticket with this identity, which comes at 1,000 seconds.
    fn ticket(lifetime: u32, identity: &[u8]) -> Option<Ticket> {
        let len = u16::try_from(identity.len()).unwrap().to_be_bytes();
        let body =
            [&lifetime.to_be_bytes(), &[0, 0, 0, 7, 2, 0, 0][..], &len, identity, &[0, 0]].concat();
        let suite = Suite::find(0x1301, true).unwrap();
        let read = |body: &[u8]| Ticket::read(body, suite, &Secret::new(&[7; 32]), 1_000);
        assert!((1..body.len()).all(|len| read(&body[..len]).is_none()), "cut off");
        read(&body)
    }

    #[test]
    fn each_ticket_is_used_once_the_latest_first_and_only_while_it_is_valid() {
        let ((tickets, clock), a, b) = (tickets(), server("a.test"), server("b.test"));
        for (lifetime, identity) in [(60, &b"one"[..]), (60, b"two"), (0, b"over")] {
            tickets.add(&a, ticket(lifetime, identity).unwrap());
        }
        tickets.add(&a, ticket(60, &[1; LONGEST + 1]).unwrap());
        assert!(tickets.take(&b).is_none());
        tickets.add(&a, ticket(5, b"late").unwrap());
        clock.0.store(1_005, Relaxed);
        for expected in [Some(&b"two"[..]), Some(b"one"), None] {
            assert_eq!(tickets.take(&a).as_ref().map(|ticket| &ticket.identity[..]), expected);
        }
        let kept = tickets.kept();
        assert_eq!((kept.count, kept.octets, kept.of.len()), (0, 0, 0));
        assert!(ticket(60, b"").is_none());
    }

    #[test]
    fn tickets_of_tls_1_2_go_on_with_their_suite_and_kind_of_master_secret() {
        let suites = [0xc02b, 0xc02c].map(|id| Suite::find(id, false).unwrap());
        let read = |lifetime: u32, identity: &[u8]| {
            let len = u16::try_from(identity.len()).unwrap().to_be_bytes();
            let body = [&lifetime.to_be_bytes()[..], &len, identity].concat();
            let read = |body: &[u8]| Ticket::read12(body, (suites[0], &[7; 48], true), 1_000);
            assert!((0..body.len()).all(|len| read(&body[..len]).is_none()), "cut off");
            read(&body).unwrap()
        };
        assert!(read(60, b"").is_none());
        let ticket = read(60, b"ticket").unwrap();
        assert!(ticket.is_of_tls12() && ticket.fits12(suites[0], true));
        assert!(!ticket.fits12(suites[1], true) && !ticket.fits12(suites[0], false));
        assert!(matches!(ticket.offer(), (None, Some(b"ticket"))));
        assert!(!ticket.is_valid(1_060));
        // 0: the server leaves it open (RFC 5077 section 3.3).
        let ticket = read(0, b"ticket").unwrap();
        assert!(ticket.is_valid(8_199) && !ticket.is_valid(8_200));
    }

    #[test]
    fn the_octets_of_all_tickets_are_bounded() {
        let ((tickets, _), a) = (tickets(), server("a.test"));
        tickets.kept().octets = MOST_OCTETS - 3;
        tickets.kept().searched = 1_000;
        tickets.add(&a, ticket(60, b"four").unwrap());
        assert!(tickets.take(&a).is_none());
        tickets.add(&a, ticket(60, b"two").unwrap());
        assert!(tickets.take(&a).is_some());
        assert_eq!(tickets.kept().octets, MOST_OCTETS - 3);
    }

    #[test]
    fn expired_tickets_leave_room_for_those_of_other_servers() {
        let ((tickets, clock), a, b) = (tickets(), server("a.test"), server("b.test"));
        tickets.add(&a, ticket(5, b"one").unwrap());
        tickets.kept().count = MOST;
        tickets.kept().searched = 1_000;
        tickets.add(&b, ticket(60, b"other").unwrap());
        assert!(tickets.take(&b).is_none());
        clock.0.store(1_005, Relaxed);
        tickets.add(&b, ticket(60, b"other").unwrap());
        assert!(tickets.take(&b).is_some());
        let kept = tickets.kept();
        assert_eq!((kept.count, kept.octets), (0, 0));
    }
}
