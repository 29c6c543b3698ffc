//! `squall info`: summarizes captures.

use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use squall::Error;
use squall_offline::info::{Bins, Info, Progress, Settings, read};
use squall_report::render::{human, info_html, info_table, info_text};
use squall_units::Nanos;

use crate::{args::command_line, drive::Signals, output, progress::ProgressLine};

/// Summarize captures: packets, rates, protocols, lengths, gaps, flows
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall info capture.pcapng
  squall info --table *.pcap.gz                              # a line for each
  squall info trace.pcap --bins 100 --report trace.html      # lengths in bins of 100 octets, plots
  squall info trace.pcap --filter 'udp port 53' --json -     # figures of some packets
  squall info trace.pcap --flow-expiry 30s --top 50          # flows, as tcpreplay counts them
  zcat old.pcap.gz | squall info -

Lengths and rates are those of the capture: on the wire, without FCS. Reads pcap and pcapng, also \
                        compressed. Memory use does not grow with the file. A damaged file is \
                        summarized up to the damage, whose offset is reported; the exit status is \
                        then 2.")]
pub struct Args {
    /// Capture to read: pcap or pcapng, compressed or not; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Read only packets that match EXPR (tcpdump's language): 'tcp and port 80'
    #[arg(short, long, value_name = "EXPR")]
    filter: Option<String>,
    /// Sort lengths into these bins: rmon (RFC 2819), wireshark, a width (100), or edges
    /// (64,128,1500)
    #[arg(long, value_name = "BINS", default_value = "rmon")]
    bins: Bins,
    /// End a flow that is idle for longer; its next packet starts another one
    #[arg(long, value_name = "TIME")]
    flow_expiry: Option<Nanos>,
    /// Count at most N flows separately: 88 bytes of memory each
    #[arg(long, value_name = "N", default_value_t = 1 << 19, value_parser = clap::value_parser!(u32).range(2..=1 << 30))]
    max_flows: u32,
    /// Show N rows in the lists of flows, hosts and ports
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Verify the checksums of IPv4, TCP, UDP, ICMP and ICMPv6
    #[arg(long)]
    checksums: bool,
    /// Count packets that equal one of the N packets before them [default: 5]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "5", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    duplicates: Option<u32>,
    /// Show the SHA-256 of each file, which reads it a second time
    #[arg(long)]
    hash: bool,
    /// Show one line for each file
    #[arg(long)]
    table: bool,
    /// Write the figures as JSON; - is standard output
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
    /// Write the figures as one HTML file with plots
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Show no progress and no figures
    #[arg(short, long)]
    quiet: bool,
}

pub fn info(args: &Args) -> Result<ExitCode, Error> {
    let settings = Settings {
        filter: args.filter.clone(),
        bins: args.bins.clone(),
        top: args.top,
        max_flows: args.max_flows as usize,
        flow_expiry_s: args.flow_expiry.map(Nanos::as_secs_f64),
        checksums: args.checksums,
        duplicates: args.duplicates.map_or(0, |n| n as usize),
        hash: args.hash,
    };
    let signals = Signals::catch()?;
    let to_stdout = args.json.as_deref() == Some("-");
    // Create the file before the work starts, which may take hours.
    let json = args.json.as_deref().filter(|name| *name != "-").map(output::create).transpose()?;
    let html =
        args.report.as_ref().map(|path| output::create(&path.to_string_lossy())).transpose()?;
    let mut line = ProgressLine::new(args.quiet);
    let mut file = (0, line.began());
    let read = read(&args.files, &settings, |progress| {
        // `file` has the index of the current file, and its start time.
        if file.0 != progress.file {
            file = (progress.file, Instant::now());
        }
        line.update(|| {
            so_far(&args.files[progress.file], progress, file.1.elapsed().as_secs_f64())
        });
        !signals.came()
    });
    line.clear();
    let info = Info { command: command_line(), ..read? };
    let mut results = output::Results::default();
    results.write(json, || info.to_json() + "\n");
    results.write(html, || info_html(&info));
    let to_stdout = to_stdout || results.are_lost();
    if !args.quiet {
        let text = if args.table { info_table(&info) } else { info_text(&info) };
        if to_stdout {
            eprint!("{text}");
        } else {
            output::print(&text);
        }
    }
    if to_stdout {
        output::print_data(&(info.to_json() + "\n"));
    }
    // The figures include errors of files, so errors are not repeated on the same terminal.
    let seen =
        !args.quiet && (to_stdout || io::stdout().is_terminal() || output::goes_to_one_place());
    for file in info.files.iter().filter(|_| !seen) {
        if let Some(fault) = &file.fault {
            eprintln!("squall: {} at octet {}: {}", file.path, fault.offset, fault.text);
        }
    }
    results.end()?;
    Ok(ExitCode::from(if info.files.iter().any(|file| file.fault.is_some()) { 2 } else { 0 }))
}

/// Describes the progress of a file, `seconds` after its start.
fn so_far(file: &Path, progress: &Progress, seconds: f64) -> String {
    let rate = progress.octets as f64 / seconds.max(0.001);
    let mut text = format!("{}: {}", file.display(), human::si(progress.octets as f64, "B"));
    if let Some(all) = progress.file_octets.filter(|all| *all >= progress.octets) {
        let left = (all - progress.octets) as f64 / rate.max(1.0);
        let share = human::ratio(progress.octets as f64 / all as f64);
        text += &format!(" of {} ({share}), ", human::si(all as f64, "B"));
        text += &format!("{}, {} left", human::si(rate, "B/s"), human::seconds(left.ceil()));
    } else {
        text += &format!(", {}", human::si(rate, "B/s"));
    }
    text + &format!(", {} packets", human::short_count(progress.packets))
}
