//! Messages with fields at fixed offsets, lengths and checksums.

use squall_rules::End;

use super::{Closer, Form};
use crate::{Octets, Origin};

/// Completes a TFTP request: a file name and a mode, each terminated by a zero octet (RFC 1350 §5).
pub(super) fn close_tftp(octets: Octets) -> Option<Octets> {
    let mut closer = Closer::new(octets);
    closer.take(&[0, 1]);
    if closer.word(0) > 2 {
        return None;
    }
    // Zeros end strings. Terminate the last string if it is unfinished.
    let zeros = closer.octets.bytes()[2..].iter().filter(|&&octet| octet == 0).count();
    let ended = closer.octets.len() > 2 && closer.octets.bytes().ends_with(&[0]);
    closer.at = closer.octets.len();
    match (zeros, ended) {
        _ if closer.at == 2 => closer.take(b"file.bin\0octet\0"),
        // A long name tests for an overflow, so extend it further.
        (0, _) if closer.at > 100 => closer.take(b".bin\0octet\0"),
        (0, _) => closer.take(b"\0octet\0"),
        (1, true) => closer.take(b"octet\0"),
        (_, false) => closer.take(b"\0"),
        _ => 0,
    };
    Some(closer.done())
}

/// Fields of a BOOTP message (RFC 951 §3) and the magic cookie (RFC 2131 §3).
pub(super) fn dhcp(from: End) -> Vec<Form> {
    let (operation, message) = match from {
        End::Client => (1, 1),
        End::Server => (2, 5),
    };
    let mut fields = vec![operation, 1, 6, 0, 0x3d, 0x1d, 0x5a, 0x17];
    fields.resize(28, 0);
    fields.extend([2, 0x51, 0x0a, 0, 0, 1]);
    fields.resize(236, 0);
    let all = Form::default().usual(&fields).fixed(&[0x63, 0x82, 0x53, 0x63]);
    vec![
        all.clone().fixed(&[53, 1, message]),
        // Within a text option.
        all.clone().fixed(&[53, 1, message, 12]).usual(&[0]),
        all.clone().fixed(&[53, 1, message]).usual(&[0; 24]),
        all,
    ]
}

/// Completes options (code, length and data) up to the end option (RFC 2132 §2).
pub(super) fn close_dhcp(octets: Octets) -> Option<Octets> {
    let mut closer = Closer::new(octets);
    closer.at = 240;
    // No option may follow the end option.
    while closer.left() > 0 {
        let code = closer.byte(closer.at);
        if closer.is_free(1) {
            let end = (1..closer.left())
                .find(|&off| closer.octets.origins()[closer.at + off] != Origin::Free)
                .unwrap_or(closer.left());
            closer.take(&vec![0; end]);
            continue;
        }
        closer.at += 1;
        match code {
            0 => continue,
            255 if closer.left() > 0 => return None,
            255 => return Some(closer.done()),
            _ => {}
        }
        let left = u8::try_from(closer.left().saturating_sub(1)).ok();
        if closer.is_free(1) {
            closer.take(&[left?.max(4)]);
        } else {
            closer.at += 1;
        }
        let length = closer.byte(closer.at - 1);
        closer.pass(length.into(), b'a')?;
    }
    closer.take(&[255]);
    Some(closer.done())
}

