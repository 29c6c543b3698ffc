//! Forecast for the streams of a port: peak rates, duration, and the times at which the rate
//! changes.

use std::collections::HashSet;

use serde_json::{Value, json};
use squall_profile::Mode;
use squall_units::Nanos;

use super::{Answer, FOLLOWED, Server, id_of};
use crate::{
    Load, Unit,
    rpc::Params,
    traffic::Sent,
    translate::{self, GroupNumbers, in_unit},
    vm,
};

/// Maximum steps in an answer.
const MOST_STEPS: usize = 100;

/// Packets per second, and bits per second with and without preamble and gap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rates {
    pps: f64,
    l1: f64,
    l2: f64,
}

impl Rates {
    fn plus(self, by: Self, times: f64) -> Self {
        Self {
            pps: self.pps + by.pps * times,
            l1: self.l1 + by.l1 * times,
            l2: self.l2 + by.l2 * times,
        }
    }

    fn max(self, other: Self) -> Self {
        Self { pps: self.pps.max(other.pps), l1: self.l1.max(other.l1), l2: self.l2.max(other.l2) }
    }
}

/// The start or end of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    micros: f64,
    /// Index in the list of streams.
    stream: usize,
    begins: bool,
}

/// Steps in time order, and the end of the last stream in microseconds (`None`: it never ends).
fn steps(sent: &Sent, rates: &[Rates]) -> (Vec<Step>, Option<f64>) {
    let (mut all, mut end) = (Vec::new(), Some(0.0f64));
    let mut left: Vec<Option<u64>> =
        sent.iter().map(|one| one.stream.next.map(|next| next.times.unwrap_or(u64::MAX))).collect();
    for first in (0..sent.len()).filter(|at| sent[*at].stream.self_start) {
        let (mut at, mut now) = (first, 0.0);
        let chain_ends = loop {
            if all.len() > FOLLOWED {
                break None;
            }
            now += micros(sent[at].stream.start_delay);
            all.push(Step { micros: now, stream: at, begins: true });
            let Some(takes) = takes(sent[at].stream.mode, rates[at].pps) else { break None };
            now += takes;
            all.push(Step { micros: now, stream: at, begins: false });
            match (&mut left[at], sent[at].stream.next) {
                (Some(times), Some(next)) if *times > 0 => {
                    *times -= u64::from(*times != u64::MAX);
                    at = next.stream;
                }
                _ => break Some(now),
            }
        };
        end = end.zip(chain_ends).map(|(all, chain)| all.max(chain));
    }
    // At equal times, ends precede starts.
    all.sort_by(|a, b| a.micros.total_cmp(&b.micros).then(a.begins.cmp(&b.begins)));
    (all, end)
}

fn micros(time: Nanos) -> f64 {
    time.0 as f64 / 1e3
}

/// Duration of one run of a stream, microseconds; `None`: endless.
fn takes(mode: Mode, pps: f64) -> Option<f64> {
    let sending = |packets: u64| packets as f64 / pps * 1e6;
    match mode {
        Mode::Continuous => None,
        Mode::Burst(packets) => Some(sending(packets)),
        Mode::Bursts { bursts: u64::MAX, .. } => None,
        Mode::Bursts { bursts, packets, gap } => {
            let gaps = bursts.saturating_sub(1) as f64 * micros(gap);
            Some(sending(packets) * bursts as f64 + gaps)
        }
    }
}

/// The highest rates at any time.
fn highest(steps: &[Step], rates: &[Rates]) -> Rates {
    let mut now = Rates::default();
    steps.iter().fold(Rates::default(), |highest, step| {
        now = now.plus(rates[step.stream], if step.begins { 1.0 } else { -1.0 });
        highest.max(now)
    })
}

