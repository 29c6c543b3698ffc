//! Which profiles of flows are played: one run for all of them, which they join and leave.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use squall::report::Report;
use squall_apps::Instruction;
use squall_profile::{Arrival, Flows, Ramp, Said, Says, Stage, Template};
use squall_units::Nanos;

use super::{
    Answer, Refusal, Server,
    flows::{Latency, State, ends_of, range},
    id_of,
};
use crate::{FlowSetting, rpc::Params, traffic::flow_profile};

/// What open flows have to end once no more begin, unless the start says otherwise.
const DRAIN: Nanos = Nanos(5_000_000_000);
/// A run begins so long behind its order at most.
const BEGINS: Duration = Duration::from_millis(100);
/// What is counted of flows that were aborted comes so much later at most.
const SETTLES: Duration = Duration::from_secs(2);
/// Of a load that rises to its full level and stays there.
const STAYS: Nanos = Nanos(10 * 365 * 86_400 * 1_000_000_000);

/// The flows of a profile, from its start until the last of them has ended.
pub struct Playing {
    /// Templates have the names that they have in the run.
    pub flows: Flows,
    /// Templates' flows a second for a multiplier of 1.
    mult: f64,
    lasts: Option<Nanos>,
    drain: Nanos,
    /// `None`: as the run before it has to end.
    began: Option<Instant>,
    /// No more flows begin since then.
    ends: Option<Instant>,
    /// It has left the run.
    gone: Option<Instant>,
}

impl Playing {
    fn is_in_run(&self) -> bool {
        self.began.is_some() && self.gone.is_none()
    }

    /// Since when no flow may be open any more.
    fn leaves(&self) -> Option<Instant> {
        Some(self.ends? + Duration::from_nanos(self.drain.0))
    }

    /// All of its flows have begun and ended, as the report has it.
    fn is_done(&self, report: &Report) -> bool {
        let over = self.ends.is_some();
        let templates = report.flows.iter().flat_map(|flows| &flows.templates);
        let mut seen = self.flows.templates.iter().map(|template| {
            let called = template.arrival == Arrival::Called;
            let of = templates.clone().find(|of| of.name == template.name);
            let Some((of, client)) = of.and_then(|of| Some((of, of.roles.client.as_ref()?))) else {
                // Perhaps nobody begins one.
                return called.then_some(true);
            };
            let not_begun: u64 = client.not_begun.values().sum();
            let asked = client.asked.unwrap_or(0);
            let all = called || over || template.limit.is_some_and(|limit| asked >= limit);
            let active = client.active + of.roles.server.as_ref().map_or(0, |role| role.active);
            Some(all && asked == client.attempted + not_begun && active == 0)
        });
        // Of one that has begun no flow there is nothing in the report.
        seen.all(|done| done.unwrap_or(over))
    }

    /// Whether a server of it has this address and port.
    pub fn serves(&self, address: IpAddr, port: u16) -> bool {
        self.flows.templates.iter().filter(|template| template.listen == Some(port)).any(
            |template| {
                let mut ranges = servers(&self.flows, template);
                ranges.any(|(first, last)| first <= address && address <= last)
            },
        )
    }

    /// The port of servers that others have, too.
    fn meets(&self, others: &Flows) -> Option<u16> {
        let meet = |one: &Template, other: &Template| {
            let overlap = |(first, last): (IpAddr, IpAddr)| {
                servers(others, other).any(|(from, to)| first <= to && from <= last)
            };
            (one.listen, one.transport) == (other.listen, other.transport)
                && servers(&self.flows, one).any(overlap)
        };
        let mut ours = self.flows.templates.iter();
        let met = ours.find(|one| others.templates.iter().any(|other| meet(one, other)))?;
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
        if (0..self.ports.len()).any(|port| self.sends(port)) {
            return Err(Refusal::failed("the ports send streams: stop them first"));
        }
        if self.ports.len() != 2 {
            return Err(Refusal::failed(format!(
                "flows need two ports, for clients and for servers, and there are {}: start squall \
                 serve with --trex A,B",
                self.ports.len()
            )));
        }
        let setting = self.flow_setting(mult, ipv6);
        let profile = self.loaded(&id)?;
        if profile.state != State::Loaded {
            return Err(Refusal::failed(format!("profile {id} is not loaded, or active")));
        }
        let astf = profile.astf.as_ref();
        let astf = astf.ok_or_else(|| Refusal::failed(format!("profile {id} is not loaded")))?;
        let mut flows = astf.flows(&setting)?;
        let lasts = (duration > 0.0 && duration < 1e9).then_some(Nanos((duration * 1e9) as u64));
        if let Some((other, port)) =
            self.playing().find_map(|(id, of)| Some((id, of.meets(&flows)?)))
        {
            return Err(Refusal::failed(format!(
                "profile {other} is active, and has the same servers at port {port}: give one of \
                 the profiles another port, or other servers"
            )));
        }
        self.measure_latency(params, &flows)?;
        let mark = self.begin_profile(&id, dump);
        prepare(&mut flows, &mark, lasts);
        let active = Playing { flows, mult, lasts, drain, began: None, ends: None, gone: None };
        if let Some(server) = &mut self.flows {
            server.playing.insert(id.clone(), active);
        }
        self.goes_to(&id, State::Parse, None);
        self.goes_to(&id, State::Build, None);
        let begun = self.begin_flows(&id);
        if begun.is_err() {
            self.goes_to(&id, State::Loaded, None);
        }
        begun.map(|()| json!({}))
    }

