//! What a session captures into files, and how it came out.

use std::{
    collections::BTreeMap, fmt::Display, path::PathBuf, str::FromStr, sync::Arc, time::SystemTime,
};

use squall_capture::{
    Capture as Running, Format, InterfaceCounts, OnFull, Options, Outcome, Rotate, SNAPLEN, Stop,
    WrittenFile,
};
use squall_engine::{MakeTap, PortRx, Snapshot};
use squall_options::CaptureOptions;
use squall_pcap::{InterfaceFormat, LinkType};
use squall_port::{Address, Filter, InterfaceCounters, Port, PortFacts, Tap, output::Permit};
use squall_profile::Profile;
use squall_units::Nanos;

use crate::{
    Error, filter,
    report::{CaptureFile, CaptureReport, InterfaceReport, Report},
};

/// What a [`Session`](crate::Session) writes of the frames that it receives.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// Interfaces, the clock and the trigger's filter are the session's to fill in.
    pub options: Options,
    /// In the language of tcpdump: the frame that [`squall_capture::PreTrigger`] waits for.
    pub trigger: Option<String>,
    /// What is captured is measured, too; else it is counted only, which leaves the receiver more
    /// time.
    pub beside: bool,
}

impl Capture {
    /// What is asked for beside a run of `profile`; if that sends nothing, nothing else is measured.
    ///
    /// # Errors
    /// Values that no capture can have.
    pub fn of(asked: &CaptureOptions, profile: &Profile) -> Result<Self, Error> {
        let mut options = options(asked)?;
        options.file.get_or_insert_with(new_name);
        let sends = !(profile.streams.is_empty()
            && profile.replays.is_empty()
            && profile.flows.is_none()
            && profile.attacks.is_empty());
        Ok(Self { options, trigger: None, beside: sends })
    }
}

