//! Profiles that were parsed and checked.

use std::path::PathBuf;

use pyo3::{exceptions::PyValueError, prelude::*};
use squall::Format;

use crate::error::profile_error;

#[pyclass(frozen, module = "squall._native")]
pub struct Profile(pub squall::Profile);

#[pymethods]
impl Profile {
    #[staticmethod]
    fn load(path: PathBuf) -> PyResult<Self> {
        squall::Profile::load(path).map(Self).map_err(profile_error)
    }

    /// `format`: `toml`, `yaml` or `json`.
    #[staticmethod]
    fn parse(text: &str, origin: &str, format: &str) -> PyResult<Self> {
        let format = match format {
            "toml" => Format::Toml,
            "yaml" => Format::Yaml,
            "json" => Format::Json,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "unknown format {format:?}: expected toml, yaml or json"
                )));
            }
        };
        squall::Profile::parse(text, origin, format).map(Self).map_err(profile_error)
    }

    /// Parses a table that follows the schema. There is no source text, so errors name the key
    /// instead of a line.
    #[staticmethod]
    fn from_json(table: &str, origin: &str) -> PyResult<Self> {
        let value =
            serde_json::from_str(table).map_err(|e| PyValueError::new_err(e.to_string()))?;
        squall::Profile::from_value(&value, origin).map(Self).map_err(profile_error)
    }

    fn to_json(&self) -> String {
        self.0.to_value().to_string()
    }

    fn to_toml(&self) -> String {
        self.0.to_toml()
    }

    fn to_python(&self) -> String {
        squall_editor::python(&self.0)
    }

    #[staticmethod]
    fn schema() -> String {
        squall_profile::schema().to_string()
    }
}
