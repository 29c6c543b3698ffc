//! rtnetlink requests for links: list them with their counters, make a veth pair, change and delete
//! them. Also finds the user at the other end of a TCP connection (sock_diag).
//!
//! A netlink socket stays in the network namespace of the thread that opened it, whereas sysfs
//! shows the namespace in which it was mounted.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::BorrowedFd,
};

use libc::c_int;
use squall_port::InterfaceCounters;
use squall_units::{MacAddr, Nanos, be16};

use crate::sys::Socket;

/// A link as the kernel describes it.
#[derive(Clone, Debug, Default)]
pub struct Link {
    pub name: String,
    pub index: u32,
    pub mtu: u32,
    /// Largest MTU that the device supports; 0: no known limit.
    pub max_mtu: u32,
    /// `None` if the address is not one of 6 octets.
    pub mac: Option<MacAddr>,
    /// Bits `IFF_UP`, `IFF_RUNNING`, ...
    pub flags: u32,
    /// `veth`, `bridge`, ...; empty for hardware.
    pub kind: String,
    /// Hardware type: `ARPHRD_ETHER`, ...
    pub hardware: u16,
    pub tx_queues: u32,
    pub rx_queues: u32,
    /// Text set with `ip link set alias`; empty if unset.
    pub alias: String,
    /// Index of the bridge or bond that it belongs to; 0: none.
    pub master: u32,
    /// Index of the lower link (a VLAN has one), if that is in this namespace; 0: none.
    pub lower: u32,
    pub counters: InterfaceCounters,
    /// The device has a carrier; the kernel's flags may follow a second later.
    pub carrier: bool,
    /// How often the carrier appeared or disappeared.
    pub carrier_changes: u32,
    /// Attached programs; [`GenericNetlink::xdp_features`] finds the driver's features.
    pub xdp: Xdp,
}

/// XDP support of a driver, and attached programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Xdp {
    /// `None`: this kernel does not report them (before 6.3).
    pub features: Option<XdpFeatures>,
    /// Mode and identifier of each attached program (`bpftool prog show id N`).
    pub programs: Vec<(XdpMode, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the network stack, on copies.
    Generic,
    /// In the driver.
    Native,
    Hardware,
}

/// enum netdev_xdp_act, netdev_xsk_flags and netdev_xdp_rx_metadata
/// (Documentation/netlink/specs/netdev.yaml).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// Programs run in the driver.
    pub native: bool,
    /// Programs may redirect to other interfaces.
    pub redirect: bool,
    /// Programs on other interfaces may redirect to this one. For a veth only while its peer uses
    /// NAPI (for an XDP program or GRO).
    pub redirect_target: bool,
    /// AF_XDP sockets can send and receive without copies.
    pub zero_copy: bool,
    /// Programs and sockets support frames of several buffers (jumbo).
    pub multi_buffer: bool,
    pub hardware: bool,
    /// AF_XDP sockets get transmit timestamps.
    pub tx_timestamp: bool,
    pub tx_checksum: bool,
    /// The hardware holds a frame until its launch time.
    pub launch_time: bool,
    /// Programs can read the receive timestamp.
    pub rx_timestamp: bool,
}

impl Link {
    pub fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    /// Whether the link is up, with a carrier.
    pub fn is_running(&self) -> bool {
        self.is_up() && self.flags & libc::IFF_RUNNING as u32 != 0
    }

    /// Whether frames can leave and arrive now.
    pub fn can_carry(&self) -> bool {
        self.is_running() && self.carrier
    }
}

#[derive(Debug)]
pub struct Netlink(Socket);

// linux/if_link.h, linux/veth.h: the libc crate lacks some.
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
const VETH_INFO_PEER: u16 = 1;
const IFLA_MAX_MTU: u16 = 51;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_CARRIER: u16 = 33;
const IFLA_CARRIER_CHANGES: u16 = 35;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;

// linux/rtnetlink.h
const RTEXT_FILTER_SKIP_STATS: u32 = 8;

