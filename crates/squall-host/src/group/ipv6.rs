//! IPv6 of the hosts of a group: their addresses (RFC 4862), and neighbor discovery (RFC 4861).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr},
};

use squall_stats::Histogram;
use squall_units::{MacAddr, Nanos, mix};

use super::{HostGroup, PingSettings, view::Ipv6View};
use crate::{
    ALL_SERVERS, AdvertisingRouter, Datagram6, Dhcp6Client, Dhcp6Context, Dhcp6Event, Dhcp6Failure,
    Dhcp6Server, Dhcp6Settings, Dhcp6State, Dhcp6Step, DiscoveryAction, DuplicateAction,
    DuplicateDetection, Echo, EventKind, FrameQueue, IcmpError, Kind6, LogProtocol, Message6,
    NdMessage, NdTimers, Neighbor, NeighborAction, NeighborMessage, PrefixChange, PrefixList,
    Request6, RouterAdvertisement, RouterDiscovery, RouterSettings, Server6Counters,
    Server6Settings,
    dhcp6_message::SERVER_PORT_6,
    echo_reply, group_mac,
    host::{IPV6, begin_frame},
    link_local,
    nd_message::{ALL_NODES, ALL_ROUTERS},
    prefix_list::masked,
    router_solicitation, solicited_node,
};

/// IPv6 of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipv6Settings {
    pub addressing: Ipv6Addressing,
    pub identifier: InterfaceIdentifier,
    /// `None`: the router that advertises itself.
    pub gateway: Option<Ipv6Addr>,
    pub timers: NdTimers,
    /// Requests of hosts to DHCPv6 servers.
    pub dhcp: Option<Dhcp6Settings>,
    /// The first host is a router that advertises itself, or a server.
    pub router: Option<RouterSettings>,
    pub server: Option<Server6Settings>,
}

impl Ipv6Settings {
    /// Whether hosts ask routers or servers for something.
    pub(super) fn asks(&self) -> bool {
        let fixed = matches!(self.addressing, Ipv6Addressing::Static { .. });
        !fixed && self.router.is_none() || self.dhcp.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv6Addressing {
    /// The first host's address, that of each further one being the next.
    Static { first: Ipv6Addr, prefix: u8 },
    /// Addresses with the prefixes that routers advertise.
    Slaac,
    /// Addresses and prefixes of a server.
    Dhcp,
}

/// The last 64 bits of link-local addresses, and of those with prefixes of routers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterfaceIdentifier {
    /// Made from the MAC address (RFC 4291 appendix A).
    #[default]
    Eui64,
    /// Random, and for each prefix another one, but always the same (RFC 7217). The function is no
    /// cryptographic one: these hosts have nothing to hide.
    Stable,
}

/// The state of a host's IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ipv6State {
    /// Before the host has started.
    #[default]
    Init,
    /// It examines its link-local address.
    Tentative,
    /// It looks for a router.
    Soliciting,
    /// It asks servers.
    Requesting,
    /// It examines its address.
    Checking,
    /// It has an address that it may use.
    Bound,
    /// The lifetimes for which its addresses are preferred have ended.
    Deprecated,
    Released,
    Failed,
}

impl Ipv6State {
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Init, "init"),
        (Self::Tentative, "tentative"),
        (Self::Soliciting, "soliciting"),
        (Self::Requesting, "requesting"),
        (Self::Checking, "checking"),
        (Self::Bound, "bound"),
        (Self::Deprecated, "deprecated"),
        (Self::Released, "released"),
        (Self::Failed, "failed"),
    ];

    /// The state's name.
    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Whether the host neither has an address nor has failed.
    pub fn is_pending(self) -> bool {
        matches!(
            self,
            Self::Init | Self::Tentative | Self::Soliciting | Self::Requesting | Self::Checking
        )
    }
}

/// Why a host has no address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Failure {
    /// No router has advertised itself.
    #[default]
    NoRouter,
    /// The router has no prefix for addresses.
    NoPrefix,
    /// Another host has the address.
    Duplicate,
    /// Servers have no lease for the host.
    Dhcp(Dhcp6Failure),
}

impl Failure {
    fn word(self) -> &'static str {
        match self {
            Self::NoRouter => "no_router",
            Self::NoPrefix => "no_prefix",
            Self::Duplicate => "duplicate",
            Self::Dhcp(failure) => failure.word(),
        }
    }
}

/// Everything that a group has counted over IPv6. Times are in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Ipv6Statistics {
    /// Hosts by their state now, and hosts that have failed now by reason.
    pub states: Vec<(Ipv6State, u64)>,
    pub failed: BTreeMap<&'static str, u64>,
    /// Times that a host got an address, and that one ended.
    pub addresses: u64,
    pub ended: u64,
    pub first_address: Option<Nanos>,
    pub last_address: Option<Nanos>,
    pub nd: NdCounters,
    /// Messages that were ignored, by reason.
    pub ignored: BTreeMap<&'static str, u64>,
    /// From a host's first solicitation to the advertisement, and from its start to its first
    /// address.
    pub router: Histogram,
    pub address: Histogram,
    /// Exchanges with servers, and messages and bindings of the group's server.
    pub dhcp: Option<Dhcp6Statistics>,
    pub server: Option<(Server6Counters, u64)>,
}

/// Exchanges of a group with DHCPv6 servers. Times are in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Dhcp6Statistics {
    /// Messages that hosts sent, by type, of which `retransmissions` were repeated; and those that
    /// they received.
    pub sent: BTreeMap<&'static str, u64>,
    pub received: BTreeMap<&'static str, u64>,
    pub retransmissions: u64,
    /// Offers that were ignored, and replies with rapid commit; `received` includes both.
    pub ignored_offers: u64,
    pub rapid_replies: u64,
    /// Times that a host got leases, those with a delegated prefix, and times that it got other
    /// configuration.
    pub bound: u64,
    pub prefixes: u64,
    pub informed: u64,
    pub renewed: u64,
    pub expired: u64,
    /// Leases that no server confirmed after the link had failed, and refusals of servers.
    pub unconfirmed: u64,
    pub refused: u64,
    /// From the first Solicit to the offer, and to the leases that may be used.
    pub advertise: Histogram,
    pub lease: Histogram,
    /// From the first Confirm, or Rebind, to the reply that confirms the leases.
    pub confirm: Histogram,
}

/// Messages of neighbor discovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NdCounters {
    /// Solicitations that hosts answered.
    pub answered: u64,
    /// Solicitations that examined an own address, and addresses that another host had.
    pub probes: u64,
    pub duplicates: u64,
    /// Advertisements of other hosts for an address that a host of the group uses.
    pub conflicts: u64,
    pub router_solicitations: u64,
    /// Advertisements of routers that were received, and that the group's router sent.
    pub router_advertisements: u64,
    pub advertised: u64,
    /// Solicitations to resolve or examine neighbors, and neighbors that did not answer: the first
    /// time, or after they had answered.
    pub requests: u64,
    pub unresolved: u64,
    pub unreachable: u64,
    /// Redirects, which hosts do not follow.
    pub redirects: u64,
}

/// Global addresses of a host; it ignores further prefixes.
const ADDRESSES: usize = 2;
/// A neighbor that did not answer is solicited again if it is needed after this pause.
const SILENT_PAUSE: Nanos = Nanos(1_000_000_000);

/// Where an address comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Origin {
    #[default]
    None,
    Static,
    /// Number in the list of prefixes.
    Prefix(u8),
    Dhcp,
}

#[derive(Clone, Copy, Debug, Default)]
struct Address {
    origin: Origin,
    detection: DuplicateDetection,
}

