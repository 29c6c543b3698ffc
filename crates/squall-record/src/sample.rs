//! Rates between two times of a run, and the series of such rates.

use std::{collections::HashMap, time::Instant};

use squall_engine::Snapshot;
use squall_plan::Plan;
use squall_report::report::{CaptureSample, PortSample, Report, Sample, StreamSample};
use squall_stats::Histogram;
use squall_units::{L1_OVERHEAD, Nanos};

use crate::Record;

/// Delays and departure errors so far, by stream.
type StreamHistograms = HashMap<u32, (Histogram, Histogram)>;

/// The state as of the last sample.
pub struct Last {
    at: Instant,
    /// Time since the start of the run.
    elapsed: Nanos,
    ports: Vec<[u64; 4]>,
    /// By stream number.
    streams: Vec<[u64; 2]>,
    /// Packets and octets written to a capture.
    captured: [u64; 2],
    histograms: StreamHistograms,
}

impl Last {
    /// The state before anything has been counted.
    pub fn at(at: Instant) -> Self {
        Self {
            at,
            elapsed: Nanos::default(),
            ports: Vec::new(),
            streams: Vec::new(),
            captured: [0; 2],
            histograms: StreamHistograms::new(),
        }
    }

    /// Rates of ports since the last sample, from snapshots of all workers at `now`. Rates of
    /// streams are left out.
    pub fn sample_ports(
        &mut self,
        plan: &Plan,
        snapshots: &[Snapshot],
        (elapsed, now): (Nanos, Instant),
    ) -> Sample {
        let mut counts = vec![[0; 4]; plan.ports.len()];
        for snapshot in snapshots {
            for tx in &snapshot.tx {
                counts[tx.port][0] += tx.packets;
                counts[tx.port][1] += tx.octets;
            }
            for rx in &snapshot.rx {
                counts[rx.port][2] += rx.seen.packets;
                counts[rx.port][3] += rx.seen.octets;
            }
        }
        let dt = self.advance(elapsed, now);
        let ports = plan.ports.iter().map(|port| &port.name).zip(counts);
        Sample { t_s: elapsed.as_secs_f64(), ports: self.ports(dt, ports), ..Sample::default() }
    }

    /// Moves to a later time. Returns the time since the last sample in seconds.
    fn advance(&mut self, elapsed: Nanos, now: Instant) -> f64 {
        // Use the run's own time, which samples contain: rates multiplied by intervals then equal
        // the counters, even if a run starts long after it was created. On virtual time, only the
        // machine's clock can show progress.
        let dt = match elapsed.saturating_sub(self.elapsed) {
            Nanos::ZERO => now.duration_since(self.at).as_secs_f64().max(1e-9),
            since => since.as_secs_f64(),
        };
        (self.at, self.elapsed) = (now, elapsed);
        dt
    }

    /// The rates of ports over `dt` seconds, from their names and counters now: frames and octets
    /// sent, then received.
    fn ports<'n>(
        &mut self,
        dt: f64,
        counts: impl ExactSizeIterator<Item = (&'n String, [u64; 4])>,
    ) -> Vec<PortSample> {
        self.ports.resize(counts.len(), [0; 4]);
        let port = |((name, now), then): ((&String, [u64; 4]), &mut [u64; 4])| {
            let [tx_pps, tx_octets, rx_pps, rx_octets] =
                std::array::from_fn(|i| now[i].saturating_sub(then[i]) as f64 / dt);
            *then = now;
            let l1 = |pps: f64, octets: f64| (octets + pps * f64::from(L1_OVERHEAD)) * 8.0;
            PortSample {
                name: name.clone(),
                tx_pps,
                tx_bps_l1: l1(tx_pps, tx_octets),
                tx_bps_l2: tx_octets * 8.0,
                rx_pps,
                rx_bps_l1: l1(rx_pps, rx_octets),
                rx_bps_l2: rx_octets * 8.0,
            }
        };
        counts.zip(&mut self.ports).map(port).collect()
    }
}

