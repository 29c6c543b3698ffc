//! Near misses: traffic that differs from an attack in one octet or one field.
//!
//! An engine that raises an alert for one has a false positive. Near misses derive from a
//! [`Solution`] by changing data that an option of the rule requires. A letter is replaced by a
//! letter, so the message stays valid. The examiner must confirm that the rule matches nowhere in
//! the conversation. If the required data also occurs in other parts of the dialog (such as MAIL
//! FROM), all occurrences are changed.

use squall_rules::{Content, Operation, PacketTest, Rule, RuleSet};

use crate::{Exchange, Octets, Origin, Shape, Solution, Solver, Transport};

/// A conversation that almost matches a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct NearMiss {
    pub exchanges: Vec<Exchange>,
    /// Index in [`Rule::options`] of the violated option. `None` if the ports in the rule's header
    /// are violated.
    pub option: Option<u16>,
    /// The option's text and the change.
    pub note: String,
    /// Number of changes tried.
    pub attempts: u32,
}

/// Maximum number of changes to try for one rule.
const MOST: u32 = 160;

/// Number of octets to try per option in each round.
const EACH: usize = 4;

/// Finds a change after which the examiner no longer sees the rule match. `None` if there is none
/// among those tried.
pub fn near_miss(solution: &Solution, rules: &RuleSet, solver: &Solver<'_>) -> Option<NearMiss> {
    let rule = &rules.rules[solution.rule];
    let mut exchanges = solution.exchanges.clone();
    let mut spare = None;
    let tries = octets(rule, &exchanges)
        .into_iter()
        .chain(fields(rule, &exchanges))
        .chain(others(&exchanges));
    for (attempts, change) in (1..=MOST).zip(tries) {
        let before = change.apply(&mut exchanges);
        if solver.misses(solution, &exchanges) == Ok(true) {
            let (option, note) = (change.option, change.note(rule));
            // If the attack is well-formed, use a malformed near miss only as a last resort.
            let whole = solver.stays_well_formed(solution, &exchanges);
            let miss = NearMiss { exchanges: exchanges.clone(), option, note, attempts };
            if whole {
                return Some(miss);
            }
            spare.get_or_insert(miss);
        }
        exchanges[change.exchange] = before;
    }
    spare.or_else(|| {
        let changes = everywhere(rule, &solution.exchanges).into_iter();
        changes.zip(MOST + 1..).find_map(|((option, exchanges, note), attempts)| {
            (solver.misses(solution, &exchanges) == Ok(true)).then_some(NearMiss {
                exchanges,
                option: Some(option),
                note,
                attempts,
            })
        })
    })
}

/// For each content of the rule, a version of the exchanges with one octet changed in all
/// occurrences. Returns the option, the exchanges, and a description of the change.
fn everywhere(rule: &Rule, exchanges: &[Exchange]) -> Vec<(u16, Vec<Exchange>, String)> {
    let mut steps: Vec<_> = rule
        .inspections
        .iter()
        .flat_map(|inspection| &inspection.steps)
        .filter_map(|step| match &step.operation {
            Operation::Content(content) if !content.negated => Some((step, content)),
            _ => None,
        })
        .collect();
    steps.sort_by_key(|(step, _)| (importance(&step.operation), step.option));
    let mut changes = vec![];
    for (step, content) in steps.into_iter().take(EACH) {
        let pattern = &content.pattern;
        let letters = Octets::of(pattern.clone(), Origin::Option(step.option));
        let mut at: Vec<usize> =
            (0..pattern.len()).filter(|&at| !instead(pattern[at]).is_empty()).collect();
        at.sort_by_key(|&at| (awkwardness(&letters, at), from_the_middle(&letters, at)));
        for at in at.into_iter().take(EACH) {
            let mut changed = exchanges.to_vec();
            let mut places = 0;
            for turn in changed.iter_mut().flat_map(|exchange| &mut exchange.turns) {
                for begin in places_of(content, turn.octets.bytes()) {
                    let place = begin + at;
                    let (octet, origin) =
                        (turn.octets.bytes()[place], turn.octets.origins()[place]);
                    if let Some(&to) = instead(octet).first() {
                        turn.octets.set(place, to, origin);
                        places += 1;
                    }
                }
            }
            if places > 0 {
                let option = &rule.text[rule.options[usize::from(step.option)].clone()];
                let note =
                    format!("{option}: octet {at} of the content differs in {places} places");
                changes.push((step.option, changed, note));
            }
        }
    }
    changes
}