    fn flow_setting(&self, mult: f64, ipv6: bool) -> FlowSetting {
        let macs = [0, 1].map(|port: usize| self.ports[port].info.mac);
        let hops = [0, 1].map(|port: usize| self.ports[port].destination);
        FlowSetting { mult, ipv6, macs: Some(macs), next_hops: Some(hops) }
    }

    /// Streams for latency beside the flows of a start, if it asks for them.
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
        self.set_latency(Some(Latency { pps, ends, with_flows: true }))
    }

    /// A profile is about to begin; what its templates have before their names in the run.
    fn begin_profile(&mut self, id: &str, dump: f64) -> String {
        let Some(server) = &mut self.flows else { return String::new() };
        server.epoch += 1;
        let epoch = server.epoch;
        let alone = server.playing.is_empty();
        if alone {
            // All clients of a start begin flows.
            server.ignored.clients.clear();
        }
        let mark = match alone && id == super::DEFAULT {
            true => String::new(),
            // It may have been in the run before.
            false => format!("{id} {epoch}: "),
        };
        if let Some(profile) = server.profiles.get_mut(id) {
            profile.begin(epoch, mark.clone(), dump);
        }
        mark
    }

    /// A profile joins the run that there is, or begins one; where that has to end before, when it
    /// has.
    fn begin_flows(&mut self, id: &str) -> Result<(), Refusal> {
        let goes_on = self.playing().any(|(_, active)| active.began.is_some());
        if goes_on && self.run_ends() {
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
            self.no_more_plays(id);
            return Err(error);
        }
        self.with_playing(id, |active| active.began = Some(Instant::now()));
        self.loaded(id)?.began = Some(Instant::now());
        self.goes_to(id, State::Tx, None);
        Ok(())
    }

    /// A profile is not active any more.
    fn no_more_plays(&mut self, id: &str) {
        let Some(server) = &mut self.flows else { return };
        server.playing.remove(id);
        if server.playing.is_empty() {
            server.latency.take_if(|latency| latency.with_flows);
        }
    }

    /// The flows that are active, and the streams beside them, are what is sent.
    pub(super) fn play(&mut self) -> Result<(), Refusal> {
        let (flows, streams) = (self.merged(), self.probes());
        if flows.is_none() && streams.is_empty() {
            self.traffic.end();
            return Ok(());
        }
        let profile = flow_profile(&self.traffic.places(), flows, streams);
        self.traffic.play(self.start.as_mut(), profile)?;
        // Before the first flow begins: workers wait a moment for each other.
        self.ignore_in_run()
    }

    /// The run goes on with the flows that are active now.
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

    fn probes(&self) -> Vec<squall_profile::Stream> {
        let latency = self.flows.as_ref().and_then(|server| server.latency.as_ref());
        latency.map_or(Vec::new(), |latency| (0..2).map(|port| self.probe(port, latency)).collect())
    }

    pub(super) fn flow_stop(&mut self, params: &Params<'_>) -> Answer {
        let id = id_of(params).to_owned();
        let profile = self.loaded(&id)?;
        match profile.state {
            State::Tx => self.end_profile(&id)?,
            // It waits for the run before it.
            State::Build => {
                self.no_more_plays(&id);
                self.goes_to(&id, State::Loaded, None);
            }
            _ => {}
        }
        Ok(json!({}))
    }

    /// No more flows of a profile begin.
    fn end_profile(&mut self, id: &str) -> Result<(), Refusal> {
        let names = self.with_playing(id, |active| {
            active.ends = Some(Instant::now());
            let names = active.flows.templates.iter().map(|template| template.name.clone());
            names.collect::<Vec<_>>()
        });
        self.goes_to(id, State::Cleanup, None);
        if !self.end_run_of_one() {
            for name in names.unwrap_or_default() {
                self.traffic.pause(&name)?;
            }
        }
        Ok(())
    }

    /// Where one profile is left in the run, and it begins no more flows, the run ends as soon as
    /// they have.
    fn end_run_of_one(&mut self) -> bool {
        let left: Vec<&Playing> = self.in_run().collect();
        let ends = matches!(left[..], [last] if last.ends.is_some());
        if ends && let Some(server) = &mut self.flows {
            server.ending = true;
            self.traffic.stop();
        }
        ends
    }

    /// The run begins no flows any more, and takes no others.
    fn run_ends(&self) -> bool {
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

    /// Notices the end of flows; `None`: there are none.
    pub(super) fn look_at_flows(&mut self) -> Option<()> {
        self.flows.as_ref()?;
        self.clear_those_due();
        let active: Vec<String> = self.playing().map(|(id, _)| id.clone()).collect();
        if active.is_empty() {
            return Some(());
        }
        for id in &active {
            self.remember(id);
            self.look_at_open(id);
        }
        if let Some(outcome) = self.traffic.outcome() {
            self.run_is_over(outcome);
        } else if !self.run_ends() {
            active.iter().for_each(|id| self.look_at_profile(id));
        }
        Some(())
    }

    /// Whether the time of a profile in a run that goes on is over, and then its last flow.
    fn look_at_profile(&mut self, id: &str) {
        let Some((_, active)) = self.playing().find(|(own, _)| *own == id) else { return };
        let Some(began) = active.began else { return };
        let now = Instant::now();
        let end = active.lasts.map(|lasts| began + Duration::from_nanos(lasts.0) + BEGINS);
        let alone = self.in_run().count() == 1;
        // A report is copied for it: only where it is asked.
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
                self.goes_to(id, State::Cleanup, None);
                self.leave_run(id);
            }
            (None, _) => {}
        }
    }

    /// What is left of a profile's flows is aborted, and others go on.
    fn leave_run(&mut self, id: &str) {
        self.with_playing(id, |active| active.gone = Some(Instant::now()));
        if self.change_flows().is_ok() {
            self.end_run_of_one();
        }
    }

    fn profile_is_over(&mut self, id: &str, error: Option<&str>) {
        if self.loaded(id).is_ok_and(|profile| profile.state == State::Tx) {
            self.goes_to(id, State::Cleanup, None);
        }
        let report = self.traffic.latest_report();
        if let (Some(report), Ok(profile)) = (report, self.loaded(id)) {
            profile.ended(report);
        }
        self.no_more_plays(id);
        self.goes_to(id, State::Loaded, error);
        // What ended before it waited for this alone.
        self.end_run_of_one();
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
                self.goes_to(id, State::Loaded, Some(&error.text));
            }
        }
        // Streams beside the flows go on.
        if waiting.is_empty() && self.flows.as_ref().is_some_and(|server| server.latency.is_some())
        {
            _ = self.play();
        }
    }

    // Whose flows there are

    pub(super) fn playing(&self) -> impl Iterator<Item = (&String, &Playing)> + Clone {
        self.flows.iter().flat_map(|server| &server.playing)
    }

    /// Those whose flows the run has.
    fn in_run(&self) -> impl Iterator<Item = &Playing> {
        self.playing().map(|(_, active)| active).filter(|active| active.is_in_run())
    }

    fn with_playing<T>(&mut self, id: &str, what: impl FnOnce(&mut Playing) -> T) -> Option<T> {
        self.flows.as_mut()?.playing.get_mut(id).map(what)
    }

    pub(super) fn flows_are_active(&self) -> bool {
        self.playing().next().is_some()
    }

    /// Flows of a profile may be open.
    pub(super) fn flows_of_are_open(&self, id: &str) -> bool {
        self.playing().any(|(own, active)| own == id && active.began.is_some())
    }
}