const IFINFO_LEN: usize = 16;
const RTMSG_LEN: usize = 12;
const ATTRIBUTE_TYPE: u16 = 0x3fff;

impl Netlink {
    pub fn open() -> io::Result<Self> {
        Socket::new(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE).map(Self)
    }

    pub fn links(&self) -> io::Result<Vec<Link>> {
        let mut links = Vec::new();
        let request = Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, 0, 0, 0);
        self.exchange(request, |message| links.extend(Link::parse(message)))?;
        Ok(links)
    }

    pub fn link(&self, index: u32) -> io::Result<Link> {
        let mut link = None;
        let request = Request::new(libc::RTM_GETLINK, libc::NLM_F_ACK, index, 0, 0);
        self.exchange(request, |message| link = Link::parse(message))?;
        link.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }

    /// As [`Netlink::link`], for a hundred requests per second: without the IPv6 statistics, which
    /// the kernel would sum up over all CPUs, and with one message as the answer.
    pub fn link_state(&self, index: u32) -> io::Result<Link> {
        let mut request = Request::new(libc::RTM_GETLINK, 0, index, 0, 0);
        request.attribute(libc::IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
        self.0.send(&request.finish())?;
        let mut buffer = [0; 1 << 14];
        let len = loop {
            match self.0.recv(&mut buffer) {
                // The answer must not stay for the next request.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => break received?,
            }
        };
        let link = match split_message(&buffer[..len]) {
            Some((kind, body, _)) if c_int::from(kind) == libc::NLMSG_ERROR => {
                let code = body.first_chunk().map_or(-libc::EPROTO, |c| i32::from_ne_bytes(*c));
                return Err(io::Error::from_raw_os_error(-code));
            }
            message => message.and_then(|(_, body, _)| Link::parse(body)),
        };
        link.ok_or_else(|| io::Error::from_raw_os_error(libc::EPROTO))
    }

    /// The queueing disciplines of interface `index`; none if frames are not queued.
    pub fn qdiscs(&self, index: u32) -> io::Result<Vec<Qdisc>> {
        let mut all = Vec::new();
        let request = Request::with_header(libc::RTM_GETQDISC, libc::NLM_F_DUMP, &[0; TCMSG_LEN]);
        self.exchange(request, |message| {
            all.extend(Qdisc::parse(message).filter(|(of, _)| *of == index).map(|(_, one)| one));
        })?;
        Ok(all)
    }

    /// Makes two veth interfaces, which are each other's peer.
    pub fn add_veth(&self, names: [&str; 2], mtu: u32, queues: u32) -> io::Result<()> {
        let mut r = Request::new(
            libc::RTM_NEWLINK,
            libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL,
            0,
            // ARP is off, because the lab's interfaces must not send frames of their own.
            libc::IFF_NOARP as u32,
            libc::IFF_NOARP as u32,
        );
        let describe = |r: &mut Request, name: &str| {
            r.attribute(libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
            r.attribute(libc::IFLA_MTU, &mtu.to_ne_bytes());
            r.attribute(libc::IFLA_NUM_TX_QUEUES, &queues.to_ne_bytes());
            r.attribute(libc::IFLA_NUM_RX_QUEUES, &queues.to_ne_bytes());
        };
        describe(&mut r, names[0]);
        r.nest(libc::IFLA_LINKINFO, |r| {
            r.attribute(libc::IFLA_INFO_KIND, b"veth\0");
            r.nest(libc::IFLA_INFO_DATA, |r| {
                r.nest(VETH_INFO_PEER, |r| {
                    r.octets.extend(ifinfo(0, libc::IFF_NOARP as u32, libc::IFF_NOARP as u32));
                    describe(r, names[1]);
                });
            });
        });
        self.exchange(r, |_| ())
    }

    /// Removes an interface. The peer of a veth goes with it.
    pub fn remove(&self, index: u32) -> io::Result<()> {
        self.exchange(Request::new(libc::RTM_DELLINK, libc::NLM_F_ACK, index, 0, 0), |_| ())
    }

    pub fn set_up(&self, index: u32) -> io::Result<()> {
        let up = (libc::IFF_UP | libc::IFF_NOARP) as u32;
        self.exchange(Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, index, up, up), |_| ())
    }

    pub fn set_down(&self, index: u32) -> io::Result<()> {
        self.exchange(
            Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, index, 0, libc::IFF_UP as u32),
            |_| (),
        )
    }

    pub fn set_alias(&self, index: u32, alias: &str) -> io::Result<()> {
        let mut r = Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, index, 0, 0);
        r.attribute(libc::IFLA_IFALIAS, alias.as_bytes());
        self.exchange(r, |_| ())
    }

    /// Indexes of the interfaces of all default routes, from any routing table.
    pub fn default_routes(&self) -> io::Result<Vec<u32>> {
        let mut out = Vec::new();
        let request = Request::with_header(libc::RTM_GETROUTE, libc::NLM_F_DUMP, &[0; RTMSG_LEN]);
        self.exchange(request, |route| {
            // struct rtmsg: family, dst_len, ..., type at 7. A prefix of length 0 is the default
            // route.
            if route.get(1) != Some(&0) || route.get(7) != Some(&libc::RTN_UNICAST) {
                return;
            }
            for (kind, value) in attributes(route.get(RTMSG_LEN..).unwrap_or_default()) {
                match kind {
                    libc::RTA_OIF => out.push(u32_of(value)),
                    libc::RTA_MULTIPATH => out.extend(next_hops(value)),
                    _ => {}
                }
            }
        })?;
        Ok(out)
    }

    /// Prevents a link-local address: without one there is no neighbor discovery or router
    /// solicitation on this interface.
    pub fn set_no_ipv6_address(&self, index: u32) -> io::Result<()> {
        let mut r = Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, index, 0, 0);
        r.nest(libc::IFLA_AF_SPEC, |r| {
            r.nest(libc::AF_INET6 as u16, |r| {
                r.attribute(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE])
            });
        });
        self.exchange(r, |_| ())
    }

    /// Sends a request and passes each message of the answer, without its netlink header, to
    /// `each`.
    fn exchange(&self, request: Request, each: impl FnMut(&[u8])) -> io::Result<()> {
        exchange(&self.0, request, each)
    }
}

