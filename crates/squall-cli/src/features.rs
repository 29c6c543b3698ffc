//! What this build has, of what one can be without.

use std::sync::LazyLock;

const FEATURES: [(&str, bool); 4] = [
    ("attacks", cfg!(feature = "attacks")),
    ("dpdk", cfg!(feature = "dpdk")),
    ("server", cfg!(feature = "server")),
    ("tls", cfg!(feature = "tls")),
];

/// What `--version` prints: the version, and a line of features that are there and that are not.
pub fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mark = |(name, there)| format!(" {}{name}", if there { '+' } else { '-' });
        let features: String = FEATURES.into_iter().map(mark).collect();
        format!("{}\nfeatures:{features}", env!("CARGO_PKG_VERSION"))
    });
    &TEXT
}
