//! Any messages of DHCP to a client and a server of either family, in virtual time: nothing panics,
//! a client without a result has a timer, and a server gives no address twice. Input: an octet that
//! selects the family and the settings, then records of an octet that selects what happens, an octet
//! of time, a length, and the message.
#![no_main]

use std::{collections::BTreeSet, net::Ipv6Addr};

use libfuzzer_sys::fuzz_target;
use squall_host::{
    ClientSettings, Dhcp6Client, Dhcp6Context, Dhcp6Server, Dhcp6Settings, Dhcp6State, Dhcp6Step,
    DhcpBegin, DhcpClient, DhcpContext, DhcpServer, DhcpState, DhcpStep, DhcpTimers, Faults,
    Message, Message6, Server6Settings, ServerSettings, duid_of,
};
use squall_units::{MacAddr, Nanos};

const MAC: MacAddr = MacAddr([2, 0, 0, 1, 0, 1]);
const BEGIN: Nanos = Nanos(1_000_000_000);
/// Addresses of the server.
const COUNT: u32 = 2;
/// Timers that run in a record at most, because those of a short lease have no end.
const MOST_TIMERS: usize = 50;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, records)) = data.split_first() else { return };
    match choice & 1 {
        0 => four(choice, records),
        _ => six(choice, records),
    }
});

/// From 1 ms to 24 days.
fn later(now: Nanos, time: u8) -> Nanos {
    Nanos(now.0 + (1_000_000_u64 << (time & 31)))
}

fn draw(chance: &mut u64) -> u64 {
    *chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *chance
}

