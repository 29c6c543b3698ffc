//! The audit: each request that changes something, each refusal, and the daemon's own actions, with
//! client and time. Entries go to the history and to the log.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use axum::{
    Json,
    extract::State,
    http::{Method, StatusCode},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Refusal,
    api::{Asked, Operation, Routes},
    connection::Peer,
    identity::Identity,
    runs::lock,
    service::Service,
    threads::blocking,
};

/// Minimum time between two recorded refusals of a client. Without it, a client that guesses tokens
/// would push all other entries out of the audit.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of clients whose refusals are counted, so that a scan from many addresses cannot
/// fill the memory.
const MAX_CLIENTS: usize = 1024;

/// An action that was done or refused.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AuditRow {
    /// Number, from 1; numbers are never used again.
    pub n: i64,
    /// RFC 3339.
    pub t: String,
    /// Client, by its credentials; `daemon` for actions of the daemon itself.
    pub who: String,
    /// Address and TCP port of the client.
    pub source: String,
    /// `POST /squall/v1/runs`, `lease expired`.
    pub action: String,
    /// Status of the reply; `null` without a request.
    pub status: Option<u16>,
    /// Affected runs, leases, ports or files.
    pub detail: String,
}

pub fn routes() -> Routes {
    let doc = Operation::new("daemon", "List the actions of clients, newest first");
    Routes::new().get("/squall/v1/audit", list, doc.query::<Query>().gives::<AuditList>())
}

#[derive(Deserialize, JsonSchema)]
struct Query {
    /// 1 to 1000 [default: 100].
    limit: Option<usize>,
    /// Only entries older than this number.
    before: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
struct AuditList {
    entries: Vec<AuditRow>,
}

async fn list(
    State(service): State<Arc<Service>>,
    Asked(query): Asked<Query>,
) -> Result<Json<AuditList>, Refusal> {
    blocking(move || {
        let limit = query.limit.unwrap_or(100).clamp(1, 1000);
        Ok(Json(AuditList { entries: service.history.audit(limit, query.before)? }))
    })
    .await
}

/// The key by which refusals are counted: address and, if known, user. The user counts, because
/// users of one machine share its address, and one of them must not hide another's refusals.
type RefusalKey = (IpAddr, Option<u32>);

/// Refusals by client: the time of the last recorded one, and the number of later ones that were
/// not recorded.
#[derive(Default)]
pub struct Refused(Mutex<HashMap<RefusalKey, (Instant, u64)>>);

impl Refused {
    /// Returns the number of refusals that were not recorded before this one. `None` if this one is
    /// not recorded either.
    fn another(&self, from: RefusalKey, now: Instant) -> Option<u64> {
        let mut known = lock(&self.0);
        if known.len() >= MAX_CLIENTS && !known.contains_key(&from) {
            known.retain(|_, (last, _)| now.duration_since(*last) < REFUSAL_INTERVAL);
        }
        if known.len() >= MAX_CLIENTS && !known.contains_key(&from) {
            return None;
        }
        match known.get_mut(&from) {
            Some((last, missed)) if now.duration_since(*last) < REFUSAL_INTERVAL => {
                *missed += 1;
                None
            }
            _ => Some(known.insert(from, (now, 0)).map_or(0, |(_, missed)| missed)),
        }
    }
}

/// Whether a request only reads. Some POSTs do, because their query is in the body.
fn is_read_only(method: &Method, path: &str) -> bool {
    // Renewals count as reads, otherwise clients that keep a lease would fill the audit.
    const READ_ONLY: [&str; 6] = ["packets/", "profiles/", "plan", "attacks/", "import", "logout"];
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return true;
    }
    if let Some(native) = path.strip_prefix("/squall/v1/") {
        return READ_ONLY.iter().any(|is_read_only| native.starts_with(is_read_only))
            || native.ends_with("/renew");
    }
    match path.strip_prefix("/otg.Openapi/") {
        Some(call) => call.trim_start_matches("stream").starts_with("Get"),
        None => path.contains("/monitor/"),
    }
}