/// A queueing discipline of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qdisc {
    pub kind: String,
    pub handle: u32,
    /// TC_H_ROOT (all ones) for the root; else the class of another discipline.
    pub parent: u32,
    /// Attributes of this kind.
    pub options: Vec<u8>,
}

// linux/rtnetlink.h: struct tcmsg, and its attributes.
const TCMSG_LEN: usize = 20;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;

impl Qdisc {
    /// The discipline, and the index of its interface.
    fn parse(message: &[u8]) -> Option<(u32, Self)> {
        // struct tcmsg: family, padding, ifindex, handle, parent, info.
        let [index, handle, parent] = [4, 8, 12].map(|at| message.get(at..at + 4).map(u32_of));
        let mut qdisc = Self { handle: handle?, parent: parent?, ..Self::default() };
        for (kind, value) in attributes(message.get(TCMSG_LEN..)?) {
            match kind {
                TCA_KIND => qdisc.kind = text(value),
                TCA_OPTIONS => qdisc.options = value.to_vec(),
                _ => {}
            }
        }
        Some((index?, qdisc))
    }
}

/// Notifications of changes to the links of a namespace.
#[derive(Debug)]
pub struct LinkEvents(Socket);

const RTNLGRP_LINK: c_int = 1;

impl LinkEvents {
    pub fn open() -> io::Result<Self> {
        let socket = Socket::new(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
        socket.set(libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, RTNLGRP_LINK)?;
        Ok(Self(socket))
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Reads all pending notifications. Returns whether any concerns link `index`, or any was lost.
    pub fn concerns(&self, index: u32) -> bool {
        let mut buffer = vec![0; 1 << 16];
        let mut any = false;
        loop {
            let len = match self.0.recv_now(&mut buffer) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return any,
                // The socket's buffer overflowed.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    any = true;
                    continue;
                }
                Err(_) => return true,
            };
            let mut rest = &buffer[..len];
            while let Some((_, body, next)) = split_message(rest) {
                any |= body.get(4..8).is_some_and(|octets| u32_of(octets) == index);
                rest = next;
            }
        }
    }
}

