//! Compares the speed, steadiness and CPU cost of traffic generators.
//!
//! The method is that of papers on generators: each tool sends UDP at its maximum rate and at given
//! rates. The counters of the receiving interface are read every second and compared with the
//! tool's own count. The link is a veth pair in a namespace of this process. Tools take turns
//! within a round, because the speed of a machine varies over minutes.
//!
//! The input is [`GeneratorSettings`], the result [`Generators`]. The module builds no headers
//! itself: tools that need complete frames get them as a capture made by `squall`.

mod drone;
mod http;
mod model;
mod render;
pub(crate) mod run;
mod tools;
pub(crate) mod wire;

use std::path::{Path, PathBuf};

pub use model::{GENERATORS_SCHEMA, GeneratorRound, GeneratorStep, Generators, schema};
use squall::Error;
use squall_port_linux::lab::{LabOptions, enter_private};
use squall_units::{FCS_LEN, Nanos, Rate, RateUnit};
pub use tools::{DEFAULT_GENERATORS, Generator};

use crate::{
    Work,
    compared::{Repeated, measure, two_cpus},
    design::{Design, Turn},
};
use model::Method;
use run::Place;

/// The settings of a comparison.
#[derive(Clone, Debug)]
pub struct GeneratorSettings {
    pub tools: Vec<Generator>,
    /// Frame sizes, octets without FCS.
    pub sizes: Vec<u32>,
    pub steps: Vec<Rate>,
    pub rounds: u32,
    /// Duration of a step.
    pub step: Nanos,
    /// The command line, for the result.
    pub command: String,
}

/// Runs the tools with all sizes and rates in a private lab. `progress` receives a line for each
/// run; `stop` is polled.
///
/// The process moves into the network namespace of the lab and stays there, so it must have a
/// single thread.
///
/// # Errors
///
/// No lab, or no usable tool. The error of a single run is in its [`GeneratorRound`].
pub fn generators(
    settings: &GeneratorSettings,
    progress: &mut dyn FnMut(&str),
    stop: &dyn Fn() -> bool,
) -> Result<Generators, Error> {
    let (mut result, began) = Generators::begin(GENERATORS_SCHEMA, &settings.command);
    result.tools = settings.tools.iter().map(Generator::info).collect();
    let mtu = settings.sizes.iter().map(|size| size.saturating_sub(14)).max().unwrap_or(0);
    let mtu = mtu.max(1500);
    let work = Work::new()?;
    let frames = wire::captures(&settings.sizes, &work.0)?;
    let options = LabOptions { mtu, ..LabOptions::default() };
    let interfaces =
        enter_private(&options).map_err(|error| Error::Environment(error.to_string()))?;
    let addresses = wire::address(&interfaces);
    let (sender_cpu, _) = two_cpus();
    result.method =
        Method { rounds: settings.rounds, step_s: settings.step.as_secs_f64(), sender_cpu, mtu };
    result.notes.extend(addresses.as_ref().err().cloned());
    for (tool, info) in settings.tools.iter().zip(&mut result.tools) {
        if info.why_not.is_none() && tool.needs_addresses() && addresses.is_err() {
            info.why_not = Some("it needs addresses, which the lab could not be given".into());
        }
    }
    let tools = result.usable(&settings.tools)?;
    let place = Place {
        interfaces,
        work: work.0.clone(),
        cpu: sender_cpu,
        step: settings.step,
        limits: None,
        attacks: attacks(&settings.tools, &work.0),
    };
    let (sizes, rates) = (&settings.sizes, &settings.steps);
    let design = Design {
        data: sizes.len(),
        write: 1,
        rates: rates.len(),
        tools: tools.len(),
        rounds: settings.rounds as usize,
    };
    let cells = sizes.iter().flat_map(|size| rates.iter().map(move |rate| (*size, *rate)));
    let steps = cells.flat_map(|(size, rate)| tools.iter().map(move |tool| step(tool, size, rate)));
    result.steps = measure(design, steps.collect(), |turn: Turn| {
        if stop() {
            return None;
        }
        let (tool, size, rate) = (tools[turn.tool], sizes[turn.data], rates[turn.rate]);
        let round = place.once(tool, &frames[turn.data], asked_pps(size, rate), stop, &mut || ());
        if stop() {
            return None;
        }
        let with_fcs = size + FCS_LEN;
        progress(&format!("{}  {with_fcs}  {rate}:  {}", tool.name, round.in_a_line()));
        Some(round)
    });
    result.end(began, stop());
    Ok(result)
}

/// Writes a capture of attacks to `folder`, if one of the tools needs it.
///
/// # Errors
/// Why there is none, as text.
pub(crate) fn attacks(tools: &[Generator], folder: &Path) -> Result<PathBuf, String> {
    let needs = tools.iter().find(|tool| tool.needs_attacks());
    needs.map_or_else(|| Err("no tool needs attacks".into()), |tool| tool.attacks(folder))
}

/// The requested frames per second; `None` for `max`.
fn asked_pps(octets: u32, rate: Rate) -> Option<f64> {
    match rate.unit {
        RateUnit::Max => None,
        _ => rate.as_pps(f64::from(octets + FCS_LEN), None),
    }
}

fn step(tool: &Generator, octets: u32, rate: Rate) -> GeneratorStep {
    GeneratorStep {
        tool: tool.name.clone(),
        octets,
        asked: rate.to_string(),
        asked_pps: asked_pps(octets, rate),
        ..GeneratorStep::default()
    }
}
