//! The `squall` command: arguments, signals, files and exit status. The facade crate (`squall`)
//! does the work.
//!
//! Exit status: 0 success; 1 the run failed a criterion of the user; 2 wrong usage or input; 3
//! error of the environment; 4 not valid; 128 plus the signal's number if a signal stopped the run
//! before the requested end.
#![forbid(unsafe_code)]
// All output goes through `output`, which removes terminal control sequences.
#![deny(clippy::print_stdout)]

/// Shadows `std::eprint!`: messages may contain file names, rule text or octets of captures, and
/// hence terminal control sequences.
macro_rules! eprint {
    ($($words:tt)*) => { $crate::output::tell(&format!($($words)*)) };
}
/// Like [`eprint`].
macro_rules! eprintln {
    ($($words:tt)*) => { $crate::output::tell(&(format!($($words)*) + "\n")) };
}

mod args;
#[cfg(feature = "attacks")]
mod attacks;
#[cfg(not(feature = "attacks"))]
#[path = "no_attacks.rs"]
mod attacks;
mod capture;
mod cluster;
mod compare;
mod demo;
mod docs;
mod doctor;
mod drive;
mod edit;
mod experiment;
mod features;
mod flows;
mod help;
mod hosts;
mod import;
mod info;
mod lab;
mod output;
mod pdf;
mod plan;
mod ports;
mod prep;
mod probe;
mod progress;
mod recv;
mod replay;
mod report;
mod routers;
mod run;
mod send;
#[cfg(feature = "server")]
mod server;
#[cfg(not(feature = "server"))]
#[path = "no_server.rs"]
mod server;
mod stateful;
mod table;
mod test;

use std::{
    io::Write,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};

use clap::{CommandFactory, Parser, Subcommand};
use squall::Error;

pub use docs::{man_pages, reference};

/// Generate network traffic at exact rates and measure what arrives
#[derive(Debug, Parser)]
#[command(
    name = "squall",
    version,
    long_version = features::version(),
    after_help = "Start with:  squall demo\nThen:        squall send --help, squall run \
                  --help\n\nExit status: 0 done, 1 failed by --fail-if, 2 wrong usage or input, 3 \
                  environment (permission, interface), 4 NOT VALID (unless --allow-invalid), \
                  129, 130, 143 interrupted before its end by SIGHUP, SIGINT, SIGTERM.",
    arg_required_else_help = true,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    Run(Box<run::Args>),
    Send(Box<send::Args>),
    Flows(Box<flows::Args>),
    Hosts(hosts::Args),
    Routers(routers::Args),
    #[command(flatten)]
    Attacks(attacks::Command),
    Replay(Box<replay::Args>),
    Prep(Box<prep::Args>),
    Recv(recv::Args),
    Capture(Box<capture::Args>),
    Info(info::Args),
    Edit(Box<edit::Args>),
    Import(import::Args),
    Plan(plan::Args),
    Report(report::Args),
    Ports(ports::Args),
    Doctor(doctor::Args),
    Lab(lab::Args),
    Cluster(cluster::Args),
    #[command(flatten)]
    Server(server::Command),
    Test(Box<test::Args>),
    Compare(compare::Args),
    Experiment(Box<experiment::Args>),
    Completions(docs::CompletionsArgs),
    Man(docs::ManArgs),
}

/// The command line for completions, man pages and the reference.
pub fn command() -> clap::Command {
    help::fitted(Cli::command(), help::WIDEST)
}

/// Set by a panic on any thread, even if the panic is caught.
static DEFECT: AtomicBool = AtomicBool::new(false);

pub fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|info| {
        DEFECT.store(true, Ordering::Relaxed);
        // A failed write to standard error (a full disk, a closed pipe) must not cause a second
        // panic.
        let text = format!("squall: this is a defect in Squall, please report it: {info}\n");
        _ = std::io::stderr().write_all(squall_report::render::terminal(&text).as_bytes());
    }));
    let command = help::parse::<Cli>().command;
    let lives_on = matches!(&command, Command::Server(command) if server::lives_on(command));
    let done = match command {
        Command::Demo(args) => demo::demo(&args),
        Command::Run(args) => run::run(&args),
        Command::Send(args) => send::send(&args),
        Command::Flows(args) => flows::flows(&args),
        Command::Hosts(args) => hosts::hosts(&args),
        Command::Routers(args) => routers::routers(&args),
        Command::Attacks(command) => attacks::run(&command),
        Command::Replay(args) => replay::replay(&args),
        Command::Prep(args) => prep::prep(&args),
        Command::Recv(args) => recv::recv(&args),
        Command::Capture(args) => capture::capture(&args),
        Command::Info(args) => info::info(&args),
        Command::Edit(args) => edit::edit(&args),
        Command::Import(args) => import::import(&args),
        Command::Plan(args) => plan::plan(&args),
        Command::Report(args) => report::report(&args),
        Command::Ports(args) => ports::ports(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Lab(args) => lab::lab(&args),
        Command::Cluster(args) => cluster::cluster(&args),
        Command::Server(command) => server::run(&command),
        Command::Test(args) => test::test(*args),
        Command::Compare(args) => compare::compare(&args),
        Command::Experiment(args) => experiment::experiment(&args),
        Command::Completions(args) => docs::completions(&args),
        Command::Man(args) => docs::man(&args),
    };
    let status = done.unwrap_or_else(|mut error| {
        if let Error::Input(mistakes) = &mut error {
            help::in_options(mistakes);
        }
        match &error {
            // Input errors begin with file:line:column, a format that editors parse. If the profile
            // cannot be read, there is no line and column.
            Error::Input(mistakes) if mistakes.0.iter().all(|of| !of.origin.is_empty()) => {
                eprintln!("{mistakes}");
            }
            other => eprintln!("squall: {other}"),
        }
        ExitCode::from(error.exit_status())
    });
    ended(status, DEFECT.load(Ordering::Relaxed) && !lives_on)
}

/// The exit status. After a defect, a success is not credible.
fn ended(status: ExitCode, defect: bool) -> ExitCode {
    match defect && status == ExitCode::SUCCESS {
        true => ExitCode::from(3),
        false => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_defect_that_was_caught_does_not_end_with_success() {
        for (status, defect, expected) in [(0, false, 0), (0, true, 3), (1, true, 1), (2, false, 2)]
        {
            assert_eq!(ended(ExitCode::from(status), defect), ExitCode::from(expected));
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }
}
