//! Used in place of `squall-attacking` if the feature `attacks` is off: refuses profiles with
//! attacks, and does nothing else.

use std::{collections::HashMap, convert::Infallible, path::Path};

use squall_engine::{HostedConversation, Outcome, Take};
use squall_flows::{FailedConversation, HostedFlow, Served};
use squall_plan::{LiveFlows, PlanFlows, PlanReplay};
use squall_profile::{Attack, Diagnostics, ErrorCollector, Port, Profile};
use squall_report::report::attack::AttackReport;
use squall_units::{Division, Nanos};

/// The same as in `squall-attacking`.
#[derive(Debug)]
pub enum Error {
    Input(Diagnostics),
    Usage(String),
    Environment(String),
}

/// Prepared attacks, of which there can be none.
#[derive(Clone, Debug)]
pub enum Prepared {}

/// Received attacks, of which there can be none.
pub enum PassageChecker {}

/// A label file, of which there can be none.
pub enum LabelFile {}

const WHY: &str = "this build does not include attacks";
const HINT: &str =
    "try a build with the feature: cargo build --release -p squall-cli --features attacks";

/// Checks that `profile` has no attacks.
///
/// # Errors
/// [`Error::Input`] with the position of each attack in `profile`.
pub fn prepare(
    profile: &Profile,
    _: Division,
    _: &(dyn Fn(usize, usize) -> bool + Sync),
) -> Result<Option<Prepared>, Error> {
    let mut mistakes = ErrorCollector::of(profile);
    for attack in &profile.attacks {
        mistakes.at(attack.at, &format!("attack {:?}: {WHY}", attack.name), HINT);
    }
    mistakes.check().map(|()| None).map_err(Error::Input)
}

/// Always fails.
///
/// # Errors
/// Always, because there are no labels to write.
pub fn create(labels: &Path) -> Result<LabelFile, Error> {
    Err(Error::Usage(format!("cannot write labels to {}: {WHY}\n  {HINT}", labels.display())))
}

impl Prepared {
    pub fn settle(&mut self, _: &mut [Port]) {
        match *self {}
    }

    pub fn replaying(&self) -> Vec<PlanReplay> {
        match *self {}
    }

    pub fn left<'a>(
        &self,
        _: impl Fn(&str, Nanos) -> Option<Nanos>,
        _: impl Fn(&str) -> Option<&'a HashMap<u64, HostedConversation>>,
        _: (Option<&PlanFlows>, &[HostedFlow]),
    ) -> &Self {
        match *self {}
    }

    pub fn speaker<'a>(&self, _: &'a Profile) -> Option<&'a Attack> {
        match *self {}
    }

    pub fn live_flows<'a>(&self, _: &'a Profile) -> Option<LiveFlows<'a>> {
        match *self {}
    }

    pub fn summary(&self) -> String {
        match *self {}
    }

    pub fn listen(&self, _: &mut [Take], _: impl Fn(usize) -> bool) -> Option<PassageChecker> {
        match *self {}
    }

    pub fn reports(
        &self,
        _: Option<&PlanFlows>,
        _: (&[FailedConversation], &Served),
        _: Option<&PassageChecker>,
        _: Nanos,
        _: bool,
    ) -> Vec<AttackReport> {
        match *self {}
    }

    pub fn sent_until(&self, _: Nanos) -> Vec<Infallible> {
        match *self {}
    }
}

impl PassageChecker {
    pub fn collect(&mut self, _: &mut Outcome) {
        match *self {}
    }
}

impl LabelFile {
    pub fn write(self, _: &[Infallible], _: Nanos) -> Result<(), Error> {
        match self {}
    }
}
