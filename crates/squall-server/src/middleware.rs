//! Middleware for every request: checks origin, credentials and content type, and logs the outcome.

use std::{
    net::IpAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Instant, SystemTime},
};

use axum::{
    body::Body,
    extract::{Extension, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http_body::Body as _;

use crate::{
    Needs, Refusal,
    connection::{Connection, Peer},
    drain::{self, after_reply, lend},
    identity::Identity,
    log::Entry,
    peers,
    service::Service,
    slow_body::SlowBody,
    work::Work,
};

/// Whether a path needs no token: the query whether one is needed, the login, and the web page,
/// because it contains no secrets and asks for the token.
fn is_open(path: &str) -> bool {
    matches!(path, "/squall/v1/info" | "/squall/v1/login" | "/" | "/squall.svg" | "/favicon.ico")
        || path.starts_with("/assets/")
}

pub async fn guard(
    State(service): State<Arc<Service>>,
    Extension(connection): Extension<Arc<Connection>>,
    mut request: Request,
    next: Next,
) -> Response {
    let page = peers::page(&service.settings.peers, request.uri(), request.headers()).cloned();
    if page.is_some() {
        request.headers_mut().insert(peers::PAGE, HeaderValue::from_static("of a peer"));
    }
    let (method, uri, headers) =
        (request.method().clone(), request.uri().clone(), request.headers().clone());
    let _under_way = connection.request();
    let (came, since) = (SystemTime::now(), Instant::now());
    // HTTP/1 needs no drain here, because hyper closes the connection after the reply if a part of
    // the body is unread.
    let reset = request.version() == Version::HTTP_2;
    let octets_in = request.body().size_hint().exact();
    let identity = Identity::new(service.auth.credentials(&headers), connection.peer.to_string());
    let preflight = page.as_ref().and_then(|_| peers::preflight(&method, &headers));
    let work = Work::of(octets_in, &service.memory);
    // Dropped together with this future when the client leaves, so that its work can stop.
    let _waiting = work.waiting();
    let (mut response, left) = match admit(&service, &connection.peer, &request, page.is_some()) {
        Ok(()) if preflight.is_some() => (preflight.unwrap_or_default(), None),
        Ok(()) => {
            if service.auth.allows(&headers, &connection.peer) {
                connection.is_known();
            }
            let (parts, body) = request.into_parts();
            let (lent, unread) = lend(SlowBody::new(body));
            let answer = next.run(Request::from_parts(parts, Body::new(lent)));
            let answer = identity.clone().during(unless_it_panics(answer));
            let response = work.during(answer).await;
            let left = if reset { unread.drain(drain::MAX_ADMITTED).await } else { None };
            (response, left)
        }
        Err(refusal) => {
            let body = SlowBody::new(request.into_body());
            let left = if reset { drain::drain(body, drain::MAX_REFUSED).await } else { None };
            (refuse(&headers, refusal), left)
        }
    };
    if let Some(left) = left {
        response = response.map(|reply| Body::new(after_reply(reply, left)));
    }
    if let Some(page) = &page {
        peers::allow(&mut response, page);
    }
    let status = outcome(&response);
    tracing::debug!(%method, path = uri.path(), status = status.as_u16(), source = identity.source, "request");
    service.audit_request(&identity, &connection.peer, &method, uri.path(), status);
    service.log.add(Entry {
        n: 0,
        t: humantime::format_rfc3339_millis(came).to_string(),
        // Truncated, because clients choose these texts, and the log keeps the last 1,000 requests.
        method: method.as_str().chars().take(20).collect(),
        path: uri.path().chars().take(500).collect(),
        status: status.as_u16(),
        ms: (since.elapsed().as_secs_f64() * 1e6).round() / 1e3,
        peer: connection.peer.to_string(),
        user_agent: text(&headers, header::USER_AGENT).chars().take(200).collect(),
        octets_in,
        octets_out: response.body().size_hint().exact(),
    });
    response
}

fn admit(service: &Service, peer: &Peer, request: &Request, of_peer: bool) -> Result<(), Refusal> {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    same_site(uri, headers, &service.settings.names, of_peer)?;
    // No token is necessary, because a browser sends the preflight without it (Fetch standard,
    // CORS-preflight fetch).
    if of_peer && peers::preflight(method, headers).is_some() {
        return Ok(());
    }
    if !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
        && !request.body().is_end_stream()
    {
        known_content(method, headers)?;
    }
    if !is_open(uri.path()) && !service.auth.allows(headers, peer) {
        let message =
            match (headers.contains_key(header::AUTHORIZATION), service.auth.http.needs, peer.user)
            {
                (true, ..) => "the token is wrong\n  try the contents of the token file in the \
                               daemon's data folder"
                    .to_owned(),
                (false, Needs::Others(own), Some(user)) if user != own => format!(
                    "the token is missing, and the daemon belongs to user {own}, not to you, user \
                     {user}\n  try -H 'Authorization: Bearer TOKEN'; it is in the daemon's data \
                     folder"
                ),
                _ => "the token is missing\n  try -H 'Authorization: Bearer TOKEN'; it is in the \
                      daemon's data folder"
                    .to_owned(),
            };
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", message));
    }
    Ok(())
}

/// Refuses requests that a page from another origin makes through its reader's browser, and
/// requests to foreign host names that resolve to this daemon (DNS rebinding). The kernel would
/// attribute such a request to the reader, because their browser sends it.
fn same_site(
    uri: &Uri,
    headers: &HeaderMap,
    names: &[String],
    of_peer: bool,
) -> Result<(), Refusal> {
    let forbidden = |message: String| Refusal::new(StatusCode::FORBIDDEN, "forbidden", message);
    let host =
        uri.authority().map_or_else(|| text(headers, header::HOST), |authority| authority.as_str());
    let name = host_name(host);
    let local = name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok();
    if !local && !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return Err(forbidden(format!(
            "{name:?} is not a name of this daemon\n  try its address, or start it with --name \
             {name}"
        )));
    }
    if of_peer {
        return Ok(());
    }
    if let Some(origin) = headers.get(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let from = origin.split_once("://").map(|(_, rest)| rest);
        if !from.is_some_and(|from| from.eq_ignore_ascii_case(host)) {
            return Err(forbidden(format!(
                "pages of {origin:?} are not allowed to access {host:?}\n  if it is a page of \
                 another daemon of yours, start this one with --peer {origin}"
            )));
        }
    }
    // Checks Sec-Fetch-Site, too, because browsers omit Origin from a GET without CORS (Fetch
    // standard); older browsers lack this header.
    if text(headers, "sec-fetch-site") == "cross-site"
        && text(headers, "sec-fetch-mode") != "navigate"
    {
        return Err(forbidden("pages of other sites are not allowed to access the daemon".into()));
    }
    Ok(())
}

/// Removes the port: `localhost:8443` -> `localhost`, `[::1]:8443` -> `::1`.
fn host_name(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        // Nothing else may follow, because a resolver may resolve `[::1].example`, which is not an
        // address.
        return match rest.split_once(']') {
            Some((name, port)) if port.is_empty() || port.starts_with(':') => name,
            _ => "",
        };
    }
    host.split(':').next().unwrap_or_default()
}

