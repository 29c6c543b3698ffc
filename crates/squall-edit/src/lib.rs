//! Edits the packets of a capture: rewrites, maps, truncates, pads or drops them.
//!
//! [`Edits`] configure an [`Editor`], which processes packets one by one. The output depends only
//! on the packets so far, the configuration, and seeds. Operations of tcprewrite have the same name
//! and meaning here.
//!
//! Only the outer headers are edited: packets in ICMP errors and in tunnels do not change. MPLS
//! labels, VLAN tags and PPPoE headers before the packet are skipped. Checksums are updated
//! incrementally (RFC 1624), so a correct one stays correct and a wrong one stays wrong, unless
//! [`Edits::fixcsum`] is set.
//! ```
//! use squall_edit::{Editor, Edits, Meta};
//!
//! let edits = Edits { pnat: vec!["10.0.0.0/8:172.16.0.0/12".parse()?], ttl: Some("-1".parse()?), ..Edits::default() };
//! let mut editor = Editor::new(&edits, 1)?;
//! # let packet = [0; 60];
//! editor.edit(&packet, Meta { time_ns: 0, wire_len: 60, number: 1, side: None }, &mut |octets, meta| {
//!     assert_eq!((octets.len(), meta.wire_len), (60, 60));
//! });
//! assert_eq!(editor.counts().packets_out, 1);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod addresses;
mod anonymize;
mod counts;
mod edit;
mod fragment;
mod frame;
mod fuzz;
mod ip;
mod link;
mod network;
mod options;
mod select;
mod sums;
mod values;

pub use addresses::set_addresses;
pub use counts::{Counts, Operation, Reason};
pub use values::{
    AddressMap, Encapsulation, Endpoints, Factor, FixLen, Key, MacPair, MacSwap, Numbers, PortMap,
    Prefix, Ttl, ValueError, Vlan, VlanMode, When,
};

pub use edit::Editor;
pub use ip::is_routed;
pub use options::{parse_shift, parse_vlan_mode, parse_when, set};
pub use sums::{Delta, TransportSum};

/// Maximum length of an edited packet, in octets: libpcap's MAXIMUM_SNAPLEN.
pub const MAX_LEN: usize = 256 << 10;

/// Configuration of an editor. Operations are applied in the order of these fields.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    /// Keep only these packets of the capture.
    pub packets: Option<Numbers>,
    /// Keep only packets captured between `from` and `to`, including both.
    pub from: Option<When>,
    pub to: Option<When>,
    /// Drop packets that equal one of the N - 1 packets before them.
    pub dedup: Option<u32>,

    /// Factor on the time since the first packet, and a shift in nanoseconds that is then added to
    /// all times.
    pub time_scale: Option<Factor>,
    pub time_shift_ns: i64,

    /// Remove the last four octets, in captures that include the FCS.
    pub efcs: bool,
    /// Append zeros in place of the uncaptured octets, up to the length on the wire.
    pub unfold: bool,

    /// Link type of the output. Packets that such a link cannot carry are dropped.
    pub dlt: Option<Encapsulation>,
    pub enet_dmac: Option<MacPair>,
    pub enet_smac: Option<MacPair>,
    /// Replace source and destination addresses; for each, the first match applies.
    pub enet_subsmac: Vec<MacSwap>,
    /// Seed of random addresses, and how many of their first octets to keep: 0..=6.
    pub enet_mac_seed: Option<u64>,
    pub enet_mac_seed_keep_bytes: u8,
    /// Keep multicast and broadcast MAC addresses.
    pub skip_l2_broadcast: bool,
    pub vlan: Option<Vlan>,

    /// Maximum length of an IP packet including its header, in octets, for `mtu_trunc` and
    /// [`FixLen::Pad`]; 1500 by default.
    pub mtu: Option<u32>,
    pub mtu_trunc: bool,
    pub fixlen: Option<FixLen>,
    /// Truncate frames to this many octets (without FCS), and adapt the lengths in IP headers.
    pub truncate: Option<u32>,
    /// Pad frames with zeros to this many octets (without FCS). Lengths in IP headers do not
    /// change.
    pub pad: Option<u32>,

    pub tos: Option<u8>,
    pub tclass: Option<u8>,
    /// IPv6 flow label, 20 bits.
    pub flowlabel: Option<u32>,
    pub ttl: Option<Ttl>,
    /// Replace ports in TCP, UDP, UDP-Lite, DCCP and SCTP.
    pub portmap: Option<PortMap>,
    /// Shift TCP sequence numbers by a random amount for each direction of a connection.
    pub tcp_sequence: Option<u64>,

    /// One map for all packets, or one per side. With two, the first applies to the client's
    /// address, whether it is the source or the destination.
    pub pnat: Vec<AddressMap>,
    pub srcipmap: Option<AddressMap>,
    pub dstipmap: Option<AddressMap>,
    pub endpoints: Option<Endpoints>,
    /// Seed of random addresses; equal addresses get equal replacements.
    pub seed: Option<u64>,
    /// Key of the prefix-preserving replacement of addresses.
    pub anonymize: Option<Key>,
    /// Keep multicast and broadcast IP addresses.
    pub skip_broadcast: bool,

    /// Seed and factor of random changes: one of `fuzz_factor` packets changes, 8 by default.
    pub fuzz_seed: Option<u64>,
    pub fuzz_factor: Option<u32>,
    pub fixcsum: bool,

    /// Fragment IP packets that exceed this many octets.
    pub fragment: Option<u32>,
    /// Keep this many octets of each packet. The length on the wire does not change.
    pub snaplen: Option<u32>,
}