/// Offsets in `octets` at which the content occurs.
fn places_of(content: &Content, octets: &[u8]) -> Vec<usize> {
    let is_here = |window: &[u8]| match content.nocase {
        true => window.eq_ignore_ascii_case(&content.pattern),
        false => window == content.pattern,
    };
    let windows = octets.windows(content.pattern.len().max(1)).enumerate();
    windows.filter(|(_, window)| is_here(window)).map(|(at, _)| at).collect()
}

/// A single change.
struct Change {
    exchange: usize,
    turn: usize,
    option: Option<u16>,
    what: What,
}

enum What {
    Octet {
        at: usize,
        from: u8,
        to: u8,
    },
    /// Append an octet, or remove the last one.
    Longer,
    Shorter,
    Shape {
        field: &'static str,
        shape: Box<Shape>,
    },
    Transport(Transport),
    TwoAddresses,
    ServerPort(u16),
    ClientPort(u16),
}

impl Change {
    /// Applies the change and returns the previous exchange.
    fn apply(&self, exchanges: &mut [Exchange]) -> Exchange {
        let exchange = &mut exchanges[self.exchange];
        let before = exchange.clone();
        match &self.what {
            What::TwoAddresses => exchange.same_address = false,
            What::ServerPort(port) => exchange.server_port = *port,
            What::ClientPort(port) => exchange.client_port = *port,
            What::Transport(transport) => exchange.transport = *transport,
            other => {
                let turn = &mut exchange.turns[self.turn];
                match other {
                    What::Octet { at, to, .. } => {
                        turn.octets.set(*at, *to, turn.octets.origins()[*at])
                    }
                    What::Longer => turn.octets.push(b'x', Origin::Free),
                    What::Shorter => turn.octets = turn.octets.slice(0..turn.octets.len() - 1),
                    What::Shape { shape, .. } => turn.shape = (**shape).clone(),
                    _ => unreachable!("those of exchanges are above"),
                }
            }
        }
        before
    }

    fn note(&self, rule: &Rule) -> String {
        let option = match self.option {
            Some(option) => &rule.text[rule.options[usize::from(option)].clone()],
            None => "header",
        };
        match &self.what {
            What::Octet { at, from, to } => {
                let show = |octet: &u8| match octet {
                    b' '..=b'~' => format!("'{}'", char::from(*octet)),
                    octet => format!("{octet:#04x}"),
                };
                format!(
                    "{option}: octet {at} of message {} is {}, not {}",
                    self.turn + 1,
                    show(to),
                    show(from)
                )
            }
            What::Longer => format!("{option}: message {} is one octet longer", self.turn + 1),
            What::Shorter => format!("{option}: message {} is one octet shorter", self.turn + 1),
            What::Shape { field, .. } => format!("{option}: different {field}"),
            What::Transport(Transport::Ip(protocol)) => format!("{option}: protocol {protocol}"),
            What::Transport(_) => format!("{option}: different protocol"),
            What::TwoAddresses => format!("{option}: two different addresses"),
            What::ServerPort(port) => format!("{option}: the server's port is {port}"),
            What::ClientPort(port) => format!("{option}: the client's port is {port}"),
        }
    }
}

