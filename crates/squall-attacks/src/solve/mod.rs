//! From a rule to what must be said so that it matches.
//!
//! ```text
//! rule -> way (plan: who speaks what; mixed: where a payload's contents go)
//!      -> octets of each buffer (expression, layout, transform) -> messages (assemble) with headers (packet)
//!      -> setters before it (bits), as often as it is counted -> Exchange -> examined; the next way where it does not match
//! ```

mod bits;
mod dice;
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
#[cfg(test)]
mod tests;
pub(crate) mod transform;

use squall_rules::{Application, Bits, CountKind, EngineVersion, Protocol, Rule, RuleSet};
use squall_units::{Nanos, mix};

use self::bits::{Before, Setters};
use self::dice::Dice;
use self::expression::Expressions;
use self::make::{Made, Maker, NotMade};
use crate::wire::{self, Endpoints};
use crate::{Exchange, Octets, Origin, Transport, Turn};

pub use self::ends::{Hosts, endpoints_of};
pub use self::explain::{Explanation, Shortfall, explain, explain_unsolved};

/// Solves rules of one set, among which it finds who sets the bits that others ask for.
pub struct Solver<'a> {
    rules: &'a RuleSet,
    settings: Settings,
    setters: Setters,
    examiner: squall_ids::Compiled<'a>,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub seed: u64,
    /// Ways that are tried of one rule at most.
    pub attempts: u32,
    /// Places that are tried of one rule at most: what bounds the time for it.
    pub steps: u64,
    /// The engine whose alerts are wanted.
    pub engine: EngineVersion,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { seed: 0, attempts: 40, steps: 400_000, engine: EngineVersion::default() }
    }
}

/// What makes a rule match; the examiner has seen it match.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// Index in [`RuleSet::rules`].
    pub rule: usize,
    /// One, but where a count or bits of hosts ask for more: those in their order, each a flow of
    /// its own.
    pub exchanges: Vec<Exchange>,
    /// Rules that are played before in the same flow, whose alerts come as well unless they are
    /// silent.
    pub setters: Vec<usize>,
    /// How many ways were tried.
    pub attempts: u32,
    /// Which way it was: what is spoken, and where a payload's contents stand.
    pub strategy: String,
}

/// A rule for which nothing was found, and why.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{text}")]
pub struct Unsolved {
    pub rule: usize,
    pub reason: Reason,
    /// Where, what was found, what to try.
    pub text: String,
    /// The option that stands in the way: index in [`Rule::options`].
    pub option: Option<u16>,
    /// What came nearest, where anything was made at all.
    pub best: Option<Box<Best>>,
}

/// What was made for a rule and is not what it asks for, by the examiner's word.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    pub exchanges: Vec<Exchange>,
    /// As of a [`Solution`].
    pub setters: Vec<usize>,
    pub strategy: String,
}

impl Unsolved {
    fn new(rule: usize, reason: Reason, text: impl Into<String>) -> Self {
        Unsolved { rule, reason, text: text.into(), option: None, best: None }
    }

    /// The solver itself has failed at the rule.
    pub fn defect(rule: usize, text: String) -> Self {
        Unsolved::new(rule, Reason::Defect, text)
    }
}

/// The code that reports group by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// It asks for what no packet can be: options that contradict each other.
    Contradiction,
    /// It asks for a bit that no rule of the set sets.
    NoSetter,
    /// It looks into a protocol or a buffer that is not made yet.
    UnsupportedBuffer,
    UnsupportedOption,
    /// An expression that is not understood, or of which no text was found.
    Expression,
    /// It alerts on nothing (`noalert`): only of use to others.
    Silent,
    /// The engine whose alerts are wanted is known never to raise it.
    EngineNever,
    /// Its addresses or ports leave no room.
    NoAddress,
    /// What was made does not match, by the examiner's word.
    NotVerified,
    /// The time for one rule was over.
    TooLong,
    /// The examiner cannot look for it.
    NotExaminable,
    /// The solver itself has failed.
    Defect,
}

/// Ways through one rule's alternatives that are told apart, at most.
pub const MOST_BRANCHES: u32 = 64;

/// Octets behind which a chunk of a stream is full.
const CHUNK: usize = 3_000;

/// Events that are made for one count, at most.
const MOST_EVENTS: u32 = 2_000;

