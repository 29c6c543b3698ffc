//! Packets of PPPoE (RFC 2516 sections 4 and 5, appendix A).

/// EtherTypes of the discovery and of the session stage.
pub const PPPOE_DISCOVERY: u16 = 0x8863;
pub const PPPOE_SESSION: u16 = 0x8864;

/// Codes of the discovery; that of sessions is 0.
pub const PADI: u8 = 0x09;
pub const PADO: u8 = 0x07;
pub const PADR: u8 = 0x19;
pub const PADS: u8 = 0x65;
pub const PADT: u8 = 0xa7;

/// Types of tags.
pub(crate) const SERVICE_NAME: u16 = 0x0101;
pub(crate) const AC_NAME: u16 = 0x0102;
pub(crate) const HOST_UNIQ: u16 = 0x0103;
pub(crate) const AC_COOKIE: u16 = 0x0104;
pub(crate) const RELAY_SESSION_ID: u16 = 0x0110;
pub(crate) const SERVICE_NAME_ERROR: u16 = 0x0201;
pub(crate) const AC_SYSTEM_ERROR: u16 = 0x0202;
const GENERIC_ERROR: u16 = 0x0203;

/// Version and type.
const VERSION: u8 = 0x11;

/// A packet after its Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PppoePacket<'a> {
    /// 0 in a session.
    pub code: u8,
    pub session: u16,
    pub payload: &'a [u8],
}

impl<'a> PppoePacket<'a> {
    /// Parses what follows the Ethernet header. Octets after the length are padding.
    ///
    /// # Errors
    /// The reason for which the packet is discarded.
    pub fn parse(octets: &'a [u8]) -> Result<Self, &'static str> {
        let (head, rest) = octets.split_first_chunk::<6>().ok_or("truncated")?;
        if head[0] != VERSION {
            return Err("bad_version");
        }
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let payload = rest.get(..usize::from(word(4))).ok_or("truncated")?;
        Ok(Self { code: head[1], session: word(2), payload })
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend([VERSION, self.code]);
        out.extend_from_slice(&self.session.to_be_bytes());
        out.extend_from_slice(&(self.payload.len() as u16).to_be_bytes());
        out.extend_from_slice(self.payload);
    }

    /// The name of a packet of the discovery.
    pub fn word(&self) -> &'static str {
        match self.code {
            PADI => "padi",
            PADO => "pado",
            PADR => "padr",
            PADS => "pads",
            PADT => "padt",
            _ => "other",
        }
    }
}

/// The tags of a discovery packet that matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PppoeTags<'a> {
    payload: &'a [u8],
    pub host_uniq: Option<&'a [u8]>,
    pub ac_name: Option<&'a [u8]>,
    pub cookie: Option<&'a [u8]>,
    pub relay: Option<&'a [u8]>,
    /// The access concentrator refuses, for this reason.
    pub error: Option<&'static str>,
}

impl<'a> PppoeTags<'a> {
    /// Parses the tags of a packet.
    ///
    /// # Errors
    /// The reason for which the packet is discarded.
    pub fn parse(payload: &'a [u8]) -> Result<Self, &'static str> {
        let mut tags = Self { payload, ..Self::default() };
        let mut rest = Tags(payload);
        for (kind, value) in &mut rest {
            match kind {
                HOST_UNIQ => tags.host_uniq = Some(value),
                AC_NAME => tags.ac_name = Some(value),
                AC_COOKIE => tags.cookie = Some(value),
                RELAY_SESSION_ID => tags.relay = Some(value),
                SERVICE_NAME_ERROR => tags.error = Some("service_name_error"),
                AC_SYSTEM_ERROR => tags.error = Some("ac_system_error"),
                GENERIC_ERROR => tags.error = Some("generic_error"),
                _ => {}
            }
        }
        if rest.0.is_empty() { Ok(tags) } else { Err("bad_tags") }
    }

    /// The names of services, in their order.
    pub fn services(&self) -> impl Iterator<Item = &'a [u8]> {
        Tags(self.payload).filter(|(kind, _)| *kind == SERVICE_NAME).map(|(_, value)| value)
    }
}

/// Tags by type and value. Octets that remain at the end are malformed.
struct Tags<'a>(&'a [u8]);

impl<'a> Iterator for Tags<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.0.split_first_chunk::<4>()?;
        let kind = u16::from_be_bytes([head[0], head[1]]);
        let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
        // End-Of-List.
        if kind == 0 {
            self.0 = &[];
            return None;
        }
        let (value, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((kind, value))
    }
}

pub(crate) fn push_tag(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(value.len() as u16).to_be_bytes());
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_a_pado_in_the_rfc_is_read() {
        // RFC 2516 appendix B, after the Ethernet header.
        let mut octets = vec![0x11, 0x07, 0, 0, 0, 0x20, 1, 1, 0, 0, 1, 2, 0, 0x18];
        octets.extend(b"Go RedBack - eshshesh\0\0\0");
        octets.extend([0; 8]);
        let packet = PppoePacket::parse(&octets).unwrap();
        assert_eq!((packet.code, packet.session, packet.word()), (PADO, 0, "pado"));
        let tags = PppoeTags::parse(packet.payload).unwrap();
        assert_eq!(tags.ac_name, Some(&b"Go RedBack - eshshesh\0\0\0"[..]));
        assert_eq!(tags.services().collect::<Vec<_>>(), [b""]);
        let mut again = Vec::new();
        packet.write(&mut again);
        assert_eq!(again, octets[..6 + 0x20]);
    }

    #[test]
    fn malformed_packets_have_reasons() {
        assert_eq!(PppoePacket::parse(&[0x11, 9, 0, 0, 0]), Err("truncated"));
        assert_eq!(PppoePacket::parse(&[0x11, 9, 0, 0, 0, 1]), Err("truncated"));
        assert_eq!(PppoePacket::parse(&[0x21, 9, 0, 0, 0, 0]), Err("bad_version"));
        assert_eq!(PppoeTags::parse(&[1, 1, 0, 9, 1]), Err("bad_tags"));
        assert_eq!(PppoeTags::parse(&[1, 1, 0]), Err("bad_tags"));
        assert!(PppoeTags::parse(&[0, 0, 0, 0, 9, 9]).is_ok(), "nothing counts after the end");
        let error = PppoeTags::parse(&[2, 2, 0, 0]).unwrap().error;
        assert_eq!(error, Some("ac_system_error"));
    }

    proptest! {
        #[test]
        fn no_octets_make_it_panic(octets in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(packet) = PppoePacket::parse(&octets) {
                let mut again = Vec::new();
                packet.write(&mut again);
                prop_assert_eq!(PppoePacket::parse(&again), Ok(packet));
            }
            if let Ok(tags) = PppoeTags::parse(&octets) {
                let _ = tags.services().count();
            }
        }
    }
}
