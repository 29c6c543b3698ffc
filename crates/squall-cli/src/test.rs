//! `squall test`: the standard tests, with a verdict.

use std::{io::IsTerminal, path::PathBuf, process::ExitCode};

use serde_json::{Map, json};
use squall::{
    Error, Format, Profile,
    method::{
        Comparison, Estimate, Method, Outcome, Patience, Recorded, Status, Trial, Watch, compare,
        render, rfc2544, rfc2889, rfc3918, rfc8219, soak, tst009,
    },
    render::human,
    trials::Test,
    units::Rate,
};

use crate::{
    args::{Choice, Options, command_line, put_port},
    drive::Signals,
    output,
    progress::ProgressLine,
};

/// Test a device by a standard method, with a verdict
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall test rfc2544 --port A=eth1 --port B=eth2 --dry-run
  squall test rfc2544 rig.toml --quick --report rfc2544.html
  squall test rfc2544 rig.toml --tests throughput,latency --frame-sizes 64,1518 --json today.json
  squall test rfc2544 rig.toml --baseline yesterday.json --tolerance 0.02 --junit results.xml
  squall test rfc2544 rig.toml --journal rfc2544.journal       # Ctrl-C, and again to go on

PROFILE has the streams that are sent: frame sizes and rates are those of the method, all else stays. \
                        Without one, UDP is sent from each --port to the next one and back.
A trial that the generator did not keep to is repeated and never counted; then the result says \
                        GENERATOR-BOUND.

Exit status: 0 done, 1 failed (a criterion, or worse than the baseline), 2 wrong usage or input, 3 \
                        environment, 4 generator-bound, 130 stopped.")]
pub struct Args {
    #[command(subcommand)]
    method: Methods,
}

#[derive(Debug, clap::Subcommand)]
enum Methods {
    /// Throughput, latency, frame loss, back-to-back (RFC 9004), recovery, reset
    Rfc2544 {
        #[command(flatten)]
        settings: rfc2544::Settings,
        #[command(flatten)]
        common: Box<Common>,
    },
    /// Switches: meshed throughput, congestion, addresses, errored frames, broadcast
    Rfc2889 {
        #[command(flatten)]
        settings: rfc2889::Settings,
        #[command(flatten)]
        common: Box<Common>,
    },
    /// IP multicast: throughput, latency, join and leave delay, group capacity
    Rfc3918 {
        #[command(flatten)]
        settings: rfc3918::Settings,
        #[command(flatten)]
        common: Box<Common>,
    },
    /// IPv6 transition: throughput, latency, delay variation, frame loss
    Rfc8219 {
        #[command(flatten)]
        settings: rfc8219::Settings,
        #[command(flatten)]
        common: Box<Common>,
    },
    /// A constant load for hours: drift of loss and latency, availability
    Soak {
        #[command(flatten)]
        settings: soak::Settings,
        #[command(flatten)]
        common: Box<Common>,
    },
    /// Throughput with loss verification (ETSI GS NFV-TST 009)
    Tst009 {
        #[command(flatten)]
        settings: tst009::Settings,
        #[command(flatten)]
        common: Box<Common>,
    },
}

/// What all methods have.
#[derive(Debug, clap::Args)]
struct Common {
    /// Profile with the streams to send; without one, UDP between the ports
    #[arg(value_name = "PROFILE")]
    profile: Option<PathBuf>,
    /// Port of the profile, or of the test where there is no profile: A=eth1; repeatable
    #[arg(short, long, value_name = "NAME=ADDR")]
    port: Vec<String>,
    /// Send in one direction only (without a profile)
    #[arg(long)]
    one_way: bool,
    /// Spread the frames of each direction over N flows, by UDP port (without a profile)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16_000))]
    flows: u16,
    /// The most that each port sends, on the line: 1Gbps, 100kpps [default: what its link carries]
    #[arg(long, value_name = "RATE")]
    max_rate: Option<Rate>,
    /// Repeat a trial up to N times if the generator did not keep to it
    #[arg(long, value_name = "N", default_value_t = 2)]
    repeats: u32,
    /// Wait between trials, seconds [default: 5; with --quick 0.2]
    #[arg(long, value_name = "SECONDS")]
    rest: Option<f64>,
    /// Use short trials and few repetitions: for a first look, not for a result by the standard
    #[arg(long)]
    quick: bool,
    /// Say how long it takes, and send nothing
    #[arg(long)]
    dry_run: bool,
    /// Write each trial to FILE as it ends; if FILE has trials of the same test, go on after them
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    journal: Option<PathBuf>,
    /// Compare with an earlier result (--json), and end with exit status 1 if a figure is worse
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    baseline: Option<PathBuf>,
    /// Ignore differences from the baseline up to this ratio
    #[arg(long, value_name = "RATIO", default_value_t = 0.01, help_heading = "Result")]
    tolerance: f64,
    /// Write the result as JSON; - is standard output
    #[arg(long, value_name = "FILE|-", help_heading = "Result")]
    json: Option<String>,
    /// Write the result as one HTML file with plots
    #[arg(long, value_name = "FILE.html", help_heading = "Result")]
    report: Option<PathBuf>,
    /// Write the trials as CSV
    #[arg(long, value_name = "FILE.csv", help_heading = "Result")]
    csv: Option<PathBuf>,
    /// Write the verdict as JUnit XML
    #[arg(long, value_name = "FILE.xml", help_heading = "Result")]
    junit: Option<PathBuf>,
    /// Show no progress and no tables
    #[arg(short, long, help_heading = "Result")]
    quiet: bool,
    #[command(flatten)]
    options: Options<OfTests>,
}

