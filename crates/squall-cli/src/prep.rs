//! `squall prep`: a counterpart of tcpprep.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use squall::Error;
use squall_offline::prep::{
    Prepared,
    cache::Cache,
    prepare, read,
    split::{Auto, AutoMode, By, Select, Services, Side, Split, SplitError},
};
use squall_units::Cannot;

use crate::{args::command_line, output};

/// Split a capture over two ports (tcpprep)
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall prep web.pcap -o web.cache --auto first              # the first sender is the client
  squall prep web.pcap -o web.cache --auto bridge -R 1.5      # clients open connections
  squall prep web.pcap -o web.cache --cidr 10.0.0.0/8         # by source address
  squall prep web.pcap -o web.cache --regex '^10\\.[12]\\.'
  squall prep web.pcap -o web.cache --port -s /etc/services   # by destination port
  squall prep web.pcap -o web.cache --auto client -x 'F:tcp'  # skip all other packets
  squall prep -S web.cache                                    # statistics of a cache, also of tcpprep's

Packets of clients, and those that --cidr, --regex, --mac or --port matches, leave on the primary \
                        port, all others on the secondary one. The caches are the same as \
                        tcpprep's, octet for octet. Reads pcap and pcapng, also compressed.")]
#[command(group(clap::ArgGroup::new("by").args(["auto", "cidr", "regex", "port", "mac"])))]
#[command(group(clap::ArgGroup::new("print").args(["print_info", "print_comment", "print_stats"])))]
pub struct Args {
    /// Capture to read: pcap or pcapng, compressed or not; - is standard input
    #[arg(value_name = "IN", required_unless_present_any = ["print", "pcap"])]
    input: Option<PathBuf>,
    /// The same as IN, as in tcpprep
    #[arg(short = 'i', long, value_name = "FILE", conflicts_with = "input")]
    pcap: Option<PathBuf>,
    /// Write the cache to this file
    #[arg(short = 'o', long, value_name = "CACHE", required_unless_present = "print")]
    cachefile: Option<PathBuf>,
    /// Store this text in the cache
    #[arg(short = 'C', long, value_name = "TEXT")]
    comment: Option<String>,
    /// Do not store the command line in the cache
    #[arg(long)]
    no_arg_comment: bool,
    /// Print the side of each packet of a cache
    #[arg(short = 'I', long, value_name = "CACHE", conflicts_with_all = ["input", "pcap", "cachefile", "by"])]
    print_info: Option<PathBuf>,
    /// Print the comment of a cache
    #[arg(short = 'P', long, value_name = "CACHE", conflicts_with_all = ["input", "pcap", "cachefile", "by"])]
    print_comment: Option<PathBuf>,
    /// Print the number of packets of a cache on each side
    #[arg(short = 'S', long, value_name = "CACHE", conflicts_with_all = ["input", "pcap", "cachefile", "by"])]
    print_stats: Option<PathBuf>,
    /// Print no summary
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    split: Rules,
}

/// Rules that determine the side of a packet.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Sides")]
pub struct Rules {
    /// Classify hosts by their behavior: hosts that open TCP connections or send DNS queries are
    /// clients, hosts that answer are servers. Hosts that do neither are an error (bridge),
    /// clients, servers, or servers if they are in a network of servers (router). With first, hosts
    /// that send before they receive are clients
    #[arg(short = 'a', long, value_name = "MODE", value_parser = parse_mode)]
    auto: Option<AutoMode>,
    /// Classify packets by source networks: 10.0.0.0/8,[fe80::/16]
    #[arg(short = 'c', long, value_name = "NETWORKS", value_parser = text(By::cidr))]
    cidr: Option<By>,
    /// Classify packets by a regular expression for the source address as text
    #[arg(short = 'r', long, value_name = "EXPRESSION", value_parser = text(By::regex))]
    regex: Option<By>,
    /// Classify packets by TCP or UDP destination port: those to services, below 1024, are of
    /// clients
    #[arg(short = 'p', long)]
    port: bool,
    /// Classify packets by source MAC address: 02:00:00:00:00:01,02:00:00:00:00:02
    #[arg(short = 'e', long, value_name = "MACS", value_parser = text(By::mac))]
    mac: Option<By>,
    /// Exchange the two ports, but not for packets without IP
    #[arg(long)]
    reverse: bool,
    /// Send packets without IP on the primary port instead of the secondary
    #[arg(short = 'N', long)]
    nonip: bool,
    /// Read the ports of services from FILE, with lines such as 'http 80/tcp', as in /etc/services
    #[arg(short = 's', long, value_name = "FILE", requires = "port")]
    services: Option<PathBuf>,
    /// With --auto: take a host for a server if it behaves at least RATIO times as often like a
    /// server as like a client [default: 2.0]
    #[arg(short = 'R', long, value_name = "RATIO", requires = "auto", value_parser = parse_ratio)]
    ratio: Option<f64>,
    /// With --auto router: try networks up to this prefix length; four times as long in IPv6
    /// [default: 30]
    #[arg(short = 'm', long, value_name = "BITS", requires = "auto", value_parser = clap::value_parser!(u8).range(0..=32))]
    minmask: Option<u8>,
    /// With --auto router: try networks from this prefix length on; four times as long in IPv6
    /// [default: 8]
    #[arg(short = 'M', long, value_name = "BITS", requires = "auto", value_parser = clap::value_parser!(u8).range(0..=32))]
    maxmask: Option<u8>,
    /// Send only packets that match RULE: S: source, D: destination, B: both, E: either in networks
    /// (S:10.0.0.0/8), P: packets by number (P:1-5,9,72-), F: a filter (F:tcp port 80)
    #[arg(short = 'x', long, value_name = "RULE", conflicts_with = "exclude", value_parser = text(|rule| Select::parse(rule, false)))]
    include: Option<Select>,
    /// Send only packets that do not match RULE
    #[arg(short = 'X', long, value_name = "RULE", value_parser = text(|rule| Select::parse(rule, true)))]
    exclude: Option<Select>,
}

