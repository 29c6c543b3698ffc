//! Schedules attacks: turns solutions into conversations with addresses and times.

use std::{net::IpAddr, sync::Arc};

use regex::Regex;
use squall_rules::{Direction, EngineVersion, Numbers, Rule, RuleSet};
use squall_units::{Nanos, mix};

use crate::{
    Exchange, Label, NearMiss, Solution, Solver, Unsolved,
    assemble::variants::{Variant, applied},
    labels::Kind,
    near_miss,
    solve::{Hosts, endpoints_of, sides},
    wire::{self, Endpoints, Frame},
};

/// Selects rules. The default selects all.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub sids: Option<Numbers>,
    /// Matches rules with any of these classtypes. If empty, every rule matches.
    pub classtypes: Vec<String>,
    /// Matches the rule's message.
    pub msg: Option<Regex>,
}

impl Choice {
    pub fn takes(&self, rule: &Rule) -> bool {
        let sid = self.sids.as_ref().is_none_or(|sids| sids.contains(rule.sid.into()));
        let class = self.classtypes.is_empty()
            || rule
                .classtype
                .as_ref()
                .is_some_and(|class| self.classtypes.iter().any(|of| of == class));
        sid && class && self.msg.as_ref().is_none_or(|msg| msg.is_match(&rule.msg))
    }
}

/// Whether to play near misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NearMisses {
    #[default]
    No,
    /// One after each attack.
    Also,
    /// Instead of attacks.
    Only,
}

/// Number, order and times of attacks.
#[derive(Clone, Debug)]
pub struct Order {
    /// Number of distinct samples per rule.
    pub samples: u32,
    /// Whether to make at least one sample for each branch of the rule's expressions.
    pub every_branch: bool,
    pub near_misses: NearMisses,
    /// Whether to shuffle the attacks. By default they are in the order of the rules.
    pub shuffle: bool,
    pub seed: u64,
    /// Number of times to play all attacks, with new addresses each time.
    pub repeat: u64,
    /// Start time of the first attack.
    pub begin: Nanos,
    pub pace: Pace,
    pub hosts: Hosts,
    /// Alternative forms of HTTP messages. Each is applied if the rule still matches.
    pub variants: Vec<Variant>,
}

/// Starts `attacks` attacks per `seconds` seconds, evenly spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub attacks: u64,
    pub seconds: u64,
}

impl Pace {
    /// Start of attack `n`, from 0.
    pub fn begin(self, n: u64) -> Nanos {
        let nanos = u128::from(n) * u128::from(self.seconds) * 1_000_000_000
            / u128::from(self.attacks.max(1));
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Pace {
    /// A rate per second, rounded to a millionth.
    pub fn of(per_second: f64) -> Self {
        match per_second {
            whole if whole.fract() == 0.0 && whole < 1e15 => {
                Pace { attacks: whole as u64, seconds: 1 }
            }
            part => {
                Pace { attacks: (part * 1e6).round().clamp(1.0, 1e18) as u64, seconds: 1_000_000 }
            }
        }
    }
}

impl Default for Order {
    fn default() -> Self {
        Order {
            samples: 1,
            every_branch: false,
            near_misses: NearMisses::No,
            shuffle: false,
            seed: 1,
            repeat: 1,
            begin: Nanos::ZERO,
            pace: Pace { attacks: 100, seconds: 1 },
            hosts: Hosts::default(),
            variants: Vec::new(),
        }
    }
}

/// The result of solving one rule.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Index in [`RuleSet::rules`].
    pub rule: usize,
    /// The samples that were solved.
    pub solved: Vec<Solved>,
    /// The first sample that was not solved.
    pub unsolved: Option<Unsolved>,
}

#[derive(Clone, Debug)]
pub struct Solved {
    pub solution: Arc<Solution>,
    /// The near miss, if one was requested and found.
    pub twin: Option<Arc<NearMiss>>,
    /// Whether at least one variant in [`Order::variants`] was applied.
    pub varied: bool,
}

/// Solves a rule for all samples that `order` requests.
///
/// Drops samples that equal an earlier one: some rules leave no choice.
pub fn solve(rules: &RuleSet, solver: &Solver<'_>, rule: usize, order: &Order) -> Outcome {
    let branches = if order.every_branch { solver.branches(rule) } else { 1 };
    let samples = order.samples.max(branches);
    let mut outcome =
        Outcome { rule, solved: Vec::with_capacity(samples as usize), unsolved: None };
    for sample in 0..samples {
        match solver.solve(rule, sample) {
            Ok(solution)
                if outcome
                    .solved
                    .iter()
                    .any(|before| before.solution.exchanges == solution.exchanges) => {}
            Ok(mut solution) => {
                let varied = vary(&mut solution, solver, &order.variants);
                let twin = match order.near_misses {
                    NearMisses::No => None,
                    NearMisses::Also | NearMisses::Only => {
                        near_miss(&solution, rules, solver).map(Arc::new)
                    }
                };
                outcome.solved.push(Solved { solution: Arc::new(solution), twin, varied });
            }
            Err(unsolved) => {
                outcome.unsolved.get_or_insert(unsolved);
                // If the first sample fails, all others would fail as well.
                if outcome.solved.is_empty() {
                    break;
                }
            }
        }
    }
    outcome
}

/// Applies each variant with which the rule still matches. Returns whether any was applied.
fn vary(solution: &mut Solution, solver: &Solver<'_>, variants: &[Variant]) -> bool {
    let mut varied = false;
    for &variant in variants {
        let mut exchanges = solution.exchanges.clone();
        for exchange in &mut exchanges {
            exchange.turns = applied(variant, std::mem::take(&mut exchange.turns));
        }
        if exchanges != solution.exchanges && solver.matches(solution, &exchanges) == Ok(true) {
            solution.exchanges = exchanges;
            varied = true;
        }
    }
    varied
}

/// Examines frames in the form in which they are sent. Evasions, tunnels, fragments and other
/// addresses may change the solver's result.
pub struct Examiner<'a> {
    compiled: squall_ids::Compiled<'a>,
    engine: EngineVersion,
}

