//! Neighbors from which a router takes LSAs and LSPs.

use std::collections::BTreeSet;

use super::Protocol;
use crate::{OspfAuthentication, RouterSettings};

/// Senders that are known at most.
const MOST: usize = 1_024;

/// Neighbors that have begun to exchange databases: routers whose database descriptions have come
/// (RFC 2328 section 10.8; no other updates count, section 13), or hosts whose hellos of IS-IS have.
/// The daemon shows states too late for that.
#[derive(Clone, Debug, Default)]
pub struct Senders(BTreeSet<Vec<u8>>);

impl Senders {
    /// Whether a router with these settings takes over the LSAs or LSPs of a received packet.
    /// `from`: the MAC address of its sender.
    pub fn is_taken_from(
        &mut self,
        protocol: Protocol,
        settings: &RouterSettings,
        from: &[u8],
        packet: &[u8],
    ) -> bool {
        let found = match protocol {
            Protocol::Isis => isis(settings, from, packet),
            _ => ospf(protocol, settings, packet),
        };
        let Some((kind, senders)) = found else { return false };
        match kind {
            Kind::Introduces if self.0.len() < MOST => {
                self.0.extend(senders);
                false
            }
            Kind::Introduces => false,
            Kind::Updates => senders.iter().all(|sender| self.0.contains(sender)),
        }
    }
}

enum Kind {
    Introduces,
    Updates,
}

/// The kind of a packet of the router's area, and its sender.
fn ospf(
    protocol: Protocol,
    settings: &RouterSettings,
    packet: &[u8],
) -> Option<(Kind, Vec<Vec<u8>>)> {
    let (version, area) = match protocol {
        Protocol::Ospf2 => (2, settings.ospf?),
        _ => (3, settings.ospf3?),
    };
    let is_of_area = *packet.first()? == version && packet.get(8..12)? == area.octets();
    let is_known = match protocol {
        Protocol::Ospf2 => is_authentic(settings.igp.authentication.as_ref(), packet)?,
        _ => *packet.get(14)? == settings.igp.instance,
    };
    let kind = match packet[1] {
        2 => Kind::Introduces,
        4 => Kind::Updates,
        _ => return None,
    };
    (is_of_area && is_known).then(|| (kind, vec![packet[4..8].to_vec()]))
}

/// Whether the authentication is of the router's kind, with its password or one of the numbers of
/// its keys (RFC 2328 appendix D). Digests are not compared.
fn is_authentic(with: Option<&OspfAuthentication>, packet: &[u8]) -> Option<bool> {
    let (kind, data) = (packet.get(14..16)?, packet.get(16..24)?);
    Some(match with {
        None => kind == [0, 0],
        Some(OspfAuthentication::Simple(password)) => {
            let rest = data.strip_prefix(password.as_bytes());
            kind == [0, 1] && rest.is_some_and(|rest| rest.iter().all(|octet| *octet == 0))
        }
        Some(OspfAuthentication::Md5(keys)) => {
            kind == [0, 2] && keys.iter().any(|(number, _)| *number == data[2])
        }
    })
}

