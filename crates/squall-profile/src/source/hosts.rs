//! Hosts as text: the table, and the values of [`crate::HostGroup`] that are made from it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Value as Json, json};
use squall_units::{MacAddr, Nanos, parse_count};

use super::{
    flows::{OneOrMore, TlsInput, two_ports},
    node::{Node, Value},
    read::{Bounded, Place, Placed, Read, Reader, table, words},
};
use crate::{
    ArpUse, At, AuthMethod, DhcpUse, DnsType, HostAddress, HostFault, HostFaults, HostIpv6,
    HostOption, InterfaceId, LacpMode, LacpRate, Located, PingTarget, Port, PppMethod, Tls,
    emit::Emit,
};

table! {
    /// Hosts on a port, all of one kind. They answer ARP, neighbor solicitations and echo requests
    /// for their addresses, which are static or given by DHCP, or have the prefix of a router.
    HostGroupTable makes
    /// Hosts on a port, all of one kind.
    HostGroup {
        name: String = String::new(),
        /// Index into [`crate::Profile::ports`].
        port: usize = 0,
        /// `None`: 02:53:NN:00:00:01, where NN is the number of the group.
        mac: Option<MacAddr> = None,
        ipv4: HostAddress = HostAddress::Dhcp,
        /// `None`: hosts have no IPv6.
        ipv6: Option<HostIpv6> = None,
        gateway: Option<Ipv4Addr> = None,
        gateway6: Option<Ipv6Addr> = None,
        /// Hosts that start per second; `None`: all at once.
        setup: Option<u64> = None,
        /// First and last address that the DHCP server gives.
        serve: Option<(Ipv4Addr, Ipv4Addr)> = None,
        /// The address that the first client asks for.
        requested: Option<Ipv4Addr> = None,
        options: Vec<HostOption> = Vec::new(),
        /// Address of the relay agent.
        relay: Option<Ipv4Addr> = None,
        /// Prefix and length that the host advertises as a router.
        advertise: Option<(Ipv6Addr, u8)> = None,
        /// First and last address that the DHCPv6 server gives.
        serve6: Option<(Ipv6Addr, Ipv6Addr)> = None,
        /// Prefix from which the server delegates prefixes, its length, and theirs.
        delegate: Option<(Ipv6Addr, u8, u8)> = None,
        ping: Option<PingTarget> = None,
        /// First multicast groups of ranges, and their numbers of groups.
        join: Vec<(IpAddr, u32)> = Vec::new(),
        /// Joins per second; `None`: as soon as hosts can.
        join_rate: Option<u64> = None,
        sources: Vec<IpAddr> = Vec::new(),
        /// Names that hosts ask for.
        resolve: Vec<String> = Vec::new(),
        dns_server: Option<IpAddr> = None,
        /// Names for which hosts answer as DNS servers, and their addresses.
        answers: Vec<(String, IpAddr)> = Vec::new(),
        /// `None`: the MAC address of the host.
        lacp_system: Option<MacAddr> = None,
        at: At = At::default(),
    } from {
        /// Unique among hosts; reports use it. Default "hosts 1" and so on.
        name: String,
        /// A name from [ports]. May be left out if there is only one.
        port: String,
        /// Number of hosts. Default 1.
        count: Bounded<1, 1_000_000> => u32 = 1,
        /// MAC address of the first host; that of each further one is the next. Default
        /// 02:53:NN:00:00:01, where NN is the number of the group.
        mac: Located,
        /// VLAN of the hosts. Default: untagged.
        vlan: Bounded<1, 4_094> => Option<u64>,
        /// "dhcp", "none", "link-local" (an address of 169.254.0.0/16 that a host chooses, RFC 3927),
        /// or the first host's address with the length of its prefix: "10.0.0.2/16"; that of each
        /// further one is the next. Default "dhcp"; "none" if ipv6 is given; with pppoe, the address
        /// of the session.
        ipv4: Located,
        /// "slaac": addresses with the prefixes of routers (RFC 4862). "stateless": also other
        /// configuration by DHCPv6. "dhcp": an address by DHCPv6 (RFC 9915). Or the first host's
        /// address with the length of its prefix: "2001:db8::2/64". Default: no IPv6.
        ipv6: Located,
        /// The router of hosts with static addresses; a server gives it to its clients.
        gateway: Located,
        /// The router for IPv6. Default: a router that advertises itself.
        gateway6: Located,
        /// Last 64 bits of IPv6 addresses: "eui64" (made from the MAC address), or "stable" (random,
        /// but the same in each run; RFC 7217). Default "eui64".
        interface_id: InterfaceId => InterfaceId,
        /// Solicitations with which a host examines an IPv6 address before its use (RFC 4862); 0: it
        /// is used at once. Default 1.
        dad: Bounded<0, 10> => u64 = 1,
        /// Length of the prefix that clients of DHCPv6 ask for, besides an address; 0: any length.
        /// Default: they ask for none.
        prefix: Bounded<0, 64> => Option<u64>,
        /// true: clients of DHCP ask for leases with two messages instead of four, and a server of
        /// DHCPv4 agrees to it (RFC 4039, RFC 9915 section 21.14). Default false.
        rapid_commit: bool => bool,
        /// true: clients of DHCPv6 take the first offer, and do not wait a second for better ones.
        /// Default false.
        first_offer: bool => bool,
        /// The link of each host fails for a moment this long after it has its leases, and again at
        /// this interval: clients of DHCPv6 ask whether their addresses still suit the link
        /// (Confirm, RFC 9915 section 18.2.3). Default: never.
        link_flap: Nanos => Option<Nanos>,
        /// Hosts that start per second: "2000/s", or "max". They start at this rate, whether or not
        /// earlier ones have an address. Default "max".
        setup: Located,
        /// When the first host starts. Default 0.
        start: Nanos => Nanos,
        /// Use of ARP for the hosts' own addresses (RFC 5227): "probe" before an address is used,
        /// "announce" and defend it (as "probe" does, too), or "silent". Default "announce";
        /// link-local addresses are probed, too.
        arp: ArpUse => ArpUse,
        /// true: hosts give their addresses back when the run ends. Default false.
        release: bool => bool,
        /// Vendor class of DHCP clients (option 60). Default: none.
        vendor: String => Option<String>,
        /// Time before a client of DHCP repeats a message for the first time; it doubles each time,
        /// up to 64 s (RFC 2131 section 4.1). Default 4 s; over IPv6 1 s.
        retry: Nanos => Option<Nanos>,
        /// Messages without an answer after which a client of DHCP fails. Default 5.
        tries: Bounded<1, 255> => Option<u64>,
        /// Longest time between two messages of a client without an answer. Default 64 s.
        retry_max: Nanos => Option<Nanos>,
        /// Times that a client begins again, after a refusal or a conflict, before it fails.
        /// Default 3.
        restarts: Bounded<0, 255> => u64 = 3,
        /// Pause of a client after it declined an address. Default 10 s.
        decline_wait: Nanos => Option<Nanos>,
        /// Shortest time between two requests to extend a lease (RFC 2131 section 4.4.5). Default
        /// 60 s.
        renew_wait: Nanos => Option<Nanos>,
        /// How clients of DHCP begin: "discover" an address, "reboot" with the address that they
        /// had before (`requested`), or "inform", with static addresses, to ask for the other
        /// parameters (RFC 2131 section 4.4). Default "discover".
        dhcp: DhcpUse => DhcpUse,
        /// The address that the first client asks for; that of each further one is the next.
        /// Default: none.
        requested: Located,
        /// true: clients ask for answers by broadcast. Default false.
        broadcast: bool => bool,
        /// Further options of clients, or of a server: "CODE=TEXT", or "CODE=0x..." with
        /// hexadecimal digits. `{n}` is the number of the host, `{mac}` its MAC address:
        /// ["12=pc{n}", "61=0x01{mac}"]. Default: none.
        options: OneOrMore,
        /// The clients have a relay agent with the given address, which the group emulates
        /// (giaddr). Its MAC address is the one before that of the first host. Default: none.
        relay: Located,
        /// Circuit identifier that the agent adds (option 82, RFC 3046), with `{n}` and `{mac}` as
        /// in `options`. Without `relay`, the agent is a switch. Default: none.
        circuit: String => Option<String>,
        /// Remote identifier that the agent adds. Default: none.
        remote: String => Option<String>,
        /// The host, which has a static address, is a DHCP server, or with pppoe an access
        /// concentrator, and gives these addresses: "10.0.1.0-10.0.4.255".
        serve: Located,
        /// The host is a router that advertises itself and this prefix: "2001:db8:1::/64".
        advertise: Located,
        /// The host, which has a static IPv6 address, is a DHCPv6 server, and gives these addresses:
        /// "2001:db8::100-2001:db8::ffff".
        serve6: Located,
        /// The server also delegates prefixes: "2001:db8:100::/40-56" are those of 56 bits in one
        /// of 40.
        delegate: Located,
        /// Length of the leases that it gives, or that clients ask for. Default 1 h of a server; clients
        /// ask for none.
        lease: Nanos => Option<Nanos>,
        /// Timers and numbers of the detection of conflicts (RFC 5227 section 1.1). The first probe
        /// leaves within this time. Default 1 s.
        probe_wait: Nanos => Option<Nanos>,
        /// Probes with `arp = "probe"`. Default 3.
        probes: Bounded<1, 255> => u64 = 3,
        /// Shortest and longest time between two probes. Default 1 s and 2 s.
        probe_min: Nanos => Option<Nanos>,
        probe_max: Nanos => Option<Nanos>,
        /// Time from the last probe to the use of the address. Default 2 s.
        announce_wait: Nanos => Option<Nanos>,
        /// Announcements of an address (gratuitous ARP). Default 2.
        announcements: Bounded<0, 255> => u64 = 2,
        /// Time between two announcements. Default 2 s.
        announce_interval: Nanos => Option<Nanos>,
        /// A host gives its address up if two conflicts are less than this apart. Default 10 s.
        defend_interval: Nanos => Option<Nanos>,
        /// Faults of the hosts, each by its name ([faults](../guide/hosts.md#faults)).
        /// Default: nothing.
        faults: HostFaults => HostFaults,
        /// Delay of the answers of hosts with the fault "late-answer". Default 1 s.
        late: Nanos => Nanos = Nanos::SECOND,
        /// Number of events that the group keeps for `squall hosts show`, each in 48 octets of
        /// memory; newer ones replace older ones. Default 10000.
        log: Bounded<0, 10_000_000> => u32 = 10_000,
        /// Hosts send echo requests to this address, or to their "gateway".
        ping: Located,
        /// Echo requests per second of the group. Default 100.
        ping_rate: Bounded<1, 10_000_000> => u64 = 100,
        /// Echo requests of each host. Default 3.
        ping_count: Bounded<1, 65_535> => u64 = 3,
        /// true: hosts answer datagrams to closed UDP ports, and packets of unknown protocols, with
        /// errors of ICMP, at most 1000 per second. Default false.
        icmp_errors: bool => bool,
        /// Multicast groups that hosts join as soon as they have an address: "239.1.0.1", or a range,
        /// "239.1.0.1-239.1.3.255". Hosts join IPv6 groups by MLD, from link-local addresses; with
        /// pppoe, this needs ipv6cp.
        join: OneOrMore,
        /// Groups that each host joins: the first host the first ones, the next host the following
        /// ones, and so on in turn. Default: all.
        join_each: Bounded<1, 1_000_000> => Option<u64>,
        /// Joins per second of the group: "1000/s", or "max". Default "max".
        join_rate: Located,
        /// Time after which a host leaves a group. Default: at the end, if `release` is true.
        join_time: Nanos => Option<Nanos>,
        /// Sources that hosts want of their groups (versions IGMPv3 and MLDv2). Default: all.
        sources: OneOrMore,
        /// true: hosts want all sources but `sources`. Default false.
        exclude: bool => bool,
        /// Highest version of IGMP that hosts have. Default 3.
        igmp: Bounded<1, 3> => u64 = 3,
        /// Highest version of MLD that hosts have. Default 2.
        mld: Bounded<1, 2> => u64 = 2,
        /// How often hosts send each change of a membership (RFC 3376 section 8.1). Default 2.
        robustness: Bounded<1, 7> => u64 = 2,
        /// Longest interval between these. Default 1 s; IGMPv1, IGMPv2 and MLDv1: 10 s.
        unsolicited: Nanos => Option<Nanos>,
        /// Time without a query of an older version until hosts return to their own (RFC 3376
        /// section 8.12). Default 260 s; IGMPv2 and MLDv1: 400 s.
        older_querier: Nanos => Option<Nanos>,
        /// The host, which has a static address, is a querier of IGMP and MLD, and sends general
        /// queries at this interval, usually "125 s". Default: no querier.
        querier: Nanos => Option<Nanos>,
        /// Time within which hosts answer its general queries. Default 10 s.
        query_response: Nanos => Option<Nanos>,
        /// Time within which hosts answer its queries for a group. Default 1 s.
        last_member: Nanos => Option<Nanos>,
        /// Hosts announce themselves by LLDP at this interval, usually "30 s", and list their
        /// neighbors. Default: no LLDP.
        lldp: Nanos => Option<Nanos>,
        /// Intervals for which neighbors keep an announcement. Default 4.
        lldp_hold: Bounded<1, 100> => u64 = 4,
        /// Announcements at the start that are 1 s apart. Default 4.
        lldp_fast: Bounded<1, 8> => u64 = 4,
        /// System name in announcements; "{}" is the number of the host. Default: none.
        lldp_name: String => Option<String>,
        /// Hosts announce themselves by CDP (Cisco's discovery protocol) at this interval, usually
        /// "60 s", and list their neighbors. Default: no CDP.
        cdp: Nanos => Option<Nanos>,
        /// Time for which neighbors keep an announcement, at most 255 s. Default 180 s.
        cdp_hold: Nanos => Option<Nanos>,
        /// Device ID in announcements; "{}" is the number of the host. Default: its MAC address.
        cdp_name: String => Option<String>,
        /// Names that hosts ask DNS servers for as soon as they have an address, in turn. "{}" is the
        /// number of the host, "{q}" that of the question: ["www.example.com", "h{q}.example.com"].
        /// Default: none.
        resolve: OneOrMore,
        /// Addresses that hosts ask for: "a" (IPv4), "aaaa" (IPv6), or "both". Default "a".
        resolve_type: DnsType => DnsType,
        /// Questions per second of the group. Default 100.
        resolve_rate: Bounded<1, 10_000_000> => u64 = 100,
        /// Questions of each host. Default 1.
        resolve_count: Bounded<1, 1_000_000_000> => u64 = 1,
        /// Time after which hosts repeat a question without an answer. Default 5 s.
        resolve_timeout: Nanos => Option<Nanos>,
        /// Transmissions of a question at most. Default 2.
        resolve_tries: Bounded<1, 255> => u64 = 2,
        /// The server that hosts ask. Default: that of DHCPv4, or of PPP (ppp_dns).
        dns_server: Located,
        /// Hosts are DNS servers for these names: "NAME=ADDRESS". "*.example=10.0.0.9" are all names
        /// below "example". Default: none.
        answers: OneOrMore,
        /// Time for which such answers are valid. Default 60 s.
        answer_ttl: Nanos => Option<Nanos>,
        /// Name of each host in multicast DNS (RFC 6762), below "local"; "{}" is the number of the
        /// host: "host-{}". Default: none.
        mdns: String => Option<String>,
        /// Hosts authenticate by 802.1X before they send anything else: "md5" (EAP-MD5), "tls"
        /// (EAP-TLS), "peap" (PEAPv0 with MSCHAPv2), "ttls-pap", "ttls-mschapv2" (EAP-TTLS). Default
        /// "none".
        auth: AuthMethod => AuthMethod,
        /// Settings of TLS in these methods: whom hosts trust, and their certificate. true: they
        /// trust any server.
        tls: TlsInput => Option<Tls>,
        /// Identity of hosts; "{}" is the number of the host.
        identity: String => Option<String>,
        /// Identity that hosts show outside TLS, in plain text. Default: as `identity`.
        anonymous_identity: String => Option<String>,
        /// Password of hosts; "{}" is the number of the host.
        password: String => Option<String>,
        /// Time between EAPOL-Start frames without an answer. Default 30 s.
        auth_start: Nanos => Option<Nanos>,
        /// EAPOL-Start frames without an answer after which a host fails. Default 3.
        auth_starts: Bounded<1, 255> => Option<u64>,
        /// Longest time to wait for the authenticator. Default 30 s.
        auth_wait: Nanos => Option<Nanos>,
        /// Pause after a failed authentication. Default 60 s.
        auth_held: Nanos => Option<Nanos>,
        /// Failed authentications in a row after which a host gives up. Default 3.
        auth_tries: Bounded<1, 255> => Option<u64>,
        /// Time after an authentication when a host begins another one by itself. Default: never.
        auth_again: Nanos => Option<Nanos>,
        /// Hosts get their addresses in sessions of PPPoE (RFC 2516), and authenticate with `identity`
        /// and `password`: "none", "pap", "chap" (with MD5), or "any", as the server wants it. `retry`,
        /// `retry_max` and `tries` are those of its discovery (default 5 s, 60 s and 5), `restarts`
        /// the attempts after a refusal or the end of a session. Default: no PPPoE.
        pppoe: PppMethod => Option<PppMethod>,
        /// Service-Name that hosts ask for, and that a server has. Default: any.
        pppoe_service: String => Option<String>,
        /// AC-Name of the only access concentrator that hosts accept, and that a server has. Default:
        /// any; a server is called "squall".
        pppoe_ac: String => Option<String>,
        /// Octets of the longest packet that hosts receive in a session; flows and attacks also send
        /// no longer ones. Default 1492.
        mru: Bounded<128, 1_492> => u64 = 1_492,
        /// Time after which a Configure-Request or Terminate-Request without an answer is repeated
        /// (RFC 1661 section 4.6). Default 3 s.
        ppp_restart: Nanos => Option<Nanos>,
        /// Configure-Requests without an answer after which a session ends (Max-Configure).
        /// Default 10.
        ppp_configures: Bounded<1, 255> => u64 = 10,
        /// Terminate-Requests without an answer (Max-Terminate). Default 2.
        ppp_terminates: Bounded<1, 255> => u64 = 2,
        /// Naks before options are rejected instead (Max-Failure). Default 5.
        ppp_failures: Bounded<1, 255> => u64 = 5,
        /// Longest time from the begin of a session to its address. Default 60 s.
        ppp_wait: Nanos => Option<Nanos>,
        /// Time after which a request of PAP, a challenge, or a response is repeated. Default 3 s.
        ppp_auth_retry: Nanos => Option<Nanos>,
        /// Longest time for the authentication in a session. Default 30 s.
        ppp_auth_wait: Nanos => Option<Nanos>,
        /// Interval between the Echo-Requests that examine whether a session is still there; 0: none.
        /// Default 30 s.
        ppp_echo: Nanos => Option<Nanos>,
        /// Echo-Requests without a reply after which a session ends. Default 3.
        ppp_echo_failures: Bounded<1, 255> => u64 = 3,
        /// true: hosts ask for the addresses of name servers (RFC 1877). Default false.
        ppp_dns: bool => bool,
        /// true: sessions also carry IPv6 (IPV6CP, RFC 5072). Default false.
        ipv6cp: bool => bool,
        /// The host is a port of an aggregate (LACP, IEEE 802.1AX): "active", or "passive", which waits
        /// for an active partner. Ports with the same system and key whose partner is the same one are
        /// in one aggregate. Default: no LACP.
        lacp: LacpMode => Option<LacpMode>,
        /// How often the partner has to announce itself: "fast" (each second) or "slow" (each 30 s).
        /// Default "fast".
        lacp_rate: LacpRate => LacpRate,
        /// MAC address of the system, the same for all ports of an aggregate. Default: that of the
        /// host.
        lacp_system: Located,
        /// Priority of the system. Default 32768.
        lacp_system_priority: Bounded<0, 65_535> => u64 = 32_768,
        /// Key, the same for all ports of an aggregate. Default 1.
        lacp_key: Bounded<1, 65_535> => u64 = 1,
        /// Number of the port in the system. Default: its place in [ports], from 1.
        lacp_port: Bounded<1, 65_535> => Option<u64>,
        /// Priority of the port. Default 32768.
        lacp_port_priority: Bounded<0, 65_535> => u64 = 32_768,
        /// Intervals between LACPDUs, to partners that ask for the fast and for the slow one.
        /// Default 1 s and 30 s.
        lacp_fast: Nanos => Option<Nanos>,
        lacp_slow: Nanos => Option<Nanos>,
        /// Times without an LACPDU after which a partner expires, with lacp_rate "fast" and "slow".
        /// Default 3 s and 90 s.
        lacp_short: Nanos => Option<Nanos>,
        lacp_long: Nanos => Option<Nanos>,
        /// Time for further ports of the aggregate before a port joins it. Default 2 s.
        lacp_wait: Nanos => Option<Nanos>,
        /// Time within which both ends have to agree; later, the report counts churn. Default 60 s.
        lacp_churn: Nanos => Option<Nanos>,
        /// false: the hosts are ignored. Default true.
        enabled: bool,
    }
}

