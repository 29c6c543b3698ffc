//! Standard tests of devices with known properties, in virtual time. The results must match the
//! properties.

use squall::{Error, Format, Profile, RunOptions};
use squall_method::{
    Limit, Method, NoWatch, Outcome, RetryPolicy, Status, bufferbloat, capacity, rfc2544, rfc8219,
};
use squall_trials::Test;
use squall_units::SplitMix64;

/// Number of devices per property. SQUALL_DEVICES overrides it.
fn devices() -> u64 {
    std::env::var("SQUALL_DEVICES").ok().and_then(|text| text.parse().ok()).unwrap_or(20)
}

/// Random properties of a device. Every run of the test has the same.
struct Draw(SplitMix64);

impl Draw {
    fn among(&mut self, least: u64, most: u64) -> u64 {
        least + self.0.draw() % (most - least + 1)
    }
}

fn run(name: &str, device: &str, most: &str, settings: rfc2544::Settings) -> Outcome {
    find(name, device, most, Method::Rfc2544(settings))
}

fn find(name: &str, device: &str, most: &str, method: Method) -> Outcome {
    try_find(name, device, most, method).unwrap()
}

fn try_find(name: &str, device: &str, most: &str, method: Method) -> Result<Outcome, Error> {
    let text = format!(
        "ports.A = \"loop:methods-{name},virtual,{device}\"\n[[stream]]\nname = \"A\"\npacket = \
         \"eth/ipv4/udp\"\nrate = 1\n[flows]\nclients = \"A\"\nservers = \
         \"A\"\n[[template]]\nclients = \"16.0.0.1-16.0.3.254\"\nservers = \"48.0.0.1\"\napp = \
         \"http\"\ncps = 1\n"
    );
    let test = Test {
        method,
        profile: Profile::parse(&text, "test", Format::Toml).unwrap(),
        options: RunOptions::default(),
        most: Some(most.parse().unwrap()),
        retry: RetryPolicy::default(),
        journal: None,
        command: String::new(),
    };
    test.run(&mut NoWatch, &|| false)
}

fn settings(tests: &[rfc2544::Test], size: u32) -> rfc2544::Settings {
    rfc2544::Settings {
        tests: tests.to_vec(),
        frame_sizes: vec![size],
        trial_s: 1.0,
        latency_s: 0.5,
        latency_trials: 1,
        bursts: 1,
        burst_s: 10.0,
        overload_s: 0.5,
        ..Default::default()
    }
}

const SIZES: [u32; 4] = [64, 128, 594, 1518];

#[test]
fn throughput_buffer_and_delay_are_those_of_the_device() {
    use rfc2544::Test::{BackToBack, Latency, Recovery, Throughput};
    for seed in 1..=devices() {
        let mut draw = Draw(SplitMix64(seed));
        let capacity = draw.among(500, 9_900) as f64;
        let (buffer, delay) = (draw.among(1, 600), draw.among(0, 3_000_000));
        let size = SIZES[draw.among(0, 3) as usize];
        // Half of the devices limit bits instead of frames.
        let bits = draw.0.draw().is_multiple_of(2);
        let device = match bits {
            true => format!(
                "drain={}bps,buffer={},delay={delay}",
                capacity as u64 * u64::from(size) * 8,
                buffer * u64::from(size)
            ),
            false => format!("drain={capacity}pps,buffer={buffer},delay={delay}"),
        };
        let tests = [Throughput, Latency, BackToBack, Recovery];
        let outcome = run(&format!("a{seed}"), &device, "10kpps", settings(&tests, size));
        let value = |name: &str| outcome.figure(&format!("{name}/{size}")).map(|f| f.value);
        let about = format!("seed {seed}: {device}, {size} octets: {:?}", outcome.figures);
        assert_eq!(outcome.verdict.status, Status::Measured, "{about}");
        let throughput = value("throughput").unwrap();
        assert!(throughput <= capacity && throughput >= capacity * 0.995, "{about}");
        // At the throughput, a frame waits only for its own transmission, in no queue.
        let alone = delay as f64 + (1e9 / capacity).ceil();
        assert!((value("latency.min").unwrap() - alone).abs() <= 1.0, "{alone} {about}");
        assert!((value("latency").unwrap() - alone).abs() <= 1.0, "{alone} {about}");
        // If the search limits the burst, it does not measure the device.
        let burst = outcome.figure(&format!("back-to-back/{size}"));
        if burst.is_some_and(|burst| burst.limit == Limit::Device) {
            let found = value("buffer").unwrap();
            assert!((found - buffer as f64).abs() <= 1.0, "{found} {about}");
        }
        // The queue is full at the end of the overload, and drains from then on.
        assert!(value("recovery").unwrap() <= 2.0 / (capacity / 2.0), "{about}");
    }
}

#[test]
fn loss_at_random_is_within_its_interval() {
    let devices = devices() * 2;
    let mut within = 0;
    for seed in 1..=devices {
        let mut draw = Draw(SplitMix64(seed + 1_000));
        let loss = draw.among(1, 300) as f64 / 1000.0;
        let device = format!("drop={loss},seed={seed}");
        let settings = rfc2544::Settings {
            loss_step: 0.5,
            resolution: 0.5,
            ..settings(&[rfc2544::Test::FrameLoss], 64)
        };
        let outcome = run(&format!("l{seed}"), &device, "5kpps", settings);
        let found = outcome.figure("loss@100%/64").unwrap();
        within += u64::from((found.value - loss).abs() <= found.uncertainty);
    }
    assert!(within * 10 >= devices * 9, "{within} of {devices}");
}

