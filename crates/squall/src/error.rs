//! Errors of a run by cause: the user (exit status 2) or the machine (exit status 3).

use squall_engine::EngineError;
use squall_port_linux::filter::FilterError;
use squall_profile::Diagnostics;
use squall_replay::ReplayError;
use squall_units::Cannot;

use crate::attacking;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The profile, the command line or an address is invalid.
    #[error("{0}")]
    Input(#[from] Diagnostics),
    /// Like [`Error::Input`], but without a position in the profile.
    #[error("{0}")]
    Usage(String),
    /// The machine refused something: a permission, an interface, a driver.
    #[error("{0}")]
    Environment(String),
    #[error("{0}")]
    Engine(#[from] EngineError),
}

impl From<Cannot> for Error {
    fn from(cannot: Cannot) -> Self {
        match cannot.is_usage() {
            true => Self::Usage(cannot.to_string()),
            false => Self::Environment(cannot.to_string()),
        }
    }
}

impl From<squall_offline::Error> for Error {
    fn from(error: squall_offline::Error) -> Self {
        match error {
            squall_offline::Error::Usage(text) => Self::Usage(text),
            squall_offline::Error::Environment(text) => Self::Environment(text),
        }
    }
}

impl From<squall_machine::Error> for Error {
    fn from(error: squall_machine::Error) -> Self {
        match error {
            squall_machine::Error::Input(mistakes) => Self::Input(mistakes),
            squall_machine::Error::Usage(text) => Self::Usage(text),
            squall_machine::Error::Environment(text) => Self::Environment(text),
        }
    }
}

impl From<ReplayError> for Error {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Open(cannot) => cannot.into(),
            other => Self::Usage(other.to_string()),
        }
    }
}

impl From<attacking::Error> for Error {
    fn from(error: attacking::Error) -> Self {
        match error {
            attacking::Error::Input(mistakes) => Self::Input(mistakes),
            attacking::Error::Usage(text) => Self::Usage(text),
            attacking::Error::Environment(text) => Self::Environment(text),
        }
    }
}

impl From<FilterError> for Error {
    fn from(error: FilterError) -> Self {
        squall_offline::Error::from(error).into()
    }
}

impl Error {
    /// Exit status that the command line documents for this error.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Input(_)
            | Self::Usage(_)
            | Self::Engine(
                EngineError::UnknownStream { .. }
                | EngineError::Count(_)
                | EngineError::Fixed(..)
                | EngineError::Uncounted(..)
                | EngineError::Unseen(..)
                | EngineError::FixedRate(..)
                | EngineError::FixedEnd(_),
            ) => 2,
            Self::Environment(_) | Self::Engine(_) => 3,
        }
    }
}
