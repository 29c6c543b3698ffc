//! Programs that receive frames, and the arrival times that they record.

use std::{fs, path::Path};

use squall::Error;
use squall_pcap::CaptureReader;
use squall_port_linux::child;

use crate::{compared::ToolInfo, generators::wire::PORTS, process::Running, tools::Tool};

/// A program that records the arrival time of each frame.
#[derive(Clone, Debug)]
pub struct Receiver {
    pub name: String,
    tool: Tool,
    records: Records,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Records {
    /// A capture with nanosecond timestamps.
    Capture,
    /// MGEN's log, with microsecond timestamps.
    MgenLog,
}

/// Position and format of the departure time in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    None,
    /// Nanoseconds in the last six octets, as in Squall's signature (docs/guide/measuring.md).
    Signature,
    /// Seconds and microseconds in the MGEN message.
    Mgen,
}

/// Frames in order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Arrival times, nanoseconds since the epoch or since midnight.
    pub times: Vec<u64>,
    /// Departure times on the sender's clock; empty if unknown.
    pub sent: Vec<u64>,
}

/// Conditions of a reception.
pub struct At<'a> {
    pub interface: &'a str,
    pub file: &'a Path,
    pub report: &'a Path,
    pub log: &'a Path,
    pub cpu: Option<u32>,
}

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

impl Receiver {
    /// Parses receivers by name: `mgen`, or a tool of [`Tool::parse_list`]. `squall` is the path of
    /// this program.
    ///
    /// # Errors
    /// An unknown name.
    pub fn parse_list(names: &[&str], squall: &Path) -> Result<Vec<Self>, Error> {
        let one = |name: &&str| {
            let (tool, records) = match *name {
                "mgen" => {
                    let listen = format!("mgen event 'LISTEN UDP {}' output {{file}}", PORTS[1]);
                    (Tool::of_command(name, &listen)?, Records::MgenLog)
                }
                // A large buffer, as arrival times of all frames are needed at any rate.
                "tcpdump" => {
                    let list = "tcpdump:-B 65536 --time-stamp-precision=nano";
                    (Tool::parse_list(list, squall)?.remove(0), Records::Capture)
                }
                name => (Tool::parse_list(name, squall)?.remove(0), Records::Capture),
            };
            Ok(Self { name: (*name).to_owned(), tool, records })
        };
        names.iter().map(one).collect()
    }

    /// Entry of this receiver in the result. Runs the program to get its version.
    pub fn info(&self) -> ToolInfo {
        let mut info = self.tool.info();
        info.name = format!("{} (receives)", self.name);
        info
    }

    /// Whether it reads UDP sockets: it then needs frames with its message, and addresses in the
    /// lab.
    pub fn needs_addresses(&self) -> bool {
        self.records == Records::MgenLog
    }

    /// Starts the program, and waits until it is ready to receive.
    ///
    /// # Errors
    /// The error, as text, with the last lines of its output.
    pub fn start(&self, at: &At<'_>, stop: &dyn Fn() -> bool) -> Result<Running, String> {
        let arguments = self.tool.filled(at.interface, at.file, at.report);
        let listens = || match self.records {
            Records::Capture => child::has_receiver(at.interface),
            Records::MgenLog => {
                let sockets = fs::read_to_string("/proc/thread-self/net/udp").unwrap_or_default();
                is_bound(&sockets, PORTS[1])
            }
        };
        Running::start(&self.tool, &arguments, &listens, at.cpu, at.log, stop)
    }

    /// Waits until the program has written its file, and stops it.
    ///
    /// # Errors
    /// The program ended early, or with an error.
    pub fn finish(&self, running: Running, file: &Path) -> Result<(), String> {
        running.settle();
        match (self.records, running.finish().wrong) {
            (_, None) => Ok(()),
            // mgen exits with 2 after an interrupt, even if it has finished its log.
            (Records::MgenLog, Some(_)) if ended_in_order(&fs::read(file).unwrap_or_default()) => {
                Ok(())
            }
            (_, Some(why)) => Err(why),
        }
    }

