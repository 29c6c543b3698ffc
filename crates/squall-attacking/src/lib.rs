//! The attacks of a profile. Rules are read and solved ([`squall_attacks`]), and attacks get times
//! and hosts ([`prepare`]). The result is a capture that is generated while it is sent
//! ([`Prepared::replaying`]) or, in a live run, conversations on Squall's own TCP and UDP stack
//! ([`Live`]). Frames that arrive at a second port are compared to those sent ([`PassageChecker`]).
//!
//! This crate opens no port and sends nothing: the engine plays its output like any other replay or
//! flows.
#![forbid(unsafe_code)]

mod background;
mod capture;
mod hosts;
mod list;
mod live;
mod passage;
mod rules;
mod templates;

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::{BufWriter, Write},
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use squall_attacks::{
    End, EngineVersion, Label, Solver, Unsolved,
    evade::EVASIONS,
    labels::{self, Kind},
    solve,
    suite::{self, Examiner, NOT_SEEN, NearMisses, Order, Outcome, Pace},
    wire,
};
use squall_engine::{HostedConversation, Take};
use squall_flows::{FailedConversation, HostedFlow, Served};
use squall_plan::{LiveFlows, PlanFlows, PlanReplay, ReplayHosts};
use squall_profile::{
    Attack, AttackOf, AttackPace, AttackRules, Diagnostics, ErrorCollector, IdsEngine, NearMiss,
    Profile,
};
use squall_replay::{Input, Replay, SplitBy, split};
use squall_report::report::attack::{AttackReport, UnsolvedRule};
use squall_rules::{Protocol, RuleSet};
use squall_units::{Cannot, Division, MacAddr, Nanos};

use hosts::OfHosts;

pub use capture::{Capture, Frames, Made, Merged, Overlapping, Timed, Timeline};
pub use live::Live;
pub use passage::PassageChecker;
pub use templates::list_templates;

/// Errors by origin: the user's input, its use, or the machine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Errors in the profile, each with its position.
    #[error("{0}")]
    Input(#[from] Diagnostics),
    /// A user error without a position in the profile.
    #[error("{0}")]
    Usage(String),
    /// An error of the environment, such as a file that cannot be read or written.
    #[error("{0}")]
    Environment(String),
}

impl From<Cannot> for Error {
    fn from(cannot: Cannot) -> Self {
        match cannot.is_usage() {
            true => Self::Usage(cannot.to_string()),
            false => Self::Environment(cannot.to_string()),
        }
    }
}

/// MAC addresses of clients and servers, by which a replay selects the first or the second port for
/// a frame.
const CLIENT_MAC: MacAddr = ReplayHosts::CLIENT;
const SERVER_MAC: MacAddr = ReplayHosts::SERVER;

/// Attacks that are ready to be sent.
#[derive(Clone)]
pub struct Prepared {
    /// The clients' port, which is also the servers' port if there is no `port2`. An index in
    /// [`Profile::ports`].
    pub port: usize,
    pub port2: Option<usize>,
    /// Labels in the order of the profile, and then of start times. Times are relative to the start
    /// of the run.
    pub labels: Arc<Vec<Label>>,
    pub reports: Vec<AttackReport>,
    /// For each attack section, its rules and their outcomes.
    solved: Vec<Option<SolvedRules>>,
    /// Attacks sent as frames, with one replay per attack section of the profile.
    replays: Vec<AttackReplay>,
    /// Ports on which frames are sent: the clients' port, then the servers' port.
    pub ways: Vec<usize>,
    /// Attacks played by Squall's own TCP and UDP.
    pub live: Option<Live>,
    /// The sections whose live attacks come from hosts.
    live_of_hosts: Vec<LiveSection>,
    /// The frames expected at both ports. Used only if there are two ports.
    sent: Arc<passage::Sent>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("labels", &self.labels.len())
            .field("replays", &self.replays.len())
            .finish_non_exhaustive()
    }
}

/// The frames of an `[[attack]]` section.
#[derive(Clone)]
struct AttackReplay {
    name: String,
    waits: bool,
    lines: Vec<Line>,
    /// Range of the indices of its labels, including those of attacks that are played live.
    labels: Range<usize>,
    /// Index of its report.
    report: usize,
    /// The hosts that send and receive its frames.
    hosts: Option<OfHosts>,
}

/// An `[[attack]]` section whose live conversations come from hosts.
#[derive(Clone)]
struct LiveSection {
    /// Range of the indices of its labels, including those of attacks that are sent as frames.
    labels: Range<usize>,
    /// Index of its report.
    report: usize,
    hosts: OfHosts,
}

/// The rules, the outcomes of the chosen ones, and the engine for which they are solved.
type SolvedRules = (Arc<RuleSet>, Arc<Vec<Outcome>>, EngineVersion);

/// Creates a new timeline, from its beginning, on each call.
pub type Line = Arc<dyn Fn() -> Timeline + Send + Sync>;

/// Called with the number of processed rules, and the total. Returns whether to continue.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) -> bool + Sync);

