//! A capture from its start to its report.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use pyo3::{exceptions::PyValueError, prelude::*};
use squall::{Capture, RunOptions, Session};
use squall_capture::{Compression, Format, OnFull, Options, Rotate, Stop};
use squall_units::Nanos;

use crate::{error::to_py, report::Report};

/// How often to look whether a capture is over.
const NAP: Duration = Duration::from_millis(20);
/// A file that gives nothing for so long has no more.
const QUIET: Duration = Duration::from_millis(200);

/// Captures from `ports` into `file` until `count` packets, `duration_s`, or a signal.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
#[pyo3(signature = (ports, file, *, filter, duration_s, count, snaplen, format, compress, rotate_octets, rotate_s, rotate_count, ring_files, buffer, on_full, force))]
pub fn capture(
    py: Python<'_>,
    ports: Vec<String>,
    file: PathBuf,
    filter: Option<String>,
    duration_s: Option<f64>,
    count: Option<u64>,
    snaplen: Option<u32>,
    format: &str,
    compress: Option<&str>,
    rotate_octets: Option<u64>,
    rotate_s: Option<f64>,
    rotate_count: Option<u64>,
    ring_files: Option<u32>,
    buffer: usize,
    on_full: &str,
    force: bool,
) -> PyResult<Report> {
    let bad = |what: String| PyValueError::new_err(what);
    let options = Options {
        file: Some(file),
        format: match format {
            "pcapng" => Format::Pcapng,
            "pcap" => Format::Pcap { nanoseconds: true },
            "pcap-us" => Format::Pcap { nanoseconds: false },
            other => {
                return Err(bad(format!(
                    "format = {other:?}: expected \"pcapng\", \"pcap\" or \"pcap-us\""
                )));
            }
        },
        snaplen: snaplen.unwrap_or(squall_capture::SNAPLEN),
        compress: compress
            .map(|text| {
                text.parse::<Compression>().map_err(|e| bad(format!("compress = {text:?}: {e}")))
            })
            .transpose()?,
        rotate: Rotate {
            octets: rotate_octets,
            time: rotate_s.map(Nanos::from_secs_f64),
            packets: rotate_count,
            ring: ring_files,
        },
        buffer,
        on_full: match on_full {
            "drop-newest" => OnFull::DropNewest,
            "drop-oldest" => OnFull::DropOldest,
            other => {
                return Err(bad(format!(
                    "on_full = {other:?}: expected \"drop-newest\" or \"drop-oldest\""
                )));
            }
        },
        stop: Stop { packets: count, ..Stop::default() },
        ..Options::default()
    };
    let session = Session {
        options: RunOptions { filter, force: Some(force), ..RunOptions::default() },
        capture: Some(Capture { options, ..squall::Capture::default() }),
        command: "python".into(),
        ..Session::new(
            squall_machine::ports::listening(&ports).map_err(|error| to_py(error.into()))?,
        )
    };
    let mut run = py.detach(|| session.open()?.start()).map_err(to_py)?;
    let (mut before, mut since) = (0, Instant::now());
    while !run.captured() && duration_s.is_none_or(|end| run.elapsed_s() < end) {
        py.check_signals()?;
        let watched = &mut run;
        let received = py.detach(move || {
            thread::sleep(NAP);
            watched.received()
        });
        if received != before {
            (before, since) = (received, Instant::now());
        }
        if run.virtual_time() && since.elapsed() > QUIET {
            break;
        }
    }
    run.stop();
    py.detach(|| run.finish()).map(Report).map_err(to_py)
}
