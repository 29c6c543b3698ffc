//! Relays frames to the worker that has their flow.
//!
//! Most ports steer frames to the right worker ([`squall_bpf::owner`]). A steering program or an
//! RSS hash cannot do it for ICMP errors, tunneled packets, and devices with their own hash
//! function: those frames are relayed here, in batches. Neighbor discovery (ARP, NDP) goes to all
//! workers, because each keeps its own neighbor cache.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use squall_flows::ReceiveOffloads;
use squall_port::RxFrame;
use squall_units::Nanos;

use crate::worker::Waker;

/// Maximum number of batches that may wait for a worker. Further ones are dropped, as by a full
/// receive queue: blocking would stall the sender's own flows.
const WAITING: usize = 128;

/// One worker's end of the relay.
pub(crate) struct Relay {
    /// Indexed by the worker's number at the port.
    others: Vec<Other>,
    here: usize,
    came: Receiver<RelayBatch>,
}

struct Other {
    sender: SyncSender<RelayBatch>,
    waker: Waker,
    gathered: RelayBatch,
}

/// Frames for another worker, stored back to back.
#[derive(Default)]
pub(crate) struct RelayBatch {
    octets: Vec<u8>,
    frames: Vec<Stray>,
}

pub(crate) struct Stray {
    len: usize,
    pub came: ReceiveOffloads,
    pub time: Nanos,
    /// A copy for information only: another worker answers the frame.
    pub is_copy: bool,
}

/// Makes the relay ends for the workers of a port; `wakers` wake these workers.
pub(crate) fn relays(wakers: &[Waker]) -> Vec<Relay> {
    let (senders, ends): (Vec<_>, Vec<_>) = wakers.iter().map(|_| sync_channel(WAITING)).unzip();
    let of = |(here, came)| {
        let other = |(sender, waker): (&SyncSender<_>, &Waker)| Other {
            sender: sender.clone(),
            waker: waker.clone(),
            gathered: RelayBatch::default(),
        };
        Relay { others: senders.iter().zip(wakers).map(other).collect(), here, came }
    };
    ends.into_iter().enumerate().map(of).collect()
}

impl Relay {
    /// Adds a frame for one worker to the next [`Relay::hand_over`].
    pub fn gather(&mut self, worker: u32, octets: &[u8], frame: &RxFrame) {
        self.others[worker as usize].gathered.push(octets, frame, false);
    }

    /// Adds a frame for all other workers.
    pub fn gather_for_all(&mut self, octets: &[u8], frame: &RxFrame) {
        for (i, other) in self.others.iter_mut().enumerate() {
            if i != self.here {
                other.gathered.push(octets, frame, true);
            }
        }
    }

    /// Sends the gathered frames to the other workers. Returns the number of frames sent to their
    /// owners, and the number dropped, including copies for all workers.
    pub fn hand_over(&mut self) -> (u64, u64) {
        let (mut handed, mut dropped) = (0, 0);
        for other in self.others.iter_mut().filter(|other| !other.gathered.frames.is_empty()) {
            let strays = std::mem::take(&mut other.gathered);
            let (all, owned) =
                (strays.frames.len(), strays.frames.iter().filter(|f| !f.is_copy).count());
            match other.sender.try_send(strays) {
                Ok(()) => {
                    handed += owned as u64;
                    other.waker.wake();
                }
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => dropped += all as u64,
            }
        }
        (handed, dropped)
    }

    /// The next batch from another worker.
    pub fn take(&mut self) -> Option<RelayBatch> {
        self.came.try_recv().ok()
    }
}

impl RelayBatch {
    fn push(&mut self, octets: &[u8], frame: &RxFrame, is_copy: bool) {
        self.octets.extend_from_slice(octets);
        let came = ReceiveOffloads { cut: frame.cut, partial: frame.partial };
        self.frames.push(Stray { len: octets.len(), came, time: frame.time, is_copy });
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Stray)> {
        let mut rest = &self.octets[..];
        self.frames.iter().map(move |frame| {
            let (octets, after) = rest.split_at(frame.len);
            rest = after;
            (octets, frame)
        })
    }
}
