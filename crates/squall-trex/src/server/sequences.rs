//! Random sequences of start, stop, pause, resume, update, add and remove, with the counter of the
//! other port as ground truth.

use std::{collections::BTreeMap, ops::RangeInclusive};

use squall_units::{SplitMix64, below};

use super::{tests::Client, *};

/// Number of sequences in `cargo test`; overridden by the environment variable
/// `SQUALL_TREX_SEQUENCES`.
const SEQUENCES: u64 = 8;
const STEPS: usize = 25;
const PROFILES: [&str; 3] = ["_", "a", "b"];
const WAIT: Duration = Duration::from_secs(60);

/// A profile in the server, as its client knows it.
#[derive(Default)]
struct Known {
    /// Number of frames of each stream, or chain of streams, which are sent once per start.
    bursts: Vec<u64>,
    paused: bool,
}

struct Sequence {
    client: Client,
    chance: SplitMix64,
    profiles: BTreeMap<(usize, &'static str), Known>,
    /// Frames that ports 0 and 1 must have sent: an exact number, unless a stop cut a profile
    /// short.
    frames: [RangeInclusive<u64>; 2],
    done: Vec<String>,
    handlers: [Value; 2],
    streams: u64,
}

impl Sequence {
    fn new(seed: u64) -> Self {
        let mut client = Client::new(&format!("trex-sequences-{seed}"), false);
        let handlers = [0, 1].map(|port| {
            let asked = json!({ "port_id": port, "user": "ann", "session_id": 1, "force": false });
            client.ask("acquire", asked).expect("free")
        });
        Self {
            client,
            chance: SplitMix64(seed),
            profiles: BTreeMap::new(),
            frames: [0..=0, 0..=0],
            done: Vec::new(),
            handlers,
            streams: 0,
        }
    }

    fn draw(&mut self, count: u64) -> u64 {
        below(self.chance.draw(), count)
    }

    fn ask(&mut self, method: &str, port: usize, profile: &str, more: &Value) {
        let mut params = json!({ "port_id": port, "profile_id": profile });
        params["handler"] = self.handlers[port].clone();
        for (key, value) in more.as_object().into_iter().flatten() {
            params[key] = value.clone();
        }
        self.done.push(format!("{method} {port} {profile}"));
        if let Err(why) = self.client.ask(method, params) {
            panic!("{}: {}", self.done.join(", "), why.text);
        }
    }

    fn is_active(&self, port: usize, profile: &str) -> bool {
        let profile = self.client.server.ports[port].profiles.get(profile);
        profile.is_some_and(|profile| profile.active.is_some())
    }

    fn step(&mut self) {
        let port = self.draw(2) as usize;
        let id = PROFILES[self.draw(PROFILES.len() as u64) as usize];
        let known = self.profiles.entry((port, id)).or_default();
        let (bursts, paused) = (known.bursts.clone(), known.paused);
        let raw = |value: f64| json!({ "mul": { "type": "raw", "op": "abs", "value": value } });
        if !self.is_active(port, id) {
            match self.draw(4) {
                0 if !bursts.is_empty() => {
                    self.ask("remove_all_streams", port, id, &json!({}));
                    self.profiles.insert((port, id), Known::default());
                }
                1 | 2 if !bursts.is_empty() => {
                    let mut start = raw(1.0);
                    start["duration"] = json!(-1);
                    self.ask("start_traffic", port, id, &start);
                    self.add_frames(port, bursts.iter().sum());
                    self.profiles.insert((port, id), Known { bursts, paused: false });
                }
                _ if bursts.len() < 3 => self.add_streams(port, id),
                _ => {}
            }
            return;
        }
        match self.draw(5) {
            0 => {
                self.ask("stop_traffic", port, id, &json!({}));
                let all: u64 = bursts.iter().sum();
                let frames = &self.frames[port];
                self.frames[port] = frames.start().saturating_sub(all)..=*frames.end();
                self.profiles.insert((port, id), Known { bursts, paused: false });
            }
            1 | 2 => {
                let method = if paused { "resume_traffic" } else { "pause_traffic" };
                self.ask(method, port, id, &json!({}));
                self.profiles.insert((port, id), Known { bursts, paused: !paused });
            }
            _ => {
                let factor = 0.5 + self.draw(100) as f64 / 100.0;
                self.ask("update_traffic", port, id, &raw(factor));
            }
        }
    }