fn four(choice: u8, mut rest: &[u8]) {
    let begin = match choice >> 1 & 3 {
        0 | 1 => DhcpBegin::Discover,
        2 => DhcpBegin::Reboot,
        _ => DhcpBegin::Inform(16),
    };
    let settings =
        ClientSettings { begin, rapid_commit: choice & 8 != 0, ..ClientSettings::default() };
    let timers = DhcpTimers::default();
    let check = choice & 16 != 0;
    let own = (begin != DhcpBegin::Discover).then_some([10, 0, 1, 0].into());
    let context = |now, chance| {
        let (timers, settings, faults) = (&timers, &settings, Faults::default());
        DhcpContext { now, chance, mac: MAC, timers, settings, own, faults, check }
    };
    let mut server = DhcpServer::new(ServerSettings {
        address: [10, 0, 0, 1].into(),
        first: [10, 0, 1, 0].into(),
        count: COUNT,
        lease: 100,
        rapid_commit: choice & 32 != 0,
        ..ServerSettings::default()
    });
    let (mut client, mut now, mut chance) = (DhcpClient::default(), BEGIN, 1);
    // The client's last message.
    let mut last: Option<Message> = None;
    let keep = |last: &mut Option<Message>, step: DhcpStep| {
        if let Some(sent) = step.send {
            *last = Some(sent.message);
        }
    };
    keep(&mut last, client.start(&context(now, draw(&mut chance))));
    while let [what, time, len, more @ ..] = rest {
        let (octets, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        let until = later(now, *time);
        for _ in 0..MOST_TIMERS {
            let Some(due) = client.due().filter(|due| *due <= until) else { break };
            // More timers than these were due in the record before.
            now = due.max(now);
            keep(&mut last, client.timer(&context(now, draw(&mut chance))));
        }
        now = until;
        let cx = context(now, draw(&mut chance));
        let parsed = Message::parse(octets);
        match (what & 7, parsed) {
            // The true exchange, so that the later states are reached.
            (0 | 1, _) => {
                let reply = last.as_ref().and_then(|last| server.receive(now, last).ok().flatten());
                if let Some(reply) = reply {
                    keep(&mut last, client.receive(&cx, &reply));
                }
            }
            // A message of a server that knows the number of the exchange.
            (2, Ok(message)) => {
                let xid = last.as_ref().map_or(message.xid, |last| last.xid);
                keep(&mut last, client.receive(&cx, &Message { xid, ..message }));
            }
            (3, Ok(message)) => keep(&mut last, client.receive(&cx, &message)),
            (4, Ok(message)) => _ = server.receive(now, &message),
            (5, _) => keep(&mut last, client.checked(&cx, what & 8 != 0)),
            (6, _) if what & 8 != 0 => keep(&mut last, client.release(&cx)),
            (6, _) => keep(&mut last, client.start(&cx)),
            _ => {}
        }
        let state = client.state();
        let waits = state.is_pending() && state != DhcpState::Checking;
        assert!(!waits || client.due().is_some(), "it waits for nothing: {client:?}");
        assert!(state != DhcpState::Failed || client.failure().is_some());
        let given: Vec<_> = server.leases().map(|(_, address, _)| address).collect();
        let different: BTreeSet<_> = given.iter().collect();
        assert!(different.len() == given.len() && given.len() <= COUNT as usize, "{given:?}");
    }
}

fn six(choice: u8, mut rest: &[u8]) {
    let settings = Dhcp6Settings {
        address: choice & 2 == 0,
        prefix: (choice & 4 != 0).then_some(56),
        rapid_commit: choice & 8 != 0,
        collect: choice & 16 != 0,
        flap: (choice & 32 != 0).then_some(Nanos(60_000_000_000)),
        ..Dhcp6Settings::default()
    };
    let check = choice & 64 != 0;
    let context = |now, chance| Dhcp6Context { now, chance, mac: MAC, settings: &settings, check };
    let first: Ipv6Addr = "2001:db8::100".parse().expect("an address");
    let prefix: Ipv6Addr = "2001:db8:100::".parse().expect("a prefix");
    let mut server = Dhcp6Server::new(Server6Settings {
        identifier: duid_of(MacAddr([4; 6])),
        first,
        count: COUNT,
        prefixes: Some((prefix, 56, COUNT)),
        preferred: 100,
        valid: 200,
        ..Server6Settings::default()
    });
    let (mut client, mut now, mut chance) = (Dhcp6Client::default(), BEGIN, 1);
    let mut last: Option<Message6> = None;
    let keep = |last: &mut Option<Message6>, step: Dhcp6Step| {
        if let Some(sent) = step.send {
            *last = Some(sent.message);
        }
    };
    keep(&mut last, client.start(&context(now, draw(&mut chance))));
    while let [what, time, len, more @ ..] = rest {
        let (octets, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        let until = later(now, *time);
        for _ in 0..MOST_TIMERS {
            let Some(due) = client.due().filter(|due| *due <= until) else { break };
            now = due.max(now);
            keep(&mut last, client.timer(&context(now, draw(&mut chance))));
        }
        now = until;
        let cx = context(now, draw(&mut chance));
        let parsed = Message6::parse(octets);
        match (what & 7, parsed) {
            (0 | 1, _) => {
                let reply = last.as_ref().and_then(|last| server.receive(now, last).ok().flatten());
                if let Some(reply) = reply {
                    keep(&mut last, client.receive(&cx, &reply));
                }
            }
            (2, Ok(message)) => {
                let xid = last.as_ref().map_or(message.xid, |last| last.xid);
                let of_client = Some(duid_of(MAC));
                let server = message.server.clone().or_else(|| last.as_ref()?.server.clone());
                let message = Message6 { xid, client: of_client, server, ..message };
                keep(&mut last, client.receive(&cx, &message));
            }
            (3, Ok(message)) => keep(&mut last, client.receive(&cx, &message)),
            (4, Ok(message)) => _ = server.receive(now, &message),
            (5, _) => keep(&mut last, client.checked(&cx, what & 8 != 0)),
            (6, _) if what & 8 != 0 => keep(&mut last, client.release(&cx)),
            (6, _) if what & 16 != 0 => keep(&mut last, client.confirm(&cx)),
            (6, _) => keep(&mut last, client.start(&cx)),
            _ => {}
        }
        let state = client.state();
        let waits = state.is_pending() && state != Dhcp6State::Checking;
        assert!(!waits || client.due().is_some(), "it waits for nothing: {client:?}");
        assert!(state != Dhcp6State::Failed || client.failure().is_some());
        let given: Vec<_> = server.leases().filter_map(|lease| lease.address).collect();
        let different: BTreeSet<_> = given.iter().collect();
        assert!(different.len() == given.len() && given.len() <= COUNT as usize, "{given:?}");
        let given: Vec<_> = server.leases().filter_map(|lease| lease.prefix).collect();
        let different: BTreeSet<_> = given.iter().collect();
        assert!(different.len() == given.len() && given.len() <= COUNT as usize, "{given:?}");
    }
}
