//! `af_xdp:IFACE`: frames through AF_XDP sockets, which bypass the host's network stack, on any
//! Ethernet interface.
//!
//! Sends from memory shared with the kernel: a frame is written once, where the driver (zero-copy)
//! or the kernel (copy mode) reads it. Receives with Squall's own XDP program, which is attached to
//! the interface while the port is open for receiving. A BPF link attaches it, so the kernel
//! detaches it when this process ends, for whatever reason. The program timestamps the frames that
//! it takes and passes the others to the host (docs/adr/0011-taking-frames.md).
//!
//! Uses native XDP if the driver supports it, else generic; zero-copy if the driver supports it,
//! else copy mode. [`Port::notes`] reports the choice and its reason.

mod moderation;
mod nic_time;
mod program;
mod ring;
mod rx;
mod tx;
mod umem;

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Weak},
};

use squall_port::{
    Address, BATCH, ETHERNET, Hosts, InterfaceCounters, OnLinkDown, Port, PortFacts, RxQueue,
    Segmentation, Steer, SteerRules, Timestamps, TxQueue,
};

use self::{
    moderation::Moderation,
    nic_time::{NicStamps, NicTime},
    program::{Counters, Receiving, Take, ranges},
    rx::XdpRx,
    tx::{Departures, XdpTx},
    umem::{Binding, Direction, Layout, Side, TX_HEADROOM, Umem},
};
use crate::{
    af_packet::{ETHERNET_HEADER, VLAN_TAG, ethernet_link, packet_socket},
    bpf::XdpMode,
    interface::Channels,
    link::PortLink,
    netlink::{Link, Netlink},
    ntuple,
    port_counters::PortCounters,
    sys::Socket,
};
use squall_units::Nanos;

/// The kernel accepts longer frames in several pieces, up to MAX_SKB_FRAGS of them.
const MAX_FRAME: u32 = 65_535;
/// Memory for transmit slots: a few batches of jumbo frames, or a whole ring of short ones.
const TX_OCTETS: usize = 2 << 20;

const OPTIONS: [&str; 17] = [
    "queue",
    "rx_queues",
    "mode",
    "zerocopy",
    "take",
    "ring",
    "tx_ring",
    "batch",
    "need_wakeup",
    "busy_poll",
    "busy_budget",
    "moderation",
    "launch",
    "tx_stamps",
    "timestamps",
    Steer::KEY,
    OnLinkDown::KEY,
];

pub fn open(address: &Address) -> io::Result<Box<dyn Port>> {
    open_port(address).map(|port| Box::new(port) as _)
}

