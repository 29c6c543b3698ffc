//! What needs no run. Paths of captures go in, and out comes what is in them ([`info`]), captures
//! that are edited, merged or split ([`edit`]), their conversations as templates of a profile
//! ([`import`]), or a cache of which packet
//! leaves by which of two ports ([`prep`]); of labels and alerts, a score ([`scoring`]).
//!
//! Memory does not grow with captures. Sends nothing, and knows no plans and no engine.
#![forbid(unsafe_code)]

pub mod edit;
pub mod import;
pub mod info;
pub mod prep;
#[cfg(feature = "scores")]
pub mod scoring;

use std::sync::Arc;

use squall_bpf::classic::Filter;
use squall_port::ETHERNET;
use squall_port_linux::filter::{self, FilterError};

/// Takes the frames of captures that `expression` takes, in the language of tcpdump.
///
/// # Errors
/// [`Error::Usage`] for an expression that says nothing, [`Error::Environment`] without libpcap.
pub fn compile_filter(expression: &str) -> Result<Arc<Filter>, Error> {
    let filter = filter::compile_file(expression, ETHERNET)?;
    Ok(Arc::new(filter.program.clone()))
}

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
