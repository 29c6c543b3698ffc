//! Headers of the PROXY protocol, versions 1 and 2
//! (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::{FromStr, Split},
};

use squall_tcp::Tuple;
use squall_units::mix;

use super::{ProxyProtocol, ProxyVersion};
use crate::ProtocolError;

/// Maximum length of an accepted header. The format allows 64 KiB.
const MAX_HEADER: usize = 2048;
/// Maximum length of a line of version 1, with CR and LF (section 2.1).
const MAX_LINE: usize = 107;
const WORD: &[u8] = b"PROXY ";
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Length of the fixed part of version 2.
const FIXED: usize = 16;

/// Types of TLVs (section 2.2).
const ALPN: u8 = 1;
const AUTHORITY: u8 = 2;
const CRC32C: u8 = 3;
const UNIQUE_ID: u8 = 5;

impl ProxyProtocol {
    /// The header of a flow, at least one octet: the same octets each time.
    pub(super) fn header(&self, seed: u64, flow: u32, tuple: &Tuple) -> Vec<u8> {
        let source = self.source_of(flow).unwrap_or(tuple.local);
        let ports = (tuple.local_port, tuple.remote_port);
        match self.version {
            ProxyVersion::V1 => line(source, tuple.remote, ports),
            ProxyVersion::V2 => self.binary(seed, flow, (source, tuple.remote), ports),
        }
    }

    /// The source address of the flow with this number; `None`: the flow's own.
    fn source_of(&self, flow: u32) -> Option<IpAddr> {
        let (first, last) = self.sources.clone()?.into_inner();
        let turn =
            |first: u128, last: u128| first + u128::from(flow) % (last - first).saturating_add(1);
        Some(match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                let address = turn(first.to_bits().into(), last.to_bits().into());
                Ipv4Addr::from_bits(address as u32).into()
            }
            (first, last) => {
                let bits = |address: IpAddr| match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
                    IpAddr::V6(address) => address.to_bits(),
                };
                Ipv6Addr::from_bits(turn(bits(first), bits(last))).into()
            }
        })
    }

    fn binary(
        &self,
        seed: u64,
        flow: u32,
        (source, destination): (IpAddr, IpAddr),
        (source_port, destination_port): (u16, u16),
    ) -> Vec<u8> {
        let mut header = Vec::with_capacity(128);
        header.extend_from_slice(SIGNATURE);
        if self.local {
            header.extend([0x20, 0, 0, 0]);
            return header;
        }
        header.push(0x21);
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                header.extend([0x11, 0, 0]);
                header.extend(source.octets());
                header.extend(destination.octets());
            }
            (source, destination) => {
                header.extend([0x21, 0, 0]);
                header.extend(octets_of_v6(source));
                header.extend(octets_of_v6(destination));
            }
        }
        header.extend(source_port.to_be_bytes());
        header.extend(destination_port.to_be_bytes());
        if let Some(alpn) = &self.alpn {
            tlv(&mut header, ALPN, alpn.as_bytes());
        }
        if let Some(authority) = &self.authority {
            tlv(&mut header, AUTHORITY, authority.as_bytes());
        }
        if self.unique_id {
            let id = [mix(mix(seed, 1), flow.into()), mix(mix(seed, 2), flow.into())];
            tlv(&mut header, UNIQUE_ID, &id.map(u64::to_be_bytes).concat());
        }
        if self.checksum {
            tlv(&mut header, CRC32C, &[0; 4]);
        }
        let len = header.len() - FIXED;
        header[14..FIXED].copy_from_slice(&(len as u16).to_be_bytes());
        if self.checksum {
            let at = header.len() - 4;
            let sum = crc32c::crc32c(&header);
            header[at..].copy_from_slice(&sum.to_be_bytes());
        }
        header
    }
}

fn octets_of_v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn line(source: IpAddr, destination: IpAddr, ports: (u16, u16)) -> Vec<u8> {
    let family = if destination.is_ipv4() { "TCP4" } else { "TCP6" };
    format!("PROXY {family} {source} {destination} {} {}\r\n", ports.0, ports.1).into_bytes()
}

/// Appends a TLV of at most 65,535 octets.
fn tlv(header: &mut Vec<u8>, kind: u8, value: &[u8]) {
    header.push(kind);
    header.extend((value.len() as u16).to_be_bytes());
    header.extend_from_slice(value);
}

