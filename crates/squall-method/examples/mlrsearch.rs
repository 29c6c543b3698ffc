//! Searches on simulated devices. Prints JSON lines with device, goals, bounds and trials. The
//! counterpart, tests/interop/mlrsearch.py, runs another program's search on the same devices.
//!
//! `mlrsearch FROM TO`: devices with these seeds; `mlrsearch FROM TO noisy`: devices whose trials
//! at equal loads differ.

use serde::Serialize;
use serde_json::json;
use squall_method::mlrsearch::{Goal, Next, Preset, Search};
use squall_units::{SplitMix64, mix};

/// Range of loads, frames per second.
const MIN: f64 = 10_000.0;
const MAX: f64 = 15_000_000.0;

struct Random(SplitMix64);

impl Random {
    fn below(&mut self, most: f64) -> f64 {
        part(self.0.draw()) * most
    }

    fn between(&mut self, from: f64, to: f64) -> f64 {
        from * (self.below(1.0) * (to / from).ln()).exp()
    }
}

fn part(x: u64) -> f64 {
    (x >> 11) as f64 / (1_u64 << 53) as f64
}

/// A simulated device. It loses frames above its capacity once its buffer is full.
#[derive(Default, Serialize)]
struct Device {
    shape: &'static str,
    seed: u64,
    capacity: f64,
    /// Capacity of the queue, frames.
    buffer: f64,
    /// Fraction of the capacity that remains under overload.
    collapse: f64,
    /// The device loses `floor` of the frames at capacity, fewer at lower loads, and none up to
    /// `onset`. Between the two, the loss grows with this power of the distance from `onset`.
    onset: f64,
    floor: f64,
    power: i32,
    /// Whether it loses `floor` at all loads.
    flat: bool,
    /// Range of loads in which it loses 1 %.
    dip: [f64; 2],
    /// Fraction of the trials in which it loses `amount`.
    noise: f64,
    amount: f64,
    /// Range of loads over which the fraction of trials that lose `amount` grows from 0 to 1.
    edge: [f64; 2],
    /// The capacity varies from trial to trial by up to this fraction, and the loss up to `onset`
    /// by a factor of up to 1 plus this fraction.
    jitter: f64,
    /// The capacity falls and rises by this fraction, once in `period` trials.
    drift: f64,
    period: u64,
    /// Mean number of events per second at which it loses `burst` frames.
    events: f64,
    burst: f64,
}

impl Device {
    fn new(seed: u64, noisy: bool) -> Self {
        let mut random = Random(SplitMix64(seed));
        let steady = ["sharp", "buffer", "lossy", "flat", "noisy", "collapse", "dip"];
        let varying = ["edge", "jitter", "drift", "events", "ramp", "noisy", "queue"];
        let shapes = if noisy { varying } else { steady };
        // One in ten devices can forward more than the highest load.
        let most = if seed % 10 == 9 { 2.0 * MAX } else { MAX };
        let capacity = random.between(MIN / 2.0, most);
        let plain = Self {
            shape: shapes[(seed % 7) as usize],
            seed,
            capacity,
            collapse: 1.0,
            power: 1,
            period: 1,
            ..Self::default()
        };
        let floor = random.between(1e-4, 1e-2);
        match plain.shape {
            "buffer" => Self { buffer: capacity * random.between(1e-4, 3.0), ..plain },
            "lossy" => Self { onset: capacity * random.below(0.9), floor, ..plain },
            "flat" => Self { flat: true, floor, ..plain },
            "noisy" => Self { noise: random.below(0.2), amount: floor, ..plain },
            "collapse" => Self { collapse: 0.2 + random.below(0.8), ..plain },
            "dip" => {
                let from = capacity * (0.3 + random.below(0.6));
                Self { dip: [from, from + (capacity - from) * random.below(0.5)], ..plain }
            }
            "edge" => {
                let from = capacity * (1.0 - random.between(1e-3, 0.3));
                Self { edge: [from, capacity], amount: floor, ..plain }
            }
            "jitter" => Self { jitter: random.between(1e-3, 0.1), ..plain },
            "drift" => {
                let period = 5 + (random.below(1.0) * 200.0) as u64;
                Self { drift: random.between(1e-3, 0.1), period, ..plain }
            }
            "events" => {
                let burst = (capacity * random.between(1e-6, 1e-2)).ceil();
                Self { events: random.between(1e-3, 0.2), burst, ..plain }
            }
            "ramp" => {
                let power = 1 + (random.below(1.0) * 4.0) as i32;
                Self { onset: capacity * random.below(0.9), floor, power, jitter: 0.02, ..plain }
            }
            "queue" => {
                let buffer = capacity * random.between(1e-4, 3.0);
                Self { buffer, jitter: random.between(1e-3, 0.05), ..plain }
            }
            _ => plain,
        }
    }

