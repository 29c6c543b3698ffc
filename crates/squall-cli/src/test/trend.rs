//! `squall test trend`: figures over stored results.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use squall::Error;
use squall_method::{Outcome, trend};
use squall_units::Cannot;

use super::{Files, Results, exit_status, read_outcome};
use crate::args::command_line;

/// Options of a trend.
#[derive(Debug, clap::Args)]
pub(super) struct Trend {
    /// Results of one method (squall test --json), or directories of them
    #[arg(required = true, value_name = "FILE|DIR")]
    results_of: Vec<PathBuf>,
    /// Figure to follow, such as throughput/64; repeatable [default: all of the newest result]
    #[arg(long, value_name = "NAME")]
    figure: Vec<String>,
    /// Half of the noise, in standard deviations of the earlier results
    #[arg(long, value_name = "N", default_value_t = trend::Settings::default().deviations)]
    deviations: f64,
    /// Ignore differences from the median up to this ratio
    #[arg(long, value_name = "RATIO", default_value_t = trend::Settings::default().tolerance)]
    tolerance: f64,
    /// End with exit status 1 if a figure of the newest result is worse than the noise
    #[arg(long)]
    fail_if_worse: bool,
    #[command(flatten)]
    results: Results,
}

pub(super) fn trend(args: &Trend) -> Result<ExitCode, Error> {
    for (option, value) in [("--deviations", args.deviations), ("--tolerance", args.tolerance)] {
        if !(value >= 0.0 && value.is_finite()) {
            return Err(Error::Usage(format!("{option} {value}: expected a number, 0 or more")));
        }
    }
    // Read all results before the files are created: one of them may be in the directory.
    let (mut results, mut skipped) = (Vec::new(), Vec::new());
    for path in &args.results_of {
        match path.is_dir() {
            true => read_folder(path, &mut results, &mut skipped)?,
            false => {
                results.push((path.display().to_string(), read_outcome("", path)?));
            }
        }
    }
    let settings = trend::Settings {
        figures: args.figure.clone(),
        deviations: args.deviations,
        tolerance: args.tolerance,
        fail_if_worse: args.fail_if_worse,
    };
    let mut outcome = trend::trend(results, &settings).map_err(Error::Usage)?;
    outcome.command = command_line();
    outcome.notes.extend(skipped.into_iter().map(|name| format!("{name} is no result of a test")));
    let files = Files::create(&args.results)?;
    args.results.publish(files, &outcome, &[])?;
    Ok(ExitCode::from(exit_status(&outcome, &[])))
}

/// Adds the results among the JSON files of a directory, and the names of the other JSON files.
fn read_folder(
    folder: &Path,
    results: &mut Vec<(String, Outcome)>,
    skipped: &mut Vec<String>,
) -> Result<(), Error> {
    let entries = std::fs::read_dir(folder).map_err(|error| Cannot::read(folder, &error))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| Cannot::read(folder, &error))?.path();
        if path.extension().is_some_and(|ending| ending == "json") && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    for path in paths {
        match read_outcome("", &path) {
            // Earlier trends are not results to follow.
            Ok(outcome) if !outcome.method.is_empty() && outcome.method != "trend" => {
                results.push((path.display().to_string(), outcome));
            }
            _ => skipped.push(path.display().to_string()),
        }
    }
    Ok(())
}
