//! The headers around a side's packets: MAC addresses, tags, tunnels; and the next hop.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_units::MacAddr;

use crate::AddrRange;

/// The link layer of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Length of the longest IP packet in octets, without tunnel headers: 576 (RFC 791: the
    /// datagram that every host must accept) to 65,535.
    pub mtu: u16,
    pub mac: MacAddr,
    /// Whether each address in the side's pools has its own MAC address: `mac` plus its index in
    /// the pool. Otherwise all addresses have `mac`.
    pub cluster: bool,
    /// From the outermost inward: tags, labels, and at most one tunnel.
    pub wraps: Vec<Wrap>,
    pub next_hop: NextHop,
    /// Addresses with headers of their own.
    pub interfaces: Vec<Interface>,
}

/// Addresses whose packets have headers of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub of: InterfaceOf,
    pub addresses: AddrRange,
    /// `None`: the MAC address of the side.
    pub mac: Option<MacAddr>,
    /// Instead of [`Network::wraps`].
    pub wraps: Vec<Wrap>,
    /// The destination of the frames; `None`: [`Network::next_hop`].
    pub next_hop: Option<MacAddr>,
}

/// The end of a flow to which the addresses of an [`Interface`] belong. Where both ends of a flow
/// have an interface, that of [`InterfaceOf::Side`] is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InterfaceOf {
    Side,
    Peer,
}

/// One layer between Ethernet and the flows' packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrap {
    /// IEEE 802.1Q; `service`: a provider tag (EtherType 88a8, the outer tag of QinQ).
    Vlan { id: u16, priority: u8, service: bool },
    /// RFC 3032; the last label is the bottom of the stack.
    Mpls { label: u32, class: u8, ttl: u8 },
    /// RFC 2784, with the key of RFC 2890.
    Gre { local: IpAddr, remote: IpAddr, key: Option<u32> },
    /// RFC 7348, from and to UDP port 4789; `mac`: the inner destination.
    Vxlan { local: IpAddr, remote: IpAddr, vni: u32, mac: MacAddr },
    /// 3GPP TS 29.281, a G-PDU to UDP port 2152; received packets have `local_teid`, or any if it is
    /// `None`. `source_port` 0: that of the packet inside.
    GtpU { local: IpAddr, remote: IpAddr, teid: u32, local_teid: Option<u32>, source_port: u16 },
    /// RFC 2516: the session of the host that sends or receives the frame.
    Pppoe,
}

/// The UDP port of GTP-U.
pub const GTPU_PORT: u16 = 2152;

/// The next hop of a side's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// A fixed MAC address; no ARP or neighbor discovery.
    Mac(MacAddr),
    /// A router, whose MAC address is requested before the first flow, so that the times of flows
    /// do not include ARP.
    Gateway { v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr> },
    /// The peer itself: its MAC address is requested, or learned from its frames.
    OnLink,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            mtu: 1500,
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            cluster: false,
            wraps: Vec::new(),
            next_hop: NextHop::OnLink,
            interfaces: Vec::new(),
        }
    }
}

impl Wrap {
    /// Whether it has to be the innermost layer.
    fn is_tunnel(&self) -> bool {
        !matches!(self, Self::Vlan { .. } | Self::Mpls { .. })
    }

    /// The local and remote outer addresses of a tunnel.
    pub(crate) fn ends(&self) -> Option<(IpAddr, IpAddr)> {
        match *self {
            Self::Gre { local, remote, .. }
            | Self::Vxlan { local, remote, .. }
            | Self::GtpU { local, remote, .. } => Some((local, remote)),
            Self::Vlan { .. } | Self::Mpls { .. } | Self::Pppoe => None,
        }
    }
}

impl Network {
    /// Length of the longest frame in octets, without FCS, which the NIC appends. The port must
    /// accept it.
    pub fn longest_frame(&self) -> u32 {
        u32::from(self.mtu) + crate::link::overhead(self)
    }

