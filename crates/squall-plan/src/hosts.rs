//! Groups of hosts of a profile as settings of their state machines.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use squall_host::{
    Addressing, CdpSettings, ClientSettings, ConflictTimers, Dhcp6Settings, Dhcp6Timers, DhcpBegin,
    DhcpTimers, DnsZone, EapMethod, Fault, GroupSettings, GroupVersion, InterfaceIdentifier,
    Ipv6Addressing, Ipv6Settings, LacpInfo, LacpSettings, LldpSettings, MdnsSettings,
    MembershipTimers, MulticastSettings, NameTemplate, NdTimers, OptionTemplate, PingSettings,
    PppAuth, PppSettings, PppTimers, PppoeClientSettings, PppoeServerSettings, PppoeSettings,
    PrefixInformation, QuerierSettings, ResolverSettings, Retransmission, RouterSettings,
    Server6Settings, ServerSettings, ServiceSettings, SourceFilter, SpeakerTimers,
    SupplicantSettings, TlsClient, ValueTemplate, dns, duid_of, lacp,
};
use squall_profile::{
    ArpUse, AuthMethod, DhcpUse, Diagnostic, DnsType, ErrorCollector, HostAddress, HostFault,
    HostGroup, HostIpv6, HostOption, InterfaceId, LacpMode, LacpRate, Located, PingTarget,
    PppMethod, Profile,
};
use squall_tls::{TlsSettings, TlsVersion};
use squall_units::{MacAddr, Nanos, mix, suggest};

use crate::{Assets, flows::tls};

/// A group of hosts on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanHosts {
    pub name: String,
    pub port: usize,
    /// The port belongs to another node.
    pub elsewhere: bool,
    pub settings: GroupSettings,
}

impl PlanHosts {
    /// Whether other sources send from the IPv6 addresses of the hosts: they have no IPv4.
    pub fn is_ipv6(&self) -> bool {
        self.settings.addressing == Addressing::None
    }
}

/// As [`PlanHosts::is_ipv6`].
pub(crate) fn is_ipv6(group: &HostGroup) -> bool {
    group.ipv4 == HostAddress::None
}

/// Length without FCS of the longest frame that a host sends on its own initiative or in reply.
pub(crate) const MAX_FRAME: u32 = 1_518;
/// TPID of IEEE 802.1Q.
const VLAN: u16 = 0x8100;
/// Echo requests without a reply for this time are lost, as for ping.
const PING_TIMEOUT: Nanos = Nanos(1_000_000_000);
const LEASE: u32 = 3600;

pub(crate) fn compile(
    profile: &Profile,
    elsewhere: impl Fn(usize) -> bool,
    assets: &dyn Assets,
    mistakes: &mut ErrorCollector<'_>,
) -> Vec<PlanHosts> {
    let seed = profile.effective_seed();
    let group = |(number, group): (usize, &HostGroup)| {
        let mut settings = settings(number, group, mix(seed, HOSTS + number as u64));
        if let Some(method) = method(group, assets, mistakes) {
            settings.services.auth = Some(supplicant(group, method));
        }
        PlanHosts {
            name: group.name.clone(),
            port: group.port,
            elsewhere: elsewhere(group.port),
            settings,
        }
    };
    profile.hosts.iter().enumerate().map(group).collect()
}

/// Whether the group is an access concentrator of PPPoE.
pub(crate) fn is_concentrator(group: &HostGroup) -> bool {
    group.pppoe.is_some() && group.serve.is_some()
}

