//! `squall replay`: captures are sent again. Options are those of tcpreplay where it has them.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use squall::{
    Error, Session,
    replay::{Decimal, Preview, Ramp, Speed},
    replaying::{Numbers, Replay, SplitBy, TooLong, split::AutoMode, stats::Settings as Flows},
    units::{Nanos, Picos, Rate, parse_count},
};

use crate::{
    args::{Clock, CpuList, Output, parse_cpus},
    drive::{End, drive_until},
    edit::EditArgs,
    stateful::{Stateful, stateful},
};

/// Sends captures again: with their own timing, at a rate, or as fast as the port goes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall replay capture.pcap -i eth1                      # as it was captured
  squall replay capture.pcapng -i eth1 -x 2.5             # two and a half times as fast
  squall replay capture.pcap -i eth1 -p 100000 -l 10 -K   # 100,000 frames a second, ten times, \
                        from memory
  squall replay capture.pcap -i eth1 -t -K -l 0 --duration 60
  squall replay a.pcap b.pcap -i eth1 --merge             # both at once, by their time stamps
  squall replay capture.pcap -i eth1 --ramp 1kpps..100kpps:30s -l 0 --duration 40
  squall replay capture.pcap -i eth1 --unique-ip -l 1000 -K -t
  squall replay capture.pcap -i eth1 -I eth2              # clients by eth1, servers by eth2, in \
                        the capture's order
  squall replay capture.pcap --stateful -i eth1 --server 10.0.0.2 --clients 10.0.1.0/24   # its \
                        clients, over real TCP
  squall replay capture.pcap --stateful -i eth1 -I eth2 -x 10                            # and its \
                        servers, ten times as fast
  zstdcat capture.pcap.zst | squall replay - -i eth1 -M 100
  squall replay capture.pcap -i pcap:out.pcap -p 10       # into a file: instants are those of the \
                        schedule

Options are called as in tcpreplay, and mean the same. What is counted as sent was taken by the \
                        port for good.
-M counts octets as captures do, without FCS; --rate 100Mbps counts them with it.

Exit status: 0 done, 1 failed by --fail-if, 2 wrong usage or a damaged capture (what is before the \
                        damage is sent),
3 environment, 4 NOT VALID (unless --allow-invalid), 129, 130, 143 interrupted before its end by \
                        SIGHUP, SIGINT, SIGTERM.")]
