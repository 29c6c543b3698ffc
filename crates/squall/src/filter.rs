//! Capture filters: which frames are wanted.

use std::sync::Arc;

use squall_port::Filter;
use squall_port_linux::filter::{FilterError, compile as compile_text};

use crate::Error;

/// As tcpdump: longer than any frame.
pub(crate) const SNAPLEN: u32 = 262_144;

/// For frames of `link_type` (tcpdump.org).
///
/// # Errors
/// [`Error::Usage`] for an expression that says nothing, [`Error::Environment`] without libpcap.
pub(crate) fn compile(expression: &str, link_type: u16) -> Result<Arc<Filter>, Error> {
    compile_to(expression, link_type, SNAPLEN)
}

pub(crate) fn compile_to(expression: &str, link_type: u16, snaplen: u32) -> Result<Arc<Filter>, Error> {
    let program = compile_text(expression, link_type, snaplen).map_err(|error| match error {
        FilterError::NoLibrary(_) => Error::Environment(error.to_string()),
        FilterError::Expression { .. } => Error::Usage(error.to_string()),
    })?;
    Ok(Arc::new(Filter { expression: expression.to_owned(), snaplen, program }))
}