/// Changes to octets that an option requires: first a few per option, ordered by their relevance to
/// the rule, then more.
fn octets(rule: &Rule, exchanges: &[Exchange]) -> Vec<Change> {
    let mut options: Vec<(u16, &Operation)> =
        rule.inspections.iter().flat_map(|i| &i.steps).map(|s| (s.option, &s.operation)).collect();
    options.sort_by_key(|(option, operation)| (importance(operation), *option));
    // Packet tests can also require octets (`rpc`).
    let known: Vec<u16> = options.iter().map(|(option, _)| *option).collect();
    let mut order = known;
    for option in 0..u16::try_from(rule.options.len()).unwrap_or(u16::MAX) {
        if !order.contains(&option) {
            order.push(option);
        }
    }
    // Positions of each option's octets, starting with the last conversation: if a rule counts
    // events, it is the last event that must not happen.
    let mut places: Vec<Vec<(usize, usize, usize)>> = vec![vec![]; rule.options.len()];
    for (e, exchange) in exchanges.iter().enumerate().rev().take(2) {
        for (t, turn) in exchange.turns.iter().enumerate().rev() {
            for (at, origin) in turn.octets.origins().iter().enumerate() {
                if let Origin::Option(option) = origin
                    && let Some(list) = places.get_mut(usize::from(*option))
                    && list.len() < 4096
                {
                    list.push((e, t, at));
                }
            }
        }
    }
    let mut rounds: [Vec<Change>; 3] = Default::default();
    for option in order {
        let list = &mut places[usize::from(option)];
        list.sort_by_key(|&(e, t, at)| {
            let octets = &exchanges[e].turns[t].octets;
            (std::cmp::Reverse((e, t)), awkwardness(octets, at), from_the_middle(octets, at))
        });
        for (i, &(exchange, turn, at)) in list.iter().take(4 * EACH).enumerate() {
            let from = exchanges[exchange].turns[turn].octets.bytes()[at];
            for (k, to) in instead(from).into_iter().enumerate() {
                let round = if i < 1 && k == 0 {
                    0
                } else if i < EACH && k == 0 {
                    1
                } else {
                    2
                };
                let what = What::Octet { at, from, to };
                rounds[round].push(Change { exchange, turn, option: Some(option), what });
            }
        }
    }
    rounds.into_iter().flatten().collect()
}

/// Rank of an operation. Lower means more specific to the rule.
fn importance(operation: &Operation) -> usize {
    match operation {
        Operation::Content(Content { negated: true, .. }) => 2000,
        Operation::Content(content) => {
            let letters = content.pattern.iter().filter(|o| o.is_ascii_alphabetic()).count();
            let fast = if content.fast_pattern { 300 } else { 0 };
            1000_usize.saturating_sub(letters.min(600) + fast)
        }
        Operation::Pcre(pcre) if !pcre.negated => 1100,
        Operation::ByteTest(_) => 1200,
        _ => 1500,
    }
}

/// Rank of a position. Lower means that a change is less likely to make the message invalid.
fn awkwardness(octets: &Octets, at: usize) -> u8 {
    let bytes = octets.bytes();
    match bytes[at] {
        b'a'..=b'z' | b'A'..=b'Z' if !is_framing(bytes, at) => 0,
        b'0'..=b'9' if !is_framing(bytes, at) => 1,
        0x80.. => 2,
        b'.' | b'/' | b'_' | b'-' | b'=' | b'&' | b'?' | b'+' | b'!' | b'#' | b'$' | b'*'
        | b'|' | b'~' => 3,
        0x01..=0x1f | 0x7f if !matches!(bytes[at], b'\r' | b'\n' | b'\t') => 4,
        0 => 5,
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => 6,
        _ => 7,
    }
}

/// Whether the octet determines a length, an encoding or the protocol.
fn is_framing(bytes: &[u8], at: usize) -> bool {
    // Headers that determine how the body is parsed.
    const NAMES: [&[u8]; 4] =
        [b"content-length", b"transfer-encoding", b"content-encoding", b"content-type: multipart"];
    // Header lines are short, so it suffices to search this far.
    let from =
        bytes[..at].iter().rev().take(128).position(|&o| o == b'\n').map_or(0, |back| at - back);
    let line = &bytes[from.min(at)..bytes.len().min(from + 512)];
    let begins =
        |name: &[u8]| line.len() >= name.len() && line[..name.len()].eq_ignore_ascii_case(name);
    let version = |name: &[u8]| {
        let near = &bytes[at.saturating_sub(8)..bytes.len().min(at + 8)];
        near.windows(name.len()).any(|w| w.eq_ignore_ascii_case(name))
    };
    NAMES.iter().any(|name| begins(name))
        || version(b"http/1.")
        || bytes[at.saturating_sub(2)..=at].contains(&b'%')
}

/// Distance from the middle of the run of octets with the same origin.
fn from_the_middle(octets: &Octets, at: usize) -> usize {
    let origins = octets.origins();
    let same = |o: &&Origin| **o == origins[at];
    let before = origins[..at].iter().rev().take(256).take_while(same).count();
    let after = origins[at..].iter().take(256).take_while(same).count();
    before.abs_diff(after)
}

