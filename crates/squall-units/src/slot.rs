//! Metadata of a frame's slot in memory, shared by fillers and senders.

use crate::{FCS_LEN, Nanos};

/// Metadata of a slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct TxMeta {
    /// Frame length in octets, without FCS, at most the stride. Set by the filler.
    pub len: u32,
    /// Identifies the slot's content: the filler's mark, which the port keeps between uses; 0 for a
    /// new slot.
    pub owner: u32,
    /// The filler's second mark, also kept.
    pub mark: u32,
    /// How the frame is to be cut. Set by the filler together with `owner`, and also kept.
    pub cut: Cut,
    /// When the frame is due. Files record it; hardware may use it as launch time.
    pub due: Nanos,
}

/// How a GSO frame is cut into frames: each has the headers of the whole, corrected, and the next
/// `size` octets of payload. By default not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Payload octets of a segment; the last may have fewer. 0: the frame is not cut.
    pub size: u16,
    /// Start of the TCP or UDP header, in octets from the start of the frame.
    pub transport: u8,
    /// Start of the TCP or UDP payload, in octets from the start of the frame.
    pub payload: u8,
}

const UDP_HEADER: u8 = 8;

impl Cut {
    /// The frame is not cut.
    pub const WHOLE: Self = Self { size: 0, transport: 0, payload: 0 };

    #[inline]
    pub fn is_whole(self) -> bool {
        self.size == 0
    }

    /// Whether the frame is UDP, by the length of its header (TCP's is longer).
    #[inline]
    pub fn is_udp(self) -> bool {
        self.payload - self.transport == UDP_HEADER
    }

    /// Number of frames that one of `len` octets (without FCS) becomes; at least 1.
    #[inline]
    pub fn segments(self, len: u32) -> u32 {
        if self.is_whole() {
            1
        } else {
            (len - u32::from(self.payload)).div_ceil(self.size.into()).max(1)
        }
    }

    /// Octets of all frames, each with its headers and FCS.
    #[inline]
    pub fn octets(self, len: u32) -> u64 {
        let segments = u64::from(self.segments(len));
        u64::from(len) + (segments - 1) * u64::from(self.payload) + segments * u64::from(FCS_LEN)
    }
}

/// Where GSO frames are cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Segmentation {
    /// By the engine, before the port sees them.
    #[default]
    Engine,
    /// By the port, or after it (kernel, NIC).
    Port(Offload),
    /// Nowhere: the port builds its frames itself.
    Nowhere,
}

/// Segmentation capability of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// The longest GSO frame, octets without FCS.
    pub max_frame: u32,
    /// Limit of segments in a GSO frame; 0: that kind is not supported.
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
