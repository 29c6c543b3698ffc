//! The messages other than a configuration: requests and replies.
//!
//! Replies contain only members of the schema, because some clients reject unknown ones. As in
//! protobuf's JSON, 64-bit counts are strings. Other numbers never have an exponent, with which the
//! Python client would parse them as strings.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Number, Value, json};
use squall_bgp::{Families, Family, Notification, Origin};
use squall_router::observe::Protocol;
use squall_units::Nanos;

use crate::{
    Problems,
    bgp::ORIGINS,
    read::{Node, Notes},
};

/// A `set_control_state` request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlState {
    /// Flow names; empty: all flows.
    Traffic { flows: Vec<String>, state: TransmitState },
    /// Port names; empty: all ports.
    Link { ports: Vec<String>, up: bool },
    /// Port names; empty: all ports with captures.
    Capture { ports: Vec<String>, start: bool },
    /// Starts or stops the protocols of all devices and ports.
    Protocols { start: bool },
    /// Names of ranges of routes; empty: all of them.
    Routes { names: Vec<String>, advertise: bool },
    /// Names of BGP sessions; empty: all of them.
    BgpPeers { names: Vec<String>, up: bool },
    /// Names of routers of OSPF or IS-IS; empty: all of the protocol.
    Routers { protocol: Protocol, names: Vec<String>, up: bool },
    /// Names of ports of LAGs; empty: all of them. `admin`: whether they announce themselves as in
    /// sync, otherwise whether they send at all.
    Lacp { ports: Vec<String>, admin: bool, up: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransmitState {
    Start,
    Stop,
    Pause,
    Resume,
}

/// A `get_metrics` request. Empty lists of names or columns select all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsRequest {
    Ports {
        names: Vec<String>,
        columns: Vec<String>,
    },
    Flows {
        names: Vec<String>,
        columns: Vec<String>,
        tagged: TaggedRequest,
    },
    /// `v6`: DHCPv6 instead of DHCPv4.
    DhcpClients {
        names: Vec<String>,
        columns: Vec<String>,
        v6: bool,
    },
    DhcpServers {
        names: Vec<String>,
        columns: Vec<String>,
        v6: bool,
    },
    /// `v6`: sessions over IPv6.
    Bgp {
        names: Vec<String>,
        columns: Vec<String>,
        v6: bool,
    },
    /// Routers of OSPF or IS-IS.
    Routers {
        protocol: Protocol,
        names: Vec<String>,
        columns: Vec<String>,
    },
    Lldp {
        names: Vec<String>,
        columns: Vec<String>,
    },
    Lags {
        names: Vec<String>,
        columns: Vec<String>,
    },
    /// Ports of the named LAGs, with these names.
    Lacp {
        lags: Vec<String>,
        ports: Vec<String>,
        columns: Vec<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaggedRequest {
    pub include: bool,
    /// Include combinations of values for which no frame was counted.
    pub include_empty: bool,
    pub columns: Vec<String>,
    /// Tag name, and the values to select, as hex digits.
    pub filters: Vec<(String, Vec<String>)>,
}

/// A `get_capture` request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureRequest {
    pub port: String,
    /// Return only this number of frames, from the first.
    pub initial: Option<u64>,
}

/// A `get_states` request. An empty list of names selects all interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatesRequest {
    Ipv4Neighbors {
        ethernets: Vec<String>,
    },
    Ipv6Neighbors {
        ethernets: Vec<String>,
    },
    /// Names of clients; empty: all. `v6`: DHCPv6 instead of DHCPv4.
    DhcpInterfaces {
        clients: Vec<String>,
        v6: bool,
    },
    /// Names of servers; empty: all.
    DhcpLeases {
        servers: Vec<String>,
        v6: bool,
    },
    /// Names of sessions; empty: all. A route of a family is selected if one of the family's
    /// filters selects it, or there are none.
    BgpPrefixes {
        peers: Vec<String>,
        families: Families,
        filters: [Vec<PrefixFilter>; 2],
    },
    /// LSAs or LSPs that routers of a protocol have received. Names; empty: all. `key`: that of the
    /// names.
    Databases {
        protocol: Protocol,
        key: &'static str,
        names: Vec<String>,
    },
    /// Names of instances, and [`LldpNeighbor::neighbor_id`]; empty: all.
    LldpNeighbors {
        names: Vec<String>,
        ids: Vec<String>,
    },
}

/// Routes with all of these properties. `None`, and no address: any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixFilter {
    pub addresses: Vec<IpAddr>,
    pub length: Option<u8>,
    pub origin: Option<Origin>,
    pub path: Option<u32>,
}

/// A `set_control_action` request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlAction {
    /// Ends BGP sessions with a NOTIFICATION; they come back. Names; empty: all.
    Notify { peers: Vec<String>, notification: Notification },
    /// Restarts BGP sessions gracefully. They are back after the time.
    Restart { peers: Vec<String>, after: Nanos },
    /// Pings, all sent at once. `v6`: to IPv6 addresses.
    Ping { v6: bool, requests: Vec<PingRequest> },
}

