//! Settings of QUIC, and its endpoints: one for the clients of all programs, and one for the
//! servers of each.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use quinn_proto::{
    ClientConfig, EndpointConfig, IdleTimeout, ServerConfig, TimeSource, TransportConfig, VarInt,
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
    let crypto = QuicServerConfig::with_initial(tls.server.clone(), initial_suite());
    let mut server = ServerConfig::with_crypto(Arc::new(crypto.expect("the initial suite")));
    server.transport_config(transport(Role::Server, settings));
    // A connection belongs to one flow.
    server.migration(false);
    server.time_source(Arc::new(time.clone()));
    server
}

/// Connection IDs have 8 octets: with empty ones an endpoint has one connection to a remote
/// address.
pub fn endpoint_config() -> Arc<EndpointConfig> {
    Arc::new(EndpointConfig::default())
}

#[cfg(test)]
mod tests {
    use super::*;

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
