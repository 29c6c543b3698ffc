//! Streams to the routes of a router: one destination for each route.

use std::net::IpAddr;

use squall_profile::{Diagnostic, Located, PacketSource, Profile, Stream};
use squall_program::{Law, Turn, VarSpec};
use squall_report::render::human;
use squall_router::{Prefix, Prefixes, RouteGroup};
use squall_units::suggest;
use squall_wire::Frame;

use crate::PlanRouter;

/// The routes to which a stream goes. Frame k goes to route k mod [`StreamRoutes::len`], so that
/// receivers know the route by the number in the signature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamRoutes {
    pub router: String,
    /// `None`: all groups of the router.
    pub group: Option<String>,
    prefixes: Vec<Prefixes>,
}

impl StreamRoutes {
    pub fn new(router: String, group: Option<String>, prefixes: Vec<Prefixes>) -> Self {
        Self { router, group, prefixes }
    }

    pub fn len(&self) -> u64 {
        self.prefixes.iter().map(Prefixes::len).sum()
    }

    /// Streams have routes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The routes, in order.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.prefixes.iter().flat_map(Prefixes::iter)
    }
}

/// Maximum number of routes of a stream, or of addresses of a pool.
pub(crate) const MOST_ROUTES: u64 = 1 << 22;

/// The routes that a text names, of one IP version, and the host in each.
#[derive(Debug)]
pub(crate) struct Destinations {
    pub routes: StreamRoutes,
    host: u64,
    /// The router's routes that may be part of one of these, in the order of addresses.
    specifics: Vec<Prefix>,
    /// Number of default routes, which are left out.
    defaults: usize,
}

/// Maximum number of more specific routes to pass over in a route.
const MOST_SPECIFICS: usize = 4_096;

/// The routes of `named`, which are those of one IP version: that of `is_ipv6`, or of the first.
/// `None`: it names no routes.
///
/// # Errors
/// The router or the group does not exist, or has no such routes.
pub(crate) fn named(
    named: &Located,
    is_ipv6: Option<bool>,
    profile: &Profile,
    routers: &[PlanRouter],
) -> Result<Option<Destinations>, Diagnostic> {
    let Some((name, host)) = named.routes() else { return Ok(None) };
    let problem = |what: String, hint: &str| {
        let text = format!("{:?}: {what}", named.text);
        Err(Diagnostic::at(named.at, text, vec![hint.into()]))
    };
    let (number, group) = match find(name, profile, routers) {
        Ok(found) => found,
        Err((what, hint)) => return problem(what, &hint),
    };
    let (router, groups) = (&routers[number].name, &routers[number].settings.groups);
    let wanted = |one: &&RouteGroup| group.is_none_or(|group| one.name == group);
    let all = || groups.iter().filter(wanted).flat_map(|one| &one.prefixes);
    let first = all().flat_map(Prefixes::iter).next();
    let Some(is_ipv6) = is_ipv6.or(first.map(|prefix| prefix.address.is_ipv6())) else {
        return problem(format!("router {router:?} announces no routes"), ROUTES);
    };
    // All destinations would be in a default route, so that it has no address of its own.
    let is_wanted = |prefix: &Prefix| prefix.address.is_ipv6() == is_ipv6 && prefix.length > 0;
    let prefixes: Vec<Prefixes> = all().filter_map(|one| only(one, is_wanted)).collect();
    let is_default = |prefix: &Prefix| prefix.address.is_ipv6() == is_ipv6 && prefix.length == 0;
    let defaults = all().filter_map(|one| only(one, is_default)).count();
    let routes = StreamRoutes::new(router.clone(), group.map(str::to_owned), prefixes);
    let version = if is_ipv6 { "IPv6" } else { "IPv4" };
    match routes.len() {
        0 if defaults > 0 => {
            problem(format!("the default route of {version} is no destination"), ROUTES)
        }
        0 => problem(format!("there are no routes of {version}"), ROUTES),
        1..=MOST_ROUTES => {
            let specifics = specifics(groups, &routes, is_ipv6);
            Ok(Some(Destinations { routes, host, specifics, defaults }))
        }
        more => problem(
            format!("there are {more} routes; a stream or a pool takes at most {MOST_ROUTES}"),
            "try a group of the router",
        ),
    }
}