/// IPv6 of one host.
#[derive(Clone, Debug, Default)]
pub(super) struct Ipv6Record {
    state: Ipv6State,
    failure: Failure,
    had_address: bool,
    pings: bool,
    link_local: DuplicateDetection,
    discovery: RouterDiscovery,
    addresses: [Address; ADDRESSES],
    started: Nanos,
}

/// One of a host's addresses: `None` is the link-local one.
type Place = Option<usize>;

impl Ipv6Record {
    fn detection(&mut self, place: Place) -> &mut DuplicateDetection {
        match place {
            None => &mut self.link_local,
            Some(place) => &mut self.addresses[place].detection,
        }
    }

    pub(super) fn due(&self) -> Option<Nanos> {
        let addresses = self.addresses.iter().map(|address| address.detection.due());
        let all = addresses.chain([self.link_local.due(), self.discovery.due()]);
        all.flatten().min()
    }
}

/// IPv6 of a group's hosts.
#[derive(Debug)]
pub(super) struct Ipv6Hosts {
    pub(super) records: Vec<Ipv6Record>,
    /// Routers and prefixes of the link.
    list: PrefixList,
    states: [u64; Ipv6State::ALL.len()],
    failed: BTreeMap<&'static str, u64>,
    /// A client for each host, if hosts use DHCPv6.
    clients: Vec<Dhcp6Client>,
    /// Clients that wait for a reply, and those of them whose Release waits for one.
    exchanging: u64,
    pub(super) releasing: u64,
    server: Option<Dhcp6Server>,
    /// Hosts whose search for a router is not over.
    searching: u64,
    /// Hosts by those addresses that do not lead to them by arithmetic.
    table: HashMap<Ipv6Addr, u32>,
    /// Next hops, and those that did not answer, with the end of their pause.
    neighbors: BTreeMap<Ipv6Addr, Neighbor>,
    silent: BTreeMap<Ipv6Addr, Nanos>,
    router: AdvertisingRouter,
    counted: Ipv6Statistics,
}

impl Ipv6Hosts {
    pub(super) fn new(settings: &Ipv6Settings, count: u32) -> Self {
        let mut states = [0; Ipv6State::ALL.len()];
        states[Ipv6State::Init as usize] = count.into();
        let clients = settings.dhcp.map_or(0, |_| count as usize);
        Self {
            records: vec![Ipv6Record::default(); count as usize],
            list: PrefixList::default(),
            states,
            failed: BTreeMap::new(),
            clients: vec![Dhcp6Client::default(); clients],
            exchanging: 0,
            releasing: 0,
            server: settings.server.clone().map(Dhcp6Server::new),
            searching: 0,
            table: HashMap::new(),
            neighbors: BTreeMap::new(),
            silent: BTreeMap::new(),
            router: AdvertisingRouter::default(),
            counted: Ipv6Statistics::default(),
        }
    }

    /// `rejected`: hosts that never begin, because their authentication failed.
    pub(super) fn is_settled(&self, rejected: u64) -> bool {
        let pending = |((state, _), count): (&(Ipv6State, &str), &u64)| {
            let rejected = if *state == Ipv6State::Init { rejected } else { 0 };
            *count > rejected && state.is_pending()
        };
        self.exchanging == 0 && !Ipv6State::ALL.iter().zip(&self.states).any(pending)
    }

    /// The earliest timer of a host.
    pub(super) fn due_of(&self, host: u32) -> Option<Nanos> {
        let client = self.client_due(host);
        self.records[host as usize].due().into_iter().chain(client).min()
    }

    pub(super) fn client_due(&self, host: u32) -> Option<Nanos> {
        self.clients.get(host as usize).and_then(Dhcp6Client::due)
    }

    /// The next timer of what hosts share.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        let neighbors = self.neighbors.values().filter_map(Neighbor::due);
        let shared = [self.list.due(), self.list.router_due(), self.router.due()];
        neighbors.chain(shared.into_iter().flatten()).min()
    }

    pub(super) fn statistics(&self, full: bool) -> Ipv6Statistics {
        let mut all = self.counted.clone();
        if !full {
            (all.router, all.address) = (Histogram::default(), Histogram::default());
            if let Some(dhcp) = &mut all.dhcp {
                for times in [&mut dhcp.advertise, &mut dhcp.lease, &mut dhcp.confirm] {
                    *times = Histogram::default();
                }
            }
        }
        for (reason, count) in [
            ("unusable_prefix", self.list.ignored),
            ("unanswered_solicitation", self.router.dropped),
        ] {
            if count > 0 {
                all.ignored.insert(reason, count);
            }
        }
        all.states = Ipv6State::ALL.iter().zip(&self.states).map(|(s, n)| (s.0, *n)).collect();
        all.failed.clone_from(&self.failed);
        all.server = self.server.as_ref().map(|server| (server.counters, server.bound()));
        all
    }
}

impl HostGroup {
    /// The IPv6 address of host number `host` from which it sends to other networks, if it may use
    /// one.
    pub fn ipv6_address(&self, host: u32) -> Option<Ipv6Addr> {
        let record = self.ipv6.as_ref()?.records.get(host as usize)?;
        let usable = |place: &usize| record.addresses[*place].detection.is_usable();
        let places = || (0..ADDRESSES).filter(usable);
        let preferred =
            places().find(|place| self.is_preferred(host, record.addresses[*place].origin));
        self.ipv6_at(host, Some(preferred.or_else(|| places().next())?))
    }

    fn is_preferred(&self, host: u32, origin: Origin) -> bool {
        match (origin, &self.ipv6) {
            (Origin::Static, _) => true,
            (Origin::Prefix(number), Some(ipv6)) => ipv6.list.is_preferred(number),
            (Origin::Dhcp, Some(ipv6)) => {
                ipv6.clients.get(host as usize).is_some_and(Dhcp6Client::is_preferred)
            }
            _ => false,
        }
    }

    /// The valid lifetime of the DHCPv6 lease of host number `host` in seconds; `u32::MAX`: without
    /// an end.
    pub fn dhcp6_lease_seconds(&self, host: u32) -> Option<u32> {
        self.ipv6.as_ref()?.clients.get(host as usize)?.lease_seconds()
    }

    /// The group's DHCPv6 server.
    pub fn dhcp6_server(&self) -> Option<&Dhcp6Server> {
        self.ipv6.as_ref()?.server.as_ref()
    }

    /// The prefix that a server has delegated to host number `host`, and its length.
    pub fn delegated_prefix(&self, host: u32) -> Option<(Ipv6Addr, u8)> {
        self.ipv6.as_ref()?.clients.get(host as usize)?.prefix()
    }

