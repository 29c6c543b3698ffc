//! Captures as what is sent: where they are read from, and what became of them.

use std::{collections::BTreeMap, sync::Arc};

use squall_engine::Replayed;
use squall_measure::{census::Share, flow};
use squall_plan::{Plan, PlanReplay, PortLimits};
use squall_port::ETHERNET;
use squall_replay::{
    Chunk, Departure, Gap, Reader, Replay, ReplayError, Survey, Timing, stats::Summary,
};
use squall_units::Picos;

pub use squall_replay::{Decimal, Ramp, Speed, input};

use crate::{
    Error,
    report::{
        PortReport, ReplayEdits, ReplayFlows, ReplayPort, ReplayRead, ReplayReport, ReplayShare,
        source::SourceRecord,
    },
};

/// The frames of a replay as they are going to leave, in words.
pub struct Preview {
    source: Reader,
    chunk: Chunk,
    at: usize,
    number: u64,
}

impl Preview {
    /// # Errors
    /// [`Error::Usage`], as for the replay itself.
    pub fn open(replay: &Replay, ports: usize) -> Result<Self, Error> {
        let source = Reader::open(replay.clone(), vec![u32::MAX; ports])
            .map_err(|error| Error::Usage(error.to_string()))?;
        Ok(Self { source, chunk: Chunk::default(), at: 0, number: 0 })
    }
}

impl Iterator for Preview {
    /// The port (0 or 1), and a line in the manner of `tcpdump -n`.
    type Item = (u8, String);

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.chunk.departures.len() {
            // What is wrong with the captures is told by the run.
            self.source.fill(&mut self.chunk).ok().filter(|more| *more)?;
            self.at = 0;
        }
        let octets = self.chunk.frame(self.at);
        let line = squall_wire::summary(ETHERNET, octets, octets.len());
        let port = self.chunk.departures[self.at].port;
        (self.at, self.number) = (self.at + 1, self.number + 1);
        Some((port, format!("#{} {line}", self.number)))
    }
}

/// Takes the frames of captures that `expression` takes, in the language of tcpdump.
///
/// # Errors
/// [`Error::Usage`] for an expression that says nothing, [`Error::Environment`] without libpcap.
pub fn filter(expression: &str) -> Result<Arc<squall_bpf::classic::Filter>, Error> {
    let filter = crate::filter::compile_file(expression, ETHERNET)?;
    Ok(Arc::new(filter.program.clone()))
}

/// Reads into the captures of a plan before anything is sent, as far as that is quick: a survey for
/// each replay that leaves here by ports of these `limits`.
///
/// # Errors
/// [`Error::Usage`]: a frame would be due after the last instant of a run.
pub(crate) fn survey(plan: &Plan, limits: &[PortLimits]) -> Result<Vec<Option<Survey>>, Error> {
    let survey = |replay: &PlanReplay| {
        // Attacks are made while they are sent, at times that rates set.
        if !replay.is_here() || replay.fixed {
            return Ok(None);
        }
        let wrong = |what: String| Err(Error::Usage(format!("replay {:?}: {what}", replay.name)));
        let Some(left) = Picos::LONGEST_RUN.0.checked_sub(replay.start.0).filter(|left| *left > 0)
        else {
            return wrong(format!("it starts after {LONGEST}, where every run ends"));
        };
        let (num, den) = replay.speed;
        let horizon = u128::from(left) * u128::from(num) / u128::from(den);
        let horizon = Picos(u64::try_from(horizon).unwrap_or(u64::MAX)).min(LAST);
        let longest = replay.ports.iter().map(|&port| limits[port].max_frame).collect();
        let survey = Reader::survey(&replay.replay, longest, horizon)
            .map_err(|error| Error::Usage(error.to_string()))?;
        // Whoever sets an end does not ask for what is due after it.
        let ends = plan.stop.duration.is_some() || plan.stop.octets.is_some();
        let Some(survey) = survey else { return Ok(None) };
        if !ends && replay.end.is_none() {
            let most = plan.stop.packets.unwrap_or(u64::MAX);
            if let Some(what) = too_late(&replay.replay, &survey, horizon, most) {
                return wrong(what);
            }
        }
        Ok(Some(survey))
    };
    plan.replays.iter().map(survey).collect()
}