fn open_port(address: &Address) -> io::Result<XdpPort> {
    let mut a = address.clone();
    let options = Options {
        queue: a.take("queue", "the number of a queue of the device")?,
        rx_queues: a.take_in("rx_queues", 0..=256, 1)?,
        modes: match a.take::<String>("mode", "native or generic")?.as_deref() {
            None => vec![XdpMode::Native, XdpMode::Generic],
            Some("native") => vec![XdpMode::Native],
            Some("generic") => vec![XdpMode::Generic],
            Some(other) => {
                return Err(a.error(format!("mode={other}, expected native or generic")).into());
            }
        },
        zero_copy: a.take_flag("zerocopy")?,
        take: a.take("take", Take::EXPECTED)?,
        ring: a.take_in("ring", 64..=1 << 20, 32_768)?.next_power_of_two(),
        tx_ring: a.take_in("tx_ring", BATCH as u32..=1 << 16, 2048)?.next_power_of_two(),
        batch: a.take_in("batch", 1..=BATCH as u32, BATCH as u32)? as usize,
        need_wakeup: a.take_flag("need_wakeup")?.unwrap_or(true),
        busy_poll_us: a.take_in("busy_poll", 0..=1_000_000, 0)?,
        busy_budget: a.take_in("busy_budget", 1..=65_535, BATCH as u32)?,
        moderation_us: a.take_in("moderation", 0..=10_000, 0)?,
        tx_stamps: a.take_flag("tx_stamps")?.unwrap_or(false),
        hardware_stamps: match a.take::<String>("timestamps", "kernel or hardware")?.as_deref() {
            None | Some("kernel") => false,
            Some("hardware") => true,
            Some(other) => {
                let text = format!("timestamps={other}, expected kernel or hardware");
                return Err(a.error(text).into());
            }
        },
        launch_us: a
            .take("launch", "microseconds from the due time to the launch by the device's clock")?,
        steer: Steer::take(&mut a)?,
    };
    let on_link_down = OnLinkDown::take(&mut a)?;
    a.finish(&OPTIONS)?;
    if options.hardware_stamps && options.modes == [XdpMode::Generic] {
        let text =
            "timestamps=hardware with mode=generic: only a program in the driver gets stamps";
        return Err(address.error(text).into());
    }
    if let Some(steer) = &options.steer
        && (options.queue.is_none() || options.rx_queues == 0)
    {
        let text = format!(
            "steer={steer} needs queue=N, the device's queue that gets the frames, and a port that \
             receives"
        );
        return Err(address.error(text).into());
    }

    let netlink = Netlink::open()?;
    let (link, interface) = ethernet_link(address, &netlink)?;
    let watched = PortLink::new(&link.name, link.index, on_link_down)?;
    // Opens a socket now, to report a missing permission before the run starts.
    xdp_socket(address)?;
    let (rx_device, tx_device) = device_queues(&link, interface.channels);
    let device_queues = match options.queue {
        Some(queue) if queue >= rx_device.max(tx_device) => {
            let max = rx_device.max(tx_device) - 1;
            return Err(queue_too_high(address, queue, max));
        }
        Some(queue) => queue..queue + 1,
        None => 0..rx_device,
    };
    let mut notes = Vec::new();
    let mut rx_queues = options.rx_queues.min(device_queues.len() as u32);
    let (mut loaded, mut receive_error) = (None, None);
    let mut nic = None;
    if rx_queues > 0 && options.hardware_stamps {
        match NicStamps::new(&interface) {
            Ok(stamps) => nic = Some(Arc::new(stamps)),
            Err(why) => notes.push(no_nic_stamps(&link.name, &why)),
        }
    }
    let steering = match options.steer.clone() {
        Some(steer) => {
            let rules = SteerRules::new(steer, device_queues.clone());
            Some((ntuple::Nic::open(&interface)?, rules))
        }
        None => None,
    };
    if rx_queues > 0 {
        let queues = rx_device.max(tx_device);
        match load(&options.take(), &link, queues, &mut nic, &mut notes) {
            Ok(program) => loaded = Some(program),
            // Sending needs no program, so it works without CAP_BPF.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let error = error.to_string().lines().map(str::trim).collect::<Vec<_>>().join("; ");
                let why = format!("{}: sends only: {error}", link.name);
                notes.push(why.clone());
                receive_error = Some(why);
                rx_queues = 0;
            }
            Err(error) => return Err(error),
        }
    }
    let facts = PortFacts {
        kind: "af_xdp",
        address: address.to_string(),
        max_frame: (link.mtu + ETHERNET_HEADER + VLAN_TAG as u32).min(MAX_FRAME),
        speed_bps: interface.speed_bps,
        mac: link.mac,
        tx_queues: if options.queue.is_some() { 1 } else { tx_device },
        rx_queues,
        timestamps: if nic.is_some() { Timestamps::Hardware } else { Timestamps::Kernel },
        virtual_time: false,
        batch: options.batch,
        segmentation: Segmentation::Engine,
        link_type: ETHERNET,
        ahead: Nanos::ZERO,
    };
    let departures = options.tx_stamps.then(Arc::default);
    let port_counters = Arc::new(PortCounters::new(netlink, link.index));
    Ok(XdpPort {
        address: address.clone(),
        facts,
        options,
        is_veth: interface.driver == "veth",
        takes_joined: false,
        link,
        watched,
        port_counters,
        device_queues,
        loaded,
        nic,
        steering,
        key: None,
        receiving: Weak::new(),
        unclaimed: 0,
        counters: None,
        queues: BTreeMap::new(),
        zero_copy: None,
        departures,
        receive_error,
        notes,
    })
}

