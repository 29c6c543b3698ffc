//! Values of edits, in the text forms of tcprewrite's options.

use std::{net::IpAddr, ops::RangeInclusive, str::FromStr};

use squall_units::MacAddr;

use crate::anonymize::{key_of, mask};

/// Text that is not a valid value, and the form that was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a {what}; expected {expected}")]
pub struct ValueError {
    pub found: String,
    pub what: &'static str,
    pub expected: &'static str,
}

fn wrong(found: &str, what: &'static str, expected: &'static str) -> ValueError {
    ValueError { found: found.into(), what, expected }
}

/// An address for each direction: `00:12:13:14:15:16,00:22:33:44:55:66`. The first is for packets
/// of the client and packets of unknown direction. If there is no second, packets of the server
/// keep their address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacPair {
    pub client: MacAddr,
    pub server: Option<MacAddr>,
}

impl FromStr for MacPair {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        const EXPECTED: &str =
            "a MAC address such as 02:00:00:00:00:01, or two, separated by a comma";
        let mac = |text: &str| text.parse().map_err(|_| wrong(text, "MAC address", EXPECTED));
        match text.split_once(',') {
            None => Ok(Self { client: mac(text)?, server: None }),
            Some((client, server)) => Ok(Self { client: mac(client)?, server: Some(mac(server)?) }),
        }
    }
}

/// A MAC address and its replacement: `00:12:13:14:15:16,00:22:33:44:55:66`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacSwap {
    pub from: MacAddr,
    pub to: MacAddr,
}

impl FromStr for MacSwap {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.parse() {
            Ok(MacPair { client: from, server: Some(to) }) => Ok(Self { from, to }),
            _ => Err(wrong(
                text,
                "pair of MAC addresses",
                "FROM,TO such as 02:00:00:00:00:01,02:00:00:00:00:02",
            )),
        }
    }
}

/// How to change VLAN tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VlanMode {
    /// Insert a tag before any existing one.
    #[default]
    Add,
    /// Remove the outermost tag.
    Del,
    /// Overwrite the given fields of the outermost tag. Frames without a tag do not change.
    Rewrite,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vlan {
    pub mode: VlanMode,
    /// VLAN identifier, 0..=4095.
    pub tag: Option<u16>,
    /// CFI (DEI) bit, 0..=1.
    pub cfi: Option<u8>,
    /// Priority, 0..=7.
    pub pri: Option<u8>,
    /// EtherType of an inserted tag: 802.1ad if true, otherwise 802.1Q.
    pub service: bool,
}

/// The upper bits of addresses. For both IP versions they are in the upper bits of a `u128`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    pub v6: bool,
    pub bits: u128,
    pub len: u32,
}

impl Prefix {
    #[inline]
    fn holds(&self, v6: bool, address: u128) -> bool {
        v6 == self.v6 && (address ^ self.bits) & mask(self.len) == 0
    }
}

/// The address in the upper bits of a `u128`, and whether it is IPv6.
pub(crate) fn bits_of(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(address) => (false, u128::from(u32::from(address)) << 96),
        IpAddr::V6(address) => (true, u128::from(address)),
    }
}

impl FromStr for Prefix {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let expected = "ADDRESS or ADDRESS/BITS such as 10.0.0.0/8 or 2001:db8::/32";
        let wrong = || wrong(text, "netblock", expected);
        let (address, len) =
            text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
        let (v6, bits) = bits_of(address.parse().map_err(|_| wrong())?);
        let most = if v6 { 128 } else { 32 };
        let len = len.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if len > most { Err(wrong()) } else { Ok(Self { v6, bits, len }) }
    }
}

/// Netblocks with their replacements, of which the first match applies:
/// `192.168.0.0/16:10.77.0.0/16,[2001:db8::/32]:[fd00::/16]`. The length of the new prefix
/// determines how many upper bits are overwritten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressMap(pub Vec<(Prefix, Prefix)>);

impl AddressMap {
    #[inline]
    pub fn map(&self, v6: bool, address: u128) -> u128 {
        match self.0.iter().find(|(from, _)| from.holds(v6, address)) {
            Some((_, to)) => to.bits & mask(to.len) | address & !mask(to.len),
            None => address,
        }
    }

