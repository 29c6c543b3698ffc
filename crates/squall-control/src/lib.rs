//! A run whose members join and leave, and counters that survive its restarts.
//!
//! Input: profiles, and names under which streams are counted. Output: counters of each member and
//! each port since their first use, across any number of runs. A [`Control`] has at most one run.
//! If the next profile permits, the run changes to it. If it does not, or if the run is over, a new
//! run replaces it and its streams continue at their positions.
//!
//! This crate does not know the protocol: the caller's [`Counts`] define what a member is (a flow
//! of OTG, a packet group of TRex) and which counters of its streams it has. It knows no messages
//! and no leases, because a [`Start`] creates the runs and the [`recordings`] of interfaces.
//!
//! Each of these runs has its own thread: [`DrivenRun`]. The daemon drives its other runs in the
//! same way.
#![forbid(unsafe_code)]

mod carry;
pub mod driving;
pub mod recordings;
mod seen;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use squall::{
    Error, Profile, Run, Session,
    report::{PortReport, Report, StreamReport},
    totals::{PortTotals, StreamTotals},
};

use driving::{DrivenRun, Start};

pub use carry::frames;
pub use seen::{Seen, Span};

/// Time limit for the end of a run: frames in flight are received, and files are written.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The counters that a member derives from its streams.
pub trait Counts: Clone + Default {
    /// Adds the counters of one stream of a run.
    fn add(&mut self, stream: &Counted<'_>);

    /// Returns zeroed counters for the same member.
    fn zero(&self) -> Self {
        Self::default()
    }
}

/// Counters of one stream of a run.
pub struct Counted<'a> {
    /// The port on which the stream is sent.
    pub port: usize,
    pub stream: &'a StreamTotals,
    /// `None` while rates are being computed, and before the first report.
    pub report: Option<&'a StreamReport>,
    /// Offset from arrival times to nanoseconds since 1970.
    pub wall_offset_ns: i64,
}

/// How a run ended.
pub type Outcome = Result<Arc<Report>, Arc<Error>>;

/// A run, and the counters of the runs before it. `K` is the type that identifies a member.
pub struct Control<K, C> {
    run: Option<Running>,
    /// Member and port of each stream, by the stream's name.
    streams: HashMap<String, Joined<K>>,
    /// Members' counters from former runs.
    before: BTreeMap<K, C>,
    /// Ports' counters from former runs.
    ports: Vec<PortCounts>,
    /// Frames that continued streams sent in former runs.
    carried: HashMap<String, u64>,
    /// Paused streams.
    paused: HashSet<String>,
    /// Names of all streams that the run has had so far.
    used: HashSet<String>,
}

struct Running {
    driven: Arc<DrivenRun>,
    /// The profile as it runs now, not counting positions carried over from former runs.
    profile: Profile,
}

#[derive(Clone, Copy)]
struct Joined<K> {
    member: K,
    port: usize,
}

/// Counters of a port.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortCounts {
    pub totals: PortTotals,
    /// Frames that the interface received and the run did not.
    pub missed: u64,
    /// Frames that the port refused.
    pub tx_errors: u64,
    /// Frames that were due and did not leave, for any reason.
    pub not_sent: u64,
}

impl<K: Copy + Ord, C: Counts> Control<K, C> {
    pub fn new(ports: usize) -> Self {
        Self {
            run: None,
            streams: HashMap::new(),
            before: BTreeMap::new(),
            ports: vec![PortCounts::default(); ports],
            carried: HashMap::new(),
            paused: HashSet::new(),
            used: HashSet::new(),
        }
    }

    /// Starts a new run. Its streams start from the beginning, and former counters are kept. A
    /// stream is counted once [`Control::count`] has named it.
    ///
    /// # Errors
    /// Errors of the run. Nothing is sent then.
    pub fn begin(
        &mut self,
        start: &mut dyn Start,
        name: &str,
        session: Session,
    ) -> Result<(), Error> {
        self.end();
        self.run(start, name, session)
    }

    /// Replaces the run. Streams with the same name continue at their position and are counted as
    /// before. A burst that has ended is not sent again.
    ///
    /// # Errors
    /// Errors of the run. Nothing is sent then.
    pub fn restart(
        &mut self,
        start: &mut dyn Start,
        name: &str,
        session: Session,
    ) -> Result<(), Error> {
        self.finish();
        let names: HashSet<&str> =
            session.profile.streams.iter().map(|stream| stream.name.as_str()).collect();
        self.carried.retain(|name, _| names.contains(name.as_str()));
        self.paused.retain(|name| names.contains(name.as_str()));
        self.streams.retain(|name, _| names.contains(name.as_str()));
        self.run(start, name, session)
    }

