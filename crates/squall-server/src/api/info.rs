//! The daemon's version and settings, and login.

use std::sync::Arc;

use axum::{
    Json,
    extract::{DefaultBodyLimit, Extension, State},
    handler::Handler,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Body, Operation, Routes};
use crate::{Refusal, connection::Connection, service::Service};

/// Maximum size of a login request, in octets.
const LOGIN: usize = 4 << 10;

pub fn routes() -> Routes {
    let doc = |summary| Operation::new("daemon", summary);
    Routes::new()
        .get(
            "/squall/v1/clock",
            clock,
            doc("Read the clock by which runs send and measure").gives::<Clock>(),
        )
        .get("/squall/v1/info", info, doc("Describe the daemon; needs no token").gives::<Info>())
        // A small limit, because the client has not sent the token yet.
        .post(
            "/squall/v1/login",
            login.layer(DefaultBodyLimit::max(LOGIN)),
            doc("Exchange the token for a cookie").takes::<Login>().status(204),
        )
        .post("/squall/v1/logout", logout, doc("Delete the cookie").status(204))
}

#[derive(Serialize, JsonSchema)]
struct Info {
    name: &'static str,
    version: &'static str,
    api: &'static str,
    /// RFC 3339.
    started: String,
    uptime_s: f64,
    /// Whether this client needs the token.
    token_required: bool,
    /// Whether this request is allowed to use the rest of the API.
    authorized: bool,
    /// Address of HTTPS.
    https: Option<String>,
    grpc: Option<String>,
    /// Whether gRPC has TLS.
    grpc_tls: bool,
    /// Time for which a dead client keeps a port.
    lease_s: f64,
    otg: Otg,
    /// Other daemons that its web page may access (`--peer`); only for authorized clients.
    peers: Vec<String>,
}

/// The daemon's clocks, read as late as possible before the reply, so that the client sees little
/// delay.
#[derive(Serialize, JsonSchema)]
struct Clock {
    /// CLOCK_MONOTONIC.
    monotonic_ns: u64,
    /// Since 1970-01-01 UTC.
    unix_ns: u64,
}

async fn clock() -> Json<Clock> {
    let monotonic_ns = squall_port::monotonic().0;
    Json(Clock {
        monotonic_ns,
        unix_ns: monotonic_ns.saturating_add_signed(squall_machine::wall_offset()),
    })
}

#[derive(Serialize, JsonSchema)]
struct Otg {
    /// Version constraint, as clients compare it.
    api_spec_version: &'static str,
}

async fn info(
    State(service): State<Arc<Service>>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: HeaderMap,
) -> Json<Info> {
    let scheme = if service.settings.plain { "http" } else { "https" };
    let bound = service.bound.get();
    let authorized = service.auth.allows(&headers, &connection.peer);
    let peers = service.settings.peers.iter().filter(|_| authorized);
    Json(Info {
        name: "squall",
        version: env!("CARGO_PKG_VERSION"),
        api: "v1",
        started: humantime::format_rfc3339_seconds(service.started).to_string(),
        uptime_s: service.since.elapsed().as_secs_f64(),
        token_required: service.auth.needs_token(&headers, &connection.peer),
        authorized,
        https: bound.map(|(https, _)| format!("{scheme}://{https}")),
        grpc: bound.and_then(|(_, grpc)| grpc.map(|grpc| grpc.to_string())),
        grpc_tls: service.settings.grpc_has_tls(),
        lease_s: service.settings.lease.as_secs_f64(),
        otg: Otg { api_spec_version: "^1.0.0" },
        peers: peers.map(ToString::to_string).collect(),
    })
}

#[derive(Deserialize, JsonSchema)]
struct Login {
    token: String,
}

async fn login(
    State(service): State<Arc<Service>>,
    Body(login): Body<Login>,
) -> Result<Response, Refusal> {
    if !service.auth.is_token(login.token.trim()) {
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", "the token is wrong"));
    }
    let cookie = service.auth.login(!service.settings.plain);
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

async fn logout(State(service): State<Arc<Service>>, headers: HeaderMap) -> Response {
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, service.auth.logout(&headers))]).into_response()
}
