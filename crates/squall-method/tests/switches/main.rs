//! Methods for switches and multicast, on a simulated switch whose properties they must find.

mod sim;

use sim::{Make, Switch};
use squall_method::{
    Bench, Limit, MaxLoad, Method, NoWatch, Outcome, RetryPolicy, Rig, rfc2889, rfc3918,
};
use squall_units::SplitMix64;

/// The highest rate of a port, frames per second.
const MOST: f64 = 10_000.0;

/// Random numbers with a fixed seed.
struct Dice(SplitMix64);

impl Dice {
    fn roll(&mut self, from: u64, to: u64) -> u64 {
        from + self.0.draw() % (to - from + 1)
    }
}

fn run(make: &Make, method: Method) -> Outcome {
    let mut switch = Switch::new(make.clone());
    let ports = switch.port_names();
    let most = MaxLoad::Fps(MOST);
    let (clients, servers) = (None, None);
    let rig = Rig { ports, lanes: Vec::new(), clients, servers, most, link_bps: None };
    let mut watch = NoWatch;
    let retry = RetryPolicy { repeats: 0, rest_s: 5.0 };
    let mut bench = Bench::new(&mut switch, &mut watch, retry);
    method.run(&rig, &mut bench).unwrap()
}

fn value(outcome: &Outcome, name: &str) -> f64 {
    let names: Vec<_> = outcome.figures.iter().map(|figure| &figure.name).collect();
    outcome.figure(name).unwrap_or_else(|| panic!("{name}: {names:?}, {:?}", outcome.notes)).value
}

/// Checks that `value` is at most the true value, and at least 99.5 % of it.
fn found(what: &str, value: f64, truth: f64) {
    assert!(value <= truth * 1.000_001 && value >= truth * 0.995, "{what}: {value} of {truth}");
}

fn switch(tests: &[rfc2889::Test]) -> rfc2889::Settings {
    rfc2889::Settings {
        tests: tests.to_vec(),
        frame_sizes: vec![64],
        trial_s: 1.0,
        resolution: 0.002,
        ..Default::default()
    }
}

#[test]
fn the_throughput_of_each_mesh_is_what_the_output_ports_carry() {
    use rfc2889::Test::{Backbone, FullMesh, ManyToOne, OneToMany, Unidirectional};
    let mut dice = Dice(SplitMix64(2889));
    for _ in 0..4 {
        let ports = dice.roll(2, 6) as usize;
        let fps = dice.roll(1_250, 15_000) as f64;
        // Each queue must hold a frame from each port at the same time.
        let make = Make { ports, fps, depth: dice.roll(8, 16) as u32, ..Make::default() };
        let outcome = run(
            &make,
            Method::Rfc2889(switch(&[FullMesh, OneToMany, ManyToOne, Backbone, Unidirectional])),
        );
        let (n, half) = (ports as f64, (ports / 2) as f64);
        let carried = MOST.min(fps);
        found("full mesh", value(&outcome, "throughput.full-mesh/64"), n * carried);
        // With one sender, each output gets its share of that port's load.
        let one = MOST.min((n - 1.0) * fps);
        found("one to many", value(&outcome, "throughput.one-to-many/64"), one);
        let many = ((n - 1.0) * MOST).min(fps);
        found("many to one", value(&outcome, "throughput.many-to-one/64"), many);
        // With two halves of different sizes, the ports of the smaller half have more load each.
        let (few, rest) = (half, n - half);
        let load = (fps / MOST).min(1.0).min(fps * few / (rest * MOST));
        found("backbone", value(&outcome, "throughput.backbone/64"), n * MOST * load);
        let load = (fps * rest / (few * MOST)).min(1.0);
        found("unidirectional", value(&outcome, "throughput.unidirectional/64"), few * MOST * load);
        let forwarded = value(&outcome, "forwarding_rate.full-mesh/64");
        let buffered = n * f64::from(make.depth);
        assert!(
            forwarded >= n * carried * 0.99 && forwarded <= n * carried + buffered,
            "{forwarded}"
        );
    }
}

