//! Ethernet service activation (ITU-T Y.1564): first a step test of each service separately, then
//! all services together.
//!
//! Services are not color-aware: frames have the markings of the profile, and results do not
//! distinguish frames beyond CIR.

mod availability;
mod outcome;

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bench::{Bench, MethodError},
    fields,
    outcome::Outcome,
    rig::Rig,
    settings::{at_most, settings},
    trial::{Lane, LaneMeasured, Trial},
};

pub use availability::Availability;

/// A service: a stream, its bandwidth profile, and its service acceptance criteria.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Service {
    /// Stream of the profile
    pub stream: String,
    /// Committed information rate, bits per second of frames with FCS
    pub cir_bps: f64,
    /// Excess information rate, bits per second of frames with FCS
    pub eir_bps: f64,
    /// Frame size, octets with FCS
    pub frame_size: u32,
    /// Highest frame loss ratio
    pub flr: f64,
    /// Highest frame transfer delay, milliseconds
    pub ftd_ms: Option<f64>,
    /// Highest frame delay variation against the lowest delay, milliseconds
    pub fdv_ms: Option<f64>,
    /// Lowest availability, a ratio
    pub availability: f64,
    /// Whether the network polices the service
    pub policed: bool,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            stream: String::new(),
            cir_bps: 0.0,
            eir_bps: 0.0,
            frame_size: 512,
            flr: 0.0,
            ftd_ms: None,
            fdv_ms: None,
            availability: 1.0,
            policed: true,
        }
    }
}

impl FromStr for Service {
    type Err = String;

    /// Parses `stream=web,cir_bps=50Mbps,eir_bps=1e7,flr=1e-5`: fields as in a settings file, and
    /// rates optionally with a unit.
    ///
    /// ```
    /// use squall_method::y1564::Service;
    ///
    /// let service: Service = "stream=web,cir_bps=50Mbps,eir_bps=1e7,policed=false".parse()?;
    /// assert_eq!((service.cir_bps, service.eir_bps, service.policed), (5e7, 1e7, false));
    /// for wrong in ["stream=web,cir=5e7", "stream=web,cir_bps=5kpps", "stream=web,cir_bps=6MB/s"] {
    ///     assert!(wrong.parse::<Service>().is_err(), "{wrong}");
    /// }
    /// # Ok::<_, String>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, String> {
        fields::parse(text, &["stream"])
    }
}

settings! {
    /// Settings of Y.1564.
    "Y.1564":
    /// Test this service; repeatable: stream=web,cir_bps=50Mbps,eir_bps=10Mbps,frame_size=512,
    /// flr=1e-5,ftd_ms=10,fdv_ms=2,availability=0.999,policed=true
    service: Vec<Service> = Vec::new() => given("SERVICE");
    /// Steps of the configuration test, as parts of the committed rate
    steps: Vec<f64> = vec![0.25, 0.5, 0.75, 0.9, 1.0] => each("RATIO");
    /// Length of a step, seconds (Y.1564: 1 to 60)
    step_s: f64 = 10.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(1.0);
    /// Length of the performance test, seconds (Y.1564: 900, 7200 or 86400); 0: none
    performance_s: f64 = 900.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(15.0);
    /// Highest rate beyond CIR + EIR, as a part of that (M of Y.1564: tolerance for bursts)
    margin: f64 = 0.01 => one("RATIO");
}

impl Settings {
    /// Checks that all settings are in range and fit `rig`.
    ///
    /// # Errors
    /// If a setting is out of range, or if a service does not fit `rig`.
    pub fn check(&self, rig: &Rig) -> Result<(), MethodError> {
        let wrong = |text: String| Err(MethodError::Usage(text));
        if self.service.is_empty() {
            return wrong("no service is given\n  try --service stream=NAME,cir_bps=50Mbps".into());
        }
        if !(self.step_s > 0.0 && self.performance_s >= 0.0 && self.margin >= 0.0) {
            return wrong("step_s is to be above 0, performance_s and margin at least 0".into());
        }
        if self.steps.iter().any(|step| !(*step > 0.0 && *step <= 1.0)) {
            return wrong(format!("steps = {:?}, expected above 0, to 1", self.steps));
        }
        self.service.iter().try_for_each(|service| service.check(rig))
    }
}

