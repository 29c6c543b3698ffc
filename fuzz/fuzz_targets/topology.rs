//! Topologies of labs in all three formats: no text causes a panic, and one that is accepted can be
//! described, with one place for each interface.
#![no_main]

use std::{collections::HashSet, io, path::Path};

use libfuzzer_sys::fuzz_target;
use squall_profile::{Format, Topology};

fn files(path: &Path) -> io::Result<String> {
    match path.extension() {
        Some(_) => Ok("protocol device {}\n".into()),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

fuzz_target!(|text: &str| {
    for format in [Format::Toml, Format::Yaml, Format::Json] {
        match Topology::parse_with(text, "fuzz", format, &files) {
            Ok(topology) => {
                let ends: HashSet<_> = topology.ends().map(|end| topology.end_name(end)).collect();
                assert_eq!(ends.len(), 2 * topology.links.len());
            }
            Err(mistakes) => assert!(!mistakes.to_string().is_empty()),
        }
    }
});