/// A method says when trials end and what is measured.
#[derive(Debug)]
struct OfTests;

impl Choice for OfTests {
    fn has(name: &str) -> bool {
        ["cores", "cpus", "seed", "clock", "linger", "filter"].contains(&name)
    }
}

pub fn test(args: Args) -> Result<ExitCode, Error> {
    let (method, common) = args.method.parts();
    let method = if common.quick { method.quick() } else { method };
    let files = Files::create(&common)?;
    let baseline = common.baseline.as_ref().map(read_outcome).transpose()?;
    let rest_s = common.rest.unwrap_or(if common.quick { 0.2 } else { 5.0 });
    let test = Test {
        method,
        profile: common.profile()?,
        options: common.options.run.clone(),
        most: common.max_rate,
        patience: Patience { repeats: common.repeats, rest_s },
        journal: common.journal.clone(),
        command: command_line(),
    };
    let estimate = test.estimate()?;
    if common.dry_run {
        output::print(&format!("{}\n", takes(&estimate)));
        return Ok(ExitCode::SUCCESS);
    }
    if !common.quiet {
        eprintln!("{}", takes(&estimate));
    }
    let signals = Signals::catch()?;
    let mut watch = Shown { quiet: common.quiet, line: ProgressLine::new(common.quiet) };
    let outcome = test.run(&mut watch, &|| signals.came())?;
    watch.line.clear();
    let against = baseline.map(|before| compare(&before, &outcome, common.tolerance));
    let against = against.unwrap_or_default();
    common.publish(files, &outcome, &against)?;
    Ok(ExitCode::from(exit_status(&outcome, &against)))
}

impl Methods {
    fn parts(self) -> (Method, Common) {
        match self {
            Self::Rfc2544 { settings, common } => (Method::Rfc2544(settings), *common),
            Self::Rfc2889 { settings, common } => (Method::Rfc2889(settings), *common),
            Self::Rfc3918 { settings, common } => (Method::Rfc3918(settings), *common),
            Self::Rfc8219 { settings, common } => (Method::Rfc8219(settings), *common),
            Self::Soak { settings, common } => (Method::Soak(settings), *common),
            Self::Tst009 { settings, common } => (Method::Tst009(settings), *common),
        }
    }
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
        "about {} in {} trials, if the device carries half of the highest rate",
        human::seconds(estimate.seconds),
        estimate.trials
    )
}