impl Service {
    fn check(&self, rig: &Rig) -> Result<(), MethodError> {
        let stream = &self.stream;
        let wrong = |text: String| Err(MethodError::Usage(format!("service \"{stream}\": {text}")));
        if !rig.lanes.iter().any(|lane| lane.stream == *stream) {
            let names: Vec<_> = rig.lanes.iter().map(|lane| lane.stream.as_str()).collect();
            return wrong(format!("the profile has the streams {}", names.join(", ")));
        }
        if !(self.cir_bps > 0.0 && self.eir_bps >= 0.0 && self.frame_size >= 64) {
            return wrong("expected cir_bps above 0, frame_size of at least 64".into());
        }
        let ratio = |ratio: f64| (0.0..=1.0).contains(&ratio);
        if !(ratio(self.flr) && ratio(self.availability)) {
            return wrong("expected flr and availability of 0 to 1".into());
        }
        let (most, port) = (self.fps(self.most_bps()), rig.port_fps(self.frame_size));
        if most > port {
            return wrong(format!(
                "needs {most:.0} frames/s, and its port sends {port:.0} at most"
            ));
        }
        Ok(())
    }

    fn fps(&self, bps: f64) -> f64 {
        bps / (8.0 * f64::from(self.frame_size))
    }

    /// The rate of the policing test (§8.1.2, test C.2).
    fn policing_bps(&self) -> f64 {
        if self.eir_bps < 0.2 * self.cir_bps {
            1.25 * self.cir_bps + self.eir_bps
        } else {
            self.cir_bps + 1.25 * self.eir_bps
        }
    }

    fn most_bps(&self) -> f64 {
        if self.policed { self.policing_bps() } else { self.cir_bps + self.eir_bps }
    }

    fn lane(&self, bps: f64) -> Lane {
        Lane {
            name: self.stream.clone(),
            stream: self.stream.clone(),
            frame_size: Some(self.frame_size),
            rate_fps: self.fps(bps),
            ..Lane::default()
        }
    }

