//! Assigns packets to two ports ([`Splitter`]): client or server, by tcpprep's rules ([`Split`]).
//!
//! The primary port is that of clients, the secondary that of servers. Packets that match by
//! address, expression or MAC address ([`By::Cidr`], [`By::Regex`], [`By::Mac`]) also leave through
//! the primary port. tcpprep's manual calls their senders servers, but its caches assign them to
//! the primary port.
//!
//! Some rules must see all packets before the first one can leave: see [`Splitter::must_learn`].

use std::{
    collections::HashSet,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use regex::Regex;
use squall_bpf::classic::Filter;
use squall_edit::{Numbers, ValueError};
use squall_measure::flow::{FlowKey, FlowTable, Fragment, Headers, Link, protocol};
use squall_units::MacAddr;
use squall_wire::tcp_flags::{ACK, FIN, RST, SYN};

/// The port of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The first port, for packets of clients.
    Primary,
    /// The second port, for packets of servers.
    Secondary,
    /// Neither port: the packet is not sent.
    Skip,
}

impl Side {
    /// The role of the sender of packets on this side; `None` if they are not sent.
    pub fn sender(self) -> Option<squall_edit::Side> {
        match self {
            Self::Primary => Some(squall_edit::Side::Client),
            Self::Secondary => Some(squall_edit::Side::Server),
            Self::Skip => None,
        }
    }
}

/// How packets are split.
#[derive(Clone, Debug)]
pub struct Split {
    pub by: By,
    /// Swap the two ports, except for packets that no rule assigns.
    pub reverse: bool,
    /// Side of packets that no rule assigns: non-IP packets, and for `port` all packets but TCP and
    /// UDP. By default the secondary port, as in tcpprep.
    pub non_ip: Side,
    /// The packets to send; the others are not sent at all.
    pub select: Option<Select>,
}

impl Split {
    pub fn new(by: By) -> Self {
        Self { by, reverse: false, non_ip: Side::Secondary, select: None }
    }
}

/// The rule that assigns sides.
#[derive(Clone, Debug)]
pub enum By {
    /// By the sender's role in the capture.
    Auto(Auto),
    /// By the source address: packets from these networks are on the primary side.
    Cidr(Networks),
    /// By the source address as text: packets that match are on the primary side.
    Regex(Regex),
    /// By the destination port: packets to services are on the primary side.
    Port(Box<Services>),
    /// By the source MAC address: packets from these addresses are on the primary side.
    Mac(Vec<MacAddr>),
}

impl By {
    /// Parses a rule by its name: `auto`, `cidr`, `regex`, `mac`, or `port` (the default services;
    /// `text` is ignored).
    ///
    /// # Errors
    /// There is no such rule, or its text is invalid.
    pub fn parse(kind: &str, text: &str) -> Result<Self, SplitError> {
        match kind {
            "auto" => text.parse().map(|mode| Self::Auto(Auto { mode, ..Auto::default() })),
            "cidr" => Self::cidr(text),
            "regex" => Self::regex(text),
            "mac" => Self::mac(text),
            "port" => Ok(Self::Port(Box::default())),
            other => Err(SplitError::new(other, "expected auto, cidr, regex, mac or port")),
        }
    }

    /// Parses `10.0.0.0/8,[fe80::/16]`.
    ///
    /// # Errors
    /// The text is invalid; the error contains it and the expected form.
    pub fn cidr(text: &str) -> Result<Self, SplitError> {
        text.parse().map(Self::Cidr)
    }

    /// Parses a regular expression for source addresses, such as `^10\.1\.`.
    ///
    /// # Errors
    /// The expression is invalid.
    pub fn regex(text: &str) -> Result<Self, SplitError> {
        let invalid = |error: regex::Error| {
            SplitError::new(text, format!("not a regular expression: {error}"))
        };
        Regex::new(text).map(Self::Regex).map_err(invalid)
    }

    /// Parses `02:00:00:00:00:01,02:00:00:00:00:02`.
    ///
    /// # Errors
    /// The text is invalid; the error contains it and the expected form.
    pub fn mac(text: &str) -> Result<Self, SplitError> {
        let one = |text: &str| {
            text.parse().map_err(|_| {
                SplitError::new(
                    text,
                    "expected MAC addresses such as 02:00:00:00:00:01,02:00:00:00:00:02",
                )
            })
        };
        text.split(',').map(|mac| one(mac.trim())).collect::<Result<_, _>>().map(Self::Mac)
    }
}

