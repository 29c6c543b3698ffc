//! The evaluation of KUTE (Zander, Kennedy, Armitage, 2005): how fast senders send and receivers
//! receive, and how regular the gaps between frames are.
//!
//! KUTE was a kernel module of Linux 2.6, compared with RUDE and CRUDE, tcpdump, and a Smartbits.
//! Here Squall's ports, MGEN and, where installed, RUDE send, and Squall, tcpdump and MGEN receive.
//! All frames carry a message of MGEN, so that every receiver accepts every sender's frames.
//!
//! The paper took the receiver's own deviation from a Smartbits, whose gaps were exact. Without
//! one, it comes from times of departure in the frames ([`gaps::added_sd_ns`]), which is an upper
//! bound: it includes everything that happens after the sender read its clock.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall::Error;
use squall_port_linux::{
    lab::{LabOptions, enter_private},
    set_gro,
};
use squall_report::render::human;
use squall_units::{Nanos, median};

use crate::{
    LOSSLESS, Work,
    compared::{Measured, Repeated, ToolInfo, two_cpus},
    gaps::{self, Gaps},
    generators::{
        model::{GeneratorRound, GeneratorStep},
        run::Place,
        tools::Generator,
        wire::{self, Frame},
    },
};

use super::receivers::{At, Receiver, Stamp};

/// Sizes, rates and times of a run of the experiment.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Octets without FCS, for the maximum rates of senders.
    pub sizes: Vec<u32>,
    /// Rates that are offered to receivers, in frames per second; then as fast as possible.
    pub offered_pps: Vec<f64>,
    /// Rates at which gaps are measured, and the senders.
    pub gap_pps: Vec<f64>,
    pub gap_senders: Vec<&'static str>,
    pub rounds: u32,
    /// Time of each maximum rate.
    pub rate_step: Nanos,
    /// Time of each measurement of gaps.
    pub gap_step: Nanos,
}

/// The rate of the distributions, as in the paper.
pub const DISTRIBUTION_PPS: f64 = 25_000.0;
/// Bins of a distribution: 1 us, to twice the nominal gap.
const BIN_NS: u64 = 1_000;
const BINS: usize = 80;
/// Octets of the frames whose gaps are measured: a message of MGEN and a signature.
const GAP_OCTETS: u32 = 128;
/// MGEN sends no smaller frame.
pub const LEAST_OCTETS: u32 = 70;
/// Time after the first frame in which caches fill; it is left out.
const WARM_UP_NS: u64 = 300_000_000;

const SENDERS: &str = "squall,squall-af_xdp,squall-xdp_live,mgen,rude";
const RECEIVERS: [&str; 4] = ["squall", "squall-af_xdp", "tcpdump", "mgen"];
/// Receivers that take the frames from the host would leave nothing to compare them with; the gaps
/// are those of the kernel's timestamps and of MGEN's socket.
const GAP_RECEIVERS: [&str; 3] = ["squall", "tcpdump", "mgen"];

impl Extent {
    /// At most 2 minutes.
    pub fn short() -> Self {
        Self {
            sizes: vec![LEAST_OCTETS, 1514],
            offered_pps: vec![100e3, 300e3],
            gap_pps: vec![5e3, DISTRIBUTION_PPS, 100e3],
            gap_senders: vec!["squall", "squall-xdp_live", "mgen", "rude"],
            rounds: 1,
            rate_step: Nanos(700_000_000),
            gap_step: Nanos(400_000_000),
        }
    }

    pub fn full() -> Self {
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

/// The measurements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Kute {
    pub tools: Vec<ToolInfo>,
    /// Maximum rates of senders.
    pub senders: Vec<GeneratorStep>,
    /// Receivers at each offered rate.
    pub receivers: Vec<ReceiverStep>,
    /// Every sender with every receiver at each rate.
    pub gaps: Vec<GapStep>,
    pub notes: Vec<String>,
}

/// A receiver at an offered rate; medians over the rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiverStep {
    pub receiver: String,
    pub sender: String,
    /// Absent for the sender's maximum.
    pub asked_pps: Option<f64>,
    /// Frames per second that the interface counted, and that the receiver recorded.
    pub arrived_pps: Option<f64>,
    pub received_pps: Option<f64>,
    /// Share of frames that arrived and were not recorded, 0 to 1.
    pub plr: Option<f64>,
    pub rounds: Vec<Reception>,
}

