//! Interrupt moderation of a device's queues, by the kernel: while frames arrive, a queue is polled
//! only at an interval, and hands over all frames of this time.
//!
//! NICs have a moderation of their own (`ethtool -C`). A veth has none: for each frame that its peer
//! sends, it wakes the receiver, and the peer's TCP has no time to put more than one write into a
//! segment.

use std::io;

use squall_units::Nanos;

use crate::netlink::{GenericNetlink, Napi};

/// Lasts while it exists, and as long as the queue if the process is killed: that of a veth ends
/// with the program in the driver.
#[derive(Debug)]
pub struct Moderation {
    netdev: GenericNetlink,
    before: Vec<Napi>,
}

impl Moderation {
    /// Polls the queues of interface `index` at most once in `time`.
    ///
    /// # Errors
    /// The kernel cannot do it, or the user lacks CAP_NET_ADMIN.
    pub fn set(index: u32, time: Nanos) -> io::Result<Self> {
        let unsupported = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        let netdev = GenericNetlink::open("netdev").ok_or_else(unsupported)?;
        let before = netdev.napis(index)?;
        let set = Self { netdev, before };
        for napi in &set.before {
            // One poll without frames: the next frame after a pause is handed over at once.
            set.netdev.set_napi(&Napi { deferrals: 1, timeout: time, ..*napi })?;
        }
        match set.before.is_empty() {
            true => Err(io::Error::other("the interface is down, or has no queues to poll")),
            false => Ok(set),
        }
    }
}

impl Drop for Moderation {
    fn drop(&mut self) {
        for napi in &self.before {
            // The queues of a veth are gone if its program was removed before.
            self.netdev.set_napi(napi).ok();
        }
    }
}
