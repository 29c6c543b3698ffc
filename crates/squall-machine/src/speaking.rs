//! Hosts on an interface, in addition to the runs there. A thread receives and sends for them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use squall_port::{RxQueue, TxQueue, monotonic};
use squall_port_linux::filter;
use squall_units::Nanos;

use crate::{Error, kinds::Wanted, ports::open};

/// Interval between polls of a port on which nothing arrives.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Length of the longest frame that a host sends, without FCS.
const MAX_FRAME: u32 = 1_518;

/// The hosts of an interface. Frames that they send are appended to `out`.
pub trait Hosts: Send {
    /// The frames that the hosts get, as a filter of tcpdump.
    fn filter(&self) -> &'static str {
        "arp or icmp or icmp6"
    }

    /// Handles a received frame. The flag: whether its checksum is partial, because it comes from
    /// this machine.
    fn handle(&mut self, now: Nanos, frame: (&[u8], bool), out: &mut Vec<Vec<u8>>);
    /// Runs timers. Called after received frames, and every few milliseconds.
    fn turn(&mut self, now: Nanos, out: &mut Vec<Vec<u8>>);
}

/// The thread of the hosts. It ends when this is dropped.
pub struct HostThread {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HostThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the interface cannot be opened.
    pub fn start(interface: &str, hosts: impl Hosts + 'static) -> Result<Self, Error> {
        let wanted = Wanted { answers: true, ..Wanted::default() };
        let (mut opened, ..) = open(&format!("af_packet:{interface}"), wanted)?;
        let fails =
            |error: std::io::Error| Error::Environment(format!("hosts on {interface}: {error}"));
        // If there is no libpcap, there is no filter, and the hosts get every frame.
        if let Ok(filter) = filter::compile_port(hosts.filter(), opened.facts(), filter::SNAPLEN) {
            opened.set_filter(&filter).map_err(fails)?;
        }
        let (rx, tx) =
            (opened.open_rx(0).map_err(fails)?, opened.open_tx(0, MAX_FRAME).map_err(fails)?);
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let thread = std::thread::Builder::new().name("squall-hosts".into()).spawn(move || {
            // Keep the port, because it must live as long as its queues.
            let _port = opened;
            run(hosts, rx, tx, &ends);
        });
        let thread = thread
            .map_err(|error| Error::Environment(format!("cannot start a thread: {error}")))?;
        Ok(Self { over, thread: Some(thread) })
    }
}

impl Drop for HostThread {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn run(
    mut hosts: impl Hosts,
    mut rx: Box<dyn RxQueue>,
    mut tx: Box<dyn TxQueue>,
    over: &AtomicBool,
) {
    let mut frames = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let Ok(batch) = rx.receive() else { return };
        let (quiet, now) = (batch.frames.is_empty(), monotonic());
        for (octets, frame) in batch.iter() {
            hosts.handle(now, (octets, frame.partial), &mut frames);
        }
        hosts.turn(now, &mut frames);
        for frame in frames.drain(..) {
            let mut batch = tx.lend(1);
            if !batch.is_empty() && frame.len() <= MAX_FRAME as usize {
                batch.frame(0, frame.len(), now).copy_from_slice(&frame);
                // A full queue does no harm, because a peer without an answer asks again.
                let _ = tx.send(1);
            }
        }
        if quiet {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
