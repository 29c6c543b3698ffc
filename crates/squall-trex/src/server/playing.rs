//! Plays flow profiles, all in one run that they join and leave.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use squall::report::Report;
use squall_apps::Instruction;
use squall_profile::{Arrival, FlowContent, Flows, Located, Ramp, Stage, Template};
use squall_units::Nanos;

use super::{
    Answer, Refusal, Server,
    flows::{Latency, State, ends_of, range},
    id_of,
};
use crate::{FlowPair, FlowPort, FlowSetting, rpc::Params, traffic::flow_profile};

/// Default time limit for open flows to end after the last one has begun.
const DRAIN: Nanos = Nanos(5_000_000_000);
/// Maximum time from the request for a run to its start.
const BEGINS: Duration = Duration::from_millis(100);
/// Maximum time until the counters include aborted flows.
const SETTLES: Duration = Duration::from_secs(2);
/// Hold time of a load that stays at its full level: longer than any run.
const STAYS: Nanos = Nanos(10 * 365 * 86_400 * 1_000_000_000);

/// The flows of a profile, from its start until the last of them has ended.
pub struct Playing {
    /// The flows, with templates renamed as in the run.
    pub flows: Flows,
    /// Multiplier for the templates' flow rates.
    mult: f64,
    lasts: Option<Nanos>,
    drain: Nanos,
    /// When the flows began; `None`: the profile waits for the end of the previous run.
    began: Option<Instant>,
    /// When the profile stops beginning flows.
    ends: Option<Instant>,
    /// When the profile left the run.
    gone: Option<Instant>,
    /// Why the run did not let the profile go.
    stuck: Option<String>,
}

impl Playing {
    fn is_in_run(&self) -> bool {
        self.began.is_some() && self.gone.is_none()
    }

    /// The time by which all flows must have ended.
    fn leaves(&self) -> Option<Instant> {
        Some(self.ends? + Duration::from_nanos(self.drain.0))
    }

    /// Whether the report shows that all flows of this profile have begun and ended.
    fn is_done(&self, report: &Report) -> bool {
        let over = self.ends.is_some();
        let templates = report.flows.iter().flat_map(|flows| &flows.templates);
        let mut seen = self.flows.templates.iter().map(|template| {
            let called = template.arrival == Arrival::Called;
            let of = templates.clone().find(|of| of.name == template.name);
            let Some((of, client)) = of.and_then(|of| Some((of, of.roles.client.as_ref()?))) else {
                // A template without `cps` may have no flows at all: programs decide.
                return called.then_some(true);
            };
            let not_begun: u64 = client.not_begun.values().sum();
            let asked = client.asked.unwrap_or(0);
            let all = called || over || template.limit.is_some_and(|limit| asked >= limit);
            let active = client.active + of.roles.server.as_ref().map_or(0, |role| role.active);
            Some(all && asked == client.attempted + not_begun && active == 0)
        });
        // A template that has had no flow is missing in the report.
        seen.all(|done| done.unwrap_or(over))
    }

    /// Whether a server of this profile has this address and port.
    pub fn serves(&self, address: IpAddr, port: u16) -> bool {
        self.flows.templates.iter().filter(|template| template.listen == Some(port)).any(
            |template| {
                let mut ranges = servers(&self.flows, template);
                ranges.any(|(first, last)| first <= address && address <= last)
            },
        )
    }

    /// A server port of this profile that servers in `others` also use, at overlapping addresses.
    fn shared_server_port(&self, others: &Flows) -> Option<u16> {
        let meet = |one: &Template, other: &Template| {
            let overlap = |(first, last): (IpAddr, IpAddr)| {
                servers(others, other).any(|(from, to)| first <= to && from <= last)
            };
            (one.pair, one.listen, one.transport) == (other.pair, other.listen, other.transport)
                && servers(&self.flows, one).any(overlap)
        };
        let mut own = self.flows.templates.iter();
        let met = own.find(|one| others.templates.iter().any(|other| meet(one, other)))?;
        met.listen
    }
}

