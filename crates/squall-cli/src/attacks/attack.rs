//! `squall attack`: traffic that makes an intrusion detection system raise the alerts of given
//! rules. The arguments are converted to a profile, which runs like one from a file.

use std::{path::PathBuf, process::ExitCode};

use squall::Error;
use squall_profile::short::{self, Short};
use squall_report::render::attack;

use crate::{
    args::{Choice, Given, Options, Output, two},
    drive::{End, Signals, drive_until, resolve},
    output,
};

/// Make traffic from Snort or Suricata rules that raises exactly their alerts, with its ground
/// truth
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall attack local.rules                                  # into attacks.pcap, labels next to it
  squall attack community.rules -i pcap:out.pcap --labels out.csv --near-miss also
  squall attack rules/ --list                                # the rules: solved, or the reason why \
                        not
  squall attack local.rules --explain 2019401                # how a rule was solved, and where \
                        each octet comes from
  squall attack local.rules -i eth1 -I eth2 --rate 50        # through a device: passed or blocked, \
                        by sid
  squall attack local.rules -i eth1 --sid 1000-1999 --rate 10 --shuffle --repeat 100
  squall attack local.rules --background clean.pcap --share '1 %' --labels truth.jsonl
  squall attack local.rules --var HOME_NET=10.0.0.0/8 --inside 10.1.0.1-10.1.0.9 --evasion \
                        segments=8
  squall attack --template syn-scan -i pcap:scan.pcap --option ports=1-1024
  squall score --labels out.csv --alerts eve.json            # what an engine found

Payloads are octets that match the rules' patterns; they exploit nothing. Frames leave only on the \
                        ports that you name; without a port they go into attacks.pcap. Inside \
                        addresses are those of RFC 1918, outside addresses 198.18.0.0/15 (RFC \
                        2544), unless the rules or options require others. Without --labels, the \
                        labels of pcap:NAME.pcap go into NAME.labels.csv.

Exit status: 0 done, 1 failed by --fail-if, 2 wrong usage or input, 3 environment, 4 NOT VALID \
                        (unless --allow-invalid), 129, 130, 143 interrupted before its end by \
                        SIGHUP, SIGINT, SIGTERM.")]
pub struct Args {
    #[command(flatten)]
    what: Given<What>,
    /// Print the equivalent profile, and send nothing
    #[arg(long)]
    print_profile: bool,
    #[command(flatten)]
    options: Options<OfAttacks>,
    #[command(flatten)]
    output: Output,
}

/// Selection, number and form of the attacks.
#[derive(Debug, clap::Args)]
struct What {
    /// Read rules (Snort 2, Snort 3, Suricata) from these files, or folders of files
    #[arg(value_name = "RULES", required_unless_present_any = ["template", "templates", "evasions"])]
    rules: Vec<PathBuf>,
    /// Run clients on this port, and servers if there is no --port2: eth1, af_packet:eth1,
    /// pcap:FILE, loop:NAME, null:
    #[arg(short = 'i', long, value_name = "ADDR", default_value = "pcap:attacks.pcap")]
    port: String,
    /// Run servers on this port, with a device or an IDS in between
    #[arg(short = 'I', long, value_name = "ADDR")]
    port2: Option<String>,
    /// With --port2, send prepared frames instead of running conversations on Squall's own TCP/UDP
    /// stack
    #[arg(long, requires = "port2")]
    frames: bool,

    /// Use only these rules: 1234, 1000-2000; repeatable
    #[arg(long, value_name = "SID", help_heading = "Which rules")]
    sid: Vec<String>,
    /// Use only rules of this class; repeatable
    #[arg(long, value_name = "CLASS", help_heading = "Which rules")]
    classtype: Vec<String>,
    /// Use only rules whose message matches the regular expression EXPR
    #[arg(long, value_name = "EXPR", help_heading = "Which rules")]
    msg: Option<String>,
    /// Set a variable of the rules: HOME_NET=10.0.0.0/8; repeatable
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Which rules")]
    var: Vec<String>,
    /// Take variables from a suricata.yaml or snort.conf
    #[arg(long, value_name = "FILE", help_heading = "Which rules")]
    config: Option<PathBuf>,
    /// Predict the alerts of this engine, and refuse rules that it does not load: suricata7,
    /// suricata8, snort2, snort3 [default: convert rules of all engines, match as Suricata 8]
    #[arg(long, value_name = "ENGINE", help_heading = "Which rules")]
    engine: Option<String>,
    /// List the rules, each as solved or with the reason why not; send nothing
    #[arg(long, help_heading = "Which rules")]
    list: bool,
    /// Show how the rule was solved and which option set each octet; for an unsolved rule, the
    /// option that failed and the closest attempt. Send nothing
    #[arg(long, value_name = "SID", help_heading = "Which rules")]
    explain: Option<u32>,

    /// Send a scan, a flood or another template instead of rules
    #[arg(long, value_name = "NAME", conflicts_with = "rules", help_heading = "Templates")]
    template: Option<String>,
    /// Set an option of the template: ports=1-1024; repeatable
    #[arg(long, value_name = "NAME=VALUE", requires = "template", help_heading = "Templates")]
    option: Vec<String>,
    /// List the templates and their options
    #[arg(long, help_heading = "Templates")]
    templates: bool,

