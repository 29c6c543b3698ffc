//! The rows of the table of headers.

use crate::{
    header::{Extent, FieldDef, FieldKind, FieldKind::*, HeaderDef, PLAIN, Presence, Proto, Space},
    options::{OptionDef, OptionForm, OptionSet, Part, U8, U16, U32},
    plain,
};

pub(crate) static HEADERS: &[&HeaderDef] = &[
    &ETH,
    &VLAN,
    &MPLS,
    &ARP,
    &IPV4,
    &IPV6,
    &HOPOPTS,
    &DSTOPTS,
    &ROUTING,
    &FRAGMENT,
    &GRE,
    &VXLAN,
    &GTPU,
    &UDP,
    &TCP,
    &ICMP,
    &ICMPV6,
    &IGMP,
    &plain::ESP,
    &plain::AH,
    &plain::PPPOE,
    &plain::PPPOED,
    &plain::PPP,
    &plain::LCP,
    &plain::IPCP,
    &plain::GENEVE,
    &plain::GPE,
    &plain::NSH,
    &plain::ERSPAN,
    &plain::ERSPAN3,
    &plain::L2TP,
    &plain::L2TP_CONTROL,
    &plain::MACSEC,
    &plain::LLC,
    &plain::DOT3,
    &plain::SNAP,
    &plain::STP,
    &plain::ISIS_HELLO,
    &plain::ISIS_P2P_HELLO,
    &plain::LACP,
    &plain::MACCTL,
    &plain::PAUSE,
    &plain::PFC,
    &plain::BFD,
    &plain::VRRP,
    &plain::VRRP3,
    &plain::OSPF,
    &plain::OSPF_HELLO,
    &plain::RSVP,
    &plain::NTP,
    &plain::RTP,
    &plain::BTH,
    &plain::RETH,
    &plain::AETH,
    &plain::CNP,
    &plain::SCTP,
    &plain::SCTP_DATA,
    &plain::SCTP_INIT,
    &plain::SCTP_SACK,
    &plain::SCTP_CHUNK,
    &plain::CFM,
    &plain::CCM,
    &plain::GTP2,
    &plain::PDU_SESSION,
    &plain::GTP_EXT,
    &plain::CAPWAP,
    &plain::DNS,
    &plain::IGMP3_QUERY,
    &plain::MLD2_QUERY,
    &plain::DHCP,
    &plain::DHCP6,
    &plain::LLDP,
];

pub(crate) static PAYLOADS: &[&HeaderDef] = &[
    &TEXT, &HTTP, &SIP, &MQTT, &SNMP, &HEX, &PATTERN, &RANDOM, &ZEROS, &INC, &FILE, &RAW, &TRUNCATE,
];

pub(crate) const MAC_1: u128 = 0x0200_0000_0001;
pub(crate) const MAC_2: u128 = 0x0200_0000_0002;
/// Ranges for benchmarking: 198.18.0.0/15 (RFC 2544) and 2001:2::/48 (RFC 5180).
const IP_1: u128 = 0xc612_0001;
const IP_2: u128 = 0xc613_0001;
const IP6_1: u128 = 0x2001_0002 << 96 | 1;
const IP6_2: u128 = 0x2001_0002 << 96 | 2;
/// For local experiments (IEEE 802) and for experiments (RFC 3692): the numbers of payload that has
/// no number of its own.
const ETHERTYPE_TEST: u128 = 0x88b5;
const PROTOCOL_TEST: u128 = 253;

pub(crate) const NUMBER: FieldKind = Number(&[]);

/// TPIDs of 802.1Q and 802.1ad.
pub(crate) const TPID_C: u64 = 0x8100;
pub(crate) const TPID_S: u64 = 0x88a8;

pub(crate) const ETHERTYPES: &[(&str, u64)] = &[
    ("ipv4", 0x0800),
    ("arp", 0x0806),
    ("vlan", TPID_C),
    ("ipv6", 0x86dd),
    ("mpls", 0x8847),
    ("pause", 0x8808),
    ("lacp", 0x8809),
    ("eapol", 0x888e),
    ("qinq", TPID_S),
    ("lldp", 0x88cc),
    ("ptp", 0x88f7),
    ("loop", 0x9000),
];

const GRE_TYPES: &[(&str, u64)] = &[
    ("ipv4", 0x0800),
    ("arp", 0x0806),
    ("eth", 0x6558),
    ("ipv6", 0x86dd),
    ("mpls", 0x8847),
    ("erspan", 0x88be),
    ("erspan3", 0x22eb),
];