/// A family of generic netlink.
#[derive(Debug)]
pub struct GenericNetlink {
    socket: Socket,
    family: u16,
}

// linux/genetlink.h, linux/netdev.h
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_DEV_XDP_RX_METADATA_FEATURES: u16 = 5;
const NETDEV_A_DEV_XSK_FEATURES: u16 = 6;
const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_CMD_NAPI_SET: u8 = 14;
const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_ID: u16 = 2;
const NETDEV_A_NAPI_DEFER_HARD_IRQS: u16 = 5;
const NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT: u16 = 6;
const GENERIC_HEADER_LEN: usize = 4;
const GENERIC_VERSION: u8 = 1;

/// How the kernel polls a queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Napi {
    pub id: u32,
    /// Polls without frames before the device may interrupt again.
    pub deferrals: u32,
    /// The time from one of these polls to the next.
    pub timeout: Nanos,
}

impl GenericNetlink {
    /// `None` where this kernel has no such family.
    pub fn open(family: &str) -> Option<Self> {
        let socket = Socket::new(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC).ok()?;
        let mut request = Request::generic(GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
        request.attribute(CTRL_ATTR_FAMILY_NAME, &[family.as_bytes(), &[0]].concat());
        let mut number = None;
        exchange(&socket, request, |message| {
            let id = generic_attributes(message).find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_ID);
            number = id.and_then(|(_, value)| Some(u16::from_ne_bytes(*value.first_chunk()?)));
        })
        .ok()?;
        Some(Self { socket, family: number? })
    }

    /// For the family `netdev`: sets `xdp.features`, if the kernel reports them.
    pub fn xdp_features(&self, index: u32, xdp: &mut Xdp) {
        let mut request = Request::generic(self.family, NETDEV_CMD_DEV_GET);
        request.attribute(NETDEV_A_DEV_IFINDEX, &index.to_ne_bytes());
        let _ = exchange(&self.socket, request, |message| {
            let find = |wanted| generic_attributes(message).find(|(kind, _)| *kind == wanted);
            let flags = |wanted| {
                find(wanted)
                    .and_then(|(_, v)| v.first_chunk())
                    .map_or(0, |c: &[u8; 8]| u64::from_ne_bytes(*c))
            };
            if find(NETDEV_A_DEV_XDP_FEATURES).is_some() {
                let (act, xsk) =
                    (flags(NETDEV_A_DEV_XDP_FEATURES), flags(NETDEV_A_DEV_XSK_FEATURES));
                let metadata = flags(NETDEV_A_DEV_XDP_RX_METADATA_FEATURES);
                xdp.features = Some(XdpFeatures {
                    native: act & 1 != 0,
                    redirect: act & 2 != 0,
                    redirect_target: act & 4 != 0,
                    zero_copy: act & 8 != 0,
                    hardware: act & 16 != 0,
                    multi_buffer: act & 32 != 0,
                    tx_timestamp: xsk & 1 != 0,
                    tx_checksum: xsk & 2 != 0,
                    launch_time: xsk & 4 != 0,
                    rx_timestamp: metadata & 1 != 0,
                });
            }
        });
    }
}

