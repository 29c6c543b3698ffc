//! Capabilities of an OPEN (RFC 5492).

use squall_units::{be16, be32};

use crate::{Family, prefix::UNICAST};

/// A flag for each [`Family`], by its index.
pub type Families = [bool; 2];

mod code {
    pub const MULTIPROTOCOL: u8 = 1;
    pub const ROUTE_REFRESH: u8 = 2;
    pub const EXTENDED_MESSAGE: u8 = 6;
    pub const GRACEFUL_RESTART: u8 = 64;
    pub const FOUR_OCTET_AS: u8 = 65;
    pub const ADD_PATH: u8 = 69;
    pub const ENHANCED_REFRESH: u8 = 70;
}

/// Capabilities that one side of a session offers. Unknown ones are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Multiprotocol extensions (RFC 4760). Without any, a session carries IPv4.
    pub families: Families,
    /// Multiprotocol capabilities for families other than [`Family`] were received.
    pub other_families: bool,
    /// The number of the autonomous system, in four octets (RFC 6793).
    pub asn: Option<u32>,
    /// Several paths for a prefix (RFC 7911), by the index of the family.
    pub add_path: [Option<AddPath>; 2],
    /// Graceful restart (RFC 4724).
    pub restart: Option<RestartCapability>,
    /// Route refresh (RFC 2918), and its enhanced kind (RFC 7313).
    pub refresh: bool,
    pub enhanced_refresh: bool,
    /// Messages of up to 65,535 octets (RFC 8654).
    pub extended_messages: bool,
}

/// Directions of several paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddPath {
    pub send: bool,
    pub receive: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestartCapability {
    /// R: the speaker has restarted.
    pub restarting: bool,
    /// Time after which the speaker is back, 0 to 4095 seconds.
    pub seconds: u16,
    /// Families, by their index, and whether their forwarding state was kept (F).
    pub families: [Option<bool>; 2],
}

const RESTARTING: u16 = 0x8000;
const FORWARDING: u8 = 0x80;

impl Capabilities {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for family in Family::ALL.into_iter().filter(|family| self.families[family.index()]) {
            let [high, low] = family.afi().to_be_bytes();
            out.extend([code::MULTIPROTOCOL, 4, high, low, 0, UNICAST]);
        }
        for (code, has) in [
            (code::ROUTE_REFRESH, self.refresh),
            (code::EXTENDED_MESSAGE, self.extended_messages),
            (code::ENHANCED_REFRESH, self.enhanced_refresh),
        ] {
            if has {
                out.extend([code, 0]);
            }
        }
        if let Some(restart) = &self.restart {
            let families = Family::ALL.map(|family| (family, restart.families[family.index()]));
            let families = families.into_iter().filter_map(|(family, kept)| Some((family, kept?)));
            out.extend([code::GRACEFUL_RESTART, 2 + 4 * families.clone().count() as u8]);
            let flags = if restart.restarting { RESTARTING } else { 0 };
            out.extend((flags | restart.seconds & 0x0fff).to_be_bytes());
            for (family, kept) in families {
                out.extend(family.afi().to_be_bytes());
                out.extend([UNICAST, if kept { FORWARDING } else { 0 }]);
            }
        }
        if let Some(asn) = self.asn {
            out.extend([code::FOUR_OCTET_AS, 4]);
            out.extend(asn.to_be_bytes());
        }
        let paths = Family::ALL.map(|family| (family, self.add_path[family.index()]));
        let paths = paths.into_iter().filter_map(|(family, paths)| Some((family, paths?)));
        if paths.clone().next().is_some() {
            out.extend([code::ADD_PATH, 4 * paths.clone().count() as u8]);
            for (family, AddPath { send, receive }) in paths {
                out.extend(family.afi().to_be_bytes());
                out.extend([UNICAST, u8::from(receive) | u8::from(send) << 1]);
            }
        }
    }

    /// Adds the capabilities of a parameter. Those with another length than theirs are ignored, as
    /// unknown ones are.
    ///
    /// # Errors
    /// If one exceeds the parameter.
    pub(crate) fn read(&mut self, mut octets: &[u8]) -> Result<(), ()> {
        while let [code, after @ ..] = octets {
            let (len, after) = after.split_first().ok_or(())?;
            let (value, after) = after.split_at_checked((*len).into()).ok_or(())?;
            self.add(*code, value);
            octets = after;
        }
        Ok(())
    }

    fn add(&mut self, code: u8, value: &[u8]) {
        match (code, value.len()) {
            (code::MULTIPROTOCOL, 4) => match Family::of(be16(value, 0), value[3]) {
                Some(family) => self.families[family.index()] = true,
                None => self.other_families = true,
            },
            (code::ROUTE_REFRESH, 0) => self.refresh = true,
            (code::EXTENDED_MESSAGE, 0) => self.extended_messages = true,
            (code::ENHANCED_REFRESH, 0) => self.enhanced_refresh = true,
            (code::FOUR_OCTET_AS, 4) => self.asn = Some(be32(value, 0)),
            (code::GRACEFUL_RESTART, 2..) => {
                let flags = be16(value, 0);
                let mut restart = RestartCapability {
                    restarting: flags & RESTARTING != 0,
                    seconds: flags & 0x0fff,
                    families: [None; 2],
                };
                for tuple in value[2..].as_chunks::<4>().0 {
                    if let Some(family) = Family::of(be16(tuple, 0), tuple[2]) {
                        restart.families[family.index()] = Some(tuple[3] & FORWARDING != 0);
                    }
                }
                // The last one counts (RFC 4724 section 3).
                self.restart = Some(restart);
            }
            (code::ADD_PATH, _) => {
                for tuple in value.as_chunks::<4>().0 {
                    // Another value than these is ignored (RFC 7911 section 4).
                    let (Some(family), 1..=3) = (Family::of(be16(tuple, 0), tuple[2]), tuple[3])
                    else {
                        continue;
                    };
                    self.add_path[family.index()] =
                        Some(AddPath { receive: tuple[3] & 1 != 0, send: tuple[3] & 2 != 0 });
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_capabilities_and_those_of_a_wrong_length_are_ignored() {
        let mut read = Capabilities::default();
        // An unknown one, EVPN, a refresh with a value, an AS number of two octets.
        let octets = [99, 1, 7, 1, 4, 0, 25, 0, 70, 2, 1, 0, 65, 2, 0, 1, 6, 0];
        assert_eq!(read.read(&octets), Ok(()));
        let expected = Capabilities {
            other_families: true,
            extended_messages: true,
            ..Capabilities::default()
        };
        assert_eq!(read, expected);
        assert_eq!(read.read(&[2]), Err(()));
        assert_eq!(read.read(&[2, 1]), Err(()));
    }

    #[test]
    fn directions_of_add_path_are_those_of_rfc_7911() {
        let mut read = Capabilities::default();
        assert_eq!(read.read(&[69, 12, 0, 1, 1, 1, 0, 2, 1, 2, 0, 1, 1, 4]), Ok(()));
        let expected = [
            Some(AddPath { send: false, receive: true }),
            Some(AddPath { send: true, receive: false }),
        ];
        assert_eq!(read.add_path, expected);
    }
}