/// The result of an `[[attack]]` section.
#[derive(Default)]
struct Section {
    report: AttackReport,
    solved: Option<SolvedRules>,
    labels: Vec<Label>,
    /// Number of attack numbers that the section occupies, including those of other parts.
    numbers: u64,
    lines: Vec<Line>,
    /// In a live run, the attacks that are played as conversations.
    live: Vec<Line>,
    /// The attacks, if they are made from rules.
    suite: Option<(Arc<RuleSet>, Arc<suite::Suite>)>,
}

/// Reads, solves and schedules the attacks of `profile`, and keeps those that belong to `part`.
/// Returns `None` if there are no attacks. A live attack belongs to the part that owns its client's
/// address, any other attack to a part by its number, and a background to the first part.
///
/// # Errors
///
/// [`Error::Input`] with all errors in the profile; [`Error::Environment`] if a file cannot be
/// read; [`Error::Usage`] if `progress` returned false.
pub fn prepare(
    profile: &Profile,
    part: Division,
    progress: Progress<'_>,
) -> Result<Option<Prepared>, Error> {
    let Some(first) = profile.attacks.first() else { return Ok(None) };
    let mut mistakes = ErrorCollector::of(profile);
    for other in profile
        .attacks
        .iter()
        .filter(|other| (other.port, other.port2) != (first.port, first.port2))
    {
        let text = format!("attack {:?} uses other ports than attack {:?}", other.name, first.name);
        mistakes.at(other.at, &text, "all attacks of a run use the same ports: try two runs");
    }
    let address = |port: usize| profile.ports.get(port).map_or("", |port| port.address.as_str());
    if let Some(port2) = first.port2
        && address(first.port) == address(port2)
        && !["loop:", "null:"].iter().any(|both| address(port2).starts_with(both))
    {
        let text = format!("clients and servers are on the same interface, {}", address(port2));
        mistakes.at(
            first.at,
            &text,
            "leave port2 out to send frames of both sides on port, or name another interface",
        );
    }
    let mut prepared = Prepared {
        port: first.port,
        port2: first.port2,
        labels: Arc::default(),
        reports: Vec::new(),
        solved: Vec::new(),
        replays: Vec::new(),
        ways: Vec::new(),
        live: None,
        live_of_hosts: Vec::new(),
        sent: Arc::default(),
    };
    let (mut labels, mut live, mut numbers) = (Vec::<Label>::new(), Vec::new(), 0);
    // The group of the clients of all live attacks; inside: `None` if these are no hosts.
    let mut live_clients: Option<Option<usize>> = None;
    let mut sent = passage::Sent::default();
    for spec in &profile.attacks {
        let hosts = match squall_plan::attack_hosts(spec, profile) {
            Ok(hosts) => hosts,
            Err(mistake) => {
                mistakes.add(mistake);
                continue;
            }
        };
        let background =
            spec.background.as_ref().and_then(|file| background::survey(file, &mut mistakes));
        let section = match &spec.what {
            AttackOf::Rules(of) => {
                let recorder = SentRecorder { before: labels.len(), sent: &mut sent, hosts };
                let of = (of, background.as_ref(), hosts, part);
                from_rules(profile, spec, of, progress, recorder, &mut mistakes)?
            }
            AttackOf::Template { name, options } => {
                let recorder = SentRecorder { before: labels.len(), sent: &mut sent, hosts };
                let of = (name, &options[..], hosts);
                templates::section(profile, spec, of, part, recorder, &mut mistakes)
            }
        };
        let Some(mut section) = section else { continue };
        section.report.name.clone_from(&spec.name);
        let end = section.labels.iter().map(|label| label.end).max().unwrap_or(Nanos::ZERO);
        section.report.duration_s = end.as_secs_f64();
        if let Some(background) = background.filter(|_| part.has(0)) {
            let (line, benign) = background.line(end, section.numbers);
            section.numbers += benign.len() as u64;
            section.lines.push(line);
            section.labels.extend(benign);
        }
        // Attack numbers are unique within a run.
        let before = numbers;
        numbers += section.numbers;
        let first_label = labels.len();
        labels.extend(
            section
                .labels
                .into_iter()
                .map(|label| Label { attack: label.attack + before, ..label }),
        );
        if !section.live.is_empty() {
            let clients = hosts.and_then(|hosts| hosts.clients);
            if *live_clients.get_or_insert(clients) != clients {
                let text = format!("attack {:?}: its clients are not those of another", spec.name);
                let hint = "all live attacks of a run have the same clients: try live = false";
                mistakes.at(spec.at, &text, hint);
            }
        }
        if let Some(hosts) = hosts.filter(|_| !section.live.is_empty()) {
            let hosts = OfHosts { hosts, first: before, suite: section.suite.clone() };
            let (labels, report) = (first_label..labels.len(), prepared.reports.len());
            prepared.live_of_hosts.push(LiveSection { labels, report, hosts });
        }
        section.lines.retain(|line| line().next().is_some());
        let awaited = spec.after.is_some() || is_awaited(profile, &spec.name);
        // A section without frames becomes a replay that ends at once, so sources that wait for it
        // can start.
        if !section.lines.is_empty() || awaited {
            prepared.replays.push(AttackReplay {
                name: spec.name.clone(),
                waits: spec.after.is_some(),
                lines: section.lines,
                labels: first_label..labels.len(),
                report: prepared.reports.len(),
                hosts: hosts.map(|hosts| OfHosts { hosts, first: before, suite: section.suite }),
            });
        }
        live.extend(section.live);
        prepared.reports.push(section.report);
        prepared.solved.push(section.solved);
    }
    mistakes.check()?;
    let clients = live_clients.flatten();
    prepared.live = (!live.is_empty()).then(|| Live::of(live, &labels, clients)).transpose()?;
    prepared.labels = Arc::new(labels);
    prepared.sent = Arc::new(sent);
    Ok(Some(prepared))
}

