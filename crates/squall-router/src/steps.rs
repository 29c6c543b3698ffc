//! Steps of a router: their times, their changes, and the calls to its daemon that carry them out.
//! Live orders are steps that are due at once.

use std::{
    collections::{BTreeSet, HashSet, VecDeque},
    fmt::{self, Write as _},
    net::IpAddr,
};

use squall_units::Nanos;

use crate::{Daemon, Flap, Prefix, ProtocolState, RouteGroup, RouterSettings, bird, frr, igp};

/// A change of a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouterOrder {
    Withdraw(GroupPart),
    Announce(GroupPart),
    /// Sessions; `None`: all of them. `message` is for the neighbor (RFC 9003).
    Down {
        neighbor: Option<IpAddr>,
        message: String,
    },
    Up {
        neighbor: Option<IpAddr>,
    },
    /// The daemon.
    Restart,
    /// Routes of the neighbors (RFC 2918).
    Refresh {
        neighbor: Option<IpAddr>,
    },
    /// The link drops all frames of the router, or no longer.
    Silent,
    Talk,
    /// Ends sessions with any NOTIFICATION (RFC 4271 section 4.5). For native routers.
    Notify {
        neighbor: Option<IpAddr>,
        code: u8,
        subcode: u8,
        data: Vec<u8>,
    },
}

/// Routes of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupPart {
    /// `None`: all groups.
    pub group: Option<String>,
    /// The first routes that are announced, or withdrawn; `None`: all.
    pub count: Option<u64>,
}

/// An order, and the times at which it is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Time after the start of the run.
    pub at: Nanos,
    pub order: RouterOrder,
    /// Time after which the reverse follows.
    pub duration: Option<Nanos>,
    /// Interval of repetitions, and how often it is carried out in all; `None`: until the end.
    pub every: Option<Nanos>,
    pub times: Option<u64>,
}

impl RouterOrder {
    /// The word of profiles for it.
    pub fn action(&self) -> &'static str {
        match self {
            Self::Withdraw(_) => "withdraw",
            Self::Announce(_) => "announce",
            Self::Down { .. } => "down",
            Self::Up { .. } => "up",
            Self::Restart => "restart",
            Self::Refresh { .. } => "refresh",
            Self::Silent => "silent",
            Self::Talk => "talk",
            Self::Notify { .. } => "notify",
        }
    }

    pub fn group(&self) -> Option<&str> {
        match self {
            Self::Withdraw(part) | Self::Announce(part) => part.group.as_deref(),
            _ => None,
        }
    }

    pub fn neighbor(&self) -> Option<IpAddr> {
        match self {
            Self::Down { neighbor, .. }
            | Self::Up { neighbor }
            | Self::Refresh { neighbor }
            | Self::Notify { neighbor, .. } => *neighbor,
            _ => None,
        }
    }

    /// The order that takes it back, if there is one. `routes`: how many routes it has changed.
    fn reverse(&self, routes: u64) -> Option<Self> {
        Some(match self {
            Self::Withdraw(part) => Self::Announce(GroupPart {
                count: part.count.map(|_| routes),
                group: part.group.clone(),
            }),
            Self::Down { neighbor, .. } | Self::Notify { neighbor, .. } => {
                Self::Up { neighbor: *neighbor }
            }
            Self::Silent => Self::Talk,
            _ => return None,
        })
    }
}

/// Steps that are still to come.
#[derive(Debug, Default)]
pub struct Schedule(Vec<Waiting>);

#[derive(Debug)]
struct Waiting {
    due: Due,
    /// Interval, and the repetitions that follow; `None`: without end.
    every: Option<Nanos>,
    left: Option<u64>,
}

/// A step that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Time after the start of the run.
    pub at: Nanos,
    pub order: RouterOrder,
    /// Time after which the reverse follows.
    pub duration: Option<Nanos>,
    /// It is a live order, not a step of the profile.
    pub is_live: bool,
}

impl Schedule {
    pub fn new(steps: &[Step]) -> Self {
        let waiting = |step: &Step| Waiting {
            due: Due {
                at: step.at,
                order: step.order.clone(),
                duration: step.duration,
                is_live: false,
            },
            every: step.every,
            left: match (step.every, step.times) {
                (None, _) => Some(0),
                (Some(_), times) => times.map(|times| times.saturating_sub(1)),
            },
        };
        Self(steps.iter().map(waiting).collect())
    }

