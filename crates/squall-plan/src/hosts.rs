//! Groups of hosts of a profile as settings of their state machines.

use std::net::{Ipv4Addr, Ipv6Addr};

use squall_host::{
    Addressing, ClientSettings, ConflictTimers, Dhcp6Settings, Dhcp6Timers, DhcpTimers,
    GroupSettings, InterfaceIdentifier, Ipv6Addressing, Ipv6Settings, NdTimers, OptionTemplate,
    PingSettings, PrefixInformation, Retransmission, RouterSettings, Server6Settings,
    ServerSettings, ValueTemplate, duid_of,
};
use squall_profile::{ArpUse, HostAddress, HostGroup, HostIpv6, InterfaceId, PingTarget, Profile};
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
    let mac = group.mac.unwrap_or(MacAddr([2, 0x53, number as u8, 0, 0, 1]));
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
        HostAddress::None => (Addressing::None, Ipv4Addr::UNSPECIFIED),
    };
    let prefix = match group.ipv4 {
        HostAddress::Static { prefix, .. } => prefix,
        HostAddress::Dhcp | HostAddress::None => 0,
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
            PingTarget::Address(address) => Some(address),
        },
        rate: group.ping_rate,
        count: group.ping_count as u16,
        timeout: PING_TIMEOUT,
    };
    GroupSettings {
        count: group.count,
        mac,
        mac_step: 1,
        tags: group.vlan.map(|vlan| (VLAN, vlan as u16)).into_iter().collect(),
        addressing,
        conflict: match group.arp {
            ArpUse::Probe => ConflictTimers::default(),
            ArpUse::Announce => ConflictTimers { probes: 0, ..ConflictTimers::default() },
            ArpUse::Silent => ConflictTimers::SILENT,
        },
        ipv6: group.ipv6.map(|ipv6| ipv6_settings(group, ipv6, mac, lease)),
        gateway: group.gateway,
        start: group.start,
        setup: group.setup,
        release: group.release,
        ping: group.ping.map(ping),
        server: group.serve.map(server),
        dhcp: ClientSettings { options: options(group), ..ClientSettings::default() },
        seed,
        ..GroupSettings::default()
    }
}

fn ipv6_settings(group: &HostGroup, ipv6: HostIpv6, mac: MacAddr, lease: u32) -> Ipv6Settings {
    let (addressing, asks) = match ipv6 {
        HostIpv6::Static { first, prefix } => (Ipv6Addressing::Static { first, prefix }, false),
        HostIpv6::Slaac => (Ipv6Addressing::Slaac, false),
        HostIpv6::Stateless => (Ipv6Addressing::Slaac, true),
        HostIpv6::Dhcp => (Ipv6Addressing::Dhcp, true),
    };
    let is_stateless = ipv6 == HostIpv6::Stateless;
    let timers = Dhcp6Timers::default();
    let with = |rules: Retransmission| Retransmission {
        first: group.retry.unwrap_or(rules.first),
        count: group.tries.map_or(rules.count, |tries| tries as u8),
        ..rules
    };
    let dhcp = Dhcp6Settings {
        timers: Dhcp6Timers {
            solicit: with(timers.solicit),
            request: with(timers.request),
            information: with(timers.information),
            ..timers
        },
        address: !is_stateless,
        prefix: group.prefix.map(|length| length as u8).filter(|_| !is_stateless),
        rapid_commit: group.rapid_commit,
        collect: !group.first_offer,
    };
    // Preferred for three quarters of the lease.
    let preferred = (u64::from(lease) * 3 / 4) as u32;
    let advertised = |(prefix, length): (Ipv6Addr, u8)| RouterSettings {
        prefixes: vec![PrefixInformation {
            prefix,
            length,
            on_link: true,
            autonomous: true,
            valid: lease,
            preferred,
        }],
        ..RouterSettings::default()
    };
    let is_server = group.serve6.is_some() || group.delegate.is_some();
    let server = is_server.then(|| Server6Settings {
        identifier: duid_of(mac),
        first: group.serve6.map_or(Ipv6Addr::UNSPECIFIED, |(first, _)| first),
        count: group
            .serve6
            .map_or(0, |(first, last)| (last.to_bits() - first.to_bits()) as u32 + 1),
        prefixes: group
            .delegate
            .map(|(prefix, pool, length)| (prefix, length, 1 << (length - pool))),
        preferred,
        valid: lease,
        ..Server6Settings::default()
    });
    Ipv6Settings {
        addressing,
        identifier: match group.interface_id {
            InterfaceId::Eui64 => InterfaceIdentifier::Eui64,
            InterfaceId::Stable => InterfaceIdentifier::Stable,
        },
        gateway: group.gateway6,
        timers: NdTimers { probes: group.dad as u8, ..NdTimers::default() },
        dhcp: asks.then_some(dhcp),
        router: group.advertise.map(advertised),
        server,
    }
}

const VENDOR_CLASS: u8 = 60;

fn options(group: &HostGroup) -> Vec<OptionTemplate> {
    let vendor = group
        .vendor
        .iter()
        .map(|vendor| OptionTemplate { code: VENDOR_CLASS, value: ValueTemplate::text(vendor) });
    vendor.collect()
}
