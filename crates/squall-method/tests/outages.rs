//! Recovery, reset and outages of a device that is simulated frame by frame. The numbers of the
//! frames that it passes go to the tracker that counts the frames of a real run.

use std::ops::Range;

use squall_method::{
    ArrivedRange, Bench, Lane, LaneMeasured, Limit, Measured, Method, MethodError, NoWatch,
    Outcome, RetryPolicy, Rig, Runner, Trial, rfc2544, soak,
};
use squall_stats::SequenceTracker;

/// A device that forwards `fps` frames/s and holds `queue` frames.
struct Device {
    fps: f64,
    queue: f64,
    /// Seconds of operation in which it drops all frames.
    outages: Vec<Range<f64>>,
    /// Time after a queue overflow in which it forwards nothing, seconds.
    stalls_s: f64,
    /// Seconds of operation before the current trial.
    now_s: f64,
    trials: Vec<Trial>,
}

impl Device {
    fn with(outages: &[Range<f64>]) -> Self {
        let (outages, trials) = (outages.to_vec(), Vec::new());
        Self { fps: 1e4, queue: 10.0, outages, stalls_s: 0.0, now_s: 0.0, trials }
    }
}

impl Runner for Device {
    fn run(&mut self, trial: &Trial) -> Result<Measured, MethodError> {
        let due = |lane: &Lane| lane.due(trial.duration_s);
        let at = |lane: &Lane, number: u64| lane.start_s + number as f64 / lane.rate_fps;
        let lanes = || trial.lanes.iter().enumerate();
        let of_lane = |(i, lane)| (0..due(lane)).map(move |number| (at(lane, number), i, number));
        let mut frames: Vec<(f64, usize, u64)> = lanes().flat_map(of_lane).collect();
        frames.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut seen = vec![(SequenceTracker::new(), 0.0_f64, 0.0_f64); trial.lanes.len()];
        let (mut free_at, mut stalled_until) = (0.0_f64, 0.0_f64);
        for (at, lane, number) in frames {
            let now_s = self.now_s + at;
            if self.outages.iter().any(|outage| outage.contains(&now_s)) || at < stalled_until {
                continue;
            }
            if free_at - at >= self.queue / self.fps {
                stalled_until = at + self.stalls_s;
                continue;
            }
            free_at = free_at.max(at) + 1.0 / self.fps;
            let (sequence, first, last) = &mut seen[lane];
            if sequence.counts().unique == 0 {
                *first = free_at;
            }
            *last = free_at;
            sequence.observe(number as u32);
        }
        self.now_s += trial.duration_s;
        self.trials.push(trial.clone());
        let measured = |(lane, (sequence, first, last)): (&Lane, &(SequenceTracker, f64, f64))| {
            let (sent, received) = (due(lane), sequence.counts().unique);
            LaneMeasured {
                name: lane.name.clone(),
                sent,
                received,
                lost: sent - received,
                offered_fps: lane.rate_fps,
                output_fps: (received > 1).then(|| (received - 1) as f64 / (last - first)),
                arrived: Some(ArrivedRange::of([sequence].into_iter())),
                ..LaneMeasured::default()
            }
        };
        let lanes = trial.lanes.iter().zip(&seen).map(measured).collect();
        Ok(Measured { lanes, ..Measured::default() })
    }

    fn settle(&mut self, _: f64) -> Result<(), MethodError> {
        Ok(())
    }
}

const RATE: f64 = 2e4;

fn run(device: &mut dyn Runner, method: Method) -> Outcome {
    let rig = Rig { most: squall_method::MaxLoad::Fps(RATE), ..Rig::one_stream("A to B", 1e9) };
    let mut watch = NoWatch;
    let mut bench = Bench::new(device, &mut watch, RetryPolicy::default());
    method.run(&rig, &mut bench).expect("it runs")
}

