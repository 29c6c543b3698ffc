//! The commit of the build, for `squall --version`: from the repository or, in a source archive,
//! from `SQUALL_COMMIT`.

use std::{path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-env-changed=SQUALL_COMMIT");
    let commit = std::env::var("SQUALL_COMMIT").ok().or_else(of_repository).unwrap_or_default();
    println!("cargo::rustc-env=SQUALL_COMMIT={commit}");
}

fn of_repository() -> Option<String> {
    // HEAD changes when the branch does, and its log changes with each commit.
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
