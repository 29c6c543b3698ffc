//! Settings of QUIC, and its endpoints: one for the clients of all programs, and one for the
//! servers of each.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use bytes::Buf;
use quinn_proto::{
    ClientConfig, Connection, ConnectionId, ConnectionIdGenerator, EndpointConfig, IdleTimeout,
    RandomConnectionIdGenerator, ServerConfig, TimeSource, TransportConfig, VarInt,
    coding::Codec,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rustls::{crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256, quic::Suite};
use squall_units::Nanos;

use super::Http3;
use crate::{Role, Tls};

/// Octets that a connection sends and keeps until they are acknowledged.
const SEND_WINDOW: u64 = 1 << 20;
/// The connection's window is this number of windows of a stream.
const WINDOWS: u32 = 4;
/// Unidirectional streams of the peer: control, the two of QPACK, and some of unknown types.
const UNIDIRECTIONAL: u32 = 8;

/// The run's time as QUIC wants it. The engine has read the clock once, for the origin.
#[derive(Clone, Debug)]
pub struct RunTime {
    origin: Instant,
    /// Nanoseconds since the origin, for the age of tokens.
    now: Arc<AtomicU64>,
}

impl RunTime {
    pub fn new(origin: Instant) -> Self {
        Self { origin, now: Arc::default() }
    }

    pub fn set(&self, now: Nanos) -> Instant {
        self.now.store(now.0, Ordering::Relaxed);
        self.origin + Duration::from_nanos(now.0)
    }

    /// The time of a timer in the run.
    pub fn of(&self, at: Instant) -> Nanos {
        let nanos = at.saturating_duration_since(self.origin).as_nanos();
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl TimeSource for RunTime {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.now.load(Ordering::Relaxed))
    }
}

/// # Panics
/// If a setting is out of its range.
fn transport(role: Role, settings: &Http3) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    let requests = match role {
        // Servers open no bidirectional streams (RFC 9114 section 6.1).
        Role::Client => 0,
        Role::Server => settings.max_streams,
    };
    let idle = VarInt::from_u64(settings.idle.0.div_ceil(1_000_000)).expect("at most 2^62 ms");
    transport
        .max_concurrent_bidi_streams(requests.into())
        .max_concurrent_uni_streams(UNIDIRECTIONAL.into())
        .max_idle_timeout((settings.idle > Nanos::ZERO).then(|| IdleTimeout::from(idle)))
        .stream_receive_window(settings.window.into())
        .receive_window(settings.window.saturating_mul(WINDOWS).into())
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None)
        // Each datagram is a piece of the flow.
        .enable_segmentation_offload(false);
    Arc::new(transport)
}

/// The suite of Initial packets, also if the settings exclude it for others (RFC 9001 section 5).
fn initial_suite() -> Suite {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite());
    suite.expect("ring has QUIC's initial suite")
}

/// # Panics
/// If a setting is out of its range.
pub fn client_config(settings: &Http3, tls: &Tls) -> ClientConfig {
    let crypto = QuicClientConfig::with_initial(tls.client.clone(), initial_suite());
    let mut client = ClientConfig::new(Arc::new(crypto.expect("the initial suite")));
    client.transport_config(transport(Role::Client, settings));
    client
}

/// # Panics
/// If a setting is out of its range.
pub fn server_config(settings: &Http3, tls: &Tls, time: &RunTime) -> ServerConfig {
    let mut tls = tls.server.clone();
    if tls.max_early_data_size > 0 {
        // The value that QUIC requires, which has limits of its own (RFC 9001 section 4.6.1).
        let tls = Arc::make_mut(&mut tls);
        tls.max_early_data_size = u32::MAX;
        // QUIC has its keys before the end of the handshake in any case.
        tls.send_half_rtt_data = false;
    }
    let crypto = QuicServerConfig::with_initial(tls, initial_suite());
    let mut server = ServerConfig::with_crypto(Arc::new(crypto.expect("the initial suite")));
    server.transport_config(transport(Role::Server, settings));
    server.migration(!settings.forbid_migration);
    server.time_source(Arc::new(time.clone()));
    server
}

