//! Routers of OSPF and IS-IS of devices. Each is a routing daemon in a network namespace of its
//! own, as a router of a profile; its link is read and written by the thread of the interface.
//!
//! The device itself answers requests for its addresses, so the daemon's kernel gets only what the
//! device has no answer for: packets of the protocol, and answers to its own requests.

use std::{
    io,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use squall::Error;
use squall_control::driving::lock;
use squall_machine::router::Router;
use squall_port::FrameLink;
use squall_router::{
    DaemonState, RouterOrder, StepState,
    observe::{
        IsisCounts, OspfCounts, Protocol, fragments::Fragments, lsdb::Database, senders::Senders,
    },
};
use squall_units::{MacAddr, Nanos, get_be16};

use super::bgp::{is_answer, mtu, tagged, untagged};
use crate::{DeviceInfo, RouterInfo, Translated, VlanInfo};

const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Frames that are read from a daemon at once.
const BATCH: usize = 64;
/// Time between two looks for the end of an order.
const LOOK: Duration = Duration::from_millis(1);

pub struct DeviceRouter {
    pub info: RouterInfo,
    /// Value of [`DeviceInfo::port`].
    pub port: String,
    mac: MacAddr,
    tags: Vec<VlanInfo>,
    mtu: u32,
    /// `None`: it is not started, or has ended.
    daemon: Mutex<Option<Router>>,
    link: Mutex<Link>,
    /// The last state of a daemon that was stopped.
    last: Mutex<DaemonState>,
    steps: Mutex<OpenSteps>,
}

/// Steps that a daemon was given.
#[derive(Default)]
struct OpenSteps {
    given: u64,
    /// Ended ones whose errors were returned.
    ended: usize,
}

/// The end of a router's link, with counts of its packets.
#[derive(Default)]
struct Link {
    end: Option<Box<dyn FrameLink>>,
    buffer: Vec<u8>,
    seen: Seen,
    /// Sent and received ones.
    fragments: [Fragments; 2],
    senders: Senders,
    /// Received LSAs and LSPs.
    database: Arc<Database>,
    /// The router was taken down: it has learnt nothing.
    is_down: bool,
}

/// Packets that a router has sent and received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub ospf: [OspfCounts; 2],
    pub isis: [IsisCounts; 2],
}

/// The routers of a configuration, which are not started yet.
pub fn routers(translated: &Translated) -> Vec<Arc<DeviceRouter>> {
    let router = |info: &RouterInfo| {
        let device = translated.devices.get(info.interface)?;
        Some(Arc::new(DeviceRouter::new(info, device)))
    };
    translated.routers.iter().filter_map(router).collect()
}

impl DeviceRouter {
    fn new(info: &RouterInfo, device: &DeviceInfo) -> Self {
        Self {
            info: info.clone(),
            port: device.port.clone(),
            mac: device.mac,
            tags: device.vlans.clone(),
            mtu: mtu(device).into(),
            daemon: Mutex::default(),
            link: Mutex::default(),
            last: Mutex::default(),
            steps: Mutex::default(),
        }
    }

