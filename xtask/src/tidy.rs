//! What must not be in a file of the repository: unfinished marks, paths of one machine, links that
//! lead nowhere.

use std::path::Path;
use std::process::Command;

use crate::words::Words;

/// Split, so that this file does not find itself.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "finish it, or write an issue"),
    (concat!("FIX", "ME"), "finish it, or write an issue"),
    (concat!("/wo", "rk/"), "a path of one machine"),
];

pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let (mut wrong, words) = (vec![], Words::read(root)?);
    for file in files(root)? {
        // What is no text holds no words: captures, fuzz seeds.
        let Ok(text) = std::fs::read_to_string(root.join(&file)) else { continue };
        if Words::covers(&file) {
            for (line, phrase) in words.find(&text) {
                wrong.push(format!("{file}:{line}: \"{phrase}\"\n  see docs/style-words.md"));
            }
        }
        for (number, line) in text.lines().enumerate() {
            for (word, advice) in FORBIDDEN.iter().filter(|(word, _)| line.contains(word)) {
                wrong.push(format!("{file}:{}: `{word}`\n  {advice}", number + 1));
            }
            if file.ends_with(".md") {
                for link in links(line).filter(|link| leads_nowhere(root, &file, link)) {
                    wrong
                        .push(format!("{file}:{}: the link ({link}) leads to no file", number + 1));
                }
            }
        }
    }
    Ok(wrong)
}

/// Every file that is or would be committed; none where this is no git work tree (a source
/// archive).
fn files(root: &Path) -> Result<Vec<String>, String> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("git does not start: {e}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .split('\0')
        .filter(|f| !f.is_empty())
        .map(String::from)
        .collect())
}

/// The targets of the Markdown links in `line`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

fn leads_nowhere(root: &Path, file: &str, link: &str) -> bool {
    let path = link.split(['#', ' ']).next().unwrap_or("");
    let elsewhere = path.is_empty() || path.contains("://") || path.starts_with("mailto:");
    !elsewhere && !root.join(file).parent().is_some_and(|folder| folder.join(path).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_and_followed() {
        let line = "see [a](xtask/src/tidy.rs#top), [b](https://example.org) and [c](no/such.md)";
        assert_eq!(
            links(line).collect::<Vec<_>>(),
            ["xtask/src/tidy.rs#top", "https://example.org", "no/such.md"]
        );
        let root = crate::root();
        let dead: Vec<_> =
            links(line).filter(|link| leads_nowhere(&root, "README.md", link)).collect();
        assert_eq!(dead, ["no/such.md"]);
    }
}