pub struct Args {
    /// pcap or pcapng, compressed or not, one after the other; - is the standard input
    #[arg(required_unless_present = "listnics", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Where to send: eth1, af_packet:eth1, loop:NAME, pcap:FILE, null:; with --port2, what clients
    /// send
    #[arg(
        short = 'i',
        long,
        visible_alias = "intf1",
        value_name = "ADDR",
        required_unless_present = "listnics"
    )]
    port: Option<String>,
    /// Where to send what servers send
    #[arg(short = 'I', long, visible_alias = "intf2", value_name = "ADDR")]
    pub port2: Option<String>,
    /// Interleaves several files by their time stamps
    #[arg(long)]
    merge: bool,
    /// Two files, one for each direction as of a tap: the first leaves by -i, the second by -I,
    /// interleaved by time stamps
    #[arg(short = '2', long, requires = "port2", conflicts_with = "merge", group = "split")]
    dualfile: bool,
    /// Reads everything before the first frame leaves, and once for all loops
    #[arg(short = 'K', long, visible_alias = "preload-pcap")]
    preload: bool,

    /// So many times as fast as captured: 2, 0.5
    #[arg(
        short = 'x',
        long,
        visible_alias = "speed",
        value_name = "FACTOR",
        group = "speed",
        help_heading = "Speed"
    )]
    pub multiplier: Option<Decimal>,
    /// Frames a second: 100, 0.5
    #[arg(short = 'p', long, value_name = "PPS", group = "speed", help_heading = "Speed")]
    pps: Option<Decimal>,
    /// With --pps, so many frames at once
    #[arg(long, value_name = "N", default_value_t = 1, requires = "pps", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Speed")]
    pps_multi: u32,
    /// Mb/s of the frames without FCS, as tcpreplay counts
    #[arg(short = 'M', long, value_name = "MBPS", group = "speed", help_heading = "Speed")]
    mbps: Option<Decimal>,
    /// As fast as the port goes
    #[arg(short = 't', long, group = "speed", help_heading = "Speed")]
    pub topspeed: bool,
    /// So many frames each time Enter is pressed; another number may be typed, q ends
    #[arg(short = 'o', long, value_name = "N", num_args = 0..=1, default_missing_value = "1", group = "speed", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Speed")]
    oneatatime: Option<u64>,
    /// With --oneatatime, shows each frame in the manner of tcpdump before it leaves
    #[arg(short = 'v', long, requires = "oneatatime", help_heading = "Speed")]
    verbose: bool,
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
    #[arg(
        short = 'l',
        long = "loop",
        value_name = "N",
        default_value_t = 1,
        help_heading = "Loops and ends"
    )]
    pub loops: u64,
    /// Between loops
    #[arg(
        long,
        value_name = "MS",
        conflicts_with = "loopdelay_ns",
        help_heading = "Loops and ends"
    )]
    pub loopdelay_ms: Option<u64>,
    /// Between loops
    #[arg(long, value_name = "NS", help_heading = "Loops and ends")]
    pub loopdelay_ns: Option<u64>,
    /// Ends after so many frames
    #[arg(short = 'L', long, visible_short_alias = 'n', visible_alias = "count", value_name = "N", value_parser = parse_count, help_heading = "Loops and ends")]
    limit: Option<u64>,
    /// Ends after so long: 10 (seconds), 10s, 1m30s
    #[arg(long, value_name = "TIME", value_parser = seconds_or_time, help_heading = "Loops and ends")]
    pub duration: Option<Nanos>,
    /// tcpreplay's level of debugging. Taken for a duration, it would end the run after some
    /// seconds.
    #[arg(short = 'd', long = "dbug", hide = true, num_args = 0..=1, default_missing_value = "0", value_parser = no_debugging)]
    dbug: Option<String>,

    /// What tells the two ports' packets apart: a file of tcpprep or of squall prep
    #[arg(
        short,
        long,
        visible_alias = "cachefile",
        value_name = "FILE",
        group = "split",
        help_heading = "Two ports"
    )]
    cache: Option<PathBuf>,
    /// ... or what hosts do in the capture: bridge, router, client, server (which read it twice),
    /// first [default: first]
    #[arg(long, value_name = "MODE", group = "split", help_heading = "Two ports")]
    auto: Option<AutoMode>,
    /// ... or source addresses, which leave by the first port: 10.0.0.0/8,[fe80::/16]
    #[arg(long, value_name = "NETWORKS", group = "split", help_heading = "Two ports")]
    cidr: Option<String>,
    /// ... or source addresses as text, of which those that match leave by the first port
    #[arg(long, value_name = "EXPR", group = "split", help_heading = "Two ports")]
    regex: Option<String>,
    /// ... or destination ports: to services (0-1023) by the first port
    #[arg(long, group = "split", help_heading = "Two ports")]
    by_port: bool,
    /// ... or source MAC addresses, which leave by the first port
    #[arg(long, value_name = "MACS", group = "split", help_heading = "Two ports")]
    mac: Option<String>,
    /// Exchanges the two ports
    #[arg(long, help_heading = "Two ports")]
    reverse: bool,

    /// Other addresses in each loop, so that each loop has its own flows
    #[arg(long, help_heading = "Flows")]
    unique_ip: bool,
    /// With --unique-ip, other addresses with every N-th loop only
    #[arg(long, value_name = "N", default_value_t = 1, requires = "unique_ip", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Flows")]
    unique_ip_loops: u64,
    /// A flow that was idle for so long (seconds, as captured) has ended, and its next packet
    /// begins another
    #[arg(long, value_name = "TIME", value_parser = seconds_or_time, help_heading = "Flows")]
    flow_expiry: Option<Nanos>,
    /// Counts no flows
    #[arg(long, help_heading = "Flows")]
    no_flow_stats: bool,
    /// Flows of the captures at most that are told apart
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "1M", help_heading = "Flows")]
    max_flows: u64,

    /// Sends only what EXPR takes, in the language of tcpdump: 'tcp port 80'
    #[arg(short = 'f', long, value_name = "EXPR", help_heading = "Which packets")]
    pub filter: Option<String>,
    /// Sends only these packets, by their numbers over all files: 1-5,9,20-
    #[arg(long, value_name = "LIST", help_heading = "Which packets")]
    include: Option<Numbers>,
    /// Leaves these out
    #[arg(long, value_name = "LIST", help_heading = "Which packets")]
    exclude: Option<Numbers>,
    /// Sends frames as long as they were on the wire: what was not captured is zeros (--unfold)
    #[arg(long, help_heading = "Which packets")]
    pktlen: bool,
    /// Prints a line of figures each N seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "As tcpreplay")]
    stats: Option<u32>,
    /// Prints the number of the process at the start
    #[arg(short = 'P', long, help_heading = "As tcpreplay")]
    pid: bool,
    /// Accepted, and changes nothing: there is one way to wait for an instant
    #[arg(short = 'T', long, value_name = "METHOD", value_parser = ["nano", "select", "ioport", "gtod", "rdtsc", "abstime"], hide_possible_values = true, help_heading = "As tcpreplay")]
    timer: Option<String>,
    /// Lists the interfaces, as squall ports does
    #[arg(long, help_heading = "As tcpreplay")]
    listnics: bool,
    /// Of a frame that is longer than the port takes
    #[arg(long, value_enum, value_name = "WHAT", default_value = "skip")]
    too_long: Long,
    #[command(flatten)]
    pub stateful: Stateful,
    #[command(flatten)]
    edits: EditArgs,
    /// CPU to bind the sender to
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub cpus: Option<CpuList>,
    /// Time that passes (real), or that leaps from departure to departure (virtual: files)
    /// [default: virtual if the port is a file, else real]
    #[arg(long, value_enum, value_name = "CLOCK", hide_possible_values = true)]
    pub clock: Option<Clock>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Long {
    /// It is left out, and counted
    Skip,
    /// Its end is left out, and counted
    Truncate,
    /// An IP packet leaves as fragments; others are left out
    Fragment,
}

