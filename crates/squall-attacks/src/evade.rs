//! Evasions: ways to send the same octets that may make a detector on the path see different ones.
//!
//! They transform segments and packets of a finished conversation and never change its data. Each
//! documents its assumption about the receiver. If the assumption holds, sender and receiver agree
//! on the stream. Evasions can be combined, except those that depend on the order of segments. They
//! apply in the given order, fragmentation last.

use std::{fmt, str::FromStr};

use squall_wire::tcp_flags::{ACK, FIN, PSH, RST, SYN};

use crate::wire::packet::{Head, Packet, Segment};

/// An evasion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Evasion {
    Segments(u16),
    Window(u16),
    Reorder,
    Duplicate,
    Overlap(u16),
    OverlapFirst,
    OverlapLast,
    TtlDecoy(u8),
    ChecksumDecoy,
    RstDecoy,
    FinDecoy,
    PawsDecoy,
    Fragments(u16),
    FragmentsReversed(u16),
    FragmentsDuplicate(u16),
    FragmentsOverlap(u16),
    Ipv4Options,
    Ipv6Extensions,
}

/// Name, effect and assumption of an evasion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Help {
    /// The name, as parsed.
    pub name: &'static str,
    /// The number after `=`, if it takes one.
    pub argument: Option<Argument>,
    pub description: &'static str,
    /// The assumption about the receiver or the path.
    pub assumes: &'static str,
    /// The evasion with the default value of its number.
    pub usual: Evasion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    pub name: &'static str,
    pub least: u16,
    pub most: u16,
    /// The number must be a multiple of this.
    pub step: u16,
}

const fn octets(least: u16) -> Option<Argument> {
    Some(Argument { name: "octets", least, most: 1460, step: 1 })
}

/// RFC 791 §3.2: all fragments but the last carry a multiple of eight octets.
const PIECES: Option<Argument> = Some(Argument { name: "octets", least: 8, most: 1456, step: 8 });

/// All evasions, in the order of the documentation.
pub const EVASIONS: [Help; 18] = [
    Help {
        name: "segments",
        argument: octets(1),
        description: "sends TCP payload in segments of this many octets",
        assumes: "nothing: it is plain TCP",
        usual: Evasion::Segments(8),
    },
    Help {
        name: "window",
        argument: octets(1),
        description: "both ends offer an unscaled window of this many octets and acknowledge each segment",
        assumes: "nothing: it is plain TCP",
        usual: Evasion::Window(16),
    },
    Help {
        name: "reorder",
        argument: None,
        description: "sends the last of two or more segments between two acknowledgments first",
        assumes: "the receiver keeps early segments (RFC 9293 §3.10.7.4)",
        usual: Evasion::Reorder,
    },
    Help {
        name: "duplicate",
        argument: None,
        description: "sends each segment with data twice",
        assumes: "nothing: it is plain TCP",
        usual: Evasion::Duplicate,
    },
    Help {
        name: "overlap",
        argument: octets(1),
        description: "begins each segment but the first with a copy of this many last octets of the \
               previous one",
        assumes: "nothing: it is plain TCP",
        usual: Evasion::Overlap(4),
    },
    Help {
        name: "overlap-first",
        argument: None,
        description: "sends the second half of each segment first, then other octets in its place, then \
               the first half",
        assumes: "the first copy of early octets counts: Linux, BSD, Windows",
        usual: Evasion::OverlapFirst,
    },
    Help {
        name: "overlap-last",
        argument: None,
        description: "sends other octets in place of all but the first of a segment, then the segment",
        assumes: "a segment that begins before an early one and covers it replaces it: Linux, BSD; \
                  not Windows",
        usual: Evasion::OverlapLast,
    },
    Help {
        name: "ttl-decoy",
        argument: Some(Argument { name: "hops", least: 1, most: 255, step: 1 }),
        description: "sends a decoy with other octets and this TTL before each segment",
        assumes: "the decoy does not reach the receiver: at least this many routers are between \
                  detector and receiver",
        usual: Evasion::TtlDecoy(1),
    },
    Help {
        name: "checksum-decoy",
        argument: None,
        description: "sends a decoy with other octets and a wrong TCP checksum before each segment",
        assumes: "the receiver or its NIC verifies checksums",
        usual: Evasion::ChecksumDecoy,
    },
    Help {
        name: "rst-decoy",
        argument: None,
        description: "sends a RST with a sequence number far outside the window before each segment",
        assumes: "the receiver accepts a RST only inside the window (RFC 5961 §3)",
        usual: Evasion::RstDecoy,
    },
    Help {
        name: "fin-decoy",
        argument: None,
        description: "sends a FIN with a sequence number far outside the window before each segment",
        assumes: "the receiver accepts a FIN only inside the window (RFC 9293 §3.10.7.4)",
        usual: Evasion::FinDecoy,
    },
    Help {
        name: "paws-decoy",
        argument: None,
        description: "sends a decoy with other octets and an old timestamp before each segment; all \
               segments have timestamps",
        assumes: "the receiver drops old timestamps (RFC 7323 §5)",
        usual: Evasion::PawsDecoy,
    },
    Help {
        name: "fragments",
        argument: PIECES,
        description: "sends each IP packet with data in fragments that carry this many octets",
        assumes: "fragments reach the receiver and are reassembled: no filter in between drops \
                  small ones (RFC 1858)",
        usual: Evasion::Fragments(24),
    },
    Help {
        name: "fragments-reversed",
        argument: PIECES,
        description: "like fragments, but sends the last fragment first",
        assumes: "the same as fragments",
        usual: Evasion::FragmentsReversed(24),
    },
    Help {
        name: "fragments-duplicate",
        argument: PIECES,
        description: "like fragments, but sends each one except the last twice",
        assumes: "the same as fragments; exact copies of fragments are accepted: Linux except \
                  4.19 to 4.20",
        usual: Evasion::FragmentsDuplicate(24),
    },
    Help {
        name: "fragments-overlap",
        argument: PIECES,
        description: "like fragments, but each one except the last also carries a copy of the first eight \
               octets of the next",
        assumes: "the same as fragments; fragments may overlap: not Linux 4.19 or later, and never \
                  with IPv6 (RFC 5722)",
        usual: Evasion::FragmentsOverlap(24),
    },
    Help {
        name: "ipv4-options",
        argument: None,
        description: "adds four no-operation options to each IPv4 header",
        assumes: "packets with options reach the receiver: many routers drop them (RFC 7126)",
        usual: Evasion::Ipv4Options,
    },
    Help {
        name: "ipv6-extensions",
        argument: None,
        description: "adds an empty hop-by-hop and destination options header to each IPv6 packet",
        assumes: "packets with extension headers reach the receiver: many routers drop them (RFC \
                  7872)",
        usual: Evasion::Ipv6Extensions,
    },
];

