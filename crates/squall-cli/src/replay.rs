//! `squall replay`: sends captures again, with tcpreplay's options.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Arg;
use squall::{Error, Session};
use squall_options::Clock;
use squall_profile::short::{self, Argument, Short};
use squall_replay::{Decimal, Numbers, Preview, Ramp, split::AutoMode};
use squall_units::{Nanos, Rate, parse_count};

use crate::{
    args::{Choice, Given, Options, Output, checked, two},
    drive::{End, drive_until},
    edit::EditArgs,
    stateful::{Stateful, stateful},
};

/// Replay captures: with their own timing, at a rate, or as fast as the port allows
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall replay capture.pcap -i eth1                      # as it was captured
  squall replay capture.pcapng -i eth1 -x 2.5             # two and a half times as fast
  squall replay capture.pcap -i eth1 -p 100000 -l 10 -K   # 100,000 frames/s, ten times, \
                        from memory
  squall replay capture.pcap -i eth1 -t -K -l 0 --duration 60
  squall replay a.pcap b.pcap -i eth1 --merge             # interleaved by their timestamps
  squall replay capture.pcap -i eth1 --ramp 1kpps..100kpps:30s -l 0 --duration 40
  squall replay capture.pcap -i eth1 --unique-ip -l 1000 -K -t
  squall replay capture.pcap -i eth1 -I eth2              # clients on eth1, servers on eth2, in \
                        the capture's order
  squall replay capture.pcap --stateful -i eth1 --server 10.0.0.2 --clients 10.0.1.0/24   # its \
                        clients, over real TCP
  squall replay capture.pcap --stateful -i eth1 -I eth2 -x 10                            # and its \
                        servers, ten times as fast
  zstdcat capture.pcap.zst | squall replay - -i eth1 -M 100
  squall replay capture.pcap -i pcap:out.pcap -p 10       # into a file, with the times of the \
                        schedule

Options that tcpreplay has keep their names and meanings. A frame counts as sent once the port has \
                        taken it.
-M counts octets as captures do, without FCS; --rate 100Mbps includes the FCS.

Exit status: 0 done, 1 failed by --fail-if, 2 wrong usage or a damaged capture (sent up to the \
                        damage), 3 environment, 4 NOT VALID (unless --allow-invalid), 129, 130, \
                        143 interrupted before its end by SIGHUP, SIGINT, SIGTERM.")]
pub struct Args {
    #[command(flatten)]
    pub what: Given<What>,
    #[command(flatten)]
    pub stateful: Given<Stateful>,
    #[command(flatten)]
    edits: Given<EditArgs>,
    /// Print the equivalent profile, and send nothing
    #[arg(long)]
    pub print_profile: bool,
    #[command(flatten)]
    pub options: Options<OfReplays>,
    #[command(flatten)]
    pub output: Output,
}

