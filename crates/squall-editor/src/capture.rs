//! Shows captures: pages of packets, and single packets field by field.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::SystemTime,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall::Error;
use squall_pcap::{CaptureReader, Packet};
use squall_port::{ETHERNET, Filter};
use squall_port_linux::filter::compile_file;
use squall_units::Cannot;
use squall_wire::Frame;

use super::{FrameView, packet::layers, to_hex};

/// Some packets of a capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketPage {
    /// Number of packets that match the filter.
    pub total: u64,
    /// Number of packets in the file.
    pub packets_in_file: u64,
    /// Time of the file's first packet, seconds since 1970.
    pub start_s: f64,
    pub packets: Vec<PacketRow>,
    /// Why reading ended before the end of the file.
    pub fault: Option<String>,
}

/// One packet as a row of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketRow {
    /// Number of the packet, from 1, as in Wireshark.
    pub n: u64,
    /// Seconds since the first packet of the file.
    pub t_s: f64,
    /// Octets on the wire, without FCS.
    pub len: u32,
    pub source: String,
    pub destination: String,
    pub protocol: String,
    /// A summary like that of `tcpdump -n`.
    pub info: String,
}

/// A packet, field by field.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OnePacket {
    #[serde(flatten)]
    pub row: PacketRow,
    /// Number of octets of it in the file.
    pub captured: usize,
    #[serde(flatten)]
    pub frame: FrameView,
    /// The packet as packet text; absent if it is not an Ethernet frame or has no such form.
    pub packet: Option<String>,
}

/// Captures with an index. Memory use is bounded for files of any size.
#[derive(Debug, Default)]
pub struct Captures {
    known: Mutex<HashMap<Key, Arc<Index>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    path: PathBuf,
    len: u64,
    modified: Option<SystemTime>,
    filter: String,
}

/// Maximum number of captures with an index.
const MAX_KNOWN: usize = 16;
/// Maximum number of stored positions per capture. For longer captures, the distance between
/// positions increases.
const MAX_PLACES: usize = 1 << 16;
/// Initial number of packets between two stored positions.
const STRIDE: u64 = 512;
/// Maximum octets before the second packet. They are reread each time reading starts in the middle
/// of the file.
const MAX_HEAD: u64 = 1 << 20;

/// Stored positions in a capture.
#[derive(Debug, Default)]
struct Index {
    total: u64,
    packets: u64,
    first_ns: u64,
    fault: Option<String>,
    /// Everything up to the end of the first packet; empty if reading must start at the beginning.
    head: Vec<u8>,
    /// For each stored position: the number of matching packets, of all packets and of octets
    /// before it.
    places: Vec<(u64, u64, u64)>,
}

impl Captures {
    /// At most `count` packets that match the tcpdump expression `filter`, starting with the one at
    /// index `from` (0-based) among these.
    ///
    /// # Errors
    /// [`Error::Usage`]: the file is not a capture, or the filter is invalid.
    pub fn page(
        &self,
        path: &Path,
        filter: &str,
        from: u64,
        count: usize,
    ) -> Result<PacketPage, Error> {
        let index = self.index(path, filter)?;
        let mut page = PacketPage {
            total: index.total,
            packets_in_file: index.packets,
            start_s: index.first_ns as f64 / 1e9,
            fault: index.fault.clone(),
            packets: Vec::new(),
        };
        if from < index.total && count > 0 {
            let place = index
                .places
                .partition_point(|place| place.0 <= from)
                .checked_sub(1)
                .map(|i| index.places[i]);
            let (mut skip, start) = place
                .map_or((from, None), |(taken, number, at)| (from - taken, Some((number, at))));
            let mut takes = Takes::new(filter);
            walk(path, &index, start, |packet, number| {
                if takes.packet(packet)? {
                    match skip {
                        0 => page.packets.push(row(packet, number, index.first_ns)),
                        _ => skip -= 1,
                    }
                }
                Ok(page.packets.len() < count)
            })?;
        }
        Ok(page)
    }

    /// Packet `number` (1-based).
    ///
    /// # Errors
    /// [`Error::Usage`]: the file is not a capture, or has fewer packets.
    pub fn packet(&self, path: &Path, number: u64) -> Result<OnePacket, Error> {
        let index = self.index(path, "")?;
        let place = index
            .places
            .partition_point(|place| place.1 < number)
            .checked_sub(1)
            .map(|i| index.places[i]);
        let mut found = None;
        walk(path, &index, place.map(|(_, number, at)| (number, at)), |packet, n| {
            if n == number {
                found = Some(one(packet, n, index.first_ns));
            }
            Ok(n < number)
        })?;
        let packets = index.packets;
        found.ok_or_else(|| {
            Error::Usage(format!("no packet {number}: the capture has {packets}, counted from 1"))
        })
    }

