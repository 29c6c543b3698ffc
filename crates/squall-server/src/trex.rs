//! TRex's clients: serves their messages over ZeroMQ, one at a time.
//!
//! One thread owns the server ([`Server`]). Connections send it their requests, and it notifies
//! them of events. Access is decided per connection, as for all listeners of the daemon
//! ([`crate::auth`]); leases decide the use of ports.

use std::{
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use axum::http::StatusCode;
use bytes::Bytes;
use squall::Error;
use squall_trex::{Answered, Change, PortInfo, Server};
use squall_units::MacAddr;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{oneshot, watch},
    time::timeout,
};

use crate::{
    Needs,
    auth::AccessRules,
    connection::Peer,
    identity::Identity,
    places::Place,
    runs::{Kind, ManagedStart, lock},
    service::Service,
    zmtp::{Incoming, Role, Zmtp},
};

/// Owner of the ports. Users cannot choose this name.
pub const OWNER: &str = "trex";
/// Maximum size of a message before decompression, in octets.
const LARGEST: usize = 64 << 20;
/// Maximum size of a message from a refused client, in octets. A smaller limit, because the message
/// is only parsed for its method names.
const MAX_REFUSED: usize = 64 << 10;
/// Interval for checking whether traffic has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Speed of ports that do not report theirs. Not 0, because clients divide by it; TRex reports the
/// same.
const UNKNOWN_SPEED: f64 = 10e9;
/// Message of the event socket. It has no content, because it only wakes subscribers.
const EVENT: &[u8] = b"{}";
/// Time limit for a handshake, for a peer to read a reply, and for a refused client to read the
/// reason and try again.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of the TRex server.
#[derive(Clone, Debug)]
pub struct Trex {
    /// Addresses of ports 0, 1, ...
    pub ports: Vec<String>,
    /// Whether to serve flows, too (TRex's ASTF mode).
    pub flows: bool,
    /// Whether streams with latency measurement carry TRex's header instead of Squall's signature.
    pub headers: bool,
    pub sync: SocketAddr,
    pub asynchronous: SocketAddr,
    /// Whether every client that can reach these addresses may use the ports. TRex's clients have no
    /// token.
    pub allow_anyone: bool,
}

/// The server's thread, which ends when this is dropped.
pub struct Serving {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub clients: Arc<Clients>,
}

/// Shared state of the connections.
pub struct Clients {
    asks: mpsc::Sender<Ask>,
    rings: watch::Sender<()>,
    door: AccessRules,
    service: Weak<Service>,
}

/// A message and the channel for its reply.
struct Ask {
    message: Vec<u8>,
    identity: Identity,
    answer: oneshot::Sender<Vec<u8>>,
}

impl Serving {
    /// Starts the server.
    ///
    /// # Errors
    ///
    /// Ports that do not exist or are not allowed.
    pub fn start(trex: &Trex, service: &Arc<Service>) -> Result<Self, Error> {
        let ports = infos(&trex.ports, service)?;
        // The server counts as a connection, so that its leases do not expire.
        lock(&service.leases).connect(OWNER);
        let kind = if trex.flows { Kind::Flows } else { Kind::Streams };
        let start = ManagedStart::new(Arc::downgrade(service), OWNER.into(), kind);
        let server = Server::new(ports, Box::new(start), trex.flows, trex.headers);
        let (ends, rings) = (Arc::new(AtomicBool::new(false)), watch::Sender::new(()));
        let (asks, asked) = mpsc::channel();
        let (stops, bell) = (ends.clone(), rings.clone());
        let of_thread = Arc::downgrade(service);
        let thread = std::thread::Builder::new()
            .name("squall-trex".into())
            .spawn(move || {
                serve(server, &asked, &bell, &of_thread, &stops);
                left(&of_thread);
            })
            .map_err(|error| Error::Environment(format!("cannot start a thread: {error}")))?;
        let (door, service) = (service.auth.trex, Arc::downgrade(service));
        let clients = Arc::new(Clients { asks, rings, door, service });
        Ok(Self { ends, thread: Some(thread), clients })
    }