/// Selection, speed and repetition of captures.
#[derive(Debug, clap::Args)]
pub struct What {
    /// Captures to send, one after the other: pcap or pcapng, compressed or not; - is standard
    /// input
    #[arg(required_unless_present = "listnics", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Send on this port: eth1, af_packet:eth1, loop:NAME, pcap:FILE, null:; with --port2, packets
    /// of clients
    #[arg(
        short = 'i',
        long,
        visible_alias = "intf1",
        value_name = "ADDR",
        required_unless_present = "listnics"
    )]
    port: Option<String>,
    /// Send packets of servers on this port
    #[arg(short = 'I', long, visible_alias = "intf2", value_name = "ADDR")]
    pub port2: Option<String>,
    /// Interleave several files by their timestamps
    #[arg(long)]
    merge: bool,
    /// Send two files, one for each direction, as recorded by a tap: the first on -i, the second on
    /// -I, interleaved by their timestamps
    #[arg(short = '2', long, requires = "port2", conflicts_with = "merge", group = "split")]
    dualfile: bool,
    /// Read everything into memory before the first frame leaves, once for all loops
    #[arg(short = 'K', long, visible_alias = "preload-pcap")]
    preload: bool,

    /// Send FACTOR times as fast as captured: 2, 0.5
    #[arg(
        short = 'x',
        long,
        visible_alias = "speed",
        value_name = "FACTOR",
        value_parser = checked::<Decimal>,
        group = "speed",
        help_heading = "Speed"
    )]
    pub multiplier: Option<String>,
    /// Send this many frames per second: 100, 0.5
    #[arg(short = 'p', long, value_name = "PPS", group = "speed", value_parser = checked::<Decimal>, help_heading = "Speed")]
    pps: Option<String>,
    /// With --pps, send N frames at once
    #[arg(long, value_name = "N", default_value_t = 1, requires = "pps", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Speed")]
    pps_multi: u32,
    /// Send at this rate in Mb/s, counted without FCS, as in tcpreplay
    #[arg(short = 'M', long, value_name = "MBPS", group = "speed", value_parser = checked::<Decimal>, help_heading = "Speed")]
    mbps: Option<String>,
    /// Send as fast as the port allows
    #[arg(short = 't', long, group = "speed", help_heading = "Speed")]
    pub topspeed: bool,
    /// Send N frames each time you press Enter; type another number to change N, q to quit
    #[arg(short = 'o', long, value_name = "N", num_args = 0..=1, default_missing_value = "1", group = "speed", value_parser = at_once, help_heading = "Speed")]
    oneatatime: Option<u64>,
    /// With --oneatatime, show each frame in tcpdump's format before it leaves
    #[arg(short = 'v', long, requires = "oneatatime", help_heading = "Speed")]
    verbose: bool,
    /// Send at this rate: 10kpps, 1.5Gbps (L2 with FCS), '2 Gbps l1', max
    #[arg(long, value_name = "RATE", group = "speed", value_parser = checked::<Rate>, help_heading = "Speed")]
    rate: Option<String>,
    /// Change the rate linearly, then keep the last one: 1kpps..100kpps:30s
    #[arg(long, value_name = "FROM..TO:TIME", group = "speed", value_parser = checked::<Ramp>, help_heading = "Speed")]
    ramp: Option<String>,
    /// Shorten captured gaps to at most this, in milliseconds
    #[arg(long, value_name = "MS", help_heading = "Speed")]
    maxsleep: Option<u64>,
    /// Treat late frames in this way: smooth, catch-up, drop, stretch [default: smooth]
    #[arg(long, value_name = "POLICY", help_heading = "Speed")]
    late: Option<String>,

    /// Send the captures N times; 0: until Ctrl-C
    #[arg(
        short = 'l',
        long = "loop",
        value_name = "N",
        default_value_t = 1,
        help_heading = "Loops and ends"
    )]
    pub loops: u64,
    /// Wait for this time between loops, in milliseconds
    #[arg(
        long,
        value_name = "MS",
        conflicts_with = "loopdelay_ns",
        help_heading = "Loops and ends"
    )]
    loopdelay_ms: Option<u64>,
    /// Wait for this time between loops, in nanoseconds
    #[arg(long, value_name = "NS", help_heading = "Loops and ends")]
    loopdelay_ns: Option<u64>,
    /// Stop after N frames
    #[arg(short = 'L', long, visible_short_alias = 'n', visible_alias = "count", value_name = "N", value_parser = parse_count, help_heading = "Loops and ends")]
    limit: Option<u64>,
    /// tcpreplay's debug level, rejected because `-d` would otherwise be parsed as a duration and
    /// end the run after some seconds.
    #[arg(short = 'd', long = "dbug", hide = true, num_args = 0..=1, default_missing_value = "0", value_parser = no_debugging)]
    dbug: Option<String>,

    /// Split packets over the two ports by a cache of tcpprep or squall prep
    #[arg(
        short,
        long,
        visible_alias = "cachefile",
        value_name = "FILE",
        group = "split",
        help_heading = "Two ports"
    )]
    cache: Option<PathBuf>,
    /// Split by the behavior of hosts in the capture: bridge, router, client, server (which read it
    /// twice), or first [default: first]
    #[arg(long, value_name = "MODE", group = "split", help_heading = "Two ports")]
    auto: Option<AutoMode>,
    /// Split by source address: send packets from these networks on the first port:
    /// 10.0.0.0/8,[fe80::/16]
    #[arg(long, value_name = "NETWORKS", group = "split", help_heading = "Two ports")]
    cidr: Option<String>,
    /// Split by source address as text: send packets that match EXPR on the first port
    #[arg(long, value_name = "EXPR", group = "split", help_heading = "Two ports")]
    regex: Option<String>,
    /// Split by destination port: send packets to services (0-1023) on the first port
    #[arg(long, group = "split", help_heading = "Two ports")]
    by_port: bool,
    /// Split by source MAC address: send packets from these on the first port
    #[arg(long, value_name = "MACS", group = "split", help_heading = "Two ports")]
    mac: Option<String>,
    /// Exchange the two ports
    #[arg(long, help_heading = "Two ports")]
    reverse: bool,

    /// Change the addresses in each loop, so that each loop has its own flows
    #[arg(long, help_heading = "Flows")]
    unique_ip: bool,
    /// With --unique-ip, change the addresses only in every N-th loop
    #[arg(long, value_name = "N", default_value_t = 1, requires = "unique_ip", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Flows")]
    unique_ip_loops: u64,
    /// End a flow that was idle for longer than this (as captured); its next packet starts another
    /// one
    #[arg(long, value_name = "TIME", help_heading = "Flows")]
    flow_expiry: Option<Nanos>,
    /// Do not count flows
    #[arg(long, help_heading = "Flows")]
    no_flow_stats: bool,
    /// Count at most N flows of the captures separately [default: 1M]
    #[arg(long, value_name = "N", value_parser = parse_count, default_value_t = MAX_FLOWS, hide_default_value = true, help_heading = "Flows")]
    max_flows: u64,

    /// Send only packets that match EXPR (tcpdump's language): 'tcp port 80'
    #[arg(short = 'f', long, value_name = "EXPR", help_heading = "Which packets")]
    pub filter: Option<String>,
    /// Send only these packets, by their numbers over all files: 1-5,9,20-
    #[arg(long, value_name = "LIST", value_parser = checked::<Numbers>, help_heading = "Which packets")]
    include: Option<String>,
    /// Do not send these packets
    #[arg(long, value_name = "LIST", value_parser = checked::<Numbers>, help_heading = "Which packets")]
    exclude: Option<String>,
    /// Send frames with their length on the wire: octets that were not captured become zeros
    /// (--unfold)
    #[arg(long, help_heading = "Which packets")]
    pktlen: bool,
    /// Print a line of figures every N seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "As tcpreplay")]
    stats: Option<u32>,
    /// Print the process ID at the start
    #[arg(short = 'P', long, help_heading = "As tcpreplay")]
    pid: bool,
    /// Accepted for compatibility, without effect: Squall has only one way to wait
    #[arg(short = 'T', long, value_name = "METHOD", value_parser = ["nano", "select", "ioport", "gtod", "rdtsc", "abstime"], hide_possible_values = true, help_heading = "As tcpreplay")]
    timer: Option<String>,
    /// List the interfaces, as squall ports does
    #[arg(long, help_heading = "As tcpreplay")]
    listnics: bool,
    /// Treat frames that are longer than the port allows in this way
    #[arg(long, value_enum, value_name = "WHAT", default_value = "skip")]
    too_long: Long,
}

