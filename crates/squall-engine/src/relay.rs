//! Frames that one worker of a port was given, and that belong to a flow which another has.
//!
//! Most ports give a worker what is its own ([`squall_bpf::owner`]). What they cannot tell apart,
//! as an ICMP error, a tunnel's packet or the queues of a device that spreads by a hash of its own,
//! is handed on here, a batch at a time; what says who a neighbour is goes to all.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use squall_flows::Came;
use squall_port::RxFrame;
use squall_units::Nanos;

use crate::worker::Waker;

/// Batches that may wait for a worker; more are dropped, as those of a full queue are.
const WAITING: usize = 128;

/// One worker's end.
pub(crate) struct Relay {
    /// By the workers' numbers at the port.
    others: Vec<Other>,
    here: usize,
    came: Receiver<Strays>,
}

struct Other {
    way: SyncSender<Strays>,
    waker: Waker,
    gathered: Strays,
}

/// Frames, one behind the other.
#[derive(Default)]
pub(crate) struct Strays {
    octets: Vec<u8>,
    frames: Vec<Stray>,
}

pub(crate) struct Stray {
    len: usize,
    pub came: Came,
    pub time: Nanos,
    /// It is not the worker's alone: another has answered what there is to answer.
    pub overheard: bool,
}

/// The ends of the workers of one port, each woken by its own of `wakers`.
pub(crate) fn relays(wakers: &[Waker]) -> Vec<Relay> {
    let (ways, ends): (Vec<_>, Vec<_>) = wakers.iter().map(|_| sync_channel(WAITING)).unzip();
    let of = |(here, came)| {
        let other = |(way, waker): (&SyncSender<_>, &Waker)| Other {
            way: way.clone(),
            waker: waker.clone(),
            gathered: Strays::default(),
        };
        Relay { others: ways.iter().zip(wakers).map(other).collect(), here, came }
    };
    ends.into_iter().enumerate().map(of).collect()
}

impl Relay {
    /// Of the next [`Relay::hand_over`]: to one worker.
    pub fn gather(&mut self, worker: u32, octets: &[u8], frame: &RxFrame) {
        self.others[worker as usize].gathered.push(octets, frame, false);
    }

    /// To all others.
    pub fn gather_for_all(&mut self, octets: &[u8], frame: &RxFrame) {
        for (i, other) in self.others.iter_mut().enumerate() {
            if i != self.here {
                other.gathered.push(octets, frame, true);
            }
        }
    }

    /// How many frames that were another's were handed over, and how many had to be dropped, those
    /// for all among them.
    pub fn hand_over(&mut self) -> (u64, u64) {
        let (mut handed, mut dropped) = (0, 0);
        for other in self.others.iter_mut().filter(|other| !other.gathered.frames.is_empty()) {
            let strays = std::mem::take(&mut other.gathered);
            let (all, theirs) =
                (strays.frames.len(), strays.frames.iter().filter(|f| !f.overheard).count());
            match other.way.try_send(strays) {
                Ok(()) => {
                    handed += theirs as u64;
                    other.waker.wake();
                }
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => dropped += all as u64,
            }
        }
        (handed, dropped)
    }

    /// What others have handed over.
    pub fn take(&mut self) -> Option<Strays> {
        self.came.try_recv().ok()
    }
}

impl Strays {
    fn push(&mut self, octets: &[u8], frame: &RxFrame, overheard: bool) {
        self.octets.extend_from_slice(octets);
        let came = Came { cut: frame.cut, partial: frame.partial };
        self.frames.push(Stray { len: octets.len(), came, time: frame.time, overheard });
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Stray)> {
        let mut rest = &self.octets[..];
        self.frames.iter().map(move |frame| {
            let (octets, behind) = rest.split_at(frame.len);
            rest = behind;
            (octets, frame)
        })
    }
}
