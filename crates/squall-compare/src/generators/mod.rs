//! Traffic generators beside each other: how fast each sends, how steadily, and what it costs.
//!
//! The method is that of the papers that compare generators: each tool sends UDP at maximum rate
//! and at given rates, the interface that receives is read every second, and the tool's own count
//! is compared with what arrived. Here the link is a veth pair in a namespace of this process.
//! Tools take turns within a round, since machines have slow minutes.
//!
//! What goes in are [`GeneratorSettings`], what comes out is a [`Generators`]. Knows no headers: a
//! tool that wants its frames ready gets them from `squall` as a capture.

mod model;
mod render;
mod run;
mod tools;
mod wire;

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

/// What is to be compared.
#[derive(Clone, Debug)]
pub struct GeneratorSettings {
    pub tools: Vec<Generator>,
    /// Octets without FCS.
    pub sizes: Vec<u32>,
    pub steps: Vec<Rate>,
    pub rounds: u32,
    /// How long a step is measured.
    pub step: Nanos,
    /// For the result.
    pub command: String,
}

/// Runs tools over sizes and rates, in a lab of its own; `progress` gets a line for each run, and
/// `stop` is asked often.
///
/// The process moves into the lab's namespace and stays there. It must have one thread.
///
/// # Errors
/// No lab, or none of the tools; what fails of a single run is in its [`GeneratorRound`].
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
    let place = Place { interfaces, work: work.0.clone(), cpu: sender_cpu, step: settings.step };
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
        let round = place.once(tool, &frames[turn.data], asked_pps(size, rate), stop);
        if stop() {
            return None;
        }
        progress(&format!("{}  {size}  {rate}:  {}", tool.name, round.in_a_line()));
        Some(round)
    });
    result.end(began, stop());
    Ok(result)
}

/// Absent for `max`.
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
