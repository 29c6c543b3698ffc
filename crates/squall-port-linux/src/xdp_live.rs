//! `xdp_live:IFACE`: frames that an XDP program fills inside the kernel and redirects to the
//! interface. The program makes them from streams ([`Port::open_generator`]), or takes them from a
//! ring that user space writes ([`queue`]).
//!
//! The program runs over live frames (`BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES`, Linux
//! 5.18): a thread sits in one long system call, in which the kernel takes pages from a pool, runs
//! the program to fill them and gives them to the driver's `ndo_xdp_xmit`. The port only sends; to
//! receive, use an af_xdp or af_packet port.
//!
//! A call costs some 25 ms in addition to the frames, so it is made as long as possible, and ended
//! by a signal (SIGURG, which has no other effect). If the process has a CPU quota, the call uses
//! it up, and the thread that should end it does not run: if no thread has called
//! [`Remote::keep_alive`] for [`UNATTENDED`], a timer of the kernel's ends the call. Programs and maps
//! live only as long as their descriptors: a process that is killed leaves nothing.
//!
//! Options: `batch=N` (frames passed to the driver at once, instead of a number that suits the
//! rate, and of full batches if the program does not keep up with it), `on_link_down=stop` (a link
//! that goes down ends sending, instead of making it wait).

mod program;
mod queue;

use std::{
    io,
    sync::{
        Arc, Mutex, Once, PoisonError,
        atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering},
    },
};

use squall_bpf::Object;
use squall_port::{
    Address, BATCH, ETHERNET, Generation, Generator, InterfaceCounters, LinkState, OnLinkDown,
    Port, PortFacts, Remote, RxQueue, Segmentation, Timestamps, TxQueue, monotonic,
};
use squall_units::Nanos;

use self::{
    program::Layout,
    queue::{AHEAD, LiveTx},
};

use crate::{
    af_packet::ethernet_link,
    bpf::{Attached, Kind, LiveRun, MappedArray, Program},
    interface::{InterfaceInfo, InterfaceState},
    link::{PortLink, WatchedLink},
    netlink::{Link, Netlink},
    permissions::Permissions,
    sys::{self, Alarm},
};

const ETHERNET_HEADER: u32 = 14;
const VLAN_TAG: u32 = 4;
/// Longest frame: a page minus the headroom, the kernel's data for a live frame, and the tail.
const MAX_FRAME: u32 = 3328;
/// Threads that may generate frames for one interface.
const TX_QUEUES: u32 = 64;
// The kernel's limit (TEST_XDP_MAX_BATCH).
const MAX_BATCH: u32 = 256;
/// Batch of a ring: the number of frames that the kernel passes to a driver at once
/// (DEV_MAP_BULK_SIZE). The driver then takes all frames of a batch, or only the first ones, which
/// keeps the order when the rest is offered again (docs/adr/0027-frames-ahead.md).
const MAX_RING_BATCH: u32 = 16;
/// Number of runs of the program per call: enough for minutes.
const REPEAT: u32 = 1 << 30;
/// Longest time that a call may go unattended. It is longer than a busy machine usually keeps a
/// thread from running, because frames that become due after the call ends are late.
const UNATTENDED: Nanos = Nanos(500_000_000);
/// How often that timer is reset: rarely, because each reset is a system call.
const ALARM_RESET_INTERVAL: Nanos = Nanos(100_000_000);
/// A signal that is ignored by default, so it can only end system calls.
const SIGNAL: libc::c_int = libc::SIGURG;

pub fn open(address: &Address) -> io::Result<Box<dyn Port>> {
    let mut a = address.clone();
    let batch = a.take_in("batch", 0..=MAX_BATCH, 0)?;
    let on_link_down = OnLinkDown::take(&mut a)?;
    a.finish(&["batch", OnLinkDown::KEY])?;
    let netlink = Netlink::open()?;
    let (link, interface) = ethernet_link(address, &netlink)?;
    let watched = PortLink::new(&link.name, link.index, on_link_down)?;
    permitted().map_err(|e| io::Error::new(e.kind(), format!("{address}: {e}")))?;
    let facts = PortFacts {
        kind: "xdp_live",
        address: address.to_string(),
        max_frame: (link.mtu + ETHERNET_HEADER + VLAN_TAG).min(MAX_FRAME),
        speed_bps: interface.speed_bps,
        mac: link.mac,
        tx_queues: TX_QUEUES,
        rx_queues: 0,
        timestamps: Timestamps::None,
        virtual_time: false,
        batch: BATCH,
        segmentation: Segmentation::Nowhere,
        link_type: ETHERNET,
        ahead: AHEAD,
    };
    Ok(Box::new(LivePort { facts, batch, address: address.clone(), link, watched, netlink }))
}

