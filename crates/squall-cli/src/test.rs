//! `squall test`: standard tests with a verdict.

mod trend;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde_json::{Map, Value, json};
use squall::{Error, Profile};
use squall_report::render::human;
use squall_trials::{Between, Place, Test, compare_results};
use squall_units::{Cannot, Rate};

use squall_method::{
    Comparison, Estimate, Method, Outcome, RecordedTrial, RetryPolicy, Status, Trial, Watch, ab,
    compare, render, seconds,
};

use crate::{
    args::{Choice, Given, Options, command_line, put_port},
    cluster,
    drive::Signals,
    output,
    pdf::Pdf,
    progress::ProgressLine,
};

/// Width of tables if standard output is not a terminal.
const WIDTH: usize = 120;

/// Test a device by a standard method, with a verdict
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall test rfc2544 --port A=eth1 --port B=eth2 --dry-run
  squall test rfc2544 rig.toml --quick --report rfc2544.html
  squall test rfc2544 rig.toml --tests throughput,latency --frame-sizes 64,1518 --json today.json
  squall test rfc2544 rig.toml --baseline yesterday.json --tolerance 0.02 --junit results.xml
  squall test rfc2544 rig.toml --journal rfc2544.journal       # Ctrl-C, then again to continue
  squall test rfc2544 rig.toml --nodes lab.toml                # ports of several machines
  squall test trend results/ --fail-if-worse                   # the newest of stored results

PROFILE has the streams that are sent: frame sizes and rates are those of the method, all else stays. \
                        Without one, UDP is sent from each --port to the next one and back.
Before the first trial, some frames or connections have to come through in each direction that the \
                        method uses.
A trial in which the generator missed its schedule is repeated and never counted; then \
                        the result says GENERATOR-BOUND.

Exit status: 0 done, 1 failed (a criterion, or worse than the baseline), 2 wrong usage or input, 3 \
                        environment, 4 generator-bound, 130 stopped.")]
pub struct Args {
    #[command(subcommand)]
    method: Methods,
}

macro_rules! subcommands {
    ($($variant:ident($module:ident), $title:literal, $($help:literal)+;)*) => {
        #[derive(Debug, clap::Subcommand)]
        enum Methods {
            $(
                $(#[doc = $help])+
                $variant(OfMethod<squall_method::$module::Settings>),
            )*
            /// Compare two profiles by trials in turns, or two results: better, worse, or no difference
            Ab(Box<Ab>),
            /// Follow figures over stored results, with the noise of the earlier ones
            Trend(Box<trend::Trend>),
        }

        impl Methods {
            /// Splits a subcommand into the method, shortened with `--quick`, and the common options.
            /// `Err` for a subcommand that is not a search on one device.
            fn parts(self) -> Result<(Method, Common), Other> {
                Ok(match self {
                    $(Self::$variant(of) => {
                        let given: Vec<&str> =
                            of.settings.arguments.iter().map(|one| one.key.as_str()).collect();
                        let method = Method::$variant(of.settings.args);
                        let quick = of.common.quick;
                        (if quick { method.quick(&given) } else { method }, *of.common)
                    })*
                    Self::Ab(args) => return Err(Other::Ab(args)),
                    Self::Trend(args) => return Err(Other::Trend(args)),
                })
            }
        }
    };
}

/// A subcommand that is not a method.
enum Other {
    Ab(Box<Ab>),
    Trend(Box<trend::Trend>),
}

squall_method::each_method!(subcommands);

// Not a doc comment, which clap would show in the help of each method.
#[derive(Debug, clap::Args)]
struct OfMethod<S: clap::Args> {
    #[command(flatten)]
    settings: Given<S>,
    #[command(flatten)]
    common: Box<Common>,
}

/// Options of an A/B comparison, for both sides.
#[derive(Debug, clap::Args)]
struct Ab {
    /// Profile, or result (.json) of an earlier test
    #[arg(long, value_name = "FILE")]
    a: PathBuf,
    /// Profile or result to compare with it
    #[arg(long, value_name = "FILE")]
    b: PathBuf,
    #[command(flatten)]
    settings: ab::Settings,
    /// Port of both profiles: A=eth1; repeatable
    #[arg(short, long, value_name = "NAME=ADDR", conflicts_with = "nodes")]
    port: Vec<String>,
    /// Length of a trial [default: as in the profiles]
    #[arg(short, long, value_name = "TIME")]
    duration: Option<squall_options::Time>,
    /// Repeat a trial up to N times if the generator missed its schedule
    #[arg(long, value_name = "N", default_value_t = 2)]
    repeats: u32,
    /// Wait between trials, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, value_parser = seconds)]
    rest: f64,
    #[command(flatten)]
    options: Options<OfTests>,
    #[command(flatten)]
    nodes: Nodes,
    #[command(flatten)]
    results: Results,
}

/// Nodes that run the trials.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Several machines")]
struct Nodes {
    /// Run the trials on the nodes of this inventory; the ports are those that it names
    #[arg(long, value_name = "INVENTORY.toml")]
    nodes: Option<PathBuf>,
}

fn place(nodes: &mut Option<squall_trials::Nodes>) -> Place<'_> {
    nodes.as_mut().map_or(Place::Here, Place::Nodes)
}

