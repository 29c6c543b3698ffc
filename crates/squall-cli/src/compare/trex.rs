//! `squall compare trex`: compares the packets that TRex and Squall send for TRex profiles.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde_json::json;
use squall::Error;
use squall_trex::{CompareSetting, Comparison};
use squall_units::Cannot;

use crate::{args::TrexLoading, output};

/// Compare what TRex would send of its profiles with what Squall sends
///
/// The streams of each profile are stepped packet by packet as TRex's data plane does, and compared
/// with the packets that Squall writes into a file: octets, order, and times within 5 us. Templates
/// of flows are listed with the settings that are taken, ignored or differ.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall compare trex stl/imix.py --trex-lib FOLDER
  squall compare trex profile.py -t size=128 --packets 10000
  squall compare trex stl/*.py --trex-lib FOLDER --goldens captures --json compare.json
  squall compare trex astf/http_simple.py --trex-lib FOLDER --golden http.pcap

Exit status: 0 if all is the same, 1 if something differs, 2 if a profile cannot be loaded.")]
pub struct Args {
    /// Profiles of TRex: programs in Python, or streams in YAML or JSON
    #[arg(value_name = "PROFILE", required = true)]
    profiles: Vec<PathBuf>,
    /// Compare the first N packets of each port
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    packets: u32,
    /// Load the profile for N ports; ports with odd numbers send the other direction
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    ports: u32,
    /// Compare with this capture of TRex, too
    #[arg(long, value_name = "FILE", conflicts_with = "goldens")]
    golden: Option<PathBuf>,
    /// Compare with the captures of TRex in DIR and its folders: NAME.pcap or PREFIX-NAME.pcap of
    /// the profile NAME.py
    #[arg(long, value_name = "DIR")]
    goldens: Option<PathBuf>,
    #[command(flatten)]
    loading: TrexLoading,
    /// Write the result as JSON; - is standard output
    #[arg(long, value_name = "FILE|-", help_heading = "Result")]
    json: Option<String>,
    /// Print only profiles that differ
    #[arg(short, long, help_heading = "Result")]
    quiet: bool,
}

pub fn compare(args: &Args) -> Result<ExitCode, Error> {
    if args.golden.is_some() && args.profiles.len() > 1 {
        return Err(Error::Usage(
            "--golden is of one profile\n  try --goldens DIR for several profiles".into(),
        ));
    }
    let mut found: Vec<Comparison> = Vec::new();
    let mut failed: Vec<(String, String)> = Vec::new();
    let to_stdout = args.json.as_deref() == Some("-");
    for profile in &args.profiles {
        match args.one(profile) {
            Ok(comparison) => {
                if !to_stdout && (comparison.differs() || !args.quiet) {
                    output::print(&comparison.text());
                }
                found.push(comparison);
            }
            Err(Error::Usage(text)) => {
                eprintln!("error: {text}");
                failed.push((profile.display().to_string(), text));
            }
            Err(other) => return Err(other),
        }
    }
    let differ = found.iter().filter(|one| one.differs()).count();
    if let Some(name) = &args.json {
        let failed: Vec<_> = failed
            .iter()
            .map(|(profile, error)| json!({ "profile": profile, "error": error }))
            .collect();
        let value = json!({
            "schema": "squall-compare-trex/1", "profiles": found, "differ": differ, "failed": failed,
        });
        output::write_to(name, &format!("{value:#}\n"))?;
    }
    if !to_stdout {
        let same = found.len() - differ;
        let count = failed.len();
        output::print(&format!("{same} the same, {differ} differ, {count} not loaded\n"));
    }
    Ok(match (failed.is_empty(), differ) {
        (false, _) => ExitCode::from(2),
        (true, 0) => ExitCode::SUCCESS,
        (true, _) => ExitCode::from(1),
    })
}

impl Args {
    fn one(&self, profile: &Path) -> Result<Comparison, Error> {
        let golden = match (&self.golden, &self.goldens) {
            (Some(golden), _) => Some(golden.clone()),
            (None, Some(folder)) => golden_of(folder, profile)?,
            (None, None) => None,
        };
        let setting = CompareSetting { packets: self.packets as usize, golden: golden.as_deref() };
        let ports = vec![String::new(); self.ports as usize];
        self.loading.of(profile, &ports, |file| file.compare(&setting))
    }
}

/// Finds the capture for a profile in a directory or its subdirectories.
fn golden_of(folder: &Path, profile: &Path) -> Result<Option<PathBuf>, Error> {
    let stem = profile.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let is = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(name) = name.strip_suffix(".pcap").or_else(|| name.strip_suffix(".pcapng")) else {
            return false;
        };
        name == stem || name.rsplit_once('-').is_some_and(|(_, last)| last == stem)
    };
    let list = |folder: &Path| -> Result<Vec<PathBuf>, Error> {
        let entries = std::fs::read_dir(folder).map_err(|error| Cannot::read(folder, &error))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        Ok(paths)
    };
    let mut paths = list(folder)?;
    for inner in paths.clone().iter().filter(|path| path.is_dir()) {
        paths.extend(list(inner)?);
    }
    Ok(paths.into_iter().find(|path| path.is_file() && is(path)))
}