fn rfc2544(test: rfc2544::Test) -> Method {
    Method::Rfc2544(rfc2544::Settings {
        tests: vec![test],
        frame_sizes: vec![64],
        trial_s: 1.0,
        overload_s: 1.0,
        reset_s: 10.0,
        ..Default::default()
    })
}

/// A reset trial at the end of a search; `outages` happen during the trial.
fn reset(outages: &[Range<f64>]) -> (Outcome, f64) {
    let mut device = Device::with(&[]);
    run(&mut device, rfc2544(rfc2544::Test::Throughput));
    let before_s = device.now_s;
    let shifted: Vec<_> = outages.iter().map(|o| before_s + o.start..before_s + o.end).collect();
    let mut device = Device::with(&shifted);
    let outcome = run(&mut device, rfc2544(rfc2544::Test::Reset));
    let last = device.trials.last().expect("a reset trial");
    assert!(last.label.starts_with("reset"), "{}", last.label);
    (outcome, 1.0 / last.lanes[0].rate_fps)
}

#[test]
fn recovery_is_the_time_to_the_last_frame_that_is_lost_after_the_overload() {
    // The overload fills the queue, after which the device forwards nothing for some time.
    for stalls_s in [0.0, 0.05, 0.217] {
        let mut device = Device { stalls_s, ..Device::with(&[]) };
        let outcome = run(&mut device, rfc2544(rfc2544::Test::Recovery));
        let trial = device.trials.last().expect("a trial of recovery");
        let gap = 1.0 / trial.lanes[1].rate_fps;
        let found = outcome.figure("recovery/64").expect("a figure");
        assert_eq!(found.limit, Limit::Device);
        let stall_left =
            outcome.trials.last().expect("a trial").measured.lanes[1].lost as f64 * gap;
        assert!(
            (found.value - stall_left).abs() <= 1.01 * gap,
            "{stalls_s}: {found:?} {stall_left}"
        );
        assert!(found.value <= stalls_s + gap, "{stalls_s}: {found:?}");
    }
}

#[test]
fn a_device_that_stays_out_after_the_overload_is_not_back_within_the_trial() {
    let mut device = Device { stalls_s: 60.0, ..Device::with(&[]) };
    let outcome = run(&mut device, rfc2544(rfc2544::Test::Recovery));
    let found = outcome.figure("recovery/64").expect("a figure");
    assert_eq!(found.limit, Limit::Trial);
    assert!((found.value - 1.0).abs() < 0.001, "{found:?}");
    let noted = outcome.verdict.text.iter().any(|text| text.contains("until the end of the trial"));
    assert!(noted, "{:?}", outcome.verdict);
}

#[test]
fn a_reset_is_the_time_from_the_last_frame_before_to_the_first_one_after() {
    let (outcome, gap) = reset(&[2.0..2.217, 4.0..4.01]);
    let found = outcome.figure("reset/64").expect("a figure");
    assert_eq!(found.limit, Limit::Device);
    assert!((found.value - 0.217).abs() <= 1.01 * gap, "{found:?}");
}

#[test]
fn a_reset_that_touches_an_end_of_the_trial_is_at_least_as_long() {
    for (outage, seen_s, lacks) in [
        (8.5..99.0, 1.5, "not back within the trial"),
        (-1.0..0.5, 0.5, "out before the first frame"),
        (-1.0..99.0, 10.0, "nothing came back within the trial"),
    ] {
        let (outcome, gap) = reset(&[outage]);
        let found = outcome.figure("reset/64").expect("a figure");
        assert_eq!(found.limit, Limit::Trial, "{lacks}");
        assert!((found.value - seen_s).abs() <= 1.01 * gap, "{found:?}, expected {seen_s}");
        assert!(outcome.tables[0].rows[0].contains(&lacks.to_owned()), "{:?}", outcome.tables);
    }
}

