//! Commands to a run in progress.

use std::sync::Arc;

use squall_flows::{Ignored, Interface, Load};
use squall_plan::{Part, PlanStream};
use squall_port::CommonClock;
use squall_profile::Stop;
use squall_program::Gap;
use squall_router::RouterOrder;
use squall_units::Nanos;

/// An action on a part of the traffic. Each source applies the actions that it supports and ignores
/// the others.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// `None`: all traffic.
    pub part: Option<Part>,
    pub action: Action,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Stops departures until [`Action::Resume`]. A template begins no flows; open flows continue,
    /// because peers would see a paused connection as a failure of the network.
    Pause,
    Resume,
    /// Starts a part that is new, or whose predecessors (`after`, `next`) have ended.
    Begin,
    Rate(Rate),
    /// Releases this number of held frames.
    Step(u64),
    Replace(Content),
    /// Flows ignore frames from these senders.
    Ignore(Arc<Ignored>),
    /// Flows of a port have these interfaces.
    Interfaces(usize, Arc<[Interface]>),
    /// An order for a native router of the plan, and the time after which its reverse follows.
    Router(usize, RouterOrder, Option<Nanos>),
    /// Moves the end of the run; the limit counts from the run's start.
    Limit(Stop),
    /// Sets the clock that stamps frames.
    Clock(CommonClock),
    /// Stops sending; receiving continues.
    Stop,
}

/// The new speed of a part.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rate {
    /// A stream's gap, from the next gap on.
    Gap(Gap),
    /// Speed factor of a replay's schedule: numerator and denominator.
    Speed((u64, u64)),
}

/// The new content of a part.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// A new stream. It starts after its start delay, on the worker that has the first queue of its
    /// port.
    Stream(Arc<PlanStream>),
    /// The new load, already checked by [`Load::can_become`].
    Load(Arc<Load>),
    Nothing,
}

impl Command {
    pub fn to_all(action: Action) -> Self {
        Self { part: None, action }
    }

    pub fn to(part: Part, action: Action) -> Self {
        Self { part: Some(part), action }
    }

    /// The number of the stream addressed; `Some(None)`: all streams; `None`: no stream.
    pub fn stream(&self) -> Option<Option<u32>> {
        match self.part {
            None => Some(None),
            Some(Part::Stream(number)) => Some(Some(number as u32)),
            Some(_) => None,
        }
    }

    /// As [`Command::stream`], for templates.
    pub fn template(&self) -> Option<Option<usize>> {
        match self.part {
            None => Some(None),
            Some(Part::Template(number)) => Some(Some(number)),
            Some(_) => None,
        }
    }

    /// Whether the command addresses replay `number`.
    pub fn is_for_replay(&self, number: u32) -> bool {
        self.part.is_none_or(|part| part == Part::Replay(number as usize))
    }
}
