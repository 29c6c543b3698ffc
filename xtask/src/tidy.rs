//! Finds marks of unfinished work, machine-specific paths, and links to files that do not exist.

use std::path::Path;
use std::process::Command;

/// The words are split, so this file does not match itself.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "finish it, or write an issue"),
    (concat!("FIX", "ME"), "finish it, or write an issue"),
    (concat!("/wo", "rk/"), "a path of one machine"),
];

pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let mut wrong = vec![];
    let files = files(root)?;
    let untested: Vec<&str> = files
        .iter()
        .filter_map(|file| file.strip_suffix("Cargo.toml"))
        .filter(|folder| {
            std::fs::read_to_string(root.join(folder).join("Cargo.toml"))
                .is_ok_and(|text| text.lines().any(|line| line == "doctest = false"))
        })
        .collect();
    for file in &files {
        // Captures and fuzz seeds are not text.
        let Ok(text) = std::fs::read_to_string(root.join(file)) else { continue };
        if file.ends_with(".rs")
            && untested.iter().any(|folder| file.starts_with(&format!("{folder}src/")))
        {
            for line in doc_tests(&text) {
                wrong.push(format!(
                    "{file}:{line}: a doc test that does not run\n  remove `doctest = false` from the \
                     Cargo.toml of its crate"
                ));
            }
        }
        for (number, line) in text.lines().enumerate() {
            for (word, advice) in FORBIDDEN.iter().filter(|(word, _)| line.contains(word)) {
                wrong.push(format!("{file}:{}: `{word}`\n  {advice}", number + 1));
            }
            if file.ends_with(".md") {
                for link in links(line).filter(|link| leads_nowhere(root, file, link)) {
                    wrong
                        .push(format!("{file}:{}: the link ({link}) leads to no file", number + 1));
                }
            }
        }
    }
    Ok(wrong)
}

/// Every file that is or would be committed; none outside a git work tree, as in a source archive.
pub fn files(root: &Path) -> Result<Vec<String>, String> {
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

/// The lines where doc tests begin: code blocks in doc comments with no language, or with Rust.
fn doc_tests(text: &str) -> Vec<usize> {
    let mut open = false;
    let mut found = vec![];
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(doc) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            continue;
        };
        let Some(kind) = doc.trim().strip_prefix("```") else { continue };
        let is_rust =
            |word: &str| matches!(word, "" | "rust" | "no_run" | "should_panic" | "compile_fail");
        if !open && kind.split(',').all(is_rust) {
            found.push(number + 1);
        }
        open = !open;
    }
    found
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
    fn doc_tests_are_code_of_rust_in_doc_comments() {
        let text = "//! ```text\n//! a\n//! ```\n/// ```\n/// f();\n/// ```\n    /// \
                    ```rust,no_run\n    /// g();\n    /// ```\n// ```\nlet a = \"```\";\n";
        assert_eq!(doc_tests(text), [4, 7]);
    }

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
