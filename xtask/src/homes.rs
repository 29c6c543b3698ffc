//! Finds duplicate definitions of helpers that once had several copies. Only one file may define
//! each of them.
//!
//! A definition is recognized by its text: `fn NAME(` without `self`, or a constant that only this
//! helper needs.

use std::path::{Path, PathBuf};

struct Home {
    /// The helper's name in messages.
    what: &'static str,
    sign: Sign,
    file: &'static str,
    /// The import to use in other files.
    try_this: &'static str,
    /// Files that use the same constant for a different purpose.
    also: &'static [&'static str],
}

enum Sign {
    /// A function with this name.
    Function(&'static str),
    /// A number with these lowercase hexadecimal digits.
    Number(&'static str),
}

const fn function(name: &'static str, file: &'static str, try_this: &'static str) -> Home {
    Home { what: name, sign: Sign::Function(name), file, try_this, also: &[] }
}

const OCTETS: &str = "crates/squall-units/src/octets.rs";
const NUMBER: &str = "crates/squall-units/src/number.rs";
const RANDOM: &str = "crates/squall-units/src/random.rs";
const SUGGEST: &str = "crates/squall-units/src/suggest.rs";

const HOMES: &[Home] = &[
    function("be16", OCTETS, "use squall_units::be16"),
    function("be32", OCTETS, "use squall_units::be32"),
    function("get_be16", OCTETS, "use squall_units::get_be16"),
    function("get_be32", OCTETS, "use squall_units::get_be32"),
    function("gcd", NUMBER, "use squall_units::gcd"),
    function("lcm", NUMBER, "use squall_units::lcm"),
    function("median", NUMBER, "use squall_units::median"),
    function("median_high", NUMBER, "use squall_units::median_high"),
    function("remaining_sd", NUMBER, "use squall_units::remaining_sd"),
    function("edit_distance", SUGGEST, "use squall_units::edit_distance"),
    function("levenshtein", SUGGEST, "use squall_units::edit_distance"),
    function("suggest", SUGGEST, "use squall_units::suggest"),
    Home {
        what: "SplitMix64",
        sign: Sign::Number("bf58476d1ce4e5b9"),
        file: RANDOM,
        try_this: "use squall_units::mix or squall_units::SplitMix64",
        // The same computation, in BPF instructions.
        also: &["crates/squall-program/src/kernel/frame.rs"],
    },
];

pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let mut files = vec![];
    for folder in ["crates", "benches", "xtask"] {
        rust_files(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut wrong = vec![];
    for path in files {
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let file = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        wrong.extend(again(&file, &text));
    }
    Ok(wrong)
}

/// A message for each helper that `file` defines although it belongs in another file.
fn again(file: &str, text: &str) -> Vec<String> {
    // Skip this file, which contains the list.
    let homes = HOMES.iter().filter(|home| {
        home.file != file && !home.also.contains(&file) && file != "xtask/src/homes.rs"
    });
    let mut wrong = vec![];
    for home in homes {
        for (number, _) in text.lines().enumerate().filter(|(_, line)| home.sign.is_in(line)) {
            wrong.push(format!(
                "{file}:{}: {} is defined again\n  its home is {}: {}, or give another thing \
                 another name",
                number + 1,
                home.what,
                home.file,
                home.try_this
            ));
        }
    }
    wrong
}

impl Sign {
    fn is_in(&self, line: &str) -> bool {
        match self {
            Self::Function(name) => {
                let Some((before, after)) = line.split_once("fn ") else { return false };
                let begins = before.split_whitespace().all(|word| {
                    word.starts_with("pub") || ["const", "async", "unsafe"].contains(&word)
                });
                let Some(rest) = after.strip_prefix(name) else { return false };
                let takes = rest.trim_start_matches(['(', '&']);
                let takes = takes.strip_prefix("mut ").unwrap_or(takes);
                begins && rest.starts_with(['(', '<']) && !takes.starts_with("self")
            }
            Self::Number(digits) => line.replace('_', "").to_lowercase().contains(digits),
        }
    }
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    for entry in std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let path = entry.map_err(|e| format!("{}: {e}", folder.display()))?.path();
        if path.is_dir() {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_definition_is_named_with_the_home_of_the_first() {
        let text = "//! Rates.\n\nfn gcd(a: u64, b: u64) -> u64 {\n";
        let wrong = again("crates/squall-plan/src/rate.rs", text);
        let [line] = &wrong[..] else { panic!("{wrong:?}") };
        assert!(
            line.starts_with("crates/squall-plan/src/rate.rs:3: gcd is defined again"),
            "{line}"
        );
        assert!(
            line.contains("crates/squall-units/src/number.rs: use squall_units::gcd"),
            "{line}"
        );
        assert!(again("crates/squall-units/src/number.rs", text).is_empty());
    }

    #[test]
    fn a_generator_is_known_by_its_constant() {
        let text = "z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);\n";
        assert_eq!(again("crates/squall-port/src/fault.rs", text).len(), 1);
        assert!(again("crates/squall-program/src/kernel/frame.rs", text).is_empty());
        assert!(again("crates/squall-units/src/random.rs", text).is_empty());
    }

    #[test]
    fn methods_calls_and_other_names_are_no_definitions() {
        for line in [
            "    fn median(&self) -> Option<f64> {",
            "    pub fn be16(self, number: u16) -> Self {",
            "let half = median(values);",
            "fn median_of(values: &[f64]) -> f64 {",
            "/// As fn gcd(a, b) does.",
        ] {
            assert_eq!(again("crates/squall-attacks/src/a.rs", line), [""; 0], "{line}");
        }
        for line in
            ["pub(crate) fn median(v: &[f64])", "    const fn be16(o: &[u8])", "fn gcd<T>(a: T)"]
        {
            assert_eq!(again("crates/squall-attacks/src/a.rs", line).len(), 1, "{line}");
        }
    }
}
