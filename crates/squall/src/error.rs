//! What can go wrong, and whose turn it is: the user's (exit status 2) or the machine's (3).

use squall_engine::EngineError;
use squall_profile::Diagnostics;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A profile, a command line or an address is wrong.
    #[error("{0}")]
    Input(#[from] Diagnostics),
    /// As [`Error::Input`], where there is no place to name.
    #[error("{0}")]
    Usage(String),
    /// Permission, interface, driver.
    #[error("{0}")]
    Environment(String),
    #[error("{0}")]
    Engine(#[from] EngineError),
}

impl Error {
    /// Exit status of the command line contract.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Input(_)
            | Self::Usage(_)
            | Self::Engine(
                EngineError::UnknownStream { .. }
                | EngineError::Count(_)
                | EngineError::Fixed(..)
                | EngineError::Uncounted(..)
                | EngineError::FixedRate(..)
                | EngineError::FixedEnd(_),
            ) => 2,
            Self::Environment(_) | Self::Engine(_) => 3,
        }
    }
}
