//! Parses arguments. Examples in the help can be pasted at any terminal width, and unknown
//! arguments get useful tips.

use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal},
};

use clap::{
    Command, CommandFactory, FromArgMatches,
    builder::StyledStr,
    error::{ContextKind, ContextValue, Error, ErrorKind},
};
use squall_report::render;

/// Maximum width of help texts: longer lines are hard to read.
pub const WIDEST: usize = 100;

/// Parses the arguments of the process. Exits for help and on errors.
pub fn parse<C: CommandFactory + FromArgMatches>() -> C {
    let width = terminal_size::terminal_size()
        .map_or(WIDEST, |(width, _)| usize::from(width.0).min(WIDEST));
    let mut command = fitted(C::command(), width);
    let arguments: Vec<OsString> = env::args_os().collect();
    let matches = command.try_get_matches_from_mut(&arguments);
    let matches = matches
        .unwrap_or_else(|error| leave(&advised(error, &mut command, &arguments), &arguments));
    C::from_arg_matches(&matches)
        .unwrap_or_else(|error| leave(&error.format(&mut command), &arguments))
}

/// Exits with help on standard output, or with an error on standard error. An error quotes
/// arguments, which must not control the terminal. If an argument has control characters, all
/// colors are dropped: the argument could contain color sequences.
fn leave(error: &Error, arguments: &[OsString]) -> ! {
    if !error.use_stderr() {
        error.exit();
    }
    let steers = |argument: &OsString| argument.to_string_lossy().contains(char::is_control);
    match io::stderr().is_terminal() && !arguments.iter().any(steers) {
        true => eprint!("{}", render::own_colors(&error.render().ansi().to_string())),
        false => eprint!("{}", error.render()),
    }
    std::process::exit(error.exit_code())
}

/// Wraps examples at `width`: clap would break their lines without a backslash.
pub fn fitted(command: Command, width: usize) -> Command {
    let text = command.get_after_help().map(|text| examples_within(&text.to_string(), width));
    let mut command = command.term_width(width);
    if let Some(text) = text {
        command = command.after_help(text);
    }
    let names: Vec<String> =
        command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    names
        .iter()
        .fold(command, |command, name| command.mut_subcommand(name, |one| fitted(one, width)))
}

