//! A NetFlow probe and collector on an interface: softflowd exports, nfcapd stores. Each flow is
//! compared with tcpdump's capture of the same frames.

use std::{
    collections::HashMap,
    fs,
    net::{Ipv4Addr, UdpSocket},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use socket2::SockRef;
use squall_pcap::CaptureReader;

use crate::{process::Program, tools::Tool};

/// A unidirectional IPv4 flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    pub src: Ipv4Addr,
    pub dst: Ipv4Addr,
    pub src_port: u16,
    pub dst_port: u16,
    pub protocol: u8,
}

/// Number of packets, and of octets on layer 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub packets: u64,
    pub octets: u64,
}

pub type Flows = HashMap<Flow, Counts>;

/// Flows of the collector compared with those of the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowScore {
    /// Number of flows in the capture, and in the collector's records.
    pub captured: u64,
    pub collected: u64,
    /// In both, with equal packets and octets.
    pub exact: u64,
    /// Only in the capture, and only in the collector's records.
    pub missing: u64,
    pub extra: u64,
    /// In both, with different counts.
    pub different: u64,
    pub packets_captured: u64,
    pub packets_collected: u64,
}

/// The flow of a frame, and its octets on layer 3. `None` unless it is TCP or UDP over IPv4,
/// without VLAN tags and IP options.
pub fn flow_of(frame: &[u8]) -> Option<(Flow, u64)> {
    let number = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    let address = |at: usize| {
        let octets: [u8; 4] = frame.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(octets))
    };
    let protocol = *frame.get(23)?;
    if number(12)? != 0x0800 || frame[14] != 0x45 || ![6, 17].contains(&protocol) {
        return None;
    }
    let (src, dst) = (address(26)?, address(30)?);
    let flow = Flow { src, dst, src_port: number(34)?, dst_port: number(36)?, protocol };
    Some((flow, number(16)?.into()))
}

/// The flows of a capture.
///
/// # Errors
/// It cannot be read to the end.
pub fn flows_of(capture: &Path) -> Result<Flows, String> {
    let failed = |error: squall_pcap::CaptureError| error.to_string();
    let mut reader = CaptureReader::open(capture).map_err(failed)?;
    let mut flows = Flows::new();
    while let Some(packet) = reader.next().map_err(failed)? {
        if let Some((flow, octets)) = flow_of(packet.data) {
            let counts = flows.entry(flow).or_default();
            counts.packets += 1;
            counts.octets += octets;
        }
    }
    Ok(flows)
}

/// Compares each flow.
pub fn judge(captured: &Flows, collected: &Flows) -> FlowScore {
    let packets = |flows: &Flows| flows.values().map(|counts| counts.packets).sum();
    let mut judged = FlowScore {
        captured: captured.len() as u64,
        collected: collected.len() as u64,
        packets_captured: packets(captured),
        packets_collected: packets(collected),
        ..FlowScore::default()
    };
    for (flow, counts) in captured {
        match collected.get(flow) {
            None => judged.missing += 1,
            Some(found) if found == counts => judged.exact += 1,
            Some(_) => judged.different += 1,
        }
    }
    judged.extra = collected.keys().filter(|flow| !captured.contains_key(flow)).count() as u64;
    judged
}

/// Parses nfdump's lines `src,dst,src port,dst port,protocol,packets,octets`. Adds up flows that
/// were exported several times.
fn parse(text: &str) -> Flows {
    let mut flows = Flows::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(',').map(str::trim).collect();
        let [src, dst, src_port, dst_port, protocol, packets, octets] = words[..] else { continue };
        let flow = (|| {
            Some(Flow {
                src: src.parse().ok()?,
                dst: dst.parse().ok()?,
                src_port: src_port.parse().ok()?,
                dst_port: dst_port.parse().ok()?,
                protocol: match protocol {
                    "TCP" => 6,
                    "UDP" => 17,
                    other => other.parse().ok()?,
                },
            })
        })();
        let counts = packets.parse::<u64>().ok().zip(octets.parse::<u64>().ok());
        if let (Some(flow), Some((packets, octets))) = (flow, counts) {
            let entry = flows.entry(flow).or_default();
            entry.packets += packets;
            entry.octets += octets;
        }
    }
    flows
}

