//! §5.7 and §5.8: address table capacity and learning rate.
//!
//! The learning port sends a frame from each address to the test port. The test port then sends a
//! frame to each address. All of them must arrive at the learning port. A switch floods frames to
//! addresses that it does not know, so none may arrive at any other port.

use squall_report::render::human::si;

use super::{Settings, Test, rate};
use crate::{
    bench::{Bench, MethodError},
    bracket::{Bracket, TrialResult},
    outcome::{Better, Figure, Limit, Outcome, Table},
    rig::Rig,
    stations::{broadcast, mac, stations, strays},
    trial::{Action, Lane, Measured, Template, Trial},
};

/// Indices of the learning port and the test port (§5.7.3).
const LEARNS: usize = 0;
const TESTS: usize = 1;
/// Time for the flush command to complete, instead of the aging time, seconds.
const FLUSH_S: f64 = 1.0;
/// Pause between the phases of a trial, seconds.
const REST_S: f64 = 0.2;
const LANE: &str = "test frames";
const TRIALS: [&str; 6] =
    ["Addresses", "Learning rate", "Test frames", "Forwarded", "Flooded", "Result"];

pub(super) fn all(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    if rig.ports.len() < 3 {
        let text = "address caching capacity and learning rate (§5.7, §5.8): not run, as flooding \
                    of unknown addresses is seen at a third port";
        outcome.notes.push(text.into());
        return Ok(());
    }
    let mut addresses = settings.learn_addresses.unwrap_or(settings.initial_addresses);
    if settings.tests.contains(&Test::AddressCapacity) {
        let found = capacity(settings, rig, bench, outcome)?;
        addresses = settings.learn_addresses.unwrap_or(found);
    }
    if settings.tests.contains(&Test::AddressLearning) && addresses >= 2 {
        learning_rate(settings, rig, addresses, bench, outcome)?;
    }
    Ok(())
}

