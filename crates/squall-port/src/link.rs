//! Whether a port's link is up: one side watches it and notes changes, queues and workers read it.

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

/// What a port does when its link goes down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLinkDown {
    /// Sending waits until the link is up again.
    #[default]
    Wait,
    /// The port is lost.
    Stop,
}

impl OnLinkDown {
    /// The option's name in an address.
    pub const KEY: &'static str = "on_link_down";

    /// Takes the option out of `address`.
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
    /// When that was seen, on the engine's clock.
    pub at: Nanos,
    pub up: bool,
}

/// The interface's MTU was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtuChange {
    /// When that was seen, on the engine's clock.
    pub at: Nanos,
    /// Octets without the link's header.
    pub from: u32,
    pub to: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LinkState {
    Up,
    /// Nothing can leave or arrive until it is up again.
    Down,
    /// Nothing will any more: [`Link::error`] says why.
    Lost,
}

/// The link of a port, as it was seen last. All queues of the port share it.
#[derive(Debug)]
pub struct Link {
    /// As messages call it.
    name: String,
    on_down: OnLinkDown,
    /// A [`LinkState`].
    state: AtomicU8,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    up: bool,
    gone: bool,
    events: Vec<LinkEvent>,
    /// Also where there is no room among them.
    last: Option<LinkEvent>,
    /// As it was seen last; `None` before that.
    mtu: Option<u32>,
    mtu_changes: Vec<MtuChange>,
}

/// A link that flaps for days must not fill the memory: later events are not kept.
const MOST_EVENTS: usize = 10_000;

impl Link {
    /// A link that is up.
    pub fn new(name: impl Into<String>, on_down: OnLinkDown) -> Self {
        let seen = Seen {
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
            seen: Mutex::new(seen),
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

    /// It was seen up or down at `at`; nothing happens if it was so before.
    pub fn set(&self, up: bool, at: Nanos) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.gone || seen.up == up {
            return;
        }
        seen.note(up, at);
        // A link that may not go down stays lost when it comes up again: the run is at its end.
        let state = match (up, self.on_down, self.state()) {
            (_, OnLinkDown::Stop, _) | (_, _, LinkState::Lost) => LinkState::Lost,
            (true, ..) => LinkState::Up,
            (false, ..) => LinkState::Down,
        };
        self.state.store(state as u8, Ordering::Release);
    }

    /// It went down and came up again between two looks, the second of them at `at`.
    pub fn flapped(&self, at: Nanos) {
        self.set(false, at);
        self.set(true, at);
    }

    /// The interface is gone at `at`, for good.
    pub fn lose(&self, at: Nanos) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.gone {
            if seen.up {
                seen.note(false, at);
            }
            seen.gone = true;
            self.state.store(LinkState::Lost as u8, Ordering::Release);
        }
    }

    /// Its MTU was seen at `at`; the first time, that is what changes are counted from.
    pub fn set_mtu(&self, mtu: u32, at: Nanos) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen.mtu.replace(mtu);
        if let Some(from) = before.filter(|from| *from != mtu)
            && seen.mtu_changes.len() < MOST_EVENTS
        {
            seen.mtu_changes.push(MtuChange { at, from, to: mtu });
        }
    }

    /// Changes of its MTU so far, in order.
    pub fn mtu_changes(&self) -> Vec<MtuChange> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).mtu_changes.clone()
    }

    /// What has happened so far, in order.
    pub fn events(&self) -> Vec<LinkEvent> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).events.clone()
    }

    /// The latest change.
    pub fn last(&self) -> Option<LinkEvent> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).last
    }

    /// How many of these there are.
    pub fn changes(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).events.len()
    }

    /// Why a port whose link is [`LinkState::Lost`] is of no further use.
    pub fn error(&self) -> io::Error {
        let gone = self.seen.lock().unwrap_or_else(PoisonError::into_inner).gone;
        let (kind, why) = match gone {
            true => (io::ErrorKind::NotFound, "the interface is gone"),
            false => (io::ErrorKind::NetworkDown, "the link went down, and on_link_down=stop"),
        };
        io::Error::new(kind, format!("{}: {why}", self.name))
    }
}

impl Seen {
    fn note(&mut self, up: bool, at: Nanos) {
        self.up = up;
        self.last = Some(LinkEvent { at, up });
        if self.events.len() < MOST_EVENTS {
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
        link.flapped(Nanos(5));
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
        for (mtu, at) in [(1500, 1), (1500, 2), (500, 3), (1500, 4)] {
            link.set_mtu(mtu, Nanos(at));
        }
        let change = |at, from, to| MtuChange { at: Nanos(at), from, to };
        assert_eq!(link.mtu_changes(), [change(3, 1500, 500), change(4, 500, 1500)]);

        let link = Link::new("eth1", OnLinkDown::Stop);
        link.flapped(Nanos(1));
        assert_eq!(link.state(), LinkState::Lost);
        assert_eq!(link.error().to_string(), "eth1: the link went down, and on_link_down=stop");
    }
}