impl<'a> Examiner<'a> {
    pub fn new(rules: &'a RuleSet, engine: EngineVersion) -> Self {
        Examiner { compiled: squall_ids::Compiled::new(rules), engine }
    }

    /// Corrects `labels` of `attack`, so that they promise only the alerts seen in its `frames`.
    ///
    /// An attack that does not match owes no alert, and rules played before it are expected only if
    /// they match. Returns false for a near miss that matches in the form in which it is sent.
    pub fn correct(&self, attack: &Attack, frames: &[Frame], labels: &mut [Label]) -> bool {
        let seen = self.seen(attack, frames);
        let rules = &self.compiled.rules().rules;
        if attack.kind == Kind::NearMiss {
            return !seen.contains(&attack.rule);
        }
        for label in labels {
            label.also.retain(|sid| seen.iter().any(|&rule| rules[rule].sid == *sid));
            if !seen.contains(&attack.rule) && label.alerts > 0 {
                label.alerts = 0;
                label.note = NOT_SEEN.into();
            }
        }
        true
    }

    /// The rules of the attack that raise an alert on `frames`.
    fn seen(&self, attack: &Attack, frames: &[Frame]) -> Vec<usize> {
        let mut which = attack.setters.to_vec();
        which.push(attack.rule);
        which.sort_unstable();
        which.dedup();
        let settings = squall_ids::Settings {
            every_view: attack.kind == Kind::NearMiss,
            ..squall_ids::Settings::of(self.engine)
        };
        let (mut engine, _) = squall_ids::Engine::new(&self.compiled, &which, settings);
        for frame in frames {
            engine.frame(Nanos(attack.begin.0.saturating_add(frame.at.0)), &frame.octets);
        }
        engine.finish();
        engine.alerts().iter().map(|alert| alert.rule).collect()
    }
}

/// The note of a label whose rule does not match the frames.
pub const NOT_SEEN: &str = "not matched by the evaluator in this form";

/// An attack or near miss with addresses and a start time.
#[derive(Clone, Debug)]
pub struct Attack {
    /// Number of the attack, from 0, in order of start.
    pub number: u64,
    pub begin: Nanos,
    /// Index in [`RuleSet::rules`].
    pub rule: usize,
    pub kind: Kind,
    /// Its conversations, in order.
    pub exchanges: Arc<Vec<Exchange>>,
    pub ends: Endpoints,
    /// Rules played earlier in the same flow.
    pub setters: Arc<Vec<usize>>,
    /// For a near miss, its difference from the attack.
    pub note: String,
}

/// Attacks in order of start.
#[derive(Clone, Debug, Default)]
pub struct Suite {
    pub attacks: Vec<Attack>,
    /// Number of attacks that are omitted because the rule allows no addresses for them.
    pub without_address: u64,
}

