//! Conversations that are played as somebody has written them down: each with programs, addresses
//! and a beginning of its own.

use std::{collections::HashMap, net::IpAddr};

use squall_apps::{Program, ProgramId, Transport};
use squall_tcp::{ClassId, FlowKind, Tuple};
use squall_units::Nanos;

/// What a load plays beside its templates' flows, or instead of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// The load's templates from this number on, up to the next script's, are its own: the kinds by
    /// which its conversations are counted. They begin nothing by themselves.
    pub first: usize,
    /// In the order of their beginnings.
    pub conversations: Vec<Conversation>,
    /// `None`: until the run ends.
    pub loops: Option<u64>,
    /// From the beginning of one loop to that of the next, at least; a loop begins when the last
    /// flow of the one before is gone.
    pub period: Nanos,
    /// Conversations that are open at once at most; further ones wait. Of each worker its share.
    pub at_once: Option<u64>,
}

/// One flow of a script.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    /// From the beginning of the loop.
    pub begin: Nanos,
    /// Among whose flows it is counted, and whose tunables it has: [`crate::Load::templates`].
    pub template: usize,
    pub client: Program,
    pub server: Program,
    pub client_end: (IpAddr, u16),
    pub server_end: (IpAddr, u16),
}

impl Conversation {
    fn kind(&self) -> FlowKind {
        match self.client.transport {
            Transport::Tcp => FlowKind::Tcp,
            Transport::Udp => FlowKind::Udp,
        }
    }

    /// As its client sees it.
    pub(crate) fn of_client(&self) -> Tuple {
        let ((local, local_port), (remote, remote_port)) = (self.client_end, self.server_end);
        Tuple { kind: self.kind(), local, local_port, remote, remote_port }
    }

    fn of_server(&self) -> Tuple {
        let ((remote, remote_port), (local, local_port)) = (self.client_end, self.server_end);
        Tuple { kind: self.kind(), local, local_port, remote, remote_port }
    }
}

/// Which program serves whom.
///
/// A client that comes from its own address and port is known by them; when it comes again, the
/// next of their conversations is its own. Who comes from elsewhere (behind a NAT) is served as the
/// next of all that speak with this server.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    by_tuple: HashMap<Tuple, Turns>,
    by_server: HashMap<(FlowKind, IpAddr, u16), Turns>,
}

/// Programs that are taken in turn.
#[derive(Debug, Default)]
struct Turns {
    all: Vec<(ClassId, ProgramId)>,
    next: usize,
}

impl Serving {
    pub fn add(&mut self, conversation: &Conversation, class: ClassId, program: ProgramId) {
        let tuple = conversation.of_server();
        self.by_tuple.entry(tuple).or_default().all.push((class, program));
        self.by_server
            .entry((tuple.kind, tuple.local, tuple.local_port))
            .or_default()
            .all
            .push((class, program));
    }

    /// Who comes from the address and port that was written down.
    pub fn take(&mut self, flow: &Tuple) -> Option<(ClassId, ProgramId)> {
        self.by_tuple.get_mut(flow).map(Turns::take)
    }

    /// Who comes from elsewhere.
    pub fn take_other(&mut self, flow: &Tuple) -> Option<(ClassId, ProgramId)> {
        self.by_server.get_mut(&(flow.kind, flow.local, flow.local_port)).map(Turns::take)
    }

    pub fn listens(&self, flow: &Tuple) -> bool {
        self.by_server.contains_key(&(flow.kind, flow.local, flow.local_port))
    }
}

impl Turns {
    fn take(&mut self) -> (ClassId, ProgramId) {
        let taken = self.all[self.next];
        self.next = (self.next + 1) % self.all.len();
        taken
    }
}