/// An unknown name or an invalid number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

impl Evasion {
    pub fn help(self) -> &'static Help {
        let same =
            |help: &&Help| std::mem::discriminant(&help.usual) == std::mem::discriminant(&self);
        EVASIONS.iter().find(same).expect("each way has its help")
    }

    fn number(self) -> Option<u16> {
        use Evasion::*;
        match self {
            Segments(n) | Window(n) | Overlap(n) => Some(n),
            Fragments(n) | FragmentsReversed(n) | FragmentsDuplicate(n) | FragmentsOverlap(n) => {
                Some(n)
            }
            TtlDecoy(n) => Some(n.into()),
            _ => None,
        }
    }

    fn with(self, n: u16) -> Self {
        use Evasion::*;
        match self {
            Segments(_) => Segments(n),
            Window(_) => Window(n),
            Overlap(_) => Overlap(n),
            Fragments(_) => Fragments(n),
            FragmentsReversed(_) => FragmentsReversed(n),
            FragmentsDuplicate(_) => FragmentsDuplicate(n),
            FragmentsOverlap(_) => FragmentsOverlap(n),
            TtlDecoy(_) => TtlDecoy(n as u8),
            other => other,
        }
    }

    /// Whether the number is within its bounds. Values that were not parsed may be out of bounds.
    pub(crate) fn is_possible(self) -> bool {
        let Some((argument, n)) = self.help().argument.zip(self.number()) else { return true };
        (argument.least..=argument.most).contains(&n) && n.is_multiple_of(argument.step)
    }
}