    /// The frames in `file` that have `octets` octets and were sent to the UDP port of the lab.
    ///
    /// # Errors
    /// The file cannot be read to the end.
    pub fn read(&self, file: &Path, octets: u32, stamp: Stamp) -> Result<Arrivals, String> {
        match self.records {
            Records::Capture => read_capture(file, octets, stamp),
            Records::MgenLog => {
                let text = fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
                Ok(read_log(&String::from_utf8_lossy(&text), stamp))
            }
        }
    }
}

/// Whether the last line of an MGEN log is `01:34:57.887779 STOP`.
fn ended_in_order(log: &[u8]) -> bool {
    log.trim_ascii_end().ends_with(b" STOP")
}

/// Whether a line of /proc/net/udp has the local port `port`.
fn is_bound(sockets: &str, port: u16) -> bool {
    let end = format!(":{port:04X}");
    let mut locals =
        sockets.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().nth(1));
    locals.any(|local| local.ends_with(&end))
}

/// Offset of the UDP header in the lab's frames, which have no IP options and no VLAN tag.
const UDP: usize = 34;

fn read_capture(file: &Path, octets: u32, stamp: Stamp) -> Result<Arrivals, String> {
    let failed = |error: squall_pcap::CaptureError| error.to_string();
    let mut reader = CaptureReader::open(file).map_err(failed)?;
    let mut arrivals = Arrivals::default();
    while let Some(packet) = reader.next().map_err(failed)? {
        let own = packet.wire_len == octets
            && packet.data.len() == octets as usize
            && packet.data.get(UDP + 2..UDP + 4) == Some(&PORTS[1].to_be_bytes()[..]);
        if own {
            arrivals.times.push(packet.time_ns);
            arrivals.sent.extend(departure(packet.data, stamp));
        }
    }
    Ok(arrivals)
}

fn departure(frame: &[u8], stamp: Stamp) -> Option<u64> {
    let number = |octets: &[u8]| octets.iter().fold(0, |n, octet| n << 8 | u64::from(*octet));
    match stamp {
        Stamp::None => None,
        Stamp::Signature => frame.last_chunk::<6>().map(|octets| number(octets)),
        // In MGEN's message, the time follows size, version, flags, flow and number.
        Stamp::Mgen => {
            let time = frame.get(UDP + 8 + 12..UDP + 8 + 20)?;
            Some(number(&time[..4]) * SECOND + number(&time[4..]) * 1000)
        }
    }
}

/// Parses lines such as `01:34:57.887779 RECV proto>UDP flow>1 seq>0 ... sent>01:34:57.887708
/// size>86`.
fn read_log(text: &str, stamp: Stamp) -> Arrivals {
    let mut arrivals = Arrivals::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(time) = words.next().and_then(time_of_day) else { continue };
        if words.next() != Some("RECV") {
            continue;
        }
        let after = |time: u64, last: Option<&u64>| match last {
            // Past midnight.
            Some(last) if time + DAY / 2 < *last => time + DAY,
            _ => time,
        };
        arrivals.times.push(after(time, arrivals.times.last()));
        if stamp == Stamp::Mgen
            && let Some(sent) = words.find_map(|word| time_of_day(word.strip_prefix("sent>")?))
        {
            arrivals.sent.push(after(sent, arrivals.sent.last()));
        }
    }
    arrivals
}

/// Parses `01:34:57.887779` to nanoseconds since midnight.
fn time_of_day(text: &str) -> Option<u64> {
    let (clock, fraction) = text.split_once('.')?;
    let mut parts = clock.split(':').map(|part| part.parse::<u64>().ok());
    let mut part = || parts.next().flatten();
    let (hours, minutes, seconds) = (part()?, part()?, part()?);
    let micros = (fraction.len() == 6).then(|| fraction.parse::<u64>().ok())??;
    Some((hours * 3600 + minutes * 60 + seconds) * SECOND + micros * 1000)
}

