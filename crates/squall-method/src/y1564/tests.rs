use super::*;
use crate::{Delay, Limit, Measured, NoWatch, RetryPolicy, Runner, Second, Status};

/// A network that polices each stream to a separate rate, and has an outage of some seconds.
struct Network {
    /// Rates that pass, frames per second, by stream; the last one also applies to any further
    /// streams.
    police_fps: Vec<f64>,
    delay_ns: (u64, u64),
    /// Uncertainty between the clocks of sender and receiver.
    bound_ns: Option<u64>,
    /// Seconds of outage in each trial.
    out: std::ops::Range<usize>,
    able_fps: f64,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            police_fps: vec![f64::INFINITY],
            delay_ns: (100_000, 300_000),
            bound_ns: None,
            out: 0..0,
            able_fps: f64::INFINITY,
        }
    }
}

impl Network {
    fn lane(&self, lane: &Lane, police_fps: f64, duration_s: f64) -> LaneMeasured {
        let second = |i: usize| Second {
            sent: lane.rate_fps as u64,
            received: if self.out.contains(&i) { 0 } else { lane.rate_fps.min(police_fps) as u64 },
        };
        let seconds: Vec<_> = (0..duration_s as usize).map(second).collect();
        let sum = |of: &dyn Fn(&Second) -> u64| seconds.iter().map(of).sum::<u64>();
        let (sent, received) = (sum(&|s| s.sent), sum(&|s| s.received));
        let (min, max) = self.delay_ns;
        let delay = Delay { min, mean: (min + max) as f64 / 2.0, max, ..Delay::default() };
        LaneMeasured {
            name: lane.name.clone(),
            sent,
            received,
            lost: sent - received,
            offered_fps: lane.rate_fps,
            delay: Some(delay),
            delay_bound_ns: self.bound_ns,
            seconds,
            ..LaneMeasured::default()
        }
    }
}

impl Runner for Network {
    fn run(&mut self, trial: &Trial) -> Result<Measured, MethodError> {
        let police = |lane: &Lane| match lane.stream.as_str() {
            "voice" => self.police_fps[0],
            _ => *self.police_fps.last().unwrap(),
        };
        let lanes = trial.lanes.iter().map(|lane| self.lane(lane, police(lane), trial.duration_s));
        let too_much = trial.lanes.iter().any(|lane| lane.rate_fps > self.able_fps);
        let not_kept = too_much.then(|| "too much".to_owned()).into_iter().collect();
        Ok(Measured { lanes: lanes.collect(), not_kept, ..Measured::default() })
    }

    fn settle(&mut self, _: f64) -> Result<(), MethodError> {
        Ok(())
    }
}

/// Two services of 1000 and 10,000 frames/s with frames of 125 octets; the EIR of the second one
/// equals its CIR.
fn settings() -> Settings {
    let voice = Service {
        stream: "voice".into(),
        cir_bps: 1e6,
        frame_size: 125,
        ftd_ms: Some(1.0),
        fdv_ms: Some(0.5),
        ..Service::default()
    };
    let data = Service { stream: "data".into(), cir_bps: 1e7, eir_bps: 1e7, ..voice.clone() };
    Settings { service: vec![voice, data], performance_s: 100.0, ..Settings::default() }
}

fn rig() -> Rig {
    let mut rig = Rig::one_stream("voice", 1e9);
    let data = crate::RigLane { stream: "data".into(), ..rig.lanes[0].clone() };
    rig.lanes.push(data);
    rig
}

fn outcome(settings: &Settings, network: &mut Network) -> Result<Outcome, MethodError> {
    let mut watch = NoWatch;
    let mut bench = Bench::new(network, &mut watch, RetryPolicy { repeats: 0, rest_s: 0.0 });
    let mut outcome = Outcome::new("y1564", "Y.1564", settings);
    run(settings, &rig(), &mut bench, &mut outcome)?;
    outcome.note_generator_limit();
    Ok(outcome)
}

/// Results in the rows of a table.
fn results(outcome: &Outcome, table: usize) -> Vec<&str> {
    outcome.tables[table].rows.iter().map(|row| row.last().unwrap().as_str()).collect()
}

/// The highest delay is 0.3 ms; the limit is 1 ms.
#[test]
fn a_delay_that_the_clocks_do_not_know_well_enough_is_not_as_agreed() {
    for (bound_ns, expected) in [(699_000, Status::Passed), (701_000, Status::Failed)] {
        let police_fps = vec![1000.0, 20_000.0];
        let bound_ns = Some(bound_ns);
        let mut network = Network { police_fps, bound_ns, ..Network::default() };
        let outcome = outcome(&settings(), &mut network).unwrap();
        assert_eq!(outcome.verdict.status, expected, "{bound_ns:?}: {outcome:#?}");
    }
}

