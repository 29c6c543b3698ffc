//! What applications and outputs see of the stack.

use std::net::IpAddr;

use squall_units::{Cut, Nanos};

use crate::Socket;

/// A flow of a stack, until it is told [`Event::Gone`]; later the number is given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub u32);

/// Flows that share [`crate::Tunables`], counters and an output: a side of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u16);

impl ClassId {
    /// Of answers to packets that belong to no flow: resets, port unreachable.
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

/// What an application has said: the octets are its own affair ([`Application::copy`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Which of the application's messages.
    pub message: u32,
    /// Which of the flow's sendings of it, for messages that differ from time to time.
    pub nth: u32,
    /// Octets, at least 1. Over UDP a datagram.
    pub len: u32,
}

/// What speaks and listens over the flows of a stack. One value serves all flows: what belongs to
/// one flow is its `State`.
pub trait Application {
    /// Kept in each flow's record: at most 32 octets.
    type State: Copy + Default + Send;

    /// Something happened to the flow of `socket`.
    fn event(&mut self, socket: &mut Socket<'_, Self::State>, event: Event<'_>);

    /// Writes the octets of `piece` from `offset` on, `out.len()` of them. Called again for what is
    /// sent again: it must give the same octets each time.
    fn copy(&self, state: &Self::State, flow: &Tuple, piece: Piece, offset: u32, out: &mut [u8]);

    /// Somebody begins a flow to a local address and port on which nothing is known: the class and
    /// state with which it is taken, or `None` (a reset, or port unreachable).
    fn accept(&mut self, now: Nanos, flow: &Tuple) -> Option<(ClassId, Self::State)>;

    /// Whether somebody listens at the local address and port of `flow`, which is not begun by
    /// this: what is neither SYN, ACK nor reset is dropped there (RFC 9293 §3.10.7.2), and
    /// elsewhere reset.
    fn listens(&self, _flow: &Tuple) -> bool {
        false
    }

    /// Whether a datagram of `flow`, which is not known any more, belongs to one that we have
    /// ended: it came late, nobody is told that the port is closed.
    fn ended(&self, _flow: &Tuple) -> bool {
        false
    }
}

/// What happens to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The handshake is done; of a UDP flow, it begins.
    Established,
    /// The next octets of the peer's stream, in order; a datagram as a whole.
    Received(&'a [u8]),
    /// So many more octets of what was sent are acknowledged; all of it: `true`. TCP only.
    Acknowledged { octets: u32, all: bool },
    /// The peer sends no more.
    PeerClosed,
    /// The time that [`Socket::wake_at`] named has come.
    Timer,
    /// The flow has ended: the last event. What TCP still owes its peer (TIME-WAIT) it does by
    /// itself.
    Gone(Reason),
}

/// How a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// Both sides closed, and all was acknowledged; of UDP, we closed.
    Closed,
    /// By us.
    Aborted,
    /// By the peer, after the handshake.
    Reset,
    /// By the peer, before; of UDP, nobody listens there (ICMP port unreachable).
    Refused,
    /// An ICMP error said that the way or the host is not there.
    Unreachable,
    /// No answer to the SYN, or to ours that answered one.
    ConnectTimeout,
    /// No answer to what was sent again and again, or no end from a peer whom we had told ours.
    Timeout,
    /// No answer to keepalive probes.
    KeepaliveTimeout,
    /// UDP: nothing went either way for [`crate::Tunables::udp_idle`].
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

    /// As counters are named.
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

/// Room for what leaves.
pub trait Output {
    /// Packets from now on were due at this tick of real time: 2^16 ns, the lower half of their
    /// number. Those that answer others were due when these arrived.
    #[inline]
    fn due(&mut self, _tick: u32) {}

    /// Room for one IP packet of `len` octets, all of which the stack then writes; more than one
    /// segment's where `cut` says how it is to be cut (offsets from the start of the IP packet).
    /// `None`: full, ask again later. `class` is [`ClassId::STRAY`] for what belongs to no flow.
    fn packet(&mut self, class: ClassId, flow: &Tuple, len: usize, cut: Cut) -> Option<&mut [u8]>;
}