#[test]
fn a_device_that_carries_all_is_reported_with_the_offered_load() {
    let tests = [rfc2544::Test::Throughput, rfc2544::Test::BackToBack];
    let outcome = run("all", "delay=10", "10kpps", settings(&tests, 64));
    let found = outcome.figure("throughput/64").unwrap();
    assert_eq!((found.value, found.limit), (10_000.0, Limit::Offered));
    assert!(outcome.figure("back-to-back/64").is_none() && !outcome.notes.is_empty());
}

#[test]
fn a_path_through_which_nothing_comes_is_an_error_and_one_with_loss_is_not() {
    let soak = || {
        let settings =
            squall_method::soak::Settings { duration_s: 1.0, trial_s: 1.0, ..Default::default() };
        Method::Soak(settings)
    };
    let dead = try_find("dead", "drop=1", "1kpps", soak()).unwrap_err();
    assert!(matches!(dead, Error::Environment(_)) && dead.exit_status() == 3, "{dead:?}");
    assert!(dead.to_string().contains("nothing came through: from A back to A 0 of 20"), "{dead}");
    assert_eq!(find("lossy", "drop=0.5", "1kpps", soak()).trials.len(), 1);
}

#[test]
fn a_table_holds_as_many_flows_as_are_found() {
    for seed in 1..=devices() {
        let mut draw = Draw(SplitMix64(seed + 2_000));
        let holds = draw.among(2, 2_000);
        let udp = draw.0.draw().is_multiple_of(2);
        let settings = capacity::Settings {
            of: vec![capacity::Of::Table],
            table_protocol: if udp { capacity::Protocol::Udp } else { capacity::Protocol::Tcp },
            max_table: 1_000,
            ..Default::default()
        };
        let device = format!("table={holds}");
        let outcome = find(&format!("t{seed}"), &device, "10kpps", Method::Capacity(settings));
        let found = outcome.figure("table").unwrap();
        // The device has an entry for each direction of a flow.
        assert_eq!(found.value, (holds / 2) as f64, "{device}: {:?}", outcome.verdict);
        assert_eq!(found.limit == Limit::Offered, holds == 2_000, "{found:?}");
    }
}

#[test]
fn a_full_queue_adds_its_length_divided_by_its_rate_to_the_latency() {
    // 40 frames at 1,000 frames/s in each direction: 40 ms.
    let (fps, buffer) = (1_000.0, 40.0);
    let device = format!("loop:methods-bloat,virtual,drain={fps}pps,buffer={buffer}");
    let stream = |name: &str, port: &str, from: u8, to: u8| {
        format!(
            "[[stream]]\nname = \"{name}\"\nport = \"{port}\"\nrate = 1\npacket = \
             \"eth/ipv4(src=198.18.0.{from},dst=198.18.0.{to})/udp\"\n"
        )
    };
    let text = format!(
        "ports = {{ A = \"{device}\", B = \"{device}\" }}\n{}{}[flows]\nclients = \"A\"\nservers = \
         \"B\"\n[[template]]\nname = \"any\"\napp = \"http\"\ncps = 1\nclients = \
         \"198.18.0.16-198.18.0.32\"\nservers = \"198.19.0.16\"\n",
        stream("A to B", "A", 2, 3),
        stream("B to A", "B", 3, 2)
    );
    let settings =
        bufferbloat::Settings { idle_s: 1.0, load_s: 4.0, interval_s: 0.5, ..Default::default() };
    let test = Test {
        method: Method::Bufferbloat(settings),
        profile: Profile::parse(&text, "test", Format::Toml).unwrap(),
        options: RunOptions::default(),
        most: None,
        retry: RetryPolicy::default(),
        journal: None,
        command: String::new(),
    };
    let outcome = test.run(&mut NoWatch, &|| false).unwrap();
    assert_eq!(outcome.verdict.status, Status::Measured, "{:?}", outcome.verdict);
    let measured = &outcome.trials[0].measured;
    for stream in ["A to B", "B to A"] {
        let delay = |phase: &str| measured.lane(&format!("{stream}, {phase}")).unwrap().delay;
        let (idle, loaded) = (delay("idle").unwrap(), delay("loaded").unwrap());
        // The frames of the phase's lane and of the interval's lane leave at the same time.
        assert!(idle.max as f64 <= 2.0 * 1e9 / fps, "{stream}: {idle:?}");
        let full = buffer / fps * 1e9;
        let last = loaded.max as f64;
        assert!(last > full - 2.0 * 1e9 / fps && last <= full + 1e9 / fps, "{stream}: {loaded:?}");
        assert!(loaded.mean > 2.0 * idle.mean, "{stream}: {loaded:?}");
    }
    // 1460 octets per frame; some frames are acknowledgments and measurement frames.
    for direction in ["down", "up"] {
        let bps = outcome.figure(&format!("goodput.{direction}")).unwrap().value;
        assert!(bps > 0.0 && bps < fps * 1460.0 * 8.0, "{direction}: {bps}");
    }
}

#[test]
fn a_reset_by_rfc_8219_takes_as_long_as_the_device_is_out() {
    // The device is down from 2 s to 2.3 s after the first frame of each trial, which is later than
    // the end of the search's trials.
    let settings = rfc8219::Settings {
        tests: vec![rfc8219::Test::Reset],
        setup: rfc8219::Setup::Dual,
        frame_sizes: vec![84],
        trial_s: 1.0,
        reset_s: 4.0,
        ..Default::default()
    };
    let device = "drain=2kpps,buffer=20,reset=2s:300ms";
    let outcome = find("reset", device, "10kpps", Method::Rfc8219(settings));
    let reset = outcome.figure("reset/84").unwrap();
    // Two frame gaps, and the frames that the queue lost.
    assert!((reset.value - 0.3).abs() <= 22.0 / 2_000.0, "{reset:?}");
}
