//! Solves rules: finds the conversations that match them.
//!
//! ```text
//! rule -> way (plan: sender and protocol; mixed: place of the payload's contents)
//!      -> octets of each buffer (expression, layout, transform) -> messages (assemble) with headers (packet)
//!      -> setters before it (bits), repeated for counts -> Exchange -> examined; the next way if it does not match
//! ```

mod bits;
mod ends;
mod explain;
mod expression;
mod formed;
mod layout;
#[cfg(test)]
mod layout_tests;
mod make;
mod mixed;
mod number;
mod packet;
mod plan;
mod rng;
#[cfg(test)]
mod tests;
pub(crate) mod transform;

use squall_rules::{Application, Bits, CountKind, EngineVersion, Protocol, Rule, RuleSet};
use squall_units::{Nanos, mix};

use self::bits::{Prerequisites, Setters};
use self::expression::Expressions;
use self::make::{Conversation, MakeError, Maker};
use self::rng::Rng;
use crate::wire::{self, Endpoints};
use crate::{Exchange, Octets, Origin, Transport, Turn};

pub(crate) use self::ends::sides;
pub use self::ends::{Hosts, endpoints_of};
pub use self::explain::{Explanation, Shortfall, explain, explain_unsolved};

/// Solves the rules of one set. Other rules of the set provide the bits that a rule tests.
pub struct Solver<'a> {
    rules: &'a RuleSet,
    settings: Settings,
    setters: Setters,
    examiner: squall_ids::Compiled<'a>,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub seed: u64,
    /// Maximum number of strategies to try for one rule.
    pub attempts: u32,
    /// Maximum number of layout positions to try for one rule. Bounds the time.
    pub steps: u64,
    /// The engine that must raise the alert.
    pub engine: EngineVersion,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { seed: 0, attempts: 40, steps: 400_000, engine: EngineVersion::default() }
    }
}

/// Conversations that match a rule. The examiner has confirmed this.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// Index in [`RuleSet::rules`].
    pub rule: usize,
    /// The conversations, usually one. A rule with a count, or with bits per host, needs several,
    /// in order, each in its own flow.
    pub exchanges: Vec<Exchange>,
    /// Rules played earlier in the same flow. They raise their alerts, too, unless they have
    /// `noalert`.
    pub setters: Vec<usize>,
    /// Number of strategies tried.
    pub attempts: u32,
    /// The strategy that succeeded: the protocol, and where the payload's contents are placed.
    pub strategy: String,
}

/// Why a rule was not solved.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{text}")]
pub struct Unsolved {
    pub rule: usize,
    pub reason: Reason,
    /// The reason as text, with a hint.
    pub text: String,
    /// The option that prevents a solution: index in [`Rule::options`].
    pub option: Option<u16>,
    /// The attempt that came closest, if any.
    pub best: Option<Box<Best>>,
}

/// Conversations made for a rule that do not match it.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    pub exchanges: Vec<Exchange>,
    /// As in [`Solution`].
    pub setters: Vec<usize>,
    pub strategy: String,
}

impl Unsolved {
    fn new(rule: usize, reason: Reason, text: impl Into<String>) -> Self {
        Unsolved { rule, reason, text: text.into(), option: None, best: None }
    }

    /// A defect of the solver.
    pub fn defect(rule: usize, text: String) -> Self {
        Unsolved::new(rule, Reason::Defect, text)
    }
}

/// Categories for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Options that contradict each other.
    Contradiction,
    /// The rule tests a bit that no rule of the set sets.
    NoSetter,
    /// The rule inspects a protocol or buffer that is not supported.
    UnsupportedBuffer,
    UnsupportedOption,
    /// An expression that is not supported, or that matches no text.
    Expression,
    /// The rule has `noalert`: it only sets bits for other rules.
    Silent,
    /// The engine is known never to raise alerts for the rule.
    EngineNever,
    /// No addresses or ports satisfy the rule.
    NoAddress,
    /// None of the conversations that were made matches the rule.
    NotVerified,
    /// The budget for the rule is exhausted.
    TooLong,
    /// The examiner does not support the rule.
    NotExaminable,
    /// A defect of the solver.
    Defect,
}

/// Maximum number of branches of a rule's alternatives.
pub const MAX_BRANCHES: u32 = 64;