/// Whether any source in the profile waits for the end of `name`.
fn is_awaited(profile: &Profile, name: &str) -> bool {
    let streams = profile.streams.iter().map(|stream| &stream.after);
    let replays = profile.replays.iter().map(|replay| &replay.after);
    let templates = profile.flows.iter().flat_map(|flows| &flows.templates);
    let templates = templates.map(|template| &template.after);
    let attacks = profile.attacks.iter().map(|attack| &attack.after);
    let mut all = streams.chain(replays).chain(templates).chain(attacks).flatten();
    all.any(|after| after.text == name)
}

/// Records the frames expected at the other port.
struct SentRecorder<'a> {
    /// Number of labels of earlier attack sections.
    before: usize,
    sent: &'a mut passage::Sent,
    hosts: Option<ReplayHosts>,
}

impl SentRecorder<'_> {
    /// Adds the frames of an attack. `label` is the index of its last label within its section.
    fn add(&mut self, spec: &Attack, label: usize, frames: &[wire::Frame]) {
        let own = match self.hosts {
            None => None,
            Some(ReplayHosts { servers: None, .. }) => Some(End::Server),
            Some(ReplayHosts { clients: None, .. }) => Some(End::Client),
            // Nothing would tell the frames of one attack from those of another.
            Some(_) => return,
        };
        if spec.port2.is_some() {
            let frames = frames.iter().map(|frame| (frame.from, frame.octets.as_slice()));
            self.sent.add(self.before + label, own, frames);
        }
    }
}

