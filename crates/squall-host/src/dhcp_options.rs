//! Options of DHCP messages from text, with the number and the MAC address of a host in them.

use squall_units::MacAddr;

/// A value that differs from host to host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueTemplate(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Octets(Vec<u8>),
    /// The number of the host in decimal digits, from 1.
    Number,
    /// The MAC address as six octets, and as text.
    Mac,
    MacText,
}

const NUMBER: &str = "{n}";
const MAC: &str = "{mac}";

impl ValueTemplate {
    /// A text; `{n}` is the number of the host, from 1, and `{mac}` its MAC address.
    pub fn text(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let next = [(NUMBER, Piece::Number), (MAC, Piece::MacText)]
                .into_iter()
                .filter_map(|(mark, piece)| Some((rest.find(mark)?, mark, piece)))
                .min_by_key(|(at, ..)| *at);
            let Some((at, mark, piece)) = next else {
                pieces.push(Piece::Octets(rest.into()));
                break;
            };
            if at > 0 {
                pieces.push(Piece::Octets(rest[..at].into()));
            }
            pieces.push(piece);
            rest = &rest[at + mark.len()..];
        }
        Self(pieces)
    }

    /// Octets in hexadecimal digits; `{mac}` is the MAC address of the host. `None` if there is
    /// anything else.
    pub fn hex(digits: &str) -> Option<Self> {
        let mut pieces = Vec::new();
        for (i, part) in digits.split(MAC).enumerate() {
            if i > 0 {
                pieces.push(Piece::Mac);
            }
            let pairs = part.as_bytes().chunks(2).map(|pair| {
                let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
                let digits = pair.bytes().all(|digit| digit.is_ascii_hexdigit());
                u8::from_str_radix(pair, 16).ok().filter(|_| digits)
            });
            let octets: Vec<u8> = pairs.collect::<Option<_>>()?;
            if !octets.is_empty() {
                pieces.push(Piece::Octets(octets));
            }
        }
        Some(Self(pieces))
    }

    fn write(&self, host: u32, mac: MacAddr, out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                Piece::Octets(octets) => out.extend_from_slice(octets),
                Piece::Number => out.extend((u64::from(host) + 1).to_string().bytes()),
                Piece::Mac => out.extend(mac.0),
                Piece::MacText => out.extend(mac.to_string().bytes()),
            }
        }
    }
}

/// An option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionTemplate {
    pub code: u8,
    pub value: ValueTemplate,
}

impl OptionTemplate {
    /// Appends the option of host number `host`. Only the first 255 octets of its value count.
    pub fn write(&self, host: u32, mac: MacAddr, out: &mut Vec<u8>) {
        out.extend([self.code, 0]);
        let at = out.len();
        self.value.write(host, mac, out);
        out.truncate(at + 255);
        out[at - 1] = (out.len() - at) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0xab, 0, 7]);

    fn written(code: u8, value: ValueTemplate) -> Vec<u8> {
        let mut out = Vec::new();
        OptionTemplate { code, value }.write(6, MAC, &mut out);
        out
    }

    #[test]
    fn values_have_the_number_and_the_mac_address_of_their_host() {
        assert_eq!(written(12, ValueTemplate::text("pc-{n}.lan")), *b"\x0c\x08pc-7.lan");
        let text = written(61, ValueTemplate::text("{mac}"));
        assert_eq!(text, *b"\x3d\x1102:00:00:ab:00:07");
        let id = written(61, ValueTemplate::hex("01{mac}").unwrap());
        assert_eq!(id, [61, 7, 1, 2, 0, 0, 0xab, 0, 7]);
        assert_eq!(written(43, ValueTemplate::hex("").unwrap()), [43, 0]);
    }

    #[test]
    fn other_digits_are_refused_and_long_values_end_after_255_octets() {
        for bad in ["0", "0g", "01 02", "{n}", "é1", "+1"] {
            assert_eq!(ValueTemplate::hex(bad), None, "{bad}");
        }
        let long = written(77, ValueTemplate::text(&"x".repeat(300)));
        assert_eq!((long.len(), long[1]), (257, 255));
    }
}
