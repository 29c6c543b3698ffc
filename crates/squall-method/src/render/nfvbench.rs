//! Throughput in the JSON format of NFVbench, with the names of its `summarizer.py`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    bench::RecordedTrial,
    outcome::{Figure, Outcome},
    rig::MaxLoad,
};

/// Octets of preamble (7), start frame delimiter (1) and interframe gap (12).
const L1_OVERHEAD: f64 = 20.0;
/// Loss ratio of the goal PDR in the preset of MLRsearch, which the settings in a result omit.
const PDR_LOSS: f64 = 0.005;

/// A kind of throughput: its key in NFVbench's results, the name of the figure, and the highest
/// loss ratio.
type Kind<'a> = (&'a str, &'a str, f64);

/// Renders a result as JSON, with NDR (the throughput of RFC 2544, or the goal `NDR`) and PDR (the
/// goal `PDR`) of each frame size.
///
/// # Errors
/// If the outcome has no throughput.
pub fn nfvbench(outcome: &Outcome) -> Result<String, String> {
    let pdr = goal_loss(outcome, "PDR").unwrap_or(PDR_LOSS);
    let kinds: [Kind<'_>; 3] =
        [("ndr", "throughput", 0.0), ("ndr", "NDR", 0.0), ("pdr", "PDR", pdr)];
    let mut results = Map::new();
    for size in sizes(outcome) {
        let mut of_size = Map::new();
        for kind in kinds {
            if let Some(figure) = outcome.figure(&format!("{}/{size}", kind.1)) {
                of_size.insert(kind.0.into(), found(outcome, size, kind, figure));
            }
        }
        results.insert(size.to_string(), of_size.into());
    }
    if results.is_empty() {
        return Err(format!(
            "cannot write a result of NFVbench: {} has found no throughput\n  try rfc2544, tst009, \
             or mlrsearch with goals NDR and PDR",
            outcome.method
        ));
    }
    let has = |kind: &str| results.values().any(|of_size| of_size.get(kind).is_some());
    let (ndr_run, pdr_run) = (has("ndr"), has("pdr"));
    let sizes: Vec<String> = results.keys().cloned().collect();
    let ports = outcome.rig.as_ref().map_or(0, |rig| rig.sending_ports());
    let streams = outcome.rig.as_ref().map_or(0, |rig| rig.lanes.len());
    let version = format!("Squall {}", outcome.squall_version);
    // Format of NFVbench: "2017-09-21 23:57:44".
    let date = outcome.started.replace('T', " ").replace('Z', "");
    let chain = json!({
        "flow_count": streams,
        "service_chain_count": 1,
        "bidirectional": ports > 1,
        "profile": outcome.command,
        "compute_nodes": {},
        "result": results,
    });
    let result = json!({
        "date": date,
        "nfvbench_version": version,
        "config": {
            "tg-name": "Squall",
            "tg-tool": "Squall",
            "frame_sizes": sizes,
            "ndr_run": ndr_run,
            "pdr_run": pdr_run,
            "single_run": false,
            "no_traffic": false,
            "disable_hdrh": true,
            "lat_percentiles": [],
            "periodic_gratuitous_arp": false,
            // In percent.
            "measurement": {"NDR": 0.0, "PDR": pdr * 100.0},
            "service_chain": CHAIN,
            "service_chain_count": 1,
        },
        "benchmarks": {
            "network": {
                // For NFVbench, a chain of devices that it did not start itself.
                "service_chain": {CHAIN: {"result": chain}},
                "versions": {"Traffic_Generator": {"version": version}},
            },
        },
    });
    Ok(format!("{result:#}\n"))
}

/// Name of a service chain that NFVbench did not start.
const CHAIN: &str = "EXT";

/// Frame sizes of the throughput figures, ascending.
pub(super) fn sizes(outcome: &Outcome) -> Vec<u32> {
    let size = |figure: &Figure| {
        let (name, size) = figure.name.split_once('/')?;
        let size = size.parse().ok()?;
        ["throughput", "NDR", "PDR"].contains(&name).then_some((size, ()))
    };
    outcome.figures.iter().filter_map(size).collect::<BTreeMap<u32, ()>>().into_keys().collect()
}

/// Bits per second on layer 1 for `fps` frames per second, over all streams.
pub(super) fn bps_l1(outcome: &Outcome, size: u32, fps: f64) -> f64 {
    let lanes = outcome.rig.as_ref().map_or(&[][..], |rig| &rig.lanes);
    let shares: f64 = lanes.iter().map(|lane| lane.share).sum();
    let longer: f64 = lanes.iter().map(|lane| lane.share * f64::from(lane.longer)).sum();
    let longer = if shares > 0.0 { longer / shares } else { 0.0 };
    fps * 8.0 * (f64::from(size) + longer + L1_OVERHEAD)
}

/// The loss ratio of a goal of MLRsearch.
fn goal_loss(outcome: &Outcome, name: &str) -> Option<f64> {
    let goals = outcome.settings.get("goal")?.as_array()?;
    goals.iter().find(|goal| goal["name"] == name)?.get("loss_ratio")?.as_f64()
}

fn found(outcome: &Outcome, size: u32, (_, _, loss): Kind<'_>, figure: &Figure) -> Value {
    let fps = figure.value;
    let of_size: Vec<&RecordedTrial> =
        outcome.trials.iter().filter(|one| is_of(one, size)).collect();
    let taken_s: f64 = of_size.iter().map(|one| one.trial.duration_s).sum();
    // NFVbench reports the counters of the trial at the load that it found.
    let passed =
        of_size.iter().filter(|one| one.measured.kept() && one.measured.loss_ratio() <= loss);
    let distance = |one: &RecordedTrial| (offered(one) - fps).abs();
    let best = passed.min_by(|a, b| distance(a).total_cmp(&distance(b)));
    let most = outcome.rig.as_ref().map_or(0.0, |rig| rig.total_fps(size));
    let mut found = json!({
        "rate_pps": fps.floor(),
        "rate_bps": bps_l1(outcome, size, fps),
        "time_taken_sec": taken_s,
        "stats": {
            "overall": best.map_or(json!({}), |one| overall(one)),
            "offered_tx_rate_bps": bps_l1(outcome, size, best.map_or(0.0, |one| offered(one))),
            "theoretical_tx_rate_pps": most,
            "theoretical_tx_rate_bps": bps_l1(outcome, size, most),
        },
    });
    if let (Some(rig), true) = (&outcome.rig, most > 0.0)
        && matches!(rig.most, MaxLoad::BpsL1(_))
    {
        let per_port = 100.0 * fps / most;
        found["load_percent_per_direction"] = json!(per_port);
        found["rate_percent"] = json!(per_port * rig.sending_ports() as f64);
    }
    found
}

/// Whether the trial sent frames of `size`. Some streams may have longer frames.
fn is_of(recorded: &RecordedTrial, size: u32) -> bool {
    recorded.trial.lanes.iter().filter_map(|lane| lane.frame_size).min() == Some(size)
}

fn offered(recorded: &RecordedTrial) -> f64 {
    recorded.trial.lanes.iter().map(|lane| lane.rate_fps).sum()
}

fn overall(recorded: &RecordedTrial) -> Value {
    let measured = &recorded.measured;
    let received: u64 = measured.lanes.iter().map(|lane| lane.received).sum();
    let us = |nanos: f64| (nanos / 1e3).round();
    let delay = measured.delay();
    json!({
        "tx_pkts": measured.sent(),
        "rx_pkts": received,
        "drop_percentage": 100.0 * measured.loss_ratio(),
        // Despite its name, NFVbench reports a number of packets here.
        "drop_pct": measured.lost(),
        "avg_delay_usec": delay.map_or(0.0, |delay| us(delay.mean)),
        "min_delay_usec": delay.map_or(0.0, |delay| us(delay.min as f64)),
        "max_delay_usec": delay.map_or(0.0, |delay| us(delay.max as f64)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bench, Device, Method, NoWatch, RetryPolicy, Rig, mlrsearch, rfc2544, soak};

    fn outcome_of(method: Method) -> Outcome {
        let mut device =
            Device { capacity_fps: 5e5, buffer: 0.0, delay_ns: 20_000, ..Device::ideal() };
        let mut watch = NoWatch;
        let mut bench = Bench::new(&mut device, &mut watch, RetryPolicy::default());
        let outcome = method.run(&Rig::one_stream("A to B", 1e9), &mut bench).unwrap();
        Outcome {
            started: "2026-01-02T03:04:05Z".into(),
            ended: "2026-01-02T04:04:05Z".into(),
            squall_version: "0.1.0".into(),
            ..outcome
        }
    }

    fn search(frame_sizes: Vec<u32>) -> Outcome {
        outcome_of(Method::Mlrsearch(mlrsearch::Settings { frame_sizes, ..Default::default() }))
    }

    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_search_is_a_test_case_of_csit() {
        let case = read(&super::super::csit(&search(vec![64])).unwrap());
        // The fields that the model requires; it allows no others.
        let required = "dut_type dut_version duration end_time hosts message passed result start_time \
                        tags telemetry test_documentation test_id test_name_long test_name_short \
                        test_type tg_type tg_version version";
        let mut keys: Vec<&str> = case.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let mut expected: Vec<&str> = required.split_whitespace().collect();
        expected.sort_unstable();
        assert_eq!(keys, expected);
        let ndr = &case["result"]["ndr"]["lower"];
        let fps = ndr["rate"]["value"].as_f64().unwrap();
        assert!((fps - 5e5).abs() < 2500.0, "{ndr}");
        assert_eq!(ndr["bandwidth"]["value"].as_f64().unwrap(), fps * 84.0 * 8.0);
        assert_eq!((&case["passed"], &case["message"]), (&json!(true), &json!("")));
        let error = super::super::csit(&search(vec![64, 1518])).unwrap_err();
        assert!(error.contains("one frame size") && error.contains("\n  try "), "{error}");
    }

    #[test]
    fn a_failed_search_has_a_message_for_csit() {
        let mut bound = search(vec![64]);
        bound.verdict.status = crate::Status::GeneratorBound;
        let case = read(&super::super::csit(&bound).unwrap());
        assert_eq!(case["passed"], json!(false));
        assert!(case["message"].as_str().unwrap().starts_with("GENERATOR-BOUND"), "{case}");
    }

    #[test]
    fn throughput_has_the_keys_that_nfvbench_reads() {
        let settings = rfc2544::Settings {
            tests: vec![rfc2544::Test::Throughput],
            frame_sizes: vec![64],
            ..Default::default()
        };
        let result = read(&nfvbench(&outcome_of(Method::Rfc2544(settings))).unwrap());
        assert_eq!(result["date"], "2026-01-02 03:04:05");
        assert_eq!(
            (&result["config"]["ndr_run"], &result["config"]["pdr_run"]),
            (&json!(true), &json!(false))
        );
        let chain = &result["benchmarks"]["network"]["service_chain"]["EXT"]["result"];
        let ndr = &chain["result"]["64"]["ndr"];
        let fps = ndr["rate_pps"].as_f64().unwrap();
        assert!(fps <= 5e5 && fps > 4.9e5, "{ndr}");
        let overall = &ndr["stats"]["overall"];
        assert_eq!(overall["drop_percentage"], 0.0);
        assert_eq!(overall["tx_pkts"], overall["rx_pkts"]);
        assert_eq!(overall["min_delay_usec"], 20.0);
        // A third of the link: 1 Gb/s carries 1.488 Mpps of 64 octets.
        let load = ndr["load_percent_per_direction"].as_f64().unwrap();
        assert!((load - 33.6).abs() < 0.5, "{load}");
    }

    #[test]
    fn a_partial_drop_rate_has_the_counters_of_a_trial_that_met_its_goal() {
        let result = read(&nfvbench(&search(vec![64, 1518])).unwrap());
        let found = &result["benchmarks"]["network"]["service_chain"]["EXT"]["result"]["result"];
        assert_eq!(found.as_object().unwrap().len(), 2);
        let lost = found["64"]["pdr"]["stats"]["overall"]["drop_percentage"].as_f64().unwrap();
        assert!(lost <= 0.5, "{lost}");
        assert_eq!(result["config"]["measurement"]["PDR"], 0.5);
    }

    #[test]
    fn a_test_without_throughput_is_refused() {
        let outcome = outcome_of(Method::Soak(soak::Settings::default()));
        let error = nfvbench(&outcome).unwrap_err();
        assert!(error.starts_with("cannot write") && error.contains("soak"), "{error}");
    }
}
