//! Capture filters: which frames are wanted.

use std::sync::Arc;

use squall_port::Filter;
use squall_port_linux::filter::{FilterError, compile as compile_text};

use crate::Error;

/// Ethernet, in the tcpdump.org list of link types.
const ETHERNET: u16 = 1;
/// As tcpdump: longer than any frame.
pub(crate) const SNAPLEN: u32 = 262_144;

/// # Errors
/// [`Error::Usage`] for an expression that says nothing, [`Error::Environment`] without libpcap.
pub(crate) fn compile(expression: &str) -> Result<Arc<Filter>, Error> {
    compile_to(expression, SNAPLEN)
}

pub(crate) fn compile_to(expression: &str, snaplen: u32) -> Result<Arc<Filter>, Error> {
    let program = compile_text(expression, ETHERNET, snaplen).map_err(|error| match error {
        FilterError::NoLibrary(_) => Error::Environment(error.to_string()),
        FilterError::Expression { .. } => Error::Usage(error.to_string()),
    })?;
    Ok(Arc::new(Filter { expression: expression.to_owned(), snaplen, program }))
}