    /// The steps of the configuration test.
    fn steps(&self, settings: &Settings) -> Vec<Step> {
        let committed = |part: &f64| Step {
            name: format!("{:.0} % CIR", part * 100.0),
            bps: self.cir_bps * part,
            kind: Kind::Committed,
        };
        let mut steps: Vec<_> = settings.steps.iter().map(committed).collect();
        let excess = |name: &str, bps| Step { name: name.into(), bps, kind: Kind::Excess };
        if self.eir_bps > 0.0 {
            steps.push(excess("CIR + EIR", self.cir_bps + self.eir_bps));
        }
        if self.policed {
            steps.push(excess("policing", self.policing_bps()));
        }
        steps
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Passes if all acceptance criteria are met.
    Committed,
    /// Passes if the received rate is from CIR to CIR + EIR.
    Excess,
    /// Passes if all acceptance criteria are met in the long performance test.
    Performance,
}

#[derive(Clone, Debug)]
struct Step {
    name: String,
    bps: f64,
    kind: Kind,
}

/// Results of a service in a step or in the performance test.
#[derive(Clone, Debug)]
struct Row {
    service: usize,
    step: Step,
    /// Received rate, bits per second.
    ir_bps: f64,
    flr: f64,
    lost: u64,
    /// Minimum, mean and maximum, nanoseconds.
    delay: Option<(f64, f64, f64)>,
    /// Uncertainty of each delay.
    bound_ns: f64,
    availability: Option<Availability>,
    /// Criteria that are not met; `None`: unknown, as the generator missed its schedule.
    failures: Option<Vec<&'static str>>,
}

/// Runs the configuration test of each service, then the performance test of all services.
///
/// # Errors
/// If a trial cannot run, or if the test is stopped.
pub fn run(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    settings.check(rig)?;
    let mut rows = Vec::new();
    for (i, service) in settings.service.iter().enumerate() {
        for step in service.steps(settings) {
            let label = format!("{}, {}", service.stream, step.name);
            let one = [(i, step)];
            rows.extend(trial(settings, label, &one, settings.step_s, bench)?);
        }
    }
    if settings.performance_s > 0.0 {
        let step = |bps| Step { name: "performance".into(), bps, kind: Kind::Performance };
        let services = settings.service.iter().enumerate();
        let all: Vec<_> = services.map(|(i, service)| (i, step(service.cir_bps))).collect();
        let label = "performance, all services".into();
        rows.extend(trial(settings, label, &all, settings.performance_s, bench)?);
    }
    outcome::report(settings, &rows, outcome);
    Ok(())
}

fn trial(
    settings: &Settings,
    label: String,
    steps: &[(usize, Step)],
    duration_s: f64,
    bench: &mut Bench<'_>,
) -> Result<Vec<Row>, MethodError> {
    let lane = |(i, step): &(usize, Step)| settings.service[*i].lane(step.bps);
    let lanes = steps.iter().map(lane).collect();
    let seconds = steps.iter().any(|(_, step)| step.kind == Kind::Performance);
    let measured = bench.trial(Trial { label, lanes, duration_s, seconds, ..Trial::default() })?;
    let row = |((i, step), lane): (&(usize, Step), &LaneMeasured)| {
        row(settings, *i, step, lane, duration_s, measured.kept())
    };
    Ok(steps.iter().zip(&measured.lanes).map(row).collect())
}

fn row(
    settings: &Settings,
    i: usize,
    step: &Step,
    lane: &LaneMeasured,
    duration_s: f64,
    kept: bool,
) -> Row {
    let service = &settings.service[i];
    let performance = step.kind == Kind::Performance && !lane.seconds.is_empty();
    let availability = performance.then(|| Availability::of(&lane.seconds));
    // Y.1563 counts loss only in available time.
    let (sent, lost) = match availability {
        Some(found) if found.available < found.total => (found.sent, found.lost),
        _ => (lane.sent, lane.lost),
    };
    let mut row = Row {
        service: i,
        step: step.clone(),
        ir_bps: lane.received as f64 * 8.0 * f64::from(service.frame_size) / duration_s,
        flr: if sent == 0 { 1.0 } else { lost as f64 / sent as f64 },
        lost,
        delay: lane.delay.map(|delay| (delay.min as f64, delay.mean, delay.max as f64)),
        bound_ns: lane.delay_bound_ns.unwrap_or(0) as f64,
        availability,
        failures: None,
    };
    row.failures = kept.then(|| failures(settings, service, &row));
    row
}

/// Criteria that are not met.
fn failures(settings: &Settings, service: &Service, row: &Row) -> Vec<&'static str> {
    // The end of the trial may cut off one frame.
    let rounding = 1.0 - 1e-6;
    if row.step.kind == Kind::Excess {
        let least = service.cir_bps * (1.0 - service.flr) * rounding;
        let most = (service.cir_bps + service.eir_bps) * (1.0 + settings.margin);
        let rules =
            [(row.ir_bps < least, "IR below CIR"), (row.ir_bps > most, "IR above CIR + EIR")];
        return broken(&rules);
    }
    let above = |limit_ms: Option<f64>, found_ns: Option<f64>| {
        // If no frame arrived, there is no delay to judge, and the loss criterion fails.
        limit_ms.zip(found_ns).is_some_and(|(limit, found)| found > limit * 1e6)
    };
    // With separate clocks, a criterion is met only if it holds for the highest possible delay.
    let highest = row.delay.map(|(.., max)| max + row.bound_ns);
    let variation = row.delay.map(|(min, _, max)| max - min);
    let available = row.availability.map_or(1.0, |found| found.ratio());
    broken(&[
        (row.flr > service.flr, "FLR"),
        (above(service.ftd_ms, highest), "FTD"),
        (above(service.fdv_ms, variation), "FDV"),
        (available < service.availability, "AVAIL"),
    ])
}

fn broken(rules: &[(bool, &'static str)]) -> Vec<&'static str> {
    rules.iter().filter(|(broken, _)| *broken).map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests;
