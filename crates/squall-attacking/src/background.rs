//! A capture of benign traffic that is mixed with the attacks.

use std::{
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use squall_attacks::{End, Label, labels::Kind};
use squall_measure::flow::{FlowKey, Headers, Link};
use squall_pcap::CaptureReader;
use squall_profile::{ErrorCollector, Located};
use squall_units::Nanos;
use squall_wire::link::to_ethernet;

use crate::{CLIENT_MAC, Line, SERVER_MAC, Timed};

/// The result of reading a capture once: its flows, with client and time of each.
pub struct Survey {
    path: PathBuf,
    /// Flows, by a key that is the same for both directions.
    flows: HashMap<FlowKey, Seen>,
    first: u64,
    last: u64,
    frames: u64,
    octets: u64,
}

struct Seen {
    /// Key of the first frame, which the client sent.
    key: FlowKey,
    begin: u64,
    end: u64,
    frames: u32,
}

/// Surveys the capture. Returns `None` if it cannot be used, and adds the reason to `mistakes`.
pub fn survey(file: &Located, mistakes: &mut ErrorCollector<'_>) -> Option<Survey> {
    let reason = match Survey::of(Path::new(&file.text)) {
        Ok(survey) if survey.frames > 0 => return Some(survey),
        Ok(_) => format!("{} has no frame to send", file.text),
        Err(error) => error,
    };
    mistakes.note(file, &reason, "`squall info` shows what is in a capture");
    None
}

impl Survey {
    fn of(path: &Path) -> Result<Self, String> {
        let mut reader = CaptureReader::open(path).map_err(|error| error.to_string())?;
        let mut survey = Survey {
            path: path.into(),
            flows: HashMap::new(),
            first: 0,
            last: 0,
            frames: 0,
            octets: 0,
        };
        while let Some(packet) = reader.next().map_err(|error| error.to_string())? {
            let Ok(frame) = to_ethernet(packet.link_type.0, packet.data) else { continue };
            if survey.frames == 0 {
                (survey.first, survey.last) = (packet.time_ns, packet.time_ns);
            }
            survey.last = survey.last.max(packet.time_ns);
            survey.frames += 1;
            survey.octets += frame.len() as u64;
            let Some(key) = flow(&frame) else { continue };
            let begin = packet.time_ns.max(survey.first);
            let seen = survey.flows.entry(key.canonical().0).or_insert(Seen {
                key,
                begin,
                end: begin,
                frames: 0,
            });
            seen.end = seen.end.max(packet.time_ns);
            seen.frames += 1;
        }
        Ok(survey)
    }

    /// Repeats the whole capture until `end`, but at least once. The labels of its flows have
    /// numbers from `number` on.
    pub fn line(&self, end: Nanos, number: u64) -> (Line, Vec<Label>) {
        let period = self.period();
        let loops = end.0.div_ceil(period).max(1);
        let label = |seen: &Seen| {
            Some(Label {
                attack: 0,
                begin: Nanos(seen.begin - self.first),
                end: Nanos(
                    (seen.end - self.first).saturating_add((loops - 1).saturating_mul(period)),
                ),
                protocol: seen.key.protocol,
                source: seen.key.src_ip()?,
                source_port: seen.key.src_port,
                destination: seen.key.dst_ip()?,
                destination_port: seen.key.dst_port,
                kind: Kind::Benign,
                gid: 0,
                sid: 0,
                rev: 0,
                msg: String::new(),
                also: Vec::new(),
                alerts: 0,
                frames: u32::try_from(u64::from(seen.frames).saturating_mul(loops))
                    .unwrap_or(u32::MAX),
                name: "background".into(),
                note: String::new(),
            })
        };
        let mut labels: Vec<Label> = self.flows.values().filter_map(label).collect();
        labels.sort_by_key(|label| {
            (label.begin, label.source, label.source_port, label.destination_port)
        });
        (number..).zip(&mut labels).for_each(|(number, label)| label.attack = number);
        let first_keys: HashMap<_, _> =
            self.flows.iter().map(|(flow, seen)| (*flow, seen.key)).collect();
        let (path, first_keys, first) = (self.path.clone(), Arc::new(first_keys), self.first);
        let line = move || -> super::Timeline {
            Box::new(Loops {
                path: path.clone(),
                first_keys: first_keys.clone(),
                reader: None,
                nth: 0,
                first,
                period,
                end: end.0,
            })
        };
        (Arc::new(line), labels)
    }

    /// Mean rate in octets per second, without FCS.
    pub fn octets_per_second(&self) -> f64 {
        self.octets as f64 * 1e9 / self.period() as f64
    }

    /// Time from the start of one loop to the start of the next: the span of the capture, plus one
    /// mean gap after the last frame.
    fn period(&self) -> u64 {
        let span = self.last - self.first;
        (span + span / self.frames.saturating_sub(1).max(1)).max(1_000_000)
    }
}

/// Flow key of an Ethernet frame. `None` if it is not IP.
fn flow(frame: &[u8]) -> Option<FlowKey> {
    let key = Headers::parse(frame, Link::Ethernet).key;
    key.is_ip().then_some(key)
}

/// Reads the capture again and again.
struct Loops {
    path: PathBuf,
    /// Key of the first frame of each flow, by the key that is the same for both directions.
    first_keys: Arc<HashMap<FlowKey, FlowKey>>,
    reader: Option<CaptureReader<File>>,
    nth: u64,
    first: u64,
    period: u64,
    end: u64,
}

impl Iterator for Loops {
    type Item = Timed;

    fn next(&mut self) -> Option<Timed> {
        loop {
            let base = self.nth.saturating_mul(self.period);
            if self.nth > 0 && base >= self.end {
                return None;
            }
            if self.reader.is_none() {
                self.reader = Some(CaptureReader::open(&self.path).ok()?);
            }
            // The survey has read the capture to its end. If it has become unreadable since then,
            // the loop ends here.
            let Some(packet) = self.reader.as_mut()?.next().ok().flatten() else {
                self.reader = None;
                self.nth += 1;
                continue;
            };
            let Ok(frame) = to_ethernet(packet.link_type.0, packet.data) else { continue };
            let mut octets = frame.to_vec();
            let from_client = flow(&octets)
                .is_none_or(|key| self.first_keys.get(&key.canonical().0) == Some(&key));
            let (from, mac) =
                if from_client { (End::Client, CLIENT_MAC) } else { (End::Server, SERVER_MAC) };
            if let Some(source) = octets.get_mut(6..12) {
                source.copy_from_slice(&mac.0);
            }
            let at = Nanos(base + packet.time_ns.saturating_sub(self.first));
            return Some(Timed { at, from, octets });
        }
    }
}