/// More octets than Suricata needs for a chunk of a stream (2,560, plus a random surplus).
const CHUNK: usize = 3_000;

/// Maximum number of events to make for one count.
const MAX_EVENTS: u32 = 2_000;

impl<'a> Solver<'a> {
    pub fn new(rules: &'a RuleSet, settings: Settings) -> Self {
        Solver {
            rules,
            settings,
            setters: Setters::of(rules),
            examiner: squall_ids::Compiled::new(rules),
        }
    }

    /// Solves the rule with index `rule`. Samples (from 0) differ in octets that are free.
    pub fn solve(&self, rule: usize, sample: u32) -> Result<Solution, Unsolved> {
        let of = &self.rules.rules[rule];
        let unsolved = |reason, text: String| Err(Unsolved::new(rule, reason, text));
        if of.action == squall_rules::Action::Pass {
            return unsolved(
                Reason::Silent,
                "the rule passes the traffic that it matches, and never alerts".into(),
            );
        }
        if of.silent {
            return unsolved(
                Reason::Silent,
                "the rule has `noalert`: it only sets state for other rules".into(),
            );
        }
        if let Some(why) = squall_ids::never_raised(self.settings.engine, of) {
            return unsolved(Reason::EngineNever, why);
        }
        let befores = match self.setters.before(self.rules, rule) {
            Ok(befores) => befores,
            Err(name) => {
                return unsolved(
                    Reason::NoSetter,
                    format!(
                        "no rule of the set can set {name:?} in the same flow; add the file with \
                         the rule that does"
                    ),
                );
            }
        };
        if events(of).is_none() {
            return unsolved(
                Reason::UnsupportedOption,
                format!("it counts more than {MAX_EVENTS} events"),
            );
        }
        let strategies = make::strategies(of);
        let mut budget = self.settings.steps;
        let mut failed: Option<MakeError> = None;
        let mut best: Option<Box<Best>> = None;
        let mut fruitless = 0;
        for (number, strategy) in make::formed_strategies(of, sample).into_iter().enumerate() {
            let seed = mix(
                mix(self.settings.seed, u64::from(of.sid) << 32 | u64::from(of.gid)),
                u64::from(sample) << 32 | (1_000 + number as u64),
            );
            let mut budget = self.settings.steps / 8;
            if let Ok((exchanges, strategy)) =
                self.attempt(rule, &befores[0], strategy, seed, sample, &mut budget)
                && self.examine(rule, &befores[0], &exchanges)?
            {
                let mut setters = befores[0].host.clone();
                setters.extend(&befores[0].flow);
                return Ok(Solution { rule, exchanges, setters, attempts: 1, strategy });
            }
        }
        for attempt in 0..self.settings.attempts {
            let turn = attempt as usize / strategies.len();
            let mut strategy = strategies[attempt as usize % strategies.len()];
            strategy.attempt = turn as u32 + sample;
            let before = &befores[turn % befores.len()];
            let seed = mix(
                mix(self.settings.seed, u64::from(of.sid) << 32 | u64::from(of.gid)),
                u64::from(sample) << 32 | u64::from(attempt),
            );
            match self.attempt(rule, before, strategy, seed, sample, &mut budget) {
                Ok((exchanges, strategy)) => match self.examine(rule, before, &exchanges) {
                    Ok(true) => {
                        let mut setters = before.host.clone();
                        setters.extend(&before.flow);
                        return Ok(Solution {
                            rule,
                            exchanges,
                            setters,
                            attempts: attempt + 1,
                            strategy,
                        });
                    }
                    // Keep the result of the first strategy, which is the most likely one.
                    Ok(false) if best.is_none() => {
                        let setters = before.host.iter().chain(&before.flow).copied().collect();
                        best = Some(Box::new(Best { exchanges, setters, strategy }));
                    }
                    Ok(false) => {}
                    Err(unsolved) => return Err(unsolved),
                },
                Err(not_made) => {
                    fruitless += 1;
                    if failed
                        .as_ref()
                        .is_none_or(|failed| failed.reason == Reason::UnsupportedBuffer)
                    {
                        failed = Some(not_made);
                    }
                    if best.is_none() && fruitless >= 4 * strategies.len().max(befores.len()) as u32
                    {
                        break;
                    }
                }
            }
            if budget == 0 {
                let text = format!("{} steps were not enough", self.settings.steps);
                return Err(Unsolved { best, ..Unsolved::new(rule, Reason::TooLong, text) });
            }
        }
        Err(match (failed, best) {
            (Some(failed), None) => Unsolved {
                option: failed.option,
                ..Unsolved::new(rule, failed.reason, failed.text)
            },
            (_, best) if requires_a_defect(of) => {
                let text =
                    "it requires malformed packets, streams or messages that are not supported";
                Unsolved { best, ..Unsolved::new(rule, Reason::UnsupportedOption, text) }
            }
            (_, best) => {
                let text = "the evaluator does not match the traffic that was made";
                Unsolved { best, ..Unsolved::new(rule, Reason::NotVerified, text) }
            }
        })
    }

