//! `squall capture`: writes received packets to files.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Arg, ValueEnum, builder::PossibleValuesParser};
use squall::{
    Error, Session,
    report::{CaptureReport, Report},
};
use squall_capture::{Rotate, Stamp};
use squall_options::CaptureOptions;
use squall_report::render::{self, human};

use crate::{
    args::{Choice, Options, Output, command_line, unpromiscuous},
    drive::{End, drive_until},
};

/// Capture to pcapng or pcap files and count every lost packet, with the reason
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall capture --port eth1 -w out.pcapng                       # until Ctrl-C
  squall capture --port eth1 -w out.pcapng --filter 'udp port 53' --duration 10s
  squall capture --port eth1 --port eth2 -w both.pcapng          # both in one file, in order \
                        of time
  squall capture --port eth1 -w log.pcapng.zst --rotate-size 1GB --ring-files 10
  squall capture --port eth1 -w crash.pcapng --pre-trigger 30s --trigger 'tcp[tcpflags] & tcp-rst \
                        != 0' --post-trigger 5s
  squall capture --port eth1 -c 20                               # show 20 packets, as tcpdump -n \
                        does
  squall capture --port eth1 -w - | tshark -r -
  squall capture --port eth1 -w out.pcapng --duration 1m --fail-if 'loss > 0'

Every packet that matches the filter is written, or counted as lost with a reason, or counted as \
                        unwanted (before a trigger, after --count). --pre-trigger without \
                        --trigger waits for the signal USR1.")]