/// The number of the group that `of` names, whose hosts have flows, streams or attacks.
///
/// # Errors
/// There is no such group, or its hosts have no addresses or no gateway.
pub(crate) fn group_of_flows(
    groups: &[HostGroup],
    (name, of): (&str, &Located),
) -> Result<usize, Diagnostic> {
    let problem = |at, text, hint: &str| Err(Diagnostic::at(at, text, vec![hint.into()]));
    let Some(number) = groups.iter().position(|group| group.name == name) else {
        let hint = suggest(name, groups.iter().map(|group| group.name.as_str()));
        return problem(of.at, format!("{:?}: there are no hosts {name:?}", of.text), &hint);
    };
    let group = &groups[number];
    if is_ipv6(group) && group.ipv6.is_none() {
        let text = format!("{:?}: hosts {name:?} have no addresses", of.text);
        return problem(of.at, text, r#"try ipv4 = "dhcp" in [[host]]"#);
    }
    let without = matches!(group.ipv4, HostAddress::Static { .. } | HostAddress::LinkLocal);
    if without && group.gateway.is_none() && group.pppoe.is_none() {
        let text = format!("hosts {name:?} have no gateway, through which their frames leave");
        return problem(group.at, text, r#"try gateway = "10.0.0.1""#);
    }
    Ok(number)
}

/// Distinguishes the random numbers of hosts from those of streams and flows.
const HOSTS: u64 = 0x686f_7374 << 32;

fn settings(number: usize, group: &HostGroup, seed: u64) -> GroupSettings {
    let mac = group.mac.unwrap_or(MacAddr([2, 0x53, number as u8, 0, 0, 1]));
    let informs = group.dhcp == DhcpUse::Inform;
    let (addressing, own) = match group.ipv4 {
        HostAddress::Static { first, .. } if informs => (Addressing::Dhcp(timers(group)), first),
        HostAddress::Static { first, prefix } => (Addressing::Static { first, prefix }, first),
        HostAddress::Dhcp => (Addressing::Dhcp(timers(group)), Ipv4Addr::UNSPECIFIED),
        HostAddress::LinkLocal => (Addressing::LinkLocal, Ipv4Addr::UNSPECIFIED),
        HostAddress::Pppoe => (Addressing::Ppp, Ipv4Addr::UNSPECIFIED),
        HostAddress::None => (Addressing::None, Ipv4Addr::UNSPECIFIED),
    };
    let prefix = match group.ipv4 {
        HostAddress::Static { prefix, .. } => prefix,
        HostAddress::Dhcp | HostAddress::LinkLocal | HostAddress::Pppoe | HostAddress::None => 0,
    };
    let lease = group.lease.map_or(LEASE, |lease| (lease.0 / Nanos::SECOND.0) as u32);
    let server = |(first, last): (Ipv4Addr, Ipv4Addr)| ServerSettings {
        address: own,
        prefix,
        router: group.gateway,
        first,
        count: last.to_bits() - first.to_bits() + 1,
        lease,
        rapid_commit: group.rapid_commit,
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
        conflict: conflict(group),
        ipv6: group.ipv6.map(|ipv6| ipv6_settings(group, ipv6, mac, lease)),
        gateway: group.gateway,
        start: group.start,
        setup: group.setup,
        release: group.release,
        ping: group.ping.map(ping),
        server: group.serve.filter(|_| group.pppoe.is_none()).map(server),
        pppoe: group.pppoe.map(|method| pppoe(group, method, own)),
        lacp: group.lacp.map(|mode| aggregation(group, mode, mac)),
        dhcp: ClientSettings {
            begin: match group.dhcp {
                DhcpUse::Discover => DhcpBegin::Discover,
                DhcpUse::Reboot => DhcpBegin::Reboot,
                DhcpUse::Inform => DhcpBegin::Inform(prefix),
            },
            first: if informs { Some(own) } else { group.requested },
            lease: group.lease.filter(|_| group.serve.is_none()).map(|_| lease),
            rapid_commit: group.rapid_commit,
            broadcast: group.broadcast,
            options: options(group),
            relay: group.relay,
            circuit: group.circuit.as_deref().map(ValueTemplate::text),
            remote: group.remote.as_deref().map(ValueTemplate::text),
        },
        faults: group.faults.0.iter().map(|fault| fault_of(*fault)).collect(),
        late: group.late,
        log: group.log,
        services: services(group),
        icmp_errors: group.icmp_errors,
        seed,
    }
}

fn timers(group: &HostGroup) -> DhcpTimers {
    let timers = DhcpTimers::default();
    let first = group.retry.unwrap_or(timers.first);
    let tries = group.tries.map_or(timers.discovers, |tries| tries as u8);
    DhcpTimers {
        first,
        longest: group.retry_max.unwrap_or(timers.longest),
        // The random second of the RFC would make a shorter interval negative.
        spread: timers.spread.min(Nanos(first.0 / 4)),
        discovers: tries,
        requests: tries,
        restarts: group.restarts as u8,
        declined: group.decline_wait.unwrap_or(timers.declined),
        renewal: group.renew_wait.unwrap_or(timers.renewal),
    }
}

fn conflict(group: &HostGroup) -> ConflictTimers {
    let rfc = ConflictTimers::default();
    let timers = ConflictTimers {
        probe_wait: group.probe_wait.unwrap_or(rfc.probe_wait),
        probes: group.probes as u8,
        probe_min: group.probe_min.unwrap_or(rfc.probe_min),
        probe_max: group.probe_max.unwrap_or(rfc.probe_max),
        announce_wait: group.announce_wait.unwrap_or(rfc.announce_wait),
        announcements: group.announcements as u8,
        announce_interval: group.announce_interval.unwrap_or(rfc.announce_interval),
        defend_interval: group.defend_interval.unwrap_or(rfc.defend_interval),
    };
    match group.arp {
        ArpUse::Probe => timers,
        // A host must probe for an address that it has chosen (RFC 3927 section 2.2).
        ArpUse::Announce if group.ipv4 == HostAddress::LinkLocal => timers,
        ArpUse::Announce => ConflictTimers { probes: 0, ..timers },
        ArpUse::Silent => ConflictTimers { probes: 0, announcements: 0, ..timers },
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
        flap: group.link_flap,
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
    let more = group.options.iter().map(|option| match option {
        HostOption::Text(code, text) => {
            OptionTemplate { code: *code, value: ValueTemplate::text(text) }
        }
        HostOption::Hex(code, digits) => OptionTemplate {
            code: *code,
            value: ValueTemplate::hex(digits).expect("the profile has only digits here"),
        },
    });
    vendor.chain(more).collect()
}

fn fault_of(fault: HostFault) -> Fault {
    match fault {
        HostFault::DuplicateAddress => Fault::DuplicateAddress,
        HostFault::KeepAddress => Fault::KeepAddress,
        HostFault::NoArp => Fault::NoArp,
        HostFault::SpoofGateway => Fault::SpoofGateway,
        HostFault::SpoofMac => Fault::SpoofMac,
        HostFault::SpoofAddress => Fault::SpoofAddress,
        HostFault::LateAnswer => Fault::LateAnswer,
        HostFault::Flood => Fault::Flood,
        HostFault::IgnoreOffer => Fault::IgnoreOffer,
        HostFault::IgnoreNak => Fault::IgnoreNak,
        HostFault::Decline => Fault::Decline,
        HostFault::KeepLease => Fault::KeepLease,
        HostFault::BadChecksum => Fault::BadChecksum,
        HostFault::BadOptions => Fault::BadOptions,
    }
}

fn services(group: &HostGroup) -> ServiceSettings {
    let lldp = |interval| LldpSettings {
        timers: SpeakerTimers {
            interval,
            fast: group.lldp_fast as u8,
            ..LldpSettings::default().timers
        },
        hold: group.lldp_hold as u16,
        system: group.lldp_name.clone().unwrap_or_default(),
    };
    let cdp = |interval| {
        let default = CdpSettings::default();
        CdpSettings {
            timers: SpeakerTimers { interval, ..default.timers },
            hold: group.cdp_hold.map_or(default.hold, |hold| (hold.0 / Nanos::SECOND.0) as u8),
            device: group.cdp_name.clone().unwrap_or(default.device),
        }
    };
    ServiceSettings {
        multicast: (!group.join.is_empty()).then(|| Arc::new(multicast(group))),
        queriers: group.querier.map(|interval| queriers(group, interval)),
        lldp: group.lldp.map(lldp),
        cdp: group.cdp.map(cdp),
        resolver: (!group.resolve.is_empty()).then(|| Arc::new(resolver(group))),
        zone: (!group.answers.is_empty()).then(|| Arc::new(zone(group))),
        mdns: group.mdns.as_deref().map(|name| MdnsSettings { name: name.into(), ttl: MDNS_TTL }),
        auth: None,
    }
}

/// Seconds for which records of multicast DNS are valid (RFC 6762 section 10).
const MDNS_TTL: u32 = 120;
/// Seconds for which answers of DNS servers are valid.
const ANSWER_TTL: u32 = 60;

fn resolver(group: &HostGroup) -> ResolverSettings {
    let default = ResolverSettings::default();
    ResolverSettings {
        names: group.resolve.iter().filter_map(|name| NameTemplate::new(name)).collect(),
        kinds: match group.resolve_type {
            DnsType::A => vec![dns::A],
            DnsType::Aaaa => vec![dns::AAAA],
            DnsType::Both => vec![dns::A, dns::AAAA],
        },
        server: group.dns_server,
        rate: group.resolve_rate,
        count: group.resolve_count as u32,
        timeout: group.resolve_timeout.unwrap_or(default.timeout),
        tries: group.resolve_tries as u8,
    }
}

fn zone(group: &HostGroup) -> DnsZone {
    let ttl = group
        .answer_ttl
        .map_or(ANSWER_TTL, |ttl| u32::try_from(ttl.0 / Nanos::SECOND.0).unwrap_or(u32::MAX));
    let mut zone = DnsZone::new(ttl);
    for (name, address) in &group.answers {
        zone.add(name, *address);
    }
    zone
}

fn aggregation(group: &HostGroup, mode: LacpMode, mac: MacAddr) -> LacpSettings {
    let default = LacpSettings::default();
    let mut state = lacp::AGGREGATION;
    if mode == LacpMode::Active {
        state |= lacp::ACTIVITY;
    }
    if group.lacp_rate == LacpRate::Fast {
        state |= lacp::SHORT_TIMEOUT;
    }
    LacpSettings {
        actor: LacpInfo {
            system_priority: group.lacp_system_priority as u16,
            system: group.lacp_system.unwrap_or(mac),
            key: group.lacp_key as u16,
            port_priority: group.lacp_port_priority as u16,
            port: group.lacp_port.map_or(group.port as u16 + 1, |port| port as u16),
            state,
        },
        fast_periodic: group.lacp_fast.unwrap_or(default.fast_periodic),
        slow_periodic: group.lacp_slow.unwrap_or(default.slow_periodic),
        short_timeout: group.lacp_short.unwrap_or(default.short_timeout),
        long_timeout: group.lacp_long.unwrap_or(default.long_timeout),
        aggregate_wait: group.lacp_wait.unwrap_or(default.aggregate_wait),
        churn: group.lacp_churn.unwrap_or(default.churn),
    }
}

fn pppoe(group: &HostGroup, method: PppMethod, address: Ipv4Addr) -> PppoeSettings {
    let ppp = ppp(group, method);
    let service = group.pppoe_service.clone().unwrap_or_default();
    if let Some((first, last)) = group.serve {
        return PppoeSettings::Server(PppoeServerSettings {
            ac_name: group.pppoe_ac.clone().unwrap_or_else(|| "squall".to_owned()),
            service,
            address,
            first,
            count: last.to_bits() - first.to_bits() + 1,
            ppp,
        });
    }
    let default = PppoeClientSettings::default();
    PppoeSettings::Client(PppoeClientSettings {
        service,
        ac_name: group.pppoe_ac.clone().unwrap_or_default(),
        first: group.retry.unwrap_or(default.first),
        longest: group.retry_max.unwrap_or(default.longest),
        tries: group.tries.map_or(default.tries, |tries| tries as u8),
        restarts: group.restarts as u8,
        ppp,
    })
}

fn ppp(group: &HostGroup, method: PppMethod) -> PppSettings {
    let default = PppSettings::default();
    PppSettings {
        mru: group.mru as u16,
        timers: PppTimers {
            restart: group.ppp_restart.unwrap_or(default.timers.restart),
            max_terminate: group.ppp_terminates as u8,
            max_configure: group.ppp_configures as u8,
            max_failure: group.ppp_failures as u8,
        },
        auth: match method {
            PppMethod::None => PppAuth::None,
            PppMethod::Pap => PppAuth::Pap,
            PppMethod::Chap => PppAuth::Chap,
            PppMethod::Any => PppAuth::Any,
        },
        identity: group.identity.clone().unwrap_or_default(),
        password: group.password.clone().unwrap_or_default(),
        auth_interval: group.ppp_auth_retry.unwrap_or(default.auth_interval),
        auth_wait: group.ppp_auth_wait.unwrap_or(default.auth_wait),
        wait: group.ppp_wait.unwrap_or(default.wait),
        echo: group.ppp_echo.unwrap_or(default.echo),
        echo_failures: group.ppp_echo_failures as u8,
        name_servers: group.ppp_dns,
        ipv6: group.ipv6cp,
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

/// How the hosts authenticate, with the files of their settings.
fn method(
    group: &HostGroup,
    assets: &dyn Assets,
    mistakes: &mut ErrorCollector<'_>,
) -> Option<EapMethod> {
    let with_tls = match group.auth {
        AuthMethod::None => return None,
        AuthMethod::Md5 => return Some(EapMethod::Md5),
        AuthMethod::Tls => EapMethod::Tls,
        AuthMethod::Peap => EapMethod::Peap,
        AuthMethod::TtlsPap => EapMethod::TtlsPap,
        AuthMethod::TtlsMschapV2 => EapMethod::TtlsMschapV2,
    };
    let default = squall_profile::Tls::default();
    let spec = group.tls.as_ref().unwrap_or(&default);
    let mut settings: TlsSettings = tls::settings(spec, false, assets, mistakes)?;
    if settings.versions.is_empty() {
        // Many authenticators do not have TLS 1.3.
        settings.versions = vec![TlsVersion::Tls12, TlsVersion::Tls13];
    }
    match TlsClient::new(&settings) {
        Ok(client) => Some(with_tls(client)),
        Err(error) => {
            tls::report(&error, spec, group.at, mistakes);
            None
        }
    }
}

fn supplicant(group: &HostGroup, method: EapMethod) -> SupplicantSettings {
    let timers = SupplicantSettings::default();
    SupplicantSettings {
        method,
        anonymous: group.anonymous_identity.clone().unwrap_or_default(),
        again: group.auth_again,
        identity: group.identity.clone().unwrap_or_default(),
        password: group.password.clone().unwrap_or_default(),
        start_period: group.auth_start.unwrap_or(timers.start_period),
        max_start: group.auth_starts.map_or(timers.max_start, |starts| starts as u8),
        auth_period: group.auth_wait.unwrap_or(timers.auth_period),
        held_period: group.auth_held.unwrap_or(timers.held_period),
        attempts: group.auth_tries.map_or(timers.attempts, |tries| tries as u8),
    }
}
