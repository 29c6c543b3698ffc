//! Compares capture tools: packet loss of each tool for a data set at a bit rate, and CPU cost.
//!
//! The method is that of evaluations of tcpdump: replay a data set at a rate, let the tool capture
//! it, and count the packets. The link is a veth pair in a namespace of this process. Three counts
//! must agree: the interface counters, the tool's own count, and the number of packets in its file
//! according to an independent reader.
//!
//! Each round has all data sets, rates and tools. They take turns because the speed of a machine
//! varies over minutes ([`design`]).
//!
//! [`generators`] does the same for programs that send. [`experiments`] repeats experiments of
//! papers.
//!
//! The input is [`Settings`], the result a [`Comparison`], which [`render`] displays. The crate
//! sends through the facade `squall`, and contains no engine, plans or headers.
#![forbid(unsafe_code)]

mod compared;
mod data;
mod design;
pub mod experiments;
mod gaps;
pub mod generators;
pub mod model;
mod process;
pub mod render;
mod sender;
mod stats;
mod tools;
mod watch;

use std::{
    fs,
    path::{Path, PathBuf},
};

use squall_pcap::CaptureReader;
use squall_port_linux::{
    child, interface_counters,
    lab::{LabOptions, enter_private},
    set_gro, shared,
};

pub use compared::Compared;
pub use data::{DataSet, SHAPES};
pub use model::{Comparison, SCHEMA, schema};
pub use tools::{DEFAULT_TOOLS, Tool};

use compared::{Repeated, measure, two_cpus};
use design::{Design, Turn};
use model::{DataInfo, Lossless, Method, Round, SearchRound, Step, Trial, WriteInfo};
use sender::Sender;
use squall::Error;
use squall_units::{FCS_LEN, Nanos, Rate, RateUnit, median};
use stats::Search;

/// The settings of a comparison.
#[derive(Clone, Debug)]
pub struct Settings {
    pub tools: Vec<Tool>,
    pub data: Vec<DataSet>,
    /// Rates to test; if empty, only `search` runs.
    pub steps: Vec<Rate>,
    pub rounds: u32,
    /// Sending time of a step.
    pub step: Nanos,
    pub write: Vec<Place>,
    /// Search for the highest rate with a loss ratio below this.
    pub search: Option<f64>,
    /// The command line, for the result.
    pub command: String,
}

/// Where tools write their output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// /dev/null: only the tool's own count is known.
    Null,
    Folder {
        name: String,
        folder: PathBuf,
    },
}

impl Place {
    /// Parses `null`, `tmpfs` (/dev/shm), `disk` (the working directory) or the path of a
    /// directory.
    ///
    /// # Errors
    /// The directory does not exist.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let folder = match text {
            "null" => return Ok(Self::Null),
            "tmpfs" => PathBuf::from("/dev/shm"),
            "disk" => std::env::current_dir()
                .map_err(|e| Error::Environment(format!("--write disk: {e}")))?,
            folder => PathBuf::from(folder),
        };
        if folder.is_dir() {
            return Ok(Self::Folder { name: text.into(), folder });
        }
        let folder = folder.display();
        Err(Error::Usage(format!(
            "--write {text}: {folder} is not a folder\n  expected null, tmpfs, disk or a folder"
        )))
    }

    fn info(&self) -> WriteInfo {
        match self {
            Self::Null => WriteInfo { name: "null".into(), folder: None },
            Self::Folder { name, folder } => {
                WriteInfo { name: name.clone(), folder: Some(folder.display().to_string()) }
            }
        }
    }
}