/// A sender with a receiver at a rate; medians over the rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GapStep {
    pub sender: String,
    pub receiver: String,
    pub asked_pps: f64,
    /// By the counters of the receiving interface.
    pub arrived_pps: Option<f64>,
    /// Standard deviation of the gaps as received: s_total.
    pub sd_ns: Option<f64>,
    pub mean_ns: Option<f64>,
    /// s_total over the mean gap.
    pub relative_sd: Option<f64>,
    /// Share of gaps within 10 % of the nominal one.
    pub within_tenth: Option<f64>,
    /// The deviation after departure, by the times in this sender's frames.
    pub added_sd_ns: Option<f64>,
    /// s_receiver of this receiver at this rate.
    pub receiver_sd_ns: Option<f64>,
    /// s_sender by equation (1).
    pub sender_sd_ns: Option<f64>,
    pub rounds: Vec<Reception>,
    /// Share of gaps by lower edge in nanoseconds, of the last round; at the rate of the
    /// distributions only.
    pub distribution: Vec<(f64, f64)>,
}

/// One run of a sender and a receiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reception {
    /// Frames that the interface counted, from the first to the last.
    pub arrived: u64,
    pub arrived_pps: f64,
    /// Frames that the receiver recorded.
    pub received: u64,
    pub gaps: Option<Gaps>,
    pub added_sd_ns: Option<f64>,
    pub failed: Option<String>,
}

impl Reception {
    /// Share of frames that arrived and were not recorded.
    fn plr(&self) -> Option<f64> {
        let lost = self.arrived.saturating_sub(self.received) as f64;
        (self.arrived > 0 && self.failed.is_none()).then(|| lost / self.arrived as f64)
    }

    fn good(&self) -> Option<&Self> {
        self.failed.is_none().then_some(self)
    }
}

/// Runs the experiment in a private lab. `progress` gets a line for each run; `stop` is polled.
///
/// The process moves into the lab's namespace and stays there. It must have one thread.
///
/// # Errors
/// No lab, or no sender. The error of a single run is in its round.
pub fn kute(
    squall: &Path,
    extent: &Extent,
    progress: &mut dyn FnMut(&str),
    stop: &dyn Fn() -> bool,
) -> Result<Kute, Error> {
    let mut result = Kute::default();
    let senders = Generator::parse_list(SENDERS, squall)?;
    let receivers = Receiver::parse_list(&RECEIVERS, squall)?;
    let mut infos: Vec<ToolInfo> = senders.iter().map(Generator::info).collect();
    let mut receiver_infos: Vec<ToolInfo> = receivers.iter().map(Receiver::info).collect();
    let work = Work::new()?;
    // Files in memory, so that a disk is no part of a receiver's rate.
    let folder = Work::within(Path::new("/dev/shm"))?;
    let plain = wire::captures(&extent.sizes, &work.0)?;
    let frame = wire::mgen_frame(GAP_OCTETS, &work.0)?;
    let options = LabOptions { mtu: 1500, ..LabOptions::default() };
    let interfaces =
        enter_private(&options).map_err(|error| Error::Environment(error.to_string()))?;
    let addresses = wire::address(&interfaces);
    let lacks = |needs: bool, info: &mut ToolInfo| {
        if let (true, None, Err(why)) = (needs, &info.why_not, &addresses) {
            info.why_not = Some(format!("it needs addresses: {why}"));
        }
    };
    senders.iter().zip(&mut infos).for_each(|(s, info)| lacks(s.needs_addresses(), info));
    receivers.iter().zip(&mut receiver_infos).for_each(|(r, i)| lacks(r.needs_addresses(), i));
    let senders: Vec<Generator> = usable(senders, &infos);
    let receivers: Vec<Receiver> = usable(receivers, &receiver_infos);
    result.tools = infos.into_iter().chain(receiver_infos).collect();
    let (sender_cpu, receiver_cpu) = two_cpus();
    let place = Place { interfaces, work: work.0.clone(), cpu: sender_cpu, step: extent.rate_step };
    let mut bench = Bench { place, folder: folder.0.clone(), receiver_cpu, progress, stop };
    result.senders = bench.maxima(&senders, &plain, extent);
    let fastest = fastest(&senders, &result.senders);
    if let Some(fastest) = fastest {
        result.receivers = bench.receivers(fastest, &receivers, &frame, extent);
    }
    bench.place.step = extent.gap_step;
    let receivers: Vec<Receiver> =
        receivers.into_iter().filter(|r| GAP_RECEIVERS.contains(&r.name.as_str())).collect();
    let senders: Vec<Generator> =
        senders.into_iter().filter(|s| extent.gap_senders.contains(&s.name.as_str())).collect();
    result.gaps = bench.gaps(&senders, &receivers, &frame, extent);
    split(&mut result.gaps);
    Ok(result)
}

