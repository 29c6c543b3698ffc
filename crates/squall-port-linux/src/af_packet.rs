//! `af_packet:IFACE`: frames through packet sockets, on any Ethernet interface.
//!
//! Sends by sendmmsg(2) from Squall's own slots: the kernel takes the frames that the call reports
//! finally. Over veth that costs less than the transmit ring (PACKET_TX_RING, version 2, 512 slots)
//! with a copy into it: 0.53 against 0.50 million frames per CPU second at 60 octets, 0.50 against
//! 0.43 at 1514 (medians of 6 runs in turns, spread 10 %, 2 shared cores, Linux 6.18). A ring also
//! lends the kernel its pages: a slot is free again when the frame's first owner releases it, and
//! any holder of a clone of the frame then reads the next frame in it (docs/adr/0004-sendmmsg.md).
//!
//! Receives every frame (promiscuous mode) from a TPACKET_V3 ring without copying, with the
//! kernel's arrival times. The kernel strips VLAN tags; the port puts them back. Filters run in the
//! kernel: frames that do not match are not copied (docs/adr/0020-filters.md). Interfaces without
//! Ethernet, and all interfaces at once (`any`), are receive-only: their packets start without a
//! link-layer header (LINKTYPE_RAW), or with one that the port makes from Linux's data about them
//! (LINKTYPE_LINUX_SLL2).
//!
//! With `frames=1` the ring is a TPACKET_V2 one: the kernel delivers a frame on arrival, not with
//! its block. Flows need that, because they answer frames; it costs a reader of millions of frames
//! a check of a status word per frame. GSO frames, which are longer than the ring's slots, are read
//! by recv(2).
//!
//! The ring, 64 MiB of kernel memory per queue, holds the frames that arrive while its reader does
//! not run: 0.4 s of 60-octet frames at 1 Mpps, 40 ms of 1514-octet ones. A block is handed over
//! `retire` after its first frame, full or not, so slow traffic fills the ring in the number of
//! blocks times `retire`: 2.5 s. That is why blocks are small; a GSO frame of 64 KiB has to fit one.
//!
//! Options: `batch=N` (frames per system call), `rx_queues=N` (a flow stays in one of them),
//! `blocks=N` and `block=KIB` (the receive ring), `retire=MS` (timeout for delivering a partly
//! filled block), `frames=1` (each frame is delivered at once), `bypass=0` (leave through the
//! interface's qdisc), `launch=US` (leave that many microseconds after the due time, at launch
//! times that the qdisc keeps), `direction=in|out|both` (which frames are received), `promisc=0` (only
//! frames that the interface accepts anyway), `on_link_down=stop` (a link that goes down ends
//! sending, instead of making it wait).

mod frames;
mod launch;

use std::{
    io, mem,
    num::NonZeroU32,
    os::fd::BorrowedFd,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering, fence},
    },
    time::Duration,
};

use libc::c_int;
use squall_bpf::{
    classic::{self, Instruction},
    owner,
};
use squall_port::{
    Address, BATCH, Cut, ETHERNET, Filter, Hosts, InterfaceCounters, Lent, LinkState, Offload,
    OnLinkDown, Port, PortFacts, RxBatch, RxFrame, RxQueue, Segmentation, SendError, Slots, Tags,
    Timestamps, TxBatch, TxQueue, monotonic, network_header,
};
use squall_units::{Nanos, nearest};

use self::{
    frames::FrameRing,
    launch::{Control, Discipline, Launch},
};
use crate::{
    filter::{self, SLL2, SocketView},
    interface::{Ethtool, InterfaceInfo, describe},
    lab::{INTERFACES, Lab},
    link::{PortLink, WatchedLink},
    netlink::{Link, Netlink},
    port_counters::PortCounters,
    refused::RefusalTracker,
    sys::{self, Map, Socket},
    watch::Watch,
};

pub(crate) const ETHERNET_HEADER: u32 = 14;
/// A VLAN tag does not count against the MTU: packet_snd() accepts a frame that is this much longer
/// if its type is 802.1Q.
pub(crate) const VLAN_TAG: usize = 4;
/// Total length of an IPv4 packet (RFC 791 §3.1), which a GSO frame is until the kernel segments
/// it.
const MAX_IP_PACKET: u32 = 65_535;
/// Sockets are cheap, so one per worker is allowed; the kernel spreads them over the device's
/// transmit queues by CPU.
const TX_QUEUES: u32 = 64;

pub fn open(address: &Address) -> io::Result<Box<dyn Port>> {
    let mut a = address.clone();
    let launch_us: Option<NonZeroU32> = a.take("launch", "microseconds from the due time")?;
    let options = Options {
        batch: a.take_in("batch", 1..=BATCH as u32, BATCH as u32)? as usize,
        bypass: a.take_flag("bypass")?.unwrap_or(launch_us.is_none()),
        rx_queues: a.take_in("rx_queues", 1..=256, 1)?,
        blocks: a.take_in("blocks", 2..=1 << 16, 256)?,
        block_octets: a.take_in("block", 128..=16 << 10, 256)?.next_power_of_two() << 10,
        retire_ms: a.take_in("retire", 1..=1000, 10)?,
        frames: a.take_flag("frames")?.unwrap_or(false),
        gro: a.take_flag("gro")?.unwrap_or(true),
        direction: a.take("direction", "in, out or both")?.unwrap_or_default(),
        promiscuous: a.take_flag("promisc")?.unwrap_or(true),
    };
    let on_link_down = OnLinkDown::take(&mut a)?;
    a.finish(&OPTIONS)?;

    let netlink = Netlink::open()?;
    let framing = Framing::of(address, &netlink)?;
    let (link, speed_bps) = if framing.link_type == ETHERNET {
        let (link, interface) = ethernet_link(address, &netlink)?;
        (link, interface.speed_bps)
    } else {
        (framing.link.clone(), None)
    };
    let launch = match launch_us {
        Some(us) => {
            let discipline = discipline(address, &netlink, &link, options)?;
            Some((discipline, launch_after(address, us)?))
        }
        None => None,
    };
    // Opens a socket now, to report a missing permission before the run starts. The first queue
    // uses it, because the kernel takes 10 ms to close one (synchronize_net() in packet_release()).
    let first_socket = Some(packet_socket(address)?);
    let facts = PortFacts {
        kind: "af_packet",
        address: address.to_string(),
        max_frame: link.mtu + ETHERNET_HEADER + VLAN_TAG as u32,
        speed_bps,
        mac: link.mac,
        tx_queues: if framing.link_type == ETHERNET { TX_QUEUES } else { 0 },
        rx_queues: options.rx_queues,
        timestamps: Timestamps::Kernel,
        virtual_time: false,
        batch: options.batch,
        segmentation: Segmentation::Port(Offload {
            max_frame: link.mtu.max(MAX_IP_PACKET) + ETHERNET_HEADER + VLAN_TAG as u32,
            tcp: u32::from(u16::MAX),
            udp: max_udp_segments(),
        }),
        link_type: framing.link_type,
        ahead: Nanos::ZERO,
    };
    let address = address.clone();
    // All interfaces together have no link that can go down.
    let watched = (link.index > 0)
        .then(|| PortLink::new(&link.name, link.index, on_link_down))
        .transpose()?;
    let counters = Arc::new(PortCounters::new(netlink, link.index));
    Ok(Box::new(PacketPort {
        facts,
        options,
        address,
        link,
        launch,
        watched,
        framing,
        counters,
        first_socket,
        fanout: None,
        workers: 1,
        filter: None,
    }))
}

