//! `squall run`: a profile on its ports.

use std::{
    process::ExitCode,
    sync::{Arc, Mutex},
};

use squall::{Error, Profile, Session, attacking, render::attack};

use crate::{
    args::{All, Options, Output, ProfileFile},
    drive::{End, Signals, drive_until},
    progress::ProgressLine,
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
    #[command(flatten)]
    options: Options<All>,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let profile = args.file.load()?;
    let title = format!("squall run {}", args.file.profile.display());
    let attacks = match profile.attacks.is_empty() {
        true => None,
        false => Some(Arc::new(prepare(&profile, args.output.quiet)?)),
    };
    let session = Session { attacks, ..args.options.session(profile)? };
    drive_until(session, &args.output, &title, End::default(), |_| {}, attack)
}

/// Solves the attacks of `profile`; on a terminal it is seen how far that is, and Ctrl-C ends it.
pub fn prepare(profile: &Profile, quiet: bool) -> Result<attacking::Prepared, Error> {
    let signals = Signals::catch()?;
    let line = Mutex::new(ProgressLine::new(quiet));
    let progress = |done: usize, all: usize| {
        if let Ok(mut line) = line.lock() {
            line.update(|| format!("solving rules: {done} of {all}"));
        }
        !signals.came()
    };
    let prepared = attacking::prepare(profile, &progress)?;
    line.into_inner().into_iter().for_each(|mut line| line.clear());
    prepared
        .ok_or_else(|| Error::Usage("there is no attack\n  try squall attack local.rules".into()))
}