    /// Frames offered and lost in the `nth` trial with this load and duration, which is the
    /// `trial`th trial overall.
    fn lost(&self, load: f64, duration_s: f64, nth: u64, trial: u64) -> (f64, f64) {
        let seed = self.seed ^ load.to_bits() ^ (duration_s.to_bits() >> 7);
        let draw = |i: u64| part(mix(seed, nth + (i << 32)));
        let offered = (load * duration_s + 0.5).floor();
        let phase = (trial % self.period) as f64 / self.period as f64;
        let varied = 1.0 + self.jitter * (draw(1) + draw(2) - 1.0)
            - self.drift * (1.0 - (2.0 * phase - 1.0).abs());
        let capacity = self.capacity * varied;
        let carried = capacity * if load > capacity { self.collapse } else { 1.0 };
        let over = (offered - (carried * duration_s + self.buffer).floor()).max(0.0);
        let mut ratio = 0.0;
        if load > self.onset {
            let ramp = match self.flat {
                true => 1.0,
                false => (load - self.onset) / (self.capacity - self.onset),
            };
            ratio += self.floor * ramp.min(1.0).powi(self.power) * (1.0 + self.jitter * draw(3));
        }
        if self.dip[0] <= load && load < self.dip[1] {
            ratio += 0.01;
        }
        let edge = (load - self.edge[0]) / (self.edge[1] - self.edge[0]).max(1.0);
        let noise = if self.edge[1] > 0.0 { edge } else { self.noise };
        if draw(0) < noise {
            ratio += self.amount;
        }
        let event = if draw(4) < self.events * duration_s { self.burst } else { 0.0 };
        (offered, (over + ((offered - over) * ratio).floor() + event).min(offered))
    }
}

fn searched(device: &Device, goals: &[Goal]) -> serde_json::Value {
    let mut search = Search::new(goals, MIN, MAX);
    let mut trials: Vec<(f64, f64, f64)> = Vec::new();
    while let Next::Measure { load, duration_s } = search.next_trial() {
        assert!(trials.len() < 20_000, "device {} ends nowhere", device.seed);
        let nth = trials.iter().filter(|trial| trial.0 == load && trial.1 == duration_s).count();
        let (offered, lost) = device.lost(load, duration_s, nth as u64, trials.len() as u64);
        search.record(load, duration_s, lost / offered);
        trials.push((load, duration_s, lost));
    }
    let found = search.found();
    let found: Vec<_> =
        found.iter().map(|f| (f.lower, f.upper, f.conditional_throughput, f.regular)).collect();
    json!({ "goals": goals, "found": found, "trials": trials })
}

/// The goals of RFC 9971 appendix C.1, in one search.
fn appendix() -> Vec<Goal> {
    let goal = |name: &str, final_s: f64, sum_s: f64, loss_ratio: f64, exceed_ratio: f64| Goal {
        name: name.into(),
        final_s,
        sum_s,
        loss_ratio,
        exceed_ratio,
        ..Goal::default()
    };
    vec![
        goal("RFC2544", 60.0, 60.0, 0.0, 0.0),
        goal("TST009", 60.0, 120.0, 0.0, 0.5),
        goal("1s final", 1.0, 120.0, 0.005, 0.5),
        goal("20% exceed", 60.0, 60.0, 0.005, 0.2),
    ]
}

fn main() {
    let mut args = std::env::args().skip(1);
    let mut seed = |default| args.next().map_or(default, |seed| seed.parse().expect("a seed"));
    let (from, to) = (seed(0), seed(100));
    let noisy = args.next().is_some();
    let sets = [
        ("rfc2544", Preset::Rfc2544.goals()),
        ("tst009", Preset::Tst009.goals()),
        ("csit", Preset::Csit.goals()),
        ("appendix", appendix()),
    ];
    for seed in from..to {
        let device = Device::new(seed, noisy);
        let searches: serde_json::Map<_, _> =
            sets.iter().map(|(name, goals)| ((*name).into(), searched(&device, goals))).collect();
        println!("{}", json!({ "device": device, "limits": [MIN, MAX], "searches": searches }));
    }
}