const PROTOCOLS: &[(&str, u64)] = &[
    ("hopopts", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ipv4", 4),
    ("tcp", 6),
    ("udp", 17),
    ("ipv6", 41),
    ("routing", 43),
    ("fragment", 44),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("none", 59),
    ("dstopts", 60),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("sctp", 132),
    ("mpls", 137),
];

const DSCP: &[(&str, u64)] = &[
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

const ECN: &[(&str, u64)] = &[("not-ect", 0), ("ect1", 1), ("ect0", 2), ("ce", 3)];

pub(crate) const fn field(
    name: &'static str,
    aliases: &'static [&'static str],
    bit: usize,
    bits: usize,
    kind: FieldKind,
    doc: &'static str,
) -> FieldDef {
    FieldDef {
        name,
        aliases,
        bit,
        bits,
        kind,
        default: 0,
        presence: Presence::Always,
        unit: "",
        doc,
    }
}

impl FieldDef {
    pub(crate) const fn or(mut self, default: u128) -> Self {
        self.default = default;
        self
    }

    pub(crate) const fn counts(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    pub(crate) const fn when(mut self, presence: Presence) -> Self {
        self.presence = presence;
        self
    }
}

pub(crate) const fn option(
    name: &'static str,
    code: u16,
    form: OptionForm,
    doc: &'static str,
) -> OptionDef {
    OptionDef { name, code, form, doc, counted_in: "" }
}

impl OptionDef {
    pub(crate) const fn counted(mut self, field: &'static str) -> Self {
        self.counted_in = field;
        self
    }
}

const fn options(
    set: OptionSet,
    name: &'static str,
    aliases: &'static [&'static str],
    doc: &'static str,
) -> FieldDef {
    field(name, aliases, 0, 0, Options(set), doc)
}

pub(crate) static ETH: HeaderDef = HeaderDef {
    name: "eth",
    aliases: &["ether", "ethernet", "mac"],
    title: "Ethernet II (IEEE 802.3)",
    min_len: 14,
    fields: &[
        field("dst", &["da", "dst_mac"], 0, 48, Mac, "Destination").or(MAC_2),
        field("src", &["sa", "src_mac"], 48, 48, Mac, "Source").or(MAC_1),
        field("type", &["ethertype", "ether_type"], 96, 16, Next(ETHERTYPES), "EtherType")
            .or(ETHERTYPE_TEST),
    ],
    carries: &["vlan", "mpls", "arp", "ipv4", "ipv6"],
    proto: Proto::Eth,
    chosen_by: &[(Space::Link, 0)],
    chooses: Some(Space::EtherType),
    ..PLAIN
};

static VLAN: HeaderDef = HeaderDef {
    name: "vlan",
    aliases: &["dot1q", "qinq", "dot1ad"],
    title: "VLAN tag (IEEE 802.1Q, 802.1ad)",
    min_len: 4,
    fields: &[
        field(
            "tpid",
            &[],
            0,
            16,
            Number(&[("dot1q", TPID_C), ("dot1ad", TPID_S)]),
            "EtherType before the tag; dot1ad if another tag follows directly",
        )
        .or(TPID_C as u128)
        .when(Presence::Before),
        field("pcp", &["prio", "priority", "cos"], 0, 3, NUMBER, "Priority code point"),
        field("dei", &["cfi"], 3, 1, NUMBER, "Drop eligible"),
        field("id", &["vid", "vlan", "vlan_id"], 4, 12, NUMBER, "VLAN").or(1),
        field(
            "type",
            &["ethertype", "ether_type"],
            16,
            16,
            Next(ETHERTYPES),
            "EtherType of what follows",
        )
        .or(ETHERTYPE_TEST),
    ],
    carries: &["vlan", "mpls", "arp", "ipv4", "ipv6"],
    proto: Proto::Vlan,
    chooses: Some(Space::EtherType),
    ..PLAIN
};

static MPLS: HeaderDef = HeaderDef {
    name: "mpls",
    aliases: &[],
    title: "MPLS label (RFC 3032)",
    min_len: 4,
    fields: &[
        field("label", &[], 0, 20, NUMBER, "Label").or(16),
        field("tc", &["exp", "cos"], 20, 3, NUMBER, "Traffic class"),
        field(
            "s",
            &["bos", "bottom"],
            23,
            1,
            Length,
            "Bottom of stack; 1 unless another label follows",
        ),
        field("ttl", &[], 24, 8, NUMBER, "Time to live").or(64).counts("hops"),
    ],
    carries: &["mpls", "ipv4", "ipv6", "eth"],
    proto: Proto::Mpls,
    ..PLAIN
};

static ARP: HeaderDef = HeaderDef {
    name: "arp",
    aliases: &[],
    title: "Address Resolution Protocol for IPv4 over Ethernet (RFC 826)",
    min_len: 28,
    fields: &[
        field("htype", &["hwtype"], 0, 16, NUMBER, "Hardware type; 1 is Ethernet").or(1),
        field("ptype", &[], 16, 16, Number(&[("ipv4", 0x0800)]), "Protocol type").or(0x0800),
        field("hlen", &["hwlen"], 32, 8, NUMBER, "Octets of a hardware address")
            .or(6)
            .counts("octets"),
        field("plen", &[], 40, 8, NUMBER, "Octets of a protocol address").or(4).counts("octets"),
        field(
            "op",
            &["oper", "operation"],
            48,
            16,
            Number(&[("request", 1), ("reply", 2)]),
            "Operation",
        )
        .or(1),
        field("sha", &["hwsrc"], 64, 48, Mac, "Sender's hardware address").or(MAC_1),
        field("spa", &["psrc"], 112, 32, Ipv4, "Sender's protocol address").or(IP_1),
        field("tha", &["hwdst"], 144, 48, Mac, "Target's hardware address"),
        field("tpa", &["pdst"], 192, 32, Ipv4, "Target's protocol address").or(IP_2),
    ],
    carries: &[],
    proto: Proto::Arp,
    ..PLAIN
};

static IPV4: HeaderDef = HeaderDef {
    name: "ipv4",
    aliases: &["ip", "ip4"],
    title: "Internet Protocol version 4 (RFC 791)",
    min_len: 20,
    fields: &[
        field("version", &["ver"], 0, 4, NUMBER, "Version").or(4),
        field("ihl", &["hdr_len"], 4, 4, Length, "Header length in units of 4 octets")
            .counts("4 octets"),
        field("tos", &[], 8, 8, NUMBER, "DSCP and ECN together"),
        field("dscp", &[], 8, 6, Number(DSCP), "Differentiated services (RFC 2474)"),
        field("ecn", &[], 14, 2, Number(ECN), "Explicit congestion notification (RFC 3168)"),
        field(
            "length",
            &["len", "total_length", "total_len"],
            16,
            16,
            Length,
            "Octets of header and payload",
        )
        .counts("octets"),
        field("id", &["identification"], 32, 16, NUMBER, "Identification"),
        field(
            "flags",
            &[],
            48,
            3,
            Flags(&[("R", 4), ("DF", 2), ("MF", 1), ("evil", 4)]),
            "Fragmentation flags",
        ),
        field(
            "frag",
            &["offset", "fragment_offset"],
            51,
            13,
            NUMBER,
            "Fragment offset in units of 8 octets",
        )
        .counts("8 octets"),
        field("ttl", &[], 64, 8, NUMBER, "Time to live").or(64).counts("hops"),
        field("protocol", &["proto"], 72, 8, Next(PROTOCOLS), "Protocol of what follows")
            .or(PROTOCOL_TEST),
        field("checksum", &["chksum", "csum"], 80, 16, Checksum, "Over the header"),
        field("src", &["src_ip", "saddr"], 96, 32, Ipv4, "Source").or(IP_1),
        field("dst", &["dst_ip", "daddr"], 128, 32, Ipv4, "Destination").or(IP_2),
        options(OptionSet::Ipv4, "options", &["opts"], "Options, padded with zeros to 4 octets"),
    ],
    carries: &["icmp", "igmp", "ipv4", "tcp", "udp", "ipv6", "gre", "icmpv6", "mpls"],
    proto: Proto::Ipv4,
    chosen_by: &[(Space::Ip, 4)],
    chooses: Some(Space::Ip),
    ..PLAIN
};

static IPV6: HeaderDef = HeaderDef {
    name: "ipv6",
    aliases: &["ip6"],
    title: "Internet Protocol version 6 (RFC 8200)",
    min_len: 40,
    fields: &[
        field("version", &["ver"], 0, 4, NUMBER, "Version").or(6),
        field(
            "tc",
            &["traffic_class", "tos"],
            4,
            8,
            NUMBER,
            "Traffic class: DSCP and ECN together",
        ),
        field("dscp", &[], 4, 6, Number(DSCP), "Differentiated services (RFC 2474)"),
        field("ecn", &[], 10, 2, Number(ECN), "Explicit congestion notification (RFC 3168)"),
        field("flow_label", &["fl", "flow"], 12, 20, NUMBER, "Flow label"),
        field(
            "length",
            &["plen", "len", "payload_length"],
            32,
            16,
            Length,
            "Octets after this header",
        )
        .counts("octets"),
        field(
            "next",
            &["nh", "next_header", "protocol", "proto"],
            48,
            8,
            Next(PROTOCOLS),
            "Next header",
        )
        .or(PROTOCOL_TEST),
        field("hop_limit", &["hlim", "hops", "ttl"], 56, 8, NUMBER, "Hop limit")
            .or(64)
            .counts("hops"),
        field("src", &["src_ip", "saddr"], 64, 128, Ipv6, "Source").or(IP6_1),
        field("dst", &["dst_ip", "daddr"], 192, 128, Ipv6, "Destination").or(IP6_2),
    ],
    carries: AFTER_IPV6,
    proto: Proto::Ipv6,
    chosen_by: &[(Space::Ip, 41)],
    chooses: Some(Space::Ip),
    ..PLAIN
};

const AFTER_IPV6: &[&str] = &[
    "hopopts", "dstopts", "routing", "fragment", "ipv4", "tcp", "udp", "ipv6", "gre", "icmpv6",
    "icmp", "igmp", "mpls",
];

const NEXT: FieldDef =
    field("next", &["nh", "next_header"], 0, 8, Next(PROTOCOLS), "Next header").or(PROTOCOL_TEST);
const EXT_LEN: FieldDef = field(
    "length",
    &["len", "hdr_ext_len"],
    8,
    8,
    Length,
    "Header length in units of 8 octets, minus 1",
)
.counts("8 octets");

static HOPOPTS: HeaderDef = HeaderDef {
    name: "hopopts",
    aliases: &["hop_by_hop", "hbh"],
    title: "IPv6 hop-by-hop options (RFC 8200 §4.3)",
    min_len: 2,
    fields: &[
        NEXT,
        EXT_LEN,
        options(OptionSet::Ipv6, "options", &["opts"], "Options, padded to 8 octets"),
    ],
    carries: AFTER_IPV6,
    proto: Proto::HopOpts,
    chooses: Some(Space::Ip),
    ..PLAIN
};

static DSTOPTS: HeaderDef = HeaderDef {
    name: "dstopts",
    aliases: &["destopts", "dst_opts"],
    title: "IPv6 destination options (RFC 8200 §4.6)",
    min_len: 2,
    fields: &[
        NEXT,
        EXT_LEN,
        options(OptionSet::Ipv6, "options", &["opts"], "Options, padded to 8 octets"),
    ],
    carries: AFTER_IPV6,
    proto: Proto::DstOpts,
    chooses: Some(Space::Ip),
    ..PLAIN
};

static ROUTING: HeaderDef = HeaderDef {
    name: "routing",
    aliases: &["rh", "srh"],
    title: "IPv6 routing header, as used by segment routing (RFC 8200 §4.4, RFC 8754)",
    min_len: 8,
    fields: &[
        NEXT,
        EXT_LEN,
        field(
            "type",
            &[],
            16,
            8,
            Number(&[("rh0", 0), ("rh2", 2), ("rpl", 3), ("srh", 4)]),
            "Routing type",
        )
        .or(4),
        field(
            "segments_left",
            &["segleft", "sl"],
            24,
            8,
            NUMBER,
            "Addresses still to visit; above 0, checksums use the final destination",
        ),
        field(
            "last_entry",
            &["last"],
            32,
            8,
            Length,
            "Index of the last address of an srh; 0 in other types",
        ),
        field("flags", &[], 40, 8, NUMBER, "Flags"),
        field("tag", &[], 48, 16, NUMBER, "Tag"),
        options(
            OptionSet::Addresses,
            "addresses",
            &["addrs", "segments"],
            "Addresses, in the order of the header",
        ),
    ],
    carries: AFTER_IPV6,
    proto: Proto::Routing,
    chooses: Some(Space::Ip),
    ..PLAIN
};

static FRAGMENT: HeaderDef = HeaderDef {
    name: "fragment",
    aliases: &["frag"],
    title: "IPv6 fragment header (RFC 8200 §4.5)",
    min_len: 8,
    fields: &[
        NEXT,
        field("reserved", &[], 8, 8, NUMBER, "Reserved"),
        field("offset", &[], 16, 13, NUMBER, "Fragment offset in units of 8 octets")
            .counts("8 octets"),
        field("m", &["more"], 31, 1, NUMBER, "More fragments follow"),
        field("id", &["identification"], 32, 32, NUMBER, "Identification"),
    ],
    carries: AFTER_IPV6,
    proto: Proto::Fragment,
    chooses: Some(Space::Ip),
    ..PLAIN
};

static GRE: HeaderDef = HeaderDef {
    name: "gre",
    aliases: &["nvgre"],
    title: "Generic Routing Encapsulation (RFC 2784, RFC 2890)",
    min_len: 4,
    fields: &[
        field(
            "c",
            &["chksum_present"],
            0,
            1,
            NUMBER,
            "The checksum is present; 1 if checksum is set, even to auto",
        ),
        field("k", &["key_present"], 2, 1, NUMBER, "The key is present; 1 if it is set"),
        field(
            "s",
            &["seqnum_present"],
            3,
            1,
            NUMBER,
            "The sequence number is present; 1 if it is set, and before erspan",
        ),
        field("version", &["ver"], 13, 3, NUMBER, "Version"),
        field("type", &["proto", "protocol"], 16, 16, Next(GRE_TYPES), "Protocol of what follows")
            .or(ETHERTYPE_TEST),
        field("checksum", &["chksum", "csum"], 0, 16, Checksum, "Over header and payload")
            .when(GRE_C),
        field("reserved1", &["offset"], 0, 16, NUMBER, "Reserved").when(GRE_C),
        field("key", &[], 0, 32, NUMBER, "Key").when(Presence::Flag { mask: 0x20, sets: 0x20 }),
        field("seq", &["sequence", "seqnum"], 0, 32, NUMBER, "Sequence number")
            .when(Presence::Flag { mask: 0x10, sets: 0x10 }),
    ],
    carries: &["ipv4", "arp", "eth", "ipv6", "mpls", "erspan", "erspan3"],
    proto: Proto::Gre,
    chosen_by: &[(Space::Ip, 47)],
    chooses: Some(Space::EtherType),
    ..PLAIN
};

const GRE_C: Presence = Presence::Flag { mask: 0x80, sets: 0x80 };

static VXLAN: HeaderDef = HeaderDef {
    name: "vxlan",
    aliases: &[],
    title: "Virtual eXtensible LAN (RFC 7348)",
    min_len: 8,
    fields: &[
        field("flags", &[], 0, 8, Flags(&[("I", 8)]), "I: the VNI is valid").or(8),
        field("vni", &["id"], 32, 24, NUMBER, "Network identifier").or(1),
    ],
    carries: &["eth"],
    proto: Proto::Vxlan,
    ..PLAIN
};

static GTPU: HeaderDef = HeaderDef {
    name: "gtpu",
    aliases: &["gtp", "gtp_u"],
    title: "GPRS tunneling protocol, user plane (3GPP TS 29.281)",
    min_len: 8,
    fields: &[
        field("version", &["ver"], 0, 3, NUMBER, "Version").or(1),
        field("pt", &[], 3, 1, NUMBER, "Protocol type").or(1),
        field("e", &[], 5, 1, NUMBER, "An extension header follows; 1 if next_ext is set"),
        field("s", &[], 6, 1, NUMBER, "The sequence number is valid; 1 if it is set"),
        field("pn", &[], 7, 1, NUMBER, "The N-PDU number is valid; 1 if it is set"),
        field(
            "type",
            &["gtp_type", "message"],
            8,
            8,
            Number(&[("gpdu", 255), ("echo", 1)]),
            "Message type",
        )
        .or(255),
        field("length", &["len"], 16, 16, Length, "Octets after the first 8").counts("octets"),
        field("teid", &[], 32, 32, NUMBER, "Tunnel endpoint identifier").or(1),
        field("seq", &["sequence"], 0, 16, NUMBER, "Sequence number")
            .when(Presence::Flag { mask: 7, sets: 2 }),
        field("npdu", &[], 0, 8, NUMBER, "N-PDU number").when(Presence::Flag { mask: 7, sets: 1 }),
        field(
            "next_ext",
            &["next_ex"],
            0,
            8,
            Next(&[]),
            "Type of the extension header that follows",
        )
        .when(Presence::Flag { mask: 7, sets: 4 }),
    ],
    carries: &["ipv4", "ipv6"],
    chooses: Some(Space::GtpExtension),
    proto: Proto::Gtpu,
    ..PLAIN
};

const SPORT: FieldDef =
    field("sport", &["src_port", "srcport"], 0, 16, NUMBER, "Source port").or(49184);

static UDP: HeaderDef = HeaderDef {
    name: "udp",
    aliases: &[],
    title: "User Datagram Protocol (RFC 768)",
    min_len: 8,
    fields: &[
        SPORT,
        field(
            "dport",
            &["dst_port", "dstport"],
            16,
            16,
            Next(&[("vxlan", 4789), ("gtpu", 2152)]),
            "Destination port; 4789 before vxlan, 2152 before gtpu",
        )
        .or(9),
        field("length", &["len"], 32, 16, Length, "Octets of header and payload").counts("octets"),
        field(
            "checksum",
            &["chksum", "csum"],
            48,
            16,
            Checksum,
            "Over pseudo-header, header and payload; 0 before vxlan and gtpu over IPv4, unless \
             auto",
        ),
    ],
    carries: &["vxlan", "gtpu", "rtp"],
    proto: Proto::Udp,
    chosen_by: &[(Space::Ip, 17)],
    chooses: Some(Space::Udp),
    ..PLAIN
};

const TCP_FLAGS: &[(&str, u64)] = &[
    ("F", 1),
    ("S", 2),
    ("R", 4),
    ("P", 8),
    ("A", 16),
    ("U", 32),
    ("E", 64),
    ("C", 128),
    ("N", 256),
    ("fin", 1),
    ("syn", 2),
    ("rst", 4),
    ("psh", 8),
    ("ack", 16),
    ("urg", 32),
    ("ece", 64),
    ("cwr", 128),
    ("ns", 256),
];

static TCP: HeaderDef = HeaderDef {
    name: "tcp",
    aliases: &[],
    title: "Transmission Control Protocol (RFC 9293)",
    min_len: 20,
    fields: &[
        SPORT,
        field("dport", &["dst_port", "dstport"], 16, 16, NUMBER, "Destination port").or(9),
        field("seq", &["sequence"], 32, 32, NUMBER, "Sequence number"),
        field("ack", &["ackno", "acknowledgment"], 64, 32, NUMBER, "Acknowledgment number"),
        field(
            "data_offset",
            &["dataofs", "offset", "doff"],
            96,
            4,
            Length,
            "Header length in units of 4 octets",
        )
        .counts("4 octets"),
        field("reserved", &[], 100, 3, NUMBER, "Reserved"),
        field("flags", &[], 103, 9, Flags(TCP_FLAGS), "Flags").or(2),
        field("window", &["win"], 112, 16, NUMBER, "Window").or(8192).counts("octets"),
        field(
            "checksum",
            &["chksum", "csum"],
            128,
            16,
            Checksum,
            "Over pseudo-header, header and payload",
        ),
        field("urgent", &["urgptr", "urg"], 144, 16, NUMBER, "Urgent pointer"),
        options(OptionSet::Tcp, "options", &["opts"], "Options, padded with zeros to 4 octets"),
    ],
    carries: &[],
    proto: Proto::Tcp,
    chosen_by: &[(Space::Ip, 6)],
    ..PLAIN
};

static ICMP: HeaderDef = HeaderDef {
    name: "icmp",
    aliases: &["icmpv4"],
    title: "Internet Control Message Protocol (RFC 792)",
    min_len: 8,
    fields: &[
        field(
            "type",
            &[],
            0,
            8,
            Number(&[
                ("echo-reply", 0),
                ("unreachable", 3),
                ("redirect", 5),
                ("echo-request", 8),
                ("time-exceeded", 11),
                ("parameter-problem", 12),
            ]),
            "Type",
        )
        .or(8),
        field("code", &[], 8, 8, NUMBER, "Code"),
        field("checksum", &["chksum", "csum"], 16, 16, Checksum, "Over header and payload"),
        field("id", &["identifier"], 32, 16, NUMBER, "Identifier of an echo"),
        field("seq", &["sequence"], 48, 16, NUMBER, "Sequence number of an echo"),
        field("rest", &["unused"], 32, 32, NUMBER, "The second 4 octets as one number"),
        field("pointer", &["ptr"], 32, 8, NUMBER, "Pointer of a parameter problem"),
        field(
            "mtu",
            &["nexthopmtu"],
            48,
            16,
            NUMBER,
            "MTU of the next hop, if fragmentation is needed (RFC 1191)",
        )
        .counts("octets"),
        field("gateway", &["gw"], 32, 32, Ipv4, "Gateway of a redirect"),
    ],
    carries: &["ipv4"],
    proto: Proto::Icmp,
    chosen_by: &[(Space::Ip, 1)],
    ..PLAIN
};

static ICMPV6: HeaderDef = HeaderDef {
    name: "icmpv6",
    aliases: &["icmp6"],
    title: "ICMP for IPv6 (RFC 4443), neighbor discovery (RFC 4861), MLD (RFC 2710, RFC 3810)",
    min_len: 8,
    fields: &[
        field(
            "type",
            &[],
            0,
            8,
            Number(&[
                ("unreachable", 1),
                ("packet-too-big", 2),
                ("time-exceeded", 3),
                ("parameter-problem", 4),
                ("echo-request", 128),
                ("echo-reply", 129),
                ("mld-query", 130),
                ("mld-report", 131),
                ("mld-done", 132),
                ("router-solicit", 133),
                ("router-advert", 134),
                ("neighbor-solicit", 135),
                ("neighbor-advert", 136),
                ("redirect", 137),
                ("mld2-report", 143),
            ]),
            "Type; neighbor-solicit if target is set",
        )
        .or(128),
        field("code", &[], 8, 8, NUMBER, "Code"),
        field(
            "checksum",
            &["chksum", "csum", "cksum"],
            16,
            16,
            Checksum,
            "Over pseudo-header, header and payload",
        ),
        field("id", &["identifier"], 32, 16, NUMBER, "Identifier of an echo"),
        field("seq", &["sequence"], 48, 16, NUMBER, "Sequence number of an echo"),
        field("rest", &["unused"], 32, 32, NUMBER, "The second 4 octets as one number"),
        field("mtu", &[], 32, 32, NUMBER, "MTU of a packet too big").counts("octets"),
        field("pointer", &["ptr"], 32, 32, NUMBER, "Pointer of a parameter problem"),
        field(
            "flags",
            &[],
            32,
            3,
            Flags(&[("R", 4), ("S", 2), ("O", 1)]),
            "Flags of a neighbor advertisement",
        ),
        field(
            "max_delay",
            &["max_resp"],
            32,
            16,
            NUMBER,
            "Maximum response delay of an MLD query, ms",
        )
        .counts("ms"),
        field(
            "target",
            &["tgt", "group"],
            0,
            128,
            Ipv6,
            "Target of neighbor discovery, group of MLD",
        )
        .when(Presence::FirstOctet(&[135, 130, 131, 132, 136, 137])),
        field("destination", &[], 0, 128, Ipv6, "Destination of a redirect")
            .when(Presence::FirstOctet(&[137])),
        field(
            "reachable",
            &["reachabletime"],
            0,
            32,
            NUMBER,
            "Reachable time of a router advertisement",
        )
        .counts("ms")
        .when(Presence::FirstOctet(&[134])),
        field(
            "retrans",
            &["retranstimer"],
            0,
            32,
            NUMBER,
            "Retransmission timer of a router advertisement",
        )
        .counts("ms")
        .when(Presence::FirstOctet(&[134])),
        field("count", &[], 48, 16, Length, "Number of records of an MLDv2 report"),
        options(
            OptionSet::Tlv(&plain::ND_OPTIONS),
            "options",
            &["opts"],
            "Options of neighbor discovery",
        )
        .when(Presence::FirstOctet(&[135, 133, 134, 136, 137])),
        options(
            OptionSet::Tlv(&plain::MLD_RECORDS),
            "records",
            &[],
            "Records of an MLDv2 report (RFC 3810); the type is mld2-report if they are set",
        )
        .when(Presence::FirstOctet(&[143])),
    ],
    carries: &["ipv6", "mld2_query"],
    extent: Extent::List,
    proto: Proto::Icmpv6,
    chosen_by: &[(Space::Ip, 58)],
    ..PLAIN
};

static IGMP: HeaderDef = HeaderDef {
    name: "igmp",
    aliases: &[],
    title: "Internet Group Management Protocol (RFC 2236), with reports of version 3 (RFC 3376)",
    min_len: 8,
    fields: &[
        field(
            "type",
            &[],
            0,
            8,
            Number(&[
                ("query", 0x11),
                ("v1-report", 0x12),
                ("report", 0x16),
                ("leave", 0x17),
                ("v3-report", 0x22),
            ]),
            "Type",
        )
        .or(0x16),
        field("max_resp", &["mrcode", "mrtime"], 8, 8, NUMBER, "Maximum response time, 0.1 s")
            .counts("0.1 s"),
        field("checksum", &["chksum", "csum"], 16, 16, Checksum, "Over header and payload"),
        field("group", &["gaddr", "grp"], 32, 32, Ipv4, "Group").or(0xe900_0001),
        field("count", &["numgrp"], 48, 16, Length, "Number of records of a version 3 report"),
        options(
            OptionSet::Tlv(&plain::IGMP_RECORDS),
            "records",
            &["grps"],
            "Records of a version 3 report; the type is v3-report if they are set",
        )
        .when(Presence::FirstOctet(&[0x22])),
    ],
    carries: &["igmp3_query"],
    extent: Extent::List,
    proto: Proto::Igmp,
    chosen_by: &[(Space::Ip, 2)],
    ..PLAIN
};

const fn payload(
    name: &'static str,
    aliases: &'static [&'static str],
    proto: Proto,
    title: &'static str,
) -> HeaderDef {
    HeaderDef { name, aliases, title, proto, ..PLAIN }
}

