//! `squall demo`: a first run that needs no root, network or configuration.

use std::{path::PathBuf, process::ExitCode};

use squall::{Error, Format, Profile};
use squall_options::Time;
use squall_port_linux::lab;

use crate::{
    args::{Choice, Options, Output},
    drive::End,
    drive::drive_until,
};

const PROFILE: &str = include_str!("demo.toml");
const REPORT: &str = "squall-report.html";

/// Run traffic both ways in a private lab: a live table, a summary and squall-report.html
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall demo
  squall demo --duration 60s --mult 2 --report today.html

Creates a private network namespace with two interfaces, so that nothing else sees the traffic; \
                        needs no root. If the kernel forbids this, the demo prints the reason and \
                        sends in memory.

Exit status: 0 done, also if the verdict is NOT VALID (the summary has the reasons), 1 failed by \
                        --fail-if, 2 wrong usage, 3 environment, 129, 130, 143 interrupted by \
                        SIGHUP, SIGINT, SIGTERM.")]
#[command(mut_arg("allow_invalid", |arg| arg.hide(true)))]
pub struct Args {
    #[command(flatten)]
    options: Options<OfDemos>,
    #[command(flatten)]
    output: Output,
}

/// Run options of the demo. Its profile sends in both directions and has no attacks; its ports are
/// of one machine and in real time.
#[derive(Clone, Debug)]
pub struct OfDemos;

impl Choice for OfDemos {
    fn has(name: &str) -> bool {
        !["receive", "labels", "key_log", "routes_csv", "part", "clock"].contains(&name)
    }
}

pub fn demo(args: &Args) -> Result<ExitCode, Error> {
    let mut profile = Profile::parse(PROFILE, "<demo>", Format::Toml)?;
    // This comes first: only a single-threaded process can enter a user namespace.
    let place = match lab::enter_private(&lab::LabOptions::default()) {
        Ok(interfaces) => {
            for (port, interface) in profile.ports.iter_mut().zip(&interfaces) {
                port.address = format!("af_packet:{interface}");
            }
            format!("{} and {} in a private lab", interfaces[0], interfaces[1])
        }
        Err(error) => {
            eprintln!("squall: {error}\n  the demo continues in memory (loop ports)");
            "two ports in memory".to_owned()
        }
    };
    let mut options = args.options.clone();
    options.run.duration.get_or_insert(Time::from_secs(10));
    // The demo does not fail on a busy machine. The summary shows the reasons instead.
    let mut output = Output { allow_invalid: true, ..args.output.clone() };
    output.report.get_or_insert_with(|| PathBuf::from(REPORT));
    let title = format!("squall demo: {place}");
    drive_until(
        options.session(profile)?,
        &output,
        &title,
        End::default(),
        |_| {},
        |_| "Next: squall lab up, then squall lab exec -- squall send --help\n".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_profile_is_right_and_measured_both_ways() {
        let profile = Profile::parse(PROFILE, "<demo>", Format::Toml).unwrap();
        assert_eq!((profile.ports.len(), profile.streams.len()), (2, 4));
        assert!(profile.streams.iter().all(|s| s.latency));
    }
}
