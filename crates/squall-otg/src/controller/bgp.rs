//! BGP sessions of devices. The sessions of an interface are a speaker, which the thread of the
//! interface runs.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex},
};

use squall_bgp::{PeerSettings, Prefix};
use squall_control::driving::lock;
use squall_host::FrameQueue;
use squall_speaker::{
    Order, Peer, Prefixes, Speaker, SpeakerGroup, SpeakerPeer, SpeakerRouter, SpeakerSettings,
};
use squall_units::{Nanos, get_be16};

use super::dhcp;
use crate::{BgpPeerInfo, DeviceInfo, RouteRangeInfo, Translated, VlanInfo};

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const ICMPV6: u8 = 58;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// TPIDs of tags: 802.1Q, 802.1ad and older ones.
const TPIDS: [u16; 5] = [0x8100, 0x88a8, 0x9100, 0x9200, 0x9300];
/// Octets of the longest packet: an interface's thread sends frames of up to 1,518 octets.
const MOST_MTU: u32 = 1500;
/// Learnt routes with attributes, of all sessions of an interface.
const MOST_LEARNT: u64 = 1_000_000;

/// The sessions of an interface.
pub struct BgpSpeaker {
    /// Value of [`DeviceInfo::port`].
    pub port: String,
    tags: Vec<VlanInfo>,
    /// Names of sessions and of ranges of routes, by their numbers in the speaker.
    peers: Vec<String>,
    ranges: Vec<String>,
    state: Mutex<(Speaker, FrameQueue)>,
}

/// The speakers of a configuration, whose sessions start at `now`.
pub fn speakers(translated: &Translated, now: Nanos) -> Vec<Arc<BgpSpeaker>> {
    let speaker = |(number, device): (usize, &DeviceInfo)| {
        let peers = translated.bgp.iter().filter(|peer| peer.interface == number);
        let peers: Vec<&BgpPeerInfo> = peers.collect();
        (!peers.is_empty()).then(|| Arc::new(BgpSpeaker::new(device, &peers, number, now)))
    };
    translated.devices.iter().enumerate().filter_map(speaker).collect()
}

impl BgpSpeaker {
    fn new(device: &DeviceInfo, peers: &[&BgpPeerInfo], number: usize, now: Nanos) -> Self {
        let usual = SpeakerSettings::default();
        let attributes = peers.iter().any(|peer| peer.learns.contains(&true));
        let mut settings = SpeakerSettings {
            mtu: mtu(device),
            learnt: if attributes { MOST_LEARNT } else { usual.learnt },
            attributes,
            seed: number as u64,
            ..usual
        };
        let mut ranges = Vec::new();
        for (number, peer) in peers.iter().enumerate() {
            // A router has one address of each version: each session gets a router.
            let session = PeerSettings { seed: number as u64, ..peer.session };
            settings.routers.push(SpeakerRouter {
                mac: device.mac,
                addresses: vec![peer.local],
                peers: vec![SpeakerPeer { address: peer.remote, session }],
            });
            for range in &peer.ranges {
                ranges.push(range.name.clone());
                settings.groups.push(group(range, number));
            }
        }
        let mut speaker = Speaker::new(settings).expect("the translation has checked the MTU");
        let mut queue = FrameQueue::default();
        speaker.start(now, &mut queue);
        Self {
            port: device.port.clone(),
            tags: device.vlans.clone(),
            peers: peers.iter().map(|peer| peer.name.clone()).collect(),
            ranges,
            state: Mutex::new((speaker, queue)),
        }
    }

    /// Handles a received frame. `partial`: its checksums are not computed yet.
    pub fn receive(&self, now: Nanos, (frame, partial): (&[u8], bool)) {
        let frame = untagged(&self.tags, frame).filter(|frame| is_for_sessions(frame));
        let Some(frame) = frame else { return };
        let mut state = lock(&self.state);
        let (speaker, queue) = &mut *state;
        speaker.receive(now, (&frame, partial), queue);
    }

    pub fn turn(&self, now: Nanos, out: &mut Vec<Vec<u8>>) {
        let mut state = lock(&self.state);
        let (speaker, queue) = &mut *state;
        if speaker.next_due().is_some_and(|due| due <= now) {
            speaker.advance(now, queue);
        }
        while let Some((frame, _)) = queue.first() {
            out.push(tagged(&self.tags, frame));
            queue.pop();
        }
    }

    /// The name of its first session.
    pub fn name(&self) -> &str {
        self.peers.first().map_or("", String::as_str)
    }

