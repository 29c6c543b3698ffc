//! Captures with any content, compressed or not: reading terminates, even after errors, and
//! borrowed octets equal those in the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_pcap::CaptureReader;

fuzz_target!(|file: &[u8]| {
    let mut reader = match CaptureReader::from_read(file) {
        Ok(reader) => reader,
        Err(error) => {
            let _ = error.to_string();
            return;
        }
    };
    let (compression, mut octets, mut faults) = (reader.compression(), 0, 0);
    loop {
        let before = reader.offset();
        match reader.next() {
            Ok(Some(packet)) => {
                assert!(packet.data.len() <= packet.wire_len as usize);
                octets += packet.data.len() as u64;
                let (interface, number) = (packet.interface as usize, packet.number);
                let _ = (
                    packet.options.direction(),
                    packet.options.dropped(),
                    packet.options.comments().count(),
                );
                assert!(interface < reader.interfaces().len());
                assert_eq!(number, reader.packets());
                assert!(reader.offset() > before);
            }
            Ok(None) => break,
            Err(error) => {
                assert!(compression.is_some() || error.offset <= file.len() as u64);
                assert!(error.offset >= before);
                let _ = error.to_string();
                assert!(matches!(reader.next(), Ok(None)));
                let skipped = reader.recover();
                assert_eq!(skipped.from + skipped.octets, reader.offset());
                faults += 1;
                // A valid file header may follow at the position of an error. Every other step
                // consumes at least one octet.
                assert!(faults <= 2 * (reader.offset() + 2));
            }
        }
    }
    assert!(octets <= reader.offset());
    assert!(compression.is_some() || reader.offset() <= file.len() as u64);
    assert!(matches!(reader.next(), Ok(None)));
});
