//! The table of headers: the fields of each packet of the schema, with their offset and default.

/// One header of `packet`.
#[derive(Debug)]
pub(crate) struct Header {
    /// Value of `choice` in `packet`.
    pub name: &'static str,
    pub title: &'static str,
    pub octets: usize,
    pub fields: &'static [Field],
    /// Set if fields are alternatives.
    pub choice: Option<Choice>,
    pub role: Role,
}

/// Alternatives selected by a `choice`; fields of other choices are ignored.
#[derive(Debug)]
pub(crate) struct Choice {
    /// Member of the header that contains the choice; empty: the header itself.
    pub at: &'static str,
    pub of: &'static [&'static str],
    pub default: &'static str,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub name: &'static str,
    /// The choice to which the field belongs, if any.
    pub within: Option<&'static str>,
    /// Offset from the start of the header.
    pub bit: usize,
    pub bits: usize,
    pub form: Form,
    pub default: u128,
    /// Value if the field is unset, or for `auto`.
    pub fill: Fill,
    /// Supports the pattern `auto`.
    pub auto: bool,
    /// Supports the pattern `random`.
    pub random: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Number,
    Mac,
    Ipv4,
    Ipv6,
    /// `generated` or `custom`.
    Checksum,
}

/// Values that Squall computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// The default.
    Default,
    /// Source and destination MAC address of a flow between devices.
    DeviceMac,
    GatewayMac,
    DeviceAddress,
    PeerAddress,
    /// EtherType of the next header.
    EtherType,
    /// IP protocol of the next header.
    Protocol,
    /// PPP protocol of the next header.
    PppProtocol,
    /// Length of this header in units of 4 octets.
    Words,
    /// Length of this header and the data after it, in octets.
    Length,
    /// Number of octets after the first N octets of the header.
    After(usize),
    /// UDP port assigned to the protocol in the payload.
    UdpPort,
    /// Bottom-of-stack bit: 1, or 0 if another label follows.
    Bottom,
}

/// Headers that need code in addition to the field table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Ethernet,
    Vlan,
    Mpls,
    Ipv4,
    Ipv6,
    Tcp,
    Udp,
    Icmp,
    Icmpv6,
    Igmp,
    Gre,
    Vxlan,
    Gtpv1,
    Gtpv2,
    Arp,
    Ppp,
    Pause,
}

/// Headers in the schema that are not supported.
pub(crate) const UNSUPPORTED: &[(&str, &str)] = &[
    ("snmpv2c", "try the octets of the message as custom"),
    ("rsvp", "try the octets of the message as custom"),
    ("macsec", "Squall does not encrypt frames"),
    ("lacp", "try the octets of the message as custom"),
    ("ipv6_extension_header", "try the octets of the header as custom, and next_header of ipv6"),
    ("cfm", "try the octets of the message as custom"),
];

pub(crate) static HEADERS: &[&Header] = &[
    &ETHERNET,
    &VLAN,
    &MPLS,
    &IPV4,
    &IPV6,
    &TCP,
    &UDP,
    &ICMP,
    &ICMPV6,
    &IGMPV1,
    &ARP,
    &GRE,
    &VXLAN,
    &GTPV1,
    &GTPV2,
    &PPP,
    &PFCPAUSE,
    &ETHERNETPAUSE,
];

const fn number(name: &'static str, bit: usize, bits: usize, default: u128) -> Field {
    Field {
        name,
        within: None,
        bit,
        bits,
        form: Form::Number,
        default,
        fill: Fill::Default,
        auto: false,
        random: false,
    }
}

const fn mac(name: &'static str, bit: usize, default: u128) -> Field {
    let mut field = number(name, bit, 48, default);
    field.form = Form::Mac;
    field
}

const fn ipv4(name: &'static str, bit: usize) -> Field {
    let mut field = number(name, bit, 32, 0);
    field.form = Form::Ipv4;
    field
}

const fn ipv6(name: &'static str, bit: usize) -> Field {
    let mut field = number(name, bit, 128, 0);
    field.form = Form::Ipv6;
    field
}

const fn checksum(name: &'static str, bit: usize) -> Field {
    let mut field = number(name, bit, 16, 0);
    field.form = Form::Checksum;
    field
}

