//! Translates a configuration to a profile.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use serde_json::Value;
use squall_bgp::{Families, PeerSettings, RouteAttributes};
use squall_host::{
    Dhcp6Settings, LacpSettings, OptionTemplate, Server6Settings, ServerSettings, lldp::Lldpdu,
};
use squall_profile::{At, Port, Profile, Stop};
use squall_router::{RouterSettings, observe::Protocol};
use squall_units::{MacAddr, Nanos};

use crate::{
    Config, Problems, captures,
    devices::Devices,
    flows::Flows,
    lags, lldp,
    read::{Node, Notes},
};

/// The result of a translation.
#[derive(Clone, Debug, PartialEq)]
pub struct Translated {
    /// The ports have the names of the configuration. Without flows in the configuration, there are
    /// no streams.
    pub profile: Profile,
    pub ports: Vec<PortInfo>,
    /// Flows in the configuration's order.
    pub flows: Vec<FlowInfo>,
    pub captures: Vec<CaptureInfo>,
    pub devices: Vec<DeviceInfo>,
    pub dhcp_servers: Vec<DhcpServerInfo>,
    pub dhcp6_servers: Vec<Dhcp6ServerInfo>,
    pub bgp: Vec<BgpPeerInfo>,
    pub routers: Vec<RouterInfo>,
    pub lldp: Vec<LldpInfo>,
    pub lags: Vec<LagInfo>,
    /// Gateways whose MAC addresses packets need. The caller resolves them (ARP, neighbor
    /// discovery) and calls [`translate_with`] with the answers. Until then the packets contain
    /// 00:00:00:00:00:00.
    pub unresolved: Vec<Unresolved>,
    /// Settings without effect, for the reply to `set_config`.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    pub name: String,
    /// The location in the configuration; may be empty.
    pub location: String,
    /// The address in the profile: `af_packet:veth-a` for the location `veth-a`.
    pub address: String,
    /// Speed in `layer1`, bits per second; 0: unset.
    pub speed_bps: u64,
    pub mtu: Option<u32>,
    pub promiscuous: bool,
}

/// One flow, and its streams.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowInfo {
    pub name: String,
    /// Name of the sending port; for flows between devices, the port of the first sending device.
    pub tx_port: String,
    /// Receiving ports; empty: any port.
    pub rx_ports: Vec<String>,
    /// Indices into `profile.streams`. More than one if devices send to several others, or tags
    /// distinguish frames.
    pub streams: Vec<StreamInfo>,
    pub metrics: MetricsInfo,
    /// Total number of frames to send; `None`: unlimited, or limited by time.
    pub packets: Option<u64>,
    /// Frame length with FCS, if it is the same for all frames.
    pub size: Option<u32>,
    /// Names of the flow's tags, in order. `tagged_metrics` adds up streams with the same
    /// [`StreamInfo::tags`].
    pub tag_names: Vec<String>,
    /// Tags read from received frames.
    pub egress: Option<EgressInfo>,
    /// Frames expected per sent frame (`rx_tx_ratio`): 1 by default, or one per receiving port.
    pub rx_copies: f64,
}

/// A stream of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamInfo {
    /// Index into `profile.streams`.
    pub stream: usize,
    pub tx_port: String,
    pub counting: Counting,
    /// The stream's values for the flow's tags, in the same order.
    pub tags: Vec<TagValue>,
}

/// Tags read from received frames. `tagged_metrics` also distinguishes their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressInfo {
    /// At least one tag, and at most 128 bits in total.
    pub tags: Vec<EgressTag>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressTag {
    pub name: String,
    /// Offset from the start of the frame.
    pub bit: usize,
    pub bits: usize,
}

/// How the receiver identifies the stream's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// By a signature, which gives counts, loss and delay per stream.
    Signature,
    /// Not at all: there is no room for a signature, or metrics are disabled. The frames count
    /// among those without a signature on the receiving ports.
    Unsigned,
}

