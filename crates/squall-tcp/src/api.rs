//! Interface to applications and outputs.

use std::net::IpAddr;

use squall_units::{Cut, Nanos};
use squall_wire::Ipv6Octets;

use crate::Socket;

/// A flow of a stack, valid until its [`Event::Gone`]; then the number is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub u32);

/// Flows that share [`crate::Tunables`], counters and an output: one side of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u16);

impl ClassId {
    /// Class for answers to packets that belong to no flow: resets, port unreachable.
    pub const STRAY: Self = Self(u16::MAX);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowKind {
    Tcp,
    Udp,
}

/// Both ends of a flow, as this stack sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    pub kind: FlowKind,
    pub local: IpAddr,
    pub local_port: u16,
    pub remote: IpAddr,
    pub remote_port: u16,
}

/// A part of an application's data. The stack does not interpret it: [`Application::copy`] writes
/// the octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Identifies the message within the application.
    pub message: u32,
    /// How often the flow has already sent this message, for messages whose content varies.
    pub nth: u32,
    /// Octets, at least 1. For UDP: the length of the datagram.
    pub len: u32,
}

/// Opens, accepts and serves flows of a stack. One value serves all flows; each flow has its own
/// `State`.
pub trait Application {
    /// Stored in each flow's record: at most 32 octets.
    type State: Copy + Default + Send;

    /// Handles an event of the flow that `socket` accesses.
    fn event(&mut self, socket: &mut Socket<'_, Self::State>, event: Event<'_>);

    /// Handles all events of one segment of a flow without outstanding data, with the same effects
    /// as one by one. `now`: real time. `None`: nothing has changed, and the events follow one by
    /// one.
    fn at_once(
        &mut self,
        _state: &mut Self::State,
        _flow: FlowId,
        _now: Nanos,
        _events: Events<'_>,
    ) -> Option<Deed> {
        None
    }

    /// All octets of `piece` with their [`squall_wire::checksum::sum`], if they are the same in all
    /// flows and sendings.
    fn fixed(&self, _piece: Piece) -> Option<(&[u8], u64)> {
        None
    }

    /// Writes `out.len()` octets of `piece` from `offset` on. Must write the same octets on every
    /// call, because retransmissions call it again.
    fn copy(&self, state: &Self::State, flow: &Tuple, piece: Piece, offset: u32, out: &mut [u8]);

    /// A peer opens a flow to a local address and port. Returns its class and state, or `None` to
    /// refuse it (a reset, or port unreachable).
    fn accept(&mut self, now: Nanos, flow: &Tuple) -> Option<(ClassId, Self::State)>;

    /// Divides the state of a flow that waits into its own part and the part that many flows
    /// have in common, which is then stored once. `None`: the flow keeps its record.
    fn divide(_state: &Self::State) -> Option<StateParts> {
        None
    }

    /// The state that [`Application::divide`] has divided.
    fn join(_parts: &StateParts) -> Self::State {
        Self::State::default()
    }

    /// Whether a service listens at the local address and port of `flow`; opens no flow. A segment
    /// that is neither SYN, ACK nor RST is dropped by a listener and reset otherwise (RFC 9293
    /// §3.10.7.1, §3.10.7.2).
    fn listens(&self, _flow: &Tuple) -> bool {
        false
    }

    /// Whether `datagram` (its payload) may begin the unknown `flow`, if a service listens there.
    /// Others are late: they belong to a flow that has ended, and are dropped.
    fn begins(&self, _flow: &Tuple, _datagram: &[u8]) -> bool {
        true
    }

    /// The flow to which a datagram (its payload) of the unknown `flow` belongs, because its peer
    /// has moved to another address or port, as QUIC allows (RFC 9000 section 9). Only flows with
    /// the same local end get such datagrams.
    fn moved(&self, _flow: &Tuple, _datagram: &[u8]) -> Option<FlowId> {
        None
    }

    /// Whether a datagram of the unknown `flow` belongs to a flow that this side has ended: it is
    /// then late, and is not answered with port unreachable.
    fn ended(&self, _flow: &Tuple) -> bool {
        false
    }
}

/// An application's state of a flow, divided by [`Application::divide`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateParts {
    pub own: [u32; 3],
    pub common: [u32; 3],
}

/// The events of one segment, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events<'a> {
    pub established: bool,
    /// Sent data was acknowledged, all of it.
    pub acknowledged: bool,
    /// The next octets of the stream; empty: none.
    pub received: &'a [u8],
    pub peer_closed: bool,
}

/// The application's answer to [`Events`]: it sends a piece, then closes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deed {
    pub send: Option<Piece>,
    pub close: bool,
}