    fn run(
        &mut self,
        start: &mut dyn Start,
        name: &str,
        mut session: Session,
    ) -> Result<(), Error> {
        let profile = session.profile.clone();
        carry::carry_on(&mut session.profile.streams, &self.carried);
        let driven = start.start(name, session)?;
        self.used.extend(profile.streams.iter().map(|stream| stream.name.clone()));
        self.run = Some(Running { driven, profile });
        self.with(|run| self.paused.iter().try_for_each(|name| run.pause(Some(name))))?;
        Ok(())
    }

    /// Changes the run to this profile: streams join, leave, or change their rates. Returns false
    /// if there is no run, or if it has ended by itself.
    ///
    /// # Errors
    /// Errors of the run, which then continues unchanged.
    pub fn change(&mut self, profile: Profile) -> Result<bool, Error> {
        let mut carried = profile.clone();
        carry::carry_on(&mut carried.streams, &self.carried);
        let changed = self.with(|run| run.change(carried))?.is_some();
        if let Some(run) = self.run.as_mut().filter(|_| changed) {
            self.used.extend(profile.streams.iter().map(|stream| stream.name.clone()));
            run.profile = profile;
        }
        Ok(changed)
    }

    /// Calls `what` with the run. Returns `None` if there is no run, or if it has ended by itself.
    ///
    /// # Errors
    /// Errors of the run.
    pub fn with<T>(
        &self,
        what: impl FnOnce(&mut Run) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let Some(run) = &self.run else { return Ok(None) };
        match run.driven.with(what) {
            Err(_) if run.driven.is_over() => {
                run.driven.wait(END_TIMEOUT);
                Ok(None)
            }
            done => done.map(Some),
        }
    }

    /// Pauses these streams in this run and in the runs that replace it. Returns false if there is
    /// no run, or if it has ended by itself.
    ///
    /// # Errors
    /// If a name is unknown.
    pub fn pause(&mut self, names: &[String]) -> Result<bool, Error> {
        let done = self.with(|run| names.iter().try_for_each(|name| run.pause(Some(name))))?;
        self.paused.extend(names.iter().cloned());
        Ok(done.is_some())
    }

    /// Resumes these streams at their position. Returns false as [`Control::pause`] does.
    ///
    /// # Errors
    /// If a name is unknown.
    pub fn resume(&mut self, names: &[String]) -> Result<bool, Error> {
        let done = self.with(|run| names.iter().try_for_each(|name| run.resume(Some(name))))?;
        names.iter().for_each(|name| _ = self.paused.remove(name));
        Ok(done.is_some())
    }

    /// Stops sending. The outcome follows once the work in progress has ended.
    pub fn stop(&self) {
        if let Some(run) = &self.run {
            run.driven.stop();
        }
    }

    /// Ends the run and closes the ports. Streams of a later run start from the beginning, even if
    /// they have the same names.
    pub fn end(&mut self) -> Option<Outcome> {
        let outcome = self.finish();
        self.streams.clear();
        self.carried.clear();
        self.paused.clear();
        outcome
    }

    fn finish(&mut self) -> Option<Outcome> {
        self.stop();
        let outcome = self.run.as_ref()?.driven.wait(END_TIMEOUT);
        self.fold();
        outcome
    }

    /// Returns the outcome of the run once, and adds the run's counters to those of former runs.
    pub fn ended(&mut self) -> Option<Outcome> {
        let outcome = self.outcome()?;
        self.fold();
        Some(outcome)
    }

    /// Adds the run's counters to those of former runs.
    fn fold(&mut self) {
        let Some(seen) = self.see_all(Duration::ZERO) else { return };
        self.before = self.members(Some(&seen));
        self.ports = self.ports(Some(&seen)).collect();
        for stream in &seen.now().streams {
            *self.carried.entry(stream.name.clone()).or_default() += stream.tx_packets;
        }
        self.used.clear();
        self.run = None;
    }

    // Members

    /// Counts the stream with this name for the member.
    pub fn count(&mut self, stream: &str, port: usize, member: K) {
        self.streams.insert(stream.to_owned(), Joined { member, port });
    }

    /// Resets members: removes their counters and their streams.
    pub fn forget(&mut self, which: impl Fn(K) -> bool) {
        self.before.retain(|member, _| !which(*member));
        self.streams.retain(|_, joined| !which(joined.member));
    }

    /// Counters of a member from former runs.
    pub fn before(&mut self, member: K) -> &mut C {
        self.before.entry(member).or_default()
    }

    /// Resets the counters of all ports.
    pub fn reset_ports(&mut self) {
        self.ports.fill(PortCounts::default());
    }