words!(
    InterfaceId,
    "a known interface identifier":
    "eui64" => Eui64,
    "stable" => Stable,
);

words!(
    ArpUse,
    "a known use of ARP":
    "probe" => Probe,
    "announce" => Announce,
    "silent" => Silent,
);

words!(
    AuthMethod,
    "a method of authentication":
    "none" => None,
    "md5" => Md5,
    "tls" => Tls,
    "peap" => Peap,
    "ttls-pap" => TtlsPap,
    "ttls-mschapv2" => TtlsMschapV2,
);

words!(
    DnsType,
    "a known type of addresses":
    "a" => A,
    "aaaa" => Aaaa,
    "both" => Both,
);

words!(
    PppMethod,
    "a method of authentication in PPP":
    "none" => None,
    "pap" => Pap,
    "chap" => Chap,
    "any" => Any,
);

words!(
    LacpMode,
    "a known mode of LACP":
    "active" => Active,
    "passive" => Passive,
);

words!(
    LacpRate,
    "a known rate of LACP":
    "fast" => Fast,
    "slow" => Slow,
);

words!(
    DhcpUse,
    "a known begin of DHCP":
    "discover" => Discover,
    "reboot" => Reboot,
    "inform" => Inform,
);

words!(
    HostFault,
    "a known fault":
    "duplicate-address" => DuplicateAddress,
    "keep-address" => KeepAddress,
    "no-arp" => NoArp,
    "spoof-gateway" => SpoofGateway,
    "spoof-mac" => SpoofMac,
    "spoof-address" => SpoofAddress,
    "late-answer" => LateAnswer,
    "flood" => Flood,
    "ignore-offer" => IgnoreOffer,
    "ignore-nak" => IgnoreNak,
    "decline" => Decline,
    "keep-lease" => KeepLease,
    "bad-checksum" => BadChecksum,
    "bad-options" => BadOptions,
);