/// An event of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The handshake is complete; a UDP flow begins.
    Established,
    /// The next octets of the peer's stream, in order; for UDP, a whole datagram.
    Received(&'a [u8]),
    /// `octets` more of the sent data are acknowledged; `all`: no data is outstanding. TCP only.
    Acknowledged { octets: u32, all: bool },
    /// The peer has closed its direction.
    PeerClosed,
    /// The time of [`Socket::wake_at`] has come.
    Timer,
    /// All packets that arrived together were received, and others are about to be sent: see
    /// [`Socket::settle_later`].
    Settle,
    /// The flow has ended; this is its last event. The stack handles TIME-WAIT by itself.
    Gone(Reason),
}

/// How a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// Both sides closed and everything was acknowledged; for UDP, this side closed.
    Closed,
    /// This side aborted the flow.
    Aborted,
    /// The peer reset the flow after the handshake.
    Reset,
    /// The peer refused the flow before the handshake was complete; for UDP, nothing listens there
    /// (ICMP port unreachable).
    Refused,
    /// An ICMP error reported that the network or host is unreachable.
    Unreachable,
    /// No answer to the SYN or the SYN-ACK.
    ConnectTimeout,
    /// No answer to retransmissions, or no FIN from a peer that has acknowledged this side's.
    Timeout,
    /// No answer to keepalive probes.
    KeepaliveTimeout,
    /// UDP: no datagram in either direction for [`crate::Tunables::udp_idle`].
    Idle,
}

impl Reason {
    pub const COUNT: usize = 9;
    pub const ALL: [Self; Self::COUNT] = [
        Self::Closed,
        Self::Aborted,
        Self::Reset,
        Self::Refused,
        Self::Unreachable,
        Self::ConnectTimeout,
        Self::Timeout,
        Self::KeepaliveTimeout,
        Self::Idle,
    ];

    /// The reason's name among the counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Aborted => "aborted",
            Self::Reset => "reset",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::ConnectTimeout => "connect_timeout",
            Self::Timeout => "timeout",
            Self::KeepaliveTimeout => "keepalive_timeout",
            Self::Idle => "idle",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    #[error("a flow with these addresses and ports already exists")]
    InUse,
    #[error("the stack has no room for more flows")]
    Full,
    #[error("one end is IPv4, the other IPv6")]
    Family,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("the flow is already closed or aborted")]
    Closed,
    #[error("a piece must have at least one octet")]
    Empty,
    #[error("more than 1 GiB would be outstanding")]
    Full,
    #[error("the datagram does not fit into a packet")]
    TooLong,
}

/// Buffers for outgoing packets.
pub trait Output {
    /// Sets when the next packets were due: a tick of real time (2^16 ns; the lower half of its
    /// number). Answers were due when the packet that they answer arrived.
    #[inline]
    fn due(&mut self, _tick: u32) {}

    /// A buffer for one IP packet of `len` octets, all of which the stack then writes. It holds
    /// several segments if `cut` describes how to segment it (offsets from the start of the IP
    /// packet). `None`: full, ask again later. `class` is [`ClassId::STRAY`] for packets without a
    /// flow.
    fn packet(&mut self, class: ClassId, flow: &Tuple, len: usize, cut: Cut) -> Option<&mut [u8]>;

    /// As [`Output::packet`], for one segment over IPv4. Addresses and ports: local, remote.
    #[inline]
    fn segment4(
        &mut self,
        class: ClassId,
        addresses: [u32; 2],
        ports: [u16; 2],
        len: usize,
    ) -> Option<&mut [u8]> {
        self.packet(class, &tuple4(addresses, ports), len, Cut::WHOLE)
    }

    /// As [`Output::packet`], for one segment over IPv6. Addresses and ports: local, remote.
    #[inline]
    fn segment6(
        &mut self,
        class: ClassId,
        addresses: [Ipv6Octets; 2],
        ports: [u16; 2],
        len: usize,
    ) -> Option<&mut [u8]> {
        self.packet(class, &tuple6(addresses, ports), len, Cut::WHOLE)
    }
}

/// The ends of a TCP flow over IPv6. Addresses and ports: local, remote.
#[inline]
pub fn tuple6([local, remote]: [Ipv6Octets; 2], [local_port, remote_port]: [u16; 2]) -> Tuple {
    let (local, remote) = (IpAddr::V6(local.into()), IpAddr::V6(remote.into()));
    Tuple { kind: FlowKind::Tcp, local, local_port, remote, remote_port }
}

/// The ends of a TCP flow over IPv4. Addresses and ports: local, remote.
#[inline]
pub fn tuple4([local, remote]: [u32; 2], [local_port, remote_port]: [u16; 2]) -> Tuple {
    let address = |address: u32| IpAddr::V4(address.into());
    let (local, remote) = (address(local), address(remote));
    Tuple { kind: FlowKind::Tcp, local, local_port, remote, remote_port }
}
