//! Open Traffic Generator over HTTP and gRPC.
//!
//! HTTP and gRPC share one path: [`http`] and [`grpc`] only carry octets. [`schema`] converts these
//! to values, an [`Operation`] calls the session's [`Controller`], and the schema encodes the
//! reply.

mod grpc;
mod http;
mod schema;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, TryLockError, Weak},
    time::{Duration, Instant},
};

use axum::{Router, http::Extensions};
use bytes::Bytes;
use flate2::Compression;
use serde_json::Value;
use squall_control::driving::{InProcess, Start};
use squall_otg::{Controller, Refusal};

use crate::{
    coding::gzipped,
    runs::lock,
    service::Service,
    threads::{Acting, looking},
};

/// Maximum size of a decompressed request, in octets: several times the size of 4,096 flows with
/// long headers.
const MAX_REQUEST: usize = 64 << 20;

/// Maximum number of sessions, because each keeps its config until the daemon ends.
const MAX_SESSIONS: usize = 256;

/// Minimum octets of a reply to compress. The metrics of 4,096 flows take 2 MB, and a tenth of that
/// when compressed.
const MIN_COMPRESSED: usize = 64 << 10;

/// Services of the daemon that sessions need.
pub trait Host: Send + Sync {
    /// Starts runs of `session`. The name of the default session is "".
    fn start(&self, session: &str) -> Box<dyn Start>;

    /// Called for each request for `session`. `by` has the extensions that its connection added.
    fn used(&self, session: &str, by: &Extensions);
}

/// Routes for HTTP, served together with the native API.
pub fn router() -> Router<Arc<Service>> {
    http::routes()
}

/// Routes for gRPC on its own listener, with the same server, middleware and log as for HTTP.
pub fn grpc() -> Router<Arc<Service>> {
    grpc::routes()
}

/// Routes for gRPC on the listener of HTTP, next to its other routes.
pub fn grpc_calls() -> Router<Arc<Service>> {
    grpc::calls()
}

/// The sessions of this API by name. Each has its own config, traffic and captures.
pub struct Sessions {
    acting: Acting,
    host: OnceLock<Box<dyn Host>>,
    open: Mutex<HashMap<String, Arc<Session>>>,
}

struct Session {
    controller: Mutex<Controller>,
    /// Latest reply that several clients may request, in each form.
    printed: Mutex<Vec<Printed>>,
}

/// Cache of an encoded value: 50 clients that poll 4,096 flows would otherwise cost a core.
struct Printed {
    value: Weak<Value>,
    form: Form,
    answer: Answer,
}

/// Encoding of a request and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    /// A JSON request; the reply is compressed if it is large enough.
    Gzip,
    Protobuf,
}

/// An encoded reply.
#[derive(Clone)]
struct Answer {
    octets: Bytes,
    /// Whether `octets` are compressed JSON.
    gzip: bool,
}

/// The result of an operation.
enum Reply {
    Value(Arc<Value>),
    Octets(Vec<u8>),
}

