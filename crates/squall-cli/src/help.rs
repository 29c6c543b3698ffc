//! Parses arguments. Examples in the help can be pasted at any terminal width, and unknown
//! arguments get useful tips.

use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal},
    net::AddrParseError,
    num::{ParseFloatError, ParseIntError},
};

use clap::{
    Command, CommandFactory, FromArgMatches,
    builder::StyledStr,
    error::{ContextKind, ContextValue, Error, ErrorKind},
};
use squall_profile::Diagnostics;
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
    let mut add = |lead: &str, pieces: &[String], end: &str| {
        let mut now = String::new();
        for piece in pieces {
            let so_far = now.chars().count() + 1 + piece.chars().count() + end.chars().count();
            if !now.is_empty() && so_far > width {
                lines.push(std::mem::take(&mut now) + end);
                now = format!("{lead}{piece}");
            } else {
                now += if now.is_empty() { "  " } else { " " };
                now += piece;
            }
        }
        lines.extend((!now.is_empty()).then_some(now));
    };
    if !comment.is_empty() {
        let words: Vec<String> = format!("# {comment}").split(' ').map(String::from).collect();
        add("  # ", &words, "");
    }
    let (lead, end) = ("      ", " \\");
    add(lead, &pieces(command, width.saturating_sub(lead.len() + end.len())), end);
    lines
}

/// Splits a command before its options, pipes and redirections, so that a value stays with its
/// option. A piece that is wider than `width` is split at all words.
fn pieces(command: &str, width: usize) -> Vec<String> {
    let mut pieces: Vec<Vec<&str>> = Vec::new();
    for word in words(command) {
        let begins = word.len() > 1 && word.starts_with('-') || ["|", ">", "&&"].contains(&word);
        match pieces.last_mut().filter(|_| !begins) {
            Some(piece) => piece.push(word),
            None => pieces.push(vec![word]),
        }
    }
    let fits = |piece: &Vec<&str>| piece.join(" ").chars().count() <= width;
    let split = |piece: Vec<&str>| match fits(&piece) {
        true => vec![piece.join(" ")],
        false => piece.into_iter().map(String::from).collect(),
    };
    pieces.into_iter().flat_map(split).collect()
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

/// Hints of a profile for the command line: `try size = 64` becomes `try --size 64`.
pub fn in_options(mistakes: &mut Diagnostics) {
    let mut command = crate::command();
    for name in env::args_os().skip(1) {
        let Some(of) = command.find_subcommand(&name) else { break };
        command = of.clone();
    }
    let short = mistakes.0.iter_mut().filter(|one| one.origin.starts_with("squall "));
    let details = short.flat_map(|one| &mut one.details);
    details.for_each(|detail| *detail = in_option(detail, &command));
}

fn in_option(hint: &str, command: &Command) -> String {
    let assignment = || {
        let (key, rest) = hint.strip_prefix("try ")?.split_once(" = ")?;
        let option = command.get_arguments().find(|one| one.get_id() == key)?.get_long()?;
        let (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_at(rest.find([',', ' ']).unwrap_or(rest.len())),
        };
        let quote = if value.contains(' ') { "'" } else { "" };
        match value {
            "true" => Some(format!("try --{option}{rest}")),
            "false" => Some(format!("try it without --{option}{rest}")),
            _ if value.starts_with(['{', '[']) => None,
            _ => Some(format!("try --{option} {quote}{value}{quote}{rest}")),
        }
    };
    assignment().unwrap_or_else(|| hint.to_owned())
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

/// Replaces texts of the standard library, which name neither the form nor an example.
fn explained(error: Error) -> Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let source = std::error::Error::source(&error);
    let expected = match source {
        Some(source) if source.is::<ParseIntError>() => "a whole number, such as 10",
        Some(source) if source.is::<ParseFloatError>() => "a number, such as 10 or 0.5",
        Some(source) if source.is::<AddrParseError>() => {
            "an address and a port, such as 127.0.0.1:8443 or [::1]:8443"
        }
        _ => return error,
    };
    let (value, option) = (text(ContextKind::InvalidValue), text(ContextKind::InvalidArg));
    Error::raw(
        ErrorKind::ValueValidation,
        format!("invalid value '{value}' for '{option}': expected {expected}\n"),
    )
}

/// Whether `squall lab exec` was given a command without the `--` before it.
fn lacks_separator(arguments: &[OsString]) -> bool {
    let [_, lab, exec, rest @ ..] = arguments else { return false };
    lab == "lab" && exec == "exec" && !rest.is_empty() && !rest.iter().any(|word| word == "--")
}

/// Removes tips for options that are too different (such as `--latency` for `--vlan`), and adds
/// tips from the table.
fn advised(error: Error, command: &mut Command, arguments: &[OsString]) -> Error {
    let mut error = explained(error);
    let kinds = [ErrorKind::UnknownArgument, ErrorKind::MissingRequiredArgument];
    if kinds.contains(&error.kind()) && lacks_separator(arguments) {
        let tip = "put -- before the command: squall lab exec -- COMMAND";
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
        return error;
    }
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
        assert_eq!(examples_within(text, 31), expected);
        // Never between an option and its value.
        for width in 31..60 {
            let broken = examples_within(text, width);
            assert!(broken.lines().all(|line| !line.ends_with("--packet \\")), "{broken}");
        }
        assert_eq!(examples_within(text, 200), text);
    }

    #[test]
    fn hints_name_the_option_of_a_key() {
        let command = crate::Cli::command();
        let of = |names: &[&str]| {
            names.iter().fold(command.clone(), |of, name| of.find_subcommand(name).unwrap().clone())
        };
        for (names, hint, expected) in [
            (&["send"][..], "try size = 64, or more", "try --size 64, or more"),
            (&["send"], "try latency = true and a frame", "try --latency and a frame"),
            (&["send"], "try latency = false", "try it without --latency"),
            (&["hosts", "arp"], "try ipv4 = \"10.0.0.1/16\"", "try --address 10.0.0.1/16"),
            (&["send"], "try mode = { burst = 1000 }", "try mode = { burst = 1000 }"),
            (&["send"], "try serve = \"10.0.0.1\"", "try serve = \"10.0.0.1\""),
        ] {
            assert_eq!(in_option(hint, &of(names)), expected);
        }
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
        for command in [&["squall", "ports"][..], &["ls"], &["tcpdump", "-i", "eth1"]] {
            let exec = advice(&[&["lab", "exec"][..], command].concat());
            assert!(exec.contains("put -- before the command"), "{exec}");
        }
        for (wrong, expected) in [
            (&["plan", "a.toml", "--frames", "ten"][..], "a whole number, such as 10"),
            (&["test", "rfc2544", "--frame-sizes", "64B"], "a whole number, such as 10"),
            (&["test", "rfc2544", "--tolerance", "x"], "a number, such as 10 or 0.5"),
            (&["serve", "--listen", "foo"], "an address and a port"),
        ] {
            let text = advice(wrong);
            let last = wrong.last().unwrap();
            assert!(text.contains(expected) && text.contains(last), "{text}");
            assert!(!text.contains("found in string") && !text.contains("literal"), "{text}");
        }
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