    /// The number of the session with this name.
    pub fn peer(&self, name: &str) -> Option<usize> {
        self.peers.iter().position(|peer| peer == name)
    }

    /// The number of the range of routes with this name.
    pub fn range(&self, name: &str) -> Option<usize> {
        self.ranges.iter().position(|range| range == name)
    }

    pub fn order(&self, now: Nanos, order: Order) {
        let mut state = lock(&self.state);
        let (speaker, queue) = &mut *state;
        speaker.order(now, order, queue);
    }

    /// Calls `f` with a session, while the thread of the interface waits.
    pub fn with_peer<T>(&self, number: usize, f: impl FnOnce(&Peer) -> T) -> T {
        f(&lock(&self.state).0.peers()[number])
    }

    fn stop(&self, now: Nanos) {
        let mut state = lock(&self.state);
        let (speaker, queue) = &mut *state;
        speaker.stop(now, queue);
    }

    fn is_settled(&self) -> bool {
        let state = lock(&self.state);
        state.0.is_settled() && state.1.is_empty()
    }
}

/// Ends all sessions with CEASE 6/2, while the threads of their interfaces still run.
pub fn stop(speakers: &[Arc<BgpSpeaker>], now: Nanos) {
    speakers.iter().for_each(|speaker| speaker.stop(now));
    let have_ended = || speakers.iter().all(|speaker| speaker.is_settled());
    dhcp::wait_until(dhcp::RELEASE_TIMEOUT, have_ended);
}

/// The frame without the tags of the interface; `None`: it has others.
pub fn untagged<'a>(tags: &[VlanInfo], frame: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    if tags.is_empty() {
        return Some(frame.into());
    }
    let (ends, mut rest) = frame.split_at_checked(12)?;
    for tag in tags {
        get_be16(rest, 0).filter(|tpid| TPIDS.contains(tpid))?;
        get_be16(rest, 2).filter(|word| word & 0x0fff == tag.id)?;
        rest = rest.get(4..)?;
    }
    Some([ends, rest].concat().into())
}

/// The frame with the tags of the interface. It has the addresses of Ethernet at least.
pub fn tagged(tags: &[VlanInfo], frame: &[u8]) -> Vec<u8> {
    let (ends, rest) = frame.split_at(12);
    let mut out = ends.to_vec();
    for VlanInfo { tpid, priority, id } in tags {
        out.extend(tpid.to_be_bytes());
        out.extend((u16::from(*priority) << 13 | id).to_be_bytes());
    }
    out.extend(rest);
    out
}

fn group(range: &RouteRangeInfo, peer: usize) -> SpeakerGroup {
    let blocks: Arc<[_]> = range.blocks.as_slice().into();
    let prefixes: Prefixes = Arc::new(move || -> Box<dyn Iterator<Item = Prefix>> {
        let blocks = blocks.clone();
        Box::new((0..blocks.len()).flat_map(move |place| blocks[place].networks()))
    });
    SpeakerGroup {
        attributes: range.attributes.clone(),
        prefixes,
        sets: None,
        is_announced: true,
        peers: Some(vec![peer]),
        path: range.path,
    }
}

pub fn mtu(device: &DeviceInfo) -> u16 {
    // One tag fits into the longest frame.
    let more = 4 * device.vlans.len().saturating_sub(1) as u32;
    device.mtu.min(MOST_MTU.saturating_sub(more)) as u16
}

/// Whether a frame has a segment of TCP, or the answer of a neighbor. The device itself answers
/// requests for addresses, and echo.
fn is_for_sessions(frame: &[u8]) -> bool {
    match get_be16(frame, 12) {
        Some(ARP) => is_answer(frame),
        Some(IPV4) => frame.get(14 + 9) == Some(&TCP),
        Some(IPV6) => match frame.get(14 + 6) {
            Some(&TCP) => true,
            Some(&ICMPV6) => frame.get(14 + 40) == Some(&NEIGHBOR_ADVERTISEMENT),
            _ => false,
        },
        _ => false,
    }
}