fn ab(args: &Ab) -> Result<ExitCode, Error> {
    let is_result = |path: &Path| path.extension().is_some_and(|ending| ending == "json");
    let files;
    let wants_trials = args.nodes.nodes.is_some() || !args.port.is_empty() || args.rest > 0.0;
    let outcome = match (is_result(&args.a), is_result(&args.b)) {
        (true, true) if wants_trials => {
            let text = "--nodes, --port, --rest: two results are compared without trials\n  try \
                        two profiles";
            return Err(Error::Usage(text.into()));
        }
        (true, true) => {
            let (a, b) = (read_outcome("--a", &args.a)?, read_outcome("--b", &args.b)?);
            files = Files::create(&args.results)?;
            compare_results(&a, &b, &args.settings, &command_line())?
        }
        (false, false) => {
            let mut options = args.options.run.clone();
            options.duration = args.duration;
            let comparison = squall_trials::Comparison {
                a: args.profile(&args.a)?,
                b: args.profile(&args.b)?,
                settings: args.settings.clone(),
                options,
                retry: RetryPolicy { repeats: args.repeats, rest_s: args.rest },
                command: command_line(),
            };
            let all = [&comparison.a, &comparison.b];
            if args.duration.is_none() && !all.into_iter().all(ends) {
                return Err(Error::Usage("a trial never ends\n  try --duration 5s".into()));
            }
            files = Files::create(&args.results)?;
            let signals = Signals::catch()?;
            let start = |inventory: &PathBuf| {
                cluster::nodes(inventory, Some(&comparison.a), false, &signals)
            };
            let mut nodes = args.nodes.nodes.as_ref().map(start).transpose()?;
            let quiet = args.results.quiet;
            let mut watch = Shown { quiet, line: ProgressLine::new(quiet) };
            let outcome = comparison.run_at(place(&mut nodes), &mut watch, &|| signals.came());
            watch.line.clear();
            outcome?
        }
        _ => {
            let text = "--a and --b: expected two profiles, or two results (.json)";
            return Err(Error::Usage(text.into()));
        }
    };
    args.results.publish(files, &outcome, &[])?;
    Ok(ExitCode::from(exit_status(&outcome, &[])))
}

impl Ab {
    /// The profile of one side, with the ports of the command line.
    fn profile(&self, path: &Path) -> Result<Profile, Error> {
        let mut profile = Profile::load(path)?;
        self.port.iter().try_for_each(|text| put_port(&mut profile, text))?;
        Ok(profile)
    }
}