/// Value of a tag; the entry of [`FlowInfo::tag_names`] with the same index has its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TagValue {
    /// Hex digits without 0x, enough for the tag's bits.
    Hex(String),
    /// `rx_name` of predefined tags: the receiving port.
    RxName,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsInfo {
    /// Whether to list the flow.
    pub enable: bool,
    pub loss: bool,
    pub timestamps: bool,
    pub latency: bool,
    /// `cut_through`: first bit in to first bit out; otherwise store and forward.
    pub cut_through: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureInfo {
    pub name: String,
    pub port_names: Vec<String>,
    /// pcapng rather than pcap.
    pub pcapng: bool,
    /// Overwrite the oldest frames; otherwise the capture ends when it is full.
    pub overwrite: bool,
    /// Octets to keep of each frame.
    pub packet_size: Option<u32>,
    /// A tcpdump expression; `None`: every frame.
    pub filter: Option<String>,
}

/// An Ethernet interface of an emulated device: it answers ARP, neighbor discovery and echo for its
/// addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    pub device: String,
    /// Value of `ethernet_name` in states.
    pub ethernet: String,
    pub port: String,
    pub mac: MacAddr,
    pub mtu: u32,
    pub vlans: Vec<VlanInfo>,
    pub ipv4: Vec<IpInfo<Ipv4Addr>>,
    pub ipv6: Vec<IpInfo<Ipv6Addr>>,
    pub dhcpv4: Option<DhcpClientInfo>,
    pub dhcpv6: Option<Dhcp6ClientInfo>,
}

/// A DHCPv4 client of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DhcpClientInfo {
    pub name: String,
    /// Whether it asks for answers by broadcast.
    pub broadcast: bool,
}

/// A DHCPv4 server of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DhcpServerInfo {
    pub name: String,
    /// Index into [`Translated::devices`] of the interface that has its address.
    pub interface: usize,
    pub settings: ServerSettings,
    /// Further options for clients.
    pub options: Vec<OptionTemplate>,
}

/// A DHCPv6 client of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dhcp6ClientInfo {
    pub name: String,
    pub settings: Dhcp6Settings,
}

/// A DHCPv6 server of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dhcp6ServerInfo {
    pub name: String,
    /// Index into [`Translated::devices`] of the interface that has its address.
    pub interface: usize,
    pub address: Ipv6Addr,
    pub settings: Server6Settings,
}

/// A BGP session of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BgpPeerInfo {
    pub name: String,
    /// Index into [`Translated::devices`] of the interface that has its address.
    pub interface: usize,
    pub local: IpAddr,
    pub remote: IpAddr,
    pub session: PeerSettings,
    /// Families whose learnt routes are in states.
    pub learns: Families,
    pub ranges: Vec<RouteRangeInfo>,
}

/// A router of OSPF or IS-IS of a device, which is a routing daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterInfo {
    pub name: String,
    pub protocol: Protocol,
    /// Index into [`Translated::devices`] of its interface.
    pub interface: usize,
    /// Its groups are the ranges of routes.
    pub settings: RouterSettings,
    /// Whether received LSAs or LSPs are in states.
    pub learns: bool,
}

/// Routes that a session announces, and that are withdrawn together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRangeInfo {
    pub name: String,
    pub attributes: RouteAttributes,
    /// Path identifier (RFC 7911).
    pub path: Option<u32>,
    /// At least one.
    pub blocks: Vec<RouteBlock>,
}

/// Networks of the same size: `step` networks are between the begins of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteBlock {
    pub first: IpAddr,
    pub length: u8,
    pub count: u32,
    pub step: u32,
}

/// An LLDP instance of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LldpInfo {
    pub name: String,
    pub port: String,
    /// Source of its frames.
    pub mac: MacAddr,
    /// Its announcement, and how often it sends it.
    pub unit: Lldpdu,
    pub interval: Nanos,
}

/// An aggregate of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LagInfo {
    pub name: String,
    /// Ports that have to be up.
    pub min_links: u32,
    pub members: Vec<LagMemberInfo>,
}

