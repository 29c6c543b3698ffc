//! The capture tools: their command lines, and their counts.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{compared::ToolInfo, model::Claim};
use squall::Error;

/// A capture tool. Its arguments have the placeholders `{interface}`, `{file}` (output) and
/// `{report}` (JSON report).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Whether it takes frames away from the host, so no other program sees them.
    pub takes_frames: bool,
}

/// A tool whose command line is known.
struct Known {
    name: &'static str,
    /// Command line, in which `squall` is this program.
    command: &'static str,
    takes_frames: bool,
}

// --allow-invalid: packets that Squall loses must count as its result. As a failed run, they would
// exclude its worst rounds.
const KNOWN: &[Known] = &[
    Known {
        name: "squall",
        command: "squall capture --port af_packet:{interface} -w {file} --json {report} --quiet \
                  --allow-invalid",
        takes_frames: false,
    },
    Known {
        name: "squall-af_xdp",
        command: "squall capture --port af_xdp:{interface},take=all -w {file} --json {report} \
                  --quiet --allow-invalid",
        takes_frames: true,
    },
    // -Z: by default tcpdump changes to a user without write permission here.
    Known {
        name: "tcpdump",
        command: "tcpdump -i {interface} -n -Z root -w {file}",
        takes_frames: false,
    },
    Known { name: "dumpcap", command: "dumpcap -q -i {interface} -w {file}", takes_frames: false },
    Known {
        name: "netsniff-ng",
        command: "netsniff-ng --in {interface} --out {file} -s",
        takes_frames: false,
    },
];

/// The default list of tools.
pub const DEFAULT_TOOLS: &str = "squall,tcpdump,tcpdump:-B 65536,dumpcap,netsniff-ng";

impl Tool {
    /// Parses a comma-separated list of names, each with optional arguments after a colon:
    /// `tcpdump,tcpdump:-B 65536`. `squall` is the path of this program.
    ///
    /// # Errors
    /// An unknown name.
    pub fn parse_list(text: &str, squall: &Path) -> Result<Vec<Self>, Error> {
        text.split(',').map(|entry| Self::parse(entry.trim(), squall)).collect()
    }

    fn parse(text: &str, squall: &Path) -> Result<Self, Error> {
        let (name, more) = text.split_once(':').unwrap_or((text, ""));
        let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
            let names = KNOWN.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
            return Err(Error::Usage(format!(
                "--tools {text}: there is no tool {name:?}\n  expected {names}; or --tool \
                 'NAME=COMMAND -i {{interface}} -w {{file}}'"
            )));
        };
        let mut words = split_words(known.command)?;
        words.extend(split_words(more)?);
        let mut tool = Self::of_words(format!("{name} {more}").trim().into(), words)?;
        tool.takes_frames = known.takes_frames;
        if tool.program == Path::new("squall") {
            tool.program = squall.into();
        }
        Ok(tool)
    }

    /// Parses `NAME=COMMAND` with `{interface}` and `{file}` in the command.
    ///
    /// # Errors
    /// The text has another form.
    pub fn parse_template(text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| {
            Error::Usage(format!(
                "--tool {text}: {why}\n  expected NAME=COMMAND, such as 'mine=mytool -i \
                 {{interface}} -w {{file}}'"
            ))
        };
        let (name, command) = text.split_once('=').ok_or_else(|| wrong("no '='"))?;
        if name.trim().is_empty() {
            return Err(wrong("no name"));
        }
        if let Some(lacking) =
            ["{interface}", "{file}"].iter().find(|place| !command.contains(**place))
        {
            return Err(wrong(&format!("no {lacking} in the command")));
        }
        Self::of_words(name.trim().into(), split_words(command)?)
    }

    /// Returns a tool for a command line.
    ///
    /// # Errors
    /// The command line has no program, or an unclosed quote.
    pub fn of_command(name: &str, command: &str) -> Result<Self, Error> {
        Self::of_words(name.into(), split_words(command)?)
    }

    fn of_words(name: String, words: Vec<String>) -> Result<Self, Error> {
        let mut words = words.into_iter();
        let program = words
            .next()
            .ok_or_else(|| Error::Usage(format!("tool {name}: the command is empty")))?;
        Ok(Self { name, program: program.into(), arguments: words.collect(), takes_frames: false })
    }

    /// Path of the program, if it is installed.
    pub fn find(&self) -> Option<PathBuf> {
        if self.program.components().count() > 1 {
            return self.program.is_file().then(|| self.program.clone());
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Distributions install programs for root there, and PATH of other users often lacks these
        // directories.
        let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
        folders.map(|folder| folder.join(&self.program)).find(|file| file.is_file())
    }

    /// Arguments with the placeholders replaced.
    pub fn filled(&self, interface: &str, file: &Path, report: &Path) -> Vec<String> {
        let (file, report) = (file.to_string_lossy(), report.to_string_lossy());
        let fill = |word: &String| {
            word.replace("{interface}", interface)
                .replace("{file}", &file)
                .replace("{report}", &report)
        };
        self.arguments.iter().map(fill).collect()
    }

    /// Entry of this tool in the result. Runs the program to get its version.
    pub fn info(&self) -> ToolInfo {
        let program = self.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let command =
            [program].iter().chain(&self.arguments).cloned().collect::<Vec<_>>().join(" ");
        let (version, why_not) = match self.find() {
            None => (None, Some(format!("not installed: {}", self.program.display()))),
            Some(file) => (version(&file), None),
        };
        ToolInfo {
            name: self.name.clone(),
            command,
            version,
            why_not,
            takes_frames: self.takes_frames,
        }
    }
}