fn from_rules(
    profile: &Profile,
    spec: &Attack,
    (of, background, hosts_of, part): (
        &AttackRules,
        Option<&background::Survey>,
        Option<ReplayHosts>,
        Division,
    ),
    progress: Progress<'_>,
    mut recorder: SentRecorder<'_>,
    mistakes: &mut ErrorCollector<'_>,
) -> Result<Option<Section>, Error> {
    let named = of.engine.map(|engine| match engine {
        IdsEngine::Suricata7 => EngineVersion::Suricata7,
        IdsEngine::Suricata8 => EngineVersion::Suricata8,
        IdsEngine::Snort2 => EngineVersion::Snort2,
        IdsEngine::Snort3 => EngineVersion::Snort3,
    });
    let engine = named.unwrap_or_default();
    let Some(rules) = rules::read(of, named, mistakes)? else { return Ok(None) };
    let Some(choice) = rules::choose(of, mistakes) else { return Ok(None) };
    let (Some(wire), Some(mut hosts)) =
        (rules::wire(profile, spec, hosts_of, mistakes), rules::hosts(spec, mistakes))
    else {
        return Ok(None);
    };
    let is_ipv6 = hosts_of.map(|hosts| hosts.is_ipv6(profile));
    hosts.family = is_ipv6.map(|is_ipv6| if is_ipv6 { 6 } else { 4 }).or(hosts.family);
    let chosen: Vec<usize> =
        (0..rules.rules.len()).filter(|&rule| choice.takes(&rules.rules[rule])).collect();
    if chosen.is_empty() {
        none_chosen(spec, &rules, mistakes);
        return Ok(None);
    }
    let mut order = order(profile, spec, hosts);
    let outcomes = solve_all(&rules, &chosen, &order, engine, progress)?;
    let report = attack_report(&rules, &outcomes, &order);
    order.pace = match spec.pace {
        AttackPace::PerSecond(rate) => Pace::of(rate),
        AttackPace::Share(share) => {
            let Some(octets) = background.map(background::Survey::octets_per_second) else {
                return Ok(None);
            };
            let mean = mean_octets(&suite::arrange(&rules, &outcomes, &order), &rules, &wire);
            Pace::of((octets * share / (1.0 - share) / mean.max(1.0)).max(1e-6))
        }
    };
    let mut suite = suite::arrange(&rules, &outcomes, &order);
    if spec.port2.is_some() || hosts_of.is_some() {
        for attack in &mut suite.attacks {
            let server = hosts_of.map_or(SERVER_MAC, |_| ReplayHosts::server_mac(attack.number));
            (attack.ends.client_mac, attack.ends.server_mac) = (CLIENT_MAC.0, server.0);
        }
    }
    let numbers = suite.attacks.last().map_or(0, |last| last.number + 1);
    let all = suite.attacks.len();
    // Rules may leave only the family of addresses that the hosts do not have.
    suite.attacks.retain(|attack| is_ipv6.is_none_or(|is| attack.ends.client.is_ipv6() == is));
    suite.without_address += (all - suite.attacks.len()) as u64;
    suite.attacks.retain(|attack| attack.begin < spec.end());
    let is_live = |of: &suite::Attack| spec.live && live::is_conversation(of, &wire);
    suite.attacks.retain(|attack| match is_live(attack) {
        true => part.has_address(attack.ends.client),
        false => part.has(attack.number),
    });
    let examiner = Examiner::new(&rules, engine);
    let mut examined = Examined { report, labels: Vec::new(), kept: Vec::new() };
    let mut attacks = suite.attacks.into_iter().peekable();
    while attacks.peek().is_some() {
        let some: Vec<_> = attacks.by_ref().take(EXAMINED_AT_ONCE).collect();
        // The evaluator must examine the frames as sent: evasions change the frames that the solver
        // examined.
        let made = in_parallel(&some, |attack| {
            let (frames, mut labels) = attack.frames(&rules, &wire)?;
            let problem = if !examiner.correct(attack, &frames, &mut labels) {
                Some("near_miss_seen")
            } else if let Some(of) = hosts_of
                && !hosts::are_in_headers_only(attack, &frames, of, &rules, &wire)?
            {
                Some("own_address")
            } else if spec.port2.is_none() && is_live(attack) && live::needs_server(attack, &rules)
            {
                Some("needs_server")
            } else {
                None
            };
            Ok::<_, wire::Error>((frames, labels, problem))
        });
        for (attack, made) in some.into_iter().zip(made) {
            examined.add((spec, is_live(&attack)), attack, made, &mut recorder);
        }
    }
    let Examined { mut report, labels, kept } = examined;
    let mut section = Section { numbers, ..Section::default() };
    let without_address = suite.without_address;
    let suite = suite::Suite { attacks: kept, without_address };
    if suite.without_address > 0 {
        report.left_out.insert("no_address".into(), suite.without_address);
    }
    section.solved = Some((rules.clone(), Arc::new(outcomes), engine));
    let suite = Arc::new(suite);
    section.suite = Some((rules.clone(), suite.clone()));
    let made = Made { rules, suite, wire, which: |_, _| true };
    let line = |which: fn(&suite::Attack, &wire::Settings) -> bool| -> Line {
        let made = Made { which, ..made.clone() };
        Arc::new(move || Box::new(Frames::new(made.clone())))
    };
    if spec.live {
        // The link of the conversations adds the headers of hosts.
        let (vlans, sessions) = (Vec::new(), [false; 2]);
        let plain = wire::Settings { vlans, sessions, ..made.wire.clone() };
        let plain = Made { which: live::is_conversation, wire: plain, ..made.clone() };
        let conversations = move || -> Timeline { Box::new(Frames::new(plain.clone())) };
        section.live.push(Arc::new(conversations));
        section.lines.push(line(|attack, settings| !live::is_conversation(attack, settings)));
    } else {
        section.lines.push(line(|_, _| true));
    }
    Ok(Some(Section { report, labels, ..section }))
}

fn none_chosen(spec: &Attack, rules: &RuleSet, mistakes: &mut ErrorCollector<'_>) {
    let what = match (rules.rules.len(), rules.problems.first()) {
        (0, Some(first)) => {
            let first = rules::problem_line(rules, first);
            format!("there is no rule: {} lines cannot be read\n    {first}", rules.problems.len())
        }
        (0, None) => "there is no rule".into(),
        (n, _) => format!("none of {n} rules is selected"),
    };
    mistakes.at(
        spec.at,
        &format!("attack {:?}: {what}", spec.name),
        if rules.rules.is_empty() {
            "expected rules of Snort 2, Snort 3 or Suricata in files, or in folders of *.rules"
        } else {
            "`squall attack RULES --list` shows all rules"
        },
    );
}

/// The schedule of the attacks with all settings except the rate: a rate given as a share of the
/// traffic depends on the size of the attacks that are found.
fn order(profile: &Profile, spec: &Attack, hosts: solve::Hosts) -> Order {
    Order {
        samples: spec.samples,
        every_branch: spec.every_branch,
        near_misses: match spec.near_miss {
            NearMiss::No => NearMisses::No,
            NearMiss::Also => NearMisses::Also,
            NearMiss::Only => NearMisses::Only,
        },
        shuffle: spec.shuffle,
        seed: profile.effective_seed(),
        repeat: spec.repeat,
        begin: spec.start,
        pace: Pace { attacks: 1, seconds: 1 },
        hosts,
        variants: rules::variants(spec),
    }
}

