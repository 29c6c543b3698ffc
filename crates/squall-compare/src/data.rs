//! Data sets: captures, and synthetic traffic with a distribution of lengths.

use std::{collections::HashMap, path::Path};

use squall_pcap::{CaptureReader, LinkType};

use super::model::{DataInfo, LengthBin, LengthPercentiles};
use squall::Error;

/// Frames to send in a loop.
#[derive(Clone, Debug)]
pub struct DataSet {
    pub info: DataInfo,
    pub frames: Frames,
}

#[derive(Clone, Debug)]
pub enum Frames {
    /// UDP frames with these lengths (octets without FCS) and weights.
    Synthetic(Vec<(u32, u32)>),
    Capture(Captured),
}

/// The frames of a capture, in memory.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    octets: Vec<u8>,
    /// End offset of each frame in the buffer.
    ends: Vec<usize>,
}

/// A named distribution of lengths: octets without FCS, and their weights.
pub struct Shape {
    pub name: &'static str,
    pub what: &'static str,
    weights: &'static [(u32, u32)],
}

/// Shapes modeled on published descriptions of such traffic, not on measurements. A capture of the
/// user's own traffic is more accurate.
///
/// Most packets of bulk TCP have one of two lengths, that of an acknowledgment (60) or of a full
/// segment (1514). A third length is that of the minimum MTU of IPv4 (590): Sinha, Papadopoulos,
/// Heidemann, "Internet Packet Size Distributions: Some Observations" (2007).
pub const SHAPES: &[Shape] = &[
    Shape {
        name: "http",
        what: "web pages over TCP: acknowledgments, requests, full segments",
        weights: &[(60, 38), (74, 5), (200, 3), (450, 5), (590, 4), (1000, 3), (1514, 42)],
    },
    Shape {
        // A download in bursts of full segments, with one acknowledgment for every two.
        name: "video",
        what: "video over TCP (Flash, HTTP): full segments, an acknowledgment for every other",
        weights: &[(60, 31), (350, 2), (900, 3), (1514, 64)],
    },
    Shape {
        // Voice frames of 20 to 60 ms with 30 to 130 octets of payload, plus UDP, IPv4 and Ethernet
        // headers; and some video.
        name: "voip",
        what: "calls over UDP (Skype, SIP): voice frames, a little video",
        weights: &[
            (60, 6),
            (82, 14),
            (110, 26),
            (145, 24),
            (174, 16),
            (214, 8),
            (700, 4),
            (1100, 2),
        ],
    },
    Shape {
        name: "mixed",
        what: "equal octets of http, video and voip",
        weights: &[
            (60, 118),
            (74, 7),
            (82, 82),
            (110, 153),
            (145, 141),
            (174, 94),
            (200, 4),
            (214, 47),
            (350, 2),
            (450, 7),
            (590, 5),
            (700, 24),
            (900, 3),
            (1000, 4),
            (1100, 12),
            (1514, 122),
        ],
    },
    Shape {
        name: "imix",
        what: "the simple Internet mix, 7:4:1",
        weights: &[(60, 7), (590, 4), (1514, 1)],
    },
];

/// Allowed lengths of an Ethernet frame without FCS: from the minimum to the limit of the lab's
/// interfaces.
const LENGTHS: std::ops::RangeInclusive<u32> = 60..=9000;
/// Maximum number of octets of a capture that are kept in memory.
const MOST_OCTETS: usize = 1 << 30;
const ETHERNET_HEADER: u32 = 14;