    /// Validates the network; the error text names the invalid part.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.mtu < 576 {
            return Err(format!("an MTU of {} octets, expected 576 or more", self.mtu));
        }
        check_wraps(&self.wraps)?;
        let mut sorted: Vec<&Interface> = self.interfaces.iter().collect();
        sorted.sort_by_key(|one| (one.of, one.addresses.first()));
        for (one, next) in sorted.iter().zip(sorted.iter().skip(1)) {
            if one.of == next.of && one.addresses.last() >= next.addresses.first() {
                let address = next.addresses.first();
                return Err(format!("the address {address} has two interfaces, expected one"));
            }
        }
        self.interfaces.iter().try_for_each(|one| {
            let of = |why: String| format!("the interface of {}: {why}", one.addresses.first());
            self.check_interface(one).map_err(of)
        })
    }

    fn check_interface(&self, Interface { wraps, next_hop, .. }: &Interface) -> Result<(), String> {
        check_wraps(wraps)?;
        // The receiver finds the interface of a frame by its innermost packet.
        if wraps.iter().any(|wrap| !matches!(wrap, Wrap::Vlan { .. } | Wrap::GtpU { .. })) {
            return Err("expected only vlan, qinq and gtp-u in its wrap".into());
        }
        // Requests for the MAC addresses of neighbors have the headers of the side.
        let fixed = next_hop.is_some() || matches!(self.next_hop, NextHop::Mac(_));
        match fixed || *wraps == self.wraps {
            true => Ok(()),
            false => Err("an encapsulation of its own needs a next_hop".into()),
        }
    }

    /// The layers of each interface, the side's own first.
    pub fn all_wraps(&self) -> impl Iterator<Item = &[Wrap]> {
        let further = self.interfaces.iter().map(|one| &one.wraps[..]);
        std::iter::once(&self.wraps[..]).chain(further)
    }

    /// Whether all frames have only Ethernet in front of IP.
    pub fn is_plain(&self) -> bool {
        self.all_wraps().all(<[Wrap]>::is_empty)
    }
}

/// Validates layers; the error text names the invalid one.
fn check_wraps(wraps: &[Wrap]) -> Result<(), String> {
    let tunnels = wraps.iter().filter(|w| w.is_tunnel()).count();
    if tunnels > 1 || tunnels == 1 && !wraps.last().is_some_and(Wrap::is_tunnel) {
        return Err("a tunnel must be the innermost layer, and the only one\n  try another \
                    order"
            .into());
    }
    // After a label no EtherType follows (RFC 3032), so a tag inside labels could not be
    // recognized.
    let mut labels = wraps.iter().skip_while(|w| !matches!(w, Wrap::Mpls { .. }));
    if labels.any(|w| matches!(w, Wrap::Vlan { .. })) {
        return Err(
            "a VLAN tag inside MPLS labels, expected tags outside\n  try another order".into()
        );
    }
    for wrap in wraps {
        let (what, value, most) = match *wrap {
            Wrap::Vlan { id, priority, .. } if priority > 7 => {
                ("VLAN priority", u32::from(priority), id.into())
            }
            Wrap::Vlan { id, .. } => ("VLAN id", id.into(), 4095),
            Wrap::Mpls { class, .. } if class > 7 => ("MPLS traffic class", class.into(), 7),
            Wrap::Mpls { label, .. } => ("MPLS label", label, (1 << 20) - 1),
            Wrap::Vxlan { vni, .. } => ("VXLAN network id", vni, (1 << 24) - 1),
            Wrap::Gre { .. } | Wrap::GtpU { .. } | Wrap::Pppoe => continue,
        };
        let most = if what == "VLAN priority" { 7 } else { most };
        if value > most {
            return Err(format!("{what} {value}, expected at most {most}"));
        }
    }
    match wraps.last().and_then(Wrap::ends) {
        Some((local, remote)) if local.is_ipv4() != remote.is_ipv4() => {
            Err(format!("a tunnel from {local} to {remote}: expected addresses of one family"))
        }
        _ => Ok(()),
    }
}
