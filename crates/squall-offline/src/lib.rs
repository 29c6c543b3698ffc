//! Functions without a run: analyze captures ([`info`]); edit, merge or split them ([`edit`]);
//! convert their conversations to templates of a profile ([`import`]); make a cache that assigns
//! each packet to one of two ports ([`prep`]); and score alerts against labels ([`scoring`]).
//!
//! Memory does not grow with captures. Sends nothing, and has neither plans nor an engine.
#![forbid(unsafe_code)]

pub mod edit;
pub mod import;
pub mod info;
pub mod prep;
#[cfg(feature = "scores")]
pub mod scoring;

use std::sync::Arc;

use squall_bpf::classic::Filter;
use squall_pcap::{CaptureError, Fault};
use squall_port::ETHERNET;
use squall_port_linux::filter::{self, FilterError};
use squall_units::Cannot;

/// Compiles a filter `expression` in the language of tcpdump.
///
/// # Errors
/// [`Error::Usage`] for an invalid expression, [`Error::Environment`] without libpcap.
pub fn compile_filter(expression: &str) -> Result<Arc<Filter>, Error> {
    let filter = filter::compile_file(expression, ETHERNET)?;
    Ok(Arc::new(filter.program.clone()))
}

/// Errors by cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user's error: an option or a file is wrong.
    #[error("{0}")]
    Usage(String),
    /// The system's error: permissions, space, a library.
    #[error("{0}")]
    Environment(String),
}

impl From<Cannot> for Error {
    fn from(cannot: Cannot) -> Self {
        match cannot.is_usage() {
            true => Self::Usage(cannot.to_string()),
            false => Self::Environment(cannot.to_string()),
        }
    }
}

impl From<CaptureError> for Error {
    fn from(error: CaptureError) -> Self {
        match (&error.path, &error.fault) {
            (Some(path), Fault::Open(error)) => Cannot::read(path, error).into(),
            _ => Self::Usage(error.to_string()),
        }
    }
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
