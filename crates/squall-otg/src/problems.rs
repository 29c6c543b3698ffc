//! Errors in a message, all reported at once.

use std::fmt;

/// One invalid or unsupported part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path such as `flows[3].packet[2].udp.src_port`; empty: the whole message.
    pub path: String,
    /// `not supported: ...`, or the value found and the value expected.
    pub message: String,
}

/// All problems in a message, in message order; never empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    pub fn one(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self(vec![Problem { path: path.into(), message: message.into() }])
    }

    /// The problems as strings for an OTG error.
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}
impl std::error::Error for Problems {}