    /// Number of branches of a rule's expressions, at most [`MAX_BRANCHES`]. Each sample below this
    /// number takes another branch, if possible.
    pub fn branches(&self, rule: usize) -> u32 {
        let branches = Expressions::of_rule(&self.rules.rules[rule]).branches();
        u32::try_from(branches).unwrap_or(u32::MAX).min(MAX_BRANCHES)
    }

    /// Makes a conversation with one strategy.
    fn attempt(
        &self,
        rule: usize,
        before: &Prerequisites,
        strategy: make::Strategy,
        seed: u64,
        sample: u32,
        budget: &mut u64,
    ) -> Result<(Vec<Exchange>, String), MakeError> {
        let mut exchanges = vec![];
        for (number, &setter) in before.host.iter().enumerate() {
            let flow = self
                .setters
                .before(self.rules, setter)
                .ok()
                .and_then(|ways| ways.into_iter().next())
                .unwrap_or_default();
            let strategy =
                *make::strategies(&self.rules.rules[setter]).first().expect("a rule has a way");
            let (mut made, _) =
                self.flow(setter, &flow.flow, strategy, mix(seed, 100 + number as u64), 0, budget)?;
            for exchange in &mut made {
                own(exchange, setter);
            }
            exchanges.extend(made);
        }
        let (made, strategy) = self.flow(rule, &before.flow, strategy, seed, sample, budget)?;
        exchanges.extend(made);
        Ok((exchanges, strategy))
    }

    /// The flow of a rule together with its setters, repeated as often as the rule counts.
    fn flow(
        &self,
        rule: usize,
        setters: &[usize],
        strategy: make::Strategy,
        seed: u64,
        sample: u32,
        budget: &mut u64,
    ) -> Result<(Vec<Exchange>, String), MakeError> {
        let of = &self.rules.rules[rule];
        let mut turns = vec![];
        let mut together: Vec<&Rule> = vec![of];
        let mut detected = None;
        for (number, &setter) in setters.iter().enumerate() {
            let setting = &self.rules.rules[setter];
            if !together.iter().any(|rule| std::ptr::eq(*rule, setting)) {
                together.push(setting);
            }
            let strategies = make::strategies(setting);
            let strategy = make::Strategy {
                attempt: strategy.attempt,
                ..strategies[strategy.attempt as usize % strategies.len()]
            };
            let made = self.make(setting, strategy, mix(seed, 1 + number as u64), 0, budget)?;
            detected = detected.or(made.application);
            let (from, free) = (
                plan::sender(setting),
                made.application.is_none() && made.transport == Transport::Tcp,
            );
            turns.extend(made.turns.into_iter().map(|turn| owned(turn, setter)));
            // A stream with an unknown protocol is inspected either in chunks (in Suricata, by
            // default 2,560 octets plus a random surplus) or at its end. The end is too late if the
            // other end sends data in between, so fill a chunk.
            if free && strategy.attempt % 2 == 1 {
                let mut rng = Rng::new(mix(seed, 50 + number as u64));
                for (end, octets) in [(from, CHUNK), (from.other(), 4), (from, 4)] {
                    turns.push(Turn::new(end, Octets::of(rng.letters(octets), Origin::Free)));
                }
            }
        }
        let made = self.make(of, strategy, seed, sample, budget)?;
        let application = made.application.or(detected);
        let (client_port, server_port) =
            ends::ports(&together, application, mix(seed, 7) % 100_000).ok_or(MakeError {
                reason: Reason::NoAddress,
                option: None,
                text: "no port is in the port sets of all rules of this flow".into(),
            })?;
        let events = events(of).unwrap_or(1);
        let in_one = match made.transport {
            Transport::Tcp => {
                application == Some(Application::Http) && strategy.attempt.is_multiple_of(2)
            }
            _ => true,
        };
        let strategy = made.strategy.clone();
        let exchange = |turns: Vec<Turn>, client_port: u16, made: &Conversation| Exchange {
            transport: made.transport,
            client_port,
            server_port,
            turns,
            same_address: made.same_address,
            ip_version: match of.header.protocol {
                Protocol::Ip4 => Some(4),
                Protocol::Ip6 | Protocol::Icmp6 => Some(6),
                _ => made.ip_version,
            },
        };
        if events == 1 || in_one {
            for _ in 0..events {
                turns.extend(made.turns.iter().cloned());
            }
            return Ok((vec![exchange(turns, client_port, &made)], strategy));
        }
        turns.extend(made.turns.iter().cloned());
        let clients = &ends::sides(of).0.ports;
        let mut port = client_port;
        let mut all = vec![];
        for _ in 0..events {
            all.push(exchange(turns.clone(), port, &made));
            port = clients
                .at_least(u64::from(port) + 1)
                .and_then(|port| u16::try_from(port).ok())
                .unwrap_or(client_port);
        }
        Ok((all, strategy))
    }

