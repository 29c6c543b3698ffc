//! Analyzes captures ([`read`]): the figures of capinfos, protocol shares, lengths, gaps and flows.
//!
//! Lengths are octets on the wire **without** FCS, as in captures, capinfos and tcpdump, but unlike
//! the sizes in profiles and in a run's report. Memory is bounded, regardless of the size of the
//! files.

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender, SyncSender},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use squall_measure::{
    census::{
        BATCH, CHECKSUMS, Census, Digest, FlowCensus, FlowStats, HeaderCensus, Sample,
        Settings as CensusSettings, Share,
    },
    flow::{Flow, FlowKey, FlowTable, Link, ethertype, ethertype_name, protocol},
};
use squall_pcap::{CaptureError, CaptureReader, MAX_BATCH, Packet};
use squall_port::Filter;
use squall_port_linux::filter;
use squall_report::report::distribution;
use squall_stats::Histogram;
use squall_units::Cannot;

use crate::Error;

pub use squall_report::info::*;

/// Configuration of an analysis.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Include only packets that match this filter, in tcpdump's syntax.
    pub filter: Option<String>,
    pub bins: Bins,
    /// Number of rows in the lists of flows, hosts and ports.
    pub top: usize,
    /// Maximum number of flows to track.
    pub max_flows: usize,
    /// Idle time in seconds after which a flow has ended.
    pub flow_expiry_s: Option<f64>,
    pub checksums: bool,
    /// Number of preceding packets with which each packet is compared; 0 to compare none.
    pub duplicates: usize,
    /// Whether to compute the SHA-256 of each file.
    pub hash: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            filter: None,
            bins: Bins::Rmon,
            top: 10,
            max_flows: 1 << 19,
            flow_expiry_s: None,
            checksums: false,
            duplicates: 0,
            hash: false,
        }
    }
}

/// How lengths are grouped into bins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Bins {
    /// As in RFC 2819: 64, 65 to 127, ... 1024 to 1518 octets with FCS, and longer ones.
    #[default]
    Rmon,
    /// As in Wireshark's packet length statistics (`tshark -z plen,tree`).
    Wireshark,
    Width(u32),
    /// Edges: the first length in each bin, except for the first bin, which begins at 0.
    Edges(Vec<u32>),
}

impl Bins {
    /// The first length in each bin, except for the first bin.
    fn edges(&self, longest: u32) -> Vec<u32> {
        match self {
            Self::Rmon => vec![60, 61, 124, 252, 508, 1020, 1515],
            Self::Wireshark => vec![20, 40, 80, 160, 320, 640, 1280, 2560, 5120],
            Self::Width(width) => (1..)
                .map_while(|i| width.checked_mul(i))
                .take_while(|edge| *edge <= longest)
                .collect(),
            Self::Edges(edges) => edges.clone(),
        }
    }
}

/// Parses `rmon`, `wireshark`, a width (`100`), or edges (`64,128,1500`).
impl std::str::FromStr for Bins {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str =
            "expected rmon, wireshark, a width such as 100, or ascending edges such as 64,128,1500";
        match text {
            "rmon" => return Ok(Self::Rmon),
            "wireshark" => return Ok(Self::Wireshark),
            _ => {}
        }
        let numbers: Vec<u32> =
            text.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| EXPECTED)?;
        match *numbers {
            [width] if width > 0 => Ok(Self::Width(width)),
            [first, _, ..] if first > 0 && numbers.is_sorted_by(|a, b| a < b) => {
                Ok(Self::Edges(numbers))
            }
            _ => Err(EXPECTED.into()),
        }
    }
}

/// Progress, reported several times per second.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Index of the current file, from 0.
    pub file: usize,
    /// Octets of this file read so far.
    pub octets: u64,
    /// Size of the file; `None` for a pipe.
    pub file_octets: Option<u64>,
    pub packets: u64,
}

