//! Headers of messages, and the messages without state: OPEN, KEEPALIVE, ROUTE-REFRESH.

use std::net::Ipv4Addr;

use squall_units::be16;

use crate::{Capabilities, Family, Notification, notification::code, prefix::UNICAST};

/// Octets of the header (RFC 4271 section 4.1): marker 16, length 2, type 1.
pub const HEADER: usize = 19;
/// The longest message, octets.
pub const MOST: usize = 4096;
/// The longest message if both sides have the capability for it (RFC 8654).
pub const MOST_EXTENDED: usize = 65_535;

const MARKER: [u8; 16] = [0xff; 16];
const VERSION: u8 = 4;
/// The number in place of one that needs four octets (RFC 6793 section 4.2.2).
pub(crate) const AS_TRANS: u16 = 23_456;
/// Optional parameters of an OPEN: capabilities (RFC 5492), and the mark of a list that is longer
/// than 255 octets (RFC 9072).
const CAPABILITIES: u8 = 2;
const EXTENDED: u8 = 255;

/// Types of messages (RFC 4271 section 4.1, RFC 2918).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Open = 1,
    Update = 2,
    Notification = 3,
    Keepalive = 4,
    RouteRefresh = 5,
}

impl Kind {
    pub fn of(octet: u8) -> Option<Self> {
        use Kind::{Keepalive, Notification, Open, RouteRefresh, Update};
        let all = [Open, Update, Notification, Keepalive, RouteRefresh];
        all.into_iter().find(|kind| *kind as u8 == octet)
    }
}

/// A header that has passed the checks of section 6.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: Kind,
    /// Octets of the message, with the header.
    pub len: usize,
}

impl Header {
    /// Reads the header at the start of `octets`; `None`: they are too few. `most`: octets of the
    /// longest message.
    ///
    /// # Errors
    /// The NOTIFICATION to send (RFC 4271 section 6.1).
    pub fn read(octets: &[u8], most: usize) -> Result<Option<Self>, Notification> {
        let Some(head) = octets.first_chunk::<HEADER>() else { return Ok(None) };
        if head[..16] != MARKER {
            return Err(Notification::new(code::HEADER, 1));
        }
        let bad_length = || Notification::with(code::HEADER, 2, &head[16..18]);
        let len = usize::from(be16(head, 16));
        if !(HEADER..=most).contains(&len) {
            return Err(bad_length());
        }
        let Some(kind) = Kind::of(head[18]) else {
            return Err(Notification::with(code::HEADER, 3, &head[18..]));
        };
        // The longest OPEN and KEEPALIVE stay at 4,096 octets (RFC 8654 section 4).
        let good = match kind {
            Kind::Open => (29..=MOST).contains(&len),
            Kind::Update => len >= 23,
            Kind::Notification => len >= 21,
            Kind::Keepalive => len == HEADER,
            Kind::RouteRefresh => len >= 23,
        };
        if good { Ok(Some(Self { kind, len })) } else { Err(bad_length()) }
    }
}

/// Begins a message; [`finish`] writes its length.
pub(crate) fn begin(kind: Kind) -> Vec<u8> {
    let mut out = MARKER.to_vec();
    out.extend([0, 0, kind as u8]);
    out
}

/// Writes the length of a message.
pub(crate) fn finish(mut message: Vec<u8>) -> Vec<u8> {
    let len = message.len() as u16;
    message[16..18].copy_from_slice(&len.to_be_bytes());
    message
}

pub(crate) fn keepalive() -> Vec<u8> {
    finish(begin(Kind::Keepalive))
}

/// The mark after the last route of a family (RFC 4724 section 2).
pub fn end_of_rib(family: Family) -> Vec<u8> {
    let mut out = begin(Kind::Update);
    match family {
        Family::Ipv4 => out.extend([0; 4]),
        Family::Ipv6 => {
            out.extend([0, 0, 0, 6, 0x80, crate::attributes::kind::MP_UNREACH, 3]);
            out.extend(family.afi().to_be_bytes());
            out.push(UNICAST);
        }
    }
    finish(out)
}

/// Subtypes of ROUTE-REFRESH (RFC 7313 section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refresh {
    Request = 0,
    Begin = 1,
    End = 2,
}

pub(crate) fn route_refresh(family: Family, subtype: Refresh) -> Vec<u8> {
    let mut out = begin(Kind::RouteRefresh);
    out.extend(family.afi().to_be_bytes());
    out.extend([subtype as u8, UNICAST]);
    finish(out)
}