    /// Ends the server. Blocks until its traffic has ended.
    pub fn end(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end();
    }
}

fn left(service: &Weak<Service>) {
    if let Some(service) = service.upgrade() {
        lock(&service.leases).disconnect(service.now(), OWNER);
    }
}

impl Clients {
    /// Serves a connection for requests until it ends. An error ends only this connection.
    pub async fn requests<S>(self: Arc<Self>, stream: S, peer: Peer, place: Arc<Place>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if self.door.admits(peer.user) {
            place.is_known();
            if let Ok(zmtp) = opened(stream, Role::Rep, LARGEST).await {
                let identity = Identity::new("TRex client", peer.to_string());
                _ = self.answer(zmtp, identity).await;
            }
        } else if let Ok(zmtp) = opened(stream, Role::Rep, MAX_REFUSED).await {
            _ = timeout(TIMEOUT, self.refuse(zmtp, &peer)).await;
        }
    }

    /// Serves an event subscriber until its connection ends.
    pub async fn events<S>(self: Arc<Self>, stream: S, peer: Peer, place: Arc<Place>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let admitted = self.door.admits(peer.user);
        let Ok(mut zmtp) = opened(stream, Role::Pub, MAX_REFUSED).await else { return };
        if admitted {
            place.is_known();
            _ = self.ring(zmtp).await;
        } else {
            // A subscriber gets nothing, because there is no way to send it a reason; its request
            // socket gets it.
            _ = timeout(TIMEOUT, async { while zmtp.next().await.is_ok() {} }).await;
        }
    }

    async fn answer<S>(&self, mut zmtp: Zmtp<S>, identity: Identity) -> std::io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut waiting = None;
        loop {
            let frames = match waiting.take() {
                Some(frames) => frames,
                None => message(&mut zmtp).await?,
            };
            let Some((route, message)) = unwrapped(&frames) else { continue };
            let (to_here, mut answered) = oneshot::channel();
            let ask =
                Ask { message, identity: identity.clone().for_next_request(), answer: to_here };
            if self.asks.send(ask).is_err() {
                return Ok(());
            }
            // Meanwhile, answer heartbeats, without which TRex's client would disconnect after a
            // minute, and detect the end of the connection. A DEALER may send another request
            // before the reply (a REQ may not); it waits.
            let answer = loop {
                tokio::select! {
                    answer = &mut answered => break answer,
                    incoming = zmtp.next(), if waiting.is_none() => {
                        waiting = listened(&mut zmtp, incoming?).await?;
                    }
                }
            };
            let Ok(answer) = answer else { return Ok(()) };
            reply(&mut zmtp, route, &answer).await?;
        }
    }

    async fn refuse<S>(&self, mut zmtp: Zmtp<S>, peer: &Peer) -> std::io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let why = self.why_not(peer);
        loop {
            let frames = message(&mut zmtp).await?;
            let Some((route, message)) = unwrapped(&frames) else { continue };
            let (answer, methods) = squall_trex::refuse(&message, &why);
            if let Some(service) = self.service.upgrade() {
                let identity = Identity::new("TRex client", peer.to_string());
                let action = format!("TRex {}", methods.join(", "));
                service.audit_refusal(&identity, peer, action.trim_end(), StatusCode::UNAUTHORIZED);
            }
            reply(&mut zmtp, route, &answer).await?;
        }
    }

    fn why_not(&self, peer: &Peer) -> String {
        let reason = match (self.door.needs, peer.user) {
            (Needs::Others(own), Some(user)) => {
                format!("it belongs to user {own}, and this is user {user}")
            }
            (Needs::Others(own), None) => {
                format!("it belongs to user {own}, and the user of this connection is not known")
            }
            _ => "it requires a token, which TRex's clients cannot send".to_owned(),
        };
        format!(
            "this client is not allowed to use the daemon: {reason}; try as its user or root, or \
             start it with --trex-allow-anyone"
        )
    }

    async fn ring<S>(&self, mut zmtp: Zmtp<S>) -> std::io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut rings = self.rings.subscribe();
        // Number of subscriptions that match the event message. A topic matches as a prefix (ZeroMQ
        // RFC 29).
        let mut wanted = 0_u32;
        loop {
            tokio::select! {
                rang = rings.changed() => {
                    if rang.is_err() {
                        return Ok(());
                    }
                    if wanted > 0 {
                        let sent = timeout(TIMEOUT, zmtp.send(&[EVENT])).await;
                        sent.map_err(std::io::Error::other)??;
                    }
                }
                incoming = zmtp.next() => {
                    let incoming = incoming?;
                    if let Some((subscribes, topic)) = subscription(&incoming)
                        && EVENT.starts_with(topic)
                    {
                        wanted = match subscribes {
                            true => wanted.saturating_add(1),
                            false => wanted.saturating_sub(1),
                        };
                    }
                    listened(&mut zmtp, incoming).await?;
                }
            }
        }
    }
}