/// Default number of flows that are counted separately.
const MAX_FLOWS: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Long {
    /// Leave it out, and count it
    Skip,
    /// Cut it off, and count it
    Truncate,
    /// Send an IP packet as fragments; leave out others
    Fragment,
}

fn at_once(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|&n| n > 0).ok_or_else(|| {
        "-o is tcpreplay's --oneatatime and takes a number of frames; to write a capture instead \
         of sending, try -i pcap:FILE"
            .into()
    })
}

fn no_debugging(_: &str) -> Result<String, String> {
    Err("-d is tcpreplay's debugging level, which Squall does not have; to stop after a time, try \
         --duration 10s"
        .into())
}

/// Run options of replays, which receive nothing.
#[derive(Debug)]
pub struct OfReplays;

impl Choice for OfReplays {
    fn has(name: &str) -> bool {
        ["duration", "abort_if", "cpus", "clock", "fingerprint", "force"].contains(&name)
    }

    fn adapt(arg: Arg) -> Arg {
        // tcpreplay uses -d for its debug level, so it is not short for --duration here.
        if arg.get_id() == "duration" { arg.short(None) } else { arg }
    }
}

pub fn replay(args: &Args) -> Result<ExitCode, Error> {
    let what = &args.what.args;
    if what.listnics {
        return crate::ports::list();
    }
    if what.pid {
        crate::output::print(&format!("PID: {}\n", std::process::id()));
    }
    if args.stateful.args.stateful {
        return stateful(args);
    }
    if what.dualfile && what.files.len() != 2 {
        return Err(Error::Usage(format!(
            "--dualfile sends two files, one on each port, and there are {}\n  try squall replay \
             --dualfile in.pcap out.pcap -i eth1 -I eth2",
            what.files.len()
        )));
    }
    let edits = args.edits.arguments.iter().map(|of| {
        let key = format!("edit.{}", of.key);
        Argument { key, ..of.clone() }
    });
    let profile = short::replay(Short {
        command: "squall replay",
        ports: &what.ports(),
        arguments: &args.what.arguments.iter().cloned().chain(edits).collect::<Vec<_>>(),
    })?;
    let mut session = args.options.session(profile)?;
    if args.print_profile {
        crate::output::print_data(&session.profile.to_toml());
        return Ok(ExitCode::SUCCESS);
    }
    session.options.receive = Some(false);
    if let Some(frames) = what.oneatatime {
        return by_hand(session, args, frames);
    }
    let title = format!("squall replay on {}", what.port());
    let end = End { each_s: what.stats, ..End::default() };
    drive_until(session, &args.output, &title, end, |_| {}, squall_report::render::replay)
}