impl<'a> Solver<'a> {
    pub fn new(rules: &'a RuleSet, settings: Settings) -> Self {
        Solver {
            rules,
            settings,
            setters: Setters::of(rules),
            examiner: squall_ids::Compiled::new(rules),
        }
    }

    /// The `sample`th way to match the rule `rule` (index), from 0: others of the same rule differ
    /// in what is free.
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
                format!("it counts more than {MOST_EVENTS} events"),
            );
        }
        let ways = make::ways(of);
        let mut budget = self.settings.steps;
        let mut failed: Option<NotMade> = None;
        let mut best: Option<Box<Best>> = None;
        let mut fruitless = 0;
        for (number, way) in make::formed_ways(of, sample).into_iter().enumerate() {
            let seed = mix(
                mix(self.settings.seed, u64::from(of.sid) << 32 | u64::from(of.gid)),
                u64::from(sample) << 32 | (1_000 + number as u64),
            );
            let mut budget = self.settings.steps / 8;
            if let Ok((exchanges, strategy)) =
                self.attempt(rule, &befores[0], way, seed, sample, &mut budget)
                && self.examine(rule, &befores[0], &exchanges)?
            {
                let mut setters = befores[0].host.clone();
                setters.extend(&befores[0].flow);
                return Ok(Solution { rule, exchanges, setters, attempts: 1, strategy });
            }
        }
        for attempt in 0..self.settings.attempts {
            let turn = attempt as usize / ways.len();
            let mut way = ways[attempt as usize % ways.len()];
            way.attempt = turn as u32 + sample;
            let before = &befores[turn % befores.len()];
            let seed = mix(
                mix(self.settings.seed, u64::from(of.sid) << 32 | u64::from(of.gid)),
                u64::from(sample) << 32 | u64::from(attempt),
            );
            match self.attempt(rule, before, way, seed, sample, &mut budget) {
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
                    // The first way is the likeliest.
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
                    if best.is_none() && fruitless >= 4 * ways.len().max(befores.len()) as u32 {
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
            (_, best) if asks_for_a_defect(of) => {
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

    /// Ways through the alternatives of a rule's expressions, at most [`MOST_BRANCHES`]: samples 0
    /// to one less than that go each another way, as far as there is one.
    pub fn branches(&self, rule: usize) -> u32 {
        let branches = Expressions::of_rule(&self.rules.rules[rule]).branches();
        u32::try_from(branches).unwrap_or(u32::MAX).min(MOST_BRANCHES)
    }

    /// A conversation, made in one way.
    fn attempt(
        &self,
        rule: usize,
        before: &Before,
        way: make::Way,
        seed: u64,
        sample: u32,
        budget: &mut u64,
    ) -> Result<(Vec<Exchange>, String), NotMade> {
        let mut exchanges = vec![];
        for (number, &setter) in before.host.iter().enumerate() {
            let flow = self
                .setters
                .before(self.rules, setter)
                .ok()
                .and_then(|ways| ways.into_iter().next())
                .unwrap_or_default();
            let way = *make::ways(&self.rules.rules[setter]).first().expect("a rule has a way");
            let (mut made, _) =
                self.flow(setter, &flow.flow, way, mix(seed, 100 + number as u64), 0, budget)?;
            for exchange in &mut made {
                own(exchange, setter);
            }
            exchanges.extend(made);
        }
        let (made, strategy) = self.flow(rule, &before.flow, way, seed, sample, budget)?;
        exchanges.extend(made);
        Ok((exchanges, strategy))
    }

    /// The flow of a rule with its setters, as often as it is counted.
    fn flow(
        &self,
        rule: usize,
        setters: &[usize],
        way: make::Way,
        seed: u64,
        sample: u32,
        budget: &mut u64,
    ) -> Result<(Vec<Exchange>, String), NotMade> {
        let of = &self.rules.rules[rule];
        let mut turns = vec![];
        let mut together: Vec<&Rule> = vec![of];
        let mut spoken = None;
        for (number, &setter) in setters.iter().enumerate() {
            let setting = &self.rules.rules[setter];
            if !together.iter().any(|rule| std::ptr::eq(*rule, setting)) {
                together.push(setting);
            }
            let ways = make::ways(setting);
            let way = make::Way { attempt: way.attempt, ..ways[way.attempt as usize % ways.len()] };
            let made = self.make(setting, way, mix(seed, 1 + number as u64), 0, budget)?;
            spoken = spoken.or(made.application);
            let (from, free) = (
                plan::sender(setting),
                made.application.is_none() && made.transport == Transport::Tcp,
            );
            turns.extend(made.turns.into_iter().map(|turn| owned(turn, setter)));
            // A stream that is no protocol's is looked at in chunks (2,560 octets and some, as
            // Suricata has it by default), or at its end: too late for what the other end says
            // meanwhile.
            if free && way.attempt % 2 == 1 {
                let mut dice = Dice::new(mix(seed, 50 + number as u64));
                for (end, octets) in [(from, CHUNK), (from.other(), 4), (from, 4)] {
                    turns.push(Turn::new(end, Octets::of(dice.letters(octets), Origin::Free)));
                }
            }
        }
        let made = self.make(of, way, seed, sample, budget)?;
        let application = made.application.or(spoken);
        let (client_port, server_port) =
            ends::ports(&together, application, mix(seed, 7) % 100_000).ok_or(NotMade {
                reason: Reason::NoAddress,
                option: None,
                text: "no port is in the port sets of all rules of this flow".into(),
            })?;
        let events = events(of).unwrap_or(1);
        let in_one = match made.transport {
            Transport::Tcp => {
                application == Some(Application::Http) && way.attempt.is_multiple_of(2)
            }
            _ => true,
        };
        let strategy = made.strategy.clone();
        let exchange = |turns: Vec<Turn>, client_port: u16, made: &Made| Exchange {
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
        way: make::Way,
        seed: u64,
        sample: u32,
        budget: &mut u64,
    ) -> Result<Made, NotMade> {
        let expressions = Expressions::of_rule(rule);
        // One attempt does not eat up what others need.
        let share = (self.settings.steps / 8).max(1);
        let mut own = share.min(*budget);
        let granted = own;
        let made = Maker {
            rule,
            expressions: &expressions,
            dice: Dice::new(seed),
            sample,
            budget: &mut own,
        }
        .make(way);
        *budget -= granted - own;
        made
    }

    /// Whether the examiner sees the solution's rule match in other exchanges than its own.
    ///
    /// # Errors
    /// Where it cannot look for the rule.
    pub fn matches(&self, solution: &Solution, exchanges: &[Exchange]) -> Result<bool, Unsolved> {
        let settings = squall_ids::Settings::of(self.settings.engine);
        self.examine_as(solution.rule, &solution.setters, exchanges, settings)
    }

    /// Whether the solution's rule matches nothing in these exchanges: neither as the engine looks
    /// at them, nor in any packet, nor in all that an end sends. Octets that the rule asks for stand
    /// in the conversation around it as well, and where an engine cuts a stream is by chance.
    ///
    /// # Errors
    /// As [`Solver::matches`].
    pub fn misses(&self, solution: &Solution, exchanges: &[Exchange]) -> Result<bool, Unsolved> {
        let settings = squall_ids::Settings::of(self.settings.engine);
        let settings = squall_ids::Settings { every_view: true, ..settings };
        Ok(!self.examine_as(solution.rule, &solution.setters, exchanges, settings)?)
    }

    /// Messages that are whole in the solution are so in these exchanges, as far as it is known
    /// how.
    pub(crate) fn stays_whole(&self, solution: &Solution, exchanges: &[Exchange]) -> bool {
        let rule = &self.rules.rules[solution.rule];
        solution.exchanges.iter().zip(exchanges).all(|(before, after)| {
            let Some(spoken) = formed::spoken(rule, before.transport) else { return true };
            before.turns.iter().zip(&after.turns).all(|(before, after)| {
                before.octets == after.octets
                    || !spoken.is_whole(before.from, &before.octets)
                    || spoken.is_whole(after.from, &after.octets)
            })
        })
    }

    /// Whether the examiner sees the rule match.
    fn examine(
        &self,
        rule: usize,
        before: &Before,
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

/// All frames of some flows one behind the other, with their times.
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

/// Events of decoders and of protocols, wrong checksums, SCTP: what is made is right, and no other.
fn asks_for_a_defect(rule: &Rule) -> bool {
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

/// Events that a rule's counts ask for; `None`: too many.
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
    // A counter that the rule itself raises.
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
    (events <= MOST_EVENTS).then_some(events.max(1))
}

/// The turn, of which what a rule asks for is a setter's.
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
