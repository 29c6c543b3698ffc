//! A first packet of a reserved version, which a server answers with the versions that it knows
//! (RFC 8999, RFC 9000 section 6).

use squall_units::mix;

use super::{SHORTEST_FIRST, VERSION_1};

/// Reserved to exercise version negotiation (RFC 9000 section 15).
const RESERVED: [u8; 4] = [0x1a, 0x2a, 0x3a, 0x4a];
const ID_LEN: usize = 8;

/// The connection IDs of a first packet: destination and source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids([[u8; ID_LEN]; 2]);

impl Ids {
    /// `number`: the flow's.
    pub fn of(number: u32) -> Self {
        Self([1, 2].map(|which| mix(number.into(), which).to_be_bytes()))
    }

    /// Writes the packet, a datagram.
    pub fn write(self, out: &mut Vec<u8>) {
        out.clear();
        out.push(0xc0);
        out.extend(RESERVED);
        for id in self.0 {
            out.push(ID_LEN as u8);
            out.extend(id);
        }
        out.resize(SHORTEST_FIRST, 0);
    }

    /// Whether the sender of a Version Negotiation packet (RFC 9000 section 17.2.1) knows version 1;
    /// `None`: this is no such packet, or does not answer that with these IDs.
    pub fn answered_by(self, datagram: &[u8]) -> Option<bool> {
        let (&[first, 0, 0, 0, 0], rest) = datagram.split_first_chunk()? else { return None };
        let [receiver, sender] = self.0;
        let rest = after_id(rest, sender)?;
        let rest = after_id(rest, receiver)?;
        let (versions, extra) = rest.as_chunks::<4>();
        let right = first & 0x80 != 0 && !versions.is_empty() && extra.is_empty();
        right.then(|| versions.contains(&VERSION_1))
    }
}

/// The octets after a connection ID with its length.
fn after_id(octets: &[u8], id: [u8; ID_LEN]) -> Option<&[u8]> {
    octets.strip_prefix(&[ID_LEN as u8])?.strip_prefix(&id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_ids_in_the_other_order_and_a_list() {
        let ids = Ids::of(7);
        let mut packet = Vec::new();
        ids.write(&mut packet);
        assert_eq!((packet.len(), packet[0], &packet[1..5]), (1200, 0xc0, &RESERVED[..]));
        assert!(super::super::may_begin(&packet), "a server answers it");
        let answer = |versions: &[[u8; 4]]| {
            let (receiver, sender) = (&packet[6..14], &packet[15..23]);
            [&[0xff, 0, 0, 0, 0, 8], sender, &[8], receiver, &versions.concat()].concat()
        };
        assert_eq!(ids.answered_by(&answer(&[RESERVED, VERSION_1])), Some(true));
        assert_eq!(ids.answered_by(&answer(&[RESERVED])), Some(false));
        assert_eq!(ids.answered_by(&answer(&[])), None);
        assert_eq!(Ids::of(8).answered_by(&answer(&[VERSION_1])), None, "of another flow");
        let whole = answer(&[VERSION_1]);
        for len in 0..whole.len() {
            assert_eq!(ids.answered_by(&whole[..len]), None, "cut to {len}");
        }
        assert_eq!(ids.answered_by(&packet), None, "its own packet");
    }
}
