//! RFC 9411: network security devices (next-generation firewalls, intrusion prevention), with HTTP
//! and HTTPS.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_report::render::human::{ns, si};

use crate::{
    bench::{Bench, MethodError},
    connections::{Search, Searched},
    outcome::{Better, Figure, Limit, Outcome, Status, Table},
    rig::Rig,
    settings::{WEEK, above_0, at_least, at_most, first, settings, some, within},
    trial::{Delay, FlowLoad, FlowsMeasured, Http, Trial},
};

/// The tests of §7, with their sections: HTTP (7.2 to 7.5) or HTTPS (7.6 to 7.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Test {
    /// §7.1: throughput with the application mix of the profile
    Mix,
    /// §7.2, §7.6: connections per second
    Cps,
    /// §7.3, §7.7: throughput
    Throughput,
    /// §7.4, §7.8: transaction latency
    Latency,
    /// §7.5, §7.9: concurrent connections
    Concurrent,
}

settings! {
    "RFC 9411":
    /// Tests to run
    tests: Vec<Test> = vec![Test::Cps, Test::Throughput, Test::Latency, Test::Concurrent]
        => each("TEST", value_enum), in some("cps");
    /// Test with HTTPS instead of HTTP
    https: bool = false => flag();
    /// Response sizes, octets; the throughput test repeats those from 16 KB on 10 times over a
    /// connection
    object_octets: Vec<u64> = vec![1_000, 2_000, 4_000, 16_000, 64_000, 256_000]
        => each("OCTETS"), quick first(2), in some("1000,16000");
    /// The target: the most connections per second
    max_cps: f64 = 10_000.0 => one("N"), in above_0(1e9);
    /// The target: the most connections at once
    max_concurrent: u64 = 100_000 => one("N"), in above_0(1e9);
    /// Length of the sustain phase, seconds (RFC 9411 §4.3.4: at least 300)
    sustain_s: f64 = 300.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(2.0), in above_0(WEEK);
    /// Length of the ramp up, and of the ramp down, seconds
    ramp_s: f64 = 30.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(0.5), in within(0.0..=WEEK);
    /// Wait after a trial that failed, seconds
    recovery_s: f64 = 10.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(1.0), in within(0.0..=WEEK);
    /// End a search when less than this part of the figure is unknown
    resolution: f64 = 0.02 => one("RATIO"), quick at_least(0.1), in within(1e-4..=0.5);
}

/// Validity criteria of §7.2.3.4 and the corresponding sections: the limit of the ratio of failed
/// and terminated transactions, and that of the deviation of the rate in the sustain phase (5 %).
const FAILED: f64 = 0.000_01;
const DEVIATION: f64 = 0.05;
/// §7.2.4: the first run is at 10 % of the target rate.
const FIRST: f64 = 0.1;
/// Transactions per connection (§7.3.3.2).
const TRANSACTIONS: u32 = 10;

impl Settings {
    /// Checks that all settings are in range.
    ///
    /// # Errors
    /// If a setting is out of range.
    pub fn check(&self) -> Result<(), MethodError> {
        self.limits()
    }

    fn trial(&self, label: String, cps: f64, http: Option<Http>) -> Trial {
        let load = FlowLoad {
            cps,
            http,
            ramp_up_s: self.ramp_s,
            ramp_down_s: self.ramp_s,
            ..FlowLoad::default()
        };
        let duration_s = self.sustain_s + 2.0 * self.ramp_s;
        Trial { label, duration_s, flows: Some(load), ..Trial::default() }
    }

    fn http(&self, object_octets: u64, requests: u32) -> Http {
        Http { object_octets, requests, tls: self.https, ..Http::default() }
    }

    /// The sizes up to 64 KB, which the connection test uses (§7.2.3.2).
    fn small(&self) -> impl Iterator<Item = u64> {
        self.object_octets.iter().copied().filter(|octets| *octets <= 64_000)
    }

    fn protocol(&self) -> &'static str {
        if self.https { "HTTPS" } else { "HTTP" }
    }
}

/// Runs the tests of `settings`, in their order.
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
    let columns = [
        "Test",
        "Response",
        "Connections/s",
        "Transactions/s",
        "Throughput",
        "First byte, mean",
        "Last byte, mean",
        "Last byte, max",
        "",
    ];
    let mut table = Table::new("Key performance indicators (RFC 9411 §6.3)", &columns);
    for test in &settings.tests {
        let mut find = |one: Indicator<'_>| one.find(settings, bench, outcome, &mut table);
        let sizes = settings.object_octets.iter();
        match test {
            Test::Mix => find(mix())?,
            Test::Cps => settings.small().try_for_each(|octets| find(cps(settings, octets)))?,
            Test::Throughput => {
                sizes.copied().try_for_each(|octets| find(throughput(settings, octets)))?
            }
            Test::Latency => latency(settings, bench, outcome, &mut table)?,
            Test::Concurrent => concurrent(settings, bench, outcome, &mut table)?,
        }
    }
    outcome.tables.push(table);
    Ok(())
}

