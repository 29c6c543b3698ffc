//! Headers that their table rows describe completely: fields, length, coverage of length and
//! checksum fields, and the numbers by which preceding headers identify them.

use crate::{
    header::{
        Extent, FieldDef,
        FieldKind::{Checksum, Flags, Ipv4, Length, Mac, Next, Number, Options},
        HeaderDef, PLAIN, Presence, Space, Sum,
    },
    options::{
        Head, OptionDef,
        OptionForm::{self, Value},
        OptionSet, Part, Tlv, U8, U16, U32,
    },
    table::{MAC_1, MAC_2, NUMBER, field, option},
};

/// One octet each for type and length; the length counts only the value.
const PLAIN_TLV: Tlv = Tlv {
    defs: &[],
    head: Head::TypeLength(1, 1),
    whole: false,
    unit: 1,
    in_units: false,
    known: false,
    end: &[],
};

pub(crate) static ESP: HeaderDef = HeaderDef {
    name: "esp",
    title: "Encapsulating security payload, cleartext part (RFC 4303); the rest is payload",
    min_len: 8,
    fields: &[
        field("spi", &[], 0, 32, NUMBER, "Security parameters index").or(256),
        field("seq", &["sequence"], 32, 32, NUMBER, "Sequence number").or(1),
    ],
    chosen_by: &[(Space::Ip, 50)],
    ..PLAIN
};

pub(crate) static AH: HeaderDef = HeaderDef {
    name: "ah",
    title: "Authentication header (RFC 4302)",
    min_len: 12,
    fields: &[
        field("next", &["nh", "next_header"], 0, 8, Next(&[]), "Next header").or(253),
        field(
            "length",
            &["len", "payloadlen"],
            8,
            8,
            Length,
            "Header length in units of 4 octets, minus 2",
        )
        .counts("4 octets"),
        field("reserved", &[], 16, 16, NUMBER, "Reserved"),
        field("spi", &[], 32, 32, NUMBER, "Security parameters index").or(256),
        field("seq", &["sequence"], 64, 32, NUMBER, "Sequence number").or(1),
        field("icv", &[], 0, 0, Options(OptionSet::Octets), "Integrity check value, as hex(...)"),
    ],
    chosen_by: &[(Space::Ip, 51)],
    chooses: Some(Space::Ip),
    extent: Extent::Counted { field: "length", unit: 4, plus: 8 },
    ..PLAIN
};

pub(crate) static PPPOE: HeaderDef = HeaderDef {
    name: "pppoe",
    title: "PPP over Ethernet, a session (RFC 2516)",
    min_len: 6,
    fields: &[
        field("version", &["ver"], 0, 4, NUMBER, "Version").or(1),
        field("type", &[], 4, 4, NUMBER, "Type").or(1),
        field("code", &[], 8, 8, NUMBER, "Code; 0 is data of a session"),
        field("session", &["sessionid", "session_id"], 16, 16, NUMBER, "Session").or(1),
        field("length", &["len"], 32, 16, Length, "Octets after this header").counts("octets"),
    ],
    carries: &["ppp"],
    chosen_by: &[(Space::EtherType, 0x8864)],
    counts: Some(("length", 6)),
    follows: Some("ppp"),
    looks: |octets| octets[..2] == [0x11, 0],
    ..PLAIN
};

pub(crate) static PPPOED: HeaderDef = HeaderDef {
    name: "pppoed",
    title: "PPP over Ethernet, discovery (RFC 2516)",
    min_len: 6,
    fields: &[
        field("version", &["ver"], 0, 4, NUMBER, "Version").or(1),
        field("type", &[], 4, 4, NUMBER, "Type").or(1),
        field(
            "code",
            &[],
            8,
            8,
            Number(&[("padi", 9), ("pado", 7), ("padr", 0x19), ("pads", 0x65), ("padt", 0xa7)]),
            "Code",
        )
        .or(9),
        field("session", &["sessionid", "session_id"], 16, 16, NUMBER, "Session"),
        field("length", &["len"], 32, 16, Length, "Octets after this header").counts("octets"),
        field("tags", &["options"], 0, 0, Options(OptionSet::Tlv(&PPPOE_TAGS)), "Tags"),
    ],
    chosen_by: &[(Space::EtherType, 0x8863)],
    extent: Extent::List,
    counts: Some(("length", 6)),
    looks: |octets| octets[0] == 0x11,
    ..PLAIN
};

pub(crate) static PPP: HeaderDef = HeaderDef {
    name: "ppp",
    title: "Point-to-point protocol, without address and control (RFC 1661)",
    min_len: 2,
    fields: &[field(
        "protocol",
        &["proto"],
        0,
        16,
        Next(&[("ipv4", 0x21), ("ipv6", 0x57), ("mpls", 0x281)]),
        "Protocol of what follows",
    )
    .or(0x21)],
    carries: &["ipv4", "ipv6", "mpls"],
    chooses: Some(Space::Ppp),
    ..PLAIN
};

/// Codes of PPP's control protocols (RFC 1661 §5).
const AGREE: &[(&str, u64)] = &[
    ("conf-req", 1),
    ("conf-ack", 2),
    ("conf-nak", 3),
    ("conf-rej", 4),
    ("term-req", 5),
    ("term-ack", 6),
    ("code-rej", 7),
    ("proto-rej", 8),
    ("echo-req", 9),
    ("echo-reply", 10),
];

pub(crate) static LCP: HeaderDef = HeaderDef {
    name: "lcp",
    title: "PPP link control (RFC 1661 §5)",
    min_len: 4,
    fields: &[
        field("code", &[], 0, 8, Number(AGREE), "Code").or(1),
        field("id", &["identifier"], 8, 8, NUMBER, "Identifier"),
        field("length", &["len"], 16, 16, Length, "Octets, starting with the code")
            .counts("octets"),
        field(
            "options",
            &["opts"],
            0,
            0,
            Options(OptionSet::Tlv(&LCP_OPTIONS)),
            "Configuration options",
        ),
    ],
    chosen_by: &[(Space::Ppp, 0xc021)],
    extent: Extent::List,
    looks: |octets| matches!(octets[0], 1..=11),
    counts: Some(("length", 0)),
    ..PLAIN
};

pub(crate) static IPCP: HeaderDef = HeaderDef {
    name: "ipcp",
    title: "PPP IP control (RFC 1332)",
    min_len: 4,
    fields: &[
        field("code", &[], 0, 8, Number(AGREE), "Code").or(1),
        field("id", &["identifier"], 8, 8, NUMBER, "Identifier"),
        field("length", &["len"], 16, 16, Length, "Octets, starting with the code")
            .counts("octets"),
        field(
            "options",
            &["opts"],
            0,
            0,
            Options(OptionSet::Tlv(&IPCP_OPTIONS)),
            "Configuration options",
        ),
    ],
    chosen_by: &[(Space::Ppp, 0x8021)],
    extent: Extent::List,
    counts: Some(("length", 0)),
    ..PLAIN
};

pub(crate) static GENEVE: HeaderDef = HeaderDef {
    name: "geneve",
    title: "Generic network virtualization encapsulation (RFC 8926)",
    min_len: 8,
    fields: &[
        field("version", &["ver"], 0, 2, NUMBER, "Version"),
        field("optlen", &["optionlen"], 2, 6, Length, "Length of the options in units of 4 octets")
            .counts("4 octets"),
        field("o", &["oam"], 8, 1, NUMBER, "Control packet"),
        field("c", &["critical"], 9, 1, NUMBER, "Critical options are present"),
        field(
            "type",
            &["proto", "protocol"],
            16,
            16,
            Next(&[("eth", 0x6558), ("ipv4", 0x0800), ("ipv6", 0x86dd), ("arp", 0x0806)]),
            "Protocol of what follows",
        )
        .or(0x6558),
        field("vni", &["id"], 32, 24, NUMBER, "Network identifier").or(1),
        field("options", &["opts"], 0, 0, Options(OptionSet::Octets), "Options, as hex(...)"),
    ],
    carries: &["eth", "ipv4", "ipv6", "arp"],
    chosen_by: &[(Space::Udp, 6081)],
    extent: Extent::Counted { field: "optlen", unit: 4, plus: 8 },
    looks: |octets| octets[0] >> 6 == 0,
    ..PLAIN
};

pub(crate) static GPE: HeaderDef = HeaderDef {
    name: "gpe",
    aliases: &["vxlan_gpe", "vxlangpe"],
    title: "Generic protocol extension for VXLAN (draft-ietf-nvo3-vxlan-gpe)",
    min_len: 8,
    fields: &[
        field("flags", &[], 0, 8, Flags(&[("I", 8), ("P", 4), ("B", 2), ("O", 1)]), "Flags").or(12),
        field(
            "next",
            &["nextprotocol", "proto"],
            24,
            8,
            Next(&[("ipv4", 1), ("ipv6", 2), ("eth", 3)]),
            "Next protocol",
        )
        .or(3),
        field("vni", &["id"], 32, 24, NUMBER, "Network identifier").or(1),
    ],
    carries: &["ipv4", "ipv6", "eth"],
    chosen_by: &[(Space::Udp, 4790)],
    chooses: Some(Space::Gpe),
    looks: |octets| octets[0] & 8 != 0,
    ..PLAIN
};

