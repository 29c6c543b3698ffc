//! Capture filters: which frames are wanted.

use std::sync::Arc;

use squall_port::{ETHERNET, Filter, PortFacts, Tags};
use squall_port_linux::filter::{FilterError, compile as compile_text, says_vlan};

use crate::Error;

/// As tcpdump: longer than any frame.
pub(crate) const SNAPLEN: u32 = 262_144;

/// For the frames of a port with `facts`.
///
/// # Errors
/// [`Error::Usage`] for an expression that says nothing, [`Error::Environment`] without libpcap.
pub(crate) fn compile(expression: &str, facts: &PortFacts) -> Result<Arc<Filter>, Error> {
    compile_to(expression, facts, SNAPLEN)
}

pub(crate) fn compile_to(
    expression: &str,
    facts: &PortFacts,
    snaplen: u32,
) -> Result<Arc<Filter>, Error> {
    // As tcpdump on an interface; but in a file, and for who asks for the tag, it is where it is.
    let aside = facts.link_type == ETHERNET && !facts.virtual_time && !says_vlan(expression);
    compile_with(
        expression,
        facts.link_type,
        snaplen,
        if aside { Tags::Aside } else { Tags::InPlace },
    )
}

/// For the packets of `link_type` in a file.
pub(crate) fn compile_file(expression: &str, link_type: u16) -> Result<Arc<Filter>, Error> {
    compile_with(expression, link_type, SNAPLEN, Tags::InPlace)
}

fn compile_with(
    expression: &str,
    link_type: u16,
    snaplen: u32,
    tags: Tags,
) -> Result<Arc<Filter>, Error> {
    let program = compile_text(expression, link_type, snaplen).map_err(|error| match error {
        FilterError::NoLibrary(_) => Error::Environment(error.to_string()),
        FilterError::Expression { .. } | FilterError::Interface { .. } => {
            Error::Usage(error.to_string())
        }
    })?;
    Ok(Arc::new(Filter { expression: expression.to_owned(), snaplen, program, tags }))
}