#[derive(Clone, Debug)]
struct Options {
    /// The only device queue to use; `None`: all.
    queue: Option<u32>,
    /// Number of receive queues of the port: each has a share of the device's queues.
    rx_queues: u32,
    modes: Vec<XdpMode>,
    /// Whether to use zero-copy; `None`: if the driver supports it.
    zero_copy: Option<bool>,
    /// Which frames to take; `None`: depends on what the port is for.
    take: Option<Take>,
    ring: u32,
    tx_ring: u32,
    batch: usize,
    need_wakeup: bool,
    busy_poll_us: u32,
    busy_budget: u32,
    /// Microseconds from one poll of a device's queue to the next; 0: as the driver does it.
    moderation_us: u32,
    tx_stamps: bool,
    /// Whether arrival times are those of the NIC.
    hardware_stamps: bool,
    launch_us: Option<u32>,
    /// The frames that rules of the device give to the port's queue.
    steer: Option<Steer>,
}

impl Options {
    fn take(&self) -> Take {
        self.take.clone().unwrap_or_default()
    }
}

/// Loads the program. Clears `nic`, with a note, if the driver has no stamps for programs.
fn load(
    take: &Take,
    link: &Link,
    queues: u32,
    nic: &mut Option<Arc<NicStamps>>,
    notes: &mut Vec<String>,
) -> io::Result<Receiving> {
    if let Some(stamps) = nic {
        match Receiving::load_for_nic(take, link.mac, queues, (link.index, stamps.function)) {
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {
                let error = error.to_string();
                let why = error.lines().next().unwrap_or_default();
                notes.push(no_nic_stamps(&link.name, why));
                *nic = None;
            }
            loaded => return loaded,
        }
    }
    Receiving::load(take, link.mac, queues)
}

fn no_nic_stamps(interface: &str, why: &str) -> String {
    format!("{interface}: arrival times are those of the program, not of the NIC: {why}")
}

fn queue_too_high(address: &Address, queue: u32, max: u32) -> io::Error {
    address.error(format!("queue={queue}, expected at most {max}: the device has no more")).into()
}

fn xdp_socket(address: &Address) -> io::Result<Socket> {
    Socket::new(libc::AF_XDP, libc::SOCK_RAW, 0).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{address}: AF_XDP sockets need CAP_NET_RAW, and CAP_BPF and CAP_NET_ADMIN to \
                 receive\n  try sudo, or the private lab: squall lab up"
            ),
        ),
        Some(libc::EAFNOSUPPORT) => io::Error::new(
            io::ErrorKind::Unsupported,
            format!("{address}: this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)\n  try af_packet"),
        ),
        _ => error,
    })
}

/// Numbers of queues that the device uses, receive and transmit: often fewer than the kernel
/// allocated.
fn device_queues(link: &Link, channels: Option<Channels>) -> (u32, u32) {
    match channels {
        Some(c) => ((c.rx + c.combined).max(1), (c.tx + c.combined).max(1)),
        None => (link.rx_queues.max(1), link.tx_queues.max(1)),
    }
}

struct XdpPort {
    address: Address,
    facts: PortFacts,
    options: Options,
    link: Link,
    is_veth: bool,
    /// Whether flows of TCP have chosen generic mode, for joined frames.
    takes_joined: bool,
    watched: PortLink,
    port_counters: Arc<PortCounters>,
    /// The device's queues to receive from.
    device_queues: std::ops::Range<u32>,
    /// The program, loaded but not attached to the interface yet.
    loaded: Option<Receiving>,
    /// The NIC's stamps, if they are the arrival times.
    nic: Option<Arc<NicStamps>>,
    /// Rules of the device that choose the port's queue.
    steering: Option<(ntuple::Nic, SteerRules)>,
    /// The key of expected signatures.
    key: Option<u16>,
    /// The program, attached to the interface while a receive queue is open.
    receiving: Weak<Receiving>,
    /// Frames that arrived after the program was attached and before the last queue's socket was
    /// added.
    unclaimed: u64,
    /// Counters of the program on the interface, also after its removal.
    counters: Option<Arc<Counters>>,
    queues: BTreeMap<u32, DeviceQueue>,
    /// Whether zero-copy is used; `None` until tried.
    zero_copy: Option<bool>,
    departures: Option<Arc<Departures>>,
    /// Why the port cannot receive.
    receive_error: Option<String>,
    notes: Vec<String>,
}