pub(crate) static NSH: HeaderDef = HeaderDef {
    name: "nsh",
    title: "Network service header with four words of context (RFC 8300, MD type 1)",
    min_len: 24,
    fields: &[
        field("version", &["ver"], 0, 2, NUMBER, "Version"),
        field("o", &["oam"], 2, 1, NUMBER, "Operation and maintenance packet"),
        field("ttl", &[], 4, 6, NUMBER, "Time to live").or(63).counts("hops"),
        field("length", &["len"], 10, 6, Length, "Header length in units of 4 octets")
            .counts("4 octets"),
        field("mdtype", &["md_type"], 20, 4, NUMBER, "Type of context").or(1),
        field(
            "next",
            &["nextproto", "proto"],
            24,
            8,
            Next(&[("ipv4", 1), ("ipv6", 2), ("eth", 3), ("mpls", 5)]),
            "Next protocol",
        )
        .or(1),
        field("spi", &[], 32, 24, NUMBER, "Service path").or(1),
        field("si", &[], 56, 8, NUMBER, "Service index").or(255),
        field("context", &[], 64, 128, NUMBER, "Four words of context"),
    ],
    carries: &["ipv4", "ipv6", "eth", "mpls"],
    chosen_by: &[(Space::EtherType, 0x894f), (Space::Gpe, 4)],
    chooses: Some(Space::Gpe),
    extent: Extent::Counted { field: "length", unit: 4, plus: 0 },
    looks: |octets| octets[3] == 1 || octets[2] & 15 == 1,
    ..PLAIN
};

pub(crate) static ERSPAN: HeaderDef = HeaderDef {
    name: "erspan",
    title: "Encapsulated remote SPAN, type II (draft-foschiano-erspan); after gre, which then has a \
            sequence number",
    min_len: 8,
    fields: &[
        field("version", &["ver"], 0, 4, NUMBER, "Version").or(1),
        field("vlan", &["vid"], 4, 12, NUMBER, "VLAN of the mirrored frame"),
        field("cos", &["pcp"], 16, 3, NUMBER, "Its priority"),
        field("en", &[], 19, 2, NUMBER, "Encapsulation of the mirrored frame"),
        field("t", &["truncated"], 21, 1, NUMBER, "The mirrored frame was truncated"),
        field("session", &["session_id", "id"], 22, 10, NUMBER, "Session").or(1),
        field("index", &[], 44, 20, NUMBER, "Port index"),
    ],
    carries: &["eth"],
    follows: Some("eth"),
    looks: |octets| octets[0] >> 4 == 1,
    ..PLAIN
};

pub(crate) static ERSPAN3: HeaderDef = HeaderDef {
    name: "erspan3",
    title: "Encapsulated remote SPAN, type III, without platform field (draft-foschiano-erspan); \
            after gre, which then has a sequence number",
    min_len: 12,
    fields: &[
        field("version", &["ver"], 0, 4, NUMBER, "Version").or(2),
        field("vlan", &["vid"], 4, 12, NUMBER, "VLAN of the mirrored frame"),
        field("cos", &["pcp"], 16, 3, NUMBER, "Its priority"),
        field("bso", &[], 19, 2, NUMBER, "The mirrored frame was bad, short or oversized"),
        field("t", &["truncated"], 21, 1, NUMBER, "The mirrored frame was truncated"),
        field("session", &["session_id", "id"], 22, 10, NUMBER, "Session").or(1),
        field("timestamp", &["ts"], 32, 32, NUMBER, "Timestamp"),
        field("sgt", &[], 64, 16, NUMBER, "Security group tag"),
        field("p", &[], 80, 1, NUMBER, "The mirrored frame is an Ethernet frame").or(1),
        field("ft", &["frame_type"], 81, 5, NUMBER, "Type of the frame"),
        field("hw", &["hwid"], 86, 6, NUMBER, "Hardware"),
        field("d", &["direction"], 92, 1, NUMBER, "1: the mirrored frame was sent"),
        field("gra", &["granularity"], 93, 2, NUMBER, "Granularity of the timestamp"),
        field("o", &[], 95, 1, NUMBER, "A platform field follows"),
    ],
    carries: &["eth"],
    follows: Some("eth"),
    looks: |octets| octets[0] >> 4 == 2 && octets[11] & 1 == 0,
    ..PLAIN
};

pub(crate) static L2TP: HeaderDef = HeaderDef {
    name: "l2tp",
    title: "Layer 2 tunneling protocol version 2, data (RFC 2661)",
    min_len: 2,
    fields: &[
        field("t", &[], 0, 1, NUMBER, "Control; 1 is l2tp_control"),
        field("l", &[], 1, 1, NUMBER, "The length is present; 1 if it is set, even to auto"),
        field("s", &[], 4, 1, NUMBER, "Ns and Nr are present; 1 if one is set"),
        field("o", &[], 6, 1, NUMBER, "The offset is present; 1 if it is set"),
        field("p", &[], 7, 1, NUMBER, "Priority"),
        field("version", &["ver"], 12, 4, NUMBER, "Version").or(2),
        field("length", &["len"], 0, 16, Length, "Octets of the message")
            .counts("octets")
            .when(Presence::Flag { mask: 0x40, sets: 0x40 }),
        field("tunnel", &["tunnel_id"], 0, 16, NUMBER, "Tunnel").or(1).when(Presence::After),
        field("session", &["session_id"], 0, 16, NUMBER, "Session").or(1).when(Presence::After),
        field("ns", &[], 0, 16, NUMBER, "Sequence number").when(L2TP_S),
        field("nr", &[], 0, 16, NUMBER, "Expected sequence number").when(L2TP_S),
        field("offset", &[], 0, 16, NUMBER, "Octets of padding after this header")
            .when(Presence::Flag { mask: 2, sets: 2 }),
    ],
    carries: &["ppp"],
    chosen_by: &[(Space::Udp, 1701)],
    counts: Some(("length", 0)),
    follows: Some("ppp"),
    looks: |octets| octets[0] & 0xb4 == 0 && octets[1] == 2,
    ..PLAIN
};

const L2TP_S: Presence = Presence::Flag { mask: 8, sets: 8 };

pub(crate) static L2TP_CONTROL: HeaderDef = HeaderDef {
    name: "l2tp_control",
    title: "Layer 2 tunneling protocol version 2, control message (RFC 2661); attributes as \
            payload, without payload a ZLB acknowledgment",
    min_len: 12,
    fields: &[
        field("flags", &[], 0, 12, NUMBER, "Flags: T, L and S").or(0xc80),
        field("version", &["ver"], 12, 4, NUMBER, "Version").or(2),
        field("length", &["len"], 16, 16, Length, "Octets of the message").counts("octets"),
        field("tunnel", &["tunnel_id"], 32, 16, NUMBER, "Tunnel"),
        field("session", &["session_id"], 48, 16, NUMBER, "Session"),
        field("ns", &[], 64, 16, NUMBER, "Sequence number"),
        field("nr", &[], 80, 16, NUMBER, "Expected sequence number"),
    ],
    chosen_by: &[(Space::Udp, 1701)],
    counts: Some(("length", 0)),
    looks: |octets| octets[..2] == [0xc8, 2],
    ..PLAIN
};

pub(crate) static MACSEC: HeaderDef = HeaderDef {
    name: "macsec",
    title: "MACsec tag with SCI, cleartext fields (IEEE 802.1AE); the rest is payload",
    min_len: 14,
    fields: &[
        field("version", &["ver"], 0, 1, NUMBER, "Version"),
        field("es", &[], 1, 1, NUMBER, "End station"),
        field("sc", &[], 2, 1, NUMBER, "The SCI is present").or(1),
        field("scb", &[], 3, 1, NUMBER, "Single copy broadcast"),
        field("e", &[], 4, 1, NUMBER, "Encrypted"),
        field("c", &[], 5, 1, NUMBER, "Changed"),
        field("an", &[], 6, 2, NUMBER, "Association number"),
        field("sl", &["shortlen"], 10, 6, NUMBER, "Octets of data, if fewer than 48"),
        field("pn", &[], 16, 32, NUMBER, "Packet number").or(1),
        field("sci", &[], 48, 64, NUMBER, "Secure channel: MAC address and port")
            .or(MAC_1 << 16 | 1),
    ],
    chosen_by: &[(Space::EtherType, 0x88e5)],
    looks: |octets| octets[0] & 0xa0 == 0x20,
    ..PLAIN
};

pub(crate) static LLC: HeaderDef = HeaderDef {
    name: "llc",
    title: "Logical link control, unnumbered (IEEE 802.2)",
    min_len: 3,
    fields: &[
        field("dsap", &[], 0, 8, Next(&[]), "Destination's service access point").or(0xaa),
        field(
            "ssap",
            &[],
            8,
            8,
            Next(&[]),
            "Source's service access point; before a header, same as dsap",
        )
        .or(0xaa),
        field("control", &["ctrl"], 16, 8, NUMBER, "Control; 3 is unnumbered information").or(3),
    ],
    chooses: Some(Space::Llc),
    ..PLAIN
};

pub(crate) static DOT3: HeaderDef = HeaderDef {
    name: "dot3",
    aliases: &["802.3"],
    title: "Ethernet with a length instead of the EtherType (IEEE 802.3)",
    min_len: 14,
    fields: &[
        field("dst", &["da", "dst_mac"], 0, 48, Mac, "Destination").or(MAC_2),
        field("src", &["sa", "src_mac"], 48, 48, Mac, "Source").or(MAC_1),
        field("length", &["len"], 96, 16, Length, "Octets after this header").counts("octets"),
    ],
    carries: &["llc"],
    chosen_by: &[(Space::Link, 1)],
    counts: Some(("length", 14)),
    follows: Some("llc"),
    ..PLAIN
};

pub(crate) static SNAP: HeaderDef = HeaderDef {
    name: "snap",
    title: "Subnetwork access protocol (IEEE 802)",
    min_len: 5,
    fields: &[
        field("oui", &[], 0, 24, NUMBER, "Organization"),
        field(
            "type",
            &["code", "ethertype"],
            24,
            16,
            Next(&[("ipv4", 0x0800), ("arp", 0x0806), ("ipv6", 0x86dd)]),
            "EtherType of what follows",
        )
        .or(0x0800),
    ],
    carries: &["ipv4", "arp", "ipv6"],
    chosen_by: &[(Space::Llc, 0xaa)],
    chooses: Some(Space::EtherType),
    ..PLAIN
};

