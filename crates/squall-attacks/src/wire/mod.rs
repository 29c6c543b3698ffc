//! From a conversation to frames.
//!
//! ```text
//! Exchange -> talk (packets: handshake, segments, acknowledgments, close) -> evade -> fragments -> packet (octets, checksums)
//! ```

pub(crate) mod packet;
mod talk;
#[cfg(test)]
pub(crate) mod tests;

use std::net::IpAddr;

use squall_rules::End;
use squall_units::Nanos;

use crate::{Evasion, Exchange};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    pub client: IpAddr,
    pub server: IpAddr,
    pub client_mac: [u8; 6],
    pub server_mac: [u8; 6],
}

/// How frames are made.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Octets of a TCP payload at most; with time stamps, 12 less. What a SYN offers, unless a
    /// [`Shape`](crate::Shape) says otherwise.
    pub mss: u16,
    /// Octets of an IP packet at most: what is longer leaves in fragments (RFC 791 §3.2, RFC 8200
    /// §4.5). Tags and tunnels come on top. At least [`LEAST_MTU`].
    pub mtu: u16,
    /// From a frame to the next.
    pub gap: Nanos,
    /// Of initial sequence numbers, IP identifiers, numbers of echoes.
    pub seed: u64,
    /// TCP segments have time stamps (RFC 7323).
    pub timestamps: bool,
    /// VLANs of the tags, 0 to 4095, from the outermost inwards: none, one (IEEE 802.1Q), or two,
    /// the first of them then of 802.1ad.
    pub vlans: Vec<u16>,
    /// A tunnel around all packets.
    pub gre: Option<Gre>,
    /// Ways to send it that who listens may not follow.
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
            gre: None,
            evasions: vec![],
        }
    }
}

/// What every host takes of IPv4 (RFC 791 §3.1) and more than all headers together that are made
/// here.
pub const LEAST_MTU: u16 = 576;

/// Ends of a tunnel (RFC 2784, without key and checksum); both of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gre {
    /// Of the packets that the client sends; those of the server go the other way.
    pub source: IpAddr,
    pub destination: IpAddr,
}

/// A frame of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// From the conversation's first frame.
    pub at: Nanos,
    pub from: End,
    /// Ethernet, without FCS, and without padding: short ones are padded by whoever sends them.
    pub octets: Vec<u8>,
}

/// Why a conversation cannot be sent so.
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
        "the {field} {asked} of a turn contradicts an earlier turn, after which it would be \
         {follows}"
    )]
    Sequence { field: &'static str, asked: u32, follows: u32 },
    #[error("{what} need IPv6, but the ends are IPv4; try IPv6 addresses")]
    OnlyIpv6 { what: &'static str },
    #[error("settings: {0}")]
    Settings(String),
}

/// All frames of a conversation: handshake, data both ways, acknowledgments, close.
///
/// Each turn's segments are acknowledged, every second one and the last, before anything else is
/// said. The ends behave as Linux does: window and options of a SYN, PSH on the last segment, DF on
/// TCP. Where a turn's shape asks for sequence or acknowledgment numbers, the initial numbers of a
/// connection are such that these are the right ones.
///
/// # Errors
/// [`Error`], where headers cannot be as the conversation, its ends or the settings ask.
pub fn frames(
    exchange: &Exchange,
    ends: &Endpoints,
    settings: &Settings,
) -> Result<Vec<Frame>, Error> {
    let writer = packet::Writer::new(exchange, ends, settings)?;
    let packets = talk::packets(exchange, &writer)?;
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
