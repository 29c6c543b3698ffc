//! The writer of ClientHello messages.

use squall_units::{SplitMix64, below};

use super::{Body, Fresh, Hello, Psk, is_grease, kind, octets::counted16};

impl Hello {
    /// Appends the message: its type, its length and its body, without the header of a record. The
    /// same arguments give the same octets.
    ///
    /// # Panics
    /// If `fresh` exceeds its limits.
    pub fn write(&self, fresh: &Fresh<'_>, out: &mut Vec<u8>) {
        let name = fresh.name.unwrap_or_default();
        assert!(name.len() <= 255, "a name has at most 255 octets");
        let cookie = fresh.retry.map_or(0, |retry| retry.cookie.len());
        assert!(cookie <= 1 << 14, "a cookie has at most 16,384 octets");
        let identity = fresh.psk.map_or(0, |psk| psk.identity.len());
        assert!(identity <= 1 << 14, "a ticket has at most 16,384 octets");
        let ticket = fresh.ticket.map_or(0, <[u8]>::len);
        assert!(ticket <= 1 << 14, "a ticket has at most 16,384 octets");
        let mut draws = Draws::new(fresh.random);
        let at = out.len();
        out.extend([1, 0, 0, 0]);
        out.extend(self.version.to_be_bytes());
        let (random, session_id) = fresh.random.split_at(32);
        out.extend_from_slice(random);
        let len = self.session_id_len(fresh);
        out.push(len);
        out.extend_from_slice(&session_id[..len.into()]);
        counted16(out, |out| draws.grease.numbers(&self.suites, draws.grease.suite, out));
        out.push(u8::try_from(self.compressions.len()).unwrap_or(u8::MAX));
        out.extend(self.compressions.iter().take(255));
        if !self.extensions.is_empty() {
            counted16(out, |out| self.extensions(at, fresh, &mut draws, out));
        }
        let len = u32::try_from(out.len() - at - 4).expect("a hello is shorter than 2^16 octets");
        out[at + 1..at + 4].copy_from_slice(&len.to_be_bytes()[1..]);
    }

    /// Appends all extensions of the message that begins at `at`.
    fn extensions(&self, at: usize, fresh: &Fresh<'_>, draws: &mut Draws, out: &mut Vec<u8>) {
        let (mut psk, mut grease_before) = (vec![], false);
        if let Some(one) = &fresh.psk {
            write_psk(one, &mut psk);
        }
        for &place in &self.order(draws) {
            let one = &self.extensions[place];
            match &one.body {
                Body::ServerName if fresh.name.is_none() => {}
                Body::Padding { .. } => pad(at, psk.len(), out),
                body => {
                    let grease = draws.grease.extensions[usize::from(grease_before)];
                    let kind = if is_grease(one.kind) { grease } else { one.kind };
                    grease_before |= is_grease(one.kind);
                    out.extend(kind.to_be_bytes());
                    counted16(out, |out| match fresh.ticket {
                        Some(ticket) if kind == kind::TICKET => out.extend_from_slice(ticket),
                        _ => write_body(body, fresh, draws, out),
                    });
                }
            }
            if let (kind::KEY_SHARE, Some(retry)) = (one.kind, fresh.retry.filter(has_cookie)) {
                out.extend(kind::COOKIE.to_be_bytes());
                counted16(out, |out| counted16(out, |out| out.extend_from_slice(retry.cookie)));
            }
        }
        out.extend(psk);
    }

    /// The indices of the extensions, in the order of this hello: a permutation (Fisher and Yates)
    /// of those without a fixed place.
    fn order(&self, draws: &mut Draws) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.extensions.len()).collect();
        if self.shuffle {
            let is_free = |place: &usize| !self.extensions[*place].is_fixed();
            let free: Vec<usize> = order.iter().copied().filter(is_free).collect();
            for last in (1..free.len()).rev() {
                let other = draws.order.below(last + 1);
                order.swap(free[last], free[other]);
            }
        }
        order
    }
}

