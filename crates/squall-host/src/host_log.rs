//! The last events of the hosts of a group.

use std::{collections::VecDeque, net::IpAddr};

use squall_units::Nanos;

/// The protocol of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogProtocol {
    Arp,
    Dhcp,
    Ipv6,
    Dhcp6,
    Dot1x,
    Pppoe,
    Multicast,
}

impl LogProtocol {
    /// The protocol's name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Arp => "arp",
            Self::Dhcp => "dhcp",
            Self::Ipv6 => "ipv6",
            Self::Dhcp6 => "dhcp6",
            Self::Dot1x => "802.1x",
            Self::Pppoe => "pppoe",
            Self::Multicast => "multicast",
        }
    }
}

/// Kind of an event, whose word is a type of message, a state, or a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Sent,
    Retransmitted,
    Received,
    /// The host is in another state, or what its state means has changed.
    State,
    Failed,
    /// A message was ignored.
    Ignored,
}

impl EventKind {
    /// The kind's name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Retransmitted => "retransmitted",
            Self::Received => "received",
            Self::State => "state",
            Self::Failed => "failed",
            Self::Ignored => "ignored",
        }
    }
}

/// An event of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostEvent {
    pub at: Nanos,
    /// Number of the host in its group, from 0.
    pub host: u32,
    pub protocol: LogProtocol,
    pub kind: EventKind,
    pub word: &'static str,
    /// The address that the event is about.
    pub address: Option<IpAddr>,
}

/// The events of a group, up to a limit. All hosts share it: a log of their own would cost each of
/// a million hosts memory, although few of them are ever shown.
#[derive(Clone, Debug, Default)]
pub struct HostLog {
    events: VecDeque<HostEvent>,
    limit: usize,
}

impl HostLog {
    /// Keeps the last `limit` events. All memory is allocated here, 48 octets for each event.
    pub fn new(limit: u32) -> Self {
        let limit = limit as usize;
        Self { events: VecDeque::with_capacity(limit), limit }
    }

    /// Adds an event. The oldest one makes room for it.
    pub fn add(&mut self, event: HostEvent) {
        if self.limit == 0 {
            return;
        }
        if self.events.len() == self.limit {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// The events of host number `host` that are still there, oldest first.
    pub fn of(&self, host: u32) -> impl Iterator<Item = &HostEvent> {
        self.events.iter().filter(move |event| event.host == host)
    }

    /// The time of the oldest event that is still there, of any host.
    pub fn since(&self) -> Option<Nanos> {
        self.events.front().map(|event| event.at)
    }

    /// Whether older events have made room for newer ones.
    pub fn is_full(&self) -> bool {
        self.events.len() == self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at: u64, host: u32) -> HostEvent {
        let (protocol, kind) = (LogProtocol::Dhcp, EventKind::Sent);
        HostEvent { at: Nanos(at), host, protocol, kind, word: "discover", address: None }
    }

    #[test]
    fn the_last_events_are_kept_and_no_memory_is_added() {
        let mut log = HostLog::new(4);
        let room = log.events.capacity();
        (0..100).for_each(|at| log.add(event(at, at as u32 % 2)));
        let times = |host| log.of(host).map(|event| event.at.0).collect::<Vec<_>>();
        assert_eq!((times(0), times(1)), (vec![96, 98], vec![97, 99]));
        assert_eq!((log.since(), log.is_full()), (Some(Nanos(96)), true));
        assert_eq!(log.events.capacity(), room);
    }

    #[test]
    fn without_room_there_are_no_events() {
        let mut log = HostLog::new(0);
        log.add(event(1, 0));
        assert_eq!((log.of(0).count(), log.since()), (0, None));
    }

    #[test]
    fn an_event_has_the_size_that_the_guide_gives() {
        assert!(size_of::<HostEvent>() <= 48, "{}", size_of::<HostEvent>());
    }
}