/// An echo request that a device sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PingRequest {
    /// Name of one of the device's addresses.
    pub source: String,
    pub target: IpAddr,
    /// Path of this request in the message.
    pub path: String,
}

impl ControlState {
    /// # Errors
    /// Invalid or unsupported parts.
    pub fn from_json(value: &Value) -> Result<Self, Problems> {
        let mut notes = Notes::default();
        let state = Self::read(&Node::root(value), &mut notes);
        notes.end(state)
    }

    fn read(node: &Node<'_>, notes: &mut Notes) -> Option<Self> {
        node.known(&["choice", "port", "protocol", "traffic"], notes);
        let (choice, inner) = node.member(&["traffic", "port", "protocol"], None, notes)?;
        match choice {
            "traffic" => {
                let (_, inner) = inner.member(&["flow_transmit"], Some("flow_transmit"), notes)?;
                inner.known(&["flow_names", "state"], notes);
                let states = ["start", "stop", "pause", "resume"];
                let state = match inner.word("state", &states, None, notes)? {
                    "start" => TransmitState::Start,
                    "stop" => TransmitState::Stop,
                    "pause" => TransmitState::Pause,
                    _ => TransmitState::Resume,
                };
                Some(Self::Traffic { flows: inner.texts("flow_names", notes), state })
            }
            "port" => {
                let (choice, inner) = inner.member(&["link", "capture"], None, notes)?;
                inner.known(&["port_names", "state"], notes);
                let ports = inner.texts("port_names", notes);
                Some(match choice {
                    "link" => Self::Link {
                        ports,
                        up: inner.word("state", &["up", "down"], None, notes)? == "up",
                    },
                    _ => Self::Capture {
                        ports,
                        start: inner.word("state", &["start", "stop"], None, notes)? == "start",
                    },
                })
            }
            _ => {
                let kinds = ["all", "route", "lacp", "bgp", "isis", "ospfv2", "ospfv3", "rocev2"];
                let (choice, inner) = inner.member(&kinds, None, notes)?;
                if choice == "lacp" {
                    let kinds = ["admin", "member_ports"];
                    let (choice, inner) = inner.member(&kinds, None, notes)?;
                    inner.known(&["lag_member_names", "state"], notes);
                    let up = inner.word("state", &["up", "down"], None, notes)? == "up";
                    let ports = inner.texts("lag_member_names", notes);
                    return Some(Self::Lacp { ports, admin: choice == "admin", up });
                }
                match choice {
                    "all" => Some(Self::Protocols {
                        start: inner.word("state", &["start", "stop"], None, notes)? == "start",
                    }),
                    "route" => {
                        inner.known(&["names", "state"], notes);
                        let words = ["withdraw", "advertise"];
                        let advertise = inner.word("state", &words, None, notes)? == "advertise";
                        Some(Self::Routes { names: inner.texts("names", notes), advertise })
                    }
                    "bgp" => {
                        let (_, inner) = inner.member(&["peers"], Some("peers"), notes)?;
                        inner.known(&["peer_names", "state"], notes);
                        let up = inner.word("state", &["up", "down"], None, notes)? == "up";
                        Some(Self::BgpPeers { names: inner.texts("peer_names", notes), up })
                    }
                    "isis" | "ospfv2" | "ospfv3" => {
                        let kinds = ["routers", "simulated_links"];
                        let (kind, inner) = inner.member(&kinds, None, notes)?;
                        if kind == "simulated_links" {
                            notes.unsupported(&inner, "there are no simulated links; try routers");
                            return None;
                        }
                        inner.known(&["router_names", "state"], notes);
                        let up = inner.word("state", &["up", "down"], None, notes)? == "up";
                        let names = inner.texts("router_names", notes);
                        Some(Self::Routers { protocol: protocol_of(choice), names, up })
                    }
                    _ => {
                        notes.unsupported(
                            &inner,
                            "devices support only ARP, neighbor discovery, echo, DHCP, BGP, OSPF \
                             and IS-IS, and ports LLDP and LACP",
                        );
                        None
                    }
                }
            }
        }
    }
}