impl Read for HostFaults {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match node.value {
            Value::List(_) => Vec::read(node, cx).map(Self),
            _ => HostFault::read(node, cx).map(|one| Self(vec![one])),
        }
    }
    fn schema() -> Json {
        let one = HostFault::schema();
        json!({ "title": "HostFaults", "anyOf": [one, { "type": "array", "items": one }] })
    }
}

impl Emit for HostFaults {
    fn emit(&self) -> Option<Json> {
        Some(json!(self.0.iter().map(|fault| fault.word()).collect::<Vec<_>>()))
    }
}

pub(super) fn hosts(
    tables: Option<Placed<Vec<HostGroupTable>>>,
    ports: &[Port],
    cx: &mut Reader<'_>,
) -> Vec<HostGroup> {
    let tables = tables.map_or_else(Vec::new, |tables| tables.value);
    let mut groups: Vec<HostGroup> = Vec::new();
    for (number, table) in tables.into_iter().enumerate() {
        if table.enabled.as_ref().is_some_and(|enabled| !enabled.value) {
            continue;
        }
        let name_place =
            table.name.as_ref().map_or_else(|| table.place.clone(), |name| name.place.clone());
        let Some(group) = group(number, table, ports, cx) else { continue };
        if groups.iter().any(|before| before.name == group.name) {
            let what = format!("= {:?} is already the name of other hosts", group.name);
            cx.report(&name_place, &what, &[]);
        }
        groups.push(group);
    }
    groups
}

