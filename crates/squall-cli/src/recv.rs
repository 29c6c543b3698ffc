//! `squall recv`: receives without sending.

use std::{process::ExitCode, time::Duration};

use clap::{Arg, ValueEnum, builder::PossibleValue};
use squall::{
    Error, RunOptions, Session,
    report::{EqualBins, Report},
};
use squall_doctor::selftest::{self, Floor};
use squall_options::{FlowOptions, ReceivedFlows, Time};
use squall_port_linux::lab;
use squall_report::render::{self, human};
use squall_units::{Cannot, Nanos};

use crate::{
    args::{Choice, Options, Output, command_line, parse_some, parse_time, unpromiscuous},
    drive::{End, drive_until},
    output::{WIDTH, look, print, write_to},
    table::{Side, table},
};

/// Receive without sending: measure rates, gaps, loss, order and delay, in total, by source and
/// by flow
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall recv --port eth1                                    # until Ctrl-C
  squall recv --port eth1 --udp 5001 --duration 10s          # iperf3, MGEN, RTP, ...: any sender \
                        that numbers its packets
  squall recv --port veth-b --duration 10s --json recv.json
  squall recv --port pcap:capture.pcap,read                  # the contents of a capture
  squall recv --port eth1 -n 100k --histogram 50:10us        # gaps between frames, 0 to 500 us
  squall recv --port eth1 --by source --top 50
  squall recv --self-test --json floor.json                  # measure this machine's own \
                        deviations
  squall recv --port eth1 --floor floor.json
  squall recv --port eth1 --src 10.0.0.0/8 --fail-if 'loss_ratio > 0.1 % or gap.stddev > 50us'

Sequence numbers are those of Squall's signature (latency = true in a profile, --latency with \
                        squall send), or of MGEN, RUDE, TRex, iperf3 -u and RTP senders, which are \
                        detected (--sequence). Numbers missing between the first and the last one \
                        are lost frames. One-way delay needs sender and receiver on one machine, \
                        or on synchronized ones. A burst is two or more frames, each at most \
                        --burst-gap after the one before.")]