/// The longest time from due time to launch: frames wait in the kernel that long, and the end of
/// the run waits for them.
const LONGEST_LAUNCH_US: u32 = 500_000;

fn launch_after(address: &Address, us: NonZeroU32) -> io::Result<Nanos> {
    if us.get() > LONGEST_LAUNCH_US {
        let text = format!("{address}: launch={us}, expected at most {LONGEST_LAUNCH_US}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(Nanos(u64::from(us.get()) * 1000))
}

/// The discipline of `link` that keeps launch times.
fn discipline(
    address: &Address,
    netlink: &Netlink,
    link: &Link,
    options: Options,
) -> io::Result<Discipline> {
    let invalid = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    if options.bypass {
        return invalid(format!(
            "{address}: launch and bypass exclude each other: launch times are kept by the \
             queueing discipline"
        ));
    }
    match Discipline::find(netlink, link.index)? {
        Ok(discipline) => Ok(discipline),
        Err(kind) => {
            let found = match &*kind {
                "" => "no queueing discipline".to_owned(),
                kind => format!("the queueing discipline {kind}"),
            };
            invalid(format!(
                "{address}: launch times need fq or etf, and {} has {found}\n  try: tc qdisc \
                 replace dev {} root fq",
                link.name, link.name
            ))
        }
    }
}

const OPTIONS: [&str; 12] = [
    "batch",
    "launch",
    "bypass",
    "rx_queues",
    "blocks",
    "block",
    "retire",
    "frames",
    "gro",
    "direction",
    "promisc",
    OnLinkDown::KEY,
];

#[derive(Clone, Copy, Debug)]
struct Options {
    batch: usize,
    bypass: bool,
    rx_queues: u32,
    blocks: u32,
    block_octets: u32,
    retire_ms: u32,
    /// Frames are delivered one by one (TPACKET_V2).
    frames: bool,
    /// Received GSO frames have the size of their segments (PACKET_VNET_HDR).
    gro: bool,
    direction: Direction,
    promiscuous: bool,
}

/// Which frames are received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Direction {
    /// Arriving frames.
    #[default]
    In,
    /// Frames that this host sends, by any socket except those that bypass the qdisc (`bypass`).
    Out,
    /// Both directions; on a loopback interface, where every sent frame arrives, each frame only
    /// once.
    Both,
}

impl FromStr for Direction {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "in" => Ok(Self::In),
            "out" => Ok(Self::Out),
            "both" | "inout" => Ok(Self::Both),
            _ => Err(()),
        }
    }
}

/// The form of received frames.
#[derive(Clone, Debug)]
struct Framing {
    link_type: u16,
    /// The kernel strips the link-layer header (SOCK_DGRAM), and the port adds a
    /// LINKTYPE_LINUX_SLL2 one.
    cooked: bool,
    /// Index of the loopback interface, if the port is on it or on all interfaces: each of its
    /// frames is seen twice, on departure and on arrival.
    loopback: Option<u32>,
    /// The interface; index 0: all interfaces.
    link: Link,
}

// Link types of the tcpdump registry (LINKTYPE_RAW, LINKTYPE_LINUX_SLL2).
const RAW: u16 = 101;
const LINUX_SLL2: u16 = 276;
/// The name for all interfaces of the namespace, as in tcpdump.
const ANY: &str = "any";
// linux/if_arp.h; the libc crate lacks it.
const ARPHRD_RAWIP: u16 = 519;

impl Framing {
    fn of(address: &Address, netlink: &Netlink) -> io::Result<Self> {
        let is_loopback = |link: &Link| link.hardware == libc::ARPHRD_LOOPBACK;
        let cooked = |link, loopback| Self { link_type: LINUX_SLL2, cooked: true, loopback, link };
        if address.name() == ANY {
            let loopback =
                netlink.links()?.iter().find(|link| is_loopback(link)).map(|link| link.index);
            return Ok(cooked(
                Link { name: ANY.into(), mtu: MAX_IP_PACKET, ..Link::default() },
                loopback,
            ));
        }
        let link = find_link(address, netlink)?;
        check_up(address, &link)?;
        Ok(match link.hardware {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => {
                let loopback = is_loopback(&link).then_some(link.index);
                Self { link_type: ETHERNET, cooked: false, loopback, link }
            }
            // Tunnels: their packets are IP packets without a link-layer header.
            libc::ARPHRD_NONE | ARPHRD_RAWIP => {
                Self { link_type: RAW, cooked: false, loopback: None, link }
            }
            _ => cooked(link, None),
        })
    }
}

/// UDP_MAX_SEGMENTS of the kernel: 128 from Linux 6.10 on.
fn max_udp_segments() -> u32 {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|n| n.trim().parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (6, 10) { 128 } else { 64 }
}

/// The interface that `address` names, if it can send Ethernet frames.
pub(crate) fn ethernet_link(
    address: &Address,
    netlink: &Netlink,
) -> io::Result<(Link, InterfaceInfo)> {
    let link = find_link(address, netlink)?;
    check_up(address, &link)?;
    let interface = describe(&link, &Ethtool::open()?);
    if !interface.ethernet {
        let text = format!(
            "{address}: {} is not an Ethernet interface (ARPHRD {})",
            link.name, link.hardware
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok((link, interface))
}

fn check_up(address: &Address, link: &Link) -> io::Result<()> {
    if link.is_up() {
        return Ok(());
    }
    let name = &link.name;
    let text = format!("{address}: interface {name} is down\n  try: ip link set {name} up");
    Err(io::Error::new(io::ErrorKind::NetworkDown, text))
}

fn find_link(address: &Address, netlink: &Netlink) -> io::Result<Link> {
    let mut links = netlink.links()?;
    if let Some(at) = links.iter().position(|link| link.name == address.name()) {
        return Ok(links.swap_remove(at));
    }
    let names: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
    let near = nearest(address.name(), names.iter().copied());
    let near = near.map(|name| format!("\n  did you mean {name}?")).unwrap_or_default();
    let text = format!(
        "{address}: no interface {:?}{near}\n  {}there are {}{}",
        address.name(),
        file_hint(address.name()),
        names.join(", "),
        lab_hint(address.name(), &names)
    );
    Err(io::Error::new(io::ErrorKind::NotFound, text))
}

/// A hint for a file name given in place of an interface.
fn file_hint(wanted: &str) -> String {
    let is_file = wanted.contains('/') || wanted.ends_with(".pcap") || wanted.ends_with(".pcapng");
    if is_file { format!("try pcap:{wanted} for a file; ") } else { String::new() }
}

/// A hint for an interface of a running lab: how to enter the lab.
fn lab_hint(wanted: &str, here: &[&str]) -> String {
    // This process is inside a lab already.
    if here.iter().any(|name| INTERFACES.contains(name)) {
        return String::new();
    }
    let labs = Lab::list().unwrap_or_default();
    let names: Vec<_> = labs.iter().map(|lab| lab.name.as_str()).collect();
    hint_of(wanted, &names)
}

fn hint_of(wanted: &str, labs: &[&str]) -> String {
    match labs {
        [] if INTERFACES.contains(&wanted) => "\n  it is an interface of a lab, and no lab is up; \
                                               try squall lab up, then squall lab exec -- squall ..."
            .into(),
        [] => String::new(),
        ["lab"] => "\n  if it is in the lab, try squall lab exec -- squall ...".into(),
        [name] => format!("\n  if it is in lab {name:?}, try squall lab exec {name} -- squall ..."),
        names => format!(
            "\n  if it is in a lab ({}), try squall lab exec LAB -- squall ...",
            names.join(", ")
        ),
    }
}

/// Makes the interface accept frames to any MAC address while `socket` is open.
pub(crate) fn be_promiscuous(socket: &Socket, index: u32) -> io::Result<()> {
    let promiscuous = libc::packet_mreq {
        mr_ifindex: index as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    socket.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, promiscuous)
}

/// A socket that receives nothing: it has no interface yet, and protocol 0.
pub(crate) fn packet_socket(address: &Address) -> io::Result<Socket> {
    packet_socket_of(address, libc::SOCK_RAW)
}

fn packet_socket_of(address: &Address, kind: c_int) -> io::Result<Socket> {
    Socket::new(libc::AF_PACKET, kind, 0).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{address}: packet sockets need CAP_NET_RAW\n  try sudo, or: sudo setcap \
                 cap_net_raw+ep $(command -v squall), or the private lab: squall lab up"
            ),
        ),
        _ => error,
    })
}