/// The length of the header at the start of `octets`; `None`: it is not complete yet.
///
/// # Errors
/// [`ProtocolError::ProxyMissing`], [`ProtocolError::ProxyMalformed`],
/// [`ProtocolError::ProxyLong`] or [`ProtocolError::ProxyChecksum`].
pub fn parse(octets: &[u8]) -> Result<Option<usize>, ProtocolError> {
    let begins = |with: &[u8]| {
        let shared = with.len().min(octets.len());
        octets[..shared] == with[..shared]
    };
    if begins(SIGNATURE) {
        parse_binary(octets)
    } else if begins(WORD) {
        parse_line(octets)
    } else {
        Err(ProtocolError::ProxyMissing)
    }
}

/// Section 2.1. The octets begin with [`WORD`], or are a part of it.
fn parse_line(octets: &[u8]) -> Result<Option<usize>, ProtocolError> {
    let within = &octets[..octets.len().min(MAX_LINE)];
    let Some(end) = within.windows(2).position(|two| two == b"\r\n") else {
        return if octets.len() < MAX_LINE { Ok(None) } else { Err(ProtocolError::ProxyMalformed) };
    };
    let text = within.get(WORD.len()..end).and_then(|text| str::from_utf8(text).ok());
    let mut words = text.unwrap_or_default().split(' ');
    let well_formed = match words.next() {
        Some("TCP4") => are_endpoints::<Ipv4Addr>(words),
        Some("TCP6") => are_endpoints::<Ipv6Addr>(words),
        // The rest of the line has no meaning.
        Some("UNKNOWN") => true,
        _ => false,
    };
    if well_formed { Ok(Some(end + 2)) } else { Err(ProtocolError::ProxyMalformed) }
}

/// Whether these are two addresses of type `A` and two ports.
fn are_endpoints<A: FromStr>(mut words: Split<'_, char>) -> bool {
    let mut address = || words.next().is_some_and(|word| word.parse::<A>().is_ok());
    let addresses = address() && address();
    // Leading zeros and signs are not allowed.
    let is_port = |word: &str| word.parse::<u16>().is_ok_and(|port| port.to_string() == word);
    let mut port = || words.next().is_some_and(is_port);
    addresses && port() && port() && words.next().is_none()
}

/// Section 2.2. The octets begin with [`SIGNATURE`], or are a part of it.
fn parse_binary(octets: &[u8]) -> Result<Option<usize>, ProtocolError> {
    let Some(&fixed) = octets.first_chunk::<FIXED>() else { return Ok(None) };
    let [.., command, family, high, low] = fixed;
    // After the command LOCAL, the family and the rest have no meaning.
    let (local, known) = (command & 15 == 0, family >> 4 <= 3 && family & 15 <= 2);
    if command >> 4 != 2 || command & 15 > 1 || !local && !known {
        return Err(ProtocolError::ProxyMalformed);
    }
    let len = FIXED + usize::from(u16::from_be_bytes([high, low]));
    if len > MAX_HEADER {
        return Err(ProtocolError::ProxyLong);
    }
    let Some(header) = octets.get(..len) else { return Ok(None) };
    let addresses = match family >> 4 {
        1 => 12,
        2 => 36,
        3 => 216,
        // Without a family, the rest has no meaning.
        _ => len - FIXED,
    };
    if !local {
        let tlvs = header.get(FIXED + addresses..).ok_or(ProtocolError::ProxyMalformed)?;
        check_tlvs(header, tlvs)?;
    }
    Ok(Some(len))
}