    fn make(
        &self,
        rule: &Rule,
        strategy: make::Strategy,
        seed: u64,
        sample: u32,
        budget: &mut u64,
    ) -> Result<Conversation, MakeError> {
        let expressions = Expressions::of_rule(rule);
        // An attempt may spend only a share of the budget.
        let share = (self.settings.steps / 8).max(1);
        let mut own = share.min(*budget);
        let granted = own;
        let made = Maker {
            rule,
            expressions: &expressions,
            rng: Rng::new(seed),
            sample,
            budget: &mut own,
        }
        .make(strategy);
        *budget -= granted - own;
        made
    }

    /// Whether the solution's rule matches other exchanges.
    ///
    /// # Errors
    ///
    /// If the examiner does not support the rule.
    pub fn matches(&self, solution: &Solution, exchanges: &[Exchange]) -> Result<bool, Unsolved> {
        let settings = squall_ids::Settings::of(self.settings.engine);
        self.examine_as(solution.rule, &solution.setters, exchanges, settings)
    }

    /// Whether the solution's rule matches nowhere in these exchanges: not as the engine inspects
    /// them, not in any single packet, and not in all the data from an end. All three are checked,
    /// because required octets may also occur in other parts of the conversation, and the
    /// boundaries of the engine's chunks are random.
    ///
    /// # Errors
    ///
    /// Like [`Solver::matches`].
    pub fn misses(&self, solution: &Solution, exchanges: &[Exchange]) -> Result<bool, Unsolved> {
        let settings = squall_ids::Settings::of(self.settings.engine);
        let settings = squall_ids::Settings { every_view: true, ..settings };
        Ok(!self.examine_as(solution.rule, &solution.setters, exchanges, settings)?)
    }

    /// Whether messages that are well-formed in the solution are well-formed in these exchanges,
    /// too. Only protocols that can be checked count.
    pub(crate) fn stays_well_formed(&self, solution: &Solution, exchanges: &[Exchange]) -> bool {
        let rule = &self.rules.rules[solution.rule];
        solution.exchanges.iter().zip(exchanges).all(|(before, after)| {
            let Some(format) = formed::message_format(rule, before.transport) else { return true };
            before.turns.iter().zip(&after.turns).all(|(before, after)| {
                before.octets == after.octets
                    || !format.is_well_formed(before.from, &before.octets)
                    || format.is_well_formed(after.from, &after.octets)
            })
        })
    }

    /// Whether the rule matches.
    fn examine(
        &self,
        rule: usize,
        before: &Prerequisites,
        exchanges: &[Exchange],
    ) -> Result<bool, Unsolved> {
        let setters: Vec<usize> = before.host.iter().chain(&before.flow).copied().collect();
        let settings = squall_ids::Settings::of(self.settings.engine);
        self.examine_as(rule, &setters, exchanges, settings)
    }

