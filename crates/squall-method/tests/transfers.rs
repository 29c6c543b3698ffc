//! RFC 6349 on paths with known rates, which differ by direction.

use squall_method::{
    Bench, Device, Lane, MaxLoad, Measured, Method, MethodError, NoWatch, Outcome, RetryPolicy,
    Rig, RigLane, Runner, Status, Trial,
    rfc6349::{self, Direction},
};

/// A queue for the frames from A, and another one for those from B.
struct Line {
    from_a: Device,
    from_b: Device,
    /// The device that connections pass, if they take another path than the streams.
    around: Option<Device>,
}

impl Line {
    fn new(from_a: f64, from_b: f64) -> Self {
        let device = |capacity_fps| Device {
            capacity_fps,
            buffer: 20.0,
            delay_ns: 100_000,
            ..Device::ideal()
        };
        Self { from_a: device(from_a), from_b: device(from_b), around: None }
    }
}

impl Runner for Line {
    fn run(&mut self, trial: &Trial) -> Result<Measured, MethodError> {
        let mut measured = Measured::default();
        for lane in &trial.lanes {
            let device = if lane.stream == "A" { &mut self.from_a } else { &mut self.from_b };
            let alone = Trial { lanes: vec![lane.clone()], flows: None, ..trial.clone() };
            measured.lanes.extend(device.run(&alone)?.lanes);
        }
        if let Some(load) = &trial.flows {
            let http = load.http.expect("transfers are HTTP");
            let direct = if http.upload { &mut self.from_a } else { &mut self.from_b };
            let alone = Trial { lanes: Vec::<Lane>::new(), ..trial.clone() };
            measured.flows = self.around.as_mut().unwrap_or(direct).run(&alone)?.flows;
        }
        Ok(measured)
    }

    fn settle(&mut self, _: f64) -> Result<(), MethodError> {
        Ok(())
    }
}

fn rig(senders: &[&str]) -> Rig {
    let lane = |port: &&str| RigLane {
        stream: (*port).into(),
        port: (*port).into(),
        share: 1.0,
        ..RigLane::default()
    };
    Rig {
        ports: vec!["A".into(), "B".into()],
        lanes: senders.iter().map(lane).collect(),
        clients: Some("A".into()),
        servers: Some("B".into()),
        most: MaxLoad::Fps(10_000.0),
        link_bps: None,
    }
}

fn settings(direction: &[Direction]) -> rfc6349::Settings {
    let direction = direction.to_vec();
    rfc6349::Settings { direction, connections: vec![1, 4], ..Default::default() }.quick(&[])
}

fn run(line: &mut Line, rig: &Rig, settings: rfc6349::Settings) -> Result<Outcome, MethodError> {
    let mut watch = NoWatch;
    let retry = RetryPolicy { repeats: 0, rest_s: 0.0 };
    Method::Rfc6349(settings).run(rig, &mut Bench::new(line, &mut watch, retry))
}

const BOTH: [Direction; 2] = [Direction::ToServers, Direction::ToClients];

#[test]
fn each_direction_is_compared_with_its_own_bottleneck() {
    let outcome = run(&mut Line::new(1_000.0, 300.0), &rig(&["A", "B"]), settings(&BOTH)).unwrap();
    let value = |name: &str| outcome.figure(name).unwrap_or_else(|| panic!("{name}")).value;
    for (direction, fps) in [("to-servers", 1_000.0), ("to-clients", 300.0)] {
        let bottleneck = value(&format!("bottleneck/{direction}")) / 8.0 / 1518.0;
        assert!(bottleneck <= fps && bottleneck > 0.985 * fps, "{direction}: {bottleneck}");
        for connections in [1, 4] {
            let ratio = value(&format!("transfer_time_ratio/{direction}/{connections}"));
            assert!((0.98..1.05).contains(&ratio), "{direction}: {ratio}");
        }
    }
    assert_eq!(outcome.verdict.status, Status::Measured, "{:?}", outcome.verdict);
    let only = run(&mut Line::new(1_000.0, 300.0), &rig(&["A", "B"]), settings(&BOTH[1..]));
    let only = only.unwrap();
    assert!(only.figure("bottleneck/to-servers").is_none());
    assert!(only.figure("bottleneck/to-clients").is_some());
    // The round-trip time needs both streams.
    let mut loaded = only.trials.iter().filter(|one| one.trial.lanes.len() == 1);
    assert!(loaded.all(|one| one.trial.lanes[0].stream == "B"), "{:?}", only.trials);
}

#[test]
fn a_transfer_that_is_faster_than_its_path_is_refused() {
    let mut line = Line::new(1_000.0, 300.0);
    line.around = Some(Device { capacity_fps: 2_000.0, ..Device::ideal() });
    let outcome = run(&mut line, &rig(&["A", "B"]), settings(&BOTH)).unwrap();
    assert_eq!(outcome.verdict.status, Status::Failed);
    let refused = outcome.verdict.text.iter().filter(|text| text.contains("refused"));
    assert_eq!(refused.count(), 4, "{:?}", outcome.verdict);
    let rated = |name: &str| name.starts_with("transfer_time") || name.starts_with("tcp_");
    assert!(!outcome.figures.iter().any(|figure| rated(&figure.name)), "{:?}", outcome.figures);
}

#[test]
fn a_direction_takes_a_stream_that_goes_the_same_way() {
    let mut line = Line::new(1_000.0, 300.0);
    let outcome = run(&mut line, &rig(&["A"]), settings(&BOTH)).unwrap();
    assert!(outcome.figure("bottleneck/to-clients").is_none());
    assert!(outcome.notes[0].starts_with("not measured: B to A"), "{:?}", outcome.notes);
    let refused = run(&mut line, &rig(&["A"]), settings(&BOTH[1..]));
    assert!(matches!(refused, Err(MethodError::Usage(text)) if text.contains("B to A")));
}