impl Server {
    pub(super) fn flow_start(&mut self, params: &Params<'_>) -> Answer {
        let id = id_of(params).to_owned();
        let (mult, duration) = (params.number("mult")?, params.number("duration")?);
        let ipv6 = params
            .get("ipv6")
            .is_some_and(|on| on.as_bool() == Some(true) || on.as_u64() == Some(1));
        let dump = params.get("dump_interval").and_then(Value::as_f64).unwrap_or(0.0);
        let drain = match params.get("t_duration").and_then(Value::as_f64).unwrap_or(0.0) {
            given if given > 0.0 && given < 86_400.0 => Nanos((given * 1e9) as u64),
            _ if params.flag("nc") => Nanos::ZERO,
            _ => DRAIN,
        };
        positive(mult)?;
        let mask = match params.get("client_mask") {
            Some(_) => params.whole("client_mask")?,
            None => u64::MAX,
        };
        if (0..self.ports.len()).any(|port| self.sends(port)) {
            return Err(Refusal::failed("the ports send streams: stop them first"));
        }
        let cores = self.split().cores;
        let mut pairs = self.pairs();
        leave_out_clients(&mut pairs, mask)?;
        let setting = FlowSetting { mult, ipv6, pairs, cores };
        let profile = self.loaded(&id)?;
        if profile.state != State::Loaded {
            return Err(Refusal::failed(format!("profile {id} is not loaded, or active")));
        }
        let astf = profile.astf.as_ref();
        let astf = astf.ok_or_else(|| Refusal::failed(format!("profile {id} is not loaded")))?;
        let mut flows = astf.flows(&setting)?;
        self.check_family(&flows)?;
        let lasts = (duration > 0.0 && duration < 1e9).then_some(Nanos((duration * 1e9) as u64));
        if let Some((other, port)) =
            self.playing().find_map(|(id, of)| Some((id, of.shared_server_port(&flows)?)))
        {
            return Err(Refusal::failed(format!(
                "profile {other} is active, and has the same servers at port {port}: give one of \
                 the profiles another port, or other servers"
            )));
        }
        // All profiles of a run have the same ports of clients.
        let own = client_ports(&flows);
        if let Some((other, _)) = self.playing().find(|(_, of)| client_ports(&of.flows) != own) {
            return Err(Refusal::failed(format!(
                "client_mask: profile {other} is active with other ports of clients\n  try its \
                 client_mask, or stop it first"
            )));
        }
        self.measure_latency(params, &flows)?;
        let mark = self.begin_profile(&id, dump);
        prepare(&mut flows, &mark, lasts);
        let (began, ends, gone, stuck) = (None, None, None, None);
        let active = Playing { flows, mult, lasts, drain, began, ends, gone, stuck };
        if let Some(server) = &mut self.flows {
            server.playing.insert(id.clone(), active);
        }
        self.set_state(&id, State::Parse, None);
        self.set_state(&id, State::Build, None);
        let begun = self.begin_flows(&id);
        if begun.is_err() {
            self.set_state(&id, State::Loaded, None);
        }
        begun.map(|()| json!({}))
    }

    /// Checks that clients which have to be in tunnels, or to use gateways, have IPv4 addresses, as
    /// records of tunnels and gateways do: IPv6 clients would have the headers of their port.
    fn check_family(&self, flows: &Flows) -> Result<(), Refusal> {
        let Some(server) = self.flows.as_ref().filter(|_| has_ipv6_clients(flows)) else {
            return Ok(());
        };
        let refused = |what: &str, off: &str| {
            let text = format!(
                "the profile has IPv6 clients, and {what} are for IPv4 clients\n  try start \
                 without ipv6, or {off} first"
            );
            Err(Refusal::failed(text))
        };
        if server.tunnels.is_active() {
            return refused("tunnels", "activate_tunnel with activate=False");
        }
        match server.topology.is_empty() {
            true => Ok(()),
            false => refused("topologies", "topo_clear"),
        }
    }

    /// Adds latency streams to the flows of a start, if it asks for them.
    fn measure_latency(&mut self, params: &Params<'_>, flows: &Flows) -> Result<(), Refusal> {
        let pps = params.get("latency_pps").and_then(Value::as_f64).unwrap_or(0.0);
        let measured = self.flows.as_ref().is_some_and(|server| server.latency.is_some());
        if pps <= 0.0 || measured {
            return Ok(());
        }
        if self.flows_are_active() {
            return Err(Refusal::failed(
                "streams for latency are added when the first profile starts: use its latency_pps",
            ));
        }
        let ends =
            ends_of(flows).ok_or_else(|| Refusal::failed("latency is measured over IPv4 only"))?;
        let ends = self.probe_ends(self.chosen_ends(ends))?;
        self.set_latency(Some(Latency { pps, ends, mask: u64::MAX, with_flows: true }))
    }

