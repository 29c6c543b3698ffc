//! NDR and PDR as a test result of FD.io CSIT: version 1.5.1 of its model
//! (`resources/model_schema/test_case.schema.yaml` of the repository FDio/csit).

use serde_json::{Value, json};

use super::nfvbench::{bps_l1, sizes};
use crate::outcome::{Outcome, Status};

/// Version of the CSIT model.
const VERSION: &str = "1.5.1";

/// Renders an outcome as a single test case, in JSON.
///
/// # Errors
/// If the outcome lacks NDR or PDR, or has several frame sizes: a test case has one.
pub fn csit(outcome: &Outcome) -> Result<String, String> {
    let of_both = |size: &u32| {
        let figure = |goal: &str| outcome.figure(&format!("{goal}/{size}"));
        figure("NDR").is_some() && figure("PDR").is_some()
    };
    let sizes: Vec<u32> = sizes(outcome).into_iter().filter(of_both).collect();
    let [size] = sizes[..] else {
        return Err(format!(
            "cannot write a result of CSIT: it has NDR and PDR of one frame size, and this test of \
             {}\n  try squall test mlrsearch --preset csit --frame-sizes 64",
            sizes.len()
        ));
    };
    let rate = |goal: &str| {
        let value = outcome.figure(&format!("{goal}/{size}")).map_or(0.0, |figure| figure.value);
        let bandwidth = json!({"value": bps_l1(outcome, size, value), "unit": "bps"});
        // In the model, the lower bound is the conditional throughput, and there is no upper bound.
        json!({"lower": {"rate": {"value": value, "unit": "pps"}, "bandwidth": bandwidth}})
    };
    let passed = matches!(outcome.verdict.status, Status::Measured | Status::Passed);
    let status = outcome.verdict.status.text();
    let message = format!("{status}: {}", outcome.verdict.text.join("; "));
    let ended = if outcome.ended.is_empty() { &outcome.started } else { &outcome.ended };
    let case: Value = json!({
        "version": VERSION,
        "start_time": outcome.started,
        "end_time": ended,
        "duration": outcome.duration_s,
        // Unknown to Squall, but the model requires a non-empty name.
        "dut_type": "unknown",
        "dut_version": "unknown",
        "tg_type": "Squall",
        "tg_version": outcome.squall_version,
        "hosts": ["localhost"],
        "telemetry": [],
        "passed": passed,
        "message": if passed { "" } else { &message },
        "result": {"type": "ndrpdr", "ndr": rate("NDR"), "pdr": rate("PDR")},
        "tags": ["NDRPDR", format!("{size}B")],
        "test_documentation": outcome.title,
        "test_id": format!("squall.{}.{size}b-ndrpdr", outcome.method),
        "test_name_long": format!("squall-{size}b-{}-ndrpdr", outcome.method),
        "test_name_short": format!("{}-ndrpdr", outcome.method),
        "test_type": "ndrpdr",
    });
    Ok(format!("{case:#}\n"))
}
