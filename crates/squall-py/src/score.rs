//! Scores detection engines.

use std::path::PathBuf;

use pyo3::prelude::*;
use squall_offline::scoring;

use crate::error::to_py;

/// The score as JSON, as text and as an HTML page.
#[pyfunction]
pub fn score(
    py: Python<'_>,
    labels: PathBuf,
    alerts: Vec<PathBuf>,
    shift_s: f64,
) -> PyResult<(String, String, String)> {
    let scored = py
        .detach(|| scoring::score(&labels, &alerts, (shift_s * 1e9) as i64))
        .map_err(|error| to_py(error.into()))?;
    let scored = scoring::Scored { command: "python".into(), ..scored };
    Ok((scored.to_json(), scoring::score_text(&scored), scoring::score_html(&scored)))
}
