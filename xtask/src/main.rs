//! Checks and code generators for this repository: `cargo xtask TASK`.
//!
//! Each check returns its errors as lines of text. Only `generate` and `words --bless` change
//! files.

#![forbid(unsafe_code)]

mod commits;
mod dependencies;
mod figures;
mod generate;
mod homes;
mod layers;
mod python;
mod reach;
mod tidy;
mod types;
mod typescript;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  layers               who may depend on whom, which crates may hold unsafe code, and helpers that are
                       defined in one place only
  dependencies         licences, sources and versions as deny.toml allows them; none that no code \
                     uses
  tidy                 no unfinished marks, no paths of one machine, no dead links, no figure other
                       than that of the measurement that the text cites
  words                words in comments, names and documents against docs/style-words.md: counts
                       that may only fall (xtask/words.toml)
  words --bless        lower the counts to those found
  words --list [CRATE or FOLDER]...
                       print each finding
  words --why [CRATE or FOLDER]...
                       print how many comments give a reason
  words --blocks N [--seed S] [--why] [CRATE or FOLDER]...
                       print N comments drawn at random; with --why, of those that give a reason
  commits              subjects of at most 72 characters, and a body for large changes
  generate             write the schemas, types and references that the code defines
  generate --check     whether they are what the code says
  reach                how many files sample changes touch (xtask/reach), and whether they apply
  reach --build        whether they build, and do what they say
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = root();
    let found = match args[..] {
        ["layers"] => layers::check(&root).and_then(|mut wrong| {
            wrong.extend(homes::check(&root)?);
            Ok(wrong)
        }),
        ["commits"] => commits::check(&root),
        ["dependencies"] => dependencies::check(&root),
        ["generate"] => generate::write(&root),
        ["generate", "--check"] => generate::check(&root),
        ["reach"] => reach::check(&root),
        ["reach", "--build"] => reach::build(&root),
        ["tidy"] => tidy::check(&root).and_then(|mut wrong| {
            wrong.extend(figures::check(&root)?);
            Ok(wrong)
        }),
        ["words"] => words::check(&root),
        ["words", "--bless"] => words::bless(&root),
        ["words", "--list", ref areas @ ..] => words::print_findings(&root, areas),
        ["words", "--why", ref areas @ ..] => words::print_reasons(&root, areas),
        ["words", "--blocks", ref options @ ..] => words::print_blocks(&root, options),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("cargo xtask {}: no such task\n{USAGE}", args.join(" "));
            return ExitCode::from(2);
        }
    };
    match found {
        Ok(wrong) if wrong.is_empty() => {
            println!("xtask {}: ok", args.join(" "));
            ExitCode::SUCCESS
        }
        Ok(wrong) => {
            for line in &wrong {
                eprintln!("{line}\n");
            }
            eprintln!("xtask {}: {} found", args.join(" "), wrong.len());
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("xtask {}: {why}", args.join(" "));
            ExitCode::from(3)
        }
    }
}

/// The root directory of the repository, whatever directory `cargo xtask` is run in.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the repository")
        .to_path_buf()
}