/// Whether a frame of ARP has the answer of a neighbor. Requests of an address for itself announce
/// it, too (RFC 5227 section 3).
pub fn is_answer(frame: &[u8]) -> bool {
    match get_be16(frame, 14 + 6) {
        Some(1) => frame.get(14 + 14..14 + 18) == frame.get(14 + 24..14 + 28),
        operation => operation == Some(2),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use squall_bgp::{LastError, Notification, State, cease};

    use super::*;
    use crate::{Config, translate};

    const MS: u64 = 1_000_000;

    /// A device on each of two ports, with a session and `ranges` on the first.
    fn translated(vlans: &Value, ranges: &Value) -> Translated {
        let device = |number: u8, other: u8, ranges: &Value| {
            json!({
                "name": format!("d{number}"),
                "ethernets": [{
                    "name": format!("e{number}"), "mac": format!("02:00:00:00:00:0{number}"),
                    "connection": { "choice": "port_name", "port_name": format!("p{number}") },
                    "ipv4_addresses": [{
                        "name": format!("i{number}"), "address": format!("10.0.0.{number}"),
                        "gateway": format!("10.0.0.{other}"),
                    }],
                    "vlans": vlans,
                }],
                "bgp": { "router_id": format!("192.0.2.{number}"), "ipv4_interfaces": [{
                    "ipv4_name": format!("i{number}"),
                    "peers": [{
                        "name": format!("b{number}"), "peer_address": format!("10.0.0.{other}"),
                        "as_type": "ebgp", "as_number": 65000 + u32::from(number),
                        "learned_information_filter": { "unicast_ipv4_prefix": true },
                        "v4_routes": ranges,
                    }],
                }] },
            })
        };
        let config = json!({
            "ports": [{ "name": "p1", "location": "va" }, { "name": "p2", "location": "vb" }],
            "devices": [device(1, 2, ranges), device(2, 1, &json!([]))],
        });
        translate(&Config::from_json(&config).unwrap()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn ranges() -> Value {
        json!([
            { "name": "r1", "addresses": [{ "address": "198.51.100.0", "count": 3 }] },
            { "name": "r2", "addresses": [{ "address": "203.0.113.0" }] },
        ])
    }

    /// Two speakers on a link, with devices that answer ARP.
    struct Pair {
        speakers: Vec<Arc<BgpSpeaker>>,
        hosts: [squall_host::Host; 2],
        now: Nanos,
    }

    impl Pair {
        fn new(translated: &Translated) -> Self {
            let now = Nanos::SECOND;
            let tag = |vlan: &VlanInfo| (vlan.tpid, vlan.id);
            let hosts = [0, 1].map(|number| {
                let device = &translated.devices[number];
                squall_host::Host {
                    mac: device.mac,
                    tags: device.vlans.iter().map(tag).collect(),
                    ipv4: device.ipv4.iter().map(|own| own.address).collect(),
                    ..squall_host::Host::default()
                }
            });
            Self { speakers: speakers(translated, now), hosts, now }
        }

        /// Lets time pass until `done`, for a minute at most.
        fn until(&mut self, done: impl Fn(&[Arc<BgpSpeaker>]) -> bool) {
            for _ in 0..60_000 {
                if done(&self.speakers) {
                    return;
                }
                for from in [0, 1] {
                    let mut frames = Vec::new();
                    self.speakers[from].turn(self.now, &mut frames);
                    for frame in &frames {
                        self.speakers[1 - from].receive(self.now, (frame, false));
                        if let Some(reply) = self.hosts[1 - from].handle(frame).reply {
                            self.speakers[from].receive(self.now, (&reply, false));
                        }
                    }
                }
                self.now = self.now + Nanos(MS);
            }
            panic!("not after a minute");
        }
    }

    fn learnt(speaker: &BgpSpeaker) -> u64 {
        speaker.with_peer(0, |peer| peer.learnt.routes(squall_bgp::Family::Ipv4))
    }

    fn state(speaker: &BgpSpeaker) -> State {
        speaker.with_peer(0, |peer| peer.session.state())
    }

    #[test]
    fn devices_learn_the_ranges_of_each_other_and_orders_change_them() {
        let mut pair = Pair::new(&translated(&json!([]), &ranges()));
        pair.until(|of| learnt(&of[1]) == 4);
        let speakers = pair.speakers.clone();
        let [one, two] = [&speakers[0], &speakers[1]];
        assert_eq!((one.port.as_str(), one.name(), one.peer("b1")), ("p1", "b1", Some(0)));
        assert_eq!((one.range("r2"), one.range("x"), two.range("r2")), (Some(1), None, None));
        one.order(pair.now, Order::Withdraw(0));
        pair.until(|of| learnt(&of[1]) == 1);
        one.order(pair.now, Order::Announce(0));
        pair.until(|of| learnt(&of[1]) == 4);

        let notification = Notification::new(6, 9);
        one.order(pair.now, Order::Reset(0, notification.clone()));
        pair.until(|of| state(&of[1]) == State::Idle && learnt(&of[1]) == 0);
        let error = two.with_peer(0, |peer| peer.session.last_error().cloned());
        assert_eq!(error, Some(LastError::Received(notification)));
        pair.until(|of| learnt(&of[1]) == 4);
        // One that was taken down stays so.
        one.order(pair.now, Order::Stop(0, Notification::cease(cease::SHUTDOWN)));
        one.order(pair.now, Order::Reset(0, Notification::new(6, 9)));
        assert!(one.with_peer(0, |peer| peer.session.is_stopped()));
    }

    #[test]
    fn a_stop_ends_the_sessions_and_keeps_the_counters() {
        let mut pair = Pair::new(&translated(&json!([]), &ranges()));
        pair.until(|of| learnt(&of[1]) == 4);
        let now = pair.now;
        pair.speakers.iter().for_each(|speaker| speaker.stop(now));
        assert!(!pair.speakers[0].is_settled());
        pair.until(|of| of.iter().all(|speaker| speaker.is_settled()));
        for speaker in &pair.speakers {
            assert_eq!((state(speaker), learnt(speaker)), (State::Idle, 0));
            let (error, counters) = speaker.with_peer(0, |peer| {
                (peer.session.last_error().cloned(), *peer.session.counters())
            });
            assert_eq!(error, Some(LastError::Sent(Notification::cease(cease::SHUTDOWN))));
            assert!(counters.sent.notifications >= 1 && counters.ups == 1);
        }
    }

    #[test]
    fn sessions_are_in_their_vlan_alone() {
        let vlans = json!([{ "name": "v", "id": 7, "priority": 3, "tpid": "x88A8" }]);
        let mut pair = Pair::new(&translated(&vlans, &ranges()));
        pair.until(|of| learnt(&of[1]) == 4);
        let mut frames = Vec::new();
        pair.speakers[0].order(pair.now, Order::Withdraw(0));
        pair.speakers[0].turn(pair.now, &mut frames);
        assert_eq!(frames[0][12..18], [0x88, 0xa8, 0x60, 7, 8, 0]);
        for frame in &frames {
            let mut other = frame.clone();
            other[15] = 8;
            let untagged = [&frame[..12], &frame[16..]].concat();
            for frame in [other, untagged] {
                pair.speakers[1].receive(pair.now, (&frame, false));
            }
        }
        assert_eq!(learnt(&pair.speakers[1]), 4, "they are of another link");
        frames.iter().for_each(|frame| pair.speakers[1].receive(pair.now, (frame, false)));
        assert_eq!(learnt(&pair.speakers[1]), 1);
    }

    #[test]
    fn requests_for_addresses_and_echo_are_left_to_the_device() {
        let pair = Pair::new(&translated(&json!([]), &ranges()));
        let mut frames = Vec::new();
        pair.speakers[1].turn(pair.now, &mut frames);
        // Its request for the neighbor's address.
        assert_eq!(frames[0][12..22], [8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        let mut answers = Vec::new();
        pair.speakers[0].turn(pair.now, &mut Vec::new());
        pair.speakers[0].receive(pair.now, (&frames[0], false));
        let echo = squall_host::Echo {
            source: [10, 0, 0, 2].into(),
            destination: [10, 0, 0, 1].into(),
            id: 1,
            seq: 2,
        };
        let request = pair.hosts[1].frame(pair.hosts[0].mac, IPV4, &echo.request());
        pair.speakers[0].receive(pair.now, (&request, false));
        pair.speakers[0].turn(pair.now, &mut answers);
        assert_eq!(answers, Vec::<Vec<u8>>::new());
    }

    #[test]
    fn requests_of_a_neighbor_for_its_own_address_are_for_the_sessions() {
        let mut frame = vec![0; 42];
        frame[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        frame[28..32].copy_from_slice(&[10, 0, 0, 2]);
        for (target, expected) in [(2, true), (1, false)] {
            frame[38..42].copy_from_slice(&[10, 0, 0, target]);
            assert_eq!(is_for_sessions(&frame), expected);
        }
    }

    #[test]
    fn packets_fit_into_the_frames_of_an_interface() {
        let mut device = translated(&json!([]), &ranges()).devices.swap_remove(0);
        let vlan = VlanInfo { tpid: 0x8100, priority: 0, id: 7 };
        for (own, tags, expected) in
            [(1500, 0, 1500), (9000, 1, 1500), (9000, 2, 1496), (1280, 2, 1280)]
        {
            (device.mtu, device.vlans) = (own, vec![vlan; tags]);
            assert_eq!(mtu(&device), expected, "{own}, {tags} tags");
        }
    }
}