    /// The name of its protocol, for users.
    pub fn protocol(&self) -> &'static str {
        match self.info.protocol {
            Protocol::Ospf2 => "OSPFv2",
            Protocol::Ospf3 => "OSPFv3",
            Protocol::Isis => "IS-IS",
        }
    }

    /// Starts the daemon.
    ///
    /// # Errors
    /// It is not installed or refuses its configuration, or a namespace is not permitted.
    pub fn start(&self) -> Result<(), Error> {
        let RouterInfo { name, settings, .. } = &self.info;
        let started = Router::start(name, settings, &[], self.mtu);
        let (daemon, end) = started.map_err(|error| {
            let text = format!("cannot start router {name:?}: {error}");
            match error.kind() {
                io::ErrorKind::InvalidInput => Error::Usage(text),
                _ => Error::Environment(text),
            }
        })?;
        daemon.begin(squall_port::monotonic());
        *lock(&self.link) = Link { end: Some(end), buffer: vec![0; 1 << 16], ..Link::default() };
        *lock(&self.steps) = OpenSteps::default();
        *lock(&self.daemon) = Some(daemon);
        Ok(())
    }

    /// Ends the daemon, while the thread of the interface still carries its goodbye. Counters stay,
    /// but nothing that it has learnt.
    fn stop(&self) {
        let daemon = lock(&self.daemon).take();
        if let Some(daemon) = daemon {
            let mut state = daemon.state();
            for protocol in &mut state.protocols {
                protocol.neighbors.clear();
                protocol.lsps = [0; 2];
            }
            *lock(&self.last) = state;
            drop(daemon);
        }
        let mut link = lock(&self.link);
        link.end = None;
        link.forget();
    }

    /// Handles a received frame.
    pub fn receive(&self, now: Nanos, (frame, partial): (&[u8], bool)) {
        let is_addressed = |frame: &[u8]| {
            frame.starts_with(&self.mac.0) || frame.first().is_some_and(|it| it & 1 == 1)
        };
        let Some(frame) = untagged(&self.tags, frame).filter(|frame| is_addressed(frame)) else {
            return;
        };
        let mut link = lock(&self.link);
        if link.end.is_none() {
            return;
        }
        let protocol = self.info.protocol;
        match link.fragments[1].take(now, protocol, &frame) {
            Some(packet) => {
                link.seen.count(1, protocol, &packet);
                if self.info.learns {
                    link.learn(now, &self.info, &frame[6..12], &packet);
                }
            }
            None if !is_for_kernel(protocol, &frame) => return,
            None => {}
        }
        // A daemon that is gone is reported by its state, and one without room asks again.
        let _ = link.end.as_mut().map(|end| end.give(&frame, partial));
    }

    /// Appends frames of the daemon to `out`.
    pub fn turn(&self, now: Nanos, out: &mut Vec<Vec<u8>>) {
        let mut link = lock(&self.link);
        let Link { end: Some(end), buffer, seen, fragments, .. } = &mut *link else { return };
        let protocol = self.info.protocol;
        for _ in 0..BATCH {
            let Ok(Some(length)) = end.take(buffer) else { return };
            let frame = &buffer[..length];
            match fragments[0].take(now, protocol, frame) {
                Some(packet) => seen.count(0, protocol, &packet),
                None if !is_of_kernel(protocol, frame) => continue,
                None => {}
            }
            out.push(tagged(&self.tags, frame));
        }
    }

    /// Gives an order to the daemon. [`DeviceRouter::failed_steps`] says whether it could be
    /// carried out.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn order(&self, order: RouterOrder) -> Result<(), Error> {
        let name = &self.info.name;
        let fails = |error: io::Error| Error::Environment(format!("router {name:?}: {error}"));
        match order {
            RouterOrder::Down { .. } => self.set_down(true),
            RouterOrder::Up { .. } => self.set_down(false),
            _ => {}
        }
        match &*lock(&self.daemon) {
            Some(daemon) => {
                daemon.order(order, None).map_err(fails)?;
                lock(&self.steps).given += 1;
                Ok(())
            }
            None => Err(Error::Usage(format!("router {name:?} is not started"))),
        }
    }

    /// Waits for the end of all orders, at most until `until`, and returns why some could not be
    /// carried out. Each error is returned once.
    pub fn failed_steps(&self, until: Instant) -> Vec<String> {
        let mut errors = Vec::new();
        loop {
            let have_ended = lock(&self.daemon).as_ref().is_none_or(|daemon| {
                daemon.with_state(|state| {
                    let mut steps = lock(&self.steps);
                    errors.extend(steps.errors(state));
                    steps.have_ended(state)
                })
            });
            if have_ended || Instant::now() >= until {
                break;
            }
            std::thread::sleep(LOOK);
        }
        errors.iter().map(|why| format!("router {:?}: {why}", self.info.name)).collect()
    }

    /// A daemon of OSPF has an empty database when it comes back, and its neighbors send theirs.
    /// That of IS-IS keeps its database, so it hears of changes only.
    fn set_down(&self, is_down: bool) {
        let mut link = lock(&self.link);
        link.is_down = is_down;
        if is_down && self.info.protocol != Protocol::Isis {
            link.forget();
        }
    }

    /// The state of the daemon, and the packets on its link.
    pub fn state(&self) -> (DaemonState, Seen) {
        let state = lock(&self.daemon).as_ref().map(Router::state);
        let state = state.unwrap_or_else(|| lock(&self.last).clone());
        (state, lock(&self.link).seen)
    }

    /// Why the daemon has ended before it was stopped.
    pub fn failed(&self) -> Option<String> {
        match &*lock(&self.daemon) {
            Some(daemon) => daemon.with_state(|state| state.failed.clone()),
            None => lock(&self.last).failed.clone(),
        }
    }

    /// The LSAs or LSPs that it has learnt.
    pub fn database(&self, now: Nanos) -> Arc<Database> {
        let mut link = lock(&self.link);
        if link.is_down {
            return Arc::default();
        }
        Arc::make_mut(&mut link.database).expire(now, self.info.protocol);
        link.database.clone()
    }
}