/// Classifies hosts by their roles in the capture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Auto {
    pub mode: AutoMode,
    /// Minimum ratio of a host's server actions to its client actions for it to be a server.
    pub ratio: f64,
    /// Prefix lengths of IPv4 networks that [`AutoMode::Router`] tries, from the shortest to the
    /// longest. IPv6 prefixes are four times as long.
    pub prefix: (u8, u8),
}

impl Default for Auto {
    fn default() -> Self {
        Self { mode: AutoMode::Bridge, ratio: 2.0, prefix: (8, 30) }
    }
}

/// Handling of hosts that acted neither as client nor as server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AutoMode {
    /// An error.
    Bridge,
    /// A server if the host is in a network with servers and without clients, otherwise a client.
    Router,
    Client,
    Server,
    /// There are no such hosts, because the first packet decides: a host that sends first is a
    /// client, one that receives first is a server.
    First,
}

impl AutoMode {
    pub const ALL: [Self; 5] =
        [Self::Bridge, Self::Router, Self::Client, Self::Server, Self::First];

    pub fn name(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Router => "router",
            Self::Client => "client",
            Self::Server => "server",
            Self::First => "first",
        }
    }
}

impl FromStr for AutoMode {
    type Err = SplitError;

    fn from_str(text: &str) -> Result<Self, SplitError> {
        let known = Self::ALL.into_iter().find(|mode| mode.name() == text);
        known.ok_or_else(|| {
            SplitError::new(text, "expected bridge, router, client, server or first")
        })
    }
}

impl fmt::Display for AutoMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Captures that cannot be split, and invalid rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    #[error("{found:?}: {problem}")]
    Text { found: String, problem: String },
    #[error(
        "cannot determine if {host} is a client or a server{}\n  try auto=client or auto=server \
         for such hosts, or auto=first",
        others(*.more)
    )]
    Unknown { host: IpAddr, more: usize },
    #[error(
        "server {server} and client {client} are in the same network, even with a prefix of \
         {prefix} bits\n  try longer prefixes (--minmask), another --ratio, or auto=first"
    )]
    Mixed { server: IpAddr, client: IpAddr, prefix: u8 },
}

fn others(more: usize) -> String {
    match more {
        0 => String::new(),
        1 => ", nor another host".to_owned(),
        more => format!(", nor {more} others"),
    }
}

impl SplitError {
    fn new(found: &str, problem: impl Into<String>) -> Self {
        Self::Text { found: found.to_owned(), problem: problem.into() }
    }
}

// --- the splitter
// ------------------------------------------------------------------------------------------------

/// Assigns sides to packets in order.
pub struct Splitter {
    split: Split,
    link: Link,
    hosts: Sides,
    /// Whether learning has ended.
    learned: bool,
    /// For regular expressions: source addresses with their results, direct-mapped by hash.
    known: Vec<(FlowKey, bool)>,
}

/// Number of source addresses whose results are cached.
const KNOWN: usize = 4096;

impl Splitter {
    /// # Panics
    /// If `split` selects by a filter that is not compiled ([`Select::compile`]).
    pub fn new(split: &Split, link: Link) -> Self {
        if let Some(Select { rule: Rule::Filter { compiled, .. }, .. }) = &split.select {
            assert!(compiled.is_some(), "a filter is compiled before it runs");
        }
        let auto = if let By::Auto(auto) = split.by { auto } else { Auto::default() };
        let known = if matches!(split.by, By::Regex(_)) {
            vec![(FlowKey::default(), false); KNOWN]
        } else {
            Vec::new()
        };
        Self { split: split.clone(), link, hosts: Sides::new(auto), learned: false, known }
    }

    /// Whether all packets must be passed to [`Splitter::learn`], followed by a call of
    /// [`Splitter::learned`], before the first side is requested.
    pub fn must_learn(&self) -> bool {
        !self.learned && matches!(self.split.by, By::Auto(auto) if auto.mode != AutoMode::First)
    }

