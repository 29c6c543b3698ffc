//! Which flows are sent, by which run, and what was counted of each.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use squall::{
    Capture, Error, Run, Session,
    driving::{Driven, Start},
    totals::{PortTotals, Totals},
};
use squall_measure::{
    StreamCounters,
    track::{Bits, Place},
};
use squall_profile::{Mode, Profile};

use super::{AGE, Refusal, unknown};
use crate::{FlowInfo, Translated, replies::TransmitState};

/// How long a run has for its end: what is under way is received, files are written.
const PATIENCE: Duration = Duration::from_secs(10);

/// The flows of a configuration, and the run that sends them.
///
/// A run has all flows: those that are not sent wait for a sign that never comes. A flow that is
/// started while others are sent is replaced by one of another name, which begins at its first
/// frame and is counted from zero.
pub struct Traffic {
    pub flows: Vec<Flow>,
    /// Of runs before this one, since nothing was sent.
    ports_before: Vec<PortTotals>,
    run: Option<Running>,
}

/// The run, or the last one.
struct Running {
    driven: Arc<Driven>,
    /// As it runs now.
    profile: Profile,
    places: Arc<[Place]>,
}

pub struct Flow {
    pub state: Transmit,
    /// Counters when it was last seen to send no more: what arrives after that has no part in a
    /// rate from before.
    quiet: Option<Arc<Totals>>,
    /// For each of its streams.
    pub parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    Started,
    Paused,
    Stopped,
}

/// A stream of a flow.
#[derive(Clone, Default)]
pub struct Part {
    /// What it was called since it was started, the newest last.
    names: Vec<String>,
    /// Of the run's places, the one at which the flow's frames are told apart.
    place: Option<u16>,
    /// By former runs.
    before: Tally,
}

/// What was counted of a stream.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub tx_packets: u64,
    pub tx_octets: u64,
    pub rx: Vec<(usize, StreamCounters)>,
    /// Of these, by what stood at the flow's place: (port, value, what was seen).
    pub tracked: Vec<(usize, u128, StreamCounters)>,
}

/// Counters at an instant, and about a second before.
pub struct Seen {
    now: Arc<Totals>,
    then: Arc<Totals>,
    /// Of streams by name; several where one was replaced by one of other frames.
    numbers: HashMap<String, Vec<usize>>,
    pub over: bool,
}

impl Traffic {
    pub fn of(translated: &Translated) -> Self {
        Self {
            flows: translated.flows.iter().map(Flow::of).collect(),
            ports_before: vec![PortTotals::default(); translated.ports.len()],
            run: None,
        }
    }

    /// `recording`: what is to be captured of a run that begins. True if one has begun.
    ///
    /// # Errors
    /// Unknown names; what the run refuses.
    pub fn transmit(
        &mut self,
        start: &mut dyn Start,
        translated: &Translated,
        names: &[String],
        state: TransmitState,
        recording: Option<Capture>,
    ) -> Result<bool, Refusal> {
        let chosen = chosen(translated, names)?;
        self.see();
        match state {
            TransmitState::Start => self.start(start, translated, &chosen, recording, true),
            TransmitState::Resume => {
                self.resume(&chosen)?;
                let stopped: Vec<_> = chosen
                    .into_iter()
                    .filter(|&f| self.flows[f].state == Transmit::Stopped)
                    .collect();
                match stopped.is_empty() {
                    true => Ok(false),
                    false => self.start(start, translated, &stopped, recording, false),
                }
            }
            TransmitState::Pause => {
                let started = |f: &usize| self.flows[*f].state == Transmit::Started;
                let started: Vec<_> = chosen.into_iter().filter(started).collect();
                self.hold(&started, Transmit::Paused)?;
                Ok(false)
            }
            TransmitState::Stop => {
                self.stop(&chosen)?;
                Ok(false)
            }
        }
    }

