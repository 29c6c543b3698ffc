//! Who asks: known on whatever thread works for a request, for the log, the audit, and those whom
//! it concerns.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use crate::runs::lock;

tokio::task_local! {
    static AUTHOR: Author;
}

/// Who sent a request, and from where.
#[derive(Clone, Debug)]
pub struct Author {
    /// What is known of them: what they showed, or how they call themselves.
    pub who: String,
    /// Address and port.
    pub source: String,
    /// What the request did, for the audit.
    done: Arc<Mutex<Vec<String>>>,
}

impl Author {
    pub fn new(who: impl Into<String>, source: impl Into<String>) -> Self {
        Self { who: who.into(), source: source.into(), done: Arc::default() }
    }

    /// The same for a further request: what it does is noted apart.
    pub fn again(self) -> Self {
        Self { done: Arc::default(), ..self }
    }

    /// Nobody asks: the daemon does it by itself.
    pub fn daemon() -> Self {
        Self::new("daemon", "")
    }

    /// Does `work` for them.
    pub async fn during<F: Future>(self, work: F) -> F::Output {
        AUTHOR.scope(self, work).await
    }

    /// Does `work` for them on this thread.
    pub fn with<T>(self, work: impl FnOnce() -> T) -> T {
        AUTHOR.sync_scope(self, work)
    }

    /// What was noted of the request.
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

/// For whom this thread or task works.
pub fn author() -> Author {
    AUTHOR.try_with(Clone::clone).unwrap_or_else(|_| Author::daemon())
}

/// Notes what the request has done: the audit has it beside the request itself.
pub fn note(what: impl Into<String>) {
    _ = AUTHOR.try_with(|author| lock(&author.done).push(what.into()));
}