/// Checks quickly whether a run of `profile` ends by itself.
fn ends(profile: &Profile) -> bool {
    let stop = profile.stop;
    let limited = stop.duration.is_some() || stop.packets.is_some() || stop.octets.is_some();
    let continuous =
        profile.streams.iter().any(|stream| stream.mode == squall::ProfileMode::Continuous);
    limited || !continuous && profile.flows.is_none()
}

/// Options that all methods share.
#[derive(Debug, clap::Args)]
struct Common {
    /// Profile with the streams to send; without one, UDP between the ports
    #[arg(value_name = "PROFILE")]
    profile: Option<PathBuf>,
    /// Port of the profile, or of the test where there is no profile: A=eth1; repeatable
    #[arg(short, long, value_name = "NAME=ADDR", conflicts_with = "nodes")]
    port: Vec<String>,
    /// The most that each port sends, on the line: 1Gbps, 100kpps [default: the capacity of its
    /// link]
    #[arg(long, value_name = "RATE")]
    max_rate: Option<Rate>,
    /// Repeat a trial up to N times if the generator missed its schedule
    #[arg(long, value_name = "N", default_value_t = 2)]
    repeats: u32,
    /// Wait between trials, seconds [default: 5; with --quick 0.2]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    rest: Option<f64>,
    /// Use short trials and few repetitions where no option sets them: for a first look, not for a
    /// result by the standard
    #[arg(long)]
    quick: bool,
    /// Say how long it takes, and send nothing
    #[arg(long)]
    dry_run: bool,
    /// Write each trial to FILE as it ends; continue after its trials of the same test
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    journal: Option<PathBuf>,
    /// Compare with an earlier result (--json), and end with exit status 1 if a figure is worse
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    baseline: Option<PathBuf>,
    /// Ignore differences from the baseline up to this ratio
    #[arg(long, value_name = "RATIO", default_value_t = 0.01, help_heading = "Result")]
    tolerance: f64,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    options: Options<OfTests>,
    #[command(flatten)]
    nodes: Nodes,
    #[command(flatten)]
    between: Between,
}

/// Destinations of results.
#[derive(Debug, clap::Args)]
struct Results {
    /// Write the result as JSON; - is standard output
    #[arg(long, value_name = "FILE|-", help_heading = "Result")]
    json: Option<String>,
    /// Write the result as one HTML file with plots
    #[arg(long, value_name = "FILE.html", help_heading = "Result")]
    report: Option<PathBuf>,
    /// Print that page as PDF, by Chromium, Chrome, Edge or Brave
    #[arg(long, value_name = "FILE.pdf", help_heading = "Result")]
    pdf: Option<PathBuf>,
    /// Write the trials as CSV
    #[arg(long, value_name = "FILE.csv", help_heading = "Result")]
    csv: Option<PathBuf>,
    /// Write the verdict as JUnit XML
    #[arg(long, value_name = "FILE.xml", help_heading = "Result")]
    junit: Option<PathBuf>,
    /// Write NDR and PDR as a test result of FD.io CSIT (model 1.5.1)
    #[arg(long, value_name = "FILE.json", help_heading = "Result")]
    csit: Option<PathBuf>,
    /// Write throughput as a result of NFVbench
    #[arg(long, value_name = "FILE.json", help_heading = "Result")]
    nfvbench: Option<PathBuf>,
    /// Show no progress and no tables
    #[arg(short, long, help_heading = "Result")]
    quiet: bool,
}

/// Run options of tests. The method determines the duration and the measurements.
#[derive(Debug)]
struct OfTests;

impl Choice for OfTests {
    fn has(name: &str) -> bool {
        ["cores", "cpus", "seed", "clock", "precision", "linger", "filter"].contains(&name)
    }
}

