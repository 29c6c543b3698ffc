//! What needs no run. Paths of captures go in, and out comes what is in them ([`info`]), captures
//! that are edited, merged or split ([`edit`]), or a cache of which packet leaves by which of two
//! ports ([`prep`]); of labels and alerts, a score ([`scoring`]).
//!
//! Memory does not grow with captures. Sends nothing, and knows no plans and no engine.
#![forbid(unsafe_code)]

pub mod edit;
pub mod info;
pub mod prep;
#[cfg(feature = "scores")]
pub mod scoring;

use squall_port_linux::filter::FilterError;

/// What can go wrong, and whose turn it is.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user's: an option or a file is wrong.
    #[error("{0}")]
    Usage(String),
    /// The machine's: permission, room, a library.
    #[error("{0}")]
    Environment(String),
}

impl From<FilterError> for Error {
    fn from(error: FilterError) -> Self {
        match error {
            FilterError::NoLibrary(_) => Self::Environment(error.to_string()),
            FilterError::Expression { .. } | FilterError::Interface { .. } => {
                Self::Usage(error.to_string())
            }
        }
    }
}
