//! The reports on ports: sent and received frames.

use std::collections::BTreeMap;

use squall_engine::LinkChanges;
use squall_measure::Foreign;
use squall_plan::SourceId;
use squall_port::Timestamps;
use squall_report::report::{
    ForeignRun, InterfaceReport, LinkEvent, MtuChange, PortPacing, PortReport, RxReport, TxReport,
    distribution, source::SourceRecord,
};
use squall_stats::{EqualBins, Fingerprint, Histogram};
use squall_units::{L1_OVERHEAD, Nanos};

use crate::{Record, equal_bins, received};

impl Record<'_> {
    /// `sources` has the sources of all ports.
    pub(crate) fn port(&self, p: usize, sources: &[SourceRecord]) -> PortReport {
        let (counted, context, seconds) =
            (&self.counted, self.context, self.duration.as_secs_f64());
        let name = &self.plan.ports[p].name;
        let interface = self.interfaces.get(p).copied().flatten();
        let rates = |packets: u64, octets: u64| {
            let per_second = |n: f64| if seconds > 0.0 { n / seconds } else { 0.0 };
            let l1 = octets + packets * u64::from(L1_OVERHEAD);
            (
                per_second(packets as f64),
                per_second(l1 as f64 * 8.0),
                per_second(octets as f64 * 8.0),
            )
        };
        let t = &counted.tx[p];
        let (pps, bps_l1, bps_l2) = rates(t.packets, t.octets);
        let tx = TxReport {
            packets: t.packets,
            octets: t.octets,
            pps,
            bps_l1,
            bps_l2,
            gso_frames: t.gso_frames,
            segments: t.segments,
            errors: t.errors,
            not_sent: t.not_sent.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
            blocked_s: t.blocked.as_secs_f64(),
            sending_s: t.sending.as_secs_f64(),
            departure_error_ns: distribution(&self.all_departures(p)),
            fingerprint: (context.fingerprint && !t.unhashed)
                .then(|| t.fingerprint.unwrap_or_default().to_string()),
            pacing: self.pacing(p, sources.iter().filter(|source| source.ports.contains(name))),
        };
        let queues = &counted.rx[p];
        let (packets, octets) =
            queues.iter().fold((0, 0), |(n, o), q| (n + q.seen.packets, o + q.seen.octets));
        let (pps, bps_l1, bps_l2) = rates(packets, octets);
        let mut drops = BTreeMap::new();
        for (reason, n) in queues.iter().flat_map(|q| &q.drops) {
            *drops.entry((*reason).to_owned()).or_insert(0) += n;
        }
        let mut gaps = Histogram::default();
        queues.iter().for_each(|q| gaps.merge(&q.seen.gaps));
        let mut bins: Option<EqualBins> = None;
        for queue in queues.iter().filter_map(|q| q.seen.gap_bins.as_ref()) {
            match &mut bins {
                Some(bins) => bins.merge(queue),
                none => *none = Some(queue.clone()),
            }
        }
        let mut print = Fingerprint::default();
        queues.iter().filter_map(|q| q.seen.fingerprint).for_each(|f| print.merge(f));
        let rx = RxReport {
            packets,
            octets,
            pps,
            bps_l1,
            bps_l2,
            gso_frames: queues.iter().map(|q| q.seen.gso_frames).sum(),
            segments: queues.iter().map(|q| q.seen.segments).sum(),
            unsigned_packets: queues.iter().map(|q| q.seen.unsigned).sum(),
            foreign_packets: counted.foreign[p].values().map(|foreign| foreign.packets).sum(),
            foreign: counted.foreign[p]
                .iter()
                .map(|(key, of)| self.foreign_run(*key, of))
                .collect(),
            drops,
            fingerprint: (context.fingerprint && !queues.is_empty()).then(|| print.to_string()),
            arrival_gap_ns: distribution(&gaps),
            arrival_gap_bins: bins.as_ref().map(equal_bins),
            ..received::total(queues)
        };
        let none = LinkChanges::default();
        let links = self.links.get(p).unwrap_or(&none);
        let t_s = |at: Nanos| at.saturating_sub(self.start).as_secs_f64();
        let event = |e: &squall_port::LinkEvent| LinkEvent { t_s: t_s(e.at), up: e.up };
        let mtu =
            |c: &squall_port::MtuChange| MtuChange { t_s: t_s(c.at), before: c.from, after: c.to };
        PortReport {
            name: name.clone(),
            address: counted.facts[p].address.clone(),
            timestamps: match queues.is_empty() {
                true => Timestamps::None.name().to_owned(),
                false => counted.facts[p].timestamps.name().to_owned(),
            },
            tx,
            rx,
            interface: interface.map(|i| InterfaceReport {
                tx_packets: i.tx_packets,
                tx_octets: i.tx_octets,
                tx_dropped: i.tx_dropped,
                tx_errors: i.tx_errors,
                rx_packets: i.rx_packets,
                rx_octets: i.rx_octets,
                rx_dropped: i.rx_dropped,
                rx_errors: i.rx_errors,
                rx_missed: i.rx_missed,
                rx_fifo: i.rx_fifo,
            }),
            link_events: links.events.iter().map(event).collect(),
            mtu_changes: links.mtu.iter().map(mtu).collect(),
        }
    }

    fn foreign_run(&self, key: u16, of: &Foreign) -> ForeignRun {
        ForeignRun {
            key: format!("{key:04x}"),
            packets: of.packets,
            octets: of.octets,
            same_key: key == self.counted.key,
        }
    }

    /// Departure errors of all sources on a port.
    fn all_departures(&self, port: usize) -> Histogram {
        let mut all = self.departures(port);
        let others = self
            .counted
            .sent
            .iter()
            .filter(|((p, source), _)| *p == port && *source != SourceId::STREAMS);
        others.for_each(|(_, tx)| all.merge(&tx.departure_error));
        all
    }

    /// Departure errors of a port's streams, including streams without their own histogram.
    pub(crate) fn departures(&self, port: usize) -> Histogram {
        let mut all = Histogram::default();
        if let Some(tx) = self.counted.sent.get(&(port, SourceId::STREAMS)) {
            all.merge(&tx.departure_error);
        }
        // Histograms first: many streams share one, and reading their plan would take longer.
        let streams = self.counted.streams.iter().zip(&self.plan.streams);
        let own = streams.filter_map(|(s, planned)| Some((s.departure_error.as_ref()?, planned)));
        own.filter(|(_, planned)| planned.port == port).for_each(|(own, _)| all.merge(own));
        all
    }

    /// How a port kept the schedule of its own `sources`.
    fn pacing<'s>(
        &self,
        p: usize,
        sources: impl Iterator<Item = &'s SourceRecord>,
    ) -> Option<PortPacing> {
        let pacing = self.pacing.get(p)?;
        if pacing.worst.is_none() && pacing.catching_up_since.is_none() {
            return None;
        }
        let worst = pacing.worst.unwrap_or_default();
        Some(PortPacing {
            unit: if worst.octets { "octets" } else { "packets" }.into(),
            at_s: worst.at.as_secs_f64(),
            over_s: worst.over.as_secs_f64(),
            left: worst.left,
            due: worst.due,
            allowed: worst.allowed,
            moved_s: pacing.moved.as_secs_f64(),
            lag_s: sources.map(|source| source.lag_s).fold(0.0, f64::max),
            catching_up_since_s: pacing.catching_up_since.map(|at| at.as_nanos().as_secs_f64()),
            uncertain_packets: pacing.uncertain,
        })
    }
}