async fn opened<S>(stream: S, role: Role, most: usize) -> std::io::Result<Zmtp<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let opened = timeout(TIMEOUT, Zmtp::open(stream, role, most)).await;
    let opened = opened.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    if let Err(error) = &opened {
        tracing::debug!(%error, "a connection to TRex's server ended in its handshake");
    }
    opened
}

/// The next message; answers heartbeats.
async fn message<S>(zmtp: &mut Zmtp<S>) -> std::io::Result<Vec<Bytes>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let incoming = zmtp.next().await?;
        if let Some(frames) = listened(zmtp, incoming).await? {
            return Ok(frames);
        }
    }
}

/// Returns the frames of a message, or `None` for a command; answers a heartbeat. Do not call it
/// within a `select!`, which could cancel it and leave half of the reply unsent.
async fn listened<S>(zmtp: &mut Zmtp<S>, incoming: Incoming) -> std::io::Result<Option<Vec<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match incoming {
        Incoming::Message(frames) => return Ok(Some(frames)),
        Incoming::Command { name, data } if name == b"PING"[..] => {
            timeout(TIMEOUT, zmtp.pong(&data)).await.map_err(std::io::Error::other)??;
        }
        Incoming::Command { .. } => {}
    }
    Ok(None)
}

async fn reply<S>(zmtp: &mut Zmtp<S>, route: &[Bytes], answer: &[u8]) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let frames: Vec<&[u8]> = route.iter().map(|frame| &frame[..]).chain([answer]).collect();
    timeout(TIMEOUT, zmtp.send(&frames)).await.map_err(std::io::Error::other)?
}

/// Splits a request into the frames to put before the reply (ZeroMQ RFC 28: all up to the first
/// empty one), and the request itself. `None` if there is no empty frame.
fn unwrapped(frames: &[Bytes]) -> Option<(&[Bytes], Vec<u8>)> {
    let end = frames.iter().position(|frame| frame.is_empty())? + 1;
    Some((&frames[..end], frames[end..].concat()))
}

/// Whether a peer subscribes (`true`) or unsubscribes, and its topic. A subscription is a command
/// from ZMTP 3.1 on, and a message in earlier versions.
fn subscription(incoming: &Incoming) -> Option<(bool, &[u8])> {
    match incoming {
        Incoming::Command { name, data } if name == &b"SUBSCRIBE"[..] => Some((true, data)),
        Incoming::Command { name, data } if name == &b"CANCEL"[..] => Some((false, data)),
        Incoming::Message(frames) => match frames.first()?.split_first()? {
            (1, topic) => Some((true, topic)),
            (0, topic) => Some((false, topic)),
            _ => None,
        },
        Incoming::Command { .. } => None,
    }
}