pub struct Args {
    /// Receive on ADDR; repeatable
    #[arg(short = 'i', long, value_name = "ADDR", required = true)]
    port: Vec<String>,
    /// Write to FILE; - is standard output. Without it, packets are shown, not written
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Capture packets that come in, packets that this host sends, or both. Frames of Squall's own
    /// senders are captured only over af_packet with bypass=0
    #[arg(short = 'Q', long, value_enum, value_name = "in|out|both", hide_possible_values = true)]
    direction: Option<Direction>,
    /// Do not set the interfaces to promiscuous mode: frames for other hosts do not arrive
    #[arg(short = 'p', long)]
    no_promiscuous_mode: bool,
    /// Show each packet in a line, as tcpdump -n does, also with --write
    #[arg(long)]
    print: bool,
    /// Begin each line with a time: clock, date (UTC), epoch, relative or delta (seconds), or none
    /// [default: clock]
    #[arg(long, value_name = "STAMP", value_parser = PossibleValuesParser::new(Stamp::NAMES), hide_possible_values = true)]
    print_time: Option<String>,
    #[command(flatten)]
    options: Options<OfCaptures>,
    #[command(flatten)]
    capture: CaptureOptions,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Files")]
struct FileArgs {
    /// Resolution of the timestamps of a pcap; a pcapng has nanoseconds [default: ns]
    #[arg(long, value_enum, value_name = "ns|us", hide_possible_values = true)]
    precision: Option<Precision>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Direction {
    In,
    Out,
    #[value(alias = "inout")]
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Precision {
    #[value(alias = "nano")]
    Ns,
    #[value(alias = "micro")]
    Us,
}

/// Run options of commands that only receive.
#[derive(Debug)]
pub struct OfCaptures;

impl Choice for OfCaptures {
    fn has(name: &str) -> bool {
        ["duration", "cores", "cpus", "filter", "fingerprint", "force"].contains(&name)
    }

    fn adapt(arg: Arg) -> Arg {
        if arg.get_id() == "filter" { arg.short('f') } else { arg }
    }
}

pub fn capture(args: &Args) -> Result<ExitCode, Error> {
    let ports = unpromiscuous(&args.port, args.no_promiscuous_mode);
    let ports: Vec<_> = ports.iter().map(|address| address_with(address, args.direction)).collect();
    // `drive` applies the duration: a run that only receives does not end by itself.
    let mut run = args.options.run.clone();
    let after = run.duration.take();
    run.capture = Some(options(args)?);
    let session =
        Session::new(squall_machine::ports::listening(&ports)?).with(run)?.command(command_line());
    let end = End {
        after_s: after.map(|time| time.0.as_secs_f64()),
        triggered: args.capture.pre_trigger.is_some(),
        ..End::default()
    };
    let to = args.write.as_ref().map_or(String::new(), |file| format!(" to {}", file.display()));
    let title = format!("squall capture on {}{to}", args.port.join(", "));
    let mut output = args.output.clone();
    let stdout = args.write.as_deref() == Some(Path::new("-"));
    if stdout && output.json.as_deref() == Some("-") {
        return Err(Error::Usage(
            "standard output takes packets or the report, not both\n  try --json FILE".into(),
        ));
    }
    output.to_stderr |= stdout || args.print || args.write.is_none();
    drive_until(
        session,
        &output,
        &title,
        end,
        |_| {},
        |report: &Report| report.capture.as_ref().map(summary).unwrap_or_default(),
    )
}

fn options(args: &Args) -> Result<CaptureOptions, Error> {
    let name =
        args.write.as_ref().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
    let prints = args.print || args.write.is_none();
    if prints && name == "-" {
        return Err(Error::Usage(
            "standard output takes packets or lines about packets, not both".into(),
        ));
    }
    let mut options = CaptureOptions {
        file: args.write.clone(),
        print: prints.then(|| args.print_time.clone().unwrap_or_else(|| "clock".into())),
        ..args.capture.clone()
    };
    let squall_capture::Options { rotate, format, .. } = squall::capture::options(&options)?;
    if rotate.is_asked_for() && matches!(name.as_str(), "" | "-") {
        return Err(Error::Usage(
            "only a file with a name can be rotated\n  try -w out.pcapng".into(),
        ));
    }
    if (rotate.ring.is_some() || options.files.is_some())
        && (Rotate { ring: None, ..rotate }) == Rotate::default()
    {
        return Err(Error::Usage(
            "no option sets when a file is full\n  try --rotate-size 1GB, --rotate-time 1m or \
             --rotate-count 1M"
                .into(),
        ));
    }
    if !prints && args.print_time.is_some() {
        return Err(Error::Usage(
            "--print-time has no effect, because no lines are shown\n  try it with --print".into(),
        ));
    }
    if args.files.precision == Some(Precision::Us) {
        if format == squall_capture::Format::Pcapng {
            return Err(Error::Usage(
                "--precision us needs a pcap; a pcapng has nanoseconds\n  try --format pcap, or \
                 leave it out"
                    .into(),
            ));
        }
        options.format = Some("pcap-us".into());
    }
    Ok(options)
}

/// The address with which a port delivers packets in `direction`.
fn address_with(address: &str, direction: Option<Direction>) -> String {
    match direction {
        None | Some(Direction::In) => address.to_owned(),
        Some(Direction::Out) => format!("{address},direction=out"),
        Some(Direction::Both) => format!("{address},direction=both"),
    }
}

/// The capture's part of the summary: packets received, written and lost, with the reasons.
fn summary(capture: &CaptureReport) -> String {
    let (count, counted) = (human::count, human::counted);
    let line = |what: &str, by: &std::collections::BTreeMap<String, u64>| match render::reasons(by)
    {
        reasons if reasons.is_empty() => format!("0 {what}\n"),
        reasons => format!("{} {what} ({reasons})\n", count(by.values().sum())),
    };
    let mut text = format!("\n{} received by filter\n", counted(capture.received, "packet"))
        + &line("dropped by kernel", &capture.dropped_by_kernel)
        + &line("dropped by squall", &capture.dropped);
    if !capture.dropped_by_interface.is_empty() {
        text += &line("dropped by the interface", &capture.dropped_by_interface);
    }
    if !capture.unwanted.is_empty() {
        text += &line("unwanted", &capture.unwanted);
    }
    if capture.truncated > 0 {
        text += &format!(
            "{} truncated, because the buffer was more than half full\n",
            count(capture.truncated)
        );
    }
    text += &format!(
        "{} written, {} of them",
        counted(capture.written_packets, "packet"),
        counted(capture.written_octets, "octet")
    );
    if capture.files_written > 0 {
        text += &format!(
            "; {} in {}",
            counted(capture.file_octets, "octet"),
            counted(capture.files_written, "file")
        );
    }
    text += "\n";
    if capture.removed_files > 0 {
        text += &format!(
            "removed by the ring: {} with {}\n",
            counted(capture.removed_files, "file"),
            counted(capture.removed_packets, "packet")
        );
    }
    const SHOWN: usize = 20;
    for file in capture.files.iter().take(SHOWN) {
        text += &format!(
            "  {}  {}, {}\n",
            file.name,
            counted(file.packets, "packet"),
            counted(file.octets, "octet")
        );
    }
    if capture.files.len() > SHOWN {
        text += &format!("  and {} more\n", count((capture.files.len() - SHOWN) as u64));
    }
    if let Some(why) = &capture.ended_by {
        text += &format!("ended by: {why}\n");
    }
    text += &match capture.lost {
        0 => "No packet was lost.\n".to_owned(),
        lost => format!(
            "PACKETS WERE LOST: {} of {}, PLR {}.\n",
            count(lost),
            count(capture.received),
            human::ratio(capture.loss_ratio)
        ),
    };
    text
}

#[cfg(test)]
mod tests {
    use squall_capture::OnFull;
    use squall_options::Octets;

    use super::*;

    #[test]
    fn losses_are_shown_with_their_reasons() {
        let mut capture = CaptureReport::default();
        capture.dropped_by_kernel.insert("ring_full".into(), 0);
        capture.dropped.insert("buffer_full".into(), 1200);
        let text = summary(&capture);
        assert!(text.contains("\n0 dropped by kernel\n"), "{text}");
        assert!(text.contains("\n1,200 dropped by squall (buffer_full 1,200)\n"), "{text}");
    }

    #[test]
    fn sizes_have_units() {
        for (text, octets) in
            [("1000", 1_000), ("1.5kB", 1_500), ("64MiB", 64 << 20), ("2 GB", 2_000_000_000)]
        {
            assert_eq!(text.parse(), Ok(Octets(octets)), "{text}");
        }
        for text in ["", "MB", "0", "-1", "1XB"] {
            assert!(text.parse::<Octets>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_policy_is_shown_by_name() {
        assert_eq!("truncate:96".parse(), Ok(OnFull::Truncate(96)));
        assert_eq!("drop-oldest".parse(), Ok(OnFull::DropOldest));
        for text in ["", "drop", "truncate:0x", "drop-newest:1"] {
            assert!(text.parse::<OnFull>().is_err(), "{text}");
        }
    }
}
