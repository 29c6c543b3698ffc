//! `squall import`: the conversations of a capture as a profile.

use std::{path::PathBuf, process::ExitCode};

use squall::{
    Error,
    import::{conversations, profile},
    importing::{ConversationReport, Delays, Holes, ImportOptions, Transport},
    render::human,
    units::Nanos,
};

use crate::output;

/// Turn the conversations of a capture into a profile of flows
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall import capture.pcap > flows.toml
  squall import capture.pcapng -o flows.toml --delays drop --cps 100
  squall run flows.toml --port clients=eth1 --port servers=eth2

Each TCP and UDP conversation becomes a template: what its client says, what its server says, with \
                        the pauses of each.
Retransmissions, duplicates and packets out of order are gone; where the capture lacks octets, \
                        that is told.")]
pub struct Args {
    /// pcap or pcapng, compressed or not
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Writes the profile there; - is the standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: String,
    /// What becomes of pauses: keep, drop, or a factor such as 0.5
    #[arg(long, value_name = "keep|drop|FACTOR", default_value = "keep", value_parser = delays)]
    delays: Delays,
    /// Shorter pauses are left out: they are the network's rather than the application's
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    shortest_delay: Nanos,
    /// Zeros stand for octets that the capture lacks; else a conversation ends where the first is
    /// missing
    #[arg(long)]
    zeros: bool,
    /// Flows of each template that begin in a second
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = a_second)]
    cps: f64,
    /// Conversations at most
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    most: u32,
    /// Tells nothing of the conversations
    #[arg(short, long)]
    quiet: bool,
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
    let options = ImportOptions {
        delays: args.delays,
        shortest_delay: args.shortest_delay,
        holes: if args.zeros { Holes::Zeros } else { Holes::Cut },
        most_conversations: args.most as usize,
        ..ImportOptions::default()
    };
    let found = conversations(&args.file, &options)?;
    if found.conversations.is_empty() {
        return Err(Error::Usage(format!(
            "{}: there is no conversation over TCP or UDP in it\n  try squall info to see what \
             there is",
            args.file.display()
        )));
    }
    let text = profile(&found, args.cps).to_toml();
    if args.output == "-" {
        output::print(&text);
    } else {
        let (name, file) = output::create(&args.output)?;
        output::write(&name, file, &text)?;
    }
    if !args.quiet {
        for (number, one) in (1..).zip(&found.conversations) {
            let kind = if one.client.transport == Transport::Tcp { "TCP" } else { "UDP" };
            let ((client, from), (server, to)) = (one.client_end, one.server_end);
            eprintln!(
                "{number}: {kind} {client} port {from} to {server} port {to}: {}",
                told(&one.report)
            );
        }
        let left = found.left_out;
        for (n, what) in [
            (left.other_protocols, "of other protocols"),
            (left.damaged, "damaged"),
            (left.fragments, "fragments"),
            (left.multicast, "to groups"),
            (left.port_zero, "from or to port 0"),
            (left.silent, "of conversations in which nobody said anything"),
        ] {
            if n > 0 {
                eprintln!("left out: {} packets {what}", human::count(n));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn told(report: &ConversationReport) -> String {
    let (client, server) = (report.of_client, report.of_server);
    let mut text = format!(
        "{} octets there, {} back, {}",
        human::count(client.octets),
        human::count(server.octets),
        human::seconds(report.duration.as_secs_f64())
    );
    for (n, what) in [
        (client.again + server.again, "octets came again"),
        (client.out_of_order + server.out_of_order, "segments were out of order"),
        (report.cut, "octets are left out, behind a hole"),
    ] {
        if n > 0 {
            text += &format!(", {} {what}", human::count(n));
        }
    }
    report.holes.iter().for_each(|hole| text += &format!("; {hole}"));
    text
}