/// As [`Picos::LONGEST_RUN`], in words.
const LONGEST: &str = "106 days";
/// The last instant of a schedule that is one.
const LAST: Picos = Picos(Departure::NEVER.0 - 1);

/// What of a replay is due after `horizon` on its schedule, if any of its first `most` frames is.
fn too_late(replay: &Replay, survey: &Survey, horizon: Picos, most: u64) -> Option<String> {
    let days = |due: Picos| match due {
        due if due > LAST => "more than 213 days".to_owned(),
        due => format!("{:.1} days", due.0 as f64 / 1e12 / 86_400.0),
    };
    let text = |what: String, hint: &str| {
        Some(format!("{what}, and every run ends after {LONGEST}\n  try {hint}"))
    };
    let frames: u64 = survey.ports.iter().map(|(frames, _)| frames).sum();
    if let Some((number, due)) = survey.beyond.filter(|(number, _)| *number <= most) {
        let of = if survey.whole { format!(" of {frames}") } else { String::new() };
        let what = format!("packet {number}{of} is due {} after the start", days(due));
        return text(what, "--maxsleep 1000 (longest_gap), a higher speed, or --duration");
    }
    // Of a part the others' frames count, too; and a ramp has another length in each loop.
    if !survey.whole || !replay.part.is_whole() || matches!(replay.timing, Timing::Ramp { .. }) {
        return None;
    }
    let most = replay.limit.unwrap_or(u64::MAX).min(most);
    let loops = replay.loops.min(most.div_ceil(frames.max(1)));
    // Of the last loop, not all may be asked for.
    let whole = loops.checked_mul(frames).is_some_and(|all| all <= most);
    let last = if whole { survey.last } else { Picos(0) };
    let begin = u128::from(loops.saturating_sub(1)) * u128::from(survey.end.0);
    if loops < 2 || begin + u128::from(last.0) <= u128::from(horizon.0) {
        return None;
    }
    let first = horizon.0.saturating_sub(survey.last.0) / survey.end.0.max(1) + 2;
    let what = format!(
        "a loop takes {} with its delay, so loop {first} of {} would not end in time",
        days(survey.end),
        replay.loops
    );
    text(what, "fewer loops, --maxsleep (longest_gap), a higher speed, or --duration")
}

/// Of a replay that came to the end of the run by itself, how many frames of each port never left,
/// because they are due after that. It is then said in `replayed`, too.
pub(crate) fn left_over(replayed: &mut Replayed) -> Vec<u64> {
    match replayed.source.unsent() {
        Ok(Some(unsent)) => {
            let count: u64 = unsent.iter().sum();
            if count > 0 {
                let sent: u64 = replayed.source.sent().iter().map(|sent| sent.attempted).sum();
                replayed.error = Some(ReplayError::Beyond { unsent: count, asked: sent + count });
            }
            unsent
        }
        Ok(None) => Vec::new(),
        Err(error) => {
            replayed.error = Some(error);
            Vec::new()
        }
    }
}