/// Whether frames made in the kernel can leave through `interface`, as far as that is known without
/// trying; the error is the reason.
pub fn works(interface: &InterfaceInfo, permissions: &Permissions) -> Result<(), String> {
    permissions.xdp_programs()?;
    if interface.state == InterfaceState::Down {
        return Err("the interface is down".into());
    }
    match interface.xdp.features {
        Some(features) if !features.redirect_target => Err(no_target(&interface.name)),
        _ => Ok(()),
    }
}

fn no_target(name: &str) -> String {
    format!(
        "{name} accepts no frames from XDP: a veth accepts them while its peer is up and polls \
         (ethtool -K PEER gro on, or an af_xdp port there), other drivers if they have \
         ndo_xdp_xmit; otherwise try af_xdp:{name} or af_packet:{name}"
    )
}

/// Reports a missing permission early, before the run starts.
fn permitted() -> io::Result<()> {
    use squall_bpf::{Asm, Reg::R0, xdp_action};
    let mut a = Asm::new("squall_may_i");
    a.mov(R0, xdp_action::DROP).exit();
    Program::load(&a.finish(), Kind::Xdp { frags: false }).map(drop)
}

struct LivePort {
    facts: PortFacts,
    /// Frames per batch; 0: a number that suits the rate.
    batch: u32,
    address: Address,
    link: Link,
    watched: PortLink,
    netlink: Netlink,
}

impl Port for LivePort {
    fn facts(&self) -> &PortFacts {
        &self.facts
    }

    fn open_tx(&mut self, queue: u32, max_frame: u32) -> io::Result<Box<dyn TxQueue>> {
        self.facts.check_tx(queue, max_frame)?;
        let layout = Layout::new(max_frame.max(program::MIN_FRAME));
        let (object, witnesses) = program::objects(&layout);
        // Allocated at its greatest length, because growing a frame costs the program more than
        // shrinking it.
        let frame = vec![0; layout.longest as usize];
        let batch = if self.batch == 0 { MAX_RING_BATCH } else { self.batch.min(MAX_RING_BATCH) };
        let call =
            self.load(&object, &witnesses, (program::MEMORY, program::EXIT), frame, batch)?;
        Ok(Box::new(LiveTx::new(call, layout)?))
    }

