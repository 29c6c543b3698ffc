//! The daemon from its start to its end: listeners, connections, signals.

use std::{
    io,
    net::SocketAddr,
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
    net::{TcpListener, TcpStream},
    signal::unix::{SignalKind, signal},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    Bound, Refusal, Settings, api,
    author::Author,
    connection::{Connection, Watched},
    guard, gui, otg,
    runs::{OtgHost, lock},
    service::Service,
    threads::giving_way,
    tls::Certificate,
};

/// Connections at once, if so many files may be open; more are closed as they come.
const CONNECTIONS: usize = 1024;
/// Octets of a body, unless a route says otherwise.
const BODY: usize = 64 << 20;
/// Octets of a request's header.
const HEADER: usize = 64 << 10;
/// Between two looks at the certificate.
const CERTIFICATE: Duration = Duration::from_secs(3600);
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Lets the process open as many files as it may; how many these are. What services and shells start with (1,024) is less.
fn open_files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    let current = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    current.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX)
}

/// Serves until SIGTERM or SIGINT. `ready` hears where, when it does.
///
/// # Errors
/// An address that is taken, a data folder that cannot be used, a certificate that is none.
pub fn serve(settings: Settings, ready: impl FnOnce(&Bound)) -> Result<(), Error> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).on_thread_start(giving_way()).enable_all().build();
    let runtime = runtime.map_err(|error| Error::Environment(format!("no thread can be started: {error}")))?;
    let done = runtime.block_on(serve_until(settings, ready, signals()));
    // What still reads a file or solves a rule is not waited for.
    runtime.shutdown_timeout(Duration::from_millis(100));
    done
}

async fn signals() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// As [`serve`], until `end`; for who has a runtime of tokio.
///
/// # Errors
/// As [`serve`].
pub async fn serve_until(
    settings: Settings,
    ready: impl FnOnce(&Bound),
    end: impl Future<Output = ()>,
) -> Result<(), Error> {
    let certificate = match settings.plain {
        true => None,
        false => Some(Certificate::open(&prepared(&settings)?, SystemTime::now())?),
    };
    let tls = certificate.as_ref().map(Certificate::config).transpose()?;
    let service = Arc::new(Service::open(settings)?);
    service.otg.hosted_by(Box::new(OtgHost(Arc::downgrade(&service))));
    let settings = &service.settings;
    let (https, at) = bind(settings.listen, "--listen").await?;
    let grpc = match settings.grpc {
        Some(address) => Some(bind(address, "--grpc").await?),
        None => None,
    };
    let grpc_at = grpc.as_ref().map(|(_, at)| *at);
    _ = service.bound.set((at, grpc_at));
    // Half of the files at most: runs need some, too, and strangers hold connections.
    let places = Arc::new(Semaphore::new(CONNECTIONS.min(open_files() / 2)));
    let app = app(&service, api::router().merge(otg::router()).merge(gui::router()));
    let mut listeners = tokio::task::JoinSet::new();
    listeners.spawn(accept(https, app, tls.map(TlsAcceptor::from), places.clone(), service.clone()));
    if let Some((grpc, _)) = grpc {
        listeners.spawn(accept(grpc, app_of_grpc(&service), None, places, service.clone()));
    }
    tracing::info!(%at, grpc = ?grpc_at, version = env!("CARGO_PKG_VERSION"), "serving");
    service.audit(&Author::daemon(), "start", None, format!("version {} at {at}", env!("CARGO_PKG_VERSION")));
    ready(&Bound {
        https: at,
        grpc: grpc_at,
        token_file: service.auth.file.clone(),
        token_required: service.auth.required,
        new_token: service.auth.new_token.clone(),
    });
    let expiring = {
        let service = service.clone();
        async move {
            let mut storing = tokio::task::spawn_blocking(|| {});
            loop {
                sleep(Duration::from_millis(200)).await;
                service.expire();
                if storing.is_finished() {
                    let (service, certificate) = (service.clone(), certificate.clone());
                    storing = tokio::task::spawn_blocking(move || keep_up(&service, certificate.as_deref()));
                }
            }
        }
    };
    tokio::select! {
        () = end => {}
        () = expiring => {}
    }
    listeners.shutdown().await;
    service.ending.send_replace(true);
    service.end().await;
    service.audit(&Author::daemon(), "end", None, "");
    tracing::info!("ended");
    Ok(())
}