/// Runs the tools with all data sets, locations and rates in a private lab. `progress` receives a
/// line for each run; `stop` is polled.
///
/// The process moves into the network namespace of the lab and stays there, so it must have a
/// single thread.
///
/// # Errors
///
/// No lab, no usable tool, or no port that sends. The error of a single run is in its [`Round`].
pub fn captures(
    settings: &Settings,
    progress: &mut dyn FnMut(&str),
    stop: &dyn Fn() -> bool,
) -> Result<Comparison, Error> {
    let (mut result, began) = Comparison::begin(SCHEMA, &settings.command);
    let mtu = settings.data.iter().map(DataSet::mtu).max().unwrap_or(1500);
    // Query versions before the lab is set up; this also reports missing privileges for a lab
    // early.
    result.tools = settings.tools.iter().map(Tool::info).collect();
    let lab = LabOptions { mtu, ..LabOptions::default() };
    let interfaces = enter_private(&lab).map_err(|error| Error::Environment(error.to_string()))?;
    let (sender_cpu, tool_cpu) = two_cpus();
    result.method = Method {
        rounds: settings.rounds,
        step_s: settings.step.as_secs_f64(),
        lossless_below: settings.search.unwrap_or(LOSSLESS),
        sender_cpu,
        tool_cpu,
        mtu,
    };
    result.own.data = settings.data.iter().map(|data| data.info.clone()).collect();
    result.own.write = settings.write.iter().map(Place::info).collect();
    let mut bench = Bench { settings, interfaces, work: Work::new()?, progress, stop, result };
    bench.notes();
    bench.run()?;
    bench.result.end(began, stop());
    Ok(bench.result)
}

/// RFC 2544 requires zero loss. This tolerates a scheduling hiccup of a virtual machine, which is
/// not a property of the tool.
pub const LOSSLESS: f64 = 0.001;

/// A directory for logs and reports, removed when dropped.
struct Work(PathBuf);

impl Work {
    fn new() -> Result<Self, Error> {
        Self::within(&std::env::temp_dir())
    }

    fn within(folder: &Path) -> Result<Self, Error> {
        let made = shared::own_folder(folder, "squall-compare");
        made.map(Self).map_err(|e| {
            Error::Environment(format!("cannot make a folder in {}: {e}", folder.display()))
        })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Bench<'a> {
    settings: &'a Settings,
    interfaces: [String; 2],
    work: Work,
    progress: &'a mut dyn FnMut(&str),
    stop: &'a dyn Fn() -> bool,
    result: Comparison,
}

/// Parameters of one run.
struct Run<'a> {
    tool: &'a Tool,
    data: &'a DataSet,
    sender: &'a Sender,
    place: &'a Place,
    rate: Rate,
}

impl<'a> Bench<'a> {
    fn run(&mut self) -> Result<(), Error> {
        let tools = self.result.usable(&self.settings.tools)?;
        let settings = self.settings;
        let senders: Vec<Sender> =
            settings.data.iter().map(|data| self.sender(data)).collect::<Result<_, _>>()?;
        self.steps(&tools, &senders);
        if let Some(below) = settings.search {
            for (data, sender) in settings.data.iter().zip(&senders) {
                for place in &settings.write {
                    self.search(&tools, data, sender, place, below);
                }
            }
        }
        Ok(())
    }

    fn notes(&mut self) {
        let Comparison { method, own, notes, .. } = &mut self.result;
        if method.sender_cpu == method.tool_cpu {
            notes.push(
                "there is only one CPU: sender and tools share it, which affects both".into(),
            );
        }
        for place in &own.write {
            if place
                .folder
                .as_ref()
                .is_some_and(|f| place.name == "disk" && child::is_in_memory(Path::new(f)))
            {
                notes.push("--write disk: the working directory is in memory (tmpfs)".into());
            }
        }
    }

    fn sender(&mut self, data: &DataSet) -> Result<Sender, Error> {
        let [from, to] = self.interfaces.clone();
        // See `once`. A driver without this setting drops frames that the kernel generates; then
        // the next kind of port is chosen.
        let _ = set_gro(&to, true);
        let (sender, notes) = sender::choose(&from, data, self.result.method.sender_cpu)?;
        self.result.notes.extend(notes);
        self.result.notes.push(format!("{} is sent through {}", data.info.name, sender.address));
        Ok(sender)
    }

    fn steps(&mut self, tools: &[&Tool], senders: &[Sender]) {
        let settings = self.settings;
        let design = Design {
            data: settings.data.len(),
            write: settings.write.len(),
            rates: settings.steps.len(),
            tools: tools.len(),
            rounds: settings.rounds as usize,
        };
        let steps = self.empty_steps(tools);
        self.result.steps = measure(design, steps, |turn: Turn| {
            if (self.stop)() {
                return None;
            }
            self.once(&Run {
                tool: tools[turn.tool],
                data: &settings.data[turn.data],
                sender: &senders[turn.data],
                place: &settings.write[turn.write],
                rate: settings.steps[turn.rate],
            })
        });
    }

