//! Captures the frames that a session receives into files, and reports the results.

use std::{fmt::Display, path::PathBuf, str::FromStr, sync::Arc, time::SystemTime};

use squall_capture::{
    Capture as Running, Format, GsoFrames, InterfaceCounts, OnFull, Options, Outcome, PreTrigger,
    Print, Rotate, SNAPLEN, Stop, Tap,
};
use squall_engine::{Frames, MakeSink, PortRx, Shown, Sink, Snapshot};
use squall_options::{CaptureOptions, Count, Octets, Time};
use squall_pcap::{InterfaceFormat, LinkType};
use squall_port::{Address, Filter, InterfaceCounters, Port, PortFacts, output::Permit};
use squall_port_linux::filter;
use squall_profile::Profile;
use squall_units::Nanos;

use squall_record::Captured;

use crate::Error;

/// The capture of received frames during a run.
#[derive(Clone)]
pub(crate) struct Capture {
    /// Interfaces, clock and trigger filter are added when the ports are open.
    pub options: Options,
    trigger: Option<String>,
    /// Whether captured frames are measured as well. Otherwise they are only counted, which leaves
    /// the receiver more time.
    pub measured: bool,
}

impl Capture {
    /// The capture options for a run of `profile`. If the profile sends nothing, captured frames
    /// are not measured.
    ///
    /// # Errors
    /// Values are invalid.
    pub fn of(asked: &CaptureOptions, profile: &Profile) -> Result<Self, Error> {
        let mut options = options(asked)?;
        if options.print.is_none() {
            options.file.get_or_insert_with(new_name);
        }
        let sends = !(profile.streams.is_empty()
            && profile.replays.is_empty()
            && profile.flows.is_none()
            && profile.attacks.is_empty()
            && profile.hosts.is_empty()
            && profile.routers.is_empty());
        Ok(Self { options, trigger: asked.trigger.clone(), measured: sends })
    }
}

/// Converts the options in `asked`. Missing ones have their defaults.
///
/// # Errors
/// Values are invalid.
pub fn options(asked: &CaptureOptions) -> Result<Options, Error> {
    let wrong = |what: String| Error::Usage(format!("capture: {what}"));
    let time = |time: Time| match time > Time::default() {
        true => Ok(time.0),
        false => {
            let expected = "expected a time above 0, such as 100ms or 10s";
            Err(wrong(format!("rotate_s = {time}: {expected}")))
        }
    };
    let (count, size) = (|count: Count| count.0, |octets: Octets| octets.0);
    let name = asked.file.as_ref().map(|file| file.to_string_lossy()).unwrap_or_default();
    let plain = [".zst", ".gz", ".lz4"].iter().find_map(|end| name.strip_suffix(end));
    let plain = plain.unwrap_or(&name);
    let format = match asked.format.as_deref() {
        Some("pcapng") => Format::Pcapng,
        Some("pcap") => Format::Pcap { nanoseconds: true },
        Some("pcap-us") => Format::Pcap { nanoseconds: false },
        Some(other) => {
            let expected = "expected \"pcapng\", \"pcap\" or \"pcap-us\"";
            return Err(wrong(format!("format = {other:?}: {expected}")));
        }
        None if plain.ends_with(".pcap") || plain.ends_with(".cap") => {
            Format::Pcap { nanoseconds: true }
        }
        None => Format::Pcapng,
    };
    let default = Options::default();
    if asked.pre_trigger.is_none() && (asked.trigger.is_some() || asked.post_trigger.is_some()) {
        return Err(wrong("a trigger without pre_trigger\n  try pre_trigger = \"0 s\"".into()));
    }
    Ok(Options {
        format,
        snaplen: match asked.snaplen {
            Some(0) => return Err(wrong("snaplen = 0: expected 1 to 262144".into())),
            length => length.unwrap_or(SNAPLEN).min(SNAPLEN),
        },
        rotate: Rotate {
            octets: asked.rotate_octets.map(size),
            time: asked.rotate_s.map(time).transpose()?,
            packets: asked.rotate_packets.map(count),
            ring: asked.ring,
        },
        compress: parsed("compress", asked.compress.as_ref())?,
        buffer: asked.buffer.map_or(default.buffer, |n| usize::try_from(n.0).unwrap_or(usize::MAX)),
        on_full: parsed("on_full", asked.on_full.as_ref())?.unwrap_or_default(),
        stop: Stop {
            packets: asked.packets.map(count),
            octets: asked.octets.map(size),
            files: asked.files.map(count),
        },
        gso_frames: match asked.gso_frames.as_deref() {
            None | Some("cut") => GsoFrames::Cut,
            Some("keep") => GsoFrames::Keep,
            Some(other) => {
                return Err(wrong(format!("gso_frames = {other:?}: expected \"cut\" or \"keep\"")));
            }
        },
        pre_trigger: asked.pre_trigger.map(|keep| PreTrigger {
            keep: keep.0,
            after: asked.post_trigger.map(|time| time.0),
            filters: Vec::new(),
        }),
        print: parsed("print", asked.print.as_ref())?.map(|stamp| Print { stamp }),
        flush: asked.flush.unwrap_or(false),
        file: asked.file.clone(),
        ..default
    })
}

fn parsed<T: FromStr<Err: Display>>(name: &str, text: Option<&String>) -> Result<Option<T>, Error> {
    let one = |text: &String| {
        text.parse().map_err(|why| Error::Usage(format!("capture: {name} = {text:?}: {why}")))
    };
    text.map(one).transpose()
}

/// The default file name, for example `capture-20261122-101500123.pcapng`.
pub fn new_name() -> PathBuf {
    let now = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    let time = now.replace([':', '-'], "").replace('T', "-");
    format!("capture-{}.pcapng", time.trim_end_matches('Z')).into()
}