/// An operation of OTG.
pub(crate) struct Operation {
    /// Name in gRPC.
    name: &'static str,
    /// Method and path in HTTP.
    method: &'static str,
    path: &'static str,
    /// Message type of the request; "" if there is none.
    request: &'static str,
    /// Message type of the reply; "" for raw octets.
    reply: &'static str,
    dispatch: fn(&mut Controller, &Value) -> Result<Reply, Refusal>,
}

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        name: "GetVersion",
        method: "GET",
        path: "/capabilities/version",
        request: "",
        reply: "Version",
        dispatch: |_, _| Ok(value(Controller::version())),
    },
    Operation {
        name: "SetConfig",
        method: "POST",
        path: "/config",
        request: "Config",
        reply: "Warning",
        dispatch: |session, asked| session.set_config(asked).map(value),
    },
    Operation {
        name: "GetConfig",
        method: "GET",
        path: "/config",
        request: "",
        reply: "Config",
        dispatch: |session, _| Ok(value(session.config())),
    },
    Operation {
        name: "UpdateConfig",
        method: "PATCH",
        path: "/config",
        request: "ConfigUpdate",
        reply: "Warning",
        dispatch: |session, asked| session.update_config(asked).map(value),
    },
    Operation {
        name: "AppendConfig",
        method: "PATCH",
        path: "/config/append",
        request: "ConfigAppend",
        reply: "Warning",
        dispatch: |session, asked| session.append_config(asked).map(value),
    },
    Operation {
        name: "DeleteConfig",
        method: "PATCH",
        path: "/config/delete",
        request: "ConfigDelete",
        reply: "Warning",
        dispatch: |session, asked| session.delete_config(asked).map(value),
    },
    Operation {
        name: "SetControlState",
        method: "POST",
        path: "/control/state",
        request: "ControlState",
        reply: "Warning",
        dispatch: |session, asked| session.control_state(asked).map(value),
    },
    Operation {
        name: "SetControlAction",
        method: "POST",
        path: "/control/action",
        request: "ControlAction",
        reply: "ControlActionResponse",
        dispatch: |session, asked| session.control_action(asked).map(value),
    },
    Operation {
        name: "GetMetrics",
        method: "POST",
        path: "/monitor/metrics",
        request: "MetricsRequest",
        reply: "MetricsResponse",
        dispatch: |session, asked| session.metrics(asked).map(Reply::Value),
    },
    Operation {
        name: "GetStates",
        method: "POST",
        path: "/monitor/states",
        request: "StatesRequest",
        reply: "StatesResponse",
        dispatch: |session, asked| session.states(asked).map(value),
    },
    Operation {
        name: "GetCapture",
        method: "POST",
        path: "/monitor/capture",
        request: "CaptureRequest",
        reply: "",
        dispatch: |session, asked| session.capture(asked).map(Reply::Octets),
    },
];

fn value(value: Value) -> Reply {
    Reply::Value(Arc::new(value))
}

impl Operation {
    /// Whether it only reads, and neither starts nor changes traffic.
    fn is_read_only(&self) -> bool {
        self.name.starts_with("Get")
    }
}

impl Sessions {
    pub fn new(acting: Acting) -> Self {
        Self { acting, host: OnceLock::new(), open: Mutex::default() }
    }

    /// Sets the host. Call this before the first request. Without a host, runs start in this
    /// process.
    pub fn hosted_by(&self, host: Box<dyn Host>) {
        // A second host would not know the runs that the first has started.
        assert!(self.host.set(host).is_ok(), "sessions have one host");
    }

    /// Ends the traffic and captures of a session that has lost its ports, and keeps its config.
    /// Blocks.
    pub fn expire(&self, name: &str, why: &str) {
        let session = lock(&self.open).get(name).cloned();
        if let Some(session) = session {
            lock(&session.controller).report_ports_lost(why);
        }
    }

