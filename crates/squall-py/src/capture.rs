//! Captures packets; the result is a report.

use std::{
    thread,
    time::{Duration, Instant},
};

use pyo3::{exceptions::PyValueError, prelude::*};
use squall::{RunOptions, Session};

use crate::{error::to_py, report::Report};

/// How often to check whether the capture has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time without a packet after which a file counts as read completely.
const QUIET: Duration = Duration::from_millis(200);

/// Captures from `ports`. `options`: run options as JSON. Ends after the number of packets in the
/// options, after `duration_s`, or on a signal.
#[pyfunction]
pub fn capture(
    py: Python<'_>,
    ports: Vec<String>,
    options: &str,
    duration_s: Option<f64>,
) -> PyResult<Report> {
    let options =
        RunOptions::from_json(options).map_err(|why| PyValueError::new_err(why.to_string()))?;
    let listening =
        squall_machine::ports::listening(&ports).map_err(|error| to_py(error.into()))?;
    let session = Session::new(listening).with(options).map_err(to_py)?.command("python");
    let mut run = py.detach(|| session.open()?.start()).map_err(to_py)?;
    let (mut before, mut since) = (0, Instant::now());
    while !run.captured() && duration_s.is_none_or(|end| run.elapsed_s() < end) {
        py.check_signals()?;
        let watched = &mut run;
        let received = py.detach(move || {
            thread::sleep(POLL_INTERVAL);
            watched.received()
        });
        if received != before {
            (before, since) = (received, Instant::now());
        }
        if run.virtual_time() && since.elapsed() > QUIET {
            break;
        }
    }
    run.stop();
    py.detach(|| run.finish()).map(Report).map_err(to_py)
}
