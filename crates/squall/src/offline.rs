//! What needs no run, of [`squall_offline`].

#[cfg(feature = "attacks")]
pub use squall_offline::scoring;
pub use squall_offline::{edit, prep};

/// What is in captures, and what it took to find out.
pub mod info {
    use std::path::PathBuf;

    pub use squall_offline::info::*;

    use crate::{Error, host};

    /// As [`squall_offline::info::read`], with the time of CPUs and the memory that it took.
    ///
    /// # Errors
    /// For a filter that says nothing, and a file that cannot be opened.
    pub fn read(
        paths: &[PathBuf],
        settings: &Settings,
        go_on: impl FnMut(&Progress) -> bool,
    ) -> Result<Info, Error> {
        let mut info = squall_offline::info::read(paths, settings, go_on)?;
        (info.cpu, info.memory) = (host::cpu(), host::memory());
        Ok(info)
    }
}