/// Reads the body of a ROUTE-REFRESH, at least four octets; `None`: its family or subtype is
/// not known, and it is ignored (RFC 7313 section 5).
///
/// # Errors
/// The NOTIFICATION about a wrong length, if the session is one of enhanced refreshes.
pub(crate) fn read_route_refresh(
    body: &[u8],
    enhanced: bool,
) -> Result<Option<(Family, Refresh)>, Notification> {
    let [high, low, subtype, safi, rest @ ..] = body else { return Ok(None) };
    let subtype = match subtype {
        0 => Refresh::Request,
        1 if enhanced => Refresh::Begin,
        2 if enhanced => Refresh::End,
        _ => return Ok(None),
    };
    // A request may have filters (RFC 5291), which are not applied.
    if subtype != Refresh::Request && !rest.is_empty() {
        return Err(Notification::with(code::REFRESH, 1, body));
    }
    let family = Family::of(u16::from_be_bytes([*high, *low]), *safi);
    Ok(family.map(|family| (family, subtype)))
}

/// An OPEN (RFC 4271 section 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    /// From the capability for numbers of four octets, if there is one.
    pub asn: u32,
    /// Seconds.
    pub hold: u16,
    pub identifier: Ipv4Addr,
    pub capabilities: Capabilities,
}

impl Open {
    pub fn octets(&self) -> Vec<u8> {
        let mut out = begin(Kind::Open);
        out.push(VERSION);
        out.extend(u16::try_from(self.asn).unwrap_or(AS_TRANS).to_be_bytes());
        out.extend(self.hold.to_be_bytes());
        out.extend(self.identifier.octets());
        let mut capabilities = Vec::new();
        self.capabilities.write(&mut capabilities);
        // All capabilities in one parameter (RFC 5492 section 4): at most 60 octets.
        let len = capabilities.len() as u8;
        if len > 0 {
            out.extend([len + 2, CAPABILITIES, len]);
            out.extend(capabilities);
        } else {
            out.push(0);
        }
        finish(out)
    }

