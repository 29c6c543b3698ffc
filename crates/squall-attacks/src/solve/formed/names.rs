//! DNS (RFC 1035 §4) and NetBIOS names (RFC 1002 §4.2): counts announce records, lengths precede
//! labels.

use squall_rules::End;

use super::{Closer, Form};
use crate::{Octets, Origin};

/// Maximum number of records in one message.
const MAX_RECORDS: u16 = 24;

const QUESTION: &[u8] = b"\x04mail\x07example\x03com\x00\x00\x01\x00\x01";

/// A NetBIOS host name. Each half octet is encoded as a letter, starting at `A` (RFC 1001 §14.1).
const HOST: &[u8] = b"\x20FDFEEBFEEJEPEODBCACACACACACACAAA\x00";

pub(super) fn dns(from: End) -> Vec<Form> {
    let header = |flags: [u8; 2], counts: [u8; 4]| {
        let [questions, answers, authorities, others] = counts;
        Form::default().usual(&[0x5a, 0x17]).usual(&flags).fixed(&[
            0,
            questions,
            0,
            answers,
            0,
            authorities,
            0,
            others,
        ])
    };
    let open = |flags: [u8; 2]| Form::default().usual(&[0x5a, 0x17]).usual(&flags);
    match from {
        End::Client => {
            let flags = [1, 0];
            vec![
                header(flags, [1, 0, 0, 0]),
                header(flags, [1, 0, 0, 1]),
                // The content is within a label.
                header(flags, [1, 0, 0, 0]).usual(&[0]),
                header(flags, [1, 0, 0, 1]).usual(&[0]),
                // The content includes the counts.
                Form::default().usual(&[0x5a, 0x17]).anchored(2),
                Form::default().usual(&[0x5a, 0x17, 1]).anchored(3),
                open(flags),
            ]
        }
        End::Server => {
            let flags = [0x81, 0x80];
            vec![
                header(flags, [1, 1, 0, 0]),
                header(flags, [1, 1, 0, 0]).fixed(QUESTION),
                header(flags, [1, 1, 0, 0]).fixed(QUESTION).fixed(&[0xc0, 12]),
                open(flags).usual(&[0, 1, 0, 1, 0, 0, 0, 0]).fixed(QUESTION).anchored(2),
                Form::default().usual(&[0x5a, 0x17]).anchored(2),
                open(flags),
            ]
        }
    }
}

pub(super) fn nbns() -> Vec<Form> {
    let header = |flags: [u8; 2], counts: [u8; 8]| {
        Form::default().usual(&[0x5a, 0x17]).usual(&flags).fixed(&counts)
    };
    vec![
        header([1, 0x10], [0, 1, 0, 0, 0, 0, 0, 0]),
        header([0x28, 0x10], [0, 1, 0, 0, 0, 0, 0, 1]),
        header([0x85, 0], [0, 0, 0, 1, 0, 0, 0, 0]),
    ]
}

/// Completes the message, including all records that it announces.
pub(super) fn close(from: End, octets: Octets, netbios: bool) -> Option<Octets> {
    let mut closer = Closer::new(octets);
    let flags = match (netbios, from) {
        (false, End::Client) => [1, 0],
        (false, End::Server) => [0x81, 0x80],
        // Either end may own the name and answer. A message with answer records is a response; a
        // registration has an additional record (RFC 1002 §4.2.2, §4.2.13).
        (true, _) => match (closer.word(6), closer.word(10)) {
            (0, 0) => [1, 0x10],
            (0, _) => [0x28, 0x10],
            _ => [0x85, 0],
        },
    };
    closer.take(&[&[0x5a, 0x17], &flags[..], &[0, 1, 0, 0, 0, 0, 0, 0]].concat());
    let counts = [4, 6, 8, 10].map(|at| closer.word(at));
    let records = counts[1..].iter().try_fold(0_u16, |sum, &count| sum.checked_add(count))?;
    if counts[0].checked_add(records)? > MAX_RECORDS {
        return None;
    }
    for question in 0..counts[0] {
        let last = records == 0 && question + 1 == counts[0];
        name(&mut closer, netbios, last)?;
        let kind = if netbios { 0x20 } else { 1 };
        closer.take(&[0, kind, 0, 1]);
    }
    for record in 0..records {
        let last = record + 1 == records;
        let additional = record >= counts[1] + counts[2];
        let option = additional && !netbios && closer.byte(2) & 0x80 == 0;
        self::record(&mut closer, netbios, last, option)?;
    }
    // All data must belong to a record.
    (closer.left() == 0).then(|| closer.done())
}