impl Field {
    /// Computes the value if unset; the schema has no `auto`.
    const fn filled(mut self, fill: Fill) -> Self {
        self.fill = fill;
        self
    }

    /// Computes the value if unset, and for `auto`.
    const fn auto(mut self, fill: Fill) -> Self {
        self.fill = fill;
        self.auto = true;
        self
    }

    const fn random(mut self) -> Self {
        self.random = true;
        self
    }

    const fn within(mut self, choice: &'static str) -> Self {
        self.within = Some(choice);
        self
    }
}

const PAUSE_GROUP: u128 = 0x0180_c200_0001;

static ETHERNET: Header = Header {
    name: "ethernet",
    title: "Ethernet II",
    octets: 14,
    fields: &[
        mac("dst", 0, 0).auto(Fill::GatewayMac),
        mac("src", 48, 0).filled(Fill::DeviceMac),
        number("ether_type", 96, 16, 0xffff).auto(Fill::EtherType),
    ],
    choice: None,
    role: Role::Ethernet,
};

static VLAN: Header = Header {
    name: "vlan",
    title: "VLAN tag",
    octets: 4,
    fields: &[
        number("priority", 0, 3, 0),
        number("cfi", 3, 1, 0),
        number("id", 4, 12, 0),
        // 65535 is a placeholder for the EtherType of the next header.
        number("tpid", 16, 16, 0xffff).filled(Fill::EtherType),
    ],
    choice: None,
    role: Role::Vlan,
};

static MPLS: Header = Header {
    name: "mpls",
    title: "MPLS label",
    octets: 4,
    fields: &[
        number("label", 0, 20, 16).auto(Fill::Default),
        number("traffic_class", 20, 3, 0),
        number("bottom_of_stack", 23, 1, 1).auto(Fill::Bottom),
        number("time_to_live", 24, 8, 64),
    ],
    choice: None,
    role: Role::Mpls,
};

static IPV4: Header = Header {
    name: "ipv4",
    title: "IPv4",
    octets: 20,
    fields: &[
        number("version", 0, 4, 4),
        number("header_length", 4, 4, 5).auto(Fill::Words),
        number("priority.raw", 8, 8, 0).within("raw"),
        number("priority.tos.precedence", 8, 3, 0).within("tos"),
        number("priority.tos.delay", 11, 1, 0).within("tos"),
        number("priority.tos.throughput", 12, 1, 0).within("tos"),
        number("priority.tos.reliability", 13, 1, 0).within("tos"),
        number("priority.tos.monetary", 14, 1, 0).within("tos"),
        number("priority.tos.unused", 15, 1, 0).within("tos"),
        number("priority.dscp.phb", 8, 6, 0).within("dscp"),
        number("priority.dscp.ecn", 14, 2, 0).within("dscp"),
        number("total_length", 16, 16, 46).auto(Fill::Length),
        number("identification", 32, 16, 0),
        number("reserved", 48, 1, 0),
        number("dont_fragment", 49, 1, 0),
        number("more_fragments", 50, 1, 0),
        number("fragment_offset", 51, 13, 0),
        number("time_to_live", 64, 8, 64),
        number("protocol", 72, 8, 61).auto(Fill::Protocol),
        checksum("header_checksum", 80),
        ipv4("src", 96).auto(Fill::DeviceAddress).random(),
        ipv4("dst", 128).auto(Fill::PeerAddress).random(),
    ],
    choice: Some(Choice { at: "priority", of: &["raw", "tos", "dscp"], default: "dscp" }),
    role: Role::Ipv4,
};

static IPV6: Header = Header {
    name: "ipv6",
    title: "IPv6",
    octets: 40,
    fields: &[
        number("version", 0, 4, 6),
        number("traffic_class", 4, 8, 0),
        number("flow_label", 12, 20, 0).random(),
        number("payload_length", 32, 16, 0).auto(Fill::After(40)),
        number("next_header", 48, 8, 59).auto(Fill::Protocol),
        number("hop_limit", 56, 8, 64),
        ipv6("src", 64).auto(Fill::DeviceAddress),
        ipv6("dst", 192).auto(Fill::PeerAddress),
    ],
    choice: None,
    role: Role::Ipv6,
};

