//! Searches of simulated devices, as JSON lines: device, goals, bounds, trials. The counterpart of
//! tests/interop/mlrsearch.py, which runs another program's search on the same devices.
//!
//! `mlrsearch FROM TO`: devices of these seeds.

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

/// A simulated device, which loses frames above its capacity once its buffer is full.
struct Device {
    shape: &'static str,
    seed: u64,
    capacity: f64,
    /// Capacity of the queue, frames.
    buffer: f64,
    /// The part of the capacity that remains at a higher load.
    collapse: f64,
    /// The device loses `floor` of the frames at capacity, fewer at lower loads, none up to
    /// `onset`.
    onset: f64,
    floor: f64,
    /// Whether it loses `floor` at all loads.
    flat: bool,
    /// The loads between which it loses 1 %.
    dip: [f64; 2],
    /// The part of the trials in which it loses `amount`.
    noise: f64,
    amount: f64,
}

impl Device {
    fn new(seed: u64) -> Self {
        let mut random = Random(SplitMix64(seed));
        let shapes = ["sharp", "buffer", "lossy", "flat", "noisy", "collapse", "dip"];
        // One device in ten carries more than the highest load.
        let most = if seed % 10 == 9 { 2.0 * MAX } else { MAX };
        let capacity = random.between(MIN / 2.0, most);
        let plain = Self {
            shape: shapes[(seed % 7) as usize],
            seed,
            capacity,
            buffer: 0.0,
            collapse: 1.0,
            onset: 0.0,
            floor: 0.0,
            flat: false,
            dip: [0.0; 2],
            noise: 0.0,
            amount: 0.0,
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
            _ => plain,
        }
    }

    /// Frames offered and lost in the `nth` trial with this load and duration.
    fn lost(&self, load: f64, duration_s: f64, nth: u64) -> (f64, f64) {
        let offered = (load * duration_s + 0.5).floor();
        let carried = self.capacity * if load > self.capacity { self.collapse } else { 1.0 };
        let over = (offered - (carried * duration_s + self.buffer).floor()).max(0.0);
        let mut ratio = 0.0;
        if load > self.onset {
            let ramp = match self.flat {
                true => 1.0,
                false => (load - self.onset) / (self.capacity - self.onset),
            };
            ratio += self.floor * ramp.min(1.0);
        }
        if self.dip[0] <= load && load < self.dip[1] {
            ratio += 0.01;
        }
        let seed = self.seed ^ load.to_bits() ^ (duration_s.to_bits() >> 7);
        if part(mix(seed, nth)) < self.noise {
            ratio += self.amount;
        }
        (offered, over + ((offered - over) * ratio).floor())
    }
}

fn searched(device: &Device, goals: &[Goal]) -> serde_json::Value {
    let mut search = Search::new(goals, MIN, MAX);
    let mut trials: Vec<(f64, f64, f64)> = Vec::new();
    while let Next::Measure { load, duration_s } = search.next_trial() {
        assert!(trials.len() < 20_000, "device {} ends nowhere", device.seed);
        let nth = trials.iter().filter(|trial| trial.0 == load && trial.1 == duration_s).count();
        let (offered, lost) = device.lost(load, duration_s, nth as u64);
        search.record(load, duration_s, lost / offered);
        trials.push((load, duration_s, lost));
    }
    let found = search.found();
    let found: Vec<_> =
        found.iter().map(|f| (f.lower, f.upper, f.conditional_throughput, f.regular)).collect();
    json!({ "goals": goals, "found": found, "trials": trials })
}

fn main() {
    let mut seeds = std::env::args().skip(1).map(|seed| seed.parse::<u64>().expect("a seed"));
    let (from, to) = (seeds.next().unwrap_or(0), seeds.next().unwrap_or(100));
    for seed in from..to {
        let device = Device::new(seed);
        let presets =
            [("rfc2544", Preset::Rfc2544), ("tst009", Preset::Tst009), ("csit", Preset::Csit)];
        let all = presets.map(|(name, preset)| (name, searched(&device, &preset.goals())));
        let searches: serde_json::Map<_, _> =
            all.map(|(name, all)| (name.into(), all)).into_iter().collect();
        println!(
            "{}",
            json!({
                "device": {
                    "shape": device.shape, "seed": seed, "capacity": device.capacity,
                    "buffer": device.buffer, "collapse": device.collapse, "onset": device.onset,
                    "floor": device.floor, "flat": device.flat, "dip": device.dip,
                    "noise": device.noise, "amount": device.amount,
                },
                "limits": [MIN, MAX],
                "searches": searches,
            })
        );
    }
}
