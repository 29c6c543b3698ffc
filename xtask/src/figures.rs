//! Checks that documents quote figures that are in the measurements they cite.
//!
//! A paragraph or table row that links to `benches/runs/X.md` quotes figures from it: each number
//! of three digits or more must occur in that file. A row with "the same" cites the file of the row
//! above. Shorter numbers are too common to be compared. The version in `CITATION.cff` must be that
//! of the workspace.

use std::collections::HashSet;
use std::path::Path;

use regex::Regex;

use crate::tidy;

const RUNS: &str = "benches/runs/";

pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let mut wrong = vec![];
    let read =
        |path: &str| std::fs::read_to_string(root.join(path)).map_err(|e| format!("{path}: {e}"));
    let cited = read("CITATION.cff")?;
    let version = concat!("version: ", env!("CARGO_PKG_VERSION"));
    if !cited.lines().any(|line| line == version) {
        wrong.push(format!("CITATION.cff: expected `{version}`, as in Cargo.toml"));
    }
    for file in tidy::files(root)? {
        let is_page = file == "README.md" || (file.starts_with("docs/") && file.ends_with(".md"));
        if !is_page {
            continue;
        }
        for block in blocks(&read(&file)?) {
            let measured = read(&format!("{RUNS}{}", block.run))?;
            for figure in differing(&block.text, &measured) {
                wrong.push(format!(
                    "{file}:{}: {figure} is not in {RUNS}{}, which this text cites\n  take the \
                     figure from there, or cite the run that has it",
                    block.line, block.run
                ));
            }
        }
    }
    Ok(wrong)
}

/// A paragraph or a row that cites a run.
struct Block {
    line: usize,
    text: String,
    run: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let cited = Regex::new(&format!(r"\]\([./]*{RUNS}([\w.-]+\.md)\)")).expect("a constant");
    let mut found: Vec<Block> = vec![];
    let mut paragraph = (0, String::new());
    let mut above = None;
    for (number, line) in page.lines().chain([""]).enumerate() {
        let is_row = line.starts_with('|');
        if is_row {
            let run = cited.captures(line).map(|c| c[1].to_owned());
            above = run.or_else(|| above.take().filter(|_| line.contains("| the same |")));
            if let Some(run) = &above {
                found.push(Block { line: number + 1, text: line.into(), run: run.clone() });
            }
        } else if line.trim().is_empty() {
            let (line, text) = std::mem::take(&mut paragraph);
            if let Some(run) = cited.captures(&text).map(|c| c[1].to_owned()) {
                found.push(Block { line, text, run });
            }
            above = None;
        } else {
            if paragraph.1.is_empty() {
                paragraph.0 = number + 1;
            }
            paragraph.1 += line;
            paragraph.1 += "\n";
        }
    }
    found
}

/// The figures in `text` that do not occur in `measured`.
fn differing(text: &str, measured: &str) -> Vec<String> {
    // Ignore names of files and commands, dates and versions.
    let other =
        Regex::new(r"`[^`]*`|\]\([^)]*\)|\d{4}-\d\d-\d\d|\d+(\.\d+){2,}").expect("constant");
    let known: HashSet<u64> = numbers(measured).map(|(_, value)| value.to_bits()).collect();
    numbers(&other.replace_all(text, " "))
        .filter(|(figure, value)| {
            let digits = figure.chars().filter(char::is_ascii_digit).count();
            digits >= 3 && !known.contains(&value.to_bits())
        })
        .map(|(figure, _)| figure)
        .collect()
}

/// The numbers in `text`, as written and as values.
fn numbers(text: &str) -> impl Iterator<Item = (String, f64)> {
    let number = Regex::new(r"\d+(,\d{3})*(\.\d+)?").expect("a constant");
    let found: Vec<String> = number.find_iter(text).map(|m| m.as_str().to_owned()).collect();
    found.into_iter().filter_map(|figure| {
        let value = figure.replace(',', "").parse().ok()?;
        Some((figure, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_run_that_is_cited() {
        let page = "Without a run 999.\n\n| a | 512 kpps, 34.3 µs | [x](benches/runs/a-1.md) |\n| \
                    b | 6,667 | the same |\n| c | 777 | nothing |\n\nSee\n[y](../../benches/runs/\
                    b.md): 4,149 of `--n 12345`, 2026-11-22, 8.0.61, 70 MB.\n";
        let found = blocks(page);
        let cited: Vec<_> = found.iter().map(|b| (b.line, b.run.as_str())).collect();
        assert_eq!(cited, [(3, "a-1.md"), (4, "a-1.md"), (7, "b.md")]);
        assert_eq!(differing(&found[0].text, "512 (467..539) and 34.6"), ["34.3"]);
        assert!(differing(&found[1].text, "6667.0 us").is_empty());
        assert_eq!(differing(&found[2].text, "4149 1"), [""; 0]);
    }
}
