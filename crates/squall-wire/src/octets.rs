//! Octets as text.

use std::fmt::Write;

/// Maximum length of a frame that is parsed: the longest IP packet, with room for preceding
/// headers.
pub const MAX_FRAME: usize = 65_600;
/// Octets in a line of a dump.
const LINE: usize = 16;

/// An error in text that should be octets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}; {hint}")]
pub struct HexError {
    /// Line number (1-based), or 0 for the text as a whole.
    pub line: u32,
    /// In characters (1-based), or 0 as for `line`.
    pub column: u32,
    pub message: String,
    /// The expected form and a suggestion.
    pub hint: &'static str,
}

/// Two digits per octet, without separators.
pub fn to_hex(octets: &[u8]) -> String {
    octets.iter().fold(String::with_capacity(2 * octets.len()), |mut hex, octet| {
        _ = write!(hex, "{octet:02x}");
        hex
    })
}

/// Parses hexadecimal digits with any separators, and dumps of tcpdump, Wireshark, hexdump and
/// scapy, which have an offset before each line and sometimes characters after it.
///
/// ```
/// use squall_wire::parse_hex;
/// assert_eq!(parse_hex("de:ad be-ef 0x01").unwrap(), [0xde, 0xad, 0xbe, 0xef, 1]);
/// let dump = "0000  45 00 00 1c 00 01 00 00 40 11 f6 b6 c6 12 00 01  E.......@.......\n0010  c6 13 00 02              ....\n";
/// assert_eq!(parse_hex(dump).unwrap().len(), 20);
/// ```
///
/// # Errors
/// The position of an invalid digit, and the text there.
pub fn parse_hex(text: &str) -> Result<Vec<u8>, HexError> {
    let whole = |message: String, hint| Err(HexError { line: 0, column: 0, message, hint });
    // An octet has two digits; text with many more characters per octet is not a packet.
    if text.len() > 16 * MAX_FRAME {
        return whole(format!("{} octets of text", text.len()), "expected one frame");
    }
    let mut octets = Vec::new();
    let dump = is_dump(text);
    for (number, line) in text.lines().enumerate() {
        let read = if dump { dump_line(line, &mut octets) } else { plain_line(line, &mut octets) };
        read.map_err(|(at, message)| {
            let column = line.get(..at).map_or(0, |before| before.chars().count()) as u32 + 1;
            let hint = "try de ad be ef, or the output of tcpdump -xx";
            HexError { line: number as u32 + 1, column, message, hint }
        })?;
        if octets.len() > MAX_FRAME {
            return whole(format!("more than {MAX_FRAME} octets"), "expected one frame");
        }
    }
    match octets.is_empty() {
        true => whole("no octets found".into(), "expected hex digits, two per octet: de ad be ef"),
        false => Ok(octets),
    }
}

/// Whether lines begin with the offset of their first octet: 0, then 16.
fn is_dump(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let offset = |line: &str| {
        let (first, rest) = line.trim().split_once(|c: char| c.is_whitespace() || c == ':')?;
        let digits = first.trim_start_matches("0x");
        (digits.len() >= 4 && !rest.trim().is_empty())
            .then(|| u64::from_str_radix(digits, 16).ok())?
    };
    match (lines.next().and_then(offset), lines.next()) {
        (Some(0), None) => true,
        (Some(0), Some(second)) => offset(second) == Some(LINE as u64),
        _ => false,
    }
}

type Wrong = (usize, String);

fn plain_line(line: &str, octets: &mut Vec<u8>) -> Result<(), Wrong> {
    let mut half: Option<(usize, u32)> = None;
    let mut chars = line.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == '0'
            && half.is_none()
            && chars.peek().is_some_and(|(_, next)| matches!(next, 'x' | 'X'))
        {
            chars.next();
            continue;
        }
        // `\x`, the notation of Python and C.
        if c == '\\' && chars.peek().is_some_and(|(_, next)| *next == 'x') {
            chars.next();
            continue;
        }
        match (c.to_digit(16), half.take()) {
            (Some(digit), None) => half = Some((at, digit)),
            (Some(digit), Some((_, high))) => octets.push((high << 4 | digit) as u8),
            (None, Some((at, _))) => return Err((at, "a single hex digit".into())),
            (None, None) if c.is_whitespace() || ":-_,;|.".contains(c) => {}
            (None, None) => return Err((at, format!("{c:?} is not a hex digit"))),
        }
    }
    half.map_or(Ok(()), |(at, _)| Err((at, "a single hex digit".into())))
}

fn dump_line(line: &str, octets: &mut Vec<u8>) -> Result<(), Wrong> {
    let start = line.len() - line.trim_start().len();
    let Some(end) = line[start..].find([' ', '\t', ':']) else { return Ok(()) };
    let rest = start + end + 1;
    let before = octets.len();
    let mut at = rest;
    for word in line[rest..].split(' ') {
        let here = at;
        at += word.len() + 1;
        if word.is_empty() {
            // In a short last line, a wide gap precedes the characters.
            if octets.len() > before && line[here..].starts_with("  ") {
                break;
            }
            continue;
        }
        let full = octets.len() - before >= LINE;
        let pairs =
            word.len().is_multiple_of(2) && word.bytes().all(|octet| octet.is_ascii_hexdigit());
        if full || octets.len() > before && !pairs {
            break;
        }
        plain_line(word.trim(), octets).map_err(|(at, what)| (here + at, what))?;
    }
    octets.truncate(before + LINE);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_parse_with_any_separators() {
        for text in [
            "0102ff",
            "01 02 FF",
            "01:02:ff",
            "0x0102ff",
            "0x01, 0x02, 0xff",
            r"\x01\x02\xff",
            "01\n02\nff\n",
        ] {
            assert_eq!(parse_hex(text).unwrap(), [1, 2, 255], "{text}");
        }
    }

    #[test]
    fn dumps_parse_without_offsets_and_characters() {
        let octets: Vec<u8> = (0..20).map(|i| b'a' + i).collect();
        let tcpdump = "\t0x0000:  6162 6364 6566 6768 696a 6b6c 6d6e 6f70  \
                       abcdefghijklmnop\n\t0x0010:  7172 7374                                \
                       qrst\n";
        let hexdump = "00000000  61 62 63 64 65 66 67 68  69 6a 6b 6c 6d 6e 6f 70  \
             |abcdefghijklmnop|\n00000010  71 72 73 74                                       \
             |qrst|\n";
        let scapy = "0000  61 62 63 64 65 66 67 68 69 6A 6B 6C 6D 6E 6F 70  \
                     abcdefghijklmnop\n0010  71 72 73 74                                      \
                     qrst\n";
        for dump in [tcpdump, hexdump, scapy] {
            assert_eq!(parse_hex(dump).unwrap(), octets, "{dump}");
        }
    }

    #[test]
    fn an_invalid_digit_is_reported_with_its_place() {
        let wrong = parse_hex("01 02\n03 zz").unwrap_err();
        assert_eq!(
            (wrong.line, wrong.column, wrong.message.as_str()),
            (2, 4, "'z' is not a hex digit")
        );
        assert_eq!(parse_hex("012").unwrap_err().message, "a single hex digit");
        assert_eq!(parse_hex(" \n").unwrap_err().message, "no octets found");
        assert!(parse_hex(&"00".repeat(70_000)).is_err());
    }
}