/// The kind of a packet of the router's levels, and its sender at each of them.
fn isis(settings: &RouterSettings, from: &[u8], packet: &[u8]) -> Option<(Kind, Vec<Vec<u8>>)> {
    let levels = settings.isis.as_ref()?.levels;
    // Versions, and octets of system IDs, of which 0 are 6 (ISO/IEC 10589 section 9.5).
    let [_, _, version, length, kind, second_version] = *packet.first_chunk()?;
    let is_known = version == 1 && second_version == 1 && [0, 6].contains(&length);
    let (kind, of) = match kind & 31 {
        15 => (Kind::Introduces, 1),
        16 => (Kind::Introduces, 2),
        17 => (Kind::Introduces, packet.get(8)? & 3),
        18 => (Kind::Updates, 1),
        20 => (Kind::Updates, 2),
        _ => return None,
    };
    let chosen = [1, 2].into_iter().zip(levels).filter(|(bit, speaks)| of & bit != 0 && *speaks);
    let senders: Vec<_> = chosen.map(|(bit, _)| [&[bit][..], from].concat()).collect();
    (is_known && !senders.is_empty()).then_some((kind, senders))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isis, bird::tests::settings};

    const MAC: [u8; 6] = [2; 6];

    /// A packet of OSPF from router 0.0.0.9 in area 0.0.0.5.
    fn packet(version: u8, kind: u8) -> Vec<u8> {
        let mut packet = vec![0; 24];
        (packet[0], packet[1], packet[7], packet[11]) = (version, kind, 9, 5);
        packet
    }

    /// Whether an update is taken over after a description, each of which is changed.
    fn is_taken(
        protocol: Protocol,
        settings: &RouterSettings,
        [description, update]: [&[u8]; 2],
    ) -> bool {
        let mut senders = Senders::default();
        assert!(!senders.is_taken_from(protocol, settings, &MAC, update), "it is not known");
        assert!(!senders.is_taken_from(protocol, settings, &MAC, description));
        senders.is_taken_from(protocol, settings, &MAC, update)
    }

    #[test]
    fn only_neighbors_in_the_area_send_lsas() {
        let mut settings = settings();
        let area = [0, 0, 0, 5].into();
        (settings.ospf, settings.ospf3, settings.igp.instance) = (Some(area), Some(area), 7);
        for (protocol, version) in [(Protocol::Ospf2, 2), (Protocol::Ospf3, 3)] {
            let (mut description, mut update) = (packet(version, 2), packet(version, 4));
            if protocol == Protocol::Ospf3 {
                (description[14], update[14]) = (7, 7);
            }
            assert!(is_taken(protocol, &settings, [&description, &update]), "{protocol:?}");
            // Version, router, area, and kind of authentication or instance.
            for at in [0, 7, 11, 14] {
                let mut other = update.clone();
                other[at] ^= 1;
                let found = is_taken(protocol, &settings, [&description, &other]);
                assert!(!found, "{protocol:?} {at}");
            }
            for cut in 0..15 {
                assert!(!is_taken(protocol, &settings, [&description, &update[..cut]]), "{cut}");
            }
        }
    }

    #[test]
    fn authentication_is_that_of_the_router() {
        let mut settings = settings();
        settings.ospf = Some([0, 0, 0, 5].into());
        let both = |kind: u8, data: [u8; 8]| {
            [2, 4].map(|of| {
                let mut packet = packet(2, of);
                packet[15] = kind;
                packet[16..24].copy_from_slice(&data);
                packet
            })
        };
        let simple = OspfAuthentication::Simple("otg".into());
        let md5 = OspfAuthentication::Md5(vec![(4, "a".into()), (6, "b".into())]);
        for (authentication, kind, data, expected) in [
            (simple.clone(), 1, *b"otg\0\0\0\0\0", true),
            (simple.clone(), 1, *b"otga\0\0\0\0", false),
            (simple, 2, *b"otg\0\0\0\0\0", false),
            (md5.clone(), 2, [0, 0, 6, 16, 0, 0, 0, 1], true),
            (md5.clone(), 2, [0, 0, 5, 16, 0, 0, 0, 1], false),
            (md5, 0, [0, 0, 6, 16, 0, 0, 0, 1], false),
        ] {
            settings.igp.authentication = Some(authentication);
            let [description, update] = both(kind, data);
            let found = is_taken(Protocol::Ospf2, &settings, [&description, &update]);
            assert_eq!(found, expected, "{kind} {data:?}");
        }
    }

    #[test]
    fn only_neighbors_of_a_level_send_its_lsps() {
        let mut settings = settings();
        let levels = [false, true];
        let area = "49.0001".into();
        settings.isis = Some(Isis { area, levels, metric: 10, point_to_point: true });
        let packet = |kind: u8, circuit: u8| [0x83, 27, 1, 0, kind, 1, 0, 0, circuit];
        for (hello, lsp, expected) in [
            (packet(17, 3), packet(20, 0), true),
            (packet(16, 0), packet(20, 0), true),
            (packet(17, 1), packet(20, 0), false),
            (packet(17, 3), packet(18, 0), false),
            (packet(15, 0), packet(20, 0), false),
            ([0x83, 27, 2, 0, 17, 1, 0, 0, 3], packet(20, 0), false),
        ] {
            let found = is_taken(Protocol::Isis, &settings, [&hello, &lsp]);
            assert_eq!(found, expected, "{hello:?} {lsp:?}");
        }
        for (hello, cut) in [1, 2].into_iter().flat_map(|version| {
            (0..8).map(move |cut| ([0x83, 27, version, 0, 17, 1, 0, 0, 3], cut))
        }) {
            let mut senders = Senders::default();
            assert!(!senders.is_taken_from(Protocol::Isis, &settings, &MAC, &hello[..cut]));
        }
    }
}
