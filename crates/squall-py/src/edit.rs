//! Edits captures.

use std::path::PathBuf;

use pyo3::{exceptions::PyValueError, prelude::*};
use squall_offline::edit::{Edited, Settings, Split, edit as edit_captures, edits::Edits, set};
use squall_port::output::Permit;
use squall_units::Nanos;

use crate::{captures::interruptible, error::to_py};

/// Builds edits from names and values of `squall edit` options.
pub fn edits_of(asked: &[(String, String)]) -> PyResult<Edits> {
    let mut edits = Edits::default();
    let done = asked.iter().try_for_each(|(name, text)| set(&mut edits, name, text));
    done.map_err(|text| to_py(squall::Error::Usage(text)))?;
    Ok(edits)
}

/// Edits captures. Returns the result as JSON. An exception raised by a signal handler ends the
/// editing.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
#[pyo3(signature = (inputs, out, *, edits, merge, split_count, split_time_ns, split_flows, cache, force))]
pub fn edit(
    py: Python<'_>,
    inputs: Vec<PathBuf>,
    out: PathBuf,
    edits: Vec<(String, String)>,
    merge: bool,
    split_count: Option<u64>,
    split_time_ns: Option<u64>,
    split_flows: bool,
    cache: Option<PathBuf>,
    force: bool,
) -> PyResult<String> {
    let split = match (split_count, split_time_ns, split_flows) {
        (None, None, false) => None,
        (Some(count @ 1..), None, false) => Some(Split::Count(count)),
        (None, Some(time @ 1..), false) => Some(Split::Time(Nanos(time).0)),
        (None, None, true) => Some(Split::Flows),
        _ => {
            let expected =
                "expected one of split_count (1 or more), split_time (above 0), split_flows";
            return Err(PyValueError::new_err(expected));
        }
    };
    let permit = if force { Permit::FORCE } else { Permit::default() };
    let settings = Settings { edits: edits_of(&edits)?, merge, split, cache, permit };
    let edited =
        interruptible(py, |go_on| Ok(edit_captures(&inputs, &out, &settings, |_| go_on())?))?;
    Ok(Edited { command: "python".into(), ..edited }.to_json())
}