fn has_cookie(retry: &super::Retry<'_>) -> bool {
    !retry.cookie.is_empty()
}

fn write_body(body: &Body, fresh: &Fresh<'_>, draws: &mut Draws, out: &mut Vec<u8>) {
    match body {
        Body::Octets(octets) => out.extend_from_slice(octets),
        Body::ServerName => counted16(out, |out| {
            out.push(0);
            counted16(out, |out| out.extend(fresh.name.unwrap_or_default().bytes()));
        }),
        Body::Groups(groups) => {
            counted16(out, |out| draws.grease.numbers(groups, draws.grease.group, out));
        }
        Body::Versions(versions) => {
            out.push(u8::try_from(2 * versions.len()).unwrap_or(u8::MAX));
            draws.grease.numbers(versions, draws.grease.version, out);
        }
        Body::Shares(shares) => counted16(out, |out| write_shares(shares, fresh, draws, out)),
        &Body::EchGrease { kdf, aead, enc, payload, varies } => {
            let drawn = [144, 176, 208, 240][draws.ech.below(4)];
            out.push(0);
            out.extend(kdf.to_be_bytes());
            out.extend(aead.to_be_bytes());
            draws.ech.octets(1, out);
            counted16(out, |out| draws.ech.octets(enc, out));
            counted16(out, |out| draws.ech.octets(if varies { drawn } else { payload }, out));
        }
        Body::Padding { .. } => {}
    }
}

fn write_shares(shares: &[(u16, u16)], fresh: &Fresh<'_>, draws: &mut Draws, out: &mut Vec<u8>) {
    let only = fresh.retry.map(|retry| retry.group).filter(|group| *group != 0);
    let key_of = |group: u16| fresh.shares.iter().find(|(one, _)| *one == group);
    if let Some((group, key)) = only.and_then(key_of) {
        out.extend(group.to_be_bytes());
        return counted16(out, |out| out.extend_from_slice(key));
    }
    for &(group, len) in shares {
        let number = if is_grease(group) { draws.grease.group } else { group };
        out.extend(number.to_be_bytes());
        counted16(out, |out| match key_of(group) {
            Some((_, key)) => out.extend_from_slice(key),
            None if is_grease(group) => out.resize(out.len() + usize::from(len), 0),
            None => draws.shares.octets(len, out),
        });
    }
}

/// Appends a ticket and the room for its binder.
fn write_psk(psk: &Psk<'_>, out: &mut Vec<u8>) {
    out.extend(kind::PRE_SHARED_KEY.to_be_bytes());
    counted16(out, |out| {
        counted16(out, |out| {
            counted16(out, |out| out.extend_from_slice(psk.identity));
            out.extend(psk.obfuscated_age.to_be_bytes());
        });
        counted16(out, |out| {
            out.push(psk.binder);
            out.resize(out.len() + usize::from(psk.binder), 0);
        });
    });
}

/// Appends the padding of a message after which `more` octets follow. As in BoringSSL
/// (`ssl_add_clienthello_tlsext`), it has at least one octet.
fn pad(at: usize, more: usize, out: &mut Vec<u8>) {
    let len = out.len() - at + more;
    if (256..512).contains(&len) {
        out.extend(kind::PADDING.to_be_bytes());
        counted16(out, |out| out.resize(out.len() + (512 - len).saturating_sub(4).max(1), 0));
    }
}

/// The random values of a hello. Each use has its own sequence, so that the second hello, after
/// HelloRetryRequest, has the same values although it has other extensions.
struct Draws {
    grease: Grease,
    order: Random,
    ech: Random,
    shares: Random,
}

/// The values of one hello: the same for groups and their key shares (as in BoringSSL,
/// `ssl_get_grease_value`).
#[derive(Clone, Copy)]
struct Grease {
    suite: u16,
    group: u16,
    version: u16,
    extensions: [u16; 2],
}

struct Random(SplitMix64);