    /// Whether a run has ports open.
    pub fn is_on(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.driven.outcome().is_none())
    }

    /// What the user should know of the run that has ended.
    pub fn warnings(&self) -> Vec<String> {
        let Some((run, outcome)) =
            self.run.as_ref().and_then(|run| Some((run, run.driven.outcome()?)))
        else {
            return Vec::new();
        };
        let mut warnings: Vec<String> = match outcome {
            Ok(report) => report.verdict.reasons.iter().map(ToString::to_string).collect(),
            Err(error) => vec![error.to_string()],
        };
        match run.driven.totals(AGE).0.ports.iter().map(|port| port.beyond).sum::<u64>() {
            0 => {}
            beyond => warnings.push(format!(
                "{beyond} frames are missing in tagged_metrics: too many different tags arrived"
            )),
        }
        warnings
    }

    /// Nothing is sent any more.
    pub fn end(&mut self) {
        if let Some(run) = &self.run {
            run.driven.stop();
            run.driven.wait(PATIENCE);
        }
        self.flows.iter_mut().for_each(|flow| flow.state = Transmit::Stopped);
    }

    /// Counters as they are. Flows that have come to their end are stopped from now on.
    pub fn see(&mut self) -> Option<Seen> {
        let run = self.run.as_ref()?;
        let over = run.driven.outcome().is_some();
        let (now, then) = run.driven.totals(AGE);
        let mut numbers: HashMap<String, Vec<usize>> = HashMap::new();
        for (i, stream) in now.streams.iter().enumerate() {
            numbers.entry(stream.name.clone()).or_default().push(i);
        }
        let seen = Seen { now, then, numbers, over };
        let ends: HashMap<&str, u64> = run
            .profile
            .streams
            .iter()
            .filter_map(|s| Some((s.name.as_str(), total(s.mode)?)))
            .collect();
        for flow in &mut self.flows {
            let at_end = |part: &Part| {
                let end = part.names.last().and_then(|name| ends.get(name.as_str()));
                end.is_some_and(|end| part.sent_last(&seen) >= *end)
            };
            if over || (flow.state == Transmit::Started && flow.parts.iter().all(at_end)) {
                flow.state = Transmit::Stopped;
            }
            match flow.state {
                Transmit::Started => flow.quiet = None,
                Transmit::Paused | Transmit::Stopped => {
                    _ = flow.quiet.get_or_insert_with(|| seen.now.clone())
                }
            }
        }
        if !over
            && !self.flows.is_empty()
            && self.flows.iter().all(|flow| flow.state == Transmit::Stopped)
        {
            // Flows that were stopped one by one wait in it, for nothing.
            run.driven.stop();
        }
        Some(seen)
    }

    /// Counters of a port, and those of about a second before.
    pub fn port(
        &self,
        port: usize,
        seen: Option<&Seen>,
    ) -> (PortTotals, Option<(PortTotals, PortTotals, f64)>) {
        let before = self.ports_before.get(port).copied().unwrap_or_default();
        let Some(seen) = seen else { return (before, None) };
        let of = |totals: &Totals| totals.ports.get(port).copied().unwrap_or_default();
        // Where nothing is sent any more, since the last flow ended.
        let quiet = self.flows.iter().map(|flow| flow.quiet.as_ref()).collect::<Option<Vec<_>>>();
        let quiet = quiet.and_then(|all| all.into_iter().max_by_key(|totals| totals.taken));
        let then = seen.then(quiet);
        let now = of(&seen.now);
        (plus(before, now), (!seen.over).then(|| (now, of(then), seen.seconds(then))))
    }

    /// The flows of a changed configuration: those of the same name keep what was counted of them.
    ///
    /// # Errors
    /// What the run refuses; nothing is changed then.
    pub fn become_flows(&mut self, old: &Translated, new: &Translated) -> Result<(), Refusal> {
        self.see();
        let places: HashMap<&str, usize> =
            old.flows.iter().enumerate().map(|(i, f)| (f.name.as_str(), i)).collect();
        let kept: Vec<Option<usize>> =
            new.flows.iter().map(|flow| places.get(flow.name.as_str()).copied()).collect();
        let mut flows: Vec<Flow> = (new.flows.iter().zip(&kept))
            .map(|(info, place)| match place.map(|place| &self.flows[place]) {
                Some(flow) if flow.parts.len() == info.streams.len() => {
                    Flow { state: flow.state, quiet: flow.quiet.clone(), parts: flow.parts.clone() }
                }
                _ => Flow::of(info),
            })
            .collect();
        if let Some(run) = self.run.as_ref().filter(|_| self.is_on()) {
            tracks(
                run,
                new.flows
                    .iter()
                    .zip(&flows)
                    .filter(|(_, flow)| flow.state != Transmit::Stopped)
                    .map(|(info, _)| info),
            )?;
            let places = run.places.clone();
            let mut profile = new.profile.clone();
            let names: HashSet<&str> =
                run.profile.streams.iter().map(|s| s.name.as_str()).collect();
            for (info, flow) in new.flows.iter().zip(&mut flows) {
                for (stream, part) in info.streams.iter().zip(&mut flow.parts) {
                    part.place = place_in(&places, info);
                    let stream = &mut profile.streams[stream.stream];
                    stream.self_start = flow.state != Transmit::Stopped;
                    if let Some(name) =
                        part.names.last().filter(|name| names.contains(name.as_str()))
                    {
                        stream.name.clone_from(name);
                    }
                    if part.names.last() != Some(&stream.name) {
                        part.names.push(stream.name.clone());
                    }
                }
            }
            if !self.change(profile)? {
                flows.iter_mut().for_each(|flow| flow.state = Transmit::Stopped);
            }
        }
        self.flows = flows;
        Ok(())
    }

    /// `clear`: what was counted of them is forgotten.
    fn start(
        &mut self,
        start: &mut dyn Start,
        translated: &Translated,
        chosen: &[usize],
        recording: Option<Capture>,
        clear: bool,
    ) -> Result<bool, Refusal> {
        let going = |(i, flow): (usize, &Flow)| {
            flow.state != Transmit::Stopped && !(clear && chosen.contains(&i))
        };
        let others = self.flows.iter().enumerate().any(going);
        if self.is_on() && others && self.join(translated, chosen, clear)? {
            return Ok(false);
        }
        self.begin(start, translated, chosen, recording, clear)?;
        Ok(true)
    }

    /// A new run.
    fn begin(
        &mut self,
        start: &mut dyn Start,
        translated: &Translated,
        chosen: &[usize],
        recording: Option<Capture>,
        clear: bool,
    ) -> Result<(), Refusal> {
        self.end();
        self.fold();
        let among: HashSet<usize> = chosen.iter().copied().collect();
        let mut profile = translated.profile.clone();
        for (i, info) in translated.flows.iter().enumerate() {
            for stream in &info.streams {
                profile.streams[stream.stream].self_start = among.contains(&i);
            }
        }
        let places = places(translated);
        let session = Session {
            capture: recording,
            places: places.clone(),
            command: "otg".into(),
            ..Session::new(profile.clone())
        };
        let driven = start.start("otg traffic", session)?;
        if clear {
            self.ports_before.fill(PortTotals::default());
        }
        for (i, (flow, info)) in self.flows.iter_mut().zip(&translated.flows).enumerate() {
            for (part, stream) in flow.parts.iter_mut().zip(&info.streams) {
                if clear && among.contains(&i) {
                    part.before = Tally::default();
                }
                part.names = vec![profile.streams[stream.stream].name.clone()];
                part.place = place_in(&places, info);
            }
            flow.state = if among.contains(&i) { Transmit::Started } else { Transmit::Stopped };
        }
        self.run = Some(Running { driven, profile, places });
        Ok(())
    }

    /// Does something to the run. `None`: it had come to its end by itself, so that all its flows
    /// are stopped.
    fn with<T>(
        &mut self,
        what: impl FnOnce(&mut Run) -> Result<T, Error>,
    ) -> Result<Option<T>, Refusal> {
        let Some(run) = &self.run else { return Ok(None) };
        match run.driven.with(what) {
            Err(_) if run.driven.is_over() => {
                run.driven.wait(PATIENCE);
                self.see();
                Ok(None)
            }
            done => Ok(Some(done?)),
        }
    }

    /// False where the run is over.
    fn change(&mut self, profile: Profile) -> Result<bool, Refusal> {
        let changed = self.with(|run| run.change(profile.clone()))?.is_some();
        if let Some(run) = self.run.as_mut().filter(|_| changed) {
            run.profile = profile;
        }
        Ok(changed)
    }

    /// Into the run that sends others. False where that is over.
    fn join(
        &mut self,
        translated: &Translated,
        chosen: &[usize],
        clear: bool,
    ) -> Result<bool, Refusal> {
        let Some(run) = &self.run else { return Ok(false) };
        tracks(run, chosen.iter().map(|&f| &translated.flows[f]))?;
        let places = run.places.clone();
        let mut profile = run.profile.clone();
        let mut taken: HashSet<String> = profile.streams.iter().map(|s| s.name.clone()).collect();
        taken.extend(
            self.flows
                .iter()
                .flat_map(|flow| &flow.parts)
                .flat_map(|part| part.names.iter().cloned()),
        );
        let mut named = Vec::new();
        for &f in chosen {
            for stream in &translated.flows[f].streams {
                let plain = &translated.profile.streams[stream.stream].name;
                let fresh =
                    (2..).map(|n| format!("{plain} ({n})")).find(|name| !taken.contains(name));
                let fresh = fresh.expect("numbers do not end");
                taken.insert(fresh.clone());
                let stream = &mut profile.streams[stream.stream];
                (stream.name, stream.self_start) = (fresh.clone(), true);
                named.push(fresh);
            }
        }
        if !self.change(profile)? {
            return Ok(false);
        }
        let mut named = named.into_iter();
        for &f in chosen {
            let flow = &mut self.flows[f];
            for part in &mut flow.parts {
                if clear {
                    *part = Part::default();
                }
                part.names.extend(named.next());
                part.place = place_in(&places, &translated.flows[f]);
            }
            flow.state = Transmit::Started;
        }
        Ok(true)
    }

    fn stop(&mut self, chosen: &[usize]) -> Result<(), Refusal> {
        let going: Vec<_> =
            (0..self.flows.len()).filter(|&f| self.flows[f].state != Transmit::Stopped).collect();
        let among: HashSet<usize> = chosen.iter().copied().collect();
        if going.iter().all(|f| among.contains(f)) {
            self.end();
            return Ok(());
        }
        let stopping: Vec<_> = going.into_iter().filter(|f| among.contains(f)).collect();
        self.hold(&stopping, Transmit::Stopped)
    }

    /// They send nothing more, for now or for good.
    fn hold(&mut self, chosen: &[usize], state: Transmit) -> Result<(), Refusal> {
        if chosen.is_empty() {
            return Ok(());
        }
        let names = self.current(chosen);
        if self.with(|run| names.iter().try_for_each(|name| run.pause(Some(name))))?.is_some() {
            chosen.iter().for_each(|&f| self.flows[f].state = state);
            if let Some(run) = &self.run {
                // What they had sent by now, not up to a tenth of a second ago.
                let (now, _) = run.driven.totals(Duration::ZERO);
                chosen.iter().for_each(|&f| self.flows[f].quiet = Some(now.clone()));
            }
        }
        Ok(())
    }

    fn resume(&mut self, chosen: &[usize]) -> Result<(), Refusal> {
        let paused: Vec<_> =
            chosen.iter().copied().filter(|&f| self.flows[f].state == Transmit::Paused).collect();
        if paused.is_empty() {
            return Ok(());
        }
        let names = self.current(&paused);
        if self.with(|run| names.iter().try_for_each(|name| run.resume(Some(name))))?.is_some() {
            paused.into_iter().for_each(|f| self.flows[f].state = Transmit::Started);
        }
        Ok(())
    }

    /// What the streams of these flows are called in the run.
    fn current(&self, chosen: &[usize]) -> Vec<String> {
        let parts = chosen.iter().flat_map(|&f| &self.flows[f].parts);
        parts.filter_map(|part| part.names.last().cloned()).collect()
    }

    /// What the run that has ended counted is what was counted before.
    fn fold(&mut self) {
        let Some(seen) = self.see() else { return };
        for (port, before) in self.ports_before.iter_mut().enumerate() {
            *before = plus(*before, seen.now.ports.get(port).copied().unwrap_or_default());
        }
        for part in self.flows.iter_mut().flat_map(|flow| &mut flow.parts) {
            part.before = part.tally(Some(&seen));
            part.names.clear();
        }
        self.run = None;
    }
}