    /// Learns from packet `number` of the capture (1-based).
    pub fn learn(&mut self, octets: &[u8], number: u64) {
        let headers = Headers::parse(octets, self.link);
        if self.is_selected(octets, &headers, number) {
            self.hosts.learn(octets, &headers);
        }
    }

    /// Ends learning.
    ///
    /// # Errors
    /// The packets do not determine the sides of all hosts.
    pub fn learned(&mut self) -> Result<(), SplitError> {
        self.learned = true;
        self.hosts.conclude()
    }

    /// The side of packet `number` of the capture (1-based).
    #[inline]
    pub fn side(&mut self, octets: &[u8], number: u64) -> Side {
        let headers = Headers::parse(octets, self.link);
        if !self.is_selected(octets, &headers, number) {
            return Side::Skip;
        }
        let found = match &self.split.by {
            By::Mac(macs) => source_mac(octets, self.link).map(|mac| macs.contains(&mac)),
            _ if !headers.key.is_ip() => None,
            By::Auto(auto) if auto.mode == AutoMode::First => {
                self.hosts.see_first(&headers.key);
                self.hosts.is_client(&headers.key)
            }
            By::Auto(_) => self.hosts.is_client(&headers.key),
            By::Cidr(networks) => Some(networks.contain(&headers.key.src, headers.key.version)),
            By::Regex(expression) => headers.key.src_ip().map(|source| {
                let key = source_of(&headers.key);
                let place = &mut self.known[key.hash_with(0) as usize % KNOWN];
                if place.0 != key {
                    *place = (key, expression.is_match(&source.to_string()));
                }
                place.1
            }),
            By::Port(services) => services.has(&headers),
        };
        match found {
            Some(primary) if primary != self.split.reverse => Side::Primary,
            Some(_) => Side::Secondary,
            None => self.split.non_ip,
        }
    }

    fn is_selected(&self, octets: &[u8], headers: &Headers, number: u64) -> bool {
        self.split.select.as_ref().is_none_or(|select| select.takes(octets, &headers.key, number))
    }
}

fn source_mac(octets: &[u8], link: Link) -> Option<MacAddr> {
    if link != Link::Ethernet {
        return None;
    }
    octets.get(6..)?.first_chunk().copied().map(MacAddr)
}

// --- roles of hosts
// -----------------------------------------------------------------------------------------------

/// Maximum number of hosts. Later ones have no side.
const MAX_HOSTS: usize = 1 << 22;

/// Actions of a capture's hosts, and the resulting roles.
#[derive(Clone, Debug)]
struct Sides {
    auto: Auto,
    hosts: FlowTable<Host>,
    /// Networks of servers, with one prefix length for each IP version.
    networks: HashSet<FlowKey>,
    prefix: u8,
}

#[derive(Clone, Copy, Debug, Default)]
struct Host {
    /// Number of client actions and of server actions.
    client: u64,
    server: u64,
    is_client: Option<bool>,
}

/// The role of the sender, as far as the packet shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Client,
    Server,
}

impl Sides {
    fn new(auto: Auto) -> Self {
        Self { auto, hosts: FlowTable::new(MAX_HOSTS, None), networks: HashSet::new(), prefix: 0 }
    }

    fn learn(&mut self, octets: &[u8], headers: &Headers) {
        if !headers.key.is_ip() {
            return;
        }
        let Some(host) = self.hosts.entry(&source_of(&headers.key), 0) else { return };
        match act(octets, headers) {
            Some(Act::Client) => host.client += 1,
            Some(Act::Server) => host.server += 1,
            None => {}
        }
    }

    /// A host keeps the role of its first packet.
    fn see_first(&mut self, key: &FlowKey) {
        for (host, is_client) in [(source_of(key), true), (source_of(&key.reversed()), false)] {
            if let Some(host) = self.hosts.entry(&host, 0) {
                host.is_client.get_or_insert(is_client);
            }
        }
    }

