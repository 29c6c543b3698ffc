//! A server of HTTP/3 with quinn and h3. Answers each request with the same body. Prints its counts
//! as JSON when it is stopped, by SIGINT or SIGTERM.
//!
//! `quinn-server ADDRESS CERTIFICATE KEY OCTETS`: `ADDRESS` without a port. Port 443 accepts
//! connections, early data included; port 444 answers the first packet of each with Retry.

use std::{
    env,
    error::Error,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::{Buf, Bytes};
use h3::server::RequestResolver;
use h3_quinn::Connection;
use http::{Method, Response};
use quinn::{Endpoint, Incoming, ServerConfig, crypto::rustls::QuicServerConfig};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::signal::{
    ctrl_c,
    unix::{SignalKind, signal},
};

type Failure = Box<dyn Error + Send + Sync>;

const PLAIN: u16 = 443;
const RETRY: u16 = 444;

#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    /// Packets of Retry.
    retries: AtomicU64,
    gets: AtomicU64,
    posts: AtomicU64,
    /// Octets of the bodies of requests.
    received: AtomicU64,
    /// Changes of a client's address or port during a connection, as seen when a request ends.
    migrations: AtomicU64,
}

impl Counts {
    fn to_json(&self) -> String {
        let Self { connections, retries, gets, posts, received, migrations } = self;
        let named = [
            ("connections", connections),
            ("retries", retries),
            ("gets", gets),
            ("posts", posts),
            ("received", received),
            ("migrations", migrations),
        ];
        let fields = named.map(|(name, count)| format!("\"{name}\": {}", count.load(Relaxed)));
        format!("{{{}}}", fields.join(", "))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, certificate, key, octets] = &arguments[..] else {
        return Err("expected ADDRESS CERTIFICATE KEY OCTETS".into());
    };
    let address: IpAddr = address.parse()?;
    let body = Bytes::from(vec![b'q'; octets.parse()?]);
    let config = config(certificate, key)?;
    let counts = Arc::new(Counts::default());
    for port in [PLAIN, RETRY] {
        let endpoint = Endpoint::server(config.clone(), SocketAddr::new(address, port))?;
        tokio::spawn(serve(endpoint, port == RETRY, counts.clone(), body.clone()));
    }
    let mut terminated = signal(SignalKind::terminate())?;
    println!("ready");
    tokio::select! {
        interrupted = ctrl_c() => interrupted?,
        _ = terminated.recv() => {}
    }
    println!("{}", counts.to_json());
    Ok(())
}

fn config(certificate: &str, key: &str) -> Result<ServerConfig, Failure> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    // The only size besides 0 that QUIC knows (RFC 9001 section 4.6.1).
    tls.max_early_data_size = u32::MAX;
    Ok(ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?)))
}

async fn serve(endpoint: Endpoint, retries: bool, counts: Arc<Counts>, body: Bytes) {
    while let Some(incoming) = endpoint.accept().await {
        if retries && !incoming.remote_address_validated() {
            incoming.retry().expect("the address is not validated");
            counts.retries.fetch_add(1, Relaxed);
            continue;
        }
        let (counts, body) = (counts.clone(), body.clone());
        tokio::spawn(async move {
            if let Err(error) = connection(incoming, &counts, body).await {
                eprintln!("connection: {error}");
            }
        });
    }
}

/// Serves a connection until its client closes it.
async fn connection(incoming: Incoming, counts: &Arc<Counts>, body: Bytes) -> Result<(), Failure> {
    let quic = incoming.await?;
    counts.connections.fetch_add(1, Relaxed);
    let mut client = quic.remote_address();
    let mut http = h3::server::Connection::new(Connection::new(quic.clone())).await?;
    let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel();
    loop {
        let request = tokio::select! {
            request = http.accept() => request,
            Some(()) = ends.recv() => {
                let now = quic.remote_address();
                counts.migrations.fetch_add(u64::from(now != client), Relaxed);
                client = now;
                continue;
            }
        };
        let request = match request {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            Err(error) if error.is_h3_no_error() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let (counts, body, ended) = (counts.clone(), body.clone(), ended.clone());
        tokio::spawn(async move {
            if let Err(error) = answer(request, &counts, body).await {
                eprintln!("request: {error}");
            }
            // The connection may have ended meanwhile.
            let _ = ended.send(());
        });
    }
}

async fn answer(
    request: RequestResolver<Connection, Bytes>,
    counts: &Counts,
    body: Bytes,
) -> Result<(), Failure> {
    let (request, mut stream) = request.resolve_request().await?;
    let mut received = 0;
    while let Some(octets) = stream.recv_data().await? {
        received += octets.remaining() as u64;
    }
    counts.received.fetch_add(received, Relaxed);
    let count = if request.method() == Method::POST { &counts.posts } else { &counts.gets };
    count.fetch_add(1, Relaxed);
    let head = Response::builder().header("content-length", body.len()).body(())?;
    stream.send_response(head).await?;
    stream.send_data(body).await?;
    stream.finish().await?;
    Ok(())
}
