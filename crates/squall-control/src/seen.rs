//! Counters of a run by member, as of now and as of about a second ago.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use squall::{
    report::{Report, StreamReport},
    totals::{StreamTotals, Totals},
};

use crate::{Counted, Counts};

/// Counters at one time, and those from about a second earlier.
pub struct Seen<K> {
    now: Arc<Totals>,
    then: Arc<Totals>,
    report: Option<Arc<Report>>,
    /// Index in the report of each stream, by name.
    reports: HashMap<String, usize>,
    /// Streams of each member: (number, port), in ascending order of number.
    numbers: BTreeMap<K, Vec<(usize, usize)>>,
}

/// The start of the period over which a rate is measured.
#[derive(Clone, Copy)]
pub struct Span<'a> {
    pub then: &'a Totals,
    pub seconds: f64,
}

impl<K: Copy + Ord> Seen<K> {
    /// `joined` has the member and the port of each stream, by its name.
    pub(crate) fn new(
        now: Arc<Totals>,
        then: Arc<Totals>,
        report: Option<Arc<Report>>,
        joined: impl Fn(&str) -> Option<(K, usize)>,
    ) -> Self {
        let mut numbers: BTreeMap<K, Vec<(usize, usize)>> = BTreeMap::new();
        for (number, stream) in now.streams.iter().enumerate() {
            if let Some((member, port)) = joined(&stream.name) {
                numbers.entry(member).or_default().push((number, port));
            }
        }
        let streams = report.iter().flat_map(|report| report.streams.iter().enumerate());
        let reports = streams.map(|(number, stream)| (stream.name.clone(), number)).collect();
        Self { now, then, report, reports, numbers }
    }

    pub fn now(&self) -> &Arc<Totals> {
        &self.now
    }

    pub fn report(&self) -> Option<&Arc<Report>> {
        self.report.as_ref()
    }

    /// The start of the period for rates: about a second ago, or `quiet` (the totals from when
    /// sending stopped) if that is later.
    pub fn span<'a>(&'a self, quiet: Option<&'a Arc<Totals>>) -> Span<'a> {
        let quiet = quiet.filter(|quiet| quiet.taken > self.then.taken);
        let then = quiet.unwrap_or(&self.then);
        // Use a longer minimum after sending has stopped, otherwise a single late frame would give
        // a high rate.
        let least = if quiet.is_some() { 0.1 } else { 1e-3 };
        let seconds = self.now.taken.saturating_duration_since(then.taken).as_secs_f64();
        Span { then, seconds: seconds.max(least) }
    }

    /// Number of frames that the newest stream of a member has sent, if it has this name. 0 if the
    /// counters were taken before it joined.
    pub fn sent_last(&self, member: K, name: &str) -> u64 {
        let newest = self.numbers.get(&member).and_then(|numbers| numbers.last());
        let newest = newest.and_then(|(number, _)| self.now.streams.get(*number));
        newest.filter(|stream| stream.name == name).map_or(0, |stream| stream.tx_packets)
    }

    /// Members with streams in the run.
    pub fn members(&self) -> impl Iterator<Item = K> + '_ {
        self.numbers.keys().copied()
    }

    /// Adds the run's counters up to now, including those in its report.
    pub(crate) fn add_to<C: Counts>(&self, counts: &mut C, member: K) {
        for (stream, port) in self.streams(member, &self.now) {
            counts.add(&Counted {
                port,
                stream,
                report: self.report_of(&stream.name),
                wall_offset_ns: self.now.wall_offset_ns,
            });
        }
    }

    /// Adds the run's counters as of `totals`.
    pub(crate) fn at<C: Counts>(&self, mut counts: C, member: K, totals: &Totals) -> C {
        let wall_offset_ns = totals.wall_offset_ns;
        for (stream, port) in self.streams(member, totals) {
            counts.add(&Counted { port, stream, report: None, wall_offset_ns });
        }
        counts
    }

    fn report_of(&self, name: &str) -> Option<&StreamReport> {
        self.report.as_ref()?.streams.get(*self.reports.get(name)?)
    }

    fn streams<'a>(
        &'a self,
        member: K,
        totals: &'a Totals,
    ) -> impl Iterator<Item = (&'a StreamTotals, usize)> {
        let numbers = self.numbers.get(&member).into_iter().flatten();
        numbers.filter_map(|&(number, port)| Some((totals.streams.get(number)?, port)))
    }
}
