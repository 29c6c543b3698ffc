//! Capacity of stateful devices: connections per second, concurrent connections, goodput, and size
//! of the flow table, each found by a search.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_report::render::human::si;

use crate::{
    bench::{Bench, MethodError},
    connections::{Search, Searched, why},
    outcome::{Better, Figure, Limit, Outcome, Plot, Series, Status, Table},
    rig::Rig,
    settings::{WEEK, above_0, at_least, at_most, settings, some, within},
    trial::{FlowLoad, FlowsMeasured, Http, Kept, Trial},
};

/// The quantity to search for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Of {
    /// Connections per second that all complete
    Cps,
    /// Connections that are open at once
    Concurrent,
    /// Application data per second
    Goodput,
    /// Flows that the device remembers, of TCP or UDP
    Table,
}

/// The transport of the flows that fill a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

settings! {
    "Capacity":
    /// Search for these figures
    of: Vec<Of> = vec![Of::Cps, Of::Concurrent, Of::Goodput]
        => each("WHAT", value_enum), in some("cps");
    /// The most connections per second to try
    max_cps: f64 = 10_000.0 => one("N"), in above_0(1e9);
    /// The most connections at once to try
    max_concurrent: u64 = 100_000 => one("N"), in above_0(1e9);
    /// Connections per second while many are opened
    opening_cps: f64 = 5_000.0 => one("N"), in above_0(1e9);
    /// The most flows of the table to try
    max_table: u64 = 60_000
        => one("N", value_parser = clap::value_parser!(u64).range(1..=100_000_000));
    /// Flows per second while the table is filled
    table_cps: f64 = 10_000.0 => one("N"), in above_0(1e9);
    /// Flows that fill the table
    table_protocol: Protocol = Protocol::Udp => one("PROTOCOL", value_enum);
    /// Octets of a response, of connections per second and at once
    object_octets: u64 = 1_000 => one("OCTETS");
    /// Octets of a response, of goodput
    large_octets: u64 = 1_000_000 => one("OCTETS");
    /// Connections over TLS
    tls: bool = false => flag();
    /// Ratio of failed connections up to which a trial passes
    failed_tolerance: f64 = 0.0 => one("RATIO"), in within(0.0..=0.999);
    /// Length of a trial at full load, seconds
    trial_s: f64 = 30.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(2.0), in above_0(WEEK);
    /// Time of the rise to full load, seconds
    ramp_s: f64 = 5.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(0.5), in within(0.0..=WEEK);
    /// Wait after a trial that failed, seconds, so that the device forgets its flows
    recovery_s: f64 = 10.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(1.0), in within(0.0..=WEEK);
    /// End the search when less than this part of the figure is unknown
    resolution: f64 = 0.01 => one("RATIO"), quick at_least(0.05), in within(1e-5..=0.5);
}

impl Settings {
    /// Checks that all settings are in range.
    ///
    /// # Errors
    /// If a setting is out of range.
    pub fn check(&self) -> Result<(), MethodError> {
        self.limits()
    }

    fn http(&self, object_octets: u64) -> Http {
        Http { object_octets, requests: 1, tls: self.tls, ..Http::default() }
    }

    fn at(&self, cps: f64, object_octets: u64, label: String) -> Trial {
        let load = FlowLoad {
            cps,
            http: Some(self.http(object_octets)),
            ramp_up_s: self.ramp_s,
            ..FlowLoad::default()
        };
        let duration_s = self.ramp_s + self.trial_s;
        Trial { label, duration_s, flows: Some(load), ..Trial::default() }
    }

    /// A trial of flows that the device must keep in its table: each carries data at its start, and
    /// again once all others have started.
    fn kept(&self, flows: u64) -> Trial {
        let opening_s = flows as f64 / self.table_cps;
        let wait_s = opening_s + 0.1;
        let kept = Kept { udp: self.table_protocol == Protocol::Udp, wait_s };
        let load = FlowLoad {
            cps: self.table_cps,
            limit: Some(flows),
            kept: Some(kept),
            ..FlowLoad::default()
        };
        let label = format!("table, {flows} flows");
        let duration_s = opening_s + wait_s + 0.1;
        Trial { label, duration_s, flows: Some(load), ..Trial::default() }
    }

