//! The generators: their command lines, and their counts of sent frames.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;
use squall::Error;
use squall_units::Cannot;

use super::{
    http,
    wire::{self, Frame},
};
use crate::{compared::ToolInfo, tools::Tool};

/// A generator. Its arguments have placeholders such as `{interface}`, `{capture}`, `{config}`,
/// `{payload}`, `{size}`, `{rate}` and `{report}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generator {
    pub name: String,
    known: &'static Known,
    tool: Tool,
    /// Arguments in addition to those of `known`.
    more: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
struct Known {
    name: &'static str,
    command: &'static str,
    /// Additional arguments for a given rate, and for the maximum rate.
    paced: &'static str,
    fastest: &'static str,
    /// Contents of the file `{script}`, for tools that read their streams from a script.
    script: &'static str,
    /// The program that the tool needs at the receiving end.
    receiver: Receiver,
    /// Whether it sends through sockets.
    needs_addresses: bool,
    /// Text before or after the number of sent packets in the tool's output.
    claim: Claim,
    /// Package or address from which to install the tool.
    install: &'static str,
    /// Smallest UDP payload that the tool can send.
    least_payload: u32,
    /// Whether it needs a receiving interface in polling mode.
    polls: bool,
    /// Source of its streams, if that is not the command line.
    driven: Driven,
    /// Why it cannot be compared here even if it is installed.
    not_here: Option<&'static str>,
}