/// The queueing discipline that keeps launch times on interface `index`: `fq` or `etf`.
pub fn launch_discipline(index: u32) -> Option<&'static str> {
    let found = Discipline::find(&Netlink::open().ok()?, index).ok()?;
    found.ok().map(Discipline::name)
}

struct PacketPort {
    facts: PortFacts,
    options: Options,
    address: Address,
    link: Link,
    /// The discipline that holds sent frames, and the time from due time to launch.
    launch: Option<(Discipline, Nanos)>,
    /// The link's watch; `None` if the port is for all interfaces.
    watched: Option<PortLink>,
    framing: Framing,
    counters: Arc<PortCounters>,
    /// The socket with which the port was opened, until a queue has it.
    first_socket: Option<Socket>,
    /// Id of the receive queues' fanout group, once there is one.
    fanout: Option<u16>,
    /// Number of workers: queue i belongs to worker i and gets the frames of its flows.
    workers: u32,
    /// The filter for queues that are opened later: the program for the kernel to run, and the
    /// snaplen.
    filter: Option<(Vec<Instruction>, u32)>,
}

impl Port for PacketPort {
    fn facts(&self) -> &PortFacts {
        &self.facts
    }

    fn open_tx(&mut self, queue: u32, max_frame: u32) -> io::Result<Box<dyn TxQueue>> {
        if self.facts.tx_queues == 0 {
            let text = format!("{}: receives only: it is not an Ethernet interface", self.address);
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        self.facts.check_tx(queue, max_frame)?;
        let socket = self.socket(libc::SOCK_RAW)?;
        let link = self.watched.as_mut().expect("who sends has one interface").watch()?;
        if self.options.bypass {
            socket.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        }
        // Room for a few batches of jumbo frames; the kernel clips it to net.core.wmem_max.
        socket.set(libc::SOL_SOCKET, libc::SO_SNDBUF, 4 << 20)?;
        let launch = match self.launch {
            Some((discipline, later)) => Some(self.keep_launch_times(&socket, discipline, later)?),
            None => None,
        };
        socket.bind_packet(self.link.index, 0)?;
        let (name, batch) = (&self.link.name, self.options.batch);
        Ok(Box::new(PacketTx::new(socket, name, link, batch, max_frame, launch)))
    }

    fn open_rx(&mut self, queue: u32) -> io::Result<Box<dyn RxQueue>> {
        self.facts.check_rx(queue)?;
        let kind = if self.framing.cooked { libc::SOCK_DGRAM } else { libc::SOCK_RAW };
        let (program, snaplen) = match &self.filter {
            Some((program, snaplen)) => (Some(program.clone()), *snaplen),
            // The direction may need a filter even if all frames match.
            None => (
                self.program(&classic::Filter::all(u32::MAX)).filter(|program| program.len() > 1),
                u32::MAX,
            ),
        };
        let socket = self.socket(kind)?;
        let link = self.watched.as_mut().map(PortLink::watch_receiving).transpose()?;
        let counters = self.counters.clone();
        let ring: Box<dyn ReceiveRing> = match self.options.frames {
            true => {
                let longest = self.facts.max_frame;
                Box::new(FrameRing::new(
                    socket,
                    link,
                    &self.options,
                    &self.framing,
                    snaplen,
                    longest,
                    counters,
                )?)
            }
            false => {
                Box::new(Ring::new(socket, link, &self.options, &self.framing, snaplen, counters)?)
            }
        };
        let (socket, level) = (ring.socket(), libc::SOL_PACKET);
        if self.ignores_outgoing() {
            socket.set(level, libc::PACKET_IGNORE_OUTGOING, 1)?;
        }
        if self.options.promiscuous && self.link.index > 0 {
            be_promiscuous(socket, self.link.index)?;
        }
        // Without this option the kernel stamps a frame only when it reaches this socket: on
        // arrival it reads the clock only while some socket asks for timestamps.
        socket.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        // Drops everything until the socket is in its group: before it joins, a queue would get the
        // other queues' frames too. The kernel lets only bound sockets join a group.
        socket.attach_drop_all_filter()?;
        socket.bind_packet(self.link.index, libc::ETH_P_ALL as u16)?;
        if self.workers > 1 && queue >= self.workers {
            // Every worker already has a queue, so no flow belongs to this one, which continues to
            // drop all frames.
            return Ok(ring);
        }
        if self.options.rx_queues > 1 {
            self.join_fanout(socket)?;
        }
        match program {
            Some(program) => socket.attach_filter(&program)?,
            None => socket.set(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0)?,
        }
        Ok(ring)
    }

    fn serve(&mut self, hosts: &Hosts) -> io::Result<()> {
        self.workers = hosts.workers.max(1);
        Ok(())
    }

    fn set_filter(&mut self, filter: &Filter) -> io::Result<bool> {
        // The kernel has stripped the VLAN tag by the time the filter runs.
        let program = match filter.tags {
            Tags::InPlace if self.framing.link_type == ETHERNET => {
                let compiled =
                    filter::compile_for(&self.link.name, &filter.expression, filter.snaplen);
                compiled.map_err(|error| {
                    io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
                })?
            }
            _ => filter.program.clone(),
        };
        let Some(program) = self.program(&program) else { return Ok(false) };
        if !sys::has_room_for(&program)? {
            return Ok(false);
        }
        self.filter = Some((program, filter.snaplen));
        Ok(true)
    }

    fn notes(&self) -> Vec<String> {
        let hidden = !self.ignores_outgoing();
        let text = || {
            format!(
                "{}: frames that bypass the queueing discipline are not received: those that \
                 Squall sends over af_packet (unless bypass=0), af_xdp, xdp_live and dpdk",
                self.link.name
            )
        };
        let launches = self.launch.map(|(discipline, later)| {
            format!(
                "{}: frames leave {} microseconds after they are due, at launch times kept by {}; \
                 departure figures are those of the hand-over before",
                self.link.name,
                later.0 / 1000,
                discipline.name()
            )
        });
        hidden.then(text).into_iter().chain(launches).collect()
    }

    fn interface_counters(&self) -> Option<InterfaceCounters> {
        self.counters.counters(|| (0, 0))
    }

    fn link(&self) -> Option<Arc<squall_port::Link>> {
        self.watched.as_ref().map(|watched| watched.link().clone())
    }
}

impl PacketPort {
    /// A socket for a queue, which receives nothing yet.
    fn socket(&mut self, kind: c_int) -> io::Result<Socket> {
        match self.first_socket.take_if(|_| kind == libc::SOCK_RAW) {
            Some(socket) => Ok(socket),
            None => packet_socket_of(&self.address, kind),
        }
    }