    /// Prepares the start of a profile; returns the prefix of its template names in the run.
    fn begin_profile(&mut self, id: &str, dump: f64) -> String {
        let Some(server) = &mut self.flows else { return String::new() };
        server.epoch += 1;
        let epoch = server.epoch;
        let alone = server.playing.is_empty();
        if alone {
            // Every start enables all clients, except those that are off in a topology of tunnels.
            server.ignored.clients = server.tunnels.clients_off().map(IpAddr::V4).collect();
        }
        let mark = match alone && id == super::DEFAULT {
            true => String::new(),
            // A new prefix: the profile may have been in this run before.
            false => format!("{id} {epoch}: "),
        };
        if let Some(profile) = server.profiles.get_mut(id) {
            profile.begin(epoch, mark.clone(), dump);
        }
        mark
    }

    /// Adds a profile to the current run, or begins one. Waits if the current run is about to end.
    fn begin_flows(&mut self, id: &str) -> Result<(), Refusal> {
        let goes_on = self.playing().any(|(_, active)| active.began.is_some());
        if goes_on && self.is_run_ending() {
            return Ok(());
        }
        let now = Some(Instant::now());
        self.with_playing(id, |active| active.began = now);
        let begun = if goes_on { self.change_flows() } else { self.play() };
        if begun.is_err() && goes_on && self.traffic.is_over() {
            self.with_playing(id, |active| active.began = None);
            return Ok(());
        }
        if let Err(error) = begun {
            self.remove_playing(id);
            return Err(error);
        }
        self.with_playing(id, |active| active.began = Some(Instant::now()));
        self.loaded(id)?.began = Some(Instant::now());
        self.set_state(id, State::Tx, None);
        Ok(())
    }

    /// Removes a profile from the active ones.
    fn remove_playing(&mut self, id: &str) {
        let Some(server) = &mut self.flows else { return };
        server.playing.remove(id);
        if server.playing.is_empty() {
            server.latency.take_if(|latency| latency.with_flows);
        }
    }

    /// Sends the active flows and their latency streams.
    pub(super) fn play(&mut self) -> Result<(), Refusal> {
        let (flows, streams) = (self.merged(), self.probes());
        if flows.is_none() && streams.is_empty() {
            self.traffic.end();
            return Ok(());
        }
        let profile = flow_profile(&self.traffic.places(), flows, streams);
        let threads = self.flow_threads();
        self.traffic.play(self.start.as_mut(), profile, threads)?;
        // These take effect before the first flow begins, because workers synchronize their start.
        self.ignore_in_run()?;
        self.tunnels_in_run()
    }

    /// Changes the run to the flows that are active now.
    fn change_flows(&mut self) -> Result<(), Refusal> {
        let (flows, streams) = (self.merged(), self.probes());
        Ok(self.traffic.change_flows(flows, streams)?)
    }

    /// The flows of all profiles that are in the run.
    fn merged(&self) -> Option<Flows> {
        let mut all = self.in_run();
        let first = all.next()?;
        let mut merged = Flows { drain: Some(first.drain), ..first.flows.clone() };
        for active in all {
            let before = merged.pools.len();
            merged.drain = merged.drain.max(Some(active.drain));
            merged.pools.extend_from_slice(&active.flows.pools);
            for template in &active.flows.templates {
                let mut template = template.clone();
                (template.clients, template.servers) =
                    (template.clients + before, template.servers + before);
                merged.templates.push(template);
            }
        }
        Some(merged)
    }

    pub(super) fn flow_stop(&mut self, params: &Params<'_>) -> Answer {
        let id = id_of(params).to_owned();
        let profile = self.loaded(&id)?;
        match profile.state {
            State::Tx => self.end_profile(&id)?,
            // The profile waits for the end of the previous run.
            State::Build => {
                self.remove_playing(&id);
                self.set_state(&id, State::Loaded, None);
            }
            _ => {}
        }
        Ok(json!({}))
    }

    /// Stops new flows of a profile.
    fn end_profile(&mut self, id: &str) -> Result<(), Refusal> {
        let names = self.with_playing(id, |active| {
            active.ends = Some(Instant::now());
            let names = active.flows.templates.iter().map(|template| template.name.clone());
            names.collect::<Vec<_>>()
        });
        self.set_state(id, State::Cleanup, None);
        if !self.end_run_if_last() {
            for name in names.unwrap_or_default() {
                self.traffic.pause(&name)?;
            }
        }
        Ok(())
    }

