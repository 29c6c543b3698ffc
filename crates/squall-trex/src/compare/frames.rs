//! Compares packets with those that TRex sends.

use squall_units::be16;

use super::LISTED;
use crate::reference::{CLOCK_LEN, Departure, Node};

/// A captured packet.
#[derive(Clone, Debug)]
pub struct Found {
    pub at_ns: u64,
    pub octets: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whether times are relative to the first packet of each side.
    pub from_first: bool,
    /// Whether to compare also the octets after the IP packet of a short frame.
    pub padding: bool,
    /// Whether to expect no packet after the last one.
    pub ended: bool,
}

#[derive(Debug, Default)]
pub struct Matched {
    /// Number of matching packets by stream.
    pub same: Vec<usize>,
    pub differences: Vec<String>,
}

/// Tolerance of departure times.
const CLOSE_NS: u64 = 5_000;

pub fn matched(nodes: &[Node], expected: &[Departure], found: &[Found], rules: Rules) -> Matched {
    let mut matched = Matched { same: vec![0; nodes.len()], ..Matched::default() };
    let nanos = |departure: &Departure| (departure.at * 1e9).round() as u64;
    let (zero, first) = match rules.from_first {
        true => (expected.first().map_or(0, nanos), found.first().map_or(0, |f| f.at_ns)),
        false => (0, 0),
    };
    let mut wrong = vec![0usize; nodes.len()];
    let mut taken = vec![false; found.len()];
    let mut latest: Vec<usize> = vec![0; nodes.len()];
    let mut from = 0;
    for departure in expected {
        let (node, at) = (&nodes[departure.stream], nanos(departure) - zero);
        while from < found.len() && (taken[from] || found[from].at_ns - first + CLOSE_NS < at) {
            from += 1;
        }
        let near: Vec<usize> = (from..found.len())
            .take_while(|&i| found[i].at_ns - first <= at + CLOSE_NS)
            .filter(|&i| !taken[i])
            .collect();
        let hit = near.iter().find(|&&i| same(node, departure, &found[i].octets, rules).is_ok());
        let number = matched.same[departure.stream] + wrong[departure.stream] + 1;
        let problem = match hit {
            Some(&i) => {
                taken[i] = true;
                let late = i < std::mem::replace(&mut latest[departure.stream], i);
                late.then(|| "out of the order of its stream".to_owned())
            }
            None => Some(match near.first() {
                Some(&i) => {
                    same(node, departure, &found[i].octets, rules).expect_err("none is the same")
                }
                None => match nearest(found, &taken, at + first) {
                    Some(other) => format!("the nearest leaves at {} us", other as f64 / 1e3),
                    None => "there is none".to_owned(),
                },
            }),
        };
        match problem {
            None => matched.same[departure.stream] += 1,
            Some(text) => {
                wrong[departure.stream] += 1;
                if wrong[departure.stream] == 1 {
                    let at = at as f64 / 1e3;
                    let name = &node.name;
                    let text = format!("stream {name:?}, packet {number} at {at} us: {text}");
                    matched.differences.push(text);
                }
            }
        }
    }
    let more = wrong.iter().map(|wrong| wrong.saturating_sub(1)).sum::<usize>();
    if more > 0 {
        matched.differences.push(format!("{more} more packets differ"));
    }
    matched.differences.extend(beyond(expected, found, &taken, (zero, first), rules));
    matched.differences.truncate(LISTED);
    matched
}

/// Reports packets that TRex does not send.
fn beyond(
    expected: &[Departure],
    found: &[Found],
    taken: &[bool],
    (zero, first): (u64, u64),
    rules: Rules,
) -> Option<String> {
    let last = expected.last().map_or(0, |one| (one.at * 1e9).round() as u64 - zero);
    let mut over = found.iter().zip(taken).filter(|(packet, taken)| {
        let at = packet.at_ns - first;
        !**taken && (rules.ended || at + CLOSE_NS < last)
    });
    let one = over.next()?.0;
    let at = (one.at_ns - first) as f64 / 1e3;
    let text = format!(
        "{} packets that TRex does not send, the first at {at} us with {} octets",
        1 + over.count(),
        one.octets.len()
    );
    Some(text)
}

fn nearest(found: &[Found], taken: &[bool], at: u64) -> Option<u64> {
    let left = found.iter().zip(taken).filter(|(_, taken)| !**taken);
    left.map(|(packet, _)| packet.at_ns).min_by_key(|time| time.abs_diff(at))
}

/// Checks that a packet equals the packet that is due. The error describes the difference.
fn same(node: &Node, due: &Departure, found: &[u8], rules: Rules) -> Result<(), String> {
    let mut expected = match node.program.chance() {
        Some(chance) => chance.adopt(node.packet(), &due.octets, found)?,
        None => due.octets.clone(),
    };
    let mut found = found.to_vec();
    if !rules.padding {
        // TRex's simulator leaves checksums to the NIC.
        node.program.offload(&mut found);
    }
    if node.clocked && found.len() == expected.len() {
        for side in [&mut expected, &mut found] {
            let from = side.len().saturating_sub(CLOCK_LEN);
            side[from..].fill(0);
        }
    }
    let (expected, found) = match rules.padding {
        true => (&expected[..], &found[..]),
        false => (unpadded(&expected), unpadded(&found)),
    };
    if expected == found {
        return Ok(());
    }
    let place = expected.iter().zip(found).position(|(a, b)| a != b);
    let place = place.unwrap_or(expected.len().min(found.len()));
    let hex = |octets: &[u8]| {
        let some = &octets[place..octets.len().min(place + 8)];
        some.iter().map(|octet| format!("{octet:02x}")).collect::<String>()
    };
    Err(format!(
        "octet {place} is {} in place of {} ({} octets, {} in TRex)",
        hex(found),
        hex(expected),
        found.len(),
        expected.len()
    ))
}

/// The packet without the padding of a short frame.
fn unpadded(octets: &[u8]) -> &[u8] {
    let word = |at: usize| be16(octets, at);
    if octets.len() != 60 {
        return octets;
    }
    let mut at = 12;
    while matches!(word(at), 0x8100 | 0x88a8) && at < 40 {
        at += 4;
    }
    match word(at) {
        0x0800 => &octets[..(at + 2 + usize::from(word(at + 4))).min(60)],
        _ => octets,
    }
}