pub fn test(args: Args) -> Result<ExitCode, Error> {
    let (method, common) = match args.method.parts() {
        Ok(parts) => parts,
        Err(Other::Ab(args)) => return ab(&args),
        Err(Other::Trend(args)) => return trend::trend(&args),
    };
    // Read the baseline before the files are created: one of them may be the same file.
    let baseline =
        common.baseline.as_ref().map(|path| read_outcome("--baseline", path)).transpose()?;
    let files = Files::create_unless(common.dry_run, &common.results)?;
    let rest_s = common.rest.unwrap_or(if common.quick { 0.2 } else { 5.0 });
    let signals = Signals::catch()?;
    let (profile, mut nodes) = common.placed(&method, &signals)?;
    let test = Test {
        profile,
        method,
        options: common.options.run.clone(),
        most: common.max_rate,
        retry: RetryPolicy { repeats: common.repeats, rest_s },
        journal: common.journal.clone(),
        command: command_line(),
    };
    let estimate = test.estimate_at(place(&mut nodes))?;
    if common.dry_run {
        output::print(&format!("{}\n", takes(&estimate)));
        return Ok(ExitCode::SUCCESS);
    }
    if !common.results.quiet {
        eprintln!("{}", takes(&estimate));
    }
    let mut watch =
        Shown { quiet: common.results.quiet, line: ProgressLine::new(common.results.quiet) };
    let outcome = test.run_at(place(&mut nodes), &mut watch, &|| signals.came())?;
    watch.line.clear();
    let against = baseline.map(|before| compare(&before, &outcome, common.tolerance));
    let against = against.unwrap_or_default();
    common.results.publish(files, &outcome, &against)?;
    Ok(ExitCode::from(exit_status(&outcome, &against)))
}

fn exit_status(outcome: &Outcome, against: &[Comparison]) -> u8 {
    match outcome.verdict.status {
        Status::Stopped => 130,
        Status::Failed => 1,
        _ if against.iter().any(|one| one.regressed) => 1,
        Status::GeneratorBound => 4,
        Status::Measured | Status::Passed => 0,
    }
}

fn takes(estimate: &Estimate) -> String {
    format!(
        "about {} in {}, if the device carries half of the highest rate",
        human::seconds(estimate.seconds),
        human::counted(estimate.trials as u64, "trial")
    )
}

fn read_outcome(option: &str, path: &Path) -> Result<Outcome, Error> {
    let wrong = |what: String| {
        let text = format!("{option} {}: {what}", path.display());
        Error::Usage(text.trim_start().into())
    };
    let text = std::fs::read_to_string(path).map_err(|error| Cannot::read(path, &error))?;
    serde_json::from_str(&text)
        .map_err(|e| wrong(format!("{e}\n  expected what squall test --json FILE has written")))
}

impl Common {
    /// The profile, and the nodes to which its ports belong.
    fn placed(
        &self,
        method: &Method,
        signals: &Signals,
    ) -> Result<(Profile, Option<squall_trials::Nodes>), Error> {
        let known = self.profile.as_ref().map(Profile::load).transpose()?;
        let start =
            |inventory: &PathBuf| cluster::nodes(inventory, known.as_ref(), self.dry_run, signals);
        let nodes = self.nodes.nodes.as_ref().map(start).transpose()?;
        let here = nodes.is_none();
        let profile = match (known, &nodes) {
            (Some(mut profile), _) => {
                self.port.iter().try_for_each(|text| put_port(&mut profile, text))?;
                profile
            }
            (None, Some(nodes)) => {
                let ports = nodes.ports().map(|name| (name.to_owned(), json!("null:"))).collect();
                self.between.profile(method, &ports, "<command line>")?
            }
            (None, None) => self.between.profile(method, &self.ports()?, "<command line>")?,
        };
        // Before the speed of the links, because a link that is missing has none.
        if here && !self.dry_run {
            profile
                .ports
                .iter()
                .try_for_each(|port| squall_machine::ports::is_there(&port.address))?;
        }
        Ok((profile, nodes))
    }

