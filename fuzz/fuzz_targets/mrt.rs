//! Any octets as an MRT file, and as a list of prefixes: nothing panics, and prefixes have no host
//! bits. Input: an octet that selects the peer and the number of routes, then the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_router::{Prefix, mrt, tables};

fuzz_target!(|data: &[u8]| {
    let Some((&choice, octets)) = data.split_first() else { return };
    let peer = (choice & 1 == 1).then_some(u16::from(choice >> 4));
    let most = (choice & 2 == 2).then_some(u32::from(choice >> 2 & 3));
    let from_file = mrt::read(octets, peer, most).map(|routes| routes.prefixes);
    if let Ok(table) = mrt::read_table(octets, peer.unwrap_or(0), most) {
        let of_sets = (0..table.sets()).map(|set| table.of_set(set).len());
        assert_eq!(of_sets.sum::<usize>(), table.prefixes().len());
        (0..table.sets()).for_each(|set| drop(table.attributes(set)));
    }
    let from_text = tables::from_text(&String::from_utf8_lossy(octets));
    for prefix in from_file.into_iter().chain(from_text.ok()).flatten() {
        assert_eq!(Prefix::parse(&prefix.to_string()), Some(prefix));
        assert!(prefix.overlaps(prefix));
    }
});
