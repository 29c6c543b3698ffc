//! TLS sessions of flows, and the tickets of their clients.

mod session;

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::IpAddr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use rustls::{
    ClientConfig, NamedGroup, ServerConfig,
    client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue},
    pki_types::ServerName,
};
use squall_tls::{KeyLogFile, client_config, server_config, server_name};

pub(crate) use session::{Layer, SESSION};

use crate::{TlsSettings, TlsSettingsError};

/// Initial configuration for the sessions of both sides, shared by all flows and workers.
#[derive(Clone, Debug)]
pub struct Tls {
    settings: Arc<TlsSettings>,
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) server_name: Option<ServerName<'static>>,
}

/// Compares the settings: a generated certificate differs each time.
impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
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
const TICKETS: usize = 64;

impl Tls {
    /// # Errors
    /// An invalid name, files without a certificate or key, or a key of another certificate.
    pub fn new(settings: &TlsSettings) -> Result<Self, TlsSettingsError> {
        let server_name = server_name(settings)?;
        let (client, server) = (client_config(settings)?, server_config(settings)?);
        let settings = Arc::new(settings.clone());
        Ok(Self { settings, client: Arc::new(client), server: Arc::new(server), server_name })
    }

    /// Writes the secrets of all sessions to a file.
    pub fn log_keys(&mut self, log: &KeyLog) {
        Arc::make_mut(&mut self.client).key_log = log.0.clone();
        Arc::make_mut(&mut self.server).key_log = log.0.clone();
    }

    /// A copy with its own ticket store, so that workers do not wait for each other.
    pub(crate) fn for_worker(&self) -> Self {
        let mut own = self.clone();
        if self.settings.resumption {
            let mut client = ClientConfig::clone(&self.client);
            client.resumption = Resumption::store(Arc::new(Tickets::default()));
            own.client = Arc::new(client);
        }
        own
    }

    /// The server name that a client requests (SNI).
    pub(crate) fn name_of(&self, server: IpAddr) -> ServerName<'static> {
        self.server_name.clone().unwrap_or_else(|| ServerName::IpAddress(server.into()))
    }
}

/// The tickets of a worker's clients. rustls's own store keeps 8 tickets per server, too few for
/// many concurrent users.
#[derive(Debug, Default)]
struct Tickets(Mutex<HashMap<ServerName<'static>, Known>>);

/// Tickets of one server.
#[derive(Debug, Default)]
struct Known {
    group: Option<NamedGroup>,
    session: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl Tickets {
    /// The entry of a server; `None` if there are too many servers.
    fn with<T>(
        &self,
        server: &ServerName<'_>,
        make: bool,
        then: impl FnOnce(&mut Known) -> T,
    ) -> Option<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        self.with(&server, true, |known| {
            if known.tickets.len() == TICKETS {
                known.tickets.pop_front();
            }
            known.tickets.push_back(ticket);
        });
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.with(server, false, |known| known.tickets.pop_back())?
    }
}
