//! Places of connections: so many at once, of which strangers have half at most.
//!
//! Who has not shown yet that they may is a stranger, and costs nothing but a place. When there are
//! none left for strangers, the one that has waited longest gives way, of the source that has most:
//! so whoever comes gets in, and stays if they show soon that they may, however many others say
//! nothing.

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
    /// How many have shown that they may.
    known: usize,
    last: u64,
    /// When it was last logged that connections were closed, and how many were closed since.
    logged: Option<Instant>,
    closed: u64,
}

struct Stranger {
    number: u64,
    from: Source,
    gives_way: Arc<Notify>,
}

/// Who is one and the same, as far as can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    User(u32),
    /// Of IPv6 the first 64 bits: the rest is whatever its host likes.
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
        Arc::new(Self { most: most.max(4), taken: Mutex::default() })
    }

    /// A place for a stranger. Another's, if it must be.
    pub fn take(self: &Arc<Self>, peer: &Peer) -> Place {
        let (from, gives_way) = (Source::of(peer), Arc::new(Notify::new()));
        let mut taken = self.taken();
        taken.last += 1;
        let number = taken.last;
        let strangers = &mut taken.strangers;
        let of_the_source = strangers.iter().filter(|one| one.from == from).count();
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
    /// A connection was closed for another one. Its client sees no more than that, so the log has
    /// the limit; at most one line every ten seconds.
    fn log(&mut self, most: usize) {
        self.closed += 1;
        if self.logged.is_none_or(|last| last.elapsed() >= LOGGED) {
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

const LOGGED: Duration = Duration::from_secs(10);

fn largest(strangers: &VecDeque<Stranger>) -> Option<Source> {
    let mut sizes: BTreeMap<Source, usize> = BTreeMap::new();
    strangers.iter().for_each(|one| *sizes.entry(one.from).or_default() += 1);
    sizes.into_iter().max_by_key(|(_, size)| *size).map(|(source, _)| source)
}

/// Free again when dropped.
pub struct Place {
    places: Arc<Places>,
    number: u64,
    /// Changed while `taken` is locked.
    known: AtomicBool,
    gives_way: Arc<Notify>,
}

impl Place {
    /// Somebody has shown over it that they may: it is theirs, if that half is not full as well.
    pub fn is_known(&self) {
        if self.known.load(Ordering::Relaxed) {
            return;
        }
        let mut taken = self.places.taken();
        if taken.known >= self.places.most / 2 {
            return;
        }
        // One that has just been given away is not there any more.
        if let Some(at) = taken.strangers.iter().position(|one| one.number == self.number) {
            taken.strangers.remove(at);
            taken.known += 1;
            self.known.store(true, Ordering::Relaxed);
        }
    }

    /// How many are kept, if it is none of them: another may get it.
    pub fn is_not_kept(&self) -> Option<usize> {
        (!self.known.load(Ordering::Relaxed)).then_some(self.places.most / 2)
    }

    /// Ends when another needs it.
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
        // One source has no more than a quarter, and one network of IPv6 is one source.
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
    fn who_is_known_stays() {
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
    async fn who_gives_way_is_told() {
        let places = Places::new(4);
        let first = places.take(&from("192.0.2.1"));
        let _second = places.take(&from("192.0.2.1"));
        first.given_away().await;
        // Too late.
        first.is_known();
        assert_eq!(places.taken().known, 0);
    }
}
