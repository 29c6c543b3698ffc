//! What applications and outputs see of the stack.

use std::net::IpAddr;

use squall_units::{Cut, Nanos};

/// A flow of a stack, until it is told [`Event::Gone`]; then the number is given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub u32);

/// Flows that share [`Tunables`], counters and an output: a side of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u16);

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which of the application's messages.
    pub message: u32,
    /// Which of the flow's sendings of it, for messages that differ from time to time.
    pub nth: u32,
    /// Octets, at least 1.
    pub len: u32,
}

/// What speaks and listens over the flows of a stack. One value serves all flows: what belongs to one flow is its `State`.
pub trait Application {
    /// Kept in each flow's record: at most 32 octets.
    type State: Copy + Default + Send;

    /// Something happened to the flow of `socket`.
    fn event(&mut self, socket: &mut Socket<'_, Self::State>, event: Event<'_>);

    /// Writes the octets of `piece` from `offset` on, `out.len()` of them. Called again for what is sent again: it must give
    /// the same octets each time.
    fn copy(&self, state: &Self::State, flow: &Tuple, piece: Piece, offset: u32, out: &mut [u8]);

    /// Somebody begins a flow to a local address and port on which nothing is known: the class and state with which it is
    /// taken, or `None` (a reset, or port unreachable).
    fn accept(&mut self, now: Nanos, flow: &Tuple) -> Option<(ClassId, Self::State)>;
}

/// What happens to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The handshake is done.
    Established,
    /// The next octets of the peer's stream, in order; a datagram as a whole.
    Received(&'a [u8]),
    /// So many more octets of what was sent are acknowledged; all of it: `true`.
    Acknowledged { octets: u32, all: bool },
    /// The peer sends no more.
    PeerClosed,
    /// The time that [`Socket::wake_at`] named has come.
    Timer,
    /// The flow has ended and its number is free. The last event.
    Gone(Reason),
}

/// How a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Both sides closed, and all was acknowledged.
    Closed,
    /// By us.
    Aborted,
    /// By the peer, after the handshake.
    Reset,
    /// By the peer, before.
    Refused,
    /// An ICMP error said that nobody is there.
    Unreachable,
    /// No answer to the SYN.
    ConnectTimeout,
    /// No answer to what was sent again and again.
    Timeout,
    /// No answer to keepalive probes.
    KeepaliveTimeout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    #[error("a flow with these addresses and ports exists already")]
    InUse,
    #[error("the stack has no room for more flows")]
    Full,
}

/// A flow in the hands of the application.
pub struct Socket<'a, S> {
    pub(crate) state: &'a mut S,
}

/// Room for what leaves.
pub trait Output {
    /// Room for one IP packet of `len` octets; more than one segment's where `cut` says how it is to be cut. `None`: full,
    /// ask again later.
    fn packet(&mut self, class: ClassId, flow: &Tuple, len: usize, cut: Cut) -> Option<&mut [u8]>;
}

/// How the flows of a class behave; TRex's names in brackets.
#[derive(Clone, Debug)]
pub struct Tunables {
    /// Octets of payload a segment, before options (tcp.mss). 536..=65,495
    pub mss: u16,
}