#[test]
fn the_table_is_found_to_the_address() {
    let mut dice = Dice(SplitMix64(57));
    for flush in [false, true] {
        for _ in 0..6 {
            let table = dice.roll(2, 3000) as usize;
            let make = Make { ports: dice.roll(3, 5) as usize, table, ..Make::default() };
            let settings = rfc2889::Settings {
                initial_addresses: dice.roll(2, 2000) as u32,
                max_addresses: 8192,
                flush_command: flush.then(|| "flush".into()),
                ..switch(&[rfc2889::Test::AddressCapacity])
            };
            let outcome = run(&make, Method::Rfc2889(settings));
            assert_eq!(value(&outcome, "address_capacity"), table as f64);
            assert_eq!(outcome.figure("address_capacity").unwrap().limit, Limit::Device);
        }
    }
    let make = Make { ports: 3, table: 10_000, ..Make::default() };
    let outcome = run(
        &make,
        Method::Rfc2889(rfc2889::Settings {
            max_addresses: 3000,
            ..switch(&[rfc2889::Test::AddressCapacity])
        }),
    );
    let figure = outcome.figure("address_capacity").unwrap();
    assert_eq!((figure.value, figure.limit), (3000.0, Limit::Offered), "it has room for more");
}

#[test]
fn addresses_that_are_not_forgotten_between_trials_would_spoil_the_search() {
    // The device keeps addresses for longer than the settings assume. Its table is full of
    // addresses of earlier trials, but trials use the same addresses, so the result is the size of
    // the table.
    let make = Make { ports: 3, table: 700, age_s: 1e6, ..Make::default() };
    let settings = rfc2889::Settings { age_s: 1.0, ..switch(&[rfc2889::Test::AddressCapacity]) };
    assert_eq!(value(&run(&make, Method::Rfc2889(settings)), "address_capacity"), 700.0);
}

#[test]
fn the_learning_rate_is_that_of_the_device() {
    let mut dice = Dice(SplitMix64(58));
    for _ in 0..4 {
        let learns = dice.roll(1_000, 8_000) as f64;
        let make = Make { ports: 3, table: 8192, learns: Some(learns), ..Make::default() };
        let settings = rfc2889::Settings {
            learn_addresses: Some(2000),
            ..switch(&[rfc2889::Test::AddressLearning])
        };
        let outcome = run(&make, Method::Rfc2889(settings));
        // Two addresses wait in a queue while one is learned, so two in 2000 do not limit the rate.
        let truth = learns * (1.0 + 2.0 / 2000.0);
        found("learning rate", value(&outcome, "address_learning_rate"), truth);
    }
}

#[test]
fn head_of_line_blocking_is_distinguished_from_congestion() {
    let tests = &[rfc2889::Test::Congestion];
    let separate = Make { fps: MOST, ..Make::default() };
    let outcome = run(&separate, Method::Rfc2889(switch(tests)));
    // The congested port is offered 150 % of its capacity.
    let lost = value(&outcome, "congested_loss/64");
    assert!((lost - 1.0 / 3.0).abs() < 0.005, "{lost}");
    assert_eq!(value(&outcome, "uncongested_loss/64"), 0.0);
    assert_eq!(outcome.tables[0].rows[0][3..5], ["no".to_owned(), "no".to_owned()]);
    // §5.5.3: half of the load at the uncongested port, the full capacity at the congested one.
    let rates = ["uncongested_rate/64", "congested_rate/64"].map(|name| value(&outcome, name));
    assert!((rates[0] - MOST / 2.0).abs() < MOST * 0.01, "{rates:?}");
    assert!((rates[1] - MOST).abs() < MOST * 0.01, "{rates:?}");
    let shared = Make { fps: MOST * 0.77, depth: 1000, shared: Some(100), ..Make::default() };
    let outcome = run(&shared, Method::Rfc2889(switch(tests)));
    assert!(value(&outcome, "uncongested_loss/64") > 0.01);
    assert_eq!(outcome.tables[0].rows[0][3], "yes");
    let backs = Make { fps: 1e6, ..Make::default() };
    let outcome = run(&backs, Method::Rfc2889(switch(tests)));
    assert_eq!(outcome.tables[0].rows[0][4], "yes", "no loss although congested");
}