fn usable<T>(all: Vec<T>, infos: &[ToolInfo]) -> Vec<T> {
    all.into_iter().zip(infos).filter(|(_, info)| info.why_not.is_none()).map(|(t, _)| t).collect()
}

/// The sender of Squall with the highest rate at the smallest size.
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

/// Where the sender writes the time of departure.
fn stamp(sender: &Generator) -> Stamp {
    match sender.name.as_str() {
        name if name.starts_with("squall") => Stamp::Signature,
        "mgen" => Stamp::Mgen,
        _ => Stamp::None,
    }
}

struct Bench<'a> {
    place: Place,
    folder: PathBuf,
    receiver_cpu: Option<u32>,
    progress: &'a mut dyn FnMut(&str),
    stop: &'a dyn Fn() -> bool,
}

impl Bench<'_> {
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
        let mut steps: Vec<GeneratorStep> =
            frames.iter().flat_map(|frame| senders.iter().map(move |s| step(s, frame))).collect();
        for round in 0..extent.rounds as usize {
            for (i, frame) in frames.iter().enumerate() {
                for turn in 0..senders.len() {
                    let at = (turn + round) % senders.len();
                    if (self.stop)() {
                        break;
                    }
                    let once = self.place.once(&senders[at], frame, None, self.stop);
                    let name = &senders[at].name;
                    (self.progress)(&format!(
                        "{name}  {} max:  {}",
                        frame.octets,
                        once.in_a_line()
                    ));
                    steps[i * senders.len() + at].rounds.push(once);
                }
            }
        }
        steps.retain(|step| !step.rounds.is_empty());
        steps.iter_mut().for_each(GeneratorStep::sum_up);
        steps
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
        let mut steps: Vec<ReceiverStep> =
            offered.iter().flat_map(|pps| receivers.iter().map(|r| step(r, *pps))).collect();
        for round in 0..extent.rounds as usize {
            for (i, pps) in offered.iter().enumerate() {
                for turn in 0..receivers.len() {
                    let at = (turn + round) % receivers.len();
                    let Some((once, _)) = self.reception(sender, &receivers[at], frame, *pps)
                    else {
                        break;
                    };
                    steps[i * receivers.len() + at].rounds.push(once);
                }
            }
        }
        steps.retain(|step| !step.rounds.is_empty());
        steps.iter_mut().for_each(ReceiverStep::sum_up);
        steps
    }

    fn gaps(
        &mut self,
        senders: &[Generator],
        receivers: &[Receiver],
        frame: &Frame,
        extent: &Extent,
    ) -> Vec<GapStep> {
        let mut steps = Vec::new();
        for pps in &extent.gap_pps {
            for sender in senders {
                steps.extend(receivers.iter().map(|receiver| GapStep {
                    sender: sender.name.clone(),
                    receiver: receiver.name.clone(),
                    asked_pps: *pps,
                    ..GapStep::default()
                }));
            }
        }
        for _ in 0..extent.rounds {
            for step in &mut steps {
                let sender = senders.iter().find(|sender| sender.name == step.sender);
                let receiver = receivers.iter().find(|receiver| receiver.name == step.receiver);
                let (sender, receiver) = sender.zip(receiver).expect("steps are made of both");
                let asked = Some(step.asked_pps);
                let Some((once, times)) = self.reception(sender, receiver, frame, asked) else {
                    break;
                };
                if step.asked_pps == DISTRIBUTION_PPS && once.failed.is_none() {
                    step.distribution = gaps::distribution(&times, BIN_NS, BINS);
                }
                step.rounds.push(once);
            }
        }
        steps.retain(|step| !step.rounds.is_empty());
        steps.iter_mut().for_each(GapStep::sum_up);
        steps
    }

    /// One run, with the times of arrival; `None` if interrupted.
    fn reception(
        &mut self,
        sender: &Generator,
        receiver: &Receiver,
        frame: &Frame,
        pps: Option<f64>,
    ) -> Option<(Reception, Vec<u64>)> {
        if (self.stop)() {
            return None;
        }
        let (once, times) = self.attempt(sender, receiver, frame, pps).unwrap_or_else(|failed| {
            (Reception { failed: Some(failed), ..Reception::default() }, Vec::new())
        });
        if (self.stop)() {
            return None;
        }
        let asked = pps.map_or("max".into(), |pps| human::si(pps, "pps"));
        let line = match (&once.failed, &once.gaps) {
            (Some(why), _) => format!("failed: {why}"),
            (None, gaps) => format!(
                "{} arrived, PLR {}, SD {}",
                human::si(once.arrived_pps, "pps"),
                once.plr().map_or("n/a".into(), human::ratio),
                gaps.map_or("n/a".into(), |gaps| human::ns(gaps.sd_ns)),
            ),
        };
        (self.progress)(&format!("{} > {}  {asked}:  {line}", sender.name, receiver.name));
        Some((once, times))
    }

    fn attempt(
        &self,
        sender: &Generator,
        receiver: &Receiver,
        frame: &Frame,
        pps: Option<f64>,
    ) -> Result<(Reception, Vec<u64>), String> {
        let stamp = stamp(sender);
        let sender = match stamp {
            Stamp::Signature => sender.clone().with("--latency"),
            _ => sender.clone(),
        };
        let (file, report) = (self.folder.join("received"), self.folder.join("report.json"));
        let _ = std::fs::remove_file(&file);
        let interface = self.place.interfaces[1].as_str();
        // Before the receiver starts: the setting stops the interface for a moment.
        let _ = set_gro(interface, sender.polls());
        let at = At {
            interface,
            file: &file,
            report: &report,
            log: &self.folder.join("log"),
            cpu: self.receiver_cpu,
        };
        let running = receiver.start(&at, self.stop)?;
        let round: GeneratorRound = self.place.once(&sender, frame, pps, self.stop);
        running.settle();
        let finished = running.finish();
        if let Some(why) = round.failed.or(finished.wrong) {
            return Err(why);
        }
        let all = receiver.read(&file, frame.octets, stamp)?;
        let window = all.window(WARM_UP_NS, self.place.step.0);
        let reception = Reception {
            arrived: round.arrived,
            arrived_pps: median(round.pps).unwrap_or(0.0),
            received: all.times.len() as u64,
            gaps: Gaps::of(&window.times, pps.map(|pps| 1e9 / pps)),
            added_sd_ns: (window.sent.len() == window.times.len())
                .then(|| gaps::added_sd_ns(&window.sent, &window.times))
                .flatten(),
            failed: None,
        };
        Ok((reception, window.times))
    }
}