    /// Prepares `socket` for launch times.
    fn keep_launch_times(
        &self,
        socket: &Socket,
        discipline: Discipline,
        later: Nanos,
    ) -> io::Result<Launch> {
        Launch::new(socket, discipline, later).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => io::Error::new(
                error.kind(),
                format!(
                    "{}: launch times of etf need CAP_NET_ADMIN, because its clock is \
                     CLOCK_TAI\n  try sudo, or: tc qdisc replace dev {} root fq",
                    self.address, self.link.name
                ),
            ),
            _ => error,
        })
    }

    /// Every frame sent on a loopback interface also arrives there, so outgoing copies would be
    /// duplicates.
    fn ignores_outgoing(&self) -> bool {
        let all_arrive = self.framing.loopback.is_some() && self.framing.link.index > 0;
        self.options.direction == Direction::In
            || (self.options.direction == Direction::Both && all_arrive)
    }

    /// The program for the kernel that corresponds to `program`; `None` if the kernel cannot run
    /// it.
    fn program(&self, program: &classic::Filter) -> Option<Vec<Instruction>> {
        let view = SocketView {
            loopback: self.framing.loopback.filter(|_| !self.ignores_outgoing()),
            outgoing_only: self.options.direction == Direction::Out,
            cooked: self.framing.cooked,
            // A GSO frame's segment boundaries are read from its headers, so the snaplen must not
            // truncate them.
            min_keep: if self.options.gro { GSO_HEADERS } else { 0 },
        };
        filter::for_socket(program, view)
    }

    /// Spreads frames over the sockets of the group by flow. The kernel numbers sockets in the
    /// order in which they join; workers open their queues in order, so socket i is that of worker
    /// i.
    fn join_fanout(&mut self, socket: &Socket) -> io::Result<()> {
        let by_owner = self.workers > 1;
        let mut kind = if by_owner { libc::PACKET_FANOUT_CBPF } else { libc::PACKET_FANOUT_HASH };
        if self.ignores_outgoing() {
            kind |= libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        }
        // With UNIQUEID the kernel chooses an id that no other group of the namespace has.
        let (id, flags) = match self.fanout {
            Some(id) => (id, kind),
            None => (0, kind | libc::PACKET_FANOUT_FLAG_UNIQUEID),
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_FANOUT, u32::from(id) | flags << 16)?;
        if by_owner && self.fanout.is_none() {
            socket.attach_fanout(&owner::program(self.workers, owner::PacketView::Socket))?;
        }
        self.fanout = Some(socket.get::<u32>(libc::SOL_PACKET, libc::PACKET_FANOUT, 0)? as u16);
        Ok(())
    }
}

/// Number of consecutive calls that sent nothing after which the carrier is checked; not each time,
/// because asking netlink costs two more system calls.
const CHECK_LINK_AFTER: u32 = 64;
/// Frame length in octets above which a queue has few slots, because each has room for a GSO
/// frame.
const LONG_FRAME: u32 = 16_384;
const GSO_BATCH: usize = 8;

struct PacketTx {
    socket: Socket,
    interface: String,
    link: Arc<WatchedLink>,
    /// Slots for one batch, which stay in the cache: the kernel copies a frame before sendmmsg
    /// returns.
    slots: Slots,
    lent: Lent,
    /// Frames per system call.
    batch: usize,
    /// Number of consecutive calls that found the socket's send queue full.
    blocked: u32,
    refused: RefusalTracker,
    messages: Messages,
    launch: Option<Launch>,
    /// Whether a GSO frame was sent: from then on each frame has a [`VirtioHeader`] in front,
    /// because PACKET_VNET_HDR applies to the whole socket.
    cuts: bool,
}

/// struct virtio_net_hdr, in native byte order: the work on a frame (checksum, segmentation) that
/// is left to the kernel, or that the kernel has left undone.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct VirtioHeader {
    flags: u8,
    gso_type: u8,
    /// Length of all headers.
    hdr_len: u16,
    /// Payload octets per segment.
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

const VIRTIO_HEADER: usize = mem::size_of::<VirtioHeader>();
// Flags and types of linux/virtio_net.h: VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_*.
const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Flag added to a TCP type: only the first segment has CWR (RFC 3168 §6.1.2).
const GSO_ECN: u8 = 0x80;
// Offsets of the checksum in the transport header (RFC 9293 §3.1, RFC 768).
const TCP_CHECKSUM: u16 = 16;
const UDP_CHECKSUM: u16 = 6;

/// A message of two parts for each slot: virtio header and frame. Plain frames need only the
/// second. Between batches only the parts' addresses and lengths change.
struct Messages {
    headers: Box<[libc::mmsghdr]>,
    /// The parts, to which `headers` point.
    parts: Box<[[libc::iovec; 2]]>,
    /// The virtio headers, to which the first parts point.
    virtio: Box<[VirtioHeader]>,
    /// Launch times, to which the headers point if frames have any.
    controls: Box<[Control]>,
}

// SAFETY: the pointers lead into the other boxes and, during a system call, into the slots of the
// same queue; all of these move together.
unsafe impl Send for Messages {}

impl Messages {
    fn new() -> Self {
        let mut virtio = vec![VirtioHeader::default(); BATCH].into_boxed_slice();
        let virtio_at = virtio.as_mut_ptr();
        let part = |i| {
            let header =
                libc::iovec { iov_base: virtio_at.wrapping_add(i).cast(), iov_len: VIRTIO_HEADER };
            [header, libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }]
        };
        let mut parts: Box<[_]> = (0..BATCH).map(part).collect();
        // SAFETY: all zero is a valid `mmsghdr`: no name, no parts, no control data.
        let empty: libc::mmsghdr = unsafe { mem::zeroed() };
        let mut headers = vec![empty; BATCH].into_boxed_slice();
        let parts_at = parts.as_mut_ptr();
        for (i, header) in headers.iter_mut().enumerate() {
            header.msg_hdr.msg_iov = parts_at.wrapping_add(i).cast::<libc::iovec>().wrapping_add(1);
            header.msg_hdr.msg_iovlen = 1;
        }
        let controls = vec![Control::default(); BATCH].into_boxed_slice();
        Self { headers, parts, virtio, controls }
    }

    /// Includes the launch time in messages from now on.
    fn with_launch(&mut self) {
        let controls_at = self.controls.as_mut_ptr();
        for (i, header) in self.headers.iter_mut().enumerate() {
            header.msg_hdr.msg_control = controls_at.wrapping_add(i).cast();
            header.msg_hdr.msg_controllen = mem::size_of::<Control>() as _;
        }
    }

    /// Includes the first part in messages from now on.
    fn with_virtio(&mut self) {
        let parts_at = self.parts.as_mut_ptr();
        for (i, header) in self.headers.iter_mut().enumerate() {
            header.msg_hdr.msg_iov = parts_at.wrapping_add(i).cast();
            header.msg_hdr.msg_iovlen = 2;
        }
    }
}

