//! `squall run`: a profile on its ports.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use squall::{Error, Session, render::attack};

use crate::{
    args::{Output, ProfileFile, Running},
    drive::{End, drive_until},
};

/// Runs a profile, and reports what was sent and what arrived
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall run load.toml
  squall run load.toml --port A=af_packet:eth1 --port B=af_packet:eth2 --duration 60s --mult 50%
  squall run load.toml --port A=pcap:out.pcap --count 1000     # writes the frames that would leave
  squall run scenario.toml --labels truth.csv                  # attacks among clean load, and \
                        what they were
  squall run load.toml --json - --quiet --fail-if 'loss > 0' --fail-if 'latency.p99 > 100us'

SIGINT (Ctrl-C) stops sending and still reports; a second one aborts.")]
pub struct Args {
    #[command(flatten)]
    file: ProfileFile,
    /// Writes the ground truth of the profile's attacks: as JSONL if FILE ends so, else as CSV
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let profile = args.file.load()?;
    let title = format!("squall run {}", args.file.profile.display());
    let attacks = match profile.attacks.is_empty() {
        true => None,
        false => Some(Arc::new(crate::attack::prepare(&profile, args.output.quiet)?)),
    };
    let session = Session { attacks, labels: args.labels.clone(), ..args.running.session(profile) };
    drive_until(session, &args.output, &title, End::default(), |_| {}, attack)
}
