//! Commands to a run in progress.

use std::sync::Arc;

use squall_flows::{Ignored, Load};
use squall_plan::{Part, PlanStream};
use squall_port::CommonClock;
use squall_profile::Stop;
use squall_program::Gap;

/// An action on a part of the traffic. Each source does what it can of it, and no more.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// `None`: of all traffic.
    pub part: Option<Part>,
    pub action: Action,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Nothing of it leaves until it is resumed; of a template no flow begins, those that are open
    /// go on.
    Pause,
    Resume,
    /// What it has waited for has ended, or it is new.
    Begin,
    Rate(Rate),
    /// Releases this number of held frames.
    Step(u64),
    Replace(Content),
    /// No flow takes frames of these senders.
    Ignore(Arc<Ignored>),
    /// The run ends at what this says, counted from its beginning.
    Limit(Stop),
    /// Frames are stamped by this clock.
    Clock(CommonClock),
    /// Nothing more is sent; receiving goes on.
    Stop,
}

/// How fast a part goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rate {
    /// A stream, from the next gap on.
    Gap(Gap),
    /// Speed factor of a replay's schedule: numerator and denominator.
    Speed((u64, u64)),
}

/// What a part sends from now on.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// A new stream. It starts after its start delay, on the worker that serves the port and has the
    /// first queue.
    Stream(Arc<PlanStream>),
    /// The load, which [`Load::can_become`] has allowed.
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

    /// The number of the stream that is meant, `None`: of all; or no stream is.
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

    /// Whether the replay of that number is meant.
    pub fn is_for_replay(&self, number: u32) -> bool {
        self.part.is_none_or(|part| part == Part::Replay(number as usize))
    }
}
