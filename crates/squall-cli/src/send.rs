//! `squall send`: sends one stream. The arguments are converted to a profile, which runs like one
//! from a file.

use std::process::ExitCode;

use clap::ArgGroup;
use squall::Error;
use squall_options::ReceivedFlows;
use squall_profile::short::{self, Short};
use squall_units::Rate;

use crate::{
    args::{Choice, Given, Options, Output, two},
    drive::drive,
    output,
};

/// Send one stream of frames
#[derive(Debug, clap::Args)]
// --rate is optional only with --count, which clap cannot show.
#[command(
    override_usage = "squall send [OPTIONS] -p <ADDR> -r <RATE> <--packet <TEXT>|--hex <HEX>|--pcap <FILE#N>>"
)]
#[command(after_help = "\
Examples:
  squall send --port eth1 --packet 'eth/ipv4(dst=10.0.0.2)/udp(dport=53)' --rate 10kpps --duration 10s
  squall send --port veth-a --to veth-b --packet eth/ipv4/udp --size imix --rate 100Mbps -d 10s --latency
  squall send --port eth1 --packet 'eth/ipv4(dst=48.0.0.1)/tcp(dport=80,flags=S)' --rate 50% --vary ipv4.src=random:16.0.0.1-16.0.255.254 --vary tcp.sport=increment:1024-65535 --fail-if 'not_sent > 0'
  squall send --port pcap:out.pcap --packet eth/ipv4/udp --rate 1Mpps --count 1000
  squall send --port loop:0 --pcap capture.pcap#3 --rate max --count 1M
  squall send --port eth1 --packet eth/ipv4/udp --rate 1kpps --print-profile > stream.toml

--vary FIELD=OP, where FIELD is a name (ipv4.src, vlan[1].id) or @OFFSET:OCTETS[&MASK], and OP is one of
  increment:MIN-MAX  decrement:MIN-MAX  random:MIN-MAX  list:A,B,C  weighted:A*3,B*1  file:PATH
  with :step=N :init=V (increment, decrement), :limit=N :seed=N (random), :after=OTHER (changes when OTHER wraps);
  ipv4.src+udp.sport=tuple:ADDRESS-ADDRESS,PORT-PORT goes through all pairs

Exit status: 0 done, 1 failed by --fail-if, 2 wrong usage or input, 3 environment, 4 NOT VALID (unless \
            --allow-invalid), 129, 130, 143 interrupted before its end by SIGHUP, SIGINT, SIGTERM.")]
pub struct Args {
    /// Send on this port: eth1, af_packet:eth1, loop:NAME, pcap:FILE, null:
    #[arg(short, long, visible_short_alias = 'i', value_name = "ADDR")]
    port: String,
    /// Also receive on ADDR and measure what arrives (the sending ADDR, for frames that a device
    /// reflects)
    #[arg(long, visible_alias = "port2", value_name = "ADDR")]
    to: Option<String>,
    #[command(flatten)]
    stream: Given<Stream>,
    /// Print the equivalent profile, and send nothing
    #[arg(long, help_heading = "Result")]
    print_profile: bool,
    #[command(flatten)]
    options: Options<OfSenders>,
    #[command(flatten)]
    output: Output,
}

/// Keys of a stream in the profile.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("frame").required(true).args(["packet", "hex", "pcap"]))]
struct Stream {
    /// Send this packet, given as headers, outermost first:
    /// 'eth(dst=02:00:00:00:00:09)/ipv4(dst=10.0.0.2)/udp(dport=53)'
    #[arg(long, value_name = "TEXT", help_heading = "Frame")]
    packet: Option<String>,
    /// Send the octets of this frame, without FCS; or a dump of it by tcpdump -xx or Wireshark:
    /// "$(cat dump.txt)"
    #[arg(long, value_name = "HEX", help_heading = "Frame")]
    hex: Option<String>,
    /// Send frame N of a capture, counted from 1
    #[arg(long, value_name = "FILE#N", help_heading = "Frame")]
    pcap: Option<String>,
    /// Set the frame length in octets with FCS: 64, imix, 64-1518, 64-1518/64, 64,594,1518,
    /// uniform=64-1518, mean=512,sd=100, weights=64*7,594*4
    #[arg(short, long, value_name = "SIZE", help_heading = "Frame")]
    size: Option<String>,
    /// Send GSO frames, which kernel, NIC or Squall cut into frames with this many octets of TCP or
    /// UDP payload
    #[arg(long, value_name = "OCTETS", help_heading = "Frame")]
    segment: Option<u64>,
    /// Vary a field from frame to frame, see below; repeatable
    #[arg(short, long, value_name = "FIELD=OP", help_heading = "Frame")]
    vary: Vec<String>,
    /// Sign frames, so that the receiver measures loss, order and delay
    #[arg(short, long, help_heading = "Frame")]
    latency: bool,
    /// Send at this rate: 10kpps, 1.5Gbps (L2), '2 Gbps l1', 30%, max; with --count alone: max
    #[arg(
        short,
        long,
        value_name = "RATE",
        required_unless_present = "packets",
        help_heading = "Schedule"
    )]
    rate: Option<Rate>,
    /// Send continuously or in bursts: continuous, burst=1000, bursts=5,packets=4,gap=1s
    #[arg(long, value_name = "MODE", help_heading = "Schedule")]
    mode: Option<String>,
    /// Draw the gaps between frames from this law: constant, exponential, uniform=0.5, normal=0.1,
    /// pareto=1.5, weibull=2, gamma=2, on=10ms,off=90ms, file=gaps.txt
    #[arg(long, value_name = "LAW", help_heading = "Schedule")]
    departures: Option<String>,
    /// Treat late frames in this way: smooth, catch-up, drop, stretch [default: smooth]
    #[arg(long, value_name = "POLICY", help_heading = "Schedule")]
    late: Option<String>,
    /// Name the stream in reports
    #[arg(long, default_value = "stream 1")]
    name: String,
}

/// Run options of senders; `--to` decides whether they receive.
#[derive(Debug)]
pub struct OfSenders;

impl Choice for OfSenders {
    fn has(name: &str) -> bool {
        !["receive", "labels", "key_log", "routes_csv"].contains(&name)
    }
}

pub fn send(args: &Args) -> Result<ExitCode, Error> {
    let profile = short::stream(Short {
        command: "squall send",
        ports: &two(&args.port, args.to.as_ref()),
        arguments: &args.stream.arguments,
    })?;
    let rate = profile.streams.first().map_or(Rate::MAX, |s| s.rate);
    let mut session = args.options.session(profile)?;
    if args.print_profile {
        output::print_data(&session.profile.to_toml());
        return Ok(ExitCode::SUCCESS);
    }
    // Without another port, frames return only on a loop link. On any other port, all frames would
    // count as lost.
    let receive = args.to.is_some() || args.port.starts_with("loop:");
    let run = &args.options.run;
    let received = [
        ("--capture", run.capture.is_some()),
        ("--filter", run.filter.is_some()),
        ("--histogram", run.gap_bins.is_some()),
        ("--received-flows", run.received_flows == Some(ReceivedFlows::Measured(true))),
    ];
    if let Some((name, _)) = received.iter().find(|(_, given)| *given && !receive) {
        return Err(Error::Usage(format!(
            "{name} has no effect, because nothing is received\n  try it with --to ADDR"
        )));
    }
    session.options.receive = Some(receive);
    drive(session, &args.output, &format!("squall send {rate} on {}", args.port))
}