/// Mean size in octets of those attacks that can be written as frames.
fn mean_octets(suite: &suite::Suite, rules: &RuleSet, wire: &wire::Settings) -> f64 {
    let all: usize = suite
        .attacks
        .iter()
        .filter_map(|attack| attack.frames(rules, wire).ok())
        .map(|(frames, _)| frames.iter().map(|frame| frame.octets.len()).sum::<usize>())
        .sum();
    all as f64 / suite.attacks.len().max(1) as f64
}

/// The attacks that the evaluator has examined.
struct Examined {
    report: AttackReport,
    labels: Vec<Label>,
    kept: Vec<suite::Attack>,
}

/// Frames, labels, and why the attack is left out: a near miss that matches in the form in which it
/// is sent, frames that have the address of a host outside their headers, or a conversation whose
/// alert depends on a server outside of Squall.
type Written = Result<(Vec<wire::Frame>, Vec<Label>, Option<&'static str>), wire::Error>;

impl Examined {
    fn add(
        &mut self,
        (spec, is_live): (&Attack, bool),
        attack: suite::Attack,
        made: Option<Written>,
        recorder: &mut SentRecorder<'_>,
    ) {
        let report = &mut self.report;
        let mut leave_out = |why: &str| *report.left_out.entry(why.into()).or_default() += 1;
        let (frames, of) = match made {
            Some(Ok((frames, of, None))) => (frames, of),
            Some(Ok((.., Some(why)))) => return leave_out(why),
            Some(Err(error)) => {
                leave_out("not_written");
                report.left_out_first.get_or_insert_with(|| error.to_string());
                return;
            }
            None => return leave_out("defect"),
        };
        report.frames += frames.len() as u64;
        report.octets += frames.iter().map(|frame| frame.octets.len() as u64).sum::<u64>();
        *(if attack.kind == Kind::Attack {
            &mut report.attacks
        } else {
            &mut report.near_misses
        }) += 1;
        report.unseen += u64::from(of.iter().any(|label| label.note == NOT_SEEN));
        self.labels.extend(of);
        if !is_live {
            recorder.add(spec, self.labels.len() - 1, &frames);
        }
        self.kept.push(attack);
    }
}

/// Number of attacks to examine at once. Bounds the memory for their frames.
const EXAMINED_AT_ONCE: usize = 1024;

/// Maps all elements in parallel on all CPUs, and keeps their order. An element is `None` if its
/// call panicked.
fn in_parallel<T: Sync, R: Send>(all: &[T], of: impl Fn(&T) -> R + Sync) -> Vec<Option<R>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = all.len().div_ceil(threads).max(1);
    let each = |one| catch_unwind(AssertUnwindSafe(|| of(one))).ok();
    thread::scope(|scope| {
        let parts =
            all.chunks(share).map(|part| scope.spawn(|| part.iter().map(each).collect::<Vec<_>>()));
        let running: Vec<_> = parts.collect();
        running.into_iter().flat_map(|part| part.join().expect("panics are caught")).collect()
    })
}

