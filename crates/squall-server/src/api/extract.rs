//! Request extractors. They replace axum's own, because errors must have this API's form and
//! wording.

use std::{fmt, marker::PhantomData};

use axum::{
    Json,
    extract::{FromRequest, FromRequestParts, Path, Query, Request, rejection::JsonRejection},
    http::{StatusCode, request::Parts},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::{Refusal, budget};

/// A JSON body.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        match Json::from_request(request, state).await {
            Ok(Json(Object(body))) => Ok(Self(body)),
            Err(error) => Err(match &error {
                JsonRejection::BytesRejection(_) => match error.status() {
                    StatusCode::PAYLOAD_TOO_LARGE => budget::too_long(),
                    _ => Refusal::new(
                        StatusCode::REQUEST_TIMEOUT,
                        "incomplete",
                        "the body is incomplete",
                    ),
                },
                JsonRejection::MissingJsonContentType(_) => Refusal::new(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    "content_type",
                    "expected JSON\n  try -H 'content-type: application/json'",
                ),
                // The error includes the path: `streams[0].rate: invalid type ...`.
                _ => Refusal::bad_request("bad_request", error.body_text()),
            }),
        }
    }
}

/// A JSON object. For a struct, serde would also accept an array of its values, so arrays are
/// refused here.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members)).map(Object)
            }
        }

        from.deserialize_map(Members(PhantomData))
    }
}

/// An optional JSON body; an empty body gives the default.
pub struct Optional<T>(pub T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for Optional<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        if http_body::Body::is_end_stream(request.body()) {
            return Ok(Self(T::default()));
        }
        Body::from_request(request, state).await.map(|Body(body)| Self(body))
    }
}

/// Path parameters.
pub struct Named<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(named)) => Ok(Self(named)),
            Err(error) => Err(Refusal::bad_request("bad_path", error.body_text())),
        }
    }
}

/// Query parameters.
pub struct Asked<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(query)) => Ok(Self(query)),
            Err(error) => Err(Refusal::bad_request("bad_query", error.body_text())),
        }
    }
}