/// Sends `frames` frames each time that Enter is pressed.
fn by_hand(mut session: Session, args: &Args, frames: u64) -> Result<ExitCode, Error> {
    session.options.clock = Some(Clock::Real);
    let opened = session.open()?;
    let replay = &opened.plan().replays[0];
    let preview = || Preview::open(&replay.replay, replay.ports.len());
    let mut preview = args.what.args.verbose.then(preview).transpose()?;
    let files = args.output.create()?;
    let mut run = opened.start()?;
    let mut lines = std::io::stdin().lines();
    let mut wanted = frames;
    while !run.wait(Duration::ZERO) {
        eprint!("How many frames? [{wanted}] ");
        // The end of the input ends the replay.
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
            let address = if port == 0 { &args.what.args.port } else { &args.what.args.port2 };
            eprintln!("{} {line}", address.as_deref().unwrap_or_default());
        }
        run.step(wanted);
        // Wait until the frames have left, and the end of the replay is detected.
        run.wait(Duration::from_millis(100));
    }
    run.stop();
    let report = run.finish()?;
    let extra = squall_report::render::replay(&report);
    args.output.publish(report, files, &extra, &[])
}

impl What {
    pub fn port(&self) -> &str {
        self.port.as_deref().unwrap_or_default()
    }

    pub fn ports(&self) -> Vec<&str> {
        two(self.port(), self.port2.as_ref())
    }
}