#[derive(Debug, PartialEq, Eq)]
enum Claim {
    None,
    Before(&'static str),
    After(&'static str),
    /// A path in the JSON of `{report}`, or of the output.
    Report(&'static str),
    Printed(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    None,
    Command(&'static str),
    /// The server of [`super::http`].
    Http,
}

/// How a tool receives its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driven {
    ByArguments,
    /// By the protocol of Ostinato's drone.
    Drone,
}

const PLAIN: Known = Known {
    name: "",
    command: "",
    paced: "",
    fastest: "",
    script: "",
    receiver: Receiver::None,
    needs_addresses: false,
    claim: Claim::None,
    install: "",
    least_payload: 0,
    polls: false,
    driven: Driven::ByArguments,
    not_here: None,
};

const SQUALL: Known = Known {
    name: "squall",
    command: "squall send --port af_packet:{interface} --packet {packet} --size {wire} --json \
              {report} --quiet --allow-invalid",
    paced: "--rate {rate}pps",
    fastest: "--rate max",
    claim: Claim::Report("/ports/0/tx/packets"),
    ..PLAIN
};

const KNOWN: &[Known] = &[
    SQUALL,
    Known {
        name: "squall-xdp_live",
        polls: true,
        command: "squall send --port xdp_live:{interface} --packet {packet} --size {wire} --json \
                  {report} --quiet --allow-invalid",
        ..SQUALL
    },
    // Preparing an attack takes about 0.3 ms. A capture of attacks, sent in a loop, starts
    // immediately at any rate.
    Known {
        name: "squall-rules",
        command: "squall replay {attacks} --port af_packet:{interface} --preload --loop 0 --json \
                  {report} --quiet --allow-invalid",
        paced: "--mbps {mbps}",
        fastest: "--topspeed",
        ..SQUALL
    },
    Known {
        name: "curl",
        command: "curl -sS -o /dev/null -H Expect: --data-binary @{body}",
        paced: "--rate {requests}/s http://{to}:{http}/[1-1000000000]",
        fastest: "http://{to}:{http}/[1-1000000000]",
        receiver: Receiver::Http,
        needs_addresses: true,
        install: "apt-get install curl",
        ..PLAIN
    },
    Known {
        name: "squall-af_xdp",
        command: "squall send --port af_xdp:{interface} --packet {packet} --size {wire} --json \
                  {report} --quiet --allow-invalid",
        ..SQUALL
    },
    Known {
        name: "tcpreplay",
        command: "tcpreplay -i {interface} -K -l 0",
        paced: "-p {rate} {capture}",
        fastest: "-t {capture}",
        claim: Claim::After("Actual:"),
        install: "apt-get install tcpreplay",
        ..PLAIN
    },
    Known {
        name: "trafgen",
        command: "trafgen --dev {interface} --conf {config} --cpus 1 -C",
        paced: "-b {rate}pps",
        claim: Claim::Before("packets outgoing"),
        install: "apt-get install netsniff-ng",
        ..PLAIN
    },
    Known {
        name: "iperf3",
        command: "iperf3 -c {to} -u -l {payload} -t {seconds} -J --cport {sport}",
        paced: "-b {bits}",
        fastest: "-b 0",
        receiver: Receiver::Command("iperf3 -s -1"),
        needs_addresses: true,
        claim: Claim::Printed("/end/sum/packets"),
        install: "apt-get install iperf3",
        ..PLAIN
    },
    Known {
        name: "mgen",
        command: "mgen nolog event",
        paced: "'ON 1 UDP SRC {sport} DST {to}/{dport} PERIODIC [{rate} {payload}]'",
        fastest: "'ON 1 UDP SRC {sport} DST {to}/{dport} PERIODIC [-1 {payload}]'",
        needs_addresses: true,
        install: "apt-get install mgen",
        // Size of mgen's header.
        least_payload: 28,
        ..PLAIN
    },
    Known {
        name: "rude",
        command: "rude -s {script}",
        script: "START NOW\n0 1 ON {sport} {to}:{dport} CONSTANT {most} {payload}\n{ms} 1 OFF\n",
        needs_addresses: true,
        install: "http://rude.sourceforge.net",
        // Size of rude's header.
        least_payload: 20,
        ..PLAIN
    },
    Known {
        name: "hping3",
        command: "hping3 --udp -d {payload} -s {sport} -k -p {dport} -q -n -I {interface}",
        paced: "-i u{gap} {to}",
        fastest: "--flood {to}",
        needs_addresses: true,
        claim: Claim::Before("packets transmitted"),
        install: "apt-get install hping3",
        ..PLAIN
    },
    Known {
        name: "nping",
        command: "nping --udp -c 1000000000 -N -q --send-eth --source-mac {mac} --dest-mac {tomac} \
                  -e {interface} -S {from} -g {sport} -p {dport} --data-length {payload}",
        paced: "--rate {rate} {to}",
        fastest: "--rate 10000000 {to}",
        needs_addresses: true,
        claim: Claim::After("Raw packets sent:"),
        install: "apt-get install nmap",
        ..PLAIN
    },
    Known {
        name: "mausezahn",
        command: "mausezahn {interface} -c 0 -a {mac} -b {tomac} -A {from} -B {to} -t udp \
                  sp={sport},dp={dport} -p {payload} -q",
        paced: "-d {gap}usec",
        needs_addresses: true,
        install: "apt-get install netsniff-ng",
        ..PLAIN
    },
    Known {
        name: "drone",
        command: "drone",
        driven: Driven::Drone,
        install: "apt-get install ostinato",
        ..PLAIN
    },
    Known {
        name: "pktgen-dpdk",
        command: "pktgen",
        install: "https://pktgen-dpdk.readthedocs.io",
        not_here: Some("it needs a NIC or virtual device of DPDK, and the lab has a veth pair"),
        ..PLAIN
    },
    Known {
        name: "trex",
        command: "t-rex-64",
        install: "https://trex-tgn.cisco.com",
        not_here: Some("it takes two ports of its own configuration, and the lab has one pair"),
        ..PLAIN
    },
];

const REPLAY: Known = Known {
    name: "squall",
    command: "squall replay {capture} --port af_packet:{interface} -K --unique-ip -l 0 \
              --allow-invalid",
    paced: "-p {rate}",
    fastest: "-t",
    claim: Claim::After("Actual:"),
    ..PLAIN
};

const REPLAYERS: &[Known] = &[
    REPLAY,
    Known {
        name: "squall-xdp_live",
        command: "squall replay {capture} --port xdp_live:{interface} -K --unique-ip -l 0 \
                  --allow-invalid",
        polls: true,
        ..REPLAY
    },
    Known {
        name: "tcpreplay",
        command: "tcpreplay -i {interface} -K --unique-ip -l 0",
        paced: "-p {rate} {capture}",
        fastest: "-t {capture}",
        claim: Claim::After("Actual:"),
        install: "apt-get install tcpreplay",
        ..PLAIN
    },
];

/// The default list of generators.
pub const DEFAULT_GENERATORS: &str = "squall,squall-af_xdp,squall-xdp_live,tcpreplay,trafgen,\
                                      iperf3,mgen,rude,hping3,nping,mausezahn,drone,pktgen-dpdk,\
                                      trex";

/// Rules for requests of HTTP clients, of the kinds from which Genesids generates requests.
const RULES: &str = include_str!("web.rules");
/// Number of repetitions of the attacks, each from other addresses.
const ATTACKS: &str = "100";

impl Generator {
    /// Parses a comma-separated list of names. `squall` is the path of this program.
    ///
    /// # Errors
    /// An unknown name.
    pub fn parse_list(text: &str, squall: &Path) -> Result<Vec<Self>, Error> {
        text.split(',').map(|name| Self::parse(name.trim(), squall)).collect()
    }

    /// Programs that replay a capture with new addresses in each loop. `list` selects them by name;
    /// `None` means all.
    ///
    /// # Errors
    /// An unknown name.
    pub fn replayers(list: Option<&str>, squall: &Path) -> Result<Vec<Self>, Error> {
        let names: Vec<&str> = match list {
            Some(list) => list.split(',').map(str::trim).collect(),
            None => REPLAYERS.iter().map(|known| known.name).collect(),
        };
        names.into_iter().map(|name| Self::parse_of(REPLAYERS, name, squall)).collect()
    }

    fn parse(name: &str, squall: &Path) -> Result<Self, Error> {
        Self::parse_of(KNOWN, name, squall)
    }

    fn parse_of(all: &'static [Known], name: &str, squall: &Path) -> Result<Self, Error> {
        let Some(known) = all.iter().find(|known| known.name == name) else {
            let names = all.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
            return Err(Error::Usage(format!(
                "--tools: no generator {name:?}\n  expected {names}"
            )));
        };
        let mut tool = Tool::of_command(name, known.command)?;
        if tool.program == Path::new("squall") {
            tool.program = squall.into();
        }
        Ok(Self { name: name.into(), known, tool, more: Vec::new() })
    }

    /// The same generator with an additional argument.
    pub fn with(mut self, argument: &str) -> Self {
        self.more.push(argument.into());
        self
    }

    /// Path of the program, if it is installed.
    pub fn find(&self) -> Option<PathBuf> {
        self.tool.find()
    }

    pub fn needs_addresses(&self) -> bool {
        self.known.needs_addresses
    }

    /// Entry of this generator in the result.
    pub fn info(&self) -> ToolInfo {
        let mut info = self.tool.info();
        if info.why_not.is_some() {
            info.why_not = Some(format!(
                "not installed: {}; try {}",
                self.tool.program.display(),
                self.known.install
            ));
        } else {
            info.why_not = self.known.not_here.map(str::to_owned);
        }
        info
    }

    /// Whether it replays attacks generated from rules.
    pub fn needs_attacks(&self) -> bool {
        self.known.command.contains("{attacks}")
    }

    /// Generates a capture of attacks with this program.
    ///
    /// # Errors
    /// The reason, as text.
    pub fn attacks(&self, folder: &Path) -> Result<PathBuf, String> {
        let (rules, capture) = (folder.join("web.rules"), folder.join("attacks.pcap"));
        fs::write(&rules, RULES).map_err(|e| Cannot::write(&rules, &e).to_string())?;
        let output = Command::new(&self.tool.program)
            .arg("attack")
            .arg(&rules)
            .args(["--repeat", ATTACKS, "--shuffle", "--rate", "10000", "--quiet", "--force"])
            .arg(format!("--port=pcap:{}", capture.display()))
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("cannot make attacks: {e}"))?;
        match output.status.success() {
            true => Ok(capture),
            false => {
                let why = String::from_utf8_lossy(&output.stderr);
                Err(format!("cannot make attacks: {}", why.trim()))
            }
        }
    }

    pub fn driven(&self) -> Driven {
        self.known.driven
    }

    /// Whether it needs a receiving interface in polling mode.
    pub fn polls(&self) -> bool {
        self.known.polls
    }

    /// Checks that it can send frames of this size.
    ///
    /// # Errors
    /// The reason, as text.
    pub fn check(&self, frame: &Frame) -> Result<(), String> {
        let least = self.known.least_payload;
        match frame.payload() >= least {
            true => Ok(()),
            false => Err(format!(
                "its smallest frames have {} octets",
                least + frame.octets - frame.payload()
            )),
        }
    }

    /// The program and its arguments, for a frame and a rate, or the maximum rate.
    pub fn command(&self, fill: &Fill<'_>) -> Result<(Tool, Vec<String>), Error> {
        let more = if fill.pps.is_some() { self.known.paced } else { self.known.fastest };
        let whole = Tool::of_command(&self.name, &format!("{} {more}", self.known.command))?;
        let words = whole.arguments.iter().chain(&self.more);
        let arguments = words.map(|word| fill.word(word)).collect();
        Ok((self.tool.clone(), arguments))
    }

    /// Contents of the file `{script}`; empty if the tool has no script.
    pub fn script(&self, fill: &Fill<'_>) -> String {
        fill.word(self.known.script)
    }

    /// The program that it needs at the receiving end.
    pub fn receiver(&self) -> Receiver {
        self.known.receiver
    }

    /// Number of frames that it claims to have sent.
    pub fn claim(&self, output: &str, report: &Path) -> Option<u64> {
        let number = |text: &str| text.replace(',', "").parse::<u64>().ok();
        let of_json = |text: &str, path: &str| {
            serde_json::from_str::<Value>(text).ok()?.pointer(path)?.as_u64()
        };
        match self.known.claim {
            Claim::None => None,
            Claim::Before(words) => {
                let at = output.rfind(words)?;
                number(output[..at].split_whitespace().last()?)
            }
            Claim::After(words) => {
                let at = output.rfind(words)? + words.len();
                number(output[at..].split_whitespace().next()?)
            }
            Claim::Report(path) => of_json(&fs::read_to_string(report).ok()?, path),
            Claim::Printed(path) => of_json(&output[output.find('{')?..], path),
        }
    }
}

/// Why the run of Squall with this report is not valid.
pub fn not_valid(report: &Path) -> Option<String> {
    let report: Value = serde_json::from_str(&fs::read_to_string(report).ok()?).ok()?;
    (report.pointer("/verdict/status")? == "not-valid").then_some(())?;
    Some(report.pointer("/verdict/reasons/0/text")?.as_str()?.to_owned())
}

/// curl paces whole transfers, with a timer of milliseconds. Above this rate, its requests become
/// larger instead of more frequent.
pub const REQUESTS_PER_S: u32 = 500;
/// Octets of each of curl's requests besides its body: the head (about 150), the headers of the
/// frame, and an acknowledgment.
const AROUND_BODY: f64 = 290.0;

/// Body length of an HTTP request for a rate, or for the maximum rate. The rate counts octets of
/// frames, each with up to 1,448 octets of payload and 66 of headers.
pub fn body_octets(frame: &Frame, pps: Option<f64>) -> usize {
    let request = match pps {
        Some(pps) => pps * f64::from(frame.octets) / f64::from(REQUESTS_PER_S),
        None => f64::from(frame.octets),
    };
    ((request - AROUND_BODY) * 1448.0 / 1514.0).max(0.0) as usize
}

/// Values of the placeholders in a command line.
pub struct Fill<'a> {
    pub interface: &'a str,
    pub frame: &'a Frame,
    pub pps: Option<f64>,
    pub seconds: u64,
    pub report: &'a Path,
    pub script: &'a Path,
    /// A capture of attacks.
    pub attacks: &'a Path,
    /// File with the body of an HTTP request.
    pub body: &'a Path,
}

impl Fill<'_> {
    fn word(&self, word: &str) -> String {
        let pps = self.pps.unwrap_or(1.0);
        let whole = |value: f64| (value.round().max(1.0) as u64).to_string();
        let payload = f64::from(self.frame.payload());
        let places = [
            ("{interface}", self.interface.to_owned()),
            ("{packet}", self.frame.packet.clone()),
            ("{wire}", (self.frame.octets + squall_units::FCS_LEN).to_string()),
            ("{payload}", self.frame.payload().to_string()),
            ("{capture}", self.frame.capture.display().to_string()),
            ("{config}", self.frame.config.display().to_string()),
            ("{report}", self.report.display().to_string()),
            ("{script}", self.script.display().to_string()),
            ("{attacks}", self.attacks.display().to_string()),
            ("{body}", self.body.display().to_string()),
            ("{http}", http::PORT.to_string()),
            ("{requests}", REQUESTS_PER_S.to_string()),
            ("{mbps}", format!("{:.6}", pps * 8e-6 * f64::from(self.frame.octets))),
            ("{rate}", whole(pps)),
            // For tools without an option for the maximum rate: a rate that no tool reaches.
            ("{most}", whole(self.pps.unwrap_or(1e7))),
            ("{bits}", whole(pps * 8.0 * payload)),
            ("{gap}", whole(1e6 / pps)),
            ("{seconds}", self.seconds.to_string()),
            ("{ms}", (1000 * self.seconds).to_string()),
            ("{from}", wire::ADDRESSES[0].to_owned()),
            ("{to}", wire::ADDRESSES[1].to_owned()),
            ("{mac}", wire::MACS[0].to_owned()),
            ("{tomac}", wire::MACS[1].to_owned()),
            ("{sport}", wire::PORTS[0].to_string()),
            ("{dport}", wire::PORTS[1].to_string()),
        ];
        places.iter().fold(word.to_owned(), |word, (place, value)| word.replace(place, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generator(name: &str) -> Generator {
        Generator::parse(name, Path::new("/bin/squall")).unwrap()
    }

    #[test]
    fn counts_of_sent_frames_are_found_in_the_output() {
        let none = Path::new("/no/such/report");
        for (name, output, expected) in [
            ("tcpreplay", "Actual: 1402 packets (84120 bytes) sent in 0.01 seconds\n", Some(1402)),
            (
                "trafgen",
                "\n\n     3217344 packets outgoing\n   193040640 bytes outgoing\n",
                Some(3_217_344),
            ),
            ("hping3", "9 packets transmitted, 0 packets received, 100% packet loss", Some(9)),
            ("nping", "Raw packets sent: 501 (23.046KB) | Rcvd: 0 (0B)", Some(501)),
            ("iperf3", "{\"end\": {\"sum\": {\"packets\": 77}}}", Some(77)),
            ("mgen", "mgen: version 5", None),
            ("tcpreplay", "killed", None),
        ] {
            assert_eq!(generator(name).claim(output, none), expected, "{name}");
        }
    }

    #[test]
    fn requests_grow_with_the_rate() {
        let frame =
            Frame { octets: 512, packet: "eth".into(), capture: "c".into(), config: "d".into() };
        assert_eq!(body_octets(&frame, None), 212);
        // 15,000 octets, 500 times per second, are 7,500 KB/s.
        let large = body_octets(&frame, Some(7.5e6 / 512.0));
        assert!((14_000..14_100).contains(&large), "{large}");
        assert_eq!(body_octets(&frame, Some(1.0)), 0);
    }

    #[test]
    fn commands_have_no_place_left_open() {
        let frame =
            Frame { octets: 60, packet: "eth".into(), capture: "c".into(), config: "d".into() };
        for known in KNOWN {
            for pps in [None, Some(1000.0)] {
                let report = Path::new("r");
                let (interface, seconds) = ("veth-a", 3);
                let fill = Fill {
                    interface,
                    frame: &frame,
                    pps,
                    seconds,
                    report,
                    script: report,
                    attacks: report,
                    body: report,
                };
                let (_, arguments) = generator(known.name).command(&fill).unwrap();
                assert!(arguments.iter().all(|word| !word.contains('{')), "{arguments:?}");
                assert!(!generator(known.name).script(&fill).contains('{'));
            }
        }
        assert!(Generator::parse("none", Path::new("squall")).is_err());
        let report = Path::new("r");
        let fill = Fill {
            interface: "veth-a",
            frame: &frame,
            pps: Some(1000.0),
            seconds: 3,
            report,
            script: report,
            attacks: report,
            body: report,
        };
        let (_, arguments) = generator("squall").with("--latency").command(&fill).unwrap();
        assert_eq!(arguments.last().map(String::as_str), Some("--latency"));
        assert_eq!(
            generator("rude").script(&fill),
            "START NOW\n0 1 ON 5001 198.18.2.2:5002 CONSTANT 1000 18\n3000 1 OFF\n"
        );
    }
}
