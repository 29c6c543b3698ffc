//! Streams for `squall.trex`. Messages are JSON texts, as TRex's clients send them.

use std::collections::BTreeMap;

use pyo3::{exceptions::PyValueError, prelude::*};
use serde_json::Value;
use squall_trex::{Asked, Load, MACS, Problem, Setting, Statistics, Stream, Unit, translate};

fn wrong(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn read(streams: &str) -> PyResult<BTreeMap<u32, Stream>> {
    let values: BTreeMap<u32, Value> = serde_json::from_str(streams).map_err(wrong)?;
    squall_trex::numbered(values.iter().map(|(number, value)| (*number, value))).map_err(wrong)
}

/// The factor by which to multiply the streams' own rates for a total of `value` in `unit`.
#[pyfunction]
pub fn trex_factor(
    py: Python<'_>,
    streams: &str,
    unit: &str,
    value: f64,
    speed: Option<f64>,
) -> PyResult<f64> {
    let unit: Unit = serde_json::from_value(Value::from(unit)).map_err(wrong)?;
    let streams = read(streams)?;
    py.detach(|| squall_trex::factor(Load::Total(unit, value), &streams, speed)).map_err(wrong)
}

/// Converts numbered streams to a list of `[[stream]]` tables that follow the schema, on the port
/// named `port`. `groups`: packet group numbers of streams with statistics.
#[pyfunction]
pub fn trex_streams(
    py: Python<'_>,
    streams: &str,
    names: &str,
    port: &str,
    factor: f64,
    speed: Option<f64>,
    groups: &str,
) -> PyResult<String> {
    let streams = read(streams)?;
    let groups: BTreeMap<u32, u16> = serde_json::from_str(groups).map_err(wrong)?;
    let names: BTreeMap<u32, String> = serde_json::from_str(names).map_err(wrong)?;
    let setting = Setting {
        port: 0,
        macs: MACS,
        load: Load::Factor(factor),
        speed,
        statistics: Statistics::Signature,
    };
    let translated = py.detach(|| -> Result<Value, Problem> {
        let name = |number: u32| names.get(&number).cloned().unwrap_or_else(|| number.to_string());
        let number = |asked: Asked| groups.get(&asked.stream).copied();
        let made = translate(&streams, &setting, name, number)?;
        let profile = squall_trex::of_port(port, made.into_iter().map(|one| one.stream).collect());
        Ok(profile.to_value()["stream"].take())
    });
    translated.map(|value| value.to_string()).map_err(wrong)
}
