//! An Open Traffic Generator session in this process, for `snappi_squall`. Messages are JSON texts.

use std::sync::{Mutex, PoisonError};

use pyo3::{prelude::*, types::PyBytes};
use serde_json::Value;
use squall_control::driving::InProcess;
use squall_otg::{Controller, Refusal};

pyo3::import_exception!(snappi_squall._errors, Refused);

#[pyclass(frozen, module = "squall._native")]
pub struct Otg(Mutex<Controller>);

#[pymethods]
impl Otg {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(Controller::new(Box::<InProcess>::default())))
    }

    fn set_config(&self, py: Python<'_>, message: &str) -> PyResult<String> {
        self.ask(py, message, Controller::set_config)
    }

    fn get_config(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, "null", |controller, _| Ok(controller.config()))
    }

    fn append_config(&self, py: Python<'_>, message: &str) -> PyResult<String> {
        self.ask(py, message, Controller::append_config)
    }

    fn update_config(&self, py: Python<'_>, message: &str) -> PyResult<String> {
        self.ask(py, message, Controller::update_config)
    }

    fn delete_config(&self, py: Python<'_>, message: &str) -> PyResult<String> {
        self.ask(py, message, Controller::delete_config)
    }

    fn set_control_state(&self, py: Python<'_>, message: &str) -> PyResult<String> {
        self.ask(py, message, Controller::control_state)
    }

    fn set_control_action(&self, py: Python<'_>, message: &str) -> PyResult<String> {
        self.ask(py, message, Controller::control_action)
    }

    fn get_metrics(&self, py: Python<'_>, message: &str) -> PyResult<String> {
        // Copied for Python here, because the controller may give the same reply to another thread.
        self.ask(py, message, |controller, message| {
            controller.metrics(message).map(|reply| (*reply).clone())
        })
    }

    fn get_states(&self, py: Python<'_>, message: &str) -> PyResult<String> {
        self.ask(py, message, Controller::states)
    }

    fn get_capture<'py>(&self, py: Python<'py>, message: &str) -> PyResult<Bound<'py, PyBytes>> {
        let octets = self.with(py, message, Controller::capture)?;
        Ok(PyBytes::new(py, &octets))
    }

    fn get_version(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, "null", |_, _| Ok(Controller::version()))
    }
}

impl Otg {
    fn ask(
        &self,
        py: Python<'_>,
        message: &str,
        what: impl FnOnce(&mut Controller, &Value) -> Result<Value, Refusal> + Send,
    ) -> PyResult<String> {
        self.with(py, message, |controller, message| {
            what(controller, message).map(|reply| reply.to_string())
        })
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        message: &str,
        what: impl FnOnce(&mut Controller, &Value) -> Result<T, Refusal> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| {
            let message = serde_json::from_str(message).map_err(|error| Refusal {
                code: 400,
                kind: "validation".into(),
                errors: vec![format!("not JSON: {error}")],
            })?;
            let mut controller = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            what(&mut controller, &message)
        });
        done.map_err(|refusal| Refused::new_err((refusal.code, refusal.kind, refusal.errors)))
    }
}
