#![no_main]
//! Clients or servers, also hosts in sessions of PPPoE, receive any octets as frames, in tags and
//! tunnels, while templates join and leave; one template has flows that start other flows. Nothing
//! panics, every frame is counted under a reason, and each answer is a valid frame.

use std::{net::IpAddr, sync::Arc};

use libfuzzer_sys::fuzz_target;
use squall_apps::Program;
use squall_flows::{
    Arrival, Cps, Ends, FlowHint, FrameOutput, Load, Network, Order, Pool, ReceiveOffloads, Role,
    Side, SideSettings, Spacing, Template, Wrap,
};
use squall_host::HostTable;
use squall_tcp::{Congestion, Tunables};
use squall_units::{Cut, MacAddr, Nanos};

struct Frames(Vec<Vec<u8>>);

impl FrameOutput for Frames {
    fn frame(&mut self, len: usize, _: Cut) -> Option<&mut [u8]> {
        self.0.push(vec![0; len]);
        self.0.last_mut().map(|frame| &mut frame[..])
    }

    fn longest(&self) -> usize {
        9100
    }
}

/// Maximum number of changes: each adds a template that stays.
const CHANGES: u32 = 16;

fuzz_target!(|data: &[u8]| {
    let Some((&[kind, role], octets)) = data.split_first_chunk() else { return };
    let (local, remote) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    let are_hosts = role & 2 != 0;
    let wraps = match kind % 6 {
        _ if are_hosts => vec![Wrap::Pppoe],
        0 => vec![],
        1 => vec![
            Wrap::Vlan { id: 1, priority: 0, service: true },
            Wrap::Vlan { id: 2, priority: 0, service: false },
        ],
        2 => vec![Wrap::Mpls { label: 16, class: 0, ttl: 64 }],
        3 => vec![Wrap::Gre { local, remote, key: Some(1) }],
        4 => vec![Wrap::Vxlan { local, remote, vni: 1, mac }],
        _ => vec![Wrap::GtpU { local, remote, teid: 1, local_teid: Some(1), source_port: 2152 }],
    };
    let tunables = |drawn: u8| {
        let controls = [Congestion::NewReno, Congestion::Cubic, Congestion::Bbr];
        Tunables { congestion: controls[usize::from(drawn % 3)], ..Tunables::default() }
    };
    let pool = |group: usize, range: &str| Pool {
        name: range.into(),
        ranges: vec![range.parse().unwrap()],
        ports: 1024..=1031,
        order: Order::Sequential,
        shared: kind & 64 != 0,
        hosts: are_hosts.then_some(group),
    };
    let (clients, servers) = if kind & 128 == 0 {
        ("16.0.0.1-16.0.0.4", "48.0.0.1")
    } else {
        ("fd00::1-fd00::4", "fd01::1")
    };
    let load = Load {
        clients: vec![pool(0, clients)],
        servers: vec![pool(1, servers)],
        templates: vec![Template {
            name: "t".into(),
            pair: 0,
            clients: 0,
            servers: 0,
            port: 80,
            client: Program::client("c").send("ping").recv(4).build().unwrap(),
            server: Program::server("s").recv(4).send("pong").build().unwrap(),
            tls: None,
            proxy: None,
            http: None,
            http3: None,
            client_tunables: tunables(role >> 4),
            server_tunables: tunables(role >> 6),
            ends: Ends::Both,
            arrival: Arrival::Open { cps: Cps::per_second(1000), spacing: Spacing::Constant },
            limit: None,
            start: Nanos::ZERO,
            duration: None,
            waits: false,
            shape: None,
            gone: false,
            joined: false,
        }],
        ..Load::default()
    };
    let mut more = load.clone();
    // Its flows start other flows, and only these can end.
    let asks = Program::client("c").lines(["begin t", "count asked", "begin called"]).send("ping");
    let of = |name: &str, port, client: &Program, arrival: &Arrival| Template {
        name: name.into(),
        port,
        client: client.clone(),
        arrival: arrival.clone(),
        ..load.templates[0].clone()
    };
    let first = &load.templates[0];
    more.templates.extend([
        of("more", 81, &asks.recv(4).build().unwrap(), &first.arrival),
        of("called", 82, &first.client, &Arrival::Called),
    ]);
    let role = if role & 1 == 0 { Role::Clients } else { Role::Servers };
    // Do not verify checksums, which would reject nearly all frames.
    let settings = SideSettings { role, flows: 64, verify: false, ..SideSettings::default() };
    let network = Network { mac, wraps, ..Network::default() };
    let mut side = Side::new(&load, &network, settings).expect("a good load");
    // Some of the hosts have no address.
    let addresses = ["16.0.0.1", "fd00::1", "16.0.0.2", "fd00::2"];
    let tables = [(1, &addresses[..]), (9, &["48.0.0.1", "fd01::1"][..])];
    let tables = tables.map(|(last, addresses)| {
        let is_ipv6 = clients.contains(':');
        let table = HostTable::new(4, (MacAddr([2, 0, 0, 0, 0, last]), 1), &[]);
        let table = if is_ipv6 { table.over_ipv6() } else { table };
        let addresses = addresses.iter().map(|text| text.parse::<IpAddr>().unwrap());
        for (number, address) in (0..).zip(addresses.filter(|of| of.is_ipv6() == is_ipv6)) {
            table.bind_in_session(number, address, mac, 1);
        }
        Some(Arc::new(table))
    });
    side.use_hosts(&load, &tables);
    let mut out = Frames(vec![]);
    let (mut frames, mut rest, mut now) = (0, octets, Nanos(1));
    let (mut played, mut changes) = (load.clone(), 0);
    while let Some((&[high, low], after)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes([high, low]) & 0x7ff).min(after.len());
        let (frame, after) = after.split_at(len);
        rest = after;
        frames += 1;
        now = now + Nanos(1_000_000);
        if high & 0x80 != 0 && changes < CHANGES {
            // A template joins, and a later change removes it.
            let joined = played.joined(if changes % 2 == 0 { &more } else { &load });
            played.can_become(&joined).expect("it has a port of its own");
            side.change(now, &joined);
            side.use_hosts(&joined, &tables);
            let new = played.templates.len()..joined.templates.len();
            new.for_each(|number| side.begin_template(now, number));
            (played, changes) = (joined, changes + 1);
        }
        // Some are joined, as packets of UDP.
        let joined = Cut { size: 100, transport: 34, payload: 42 };
        let cut = if high & 0x40 == 0 { Cut::WHOLE } else { joined };
        let came = ReceiveOffloads { cut, ..ReceiveOffloads::default() };
        let claims = side.claims(frame);
        assert_eq!(claims, side.receive(now, frame, came, FlowHint::default()), "{frame:02x?}");
        side.advance(now);
        side.begin(now, 4);
        side.transmit(now, &mut out);
    }
    assert_eq!(side.statistics(false).link.frames_received, frames);
    assert!(out.0.iter().all(|frame| frame.len() >= 14 && frame[6..11] == mac.0[..5]));
    assert!(are_hosts || out.0.iter().all(|frame| frame[11] == mac.0[5]));
    side.abort(now);
    while !side.is_over() {
        side.advance(now);
        side.transmit(now, &mut out);
    }
    assert_eq!(side.active(), 0);
});