    fn conclude(&mut self) -> Result<(), SplitError> {
        let ratio = self.auto.ratio;
        let judge = |host: &Host| {
            let known = host.client > 0 || host.server > 0;
            known.then_some((host.server as f64) < host.client as f64 * ratio)
        };
        let mut judged = FlowTable::new(MAX_HOSTS, None);
        let mut unknown = Vec::new();
        for host in &self.hosts {
            let is_client = judge(&host.value);
            if is_client.is_none() {
                unknown.push(host.key);
            }
            if let Some(new) = judged.entry(&host.key, 0) {
                *new = Host { is_client, ..host.value };
            }
        }
        self.hosts = judged;
        match (self.auto.mode, unknown.first()) {
            (AutoMode::Bridge, Some(host)) => match host.src_ip() {
                Some(host) => Err(SplitError::Unknown { host, more: unknown.len() - 1 }),
                None => Ok(()),
            },
            (AutoMode::Router, Some(_)) => self.find_networks(),
            _ => Ok(()),
        }
    }

    /// Finds the largest networks with servers and without clients.
    fn find_networks(&mut self) -> Result<(), SplitError> {
        let all = |is_client: bool| {
            let hosts =
                self.hosts.iter().filter(move |host| host.value.is_client == Some(is_client));
            hosts.map(|host| host.key).collect::<Vec<_>>()
        };
        let (clients, servers) = (all(true), all(false));
        let mut mixed = None;
        for prefix in self.auto.prefix.0..=self.auto.prefix.1 {
            let networks: HashSet<FlowKey> =
                servers.iter().map(|server| network_of(server, prefix)).collect();
            let within =
                clients.iter().find(|client| networks.contains(&network_of(client, prefix)));
            let Some(client) = within else {
                (self.networks, self.prefix) = (networks, prefix);
                return Ok(());
            };
            let server = servers
                .iter()
                .find(|server| network_of(server, prefix) == network_of(client, prefix));
            mixed = server.and_then(|server| Some((server.src_ip()?, client.src_ip()?, prefix)));
        }
        match mixed {
            Some((server, client, prefix)) => Err(SplitError::Mixed { server, client, prefix }),
            None => Ok(()),
        }
    }

    /// `None`: the packet is not IP.
    fn is_client(&self, key: &FlowKey) -> Option<bool> {
        let host = source_of(key);
        let known = self.hosts.get(&host).and_then(|host| host.is_client);
        known.or_else(|| match self.auto.mode {
            AutoMode::Client => Some(true),
            AutoMode::Server => Some(false),
            AutoMode::Router => Some(!self.networks.contains(&network_of(&host, self.prefix))),
            _ => None,
        })
    }
}

/// The key reduced to the sender.
fn source_of(key: &FlowKey) -> FlowKey {
    FlowKey { src: key.src, version: key.version, ..FlowKey::default() }
}

/// A host's network: a prefix of this many bits for IPv4, and four times as many for IPv6.
fn network_of(host: &FlowKey, prefix: u8) -> FlowKey {
    let bits = if host.version == 6 { u32::from(prefix) * 4 } else { u32::from(prefix) };
    FlowKey { src: (u128::from_be_bytes(host.src) & mask(bits)).to_be_bytes(), ..*host }
}

fn mask(bits: u32) -> u128 {
    u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0)
}

const FTP_DATA: u16 = 20;
const DNS: u16 = 53;

fn act(octets: &[u8], headers: &Headers) -> Option<Act> {
    let FlowKey { src_port, dst_port, version, .. } = headers.key;
    if headers.fragment == Fragment::Later {
        return None;
    }
    match headers.key.protocol {
        // An FTP server opens data connections itself, so a SYN from its data port shows no client.
        protocol::TCP if src_port == FTP_DATA => None,
        protocol::TCP => match headers.tcp_flags & (SYN | ACK | FIN | RST) {
            SYN => Some(Act::Client),
            flags if flags == SYN | ACK => Some(Act::Server),
            _ => None,
        },
        protocol::UDP if dst_port == DNS || src_port == DNS => {
            // QR, the highest bit of the flags (RFC 1035 §4.1.1), marks a response.
            let flags = octets[headers.payload as usize..headers.end as usize].get(2)?;
            Some(if flags & 0x80 != 0 { Act::Server } else { Act::Client })
        }
        // The sender of a port unreachable error was addressed as a server.
        protocol::ICMP | protocol::ICMPV6 => {
            let message = &octets[headers.transport as usize..headers.end as usize];
            let unreachable: &[u8] = if version == 4 { &[3, 3] } else { &[1, 4] };
            message.starts_with(unreachable).then_some(Act::Server)
        }
        _ => None,
    }
}

