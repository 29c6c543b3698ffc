//! Methods that send the streams of a profile, tested on devices with known properties.

use squall_method::{
    Bench, Device, MaxLoad, Measured, Method, MethodError, NoWatch, Outcome, RetryPolicy, Rig,
    RigLane, Runner, Status, Trial, rfc2544, rfc8219, soak, tst009,
};

fn run(runner: &mut dyn Runner, rig: &Rig, method: Method) -> Result<Outcome, MethodError> {
    let mut watch = NoWatch;
    let retry = RetryPolicy { repeats: 0, rest_s: 0.0 };
    method.run(rig, &mut Bench::new(runner, &mut watch, retry))
}

fn value(outcome: &Outcome, name: &str) -> f64 {
    outcome.figure(name).unwrap_or_else(|| panic!("{name}: {:?}", outcome.notes)).value
}

fn rig() -> Rig {
    let lane = |stream: &str, ipv6| RigLane {
        stream: stream.into(),
        port: stream.into(),
        share: 1.0,
        ipv6,
        ..RigLane::default()
    };
    let lanes = vec![lane("four", false), lane("six", true)];
    let ports = vec!["four".into(), "six".into()];
    Rig { ports, lanes, clients: None, servers: None, most: MaxLoad::BpsL1(1e9), link_bps: None }
}

#[test]
fn frames_of_ipv6_are_20_octets_longer_and_set_the_highest_rate() {
    let mut device = Device { capacity_fps: 1e6, buffer: 10.0, ..Device::ideal() };
    let settings = rfc8219::Settings { frame_sizes: vec![64], ..Default::default() }.quick(&[]);
    let outcome = run(&mut device, &rig(), Method::Rfc8219(settings.clone())).unwrap();
    let found = value(&outcome, "throughput/64");
    assert!(found <= 1e6 && found > 0.995e6, "{found}");
    let lanes = &outcome.trials[0].trial.lanes;
    assert_eq!([lanes[0].frame_size, lanes[1].frame_size], [Some(64), Some(84)]);
    assert!(lanes.iter().all(|lane| lane.rate_fps == 1e9 / 8.0 / 104.0));
    // A rig with a single IP version does not fit a translator.
    let mut rig = rig();
    rig.lanes.pop();
    assert!(matches!(
        run(&mut device, &rig, Method::Rfc8219(settings)),
        Err(MethodError::Usage(_))
    ));
}

/// A device that, like a software device, loses a frame in every other trial below its capacity.
struct Flaky(Device, u32);

impl Runner for Flaky {
    fn run(&mut self, trial: &Trial) -> Result<Measured, MethodError> {
        let mut measured = self.0.run(trial)?;
        self.1 += u32::from(measured.lost() == 0);
        if self.1 % 2 == 1 && measured.lost() == 0 {
            measured.lanes[0].lost = 1;
            measured.lanes[0].received -= 1;
        }
        Ok(measured)
    }

    fn settle(&mut self, seconds: f64) -> Result<(), MethodError> {
        self.0.settle(seconds)
    }
}

#[test]
fn verification_finds_what_a_transient_would_hide() {
    let device = Device { capacity_fps: 1e6, buffer: 10.0, ..Device::ideal() };
    let found = |verifications| {
        let settings = tst009::Settings {
            frame_sizes: vec![64],
            trial_s: 1.0,
            verifications,
            ..Default::default()
        };
        let mut flaky = Flaky(device.clone(), 0);
        value(&run(&mut flaky, &rig(), Method::Tst009(settings)).unwrap(), "throughput/64")
    };
    let verified = found(1);
    assert!(verified <= 1e6 && verified > 0.995e6, "{verified}");
    assert!(found(0) < 0.9e6, "one trial a load is at the mercy of the transient");
}

/// A device whose latency rises by 1 µs in each trial.
struct Aging(Device);

