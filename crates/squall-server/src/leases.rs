//! Leases of ports to owners, for a limited time. This is a state machine without a clock: the
//! caller passes the time.
//!
//! A lease starts when no other lease holds one of its ports. It ends when its holder releases it,
//! when another client takes its ports by force, or when its holder sends no request during the
//! time to live. It is then *ending* until the runs on its ports have ended. The ports become free
//! only after that, so that no two runs use a port at once.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

/// A resource that only one lease may hold, as named by `ports::resource`: an interface, a link in
/// memory, a file. `None` if any number of leases may hold it.
pub type Resource = Option<String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub id: String,
    pub owner: String,
    /// Addresses of the ports, each with its resource.
    pub ports: Vec<(String, Resource)>,
    pub ttl: Duration,
    pub keep: Keep,
    /// The time at which it expires if it is not renewed.
    pub expires: Duration,
    /// The lease has ended, but its ports are not free yet.
    pub ending: bool,
}

/// How long a lease lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// While it is renewed, or its owner has an open connection.
    Renewed,
    /// Until it is released together with its run.
    Run,
}

/// A port that another owner holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub address: String,
    pub lease: String,
    pub owner: String,
    /// Time until it expires; `None` if it lasts until its run ends or its connection closes.
    pub left: Option<Duration>,
    pub ending: bool,
}

#[derive(Debug, Default)]
pub struct Leases {
    leases: BTreeMap<u64, Lease>,
    made: u64,
    /// Number of open connections by owner.
    connections: HashMap<String, usize>,
}

impl Leases {
    /// Leases `ports` to `owner`. Duplicate addresses, and two addresses of one interface, count as
    /// one port.
    ///
    /// # Errors
    /// Ports that other leases hold; the error lists all of them.
    pub fn acquire(
        &mut self,
        now: Duration,
        owner: &str,
        ports: Vec<(String, Resource)>,
        ttl: Duration,
        keep: Keep,
    ) -> Result<Lease, Vec<Held>> {
        let held: Vec<_> = ports
            .iter()
            .filter_map(|(address, what)| self.held(now, address, what.as_ref()))
            .collect();
        if !held.is_empty() {
            return Err(held);
        }
        self.made += 1;
        let id = format!("l-{}", self.made);
        let expires = now + ttl;
        let lease = Lease { id, owner: owner.to_owned(), ports, ttl, keep, expires, ending: false };
        self.leases.insert(self.made, lease.clone());
        Ok(lease)
    }

    /// Exchanges the ports of a lease. Returns `None` if the lease has ended.
    ///
    /// # Errors
    /// Ports that other leases hold; the error lists all of them. The lease then keeps its ports.
    pub fn exchange(
        &mut self,
        now: Duration,
        id: &str,
        ports: Vec<(String, Resource)>,
    ) -> Option<Result<(), Vec<Held>>> {
        self.renew(now, id)?;
        let held =
            ports.iter().filter_map(|(address, what)| self.held(now, address, what.as_ref()));
        let held: Vec<_> = held.filter(|held| held.lease != id).collect();
        if !held.is_empty() {
            return Some(Err(held));
        }
        let lease = self.leases.values_mut().find(|lease| lease.id == id)?;
        lease.ports = ports;
        Some(Ok(()))
    }

    fn held(&self, now: Duration, address: &str, what: Option<&String>) -> Option<Held> {
        let what = what?;
        let lease = self.holder(what)?;
        // There is no remaining time to show, because a run or a connection keeps the lease.
        let stays = lease.keep == Keep::Run || self.is_connected(&lease.owner);
        Some(Held {
            address: address.to_owned(),
            lease: lease.id.clone(),
            owner: lease.owner.clone(),
            left: (!stays).then(|| lease.expires.saturating_sub(now)),
            ending: lease.ending,
        })
    }

    /// The lease that holds `resource`.
    pub fn holder(&self, resource: &str) -> Option<&Lease> {
        self.leases
            .values()
            .find(|lease| lease.ports.iter().any(|(_, what)| what.as_deref() == Some(resource)))
    }

    /// Renews a lease. Returns `None` if there is no such lease or it has ended.
    pub fn renew(&mut self, now: Duration, id: &str) -> Option<&Lease> {
        let lease = self.leases.values_mut().find(|lease| lease.id == id && !lease.ending)?;
        // Check the time too, because the lease may have expired after the last call of `expire`.
        if expires(lease, &self.connections) && lease.expires <= now {
            return None;
        }
        lease.expires = now + lease.ttl;
        Some(lease)
    }

    /// Ends leases that have expired. Returns each of them once, and the caller stops its runs.
    pub fn expire(&mut self, now: Duration) -> Vec<Lease> {
        let connections = &self.connections;
        let over = self
            .leases
            .values_mut()
            .filter(|lease| expires(lease, connections) && lease.expires <= now);
        over.map(|lease| {
            lease.ending = true;
            lease.clone()
        })
        .collect()
    }