#[test]
fn a_device_that_forwards_less_under_overload_has_its_maximum_below_the_most_load() {
    let make = Make { ports: 2, collapses: Some(5_250.0), ..Make::default() };
    let settings =
        rfc2889::Settings { load_step: 0.05, ..switch(&[rfc2889::Test::ForwardingRate]) };
    let outcome = run(&make, Method::Rfc2889(settings));
    found("maximum forwarding rate", value(&outcome, "max_forwarding_rate/64"), 5_250.0);
    let mesh = rfc2889::Settings { load_step: 0.05, ..switch(&[rfc2889::Test::Unidirectional]) };
    let mesh = run(&make, Method::Rfc2889(mesh));
    let most = value(&mesh, "max_forwarding_rate.unidirectional/64");
    assert!(most > value(&mesh, "forwarding_rate.unidirectional/64"), "{most}");
    let last = outcome.plots[0].series[0].points.last().unwrap();
    assert!(last.0 == 100.0 && (last.1 - MOST / 2.0).abs() < MOST * 0.01, "{last:?}");
}

#[test]
fn broadcast_and_errored_frames_come_as_the_device_forwards_them() {
    use rfc2889::Test::{Broadcast, ErroredFrames};
    let mut dice = Dice(SplitMix64(510));
    for filters_errors in [true, false] {
        let fps = dice.roll(1_000, 8_000) as f64;
        let make = Make { fps, filters_errors, depth: 16, ..Make::default() };
        let outcome = run(&make, Method::Rfc2889(switch(&[Broadcast, ErroredFrames])));
        found("broadcast", value(&outcome, "broadcast/64"), fps);
        // Latency is at least the queueing time of the frame and the delay of the device.
        let least = 1e9 / fps + 5_000.0;
        for name in ["broadcast_latency/64", "broadcast_latency@50%/64"] {
            let latency = value(&outcome, name);
            assert!((latency - least).abs() < 10.0, "{name}: {latency}, {least}");
        }
        for kind in ["undersize", "oversize"] {
            let part = value(&outcome, &format!("forwarded.{kind}"));
            assert_eq!(part, f64::from(u8::from(!filters_errors)));
        }
    }
}

#[test]
fn stations_that_share_a_port_are_learned_each() {
    let make = Make { ports: 3, fps: 5_000.0, table: 48, ..Make::default() };
    let settings = |addresses_per_port| rfc2889::Settings {
        addresses_per_port,
        ..switch(&[rfc2889::Test::FullMesh])
    };
    let fits = run(&make, Method::Rfc2889(settings(16)));
    found("16 each", value(&fits, "throughput.full-mesh/64"), 3.0 * 5_000.0);
    // Frames to stations that do not fit in the table are flooded and take capacity from other
    // ports.
    let floods = run(&make, Method::Rfc2889(settings(32)));
    assert!(value(&floods, "throughput.full-mesh/64") < 0.8 * 15_000.0);
}

fn multicast(tests: &[rfc3918::Test], membership: rfc3918::Membership) -> rfc3918::Settings {
    rfc3918::Settings {
        tests: tests.to_vec(),
        frame_sizes: vec![100],
        trial_s: 1.0,
        latency_s: 1.0,
        resolution: 0.002,
        repetitions: 3,
        membership,
        ..Default::default()
    }
}

const MEMBERSHIPS: [rfc3918::Membership; 3] =
    [rfc3918::Membership::Igmpv2, rfc3918::Membership::Igmpv3, rfc3918::Membership::Mldv1];

