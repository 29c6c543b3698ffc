//! Counters of an interface; the receive counters stop before the run does.

use std::sync::{Mutex, OnceLock, PoisonError};

use squall_port::InterfaceCounters;

use crate::netlink::Netlink;

/// The counters of a port's interface. When the first of the port's queues stops receiving, the
/// receive counters freeze: later frames are neither read nor lost.
pub(crate) struct PortCounters {
    netlink: Mutex<Netlink>,
    index: u32,
    stopped: OnceLock<InterfaceCounters>,
}

impl PortCounters {
    /// `netlink` stays in the namespace of the thread that opened the port.
    pub fn new(netlink: Netlink, index: u32) -> Self {
        Self { netlink: Mutex::new(netlink), index, stopped: OnceLock::new() }
    }

    /// To be called before a queue stops. `passed`: frames and octets that the interface counts but
    /// the port does not receive.
    pub fn stop(&self, passed: impl Fn() -> (u64, u64)) {
        if self.stopped.get().is_none()
            && let Some(counters) = self.now(passed)
        {
            let _ = self.stopped.set(counters);
        }
    }

    pub fn counters(&self, passed: impl Fn() -> (u64, u64)) -> Option<InterfaceCounters> {
        let now = self.now(passed)?;
        let Some(stopped) = self.stopped.get() else { return Some(now) };
        let InterfaceCounters { tx_packets, tx_octets, tx_dropped, tx_errors, .. } = now;
        Some(InterfaceCounters { tx_packets, tx_octets, tx_dropped, tx_errors, ..*stopped })
    }

    fn now(&self, passed: impl Fn() -> (u64, u64)) -> Option<InterfaceCounters> {
        let netlink = self.netlink.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counters = netlink.link(self.index).ok()?.counters;
        let (frames, octets) = passed();
        counters.rx_packets = counters.rx_packets.wrapping_sub(frames);
        counters.rx_octets = counters.rx_octets.wrapping_sub(octets);
        Some(counters)
    }
}