/// A port of an aggregate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LagMemberInfo {
    pub port: String,
    /// Source of its frames of LACP.
    pub mac: MacAddr,
    pub settings: LacpSettings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanInfo {
    pub tpid: u16,
    pub priority: u8,
    pub id: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpInfo<A> {
    pub name: String,
    pub address: A,
    pub gateway: A,
    pub prefix: u8,
    /// The gateway's MAC address, if it is configured; then no request is needed.
    pub gateway_mac: Option<MacAddr>,
    /// Whether it is a loopback address, which others reach through the interface. Its gateway is
    /// that of the interface.
    pub is_loopback: bool,
}

/// A gateway whose MAC address is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unresolved {
    /// Interface that resolves it: [`DeviceInfo::ethernet`].
    pub ethernet: String,
    pub port: String,
    pub gateway: IpAddr,
}

/// MAC addresses of gateways, by the name of the resolving interface.
pub type Resolved = HashMap<(String, IpAddr), MacAddr>;

/// # Errors
/// Every invalid or unsupported part.
pub fn translate(config: &Config) -> Result<Translated, Problems> {
    translate_with(config, &Resolved::new())
}

/// Like [`translate`], with the MAC addresses of resolved gateways.
///
/// # Errors
/// As for [`translate`].
pub fn translate_with(config: &Config, resolved: &Resolved) -> Result<Translated, Problems> {
    const KEYS: [&str; 11] = [
        "ports",
        "lags",
        "layer1",
        "captures",
        "devices",
        "flows",
        "events",
        "options",
        "lldp",
        "stateful_flows",
        "egress_only_tracking",
    ];
    let mut notes = Notes::default();
    let root = Node::root(&config.0);
    root.known(&KEYS, &mut notes);
    let mut ports = ports(&root, &mut notes);
    layer1(&root, &mut ports, &mut notes);
    let captures = captures::read(&root, &ports, &mut notes);
    let lldp = lldp::read(&root, &ports, &mut notes);
    let lags = lags::read(&root, &ports, &mut notes);
    let devices = Devices::read(&root, &ports, &lags, &mut notes);
    let mut flows = Flows::new(&ports, &lags, &devices, resolved);
    flows.read(&root, &mut notes);
    let Flows { streams, infos, unresolved, .. } = flows;
    others(&root, &mut notes);
    let profile = Profile {
        origin: "<otg>".into(),
        ports: ports
            .iter()
            .map(|port| Port {
                name: port.name.clone(),
                address: port.address.clone(),
                at: At::default(),
            })
            .collect(),
        streams,
        flows: None,
        attacks: Vec::new(),
        hosts: Vec::new(),
        routers: Vec::new(),
        replays: Vec::new(),
        seed: None,
        stop: Stop::default(),
        run: Default::default(),
    };
    let warnings = std::mem::take(&mut notes.warnings);
    let Devices { list: devices, dhcp_servers, dhcp6_servers, bgp, routers, .. } = devices;
    notes.end(Some(Translated {
        profile,
        ports,
        flows: infos,
        captures,
        devices,
        dhcp_servers,
        dhcp6_servers,
        bgp,
        routers,
        lldp,
        lags,
        unresolved,
        warnings,
    }))
}

fn ports(root: &Node<'_>, notes: &mut Notes) -> Vec<PortInfo> {
    let mut ports: Vec<PortInfo> = Vec::new();
    let mut names = HashSet::new();
    for node in root.list("ports", notes) {
        node.known(&["name", "location"], notes);
        let name = node.needed_text("name", notes).unwrap_or_default().to_owned();
        if !names.insert(name.clone()) {
            notes.problem(
                &node.at("name").path,
                format!("{name:?} is also the name of another port"),
            );
        }
        let location = node.text("location", notes).unwrap_or_default().to_owned();
        if location.trim().is_empty() {
            let message = "missing: expected the address of a port, such as af_packet:eth1, or the \
                           name of an interface";
            notes.problem(&node.at("location").path, message);
        }
        let address = location.trim().to_owned();
        ports.push(PortInfo {
            name,
            location,
            address,
            speed_bps: 0,
            mtu: None,
            promiscuous: true,
        });
    }
    ports
}

