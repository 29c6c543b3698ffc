//! Identity of the client, available on each thread that works for a request. Used by the log, the
//! audit and leases.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use crate::runs::lock;

tokio::task_local! {
    static IDENTITY: Identity;
}

/// The client that sent a request.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Credentials of the client, or the name that the client gave.
    pub name: String,
    /// Address and TCP port.
    pub source: String,
    /// Actions of the request, for the audit.
    done: Arc<Mutex<Vec<String>>>,
}

impl Identity {
    pub fn new(name: impl Into<String>, source: impl Into<String>) -> Self {
        Self { name: name.into(), source: source.into(), done: Arc::default() }
    }

    /// The same client for another request, with a separate list of actions.
    pub fn for_next_request(self) -> Self {
        Self { done: Arc::default(), ..self }
    }

    /// The daemon itself, if there is no request.
    pub fn daemon() -> Self {
        Self::new("daemon", "")
    }

    /// Runs `work` on behalf of this client.
    pub async fn during<F: Future>(self, work: F) -> F::Output {
        IDENTITY.scope(self, work).await
    }

    /// Runs `work` on behalf of this client on the current thread.
    pub fn with<T>(self, work: impl FnOnce() -> T) -> T {
        IDENTITY.sync_scope(self, work)
    }

    /// Actions noted for the request.
    pub fn notes(&self) -> String {
        lock(&self.done).join("; ")
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source.as_str() {
            "" => f.write_str(&self.name),
            source => write!(f, "{} at {source}", self.name),
        }
    }
}

/// The client for which the current thread or task works.
pub fn identity() -> Identity {
    IDENTITY.try_with(Clone::clone).unwrap_or_else(|_| Identity::daemon())
}

/// Notes an action for the audit entry of the current request.
pub fn note(what: impl Into<String>) {
    _ = IDENTITY.try_with(|identity| lock(&identity.done).push(what.into()));
}