impl DataSet {
    /// Parses `60` (octets), the name of a shape, `NAME=60*7,590*4`, or the path of a capture.
    ///
    /// # Errors
    /// The text is none of these, or the capture cannot be read or has no frames to send.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if let Some(shape) = SHAPES.iter().find(|shape| shape.name == text) {
            return Ok(Self::synthetic(text, shape.what, shape.weights.to_vec()));
        }
        if let Ok(octets) = text.parse::<u32>() {
            let weights = vec![(check_length(text, octets)?, 1)];
            return Ok(Self::synthetic(text, "one length", weights));
        }
        if Path::new(text).exists() {
            return Self::capture(text);
        }
        if let Some((name, list)) = text.split_once('=') {
            return Ok(Self::synthetic(name, "as given", weights(text, list)?));
        }
        let names = SHAPES.iter().map(|shape| shape.name).collect::<Vec<_>>().join(", ");
        Err(Error::Usage(format!(
            "--data {text}: there is no file and no distribution with that name\n  expected \
             {names}, octets without FCS such as 60 or 1514, NAME=60*7,590*4,1514*1, or a capture"
        )))
    }

    fn synthetic(name: &str, what: &str, weights: Vec<(u32, u32)>) -> Self {
        let total: u64 = weights.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let share = |weight: u32| f64::from(weight) / total as f64;
        let info = DataInfo {
            name: name.into(),
            origin: format!("synthetic: {what}"),
            mean_octets: weights.iter().map(|(len, weight)| f64::from(*len) * share(*weight)).sum(),
            lengths: weights.iter().map(|(len, weight)| (*len, share(*weight))).collect(),
            ..distribution(weights.iter().map(|(len, weight)| (*len, u64::from(*weight))))
        };
        Self { info, frames: Frames::Synthetic(weights) }
    }

    fn capture(path: &str) -> Result<Self, Error> {
        let failed = |error: squall_pcap::CaptureError| Error::Usage(error.to_string());
        let mut reader = CaptureReader::open(path).map_err(failed)?;
        let (mut frames, mut lengths) = (Captured::default(), HashMap::<u32, u64>::new());
        let mut more = "";
        while let Some(packet) = reader.next().map_err(failed)? {
            if packet.link_type != LinkType::ETHERNET {
                let found = packet.link_type;
                return Err(Error::Usage(format!(
                    "--data {path}: packet {} is {found}, expected Ethernet",
                    packet.number
                )));
            }
            let len = packet.wire_len.max(*LENGTHS.start());
            check_length(&format!("{path}, packet {}", packet.number), len)?;
            if frames.octets.len() + len as usize > MOST_OCTETS {
                more = ", its first GiB";
                break;
            }
            frames.push(packet.data, len as usize);
            *lengths.entry(len).or_default() += 1;
        }
        if frames.is_empty() {
            return Err(Error::Usage(format!("--data {path}: it has no packets")));
        }
        let all = distribution(lengths.iter().map(|(len, n)| (*len, *n)));
        let mut lengths: Vec<(u32, f64)> =
            lengths.into_iter().map(|(len, n)| (len, n as f64 / frames.len() as f64)).collect();
        lengths.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        lengths.truncate(10);
        let name = Path::new(path)
            .file_name()
            .map_or(path.into(), |name| name.to_string_lossy().into_owned());
        let info = DataInfo {
            name,
            origin: format!("{path}{more}"),
            mean_octets: frames.octets.len() as f64 / frames.len() as f64,
            lengths,
            packets: Some(frames.len() as u64),
            ..all
        };
        Ok(Self { info, frames: Frames::Capture(frames) })
    }

    /// MTU for the longest frame, at least that of Ethernet.
    pub fn mtu(&self) -> u32 {
        let longest = match &self.frames {
            Frames::Synthetic(weights) => weights.iter().map(|(len, _)| *len).max().unwrap_or(0),
            Frames::Capture(frames) => frames.longest() as u32,
        };
        longest.saturating_sub(ETHERNET_HEADER).max(1500)
    }
}

impl Captured {
    /// Appends a frame of `len` octets. Octets that the capture cut off are zero.
    fn push(&mut self, data: &[u8], len: usize) {
        let end = self.octets.len() + len;
        self.octets.extend_from_slice(data);
        self.octets.resize(end, 0);
        self.ends.push(end);
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn longest(&self) -> usize {
        (0..self.len()).map(|i| self.frame(i).len()).max().unwrap_or(0)
    }

    /// Frame `i`, 0-based.
    pub fn frame(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.octets[start..self.ends[i]]
    }
}

/// Upper ends of the bins of RFC 2819 (etherStatsPkts64Octets and so on) without FCS, plus a bin
/// for larger frames.
const BINS: [u32; 7] = [60, 123, 251, 507, 1019, 1514, *LENGTHS.end()];

/// Histogram and percentiles of lengths, from their counts or weights.
fn distribution(lengths: impl Iterator<Item = (u32, u64)>) -> DataInfo {
    let mut all: Vec<(u32, u64)> = lengths.collect();
    all.sort_unstable();
    let total: u64 = all.iter().map(|(_, n)| n).sum();
    let mut histogram = Vec::new();
    let mut from = *LENGTHS.start();
    for to in BINS {
        let within = all.iter().filter(|(len, _)| (from..=to).contains(len));
        let share = within.map(|(_, n)| n).sum::<u64>() as f64 / total as f64;
        histogram.push(LengthBin { from, to, share });
        from = to + 1;
    }
    // Nearest rank, which gives an existing length instead of a mean of two.
    let at = |percent: u64| {
        let mut before = 0;
        let reaches = |(_, n): &&(u32, u64)| {
            before += n;
            100 * before >= percent * total
        };
        all.iter().find(reaches).map_or(0, |(len, _)| *len)
    };
    let percentiles = LengthPercentiles {
        min: at(0),
        p25: at(25),
        p50: at(50),
        p75: at(75),
        p90: at(90),
        max: at(100),
    };
    DataInfo { histogram, percentiles, ..DataInfo::default() }
}

fn check_length(what: &str, octets: u32) -> Result<u32, Error> {
    if LENGTHS.contains(&octets) {
        return Ok(octets);
    }
    let (least, most) = (LENGTHS.start(), LENGTHS.end());
    Err(Error::Usage(format!(
        "--data {what}: {octets} octets, expected {least} to {most} (without FCS)"
    )))
}

/// Parses `60*7,590*4,1514`.
fn weights(whole: &str, list: &str) -> Result<Vec<(u32, u32)>, Error> {
    let wrong = |part: &str| {
        Error::Usage(format!(
            "--data {whole}: {part:?} is not a length with its weight\n  expected \
             NAME=60*7,590*4,1514*1"
        ))
    };
    let entry = |part: &str| {
        let (len, weight) = part.split_once('*').unwrap_or((part, "1"));
        let len = len.trim().parse().map_err(|_| wrong(part))?;
        let weight = weight
            .trim()
            .parse()
            .ok()
            .filter(|w| (1..=1_000_000).contains(w))
            .ok_or_else(|| wrong(part))?;
        Ok((check_length(whole, len)?, weight))
    };
    list.split(',').map(entry).collect()
}

#[cfg(test)]
mod tests {
    use squall_pcap::{PcapFormat, PcapWriter};

