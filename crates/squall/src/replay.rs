//! Captures as what is sent: where they are read from, and what became of them.

use std::sync::Arc;

use squall_engine::Replayed;
use squall_measure::{census::Share, flow};
use squall_plan::PlanReplay;
use squall_port::ETHERNET;
use squall_replay::{Chunk, Gap, Reader, Replay, Timing, stats::Summary};

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
/// read for.
pub(crate) fn tell(replay: &Replay, replayed: &Replayed, sources: &mut [SourceRecord]) {
    let has_rate = match replay.timing {
        Timing::Paced { gap, .. } => !matches!(gap, Gap::Zero),
        Timing::Ramp { .. } => true,
        Timing::Captured { .. } | Timing::Top => false,
    };
    for source in sources.iter_mut().filter(|source| source.replay == Some(replayed.number)) {
        source.unread_s = if has_rate { replayed.dry.as_secs_f64() } else { 0.0 };
        source.lag_s += replayed.stretched.as_secs_f64();
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