/// Analyzes captures, where `-` is standard input. Calls `go_on` a few times per second, and stops
/// if it returns false.
///
/// If a file is damaged, the result has the packets before the damage, and the error.
///
/// # Errors
/// If the filter is invalid, or a file cannot be opened.
pub fn read(
    paths: &[PathBuf],
    settings: &Settings,
    mut go_on: impl FnMut(&Progress) -> bool,
) -> Result<Info, Error> {
    let began = Instant::now();
    let mut filters = Filters::new(settings.filter.as_deref())?;
    // Report missing files now: reading may take hours.
    paths.iter().try_for_each(|path| openable(path))?;
    let mut info = Info {
        schema: SCHEMA.into(),
        squall_version: env!("CARGO_PKG_VERSION").into(),
        filter: settings.filter.clone(),
        ..Info::default()
    };
    let mut total: Option<Census> = None;
    for (number, path) in paths.iter().enumerate() {
        let (headers, flows) = Census::new(census_settings(settings, paths.len())).split();
        let mut reading = Reading {
            number,
            headers,
            counting: Counting::start(flows)?,
            filters: &mut filters,
            go_on: &mut go_on,
            stopped: false,
        };
        let mut file = reading.file(path)?;
        let Reading { headers, counting, stopped, .. } = reading;
        let census = Census::join(headers, counting.finish());
        file.stopped = stopped;
        file.traffic = traffic(&census, settings);
        if settings.hash && !stopped {
            file.sha256 = hash(path, &mut info.notes);
        }
        info.files.push(file);
        if paths.len() > 1 {
            match &mut total {
                Some(total) => total.merge(&census),
                None => total = Some(census),
            }
        }
        if stopped {
            info.notes.push(format!(
                "stopped while reading {}: the figures cover the part that was read",
                path.display()
            ));
            break;
        }
    }
    let spans = info.files.iter().filter_map(|f| f.traffic.first_ns.zip(f.traffic.last_ns));
    let covered = covered_ns(spans.collect());
    info.total = total.map(|census| traffic_over(&census, covered, settings));
    for traffic in info.total.iter().chain(info.files.iter().map(|f| &f.traffic)) {
        if traffic.flows.overflow_packets > 0 {
            let n = traffic.flows.overflow_packets;
            info.notes.push(format!(
                "{n} packets belong to flows beyond the first {}, which are not counted \
                 separately; try --max-flows",
                traffic.flows.limit
            ));
            break;
        }
    }
    info.elapsed_s = began.elapsed().as_secs_f64();
    (info.cpu, info.memory) = (squall_machine::cpu(), squall_machine::memory());
    Ok(info)
}

fn census_settings(settings: &Settings, files: usize) -> CensusSettings {
    CensusSettings {
        // The total over all files has a table of its own, with which the limit is shared.
        flows: if files > 1 { settings.max_flows / 2 } else { settings.max_flows },
        idle_ns: settings.flow_expiry_s.map(|s| (s * 1e9) as u64),
        checksums: settings.checksums,
        duplicates: settings.duplicates,
    }
}

/// Checks whether a file can be opened. Does not open pipes, which would consume their data.
fn openable(path: &Path) -> Result<(), Error> {
    if path == Path::new("-") {
        return Ok(());
    }
    let opened = std::fs::metadata(path).and_then(|found| {
        if found.is_file() {
            std::fs::File::open(path)?;
        }
        Ok(found.is_dir())
    });
    match opened {
        Ok(false) => Ok(()),
        Ok(true) => {
            let why = "it is a directory; expected captures, such as files in it";
            Err(Error::Usage(Cannot::new(format!("read {}", path.display()), why).to_string()))
        }
        Err(error) => Err(Cannot::read(path, &error).into()),
    }
}

/// The filter, compiled for each link type.
struct Filters {
    expression: Option<String>,
    by_link_type: HashMap<u16, Arc<Filter>>,
}

impl Filters {
    fn new(expression: Option<&str>) -> Result<Self, Error> {
        let mut filters =
            Self { expression: expression.map(Into::into), by_link_type: HashMap::new() };
        // Report errors in the filter at once, with the most common link type: Ethernet (1).
        filters.of(1)?;
        Ok(filters)
    }