pub(crate) static STP: HeaderDef = HeaderDef {
    name: "stp",
    aliases: &["rstp", "bpdu"],
    title: "Spanning tree, configuration BPDU (IEEE 802.1D); RSTP with version=2,type=2 and a \
            payload of hex(00)",
    min_len: 35,
    fields: &[
        field("protocol", &["proto"], 0, 16, NUMBER, "Protocol"),
        field("version", &["ver"], 16, 8, Number(&[("stp", 0), ("rstp", 2)]), "Version"),
        field("type", &["bpdutype"], 24, 8, NUMBER, "Type of the BPDU"),
        field("flags", &["bpduflags"], 32, 8, NUMBER, "Flags"),
        field("rootid", &["root_priority"], 40, 16, NUMBER, "Root's priority"),
        field("rootmac", &["root"], 56, 48, Mac, "Root"),
        field("pathcost", &["cost"], 104, 32, NUMBER, "Cost of the path to the root"),
        field("bridgeid", &["bridge_priority"], 136, 16, NUMBER, "Bridge's priority"),
        field("bridgemac", &["bridge"], 152, 48, Mac, "Bridge"),
        field("portid", &["port"], 200, 16, NUMBER, "Port"),
        field("age", &[], 216, 16, NUMBER, "Message age").or(256).counts("1/256 s"),
        field("maxage", &[], 232, 16, NUMBER, "Maximum age").or(5120).counts("1/256 s"),
        field("hellotime", &["hello"], 248, 16, NUMBER, "Hello time").or(512).counts("1/256 s"),
        field("fwddelay", &["forward_delay"], 264, 16, NUMBER, "Forward delay")
            .or(3840)
            .counts("1/256 s"),
    ],
    chosen_by: &[(Space::Llc, 0x42)],
    ..PLAIN
};

pub(crate) static ISIS_HELLO: HeaderDef = HeaderDef {
    name: "isis_hello",
    title: "IS-IS hello on a LAN (ISO 10589 §9.5, RFC 1195); after dot3(dst=01:80:c2:00:00:14)/llc",
    min_len: 27,
    fields: &[
        ISIS_DISCRIMINATOR,
        ISIS_LENGTH.or(27),
        field("version", &["ver"], 16, 8, NUMBER, "Version").or(1),
        field("idlen", &[], 24, 8, NUMBER, "Octets of a system ID; 0 means 6"),
        field("type", &[], 32, 8, Number(&[("level1", 15), ("level2", 16)]), "Type").or(15),
        field("version2", &[], 40, 8, NUMBER, "Version").or(1),
        field("max_areas", &[], 56, 8, NUMBER, "Maximum number of areas; 0 means 3"),
        field("circuit", &["circuit_type"], 64, 8, NUMBER, "Levels of the circuit").or(1),
        field("system", &["sourceid"], 72, 48, Mac, "System").or(MAC_1),
        field("holding", &["hold_time"], 120, 16, NUMBER, "Holding time").or(30).counts("s"),
        field("pdu_length", &[], 136, 16, Length, "Octets of the PDU").counts("octets"),
        field("priority", &["prio"], 153, 7, NUMBER, "Priority").or(64),
        field("lan", &["lan_id"], 160, 48, Mac, "Designated system").or(MAC_1),
        field("pseudonode", &[], 208, 8, NUMBER, "LAN number of the designated system").or(1),
        field("tlvs", &["options"], 0, 0, Options(OptionSet::Tlv(&ISIS_TLVS)), "TLVs"),
    ],
    chosen_by: &[(Space::Llc, 0xfe)],
    extent: Extent::List,
    counts: Some(("pdu_length", 0)),
    looks: |octets| octets[0] == 0x83 && matches!(octets[4], 15 | 16),
    ..PLAIN
};

const ISIS_DISCRIMINATOR: FieldDef =
    field("discriminator", &["nlpid"], 0, 8, NUMBER, "Discriminator").or(0x83);
const ISIS_LENGTH: FieldDef =
    field("length", &["len"], 8, 8, NUMBER, "Octets of the fixed header").counts("octets");

pub(crate) static ISIS_P2P_HELLO: HeaderDef = HeaderDef {
    name: "isis_p2p_hello",
    title: "IS-IS hello, point to point (ISO 10589 §9.7); after dot3(dst=09:00:2b:00:00:05)/llc",
    min_len: 20,
    fields: &[
        ISIS_DISCRIMINATOR,
        ISIS_LENGTH.or(20),
        field("version", &["ver"], 16, 8, NUMBER, "Version").or(1),
        field("idlen", &[], 24, 8, NUMBER, "Octets of a system ID; 0 means 6"),
        field("type", &[], 32, 8, NUMBER, "Type").or(17),
        field("version2", &[], 40, 8, NUMBER, "Version").or(1),
        field("max_areas", &[], 56, 8, NUMBER, "Maximum number of areas; 0 means 3"),
        field("circuit", &["circuit_type"], 64, 8, NUMBER, "Levels of the circuit").or(2),
        field("system", &["sourceid"], 72, 48, Mac, "System").or(MAC_1),
        field("holding", &["hold_time"], 120, 16, NUMBER, "Holding time").or(30).counts("s"),
        field("pdu_length", &[], 136, 16, Length, "Octets of the PDU").counts("octets"),
        field("local", &["local_circuit"], 152, 8, NUMBER, "Local circuit").or(1),
        field("tlvs", &["options"], 0, 0, Options(OptionSet::Tlv(&ISIS_TLVS)), "TLVs"),
    ],
    chosen_by: &[(Space::Llc, 0xfe)],
    extent: Extent::List,
    counts: Some(("pdu_length", 0)),
    looks: |octets| octets[0] == 0x83 && octets[4] == 17,
    ..PLAIN
};

static ISIS_TLVS: Tlv = Tlv {
    defs: &[
        option(
            "area",
            1,
            Value(&[Part::Fixed(1, 3), Part::Number(3)]),
            "An area of 3 octets: 0x490001",
        ),
        option("neighbor", 6, Value(&[Part::Mac]), "A neighbor's address"),
        option("padding", 8, Value(&[Part::Octets]), "Padding"),
        option("protocols", 129, Value(&[Part::Octets]), "Protocols: hex(cc8e) is IPv4 and IPv6"),
        option("ipv4", 132, Value(&[Part::Ipv4s]), "Addresses of the interface"),
        option("hostname", 137, Value(&[Part::Text]), "Name (RFC 5301)"),
        option("ipv6", 232, Value(&[Part::Ipv6s]), "Addresses of the interface (RFC 5308)"),
        option("adjacency", 240, Value(&[U8, U32]), "State and circuit (RFC 5303); 2: down"),
    ],
    ..PLAIN_TLV
};

pub(crate) static LACP: HeaderDef = HeaderDef {
    name: "lacp",
    title: "Link aggregation control (IEEE 802.1AX), subtype and all parts",
    min_len: 110,
    fields: &[
        field("subtype", &[], 0, 8, NUMBER, "Subtype of slow protocols").or(1),
        field("version", &["ver"], 8, 8, NUMBER, "Version").or(1),
        field("actor_type", &[], 16, 8, NUMBER, "Type of the actor's part").or(1),
        field("actor_length", &[], 24, 8, NUMBER, "Its length").or(20),
        field("actor_system_priority", &[], 32, 16, NUMBER, "Actor's system priority"),
        field("actor_system", &[], 48, 48, Mac, "Actor's system").or(MAC_1),
        field("actor_key", &[], 96, 16, NUMBER, "Actor's key"),
        field("actor_port_priority", &[], 112, 16, NUMBER, "Actor's port priority"),
        field("actor_port", &["actor_port_number"], 128, 16, NUMBER, "Actor's port"),
        field("actor_state", &[], 144, 8, NUMBER, "Actor's state"),
        field("partner_type", &[], 176, 8, NUMBER, "Type of the partner's part").or(2),
        field("partner_length", &[], 184, 8, NUMBER, "Its length").or(20),
        field("partner_system_priority", &[], 192, 16, NUMBER, "Partner's system priority"),
        field("partner_system", &[], 208, 48, Mac, "Partner's system"),
        field("partner_key", &[], 256, 16, NUMBER, "Partner's key"),
        field("partner_port_priority", &[], 272, 16, NUMBER, "Partner's port priority"),
        field("partner_port", &["partner_port_number"], 288, 16, NUMBER, "Partner's port"),
        field("partner_state", &[], 304, 8, NUMBER, "Partner's state"),
        field("collector_type", &[], 336, 8, NUMBER, "Type of the collector's part").or(3),
        field("collector_length", &[], 344, 8, NUMBER, "Its length").or(16),
        field("collector_max_delay", &[], 352, 16, NUMBER, "Collector's maximum delay")
            .counts("10 us"),
    ],
    chosen_by: &[(Space::EtherType, 0x8809)],
    looks: |octets| octets[0] == 1,
    ..PLAIN
};

pub(crate) static MACCTL: HeaderDef = HeaderDef {
    name: "macctl",
    aliases: &["mac_control"],
    title: "MAC control (IEEE 802.3 clause 31)",
    min_len: 2,
    fields: &[field(
        "opcode",
        &["op", "_op_code"],
        0,
        16,
        Next(&[]),
        "Opcode; 1 before pause, 0x0101 before pfc",
    )
    .or(1)],
    chosen_by: &[(Space::EtherType, 0x8808)],
    chooses: Some(Space::MacControl),
    ..PLAIN
};

pub(crate) static PAUSE: HeaderDef = HeaderDef {
    name: "pause",
    title: "Pause (IEEE 802.3 annex 31B); after eth(dst=01:80:c2:00:00:01)/macctl",
    min_len: 2,
    fields: &[field("time", &["pause_time", "quanta"], 0, 16, NUMBER, "Pause time")
        .or(0xffff)
        .counts("512 bit times")],
    chosen_by: &[(Space::MacControl, 1)],
    ..PLAIN
};