/// Version 1.0, main mode, and payloads (RFC 2408 §3.1).
pub(super) fn isakmp() -> Vec<Form> {
    let mut fields = vec![0x5a, 0x17, 0x3d, 0x1d, 0x0a, 0x51, 0x02, 0x77];
    fields.resize(16, 0);
    let whole = |next: u8, exchange: u8| {
        let mut header = fields.clone();
        header.extend([next, 0x10, exchange, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        Form::default().usual(&header)
    };
    // First try to align a content that contains the version with that field.
    let mut forms: Vec<Form> =
        (0..12).map(|anchor| Form::default().usual(&fields[..anchor]).anchored(anchor)).collect();
    forms.extend([whole(13, 2), whole(11, 5)]);
    forms
}

pub(super) fn close_isakmp(octets: Octets) -> Option<Octets> {
    const HEADER: usize = 28;
    // Payload types (RFC 2408 §3.1).
    const VENDOR: u8 = 13;
    const IDENTIFICATION: u8 = 5;
    let mut closer = Closer::new(octets);
    closer.pass(HEADER.saturating_sub(closer.octets.len()), 0)?;
    closer.pass(HEADER.saturating_sub(closer.at), 0)?;
    closer.at = HEADER;
    if closer.byte(17) != 0x10 {
        return None;
    }
    let mut next = closer.byte(16);
    let mut payloads = 0;
    while next != 0 {
        payloads += 1;
        if payloads > 8 || next > 15 {
            return None;
        }
        let from = closer.at;
        let kind = next;
        // If this payload ends before the message does, another payload follows it.
        let length = usize::from(closer.word(from + 2));
        let required =
            closer.octets.origins().get(from + 3).is_some_and(|origin| *origin != Origin::Free);
        let more = required && length >= 4 && from + length < closer.octets.len();
        closer.take(&[if more { VENDOR } else { 0 }]);
        next = closer.byte(from);
        closer.take(&[0]);
        // The last payload extends to the end of the message. Each has at least the minimum length
        // for its type.
        let left = closer.octets.len().saturating_sub(from).max(16);
        closer.take(&u16::try_from(left).ok()?.to_be_bytes());
        if kind == IDENTIFICATION && closer.word(from + 2) < 9 {
            // A type, a protocol, a port, and one octet of data.
            closer.put(from + 2, &[0, 9]);
        }
        let length = usize::from(closer.word(from + 2));
        closer.pass(length.checked_sub(4)?, 0)?;
        if kind == IDENTIFICATION && closer.byte(from + 4) >= 9 {
            // Arbitrary octets of any length (RFC 2407 §4.6.2.1).
            closer.put(from + 4, &[11]);
        }
    }
    if closer.left() > 0 {
        return None;
    }
    let length = u32::try_from(closer.at).ok()?;
    closer.put(24, &length.to_be_bytes());
    Some(closer.done())
}

pub(super) fn xtacacs(from: End) -> Vec<Form> {
    let kind = if from == End::Client { 1 } else { 2 };
    let mut fields = vec![0x80, kind, 0x5a, 0x17];
    fields.resize(26, 0);
    vec![Form::default().usual(&fields), Form::default()]
}

/// Completes the fields up to the third result, then user name and password (RFC 1492 §2.3).
pub(super) fn close_xtacacs(octets: Octets) -> Option<Octets> {
    let mut closer = Closer::new(octets);
    if closer.byte(0) != 0x80 {
        return None;
    }
    let missing = 26_usize.saturating_sub(closer.octets.len());
    closer.at = closer.octets.len();
    closer.pass(missing, 0)?;
    if closer.byte(1) != 2 {
        let strings = usize::from(closer.byte(4)) + usize::from(closer.byte(5));
        closer.at = 26;
        closer.pass(strings, b'a')?;
    }
    Some(closer.done())
}

pub(super) fn pcom(from: End) -> Vec<Form> {
    let ascii: &[u8] = if from == End::Client { b"/00" } else { b"/A00" };
    let mut binary = b"/_OPLC\0\xfe\x01\0\0\0".to_vec();
    if from == End::Server {
        binary[6..8].reverse();
    }
    binary.resize(24, 0);
    let header = |mode: u8| Form::default().usual(&[0x5a, 0x17]).fixed(&[mode]).usual(&[0, 0, 0]);
    vec![header(101).usual(ascii), header(102).usual(&binary)]
}

/// Sets the length of the data after the first six octets, the checksum and the terminator. In the
/// binary form, header and data have a length and a checksum each.
pub(super) fn close_pcom(octets: Octets, from: End) -> Option<Octets> {
    let mut closer = Closer::new(octets);
    match closer.byte(2) {
        101 => {
            let code = if from == End::Client { 9 } else { 10 };
            let begin = code - 2;
            let command: Vec<u8> = closer.octets.bytes().get(code..).unwrap_or(&[]).to_vec();
            closer.at = closer.octets.len();
            if command.is_empty() {
                closer.take(b"ID");
            } else if from == End::Client {
                match command[0] {
                    // Address, count, and the values to write.
                    b'R' if command.len() == 2 || command.starts_with(b"RN") => {
                        closer.take(b"000001")
                    }
                    b'G' if command.len() == 2 => closer.take(b"000001"),
                    b'S' if command.len() == 2 || command.starts_with(b"SN") => {
                        closer.take(b"00000100000001")
                    }
                    _ => 0,
                };
            } else if matches!(command[0], b'R' | b'G') {
                closer.take(b"00000001");
            }
            let sum = closer.octets.bytes()[begin..]
                .iter()
                .fold(0_u8, |sum, &octet| sum.wrapping_add(octet));
            closer.take(format!("{sum:02X}\r").as_bytes());
        }
        102 => {
            const HEADER: usize = 6 + 24;
            closer.at = HEADER;
            let data = closer.left();
            if data == 0 {
                closer.octets.extend(&[0; 8], Origin::Free);
            }
            let length = u16::try_from(closer.left()).ok()?;
            closer.put(6 + 20, &length.to_le_bytes());
            let sum = |octets: &[u8]| {
                octets.iter().fold(0_u16, |sum, &octet| sum.wrapping_sub(octet.into()))
            };
            let of_header = sum(&closer.octets.bytes()[6..6 + 22]);
            closer.put(6 + 22, &of_header.to_le_bytes());
            let of_data = sum(&closer.octets.bytes()[HEADER..]);
            closer.at = closer.octets.len();
            closer.take(&of_data.to_le_bytes());
            closer.take(b"\\");
        }
        _ => return None,
    }
    let length = u16::try_from(closer.octets.len() - 6).ok()?;
    closer.put(4, &length.to_le_bytes());
    Some(closer.done())
}

/// Start-Control-Connection-Request or -Reply: version, capabilities, channels, names (RFC 2637
/// §2.1).
pub(super) fn pptp(from: End) -> Vec<Form> {
    let kind = if from == End::Client { 1 } else { 2 };
    let mut fields = vec![0, 156, 0, 1, 0x1a, 0x2b, 0x3c, 0x4d, 0, kind, 0, 0, 1, 0, 0, 0];
    fields.extend([0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 1]);
    fields.extend(b"host");
    fields.resize(92, 0);
    fields.extend(b"vendor");
    fields.resize(156, 0);
    vec![Form::default().usual(&fields)]
}

/// Completes the announced number of caches of 44 octets each.
pub(super) fn close_wccp(octets: Octets) -> Option<Octets> {
    const CACHE: usize = 44;
    let mut closer = Closer::new(octets);
    closer.at = 16;
    closer.take(&[0, 0, 0, 0]);
    let count = u32::from(closer.word(16)) << 16 | u32::from(closer.word(18));
    let count = usize::try_from(count).ok().filter(|&count| count <= 100)?;
    closer.pass(count * CACHE, 0)?;
    Some(closer.done())
}
