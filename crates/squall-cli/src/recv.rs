//! `squall recv`: listens, and sends nothing.

use std::process::ExitCode;

use squall::{
    Error, Session,
    units::{Nanos, parse_count},
};

use crate::{
    args::{Output, command_line},
    drive::{End, drive_until},
};

/// Receives without sending: loss, order, delay and gaps of every signed stream that comes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall recv --port eth1                                    # until Ctrl-C
  squall recv --port veth-b --duration 10s --json recv.json
  squall recv --port pcap:capture.pcap,read                  # what a capture holds

Lost is what is missing between the first and the last sequence number of a stream that was signed (latency = true in a
profile, --latency with squall send). One-way delay needs sender and receiver on one clock, that is on one machine.")]
pub struct Args {
    /// Where to receive; repeatable
    #[arg(short, long, value_name = "ADDR", required = true)]
    port: Vec<String>,
    /// Ends after so long: 10s, 1m30s
    #[arg(short, long, value_name = "TIME")]
    duration: Option<Nanos>,
    /// Ends soon after so many frames
    #[arg(short = 'n', long, value_name = "N", value_parser = parse_count)]
    count: Option<u64>,
    #[command(flatten)]
    output: Output,
}

pub fn recv(args: &Args) -> Result<ExitCode, Error> {
    // A, B, ... as in profiles.
    let name = |i: usize| match u8::try_from(i) {
        Ok(i) if i < 26 => char::from(b'A' + i).to_string(),
        _ => format!("port {}", i + 1),
    };
    let ports = args.port.iter().enumerate().map(|(i, address)| (name(i), address.clone()));
    let session = Session { command: command_line(), ..Session::listen(ports) };
    let end = End { after_s: args.duration.map(Nanos::as_secs_f64), received: args.count };
    drive_until(session, &args.output, &format!("squall recv on {}", args.port.join(", ")), end, |_| String::new())
}