/// Candidates to replace an octet, most suitable first: letters for a letter, digits for a digit.
fn instead(octet: u8) -> Vec<u8> {
    let next = |first: u8, last: u8| if octet == last { first } else { octet + 1 };
    match octet {
        b'a'..=b'f' => vec![next(b'a', b'f'), b'q', b'7'],
        b'A'..=b'F' => vec![next(b'A', b'F'), b'Q', b'7'],
        b'g'..=b'z' => vec![next(b'g', b'z'), b'a', b'7'],
        b'G'..=b'Z' => vec![next(b'G', b'Z'), b'A', b'7'],
        b'0'..=b'9' => vec![next(b'0', b'9'), if octet < b'5' { b'9' } else { b'0' }, b'q'],
        // Keep separators, so that messages stay valid.
        b'\r' | b'\n' | b' ' | b':' | b'%' => vec![],
        b'!'..=b'~' => vec![b'x', b'7'],
        octet => vec![octet.wrapping_add(1), octet.wrapping_sub(1), octet ^ 0x80, 0xff - octet],
    }
}

/// Changes of header fields and lengths in the last exchange.
fn fields(rule: &Rule, exchanges: &[Exchange]) -> Vec<Change> {
    let mut changes = vec![];
    let Some(exchange) = exchanges.len().checked_sub(1) else { return changes };
    let last = &exchanges[exchange];
    let turns = (0..last.turns.len()).rev().take(8);
    for turn in turns {
        let shape = &last.turns[turn].shape;
        for test in &rule.packet {
            let option = Some(test.option);
            let mut add = |what| changes.push(Change { exchange, turn, option, what });
            for (field, shape) in other_shapes(&test.is, shape) {
                add(What::Shape { field, shape: Box::new(shape) });
            }
            match (&test.is, last.transport) {
                (PacketTest::Size(_), _) => {
                    add(What::Longer);
                    add_shorter(last, turn, &mut add);
                }
                (PacketTest::IpProtocol(_), Transport::Ip(protocol)) => {
                    for protocol in [protocol.wrapping_add(1), protocol.wrapping_sub(1), 253] {
                        add(What::Transport(Transport::Ip(protocol)));
                    }
                }
                (PacketTest::SameAddress, _) => add(What::TwoAddresses),
                _ => {}
            }
        }
        for inspection in &rule.inspections {
            for step in &inspection.steps {
                let mut add =
                    |what| changes.push(Change { exchange, turn, option: Some(step.option), what });
                if let Operation::Size(_) | Operation::IsDataAt(_) = step.operation {
                    add_shorter(last, turn, &mut add);
                    add(What::Longer);
                }
            }
        }
    }
    changes
}

fn add_shorter(exchange: &Exchange, turn: usize, add: &mut impl FnMut(What)) {
    if !exchange.turns[turn].octets.is_empty() {
        add(What::Shorter);
    }
}

/// All other changes: octets of rules played earlier, octets that no option requires, and ports.
fn others(exchanges: &[Exchange]) -> Vec<Change> {
    let mut changes = vec![];
    let Some(exchange) = exchanges.len().checked_sub(1) else { return changes };
    let last = &exchanges[exchange];
    for (kind, each) in [(0, 16), (1, 24), (2, 24)] {
        for (turn, t) in last.turns.iter().enumerate().rev() {
            let of_kind = |origin: &Origin| match origin {
                Origin::Setter(_) => kind == 0,
                Origin::Framing => kind == 1,
                Origin::Free => kind == 2,
                Origin::Option(_) => false,
            };
            let mut places: Vec<usize> = (0..t.octets.len().min(4096))
                .filter(|&at| of_kind(&t.octets.origins()[at]))
                .collect();
            places.retain(|&at| awkwardness(&t.octets, at) <= 1);
            let step = (places.len() / each).max(1);
            for &at in places.iter().step_by(step).take(each) {
                let from = t.octets.bytes()[at];
                for to in instead(from).into_iter().take(1) {
                    changes.push(Change {
                        exchange,
                        turn,
                        option: None,
                        what: What::Octet { at, from, to },
                    });
                }
            }
        }
    }
    let (server, client) = (last.server_port, last.client_port);
    for port in [server.wrapping_add(1), server.wrapping_sub(1), 47_808, 9] {
        changes.push(Change { exchange, turn: 0, option: None, what: What::ServerPort(port) });
    }
    for port in [client.wrapping_add(1), client.wrapping_sub(1), 47_808, 9] {
        changes.push(Change { exchange, turn: 0, option: None, what: What::ClientPort(port) });
    }
    changes
}