static TCP: Header = Header {
    name: "tcp",
    title: "TCP",
    octets: 20,
    fields: &[
        number("src_port", 0, 16, 0).random(),
        number("dst_port", 16, 16, 0).random(),
        number("seq_num", 32, 32, 0),
        number("ack_num", 64, 32, 0),
        number("data_offset", 96, 4, 0).filled(Fill::Words),
        number("ecn_ns", 103, 1, 0),
        number("ecn_cwr", 104, 1, 0),
        number("ecn_echo", 105, 1, 0),
        number("ctl_urg", 106, 1, 0),
        number("ctl_ack", 107, 1, 0),
        number("ctl_psh", 108, 1, 0),
        number("ctl_rst", 109, 1, 0),
        number("ctl_syn", 110, 1, 0),
        number("ctl_fin", 111, 1, 0),
        number("window", 112, 16, 0),
        checksum("checksum", 128),
    ],
    choice: None,
    role: Role::Tcp,
};

static UDP: Header = Header {
    name: "udp",
    title: "UDP",
    octets: 8,
    fields: &[
        number("src_port", 0, 16, 0).random(),
        number("dst_port", 16, 16, 0).filled(Fill::UdpPort).random(),
        number("length", 32, 16, 0).filled(Fill::Length),
        checksum("checksum", 48),
    ],
    choice: None,
    role: Role::Udp,
};

static ICMP: Header = Header {
    name: "icmp",
    title: "ICMP",
    octets: 8,
    fields: &[
        number("echo.type", 0, 8, 8).within("echo"),
        number("echo.code", 8, 8, 0).within("echo"),
        checksum("echo.checksum", 16).within("echo"),
        number("echo.identifier", 32, 16, 0).within("echo"),
        number("echo.sequence_number", 48, 16, 0).within("echo"),
    ],
    choice: Some(Choice { at: "", of: &["echo"], default: "echo" }),
    role: Role::Icmp,
};

static ICMPV6: Header = Header {
    name: "icmpv6",
    title: "ICMPv6",
    octets: 8,
    fields: &[
        number("echo.type", 0, 8, 128).within("echo"),
        number("echo.code", 8, 8, 0).within("echo"),
        checksum("echo.checksum", 16).within("echo"),
        number("echo.identifier", 32, 16, 0).within("echo"),
        number("echo.sequence_number", 48, 16, 0).within("echo"),
    ],
    choice: Some(Choice { at: "", of: &["echo"], default: "echo" }),
    role: Role::Icmpv6,
};

static IGMPV1: Header = Header {
    name: "igmpv1",
    title: "IGMPv1",
    octets: 8,
    fields: &[
        number("version", 0, 4, 1),
        number("type", 4, 4, 1),
        number("unused", 8, 8, 0),
        checksum("checksum", 16),
        ipv4("group_address", 32),
    ],
    choice: None,
    role: Role::Igmp,
};

static ARP: Header = Header {
    name: "arp",
    title: "ARP",
    octets: 28,
    fields: &[
        number("hardware_type", 0, 16, 1),
        number("protocol_type", 16, 16, 0x0800),
        number("hardware_length", 32, 8, 6),
        number("protocol_length", 40, 8, 4),
        number("operation", 48, 16, 1),
        mac("sender_hardware_addr", 64, 0),
        ipv4("sender_protocol_addr", 112),
        mac("target_hardware_addr", 144, 0),
        ipv4("target_protocol_addr", 192),
    ],
    choice: None,
    role: Role::Arp,
};

static GRE: Header = Header {
    name: "gre",
    title: "GRE; with checksum_present the checksum and reserved1 follow",
    octets: 4,
    fields: &[
        number("checksum_present", 0, 1, 0),
        number("reserved0", 1, 12, 0),
        number("version", 13, 3, 0),
        number("protocol", 16, 16, 0x0800).auto(Fill::EtherType),
        checksum("checksum", 32),
        number("reserved1", 48, 16, 0),
    ],
    choice: None,
    role: Role::Gre,
};

static VXLAN: Header = Header {
    name: "vxlan",
    title: "VXLAN",
    octets: 8,
    fields: &[
        number("flags", 0, 8, 8),
        number("reserved0", 8, 24, 0),
        number("vni", 32, 24, 0).auto(Fill::Default),
        number("reserved1", 56, 8, 0),
    ],
    choice: None,
    role: Role::Vxlan,
};

