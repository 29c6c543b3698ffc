//! Groups of hosts of a profile as settings of their state machines.

use std::net::Ipv4Addr;

use squall_host::{
    Addressing, ConflictTimers, DhcpTimers, GroupSettings, PingSettings, ServerSettings,
};
use squall_profile::{ArpUse, HostAddress, HostGroup, PingTarget, Profile};
use squall_units::{MacAddr, Nanos, mix};

/// A group of hosts on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanHosts {
    pub name: String,
    pub port: usize,
    /// The port belongs to another node.
    pub elsewhere: bool,
    pub settings: GroupSettings,
}

/// Length without FCS of the longest frame that a host sends on its own initiative or in reply.
pub(crate) const MAX_FRAME: u32 = 1_518;
/// TPID of IEEE 802.1Q.
const VLAN: u16 = 0x8100;
/// Echo requests without a reply for this time are lost, as for ping.
const PING_TIMEOUT: Nanos = Nanos(1_000_000_000);
const LEASE: u32 = 3600;

pub(crate) fn compile(profile: &Profile, elsewhere: impl Fn(usize) -> bool) -> Vec<PlanHosts> {
    let seed = profile.effective_seed();
    let group = |(number, group): (usize, &HostGroup)| PlanHosts {
        name: group.name.clone(),
        port: group.port,
        elsewhere: elsewhere(group.port),
        settings: settings(number, group, mix(seed, HOSTS + number as u64)),
    };
    profile.hosts.iter().enumerate().map(group).collect()
}

/// Distinguishes the random numbers of hosts from those of streams and flows.
const HOSTS: u64 = 0x686f_7374 << 32;

fn settings(number: usize, group: &HostGroup, seed: u64) -> GroupSettings {
    let default = MacAddr([2, 0x53, number as u8, 0, 0, 1]);
    let (addressing, own) = match group.ipv4 {
        HostAddress::Static { first, prefix } => (Addressing::Static { first, prefix }, first),
        HostAddress::Dhcp => {
            let timers = DhcpTimers::default();
            let first = group.retry.unwrap_or(timers.first);
            let tries = group.tries.map_or(timers.discovers, |tries| tries as u8);
            // The random second of the RFC would make a shorter interval negative.
            let spread = timers.spread.min(Nanos(first.0 / 4));
            let timers = DhcpTimers { first, spread, discovers: tries, requests: tries, ..timers };
            (Addressing::Dhcp(timers), Ipv4Addr::UNSPECIFIED)
        }
    };
    let prefix = match group.ipv4 {
        HostAddress::Static { prefix, .. } => prefix,
        HostAddress::Dhcp => 0,
    };
    let lease = group.lease.map_or(LEASE, |lease| (lease.0 / Nanos::SECOND.0) as u32);
    let server = |(first, last): (Ipv4Addr, Ipv4Addr)| ServerSettings {
        address: own,
        prefix,
        router: group.gateway,
        first,
        count: last.to_bits() - first.to_bits() + 1,
        lease,
        ..ServerSettings::default()
    };
    let ping = |target| PingSettings {
        target: match target {
            PingTarget::Gateway => None,
            PingTarget::Address(address) => Some(address.into()),
        },
        rate: group.ping_rate,
        count: group.ping_count as u16,
        timeout: PING_TIMEOUT,
    };
    GroupSettings {
        count: group.count,
        mac: group.mac.unwrap_or(default),
        mac_step: 1,
        tags: group.vlan.map(|vlan| (VLAN, vlan as u16)).into_iter().collect(),
        addressing,
        conflict: match group.arp {
            ArpUse::Probe => ConflictTimers::default(),
            ArpUse::Announce => ConflictTimers { probes: 0, ..ConflictTimers::default() },
            ArpUse::Silent => ConflictTimers::SILENT,
        },
        ipv6: None,
        gateway: group.gateway,
        start: group.start,
        setup: group.setup,
        release: group.release,
        ping: group.ping.map(ping),
        server: group.serve.map(server),
        services: squall_host::ServiceSettings::default(),
        vendor: group.vendor.clone().unwrap_or_default().into_bytes(),
        seed,
    }
}
