//! The evaluation of KUTE (Zander, Kennedy, Armitage, 2005): maximum rates of senders and
//! receivers, and regularity of the gaps between frames.
//!
//! KUTE was a kernel module for Linux 2.6. The paper compared it with RUDE and CRUDE, tcpdump, and
//! a Smartbits. Here, Squall's ports, MGEN and, if installed, RUDE send, and Squall, tcpdump and
//! MGEN receive. All frames carry an MGEN message, so every receiver accepts the frames of every
//! sender.
//!
//! The paper took the receiver's own deviation from the exact gaps of a Smartbits. Without one, it
//! is computed from the departure times in the frames ([`gaps::added_sd_ns`]). This is an upper
//! bound, as it includes everything that happens after the sender has read its clock.

use std::path::{Path, PathBuf};

use squall::Error;
use squall_port_linux::set_gro;
use squall_report::render::human;
use squall_units::{Nanos, median};

use super::{
    Known, Run,
    model::{Axis, Figure, Style, Table, Unit, Value},
    receivers::{At, Receiver, Stamp},
};
use crate::{
    LOSSLESS, Work,
    compared::{Measured, Repeated, ToolInfo, measure, two_cpus},
    design::Design,
    gaps::{self, Gaps},
    generators::{
        self, Generator, GeneratorRound, GeneratorStep,
        run::Place,
        wire::{self, Frame},
    },
    render::in_order,
};

pub const EXPERIMENT: Known = Known {
    name: "kute",
    title: "Maximum rates of senders and receivers, and the gaps between packets",
    paper: "Zander, Kennedy, Armitage: KUTE, a high performance kernel-based UDP traffic engine, \
            CAIA technical report 050118A, 2005",
    about: "Maximum sender and receiver rates, standard deviation and distribution of \
            inter-arrival times, and the sender's part of it",
    takes_s: [115, 3000],
    run,
};

/// Sizes, rates and durations of the experiment.
#[derive(Clone, Debug)]
struct Extent {
    /// Frame sizes for the maximum rates of senders, octets without FCS.
    sizes: Vec<u32>,
    /// Rates offered to receivers, frames per second. The maximum rate follows.
    offered_pps: Vec<f64>,
    /// Rates at which gaps are measured, frames per second, and the senders.
    gap_pps: Vec<f64>,
    gap_senders: Vec<&'static str>,
    rounds: u32,
    /// Duration of each measurement of a maximum rate.
    rate_step: Nanos,
    /// Duration of each measurement of gaps.
    gap_step: Nanos,
}

/// Rate of the measurements that have a distribution (as in the paper).
const DISTRIBUTION_PPS: f64 = 25_000.0;
/// Bin width of a distribution: 1 us. Bins end at twice the nominal gap.
const BIN_NS: u64 = 1_000;
const BINS: usize = 80;
/// Size of the frames whose gaps are measured: an MGEN message and a signature, octets without FCS.
const GAP_OCTETS: u32 = 128;
/// Smallest frame that MGEN can send, octets without FCS.
const LEAST_OCTETS: u32 = 70;
/// Excluded time after the first frame, in which caches fill.
const WARM_UP_NS: u64 = 300_000_000;

const SENDERS: &str = "squall,squall-af_xdp,squall-xdp_live,mgen,rude";
const RECEIVERS: [&str; 4] = ["squall", "squall-af_xdp", "tcpdump", "mgen"];
/// Receivers of gaps. If a receiver takes frames away from the host, there is nothing to compare
/// its gaps with. The gaps are from kernel timestamps, or those of MGEN's socket.
const GAP_RECEIVERS: [&str; 3] = ["squall", "tcpdump", "mgen"];

impl Extent {
    /// Each tool with each data set at each rate, in every round.
    fn design(&self, data: usize, rates: usize, tools: usize) -> Design {
        Design { data, write: 1, rates, tools, rounds: self.rounds as usize }
    }

    fn short() -> Self {
        Self {
            sizes: vec![LEAST_OCTETS, 1514],
            offered_pps: vec![300e3],
            gap_pps: vec![5e3, DISTRIBUTION_PPS, 100e3],
            gap_senders: vec!["squall", "squall-xdp_live", "mgen", "rude"],
            rounds: 1,
            rate_step: Nanos(600_000_000),
            gap_step: Nanos(400_000_000),
        }
    }

