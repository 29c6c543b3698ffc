//! What stands beside a frame's slot in memory: shared by those who fill slots and those who send
//! them.

use crate::{FCS_LEN, Nanos};

/// Beside each slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct TxMeta {
    /// Frame length in octets, without FCS, at most the stride. Set by the filler.
    pub len: u32,
    /// Whose content is in the slot: the filler's mark, kept by the port from use to use; 0 when
    /// fresh.
    pub owner: u32,
    /// The filler's second mark, kept likewise.
    pub mark: u32,
    /// How the frame is to be cut. Set by the filler together with `owner`, kept likewise.
    pub cut: Cut,
    /// The instant at which the frame is due. Files record it; hardware may launch by it.
    pub due: Nanos,
}

/// How a GSO frame is cut into frames: each has the headers of the whole, made right, and the
/// next `size` octets of payload. By default not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Payload octets of a segment; the last may have fewer. 0: the frame leaves as it is.
    pub size: u16,
    /// Where the TCP or UDP header begins, octets from the start of the frame.
    pub transport: u8,
    /// Where its payload begins.
    pub payload: u8,
}

const UDP_HEADER: u8 = 8;

impl Cut {
    /// The frame leaves as it is.
    pub const WHOLE: Self = Self { size: 0, transport: 0, payload: 0 };

    #[inline]
    pub fn is_whole(self) -> bool {
        self.size == 0
    }

    /// UDP, not TCP: no TCP header is as short.
    #[inline]
    pub fn is_udp(self) -> bool {
        self.payload - self.transport == UDP_HEADER
    }

    /// Frames that one of `len` octets (without FCS) becomes; at least 1.
    #[inline]
    pub fn segments(self, len: u32) -> u32 {
        if self.is_whole() {
            1
        } else {
            (len - u32::from(self.payload)).div_ceil(self.size.into()).max(1)
        }
    }

    /// Octets of all of them, each with its headers and FCS.
    #[inline]
    pub fn octets(self, len: u32) -> u64 {
        let segments = u64::from(self.segments(len));
        u64::from(len) + (segments - 1) * u64::from(self.payload) + segments * u64::from(FCS_LEN)
    }
}

/// Where frames that are to be cut are cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Segmentation {
    /// By the engine, before the port sees them.
    #[default]
    Engine,
    /// By the port or behind it (kernel, NIC).
    Port(Offload),
    /// Nowhere: the port makes its frames itself.
    Nowhere,
}

/// What a port cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// The longest GSO frame, octets without FCS.
    pub max_frame: u32,
    /// Segments of a GSO frame at most; 0: cuts none of the kind.
    pub tcp: u32,
    pub udp: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offload_request_costs_no_octet() {
        assert_eq!(size_of::<TxMeta>(), 24);
    }

    #[test]
    fn segments_and_their_octets_are_those_on_the_wire() {
        let tcp = Cut { size: 1460, transport: 34, payload: 54 };
        for (len, segments, octets) in [
            (54, 1, 58),
            (55, 1, 59),
            (1514, 1, 1518),
            (1515, 2, 1518 + 59),
            (54 + 2920, 2, 2 * 1518),
        ] {
            assert_eq!((tcp.segments(len), tcp.octets(len)), (segments, octets), "{len}");
        }
        assert_eq!((Cut::WHOLE.segments(1514), Cut::WHOLE.octets(1514)), (1, 1518));
    }
}
