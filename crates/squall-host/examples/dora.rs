//! DHCP between a group of clients and a server in memory, without an engine: exchanges per second on
//! one core, and memory per host.
//!
//! ```sh
//! cargo run --release -p squall-host --example dora -- 100000
//! ```

use std::time::Instant;

use squall_host::{Addressing, DhcpTimers, FrameQueue, GroupSettings, HostGroup, ServerSettings};
use squall_units::{MacAddr, Nanos};

fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let before = resident();
    let clients = settings(count, 1, Addressing::Dhcp(DhcpTimers::default()));
    let mut clients = HostGroup::new(clients, Nanos::ZERO);
    let server = ServerSettings {
        address: [10, 0, 0, 1].into(),
        prefix: 8,
        first: [10, 1, 0, 0].into(),
        count,
        ..ServerSettings::default()
    };
    let fixed = Addressing::Static { first: [10, 0, 0, 1].into(), prefix: 8 };
    let settings = GroupSettings { server: Some(server), ..settings(1, 2, fixed) };
    let mut server = HostGroup::new(settings, Nanos::ZERO);
    let (mut to_server, mut to_clients) = (FrameQueue::default(), FrameQueue::default());
    let begin = Instant::now();
    let mut frames = 0u64;
    while !clients.is_settled() {
        let now = Nanos(begin.elapsed().as_nanos() as u64);
        clients.advance(now, &mut to_server);
        frames += pass(&mut to_server, now, &mut server, &mut to_clients);
        server.advance(now, &mut to_clients);
        frames += pass(&mut to_clients, now, &mut clients, &mut to_server);
        frames += pass(&mut to_server, now, &mut server, &mut to_clients);
        frames += pass(&mut to_clients, now, &mut clients, &mut to_server);
    }
    let seconds = begin.elapsed().as_secs_f64();
    let bound = clients.statistics(false).bound;
    let memory = resident().saturating_sub(before);
    println!(
        "{bound} of {count} hosts bound in {seconds:.2} s: {:.0} exchanges/s, {:.0} frames/s; {} kB \
         of memory for clients and leases, {} octets per host",
        bound as f64 / seconds,
        frames as f64 / seconds,
        memory / 1024,
        memory / u64::from(count)
    );
}

fn pass(from: &mut FrameQueue, now: Nanos, to: &mut HostGroup, out: &mut FrameQueue) -> u64 {
    let mut frames = 0;
    while let Some((frame, _)) = from.first() {
        to.receive(now, (frame, false), out);
        from.pop();
        frames += 1;
    }
    frames
}

/// Resident memory of this process in octets; 0 if the system does not tell.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

fn settings(count: u32, third: u8, addressing: Addressing) -> GroupSettings {
    GroupSettings {
        count,
        mac: MacAddr([2, third, 0, 0, 0, 1]),
        addressing,
        ..GroupSettings::default()
    }
}