    fn full() -> Self {
        Self {
            sizes: vec![LEAST_OCTETS, 124, 252, 508, 1020, 1514],
            offered_pps: vec![50e3, 100e3, 150e3, 200e3, 300e3, 400e3, 500e3, 700e3],
            gap_pps: vec![1e3, 2e3, 5e3, 10e3, 25e3, 50e3, 75e3, 100e3, 150e3],
            gap_senders: SENDERS.split(',').collect(),
            rounds: 5,
            rate_step: Nanos(3_000_000_000),
            gap_step: Nanos(1_000_000_000),
        }
    }
}

/// A receiver at an offered rate; medians over the rounds.
#[derive(Clone, Debug, Default)]
struct ReceiverStep {
    receiver: String,
    sender: String,
    /// Absent for the maximum rate of the sender.
    asked_pps: Option<f64>,
    /// Frames per second counted by the interface, and recorded by the receiver.
    arrived_pps: Option<f64>,
    received_pps: Option<f64>,
    /// Fraction of the frames that arrived but were not recorded, 0 to 1.
    plr: Option<f64>,
    rounds: Vec<Reception>,
}

/// A sender with a receiver at a rate; medians over the rounds.
#[derive(Clone, Debug, Default)]
struct GapStep {
    sender: String,
    receiver: String,
    asked_pps: f64,
    /// Frames per second, from the counters of the receiving interface.
    arrived_pps: Option<f64>,
    /// Standard deviation of the received gaps: s_total of the paper.
    sd_ns: Option<f64>,
    mean_ns: Option<f64>,
    /// s_total divided by the mean gap.
    relative_sd: Option<f64>,
    /// Fraction of gaps within 10 % of the nominal gap.
    within_tenth: Option<f64>,
    /// Deviation added after departure, from the departure times in this sender's frames.
    added_sd_ns: Option<f64>,
    /// s_receiver of the paper, of this receiver at this rate.
    receiver_sd_ns: Option<f64>,
    /// s_sender of the paper, by its equation (1).
    sender_sd_ns: Option<f64>,
    rounds: Vec<Reception>,
    /// [`Reception::distribution`] of the last successful round.
    distribution: Vec<(f64, f64)>,
}

/// One run of a sender and a receiver.
#[derive(Clone, Debug, Default)]
struct Reception {
    /// Frames that the interface counted, from first to last.
    arrived: u64,
    arrived_pps: f64,
    /// Frames that the receiver recorded.
    received: u64,
    gaps: Option<Gaps>,
    added_sd_ns: Option<f64>,
    /// Fraction of gaps by lower edge of the bin, nanoseconds; only at the rate of the
    /// distributions.
    distribution: Vec<(f64, f64)>,
    failed: Option<String>,
}

impl Reception {
    /// Fraction of the frames that arrived but were not recorded.
    fn plr(&self) -> Option<f64> {
        let lost = self.arrived.saturating_sub(self.received) as f64;
        (self.arrived > 0 && self.failed.is_none()).then(|| lost / self.arrived as f64)
    }

    fn good(&self) -> Option<&Self> {
        self.failed.is_none().then_some(self)
    }
}