fn serve(
    mut server: Server,
    asked: &mpsc::Receiver<Ask>,
    bell: &watch::Sender<()>,
    service: &Weak<Service>,
    ends: &AtomicBool,
) {
    let ring = |rings: bool| {
        if rings {
            bell.send_replace(());
        }
    };
    let mut looked = Instant::now();
    while !ends.load(Ordering::Acquire) {
        match asked.recv_timeout(POLL_INTERVAL) {
            Ok(Ask { message, identity, answer }) => {
                let run = || identity.clone().with(|| server.answer(&message));
                let answered = catch_unwind(AssertUnwindSafe(run));
                let answered = answered.unwrap_or_else(|_| Answered {
                    octets: DEFECT.to_vec(),
                    ..Answered::default()
                });
                if let Some(service) = service.upgrade() {
                    audit(&service, &identity, &answered.changes);
                    service.memory.used(Some(message.len() as u64));
                }
                // The connection may have ended; then there is no receiver.
                _ = answer.send(answered.octets);
                ring(answered.rings);
            }
            // On a timeout, only check the traffic. A disconnected channel sleeps, because it would
            // otherwise spin the loop until `ends` stops it.
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(POLL_INTERVAL),
        }
        if looked.elapsed() >= POLL_INTERVAL {
            looked = Instant::now();
            ring(catch_unwind(AssertUnwindSafe(|| server.look())).unwrap_or(false));
        }
    }
    server.end();
    ring(true);
}

/// Adds one audit entry per message, like for a request over HTTP.
fn audit(service: &Service, identity: &Identity, changes: &[Change]) {
    if changes.is_empty() {
        return;
    }
    let times = |change: &Change| match change.times {
        1 => change.method.clone(),
        times => format!("{} ({times} times)", change.method),
    };
    let methods: Vec<_> = changes.iter().map(times).collect();
    let ports: std::collections::BTreeSet<_> =
        changes.iter().flat_map(|change| &change.ports).collect();
    let ports: Vec<_> = ports.into_iter().map(u64::to_string).collect();
    let refused = changes.iter().find_map(|change| change.refused.as_deref());
    let mut detail: Vec<String> = Vec::new();
    if !ports.is_empty() {
        detail.push(format!("ports {}", ports.join(", ")));
    }
    detail.extend(Some(identity.notes()).filter(|notes| !notes.is_empty()));
    detail.extend(refused.map(|why| why.chars().take(500).collect()));
    let status = if refused.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let action = format!("TRex {}", methods.join(", "));
    service.audit(identity, action, Some(status.as_u16()), detail.join("; "));
}

/// The reply to a request that caused a panic.
const DEFECT: &[u8] = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"Internal error","specific_err":"this is a bug in Squall, please report it with the output of the daemon"}}"#;

/// Properties of the ports before they are opened.
fn infos(addresses: &[String], service: &Service) -> Result<Vec<PortInfo>, Error> {
    let interfaces = squall_port_linux::list_interfaces().unwrap_or_default();
    let mut infos = Vec::new();
    for (number, address) in addresses.iter().enumerate() {
        service
            .ports
            .admit(address, &service.files)
            .map_err(|refusal| Error::Usage(format!("--trex {address}: {}", refusal.message)))?;
        let name = squall_machine::ports::interface_of(address);
        let interface = name.as_ref().and_then(|name| interfaces.iter().find(|i| i.name == *name));
        let given = address.split(",speed=").nth(1).and_then(|rest| rest.split(',').next());
        let given = given.and_then(|text| text.parse::<squall_units::Rate>().ok());
        infos.push(PortInfo {
            address: address.clone(),
            description: name.unwrap_or_else(|| address.clone()),
            // A locally administered address, because clients expect one, and a port without an
            // interface has none.
            mac: interface.and_then(|interface| interface.mac).unwrap_or(MacAddr([
                2,
                0,
                0,
                0,
                0,
                number as u8,
            ])),
            speed_bps: given
                .map(|rate| rate.num as f64 / rate.den as f64)
                .or_else(|| interface.and_then(|i| i.speed_bps).map(|bps| bps as f64))
                .or(Some(UNKNOWN_SPEED)),
            longest: interface.map_or(9_018, |interface| interface.mtu + 18),
            numa: interface.and_then(|interface| interface.numa_node),
            driver: interface.map(|interface| interface.driver.clone()).unwrap_or_default(),
            bus: interface.map(|interface| interface.bus.clone()).unwrap_or_default(),
        });
    }
    Ok(infos)
}