    /// Stops the run if its only remaining profile starts no further flows. The run ends as soon as
    /// these flows have ended.
    fn end_run_if_last(&mut self) -> bool {
        let left: Vec<&Playing> = self.in_run().collect();
        let ends = matches!(left[..], [last] if last.ends.is_some());
        if ends && let Some(server) = &mut self.flows {
            server.ending = true;
            self.traffic.stop();
        }
        ends
    }

    /// Whether the run is ending and accepts no profiles.
    fn is_run_ending(&self) -> bool {
        self.flows.as_ref().is_some_and(|server| server.ending)
    }

    pub(super) fn flow_update(&mut self, params: &Params<'_>) -> Answer {
        let id = id_of(params).to_owned();
        let mult = params.number("mult")?;
        positive(mult)?;
        let scaled = self.with_playing(&id, |active| {
            let by = mult / active.mult;
            for template in &mut active.flows.templates {
                if let Arrival::Cps { cps, .. } = &mut template.arrival {
                    *cps *= by;
                    template.stages.iter_mut().for_each(|stage| stage.to *= by);
                }
            }
            active.mult = mult;
        });
        scaled.ok_or_else(|| Refusal::failed(format!("profile {id} is not active")))?;
        self.change_flows()?;
        Ok(json!({}))
    }

    /// Updates the state of flows; `None`: not in ASTF mode.
    pub(super) fn poll_flows(&mut self) -> Option<()> {
        self.flows.as_ref()?;
        self.clear_due();
        let active: Vec<String> = self.playing().map(|(id, _)| id.clone()).collect();
        if active.is_empty() {
            return Some(());
        }
        for id in &active {
            self.remember(id);
            self.snapshot_if_due(id);
        }
        if let Some(outcome) = self.traffic.outcome() {
            self.run_is_over(outcome);
        } else if !self.is_run_ending() {
            active.iter().for_each(|id| self.poll_profile(id));
        }
        Some(())
    }

    /// Ends a profile in a continuing run when its time is over, and removes it after its last
    /// flow.
    fn poll_profile(&mut self, id: &str) {
        let Some((_, active)) = self.playing().find(|(own, _)| *own == id) else { return };
        let Some(began) = active.began else { return };
        let now = Instant::now();
        let end = active.lasts.map(|lasts| began + Duration::from_nanos(lasts.0) + BEGINS);
        let alone = self.in_run().count() == 1;
        // Evaluated only if needed: it copies a report.
        let done = || self.traffic.latest_report().is_some_and(|report| active.is_done(&report));
        match (active.gone, active.ends) {
            (Some(gone), _) => {
                let counted = self.traffic.taken().is_some_and(|taken| taken > gone) && done();
                if counted || now > gone + SETTLES {
                    self.profile_is_over(id, None);
                }
            }
            (None, None) if end.is_some_and(|end| now >= end) => _ = self.end_profile(id),
            // The run ends by itself.
            _ if alone => {}
            (None, Some(_)) if active.leaves().is_some_and(|leaves| now >= leaves) || done() => {
                self.leave_run(id);
            }
            (None, None) if done() => {
                self.with_playing(id, |active| active.ends = Some(now));
                self.set_state(id, State::Cleanup, None);
                self.leave_run(id);
            }
            (None, _) => {}
        }
    }

    /// Aborts a profile's remaining flows; the run continues with the others. If it refuses, the
    /// profile ends with an error, because its open flows continue until the end of the run.
    fn leave_run(&mut self, id: &str) {
        self.with_playing(id, |active| active.gone = Some(Instant::now()));
        match self.change_flows() {
            Ok(()) => _ = self.end_run_if_last(),
            // All flows end with the run.
            Err(_) if self.traffic.is_over() => {}
            Err(error) => {
                let why = format!("the flows do not leave the run: {}", error.text);
                self.with_playing(id, |active| active.stuck = Some(why));
            }
        }
    }

    fn profile_is_over(&mut self, id: &str, error: Option<&str>) {
        if self.loaded(id).is_ok_and(|profile| profile.state == State::Tx) {
            self.set_state(id, State::Cleanup, None);
        }
        let report = self.traffic.latest_report();
        if let (Some(report), Ok(profile)) = (report, self.loaded(id)) {
            profile.ended(report);
        }
        let stuck = self.with_playing(id, |active| active.stuck.take()).flatten();
        self.remove_playing(id);
        self.set_state(id, State::Loaded, error.or(stuck.as_deref()));
        // A profile that ended earlier may have been waiting only for this one.
        self.end_run_if_last();
    }

