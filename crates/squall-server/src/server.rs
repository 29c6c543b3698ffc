//! The daemon from start to end: listeners, connections, signals.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use axum::{
    Extension, Router,
    extract::DefaultBodyLimit,
    middleware,
    response::{IntoResponse, Response},
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{SockRef, TcpKeepalive};
use squall::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    signal::unix::{SignalKind, signal},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    Bound, BoundTrex, Refusal, Settings, api,
    auth::AccessRules,
    connection::{Connection, Peer, TrackedSocket},
    gui,
    identity::Identity,
    otg,
    places::{Place, Places},
    runs::{OtgHost, lock},
    service::Service,
    threads::giving_way,
    tls::Certificate,
    trex, unprivileged,
};

/// Maximum number of connections at once; less if half of the limit on open files is lower.
const CONNECTIONS: usize = 1024;
/// Default maximum octets of a body; routes may have other limits.
const BODY: usize = 64 << 20;
/// Maximum size of a request's header, in octets.
const HEADER: usize = 64 << 10;
/// Maximum interval between checks for expired leases.
const LEASE_INTERVAL: Duration = Duration::from_millis(200);
/// Interval between checks of the certificate.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(3600);
/// Time limit for the first octet, which clients send right after they connect. A silent connection
/// would otherwise hold a slot.
const FIRST_OCTET: Duration = Duration::from_secs(3);
/// Time limit for a TLS handshake, after which a stalled client loses its slot.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Time limit for OTG operations that are still in progress when the daemon ends.
const SESSIONS_END: Duration = Duration::from_millis(300);

/// Raises the process's soft limit on open files to the hard limit. Returns the limit. Necessary,
/// because services and shells start with a soft limit of 1,024, which is too low for
/// [`CONNECTIONS`].
fn open_files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    let current =
        if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    current.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX)
}

/// Serves until SIGTERM or SIGINT. Calls `ready` once it listens.
///
/// # Errors
/// If an address is in use, the data directory cannot be used, or the certificate is invalid.
pub fn serve(settings: Settings, ready: impl FnOnce(&Bound)) -> Result<(), Error> {
    // Called before any thread starts, because threads have their own privileges and memory arenas.
    squall_port_linux::limit_arenas();
    unprivileged::become_user(&settings)?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).on_thread_start(giving_way()).enable_all().build();
    let runtime =
        runtime.map_err(|error| Error::Environment(format!("cannot start a thread: {error}")))?;
    // Register before the daemon replies to anything, because a client may send the signal as soon
    // as it has a reply.
    let end = {
        let _entered = runtime.enter();
        signals().map_err(|error| Error::Environment(format!("cannot await signals: {error}")))?
    };
    let done = runtime.block_on(serve_until(settings, ready, end));
    // A short limit: threads that still read a file or solve a rule would delay the end.
    runtime.shutdown_timeout(Duration::from_millis(100));
    done
}

