//! Runs standard tests.

use std::{collections::BTreeMap, path::PathBuf, process::Command, sync::Mutex};

use pyo3::{exceptions::PyValueError, prelude::*};
use squall_method::{Method, Outcome, RecordedTrial, RetryPolicy, Watch, compare, render};
use squall_trials::{Comparison, Nodes, Place, Test};

use crate::{captures::interruptible, error::to_py, profile::Profile};

/// Calls a Python function for each trial.
struct ProgressCallback(Option<Py<PyAny>>, Option<PyErr>);

impl Watch for ProgressCallback {
    fn trial_ended(&mut self, recorded: &RecordedTrial) -> bool {
        let Some(function) = &self.0 else { return true };
        let text = serde_json::to_string(recorded).unwrap_or_default();
        let called = Python::attach(|py| function.call1(py, (text,)).map(|_| ()));
        self.1 = called.err();
        self.1.is_none()
    }
}

/// The nodes that this controller command runs trials on; `None`: this machine.
fn nodes(
    controller: Option<Vec<String>>,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Nodes>, squall::Error> {
    let Some(words) = controller else { return Ok(None) };
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or("python3", String::as_str));
    command.args(words);
    Nodes::start(command, stop).map(Some)
}

fn place(nodes: &mut Option<Nodes>) -> Place<'_> {
    nodes.as_mut().map_or(Place::Here, Place::Nodes)
}

/// Runs a standard test. `method` and `options` are JSON; `controller`: the command that runs
/// trials on nodes. Returns the outcome as JSON. An exception raised by a signal handler ends the
/// test.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
#[pyo3(signature = (method, profile, *, options, max_rate, quick, repeats, rest_s, journal, progress, controller))]
pub fn run_test(
    py: Python<'_>,
    method: &str,
    profile: &Profile,
    options: &str,
    max_rate: Option<&str>,
    quick: bool,
    repeats: u32,
    rest_s: f64,
    journal: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
    controller: Option<Vec<String>>,
) -> PyResult<String> {
    let wrong = |e: serde_json::Error| usage(e.to_string());
    let settings: BTreeMap<String, serde_json::Map<String, serde_json::Value>> =
        serde_json::from_str(method).map_err(wrong)?;
    let given: Vec<&str> =
        settings.values().flat_map(|map| map.keys()).map(String::as_str).collect();
    let method: Method = serde_json::from_str(method).map_err(wrong)?;
    let most = max_rate.map(|text| text.parse().map_err(|e| usage(format!("max_rate: {e}"))));
    let test = Test {
        method: if quick { method.quick(&given) } else { method },
        profile: profile.0.clone(),
        options: squall::RunOptions::from_json(options).map_err(|e| usage(e.to_string()))?,
        most: most.transpose()?,
        retry: RetryPolicy { repeats, rest_s },
        journal,
        command: "python".into(),
    };
    watched(py, progress, |callback, stop| {
        let mut nodes = nodes(controller, stop)?;
        test.run_at(place(&mut nodes), callback, stop)
    })
}

/// Compares two profiles in alternating trials. `settings` and `options` are JSON. Returns the
/// outcome as JSON.
#[pyfunction]
#[pyo3(signature = (a, b, *, settings, options, repeats, rest_s, progress, controller))]
#[allow(clippy::too_many_arguments)]
pub fn run_ab(
    py: Python<'_>,
    a: &Profile,
    b: &Profile,
    settings: &str,
    options: &str,
    repeats: u32,
    rest_s: f64,
    progress: Option<Py<PyAny>>,
    controller: Option<Vec<String>>,
) -> PyResult<String> {
    let comparison = Comparison {
        a: a.0.clone(),
        b: b.0.clone(),
        settings: serde_json::from_str(settings).map_err(|e| usage(e.to_string()))?,
        options: squall::RunOptions::from_json(options).map_err(|e| usage(e.to_string()))?,
        retry: RetryPolicy { repeats, rest_s },
        command: "python".into(),
    };
    watched(py, progress, |callback, stop| {
        let mut nodes = nodes(controller, stop)?;
        comparison.run_at(place(&mut nodes), callback, stop)
    })
}

fn usage(text: String) -> PyErr {
    to_py(squall::Error::Usage(text))
}

/// Returns the result of `work` as JSON. An exception from `progress` or a signal handler ends the
/// work.
fn watched(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&mut ProgressCallback, &dyn Fn() -> bool) -> Result<Outcome, squall::Error> + Send,
) -> PyResult<String> {
    let mut callback = ProgressCallback(progress, None);
    let done = interruptible(py, |go_on| {
        let go_on = Mutex::new(go_on);
        work(&mut callback, &|| !go_on.lock().is_ok_and(|mut go_on| go_on()))
    });
    match callback.1 {
        Some(error) => Err(error),
        None => text(&done?),
    }
}

/// Formats an outcome as `html`, `csv`, `junit` or `text`. `against`: an earlier outcome to compare
/// with.
#[pyfunction]
#[pyo3(signature = (outcome, kind, *, against, tolerance))]
pub fn render_test(
    outcome: &str,
    kind: &str,
    against: Option<&str>,
    tolerance: f64,
) -> PyResult<String> {
    let outcome = read(outcome)?;
    let before = against.map(read).transpose()?;
    let changes = before.map(|before| compare(&before, &outcome, tolerance)).unwrap_or_default();
    match kind {
        "html" => Ok(render::html(&outcome, &changes)),
        "csv" => Ok(render::csv(&outcome)),
        "junit" => Ok(render::junit(&outcome, &changes)),
        "text" => Ok(render::text(&outcome, 100, false)),
        "changes" => text(&changes),
        "csit" => render::csit(&outcome).map_err(PyValueError::new_err),
        "nfvbench" => render::nfvbench(&outcome).map_err(PyValueError::new_err),
        _ => Err(PyValueError::new_err(format!("{kind:?} is no form of a result"))),
    }
}

fn read(text: &str) -> PyResult<Outcome> {
    serde_json::from_str(text).map_err(|e| PyValueError::new_err(format!("no result: {e}")))
}

fn text(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|e| PyValueError::new_err(e.to_string()))
}
