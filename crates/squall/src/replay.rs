//! What became of captures that were sent.

use std::collections::BTreeMap;

use squall_engine::Replayed;
use squall_measure::{census::Share, flow};
use squall_plan::PlanReplay;
use squall_replay::{Gap, Replay, ReplayError, Timing, stats::Summary};

use crate::report::{
    PortReport, ReplayEdits, ReplayFlows, ReplayPort, ReplayRead, ReplayReport, ReplayShare,
    source::SourceRecord,
};

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
