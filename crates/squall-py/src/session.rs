//! Runs that are controlled by Python threads.

use std::{
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
};
use squall::{Amount, RunOptions, host_table::HostQuestion};
use squall_options::Mistake;

use crate::{
    captures::interruptible,
    error::{Error, UnknownStream, to_py},
    plan::Plan,
    profile::Profile,
    report::Report,
};

#[pyclass(frozen, module = "squall._native")]
pub struct Session(squall::Session);

#[pyclass(frozen, module = "squall._native")]
pub struct Run(Mutex<Option<State>>);

/// A run, with the names of its current streams and templates.
struct State {
    run: squall::Run,
    streams: Vec<String>,
}

/// First and maximum interval between checks whether a run is over. The first is short, because a
/// run in virtual time may take only a millisecond. The interval then grows, so waiting for a long
/// run takes no CPU time.
const POLL_INTERVALS: (Duration, Duration) =
    (Duration::from_micros(200), Duration::from_millis(10));

#[pymethods]
impl Session {
    /// `options`: run options as JSON.
    #[new]
    fn new(profile: &Profile, options: &str) -> PyResult<Self> {
        run_by(squall::Session::new(profile.0.clone()), options)
    }

    /// Receives on ports given by address, without sending.
    #[staticmethod]
    fn listen(ports: Vec<String>, options: &str) -> PyResult<Self> {
        let listening =
            squall_machine::ports::listening(&ports).map_err(|error| to_py(error.into()))?;
        run_by(squall::Session::new(listening), options)
    }

    fn plan(&self, py: Python<'_>) -> PyResult<Plan> {
        let planned = py.detach(|| self.0.plan_only()).map_err(to_py)?;
        Ok(Plan { planned, profile: self.0.profile.clone() })
    }

    fn start(&self, py: Python<'_>) -> PyResult<Run> {
        let run = interruptible(py, |go_on| {
            // Solving rules takes long, and its threads check for signals one at a time.
            let go_on = Mutex::new(go_on);
            let asked = |_, _| go_on.lock().is_ok_and(|mut go_on| go_on());
            self.0.clone().resolve(&asked)?.open(&|| false)?.start()
        })?;
        Ok(Run(Mutex::new(Some(State { run, streams: names(&self.0.profile) }))))
    }
}

#[pymethods]
impl Run {
    #[getter]
    fn virtual_time(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |s| s.run.virtual_time())
    }

    #[getter]
    fn elapsed_s(&self, py: Python<'_>) -> PyResult<f64> {
        self.with(py, |s| s.run.elapsed_s())
    }

    #[getter]
    fn received(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |s| s.run.received())
    }

    /// A sample as JSON, and the report so far.
    fn sample(&self, py: Python<'_>) -> PyResult<(String, Report)> {
        let (sample, report) = self.with(py, |s| s.run.sample())?;
        Ok((json(&sample)?, Report(report)))
    }

    fn pause(&self, py: Python<'_>, stream: Option<&str>) -> PyResult<()> {
        self.control(py, stream, |run| run.pause(stream))
    }

    fn resume(&self, py: Python<'_>, stream: Option<&str>) -> PyResult<()> {
        self.control(py, stream, |run| run.resume(stream))
    }

    /// Carries out an order of a router: the table of a step, as JSON.
    fn order(&self, py: Python<'_>, router: &str, order: &str) -> PyResult<()> {
        let table: serde_json::Value =
            serde_json::from_str(order).map_err(|error| wrong(order, error))?;
        self.with(py, |s| s.run.order(router, &table))?.map_err(to_py)
    }

    fn change(&self, py: Python<'_>, profile: &Profile) -> PyResult<()> {
        let new = profile.0.clone();
        self.with(py, |s| {
            let streams = names(&new);
            s.run.change(new)?;
            s.streams = streams;
            Ok(())
        })?
        .map_err(to_py)
    }

    fn multiply(&self, py: Python<'_>, by: &str) -> PyResult<()> {
        let by =
            by.parse().map_err(|e: String| PyValueError::new_err(format!("by = {by:?}: {e}")))?;
        self.with(py, |s| s.run.multiply(by))?.map_err(to_py)
    }

    #[pyo3(signature = (template, *, cps, active, bandwidth, users, weight))]
    #[allow(clippy::too_many_arguments)]
    fn set_load(
        &self,
        py: Python<'_>,
        template: Option<&str>,
        cps: Option<f64>,
        active: Option<u64>,
        bandwidth: Option<&str>,
        users: Option<u32>,
        weight: Option<u32>,
    ) -> PyResult<()> {
        let bandwidth =
            bandwidth.map(|text| text.parse().map_err(|e| wrong(text, e))).transpose()?;
        let amounts = [
            cps.map(Amount::Cps),
            active.map(Amount::Active),
            bandwidth.map(Amount::Bandwidth),
            users.map(Amount::Users),
            weight.map(Amount::Weight),
        ];
        let mut amounts = amounts.into_iter().flatten();
        let (Some(amount), None) = (amounts.next(), amounts.next()) else {
            return Err(PyValueError::new_err(
                "expected exactly one of cps, active, bandwidth, users and weight",
            ));
        };
        let (result, names) =
            self.with(py, |s| (s.run.set_load(template, amount), s.streams.clone()))?;
        result.map_err(|error| named(error, template, names))
    }

    /// A page of hosts as JSON.
    fn hosts(&self, py: Python<'_>, filter: &str, offset: usize, limit: usize) -> PyResult<String> {
        let wrong = |e: String| PyValueError::new_err(format!("filter: {e}"));
        let filter = filter.parse().map_err(wrong)?;
        let question = HostQuestion { filter, offset, limit };
        json(&self.with(py, |s| s.run.hosts(&question))?)
    }

    /// A host with its last events, as JSON.
    fn host(&self, py: Python<'_>, number: u32, group: Option<&str>) -> PyResult<String> {
        json(&self.with(py, |s| s.run.host(group, number))?.map_err(to_py)?)
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |s| s.run.stop())
    }

    /// Waits until everything is sent, at most `timeout` seconds. Returns whether it is. Signals
    /// and other threads are handled meanwhile.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        // A timeout that no `Instant` can represent means no limit.
        let until = timeout.map(seconds).transpose()?.and_then(|t| Instant::now().checked_add(t));
        let (mut interval, longest) = POLL_INTERVALS;
        loop {
            if self.with(py, |s| s.run.wait(Duration::ZERO))? {
                return Ok(true);
            }
            py.check_signals()?;
            let left = until.map_or(interval, |until| {
                until.saturating_duration_since(Instant::now()).min(interval)
            });
            if left.is_zero() {
                return Ok(false);
            }
            py.detach(|| thread::sleep(left));
            interval = (interval * 2).min(longest);
        }
    }

    fn finish(&self, py: Python<'_>) -> PyResult<Report> {
        self.wait(py, None)?;
        let report = py.detach(|| self.take().map(|s| s.run.finish()));
        report.ok_or_else(ended)?.map(Report).map_err(to_py)
    }
}