    /// The address of a place, whether or not it may be used.
    pub(super) fn ipv6_at(&self, host: u32, place: Place) -> Option<Ipv6Addr> {
        let (ipv6, settings) = (self.ipv6.as_ref()?, self.settings.ipv6.as_ref()?);
        let record = ipv6.records.get(host as usize)?;
        let Some(place) = place else {
            let generation = record.link_local.generation();
            return Some(match settings.identifier {
                InterfaceIdentifier::Eui64 => link_local(self.mac(host)),
                InterfaceIdentifier::Stable => {
                    self.joined(host, Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), generation)
                }
            });
        };
        let Address { origin, detection } = record.addresses[place];
        match (origin, settings.addressing) {
            (Origin::Static, Ipv6Addressing::Static { first, .. }) => {
                Some(Ipv6Addr::from_bits(first.to_bits().wrapping_add(host.into())))
            }
            (Origin::Prefix(number), _) => {
                let prefix = ipv6.list.prefix(number)?.prefix;
                Some(self.joined(host, prefix, detection.generation()))
            }
            (Origin::Dhcp, _) => ipv6.clients.get(host as usize)?.candidate(),
            _ => None,
        }
    }

    /// The address of a prefix of 64 bits and the host's interface identifier.
    fn joined(&self, host: u32, prefix: Ipv6Addr, generation: u8) -> Ipv6Addr {
        let stable = matches!(
            self.settings.ipv6.as_ref().map(|settings| settings.identifier),
            Some(InterfaceIdentifier::Stable)
        );
        let low = if stable {
            let net = mix(self.settings.seed, (prefix.to_bits() >> 64) as u64);
            mix(net ^ super::mac_bits(self.mac(host)), generation.into())
        } else {
            link_local(self.mac(host)).to_bits() as u64
        };
        Ipv6Addr::from_bits(prefix.to_bits() | u128::from(low))
    }

    fn has_stable_identifiers(&self) -> bool {
        let settings = self.settings.ipv6.as_ref();
        settings.is_some_and(|one| one.identifier == InterfaceIdentifier::Stable)
    }

    /// The host and the place of an address that a host examines or uses.
    fn ipv6_owner(&self, address: Ipv6Addr) -> Option<(u32, Place)> {
        let (ipv6, settings) = (self.ipv6.as_ref()?, self.settings.ipv6.as_ref()?);
        let fixed = match settings.addressing {
            Ipv6Addressing::Static { first, .. } => {
                let offset = address.to_bits().wrapping_sub(first.to_bits());
                u32::try_from(offset).ok().filter(|host| *host < self.settings.count)
            }
            Ipv6Addressing::Slaac | Ipv6Addressing::Dhcp => None,
        };
        let candidates =
            [fixed, self.host_of_identifier(address), ipv6.table.get(&address).copied()];
        candidates.into_iter().flatten().find_map(|host| {
            let record = &ipv6.records[host as usize];
            let live =
                |detection: &DuplicateDetection| detection.is_tentative() || detection.is_usable();
            let has = |place: Place, detection: &DuplicateDetection| {
                live(detection) && self.ipv6_at(host, place) == Some(address)
            };
            if has(None, &record.link_local) {
                return Some((host, None));
            }
            let mut places = 0..ADDRESSES;
            let place = places.find(|at| has(Some(*at), &record.addresses[*at].detection))?;
            Some((host, Some(place)))
        })
    }

    /// Whether a host may use this address.
    pub(super) fn uses_ipv6(&self, host: u32, address: Ipv6Addr) -> bool {
        let Some((owner, place)) = self.ipv6_owner(address) else { return false };
        let record = self.ipv6.as_ref().map(|ipv6| &ipv6.records[host as usize]);
        let usable = |record: &Ipv6Record| match place {
            None => record.link_local.is_usable(),
            Some(place) => record.addresses[place].detection.is_usable(),
        };
        owner == host && record.is_some_and(usable)
    }

    /// The host whose MAC address an interface identifier is made from.
    fn host_of_identifier(&self, address: Ipv6Addr) -> Option<u32> {
        let [a, b, c, 0xff, 0xfe, d, e, f] = (address.to_bits() as u64).to_be_bytes() else {
            return None;
        };
        self.host_of_mac(MacAddr([a ^ 2, b, c, d, e, f]))
    }

    fn nd_timers(&self) -> NdTimers {
        let own = self.settings.ipv6.as_ref().map(|settings| settings.timers).unwrap_or_default();
        self.ipv6.as_ref().map_or(own, |ipv6| ipv6.list.timers(&own))
    }

    /// Begins with the link-local address, and with a static one.
    pub(super) fn start_ipv6(&mut self, host: u32, now: Nanos, out: &mut FrameQueue) {
        let Some(settings) = &self.settings.ipv6 else { return };
        let is_static = matches!(settings.addressing, Ipv6Addressing::Static { .. });
        let Some(ipv6) = &mut self.ipv6 else { return };
        ipv6.records[host as usize].started = now;
        self.examine((host, None), now, true, out);
        if is_static {
            self.set_origin(host, 0, Origin::Static);
            self.examine((host, Some(0)), now, true, out);
        }
        self.run_ipv6_timers(host, now, out);
    }

    fn origin(&self, host: u32, place: usize) -> Origin {
        let record = self.ipv6.as_ref().and_then(|ipv6| ipv6.records.get(host as usize));
        record.map_or(Origin::None, |record| record.addresses[place].origin)
    }

    /// The port of a host was closed: the host begins again when it is open.
    pub(super) fn disconnect_ipv6(&mut self, host: u32, now: Nanos) {
        [None, Some(0), Some(1)].into_iter().for_each(|place| self.leave(host, place));
        let Some(ipv6) = &mut self.ipv6 else { return };
        ipv6.search(host, |search| *search = RouterDiscovery::default());
        if let Some(client) = ipv6.clients.get_mut(host as usize) {
            let state = std::mem::take(client).state();
            ipv6.exchanging -= u64::from(state.is_pending());
            ipv6.releasing -= u64::from(state == Dhcp6State::Releasing);
        }
        let record = &mut ipv6.records[host as usize];
        record.link_local = DuplicateDetection::default();
        record.addresses = Default::default();
        self.update_ipv6(host, now);
    }

    fn set_origin(&mut self, host: u32, place: usize, origin: Origin) {
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.records[host as usize].addresses[place].origin = origin;
        }
    }

    /// Begins to examine an address.
    fn examine(
        &mut self,
        (host, place): (u32, Place),
        now: Nanos,
        delayed: bool,
        out: &mut FrameQueue,
    ) {
        let (chance, timers) = (self.chance(host), self.nd_timers());
        let Some(ipv6) = &mut self.ipv6 else { return };
        ipv6.records[host as usize].detection(place).start(now, chance, delayed, &timers);
        self.enter(host, place, now, out);
    }

    /// Adds an address that does not lead to its host by arithmetic to the table. Hosts do not see
    /// each other's messages, so the group itself finds an address that two of them have. A host
    /// that examines it then leaves it to the other (RFC 4862 section 5.4), and declines it if a
    /// server gave it (RFC 9915 section 18.2.8); one that examines nothing uses it, too.
    fn enter(&mut self, host: u32, place: Place, now: Nanos, out: &mut FrameQueue) {
        let is_dhcp = |place: usize| self.origin(host, place) == Origin::Dhcp;
        if !self.has_stable_identifiers() && !place.is_some_and(is_dhcp) {
            return;
        }
        let Some(address) = self.ipv6_at(host, place) else { return };
        let has_another = self.ipv6_owner(address).is_some_and(|(owner, _)| owner != host);
        let probes = self.nd_timers().probes > 0;
        let Some(ipv6) = &mut self.ipv6 else { return };
        let examines = probes && ipv6.records[host as usize].detection(place).is_tentative();
        if has_another && examines {
            self.conflict_ipv6(host, place, now, out);
            return;
        }
        ipv6.table.insert(address, host);
        if has_another {
            ipv6.counted.nd.duplicates += 1;
            let state = (LogProtocol::Ipv6, EventKind::State);
            self.note(host, state, "duplicate", Some(address.into()));
        }
    }

    fn leave(&mut self, host: u32, place: Place) {
        if let Some(address) = self.ipv6_at(host, place)
            && let Some(ipv6) = &mut self.ipv6
            && ipv6.table.get(&address) == Some(&host)
        {
            ipv6.table.remove(&address);
        }
    }

    pub(super) fn run_ipv6_timers(&mut self, host: u32, now: Nanos, out: &mut FrameQueue) {
        let timers = self.nd_timers();
        self.step_ipv6(host, now, out, |client, cx| client.timer(cx));
        let places = [None, Some(0), Some(1)];
        for place in places {
            loop {
                let Some(ipv6) = &mut self.ipv6 else { return };
                let detection = ipv6.records[host as usize].detection(place);
                let Some(action) = detection.timer(now, &timers) else { break };
                self.act_ipv6(host, place, now, action, out);
            }
        }
        while let Some(ipv6) = &mut self.ipv6
            && let Some(action) = ipv6.search(host, |discovery| discovery.timer(now, &timers))
        {
            if action == DiscoveryAction::Solicit {
                ipv6.counted.nd.router_solicitations += 1;
                let mac = self.mac(host);
                let Some(source) = self.ipv6_at(host, None) else { break };
                let to = (group_mac(ALL_ROUTERS.into()), mac);
                self.push(to, IPV6, &router_solicitation(source, mac), out);
            }
        }
        self.update_ipv6(host, now);
    }

    /// Carries out what the examination of an address wants.
    fn act_ipv6(
        &mut self,
        host: u32,
        place: Place,
        now: Nanos,
        action: DuplicateAction,
        out: &mut FrameQueue,
    ) {
        let Some(address) = self.ipv6_at(host, place) else { return };
        let Some(ipv6) = &mut self.ipv6 else { return };
        match action {
            DuplicateAction::Probe => {
                ipv6.counted.nd.probes += 1;
                let to = (solicited_node(address).1, self.mac(host));
                self.push(to, IPV6, &NeighborMessage::probe(address).octets(), out);
            }
            DuplicateAction::Usable => {
                self.became_usable_ipv6(host, place, now);
                let is_dhcp = place.is_some_and(|place| self.origin(host, place) == Origin::Dhcp);
                if place.is_none() {
                    self.step_ipv6(host, now, out, |client, cx| client.start(cx));
                } else if is_dhcp {
                    self.step_ipv6(host, now, out, |client, cx| client.checked(cx, false));
                }
            }
            DuplicateAction::Regenerate => {
                ipv6.counted.nd.duplicates += 1;
                let state = (LogProtocol::Ipv6, EventKind::State);
                self.note(host, state, "duplicate", Some(address.into()));
                self.enter(host, place, now, out);
            }
            DuplicateAction::Duplicate => {
                ipv6.counted.nd.duplicates += 1;
                let state = (LogProtocol::Ipv6, EventKind::State);
                self.note(host, state, "duplicate", Some(address.into()));
                let Some(ipv6) = &mut self.ipv6 else { return };
                // Without a link-local address, the host has no IPv6 (RFC 4862 section 5.4.5).
                if place.is_none() {
                    let record = &mut ipv6.records[host as usize];
                    record.addresses.iter_mut().for_each(|address| address.detection.stop());
                } else if place.is_some_and(|place| self.origin(host, place) == Origin::Dhcp) {
                    self.step_ipv6(host, now, out, |client, cx| client.checked(cx, true));
                }
            }
        }
    }

    fn became_usable_ipv6(&mut self, host: u32, place: Place, now: Nanos) {
        let timers = self.nd_timers();
        let is_router =
            host == 0 && self.settings.ipv6.as_ref().is_some_and(|s| s.router.is_some());
        let Some(ipv6) = &mut self.ipv6 else { return };
        let record = &mut ipv6.records[host as usize];
        if place.is_none() {
            if is_router {
                ipv6.router.start(now);
            } else {
                // The examination of the address has waited for a random time already (RFC 4861
                // section 6.3.7).
                ipv6.search(host, |discovery| discovery.start(now, 0, &timers));
            }
        } else {
            ipv6.counted.addresses += 1;
            ipv6.counted.first_address.get_or_insert(now);
            ipv6.counted.last_address = Some(now);
            if !std::mem::replace(&mut record.had_address, true) {
                let waited = now.saturating_sub(record.started);
                ipv6.counted.address.record(waited.0);
            }
        }
        if place.is_some() {
            self.can_ask(host, now);
            self.examine_name(host, now);
        }
        let pings = self.settings.ping.as_ref().is_some_and(|ping| self.pings_ipv6(ping, place));
        let Some(ipv6) = &mut self.ipv6 else { return };
        let record = &mut ipv6.records[host as usize];
        if pings && !std::mem::replace(&mut record.pings, true) {
            self.pinger.add(host, now);
        }
    }

    /// Whether a host sends echo requests when it may use the address of `place`.
    fn pings_ipv6(&self, ping: &PingSettings, place: Place) -> bool {
        match ping.target {
            Some(IpAddr::V6(target)) => place.is_some() || target.is_unicast_link_local(),
            Some(IpAddr::V4(_)) => false,
            None => place.is_some() && !self.has_ipv4(),
        }
    }

    /// Brings the host's state up to date.
    fn update_ipv6(&mut self, host: u32, now: Nanos) {
        self.share(host, now);
        let Some((state, failure)) = self.ipv6_state(host) else { return };
        let Some(ipv6) = &mut self.ipv6 else { return };
        let record = &mut ipv6.records[host as usize];
        let before = (record.state, record.failure);
        if before == (state, failure) {
            return;
        }
        (record.state, record.failure) = (state, failure);
        ipv6.states[before.0 as usize] -= 1;
        ipv6.states[state as usize] += 1;
        if before.0 == Ipv6State::Failed
            && let Some(count) = ipv6.failed.get_mut(before.1.word())
        {
            *count -= 1;
            ipv6.failed.retain(|_, count| *count > 0);
        }
        if state == Ipv6State::Failed {
            *ipv6.failed.entry(failure.word()).or_default() += 1;
            self.hosts[host as usize].failure = Some(failure.word());
            self.note(host, (LogProtocol::Ipv6, EventKind::Failed), failure.word(), None);
        } else {
            let address = self.ipv6_address(host).map(IpAddr::V6);
            self.note(host, (LogProtocol::Ipv6, EventKind::State), state.word(), address);
        }
    }

    /// IPv6 of a host for a table of hosts.
    pub(super) fn ipv6_view(&self, host: u32, now: Nanos) -> Option<Ipv6View> {
        let (ipv6, settings) = (self.ipv6.as_ref()?, self.settings.ipv6.as_ref()?);
        let record = ipv6.records.get(host as usize)?;
        let client = ipv6.clients.get(host as usize);
        let places = (0..ADDRESSES).filter(|at| record.addresses[*at].detection.is_usable());
        let router = settings.gateway.or_else(|| ipv6.list.router(now).map(|one| one.address));
        let mac = |router| ipv6.neighbors.get(&router).and_then(Neighbor::mac);
        let is_usable = record.link_local.is_usable();
        Some(Ipv6View {
            state: record.state,
            link_local: self.ipv6_at(host, None).filter(|_| is_usable),
            addresses: places.filter_map(|place| self.ipv6_at(host, Some(place))).collect(),
            prefix: self.delegated_prefix(host),
            gateway: router.map(|router| (router, mac(router))),
            dhcp: client.map(|client| (client.state(), client.lease())),
        })
    }

    fn ipv6_state(&self, host: u32) -> Option<(Ipv6State, Failure)> {
        let (ipv6, settings) = (self.ipv6.as_ref()?, self.settings.ipv6.as_ref()?);
        let record = &ipv6.records[host as usize];
        let mut usable = record.addresses.iter().filter(|one| one.detection.is_usable()).peekable();
        let failed = |failure| (Ipv6State::Failed, failure);
        let plain = |state| (state, Failure::default());
        let is_duplicate = |one: &Address| one.detection.is_duplicate();
        Some(if record.link_local.is_duplicate() {
            failed(Failure::Duplicate)
        } else if record.link_local.is_tentative() {
            plain(Ipv6State::Tentative)
        } else if usable.peek().is_some() {
            let preferred = usable.any(|one| self.is_preferred(host, one.origin));
            plain(if preferred { Ipv6State::Bound } else { Ipv6State::Deprecated })
        } else if record.addresses.iter().any(|one| one.detection.is_tentative()) {
            plain(Ipv6State::Checking)
        } else if settings.addressing == Ipv6Addressing::Dhcp && record.link_local.is_usable() {
            let client = ipv6.clients.get(host as usize)?;
            match client.state() {
                Dhcp6State::Failed => {
                    let failure = client.failure().unwrap_or(Dhcp6Failure::NoAdvertise);
                    failed(Failure::Dhcp(failure))
                }
                Dhcp6State::Releasing | Dhcp6State::Released => plain(Ipv6State::Released),
                // With a prefix alone.
                state if state.has_lease() => plain(Ipv6State::Bound),
                _ => plain(Ipv6State::Requesting),
            }
        } else if record.addresses.iter().any(is_duplicate) {
            failed(Failure::Duplicate)
        } else if !record.link_local.is_usable() {
            plain(Ipv6State::Init)
        } else if settings.router.is_some() && host == 0 {
            // A router needs no other address than its link-local one.
            plain(Ipv6State::Bound)
        } else if record.discovery.is_pending() {
            plain(Ipv6State::Soliciting)
        } else if record.discovery.has_found() {
            failed(Failure::NoPrefix)
        } else {
            failed(Failure::NoRouter)
        })
    }

    /// Handles an IPv6 packet. Returns whether it was for a host of the group.
    pub(super) fn receive_ipv6(
        &mut self,
        now: Nanos,
        (own, from): (Option<u32>, MacAddr),
        (packet, partial): (&[u8], bool),
        out: &mut FrameQueue,
    ) -> bool {
        if Datagram6::is_dhcp(packet) {
            return self.receive_dhcp6(now, (own, from), (packet, partial), out) || own.is_some();
        }
        match NdMessage::parse(packet) {
            Ok(Some(message)) => self.receive_nd(now, (own, from), &message, out) || own.is_some(),
            Ok(None) => {
                let Some(host) = own else { return false };
                self.receive_echo_ipv6(now, (host, from), packet, out);
                // Others may be routed through the host.
                let to = packet.get(24..40).and_then(|to| <[u8; 16]>::try_from(to).ok());
                let own = to.is_some_and(|to| self.ipv6_owned(host, to.into()));
                own && !self.is_of_other_source(packet)
            }
            Err(reason) => {
                self.ignore_ipv6(reason);
                own.is_some()
            }
        }
    }

    fn ignore_ipv6(&mut self, reason: &'static str) {
        if let Some(ipv6) = &mut self.ipv6 {
            *ipv6.counted.ignored.entry(reason).or_default() += 1;
        }
    }

    /// A step of the host's DHCPv6 client, and its consequences for the group.
    fn step_ipv6(
        &mut self,
        host: u32,
        now: Nanos,
        out: &mut FrameQueue,
        act: impl FnOnce(&mut Dhcp6Client, &Dhcp6Context<'_>) -> Dhcp6Step,
    ) {
        let Some(settings) = self.settings.ipv6.as_ref().and_then(|settings| settings.dhcp) else {
            return;
        };
        let (chance, mac) = (self.chance(host), self.mac(host));
        let check = self.nd_timers().probes > 0;
        let Some(ipv6) = &mut self.ipv6 else { return };
        let Some(client) = ipv6.clients.get_mut(host as usize) else { return };
        let cx = Dhcp6Context { now, chance, mac, settings: &settings, check };
        let (before, had) = (client.state(), client.candidate());
        let Dhcp6Step { send, event } = act(client, &cx);
        let (after, has) = (client.state(), client.candidate());
        let has_prefix = client.prefix().is_some();
        let count = |is: fn(Dhcp6State) -> bool| (u64::from(is(after)), u64::from(is(before)));
        let (more, less) = count(Dhcp6State::is_pending);
        ipv6.exchanging = ipv6.exchanging + more - less;
        let (more, less) = count(|state| state == Dhcp6State::Releasing);
        ipv6.releasing = ipv6.releasing + more - less;
        let dhcp = ipv6.counted.dhcp.get_or_insert_default();
        match event {
            Some(Dhcp6Event::Advertised(after)) => dhcp.advertise.record(after.0),
            Some(Dhcp6Event::Bound(after)) => {
                dhcp.bound += 1;
                dhcp.prefixes += u64::from(has_prefix);
                dhcp.lease.record(after.0);
            }
            Some(Dhcp6Event::Informed(after)) => {
                dhcp.informed += 1;
                dhcp.lease.record(after.0);
            }
            Some(Dhcp6Event::Renewed) => dhcp.renewed += 1,
            Some(Dhcp6Event::Expired) => dhcp.expired += 1,
            Some(Dhcp6Event::Confirmed(after)) => dhcp.confirm.record(after.0),
            Some(Dhcp6Event::Unconfirmed) => dhcp.unconfirmed += 1,
            Some(Dhcp6Event::Refused) => dhcp.refused += 1,
            Some(Dhcp6Event::Ignored(reason)) => {
                *ipv6.counted.ignored.entry(reason).or_default() += 1;
            }
            Some(Dhcp6Event::Acknowledged | Dhcp6Event::Deprecated) | None => {}
        }
        if let Some(request) = &send {
            let dhcp = ipv6.counted.dhcp.get_or_insert_default();
            *dhcp.sent.entry(request.message.kind.word()).or_default() += 1;
            dhcp.retransmissions += u64::from(request.retransmission);
        }
        self.note_dhcp6(host, (had, has), event, send.as_ref());
        if had != has {
            self.change_lease(host, now, (had, has), out);
        }
        if let (Some(request), Some(source)) = (send, self.ipv6_at(host, None)) {
            let to = group_mac(ALL_SERVERS.into());
            out.push(self.due, |octets| {
                begin_frame(octets, (to, mac), &self.settings.tags, IPV6);
                request.message.write(source, ALL_SERVERS, octets);
            });
        }
    }

    /// Adds a step of the host's DHCPv6 client to its log.
    fn note_dhcp6(
        &mut self,
        host: u32,
        (had, has): (Option<Ipv6Addr>, Option<Ipv6Addr>),
        event: Option<Dhcp6Event>,
        send: Option<&Request6>,
    ) {
        let has = has.map(IpAddr::V6);
        let noted = match event {
            Some(Dhcp6Event::Bound(_)) => Some((EventKind::State, "bound", has)),
            Some(Dhcp6Event::Informed(_)) => Some((EventKind::State, "informed", None)),
            Some(Dhcp6Event::Renewed) => Some((EventKind::State, "renewed", has)),
            Some(Dhcp6Event::Deprecated) => Some((EventKind::State, "deprecated", has)),
            Some(Dhcp6Event::Expired) => Some((EventKind::State, "expired", had.map(IpAddr::V6))),
            Some(Dhcp6Event::Refused) => Some((EventKind::State, "refused", None)),
            Some(Dhcp6Event::Ignored(reason)) => Some((EventKind::Ignored, reason, None)),
            Some(Dhcp6Event::Confirmed(_)) => Some((EventKind::State, "confirmed", has)),
            Some(Dhcp6Event::Unconfirmed) => Some((EventKind::State, "unconfirmed", has)),
            Some(Dhcp6Event::Advertised(_) | Dhcp6Event::Acknowledged) | None => None,
        };
        if let Some((kind, word, address)) = noted {
            self.note(host, (LogProtocol::Dhcp6, kind), word, address);
        }
        if let Some(request) = send {
            let sent = [EventKind::Sent, EventKind::Retransmitted];
            let kind = sent[usize::from(request.retransmission)];
            self.note(host, (LogProtocol::Dhcp6, kind), request.message.kind.word(), None);
        }
    }

    /// The host examines the address of another lease, and no longer uses the one before.
    fn change_lease(
        &mut self,
        host: u32,
        now: Nanos,
        (had, has): (Option<Ipv6Addr>, Option<Ipv6Addr>),
        out: &mut FrameQueue,
    ) {
        let mut places = 0..ADDRESSES;
        let place = places.find(|place| self.origin(host, *place) == Origin::Dhcp);
        if let Some(ipv6) = &mut self.ipv6 {
            if let Some(had) = had.filter(|had| ipv6.table.get(had) == Some(&host)) {
                ipv6.table.remove(&had);
            }
            if let Some(place) = place {
                let address = &mut ipv6.records[host as usize].addresses[place];
                ipv6.counted.ended += u64::from(address.detection.is_usable());
                *address = Address::default();
            }
        }
        let mut places = 0..ADDRESSES;
        let free = places.find(|place| self.origin(host, *place) == Origin::None);
        if let (Some(place), Some(_)) = (free, has) {
            self.set_origin(host, place, Origin::Dhcp);
            self.examine((host, Some(place)), now, false, out);
        }
    }

    fn receive_dhcp6(
        &mut self,
        now: Nanos,
        (own, from): (Option<u32>, MacAddr),
        (packet, partial): (&[u8], bool),
        out: &mut FrameQueue,
    ) -> bool {
        let Some(datagram) = Datagram6::parse(packet, partial) else {
            let is_whole = Datagram6::parse(packet, true).is_some();
            self.ignore_ipv6(if is_whole { "bad_checksum" } else { "bad_packet" });
            return false;
        };
        let message = match Message6::parse(datagram.payload) {
            Ok(message) => message,
            Err(reason) => {
                self.ignore_ipv6(reason);
                return false;
            }
        };
        if datagram.ports.1 == SERVER_PORT_6 {
            return self.serve_ipv6(now, (datagram.source, from), &message, out);
        }
        let started = self.next;
        let Some(host) = own.filter(|host| *host < started) else { return false };
        let Some(ipv6) = self.ipv6.as_mut().filter(|ipv6| !ipv6.clients.is_empty()) else {
            return false;
        };
        let dhcp = ipv6.counted.dhcp.get_or_insert_default();
        *dhcp.received.entry(message.kind.word()).or_default() += 1;
        dhcp.rapid_replies += u64::from(message.kind == Kind6::Reply && message.rapid_commit);
        let received = (LogProtocol::Dhcp6, EventKind::Received);
        self.note(host, received, message.kind.word(), None);
        let mut is_ignored = false;
        self.step_ipv6(host, now, out, |client, cx| {
            let step = client.receive(cx, &message);
            is_ignored = matches!(step.event, Some(Dhcp6Event::Ignored(_)));
            step
        });
        if let Some(ipv6) = self.ipv6.as_mut().filter(|_| message.kind == Kind6::Advertise) {
            let dhcp = ipv6.counted.dhcp.get_or_insert_default();
            dhcp.ignored_offers += u64::from(is_ignored);
        }
        if self.stopped.is_some() {
            // Nothing else would give leases back that the host gets after its turn.
            if self.settings.release && host < self.released {
                self.step_ipv6(host, now, out, |client, cx| client.release(cx));
            }
            self.schedule_release(host, now);
        } else {
            self.run_ipv6_timers(host, now, out);
            self.schedule(host);
        }
        true
    }

    fn serve_ipv6(
        &mut self,
        now: Nanos,
        (source, from): (Ipv6Addr, MacAddr),
        message: &Message6,
        out: &mut FrameQueue,
    ) -> bool {
        let Some(server) = self.ipv6.as_mut().and_then(|ipv6| ipv6.server.as_mut()) else {
            return false;
        };
        match server.receive(now, message) {
            Ok(Some(reply)) => {
                let Some(own) = self.ipv6_at(0, None) else { return true };
                let mac = self.mac(0);
                out.push(self.due, |octets| {
                    begin_frame(octets, (from, mac), &self.settings.tags, IPV6);
                    reply.write(own, source, octets);
                });
            }
            Ok(None) => {}
            Err(reason) => self.ignore_ipv6(reason),
        }
        true
    }

    /// Gives the host's leases back.
    pub(super) fn release_ipv6(&mut self, host: u32, now: Nanos, out: &mut FrameQueue) {
        self.step_ipv6(host, now, out, |client, cx| client.release(cx));
        self.update_ipv6(host, now);
        self.schedule_release(host, now);
    }

    /// After the stop, only the timers of hosts run that give their leases back.
    fn schedule_release(&mut self, host: u32, now: Nanos) {
        self.update_ipv6(host, now);
        let Some(ipv6) = &self.ipv6 else { return };
        let client = ipv6.clients.get(host as usize);
        let releasing = client.filter(|client| client.state() == Dhcp6State::Releasing);
        if let Some(due) = releasing.and_then(Dhcp6Client::due) {
            self.hosts[host as usize].scheduled = Some(due);
            self.timers.push(Reverse((due, host)));
        }
    }

    /// Runs the timers of hosts that give their leases back.
    pub(super) fn repeat_releases(&mut self, now: Nanos, out: &mut FrameQueue) -> bool {
        let mut any = false;
        while let Some(Reverse((due, host))) = self.timers.peek().copied() {
            let Some(ipv6) = self.ipv6.as_ref().filter(|ipv6| ipv6.releasing > 0) else {
                self.timers.clear();
                break;
            };
            if due > now {
                break;
            }
            self.timers.pop();
            let client = ipv6.clients.get(host as usize);
            if client.is_some_and(|client| client.state() == Dhcp6State::Releasing) {
                self.due = due;
                self.step_ipv6(host, now, out, |client, cx| client.timer(cx));
                self.schedule_release(host, now);
                any = true;
            }
        }
        any
    }

    fn receive_nd(
        &mut self,
        now: Nanos,
        (own, from): (Option<u32>, MacAddr),
        message: &NdMessage,
        out: &mut FrameQueue,
    ) -> bool {
        match message {
            NdMessage::Neighbor(message) if message.solicitation => {
                self.receive_solicitation(now, from, message, out)
            }
            NdMessage::Neighbor(message) => self.receive_advertisement(now, message, out),
            NdMessage::RouterAdvertisement(message) => {
                self.receive_router(now, own, message, out);
                true
            }
            NdMessage::RouterSolicitation { source, mac } => {
                let chance = self.chance(0);
                let Some(settings) = self.settings.ipv6.as_ref().and_then(|s| s.router.as_ref())
                else {
                    return false;
                };
                let Some(ipv6) = &mut self.ipv6 else { return false };
                let asker = (*source, mac.unwrap_or(from));
                ipv6.router.solicited((now, chance), asker, settings);
                true
            }
            NdMessage::Redirect => {
                if let Some(ipv6) = &mut self.ipv6 {
                    ipv6.counted.nd.redirects += 1;
                }
                own.is_some()
            }
        }
    }

    fn receive_solicitation(
        &mut self,
        now: Nanos,
        from: MacAddr,
        message: &NeighborMessage,
        out: &mut FrameQueue,
    ) -> bool {
        if let Some(mac) = message.mac {
            self.learn_ipv6(now, message.source, mac);
        }
        let Some((host, place)) = self.ipv6_owner(message.target) else { return false };
        let Some(ipv6) = &mut self.ipv6 else { return false };
        if ipv6.records[host as usize].detection(place).is_tentative() {
            // Only another host that examines the address shows that there is one; others look for
            // its owner (RFC 4862 section 5.4.3).
            if message.source.is_unspecified() {
                self.conflict_ipv6(host, place, now, out);
            }
            return true;
        }
        ipv6.counted.nd.answered += 1;
        let (mut answer, unicast) = message.advertise(self.mac(host));
        if host == 0 && self.settings.ipv6.as_ref().is_some_and(|s| s.router.is_some()) {
            answer.flags |= NeighborMessage::ROUTER;
        }
        let to = if unicast { message.mac.unwrap_or(from) } else { group_mac(ALL_NODES.into()) };
        self.push((to, self.mac(host)), IPV6, &answer.octets(), out);
        true
    }

    /// A neighbor has sent a message of its own with its MAC address.
    fn learn_ipv6(&mut self, now: Nanos, address: Ipv6Addr, mac: MacAddr) {
        let neighbor = self.ipv6.as_mut().and_then(|ipv6| ipv6.neighbors.get_mut(&address));
        let Some(neighbor) = neighbor else { return };
        let before = neighbor.mac();
        if neighbor.learn(mac) {
            self.pinger.resolved(now, address.into());
        } else if before != Some(mac) {
            self.follow_gateway(now, address.into(), mac);
        }
    }

    fn receive_advertisement(
        &mut self,
        now: Nanos,
        message: &NeighborMessage,
        out: &mut FrameQueue,
    ) -> bool {
        if let Some((host, place)) = self.ipv6_owner(message.target) {
            let Some(ipv6) = &mut self.ipv6 else { return false };
            if ipv6.records[host as usize].detection(place).is_usable() {
                // The host keeps its address (RFC 4862 section 5.4.4).
                ipv6.counted.nd.conflicts += 1;
            }
            self.conflict_ipv6(host, place, now, out);
            return true;
        }
        let (chance, timers) = (self.chance(0), self.nd_timers());
        let Some(ipv6) = &mut self.ipv6 else { return false };
        let Some(neighbor) = ipv6.neighbors.get_mut(&message.target) else { return false };
        let before = neighbor.mac();
        let is_new = neighbor.advertised(now, chance, message, &timers);
        let after = neighbor.mac();
        if is_new {
            self.pinger.resolved(now, message.target.into());
            self.share_resolved(now);
        } else if let Some(mac) = after.filter(|_| before != after) {
            self.follow_gateway(now, message.target.into(), mac);
        }
        true
    }

    fn conflict_ipv6(&mut self, host: u32, place: Place, now: Nanos, out: &mut FrameQueue) {
        let timers = self.nd_timers();
        let generates = match place {
            None => true,
            Some(place) => {
                let record = self.ipv6.as_ref().map(|ipv6| &ipv6.records[host as usize]);
                record.is_some_and(|one| matches!(one.addresses[place].origin, Origin::Prefix(_)))
            }
        } && self.has_stable_identifiers();
        self.leave(host, place);
        let Some(ipv6) = &mut self.ipv6 else { return };
        let detection = ipv6.records[host as usize].detection(place);
        match detection.conflict(now, generates, &timers) {
            Some(action) => self.act_ipv6(host, place, now, action, out),
            None => self.enter(host, place, now, out),
        }
        self.update_ipv6(host, now);
        self.schedule(host);
    }

    fn receive_router(
        &mut self,
        now: Nanos,
        own: Option<u32>,
        message: &RouterAdvertisement,
        out: &mut FrameQueue,
    ) {
        if let Some(mac) = message.mac {
            self.learn_ipv6(now, message.source, mac);
        }
        let Some(ipv6) = &mut self.ipv6 else { return };
        ipv6.counted.nd.router_advertisements += 1;
        let changes = ipv6.list.advertise(now, message);
        for change in &changes {
            self.change_prefix(*change, now);
        }
        let Some(ipv6) = &self.ipv6 else { return };
        // Most advertisements change nothing, and there may be a million hosts.
        let added = changes.iter().any(|change| matches!(change, PrefixChange::Added(_)));
        let hosts = match own {
            Some(host) => host..host + 1,
            None if ipv6.searching > 0 || added => 0..self.next,
            None => 0..0,
        };
        for host in hosts {
            self.use_router(host, now, (message.lifetime > 0, own.is_none()), out);
        }
        self.follow_router(now);
        self.share_resolved(now);
    }

    /// Handles an advertisement for a host. `is_default`: the sender is a default router.
    fn use_router(
        &mut self,
        host: u32,
        now: Nanos,
        (is_default, to_all): (bool, bool),
        out: &mut FrameQueue,
    ) {
        let Some(ipv6) = &mut self.ipv6 else { return };
        if !ipv6.records[host as usize].link_local.is_usable() {
            return;
        }
        if let Some(after) = ipv6.search(host, |search| search.advertised(now, is_default)) {
            ipv6.counted.router.record(after.0);
        }
        let slaac =
            self.settings.ipv6.as_ref().map(|s| s.addressing) == Some(Ipv6Addressing::Slaac);
        let prefixes: Vec<u8> = if slaac { ipv6.list.autonomous().collect() } else { Vec::new() };
        for number in prefixes {
            let Some(ipv6) = &self.ipv6 else { return };
            let addresses = &ipv6.records[host as usize].addresses;
            let is_free = |one: &Address| one.origin == Origin::None;
            let Some(place) = addresses.iter().position(is_free) else { break };
            if addresses.iter().all(|one| one.origin != Origin::Prefix(number)) {
                self.set_origin(host, place, Origin::Prefix(number));
                self.examine((host, Some(place)), now, to_all, out);
            }
        }
        self.run_ipv6_timers(host, now, out);
        self.schedule(host);
    }

    /// Hosts follow a change of a prefix.
    fn change_prefix(&mut self, change: PrefixChange, now: Nanos) {
        let (number, ended) = match change {
            PrefixChange::Added(_) => return,
            PrefixChange::Ended(number) => (number, true),
            PrefixChange::Deprecated(number) | PrefixChange::Preferred(number) => (number, false),
        };
        for host in 0..self.next {
            let Some(ipv6) = &mut self.ipv6 else { return };
            let addresses = &mut ipv6.records[host as usize].addresses;
            let with = |one: &&mut Address| one.origin == Origin::Prefix(number);
            let Some(address) = addresses.iter_mut().find(with) else { continue };
            if ended {
                ipv6.counted.ended += u64::from(address.detection.is_usable());
                *address = Address::default();
            }
            self.update_ipv6(host, now);
        }
        if ended && let Some(ipv6) = &mut self.ipv6 {
            // The table's keys were made with the prefix, which is gone.
            let hosts = std::mem::take(&mut ipv6.table);
            let kept = |(address, host): &(Ipv6Addr, u32)| self.ipv6_owned(*host, *address);
            let table: HashMap<_, _> = hosts.into_iter().filter(kept).collect();
            if let Some(ipv6) = &mut self.ipv6 {
                ipv6.table = table;
            }
        }
    }

    fn ipv6_owned(&self, host: u32, address: Ipv6Addr) -> bool {
        let places = [None, Some(0), Some(1)];
        places.into_iter().any(|place| self.ipv6_at(host, place) == Some(address))
    }

    /// Timers of what the hosts share: prefixes, neighbors, and the group's router.
    pub(super) fn advance_ipv6(&mut self, now: Nanos, out: &mut FrameQueue) -> bool {
        let mut any = false;
        while let Some(change) = self.ipv6.as_mut().and_then(|ipv6| ipv6.list.timer(now)) {
            self.change_prefix(change, now);
            any = true;
        }
        if self.ipv6.as_mut().is_some_and(|ipv6| ipv6.list.expire_routers(now)) {
            self.follow_router(now);
            any = true;
        }
        any |= self.advertise_router(now, out);
        let timers = self.nd_timers();
        while let Some(ipv6) = &mut self.ipv6 {
            let due = |neighbor: &Neighbor| neighbor.due().is_some_and(|due| due <= now);
            let Some((&address, neighbor)) = ipv6.neighbors.iter_mut().find(|one| due(one.1))
            else {
                break;
            };
            any = true;
            let to = match neighbor.timer(now, &timers) {
                None => continue,
                Some(NeighborAction::Multicast) => solicited_node(address),
                Some(NeighborAction::Unicast(mac)) => (address, mac),
                Some(NeighborAction::Unreachable) => {
                    let known = neighbor.state() != crate::Reachability::Incomplete;
                    ipv6.counted.nd.unreachable += u64::from(known);
                    ipv6.counted.nd.unresolved += u64::from(!known);
                    ipv6.neighbors.remove(&address);
                    ipv6.silent.insert(address, now + SILENT_PAUSE);
                    self.pinger.resolved(now, address.into());
                    continue;
                }
            };
            ipv6.counted.nd.requests += 1;
            let Some(source) = self.ipv6_at(self.asker, None) else { continue };
            let mac = self.mac(self.asker);
            let message = NeighborMessage::solicit(source, mac, address);
            let message = NeighborMessage { destination: to.0, ..message };
            self.push((to.1, mac), IPV6, &message.octets(), out);
        }
        any
    }

    fn advertise_router(&mut self, now: Nanos, out: &mut FrameQueue) -> bool {
        let mut any = false;
        loop {
            if self.ipv6.as_ref().is_none_or(|one| one.router.due().is_none_or(|due| due > now)) {
                return any;
            }
            let chance = self.chance(0);
            let Some(settings) = self.settings.ipv6.as_ref().and_then(|s| s.router.as_ref()) else {
                return any;
            };
            let Some(ipv6) = &mut self.ipv6 else { return any };
            let Some((address, mac)) = ipv6.router.timer(now, chance, settings) else {
                return any;
            };
            any = true;
            ipv6.counted.nd.advertised += 1;
            let Some(source) = self.ipv6_at(0, None) else { return any };
            let message = settings.advertisement(source, self.mac(0), address);
            self.push((mac, self.mac(0)), IPV6, &message.octets(), out);
        }
    }

    fn receive_echo_ipv6(
        &mut self,
        now: Nanos,
        (host, from): (u32, MacAddr),
        packet: &[u8],
        out: &mut FrameQueue,
    ) {
        let Some(octets) = packet.get(24..).and_then(|rest| rest.first_chunk::<16>()) else {
            return;
        };
        if !self.uses_ipv6(host, Ipv6Addr::from(*octets)) {
            return;
        }
        let mut reply = std::mem::take(&mut self.scratch);
        reply.clear();
        if echo_reply(packet, &mut reply) {
            self.counted.echo.answered += 1;
            self.push((from, self.mac(host)), IPV6, &reply, out);
        } else if let Some(echo) = Echo::of_reply(packet) {
            self.count_reply(now, host, &echo);
            let (chance, timers) = (self.chance(host), self.nd_timers());
            // The answer proves that the next hop forwards (RFC 4861 section 7.3.1).
            if let (Some(ipv6), IpAddr::V6(target)) = (&mut self.ipv6, echo.destination) {
                let hop = ipv6.neighbors.contains_key(&target).then_some(target);
                let hop = hop.or_else(|| ipv6.list.router(now).map(|router| router.address));
                if let Some(neighbor) = hop.and_then(|hop| ipv6.neighbors.get_mut(&hop)) {
                    neighbor.confirm(now, chance, &timers);
                }
            }
        } else if let Some(error) = IcmpError::parse(packet) {
            self.count_error(host, &error);
        } else if self.settings.icmp_errors
            && self.may_send_error(now)
            && IcmpError::unreachable(packet, &mut reply)
        {
            self.counted.echo.errors_sent += 1;
            self.push((from, self.mac(host)), IPV6, &reply, out);
        }
        self.scratch = reply;
    }

    /// The router for packets to other networks.
    pub(super) fn gateway_ipv6(&self, now: Nanos) -> Option<Ipv6Addr> {
        let (ipv6, settings) = (self.ipv6.as_ref()?, self.settings.ipv6.as_ref()?);
        settings.gateway.or_else(|| Some(ipv6.list.router(now)?.address))
    }

    /// The source and target of a host's echo requests over IPv6, and the next hop.
    pub(super) fn ipv6_path(
        &self,
        host: u32,
        now: Nanos,
        ping: &PingSettings,
    ) -> Option<(Ipv6Addr, Ipv6Addr, Ipv6Addr)> {
        let (ipv6, settings) = (self.ipv6.as_ref()?, self.settings.ipv6.as_ref()?);
        let gateway = self.gateway_ipv6(now);
        let target = match ping.target {
            Some(IpAddr::V6(target)) => target,
            Some(IpAddr::V4(_)) => return None,
            None => gateway?,
        };
        let link_local = self.ipv6_at(host, None)?;
        let source = match target.is_unicast_link_local() {
            true => link_local,
            false => self.ipv6_address(host).unwrap_or(link_local),
        };
        let own_prefix = match settings.addressing {
            Ipv6Addressing::Static { first, prefix } => {
                masked(first, prefix) == masked(target, prefix)
            }
            Ipv6Addressing::Slaac | Ipv6Addressing::Dhcp => false,
        };
        let on_link = own_prefix || ipv6.list.is_on_link(now, target);
        Some((source, target, if on_link { target } else { gateway? }))
    }

    /// Resolves a next hop.
    pub(super) fn find_ipv6(&mut self, now: Nanos, hop: Ipv6Addr) -> crate::Answer {
        let timers = self.nd_timers();
        let Some(ipv6) = &mut self.ipv6 else { return crate::Answer::Silent };
        match ipv6.silent.get(&hop) {
            Some(until) if now < *until => return crate::Answer::Silent,
            Some(_) => {
                ipv6.silent.remove(&hop);
            }
            None => {}
        }
        // A router has given its MAC address with its advertisement.
        let known = ipv6.list.router(now).filter(|router| router.address == hop);
        let neighbor = ipv6.neighbors.entry(hop).or_insert_with(|| {
            known.and_then(|router| router.mac).map_or(Neighbor::unknown(now), Neighbor::stale)
        });
        neighbor.send(now, &timers).map_or(crate::Answer::Wait, crate::Answer::Mac)
    }
}

impl Ipv6Hosts {
    /// Ends the leases of the server that are over.
    pub(super) fn expire_leases(&mut self, now: Nanos) {
        if let Some(server) = &mut self.server {
            server.expire(now);
        }
    }

    /// A step of a host's search for routers.
    fn search<T>(&mut self, host: u32, act: impl FnOnce(&mut RouterDiscovery) -> T) -> T {
        let discovery = &mut self.records[host as usize].discovery;
        let before = discovery.due().is_some();
        let outcome = act(discovery);
        let after = discovery.due().is_some();
        self.searching = self.searching + u64::from(after) - u64::from(before);
        outcome
    }
}

#[cfg(test)]
mod tests;
