//! TLS sessions of flows, and the tickets of their clients.

mod names;
mod session;

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::IpAddr,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use rustls::{
    ClientConfig, NamedGroup, ServerConfig,
    client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue},
    pki_types::ServerName,
    server::{ProducesTickets, ServerSessionMemoryCache},
    time_provider::DefaultTimeProvider,
};
use squall_tls::{
    HelloClientConfig, KeyLogFile, client_config, hello_client_config, server_config, server_name,
};

use names::Names;
pub(crate) use session::{Layer, SESSION};

use crate::{Message, TlsSettings, TlsSettingsError, TlsVersion};

/// Initial configuration for the sessions of both sides, shared by all flows and workers.
#[derive(Clone, Debug)]
pub struct Tls {
    settings: Arc<TlsSettings>,
    pub(crate) client: Arc<ClientConfig>,
    /// For clients that send a given hello.
    pub(crate) hello: Option<Arc<HelloClientConfig>>,
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) server_name: Option<ServerName<'static>>,
    /// In place of the former, for clients over TCP.
    names: Option<Names>,
    stock: Arc<Mutex<Stock>>,
    /// The tickets of a worker's clients, if they use any.
    tickets: Option<Arc<Tickets>>,
}

/// Compares the settings: a generated certificate differs each time.
impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        let early = |of: &Self| of.client.enable_early_data;
        self.settings == other.settings && early(self) == early(other) && self.names == other.names
    }
}

/// The file that gets the secrets of sessions.
#[derive(Clone, Debug)]
pub struct KeyLog(Arc<KeyLogFile>);

impl KeyLog {
    /// An empty file, in place of an existing one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(KeyLogFile::create(path)?)))
    }

    /// Why secrets are missing in the file, if any are.
    pub fn failure(&self) -> Option<&str> {
        self.0.failure()
    }
}

/// Maximum number of servers whose tickets a worker stores, and of tickets per server.
const REMEMBERED: usize = 1024;
/// Sessions that servers with early data keep.
const SESSIONS: usize = 4096;
/// Octets of early data that servers accept in a session: as many as those of OpenSSL and nginx.
const EARLY_DATA: u32 = 16_384;
const TICKETS: usize = 64;

/// Maximum number of tickets that workers share: some 64 MB.
const STOCK: usize = 65_536;

impl Tls {
    /// # Errors
    /// An invalid name, files without a certificate or key, or a key of another certificate.
    pub fn new(settings: &TlsSettings) -> Result<Self, TlsSettingsError> {
        let server_name = server_name(settings)?;
        let (client, server) = (client_config(settings)?, server_config(settings)?);
        let hello = settings.hello.clone().map(|hello| hello_client_config(settings, hello));
        let hello = hello.transpose()?.map(Arc::new);
        let settings = Arc::new(settings.clone());
        let (client, server) = (Arc::new(client), Arc::new(server));
        let (names, stock) = (None, Arc::default());
        Ok(Self { settings, client, hello, server, server_name, names, stock, tickets: None })
    }

    /// Sets a name for each flow that clients begin: text with `${flow:DIGITS}` and, with data,
    /// `${data:COLUMN}`.
    ///
    /// # Errors
    /// Another mark, or a record that makes no host name.
    pub fn set_names(&mut self, name: &Message) -> Result<(), String> {
        self.names = Some(Names::of(name)?);
        Ok(())
    }