/// Wraps the commands between `Examples:` and the next empty line. A command may have a comment.
fn examples_within(text: &str, width: usize) -> String {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        inside = (inside && !line.is_empty()) || line == "Examples:";
        match inside && line.chars().count() > width {
            true => lines.extend(broken(line, width)),
            false => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

/// Splits a command into lines that a shell joins. Its comment goes on lines of its own before it.
fn broken(line: &str, width: usize) -> Vec<String> {
    let (command, comment) = line.split_once("  # ").unwrap_or((line, ""));
    let mut lines: Vec<String> = Vec::new();
    let mut add = |lead: &str, words: &mut dyn Iterator<Item = &str>, end: &str| {
        let mut now = String::new();
        for word in words {
            let so_far = now.chars().count() + 1 + word.chars().count() + end.chars().count();
            if !now.is_empty() && so_far > width {
                lines.push(std::mem::take(&mut now) + end);
                now = format!("{lead}{word}");
            } else {
                now += if now.is_empty() { "  " } else { " " };
                now += word;
            }
        }
        lines.extend((!now.is_empty()).then_some(now));
    };
    if !comment.is_empty() {
        add("  # ", &mut std::iter::once("#").chain(comment.split(' ')), "");
    }
    add("      ", &mut words(command).into_iter(), " \\");
    lines
}

/// Splits a command into shell words, and keeps their quotes.
fn words(command: &str) -> Vec<&str> {
    let mut quote = None;
    let at_space = move |c: char| {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            _ => {}
        }
        quote.is_none() && c == ' '
    };
    command.split(at_space).filter(|word| !word.is_empty()).collect()
}

/// Names of options in other tools. Each entry has these names, the option of Squall that replaces
/// them if the command has it, and a tip.
const FOREIGN_NAMES: [(&[&str], &str, &str); 3] = [
    (
        &["pps", "bps", "kpps", "mbps", "gbps", "bandwidth", "throughput"],
        "rate",
        "--rate 10kpps, --rate 100Mbps",
    ),
    (&["interface", "iface", "intf", "dev", "device", "nic"], "port", "--port eth1"),
    (
        &[
            "vlan", "src", "dst", "src-ip", "dst-ip", "src-mac", "dst-mac", "sport", "dport",
            "ttl", "udp", "tcp", "payload",
        ],
        "packet",
        "headers are part of the packet: --packet \
         'eth/vlan(id=7)/ipv4(dst=10.0.0.2)/udp(dport=53)'",
    ),
];

/// Removes tips for options that are too different (such as `--latency` for `--vlan`), and adds
/// tips from the table.
fn advised(mut error: Error, command: &mut Command, arguments: &[OsString]) -> Error {
    let name = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(name))) => name.clone(),
        _ => return error,
    };
    let word = name.trim_start_matches('-').split('=').next().unwrap_or_default().to_owned();
    let far = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(tip)) => {
            let tip = tip.trim_start_matches('-');
            !tip.starts_with(&word)
                && !squall_units::suggest(&word, [tip]).starts_with("did you mean")
        }
        _ => true,
    };
    // If the name is known from another tool, that tip has priority over options with similar
    // spelling.
    let known = FOREIGN_NAMES.iter().any(|(names, ..)| names.contains(&word.as_str()));
    if !far && !known {
        return error;
    }
    error.remove(ContextKind::SuggestedArg);
    command.build();
    let mut of = command;
    for name in &arguments[1..] {
        let Some(name) = name.to_str().filter(|name| of.find_subcommand(name).is_some()) else {
            break;
        };
        of = of.find_subcommand_mut(name).expect("it was there");
    }
    // clap's usage line contains its own tip, so replace it.
    error.insert(ContextKind::Usage, ContextValue::StyledStr(of.render_usage()));
    let has = |long: &str| of.get_arguments().any(|argument| argument.get_long() == Some(long));
    let here = FOREIGN_NAMES
        .iter()
        .find(|(names, option, _)| names.contains(&word.as_str()) && has(option));
    if let Some((.., tip)) = here {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(*tip)]));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each(command: &Command, look: &mut dyn FnMut(&Command)) {
        look(command);
        command.get_subcommands().for_each(|one| each(one, look));
    }

    /// The words of pasted lines, split like in a shell. Omits comments.
    fn pasted(text: &str) -> Vec<Vec<String>> {
        let examples = text
            .lines()
            .skip_while(|line| *line != "Examples:")
            .skip(1)
            .take_while(|line| !line.is_empty());
        let joined = examples.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
        let lines = joined.lines().map(|line| line.split("  # ").next().unwrap_or_default().trim());
        let commands = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        commands.map(|line| words(line).into_iter().map(String::from).collect()).collect()
    }

    #[test]
    fn examples_can_be_pasted_from_terminals_of_any_width() {
        for width in [60, 80, 100] {
            let (mut before, mut after) = (Vec::new(), Vec::new());
            each(&crate::Cli::command(), &mut |one| {
                before.push(one.get_after_help().map(|t| pasted(&t.to_string())))
            });
            each(&fitted(crate::Cli::command(), width), &mut |one| {
                let Some(text) = one.get_after_help().map(|text| text.to_string()) else {
                    return after.push(None);
                };
                let mut inside = false;
                for line in text.lines() {
                    inside = (inside && !line.is_empty()) || line == "Examples:";
                    let one_word = words(line).len() <= 2;
                    assert!(
                        !inside || line.chars().count() <= width || one_word,
                        "{}: {line}",
                        one.get_name()
                    );
                }
                after.push(Some(pasted(&text)));
            });
            assert_eq!(before, after, "{width} columns");
        }
    }

    #[test]
    fn a_long_example_goes_on_in_a_line_that_a_shell_joins() {
        let text = "Examples:\n  squall send --port eth1 --packet 'eth / ipv4' --rate 1kpps  # a \
                    comment of many words";
        let expected = "Examples:\n  # a comment of many words\n  squall send --port eth1 \\\n      --packet \
             'eth / ipv4' \\\n      --rate 1kpps";
        assert_eq!(examples_within(text, 30), expected);
        assert_eq!(examples_within(text, 200), text);
    }

    #[test]
    fn a_tip_is_similar_or_names_the_replacement() {
        let advice = |arguments: &[&str]| {
            let mut command = crate::Cli::command();
            let arguments: Vec<OsString> =
                ["squall"].iter().chain(arguments).map(Into::into).collect();
            let error = command.try_get_matches_from_mut(&arguments).unwrap_err();
            advised(error, &mut command, &arguments).to_string()
        };
        assert!(advice(&["send", "--prot", "x"]).contains("'--port'"));
        assert!(advice(&["replay", "--listnic"]).contains("'--listnics'"));
        let vlan = advice(&["send", "--vlan", "7"]);
        assert!(vlan.contains("eth/vlan(id=7)") && !vlan.contains("latency"), "{vlan}");
        let pps = advice(&["send", "--pps", "7"]);
        assert!(pps.contains("--rate 10kpps") && !pps.contains("cpus"), "{pps}");
        let interface = advice(&["recv", "--interface", "eth0"]);
        assert!(
            interface.contains("--port eth1") && !interface.contains("interval"),
            "{interface}"
        );
        let http = advice(&["flows", "http", "--quux", "7"]);
        assert!(!http.contains("tip:") && http.contains("squall flows http"), "{http}");
    }
}