    /// Steps without results, in the order of [`Design::step`].
    fn empty_steps(&self, tools: &[&Tool]) -> Vec<Step> {
        let mut steps = Vec::new();
        for data in &self.settings.data {
            for place in &self.settings.write {
                for rate in &self.settings.steps {
                    steps.extend(
                        tools.iter().map(|tool| empty_step(tool, &data.info, place, *rate)),
                    );
                }
            }
        }
        steps
    }

    fn search(
        &mut self,
        tools: &[&Tool],
        data: &DataSet,
        sender: &Sender,
        place: &Place,
        below: f64,
    ) {
        let mut found: Vec<Vec<SearchRound>> = vec![Vec::new(); tools.len()];
        for _ in 0..self.settings.rounds {
            let mut searches: Vec<Search> = tools.iter().map(|_| Search::new(below)).collect();
            let mut tried = true;
            while tried && !(self.stop)() {
                tried = false;
                for (tool, search) in tools.iter().zip(&mut searches) {
                    let Some(pps) = search.next().filter(|_| !(self.stop)()) else { continue };
                    tried = true;
                    let asked = pps.is_finite().then(|| pps.round());
                    let rate = asked.map_or(Rate::MAX, |pps| Rate::pps(pps as u64));
                    let Some(round) = self.once(&Run { tool, data, sender, place, rate }) else {
                        continue;
                    };
                    search.record(Trial {
                        asked_pps: asked,
                        actual_pps: round.pps(),
                        plr: round.plr,
                        cpu_s_per_mpkt: round.per_mpkt(round.user_s + round.system_s),
                    });
                }
            }
            if (self.stop)() {
                break;
            }
            for (rounds, search) in found.iter_mut().zip(searches) {
                let (pps, sender_bound) = (search.found(), search.sender_bound());
                rounds.push(SearchRound { pps, sender_bound, trials: search.trials() });
            }
        }
        let all = tools.iter().zip(found).filter(|(_, rounds)| !rounds.is_empty());
        let lossless = all.map(|(tool, rounds)| lossless(tool, &data.info, place, rounds));
        self.result.own.lossless.extend(lossless);
    }

    /// Runs once, and reports a line of progress; `None` if interrupted.
    fn once(&mut self, run: &Run<'_>) -> Option<Round> {
        // The receiving interface polls only for frames that the kernel generates. For others, its
        // GRO would merge the TCP segments of a capture.
        let _ = set_gro(&self.interfaces[1], run.sender.address.starts_with("xdp_live:"));
        let round = self.attempt(run).unwrap_or_else(Round::failure);
        if (self.stop)() {
            return None;
        }
        let place = run.place.info().name;
        let what =
            format!("{}  {}  {place}  {}", run.tool.name, run.data.info.name, rounded(run.rate));
        (self.progress)(&format!("{what}:  {}", round.in_a_line()));
        Some(round)
    }