/// `ports` are those of the replay, in its order.
pub(crate) fn report(
    planned: &PlanReplay,
    replayed: &Replayed,
    ports: &[(&PortReport, u64)],
    seconds: f64,
) -> ReplayReport {
    let (tally, sent) = (replayed.source.tally(), replayed.source.sent());
    let of_port =
        |(sent, (port, retried)): (&squall_replay::Sent, &(&PortReport, u64))| ReplayPort {
            port: port.name.clone(),
            attempted: sent.attempted,
            successful: sent.successful,
            failed: sent.failed,
            truncated: sent.truncated,
            retried: *retried,
        };
    ReplayReport {
        name: planned.name.clone(),
        files: planned.replay.inputs.iter().map(|input| input.name.clone()).collect(),
        loops: replayed.source.loops(),
        packets: sent.iter().map(|sent| sent.successful).sum(),
        octets: sent.iter().map(|sent| sent.octets).sum(),
        read: ReplayRead {
            packets: tally.packets,
            octets: tally.octets,
            unwanted: tally.unwanted,
            sideless: tally.sideless,
            edited_out: tally.edited_out,
            too_long: tally.too_long,
            not_ethernet: tally.not_ethernet,
            cut: tally.cut,
            backward: replayed.source.backward(),
        },
        ports: sent.iter().zip(ports).map(of_port).collect(),
        flows: replayed.source.flows().map(|flows| flow_report(&flows, seconds)),
        edited: Some(replayed.source.edited())
            .filter(|edited| edited.packets_in > 0)
            .map(|edited| edit_report(&edited)),
        starved_s: replayed.starved.as_secs_f64(),
        fault: replayed.error.as_ref().map(ToString::to_string),
    }
}

/// What the verdict has to know of reading, in `sources`: for how long before the end a capture that
/// came too late kept frames back, where a rate says that there were some, and what it could not be
/// read for. `unsent` are frames that are due after the end, by the names of ports.
pub(crate) fn tell(
    replay: &Replay,
    replayed: &Replayed,
    unsent: &BTreeMap<String, u64>,
    sources: &mut [SourceRecord],
) {
    let has_rate = match replay.timing {
        Timing::Paced { gap, .. } => !matches!(gap, Gap::Zero),
        Timing::Ramp { .. } => true,
        Timing::Captured { .. } | Timing::Top => false,
    };
    for source in sources.iter_mut().filter(|source| source.replay == Some(replayed.number)) {
        source.unread_s = if has_rate { replayed.dry.as_secs_f64() } else { 0.0 };
        source.lag_s += replayed.stretched.as_secs_f64();
        let unsent = source
            .ports
            .first()
            .and_then(|port| unsent.get(port))
            .copied()
            .filter(|unsent| *unsent > 0);
        if let Some(unsent) = unsent {
            source.asked += unsent;
            *source.not_sent.entry("after_the_end".to_owned()).or_default() += unsent;
            let missing: u64 = source.not_sent.values().sum();
            source.not_sent_ratio = missing as f64 / source.asked as f64;
        }
        source.fault = replayed.error.as_ref().map(ToString::to_string);
    }
}

fn flow_report(summary: &Summary, seconds: f64) -> ReplayFlows {
    let counts = &summary.counts;
    let share = |name: String, share: &Share| ReplayShare {
        name,
        packets: share.packets,
        octets: share.octets,
    };
    let protocol = |&(version, protocol, ref of): &(u8, u8, Share)| {
        let name = flow::protocol::name(protocol)
            .map_or_else(|| format!("protocol {protocol}"), str::to_owned);
        share(if version == 0 { "no IP".to_owned() } else { format!("IPv{version} {name}") }, of)
    };
    ReplayFlows {
        flows: counts.flows,
        unique: counts.unique_flows,
        expired: counts.expired_flows,
        flows_per_second: counts.flows_per_second(seconds),
        flow_packets: counts.flow_packets,
        non_flow_packets: counts.non_flow_packets,
        invalid_packets: counts.invalid_packets,
        overflow_packets: counts.overflow_packets,
        protocols: summary.protocols.iter().map(protocol).collect(),
        talkers: summary.talkers.iter().map(|(host, of)| share(host.to_string(), of)).collect(),
        top_flows: summary.top_flows.iter().map(|(key, of)| share(key.to_string(), of)).collect(),
    }
}

fn edit_report(counts: &squall_edit::Counts) -> ReplayEdits {
    ReplayEdits {
        changed: counts.changed,
        dropped: counts.dropped,
        added: (counts.packets_out + counts.dropped).saturating_sub(counts.packets_in),
    }
}