    /// Adds a burst, a series of bursts, or two streams that start each other several times.
    fn add_streams(&mut self, port: usize, id: &'static str) {
        let frames = match self.draw(3) {
            0 => {
                let (mode, frames) = self.draw_burst();
                self.add_stream(port, id, mode, -1, 0);
                frames
            }
            1 => {
                let (mode, frames) = self.draw_series();
                self.add_stream(port, id, mode, -1, 0);
                frames
            }
            _ => {
                let (first, second) = (self.draw_burst(), self.draw_series());
                let rounds = 2 + self.draw(3);
                let number = self.streams as i64;
                self.add_stream(port, id, first.0, number + 2, 0);
                self.add_stream(port, id, second.0, number + 1, rounds);
                rounds * (first.1 + second.1)
            }
        };
        self.profiles.entry((port, id)).or_default().bursts.push(frames);
    }

    fn draw_rate(&mut self) -> Value {
        json!({ "type": "pps", "value": 1_000 + self.draw(4_000) })
    }

    fn draw_burst(&mut self) -> (Value, u64) {
        let frames = 1 + self.draw(60);
        let rate = self.draw_rate();
        (json!({ "type": "single_burst", "total_pkts": frames, "rate": rate }), frames)
    }

    fn draw_series(&mut self) -> (Value, u64) {
        let (frames, bursts) = (1 + self.draw(15), 2 + self.draw(4));
        let (gap_us, rate) = (self.draw(3_000), self.draw_rate());
        let mode = json!({ "type": "multi_burst", "pkts_per_burst": frames, "ibg": gap_us,
            "count": bursts, "rate": rate });
        (mode, frames * bursts)
    }

    fn add_stream(&mut self, port: usize, id: &str, mode: Value, next: i64, actions: u64) {
        self.streams += 1;
        let number = self.streams;
        let mut stream = json!({ "mode": mode, "packet": { "binary": "A".repeat(120) }, "vm": {},
            "next_stream_id": next, "action_count": actions });
        // The second stream of a chain waits for the first.
        stream["self_start"] = json!(actions == 0);
        self.ask("add_stream", port, id, &json!({ "stream_id": number, "stream": stream }));
    }

    fn add_frames(&mut self, port: usize, frames: u64) {
        let known = &self.frames[port];
        self.frames[port] = known.start() + frames..=known.end() + frames;
    }

    /// Resumes all profiles, and waits until every profile has ended.
    fn finish(&mut self) {
        let paused: Vec<_> =
            self.profiles.iter().filter(|(_, known)| known.paused).map(|(at, _)| *at).collect();
        for (port, id) in paused {
            if self.is_active(port, id) {
                self.ask("resume_traffic", port, id, &json!({}));
            }
        }
        let until = Instant::now() + WAIT;
        while (0..2).any(|port| PROFILES.iter().any(|id| self.is_active(port, id))) {
            assert!(Instant::now() < until, "a profile does not end: {}", self.done.join(", "));
            self.client.server.look();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn counter(&mut self, port: usize, name: &str) -> u64 {
        let stats = self.client.ask("get_port_stats", json!({ "port_id": port })).expect("known");
        stats[name].as_u64().expect("a number")
    }
}

#[test]
fn no_order_of_commands_sends_a_frame_twice_or_loses_one() {
    let count = std::env::var("SQUALL_TREX_SEQUENCES").ok().and_then(|text| text.parse().ok());
    for seed in 0..count.unwrap_or(SEQUENCES) {
        let mut sequence = Sequence::new(seed);
        for _ in 0..STEPS {
            sequence.step();
            let pause = Duration::from_micros(sequence.draw(15_000));
            let until = Instant::now() + pause;
            while Instant::now() < until {
                sequence.client.server.look();
                std::thread::sleep(Duration::from_micros(500));
            }
        }
        sequence.finish();
        for port in 0..2 {
            let sent = sequence.counter(port, "opackets");
            let until = Instant::now() + WAIT;
            while sequence.counter(1 - port, "ipackets") != sent && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            let arrived = sequence.counter(1 - port, "ipackets");
            let all = sequence.done.join(", ");
            assert_eq!(arrived, sent, "seed {seed}, port {port}: {all}");
            let expected = &sequence.frames[port];
            assert!(
                expected.contains(&arrived),
                "seed {seed}, port {port}: {arrived} frames, expected {expected:?}: {all}"
            );
        }
    }
}