    fn index(&self, path: &Path, filter: &str) -> Result<Arc<Index>, Error> {
        let about = std::fs::metadata(path).map_err(|error| open_error(path, &error))?;
        let (len, modified) = (about.len(), about.modified().ok());
        let key = Key { path: path.to_owned(), len, modified, filter: filter.trim().to_owned() };
        let lock = || self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(index) = lock().get(&key) {
            return Ok(index.clone());
        }
        let index = Arc::new(Index::of(path, filter)?);
        let mut known = lock();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(key, index.clone());
        Ok(index)
    }
}

impl Index {
    fn of(path: &Path, filter: &str) -> Result<Self, Error> {
        let mut takes = Takes::new(filter);
        takes.check()?;
        let mut reader =
            CaptureReader::open(path).map_err(|error| Error::Usage(error.to_string()))?;
        let mut index = Self::default();
        let (mut stride, mut next) = (STRIDE, STRIDE);
        let (mut head, mut interfaces) = (0, 0);
        loop {
            match reader.next() {
                Ok(None) => break,
                Ok(Some(packet)) => {
                    if index.packets == 0 {
                        index.first_ns = packet.time_ns;
                    }
                    index.total += u64::from(takes.packet(&packet)?);
                    index.packets += 1;
                }
                Err(fault) => {
                    index.fault = Some(fault.to_string());
                    break;
                }
            }
            if index.packets == 1 {
                (head, interfaces) = (reader.offset(), reader.interfaces().len());
            }
            if index.packets == next {
                index.places.push((index.total, index.packets, reader.offset()));
                if index.places.len() == MAX_PLACES {
                    let mut odd = false;
                    index.places.retain(|_| {
                        odd = !odd;
                        !odd
                    });
                    stride *= 2;
                }
                next += stride;
            }
        }
        let plain = reader.compression().is_none()
            && reader.interfaces().len() == interfaces
            && head <= MAX_HEAD;
        if plain && !index.places.is_empty() {
            let mut file = File::open(path).map_err(|error| open_error(path, &error))?.take(head);
            file.read_to_end(&mut index.head).map_err(|error| open_error(path, &error))?;
        } else {
            index.places.clear();
        }
        Ok(index)
    }
}

/// Passes numbered packets to `each`, from the beginning or from a stored position, until `each`
/// returns `false`.
fn walk(
    path: &Path,
    index: &Index,
    start: Option<(u64, u64)>,
    mut each: impl FnMut(&Packet<'_>, u64) -> Result<bool, Error>,
) -> Result<(), Error> {
    let mut file = File::open(path).map_err(|error| open_error(path, &error))?;
    let (mut before, mut skip) = (0, false);
    let input: Box<dyn Read> = match start {
        Some((number, at)) => {
            file.seek(SeekFrom::Start(at)).map_err(|error| open_error(path, &error))?;
            // The head ends with the first packet, which is skipped.
            (before, skip) = (number - 1, true);
            Box::new(io::Cursor::new(&index.head).chain(file))
        }
        None => Box::new(file),
    };
    let mut reader =
        CaptureReader::from_read(input).map_err(|error| Error::Usage(error.to_string()))?;
    // Errors were already reported when the capture was indexed.
    while let Ok(Some(packet)) = reader.next() {
        if std::mem::take(&mut skip) {
            continue;
        }
        if !each(&packet, before + packet.number)? {
            return Ok(());
        }
    }
    Ok(())
}

/// A filter for each link type that occurs in the capture.
struct Takes<'a> {
    expression: &'a str,
    by_link: HashMap<u16, Arc<Filter>>,
}

impl<'a> Takes<'a> {
    fn new(expression: &'a str) -> Self {
        Self { expression: expression.trim(), by_link: HashMap::new() }
    }

