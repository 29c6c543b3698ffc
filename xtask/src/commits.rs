//! Checks the messages of commits after a fixed one: subjects are short, and large changes have a
//! body.

use std::{path::Path, process::Command};

use crate::generate;

/// Commits up to this one are not checked.
const BASE: &str = "23792065";
/// Maximum length of a subject: `git log --oneline` then fits in 80 columns.
const SUBJECT: usize = 72;
/// Maximum number of changed lines, without generated files, up to which a commit needs no body.
const LINES: usize = 100;

#[derive(Debug, Default, PartialEq)]
struct Commit {
    id: String,
    subject: String,
    has_body: bool,
    /// Number of lines added and deleted.
    lines: usize,
}

pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let Some(log) = log(root)? else {
        println!(
            "SKIPPED: commits since {BASE} are not checked, as this tree has no history back to it \
             (not in this project)"
        );
        return Ok(vec![]);
    };
    Ok(read(&log).iter().filter_map(wrong).collect())
}

/// The log of the commits to check. `None`: this is a source archive, or a shallow clone.
fn log(root: &Path) -> Result<Option<String>, String> {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(root).output();
        output.map_err(|e| format!("git does not start: {e}"))
    };
    if !git(&["merge-base", "--is-ancestor", BASE, "HEAD"])?.status.success() {
        return Ok(None);
    }
    let range = format!("{BASE}..HEAD");
    // Only the first line of each body, which shows whether there is a body.
    let output =
        git(&["log", "--no-merges", "--numstat", "--format=%x00%h%x00%s%x00%b%x00", &range])?;
    if !output.status.success() {
        return Err(format!("git log failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
}

fn read(log: &str) -> Vec<Commit> {
    let parts: Vec<&str> = log.split('\0').skip(1).collect();
    let (commits, _) = parts.as_chunks::<4>();
    commits
        .iter()
        .map(|[id, subject, body, numstat]| Commit {
            id: (*id).into(),
            subject: (*subject).into(),
            has_body: !body.trim().is_empty(),
            lines: numstat.lines().map(by_hand).sum(),
        })
        .collect()
}

/// Number of lines that a line of `--numstat` adds and deletes; 0 for generated files, and for
/// binary files, which are marked with `-`.
fn by_hand(line: &str) -> usize {
    let mut parts = line.split('\t');
    let mut count = || parts.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    let lines: usize = count() + count();
    if parts.next().is_some_and(generate::writes) { 0 } else { lines }
}

fn wrong(commit: &Commit) -> Option<String> {
    let Commit { id, subject, .. } = commit;
    let length = subject.chars().count();
    if length > SUBJECT {
        return Some(format!(
            "commit {id}: a subject of {length} characters: {subject:?}\n  expected at most {SUBJECT}; \
             reasons go into the body (git commit --amend, or git rebase -i)"
        ));
    }
    (commit.lines > LINES && !commit.has_body).then(|| {
        format!(
            "commit {id}: {} lines and no body: {subject:?}\n  expected why it is so, below an empty \
             line (git commit --amend, or git rebase -i)",
            commit.lines
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_read_with_their_lines_by_hand() {
        let log = "\0aa\0One\0\0\n\n3\t4\txtask/src/main.rs\n90\t90\tschemas/openapi.json\n-\t-\ta.png\n\
                   \0bb\0Two\0Why.\n\0\n200\t0\ta.rs\n";
        let commit = |id: &str, subject: &str, has_body, lines| Commit {
            id: id.into(),
            subject: subject.into(),
            has_body,
            lines,
        };
        assert_eq!(read(log), [commit("aa", "One", false, 7), commit("bb", "Two", true, 200)]);
    }

    #[test]
    fn long_subjects_and_large_changes_without_a_body_are_named() {
        let commit = |subject: &str, has_body, lines| Commit {
            id: "aa".into(),
            subject: subject.into(),
            has_body,
            lines,
        };
        assert_eq!(wrong(&commit(&"a".repeat(72), false, 100)), None);
        assert_eq!(wrong(&commit("a", true, 101)), None);
        assert!(wrong(&commit(&"a".repeat(73), true, 1)).unwrap().contains("73 characters"));
        assert!(wrong(&commit("a", false, 101)).unwrap().contains("101 lines and no body"));
    }
}
