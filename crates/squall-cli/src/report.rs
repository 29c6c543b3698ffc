//! `squall report`: shows a saved report, or merges the reports of a run's parts.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use squall::{Error, report::Report};
use squall_report::merge::whole;
use squall_units::Cannot;

use crate::args::{Output, command_line};

/// Show saved reports again: one, or those of a run's parts as one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall report run.json                                     # its summary
  squall report run.json --report run.html                   # as a page
  squall report run.json --fail-if 'loss > 0'                # a criterion that was forgotten

Two machines send one profile (--part), each with --json. The report of the whole:
  squall report one.json two.json --report whole.html --fail-if 'latency.p99 > 50us'

Counters are added and histograms merged, so that percentiles are those of all values together. A \
                        part that is absent makes the whole NOT VALID. Ports that several parts \
                        call by one name get the name of their file in front.")]
pub struct Args {
    /// Report of a run, as --json has written it
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Make the report NOT VALID: results of this node are missing or incomplete (repeatable)
    #[arg(long, value_name = "NODE=WHY", value_parser = missing)]
    missing: Vec<(String, String)>,
    #[command(flatten)]
    output: Output,
}

fn missing(text: &str) -> Result<(String, String), String> {
    let (node, why) = text.split_once('=').ok_or("expected NODE=WHY, such as node3=no answer")?;
    Ok((node.to_owned(), why.to_owned()))
}

pub fn report(args: &Args) -> Result<ExitCode, Error> {
    let mut parts = args.files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
    let mut report = match &mut parts[..] {
        [(_, one)] => std::mem::take(one),
        _ => Report { command: command_line(), ..merged(parts)? },
    };
    for (node, why) in &args.missing {
        report.lacks_results_of(node, why);
    }
    let output = Output { saved: true, ..args.output.clone() };
    output.publish(report, output.create()?, "", &[])
}

fn merged(parts: Vec<(String, Report)>) -> Result<Report, Error> {
    whole(parts).map_err(|error| {
        let hint = "give the reports of one run's parts, once each, made by one version";
        Error::Usage(format!("{error}\n  try: {hint}"))
    })
}

/// Reads a report. Its file name becomes the name of the part.
fn read(file: &Path) -> Result<(String, Report), Error> {
    let shown = file.display();
    let text = fs::read_to_string(file).map_err(|error| Cannot::read(file, &error))?;
    let report = serde_json::from_str(&text).map_err(|error| {
        let hint = "give what squall run --json FILE has written";
        Error::Usage(format!("{shown} is no report of a run: {error}\n  try: {hint}"))
    })?;
    let name = file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy();
    Ok((name.into_owned(), report))
}
