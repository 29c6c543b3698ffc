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
pub mod render;
mod run;
mod tools;
mod wire;

use std::time::{Instant, SystemTime};

pub use model::{GENERATORS_SCHEMA, GeneratorRound, GeneratorStep, Generators, schema};
use squall::Error;
use squall_port_linux::lab::{LabOptions, enter_private};
use squall_units::{FCS_LEN, Nanos, Rate, RateUnit};
pub use tools::{DEFAULT_GENERATORS, Generator};

use crate::{Work, two_cpus};
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
    let started = (Instant::now(), SystemTime::now());
    let infos: Vec<_> = settings.tools.iter().map(Generator::info).collect();
    let mtu = settings.sizes.iter().map(|size| size.saturating_sub(14)).max().unwrap_or(0);
    let mtu = mtu.max(1500);
    let work = Work::new()?;
    let frames = wire::captures(&settings.sizes, &work.0)?;
    let options = LabOptions { mtu, ..LabOptions::default() };
    let interfaces =
        enter_private(&options).map_err(|error| Error::Environment(error.to_string()))?;
    let addresses = wire::address(&interfaces);
    let (sender_cpu, _) = two_cpus();
    let mut result = Generators {
        schema: GENERATORS_SCHEMA.into(),
        command: settings.command.clone(),
        squall_version: env!("CARGO_PKG_VERSION").into(),
        started: humantime::format_rfc3339_seconds(started.1).to_string(),
        host: squall_machine::host(),
        method: Method {
            rounds: settings.rounds,
            step_s: settings.step.as_secs_f64(),
            sender_cpu,
            mtu,
        },
        tools: infos,
        ..Generators::default()
    };
    result.notes.extend(addresses.as_ref().err().cloned());
    for (tool, info) in settings.tools.iter().zip(&mut result.tools) {
        if info.why_not.is_none() && tool.needs_addresses() && addresses.is_err() {
            info.why_not = Some("it needs addresses, which the lab could not be given".into());
        }
    }
    let usable = settings.tools.iter().zip(&result.tools);
    let tools: Vec<&Generator> =
        usable.filter(|(_, info)| info.why_not.is_none()).map(|(tool, _)| tool).collect();
    if tools.is_empty() {
        let why: Vec<_> = result.tools.iter().filter_map(|tool| tool.why_not.clone()).collect();
        return Err(Error::Environment(format!(
            "none of the generators can be compared\n  {}",
            why.join("\n  ")
        )));
    }
    let place = Place { interfaces, work: work.0.clone(), cpu: sender_cpu, step: settings.step };
    for (size, frame) in settings.sizes.iter().zip(&frames) {
        for rate in &settings.steps {
            let mut steps: Vec<_> = tools.iter().map(|t| step(t, *size, *rate)).collect();
            for round in 0..settings.rounds as usize {
                // Whoever comes first is another one each time.
                for turn in 0..tools.len() {
                    let i = (turn + round) % tools.len();
                    if stop() {
                        break;
                    }
                    let asked = steps[i].asked_pps;
                    let outcome = place.once(tools[i], frame, asked, stop);
                    if stop() {
                        break;
                    }
                    let (tool, asked) = (&tools[i].name, &steps[i].asked);
                    progress(&format!("{tool}  {size}  {asked}:  {}", outcome.in_a_line()));
                    steps[i].rounds.push(outcome);
                }
            }
            steps.retain(|step| !step.rounds.is_empty());
            steps.iter_mut().for_each(GeneratorStep::sum_up);
            result.steps.extend(steps);
        }
    }
    result.interrupted = stop();
    result.duration_s = started.0.elapsed().as_secs_f64();
    Ok(result)
}

fn step(tool: &Generator, octets: u32, rate: Rate) -> GeneratorStep {
    GeneratorStep {
        tool: tool.name.clone(),
        octets,
        asked: rate.to_string(),
        asked_pps: match rate.unit {
            RateUnit::Max => None,
            _ => rate.as_pps(f64::from(octets + FCS_LEN), None),
        },
        ..GeneratorStep::default()
    }
}