/// `segments`, `segments=8`.
impl FromStr for Evasion {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (name, number) = match text.split_once('=') {
            Some((name, number)) => (name.trim(), Some(number.trim())),
            None => (text.trim(), None),
        };
        let Some(help) = EVASIONS.iter().find(|help| help.name.eq_ignore_ascii_case(name)) else {
            let names = EVASIONS.map(|help| help.name).join(", ");
            return Err(ParseError(format!("found {name:?}, expected one of {names}")));
        };
        let Some(number) = number else { return Ok(help.usual) };
        let Some(argument) = help.argument else {
            return Err(ParseError(format!("found {text:?}, expected {name} without a number")));
        };
        let Argument { name: unit, least, most, step } = argument;
        let evasion = number.parse().ok().map(|n| help.usual.with(n)).filter(|e| e.is_possible());
        // Reject numbers that do not fit: a TTL of 256 would become 0.
        evasion.filter(|e| e.number().map(|n| n.to_string()).as_deref() == Some(number)).ok_or_else(
            || {
                let step = if step > 1 { format!(", a multiple of {step}") } else { String::new() };
                ParseError(format!(
                    "{name}: found {number:?}, expected {unit} of {least} to {most}{step}"
                ))
            },
        )
    }
}

/// The form that [`FromStr`] parses.
impl fmt::Display for Evasion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.help().name)?;
        match self.number() {
            Some(n) => write!(f, "={n}"),
            None => Ok(()),
        }
    }
}

/// Two evasions that exclude each other, because reordering undoes the effect of sending data
/// early.
pub(crate) fn conflict(evasions: &[Evasion]) -> Option<(Evasion, Evasion)> {
    use Evasion::*;
    let ordered =
        |e: &&Evasion| matches!(e, OverlapFirst | OverlapLast | Overlap(_) | Duplicate | Reorder);
    let strict = |e: &Evasion| matches!(e, OverlapFirst | OverlapLast);
    let mut found = evasions.iter().filter(ordered);
    let first = *found.next()?;
    found.find(|e| strict(e) || strict(&first)).map(|&other| (first, other))
}

/// Settings of fragmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pieces {
    pub step: usize,
    /// Number of octets from the start of the next fragment that each fragment repeats.
    pub overlap: usize,
    pub reversed: bool,
    pub twice: bool,
}

/// The settings of the last evasion that concerns fragments.
pub(crate) fn pieces(evasions: &[Evasion]) -> Option<Pieces> {
    let usual = |n: u16| Pieces { step: n.into(), overlap: 0, reversed: false, twice: false };
    evasions.iter().rev().find_map(|evasion| match *evasion {
        Evasion::Fragments(n) => Some(usual(n)),
        Evasion::FragmentsReversed(n) => Some(Pieces { reversed: true, ..usual(n) }),
        Evasion::FragmentsDuplicate(n) => Some(Pieces { twice: true, ..usual(n) }),
        Evasion::FragmentsOverlap(n) => Some(Pieces { overlap: 8, ..usual(n) }),
        _ => None,
    })
}

/// Transforms the packets of a connection. Segments marked `whole` are not split.
pub(crate) fn apply(packets: Vec<Packet>, evasions: &[Evasion]) -> Vec<Packet> {
    evasions.iter().fold(packets, |packets, &evasion| {
        let mut sent = Vec::with_capacity(packets.len());
        let mut burst = vec![];
        for packet in packets {
            if is_data(&packet)
                && burst.last().is_none_or(|before: &Packet| before.from == packet.from)
            {
                burst.push(packet);
                continue;
            }
            send(std::mem::take(&mut burst), evasion, &mut sent);
            if is_data(&packet) { burst.push(packet) } else { sent.push(packet) }
        }
        send(burst, evasion, &mut sent);
        sent
    })
}

fn is_data(packet: &Packet) -> bool {
    matches!(&packet.head, Head::Tcp(segment) if segment.flags & SYN == 0)
        && !packet.payload.is_empty()
}

