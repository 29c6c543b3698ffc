//! The optional features of this build.

use std::sync::LazyLock;

const FEATURES: [(&str, bool); 4] = [
    ("attacks", cfg!(feature = "attacks")),
    ("dpdk", cfg!(feature = "dpdk")),
    ("server", cfg!(feature = "server")),
    ("tls", cfg!(feature = "tls")),
];

/// The commit of the build, 12 digits. Empty if it is unknown.
pub const COMMIT: &str = env!("SQUALL_COMMIT");

/// Output of `--version`: version and commit, C library, and a line that lists the features in this
/// build and those left out.
pub fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mark = |(name, there)| format!(" {}{name}", if there { '+' } else { '-' });
        let features: String = FEATURES.into_iter().map(mark).collect();
        let commit = if COMMIT.is_empty() { String::new() } else { format!(" ({COMMIT})") };
        let library = if cfg!(target_env = "musl") { "musl, static" } else { "glibc" };
        format!(
            "{}{commit}\nfeatures:{features}\nlibrary: {library}, {}",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::ARCH
        )
    });
    &TEXT
}

/// Arguments of a command that this build lacks.
#[cfg(not(all(feature = "attacks", feature = "server")))]
#[derive(Debug, clap::Args)]
pub struct Ignored {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _arguments: Vec<std::ffi::OsString>,
}

/// The error of `command`, which is only in builds with `feature`.
#[cfg(not(all(feature = "attacks", feature = "server")))]
pub fn lacks(command: &str, feature: &str) -> squall::Error {
    squall_units::Cannot::new(
        format!("run squall {command}"),
        format_args!("this program was built without the feature {feature:?}"),
    )
    .with_hint("pip install . or make install in the source folder, which build all features")
    .into()
}