fn run(run: &mut Run<'_>) -> Result<(), Error> {
    let settings = run.settings;
    let mut extent = if settings.full { Extent::full() } else { Extent::short() };
    extent.rate_step = run.step(extent.rate_step, extent.rate_step);
    extent.gap_step = run.step(extent.gap_step, extent.gap_step);
    let senders =
        Generator::parse_list(settings.tools.as_deref().unwrap_or(SENDERS), &settings.squall)?;
    let receivers = Receiver::parse_list(&RECEIVERS, &settings.squall)?;
    let mut sender_infos: Vec<ToolInfo> = senders.iter().map(Generator::info).collect();
    let mut receiver_infos: Vec<ToolInfo> = receivers.iter().map(Receiver::info).collect();
    // Files are in memory, so a disk does not limit the receivers.
    let folder = Work::within(Path::new("/dev/shm"))?;
    let plain = wire::captures(&extent.sizes, &run.work.0)?;
    let frame = wire::mgen_frame(GAP_OCTETS, &run.work.0)?;
    let interfaces = run.enter_lab(1500)?;
    let addresses = wire::address(&interfaces);
    if let Err(why) = &addresses {
        let lacking = senders.iter().map(Generator::needs_addresses).zip(&mut sender_infos);
        let lacking =
            lacking.chain(receivers.iter().map(Receiver::needs_addresses).zip(&mut receiver_infos));
        lacking.filter(|(needs, _)| *needs).for_each(|(_, info)| info.lacks_addresses(why));
    }
    let senders = run.usable(senders, &sender_infos)?;
    let receivers = run.usable(receivers, &receiver_infos)?;
    run.result.tools = sender_infos.into_iter().chain(receiver_infos).collect();
    describe(run, &extent);
    let (cpu, receiver_cpu) = two_cpus();
    let (work, step) = (run.work.0.clone(), extent.rate_step);
    let attacks = generators::attacks(&senders, &work);
    let place = Place { interfaces, work, cpu, step, limits: None, attacks };
    let mut bench = Bench { place, folder: folder.0.clone(), receiver_cpu, run };
    let maxima = bench.maxima(&senders, &plain, &extent);
    let receptions = match fastest(&senders, &maxima) {
        Some(fastest) => bench.receivers(fastest, &receivers, &frame, &extent),
        None => Vec::new(),
    };
    bench.place.step = extent.gap_step;
    let receivers: Vec<Receiver> =
        receivers.into_iter().filter(|r| GAP_RECEIVERS.contains(&r.name.as_str())).collect();
    let senders: Vec<Generator> =
        senders.into_iter().filter(|s| extent.gap_senders.contains(&s.name.as_str())).collect();
    let mut gaps = bench.gaps(&senders, &receivers, &frame, &extent);
    split(&mut gaps);
    present(run, &maxima, &receptions, &gaps);
    Ok(())
}

fn describe(run: &mut Run<'_>, extent: &Extent) {
    run.fact("Rounds", extent.rounds.to_string());
    run.fact("Time of each maximum rate", human::seconds(extent.rate_step.0 as f64 / 1e9));
    run.fact("Time of each measurement of gaps", human::seconds(extent.gap_step.0 as f64 / 1e9));
    run.fact(
        "Frames for gaps",
        format!("{GAP_OCTETS} octets without FCS: a message of MGEN in UDP"),
    );
    run.fact("Equation (1)", "s_total² = s_sender² + s_receiver²");
    run.missing("KUTE", "its kernel module is for Linux 2.6");
    if !run.result.tools.iter().any(|tool| tool.name == "rude" && tool.why_not.is_none()) {
        run.missing(
            "RUDE and CRUDE",
            "RUDE is not installed; MGEN sends and receives in its place",
        );
    }
    run.missing(
        "the Smartbits 2000 as exact sender",
        "s_receiver comes from times of departure in the frames, an upper bound",
    );
    run.missing("Gigabit Ethernet", "the link is a veth pair, where sending includes receiving");
    run.missing(
        "the paper's own numbers",
        "they are not part of Squall; compare with the paper itself",
    );
}

/// The Squall sender with the highest rate at the smallest frame size.
fn fastest<'a>(senders: &'a [Generator], steps: &[GeneratorStep]) -> Option<&'a Generator> {
    let least = steps.iter().map(|step| step.octets).min()?;
    let mean = |name: &str| {
        let step = steps.iter().find(|step| step.tool == name && step.octets == least)?;
        step.mean_pps
    };
    let rated = senders.iter().filter(|sender| stamp(sender) == Stamp::Signature);
    let rated = rated.filter_map(|sender| Some((sender, mean(&sender.name)?)));
    rated.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(sender, _)| sender)
}

/// Position of the departure time in the sender's frames.
fn stamp(sender: &Generator) -> Stamp {
    match sender.name.as_str() {
        name if name.starts_with("squall") => Stamp::Signature,
        "mgen" => Stamp::Mgen,
        _ => Stamp::None,
    }
}

struct Bench<'a, 'r> {
    place: Place,
    folder: PathBuf,
    receiver_cpu: Option<u32>,
    run: &'a mut Run<'r>,
}

impl Bench<'_, '_> {
    fn maxima(
        &mut self,
        senders: &[Generator],
        frames: &[Frame],
        extent: &Extent,
    ) -> Vec<GeneratorStep> {
        let step = |sender: &Generator, frame: &Frame| GeneratorStep {
            tool: sender.name.clone(),
            octets: frame.octets,
            asked: "max".into(),
            ..GeneratorStep::default()
        };
        let steps = frames.iter().flat_map(|frame| senders.iter().map(move |s| step(s, frame)));
        let design = extent.design(frames.len(), 1, senders.len());
        measure(design, steps.collect(), |turn| {
            if self.run.stopped() {
                return None;
            }
            let (sender, frame) = (&senders[turn.tool], &frames[turn.data]);
            let once = self.place.once(sender, frame, None, self.run.stop(), &mut || ());
            let line = once.in_a_line();
            self.run.progress(&format!("{}  {} max:  {line}", sender.name, frame.octets));
            Some(once)
        })
    }