    fn check(&mut self) -> Result<(), Error> {
        if !self.expression.is_empty() {
            compile_file(self.expression, ETHERNET)?;
        }
        Ok(())
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<bool, Error> {
        if self.expression.is_empty() {
            return Ok(true);
        }
        let link = packet.link_type.0;
        if !self.by_link.contains_key(&link) {
            self.by_link.insert(link, compile_file(self.expression, link)?);
        }
        Ok(self.by_link[&link].program.run(packet.data, packet.wire_len) > 0)
    }
}

fn row(packet: &Packet<'_>, n: u64, first_ns: u64) -> PacketRow {
    let link = packet.link_type.0;
    let frame = Frame::dissect_link(link, packet.data.to_vec());
    let (mut source, mut destination, mut protocol) = (String::new(), String::new(), "?");
    for (i, layer) in frame.layers.iter().enumerate() {
        protocol = layer.header.name;
        let fields = frame.fields(i, None);
        let text = |name: &str| {
            let field = fields.iter().find(|field| layer.header.fields[field.index].name == name);
            field.map(|field| field.text.clone())
        };
        if let (Some(from), Some(to)) = (text("src"), text("dst")) {
            (source, destination) = (from, to);
        }
    }
    PacketRow {
        n,
        t_s: (packet.time_ns as i128 - first_ns as i128) as f64 / 1e9,
        len: packet.wire_len,
        source,
        destination,
        protocol: match protocol {
            "eth" => "Ethernet".into(),
            "ipv4" => "IPv4".into(),
            "ipv6" => "IPv6".into(),
            "icmpv6" => "ICMPv6".into(),
            other => other.to_ascii_uppercase(),
        },
        info: squall_wire::summary(link, packet.data, packet.wire_len as usize),
    }
}

fn one(packet: &Packet<'_>, n: u64, first_ns: u64) -> OnePacket {
    let link = packet.link_type.0;
    let frame = layers(&Frame::dissect_link(link, packet.data.to_vec()), None);
    let text = (link == ETHERNET).then(|| squall_wire::Packet::of_frame(packet.data)).flatten();
    let hex = to_hex(packet.data);
    OnePacket {
        row: row(packet, n, first_ns),
        captured: packet.data.len(),
        frame: FrameView { hex, ..frame },
        packet: text.map(|packet| packet.to_string()),
    }
}

fn open_error(path: &Path, error: &io::Error) -> Error {
    Cannot::read(path, error).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_pcap::{InterfaceFormat, PcapFormat, PcapWriter, PcapngWriter};

    const PACKETS: u64 = 3 * STRIDE + 100;

    /// Packet n goes to port n; UDP and TCP alternate.
    fn octets(n: u64) -> Vec<u8> {
        let kind = if n.is_multiple_of(2) { "udp" } else { "tcp" };
        let text = format!("eth/ipv4(src=10.0.0.1,dst=10.0.0.2)/{kind}(dport={n})");
        squall_wire::Packet::parse(&text)
            .unwrap()
            .build(None, &|_| unreachable!(), 0)
            .unwrap()
            .bytes
    }

    #[test]
    fn pages_and_packets_are_those_of_the_file_wherever_one_begins() {
        let folder =
            std::env::temp_dir().join(format!("squall-design-capture-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (pcap, pcapng) = (folder.join("a.pcap"), folder.join("a.pcapng"));
        let mut writer = PcapWriter::create(&pcap, PcapFormat::default()).unwrap();
        let mut ng = PcapngWriter::create(&pcapng, vec![InterfaceFormat::default()]).unwrap();
        for n in 1..=PACKETS {
            let (time, data) = (1_700_000_000_000_000_000 + n * 1_000_000, octets(n));
            writer.write(time, data.len() as u32, &data).unwrap();
            ng.write(0, time, data.len() as u32, &data).unwrap();
        }
        writer.finish().unwrap();
        ng.finish().unwrap();
        let captures = Captures::default();
        for path in [&pcap, &pcapng] {
            for (from, count) in
                [(0, 3), (STRIDE - 1, 3), (STRIDE, 2), (2 * STRIDE + 7, 700), (PACKETS, 5)]
            {
                let page = captures.page(path, "", from, count).unwrap();
                let numbers: Vec<u64> = page.packets.iter().map(|row| row.n).collect();
                let last = (from + count as u64).min(PACKETS);
                assert_eq!(
                    (page.total, numbers),
                    (PACKETS, (from + 1..=last).collect()),
                    "{path:?} {from}"
                );
            }
            let page = captures.page(path, "udp", STRIDE, 2).unwrap();
            assert_eq!(page.total, PACKETS / 2);
            assert_eq!(
                page.packets.iter().map(|row| row.n).collect::<Vec<_>>(),
                [2 * STRIDE + 2, 2 * STRIDE + 4]
            );
            let first = &captures.page(path, "", 1, 1).unwrap().packets[0];
            assert_eq!(
                (first.source.as_str(), first.destination.as_str(), first.protocol.as_str()),
                ("10.0.0.1", "10.0.0.2", "UDP")
            );
            assert!(
                (first.t_s - 0.001).abs() < 1e-9 && first.info.contains("10.0.0.2.2"),
                "{first:?}"
            );
            for number in [1, STRIDE, STRIDE + 1, PACKETS] {
                let one = captures.packet(path, number).unwrap();
                assert_eq!((one.row.n, one.frame.hex), (number, to_hex(&octets(number))));
                assert!(one.packet.unwrap().contains(&format!("dport={number}")));
            }
            assert!(
                captures.packet(path, PACKETS + 1).unwrap_err().to_string().contains("no packet")
            );
            assert!(captures.page(path, "no such filter", 0, 1).is_err());
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
