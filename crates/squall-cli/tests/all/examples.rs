//! Runs the commands in the help and the guides as if pasted.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use clap::error::ErrorKind;

/// A command and its location.
struct Example {
    place: String,
    words: Vec<String>,
}

/// The words of each `squall` command in `line`, split like in a shell.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut words: Vec<Option<String>> = Vec::new();
    let (mut word, mut quote, mut escaped) = (None::<String>, None, false);
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            _ if escaped => {
                word.get_or_insert_default().push(c);
                escaped = false;
            }
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '\\') => escaped = true,
            (None, '#') if word.is_none() => break,
            (None, '|' | ';' | '&' | '>' | '<') => {
                words.extend(word.take().map(Some));
                words.push(None);
            }
            (None, ' ') => words.extend(word.take().map(Some)),
            (None, _) => word.get_or_insert_default().push(c),
        }
    }
    let command = |at: usize| {
        let rest = words[at..].iter().map_while(Clone::clone);
        rest.collect::<Vec<String>>()
    };
    let begins = |at: usize| {
        words[at].as_deref() == Some("squall")
            && may_precede(at.checked_sub(1).map(|at| &words[at]))
    };
    (0..words.len()).filter(|&at| begins(at)).map(command).collect()
}

/// Words that may precede the name of the command.
fn may_precede(word: Option<&Option<String>>) -> bool {
    match word {
        None | Some(None) => true,
        Some(Some(word)) => {
            matches!(word.as_str(), "$" | "sudo" | "--" | "exec") || word.contains('=')
        }
    }
}

fn of_help(command: &clap::Command, into: &mut Vec<Example>) {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let examples = text
        .lines()
        .skip_while(|line| *line != "Examples:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    let joined = examples.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let place = format!("squall {} --help", command.get_name());
    let of_line = |line: &str| {
        commands(line).into_iter().map(|words| Example { place: place.clone(), words }).collect()
    };
    into.extend(joined.lines().flat_map(|line| -> Vec<Example> { of_line(line) }));
    command.get_subcommands().for_each(|one| of_help(one, into));
}

/// Collects the blocks of a page that are meant to be pasted.
fn of_page(path: &Path, into: &mut Vec<Example>) {
    let text = fs::read_to_string(path).unwrap().replace("\\\n", " ");
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        if fence {
            let language = line.trim_start().trim_start_matches('`');
            inside = !inside && matches!(language, "" | "sh" | "bash" | "console");
            continue;
        }
        // Skip the output of `squall serve`.
        if (inside || line.starts_with("    ")) && !line.contains("squall serves") {
            let place = format!("{}, about line {}", path.display(), number + 1);
            into.extend(
                commands(line).into_iter().map(|words| Example { place: place.clone(), words }),
            );
        }
    }
}

fn all() -> Vec<Example> {
    let mut all = Vec::new();
    of_help(&squall_cli::command(), &mut all);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    of_page(&root.join("README.md"), &mut all);
    let guide = fs::read_dir(root.join("docs/guide")).unwrap();
    let mut pages: Vec<PathBuf> = guide.map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    pages
        .iter()
        .filter(|page| page.extension().is_some_and(|end| end == "md"))
        .for_each(|page| of_page(page, &mut all));
    all
}

#[test]
fn every_example_of_the_help_and_the_guides_is_understood() {
    let examples = all();
    assert!(examples.len() > 150, "{} examples", examples.len());
    let mut wrong = Vec::new();
    for Example { place, words } in &examples {
        let shown = [
            ErrorKind::DisplayHelp,
            ErrorKind::DisplayVersion,
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
        ];
        match squall_cli::command().try_get_matches_from(words) {
            Err(error) if !shown.contains(&error.kind()) => {
                wrong.push(format!("{place}: {}\n{error}", words.join(" ")))
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Making a profile parses packets, rates, variations and addresses.
#[test]
fn every_example_that_makes_a_profile_makes_one() {
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("examples-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
        command.args(words).current_dir(&folder).stdin(Stdio::null()).output().unwrap()
    };
    let capture = [
        "send",
        "--port",
        "pcap:capture.pcap",
        "--packet",
        "eth/ipv4/udp",
        "--rate",
        "1kpps",
        "--count",
        "5",
    ];
    assert!(run(&capture).status.success());
    let mut made = 0;
    let mut wrong = Vec::new();
    for Example { place, words } in all() {
        let mut words: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let makes = matches!(
            words[..],
            ["send", ..] | ["flows", "http" | "app" | "dns" | "run" | "tcp" | "udp", ..]
        );
        if !makes || words.contains(&"--help") {
            continue;
        }
        if !words.contains(&"--print-profile") {
            words.push("--print-profile");
        }
        let done = run(&words);
        made += 1;
        if !done.status.success() {
            wrong.push(format!(
                "{place}: {}\n{}",
                words.join(" "),
                String::from_utf8_lossy(&done.stderr)
            ));
        }
    }
    fs::remove_dir_all(&folder).unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(made >= 25, "{made} profiles");
}

#[test]
fn a_line_is_taken_apart_as_a_shell_does() {
    let line = r#"sudo squall lab exec -- squall run a.toml --fail-if 'loss > 0' x#y "b c" | less; squall demo # and so on"#;
    let expected: [&[&str]; 3] = [
        &[
            "squall",
            "lab",
            "exec",
            "--",
            "squall",
            "run",
            "a.toml",
            "--fail-if",
            "loss > 0",
            "x#y",
            "b c",
        ],
        &["squall", "run", "a.toml", "--fail-if", "loss > 0", "x#y", "b c"],
        &["squall", "demo"],
    ];
    assert_eq!(commands(line), expected);
}
