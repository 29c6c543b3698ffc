//! Any octets on the streams of a connection of HTTP/3, and streams that are finished, reset and
//! stopped at any time, from a peer whose QUIC and TLS are right: nothing panics, and no state of
//! the flow or its streams is left. Input: an octet that selects the side and settings, then
//! actions: an octet with the kind, and for octets of a stream another with their length, and
//! these.
#![no_main]

#[path = "../src/ends.rs"]
mod ends;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use libfuzzer_sys::fuzz_target;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, ServerConfig, StreamEvent, StreamId, VarInt,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use squall_apps::{Http3, Tls, TlsSettings};
use squall_units::Nanos;

/// The other end's address, as in `ends`.
const VICTIM: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 443);
/// Time between two turns: longer than a delayed acknowledgment waits (RFC 9000 section 13.2.1).
const TURN: Nanos = Nanos(30_000_000);
/// Turns within which a handshake is complete.
const HANDSHAKE: u32 = 8;
/// The most datagrams of a turn.
const MOST: usize = 64;

/// Made once: generating a certificate takes longer than everything else here.
static SETTINGS: OnceLock<Settings> = OnceLock::new();

struct Settings {
    tls: Tls,
    client: Arc<QuicClientConfig>,
    server: Arc<QuicServerConfig>,
}

impl Settings {
    fn new() -> Self {
        let settings = TlsSettings { alpn: vec!["h3".into()], ..TlsSettings::default() };
        let tls = Tls::new(&settings).expect("right settings");
        let client = squall_tls::client_config(&settings).expect("right settings");
        let server = squall_tls::server_config(&settings).expect("right settings");
        let client = QuicClientConfig::try_from(client).expect("the initial suite");
        let server = QuicServerConfig::try_from(server).expect("the initial suite");
        Self { tls, client: Arc::new(client), server: Arc::new(server) }
    }
}

fuzz_target!(|data: &[u8]| {
    if let Some((&first, actions)) = data.split_first() {
        play(first, actions);
    }
});

fn play(first: u8, mut actions: &[u8]) {
    let settings = SETTINGS.get_or_init(Settings::new);
    let client = first & 1 != 0;
    let http3 =
        Http3 { streams: 3, qpack_table: 4_096 * u32::from(first & 2 != 0), ..Http3::default() };
    let mut victim = ends::End::over_http3(&settings.tls, &http3, client);
    let mut peer = if client { Peer::server(settings) } else { Peer::client(settings) };
    victim.begin();
    for _ in 0..HANDSHAKE {
        peer.turn(&mut victim);
    }
    assert!(peer.connected, "the handshake is complete");
    while let Some((&kind, after)) = actions.split_first() {
        actions = after;
        match kind & 7 {
            4 => peer.finish(),
            5 => peer.reset(),
            6 => peer.stop(),
            7 => peer.turn(&mut victim),
            _ => {
                let Some((&len, after)) = actions.split_first() else { break };
                let (octets, next) = after.split_at(usize::from(len).min(after.len()));
                actions = next;
                let dir = if kind & 1 == 0 { Dir::Bi } else { Dir::Uni };
                peer.write(dir, kind & 2 != 0, octets);
            }
        }
    }
    for _ in 0..3 {
        peer.turn(&mut victim);
    }
    victim.finish();
}

struct Peer {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    now: Instant,
    connected: bool,
    /// The latest streams on which it can write.
    bidirectional: Option<StreamId>,
    unidirectional: Option<StreamId>,
}

impl Peer {
    fn new(server: Option<Arc<ServerConfig>>) -> Self {
        Self {
            endpoint: Endpoint::new(Arc::new(EndpointConfig::default()), server, true, None),
            connection: None,
            now: Instant::now(),
            connected: false,
            bidirectional: None,
            unidirectional: None,
        }
    }

    fn client(settings: &Settings) -> Self {
        let mut peer = Self::new(None);
        let config = ClientConfig::new(settings.client.clone());
        let connection = peer.endpoint.connect(peer.now, config, VICTIM, "squall.test");
        peer.connection = Some(connection.expect("right settings"));
        peer
    }

