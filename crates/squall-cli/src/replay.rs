//! `squall replay`: captures are sent again. Options are those of tcpreplay where it has them.

use std::{path::PathBuf, process::ExitCode, str::FromStr};

use squall::{
    Error, Session,
    replaying::{Gap, Numbers, Replay, Timing, TooLong},
    units::{Nanos, Picos, Rate, RateUnit, parse_count},
};

use crate::{
    args::{Clock, CpuList, Output, parse_cpus},
    drive::{End, drive_until},
};

/// Sends captures again: with their own timing, at a rate, or as fast as the port goes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall replay capture.pcap -i eth1                      # as it was captured
  squall replay capture.pcapng -i eth1 -x 2.5             # two and a half times as fast
  squall replay capture.pcap -i eth1 -p 100000 -l 10 -K   # 100,000 frames a second, ten times, from memory
  squall replay capture.pcap -i eth1 -t -K -l 0 --duration 60
  squall replay a.pcap b.pcap -i eth1 --merge             # both at once, by their time stamps
  squall replay capture.pcap -i eth1 --ramp 1kpps..100kpps:30s -l 0 --duration 40
  zstdcat capture.pcap.zst | squall replay - -i eth1 -M 100
  squall replay capture.pcap -i pcap:out.pcap -p 10       # into a file: instants are those of the schedule

Options are called as in tcpreplay, and mean the same. What is counted as sent was taken by the port for good.
-M counts octets as captures do, without FCS; --rate 100Mbps counts them with it.

Exit status: 0 done, 1 failed by --fail-if, 2 wrong usage or a damaged capture (what is before the damage is sent),
3 environment.")]
pub struct Args {
    /// pcap or pcapng, compressed or not, one after the other; - is the standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where to send: eth1, af_packet:eth1, loop:NAME, pcap:FILE, null:
    #[arg(short = 'i', long, visible_alias = "intf1", value_name = "ADDR")]
    port: String,
    /// Interleaves several files by their time stamps
    #[arg(long)]
    merge: bool,
    /// Reads everything before the first frame leaves, and once for all loops
    #[arg(short = 'K', long, visible_alias = "preload-pcap")]
    preload: bool,

    /// So many times as fast as captured: 2, 0.5
    #[arg(short = 'x', long, value_name = "FACTOR", group = "speed", help_heading = "Speed")]
    multiplier: Option<Decimal>,
    /// Frames a second: 100, 0.5
    #[arg(short = 'p', long, value_name = "PPS", group = "speed", help_heading = "Speed")]
    pps: Option<Decimal>,
    /// With --pps, so many frames at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Speed")]
    pps_multi: u32,
    /// Mb/s of the frames without FCS, as tcpreplay counts
    #[arg(short = 'M', long, value_name = "MBPS", group = "speed", help_heading = "Speed")]
    mbps: Option<Decimal>,
    /// As fast as the port goes
    #[arg(short = 't', long, group = "speed", help_heading = "Speed")]
    topspeed: bool,
    /// 10kpps, 1.5Gbps (L2 with FCS), '2 Gbps l1', max
    #[arg(long, value_name = "RATE", group = "speed", help_heading = "Speed")]
    rate: Option<Rate>,
    /// From one rate evenly to another, and on at that: 1kpps..100kpps:30s
    #[arg(long, value_name = "FROM..TO:TIME", group = "speed", help_heading = "Speed")]
    ramp: Option<Ramp>,
    /// Captured gaps are no longer than this, milliseconds
    #[arg(long, value_name = "MS", help_heading = "Speed")]
    maxsleep: Option<u64>,

    /// So many times; 0: until Ctrl-C
    #[arg(short = 'l', long = "loop", value_name = "N", default_value_t = 1, help_heading = "Loops and ends")]
    loops: u64,
    /// Between loops
    #[arg(long, value_name = "MS", conflicts_with = "loopdelay_ns", help_heading = "Loops and ends")]
    loopdelay_ms: Option<u64>,
    /// Between loops
    #[arg(long, value_name = "NS", help_heading = "Loops and ends")]
    loopdelay_ns: Option<u64>,
    /// Ends after so many frames
    #[arg(short = 'L', long, visible_short_alias = 'n', visible_alias = "count", value_name = "N", value_parser = parse_count, help_heading = "Loops and ends")]
    limit: Option<u64>,
    /// Ends after so long: 10 (seconds), 10s, 1m30s
    #[arg(short, long, value_name = "TIME", value_parser = seconds_or_time, help_heading = "Loops and ends")]
    duration: Option<Nanos>,

    /// Sends only what EXPR takes, in the language of tcpdump: 'tcp port 80'
    #[arg(short, long, value_name = "EXPR", help_heading = "Which packets")]
    filter: Option<String>,
    /// Sends only these packets, by their numbers over all files: 1-5,9,20-
    #[arg(long, value_name = "LIST", help_heading = "Which packets")]
    include: Option<Numbers>,
    /// Leaves these out
    #[arg(long, value_name = "LIST", help_heading = "Which packets")]
    exclude: Option<Numbers>,
    /// Of a frame that is longer than the port takes
    #[arg(long, value_enum, value_name = "WHAT", default_value = "skip")]
    too_long: Long,
    /// CPU to bind the sender to
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    cpus: Option<CpuList>,
    /// Time that passes (real), or that leaps from departure to departure (virtual: files) [default: virtual if the port
    /// is a file, else real]
    #[arg(long, value_enum, value_name = "CLOCK", hide_possible_values = true)]
    clock: Option<Clock>,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Long {
    /// It is left out, and counted
    Skip,
    /// Its end is left out, and counted
    Truncate,
}

/// A number with a fraction, exactly.
#[derive(Clone, Copy, Debug)]
struct Decimal {
    num: u64,
    den: u64,
}

impl FromStr for Decimal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?}: expected a number above 0, with at most 6 decimal places");
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 6 || (whole.len() + part.len()) == 0 {
            return Err(wrong());
        }
        let num: u64 = format!("{whole}{part}").parse().map_err(|_| wrong())?;
        match num {
            0 => Err(wrong()),
            num => Ok(Self { num, den: 10u64.pow(part.len() as u32) }),
        }
    }
}

