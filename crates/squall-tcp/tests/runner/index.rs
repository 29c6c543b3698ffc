//! docs/rfc/tcp.md: the list of all scripts and of Linux's differences.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use super::script::{Linux, Script};

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rfc/tcp.md")
}

/// Checks that the file lists `scripts`; with `BLESS=1`, rewrites it.
pub fn check(scripts: &[Script]) -> Result<(), String> {
    let (file, text) = (file(), write(scripts));
    if std::env::var_os("BLESS").is_some() {
        return fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()));
    }
    if fs::read_to_string(&file).unwrap_or_default() == text {
        return Ok(());
    }
    Err("docs/rfc/tcp.md is not the list of these scripts\n  try BLESS=1 cargo test -p squall-tcp \
         --test scripts -- docs"
        .into())
}

fn write(scripts: &[Script]) -> String {
    let on_linux = scripts.iter().filter(|script| script.linux == Linux::Yes).count();
    let differences = scripts.iter().map(|script| script.differences.len()).sum::<usize>();
    let mut text = format!(
        "# Tests of TCP\n\nGenerated from the heads of the scripts in \
         crates/squall-tcp/tests/scripts by\n`BLESS=1 cargo test -p squall-tcp --test scripts -- \
         docs`. [Their README](../../crates/squall-tcp/tests/scripts/README.md)\ndescribes the \
         language.\n\n{} scripts, each run against Squall's stack in virtual time; {on_linux} of \
         them also against Linux's TCP, which\ndiffers in {differences} points.\n\n## Where \
         Linux differs\n\n| Script | Linux | Verdict |\n|---|---|---|\n",
        scripts.len(),
    );
    for script in scripts {
        for difference in &script.differences {
            let _ = writeln!(
                text,
                "| {} | {} | {} |",
                link(script),
                difference.what,
                difference.verdict
            );
        }
    }
    let mut groups: BTreeMap<&str, Vec<&Script>> = BTreeMap::new();
    for script in scripts {
        groups.entry(script.file.split('/').next().unwrap_or_default()).or_default().push(script);
    }
    for (group, scripts) in groups {
        let _ = write!(text, "\n## {group}\n\n| Script | Rule | Linux |\n|---|---|---|\n");
        for script in scripts {
            let linux = match &script.linux {
                Linux::Yes if script.differences.is_empty() => "agrees",
                Linux::Yes => "differs",
                Linux::No(reason) => &format!("not run: {reason}"),
            };
            let _ = writeln!(text, "| {} | {} | {linux} |", link(script), script.rule);
        }
    }
    text
}

fn link(script: &Script) -> String {
    let name = script.file.split_once('/').map_or(script.file.as_str(), |(_, name)| name);
    format!(
        "[{}](../../crates/squall-tcp/tests/scripts/{})",
        name.trim_end_matches(".pkt"),
        script.file
    )
}
