//! `squall compare`: benchmarks of programs in a lab, and comparisons of TRex profiles with TRex.

mod trex;

use std::{fs::File, path::PathBuf, process::ExitCode};

use squall::Error;
use squall_compare::{
    self as compare, Compared, DEFAULT_TOOLS, DataSet, Place, Settings, Tool,
    generators::{DEFAULT_GENERATORS, Generator, GeneratorSettings},
    render::{Shown, ShownStep},
};
use squall_report::render;
use squall_units::{FCS_LEN, Nanos, Rate};

use crate::{args::command_line, drive::Signals, output};

/// Benchmark capture tools and generators, and compare with TRex
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Captures(Box<Captures>),
    Generators(Box<Generators>),
    Trex(Box<trex::Args>),
}

/// Measure rate, steadiness and cost of traffic generators, counted where their frames arrive
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall compare generators                                         # takes long, prints how long
  squall compare generators --duration 5s --rounds 3 --report generators.html
  squall compare generators --tools squall,tcpreplay,trafgen --sizes 64,1518 --rates \
                        10kpps,100kpps,max

Tools: squall, squall-af_xdp, squall-xdp_live, tcpreplay, trafgen, iperf3, mgen, rude, hping3, nping, \
                        mausezahn, drone (Ostinato); on request curl and squall-rules (attacks from \
                        rules).
Not started, but named with the reason: pktgen-dpdk and trex, which need ports of their own \
                        configuration.
Everything runs in a private lab: a veth pair in a separate network namespace. Ctrl-C ends the \
                        comparison and still reports the finished measurements.")]
struct Generators {
    /// Compare these tools [default: all]
    #[arg(long, value_name = "LIST")]
    tools: Option<String>,
    /// Send frames of these sizes, octets with FCS
    #[arg(long, value_name = "OCTETS", default_value = "64,516,1518", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(64..=9004))]
    sizes: Vec<u32>,
    /// Send at these rates: 10kpps, 100Mbps (L2 with FCS), max
    #[arg(
        long = "rates",
        value_name = "RATES",
        default_value = "10kpps,50kpps,100kpps,max",
        value_delimiter = ','
    )]
    steps: Vec<Rate>,
    /// Repeat each measurement N times
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Measure for this time at each step
    #[arg(short, long, value_name = "TIME", default_value = "60s")]
    duration: Nanos,
    #[command(flatten)]
    results: Results,
}

/// Measure the loss and cost of capture tools at a bit rate, and whether they report their loss
/// correctly
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall compare captures                                           # takes some minutes, prints how many
  squall compare captures --tools tcpdump,dumpcap --data http --rates 100Mbps,500Mbps,max --rounds \
                        3
  squall compare captures --tools 'squall,tcpdump:-B 65536' --data 60,1514 --write null,tmpfs,disk \
                        --search
  squall compare captures --tool 'mine=mytool -i {interface} -w {file}' --data office.pcap \
                        --report compare.html
  squall compare captures --data 60,imix,1514 --rates 100Mbps,200Mbps,400Mbps,800Mbps --rounds 5 \
                        --report loss.html
  squall compare captures --data 60 --pps 100k,200k,400k,max --json compare.json

Tools: squall, squall-af_xdp (takes the frames away from the host), tcpdump, dumpcap, netsniff-ng; \
                        arguments after a colon.
Data: http, video, voip, mixed, imix; a length without FCS such as 60; NAME=60*7,590*4,1514*1; a \
                        capture, which is repeated.
Everything runs in a private lab: a veth pair in a separate network namespace. Ctrl-C ends the \
                        comparison and still reports the finished measurements.")]