/// The filter for a port with these `facts`: frames that match `expression`, truncated to the
/// captured length. `None`: all frames, not truncated.
///
/// # Errors
/// As for [`filter::compile_port`].
pub(crate) fn filter_of(
    expression: Option<&str>,
    capture: Option<&Capture>,
    facts: &PortFacts,
) -> Result<Option<Arc<Filter>>, Error> {
    let snaplen = capture.map_or(filter::SNAPLEN, |capture| capture.options.snaplen);
    match expression.filter(|text| !text.trim().is_empty()) {
        Some(text) => Ok(Some(filter::compile_port(text, facts, snaplen)?)),
        None if snaplen >= filter::SNAPLEN => Ok(None),
        // Without an expression, libpcap is not needed.
        None => Ok(Some(Arc::new(Filter::all(snaplen)))),
    }
}

/// The capture of a run.
pub(crate) struct Capturing {
    running: Running,
    format: Format,
    snaplen: u32,
    buffer_kept: Option<Nanos>,
}

impl Capturing {
    /// Opens the first file. `ports`: the ports of the session, with their filters.
    pub fn start(
        capture: &Capture,
        ports: &[Box<dyn Port>],
        expression: Option<&str>,
        (virtual_time, force): (bool, bool),
    ) -> Result<Self, Error> {
        let mut options = capture.options.clone();
        options.virtual_time = virtual_time;
        if force {
            options.permit = Permit::FORCE;
        }
        if virtual_time && options.on_full == OnFull::default() {
            // On virtual time, waiting for the file loses nothing.
            options.on_full = OnFull::Wait;
        }
        options.directed = ports.iter().any(|port| captures_sent(port.facts()));
        options.interfaces =
            ports.iter().map(|port| interface(port.as_ref(), expression)).collect();
        if let (Some(text), Some(pre)) = (&capture.trigger, &mut options.pre_trigger) {
            let each =
                ports.iter().map(|port| filter::compile_port(text, port.facts(), filter::SNAPLEN));
            pre.filters = each.collect::<Result<_, _>>()?;
        }
        let (format, snaplen) = (options.format, options.snaplen);
        let buffer_kept = options.pre_trigger.as_ref().map(|pre| pre.keep);
        let running = Running::start(options).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidInput | std::io::ErrorKind::AlreadyExists => {
                Error::Usage(error.to_string())
            }
            _ => Error::Environment(error.to_string()),
        })?;
        Ok(Self { running, format, snaplen, buffer_kept })
    }

    /// Creates the sinks that capture the frames received on the queues of `port`.
    pub fn sinks(&self, port: usize) -> MakeSink {
        let make = self.running.taps(port);
        Arc::new(move |_queue| Box::new(Capturer(make())))
    }

    /// Sends the ports' counters to the writer, for the statistics in files that end after this
    /// call.
    pub fn tell(&self, interfaces: &[Option<InterfaceCounters>], workers: &[Snapshot]) {
        for (port, interface) in interfaces.iter().enumerate() {
            let queues = workers.iter().flat_map(|w| &w.rx).filter(|q| q.port == port);
            let counts = InterfaceCounts {
                received: interface.map(|i| i.rx_packets),
                dropped_by_system: queues.map(dropped).sum(),
                // Some drivers count a frame in both counters.
                dropped_by_interface: interface.map(|i| i.rx_missed.max(i.rx_fifo)),
            };
            self.running.tell(port, counts);
        }
    }

    pub fn is_over(&self) -> bool {
        self.running.is_over()
    }

    pub fn trigger(&self) {
        self.running.trigger();
    }

    /// The results of the capture so far.
    pub fn so_far(&self) -> Captured {
        let outcome = Outcome { counters: self.running.counters(), ..Outcome::default() };
        Captured { format: self.format, snaplen: self.snaplen, buffer: self.buffer_kept, outcome }
    }

    /// Waits until all packets are written.
    pub fn finish(self) -> Captured {
        let Self { running, format, snaplen, buffer_kept } = self;
        Captured { format, snaplen, buffer: buffer_kept, outcome: running.finish() }
    }
}

/// Whether the port also receives frames that this host sends. If so, packets get a direction.
fn captures_sent(facts: &PortFacts) -> bool {
    let address = facts.address.parse::<Address>().ok();
    let direction = address.and_then(|mut a| a.take::<String>("direction", "").ok()?);
    direction.is_some_and(|direction| direction != "in")
}

/// A sink that passes frames to a tap. It reports no counters, because the capture reports them.
struct Capturer(Tap);

impl Sink for Capturer {
    fn take(&mut self, frames: &mut Frames<'_>) {
        self.0.take(&frames.batch());
    }

    fn idle(&mut self, now: Nanos) {
        self.0.idle(now);
    }

    fn leave(&mut self, _into: &mut PortRx) -> Option<Shown> {
        self.0.finish();
        None
    }
}

fn dropped(queue: &PortRx) -> u64 {
    queue.drops.iter().map(|(_, n)| n).sum()
}

/// The description of an interface for the file.
fn interface(port: &dyn Port, expression: Option<&str>) -> InterfaceFormat {
    let facts = port.facts();
    let name = facts
        .address
        .parse::<Address>()
        .map_or_else(|_| facts.address.clone(), |a| a.name().to_owned());
    InterfaceFormat {
        name: Some(name),
        description: Some(facts.address.clone()),
        filter: expression.map(str::to_owned),
        mac: facts.mac.map(|mac| mac.0),
        speed_bps: facts.speed_bps,
        link_type: LinkType(facts.link_type),
        ..InterfaceFormat::default()
    }
}