impl VirtioHeader {
    /// How the kernel segments `frame`. Replaces its TCP or UDP checksum with the sum of the
    /// pseudo-header, to which the kernel or the NIC adds the rest (NEEDS_CSUM).
    fn of(frame: &mut [u8], cut: Cut) -> Self {
        // One segment is a plain frame with its own checksum: the kernel would accept it as a GSO
        // frame and leave the checksum to a NIC, which a veth does not have.
        if cut.is_whole() || frame.len() <= usize::from(cut.payload) + usize::from(cut.size) {
            return Self::default();
        }
        let transport = usize::from(cut.transport);
        let (kind, offset, protocol) =
            if cut.is_udp() { (GSO_UDP, UDP_CHECKSUM, 17) } else { (GSO_TCP4, TCP_CHECKSUM, 6) };
        let network = network_header(frame);
        let ipv4 = frame[network] >> 4 == 4;
        let addresses = if ipv4 { network + 12..network + 20 } else { network + 8..network + 40 };
        let words = frame[addresses].as_chunks::<2>().0.iter();
        let sum = words.map(|w| u64::from(u16::from_be_bytes(*w))).sum::<u64>()
            + protocol
            + (frame.len() - transport) as u64;
        // Folding twice suffices: the sum of at most 18 words and a length is below 2^32.
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = ((sum & 0xffff) + (sum >> 16)) as u16;
        let at = transport + usize::from(offset);
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let ecn = if !cut.is_udp() && frame[transport + 13] & 0x80 != 0 { GSO_ECN } else { 0 };
        Self {
            flags: NEEDS_CHECKSUM,
            gso_type: if kind == GSO_TCP4 && !ipv4 { GSO_TCP6 } else { kind } | ecn,
            hdr_len: cut.payload.into(),
            gso_size: cut.size,
            csum_start: cut.transport.into(),
            csum_offset: offset,
        }
    }

    /// Reads the header in front of a received frame.
    fn read(octets: &[u8]) -> Self {
        Self {
            flags: octets[0],
            gso_type: octets[1],
            hdr_len: u16_at(octets, 2),
            gso_size: u16_at(octets, 4),
            csum_start: u16_at(octets, 6),
            csum_offset: u16_at(octets, 8),
        }
    }

    /// The segmentation of `frame`, if it is a GSO frame. A guest or a tap may write anything into
    /// the header: a frame whose header offsets are out of order counts as a single segment.
    fn cut(self, frame: &[u8]) -> Cut {
        let transport = usize::from(self.csum_start);
        if self.gso_type == 0 || self.flags & NEEDS_CHECKSUM == 0 || frame.len() < transport + 20 {
            return Cut::WHOLE;
        }
        let network = network_header(frame);
        let shortest = if network < transport && frame[network] >> 4 == 4 { 20 } else { 40 };
        let payload = match self.gso_type & !GSO_ECN {
            _ if network + shortest > transport => return Cut::WHOLE,
            GSO_TCP4 | GSO_TCP6 => match usize::from(frame[transport + 12] >> 4) * 4 {
                octets @ 20.. => transport + octets,
                _ => return Cut::WHOLE,
            },
            GSO_UDP => transport + 8,
            _ => return Cut::WHOLE,
        };
        // The limit leaves room for a VLAN tag that is put back later.
        match (
            u8::try_from(transport),
            u8::try_from(payload).ok().filter(|p| *p < u8::MAX - VLAN_TAG as u8).ok_or(()),
        ) {
            (Ok(transport), Ok(payload))
                if usize::from(payload) < frame.len() && self.gso_size > 0 =>
            {
                Cut { size: self.gso_size, transport, payload }
            }
            // A frame with longer headers (tunnels) is not segmented.
            _ => Cut::WHOLE,
        }
    }
}

impl PacketTx {
    fn new(
        socket: Socket,
        interface: &str,
        link: Arc<WatchedLink>,
        batch: usize,
        max_frame: u32,
        launch: Option<Launch>,
    ) -> Self {
        let mut messages = Messages::new();
        if launch.is_some() {
            messages.with_launch();
        }
        // A GSO frame becomes many frames, so a few slots suffice, and these stay in the cache.
        let slots = if max_frame > LONG_FRAME { GSO_BATCH } else { BATCH };
        Self {
            socket,
            interface: interface.to_owned(),
            link,
            slots: Slots::new(slots, max_frame as usize),
            lent: Lent::default(),
            batch,
            blocked: 0,
            refused: RefusalTracker::default(),
            messages,
            launch,
            cuts: false,
        }
    }

    /// Sends the next `n` of the lent frames in one system call. Returns the number that the kernel
    /// took.
    fn send_messages(&mut self, n: usize) -> io::Result<usize> {
        let slots = self.lent.range(n);
        let times = self.launch.as_ref().map(Launch::times);
        for i in slots.clone() {
            let batch = self.slots.batch(i, 1);
            let meta = batch.meta[0];
            if let Some(times) = times {
                self.messages.controls[i].at = times.of(meta.due);
            }
            let octets = &mut batch.base[..meta.len as usize];
            if self.cuts || !meta.cut.is_whole() {
                if !self.cuts {
                    // With the bypass, the kernel drops frames that it would have to segment for
                    // the interface.
                    self.socket.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 0)?;
                    self.socket.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
                    self.messages.with_virtio();
                    self.cuts = true;
                }
                self.messages.virtio[i] = VirtioHeader::of(octets, meta.cut);
            }
            self.messages.parts[i][1] =
                libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
        }
        let headers = &mut self.messages.headers[slots];
        // SAFETY: each header names one part or two, a frame in this queue's slots and the virtio
        // header in front of it, and perhaps a control message, which the kernel only reads.
        let sent = unsafe {
            libc::sendmmsg(self.socket.fd(), headers.as_mut_ptr(), n as _, libc::MSG_DONTWAIT as _)
        };
        Ok(sys::check(sent)? as usize)
    }

    /// Handles the error with which the kernel refused the next frame.
    fn refusal(&mut self, error: io::Error) -> Result<usize, SendError> {
        let next = self.lent.range(1).start;
        match error.raw_os_error() {
            // ENOBUFS has three causes: a full queue of the driver or of a veth's peer; a frame of
            // a kind that will never be taken; no carrier.
            Some(code @ (libc::EAGAIN | libc::ENOBUFS | libc::EINTR)) => {
                self.blocked += 1;
                if self.blocked.is_multiple_of(CHECK_LINK_AFTER)
                    && self.link.look() != LinkState::Up
                {
                    return self.no_link();
                }
                let len = self.slots.frame(next).1.len;
                if code == libc::ENOBUFS
                    && self.refused.again(len, || self.link.tx_dropped())
                    && self.link.state() == LinkState::Up
                {
                    self.lent.pass(1);
                    return Err(SendError::Frame("dropped_by_driver"));
                }
                Ok(0)
            }
            Some(libc::EMSGSIZE) => {
                self.lent.pass(1);
                Err(SendError::Frame("too_long"))
            }
            Some(libc::EINVAL) if !self.slots.frame(next).1.cut.is_whole() => {
                self.lent.pass(1);
                Err(SendError::Frame("not_cut"))
            }
            Some(libc::EINVAL) if self.slots.frame(next).0.len() < ETHERNET_HEADER as usize => {
                self.lent.pass(1);
                Err(SendError::Frame("too_short"))
            }
            Some(libc::ENETDOWN) => {
                self.link.look();
                self.no_link()
            }
            Some(libc::ENXIO | libc::ENODEV) => {
                self.link.link().lose(monotonic());
                self.no_link()
            }
            _ => Err(SendError::Port(error)),
        }
    }

    /// Sends nothing until the link is up again; fails if `on_link_down` makes the loss final.
    fn no_link(&mut self) -> Result<usize, SendError> {
        self.refused.forget();
        match self.link.state() {
            LinkState::Lost => Err(SendError::Port(self.link.link().error())),
            LinkState::Up | LinkState::Down => Ok(0),
        }
    }
}