#[test]
fn multicast_throughput_is_that_of_the_slowest_receiver() {
    use rfc3918::Test::{Aggregated, GroupMatrix, Latency, MixedClass};
    let mut dice = Dice(SplitMix64(3918));
    for membership in MEMBERSHIPS {
        let fps = dice.roll(1_250, 8_750) as f64;
        let ports = dice.roll(2, 5) as usize;
        let make = Make { fps, ports, groups: 50, ..Make::default() };
        let tests = [Aggregated, GroupMatrix, Latency, MixedClass];
        let outcome = run(&make, Method::Rfc3918(multicast(&tests, membership)));
        found("aggregated", value(&outcome, "aggregated/100"), fps);
        // Each receiver gets all of the multicast and its share of the unicast.
        let each = 0.5 + 0.5 / (ports - 1) as f64;
        found("mixed", value(&outcome, "mixed_class@50%/100"), (fps / each).min(MOST));
        let offered =
            |row: &Vec<String>| row[2..4].iter().map(|n| n.parse::<f64>().unwrap()).sum::<f64>();
        let table = outcome.tables.iter().find(|table| table.title.starts_with("Mixed")).unwrap();
        assert!(offered(&table.rows[0]) > 0.0);
        let matrix = value(&outcome, "group_matrix@10/100");
        assert!(matrix >= fps * 0.99 && matrix <= fps + 64.0, "{matrix} of {fps}");
        let least = 1e9 / fps + 5_000.0;
        assert!(value(&outcome, "latency/100") >= least - 10.0);
        // The RFC requires the latency of each egress interface; the last row has the range over
        // all.
        let latency = outcome.tables.iter().find(|t| t.title.starts_with("Multicast lat")).unwrap();
        let found: Vec<_> = latency.rows.iter().map(|row| row[2].as_str()).collect();
        let names = Switch::new(make).port_names();
        let each = if ports > 2 { &names[1..] } else { &[] };
        assert_eq!(found[..found.len() - 1], *each);
        assert_eq!(found.last(), Some(&"all"));
    }
}

#[test]
fn joins_and_leaves_take_as_long_as_the_device_needs() {
    use rfc3918::Test::{JoinDelay, LeaveDelay};
    let mut dice = Dice(SplitMix64(61));
    for membership in MEMBERSHIPS {
        let make = Make {
            join_ns: dice.roll(0, 500_000_000),
            leave_ns: dice.roll(1_000_000, 2_000_000_000),
            ..Make::default()
        };
        let outcome = run(&make, Method::Rfc3918(multicast(&[JoinDelay, LeaveDelay], membership)));
        // The error is at most one gap of the probe plus the latency of a frame.
        for (name, truth) in [("join_delay", make.join_ns), ("leave_delay", make.leave_ns)] {
            let (found, truth) = (value(&outcome, name), truth as f64 / 1e9);
            assert!((found - truth).abs() <= 1.5e-4, "{name}: {found}, {truth}");
        }
    }
}

#[test]
fn the_group_capacity_is_found_to_the_group() {
    let mut dice = Dice(SplitMix64(71));
    for membership in MEMBERSHIPS {
        for _ in 0..3 {
            let groups = dice.roll(1, 1500) as usize;
            let make = Make { groups, ..Make::default() };
            let settings = rfc3918::Settings {
                max_groups: 4096,
                ..multicast(&[rfc3918::Test::GroupCapacity], membership)
            };
            let outcome = run(&make, Method::Rfc3918(settings));
            assert_eq!(value(&outcome, "group_capacity"), groups as f64);
        }
    }
}

#[test]
fn the_group_matrix_has_no_more_groups_than_the_device_keeps() {
    let make = Make { groups: 15, ..Make::default() };
    let tests = [rfc3918::Test::GroupMatrix, rfc3918::Test::GroupCapacity];
    let settings = rfc3918::Settings {
        matrix: vec![10, 20],
        ..multicast(&tests, rfc3918::Membership::Igmpv2)
    };
    let outcome = run(&make, Method::Rfc3918(settings));
    assert!(value(&outcome, "group_matrix@10/100") > 0.0);
    assert!(outcome.figure("group_matrix@20/100").is_none());
    assert!(outcome.notes.iter().any(|note| note.starts_with("group matrix of 20")));
}