/// Solves the chosen rules on all CPUs.
fn solve_all(
    rules: &RuleSet,
    chosen: &[usize],
    order: &Order,
    engine: EngineVersion,
    progress: Progress<'_>,
) -> Result<Vec<Outcome>, Error> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(chosen.len().max(1));
    let (next, done, stopped) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let outcomes = Mutex::new(Vec::with_capacity(chosen.len()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let settings =
                    solve::Settings { seed: order.seed, engine, ..solve::Settings::default() };
                let solver = Solver::new(rules, settings);
                while !stopped.load(Ordering::Relaxed) {
                    let Some(&rule) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) else {
                        break;
                    };
                    // A panic is a defect of the solver, which must not prevent attacks from the
                    // other rules.
                    let solved = catch_unwind(AssertUnwindSafe(|| {
                        suite::solve(rules, &solver, rule, order)
                    }));
                    let outcome = solved.unwrap_or_else(|_| defect(rules, rule));
                    outcomes.lock().expect("no thread panics while it holds it").push(outcome);
                    if !progress(done.fetch_add(1, Ordering::Relaxed) + 1, chosen.len()) {
                        stopped.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    if stopped.into_inner() {
        return Err(Error::Usage("stopped before all rules were solved; nothing was sent".into()));
    }
    let mut outcomes = outcomes.into_inner().expect("all threads ended well");
    outcomes.sort_unstable_by_key(|outcome| outcome.rule);
    Ok(outcomes)
}

fn defect(rules: &RuleSet, rule: usize) -> Outcome {
    let text =
        format!("sid {} triggers a defect of Squall: please report it", rules.rules[rule].sid);
    Outcome { rule, solved: Vec::new(), unsolved: Some(Unsolved::defect(rule, text)) }
}

/// Summarizes the outcomes of solving.
fn attack_report(rules: &RuleSet, outcomes: &[Outcome], order: &Order) -> AttackReport {
    let mut report = AttackReport {
        rules: rules.rules.len() as u64,
        chosen: outcomes.len() as u64,
        ..AttackReport::default()
    };
    for problem in &rules.problems {
        *report.problems.entry(snake(problem.reason)).or_default() += 1;
    }
    report.problems_first = rules
        .problems
        .iter()
        .take(MAX_NAMED)
        .map(|problem| rules::problem_line(rules, problem))
        .collect();
    for outcome in outcomes {
        if !outcome.solved.is_empty() {
            report.solved += 1;
            report.varied += u64::from(outcome.solved.iter().any(|solved| solved.varied));
            let without = outcome.solved.iter().any(|solved| solved.twin.is_none());
            report.without_twin += u64::from(order.near_misses != NearMisses::No && without);
        } else if let Some(unsolved) = &outcome.unsolved {
            let rule = &rules.rules[outcome.rule];
            let reason = snake(unsolved.reason);
            *report.unsolved.entry(reason.clone()).or_default() += 1;
            let (msg, text) = (rule.msg.clone(), unsolved.text.clone());
            report.unsolved_rules.push(UnsolvedRule {
                gid: rule.gid,
                sid: rule.sid,
                msg,
                reason,
                text,
            });
        }
    }
    report
}

/// Maximum number of problems to list.
const MAX_NAMED: usize = 20;

/// Converts `NoSetter` to `no_setter`, as in reports.
fn snake(name: impl std::fmt::Debug) -> String {
    let name = format!("{name:?}");
    let mut text = String::with_capacity(name.len() + 4);
    for (i, c) in name.chars().enumerate() {
        if c.is_uppercase() && i > 0 {
            text.push('_');
        }
        text.extend(c.to_lowercase());
    }
    text
}

/// The output of `--evasions`.
pub fn list_evasions() -> String {
    let mut text = String::new();
    for help in EVASIONS {
        let argument = help
            .argument
            .map_or_else(String::new, |of| format!("={} ({} to {})", of.name, of.least, of.most));
        text += &format!(
            "{}{argument}\n    {}\n    assumes: {}\n",
            help.name, help.description, help.assumes
        );
    }
    for variant in rules::all_variants() {
        let (name, description) = (variant.name(), variant.description());
        text += &format!(
            "{name}\n    HTTP: {description}\n    assumes: nothing; if the rule no longer matches, its \
             attack is sent unchanged\n"
        );
    }
    text
}

impl Prepared {
    /// Sets the ports on which frames are sent, and the start time of captures that are written
    /// there.
    pub fn settle(&mut self, ports: &mut [squall_profile::Port]) {
        self.ways = [self.port].into_iter().chain(self.port2).collect();
        // Times near 1970 look like an error in a capture.
        for &port in &self.ways {
            let address = &mut ports[port].address;
            if address.starts_with("pcap:")
                && !address.contains(",epoch=")
                && !address.contains(",read")
            {
                address.push_str(&format!(",epoch={EPOCH_S}"));
            }
        }
    }

    /// All attacks that are sent as frames, as replays with the names of the attacks.
    pub fn replaying(&self) -> Vec<PlanReplay> {
        let of = |attack: &AttackReplay| PlanReplay {
            waits: attack.waits,
            hosts: attack.hosts.as_ref().map(|of| of.hosts),
            ..self.replay(&attack.name, attack.lines.clone())
        };
        self.replays.iter().map(of).collect()
    }

    fn replay(&self, name: &str, lines: Vec<Line>) -> PlanReplay {
        let open = move || -> std::io::Result<Box<dyn std::io::Read + Send>> {
            Ok(Box::new(Capture::new(Merged::new(lines.iter().map(|line| line()).collect()))))
        };
        let by_mac =
            || SplitBy::Rule(Box::new(split::Split::new(split::By::Mac(vec![CLIENT_MAC]))));
        let replay = Replay {
            inputs: vec![Input { name: name.into(), open: Arc::new(open), once: false }],
            since: Some(0),
            split: self.port2.map(|_| by_mac()),
            flows: None,
            ..Replay::default()
        };
        // Labels have the planned times, so neither a part nor a multiplier may change the replay.
        PlanReplay { fixed: true, ..PlanReplay::new(name, self.ways.clone(), replay) }
    }

    /// Replaces planned times in the labels by departure times, and addresses by those of the hosts
    /// that were used. `at` maps an attack's name and a planned time to the departure time; `None`
    /// if the frame was not sent. `used` maps its name to the hosts of its conversations. `hosted`
    /// has the live conversations of hosts in `played`.
    #[must_use]
    pub fn left<'a>(
        &self,
        at: impl Fn(&str, Nanos) -> Option<Nanos>,
        used: impl Fn(&str) -> Option<&'a HashMap<u64, HostedConversation>>,
        (played, hosted): (Option<&PlanFlows>, &[HostedFlow]),
    ) -> Self {
        let mut left = self.clone();
        let labels = Arc::make_mut(&mut left.labels);
        // Live conversations follow their own schedule.
        let live = self.live.as_ref().map(Live::labeled).unwrap_or_default();
        let live_attacks: HashSet<u64> = live.iter().map(|i| labels[*i].attack).collect();
        for attack in &self.replays {
            let of = |time| at(&attack.name, time).unwrap_or(NEVER);
            for i in attack.labels.clone().filter(|i| !live.contains(i)) {
                let label = &mut labels[i];
                (label.begin, label.end) = (of(label.begin), of(label.end));
            }
            if let Some((hosts, used)) = attack.hosts.as_ref().zip(used(&attack.name)) {
                let of_section = &mut labels[attack.labels.clone()];
                let outcome = hosts.settle(of_section, (used, &live_attacks), of);
                outcome.add_to(&mut left.reports[attack.report]);
            }
        }
        let script = played.and_then(|played| played.script(true));
        if let (Some(live), Some(script)) = (&self.live, script) {
            let ends = live.of_hosts(&script, hosted, self.port2.is_some());
            for LiveSection { labels: range, report, hosts } in &self.live_of_hosts {
                let of = |i: usize| ends.get(&(range.start + i)).copied();
                let of_section = &mut labels[range.clone()];
                let outcome = hosts.settle_live(of_section, &live_attacks, of);
                outcome.add_to(&mut left.reports[*report]);
            }
        }
        left
    }

    /// The live attack section in `profile`, which has the networks of the conversations.
    pub fn speaker<'a>(&self, profile: &'a Profile) -> Option<&'a Attack> {
        profile.attacks.iter().find(|attack| self.live.is_some() && attack.live)
    }

    /// As [`Prepared::speaker`], but with the conversations.
    pub fn live_flows<'a>(&self, profile: &'a Profile) -> Option<LiveFlows<'a>> {
        let (attack, live) = self.speaker(profile).zip(self.live.as_ref())?;
        let (flows, import) = (Live::flows(attack), (*live.import).clone());
        Some(LiveFlows { flows, attack, import, hosts: live.hosts() })
    }

    /// A summary of the attacks as text.
    pub fn summary(&self) -> String {
        self.reports.iter().map(squall_report::render::one_attack).collect()
    }

    /// One line per rule with its outcome, followed by one line per line that is not a rule.
    pub fn list(&self) -> String {
        let sections = self.solved.iter().zip(&self.reports);
        let lists = sections.filter_map(|(solved, report)| {
            let (rules, outcomes, _) = solved.as_ref()?;
            let problems =
                rules.problems.iter().map(|problem| rules::problem_line(rules, problem) + "\n");
            Some(list::attack_list(rules, outcomes, report) + &problems.collect::<String>())
        });
        lists.collect()
    }

    /// The outcome for each rule.
    pub fn rules(&self) -> Vec<RuleOutcome> {
        let mut frames = std::collections::HashMap::new();
        for label in self.labels.iter().filter(|label| label.kind == Kind::Attack) {
            frames.entry((label.gid, label.sid)).or_insert(label.frames);
        }
        let mut all = Vec::new();
        for (rules, outcomes, _) in self.solved.iter().flatten() {
            all.extend(outcomes.iter().map(|outcome| {
                let rule = &rules.rules[outcome.rule];
                let frames = frames.get(&(rule.gid, rule.sid)).copied().unwrap_or(0);
                RuleOutcome::of(rule, outcome, u64::from(frames))
            }));
        }
        all
    }

    /// How each rule was solved and the origin of each octet, or why it was not solved.
    pub fn explain(&self) -> String {
        let mut text = String::new();
        for (rules, outcomes, engine) in self.solved.iter().flatten() {
            for outcome in outcomes.iter() {
                for solved in &outcome.solved {
                    text.push_str(&solve::explain(rules, &solved.solution).to_string());
                }
                if let (true, Some(unsolved)) = (outcome.solved.is_empty(), &outcome.unsolved) {
                    let reason = snake(unsolved.reason);
                    text.push_str(
                        &solve::explain_unsolved(rules, unsolved, reason, *engine).to_string(),
                    );
                }
            }
        }
        text
    }

    /// All frames in order of departure.
    pub fn timeline(&self) -> impl Iterator<Item = Timed> + use<> {
        Merged::new(self.replays.iter().flat_map(|of| &of.lines).map(|line| line()).collect())
    }

    /// Attaches taps to both ports. Returns `None` if there is only one port, or if one of them
    /// does not receive.
    pub fn listen(
        &self,
        take: &mut [Take],
        receives: impl Fn(usize) -> bool,
    ) -> Option<PassageChecker> {
        let [clients, servers] = self.ways[..] else { return None };
        // The run may have left out the prepared frames.
        if self.replays.is_empty()
            || self.sent.is_empty()
            || !receives(clients)
            || !receives(servers)
        {
            return None;
        }
        let received = PassageChecker::of(self.sent.clone());
        for (port, from) in [(clients, End::Server), (servers, End::Client)] {
            take[port].sinks.push(received.sinks(from));
        }
        Some(received)
    }

    /// The reports, with the effect of a device between the ports: determined from the
    /// conversations `played` until `end`, those that `failed` or were `served`, and the prepared
    /// frames `received`.
    pub fn reports(
        &self,
        played: Option<&PlanFlows>,
        (failed, served): (&[FailedConversation], &Served),
        received: Option<&PassageChecker>,
        end: Nanos,
        whole: bool,
    ) -> Vec<AttackReport> {
        let mut reports = self.reports.clone();
        let script = played.and_then(|played| played.script(true));
        let mut passages = match (&self.live, script) {
            // Without a port of its own, only others know what arrived at a server.
            (Some(live), Some(script)) if self.port2.is_some() => {
                live.passage(&self.labels, script, (failed, served), end)
            }
            _ => live::Passages::default(),
        };
        if let Some(received) = received {
            passages.add_frames(received, &self.labels, end);
        }
        // Passages are counted for all attack sections together.
        if let Some(report) = reports.first_mut().filter(|_| whole) {
            report.passage = passages.report();
        }
        reports
    }

    /// Labels of attacks that started before `end`. An attack that was cut short need not raise an
    /// alert.
    pub fn sent_until(&self, end: Nanos) -> Vec<Label> {
        // If the run sent no frames, only live attacks count.
        let live = self.live.as_ref().filter(|_| self.replays.is_empty()).map(Live::labeled);
        let leaves = |i: &usize| live.as_ref().is_none_or(|live| live.contains(i));
        let started = (0..self.labels.len())
            .filter(leaves)
            .map(|i| &self.labels[i])
            .filter(|label| label.begin <= end);
        let mut labels: Vec<Label> = started.cloned().collect();
        // In a live run, an answer may arrive later than planned.
        let late = if self.live.is_some() { Nanos(u64::MAX) } else { end };
        for label in labels.iter_mut().filter(|label| label.end > late) {
            label.alerts = 0;
            label.note = "cut short".into();
        }
        labels.sort_by_key(|label| label.begin);
        labels
    }
}

