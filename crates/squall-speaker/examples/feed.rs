//! Cost of routes: two speakers exchange frames in memory and in virtual time; one announces, the
//! other learns.
//! `cargo run --release -p squall-speaker --example feed [-- SESSIONS ROUTES]`
//!
//! Prints the CPU time of packing, of the announcing side (all sessions), and of the learning one.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use rustix::time::{ClockId, clock_gettime};
use squall_bgp::{Family, MOST, PathIds, PeerSettings, Prefix, RouteAttributes, pack, room};
use squall_host::FrameQueue;
use squall_speaker::{Speaker, SpeakerGroup, SpeakerPeer, SpeakerRouter, SpeakerSettings};
use squall_units::{MacAddr, Nanos};

fn cpu() -> Nanos {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

fn prefixes(count: u32) -> impl Iterator<Item = Prefix> {
    let address = |number: u32| Ipv4Addr::from_bits(0x1000_0000 + (number << 8)).into();
    (0..count).map(move |number| Prefix { address: address(number), length: 24 })
}

fn side(side: u8, sessions: u32, routes: u32) -> SpeakerSettings {
    let address = |side: u8, number: u32| {
        Ipv4Addr::from_bits(0x0a00_0000 + (u32::from(side) << 16) + number).into()
    };
    let router = |number: u32| {
        let [.., high, low] = number.to_be_bytes();
        let session = PeerSettings {
            asn: 65_000 + u32::from(side),
            identifier: Ipv4Addr::from_bits(u32::from(side) << 16 | number),
            ipv4: Some([10, 0, 0, 1].into()),
            ipv6: Some(Ipv6Addr::LOCALHOST),
            extended_messages: false,
            passive: side == 2,
            ..PeerSettings::default()
        };
        SpeakerRouter {
            mac: MacAddr([2, 0, 0, side, high, low]),
            addresses: vec![address(side, number)],
            peers: vec![SpeakerPeer { address: address(3 - side, number), session }],
        }
    };
    let group = SpeakerGroup {
        attributes: RouteAttributes::default(),
        prefixes: Arc::new(move || -> Box<dyn Iterator<Item = Prefix>> {
            Box::new(prefixes(routes))
        }),
        sets: None,
        is_announced: true,
        peers: None,
        path: None,
    };
    SpeakerSettings {
        routers: (1..=sessions).map(router).collect(),
        groups: if side == 1 { vec![group] } else { Vec::new() },
        ..SpeakerSettings::default()
    }
}

fn main() {
    let mut words = std::env::args().skip(1).map(|word| word.parse().expect("a number"));
    let (sessions, routes) = (words.next().unwrap_or(1), words.next().unwrap_or(1_000_000));

    let before = cpu();
    let room = room(Family::Ipv4, MOST, 0).expect("there is room");
    let packed = pack(Family::Ipv4, prefixes(routes), room, PathIds::None);
    println!("packing {routes} routes, {} messages: {}", packed.messages(), cpu() - before);

    let mut speakers =
        [1, 2].map(|number| Speaker::new(side(number, sessions, routes)).expect("a usual MTU"));
    let mut queues = [FrameQueue::default(), FrameQueue::default()];
    let mut costs = [Nanos::ZERO; 2];
    let mut now = Nanos::SECOND;
    for (speaker, queue) in speakers.iter_mut().zip(&mut queues) {
        speaker.start(now, queue);
    }
    let mut frames = [0; 2];
    while !speakers.iter().all(Speaker::is_settled) {
        let mut any = false;
        for side in [0, 1] {
            let [one, two] = &mut queues;
            let (own, other) = if side == 0 { (one, two) } else { (two, one) };
            let before = cpu();
            while let Some((frame, _)) = other.first() {
                speakers[side].receive(now, (frame, false), own);
                other.pop();
                any = true;
                frames[1 - side] += 1;
            }
            speakers[side].advance(now, own);
            costs[side] = costs[side] + (cpu() - before);
        }
        let due = speakers.iter().filter_map(Speaker::next_due).min().unwrap_or(now);
        now = if any { now + Nanos(1000) } else { now.max(due) };
    }
    let learnt: u64 = speakers[1].peers().iter().map(|it| it.learnt.routes(Family::Ipv4)).sum();
    assert_eq!(learnt, (u64::from(sessions) * u64::from(routes)).min(10_000_000));
    for (side, name) in ["announcing", "learning"].into_iter().enumerate() {
        let each = costs[side].0 / u64::from(sessions);
        println!(
            "{name}: {:.1} ms for each of {sessions} sessions, {} frames in all",
            each as f64 / 1e6,
            frames[side]
        );
    }
}