/// Resolves at the first signal after this call. Must be called within a runtime.
fn signals() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// As [`serve`], until `end` resolves. For callers with their own tokio runtime.
///
/// # Errors
/// As [`serve`].
pub async fn serve_until(
    settings: Settings,
    ready: impl FnOnce(&Bound),
    end: impl Future<Output = ()>,
) -> Result<(), Error> {
    if settings.plain && settings.grpc_has_tls() {
        let grpc = settings.grpc.map(|grpc| grpc.to_string()).unwrap_or_default();
        return Err(Error::Usage(format!(
            "--grpc {grpc} needs TLS unless it is loopback, and --plain has none\n  try --grpc \
             127.0.0.1:40051, --grpc off, or --grpc-plain if nobody can intercept it"
        )));
    }
    let service = Arc::new(Service::open(settings)?);
    service.otg.hosted_by(Box::new(OtgHost(Arc::downgrade(&service))));
    let settings = &service.settings;
    // Made after the check of the data directory, which contains the certificate's key.
    let certificate = match settings.plain {
        true => None,
        false => Some(Certificate::open(settings, SystemTime::now())?),
    };
    let tls = certificate.as_ref().map(Certificate::config).transpose()?;
    let (https, at) = bind(settings.listen, "--listen").await?;
    let grpc = match settings.grpc {
        Some(address) => Some(bind(address, "--grpc").await?),
        None => None,
    };
    let grpc_at = grpc.as_ref().map(|(_, at)| *at);
    _ = service.bound.set((at, grpc_at));
    // Connections get at most half of the open files, because runs need some, too, and anyone can
    // open connections.
    let places = Places::new(CONNECTIONS.min(open_files() / 2));
    let mut trex = match &settings.trex {
        Some(trex) => Some(trex::Serving::start(trex, &service)?),
        None => None,
    };
    let routes = || api::router().merge(otg::router()).merge(gui::router(&service.settings.peers));
    let tls = tls.map(TlsAcceptor::from);
    let mut listeners = tokio::task::JoinSet::new();
    let of_grpc = tls.clone().filter(|_| settings.grpc_has_tls());
    let http = AccessChecks { door: service.auth.http, places, service: service.clone() };
    let talks = |app: Router, tls: Option<TlsAcceptor>| {
        move |stream, peer, place| connection(stream, peer, app.clone(), tls.clone(), place)
    };
    listeners.spawn(accept(https, http.clone(), talks(app(&service, routes()), tls)));
    if let Some((grpc, _)) = grpc {
        listeners.spawn(accept(grpc, http.clone(), talks(app_of_grpc(&service), of_grpc)));
    }
    let mut sockets = Vec::new();
    let mut unix = |name: &str| {
        let (socket, path) = bind_unix(&settings.data.join(name))?;
        sockets.push(path.clone());
        Some((socket, path))
    };
    let socket = unix("socket");
    let socket_at = socket.as_ref().map(|(_, path)| path.clone());
    if let Some((socket, _)) = socket {
        let app = app(&service, routes().merge(otg::grpc_calls()));
        let talks = move |stream, peer, place| connection_unix(stream, peer, app.clone(), place);
        listeners.spawn(accept_unix(socket, http.clone(), talks));
    }
    let mut trex_at = None;
    if let (Some(trex), Some(wanted)) = (&trex, &settings.trex) {
        let entrance = AccessChecks { door: service.auth.trex, ..http };
        let (sync, sync_at) = bind(wanted.sync, "--trex-sync").await?;
        let (asynchronous, asynchronous_at) = bind(wanted.asynchronous, "--trex-async").await?;
        let clients = || trex.clients.clone();
        let of = clients();
        let requests = move |stream, peer, place| of.clone().requests(stream, peer, place);
        listeners.spawn(accept(sync, entrance.clone(), requests));
        let of = clients();
        let events = move |stream, peer, place| of.clone().events(stream, peer, place);
        listeners.spawn(accept(asynchronous, entrance.clone(), events));
        let (sync, asynchronous) = (unix("trex-sync"), unix("trex-async"));
        let at = |socket: &Option<(_, PathBuf)>| socket.as_ref().map(|(_, path)| path.clone());
        let of_trex = at(&sync).zip(at(&asynchronous));
        if let (Some((sync, _)), Some((asynchronous, _))) = (sync, asynchronous) {
            let of = clients();
            let requests = move |stream, peer, place| of.clone().requests(stream, peer, place);
            listeners.spawn(accept_unix(sync, entrance.clone(), requests));
            let of = clients();
            let events = move |stream, peer, place| of.clone().events(stream, peer, place);
            listeners.spawn(accept_unix(asynchronous, entrance, events));
        }
        if wanted.allow_anyone {
            tracing::warn!(%sync_at, "TRex's clients need no permission: everyone who can reach the address can use {}", wanted.ports.join(", "));
        }
        trex_at = Some(BoundTrex {
            sync: sync_at,
            asynchronous: asynchronous_at,
            sockets: of_trex,
            needs: service.auth.trex.needs,
        });
    }
    tracing::info!(%at, grpc = grpc_at.map(tracing::field::display), version = env!("CARGO_PKG_VERSION"), "serving");
    service.audit(
        &Identity::daemon(),
        "start",
        None,
        format!("version {} at {at}", env!("CARGO_PKG_VERSION")),
    );
    ready(&Bound {
        https: at,
        grpc: grpc_at,
        grpc_tls: settings.grpc_has_tls(),
        trex: trex_at,
        socket: socket_at,
        token_file: service.auth.file.clone(),
        needs: service.auth.http.needs,
        new_token: service.auth.new_token.clone(),
        withheld: service.ports.withheld(),
    });
    let expiring = {
        let service = service.clone();
        async move {
            let mut storing = tokio::task::spawn_blocking(|| {});
            loop {
                // Check no later than the next expiry, so that traffic does not outlive its lease
                // by more than the time to stop it.
                let next = service.next_expiry().unwrap_or(LEASE_INTERVAL).min(LEASE_INTERVAL);
                // At least 1 ms, otherwise a lease that is due now would spin the loop.
                sleep(next.max(Duration::from_millis(1))).await;
                service.expire();
                if storing.is_finished() {
                    let (service, certificate) = (service.clone(), certificate.clone());
                    storing = tokio::task::spawn_blocking(move || {
                        keep_up(&service, certificate.as_deref())
                    });
                }
            }
        }
    };
    tokio::select! {
        () = end => {}
        () = expiring => {}
    }
    // Close the listeners first, so that no run starts while the others end.
    listeners.shutdown().await;
    // End TRex's traffic first, because its server stops it the way its client would.
    if let Some(mut trex) = trex.take() {
        _ = tokio::task::spawn_blocking(move || trex.end()).await;
    }
    sockets.into_iter().for_each(|path| _ = std::fs::remove_file(path));
    service.ending.send_replace(true);
    service.end().await;
    let sessions = service.clone();
    let end = move || sessions.otg.end(Instant::now() + SESSIONS_END);
    _ = tokio::task::spawn_blocking(end).await;
    service.audit(&Identity::daemon(), "end", None, "");
    tracing::info!("ended");
    Ok(())
}