impl Flow {
    fn of(info: &FlowInfo) -> Self {
        Self {
            state: Transmit::Stopped,
            quiet: None,
            parts: vec![Part::default(); info.streams.len()],
        }
    }
}

impl Part {
    /// Since it was started.
    pub fn tally(&self, seen: Option<&Seen>) -> Tally {
        let mut tally = self.before.clone();
        if let Some(seen) = seen {
            self.add(&mut tally, seen, &seen.now);
        }
        tally
    }

    /// By this run, and what that was about a second before, or since `flow` sends no more, with
    /// the seconds between the two; `None` if the run is over.
    pub fn change(&self, flow: &Flow, seen: Option<&Seen>) -> Option<(Tally, Tally, f64)> {
        let seen = seen.filter(|seen| !seen.over)?;
        let before = seen.then(flow.quiet.as_ref());
        let (mut now, mut then) = (Tally::default(), Tally::default());
        self.add(&mut now, seen, &seen.now);
        self.add(&mut then, seen, before);
        Some((now, then, seen.seconds(before)))
    }

    fn add(&self, tally: &mut Tally, seen: &Seen, totals: &Totals) {
        let numbers = self.names.iter().filter_map(|name| seen.numbers.get(name)).flatten();
        let streams = numbers.filter_map(|&number| totals.streams.get(number));
        for stream in streams {
            tally.tx_packets += stream.tx_packets;
            tally.tx_octets += stream.tx_octets;
            let wall = |at: u64| at.saturating_add_signed(totals.wall_offset_ns);
            let on_wall = |mut counters: StreamCounters| {
                counters.delay.arrivals_ns =
                    counters.delay.arrivals_ns.map(|(first, last)| (wall(first), wall(last)));
                counters
            };
            tally.rx.extend(stream.rx.iter().map(|&(port, counters)| (port, on_wall(counters))));
            let here = stream.tracked.iter().filter(|(_, place, ..)| Some(*place) == self.place);
            tally
                .tracked
                .extend(here.map(|&(port, _, value, counters)| (port, value, on_wall(counters))));
        }
    }