pub(crate) static PFC: HeaderDef = HeaderDef {
    name: "pfc",
    title: "Priority flow control (IEEE 802.1Q); after eth(dst=01:80:c2:00:00:01)/macctl",
    min_len: 18,
    fields: &[
        field("classes", &["enable", "vector"], 0, 16, NUMBER, "Priorities to pause, one bit each")
            .or(0xff),
        field("time0", &["c0"], 16, 16, NUMBER, "Pause time of priority 0").counts("512 bit times"),
        field("time1", &["c1"], 32, 16, NUMBER, "Pause time of priority 1").counts("512 bit times"),
        field("time2", &["c2"], 48, 16, NUMBER, "Pause time of priority 2").counts("512 bit times"),
        field("time3", &["c3"], 64, 16, NUMBER, "Pause time of priority 3").counts("512 bit times"),
        field("time4", &["c4"], 80, 16, NUMBER, "Pause time of priority 4").counts("512 bit times"),
        field("time5", &["c5"], 96, 16, NUMBER, "Pause time of priority 5").counts("512 bit times"),
        field("time6", &["c6"], 112, 16, NUMBER, "Pause time of priority 6")
            .counts("512 bit times"),
        field("time7", &["c7"], 128, 16, NUMBER, "Pause time of priority 7")
            .counts("512 bit times"),
    ],
    chosen_by: &[(Space::MacControl, 0x0101)],
    ..PLAIN
};

pub(crate) static BFD: HeaderDef = HeaderDef {
    name: "bfd",
    title: "Bidirectional forwarding detection, control without authentication (RFC 5880)",
    min_len: 24,
    fields: &[
        field("version", &["ver"], 0, 3, NUMBER, "Version").or(1),
        field("diag", &[], 3, 5, NUMBER, "Diagnostic"),
        field(
            "state",
            &["sta"],
            8,
            2,
            Number(&[("admin-down", 0), ("down", 1), ("init", 2), ("up", 3)]),
            "State",
        )
        .or(3),
        field(
            "flags",
            &[],
            10,
            6,
            Flags(&[("P", 32), ("F", 16), ("C", 8), ("A", 4), ("D", 2), ("M", 1)]),
            "Flags",
        ),
        field("detect_mult", &["mult"], 16, 8, NUMBER, "Detection multiplier").or(3),
        field("length", &["len"], 24, 8, Length, "Octets of the packet").counts("octets"),
        field("my", &["my_discriminator"], 32, 32, NUMBER, "My discriminator").or(1),
        field("your", &["your_discriminator"], 64, 32, NUMBER, "Your discriminator").or(2),
        field("min_tx", &["min_tx_interval"], 96, 32, NUMBER, "Desired minimum transmit interval")
            .or(1_000_000)
            .counts("us"),
        field("min_rx", &["min_rx_interval"], 128, 32, NUMBER, "Required minimum receive interval")
            .or(1_000_000)
            .counts("us"),
        field(
            "echo_rx",
            &["echo_rx_interval"],
            160,
            32,
            NUMBER,
            "Required minimum receive interval of echoes",
        )
        .counts("us"),
    ],
    chosen_by: &[(Space::Udp, 3784), (Space::Udp, 4784)],
    extent: Extent::Counted { field: "length", unit: 1, plus: 0 },
    looks: |octets| octets[0] >> 5 == 1 && octets[3] == 24,
    ..PLAIN
};

pub(crate) static VRRP: HeaderDef = HeaderDef {
    name: "vrrp",
    title: "Virtual router redundancy, version 2, for one address (RFC 3768)",
    min_len: 20,
    fields: &[
        field("version", &["ver"], 0, 4, NUMBER, "Version").or(2),
        field("type", &[], 4, 4, NUMBER, "Type; 1 is an advertisement").or(1),
        field("vrid", &["id"], 8, 8, NUMBER, "Virtual router").or(1),
        field("priority", &["prio"], 16, 8, NUMBER, "Priority").or(100),
        field("count", &["ipcount"], 24, 8, NUMBER, "Addresses").or(1),
        field("authtype", &[], 32, 8, NUMBER, "Type of authentication"),
        field("interval", &["adv"], 40, 8, NUMBER, "Advertisement interval").or(1).counts("s"),
        field("checksum", &["chksum", "csum"], 48, 16, Checksum, "Over the packet"),
        field("address", &["addr"], 64, 32, Ipv4, "Virtual address").or(0xc612_0001),
        field("auth", &["auth1"], 96, 64, NUMBER, "Authentication data"),
    ],
    chosen_by: &[(Space::Ip, 112)],
    sum: Sum::Packet,
    looks: |octets| octets[0] == 0x21 && octets[3] == 1,
    ..PLAIN
};

pub(crate) static VRRP3: HeaderDef = HeaderDef {
    name: "vrrp3",
    title: "Virtual router redundancy, version 3 (RFC 9568)",
    min_len: 8,
    fields: &[
        field("version", &["ver"], 0, 4, NUMBER, "Version").or(3),
        field("type", &[], 4, 4, NUMBER, "Type; 1 is an advertisement").or(1),
        field("vrid", &["id"], 8, 8, NUMBER, "Virtual router").or(1),
        field("priority", &["prio"], 16, 8, NUMBER, "Priority").or(100),
        field("count", &["ipcount"], 24, 8, NUMBER, "Addresses").or(1),
        field("interval", &["adv"], 36, 12, NUMBER, "Advertisement interval")
            .or(100)
            .counts("10 ms"),
        field("checksum", &["chksum", "csum"], 48, 16, Checksum, "Over pseudo-header and packet"),
        field(
            "addresses",
            &["addrlist"],
            0,
            0,
            Options(OptionSet::Tlv(&VRRP_ADDRESSES)),
            "Addresses",
        ),
    ],
    chosen_by: &[(Space::Ip, 112)],
    extent: Extent::List,
    sum: Sum::Pseudo(112),
    usual: "ipv4(198.18.0.1)",
    looks: |octets| octets[0] == 0x31,
    ..PLAIN
};

static VRRP_ADDRESSES: Tlv = Tlv {
    defs: &[
        option("ipv4", 0, Value(&[Part::Ipv4s]), "IPv4 addresses; also set count"),
        option("ipv6", 0, Value(&[Part::Ipv6s]), "IPv6 addresses; also set count"),
    ],
    head: Head::None,
    known: true,
    ..PLAIN_TLV
};

pub(crate) static OSPF: HeaderDef = HeaderDef {
    name: "ospf",
    title: "OSPF version 2, the common header (RFC 2328 A.3.1)",
    min_len: 24,
    fields: &[
        field("version", &["ver"], 0, 8, NUMBER, "Version").or(2),
        field("type", &[], 8, 8, Next(&[]), "Type; 1 before ospf_hello").or(1),
        field("length", &["len"], 16, 16, Length, "Octets of the packet").counts("octets"),
        field("router", &["src", "router_id"], 32, 32, Ipv4, "Router").or(0xc612_0001),
        field("area", &[], 64, 32, Ipv4, "Area"),
        field(
            "checksum",
            &["chksum", "csum"],
            96,
            16,
            Checksum,
            "Over the packet; if auth is set, set the checksum, too (RFC 2328 excludes auth)",
        ),
        field("authtype", &[], 112, 16, NUMBER, "Type of authentication"),
        field("auth", &["authdata"], 128, 64, NUMBER, "Authentication"),
    ],
    chosen_by: &[(Space::Ip, 89)],
    chooses: Some(Space::Ospf),
    counts: Some(("length", 0)),
    sum: Sum::Packet,
    looks: |octets| octets[0] == 2,
    ..PLAIN
};

pub(crate) static OSPF_HELLO: HeaderDef = HeaderDef {
    name: "ospf_hello",
    title: "OSPF hello (RFC 2328 A.3.2); neighbors as payload",
    min_len: 20,
    fields: &[
        field("mask", &[], 0, 32, Ipv4, "Network mask").or(0xffff_ff00),
        field("hello_interval", &["hellointerval"], 32, 16, NUMBER, "Hello interval")
            .or(10)
            .counts("s"),
        field("options", &["opts"], 48, 8, NUMBER, "Options").or(2),
        field("priority", &["prio"], 56, 8, NUMBER, "Router's priority").or(1),
        field("dead_interval", &["deadinterval"], 64, 32, NUMBER, "Dead interval")
            .or(40)
            .counts("s"),
        field("dr", &["router"], 96, 32, Ipv4, "Designated router"),
        field("bdr", &["backup"], 128, 32, Ipv4, "Backup designated router"),
    ],
    chosen_by: &[(Space::Ospf, 1)],
    ..PLAIN
};

pub(crate) static RSVP: HeaderDef = HeaderDef {
    name: "rsvp",
    title: "Resource reservation (RFC 2205), as used by traffic engineering (RFC 3209)",
    min_len: 8,
    fields: &[
        field("version", &["ver"], 0, 4, NUMBER, "Version").or(1),
        field("flags", &[], 4, 4, NUMBER, "Flags"),
        field(
            "type",
            &["class"],
            8,
            8,
            Number(&[
                ("path", 1),
                ("resv", 2),
                ("path-err", 3),
                ("resv-err", 4),
                ("path-tear", 5),
                ("resv-tear", 6),
                ("resv-conf", 7),
                ("hello", 20),
            ]),
            "Type",
        )
        .or(1),
        field("checksum", &["chksum", "csum"], 16, 16, Checksum, "Over the message"),
        field("ttl", &[], 32, 8, NUMBER, "Time to live that it was sent with")
            .or(64)
            .counts("hops"),
        field("length", &["len"], 48, 16, Length, "Octets of the message").counts("octets"),
        field("objects", &["options"], 0, 0, Options(OptionSet::Tlv(&RSVP_OBJECTS)), "Objects"),
    ],
    chosen_by: &[(Space::Ip, 46)],
    extent: Extent::List,
    counts: Some(("length", 0)),
    sum: Sum::Packet,
    looks: |octets| octets[0] >> 4 == 1,
    ..PLAIN
};

