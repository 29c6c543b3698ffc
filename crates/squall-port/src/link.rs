//! The state of a port's link: one side watches it and records changes; queues and workers read it.

use std::{
    io,
    str::FromStr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use squall_units::Nanos;

use crate::{Address, AddressError};

/// How a port reacts when its link goes down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLinkDown {
    /// Sending waits until the link is up again.
    #[default]
    Wait,
    /// The port is lost.
    Stop,
}

impl OnLinkDown {
    /// The option's key in an address.
    pub const KEY: &'static str = "on_link_down";

    /// Removes the option from `address` and returns its value.
    pub fn take(address: &mut Address) -> Result<Self, AddressError> {
        address.take(Self::KEY, "wait or stop").map(Option::unwrap_or_default)
    }
}

impl FromStr for OnLinkDown {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "wait" => Ok(Self::Wait),
            "stop" => Ok(Self::Stop),
            _ => Err(()),
        }
    }
}

/// The link went down, or came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkEvent {
    /// Time at which the change was seen, on the engine's clock.
    pub at: Nanos,
    pub up: bool,
}

/// The interface's MTU was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtuChange {
    /// Time at which the change was seen, on the engine's clock.
    pub at: Nanos,
    /// Octets without the link-layer header.
    pub from: u32,
    pub to: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LinkState {
    Up,
    /// No frame can leave or arrive until it is up again.
    Down,
    /// No frame will leave or arrive any more: [`Link::error`] has the reason.
    Lost,
}

/// The last known state of a port's link. All queues of the port share it.
#[derive(Debug)]
pub struct Link {
    /// Name for messages.
    name: String,
    on_down: OnLinkDown,
    /// A [`LinkState`]; atomic, so that queues read it in each call without the lock.
    state: AtomicU8,
    history: Mutex<History>,
}

#[derive(Debug)]
struct History {
    up: bool,
    gone: bool,
    events: Vec<LinkEvent>,
    /// The latest event; separate, because the list may be full.
    last: Option<LinkEvent>,
    /// The last known MTU; `None` until one is recorded.
    mtu: Option<u32>,
    mtu_changes: Vec<MtuChange>,
}

/// Limit of the events: a link that flaps for days must not fill the memory.
const MAX_EVENTS: usize = 10_000;

impl Link {
    /// Creates a link, which is up.
    pub fn new(name: impl Into<String>, on_down: OnLinkDown) -> Self {
        let history = History {
            up: true,
            gone: false,
            events: Vec::new(),
            last: None,
            mtu: None,
            mtu_changes: Vec::new(),
        };
        Self {
            name: name.into(),
            on_down,
            state: AtomicU8::new(LinkState::Up as u8),
            history: Mutex::new(history),
        }
    }

    #[inline]
    pub fn state(&self) -> LinkState {
        match self.state.load(Ordering::Acquire) {
            0 => LinkState::Up,
            1 => LinkState::Down,
            _ => LinkState::Lost,
        }
    }

    #[inline]
    pub fn is_up(&self) -> bool {
        self.state() == LinkState::Up
    }

    /// Records that the link was seen up or down at `at`; ignored if that is its state already.
    pub fn set(&self, up: bool, at: Nanos) {
        self.set_after(up, 0, at);
    }

    /// The same after `changes` of the carrier since the last event: with two or more, the link
    /// also changed between two polls, and these events are recorded with the time `at`. Returns
    /// how many changes are left: 1 if the carrier changed, but not yet the state.
    pub fn set_after(&self, up: bool, changes: u32, at: Nanos) -> u32 {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if history.gone {
            return 0;
        }
        let last = u32::from(history.up != up);
        let unseen = changes.saturating_sub(last);
        for _ in 0..(unseen / 2).min(MAX_EVENTS as u32) * 2 + last {
            let up = !history.up;
            history.note(up, at);
            // With `Stop` a link stays lost when it comes up again: the run is ending.
            let state = match (up, self.on_down, self.state()) {
                (_, OnLinkDown::Stop, _) | (_, _, LinkState::Lost) => LinkState::Lost,
                (true, ..) => LinkState::Up,
                (false, ..) => LinkState::Down,
            };
            self.state.store(state as u8, Ordering::Release);
        }
        unseen % 2
    }

