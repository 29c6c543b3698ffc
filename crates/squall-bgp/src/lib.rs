//! BGP (RFC 4271) without sockets: octets and the time go in, octets and routes come out.
//!
//! A [`Session`] is the state machine of one peer, over up to two TCP connections that its caller
//! opens, feeds and closes. Received routes go to a [`Learner`]; [`Learnt`] is one that keeps them.
//! Routes to announce are packed once ([`Packed`]) for all sessions: an [`Envelope`] has what
//! differs between sessions, and the octets of UPDATEs are made of both when they are sent. Knows
//! no TCP, no addresses of the link, no clock, and chooses no best path.
#![forbid(unsafe_code)]

mod attributes;
mod capabilities;
mod learnt;
mod message;
mod notification;
mod packed;
mod prefix;
mod session;
mod update;

pub use attributes::{Envelope, Origin, PathSegment, RouteAttributes, SegmentKind, UpdateKind};
pub use capabilities::{AddPath, Families};
pub use learnt::{
    Learnt, LearntAttributes, LearntChange, LearntLimit, LearntRoute, LearntSet, Mixer,
};
pub use message::MOST;
pub use notification::{Notification, cease};
pub use packed::{Packed, PathIds, pack, room};
pub use prefix::{Family, Prefix};
pub use session::{
    Counters, EndReason, Input, LastError, MessageCounters, Negotiated, Output, PeerSettings,
    Session, State, Way,
};
pub use update::{FaultReason, Learner, Nlri, RawAttributes, UpdateFaults};

pub(crate) use capabilities::{Capabilities, RestartCapability};
pub(crate) use message::{HEADER, MOST_EXTENDED};

#[cfg(test)]
mod compared;
#[cfg(test)]
mod log;
#[cfg(test)]
mod properties;
