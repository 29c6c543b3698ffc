//! Groups of hosts of a profile as settings of their state machines.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use squall_host::{
    Addressing, ConflictTimers, DhcpTimers, GroupSettings, GroupVersion, LldpSettings,
    MembershipTimers, MulticastSettings, PingSettings, QuerierSettings, ServerSettings,
    ServiceSettings, SourceFilter, SupplicantSettings,
};
use squall_profile::{ArpUse, AuthMethod, HostAddress, HostGroup, PingTarget, Profile};
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
        HostAddress::None => (Addressing::None, Ipv4Addr::UNSPECIFIED),
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
        services: services(group),
        vendor: group.vendor.clone().unwrap_or_default().into_bytes(),
        seed,
    }
}

fn services(group: &HostGroup) -> ServiceSettings {
    let lldp = |interval| LldpSettings {
        interval,
        hold: group.lldp_hold as u16,
        fast: group.lldp_fast as u8,
        system: group.lldp_name.clone().unwrap_or_default(),
        ..LldpSettings::default()
    };
    ServiceSettings {
        multicast: (!group.join.is_empty()).then(|| Arc::new(multicast(group))),
        queriers: group.querier.map(|interval| queriers(group, interval)),
        lldp: group.lldp.map(lldp),
        auth: (group.auth == AuthMethod::Md5).then(|| supplicant(group)),
    }
}

fn multicast(group: &HostGroup) -> MulticastSettings {
    let timers = |version| {
        let timers = MembershipTimers::of(version);
        MembershipTimers {
            robustness: group.robustness as u8,
            unsolicited: group.unsolicited.unwrap_or(timers.unsolicited),
            older_querier: group.older_querier.unwrap_or(timers.older_querier),
            ..timers
        }
    };
    let filter = |ipv6: bool| {
        let mut sources: Vec<IpAddr> =
            group.sources.iter().filter(|source| source.is_ipv6() == ipv6).copied().collect();
        sources.sort_unstable();
        sources.dedup();
        // Without sources of this family, all are wanted.
        let exclude = group.exclude || sources.is_empty();
        SourceFilter { exclude, sources: sources.into() }
    };
    MulticastSettings {
        ranges: group.join.clone(),
        each: group.join_each.map(|each| each as u32),
        filters: [filter(false), filter(true)],
        timers: versions(group).map(timers),
        rate: group.join_rate,
        hold: group.join_time,
    }
}

fn queriers(group: &HostGroup, query_interval: Nanos) -> [QuerierSettings; 2] {
    let default = QuerierSettings::default();
    // Hosts must be able to answer before the next query.
    let response = group.query_response.unwrap_or(default.query_response).min(query_interval);
    versions(group).map(|version| QuerierSettings {
        version,
        robustness: group.robustness as u8,
        query_interval,
        query_response: response,
        last_member: group.last_member.unwrap_or(default.last_member),
    })
}

/// Highest versions of IGMP and MLD.
fn versions(group: &HostGroup) -> [GroupVersion; 2] {
    let igmp = match group.igmp {
        1 => GroupVersion::One,
        2 => GroupVersion::Two,
        _ => GroupVersion::Three,
    };
    [igmp, if group.mld == 1 { GroupVersion::Two } else { GroupVersion::Three }]
}

fn supplicant(group: &HostGroup) -> SupplicantSettings {
    let timers = SupplicantSettings::default();
    SupplicantSettings {
        identity: group.identity.clone().unwrap_or_default(),
        password: group.password.clone().unwrap_or_default(),
        start_period: group.auth_start.unwrap_or(timers.start_period),
        max_start: group.auth_starts.map_or(timers.max_start, |starts| starts as u8),
        auth_period: group.auth_wait.unwrap_or(timers.auth_period),
        held_period: group.auth_held.unwrap_or(timers.held_period),
        attempts: group.auth_tries.map_or(timers.attempts, |tries| tries as u8),
    }
}