    /// The time until the next lease expires if it is not renewed; `None` if none will.
    pub fn next_expiry(&self, now: Duration) -> Option<Duration> {
        let leases = self.leases.values().filter(|lease| expires(lease, &self.connections));
        leases.map(|lease| lease.expires.saturating_sub(now)).min()
    }

    /// Ends a lease. Returns `None` if there is no such lease or it has ended.
    pub fn release(&mut self, id: &str) -> Option<Lease> {
        let lease = self.leases.values_mut().find(|lease| lease.id == id && !lease.ending)?;
        lease.ending = true;
        Some(lease.clone())
    }

    /// Frees the ports of an ended lease on which nothing runs any longer.
    pub fn ended(&mut self, id: &str) {
        self.leases.retain(|_, lease| lease.id != id || !lease.ending);
    }

    /// Counts an open connection of `owner`. While one is open, the owner's leases do not expire,
    /// because clients of Open Traffic Generator know no leases and renew none (ADR 0034).
    pub fn connect(&mut self, owner: &str) {
        *self.connections.entry(owner.to_owned()).or_default() += 1;
    }

    /// Counts a closed connection. The time to live of the owner's leases starts when its last
    /// connection closes.
    pub fn disconnect(&mut self, now: Duration, owner: &str) {
        let Some(open) = self.connections.get_mut(owner) else { return };
        *open -= 1;
        if *open == 0 {
            self.connections.remove(owner);
            for lease in self.leases.values_mut().filter(|lease| lease.owner == owner) {
                lease.expires = now + lease.ttl;
            }
        }
    }

    pub fn is_connected(&self, owner: &str) -> bool {
        self.connections.contains_key(owner)
    }

    pub fn get(&self, id: &str) -> Option<&Lease> {
        self.leases.values().find(|lease| lease.id == id)
    }

    /// All leases in order of creation.
    pub fn all(&self) -> impl Iterator<Item = &Lease> {
        self.leases.values()
    }
}