// --- services
// ----------------------------------------------------------------------------------------------------

/// TCP and UDP ports of servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Services {
    tcp: Vec<bool>,
    udp: Vec<bool>,
}

/// The ports below 1024.
impl Default for Services {
    fn default() -> Self {
        let ports: Vec<bool> = (0..=u16::MAX).map(|port| port < 1024).collect();
        Self { tcp: ports.clone(), udp: ports }
    }
}

impl Services {
    /// Parses a file like `/etc/services`: lines with `80/tcp` or `53/udp`. Other lines are
    /// ignored.
    ///
    /// # Errors
    /// There is no such line, or a port is above 65535.
    pub fn parse(text: &str) -> Result<Self, SplitError> {
        let mut services = Self { tcp: vec![false; 1 << 16], udp: vec![false; 1 << 16] };
        let mut found = false;
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            for word in line.split_whitespace() {
                let Some((port, name)) = word.split_once('/') else { continue };
                let ports = match name.to_ascii_lowercase().as_str() {
                    "tcp" => &mut services.tcp,
                    "udp" => &mut services.udp,
                    _ => continue,
                };
                let Ok(port) = port.parse::<u16>() else {
                    return Err(SplitError::new(
                        word,
                        "expected a port of 0 to 65535, such as 80/tcp",
                    ));
                };
                ports[usize::from(port)] = true;
                found = true;
            }
        }
        if found {
            Ok(services)
        } else {
            Err(SplitError::new("services", "expected lines such as \"http 80/tcp\""))
        }
    }

    /// Whether a packet goes to a service; `None` if it is neither TCP nor UDP, or has no ports.
    fn has(&self, headers: &Headers) -> Option<bool> {
        let ports = match headers.key.protocol {
            _ if headers.fragment == Fragment::Later => return None,
            protocol::TCP => &self.tcp,
            protocol::UDP => &self.udp,
            _ => return None,
        };
        Some(ports[usize::from(headers.key.dst_port)])
    }
}

// --- networks
// ----------------------------------------------------------------------------------------------------

/// IPv4 and IPv6 networks: `10.0.0.0/8,192.168.1.7,[fe80::/16]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<Network>);

/// The address is in the first bits, as in a [`FlowKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: u128,
    mask: u128,
    version: u8,
}

impl Networks {
    fn contain(&self, address: &[u8; 16], version: u8) -> bool {
        let address = u128::from_be_bytes(*address);
        self.0.iter().any(|n| n.version == version && address & n.mask == n.address)
    }
}

impl FromStr for Networks {
    type Err = SplitError;

