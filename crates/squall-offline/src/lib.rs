//! Functions that need no run: analyze captures ([`info`]); edit, merge or split them ([`edit`]);
//! convert their conversations to templates of a profile ([`import`]); make a cache that assigns
//! each packet to one of two ports ([`prep`]); score alerts against labels ([`scoring`]).
//!
//! Memory does not grow with the size of captures. This crate sends nothing, and has neither plans
//! nor an engine.
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

/// Compiles a filter `expression` in tcpdump's syntax.
///
/// # Errors
/// [`Error::Usage`] if the expression is invalid, [`Error::Environment`] if there is no libpcap.
pub fn compile_filter(expression: &str) -> Result<Arc<Filter>, Error> {
    let filter = filter::compile_file(expression, ETHERNET)?;
    Ok(Arc::new(filter.program.clone()))
}

/// Errors by origin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of the user: an invalid option or file.
    #[error("{0}")]
    Usage(String),
    /// An error of the system: permissions, disk space, a library.
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
