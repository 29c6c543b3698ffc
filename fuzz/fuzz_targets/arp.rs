//! Any ARP packets to hosts that choose or examine their addresses, in virtual time: nothing panics,
//! no two hosts have one address, and groups are settled or have a timer. Input: records of an octet
//! that selects what happens, an octet of time, a length, and the octets of the packet.
#![no_main]

use std::net::Ipv4Addr;

use libfuzzer_sys::fuzz_target;
use squall_host::{
    Addressing, Arp, ConflictTimers, FrameQueue, GroupSettings, HostGroup, PingSettings,
};
use squall_units::{MacAddr, Nanos};

const BEGIN: Nanos = Nanos(1_000_000_000);
const HOSTS: u32 = 2;
const PEER: MacAddr = MacAddr([2, 0, 0, 9, 0, 9]);

fuzz_target!(|data: &[u8]| {
    let fixed = Addressing::Static { first: [10, 0, 0, 1].into(), prefix: 16 };
    let mut groups =
        [(1, Addressing::LinkLocal), (2, fixed)].map(|of| HostGroup::new(settings(of), BEGIN));
    // The address that each group has last sent a packet about.
    let mut about = [Ipv4Addr::UNSPECIFIED; 2];
    let (mut now, mut rest) = (BEGIN, data);
    while let [what, time, len, more @ ..] = rest {
        let (octets, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        // From 1 ms to 18 h.
        let until = Nanos(now.0 + (1_000_000_u64 << (time % 27)));
        for _ in 0..100 {
            let due = groups.iter().filter_map(HostGroup::next_due).min();
            let Some(due) = due.filter(|due| *due <= until) else { break };
            now = due.max(now);
            for number in 0..2 {
                let mut out = FrameQueue::default();
                while groups[number].advance(now, &mut out) {}
                // Groups hear each other.
                while let Some((frame, _)) = out.first() {
                    if let Some(arp) = frame.get(14..).and_then(Arp::parse) {
                        about[number] = arp.target;
                    }
                    let frame = frame.to_vec();
                    groups[1 - number].receive(now, (&frame, false), &mut FrameQueue::default());
                    out.pop();
                }
            }
        }
        now = until;
        let number = usize::from(what & 1);
        let packet = match what >> 1 & 3 {
            0 => octets.to_vec(),
            1 => [&[0, 1, 8, 0, 6, 4, 0, 1 + (what >> 3 & 1)], octets].concat(),
            kind => {
                // Another host probes for the address, or uses it.
                let sender = if kind == 2 { Ipv4Addr::UNSPECIFIED } else { about[number] };
                let (target, target_mac) = (about[number], MacAddr::default());
                let request = what & 8 == 0;
                Arp { request, sender_mac: PEER, sender, target_mac, target }.octets().to_vec()
            }
        };
        let frame = [&[0xff; 6][..], &PEER.0, &[8, 6], &packet].concat();
        for group in &mut groups {
            group.receive(now, (&frame, what & 16 != 0), &mut FrameQueue::default());
        }
        for group in &groups {
            let all: Vec<_> = (0..HOSTS).filter_map(|host| group.address(host)).collect();
            assert!(all.len() < 2 || all[0] != all[1], "{all:?}");
            assert!(group.is_settled() || group.next_due().is_some(), "it waits for nothing");
        }
    }
});

fn settings((third, addressing): (u8, Addressing)) -> GroupSettings {
    let target = Some([10, 0, 0, 9].into());
    let ping = PingSettings { target, rate: 10, count: 2, timeout: Nanos(1_000_000_000) };
    GroupSettings {
        count: HOSTS,
        mac: MacAddr([2, 0, 0, third, 0, 1]),
        addressing,
        conflict: ConflictTimers::default(),
        ping: Some(ping),
        ..GroupSettings::default()
    }
}