/// `FROM..TO:TIME`.
#[derive(Clone, Copy, Debug)]
struct Ramp {
    from: Rate,
    to: Rate,
    over: Nanos,
}

impl FromStr for Ramp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?}: expected FROM..TO:TIME, as in 1kpps..100kpps:30s or 10Mbps..1Gbps:1m");
        let (rates, over) = text.rsplit_once(':').ok_or_else(wrong)?;
        let (from, to) = rates.split_once("..").ok_or_else(wrong)?;
        let rate = |text: &str| text.parse::<Rate>().map_err(|error| format!("{text:?}: {error}"));
        let ramp = Self { from: rate(from)?, to: rate(to)?, over: over.parse().map_err(|e| format!("{over:?}: {e}"))? };
        let alike = ramp.from.unit == ramp.to.unit && !matches!(ramp.to.unit, RateUnit::Max | RateUnit::Percent);
        if !alike || ramp.to.is_zero() || ramp.over == Nanos::ZERO {
            return Err(format!("{}; both rates in one unit, the second and the time above 0", wrong()));
        }
        Ok(ramp)
    }
}

/// `10` is seconds, as for tcpreplay.
fn seconds_or_time(text: &str) -> Result<Nanos, String> {
    match text.parse::<u64>() {
        Ok(seconds) => Ok(Nanos(seconds.saturating_mul(1_000_000_000))),
        Err(_) => text.parse().map_err(|error: squall::units::UnitError| error.to_string()),
    }
}

pub fn replay(args: &Args) -> Result<ExitCode, Error> {
    let replay = Replay {
        inputs: args.files.iter().map(|path| squall::replay::input(path)).collect(),
        merge: args.merge,
        timing: args.timing()?,
        longest_gap: args.maxsleep.map(|ms| ms.saturating_mul(1_000_000)),
        loops: args.loops,
        loop_delay: Picos::from(match (args.loopdelay_ms, args.loopdelay_ns) {
            (Some(ms), _) => Nanos(ms.saturating_mul(1_000_000)),
            (_, ns) => Nanos(ns.unwrap_or(0)),
        }),
        limit: args.limit,
        preload: args.preload,
        too_long: match args.too_long {
            Long::Skip => TooLong::Skip,
            Long::Truncate => TooLong::Truncate,
        },
        filter: args.filter.as_deref().map(squall::replay::filter).transpose()?,
        include: args.include.clone(),
        exclude: args.exclude.clone(),
    };
    let mut session = Session::replay(replay, [("A", args.port.as_str())]);
    session.profile.stop.duration = args.duration;
    session.cpus = args.cpus.as_ref().map(|list| list.0.clone());
    session.virtual_time = args.clock.map(|clock| matches!(clock, Clock::Virtual));
    session.command = crate::args::command_line();
    let title = format!("squall replay on {}", args.port);
    drive_until(session, &args.output, &title, End::default(), |_| {}, |report| squall::render::replay(report))
}

impl Args {
    fn timing(&self) -> Result<Timing, Error> {
        let paced = |gap| Timing::Paced { gap, together: self.pps_multi };
        if self.pps_multi > 1 && self.pps.is_none() {
            return Err(Error::Usage("--pps-multi needs --pps\n  try --pps 1000 --pps-multi 10".into()));
        }
        Ok(match (self.multiplier, self.pps, self.mbps, self.rate, self.ramp) {
            _ if self.topspeed => Timing::Top,
            (Some(Decimal { num, den }), ..) => Timing::Captured { num, den },
            (_, Some(Decimal { num, den }), ..) => paced(Gap::from_pps(num, den)),
            (_, _, Some(Decimal { num, den }), ..) => {
                let num =
                    num.checked_mul(1_000_000).ok_or_else(|| Error::Usage("--mbps: more than any port has".into()))?;
                match Gap::from_bps(num, den, false) {
                    Gap::PerOctet { num, den, .. } => paced(Gap::PerOctet { num, den, extra: 0 }),
                    gap => paced(gap),
                }
            }
            (.., Some(rate), _) => match rate.unit {
                RateUnit::Max => Timing::Top,
                RateUnit::Pps => paced(Gap::from_pps(rate.num, rate.den)),
                RateUnit::BpsL1 => paced(Gap::from_bps(rate.num, rate.den, true)),
                RateUnit::BpsL2 => paced(Gap::from_bps(rate.num, rate.den, false)),
                RateUnit::Percent => {
                    return Err(Error::Usage(
                        "--rate: a replay knows no share of the port\n  try 10kpps or 1Gbps".into(),
                    ));
                }
            },
            (.., Some(Ramp { from, to, over })) => {
                let (octets, scale) = match to.unit {
                    RateUnit::BpsL1 => (Some(24), 8.0),
                    RateUnit::BpsL2 => (Some(4), 8.0),
                    _ => (None, 1.0),
                };
                let a_second = |rate: Rate| rate.num as f64 / rate.den as f64 / scale;
                Timing::Ramp { from: a_second(from), to: a_second(to), over: over.into(), octets }
            }
            _ => Timing::ORIGINAL,
        })
    }
}