static TEXT: HeaderDef = payload(
    "text",
    &["payload"],
    Proto::Text,
    r#"`text("hello\n")`: UTF-8; escapes \n \r \t \0 \xHH \" \\"#,
);
static HTTP: HeaderDef = payload(
    "http",
    &[],
    Proto::Http,
    r#"`http("GET / HTTP/1.1\nHost: a.example")`: a start line and header fields, each ended by CR LF, and an empty line"#,
);
static SIP: HeaderDef = payload(
    "sip",
    &[],
    Proto::Sip,
    r#"`sip("OPTIONS sip:b@lab.example SIP/2.0\nCSeq: 1 OPTIONS")`: like http"#,
);
static MQTT: HeaderDef = payload(
    "mqtt",
    &[],
    Proto::Mqtt,
    r#"`mqtt("publish lab/t 21.5")`: a message of MQTT 3.1.1; connect CLIENT, connack, publish TOPIC MESSAGE, subscribe TOPIC, pingreq, pingresp, disconnect"#,
);
static SNMP: HeaderDef = payload(
    "snmp",
    &[],
    Proto::Snmp,
    r#"`snmp("get public 1.3.6.1.2.1.1.1.0")`: a request of SNMPv2c; get, getnext or getbulk, community, objects"#,
);
static HEX: HeaderDef = payload(
    "hex",
    &["bytes"],
    Proto::Hex,
    "`hex(dead beef)`: octets; a header may follow: `udp/hex(0102)/ipv4`",
);
static PATTERN: HeaderDef = payload(
    "pattern",
    &[],
    Proto::Pattern,
    "`pattern(a5 5a)`: octets, repeated until the frame is full",
);
static RANDOM: HeaderDef = payload(
    "random",
    &[],
    Proto::Random,
    "`random(64)`: 64 random octets, drawn with the seed; `random` fills the frame",
);
static ZEROS: HeaderDef =
    payload("zeros", &["zero"], Proto::Zeros, "`zeros(64)`: 64 zeros; `zeros` fills the frame");
