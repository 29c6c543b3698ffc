//! Explains solutions: names the origin of each octet.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;
use squall_rules::{End, EngineVersion, Rule, RuleSet};

use super::bits::Prerequisites;
use super::{Best, Settings, Solution, Solver, Unsolved};
use crate::{Exchange, Origin};

/// An explained solution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    pub gid: u32,
    pub sid: u32,
    pub msg: String,
    pub strategy: String,
    /// Number of strategies tried.
    pub attempts: u32,
    /// Sids of the rules played before, in order.
    pub setters: Vec<u32>,
    pub flows: Vec<FlowExplanation>,
}

/// An explained failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shortfall {
    pub gid: u32,
    pub sid: u32,
    pub msg: String,
    pub reason: String,
    pub text: String,
    /// Text of the option that fails in the closest attempt, or for which no attempt could be made.
    pub option: Option<String>,
    /// Strategy of the closest attempt, if any.
    pub strategy: Option<String>,
    pub flows: Vec<FlowExplanation>,
}

/// An explained flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowExplanation {
    pub transport: String,
    pub client_port: u16,
    pub server_port: u16,
    pub turns: Vec<TurnExplanation>,
}

/// An explained turn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TurnExplanation {
    /// `client` or `server`.
    pub from: &'static str,
    pub octets: usize,
    /// Header fields whose values differ from the defaults.
    pub headers: Vec<String>,
    /// Runs of octets with the same origin.
    pub runs: Vec<Run>,
}

/// Octets with the same origin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Offset within the turn.
    pub at: usize,
    /// In rule syntax: hexadecimal between bars for anything other than printable text.
    pub octets: String,
    pub origin: String,
}

/// Explains `solution`.
pub fn explain(rules: &RuleSet, solution: &Solution) -> Explanation {
    let rule = &rules.rules[solution.rule];
    Explanation {
        gid: rule.gid,
        sid: rule.sid,
        msg: rule.msg.clone(),
        strategy: solution.strategy.clone(),
        attempts: solution.attempts,
        setters: solution
            .setters
            .iter()
            .filter_map(|&setter| rules.rules.get(setter))
            .map(|rule| rule.sid)
            .collect(),
        flows: solution
            .exchanges
            .iter()
            .map(|exchange| flow(rules, solution.rule, exchange))
            .collect(),
    }
}

/// Explains why there is no solution. If there is an attempt that does not match, examines it with
/// one option left out at a time, to find the option that fails.
pub fn explain_unsolved(
    rules: &RuleSet,
    unsolved: &Unsolved,
    reason: String,
    engine: EngineVersion,
) -> Shortfall {
    let rule = &rules.rules[unsolved.rule];
    let found = || culprit(rules, unsolved.rule, unsolved.best.as_deref()?, engine);
    let option = unsolved.option.or_else(found);
    let best = unsolved.best.as_deref();
    Shortfall {
        gid: rule.gid,
        sid: rule.sid,
        msg: rule.msg.clone(),
        reason,
        text: unsolved.text.clone(),
        option: option.and_then(|option| option_text(rule, option)).map(str::to_owned),
        strategy: best.map(|best| best.strategy.clone()),
        flows: best.map_or_else(Vec::new, |best| {
            best.exchanges.iter().map(|exchange| flow(rules, unsolved.rule, exchange)).collect()
        }),
    }
}

/// The first option without which the attempt matches.
fn culprit(rules: &RuleSet, rule: usize, best: &Best, engine: EngineVersion) -> Option<u16> {
    let options = u16::try_from(rules.rules[rule].options.len()).ok()?;
    (0..options).find(|&option| {
        let mut less = rules.rules[rule].clone();
        leave_out(&mut less, option);
        if less == rules.rules[rule] {
            return false;
        }
        let mut set = RuleSet {
            rules: best.setters.iter().map(|&i| rules.rules[i].clone()).collect(),
            ..RuleSet::default()
        };
        set.rules.push(less);
        let last = set.rules.len() - 1;
        let solver = Solver::new(&set, Settings { engine, ..Settings::default() });
        let before = Prerequisites { host: (0..last).collect(), ..Prerequisites::default() };
        solver.examine(last, &before, &best.exchanges) == Ok(true)
    })
}

/// Removes the tests of one option.
fn leave_out(rule: &mut Rule, option: u16) {
    rule.packet.retain(|test| test.option != option);
    rule.application.retain(|test| test.option != option);
    rule.bits.retain(|bits| bits.option != option);
    rule.counts.retain(|count| count.option != option);
    for inspection in &mut rule.inspections {
        inspection.steps.retain(|step| step.option != option);
        inspection.transforms.retain(|transform| transform.option != option);
    }
    rule.inspections.retain(|inspection| !inspection.steps.is_empty());
    if rule.flow.option == Some(option) {
        rule.flow = squall_rules::Flow::default();
    }
}

/// The text of an option.
fn option_text(rule: &Rule, option: u16) -> Option<&str> {
    rule.options
        .get(usize::from(option))
        .and_then(|range| rule.text.get(range.clone()))
        .map(str::trim)
}