impl GenericNetlink {
    /// For the family `netdev`: the queues of an interface that is up.
    pub fn napis(&self, index: u32) -> io::Result<Vec<Napi>> {
        let mut request = Request::with_header(
            self.family,
            libc::NLM_F_DUMP,
            &[NETDEV_CMD_NAPI_GET, GENERIC_VERSION, 0, 0],
        );
        request.attribute(NETDEV_A_NAPI_IFINDEX, &index.to_ne_bytes());
        let mut all = Vec::new();
        exchange(&self.socket, request, |message| {
            let mut napi = Napi { id: 0, deferrals: 0, timeout: Nanos::ZERO };
            for (kind, value) in generic_attributes(message) {
                match kind {
                    NETDEV_A_NAPI_ID => napi.id = u32_of(value),
                    NETDEV_A_NAPI_DEFER_HARD_IRQS => napi.deferrals = u32_of(value),
                    // Has 8 octets if it needs them.
                    NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT => {
                        let long = value.first_chunk().map(|octets| u64::from_ne_bytes(*octets));
                        napi.timeout = Nanos(long.unwrap_or_else(|| u32_of(value).into()));
                    }
                    _ => {}
                }
            }
            all.push(napi);
        })?;
        Ok(all)
    }

    /// For the family `netdev`, from Linux 6.13 on: changes how a queue is polled.
    pub fn set_napi(&self, napi: &Napi) -> io::Result<()> {
        let mut request = Request::generic(self.family, NETDEV_CMD_NAPI_SET);
        request.attribute(NETDEV_A_NAPI_ID, &napi.id.to_ne_bytes());
        request.attribute(NETDEV_A_NAPI_DEFER_HARD_IRQS, &napi.deferrals.to_ne_bytes());
        request.attribute(NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT, &napi.timeout.0.to_ne_bytes());
        exchange(&self.socket, request, |_| {})
    }
}

fn generic_attributes(message: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    attributes(message.get(GENERIC_HEADER_LEN..).unwrap_or_default())
}

/// Sends a request and passes the body of each message in the answer to `each`.
fn exchange(socket: &Socket, request: Request, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    socket.send(&request.finish())?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let len = socket.recv(&mut buffer)?;
        let mut rest = &buffer[..len];
        while let Some((kind, body, next)) = split_message(rest) {
            match c_int::from(kind) {
                libc::NLMSG_DONE => return Ok(()),
                libc::NLMSG_ERROR => {
                    let code = body.first_chunk().map_or(-libc::EPROTO, |c| i32::from_ne_bytes(*c));
                    return if code == 0 {
                        Ok(())
                    } else {
                        Err(io::Error::from_raw_os_error(-code))
                    };
                }
                _ => each(body),
            }
            rest = next;
        }
    }
}

/// Type, body, and the octets after the message.
fn split_message(octets: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = u32::from_ne_bytes(*octets.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*octets.get(4..)?.first_chunk()?);
    Some((kind, octets.get(16..len)?, octets.get(len.next_multiple_of(4)..).unwrap_or(&[])))
}

pub(crate) fn attributes(mut octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(*octets.first_chunk()?));
        let kind = u16::from_ne_bytes(*octets.get(2..)?.first_chunk()?) & ATTRIBUTE_TYPE;
        let value = octets.get(4..len)?;
        octets = octets.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.split(|&c| c == 0).next().unwrap_or_default()).into_owned()
}

fn u32_of(value: &[u8]) -> u32 {
    value.first_chunk().map_or(0, |c| u32::from_ne_bytes(*c))
}