    fn of(&mut self, link_type: u16) -> Result<Option<Arc<Filter>>, Error> {
        let Some(expression) = &self.expression else { return Ok(None) };
        if let Some(filter) = self.by_link_type.get(&link_type) {
            return Ok(Some(filter.clone()));
        }
        let filter = filter::compile_file(expression, link_type)?;
        self.by_link_type.insert(link_type, filter.clone());
        Ok(Some(filter))
    }
}

/// A file that is being read.
struct Reading<'a, F> {
    number: usize,
    headers: HeaderCensus,
    counting: Counting,
    filters: &'a mut Filters,
    go_on: &'a mut F,
    stopped: bool,
}

impl<F: FnMut(&Progress) -> bool> Reading<'_, F> {
    fn file(&mut self, path: &Path) -> Result<FileInfo, Error> {
        let mut file = FileInfo { path: path.display().to_string(), ..FileInfo::default() };
        let end = if path == Path::new("-") {
            match CaptureReader::from_read(io::stdin()) {
                Ok(reader) => self.packets(reader, &mut file)?,
                Err(error) => Some(error),
            }
        } else {
            file.size_octets =
                std::fs::metadata(path).ok().filter(|m| m.is_file()).map(|m| m.len());
            match CaptureReader::open(path) {
                Ok(reader) => self.packets(reader, &mut file)?,
                Err(error) => Some(error),
            }
        };
        file.fault =
            end.map(|error| FileFault { offset: error.offset, text: error.fault.to_string() });
        Ok(file)
    }

    /// Reads all packets until the end of the file, or until an error.
    fn packets<R: Read>(
        &mut self,
        mut reader: CaptureReader<R>,
        file: &mut FileInfo,
    ) -> Result<Option<CaptureError>, Error> {
        let mut by_interface = Vec::new();
        let mut link = (None, Link::Other, None);
        let mut batches = 0u32;
        file.format = Some(reader.format().into());
        // The progress within a compressed file is unknown.
        let file_octets = file.size_octets.filter(|_| reader.compression().is_none());
        file.compression = reader.compression().map(|by| by.to_string());
        let end = loop {
            if batches.is_multiple_of(1024) {
                let progress = Progress {
                    file: self.number,
                    octets: reader.offset(),
                    file_octets,
                    packets: self.headers.packets(),
                };
                if !(self.go_on)(&progress) {
                    self.stopped = true;
                    break None;
                }
            }
            batches = batches.wrapping_add(1);
            let batch = match reader.next_batch() {
                Ok(batch) if batch.is_empty() => break None,
                Ok(batch) => batch,
                Err(error) => break Some(error),
            };
            let mut samples = Vec::with_capacity(MAX_BATCH);
            for packet in batch.iter() {
                let at = packet.interface as usize;
                if at >= by_interface.len() {
                    by_interface.resize(at + 1, 0u64);
                }
                by_interface[at] += 1;
                if link.0 != Some(packet.link_type) {
                    let number = packet.link_type.0;
                    link = (Some(packet.link_type), Link::from(number), self.filters.of(number)?);
                }
                let taken =
                    |filter: &Arc<Filter>| filter.program.run(packet.data, packet.wire_len) > 0;
                if link.2.as_ref().is_none_or(taken) {
                    let Packet { data: octets, wire_len, time_ns, timed, .. } = packet;
                    samples.push(Sample { octets, wire_len, time_ns, timed, link: link.1 });
                }
            }
            self.counting.add(&mut self.headers, &samples);
        };
        file.read_octets = reader.offset();
        by_interface.resize(reader.interfaces().len().max(by_interface.len()), 0);
        let described = reader.interfaces().iter().zip(by_interface);
        file.interfaces = described
            .map(|(interface, packets)| InterfaceInfo {
                name: interface.name.clone(),
                link_type: interface.link_type.to_string(),
                link_type_number: interface.link_type.0,
                resolution: interface.resolution.to_string(),
                snaplen: interface.snaplen,
                packets,
                received: interface.received,
                dropped_by_interface: interface.dropped_by_interface,
                dropped_by_system: interface.dropped_by_system,
            })
            .collect();
        Ok(end)
    }
}

