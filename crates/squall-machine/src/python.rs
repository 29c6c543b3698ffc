//! The Python interpreter of this machine that runs Squall's programs in Python.

use std::{
    env,
    path::{Path, PathBuf},
};

/// The first Python interpreter found: that of `SQUALL_PYTHON`, in this installation, in the
/// environment, or on the search path.
pub fn python() -> PathBuf {
    if let Some(named) = env::var_os("SQUALL_PYTHON") {
        return named.into();
    }
    let own = env::current_exe().ok().and_then(|path| Some(path.parent()?.join("python3")));
    let active = env::var_os("VIRTUAL_ENV").map(|folder| Path::new(&folder).join("bin/python3"));
    let found = own.into_iter().chain(active).find(|path| path.is_file());
    found.unwrap_or_else(|| "python3".into())
}