/// UDP ports of the relay and of nfcapd.
const PROBE: u16 = 9995;
const COLLECTOR: u16 = 9996;
const LOOK: Duration = Duration::from_millis(20);
const START: Duration = Duration::from_secs(20);
/// Maximum time for softflowd to process its queue.
const DRAIN: Duration = Duration::from_secs(60);

/// softflowd, nfcapd, and a relay between them. All of them end when it is dropped.
pub struct Collector {
    softflowd: Program,
    nfcapd: Program,
    relay: Option<Relay>,
    control: PathBuf,
    records: PathBuf,
}

/// The programs that a collector needs and that are not installed, with their packages.
pub fn lacking() -> Vec<String> {
    ["softflowd", "softflowctl", "nfcapd", "nfdump"]
        .into_iter()
        .filter(|name| find(name).is_none())
        .map(|name| match name {
            "softflowd" | "softflowctl" => format!("{name} (apt-get install softflowd)"),
            name => format!("{name} (apt-get install nfdump)"),
        })
        .collect()
}

fn find(name: &str) -> Option<PathBuf> {
    Tool::of_command(name, name).ok()?.find()
}

fn program(name: &str, arguments: &[String], log: PathBuf) -> Result<Program, String> {
    let path = find(name).ok_or_else(|| format!("{name} is not installed"))?;
    Program::start(&path, arguments, None, log)
}

/// Runs a program to completion, and returns its output.
fn output(name: &str, arguments: &[&str]) -> Result<String, String> {
    let path = find(name).ok_or_else(|| format!("{name} is not installed"))?;
    let done = Command::new(path).args(arguments).output().map_err(|e| format!("{name}: {e}"))?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    match done.status.success() {
        true => Ok(text),
        false => Err(format!("{name}: {}", String::from_utf8_lossy(&done.stderr).trim())),
    }
}