static INC: HeaderDef = payload(
    "inc",
    &["increment"],
    Proto::Inc,
    "`inc(64)`: 64 octets 00 01 .. ff 00; `inc` fills the frame",
);
static FILE: HeaderDef = payload(
    "file",
    &[],
    Proto::File,
    "`file(\"body.bin\")`: the content of the file, at most 64 KiB",
);
static RAW: HeaderDef = payload(
    "raw",
    &["frame"],
    Proto::Raw,
    "`raw(0200..)`: a whole frame as octets; only as the first layer",
);
static TRUNCATE: HeaderDef = payload(
    "truncate",
    &["cut"],
    Proto::Truncate,
    "`truncate(20)`: cuts the finished frame to 20 octets (without FCS); only as the last layer",
);

impl OptionSet {
    /// Options that the list may have, in addition to `hex(...)`.
    pub fn defs(self) -> &'static [OptionDef] {
        use OptionForm::*;
        match self {
            Self::Ipv4 => {
                const DEFS: &[OptionDef] = &[
                    option("eol", 0, Single, "End of list"),
                    option("nop", 1, Single, "No operation"),
                    option("router-alert", 148, Value(&[U16]), "Router alert (RFC 2113)"),
                    option("rr", 7, Slots, "Record route, with room for this many addresses"),
                    option("timestamp", 68, Slots, "Timestamps, with room for this many"),
                ];
                DEFS
            }
            Self::Tcp => {
                const DEFS: &[OptionDef] = &[
                    option("eol", 0, Single, "End of list"),
                    option("nop", 1, Single, "No operation"),
                    option("mss", 2, Value(&[U16]), "Maximum segment size"),
                    option("wscale", 3, Value(&[U8]), "Window scale (RFC 7323)"),
                    option(
                        "sackok",
                        4,
                        Value(&[]),
                        "Selective acknowledgment permitted (RFC 2018)",
                    ),
                    option("sack", 5, Value(&[U32, U32]), "One block: left and right edge"),
                    option("timestamp", 8, Value(&[U32, U32]), "Value and echo reply (RFC 7323)"),
                ];
                DEFS
            }
            Self::Ipv6 => {
                const DEFS: &[OptionDef] = &[
                    option("pad1", 0, Single, "One octet of padding"),
                    option("padn", 1, Pad, "This many octets of padding, 2 or more"),
                    option(
                        "tunnel-limit",
                        4,
                        Value(&[U8]),
                        "Tunnel encapsulation limit (RFC 2473)",
                    ),
                    option("smf-dpd", 8, Value(&[U8, U16]), "Duplicate detection (RFC 6621)"),
                    option("router-alert", 5, Value(&[U16]), "Router alert (RFC 2711)"),
                    option("quick-start", 0x26, Value(&[U8, U8, U32]), "Quick-Start (RFC 4782)"),
                    option("rpl", 0x63, Value(&[U8, U8, U16]), "RPL (RFC 6553)"),
                    option("jumbo", 0xc2, Value(&[U32]), "Jumbo payload length (RFC 2675)"),
                    option("home-address", 0xc9, Value(&[Part::Ipv6]), "Home address (RFC 6275)"),
                ];
                DEFS
            }
            Self::Addresses | Self::Octets => &[],
            Self::Tlv(tlv) => tlv.defs,
        }
    }
}
