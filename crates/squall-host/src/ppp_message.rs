//! Packets of PPP's control protocols: LCP (RFC 1661 section 5), PAP (RFC 1334), CHAP (RFC 1994),
//! IPCP (RFC 1332) and IPV6CP (RFC 5072) have one form.

/// Numbers of protocols (RFC 1661 section 2).
pub const PPP_IPV4: u16 = 0x0021;
pub const PPP_IPV6: u16 = 0x0057;
pub const IPCP: u16 = 0x8021;
pub const IPV6CP: u16 = 0x8057;
pub const LCP: u16 = 0xc021;
pub const PAP: u16 = 0xc023;
pub const CHAP: u16 = 0xc223;

/// Codes of LCP, of which the network control protocols have the first seven.
pub(crate) const CONFIGURE_REQUEST: u8 = 1;
pub(crate) const CONFIGURE_ACK: u8 = 2;
pub(crate) const CONFIGURE_NAK: u8 = 3;
pub(crate) const CONFIGURE_REJECT: u8 = 4;
pub(crate) const TERMINATE_REQUEST: u8 = 5;
pub(crate) const TERMINATE_ACK: u8 = 6;
pub(crate) const CODE_REJECT: u8 = 7;
pub(crate) const PROTOCOL_REJECT: u8 = 8;
pub(crate) const ECHO_REQUEST: u8 = 9;
pub(crate) const ECHO_REPLY: u8 = 10;
pub(crate) const DISCARD_REQUEST: u8 = 11;

/// A packet: code, identifier, and what follows the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PppPacket<'a> {
    pub code: u8,
    pub id: u8,
    pub data: &'a [u8],
}

impl<'a> PppPacket<'a> {
    /// Parses what follows the number of the protocol. Octets after the length are padding.
    ///
    /// # Errors
    /// The reason for which the packet is discarded.
    pub fn parse(octets: &'a [u8]) -> Result<Self, &'static str> {
        let (head, _) = octets.split_first_chunk::<4>().ok_or("truncated")?;
        let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
        if len > octets.len() {
            return Err("truncated");
        }
        let data = octets.get(4..len).ok_or("bad_length")?;
        Ok(Self { code: head[0], id: head[1], data })
    }

    pub fn octets(&self) -> Vec<u8> {
        let [high, low] = (4 + self.data.len() as u16).to_be_bytes();
        [&[self.code, self.id, high, low], self.data].concat()
    }
}

/// The name of a packet for counters. `octets` follow the number of the protocol.
pub fn ppp_word(protocol: u16, octets: &[u8]) -> &'static str {
    let code = octets.first().copied().unwrap_or_default();
    match (protocol, code) {
        (LCP, CONFIGURE_REQUEST) => "lcp_request",
        (LCP, CONFIGURE_ACK) => "lcp_ack",
        (LCP, CONFIGURE_NAK) => "lcp_nak",
        (LCP, CONFIGURE_REJECT) => "lcp_reject",
        (LCP, TERMINATE_REQUEST) => "terminate_request",
        (LCP, TERMINATE_ACK) => "terminate_ack",
        (LCP, CODE_REJECT) => "code_reject",
        (LCP, PROTOCOL_REJECT) => "protocol_reject",
        (LCP, ECHO_REQUEST) => "echo_request",
        (LCP, ECHO_REPLY) => "echo_reply",
        (LCP, DISCARD_REQUEST) => "discard_request",
        (PAP, 1) => "pap_request",
        (PAP, 2) => "pap_ack",
        (PAP, 3) => "pap_nak",
        (CHAP, 1) => "chap_challenge",
        (CHAP, 2) => "chap_response",
        (CHAP, 3) => "chap_success",
        (CHAP, 4) => "chap_failure",
        (IPCP, CONFIGURE_REQUEST) => "ipcp_request",
        (IPCP, CONFIGURE_ACK) => "ipcp_ack",
        (IPCP, CONFIGURE_NAK) => "ipcp_nak",
        (IPCP, CONFIGURE_REJECT) => "ipcp_reject",
        (IPCP, _) => "ipcp_other",
        (IPV6CP, CONFIGURE_REQUEST) => "ipv6cp_request",
        (IPV6CP, CONFIGURE_ACK) => "ipv6cp_ack",
        (IPV6CP, CONFIGURE_NAK) => "ipv6cp_nak",
        (IPV6CP, CONFIGURE_REJECT) => "ipv6cp_reject",
        (IPV6CP, _) => "ipv6cp_other",
        (PPP_IPV4, _) => "ipv4",
        (PPP_IPV6, _) => "ipv6",
        _ => "other",
    }
}

/// Options of a Configure packet: their types and values; `None` if a length is wrong.
pub(crate) fn options(mut data: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut options = Vec::new();
    while let [kind, len, rest @ ..] = data {
        let (value, more) = rest.split_at_checked(usize::from(*len).checked_sub(2)?)?;
        options.push((*kind, value));
        data = more;
    }
    data.is_empty().then_some(options)
}

pub(crate) fn push_option(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    out.extend([kind, 2 + value.len() as u8]);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_packet_ends_with_its_length_and_not_with_its_frame() {
        // A Configure-Request with a magic number, and padding of Ethernet.
        let octets = [1, 7, 0, 10, 5, 6, 1, 2, 3, 4, 0, 0, 0];
        let packet = PppPacket::parse(&octets).unwrap();
        assert_eq!((packet.code, packet.id), (1, 7));
        assert_eq!(options(packet.data), Some(vec![(5, &[1, 2, 3, 4][..])]));
        assert_eq!(packet.octets(), octets[..10]);
        assert_eq!(PppPacket::parse(&octets[..9]), Err("truncated"));
        assert_eq!(PppPacket::parse(&[1, 7, 0, 3]), Err("bad_length"));
    }

    #[test]
    fn options_of_a_wrong_length_are_none() {
        assert_eq!(options(&[5, 1]), None, "shorter than its head");
        assert_eq!(options(&[5, 0, 1, 2]), None, "and would never end");
        assert_eq!(options(&[5, 6, 1]), None, "longer than the packet");
        assert_eq!(options(&[5]), None);
        assert_eq!(options(&[]), Some(vec![]));
    }

    proptest! {
        #[test]
        fn packets_read_back(code: u8, id: u8, data in proptest::collection::vec(any::<u8>(), 0..40)) {
            let packet = PppPacket { code, id, data: &data };
            let octets = packet.octets();
            prop_assert_eq!(PppPacket::parse(&octets), Ok(packet));
            let _ = options(&data);
        }
    }
}
