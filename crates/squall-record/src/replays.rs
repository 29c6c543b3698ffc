//! The reports on replays.

use squall_engine::Replayed;
use squall_measure::{census::Share, flow};
use squall_plan::Plan;
use squall_replay::{Gap, ReplayError, Timing, stats::Summary};
use squall_report::report::{
    ReplayEdits, ReplayFlows, ReplayPort, ReplayRead, ReplayReport, ReplayShare,
};

use crate::Record;

/// The state of a replay when the run ended.
pub struct ReplayEnd {
    pub replayed: Replayed,
    /// By port, the number of frames that can never be sent, because they are due after the longest
    /// possible run. Empty if unknown.
    unsent: Vec<u64>,
}

impl ReplayEnd {
    /// A replay that was stopped or failed.
    pub fn of(replayed: Replayed) -> Self {
        Self { replayed, unsent: Vec::new() }
    }

    /// A replay that lasted until the end of the run. Reads the rest of its captures: if frames
    /// there are due after the longest possible run, the replay is incomplete.
    pub fn read_on(mut replayed: Replayed) -> Self {
        let unsent = match replayed.source.unsent() {
            Ok(unsent) => unsent.unwrap_or_default(),
            Err(error) => {
                replayed.error = Some(error);
                Vec::new()
            }
        };
        let count: u64 = unsent.iter().sum();
        if count > 0 {
            let sent: u64 = replayed.source.sent().iter().map(|sent| sent.attempted).sum();
            replayed.error = Some(ReplayError::Beyond { unsent: count, asked: sent + count });
        }
        Self { replayed, unsent }
    }

    /// Number of frames that were never sent on `port`.
    pub(crate) fn unsent_by(&self, plan: &Plan, port: usize) -> u64 {
        let mut ports = plan.replays[self.replayed.number as usize].ports.iter();
        let at = ports.position(|of| *of == port);
        at.and_then(|at| self.unsent.get(at)).copied().unwrap_or(0)
    }

    /// Seconds before the end in which frames that were due had to wait for a slow capture.
    pub(crate) fn unread_s(&self, plan: &Plan) -> f64 {
        let has_rate = match plan.replays[self.replayed.number as usize].replay.timing {
            Timing::Paced { gap, .. } => !matches!(gap, Gap::Zero),
            Timing::Ramp { .. } => true,
            Timing::Captured { .. } | Timing::Top => false,
        };
        if has_rate { self.replayed.dry.as_secs_f64() } else { 0.0 }
    }

    /// The error at which reading of the captures ended.
    pub(crate) fn fault(&self) -> Option<String> {
        self.replayed.error.as_ref().map(ToString::to_string)
    }
}

impl Record<'_> {
    /// The state of replay `number` of the plan when the run ended.
    pub(crate) fn replay_end(&self, number: u32) -> Option<&ReplayEnd> {
        self.end.as_ref()?.replays.iter().find(|of| of.replayed.number == number)
    }

    pub(crate) fn replays(&self) -> Vec<ReplayReport> {
        let replays = self.end.iter().flat_map(|end| &end.replays);
        replays.map(|of| self.replay(&of.replayed)).collect()
    }

    fn replay(&self, replayed: &Replayed) -> ReplayReport {
        let planned = &self.plan.replays[replayed.number as usize];
        let (tally, sent) = (replayed.source.tally(), replayed.source.sent());
        let of_port = |(sent, &port): (&squall_replay::Sent, &usize)| ReplayPort {
            port: self.plan.ports[port].name.clone(),
            attempted: sent.attempted,
            successful: sent.successful,
            failed: sent.failed,
            truncated: sent.truncated,
            retried: self.counted.retried(replayed.number, port),
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
            ports: sent.iter().zip(&planned.ports).map(of_port).collect(),
            flows: replayed
                .source
                .flows()
                .map(|flows| flow_report(&flows, self.duration.as_secs_f64())),
            edited: Some(replayed.source.edited())
                .filter(|edited| edited.packets_in > 0)
                .map(|edited| edit_report(&edited)),
            starved_s: replayed.starved.as_secs_f64(),
            fault: replayed.error.as_ref().map(ToString::to_string),
        }
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