impl Link {
    fn parse(message: &[u8]) -> Option<Self> {
        let mut link = Self {
            hardware: u16::from_ne_bytes(*message.get(2..)?.first_chunk()?),
            index: u32_of(message.get(4..8)?),
            flags: u32_of(message.get(8..12)?),
            // Kernels before IFLA_CARRIER do not report it.
            carrier: true,
            ..Self::default()
        };
        let mut elsewhere = false;
        for (kind, value) in attributes(message.get(IFINFO_LEN..)?) {
            match kind {
                libc::IFLA_IFNAME => link.name = text(value),
                libc::IFLA_MTU => link.mtu = u32_of(value),
                libc::IFLA_ADDRESS => link.mac = value.try_into().ok().map(MacAddr),
                libc::IFLA_IFALIAS => link.alias = text(value),
                libc::IFLA_MASTER => link.master = u32_of(value),
                libc::IFLA_LINK => link.lower = u32_of(value),
                // The index of a veth's peer, for example, may belong to another namespace.
                IFLA_LINK_NETNSID => elsewhere = true,
                libc::IFLA_NUM_TX_QUEUES => link.tx_queues = u32_of(value),
                libc::IFLA_NUM_RX_QUEUES => link.rx_queues = u32_of(value),
                libc::IFLA_LINKINFO => {
                    let kind = attributes(value).find(|(kind, _)| *kind == libc::IFLA_INFO_KIND);
                    link.kind = kind.map(|(_, v)| text(v)).unwrap_or_default();
                }
                libc::IFLA_STATS64 => link.counters = counters(value),
                IFLA_CARRIER => link.carrier = value.first() != Some(&0),
                IFLA_CARRIER_CHANGES => link.carrier_changes = u32_of(value),
                IFLA_MAX_MTU => link.max_mtu = u32_of(value),
                IFLA_XDP => link.xdp.programs = attributes(value).filter_map(xdp_program).collect(),
                _ => {}
            }
        }
        if elsewhere {
            link.lower = 0;
        }
        Some(link)
    }
}

/// Interfaces of the `struct rtnexthop`s of a multipath route.
fn next_hops(mut octets: &[u8]) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(*octets.first_chunk()?));
        let index = u32_of(octets.get(4..8)?);
        octets = octets.get(len.max(8).next_multiple_of(4)..).unwrap_or(&[]);
        Some(index)
    })
}

