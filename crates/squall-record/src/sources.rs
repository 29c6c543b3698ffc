//! The sources in the form in which the verdict evaluates them: how each kept its schedule.

use std::collections::BTreeMap;

use squall_engine::{PortTx, Snapshot, Stalls};
use squall_plan::SourceId;
use squall_program::{Gap, pace::Pacing};
use squall_report::report::{
    distribution,
    flows::{FlowsReport, RoleReport},
    source::{Excess, SourceKind, SourceRecord},
};
use squall_units::Nanos;

use crate::{Record, ReplayEnd};

/// How flows kept their schedule.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    pub pacing: Pacing,
    pub stalls: Stalls,
    pub blocked: Nanos,
}

impl Kept {
    /// The sum over all ports that have flows.
    pub fn of(workers: &[Snapshot]) -> Self {
        let mut kept = Self::default();
        for worker in workers.iter().filter(|worker| !worker.flows.is_empty()) {
            worker.flows.iter().for_each(|flows| kept.pacing.merge(flows.statistics.pacing));
            let ports = || worker.flows.iter().map(|flows| flows.port);
            let of_flows =
                |tx: &&PortTx| tx.source == SourceId::FLOWS && ports().any(|port| port == tx.port);
            for tx in worker.tx.iter().filter(of_flows) {
                kept.stalls = kept.stalls.or(tx.stalls);
                kept.blocked = kept.blocked.max(tx.blocked);
            }
        }
        kept
    }
}

impl Record<'_> {
    /// The sources: streams and captures port by port, followed by flows.
    pub(crate) fn sources(&self) -> Vec<SourceRecord> {
        let replays = || (0u32..).zip(&self.plan.replays);
        let all = (0..self.counted.facts.len()).flat_map(|p| {
            let here = replays().filter(move |(_, replay)| replay.ports.contains(&p));
            let here = here.map(move |(number, _)| (p, SourceId::replay(number)));
            std::iter::once((p, SourceId::STREAMS)).chain(here)
        });
        let mut sources: Vec<_> = all.filter_map(|(p, source)| self.source(p, source)).collect();
        if let Some(load) = &self.counted.load {
            let attacks = self.plan.flows.as_ref().and_then(|flows| flows.script(true));
            let first_attack = attacks.map_or(usize::MAX, |attacks| attacks.script.first);
            let of_flows = flows(load, &self.counted.kept, first_attack);
            let ended = |source| SourceRecord { ended_by: self.ended_by(), ..source };
            sources.extend(of_flows.into_iter().map(ended));
        }
        sources
    }

    /// The reason why a source ended that ran until the end of the run. Empty while the run is in
    /// progress.
    fn ended_by(&self) -> String {
        self.end.as_ref().map_or_else(String::new, |end| end.by.to_string())
    }

    /// The record for the streams, or for the captures, that port `p` sends; `None` if it sends
    /// none.
    fn source(&self, p: usize, source: SourceId) -> Option<SourceRecord> {
        let (plan, seconds) = (self.plan, self.duration.as_secs_f64());
        if plan.ports[p].elsewhere {
            return None;
        }
        let of_streams = source == SourceId::STREAMS;
        let replay = source.as_replay();
        let (kind, what) = match replay {
            None if of_streams && plan.streams.iter().any(|s| s.port == p) => {
                (SourceKind::Streams, "streams")
            }
            None => return None,
            Some(number) => {
                let replay = &plan.replays[number as usize];
                let kind = if replay.fixed { SourceKind::Attacks } else { SourceKind::Replay };
                (kind, replay.name.as_str())
            }
        };
        let nothing = PortTx::default();
        let t = self.counted.sent.get(&(p, source)).unwrap_or(&nothing);
        let replayed = replay.and_then(|number| self.replay_end(number));
        // A replay that ended together with the run may have frames that were due later.
        let after = replayed.map_or(0, |replayed| replayed.unsent_by(plan, p));
        let mut not_sent: BTreeMap<_, _> =
            t.not_sent.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
        if after > 0 {
            *not_sent.entry("after_the_end".to_owned()).or_default() += after;
        }
        let missing: u64 = not_sent.values().sum();
        let asked = t.packets + missing;
        // In one pass, because there may be a million streams.
        let (mut asked_rate, mut at_full_speed) = (of_streams.then_some(0.0), false);
        for stream in plan.streams.iter().filter(|stream| of_streams && stream.port == p) {
            asked_rate = asked_rate.zip(stream.asked_pps).map(|(sum, pps)| sum + pps);
            at_full_speed |= stream.gap == Gap::Zero;
        }
        let late = match of_streams {
            true => distribution(&self.departures(p)),
            false => distribution(&t.departure_error),
        };
        let name = &plan.ports[p].name;
        // If the port has only one source, its name suffices.
        let alone = plan.sources_of(p) == 1;
        Some(SourceRecord {
            name: if alone { name.clone() } else { format!("{what} by {name}") },
            kind,
            ports: vec![name.clone()],
            unit: "packets".into(),
            asked,
            sent: t.packets,
            not_sent,
            not_sent_ratio: if asked > 0 { missing as f64 / asked as f64 } else { 0.0 },
            asked_rate,
            unpaced: match of_streams {
                true => at_full_speed,
                false => late.is_none() && t.packets > 0,
            },
            rate: if seconds > 0.0 { t.packets as f64 / seconds } else { 0.0 },
            late_p99_ns: late.as_ref().map(|late| late.p99),
            late_max_ns: late.as_ref().map(|late| late.max),
            excess: late.as_ref().and_then(|_| excess(t.pacing)),
            lag_s: t.pacing.lag.as_secs_f64()
                + replayed.map_or(0.0, |one| one.replayed.stretched.as_secs_f64()),
            moved_s: t.pacing.moved.as_secs_f64(),
            starved_s: t.stalls.total.as_secs_f64(),
            longest_stall_s: t.stalls.longest.as_secs_f64(),
            blocked_s: t.blocked.as_secs_f64(),
            sending_s: t.sending.as_secs_f64(),
            ended_by: if t.error.is_some() { "port-lost".into() } else { self.ended_by() },
            replay,
            unread_s: replayed.map_or(0.0, |one| one.unread_s(plan)),
            fault: replayed.and_then(ReplayEnd::fault),
            ..SourceRecord::default()
        })
    }
}