    fn attempt(&self, run: &Run<'_>) -> Result<Round, String> {
        let [from, to] = &self.interfaces;
        let (log, report) = (self.work.0.join("log"), self.work.0.join("report.json"));
        let _ = fs::remove_file(&report);
        let file = File::at(run.place).map_err(|e| e.to_string())?;
        let arguments = run.tool.filled(to, &file.path, &report);
        let tool = process::Running::start(
            run.tool,
            &arguments,
            &|| child::has_receiver(to),
            self.result.method.tool_cpu,
            &log,
            self.stop,
        )?;
        let counters = || -> Result<_, String> {
            let of = |name: &str| interface_counters(name).map_err(|e| format!("{name}: {e}"));
            Ok((of(from)?, of(to)?))
        };
        let (from0, to0) = counters()?;
        let sending_s = run
            .sender
            .send(run.data, run.rate, self.settings.step, self.stop)
            .map_err(|e| e.to_string())?;
        tool.settle();
        let (from1, to1) = counters()?;
        let finished = tool.finish();
        let report_text = fs::read_to_string(&report).ok();
        let mut round = Round {
            sent: from1.tx_packets - from0.tx_packets,
            arrived: to1.rx_packets - to0.rx_packets,
            arrived_octets: to1.rx_octets - to0.rx_octets,
            interface_dropped: to1.rx_dropped - to0.rx_dropped,
            sending_s,
            claim: tools::claim(&finished.output, report_text.as_deref()),
            user_s: finished.cpu.user.as_secs_f64(),
            system_s: finished.cpu.system.as_secs_f64(),
            peak_memory_octets: finished.peak_memory,
            failed: finished.wrong,
            ..Round::default()
        };
        if file.counts {
            let counted = count(&file.path);
            (round.in_file, round.cut, round.file_octets) =
                (Some(counted.packets), counted.cut, Some(counted.octets));
            round.disagreements.extend(counted.wrong);
        }
        if round.captured().is_none() && round.failed.is_none() {
            round.failed = Some("it reported no counts, and wrote no file".into());
        }
        round.judge();
        Ok(round)
    }
}

/// The output file of a tool, removed when dropped.
struct File {
    path: PathBuf,
    counts: bool,
    /// A private directory: in /dev/shm, another user could have created a link with the name of
    /// the file.
    _folder: Option<Work>,
}

impl File {
    fn at(place: &Place) -> Result<Self, Error> {
        Ok(match place {
            Place::Null => Self { path: "/dev/null".into(), counts: false, _folder: None },
            Place::Folder { folder, .. } => {
                let work = Work::within(folder)?;
                Self { path: work.0.join("capture.pcap"), counts: true, _folder: Some(work) }
            }
        })
    }
}

#[derive(Default)]
struct Counted {
    packets: u64,
    cut: u64,
    octets: u64,
    wrong: Option<String>,
}

fn count(path: &Path) -> Counted {
    let mut counted =
        Counted { octets: fs::metadata(path).map_or(0, |m| m.len()), ..Counted::default() };
    let mut read = || -> Result<(), squall_pcap::CaptureError> {
        let mut reader = CaptureReader::open(path)?;
        while let Some(packet) = reader.next()? {
            counted.packets += 1;
            counted.cut += u64::from(packet.data.len() < packet.wire_len as usize);
        }
        Ok(())
    };
    if let Err(error) = read() {
        counted.wrong = Some(format!("cannot read its file to the end: {error}"));
    }
    counted
}

fn empty_step(tool: &Tool, data: &DataInfo, place: &Place, rate: Rate) -> Step {
    let octets = data.mean_octets + f64::from(FCS_LEN);
    let asked_pps = rate.as_pps(octets, None);
    Step {
        tool: tool.name.clone(),
        data: data.name.clone(),
        write: place.info().name,
        asked: rate.to_string(),
        asked_pps,
        asked_bps: asked_pps.map(|pps| pps * 8.0 * octets),
        ..Step::default()
    }
}

fn lossless(tool: &Tool, data: &DataInfo, place: &Place, rounds: Vec<SearchRound>) -> Lossless {
    let all = || rounds.iter().map(|round| round.pps);
    let pps = median(all()).unwrap_or(0.0);
    // CPU cost is that of trials without loss, at rates near the result.
    let good =
        rounds.iter().flat_map(|round| round.trials.iter().filter(|t| t.actual_pps == round.pps));
    Lossless {
        tool: tool.name.clone(),
        data: data.name.clone(),
        write: place.info().name,
        pps,
        bps: pps * 8.0 * (data.mean_octets + f64::from(FCS_LEN)),
        pps_range: (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max)),
        sender_bound: 2 * rounds.iter().filter(|round| round.sender_bound).count() > rounds.len(),
        cpu_s_per_mpkt: median(good.filter_map(|trial| trial.cpu_s_per_mpkt)),
        rounds,
    }
}

/// Rounds a rate to text such as `781 kpps`, as rates of a search are not round numbers.
fn rounded(rate: Rate) -> String {
    match rate.unit {
        RateUnit::Pps => squall_report::render::human::si(rate.value(), "pps"),
        _ => rate.to_string(),
    }
}