    fn receivers(
        &mut self,
        sender: &Generator,
        receivers: &[Receiver],
        frame: &Frame,
        extent: &Extent,
    ) -> Vec<ReceiverStep> {
        let offered: Vec<Option<f64>> =
            extent.offered_pps.iter().map(|pps| Some(*pps)).chain([None]).collect();
        let step = |receiver: &Receiver, asked_pps: Option<f64>| ReceiverStep {
            receiver: receiver.name.clone(),
            sender: sender.name.clone(),
            asked_pps,
            ..ReceiverStep::default()
        };
        let steps = offered.iter().flat_map(|pps| receivers.iter().map(|r| step(r, *pps)));
        let design = extent.design(1, offered.len(), receivers.len());
        measure(design, steps.collect(), |turn| {
            self.reception(sender, &receivers[turn.tool], frame, offered[turn.rate])
        })
    }

    fn gaps(
        &mut self,
        senders: &[Generator],
        receivers: &[Receiver],
        frame: &Frame,
        extent: &Extent,
    ) -> Vec<GapStep> {
        let pairs: Vec<(&Generator, &Receiver)> =
            senders.iter().flat_map(|s| receivers.iter().map(move |r| (s, r))).collect();
        let step = |(sender, receiver): &(&Generator, &Receiver), asked_pps: f64| GapStep {
            sender: sender.name.clone(),
            receiver: receiver.name.clone(),
            asked_pps,
            ..GapStep::default()
        };
        let steps = extent.gap_pps.iter().flat_map(|pps| pairs.iter().map(|p| step(p, *pps)));
        let design = extent.design(1, extent.gap_pps.len(), pairs.len());
        measure(design, steps.collect(), |turn| {
            let (sender, receiver) = pairs[turn.tool];
            self.reception(sender, receiver, frame, Some(extent.gap_pps[turn.rate]))
        })
    }

    /// One run; `None` if interrupted.
    fn reception(
        &mut self,
        sender: &Generator,
        receiver: &Receiver,
        frame: &Frame,
        pps: Option<f64>,
    ) -> Option<Reception> {
        if self.run.stopped() {
            return None;
        }
        let once = self.attempt(sender, receiver, frame, pps).unwrap_or_else(Reception::failure);
        if self.run.stopped() {
            return None;
        }
        let asked = pps.map_or("max".into(), |pps| human::si(pps, "pps"));
        let line = once.in_a_line();
        self.run.progress(&format!("{} > {}  {asked}:  {line}", sender.name, receiver.name));
        Some(once)
    }

    fn attempt(
        &self,
        sender: &Generator,
        receiver: &Receiver,
        frame: &Frame,
        pps: Option<f64>,
    ) -> Result<Reception, String> {
        let stamp = stamp(sender);
        let sender = match stamp {
            Stamp::Signature => sender.clone().with("--latency"),
            _ => sender.clone(),
        };
        let (file, report) = (self.folder.join("received"), self.folder.join("report.json"));
        let _ = std::fs::remove_file(&file);
        let interface = self.place.interfaces[1].as_str();
        // Before the receiver starts, because this setting takes the interface down for a moment.
        let _ = set_gro(interface, sender.polls());
        let at = At {
            interface,
            file: &file,
            report: &report,
            log: &self.folder.join("log"),
            cpu: self.receiver_cpu,
        };
        let running = receiver.start(&at, self.run.stop())?;
        let round: GeneratorRound =
            self.place.once(&sender, frame, pps, self.run.stop(), &mut || ());
        let finished = receiver.finish(running, &file);
        if let Some(why) = &round.failed {
            return Err(why.clone());
        }
        finished.map_err(|why| format!("{}: {why}", receiver.name))?;
        let all = receiver.read(&file, frame.octets, stamp)?;
        let window = all.window(WARM_UP_NS, self.place.step.0);
        let distributed = pps == Some(DISTRIBUTION_PPS);
        Ok(Reception {
            arrived: round.arrived,
            arrived_pps: median(round.pps()).unwrap_or(0.0),
            received: all.times.len() as u64,
            gaps: Gaps::of(&window.times, pps.map(|pps| 1e9 / pps)),
            added_sd_ns: (window.sent.len() == window.times.len())
                .then(|| gaps::added_sd_ns(&window.sent, &window.times))
                .flatten(),
            distribution: if distributed {
                gaps::distribution(&window.times, BIN_NS, BINS)
            } else {
                Vec::new()
            },
            failed: None,
        })
    }
}