/// `10` is seconds, as for tcpreplay.
fn seconds_or_time(text: &str) -> Result<Nanos, String> {
    match text.parse::<u64>() {
        Ok(seconds) => Ok(Nanos(seconds.saturating_mul(1_000_000_000))),
        Err(_) => text.parse().map_err(|error: squall::units::UnitError| error.to_string()),
    }
}

fn no_debugging(_: &str) -> Result<String, String> {
    Err("-d is tcpreplay's level of debugging, which there is none of here; to end after a time, \
         try --duration 10s"
        .into())
}

pub fn replay(args: &Args) -> Result<ExitCode, Error> {
    if args.listnics {
        return crate::ports::list();
    }
    if args.pid {
        crate::output::print(&format!("PID: {}\n", std::process::id()));
    }
    if args.stateful.stateful {
        return stateful(args);
    }
    if args.dualfile && args.files.len() != 2 {
        return Err(Error::Usage(format!(
            "--dualfile sends two files, one by each port, and there are {}\n  try squall replay \
             --dualfile in.pcap out.pcap -i eth1 -I eth2",
            args.files.len()
        )));
    }
    let mut edits = args.edits.edits();
    edits.unfold |= args.pktlen;
    let replay = Replay {
        inputs: args.files.iter().map(|path| squall::replay::input(path)).collect(),
        merge: args.merge || args.dualfile,
        timing: args.speed().timing(args.pps_multi)?,
        since: None,
        longest_gap: args.maxsleep.map(|ms| ms.saturating_mul(1_000_000)),
        loops: args.loops,
        loop_delay: Picos::from(match (args.loopdelay_ms, args.loopdelay_ns) {
            (Some(ms), _) => Nanos(ms.saturating_mul(1_000_000)),
            (_, ns) => Nanos(ns.unwrap_or(0)),
        }),
        limit: args.limit,
        preload: args.preload,
        held: args.oneatatime.is_some(),
        too_long: match args.too_long {
            Long::Skip => TooLong::Skip,
            Long::Truncate => TooLong::Truncate,
            Long::Fragment => TooLong::Fragment,
        },
        split: args.split()?,
        unique: args.unique_ip.then_some(args.unique_ip_loops),
        flows: (!args.no_flow_stats).then(|| Flows {
            expiry_ns: args.flow_expiry.map(|time| time.0),
            max_flows: u32::try_from(args.max_flows).unwrap_or(u32::MAX).min(1 << 29),
            ..Flows::default()
        }),
        edits,
        filter: args.filter.as_deref().map(squall::replay::filter).transpose()?,
        include: args.include.clone(),
        exclude: args.exclude.clone(),
    };
    let ports = ["A", "B"].into_iter().zip(args.port.iter().chain(&args.port2));
    let ports: Vec<_> = ports.map(|(name, address)| (name, address.as_str())).collect();
    let preview = args.verbose.then(|| Preview::open(&replay, ports.len())).transpose()?;
    let mut session = Session::replay(replay, ports);
    session.profile.stop.duration = args.duration;
    session.cpus = args.cpus.as_ref().map(|list| list.0.clone());
    session.virtual_time = args.clock.map(|clock| matches!(clock, Clock::Virtual));
    session.command = crate::args::command_line();
    if let Some(frames) = args.oneatatime {
        return by_hand(session, args, frames, preview);
    }
    let title = format!("squall replay on {}", args.port());
    let end = End { each_s: args.stats, ..End::default() };
    drive_until(session, &args.output, &title, end, |_| {}, squall::render::replay)
}