    fn server(settings: &Settings) -> Self {
        Self::new(Some(Arc::new(ServerConfig::with_crypto(settings.server.clone()))))
    }

    /// Lets time pass, and gives both ends the other's datagrams.
    fn turn(&mut self, victim: &mut ends::End) {
        self.now += Duration::from_nanos(TURN.0);
        for datagram in self.send() {
            victim.receive(&datagram);
        }
        victim.wait(TURN);
        for datagram in victim.take() {
            self.receive(&datagram);
        }
    }

    fn send(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let Some((_, quic)) = &mut self.connection else { return all };
        quic.handle_timeout(self.now);
        let mut out = Vec::new();
        while all.len() < MOST
            && let Some(transmit) = quic.poll_transmit(self.now, 1, &mut out)
        {
            out.truncate(transmit.size);
            all.push(std::mem::take(&mut out));
        }
        self.take_events();
        all
    }

    fn receive(&mut self, datagram: &[u8]) {
        let mut out = Vec::new();
        let found = self.endpoint.handle(self.now, VICTIM, None, None, datagram.into(), &mut out);
        match (found, &mut self.connection) {
            (Some(DatagramEvent::ConnectionEvent(_, event)), Some((_, quic))) => {
                quic.handle_event(event);
            }
            (Some(DatagramEvent::NewConnection(incoming)), None) => {
                self.connection = self.endpoint.accept(incoming, self.now, &mut out, None).ok();
            }
            (Some(DatagramEvent::NewConnection(incoming)), Some(_)) => {
                self.endpoint.ignore(incoming);
            }
            _ => {}
        }
        self.take_events();
    }

    fn take_events(&mut self) {
        let Some((handle, quic)) = &mut self.connection else { return };
        loop {
            while let Some(event) = quic.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(*handle, event) {
                    quic.handle_event(event);
                }
            }
            match quic.poll() {
                None => return,
                Some(Event::Connected) => self.connected = true,
                Some(Event::Stream(StreamEvent::Opened { dir })) => {
                    while let Some(id) = quic.streams().accept(dir) {
                        if dir == Dir::Bi {
                            self.bidirectional = Some(id);
                        }
                        discard(quic, id);
                    }
                }
                Some(Event::Stream(StreamEvent::Readable { id })) => discard(quic, id),
                Some(_) => {}
            }
        }
    }

    /// Writes on the latest stream, or on a new one if that is wanted and allowed.
    fn write(&mut self, dir: Dir, new: bool, octets: &[u8]) {
        let Some((_, quic)) = &mut self.connection else { return };
        let latest = match dir {
            Dir::Bi => &mut self.bidirectional,
            Dir::Uni => &mut self.unidirectional,
        };
        if new || latest.is_none() {
            *latest = quic.streams().open(dir).or(*latest);
        }
        if let Some(id) = *latest {
            quic.send_stream(id).write(octets).ok();
        }
    }

    fn finish(&mut self) {
        if let (Some((_, quic)), Some(id)) = (&mut self.connection, self.bidirectional) {
            quic.send_stream(id).finish().ok();
        }
    }

    fn reset(&mut self) {
        if let (Some((_, quic)), Some(id)) = (&mut self.connection, self.bidirectional) {
            quic.send_stream(id).reset(CANCELED).ok();
        }
    }

    fn stop(&mut self) {
        if let (Some((_, quic)), Some(id)) = (&mut self.connection, self.bidirectional) {
            quic.recv_stream(id).stop(CANCELED).ok();
        }
    }
}

/// H3_REQUEST_CANCELLED (RFC 9114 section 8.1).
const CANCELED: VarInt = VarInt::from_u32(0x10c);

/// Reads a stream, so that its windows open.
fn discard(quic: &mut Connection, id: StreamId) {
    let mut stream = quic.recv_stream(id);
    if let Ok(mut chunks) = stream.read(true) {
        while let Ok(Some(_)) = chunks.next(usize::MAX) {}
    }
}