    use super::*;

    #[test]
    fn every_shape_is_a_distribution() {
        for shape in SHAPES {
            let data = DataSet::parse(shape.name).unwrap();
            let sum: f64 = data.info.lengths.iter().map(|(_, share)| share).sum();
            assert!(
                (sum - 1.0).abs() < 1e-9 && (60.0..1514.0).contains(&data.info.mean_octets),
                "{}",
                shape.name
            );
            assert_eq!(data.mtu(), 1500, "{}", shape.name);
        }
    }

    #[test]
    fn a_distribution_has_bins_and_percentiles_of_all_lengths() {
        let info = DataSet::parse("imix").unwrap().info;
        let LengthPercentiles { min, p25, p50, p75, p90, max } = info.percentiles;
        // 7 of 12 are 58 %, 11 of 12 are 92 %.
        assert_eq!([min, p25, p50, p75, p90, max], [60, 60, 60, 590, 590, 1514]);
        let bins: Vec<f64> = info.histogram.iter().map(|bin| (12.0 * bin.share).round()).collect();
        assert_eq!(bins, [7.0, 0.0, 0.0, 0.0, 4.0, 1.0, 0.0]);
        assert_eq!((info.histogram[4].from, info.histogram[4].to), (508, 1019));
        let info = DataSet::parse("large=61,9000*3").unwrap().info;
        assert_eq!(info.histogram.iter().map(|bin| bin.share).sum::<f64>(), 1.0);
        assert_eq!((info.histogram[1].share, info.histogram[6].share), (0.25, 0.75));
        assert_eq!((info.percentiles.p25, info.percentiles.p50), (61, 9000));
    }

    #[test]
    fn lengths_and_weights_are_read() {
        assert_eq!(DataSet::parse("1514").unwrap().info.mean_octets, 1514.0);
        let data = DataSet::parse("mine=60*3,100").unwrap();
        assert_eq!((data.info.name.as_str(), data.info.mean_octets), ("mine", 70.0));
        assert_eq!(DataSet::parse("9000").unwrap().mtu(), 8986);
        for text in ["59", "10000", "nothing", "x=60*0", "x=60*a", "x=", "/no/such/file.pcap", "/"]
        {
            assert!(DataSet::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_capture_is_sent_as_it_was_on_the_wire() {
        let path = std::env::temp_dir().join(format!("squall-data-{}.pcap", std::process::id()));
        let mut writer = PcapWriter::new(Vec::new(), PcapFormat::default()).unwrap();
        writer.write(1, 60, &[7; 60]).unwrap();
        writer.write(2, 100, &[8; 70]).unwrap();
        writer.write(3, 42, &[9; 42]).unwrap();
        std::fs::write(&path, writer.finish().unwrap()).unwrap();
        let data = DataSet::parse(path.to_str().unwrap());
        std::fs::remove_file(&path).unwrap();
        let Ok(DataSet { info, frames: Frames::Capture(frames) }) = data else {
            panic!("{data:?}")
        };
        assert_eq!((info.packets, frames.longest()), (Some(3), 100));
        assert_eq!((frames.frame(1)[69], frames.frame(1)[70], frames.frame(1).len()), (8, 0, 100));
        assert_eq!(
            frames.frame(2),
            [[9; 42].as_slice(), &[0; 18]].concat(),
            "padded to the least that Ethernet has"
        );
    }
}