/// The records for flows, one for each template that starts flows. Templates from index `attacks`
/// on are attacks, whose flows may fail.
fn flows(load: &FlowsReport, kept: &Kept, attacks: usize) -> Vec<SourceRecord> {
    let Kept { pacing, stalls, blocked } = *kept;
    let excess = excess(pacing);
    let record = |number: usize, name: &str, client: &RoleReport| {
        let not_sent: BTreeMap<String, u64> = client
            .not_begun
            .iter()
            .filter(|(_, n)| **n > 0)
            .map(|(reason, n)| (reason.clone(), *n))
            .collect();
        let missing: u64 = not_sent.values().sum();
        let asked = client.asked.unwrap_or(client.attempted + missing);
        SourceRecord {
            name: name.to_owned(),
            kind: if number >= attacks { SourceKind::Attacks } else { SourceKind::Flows },
            ports: load.links.iter().map(|link| link.port.clone()).collect(),
            unit: "flows".into(),
            asked,
            sent: client.attempted,
            not_sent,
            not_sent_ratio: if asked > 0 { missing as f64 / asked as f64 } else { 0.0 },
            asked_rate: client.asked_cps,
            rate: client.cps,
            completed: Some(client.completed),
            failed: client
                .failed
                .iter()
                .filter(|(_, n)| **n > 0)
                .map(|(reason, n)| (reason.clone(), *n))
                .collect(),
            excess,
            lag_s: pacing.lag.as_secs_f64(),
            moved_s: pacing.moved.as_secs_f64(),
            starved_s: stalls.total.as_secs_f64(),
            longest_stall_s: stalls.longest.as_secs_f64(),
            blocked_s: blocked.as_secs_f64(),
            ..SourceRecord::default()
        }
    };
    let mut records: Vec<_> = load
        .templates
        .iter()
        .enumerate()
        .filter_map(|(number, t)| Some(record(number, &t.name, t.roles.client.as_ref()?)))
        .collect();
    if let Some(conversations) = &load.conversations
        && let Some(first) = conversations.kinds.first()
        && let Some(record) = records.iter_mut().find(|record| record.name == first.name)
    {
        record.one_sided = conversations.one_sided;
    }
    records
}

fn excess(pacing: Pacing) -> Option<Excess> {
    let window_s = pacing.window.as_secs_f64();
    (window_s > 0.0).then(|| Excess {
        window_s,
        at_s: pacing.worst.at.as_secs_f64(),
        over_s: pacing.worst.over.as_secs_f64(),
        packets: pacing.worst.packets,
        surplus_packets: pacing.worst.surplus(),
        beyond_s: pacing.worst.beyond.as_secs_f64(),
        allowed_s: pacing.worst.allowed.as_secs_f64(),
        largest_burst_packets: pacing.burst.surplus(),
    })
}