/// Connection IDs have 8 octets: with empty ones an endpoint has one connection to a remote
/// address.
pub fn endpoint_config() -> Arc<EndpointConfig> {
    Arc::new(EndpointConfig::default())
}

/// As [`endpoint_config`], with connection IDs of `home`.
pub fn server_endpoint_config(home: &Home) -> Arc<EndpointConfig> {
    let mut config = EndpointConfig::default();
    let home = home.clone();
    config.cid_generator(move || {
        let random = RandomConnectionIdGenerator::new(ID_LEN - HOME_LEN);
        Box::new(ServerIds { home: home.clone(), random })
    });
    Arc::new(config)
}

/// Octets of a server's connection ID. The first are the connection's home, the others random.
const ID_LEN: usize = 8;
const HOME_LEN: usize = 4;

/// The worker and the place of the connection whose event is being handled, for its connection IDs:
/// a datagram of a client that has moved finds them in that way from any address (as with the load
/// balancers of RFC 9000 section 5.1).
#[derive(Clone, Debug, Default)]
pub struct Home(Arc<AtomicU32>);

impl Home {
    /// `place`: below 2^24; connections at others cannot move.
    pub fn set(&self, worker: u8, place: u32) {
        self.0.store(u32::from(worker) << 24 | place & 0x00ff_ffff, Ordering::Relaxed);
    }
}

/// The worker and the place in the connection ID of a packet with a short header (RFC 9000 section
/// 17.3), if this end has made it.
pub fn home_of(datagram: &[u8]) -> Option<(u8, u32)> {
    let [first, worker, place @ ..] = datagram.first_chunk::<{ 1 + HOME_LEN }>()?;
    let [a, b, c] = *place;
    // The next bit is fixed only if the ends have not agreed on any value (RFC 9287).
    (first & 0x80 == 0).then_some((*worker, u32::from_be_bytes([0, a, b, c])))
}

struct ServerIds {
    home: Home,
    random: RandomConnectionIdGenerator,
}

impl ConnectionIdGenerator for ServerIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = self.home.0.load(Ordering::Relaxed).to_be_bytes().to_vec();
        id.extend_from_slice(&self.random.generate_cid());
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        ID_LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Whether the server forbids its clients to move to another address
/// (`disable_active_migration`, RFC 9000 section 18.2).
pub fn forbids_migration(quic: &Connection) -> bool {
    let Ok(Some(parameters)) = quic.crypto_session().transport_parameters() else { return false };
    let mut octets = Vec::new();
    parameters.write(&mut octets);
    let mut rest = &octets[..];
    while let (Ok(id), Ok(len)) = (VarInt::decode(&mut rest), VarInt::decode(&mut rest)) {
        if id.into_inner() == 0x0c {
            return true;
        }
        rest.advance(rest.len().min(usize::try_from(len.into_inner()).unwrap_or(usize::MAX)));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_names_the_home_of_its_connection() {
        let home = Home::default();
        let mut ids = ServerIds { home: home.clone(), random: RandomConnectionIdGenerator::new(4) };
        home.set(3, 0x12_3456);
        let made = [ids.generate_cid(), ids.generate_cid()];
        assert_ne!(made[0], made[1]);
        for (id, first) in made.into_iter().zip([0x43, 0x03]) {
            let datagram = [&[first][..], &id, &[9; 20]].concat();
            assert_eq!((id.len(), home_of(&datagram)), (8, Some((3, 0x12_3456))));
            let long = [&[0xc3][..], &id].concat();
            assert_eq!((home_of(&long), home_of(&datagram[..4]), home_of(&[])), (None, None, None));
        }
    }

    #[test]
    fn the_time_of_quic_is_that_of_the_run() {
        let origin = Instant::now();
        let time = RunTime::new(origin);
        let at = time.set(Nanos(5_000_000_123));
        assert_eq!(at - origin, Duration::from_nanos(5_000_000_123));
        assert_eq!(time.of(at), Nanos(5_000_000_123));
        let since = time.now().duration_since(SystemTime::UNIX_EPOCH);
        assert_eq!(since.expect("after"), Duration::from_nanos(5_000_000_123));
        assert_eq!(time.of(origin), Nanos::ZERO);
    }
}
