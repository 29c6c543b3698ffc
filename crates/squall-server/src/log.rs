//! The latest requests, for debugging clients.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use schemars::JsonSchema;
use serde::Serialize;

/// Number of requests to keep in memory. The oldest are dropped.
const KEPT: usize = 1000;

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Entry {
    /// Number, from 1 since the daemon started.
    pub n: u64,
    /// Time of the request, RFC 3339.
    pub t: String,
    pub method: String,
    /// Path without the query.
    pub path: String,
    pub status: u16,
    /// Milliseconds until the reply began.
    pub ms: f64,
    pub peer: String,
    pub user_agent: String,
    /// Octets of the bodies, if announced.
    pub octets_in: Option<u64>,
    pub octets_out: Option<u64>,
}

#[derive(Default)]
pub struct RequestLog {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    entries: VecDeque<Entry>,
    total: u64,
    by_status: BTreeMap<u16, u64>,
}

impl RequestLog {
    pub fn add(&self, mut entry: Entry) {
        let mut inner = self.lock();
        inner.total += 1;
        entry.n = inner.total;
        *inner.by_status.entry(entry.status).or_default() += 1;
        if inner.entries.len() == KEPT {
            inner.entries.pop_front();
        }
        inner.entries.push_back(entry);
    }

    /// The requests after number `after`, newest first, at most `limit`.
    pub fn latest(&self, limit: usize, after: u64) -> Vec<Entry> {
        let inner = self.lock();
        inner
            .entries
            .iter()
            .rev()
            .take_while(|entry| entry.n > after)
            .take(limit)
            .cloned()
            .collect()
    }

    /// Number of replies by status.
    pub fn counts(&self) -> Vec<(u16, u64)> {
        self.lock().by_status.iter().map(|(status, count)| (*status, *count)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
