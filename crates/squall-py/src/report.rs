//! Reports. Long parts are passed to numpy as octets.

use std::{collections::HashMap, mem};

use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};
use squall::report;
use squall_report::render;

#[pyclass(frozen, module = "squall._native")]
pub struct Report(pub report::Report);

#[pymethods]
impl Report {
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Self> {
        serde_json::from_str(text)
            .map(Self)
            .map_err(|e| PyValueError::new_err(format!("this is not a report: {e}")))
    }

    fn to_json(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.to_json())
    }

    /// The report as JSON without its series, and the bins of all histograms as uint64[n, 3]
    /// (lower, upper, count). In the JSON, each histogram has `[[first, last + 1, 0]]` instead of
    /// its bins: its range of rows.
    fn parts<'py>(&self, py: Python<'py>) -> PyResult<(String, Bound<'py, PyBytes>)> {
        let (text, bins) = py.detach(|| {
            let mut rest = report::Report { series: Vec::new(), ..self.0.clone() };
            let (mut bins, mut rows) = (Vec::new(), 0);
            for distribution in rest.distributions_mut() {
                let own = mem::take(&mut distribution.bins);
                distribution.bins = vec![(rows, rows + own.len() as u64, 0)];
                rows += own.len() as u64;
                bins.extend(own.iter().flat_map(|b| [b.0, b.1, b.2]).flat_map(u64::to_ne_bytes));
            }
            (serde_json::to_string(&rest), bins)
        });
        Ok((text.map_err(|e| PyValueError::new_err(e.to_string()))?, PyBytes::new(py, &bins)))
    }

    /// Sample times in seconds, and a column for each name and quantity of ports, streams, captures
    /// (which have no name) and templates (whose names include the side). Each column is
    /// float64[n], with NaN for missing values.
    #[allow(clippy::type_complexity)]
    fn series<'py>(
        &self,
        py: Python<'py>,
    ) -> (Bound<'py, PyBytes>, Columns<'py>, Columns<'py>, Columns<'py>, Columns<'py>) {
        let samples = &self.0.series;
        let seconds: Vec<f64> = samples.iter().map(|s| s.t_s).collect();
        let ports = py.detach(|| columns(samples.iter().map(|s| s.ports.iter().map(fields))));
        let streams = py.detach(|| columns(samples.iter().map(|s| s.streams.iter().map(fields))));
        let capture = py.detach(|| columns(samples.iter().map(|s| s.capture.iter().map(fields))));
        let end =
            |row: &report::TemplateSample| (format!("{} ({})", row.name, row.side), fields(row).1);
        let flows = py.detach(|| columns(samples.iter().map(|s| s.flows.iter().map(end))));
        let numpy = |table: Table| -> Columns<'py> {
            table
                .into_iter()
                .map(|(name, field, column)| (name, field, octets(py, &column)))
                .collect()
        };
        (octets(py, &seconds), numpy(ports), numpy(streams), numpy(capture), numpy(flows))
    }

    fn to_html(&self, py: Python<'_>) -> String {
        py.detach(|| render::html(&self.0))
    }

    fn summary(&self, width: usize, color: bool) -> String {
        render::terminal(&render::summary(&self.0, width, color)).into_owned()
    }

    #[staticmethod]
    fn schema() -> String {
        report::schema()
    }
}

/// Merges the reports of several parts and nodes. Items are matched by name.
#[pyfunction]
pub fn whole(py: Python<'_>, reports: Vec<(String, Py<Report>)>) -> PyResult<Report> {
    let parts = reports.into_iter().map(|(name, report)| (name, report.get().0.clone())).collect();
    py.detach(|| squall_report::merge::whole(parts))
        .map(Report)
        .map_err(|e| PyValueError::new_err(e.to_string()))
}

/// (name of the port or stream, quantity, values)
type Table = Vec<(String, String, Vec<f64>)>;
type Columns<'py> = Vec<(String, String, Bound<'py, PyBytes>)>;

/// A sample of one port or stream: its name, and its quantities under the names in the report.
fn fields(sample: &impl serde::Serialize) -> (String, Vec<(String, f64)>) {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(sample) else {
        return Default::default();
    };
    let name = fields.get("name").and_then(|n| n.as_str()).unwrap_or_default().to_owned();
    let numbers = fields.into_iter().filter(|(_, v)| !v.is_string());
    (name, numbers.map(|(field, value)| (field, value.as_f64().unwrap_or(f64::NAN))).collect())
}

/// One column for each name and quantity, with a value for each row (NaN in rows without the
/// stream). If a name occurs twice in a row, the later one counts.
fn columns<I: Iterator<Item = (String, Vec<(String, f64)>)>>(
    rows: impl ExactSizeIterator<Item = I>,
) -> Table {
    let count = rows.len();
    let mut table: Table = Vec::new();
    let mut places: HashMap<(String, String), usize> = HashMap::new();
    for (row, samples) in rows.enumerate() {
        for (name, quantities) in samples {
            for (quantity, value) in quantities {
                let place = *places.entry((name.clone(), quantity.clone())).or_insert_with(|| {
                    table.push((name.clone(), quantity, vec![f64::NAN; count]));
                    table.len() - 1
                });
                table[place].2[row] = value;
            }
        }
    }
    table
}

fn octets<'py>(py: Python<'py>, numbers: &[f64]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &numbers.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>())
}