/// Assigns start times and addresses to all solutions.
pub fn arrange(rules: &RuleSet, outcomes: &[Outcome], order: &Order) -> Suite {
    let mut suite = Suite::default();
    let mut played: Vec<Played> = Vec::new();
    for outcome in outcomes {
        for Solved { solution, twin, .. } in &outcome.solved {
            let of = |kind, exchanges: &[Exchange], note: &str| Played {
                rule: outcome.rule,
                kind,
                exchanges: Arc::new(exchanges.to_vec()),
                setters: Arc::new(solution.setters.clone()),
                note: note.to_owned(),
            };
            if order.near_misses != NearMisses::Only {
                played.push(of(Kind::Attack, &solution.exchanges, ""));
            }
            played.extend(twin.iter().map(|twin| of(Kind::NearMiss, &twin.exchanges, &twin.note)));
        }
    }
    for round in 0..order.repeat.max(1) {
        let mut turn: Vec<&Played> = played.iter().collect();
        if order.shuffle {
            shuffle(&mut turn, mix(order.seed, round));
        }
        for Played { rule, kind, exchanges, setters, note } in turn {
            let number = suite.attacks.len() as u64;
            let together: Vec<&Rule> =
                setters.iter().chain([rule]).map(|&rule| &rules.rules[rule]).collect();
            let version = exchanges.iter().find_map(|exchange| exchange.ip_version);
            let hosts = Hosts { family: version.or(order.hosts.family), ..order.hosts.clone() };
            let Some(ends) = endpoints_of(&together, number, &hosts) else {
                suite.without_address += 1;
                continue;
            };
            suite.attacks.push(Attack {
                number,
                begin: Nanos(order.begin.0.saturating_add(order.pace.begin(number).0)),
                rule: *rule,
                kind: *kind,
                exchanges: exchanges.clone(),
                ends,
                setters: setters.clone(),
                note: note.clone(),
            });
        }
    }
    suite
}

/// A solution or near miss without addresses.
struct Played {
    rule: usize,
    kind: Kind,
    exchanges: Arc<Vec<Exchange>>,
    setters: Arc<Vec<usize>>,
    note: String,
}

/// Fisher-Yates shuffle.
fn shuffle<T>(all: &mut [T], seed: u64) {
    for i in (1..all.len()).rev() {
        all.swap(i, (mix(seed, i as u64) % (i as u64 + 1)) as usize);
    }
}

impl Attack {
    /// Whether the rule, and those played before it, allow other addresses of the client and of the
    /// server. `None`: that end keeps its address.
    pub fn allows(&self, rules: &RuleSet, client: Option<IpAddr>, server: Option<IpAddr>) -> bool {
        // An end that keeps its address has it in both directions of a rule, too.
        let client = client.unwrap_or(self.ends.client);
        let server = server.unwrap_or(self.ends.server);
        self.setters.iter().chain([&self.rule]).map(|&rule| &rules.rules[rule]).all(|rule| {
            let (clients, servers) = sides(rule);
            let (clients, servers) = (&clients.addresses, &servers.addresses);
            let is_either = rule.header.direction != Direction::To;
            clients.contains(client) && servers.contains(server)
                || is_either && servers.contains(client) && clients.contains(server)
        })
    }

    /// The frames of the attack, timed from its start, and a label for each conversation, timed
    /// from the start of the run.
    ///
    /// # Errors
    ///
    /// If the attack cannot be written as packets.
    pub fn frames(
        &self,
        rules: &RuleSet,
        settings: &wire::Settings,
    ) -> Result<(Vec<Frame>, Vec<Label>), wire::Error> {
        let settings = wire::Settings { seed: mix(settings.seed, self.number), ..settings.clone() };
        let (mut all, mut labels): (Vec<Frame>, Vec<Label>) = Default::default();
        for (nth, exchange) in self.exchanges.iter().enumerate() {
            let from = all.last().map_or(0, |last| last.at.0 + settings.gap.0);
            let mut frames = wire::frames(exchange, &self.ends, &settings)?;
            frames.iter_mut().for_each(|frame| frame.at.0 += from);
            labels.push(self.label(rules, exchange, &frames, nth + 1 == self.exchanges.len()));
            all.extend(frames);
        }
        Ok((all, labels))
    }

    /// Only the last conversation of an attack raises the alert. Earlier ones only count or set
    /// bits.
    fn label(&self, rules: &RuleSet, exchange: &Exchange, frames: &[Frame], last: bool) -> Label {
        let rule = &rules.rules[self.rule];
        let alerting =
            self.setters.iter().map(|&setter| &rules.rules[setter]).filter(|setter| !setter.silent);
        let (source, destination) = match exchange.same_address {
            true => (self.ends.client, self.ends.client),
            false => (self.ends.client, self.ends.server),
        };
        let at = |frame: Option<&Frame>| {
            Nanos(self.begin.0.saturating_add(frame.map_or(0, |frame| frame.at.0)))
        };
        Label {
            attack: self.number,
            begin: at(frames.first()),
            end: at(frames.last()),
            protocol: exchange.transport.ip_protocol(source),
            source,
            source_port: exchange.client_port,
            destination,
            destination_port: exchange.server_port,
            kind: self.kind,
            gid: rule.gid,
            sid: rule.sid,
            rev: rule.rev,
            msg: rule.msg.clone(),
            also: alerting.map(|setter| setter.sid).collect(),
            alerts: u32::from(last && self.kind == Kind::Attack),
            frames: frames.len() as u32,
            name: String::new(),
            note: self.note.clone(),
        }
    }
}
