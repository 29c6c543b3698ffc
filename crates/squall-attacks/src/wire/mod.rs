//! Turns a conversation into frames.
//!
//! ```text
//! Exchange -> conversation (packets: handshake, segments, acknowledgments, close) -> evade -> fragments -> packet (octets, checksums)
//! ```

mod conversation;
pub(crate) mod packet;
#[cfg(test)]
pub(crate) mod tests;

use std::net::IpAddr;

use squall_rules::End;
use squall_units::Nanos;

use crate::{Evasion, Exchange};

/// Addresses of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    pub client: IpAddr,
    pub server: IpAddr,
    pub client_mac: [u8; 6],
    pub server_mac: [u8; 6],
}

/// Settings for making frames.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Maximum number of octets in a TCP payload; with timestamps, 12 less. This is also the value
    /// of the MSS option in a SYN, unless its [`Shape`](crate::Shape) has another.
    pub mss: u16,
    /// Maximum number of octets in an IP packet. Longer packets are fragmented (RFC 791 §3.2, RFC
    /// 8200 §4.5). VLAN tags, sessions and tunnels do not count. Must be at least [`MIN_MTU`].
    pub mtu: u16,
    /// Time from one frame to the next.
    pub gap: Nanos,
    /// Seed for initial sequence numbers, IP identifications and echo identifiers.
    pub seed: u64,
    /// Use TCP timestamps (RFC 7323).
    pub timestamps: bool,
    /// VLAN IDs of the tags, 0 to 4095, outermost first: none, one (IEEE 802.1Q), or two, where the
    /// first is an 802.1ad tag.
    pub vlans: Vec<u16>,
    /// Whether packets of the client, and those of the server, are in a session of PPPoE (RFC
    /// 2516 §4). Its number is 0, in place of that of a host.
    pub sessions: [bool; 2],
    /// A tunnel for all packets in the conversation.
    pub gre: Option<Gre>,
    /// Changes to the way in which the frames are sent, which a detector may not follow.
    pub evasions: Vec<Evasion>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            mss: 1460,
            mtu: 1500,
            gap: Nanos(100_000),
            seed: 0,
            timestamps: false,
            vlans: vec![],
            sessions: [false; 2],
            gre: None,
            evasions: vec![],
        }
    }
}

/// Every host accepts an IPv4 packet of this length (RFC 791 §3.1), and all headers made here fit
/// into it together.
pub const MIN_MTU: u16 = 576;

/// Endpoints of a GRE tunnel (RFC 2784, without key and checksum). Both have the same IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gre {
    /// Outer source address for packets from the client. For packets from the server, source and
    /// destination are swapped.
    pub source: IpAddr,
    pub destination: IpAddr,
}

/// A frame of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Time from the conversation's first frame.
    pub at: Nanos,
    pub from: End,
    /// The Ethernet frame without FCS and padding. The sender pads short frames.
    pub octets: Vec<u8>,
}

/// The reason why a conversation cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "{one} and {other} are of different families; both ends of a conversation or tunnel \
         must be IPv4, or both IPv6"
    )]
    Families { one: IpAddr, other: IpAddr },
    #[error(
        "the conversation needs IPv{needed}, but its ends are {client} and {server}; try other \
         addresses"
    )]
    Version { needed: u8, client: IpAddr, server: IpAddr },
    #[error("{what} needs IPv4, but the ends are IPv6; try IPv4 addresses")]
    OnlyIpv4 { what: &'static str },
    #[error("IP options of {octets} octets, expected a multiple of 4, at most 40")]
    Options { octets: usize },
    #[error(
        "a packet has {octets} octets after its Ethernet header, expected at most 65535; try \
         shorter turns"
    )]
    TooLong { octets: usize },
    #[error(
        "the {field} {required} of a turn contradicts an earlier turn, after which it would be \
         {follows}"
    )]
    Sequence { field: &'static str, required: u32, follows: u32 },
    #[error("{what} need IPv6, but the ends are IPv4; try IPv6 addresses")]
    OnlyIpv6 { what: &'static str },
    #[error("settings: {0}")]
    Settings(String),
}

/// All frames of a conversation: handshake, data of both ends, acknowledgments, close.
///
/// The receiver acknowledges every second segment of a turn, and the last one, before the next turn
/// starts. The ends behave like Linux: window and options in a SYN, PSH on the last segment, DF on
/// TCP. If the shape of a turn requires sequence or acknowledgment numbers, the initial numbers of
/// the connection are chosen to produce them.
///
/// # Errors
///
/// [`Error`] if headers cannot be as the conversation, its endpoints or the settings require.
pub fn frames(
    exchange: &Exchange,
    ends: &Endpoints,
    settings: &Settings,
) -> Result<Vec<Frame>, Error> {
    let writer = packet::Writer::new(exchange, ends, settings)?;
    let packets = conversation::packets(exchange, &writer)?;
    let mut frames = Vec::with_capacity(packets.len());
    let mut at = Nanos::ZERO;
    for packet in packets {
        writer.fragments(packet, &mut |packet| {
            if !frames.is_empty() {
                at = Nanos(at.0.saturating_add(settings.gap.0));
            }
            at = Nanos(at.0.saturating_add(packet.pause.0));
            frames.push(Frame { at, from: packet.from, octets: writer.frame(&packet)? });
            Ok(())
        })?;
    }
    Ok(frames)
}