impl Draws {
    fn new(random: &[u8; 64]) -> Self {
        let fold = |seed: u64, octets: &[u8]| {
            let word = octets.iter().fold(0, |word, octet| word << 8 | u64::from(*octet));
            squall_units::mix(seed ^ word, 0)
        };
        let seed = random.chunks(8).fold(0, fold);
        let sequence = |k| Random(SplitMix64(squall_units::mix(seed, k)));
        let mut of_grease = sequence(0);
        let mut value = || 0x0a0a + 0x1010 * of_grease.nibble();
        let (suite, group, version, first, second) = (value(), value(), value(), value(), value());
        // Two extensions of one kind are not allowed.
        let extensions = [first, if second == first { second ^ 0x1010 } else { second }];
        let grease = Grease { suite, group, version, extensions };
        Self { grease, order: sequence(1), ech: sequence(2), shares: sequence(3) }
    }
}

impl Grease {
    /// Appends the values of a list, with `value` in the places of GREASE.
    fn numbers(self, list: &[u16], value: u16, out: &mut Vec<u8>) {
        let one = |number: &u16| if is_grease(*number) { value } else { *number };
        out.extend(list.iter().flat_map(|number| one(number).to_be_bytes()));
    }
}

impl Random {
    /// Uniform in `0..n`.
    fn below(&mut self, n: usize) -> usize {
        below(self.0.draw(), n as u64) as usize
    }

    fn nibble(&mut self) -> u16 {
        (self.0.draw() & 15) as u16
    }

    fn octets(&mut self, n: u16, out: &mut Vec<u8>) {
        let end = out.len() + usize::from(n);
        while out.len() < end {
            out.extend(self.0.draw().to_be_bytes());
        }
        out.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Browser, Retry};

    const RANDOM: [u8; 64] = [7; 64];