/// Refuses content types that an HTML form can send, because browsers send forms to other origins
/// without a preflight.
fn known_content(method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
    let given = text(headers, header::CONTENT_TYPE);
    let kind = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // A PUT needs no content type, because no form sends a PUT, and `curl -T` sends none.
    let known = kind == "application/json"
        || kind.ends_with("+json")
        || kind == "application/octet-stream"
        || kind == "application/x-protobuf"
        || kind == "application/protobuf"
        || kind.starts_with("application/grpc")
        || (kind.is_empty() && *method == Method::PUT);
    if known {
        return Ok(());
    }
    Err(Refusal::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "content_type",
        format!(
            "content-type {given:?} is not supported\n  try -H 'content-type: application/json'"
        ),
    ))
}

fn text(headers: &HeaderMap, name: impl header::AsHeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The status of a reply, for the audit and the log. A gRPC reply has status 200, and its outcome
/// is in the header `grpc-status` (if the reply has no messages). google/rpc/code.proto maps each
/// code to an HTTP status.
fn outcome(response: &Response) -> StatusCode {
    let Some(code) = tonic::Status::from_header_map(response.headers()) else {
        return response.status();
    };
    match code.code() {
        tonic::Code::Ok => response.status(),
        tonic::Code::InvalidArgument
        | tonic::Code::FailedPrecondition
        | tonic::Code::OutOfRange => StatusCode::BAD_REQUEST,
        tonic::Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        tonic::Code::PermissionDenied => StatusCode::FORBIDDEN,
        tonic::Code::NotFound => StatusCode::NOT_FOUND,
        tonic::Code::AlreadyExists | tonic::Code::Aborted => StatusCode::CONFLICT,
        tonic::Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        tonic::Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        tonic::Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        tonic::Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        tonic::Code::Cancelled
        | tonic::Code::Unknown
        | tonic::Code::Internal
        | tonic::Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A gRPC client expects status 200 with the error in headers.
fn refuse(headers: &HeaderMap, refusal: Refusal) -> Response {
    if !text(headers, header::CONTENT_TYPE).starts_with("application/grpc") {
        return refusal.into_response();
    }
    let code = match refusal.status() {
        StatusCode::UNAUTHORIZED => tonic::Code::Unauthenticated,
        StatusCode::FORBIDDEN => tonic::Code::PermissionDenied,
        _ => tonic::Code::InvalidArgument,
    };
    tonic::Status::new(code, refusal.message).into_http()
}

/// Catches a panic, so that it ends one request and not the daemon.
async fn unless_it_panics(answer: impl Future<Output = Response>) -> Response {
    let mut answer = pin!(answer);
    let poll = std::future::poll_fn(|context| {
        match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(response)) => Poll::Ready(Some(response)),
            Err(_) => Poll::Ready(None),
        }
    });
    poll.await.unwrap_or_else(|| Refusal::defect().into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_named_without_their_ports() {
        for (host, name) in [
            ("localhost:8443", "localhost"),
            ("[::1]:8443", "::1"),
            ("192.0.2.1", "192.0.2.1"),
            ("", ""),
        ] {
            assert_eq!(host_name(host), name);
        }
    }

    #[test]
    fn a_refusal_over_grpc_is_a_refusal_in_the_audit() {
        let headers = HeaderMap::from_iter([(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/grpc"),
        )]);
        for status in [401, 403, 400] {
            let status = StatusCode::from_u16(status).expect("a status");
            let refusal = Refusal::new(status, "no", "not so");
            let response = refuse(&headers, refusal);
            assert_eq!((response.status(), outcome(&response)), (StatusCode::OK, status));
        }
        assert_eq!(outcome(&StatusCode::NOT_FOUND.into_response()), StatusCode::NOT_FOUND);
    }

    #[test]
    fn a_defect_ends_one_request_and_says_so() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let reply = runtime.block_on(unless_it_panics(async { panic!("a defect on purpose") }));
        assert_eq!(reply.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
