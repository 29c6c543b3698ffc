//! Multicast groups, and the frames that join, leave and address them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Settings;
use crate::{
    rig::Rig,
    stations::{increment, mac},
    trial::{Lane, Template},
};

/// How receivers join and leave groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Membership {
    /// IPv4, reports and leaves of IGMPv2 (RFC 2236)
    #[default]
    Igmpv2,
    /// IPv4, reports of IGMPv3 (RFC 3376)
    Igmpv3,
    /// IPv6, reports and dones of MLDv1 (RFC 2710)
    Mldv1,
}

impl Membership {
    /// Name of the protocol in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Igmpv2 => "IGMPv2",
            Self::Igmpv3 => "IGMPv3",
            Self::Mldv1 => "MLDv1",
        }
    }
}

/// A range of consecutive groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Groups {
    pub kind: Membership,
    pub first: u32,
    pub count: u32,
}

impl Groups {
    pub fn new(settings: &Settings, first: u32, count: u32) -> Self {
        Self { kind: settings.membership, first, count }
    }

    fn last(self) -> u32 {
        self.first + self.count - 1
    }

    /// Group address: in the administratively scoped range for IPv4 (RFC 2365), with site-local
    /// scope for IPv6 (RFC 4291 §2.7).
    fn address(self, n: u32) -> String {
        let [_, a, b, c] = n.to_be_bytes();
        match self.kind {
            Membership::Mldv1 => format!("ff05::10{a:02x}:{:x}", n & 0xffff),
            _ => format!("239.{}.{b}.{c}", 192 + a),
        }
    }

    /// The MAC address of a group: low 23 bits (RFC 1112 §6.4) or low 32 bits (RFC 2464 §7) of its
    /// address.
    fn mac(self, n: u32) -> String {
        let [_, a, b, c] = n.to_be_bytes();
        match self.kind {
            Membership::Mldv1 => format!("33:33:10:{a:02x}:{b:02x}:{c:02x}"),
            _ => format!("01:00:5e:{:02x}:{b:02x}:{c:02x}", (192 + a) & 0x7f),
        }
    }

    /// Field programs that cycle through the groups, one per frame.
    fn vary(self, fields: &[&str]) -> Vec<Value> {
        let one = |field: &&str| match *field {
            "eth.dst" => increment(field, &self.mac(self.first), &self.mac(self.last())),
            _ => increment(field, &self.address(self.first), &self.address(self.last())),
        };
        if self.count > 1 { fields.iter().map(one).collect() } else { Vec::new() }
    }

    /// Frames for each group in turn.
    pub fn data(self, rig: &Rig, from: usize) -> Template {
        let (to, group) = (self.mac(self.first), self.address(self.first));
        let (ip, field) = match self.kind {
            Membership::Mldv1 => (format!("ipv6(src=2001:2::{from:x}:1,dst={group})"), "ipv6.dst"),
            _ => (format!("ipv4(src=198.18.{from}.1,dst={group},ttl=64)"), "ipv4.dst"),
        };
        Template {
            port: rig.ports[from].clone(),
            packet: format!("eth(src={},dst={to})/{ip}/udp(sport=49184,dport=7)", mac(from, 0)),
            vary: self.vary(&["eth.dst", field]),
            plain: false,
        }
    }

    pub fn join(self, rig: &Rig, port: usize) -> Template {
        let group = self.address(self.first);
        let to = self.mac(self.first);
        match self.kind {
            Membership::Igmpv2 => self.report(
                rig,
                port,
                format!("eth(src={{}},dst={to})/ipv4(src={{ip}},dst={group})/igmp(type=report,group={group})"),
                &["eth.dst", "ipv4.dst", "igmp.group"],
            ),
            Membership::Igmpv3 => self.version_3(rig, port, "to-exclude"),
            Membership::Mldv1 => self.report(
                rig,
                port,
                format!("eth(src={{}},dst={to})/ipv6(src={{ip}},dst={group},hop_limit=1)/hopopts(options=[router-alert(0)])/icmpv6(type=mld-report,target={group})"),
                &["eth.dst", "ipv6.dst", "icmpv6.target"],
            ),
        }
    }