/// Counts flows on a thread of its own: with many flows this takes as long as reading and parsing
/// the packets.
struct Counting {
    block: Block,
    full: SyncSender<Block>,
    empty: Receiver<Block>,
    thread: JoinHandle<FlowCensus>,
}

/// Parsed packets on their way to the other thread.
#[derive(Default)]
struct Block {
    digests: Vec<Digest>,
    /// Numbers of digests up to the ends of the batches that were read.
    ends: Vec<usize>,
}

/// Number of digests in a block: about a tenth of a second-level cache.
const BLOCK: usize = 2048;
/// Number of blocks that may wait.
const BLOCKS: usize = 8;

impl Counting {
    fn start(mut flows: FlowCensus) -> Result<Self, Error> {
        let (full, filled) = mpsc::sync_channel::<Block>(BLOCKS);
        let (emptied, empty): (Sender<Block>, _) = mpsc::channel();
        let work = move || {
            for mut block in filled {
                let mut begin = 0;
                for end in block.ends.drain(..) {
                    flows.add(&block.digests[begin..end]);
                    begin = end;
                }
                block.digests.clear();
                // The other thread may have read everything and stopped taking blocks.
                let _ = emptied.send(block);
            }
            flows
        };
        let thread = thread::Builder::new().name("squall-flows".into()).spawn(work);
        let thread = thread.map_err(|error| Cannot::of_io("start a thread", &error))?;
        Ok(Self { block: Block::default(), full, empty, thread })
    }