#[test]
fn the_longest_outage_of_a_soak_test_may_last_over_several_trials() {
    let settings =
        soak::Settings { duration_s: 10.0, trial_s: 1.0, load: 0.25, ..Default::default() };
    let longest = |outages: &[Range<f64>]| {
        let outcome = run(&mut Device::with(outages), Method::Soak(settings.clone()));
        let found = outcome.figure("longest_outage").expect("a figure").clone();
        (found.value, found.limit)
    };
    let gap = 1.0 / (RATE * 0.25);
    for (outages, expected, limit) in [
        (vec![], 0.0, Limit::Device),
        (vec![2.3..2.517, 4.0..4.1], 0.217, Limit::Device),
        (vec![2.9..3.2, 5.1..5.3], 0.3, Limit::Device),
        (vec![2.9..6.05], 3.15, Limit::Device),
        (vec![0.0..1.5], 1.5, Limit::Trial),
        (vec![9.4..99.0], 0.6, Limit::Trial),
        (vec![0.0..99.0], 10.0, Limit::Trial),
    ] {
        let (value, of) = longest(&outages);
        assert!((value - expected).abs() <= 1.5 * gap, "{outages:?}: {value}");
        assert_eq!(of, limit, "{outages:?}");
    }
}

#[test]
fn a_queue_that_takes_in_more_for_a_second_is_described() {
    let mut device = Device { queue: 630.0, ..Device::with(&[]) };
    let outcome = run(&mut device, rfc2544(rfc2544::Test::Throughput));
    let value = |name: &str| outcome.figure(name).expect("a figure").value;
    let (received, offered) = (value("throughput/64"), value("throughput.offered/64"));
    assert!((received / 1e4 - 1.0).abs() < 0.002, "{received}");
    assert!((offered / 10_630.0 - 1.0).abs() < 0.002, "{offered}");
    let described = outcome.verdict.text.iter().any(|text| text.contains("a queue took in 6"));
    assert!(described, "{:?}", outcome.verdict);
    // 64 octets on a link of 1 Gb/s.
    let row = &outcome.tables[0].rows[0];
    assert_eq!((&*row[4], &*row[5]), ("1488095", "0.672 %"), "{row:?}");
}

/// A generator that sends up to `able` frames/s.
struct Generator(Device, f64);

impl Runner for Generator {
    fn run(&mut self, trial: &Trial) -> Result<Measured, MethodError> {
        let mut measured = self.0.run(trial)?;
        for lane in &mut measured.lanes {
            let able = (self.1 * trial.duration_s) as u64;
            if lane.sent > able {
                (lane.sent, lane.received) = (able, able);
                measured.not_kept.push("100 % of a CPU; the rest is detail".into());
            }
        }
        Ok(measured)
    }

    fn settle(&mut self, _: f64) -> Result<(), MethodError> {
        Ok(())
    }
}

#[test]
fn a_search_that_the_generator_limits_is_short_and_says_what_limits() {
    let device = Device { fps: 1e6, ..Device::with(&[]) };
    let mut generator = Generator(device, 235.0);
    let outcome = run(&mut generator, rfc2544(rfc2544::Test::Throughput));
    let found = outcome.figure("throughput/64").expect("a figure");
    assert_eq!(found.limit, Limit::Generator);
    assert!(found.value > 200.0 && found.value <= 235.0, "{found:?}");
    // Three of the four loads are tried three times each.
    assert!(outcome.trials.len() <= 10, "{}", outcome.trials.len());
    let why = ": 235 of ";
    let text = outcome.verdict.text.iter().find(|text| text.contains(why)).expect("the limit");
    assert!(text.ends_with("frames: 100 % of a CPU"), "{text}");
}

#[test]
fn quick_shortens_what_is_not_given() {
    let settings = rfc2544::Settings { trial_s: 4.0, ..Default::default() };
    let quick = settings.clone().quick(&["trial_s"]);
    assert_eq!((quick.trial_s, quick.latency_s), (4.0, 2.0));
    assert_eq!(settings.quick(&[]).trial_s, 1.0);
}