impl OpenSteps {
    /// Errors of orders that have ended since the last call.
    fn errors(&mut self, state: &DaemonState) -> Vec<String> {
        let has_ended = |step: &&StepState| step.acknowledged.is_some() || step.error.is_some();
        let rest = state.steps.get(self.ended..).unwrap_or_default();
        let ended: Vec<_> = rest.iter().take_while(has_ended).collect();
        self.ended += ended.len();
        let error = |step: &&StepState| {
            let order = &step.due.order;
            let group = order.group().map(|name| format!(" {name:?}")).unwrap_or_default();
            Some(format!("cannot {}{group}: {}", order.action(), step.error.as_ref()?))
        };
        ended.iter().filter_map(error).collect()
    }

    /// Whether no order is waited for.
    fn have_ended(&self, state: &DaemonState) -> bool {
        let all = state.all_steps >= self.given && self.ended >= state.steps.len();
        all || state.failed.is_some()
    }
}

impl Link {
    fn learn(&mut self, now: Nanos, info: &RouterInfo, from: &[u8], packet: &[u8]) {
        let protocol = info.protocol;
        if self.is_down && protocol != Protocol::Isis {
            return;
        }
        if self.senders.is_taken_from(protocol, &info.settings, from, packet) {
            // Readers have the database for a short time only, so it is rarely copied.
            let database = Arc::make_mut(&mut self.database);
            match protocol {
                Protocol::Ospf2 | Protocol::Ospf3 => database.ospf(now, packet),
                Protocol::Isis => database.isis(now, packet),
            }
        }
    }

    fn forget(&mut self) {
        (self.database, self.senders, self.fragments) = Default::default();
    }
}

impl Seen {
    /// `way`: 0 for sent packets, 1 for received ones.
    fn count(&mut self, way: usize, protocol: Protocol, packet: &[u8]) {
        match protocol {
            Protocol::Ospf2 | Protocol::Ospf3 => self.ospf[way].count(packet),
            Protocol::Isis => self.isis[way].count(packet),
        }
    }
}

/// Ends all daemons, while the threads of their interfaces still run.
pub fn stop(routers: &[Arc<DeviceRouter>]) {
    // Each has a second for its goodbye.
    std::thread::scope(|scope| {
        for router in routers {
            scope.spawn(|| router.stop());
        }
    });
}

/// Whether a received frame that is no packet of the protocol is for the kernel of the router: the
/// address of a neighbor, or the question for an address that the device does not know.
fn is_for_kernel(protocol: Protocol, frame: &[u8]) -> bool {
    match protocol {
        Protocol::Ospf2 => get_be16(frame, 12) == Some(ARP) && is_answer(frame),
        // OSPFv3 uses link-local addresses (RFC 5340 section 2.5), which only the kernel has.
        Protocol::Ospf3 => match neighbor_message(frame) {
            Some((ADVERTISEMENT, _)) => true,
            Some((SOLICITATION, target)) => target[0] == 0xfe && target[1] & 0xc0 == 0x80,
            _ => false,
        },
        Protocol::Isis => false,
    }
}

/// Whether a frame of the router's kernel leaves: questions and answers about neighbors only.
fn is_of_kernel(protocol: Protocol, frame: &[u8]) -> bool {
    match protocol {
        Protocol::Ospf2 => get_be16(frame, 12) == Some(ARP),
        Protocol::Ospf3 => neighbor_message(frame).is_some(),
        Protocol::Isis => false,
    }
}

