//! Scripts: conversations, each with its own programs, addresses and start time.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use squall_apps::{Program, ProgramId, Transport};
use squall_host::{ConversationEnds, HostTable};
use squall_tcp::{ClassId, FlowKind, Tuple};
use squall_units::Nanos;

use crate::Failure;

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
    /// If the clients of its template are hosts, the address is replaced by that of the host
    /// that is next in turn when it begins.
    pub client_end: (IpAddr, u16),
    pub server_end: (IpAddr, u16),
    /// Conversations with the same number have the same host.
    pub party: Option<u32>,
}

/// The end of a conversation whose client is a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostedFlow {
    /// Its 0-based number, over all of the load's scripts.
    pub number: u32,
    /// The address of the host; `None`: it did not begin.
    pub client: Option<IpAddr>,
    /// Why it did not begin: a name of [`crate::NotBegun`], or `address_lost`, if the host of its
    /// party had lost the address.
    pub not_begun: Option<&'static str>,
    /// Why its client failed, if it has begun and failed.
    pub failure: Option<Failure>,
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
///
/// The script has no addresses of clients that are hosts: these enter the conversation that they
/// begin in their table (ADR 0068).
#[derive(Debug, Default)]
pub(crate) struct Serving {
    pub clients: Option<Arc<HostTable>>,
    by_number: HashMap<u32, (ClassId, ProgramId)>,
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
    /// Adds conversation `number` of all scripts.
    pub fn add(
        &mut self,
        (number, conversation): (u32, &Conversation),
        class: ClassId,
        program: ProgramId,
    ) {
        let tuple = conversation.of_server();
        self.by_number.insert(number, (class, program));
        self.by_tuple.entry(tuple).or_default().all.push((class, program));
        self.by_server
            .entry((tuple.kind, tuple.local, tuple.local_port))
            .or_default()
            .all
            .push((class, program));
    }

    /// The program for a client address and port in the script, or for a host that has begun a
    /// conversation from there; and whether no other flow can have these ends, as the next flow of
    /// the host after the conversation may.
    pub fn take(&mut self, flow: &Tuple) -> Option<((ClassId, ProgramId), bool)> {
        let hosts = self.clients.as_ref();
        if let Some((number, is_first)) =
            hosts.and_then(|hosts| hosts.accept_conversation(&ends_at_server(flow)))
        {
            return self.by_number.get(&number).map(|program| (*program, is_first));
        }
        self.by_tuple.get_mut(flow).map(|turns| (turns.take(), true))
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

/// The ends of a flow of a client.
pub(crate) fn ends_at_client(flow: &Tuple) -> ConversationEnds {
    let (local, remote) = ((flow.local, flow.local_port), (flow.remote, flow.remote_port));
    (local, remote, flow.kind == FlowKind::Udp)
}

/// The ends of a flow of a server.
fn ends_at_server(flow: &Tuple) -> ConversationEnds {
    let (server, client, is_udp) = ends_at_client(flow);
    (client, server, is_udp)
}

impl Turns {
    fn take(&mut self) -> (ClassId, ProgramId) {
        let taken = self.all[self.next];
        self.next = (self.next + 1) % self.all.len();
        taken
    }
}