impl MetricsRequest {
    /// # Errors
    /// Invalid or unsupported parts.
    pub fn from_json(value: &Value) -> Result<Self, Problems> {
        const OTHERS: [&str; 9] = [
            "rsvp",
            "convergence",
            "macsec",
            "mka",
            "rocev2_ipv4",
            "rocev2_ipv6",
            "rocev2_flow",
            "egress_only_tracking",
            "bmp_server",
        ];
        const SUPPORTED: [&str; 14] = [
            "port",
            "flow",
            "bgpv4",
            "bgpv6",
            "ospfv2",
            "ospfv3",
            "isis",
            "dhcpv4_client",
            "dhcpv4_server",
            "dhcpv6_client",
            "dhcpv6_server",
            "lldp",
            "lag",
            "lacp",
        ];
        let mut notes = Notes::default();
        let node = Node::root(value);
        let choices: Vec<&'static str> = SUPPORTED.into_iter().chain(OTHERS).collect();
        node.known(&[&["choice"], choices.as_slice()].concat(), &mut notes);
        let request = node.member(&choices, Some("port"), &mut notes).and_then(
            |(choice, inner)| match choice {
                "port" => {
                    inner.known(&["port_names", "column_names"], &mut notes);
                    Some(Self::Ports {
                        names: inner.texts("port_names", &mut notes),
                        columns: inner.texts("column_names", &mut notes),
                    })
                }
                "flow" => {
                    inner.known(&["flow_names", "metric_names", "tagged_metrics"], &mut notes);
                    Some(Self::Flows {
                        names: inner.texts("flow_names", &mut notes),
                        columns: inner.texts("metric_names", &mut notes),
                        tagged: TaggedRequest::read(&inner.at("tagged_metrics"), &mut notes),
                    })
                }
                "dhcpv4_client" | "dhcpv6_client" => {
                    inner.known(&["client_names", "column_names"], &mut notes);
                    Some(Self::DhcpClients {
                        names: inner.texts("client_names", &mut notes),
                        columns: inner.texts("column_names", &mut notes),
                        v6: choice == "dhcpv6_client",
                    })
                }
                "dhcpv4_server" | "dhcpv6_server" => {
                    inner.known(&["server_names", "column_names"], &mut notes);
                    Some(Self::DhcpServers {
                        names: inner.texts("server_names", &mut notes),
                        columns: inner.texts("column_names", &mut notes),
                        v6: choice == "dhcpv6_server",
                    })
                }
                "bgpv4" | "bgpv6" => {
                    inner.known(&["peer_names", "column_names"], &mut notes);
                    Some(Self::Bgp {
                        names: inner.texts("peer_names", &mut notes),
                        columns: inner.texts("column_names", &mut notes),
                        v6: choice == "bgpv6",
                    })
                }
                "ospfv2" | "ospfv3" | "isis" => {
                    inner.known(&["router_names", "column_names"], &mut notes);
                    Some(Self::Routers {
                        protocol: protocol_of(choice),
                        names: inner.texts("router_names", &mut notes),
                        columns: inner.texts("column_names", &mut notes),
                    })
                }
                "lldp" => {
                    inner.known(&["lldp_names", "column_names"], &mut notes);
                    Some(Self::Lldp {
                        names: inner.texts("lldp_names", &mut notes),
                        columns: inner.texts("column_names", &mut notes),
                    })
                }
                "lag" => {
                    inner.known(&["lag_names", "column_names"], &mut notes);
                    Some(Self::Lags {
                        names: inner.texts("lag_names", &mut notes),
                        columns: inner.texts("column_names", &mut notes),
                    })
                }
                "lacp" => {
                    let keys = ["lag_names", "lag_member_port_names", "column_names"];
                    inner.known(&keys, &mut notes);
                    Some(Self::Lacp {
                        lags: inner.texts("lag_names", &mut notes),
                        ports: inner.texts("lag_member_port_names", &mut notes),
                        columns: inner.texts("column_names", &mut notes),
                    })
                }
                _ => {
                    let why = "only ports, flows, BGP, OSPF, IS-IS, DHCP, LLDP, LAGs and LACP have \
                               metrics";
                    notes.unsupported(&inner, why);
                    None
                }
            },
        );
        notes.end(request)
    }
}

/// The protocol that a key of the schema names.
fn protocol_of(key: &str) -> Protocol {
    match key {
        "ospfv2" => Protocol::Ospf2,
        "ospfv3" => Protocol::Ospf3,
        _ => Protocol::Isis,
    }
}

impl TaggedRequest {
    fn read(node: &Node<'_>, notes: &mut Notes) -> Self {
        node.known(&["include", "include_empty_metrics", "metric_names", "filters"], notes);
        let filters = node.list("filters", notes);
        Self {
            include: node.flag("include", true, notes),
            include_empty: node.flag("include_empty_metrics", false, notes),
            columns: node.texts("metric_names", notes),
            filters: filters
                .iter()
                .map(|filter| {
                    filter.known(&["name", "values"], notes);
                    (
                        filter.text("name", notes).unwrap_or_default().to_owned(),
                        filter.texts("values", notes),
                    )
                })
                .collect(),
        }
    }
}

impl CaptureRequest {
    /// # Errors
    /// Invalid or unsupported parts.
    pub fn from_json(value: &Value) -> Result<Self, Problems> {
        let mut notes = Notes::default();
        let node = Node::root(value);
        node.known(&["port_name", "packets"], &mut notes);
        let port = node.needed_text("port_name", &mut notes).map(str::to_owned);
        let mut initial = None;
        let packets = node.at("packets");
        if let Some(("slice", slice)) = packets.member(&["all", "slice"], Some("all"), &mut notes)
            && let Some((_, slice)) = slice.member(&["initial"], Some("initial"), &mut notes)
        {
            initial = slice.uint("count", u64::MAX, &mut notes).or(Some(10));
        }
        notes.end(port.map(|port| Self { port, initial }))
    }
}

