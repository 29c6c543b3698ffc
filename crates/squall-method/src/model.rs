//! A model of a device, for estimates before a test and for tests of the methods.

use crate::{
    bench::{MethodError, Runner},
    trial::{Delay, FlowLoad, FlowsMeasured, LaneMeasured, Measured, Trial},
};

/// A fluid queue of `buffer` frames that is served at `capacity_fps`, followed by a fixed delay.
///
/// It counts lost frames but not which ones were lost, so its results have no outages.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    pub capacity_fps: f64,
    /// Capacity of the queue, frames.
    pub buffer: f64,
    pub delay_ns: u64,
    /// The highest rate that the generator sustains, frames per second.
    pub generator_fps: f64,
    /// Capacity in connections per second and in concurrent connections.
    pub cps: f64,
    pub connections: f64,
    /// Simulated time of trials and rests, seconds.
    pub spent_s: f64,
}

impl Device {
    /// A device without delay and without limits.
    pub fn ideal() -> Self {
        Self {
            capacity_fps: f64::INFINITY,
            buffer: f64::INFINITY,
            delay_ns: 0,
            generator_fps: f64::INFINITY,
            cps: f64::INFINITY,
            connections: f64::INFINITY,
            spent_s: 0.0,
        }
    }

    /// The connections of `load` that the device can handle.
    fn connections(&self, load: &FlowLoad, duration_s: f64) -> FlowsMeasured {
        if let Some(bulk) = load.bulk {
            // The model has no capacity in octets, so bulk transfers open but send nothing.
            let open = u64::from(bulk.down) + u64::from(bulk.up);
            return FlowsMeasured {
                attempted: open,
                established: open,
                peak_active: open,
                ..FlowsMeasured::default()
            };
        }
        let steady_s = (duration_s - (load.ramp_up_s + load.ramp_down_s) / 2.0).max(0.0);
        let due = load.cps * steady_s;
        let attempted = load.limit.map_or(due, |limit| due.min(limit as f64)).floor();
        let holds_s = load.http.map_or(0.0, |http| http.think_s * f64::from(http.requests - 1));
        let open = (load.cps * holds_s.min(duration_s)).min(attempted).max(1.0);
        let too_fast = (1.0 - self.cps / load.cps).max(0.0);
        let too_many = (1.0 - self.connections / open).max(0.0);
        let failed = (attempted * too_fast.max(too_many)).ceil();
        let completed = attempted - failed;
        let octets = load.http.map_or(1_000, |http| http.object_octets * u64::from(http.requests));
        // Transfer time at the rate of the queue, in segments of 1,460 octets of data.
        let transfer_ns = (octets * completed as u64) as f64 / 1460.0 / self.capacity_fps * 1e9;
        let delay = Delay {
            min: 2 * self.delay_ns,
            mean: 2.0 * self.delay_ns as f64,
            p50: 2 * self.delay_ns,
            p90: 2 * self.delay_ns,
            p99: 2 * self.delay_ns,
            p999: 2 * self.delay_ns,
            max: 2 * self.delay_ns,
        };
        FlowsMeasured {
            attempted: attempted as u64,
            established: completed as u64,
            completed: completed as u64,
            failed: (failed > 0.0).then(|| ("refused".into(), failed as u64)).into_iter().collect(),
            peak_active: open.min(self.connections) as u64,
            completed_cps: load.cps.min(self.cps),
            goodput_bps: load.cps.min(self.cps) * octets as f64 * 8.0,
            received_octets: octets * completed as u64,
            tcp_sent_octets: octets * completed as u64,
            setup: Some(delay),
            first_byte: Some(delay),
            transaction: Some(delay),
            duration: Some(Delay { max: delay.max + transfer_ns as u64, ..delay }),
            ..FlowsMeasured::default()
        }
    }

    /// Times at which the offered load changes.
    fn edges(trial: &Trial) -> Vec<f64> {
        let ends = |lane: &crate::Lane| {
            let sent = lane.due(trial.duration_s) as f64 / lane.rate_fps.max(f64::MIN_POSITIVE);
            [lane.start_s, lane.start_s + sent]
        };
        let mut edges: Vec<f64> = trial.lanes.iter().flat_map(ends).collect();
        edges.sort_by(f64::total_cmp);
        edges.dedup();
        edges
    }
}

impl Runner for Device {
    fn run(&mut self, trial: &Trial) -> Result<Measured, MethodError> {
        let n = trial.lanes.len();
        let (mut lost, mut queue, mut deepest) = (vec![0.0; n], 0.0_f64, vec![0.0_f64; n]);
        let mut busiest = 0.0_f64;
        for span in Self::edges(trial).windows(2) {
            let [from, to] = [span[0], span[1]];
            let sends = |lane: &crate::Lane| {
                let sent = lane.due(trial.duration_s) as f64 / lane.rate_fps;
                lane.rate_fps > 0.0 && from >= lane.start_s && from < lane.start_s + sent
            };
            let active: Vec<bool> = trial.lanes.iter().map(sends).collect();
            let rates = trial.lanes.iter().zip(&active).filter(|(_, active)| **active);
            let offered: f64 = rates.map(|(lane, _)| lane.rate_fps).sum();
            busiest = busiest.max(offered);
            let grown = queue + (offered - self.capacity_fps) * (to - from);
            queue = grown.clamp(0.0, self.buffer);
            for (i, lane) in trial.lanes.iter().enumerate().filter(|(i, _)| active[*i]) {
                lost[i] += (grown - self.buffer).max(0.0) * lane.rate_fps / offered;
                deepest[i] = deepest[i].max(queue);
            }
        }
        let lane = |(i, lane): (usize, &crate::Lane)| {
            let sent = lane.due(trial.duration_s);
            let lost = (lost[i].round() as u64).min(sent);
            let waits = deepest[i] / self.capacity_fps * 1e9;
            let waits = if waits.is_finite() { waits as u64 } else { 0 };
            let delay = Delay {
                min: self.delay_ns,
                mean: self.delay_ns as f64 + waits as f64 / 2.0,
                p50: self.delay_ns + waits / 2,
                p90: self.delay_ns + waits,
                p99: self.delay_ns + waits,
                p999: self.delay_ns + waits,
                max: self.delay_ns + waits,
            };
            let part = (self.capacity_fps / busiest).min(1.0);
            LaneMeasured {
                name: lane.name.clone(),
                sent,
                received: sent - lost,
                lost,
                offered_fps: lane.rate_fps,
                output_fps: (sent - lost > 1).then_some(lane.rate_fps * part),
                delay: Some(delay),
                ..LaneMeasured::default()
            }
        };
        self.spent_s += trial.duration_s;
        let flows = trial.flows.as_ref().map(|load| self.connections(load, trial.duration_s));
        let not_kept = (busiest > self.generator_fps)
            .then(|| format!("cannot send {busiest} frames/s"))
            .into_iter()
            .collect();
        let lanes = trial.lanes.iter().enumerate().map(lane).collect();
        Ok(Measured { lanes, not_kept, flows, ..Measured::default() })
    }

    fn settle(&mut self, seconds: f64) -> Result<(), MethodError> {
        self.spent_s += seconds;
        Ok(())
    }
}
