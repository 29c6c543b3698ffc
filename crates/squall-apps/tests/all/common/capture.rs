//! Captures written packet by packet.

use std::io::Cursor;

use squall_apps::{Import, ImportOptions, import};
use squall_pcap::{CaptureReader, PcapFormat, PcapWriter};
use squall_wire::tcp_flags::{ACK, SYN};

/// A capture between client 10.0.0.1:40000 and server 10.0.0.2:80.
pub struct Capture {
    writer: PcapWriter<Vec<u8>>,
    pub ports: [u16; 2],
    pub time_us: u64,
    /// Maximum number of octets captured of a frame.
    pub snaplen: usize,
    /// Whether to use fd00::1 and fd00::2, with a VLAN tag.
    pub v6: bool,
}

impl Default for Capture {
    fn default() -> Self {
        let writer = PcapWriter::new(vec![], PcapFormat::default()).expect("memory");
        Self {
            writer,
            ports: [40_000, 80],
            time_us: 1_700_000_000_000_000,
            snaplen: 65_535,
            v6: false,
        }
    }
}

impl Capture {
    pub fn wait_us(&mut self, us: u64) -> &mut Self {
        self.time_us += us;
        self
    }

    /// Adds a segment from the client (0) or the server (1).
    pub fn tcp(&mut self, side: usize, flags: u8, seq: u32, ack: u32, payload: &[u8]) -> &mut Self {
        let mut segment = vec![];
        segment.extend(self.ports[side].to_be_bytes());
        segment.extend(self.ports[1 - side].to_be_bytes());
        segment.extend(seq.to_be_bytes());
        segment.extend(ack.to_be_bytes());
        segment.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        segment.extend(payload);
        self.ip(side, 6, &segment)
    }

    pub fn udp(&mut self, side: usize, payload: &[u8]) -> &mut Self {
        let mut datagram = vec![];
        datagram.extend(self.ports[side].to_be_bytes());
        datagram.extend(self.ports[1 - side].to_be_bytes());
        datagram.extend((payload.len() as u16 + 8).to_be_bytes());
        datagram.extend([0, 0]);
        datagram.extend(payload);
        self.ip(side, 17, &datagram)
    }

    fn ip(&mut self, side: usize, protocol: u8, payload: &[u8]) -> &mut Self {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        if self.v6 {
            frame.extend([0x81, 0, 0, 7, 0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((payload.len() as u16).to_be_bytes());
            frame.extend([protocol, 64]);
            for last in [1 + side as u8, 2 - side as u8] {
                frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
            }
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((payload.len() as u16 + 20).to_be_bytes());
            frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
            frame.extend([10, 0, 0, 1 + side as u8]);
            frame.extend([10, 0, 0, 2 - side as u8]);
        }
        frame.extend(payload);
        let kept = frame.len().min(self.snaplen);
        self.writer.write(self.time_us * 1000, frame.len() as u32, &frame[..kept]).expect("memory");
        self.time_us += 10;
        self
    }

    /// Adds the three-way handshake; the sides' first octets have sequence numbers 1001 and 5001.
    pub fn handshake(&mut self) -> &mut Self {
        self.tcp(0, SYN, 1000, 0, b"")
            .tcp(1, SYN | ACK, 5000, 1001, b"")
            .tcp(0, ACK, 1001, 5001, b"")
    }

    pub fn file(&mut self) -> Vec<u8> {
        let fresh = PcapWriter::new(vec![], PcapFormat::default()).expect("memory");
        std::mem::replace(&mut self.writer, fresh).finish().expect("memory")
    }

    /// # Panics
    /// If the capture cannot be imported.
    pub fn import(&mut self, options: &ImportOptions) -> Import {
        let mut reader = CaptureReader::from_read(Cursor::new(self.file())).expect("a capture");
        import(&mut reader, "test", options).expect("within all limits")
    }
}