/// The open directions of a device queue.
struct DeviceQueue {
    umem: Arc<Umem>,
    rx: bool,
    tx: bool,
}

impl Port for XdpPort {
    fn facts(&self) -> &PortFacts {
        &self.facts
    }

    fn open_tx(&mut self, queue: u32, max_frame: u32) -> io::Result<Box<dyn TxQueue>> {
        self.facts.check_tx(queue, max_frame)?;
        let side = self.side(self.options.queue.unwrap_or(queue), Direction::Tx, queue)?;
        let (link, departures) = (self.watched.watch()?, self.departures.clone());
        let longest = (self.facts.max_frame, max_frame);
        Ok(Box::new(XdpTx::new(side, &self.link.name, link, longest, &self.options, departures)))
    }

    fn open_rx(&mut self, queue: u32) -> io::Result<Box<dyn RxQueue>> {
        if let Some(why) = &self.receive_error {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{}: {why}", self.facts.address),
            ));
        }
        self.facts.check_rx(queue)?;
        let receiving = self.program()?;
        let own_queues =
            self.device_queues.clone().skip(queue as usize).step_by(self.facts.rx_queues as usize);
        let mut sides = Vec::new();
        for device_queue in own_queues {
            let side = self.side(device_queue, Direction::Rx, queue);
            if side.is_err() && !receiving.is_attached() {
                // The queue's owner probably has attached a program: the error of attaching names
                // it.
                receiving.attach(&self.link.name, self.link.index, self.modes())?;
            }
            sides.push((device_queue, side?));
        }
        // Before Linux 6.6 a socket drops frames that are longer than a chunk: a veth must cut them.
        if self.takes_joined && sides.iter().any(|(_, side)| !side.umem.pieces) {
            self.options.modes = vec![XdpMode::Native, XdpMode::Generic];
        }
        let rx = XdpRx::new(
            sides,
            self.watched.watch()?,
            (self.options.busy_poll_us > 0, self.link.mtu),
            self.nic.clone().map(NicTime::new).transpose()?,
            receiving.clone(),
            self.port_counters.clone(),
        )?;
        self.listen(&receiving)?;
        self.unclaimed = receiving.counters().unclaimed();
        Ok(Box::new(rx))
    }

    fn receives_all(&self) -> bool {
        self.facts.rx_queues == 0 || self.options.take() == Take::All
    }

    fn serve(&mut self, hosts: &Hosts) -> io::Result<()> {
        // For a program in the driver, a veth makes its peer's kernel cut GSO frames, and drops
        // what finds its ring of 256 frames full. In the stack they arrive whole: connections with
        // answers of 32 KB then take 0.7 of the CPU time, those of 100 octets 0.8, and none are
        // lost there. Streams of a test stay in the driver: a veth takes the frames of an xdp_live
        // port at the other end only for a program there.
        // XDP does not tell where joined datagrams begin: the peer's kernel must cut them.
        let unspecified = self.options.modes.len() > 1 && self.nic.is_none();
        if self.is_veth && unspecified && !hosts.shared && !hosts.datagrams {
            self.options.modes = vec![XdpMode::Generic];
            self.takes_joined = true;
        }
        if let Some((_, rules)) = &mut self.steering {
            rules.serve(hosts).map_err(|problem| self.address.error(problem))?;
        }
        // An explicit `take=` has priority.
        if self.options.take.is_some() {
            return Ok(());
        }
        self.options.take =
            Some(Take::Hosts(ranges(hosts).map_err(|problem| self.address.error(problem))?));
        if self.loaded.is_some() {
            self.loaded = Some(self.load()?);
        }
        Ok(())
    }

    fn expect_signatures(&mut self, key: Option<u16>) {
        self.key = key;
    }

    fn serves(&self, hosts: &Hosts) -> bool {
        if self.takes_joined && hosts.datagrams {
            return false;
        }
        if self.steering.as_ref().is_some_and(|(_, rules)| !rules.serves(hosts)) {
            return false;
        }
        match &self.options.take {
            Some(Take::Hosts(taken)) => ranges(hosts).is_ok_and(|asked| taken.cover(&asked)),
            _ => true,
        }
    }

    fn interface_counters(&self) -> Option<InterfaceCounters> {
        self.port_counters.counters(|| self.passed())
    }

    fn link(&self) -> Option<Arc<squall_port::Link>> {
        Some(self.watched.link().clone())
    }

    fn cannot_receive(&self) -> Option<&str> {
        self.receive_error.as_deref()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        let passed = self.counters.as_ref().map_or(0, |counters| counters.for_host());
        if passed > 0 {
            let name = &self.link.name;
            notes.push(format!(
                "{name}: {passed} frames were for the host and passed on (take=all takes them, \
                 too)"
            ));
        }
        if self.unclaimed > 0 {
            let (name, n) = (&self.link.name, self.unclaimed);
            notes.push(format!(
                "{name}: {n} frames arrived while its queues were opened, and passed on to the host"
            ));
        }
        let departures = self.departures.as_ref().and_then(|departures| departures.summary());
        notes.extend(departures.map(|summary| format!("{}: {summary}", self.link.name)));
        let stamps = self.nic.as_ref().map(|stamps| stamps.summary());
        notes.extend(stamps.map(|summary| format!("{}: {summary}", self.link.name)));
        notes
    }
}