    fn run_is_over(&mut self, outcome: Result<Arc<Report>, Arc<squall::Error>>) {
        let error = outcome.err().map(|error| error.to_string());
        let begun = self.playing().filter(|(_, active)| active.began.is_some());
        let begun: Vec<String> = begun.map(|(id, _)| id.clone()).collect();
        begun.iter().for_each(|id| self.profile_is_over(id, error.as_deref()));
        self.traffic.ended();
        if let Some(server) = &mut self.flows {
            server.ending = false;
        }
        let waiting: Vec<String> = self.playing().map(|(id, _)| id.clone()).collect();
        for id in &waiting {
            if let Err(error) = self.begin_flows(id) {
                self.set_state(id, State::Loaded, Some(&error.text));
            }
        }
        // Continue latency streams without flows.
        if waiting.is_empty() && self.flows.as_ref().is_some_and(|server| server.latency.is_some())
        {
            _ = self.play();
        }
    }

    // Profiles of flows

    pub(super) fn playing(&self) -> impl Iterator<Item = (&String, &Playing)> + Clone {
        self.flows.iter().flat_map(|server| &server.playing)
    }

    /// Profiles whose flows are in the run.
    fn in_run(&self) -> impl Iterator<Item = &Playing> {
        self.playing().map(|(_, active)| active).filter(|active| active.is_in_run())
    }

    fn with_playing<T>(&mut self, id: &str, what: impl FnOnce(&mut Playing) -> T) -> Option<T> {
        self.flows.as_mut()?.playing.get_mut(id).map(what)
    }

    pub(super) fn flows_are_active(&self) -> bool {
        self.playing().next().is_some()
    }

    /// Whether flows of a profile may be open.
    pub(super) fn has_open_flows(&self, id: &str) -> bool {
        self.playing().any(|(own, active)| own == id && active.began.is_some())
    }
}

/// First and last address of each range of server addresses in a template.
fn servers<'a>(
    flows: &'a Flows,
    template: &Template,
) -> impl Iterator<Item = (IpAddr, IpAddr)> + 'a {
    flows.pools[template.servers].addresses.iter().filter_map(|address| range(&address.text))
}

/// Leaves out the clients at ports whose bit in `mask` is 0, as if their port were a dummy. TRex's
/// masks have 32 bits, and leave out no port above.
///
/// # Errors
/// No port is left.
fn leave_out_clients(pairs: &mut [FlowPair], mask: u64) -> Result<(), Refusal> {
    for pair in pairs.iter_mut() {
        let is_out = |of: &mut FlowPort| of.port < 32 && (mask >> of.port) & 1 == 0;
        let Some(out) = pair.clients.take_if(is_out) else { continue };
        // By default, frames of servers go to the port of their clients. External clients are found
        // by their requests.
        if let Some(servers) = &mut pair.servers {
            servers.next_hop.take_if(|next_hop| Some(*next_hop) == out.mac);
        }
    }
    match pairs.iter().any(|pair| pair.clients.is_some() || pair.servers.is_some()) {
        true => Ok(()),
        false => Err(Refusal::failed(format!(
            "client_mask = {mask:#x}: it leaves out all clients, and no port has servers\n  try a \
             mask with the bit of a port with clients"
        ))),
    }
}

/// The ports of clients, by pair.
fn client_ports(flows: &Flows) -> Vec<Option<usize>> {
    let further = flows.pairs.iter().map(|pair| pair.clients);
    std::iter::once(flows.clients).chain(further).collect()
}

/// Whether a template has clients with IPv6 addresses.
fn has_ipv6_clients(flows: &Flows) -> bool {
    let pools = flows.templates.iter().filter_map(|template| flows.pools.get(template.clients));
    let mut addresses = pools.flat_map(|pool| &pool.addresses);
    addresses.any(|address| matches!(range(&address.text), Some((IpAddr::V6(_), _))))
}

fn positive(mult: f64) -> Result<(), Refusal> {
    match mult.is_finite() && mult > 0.0 {
        true => Ok(()),
        false => Err(Refusal::parameters(format!("mult = {mult}: expected more than 0"))),
    }
}

