//! The part that all comparisons share: tools under the same conditions over several rounds, and
//! the results.

use std::time::{Instant, SystemTime};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall::{Error, report::Host};
use squall_report::render::page;

use crate::design::{Design, Turn};

// `S` is a step, `M` the method, `X` the part specific to a kind of comparison. The schema takes
// the comment below.
/// A completed comparison, or the part that was done before an interruption.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Comparison")]
pub struct Compared<M, S, X> {
    /// Version of this structure: `squall-comparison/1` or `squall-generators/1`.
    pub schema: String,
    /// The command line.
    pub command: String,
    pub squall_version: String,
    /// RFC 3339, UTC.
    pub started: String,
    pub duration_s: f64,
    pub host: Host,
    /// Settings of each step.
    pub method: M,
    pub tools: Vec<ToolInfo>,
    #[serde(flatten)]
    pub own: X,
    /// All tools under all conditions.
    pub steps: Vec<S>,
    /// The comparison was interrupted; only measurements made before that are included.
    pub interrupted: bool,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolInfo {
    pub name: String,
    /// Command line, with the placeholders `{interface}`, `{file}` and `{report}`.
    pub command: String,
    /// Version that the tool reports.
    pub version: Option<String>,
    /// Why it was not compared.
    pub why_not: Option<String>,
    /// It takes the frames away from the host, so no other program sees them.
    pub takes_frames: bool,
}

impl ToolInfo {
    /// Records that the tool needs addresses and the lab has none, unless it is already excluded
    /// for another reason.
    pub fn lacks_addresses(&mut self, why: &str) {
        self.why_not.get_or_insert_with(|| format!("it needs addresses: {why}"));
    }
}

/// The usable tools. `infos` are those of `tools`, in the same order.
///
/// # Errors
///
/// None is usable.
pub fn usable<T>(tools: impl IntoIterator<Item = T>, infos: &[ToolInfo]) -> Result<Vec<T>, Error> {
    let pairs = tools.into_iter().zip(infos);
    let usable: Vec<T> =
        pairs.filter(|(_, info)| info.why_not.is_none()).map(|(tool, _)| tool).collect();
    if usable.is_empty() {
        let why: Vec<_> = infos.iter().filter_map(|tool| tool.why_not.clone()).collect();
        let text = format!("none of the tools can be compared\n  {}", why.join("\n  "));
        return Err(Error::Environment(text));
    }
    Ok(usable)
}

/// Variation of a figure over the rounds. Quartiles are interpolated linearly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    pub min: f64,
    pub p25: f64,
    pub median: f64,
    pub p75: f64,
    pub max: f64,
}

impl Spread {
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let [min, p25, median, p75, max] = page::five_numbers(&values.collect::<Vec<_>>())?;
        Some(Self { min, p25, median, p75, max })
    }
}

/// A tool under one condition at one rate, over all rounds.
pub trait Measured {
    type Round: Repeated;

    fn rounds(&self) -> &Vec<Self::Round>;
    fn rounds_mut(&mut self) -> &mut Vec<Self::Round>;

    /// Computes the summary over the rounds.
    fn sum_up(&mut self);
}

/// One run of a tool.
pub trait Repeated {
    /// A run that failed, with the reason.
    fn failure(why: String) -> Self;

    /// Why the round does not count.
    fn failed(&self) -> Option<&str>;

    /// A wrong count reported by the tool.
    fn wrong(&self) -> Option<&str>;

    /// The measured values, in one line.
    fn measured(&self) -> String;

    /// The outcome, in one line.
    fn in_a_line(&self) -> String {
        self.failed().map_or_else(|| self.measured(), |why| format!("failed: {why}"))
    }
}

impl<M: Default, S: Measured + Default, X: Default> Compared<M, S, X> {
    /// A new comparison, and its start time.
    pub fn begin(schema: &str, command: &str) -> (Self, Instant) {
        let result = Self {
            schema: schema.into(),
            command: command.into(),
            squall_version: env!("CARGO_PKG_VERSION").into(),
            started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            host: squall_machine::host(),
            ..Self::default()
        };
        (result, Instant::now())
    }

    /// The usable tools.
    ///
    /// # Errors
    ///
    /// None is usable.
    pub fn usable<'t, T>(&self, tools: &'t [T]) -> Result<Vec<&'t T>, Error> {
        usable(tools, &self.tools)
    }

    pub fn end(&mut self, began: Instant, interrupted: bool) {
        self.interrupted = interrupted;
        self.duration_s = began.elapsed().as_secs_f64();
    }
}

impl<M, S, X> Compared<M, S, X>
where
    Self: Serialize,
{
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self)
            .expect("a comparison has string keys and no custom serializers")
    }
}

/// Runs `design` over `steps`, which are in the order of [`Design::step`], until `once` returns
/// `None`, then summarizes the steps that ran.
pub fn measure<S: Measured>(
    design: Design,
    mut steps: Vec<S>,
    mut once: impl FnMut(Turn) -> Option<S::Round>,
) -> Vec<S> {
    for turn in design.turns() {
        let Some(round) = once(turn) else { break };
        steps[design.step(turn)].rounds_mut().push(round);
    }
    steps.retain(|step| !step.rounds().is_empty());
    steps.iter_mut().for_each(S::sum_up);
    steps
}

/// CPUs for the sender and for the tools: different ones if the machine has at least two.
pub fn two_cpus() -> (Option<u32>, Option<u32>) {
    let allowed = squall_machine::cpus::allowed();
    (allowed.last().copied(), allowed.first().copied())
}
