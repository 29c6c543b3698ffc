//! Describes a load: templates, their rates of new flows, durations.

use std::sync::Arc;

use squall_apps::{Http2, Http3, Program, Tls, Transport, proxy::ProxyProtocol};
use squall_program::{Gap, GapLaw, Pattern, Shape, Timeline};
use squall_tcp::{FlowKind, Tunables};
use squall_units::{Nanos, Picos};

use crate::{
    network::Network,
    pool::{Pool, PoolError, Tuples},
    script::Script,
    sharing::{Share, Sharing},
};

/// The load of a run; all its sides and workers have the same value.
#[derive(Clone, Debug)]
pub struct Load {
    pub clients: Vec<Pool>,
    pub servers: Vec<Pool>,
    pub templates: Vec<Template>,
    /// The total over all templates with a weight.
    pub target: Option<Target>,
    /// Ramps and stages; time counts from the start of the load.
    pub shape: Shape,
    pub limits: Limits,
    /// How long flows that are open at the end may continue before they are aborted.
    pub drain: Nanos,
    /// An arrival that waited for longer than this is given up and counted as `late`: the generator
    /// was too slow.
    pub max_delay: Nanos,
    pub seed: u64,
    /// Conversations in addition to the templates' flows, or instead of them, in the order of their
    /// templates. At most eight scripts, because [`crate::Part`] has a bit for each.
    pub scripts: Vec<Arc<Script>>,
}

/// A kind of flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    pub name: String,
    /// The pair of ports that plays it, less than [`MAX_PAIRS`]. A flow of one pair never reaches
    /// another, so that templates of different pairs may have the same addresses and ports.
    pub pair: u8,
    /// Indexes of pools in the load.
    pub clients: usize,
    pub servers: usize,
    /// The servers' port. Templates with the same port and servers, over TCP or over UDP, are each
    /// served by their own program: selected by the addresses of their clients or, if those are the
    /// same, by shares of the clients' ports.
    pub port: u16,
    pub client: Program,
    pub server: Program,
    /// TLS sessions at both ends.
    pub tls: Option<Tls>,
    /// Headers of the PROXY protocol, which clients send and servers require.
    pub proxy: Option<Arc<ProxyProtocol>>,
    /// HTTP/2 at both ends, inside of TLS if that is set.
    pub http: Option<Http2>,
    /// HTTP/3 at both ends, in place of TCP and HTTP/2; requires `tls`.
    pub http3: Option<Http3>,
    /// Behavior of the flows at each end (MSS, timeouts, TOS).
    pub client_tunables: Tunables,
    pub server_tunables: Tunables,
    pub ends: Ends,
    pub arrival: Arrival,
    /// Total number of flows of this template; `None`: unlimited.
    pub limit: Option<u64>,
    /// No flow begins before `start`, or later than `duration` after it.
    pub start: Nanos,
    pub duration: Option<Nanos>,
    /// No flow begins before [`crate::Side::begin_template`]; `start` counts from that call. The
    /// same holds for templates that have [joined](Self::joined).
    pub waits: bool,
    /// Its own ramps and stages, counted from its start, instead of the load's.
    pub shape: Option<Shape>,
    /// It was removed from a running load ([`Load::joined`]): no flow begins, no client is served,
    /// and open flows are aborted. It keeps its number and its counters, because templates are
    /// identified by their position.
    pub gone: bool,
    /// It has joined a running load, so its start does not count from the load's.
    pub joined: bool,
}

impl Template {
    /// The kind of its flows.
    pub fn kind(&self) -> FlowKind {
        match (self.client.transport, self.http3) {
            (Transport::Tcp, None) => FlowKind::Tcp,
            (Transport::Udp, _) | (_, Some(_)) => FlowKind::Udp,
        }
    }