    /// The map with old and new netblocks swapped.
    pub fn reversed(&self) -> Self {
        Self(self.0.iter().map(|&(from, to)| (to, from)).collect())
    }
}

/// Splits `10.0.0.1:10.0.0.2` or `[fd00::1]:[fd00::2]` at the colon between the addresses.
fn two(text: &str) -> Option<(&str, &str)> {
    let (left, right) = match text.strip_prefix('[') {
        Some(rest) => {
            let (left, right) = rest.split_once("]:")?;
            (left, right.strip_prefix('[')?.strip_suffix(']')?)
        }
        None => text.split_once(':')?,
    };
    (!left.is_empty() && !right.is_empty()).then_some((left, right))
}

impl FromStr for AddressMap {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        const EXPECTED: &str =
            "NETBLOCK:NETBLOCK,... such as 10.0.0.0/8:172.16.0.0/12 or [2001:db8::/32]:[fd00::/32]";
        let pairs = text.split(',').map(|pair| {
            let (from, to) = two(pair).ok_or_else(|| wrong(pair, "pair of netblocks", EXPECTED))?;
            let (from, to): (Prefix, Prefix) = (from.parse()?, to.parse()?);
            if from.v6 == to.v6 {
                Ok((from, to))
            } else {
                Err(wrong(pair, "pair of netblocks of one IP version", EXPECTED))
            }
        });
        pairs.collect::<Result<_, _>>().map(Self)
    }
}

/// Redirects all traffic to these two hosts: `172.16.0.1:172.16.0.2`, `[fd00::1]:[fd00::2]`.
/// Packets of the other IP version do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    pub client: IpAddr,
    pub server: IpAddr,
}

impl FromStr for Endpoints {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || {
            wrong(
                text,
                "pair of endpoints",
                "CLIENT:SERVER such as 172.16.0.1:172.16.0.2 or [fd00::1]:[fd00::2]",
            )
        };
        let (client, server) = two(text).ok_or_else(wrong)?;
        let (client, server): (IpAddr, IpAddr) =
            (client.parse().map_err(|_| wrong())?, server.parse().map_err(|_| wrong())?);
        if client.is_ipv4() == server.is_ipv4() {
            Ok(Self { client, server })
        } else {
            Err(wrong())
        }
    }
}

/// Ports with their replacements, of which the first match applies: `80:8000,8080:80`,
/// `8000,8080:80` (several to one), `8000-8999:80`, `8000-8999:9000-9999`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortMap(pub Vec<(RangeInclusive<u16>, RangeInclusive<u16>)>);

impl PortMap {
    pub fn map(&self, port: u16) -> u16 {
        match self.0.iter().find(|(from, _)| from.contains(&port)) {
            Some((from, to)) if to.start() != to.end() => to.start() + (port - from.start()),
            Some((_, to)) => *to.start(),
            None => port,
        }
    }
}

impl FromStr for PortMap {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        const EXPECTED: &str = "PORT:PORT,... such as 80:8080, 8000-8999:80 or 8000-8999:9000-9999";
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
            (first <= last).then_some(first..=last)
        };
        let mut pairs = Vec::new();
        // Ports whose replacement comes later in the list.
        let mut waiting = Vec::new();
        for part in text.split(',') {
            let wrong = || wrong(part, "mapping of ports", EXPECTED);
            let (from, to) =
                part.split_once(':').map_or((part, None), |(from, to)| (from, Some(to)));
            waiting.push(range(from).ok_or_else(wrong)?);
            let Some(to) = to else { continue };
            let to = range(to).ok_or_else(wrong)?;
            for from in waiting.drain(..) {
                if to.len() != 1 && to.len() != from.len() {
                    return Err(wrong());
                }
                pairs.push((from, to.clone()));
            }
        }
        if waiting.is_empty() {
            Ok(Self(pairs))
        } else {
            Err(wrong(text, "mapping of ports", EXPECTED))
        }
    }
}

/// Time to live or hop limit: `10` sets it, `+7` and `-64` change it within 1 to 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    Set(u8),
    Add(i16),
}

impl Ttl {
    #[inline]
    pub fn of(self, ttl: u8) -> u8 {
        match self {
            Self::Set(ttl) => ttl,
            Self::Add(change) => (i16::from(ttl) + change).clamp(1, 255) as u8,
        }
    }
}