    fn from_str(text: &str) -> Result<Self, SplitError> {
        text.split(',').map(|one| one.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Network {
    type Err = SplitError;

    /// Bits beyond the prefix are ignored, as in tcpprep.
    fn from_str(text: &str) -> Result<Self, SplitError> {
        let wrong = || {
            SplitError::new(
                text,
                "expected networks such as 10.0.0.0/8,192.168.1.0/24 or [fe80::/16]",
            )
        };
        let plain = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        let (address, prefix) = plain.split_once('/').map_or((plain, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let (version, bits, address) = match address {
            IpAddr::V4(a) => (4, 32, u128::from(Ipv4Addr::to_bits(a)) << 96),
            IpAddr::V6(a) => (6, 128, Ipv6Addr::to_bits(a)),
        };
        let prefix: u32 = prefix.map_or(Ok(bits), str::parse).map_err(|_| wrong())?;
        if prefix > bits {
            return Err(SplitError::new(
                text,
                format!("a prefix of {prefix} bits: expected 0 to {bits}"),
            ));
        }
        let mask = mask(prefix);
        Ok(Self { address: address & mask, mask, version })
    }
}

// --- selection of packets
// --------------------------------------------------------------------------------------------

/// Selects the packets to send: tcpprep's `--include` and `--exclude`.
#[derive(Clone, Debug)]
pub struct Select {
    pub rule: Rule,
    /// Packets that match are not sent.
    pub exclude: bool,
}

/// A condition on packets. A packet without addresses meets every condition on addresses.
#[derive(Clone, Debug)]
pub enum Rule {
    /// `S:`
    Source(Networks),
    /// `D:`
    Destination(Networks),
    /// `B:`
    Both(Networks),
    /// `E:`
    Either(Networks),
    /// `P:`
    Packets(Numbers),
    /// `F:`
    Filter { expression: String, compiled: Option<Filter> },
}

impl Select {
    /// Parses `S:10.0.0.0/8`, `D:`, `B:`, `E:`, `P:1-5,9,72-` or `F:tcp port 80`.
    ///
    /// # Errors
    /// The text is invalid; the error contains it and the expected form.
    pub fn parse(text: &str, exclude: bool) -> Result<Self, SplitError> {
        text.parse().map(|rule| Self { rule, exclude })
    }

    /// Compiles the expression of an `F:` rule.
    ///
    /// # Errors
    /// The error of `compile`.
    pub fn compile<E>(&mut self, compile: impl FnOnce(&str) -> Result<Filter, E>) -> Result<(), E> {
        if let Rule::Filter { expression, compiled } = &mut self.rule {
            *compiled = Some(compile(expression)?);
        }
        Ok(())
    }

    /// Whether packet `number` is sent.
    fn takes(&self, octets: &[u8], key: &FlowKey, number: u64) -> bool {
        let source = |networks: &Networks| networks.contain(&key.src, key.version);
        let destination = |networks: &Networks| networks.contain(&key.dst, key.version);
        let matches = match &self.rule {
            Rule::Packets(numbers) => numbers.hold(number),
            Rule::Filter { compiled, .. } => {
                compiled.as_ref().is_some_and(|filter| filter.run(octets, octets.len() as u32) > 0)
            }
            _ if !key.is_ip() => return true,
            Rule::Source(networks) => source(networks),
            Rule::Destination(networks) => destination(networks),
            Rule::Both(networks) => source(networks) && destination(networks),
            Rule::Either(networks) => source(networks) || destination(networks),
        };
        matches != self.exclude
    }
}

impl FromStr for Rule {
    type Err = SplitError;

    fn from_str(text: &str) -> Result<Self, SplitError> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        Ok(match kind {
            "S" => Self::Source(rest.parse()?),
            "D" => Self::Destination(rest.parse()?),
            "B" => Self::Both(rest.parse()?),
            "E" => Self::Either(rest.parse()?),
            "P" => Self::Packets(
                rest.parse()
                    .map_err(|error: ValueError| SplitError::new(text, error.to_string()))?,
            ),
            "F" if !rest.trim().is_empty() => {
                // Quotes that no shell has removed.
                let quoted = rest.strip_prefix('\'').and_then(|r| r.strip_suffix('\''));
                Self::Filter { expression: quoted.unwrap_or(rest).to_owned(), compiled: None }
            }
            _ => {
                let expected = "expected S:, D:, B: or E: with networks (S:10.0.0.0/8), P: with \
                                packets (P:1-5,9,72-), or F: with a filter (F:tcp port 80)";
                return Err(SplitError::new(text, expected));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: [u8; 4] = [10, 0, 0, 1];
    const SERVER: [u8; 4] = [10, 9, 0, 2];
    const NEIGHBOR: [u8; 4] = [10, 9, 0, 3];
    const AWAY: [u8; 4] = [192, 0, 2, 1];

    fn ipv4(src: [u8; 4], dst: [u8; 4], protocol: u8, segment: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, src[3], 8, 0];
        frame.extend([0x45, 0, 0, 20 + segment.len() as u8, 0, 0, 0, 0, 64, protocol, 0, 0]);
        frame.extend([src, dst].concat());
        frame.extend(segment);
        frame
    }

    fn tcp(src: [u8; 4], dst: [u8; 4], ports: (u8, u16), flags: u8) -> Vec<u8> {
        let [high, low] = ports.1.to_be_bytes();
        ipv4(
            src,
            dst,
            6,
            &[0, ports.0, high, low, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0],
        )
    }

    fn dns(src: [u8; 4], dst: [u8; 4], ports: (u8, u8), flags: u8) -> Vec<u8> {
        ipv4(src, dst, 17, &[0, ports.0, 0, ports.1, 0, 12, 0, 0, 1, 2, flags, 0])
    }

    fn arp() -> Vec<u8> {
        [&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 6][..], &[0; 28]].concat()
    }

    fn sides(split: &Split, frames: &[Vec<u8>]) -> Result<String, SplitError> {
        let mut splitter = Splitter::new(split, Link::Ethernet);
        if splitter.must_learn() {
            frames.iter().zip(1..).for_each(|(frame, number)| splitter.learn(frame, number));
            splitter.learned()?;
            assert!(!splitter.must_learn());
        }
        let sides =
            frames.iter().zip(1..).map(|(frame, number)| match splitter.side(frame, number) {
                Side::Primary => 'p',
                Side::Secondary => 's',
                Side::Skip => '-',
            });
        Ok(sides.collect())
    }

    fn auto(mode: AutoMode) -> Split {
        Split::new(By::Auto(Auto { mode, ..Auto::default() }))
    }

    fn conversation() -> Vec<Vec<u8>> {
        vec![
            tcp(CLIENT, SERVER, (1, 80), SYN),
            tcp(SERVER, CLIENT, (80, 1), SYN | ACK),
            tcp(CLIENT, SERVER, (1, 80), ACK),
            arp(),
            tcp(SERVER, CLIENT, (80, 1), ACK),
        ]
    }

    #[test]
    fn hosts_that_open_connections_are_clients_in_every_automatic_mode() {
        for mode in AutoMode::ALL {
            assert_eq!(sides(&auto(mode), &conversation()).unwrap(), "pspss", "{mode}");
        }
    }

    #[test]
    fn passive_hosts_get_the_role_that_the_mode_defines() {
        let frames = [
            &conversation()[..],
            &[tcp(NEIGHBOR, AWAY, (9, 9), ACK), tcp(AWAY, NEIGHBOR, (9, 9), ACK)],
        ]
        .concat();
        let of = |mode| sides(&auto(mode), &frames);
        assert_eq!(of(AutoMode::Client).unwrap(), "pspsspp");
        assert_eq!(of(AutoMode::Server).unwrap(), "pspssss");
        // One host is in the server's network, the other in no network.
        assert_eq!(of(AutoMode::Router).unwrap(), "pspsssp");
        assert_eq!(of(AutoMode::First).unwrap(), "pspssps");
        let error = of(AutoMode::Bridge).unwrap_err();
        assert_eq!(error, SplitError::Unknown { host: NEIGHBOR.into(), more: 1 });
        assert!(
            error.to_string().contains("10.9.0.3") && error.to_string().contains("auto=first"),
            "{error}"
        );
    }

    #[test]
    fn a_client_among_servers_narrows_the_networks_or_is_an_error() {
        let near = [10, 9, 0, 4];
        let frames = vec![
            tcp(near, SERVER, (1, 80), SYN),
            tcp(SERVER, near, (80, 1), SYN | ACK),
            tcp(NEIGHBOR, AWAY, (9, 9), ACK),
            tcp([10, 9, 0, 9], AWAY, (9, 9), ACK),
        ];
        // 10.9.0.0/30 has .2 and .3, but not .4.
        assert_eq!(sides(&auto(AutoMode::Router), &frames).unwrap(), "pssp");
        let mixed = vec![
            tcp(NEIGHBOR, SERVER, (1, 80), SYN),
            tcp(SERVER, NEIGHBOR, (80, 1), SYN | ACK),
            frames[2].clone(),
        ];
        let mixed = [mixed, vec![frames[3].clone()]].concat();
        let error = sides(&auto(AutoMode::Router), &mixed).unwrap_err();
        assert_eq!(
            error,
            SplitError::Mixed { server: SERVER.into(), client: NEIGHBOR.into(), prefix: 30 }
        );
    }

    #[test]
    fn hosts_that_serve_often_enough_are_servers() {
        let mut frames = vec![tcp(CLIENT, SERVER, (1, 80), SYN); 3];
        frames.extend(vec![tcp(CLIENT, SERVER, (80, 1), SYN | ACK); 5]);
        let of = |ratio| {
            let split =
                Split::new(By::Auto(Auto { mode: AutoMode::Client, ratio, ..Auto::default() }));
            sides(&split, &frames).unwrap().starts_with('p')
        };
        assert_eq!([2.0, 5.0 / 3.0, 1.0].map(of), [true, false, false]);
    }

    #[test]
    fn dns_ftp_data_and_closed_ports_tell_servers() {
        let port_unreachable = ipv4(SERVER, CLIENT, 1, &[3, 3, 0, 0, 0, 0, 0, 0]);
        let frames = vec![
            dns(CLIENT, SERVER, (9, 53), 1),
            dns(SERVER, CLIENT, (53, 9), 0x81),
            tcp(AWAY, CLIENT, (20, 9), SYN),
            port_unreachable,
        ];
        assert_eq!(sides(&auto(AutoMode::Server), &frames).unwrap(), "psss");
    }

    #[test]
    fn addresses_expressions_ports_and_macs_tell_sides() {
        let frames = conversation();
        let of = |by: By| sides(&Split::new(by), &frames).unwrap();
        assert_eq!(of(By::cidr("10.0.0.0/16,fe80::/10").unwrap()), "pspss");
        assert_eq!(of(By::cidr("10.0.0.0/8").unwrap()), "pppsp");
        assert_eq!(of(By::regex(r"^10\.9\..*").unwrap()), "spssp");
        assert_eq!(of(By::Port(Box::default())), "pppsp");
        let services =
            Services::parse("# web\nhttp 80/tcp www\ndomain\t53/udp # and TCP\n").unwrap();
        assert_eq!(of(By::Port(Box::new(services))), "pspss");
        assert_eq!(of(By::mac("02:00:00:00:00:02").unwrap()), "spssp");
    }

    #[test]
    fn ports_are_exchanged_and_non_ip_goes_to_its_side() {
        let with = |reverse, non_ip| {
            let split = Split { reverse, non_ip, ..Split::new(By::cidr("10.0.0.1").unwrap()) };
            sides(&split, &conversation()).unwrap()
        };
        assert_eq!(with(false, Side::Primary), "pspps");
        assert_eq!(with(true, Side::Primary), "spspp");
        assert_eq!(with(false, Side::Secondary), "pspss");
        assert_eq!(with(true, Side::Secondary), "spssp");
    }

    #[test]
    fn rules_select_the_packets_that_leave() {
        let of =
            |rule: &str, exclude| {
                let mut select = Select::parse(rule, exclude).unwrap();
                // EtherType ARP
                let load = |code, k| squall_bpf::classic::Instruction { code, jt: 0, jf: 0, k };
                let jump = squall_bpf::classic::Instruction { code: 0x15, jt: 0, jf: 1, k: 0x806 };
                let program = vec![load(0x28, 12), jump, load(6, 1000), load(6, 0)];
                select
                    .compile(|text| {
                        if text == "arp" { Filter::new(program) } else { unreachable!("{text}") }
                    })
                    .unwrap();
                let split = Split { select: Some(select), ..auto(AutoMode::First) };
                sides(&split, &conversation()).unwrap()
            };
        assert_eq!(of("S:10.0.0.1", false), "p-ps-");
        assert_eq!(of("S:10.0.0.1", true), "-p-sp");
        assert_eq!(of("D:10.0.0.0/24", false), "-p-sp");
        assert_eq!(of("B:10.0.0.0/8", false), "pspss");
        assert_eq!(of("E:10.9.0.2,10.0.0.9", true), "---s-");
        assert_eq!(of("P:1-2,5-", false), "ps--s");
        assert_eq!(of("P:1-2,5-", true), "--ps-");
        assert_eq!(of("F:'arp'", false), "---s-");
        assert_eq!(of("F:arp", true), "psp-s");
    }

    #[test]
    fn invalid_rules_name_the_expectation() {
        let errors = [
            By::cidr("10.0.0.0/33").unwrap_err(),
            By::cidr("10.0.0/8").unwrap_err(),
            By::mac("02:00").unwrap_err(),
            "both".parse::<AutoMode>().unwrap_err(),
            Select::parse("Q:1", false).unwrap_err(),
            Select::parse("P:0-3", false).unwrap_err(),
            Select::parse("P:5-3", false).unwrap_err(),
            Services::parse("http 80000/tcp").unwrap_err(),
        ];
        for error in errors {
            assert!(error.to_string().contains("expected"), "{error}");
        }
        assert!(By::regex("10.(").unwrap_err().to_string().contains("unclosed group"));
    }
}