    /// # Errors
    /// Why its flows cannot be connections of HTTP/3.
    fn check_http3(&self, http3: &Http3) -> Result<(), String> {
        let tls = self.tls.as_ref().ok_or("HTTP/3 needs TLS\n  try tls = true")?;
        tls.check_http3()?;
        if self.http.is_some() || self.proxy.is_some() {
            let text = "HTTP/3 excludes HTTP/2 and the PROXY protocol, which are over TCP";
            return Err(text.into());
        }
        let streams = u32::from(http3.streams);
        let small = http3.window <= i32::MAX.cast_unsigned() && http3.qpack_table <= 4_096;
        if !(1..=100).contains(&streams) || !small {
            let text = "HTTP/3: expected 1 to 100 streams, a window below 2^31, and a table of at \
                        most 4,096 octets";
            return Err(text.into());
        }
        for program in [&self.client, &self.server] {
            program.check_over_http3().map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// The highest number of pairs of ports, because [`crate::Part`] has a bit for each.
pub const MAX_PAIRS: u8 = 64;

/// Which ends of a template's flows the load plays: both, or only one if the other is external.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    #[default]
    Both,
    Clients,
    Servers,
}

impl Ends {
    pub fn has_clients(self) -> bool {
        self != Self::Servers
    }

    pub fn has_servers(self) -> bool {
        self != Self::Clients
    }
}

/// When flows of a template begin.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrival {
    /// Open loop: at times that do not depend on other flows.
    Open { cps: Cps, spacing: Spacing },
    /// A share of the load's [`Target`], usually an open loop.
    Weight { weight: u32, spacing: Spacing },
    /// Closed loop: each of `users` begins a flow when the previous one has ended and a think time
    /// has passed.
    Closed { users: u32, think: Think },
    /// Begun only by programs of other flows.
    Called,
    /// No arrivals: servers only.
    None,
}

/// New flows per second, as the fraction `num / den`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cps {
    pub num: u64,
    pub den: u64,
}

/// The distribution of an open loop's arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    /// Constant intervals.
    #[default]
    Constant,
    /// A Poisson process: exponential intervals, as with many independent users.
    Poisson,
}

/// The think time of a user between two flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Think {
    Fixed(Nanos),
    /// Exponential, with this mean.
    Exponential(Nanos),
}

/// The total over all templates with a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// New flows per second.
    Cps(Cps),
    /// Open flows: each flow that ends is replaced by another.
    Active(u64),
    /// Bits per second of application data, sum of both directions, as one side sees it. The rate
    /// of new flows is adjusted to reach it.
    Bandwidth(u64),
}

/// When the arrivals end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of flows, over all templates.
    pub flows: Option<u64>,
    /// Duration of the load.
    pub duration: Option<Nanos>,
    /// Maximum number of open flows: further ones do not begin and are counted as `limit`.
    pub active: Option<u64>,
}

/// The default drain time: leaves time for two retransmissions with the initial timeout of RFC 6298
/// (after 1 s and 3 s).
pub const DRAIN: Nanos = Nanos(5_000_000_000);
/// The default of [`Load::max_delay`]. Long enough that a stall of the machine delays arrivals but
/// drops none: with the earlier value, 20 ms, five of six flows were given up after one stall.
/// Short enough to limit the backlog.
pub const MAX_DELAY: Nanos = Nanos(1_000_000_000);

impl Default for Load {
    fn default() -> Self {
        Self {
            clients: Vec::new(),
            servers: Vec::new(),
            templates: Vec::new(),
            target: None,
            shape: Shape::default(),
            limits: Limits::default(),
            drain: DRAIN,
            max_delay: MAX_DELAY,
            seed: 0,
            scripts: Vec::new(),
        }
    }
}

/// Why a load is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error("template {template:?}: there is no pool {number} of {role}")]
    NoPool { template: String, role: &'static str, number: usize },
    #[error(
        "template {0:?}: its clients and its servers have addresses of different families\n  \
         try pools of one family"
    )]
    Families(String),
    #[error(
        "template {0:?} has a weight, but the load has no target\n  try a total of CPS, active \
         flows or bandwidth, or cps"
    )]
    NoTarget(String),
    #[error("the load has a target, but no template has a weight\n  try weight = 1")]
    NoWeight,
    #[error(
        "template {template:?}: template {first:?} has the same servers at port {port} with a \
         different program for the same external clients, so servers cannot know which one to \
         run\n  try another port or other servers for one of them, or the clients and rates with \
         which the other side begins the flows"
    )]
    SharedByOthers { template: String, first: String, port: u16 },
    #[error(
        "template {template:?}: template {first:?} has the same servers at port {port}; they \
         are distinguished by the clients' ports, and pool {pool:?} has too few\n  try at \
         least {of} ports, or another port of the servers"
    )]
    SharedPorts { template: String, first: String, port: u16, pool: String, of: u16 },
    #[error("template {0:?}: the rate is 0, expected more")]
    NoRate(String),
    #[error(
        "template {template:?}: its client's program begins flows of {found:?}, and there is no \
         such template with clients\n  try the name of another template of this load"
    )]
    NoSuchTemplate { template: String, found: String },
    #[error(
        "template {0:?}: TLS needs TCP, but its programs use UDP\n  try without tls: DTLS is \
         not supported"
    )]
    NoTls(String),
    #[error(
        "template {0:?}: the PROXY protocol needs TCP, but its programs use UDP\n  try without \
         proxy_protocol"
    )]
    NoProxy(String),
    #[error(
        "template {template:?}: its client's program uses {client}, its server's uses {server}"
    )]
    Transports { template: String, client: &'static str, server: &'static str },
    /// A template has an invalid program or tunable.
    #[error("template {template:?}: {text}")]
    Template { template: String, text: String },
    /// A script has an invalid program; conversation numbers are 1-based.
    #[error("conversation {number}: {text}")]
    Conversation { number: usize, text: String },
    #[error("{0}")]
    Network(String),
}