/// Doubles the number of addresses until the device does not know some of them, then bisects.
fn capacity(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<u32, MethodError> {
    let most = settings.max_addresses;
    let mut trials = Table::new("Address caching capacity, trials (RFC 2889 §5.7.5)", &TRIALS);
    let (mut known, mut failed, mut limit) = (1, None, Limit::Device);
    let mut next = settings.initial_addresses;
    while next > known && failed.is_none_or(|failed| next < failed) {
        let label = format!("address caching capacity, {next} addresses");
        let measured = bench.trial(trial(settings, rig, next, settings.address_rate, label))?;
        trials.rows.push(row(rig, next, settings.address_rate, &measured));
        // A missed schedule does not matter if the trial passed: the device knows all addresses.
        let passed = known_all(rig, next, &measured);
        match (measured.kept(), passed) {
            (_, true) => known = next,
            (true, false) => (failed, limit) = (Some(next), Limit::Device),
            (false, false) => (failed, limit) = (Some(next), Limit::Generator),
        }
        next =
            failed.map_or(most.min(known.saturating_mul(2)), |failed| known + (failed - known) / 2);
    }
    if known == most {
        limit = Limit::Offered;
    }
    // The test needs two addresses, so a device that fails with two counts as a capacity of 0.
    let capacity = if known == 1 { 0 } else { known };
    outcome.figures.push(Figure {
        name: "address_capacity".into(),
        value: capacity.into(),
        unit: "addresses".into(),
        better: Better::Higher,
        uncertainty: 0.0,
        limit,
    });
    let columns = ["Addresses", "Age time", "Learning rate", ""];
    let mut table = Table::new("Address caching capacity (RFC 2889 §5.7)", &columns);
    let age = match &settings.flush_command {
        Some(_) => "flushed by command".into(),
        None => format!("{} s", settings.age_s),
    };
    let learning = format!("{} frames/s", settings.address_rate);
    table.rows.push(vec![capacity.to_string(), age, learning, limit.mark().into()]);
    outcome.tables.extend([table, trials]);
    // §5.7.3: the last address must be tested before the first one ages out.
    let tried_s = 2.0 * f64::from(failed.unwrap_or(known)) / settings.address_rate;
    if settings.flush_command.is_none() && tried_s > settings.age_s {
        outcome.notes.push(format!(
            "address caching capacity: to learn and test took {tried_s:.0} s, more than age_s = {}: \
             addresses can have aged out; try a higher --address-rate",
            settings.age_s
        ));
    }
    outcome.verdict.text.push(format!("address caching capacity: {capacity} addresses"));
    Ok(capacity)
}

fn learning_rate(
    settings: &Settings,
    rig: &Rig,
    addresses: u32,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    // Learning frames have the minimum size, so this is the highest learning rate that the link
    // allows.
    let most = rig.port_fps(64);
    let mut trials = Table::new("Address learning rate, trials (RFC 2889 §5.8.5)", &TRIALS);
    let mut bracket = Bracket::new(settings.resolution, (1.0 / most).min(0.5));
    while let Some(load) = bracket.next() {
        bench.search_bounds(Some(bracket.bounds()));
        let fps = load * most;
        let label = format!("address learning rate, {}", si(fps, "frames/s"));
        let measured = bench.trial(trial(settings, rig, addresses, fps, label))?;
        trials.rows.push(row(rig, addresses, fps, &measured));
        bracket.record(load, judge(rig, addresses, &measured));
    }
    bench.search_bounds(None);
    let limit = match bracket {
        _ if bracket.generator_bound() => Limit::Generator,
        _ if bracket.passed >= 1.0 => Limit::Offered,
        _ => Limit::Device,
    };
    let fps = bracket.passed * most;
    outcome.figures.push(rate(
        "address_learning_rate".into(),
        fps,
        fps * settings.resolution,
        limit,
    ));
    let columns = ["Addresses", "Learning rate", ""];
    let mut table = Table::new("Address learning rate (RFC 2889 §5.8)", &columns);
    let row = [addresses.to_string(), format!("{fps:.0} frames/s"), limit.mark().into()];
    table.rows.push(row.into());
    outcome.tables.extend([table, trials]);
    Ok(())
}

/// The results that the RFC requires for each trial (§5.7.5, §5.8.5).
fn row(rig: &Rig, addresses: u32, learning_fps: f64, measured: &Measured) -> Vec<String> {
    let (sent, received) = measured.lane(LANE).map_or((0, 0), |lane| (lane.sent, lane.received));
    let result = match (known_all(rig, addresses, measured), measured.kept()) {
        (true, _) => "passed",
        (false, true) => "failed",
        (false, false) => "generator-bound",
    };
    vec![
        addresses.to_string(),
        format!("{learning_fps:.0} frames/s"),
        sent.to_string(),
        received.to_string(),
        flooded(rig, measured).to_string(),
        result.into(),
    ]
}

/// Test frames received on ports other than the learning and the test port.
fn flooded(rig: &Rig, measured: &Measured) -> u64 {
    strays(measured, rig.ports.iter().skip(TESTS + 1))
}

/// All `addresses` but one are on the learning port. The remaining one is that of the test port.
fn trial(
    settings: &Settings,
    rig: &Rig,
    addresses: u32,
    learning_fps: f64,
    label: String,
) -> Trial {
    let learned = addresses - 1;
    let quiet = settings.flush_command.as_ref().map_or(settings.age_s, |_| FLUSH_S);
    let teaches = quiet + REST_S;
    let tests = teaches + f64::from(learned) / learning_fps + REST_S;
    let ends = tests + f64::from(learned) / settings.address_rate + REST_S;
    let template = |port: usize, to: usize, vary, plain| Template {
        port: rig.ports[port].clone(),
        packet: format!("eth(src={},dst={})/ipv4/udp", mac(port, 0), mac(to, 0)),
        vary: Vec::from_iter(vary),
        plain,
    };
    let lane = |name: &str, template, rate_fps, frames: u32, start_s| Lane {
        name: name.into(),
        template: Some(template),
        frame_size: Some(64),
        rate_fps,
        frames: Some(frames.into()),
        start_s,
        ..Lane::default()
    };
    // §5.7.3: the test port announces its address by a broadcast.
    let announce = Template { plain: true, ..broadcast(rig, TESTS, 1) };
    let teach = template(LEARNS, TESTS, stations("eth.src", LEARNS, learned), true);
    let test = template(TESTS, LEARNS, stations("eth.dst", LEARNS, learned), false);
    Trial {
        label,
        lanes: vec![
            lane("learning, test port", announce, 1.0 / REST_S, 1, quiet),
            lane("learning", teach, learning_fps, learned, teaches),
            lane(LANE, test, settings.address_rate, learned, tests),
        ],
        duration_s: ends,
        action: settings.flush_command.clone().map(|command| Action { at_s: 0.0, command }),
        ..Trial::default()
    }
}

fn judge(rig: &Rig, addresses: u32, measured: &Measured) -> TrialResult {
    match measured.kept() {
        false => TrialResult::NotKept(None),
        true if known_all(rig, addresses, measured) => TrialResult::Passed,
        true => TrialResult::Failed(None),
    }
}

/// Whether a frame for each address arrived and none was flooded.
fn known_all(rig: &Rig, addresses: u32, measured: &Measured) -> bool {
    let lane = measured.lane(LANE);
    let came = lane.is_some_and(|lane| lane.sent == u64::from(addresses - 1) && lane.lost == 0);
    came && flooded(rig, measured) == 0
}