/// The router that `name` is, `ROUTER` or `ROUTER/GROUP`, as an index into `routers`, and the name
/// of its group.
///
/// # Errors
/// There is no such router or group; with a hint.
pub(crate) fn find<'a>(
    name: &'a str,
    profile: &Profile,
    routers: &[PlanRouter],
) -> Result<(usize, Option<&'a str>), (String, String)> {
    let known = |name: &str| profile.routers.iter().any(|router| router.name == name);
    // Names may have slashes, too.
    let (router, group) = match name.rsplit_once('/') {
        Some((router, group)) if !known(name) => (router, Some(group)),
        _ => (name, None),
    };
    if !known(router) {
        let names = profile.routers.iter().map(|router| router.name.as_str());
        return Err((format!("there is no router {router:?}"), suggest(router, names)));
    }
    let Some(number) = routers.iter().position(|planned| planned.name == router) else {
        return Err((format!("the routes of {router:?} are not known"), "see its error".into()));
    };
    let names = || routers[number].settings.groups.iter().map(|group| group.name.as_str());
    match group.filter(|group| names().all(|name| name != *group)) {
        Some(group) => {
            let text = format!("router {router:?} has no group {group:?}");
            Err((text, suggest(group, names())))
        }
        None => Ok((number, group)),
    }
}

/// The routes that are wanted; `None`: none. All routes of a range are, or none.
fn only(prefixes: &Prefixes, is_wanted: impl Fn(&Prefix) -> bool) -> Option<Prefixes> {
    match prefixes {
        Prefixes::Range(range) => {
            let first = Prefix { address: range.first, length: range.length };
            is_wanted(&first).then_some(Prefixes::Range(*range))
        }
        Prefixes::List(list) if list.iter().all(&is_wanted) => Some(prefixes.clone()),
        Prefixes::List(_) | Prefixes::Mrt(_) => {
            let list: Vec<Prefix> = prefixes.iter().filter(is_wanted).collect();
            (!list.is_empty()).then(|| Prefixes::List(list.into()))
        }
    }
}

/// The routes of `groups` that may be part of one of `routes`, in the order of addresses.
fn specifics(groups: &[RouteGroup], routes: &StreamRoutes, is_ipv6: bool) -> Vec<Prefix> {
    let shortest = |one: &Prefixes| match one {
        Prefixes::Range(range) => Some(range.length),
        Prefixes::List(_) | Prefixes::Mrt(_) => one.iter().map(|prefix| prefix.length).min(),
    };
    let shortest = routes.prefixes.iter().filter_map(shortest).min().unwrap_or(0);
    let is_specific =
        |prefix: &Prefix| prefix.address.is_ipv6() == is_ipv6 && prefix.length > shortest;
    let all = groups.iter().flat_map(|group| &group.prefixes);
    let mut found = Vec::new();
    all.filter_map(|one| only(one, is_specific)).for_each(|one| found.extend(one.iter()));
    found.sort_unstable();
    found
}

impl Destinations {
    /// The address in each route, and notes.
    ///
    /// # Errors
    /// A route has no such host.
    pub fn addresses(&self, named: &Located) -> Result<(Vec<IpAddr>, Vec<String>), Diagnostic> {
        let mut covered = 0;
        let address = |prefix: Prefix| {
            let found = self.address(prefix).ok_or_else(|| {
                let text = format!("{:?}: {prefix} has no host {}", named.text, self.host);
                Diagnostic::at(named.at, text, vec!["try without #, for the first host".into()])
            });
            found.map(|(address, is_covered)| {
                covered += u64::from(is_covered);
                address
            })
        };
        let addresses: Result<Vec<_>, _> = self.routes.prefixes().map(address).collect();
        Ok((addresses?, self.notes(named, covered)))
    }

    /// The address in `prefix`, and whether it is part of a more specific route, too. The first
    /// host gives way to the next one that is not.
    fn address(&self, prefix: Prefix) -> Option<(IpAddr, bool)> {
        let host = prefix.host(self.host)?;
        let mut address = host;
        let mut from = prefix.address;
        for _ in 0..MOST_SPECIFICS {
            let rest = &self.specifics[self.specifics.partition_point(|one| one.address < from)..];
            let mut begun = rest.iter().take_while(|one| one.address <= address);
            // The first one is the shortest: its parts come later.
            let has = |one: &&Prefix| one.length > prefix.length && one.contains(address);
            let Some(specific) = begun.find(has) else { return Some((address, false)) };
            let next = prefix.host_after(*specific).filter(|_| self.host == 1);
            let Some(next) = next else { break };
            (address, from) = (next, next);
        }
        Some((host, true))
    }

