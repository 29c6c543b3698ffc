//! The allowed dependencies between crates. Each row here has a row in the table in
//! docs/architecture.md.
//!
//! The check compares them with `cargo metadata`: direct dependencies of crates and build scripts.
//! Tests may use any crate.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

struct Row {
    number: u8,
    crates: &'static [&'static str],
    /// Squall's crates that this row may use, in addition to `rows_below`.
    may_use: &'static [&'static str],
    /// The row may also use all crates in rows below this number.
    rows_below: u8,
    /// External crates that this row must not use, each list with the reason.
    must_not: &'static [(&'static str, &'static [&'static str])],
    /// Calls that the code must not make (except in tests), each list with the reason.
    must_not_call: &'static [(&'static str, &'static [&'static str])],
}

const SYSTEM: (&str, &[&str]) = (
    "system calls and sockets belong to the ports (row 4)",
    &[
        "rustix",
        "libc",
        "nix",
        "socket2",
        "mio",
        "io-uring",
        "rtnetlink",
        "aya",
        "libbpf-rs",
        "xsk-rs",
        "libloading",
    ],
);
const SYSTEM_BUT_CLOCK: (&str, &[&str]) = (SYSTEM.0, SYSTEM.1.split_at(1).1);
const RUNTIME: (&str, &[&str]) = (
    "threads and executors belong to the engine",
    &[
        "tokio",
        "async-std",
        "smol",
        "rayon",
        "crossbeam",
        "crossbeam-channel",
        "rtrb",
        "parking_lot",
    ],
);
const CLOCK: (&str, &[&str]) = (
    "time comes in as an argument, so that a test can hold the clock",
    // `time` is allowed: it computes the calendar date of a given time. `NOW` checks that no code
    // reads the clock through it.
    &["quanta", "chrono", "jiff"],
);
const HTTP: (&str, &[&str]) = (
    "HTTP belongs to the server",
    &["axum", "hyper", "tonic", "reqwest", "ureq", "tower", "tower-http"],
);
const PYTHON: (&str, &[&str]) = ("Python belongs to squall-py", &["pyo3", "numpy"]);
const COMMAND_LINE: (&str, &[&str]) = (
    "the command line belongs to squall-cli",
    &["clap", "clap_complete", "clap_mangen", "ratatui", "crossterm", "indicatif"],
);
const TOML: (&str, &[&str]) =
    ("profiles are read by squall-profile", &["toml", "toml_edit", "serde-saphyr", "serde_yaml"]);

const NOW: (&str, &[&str]) = (
    "time comes in as an argument (`now: Nanos`), so that a test can hold the clock",
    &["Instant::now", "SystemTime::now", "DateTime::now", "thread::sleep"],
);
const THREADS: (&str, &[&str]) =
    ("threads belong to the engine", &["thread::spawn", "thread::scope", "thread::Builder"]);
const SOCKETS: (&str, &[&str]) = (
    "sockets belong to the ports",
    &["TcpStream", "TcpListener", "UdpSocket", "UnixStream", "UnixListener"],
);