impl StatesRequest {
    /// # Errors
    /// Invalid or unsupported parts.
    pub fn from_json(value: &Value) -> Result<Self, Problems> {
        const OTHERS: [&str; 3] = ["rsvp_lsps", "isis_adjacencies", "bmp_servers"];
        const SUPPORTED: [&str; 11] = [
            "bgp_prefixes",
            "ospfv2_lsas",
            "ospfv3_lsas",
            "isis_lsps",
            "ipv4_neighbors",
            "ipv6_neighbors",
            "dhcpv4_interfaces",
            "dhcpv4_leases",
            "dhcpv6_interfaces",
            "dhcpv6_leases",
            "lldp_neighbors",
        ];
        let mut notes = Notes::default();
        let node = Node::root(value);
        let choices: Vec<&'static str> = SUPPORTED.into_iter().chain(OTHERS).collect();
        let request = node.member(&choices, Some("ipv4_neighbors"), &mut notes).and_then(
            |(choice, inner)| {
                let ethernets = inner.texts("ethernet_names", &mut notes);
                match choice {
                    "dhcpv4_interfaces" | "dhcpv6_interfaces" => {
                        let clients = inner.texts("dhcp_client_names", &mut notes);
                        Some(Self::DhcpInterfaces { clients, v6: choice == "dhcpv6_interfaces" })
                    }
                    "dhcpv4_leases" | "dhcpv6_leases" => {
                        let servers = inner.texts("dhcp_server_names", &mut notes);
                        Some(Self::DhcpLeases { servers, v6: choice == "dhcpv6_leases" })
                    }
                    "bgp_prefixes" => Self::read_prefixes(&inner, &mut notes),
                    "ospfv2_lsas" | "ospfv3_lsas" | "isis_lsps" => {
                        let is_isis = choice == "isis_lsps";
                        let key = if is_isis { "isis_router_names" } else { "router_names" };
                        inner.known(&[key], &mut notes);
                        let protocol = protocol_of(choice.split('_').next().unwrap_or_default());
                        let names = inner.texts(key, &mut notes);
                        Some(Self::Databases { protocol, key, names })
                    }
                    "lldp_neighbors" => Some(Self::LldpNeighbors {
                        names: inner.texts("lldp_names", &mut notes),
                        ids: inner.texts("neighbor_id_filters", &mut notes),
                    }),
                    "ipv4_neighbors" => Some(Self::Ipv4Neighbors { ethernets }),
                    "ipv6_neighbors" => Some(Self::Ipv6Neighbors { ethernets }),
                    _ => {
                        let why = format!("only {} have states", SUPPORTED.join(", "));
                        notes.unsupported(&inner, &why);
                        None
                    }
                }
            },
        );
        notes.end(request)
    }
}

impl StatesRequest {
    fn read_prefixes(node: &Node<'_>, notes: &mut Notes) -> Option<Self> {
        const FAMILIES: [&str; 2] = ["ipv4_unicast", "ipv6_unicast"];
        const FILTERS: [&str; 2] = ["ipv4_unicast_filters", "ipv6_unicast_filters"];
        node.known(&[&FILTERS[..], &["bgp_peer_names", "prefix_filters"]].concat(), notes);
        let words = node.texts("prefix_filters", notes);
        for word in words.iter().filter(|word| !FAMILIES.contains(&word.as_str())) {
            let expected = FAMILIES.join(" or ");
            let path = node.at("prefix_filters").path;
            notes.problem(path, format!("found {word:?}, expected {expected}"));
        }
        let peers = node.texts("bgp_peer_names", notes);
        let families = FAMILIES.map(|family| words.is_empty() || words.iter().any(|w| w == family));
        let filters = Family::ALL.map(|family| {
            let list = node.list(FILTERS[family.index()], notes);
            list.iter().filter_map(|node| PrefixFilter::read(node, family, notes)).collect()
        });
        Some(Self::BgpPrefixes { peers, families, filters })
    }
}

impl PrefixFilter {
    fn read(node: &Node<'_>, family: Family, notes: &mut Notes) -> Option<Self> {
        node.known(&["addresses", "prefix_length", "origin", "path_id"], notes);
        let mut addresses = Vec::new();
        for text in node.texts("addresses", notes) {
            let found = text.parse::<IpAddr>().ok();
            match found.filter(|it| it.is_ipv4() == (family == Family::Ipv4)) {
                Some(address) => addresses.push(address),
                None => {
                    let expected = if family == Family::Ipv4 { "IPv4" } else { "IPv6" };
                    let found = format!("found {text:?}, expected {expected} addresses");
                    notes.problem(node.at("addresses").path, found);
                }
            }
        }
        let length = node.uint("prefix_length", 128, notes).map(|length| length as u8);
        let path = node.uint("path_id", u32::MAX.into(), notes).map(|path| path as u32);
        let mut origin = None;
        if node.get("origin").is_some() {
            let words = ORIGINS.map(|(word, _)| word);
            let word = node.word("origin", &words, Some("unspecified"), notes)?;
            origin = ORIGINS.into_iter().find(|(name, _)| *name == word).map(|(_, origin)| origin);
        }
        Some(Self { addresses, length, origin, path })
    }
}

