//! What stands around a side's packets: its MAC addresses, tags and tunnels, and who its packets
//! are handed to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_units::MacAddr;

/// Around the packets of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Octets of the longest IP packet, tunnels not counted: 576 to 65,535.
    pub mtu: u16,
    pub mac: MacAddr,
    /// Each address of the side's pools has a MAC address of its own: `mac` plus its index in the
    /// pool. Else all have `mac`.
    pub cluster: bool,
    /// From outside in: tags, labels, then at most one tunnel.
    pub wraps: Vec<Wrap>,
    pub next_hop: NextHop,
}

/// One layer between Ethernet and the flows' packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrap {
    /// A tag; `service`: of a provider (EtherType 88a8, the outer of QinQ).
    Vlan { id: u16, priority: u8, service: bool },
    /// A label; the last of them is the bottom of the stack.
    Mpls { label: u32, class: u8, ttl: u8 },
    /// RFC 2784, with a key by RFC 2890.
    Gre { local: IpAddr, remote: IpAddr, key: Option<u32> },
    /// RFC 7348, from and to UDP port 4789; `mac`: of the inner destination.
    Vxlan { local: IpAddr, remote: IpAddr, vni: u32, mac: MacAddr },
    /// 3GPP TS 29.281, a G-PDU from and to UDP port 2152; what is received has `local_teid`.
    GtpU { local: IpAddr, remote: IpAddr, teid: u32, local_teid: u32 },
}

/// Who a side's packets are handed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// Whoever has this address; nobody is asked.
    Mac(MacAddr),
    /// A router, whose MAC address is asked for before anything begins.
    Gateway { v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr> },
    /// Each peer itself: its MAC address is asked for, or learned from what it sends.
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
        }
    }
}

impl Wrap {
    fn is_tunnel(&self) -> bool {
        matches!(self, Self::Gre { .. } | Self::Vxlan { .. } | Self::GtpU { .. })
    }

    /// The outer addresses of a tunnel: ours, the other end's.
    pub(crate) fn ends(&self) -> Option<(IpAddr, IpAddr)> {
        match *self {
            Self::Gre { local, remote, .. }
            | Self::Vxlan { local, remote, .. }
            | Self::GtpU { local, remote, .. } => Some((local, remote)),
            Self::Vlan { .. } | Self::Mpls { .. } => None,
        }
    }
}

impl Network {
    /// Octets of the longest frame, without FCS: what the port has to take.
    pub fn longest_frame(&self) -> u32 {
        u32::from(self.mtu) + crate::link::overhead(self)
    }

    /// Whether it can be; a text says what cannot.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.mtu < 576 {
            return Err(format!("an MTU of {} octets, expected 576 or more", self.mtu));
        }
        let tunnels = self.wraps.iter().filter(|w| w.is_tunnel()).count();
        if tunnels > 1 || tunnels == 1 && !self.wraps.last().is_some_and(Wrap::is_tunnel) {
            return Err("a tunnel must be the innermost layer, and the only one\n  try another \
                        order"
                .into());
        }
        let mut labels = self.wraps.iter().skip_while(|w| !matches!(w, Wrap::Mpls { .. }));
        if labels.any(|w| matches!(w, Wrap::Vlan { .. })) {
            return Err(
                "a VLAN tag inside MPLS labels, expected tags outside\n  try another order".into(),
            );
        }
        for wrap in &self.wraps {
            let (what, value, most) = match *wrap {
                Wrap::Vlan { id, priority, .. } if priority > 7 => {
                    ("VLAN priority", u32::from(priority), id.into())
                }
                Wrap::Vlan { id, .. } => ("VLAN id", id.into(), 4095),
                Wrap::Mpls { class, .. } if class > 7 => ("MPLS traffic class", class.into(), 7),
                Wrap::Mpls { label, .. } => ("MPLS label", label, (1 << 20) - 1),
                Wrap::Vxlan { vni, .. } => ("VXLAN network id", vni, (1 << 24) - 1),
                Wrap::Gre { .. } | Wrap::GtpU { .. } => continue,
            };
            let most = if what == "VLAN priority" { 7 } else { most };
            if value > most {
                return Err(format!("{what} {value}, expected at most {most}"));
            }
        }
        match self.wraps.last().and_then(Wrap::ends) {
            Some((local, remote)) if local.is_ipv4() != remote.is_ipv4() => {
                Err(format!("a tunnel from {local} to {remote}: expected addresses of one family"))
            }
            _ => Ok(()),
        }
    }
}