pub fn prep(args: &Args) -> Result<ExitCode, Error> {
    if let Some(path) = &args.print_info {
        return Ok(print(&sides(&read(path)?)));
    }
    if let Some(path) = &args.print_comment {
        let cache = read(path)?;
        return Ok(print(&format!(
            "Comment: {}\nCache contains data for {} packets\n",
            cache.comment(),
            cache.len()
        )));
    }
    if let Some(path) = &args.print_stats {
        return Ok(print(&read(path)?.counts().to_string()));
    }
    let Some((input, out)) =
        args.input.as_ref().or(args.pcap.as_ref()).zip(args.cachefile.as_ref())
    else {
        return Err(Error::Usage("expected a capture and --cachefile".into()));
    };
    let Some(split) = args.split.split()? else {
        return Err(Error::Usage(
            "cannot split without a rule\n  expected one of --auto MODE, --cidr, --regex, \
             --port, --mac\n  try --auto first"
                .into(),
        ));
    };
    let line = if args.no_arg_comment { None } else { Some(command_line()) };
    // A comment starts on a new line, as in tcpprep's caches, even if there is no line before it.
    let own = args.comment.as_ref().map_or_else(String::new, |text| format!("\n{text}"));
    let Prepared { cache, fault } = prepare(input, &split, &(line.unwrap_or_default() + &own))?;
    if cache.is_empty() && fault.is_none() {
        return Err(Error::Usage(format!("{}: it has no packets", input.display())));
    }
    write(out, &cache)?;
    if !args.quiet {
        print(&format!("{}\n{}", out.display(), cache.counts()));
    }
    let Some(fault) = fault else { return Ok(ExitCode::SUCCESS) };
    eprintln!(
        "squall: {}: {fault}\n  the cache has the {} packets before it",
        input.display(),
        cache.len()
    );
    Ok(ExitCode::from(2))
}

impl Rules {
    /// Returns `None` if there is no rule.
    pub fn split(&self) -> Result<Option<Split>, Error> {
        let by = if let Some(mode) = self.auto {
            let default = Auto::default();
            let prefix = (
                self.maxmask.unwrap_or(default.prefix.0),
                self.minmask.unwrap_or(default.prefix.1),
            );
            if prefix.0 > prefix.1 {
                let (shortest, longest) = prefix;
                let text = format!(
                    "--maxmask {shortest} --minmask {longest}: the shortest prefix is longer than \
                     the longest"
                );
                return Err(Error::Usage(text + "\n  try to exchange the two values"));
            }
            By::Auto(Auto { mode, ratio: self.ratio.unwrap_or(default.ratio), prefix })
        } else if self.port {
            By::Port(Box::new(
                self.services.as_deref().map_or_else(|| Ok(Services::default()), services)?,
            ))
        } else if let Some(by) = self.cidr.as_ref().or(self.regex.as_ref()).or(self.mac.as_ref()) {
            by.clone()
        } else {
            return Ok(None);
        };
        let select = self.include.clone().or_else(|| self.exclude.clone());
        let non_ip = if self.nonip { Side::Primary } else { Side::Secondary };
        Ok(Some(Split { reverse: self.reverse, non_ip, select, ..Split::new(by) }))
    }
}

fn services(path: &Path) -> Result<Services, Error> {
    let text = squall_profile::read_file(path).map_err(|error| Cannot::read(path, &error))?;
    Services::parse(&String::from_utf8_lossy(&text))
        .map_err(|error| Error::Usage(format!("{}: {error}", path.display())))
}

/// Prints the sides in tcpprep's format.
fn sides(cache: &Cache) -> String {
    let mut text = String::new();
    for (side, number) in cache.sides().zip(1u64..) {
        let side = match side {
            Side::Primary => "Primary",
            Side::Secondary => "Secondary",
            Side::Skip => "Don't Send",
        };
        let _ = writeln!(text, "Packet {number} -> {side}");
    }
    text
}

fn write(path: &Path, cache: &Cache) -> Result<(), Error> {
    let (name, mut file) = output::create(&path.to_string_lossy())?;
    let written = std::io::Write::write_all(&mut file, &cache.to_bytes());
    Ok(written.map_err(|error| Cannot::write(name, &error))?)
}

fn print(text: &str) -> ExitCode {
    output::print(text);
    ExitCode::SUCCESS
}

/// Adapts a parser to clap.
fn text<T>(
    parse: impl Fn(&str) -> Result<T, SplitError> + Clone,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| parse(text).map_err(|error| error.to_string())
}

fn parse_mode(text: &str) -> Result<AutoMode, String> {
    text.parse().map_err(|error: SplitError| error.to_string())
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio: &f64| ratio.is_finite() && *ratio >= 0.0);
    ratio.ok_or_else(|| "expected a number of 0 or more, such as 1.5".into())
}
