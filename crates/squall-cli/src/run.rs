//! `squall run`: a profile on its ports.

use std::process::ExitCode;

use squall::Error;

use crate::{
    args::{Output, ProfileFile, Running},
    drive::drive,
};

/// Runs a profile, and reports what was sent and what arrived
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall run load.toml
  squall run load.toml --port A=af_packet:eth1 --port B=af_packet:eth2 --duration 60s --mult 50%
  squall run load.toml --port A=pcap:out.pcap --count 1000     # writes the frames that would leave
  squall run load.toml --json - --quiet --fail-if 'loss > 0' --fail-if 'latency.p99 > 100us'

SIGINT (Ctrl-C) stops sending and still reports; a second one aborts.")]
pub struct Args {
    #[command(flatten)]
    file: ProfileFile,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let profile = args.file.load()?;
    let title = format!("squall run {}", args.file.profile.display());
    drive(args.running.session(profile), &args.output, &title)
}