/// Adapts a profile for a run with several profiles: each template gets a duration and a ramp of
/// its own.
fn prepare(flows: &mut Flows, mark: &str, lasts: Option<Nanos>) {
    let Ramp { up, .. } = std::mem::take(&mut flows.ramp);
    for pool in &mut flows.pools {
        pool.name = format!("{mark}{}", pool.name);
    }
    for template in &mut flows.templates {
        template.name = format!("{mark}{}", template.name);
        template.duration = lasts;
        if let FlowContent::Programs { client, .. } = &mut template.content {
            client.iter_mut().for_each(|line| begin_marked(line, mark));
        }
        if up > Nanos::ZERO && template.arrival != Arrival::Called {
            let to = template.arrival.amount();
            template.stages = vec![Stage { lasts: up, to }, Stage { lasts: STAYS, to }];
        }
    }
}

/// Renames the template of a `begin` instruction to its name in the run.
fn begin_marked(line: &mut Located, mark: &str) {
    let marked = |name: String| format!("{mark}{name}");
    let instruction = match line.text.parse() {
        Ok(Instruction::Next(name)) => Instruction::Next(marked(name)),
        Ok(Instruction::Begin(Some(name))) => Instruction::Begin(Some(marked(name))),
        _ => return,
    };
    line.text = instruction.to_string();
}

#[cfg(test)]
pub(super) mod tests {
    use super::{
        super::tests::{Client, datagrams, load, of_flows},
        *,
    };

    /// Loads [`datagrams`] as a profile whose servers have this port.
    pub(in crate::server) fn load_as(client: &mut Client, id: &str, port: u16) {
        let mut profile = datagrams(&json!({ "name": "tx_msg", "buf_index": 0 }));
        let template = &mut profile["templates"][0];
        template["client_template"]["port"] = json!(port);
        template["server_template"]["assoc"][0]["port"] = json!(port);
        let whole = json!({ "profile_id": id, "fragment": profile.to_string(), "frag_first": true,
            "frag_last": true });
        client.ask("profile_fragment", whole).expect("sound");
    }

    /// Starts a profile, with further parameters. Earlier events are dropped.
    pub(in crate::server) fn start(client: &mut Client, id: &str, more: &Value) -> Answer {
        events(client);
        let mut asked = json!({ "profile_id": id, "mult": 4.0, "duration": 60.0, "nc": true });
        more.as_object().into_iter().flatten().for_each(|(k, v)| asked[k] = v.clone());
        client.ask("start", asked)
    }

    /// The events since the last call, or since the first.
    fn events(client: &mut Client) -> Vec<Value> {
        let asked = json!({ "session_id": 1, "user": "sub" });
        let reply = client.ask("get_async_events", asked).expect("events");
        reply["data"].as_array().expect("a list").clone()
    }

    /// Waits until the flows of a profile have ended. Returns the error of the event, if any.
    pub(in crate::server) fn until_it_is_over(client: &mut Client, id: &str) -> Option<String> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            client.server.look();
            let is_end = |event: &&Value| {
                let data = &event["data"];
                event["type"] == 60 && data["profile_id"] == id && data["state"] == 1
            };
            if let Some(end) = events(client).iter().find(is_end) {
                return end["data"]["error"].as_str().map(str::to_owned);
            }
            assert!(Instant::now() < until, "profile {id} does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn packets(client: &mut Client, port: usize) -> u64 {
        let of = client.ask("get_port_stats", json!({ "port_id": port })).expect("known");
        of["opackets"].as_u64().expect("a number")
    }

    #[test]
    fn clients_that_a_start_leaves_out_begin_no_flows() {
        let mut client = of_flows("trex-client-mask");
        load(&mut client, &datagrams(&json!({ "name": "tx_msg", "buf_index": 0 }))).expect("sound");
        start(&mut client, "_", &json!({ "client_mask": 0 })).expect("servers only");
        let flows = client.server.traffic.flows().expect("servers");
        assert_eq!((flows.clients, flows.servers), (None, Some(1)));
        assert_eq!(flows.server_network.next_hop, None);
        load_as(&mut client, "b", 81);
        let why = start(&mut client, "b", &json!({ "client_mask": 1 })).expect_err("other clients");
        assert!(why.text.contains("client_mask") && why.text.contains("profile _"), "{why:?}");
        client.ask("stop", json!({ "profile_id": "_" })).expect("its own");
        assert_eq!(until_it_is_over(&mut client, "_"), None);
        let short = |mask: u64| json!({ "duration": 0.5, "client_mask": mask });
        for (mask, sends) in [(0, false), (1, true)] {
            start(&mut client, "_", &short(mask)).expect("it starts");
            assert_eq!(until_it_is_over(&mut client, "_"), None);
            assert_eq!(packets(&mut client, 0) > 0, sends);
        }
        let why = start(&mut client, "_", &json!({ "client_mask": "all" })).expect_err("no number");
        assert!(why.text.contains("client_mask"), "{why:?}");
    }