/// First line of the version output of the program.
fn version(program: &Path) -> Option<String> {
    let output = std::process::Command::new(program)
        .arg("--version")
        .stdin(std::process::Stdio::null())
        .output()
        .ok()?;
    let text = [output.stdout, output.stderr]
        .map(|octets| String::from_utf8_lossy(&octets).into_owned())
        .concat();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(100).collect())
}

/// Splits like a shell, but supports only the two kinds of quotes.
fn split_words(text: &str) -> Result<Vec<String>, Error> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    match quote {
        Some(quote) => Err(Error::Usage(format!("{text}: a {quote} is not closed"))),
        None => Ok(words),
    }
}

/// Counts of any tool. `output` is its complete output, `report` its JSON report if it wrote one.
pub fn claim(output: &str, report: Option<&str>) -> Claim {
    report.and_then(claim_of_report).unwrap_or_else(|| claim_of_text(output))
}

/// Counts from the output of tcpdump, dumpcap or netsniff-ng. The last line with a count applies.
fn claim_of_text(output: &str) -> Claim {
    let mut claim = Claim::default();
    // dumpcap and netsniff-ng overwrite lines by carriage returns.
    for line in output.split(['\n', '\r']).map(str::trim) {
        let before = |sentence: &str| {
            line.split_once(sentence).and_then(|(n, _)| n.trim().parse::<u64>().ok())
        };
        // tcpdump: `1 packet captured`
        let packets = |what: &str| {
            before(&format!("packets {what}")).or_else(|| before(&format!("packet {what}")))
        };
        let set = |place: &mut Option<u64>, value: Option<u64>| *place = value.or(*place);
        set(&mut claim.captured, packets("captured").or_else(|| packets("passed filter")));
        set(&mut claim.dropped, packets("dropped by kernel").or_else(|| packets("failed filter")));
        set(&mut claim.received, packets("received by filter").or_else(|| packets("incoming")));
        // dumpcap:
        // `Packets received/dropped on interface 'veth-b': 50000/17 (pcap:17/dumpcap:0/...) (100.0%)`
        let after = |sentence: &str| line.strip_prefix(sentence).map(str::trim);
        set(&mut claim.captured, after("Packets captured:").and_then(|n| n.parse().ok()));
        let both = after("Packets received/dropped on interface").and_then(|rest| {
            let (received, rest) = rest.rsplit_once("': ")?.1.split_once('/')?;
            Some((
                received.parse::<u64>().ok()?,
                rest.split_whitespace().next()?.parse::<u64>().ok()?,
            ))
        });
        if let Some((received, dropped)) = both {
            (claim.received, claim.dropped) = (Some(received + dropped), Some(dropped));
        }
    }
    claim
}