    /// Counts the packets of a batch in `headers`, and passes them on.
    fn add(&mut self, headers: &mut HeaderCensus, packets: &[Sample<'_>]) {
        headers.add(packets, &mut self.block.digests);
        self.block.ends.push(self.block.digests.len());
        if self.block.digests.len() >= BLOCK {
            let next = self.empty.try_recv().unwrap_or_default();
            self.pass_on(next);
        }
    }

    fn pass_on(&mut self, next: Block) {
        let block = std::mem::replace(&mut self.block, next);
        // Fails only if the thread has panicked, which `finish` passes on.
        let _ = self.full.send(block);
    }

    /// Waits until all packets are counted.
    fn finish(mut self) -> FlowCensus {
        self.pass_on(Block::default());
        let Self { full, thread, .. } = self;
        drop(full);
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// SHA-256 of a file. `None` for a pipe, which cannot be read a second time.
fn hash(path: &Path, notes: &mut Vec<String>) -> Option<String> {
    use sha2::{Digest, Sha256};
    if path == Path::new("-") {
        notes.push("the standard input was not hashed: it can only be read once".into());
        return None;
    }
    if !path.is_file() {
        notes.push(format!("{} was not hashed: it cannot be read again", path.display()));
        return None;
    }
    let mut hasher = Sha256::new();
    let copied = std::fs::File::open(path).and_then(|mut file| io::copy(&mut file, &mut hasher));
    match copied {
        Ok(_) => Some(squall_wire::to_hex(&hasher.finalize())),
        Err(error) => {
            notes.push(format!("{} was not hashed: {error}", path.display()));
            None
        }
    }
}

// --- figures from a census
// ---------------------------------------------------------------------------------------

fn traffic(census: &Census, settings: &Settings) -> Traffic {
    traffic_over(census, census.times().duration_ns(), settings)
}

/// The total time that is within at least one of `spans`. The time from the first packet to the
/// last would be meaningless: files can be years apart, and runs in virtual time start in 1970.
fn covered_ns(mut spans: Vec<(u64, u64)>) -> u64 {
    spans.sort_unstable();
    let mut end = 0;
    let mut covered = 0;
    for (first, last) in spans {
        covered += last.saturating_sub(first.max(end));
        end = end.max(last);
    }
    covered
}

fn traffic_over(census: &Census, duration_ns: u64, settings: &Settings) -> Traffic {
    let times = census.times();
    let duration_s = duration_ns as f64 / 1e9;
    let per_second = |n: u64| if duration_s > 0.0 { n as f64 / duration_s } else { 0.0 };
    let (peak_second_packets, peak_second_octets) = times.peak_second();
    let span = times.span();
    let rfc3339 = |ns: u64| {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(ns);
        humantime::format_rfc3339_nanos(time).to_string()
    };
    let (tcp_ports, udp_ports) = ports(census, settings.top);
    let (width, points) = times.series();
    Traffic {
        packets: census.packets(),
        octets: census.octets(),
        octets_captured: census.octets() - census.cut_octets(),
        cut_packets: census.cut().packets,
        first_ns: span.map(|s| s.0),
        last_ns: span.map(|s| s.1),
        first: span.map(|s| rfc3339(s.0)),
        last: span.map(|s| rfc3339(s.1)),
        duration_s,
        mean_pps: per_second(census.packets()),
        mean_bps: per_second(8 * census.octets()),
        peak_second_packets,
        peak_second_octets,
        order: Order {
            strict: times.backward() == 0 && times.untimed() == 0,
            backward_packets: times.backward(),
            largest_backward_ns: times.largest_backward_ns(),
            untimed_packets: times.untimed(),
        },
        lengths: lengths(census, &settings.bins),
        gap_ns: distribution(times.gaps()),
        protocols: protocols(census),
        tcp_ports,
        udp_ports,
        hosts: hosts(census, settings.top),
        flows: flows(census, settings),
        fragments: census.fragments().packets,
        malformed_packets: census.malformed(),
        cut_header_packets: census.cut_headers(),
        checksums: settings.checksums.then(|| {
            let counted = census.checksums().map(|c| ChecksumCount { good: c.good, bad: c.bad });
            CHECKSUMS.iter().map(|name| (*name).to_owned()).zip(counted).collect()
        }),
        duplicates: (settings.duplicates > 0).then(|| census.duplicates()),
        series: TrafficSeries {
            width_s: width as f64 / 1e9,
            packets: points.iter().map(|p| p.packets).collect(),
            octets: points.iter().map(|p| p.octets).collect(),
            new_flows: points.iter().map(|p| p.new_flows).collect(),
        },
    }
}

fn lengths(census: &Census, bins: &Bins) -> Lengths {
    let counts: Vec<(u32, u64)> = census.lengths().collect();
    let packets = census.packets();
    let (Some(&(min, _)), Some(&(max, _))) = (counts.first(), counts.last()) else {
        return Lengths::default();
    };
    let mean = census.octets() as f64 / packets as f64;
    let variance =
        counts.iter().map(|(len, n)| (f64::from(*len) - mean).powi(2) * *n as f64).sum::<f64>()
            / packets as f64;
    let quantile = |q: f64| {
        let rank = ((q * packets as f64).ceil() as u64).max(1);
        let mut below = 0;
        let mut reaches = |(_, n): &&(u32, u64)| {
            below += n;
            below >= rank
        };
        counts.iter().find(|c| reaches(c)).map_or(max, |(len, _)| *len)
    };
    let edges = bins.edges(max);
    let froms = std::iter::once(0).chain(edges.iter().copied());
    let tos = edges.iter().map(|edge| Some(edge - 1)).chain([None]);
    let mut bins: Vec<LengthBin> =
        froms.zip(tos).map(|(from, to)| LengthBin { from, to, packets: 0, octets: 0 }).collect();
    for (len, n) in &counts {
        let bin = &mut bins[edges.partition_point(|edge| edge <= len)];
        bin.packets += n;
        bin.octets += n * u64::from(*len);
    }
    let (p50, p90, p99) = (quantile(0.5), quantile(0.9), quantile(0.99));
    Lengths { min, mean, stddev: variance.sqrt(), p50, p90, p99, max, bins, counts }
}

fn protocols(census: &Census) -> Vec<ProtocolShare> {
    let (packets, octets) = (census.packets(), census.octets());
    let share = |layer: &str, name: String, share: Share| ProtocolShare {
        layer: layer.into(),
        name,
        packets: share.packets,
        octets: share.octets,
        packet_share: share.packets as f64 / packets.max(1) as f64,
        octet_share: share.octets as f64 / octets.max(1) as f64,
    };
    let mut network: BTreeMap<String, Share> = BTreeMap::new();
    let mut transport: BTreeMap<String, Share> = BTreeMap::new();
    for ((version, protocol), found) in census.protocols() {
        *network.entry(if version == 4 { "IPv4" } else { "IPv6" }.into()).or_default() += found;
        let name =
            protocol::name(protocol).map_or_else(|| format!("IP protocol {protocol}"), Into::into);
        *transport.entry(name).or_default() += found;
    }
    for (number, found) in census.others() {
        let name = match (*number, ethertype_name(*number)) {
            (0, _) => "unknown".into(),
            // The EtherType announces a network header, but it is not valid.
            (ethertype::IPV4 | ethertype::IPV6, Some(name)) => format!("{name}, faulty"),
            (_, Some(name)) => name.to_owned(),
            (number, None) => format!("EtherType {number:#06x}"),
        };
        *network.entry(name).or_default() += *found;
    }
    let mut all = Vec::new();
    for (layer, found) in [("network", network), ("transport", transport)] {
        let mut rows: Vec<_> =
            found.into_iter().map(|(name, found)| share(layer, name, found)).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.packets));
        all.extend(rows);
    }
    for (name, found) in [("VLAN", census.tagged()), ("MPLS", census.labeled())] {
        if found.packets > 0 {
            all.push(share("tag", name.into(), found));
        }
    }
    all
}

/// The busiest TCP ports and the busiest UDP ports.
fn ports(census: &Census, top: usize) -> (Vec<PortShare>, Vec<PortShare>) {
    let of = |number: u8| {
        // By port number: a table costs nothing where a map would hash twice for each flow.
        let mut ports = vec![Share::default(); 1 << 16];
        for flow in census.flows().iter().filter(|flow| flow.key.protocol == number) {
            ports[usize::from(flow.key.src_port)] += flow.value.share;
            if flow.key.dst_port != flow.key.src_port {
                ports[usize::from(flow.key.dst_port)] += flow.value.share;
            }
        }
        let mut rows: Vec<_> = (0..=u16::MAX)
            .zip(ports)
            .filter(|(_, share)| share.packets > 0)
            .map(|(port, s)| PortShare { port, packets: s.packets, octets: s.octets })
            .collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.packets), row.port));
        rows.truncate(top);
        rows
    };
    (of(protocol::TCP), of(protocol::UDP))
}