    #[test]
    fn a_run_of_flows_that_ends_between_two_looks_ends_its_profiles() {
        let mut client = of_flows("trex-ends-between");
        load_as(&mut client, "a", 80);
        start(&mut client, "a", &json!({ "duration": 0.2 })).expect("it starts");
        let until = Instant::now() + Duration::from_secs(60);
        while client.server.traffic.outcome().is_none() {
            assert!(Instant::now() < until, "the run does not end");
            client.server.poll_flows();
            assert!(client.server.streams_ended().is_none());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(client.server.streams_ended().is_none());
        assert_eq!(until_it_is_over(&mut client, "a"), None);
    }

    #[test]
    fn a_mask_selects_the_clients_of_pairs() {
        let of = |port: usize| Some(FlowPort { port, ..FlowPort::default() });
        let all = [
            FlowPair::of(0, 1),
            FlowPair::of(2, 3),
            FlowPair { clients: of(4), servers: None },
            FlowPair { clients: None, servers: of(7) },
            FlowPair::of(32, 33),
        ];
        let left = |mask: u64| {
            let mut pairs = all.to_vec();
            leave_out_clients(&mut pairs, mask).expect("there are servers");
            let port = |pair: &FlowPair| pair.clients.as_ref().map(|of| of.port);
            pairs.iter().map(port).collect::<Vec<_>>()
        };
        assert_eq!(left(u32::MAX.into()), [Some(0), Some(2), Some(4), None, Some(32)]);
        assert_eq!(left(0b100), [None, Some(2), None, None, Some(32)]);
        let mut external = [FlowPair { clients: of(0), servers: None }];
        let why = leave_out_clients(&mut external, 2).expect_err("nothing is left");
        assert!(why.text.contains("client_mask = 0x2"), "{why:?}");
    }

    #[test]
    fn a_port_keeps_its_headers_while_flows_are_active() {
        let mut client = of_flows("trex-headers-active");
        load_as(&mut client, "a", 80);
        start(&mut client, "a", &Value::Null).expect("it starts");
        let handler = client.server.ports[0].owner.as_ref().expect("owned").handler.clone();
        let changes = [
            ("set_vlan", json!({ "vlan": [7] })),
            ("set_l2", json!({ "dst_mac": "02:00:00:00:07:01" })),
            ("set_l3", json!({ "src_addr": "1.1.1.1", "dst_addr": "1.1.1.2" })),
        ];
        let ask = |client: &mut Client, (method, params): &(&str, Value)| {
            let mut params = params.clone();
            params["port_id"] = json!(0);
            params["handler"] = json!(handler);
            client.ask(method, params)
        };
        for change in &changes {
            let refused = ask(&mut client, change).expect_err("active");
            assert!(refused.text.contains("while flows are active"), "{refused:?}");
        }
        client.ask("stop", json!({ "profile_id": "a" })).expect("its own");
        assert_eq!(until_it_is_over(&mut client, "a"), None);
        changes.iter().for_each(|change| _ = ask(&mut client, change).expect("no flows"));
        let port = &client.server.ports[0];
        assert_eq!((&port.vlan[..], port.l3.is_some()), (&[7][..], true));
    }

    #[test]
    fn a_profile_that_cannot_leave_the_run_ends_with_an_error() {
        let mut client = of_flows("trex-cannot-leave");
        load_as(&mut client, "a", 80);
        load_as(&mut client, "b", 81);
        start(&mut client, "a", &Value::Null).expect("it starts");
        // Without profile a, the run would have the network of profile b.
        client.server.ports[0].vlan = vec![7];
        start(&mut client, "b", &Value::Null).expect("it starts");
        client.ask("stop", json!({ "profile_id": "a" })).expect("its own");
        let why = until_it_is_over(&mut client, "a").expect("an error");
        assert!(why.contains("the flows do not leave the run"), "{why}");
    }
}