/// `frames` leave each time Enter is pressed.
fn by_hand(
    session: Session,
    args: &Args,
    frames: u64,
    mut preview: Option<Preview>,
) -> Result<ExitCode, Error> {
    let session =
        Session { fingerprint: args.output.fingerprint, virtual_time: Some(false), ..session };
    let opened = session.open()?;
    let files = args.output.create()?;
    let mut run = opened.start()?;
    let mut lines = std::io::stdin().lines();
    let mut wanted = frames;
    while !run.wait(Duration::ZERO) {
        eprint!("How many frames? [{wanted}] ");
        // The end of the input is that of the replay.
        let Some(Ok(line)) = lines.next() else { break };
        match line.trim() {
            "" => {}
            "q" => break,
            text => match text.parse() {
                Ok(number) => wanted = number,
                Err(_) => {
                    eprintln!("{text:?}: expected a number of frames, Enter, or q to end");
                    continue;
                }
            },
        }
        for (port, line) in
            preview.iter_mut().flatten().take(usize::try_from(wanted).unwrap_or(usize::MAX))
        {
            let address = if port == 0 { args.port.as_ref() } else { args.port2.as_ref() };
            eprintln!("{} {line}", address.map_or("", String::as_str));
        }
        run.step(wanted);
        // Time for them to leave, and for the end to be noticed.
        run.wait(Duration::from_millis(100));
    }
    run.stop();
    let report = run.finish()?;
    let extra = squall::render::replay(&report);
    args.output.publish(report, files, &extra, &[])
}

impl Args {
    pub fn port(&self) -> &str {
        self.port.as_deref().unwrap_or_default()
    }

    fn split(&self) -> Result<Option<SplitBy>, Error> {
        if self.dualfile {
            return Ok(Some(SplitBy::Capture));
        }
        let cache = self.cache.as_ref().map(|path| path.to_string_lossy().into_owned());
        let auto = self.auto.or((self.port2.is_some() && self.reverse).then_some(AutoMode::First));
        let given = [
            ("cache", cache),
            ("cidr", self.cidr.clone()),
            ("regex", self.regex.clone()),
            ("mac", self.mac.clone()),
            ("port", self.by_port.then(String::new)),
            ("auto", auto.map(|mode| mode.to_string())),
        ];
        let given = given.into_iter().find_map(|(kind, text)| Some((kind, text?)));
        given.map(|(kind, text)| squall::replay::split(kind, &text, self.reverse)).transpose()
    }

    fn speed(&self) -> Speed {
        match (self.multiplier, self.pps, self.mbps, self.rate, self.ramp) {
            _ if self.topspeed || self.oneatatime.is_some() => Speed::Top,
            (Some(factor), ..) => Speed::Captured(factor),
            (_, Some(pps), ..) => Speed::Pps(pps),
            (_, _, Some(mbps), ..) => Speed::Mbps(mbps),
            (.., Some(rate), _) => Speed::Rate(rate),
            (.., Some(ramp)) => Speed::Ramp(ramp),
            _ => Speed::default(),
        }
    }
}