impl Record<'_> {
    /// Rates and percentiles since the last sample. `report` is the report on this record at `now`.
    pub fn sample(&self, last: &mut Last, report: &Report, now: Instant) -> Sample {
        let (counted, elapsed) = (&self.counted, self.duration);
        let dt = last.advance(elapsed, now);
        last.streams.resize(counted.streams.len(), [0; 2]);
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / dt;
        let mut sample = Sample { t_s: elapsed.as_secs_f64(), ..Sample::default() };
        let counts = report.ports.iter().map(|port| {
            (&port.name, [port.tx.packets, port.tx.octets, port.rx.packets, port.rx.octets])
        });
        sample.ports = last.ports(dt, counts);
        if let Some(capture) = &report.capture {
            let now = [capture.written_packets, capture.written_octets];
            let [written_pps, written_octets] =
                std::array::from_fn(|i| rate(now[i], last.captured[i]));
            last.captured = now;
            sample.capture = Some(CaptureSample {
                written_pps,
                written_bps: written_octets * 8.0,
                files: capture.files_written,
                file_octets: capture.file_octets,
                dropped_by_kernel: capture.lost_in_kernel(),
                dropped: capture.lost_here(),
            });
        }
        // Streams that are not shown keep their numbers.
        let named = |i| (i, counted.name(self.plan, i));
        let mut numbers = (0..counted.streams.len()).map(named);
        for s in &report.streams {
            let Some((i, _)) = numbers.find(|(_, name)| *name == s.name) else { break };
            let then = &mut last.streams[i];
            let now = [s.tx_packets, s.rx.as_ref().map_or(0, |r| r.packets)];
            let (late, delay) = self.histograms(i);
            let (late_then, delay_then) = last.histograms.remove(&(i as u32)).unwrap_or_default();
            let since = |now: &Histogram, then: &Histogram, q: f64| {
                let delta = now.delta_since(then);
                (!delta.is_empty()).then(|| delta.quantile(q))
            };
            // The condition is the same as in the report.
            let one_clock = s.rx.as_ref().is_some_and(|rx| rx.latency_ns.is_some());
            sample.streams.push(StreamSample {
                name: s.name.clone(),
                tx_pps: rate(now[0], then[0]),
                rx_pps: rate(now[1], then[1]),
                lost: s.rx.as_ref().map_or(0, |r| r.lost),
                latency_p50_ns: since(&delay, &delay_then, 0.5).filter(|_| one_clock),
                latency_p99_ns: since(&delay, &delay_then, 0.99).filter(|_| one_clock),
                late_p99_ns: since(&late, &late_then, 0.99),
            });
            *then = now;
            if !late.is_empty() || !delay.is_empty() {
                last.histograms.insert(i as u32, (late, delay));
            }
        }
        sample
    }

    fn histograms(&self, i: usize) -> (Histogram, Histogram) {
        let (counted, mut delay) = (&self.counted, Histogram::default());
        counted.seen[i].iter().for_each(|(_, s)| delay.merge(s.delay.delay()));
        (counted.streams[i].departure_error.as_deref().cloned().unwrap_or_default(), delay)
    }
}

/// The series of samples for the report. A run of days must not fill the memory: when there are too
/// many rows, every second point is dropped, and from then on half as many points are added.
#[derive(Default)]
pub struct Series {
    pub points: Vec<Sample>,
    rows: usize,
    /// One in 2^`thinned` samples becomes a point.
    thinned: u32,
    samples: u64,
}

/// Maximum number of rows (ports, streams and templates) in all points together: some tens of
/// megabytes.
const ROWS: usize = 200_000;

impl Series {
    pub fn push(&mut self, sample: Sample) {
        self.samples += 1;
        if !self.samples.is_multiple_of(1 << self.thinned) {
            return;
        }
        self.rows += Self::rows(&sample);
        self.points.push(sample);
        if self.rows > ROWS {
            // Keep the newest point.
            let mut nth = self.points.len();
            self.points.retain(|_| {
                nth -= 1;
                nth.is_multiple_of(2)
            });
            self.rows = self.points.iter().map(Self::rows).sum();
            self.thinned += 1;
        }
    }

    fn rows(sample: &Sample) -> usize {
        1 + sample.ports.len() + sample.streams.len() + sample.flows.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_of_days_stays_small_and_keeps_its_ends() {
        let mut series = Series::default();
        let ports = vec![PortSample::default(); 9];
        for i in 1..=500_000 {
            series.push(Sample { t_s: f64::from(i), ports: ports.clone(), ..Sample::default() });
        }
        assert!((ROWS / 2..=ROWS).contains(&series.rows), "{}", series.rows);
        let instants: Vec<f64> = series.points.iter().map(|point| point.t_s).collect();
        let widest = instants.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        assert!(instants[0] <= 64.0 && instants[instants.len() - 1] > 499_900.0 && widest <= 64.0);
        assert!(instants.is_sorted());
    }
}