/// Whether the validity criteria are met at the requested rate `asked_cps`.
fn valid(asked_cps: f64, flows: &FlowsMeasured) -> bool {
    let deviation = (flows.completed_cps - asked_cps).abs() / asked_cps;
    // At low rates, allow a deviation of one connection per second: 5 % of them can be less than
    // one.
    let few = 1.0 / asked_cps;
    flows.failed_ratio() < FAILED && deviation < DEVIATION.max(few)
}

/// The first run and the search for one kind of transaction.
fn search(
    settings: &Settings,
    what: &str,
    http: Option<Http>,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<Option<Searched>, MethodError> {
    let first = settings.max_cps * FIRST;
    let trial = |cps: f64| settings.trial(format!("{what}, {cps:.1} connections/s"), cps, http);
    let qualified = bench.trial(trial(first))?;
    let flows = qualified.flows.clone().unwrap_or_default();
    if qualified.kept() && !valid(first, &flows) {
        outcome.notes.push(format!(
            "{what}: the first run, at a tenth of the target, is not valid: {}",
            crate::connections::why(&flows)
        ));
    }
    let (most, resolution, recovery_s) =
        (settings.max_cps, settings.resolution, settings.recovery_s);
    let search = Search { most, resolution, recovery_s, trial: &trial, passes: &valid };
    let searched = search.run(bench)?;
    if searched.found == 0.0 {
        none_valid(what, &searched, outcome);
        return Ok(None);
    }
    Ok(Some(searched))
}

fn none_valid(what: &str, searched: &Searched, outcome: &mut Outcome) {
    outcome.verdict.status = Status::Failed;
    outcome.verdict.text.push(format!("{what}: no load was valid: {}", searched.failure));
}

fn row(
    test: &str,
    octets: Option<u64>,
    requests: u32,
    found: &FlowsMeasured,
    mark: &str,
) -> Vec<String> {
    let time = |delay: Option<Delay>, of: fn(Delay) -> f64| {
        delay.map_or_else(|| "-".into(), |delay| ns(of(delay)))
    };
    vec![
        test.into(),
        octets.map_or_else(|| "mix".into(), |octets| si(octets as f64, "B")),
        si(found.completed_cps, ""),
        si(found.completed_cps * f64::from(requests), ""),
        si(found.goodput_bps, "b/s"),
        time(found.first_byte, |delay| delay.mean),
        time(found.transaction, |delay| delay.mean),
        time(found.transaction, |delay| delay.max as f64),
        mark.into(),
    ]
}

/// A search for one indicator.
struct Indicator<'a> {
    /// Row label of the table.
    row: &'a str,
    /// Description in sentences and labels.
    what: String,
    /// Name of the figure.
    figure: String,
    /// Response size; `None`: the application mix.
    octets: Option<u64>,
    requests: u32,
    by: By,
}

/// Quantity that a search varies.
enum By {
    Connections,
    Goodput,
}

impl Indicator<'_> {
    fn find(
        &self,
        settings: &Settings,
        bench: &mut Bench<'_>,
        outcome: &mut Outcome,
        table: &mut Table,
    ) -> Result<(), MethodError> {
        let Self { what, requests, .. } = self;
        let http = self.octets.map(|octets| settings.http(octets, *requests));
        let Some(searched) = search(settings, what, http, bench, outcome)? else { return Ok(()) };
        let (limit, found) = (searched.limit(), searched.found);
        let best = searched.best.unwrap_or_default();
        let (value, unit, text) = match self.by {
            By::Connections => (found, "connections/s", format!("{found:.1}")),
            By::Goodput => (best.goodput_bps, "bit/s", si(best.goodput_bps, "b/s")),
        };
        let noise = value * settings.resolution;
        let (name, better) = (self.figure.as_str(), Better::Higher);
        outcome.figures.push(Figure::new(name, value, unit, better, noise, limit));
        outcome.verdict.text.push(format!("{what}: {} {text}", limit.mark()));
        table.rows.push(row(self.row, self.octets, *requests, &best, limit.mark()));
        Ok(())
    }
}

