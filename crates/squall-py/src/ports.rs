//! Ports of this machine.

use pyo3::prelude::*;
use squall_machine::listing::Listing;

use crate::error::to_py;

/// The interfaces as JSON, in the format of `squall ports --json`.
#[pyfunction]
pub fn ports(py: Python<'_>, interface: Option<&str>) -> PyResult<String> {
    py.detach(|| Listing::new(interface).map(|listing| listing.to_value().to_string()))
        .map_err(|error| to_py(error.into()))
}