/// Shapes that have another value in the field that the test inspects.
fn other_shapes(test: &PacketTest, shape: &Shape) -> Vec<(&'static str, Shape)> {
    let s = || shape.clone();
    let eight = |is: Option<u8>, usual: u8| {
        let is = is.unwrap_or(usual);
        [is.wrapping_add(1), is.wrapping_sub(1), is ^ 0x80, 0, 255].map(Some)
    };
    let sixteen = |is: Option<u16>, usual: u16| {
        let is = is.unwrap_or(usual);
        [is.wrapping_add(1), is.wrapping_sub(1), is ^ 0x8000, 0, 65_535].map(Some)
    };
    let thirtytwo = |is: Option<u32>| {
        let is = is.unwrap_or(0);
        [is.wrapping_add(1), is.wrapping_sub(1), is ^ 0x8000_0000].map(Some)
    };
    match test {
        PacketTest::Flags { .. } => {
            let is = shape.flags.unwrap_or(2);
            [1, 8, 4, 16, 2, 32, 64, 128]
                .map(|bit| ("flags", Shape { flags: Some(is ^ bit), ..s() }))
                .to_vec()
        }
        PacketTest::Ttl(_) => {
            eight(shape.ttl, 64).map(|ttl| ("TTL", Shape { ttl, ..s() })).to_vec()
        }
        PacketTest::Tos(_) => eight(shape.tos, 0).map(|tos| ("TOS", Shape { tos, ..s() })).to_vec(),
        PacketTest::Id(_) => {
            sixteen(shape.id, 0).map(|id| ("IP identifier", Shape { id, ..s() })).to_vec()
        }
        // NOPs in place of the option, no option at all, or another option.
        PacketTest::IpOption { .. } => {
            let options = [vec![1; shape.ip_options.len().max(4)], vec![], vec![148, 4, 0, 0]];
            options.map(|ip_options| ("IP option", Shape { ip_options, ..s() })).to_vec()
        }
        PacketTest::FragmentBits { .. } => {
            let is = shape.fragment_bits.unwrap_or(0);
            [2, 4, 1]
                .map(|bit| ("fragment bit", Shape { fragment_bits: Some(is ^ bit), ..s() }))
                .to_vec()
        }
        PacketTest::FragmentOffset(_) => sixteen(shape.fragment_offset, 0)
            .map(|fragment_offset| {
                (
                    "fragment offset",
                    Shape { fragment_offset: fragment_offset.map(|o| o & 0x1fff), ..s() },
                )
            })
            .to_vec(),
        PacketTest::Sequence(_) => thirtytwo(shape.sequence)
            .map(|sequence| ("sequence number", Shape { sequence, ..s() }))
            .to_vec(),
        PacketTest::Acknowledgment(_) => thirtytwo(shape.acknowledgment)
            .map(|acknowledgment| ("acknowledgment number", Shape { acknowledgment, ..s() }))
            .to_vec(),
        PacketTest::Window(_) => {
            sixteen(shape.window, 0).map(|window| ("window", Shape { window, ..s() })).to_vec()
        }
        PacketTest::Mss(_) => {
            sixteen(shape.mss, 1460).map(|mss| ("MSS", Shape { mss, ..s() })).to_vec()
        }
        PacketTest::WindowScale(_) => eight(shape.window_scale, 7)
            .map(|window_scale| ("window scale", Shape { window_scale, ..s() }))
            .to_vec(),
        PacketTest::IcmpType(_) => eight(shape.icmp_type, 8)
            .map(|icmp_type| ("ICMP type", Shape { icmp_type, ..s() }))
            .to_vec(),
        PacketTest::IcmpCode(_) => eight(shape.icmp_code, 0)
            .map(|icmp_code| ("ICMP code", Shape { icmp_code, ..s() }))
            .to_vec(),
        PacketTest::IcmpId(_) => sixteen(shape.icmp_id, 0)
            .map(|icmp_id| ("ICMP identifier", Shape { icmp_id, ..s() }))
            .to_vec(),
        PacketTest::IcmpSequence(_) => sixteen(shape.icmp_sequence, 0)
            .map(|icmp_sequence| ("ICMP sequence number", Shape { icmp_sequence, ..s() }))
            .to_vec(),
        _ => vec![],
    }
}
