//! Refusals of requests.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Serialize;
use squall::EngineError;

/// A refused request, with the reason: `{"error": {...}}`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Refusal {
    /// Status of the reply.
    pub status: u16,
    /// One word for programs.
    pub code: &'static str,
    /// Human-readable text: the value found, the value expected, a remedy to try.
    pub message: String,
    /// Each error with its position, if there are several or if it has a position.
    pub details: Vec<Detail>,
}

/// An error and its position.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Detail {
    /// Line number, from 1; 0: no line.
    pub line: u32,
    pub column: u32,
    /// `streams[0].rate`, a port, a file.
    pub path: String,
    pub message: String,
}

/// The reply's whole body.
#[derive(Serialize, JsonSchema)]
pub struct Refused {
    pub error: Refusal,
}

impl Refusal {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status: status.as_u16(), code, message: message.into(), details: Vec::new() }
    }

    pub fn bad_request(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    /// The refusal after a panic. The daemon has printed the message of the panic.
    pub fn defect() -> Self {
        Self::internal("this is a bug in Squall, please report it with the output of the daemon")
    }

    pub fn with(mut self, details: Vec<Detail>) -> Self {
        self.details = details;
        self
    }

    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status(), Json(Refused { error: self })).into_response()
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// An error that the user can correct gets status 400. An error of the machine gets 422, because
/// the request was understood but cannot be executed here.
impl From<squall::Error> for Refusal {
    fn from(error: squall::Error) -> Self {
        let message = error.to_string();
        match &error {
            squall::Error::Input(mistakes) => {
                let detail = |mistake: &squall::Diagnostic| Detail {
                    line: mistake.line,
                    column: mistake.column,
                    path: mistake.path.clone(),
                    message: mistake.message.clone(),
                };
                let details = mistakes.0.iter().map(detail).collect();
                Self::bad_request("bad_profile", message).with(details)
            }
            squall::Error::Usage(_) => Self::bad_request("bad_request", message),
            squall::Error::Engine(EngineError::UnknownStream { .. }) => {
                Self::new(StatusCode::NOT_FOUND, "unknown_stream", message)
            }
            squall::Error::Engine(_) if error.exit_status() == 2 => {
                Self::bad_request("bad_request", message)
            }
            squall::Error::Environment(_) | squall::Error::Engine(_) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "environment", message)
            }
        }
    }
}