impl LoadError {
    /// The invalid template, if any.
    pub fn template(&self) -> Option<&str> {
        match self {
            Self::NoPool { template, .. }
            | Self::NoSuchTemplate { template, .. }
            | Self::Transports { template, .. }
            | Self::Template { template, .. }
            | Self::SharedByOthers { template, .. }
            | Self::SharedPorts { template, .. }
            | Self::Families(template)
            | Self::NoTarget(template)
            | Self::NoRate(template)
            | Self::NoTls(template)
            | Self::NoProxy(template) => Some(template),
            Self::Pool(_) | Self::NoWeight | Self::Conversation { .. } | Self::Network(_) => None,
        }
    }
}

impl Cps {
    pub fn per_second(flows: u64) -> Self {
        Self { num: flows, den: 1 }
    }

    /// Converts with a precision of six decimals.
    pub fn from_f64(flows: f64) -> Self {
        Self { num: (flows.max(0.0) * 1e6).round() as u64, den: 1_000_000 }
    }

    pub fn value(self) -> f64 {
        self.num as f64 / self.den as f64
    }

    /// The share `part / whole` of the rate.
    pub fn share(self, part: u64, whole: u64) -> Self {
        let (num, den) = (
            u128::from(self.num) * u128::from(part),
            u128::from(self.den) * u128::from(whole.max(1)),
        );
        // Shifted to 63 bits, because the product of a rate and a weight may exceed 64.
        let shift = 128 - num.max(den).leading_zeros();
        let shift = shift.saturating_sub(63);
        Self { num: (num >> shift) as u64, den: ((den >> shift) as u64).max(1) }
    }

    pub(crate) fn gap(self) -> Gap {
        Gap::from_pps(self.num, self.den)
    }
}

impl Spacing {
    /// The arrival times of a load without ramps, counted from its start.
    pub(crate) fn timeline(self, cps: Cps, seed: u64) -> Timeline {
        let law = match self {
            Self::Constant => GapLaw::Constant,
            Self::Poisson => GapLaw::Exponential,
        };
        let mut line = Timeline::new(cps.gap(), law, Pattern::CONTINUOUS, seed, Picos(0));
        if self == Self::Poisson {
            // A Poisson process does not start with an arrival.
            line.advance(0);
        }
        line
    }
}

impl Load {
    /// Number of templates that belong to no script.
    pub fn own_templates(&self) -> usize {
        self.scripts.first().map_or(self.templates.len(), |script| script.first)
    }

    /// The script of a template.
    pub(crate) fn script_of(&self, template: usize) -> Option<usize> {
        self.scripts.iter().rposition(|script| script.first <= template)
    }