/// Checks the lengths of all TLVs, which are the end of `header`, and the checksum if it has one.
fn check_tlvs(header: &[u8], mut tlvs: &[u8]) -> Result<(), ProtocolError> {
    while !tlvs.is_empty() {
        let (&[kind, high, low], rest) =
            tlvs.split_first_chunk().ok_or(ProtocolError::ProxyMalformed)?;
        let (value, rest) = rest
            .split_at_checked(u16::from_be_bytes([high, low]).into())
            .ok_or(ProtocolError::ProxyMalformed)?;
        if kind == CRC32C {
            let sum: [u8; 4] = value.try_into().map_err(|_| ProtocolError::ProxyMalformed)?;
            let (before, after) = header.split_at(header.len() - rest.len());
            let zeroed = crc32c::crc32c(&before[..before.len() - 4]);
            let expected = crc32c::crc32c_append(crc32c::crc32c_append(zeroed, &[0; 4]), after);
            if expected != u32::from_be_bytes(sum) {
                return Err(ProtocolError::ProxyChecksum);
            }
        }
        tlvs = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use squall_tcp::FlowKind;

    use super::*;

    fn tuple(local: &str, remote: &str) -> Tuple {
        Tuple {
            kind: FlowKind::Tcp,
            local: local.parse().expect("an address"),
            local_port: 56_324,
            remote: remote.parse().expect("an address"),
            remote_port: 443,
        }
    }

    fn v1() -> ProxyProtocol {
        ProxyProtocol { version: ProxyVersion::V1, ..ProxyProtocol::default() }
    }

    /// A header of version 2 with this command, family and block.
    fn binary(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
        let len = (block.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[command, family], &len, block].concat()
    }

    #[test]
    fn lines_are_as_in_the_examples_of_the_specification() {
        let v4 = tuple("192.168.0.1", "192.168.0.11");
        let header = v1().header(1, 0, &v4);
        assert_eq!(header, b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n");
        let v6 = tuple("2001:db8::1", "2001:db8::2");
        let header = v1().header(1, 0, &v6);
        assert_eq!(header, b"PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n");
    }

    #[test]
    fn binary_headers_have_addresses_ports_and_tlvs() {
        let v2 = ProxyProtocol::default();
        let header = v2.header(1, 0, &tuple("10.0.0.1", "10.0.0.2"));
        let block = [10, 0, 0, 1, 10, 0, 0, 2, 0xdc, 4, 1, 0xbb];
        assert_eq!(header, binary(0x21, 0x11, &block));
        let header = v2.header(1, 0, &tuple("fd00::1", "fd00::2"));
        assert_eq!((header.len(), &header[12..16]), (52, &[0x21, 0x21, 0, 36][..]));
        assert_eq!(&header[28..36], [0, 0, 0, 1, 0xfd, 0, 0, 0], "two addresses of 16 octets");
        let local = ProxyProtocol { local: true, ..ProxyProtocol::default() };
        let header = local.header(1, 0, &tuple("10.0.0.1", "10.0.0.2"));
        assert_eq!(header, binary(0x20, 0, &[]));
        let tlvs = ProxyProtocol {
            alpn: Some("h2".into()),
            authority: Some("a.test".into()),
            unique_id: true,
            ..ProxyProtocol::default()
        };
        let header = |flow| tlvs.header(1, flow, &tuple("10.0.0.1", "10.0.0.2"));
        assert_eq!(&header(7)[28..42], b"\x01\0\x02h2\x02\0\x06a.test");
        assert_eq!(header(7)[42..45], [5, 0, 16]);
        assert_eq!(header(7), header(7));
        assert_ne!(header(7), header(8), "identifiers are unique");
    }

    #[test]
    fn sources_are_used_in_turn() {
        let of = |first: &str, last: &str, tuple: &Tuple| -> Vec<String> {
            let sources = first.parse().expect("an address")..=last.parse().expect("an address");
            let of = ProxyProtocol { sources: Some(sources), ..v1() };
            let text = |flow| String::from_utf8(of.header(1, flow, tuple)).expect("text");
            (0..4).map(|flow| text(flow).split(' ').nth(2).expect("a word").to_owned()).collect()
        };
        let v4 = tuple("10.0.0.1", "10.0.0.2");
        let expected = ["203.0.113.254", "203.0.113.255", "203.0.114.0", "203.0.113.254"];
        assert_eq!(of("203.0.113.254", "203.0.114.0", &v4), expected);
        let all = of("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &tuple("fd00::1", "fd00::2"));
        assert_eq!(all, ["::", "::1", "::2", "::3"]);
    }

    #[test]
    fn headers_that_are_written_are_read_whole_and_not_before() {
        let every = ProxyProtocol {
            alpn: Some("http/1.1".into()),
            authority: Some("a".repeat(255).into()),
            unique_id: true,
            checksum: true,
            ..ProxyProtocol::default()
        };
        let local = ProxyProtocol { local: true, ..ProxyProtocol::default() };
        let all = [v1(), ProxyProtocol::default(), every, local];
        for (of, (from, to)) in all.iter().flat_map(|of| {
            [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")].map(|addresses| (of, addresses))
        }) {
            let header = of.header(9, 3, &tuple(from, to));
            for part in 0..header.len() {
                assert_eq!(parse(&header[..part]), Ok(None), "{of:?}: {part}");
            }
            let followed = [&header[..], b"GET / HTTP/1.1\r\n"].concat();
            assert_eq!(parse(&followed), Ok(Some(header.len())), "{of:?}");
        }
    }

    #[test]
    fn the_longest_line_is_accepted_and_a_longer_one_is_not() {
        let address = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        let line = format!("PROXY TCP6 {address} {address} 65535 65535\r\n");
        assert_eq!(parse(line.as_bytes()), Ok(Some(104)));
        let of = |filler: usize| format!("PROXY UNKNOWN {}\r\n", "x".repeat(filler));
        assert_eq!(parse(of(91).as_bytes()), Ok(Some(MAX_LINE)));
        assert_eq!(parse(of(92).as_bytes()), Err(ProtocolError::ProxyMalformed));
        assert_eq!(parse(b"PROXY UNKNOWN\r\n"), Ok(Some(15)));
    }

    #[test]
    fn other_octets_are_refused_as_soon_as_they_differ() {
        for octets in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"PROXX",
            b"\r\n\r\n\0\r\nQUIX",
            b"\x16\x03\x01",
            b"\r\n\n",
        ] {
            assert_eq!(parse(octets), Err(ProtocolError::ProxyMissing), "{octets:?}");
        }
    }

    #[test]
    fn malformed_lines_are_refused() {
        for text in [
            "PROXY \r\n",
            "PROXY TCP5 10.0.0.1 10.0.0.2 1 2\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 1\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 1 2 3\r\n",
            "PROXY TCP4 10.0.0.1  10.0.0.2 1 2\r\n",
            "PROXY TCP4 10.0.0.01 10.0.0.2 1 2\r\n",
            "PROXY TCP4 fd00::1 fd00::2 1 2\r\n",
            "PROXY TCP6 10.0.0.1 10.0.0.2 1 2\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 01 2\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 +1 2\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 1 65536\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 1 2 \r\n",
            "PROXY unknown\r\n",
        ] {
            assert_eq!(parse(text.as_bytes()), Err(ProtocolError::ProxyMalformed), "{text:?}");
        }
    }

    #[test]
    fn malformed_binary_headers_are_refused() {
        let addresses = [0; 12];
        let with = |tlvs: &[u8]| binary(0x21, 0x11, &[&addresses, tlvs].concat());
        for header in [
            binary(0x11, 0x11, &addresses),
            binary(0x22, 0x11, &addresses),
            binary(0x21, 0x41, &addresses),
            binary(0x21, 0x13, &addresses),
            binary(0x21, 0x11, &addresses[1..]),
            binary(0x21, 0x21, &addresses),
            binary(0x21, 0x31, &[0; 215]),
            with(&[1, 0]),
            with(&[1, 0, 3, b'h', b'2']),
            with(&[CRC32C, 0, 3, 0, 0, 0]),
        ] {
            assert_eq!(parse(&header), Err(ProtocolError::ProxyMalformed), "{header:?}");
        }
        for header in [
            binary(0x20, 0x11, b"anything"),
            binary(0x20, 0xff, b"anything"),
            binary(0x21, 0x00, b"anything"),
            binary(0x21, 0x31, &[0; 216]),
            binary(0x21, 0x12, &addresses),
            // A TLV of an unknown type, and an empty one.
            with(&[0xee, 0, 2, 1, 2, 4, 0, 0]),
        ] {
            assert_eq!(parse(&header), Ok(Some(header.len())), "{header:?}");
        }
    }

    #[test]
    fn lengths_have_a_limit_and_checksums_are_verified() {
        let of = |more: usize| {
            let tlv = [4, (more >> 8) as u8, more as u8];
            binary(0x21, 0x11, &[&[0; 12][..], &tlv, &vec![0; more]].concat())
        };
        let most = MAX_HEADER - FIXED - 15;
        assert_eq!(parse(&of(most)), Ok(Some(MAX_HEADER)));
        assert_eq!(parse(&of(most + 1)[..FIXED]), Err(ProtocolError::ProxyLong));
        let summed = ProxyProtocol { checksum: true, ..ProxyProtocol::default() };
        let mut header = summed.header(1, 0, &tuple("10.0.0.1", "10.0.0.2"));
        // Another TLV after the checksum is part of the sum.
        header.extend([4, 0, 1, 0]);
        header[15] += 4;
        let at = header.len() - 8;
        header[at..at + 4].fill(0);
        let sum = crc32c::crc32c(&header).to_be_bytes();
        header[at..at + 4].copy_from_slice(&sum);
        assert_eq!(parse(&header), Ok(Some(header.len())));
        for place in [16, 30, header.len() - 1] {
            let mut damaged = header.clone();
            damaged[place] ^= 1;
            let expected = match place {
                // The type and the length of the checksum itself.
                30 => ProtocolError::ProxyMalformed,
                _ => ProtocolError::ProxyChecksum,
            };
            assert_eq!(parse(&damaged), Err(expected), "{place}");
        }
    }
}