    fn ports(&self) -> Result<Map<String, Value>, Error> {
        let mut ports = Map::new();
        for text in &self.port {
            let (name, address) = text.split_once('=').ok_or_else(|| {
                Error::Usage(format!("--port {text}: expected NAME=ADDR, such as A=eth1"))
            })?;
            ports.insert(name.to_owned(), json!(address));
        }
        match ports.is_empty() {
            true => {
                let text =
                    "no profile and no ports\n  try rig.toml, or --port A=eth1 --port B=eth2";
                Err(Error::Usage(text.into()))
            }
            false => Ok(ports),
        }
    }
}

impl Results {
    fn publish(
        &self,
        files: Files,
        outcome: &Outcome,
        against: &[Comparison],
    ) -> Result<(), Error> {
        let json = || serde_json::to_string_pretty(outcome).unwrap_or_default() + "\n";
        let mut results = output::Results::default();
        results.write(files.json, json);
        results.write(files.html, || render::html(outcome, against));
        results.print(files.pdf, || render::html(outcome, against));
        results.write(files.csv, || render::csv(outcome));
        results.write(files.junit, || render::junit(outcome, against));
        let mut refused = Vec::new();
        for (file, form) in [(files.csit, render::csit as Form), (files.nfvbench, render::nfvbench)]
        {
            match form(outcome) {
                Ok(text) => results.write(file, || text),
                Err(why) if file.is_some() => refused.push(why),
                Err(_) => {}
            }
        }
        let to_stdout = self.json.as_deref() == Some("-") || results.are_lost();
        if to_stdout {
            output::print_data(&json());
        }
        if !self.quiet && !to_stdout {
            let (width, color) = output::look(false, WIDTH);
            output::print(&format!("\n{}", render::text(outcome, width, color)));
            if !against.is_empty() {
                output::print(&format!("\n{}", render::changes(against, color)));
            }
            if !results.are_lost() {
                let pages = [self.report.as_deref(), self.pdf.as_deref()].map(output::named);
                output::print(&pages.concat());
            }
        }
        results.end()?;
        // Hours of measurements precede this, so the other results are written first.
        refused.into_iter().next().map_or(Ok(()), |why| Err(Error::Usage(why)))
    }
}

/// Converts a result to the format of another program; an error if the format cannot represent it.
type Form = fn(&Outcome) -> Result<String, String>;

/// Files for the results. Created before anything is sent: an invalid path must not cost hours of
/// measurements.
#[derive(Default)]
struct Files {
    json: Option<(String, std::fs::File)>,
    html: Option<(String, std::fs::File)>,
    pdf: Option<Pdf>,
    csv: Option<(String, std::fs::File)>,
    junit: Option<(String, std::fs::File)>,
    csit: Option<(String, std::fs::File)>,
    nfvbench: Option<(String, std::fs::File)>,
}

impl Files {
    fn create_unless(dry: bool, results: &Results) -> Result<Self, Error> {
        if dry { Ok(Self::default()) } else { Self::create(results) }
    }

    fn create(common: &Results) -> Result<Self, Error> {
        let file = |path: &Option<PathBuf>| {
            path.as_ref().map(|path| output::create(&path.to_string_lossy())).transpose()
        };
        let json = common.json.as_deref().filter(|name| *name != "-");
        Ok(Self {
            json: json.map(output::create).transpose()?,
            html: file(&common.report)?,
            pdf: common.pdf.as_deref().map(Pdf::create).transpose()?,
            csv: file(&common.csv)?,
            junit: file(&common.junit)?,
            csit: file(&common.csit)?,
            nfvbench: file(&common.nfvbench)?,
        })
    }
}

/// Shows one line per trial.
struct Shown {
    quiet: bool,
    line: ProgressLine,
}

impl Watch for Shown {
    fn trial_started(&mut self, trial: &Trial, number: usize) {
        self.line.update(|| format!("{number:4}  {} ...", trial.label));
    }

    fn trial_ended(&mut self, recorded: &RecordedTrial) -> bool {
        if !self.quiet {
            self.line.clear();
            eprintln!("      {}", render::trial_line(recorded));
        }
        true
    }
}
