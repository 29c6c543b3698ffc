//! `squall import`: turns the conversations of a capture into a profile.

use std::{path::PathBuf, process::ExitCode};

use squall::Error;
use squall_apps::{ConversationReport, Delays, Holes, ImportOptions, Imported, Transport};
use squall_offline::import::{conversations, profile};
use squall_report::render::human;
use squall_units::Nanos;

use crate::{args::TrexOptions, output};

/// Turn the conversations of a capture into a profile of flows
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  squall import capture.pcap > flows.toml
  squall import capture.pcapng -o flows.toml --delays drop --cps 100
  squall run flows.toml --port clients=eth1 --port servers=eth2
  squall import trex profile.py -i eth1 -t size=128 --trex-lib FOLDER -o streams.toml

Each TCP and UDP conversation becomes a template: the data that its client and its server send, \
                        with their pauses. Retransmissions, duplicates and reordering are removed; \
                        octets that are missing in the capture are reported."
)]
pub struct Args {
    /// Capture to read: pcap or pcapng, compressed or not
    #[arg(value_name = "FILE", required = true)]
    file: Option<PathBuf>,
    #[command(subcommand)]
    from: Option<From>,
    /// Write the profile to FILE; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: String,
    /// Keep the pauses, drop them, or multiply them by a factor such as 0.5
    #[arg(long, value_name = "keep|drop|FACTOR", default_value = "keep", value_parser = delays)]
    delays: Delays,
    /// Drop pauses shorter than this, which come from the network rather than the application
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    shortest_delay: Nanos,
    /// Replace octets that are missing in the capture with zeros, instead of ending a conversation
    /// at the first one
    #[arg(long)]
    zeros: bool,
    /// Start N flows of each template per second
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = a_second)]
    cps: f64,
    /// Import at most N conversations
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    most: u32,
    /// List each conversation, even if there are more than 20
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Print no summary and no conversations
    #[arg(short, long)]
    quiet: bool,
}

/// Maximum number of conversations to list without `--verbose`: thousands of lines would bury the
/// summary.
const LISTED: usize = 20;

#[derive(Debug, clap::Subcommand)]
enum From {
    /// Turn a profile of TRex into a profile of Squall
    Trex(Trex),
}

#[derive(Debug, clap::Args)]
struct Trex {
    /// The profile: a program in Python, or streams in YAML or JSON
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,
    /// Write the profile to FILE; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: String,
    #[command(flatten)]
    options: TrexOptions,
}

fn write(to: &str, text: &str) -> Result<(), Error> {
    if to == "-" {
        output::print(text);
        return Ok(());
    }
    let (name, file) = output::create(to)?;
    output::write(&name, file, text)
}

fn delays(text: &str) -> Result<Delays, String> {
    match (text, text.parse::<f64>()) {
        ("keep", _) => Ok(Delays::Keep),
        ("drop", _) => Ok(Delays::Drop),
        (_, Ok(factor)) if factor > 0.0 && factor <= 1e6 => Ok(Delays::Scale(factor)),
        _ => Err("expected keep, drop, or a factor above 0".into()),
    }
}

fn a_second(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
    number.ok_or_else(|| "expected a number above 0".into())
}