    /// Reads the body of a message, at least ten octets. Does not judge the values, except the
    /// version.
    ///
    /// # Errors
    /// The NOTIFICATION to send (RFC 4271 section 6.2).
    pub fn read(body: &[u8]) -> Result<Self, Notification> {
        let malformed = || Notification::new(code::OPEN, 0);
        let Some((head, rest)) = body.split_first_chunk::<10>() else { return Err(malformed()) };
        if head[0] != VERSION {
            return Err(Notification::with(code::OPEN, 1, &[0, VERSION]));
        }
        let mut capabilities = Capabilities::default();
        // RFC 9072 section 2: a first parameter of type 255 says that the lengths have two octets.
        let (extended, mut parameters) = match rest {
            [EXTENDED, high, low, rest @ ..] if head[9] != 0 => {
                let len = usize::from(u16::from_be_bytes([*high, *low]));
                (true, rest.get(..len).filter(|it| it.len() == rest.len()).ok_or_else(malformed)?)
            }
            _ if usize::from(head[9]) == rest.len() => (false, rest),
            _ => return Err(malformed()),
        };
        while let [kind, after @ ..] = parameters {
            let (len, after) = match (extended, after) {
                (false, [len, after @ ..]) => (usize::from(*len), after),
                (true, [high, low, after @ ..]) => {
                    (usize::from(u16::from_be_bytes([*high, *low])), after)
                }
                _ => return Err(malformed()),
            };
            let (value, after) = after.split_at_checked(len).ok_or_else(malformed)?;
            if *kind != CAPABILITIES {
                return Err(Notification::new(code::OPEN, 4));
            }
            capabilities.read(value).map_err(|()| malformed())?;
            parameters = after;
        }
        Ok(Self {
            asn: capabilities.asn.unwrap_or_else(|| be16(head, 1).into()),
            hold: be16(head, 3),
            identifier: Ipv4Addr::new(head[5], head[6], head[7], head[8]),
            capabilities,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddPath, RestartCapability};

    fn header(len: u16, kind: u8) -> Vec<u8> {
        [&[0xff; 16], &len.to_be_bytes()[..], &[kind]].concat()
    }

    #[test]
    fn headers_are_refused_with_the_codes_of_section_6_1() {
        let error = |octets: &[u8], most| {
            let error = Header::read(octets, most).expect_err("it is wrong");
            (error.code, error.subcode, error.data)
        };
        let mut unsynchronized = header(19, 4);
        unsynchronized[7] = 0;
        assert_eq!(error(&unsynchronized, MOST), (1, 1, vec![]));
        // Shorter and longer than allowed, by type.
        for (len, kind) in [(18u16, 4), (4097, 2), (28, 1), (22, 2), (20, 3), (20, 4), (22, 5)] {
            let expected = (1, 2, len.to_be_bytes().to_vec());
            assert_eq!(error(&header(len, kind), MOST), expected, "{len} {kind}");
        }
        assert_eq!(error(&header(19, 6), MOST), (1, 3, vec![6]));
        // RFC 8654 section 4.
        assert_eq!(error(&header(4097, 1), MOST_EXTENDED).1, 2);
        let update = Header::read(&header(4097, 2), MOST_EXTENDED);
        assert_eq!(update, Ok(Some(Header { kind: Kind::Update, len: 4097 })));
        assert_eq!(Header::read(&header(19, 4)[..18], MOST), Ok(None));
    }

    fn open() -> Open {
        let mut capabilities = Capabilities {
            families: [true, true],
            asn: Some(4_200_000_001),
            refresh: true,
            enhanced_refresh: true,
            extended_messages: true,
            ..Capabilities::default()
        };
        capabilities.add_path[0] = Some(AddPath { send: true, receive: true });
        capabilities.restart = Some(RestartCapability {
            restarting: true,
            seconds: 120,
            families: [Some(true), None],
        });
        Open { asn: 4_200_000_001, hold: 90, identifier: [192, 0, 2, 1].into(), capabilities }
    }

    #[test]
    fn an_open_reads_back_and_has_the_transition_number() {
        let octets = open().octets();
        assert_eq!(octets[20..22], AS_TRANS.to_be_bytes());
        assert_eq!(Open::read(&octets[HEADER..]), Ok(open()));
        let plain = Open { asn: 65_001, capabilities: Capabilities::default(), ..open() };
        let octets = plain.octets();
        assert_eq!((octets.len(), &octets[20..22]), (29, &65_001_u16.to_be_bytes()[..]));
        assert_eq!(Open::read(&octets[HEADER..]), Ok(plain));
    }

    #[test]
    fn capabilities_may_be_in_several_parameters_and_in_long_lists() {
        let fixed = [4, 0, 1, 0, 90, 192, 0, 2, 1];
        let several = [&fixed[..], &[8, 2, 2, 2, 0, 2, 2, 6, 0]].concat();
        let capabilities =
            Capabilities { refresh: true, extended_messages: true, ..Capabilities::default() };
        assert_eq!(Open::read(&several).map(|open| open.capabilities), Ok(capabilities.clone()));
        // RFC 9072 section 2.
        let long = [&fixed[..], &[255, 255, 0, 7, 2, 0, 4, 2, 0, 6, 0]].concat();
        assert_eq!(Open::read(&long).map(|open| open.capabilities), Ok(capabilities));
    }

    #[test]
    fn opens_are_refused_with_the_codes_of_section_6_2() {
        let good = open().octets()[HEADER..].to_vec();
        let error = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut body = good.clone();
            change(&mut body);
            let error = Open::read(&body).expect_err("it is wrong");
            (error.code, error.subcode, error.data)
        };
        assert_eq!(error(&|body| body[0] = 3), (2, 1, vec![0, 4]));
        // The deprecated parameter for authentication, as an unknown type.
        assert_eq!(error(&|body| body[10] = 1), (2, 4, vec![]));
        // Lengths that exceed the message, or leave octets of it.
        assert_eq!(error(&|body| body[9] += 1).1, 0);
        assert_eq!(error(&|body| body[11] += 1).1, 0);
        assert_eq!(error(&|body| body.push(0)).1, 0);
        assert_eq!(error(&|body| body.truncate(9)).1, 0);
    }

    #[test]
    fn refreshes_read_back_and_their_lengths_count_if_they_are_enhanced() {
        for family in Family::ALL {
            for subtype in [Refresh::Request, Refresh::Begin, Refresh::End] {
                let octets = route_refresh(family, subtype);
                assert_eq!(
                    read_route_refresh(&octets[HEADER..], true),
                    Ok(Some((family, subtype)))
                );
            }
        }
        assert_eq!(read_route_refresh(&[0, 1, 1, 1], false), Ok(None));
        assert_eq!(read_route_refresh(&[0, 1, 3, 1], true), Ok(None), "an unknown subtype");
        assert_eq!(read_route_refresh(&[0, 25, 0, 70], true), Ok(None), "EVPN");
        // With a filter.
        let request = Ok(Some((Family::Ipv4, Refresh::Request)));
        assert_eq!(read_route_refresh(&[0, 1, 0, 1, 1, 64, 0, 0], true), request);
        let error = read_route_refresh(&[0, 1, 1, 1, 9], true).unwrap_err();
        assert_eq!((error.code, error.subcode, error.data), (7, 1, vec![0, 1, 1, 1, 9]));
    }

    #[test]
    fn the_ends_of_families_are_those_of_rfc_4724() {
        assert_eq!(end_of_rib(Family::Ipv4)[16..], [0, 23, 2, 0, 0, 0, 0]);
        assert_eq!(end_of_rib(Family::Ipv6)[16..], [0, 29, 2, 0, 0, 0, 6, 0x80, 15, 3, 0, 2, 1]);
    }
}