    /// Time of the earliest step.
    pub fn next(&self) -> Option<Nanos> {
        self.0.iter().map(|waiting| waiting.due.at).min()
    }

    /// The earliest step.
    pub fn first(&self) -> Option<&Due> {
        self.0.iter().map(|waiting| &waiting.due).min_by_key(|due| due.at)
    }

    /// The earliest step, if it is due at `now`. Steps of the same time come in the order of the
    /// profile.
    pub fn take(&mut self, now: Nanos) -> Option<Due> {
        let (number, _) = self.0.iter().enumerate().min_by_key(|(_, waiting)| waiting.due.at)?;
        let first = self.0.get_mut(number).filter(|waiting| waiting.due.at <= now)?;
        let due = first.due.clone();
        match first.every.filter(|_| first.left != Some(0)) {
            None => _ = self.0.remove(number),
            Some(every) => {
                first.due.at = later(first.due.at, every);
                first.left = first.left.map(|left| left - 1);
            }
        }
        Some(due)
    }

    /// Adds a live order.
    pub fn order(&mut self, at: Nanos, order: RouterOrder, duration: Option<Nanos>) {
        self.once(Due { at, order, duration, is_live: true });
    }

    /// Adds the reverse of a step that has changed `routes` routes, if it has one and a duration.
    pub fn reverse(&mut self, of: &Due, routes: u64) {
        if let (Some(duration), Some(order)) = (of.duration, of.order.reverse(routes)) {
            let at = later(of.at, duration);
            self.once(Due { at, order, duration: None, is_live: of.is_live });
        }
    }

    fn once(&mut self, due: Due) {
        self.0.push(Waiting { due, every: None, left: Some(0) });
    }
}

/// A time after `at`, at most the last one that there is.
fn later(at: Nanos, after: Nanos) -> Nanos {
    Nanos(at.0.saturating_add(after.0))
}

/// A call to a daemon or to what surrounds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonCall {
    /// A command for its control socket.
    Control(String),
    /// Commands for the vty socket of a process of FRR.
    Vty(frr::Process, Vec<String>),
    /// Lines for `ip -batch`, in the router's namespace.
    Kernel(String),
    /// The daemon ends by itself, and is started again.
    Restart,
    /// The link passes frames, or drops them.
    Link(bool),
}

/// A change of the routes of a router.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteChanges {
    /// Numbers of groups of which all routes are withdrawn (true) or announced.
    pub wholes: Vec<(usize, bool)>,
    /// Routes of other groups, in order.
    pub moves: Vec<RouteMove>,
    /// Number of routes that change.
    pub routes: u64,
}

/// A single route is withdrawn, or announced again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteMove {
    /// Number of its group.
    pub group: usize,
    pub prefix: Prefix,
    pub withdraw: bool,
}

impl RouteMove {
    /// Writes the line for `ip -batch`. If two ranges of a group have the same prefix, the second
    /// replaces the first.
    fn write(self, table: u32, lines: &mut String) {
        let (prefix, metric) = (self.prefix, bird::metric(self.group));
        let word = if self.withdraw { "del" } else { "replace" };
        _ = writeln!(lines, "route {word} blackhole {prefix} table {table} metric {metric}");
    }
}

/// Lines for `ip -batch`. `table`: the kernel's table that `daemon` reads.
fn kernel_lines(daemon: Daemon, moves: impl IntoIterator<Item = RouteMove>) -> String {
    let table = if daemon == Daemon::Frr { frr::TABLE } else { bird::TABLE };
    let mut lines = String::new();
    moves.into_iter().for_each(|one| one.write(table, &mut lines));
    lines
}

/// The calls and effects of an order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub calls: Vec<DaemonCall>,
    /// Routes that change.
    pub routes: u64,
    /// Names of the protocols whose sessions may end by it.
    pub ends: Vec<String>,
}

