//! Flows of a configuration: transmit states and counters across runs.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use squall::{
    Session,
    totals::{PortTotals, Totals},
};
use squall_control::{Control, Counted, Counts, Outcome, driving::Start, frames};
use squall_measure::{
    StreamCounters,
    track::{Bits, Place},
};
use squall_options::CaptureOptions;
use squall_profile::Profile;

use super::{AGE, Refusal, unknown};
use crate::{FlowInfo, Translated, replies::TransmitState};

/// The flows of a configuration, and the run that sends them.
///
/// A run contains all flows; stopped ones wait for a start signal that never comes. To start a flow
/// during a run, it is replaced by one with a new name, which begins at its first frame and counts
/// from zero.
pub struct Traffic {
    pub flows: Vec<Flow>,
    control: Control<Member, Tally>,
    members: u64,
    /// Bit positions in the flows' frames whose values this run counts separately.
    places: Arc<[Place]>,
    /// How the last run ended.
    ended: Option<Outcome>,
}

/// Identifies a [`Part`] in the run's counters.
type Member = u64;

pub type Seen = squall_control::Seen<Member>;

pub struct Flow {
    pub state: Transmit,
    /// Counters at the end of transmission. The final rate uses these, so frames received later do
    /// not affect it.
    quiet: Option<Arc<Totals>>,
    /// One part for each stream of the flow.
    pub parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    Started,
    Paused,
    Stopped,
}

/// A stream of a flow.
#[derive(Clone)]
pub struct Part {
    member: Member,
    /// The stream's name in the run.
    name: Option<String>,
}

/// Counters of a stream.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Index of the flow's bit positions ([`place`]) among those that the run tracks.
    place: Option<u16>,
    pub tx_packets: u64,
    pub tx_octets: u64,
    pub rx: Vec<(usize, StreamCounters)>,
    /// Counters of received frames per value at these bit positions: (port, value, counters).
    pub tracked: Vec<(usize, u128, StreamCounters)>,
}

impl Counts for Tally {
    fn add(&mut self, by: &Counted<'_>) {
        let stream = by.stream;
        self.tx_packets += stream.tx_packets;
        self.tx_octets += stream.tx_octets;
        let wall = |at: u64| at.saturating_add_signed(by.wall_offset_ns);
        let on_wall = |mut counters: StreamCounters| {
            counters.delay.arrivals_ns =
                counters.delay.arrivals_ns.map(|(first, last)| (wall(first), wall(last)));
            counters
        };
        self.rx.extend(stream.rx.iter().map(|&(port, counters)| (port, on_wall(counters))));
        let here = stream.tracked.iter().filter(|(_, place, ..)| Some(*place) == self.place);
        self.tracked
            .extend(here.map(|&(port, _, value, counters)| (port, value, on_wall(counters))));
    }

    fn zero(&self) -> Self {
        Self { place: self.place, ..Self::default() }
    }
}

impl Traffic {
    pub fn of(translated: &Translated) -> Self {
        let mut members = 0;
        Self {
            flows: translated.flows.iter().map(|info| Flow::of(info, &mut members)).collect(),
            control: Control::new(translated.ports.len()),
            members,
            places: Arc::default(),
            ended: None,
        }
    }