impl ControlAction {
    /// # Errors
    /// Invalid or unsupported parts.
    pub fn from_json(value: &Value) -> Result<Self, Problems> {
        let mut notes = Notes::default();
        let action = Self::read(&Node::root(value), &mut notes);
        notes.end(action)
    }

    fn read(node: &Node<'_>, notes: &mut Notes) -> Option<Self> {
        let (choice, inner) = node.member(&["protocol", "port"], None, notes)?;
        if choice == "port" {
            notes.unsupported(&inner, "ports cannot be rebooted");
            return None;
        }
        let (choice, inner) = inner.member(&["ipv4", "ipv6", "bgp", "isis"], None, notes)?;
        match choice {
            "ipv4" | "ipv6" => {}
            "bgp" => return Self::read_bgp(&inner, notes),
            _ => {
                notes.unsupported(&inner, "devices have pings, and actions of BGP");
                return None;
            }
        }
        let (_, inner) = inner.member(&["ping"], Some("ping"), notes)?;
        inner.known(&["requests"], notes);
        let v6 = choice == "ipv6";
        let requests = inner.list("requests", notes);
        let requests = requests.iter().filter_map(|request| {
            request.known(&["src_name", "dst_ip"], notes);
            let source = request.needed_text("src_name", notes);
            let address = request.needed_text("dst_ip", notes)?;
            let target = address.parse::<IpAddr>().ok().filter(|target| target.is_ipv6() == v6);
            if target.is_none() {
                let family = if v6 { "IPv6" } else { "IPv4" };
                let what = format!("found {address:?}, expected an {family} address");
                notes.problem(request.at("dst_ip").path, what);
            }
            Some(PingRequest {
                source: source?.to_owned(),
                target: target?,
                path: request.path.clone(),
            })
        });
        Some(Self::Ping { v6, requests: requests.collect() })
    }
}

impl ControlAction {
    fn read_bgp(node: &Node<'_>, notes: &mut Notes) -> Option<Self> {
        let kinds = ["notification", "initiate_graceful_restart"];
        let (choice, inner) = node.member(&kinds, None, notes)?;
        if choice == "notification" {
            inner.known(&[&NOTIFICATIONS[..], &["choice", "names", "fin_delay"]].concat(), notes);
            if inner.uint("fin_delay", 10_000, notes).is_some_and(|delay| delay > 0) {
                notes.unsupported(&inner.at("fin_delay"), "connections are closed at once; try 0");
            }
            let notification = read_notification(&inner, notes)?;
            return Some(Self::Notify { peers: inner.texts("names", notes), notification });
        }
        inner.known(&["peer_names", "restart_delay", "notification"], notes);
        if let Some(notification) = inner.get("notification") {
            let why = "routes are not kept after a NOTIFICATION (RFC 8538)";
            notes.unsupported(&notification, why);
        }
        let seconds = inner.uint("restart_delay", 3600, notes).unwrap_or(30);
        let after = Nanos(seconds * Nanos::SECOND.0);
        Some(Self::Restart { peers: inner.texts("peer_names", notes), after })
    }
}

const NOTIFICATIONS: [&str; 7] = [
    "cease",
    "message_header_error",
    "open_message_error",
    "update_message_error",
    "hold_timer_expired",
    "finite_state_machine_error",
    "custom",
];