impl Repeated for Reception {
    fn failure(why: String) -> Self {
        Self { failed: Some(why), ..Self::default() }
    }

    fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    fn wrong(&self) -> Option<&str> {
        None
    }

    fn measured(&self) -> String {
        format!(
            "{} arrived, PLR {}, SD {}",
            human::si(self.arrived_pps, "pps"),
            self.plr().map_or("n/a".into(), human::ratio),
            self.gaps.map_or("n/a".into(), |gaps| human::ns(gaps.sd_ns)),
        )
    }
}

impl Measured for ReceiverStep {
    type Round = Reception;

    fn rounds(&self) -> &Vec<Reception> {
        &self.rounds
    }

    fn rounds_mut(&mut self) -> &mut Vec<Reception> {
        &mut self.rounds
    }

    fn sum_up(&mut self) {
        let good = || self.rounds.iter().filter_map(Reception::good);
        self.arrived_pps = median(good().map(|round| round.arrived_pps));
        self.plr = median(good().filter_map(Reception::plr));
        self.received_pps = median(
            good().filter_map(|round| round.plr().map(|plr| round.arrived_pps * (1.0 - plr))),
        );
    }
}

impl GapStep {
    /// Whether the sender missed the requested rate.
    fn is_off_rate(&self) -> bool {
        self.arrived_pps.is_some_and(|pps| (pps / self.asked_pps - 1.0).abs() > 0.02)
    }
}

impl Measured for GapStep {
    type Round = Reception;

    fn rounds(&self) -> &Vec<Reception> {
        &self.rounds
    }

    fn rounds_mut(&mut self) -> &mut Vec<Reception> {
        &mut self.rounds
    }

    fn sum_up(&mut self) {
        let good = || self.rounds.iter().filter_map(Reception::good);
        let of = |f: &dyn Fn(&Gaps) -> Option<f64>| {
            median(good().filter_map(|round| round.gaps.as_ref()).filter_map(f))
        };
        self.sd_ns = of(&|gaps| Some(gaps.sd_ns));
        self.mean_ns = of(&|gaps| Some(gaps.mean_ns));
        self.relative_sd = of(&|gaps| Some(gaps.relative_sd()));
        self.within_tenth = of(&|gaps| gaps.within_tenth);
        self.arrived_pps = median(good().map(|round| round.arrived_pps));
        self.added_sd_ns = median(good().filter_map(|round| round.added_sd_ns));
        self.distribution =
            good().next_back().map(|round| round.distribution.clone()).unwrap_or_default();
    }
}

/// Separates sender and receiver in each deviation by equation (1). The receiver's part at a rate
/// is the minimum over all senders, since each of their values is an upper bound.
fn split(steps: &mut [GapStep]) {
    let known: Vec<(String, f64, f64)> = steps
        .iter()
        .filter_map(|step| Some((step.receiver.clone(), step.asked_pps, step.added_sd_ns?)))
        .collect();
    for step in steps {
        let of_receiver = known
            .iter()
            .filter(|(receiver, pps, _)| *receiver == step.receiver && *pps == step.asked_pps)
            .map(|(.., sd)| *sd);
        step.receiver_sd_ns = of_receiver.min_by(f64::total_cmp);
        step.sender_sd_ns = step
            .sd_ns
            .zip(step.receiver_sd_ns)
            .map(|(total, receiver)| squall_units::remaining_sd(total, receiver));
    }
}

/// The highest rate that each receiver recorded, and the highest without loss: `(receiver,
/// recorded, without loss)`.
fn receiver_maxima(steps: &[ReceiverStep]) -> Vec<(&str, f64, Option<f64>)> {
    let names = in_order(steps.iter().map(|step| step.receiver.as_str()));
    let of = |name| steps.iter().filter(move |step| step.receiver == name);
    let most = |values: &mut dyn Iterator<Item = f64>| values.max_by(f64::total_cmp);
    names
        .into_iter()
        .filter_map(|name| {
            let recorded = most(&mut of(name).filter_map(|step| step.received_pps))?;
            let lossless = of(name).filter(|step| step.plr.is_some_and(|plr| plr < LOSSLESS));
            Some((name, recorded, most(&mut lossless.filter_map(|step| step.arrived_pps))))
        })
        .collect()
}