    fn sent_last(&self, seen: &Seen) -> u64 {
        let number = self.names.last().and_then(|name| seen.numbers.get(name));
        number
            .and_then(|numbers| numbers.last())
            .and_then(|&number| seen.now.streams.get(number))
            .map_or(0, |stream| stream.tx_packets)
    }
}

impl Seen {
    /// What rates are taken from: the counters of about a second before, or those since which
    /// nothing is sent.
    fn then<'a>(&'a self, quiet: Option<&'a Arc<Totals>>) -> &'a Totals {
        quiet.filter(|quiet| quiet.taken > self.then.taken).unwrap_or(&self.then)
    }

    fn seconds(&self, then: &Totals) -> f64 {
        // A frame that comes a moment after the end is no great rate.
        let least = if std::ptr::eq(then, &raw const *self.then) { 1e-3 } else { 0.1 };
        self.now.taken.saturating_duration_since(then.taken).as_secs_f64().max(least)
    }
}

/// Where frames of any of the flows are told apart.
fn places(translated: &Translated) -> Arc<[Place]> {
    let mut places: Vec<Place> = Vec::new();
    for place in translated.flows.iter().filter_map(place) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places.into()
}

fn place_in(places: &[Place], info: &FlowInfo) -> Option<u16> {
    let place = place(info)?;
    places.iter().position(|known| *known == place).map(|index| index as u16)
}