impl TxQueue for PacketTx {
    fn lend(&mut self, want: usize) -> TxBatch<'_> {
        let n = want.min(self.slots.len());
        self.lent.lend(0, n);
        self.slots.batch(0, n)
    }

    fn reads_due(&self) -> bool {
        self.launch.is_some()
    }

    fn launches_after(&self) -> Nanos {
        self.launch.as_ref().map_or(Nanos::ZERO, Launch::later)
    }

    fn send(&mut self, n: usize) -> Result<usize, SendError> {
        // Asserts that `n` frames are lent.
        self.lent.range(n);
        if let Some(launch) = &mut self.launch {
            // In time: the queue has room for some hundred errors.
            launch.read_errors(&self.socket)?;
        }
        let mut taken = 0;
        while taken < n {
            let chunk = (n - taken).min(self.batch);
            match self.send_messages(chunk) {
                Ok(sent) => {
                    self.blocked = 0;
                    let (slots, gone) = (&self.slots, self.lent.range(sent));
                    self.refused.left(|| gone.map(|i| slots.frame(i).1.len).max().unwrap_or(0));
                    self.lent.pass(sent);
                    taken += sent;
                    // Returns a short count: the next call returns the reason, as sendmmsg reports
                    // no error once it has sent a frame.
                    if sent < chunk {
                        break;
                    }
                }
                Err(_) if taken > 0 => break,
                Err(error) => return self.refusal(error),
            }
        }
        Ok(taken)
    }

    fn finish(&mut self) -> io::Result<()> {
        // Frames that the driver has not sent yet are still charged to the socket.
        for _ in 0..1000 {
            if self.socket.unsent_octets()? == 0 {
                let Some(launch) = &mut self.launch else { return Ok(()) };
                launch.read_errors(&self.socket)?;
                return launch.check(&self.interface);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let text = format!("{}: frames still wait in the driver after 1 s", self.interface);
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    }
}

/// A receive ring of either version.
trait ReceiveRing: RxQueue {
    fn socket(&self) -> &Socket;
}

impl ReceiveRing for Ring {
    fn socket(&self) -> &Socket {
        &self.socket
    }
}

/// A TPACKET_V3 receive ring: the kernel fills blocks with frames and delivers whole blocks.
struct Ring {
    map: Map,
    socket: Socket,
    counters: Arc<PortCounters>,
    blocks: usize,
    block_octets: usize,
    /// Index of the current block: owned by this queue (`held`), or the next that the kernel will
    /// deliver.
    block: usize,
    /// Number of frames in the block that are still to be returned to the caller, and the offset of
    /// the first.
    left: usize,
    next: usize,
    /// Whether this queue owns the block and must return it to the kernel.
    held: bool,
    watch: Watch,
    frames: Vec<RxFrame>,
    clock: WallClock,
    /// Whether a [`VirtioHeader`] is in front of each frame.
    gro: bool,
    view: View,
    counts: RingCounters,
}

/// The form in which frames of the ring are returned.
#[derive(Clone, Copy, Debug)]
struct View {
    /// Maximum number of octets of a frame to return; the kernel may deliver more.
    snaplen: u32,
    cooked: bool,
    /// Whether frames that this host sends may be among the frames.
    outgoing: bool,
}

impl View {
    fn new(options: &Options, framing: &Framing, snaplen: u32) -> Self {
        Self { snaplen, cooked: framing.cooked, outgoing: options.direction != Direction::In }
    }
}

/// Octets that include all headers needed to segment a GSO frame: `Cut` stores their lengths in a
/// `u8`.
const GSO_HEADERS: u32 = 256;
/// Distance of the prefetch, in frames. For frames of one size the header can be located ahead,
/// because distances are equal; for mixed sizes the hardware prefetcher finds the headers.
const PREFETCH_AHEAD: usize = 8;
/// Octets of a frame to prefetch: a batch of these (64 x 2 KiB) fits a second-level cache.
const PREFETCH_OCTETS: usize = 2048;
/// Offset of the `sockaddr_ll` from a frame's `tpacket3_hdr`: 48 octets, aligned to 16.
const SOCKET_ADDRESS: usize = 48;

// struct tpacket_block_desc: version, offset_to_priv, then block_status, num_pkts,
// offset_to_first_pkt.
const BLOCK_STATUS: usize = 8;
const BLOCK_FRAMES: usize = 12;
const BLOCK_FIRST: usize = 16;

impl Ring {
    fn new(
        socket: Socket,
        link: Option<Arc<WatchedLink>>,
        options: &Options,
        framing: &Framing,
        snaplen: u32,
        counters: Arc<PortCounters>,
    ) -> io::Result<Self> {
        let (blocks, block_octets) = (options.blocks as usize, options.block_octets as usize);
        // Version and virtio header come before the ring: the kernel refuses both with EBUSY once a
        // ring exists.
        socket.set(
            libc::SOL_PACKET,
            libc::PACKET_VERSION,
            libc::tpacket_versions::TPACKET_V3 as c_int,
        )?;
        let gro = options.gro
            && framing.link_type == ETHERNET
            && socket.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1).is_ok();
        let frame = 2048;
        let request = libc::tpacket_req3 {
            tp_block_size: options.block_octets,
            tp_block_nr: options.blocks,
            // The kernel ignores the frame size when it fills blocks, but requires that it divides
            // them.
            tp_frame_size: frame,
            tp_frame_nr: options.block_octets / frame * options.blocks,
            tp_retire_blk_tov: options.retire_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_RX_RING, request).map_err(|error| {
            let size = (blocks * block_octets) >> 20;
            io::Error::new(
                error.kind(),
                format!("cannot make a receive ring of {size} MiB: {error}; try blocks=8"),
            )
        })?;
        let map = Map::new(&socket, blocks * block_octets)?;
        let frames = Vec::with_capacity(BATCH);
        let clock = WallClock::new();
        // Long enough for the kernel to deliver the last block, full or not.
        let settle = Duration::from_millis(u64::from(options.retire_ms) * 2 + 20);
        Ok(Self {
            map,
            socket,
            counters,
            blocks,
            block_octets,
            block: 0,
            left: 0,
            next: 0,
            held: false,
            watch: Watch::new(link, settle),
            frames,
            clock,
            gro,
            view: View::new(options, framing, snaplen),
            counts: RingCounters::default(),
        })
    }

    fn status(&self) -> &AtomicU32 {
        let at = self.map.at(self.block * self.block_octets + BLOCK_STATUS, 4).cast();
        // SAFETY: four aligned octets of the mapping, which both sides access as one word.
        unsafe { AtomicU32::from_ptr(at.as_ptr()) }
    }

    /// Takes the next full block from the kernel; false if there is none.
    fn take_block(&mut self) -> bool {
        while self.left == 0 {
            if mem::take(&mut self.held) {
                // No read of the old frames may move past the store that returns their block.
                fence(Ordering::Release);
                self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
                self.block = (self.block + 1) % self.blocks;
            }
            if self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                return false;
            }
            self.held = true;
            let at = self.map.at(self.block * self.block_octets, self.block_octets);
            // SAFETY: the status says that the kernel is done with the block; until it is returned,
            // only this queue refers to it.
            let block = unsafe { std::slice::from_raw_parts(at.as_ptr(), self.block_octets) };
            self.left = u32_at(block, BLOCK_FRAMES) as usize;
            self.next = u32_at(block, BLOCK_FIRST) as usize;
            self.clock.check();
        }
        true
    }
}

