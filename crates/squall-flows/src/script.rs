//! Scripts: conversations, each with its own programs, addresses and start time.

use std::{collections::HashMap, net::IpAddr};

use squall_apps::{Program, ProgramId, Transport};
use squall_tcp::{ClassId, FlowKind, Tuple};
use squall_units::Nanos;

/// Conversations that a load plays in addition to the flows of its templates, or instead of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// The load's templates from this number up to the next script's first belong to this script:
    /// its conversations are counted by them. They have no arrivals.
    pub first: usize,
    /// In the order of `begin`.
    pub conversations: Vec<Conversation>,
    /// Number of loops; `None`: until the run ends.
    pub loops: Option<u64>,
    /// Shortest time from the start of one loop to the start of the next. A loop starts when the
    /// last flow of the previous loop has ended, so that no conversation finds its own addresses
    /// and ports in use.
    pub period: Nanos,
    /// Maximum number of conversations open at the same time; further ones wait. Each worker gets a
    /// share.
    pub at_once: Option<u64>,
}

/// One flow of a script.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    /// Start, relative to the start of the loop.
    pub begin: Nanos,
    /// The template that counts its flow and provides its tunables: [`crate::Load::templates`].
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

    /// The tuple as the client sees it.
    pub(crate) fn of_client(&self) -> Tuple {
        let ((local, local_port), (remote, remote_port)) = (self.client_end, self.server_end);
        Tuple { kind: self.kind(), local, local_port, remote, remote_port }
    }

    fn of_server(&self) -> Tuple {
        let ((remote, remote_port), (local, local_port)) = (self.client_end, self.server_end);
        Tuple { kind: self.kind(), local, local_port, remote, remote_port }
    }
}

/// Selects the program that serves a new flow.
///
/// A client whose address and port are in the script is identified by them; if several
/// conversations have these, each new flow takes the next one. A flow from any other address
/// (behind a NAT) takes the next one of all the server's conversations. One worker of a port plays
/// all of a script, because a packet from behind a NAT does not show its conversation (ADR 0040).
#[derive(Debug, Default)]
pub(crate) struct Serving {
    by_tuple: HashMap<Tuple, Turns>,
    by_server: HashMap<(FlowKind, IpAddr, u16), Turns>,
}

/// Programs that are used in turn.
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

    /// The program for a client address and port in the script.
    pub fn take(&mut self, flow: &Tuple) -> Option<(ClassId, ProgramId)> {
        self.by_tuple.get_mut(flow).map(Turns::take)
    }

    /// The program for a client whose address and port are not in the script: a device between the
    /// ports may have translated them.
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