impl XdpPort {
    fn load(&mut self) -> io::Result<Receiving> {
        let (take, queues) = (self.options.take(), self.device_queues.end);
        load(&take, &self.link, queues, &mut self.nic, &mut self.notes)
    }

    /// A program for the NIC's stamps cannot be attached in the stack.
    fn modes(&self) -> &[XdpMode] {
        if self.nic.is_some() { &[XdpMode::Native] } else { &self.options.modes }
    }

    /// Frames left to the host, and their octets.
    fn passed(&self) -> (u64, u64) {
        self.counters.as_ref().map_or((0, 0), |counters| counters.passed())
    }

    /// The program, which all open receive queues share.
    fn program(&mut self) -> io::Result<Arc<Receiving>> {
        if let Some(receiving) = self.receiving.upgrade() {
            return Ok(receiving);
        }
        let loaded = match self.loaded.take() {
            Some(loaded) => loaded,
            None => self.load()?,
        };
        let receiving = Arc::new(loaded);
        receiving.counters().expect(self.key);
        self.counters = Some(receiving.counters().clone());
        self.receiving = Arc::downgrade(&receiving);
        Ok(receiving)
    }

    /// Attaches the program to the interface. Called only after the first queue's sockets are in
    /// its map: then no frame misses its socket, and other programs can see whether the port is
    /// listening (by its program, or by promiscuous mode).
    fn listen(&mut self, receiving: &Receiving) -> io::Result<()> {
        if receiving.is_attached() {
            return Ok(());
        }
        let fallbacks = receiving.attach(&self.link.name, self.link.index, self.modes())?;
        self.notes.extend(fallbacks);
        receiving.be_promiscuous(packet_socket(&self.address)?, self.link.index)?;
        if self.options.moderation_us > 0 {
            self.moderate(receiving)?;
        }
        if let Some((nic, rules)) = &self.steering {
            let rules = rules.get().map_err(|problem| self.address.error(problem))?;
            let (steering, notes) = nic.steer(&rules)?;
            self.notes.extend(notes);
            receiving.keep(steering);
        }
        Ok(())
    }

    fn moderate(&mut self, receiving: &Receiving) -> io::Result<()> {
        let (name, us) = (&self.link.name, self.options.moderation_us);
        if receiving.is_generic() {
            self.note(format!(
                "{name}: moderation={us} has no effect on a program in the network stack; try \
                 mode=native"
            ));
            return Ok(());
        }
        let moderation = Moderation::set(self.link.index, Nanos(u64::from(us) * 1_000));
        let moderation = moderation.map_err(|error| {
            let text = format!(
                "{}: moderation={us}: {error}\n  it needs CAP_NET_ADMIN, Linux 6.13, and an \
                 interface that is up",
                self.address
            );
            io::Error::new(error.kind(), text)
        })?;
        receiving.moderate(moderation);
        self.note(format!(
            "{name}: moderation={us}: arrival times are those of the kernel's polls, up to {us} us \
             late"
        ));
        Ok(())
    }

