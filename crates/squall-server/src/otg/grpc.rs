//! gRPC: the service `otg.Openapi`, with or without TLS, depending on its listener.
//!
//! Every message of the service wraps one other message in its first field. The wrapped message is
//! passed on as octets, so no types have to be generated. Calls with the prefix `stream` carry it
//! in chunks.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, Request, State},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use squall_otg::Refusal;
use tokio_stream::StreamExt;
use tonic::{
    Code, Status,
    codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder},
    server::Grpc,
};

use super::{Form, MAX_REQUEST, OPERATIONS, Operation, json, refusal};
use crate::service::Service;

/// Octets per chunk of a reply, because gRPC clients accept messages of at most 4 MiB by default.
const CHUNK: usize = 1 << 20;

/// Maximum size of a status text, in octets. Clients refuse headers of more than 8 KiB, and most
/// punctuation of JSON takes three octets there, because gRPC percent-encodes it.
const MAX_STATUS_TEXT: usize = 2_500;

/// Metadata key that names a session.
const SESSION: &str = "squall-session";

/// The routes of OTG's calls.
pub fn routes() -> Router<Arc<Service>> {
    let unknown = || async { unimplemented("no such service: try otg.Openapi") };
    calls().fallback(unknown)
}

pub fn calls() -> Router<Arc<Service>> {
    Router::new().route("/otg.Openapi/{method}", post(answer))
}

fn unimplemented(why: &str) -> Response {
    Status::new(Code::Unimplemented, why).into_http::<tonic::body::Body>().into_response()
}

/// A request or a reply: a message in the first field of another.
#[derive(Clone, PartialEq, Message)]
struct Wrapped {
    /// Optional, because protobuf would otherwise omit an empty message.
    #[prost(bytes = "bytes", optional, tag = "1")]
    inner: Option<Bytes>,
}

/// A chunk of a message.
#[derive(Clone, PartialEq, Message)]
struct Data {
    #[prost(uint64, tag = "1")]
    chunk_size: u64,
    #[prost(bytes = "bytes", tag = "2")]
    datum: Bytes,
}

async fn answer(
    State(service): State<Arc<Service>>,
    Path(method): Path<String>,
    request: Request,
) -> Response {
    let (streamed, name) = match method.strip_prefix("stream") {
        Some(name) => (true, name),
        None => (false, method.as_str()),
    };
    let operation = OPERATIONS.iter().find(|operation| operation.name == name);
    let Some(operation) = operation.filter(|operation| !streamed || streams(operation)) else {
        return unimplemented(&format!("otg.Openapi has no {method}"));
    };
    let call = Call { service, operation };
    // Replies are not compressed, because compression takes longer than sending, and each client
    // would need its own.
    let mut grpc = Grpc::new(Octets)
        .accept_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(MAX_REQUEST);
    let reply = if !streamed {
        grpc.unary(tower::service_fn(move |request| call.clone().once(request)), request).await
    } else if operation.name.starts_with("Set") {
        grpc.client_streaming(
            tower::service_fn(move |request| call.clone().in_pieces(request)),
            request,
        )
        .await
    } else {
        grpc.server_streaming(
            tower::service_fn(move |request| call.clone().by_pieces(request)),
            request,
        )
        .await
    };
    reply.into_response()
}

/// Whether the schema has a streaming form of the call. Only calls with large messages have one.
fn streams(operation: &Operation) -> bool {
    !matches!(operation.name, "GetVersion" | "UpdateConfig" | "AppendConfig" | "DeleteConfig")
}

#[derive(Clone)]
struct Call {
    service: Arc<Service>,
    operation: &'static Operation,
}

impl Call {
    async fn once(self, request: tonic::Request<Bytes>) -> Result<tonic::Response<Bytes>, Status> {
        let (head, extensions, octets) = request.into_parts();
        let inner = self.perform(&head, &extensions, unwrapped(octets)?).await?;
        Ok(tonic::Response::new(Wrapped { inner: Some(inner) }.encode_to_vec().into()))
    }

    /// Performs a call whose request arrives in chunks.
    async fn in_pieces(
        self,
        request: tonic::Request<tonic::Streaming<Bytes>>,
    ) -> Result<tonic::Response<Bytes>, Status> {
        let (head, extensions, mut pieces) = request.into_parts();
        let mut whole = BytesMut::new();
        while let Some(piece) = pieces.next().await {
            let piece = Data::decode(piece?).map_err(unreadable)?;
            if whole.len() + piece.datum.len() > MAX_REQUEST {
                return Err(Status::out_of_range(format!(
                    "the request has more than {MAX_REQUEST} octets"
                )));
            }
            whole.extend_from_slice(&piece.datum);
        }
        let inner = self.perform(&head, &extensions, whole.freeze()).await?;
        Ok(tonic::Response::new(Wrapped { inner: Some(inner) }.encode_to_vec().into()))
    }

    /// Performs a call whose reply is sent in chunks.
    async fn by_pieces(
        self,
        request: tonic::Request<Bytes>,
    ) -> Result<
        tonic::Response<impl tokio_stream::Stream<Item = Result<Bytes, Status>> + use<>>,
        Status,
    > {
        let (head, extensions, octets) = request.into_parts();
        let mut rest = self.perform(&head, &extensions, unwrapped(octets)?).await?;
        let pieces = std::iter::from_fn(move || {
            let datum = (!rest.is_empty()).then(|| rest.split_to(rest.len().min(CHUNK)))?;
            Some(Ok(Data { chunk_size: datum.len() as u64, datum }.encode_to_vec().into()))
        });
        Ok(tonic::Response::new(tokio_stream::iter(pieces)))
    }

    async fn perform(
        &self,
        head: &tonic::metadata::MetadataMap,
        extensions: &tonic::Extensions,
        request: Bytes,
    ) -> Result<Bytes, Status> {
        let session = match head.get(SESSION) {
            Some(name) => name
                .to_str()
                .map_err(|_| Status::invalid_argument("the session's name is not text"))?,
            None => "",
        };
        let performed = self
            .service
            .otg
            .perform(self.operation, session, extensions, Form::Protobuf, request)
            .await;
        performed.map(|answer| answer.octets).map_err(status)
    }
}

fn unwrapped(octets: Bytes) -> Result<Bytes, Status> {
    Ok(Wrapped::decode(octets).map_err(unreadable)?.inner.unwrap_or_default())
}

fn unreadable(error: prost::DecodeError) -> Status {
    status(refusal(format!("the request is not a protobuf message of its type: {error}")))
}

/// Converts a refusal to a status. OTG's schema requires the error as JSON in the status text.
fn status(mut refusal: Refusal) -> Status {
    let code = if refusal.code < 500 { Code::InvalidArgument } else { Code::Internal };
    let all = refusal.errors.len();
    let mut room = MAX_STATUS_TEXT;
    let fitting = refusal.errors.iter().take_while(|error| {
        let fits = error.len() <= room;
        room = room.saturating_sub(error.len());
        fits
    });
    let fitting = fitting.count();
    if fitting < all {
        refusal.errors.truncate(fitting.max(1));
        if let Some(first) =
            refusal.errors.first_mut().filter(|first| first.len() > MAX_STATUS_TEXT)
        {
            let end =
                (0..=MAX_STATUS_TEXT).rev().find(|&at| first.is_char_boundary(at)).unwrap_or(0);
            first.truncate(end);
        }
        refusal.errors.push(format!("and {} more", all - fitting.max(1)));
    }
    Status::new(code, json(&refusal))
}

/// Passes messages through without decoding.
#[derive(Clone, Copy, Default)]
struct Octets;

impl Codec for Octets {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Octets {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Octets {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
