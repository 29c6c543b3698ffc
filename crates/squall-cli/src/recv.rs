//! `squall recv`: listens, and sends nothing.

use std::process::ExitCode;

use squall::{
    Error, Session,
    render::human,
    report::EqualBins,
    units::{Nanos, UnitError, parse_count},
};

use crate::{
    args::{CpuList, Output, command_line, parse_cpus},
    drive::{End, drive_until},
    table::{Side, table},
};

/// Receives without sending: loss, order, delay and gaps of every signed stream that comes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall recv --port eth1                                    # until Ctrl-C
  squall recv --port veth-b --duration 10s --json recv.json
  squall recv --port pcap:capture.pcap,read                  # what a capture holds
  squall recv --port eth1 -n 100k --histogram 50:10us        # gaps between frames, 0 to 500 us

Lost is what is missing between the first and the last sequence number of a stream that was signed (latency = true in a
profile, --latency with squall send). One-way delay needs sender and receiver on one clock, that is on one machine.")]
pub struct Args {
    /// Where to receive; repeatable
    #[arg(short, long, value_name = "ADDR", required = true)]
    port: Vec<String>,
    /// Receives only what EXPR takes, in the language of tcpdump: 'udp and port 5001'
    #[arg(short, long, value_name = "EXPR")]
    filter: Option<String>,
    /// Ends after so long: 10s, 1m30s
    #[arg(short, long, value_name = "TIME")]
    duration: Option<Nanos>,
    /// Ends soon after so many frames
    #[arg(short = 'n', long, value_name = "N", value_parser = parse_count)]
    count: Option<u64>,
    /// Counts the gaps between frames in so many bins of so much each: 100:10us
    #[arg(long, value_name = "BINS:WIDTH", value_parser = bins)]
    histogram: Option<(usize, Nanos)>,
    /// Workers, over which the receive queues of the ports are spread [default: one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    cores: Option<u16>,
    /// CPUs to bind the workers to, one each: 2-5, 0,2,4; without --cores as many workers
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    cpus: Option<CpuList>,
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
    let session = Session {
        command: command_line(),
        filter: args.filter.clone(),
        gap_bins: args.histogram,
        cores: args.cores.map(usize::from),
        cpus: args.cpus.as_ref().map(|list| list.0.clone()),
        ..Session::listen(ports)
    };
    let end = End { after_s: args.duration.map(Nanos::as_secs_f64), received: args.count, ..End::default() };
    drive_until(session, &args.output, &format!("squall recv on {}", args.port.join(", ")), end, |report| {
        report.ports.iter().filter_map(|p| Some(bars(&p.name, p.rx.arrival_gap_bins.as_ref()?))).collect()
    })
}

/// `100:10us`
fn bins(text: &str) -> Result<(usize, Nanos), String> {
    const EXPECTED: &str = "expected BINS:WIDTH, such as 100:10us, at most 100000 bins";
    let (bins, width) = text.split_once(':').ok_or(EXPECTED)?;
    let bins = bins.parse().ok().filter(|bins| (1..=100_000).contains(bins)).ok_or(EXPECTED)?;
    let width = width.parse().map_err(|e: UnitError| e.to_string())?;
    if width == Nanos::ZERO { Err(EXPECTED.into()) } else { Ok((bins, width)) }
}

/// The bins that are not empty, with bars.
fn bars(port: &str, bins: &EqualBins) -> String {
    const WIDTH: u64 = 50;
    let most = bins.counts.iter().copied().max().unwrap_or(0).max(bins.beyond).max(1);
    let row = |gap: String, count: u64| {
        let bar = "#".repeat(usize::try_from((count * WIDTH).div_ceil(most)).unwrap_or(0));
        vec![gap, human::count(count), bar]
    };
    let edge = |i: usize| Nanos(bins.width_ns.saturating_mul(i as u64));
    let filled = bins.counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let mut rows: Vec<_> = filled.map(|(i, count)| row(format!("{} to {}", edge(i), edge(i + 1)), *count)).collect();
    if bins.beyond > 0 {
        rows.push(row(format!("{} and more", edge(bins.counts.len())), bins.beyond));
    }
    let columns = [("GAP", Side::Right), ("FRAMES", Side::Right), ("", Side::Left)];
    let width = Nanos(bins.width_ns);
    format!("\n{port}: gaps between frames, bins of {width}; empty ones are left out\n{}", table(&columns, &rows))
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
    fn a_histogram_has_bins_and_a_width() {
        assert_eq!(bins("100:10us"), Ok((100, Nanos(10_000))));
        for text in ["", "100", "0:1us", "1:0s", "x:1us", "100:1xs", "100001:1us"] {
            assert!(bins(text).is_err(), "{text}");
        }
    }
}