    /// A trial that opens connections at `opening_cps`, each of which sends another request once
    /// all are open.
    fn held(&self, connections: u64, label: String) -> Trial {
        let opening_s = connections as f64 / self.opening_cps;
        let think_s = opening_s + self.trial_s / 2.0;
        let load = FlowLoad {
            cps: self.opening_cps,
            limit: Some(connections),
            http: Some(Http { requests: 2, think_s, ..self.http(self.object_octets) }),
            ..FlowLoad::default()
        };
        let duration_s = 2.0 * opening_s + self.trial_s;
        Trial { label, duration_s, flows: Some(load), ..Trial::default() }
    }
}

/// Runs the searches of `settings`, in their order.
///
/// # Errors
/// If a trial cannot run, or if the test is stopped.
pub fn run(
    settings: &Settings,
    _rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    settings.check()?;
    let mut table = Table::new("Capacity", &["", "Found", "First that failed", "Limit"]);
    for of in &settings.of {
        match of {
            Of::Cps => cps(settings, bench, outcome, &mut table)?,
            Of::Concurrent => concurrent(settings, bench, outcome, &mut table)?,
            Of::Goodput => goodput(settings, bench, outcome, &mut table)?,
            Of::Table => flow_table(settings, bench, outcome, &mut table)?,
        }
    }
    outcome.tables.push(table);
    Ok(())
}

fn search(
    settings: &Settings,
    most: f64,
    bench: &mut Bench<'_>,
    keeps_up: bool,
    trial: &dyn Fn(f64) -> Trial,
) -> Result<Searched, MethodError> {
    let passes = |cps: f64, flows: &FlowsMeasured| {
        let all = flows.failed_ratio() <= settings.failed_tolerance;
        // Connections that wait in a queue and complete only after the last one was opened do not
        // count as carried at that rate.
        let few = 2.0 / (cps * settings.trial_s);
        all && !(keeps_up && flows.completed_cps < cps * (1.0 - settings.resolution.max(few)))
    };
    let (resolution, recovery_s) = (settings.resolution, settings.recovery_s);
    Search { most, resolution, recovery_s, trial, passes: &passes }.run(bench)
}

fn named(limit: Limit) -> &'static str {
    match limit {
        Limit::Device => "device",
        Limit::Offered | Limit::Trial => "the most that was to be tried",
        Limit::Generator => "generator",
    }
}

/// Adds the figure and its table row.
fn report(
    name: &str,
    unit: &str,
    value: f64,
    searched: &Searched,
    resolution: f64,
    outcome: &mut Outcome,
    table: &mut Table,
) {
    let limit = searched.limit();
    outcome.figures.push(Figure {
        name: name.into(),
        value,
        unit: unit.into(),
        better: Better::Higher,
        uncertainty: value * resolution,
        limit,
    });
    let shown = if unit == "bit/s" { "b/s" } else { unit };
    let found = match limit {
        Limit::Device => si(value, shown),
        limit => format!("{} {}", limit.mark(), si(value, shown)),
    };
    outcome.verdict.text.push(format!("{name}: {found}"));
    table.rows.push(vec![name.into(), found, searched.failure.clone(), named(limit).into()]);
    outcome.plots.push(Plot::new(
        &format!("{name}: failed connections"),
        &format!("Load, {shown}"),
        "Failed, %",
        vec![Series { label: "failed".into(), points: searched.points.clone() }],
    ));
    if value == 0.0 {
        outcome.verdict.status = Status::Failed;
        outcome.notes.push(format!("{name}: no load passed: {}", searched.failure));
    }
}