/// The kernel's totals: frames that passed the filter, and frames among them that did not fit the
/// ring.
#[derive(Clone, Copy, Debug, Default)]
struct RingCounters {
    received: u64,
    drops: u64,
}

impl RingCounters {
    fn read(&mut self, socket: &Socket) {
        // TPACKET_V2 fills only the first two.
        let zero = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        // Reading resets the kernel's counters; `tp_packets` includes `tp_drops`.
        if let Ok(stats) = socket.get(libc::SOL_PACKET, libc::PACKET_STATISTICS, zero) {
            self.received += u64::from(stats.tp_packets);
            self.drops += u64::from(stats.tp_drops);
        }
    }
}

/// Whether the interface was taken down or removed: packet sockets then have ENETDOWN as their
/// pending error, which reading SO_ERROR clears.
fn changed(socket: &Socket) -> io::Result<bool> {
    Ok(socket.get(libc::SOL_SOCKET, libc::SO_ERROR, 0 as c_int)? != 0)
}

impl RxQueue for Ring {
    fn receive(&mut self) -> io::Result<RxBatch<'_>> {
        self.frames.clear();
        if !self.take_block() {
            let socket = &self.socket;
            self.watch.nothing_came(|| changed(socket))?;
            return Ok(RxBatch::empty());
        }
        let at = self.map.at(self.block * self.block_octets, self.block_octets);
        // SAFETY: `take_block` made the block this queue's until it returns it, which takes `&mut
        // self`; nothing else refers to it now.
        let block = unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), self.block_octets) };
        for _ in 0..self.left.min(BATCH) {
            let (frame, step) = read_frame(block, self.next, &self.clock, self.gro, self.view);
            // The kernel may have written them on another CPU: prefetches transfer the cache lines
            // of a batch in parallel, whereas reads would do it one by one.
            sys::prefetch(block, self.next + PREFETCH_AHEAD * step, SOCKET_ADDRESS);
            sys::prefetch(block, frame.offset, (frame.len as usize).min(PREFETCH_OCTETS));
            self.frames.push(frame);
            self.next += step;
            self.left -= 1;
        }
        Ok(RxBatch { base: block, frames: &self.frames })
    }

    fn drops(&mut self) -> Vec<(&'static str, u64)> {
        self.counts.read(&self.socket);
        vec![("ring_full", self.counts.drops)]
    }

    fn received(&mut self) -> Option<u64> {
        self.counts.read(&self.socket);
        Some(self.counts.received)
    }

    fn stop(&mut self) -> io::Result<()> {
        self.counts.read(&self.socket);
        let before = self.counts.received;
        let Self { counters, counts, socket, .. } = self;
        counters.stop(
            || (0, 0),
            || {
                // The kernel delivers the open block when its timeout ends.
                socket.attach_drop_all_filter()?;
                counts.read(socket);
                Ok(counts.received - before)
            },
        )
    }

    fn poll_on<'a>(&'a self, descriptors: &mut Vec<BorrowedFd<'a>>) -> bool {
        descriptors.push(self.socket.as_fd());
        true
    }

    fn rest(&self) -> Nanos {
        // A quarter of the time in which the ring fills at the highest rate.
        let ring = (self.blocks * self.block_octets) as u64;
        Nanos(ring * 1_000_000_000 / MAX_FILL_RATE / 4)
    }
}

/// Maximum octets per second that a kernel puts into a ring: about the speed at which one core
/// copies in DRAM (8 GB/s measured on two-core virtual machines).
const MAX_FILL_RATE: u64 = 8_000_000_000;

/// A frame's entry in a ring, of either version.
#[derive(Clone, Copy, Debug)]
struct Entry {
    status: u32,
    /// Octets captured, and octets of the whole frame.
    len: u32,
    wire_len: u32,
    /// Offsets of the frame and of its `sockaddr_ll` from the frame's entry.
    offset: usize,
    address: usize,
    /// Arrival time in seconds and nanoseconds, `CLOCK_REALTIME`.
    time: (u32, u32),
    tci: u16,
    tpid: u16,
}

impl Entry {
    /// Reads a `tpacket3_hdr`. Also returns the distance to the next one.
    fn v3(header: &[u8; 48]) -> (Self, usize) {
        let entry = Self {
            status: u32_at(header, 20),
            len: u32_at(header, 12),
            wire_len: u32_at(header, 16),
            offset: u16_at(header, 24).into(),
            address: SOCKET_ADDRESS,
            time: (u32_at(header, 4), u32_at(header, 8)),
            tci: u32_at(header, 32) as u16,
            tpid: u16_at(header, 36),
        };
        (entry, u32_at(header, 0) as usize)
    }
}

/// The frame whose `tpacket3_hdr` is at `at`, with its VLAN tag put back, and the distance to the
/// next one.
fn read_frame(
    block: &mut [u8],
    at: usize,
    clock: &WallClock,
    gro: bool,
    view: View,
) -> (RxFrame, usize) {
    // One bounds check for the whole header.
    let header: &[u8; 48] =
        block[at..].first_chunk().expect("the kernel puts whole headers into blocks");
    let (entry, step) = Entry::v3(header);
    (make_frame(block, at, entry, clock, gro, view), step)
}

/// The frame whose entry is at `at`, with its VLAN tag put back.
fn make_frame(
    block: &mut [u8],
    at: usize,
    entry: Entry,
    clock: &WallClock,
    gro: bool,
    view: View,
) -> RxFrame {
    let Entry { mut len, mut wire_len, status, tci, tpid, .. } = entry;
    let time = clock.monotonic(entry.time.0, entry.time.1);
    let mut offset = at + entry.offset;
    let mut cut = Cut::WHOLE;
    // Offsets in the virtio header do not count the VLAN tag, so this comes before it is put back.
    if gro && block[offset - VIRTIO_HEADER + 1] != 0 {
        let (header, frame) =
            block[offset - VIRTIO_HEADER..offset + len as usize].split_at(VIRTIO_HEADER);
        cut = VirtioHeader::read(header).cut(frame);
    }
    // `sll_pkttype` is octet 10 of a `sockaddr_ll`.
    let outgoing = view.outgoing && block[at + entry.address + 10] == libc::PACKET_OUTGOING;
    if view.cooked {
        let added = cook(block, at + entry.address, offset, (status, tpid, tci));
        (offset, len, wire_len) = (offset - added, len + added as u32, wire_len + added as u32);
    } else if status & libc::TP_STATUS_VLAN_VALID != 0 {
        let has_tpid = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let tpid = if has_tpid { tpid } else { libc::ETH_P_8021Q as u16 };
        // The tag goes into the headroom, where the socket address was, which is not read again.
        block.copy_within(offset..offset + 12, offset - VLAN_TAG);
        offset -= VLAN_TAG;
        block[offset + 12..offset + 14].copy_from_slice(&tpid.to_be_bytes());
        block[offset + 14..offset + 16].copy_from_slice(&tci.to_be_bytes());
        len += VLAN_TAG as u32;
        wire_len += VLAN_TAG as u32;
        if !cut.is_whole() {
            let tag = VLAN_TAG as u8;
            (cut.transport, cut.payload) = (cut.transport + tag, cut.payload + tag);
        }
    }
    // A frame that a process has copied from another interface lacks the flag even if its checksum
    // is partial, because the kernel does not know its origin.
    let partial = status & libc::TP_STATUS_CSUMNOTREADY != 0;
    RxFrame { offset, len: len.min(view.snaplen), wire_len, cut, time, outgoing, partial }
}