/// Why an order cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderError {
    NoRoutes,
    UnknownGroup {
        name: String,
        known: Vec<String>,
    },
    /// Some of the routes of a group that is in the daemon's configuration.
    NotSingle {
        group: String,
    },
    UnknownNeighbor {
        address: IpAddr,
        known: Vec<String>,
    },
    NoSessions,
    OwnConfiguration {
        action: &'static str,
    },
    /// Daemons send only their own NOTIFICATIONs.
    NotNative {
        action: &'static str,
    },
    /// FRR is not restarted.
    NotBird {
        action: &'static str,
    },
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoutes => f.write_str(
                "the router has no routes\n  try routes = \"198.51.100.0/24\" in its table",
            ),
            Self::UnknownGroup { name, known } => {
                let hint = squall_units::suggest(name, known.iter().map(String::as_str));
                write!(f, "there is no group {name:?}\n  {hint}")
            }
            Self::NotSingle { group } => write!(
                f,
                "group {group:?} can be withdrawn and announced only as a whole\n  try \
                 single = true in its table, or no count"
            ),
            Self::UnknownNeighbor { address, known } if known.is_empty() => {
                write!(f, "there is no neighbor {address}: the router has none")
            }
            Self::UnknownNeighbor { address, known } => {
                write!(f, "there is no neighbor {address}\n  known: {}", known.join(", "))
            }
            Self::NoSessions => f.write_str("the router has no sessions that this could change"),
            Self::OwnConfiguration { action } => write!(
                f,
                "{action} needs a configuration that Squall makes\n  try down, up, refresh or \
                 silent, or protocols and routes in place of config"
            ),
            Self::NotNative { action } => write!(
                f,
                "{action} needs a router that is no daemon\n  try daemon = \"native\" in its table"
            ),
            Self::NotBird { action } => write!(
                f,
                "{action} needs BIRD\n  try down and up, or daemon = \"bird\" in its table"
            ),
        }
    }
}

impl std::error::Error for OrderError {}

/// Changes by steps, orders and flaps so far: routes that are withdrawn, and sessions that are
/// down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steered {
    groups: Vec<GroupState>,
    /// Protocols that are disabled.
    down: BTreeSet<String>,
    /// A prefix is in the kernel's table more than once. The daemon then has fewer routes than the
    /// table.
    repeats: bool,
    /// It decides which table of the kernel has the routes.
    daemon: Daemon,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum GroupState {
    /// Static protocols of the daemon.
    Whole {
        withdrawn: bool,
    },
    Single(Singles),
}

/// The routes of a group in the kernel's table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Singles {
    /// Number of the group.
    group: usize,
    prefixes: Vec<Prefix>,
    /// For each route, whether it is withdrawn by an order, and by a flap.
    withdrawn: Vec<bool>,
    flapped: Vec<bool>,
    /// Number of routes in the table.
    present: u64,
    flapping: Option<Flapping>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Flapping {
    flap: Flap,
    /// Time of the next withdrawal, and the route from which on it looks for one.
    next: Nanos,
    route: usize,
    /// Routes that come back, with their times, in order.
    back: VecDeque<(Nanos, usize)>,
    /// Withdrawals so far.
    count: u64,
    /// Withdrawals and announcements that came late.
    late: u64,
}

/// Lateness of a flap that is counted.
const LATE: Nanos = Nanos(100_000_000);

/// The state of the routes of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupCount {
    pub name: String,
    pub routes: u64,
    /// Routes that are withdrawn now, and withdrawals by flaps so far.
    pub withdrawn: u64,
    pub flaps: u64,
    /// Withdrawals and announcements by flaps that came over 100 ms late.
    pub late_flaps: u64,
}

impl Steered {
    pub fn new(settings: &RouterSettings) -> Self {
        let group = |(number, group): (usize, &RouteGroup)| match group.is_in_kernel() {
            true => GroupState::Single(Singles::new(number, group)),
            false => GroupState::Whole { withdrawn: false },
        };
        let groups: Vec<_> = settings.groups.iter().enumerate().map(group).collect();
        let mut seen = HashSet::new();
        let all = groups.iter().filter_map(GroupState::single);
        let repeats = all.flat_map(|one| &one.prefixes).any(|prefix| !seen.insert(*prefix));
        Self { groups, down: BTreeSet::new(), repeats, daemon: settings.daemon }
    }