fn cps(
    settings: &Settings,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
    table: &mut Table,
) -> Result<(), MethodError> {
    let searched = search(settings, settings.max_cps, bench, true, &|cps| {
        settings.at(cps, settings.object_octets, format!("connections per second, {cps:.0}"))
    })?;
    let completed = searched.best.as_ref().map_or(0.0, |flows| flows.completed_cps);
    let found = searched.found.min(completed);
    report("cps", "connections/s", found, &searched, settings.resolution, outcome, table);
    if let Some(best) = &searched.best {
        let times = [("setup", best.setup), ("transaction", best.transaction)];
        for (name, delay) in times.iter().filter_map(|(name, delay)| Some((name, (*delay)?))) {
            outcome.figures.push(Figure::new(
                format!("cps.{name}.p99"),
                delay.p99 as f64,
                "ns",
                Better::Lower,
                delay.p99 as f64 * 0.1,
                Limit::Device,
            ));
        }
    }
    Ok(())
}

fn concurrent(
    settings: &Settings,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
    table: &mut Table,
) -> Result<(), MethodError> {
    let most = settings.max_concurrent as f64;
    let searched = search(settings, most, bench, false, &|connections| {
        let connections = connections.round().max(1.0) as u64;
        settings.held(connections, format!("connections at once, {connections}"))
    })?;
    // The measured peak, not the number requested.
    let found = searched.best.as_ref().map_or(0.0, |flows| flows.peak_active as f64);
    report("concurrent", "connections", found, &searched, settings.resolution, outcome, table);
    Ok(())
}

fn goodput(
    settings: &Settings,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
    table: &mut Table,
) -> Result<(), MethodError> {
    let searched = search(settings, settings.max_cps, bench, true, &|cps| {
        settings.at(cps, settings.large_octets, format!("goodput, {cps:.1} connections/s"))
    })?;
    let found = searched.best.as_ref().map_or(0.0, |flows| flows.goodput_bps);
    report("goodput", "bit/s", found, &searched, settings.resolution, outcome, table);
    Ok(())
}

/// Tries the highest number of flows first; if the device drops some, searches for the number that
/// it keeps.
fn flow_table(
    settings: &Settings,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
    table: &mut Table,
) -> Result<(), MethodError> {
    let (mut passed, mut failed, mut generator) = (0, settings.max_table + 1, false);
    let mut next = settings.max_table;
    let (mut failure, mut guessed) = (String::new(), false);
    while failed - passed > 1 {
        let measured = bench.trial(settings.kept(next))?;
        let flows = measured.flows.clone().unwrap_or_default();
        let came = flows.completed;
        // This includes trials with a missed schedule, because the device kept all flows.
        if came >= next {
            passed = next;
            let half = passed + (failed - passed) / 2;
            next = if std::mem::take(&mut guessed) { passed + 1 } else { half }.min(failed - 1);
            continue;
        }
        failed = next;
        generator = !measured.kept();
        failure = format!("{came} of {next} were kept: {}", why(&flows));
        bench.settle(settings.recovery_s)?;
        // The next guess is the number of flows that the device kept. If the generator missed its
        // schedule, it may itself have lost the others, and the guess would fall by one from trial
        // to trial.
        let guess = Some(came).filter(|came| !generator && (passed + 1..failed).contains(came));
        next = guess.unwrap_or(passed + (failed - passed) / 2).max(1);
        guessed = guess.is_some();
    }
    let limit = match failed {
        _ if generator => Limit::Generator,
        _ if passed == settings.max_table => Limit::Offered,
        _ => Limit::Device,
    };
    outcome.figures.push(Figure {
        name: "table".into(),
        value: passed as f64,
        unit: "flows".into(),
        better: Better::Higher,
        uncertainty: 1.0,
        limit,
    });
    let found = format!("{} {passed}", limit.mark()).trim().to_owned();
    outcome
        .verdict
        .text
        .push(format!("table: {found} flows of {}", settings.table_protocol.name()));
    if passed == 0 && limit == Limit::Device {
        outcome.verdict.status = Status::Failed;
        outcome.notes.push(format!("table: no flow was kept: {failure}"));
    }
    table.rows.push(vec!["table".into(), found, failure, named(limit).into()]);
    Ok(())
}
