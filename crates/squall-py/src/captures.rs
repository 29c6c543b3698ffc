//! Reads the contents of captures.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use pyo3::{
    exceptions::{PyOSError, PyValueError},
    prelude::*,
};
use squall_offline::info as facade;
use squall_report::render;

use crate::error::to_py;

/// How often to check for signals.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// EISDIR on Linux (asm-generic/errno-base.h).
const EISDIR: i32 = 21;

#[pyclass(frozen, module = "squall._native")]
pub struct Info(facade::Info);

#[pymethods]
impl Info {
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Self> {
        let wrong = |e| PyValueError::new_err(format!("these are not figures of captures: {e}"));
        serde_json::from_str(text).map(Self).map_err(wrong)
    }

    fn to_json(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.to_json())
    }

    fn to_html(&self, py: Python<'_>) -> String {
        py.detach(|| render::info_html(&self.0))
    }

    fn summary(&self) -> String {
        render::terminal(&render::info_text(&self.0)).into_owned()
    }

    fn table(&self) -> String {
        render::info_table(&self.0)
    }

    #[staticmethod]
    fn schema() -> String {
        facade::schema()
    }
}

/// An OSError as raised by Python. Python shows the file name in quotes, so control characters do
/// not reach the terminal.
fn os_error(error: &std::io::Error, file: &Path) -> PyErr {
    match error.raw_os_error() {
        Some(number) => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            PyOSError::new_err((number, text, file.as_os_str().to_owned()))
        }
        None => std::io::Error::new(error.kind(), format!("{file:?}: {error}")).into(),
    }
}

/// Analyzes captures. An exception raised by a signal handler ends it.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
#[pyo3(signature = (files, *, filter, bins, flow_expiry_s, max_flows, top, checksums, duplicates, hash))]
pub fn info(
    py: Python<'_>,
    files: Vec<PathBuf>,
    filter: Option<String>,
    bins: &str,
    flow_expiry_s: Option<f64>,
    max_flows: usize,
    top: usize,
    checksums: bool,
    duplicates: usize,
    hash: bool,
) -> PyResult<Info> {
    let bins = bins
        .parse::<facade::Bins>()
        .map_err(|e| PyValueError::new_err(format!("bins = {bins:?}: {e}")))?;
    if !(2..=1 << 30).contains(&max_flows) {
        return Err(PyValueError::new_err(format!(
            "max_flows = {max_flows}: expected 2 to {}",
            1u32 << 30
        )));
    }
    // Open each file here, so a file that cannot be opened raises the same error as Python's
    // `open`.
    for file in &files {
        match std::fs::metadata(file) {
            Ok(found) if found.is_dir() => {
                return Err(os_error(&std::io::Error::from_raw_os_error(EISDIR), file));
            }
            Ok(_) => {}
            Err(error) => return Err(os_error(&error, file)),
        }
    }
    let settings = facade::Settings {
        filter,
        bins,
        top,
        max_flows,
        flow_expiry_s,
        checksums,
        duplicates,
        hash,
    };
    let read = interruptible(py, |go_on| Ok(facade::read(&files, &settings, |_| go_on())?))?;
    Ok(Info(facade::Info { command: "python".into(), ..read }))
}

/// Runs a long `work`, which periodically asks whether to continue, until a signal handler raises
/// an exception.
pub fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut (dyn FnMut() -> bool + Send)) -> Result<T, squall::Error> + Send,
) -> PyResult<T> {
    let mut raised = None;
    let mut looked = Instant::now();
    let done = py.detach(|| {
        work(&mut || {
            if looked.elapsed() >= POLL_INTERVAL {
                looked = Instant::now();
                raised = Python::attach(|py| py.check_signals()).err();
            }
            raised.is_none()
        })
    });
    match raised {
        Some(exception) => Err(exception),
        None => done.map_err(to_py),
    }
}