/// Sends the segments that one end sends between two acknowledgments by the other.
fn send(mut burst: Vec<Packet>, evasion: Evasion, sent: &mut Vec<Packet>) {
    if burst.is_empty() {
        return;
    }
    let pause = std::mem::take(&mut burst[0].pause);
    let from = sent.len();
    match evasion {
        Evasion::Duplicate => {
            sent.extend(burst.into_iter().flat_map(|packet| [packet.clone(), packet]))
        }
        Evasion::Reorder => {
            if burst.len() == 1
                && let Some((first, second)) = halves(&burst[0])
            {
                burst = vec![first, second];
            }
            sent.extend(burst.into_iter().rev());
        }
        Evasion::Overlap(n) => {
            if burst.len() == 1
                && let Some((first, second)) = halves(&burst[0])
            {
                burst = vec![first, second];
            }
            for i in 0..burst.len() {
                sent.push(if i == 0 {
                    burst[i].clone()
                } else {
                    with_overlap(&burst[i - 1], &burst[i], n.into())
                });
            }
        }
        Evasion::OverlapFirst => {
            for packet in burst {
                match halves(&packet) {
                    Some((first, second)) => {
                        let decoy = decoy(&second);
                        sent.extend([second, decoy, first]);
                    }
                    None => sent.push(packet),
                }
            }
        }
        Evasion::OverlapLast => {
            for packet in burst {
                if !packet.whole && packet.payload.len() > 1 {
                    sent.push(decoy(&part(&packet, 1, packet.payload.len())));
                }
                sent.push(packet);
            }
        }
        Evasion::TtlDecoy(ttl) => {
            decoys(burst, sent, |decoy, _| decoy.ip.ttl = ttl);
        }
        Evasion::ChecksumDecoy => decoys(burst, sent, |decoy, _| decoy.wrong_checksum = true),
        Evasion::PawsDecoy => decoys(burst, sent, |_, segment| age(&mut segment.options)),
        Evasion::RstDecoy | Evasion::FinDecoy => {
            let flag = if evasion == Evasion::RstDecoy { RST } else { FIN };
            decoys(burst, sent, |decoy, segment| {
                decoy.payload.clear();
                segment.sequence = segment.sequence.wrapping_add(FAR);
                segment.flags = flag | ACK;
            });
        }
        _ => sent.extend(burst),
    }
    sent[from].pause = pause;
}

/// A distance beyond any window, because windows are at most 2^30 octets (RFC 7323 §2.3).
const FAR: u32 = 0x6000_0000;

/// Sends a changed copy before each packet.
fn decoys(burst: Vec<Packet>, sent: &mut Vec<Packet>, change: impl Fn(&mut Packet, &mut Segment)) {
    for packet in burst {
        let mut other = decoy(&packet);
        if let Head::Tcp(mut segment) = other.head.clone() {
            change(&mut other, &mut segment);
            other.head = Head::Tcp(segment);
            sent.push(other);
        }
        sent.push(packet);
    }
}

/// The packet with all octets changed, without FIN and RST.
fn decoy(packet: &Packet) -> Packet {
    let mut decoy = packet.clone();
    for octet in &mut decoy.payload {
        *octet = if *octet == b'X' { b'Y' } else { b'X' };
    }
    if let Head::Tcp(segment) = &mut decoy.head {
        segment.flags &= !(FIN | RST);
    }
    decoy
}

/// A part of a segment. FIN and PSH stay on the last part.
fn part(packet: &Packet, from: usize, to: usize) -> Packet {
    let mut part = packet.clone();
    if let Head::Tcp(segment) = &mut part.head {
        segment.sequence = segment.sequence.wrapping_add(from as u32);
        if to < packet.payload.len() {
            segment.flags &= !(FIN | RST | PSH);
        }
    }
    part.payload = packet.payload[from..to].to_vec();
    part
}

fn halves(packet: &Packet) -> Option<(Packet, Packet)> {
    let len = packet.payload.len();
    (len > 1 && !packet.whole).then(|| (part(packet, 0, len / 2), part(packet, len / 2, len)))
}

/// `packet` with the last `n` octets of the previous segment in front, if that segment directly
/// precedes it and `packet` may be extended.
fn with_overlap(before: &Packet, packet: &Packet, n: usize) -> Packet {
    let mut longer = packet.clone();
    if let (Head::Tcp(first), Head::Tcp(segment)) = (&before.head, &mut longer.head)
        && first.sequence.wrapping_add(before.payload.len() as u32) == segment.sequence
        && !packet.whole
    {
        let again = &before.payload[before.payload.len().saturating_sub(n)..];
        segment.sequence = segment.sequence.wrapping_sub(again.len() as u32);
        longer.payload.splice(0..0, again.iter().copied());
    }
    longer
}

/// Sets the timestamp to an old value (RFC 7323 §5: PAWS drops the segment).
fn age(options: &mut [u8]) {
    // Linux's layout in data segments: NOP, NOP, kind 8, length 10.
    if let [1, 1, 8, 10, stamp @ ..] = options
        && let Some(stamp) = stamp.first_chunk_mut::<4>()
    {
        *stamp = u32::from_be_bytes(*stamp).wrapping_sub(0x1000_0000).to_be_bytes();
    }
}

#[cfg(test)]
mod tests;
