//! HTTP: the schema's paths at the root, and below `/otg/NAME` for a named session.

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Path, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{MethodFilter, MethodRouter, on},
};
use squall_otg::Refusal;

use super::{Answer, Form, MAX_REQUEST, OPERATIONS, Operation, json, refusal};
use crate::{coding::takes_gzip, service::Service};

/// The routes of OTG.
pub fn routes() -> Router<Arc<Service>> {
    let mut router = Router::new();
    for operation in OPERATIONS {
        router = router.route(operation.path, unnamed(operation));
        router = router.route(&format!("/otg/{{session}}{}", operation.path), named(operation));
    }
    router
}

fn unnamed(operation: &'static Operation) -> MethodRouter<Arc<Service>> {
    on(filter(operation), move |State(service): State<Arc<Service>>, request: Request| async move {
        answer(&service, operation, "", request).await
    })
}

fn named(operation: &'static Operation) -> MethodRouter<Arc<Service>> {
    let handle = move |State(service): State<Arc<Service>>,
                       Path(name): Path<String>,
                       request: Request| async move {
        answer(&service, operation, &name, request).await
    };
    on(filter(operation), handle)
}

fn filter(operation: &Operation) -> MethodFilter {
    match operation.method {
        "GET" => MethodFilter::GET,
        "PATCH" => MethodFilter::PATCH,
        _ => MethodFilter::POST,
    }
}

async fn answer(
    service: &Service,
    operation: &'static Operation,
    name: &str,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let performed = match octets(&parts.headers, body).await {
        Ok(octets) => {
            let form = if takes_gzip(&parts.headers) { Form::Gzip } else { Form::Json };
            service.otg.perform(operation, name, &parts.extensions, form, octets).await
        }
        Err(refusal) => Err(refusal),
    };
    let kind =
        if operation.reply.is_empty() { "application/octet-stream" } else { "application/json" };
    match performed {
        Ok(Answer { octets, gzip }) => {
            let gzip = gzip.then(|| [(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))]);
            let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(kind))];
            (kind, gzip.into_iter().flatten().collect::<HeaderMap>(), octets).into_response()
        }
        Err(refusal) => {
            let status =
                u16::try_from(refusal.code).ok().and_then(|code| StatusCode::from_u16(code).ok());
            let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (
                status,
                [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))],
                json(&refusal),
            )
                .into_response()
        }
    }
}

async fn octets(headers: &HeaderMap, body: Body) -> Result<bytes::Bytes, Refusal> {
    // Check the declared length first, so that the client gets the hint before it sends the body.
    let declared = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let large = || {
        let what = format!(
            "the request has more than {MAX_REQUEST} octets\n  try several of them (append_config)"
        );
        Refusal { code: 413, ..refusal(what) }
    };
    if declared.is_some_and(|declared| declared > MAX_REQUEST) {
        return Err(large());
    }
    to_bytes(body, MAX_REQUEST).await.map_err(|error| {
        let source = std::error::Error::source(&error);
        if source.is_some_and(|source| source.is::<http_body_util::LengthLimitError>()) {
            large()
        } else {
            refusal(format!("the request ended early: {error}"))
        }
    })
}