    /// `recording`: capture options for a new run. Returns whether a new run has begun.
    ///
    /// # Errors
    /// Unknown names, or a refusal of the run.
    pub fn transmit(
        &mut self,
        start: &mut dyn Start,
        translated: &Translated,
        names: &[String],
        state: TransmitState,
        recording: Option<CaptureOptions>,
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
                self.set_idle(&started, Transmit::Paused)?;
                Ok(false)
            }
            TransmitState::Stop => {
                self.stop(&chosen)?;
                Ok(false)
            }
        }
    }

    /// Whether there is a run that has ports open.
    pub fn is_on(&self) -> bool {
        self.control.is_on()
    }

    /// Warnings about the run that has ended.
    pub fn warnings(&mut self) -> Vec<String> {
        self.see();
        let mut warnings: Vec<String> = match &self.ended {
            None => return Vec::new(),
            Some(Ok(report)) => report.verdict.reasons.iter().map(ToString::to_string).collect(),
            Some(Err(error)) => vec![error.to_string()],
        };
        match self.control.ports(None).map(|port| port.totals.beyond).sum::<u64>() {
            0 => {}
            beyond => warnings.push(format!(
                "{beyond} frames are missing in tagged_metrics: too many different tags arrived"
            )),
        }
        warnings
    }

    /// Stops all traffic.
    pub fn end(&mut self) {
        let outcome = self.control.end();
        self.has_ended(outcome);
    }

    fn has_ended(&mut self, outcome: Option<Outcome>) {
        self.ended = outcome.or(self.ended.take());
        self.flows.iter_mut().for_each(Flow::has_ended);
    }

    /// Current counters. Marks completed flows as stopped.
    pub fn see(&mut self) -> Option<Seen> {
        if let Some(outcome) = self.control.ended() {
            self.has_ended(Some(outcome));
        }
        let seen = self.control.see(AGE)?;
        let streams = self.control.profile().into_iter().flat_map(|profile| &profile.streams);
        let ends: HashMap<&str, u64> =
            streams.filter_map(|s| Some((s.name.as_str(), frames(s.mode)?))).collect();
        for flow in &mut self.flows {
            let at_end = |part: &Part| {
                let Some(name) = part.name.as_deref() else { return false };
                ends.get(name).is_some_and(|end| seen.sent_last(part.member, name) >= *end)
            };
            if flow.state == Transmit::Started && flow.parts.iter().all(at_end) {
                flow.state = Transmit::Stopped;
            }
            match flow.state {
                Transmit::Started => flow.quiet = None,
                Transmit::Paused | Transmit::Stopped => {
                    _ = flow.quiet.get_or_insert_with(|| seen.now().clone())
                }
            }
        }
        if !self.flows.is_empty() && self.flows.iter().all(|flow| flow.state == Transmit::Stopped) {
            // Stopped flows still wait in the run, although nothing is left to send.
            self.control.stop();
        }
        Some(seen)
    }

    /// Counters of a port now and about a second earlier.
    pub fn port(
        &self,
        port: usize,
        seen: Option<&Seen>,
    ) -> (PortTotals, Option<(PortTotals, PortTotals, f64)>) {
        let all = self.control.port(port, seen).totals;
        // If no flow is sending, the interval ends when the last flow stopped.
        let quiet = self.flows.iter().map(|flow| flow.quiet.as_ref()).collect::<Option<Vec<_>>>();
        let quiet = quiet.and_then(|all| all.into_iter().max_by_key(|totals| totals.taken));
        let of = |totals: &Totals| totals.ports.get(port).copied().unwrap_or_default();
        let recent = seen.map(|seen| {
            let span = seen.span(quiet);
            (of(seen.now()), of(span.then), span.seconds)
        });
        (all, recent)
    }

    /// Counters of a stream since its start.
    pub fn tally(&self, part: &Part, seen: Option<&Seen>) -> Tally {
        self.control.member(part.member, seen)
    }

    /// Counters in this run now, those about a second earlier or at the end of `flow`, and the
    /// seconds between them; `None` if there is no run.
    pub fn recent(
        &self,
        flow: &Flow,
        part: &Part,
        seen: Option<&Seen>,
    ) -> Option<(Tally, Tally, f64)> {
        let span = seen?.span(flow.quiet.as_ref());
        let (now, then) = self.control.between(part.member, seen?, &span);
        Some((now, then, span.seconds))
    }

    /// Applies the flows of a changed configuration; flows of the same name keep their counters.
    ///
    /// # Errors
    /// The run refuses the change; then nothing changes.
    pub fn apply_flows(&mut self, old: &Translated, new: &Translated) -> Result<(), Refusal> {
        self.see();
        let places: HashMap<&str, usize> =
            old.flows.iter().enumerate().map(|(i, f)| (f.name.as_str(), i)).collect();
        let mut members = self.members;
        let mut flows: Vec<Flow> = (new.flows.iter())
            .map(|info| match places.get(info.name.as_str()).map(|place| &self.flows[*place]) {
                Some(flow) if flow.parts.len() == info.streams.len() => {
                    Flow { state: flow.state, quiet: flow.quiet.clone(), parts: flow.parts.clone() }
                }
                _ => Flow::of(info, &mut members),
            })
            .collect();
        if let Some(profile) = self.control.profile() {
            let going = new.flows.iter().zip(&flows).filter(|(_, f)| f.state != Transmit::Stopped);
            tracks(&self.places, going.map(|(info, _)| info))?;
            let names: HashSet<&str> = profile.streams.iter().map(|s| s.name.as_str()).collect();
            let mut profile = new.profile.clone();
            for (info, flow) in new.flows.iter().zip(&mut flows) {
                for (stream, part) in info.streams.iter().zip(&mut flow.parts) {
                    let stream = &mut profile.streams[stream.stream];
                    stream.self_start = flow.state != Transmit::Stopped;
                    if let Some(name) = part.name.as_ref().filter(|name| names.contains(&***name)) {
                        stream.name.clone_from(name);
                    }
                    part.name = Some(stream.name.clone());
                }
            }
            if self.change(profile.clone())? {
                for (info, flow) in new.flows.iter().zip(&flows) {
                    self.count(info, &flow.parts, &profile);
                }
            } else {
                flows.iter_mut().for_each(Flow::has_ended);
            }
        }
        (self.flows, self.members) = (flows, members);
        let parts = self.flows.iter().flat_map(|flow| &flow.parts);
        let known: HashSet<Member> = parts.map(|part| part.member).collect();
        self.control.forget(|member| !known.contains(&member));
        Ok(())
    }

    /// Registers the streams of a flow by name, so they are counted.
    fn count(&mut self, info: &FlowInfo, parts: &[Part], profile: &Profile) {
        for (stream, part) in info.streams.iter().zip(parts) {
            self.control.before(part.member).place = place_in(&self.places, info);
            if let Some(name) = &part.name {
                self.control.count(name, profile.streams[stream.stream].port, part.member);
            }
        }
    }

    /// Resets the counters of the chosen flows.
    fn clear(&mut self, chosen: &[usize]) {
        let parts = chosen.iter().flat_map(|&f| &self.flows[f].parts);
        let members: HashSet<Member> = parts.map(|part| part.member).collect();
        self.control.forget(|member| members.contains(&member));
    }

    /// Starts the chosen flows; `clear`: resets their counters.
    fn start(
        &mut self,
        start: &mut dyn Start,
        translated: &Translated,
        chosen: &[usize],
        recording: Option<CaptureOptions>,
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

    /// Starts a new run.
    fn begin(
        &mut self,
        start: &mut dyn Start,
        translated: &Translated,
        chosen: &[usize],
        recording: Option<CaptureOptions>,
        clear: bool,
    ) -> Result<(), Refusal> {
        self.end();
        let among: HashSet<usize> = chosen.iter().copied().collect();
        let mut profile = translated.profile.clone();
        for (i, info) in translated.flows.iter().enumerate() {
            for stream in &info.streams {
                profile.streams[stream.stream].self_start = among.contains(&i);
            }
        }
        let places = places(translated);
        let mut session = Session::new(profile.clone()).command("otg");
        session.options.capture = recording;
        session.caller.places = places.clone();
        self.control.begin(start, "otg traffic", session)?;
        (self.places, self.ended) = (places, None);
        if clear {
            self.control.reset_ports();
            self.clear(chosen);
        }
        for (i, info) in translated.flows.iter().enumerate() {
            let mut parts = std::mem::take(&mut self.flows[i].parts);
            for (part, stream) in parts.iter_mut().zip(&info.streams) {
                part.name = Some(profile.streams[stream.stream].name.clone());
            }
            self.count(info, &parts, &profile);
            let state = if among.contains(&i) { Transmit::Started } else { Transmit::Stopped };
            (self.flows[i].parts, self.flows[i].state) = (parts, state);
        }
        Ok(())
    }

    /// Changes the run; returns false if the run is over.
    fn change(&mut self, profile: Profile) -> Result<bool, Refusal> {
        let changed = self.control.change(profile)?;
        if !changed {
            self.see();
        }
        Ok(changed)
    }

    /// Starts flows in the current run; returns false if the run is over.
    fn join(
        &mut self,
        translated: &Translated,
        chosen: &[usize],
        clear: bool,
    ) -> Result<bool, Refusal> {
        tracks(&self.places, chosen.iter().map(|&f| &translated.flows[f]))?;
        let Some(mut profile) = self.control.profile().cloned() else { return Ok(false) };
        let mut joining = Vec::new();
        for &f in chosen {
            let mut parts = self.flows[f].parts.clone();
            for (part, stream) in parts.iter_mut().zip(&translated.flows[f].streams) {
                let fresh =
                    self.control.fresh_name(&translated.profile.streams[stream.stream].name);
                part.name = Some(fresh.clone());
                let stream = &mut profile.streams[stream.stream];
                (stream.name, stream.self_start) = (fresh, true);
            }
            joining.push(parts);
        }
        if !self.change(profile.clone())? {
            return Ok(false);
        }
        if clear {
            self.clear(chosen);
        }
        for (&f, parts) in chosen.iter().zip(joining) {
            self.count(&translated.flows[f], &parts, &profile);
            (self.flows[f].parts, self.flows[f].state) = (parts, Transmit::Started);
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
        self.set_idle(&stopping, Transmit::Stopped)
    }

    /// Pauses or stops the chosen flows.
    fn set_idle(&mut self, chosen: &[usize], state: Transmit) -> Result<(), Refusal> {
        if chosen.is_empty() {
            return Ok(());
        }
        let names = self.current(chosen);
        if !self.control.pause(&names)? {
            self.see();
            return Ok(());
        }
        // Current counters, not cached ones of up to a tenth of a second ago.
        let quiet = self.control.see(Duration::ZERO).map(|seen| seen.now().clone());
        for &f in chosen {
            (self.flows[f].state, self.flows[f].quiet) = (state, quiet.clone());
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
        match self.control.resume(&names)? {
            true => paused.into_iter().for_each(|f| self.flows[f].state = Transmit::Started),
            false => _ = self.see(),
        }
        Ok(())
    }

    /// Names that the chosen flows' streams have in the run.
    fn current(&self, chosen: &[usize]) -> Vec<String> {
        let parts = chosen.iter().flat_map(|&f| &self.flows[f].parts);
        parts.filter_map(|part| part.name.clone()).collect()
    }
}

impl Flow {
    /// `members`: the last number assigned; updated.
    fn of(info: &FlowInfo, members: &mut Member) -> Self {
        let part = |_| {
            *members += 1;
            Part { member: *members, name: None }
        };
        Self {
            state: Transmit::Stopped,
            quiet: None,
            parts: info.streams.iter().map(part).collect(),
        }
    }

    /// Resets the flow at the end of the run.
    fn has_ended(&mut self) {
        self.state = Transmit::Stopped;
        self.parts.iter_mut().for_each(|part| part.name = None);
    }
}

/// The bit positions whose values any of the flows distinguishes, without duplicates.
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

/// The bit positions whose values distinguish the frames of a flow, if it has egress tags.
pub fn place(info: &FlowInfo) -> Option<Place> {
    let tags = &info.egress.as_ref()?.tags;
    Place::new(tags.iter().map(|tag| Bits { first: tag.bit, count: tag.bits }).collect())
}

/// Checks that the run tracks the bit positions of the flows; these are fixed when it begins.
fn tracks<'a>(
    places: &[Place],
    mut flows: impl Iterator<Item = &'a FlowInfo>,
) -> Result<(), Refusal> {
    let new = flows.find(|info| info.egress.is_some() && place_in(places, info).is_none());
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

/// Indices of the named flows, or of all if `names` is empty.
///
/// # Errors
/// An unknown name.
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