/// What is to be done now and then: reports of runs that go on are stored, memory that nobody uses is given back, the
/// certificate is made anew.
fn keep_up(service: &Service, certificate: Option<&Certificate>) {
    service.checkpoint();
    // Those whose time is over go, also when nobody asks.
    drop(service.runs.lately(Instant::now()));
    service.memory.give_back();
    if let Some(certificate) = certificate {
        let mut next = lock(&service.certificate_due);
        if *next <= Instant::now() {
            *next = Instant::now() + CERTIFICATE;
            match certificate.renew(SystemTime::now()) {
                Ok(true) => tracing::info!("new connections are shown another certificate"),
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "the certificate cannot be renewed"),
            }
            if let Some(end) = certificate.ends_soon(SystemTime::now()) {
                tracing::warn!("the certificate {end}");
            }
        }
    }
}

/// The data folder, before anything is written there.
fn prepared(settings: &Settings) -> Result<Settings, Error> {
    let folder = &settings.data;
    std::fs::create_dir_all(folder).map_err(|e| Error::Environment(format!("{}: {e}", folder.display())))?;
    Ok(settings.clone())
}

async fn bind(address: SocketAddr, said: &str) -> Result<(TcpListener, SocketAddr), Error> {
    let wrong = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!("\n  try another port: {said} {}:0 takes any that is free", address.ip())
            }
            _ => String::new(),
        };
        Error::Environment(format!("{said} {address}: {error}{hint}"))
    };
    let listener = TcpListener::bind(address).await.map_err(wrong)?;
    let at = listener.local_addr().map_err(wrong)?;
    Ok((listener, at))
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
        .layer(middleware::from_fn_with_state(service.clone(), guard::guard))
        .with_state(service.clone())
}

async fn nothing_there(uri: axum::http::Uri) -> Response {
    Refusal::not_found(format!("there is no {}\n  try /squall/v1/openapi.json", uri.path())).into_response()
}

async fn not_so(method: axum::http::Method, uri: axum::http::Uri) -> Response {
    let message = format!("{} does not take {method}\n  try /squall/v1/openapi.json", uri.path());
    Refusal::new(axum::http::StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message).into_response()
}

async fn accept(
    listener: TcpListener,
    app: Router,
    tls: Option<TlsAcceptor>,
    places: Arc<Semaphore>,
    service: Arc<Service>,
) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                // Out of descriptors, most likely: some will be closed.
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let (app, tls, mut ending) = (app.clone(), tls.clone(), service.ending.subscribe());
        tokio::spawn(async move {
            tokio::select! {
                () = connection(stream, peer, app, tls, place) => {}
                _ = ending.wait_for(|ending| *ending) => {}
            }
        });
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    app: Router,
    tls: Option<TlsAcceptor>,
    place: OwnedSemaphorePermit,
) {
    _ = stream.set_nodelay(true);
    // A host that is gone without a word is found after half a minute: its leases end then.
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5)).with_retries(4);
    _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
    let connection = Connection::new(peer);
    match tls {
        None => talk(Watched::new(stream, connection.clone(), place), app, connection).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await {
                talk(Watched::new(stream, connection.clone(), place), app, connection).await;
            }
        }
    }
}

async fn talk<S>(stream: Watched<S>, app: Router, connection: Arc<Connection>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(HEADER).half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEADER as u32)
        .max_concurrent_streams(128)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_pending_accept_reset_streams(32);
    let app = app.layer(Extension(connection.clone()));
    let service = TowerToHyperService::new(app);
    let talking = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::select! {
        // What a client does wrong ends its connection, and is its own affair.
        _ = talking => {}
        () = until_tired(&connection) => {}
    }
}

async fn until_tired(connection: &Connection) {
    while !connection.is_tired() {
        sleep(Duration::from_millis(500)).await;
    }
}