fn flow(rules: &RuleSet, rule: usize, exchange: &Exchange) -> FlowExplanation {
    FlowExplanation {
        transport: exchange.transport.to_string(),
        client_port: exchange.client_port,
        server_port: exchange.server_port,
        turns: exchange.turns.iter().map(|turn| explain_turn(rules, rule, turn)).collect(),
    }
}

fn explain_turn(rules: &RuleSet, rule: usize, turn: &crate::Turn) -> TurnExplanation {
    let (bytes, origins) = (turn.octets.bytes(), turn.octets.origins());
    let mut runs = vec![];
    let mut at = 0;
    for run in origins.chunk_by(|one, other| one == other) {
        runs.push(Run {
            at,
            octets: as_content(&bytes[at..at + run.len()]),
            origin: origin(rules, rule, run[0]),
        });
        at += run.len();
    }
    let shape = &turn.shape;
    let headers = [
        shape.ttl.map(|ttl| format!("ttl {ttl}")),
        shape.tos.map(|tos| format!("tos {tos}")),
        shape.id.map(|id| format!("id {id}")),
        (!shape.ip_options.is_empty()).then(|| format!("IP options {:02x?}", shape.ip_options)),
        shape.fragment_bits.map(|bits| format!("fragment bits {bits}")),
        shape.fragment_offset.map(|offset| format!("fragment offset {offset}")),
        shape.flags.map(|flags| format!("flags {flags:#04x}")),
        shape.sequence.map(|sequence| format!("sequence {sequence}")),
        shape.acknowledgment.map(|acknowledgment| format!("acknowledgment {acknowledgment}")),
        shape.window.map(|window| format!("window {window}")),
        shape.icmp_type.map(|kind| format!("ICMP type {kind}")),
        shape.icmp_code.map(|code| format!("ICMP code {code}")),
        shape.icmp_id.map(|id| format!("ICMP id {id}")),
        shape.icmp_sequence.map(|sequence| format!("ICMP sequence {sequence}")),
        shape.whole.then(|| "in one packet".to_string()),
    ];
    let from = match turn.from {
        End::Client => "client",
        End::Server => "server",
    };
    TurnExplanation {
        from,
        octets: bytes.len(),
        headers: headers.into_iter().flatten().collect(),
        runs,
    }
}

fn origin(rules: &RuleSet, rule: usize, origin: Origin) -> String {
    match origin {
        Origin::Free => "free".into(),
        Origin::Framing => "protocol".into(),
        Origin::Option(option) => {
            option_text(&rules.rules[rule], option).unwrap_or("an option").to_string()
        }
        Origin::Setter(setter) => match rules.rules.get(setter as usize) {
            Some(setter) => format!("rule {}, played before", setter.sid),
            None => "a rule that is played before".into(),
        },
    }
}

fn as_content(bytes: &[u8]) -> String {
    let mut text = String::new();
    let plain = |byte: &u8| (byte.is_ascii_graphic() || *byte == b' ') && *byte != b'|';
    for run in bytes.chunk_by(|one, other| plain(one) == plain(other)) {
        if plain(&run[0]) {
            text.extend(run.iter().map(|&byte| byte as char));
        } else {
            let hex: Vec<String> = run.iter().map(|byte| format!("{byte:02X}")).collect();
            text += &format!("|{}|", hex.join(" "));
        }
    }
    text
}

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}  {}", self.gid, self.sid, self.msg)?;
        writeln!(f, "  {}, solved at attempt {}", self.strategy, self.attempts)?;
        if !self.setters.is_empty() {
            let sids: Vec<String> = self.setters.iter().map(u32::to_string).collect();
            writeln!(f, "  played before: {}", sids.join(", "))?;
        }
        write_flows(&self.flows, f)
    }
}

impl Display for Shortfall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}  {}", self.gid, self.sid, self.msg)?;
        writeln!(f, "  not solved, {}: {}", self.reason, self.text)?;
        if let Some(option) = &self.option {
            writeln!(f, "  option: {option}")?;
        }
        if let Some(strategy) = &self.strategy {
            writeln!(f, "  best attempt: {strategy}")?;
        }
        write_flows(&self.flows, f)
    }
}

fn write_flows(flows: &[FlowExplanation], f: &mut Formatter<'_>) -> fmt::Result {
    for (number, flow) in flows.iter().enumerate() {
        writeln!(
            f,
            "  flow {}: {}, ports {} and {}",
            number + 1,
            flow.transport,
            flow.client_port,
            flow.server_port
        )?;
        for turn in &flow.turns {
            let headers = if turn.headers.is_empty() {
                String::new()
            } else {
                format!(", {}", turn.headers.join(", "))
            };
            writeln!(f, "    {}: {} octets{headers}", turn.from, turn.octets)?;
            for run in &turn.runs {
                writeln!(
                    f,
                    "      {:>5}  {}\n             from {}",
                    run.at, run.octets, run.origin
                )?;
            }
        }
    }
    Ok(())
}
