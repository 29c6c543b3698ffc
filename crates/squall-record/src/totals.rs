//! Totals: the sums of all workers' counters.

use std::time::Instant;

use squall_engine::{Counters, ThreadLoad};
use squall_measure::StreamCounters;

/// The counters of a run at one time. Octets are layer 2, with FCS.
#[derive(Clone, Debug)]
pub struct Totals {
    pub taken: Instant,
    /// Offset from arrival times to nanoseconds since 1970; 0 in virtual time.
    pub wall_offset_ns: i64,
    /// In the order of the profile.
    pub ports: Vec<PortTotals>,
    /// By stream number: the initial streams, followed by added ones. A removed stream keeps its
    /// index.
    pub streams: Vec<StreamTotals>,
    /// One entry per thread that sends or receives; empty in virtual time.
    pub threads: Vec<ThreadLoad>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct PortTotals {
    pub tx_packets: u64,
    pub tx_octets: u64,
    pub rx_packets: u64,
    pub rx_octets: u64,
    /// Received frames without a Squall signature.
    pub rx_unsigned: u64,
    /// Received frames with the signature of another run or of an unknown stream.
    pub rx_unknown: u64,
    /// Received frames that are in no entry of [`StreamTotals::tracked`], because the table of
    /// values was full.
    pub beyond: u64,
}

#[derive(Clone, Debug, Default)]
pub struct StreamTotals {
    pub name: String,
    pub tx_packets: u64,
    pub tx_octets: u64,
    /// One entry per queue that received the stream: (port, counters).
    pub rx: Vec<(usize, StreamCounters)>,
    /// Counters by the value of the bits at one of the session's `places`: (port, index in
    /// `places`, value, counters).
    pub tracked: Vec<(usize, u16, u128, StreamCounters)>,
}

impl Totals {
    /// All counters at 0.
    pub fn nothing(taken: Instant) -> Self {
        Self {
            taken,
            wall_offset_ns: 0,
            ports: Vec::new(),
            streams: Vec::new(),
            threads: Vec::new(),
        }
    }

    pub fn of<'a>(
        taken: Instant,
        names: impl Iterator<Item = &'a str>,
        ports: usize,
        wall_offset_ns: i64,
        workers: impl IntoIterator<Item = Counters>,
    ) -> Self {
        let streams = names
            .map(|name| StreamTotals { name: name.to_owned(), ..StreamTotals::default() })
            .collect();
        let ports = vec![PortTotals::default(); ports];
        let threads = Vec::new();
        let mut totals = Self { taken, wall_offset_ns, ports, streams, threads };
        for worker in workers {
            totals.add(worker);
        }
        totals
    }

    fn add(&mut self, worker: Counters) {
        self.threads.extend(worker.threads);
        for (port, packets, octets) in worker.tx {
            self.ports[port].tx_packets += packets;
            self.ports[port].tx_octets += octets;
        }
        for (number, packets, octets) in worker.streams {
            if let Some(stream) = self.streams.get_mut(number as usize) {
                stream.tx_packets += packets;
                stream.tx_octets += octets;
            }
        }
        for rx in worker.rx {
            let port = &mut self.ports[rx.port];
            port.rx_packets += rx.packets;
            port.rx_octets += rx.octets;
            port.rx_unsigned += rx.unsigned;
            port.rx_unknown += rx.foreign;
            for (number, seen) in rx.streams {
                // The signature is from another sender, with a stream number that this run does not
                // have.
                match self.streams.get_mut(usize::from(number)) {
                    Some(stream) => stream.rx.push((rx.port, seen)),
                    None => port.rx_unknown += seen.packets,
                }
            }
            for ((number, place, value), seen) in rx.tracked {
                if let Some(stream) = self.streams.get_mut(usize::from(number)) {
                    stream.tracked.push((rx.port, place, value, seen));
                }
            }
            port.beyond += rx.beyond;
        }
    }
}
