//! Slots for connections ([`Place`]): a limit on open connections, half of it for strangers.
//!
//! A stranger is a client that has not authenticated yet. When the strangers' half is full, the
//! oldest connection of the source with the most connections is closed, because a refusal of
//! newcomers would let a thousand silent connections keep all others out (ADR 0034). A new client
//! therefore always gets a slot, and keeps it if it authenticates soon, regardless of how many idle
//! connections others hold.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::connection::Peer;

pub struct Places {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    /// Oldest first.
    strangers: VecDeque<Stranger>,
    /// Number of authenticated connections.
    known: usize,
    last: u64,
    /// The time at which closed connections were last logged, and the number closed after that.
    logged: Option<Instant>,
    closed: u64,
}

struct Stranger {
    number: u64,
    from: Source,
    gives_way: Arc<Notify>,
}

/// The origin of a connection, as far as it can be identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    User(u32),
    /// The first 64 bits of an IPv6 address, because a host chooses the other 64 itself (RFC 4291
    /// section 2.5.1).
    Network(IpAddr),
    Unix,
}

impl Source {
    fn of(peer: &Peer) -> Self {
        match (peer.user, peer.address.map(|address| address.ip().to_canonical())) {
            (Some(user), _) => Self::User(user),
            (None, Some(IpAddr::V6(ip))) => {
                Self::Network(IpAddr::V6((u128::from(ip) & !u128::from(u64::MAX)).into()))
            }
            (None, Some(ip)) => Self::Network(ip),
            (None, None) => Self::Unix,
        }
    }
}

impl Places {
    pub fn new(most: usize) -> Arc<Self> {
        // At least 4, otherwise a quarter would be 0 slots.
        Arc::new(Self { most: most.max(4), taken: Mutex::default() })
    }

    /// Takes a slot for a stranger. Takes it from another stranger if the strangers' half is full.
    pub fn take(self: &Arc<Self>, peer: &Peer) -> Place {
        let (from, gives_way) = (Source::of(peer), Arc::new(Notify::new()));
        let mut taken = self.taken();
        taken.last += 1;
        let number = taken.last;
        let strangers = &mut taken.strangers;
        let of_the_source = strangers.iter().filter(|one| one.from == from).count();
        // At most a quarter of the slots per source, so that one source cannot fill the strangers'
        // half.
        let crowd = if of_the_source >= self.most / 4 {
            Some(from)
        } else if strangers.len() >= self.most / 2 {
            largest(strangers)
        } else {
            None
        };
        if let Some(at) = crowd.and_then(|crowd| strangers.iter().position(|one| one.from == crowd))
        {
            strangers.remove(at).into_iter().for_each(|one| one.gives_way.notify_one());
            taken.log(self.most);
        }
        taken.strangers.push_back(Stranger { number, from, gives_way: gives_way.clone() });
        Place { places: self.clone(), number, known: AtomicBool::new(false), gives_way }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Logs a connection that was closed in favor of another. The client sees only the close, so
    /// the log names the limit. Writes at most one line per [`LOG_INTERVAL`], because a flood of
    /// connections would flood the log.
    fn log(&mut self, most: usize) {
        self.closed += 1;
        if self.logged.is_none_or(|last| last.elapsed() >= LOG_INTERVAL) {
            tracing::warn!(
                closed = self.closed,
                "closed connections that had not authenticated: at most {} of them, {} of one \
                 address or user",
                most / 2,
                most / 4
            );
            (self.logged, self.closed) = (Some(Instant::now()), 0);
        }
    }
}

const LOG_INTERVAL: Duration = Duration::from_secs(10);

fn largest(strangers: &VecDeque<Stranger>) -> Option<Source> {
    let mut sizes: BTreeMap<Source, usize> = BTreeMap::new();
    strangers.iter().for_each(|one| *sizes.entry(one.from).or_default() += 1);
    sizes.into_iter().max_by_key(|(_, size)| *size).map(|(source, _)| source)
}

/// A connection's slot. Freed when dropped.
pub struct Place {
    places: Arc<Places>,
    number: u64,
    /// Written only while `taken` is locked.
    known: AtomicBool,
    gives_way: Arc<Notify>,
}

impl Place {
    /// Notes that the client has authenticated. Moves the slot to the authenticated half if that is
    /// not full.
    pub fn is_known(&self) {
        if self.known.load(Ordering::Relaxed) {
            return;
        }
        let mut taken = self.places.taken();
        if taken.known >= self.places.most / 2 {
            return;
        }
        // Moves the slot only if it is still there, because it may just have been given to another
        // connection.
        if let Some(at) = taken.strangers.iter().position(|one| one.number == self.number) {
            taken.strangers.remove(at);
            taken.known += 1;
            self.known.store(true, Ordering::Relaxed);
        }
    }

    /// Returns `None` if the connection keeps its slot. If it does not, returns the number of kept
    /// slots, for the error message.
    pub fn is_not_kept(&self) -> Option<usize> {
        (!self.known.load(Ordering::Relaxed)).then_some(self.places.most / 2)
    }

    /// Resolves when another connection needs the slot.
    pub fn given_away(&self) -> impl Future<Output = ()> + Send + use<> {
        let gives_way = self.gives_way.clone();
        async move { gives_way.notified().await }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if self.known.load(Ordering::Relaxed) {
            taken.known -= 1;
        } else {
            taken.strangers.retain(|one| one.number != self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(address: &str) -> Peer {
        Peer { address: Some((address.parse::<IpAddr>().unwrap(), 1).into()), user: None }
    }

    fn gone(place: &Place) -> bool {
        !place.places.taken().strangers.iter().any(|one| one.number == place.number)
    }

    #[test]
    fn the_oldest_of_a_crowd_gives_way_and_nobody_else() {
        let places = Places::new(16);
        let few = places.take(&from("192.0.2.1"));
        // One source gets at most a quarter, and an IPv6 network counts as one source.
        let crowd: Vec<_> = (0..6).map(|n| places.take(&from(&format!("2001:db8::{n}")))).collect();
        assert_eq!(
            crowd.iter().map(gone).collect::<Vec<_>>(),
            [true, true, false, false, false, false]
        );
        let others: Vec<_> =
            (0..3).map(|n| places.take(&from(&format!("198.51.100.{n}")))).collect();
        assert!(
            others.iter().chain([&few]).all(|place| !gone(place)),
            "there were places for them"
        );
        let one_more = places.take(&from("203.0.113.1"));
        assert!(gone(&crowd[2]) && !gone(&one_more) && !gone(&few), "the largest crowd pays");
    }

    #[test]
    fn authenticated_connections_stay() {
        let places = Places::new(8);
        let known: Vec<_> = (0..5)
            .map(|_| {
                let place = places.take(&from("192.0.2.1"));
                place.is_known();
                place.is_known();
                place
            })
            .collect();
        let strangers: Vec<_> = (0..100).map(|_| places.take(&from("192.0.2.1"))).collect();
        let counts = || {
            let taken = places.taken();
            (taken.known, taken.strangers.len())
        };
        assert_eq!(counts(), (4, 2), "half, and a quarter");
        drop((known, strangers));
        assert_eq!(counts(), (0, 0));
    }

    #[tokio::test]
    async fn a_closed_connection_is_notified() {
        let places = Places::new(4);
        let first = places.take(&from("192.0.2.1"));
        let _second = places.take(&from("192.0.2.1"));
        first.given_away().await;
        // The slot already belongs to another connection.
        first.is_known();
        assert_eq!(places.taken().known, 0);
    }
}
