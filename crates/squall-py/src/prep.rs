//! Splits a capture between two ports, like tcpprep.

use std::path::PathBuf;

use pyo3::prelude::*;
use squall::Error;
use squall_offline::prep::{
    prepare,
    split::{By, Select, Side, Split},
};
use squall_units::Cannot;

use crate::error::to_py;

/// (packets for the primary port, for the secondary port, for neither, why the capture ended early)
type Prepared = (u64, u64, u64, Option<String>);

/// Writes a cache file in tcpprep's format.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
#[pyo3(signature = (file, cache, *, split, reverse, non_ip, include, exclude, comment))]
pub fn prep(
    py: Python<'_>,
    file: PathBuf,
    cache: PathBuf,
    split: (String, String),
    reverse: bool,
    non_ip: bool,
    include: Option<String>,
    exclude: Option<String>,
    comment: &str,
) -> PyResult<Prepared> {
    let done = py.detach(|| {
        let wrong = |key: &str, text: &str, error: &dyn std::fmt::Display| {
            Error::Usage(format!("{key} = {text:?}: {error}"))
        };
        let (kind, text) = &split;
        let by = By::parse(kind, text).map_err(|e| wrong("split", kind, &e))?;
        let select = match (&include, &exclude) {
            (Some(rule), None) => Some(("include", rule, false)),
            (None, Some(rule)) => Some(("exclude", rule, true)),
            (None, None) => None,
            (Some(_), Some(_)) => {
                return Err(Error::Usage("include and exclude: expected at most one".into()));
            }
        };
        let select = select
            .map(|(key, rule, exclude)| {
                Select::parse(rule, exclude).map_err(|e| wrong(key, rule, &e))
            })
            .transpose()?;
        let non_ip = if non_ip { Side::Primary } else { Side::Secondary };
        let prepared =
            prepare(&file, &Split { reverse, non_ip, select, ..Split::new(by) }, comment)?;
        if prepared.cache.is_empty() && prepared.fault.is_none() {
            return Err(Error::Usage(format!("{}: it has no packets", file.display())));
        }
        std::fs::write(&cache, prepared.cache.to_bytes())
            .map_err(|error| Cannot::write(&cache, &error))?;
        Ok(prepared)
    });
    let done = done.map_err(to_py)?;
    let counts = done.cache.counts();
    let fault = done.fault.map(|fault| fault.to_string());
    Ok((counts.primary, counts.secondary, counts.skipped, fault))
}
