//! Converts errors of the facade to the exceptions in `squall._errors`.

use pyo3::PyErr;
use squall::{Diagnostic, Diagnostics, EngineError};

pyo3::import_exception!(squall._errors, Error);
pyo3::import_exception!(squall._errors, ProfileError);
pyo3::import_exception!(squall._errors, PortError);
pyo3::import_exception!(squall._errors, UnknownStream);

pub fn to_py(error: squall::Error) -> PyErr {
    match error {
        squall::Error::Input(diagnostics) => profile_error(diagnostics),
        squall::Error::Usage(text) => profile_error(Diagnostics(vec![unplaced(&text)])),
        squall::Error::Engine(
            error @ (EngineError::Count(_)
            | EngineError::FixedEnd(_)
            | EngineError::FixedLoad(_)
            | EngineError::Together(_)),
        ) => profile_error(Diagnostics(vec![unplaced(&error.to_string())])),
        squall::Error::Engine(error @ EngineError::Panic(_)) => Error::new_err(error.to_string()),
        squall::Error::Environment(_) | squall::Error::Engine(_) => {
            PortError::new_err(error.to_string())
        }
    }
}

pub fn profile_error(diagnostics: Diagnostics) -> PyErr {
    let text = diagnostics.to_string();
    let list: Vec<_> = diagnostics
        .0
        .into_iter()
        .map(|d| (d.origin, d.line, d.column, d.path, d.message, d.details))
        .collect();
    ProfileError::new_err((text, list))
}

/// Splits a message of the facade: the first line is the error, the others are hints.
fn unplaced(text: &str) -> Diagnostic {
    let mut lines = text.lines();
    Diagnostic {
        origin: "<python>".into(),
        message: lines.next().unwrap_or_default().into(),
        details: lines.map(|line| line.trim_start().into()).collect(),
        ..Diagnostic::default()
    }
}
