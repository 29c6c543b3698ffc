//! A speaker against a routing daemon in a network namespace of its own, over a TAP interface.
//! `cargo run --release -p squall-speaker --example speak -- VERSION ROUTES COMMAND...`
//!
//! The namespace has the addresses 10.77.0.1/16 and fd77::1/64, and COMMAND runs in it. The speaker
//! has 10.77.0.9 and fd77::9, is in the autonomous system 65001, and has a session over IP of this
//! VERSION (4 or 6), in which it announces ROUTES prefixes of IPv4 (/24, from 16.0.0.0 on) and two
//! of IPv6. It prints a line when it has announced all, and one with its state each time that it
//! reads a line; it stops at the end of the input. Needs root and `ip`.

use std::{
    io::{self, BufRead},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::Command,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use squall_bgp::{Family, PeerSettings, Prefix, RouteAttributes};
use squall_host::FrameQueue;
use squall_port::FrameLink;
use squall_port_linux::tap::Tap;
use squall_speaker::{Peer, Speaker, SpeakerGroup, SpeakerPeer, SpeakerRouter, SpeakerSettings};
use squall_units::{MacAddr, Nanos};

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn group(
    prefixes: impl Fn() -> Box<dyn Iterator<Item = Prefix>> + Send + Sync + 'static,
) -> SpeakerGroup {
    let attributes = RouteAttributes {
        med: Some(7),
        prepend: 1,
        as_path: vec![4_200_000_001],
        communities: vec![(65_001, 42)],
        large_communities: vec![[65_001, 1, 2]],
        ..RouteAttributes::default()
    };
    let prefixes = Arc::new(prefixes);
    SpeakerGroup { attributes, prefixes, sets: None, is_announced: true, peers: None, path: None }
}

fn speaker(is_ipv4: bool, routes: u32) -> Speaker {
    let own = (Ipv4Addr::new(10, 77, 0, 9), Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 9));
    let peer: IpAddr = match is_ipv4 {
        true => [10, 77, 0, 1].into(),
        false => [0xfd77, 0, 0, 0, 0, 0, 0, 1].into(),
    };
    let session = PeerSettings {
        asn: 65_001,
        identifier: [192, 0, 2, 9].into(),
        families: [true, true],
        restart: Some(60),
        // The peer starts at the same time, and may refuse the first connection.
        connect_retry: Nanos::SECOND,
        ipv4: Some(own.0),
        ipv6: Some(own.1),
        ..PeerSettings::default()
    };
    let ipv4 = move || -> Box<dyn Iterator<Item = Prefix>> {
        let address = |number: u32| Ipv4Addr::from_bits(0x1000_0000 + (number << 8)).into();
        Box::new((0..routes).map(move |number| Prefix { address: address(number), length: 24 }))
    };
    let ipv6 = || -> Box<dyn Iterator<Item = Prefix>> {
        let address = |number| Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 0).into();
        Box::new((1..3).map(move |number| Prefix { address: address(number), length: 48 }))
    };
    let settings = SpeakerSettings {
        routers: vec![SpeakerRouter {
            mac: MacAddr([2, 0, 0, 0, 0, 9]),
            addresses: vec![own.0.into(), own.1.into()],
            peers: vec![SpeakerPeer { address: peer, session }],
        }],
        groups: vec![group(ipv4), group(ipv6)],
        ..SpeakerSettings::default()
    };
    Speaker::new(settings).expect("a usual MTU")
}

fn ip(words: &str) -> io::Result<()> {
    let status = Command::new("ip").args(words.split(' ')).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("ip {words}: {status}"))) }
}

fn print(what: &str, peer: &Peer, since: Instant) {
    let routes = |family| peer.learnt.routes(family);
    let fed =
        peer.fed_at.zip(peer.session.established_at()).map(|(fed, up)| fed.saturating_sub(up));
    println!(
        "{what}: {} after {} ms, announced {} in {} with {} ms of CPU, learnt {} and {}, {:?}",
        peer.session.state().name(),
        since.elapsed().as_millis(),
        peer.announced,
        fed.unwrap_or_default(),
        cpu().as_millis(),
        routes(Family::Ipv4),
        routes(Family::Ipv6),
        peer.session.last_error(),
    );
}

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [version, routes, command, arguments @ ..] = &words[..] else {
        return Err(io::Error::other("usage: speak VERSION ROUTES COMMAND..."));
    };
    let routes: u32 = routes.parse().map_err(io::Error::other)?;

    let mut tap = Tap::in_new_namespace("peer0")?;
    ip("link set lo up")?;
    ip("addr add 10.77.0.1/16 dev peer0")?;
    ip("addr add fd77::1/64 dev peer0 nodad")?;
    ip("link set peer0 up txqueuelen 10000")?;
    // The lines of the standard output are those of the speaker.
    let mut child = Command::new(command).args(arguments).stdout(io::stderr()).spawn()?;
    // Scripts enter the namespace by this process.
    println!("process {}", child.id());

    let (lines, input) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                break;
            }
        }
    });

    let since = Instant::now();
    let now = || Nanos(since.elapsed().as_nanos() as u64);
    let mut speaker = speaker(version == "4", routes);
    let (mut queue, mut buffer) = (FrameQueue::default(), vec![0; 1 << 16]);
    let (mut is_fed, mut is_stopped) = (false, false);
    speaker.start(now(), &mut queue);
    while !is_stopped || !speaker.is_settled() {
        let mut any = false;
        for _ in 0..64 {
            let Some(len) = tap.take(&mut buffer)? else { break };
            speaker.receive(now(), (&buffer[..len], false), &mut queue);
            any = true;
        }
        if speaker.next_due().is_some_and(|due| due <= now()) || any {
            speaker.advance(now(), &mut queue);
        }
        while let Some((frame, _)) = queue.first() {
            any = true;
            if !tap.give(frame, false)? {
                break;
            }
            queue.pop();
        }
        let state = &speaker.peers()[0];
        if !is_fed && state.fed_at.is_some() {
            is_fed = true;
            print("announced", state, since);
        }
        match input.try_recv() {
            Ok(_) => print("state", state, since),
            Err(mpsc::TryRecvError::Empty) => {}
            Err(mpsc::TryRecvError::Disconnected) if is_stopped => {}
            Err(mpsc::TryRecvError::Disconnected) => {
                is_stopped = true;
                speaker.stop(now(), &mut queue);
            }
        }
        if !any {
            if let Some(status) = child.try_wait()?.filter(|_| !is_stopped) {
                return Err(io::Error::other(format!("{command}: {status}")));
            }
            thread::sleep(Duration::from_micros(50));
        }
    }
    _ = child.kill();
    child.wait().map(drop)
}
