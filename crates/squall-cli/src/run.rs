//! `squall run`: runs a profile on its ports.

use std::process::ExitCode;

use squall::Error;
use squall_report::render::attack;

use crate::{
    args::{All, Options, Output, ProfileFile},
    cluster::{self, Nodes},
    drive::{End, drive_until},
};

/// Run a profile and report the frames sent and received
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall run load.toml
  squall run load.toml --port A=af_packet:eth1 --port B=af_packet:eth2 --duration 60s --mult 50%
  squall run load.toml --port A=pcap:out.pcap --count 1000     # write the frames to a file
  squall run scenario.toml --labels truth.csv                  # attacks among clean load, with \
                        their ground truth
  squall run load.toml --nodes lab.toml                        # on several machines
  squall run load.toml --json - --quiet --fail-if 'loss > 0' --fail-if 'latency.p99 > 100us'

SIGINT (Ctrl-C) stops sending, and the report still follows; a second one aborts.")]
pub struct Args {
    #[command(flatten)]
    file: ProfileFile,
    #[command(flatten)]
    options: Options<All>,
    #[command(flatten)]
    nodes: Nodes,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    if let Some(inventory) = &args.nodes.nodes {
        let (profile, options) = (&args.file.profile, &args.options.run);
        return Err(cluster::run(profile, inventory, &args.nodes, options, &args.output));
    }
    let profile = args.file.load()?;
    let title = format!("squall run {}", args.file.profile.display());
    let session = args.options.session(profile)?;
    drive_until(session, &args.output, &title, End::default(), |_| {}, attack)
}
