//! All counters of a run at an instant, in figures alone.

use std::time::Instant;

use squall_engine::Glance;
use squall_measure::StreamGlance;

/// What a run has counted by an instant. Octets are L2, FCS included.
#[derive(Clone, Debug)]
pub struct Look {
    pub taken: Instant,
    /// What is to be added to instants of arrival to have nanoseconds since 1970; 0 on virtual
    /// time.
    pub wall_offset_ns: i64,
    /// In the profile's order.
    pub ports: Vec<PortLook>,
    /// By number: those that the run began with, then those that were added; removed ones keep
    /// their place.
    pub streams: Vec<StreamLook>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct PortLook {
    pub tx_packets: u64,
    pub tx_octets: u64,
    pub rx_packets: u64,
    pub rx_octets: u64,
    /// Of the received frames, those without a signature of ours.
    pub rx_unsigned: u64,
    /// Of the received frames, those whose value at the session's places found no room.
    pub beyond: u64,
}

#[derive(Clone, Debug, Default)]
pub struct StreamLook {
    pub name: String,
    pub tx_packets: u64,
    pub tx_octets: u64,
    /// Queue by queue of those that saw it: (port, what was seen).
    pub rx: Vec<(usize, StreamGlance)>,
    /// Of these, by what stood at the session's places: (port, place, value, what was seen).
    pub tracked: Vec<(usize, u16, u128, StreamGlance)>,
}

impl Look {
    /// Before anything was counted.
    pub(crate) fn nothing(taken: Instant) -> Self {
        Self { taken, wall_offset_ns: 0, ports: Vec::new(), streams: Vec::new() }
    }

    pub(crate) fn of<'a>(
        names: impl Iterator<Item = &'a str>,
        ports: usize,
        wall_offset_ns: i64,
        workers: impl IntoIterator<Item = Glance>,
    ) -> Self {
        let streams = names
            .map(|name| StreamLook { name: name.to_owned(), ..StreamLook::default() })
            .collect();
        let ports = vec![PortLook::default(); ports];
        let mut look = Self { taken: Instant::now(), wall_offset_ns, ports, streams };
        for worker in workers {
            look.add(worker);
        }
        look
    }

    fn add(&mut self, worker: Glance) {
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
            for (number, seen) in rx.streams {
                // A signature of another sender, with a number that we do not have, is foreign.
                if let Some(stream) = self.streams.get_mut(usize::from(number)) {
                    stream.rx.push((rx.port, seen));
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