impl Arrivals {
    /// The frames that arrived in `time_ns` from `after_ns` after the first frame.
    pub fn window(&self, after_ns: u64, time_ns: u64) -> Self {
        let Some(first) = self.times.first() else { return Self::default() };
        let inside =
            |time: u64| (after_ns..after_ns + time_ns).contains(&time.saturating_sub(*first));
        let with_sent = self.sent.len() == self.times.len();
        let mut window = Self::default();
        for (i, time) in self.times.iter().enumerate().filter(|(_, time)| inside(**time)) {
            window.times.push(*time);
            if with_sent {
                window.sent.push(self.sent[i]);
            }
        }
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
23:59:59.663420 START Mgen Version 5.02b
23:59:59.663486 LISTEN proto>UDP port>5002
23:59:59.999900 RECV proto>UDP flow>1 seq>0 src>198.18.0.2/5001 dst>198.18.0.1/5002 sent>23:59:59.999800 size>86 gps>INVALID,999.000000,999.000000,4294966297 
00:00:00.000100 RECV proto>UDP flow>1 seq>1 src>198.18.0.2/5001 dst>198.18.0.1/5002 sent>23:59:59.999990 size>86
00:00:00.000300 RECV proto>UDP flow>1 seq>2 src>198.18.0.2/5001 dst>198.18.0.1/5002 sent>00:00:00.000190 size>86
00:00:00.485791 STOP
00:00:00.48";

    #[test]
    fn a_log_of_mgen_has_times_across_midnight() {
        let read = read_log(LOG, Stamp::Mgen);
        let gaps = |times: &[u64]| crate::gaps::between(times);
        assert_eq!(gaps(&read.times), [200_000, 200_000]);
        assert_eq!(gaps(&read.sent), [190_000, 200_000]);
        assert!(read_log(LOG, Stamp::None).sent.is_empty());
        assert!(!ended_in_order(LOG.as_bytes()));
        assert!(ended_in_order(b"00:00:00.485791 STOP\n"));
        assert_eq!(read_log("RECV", Stamp::None), Arrivals::default());
    }

    #[test]
    fn stamps_are_read_at_their_places() {
        let mut frame = vec![0xff; 128];
        frame[122..].copy_from_slice(&[0, 0, 0, 1, 0, 2]);
        frame[54..62].copy_from_slice(&[0, 0, 0, 3, 0, 0, 0, 5]);
        assert_eq!(departure(&frame, Stamp::Signature), Some((1 << 16) + 2));
        assert_eq!(departure(&frame, Stamp::Mgen), Some(3 * SECOND + 5_000));
        assert_eq!(departure(&frame, Stamp::None), None);
        assert_eq!(departure(&frame[..50], Stamp::Mgen), None);
    }

    #[test]
    fn a_window_starts_after_the_first_frame() {
        let arrivals = Arrivals { times: vec![100, 150, 200, 260, 300], sent: vec![1, 2, 3, 4, 5] };
        let window = arrivals.window(50, 150);
        assert_eq!(window, Arrivals { times: vec![150, 200, 260], sent: vec![2, 3, 4] });
        let unsigned = Arrivals { sent: vec![1], ..arrivals };
        assert!(unsigned.window(0, 1000).sent.is_empty());
        assert_eq!(Arrivals::default().window(0, 1), Arrivals::default());
    }

    #[test]
    fn a_bound_port_is_found_among_sockets() {
        let text = "  sl  local_address rem_address   st\n 2585: 00000000:138A 00000000:0000 07\n";
        assert_eq!((is_bound(text, 5002), is_bound(text, 5003)), (true, false));
    }

    #[test]
    fn receivers_are_tools_of_captures_and_mgen() {
        let squall = Path::new("/opt/squall");
        let list = Receiver::parse_list(&["squall", "tcpdump", "mgen"], squall).unwrap();
        assert_eq!(list.iter().filter(|receiver| receiver.needs_addresses()).count(), 1);
        assert_eq!(list[2].info().name, "mgen (receives)");
        assert!(Receiver::parse_list(&["none"], squall).is_err());
    }
}