pub struct Args {
    /// Receive on ADDR; repeatable
    #[arg(short, long, value_name = "ADDR", required_unless_present = "self_test")]
    port: Vec<String>,
    /// Receive only frames from or to this address or network: 10.0.0.1, 2001:db8::/32
    #[arg(long, value_name = "ADDR[/LEN]", help_heading = "Filter (all together, with --filter)")]
    host: Option<String>,
    /// Receive only frames from this address or network
    #[arg(long, value_name = "ADDR[/LEN]", help_heading = "Filter (all together, with --filter)")]
    src: Option<String>,
    /// Receive only frames to this address or network
    #[arg(long, value_name = "ADDR[/LEN]", help_heading = "Filter (all together, with --filter)")]
    dst: Option<String>,
    /// Receive only UDP from or to this port; repeatable
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Filter (all together, with --filter)")]
    udp: Vec<u16>,
    /// Receive only TCP from or to this port; repeatable
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Filter (all together, with --filter)")]
    tcp: Vec<u16>,
    /// Measure separately by this
    #[arg(long, value_enum, value_name = "WHAT", default_value = "flow", help_heading = "Flows")]
    by: ByWhat,
    /// Show N rows in the tables of flows and sources; the JSON has all
    #[arg(long, value_name = "N", value_parser = parse_some, default_value = "20", help_heading = "Flows")]
    top: u64,
    /// Measure at most N flows in each receive queue (about 0.4 KiB each, 3 to 12 KiB with
    /// histograms); further ones are counted as one
    #[arg(long, value_name = "N", value_parser = parse_some, default_value = "10k", help_heading = "Flows")]
    flows: u64,
    /// Read sequence numbers of this kind, from the first packet on; auto detects the kind first
    #[arg(long, value_enum, value_name = "KIND", default_value = "auto", help_heading = "Flows")]
    sequence: Sequence,
    /// Measure peak rates over intervals of this length
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "100ms", help_heading = "Flows")]
    interval: Nanos,
    /// Take frames that are at most this far apart as a burst
    #[arg(long, value_name = "TIME", default_value = "10us", help_heading = "Flows")]
    burst_gap: Nanos,
    /// Do not set the interfaces to promiscuous mode: frames for other hosts do not arrive
    #[arg(long)]
    no_promiscuous_mode: bool,
    /// Measure this machine's noise floor with a steady Squall stream, in a private lab or from the
    /// first --port to the second; --json writes the file for --floor
    #[arg(long, help_heading = "Noise floor")]
    self_test: bool,
    /// Also report the gaps' deviations without the noise floor that --self-test wrote to FILE
    #[arg(long, value_name = "FILE", conflicts_with = "self_test", help_heading = "Noise floor")]
    floor: Option<String>,
    #[command(flatten)]
    options: Options<OfReceivers>,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ByWhat {
    /// Addresses, protocol and ports
    Flow,
    /// The source address
    Source,
    /// Only the total
    None,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Sequence {
    Auto,
    Squall,
    Mgen,
    Crude,
    Trex,
    Iperf3,
    Rtp,
    None,
}

impl Args {
    /// Combines all filter options into one expression.
    fn expression(&self) -> Result<Option<String>, Error> {
        let address = |what: &str, value: &Option<String>| -> Result<Option<String>, Error> {
            let Some(value) = value else { return Ok(None) };
            let (host, len) = value
                .split_once('/')
                .map_or((value.as_str(), None), |(host, len)| (host, Some(len)));
            let bits = match host.parse::<std::net::IpAddr>() {
                Ok(ip) => {
                    if ip.is_ipv4() {
                        32
                    } else {
                        128
                    }
                }
                Err(_) => -1,
            };
            if bits < 0
                || len.is_some_and(|len| !len.parse::<u8>().is_ok_and(|len| i32::from(len) <= bits))
            {
                return Err(Error::Usage(format!(
                    "{value:?} is not an address or network\n  try 10.0.0.1, 10.0.0.0/8 or \
                     2001:db8::/32"
                )));
            }
            Ok(Some(format!("{what}{} {value}", if len.is_some() { "net" } else { "host" })))
        };
        let ports = |protocol: &str, ports: &[u16]| {
            let each: Vec<String> =
                ports.iter().map(|port| format!("{protocol} port {port}")).collect();
            (!each.is_empty()).then(|| each.join(" or "))
        };
        let parts = [
            self.options.run.filter.clone().filter(|text| !text.trim().is_empty()),
            address("", &self.host)?,
            address("src ", &self.src)?,
            address("dst ", &self.dst)?,
            match (ports("udp", &self.udp), ports("tcp", &self.tcp)) {
                (Some(udp), Some(tcp)) => Some(format!("{udp} or {tcp}")),
                (udp, tcp) => udp.or(tcp),
            },
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        Ok(match parts.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            several => Some(
                several.iter().map(|part| format!("({part})")).collect::<Vec<_>>().join(" and "),
            ),
        })
    }

    fn flow_options(&self) -> FlowOptions {
        let name = |value: Option<PossibleValue>| value.map(|value| value.get_name().to_owned());
        FlowOptions {
            by: name(self.by.to_possible_value()),
            limit: Some(self.flows),
            sequence: name(self.sequence.to_possible_value()),
            interval: Some(Time(self.interval)),
            burst_gap: Some(Time(self.burst_gap)),
        }
    }
}

/// Run options of commands that only receive.
#[derive(Debug)]
pub struct OfReceivers;

impl Choice for OfReceivers {
    fn has(name: &str) -> bool {
        ["duration", "packets", "cores", "cpus", "filter", "fingerprint", "gap_bins"]
            .contains(&name)
    }

    fn adapt(arg: Arg) -> Arg {
        if arg.get_id() == "filter" { arg.short('f') } else { arg }
    }
}

pub fn recv(args: &Args) -> Result<ExitCode, Error> {
    if args.self_test {
        return self_test(args);
    }
    let floor = args.floor.as_deref().map(read_floor).transpose()?;
    // `drive` applies the duration: a run that only receives does not end by itself.
    let mut options = RunOptions {
        filter: args.expression()?,
        received_flows: Some(ReceivedFlows::By(args.flow_options())),
        ..args.options.run.clone()
    };
    let end = End {
        after_s: options.duration.take().map(|time| time.0.as_secs_f64()),
        received: options.packets.take().map(|count| count.0),
        ..End::default()
    };
    let ports = unpromiscuous(&args.port, args.no_promiscuous_mode);
    let session = Session::new(squall_machine::ports::listening(&ports)?)
        .with(options)?
        .command(command_line());
    let annotate = |report: &mut Report| {
        if let (Some(floor), Some(flows)) = (&floor, &mut report.received_flows) {
            floor.annotate(flows);
        }
    };
    drive_until(
        session,
        &args.output,
        &format!("squall recv on {}", args.port.join(", ")),
        end,
        annotate,
        |report| {
            let (width, color) = look(args.output.json.as_deref() == Some("-"), WIDTH);
            let flows = render::received_flows(
                report,
                usize::try_from(args.top).unwrap_or(usize::MAX),
                width,
                color,
            );
            flows
                + &report
                    .ports
                    .iter()
                    .filter_map(|p| Some(bars(&p.name, p.rx.arrival_gap_bins.as_ref()?)))
                    .collect::<String>()
        },
    )
}

/// Time in seconds to measure at each rate.
const SELF_TEST_S: u64 = 3;

fn self_test(args: &Args) -> Result<ExitCode, Error> {
    let ports = match args.port.as_slice() {
        [] => {
            // This comes first: only a single-threaded process can enter a user namespace.
            let lab = lab::enter_private(&lab::LabOptions::default());
            lab.map_err(|e| Error::Environment(e.to_string()))?
                .map(|interface| format!("af_packet:{interface}"))
        }
        [from, to] => [from.clone(), to.clone()],
        _ => {
            return Err(Error::Usage(
                "--self-test sends from one port and receives on another\n  try --port FROM \
                 --port TO, or none for a private lab"
                    .into(),
            ));
        }
    };
    let time = args.options.run.duration.map_or(Duration::from_secs(SELF_TEST_S), Duration::from);
    let to_stdout = args.output.json.as_deref() == Some("-");
    let show = |text: &str| match to_stdout {
        _ if args.output.quiet => {}
        true => eprintln!("{text}"),
        false => print(&format!("{text}\n")),
    };
    show(&format!(
        "squall recv --self-test from {} to {}, {} per rate\n",
        ports[0],
        ports[1],
        Nanos(time.as_nanos() as u64)
    ));
    let floor = selftest::run(ports, &selftest::RATES, time, |_| {})?;
    let columns =
        ["RATE", "FRAMES", "LOST", "GAP SD", "RECEIVER", "SENDER", "DELAY MIN", "P50", "P99", "SD"];
    let row = |at: &selftest::FloorAt| {
        let times = [at.gap_stddev_ns, at.receiver_stddev_ns, at.sender_stddev_ns];
        let delays = [
            at.latency_min_ns as f64,
            at.latency_p50_ns as f64,
            at.latency_p99_ns as f64,
            at.latency_stddev_ns,
        ];
        let counts =
            [human::si(at.asked_pps, "pps"), human::count(at.packets), human::count(at.lost)];
        counts.into_iter().chain(times.into_iter().chain(delays).map(human::ns)).collect()
    };
    let rows: Vec<Vec<String>> = floor.rates.iter().map(row).collect();
    show(&table(&columns.map(|name| (name, Side::Right)), &rows));
    let resolution =
        floor.timestamp_resolution_ns.map_or("unknown".into(), |ns| human::ns(ns as f64));
    show(&format!("timestamps: {}, resolution {resolution}", floor.timestamps));
    floor.verdict.iter().for_each(|sentence| show(sentence));
    if let Some(name) = &args.output.json {
        write_to(name, &(floor.to_json() + "\n"))?;
    }
    Ok(ExitCode::from(u8::from(!floor.valid)))
}

fn read_floor(name: &str) -> Result<Floor, Error> {
    let text = squall_profile::read_text(name).map_err(|error| Cannot::read(name, &error))?;
    Floor::from_json(&text).map_err(|why| {
        Error::Usage(format!(
            "--floor {name} is not a noise floor: {why}\n  try squall recv --self-test --json {name}"
        ))
    })
}

/// Draws the bins as bars. Omits empty bins.
fn bars(port: &str, bins: &EqualBins) -> String {
    const WIDTH: u64 = 50;
    let most = bins.counts.iter().copied().max().unwrap_or(0).max(bins.beyond).max(1);
    let row = |gap: String, count: u64| {
        let bar = "#".repeat(usize::try_from((count * WIDTH).div_ceil(most)).unwrap_or(0));
        vec![gap, human::count(count), bar]
    };
    let edge = |i: usize| Nanos(bins.width_ns.saturating_mul(i as u64));
    let filled = bins.counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let mut rows: Vec<_> =
        filled.map(|(i, count)| row(format!("{} to {}", edge(i), edge(i + 1)), *count)).collect();
    if bins.beyond > 0 {
        rows.push(row(format!("{} and more", edge(bins.counts.len())), bins.beyond));
    }
    let columns = [("GAP", Side::Right), ("FRAMES", Side::Right), ("", Side::Left)];
    let width = Nanos(bins.width_ns);
    format!(
        "\n{port}: gaps between frames, bins of {width}; without empty ones\n{}",
        table(&columns, &rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_what_is_there_and_what_is_beyond() {
        let text = bars("A", &EqualBins { width_ns: 10_000, counts: vec![0, 50, 0, 1], beyond: 2 });
        let lines: Vec<&str> = text.lines().skip(3).collect();
        assert_eq!(lines[0], format!("10 us to 20 us      50  {}", "#".repeat(50)));
        assert_eq!(lines[1..], ["30 us to 40 us       1  #", "40 us and more       2  ##"]);
    }

    #[test]
    fn filter_options_compose_into_one_expression() {
        let of = |arguments: &[&str]| {
            let arguments = [&["recv", "--port", "x"], arguments].concat();
            <Only as clap::Parser>::parse_from(arguments).args.expression()
        };
        assert_eq!(of(&[]).unwrap(), None);
        assert_eq!(of(&["--udp", "5001"]).unwrap().unwrap(), "udp port 5001");
        let both = of(&[
            "--filter",
            "vlan 7",
            "--src",
            "10.0.0.0/8",
            "--udp",
            "1",
            "--udp",
            "2",
            "--tcp",
            "3",
        ]);
        assert_eq!(
            both.unwrap().unwrap(),
            "(vlan 7) and (src net 10.0.0.0/8) and (udp port 1 or udp port 2 or tcp port 3)"
        );
        assert_eq!(of(&["--host", "2001:db8::1"]).unwrap().unwrap(), "host 2001:db8::1");
        for wrong in ["10.0.0.0/33", "10.0.0", "x and y", "::/129"] {
            assert!(of(&["--dst", wrong]).is_err(), "{wrong}");
        }
    }

    #[derive(clap::Parser)]
    struct Only {
        #[command(flatten)]
        args: Args,
    }
}