/// Periodic work: stores reports of live runs, returns unused memory, renews the certificate.
fn keep_up(service: &Service, certificate: Option<&Certificate>) {
    service.checkpoint();
    // Drop results that are too old, even if no client asks for them.
    drop(service.runs.lately(Instant::now()));
    service.memory.give_back();
    if let Some(certificate) = certificate {
        let mut next = lock(&service.certificate_due);
        if *next <= Instant::now() {
            *next = Instant::now() + CERTIFICATE_INTERVAL;
            match certificate.renew(SystemTime::now()) {
                Ok(true) => tracing::info!("new connections get a new certificate"),
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "cannot renew the certificate"),
            }
            if let Some(end) = certificate.expiry_warning(SystemTime::now()) {
                tracing::warn!("the certificate {end}");
            }
        }
    }
}

async fn bind(address: SocketAddr, option: &str) -> Result<(TcpListener, SocketAddr), Error> {
    let wrong = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!("\n  try another port: {option} {}:0 uses any free port", address.ip())
            }
            _ => String::new(),
        };
        Error::Environment(format!("{option} {address}: {error}{hint}"))
    };
    let listener = TcpListener::bind(address).await.map_err(wrong)?;
    let at = listener.local_addr().map_err(wrong)?;
    Ok((listener, at))
}

/// Binds a socket in the data directory, which only the owner can enter. Returns `None` if the file
/// system refuses it, for example because the path is longer than a socket address (unix(7): 108
/// octets).
fn bind_unix(path: &Path) -> Option<(UnixListener, PathBuf)> {
    // Remove the socket of a killed daemon. No live daemon owns it, because this one holds the
    // directory's lock.
    _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).ok()?;
    Some((listener, path.to_owned()))
}

fn app(service: &Arc<Service>, routes: Router<Arc<Service>>) -> Router {
    let routes = routes.fallback(nothing_there).method_not_allowed_fallback(not_so);
    guarded(service, routes)
}

fn app_of_grpc(service: &Arc<Service>) -> Router {
    guarded(service, otg::grpc())
}

fn guarded(service: &Arc<Service>, routes: Router<Arc<Service>>) -> Router {
    routes
        .layer(DefaultBodyLimit::max(BODY))
        .layer(middleware::from_fn_with_state(service.clone(), crate::middleware::guard))
        .with_state(service.clone())
}

async fn nothing_there(uri: axum::http::Uri) -> Response {
    Refusal::not_found(format!("there is no {}\n  try /squall/v1/openapi.json", uri.path()))
        .into_response()
}

