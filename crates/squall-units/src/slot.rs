//! Metadata of a frame slot in memory, shared by the code that fills slots and the code that sends
//! them.

use crate::{FCS_LEN, Nanos};

/// Metadata of a slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct TxMeta {
    /// Frame length in octets without FCS, at most the stride. Set by the filler.
    pub len: u32,
    /// Identifies the content of the slot. Set by the filler; the port keeps it between uses. 0 for
    /// a new slot.
    pub owner: u32,
    /// A second identifier set by the filler, and kept in the same way.
    pub mark: u32,
    /// How to cut the frame. Set by the filler together with `owner`, and kept in the same way.
    pub cut: Cut,
    /// Due time of the frame. Files have it as the timestamp; hardware may use it as the launch
    /// time.
    pub due: Nanos,
}

/// How a GSO frame is cut into frames. Each gets the headers of the whole frame, corrected, and the
/// next `size` octets of payload. By default, it is not cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Payload octets per segment; the last segment may have fewer. 0 if the frame is not cut.
    pub size: u16,
    /// Start of the TCP or UDP header in octets from the start of the frame.
    pub transport: u8,
    /// Start of the TCP or UDP payload in octets from the start of the frame.
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

    /// Whether the frame is UDP: the header length shows it, because a TCP header is longer.
    #[inline]
    pub fn is_udp(self) -> bool {
        self.payload - self.transport == UDP_HEADER
    }

    /// Number of frames into which a frame of `len` octets (without FCS) is cut; at least 1.
    #[inline]
    pub fn segments(self, len: u32) -> u32 {
        if self.is_whole() {
            1
        } else {
            (len - u32::from(self.payload)).div_ceil(self.size.into()).max(1)
        }
    }

    /// Sum of the lengths of all these frames, each with its headers and FCS.
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
    /// Nowhere, because the port builds its frames itself.
    Nowhere,
}

/// Segmentation capability of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// Maximum length of a GSO frame in octets without FCS.
    pub max_frame: u32,
    /// Maximum number of segments in a GSO frame; 0 if that kind is not supported.
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