    /// The port's end of a device queue; `queue` is its number for the caller.
    fn side(&mut self, device_queue: u32, direction: Direction, queue: u32) -> io::Result<Side> {
        let binding = Binding {
            ifindex: self.link.index,
            queue: device_queue,
            need_wakeup: self.options.need_wakeup,
            busy_poll_us: self.options.busy_poll_us,
            busy_budget: self.options.busy_budget,
        };
        let side = match self.queues.get(&device_queue) {
            Some(open)
                if (direction == Direction::Rx && open.rx)
                    || (direction == Direction::Tx && open.tx) =>
            {
                return Err(self.facts.already_open(queue));
            }
            Some(open) => open.umem.second(direction, &binding)?,
            None => self.first_side(direction, &binding)?,
        };
        let open = self.queues.entry(device_queue);
        let open =
            open.or_insert_with(|| DeviceQueue { umem: side.umem.clone(), rx: false, tx: false });
        match direction {
            Direction::Rx => open.rx = true,
            Direction::Tx => open.tx = true,
        }
        Ok(side)
    }

    /// Memory for a device queue, bound in the fastest mode that works.
    fn first_side(&mut self, direction: Direction, binding: &Binding) -> io::Result<Side> {
        let zero_copy = match self.zero_copy {
            Some(known) => known,
            None => self.try_zero_copy(direction, binding)?,
        };
        self.zero_copy = Some(zero_copy);
        let max_frame = self.facts.max_frame as usize;
        let with_metadata = self.options.launch_us.is_some() || self.options.tx_stamps;
        let mut rx_chunks = if self.facts.rx_queues == 0 { 0 } else { self.rx_chunks() };
        loop {
            let layout =
                Layout::new(zero_copy, max_frame, TX_OCTETS, rx_chunks, self.options.tx_ring);
            let min_octets = layout.tx_stride(max_frame) * BATCH + TX_HEADROOM;
            let layout = Layout::new(
                zero_copy,
                max_frame,
                min_octets.max(TX_OCTETS),
                rx_chunks,
                self.options.tx_ring,
            );
            match Umem::bind(layout, with_metadata, direction, binding) {
                Ok(side) => {
                    if rx_chunks > 0 && rx_chunks < self.rx_chunks() {
                        let octets = layout.octets() >> 10;
                        let name = &self.link.name;
                        self.note(format!(
                            "{name}: ring={rx_chunks}: this user is not allowed to lock more \
                             memory ({octets} KiB)"
                        ));
                    }
                    if !side.umem.pieces && layout.chunk < max_frame {
                        let text = format!(
                            "{}: frames of more than {} octets need pieces",
                            self.link.name, layout.chunk
                        );
                        return Err(io::Error::new(
                            io::ErrorKind::Unsupported,
                            format!(
                                "{text}, which the kernel or the driver does not support\n  try \
                                 af_packet, or a smaller MTU"
                            ),
                        ));
                    }
                    return Ok(side);
                }
                // RLIMIT_MEMLOCK is too low, or memory is short: a smaller ring may fit.
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM))
                        && rx_chunks > 512 =>
                {
                    rx_chunks /= 2;
                }
                Err(error) => return Err(self.explain(error, binding.queue)),
            }
        }
    }

    /// Number of receive chunks per device queue.
    fn rx_chunks(&self) -> u32 {
        let queues = self.device_queues.len() as u32;
        (self.options.ring / queues.next_power_of_two()).max(64).min(self.options.ring)
    }

    /// Whether the driver supports zero-copy: tries to bind with little memory.
    fn try_zero_copy(&mut self, direction: Direction, binding: &Binding) -> io::Result<bool> {
        if self.options.zero_copy == Some(false) {
            return Ok(false);
        }
        let layout =
            Layout::new(true, self.facts.max_frame as usize, 64 << 10, 64, self.options.tx_ring);
        match Umem::bind(layout, false, direction, binding) {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                Err(self.explain(error, binding.queue))
            }
            Err(error) if self.options.zero_copy == Some(true) => {
                let text = format!(
                    "{}: the driver does not support zero-copy: {error}\n  try zerocopy=0",
                    self.link.name
                );
                Err(io::Error::new(io::ErrorKind::Unsupported, text))
            }
            Err(error) => {
                self.note(format!(
                    "{}: frames are copied, as the driver does not support zero-copy ({error})",
                    self.link.name
                ));
                Ok(false)
            }
        }
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn explain(&self, error: io::Error, queue: u32) -> io::Error {
        let name = &self.link.name;
        let text = match error.raw_os_error() {
            Some(libc::EBUSY) => {
                format!("{name}: another AF_XDP socket owns queue {queue}")
            }
            Some(libc::ENOBUFS | libc::ENOMEM) => {
                format!(
                    "{name}: this user is not allowed to lock the memory that a ring needs\n  try \
                     ulimit -l 65536, or tx_ring=512"
                )
            }
            _ => format!("{name}: AF_XDP on queue {queue}: {error}"),
        };
        io::Error::new(error.kind(), text)
    }
}