    /// Lines for `ip -batch` that put the routes into the kernel's table.
    pub fn initial(&self) -> String {
        let singles = self.groups.iter().filter_map(GroupState::single);
        let moves = singles
            .flat_map(|one| (0..one.prefixes.len()).map(move |route| one.route_move(route, false)));
        kernel_lines(self.daemon, moves)
    }

    /// Whether the router has routes in the kernel's table.
    pub fn has_singles(&self) -> bool {
        self.groups.iter().any(|group| group.single().is_some())
    }

    /// Routes that the daemon should have from the kernel's table; `None`: its number is not known,
    /// because a prefix is there more than once.
    pub fn kernel_routes(&self) -> Option<u64> {
        let all = self.groups.iter().filter_map(GroupState::single);
        (!self.repeats).then(|| all.map(|one| one.present).sum())
    }

    pub fn counts(&self, settings: &RouterSettings) -> Vec<GroupCount> {
        let count = |(group, state): (&RouteGroup, &GroupState)| {
            let routes = group.len();
            let (withdrawn, flaps, late_flaps) = match state {
                GroupState::Whole { withdrawn } => (if *withdrawn { routes } else { 0 }, 0, 0),
                GroupState::Single(one) => {
                    let flapping = one.flapping.as_ref();
                    let (flaps, late) = flapping.map_or((0, 0), |of| (of.count, of.late));
                    (routes.saturating_sub(one.present), flaps, late)
                }
            };
            GroupCount { name: group.name.clone(), routes, withdrawn, flaps, late_flaps }
        };
        settings.groups.iter().zip(&self.groups).map(count).collect()
    }

    /// The calls that carry out `order`. `protocols` are those of the daemon, by which the sessions
    /// of a configuration of the user's own are known.
    ///
    /// # Errors
    /// Names that the router does not have, and orders that its groups or its configuration cannot
    /// carry out. Nothing changes then.
    pub fn calls(
        &mut self,
        settings: &RouterSettings,
        protocols: &[ProtocolState],
        order: &RouterOrder,
    ) -> Result<Calls, OrderError> {
        check(settings, order)?;
        let mut calls = Calls::default();
        match order {
            RouterOrder::Withdraw(part) => {
                calls.change(settings, self.changes(settings, part, true));
            }
            RouterOrder::Announce(part) => {
                calls.change(settings, self.changes(settings, part, false));
            }
            RouterOrder::Down { neighbor, message } => {
                let names = sessions(settings, protocols, *neighbor)?;
                for name in &names {
                    let of_frr = vty(settings, || frr::down(settings, name, message));
                    let call = || DaemonCall::Control(disable(name, message));
                    calls.calls.push(of_frr.unwrap_or_else(call));
                }
                self.down.extend(names.iter().cloned());
                calls.ends = names;
            }
            RouterOrder::Up { neighbor } => {
                for name in sessions(settings, protocols, *neighbor)? {
                    let of_frr = vty(settings, || frr::up(settings, &name));
                    let call = || DaemonCall::Control(format!("enable {name}\n"));
                    calls.calls.push(of_frr.unwrap_or_else(call));
                    self.down.remove(&name);
                }
            }
            RouterOrder::Refresh { neighbor } => {
                let is_bgp = |name: &String| match &settings.configuration {
                    Some(_) => protocols.iter().any(|one| one.name == *name && one.kind == "BGP"),
                    None => name.starts_with("bgp"),
                };
                let names = sessions(settings, protocols, *neighbor)?.into_iter().filter(is_bgp);
                let call = |name: String| {
                    let of_frr = vty(settings, || frr::refresh(settings, &name));
                    of_frr.unwrap_or_else(|| DaemonCall::Control(format!("reload in {name}\n")))
                };
                calls.calls = names.map(call).collect();
                if calls.calls.is_empty() {
                    return Err(OrderError::NoSessions);
                }
            }
            RouterOrder::Restart => {
                calls.calls.push(DaemonCall::Restart);
                // The daemon's file has all routes and sessions.
                for (number, group) in settings.groups.iter().enumerate() {
                    if let Some(GroupState::Whole { withdrawn: true }) = self.groups.get(number) {
                        calls.calls.extend(whole(settings, number, group, true));
                    }
                }
                let disabled = self.down.iter().map(|name| DaemonCall::Control(disable(name, "")));
                calls.calls.extend(disabled);
                calls.ends = protocols.iter().map(|one| one.name.clone()).collect();
            }
            RouterOrder::Silent => {
                calls.calls.push(DaemonCall::Link(false));
                calls.ends = protocols.iter().map(|one| one.name.clone()).collect();
            }
            RouterOrder::Talk => calls.calls.push(DaemonCall::Link(true)),
            RouterOrder::Notify { .. } => {
                return Err(OrderError::NotNative { action: order.action() });
            }
        }
        Ok(calls)
    }

