//! The reports of streams.

use std::collections::BTreeSet;

use squall_plan::{PlanStream, StreamDivision};
use squall_report::report::{
    ArrivedRange, KnownBy, ReceiverRx, StreamReport, StreamRx, distribution,
};
use squall_stats::{
    Histogram, Patterns, ReceivedRange, SequenceTracker, seen_in_turn, seen_together,
};
use squall_units::Nanos;

use crate::Record;

/// If the clocks differ by less than this according to a frame, both may be the same clock.
const ONE_CLOCK_NS: u64 = 2_000_000_000;

impl Record<'_> {
    pub(crate) fn stream(&self, i: usize) -> StreamReport {
        let (counted, plan) = (&self.counted, self.plan);
        let t = &counted.streams[i];
        let planned = plan.streams.get(i);
        let segments = planned.map_or(1, |s| u64::from(s.program.segments()));
        // Time from the first to the last departure, without the silence between bursts.
        let silence = planned.filter(|s| s.pattern.bursts > 1).map_or(0, |s| {
            let gaps = (t.packets / segments).div_ceil(s.pattern.packets.max(1)).saturating_sub(1);
            s.pattern.gap.as_nanos().0.saturating_mul(gaps)
        });
        let span = t.first.map_or(Nanos::ZERO, |first| {
            t.last.saturating_sub(first).saturating_sub(Nanos(silence))
        });
        let seconds = span.as_secs_f64();
        let known = || planned.map_or(!counted.seen[i].is_empty(), |s| s.program.is_known());
        StreamReport {
            name: counted.name(plan, i).to_owned(),
            port: planned.map_or(String::new(), |s| plan.ports[s.port].name.clone()),
            group: planned.and_then(|s| s.group.clone()),
            tx_packets: t.packets,
            tx_octets: t.octets,
            // n frames have n - 1 gaps between them.
            tx_pps: match seconds {
                0.0 => 0.0,
                _ => t.packets.saturating_sub(segments) as f64 / seconds,
            },
            asked_pps: planned.and_then(|s| s.mean_rate_within(span)),
            not_sent: t.not_sent.iter().collect(),
            departure_error_ns: t.departure_error.as_deref().and_then(distribution),
            rx: (counted.listens() && known() && self.is_known(i)).then(|| {
                let routes = self.routes(i).map(|routes| Box::new(routes.report(plan)));
                let mut rx = StreamRx { routes, ..self.received(i) };
                // Some routes may move to another port while others stay. The ports then have the
                // stream's frames neither all nor in turn, but each route's are.
                let lost = rx.routes.as_ref().map_or(rx.lost, |routes| routes.lost);
                if rx.ports.len() > 1 && lost < rx.lost && !plan.has_other_nodes() {
                    rx.lost = lost;
                    rx.loss_ratio =
                        if t.packets > 0 { lost as f64 / t.packets as f64 } else { 0.0 };
                }
                Box::new(rx)
            }),
        }
    }

    /// Whether this node knows all arrivals of a stream. If other nodes have ports, a stream sent
    /// here may arrive there.
    pub(crate) fn is_known(&self, i: usize) -> bool {
        let plan = self.plan;
        let from_here = |s: &PlanStream| s.division != StreamDivision::Elsewhere;
        !plan.has_other_nodes()
            || !plan.streams.get(i).is_some_and(from_here)
            || !self.counted.seen[i].is_empty()
    }

    fn received(&self, i: usize) -> StreamRx {
        let (counted, plan, clock) = (&self.counted, self.plan, self.context.clock);
        let sent = counted.streams[i].packets;
        let seen = &counted.seen[i];
        let mut rx = StreamRx::default();
        let marked = plan.streams.get(i).is_some_and(|s| s.program.group().is_some());
        rx.known_by = if marked { KnownBy::Mark } else { KnownBy::Signature };
        let (mut delay, mut ipdv, mut gap) =
            (Histogram::default(), Histogram::default(), Histogram::default());
        // A switch may flood a frame to two ports, which must not hide its loss on a third. So the
        // port that received the most frames counts.
        let (mut best, mut missing, mut came) = (0, 0, 0);
        let mut arrived = ArrivedRange::of([].into_iter());
        let (mut jitter, mut patterns) = (0.0f64, Patterns::default());
        let ports: BTreeSet<usize> = seen.iter().map(|s| s.0).collect();
        // Entries by port, each with its number of unique frames.
        let (mut receivers, mut ranges) = (Vec::new(), Vec::<ReceivedRange>::new());
        for port in ports {
            let mut delay_here = Histogram::default();
            let before = (rx.packets, rx.duplicates);
            let here = || seen.iter().filter(|s| s.0 == port).map(|s| &s.1);
            for s in here() {
                let counts = s.sequence.counts();
                rx.packets += s.packets;
                rx.octets += s.octets;
                rx.duplicates += counts.duplicates;
                rx.reordered += counts.reordered;
                rx.max_reordering_extent =
                    rx.max_reordering_extent.max(counts.max_reordering_extent);
                rx.restarts = rx.restarts.max(s.sequence.restarts());
                came += s.unique();
                delay_here.merge(s.delay.delay());
                ipdv.merge(s.delay.ipdv());
                gap.merge(s.delay.gap());
                jitter = jitter.max(s.delay.jitter_ns());
                patterns.merge(&self.patterns(i, &s.sequence));
            }
            let (numbered, here_missing) = seen_together(here().map(|s| &s.sequence));
            let unique = numbered + here().map(|s| s.marked).sum::<u64>();
            let spans = || here().filter_map(|s| s.sequence.span());
            let first = spans().map(|span| span.first).min();
            ranges.push((numbered, first.zip(spans().map(|span| span.end).max())));
            if unique > best {
                (best, missing) = (unique, here_missing);
                arrived = ArrivedRange::of(here().map(|s| &s.sequence));
            }
            delay.merge(&delay_here);
            let port = plan.ports[port].name.clone();
            rx.ports.push(port.clone());
            let latency_ns = distribution(&delay_here);
            let (packets, duplicates) = (rx.packets - before.0, rx.duplicates - before.1);
            let receiver = ReceiverRx { port, packets, lost: 0, duplicates, latency_ns };
            receivers.push((receiver, unique));
        }
        // After a change of the path, the frames of all its ports count.
        if let Some((all, between)) = seen_in_turn(&ranges).filter(|(all, _)| *all > best) {
            (best, missing) = (all, between);
            arrived = ArrivedRange::of(seen.iter().map(|(_, s)| &s.sequence));
        }
        // If no frames were sent, the sender is another run, and if there are other nodes, missing
        // frames may have arrived there. In both cases, use the sequence numbers. During the run,
        // frames in flight are not lost, but a gap in the sequence is, unless its frames were never
        // sent.
        let sent = match plan.streams.is_empty() || plan.has_other_nodes() {
            true => best + missing,
            false if counted.running => (best + missing).min(sent.max(best)),
            false => sent,
        };
        rx.lost = sent.saturating_sub(best);
        // A queue counts the duplicates in it. Duplicates in different queues show as more frames
        // than were sent.
        rx.duplicates += best.saturating_sub(sent);
        rx.loss_ratio = if sent > 0 { rx.lost as f64 / sent as f64 } else { 0.0 };
        // A sender on another node or in a file has another clock, so the difference is not a
        // delay.
        let away = plan.streams.get(i).is_some_and(|s| s.division == StreamDivision::Elsewhere);
        // If both nodes share a clock, it is a delay, within the bounds of both.
        if let (true, Some(clock)) = (away, clock) {
            let negative = || seen.iter().map(|(_, s)| s.delay.most_negative_ns().unsigned_abs());
            rx.early_packets = seen.iter().map(|(_, s)| s.delay.negative()).sum();
            rx.earliest_ns = negative().max().unwrap_or(0);
            rx.latency_bound_ns = Some(clock.bound_ns);
            delay.record_n(0, rx.early_packets);
        }
        let one_clock = match away {
            true => clock.is_some(),
            false => !plan.streams.is_empty() || delay.min() < ONE_CLOCK_NS,
        };
        rx.latency_ns = if one_clock { distribution(&delay) } else { None };
        if receivers.len() > 1 {
            let one = |(receiver, unique): (ReceiverRx, u64)| ReceiverRx {
                lost: sent.saturating_sub(unique),
                latency_ns: receiver.latency_ns.filter(|_| one_clock),
                ..receiver
            };
            rx.receivers = receivers.into_iter().map(one).collect();
        }
        rx.ipdv_ns = distribution(&ipdv);
        rx.arrival_gap_ns = distribution(&gap);
        rx.jitter_ns = (gap.count() > 0).then_some(jitter);
        rx.reordering_ratio = if came > 0 { rx.reordered as f64 / came as f64 } else { 0.0 };
        if best == 0 {
            patterns = self.patterns(i, &SequenceTracker::new());
        }
        rx.patterns = crate::patterns(&patterns);
        // Other senders may begin at any number, or again at 0; a part of a run sends every n-th
        // number.
        let known = plan.streams.get(i).is_some_and(|s| s.division != StreamDivision::Frames);
        rx.arrived = (rx.is_signed() && rx.restarts == 0 && known).then_some(arrived);
        rx
    }

    /// Patterns of a stream's losses, with those at both ends where this node has sent all frames.
    fn patterns(&self, i: usize, sequence: &SequenceTracker) -> Patterns {
        let (plan, counted) = (self.plan, &self.counted);
        // During the run, the last frames are in flight.
        let all_here = !counted.running
            && !plan.has_other_nodes()
            && plan.streams.get(i).is_some_and(|stream| {
                stream.division == StreamDivision::Here && stream.program.group().is_none()
            });
        match all_here {
            true => sequence.patterns_of(counted.streams[i].packets),
            false => sequence.patterns(),
        }
    }
}