impl FromStr for Ttl {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || wrong(text, "time to live", "1 to 255, or a change such as +7 or -64");
        let number = text
            .trim_start_matches(['+', '-'])
            .parse::<u8>()
            .ok()
            .filter(|number| *number > 0)
            .ok_or_else(wrong)?;
        match text.as_bytes()[0] {
            b'+' => Ok(Self::Add(i16::from(number))),
            b'-' => Ok(Self::Add(-i16::from(number))),
            _ => Ok(Self::Set(number)),
        }
    }
}

/// How to handle packets with fewer captured octets than their IP header states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixLen {
    /// Append zeros.
    Pad,
    /// Reduce the length in the header to the captured length.
    Trunc,
    /// Drop the packets.
    Del,
}

impl FromStr for FixLen {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "pad" => Ok(Self::Pad),
            "trunc" => Ok(Self::Trunc),
            "del" => Ok(Self::Del),
            _ => Err(wrong(text, "way to fix lengths", "pad, trunc or del")),
        }
    }
}

/// The link type of edited packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    Ethernet,
    Raw,
    CiscoHdlc,
    Ppp,
}

impl Encapsulation {
    /// The number in the tcpdump.org list of link-layer header types.
    pub fn link_type(self) -> u16 {
        match self {
            Self::Ethernet => 1,
            Self::Raw => 101,
            Self::CiscoHdlc => 104,
            Self::Ppp => 50,
        }
    }
}

impl FromStr for Encapsulation {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "enet" => Ok(Self::Ethernet),
            "raw" => Ok(Self::Raw),
            "hdlc" => Ok(Self::CiscoHdlc),
            "pppserial" => Ok(Self::Ppp),
            _ => Err(wrong(text, "link type to write", "enet, raw, hdlc or pppserial")),
        }
    }
}

/// Key for the prefix-preserving map: 64 hexadecimal digits, or any other text, which is hashed to
/// a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub [u8; 32]);

impl FromStr for Key {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text.is_empty() {
            Err(wrong(text, "seed", "any text, or 64 hexadecimal digits"))
        } else {
            Ok(Self(key_of(text)))
        }
    }
}

/// Packet numbers (1-based): `1-5,9,100-`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers(pub Vec<RangeInclusive<u64>>);

impl Numbers {
    #[inline]
    pub fn hold(&self, number: u64) -> bool {
        self.0.iter().any(|range| range.contains(&number))
    }

    /// The last number, after which no packet matches.
    pub fn last(&self) -> u64 {
        self.0.iter().map(|range| *range.end()).max().unwrap_or(0)
    }
}

impl FromStr for Numbers {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let ranges = text.split(',').map(|part| {
            let wrong = || wrong(part, "range of packets", "numbers from 1 such as 1-5,9,100-");
            let number = |text: &str| {
                text.parse::<u64>().ok().filter(|number| *number > 0).ok_or_else(wrong)
            };
            let range = match part.split_once('-') {
                None => number(part)?..=number(part)?,
                Some((first, "")) => number(first)?..=u64::MAX,
                Some((first, last)) => number(first)?..=number(last)?,
            };
            if range.is_empty() { Err(wrong()) } else { Ok(range) }
        });
        ranges.collect::<Result<_, _>>().map(Self)
    }
}

/// A time in a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Nanoseconds since 1970.
    At(u64),
    /// Nanoseconds since the first packet.
    After(u64),
}

impl When {
    #[inline]
    pub fn ns(self, origin_ns: u64) -> u64 {
        match self {
            Self::At(ns) => ns,
            Self::After(ns) => origin_ns.saturating_add(ns),
        }
    }
}

/// An exact decimal factor: `2`, `0.5`, `1.25`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    pub num: u64,
    pub den: u64,
}