    fn open_rx(&mut self, _: u32) -> io::Result<Box<dyn RxQueue>> {
        let name = &self.link.name;
        let text = format!(
            "{}: sends only\n  try af_xdp:{name} or af_packet:{name} to receive",
            self.address
        );
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    fn generates(&self) -> bool {
        true
    }

    fn open_generator(&mut self, queue: u32, g: &Generation) -> io::Result<Box<dyn Generator>> {
        self.facts.check_tx(queue, g.frame.len() as u32)?;
        let batch = if self.batch == 0 { g.batch } else { self.batch };
        let call =
            self.load(&g.object, &g.witnesses, (g.memory, g.exit), g.frame.clone(), batch)?;
        call.program
            .map(g.tables.0)
            .update(&0u32.to_ne_bytes(), &g.tables.1)
            .map_err(|e| self.with_address(e))?;
        for (i, word) in g.words.iter().enumerate() {
            call.shared.memory.word(i).store(*word, Ordering::Relaxed);
        }
        Ok(Box::new(call))
    }

    fn interface_counters(&self) -> Option<InterfaceCounters> {
        self.netlink.link(self.link.index).ok().map(|link| link.counters)
    }

    fn link(&self) -> Option<Arc<squall_port::Link>> {
        Some(self.watched.link().clone())
    }
}

impl LivePort {
    fn with_address(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.address))
    }

    /// Loads a program and its witnesses. Its map `memory` is shared, and its map `exit` leads to
    /// the interface. `frame` is the initial content of live frames; `batch` frames may be passed
    /// to the driver together.
    fn load(
        &mut self,
        object: &Object,
        witnesses: &[(&'static str, Object)],
        (memory, exit): (usize, usize),
        frame: Vec<u8>,
        batch: u32,
    ) -> io::Result<Call> {
        let program =
            Program::load(object, Kind::Xdp { frags: false }).map_err(|e| self.with_address(e))?;
        let index = 0u32.to_ne_bytes();
        program.map(exit).update(&index, &self.link.index.to_ne_bytes()).map_err(|e| {
            match e.raw_os_error() {
                Some(libc::ENODEV | libc::EINVAL) => {
                    self.with_address(io::Error::other("the interface is gone"))
                }
                _ => self.with_address(e),
            }
        })?;
        let memory = program.map(memory).mapped().map_err(|e| self.with_address(e))?;
        let attach = |(tracepoint, object): &(&'static str, Object)| {
            let witness = program.load_with_maps_of(object, Kind::RawTracepoint).and_then(|p| {
                let attached = p.attach_raw_tracepoint(tracepoint)?;
                Ok((p, attached))
            });
            witness.map_err(|e| {
                let text = format!(
                    "{}: tracepoint {tracepoint}: {e}\n  it is needed to count the frames that the \
                     driver drops",
                    self.address
                );
                io::Error::new(e.kind(), text)
            })
        };
        let witnesses = witnesses.iter().map(attach).collect::<io::Result<Vec<_>>>()?;
        let shared = SharedCall {
            interface: self.link.name.clone(),
            link: self.watched.watch()?,
            memory,
            thread: AtomicI32::new(0),
            batch: AtomicU32::new(batch),
            running_batch: AtomicU32::new(batch),
            is_batch_fixed: self.batch != 0,
            alarm: Mutex::new(None),
            attended: AtomicU64::new(0),
        };
        Ok(Call { program, _witnesses: witnesses, frame, shared: Arc::new(shared) })
    }
}

/// A loaded program, to be run by the thread that owns this.
struct Call {
    program: Program,
    _witnesses: Vec<(Program, Attached)>,
    frame: Vec<u8>,
    shared: Arc<SharedCall>,
}

/// The part of a call that other threads use.
struct SharedCall {
    interface: String,
    link: Arc<WatchedLink>,
    memory: MappedArray,
    /// The thread that is in the system call; 0: none.
    thread: AtomicI32,
    /// The batch of the next call, and that of the last one.
    batch: AtomicU32,
    running_batch: AtomicU32,
    /// Whether the port's address sets the batch.
    is_batch_fixed: bool,
    /// Ends the system call if it is not reset; exists while the thread is in the call.
    alarm: Mutex<Option<Alarm>>,
    /// Time at which the alarm was last reset.
    attended: AtomicU64,
}

impl Call {
    /// Runs the program until interrupted, or for minutes.
    fn run(&self) -> io::Result<()> {
        sys::make_interrupting(SIGNAL, &ONCE);
        sys::unblock(SIGNAL);
        self.shared.set_alarm(Some(Alarm::new(SIGNAL, UNATTENDED)?));
        self.shared.thread.store(sys::thread_id(), Ordering::Release);
        let batch = self.shared.batch.load(Ordering::Acquire);
        self.shared.running_batch.store(batch, Ordering::Release);
        let run = LiveRun { frame: &self.frame, ingress: 0, repeat: REPEAT, batch };
        let result = self.program.run_live(&run);
        self.shared.thread.store(0, Ordering::Release);
        self.shared.set_alarm(None);
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "{}: this kernel has no live frames (Linux 5.18 has them): {error}",
                    self.shared.interface
                ),
            )),
            other => other,
        }
    }
}

impl SharedCall {
    fn is_in_call(&self) -> bool {
        self.thread.load(Ordering::Acquire) != 0
    }

    fn set_alarm(&self, alarm: Option<Alarm>) {
        *self.alarm.lock().unwrap_or_else(PoisonError::into_inner) = alarm;
    }
}

impl Generator for Call {
    fn run(&mut self) -> io::Result<()> {
        Self::run(self)
    }

    fn remote(&self) -> Arc<dyn Remote> {
        self.shared.clone()
    }
}

static ONCE: Once = Once::new();

impl Remote for SharedCall {
    fn word(&self, index: usize) -> &AtomicU64 {
        self.memory.word(index)
    }

    fn interrupt(&self) {
        let thread = self.thread.load(Ordering::Acquire);
        if thread != 0 {
            sys::signal_thread(thread, SIGNAL);
        }
    }

    fn set_batch(&self, batch: u32) -> bool {
        if self.is_batch_fixed {
            return true;
        }
        self.batch.store(batch.clamp(1, MAX_BATCH), Ordering::Release);
        let is_running = self.running_batch.load(Ordering::Acquire) == batch;
        if !is_running {
            self.interrupt();
        }
        is_running
    }

    fn keep_alive(&self) {
        let now = monotonic();
        let last = Nanos(self.attended.load(Ordering::Relaxed));
        if now.saturating_sub(last) >= ALARM_RESET_INTERVAL {
            self.attended.store(now.0, Ordering::Relaxed);
            self.alarm.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Alarm::reset);
        }
    }

    fn fatal(&self, errno: i32) -> Option<String> {
        let refuses = match errno {
            // A veth also returns this while its peer is down.
            libc::ENXIO | libc::EOPNOTSUPP => true,
            libc::ENETDOWN | libc::ENODEV => false,
            _ => return None,
        };
        match self.link.look() {
            LinkState::Lost => Some(self.link.link().error().to_string()),
            LinkState::Up if refuses => Some(no_target(&self.interface)),
            LinkState::Up | LinkState::Down => None,
        }
    }
}