async fn not_so(method: axum::http::Method, uri: axum::http::Uri) -> Response {
    let message =
        format!("{} does not support {method}\n  try /squall/v1/openapi.json", uri.path());
    Refusal::new(axum::http::StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
        .into_response()
}

/// Access checks of a listener. All protocols share them, so that none bypasses another.
#[derive(Clone)]
struct AccessChecks {
    door: AccessRules,
    places: Arc<Places>,
    service: Arc<Service>,
}

impl AccessChecks {
    /// Takes a slot. Users whom the kernel identifies get a reserved slot at once, so that
    /// strangers cannot push them out before their first request.
    fn place(&self, peer: &Peer) -> Arc<Place> {
        let place = Arc::new(self.places.take(peer));
        if self.door.knows(peer.user) {
            place.is_known();
        }
        place
    }
}

async fn accept<F>(
    listener: TcpListener,
    entrance: AccessChecks,
    talk: impl Fn(TcpStream, Peer, Arc<Place>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                // Most likely out of descriptors. Wait until some are closed, otherwise the loop
                // would spin.
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Nagle's algorithm (RFC 896) would delay a small message until the previous one is
        // acknowledged.
        _ = stream.set_nodelay(true);
        // Detects within 30 s that a host has vanished, so that its leases can expire.
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(10))
            .with_interval(Duration::from_secs(5))
            .with_retries(4);
        _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
        let peer = Peer { address: Some(peer), user: entrance.door.user_of(&stream, peer) };
        let place = entrance.place(&peer);
        while_there_is_a_place(&entrance.service, &place, talk(stream, peer, place.clone()));
    }
}

async fn accept_unix<F>(
    listener: UnixListener,
    entrance: AccessChecks,
    talk: impl Fn(UnixStream, Peer, Arc<Place>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let peer = Peer { address: None, user: stream.peer_cred().ok().map(|peer| peer.uid()) };
        let place = entrance.place(&peer);
        while_there_is_a_place(&entrance.service, &place, talk(stream, peer, place.clone()));
    }
}

fn while_there_is_a_place(
    service: &Service,
    place: &Arc<Place>,
    connection: impl Future<Output = ()> + Send + 'static,
) {
    let (mut ending, given_away) = (service.ending.subscribe(), place.given_away());
    tokio::spawn(async move {
        tokio::select! {
            () = connection => {}
            () = given_away => {}
            _ = ending.wait_for(|ending| *ending) => {}
        }
    });
}

async fn connection(
    stream: TcpStream,
    peer: Peer,
    app: Router,
    tls: Option<TlsAcceptor>,
    place: Arc<Place>,
) {
    let connection = Connection::new(peer, &place);
    if !matches!(timeout(FIRST_OCTET, stream.readable()).await, Ok(Ok(()))) {
        return;
    }
    match tls {
        None => talk(TrackedSocket::new(stream, connection.clone(), place), app, connection).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await {
                talk(TrackedSocket::new(stream, connection.clone(), place), app, connection).await;
            }
        }
    }
}

/// Serves a connection without TLS, because the data stays within the kernel, which also identifies
/// the peer's user.
async fn connection_unix(stream: UnixStream, peer: Peer, app: Router, place: Arc<Place>) {
    let connection = Connection::new(peer, &place);
    if matches!(timeout(FIRST_OCTET, stream.readable()).await, Ok(Ok(()))) {
        talk(TrackedSocket::new(stream, connection.clone(), place), app, connection).await;
    }
}

async fn talk<S>(stream: TrackedSocket<S>, app: Router, connection: Arc<Connection>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // The limit in [`Connection::is_overdue`] applies instead.
        .header_read_timeout(None)
        .max_buf_size(HEADER)
        // A client that closes its half has left, so its request is abandoned.
        .half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEADER as u32)
        .max_concurrent_streams(128)
        // Pings detect a vanished client even if a proxy answers the TCP keepalive instead of the
        // client.
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20))
        // Without this limit a client could queue endless work by opening and resetting streams
        // (CVE-2023-44487).
        .max_pending_accept_reset_streams(32);
    let app = app.layer(Extension(connection.clone()));
    let service = TowerToHyperService::new(app);
    let talking = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::select! {
        // Ignored, because an error of a client ends only its own connection.
        _ = talking => {}
        () = until_overdue(&connection) => {}
    }
}

async fn until_overdue(connection: &Connection) {
    while !connection.is_overdue() {
        sleep(Duration::from_millis(500)).await;
    }
}