fn group(
    number: usize,
    mut table: HostGroupTable,
    ports: &[Port],
    cx: &mut Reader<'_>,
) -> Option<HostGroup> {
    let at = cx.at(table.place.start);
    let place = table.place.clone();
    let (port, _) = two_ports(&table.port, &None, (&table.given, &table.place), ports, cx);
    let mac = read(table.mac.take(), cx, |text| text.parse().ok(), "a MAC address", MAC);
    let unicast = mac.as_ref().is_none_or(|(mac, _): &(MacAddr, Place)| mac.0[0] & 1 == 0);
    if let (Some((_, place)), false) = (&mac, unicast) {
        cx.report(place, "is the address of a group, which no host can have", &[MAC.into()]);
    }
    let bare = |at: &Placed<Located>| at.value.text.trim().parse::<Ipv4Addr>().ok();
    let full = table.ipv4.as_ref().and_then(bare).map(|address| format!("try \"{address}/24\""));
    let (wanted, hint) = match &full {
        Some(hint) => ("an address with the length of its prefix", hint.as_str()),
        None => (
            "\"dhcp\", \"none\", \"link-local\" or an address with a prefix of 1 to 32 bits",
            ADDRESS,
        ),
    };
    let ipv4 = read(table.ipv4.take(), cx, address, wanted, hint);
    let ipv6 = read(table.ipv6.take(), cx, address6, "a known use of IPv6, or an address", IPV6);
    let gateway6 =
        read(table.gateway6.take(), cx, |text| text.parse().ok(), "an IPv6 address", GATEWAY6);
    let advertise = read(table.advertise.take(), cx, advertised, "a prefix of 64 bits", ADVERTISE);
    let serve6 = read(table.serve6.take(), cx, range6, "a range of IPv6 addresses", RANGE6);
    let delegate = read(table.delegate.take(), cx, delegated, "a prefix and a length", DELEGATE);
    let gateway = read(table.gateway.take(), cx, |text| text.parse().ok(), "an address", GATEWAY);
    let setup = read(table.setup.take(), cx, per_second, "a number per second", SETUP);
    let serve = read(table.serve.take(), cx, range, "a range of addresses", RANGE);
    let requested = read(table.requested.take(), cx, host, "the address of a host", REQUESTED);
    let relay = read(table.relay.take(), cx, host, "the address of a host", RELAY);
    let options = table.options.take().map(|texts| {
        let one = |Located { text, .. }: Located| {
            let what = format!("= {text:?} is not an option");
            cx.must(&texts.place, option(&text), &what, OPTION)
        };
        texts.value.0.into_iter().filter_map(one).collect()
    });
    let ping = read(table.ping.take(), cx, target, "\"gateway\" or an address", PING);
    let lacp_system =
        read(table.lacp_system.take(), cx, |text| text.parse().ok(), "a MAC address", SYSTEM);
    let join_rate = read(table.join_rate.take(), cx, per_second, "a number per second", SETUP);
    let join = read_all(table.join.take(), cx, groups, "a multicast group, or a range", JOIN);
    let sources = read_all(table.sources.take(), cx, source, "the address of a host", SOURCE);
    let resolve = read_all(table.resolve.take(), cx, asked_name, "a name of DNS", NAME);
    let answers = read_all(table.answers.take(), cx, answer, "a name and an address", ANSWER);
    let dns_server =
        read(table.dns_server.take(), cx, |text| text.parse().ok(), "an address", DNS_SERVER);
    let name = table.name.take().map(|name| name.value);
    let group = HostGroup {
        name: name.unwrap_or_else(|| format!("hosts {}", number + 1)),
        port: port?,
        mac: mac.map(|(mac, _)| mac),
        ipv4: match (&ipv4, &ipv6) {
            (Some((address, _)), _) => *address,
            (None, _) if table.pppoe.is_some() => HostAddress::Pppoe,
            (None, Some(_)) => HostAddress::None,
            (None, None) => HostAddress::Dhcp,
        },
        ipv6: ipv6.as_ref().map(|(address, _)| *address),
        gateway: gateway.map(|(gateway, _)| gateway),
        gateway6: gateway6.map(|(gateway, _)| gateway),
        advertise: advertise.as_ref().map(|(prefix, _)| *prefix),
        serve6: serve6.as_ref().map(|(range, _)| *range),
        delegate: delegate.as_ref().map(|(prefix, _)| *prefix),
        setup: setup.and_then(|(rate, _)| rate),
        serve: serve.as_ref().map(|(range, _)| *range),
        ping: ping.map(|(target, _)| target),
        lacp_system: lacp_system.map(|(system, _)| system),
        join,
        join_rate: join_rate.and_then(|(rate, _)| rate),
        sources,
        resolve,
        dns_server: dns_server.map(|(server, _)| server),
        answers,
        requested: requested.map(|(requested, _)| requested),
        options: options.unwrap_or_default(),
        relay: relay.map(|(relay, _)| relay),
        at,
        ..table.made()
    };
    let last = |first: Ipv4Addr| first.to_bits().checked_add(group.count - 1);
    match (group.ipv4, &serve) {
        (
            HostAddress::Dhcp | HostAddress::None | HostAddress::LinkLocal | HostAddress::Pppoe,
            Some((_, place)),
        ) => {
            let hint = r#"try ipv4 = "10.0.0.1/16""#.to_owned();
            cx.report(place, "needs a host with a static address", &[hint]);
        }
        (HostAddress::Static { .. }, Some((_, place))) if group.count > 1 => {
            cx.report(place, "needs a single host", &["try count = 1".to_owned()]);
        }
        (HostAddress::Static { first, .. }, _) if last(first).is_none() => {
            cx.report(&place, "has more hosts than there are addresses", &[]);
        }
        (HostAddress::LinkLocal, _) if group.count > MOST_LINK_LOCAL => {
            let what = format!("has more hosts than the {MOST_LINK_LOCAL} link-local addresses");
            cx.report(&place, &what, &["try ipv4 = \"10.0.0.2/8\"".to_owned()]);
        }
        _ => {}
    }
    check_services(&group, &place, cx);
    check_pppoe(&group, &place, cx);
    check_lacp(&group, &place, cx);
    let mut needs = |is_wrong: bool, what: &str, hint: &str| {
        if is_wrong {
            cx.report(&place, what, &[hint.to_owned()]);
        }
    };
    let is_dhcp = group.ipv4 == HostAddress::Dhcp;
    let is_static = matches!(group.ipv4, HostAddress::Static { .. });
    let of_static = "has hosts without static addresses, which";
    needs(
        group.dhcp == DhcpUse::Reboot && group.requested.is_none(),
        "has hosts that reboot without an address that they had",
        REQUESTED,
    );
    needs(
        group.dhcp == DhcpUse::Inform && !is_static,
        &format!("{of_static} dhcp = \"inform\" needs"),
        ADDRESS,
    );
    needs(
        group.dhcp == DhcpUse::Inform && group.serve.is_some(),
        "has a DHCP server that asks for its own parameters",
        r#"try dhcp = "discover""#,
    );
    needs(
        group.link_flap.is_some() && group.ipv6 != Some(HostIpv6::Dhcp),
        "has link_flap without clients of DHCPv6",
        r#"try ipv6 = "dhcp""#,
    );
    needs(
        group.link_flap.is_some_and(|interval| interval < Nanos::SECOND),
        "has an interval of link_flap below 1 s",
        r#"try link_flap = "60 s""#,
    );
    needs(
        !is_dhcp && group.requested.is_some(),
        "has hosts that request none, because they have no DHCP",
        r#"try ipv4 = "dhcp""#,
    );
    needs(
        group.faults.0.contains(&HostFault::DuplicateAddress) && !is_static,
        &format!("{of_static} the fault \"duplicate-address\" needs"),
        ADDRESS,
    );
    let router = advertise.as_ref().map(|(_, place)| place);
    let addresses = serve6.as_ref().map(|(_, place)| place);
    let server = addresses.or(delegate.as_ref().map(|(_, place)| place));
    check_ipv6(&group, (router, server), &place, cx);
    if group.lease.is_some_and(|lease| lease < Nanos::SECOND || lease.0 / Nanos::SECOND.0 > MOST) {
        cx.report(&place, "has a lease below 1 s or above 136 years", &[r#"try "1 h""#.into()]);
    }
    Some(group)
}

/// Routers and servers are single hosts, and servers have a static address.
fn check_ipv6(
    group: &HostGroup,
    (router, server): (Option<&Place>, Option<&Place>),
    place: &Place,
    cx: &mut Reader<'_>,
) {
    let is_static = matches!(group.ipv6, Some(HostIpv6::Static { .. }));
    // A router also works with its link-local address alone.
    let misplaced = server.filter(|_| !is_static).or(router.filter(|_| group.ipv6.is_none()));
    if let Some(place) = misplaced {
        let hint = r#"try ipv6 = "2001:db8::1/64""#.to_owned();
        cx.report(place, "needs a host with a static IPv6 address", &[hint]);
    }
    if let Some(place) = server.or(router)
        && group.count > 1
    {
        cx.report(place, "needs a single host", &["try count = 1".to_owned()]);
    }
    if let Some(HostIpv6::Static { first, .. }) = group.ipv6
        && first.to_bits().checked_add(u128::from(group.count) - 1).is_none()
    {
        cx.report(place, "has more hosts than there are IPv6 addresses", &[]);
    }
}

fn check_services(group: &HostGroup, place: &Place, cx: &mut Reader<'_>) {
    let total: u64 = group.join.iter().map(|(_, count)| u64::from(*count)).sum();
    let memberships = u64::from(group.count) * group.join_each.unwrap_or(total).min(total);
    if total > MOST_GROUPS || memberships > MOST_MEMBERSHIPS {
        let what = format!(
            "joins {total} groups, with {memberships} memberships; at most {MOST_GROUPS} and \
             {MOST_MEMBERSHIPS} are possible"
        );
        cx.report(place, &what, &["try join_each = 1".to_owned()]);
    }
    if group.sources.len() > MOST_SOURCES {
        cx.report(place, &format!("has more than {MOST_SOURCES} sources"), &[]);
    }
    let all = group.igmp < 3 && group.join.iter().any(|(group, _)| group.is_ipv4())
        || group.mld < 2 && group.join.iter().any(|(group, _)| group.is_ipv6());
    if all && !group.sources.is_empty() {
        let hint = "try igmp = 3 and mld = 2".to_owned();
        cx.report(place, "has sources, which older versions of IGMP and MLD do not have", &[hint]);
    }
    if group.join.is_empty() && (group.join_rate.is_some() || group.join_time.is_some()) {
        cx.report(place, "has settings of memberships, but joins no group", &[JOIN.into()]);
    }
    if group.lldp == Some(Nanos::ZERO) {
        cx.report(place, "has an interval of LLDP of 0", &[r#"try lldp = "30 s""#.into()]);
    }
    if group.cdp == Some(Nanos::ZERO) {
        cx.report(place, "has an interval of CDP of 0", &[r#"try cdp = "60 s""#.into()]);
    }
    let seconds = group.cdp_hold.map(|hold| hold.0 / Nanos::SECOND.0);
    if seconds.is_some_and(|seconds| !(1..=255).contains(&seconds)) {
        let hint = r#"try cdp_hold = "180 s""#.to_owned();
        cx.report(place, "has cdp_hold below 1 s or above 255 s", &[hint]);
    }
    if group.resolve.is_empty() && group.dns_server.is_some() {
        cx.report(place, "has a DNS server, but asks for no name", &[NAME.into()]);
    }
    if group.resolve_timeout == Some(Nanos::ZERO) {
        let hint = r#"try resolve_timeout = "5 s""#.to_owned();
        cx.report(place, "has a resolve_timeout of 0", &[hint]);
    }
    if group.mdns.as_ref().is_some_and(|name| name.contains('.') || asked_name(name).is_none()) {
        let hint = r#"try mdns = "host-{}""#.to_owned();
        cx.report(place, "has a name of multicast DNS that is not a single label", &[hint]);
    }
    if group.mdns.is_some() && group.count > MOST_NAMES {
        let what = format!("has more than {MOST_NAMES} hosts with names of multicast DNS");
        cx.report(place, &what, &["try a group without mdns for the others".to_owned()]);
    }
    if group.querier.is_some_and(|interval| interval < Nanos::SECOND) {
        let hint = r#"try querier = "125 s""#.to_owned();
        cx.report(place, "has an interval of queries below 1 s", &[hint]);
    }
    let fixed = matches!(group.ipv4, HostAddress::Static { .. });
    if group.querier.is_some() && (group.count > 1 || !fixed) {
        let hint = r#"try count = 1 and ipv4 = "10.0.0.1/16""#.to_owned();
        cx.report(place, "is a querier, which needs a single host with a static address", &[hint]);
    }
    check_auth(group, place, cx);
    let texts = [
        &group.identity,
        &group.anonymous_identity,
        &group.password,
        &group.lldp_name,
        &group.cdp_name,
    ];
    if texts.iter().any(|text| text.as_ref().is_some_and(|text| text.len() > MOST_TEXT)) {
        let what = format!("has a text of more than {MOST_TEXT} octets");
        cx.report(place, &what, &[]);
    }
}

fn check_auth(group: &HostGroup, place: &Place, cx: &mut Reader<'_>) {
    let with_tls = !matches!(group.auth, AuthMethod::None | AuthMethod::Md5);
    let has_certificate = group.tls.as_ref().is_some_and(|tls| {
        tls.client_certificate.is_some() && tls.client_key.is_some()
            || tls.certificate.is_some() && tls.key.is_some()
    });
    if group.auth == AuthMethod::Tls && !(has_certificate && group.identity.is_some()) {
        let hint =
            r#"try identity = "host{}" and tls = { certificate = "me.pem", key = "me.key" }"#;
        let what = "has auth = \"tls\", but no identity or no certificate with its key";
        cx.report(place, what, &[hint.to_owned()]);
    } else if !matches!(group.auth, AuthMethod::None | AuthMethod::Tls)
        && (group.identity.is_none() || group.password.is_none())
    {
        let hint = r#"try identity = "user{}" and password = "secret""#.to_owned();
        cx.report(place, "has auth, but no identity or no password", &[hint]);
    }
    let Some(tls) = &group.tls else { return };
    if !with_tls {
        let hint = r#"try auth = "peap""#.to_owned();
        cx.report(place, "has tls, but no auth that uses it", &[hint]);
    }
    let unused = [
        ("alpn", !tls.alpn.is_empty()),
        ("client_ca", tls.client_ca.is_some()),
        ("resumption", tls.resumption),
        ("fresh_key_shares", tls.fresh_key_shares),
        ("early_data", tls.early_data),
        ("certificate_per_name", tls.certificate_per_name),
        ("hello", tls.hello.is_some()),
    ];
    if let Some((key, _)) = unused.into_iter().find(|(_, given)| *given) {
        cx.report(place, &format!("has tls.{key}, which hosts do not use"), &[]);
    }
}

/// Sessions carry no other protocol for addresses, and a server has a range of them.
fn check_pppoe(group: &HostGroup, place: &Place, cx: &mut Reader<'_>) {
    let texts = [&group.pppoe_service, &group.pppoe_ac];
    let Some(method) = group.pppoe else {
        if texts.iter().any(|text| text.is_some()) {
            let hint = r#"try pppoe = "any""#.to_owned();
            cx.report(place, "has settings of PPPoE, but no pppoe", &[hint]);
        }
        return;
    };
    let mut needs = |is_wrong: bool, what: &str, hint: &str| {
        if is_wrong {
            cx.report(place, what, &[hint.to_owned()]);
        }
    };
    let is_server = group.serve.is_some();
    needs(
        !is_server && group.ipv4 != HostAddress::Pppoe,
        "has pppoe, whose sessions give the addresses of clients",
        r#"try without ipv4, or serve = "10.0.1.0-10.0.4.255""#,
    );
    needs(
        group.ipv6.is_some(),
        "has ipv6 and pppoe, but sessions carry IPv6 with link-local addresses only",
        "try ipv6cp = true, without ipv6",
    );
    needs(
        !is_server && !group.ipv6cp && group.join.iter().any(|(first, _)| first.is_ipv6()),
        "joins groups of IPv6, which its sessions of PPPoE do not carry",
        "try ipv6cp = true",
    );
    // Messages of multicast DNS stay on their link (RFC 6762 section 3), and the only other end of
    // this one is a router: no host would see a name, or have the same.
    needs(
        !is_server && group.mdns.is_some(),
        "has names of multicast DNS, but no other host is on the link of a session of PPPoE",
        "try a group of hosts without pppoe",
    );
    let has_no_text = group.identity.is_none() || group.password.is_none();
    needs(
        method != PppMethod::None && has_no_text,
        "has pppoe with an authentication, but no identity or no password",
        r#"try identity = "user{}" and password = "secret", or pppoe = "none""#,
    );
    let zero = [group.ppp_restart, group.ppp_wait, group.ppp_auth_retry, group.ppp_auth_wait];
    needs(zero.contains(&Some(Nanos::ZERO)), "has a timer of PPP of 0", r#"try "3 s""#);
    let is_long = texts.iter().any(|text| text.as_ref().is_some_and(|one| one.len() > MOST_TEXT));
    needs(is_long, &format!("has a text of more than {MOST_TEXT} octets"), "try a shorter one");
}

fn check_lacp(group: &HostGroup, place: &Place, cx: &mut Reader<'_>) {
    if group.lacp.is_some() && group.count > 1 {
        let hint = "try count = 1, and a table for each port".to_owned();
        cx.report(place, "has LACP, which needs a single host on its port", &[hint]);
    }
    let timers = [group.lacp_fast, group.lacp_slow, group.lacp_short, group.lacp_long];
    if timers.into_iter().flatten().any(|timer| timer < SHORTEST_OF_LACP) {
        let what = format!("has a timer of LACP below {SHORTEST_OF_LACP}");
        cx.report(place, &what, &[r#"try "1 s""#.to_owned()]);
    }
}

/// Timers of LACP at least: shorter ones would fill the link with its PDUs.
const SHORTEST_OF_LACP: Nanos = Nanos(10_000_000);
/// Multicast groups, and memberships of all hosts, of one table: each takes about 200 octets.
const MOST_GROUPS: u64 = 1_000_000;
const MOST_MEMBERSHIPS: u64 = 4_000_000;
/// Sources whose record fits in a frame, even of IPv6.
const MOST_SOURCES: usize = 64;
/// Hosts with names of multicast DNS, whose probes all hosts of the link receive.
const MOST_NAMES: u32 = 10_000;
/// Octets of a label, and of a name, of DNS (RFC 1035 section 2.3.4), and digits of numbers in it.
const MOST_LABEL: usize = 63;
const MOST_NAME: usize = 253;
const MOST_DIGITS: [(&str, usize); 2] = [("{}", 10), ("{q}", 20)];
/// Octets of a name.
const MOST_TEXT: usize = 200;
/// Addresses that hosts may choose (RFC 3927 section 2.1).
const MOST_LINK_LOCAL: u32 = 65_024;
/// Longest finite lease, in seconds.
const MOST: u64 = u32::MAX as u64 - 1;
const SYSTEM: &str = r#"try lacp_system = "02:00:00:00:00:01""#;
const MAC: &str = r#"try mac = "02:00:00:00:00:01""#;
const ADDRESS: &str = r#"try "dhcp" or "10.0.0.2/16""#;
const GATEWAY: &str = r#"try gateway = "10.0.0.1""#;
const SETUP: &str = r#"try setup = "2000/s" or "max""#;
const RANGE: &str = r#"try serve = "10.0.1.0-10.0.4.255""#;
const JOIN: &str = r#"try join = "239.1.0.1" or "239.1.0.1-239.1.3.255""#;
const SOURCE: &str = r#"try sources = ["10.0.0.1"]"#;
const NAME: &str = r#"try resolve = "www.example.com""#;
const ANSWER: &str = r#"try answers = ["www.example.com=10.0.0.9"]"#;
const DNS_SERVER: &str = r#"try dns_server = "10.0.0.1""#;
const REQUESTED: &str = r#"try requested = "10.0.1.0""#;
const RELAY: &str = r#"try relay = "10.0.0.2""#;
const OPTION: &str = r#"try "12=pc{n}" or "61=0x01{mac}""#;
const PING: &str = r#"try ping = "gateway", "10.0.0.1" or "2001:db8::1""#;
const IPV6: &str = r#"try "slaac", "stateless", "dhcp" or "2001:db8::2/64""#;
const GATEWAY6: &str = r#"try gateway6 = "2001:db8::1" or "fe80::1""#;
const ADVERTISE: &str = r#"try advertise = "2001:db8:1::/64""#;
const RANGE6: &str = r#"try serve6 = "2001:db8::100-2001:db8::ffff""#;
const DELEGATE: &str = r#"try delegate = "2001:db8:100::/40-56""#;

/// The value of a key, and its place.
pub(super) fn read<T>(
    given: Option<Placed<Located>>,
    cx: &mut Reader<'_>,
    parse: impl Fn(&str) -> Option<T>,
    what: &str,
    hint: &str,
) -> Option<(T, Place)> {
    let Placed { value: Located { text, .. }, place } = given?;
    let value = parse(text.trim());
    let value = cx.must(&place, value, &format!("= {text:?} is not {what}"), hint)?;
    Some((value, place))
}

fn address(text: &str) -> Option<HostAddress> {
    match text {
        "dhcp" => return Some(HostAddress::Dhcp),
        "none" => return Some(HostAddress::None),
        "link-local" => return Some(HostAddress::LinkLocal),
        _ => {}
    }
    let (first, prefix) = text.split_once('/')?;
    let prefix = prefix.parse().ok().filter(|prefix| (1..=32).contains(prefix))?;
    let first = first.parse().ok().filter(|first: &Ipv4Addr| is_of_a_host(*first))?;
    Some(HostAddress::Static { first, prefix })
}

pub(super) fn is_of_a_host(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && first != 127 && first < 224
}

fn host(text: &str) -> Option<Ipv4Addr> {
    text.parse().ok().filter(|address| is_of_a_host(*address))
}

/// Options that the messages themselves have.
const OWN: [u8; 12] = [0, 50, 51, 52, 53, 54, 55, 58, 59, 80, 82, 255];

fn option(text: &str) -> Option<HostOption> {
    let (code, value) = text.split_once('=')?;
    let code = code.trim().parse().ok().filter(|code| !OWN.contains(code))?;
    let Some(digits) = value.strip_prefix("0x") else {
        return (value.len() <= 255).then(|| HostOption::Text(code, value.to_owned()));
    };
    let octets = digits.replace("{mac}", "000000000000");
    let is_hex = octets.len().is_multiple_of(2) && octets.len() <= 510;
    let is_split = digits.split("{mac}").all(|part| part.len().is_multiple_of(2));
    let fits = is_hex && is_split && octets.bytes().all(|digit| digit.is_ascii_hexdigit());
    fits.then(|| HostOption::Hex(code, digits.to_owned()))
}

fn address6(text: &str) -> Option<HostIpv6> {
    match text {
        "slaac" => return Some(HostIpv6::Slaac),
        "stateless" => return Some(HostIpv6::Stateless),
        "dhcp" => return Some(HostIpv6::Dhcp),
        _ => {}
    }
    let (first, prefix) = prefix6(text)?;
    is_of_a_host6(first).then_some(HostIpv6::Static { first, prefix })
}

pub(super) fn is_of_a_host6(address: Ipv6Addr) -> bool {
    !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
}

pub(super) fn prefix6(text: &str) -> Option<(Ipv6Addr, u8)> {
    let (first, length) = text.split_once('/')?;
    let length = length.parse().ok().filter(|length| (1..=128).contains(length))?;
    Some((first.parse().ok()?, length))
}

fn advertised(text: &str) -> Option<(Ipv6Addr, u8)> {
    prefix6(text).filter(|(prefix, length)| *length == 64 && is_of_a_host6(*prefix))
}

fn range6(text: &str) -> Option<(Ipv6Addr, Ipv6Addr)> {
    let (first, last) = text.split_once('-')?;
    let (first, last): (Ipv6Addr, Ipv6Addr) =
        (first.trim().parse().ok()?, last.trim().parse().ok()?);
    let hosts = is_of_a_host6(first) && is_of_a_host6(last);
    (hosts && first <= last && last.to_bits() - first.to_bits() < 1 << 24).then_some((first, last))
}

/// At most 2^24 prefixes.
fn delegated(text: &str) -> Option<(Ipv6Addr, u8, u8)> {
    let (pool, length) = text.rsplit_once('-')?;
    let (prefix, pool) = prefix6(pool)?;
    let length: u8 = length.parse().ok().filter(|length| *length <= 64)?;
    let fits = is_of_a_host6(prefix) && pool <= length && length - pool <= 24;
    fits.then_some((prefix, pool, length))
}

/// `None` is "max".
fn per_second(text: &str) -> Option<Option<u64>> {
    if text == "max" {
        return Some(None);
    }
    let number = parse_count(number_per_second(text)).ok()?;
    (number > 0).then_some(Some(number))
}

/// The number of a rate: N, N/s, or Npps as for streams.
pub(super) fn number_per_second(text: &str) -> &str {
    text.strip_suffix("/s").or_else(|| text.strip_suffix("pps")).unwrap_or(text).trim()
}

fn range(text: &str) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let (first, last) = text.split_once('-')?;
    let (first, last): (Ipv4Addr, Ipv4Addr) =
        (first.trim().parse().ok()?, last.trim().parse().ok()?);
    let hosts = is_of_a_host(first) && is_of_a_host(last);
    (hosts && first <= last && last.to_bits() - first.to_bits() < 1 << 24).then_some((first, last))
}

fn target(text: &str) -> Option<PingTarget> {
    match text {
        "gateway" => Some(PingTarget::Gateway),
        _ => text.parse().ok().map(PingTarget::Address),
    }
}

/// The values of a key that has one or more texts.
pub(super) fn read_all<T>(
    given: Option<Placed<OneOrMore>>,
    cx: &mut Reader<'_>,
    parse: impl Fn(&str) -> Option<T>,
    what: &str,
    hint: &str,
) -> Vec<T> {
    let Some(Placed { value: OneOrMore(texts), place }) = given else { return Vec::new() };
    let mut value = |Located { text, .. }: Located| {
        let value = parse(text.trim());
        cx.must(&place, value, &format!("= {text:?} is not {what}"), hint)
    };
    texts.into_iter().filter_map(&mut value).collect()
}

/// The first multicast group of a range, and the number of groups in it.
fn groups(text: &str) -> Option<(IpAddr, u32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    let more = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            u128::from(last.to_bits()).checked_sub(first.to_bits().into())?
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => last.to_bits().checked_sub(first.to_bits())?,
        _ => return None,
    };
    let count = u32::try_from(more + 1).ok()?;
    (is_group(first) && is_group(last)).then_some((first, count))
}

/// Whether hosts can join a group: all are members of that of all hosts, and groups of one
/// interface have no frames.
fn is_group(address: IpAddr) -> bool {
    let all = [
        IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1)),
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).into(),
    ];
    let on_links = match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => address.octets()[1] & 15 > 1,
    };
    address.is_multicast() && on_links && !all.contains(&address)
}

/// A name of DNS with room for its numbers.
fn asked_name(text: &str) -> Option<String> {
    let full = MOST_DIGITS
        .iter()
        .fold(text.to_owned(), |full, (number, digits)| full.replace(number, &"9".repeat(*digits)));
    let full = full.strip_suffix('.').unwrap_or(&full);
    let is_label = |label: &str| (1..=MOST_LABEL).contains(&label.len());
    let is_visible = full.bytes().all(|octet| octet.is_ascii_graphic() && octet != b'{');
    let fits = full.len() <= MOST_NAME && full.split('.').all(is_label) && is_visible;
    fits.then(|| text.to_owned())
}

/// A name, or a wildcard, without numbers, and its address.
fn answer(text: &str) -> Option<(String, IpAddr)> {
    let (name, address) = text.split_once('=')?;
    let name = name.trim();
    let is_name = !name.contains('{') && asked_name(name).is_some();
    Some((name.to_owned(), address.trim().parse().ok()?)).filter(|_| is_name)
}

fn source(text: &str) -> Option<IpAddr> {
    text.parse().ok().filter(|source: &IpAddr| !source.is_multicast() && !source.is_unspecified())
}