impl FromStr for Factor {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong =
            || wrong(text, "factor", "a decimal number such as 2 or 0.5, with at most 9 decimals");
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let digits = [whole, decimals].concat();
        if decimals.len() > 9
            || digits.is_empty()
            || !digits.bytes().all(|digit| digit.is_ascii_digit())
        {
            return Err(wrong());
        }
        let num = digits.parse().map_err(|_| wrong())?;
        Ok(Self { num, den: 10_u64.pow(decimals.len() as u32) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error<T: FromStr<Err = ValueError> + std::fmt::Debug>(text: &str) -> String {
        text.parse::<T>().unwrap_err().to_string()
    }

    #[test]
    fn ports_map_as_in_tcprewrites_manual() {
        let map: PortMap = "80:8000,8080:80".parse().unwrap();
        assert_eq!([80, 8080, 8000].map(|port| map.map(port)), [8000, 80, 8000]);
        let map: PortMap = "8000,8080,8888:80".parse().unwrap();
        assert_eq!([8000, 8080, 8888, 81].map(|port| map.map(port)), [80, 80, 80, 81]);
        let map: PortMap = "8000-8999:80,1-3:11-13".parse().unwrap();
        assert_eq!([7999, 8000, 8999, 2].map(|port| map.map(port)), [7999, 80, 80, 12]);
        assert!(error::<PortMap>("80").contains("80:8080"));
        for bad in ["80:", ":80", "88888:80", "1-3:5-6", "9-8:1", "80:1,2", ""] {
            assert!(bad.parse::<PortMap>().is_err(), "{bad}");
        }
    }

    #[test]
    fn netblocks_map_by_the_length_of_the_new_one() {
        let map: AddressMap =
            "192.168.0.0/16:10.77.0.0/16,172.16.0.0/12:10.1.0.0/24".parse().unwrap();
        let v4 = |text: &str| bits_of(text.parse().unwrap()).1;
        for (from, to) in
            [("192.168.3.4", "10.77.3.4"), ("172.17.3.4", "10.1.0.4"), ("8.8.8.8", "8.8.8.8")]
        {
            assert_eq!(map.map(false, v4(from)), v4(to), "{from}");
        }
        let map: AddressMap = "[2001:db8::/32]:[dead::/16],[::/0]:[::1]".parse().unwrap();
        assert_eq!(map.map(true, v4("2001:db8::7")), v4("dead:db8::7"));
        assert_eq!(map.map(true, v4("2002:db8::7")), v4("::1"));
        assert_eq!(map.map(false, v4("1.2.3.4")), v4("1.2.3.4"));
        for bad in [
            "10.0.0.0/8",
            "10.0.0.0/33:1.2.3.4",
            "10.0.0.0/8:[::1]",
            "[::1]:10.0.0.1",
            "[::1]:[10.0.0.1]",
            "x:y",
        ] {
            assert!(bad.parse::<AddressMap>().is_err(), "{bad}");
        }
    }

    #[test]
    fn other_values_name_the_expectation() {
        assert_eq!("+7".parse(), Ok(Ttl::Add(7)));
        assert_eq!(Ttl::Add(7).of(250), 255);
        assert_eq!(Ttl::Add(-64).of(3), 1);
        for bad in ["0", "", "256", "x"] {
            assert!(error::<Ttl>(bad).contains("+7"), "{bad}");
        }
        assert_eq!("0.25".parse(), Ok(Factor { num: 25, den: 100 }));
        for bad in ["", ".", "-1", "1e3", "0.1234567890", "99999999999999999999"] {
            assert!(bad.parse::<Factor>().is_err(), "{bad}");
        }
        let numbers: Numbers = "1-5,9,100-".parse().unwrap();
        assert_eq!([1, 6, 9, 99, 100].map(|n| numbers.hold(n)), [true, false, true, false, true]);
        for bad in ["0", "5-1", "-", "a", "1,,2"] {
            assert!(bad.parse::<Numbers>().is_err(), "{bad}");
        }
        assert!("1.2.3.4:::1".parse::<Endpoints>().is_err());
        assert!("[fd00::1]:[fd00::2]".parse::<Endpoints>().is_ok());
        assert_eq!("00:12:13:14:15:16".parse::<MacPair>().unwrap().server, None);
        assert!("00:12:13:14:15:16".parse::<MacSwap>().is_err());
        assert!("".parse::<Key>().is_err());
        assert!(
            error::<FixLen>("cut").contains("trunc")
                && error::<Encapsulation>("atm").contains("raw")
        );
    }
}
