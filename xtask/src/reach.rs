//! Measures how many files a change of each common kind touches. The patches in xtask/reach are
//! sample changes, each with a maximum number of files changed by hand.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::{generate, tidy};

const FOLDER: &str = "xtask/reach";

struct Sample {
    name: &'static str,
    /// Maximum number of files that the change may touch, not counting those that `cargo xtask
    /// generate` writes.
    budget: usize,
}

const SAMPLES: &[Sample] = &[
    Sample { name: "figure", budget: 4 },
    Sample { name: "header", budget: 3 },
    Sample { name: "instruction", budget: 8 },
    Sample { name: "key", budget: 6 },
    Sample { name: "method", budget: 3 },
    Sample { name: "option", budget: 3 },
];

/// Counts the files that each sample touches, and checks that it still applies.
pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let mut wrong = unknown(root)?;
    for sample in SAMPLES {
        let patch = patch(root, sample.name);
        let files = match touched(root, &patch) {
            Ok(files) => files,
            Err(why) => {
                wrong.push(stale(sample.name, &why));
                continue;
            }
        };
        println!("{:12} {} of {} files by hand", sample.name, files.len(), sample.budget);
        wrong.extend(over(sample, &files));
        let applied = git_apply(root, &["--check", "-C1"], &patch)?;
        if !applied.status.success() {
            wrong.push(stale(sample.name, &text_of(&applied)));
        }
    }
    Ok(wrong)
}

fn over(sample: &Sample, files: &[String]) -> Option<String> {
    (files.len() > sample.budget).then(|| {
        format!(
            "{FOLDER}/{}.patch: changes {} files by hand, at most {} are allowed: {}\n  let one place \
             define what these repeat, or generate the others from it",
            sample.name,
            files.len(),
            sample.budget,
            files.join(", ")
        )
    })
}

fn stale(name: &str, why: &str) -> String {
    format!(
        "{FOLDER}/{name}.patch does not apply to this tree:\n  {}\n  make the same change again (git \
         apply --reject {FOLDER}/{name}.patch makes what still fits of it), replace the patch by git \
         diff -U2, with the first lines of the old one, and undo the change; cargo xtask reach \
         --build then tries it",
        why.trim().replace('\n', "\n  ")
    )
}

/// Patches without a budget. They are reported, because they would not be checked otherwise.
fn unknown(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join(FOLDER);
    let entries = fs::read_dir(&folder).map_err(|e| format!("{FOLDER}: {e}"))?;
    let mut wrong = vec![];
    for entry in entries {
        let path = entry.map_err(|e| format!("{FOLDER}: {e}"))?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !SAMPLES.iter().any(|sample| sample.name == stem) {
            wrong.push(format!(
                "{FOLDER}/{stem}: no budget\n  expected a line of SAMPLES in xtask/src/reach.rs"
            ));
        }
    }
    Ok(wrong)
}

fn patch(root: &Path, name: &str) -> PathBuf {
    root.join(FOLDER).join(format!("{name}.patch"))
}

/// The files that a patch changes by hand.
fn touched(root: &Path, patch: &Path) -> Result<Vec<String>, String> {
    let output = git_apply(root, &["--numstat"], patch)?;
    if !output.status.success() {
        return Err(text_of(&output));
    }
    Ok(by_hand(&String::from_utf8_lossy(&output.stdout)))
}

fn by_hand(numstat: &str) -> Vec<String> {
    numstat
        .lines()
        .filter_map(|line| line.split('\t').nth(2))
        .filter(|file| !generate::writes(file))
        .map(String::from)
        .collect()
}

fn git_apply(folder: &Path, options: &[&str], patch: &Path) -> Result<Output, String> {
    let mut git = Command::new("git");
    git.arg("apply").args(options).arg(patch).current_dir(folder);
    // Inside a repository that contains `folder`, git apply would resolve paths from its root and
    // skip them all.
    if !folder.join(".git").exists() {
        git.env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder));
    }
    git.output().map_err(|e| format!("git does not start: {e}"))
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A profile to try if a patch has no sample profile of its own (in lines that begin with `| `).
const PROFILE: &str = "\
ports.A = \"loop:reach\"
duration = \"100 ms\"
run.clock = \"virtual\"

[[stream]]
name = \"A\"
packet = \"eth/ipv4/udp\"
rate = \"1 kpps\"
";

/// Applies each sample to a copy of the tree, runs the generators and the build, and tries the
/// sample profile.
pub fn build(root: &Path) -> Result<Vec<String>, String> {
    let work = root.join("target/reach");
    let tree = work.join("tree");
    let files = tidy::files(root)?;
    let mut wrong = vec![];
    for sample in SAMPLES {
        // Work on a copy: the repository may have uncommitted changes. It is always in the same
        // directory, which preserves the compiler's results.
        copy(root, &tree, &files)?;
        let patch = patch(root, sample.name);
        let applied = git_apply(&tree, &["-C1"], &patch)?;
        if !applied.status.success() {
            wrong.push(stale(sample.name, &text_of(&applied)));
            continue;
        }
        let created = touched(&tree, &patch)?;
        match tried(&tree, &work, &patch) {
            Ok(()) => println!("{:12} built and tried", sample.name),
            Err(why) => wrong.push(format!("{FOLDER}/{}.patch: {why}", sample.name)),
        }
        for file in created.iter().filter(|file| !files.contains(file)) {
            let _ = fs::remove_file(tree.join(file));
        }
    }
    Ok(wrong)
}

