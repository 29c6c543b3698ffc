//! Any messages of neighbor discovery to the state machines of a host and a router, in virtual time:
//! nothing panics, timers end, and an address is tentative, assigned or a duplicate. Input: records
//! of an octet that selects what happens, an octet of time, a length, and an ICMPv6 message.
#![no_main]

use std::net::{IpAddr, Ipv6Addr};

use libfuzzer_sys::fuzz_target;
use squall_host::{
    AdvertisingRouter, DuplicateDetection, NdMessage, NdTimers, Neighbor, NeighborCache,
    PrefixInformation, PrefixList, Reachability, RouterDiscovery, RouterSettings,
};
use squall_units::Nanos;
use squall_wire::checksum::{fold, sum};

const BEGIN: Nanos = Nanos(1_000_000_000);

/// A host with one address and one neighbor, and a router.
struct Machines {
    timers: NdTimers,
    address: DuplicateDetection,
    discovery: RouterDiscovery,
    neighbor: Neighbor,
    prefixes: PrefixList,
    cache: NeighborCache,
    router: AdvertisingRouter,
    settings: RouterSettings,
    chance: u64,
}

impl Machines {
    fn draw(&mut self) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.chance
    }

    fn due(&self) -> Option<Nanos> {
        let all = [
            self.address.due(),
            self.discovery.due(),
            self.neighbor.due(),
            self.prefixes.due(),
            self.prefixes.router_due(),
            self.cache.next_due(),
            self.router.due(),
        ];
        all.into_iter().flatten().min()
    }

    /// Runs all timers that are due, after which none is.
    fn run(&mut self, now: Nanos) {
        let timers = self.prefixes.timers(&self.timers);
        while self.address.timer(now, &timers).is_some() {}
        while self.discovery.timer(now, &timers).is_some() {}
        while self.neighbor.due().is_some_and(|due| due <= now) {
            self.neighbor.timer(now, &timers);
        }
        while self.prefixes.timer(now).is_some() {}
        self.prefixes.expire_routers(now);
        while self.cache.question(now).is_some() {}
        loop {
            let chance = self.draw();
            if self.router.timer(now, chance, &self.settings).is_none() {
                break;
            }
        }
        // Stale requests of the cache may be left, which the next look removes.
        let left = [self.address.due(), self.discovery.due(), self.neighbor.due()];
        assert!(left.into_iter().flatten().all(|due| due > now), "{left:?} at {now:?}");
        assert!(self.prefixes.due().is_none_or(|due| due > now));
        assert!(self.router.due().is_none_or(|due| due > now));
    }

    fn receive(&mut self, now: Nanos, what: u8, packet: &[u8]) {
        let timers = self.prefixes.timers(&self.timers);
        let chance = self.draw();
        match NdMessage::parse(packet) {
            Ok(Some(NdMessage::RouterAdvertisement(message))) => {
                self.discovery.advertised(now, message.lifetime > 0);
                let changes = self.prefixes.advertise(now, &message);
                if !changes.is_empty() && !self.address.is_usable() {
                    self.address.start(now, chance, true, &timers);
                }
                if let Some(mac) = message.mac {
                    self.neighbor.learn(mac);
                    self.cache.learn(IpAddr::V6(message.source), mac);
                }
            }
            Ok(Some(NdMessage::RouterSolicitation { source, mac })) => {
                let from = (source, mac.unwrap_or_default());
                self.router.solicited((now, chance), from, &self.settings);
            }
            Ok(Some(NdMessage::Neighbor(message))) if message.solicitation => {
                self.address.conflict(now, what & 16 != 0, &timers);
                if let Some(mac) = message.mac {
                    self.neighbor.learn(mac);
                }
            }
            Ok(Some(NdMessage::Neighbor(message))) => {
                self.neighbor.advertised(now, chance, &message, &timers);
                self.address.conflict(now, what & 16 != 0, &timers);
                if let Some(mac) = message.mac {
                    self.cache.learn(IpAddr::V6(message.target), mac);
                }
            }
            Ok(Some(NdMessage::Redirect) | None) | Err(_) => {}
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let prefix: Ipv6Addr = "2001:db8:1::".parse().expect("a prefix");
    let information = PrefixInformation {
        prefix,
        length: 64,
        on_link: true,
        autonomous: true,
        valid: 100,
        preferred: 50,
    };
    let mut machines = Machines {
        timers: NdTimers::default(),
        address: DuplicateDetection::default(),
        discovery: RouterDiscovery::default(),
        neighbor: Neighbor::unknown(BEGIN),
        prefixes: PrefixList::default(),
        cache: NeighborCache::default(),
        router: AdvertisingRouter::default(),
        settings: RouterSettings { prefixes: vec![information], ..RouterSettings::default() },
        chance: 7,
    };
    let (mut now, mut rest) = (BEGIN, data);
    machines.address.start(now, 1 << 63, true, &machines.timers);
    machines.discovery.start(now, 1 << 63, &machines.timers);
    machines.router.start(now);
    while let [what, time, len, more @ ..] = rest {
        let (octets, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        // From 1 ms to 18 h.
        let until = Nanos(now.0 + (1_000_000_u64 << (time % 27)));
        for _ in 0..200 {
            let Some(due) = machines.due().filter(|due| *due <= until) else { break };
            now = due.max(now);
            machines.run(now);
        }
        now = until;
        machines.run(now);
        match what & 7 {
            0 => _ = machines.neighbor.send(now, &machines.timers),
            1 => machines.neighbor.confirm(now, u64::from(*what) << 56, &machines.timers),
            2 => _ = machines.cache.find(now, IpAddr::V6(Ipv6Addr::from(u128::from(*what >> 5)))),
            3 if machines.neighbor.due().is_none() => machines.neighbor = Neighbor::unknown(now),
            _ => machines.receive(now, *what, &packet(*what, octets)),
        }
        let address = &machines.address;
        assert!(!address.is_tentative() || address.due().is_some(), "it waits for nothing");
        let discovery = &machines.discovery;
        assert!(!discovery.is_pending() || discovery.due().is_some(), "it waits for nothing");
        let probed = matches!(machines.neighbor.state(), Reachability::Delay | Reachability::Probe);
        assert!(!probed || machines.neighbor.mac().is_some());
        assert!(machines.prefixes.autonomous().count() <= 8);
    }
});

/// An IPv6 packet to one or to all hosts, with a right checksum.
fn packet(what: u8, octets: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((octets.len() as u16).to_be_bytes());
    packet.extend([58, 255]);
    let source = if what & 8 == 0 { "fe80::9" } else { "::" };
    for address in [source, if what & 32 == 0 { "ff02::1" } else { "fe80::1" }] {
        packet.extend(address.parse::<Ipv6Addr>().expect("an address").octets());
    }
    packet.extend(octets);
    if octets.len() >= 4 {
        packet[42..44].fill(0);
        let pseudo = sum(&packet[8..40]) + octets.len() as u64 + 58;
        let check = !fold(pseudo + sum(&packet[40..]));
        packet[42..44].copy_from_slice(&check.to_be_bytes());
    }
    packet
}