/// The user of the process at the other end of a TCP connection within this machine; that socket is
/// at `peer`, connected to `local`. `None`: the socket does not exist (any more), or its user is
/// unknown in this namespace.
pub fn tcp_user(peer: SocketAddr, local: SocketAddr) -> io::Result<Option<u32>> {
    let (peer, local) = (canonical(peer), canonical(local));
    // struct inet_diag_req_v2: family, protocol, ext, pad, states, then struct inet_diag_sockid.
    let family = if peer.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut request = vec![family as u8, libc::IPPROTO_TCP as u8, 0, 0];
    request.extend(u32::MAX.to_ne_bytes());
    request.extend(peer.port().to_be_bytes());
    request.extend(local.port().to_be_bytes());
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => [&ip.octets()[..], &[0; 12]].concat(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let addresses = [octets(peer.ip()), octets(local.ip())].concat();
    request.extend(&addresses);
    request.extend(0u32.to_ne_bytes());
    // INET_DIAG_NOCOOKIE, twice: any socket with these addresses.
    request.extend([0xff; 8]);
    let socket = Socket::new(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_SOCK_DIAG)?;
    // With NLM_F_ACK the answer ends like all others.
    let request = Request::with_header(SOCK_DIAG_BY_FAMILY, libc::NLM_F_ACK, &request);
    let mut user = None;
    let outcome = exchange(&socket, request, |found| {
        // struct inet_diag_msg: family, state, timer, retrans; the same id; expires, rqueue,
        // wqueue, uid, inode.
        let (Some(&[family, state]), Some(id), Some(&[uid, inode])) = (
            found.first_chunk::<2>(),
            found.get(4..40).and_then(|id| id.first_chunk::<36>()),
            found.get(64..72).map(|two| [u32_of(&two[..4]), u32_of(&two[4..])]).as_ref(),
        ) else {
            return;
        };
        // Without such a connection the kernel returns the listener of that port. Addresses are
        // compared in canonical form: an IPv6 socket with an IPv4 peer (gRPC, Java, Go and .NET
        // prefer such sockets) is found by its IPv4 addresses but listed with ::ffff:127.0.0.1.
        let same = socket_ids(family, id) == [peer, local];
        let open = matches!(state, TCP_ESTABLISHED | TCP_FIN_WAIT1 | TCP_FIN_WAIT2);
        // A socket that its process has closed has no inode and is reported as root's, even if
        // another user opened it.
        if same && open && inode != 0 && uid != OVERFLOW_UID {
            user = Some(uid);
        }
    });
    match outcome {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        other => other.map(|()| user),
    }
}

/// Both ends in a `struct inet_diag_sockid`: own port, other port, own address, other address.
fn socket_ids(family: u8, id: &[u8; 36]) -> [SocketAddr; 2] {
    [(0, 4), (2, 20)].map(|(port, address)| {
        let octets: [u8; 16] = std::array::from_fn(|i| id[address + i]);
        let ip = match c_int::from(family) {
            libc::AF_INET => IpAddr::from([octets[0], octets[1], octets[2], octets[3]]),
            _ => IpAddr::from(octets).to_canonical(),
        };
        SocketAddr::new(ip, be16(id, port))
    })
}

/// The canonical form: a listener on all addresses reports an IPv4 peer as `::ffff:127.0.0.1`.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

// linux/sock_diag.h, net/tcp_states.h, linux/highuid.h
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const TCP_ESTABLISHED: u8 = 1;
const TCP_FIN_WAIT1: u8 = 4;
const TCP_FIN_WAIT2: u8 = 5;
const OVERFLOW_UID: u32 = 65_534;

fn xdp_program((kind, value): (u16, &[u8])) -> Option<(XdpMode, u32)> {
    let mode = match kind {
        IFLA_XDP_DRV_PROG_ID => XdpMode::Native,
        IFLA_XDP_SKB_PROG_ID => XdpMode::Generic,
        IFLA_XDP_HW_PROG_ID => XdpMode::Hardware,
        _ => return None,
    };
    Some((mode, u32_of(value)))
}

/// `struct rtnl_link_stats64`.
fn counters(value: &[u8]) -> InterfaceCounters {
    let at = |i: usize| {
        value.get(8 * i..).and_then(|v| v.first_chunk()).map_or(0, |c| u64::from_ne_bytes(*c))
    };
    InterfaceCounters {
        rx_packets: at(0),
        tx_packets: at(1),
        rx_octets: at(2),
        tx_octets: at(3),
        rx_errors: at(4),
        tx_errors: at(5),
        rx_dropped: at(6),
        tx_dropped: at(7),
        rx_fifo: at(14),
        rx_missed: at(15),
    }
}

struct Request {
    octets: Vec<u8>,
}

fn ifinfo(index: u32, flags: u32, change: u32) -> [u8; IFINFO_LEN] {
    let mut octets = [0; IFINFO_LEN];
    octets[4..8].copy_from_slice(&index.to_ne_bytes());
    octets[8..12].copy_from_slice(&flags.to_ne_bytes());
    octets[12..16].copy_from_slice(&change.to_ne_bytes());
    octets
}

impl Request {
    fn new(kind: u16, flags: c_int, index: u32, ifi_flags: u32, change: u32) -> Self {
        Self::with_header(kind, flags, &ifinfo(index, ifi_flags, change))
    }

    fn generic(family: u16, command: u8) -> Self {
        Self::with_header(family, libc::NLM_F_ACK, &[command, GENERIC_VERSION, 0, 0])
    }

    fn with_header(kind: u16, flags: c_int, header: &[u8]) -> Self {
        let mut octets = vec![0; 16];
        octets[4..6].copy_from_slice(&kind.to_ne_bytes());
        octets[6..8].copy_from_slice(&((flags | libc::NLM_F_REQUEST) as u16).to_ne_bytes());
        octets.extend(header);
        Self { octets }
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.octets.extend((value.len() as u16 + 4).to_ne_bytes());
        self.octets.extend(kind.to_ne_bytes());
        self.octets.extend(value);
        self.octets.resize(self.octets.len().next_multiple_of(4), 0);
    }

    fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.octets.len();
        self.attribute(kind, &[]);
        fill(self);
        let len = (self.octets.len() - start) as u16;
        self.octets[start..start + 2].copy_from_slice(&len.to_ne_bytes());
    }

    fn finish(mut self) -> Vec<u8> {
        let len = self.octets.len() as u32;
        self.octets[..4].copy_from_slice(&len.to_ne_bytes());
        self.octets
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_state_of_a_link_is_that_of_the_link() {
        let netlink = Netlink::open().unwrap();
        // The loopback interface of every namespace has index 1.
        for _ in 0..3 {
            let (link, state) = (netlink.link(1).unwrap(), netlink.link_state(1).unwrap());
            assert_eq!((&*state.name, state.flags, state.mtu), (&*link.name, link.flags, link.mtu));
            assert_eq!(
                (state.carrier, state.carrier_changes),
                (link.carrier, link.carrier_changes)
            );
        }
        let gone = netlink.link_state(i32::MAX as u32).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn a_discipline_has_its_interface_its_place_and_its_options() {
        let mut message = [0u8; TCMSG_LEN];
        for (at, word) in [(4, 7u32), (8, 0x8001_0000), (12, u32::MAX)] {
            message[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        let mut request = Request::with_header(libc::RTM_NEWQDISC, 0, &message);
        request.attribute(TCA_KIND, b"etf\0");
        request.nest(TCA_OPTIONS, |r| r.attribute(1, &[9; 12]));
        let message = &request.octets[16..];
        let (index, qdisc) = Qdisc::parse(message).unwrap();
        let found = (index, &*qdisc.kind, qdisc.handle, qdisc.parent);
        assert_eq!(found, (7, "etf", 0x8001_0000, u32::MAX));
        assert_eq!(attributes(&qdisc.options).collect::<Vec<_>>(), [(1, &[9; 12][..])]);
        assert_eq!(Qdisc::parse(&message[..19]), None);
        // A loopback interface queues nothing, and every namespace has one, with index 1.
        assert!(Netlink::open().unwrap().qdiscs(1).unwrap().iter().all(|one| one.kind != "mq"));
    }

    #[test]
    fn the_user_of_a_connection_is_known_until_its_socket_is_closed() {
        // Listening address, and the address that the client connects to; also with dual-stack IPv6
        // sockets, which many libraries use.
        for (address, to) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("127.0.0.1:0", "::ffff:127.0.0.1"),
            ("[::]:0", "127.0.0.1"),
            ("[::]:0", "::ffff:127.0.0.1"),
        ] {
            let to: IpAddr = to.parse().unwrap();
            let listener = match TcpListener::bind(address) {
                Ok(listener) => listener,
                Err(error) => {
                    println!("SKIPPED: {address}: {error}");
                    continue;
                }
            };
            let port = listener.local_addr().unwrap().port();
            let client = match TcpStream::connect((to, port)) {
                Ok(client) => client,
                Err(error) => {
                    println!("SKIPPED: {to}: {error}");
                    continue;
                }
            };
            let (server, peer) = listener.accept().unwrap();
            let user = || tcp_user(peer, server.local_addr().unwrap()).unwrap();
            assert_eq!(user(), Some(crate::sys::euid()), "{address}, {to}");
            // A half-closed connection still has its user.
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(user(), Some(crate::sys::euid()), "{address}, {to}");
            // The kernel now reports user 0; a child that another test has just forked may hold the
            // socket until it calls exec.
            drop(client);
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while user().is_some() && std::time::Instant::now() < deadline {
                std::thread::yield_now();
            }
            assert_eq!(user(), None, "{address}, {to}");
            drop(server);
        }
    }

    #[test]
    fn a_listener_of_the_same_port_is_not_the_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        assert_eq!(tcp_user(at, "127.0.0.1:9".parse().unwrap()).unwrap(), None);
    }
}