pub(crate) static NTP: HeaderDef = HeaderDef {
    name: "ntp",
    title: "Network time protocol (RFC 5905)",
    min_len: 48,
    fields: &[
        field("leap", &["li"], 0, 2, NUMBER, "Leap indicator"),
        field("version", &["ver", "vn"], 2, 3, NUMBER, "Version").or(4),
        field("mode", &[], 5, 3, Number(&[("client", 3), ("server", 4)]), "Mode").or(3),
        field("stratum", &[], 8, 8, NUMBER, "Stratum").or(2),
        field("poll", &[], 16, 8, NUMBER, "Poll interval, log2 of seconds").or(10),
        field("precision", &[], 24, 8, NUMBER, "Precision, log2 of seconds"),
        field("delay", &["root_delay"], 32, 32, NUMBER, "Root delay").counts("2^-16 s"),
        field("dispersion", &["root_dispersion"], 64, 32, NUMBER, "Root dispersion")
            .counts("2^-16 s"),
        field("id", &["ref_id", "reference_id"], 96, 32, Ipv4, "Reference").or(0x7f00_0001),
        field("ref", &["reference"], 128, 64, NUMBER, "Time when the clock was set")
            .counts("2^-32 s"),
        field("orig", &["originate"], 192, 64, NUMBER, "Time when the request left")
            .counts("2^-32 s"),
        field("recv", &["receive"], 256, 64, NUMBER, "Time when the request arrived")
            .counts("2^-32 s"),
        field("sent", &["transmit"], 320, 64, NUMBER, "Time when this packet left")
            .counts("2^-32 s"),
    ],
    chosen_by: &[(Space::Udp, 123)],
    looks: |octets| matches!(octets[0] >> 3 & 7, 3 | 4) && matches!(octets[0] & 7, 1..=5),
    ..PLAIN
};

pub(crate) static RTP: HeaderDef = HeaderDef {
    name: "rtp",
    title: "Real-time transport (RFC 3550), without contributing sources; on any port",
    min_len: 12,
    fields: &[
        field("version", &["ver"], 0, 2, NUMBER, "Version").or(2),
        field("padding", &["p"], 2, 1, NUMBER, "Padding is present"),
        field("extension", &["x"], 3, 1, NUMBER, "An extension header is present"),
        field("numsync", &["cc"], 4, 4, NUMBER, "Number of contributing sources"),
        field("marker", &["m"], 8, 1, NUMBER, "Marker"),
        field("payload_type", &["pt"], 9, 7, NUMBER, "Payload type"),
        field("sequence", &["seq"], 16, 16, NUMBER, "Sequence number"),
        field("timestamp", &["ts"], 32, 32, NUMBER, "Sampling instant"),
        field("sourcesync", &["ssrc"], 64, 32, NUMBER, "Synchronization source"),
    ],
    ..PLAIN
};

pub(crate) static BTH: HeaderDef = HeaderDef {
    name: "bth",
    aliases: &["roce"],
    title: "InfiniBand base transport header, RoCEv2 (InfiniBand 1.4 §9.2)",
    min_len: 12,
    fields: &[
        field(
            "opcode",
            &["op"],
            0,
            8,
            Next(&[]),
            "Opcode; 10 (RDMA write only) before reth, 17 before aeth, 0x81 before cnp",
        )
        .or(4),
        field("se", &["solicited"], 8, 1, NUMBER, "Solicited event"),
        field("migreq", &["m"], 9, 1, NUMBER, "Migration state"),
        field("padcount", &["pad"], 10, 2, NUMBER, "Octets of padding"),
        field("version", &["ver"], 12, 4, NUMBER, "Version"),
        field("pkey", &[], 16, 16, NUMBER, "Partition").or(0xffff),
        field("fecn", &[], 32, 1, NUMBER, "Forward congestion"),
        field("becn", &[], 33, 1, NUMBER, "Backward congestion"),
        field("dqpn", &["qp"], 40, 24, NUMBER, "Destination's queue pair").or(1),
        field("ackreq", &["a"], 64, 1, NUMBER, "An acknowledgment is requested"),
        field("psn", &[], 72, 24, NUMBER, "Packet sequence number"),
        field("icrc", &[], 0, 32, Checksum, "Invariant CRC, the packet's last 4 octets")
            .when(Presence::End),
    ],
    chosen_by: &[(Space::Udp, 4791)],
    chooses: Some(Space::Bth),
    sum: Sum::Icrc,
    looks: |octets| octets[1] & 15 == 0,
    ..PLAIN
};

pub(crate) static RETH: HeaderDef = HeaderDef {
    name: "reth",
    title: "RDMA extended transport header (InfiniBand 1.4 §9.3)",
    min_len: 16,
    fields: &[
        field("va", &["address"], 0, 64, NUMBER, "Virtual address"),
        field("rkey", &["key"], 64, 32, NUMBER, "Remote key"),
        field("dlen", &["dma_length"], 96, 32, NUMBER, "Octets of the message").counts("octets"),
    ],
    chosen_by: &[(Space::Bth, 10), (Space::Bth, 6), (Space::Bth, 12)],
    ..PLAIN
};

pub(crate) static AETH: HeaderDef = HeaderDef {
    name: "aeth",
    title: "Acknowledgment extended transport header (InfiniBand 1.4 §9.3)",
    min_len: 4,
    fields: &[
        field("syndrome", &[], 0, 8, NUMBER, "Acknowledgment, or the reason of a negative one"),
        field("msn", &[], 8, 24, NUMBER, "Message sequence number"),
    ],
    chosen_by: &[(Space::Bth, 17), (Space::Bth, 16)],
    ..PLAIN
};

pub(crate) static CNP: HeaderDef = HeaderDef {
    name: "cnp",
    title: "Congestion notification of RoCEv2 (InfiniBand annex A17)",
    min_len: 16,
    fields: &[field("reserved", &[], 0, 128, NUMBER, "Reserved")],
    chosen_by: &[(Space::Bth, 0x81)],
    ..PLAIN
};

pub(crate) static SCTP: HeaderDef = HeaderDef {
    name: "sctp",
    title: "Stream control transmission protocol, the common header (RFC 9260 §3.1)",
    min_len: 12,
    fields: &[
        field("sport", &["src_port"], 0, 16, NUMBER, "Source port").or(49184),
        field("dport", &["dst_port"], 16, 16, NUMBER, "Destination port").or(9),
        field("tag", &["vtag", "verification_tag"], 32, 32, NUMBER, "Verification tag").or(1),
        field("checksum", &["chksum", "csum"], 64, 32, Checksum, "CRC32c over the packet"),
    ],
    chosen_by: &[(Space::Ip, 132)],
    chooses: Some(Space::Sctp),
    peeks: true,
    sum: Sum::Crc32c,
    ..PLAIN
};

/// Types of chunks (RFC 9260 §3.2).
const CHUNKS: &[(&str, u64)] = &[
    ("data", 0),
    ("init", 1),
    ("init-ack", 2),
    ("sack", 3),
    ("heartbeat", 4),
    ("heartbeat-ack", 5),
    ("abort", 6),
    ("shutdown", 7),
    ("shutdown-ack", 8),
    ("error", 9),
    ("cookie-echo", 10),
    ("cookie-ack", 11),
    ("shutdown-complete", 14),
];

const CHUNK_TYPE: FieldDef = field("type", &[], 0, 8, Number(CHUNKS), "Type of the chunk");
const CHUNK_LENGTH: FieldDef =
    field("length", &["len"], 16, 16, Length, "Octets of the chunk, without padding")
        .counts("octets");

pub(crate) static SCTP_DATA: HeaderDef = HeaderDef {
    name: "sctp_data",
    title: "SCTP DATA chunk (RFC 9260 §3.3.1); payload in multiples of 4 octets",
    min_len: 16,
    fields: &[
        CHUNK_TYPE,
        field(
            "flags",
            &[],
            8,
            8,
            Flags(&[("E", 1), ("B", 2), ("U", 4), ("I", 8)]),
            "End of a message, begin of a message, unordered, immediate",
        )
        .or(3),
        CHUNK_LENGTH,
        field("tsn", &[], 32, 32, NUMBER, "Transmission sequence number"),
        field("stream", &["stream_id", "sid"], 64, 16, NUMBER, "Stream"),
        field("seq", &["stream_seq", "ssn"], 80, 16, NUMBER, "Sequence number in the stream"),
        field("ppid", &["proto_id"], 96, 32, NUMBER, "Payload protocol"),
    ],
    chosen_by: &[(Space::Sctp, 0)],
    counts: Some(("length", 0)),
    looks: |octets| octets[0] == 0,
    ..PLAIN
};

pub(crate) static SCTP_INIT: HeaderDef = HeaderDef {
    name: "sctp_init",
    title: "SCTP INIT or INIT ACK chunk (RFC 9260 §3.3.2); parameters as payload",
    min_len: 20,
    fields: &[
        field("type", &[], 0, 8, Number(CHUNKS), "Type of the chunk: init or init-ack").or(1),
        field("flags", &[], 8, 8, NUMBER, "Flags"),
        CHUNK_LENGTH,
        field("tag", &["init_tag"], 32, 32, NUMBER, "Initiate tag").or(1),
        field("a_rwnd", &["rwnd"], 64, 32, NUMBER, "Receiver window").or(65_536).counts("octets"),
        field("out", &["n_out_streams"], 96, 16, NUMBER, "Outbound streams").or(10),
        field("in", &["n_in_streams"], 112, 16, NUMBER, "Inbound streams").or(10),
        field("tsn", &["init_tsn"], 128, 32, NUMBER, "Initial sequence number"),
    ],
    chosen_by: &[(Space::Sctp, 1), (Space::Sctp, 2)],
    counts: Some(("length", 0)),
    looks: |octets| matches!(octets[0], 1 | 2),
    ..PLAIN
};