fn mix() -> Indicator<'static> {
    Indicator {
        row: "application mix",
        what: "application mix".into(),
        figure: "mix".into(),
        octets: None,
        requests: 1,
        by: By::Goodput,
    }
}

fn cps(settings: &Settings, octets: u64) -> Indicator<'static> {
    Indicator {
        row: "connections per second",
        what: format!("{} connections per second, {octets} octets", settings.protocol()),
        figure: format!("cps/{octets}"),
        octets: Some(octets),
        requests: 1,
        by: By::Connections,
    }
}

fn throughput(settings: &Settings, octets: u64) -> Indicator<'static> {
    Indicator {
        row: "throughput",
        what: format!("{} throughput, {octets} octets", settings.protocol()),
        figure: format!("throughput/{octets}"),
        octets: Some(octets),
        requests: TRANSACTIONS,
        by: By::Goodput,
    }
}

/// §7.4.3.2: at half of the connections per second with one transaction per connection, and at half
/// of the throughput with ten.
fn latency(
    settings: &Settings,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
    table: &mut Table,
) -> Result<(), MethodError> {
    for octets in settings.small() {
        for (requests, of) in
            [(1, "half of the connections per second"), (TRANSACTIONS, "half of the throughput")]
        {
            let what = format!("{} latency, {octets} octets, {of}", settings.protocol());
            let http = Some(settings.http(octets, requests));
            let known = if requests == 1 { "cps" } else { "throughput" };
            let rate = match outcome.figure(&format!("{known}/{octets}")) {
                Some(known) if requests == 1 => known.value,
                Some(known) => known.value / (octets as f64 * 8.0 * f64::from(requests)),
                None => match search(settings, &what, http, bench, outcome)? {
                    Some(searched) => searched.found,
                    None => continue,
                },
            };
            let label = format!("{what}, {:.1} connections/s", rate / 2.0);
            let measured = bench.trial(settings.trial(label, rate / 2.0, http))?;
            let flows = measured.flows.clone().unwrap_or_default();
            if !measured.kept() {
                outcome.not_measured(what, &measured.not_kept);
                continue;
            }
            if !valid(rate / 2.0, &flows) {
                let why = crate::connections::why(&flows);
                outcome.notes.push(format!("{what}: not measured: {why}"));
                continue;
            }
            for (name, delay) in
                [("first_byte", flows.first_byte), ("last_byte", flows.transaction)]
            {
                let Some(delay) = delay else { continue };
                let name = format!("latency.{name}/{octets}/{requests}");
                let (value, better, noise) = (delay.mean, Better::Lower, delay.mean * 0.1);
                outcome.figures.push(Figure::new(name, value, "ns", better, noise, Limit::Device));
            }
            table.rows.push(row(&format!("latency at {of}"), Some(octets), requests, &flows, ""));
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
    // §7.5.3.2: responses of 1 KB, and ten transactions per connection, spread over its lifetime.
    let octets = 1_000;
    let what = format!("{} concurrent connections", settings.protocol());
    let opening_s = settings.ramp_s.max(1.0);
    let trial = |connections: f64| {
        let connections = connections.round().max(1.0);
        let think_s = (opening_s + settings.sustain_s) / f64::from(TRANSACTIONS - 1);
        let load = FlowLoad {
            cps: connections / opening_s,
            limit: Some(connections as u64),
            http: Some(Http { think_s, ..settings.http(octets, TRANSACTIONS) }),
            ..FlowLoad::default()
        };
        let label = format!("{what}, {connections}");
        let duration_s = 2.0 * opening_s + settings.sustain_s + think_s;
        Trial { label, duration_s, flows: Some(load), ..Trial::default() }
    };
    let passes = |_: f64, flows: &FlowsMeasured| flows.failed_ratio() < FAILED;
    let most = settings.max_concurrent as f64;
    let (resolution, recovery_s) = (settings.resolution, settings.recovery_s);
    let searched =
        Search { most, resolution, recovery_s, trial: &trial, passes: &passes }.run(bench)?;
    let (limit, best) = (searched.limit(), searched.best.clone().unwrap_or_default());
    let value = best.peak_active as f64;
    if value == 0.0 {
        none_valid(&what, &searched, outcome);
        return Ok(());
    }
    let (name, unit, noise) = ("concurrent", "connections", value * settings.resolution);
    outcome.figures.push(Figure::new(name, value, unit, Better::Higher, noise, limit));
    outcome.verdict.text.push(format!("{what}: {} {value}", limit.mark()));
    table.rows.push(row(
        &format!("{value} at once"),
        Some(octets),
        TRANSACTIONS,
        &best,
        limit.mark(),
    ));
    Ok(())
}