    /// Whether the sessions can be those of QUIC.
    ///
    /// # Errors
    /// The setting that prevents it, and a better one.
    pub fn check_http3(&self) -> Result<(), &'static str> {
        let TlsSettings { versions, alpn, .. } = &*self.settings;
        if !versions.is_empty() && !versions.contains(&TlsVersion::Tls13) {
            return Err("HTTP/3 needs TLS 1.3\n  try leaving out tls.versions");
        }
        if self.hello.is_some() {
            return Err("HTTP/3 has a ClientHello of its own\n  try leaving out tls.hello");
        }
        if alpn.iter().any(|name| name == "h3") {
            return Ok(());
        }
        Err("tls.alpn lacks \"h3\", which HTTP/3 needs\n  try leaving out alpn")
    }

    /// Writes the secrets of all sessions to a file.
    pub fn log_keys(&mut self, log: &KeyLog) {
        Arc::make_mut(&mut self.client).key_log = log.0.clone();
        Arc::make_mut(&mut self.server).key_log = log.0.clone();
        if let Some(hello) = &mut self.hello {
            Arc::make_mut(hello).key_log = log.0.clone();
        }
    }

    /// Lets clients resume sessions and send requests before the handshake is complete (0-RTT),
    /// and servers accept and answer them. Servers then keep sessions themselves, because rustls
    /// accepts no early data with tickets that contain the session: a ticket must be of use only
    /// once (RFC 8446 section 8.1).
    ///
    /// # Errors
    /// The setting that prevents it, and a better one.
    pub fn enable_early_data(&mut self) -> Result<(), &'static str> {
        let TlsSettings { versions, .. } = &*self.settings;
        if !versions.is_empty() && !versions.contains(&TlsVersion::Tls13) {
            return Err("early data need TLS 1.3\n  try leaving out tls.versions");
        }
        Arc::make_mut(&mut self.client).enable_early_data = true;
        let server = Arc::make_mut(&mut self.server);
        server.ticketer = Arc::new(NoTicketer);
        server.session_storage = ServerSessionMemoryCache::new(SESSIONS);
        server.send_tls13_tickets = 1;
        server.max_early_data_size = EARLY_DATA;
        // Without it, answers would wait for the end of the handshake.
        server.send_half_rtt_data = true;
        Ok(())
    }

    /// A copy with its own ticket store, so that workers rarely wait for each other.
    pub(crate) fn for_worker(&self) -> Self {
        let mut own = self.clone();
        if self.settings.resumption || self.client.enable_early_data {
            let tickets = Arc::new(Tickets::new(self.stock.clone()));
            let mut client = ClientConfig::clone(&self.client);
            client.resumption = Resumption::store(tickets.clone());
            own.client = Arc::new(client);
            own.tickets = Some(tickets);
            if let Some(hello) = &mut own.hello {
                Arc::make_mut(hello).keep_tickets(Arc::new(DefaultTimeProvider));
            }
        }
        own
    }

    /// Octets of early data that a server allows the client that was made last.
    fn early_limit(&self) -> u32 {
        let limit = |tickets: &Arc<Tickets>| tickets.early_limit.load(Ordering::Relaxed);
        self.tickets.as_ref().map_or(0, limit)
    }

    /// The server name that the client of a flow requests (SNI); `seeds`: the seed of the run, and
    /// the flow's number.
    fn name_of_flow(&self, server: IpAddr, seeds: (u64, u32)) -> ServerName<'static> {
        let name = self.names.as_ref().and_then(|names| names.name(seeds));
        name.unwrap_or_else(|| self.name_of(server))
    }

    /// The server name that a client requests (SNI).
    pub(crate) fn name_of(&self, server: IpAddr) -> ServerName<'static> {
        self.server_name.clone().unwrap_or_else(|| ServerName::IpAddress(server.into()))
    }
}

/// Makes no tickets that contain their session.
#[derive(Debug)]
struct NoTicketer;

impl ProducesTickets for NoTicketer {
    fn enabled(&self) -> bool {
        false
    }
    fn lifetime(&self) -> u32 {
        0
    }
    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// The tickets of a worker's clients. rustls's own store keeps 8 tickets per server, too few for
/// many concurrent users. A worker that has too many gives them to the stock, from which one that
/// has none takes.
#[derive(Debug)]
struct Tickets {
    own: Mutex<HashMap<ServerName<'static>, Known>>,
    stock: Arc<Mutex<Stock>>,
    /// Octets of early data that the ticket that was taken last allows.
    early_limit: AtomicU32,
}

/// The tickets that workers share.
#[derive(Debug, Default)]
struct Stock {
    tickets: HashMap<ServerName<'static>, VecDeque<Tls13ClientSessionValue>>,
    count: usize,
}

impl Stock {
    fn add(&mut self, server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        if self.count < STOCK {
            self.count += 1;
            self.tickets.entry(server).or_default().push_back(ticket);
        }
    }

    fn take(&mut self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let ticket = self.tickets.get_mut(server)?.pop_back()?;
        self.count -= 1;
        Some(ticket)
    }
}

/// Tickets of one server.
#[derive(Debug, Default)]
struct Known {
    group: Option<NamedGroup>,
    session: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl Tickets {
    fn new(stock: Arc<Mutex<Stock>>) -> Self {
        Self { own: Mutex::default(), stock, early_limit: AtomicU32::new(0) }
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entry of a server; `None` if there are too many servers.
    fn with<T>(
        &self,
        server: &ServerName<'_>,
        make: bool,
        then: impl FnOnce(&mut Known) -> T,
    ) -> Option<T> {
        let mut all = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let server = server.to_owned();
        if make && all.len() < REMEMBERED {
            return Some(then(all.entry(server).or_default()));
        }
        all.get_mut(&server).map(then)
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.with(&server, true, |known| known.group = Some(group));
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.with(server, false, |known| known.group)?
    }

    fn set_tls12_session(&self, server: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.with(&server, true, |known| known.session = Some(session));
    }

    fn tls12_session(&self, server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.with(server, false, |known| known.session.clone())?
    }

    fn remove_tls12_session(&self, server: &ServerName<'static>) {
        self.with(server, false, |known| known.session = None);
    }

    fn insert_tls13_ticket(&self, server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let more = self.with(&server, true, |known| {
            known.tickets.push_back(ticket);
            if known.tickets.len() > TICKETS { known.tickets.pop_front() } else { None }
        });
        if let Some(oldest) = more.flatten() {
            self.stock().add(server, oldest);
        }
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let own = self.with(server, false, |known| known.tickets.pop_back()).flatten();
        let ticket = own.or_else(|| self.stock().take(server));
        squall_tls::client_resumes(ticket.is_some());
        let limit = ticket.as_ref().map_or(0, |ticket| ticket.max_early_data_size());
        self.early_limit.store(limit, Ordering::Relaxed);
        ticket
    }
}