struct Captures {
    /// Compare these tools, with arguments after a colon: tcpdump,tcpdump:-B 65536
    #[arg(long, value_name = "LIST", default_value = DEFAULT_TOOLS)]
    tools: String,
    /// Add a tool: 'mine=mytool -i {interface} -w {file}'; repeatable
    #[arg(long, value_name = "NAME=COMMAND")]
    tool: Vec<String>,
    /// Send these distributions of lengths, or captures; repeatable
    #[arg(
        long,
        value_name = "DIST|FILE",
        default_value = "60,mixed,1514",
        value_delimiter = ',',
        num_args = 1
    )]
    data: Vec<String>,
    /// Send at these rates, L2 with FCS: 100Mbps,1Gbps,max [default:
    /// 100Mbps,200Mbps,500Mbps,1Gbps,2Gbps,max; with --search none]
    #[arg(long = "rates", value_name = "RATES", value_delimiter = ',')]
    steps: Vec<Rate>,
    /// Add rates in frames per second to --rates: 100k,400k
    #[arg(long, value_name = "RATES", value_delimiter = ',', value_parser = pps)]
    pps: Vec<Rate>,
    /// Measure everything N times, with the tools in another order each time, and report medians and
    /// ranges
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Send for this time at each step
    #[arg(short, long, value_name = "TIME", default_value = "2s")]
    duration: Nanos,
    /// Let the tools write to: null, tmpfs (/dev/shm), disk (the working directory), or a folder;
    /// several separated by commas
    #[arg(long, value_name = "WHERE", default_value = "tmpfs", value_delimiter = ',')]
    write: Vec<String>,
    /// Search for the highest rate with a loss ratio below PLR
    #[arg(long, value_name = "PLR", num_args = 0..=1, default_missing_value = "0.1%", value_parser = ratio)]
    search: Option<f64>,
    #[command(flatten)]
    results: Results,
}

// Not a doc comment, which clap would show in the help of each comparison.
#[derive(Debug, clap::Args)]
struct Results {
    /// Write the result as JSON; - is standard output
    #[arg(long, value_name = "FILE|-", help_heading = "Result")]
    json: Option<String>,
    /// Write the result as one HTML file with plots
    #[arg(long, value_name = "FILE.html", help_heading = "Result")]
    report: Option<PathBuf>,
    /// Show no progress and no tables
    #[arg(short, long, help_heading = "Result")]
    quiet: bool,
}

pub fn compare(args: &Args) -> Result<ExitCode, Error> {
    match &args.what {
        What::Captures(args) => captures(args),
        What::Generators(args) => generators(args),
        What::Trex(args) => trex::compare(args),
    }
}

const DEFAULT_STEPS: [&str; 6] = ["100Mbps", "200Mbps", "500Mbps", "1Gbps", "2Gbps", "max"];

fn captures(args: &Captures) -> Result<ExitCode, Error> {
    let settings = args.settings()?;
    let outputs = Outputs::create(&args.results)?;
    outputs.announce(&estimate(&settings));
    let signals = Signals::catch()?;
    let result = compare::captures(&settings, &mut progress(outputs.to.quiet), &|| signals.came())?;
    outputs.write(&result)
}

fn generators(args: &Generators) -> Result<ExitCode, Error> {
    let settings = args.settings()?;
    let outputs = Outputs::create(&args.results)?;
    let runs = settings.tools.len() * settings.sizes.len() * settings.steps.len();
    let runs = runs * settings.rounds as usize;
    let time = runs as f64 * (settings.step.as_secs_f64() + OVERHEAD_S);
    let runs = render::human::counted(runs as u64, "run");
    outputs.announce(&format!("at most {runs}, {}", render::human::seconds(time)));
    let signals = Signals::catch()?;
    let stop = || signals.came();
    let result =
        compare::generators::generators(&settings, &mut progress(outputs.to.quiet), &stop)?;
    outputs.write(&result)
}

impl Generators {
    fn settings(&self) -> Result<GeneratorSettings, Error> {
        check_steps(&self.steps)?;
        Ok(GeneratorSettings {
            tools: Generator::parse_list(
                self.tools.as_deref().unwrap_or(DEFAULT_GENERATORS),
                &own_path()?,
            )?,
            sizes: self.sizes.iter().map(|size| size - FCS_LEN).collect(),
            steps: self.steps.clone(),
            rounds: self.rounds,
            step: self.duration,
            command: command_line(),
        })
    }
}

/// Width of tables if standard output is not a terminal.
pub const WIDTH: usize = 120;

/// Destinations of a comparison's result.
struct Outputs<'a> {
    to: &'a Results,
    files: [Option<(String, File)>; 2],
}

impl<'a> Outputs<'a> {
    /// Creates the files before anything runs: an invalid path must not cost an hour of
    /// measurements.
    fn create(to: &'a Results) -> Result<Self, Error> {
        let json = to.json.as_deref().filter(|name| *name != "-").map(output::create);
        let html = to.report.as_ref().map(|path| output::create(&path.to_string_lossy()));
        Ok(Self { to, files: [json.transpose()?, html.transpose()?] })
    }

    fn announce(&self, text: &str) {
        if !self.to.quiet {
            eprintln!("{text}");
        }
    }

