#![no_main]
//! Any octets as a packet of any link type: nothing panics, offsets ascend and are within the
//! octets, and both directions of a flow have the same key.

use libfuzzer_sys::fuzz_target;
use squall_measure::flow::{FlowTable, Headers};

fuzz_target!(|data: &[u8]| {
    let Some((&[high, low], octets)) = data.split_first_chunk() else { return };
    let headers = Headers::parse(octets, u16::from_be_bytes([high, low]).into());
    assert!(headers.network <= headers.transport && headers.transport <= headers.payload);
    assert!(headers.payload <= headers.end && headers.end as usize <= octets.len());
    let (key, swapped) = headers.key.canonical();
    assert_eq!(if swapped { key.reversed() } else { key }, headers.key);
    assert!(!headers.key.to_string().is_empty());
    let mut table = FlowTable::<u8>::new(1, None);
    assert!(table.entry(&headers.key, 0).is_some() && table.entry(&headers.key, 1).is_some());
    assert_eq!(table.len(), 1);
});
