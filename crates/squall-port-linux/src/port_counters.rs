//! Counters of an interface; the receive counters stop before the run does.

use std::{
    io,
    sync::{Mutex, OnceLock, PoisonError},
};

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

    /// Stops a queue by `stop`, whose result is the number of frames that the queue received since
    /// shortly before this call. Counters cannot be read at the moment at which a queue stops, so a
    /// frame that comes meanwhile is counted if the queue received it. `passed`: frames and octets
    /// that the interface counts but the port does not receive.
    pub fn stop(
        &self,
        passed: impl Fn() -> (u64, u64),
        stop: impl FnOnce() -> io::Result<u64>,
    ) -> io::Result<()> {
        if self.stopped.get().is_some() {
            return stop().map(drop);
        }
        let before = self.now(&passed);
        let received = stop()?;
        if let Some((before, after)) = before.zip(self.now(&passed)) {
            let _ = self.stopped.set(at_stop(before, after, received));
        }
        Ok(())
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

/// The counters when a queue stopped, by those before and after, and the frames that the queue
/// received since shortly before.
fn at_stop(
    before: InterfaceCounters,
    after: InterfaceCounters,
    received: u64,
) -> InterfaceCounters {
    if received == 0 || before.rx_packets == after.rx_packets {
        return before;
    }
    let rx_packets = after.rx_packets.min(before.rx_packets + received);
    InterfaceCounters { rx_packets, ..after }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_come_while_a_queue_stops_count_if_it_received_them() {
        let counters = |rx_packets, rx_octets| InterfaceCounters {
            rx_packets,
            rx_octets,
            ..InterfaceCounters::default()
        };
        let (before, after) = (counters(10, 1000), counters(12, 1200));
        let at = |received| at_stop(before, after, received).rx_packets;
        // Two came, of which the queue received none, one or both; a third was counted before.
        assert_eq!([at(0), at(1), at(2), at(3)], [10, 11, 12, 12]);
        assert_eq!(at_stop(before, before, 5), before);
    }
}