static GTPV1: Header = Header {
    name: "gtpv1",
    title: "GTPv1; with any of the three flags the last three fields follow",
    octets: 8,
    fields: &[
        number("version", 0, 3, 1),
        number("protocol_type", 3, 1, 1),
        number("reserved", 4, 1, 0),
        number("e_flag", 5, 1, 0),
        number("s_flag", 6, 1, 0),
        number("pn_flag", 7, 1, 0),
        number("message_type", 8, 8, 0),
        number("message_length", 16, 16, 0).filled(Fill::After(8)),
        number("teid", 32, 32, 0),
        number("squence_number", 64, 16, 0),
        number("n_pdu_number", 80, 8, 0),
        number("next_extension_header_type", 88, 8, 0),
    ],
    choice: None,
    role: Role::Gtpv1,
};

static GTPV2: Header = Header {
    name: "gtpv2",
    title: "GTPv2; without teid_flag there is no teid",
    octets: 12,
    fields: &[
        number("version", 0, 3, 2),
        number("piggybacking_flag", 3, 1, 0),
        number("teid_flag", 4, 1, 0),
        number("spare1", 5, 3, 0),
        number("message_type", 8, 8, 0),
        number("message_length", 16, 16, 0).filled(Fill::After(4)),
        number("teid", 32, 32, 0),
        number("sequence_number", 64, 24, 0),
        number("spare2", 88, 8, 0),
    ],
    choice: None,
    role: Role::Gtpv2,
};

static PPP: Header = Header {
    name: "ppp",
    title: "PPP in HDLC-like framing",
    octets: 4,
    fields: &[
        number("address", 0, 8, 255),
        number("control", 8, 8, 3),
        number("protocol_type", 16, 16, 33).auto(Fill::PppProtocol),
    ],
    choice: None,
    role: Role::Ppp,
};

static PFCPAUSE: Header = Header {
    name: "pfcpause",
    title: "Priority flow control, with its Ethernet header",
    octets: 34,
    fields: &[
        mac("dst", 0, PAUSE_GROUP),
        mac("src", 48, 0),
        number("ether_type", 96, 16, 0x8808),
        number("control_op_code", 112, 16, 0x0101),
        number("class_enable_vector", 128, 16, 0),
        number("pause_class_0", 144, 16, 0),
        number("pause_class_1", 160, 16, 0),
        number("pause_class_2", 176, 16, 0),
        number("pause_class_3", 192, 16, 0),
        number("pause_class_4", 208, 16, 0),
        number("pause_class_5", 224, 16, 0),
        number("pause_class_6", 240, 16, 0),
        number("pause_class_7", 256, 16, 0),
    ],
    choice: None,
    role: Role::Pause,
};

static ETHERNETPAUSE: Header = Header {
    name: "ethernetpause",
    title: "Pause, with its Ethernet header",
    octets: 18,
    fields: &[
        mac("dst", 0, PAUSE_GROUP),
        mac("src", 48, 0),
        number("ether_type", 96, 16, 0x8808),
        number("control_op_code", 112, 16, 1),
        number("time", 128, 16, 0),
    ],
    choice: None,
    role: Role::Pause,
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of different choices are alternatives and may overlap.
    #[test]
    fn fields_of_a_header_do_not_overlap_and_defaults_fit() {
        for header in HEADERS {
            for (i, a) in header.fields.iter().enumerate() {
                assert!(a.bits == 128 || a.default >> a.bits == 0, "{}.{}", header.name, a.name);
                for b in &header.fields[..i] {
                    let together = a.within == b.within || a.within.is_none() || b.within.is_none();
                    let disjoint = a.bit + a.bits <= b.bit || b.bit + b.bits <= a.bit;
                    assert!(!together || disjoint, "{}: {} and {}", header.name, a.name, b.name);
                }
            }
        }
    }

    #[test]
    fn without_optional_fields_each_header_is_as_long_as_it_says() {
        for header in HEADERS.iter().filter(|h| !matches!(h.role, Role::Gre | Role::Gtpv1)) {
            let end = header.fields.iter().map(|f| f.bit + f.bits).max();
            // The schema has no urgent pointer.
            let unnamed = if header.role == Role::Tcp { 16 } else { 0 };
            assert_eq!(end, Some(header.octets * 8 - unnamed), "{}", header.name);
        }
    }
}