    /// Withdraws or announces routes. Routes that are already so do not change.
    pub fn changes(
        &mut self,
        settings: &RouterSettings,
        part: &GroupPart,
        withdraw: bool,
    ) -> RouteChanges {
        let mut changes = RouteChanges::default();
        let groups = settings.groups.iter().zip(&mut self.groups).enumerate();
        for (number, (group, state)) in groups {
            if part.group.as_ref().is_some_and(|name| *name != group.name) {
                continue;
            }
            match state {
                GroupState::Whole { withdrawn } => {
                    if *withdrawn != withdraw {
                        *withdrawn = withdraw;
                        changes.routes += group.len();
                        changes.wholes.push((number, withdraw));
                    }
                }
                GroupState::Single(one) => {
                    let left = part.count.map(|count| count.saturating_sub(changes.routes));
                    let most = left.unwrap_or(u64::MAX);
                    changes.routes += one.change(most, withdraw, &mut changes.moves);
                }
            }
        }
        changes
    }

    /// Time of the next flap.
    pub fn next_flap(&self) -> Option<Nanos> {
        let next = |one: &Singles| {
            let flapping = one.flapping.as_ref()?;
            let back = flapping.back.front().map_or(flapping.next, |(at, _)| *at);
            Some(flapping.next.min(back))
        };
        self.groups.iter().filter_map(GroupState::single).filter_map(next).min()
    }

    /// Moves all flaps that are still to come, because they had to wait for this time.
    pub fn delay_flaps(&mut self, by: Nanos) {
        for group in &mut self.groups {
            if let GroupState::Single(Singles { flapping: Some(flapping), .. }) = group {
                flapping.next = later(flapping.next, by);
                flapping.back.iter_mut().for_each(|(at, _)| *at = later(*at, by));
            }
        }
    }

    /// No route flaps any more.
    pub fn end_flaps(&mut self) {
        for group in &mut self.groups {
            if let GroupState::Single(Singles { flapping: Some(flapping), .. }) = group {
                flapping.next = Nanos(u64::MAX);
                flapping.back.clear();
            }
        }
    }

    /// Lines for `ip -batch` for the flaps that are due at `now`.
    pub fn flap(&mut self, now: Nanos) -> String {
        kernel_lines(self.daemon, self.flap_moves(now))
    }

    /// The flaps that are due at `now`.
    pub fn flap_moves(&mut self, now: Nanos) -> Vec<RouteMove> {
        let mut moves = Vec::new();
        for group in &mut self.groups {
            if let GroupState::Single(one) = group {
                one.flap(now, &mut moves);
            }
        }
        moves
    }
}

impl GroupState {
    fn single(&self) -> Option<&Singles> {
        match self {
            Self::Whole { .. } => None,
            Self::Single(one) => Some(one),
        }
    }
}

impl Singles {
    fn new(number: usize, group: &RouteGroup) -> Self {
        let prefixes: Vec<_> = group.prefixes().collect();
        let flapping = |flap: Flap| Flapping {
            flap,
            next: flap.gap,
            route: 0,
            back: VecDeque::new(),
            count: 0,
            late: 0,
        };
        Self {
            group: number,
            withdrawn: vec![false; prefixes.len()],
            flapped: vec![false; prefixes.len()],
            present: prefixes.len() as u64,
            flapping: group.flap.map(flapping),
            prefixes,
        }
    }

