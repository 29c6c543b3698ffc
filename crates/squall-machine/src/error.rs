//! Errors, divided by cause: the user's input, or the machine.

use squall_profile::Diagnostics;
use squall_units::Cannot;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error in the profile, with its position.
    #[error("{0}")]
    Input(#[from] Diagnostics),
    /// As [`Error::Input`], but without a position.
    #[error("{0}")]
    Usage(String),
    /// A problem of the machine: permission, interface, driver, disk space.
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