/// The outcome of a rule.
#[derive(
    Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct RuleOutcome {
    pub gid: u32,
    pub sid: u32,
    pub rev: u32,
    pub msg: String,
    pub classtype: Option<String>,
    /// An attack was made, and verified by the evaluator.
    pub solved: bool,
    /// If not solved: the reason as a word by which reports group, and in `why` as text.
    pub reason: Option<String>,
    pub why: Option<String>,
    /// Protocol of the rule: `tcp`, `http`.
    pub protocol: String,
    /// Frames of an attack; 0 if it is not part of the run.
    pub frames: u64,
    /// Buffers in which its contents are searched, by Suricata's names.
    pub buffers: Vec<String>,
}

impl RuleOutcome {
    fn of(rule: &squall_rules::Rule, outcome: &Outcome, frames: u64) -> Self {
        let solved = !outcome.solved.is_empty();
        let unsolved = outcome.unsolved.as_ref().filter(|_| !solved);
        let mut buffers: Vec<String> = Vec::new();
        for inspection in &rule.inspections {
            let name = inspection.buffer.name().to_owned();
            if !buffers.contains(&name) {
                buffers.push(name);
            }
        }
        Self {
            gid: rule.gid,
            sid: rule.sid,
            rev: rule.rev,
            msg: rule.msg.clone(),
            classtype: rule.classtype.clone(),
            solved,
            reason: unsolved.map(|unsolved| snake(unsolved.reason)),
            why: unsolved.map(|unsolved| unsolved.text.clone()),
            protocol: protocol_name(rule.header.protocol),
            frames,
            buffers,
        }
    }
}