/// Whether the lease expires if it is not renewed.
fn expires(lease: &Lease, connections: &HashMap<String, usize>) -> bool {
    !lease.ending && lease.keep == Keep::Renewed && !connections.contains_key(&lease.owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TTL: Duration = Duration::from_secs(30);

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn ports(names: &[&str]) -> Vec<(String, Resource)> {
        names
            .iter()
            .map(|name| (format!("af_packet:{name}"), Some(format!("interface {name}"))))
            .collect()
    }

    #[test]
    fn a_refusal_names_the_holder_of_a_port_and_the_remaining_time() {
        let mut leases = Leases::default();
        leases.acquire(s(0), "alice", ports(&["a", "b"]), TTL, Keep::Renewed).expect("free");
        let held =
            leases.acquire(s(18), "bob", ports(&["b", "c"]), TTL, Keep::Renewed).expect_err("held");
        assert_eq!((held.len(), held[0].owner.as_str(), held[0].left), (1, "alice", Some(s(12))));
        leases
            .acquire(s(18), "bob", ports(&["c"]), TTL, Keep::Renewed)
            .expect("what is refused takes nothing");
    }

    #[test]
    fn a_lease_that_is_not_renewed_ends_and_its_ports_are_free_when_its_runs_have_ended() {
        let mut leases = Leases::default();
        let lease = leases.acquire(s(0), "alice", ports(&["a"]), TTL, Keep::Renewed).expect("free");
        leases.renew(s(20), &lease.id).expect("in time");
        assert!(leases.expire(s(49)).is_empty());
        assert_eq!(leases.next_expiry(s(49)), Some(s(1)));
        assert_eq!(leases.expire(s(50)).len(), 1);
        assert!(leases.expire(s(51)).is_empty(), "each is told once");
        assert!(leases.renew(s(51), &lease.id).is_none());
        let held = leases
            .acquire(s(51), "bob", ports(&["a"]), TTL, Keep::Renewed)
            .expect_err("its run still ends");
        assert!(held[0].ending);
        leases.ended(&lease.id);
        leases.acquire(s(51), "bob", ports(&["a"]), TTL, Keep::Renewed).expect("free");
    }

    #[test]
    fn an_expired_lease_is_not_renewed_even_before_anybody_looked() {
        let mut leases = Leases::default();
        let lease = leases.acquire(s(0), "alice", ports(&["a"]), TTL, Keep::Renewed).expect("free");
        assert!(leases.renew(s(30), &lease.id).is_none());
    }

    #[test]
    fn an_open_connection_keeps_the_leases_of_its_owner_and_the_last_that_closes_begins_the_time() {
        let mut leases = Leases::default();
        leases.connect("otg/alice");
        leases.connect("otg/alice");
        leases.acquire(s(0), "otg/alice", ports(&["a"]), TTL, Keep::Renewed).expect("free");
        leases.disconnect(s(100), "otg/alice");
        assert!(leases.expire(s(1000)).is_empty());
        leases.disconnect(s(1000), "otg/alice");
        assert!(leases.expire(s(1029)).is_empty());
        assert_eq!(leases.expire(s(1030)).len(), 1);
    }

    #[test]
    fn a_lease_of_a_run_lasts_until_it_is_released() {
        let mut leases = Leases::default();
        let lease = leases.acquire(s(0), "alice", ports(&["a"]), TTL, Keep::Run).expect("free");
        assert!(leases.expire(s(1_000_000)).is_empty());
        leases.release(&lease.id).expect("it is there");
        assert!(leases.release(&lease.id).is_none());
        leases.ended(&lease.id);
        assert_eq!(leases.all().count(), 0);
    }

    #[test]
    fn a_lease_exchanges_its_ports_for_free_ones_or_keeps_them_all() {
        let mut leases = Leases::default();
        let lease =
            leases.acquire(s(0), "alice", ports(&["a", "b"]), TTL, Keep::Renewed).expect("free");
        leases.acquire(s(0), "bob", ports(&["c"]), TTL, Keep::Renewed).expect("free");
        let held = leases
            .exchange(s(1), &lease.id, ports(&["b", "c"]))
            .expect("it is there")
            .expect_err("held");
        assert_eq!(
            (held[0].owner.as_str(), leases.holder("interface a").map(|l| l.owner.as_str())),
            ("bob", Some("alice"))
        );
        leases.exchange(s(1), &lease.id, ports(&["b", "d"])).expect("it is there").expect("free");
        assert!(leases.holder("interface a").is_none() && leases.holder("interface d").is_some());
        assert!(leases.exchange(s(31), &lease.id, ports(&["b"])).is_none(), "it has expired");
    }

    #[test]
    fn shareable_ports_have_many_holders() {
        let mut leases = Leases::default();
        let null = || vec![("null:".to_owned(), None)];
        leases.acquire(s(0), "alice", null(), TTL, Keep::Renewed).expect("free");
        leases.acquire(s(0), "bob", null(), TTL, Keep::Renewed).expect("it is nobody's");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Acquire(u8, Vec<u8>, bool),
        Renew(u8),
        Release(u8),
        Ended(u8),
        Connect(u8),
        Disconnect(u8),
        Wait(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..3u8, proptest::collection::vec(0..4u8, 1..3), any::<bool>())
                .prop_map(|(client, ports, run)| Step::Acquire(client, ports, run)),
            (0..8u8).prop_map(Step::Renew),
            (0..8u8).prop_map(Step::Release),
            (0..8u8).prop_map(Step::Ended),
            (0..3u8).prop_map(Step::Connect),
            (0..3u8).prop_map(Step::Disconnect),
            (0..40u8).prop_map(Step::Wait),
        ];
        proptest::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn no_port_is_ever_held_twice_and_none_for_ever_by_who_is_gone(steps in steps()) {
            let (mut leases, mut now) = (Leases::default(), Duration::ZERO);
            let owner = |client: u8| format!("user {client}");
            for step in steps {
                match step {
                    Step::Acquire(client, on, run) => {
                        let names: Vec<_> = on.iter().map(u8::to_string).collect();
                        let wanted = ports(&names.iter().map(String::as_str).collect::<Vec<_>>());
                        let free = wanted.iter().all(|(_, what)| leases.holder(what.as_ref().unwrap()).is_none());
                        let keep = if run { Keep::Run } else { Keep::Renewed };
                        let got = leases.acquire(now, &owner(client), wanted, TTL, keep);
                        prop_assert_eq!(got.is_ok(), free);
                    }
                    Step::Renew(id) => _ = leases.renew(now, &format!("l-{id}")),
                    Step::Release(id) => _ = leases.release(&format!("l-{id}")),
                    Step::Ended(id) => leases.ended(&format!("l-{id}")),
                    Step::Connect(client) => leases.connect(&owner(client)),
                    Step::Disconnect(client) => leases.disconnect(now, &owner(client)),
                    Step::Wait(seconds) => now += s(seconds.into()),
                }
                leases.expire(now);
                let mut all: Vec<_> = leases.all().flat_map(|lease| {
                    let mut of: Vec<_> = lease.ports.iter().filter_map(|(_, what)| what.clone()).collect();
                    of.sort();
                    of.dedup();
                    of
                }).collect();
                let before = all.len();
                all.sort();
                all.dedup();
                prop_assert_eq!(all.len(), before, "a port has two holders");
                let live = leases.all().filter(|lease| !lease.ending && lease.keep == Keep::Renewed);
                for lease in live {
                    prop_assert!(lease.expires > now || leases.is_connected(&lease.owner));
                    prop_assert!(lease.expires <= now + TTL);
                }
            }
            // All connections close, so only leases that belong to runs remain.
            for client in 0..3 {
                while leases.is_connected(&owner(client)) {
                    leases.disconnect(now, &owner(client));
                }
            }
            leases.expire(now + TTL);
            prop_assert!(leases.all().all(|lease| lease.ending || lease.keep == Keep::Run));
        }
    }
}