fn present(
    run: &mut Run<'_>,
    maxima: &[GeneratorStep],
    receptions: &[ReceiverStep],
    gaps: &[GapStep],
) {
    let failures = maxima
        .iter()
        .flat_map(|step| step.rounds.iter().map(move |round| (&step.tool, round.failed.clone())))
        .chain(receptions.iter().flat_map(|step| failed(&step.receiver, &step.rounds)))
        .chain(gaps.iter().flat_map(|step| failed(&step.sender, &step.rounds)));
    let notes: Vec<String> =
        failures.filter_map(|(name, why)| Some(format!("{name}: it failed: {}", why?))).collect();
    for note in in_order(notes.iter().map(String::as_str)) {
        run.note(note);
    }
    let off = gaps.iter().filter(|step| step.is_off_rate()).count();
    if off > 0 {
        run.note(format!(
            "{off} of {} senders and rates were off the asked rate by more than 2 %: the sender \
             reached its limit, or the machine was busy",
            gaps.len()
        ));
    }
    let result = &mut run.result;
    result.tables.push(sender_table(maxima));
    result.tables.push(receiver_table(receptions));
    result.tables.push(reception_table(receptions));
    result.tables.push(gap_table(gaps));
    result.tables.push(distribution_table(gaps));
    result.figures.push(reception_figure(receptions));
    for receiver in in_order(gaps.iter().map(|step| step.receiver.as_str())) {
        let of: Vec<&GapStep> = gaps.iter().filter(|step| step.receiver == receiver).collect();
        result.figures.extend(gap_figures(receiver, &of));
    }
}

fn failed<'a>(
    name: &'a String,
    rounds: &'a [Reception],
) -> impl Iterator<Item = (&'a String, Option<String>)> {
    rounds.iter().map(move |round| (name, round.failed.clone()))
}

fn sender_table(steps: &[GeneratorStep]) -> Table {
    let mut table = Table::new(
        "senders",
        "Maximum sender rates (the paper's Table 1)",
        "Counted at the receiving interface. Octets without FCS; Mb/s on layer 2, with FCS.",
        &[
            ("Sender", Unit::Count),
            ("Octets", Unit::Number),
            ("Mean, packets/s", Unit::Number),
            ("SD, packets/s", Unit::Number),
            ("Mb/s", Unit::Number),
            ("CPUs", Unit::Number),
        ],
    );
    for step in steps {
        table.row(vec![
            step.tool.as_str().into(),
            f64::from(step.octets).into(),
            step.mean_pps.into(),
            step.sd_pps.into(),
            step.bps_l2.map(|bps| bps / 1e6).into(),
            step.user_cpus.zip(step.system_cpus).map(|(user, system)| user + system).into(),
        ]);
    }
    table
}

fn receiver_table(steps: &[ReceiverStep]) -> Table {
    let sender = steps.first().map_or("no sender", |step| step.sender.as_str());
    let mut table = Table::new(
        "receivers",
        "Maximum receiver rates (the paper's Table 2)",
        &format!(
            "{sender} sent. Recorded: the highest rate at which frames are in the receiver's file. \
             Without loss: the highest rate of those offered that arrived, of which less than \
             0.1 % are missing in the file."
        ),
        &[
            ("Receiver", Unit::Count),
            ("Recorded, packets/s", Unit::Number),
            ("Without loss, packets/s", Unit::Number),
        ],
    );
    for (receiver, recorded, lossless) in receiver_maxima(steps) {
        table.row(vec![receiver.into(), recorded.into(), lossless.into()]);
    }
    table
}

fn reception_table(steps: &[ReceiverStep]) -> Table {
    let mut table = Table::new(
        "offered",
        "Receivers at each offered rate",
        "Arrived: counted by the interface. Lost: share of those that arrived and are not in the \
         receiver's file.",
        &[
            ("Receiver", Unit::Count),
            ("Asked, packets/s", Unit::Number),
            ("Arrived, packets/s", Unit::Number),
            ("Recorded, packets/s", Unit::Number),
            ("Lost", Unit::Ratio),
        ],
    );
    for step in steps {
        table.row(vec![
            step.receiver.as_str().into(),
            step.asked_pps.map_or("max".into(), Into::into),
            step.arrived_pps.into(),
            step.received_pps.into(),
            step.plr.into(),
        ]);
    }
    table
}

