#![no_main]
//! A tcpprep cache, and rules that split packets: nothing panics, a cache has the same octets when
//! written again, and the offset of an error is within the file.

use libfuzzer_sys::fuzz_target;
use squall_measure::flow::Link;
use squall_replay::{
    Cache, Side, Split, Splitter,
    split::{AutoMode, By, Select, Services},
};

fuzz_target!(|data: &[u8]| {
    match Cache::parse(data) {
        Ok(cache) => {
            assert_eq!(cache.to_bytes(), data);
            let counts = cache.counts();
            assert_eq!(counts.primary + counts.secondary + counts.skipped, cache.len());
            assert!(cache.side(0).is_none() && cache.side(cache.len() + 1).is_none());
        }
        Err(error) => assert!(error.offset <= data.len() && !error.to_string().is_empty()),
    }
    // The first line is a rule; packets of 64 octets follow.
    let at = data.iter().position(|octet| *octet == b'\n').unwrap_or(data.len());
    let (text, packets) =
        (String::from_utf8_lossy(&data[..at]), data.get(at + 1..).unwrap_or_default());
    let _ = Services::parse(&text);
    let by = text
        .parse()
        .map(|mode: AutoMode| By::Auto(squall_replay::split::Auto { mode, ..Default::default() }));
    let by = by
        .or_else(|_| By::cidr(&text))
        .or_else(|_| By::mac(&text))
        .unwrap_or(By::Port(Box::default()));
    let select = Select::parse(&text, false).ok().filter(|_| !text.starts_with('F'));
    let mut splitter = Splitter::new(&Split { select, ..Split::new(by) }, Link::Ethernet);
    if splitter.must_learn() {
        packets.chunks(64).zip(1..).for_each(|(packet, number)| splitter.learn(packet, number));
        if let Err(error) = splitter.learned() {
            assert!(!error.to_string().is_empty());
        }
    }
    for (packet, number) in packets.chunks(64).zip(1..) {
        assert!(matches!(
            splitter.side(packet, number),
            Side::Primary | Side::Secondary | Side::Skip
        ));
    }
});