fn read_notification(node: &Node<'_>, notes: &mut Notes) -> Option<Notification> {
    // The first word is the default of the schema.
    const CEASE: [&str; 10] = [
        "admin_shutdown_code6_subcode2",
        "max_number_prefix_reached_code6_subcode1",
        "peer_deleted_code6_subcode3",
        "admin_reset_code6_subcode4",
        "connection_reject_code6_subcode5",
        "other_config_changes_code6_subcode6",
        "connection_collision_resolution_code6_subcode7",
        "out_of_resources_code6_subcode8",
        "hard_reset_code6_subcode9",
        "bfd_session_down_code6_subcode10",
    ];
    const HEADER: [&str; 3] = [
        "connection_not_synchronized_code1_subcode1",
        "bad_message_length_code1_subcode2",
        "bad_message_type_code1_subcode3",
    ];
    const OPEN: [&str; 7] = [
        "unsupported_version_number_code2_subcode1",
        "error_peer_as_code2_subcode2",
        "error_bgp_id_code2_subcode3",
        "unsupported_optional_parameter_code2_subcode4",
        "auth_failed_code2_subcode5",
        "unsupported_hold_time_code2_subcode6",
        "unsupported_capability_code2_subcode7",
    ];
    const UPDATE: [&str; 11] = [
        "malformed_attrib_list_code3_subcode1",
        "unrecognized_wellknown_attrib_code3_subcode2",
        "wellknown_attrib_missing_code3_subcode3",
        "attrib_flags_error_code3_subcode4",
        "attrib_length_error_code3_subcode5",
        "invalid_origin_attrib_code3_subcode6",
        "as_routing_loop_code3_subcode7",
        "invalid_nhop_attrib_code3_subcode8",
        "error_optional_attrib_code3_subcode9",
        "invalid_network_field_code3_subcode10",
        "abnormal_aspath_code3_subcode11",
    ];
    let (choice, inner) = node.member(&NOTIFICATIONS, Some("cease"), notes)?;
    let words: &[&'static str] = match choice {
        "cease" => &CEASE,
        "message_header_error" => &HEADER,
        "open_message_error" => &OPEN,
        "update_message_error" => &UPDATE,
        "hold_timer_expired" => return Some(Notification::new(4, 0)),
        "finite_state_machine_error" => return Some(Notification::new(5, 0)),
        _ => {
            inner.known(&["code", "subcode"], notes);
            let mut octet = |key| {
                if inner.get(key).is_none() {
                    notes.problem(inner.at(key).path, "missing: expected 0 to 255");
                }
                inner.uint(key, 255, notes).map(|octet| octet as u8)
            };
            let (code, subcode) = (octet("code"), octet("subcode"));
            return Some(Notification::new(code?, subcode?));
        }
    };
    inner.known(&["subcode"], notes);
    let word = inner.word("subcode", words, words.first().copied(), notes)?;
    let (code, subcode) = word.rsplit_once("_code")?.1.split_once("_subcode")?;
    Some(Notification::new(code.parse().ok()?, subcode.parse().ok()?))
}

/// The reply to `set_control_action`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PingReply {
    pub v6: bool,
    /// Each request with whether an answer arrived, in the order of the message.
    pub results: Vec<(PingRequest, bool)>,
    pub warnings: Vec<String>,
}

impl PingReply {
    pub fn to_json(&self) -> Value {
        let responses = self.results.iter().map(|(request, answered)| {
            let result = if *answered { "succeeded" } else { "failed" };
            json!({ "src_name": request.source, "dst_ip": request.target.to_string(), "result": result })
        });
        let ping =
            json!({ "choice": "ping", "ping": { "responses": responses.collect::<Vec<_>>() } });
        let family = if self.v6 { "ipv6" } else { "ipv4" };
        let protocol = json!({ "choice": family, family: ping });
        json!({ "response": { "choice": "protocol", "protocol": protocol }, "warnings": self.warnings })
    }
}

/// A 64-bit count: a string in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u64);

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A number printed as a plain decimal with at most four decimal places; 0 if not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Decimal(pub f64);

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        plain(self.0).serialize(serializer)
    }
}

/// A JSON number without exponent: Python's YAML reader would take `1e-7` and `1.7e18` for strings.
fn plain(value: f64) -> Number {
    // Values in the range of 64-bit integers are printed without exponent; no figure exceeds it.
    let value = if value.is_finite() { value.clamp(-9e18, 9e18) } else { 0.0 };
    let rounded = if value.abs() < 1e11 { (value * 1e4).round() / 1e4 } else { value.round() };
    match Number::from_f64(rounded) {
        Some(number) if rounded.fract() != 0.0 => number,
        _ => Number::from(rounded as i64),
    }
}

/// The reply to `get_metrics`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "choice", rename_all = "snake_case")]
pub enum MetricsResponse {
    PortMetrics {
        port_metrics: Vec<PortMetric>,
    },
    FlowMetrics {
        flow_metrics: Vec<FlowMetric>,
    },
    #[serde(rename = "dhcpv4_client")]
    DhcpClients {
        dhcpv4client_metrics: Vec<MessageMetric>,
    },
    #[serde(rename = "dhcpv4_server")]
    DhcpServers {
        dhcpv4server_metrics: Vec<MessageMetric>,
    },
    #[serde(rename = "dhcpv6_client")]
    Dhcp6Clients {
        dhcpv6client_metrics: Vec<MessageMetric>,
    },
    #[serde(rename = "dhcpv6_server")]
    Dhcp6Servers {
        dhcpv6server_metrics: Vec<MessageMetric>,
    },
    Bgpv4Metrics {
        bgpv4_metrics: Vec<BgpMetric>,
    },
    Bgpv6Metrics {
        bgpv6_metrics: Vec<BgpMetric>,
    },
    Ospfv2Metrics {
        ospfv2_metrics: Vec<RouterMetric>,
    },
    Ospfv3Metrics {
        ospfv3_metrics: Vec<RouterMetric>,
    },
    IsisMetrics {
        isis_metrics: Vec<RouterMetric>,
    },
    LldpMetrics {
        lldp_metrics: Vec<MessageMetric>,
    },
    LagMetrics {
        lag_metrics: Vec<LagMetric>,
    },
    LacpMetrics {
        lacp_metrics: Vec<LacpMetric>,
    },
}