/// The type of a message of neighbor discovery, and its target.
fn neighbor_message(frame: &[u8]) -> Option<(u8, &[u8])> {
    let kind = *frame.get(14 + 40).filter(|kind| [SOLICITATION, ADVERTISEMENT].contains(kind))?;
    let is_icmp = get_be16(frame, 12) == Some(IPV6) && frame.get(14 + 6) == Some(&ICMPV6);
    let target = frame.get(14 + 48..14 + 64)?;
    is_icmp.then_some((kind, target))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use serde_json::json;

    use super::*;
    use crate::{Config, translate};

    /// A link with frames of a daemon, which keeps the frames that it gets.
    struct TestLink {
        sent: VecDeque<Vec<u8>>,
        got: Arc<Mutex<Vec<Vec<u8>>>>,
    }

    impl FrameLink for TestLink {
        fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
            let Some(frame) = self.sent.pop_front() else { return Ok(None) };
            into[..frame.len()].copy_from_slice(&frame);
            Ok(Some(frame.len()))
        }

        fn give(&mut self, frame: &[u8], _: bool) -> io::Result<bool> {
            lock(&self.got).push(frame.to_vec());
            Ok(true)
        }
    }

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    type Frames = Arc<Mutex<Vec<Vec<u8>>>>;

    /// A router of one protocol in VLAN 7, and the frames that its daemon gets.
    fn router(protocol: &str, sent: Vec<Vec<u8>>) -> (Arc<DeviceRouter>, Frames) {
        let router = match protocol {
            "ospfv2" => json!({ "name": "r", "store_lsa": true,
                "interfaces": [{ "name": "x", "ipv4_name": "i4" }] }),
            "ospfv3" => json!({ "instances": [{
                "name": "r", "interfaces": [{ "name": "x", "ipv6_name": "i6" }] }] }),
            _ => json!({ "name": "r", "system_id": "640000000001",
                "interfaces": [{ "name": "x", "eth_name": "e" }] }),
        };
        router_of(protocol, &router, sent)
    }

    /// As [`router`], with settings of its own.
    fn router_of(
        protocol: &str,
        router: &serde_json::Value,
        sent: Vec<Vec<u8>>,
    ) -> (Arc<DeviceRouter>, Frames) {
        let mut device = json!({ "name": "d", "ethernets": [{
            "name": "e", "mac": "02:00:00:00:00:01", "connection": { "port_name": "p" },
            "vlans": [{ "name": "v", "id": 7 }],
            "ipv4_addresses": [{ "name": "i4", "address": "10.0.0.1", "gateway": "10.0.0.2" }],
            "ipv6_addresses": [{ "name": "i6", "address": "fd00::1", "gateway": "fd00::2" }],
        }] });
        device[protocol] = router.clone();
        let config = json!({ "ports": [{ "name": "p", "location": "va" }], "devices": [device] });
        let translated = translate(&Config::from_json(&config).unwrap());
        let router = routers(&translated.unwrap_or_else(|error| panic!("{error}"))).remove(0);
        let got = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let end = TestLink { sent: sent.into(), got: got.clone() };
        *lock(&router.link) =
            Link { end: Some(Box::new(end)), buffer: vec![0; 2_000], ..Link::default() };
        (router, got)
    }

    fn frame(to: [u8; 6], ethertype: [u8; 2], rest: &[u8]) -> Vec<u8> {
        [&to[..], &[2; 6], &ethertype, rest].concat()
    }

    fn in_vlan(frame: &[u8]) -> Vec<u8> {
        [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat()
    }

    /// A hello of OSPFv2, one of OSPFv3, and one of IS-IS at level 2.
    fn hellos() -> [Vec<u8>; 3] {
        let mut ipv4 = vec![0; 22];
        (ipv4[0], ipv4[3], ipv4[9]) = (0x45, 22, 89);
        (ipv4[20], ipv4[21]) = (2, 1);
        let mut ipv6 = vec![0; 42];
        (ipv6[5], ipv6[6], ipv6[40], ipv6[41]) = (2, 89, 3, 1);
        let isis = [0xfe, 0xfe, 3, 0x83, 27, 1, 0, 16];
        let group = [1, 0, 0x5e, 0, 0, 5];
        [
            frame(group, [8, 0], &ipv4),
            frame([0x33, 0x33, 0, 0, 0, 5], [0x86, 0xdd], &ipv6),
            frame([1, 0x80, 0xc2, 0, 0, 0x15], [0, 8], &isis),
        ]
    }

    /// A message of ARP, and one of neighbor discovery for a target.
    fn arp(operation: u8) -> Vec<u8> {
        let mut arp = vec![0; 28];
        arp[7] = operation;
        arp[27] = 1;
        frame(MAC, [8, 6], &arp)
    }

    fn neighbor(kind: u8, target: [u8; 2]) -> Vec<u8> {
        let mut rest = vec![0; 64];
        (rest[6], rest[40], rest[48], rest[49]) = (ICMPV6, kind, target[0], target[1]);
        frame(MAC, [0x86, 0xdd], &rest)
    }

    #[test]
    fn a_daemon_gets_its_protocol_and_what_the_device_does_not_answer() {
        let [ospf2, ospf3, isis] = hellos();
        let all = [
            ospf2.clone(),
            ospf3.clone(),
            isis.clone(),
            arp(1),
            arp(2),
            neighbor(SOLICITATION, [0xfd, 0]),
            neighbor(SOLICITATION, [0xfe, 0x80]),
            neighbor(ADVERTISEMENT, [0xfd, 0]),
        ];
        for (protocol, expected) in [
            ("ospfv2", vec![all[0].clone(), all[4].clone()]),
            ("ospfv3", vec![all[1].clone(), all[6].clone(), all[7].clone()]),
            ("isis", vec![all[2].clone()]),
        ] {
            let (router, got) = router(protocol, Vec::new());
            for frame in &all {
                router.receive(Nanos(0), (&in_vlan(frame), false));
                // Another VLAN, and another host.
                router.receive(Nanos(0), (frame, false));
                let mut other = in_vlan(frame);
                (other[0], other[5]) = (2, 9);
                router.receive(Nanos(0), (&other, false));
            }
            assert_eq!(*lock(&got), expected, "{protocol}");
            let (_, seen) = router.state();
            let hellos = seen.ospf[1].packets[0] + seen.isis[1].broadcast_hellos[1];
            assert_eq!(
                (hellos, seen.ospf[0], seen.isis[0]),
                (1, Default::default(), Default::default())
            );
        }
    }

    /// A frame of OSPFv2 from router 0.0.0.9: a description, or an update with an LSA of it.
    fn ospf2(kind: u8) -> Vec<u8> {
        let mut packet = vec![0; 28 + 20];
        (packet[0], packet[1], packet[7], packet[27]) = (2, kind, 9, 1);
        (packet[28 + 3], packet[28 + 11], packet[28 + 19]) = (1, 9, 20);
        let mut header = vec![0; 20];
        (header[0], header[3], header[9]) = (0x45, 68, 89);
        in_vlan(&frame([1, 0, 0x5e, 0, 0, 5], [8, 0], &[header, packet].concat()))
    }

    #[test]
    fn a_router_that_is_taken_down_has_learnt_nothing() {
        let (router, _) = router("ospfv2", Vec::new());
        let learnt = || router.database(Nanos(0)).iter().count();
        let receive = |kind| router.receive(Nanos(0), (&ospf2(kind), false));
        receive(4);
        assert_eq!(learnt(), 0, "its sender is no neighbor");
        receive(2);
        receive(4);
        assert_eq!(learnt(), 1);
        router.set_down(true);
        receive(2);
        receive(4);
        assert_eq!(learnt(), 0);
        router.set_down(false);
        receive(4);
        assert_eq!(learnt(), 0, "its sender is no neighbor yet");
        receive(2);
        receive(4);
        assert_eq!(learnt(), 1);
        assert_eq!(router.state().1.ospf[1].lsas, 5, "they have passed on the link");
        let over = Nanos(3_600 * Nanos::SECOND.0);
        assert_eq!(router.database(over).iter().count(), 0, "it has reached its age");
        receive(4);
        assert_eq!(learnt(), 1);
        router.stop();
        assert_eq!(learnt(), 0);
    }

    #[test]
    fn a_router_of_isis_keeps_its_lsps_while_it_is_down() {
        let mut isis = json!({ "name": "r", "system_id": "640000000001",
            "interfaces": [{ "name": "x", "eth_name": "e" }] });
        isis["basic"] = json!({ "learned_lsp_filter": true });
        let (router, _) = router_of("isis", &isis, Vec::new());
        let frame = |pdu: &[u8]| {
            let llc = [&[0xfe, 0xfe, 3], pdu].concat();
            in_vlan(&frame([1, 0x80, 0xc2, 0, 0, 0x15], [0, llc.len() as u8], &llc))
        };
        let receive = |kind: u8, id: u8| {
            let mut pdu = vec![0; 27];
            pdu[..6].copy_from_slice(&[0x83, 27, 1, 0, kind, 1]);
            (pdu[11], pdu[12]) = (99, id);
            router.receive(Nanos(0), (&frame(&pdu), false));
        };
        let learnt = || router.database(Nanos(0)).iter().count();
        receive(16, 0);
        receive(20, 1);
        assert_eq!(learnt(), 1);
        router.set_down(true);
        receive(20, 2);
        assert_eq!(learnt(), 0);
        router.set_down(false);
        assert_eq!(learnt(), 2);
    }

    #[test]
    fn fragments_pass_and_their_packets_are_learnt() {
        let packet = ospf2(4).split_off(18 + 20);
        let mut frames: Vec<_> = packet
            .chunks(24)
            .zip([0x2000_u16, 3])
            .map(|(part, word)| {
                let mut header = vec![0; 20];
                (header[0], header[3], header[9]) = (0x45, 20 + part.len() as u8, 89);
                header[6..8].copy_from_slice(&word.to_be_bytes());
                frame([1, 0, 0x5e, 0, 0, 5], [8, 0], &[&header, part].concat())
            })
            .collect();
        let (router, got) = router("ospfv2", frames.clone());
        let mut out = Vec::new();
        router.turn(Nanos(0), &mut out);
        assert_eq!(out, frames.iter().map(|frame| in_vlan(frame)).collect::<Vec<_>>());
        router.receive(Nanos(0), (&ospf2(2), false));
        for frame in &out {
            router.receive(Nanos(0), (frame, false));
        }
        assert_eq!(lock(&got).split_off(1), frames);
        assert_eq!(router.database(Nanos(0)).iter().count(), 1);
        let (_, seen) = router.state();
        assert_eq!(seen.ospf.map(|counts| (counts.packets[3], counts.lsas)), [(1, 1); 2]);
        // The last fragment of another protocol.
        frames[1][14 + 9] = 17;
        router.receive(Nanos(0), (&in_vlan(&frames[1]), false));
        assert_eq!(lock(&got).len(), 1);
    }

    #[test]
    fn errors_of_orders_are_returned_once() {
        let step = |acknowledged: Option<u64>, error: Option<&str>| StepState {
            due: squall_router::Due {
                at: Nanos(0),
                order: RouterOrder::Withdraw(squall_router::GroupPart {
                    group: Some("a".into()),
                    count: None,
                }),
                duration: None,
                is_live: true,
            },
            begun: Nanos(0),
            acknowledged: acknowledged.map(Nanos),
            routes: 0,
            sent: None,
            error: error.map(str::to_owned),
        };
        let mut steps = OpenSteps { given: 3, ended: 0 };
        let mut state = DaemonState::default();
        let mut look = |state: &DaemonState| (steps.errors(state), steps.have_ended(state));
        state.add_step(step(Some(1), None));
        state.add_step(step(None, Some("BIRD: no")));
        let error = "cannot withdraw \"a\": BIRD: no".to_owned();
        assert_eq!(look(&state), (vec![error], false));
        state.add_step(step(None, None));
        assert_eq!(look(&state), (Vec::new(), false), "the last one is not acknowledged");
        state.acknowledge(0, Nanos(2));
        assert_eq!(look(&state), (Vec::new(), true));
        state.add_step(step(None, None));
        assert!(!look(&state).1);
        state.fail("signal 9".into());
        assert!(look(&state).1, "its daemon has ended");
    }

    #[test]
    fn only_frames_of_the_protocol_and_of_its_neighbors_leave() {
        let [ospf2, ospf3, isis] = hellos();
        let mut other = neighbor(SOLICITATION, [0xfd, 0]);
        // A report of multicast listeners.
        other[14 + 40] = 143;
        let asks = neighbor(SOLICITATION, [0xfe, 0x80]);
        let all = vec![ospf2.clone(), ospf3.clone(), isis.clone(), arp(1), asks.clone(), other];
        for (protocol, expected) in
            [("ospfv2", vec![ospf2, arp(1)]), ("ospfv3", vec![ospf3, asks]), ("isis", vec![isis])]
        {
            let (router, _) = router(protocol, all.clone());
            let mut out = Vec::new();
            router.turn(Nanos(0), &mut out);
            let expected: Vec<_> = expected.iter().map(|frame| in_vlan(frame)).collect();
            assert_eq!(out, expected, "{protocol}");
            let (_, seen) = router.state();
            let hellos = seen.ospf[0].packets[0] + seen.isis[0].broadcast_hellos[1];
            assert_eq!(hellos, 1, "{protocol}");
        }
    }
}
