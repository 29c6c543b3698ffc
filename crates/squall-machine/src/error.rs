//! What can go wrong, and whose turn it is.

use squall_profile::Diagnostics;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user's: something in the profile is wrong, with its place.
    #[error("{0}")]
    Input(#[from] Diagnostics),
    /// As [`Error::Input`], where there is no place to name.
    #[error("{0}")]
    Usage(String),
    /// The machine's: permission, interface, driver, room.
    #[error("{0}")]
    Environment(String),
}