    /// Withdraws or announces up to `most` routes. Returns their number.
    fn change(&mut self, most: u64, withdraw: bool, moves: &mut Vec<RouteMove>) -> u64 {
        let mut changed = 0;
        for route in 0..self.prefixes.len() {
            if changed == most {
                break;
            }
            if self.withdrawn[route] != withdraw {
                self.withdrawn[route] = withdraw;
                changed += 1;
                // A route that is down by a flap comes back with it.
                if !self.flapped[route] {
                    moves.push(self.move_route(route, withdraw));
                }
            }
        }
        changed
    }

    fn flap(&mut self, now: Nanos, moves: &mut Vec<RouteMove>) {
        let Some(mut flapping) = self.flapping.take() else { return };
        loop {
            let back = flapping.back.front().filter(|(at, _)| *at <= now && *at <= flapping.next);
            let is_late = |due: Nanos| u64::from(now.0.saturating_sub(due.0) > LATE.0);
            if let Some((at, route)) = back.copied() {
                flapping.back.pop_front();
                self.flapped[route] = false;
                if !self.withdrawn[route] {
                    flapping.late += is_late(at);
                    moves.push(self.move_route(route, false));
                }
                continue;
            }
            if flapping.next > now {
                break;
            }
            let len = self.prefixes.len();
            let from = flapping.route;
            let is_up = |route: &usize| !self.withdrawn[*route] && !self.flapped[*route];
            let mut routes = (0..len).map(|more| (from + more) % len);
            // If none is up, a search would cost the size of the group.
            let found = if self.present > 0 { routes.find(is_up) } else { None };
            if let Some(route) = found {
                self.flapped[route] = true;
                moves.push(self.move_route(route, true));
                flapping.back.push_back((later(flapping.next, flapping.flap.down), route));
                flapping.route = (route + 1) % len;
                flapping.count += 1;
                flapping.late += is_late(flapping.next);
            }
            flapping.next = later(flapping.next, Nanos(flapping.flap.gap.0.max(1)));
        }
        self.flapping = Some(flapping);
    }

    /// Withdraws a route, or announces it again.
    fn move_route(&mut self, route: usize, withdraw: bool) -> RouteMove {
        if withdraw {
            self.present -= 1;
        } else {
            self.present += 1;
        }
        self.route_move(route, withdraw)
    }

    fn route_move(&self, route: usize, withdraw: bool) -> RouteMove {
        RouteMove { group: self.group, prefix: self.prefixes[route], withdraw }
    }
}

impl Calls {
    /// Adds the calls for a change of routes.
    fn change(&mut self, settings: &RouterSettings, changes: RouteChanges) {
        for (number, withdraw) in changes.wholes {
            self.calls.extend(whole(settings, number, &settings.groups[number], withdraw));
        }
        if !changes.moves.is_empty() {
            let lines = kernel_lines(settings.daemon, changes.moves);
            self.calls.push(DaemonCall::Kernel(lines));
        }
        self.routes = changes.routes;
    }
}

/// Checks that a router with `settings` has what `order` names.
///
/// # Errors
/// As for [`Steered::calls`].
pub fn check(settings: &RouterSettings, order: &RouterOrder) -> Result<(), OrderError> {
    let own = settings.configuration.is_some();
    match order {
        RouterOrder::Withdraw(part) | RouterOrder::Announce(part) => {
            if own {
                return Err(OrderError::OwnConfiguration { action: order.action() });
            }
            if settings.groups.is_empty() {
                return Err(OrderError::NoRoutes);
            }
            let is_meant =
                |group: &&RouteGroup| part.group.as_ref().is_none_or(|name| *name == group.name);
            let mut meant = settings.groups.iter().filter(is_meant).peekable();
            if let (None, Some(name)) = (meant.peek(), &part.group) {
                let known = settings.groups.iter().map(|group| group.name.clone()).collect();
                return Err(OrderError::UnknownGroup { name: name.clone(), known });
            }
            match meant.find(|group| part.count.is_some() && !group.is_in_kernel()) {
                Some(group) => Err(OrderError::NotSingle { group: group.name.clone() }),
                None => Ok(()),
            }
        }
        RouterOrder::Restart if own => Err(OrderError::OwnConfiguration { action: order.action() }),
        RouterOrder::Restart if settings.daemon == Daemon::Frr => {
            Err(OrderError::NotBird { action: order.action() })
        }
        RouterOrder::Notify { .. } if settings.daemon.native().is_none() => {
            Err(OrderError::NotNative { action: order.action() })
        }
        _ if own => Ok(()),
        // Only BGP has a message for it.
        RouterOrder::Refresh { .. } if settings.bgp.is_none() => Err(OrderError::NoSessions),
        RouterOrder::Down { neighbor, .. }
        | RouterOrder::Up { neighbor }
        | RouterOrder::Refresh { neighbor }
        | RouterOrder::Notify { neighbor, .. } => sessions(settings, &[], *neighbor).map(|_| ()),
        RouterOrder::Restart | RouterOrder::Silent | RouterOrder::Talk => Ok(()),
    }
}