/// Puts a LINKTYPE_LINUX_SLL2 header in front of the packet at `offset`, whose `sockaddr_ll` is at
/// `address`; with its VLAN tag, if it had one. Returns the number of octets added.
fn cook(
    block: &mut [u8],
    address: usize,
    offset: usize,
    (status, tpid, tci): (u32, u16, u16),
) -> usize {
    let from: [u8; 20] =
        *block[address..].first_chunk().expect("the kernel puts whole addresses into blocks");
    let protocol = [from[2], from[3]];
    let mut header = [0; SLL2 + VLAN_TAG];
    header[..2].copy_from_slice(&protocol);
    header[4..8].copy_from_slice(&u32_at(&from, 4).to_be_bytes());
    header[8..10].copy_from_slice(&u16_at(&from, 8).to_be_bytes());
    // `sll_pkttype`, `sll_halen`, `sll_addr`: in the same order in both headers.
    header[10..SLL2].copy_from_slice(&from[10..]);
    let mut added = SLL2;
    if status & libc::TP_STATUS_VLAN_VALID != 0 {
        let has_tpid = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let tpid = if has_tpid { tpid } else { libc::ETH_P_8021Q as u16 };
        header[..2].copy_from_slice(&tpid.to_be_bytes());
        header[SLL2..SLL2 + 2].copy_from_slice(&tci.to_be_bytes());
        header[SLL2 + 2..].copy_from_slice(&protocol);
        added += VLAN_TAG;
    }
    block[offset - added..offset].copy_from_slice(&header[..added]);
    added
}

fn u32_at(octets: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
}

fn u16_at(octets: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([octets[at], octets[at + 1]])
}

/// Converts the kernel's timestamps, which are in `CLOCK_REALTIME`, to the engine's clock.
struct WallClock {
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, ns: constant, except for steps of the wall clock.
    offset: i64,
    checked: Nanos,
}

/// How long an outdated offset may be used after a step of the wall clock.
const CHECK_EVERY: Nanos = Nanos(100_000_000);

impl WallClock {
    fn new() -> Self {
        Self { offset: Self::measure(16).0, checked: monotonic() }
    }

    /// The offset and its uncertainty, from the best of `tries` measurements.
    fn measure(tries: usize) -> (i64, i64) {
        let bracket = |_| {
            let before = sys::clock(libc::CLOCK_MONOTONIC);
            let wall = sys::clock(libc::CLOCK_REALTIME);
            let after = sys::clock(libc::CLOCK_MONOTONIC);
            (wall - before.midpoint(after), after - before)
        };
        (0..tries).map(bracket).min_by_key(|(_, width)| *width).unwrap_or_default()
    }

    fn check(&mut self) {
        let now = monotonic();
        if now.saturating_sub(self.checked) < CHECK_EVERY {
            return;
        }
        self.checked = now;
        let (offset, width) = Self::measure(1);
        // Smaller differences are measurement noise, and must not disturb the order of timestamps.
        if (offset - self.offset).abs() > width + 1000 {
            self.offset = Self::measure(16).0;
        }
    }

    fn monotonic(&self, secs: u32, nanos: u32) -> Nanos {
        let wall = i64::from(secs) * 1_000_000_000 + i64::from(nanos);
        Nanos((wall - self.offset).max(0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use squall_wire::Segments;

    use super::*;

    #[test]
    fn a_missing_interface_is_looked_for_in_labs() {
        for (wanted, labs, expected) in [
            ("eth7", &[][..], ""),
            ("veth-a", &[], "squall lab up"),
            ("veth-c", &["lab"], "squall lab exec --"),
            ("veth-c", &["test"], "squall lab exec test --"),
            ("veth-c", &["lab", "test"], "(lab, test)"),
        ] {
            let hint = hint_of(wanted, labs);
            assert!(hint.contains(expected) && (hint.is_empty() == expected.is_empty()), "{hint}");
        }
    }

    #[test]
    fn launch_times_need_a_discipline_that_keeps_them() {
        let error = |text: &str| open(&text.parse().unwrap()).err().unwrap().to_string();
        let text = error("af_packet:lo,launch=1000");
        assert!(text.contains("lo has ") && text.contains("tc qdisc replace dev lo"), "{text}");
        let text = error("af_packet:lo,launch=1000,bypass");
        assert!(text.contains("launch and bypass exclude each other"), "{text}");
        let text = error("af_packet:lo,launch=0");
        assert!(text.contains("expected microseconds from the due time"), "{text}");
    }

    /// The kernel refuses malformed control messages. `lo` does not queue, so frames leave at once.
    #[test]
    fn each_frame_has_its_launch_time() {
        let address: Address = "af_packet:lo".parse().unwrap();
        let Ok(socket) = packet_socket(&address) else {
            println!("SKIPPED: packet sockets need root");
            return;
        };
        let launch = Launch::new(&socket, Discipline::Fq, Nanos(1_000_000)).unwrap();
        socket.bind_packet(1, 0).unwrap();
        let link = PortLink::new("lo", 1, OnLinkDown::Wait).unwrap().watch().unwrap();
        let mut tx = PacketTx::new(socket, "lo", link, BATCH, 60, Some(launch));
        assert!(tx.reads_due());
        assert_eq!(tx.launches_after(), Nanos(1_000_000));
        let now = monotonic();
        let mut batch = tx.lend(3);
        for i in 0..3 {
            // Ethernet with a type for experiments (IEEE 802 clause 9.2.4).
            batch.frame(i, 60, now + Nanos(i as u64))[12..14].copy_from_slice(&[0x88, 0xb5]);
        }
        assert_eq!(tx.send(3).unwrap(), 3);
        let times = tx.messages.controls[..3].iter().map(|control| control.at - now.0);
        assert_eq!(times.collect::<Vec<_>>(), [1_000_000, 1_000_001, 1_000_002]);
        tx.finish().unwrap();
    }

    #[test]
    fn every_accepted_gso_header_can_be_cut() {
        let mut seed = 1u64;
        let mut random = || {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (seed >> 33) as usize
        };
        let mut cuts = 0;
        for _ in 0..200_000 {
            let mut frame: Vec<u8> = (0..14 + random() % 120).map(|_| random() as u8).collect();
            for at in (12..frame.len() - 1).step_by(4).take(random() % 4) {
                frame[at..at + 2].copy_from_slice(&[0x81, 0]);
            }
            let at = 14 + random() % 5 * 4;
            if let Some(octet) = frame.get_mut(at) {
                *octet = if random() % 2 == 0 { 0x45 } else { 0x60 };
            }
            let header = VirtioHeader {
                flags: NEEDS_CHECKSUM,
                gso_type: [GSO_TCP4, GSO_TCP6, GSO_UDP][random() % 3],
                hdr_len: random() as u16,
                gso_size: (random() % 40) as u16,
                csum_start: (random() % 100) as u16,
                csum_offset: random() as u16,
            };
            let cut = header.cut(&frame);
            if cut.is_whole() {
                continue;
            }
            cuts += 1;
            let segments =
                Segments::new(&frame, cut.size.into(), cut.transport.into(), cut.payload.into());
            assert_eq!(segments.count() as u32, cut.segments(frame.len() as u32));
            assert_eq!(cut.is_udp(), header.gso_type == GSO_UDP);
            let mut octets = 0;
            segments.for_each(&mut Vec::new(), |frame| octets += frame.len() as u64 + 4);
            assert_eq!(octets, cut.octets(frame.len() as u32));
        }
        assert!(cuts > 1000, "{cuts}");
    }
}