pub(crate) static SCTP_SACK: HeaderDef = HeaderDef {
    name: "sctp_sack",
    title: "SCTP SACK chunk, without gaps and duplicates (RFC 9260 §3.3.4)",
    min_len: 16,
    fields: &[
        field("type", &[], 0, 8, Number(CHUNKS), "Type of the chunk").or(3),
        field("flags", &[], 8, 8, NUMBER, "Flags"),
        CHUNK_LENGTH,
        field("tsn", &["cumul_tsn_ack"], 32, 32, NUMBER, "Cumulative acknowledgment"),
        field("a_rwnd", &["rwnd"], 64, 32, NUMBER, "Receiver window").or(65_536).counts("octets"),
        field("gaps", &["n_gap_ack"], 96, 16, NUMBER, "Number of gap blocks"),
        field("duplicates", &["n_dup_tsn"], 112, 16, NUMBER, "Duplicates"),
    ],
    chosen_by: &[(Space::Sctp, 3)],
    chooses: Some(Space::Sctp),
    peeks: true,
    extent: Extent::Counted { field: "length", unit: 1, plus: 0 },
    looks: |octets| octets[0] == 3,
    ..PLAIN
};

pub(crate) static SCTP_CHUNK: HeaderDef = HeaderDef {
    name: "sctp_chunk",
    title: "Any other SCTP chunk (RFC 9260 §3.2); its value as payload",
    min_len: 4,
    fields: &[
        field("type", &[], 0, 8, Number(CHUNKS), "Type of the chunk").or(4),
        field("flags", &[], 8, 8, NUMBER, "Flags"),
        CHUNK_LENGTH,
    ],
    chosen_by: &[
        (Space::Sctp, 4),
        (Space::Sctp, 5),
        (Space::Sctp, 6),
        (Space::Sctp, 7),
        (Space::Sctp, 8),
        (Space::Sctp, 9),
        (Space::Sctp, 10),
        (Space::Sctp, 11),
        (Space::Sctp, 14),
    ],
    counts: Some(("length", 0)),
    ..PLAIN
};

pub(crate) static CFM: HeaderDef = HeaderDef {
    name: "cfm",
    title: "Connectivity fault management, the common header (IEEE 802.1Q clause 21)",
    min_len: 4,
    fields: &[
        field("level", &["mel", "md_level"], 0, 3, NUMBER, "Maintenance domain level"),
        field("version", &["ver"], 3, 5, NUMBER, "Version"),
        field("opcode", &["op"], 8, 8, Next(&[]), "Opcode; 1 before ccm").or(1),
        field("flags", &[], 16, 8, NUMBER, "Flags; in a CCM, its interval").or(4),
        field("offset", &["tlv_offset"], 24, 8, NUMBER, "Octets to the first TLV").or(70),
    ],
    chosen_by: &[(Space::EtherType, 0x8902)],
    chooses: Some(Space::Cfm),
    ..PLAIN
};

pub(crate) static CCM: HeaderDef = HeaderDef {
    name: "ccm",
    title: "Continuity check (IEEE 802.1Q §21.6), with an empty domain name and a short name of 4 \
            octets; ends with the end TLV",
    min_len: 71,
    fields: &[
        field("seq", &["sequence"], 0, 32, NUMBER, "Sequence number"),
        field("mep", &["mepid"], 32, 16, NUMBER, "Maintenance end point").or(1),
        field("name_format", &[], 48, 8, NUMBER, "Format of the domain name; 1: none").or(1),
        field("short_format", &[], 56, 8, NUMBER, "Format of the short name; 2: text").or(2),
        field("short_length", &[], 64, 8, NUMBER, "Its length").or(4).counts("octets"),
        field("short_name", &["name"], 72, 32, NUMBER, "Short name, 4 octets").or(0x7465_7374),
        field("end", &[], 560, 8, NUMBER, "The end TLV"),
    ],
    chosen_by: &[(Space::Cfm, 1)],
    ..PLAIN
};

pub(crate) static GTP2: HeaderDef = HeaderDef {
    name: "gtpv2",
    aliases: &["gtp_c", "gtpc"],
    title: "GPRS tunneling protocol, control plane (3GPP TS 29.274)",
    min_len: 4,
    fields: &[
        field("version", &["ver"], 0, 3, NUMBER, "Version").or(2),
        field("p", &["piggybacked"], 3, 1, NUMBER, "Another message follows"),
        field("t", &[], 4, 1, NUMBER, "The tunnel identifier is present; 0 in an echo").or(1),
        field(
            "type",
            &["gtp_type", "message"],
            8,
            8,
            Number(&[
                ("echo-request", 1),
                ("echo-response", 2),
                ("create-session-request", 32),
                ("create-session-response", 33),
                ("modify-bearer-request", 34),
                ("modify-bearer-response", 35),
                ("delete-session-request", 36),
                ("delete-session-response", 37),
            ]),
            "Message type",
        )
        .or(32),
        field("length", &["len"], 16, 16, Length, "Octets after the first 4").counts("octets"),
        field("teid", &[], 0, 32, NUMBER, "Tunnel endpoint identifier")
            .when(Presence::Flag { mask: 8, sets: 8 }),
        field("seq", &["sequence"], 0, 24, NUMBER, "Sequence number").when(Presence::After),
        field("spare", &[], 0, 8, NUMBER, "Spare").when(Presence::After),
        field(
            "elements",
            &["ies", "options"],
            0,
            0,
            Options(OptionSet::Tlv(&GTP2_ELEMENTS)),
            "Information elements",
        ),
    ],
    chosen_by: &[(Space::Udp, 2123)],
    extent: Extent::List,
    counts: Some(("length", 4)),
    looks: |octets| octets[0] >> 5 == 2 && octets[0] & 7 == 0,
    ..PLAIN
};

static GTP2_ELEMENTS: Tlv = Tlv {
    defs: &[
        option(
            "imsi",
            1,
            Value(&[Part::Octets]),
            "IMSI, with the digits of each octet swapped: hex(00010121436587f9)",
        ),
        option("cause", 2, Value(&[U8, U8]), "Cause (16: accepted), and flags of its origin"),
        option("recovery", 3, Value(&[U8]), "Restart counter"),
        option("apn", 71, Value(&[Part::Octets]), "Access point name, as labels"),
        option("ambr", 72, Value(&[U32, U32]), "Aggregate rates up and down, kbit/s"),
        option("ebi", 73, Value(&[U8]), "Bearer"),
        option("address", 74, Value(&[Part::Ipv4]), "IP address"),
        option("mei", 75, Value(&[Part::Octets]), "Mobile equipment"),
        option("msisdn", 76, Value(&[Part::Octets]), "Subscriber's number"),
        option("paa", 79, Value(&[U8, Part::Ipv4]), "Type (1: IPv4) and address of the session"),
        option("rat-type", 82, Value(&[U8]), "Access technology; 6: E-UTRAN"),
        option("f-teid", 87, Value(&[U8, U32, Part::Ipv4]), "0x80 and interface, TEID, address"),
        option("pdn-type", 99, Value(&[U8]), "Type of the session; 1: IPv4"),
        option("apn-restriction", 127, Value(&[U8]), "Restriction"),
        option("selection-mode", 128, Value(&[U8]), "Selection mode"),
    ],
    head: Head::TypeLengthZero(1, 2),
    ..PLAIN_TLV
};

pub(crate) static PDU_SESSION: HeaderDef = HeaderDef {
    name: "pdu_session",
    title: "PDU session container, an extension header of GTP-U (3GPP TS 38.415)",
    min_len: 4,
    fields: &[
        field("length", &["len"], 0, 8, Length, "Header length in units of 4 octets")
            .counts("4 octets"),
        field("type", &[], 8, 4, Number(&[("downlink", 0), ("uplink", 1)]), "Direction"),
        field("qfi", &[], 18, 6, NUMBER, "QoS flow").or(9),
        GTP_NEXT,
    ],
    carries: &["ipv4", "ipv6"],
    chosen_by: &[(Space::GtpExtension, 0x85)],
    chooses: Some(Space::GtpExtension),
    extent: Extent::Counted { field: "length", unit: 4, plus: 0 },
    looks: |octets| octets[0] == 1,
    ..PLAIN
};

const GTP_NEXT: FieldDef = field(
    "next",
    &["next_ext", "next_ex"],
    24,
    8,
    Next(&[("ipv4", 0), ("ipv6", 0)]),
    "Type of the next extension header; 0: none",
);

pub(crate) static GTP_EXT: HeaderDef = HeaderDef {
    name: "gtp_ext",
    title: "Other GTP-U extension headers of 4 octets (3GPP TS 29.281 §5.2): a PDCP number; with \
            gtpu(next_ext=0x40) a UDP port",
    min_len: 4,
    fields: &[
        field("length", &["len"], 0, 8, Length, "Header length in units of 4 octets")
            .counts("4 octets"),
        field("content", &["value"], 8, 16, NUMBER, "Content"),
        GTP_NEXT,
    ],
    carries: &["ipv4", "ipv6"],
    chosen_by: &[
        (Space::GtpExtension, 0xc0),
        (Space::GtpExtension, 0x40),
        (Space::GtpExtension, 0x20),
    ],
    chooses: Some(Space::GtpExtension),
    extent: Extent::Counted { field: "length", unit: 4, plus: 0 },
    looks: |octets| octets[0] == 1,
    ..PLAIN
};

pub(crate) static CAPWAP: HeaderDef = HeaderDef {
    name: "capwap",
    title: "Control and provisioning of wireless access points, data header (RFC 5415 §4.3)",
    min_len: 8,
    fields: &[
        field("version", &["ver"], 0, 4, NUMBER, "Version"),
        field("type", &[], 4, 4, NUMBER, "Type; 0: cleartext follows"),
        field("hlen", &["length"], 8, 5, Length, "Header length in units of 4 octets")
            .counts("4 octets"),
        field("rid", &["radio"], 13, 5, NUMBER, "Radio").or(1),
        field("wbid", &["binding"], 18, 5, NUMBER, "Wireless binding; 1: 802.11").or(1),
        field("flags", &[], 23, 9, NUMBER, "Flags T, F, L, W, M, K and reserved bits"),
        field("frag_id", &["fragment_id"], 32, 16, NUMBER, "Fragment"),
        field("frag_offset", &["offset"], 48, 13, NUMBER, "Fragment offset in units of 8 octets")
            .counts("8 octets"),
    ],
    carries: &["eth"],
    chosen_by: &[(Space::Udp, 5247)],
    extent: Extent::Counted { field: "hlen", unit: 4, plus: 0 },
    follows: Some("eth"),
    // An unencrypted message that contains an Ethernet frame.
    looks: |octets| octets[0] == 0 && octets[2] & 1 == 0,
    ..PLAIN
};

