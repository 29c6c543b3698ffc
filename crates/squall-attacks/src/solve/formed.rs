//! Payloads of protocols that have no buffers: required octets are placed on a message, which is
//! then completed around them. A parser finds no defects in it other than those that the rule
//! requires.

use std::fmt;

use squall_rules::{End, Numbers, Rule};

use super::ends;
use crate::{Octets, Origin, Transport};

mod binary;
mod names;

/// The protocol that a port implies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageFormat {
    Dns,
    /// NetBIOS name service (RFC 1002 §4.2).
    Nbns,
    Tftp,
    Dhcp,
    /// ISAKMP (RFC 2408 §3).
    Isakmp,
    /// Extended TACACS (RFC 1492 §2).
    Xtacacs,
    /// Unitronics PCOM over TCP.
    Pcom,
    Pptp,
    Wccp,
}

impl fmt::Display for MessageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MessageFormat::Dns => "DNS",
            MessageFormat::Nbns => "NetBIOS name service",
            MessageFormat::Tftp => "TFTP",
            MessageFormat::Dhcp => "DHCP",
            MessageFormat::Isakmp => "ISAKMP",
            MessageFormat::Xtacacs => "extended TACACS",
            MessageFormat::Pcom => "PCOM",
            MessageFormat::Pptp => "PPTP",
            MessageFormat::Wccp => "WCCP",
        })
    }
}

/// A template for the start of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Form {
    /// The octets at the start of the message.
    pub canvas: Vec<Spot>,
    /// Offset for the first content that has no fixed position.
    pub anchor: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// The octet must have this value.
    Fixed(u8),
    /// The octet has this value unless a rule requires another.
    Usual(u8),
}

impl Form {
    fn usual(mut self, octets: &[u8]) -> Self {
        self.canvas.extend(octets.iter().map(|&octet| Spot::Usual(octet)));
        self
    }

    fn fixed(mut self, octets: &[u8]) -> Self {
        self.canvas.extend(octets.iter().map(|&octet| Spot::Fixed(octet)));
        self
    }

    fn anchored(mut self, anchor: usize) -> Self {
        self.anchor = Some(anchor);
        self
    }

    /// The octets of the canvas.
    fn octets(&self) -> Octets {
        let mut octets = Octets::new();
        for spot in &self.canvas {
            match *spot {
                Spot::Fixed(octet) => octets.push(octet, Origin::Framing),
                Spot::Usual(octet) => octets.push(octet, Origin::Free),
            }
        }
        octets
    }
}

/// The protocol that the rule's ports imply, if it is a supported one.
pub(super) fn message_format(rule: &Rule, transport: Transport) -> Option<MessageFormat> {
    let ports = &ends::sides(rule).1.ports;
    let one = |port: u16| *ports == Numbers::one(port.into());
    match transport {
        Transport::Udp if one(53) => Some(MessageFormat::Dns),
        Transport::Udp if one(137) => Some(MessageFormat::Nbns),
        Transport::Udp if one(69) => Some(MessageFormat::Tftp),
        Transport::Udp if one(67) || one(68) => Some(MessageFormat::Dhcp),
        Transport::Udp if one(500) => Some(MessageFormat::Isakmp),
        Transport::Udp if one(49) => Some(MessageFormat::Xtacacs),
        Transport::Udp if one(2048) => Some(MessageFormat::Wccp),
        Transport::Tcp if one(20_256) => Some(MessageFormat::Pcom),
        Transport::Tcp if one(1723) => Some(MessageFormat::Pptp),
        _ => None,
    }
}

impl MessageFormat {
    /// Templates for a message, most likely first.
    pub(super) fn forms(self, from: End) -> Vec<Form> {
        match self {
            MessageFormat::Dns => names::dns(from),
            MessageFormat::Nbns => names::nbns(),
            MessageFormat::Tftp => vec![Form::default().usual(&[0, 1]), Form::default()],
            MessageFormat::Dhcp => binary::dhcp(from),
            MessageFormat::Isakmp => binary::isakmp(),
            MessageFormat::Xtacacs => binary::xtacacs(from),
            MessageFormat::Pcom => binary::pcom(from),
            MessageFormat::Pptp => binary::pptp(from),
            MessageFormat::Wccp => {
                vec![Form::default().usual(&[0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 1])]
            }
        }
    }

    /// Completes a message. Returns `None` if it cannot become valid.
    pub(super) fn close(self, from: End, octets: Octets) -> Option<Octets> {
        match self {
            MessageFormat::Dns => names::close(from, octets, false),
            MessageFormat::Nbns => names::close(from, octets, true),
            MessageFormat::Tftp => binary::close_tftp(octets),
            MessageFormat::Dhcp => binary::close_dhcp(octets),
            MessageFormat::Isakmp => binary::close_isakmp(octets),
            MessageFormat::Xtacacs => binary::close_xtacacs(octets),
            MessageFormat::Pcom => binary::close_pcom(octets, from),
            MessageFormat::Pptp => Some(octets),
            MessageFormat::Wccp => binary::close_wccp(octets),
        }
    }

    /// Whether the message is complete and valid.
    pub(super) fn is_well_formed(self, from: End, octets: &Octets) -> bool {
        self.close(from, octets.clone()).is_some_and(|closed| closed.bytes() == octets.bytes())
    }

    /// A minimal valid message.
    pub(super) fn hello(self, from: End) -> Option<Octets> {
        self.forms(from).into_iter().find_map(|form| self.close(from, form.octets()))
    }
}

/// Completes a message from its start on: appends missing octets and adjusts free ones.
struct Closer {
    octets: Octets,
    at: usize,
}

impl Closer {
    fn new(octets: Octets) -> Self {
        Closer { octets, at: 0 }
    }

    fn left(&self) -> usize {
        self.octets.len().saturating_sub(self.at)
    }

    /// Whether the next `count` octets are free of requirements.
    fn is_free(&self, count: usize) -> bool {
        (self.at..self.at + count)
            .all(|at| self.octets.origins().get(at).is_none_or(|origin| *origin == Origin::Free))
    }

    fn is_missing(&self) -> bool {
        self.at >= self.octets.len()
    }

    fn byte(&self, at: usize) -> u8 {
        self.octets.bytes().get(at).copied().unwrap_or(0)
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.byte(at), self.byte(at + 1)])
    }

    /// Consumes as many octets as `usual` has. `usual` replaces free octets and extends the message
    /// if it is shorter.
    fn take(&mut self, usual: &[u8]) -> usize {
        let from = self.at;
        for &octet in usual {
            if self.is_missing() {
                self.octets.push(octet, Origin::Free);
            } else if self.octets.origins()[self.at] == Origin::Free {
                self.octets.set(self.at, octet, Origin::Free);
            }
            self.at += 1;
        }
        from
    }

    /// Consumes `count` octets. Appends `filler` if the message has fewer.
    fn pass(&mut self, count: usize, filler: u8) -> Option<()> {
        const MOST: usize = 8_192;
        let end = self.at.checked_add(count).filter(|&end| end <= MOST.max(self.octets.len()))?;
        while self.octets.len() < end {
            self.octets.push(filler, Origin::Free);
        }
        self.at = end;
        Some(())
    }

    /// Overwrites a field in the message.
    fn put(&mut self, at: usize, octets: &[u8]) {
        for (place, &octet) in (at..).zip(octets) {
            if self.byte(place) != octet {
                self.octets.set(place, octet, Origin::Framing);
            }
        }
    }

    fn done(self) -> Octets {
        self.octets
    }
}

#[cfg(test)]
mod tests;
