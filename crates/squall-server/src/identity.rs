//! Identity of the client, available on each thread that works for a request: for the log, the
//! audit and the holders of ports.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use crate::runs::lock;

tokio::task_local! {
    static AUTHOR: Author;
}

/// The sender of a request and its address.
#[derive(Clone, Debug)]
pub struct Author {
    /// Credentials of the client, or the name that it gave.
    pub who: String,
    /// Address and TCP port.
    pub source: String,
    /// Actions of the request, for the audit.
    done: Arc<Mutex<Vec<String>>>,
}

impl Author {
    pub fn new(who: impl Into<String>, source: impl Into<String>) -> Self {
        Self { who: who.into(), source: source.into(), done: Arc::default() }
    }

    /// The same client for a further request, whose actions are noted separately.
    pub fn again(self) -> Self {
        Self { done: Arc::default(), ..self }
    }

    /// The daemon itself, without a request.
    pub fn daemon() -> Self {
        Self::new("daemon", "")
    }

    /// Runs `work` for this client.
    pub async fn during<F: Future>(self, work: F) -> F::Output {
        AUTHOR.scope(self, work).await
    }

    /// Runs `work` for this client on this thread.
    pub fn with<T>(self, work: impl FnOnce() -> T) -> T {
        AUTHOR.sync_scope(self, work)
    }

    /// Actions noted for the request.
    pub fn notes(&self) -> String {
        lock(&self.done).join("; ")
    }
}

impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source.as_str() {
            "" => f.write_str(&self.who),
            source => write!(f, "{} at {source}", self.who),
        }
    }
}

/// The client for which this thread or task works.
pub fn author() -> Author {
    AUTHOR.try_with(Clone::clone).unwrap_or_else(|_| Author::daemon())
}

/// Notes an action of the request, for the request's entry in the audit.
pub fn note(what: impl Into<String>) {
    _ = AUTHOR.try_with(|author| lock(&author.done).push(what.into()));
}
