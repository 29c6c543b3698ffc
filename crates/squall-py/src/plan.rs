//! Plans: the frames that a profile would send.

use pyo3::{prelude::*, types::PyBytes};
use serde_json::{Value, json};
use squall_plan::explain;
use squall_report::render;

#[pyclass(frozen, module = "squall._native")]
pub struct Plan {
    pub planned: squall::Planned,
    pub profile: squall::Profile,
}

/// (index of the stream, index in the stream, due time in ns, octets, summary)
type Frame<'py> = (usize, u64, u64, Bound<'py, PyBytes>, String);

#[pymethods]
impl Plan {
    /// The fields of Python's `Plan`, except for the frames.
    fn to_json(&self) -> String {
        let p = &self.planned.plan;
        let queues = |queues: &[(usize, u32)]| -> Value {
            queues.iter().map(|&(port, queue)| json!([p.ports[port].name, queue])).collect()
        };
        let streams = p.streams.iter().enumerate().map(|(i, s)| {
            json!({
                "name": s.name,
                "port": p.ports[s.port].name,
                "group": s.group,
                "asked_pps": s.asked_pps,
                "mean_size": s.mean_len,
                "packets": s.pattern.total(),
                "start_ns": s.start.as_nanos().0,
                "self_start": s.self_start,
                "latency": s.program.signature().is_some(),
                "variables": s.program.variables(),
                "frames_made_ahead": s.program.ring_frames(),
                "workers": (0..p.workers.len()).filter(|&w| p.share(i, w).is_some()).collect::<Vec<_>>(),
            })
        });
        json!({
            "seed": p.seed,
            "duration_s": p.stop.duration.map(|d| d.as_secs_f64()),
            "packets": p.stop.packets,
            "octets": p.stop.octets,
            "virtual_time": self.planned.virtual_time,
            "ports": p.ports.iter().map(|p| json!({ "name": p.name, "address": p.address })).collect::<Vec<_>>(),
            "streams": streams.collect::<Vec<_>>(),
            "workers": p.workers.iter().map(|w| json!({ "tx": queues(&w.tx), "rx": queues(&w.rx), "cpu": w.cpu })).collect::<Vec<_>>(),
            "notes": p.notes,
        })
        .to_string()
    }

    /// The text that `squall plan` prints.
    fn summary(&self, py: Python<'_>, frames: usize, hex: bool) -> String {
        py.detach(|| {
            let frames = explain::preview(&self.planned.plan, frames);
            render::terminal(&self.planned.text(&self.profile, &frames, hex)).into_owned()
        })
    }

    fn frames<'py>(&self, py: Python<'py>, count: usize) -> Vec<Frame<'py>> {
        let frames = py.detach(|| explain::preview(&self.planned.plan, count));
        frames
            .into_iter()
            .map(|f| {
                (f.stream, f.index, f.due.as_nanos().0, PyBytes::new(py, &f.octets), f.summary)
            })
            .collect()
    }
}