fn layer1(root: &Node<'_>, ports: &mut [PortInfo], notes: &mut Notes) {
    const SPEEDS: [(&str, u64); 13] = [
        ("speed_10_fd_mbps", 10),
        ("speed_10_hd_mbps", 10),
        ("speed_100_fd_mbps", 100),
        ("speed_100_hd_mbps", 100),
        ("speed_1_gbps", 1_000),
        ("speed_10_gbps", 10_000),
        ("speed_25_gbps", 25_000),
        ("speed_40_gbps", 40_000),
        ("speed_50_gbps", 50_000),
        ("speed_100_gbps", 100_000),
        ("speed_200_gbps", 200_000),
        ("speed_400_gbps", 400_000),
        ("speed_800_gbps", 800_000),
    ];
    // The driver configures the link, so these settings have no effect.
    const NO_EFFECT: [&str; 5] =
        ["media", "ieee_media_defaults", "auto_negotiate", "auto_negotiation", "flow_control"];
    for node in root.list("layer1", notes) {
        node.known(
            &[NO_EFFECT.as_slice(), &["name", "port_names", "speed", "promiscuous", "mtu"]]
                .concat(),
            notes,
        );
        for key in NO_EFFECT {
            if let Some(setting) = node.get(key) {
                notes.warn(&setting.path, "has no effect: Squall does not configure link drivers");
            }
        }
        let names: Vec<&'static str> = SPEEDS.iter().map(|speed| speed.0).collect();
        let speed = node
            .get("speed")
            .and_then(|_| node.word("speed", &names, Some("speed_10_gbps"), notes));
        let mbps =
            speed.and_then(|speed| SPEEDS.iter().find(|s| s.0 == speed)).map_or(0, |speed| speed.1);
        let mtu = node.uint("mtu", 14_000, notes).map(|mtu| mtu as u32);
        let promiscuous = node.flag("promiscuous", true, notes);
        for name in node.texts("port_names", notes) {
            match ports.iter_mut().find(|port| port.name == name) {
                Some(port) => {
                    (port.speed_bps, port.mtu, port.promiscuous) =
                        (mbps * 1_000_000, mtu, promiscuous)
                }
                None => {
                    notes.problem(&node.at("port_names").path, format!("there is no port {name:?}"))
                }
            }
        }
    }
}

/// Reports settings without effect, and unsupported ones.
fn others(root: &Node<'_>, notes: &mut Notes) {
    const UNSUPPORTED: [(&str, &str); 2] = [
        ("stateful_flows", "flows consist of packets without state"),
        ("egress_only_tracking", "Squall's own frames are counted by flow and by metric_tags"),
    ];
    for (key, why) in UNSUPPORTED {
        let node = root.at(key);
        let empty = match node.value {
            Value::Null => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(object) => object.is_empty(),
            _ => false,
        };
        if !empty {
            notes.unsupported(&node, why);
        }
    }
    if let Some(events) = root.get("events") {
        notes.warn(&events.path, "has no effect: Squall has no convergence metrics");
    }
    let options = root.at("options");
    options.known(&["port_options", "protocol_options", "per_port_options", "flow_options"], notes);
    for (group, key) in
        [("port_options", "data_integrity"), ("port_options", "location_preemption")]
    {
        if options.at(group).flag(key, false, notes) {
            notes.warn(&options.at(group).at(key).path, "has no effect");
        }
    }
    for key in ["per_port_options", "flow_options"] {
        if let Some(option) =
            options.get(key).filter(|o| o.value.as_array().is_none_or(|list| !list.is_empty()))
        {
            notes.warn(&option.path, "has no effect");
        }
    }
}