/// First and last address of each range.
fn servers<'a>(
    flows: &'a Flows,
    template: &Template,
) -> impl Iterator<Item = (IpAddr, IpAddr)> + 'a {
    flows.pools[template.servers].addresses.iter().filter_map(|said| range(&said.text))
}

fn positive(mult: f64) -> Result<(), Refusal> {
    match mult.is_finite() && mult > 0.0 {
        true => Ok(()),
        false => Err(Refusal::parameters(format!("mult = {mult}: expected more than 0"))),
    }
}

/// As part of a run of several profiles: each template has its time and its ramp by itself.
fn prepare(flows: &mut Flows, mark: &str, lasts: Option<Nanos>) {
    let Ramp { up, .. } = std::mem::take(&mut flows.ramp);
    for pool in &mut flows.pools {
        pool.name = format!("{mark}{}", pool.name);
    }
    for template in &mut flows.templates {
        template.name = format!("{mark}{}", template.name);
        template.duration = lasts;
        if let Says::Programs { client, .. } = &mut template.says {
            client.iter_mut().for_each(|line| begin_marked(line, mark));
        }
        if up > Nanos::ZERO && template.arrival != Arrival::Called {
            let to = template.arrival.amount();
            template.stages = vec![Stage { lasts: up, to }, Stage { lasts: STAYS, to }];
        }
    }
}

/// The template that an instruction begins a flow of has its name in the run.
fn begin_marked(line: &mut Said, mark: &str) {
    let marked = |name: String| format!("{mark}{name}");
    let instruction = match line.text.parse() {
        Ok(Instruction::Next(name)) => Instruction::Next(marked(name)),
        Ok(Instruction::Begin(Some(name))) => Instruction::Begin(Some(marked(name))),
        _ => return,
    };
    line.text = instruction.to_string();
}