pub fn import(args: &Args) -> Result<ExitCode, Error> {
    if let Some(From::Trex(trex)) = &args.from {
        write(&trex.output, &trex.options.load(&trex.profile)?.to_toml())?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(file) = &args.file else { return Err(Error::Usage("expected a capture".into())) };
    let options = ImportOptions {
        delays: args.delays,
        shortest_delay: args.shortest_delay,
        holes: if args.zeros { Holes::Zeros } else { Holes::Cut },
        most_conversations: args.most as usize,
        ..ImportOptions::default()
    };
    let found = conversations(file, &options)?;
    if found.conversations.is_empty() {
        return Err(Error::Usage(format!(
            "{}: it has no TCP or UDP conversation\n  try squall info to see its contents",
            file.display()
        )));
    }
    let text = profile(&found, args.cps).to_toml();
    write(&args.output, &text)?;
    if !args.quiet {
        let listed = args.verbose || found.conversations.len() <= LISTED;
        for (number, one) in (1..).zip(&found.conversations).filter(|_| listed) {
            let kind = if one.client.transport == Transport::Tcp { "TCP" } else { "UDP" };
            let ((client, from), (server, to)) = (one.client_end, one.server_end);
            eprintln!(
                "{number}: {kind} {client} port {from} to {server} port {to}: {}",
                described(&one.report)
            );
        }
        let is_tcp = |one: &&Imported| one.client.transport == Transport::Tcp;
        let tcp = found.conversations.iter().filter(is_tcp).count();
        let reports = found.conversations.iter().map(|one| &one.report);
        eprintln!("{}", summary(tcp, &reports.collect::<Vec<_>>()));
        if !listed {
            eprintln!("try --verbose to list the conversations");
        }
        let left = found.left_out;
        for (n, what) in [
            (left.other_protocols, "of other protocols"),
            (left.damaged, "damaged"),
            (left.fragments, "fragments"),
            (left.multicast, "to multicast or broadcast addresses"),
            (left.port_zero, "from or to port 0"),
            (left.silent, "of conversations without data"),
        ] {
            if n > 0 {
                eprintln!("left out: {} {what}", human::counted(n, "packet"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Summary of all conversations. `tcp` is the number of those over TCP.
fn summary(tcp: usize, reports: &[&ConversationReport]) -> String {
    let udp = reports.len() - tcp;
    let of = |n: fn(&ConversationReport) -> u64| reports.iter().map(|report| n(report)).sum();
    let mut text = format!(
        "{} conversation{} ({} TCP, {} UDP): {} octets from clients, {} from servers",
        human::count(reports.len() as u64),
        if reports.len() == 1 { "" } else { "s" },
        human::count(tcp as u64),
        human::count(udp as u64),
        human::count(of(|r| r.of_client.octets)),
        human::count(of(|r| r.of_server.octets)),
    );
    text += &irregular(
        of(|r| r.of_client.again + r.of_server.again),
        of(|r| r.of_client.out_of_order + r.of_server.out_of_order),
        of(|r| r.cut),
    );
    let holed = reports.iter().filter(|report| !report.holes.is_empty()).count();
    if holed > 0 {
        text += &format!("; octets are missing in {} of them", human::count(holed as u64));
    }
    text
}

fn described(report: &ConversationReport) -> String {
    let (client, server) = (report.of_client, report.of_server);
    let mut text = format!(
        "{} octets from the client, {} from the server, {}",
        human::count(client.octets),
        human::count(server.octets),
        human::seconds(report.duration.as_secs_f64())
    );
    text += &irregular(
        client.again + server.again,
        client.out_of_order + server.out_of_order,
        report.cut,
    );
    report.holes.iter().for_each(|hole| text += &format!("; {hole}"));
    text
}

fn irregular(again: u64, out_of_order: u64, cut: u64) -> String {
    let mut text = String::new();
    for (n, what) in [
        (again, "octets were sent again"),
        (out_of_order, "segments were out of order"),
        (cut, "octets after a hole are left out"),
    ] {
        if n > 0 {
            text += &format!(", {} {what}", human::count(n));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_the_sums_and_what_is_missing() {
        let mut one = ConversationReport::default();
        (one.of_client.octets, one.of_server.octets, one.of_server.again) = (1000, 20, 5);
        let two = ConversationReport { cut: 7, ..one.clone() };
        assert_eq!(
            summary(1, &[&one, &two]),
            "2 conversations (1 TCP, 1 UDP): 2,000 octets from clients, 40 from servers, 10 octets \
             were sent again, 7 octets after a hole are left out"
        );
    }
}