impl Runner for Aging {
    fn run(&mut self, trial: &Trial) -> Result<Measured, MethodError> {
        self.0.delay_ns += 1_000;
        self.0.run(trial)
    }

    fn settle(&mut self, seconds: f64) -> Result<(), MethodError> {
        self.0.settle(seconds)
    }
}

#[test]
fn a_soak_sees_the_drift_and_judges_it() {
    let settings = soak::Settings { max_drift_us: Some(59.0), ..Default::default() };
    let mut aging = Aging(Device::ideal());
    let outcome = run(&mut aging, &rig(), Method::Soak(settings.clone())).unwrap();
    // One trial per minute, so 60 µs per hour.
    let drift = value(&outcome, "latency_drift");
    assert!((drift - 60_000.0).abs() < 1.0, "{drift} ns/h");
    assert_eq!((outcome.trials.len(), outcome.verdict.status), (60, Status::Failed));
    let steady = run(&mut Device::ideal(), &rig(), Method::Soak(settings)).unwrap();
    assert_eq!(steady.verdict.status, Status::Passed);
    assert_eq!(value(&steady, "availability"), 1.0);
}

/// A generator that misses its schedule in the trials with these words in their labels.
struct Busy(Device, &'static [&'static str]);

impl Runner for Busy {
    fn run(&mut self, trial: &Trial) -> Result<Measured, MethodError> {
        let mut measured = self.0.run(trial)?;
        if self.1.iter().any(|word| trial.label.contains(word)) {
            measured.not_kept.push("20 frames late".into());
        }
        Ok(measured)
    }

    fn settle(&mut self, seconds: f64) -> Result<(), MethodError> {
        self.0.settle(seconds)
    }
}

#[test]
fn figures_of_a_part_of_the_trials_have_a_note() {
    let device = Device { capacity_fps: 1e6, buffer: 10.0, delay_ns: 9, ..Device::ideal() };
    let mut busy = Busy(device, &["latency, 64 octets, 1", "delay variation, 64 octets, 2"]);
    let rfc2544 = rfc2544::Settings { frame_sizes: vec![64], ..Default::default() }.quick(&[]);
    let rfc8219 = rfc8219::Settings { frame_sizes: vec![64], ..Default::default() }.quick(&[]);
    for (method, figures) in [
        (Method::Rfc2544(rfc2544), &["latency"][..]),
        (Method::Rfc8219(rfc8219), &["latency", "delay variation"][..]),
    ] {
        let outcome = run(&mut busy, &rig(), method).unwrap();
        for of in figures {
            let note = format!(
                "{of} at 64 octets: 1 of 2 trials do not count: the generator missed its schedule: \
                 20 frames late"
            );
            assert!(outcome.notes.contains(&note), "{:?}", outcome.notes);
        }
    }
}

#[test]
fn a_test_without_figures_is_generator_bound_and_not_measured() {
    let outcome = |busy| {
        let device = Device { capacity_fps: 1e6, buffer: 10.0, delay_ns: 9, ..Device::ideal() };
        let settings = rfc2544::Settings { frame_sizes: vec![64], ..Default::default() };
        run(&mut Busy(device, busy), &rig(), Method::Rfc2544(settings.quick(&[]))).unwrap()
    };
    let good = outcome(&[]);
    assert_eq!(good.verdict.status, Status::Measured, "{:?}", good.notes);
    assert_eq!(value(&good, "latency/64"), 9.0);
    for (busy, missing) in [
        (&["latency"], "latency/64"),
        (&["frame loss"], "loss@100%/64"),
        (&["recovery"], "recovery/64"),
    ] {
        assert!(good.figure(missing).is_some(), "{missing}: {:?}", good.notes);
        let outcome = outcome(busy);
        assert!(outcome.figure(missing).is_none(), "{missing}");
        assert_eq!(outcome.verdict.status, Status::GeneratorBound, "{missing}");
        assert!(outcome.notes.iter().any(|note| note.contains("20 frames late")), "{missing}");
    }
}