fn reception_figure(steps: &[ReceiverStep]) -> Figure {
    let (x, y) = (Axis::new("arrived", Unit::Pps), Axis::new("recorded", Unit::Pps));
    let mut figure =
        Figure::lines("receivers", "Recorded against arrived rate", "one line a receiver", x, y);
    for receiver in in_order(steps.iter().map(|step| step.receiver.as_str())) {
        let of = steps.iter().filter(|step| step.receiver == receiver);
        let mut points: Vec<_> =
            of.filter_map(|step| step.arrived_pps.zip(step.received_pps)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        figure.series(receiver, points);
    }
    figure
}

fn gap_table(steps: &[GapStep]) -> Table {
    let mut table = Table::new(
        "gaps",
        "Inter-arrival times",
        "Medians of the rounds. Sender's error: s_sender by equation (1). Receiver SD: s_receiver, \
         the smallest deviation that the times of departure in any sender's frames show.",
        &[
            ("Sender", Unit::Count),
            ("Receiver", Unit::Count),
            ("Asked, packets/s", Unit::Number),
            ("Arrived, packets/s", Unit::Number),
            ("Mean gap", Unit::Ns),
            ("SD", Unit::Ns),
            ("Receiver SD", Unit::Ns),
            ("Sender's error", Unit::Ns),
            ("SD over mean", Unit::Ratio),
            ("Within 10 %", Unit::Ratio),
        ],
    );
    for step in steps {
        table.row(vec![
            step.sender.as_str().into(),
            step.receiver.as_str().into(),
            step.asked_pps.into(),
            step.arrived_pps.into(),
            step.mean_ns.into(),
            step.sd_ns.into(),
            step.receiver_sd_ns.into(),
            step.sender_sd_ns.into(),
            step.relative_sd.into(),
            step.within_tenth.into(),
        ]);
    }
    table
}

/// Extremes and percentiles of the gaps that have a distribution figure.
fn distribution_table(steps: &[GapStep]) -> Table {
    let mut table = Table::new(
        "distributions",
        "Inter-arrival times at 25 kpps",
        "Of the last round; the nominal gap is 40 us. Times are whole microseconds in MGEN's log.",
        &[
            ("Sender", Unit::Count),
            ("Receiver", Unit::Count),
            ("Gaps", Unit::Number),
            ("Smallest", Unit::Ns),
            ("Median", Unit::Ns),
            ("99 %", Unit::Ns),
            ("Largest", Unit::Ns),
        ],
    );
    for step in steps.iter().filter(|step| step.asked_pps == DISTRIBUTION_PPS) {
        let last = step.rounds.iter().filter_map(|round| round.good()?.gaps).next_back();
        let Some(gaps) = last else { continue };
        let times = [gaps.min_ns, gaps.p50_ns, gaps.p99_ns, gaps.max_ns];
        let mut cells = vec![
            step.sender.as_str().into(),
            step.receiver.as_str().into(),
            (gaps.count as f64).into(),
        ];
        cells.extend(times.map(|ns| Value::from(ns as f64)));
        table.row(cells);
    }
    table
}

/// The figures of a receiver, with a series for each sender.
fn gap_figures(receiver: &str, steps: &[&GapStep]) -> [Figure; 4] {
    let rate = || Axis::new("packets per second", Unit::Pps);
    let against_rate = |id: &str, title: &str, y: Axis, value: fn(&GapStep) -> Option<f64>| {
        let (id, title) = (format!("{id}-{receiver}"), format!("{title}, {receiver} receives"));
        let mut figure = Figure::lines(&id, &title, "median of the rounds", rate(), y);
        for sender in in_order(steps.iter().map(|step| step.sender.as_str())) {
            let of = steps.iter().filter(|step| step.sender == sender);
            figure.series(sender, of.filter_map(|step| Some((step.asked_pps, value(step)?))));
        }
        figure
    };
    let sd = || Axis::new("standard deviation", Unit::Ns).log();
    let mut distribution = Figure::lines(
        &format!("distribution-{receiver}"),
        &format!("Distribution of inter-arrival times at 25 kpps, {receiver} receives"),
        "share of gaps in bins of 1 us; the last bin has all longer ones",
        Axis::new("gap", Unit::Ns),
        Axis::new("share", Unit::Ratio),
    );
    for step in steps.iter().filter(|step| !step.distribution.is_empty()) {
        distribution.series(&step.sender, step.distribution.iter().copied());
        if let Some(series) = distribution.series.last_mut() {
            series.style = Style::Steps;
        }
    }
    [
        against_rate("sd", "Standard deviation of inter-arrival times", sd(), |s| s.sd_ns),
        distribution,
        against_rate("error", "Sender's error by equation (1)", sd(), |s| s.sender_sd_ns),
        against_rate(
            "relative",
            "Standard deviation over mean",
            Axis::new("SD over mean", Unit::Ratio).log(),
            |s| s.relative_sd,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(sender: &str, receiver: &str, sd: f64, added: Option<f64>) -> GapStep {
        let gaps = Gaps { sd_ns: sd, mean_ns: 40_000.0, count: 10, ..Gaps::default() };
        let round = Reception { gaps: Some(gaps), added_sd_ns: added, ..Reception::default() };
        let mut step = GapStep {
            sender: sender.into(),
            receiver: receiver.into(),
            asked_pps: 25e3,
            rounds: vec![round],
            ..GapStep::default()
        };
        step.sum_up();
        step
    }

    #[test]
    fn the_smallest_bound_of_a_receiver_is_taken_out_of_all_senders() {
        let mut steps = vec![
            step("squall", "tcpdump", 5_000.0, Some(3_000.0)),
            step("squall-xdp_live", "tcpdump", 3_100.0, Some(3_000.0)),
            step("squall-af_xdp", "tcpdump", 9_000.0, Some(8_000.0)),
            step("rude", "tcpdump", 13_000.0, None),
            step("mgen", "mgen", 50_000.0, Some(30_000.0)),
            step("rude", "none", 7.0, None),
        ];
        split(&mut steps);
        let sender: Vec<_> = steps.iter().map(|step| step.sender_sd_ns.map(f64::round)).collect();
        let expected = [4_000.0, 781.0, 8_485.0, 12_649.0, 40_000.0].map(Some);
        assert_eq!(sender[..5], expected);
        assert_eq!((sender[5], steps[5].receiver_sd_ns), (None, None));
        assert_eq!(steps[0].relative_sd, Some(0.125));
    }

    #[test]
    fn a_receivers_maximum_is_what_it_recorded_and_not_what_arrived() {
        let step = |receiver: &str, arrived_pps: f64, received: u64| {
            let round = Reception { arrived: 1000, arrived_pps, received, ..Reception::default() };
            let mut step = ReceiverStep {
                receiver: receiver.into(),
                rounds: vec![round.clone(), Reception { failed: Some("no".into()), ..round }],
                ..ReceiverStep::default()
            };
            step.sum_up();
            step
        };
        let steps = [step("a", 100e3, 1000), step("a", 400e3, 500), step("b", 100e3, 500)];
        assert_eq!(receiver_maxima(&steps), [("a", 200e3, Some(100e3)), ("b", 50e3, None)]);
        assert_eq!(steps[1].plr, Some(0.5));
    }

    #[test]
    fn the_whole_covers_the_short_form() {
        let (short, full) = (Extent::short(), Extent::full());
        assert!(short.gap_pps.iter().all(|pps| full.gap_pps.contains(pps)));
        assert!(short.gap_senders.iter().all(|name| full.gap_senders.contains(name)));
        assert!(full.gap_pps.contains(&DISTRIBUTION_PPS));
    }

    #[test]
    fn each_receiver_has_its_figures_with_a_line_for_each_sender() {
        let mut first = step("squall", "tcpdump", 5_000.0, Some(3_000.0));
        first.distribution = vec![(39_000.0, 0.5), (40_000.0, 0.5), (41_000.0, 0.0)];
        let second = step("mgen", "tcpdump", 9_000.0, None);
        let figures = gap_figures("tcpdump", &[&first, &second]);
        let lines = |i: usize| -> Vec<(&str, usize)> {
            figures[i].series.iter().map(|s| (s.label.as_str(), s.points.len())).collect()
        };
        assert_eq!(lines(0), [("squall", 1), ("mgen", 1)]);
        assert_eq!(lines(1), [("squall", 3)]);
        // Before `split`, the sender's part is unknown.
        assert_eq!(lines(2), [("squall", 0), ("mgen", 0)]);
        assert_eq!(figures[3].series[0].points, [(25e3, 0.125)]);
    }
}