#[cfg(test)]
mod tests {
    use squall_port::monotonic;

    use super::*;
    use crate::sys;

    /// Runs `test` in a network namespace with the veth pair `a`, `b`.
    fn with_veth(test: impl FnOnce() -> io::Result<()> + Send) {
        let run = || -> io::Result<()> {
            sys::unshare(libc::CLONE_NEWNET)?;
            let netlink = Netlink::open()?;
            netlink.add_veth(["a", "b"], 1500, 1)?;
            for link in netlink.links()?.iter().filter(|link| link.kind == "veth") {
                netlink.set_up(link.index)?;
            }
            test()
        };
        // A namespace of its own thread: the other tests stay where they are.
        let outcome = std::thread::scope(|scope| scope.spawn(run).join().expect("no panic"));
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                println!("SKIPPED: {error}");
            }
            outcome => outcome.expect("a veth pair"),
        }
    }

    #[test]
    fn a_program_for_the_nic_stamps_what_the_nic_does_not() {
        let Ok(function) = nic_time::stamp_function() else {
            return println!("SKIPPED: the kernel has no stamps for programs");
        };
        with_veth(|| {
            let mut port = open_port(&"af_xdp:b,take=all".parse()?)?;
            if port.facts.rx_queues == 0 {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            // A veth has stamps for programs, which are 0 for frames of the machine itself; its
            // clock is replaced by one of the system.
            let stamps = nic_time::tests::stamps_on(libc::CLOCK_MONOTONIC, function);
            (port.nic, port.loaded) = (Some(Arc::new(stamps)), None);
            let mut rx = port.open_rx(0)?;
            assert!(port.nic.is_some(), "{:?}", port.notes());
            let mut sender = crate::af_packet::open(&"af_packet:a".parse()?)?;
            let mut tx = sender.open_tx(0, 60)?;
            let before = monotonic();
            for i in 0..5 {
                let mut batch = tx.lend(1);
                batch.frame(0, 60, Nanos::ZERO).fill(i);
                while tx.send(1).map_err(|error| io::Error::other(format!("{error:?}")))? == 0 {}
            }
            tx.finish()?;
            let (mut count, end) = (0, monotonic() + Nanos(10_000_000_000));
            while count < 5 && monotonic() < end {
                for (octets, frame) in rx.receive()?.iter() {
                    // The kernel may send frames of its own (IPv6).
                    if octets != [count; 60] {
                        continue;
                    }
                    assert!(frame.time > before && frame.time < monotonic(), "{frame:?}");
                    count += 1;
                }
            }
            assert_eq!(count, 5);
            let notes = port.notes().join("\n");
            let wanted = "b: 0 frames have arrival times by the NIC's clock (a clock), ";
            assert!(notes.contains(wanted) && !notes.contains("a clock), 0 by"), "{notes}");
            Ok(())
        });
    }
}