fn read_outcome(path: &PathBuf) -> Result<Outcome, Error> {
    let wrong = |what: String| Error::Usage(format!("--baseline {}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| wrong(format!("cannot read: {e}")))?;
    serde_json::from_str(&text)
        .map_err(|e| wrong(format!("{e}\n  expected what squall test --json FILE has written")))
}

impl Common {
    fn profile(&self) -> Result<Profile, Error> {
        let Some(path) = &self.profile else { return self.between_ports() };
        let mut profile = Profile::load(path)?;
        self.port.iter().try_for_each(|text| put_port(&mut profile, text))?;
        Ok(profile)
    }

    /// UDP from each port to the next, with the addresses and ports of RFC 2544, appendix C.
    fn between_ports(&self) -> Result<Profile, Error> {
        let mut ports = Map::new();
        for text in &self.port {
            let (name, address) = text.split_once('=').ok_or_else(|| {
                Error::Usage(format!("--port {text}: expected NAME=ADDR, such as A=eth1"))
            })?;
            ports.insert(name.to_owned(), json!(address));
        }
        let names: Vec<&String> = ports.keys().collect();
        let mut pairs: Vec<(usize, usize)> = match names.len() {
            0 => {
                let text =
                    "no profile and no ports\n  try rig.toml, or --port A=eth1 --port B=eth2";
                return Err(Error::Usage(text.into()));
            }
            1 => vec![(0, 0)],
            n => (0..n).step_by(2).filter(|i| i + 1 < n).map(|i| (i, i + 1)).collect(),
        };
        if !self.one_way && names.len() > 1 {
            let back: Vec<_> = pairs.iter().map(|(from, to)| (*to, *from)).collect();
            pairs.extend(back);
        }
        let streams: Vec<_> = pairs
            .iter()
            .map(|&(from, to)| {
                let (mac, net) = (|i: usize| i + 1, |i: usize| 18 + i % 2);
                let packet = format!(
                    "eth(src=02:00:c6:12:00:{:02x},dst=02:00:c6:12:00:{:02x})/ipv4(src=198.{}.0.\
                     {},dst=198.{}.0.{})/udp(sport=49184,dport=7)",
                    mac(from),
                    mac(to),
                    net(from),
                    from + 2,
                    net(to),
                    to + 2,
                );
                let name = format!("{} to {}", names[from], names[to]);
                let mut stream =
                    json!({"name": name, "port": names[from], "packet": packet, "rate": "1kpps"});
                if self.flows > 1 {
                    let max = 49_184 + u32::from(self.flows) - 1;
                    let vary = json!([{"field": "udp.sport", "op": "increment", "min": 49_184,
                        "max": max}]);
                    stream["vary"] = vary;
                }
                stream
            })
            .collect();
        let text = json!({"ports": ports, "stream": streams}).to_string();
        Ok(Profile::parse(&text, "<command line>", Format::Json)?)
    }

    fn publish(
        &self,
        files: Files,
        outcome: &Outcome,
        against: &[Comparison],
    ) -> Result<(), Error> {
        let json = || serde_json::to_string_pretty(outcome).unwrap_or_default() + "\n";
        let write = |file: Option<(String, std::fs::File)>, text: &dyn Fn() -> String| {
            file.map_or(Ok(()), |(name, file)| output::write(&name, file, &text()))
        };
        write(files.json, &json)?;
        write(files.html, &|| render::html(outcome, against))?;
        write(files.csv, &|| render::csv(outcome))?;
        write(files.junit, &|| render::junit(outcome, against))?;
        let to_stdout = self.json.as_deref() == Some("-");
        if to_stdout {
            output::print_data(&json());
        }
        if !self.quiet && !to_stdout {
            let stdout = std::io::stdout();
            let width = terminal_size::terminal_size_of(&stdout).map_or(120, |(w, _)| w.0.into());
            let color = stdout.is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            output::print(&format!("\n{}", render::text(outcome, width, color)));
            if !against.is_empty() {
                output::print(&format!("\n{}", render::changes(against, color)));
            }
        }
        Ok(())
    }
}

/// Made before anything is sent: hours of measuring are not to end in a path that is wrong.
#[derive(Default)]
struct Files {
    json: Option<(String, std::fs::File)>,
    html: Option<(String, std::fs::File)>,
    csv: Option<(String, std::fs::File)>,
    junit: Option<(String, std::fs::File)>,
}

impl Files {
    fn create(common: &Common) -> Result<Self, Error> {
        if common.dry_run {
            return Ok(Self::default());
        }
        let file = |path: &Option<PathBuf>| {
            path.as_ref().map(|path| output::create(&path.to_string_lossy())).transpose()
        };
        let json = common.json.as_deref().filter(|name| *name != "-");
        Ok(Self {
            json: json.map(output::create).transpose()?,
            html: file(&common.report)?,
            csv: file(&common.csv)?,
            junit: file(&common.junit)?,
        })
    }
}

/// A line for each trial.
struct Shown {
    quiet: bool,
    line: ProgressLine,
}

impl Watch for Shown {
    fn begins(&mut self, trial: &Trial, number: usize) {
        self.line.update(|| format!("{number:4}  {} ...", trial.label));
    }

    fn ended(&mut self, recorded: &Recorded) -> bool {
        if !self.quiet {
            self.line.clear();
            eprintln!("      {}", render::trial_line(recorded));
        }
        true
    }
}