    fn write<M, S: ShownStep, X>(self, result: &Compared<M, S, X>) -> Result<ExitCode, Error>
    where
        Compared<M, S, X>: Shown<S>,
    {
        let [json_file, html_file] = self.files;
        let json = result.to_json();
        let mut results = output::Results::default();
        results.write(json_file, || format!("{json}\n"));
        results.write(html_file, || compare::render::html(result));
        let to_stdout = self.to.json.as_deref() == Some("-") || results.are_lost();
        if to_stdout {
            output::print_data(&format!("{json}\n"));
        }
        if !self.to.quiet && !to_stdout {
            let (width, color) = output::look(false, WIDTH);
            output::print(&format!(
                "\n{}\n",
                compare::render::summary(result, width, color).trim_end()
            ));
        }
        results.end()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Numbers and prints the lines of a measurement's progress.
pub fn progress(quiet: bool) -> impl FnMut(&str) {
    let mut done = 0;
    move |line: &str| {
        done += 1;
        if !quiet {
            eprintln!("{done:4}  {line}");
        }
    }
}

pub fn own_path() -> Result<PathBuf, Error> {
    std::env::current_exe()
        .map_err(|e| Error::Environment(format!("cannot find the path of this program: {e}")))
}

fn check_steps(steps: &[Rate]) -> Result<(), Error> {
    let wrong = |rate: &&Rate| rate.is_zero() || rate.unit == squall_units::RateUnit::Percent;
    steps.iter().find(wrong).map_or(Ok(()), |rate| {
        Err(Error::Usage(format!("--rates {rate}: expected a rate such as 100Mbps, 10kpps or max")))
    })
}

impl Captures {
    fn settings(&self) -> Result<Settings, Error> {
        let squall = own_path()?;
        let mut tools = Tool::parse_list(&self.tools, &squall)?;
        for template in &self.tool {
            tools.push(Tool::parse_template(template)?);
        }
        for (i, tool) in tools.iter().enumerate() {
            if tools[..i].iter().any(|other| other.name == tool.name) {
                return Err(Error::Usage(format!("two tools have the name {:?}", tool.name)));
            }
        }
        let mut steps: Vec<Rate> = self.steps.iter().chain(&self.pps).copied().collect();
        if steps.is_empty() && self.search.is_none() {
            steps = DEFAULT_STEPS.iter().map(|rate| rate.parse().expect("a rate")).collect();
        }
        check_steps(&steps)?;
        Ok(Settings {
            tools,
            data: self.data.iter().map(|text| DataSet::parse(text)).collect::<Result<_, _>>()?,
            steps,
            rounds: self.rounds,
            step: self.duration,
            write: self.write.iter().map(|text| Place::parse(text)).collect::<Result<_, _>>()?,
            search: self.search,
            command: command_line(),
        })
    }
}

/// Estimated time to start, settle and stop a tool, in addition to the time for sending.
const OVERHEAD_S: f64 = 2.5;
/// Typical number of trials in a bisection.
const TRIALS: usize = 6;

fn estimate(settings: &Settings) -> String {
    let searched = if settings.search.is_some() { TRIALS } else { 0 };
    let runs = settings.tools.len()
        * settings.data.len()
        * settings.write.len()
        * settings.rounds as usize
        * (settings.steps.len() + searched);
    let time = render::human::seconds(runs as f64 * (settings.step.as_secs_f64() + OVERHEAD_S));
    format!("about {}, {time}", render::human::counted(runs as u64, "run"))
}

/// Parses `100k`, `100kpps`, `max`.
fn pps(text: &str) -> Result<Rate, String> {
    if text == "max" {
        return Ok(Rate::MAX);
    }
    let count = squall_units::parse_count(text.trim_end_matches("pps").trim());
    count.map(Rate::pps).map_err(|error| error.to_string())
}

/// Parses `0.1%`, `0.001`, `0.1 %`.
fn ratio(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text, 1.0),
    };
    let value = number.trim().parse::<f64>().ok().map(|value| value / scale);
    value
        .filter(|v| *v > 0.0 && *v < 1.0)
        .ok_or_else(|| format!("{text:?}: expected a ratio such as 0.1% or 0.001"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_shares_or_per_cent() {
        assert_eq!((ratio("0.1%"), ratio("0.001"), ratio("5 %")), (Ok(0.001), Ok(0.001), Ok(0.05)));
        for text in ["", "%", "0", "1", "-1%", "200%", "x"] {
            assert!(ratio(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_of_frames_need_no_unit() {
        assert_eq!(
            (pps("100k"), pps("2Mpps"), pps("max")),
            (Ok(Rate::pps(100_000)), Ok(Rate::pps(2_000_000)), Ok(Rate::MAX))
        );
        assert!(pps("fast").is_err());
    }
}