    fn notes(&self, named: &Located, covered: u64) -> Vec<String> {
        let text = &named.text;
        let defaults = (self.defaults > 0)
            .then(|| format!("{text:?}: the default route is no destination, and is left out"));
        let covered = (covered > 0).then(|| {
            let routes = human::counted(covered, "route");
            format!(
                "{text:?}: the addresses of {routes} are part of more specific ones, whose loss \
                 and convergence their frames show"
            )
        });
        defaults.into_iter().chain(covered).collect()
    }

    /// The addresses as values of a field, and notes.
    fn law(&self, named: &Located) -> Result<(Law, Vec<String>), Diagnostic> {
        let bits = |address| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        // A range needs no list.
        if let ([Prefixes::Range(range)], []) = (&self.routes.prefixes[..], &self.specifics[..]) {
            let first = Prefix { address: range.first, length: range.length };
            let width = if range.first.is_ipv6() { 128 } else { 32 };
            if let Some(first) = first.host(self.host).filter(|_| range.length > 0) {
                let step = 1i128.checked_shl(width - u32::from(range.length)).unwrap_or(0);
                let count = range.count.into();
                let law = Law::Step { first: bits(first), step, count, start: 0 };
                return Ok((law, self.notes(named, 0)));
            }
        }
        let (addresses, notes) = self.addresses(named)?;
        let values = addresses.into_iter().map(bits).collect();
        Ok((Law::List { values, start: 0 }, notes))
    }
}

/// The routes to which a stream goes.
pub(crate) struct ToRoutes {
    pub routes: StreamRoutes,
    /// The variable that writes their addresses.
    pub var: VarSpec,
    pub notes: Vec<String>,
}

/// The routes to which a stream goes. `vars` are the variables of the stream's field programs and
/// hosts.
///
/// # Errors
/// Errors of [`named`]; the frame has no such address, or something else sets it.
pub(crate) fn of_stream(
    stream: &Stream,
    profile: &Profile,
    routers: &[PlanRouter],
    frame: &Frame,
    vars: &[VarSpec],
) -> Result<Option<ToRoutes>, Diagnostic> {
    let Some(located) = stream.dst.as_ref().filter(|dst| dst.routes().is_some()) else {
        return Ok(None);
    };
    let problem = |at, what: String, hint: &str| {
        let text = format!("stream {:?}: {what}", stream.name);
        Err(Diagnostic::at(at, text, vec![hint.into()]))
    };
    let mut layers = frame.layers.iter().map(|layer| layer.header.name);
    let Some(layer) = layers.find(|name| ["ipv4", "ipv6"].contains(name)) else {
        let what = format!("{} has no IP address for routes", frame.names());
        return problem(stream.packet_at, what, "try eth/ipv4/udp");
    };
    let Some(to) = named(located, Some(layer == "ipv6"), profile, routers)? else {
        return Ok(None);
    };
    let field = format!("{layer}.dst");
    if let PacketSource::Layers(packet) = &stream.packet
        && let Some(given) = packet.layers.iter().find(|given| given.header.name == layer)
        && given.sets_field("dst")
    {
        let what = format!("the packet sets {field}, which dst = \"routes:NAME\" sets, too");
        return problem(stream.packet_at, what, "try without one of them");
    }
    let place = frame.field(&field).map_err(|error| {
        Diagnostic::at(stream.packet_at, format!("stream {:?}: {error}", stream.name), vec![])
    })?;
    let written =
        |var: &VarSpec| var.bit < place.bit + place.bits && place.bit < var.bit + var.bits;
    if let Some((vary, _)) = stream.vary.iter().zip(vars).find(|(_, var)| written(var)) {
        let what = format!("a field program writes {field}, which routes set");
        return problem(vary.at, what, "try without this field program");
    }
    let (law, notes) = to.law(located)?;
    let (bit, bits) = (place.bit, place.bits);
    let var = VarSpec { bit, bits, law, turn: Turn::default(), every: 1, phase: 0 };
    Ok(Some(ToRoutes { routes: to.routes, var, notes }))
}

const ROUTES: &str = r#"try routes = "198.51.100.0/24" in [[router]]"#;
