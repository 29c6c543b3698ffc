//! The path through the device, verified before the first trial of a method.
//!
//! Without this check, an unplugged cable or a wrong address looks like a device that forwards
//! nothing, and a search ends with a throughput of 0.

use crate::{
    capacity,
    method::Method,
    rfc2889, rfc3918, rfc6349, rfc8239,
    rig::Rig,
    trial::{FlowLoad, Http, Kept, Lane, Trial},
};

/// Frames of each lane and their rate, frames/s: 20 ms, at a rate that any device can forward.
pub(crate) const FRAMES: u64 = 20;
pub(crate) const FPS: f64 = 1000.0;
/// Connections and their rate, 1/s: 20 ms.
const CONNECTIONS: u64 = 10;
const CPS: f64 = 500.0;

/// The lanes and connections of a method at a low rate, in each direction that it uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Path {
    pub trial: Trial,
    /// Ports that each must receive some of the frames; empty: each frame has a single destination.
    pub receivers: Vec<String>,
}

impl Path {
    /// The path that `method` uses; `None`: it sends nothing.
    pub(crate) fn of(method: &Method, rig: &Rig) -> Option<Self> {
        let (lanes, receivers) = match method {
            Method::Rfc2889(settings) => (rfc2889::path(settings, rig), Vec::new()),
            Method::Rfc8239(settings) => (rfc8239::path(settings, rig), Vec::new()),
            Method::Rfc3918(settings) => {
                let ports = rfc3918::receivers(settings, rig).map(|port| rig.ports[port].clone());
                (rfc3918::path(settings, rig), ports.collect())
            }
            _ => (streams(method, rig), Vec::new()),
        };
        let flows = connections(method);
        let ends = lanes.iter().map(|lane| lane.start_s + FRAMES as f64 / lane.rate_fps);
        let duration_s = ends.fold(CONNECTIONS as f64 / CPS, f64::max);
        let sends = !lanes.is_empty() || flows.is_some();
        let trial = Trial { label: "path".into(), lanes, duration_s, flows, ..Trial::default() };
        sends.then_some(Self { trial, receivers })
    }

    /// The same frames and connections at `part` (0 to 1) of their rates.
    #[must_use]
    pub fn slower(&self, part: f64) -> Trial {
        let mut trial = self.trial.clone();
        trial.duration_s /= part;
        // Joins and leaves of groups keep their rate: each is a single frame, which has no rate.
        // Only their start changes.
        for lane in trial.lanes.iter_mut().filter(|lane| lane.is_measured()) {
            lane.rate_fps *= part;
        }
        for lane in trial.lanes.iter_mut().filter(|lane| !lane.is_measured()) {
            lane.start_s /= part;
        }
        if let Some(load) = &mut trial.flows {
            load.cps *= part;
        }
        trial
    }
}

/// Streams of the profile that `method` sends, with its smallest frame size: larger frames may
/// exceed the path MTU, which the method for RFC 6349 has yet to find.
fn streams(method: &Method, rig: &Rig) -> Vec<Lane> {
    let least = |sizes: &[u32]| sizes.iter().copied().min().unwrap_or(64);
    let size = match method {
        Method::Rfc2544(settings) => least(&settings.frame_sizes),
        Method::Rfc8219(settings) if !settings.sends_frames() => return Vec::new(),
        Method::Rfc8219(settings) => least(&settings.frame_sizes),
        Method::Tst009(settings) => least(&settings.frame_sizes),
        Method::Mlrsearch(settings) => least(&settings.frame_sizes),
        Method::Soak(settings) => settings.frame_size,
        Method::Y1564(settings) => {
            let service = |lane: &Lane| {
                let mut services = settings.service.iter();
                Some(services.find(|service| service.stream == lane.stream)?.frame_size)
            };
            let lanes = slow(rig, 64).into_iter();
            let used = |lane| Some(Lane { frame_size: Some(service(&lane)?), ..lane });
            return lanes.filter_map(used).collect();
        }
        Method::Rfc6349(_) => {
            let low = |lane| Lane { frames: Some(FRAMES), ..lane };
            return rfc6349::probes(rig, FPS.min(rig.port_fps(rfc6349::SMALLEST)))
                .into_iter()
                .map(low)
                .collect();
        }
        Method::Rfc2889(_)
        | Method::Rfc3918(_)
        | Method::Rfc8239(_)
        | Method::Rfc9411(_)
        | Method::Capacity(_) => return Vec::new(),
        // Methods without a list of frame sizes: any path can carry frames of the minimum size.
        _ => 64,
    };
    slow(rig, size)
}

/// All streams of the rig, at a low rate.
fn slow(rig: &Rig, size: u32) -> Vec<Lane> {
    let lanes = rig.lanes(size, 1.0).into_iter();
    let low = |lane: Lane| Lane { rate_fps: lane.rate_fps.min(FPS), frames: Some(FRAMES), ..lane };
    lanes.map(low).collect()
}

/// Connections of the kind that `method` opens.
fn connections(method: &Method) -> Option<FlowLoad> {
    let http = |tls| Http { object_octets: 100, requests: 1, tls, ..Http::default() };
    let (http, kept) = match method {
        Method::Capacity(settings) => match settings.of[..] {
            [capacity::Of::Table] => {
                let udp = settings.table_protocol == capacity::Protocol::Udp;
                (None, Some(Kept { udp, wait_s: 0.0 }))
            }
            _ => (Some(http(settings.tls)), None),
        },
        Method::Rfc9411(settings) => (Some(http(settings.https)), None),
        Method::Rfc6349(_) | Method::Bufferbloat(_) => (Some(http(false)), None),
        Method::Rfc8219(settings) if method.wants_flows() => {
            let dns = Some(settings.dns());
            return Some(FlowLoad {
                cps: CPS,
                limit: Some(CONNECTIONS),
                dns,
                ..FlowLoad::default()
            });
        }
        Method::Rfc8239(_) if method.wants_flows() => (Some(http(false)), None),
        _ => return None,
    };
    Some(FlowLoad { cps: CPS, limit: Some(CONNECTIONS), http, kept, ..FlowLoad::default() })
}
