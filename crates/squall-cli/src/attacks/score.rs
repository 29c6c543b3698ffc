//! `squall score`: scores an engine's alerts against the ground truth of attacks.

use std::{path::PathBuf, process::ExitCode};

use squall::Error;
use squall_offline::scoring::{Criterion, Scored, score, score_html, score_text};

use crate::{args::command_line, output};

/// Score the alerts of an intrusion detection system against the ground truth of attacks
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall score --labels attacks.labels.csv --alerts eve.json
  squall score --labels truth.jsonl --alerts fast.log --csv by-sid.csv --report score.html
  squall score --labels truth.csv --alerts alert_csv.txt --fail-if 'detection < 0.97' --fail-if \
                        'false_positive > 0'

Reads Suricata's eve.json and fast.log, Snort's alert_fast and alert_csv, and the output of \
                        u2spewfoo; the content decides. Alerts are matched by addresses, ports and \
                        time. Figures for --fail-if: detection, precision, f1, accuracy, \
                        false_positive, benign_false_positive, attacks, hit, missed, \
                        near_misses_alerted, benign_alerted, collateral, duplicates, outside, \
                        latency_median_s, latency_max_s.

Exit status: 0 done, 1 failed by --fail-if, 2 wrong usage or input, 3 environment.")]
pub struct Args {
    /// Read the ground truth from FILE: labels of squall attack, CSV or JSONL
    #[arg(short, long, value_name = "FILE")]
    labels: PathBuf,
    /// Read the engine's alerts from FILE; repeatable; - is standard input
    #[arg(short, long, value_name = "FILE", required = true)]
    alerts: Vec<PathBuf>,
    /// Add this many seconds to the times of alerts, if clocks differ
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    shift: Option<f64>,
    /// Write a row for each rule as CSV; - is standard output
    #[arg(long, value_name = "FILE|-")]
    csv: Option<String>,
    /// Write the score as JSON; - is standard output
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
    /// Write the score as one HTML file with plots
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// End with exit status 1 if EXPR holds: 'detection < 0.97'; repeatable
    #[arg(long, value_name = "EXPR", value_parser = Criterion::parse)]
    fail_if: Vec<Criterion>,
    /// Show no summary
    #[arg(short, long)]
    quiet: bool,
}

pub fn score_command(args: &Args) -> Result<ExitCode, Error> {
    let shift = args.shift.unwrap_or(0.0) * 1e9;
    let scored =
        Scored { command: command_line(), ..score(&args.labels, &args.alerts, shift as i64)? };
    let to_stdout = [&args.json, &args.csv].iter().any(|name| name.as_deref() == Some("-"));
    if !args.quiet {
        match to_stdout {
            true => eprint!("{}", score_text(&scored)),
            false => output::print(&score_text(&scored)),
        }
    }
    if let Some(name) = &args.csv {
        output::write_to(name, &scored.to_csv())?;
    }
    if let Some(path) = &args.report {
        output::write_to(&path.to_string_lossy(), &score_html(&scored))?;
    }
    if let Some(name) = &args.json {
        output::write_to(name, &(scored.to_json() + "\n"))?;
    }
    let violations: Vec<String> =
        args.fail_if.iter().filter_map(|criterion| criterion.check(&scored)).collect();
    violations.iter().for_each(|violation| eprintln!("squall: failed: {violation}"));
    Ok(ExitCode::from(u8::from(!violations.is_empty())))
}