#[test]
fn a_network_that_polices_to_the_profile_passes() {
    let mut network = Network { police_fps: vec![1000.0, 20_000.0], ..Network::default() };
    let outcome = outcome(&settings(), &mut network).unwrap();
    assert_eq!(outcome.verdict.status, Status::Passed, "{outcome:#?}");
    let steps: Vec<_> = outcome.tables[1].rows.iter().map(|row| row[1].as_str()).collect();
    let committed = ["25 % CIR", "50 % CIR", "75 % CIR", "90 % CIR", "100 % CIR"];
    assert_eq!(steps[..5], committed);
    assert_eq!(steps[5..], [&["policing"], &committed[..], &["CIR + EIR", "policing"]].concat());
    // Policing is tested at 1.25 CIR + EIR, as the excess is less than a fifth of the committed
    // rate.
    assert_eq!(outcome.tables[1].rows[5][2], squall_report::render::human::si(1.25e6, "b/s"));
    assert_eq!(outcome.tables[1].rows[12][2], squall_report::render::human::si(2.25e7, "b/s"));
    assert_eq!(results(&outcome, 2), ["pass", "pass"]);
    assert_eq!(outcome.figure("AVAIL/data").unwrap().value, 1.0);
    assert_eq!(outcome.figure("FDV/voice").unwrap().value, 200_000.0);
}

#[test]
fn a_network_that_does_not_police_fails_in_that_step_alone() {
    let outcome = outcome(&settings(), &mut Network::default()).unwrap();
    assert_eq!(outcome.verdict.status, Status::Failed);
    let failed: Vec<_> =
        results(&outcome, 1).iter().map(|result| result.starts_with("FAIL")).collect();
    let policing = |i: usize| i == 5 || i == 12;
    assert_eq!(failed, (0..13).map(policing).collect::<Vec<_>>());
    assert_eq!(outcome.verdict.text[0], "voice: fails policing (IR above CIR + EIR)");
    // A service that is not policed has no policing step.
    let mut free = settings();
    free.service.iter_mut().for_each(|service| service.policed = false);
    let outcome = self::outcome(&free, &mut Network::default()).unwrap();
    assert_eq!(outcome.verdict.status, Status::Passed);
}

#[test]
fn too_little_bandwidth_and_too_much_delay_are_named() {
    let mut network = Network { police_fps: vec![950.0, 20_000.0], ..Network::default() };
    let outcome = outcome(&settings(), &mut network).unwrap();
    assert_eq!(results(&outcome, 1)[3..6], ["pass", "FAIL: FLR", "FAIL: IR below CIR"]);
    assert_eq!(results(&outcome, 2), ["FAIL: FLR", "pass"]);
    let mut network = Network { delay_ns: (400_000, 1_000_001), ..Network::default() };
    let outcome = self::outcome(&settings(), &mut network).unwrap();
    assert_eq!(results(&outcome, 1)[0], "FAIL: FTD, FDV");
}

#[test]
fn an_outage_is_unavailable_time_and_no_loss() {
    let police_fps = vec![1000.0, 20_000.0];
    let mut network = Network { police_fps, out: 20..40, ..Network::default() };
    let outcome = outcome(&settings(), &mut network).unwrap();
    assert_eq!(results(&outcome, 2), ["FAIL: AVAIL", "FAIL: AVAIL"]);
    assert_eq!(outcome.figure("AVAIL/voice").unwrap().value, 0.8);
    assert_eq!(outcome.figure("FLR/voice").unwrap().value, 0.0);
    // Nine seconds are too short for unavailable time, so their loss counts.
    network.out = 20..29;
    let outcome = self::outcome(&settings(), &mut network).unwrap();
    assert_eq!(results(&outcome, 2), ["FAIL: FLR", "FAIL: FLR"]);
}

#[test]
fn steps_that_the_generator_did_not_keep_to_are_not_judged() {
    let mut network =
        Network { police_fps: vec![1000.0, 20_000.0], able_fps: 15_000.0, ..Network::default() };
    let outcome = outcome(&settings(), &mut network).unwrap();
    assert!(results(&outcome, 1)[11..].iter().all(|result| result.starts_with("not measured")));
    assert_eq!(outcome.verdict.text[1], "data: 2 of 8 steps were not measured");
    assert_eq!(outcome.verdict.status, Status::GeneratorBound);
    network.able_fps = 5000.0;
    let outcome = self::outcome(&settings(), &mut network).unwrap();
    assert_eq!(outcome.figure("IR/data").unwrap().limit, Limit::Generator);
    assert_eq!(outcome.verdict.status, Status::GeneratorBound);
}

#[test]
fn services_that_cannot_be_tested_are_refused() {
    let refused = |change: &dyn Fn(&mut Settings)| {
        let mut wrong = settings();
        change(&mut wrong);
        match outcome(&wrong, &mut Network::default()) {
            Err(MethodError::Usage(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    refused(&|settings| settings.service.clear());
    refused(&|settings| settings.steps.push(1.5));
    refused(&|settings| settings.step_s = 0.0);
    let text = refused(&|settings| settings.service[0].stream = "video".into());
    assert_eq!(text, "service \"video\": the profile has the streams voice, data");
    refused(&|settings| settings.service[1].flr = 1.5);
    let text = refused(&|settings| settings.service[1].cir_bps = 1e9);
    assert!(text.contains("sends 862069 at most"), "{text}");
}
