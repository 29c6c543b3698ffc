//! For any file, reading in batches returns the same packets as single reads.

use squall_pcap::{CaptureReader, InterfaceFormat, LinkType, PcapFormat, PcapWriter, PcapngWriter};

type Seen = (u64, u32, LinkType, u32, u64, Vec<u8>);

/// Reads a file by `next` or in batches. Also returns the final error.
fn read(file: &[u8], batches: bool) -> (Vec<Seen>, Option<String>) {
    let mut seen = Vec::new();
    let mut reader = match CaptureReader::from_read(file) {
        Ok(reader) => reader,
        Err(error) => return (seen, Some(error.to_string())),
    };
    let mut take = |p: squall_pcap::Packet<'_>| {
        seen.push((p.time_ns, p.wire_len, p.link_type, p.interface, p.number, p.data.to_vec()));
    };
    let end = loop {
        if batches {
            match reader.next_batch() {
                Ok(batch) if batch.is_empty() => break None,
                Ok(batch) => batch.iter().for_each(&mut take),
                Err(error) => break Some(error.to_string()),
            }
        } else {
            match reader.next() {
                Ok(Some(packet)) => take(packet),
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        }
    };
    assert_eq!(reader.packets(), seen.len() as u64);
    (seen, end)
}

fn captures() -> Vec<Vec<u8>> {
    let octets: Vec<u8> = (0..=255).cycle().take(2000).collect();
    let mut pcap = PcapWriter::new(Vec::new(), PcapFormat::default()).unwrap();
    let mut ng = PcapngWriter::new(Vec::new(), vec![InterfaceFormat::default()]).unwrap();
    for i in 0..700u64 {
        let len = (i * 37 % 1500) as usize;
        let i = i + 1;
        pcap.write(i * 1_000_003, len as u32 + (i % 3) as u32, &octets[..len]).unwrap();
        ng.write(0, i * 1_000_003, len as u32 + (i % 3) as u32, &octets[..len]).unwrap();
    }
    let pcap = pcap.finish().unwrap();
    // Converts the file to big-endian by reversing the numbers in its headers.
    let mut big = pcap.clone();
    for (at, len) in [(0, 4), (4, 2), (6, 2), (8, 4), (12, 4), (16, 4), (20, 4)] {
        big[at..at + len].reverse();
    }
    let mut at = 24;
    while at < big.len() {
        let captured = u32::from_le_bytes(big[at + 8..at + 12].try_into().unwrap()) as usize;
        big[at..at + 16].chunks_mut(4).for_each(<[u8]>::reverse);
        at += 16 + captured;
    }
    vec![pcap, big, ng.finish().unwrap()]
}

#[test]
fn batches_hold_the_packets_and_the_faults_of_one_by_one() {
    for (k, file) in captures().into_iter().enumerate() {
        let (whole, end) = read(&file, false);
        assert_eq!((whole.len(), end), (700, None), "{k}");
        assert_eq!(read(&file, true), (whole, None), "{k}");
        for cut in (0..file.len()).step_by(997) {
            assert_eq!(read(&file[..cut], true), read(&file[..cut], false), "{k} cut at {cut}");
        }
        for at in (0..file.len()).step_by(499) {
            let mut damaged = file.clone();
            damaged[at] ^= 0xff;
            assert_eq!(read(&damaged, true), read(&damaged, false), "{k} damaged at {at}");
        }
    }
}