/// Messages of a protocol, by those columns that were requested.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MessageMetric {
    pub name: String,
    #[serde(flatten)]
    pub messages: BTreeMap<&'static str, Count>,
}

/// A BGP session, by those columns that were requested.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BgpMetric {
    pub name: String,
    #[serde(flatten)]
    pub columns: BTreeMap<&'static str, Value>,
}

/// A router of OSPF or IS-IS, by those columns that were requested and are known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RouterMetric {
    pub name: String,
    #[serde(flatten)]
    pub columns: BTreeMap<&'static str, Value>,
}

/// A LAG, by those columns that were requested.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LagMetric {
    pub name: String,
    #[serde(flatten)]
    pub columns: BTreeMap<&'static str, Value>,
}

/// A port of a LAG, by those columns that were requested.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LacpMetric {
    pub lag_name: String,
    pub lag_member_port_name: String,
    #[serde(flatten)]
    pub columns: BTreeMap<&'static str, Value>,
}

/// Fields that were not requested are `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PortMetric {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// `up` or `down`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<&'static str>,
    /// `started` or `stopped`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_tx: Option<Count>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_rx: Option<Count>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_tx: Option<Count>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_rx: Option<Count>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_tx_rate: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_rx_rate: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_tx_rate: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_rx_rate: Option<Decimal>,
    /// `started` or `stopped`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transmit: Option<&'static str>,
    /// Time of the link's last change, in nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_change: Option<Count>,
    /// Mbit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<Count>,
}

impl FlowCounts {
    /// Removes the counters of sent frames and of loss.
    #[must_use]
    pub fn of_received(self) -> Self {
        Self {
            frames_tx: None,
            bytes_tx: None,
            frames_tx_rate: None,
            loss: None,
            tx_l1_rate_bps: None,
            tx_rate_bytes: None,
            tx_rate_bps: None,
            tx_rate_kbps: None,
            tx_rate_mbps: None,
            ..self
        }
    }
}

/// Counters of a flow, or of those of its frames with certain tags.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowCounts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_tx: Option<Count>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_rx: Option<Count>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_tx: Option<Count>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_rx: Option<Count>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_tx_rate: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_rx_rate: Option<Decimal>,
    /// Percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamps: Option<Timestamps>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_l1_rate_bps: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_l1_rate_bps: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_rate_bytes: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_rate_bytes: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_rate_bps: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_rate_bps: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_rate_kbps: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_rate_kbps: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_rate_mbps: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_rate_mbps: Option<Decimal>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowMetric {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_tx: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_rx: Option<String>,
    /// `started`, `stopped` or `paused`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transmit: Option<&'static str>,
    #[serde(flatten)]
    pub counts: FlowCounts,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tagged_metrics: Vec<TaggedMetric>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TaggedMetric {
    pub tags: Vec<Tag>,
    #[serde(flatten)]
    pub counts: FlowCounts,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tag {
    pub name: String,
    pub value: TagText,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "choice", rename_all = "snake_case")]
pub enum TagText {
    Hex { hex: String },
    Str { str: String },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Timestamps {
    pub first_timestamp_ns: Decimal,
    pub last_timestamp_ns: Decimal,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    pub minimum_ns: Decimal,
    pub maximum_ns: Decimal,
    pub average_ns: Decimal,
}

/// The reply to `get_states`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "choice", rename_all = "snake_case")]
pub enum StatesResponse {
    Ipv4Neighbors {
        ipv4_neighbors: Vec<Ipv4Neighbor>,
    },
    Ipv6Neighbors {
        ipv6_neighbors: Vec<Ipv6Neighbor>,
    },
    BgpPrefixes {
        bgp_prefixes: Vec<BgpPrefixes>,
    },
    Ospfv2Lsas {
        ospfv2_lsas: Vec<Value>,
    },
    Ospfv3Lsas {
        ospfv3_lsas: Vec<Value>,
    },
    IsisLsps {
        isis_lsps: Vec<Value>,
    },
    #[serde(rename = "dhcpv4_interfaces")]
    DhcpInterfaces {
        dhcpv4_interfaces: Vec<DhcpInterface>,
    },
    #[serde(rename = "dhcpv4_leases")]
    DhcpLeases {
        dhcpv4_leases: Vec<DhcpLeases>,
    },
    #[serde(rename = "dhcpv6_interfaces")]
    Dhcp6Interfaces {
        dhcpv6_interfaces: Vec<Dhcp6Interface>,
    },
    #[serde(rename = "dhcpv6_leases")]
    Dhcp6Leases {
        dhcpv6_leases: Vec<Dhcp6Leases>,
    },
    LldpNeighbors {
        lldp_neighbors: Vec<LldpNeighbor>,
    },
}

/// The routes that a BGP session has learnt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BgpPrefixes {
    pub bgp_peer_name: String,
    pub ipv4_unicast_prefixes: Vec<BgpPrefix>,
    pub ipv6_unicast_prefixes: Vec<BgpPrefix>,
}