fn wait(what: &str, at_most: Duration, mut come: impl FnMut() -> bool) -> Result<(), String> {
    let until = Instant::now() + at_most;
    while !come() {
        if Instant::now() > until {
            return Err(format!("{what}: not within {} s", at_most.as_secs()));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

impl Collector {
    /// Starts the programs on `interface`, with files in `folder`. The loopback interface must be
    /// up.
    ///
    /// # Errors
    /// A program is missing or does not start.
    pub fn start(interface: &str, folder: &Path) -> Result<Self, String> {
        let records = folder.join("records");
        let _ = fs::remove_dir_all(&records);
        fs::create_dir(&records).map_err(|e| format!("{}: {e}", records.display()))?;
        let words = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        // A single file of records, which nfcapd writes when it ends.
        let options = format!("-w {} -b 127.0.0.1 -p {COLLECTOR} -t 3600", records.display());
        let nfcapd = program("nfcapd", &words(options), folder.join("nfcapd.log"))?;
        wait("nfcapd", START, || queue(COLLECTOR).is_some())?;
        let relay = Relay::start().map_err(|e| format!("UDP port {PROBE}: {e}"))?;
        let control = folder.join("softflowd.ctl");
        // No flow expires by time or by the number of flows. libpcap's buffer of 64 MiB holds all
        // packets, even if softflowd is late to read them.
        let mut options = words(format!(
            "-d -i {interface} -n 127.0.0.1:{PROBE} -v 9 -m 500000 -B 67108864 -c {} -p {}",
            control.display(),
            folder.join("softflowd.pid").display(),
        ));
        for name in ["general", "tcp", "tcp.rst", "tcp.fin", "udp", "icmp", "maxlife"] {
            options.push(format!("-t{name}=1d"));
        }
        options.push("-texpint=0".into());
        let softflowd = program("softflowd", &options, folder.join("softflowd.log"))?;
        wait("softflowd", START, || control.exists())
            .map_err(|why| format!("{why}: {}", softflowd.last_lines()))?;
        Ok(Self { softflowd, nfcapd, relay: Some(relay), control, records })
    }

    fn control(&self, command: &str) -> Result<String, String> {
        output("softflowctl", &["-c", &self.control.to_string_lossy(), command])
    }

    /// Waits until softflowd has processed `packets`, calling `push` between polls: libpcap
    /// delivers a block of packets only when it is full.
    ///
    /// # Errors
    ///
    /// The packets do not arrive.
    pub fn drain(&self, packets: u64, mut push: impl FnMut()) -> Result<(), String> {
        wait("softflowd has all packets", DRAIN, || {
            push();
            self.control("statistics").is_ok_and(|text| processed(&text) >= Some(packets))
        })
    }

    /// Stops the programs. Returns the flows, and the number of datagrams lost on the way to
    /// nfcapd.
    ///
    /// # Errors
    /// A program does not end, or nfdump cannot read the records.
    pub fn finish(mut self) -> Result<(Flows, u64), String> {
        self.control("expire-all")?;
        self.control("shutdown")?;
        if !self.softflowd.ends_within(DRAIN) {
            return Err("softflowd does not end".into());
        }
        let dropped = self.relay.take().map_or(0, Relay::finish);
        self.nfcapd.end(START);
        let records = self.records.to_string_lossy().into_owned();
        let format = "fmt:%sa,%da,%sp,%dp,%pr,%pkt,%byt";
        let text = output("nfdump", &["-R", &records, "-6", "-q", "-N", "-o", format])?;
        Ok((parse(&text), dropped))
    }
}

/// Parses `Packets processed: 1402` of softflowctl.
fn processed(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Packets processed:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Octets waiting in the UDP socket of `port`, and datagrams that it has dropped.
fn queue(port: u16) -> Option<(u64, u64)> {
    queue_in(&fs::read_to_string("/proc/thread-self/net/udp").ok()?, port)
}

fn queue_in(sockets: &str, port: u16) -> Option<(u64, u64)> {
    let end = format!(":{port:04X}");
    sockets.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let waiting = words.get(4)?.split_once(':')?.1;
        words.get(1)?.ends_with(&end).then_some(())?;
        Some((u64::from_str_radix(waiting, 16).ok()?, words.last()?.parse().ok()?))
    })
}

/// Receive buffer of the relay's socket. The kernel reduces it to `net.core.rmem_max`.
const RELAY_OCTETS: usize = 32 << 20;

/// Relays datagrams to nfcapd one at a time. softflowd exports all flows at once, in hundreds of
/// datagrams, and the queue of a socket holds a few dozen by default. The relay buffers them, and
/// sends each one when nfcapd has read the previous one.
struct Relay {
    over: Arc<AtomicBool>,
    threads: [JoinHandle<()>; 2],
}

impl Relay {
    fn start() -> std::io::Result<Self> {
        let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, PROBE))?;
        taken.set_read_timeout(Some(LOOK))?;
        // On a busy machine, the thread may not run before softflowd has sent everything.
        SockRef::from(&taken).set_recv_buffer_size(RELAY_OCTETS)?;
        let given = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let over = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel::<Vec<u8>>();
        let ended = over.clone();
        let take = std::thread::spawn(move || {
            let mut datagram = vec![0; 65_536];
            // After `finish`, continue until no datagram has arrived for `LOOK`.
            loop {
                match taken.recv(&mut datagram) {
                    Ok(length) if sender.send(datagram[..length].to_vec()).is_err() => break,
                    Ok(_) => {}
                    Err(_) if ended.load(Ordering::Relaxed) => break,
                    Err(_) => {}
                }
            }
        });
        let give = std::thread::spawn(move || {
            for datagram in receiver {
                let _ = given.send_to(&datagram, (Ipv4Addr::LOCALHOST, COLLECTOR));
                let since = Instant::now();
                while queue(COLLECTOR).is_some_and(|(waiting, _)| waiting > 0)
                    && since.elapsed() < START
                {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        });
        Ok(Self { over, threads: [take, give] })
    }

    /// Number of datagrams lost.
    fn finish(self) -> u64 {
        let dropped = || [PROBE, COLLECTOR].into_iter().filter_map(queue).map(|(_, n)| n).sum();
        // The first thread closes its socket when it ends, which removes the counter of that
        // socket.
        let before: u64 = dropped();
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("the relay does not panic");
        }
        before.max(dropped())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(host: u8) -> Flow {
        Flow {
            src: Ipv4Addr::new(10, 0, 0, host),
            dst: Ipv4Addr::new(10, 0, 1, 1),
            src_port: 1024,
            dst_port: 443,
            protocol: 6,
        }
    }

    const fn counts(packets: u64, octets: u64) -> Counts {
        Counts { packets, octets }
    }

    #[test]
    fn each_flow_is_compared_by_packets_and_octets() {
        let captured = Flows::from([
            (flow(1), counts(2, 80)),
            (flow(2), counts(1, 40)),
            (flow(3), counts(1, 40)),
        ]);
        let collected = Flows::from([
            (flow(1), counts(2, 80)),
            (flow(2), counts(1, 41)),
            (flow(4), counts(9, 9)),
        ]);
        let expected = FlowScore {
            captured: 3,
            collected: 3,
            exact: 1,
            missing: 1,
            extra: 1,
            different: 1,
            packets_captured: 4,
            packets_collected: 12,
        };
        assert_eq!(judge(&captured, &collected), expected);
    }

    #[test]
    fn records_of_nfdump_are_flows_and_parts_of_a_flow_are_added() {
        let text = "\
 10.0.0.1, 10.0.1.1, 1024, 443, TCP, 2, 80
 10.0.0.1, 10.0.1.1, 1024, 443, 6, 3, 120
 10.0.0.2, 10.0.1.1, 1024, 443, TCP, 1, 40
 2001:db8::1, 10.0.1.1, 1024, 443, TCP, 1, 40
Summary: total flows: 4";
        let expected = Flows::from([(flow(1), counts(5, 200)), (flow(2), counts(1, 40))]);
        assert_eq!(parse(text), expected);
    }

    #[test]
    fn frames_have_flows_unless_they_are_of_another_kind() {
        let mut frame = vec![0; 60];
        frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
        frame[16..18].copy_from_slice(&46_u16.to_be_bytes());
        frame[23] = 6;
        frame[26..38].copy_from_slice(&[10, 0, 0, 1, 10, 0, 1, 1, 4, 0, 1, 187]);
        assert_eq!(flow_of(&frame), Some((flow(1), 46)));
        for (at, octet) in [(12, 0x86), (14, 0x46), (23, 1)] {
            let mut other = frame.clone();
            other[at] = octet;
            assert_eq!(flow_of(&other), None);
        }
        assert_eq!(flow_of(&frame[..37]), None);
        assert_eq!(flow_of(&[]), None);
    }

    #[test]
    fn states_of_sockets_and_of_the_probe_are_read() {
        let sockets = "  sl  local rem st tx rx\n 1: 0100007F:270C 0:0 07 00000000:00000A00 0:0 0 \
                       0 0 46 2 0 7\n";
        assert_eq!(queue_in(sockets, COLLECTOR), Some((0xa00, 7)));
        assert_eq!(queue_in(sockets, PROBE), None);
        assert_eq!(processed("Number of active flows: 3\nPackets processed: 1402\n"), Some(1402));
        assert_eq!(processed("none"), None);
    }
}