impl Service {
    /// Records an answered request.
    pub fn audit_request(
        &self,
        identity: &Identity,
        peer: &Peer,
        method: &Method,
        path: &str,
        status: StatusCode,
    ) {
        // Truncated, because clients choose the path, and the audit must stay bounded.
        let path: String = path.chars().take(200).collect();
        let action = format!("{method} {path}");
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            self.audit_refusal(identity, peer, &action, status);
        } else if !is_read_only(method, &path) {
            self.audit(identity, action, Some(status.as_u16()), identity.notes());
        }
    }

    /// Records a client that was refused.
    pub fn audit_refusal(
        &self,
        identity: &Identity,
        peer: &Peer,
        action: &str,
        status: StatusCode,
    ) {
        let from = (peer.ip(), peer.user);
        let Some(missed) = self.refused.another(from, Instant::now()) else { return };
        let detail = match missed {
            0 => identity.notes(),
            _ => format!("and {missed} earlier refusals of this address"),
        };
        tracing::warn!(source = identity.source, action, status = status.as_u16(), "refused");
        self.audit(identity, action, Some(status.as_u16()), detail);
    }

    pub fn audit(
        &self,
        identity: &Identity,
        action: impl Into<String>,
        status: Option<u16>,
        detail: impl Into<String>,
    ) {
        let row = AuditRow {
            n: 0,
            t: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
            who: identity.name.clone(),
            source: identity.source.clone(),
            action: action.into(),
            status,
            detail: detail.into(),
        };
        tracing::info!(target: "squall::audit", who = row.who, source = row.source, action = row.action, status, detail = row.detail);
        self.history.add_audit(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_change_something_are_distinguished_from_reads() {
        for (method, path, expected) in [
            ("POST", "/squall/v1/runs", false),
            ("POST", "/squall/v1/leases/release", false),
            ("POST", "/squall/v1/leases/l-1/renew", true),
            ("DELETE", "/squall/v1/files/x", false),
            ("GET", "/squall/v1/runs", true),
            ("POST", "/squall/v1/profiles/check", true),
            ("POST", "/config", false),
            ("POST", "/otg/alice/control/state", false),
            ("POST", "/otg/alice/monitor/metrics", true),
            ("POST", "/otg.Openapi/SetConfig", false),
            ("POST", "/otg.Openapi/streamSetConfig", false),
            ("POST", "/otg.Openapi/GetMetrics", true),
            ("POST", "/otg.Openapi/streamGetMetrics", true),
        ] {
            assert_eq!(
                is_read_only(&method.parse().expect("a method"), path),
                expected,
                "{method} {path}"
            );
        }
    }

    #[test]
    fn guessing_tokens_leaves_one_entry_in_ten_seconds() {
        let refused = Refused::default();
        let of = |address: [u8; 4]| (IpAddr::from(address), None);
        let (eve, bob) = (of([192, 0, 2, 66]), of([192, 0, 2, 7]));
        let began = Instant::now();
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let kept: Vec<_> = (0..25).map(|second| refused.another(eve, at(second))).collect();
        assert_eq!(kept.iter().flatten().collect::<Vec<_>>(), [&0, &9, &9]);
        assert_eq!(refused.another(bob, at(24)), Some(0));
        for n in 0..5000u32 {
            refused.another(of(n.to_be_bytes()), at(24));
        }
        assert!(lock(&refused.0).len() <= MAX_CLIENTS);
        assert_eq!(
            refused.another(of([198, 51, 100, 1]), at(60)),
            Some(0),
            "those of before are forgotten"
        );
        let local = |user| (IpAddr::from([127, 0, 0, 1]), Some(user));
        let users = [1000, 1002].map(|user| refused.another(local(user), at(70)));
        assert_eq!(users, [Some(0); 2], "one address, and two users");
    }
}