    fn examine_as(
        &self,
        rule: usize,
        setters: &[usize],
        exchanges: &[Exchange],
        settings: squall_ids::Settings,
    ) -> Result<bool, Unsolved> {
        let mut which = setters.to_vec();
        which.push(rule);
        which.sort_unstable();
        which.dedup();
        let together: Vec<&Rule> = which.iter().map(|&index| &self.rules.rules[index]).collect();
        let ipv6 = exchanges.iter().any(|exchange| exchange.ip_version == Some(6));
        let hosts = Hosts { family: ipv6.then_some(6), ..Hosts::default() };
        let Some(ends) = endpoints_of(&together, rule as u64, &hosts) else {
            let text = "no address is in the address sets of all rules of this flow";
            return Err(Unsolved::new(rule, Reason::NoAddress, text));
        };
        let (mut engine, refused) = squall_ids::Engine::new(&self.examiner, &which, settings);
        if let Some(refused) = refused.iter().find(|refused| refused.rule == rule) {
            return Err(Unsolved::new(rule, Reason::NotExaminable, refused.text.clone()));
        }
        let Ok(frames) = frames_of(exchanges, &ends) else { return Ok(false) };
        for (at, frame) in frames {
            engine.frame(at, &frame);
        }
        engine.finish();
        Ok(engine.alerts().iter().any(|alert| alert.rule == rule))
    }
}

/// The frames of several flows in sequence, with their times.
fn frames_of(
    exchanges: &[Exchange],
    ends: &Endpoints,
) -> Result<Vec<(Nanos, Vec<u8>)>, wire::Error> {
    let mut all = vec![];
    let mut from = Nanos(1_000_000_000);
    for exchange in exchanges {
        let mut last = from;
        for frame in wire::frames(exchange, ends, &wire::Settings::default())? {
            last = Nanos(from.0 + frame.at.0);
            all.push((last, frame.octets));
        }
        from = Nanos(last.0 + 1_000_000);
    }
    Ok(all)
}

/// Whether the rule needs invalid traffic (decoder and protocol events, wrong checksums) or SCTP,
/// which the solver does not make.
fn requires_a_defect(rule: &Rule) -> bool {
    let event = rule
        .application
        .iter()
        .any(|test| matches!(test.is, squall_rules::ApplicationTest::Event(_)));
    let other = rule
        .packet
        .iter()
        .any(|test| matches!(&test.is, squall_rules::PacketTest::Other { keyword, .. } if keyword.ends_with("-csum")));
    event || other || rule.header.protocol == Protocol::Sctp
}

/// Number of events that the rule's counts require. `None` if it is too high.
fn events(rule: &Rule) -> Option<u32> {
    let mut events = 1_u32;
    for count in &rule.counts {
        let needed = match count.is.kind {
            CountKind::Limit => 1,
            CountKind::Threshold | CountKind::Both | CountKind::Backoff { .. } => count.is.count,
            CountKind::DetectionFilter => count.is.count.checked_add(1)?,
        };
        events = events.max(needed);
    }
    // Counters that the rule itself increments.
    for bits in &rule.bits {
        if let Bits::Int {
            name,
            verb: squall_rules::IntVerb::Is(comparison),
            value: squall_rules::IntValue::Is(value),
        } = &bits.is
        {
            let adds = rule.bits.iter().any(
                |other| matches!(&other.is, Bits::Int { name: of, verb: squall_rules::IntVerb::Add, .. } if of == name),
            );
            if adds
                && matches!(
                    comparison,
                    squall_rules::Comparison::Greater
                        | squall_rules::Comparison::GreaterOrEqual
                        | squall_rules::Comparison::Equal
                )
            {
                events = events.max(value.checked_add(2)?);
            }
        }
    }
    (events <= MAX_EVENTS).then_some(events.max(1))
}

/// Marks the octets that options of a setter require as required by that setter.
fn owned(mut turn: Turn, setter: usize) -> Turn {
    let origins: Vec<(usize, u8)> = turn
        .octets
        .origins()
        .iter()
        .zip(turn.octets.bytes())
        .enumerate()
        .filter(|(_, (origin, _))| matches!(origin, Origin::Option(_)))
        .map(|(at, (_, &byte))| (at, byte))
        .collect();
    for (at, byte) in origins {
        turn.octets.set(at, byte, Origin::Setter(u32::try_from(setter).unwrap_or(u32::MAX)));
    }
    turn
}

fn own(exchange: &mut Exchange, setter: usize) {
    exchange.turns =
        std::mem::take(&mut exchange.turns).into_iter().map(|turn| owned(turn, setter)).collect();
}