    /// Returns `plain (N)`, with the lowest N (2 or more) that no stream of the run has used.
    pub fn fresh_name(&mut self, plain: &str) -> String {
        let mut numbered = (2..).map(|n| format!("{plain} ({n})"));
        let fresh = numbered.find(|name| !self.used.contains(name));
        let fresh = fresh.expect("numbers do not end");
        self.used.insert(fresh.clone());
        fresh
    }

    // The run

    /// The profile that runs now.
    pub fn profile(&self) -> Option<&Profile> {
        self.run.as_ref().map(|run| &run.profile)
    }

    /// Whether there is a run with open ports.
    pub fn is_on(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.driven.outcome().is_none())
    }

    /// Whether the run no longer accepts changes. False if there is no run.
    pub fn is_over(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.driven.is_over())
    }

    /// The outcome of the run, if it is over and [`Control::ended`] has not returned it.
    pub fn outcome(&self) -> Option<Outcome> {
        self.run.as_ref()?.driven.outcome()
    }

    /// The report of the run: the report so far, or the final one.
    pub fn report(&self) -> Option<Arc<Report>> {
        let run = self.run.as_ref()?;
        match run.driven.outcome() {
            Some(outcome) => outcome.ok(),
            None => run.driven.latest().map(|latest| Arc::new(latest.report.clone())),
        }
    }

    /// The time at which the latest report was made.
    pub fn reported(&self) -> Option<Instant> {
        self.run.as_ref()?.driven.latest().map(|latest| latest.taken)
    }

    /// Number of frames that the streams have sent, in this run and in those that they continue.
    pub fn sent<'a>(&self, age: Duration, names: impl Iterator<Item = &'a str>) -> u64 {
        let names: HashSet<&str> = names.collect();
        let before = names.iter().filter_map(|name| self.carried.get(*name)).sum::<u64>();
        let now = self.run.as_ref().map(|run| run.driven.totals(age).0);
        let streams = now.iter().flat_map(|now| &now.streams);
        let counted = streams.filter(|stream| names.contains(stream.name.as_str()));
        before + counted.map(|stream| stream.tx_packets).sum::<u64>()
    }

    // Counters

    /// Counters of the run, at most `age` old; `None` if there is no run.
    pub fn see(&self, age: Duration) -> Option<Seen<K>> {
        self.seen(age, None)
    }

    /// As [`Control::see`], with the report.
    pub fn see_all(&self, age: Duration) -> Option<Seen<K>> {
        self.seen(age, self.report())
    }

    fn seen(&self, age: Duration, report: Option<Arc<Report>>) -> Option<Seen<K>> {
        let (now, then) = self.run.as_ref()?.driven.totals(age);
        Some(Seen::new(now, then, report, |name| {
            self.streams.get(name).map(|joined| (joined.member, joined.port))
        }))
    }

    /// Counters of a member.
    pub fn member(&self, member: K, seen: Option<&Seen<K>>) -> C {
        let mut counts = self.before.get(&member).cloned().unwrap_or_default();
        if let Some(seen) = seen {
            seen.add_to(&mut counts, member);
        }
        counts
    }

    /// Counters of all members.
    pub fn members(&self, seen: Option<&Seen<K>>) -> BTreeMap<K, C> {
        let mut all = self.before.clone();
        for (seen, member) in seen.into_iter().flat_map(|s| s.members().map(move |m| (s, m))) {
            seen.add_to(all.entry(member).or_default(), member);
        }
        all
    }

    /// The member's counters from this run, at the end and at the start of `span`.
    pub fn between(&self, member: K, seen: &Seen<K>, span: &Span<'_>) -> (C, C) {
        let zero = || self.before.get(&member).map(C::zero).unwrap_or_default();
        (seen.at(zero(), member, seen.now()), seen.at(zero(), member, span.then))
    }

    /// As [`Control::port`], for all ports.
    pub fn ports(&self, seen: Option<&Seen<K>>) -> impl Iterator<Item = PortCounts> {
        (0..self.ports.len()).map(move |port| self.port(port, seen))
    }

    /// Counters of a port. Errors are known only if there is a report.
    pub fn port(&self, port: usize, seen: Option<&Seen<K>>) -> PortCounts {
        let mut counts = self.ports.get(port).copied().unwrap_or_default();
        let Some(seen) = seen else { return counts };
        if let Some(now) = seen.now().ports.get(port) {
            counts.totals = plus(counts.totals, *now);
        }
        if let Some(report) = seen.report().and_then(|report| report.ports.get(port)) {
            counts.add_faults(report);
        }
        counts
    }
}

impl PortCounts {
    fn add_faults(&mut self, port: &PortReport) {
        self.missed += port.rx.drops.values().sum::<u64>();
        self.tx_errors += port.tx.errors;
        self.not_sent += port.tx.not_sent.values().sum::<u64>();
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

#[cfg(test)]
mod tests;