const TABLE: &[Row] = &[
    Row {
        number: 0,
        crates: &["squall-units", "squall-bpf"],
        may_use: &[],
        rows_below: 0,
        must_not: &[SYSTEM, RUNTIME, CLOCK, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[NOW, THREADS, SOCKETS],
    },
    Row {
        number: 0,
        crates: &["squall-wire"],
        may_use: &["squall-units"],
        rows_below: 0,
        must_not: &[SYSTEM, RUNTIME, CLOCK, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[NOW, THREADS, SOCKETS],
    },
    Row {
        number: 0,
        // Options of a run, as in a profile. Each option is also a command line argument.
        crates: &["squall-options"],
        may_use: &["squall-units"],
        rows_below: 0,
        must_not: &[SYSTEM, RUNTIME, CLOCK, HTTP, PYTHON, TOML],
        must_not_call: &[NOW, THREADS, SOCKETS],
    },
    Row {
        number: 1,
        crates: &[
            "squall-pcap",
            "squall-stats",
            "squall-program",
            "squall-profile",
            "squall-rules",
            "squall-tls",
            "squall-http",
        ],
        may_use: &[],
        rows_below: 1,
        must_not: &[SYSTEM, RUNTIME, CLOCK, HTTP, PYTHON, COMMAND_LINE],
        must_not_call: &[NOW, THREADS, SOCKETS],
    },
    Row {
        number: 2,
        crates: &[
            "squall-tcp",
            "squall-host",
            "squall-router",
            "squall-bgp",
            "squall-measure",
            "squall-ids",
        ],
        may_use: &[],
        rows_below: 2,
        must_not: &[SYSTEM, RUNTIME, CLOCK, HTTP, PYTHON, COMMAND_LINE],
        must_not_call: &[NOW, THREADS, SOCKETS],
    },
    Row {
        number: 3,
        crates: &["squall-port"],
        // The capture format is for the pcap port, the instructions for ports that generate frames
        // in the kernel. This row moves octets, so it must not depend on programs, profiles or
        // headers.
        may_use: &["squall-units", "squall-pcap", "squall-bpf"],
        rows_below: 0,
        // Access to the clock of the kernel's timestamps is allowed: `Instant` hides it.
        must_not: &[SYSTEM_BUT_CLOCK, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[SOCKETS],
    },
    Row {
        number: 3,
        // Converts captures to captures, and to frames with due times.
        crates: &["squall-edit"],
        may_use: &[],
        rows_below: 3,
        must_not: &[SYSTEM, RUNTIME, CLOCK, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[NOW, THREADS, SOCKETS],
    },
    Row {
        number: 3,
        crates: &["squall-replay"],
        may_use: &["squall-edit"],
        rows_below: 3,
        must_not: &[SYSTEM, RUNTIME, CLOCK, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[NOW, THREADS, SOCKETS],
    },
    Row {
        number: 3,
        // Messages of applications, and the number of flows.
        crates: &["squall-apps"],
        may_use: &["squall-tcp"],
        rows_below: 3,
        must_not: &[SYSTEM, RUNTIME, CLOCK, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[NOW, THREADS, SOCKETS],
    },
    Row {
        number: 3,
        crates: &["squall-flows"],
        may_use: &["squall-tcp", "squall-apps", "squall-host"],
        rows_below: 3,
        must_not: &[SYSTEM, RUNTIME, CLOCK, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[NOW, THREADS, SOCKETS],
    },
    Row {
        number: 3,
        // Sessions of BGP over TCP, on a link.
        crates: &["squall-speaker"],
        may_use: &[],
        rows_below: 3,
        must_not: &[SYSTEM, RUNTIME, CLOCK, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[NOW, THREADS, SOCKETS],
    },
    Row {
        number: 3,
        // Creates conversations that match rules; the evaluator verifies them.
        crates: &["squall-attacks"],
        may_use: &[],
        rows_below: 3,
        must_not: &[SYSTEM, RUNTIME, CLOCK, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[NOW, THREADS, SOCKETS],
    },
    Row {
        number: 3,
        // Derives figures from those that its callers have measured.
        crates: &["squall-report"],
        may_use: &["squall-units", "squall-stats"],
        rows_below: 0,
        must_not: &[SYSTEM, RUNTIME, CLOCK, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[NOW, THREADS, SOCKETS],
    },
    Row {
        number: 3,
        // Sources of every kind.
        crates: &["squall-plan"],
        may_use: &[
            "squall-tcp",
            "squall-edit",
            "squall-replay",
            "squall-apps",
            "squall-flows",
            "squall-report",
        ],
        rows_below: 3,
        must_not: &[SYSTEM, RUNTIME, CLOCK, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[NOW, THREADS, SOCKETS],
    },
    Row {
        number: 4,
        // Requests trials and decides based on their results; its callers have ports and clocks.
        crates: &["squall-method"],
        may_use: &["squall-report", "squall-units"],
        rows_below: 0,
        must_not: &[SYSTEM, RUNTIME, CLOCK, HTTP, PYTHON, TOML],
        must_not_call: &[NOW, THREADS, SOCKETS],
    },
    Row {
        number: 4,
        crates: &["squall-port-linux", "squall-port-dpdk"],
        may_use: &["squall-port", "squall-units", "squall-bpf"],
        rows_below: 0,
        must_not: &[HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[],
    },
    Row {
        number: 4,
        // All backends by address, and other machine-specific code.
        crates: &["squall-machine"],
        may_use: &["squall-port-linux", "squall-port-dpdk"],
        rows_below: 4,
        must_not: &[HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[SOCKETS],
    },
    Row {
        number: 4,
        // Files, and the thread that writes them.
        crates: &["squall-capture"],
        may_use: &["squall-port", "squall-units", "squall-wire", "squall-pcap"],
        rows_below: 0,
        must_not: &[HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[SOCKETS],
    },
    Row {
        number: 4,
        // Work that needs no run: processing of whole files, the filter language and its cost. A
        // file of gigabytes is worth a second thread.
        crates: &["squall-offline"],
        may_use: &["squall-port-linux", "squall-machine"],
        rows_below: 4,
        must_not: &[SYSTEM, RUNTIME, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[SOCKETS],
    },
    Row {
        number: 4,
        crates: &["squall-engine"],
        may_use: &[],
        rows_below: 4,
        must_not: &[HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[SOCKETS],
    },
    Row {
        number: 4,
        // Converts the results of a run to its report.
        crates: &["squall-record"],
        may_use: &["squall-engine", "squall-capture"],
        rows_below: 4,
        must_not: &[SYSTEM, RUNTIME, CLOCK, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[NOW, THREADS, SOCKETS],
    },
    Row {
        number: 4,
        // Attacks as sources that the engine can play; rule files and label files.
        crates: &["squall-attacking"],
        may_use: &["squall-engine"],
        rows_below: 4,
        must_not: &[SYSTEM, RUNTIME, CLOCK, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[NOW, SOCKETS],
    },
    Row {
        number: 5,
        crates: &["squall"],
        may_use: &[],
        rows_below: 5,
        must_not: &[HTTP, PYTHON, COMMAND_LINE],
        must_not_call: &[],
    },
    Row {
        number: 6,
        // Runs on separate threads, and a run for servers whose clients start and stop its streams.
        crates: &["squall-control"],
        may_use: &[],
        rows_below: 6,
        must_not: &[SYSTEM, RUNTIME, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[SOCKETS],
    },
    Row {
        number: 6,
        // Short sessions that test the machine.
        crates: &["squall-doctor"],
        may_use: &[],
        rows_below: 6,
        must_not: &[SYSTEM, RUNTIME, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[THREADS, SOCKETS],
    },
    Row {
        number: 6,
        // Runs a session for each trial, either locally or on nodes, whose controller is a process.
        // The settings of trials are also command line arguments, as in squall-method.
        crates: &["squall-trials"],
        may_use: &[],
        rows_below: 6,
        must_not: &[SYSTEM, RUNTIME, HTTP, PYTHON, TOML],
        must_not_call: &[SOCKETS],
    },
    Row {
        number: 6,
        // A run from the view of OTG and TRex, and the translation of their messages. The transport
        // is in a higher row.
        crates: &["squall-otg", "squall-trex"],
        may_use: &["squall-control"],
        rows_below: 6,
        must_not: &[SYSTEM, RUNTIME, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[SOCKETS],
    },
    Row {
        number: 6,
        // The sender is a session; the capturing programs are external.
        crates: &["squall-compare"],
        may_use: &[
            "squall",
            "squall-units",
            "squall-pcap",
            "squall-port",
            "squall-port-linux",
            "squall-machine",
            "squall-options",
            "squall-report",
        ],
        rows_below: 0,
        must_not: &[HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[],
    },
    Row {
        number: 6,
        crates: &["squall-editor"],
        may_use: &[
            "squall",
            "squall-units",
            "squall-wire",
            "squall-pcap",
            "squall-profile",
            "squall-plan",
            "squall-port",
            "squall-port-linux",
            "squall-report",
            "squall-otg",
        ],
        rows_below: 0,
        must_not: &[SYSTEM, RUNTIME, CLOCK, HTTP, PYTHON, COMMAND_LINE, TOML],
        must_not_call: &[NOW, THREADS, SOCKETS],
    },
    Row {
        number: 7,
        crates: &["squall-server"],
        may_use: &[
            "squall",
            "squall-units",
            "squall-options",
            "squall-wire",
            "squall-plan",
            "squall-report",
            "squall-method",
            "squall-port",
            "squall-port-linux",
            "squall-machine",
            "squall-offline",
            "squall-attacking",
            "squall-control",
            "squall-trials",
            "squall-editor",
            "squall-otg",
            "squall-trex",
        ],
        rows_below: 0,
        must_not: &[PYTHON, COMMAND_LINE],
        must_not_call: &[],
    },
    Row {
        number: 7,
        crates: &["squall-py"],
        // The editor's conversion of a profile to Python.
        may_use: &[
            "squall",
            "squall-units",
            "squall-options",
            "squall-profile",
            "squall-plan",
            "squall-report",
            "squall-method",
            "squall-port",
            "squall-capture",
            "squall-machine",
            "squall-offline",
            "squall-control",
            "squall-trials",
            "squall-editor",
            "squall-otg",
            "squall-trex",
        ],
        rows_below: 0,
        must_not: &[HTTP, COMMAND_LINE, TOML, SYSTEM],
        must_not_call: &[],
    },
    Row {
        number: 8,
        crates: &["squall-cli"],
        may_use: &[
            "squall",
            "squall-units",
            "squall-options",
            "squall-wire",
            "squall-profile",
            "squall-plan",
            "squall-report",
            "squall-apps",
            "squall-replay",
            "squall-port",
            "squall-port-linux",
            "squall-machine",
            "squall-capture",
            "squall-offline",
            "squall-attacking",
            "squall-doctor",
            "squall-trials",
            "squall-compare",
            "squall-server",
            "squall-method",
            "squall-trex",
        ],
        rows_below: 0,
        must_not: &[HTTP, PYTHON, TOML],
        must_not_call: &[],
    },
];

/// Crates with a size limit: the maximum number of lines in src without tests, and how to resolve
/// an excess.
const BUDGETS: &[(&str, usize, &str)] = &[(
    "squall",
    4500,
    "the facade runs a profile: what looks at the machine goes to squall-machine, what makes the \
     report to squall-record, what runs several sessions to a crate above",
)];

/// The only crates that may contain unsafe code.
const UNSAFE_ALLOWED: &[&str] = &["squall-port-linux", "squall-port-dpdk", "squall-py"];

pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let packages = packages(root)?;
    let mut wrong = vec![];
    for package in &packages {
        if !UNSAFE_ALLOWED.contains(&package.name.as_str()) {
            wrong.extend(without_forbid(package)?);
        }
        if !package.layered {
            continue;
        }
        match TABLE.iter().find(|row| row.crates.contains(&package.name.as_str())) {
            Some(row) => {
                wrong.extend(
                    package
                        .dependencies
                        .iter()
                        .filter_map(|to| wrong_arrow(row, &package.name, to)),
                );
                wrong.extend(wrong_calls(row, package)?);
                wrong.extend(over_budget(&package.name, lines(package)?));
            }
            None => wrong.push(format!(
                "{}: this crate is in no row of the layers\n  expected: a row in \
                 xtask/src/layers.rs and in docs/architecture.md",
                package.name
            )),
        }
    }
    wrong.extend(unknown(&packages));
    Ok(wrong)
}

/// Crates in the table that are not in the workspace.
fn unknown(packages: &[Package]) -> Vec<String> {
    let named = TABLE.iter().flat_map(|row| row.crates.iter().chain(row.may_use));
    let mut unknown: Vec<_> =
        named.filter(|name| packages.iter().all(|package| package.name != **name)).collect();
    unknown.sort();
    unknown.dedup();
    let line = |name: &&str| {
        format!("{name}: no such crate\n  expected: none in xtask/src/layers.rs, either")
    };
    unknown.into_iter().map(line).collect()
}

struct Package {
    name: String,
    /// Whether the package is in crates/. Other packages (this program, the benches) may use any
    /// crate.
    layered: bool,
    dependencies: Vec<String>,
    /// The root files of all libraries and binaries.
    roots: Vec<String>,
}

fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version=1", "--offline"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cargo metadata does not start: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    metadata["packages"]
        .as_array()
        .ok_or("cargo metadata lists no packages")?
        .iter()
        .map(|value| package(root, value))
        .collect()
}

fn package(root: &Path, value: &Value) -> Result<Package, String> {
    let text = |value: &Value| {
        value.as_str().map(String::from).ok_or("cargo metadata: a name is no string")
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let dependencies = list(&value["dependencies"]);
    let targets = list(&value["targets"]);
    let is_root = |target: &&Value| {
        list(&target["kind"]).iter().any(|kind| {
            matches!(kind.as_str(), Some("lib" | "cdylib" | "rlib" | "bin" | "proc-macro"))
        })
    };
    Ok(Package {
        name: text(&value["name"])?,
        layered: Path::new(&text(&value["manifest_path"])?).starts_with(root.join("crates")),
        dependencies: dependencies
            .iter()
            .filter(|d| d["kind"] != "dev")
            .map(|d| text(&d["name"]))
            .collect::<Result<_, _>>()?,
        roots: targets
            .iter()
            .filter(is_root)
            .map(|t| text(&t["src_path"]))
            .collect::<Result<_, _>>()?,
    })
}

fn wrong_arrow(row: &Row, from: &str, to: &str) -> Option<String> {
    if to == "squall" || to.starts_with("squall-") {
        let below = |r: &Row| r.number < row.rows_below && r.crates.contains(&to);
        if row.may_use.contains(&to) || TABLE.iter().any(below) {
            return None;
        }
        let mut may: Vec<&str> = row.may_use.to_vec();
        may.extend(TABLE.iter().filter(|r| r.number < row.rows_below).flat_map(|r| r.crates));
        let may = if may.is_empty() { "no crate of Squall".into() } else { may.join(", ") };
        return Some(format!(
            "{from} -> {to}: an arrow the layers do not allow\n  {from} is in row {} and may use: \
             {may}",
            row.number
        ));
    }
    let (why, _) = row.must_not.iter().find(|(_, names)| names.contains(&to))?;
    Some(format!("{from} -> {to}: a row {} crate must not use {to}\n  {why}", row.number))
}

/// Calls that a row must not make, found in each file before its tests.
fn wrong_calls(row: &Row, package: &Package) -> Result<Vec<String>, String> {
    let mut wrong = vec![];
    for root in &package.roots {
        let folder = Path::new(root).parent().ok_or("a crate root without a folder")?;
        for file in rust_files(folder)? {
            let text =
                std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let code = text.lines().take_while(|line| !line.contains("#[cfg(test)]"));
            for (number, line) in
                code.enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"))
            {
                for (why, calls) in row.must_not_call {
                    for call in calls.iter().filter(|call| line.contains(*call)) {
                        let at = format!("{}:{}", file.display(), number + 1);
                        wrong.push(format!(
                            "{at}: `{call}` in {} (row {})\n  {why}",
                            package.name, row.number
                        ));
                    }
                }
            }
        }
    }
    Ok(wrong)
}

fn over_budget(name: &str, lines: usize) -> Option<String> {
    let (_, most, what) = BUDGETS.iter().find(|(of, ..)| *of == name)?;
    (lines > *most).then(|| format!("{name}: {lines} lines, expected at most {most}\n  {what}"))
}

/// Number of lines in libraries and binaries, without tests.
fn lines(package: &Package) -> Result<usize, String> {
    let mut lines = 0;
    for root in &package.roots {
        for file in rust_files(Path::new(root).parent().ok_or("a crate root without a folder")?)? {
            let text =
                std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            lines += text.lines().take_while(|line| !line.contains("#[cfg(test)]")).count();
        }
    }
    Ok(lines)
}

fn rust_files(folder: &Path) -> Result<Vec<std::path::PathBuf>, String> {
    let mut files = vec![];
    for entry in std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let path = entry.map_err(|e| format!("{}: {e}", folder.display()))?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
            files.push(path);
        }
    }
    Ok(files)
}

fn without_forbid(package: &Package) -> Result<Vec<String>, String> {
    let mut wrong = vec![];
    for root in &package.roots {
        let text = std::fs::read_to_string(root).map_err(|e| format!("{root}: {e}"))?;
        if !text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]") {
            wrong.push(format!(
                "{root}: no #![forbid(unsafe_code)]\n  only {} may hold unsafe code",
                UNSAFE_ALLOWED.join(", ")
            ));
        }
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(from: &str, to: &str) -> Option<String> {
        wrong_arrow(
            TABLE.iter().find(|row| row.crates.contains(&from)).expect("in the table"),
            from,
            to,
        )
    }

    #[test]
    fn arrows_point_down() {
        for (from, to) in [
            ("squall-program", "squall-wire"),
            ("squall-plan", "squall-stats"),
            ("squall-port", "squall-pcap"),
            ("squall-engine", "squall-port"),
            ("squall", "squall-port-linux"),
            ("squall", "squall-engine"),
            ("squall-cli", "squall"),
            ("squall-port-linux", "libc"),
            ("squall-profile", "toml"),
        ] {
            assert_eq!(verdict(from, to), None, "{from} -> {to}");
        }
    }

    #[test]
    fn a_crate_over_its_budget_is_named_with_what_to_do() {
        assert_eq!(over_budget("squall-ids", 1_000_000), None);
        assert_eq!(over_budget("squall", 4500), None);
        let text = over_budget("squall", 4501).expect("a line too many");
        assert!(text.starts_with("squall: 4501 lines, expected at most 4500\n  "), "{text}");
    }

    #[test]
    fn arrows_up_across_and_out_are_named() {
        for (from, to) in [
            ("squall-units", "squall-wire"),
            ("squall-stats", "squall-program"),
            ("squall-port", "squall-wire"),
            ("squall-port-linux", "squall-program"),
            ("squall-engine", "squall-port-linux"),
            ("squall-engine", "squall"),
            ("squall-cli", "squall-engine"),
            ("squall-py", "squall-server"),
            ("squall-measure", "tokio"),
            ("squall-wire", "libc"),
            ("squall-engine", "toml"),
            ("squall", "clap"),
        ] {
            assert!(
                verdict(from, to).is_some_and(|line| line.starts_with(&format!("{from} -> {to}"))),
                "{from} -> {to}"
            );
        }
    }
}