    /// Records that the interface disappeared permanently at `at`.
    pub fn lose(&self, at: Nanos) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if !history.gone {
            if history.up {
                history.note(false, at);
            }
            history.gone = true;
            self.state.store(LinkState::Lost as u8, Ordering::Release);
        }
    }

    /// Records the MTU at `at`; changes are relative to the first one.
    pub fn set_mtu(&self, mtu: u32, at: Nanos) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let before = history.mtu.replace(mtu);
        if let Some(from) = before.filter(|from| *from != mtu)
            && history.mtu_changes.len() < MAX_EVENTS
        {
            history.mtu_changes.push(MtuChange { at, from, to: mtu });
        }
    }

    /// Changes of the MTU so far, in order.
    pub fn mtu_changes(&self) -> Vec<MtuChange> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).mtu_changes.clone()
    }

    /// Events so far, in order.
    pub fn events(&self) -> Vec<LinkEvent> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).events.clone()
    }

    /// The latest event.
    pub fn last(&self) -> Option<LinkEvent> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).last
    }

    /// Number of events.
    pub fn changes(&self) -> usize {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).events.len()
    }

    /// Why a port whose link is [`LinkState::Lost`] cannot be used any more.
    pub fn error(&self) -> io::Error {
        let gone = self.history.lock().unwrap_or_else(PoisonError::into_inner).gone;
        let (kind, why) = match gone {
            true => (io::ErrorKind::NotFound, "the interface is gone"),
            false => (io::ErrorKind::NetworkDown, "the link went down, and on_link_down=stop"),
        };
        io::Error::new(kind, format!("{}: {why}", self.name))
    }
}

impl History {
    fn note(&mut self, up: bool, at: Nanos) {
        self.up = up;
        self.last = Some(LinkEvent { at, up });
        if self.events.len() < MAX_EVENTS {
            self.events.push(LinkEvent { at, up });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_waits_or_is_lost_and_all_changes_are_kept() {
        let link = Link::new("eth1", OnLinkDown::Wait);
        link.set(true, Nanos(1));
        link.set(false, Nanos(2));
        link.set(false, Nanos(3));
        assert_eq!(link.state(), LinkState::Down);
        link.set(true, Nanos(4));
        assert_eq!(link.set_after(true, 2, Nanos(5)), 0);
        assert_eq!(link.state(), LinkState::Up);
        let event = |at, up| LinkEvent { at: Nanos(at), up };
        assert_eq!(
            link.events(),
            [event(2, false), event(4, true), event(5, false), event(5, true)]
        );
        link.lose(Nanos(6));
        link.set(true, Nanos(7));
        assert_eq!((link.state(), link.changes()), (LinkState::Lost, 5));
        assert_eq!(link.error().to_string(), "eth1: the interface is gone");

        let link = Link::new("eth1", OnLinkDown::Wait);
        // Down, up, and down again between two polls; then the carrier returns twice before the
        // state follows.
        assert_eq!(link.set_after(false, 3, Nanos(1)), 0);
        assert_eq!(link.set_after(false, 1, Nanos(2)), 1);
        assert_eq!(link.changes(), 3);
        assert_eq!(link.set_after(true, 3, Nanos(3)), 0);
        assert_eq!(link.set_after(true, u32::MAX, Nanos(4)), 1);
        let states: Vec<_> = link.events().iter().take(6).map(|event| event.up).collect();
        assert_eq!(states, [false, true, false, true, false, true]);
        assert_eq!((link.is_up(), link.changes()), (true, MAX_EVENTS));

        let link = Link::new("eth1", OnLinkDown::Wait);
        for (mtu, at) in [(1500, 1), (1500, 2), (500, 3), (1500, 4)] {
            link.set_mtu(mtu, Nanos(at));
        }
        let change = |at, from, to| MtuChange { at: Nanos(at), from, to };
        assert_eq!(link.mtu_changes(), [change(3, 1500, 500), change(4, 500, 1500)]);

        let link = Link::new("eth1", OnLinkDown::Stop);
        assert_eq!(link.set_after(true, 2, Nanos(1)), 0);
        assert_eq!(link.state(), LinkState::Lost);
        assert_eq!(link.error().to_string(), "eth1: the link went down, and on_link_down=stop");
    }
}