/// Where the frames of a flow are told apart.
pub fn place(info: &FlowInfo) -> Option<Place> {
    let tags = &info.egress.as_ref()?.tags;
    Place::new(tags.iter().map(|tag| Bits { first: tag.bit, count: tag.bits }).collect())
}

/// What is looked at where frames arrive is settled when a run begins.
fn tracks<'a>(run: &Running, mut flows: impl Iterator<Item = &'a FlowInfo>) -> Result<(), Refusal> {
    let new = flows.find(|info| info.egress.is_some() && place_in(&run.places, info).is_none());
    new.map_or(Ok(()), |info| {
        let why = "has an egress_packet that cannot be read while other flows are sent\n  try to \
                   stop all flows first";
        Err(Refusal {
            code: 400,
            kind: "validation".into(),
            errors: vec![format!("flow {:?} {why}", info.name)],
        })
    })
}

/// Indices of the flows of these names; of all without any.
///
/// # Errors
/// A name that is not there.
pub fn chosen(translated: &Translated, names: &[String]) -> Result<Vec<usize>, Refusal> {
    if names.is_empty() {
        return Ok((0..translated.flows.len()).collect());
    }
    let places: HashMap<&str, usize> =
        translated.flows.iter().enumerate().map(|(i, flow)| (flow.name.as_str(), i)).collect();
    let find = |name: &String| {
        let found = places.get(name.as_str()).copied();
        found.ok_or_else(|| {
            unknown("flow_names", "flow", name, translated.flows.iter().map(|f| f.name.as_str()))
        })
    };
    names.iter().map(find).collect()
}

/// Frames of a stream in all; `None`: it has no end.
fn total(mode: Mode) -> Option<u64> {
    match mode {
        Mode::Continuous => None,
        Mode::Burst(packets) => Some(packets),
        Mode::Bursts { bursts, packets, .. } => Some(bursts.saturating_mul(packets)),
    }
}

fn plus(a: PortTotals, b: PortTotals) -> PortTotals {
    PortTotals {
        tx_packets: a.tx_packets + b.tx_packets,
        tx_octets: a.tx_octets + b.tx_octets,
        rx_packets: a.rx_packets + b.rx_packets,
        rx_octets: a.rx_octets + b.rx_octets,
        rx_unsigned: a.rx_unsigned + b.rx_unsigned,
        rx_unknown: a.rx_unknown + b.rx_unknown,
        beyond: a.beyond + b.beyond,
    }
}