/// A learnt route. It has the address of its family, and the attributes that it was announced with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BgpPrefix {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_address: Option<String>,
    pub prefix_length: u8,
    pub origin: &'static str,
    pub path_id: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4_next_hop: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_next_hop: Option<String>,
    pub communities: Vec<BgpCommunity>,
    pub extended_communities: Vec<ExtendedCommunity>,
    pub as_path: BgpAsPath,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_preference: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multi_exit_discriminator: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BgpCommunity {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub as_number: u16,
    pub as_custom: u16,
}

/// The octets of an extended community, in hex digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExtendedCommunity {
    pub raw: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BgpAsPath {
    pub segments: Vec<BgpSegment>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BgpSegment {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub as_numbers: Vec<u32>,
}

/// The leases of a DHCPv6 client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dhcp6Interface {
    pub dhcp_client_name: String,
    pub iapd_addresses: Vec<Dhcp6Prefix>,
    pub ia_addresses: Vec<Dhcp6Address>,
}

/// A delegated prefix. `lease_time`: its valid lifetime in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dhcp6Prefix {
    pub address: String,
    pub prefix_length: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_time: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dhcp6Address {
    pub address: String,
    /// The router that advertises itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_time: Option<u32>,
}

/// The leases of a DHCPv6 server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dhcp6Leases {
    pub dhcp_server_name: String,
    pub leases: Vec<Dhcp6Lease>,
}

/// An address, or a prefix with its length. Times are the remaining ones, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dhcp6Lease {
    pub address: String,
    pub valid_time: u32,
    pub renew_time: u32,
    pub rebind_time: u32,
    /// The client's DUID, in hex digits.
    pub client_id: String,
}

/// A neighbor of an LLDP instance. Fields are absent if it does not announce them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LldpNeighbor {
    pub lldp_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_description: Option<String>,
    pub chassis_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chassis_id_type: Option<&'static str>,
    pub neighbor_id: String,
    /// Seconds since its first and its last announcement.
    pub age: u32,
    pub last_update: u32,
    /// Seconds.
    pub ttl: u16,
    pub port_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_id_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub management_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub management_address_type: Option<String>,
    pub custom_tlvs: Vec<LldpTlv>,
    pub capabilities: Vec<LldpCapability>,
}

/// A TLV of an organization; `oui` and `information` in hex digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LldpTlv {
    pub custom_type: u8,
    pub oui: String,
    pub oui_subtype: u8,
    pub information: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LldpCapability {
    pub capability_name: &'static str,
    pub capability_enabled: bool,
}

/// The lease of a DHCPv4 client. Fields are absent as long as it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DhcpInterface {
    pub dhcp_client_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_length: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_address: Option<String>,
    /// Length of the lease in seconds, and the remaining time to T1 and T2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_time: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_time: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebind_time: Option<u32>,
}

/// The leases of a DHCPv4 server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DhcpLeases {
    pub dhcp_server_name: String,
    pub leases: Vec<DhcpLease>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DhcpLease {
    pub address: String,
    /// Remaining time in seconds.
    pub valid_time: u32,
    /// MAC address of the client.
    pub client_id: String,
}

/// A neighbor of an interface. The MAC address is absent if the neighbor did not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ipv4Neighbor {
    pub ethernet_name: String,
    pub ipv4_address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_layer_address: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ipv6Neighbor {
    pub ethernet_name: String,
    pub ipv6_address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_layer_address: Option<String>,
}

/// The reply to `get_version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Version {
    pub api_spec_version: String,
    pub sdk_version: String,
    pub app_version: String,
}

impl Version {
    /// Clients treat the API version as a constraint on their own version, so any 1.x is accepted.
    pub const API_SPEC: &'static str = "^1.0.0";

    /// The reply for an application of this version.
    pub fn of(app_version: &str) -> Self {
        Self {
            api_spec_version: Self::API_SPEC.into(),
            sdk_version: String::new(),
            app_version: app_version.into(),
        }
    }
}

/// The reply to requests that change something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Warning {
    pub warnings: Vec<String>,
}

/// An error reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// HTTP status: 400, 500.
    pub code: i32,
    /// `validation` or `internal`.
    pub kind: String,
    pub errors: Vec<String>,
}

impl Error {
    pub fn validation(problems: &Problems) -> Self {
        Self { code: 400, kind: "validation".into(), errors: problems.texts() }
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self { code: 500, kind: "internal".into(), errors: vec![message.into()] }
    }
}