pub(crate) static DNS: HeaderDef = HeaderDef {
    name: "dns",
    title: "Domain name system (RFC 1035 §4.1)",
    min_len: 12,
    fields: &[
        field("id", &["identifier"], 0, 16, NUMBER, "Identifier"),
        field("qr", &[], 16, 1, NUMBER, "1: an answer"),
        field("opcode", &[], 17, 4, NUMBER, "Type of query"),
        field("aa", &[], 21, 1, NUMBER, "Authoritative"),
        field("tc", &[], 22, 1, NUMBER, "Truncated"),
        field("rd", &[], 23, 1, NUMBER, "Recursion is desired").or(1),
        field("ra", &[], 24, 1, NUMBER, "Recursion is available"),
        field("z", &[], 25, 1, NUMBER, "Reserved"),
        field("ad", &[], 26, 1, NUMBER, "Authentic data"),
        field("cd", &[], 27, 1, NUMBER, "Checking is disabled"),
        field("rcode", &[], 28, 4, NUMBER, "Response code"),
        field("qdcount", &["questions"], 32, 16, Length, "Questions"),
        field("ancount", &["answers"], 48, 16, Length, "Answers"),
        field("nscount", &["authorities"], 64, 16, NUMBER, "Authorities"),
        field("arcount", &["additionals"], 80, 16, NUMBER, "Number of additional records"),
        field(
            "records",
            &["options"],
            0,
            0,
            Options(OptionSet::Tlv(&DNS_RECORDS)),
            "Questions, then answers; other records as hex(...)",
        ),
    ],
    chosen_by: &[(Space::Udp, 53), (Space::Udp, 5353)],
    extent: Extent::List,
    usual: "query-a(\"example.com\")",
    // Few sections with few entries each: random octets must not be taken for DNS.
    looks: |octets| octets[4] == 0 && octets[5] <= 8 && octets[6] == 0 && octets[8] == 0,
    ..PLAIN
};

/// A question of class IN, with its count.
macro_rules! question {
    ($name:literal, $kind:literal, $doc:literal) => {
        option($name, 0, Value(&[Part::Name, Part::Fixed(2, $kind), Part::Fixed(2, 1)]), $doc)
            .counted("qdcount")
    };
}

/// A record of class IN with its TTL, counted as an answer.
macro_rules! answer {
    ($name:literal, $kind:literal, [$($part:expr),*], $doc:literal) => {
        option(
            $name,
            0,
            Value(&[
                Part::Name, Part::Fixed(2, $kind), Part::Fixed(2, 1), U32, Part::Octets16, $($part),*
            ]),
            $doc,
        )
        .counted("ancount")
    };
}

/// Answers are tried first, because the beginning of an answer is also a valid question.
static DNS_RECORDS: Tlv = Tlv {
    defs: &[
        answer!("a", 1, [Part::Ipv4], "Name, lifetime in seconds, and address"),
        answer!("aaaa", 28, [Part::Ipv6], "Name, lifetime in seconds, and address"),
        answer!("cname", 5, [Part::Name], "Name, lifetime in seconds, and canonical name"),
        answer!("ns", 2, [Part::Name], "Zone, lifetime in seconds, and name server"),
        answer!("ptr", 12, [Part::Name], "Name, lifetime in seconds, and target"),
        answer!("mx", 15, [U16, Part::Name], "Domain, lifetime in seconds, preference and host"),
        answer!(
            "srv",
            33,
            [U16, U16, U16, Part::Name],
            "Name, lifetime in seconds, priority, weight, port, host"
        ),
        answer!(
            "txt",
            16,
            [Part::Octets],
            "Name, lifetime in seconds, and texts, each after its length"
        ),
        question!("query-a", 1, "Question for an IPv4 address"),
        question!("query-aaaa", 28, "Question for an IPv6 address"),
        question!("query-cname", 5, "Question for a canonical name"),
        question!("query-ns", 2, "Question for name servers"),
        question!("query-ptr", 12, "Question for a pointer"),
        question!("query-mx", 15, "Question for mail hosts"),
        question!("query-txt", 16, "Question for texts"),
        question!("query-srv", 33, "Question for services"),
        question!("query-any", 255, "Question for all records"),
        option(
            "query",
            0,
            Value(&[Part::Name, U16, Part::Fixed(2, 1)]),
            "Question with the number of its type",
        )
        .counted("qdcount"),
    ],
    head: Head::None,
    known: true,
    ..PLAIN_TLV
};

pub(crate) static IGMP3_QUERY: HeaderDef = HeaderDef {
    name: "igmp3_query",
    title: "Additional part of an IGMPv3 query (RFC 3376 §4.1); after igmp(type=query)",
    min_len: 2,
    fields: &[
        field("s", &[], 4, 1, NUMBER, "Suppress router-side processing"),
        field("qrv", &[], 5, 3, NUMBER, "Querier's robustness variable").or(2),
        field("qqic", &[], 8, 8, NUMBER, "Querier's query interval").or(125).counts("s"),
        field(
            "sources",
            &["srcaddrs"],
            0,
            0,
            Options(OptionSet::Tlv(&IGMP_SOURCES)),
            "Sources, with their number",
        ),
    ],
    extent: Extent::List,
    usual: "sources",
    ..PLAIN
};

static IGMP_SOURCES: Tlv = Tlv {
    defs: &[option("sources", 0, Value(&[Part::Addresses16, Part::Ipv4s]), "Source addresses")],
    head: Head::None,
    known: true,
    ..PLAIN_TLV
};

pub(crate) static MLD2_QUERY: HeaderDef = HeaderDef {
    name: "mld2_query",
    title: "Additional part of an MLDv2 query (RFC 3810 §5.1); after icmpv6(type=mld-query)",
    min_len: 2,
    fields: &[
        field("s", &[], 4, 1, NUMBER, "Suppress router-side processing"),
        field("qrv", &[], 5, 3, NUMBER, "Querier's robustness variable").or(2),
        field("qqic", &[], 8, 8, NUMBER, "Querier's query interval").or(125).counts("s"),
        field(
            "sources",
            &[],
            0,
            0,
            Options(OptionSet::Tlv(&MLD_SOURCES)),
            "Sources, with their number",
        ),
    ],
    extent: Extent::List,
    usual: "sources",
    ..PLAIN
};

static MLD_SOURCES: Tlv = Tlv {
    defs: &[option("sources", 0, Value(&[Part::Addresses16, Part::Ipv6s]), "Source addresses")],
    head: Head::None,
    known: true,
    ..PLAIN_TLV
};

/// The length of auxiliary data, between the type and the number of sources, is always 0.
const IGMP_RECORD: OptionForm =
    Value(&[Part::Fixed(1, 0), Part::Addresses16, Part::Ipv4, Part::Ipv4s]);
const MLD_RECORD: OptionForm =
    Value(&[Part::Fixed(1, 0), Part::Addresses16, Part::Ipv6, Part::Ipv6s]);

const fn records(form: OptionForm) -> [OptionDef; 6] {
    [
        option("is-include", 1, form, "A group, and the sources to listen to").counted("count"),
        option("is-exclude", 2, form, "A group, and the sources to exclude").counted("count"),
        option("to-include", 3, form, "Change to only these sources; without sources: leave")
            .counted("count"),
        option("to-exclude", 4, form, "Change to all sources but these; without sources: join")
            .counted("count"),
        option("allow", 5, form, "Add these sources").counted("count"),
        option("block", 6, form, "Remove these sources").counted("count"),
    ]
}

pub(crate) static IGMP_RECORDS: Tlv =
    Tlv { defs: &IGMP_DEFS, head: Head::Type(1), known: true, ..PLAIN_TLV };
static IGMP_DEFS: [OptionDef; 6] = records(IGMP_RECORD);

pub(crate) static MLD_RECORDS: Tlv =
    Tlv { defs: &MLD_DEFS, head: Head::Type(1), known: true, ..PLAIN_TLV };
static MLD_DEFS: [OptionDef; 6] = records(MLD_RECORD);

static RSVP_OBJECTS: Tlv = Tlv {
    defs: &[
        option(
            "session",
            0x0101,
            Value(&[Part::Ipv4, U8, U8, U16]),
            "Destination, protocol, flags, port",
        ),
        option(
            "lsp-session",
            0x0107,
            Value(&[Part::Ipv4, Part::Fixed(2, 0), U16, Part::Ipv4]),
            "Tunnel endpoint, tunnel ID, and extended tunnel ID",
        ),
        option("hop", 0x0301, Value(&[Part::Ipv4, U32]), "Previous or next hop, and its interface"),
        option("time", 0x0501, Value(&[U32]), "Refresh period in ms"),
        option("error", 0x0601, Value(&[Part::Ipv4, U8, U8, U16]), "Node, flags, code and value"),
        option("style", 0x0801, Value(&[U32]), "Style; 10: fixed filter, 18: shared explicit"),
        option("filter", 0x0a01, Value(&[Part::Ipv4, Part::Fixed(2, 0), U16]), "Sender and port"),
        option(
            "lsp-filter",
            0x0a07,
            Value(&[Part::Ipv4, Part::Fixed(2, 0), U16]),
            "Sender and LSP",
        ),
        option("sender", 0x0b01, Value(&[Part::Ipv4, Part::Fixed(2, 0), U16]), "Sender and port"),
        option(
            "lsp-sender",
            0x0b07,
            Value(&[Part::Ipv4, Part::Fixed(2, 0), U16]),
            "Sender and LSP",
        ),
        option("tspec", 0x0c02, Value(&[Part::Octets]), "Sender's traffic (RFC 2210)"),
        option("label", 0x1001, Value(&[U32]), "Label (RFC 3209)"),
        option(
            "label-request",
            0x1301,
            Value(&[Part::Fixed(2, 0), U16]),
            "EtherType of the carried packets",
        ),
        option("route", 0x1401, Value(&[Part::Octets]), "Explicit route"),
    ],
    head: Head::LengthType(2, 2),
    whole: true,
    unit: 4,
    ..PLAIN_TLV
};