/// Names of the protocols that have sessions: with `neighbor`, or all.
fn sessions(
    settings: &RouterSettings,
    protocols: &[ProtocolState],
    neighbor: Option<IpAddr>,
) -> Result<Vec<String>, OrderError> {
    let found = if settings.configuration.is_some() {
        let is_meant = |one: &&ProtocolState| match neighbor {
            // With an interface, BIRD shows fe80::2%eth0.
            Some(address) => {
                let text = one.neighbor.split('%').next().unwrap_or_default();
                text.parse::<IpAddr>() == Ok(address)
            }
            None => one.kind != "BFD",
        };
        protocols.iter().filter(is_meant).map(|one| one.name.clone()).collect::<Vec<_>>()
    } else {
        let bgp = settings.bgp.iter().flat_map(|bgp| bgp.neighbors.iter().enumerate());
        let bgp = bgp.filter(|(_, one)| neighbor.is_none_or(|address| one.address == address));
        let others = [
            ("ospf4", settings.ospf.is_some()),
            ("ospf6", settings.ospf3.is_some()),
            ("isis1", settings.isis.is_some()),
            ("rip4", settings.rip),
            ("rip6", settings.ripng),
        ];
        let others = others.into_iter().filter(|(_, speaks)| *speaks && neighbor.is_none());
        let others = others.map(|(name, _)| name.to_owned());
        bgp.map(|(number, _)| format!("bgp{}", number + 1)).chain(others).collect()
    };
    match neighbor {
        Some(address) if found.is_empty() => {
            let of_settings = settings.bgp.iter().flat_map(|bgp| &bgp.neighbors);
            let of_daemon = protocols.iter().map(|one| one.neighbor.clone());
            let known = of_settings.map(|one| one.address.to_string()).chain(of_daemon);
            let known = known.filter(|text| !text.is_empty()).collect();
            Err(OrderError::UnknownNeighbor { address, known })
        }
        None if found.is_empty() => Err(OrderError::NoSessions),
        _ => Ok(found),
    }
}

/// The calls that withdraw or announce a group which is in the daemon's configuration.
fn whole(
    settings: &RouterSettings,
    number: usize,
    group: &RouteGroup,
    withdraw: bool,
) -> Vec<DaemonCall> {
    if settings.igp.interior(number).is_some() {
        return vec![DaemonCall::Kernel(igp::change(settings, number, group, withdraw))];
    }
    let word = if withdraw { "disable" } else { "enable" };
    let families = bird::FAMILIES.into_iter().filter(|family| bird::has_routes(group, family.2));
    let call = move |(_, _, is_ipv4)| {
        DaemonCall::Control(format!("{word} {}\n", bird::static_protocol(number, is_ipv4)))
    };
    families.map(call).collect()
}

/// The call with commands of FRR; `None`: the router is not FRR.
fn vty(
    settings: &RouterSettings,
    commands: impl FnOnce() -> Option<(frr::Process, Vec<String>)>,
) -> Option<DaemonCall> {
    let commands = (settings.daemon == Daemon::Frr).then(commands)?;
    commands.map(|(process, lines)| DaemonCall::Vty(process, lines))
}

fn disable(name: &str, message: &str) -> String {
    match message {
        "" => format!("disable {name}\n"),
        text => format!("disable {name} \"{}\"\n", bird::quoted(text)),
    }
}

#[cfg(test)]
mod tests;