/// Maximum number of hosts to track.
const MAX_HOSTS: usize = 1 << 18;

fn hosts(census: &Census, top: usize) -> Vec<HostShare> {
    let mut hosts = FlowTable::<[Share; 2]>::new(MAX_HOSTS, None);
    for flows in census.flows().as_slice().chunks(BATCH) {
        let ends = flows.iter().flat_map(|flow| {
            let host = |src| FlowKey { src, version: flow.key.version, ..FlowKey::default() };
            [(host(flow.key.src), 0, flow.value.share), (host(flow.key.dst), 1, flow.value.share)]
        });
        let mut hashes = [0; 2 * BATCH];
        for (hash, (host, ..)) in hashes.iter_mut().zip(ends.clone()) {
            *hash = hosts.hash(&host);
        }
        hosts.prefetch(&hashes[..2 * flows.len()]);
        for (hash, (host, i, share)) in hashes.into_iter().zip(ends) {
            if let Some((shares, _)) = hosts.seen_hashed(&host, hash, 0) {
                shares[i] += share;
            }
        }
    }
    let octets = |host: &Flow<[Share; 2]>| host.value[0].octets + host.value[1].octets;
    let order = busiest(hosts.as_slice(), octets, top);
    let row = |host: &Flow<[Share; 2]>| {
        let [tx, rx] = host.value;
        HostShare {
            address: host.key.src_ip().map_or_else(String::new, |ip| ip.to_string()),
            tx_packets: tx.packets,
            tx_octets: tx.octets,
            rx_packets: rx.packets,
            rx_octets: rx.octets,
        }
    };
    order.into_iter().map(row).collect()
}

