//! Random sequences of start, stop, pause, resume, update, add and remove, with the counter of the
//! other port as ground truth.

use std::{
    collections::BTreeMap,
    ops::{Range, RangeInclusive},
};

use squall_units::{SplitMix64, below};

use super::{tests::Client, *};

/// Sequences in `cargo test`. The environment variable `SQUALL_TREX_SEQUENCES` has another number, or
/// the first seed and that after the last: `1000..2000`.
const SEQUENCES: Range<u64> = 0..8;
const STEPS: usize = 25;
const PROFILES: [&str; 3] = ["_", "a", "b"];
/// The profile with streams that do not end. Only such a profile can be paused, as in TRex.
const STEADY: &str = "b";
const WAIT: Duration = Duration::from_secs(60);

/// A profile in the server, as its client knows it.
#[derive(Default)]
struct Known {
    /// Number of frames of each stream, or chain of streams, which are sent once per start; 0 for
    /// a stream that does not end.
    bursts: Vec<u64>,
    paused: bool,
}

struct Sequence {
    client: Client,
    chance: SplitMix64,
    profiles: BTreeMap<(usize, &'static str), Known>,
    /// Frames of bursts that ports 0 and 1 must have sent: an exact number, unless a stop cut a
    /// profile short.
    frames: [RangeInclusive<u64>; 2],
    /// Packet groups of the streams that do not end.
    groups: Vec<u32>,
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
            groups: Vec::new(),
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
        if let Err(why) = self.attempt(method, params) {
            panic!("{}: {}", self.done.join(", "), why.text);
        }
    }

    fn attempt(&mut self, method: &str, params: Value) -> Result<Value, Refusal> {
        self.done.push(format!("{method} {} {}", params["port_id"], params["profile_id"]));
        self.client.ask(method, params)
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
            1 | 2 if id == STEADY => {
                let method = if paused { "resume_traffic" } else { "pause_traffic" };
                self.ask(method, port, id, &json!({}));
                self.profiles.insert((port, id), Known { bursts, paused: !paused });
            }
            1 => {
                let asked = json!({ "port_id": port, "profile_id": id,
                    "handler": self.handlers[port].clone() });
                let refused = self.attempt("pause_traffic", asked);
                let why = refused.expect_err("a profile with bursts cannot be paused").text;
                assert!(why.contains("is a burst"), "{}: {why}", self.done.join(", "));
            }
            _ => {
                let factor = 0.5 + self.draw(100) as f64 / 100.0;
                self.ask("update_traffic", port, id, &raw(factor));
            }
        }
    }

    /// Adds a stream that does not end, or a burst, a series of bursts, or two streams that start
    /// each other several times.
    fn add_streams(&mut self, port: usize, id: &'static str) {
        let frames = match self.draw(3) {
            _ if id == STEADY => {
                let mode = json!({ "type": "continuous", "rate": self.draw_rate() });
                self.add_stream(port, id, mode, -1, 0);
                0
            }
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
        if id == STEADY {
            let group = number as u32;
            stream["flow_stats"] =
                json!({ "enabled": true, "stream_id": group, "rule_type": "stats" });
            self.groups.push(group);
        }
        self.ask("add_stream", port, id, &json!({ "stream_id": number, "stream": stream }));
    }

    fn add_frames(&mut self, port: usize, frames: u64) {
        let known = &self.frames[port];
        self.frames[port] = known.start() + frames..=known.end() + frames;
    }

    /// Stops the profiles that do not end, and waits until every profile has ended.
    fn finish(&mut self) {
        for port in 0..2 {
            if self.is_active(port, STEADY) {
                self.ask("stop_traffic", port, STEADY, &json!({}));
            }
        }
        let until = Instant::now() + WAIT;
        while (0..2).any(|port| PROFILES.iter().any(|id| self.is_active(port, id))) {
            assert!(Instant::now() < until, "a profile does not end: {}", self.done.join(", "));
            self.client.server.look();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Frames of streams that do not end, sent by a port and received by the other one.
    fn steady(&self, port: usize) -> (u64, u64) {
        let counted = self.client.server.traffic.groups();
        let of_groups = self.groups.iter().filter_map(|group| counted.get(group));
        let of = |by: &BTreeMap<usize, (u64, u64)>, port| by.get(&port).map_or(0, |all| all.0);
        of_groups.fold((0, 0), |(tx, rx), group| {
            (tx + of(&group.tx, port), rx + of(&group.rx, 1 - port))
        })
    }

    fn counter(&mut self, port: usize, name: &str) -> u64 {
        let stats = self.client.ask("get_port_stats", json!({ "port_id": port })).expect("known");
        stats[name].as_u64().expect("a number")
    }
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("SQUALL_TREX_SEQUENCES") else { return SEQUENCES };
    let (first, end) = text.split_once("..").unwrap_or(("0", &text));
    let number = |text: &str| text.parse().expect("SQUALL_TREX_SEQUENCES: expected N or N..M");
    number(first)..number(end)
}

#[test]
fn no_order_of_commands_sends_a_frame_twice_or_loses_one() {
    for seed in seeds() {
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
            let (steady, received) = sequence.steady(port);
            assert_eq!(steady, received, "seed {seed}, port {port}: {all}");
            let expected = &sequence.frames[port];
            let bursts = arrived - steady;
            assert!(
                expected.contains(&bursts),
                "seed {seed}, port {port}: {bursts} frames, expected {expected:?}: {all}"
            );
        }
    }
}
