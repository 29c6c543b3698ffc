//! Compiles `after` in a profile to dependencies between parts of the plan.

use std::collections::BTreeMap;

use squall_profile::{Diagnostic, Flows, Profile};

use crate::{PlanFlows, PlanReplay};

/// A part of a plan that may wait for another, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    Stream(usize),
    Replay(usize),
    /// A template in the load.
    Template(usize),
}

/// When all of `of` have ended, all of `then` begin, each after its own delay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct After {
    pub of: Vec<Part>,
    pub then: Vec<Part>,
}

/// Keeps the dependencies of parts that begin on ports of this node. Returns whether one of these
/// parts waits for a part on another node, whose end is unknown here.
pub(crate) fn keep_here(
    afters: &mut Vec<After>,
    profile: &Profile,
    replays: &[PlanReplay],
    flows: Option<&PlanFlows>,
    here: impl Fn(usize) -> bool,
) -> bool {
    let ports = |part: &Part| -> Vec<usize> {
        match part {
            Part::Stream(i) => vec![profile.streams[*i].port],
            Part::Replay(i) => replays[*i].ports.clone(),
            Part::Template(number) => {
                let of = flows.map(|flows| flows.load.templates[*number].pair);
                let clients = |flows: &Flows| flows.ends(u16::from(of?) + 1).0;
                profile.flows.iter().filter_map(clients).collect()
            }
        }
    };
    afters.retain(|after| after.then.iter().any(|part| ports(part).iter().any(|&p| here(p))));
    afters.iter().flat_map(|after| &after.of).any(|part| ports(part).iter().any(|&p| !here(p)))
}

/// Compiles the dependencies. Attacks are replays with the attacks' names.
pub(crate) fn compile(
    profile: &Profile,
    replays: &[PlanReplay],
    flows: Option<&PlanFlows>,
) -> Result<Vec<After>, Vec<Diagnostic>> {
    // A mix consists of several templates.
    let parts = |part: squall_profile::Part| -> Vec<Part> {
        match part {
            squall_profile::Part::Stream(i) => vec![Part::Stream(i)],
            squall_profile::Part::Replay(i) => vec![Part::Replay(i)],
            squall_profile::Part::Template(i) => {
                let of = flows.iter().flat_map(|flows| flows.of_profile.iter().enumerate());
                of.filter(|(_, of)| **of == i).map(|(number, _)| Part::Template(number)).collect()
            }
            squall_profile::Part::Attack(i) => {
                let attacks = replays.iter().enumerate().skip(profile.replays.len());
                let found = attacks.filter(|(_, one)| one.name == profile.attacks[i].name);
                found.map(|(number, _)| Part::Replay(number)).collect()
            }
        }
    };
    let mut links: BTreeMap<squall_profile::Part, After> = BTreeMap::new();
    for after in profile.afters()? {
        let link = links.entry(after.of).or_default();
        link.of = parts(after.of);
        link.then.extend(parts(after.part));
    }
    Ok(links.into_values().collect())
}