/// Completes a name. In the `last` question, the name extends to the end of the message.
fn name(closer: &mut Closer, netbios: bool, last: bool) -> Option<()> {
    let begin = closer.at;
    if closer.is_missing() {
        closer.take(if netbios { HOST } else { &QUESTION[..QUESTION.len() - 4] });
        return Some(());
    }
    loop {
        if closer.at - begin > 250 {
            return None;
        }
        if closer.is_missing() || closer.is_free(1) {
            let fixed = (1..=63).find(|&off| {
                closer
                    .octets
                    .origins()
                    .get(closer.at + off)
                    .is_some_and(|origin| *origin != Origin::Free)
            });
            let left = closer.left();
            let spare = left.saturating_sub(5);
            let length = match fixed {
                // End one label at the start of the required octets, and another at their end.
                Some(_) if closer.at == begin && closer.at == 12 => {
                    let mut end = left - 1;
                    while end > 1 && closer.octets.origins()[closer.at + end] == Origin::Free {
                        end -= 1;
                    }
                    end
                }
                Some(off) if off >= 2 => off - 1,
                Some(_) => return None,
                None if last && spare >= 2 => match spare {
                    65 => 31,
                    spare => spare.min(64) - 1,
                },
                None => 0,
            };
            if length > 63 {
                return None;
            }
            closer.take(&[length as u8]);
            if length == 0 {
                return Some(());
            }
            closer.pass(length, b'a')?;
            continue;
        }
        match closer.byte(closer.at) {
            0 => {
                closer.at += 1;
                return Some(());
            }
            length @ 1..=63 if netbios && closer.at == begin => {
                closer.at += 1;
                // Pairs of letters from A to P.
                for letter in 0..usize::from(length) {
                    closer.take(&[if letter % 2 == 0 { b'C' } else { b'A' }]);
                }
            }
            length @ 1..=63 => {
                closer.at += 1;
                closer.pass(length.into(), b'a')?;
            }
            0xc0..=0xff => {
                let to = usize::from(closer.word(closer.at) & 0x3fff);
                if closer.at + 2 > closer.octets.len() || to < 12 || to >= begin {
                    return None;
                }
                closer.at += 2;
                return Some(());
            }
            _ => return None,
        }
    }
}

/// Completes a record. The `last` record extends to the end of the message.
fn record(closer: &mut Closer, netbios: bool, last: bool, option: bool) -> Option<()> {
    if option && closer.is_free(1) {
        closer.take(&[0]);
    } else if closer.is_free(2) && closer.at > 12 {
        // A pointer to the name in the question.
        closer.take(&[0xc0, 12]);
    } else {
        name(closer, netbios, false)?;
    }
    let from = closer.at;
    let room = closer.octets.len().saturating_sub(from + 10);
    let kind: [u8; 2] = match (option, netbios, room) {
        (true, ..) => [0, 41],
        (_, true, _) => [0, 0x20],
        (_, _, 0..=4) => [0, 1],
        // NULL: arbitrary data (RFC 1035 §3.3.10).
        _ => [0, 10],
    };
    closer.take(&kind);
    closer.take(if option { &[0x10, 0, 0, 0, 0, 0] } else { &[0, 1, 0, 0, 0, 60] });
    let kind = closer.word(from);
    let usual = match kind {
        41 if room == 0 => 0,
        41 => room.max(4),
        1 => room.max(4),
        0x20 if netbios => room.div_ceil(6).max(1) * 6,
        _ => room.max(4),
    };
    let wanted = if last { usual } else { 4 };
    closer.take(&u16::try_from(wanted).ok()?.to_be_bytes());
    let length = usize::from(closer.word(from + 8));
    let data = closer.at;
    match kind {
        // TXT: strings with lengths.
        16 => {
            while closer.at < data + length {
                let left = data + length - closer.at - 1;
                closer.take(&[left.min(255) as u8]);
                let string = usize::from(closer.byte(closer.at - 1));
                if string > left {
                    return None;
                }
                closer.pass(string, b'a')?;
            }
        }
        // NS, CNAME, PTR: a name of exactly that length.
        2 | 5 | 12 => {
            while closer.at < data + length {
                let left = data + length - closer.at;
                closer.take(&[match left {
                    1 => 0,
                    66 => 31,
                    left => (left - 2).min(63) as u8,
                }]);
                let label = usize::from(closer.byte(closer.at - 1));
                if label >= left {
                    return None;
                }
                closer.pass(label, b'a')?;
            }
        }
        // Padding option (RFC 7830 §3).
        41 if length >= 4 && closer.is_free(4) => {
            closer.take(&[0, 12]);
            closer.take(&u16::try_from(length - 4).ok()?.to_be_bytes());
            while closer.at < data + length {
                closer.take(&[0]);
            }
        }
        0x20 if netbios => {
            for octet in 0..length {
                closer.take(&[[0, 0, 10, 0, 0, 9][octet % 6]]);
            }
        }
        _ => closer.pass(length, 0)?,
    }
    Some(())
}
