//! Writes the files that are generated from definitions in Rust, or checks that they are current.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::{python, typescript};

type Make = fn() -> String;

/// Each generated file, with the function that makes it.
const FILES: &[(&str, Make)] = &[
    ("schemas/profile.schema.json", profile_schema),
    ("schemas/report.schema.json", squall::report::schema),
    ("schemas/comparison.schema.json", squall_compare::schema),
    ("schemas/generators.schema.json", squall_compare::generators::schema),
    ("schemas/experiment.schema.json", squall_compare::experiments::schema),
    ("schemas/test.schema.json", squall_method::schema),
    ("schemas/info.schema.json", squall_offline::info::schema),
    ("schemas/edit.schema.json", squall_offline::edit::schema),
    ("schemas/openapi.json", squall_server::openapi),
    ("python/squall/_generated.py", python::figures),
    ("python/squall/_options.py", python::options),
    ("python/squall/_tables.py", python::tables),
    ("ui/src/lib/generated.ts", typescript::answers),
    ("docs/reference/packets.md", squall_wire::reference),
    ("docs/reference/cli.md", squall_cli::reference),
    ("docs/reference/ports.md", squall_machine::kinds::reference),
    ("docs/reference/otg.md", squall_otg::reference),
    ("fuzz/dict/otg", otg_words),
    ("fuzz/dict/packet_syntax", packet_words),
    ("fuzz/dict/profile", profile_words),
    ("fuzz/dict/program", program_words),
];

fn profile_schema() -> String {
    format!("{:#}\n", squall_profile::schema())
}

/// A libFuzzer dictionary of names that a fuzzer would take long to guess.
fn packet_words() -> String {
    let headers = squall_wire::headers().iter().chain(squall_wire::payloads());
    let names = headers.flat_map(|header| {
        std::iter::once(header.name).chain(header.fields.iter().map(|f| f.name))
    });
    dictionary(names.map(String::from).collect())
}

/// The names of keys, in the form of JSON object members.
fn otg_words() -> String {
    let reference = squall_otg::reference();
    let words = reference
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.contains('_'));
    words.collect::<BTreeSet<_>>().iter().map(|word| format!("\"\\\"{word}\\\"\"\n")).collect()
}

fn profile_words() -> String {
    let mut words = BTreeSet::new();
    collect_words(&squall_profile::schema(), &mut words);
    dictionary(words)
}

/// The vocabulary of programs: instructions, the words in their examples, marks in messages, and
/// HTTP lines.
fn program_words() -> String {
    let mut words: BTreeSet<String> = squall_apps::Instruction::WORDS
        .iter()
        .flat_map(|(word, examples)| examples.split(' ').chain([*word]))
        .filter(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
        .map(|word| format!("{word} "))
        .collect();
    let marks = ["${", "}", "${random:hex:", "${counter:", "${variable:", "${repeat:", "${value:"];
    words.extend(marks.map(String::from));
    words.extend(["HTTP/1.1 ", "Content-Length: "].map(String::from));
    dictionary(words) + HTTP_LINES
}

const HTTP_LINES: &str = r#""Transfer-Encoding: chunked\x0d\x0a"
"Connection: close\x0d\x0a"
"\x0d\x0a\x0d\x0a"
"#;

fn collect_words(schema: &Value, words: &mut BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            for (key, value) in members {
                match (key.as_str(), value) {
                    ("properties", Value::Object(properties)) => {
                        words.extend(properties.keys().cloned())
                    }
                    ("enum", Value::Array(values)) => {
                        words.extend(values.iter().filter_map(Value::as_str).map(String::from))
                    }
                    ("const", Value::String(value)) => _ = words.insert(value.clone()),
                    _ => {}
                }
                collect_words(value, words);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect_words(value, words)),
        _ => {}
    }
}

fn dictionary(words: BTreeSet<String>) -> String {
    let plain = words
        .iter()
        .filter(|word| word.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'"' && b != b'\\'));
    plain.map(|word| format!("\"{word}\"\n")).collect()
}

/// Whether `file` is written by `cargo xtask generate`, or by a test with BLESS=1.
pub fn writes(file: &str) -> bool {
    file == "docs/rfc/tcp.md" || FILES.iter().any(|(written, _)| *written == file)
}

pub fn write(root: &Path) -> Result<Vec<String>, String> {
    for (file, make) in FILES {
        let path = root.join(file);
        let text = make();
        if current(&path).is_some_and(|found| found == text) {
            continue;
        }
        let folder = path.parent().expect("every file is in a folder");
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|e| format!("{}: {e}", path.display()))?;
        println!("wrote {file}");
    }
    Ok(vec![])
}

pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let stale = |(file, make): &(&str, Make)| {
        let found = current(&root.join(file));
        let line = match (found, make()) {
            (None, _) => return Some(format!("{file}: not there\n  run: cargo xtask generate")),
            (Some(found), made) => first_difference(&found, &made)?,
        };
        Some(format!(
            "{file}:{line}: not what the code says\n  run: cargo xtask generate, and read the \
             difference"
        ))
    };
    Ok(FILES.iter().filter_map(stale).collect())
}

fn current(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The first line (1-based) in which two texts differ; `None` if they are equal.
fn first_difference(a: &str, b: &str) -> Option<usize> {
    let same = a.split('\n').zip(b.split('\n')).take_while(|(a, b)| a == b).count();
    (a != b).then_some(same + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_part_at_the_first_line_that_differs() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(2));
        assert_eq!(first_difference("a\n", "a\nb\n"), Some(2));
        assert_eq!(first_difference("a\nb", "a\nb\n"), Some(3));
    }
}