    fn fresh(random: &[u8; 64]) -> Fresh<'_> {
        Fresh {
            name: Some("www.example.com"),
            shares: &[],
            random,
            retry: None,
            psk: None,
            ticket: None,
        }
    }

    fn written(hello: &Hello, fresh: &Fresh<'_>) -> Vec<u8> {
        let mut out = vec![];
        hello.write(fresh, &mut out);
        out
    }

    #[test]
    fn written_hellos_are_read_again() {
        for browser in Browser::all() {
            let hello = browser.hello();
            for seed in 0..32 {
                let mut read =
                    Hello::from_client_hello(&written(&hello, &fresh(&[seed; 64]))).unwrap();
                assert_eq!(read.shuffle, hello.shuffle, "{}", browser.name);
                // A payload of another length, and the padding that follows from it.
                let plain = |hello: &Hello| {
                    let mut all = hello.extensions.to_vec();
                    all.retain(|one| one.kind != kind::PADDING);
                    for one in &mut all {
                        if let Body::EchGrease { payload, varies: true, .. } = &mut one.body {
                            *payload = 0;
                        }
                    }
                    if hello.shuffle {
                        all.sort_by_key(|one| (one.is_fixed(), one.kind));
                    }
                    all
                };
                assert_eq!(plain(&read), plain(&hello), "{}", browser.name);
                read.extensions = hello.extensions.clone();
                assert_eq!(read, hello, "{}", browser.name);
            }
        }
    }

    #[test]
    fn an_order_follows_from_the_random_octets_alone() {
        let hello = Hello::named("chrome-131").unwrap();
        let one = written(&hello, &fresh(&RANDOM));
        assert_eq!(one, written(&hello, &fresh(&RANDOM)));
        let strings: std::collections::HashSet<String> = (0..50)
            .map(|seed| written(&hello, &fresh(&[seed; 64])))
            .map(|octets| Hello::from_client_hello(&octets).unwrap().ja3())
            .collect();
        assert_eq!(strings.len(), 50);
        let firefox = Hello::named("firefox-135").unwrap();
        let read =
            |seed| Hello::from_client_hello(&written(&firefox, &fresh(&[seed; 64]))).unwrap();
        assert_eq!(read(1).ja3(), read(2).ja3());
    }

    #[test]
    fn keys_go_to_their_groups_and_the_retry_has_one() {
        let hello = Hello::named("firefox-135").unwrap();
        let (x25519, p256) = ([1; 32], [2; 65]);
        let shares = [(29, &x25519[..]), (23, &p256[..])];
        let first = written(&hello, &Fresh { shares: &shares, ..fresh(&RANDOM) });
        let share = |octets: &[u8]| [&[0, 29, 0, 32][..], octets, &[0, 23, 0, 65], &p256].concat();
        assert!(contains(&first, &share(&x25519)));
        let retry = Some(Retry { group: 23, cookie: b"cookie" });
        let second = written(&hello, &Fresh { shares: &shares, retry, ..fresh(&RANDOM) });
        assert!(!contains(&second, &x25519));
        let only = [&[0, 51, 0, 71, 0, 69, 0, 23, 0, 65][..], &p256].concat();
        let with_cookie = [&only[..], &[0, 44, 0, 8, 0, 6], b"cookie"].concat();
        assert!(contains(&second, &with_cookie));
        // RFC 8446 section 4.1.2: all else is the same, ECH grease included.
        assert_eq!(first[first.len() - 240..], second[second.len() - 240..]);
    }

    #[test]
    fn a_ticket_is_the_last_extension_and_counts_for_the_padding() {
        let psk = Some(Psk { identity: b"ticket", obfuscated_age: 0x0102_0304, binder: 32 });
        let at_the_end =
            [&[0, 41, 0, 49, 0, 12, 0, 6][..], b"ticket", &[1, 2, 3, 4, 0, 33, 32], &[0; 32]];
        for browser in Browser::all().filter(|one| one.hello().resumes_tls13()) {
            let hello = browser.hello();
            let with = written(&hello, &Fresh { psk, ..fresh(&RANDOM) });
            assert!(with.ends_with(&at_the_end.concat()), "{}", browser.name);
            assert_eq!(Hello::from_client_hello(&with).unwrap().suites, hello.suites);
            let of_others = hello.extensions.iter().filter(|one| one.kind != kind::PADDING);
            let unpadded = Hello { extensions: of_others.cloned().collect(), ..hello.clone() };
            let len = written(&unpadded, &fresh(&RANDOM)).len() + 53;
            let is_padded = unpadded != hello && (256..512).contains(&len);
            let padding = if is_padded { (512 - len).max(5) } else { 0 };
            assert_eq!(with.len(), len + padding, "{}", browser.name);
        }
        assert!(Hello::named("chrome-99").unwrap().resumes_tls13());
    }

    #[test]
    fn a_ticket_of_tls_1_2_fills_its_extension_and_all_else_is_the_same() {
        for name in ["chrome-131", "firefox-135"] {
            let hello = Hello { session_id: 0, ..Hello::named(name).unwrap() };
            let without = written(&hello, &fresh(&RANDOM));
            let with = written(&hello, &Fresh { ticket: Some(b"ticket"), ..fresh(&RANDOM) });
            assert!(contains(&with, &[&[0, 35, 0, 6][..], b"ticket"].concat()), "{name}");
            assert_eq!(with[38..][..33], [&[32][..], &RANDOM[32..]].concat(), "the session ID");
            assert_eq!(with.len(), without.len() + 6 + 32);
            let read = |octets: &[u8]| Hello::from_client_hello(octets).unwrap();
            assert_eq!(read(&with), Hello { session_id: 32, ..read(&without) });
        }
    }

    fn contains(octets: &[u8], part: &[u8]) -> bool {
        octets.windows(part.len()).any(|some| some == part)
    }

    #[test]
    fn an_address_is_not_sent() {
        let hello = Hello::named("chrome-99").unwrap();
        let octets = written(&hello, &Fresh { name: None, ..fresh(&RANDOM) });
        assert!(!Hello::from_client_hello(&octets).unwrap().offers_extension(0));
        assert_eq!(octets.len(), 512);
    }
}