    /// Start N attacks per second [default: 100]
    #[arg(long, value_name = "N", help_heading = "How much")]
    rate: Option<String>,
    /// With --background, set the attacks' share of all octets: '1 %'
    #[arg(
        long,
        value_name = "PERCENT",
        conflicts_with = "rate",
        requires = "background",
        help_heading = "How much"
    )]
    share: Option<String>,
    /// Repeat all attacks N times, each time from other addresses
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "How much")]
    repeat: Option<u64>,
    /// Shuffle the order of attacks (depends on the seed)
    #[arg(long, help_heading = "How much")]
    shuffle: bool,
    /// Send N different attacks for each rule
    #[arg(long, value_name = "N", help_heading = "How much")]
    samples: Option<u32>,
    /// Send one attack for each branch of a rule's expressions
    #[arg(long, help_heading = "How much")]
    every_branch: bool,
    /// Add near misses, which differ in one octet and must not alert (also), or send nothing else
    /// (only)
    #[arg(long, value_name = "no|also|only", help_heading = "How much")]
    near_miss: Option<String>,
    /// Start the first attack after this time
    #[arg(long, value_name = "TIME", help_heading = "How much")]
    start: Option<String>,

    /// Make attacks harder to detect: segments=8; repeatable
    #[arg(long, value_name = "HOW", help_heading = "How")]
    evasion: Vec<String>,
    /// List the evasions
    #[arg(long, help_heading = "How")]
    evasions: bool,
    /// Use these hosts inside the protected network: 10.0.0.1-10.0.0.9; repeatable
    #[arg(long, value_name = "RANGE", help_heading = "How")]
    inside: Vec<String>,
    /// Use these hosts outside; repeatable
    #[arg(long, value_name = "RANGE", help_heading = "How")]
    outside: Vec<String>,
    /// Use IPv6 where rules leave it open
    #[arg(short = '6', long, help_heading = "How")]
    ipv6: bool,
    /// Encapsulate packets, from outside in: 'vlan 7', 'gre 192.0.2.1 192.0.2.2'; repeatable
    #[arg(long, value_name = "WHAT", help_heading = "How")]
    wrap: Vec<String>,
    /// Leave this gap between the frames of an attack [default: 100us]
    #[arg(long, value_name = "TIME", help_heading = "How")]
    gap: Option<String>,
    /// Mix in a capture without attacks until the attacks end
    #[arg(long, value_name = "FILE", help_heading = "How")]
    background: Option<PathBuf>,
    /// Send all packets of live clients to this router; once for each of IPv4 and IPv6
    #[arg(long, value_name = "IP", requires = "port2", help_heading = "How")]
    gateway: Vec<String>,
    /// Send all packets of live servers to this router; once for each of IPv4 and IPv6
    #[arg(long, value_name = "IP", requires = "port2", help_heading = "How")]
    gateway2: Vec<String>,
}

/// Run options of attacks; `--port2` decides whether they receive.
#[derive(Debug)]
pub struct OfAttacks;

impl Choice for OfAttacks {
    fn has(name: &str) -> bool {
        ["duration", "abort_if", "cpus", "seed", "clock", "force", "labels", "fingerprint"]
            .contains(&name)
    }
}

pub fn attack_command(args: &Args) -> Result<ExitCode, Error> {
    let what = &args.what.args;
    if what.templates || what.evasions {
        let list = if what.templates {
            squall_attacking::list_templates()
        } else {
            squall_attacking::list_evasions()
        };
        output::print(&list);
        return Ok(ExitCode::SUCCESS);
    }
    let profile = short::attack(Short {
        command: "squall attack",
        ports: &two(&what.port, what.port2.as_ref()),
        arguments: &args.what.arguments,
    })?;
    let mut session = args.options.session(profile)?;
    if args.print_profile {
        output::print_data(&session.profile.to_toml());
        return Ok(ExitCode::SUCCESS);
    }
    if session.profile.attacks.is_empty() {
        return Err(Error::Usage("there is no attack\n  try squall attack local.rules".into()));
    }
    if what.list || what.explain.is_some() {
        let resolved = resolve(session, args.output.quiet, &Signals::catch()?)?;
        let Some(prepared) = resolved.attacks() else { return Ok(ExitCode::SUCCESS) };
        output::print(&if what.list { prepared.list() } else { prepared.explain() });
        return Ok(ExitCode::SUCCESS);
    }
    session.options.receive = Some(what.port2.is_some());
    session.options.labels = session.options.labels.or_else(|| what.default_labels());
    let title = format!("squall attack on {}", what.port);
    let labels = session.options.labels.clone();
    let extra = move |report: &_| {
        attack(report)
            + &labels
                .as_ref()
                .map_or_else(String::new, |path| format!("Labels: {}\n", path.display()))
    };
    drive_until(session, &args.output, &title, End::default(), |_| {}, extra)
}

impl What {
    /// Default path of the labels: that of the capture, with another extension.
    fn default_labels(&self) -> Option<PathBuf> {
        let path = self.port.strip_prefix("pcap:")?.split(',').next()?;
        let stem =
            [".pcapng", ".pcap"].iter().find_map(|end| path.strip_suffix(end)).unwrap_or(path);
        (path != "-").then(|| PathBuf::from(format!("{stem}.labels.csv")))
    }
}