/// The protocol in rule notation.
fn protocol_name(protocol: Protocol) -> String {
    match protocol {
        Protocol::Application(application) => snake(application),
        Protocol::TcpSegments => "tcp-pkt".into(),
        Protocol::TcpReassembled => "tcp-stream".into(),
        other => snake(other),
    }
}

/// A time after the end of any run.
const NEVER: Nanos = Nanos(u64::MAX);
/// Start time of captures with attacks: 2023-11-14.
const EPOCH_S: u64 = 1_700_000_000;

/// The file for labels. It is created before the run, so an unwritable path is reported early.
pub struct LabelFile {
    name: String,
    file: File,
}

pub fn create(path: &Path) -> Result<LabelFile, Error> {
    let name = path.display().to_string();
    let file = File::create(path).map_err(|error| Cannot::write(path, &error))?;
    Ok(LabelFile { name, file })
}

impl LabelFile {
    /// `epoch` is the start time of the run.
    pub fn write(self, labels: &[Label], epoch: Nanos) -> Result<(), Error> {
        let jsonl = [".jsonl", ".json", ".ndjson"].iter().any(|end| self.name.ends_with(end));
        let format = if jsonl { labels::Format::Jsonl } else { labels::Format::Csv };
        let written = || -> std::io::Result<()> {
            let mut writer = labels::Writer::new(BufWriter::new(self.file), format)?;
            for label in labels {
                let (begin, end) =
                    (label.begin.0.saturating_add(epoch.0), label.end.0.saturating_add(epoch.0));
                writer.write(&Label { begin: Nanos(begin), end: Nanos(end), ..label.clone() })?;
            }
            writer.into_inner().flush()
        };
        Ok(written().map_err(|error| Cannot::write(&self.name, &error))?)
    }
}