/// What `asked` says; all else is at its default.
///
/// # Errors
/// Values that no capture can have.
pub fn options(asked: &CaptureOptions) -> Result<Options, Error> {
    let wrong = |what: String| Error::Usage(format!("capture: {what}"));
    let time = |seconds: f64| match (1e-9..1e9).contains(&seconds) {
        true => Ok(Nanos::from_secs_f64(seconds)),
        false => Err(wrong(format!("rotate_s = {seconds}: expected a number of seconds above 0"))),
    };
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
    Ok(Options {
        format,
        snaplen: match asked.snaplen {
            Some(0) => return Err(wrong("snaplen = 0: expected 1 to 262144".into())),
            said => said.unwrap_or(SNAPLEN).min(SNAPLEN),
        },
        rotate: Rotate {
            octets: asked.rotate_octets,
            time: asked.rotate_s.map(time).transpose()?,
            packets: asked.rotate_packets,
            ring: asked.ring,
        },
        compress: parsed("compress", asked.compress.as_ref())?,
        buffer: asked.buffer.map_or(default.buffer, |n| usize::try_from(n).unwrap_or(usize::MAX)),
        on_full: parsed("on_full", asked.on_full.as_ref())?.unwrap_or_default(),
        stop: Stop { packets: asked.packets, octets: asked.octets, files: None },
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

/// `capture-20261122-101500123.pcapng`: of a capture that was given no name.
pub fn new_name() -> PathBuf {
    let now = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    let time = now.replace([':', '-'], "").replace('T', "-");
    format!("capture-{}.pcapng", time.trim_end_matches('Z')).into()
}

/// The filter of a port with `facts`: `expression`, and no more octets than are kept; `None` if all
/// is wanted whole.
///
/// # Errors
/// As [`filter::compile_port`].
pub(crate) fn filter_of(
    expression: Option<&str>,
    capture: Option<&Capture>,
    facts: &PortFacts,
) -> Result<Option<Arc<Filter>>, Error> {
    let snaplen = capture.map_or(filter::SNAPLEN, |capture| capture.options.snaplen);
    match expression.filter(|text| !text.trim().is_empty()) {
        Some(text) => Ok(Some(filter::compile_port(text, facts, snaplen)?)),
        None if snaplen >= filter::SNAPLEN => Ok(None),
        // No library is needed to say that all is wanted.
        None => Ok(Some(Arc::new(Filter::all(snaplen)))),
    }
}

/// A capture that a run has.
pub(crate) struct Capturing {
    running: Running,
    format: Format,
    snaplen: u32,
    buffer_kept: Option<Nanos>,
}

impl Capturing {
    /// Opens the first file. `ports` are those of the session, with the filter that each has.
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
            // A file waits until there is room.
            options.on_full = OnFull::Wait;
        }
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

    /// What makes the taps of the queues of `port`.
    pub fn taps(&self, port: usize) -> MakeTap {
        let make = self.running.taps(port);
        Arc::new(move |_queue| -> Box<dyn Tap> { make() })
    }

    /// What the ports have counted so far goes into the statistics of files that end from now on.
    pub fn tell(&self, interfaces: &[Option<InterfaceCounters>], workers: &[Snapshot]) {
        for (port, interface) in interfaces.iter().enumerate() {
            let queues = workers.iter().flat_map(|w| &w.rx).filter(|q| q.port == port);
            let counts = InterfaceCounts {
                received: interface.map(|i| i.rx_packets),
                dropped_by_system: queues.map(dropped).sum(),
                // Some drivers count a frame in both.
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

    /// As it is now.
    pub fn so_far(&self, report: &Report, accepted: Option<u64>) -> CaptureReport {
        let outcome = Outcome { counters: self.running.counters(), ..Outcome::default() };
        section((self.format, self.snaplen), report, accepted, outcome)
    }

    /// Waits until all is written.
    pub fn finish(self, report: &mut Report, accepted: Option<u64>) {
        let Self { running, format, snaplen, buffer_kept } = self;
        let outcome = running.finish();
        if let (Some(from), Some(trigger), Some(keep)) =
            (outcome.kept_from_ns, outcome.triggered_ns, buffer_kept)
        {
            let kept = Nanos(trigger.saturating_sub(from));
            report.notes.push(format!(
                "the buffer held {kept} before the trigger, not {keep}: try a larger --buffer, \
                 or a smaller --snaplen"
            ));
        }
        let unsummed = outcome.counters.unsummed;
        if unsummed > 0 {
            report.notes.push(format!(
                "{unsummed} packets are from GSO frames that were shortened to the snaplen: \
                 their TCP or UDP checksums are not correct"
            ));
        }
        report.capture = Some(section((format, snaplen), report, accepted, outcome));
    }
}

/// Frames that the filter took, as the ports count them; `None` if one does not.
pub(crate) fn accepted(workers: &[Snapshot]) -> Option<u64> {
    workers
        .iter()
        .flat_map(|w| &w.rx)
        .map(|queue| Some(queue.received?.saturating_sub(queue.filtered)))
        .sum()
}

fn dropped(queue: &PortRx) -> u64 {
    queue.drops.iter().map(|(_, n)| n).sum()
}

/// As a file describes it.
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

fn section(
    (format, snaplen): (Format, u32),
    report: &Report,
    accepted: Option<u64>,
    outcome: Outcome,
) -> CaptureReport {
    let Outcome { counters: c, files, error, ended_by, triggered_ns, .. } = outcome;
    let mut dropped_by_kernel = BTreeMap::new();
    for (reason, n) in report.ports.iter().flat_map(|port| &port.rx.drops) {
        *dropped_by_kernel.entry(reason.clone()).or_insert(0) += n;
    }
    let interfaces: Vec<_> =
        report.ports.iter().filter_map(|port| port.interface.as_ref()).collect();
    let lost_by = |i: &InterfaceReport| {
        [
            ("rx_dropped", i.rx_dropped),
            ("rx_errors", i.rx_errors),
            ("rx_missed", i.rx_missed),
            ("rx_fifo", i.rx_fifo),
        ]
    };
    let mut dropped_by_interface = BTreeMap::new();
    for (counter, n) in interfaces.iter().flat_map(|i| lost_by(i)).filter(|(_, n)| *n > 0) {
        *dropped_by_interface.entry(counter.to_owned()).or_insert(0) += n;
    }
    let reasons = |list: Vec<(&'static str, u64)>| {
        list.into_iter().map(|(reason, n)| (reason.to_owned(), n)).collect()
    };
    let (dropped, unwanted): (BTreeMap<_, _>, BTreeMap<_, _>) =
        (reasons(c.dropped), reasons(c.unwanted));
    let sum = |map: &BTreeMap<String, u64>| map.values().sum::<u64>();
    let received = c.received + sum(&dropped_by_kernel);
    let lost = sum(&dropped_by_kernel) + sum(&dropped);
    let wanted = received.saturating_sub(sum(&unwanted));
    CaptureReport {
        format: match format {
            Format::Pcapng => "pcapng",
            Format::Pcap { nanoseconds: true } => "pcap, nanoseconds",
            Format::Pcap { nanoseconds: false } => "pcap, microseconds",
        }
        .to_owned(),
        snaplen,
        arrived: (!interfaces.is_empty()).then(|| interfaces.iter().map(|i| i.rx_packets).sum()),
        accepted,
        received,
        dropped_by_interface,
        dropped_by_kernel,
        dropped,
        unwanted,
        lost,
        loss_ratio: if wanted > 0 { lost as f64 / wanted as f64 } else { 0.0 },
        truncated: c.truncated,
        written_packets: c.written,
        written_octets: c.written_octets,
        file_octets: c.file_octets,
        files: files.into_iter().map(file).collect(),
        files_written: c.files,
        removed_files: c.removed_files,
        removed_packets: c.removed_packets,
        removed_octets: c.removed_octets,
        gso_frames: c.gso_frames,
        segments: c.segments,
        out_of_order: c.out_of_order,
        buffer_octets: c.buffer,
        buffer_peak_octets: c.buffer_peak,
        triggered: triggered_ns.map(stamp),
        ended_by: ended_by.map(str::to_owned),
        error,
    }
}

fn file(file: WrittenFile) -> CaptureFile {
    let WrittenFile { name, packets, octets, first_ns, last_ns } = file;
    let time = |ns: u64| (packets > 0).then(|| stamp(ns));
    CaptureFile { name, packets, octets, first: time(first_ns), last: time(last_ns) }
}

/// RFC 3339, UTC.
fn stamp(ns: u64) -> String {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(ns);
    humantime::format_rfc3339_nanos(time).to_string()
}
