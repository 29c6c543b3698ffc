//! `squall experiment`: experiments of papers, one command each.

use std::{fs, path::PathBuf, process::ExitCode};

use squall::Error;
use squall_compare::experiments::{self, EXPERIMENTS, Experiment, ExperimentSettings, Known};
use squall_report::render::human;
use squall_units::{Cannot, Nanos};

use crate::{
    args::command_line,
    compare::{WIDTH, own_path, progress},
    drive::Signals,
    output,
};

/// Repeat an experiment of a paper about traffic generators, and show its tables and figures
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall experiment --list
  squall experiment ntg --html ntg.html                    # short form, at most two minutes
  squall experiment ntg --full --html ntg.html --csv ntg   # in the paper's length
  squall experiment kute --html kute.html
  squall experiment ntg --tools squall,tcpreplay --duration 1s --json -

Everything runs in a private lab: a veth pair in a separate network namespace. Programs are watched \
                        from outside, by the interfaces' counters and /proc, and parts that this \
                        machine does not have are named. Ctrl-C ends the experiment and still reports \
                        the finished measurements.")]
pub struct Args {
    /// Run this experiment
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// List the experiments with their papers, and run nothing
    #[arg(long)]
    list: bool,
    /// Run the whole experiment, which may take hours, instead of its short form
    #[arg(long)]
    full: bool,
    /// Use these tools, separated by commas [default: all tools of the experiment]
    #[arg(long, value_name = "LIST")]
    tools: Option<String>,
    /// Measure for this time at each step [default: the experiment's own]
    #[arg(short, long, value_name = "TIME")]
    duration: Option<Nanos>,
    /// Write the result as JSON; - is standard output
    #[arg(long, value_name = "FILE|-", help_heading = "Result")]
    json: Option<String>,
    /// Write the result as one HTML file with plots
    #[arg(long, visible_alias = "report", value_name = "FILE.html", help_heading = "Result")]
    html: Option<PathBuf>,
    /// Write each table and figure as a CSV file into this folder
    #[arg(long, value_name = "FOLDER", help_heading = "Result")]
    csv: Option<PathBuf>,
    /// Show no progress and no tables
    #[arg(short, long, help_heading = "Result")]
    quiet: bool,
}

pub fn experiment(args: &Args) -> Result<ExitCode, Error> {
    let Some(name) = args.name.as_ref().filter(|_| !args.list) else {
        EXPERIMENTS.iter().for_each(list);
        return Ok(ExitCode::SUCCESS);
    };
    let known = experiments::find(name)?;
    let settings = ExperimentSettings {
        full: args.full,
        tools: args.tools.clone(),
        step: args.duration,
        squall: own_path()?,
        command: command_line(),
    };
    // Create files before the measurements: an invalid path must not cost an hour.
    let json = args.json.as_deref().filter(|name| *name != "-").map(output::create).transpose()?;
    let html =
        args.html.as_ref().map(|path| output::create(&path.to_string_lossy())).transpose()?;
    if let Some(folder) = &args.csv {
        fs::create_dir_all(folder)
            .map_err(|e| Error::Environment(Cannot::write(folder, &e).to_string()))?;
    }
    if !args.quiet && args.duration.is_none() {
        let takes_s = known.takes_s[usize::from(args.full)];
        eprintln!("{}: about {}", known.title, human::seconds(f64::from(takes_s)));
    }
    let signals = Signals::catch()?;
    let stop = || signals.came();
    let result = experiments::run(known, &settings, &mut progress(args.quiet), &stop)?;
    write(args, &result, json, html)
}

fn list(known: &Known) {
    let [short, full] = known.takes_s.map(|seconds| human::seconds(f64::from(seconds)));
    output::print(&format!(
        "{}\n  {}\n  {}\n  short form {short}, --full {full}\n",
        known.name, known.paper, known.about
    ));
}

fn write(
    args: &Args,
    result: &Experiment,
    json_file: Option<(String, fs::File)>,
    html_file: Option<(String, fs::File)>,
) -> Result<ExitCode, Error> {
    let json = result.to_json();
    let mut results = output::Results::default();
    results.write(json_file, || format!("{json}\n"));
    results.write(html_file, || experiments::html(result));
    if let Some(folder) = &args.csv {
        for (name, text) in experiments::csv(result) {
            let file = output::create(&folder.join(name).to_string_lossy())?;
            results.write(Some(file), || text);
        }
    }
    let to_stdout = args.json.as_deref() == Some("-") || results.are_lost();
    if to_stdout {
        output::print_data(&format!("{json}\n"));
    }
    if !args.quiet && !to_stdout {
        let (width, color) = output::look(false, WIDTH);
        output::print(&format!("\n{}\n", experiments::summary(result, width, color).trim_end()));
    }
    results.end()?;
    Ok(ExitCode::SUCCESS)
}