/// The `top` flows with the largest `octets`, and of equal ones the first.
fn busiest<V>(flows: &[Flow<V>], octets: impl Fn(&Flow<V>) -> u64, top: usize) -> Vec<&Flow<V>> {
    let mut order: Vec<_> = flows.iter().enumerate().collect();
    let key = |(i, flow): &(usize, &Flow<V>)| (std::cmp::Reverse(octets(flow)), *i);
    // There may be a million flows, of which ten are shown.
    if top > 0 && top < order.len() {
        order.select_nth_unstable_by_key(top - 1, key);
    }
    order.truncate(top);
    order.sort_unstable_by_key(key);
    order.into_iter().map(|(_, flow)| flow).collect()
}

fn flows(census: &Census, settings: &Settings) -> Flows {
    let table = census.flows();
    let counts = census.flow_counts();
    let (begin, end) = census.times().span().unwrap_or_default();
    let mut both_ways = 0;
    let (mut packets, mut octets, mut durations) =
        (Histogram::new(), Histogram::new(), Histogram::new());
    let mut flow_packets = 0;
    for flows in table.as_slice().chunks(BATCH) {
        let mut hashes = [0; BATCH];
        for (hash, flow) in hashes.iter_mut().zip(flows) {
            *hash = table.hash(&flow.key.reversed());
        }
        table.prefetch(&hashes[..flows.len()]);
        for (flow, hash) in flows.iter().zip(hashes) {
            let reversed = flow.key.reversed();
            if reversed != flow.key && table.get_hashed(&reversed, hash).is_some() {
                both_ways += 1;
            }
            flow_packets += flow.value.share.packets;
            packets.record(flow.value.share.packets);
            octets.record(flow.value.share.octets);
            durations.record(flow.last_ns.saturating_sub(flow.value.first_ns));
        }
    }
    let of_flow = |flow: &Flow<FlowStats>| flow.value.share.octets;
    let order = busiest(table.as_slice(), of_flow, settings.top);
    let top = order.into_iter().map(|flow| FlowRow {
        flow: flow.key.to_string(),
        packets: flow.value.share.packets,
        octets: flow.value.share.octets,
        start_s: flow.value.first_ns.saturating_sub(begin) as f64 / 1e9,
        duration_s: flow.last_ns.saturating_sub(flow.value.first_ns) as f64 / 1e9,
    });
    Flows {
        unique: table.len() as u64,
        conversations: table.len() as u64 - both_ways / 2,
        begun: counts.flows,
        expired: counts.expired,
        active: settings.flow_expiry_s.map(|_| table.active(end) as u64),
        per_second: if end > begin {
            counts.flows as f64 / ((end - begin) as f64 / 1e9)
        } else {
            0.0
        },
        expiry_s: settings.flow_expiry_s,
        flow_packets,
        non_flow_packets: census.packets() - flow_packets - counts.overflow_packets,
        limit: census.settings().flows as u64,
        overflow_packets: counts.overflow_packets,
        top: top.collect(),
        packets_per_flow: distribution(&packets),
        octets_per_flow: distribution(&octets),
        duration_ns: distribution(&durations),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_named_or_wide_or_have_edges() {
        assert_eq!("100".parse(), Ok(Bins::Width(100)));
        assert_eq!("64,128".parse(), Ok(Bins::Edges(vec![64, 128])));
        for text in ["", "0", "128,64", "0,64", "x", "64,64"] {
            assert!(text.parse::<Bins>().is_err(), "{text}");
        }
        assert_eq!(Bins::Width(500).edges(1514), [500, 1000, 1500]);
    }

    #[test]
    fn durations_of_distant_files_add_up_and_overlaps_count_once() {
        const YEAR: u64 = 31_536_000_000_000_000;
        for (spans, expected) in [
            (&[][..], 0),
            (&[(5, 9)], 4),
            (&[(56 * YEAR, 56 * YEAR + 30), (0, 10)], 40),
            (&[(0, 10), (5, 15), (6, 7)], 15),
            (&[(0, 10), (10, 20)], 20),
        ] {
            assert_eq!(covered_ns(spans.to_vec()), expected, "{spans:?}");
        }
    }
}