pub(crate) static DHCP: HeaderDef = HeaderDef {
    name: "dhcp",
    aliases: &["bootp", "dhcpv4"],
    title: "Dynamic host configuration for IPv4 (RFC 2131, RFC 2132)",
    min_len: 240,
    fields: &[
        field("op", &[], 0, 8, Number(&[("request", 1), ("reply", 2)]), "Operation").or(1),
        field("htype", &[], 8, 8, NUMBER, "Hardware type").or(1),
        field("hlen", &[], 16, 8, NUMBER, "Octets of a hardware address").or(6).counts("octets"),
        field("hops", &[], 24, 8, NUMBER, "Number of relays passed"),
        field("xid", &[], 32, 32, NUMBER, "Transaction"),
        field("secs", &[], 64, 16, NUMBER, "Time since the client began").counts("s"),
        field("flags", &[], 80, 16, Flags(&[("B", 0x8000)]), "B: answer by broadcast"),
        field("ciaddr", &[], 96, 32, Ipv4, "Client's address"),
        field("yiaddr", &[], 128, 32, Ipv4, "Your address"),
        field("siaddr", &[], 160, 32, Ipv4, "Next server's address"),
        field("giaddr", &[], 192, 32, Ipv4, "Relay's address"),
        field("chaddr", &[], 224, 48, Mac, "Client's hardware address").or(MAC_1),
        field("cookie", &["magic"], 1888, 32, NUMBER, "Magic cookie").or(0x6382_5363),
        field(
            "options",
            &["opts"],
            0,
            0,
            Options(OptionSet::Tlv(&DHCP_OPTIONS)),
            "Options; the end is added",
        ),
    ],
    chosen_by: &[(Space::Udp, 67), (Space::Udp, 68)],
    extent: Extent::List,
    usual: "message-type(1)",
    looks: |octets| octets[236..240] == [0x63, 0x82, 0x53, 0x63],
    ..PLAIN
};

pub(crate) static DHCP6: HeaderDef = HeaderDef {
    name: "dhcpv6",
    aliases: &["dhcp6"],
    title: "Dynamic host configuration for IPv6 (RFC 8415)",
    min_len: 4,
    fields: &[
        field(
            "type",
            &["msgtype"],
            0,
            8,
            Number(&[
                ("solicit", 1),
                ("advertise", 2),
                ("request", 3),
                ("reply", 7),
                ("release", 8),
            ]),
            "Message type",
        )
        .or(1),
        field("xid", &["trid", "transaction"], 8, 24, NUMBER, "Transaction"),
        field("options", &["opts"], 0, 0, Options(OptionSet::Tlv(&DHCP6_OPTIONS)), "Options"),
    ],
    chosen_by: &[(Space::Udp, 547), (Space::Udp, 546)],
    extent: Extent::List,
    looks: |octets| matches!(octets[0], 1..=11),
    ..PLAIN
};

static PPPOE_TAGS: Tlv = Tlv {
    defs: &[
        option("service-name", 0x0101, Value(&[Part::Text]), "Service"),
        option("ac-name", 0x0102, Value(&[Part::Text]), "Access concentrator"),
        option("host-uniq", 0x0103, Value(&[U32]), "Unique value of the host, 4 octets"),
        option("relay-session-id", 0x0110, Value(&[Part::Text]), "Relay's session"),
    ],
    head: Head::TypeLength(2, 2),
    ..PLAIN_TLV
};

static LCP_OPTIONS: Tlv = Tlv {
    defs: &[
        option("mru", 1, Value(&[U16]), "Maximum receive unit"),
        option("auth", 3, Value(&[U16]), "Authentication protocol: 0xc023 is PAP"),
        option("magic", 5, Value(&[U32]), "Magic number"),
        option("pfc", 7, Value(&[]), "Protocol field compression"),
        option("acfc", 8, Value(&[]), "Address and control field compression"),
    ],
    whole: true,
    ..PLAIN_TLV
};

static IPCP_OPTIONS: Tlv = Tlv {
    defs: &[
        option("address", 3, Value(&[Part::Ipv4s]), "Address"),
        option("dns1", 129, Value(&[Part::Ipv4s]), "Primary name server (RFC 1877)"),
        option("dns2", 131, Value(&[Part::Ipv4s]), "Secondary name server (RFC 1877)"),
    ],
    whole: true,
    ..PLAIN_TLV
};

static DHCP_OPTIONS: Tlv = Tlv {
    defs: &[
        option(
            "message-type",
            53,
            Value(&[U8]),
            "1 DISCOVER, 2 OFFER, 3 REQUEST, 5 ACK, 7 RELEASE",
        ),
        option("subnet-mask", 1, Value(&[Part::Ipv4s]), "Subnet mask"),
        option("router", 3, Value(&[Part::Ipv4s]), "Routers"),
        option("dns", 6, Value(&[Part::Ipv4s]), "Name servers"),
        option("hostname", 12, Value(&[Part::Text]), "Client's name"),
        option("domain", 15, Value(&[Part::Text]), "Domain"),
        option("requested-address", 50, Value(&[Part::Ipv4s]), "Requested address"),
        option("lease-time", 51, Value(&[U32]), "Lease time in seconds"),
        option("server-id", 54, Value(&[Part::Ipv4s]), "Server"),
        option("renewal-time", 58, Value(&[U32]), "T1, s"),
        option("rebinding-time", 59, Value(&[U32]), "T2, s"),
        option("vendor-class", 60, Value(&[Part::Text]), "Vendor class"),
        option("client-id", 61, Value(&[U8, Part::Mac]), "Hardware type and address"),
    ],
    end: &[255],
    ..PLAIN_TLV
};

static DHCP6_OPTIONS: Tlv = Tlv {
    defs: &[
        option("client-id", 1, Value(&[U16, U16, Part::Mac]), "DUID: 3, hardware type, address"),
        option("server-id", 2, Value(&[U16, U16, Part::Mac]), "DUID: 3, hardware type, address"),
        option("ia-na", 3, Value(&[U32, U32, U32]), "IAID, T1 and T2, without addresses"),
        option("oro", 6, Value(&[U16]), "One requested option"),
        option("preference", 7, Value(&[U8]), "Preference"),
        option("elapsed-time", 8, Value(&[U16]), "Elapsed time, 10 ms"),
        option("rapid-commit", 14, Value(&[]), "Rapid commit"),
        option("ia-pd", 25, Value(&[U32, U32, U32]), "IAID, T1 and T2, without prefixes"),
    ],
    head: Head::TypeLength(2, 2),
    ..PLAIN_TLV
};

pub(crate) static LLDP: HeaderDef = HeaderDef {
    name: "lldp",
    title: "Link layer discovery (IEEE 802.1AB); after eth(dst=01:80:c2:00:00:0e)",
    fields: &[field(
        "tlvs",
        &["options"],
        0,
        0,
        Options(OptionSet::Tlv(&LLDP_TLVS)),
        "TLVs; the end is added. Without TLVs: a chassis, a port, 120 s",
    )],
    chosen_by: &[(Space::EtherType, 0x88cc)],
    extent: Extent::List,
    usual: "[chassis(4,02:00:00:00:00:01),port(3,02:00:00:00:00:01),ttl(120)]",
    ..PLAIN
};

static LLDP_TLVS: Tlv = Tlv {
    defs: &[
        option("chassis", 1, Value(&[U8, Part::Mac]), "Subtype (4: MAC address) and chassis"),
        option("port", 2, Value(&[U8, Part::Mac]), "Subtype (3: MAC address) and port"),
        option("ttl", 3, Value(&[U16]), "Time to live in seconds"),
        option("port-description", 4, Value(&[Part::Text]), "Port's description"),
        option("system-name", 5, Value(&[Part::Text]), "System's name"),
        option("system-description", 6, Value(&[Part::Text]), "System's description"),
        option("capabilities", 7, Value(&[U16, U16]), "Capabilities, and enabled capabilities"),
    ],
    head: Head::Packed,
    end: &[0, 0],
    ..PLAIN_TLV
};

/// Neighbor discovery: RFC 4861 §4.6, RFC 8106.
pub(crate) static ND_OPTIONS: Tlv = Tlv {
    defs: &[
        option("source", 1, Value(&[Part::Mac]), "Source link-layer address"),
        option("target-link", 2, Value(&[Part::Mac]), "Target link-layer address"),
        option(
            "prefix",
            3,
            Value(&[U8, U8, U32, U32, U32, Part::Ipv6]),
            "Prefix: its length, flags (0xc0: on-link, autonomous), valid and preferred lifetime \
             in seconds, 0, and the prefix",
        ),
        option("mtu", 5, Value(&[U16, U32]), "0, and the MTU"),
        option("redirected", 4, Value(&[Part::Fixed(6, 0), Part::Octets]), "The redirected packet"),
        option(
            "dnssl",
            31,
            Value(&[Part::Fixed(2, 0), U32, Part::Name]),
            "Lifetime in seconds, and a domain",
        ),
        option(
            "rdnss",
            25,
            Value(&[U16, U32, Part::Ipv6]),
            "0, lifetime in seconds, and a name server",
        ),
    ],
    whole: true,
    unit: 8,
    in_units: true,
    known: true,
    ..PLAIN_TLV
};