impl Edits {
    /// Whether there are no edits.
    pub fn is_empty(&self) -> bool {
        !self.selects() && !self.retimes() && !self.rewrites() && !self.needs_side()
    }

    pub(crate) fn selects(&self) -> bool {
        self.packets.is_some() || self.from.is_some() || self.to.is_some() || self.dedup.is_some()
    }

    pub(crate) fn retimes(&self) -> bool {
        self.time_scale.is_some() || self.time_shift_ns != 0
    }

    pub(crate) fn rewrites(&self) -> bool {
        self.efcs
            || self.unfold
            || self.dlt.is_some()
            || self.edits_link()
            || self.edits_lengths()
            || self.edits_network()
            || self.fuzz_seed.is_some()
            || self.fixcsum
            || self.fragment.is_some()
            || self.snaplen.is_some()
    }

    pub(crate) fn edits_macs(&self) -> bool {
        self.enet_dmac.is_some()
            || self.enet_smac.is_some()
            || !self.enet_subsmac.is_empty()
            || self.enet_mac_seed.is_some()
    }

    pub(crate) fn edits_link(&self) -> bool {
        self.edits_macs() || self.vlan.is_some()
    }

    pub(crate) fn edits_lengths(&self) -> bool {
        self.mtu_trunc || self.fixlen.is_some() || self.truncate.is_some() || self.pad.is_some()
    }

    pub(crate) fn edits_addresses(&self) -> bool {
        !self.pnat.is_empty()
            || self.srcipmap.is_some()
            || self.dstipmap.is_some()
            || self.endpoints.is_some()
            || self.seed.is_some()
            || self.anonymize.is_some()
    }

    pub(crate) fn edits_network(&self) -> bool {
        self.edits_addresses()
            || self.tos.is_some()
            || self.tclass.is_some()
            || self.flowlabel.is_some()
            || self.ttl.is_some()
            || self.portmap.is_some()
            || self.tcp_sequence.is_some()
    }

    /// Whether the edits depend on which side sent a packet.
    pub fn needs_side(&self) -> bool {
        let two = |pair: Option<MacPair>| pair.is_some_and(|pair| pair.server.is_some());
        two(self.enet_dmac)
            || two(self.enet_smac)
            || self.pnat.len() > 1
            || self.endpoints.is_some()
    }
}

/// Facts about a packet that its octets do not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Octets on the wire, without FCS; at least the number of captured octets.
    pub wire_len: u32,
    /// Number of the packet in the capture (1-based).
    pub number: u64,
    /// The sender's side; `None`: it is determined if needed. Then a host that sends a SYN is the
    /// client; without a SYN, the host that sent the first packet.
    pub side: Option<Side>,
}

/// The side that sent a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    Client,
    Server,
}

/// Contradictory edits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--{option}: {text}")]
pub struct EditError {
    /// The option's name on the command line, without dashes.
    pub option: &'static str,
    pub text: String,
}
