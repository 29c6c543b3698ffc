//! Headers of the PROXY protocol at the start of flows, before TLS: clients send one, servers
//! require one.

mod header;

use std::{collections::HashMap, net::IpAddr, ops::RangeInclusive, sync::Arc};

use squall_tcp::{Event, FlowId, Piece, Tuple};
use squall_units::Nanos;

use crate::{Apps, FlowSocket, Observer, ProgramId, ProtocolError, Role, layers};

pub use header::parse;

/// The message of a piece that is a header. No program has this many messages.
pub(crate) const HEADER: u32 = 1 << 29;
/// Time limit of a peer's header, as for a TLS handshake. The specification (section 3) asks for at
/// least 3 s, for a retransmission.
const TIME_LIMIT: Nanos = Nanos(30_000_000_000);
/// Marks flows whose header is awaited.
const AWAITED: u16 = u16::MAX;

/// Headers that clients send. Servers accept both versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyProtocol {
    pub version: ProxyVersion,
    /// The source addresses of flows, in turn by the flow's number, of the servers' family.
    /// `None`: each flow's own.
    pub sources: Option<RangeInclusive<IpAddr>>,
    /// Version 2: the command LOCAL, as in the health checks of a proxy, without addresses and
    /// TLVs.
    pub local: bool,
    /// Version 2: TLVs of at most 255 octets.
    pub alpn: Option<Arc<str>>,
    pub authority: Option<Arc<str>>,
    /// Version 2: a TLV of 16 octets that differs from flow to flow.
    pub unique_id: bool,
    /// Version 2: a TLV with the CRC32c of the header.
    pub checksum: bool,
}

/// The form of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary, with TLVs.
    #[default]
    V2,
}

/// The headers of all flows whose programs have them.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    /// The settings of each program, if it has headers.
    programs: Vec<Option<Arc<ProxyProtocol>>>,
    /// By the number of the flow: octets of its header that are not acknowledged, or [`AWAITED`].
    left: Vec<u16>,
    /// The beginnings of incomplete headers.
    partial: HashMap<FlowId, Vec<u8>>,
}

/// Clones only the programs: another worker has its own flows.
impl Clone for Layer {
    fn clone(&self) -> Self {
        Self { programs: self.programs.clone(), ..Self::default() }
    }
}

impl Layer {
    pub fn add(&mut self, program: ProgramId, settings: &Arc<ProxyProtocol>) {
        layers::set(&mut self.programs, program, settings.clone());
    }

    #[inline]
    pub fn has(&self, program: ProgramId) -> bool {
        layers::has(&self.programs, program)
    }

    /// Memory usage in bytes.
    pub fn memory(&self) -> usize {
        self.left.capacity() * size_of::<u16>()
            + self.partial.values().map(Vec::capacity).sum::<usize>()
            + self.partial.capacity() * size_of::<(FlowId, Vec<u8>)>()
    }

    /// Number of flows with an incomplete header.
    pub fn len(&self) -> usize {
        self.partial.len()
    }

    /// Copies octets from `offset` of the header of a flow of `program`.
    pub fn copy(
        &self,
        program: ProgramId,
        (seed, flow): (u64, u32),
        tuple: &Tuple,
        offset: u32,
        out: &mut [u8],
    ) {
        let settings = self.programs[usize::from(program.0)].as_ref();
        let header = settings.expect("its header is sent").header(seed, flow, tuple);
        let from = offset as usize;
        out.copy_from_slice(&header[from..from + out.len()]);
    }

    /// Handles a flow's event before its TLS session and its program.
    pub fn event<O: Observer>(
        &mut self,
        apps: &mut Apps<O>,
        socket: &mut impl FlowSocket,
        event: Event<'_>,
    ) {
        let id = socket.id();
        let left = self.left.get(id.0 as usize).copied().unwrap_or(0);
        match event {
            Event::Established => self.established(apps, socket),
            Event::Gone(_) => {
                self.forget(id);
                apps.after_proxy(socket, event);
            }
            _ if left == 0 => apps.after_proxy(socket, event),
            Event::Received(octets) if left == AWAITED => self.received(apps, socket, octets),
            Event::PeerClosed | Event::Timer if left == AWAITED => {
                self.fail(apps, socket, ProtocolError::ProxyMissing);
            }
            Event::Acknowledged { octets, all } if left != AWAITED => {
                // TLS and programs count only their own octets.
                let of_header = octets.min(left.into());
                self.left[id.0 as usize] = left - of_header as u16;
                let program = apps.program(socket.state());
                apps.observer_mut().proxied(program, of_header);
                apps.after_proxy(socket, Event::Acknowledged { octets: octets - of_header, all });
            }
            _ => apps.after_proxy(socket, event),
        }
    }

    fn established<O: Observer>(&mut self, apps: &mut Apps<O>, socket: &mut impl FlowSocket) {
        let program = apps.program(socket.state());
        if apps.role(program) == Role::Server {
            // Servers wait for the header before they send anything (section 2).
            self.set(socket.id(), AWAITED);
            let at = socket.due() + TIME_LIMIT;
            socket.wake_at(at);
            return;
        }
        let (seed, flow) = apps.seeds(socket.state());
        let Some(Some(settings)) = self.programs.get(usize::from(program.0)) else { return };
        let len = settings.header(seed, flow, &socket.tuple()).len();
        self.set(socket.id(), len as u16);
        socket.send(Piece { message: HEADER, nth: 0, len: len as u32 });
        apps.after_proxy(socket, Event::Established);
    }

    fn received<O: Observer>(
        &mut self,
        apps: &mut Apps<O>,
        socket: &mut impl FlowSocket,
        octets: &[u8],
    ) {
        let id = socket.id();
        // Headers usually arrive whole.
        let earlier = self.partial.remove(&id);
        let joined = earlier.map(|earlier| [&earlier[..], octets].concat());
        let all = joined.as_deref().unwrap_or(octets);
        match parse(all) {
            Ok(Some(len)) => {
                self.set(id, 0);
                apps.after_proxy(socket, Event::Established);
                if len < all.len() {
                    apps.after_proxy(socket, Event::Received(&all[len..]));
                }
            }
            Ok(None) => {
                self.partial.insert(id, all.to_vec());
            }
            Err(error) => self.fail(apps, socket, error),
        }
    }

    #[cold]
    fn fail<O: Observer>(
        &mut self,
        apps: &mut Apps<O>,
        socket: &mut impl FlowSocket,
        error: ProtocolError,
    ) {
        self.forget(socket.id());
        apps.proxy_failed(socket, error);
    }

    fn set(&mut self, id: FlowId, left: u16) {
        let at = id.0 as usize;
        if self.left.len() <= at {
            self.left.resize(at + 1, 0);
        }
        self.left[at] = left;
    }

    fn forget(&mut self, id: FlowId) {
        self.partial.remove(&id);
        if let Some(left) = self.left.get_mut(id.0 as usize) {
            *left = 0;
        }
    }
}
