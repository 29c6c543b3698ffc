//! `squall run`: a profile on its ports.

use std::{process::ExitCode, sync::Mutex};

use squall::{Error, Session};
use squall_report::render::attack;

use crate::{
    args::{All, Options, Output, ProfileFile},
    cluster::{self, Nodes},
    drive::{End, Signals, drive_until},
    progress::ProgressLine,
};

/// Run a profile and report what was sent and what arrived
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
    let mut session = args.options.session(profile)?;
    solve(&mut session, args.output.quiet)?;
    drive_until(session, &args.output, &title, End::default(), |_| {}, attack)
}

/// Solves the attacks of a session; on a terminal it is seen how far that is, and Ctrl-C ends it.
pub fn solve(session: &mut Session, quiet: bool) -> Result<(), Error> {
    if session.profile.attacks.is_empty() {
        return Ok(());
    }
    let signals = Signals::catch()?;
    let line = Mutex::new(ProgressLine::new(quiet));
    let progress = |done: usize, all: usize| {
        if let Ok(mut line) = line.lock() {
            line.update(|| format!("solving rules: {done} of {all}"));
        }
        !signals.came()
    };
    session.solve(&progress)?;
    line.into_inner().into_iter().for_each(|mut line| line.clear());
    Ok(())
}
