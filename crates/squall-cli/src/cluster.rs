//! `squall cluster`, `squall run --nodes` and `squall test --nodes`: runs on several machines. The
//! controller is part of the Python package (`squall.cluster`, with Ray). This module parses its
//! arguments and starts it.

use std::{
    env,
    ffi::OsString,
    fs::File,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use clap::{Subcommand, ValueEnum};
use squall::{Error, Profile};
use squall_machine::python::python;
use squall_options::RunOptions;
use squall_units::Cannot;

use crate::{args::Output, drive::Signals};

/// Run traffic on several machines as one: start and stop their nodes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall cluster up lab.toml
  squall cluster status lab.toml
  squall run load.toml --nodes lab.toml
  squall cluster down lab.toml

The inventory names the nodes, how they are reached, and their ports (docs/guide/cluster.md). Needs \
                        Python with squall[cluster]: that of this installation, of the active \
                        virtual environment, or python3; SQUALL_PYTHON names another.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start Ray if the inventory asks for it, and a daemon on each node
    Up(Of),
    /// Show machines, nodes, their ports and clocks
    Status(Of),
    /// Stop the daemons, and Ray if `squall cluster up` has started it
    Down(Of),
}

#[derive(Debug, clap::Args)]
struct Of {
    /// Nodes and ports, in TOML
    #[arg(value_name = "INVENTORY.toml")]
    inventory: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Options of runs over several machines.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Several machines")]
pub struct Nodes {
    /// Run on the nodes of this inventory; the ports are those that it names
    #[arg(long, value_name = "INVENTORY.toml", conflicts_with_all = ["port", "trex", "part"])]
    pub nodes: Option<PathBuf>,
    /// If a node is lost: end the run on all nodes; continue on the others; or also resume on the
    /// node when it is reached again
    #[arg(
        long,
        value_enum,
        value_name = "end|continue|resume",
        default_value = "end",
        hide_possible_values = true,
        requires = "nodes"
    )]
    on_loss: OnLoss,
    /// Keep the report and the log of each node in this folder
    #[arg(long, value_name = "FOLDER", requires = "nodes")]
    keep: Option<PathBuf>,
    /// Show the nodes each second: text, json or off
    #[arg(long, value_name = "FORM", default_value = "text", value_parser = ["text", "json", "off"], requires = "nodes")]
    live: String,
    /// Started by a daemon: end with standard input, and take files only from this folder
    #[arg(long, value_name = "FOLDER", requires = "nodes", hide = true)]
    for_daemon: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnLoss {
    End,
    Continue,
    Resume,
}

pub fn cluster(args: &Args) -> Result<ExitCode, Error> {
    let (action, of) = match &args.action {
        Action::Up(of) => ("up", of),
        Action::Status(of) => ("status", of),
        Action::Down(of) => ("down", of),
    };
    readable(&of.inventory)?;
    let mut words = vec![action.into(), of.inventory.clone().into_os_string()];
    words.extend(of.json.then(|| "--json".into()));
    Err(become_controller(words))
}

/// Runs a profile on the nodes of `inventory`.
pub fn run(
    profile: &Path,
    inventory: &Path,
    nodes: &Nodes,
    options: &RunOptions,
    output: &Output,
) -> Error {
    if let Err(error) = [profile, inventory].into_iter().try_for_each(readable) {
        return error;
    }
    let options = match serde_json::to_string(options) {
        Ok(options) => options,
        Err(error) => return Error::Usage(format!("options of the run: {error}")),
    };
    let on_loss = match nodes.on_loss {
        OnLoss::End => "end",
        OnLoss::Continue => "continue",
        OnLoss::Resume => "resume",
    };
    let live = if output.quiet { "off" } else { &nodes.live };
    let mut words: Vec<OsString> = vec!["run".into(), profile.into()];
    for (name, value) in [
        ("--nodes", inventory.as_os_str()),
        ("--options", options.as_ref()),
        ("--on-loss", on_loss.as_ref()),
        ("--live", live.as_ref()),
    ] {
        words.extend([name.into(), value.into()]);
    }
    for (name, folder) in [("--keep", &nodes.keep), ("--for-daemon", &nodes.for_daemon)] {
        words.extend(folder.iter().flat_map(|folder| [name.into(), folder.into()]));
    }
    words.push("--".into());
    words.extend(of_report(output));
    become_controller(words)
}

/// The nodes of `inventory` for the trials of a test, on the ports of `profile` or, if there is no
/// profile, on all ports. With `dry_run`, only reads the inventory and does not connect to nodes.
pub fn nodes(
    inventory: &Path,
    profile: Option<&Profile>,
    dry_run: bool,
    signals: &Signals,
) -> Result<squall_trials::Nodes, Error> {
    readable(inventory)?;
    let mut words: Vec<OsString> = vec!["trials".into(), inventory.into()];
    if let Some(profile) = profile {
        words.push(format!("--profile={}", profile.origin).into());
        words.extend(profile.ports.iter().map(|port| format!("--port={}", port.name).into()));
    }
    words.extend(dry_run.then(|| "--dry-run".into()));
    squall_trials::Nodes::start(controller(words), &|| signals.came())
}

/// Checks that a file can be read before Python starts, because an error there is about packages.
fn readable(path: &Path) -> Result<(), Error> {
    if path == Path::new("-") {
        return Ok(());
    }
    Ok(File::open(path).map(drop).map_err(|error| Cannot::read(path, &error))?)
}

/// The output options as arguments of `squall report`, which the controller runs on the reports of
/// the nodes.
fn of_report(output: &Output) -> Vec<OsString> {
    let mut words = Vec::new();
    for fail_if in &output.fail_if {
        words.push(format!("--fail-if={fail_if}").into());
    }
    if let Some(file) = &output.json {
        words.push(format!("--json={file}").into());
    }
    if let Some(file) = &output.report {
        words.extend(["--report".into(), file.into()]);
    }
    if let Some(file) = &output.pdf {
        words.extend(["--pdf".into(), file.into()]);
    }
    words.extend(output.allow_invalid.then(|| "--allow-invalid".into()));
    words.extend(output.quiet.then(|| "--quiet".into()));
    words
}

/// Runs the controller, or prints which packages to install.
const START: &str = r#"
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
try:
    from squall.cluster.__main__ import main
except ImportError as error:
    print(
        f"squall: cannot import squall.cluster with {sys.executable}: {error}\n"
        f"  try {sys.executable} -m pip install '.[cluster]' in Squall's source folder, or"
        " SQUALL_PYTHON=/path/to/python",
        file=sys.stderr,
    )
    sys.exit(3)
sys.exit(main())
"#;

/// Replaces this process with the controller, which then receives its signals. Returns only on
/// failure.
fn become_controller(words: Vec<OsString>) -> Error {
    let mut command = controller(words);
    let error = command.exec();
    Error::Environment(format!(
        "cannot run {}: {error}\n  try pip install '.[cluster]' in Squall's source folder, or \
         SQUALL_PYTHON=/path/to/python",
        command.get_program().display()
    ))
}

fn controller(words: Vec<OsString>) -> Command {
    let mut command = Command::new(python());
    command.arg("-c").arg(START).args(words);
    if let Ok(own) = env::current_exe() {
        // The controller must run this binary, not another one on the search path.
        command.env("SQUALL", own);
    }
    command
}