    /// Validates the load. Returns its client pools and its server pools.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn check(&self, network: &Network) -> Result<(Vec<Tuples>, Vec<Tuples>), LoadError> {
        network.check().map_err(LoadError::Network)?;
        let (clients, servers) = self.pools()?;
        for t in &self.templates {
            let no_pool =
                |role, number| LoadError::NoPool { template: t.name.clone(), role, number };
            let client_pool =
                clients.get(t.clients).ok_or_else(|| no_pool("clients", t.clients))?;
            let server_pool =
                servers.get(t.servers).ok_or_else(|| no_pool("servers", t.servers))?;
            if client_pool.is_ipv4() != server_pool.is_ipv4() {
                return Err(LoadError::Families(t.name.clone()));
            }
            if t.client.transport != t.server.transport {
                let (client, server) = (name(t.client.transport), name(t.server.transport));
                return Err(LoadError::Transports { template: t.name.clone(), client, server });
            }
            if t.tls.is_some() && t.client.transport == Transport::Udp {
                return Err(LoadError::NoTls(t.name.clone()));
            }
            if let Some(proxy) = &t.proxy {
                if t.client.transport == Transport::Udp {
                    return Err(LoadError::NoProxy(t.name.clone()));
                }
                if let Some(sources) = &proxy.sources
                    && sources.start().is_ipv4() != server_pool.is_ipv4()
                {
                    let text = "the PROXY protocol's source addresses and the servers are of \
                                different families\n  try addresses of the servers' family"
                        .to_owned();
                    return Err(LoadError::Template { template: t.name.clone(), text });
                }
            }
            if t.http.is_some() {
                for program in [&t.client, &t.server] {
                    program.check_over_http2().map_err(|error| LoadError::Template {
                        template: t.name.clone(),
                        text: error.to_string(),
                    })?;
                }
            }
            if let Some(http3) = &t.http3 {
                t.check_http3(http3)
                    .map_err(|text| LoadError::Template { template: t.name.clone(), text })?;
            }
            if t.pair >= MAX_PAIRS {
                let text = format!("pair {} of ports: expected less than {MAX_PAIRS}", t.pair);
                return Err(LoadError::Template { template: t.name.clone(), text });
            }
            self.check_calls(t)?;
            match t.arrival {
                Arrival::Weight { .. } if self.target.is_none() => {
                    return Err(LoadError::NoTarget(t.name.clone()));
                }
                Arrival::Open { cps, .. } if cps.num == 0 => {
                    return Err(LoadError::NoRate(t.name.clone()));
                }
                Arrival::Weight { weight: 0, .. } | Arrival::Closed { users: 0, .. } => {
                    return Err(LoadError::NoRate(t.name.clone()));
                }
                _ => {}
            }
        }
        if self.target.is_some() && self.weights() == 0 {
            return Err(LoadError::NoWeight);
        }
        Ok((clients, servers))
    }

    /// Checks that the templates named by this template's programs exist.
    fn check_calls(&self, of: &Template) -> Result<(), LoadError> {
        let begins = |other: &Template| {
            other.ends.has_clients() && !other.gone && other.arrival != Arrival::None
        };
        let is_there = |name: &str| {
            self.templates.iter().any(|t| t.name == name && t.pair == of.pair && begins(t))
        };
        let mut missing = of.client.begins().filter(|name| !is_there(name));
        match missing.next().filter(|_| of.ends.has_clients() && !of.gone) {
            Some(found) => {
                let (template, found) = (of.name.clone(), found.to_owned());
                Err(LoadError::NoSuchTemplate { template, found })
            }
            None => Ok(()),
        }
    }

    /// Checks that servers can find the template of each flow.
    ///
    /// # Errors
    /// [`LoadError`], also for pools.
    pub fn check_servers(&self) -> Result<(), LoadError> {
        let (clients, _) = self.pools()?;
        Sharing::of(self, &clients).error.map_or(Ok(()), Err)
    }

    /// The tuples of each template's clients: their whole pool, or a share of its ports if servers
    /// need the ports to distinguish templates.
    ///
    /// # Errors
    /// [`LoadError`]: an invalid pool.
    pub fn client_tuples(&self) -> Result<Vec<Tuples>, LoadError> {
        let (clients, _) = self.pools()?;
        let shares = Sharing::of(self, &clients).shares;
        let tuples = |(template, share): (&Template, Share)| {
            let pool = &clients[template.clients];
            pool.share(share.rank, share.of).unwrap_or_else(|| pool.clone())
        };
        Ok(self.templates.iter().zip(shares).map(tuples).collect())
    }

    /// The client pools and the server pools.
    fn pools(&self) -> Result<(Vec<Tuples>, Vec<Tuples>), PoolError> {
        let ready = |pools: &[Pool], salt: u64| -> Result<Vec<_>, PoolError> {
            let with_seed =
                |(i, pool): (u64, &Pool)| Tuples::new(pool, squall_units::mix(self.seed ^ salt, i));
            (0..).zip(pools).map(with_seed).collect()
        };
        // Different salts, because equal pools of clients and servers would otherwise have the same
        // order.
        Ok((ready(&self.clients, 0)?, ready(&self.servers, 1 << 32)?))
    }

    /// The configured flows/s of a template; `None`: unknown in advance, as in a closed loop.
    pub fn asked(&self, template: usize) -> Option<Cps> {
        match (&self.templates.get(template)?.arrival, self.target) {
            (Arrival::Open { cps, .. }, _) => Some(*cps),
            (Arrival::Weight { weight, .. }, Some(Target::Cps(total))) => {
                Some(total.share((*weight).into(), self.weights()))
            }
            _ => None,
        }
    }

    /// Start and end of the longest interval of the run in which the load of no template changes.
    /// `None`: there is none, or it is unknown in advance.
    pub fn plateau(&self) -> Option<(Nanos, Nanos)> {
        let own = || self.templates[..self.own_templates()].iter().filter(|own| !own.gone);
        let begins_later = |template: &Template| template.waits || template.joined;
        // The stages of a template that begins on an event are at times unknown in advance, and
        // would change the load within the interval.
        if own().any(|template| begins_later(template) && template.shape.is_some()) {
            return None;
        }
        // Each distinct shape is compared only once, because most of a load's thousands of
        // templates share their stages.
        let mut shaped: Vec<(&Shape, Nanos)> = Vec::new();
        for template in own() {
            let one = template.shape.as_ref().map(|shape| (shape, template.start));
            shaped.extend(one.filter(|one| !shaped.contains(one)));
        }
        let all = own().any(|t| t.shape.is_none()) || self.own_templates() == 0;
        let of_all = all.then_some((&self.shape, Nanos::ZERO));
        let end = self.limits.duration.unwrap_or(Nanos(u64::MAX));
        Shape::plateau(shaped.into_iter().chain(of_all), end)
    }

    /// [`Load::asked`] during the [`Load::plateau`].
    pub fn rate_in(&self, plateau: Option<(Nanos, Nanos)>, template: usize) -> Option<Cps> {
        let asked = self.asked(template)?;
        let (from, _) = plateau?;
        let of = &self.templates[template];
        match &of.shape {
            Some(shape) => {
                let elapsed = from.0.checked_sub(of.start.0);
                let (part, whole) = elapsed.map_or((0, 1), |at| shape.share(Nanos(at)));
                Some(asked.share(part, whole))
            }
            None => Some(asked),
        }
    }

    /// The load multiplied by `num / den`.
    pub fn times(mut self, num: u64, den: u64) -> Self {
        let whole = |n: u64| {
            // Rounded up, so that a small factor leaves at least one user or flow.
            (u128::from(n) * u128::from(num)).div_ceil(den.max(1).into()).min(u64::MAX.into())
                as u64
        };
        match &mut self.target {
            Some(Target::Cps(cps)) => *cps = cps.share(num, den),
            Some(Target::Active(n) | Target::Bandwidth(n)) => *n = whole(*n),
            None => {}
        }
        for template in &mut self.templates {
            match &mut template.arrival {
                Arrival::Open { cps, .. } => *cps = cps.share(num, den),
                Arrival::Closed { users, .. } => {
                    *users = whole((*users).into()).min(u32::MAX.into()) as u32
                }
                Arrival::Weight { .. } | Arrival::Called | Arrival::None => {}
            }
        }
        self
    }

    /// This load changed to `new`: templates keep their numbers, those missing in `new` are marked
    /// as gone, and those only in `new` are appended. Templates are identified by their names.
    #[must_use]
    pub fn joined(&self, new: &Self) -> Self {
        let mut joined = Self {
            clients: self.clients.clone(),
            servers: self.servers.clone(),
            templates: self.templates.clone(),
            ..new.clone()
        };
        if !self.scripts.is_empty() || !new.scripts.is_empty() {
            let mut joined = new.clone();
            // Equal scripts keep the old pointer, because [`Load::can_become`] compares pointers.
            for (old, new) in self.scripts.iter().zip(&mut joined.scripts) {
                if old == new {
                    new.clone_from(old);
                }
            }
            return joined;
        }
        joined.templates.iter_mut().for_each(|template| template.gone = true);
        for template in &new.templates {
            let template = Template {
                clients: place_of(&mut joined.clients, &new.clients[template.clients]),
                servers: place_of(&mut joined.servers, &new.servers[template.servers]),
                ..template.clone()
            };
            let is_it =
                |(old, of): &(&Template, &mut Template)| !old.gone && of.name == template.name;
            match self.templates.iter().zip(&mut joined.templates).find(is_it) {
                Some((old, of)) => *of = Template { joined: old.joined, ..template },
                None => joined.templates.push(Template { joined: true, ..template }),
            }
        }
        joined
    }

    /// Whether a run of this load can change to `new`. It may differ in rates of new flows, limits
    /// on open flows, drain time and end of the run. Templates may be removed and added:
    /// [`Load::joined`].
    ///
    /// # Errors
    /// The first property that may not change.
    pub fn can_become(&self, new: &Self) -> Result<(), String> {
        if self.templates.len() > new.templates.len() {
            return Err("the number of templates".into());
        }
        for (old, new) in self.templates.iter().zip(&new.templates) {
            old.can_become(new)?;
        }
        if !self.scripts.iter().map(Arc::as_ptr).eq(new.scripts.iter().map(Arc::as_ptr)) {
            return Err("the script".into());
        }
        let kind = |load: &Self| load.target.map(|target| std::mem::discriminant(&target));
        if kind(self) != kind(new) {
            return Err("the kind of target (total CPS, open flows or bandwidth)".into());
        }
        // These determine the number, tuple and due time of each flow (ADR 0030): otherwise a flow
        // would change its identity while it is open.
        let fixed =
            |load: &Self| (load.shape.clone(), load.limits.flows, load.max_delay, load.seed);
        if !new.clients.starts_with(&self.clients)
            || !new.servers.starts_with(&self.servers)
            || fixed(self) != fixed(new)
        {
            return Err("pools, the ramp, the limit of flows, the maximum delay or the seed".into());
        }
        self.can_change_templates(new)
    }

    /// Whether templates may be added and removed.
    fn can_change_templates(&self, new: &Self) -> Result<(), String> {
        let gone = |load: &Self| load.templates.iter().filter(|template| template.gone).count();
        if self.templates.len() == new.templates.len() && gone(self) == gone(new) {
            return Ok(());
        }
        if new.target.is_some() || new.limits.flows.is_some() || !new.scripts.is_empty() {
            return Err("templates of a load with a total, a limit of flows or a script".into());
        }
        // Servers must keep the method that finds a flow's template, because open flows have ports
        // chosen by it.
        for template in &new.templates {
            new.check_calls(template).map_err(|error| error.to_string())?;
        }
        let of = |load: &Self| load.sharing().map_err(|error| error.to_string());
        let (before, after) = (of(self)?, of(new)?);
        for (number, template) in self.templates.iter().enumerate() {
            if !new.templates[number].gone && !before.is_same(&after, number) {
                return Err(format!(
                    "how servers at port {} distinguish the templates there (another template has \
                     the same servers and port as {:?})",
                    template.port, template.name
                ));
            }
        }
        Ok(())
    }

    fn sharing(&self) -> Result<Sharing, PoolError> {
        Ok(Sharing::of(self, &self.pools()?.0))
    }

    /// The sum of weights.
    pub fn weights(&self) -> u64 {
        let weight = |t: &Template| match t.arrival {
            Arrival::Weight { weight, .. } => u64::from(weight),
            _ => 0,
        };
        self.templates.iter().map(weight).sum()
    }
}