fn tried(tree: &Path, work: &Path, patch: &Path) -> Result<(), String> {
    let built = work.join("build");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut cargo = Command::new(cargo);
    cargo.args(["build", "--quiet", "--workspace", "--bin", "xtask", "--bin", "squall"]);
    done(cargo.current_dir(tree).env("CARGO_TARGET_DIR", &built))?;
    let bin = built.join("debug");
    done(Command::new(bin.join("xtask")).arg("generate"))?;

    let text = fs::read_to_string(patch).map_err(|e| format!("{}: {e}", patch.display()))?;
    let line = |key: &str| head(&text).find_map(|line| line.strip_prefix(key)).map(str::trim);
    let (Some(command), Some(expected)) = (line("Try:"), line("Expect:")) else {
        return Err("expected a line Try: and a line Expect: before the first diff".into());
    };
    let profile = work.join("profile.toml");
    let own: Vec<&str> = head(&text).filter_map(|line| line.strip_prefix("| ")).collect();
    let content = if own.is_empty() { PROFILE.to_owned() } else { own.join("\n") };
    fs::write(&profile, content).map_err(|e| format!("{}: {e}", profile.display()))?;
    let profile = profile.to_string_lossy();
    let words = command.split(' ').map(|word| if word == "PROFILE" { &profile } else { word });
    let output = done(Command::new(bin.join("squall")).args(words).current_dir(work))?;
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.contains(expected) {
        true => Ok(()),
        false => Err(format!("squall {command}: expected {expected:?} in:\n{output}")),
    }
}

/// The lines of a patch before its first diff.
fn head(patch: &str) -> impl Iterator<Item = &str> {
    patch.lines().take_while(|line| !line.starts_with("diff --git"))
}

fn done(command: &mut Command) -> Result<Output, String> {
    let output = command.output().map_err(|e| format!("{command:?} does not start: {e}"))?;
    match output.status.success() {
        true => Ok(output),
        false => Err(format!("{command:?} failed:\n{}", text_of(&output))),
    }
}

/// Copies files, except equal ones: cargo compares modification times, and would rebuild their
/// crates.
fn copy(from: &Path, to: &Path, files: &[String]) -> Result<(), String> {
    for file in files {
        let (from, to) = (from.join(file), to.join(file));
        // A deletion that is not committed yet.
        let Ok(content) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|there| there == content) {
            continue;
        }
        let folder = to.parent().expect("every file is in a folder");
        fs::create_dir_all(folder)
            .and_then(|()| fs::copy(&from, &to).map(drop))
            .map_err(|e| format!("{}: {e}", to.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "\
A sample.

Try: run PROFILE

diff --git a/one.rs b/one.rs
--- a/one.rs
+++ b/one.rs
@@ -1,2 +1,3 @@
 fn one() {}
+fn more() {}
 fn two() {}
";

    fn folder(name: &str, one: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("reach-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("one.rs"), one).unwrap();
        fs::write(folder.join("it.patch"), PATCH).unwrap();
        folder
    }

    #[test]
    fn generated_files_are_not_counted() {
        let numstat = "3\t0\tcrates/squall-wire/src/plain.rs\n40\t2\tschemas/openapi.json\n";
        assert_eq!(by_hand(numstat), ["crates/squall-wire/src/plain.rs"]);
    }

    #[test]
    fn more_files_than_the_budget_are_named() {
        let sample = Sample { name: "key", budget: 1 };
        let two = ["a.rs".to_owned(), "b.rs".to_owned()];
        assert_eq!(over(&sample, &two[..1]), None);
        let line = over(&sample, &two).unwrap();
        assert!(line.contains("changes 2 files by hand, at most 1") && line.contains("a.rs, b.rs"));
    }

    #[test]
    fn a_patch_whose_place_is_gone_says_how_to_renew_it() {
        let there = folder("there", "fn one() {}\nfn two() {}\n");
        let patch = there.join("it.patch");
        assert_eq!(touched(&there, &patch).unwrap(), ["one.rs"]);
        assert!(git_apply(&there, &["--check", "-C1"], &patch).unwrap().status.success());

        let gone = folder("gone", "fn three() {}\n");
        let output = git_apply(&gone, &["--check", "-C1"], &gone.join("it.patch")).unwrap();
        assert!(!output.status.success());
        let line = stale("it", &text_of(&output));
        assert!(line.contains("one.rs") && line.contains("git diff -U2"), "{line}");
        for folder in [there, gone] {
            fs::remove_dir_all(folder).unwrap();
        }
    }

    #[test]
    fn the_head_of_a_patch_is_what_stands_before_the_first_diff() {
        assert_eq!(head(PATCH).collect::<Vec<_>>(), ["A sample.", "", "Try: run PROFILE", ""]);
    }
}
