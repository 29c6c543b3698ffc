//! Whatever a capture holds, reading it ends, and lends no more than the file has.
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_pcap::CaptureReader;

fuzz_target!(|file: &[u8]| {
    let mut reader = match CaptureReader::from_read(file) {
        Ok(reader) => reader,
        Err(error) => {
            assert!(error.offset <= file.len() as u64);
            let _ = error.to_string();
            return;
        }
    };
    let mut octets = 0;
    loop {
        match reader.next() {
            Ok(Some(packet)) => {
                assert!(packet.data.len() <= packet.wire_len as usize);
                octets += packet.data.len();
                let (interface, number) = (packet.interface as usize, packet.number);
                assert!(interface < reader.interfaces().len());
                assert_eq!(number, reader.packets());
            }
            Ok(None) => break,
            Err(error) => {
                assert!(error.offset <= file.len() as u64);
                let _ = error.to_string();
                break;
            }
        }
    }
    assert!(octets <= file.len());
    assert!(matches!(reader.next(), Ok(None)));
});
