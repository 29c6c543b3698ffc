//! Messages of DHCP clients on their way to the link: options, the relay agent, and faults.

use std::net::{IpAddr, Ipv4Addr};

use squall_units::MacAddr;

use super::{BROADCAST, HostGroup, word};
use crate::{
    DhcpBegin, EventKind, FLOOD, Fault, FrameQueue, Kind, LogProtocol, Request,
    host::{IPV4, begin_frame},
};

const CLIENT_ID: u8 = 61;
/// Suboptions of option 82 (RFC 3046 section 3).
const CIRCUIT: u8 = 1;
const REMOTE: u8 = 2;
/// Place of the UDP checksum in an IPv4 packet without options.
const CHECKSUM: usize = 26;

impl HostGroup {
    /// Sends a message of the client on host number `host`.
    pub(super) fn send_request(&mut self, host: u32, request: Request, out: &mut FrameQueue) {
        let Request { mut message, unicast, retransmission } = request;
        *self.counted.sent.entry(word(&message)).or_default() += 1;
        self.counted.retransmissions += u64::from(retransmission);
        let how = if retransmission { EventKind::Retransmitted } else { EventKind::Sent };
        let address = message.requested.or(Some(message.ciaddr).filter(|at| !at.is_unspecified()));
        self.note(host, (LogProtocol::Dhcp, how), word(&message), address.map(IpAddr::V4));
        let mac = self.mac(host);
        let mut options = std::mem::take(&mut self.scratch);
        options.clear();
        let dhcp = &self.settings.dhcp;
        let is_full = matches!(message.kind, Kind::Discover | Kind::Request | Kind::Inform);
        for option in dhcp.options.iter().filter(|option| is_full || option.code == CLIENT_ID) {
            option.write(host, mac, &mut options);
        }
        let faults = self.settings.faults;
        if faults.has(Fault::BadOptions) {
            options.extend([224, 255]);
        }
        let (mut source, mut from) = (message.ciaddr, mac);
        if let Some(relay) = dhcp.relay {
            // The agent is also the router of its clients.
            from = self.relay_mac();
            if unicast.is_none() {
                (message.giaddr, message.hops, source) = (relay, 1, relay);
            }
        }
        if dhcp.relay.is_none() || unicast.is_none() {
            for (code, value) in [(CIRCUIT, &dhcp.circuit), (REMOTE, &dhcp.remote)] {
                if let Some(value) = value.clone() {
                    let option = crate::OptionTemplate { code, value };
                    option.write(host, mac, &mut message.agent);
                }
            }
        }
        if faults.has(Fault::SpoofMac) {
            from.0[1] ^= 0x80;
        }
        let to = match unicast {
            Some(_) => self.hosts[host as usize].server_mac,
            None => BROADCAST,
        };
        for fault in [Fault::BadOptions, Fault::SpoofMac, Fault::BadChecksum] {
            self.count_fault(fault, 1);
        }
        for _ in 0..self.copies() {
            out.push(self.due, |octets| {
                begin_frame(octets, (to, from), &self.settings.tags, IPV4);
                let at = octets.len();
                let destination = unicast.unwrap_or(Ipv4Addr::BROADCAST);
                message.write(source, destination, &options, octets);
                if faults.has(Fault::BadChecksum) {
                    // A checksum of 0 would be none.
                    octets[at + CHECKSUM] ^= 0x55;
                    octets[at + CHECKSUM + 1] |= 1;
                }
            });
        }
        self.scratch = options;
    }

    /// Copies of each frame of ARP and DHCP.
    pub(super) fn copies(&mut self) -> u32 {
        let flood = self.settings.faults.has(Fault::Flood);
        self.count_fault(Fault::Flood, u64::from(FLOOD - 1));
        if flood { FLOOD } else { 1 }
    }

    /// Counts what a fault has done, if the group has it.
    pub(super) fn count_fault(&mut self, fault: Fault, times: u64) -> bool {
        let has = self.settings.faults.has(fault);
        if has {
            *self.counted.faults.entry(fault.word()).or_default() += times;
        }
        has
    }

    /// The address that host number `host` requests or has, if the settings name one.
    pub(super) fn own(&self, host: u32) -> Option<Ipv4Addr> {
        let first = self.settings.dhcp.first?;
        Some(Ipv4Addr::from_bits(first.to_bits().wrapping_add(host)))
    }

    /// The MAC address of the relay agent: the one before that of the first host.
    pub(super) fn relay_mac(&self) -> MacAddr {
        let before = super::mac_bits(self.settings.mac).wrapping_sub(1);
        let [_, _, octets @ ..] = before.to_be_bytes();
        MacAddr(octets)
    }

    /// Whether a frame to this address is for the relay agent.
    pub(super) fn is_relay(&self, mac: MacAddr) -> bool {
        self.settings.dhcp.relay.is_some() && mac == self.relay_mac()
    }

    /// Whether hosts have static addresses that they describe in INFORM messages.
    pub(super) fn informs(&self) -> bool {
        matches!(self.settings.dhcp.begin, DhcpBegin::Inform(_))
    }
}
