//! The report on a capture.

use std::collections::BTreeMap;

use squall_capture::{Format, Outcome, WrittenFile};
use squall_report::report::{CaptureFile, CaptureReport, InterfaceReport, PortReport};
use squall_units::Nanos;

/// The results of a capture, or its current state.
pub struct Captured {
    pub format: Format,
    pub snaplen: u32,
    /// If the capture has a trigger, the requested time before it.
    pub buffer: Option<Nanos>,
    pub outcome: Outcome,
}

impl Captured {
    /// The section of the report. `ports` are those of the run, and `accepted` is the number of
    /// frames that passed their filter.
    pub(crate) fn section(&self, ports: &[PortReport], accepted: Option<u64>) -> CaptureReport {
        let Outcome { counters: c, files, error, ended_by, triggered_ns, .. } =
            self.outcome.clone();
        let mut dropped_by_kernel = BTreeMap::new();
        for (reason, n) in ports.iter().flat_map(|port| &port.rx.drops) {
            *dropped_by_kernel.entry(reason.clone()).or_insert(0) += n;
        }
        let interfaces: Vec<_> = ports.iter().filter_map(|port| port.interface.as_ref()).collect();
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
            format: match self.format {
                Format::Pcapng => "pcapng",
                Format::Pcap { nanoseconds: true } => "pcap, nanoseconds",
                Format::Pcap { nanoseconds: false } => "pcap, microseconds",
            }
            .to_owned(),
            snaplen: self.snaplen,
            arrived: (!interfaces.is_empty())
                .then(|| interfaces.iter().map(|i| i.rx_packets).sum()),
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

    /// Notes for the user.
    pub(crate) fn notes(&self) -> Vec<String> {
        let Self { outcome, buffer, .. } = self;
        let mut notes = Vec::new();
        if let (Some(from), Some(trigger), Some(keep)) =
            (outcome.kept_from_ns, outcome.triggered_ns, buffer)
        {
            let kept = Nanos(trigger.saturating_sub(from));
            notes.push(format!(
                "the buffer held {kept} before the trigger, not {keep}: try a larger --buffer, \
                 or a smaller --snaplen"
            ));
        }
        let unsummed = outcome.counters.unsummed;
        if unsummed > 0 {
            notes.push(format!(
                "{unsummed} packets are from GSO frames that were shortened to the snaplen: \
                 their TCP or UDP checksums are not correct"
            ));
        }
        notes
    }
}

fn file(file: WrittenFile) -> CaptureFile {
    let WrittenFile { name, packets, octets, first_ns, last_ns } = file;
    let time = |ns: u64| (packets > 0).then(|| stamp(ns));
    CaptureFile { name, packets, octets, first: time(first_ns), last: time(last_ns) }
}

/// Formats a time as RFC 3339, UTC.
fn stamp(ns: u64) -> String {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(ns);
    humantime::format_rfc3339_nanos(time).to_string()
}