impl ReceiverStep {
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
    }
}

/// Splits every deviation by equation (1). A receiver's own part at a rate is the smallest that the
/// frames of any sender show, since each is an upper bound of it.
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

/// The highest rate that each receiver recorded, and the highest that arrived without loss:
/// `(receiver, recorded, without loss)`.
pub fn receiver_maxima(steps: &[ReceiverStep]) -> Vec<(&str, f64, Option<f64>)> {
    let names = crate::render::in_order(steps.iter().map(|step| step.receiver.as_str()));
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

/// The time that the experiment takes with all tools but RUDE.
pub fn estimate(extent: &Extent) -> Duration {
    let (senders, receivers) = (SENDERS.split(',').count() as u64 - 1, RECEIVERS.len() as u64);
    let gap_senders = extent.gap_senders.len() as u64 - 1;
    let gaps = gap_senders * GAP_RECEIVERS.len() as u64 * extent.gap_pps.len() as u64;
    let runs = |count: u64, step: Nanos, more_ms: u64| {
        Duration::from_nanos(step.0) * count as u32 + Duration::from_millis(more_ms * count)
    };
    let round = runs(senders * extent.sizes.len() as u64, extent.rate_step, 700)
        + runs(receivers * (extent.offered_pps.len() as u64 + 1), extent.rate_step, 2200)
        + runs(gaps, extent.gap_step, 2000);
    round * extent.rounds
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
    fn the_short_form_takes_two_minutes_and_the_whole_covers_it() {
        let (short, full) = (Extent::short(), Extent::full());
        assert!(estimate(&short) <= Duration::from_secs(120), "{:?}", estimate(&short));
        assert!(short.gap_pps.iter().all(|pps| full.gap_pps.contains(pps)));
        assert!(full.gap_pps.contains(&DISTRIBUTION_PPS));
    }
}