impl Run {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut State) -> T + Send,
    ) -> PyResult<T> {
        let done =
            py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(act));
        done.ok_or_else(ended)
    }

    fn take(&self) -> Option<State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn control(
        &self,
        py: Python<'_>,
        stream: Option<&str>,
        act: impl FnOnce(&squall::Run) -> Result<(), squall::Error> + Send,
    ) -> PyResult<()> {
        let (result, streams) = self.with(py, |s| (act(&s.run), s.streams.clone()))?;
        result.map_err(|error| named(error, stream, streams))
    }
}

impl Drop for Run {
    /// Ends a run that Python can no longer reach. Done on a separate thread: ending a run waits
    /// for frames in flight.
    fn drop(&mut self) {
        if let Some(state) = self.take() {
            thread::spawn(move || {
                state.run.stop();
                state.run.finish()
            });
        }
    }
}

/// Converts options. An unknown one raises TypeError, like an unknown argument in Python.
fn run_by(session: squall::Session, options: &str) -> PyResult<Session> {
    let options = RunOptions::from_json(options).map_err(|mistake| match mistake {
        Mistake::Unknown { .. } => PyTypeError::new_err(mistake.to_string()),
        Mistake::Wrong(why) => PyValueError::new_err(why),
    })?;
    let session =
        session.with(options).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(Session(session.command("python")))
}

fn names(profile: &squall::Profile) -> Vec<String> {
    let templates = profile
        .flows
        .iter()
        .flat_map(|flows| &flows.templates)
        .map(|template| template.name.clone());
    profile.streams.iter().map(|s| s.name.clone()).chain(templates).collect()
}

/// Adds the known names to the exception for an unknown name.
fn named(error: squall::Error, name: Option<&str>, names: Vec<String>) -> PyErr {
    match (error, name) {
        (squall::Error::Engine(squall::EngineError::UnknownStream { .. }), Some(name)) => {
            UnknownStream::new_err((name.to_owned(), names))
        }
        (error, _) => to_py(error),
    }
}

fn json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|e| PyValueError::new_err(e.to_string()))
}

fn wrong(text: &str, error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{text:?}: {error}"))
}

fn seconds(s: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(s)
        .map_err(|e| PyValueError::new_err(format!("{s} s is not a time to wait: {e}")))
}

fn ended() -> PyErr {
    Error::new_err("the run has ended: start another")
}