impl Template {
    /// Whether this template can change to `new` during a run.
    fn can_become(&self, new: &Self) -> Result<(), String> {
        if self.gone {
            // Numbers of templates are never reused, because the counters of the removed one
            // remain.
            return if new.gone {
                Ok(())
            } else {
                Err(format!("template {:?} (it is gone)", self.name))
            };
        }
        let arrival = match (&self.arrival, &new.arrival) {
            (Arrival::Open { spacing: a, .. }, Arrival::Open { spacing: b, .. })
            | (Arrival::Weight { spacing: a, .. }, Arrival::Weight { spacing: b, .. }) => a == b,
            (Arrival::Closed { think: a, .. }, Arrival::Closed { think: b, .. }) => a == b,
            (Arrival::Called, Arrival::Called) | (Arrival::None, Arrival::None) => true,
            _ => false,
        };
        if !arrival {
            return Err(format!("the kind of arrivals of template {:?}", self.name));
        }
        let shaped = match (&self.shape, &new.shape) {
            (Some(old), Some(new)) => old.is_like(new),
            (old, new) => old == new,
        };
        let as_old = Self {
            arrival: self.arrival.clone(),
            shape: self.shape.clone(),
            gone: self.gone,
            ..new.clone()
        };
        if as_old != *self {
            return Err(format!("template {:?} (other than its rate of flows)", self.name));
        }
        if shaped {
            Ok(())
        } else {
            Err("stages (other than all levels by the same factor)".into())
        }
    }
}

/// The index of `pool`, which is added if it is new.
fn place_of(pools: &mut Vec<Pool>, pool: &Pool) -> usize {
    pools.iter().position(|known| known == pool).unwrap_or_else(|| {
        pools.push(pool.clone());
        pools.len() - 1
    })
}

fn name(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "TCP",
        Transport::Udp => "UDP",
    }
}
