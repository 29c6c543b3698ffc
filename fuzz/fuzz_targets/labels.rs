#![no_main]
//! A label file, as CSV or JSONL: reading terminates, each error names a line that exists, and a
//! label is the same after it is written and read in either format.

use libfuzzer_sys::fuzz_target;
use squall_attacks::labels::{Format, Reader, Writer};

fuzz_target!(|data: &[u8]| {
    let lines = data.split(|&octet| octet == b'\n').count() as u64;
    let mut labels = vec![];
    for read in Reader::new(data) {
        match read {
            Ok(label) => labels.push(label),
            Err(error) => assert!((1..=lines).contains(&error.line) && error.column > 0, "{error}"),
        }
    }
    assert!(labels.len() as u64 <= lines);
    for format in [Format::Csv, Format::Jsonl] {
        let mut writer = Writer::new(vec![], format).unwrap();
        for label in &labels {
            writer.write(label).unwrap();
        }
        let written = writer.into_inner();
        let again: Vec<_> = Reader::new(&written[..]).map(|read| read.unwrap()).collect();
        assert_eq!(again, labels);
    }
});
