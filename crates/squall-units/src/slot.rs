//! What stands beside a frame's slot in memory: shared by those who fill slots and those who send them.

use crate::Nanos;

/// Beside each slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct TxMeta {
    /// Frame length in octets, without FCS, at most the stride. Set by the filler.
    pub len: u32,
    /// Whose content is in the slot: the filler's mark, kept by the port from use to use; 0 when fresh.
    pub owner: u32,
    /// The filler's second mark, kept likewise.
    pub mark: u32,
    /// The instant at which the frame is due. Files record it; hardware may launch by it.
    pub due: Nanos,
}