    /// Ends all sessions and removes the files of their captures. Blocks until `deadline` at most,
    /// because an operation may still wait for its run. Explicit, because a connection that
    /// outlives the runtime's shutdown keeps the sessions until the process exits, which drops
    /// nothing.
    pub fn end(&self, deadline: Instant) {
        let mut open: Vec<_> = lock(&self.open).drain().map(|(_, session)| session).collect();
        loop {
            open.retain(|session| match session.controller.try_lock() {
                Ok(mut controller) => {
                    controller.end();
                    false
                }
                Err(error) => matches!(error, TryLockError::WouldBlock),
            });
            if open.is_empty() || Instant::now() > deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Performs `operation` for the session `name`, which is created on its first request, and
    /// encodes the reply in the form of the request.
    async fn perform(
        &self,
        operation: &'static Operation,
        name: &str,
        by: &Extensions,
        form: Form,
        request: Bytes,
    ) -> Result<Answer, Refusal> {
        let session = self.session(name)?;
        if let Some(host) = self.host.get() {
            host.used(name, by);
        }
        // Must not run on a serving thread, because decoding tens of megabytes and opening ports
        // both block.
        let work = move || session.perform(operation, form, &request);
        let done = match operation.is_read_only() {
            true => looking(work).await,
            false => self.acting.act(work).await,
        };
        done.unwrap_or_else(|| {
            Err(Refusal::internal(
                "this is a bug in Squall, please report it with the output of the daemon",
            ))
        })
    }

    fn session(&self, name: &str) -> Result<Arc<Session>, Refusal> {
        // Restricted, because names become parts of lease owners and paths, which must be
        // unambiguous.
        let sound = name.len() <= 64
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if !sound {
            let what = "a session's name can have at most 64 letters, digits, and -, _, .";
            return Err(refusal(what.into()));
        }
        let mut open = lock(&self.open);
        if let Some(session) = open.get(name) {
            return Ok(session.clone());
        }
        if open.len() >= MAX_SESSIONS {
            let what =
                format!("there are {MAX_SESSIONS} sessions already\n  try the name of one of them");
            return Err(refusal(what));
        }
        let controller = Mutex::new(Controller::new(
            self.host
                .get()
                .map_or_else(|| Box::<InProcess>::default() as _, |host| host.start(name)),
        ));
        let session = Arc::new(Session { controller, printed: Mutex::default() });
        open.insert(name.into(), session.clone());
        Ok(session)
    }
}

impl Session {
    fn perform(
        &self,
        operation: &Operation,
        form: Form,
        request: &[u8],
    ) -> Result<Answer, Refusal> {
        let asked = match (operation.request, form) {
            ("", _) => Ok(Value::Null),
            (kind, Form::Json | Form::Gzip) => schema::from_json(&schema::message(kind), request),
            (kind, Form::Protobuf) => schema::from_protobuf(&schema::message(kind), request),
        };
        let asked = asked.map_err(|errors| Refusal { errors, ..refusal(String::new()) })?;
        let reply = (operation.dispatch)(&mut lock(&self.controller), &asked)?;
        let value = match reply {
            Reply::Octets(octets) => return Ok(Answer { octets: octets.into(), gzip: false }),
            Reply::Value(value) => value,
        };
        let mut printed = lock(&self.printed);
        printed.retain(|printed| printed.value.strong_count() > 0);
        let same = |printed: &&Printed| {
            printed.form == form && std::ptr::eq(printed.value.as_ptr(), &raw const *value)
        };
        if let Some(printed) = printed.iter().find(same) {
            return Ok(printed.answer.clone());
        }
        let reply = schema::message(operation.reply);
        let answer = match form {
            Form::Json | Form::Gzip => {
                let text = schema::to_json(&reply, &value);
                let gzip = form == Form::Gzip && text.len() >= MIN_COMPRESSED;
                let octets =
                    if gzip { gzipped(text.as_bytes(), Compression::fast()) } else { text.into() };
                Answer { octets: octets.into(), gzip }
            }
            Form::Protobuf => {
                let octets = schema::to_protobuf(&reply, &value);
                Answer { octets: octets.map_err(Refusal::internal)?.into(), gzip: false }
            }
        };
        // Only values that the controller refers to are kept, because it may return only these
        // again.
        if Arc::strong_count(&value) > 1 {
            printed.push(Printed { value: Arc::downgrade(&value), form, answer: answer.clone() });
        }
        Ok(answer)
    }
}

/// A refusal for an error of the client.
fn refusal(what: String) -> Refusal {
    Refusal { code: 400, kind: "validation".into(), errors: vec![what] }
}

fn json(refusal: &Refusal) -> String {
    serde_json::to_string(refusal).expect("words and numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_has_what_the_operations_need() {
        for name in OPERATIONS.iter().flat_map(|operation| [operation.request, operation.reply]) {
            if !name.is_empty() {
                schema::message(name);
            }
        }
    }
}