    pub fn leave(self, rig: &Rig, port: usize) -> Template {
        let group = self.address(self.first);
        match self.kind {
            Membership::Igmpv2 => self.report(
                rig,
                port,
                format!("eth(src={{}},dst=01:00:5e:00:00:02)/ipv4(src={{ip}},dst=224.0.0.2)/igmp(type=leave,group={group})"),
                &["igmp.group"],
            ),
            Membership::Igmpv3 => self.version_3(rig, port, "to-include"),
            Membership::Mldv1 => self.report(
                rig,
                port,
                format!("eth(src={{}},dst=33:33:00:00:00:02)/ipv6(src={{ip}},dst=ff02::2,hop_limit=1)/hopopts(options=[router-alert(0)])/icmpv6(type=mld-done,target={group})"),
                &["icmpv6.target"],
            ),
        }
    }

    fn report(self, rig: &Rig, port: usize, packet: String, vary: &[&str]) -> Template {
        let ip = match self.kind {
            // MLD messages have a link-local source address (RFC 2710 §3).
            Membership::Mldv1 => format!("fe80::{port:x}:1"),
            _ => format!("198.18.{port}.1"),
        };
        Template {
            port: rig.ports[port].clone(),
            packet: packet.replace("{}", &mac(port, 0)).replace("{ip}", &ip),
            vary: self.vary(vary),
            plain: true,
        }
    }

    /// An IGMPv3 report with a single group record (RFC 3376 §4.2.12).
    fn version_3(self, rig: &Rig, port: usize, change: &str) -> Template {
        let group = self.address(self.first);
        let packet = format!(
            "eth(src={{}},dst=01:00:5e:00:00:16)/ipv4(src={{ip}},dst=224.0.0.22)/\
             igmp(records=[{change}({group})])"
        );
        let number = |n: u32| {
            let [_, a, b, c] = n.to_be_bytes();
            u32::from_be_bytes([239, 192 + a, b, c])
        };
        // The group address of the record has no named field. Its offset: 14 octets of Ethernet, 24
        // of IPv4 with the Router Alert option, 8 of IGMP and 4 of the record.
        let vary = json!({"offset": 50, "octets": 4, "op": "increment",
            "min": number(self.first), "max": number(self.last())});
        let mut template = self.report(rig, port, packet, &[]);
        template.vary.extend((self.count > 1).then_some(vary));
        template
    }
}

/// The phases of a trial: receivers join, the sender sends data, receivers leave.
pub(super) struct Phases {
    /// Start of the data, seconds.
    pub data_s: f64,
    pub leave_s: f64,
    pub end_s: f64,
}

impl Phases {
    pub fn new(settings: &Settings, groups: Groups, data_s: f64) -> Self {
        let joining = f64::from(groups.count) / settings.join_rate;
        let begins = joining + settings.settle_s;
        let leaves = begins + data_s;
        Self { data_s: begins, leave_s: leaves, end_s: leaves + joining + 0.1 }
    }
}

/// Lanes that make `ports` join the groups from `join_s` on and leave them from `leave_s` on.
pub(super) fn members(
    settings: &Settings,
    rig: &Rig,
    groups: Groups,
    ports: impl Iterator<Item = usize>,
    join_s: f64,
    leave_s: f64,
) -> Vec<Lane> {
    let lane = |what: &str, port: usize, template, start_s| Lane {
        name: format!("{what} {}", rig.ports[port]),
        template: Some(template),
        frame_size: Some(if groups.kind == Membership::Mldv1 { 90 } else { 64 }),
        rate_fps: settings.join_rate,
        frames: Some(groups.count.into()),
        start_s,
        ..Lane::default()
    };
    let both = |port| {
        [
            lane("join", port, groups.join(rig, port), join_s),
            lane("leave", port, groups.leave(rig, port), leave_s),
        ]
    };
    ports.flat_map(both).collect()
}