/// Counts from the section `capture` of the report of `squall capture --json`.
fn claim_of_report(text: &str) -> Option<Claim> {
    let report: Value = serde_json::from_str(text).ok()?;
    let capture = report.get("capture")?;
    let count = |key: &str| capture.get(key)?.as_u64();
    Some(Claim {
        captured: count("written_packets"),
        dropped: count("lost"),
        received: count("received"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQUALL: &str = "/opt/squall";

    #[test]
    fn a_list_of_tools_has_their_arguments_after_colons() {
        let tools =
            Tool::parse_list("squall,tcpdump:-B 65536 -s 128, dumpcap", Path::new(SQUALL)).unwrap();
        let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["squall", "tcpdump -B 65536 -s 128", "dumpcap"]);
        assert_eq!(tools[0].program, Path::new(SQUALL));
        let words = tools[1].filled("veth-b", Path::new("/dev/null"), Path::new("/r"));
        assert_eq!(words.join(" "), "-i veth-b -n -Z root -w /dev/null -B 65536 -s 128");
        let error = Tool::parse_list("wireshark", Path::new(SQUALL)).unwrap_err().to_string();
        assert!(error.contains("netsniff-ng") && error.contains("--tool"), "{error}");
    }

    #[test]
    fn a_template_is_a_tool() {
        let tool =
            Tool::parse_template("mine=sh -c 'cap -i {interface} \"x y\"' -w {file}").unwrap();
        let words = tool.filled("e0", Path::new("/f"), Path::new("/r"));
        assert_eq!(words, ["-c", "cap -i e0 \"x y\"", "-w", "/f"]);
        for text in [
            "mine",
            "=a {interface} {file}",
            "a=b {file}",
            "a=b {interface}",
            "a=b '{interface} {file}",
        ] {
            assert!(Tool::parse_template(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_missing_tool_has_a_reason() {
        let tool = Tool::parse_template("mine=no-such-tool-here {interface} {file}").unwrap();
        assert!(tool.info().why_not.unwrap().contains("no-such-tool-here"));
    }

    #[test]
    fn the_last_lines_of_tcpdump() {
        let text = "tcpdump: listening on veth-b, link-type EN10MB (Ethernet), snapshot length \
                    262144 bytes\n812345 packets captured\n900000 packets received by \
                    filter\n87655 packets dropped by kernel\n";
        assert_eq!(
            claim(text, None),
            Claim { captured: Some(812_345), dropped: Some(87_655), received: Some(900_000) }
        );
        let one = "1 packet captured\n1 packet received by filter\n0 packets dropped by kernel\n3 \
                   packets dropped by interface\n";
        assert_eq!(
            claim(one, None),
            Claim { captured: Some(1), dropped: Some(0), received: Some(1) }
        );
    }

    #[test]
    fn the_last_lines_of_dumpcap() {
        let text = "Capturing on 'veth-b'\nFile: /dev/shm/x.pcapng\n\rPackets captured: \
                    50000\nPackets received/dropped on interface 'veth-b': 50000/17 \
                    (pcap:17/dumpcap:0/flushed:0/ps_ifdrop:0) (100.0%)\n";
        assert_eq!(
            claim(text, None),
            Claim { captured: Some(50_000), dropped: Some(17), received: Some(50_017) }
        );
    }

    #[test]
    fn the_last_lines_of_netsniff_ng() {
        let text = "Running! Hang up with ^C!\n\n\r       50100  packets incoming (0 unread on \
                    exit)\n\r       50000  packets passed filter\n\r         100  packets failed \
                    filter (out of space)\n\r      0.1996% packet droprate\n\r           3  sec, \
                    702638 usec in total\n";
        assert_eq!(
            claim(text, None),
            Claim { captured: Some(50_000), dropped: Some(100), received: Some(50_100) }
        );
    }

    #[test]
    fn without_output_there_is_no_claim() {
        for text in [
            "",
            "packets captured",
            "x packets captured\n1 packets",
            "Packets captured: many",
            "\r\r",
        ] {
            assert_eq!(claim(text, Some("{}")), Claim::default(), "{text:?}");
        }
    }

    #[test]
    fn the_report_of_squall_is_read() {
        let report = r#"{"capture": {"received": 10, "written_packets": 7, "lost": 3}}"#;
        assert_eq!(
            claim("", Some(report)),
            Claim { captured: Some(7), dropped: Some(3), received: Some(10) }
        );
    }
}