impl Server {
    /// # Errors
    /// Streams cannot be sent.
    pub(super) fn validate(&mut self, port: usize, params: &Params<'_>) -> Answer {
        let setting = self.setting(port, Load::Factor(1.0));
        let (mut sent, mut rates) = (Sent::new(), Vec::new());
        // Streams with latency, as indices, and their rates, which no multiplier changes.
        let (mut latency, mut fixed) = (HashSet::new(), Rates::default());
        if let Some(profile) = self.ports[port].profiles.get(id_of(params)) {
            let mut groups = GroupNumbers::default();
            let number = |asked| groups.take(asked);
            sent = translate::translate(&profile.streams, &setting, |n| n.to_string(), number)?;
            for one in &sent {
                let stream = &profile.streams[&one.number];
                let len = vm::make(stream, stream.packet.binary.clone(), false)?.mean_len;
                let of = |unit| in_unit(unit, stream.mode.rate, len, setting.speed);
                let own = Rates { pps: of(Unit::Pps)?, l1: of(Unit::BpsL1)?, l2: of(Unit::BpsL2)? };
                if stream.has_latency() {
                    fixed = fixed.plus(own, 1.0);
                    latency.insert(rates.len());
                }
                rates.push(own);
            }
        }
        let (mut steps, end) = steps(&sent, &rates);
        steps.retain(|step| !latency.contains(&step.stream));
        let most = highest(&steps, &rates).plus(fixed, 1.0);
        let utilization =
            |rates: Rates| setting.speed.map_or(0.0, |speed| rates.l1 / speed * 100.0);
        let event = |step: &Step| {
            let by =
                Rates::default().plus(rates[step.stream], if step.begins { 1.0 } else { -1.0 });
            json!({
                "time_usec": step.micros, "diff_bps_l2": by.l2, "diff_bps_l1": by.l1,
                "diff_pps": by.pps, "stream_id": sent[step.stream].number,
            })
        };
        let events: Vec<Value> = steps.iter().take(MOST_STEPS).map(event).collect();
        Ok(json!({
            "rate": {
                "max_bps_l2": most.l2, "max_bps_l1": most.l1, "max_pps": most.pps,
                "max_line_util": utilization(most),
                "min_bps_l2": fixed.l2, "min_bps_l1": fixed.l1, "min_pps": fixed.pps,
                "min_line_util": utilization(fixed),
            },
            "graph": {
                "expected_duration": end.unwrap_or(-1.0), "events_count": steps.len(),
                "events": events,
            },
        }))
    }
}

#[cfg(test)]
mod tests {
    use squall_profile::Next;

    use super::*;
    use crate::{Translated, traffic::idle_stream};

    /// Mode, delay in microseconds, whether it starts by itself, and its follower with the number
    /// of runs.
    type Given = (Mode, u64, bool, Option<(usize, Option<u64>)>);

    fn sent(streams: &[Given]) -> Sent {
        let one = |(number, (mode, delay, self_start, next)): (usize, &Given)| {
            let mut stream = idle_stream(0, number.to_string());
            (stream.mode, stream.start_delay, stream.self_start) =
                (*mode, Nanos(delay * 1000), *self_start);
            stream.next = next.map(|(stream, times)| Next { stream, times });
            Translated { number: number as u32, stream, group: None }
        };
        streams.iter().enumerate().map(one).collect()
    }

    fn rates(pps: &[f64]) -> Vec<Rates> {
        pps.iter().map(|pps| Rates { pps: *pps, l1: pps * 20.0, l2: pps * 10.0 }).collect()
    }

    #[test]
    fn streams_of_a_chain_are_not_sent_at_one_time_and_end_with_the_last() {
        // 10 ms, then 20 ms after a delay of 5 us; the whole chain runs twice.
        let chain = sent(&[
            (Mode::Burst(10), 0, true, Some((1, None))),
            (Mode::Burst(40), 5, false, Some((0, Some(1)))),
        ]);
        let rates = rates(&[1000.0, 2000.0]);
        let (steps, end) = steps(&chain, &rates);
        let all = steps.iter().map(|step| (step.micros, step.stream, step.begins));
        let once =
            [(0.0, 0, true), (10_000.0, 0, false), (10_005.0, 1, true), (30_005.0, 1, false)];
        let again = once.map(|(at, stream, begins)| (at + 30_005.0, stream, begins));
        assert_eq!(all.collect::<Vec<_>>(), [once, again].concat());
        assert_eq!(end, Some(60_010.0));
        assert_eq!(highest(&steps, &rates), Rates { pps: 2000.0, l1: 40_000.0, l2: 20_000.0 });
    }

    #[test]
    fn concurrent_streams_add_up_and_endless_ones_have_no_duration() {
        let both = sent(&[
            (Mode::Bursts { bursts: 3, packets: 10, gap: Nanos(1_000_000) }, 0, true, None),
            (Mode::Burst(1), 20_000, true, None),
        ]);
        let of = rates(&[1000.0, 500.0]);
        let (steps_of_both, end) = steps(&both, &of);
        assert_eq!(end, Some(32_000.0));
        assert_eq!(highest(&steps_of_both, &of).pps, 1500.0);
        let endless =
            sent(&[(Mode::Continuous, 0, true, None), (Mode::Burst(1), 0, true, Some((1, None)))]);
        let (of_endless, end) = steps(&endless, &of);
        assert_eq!((end, highest(&of_endless, &of).pps), (None, 1500.0));
    }
}
