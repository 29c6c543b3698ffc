//! Tests the example profiles in the repository.

use std::path::PathBuf;

use squall_profile::{FieldRef, Format, PacketSource, Profile};

fn examples() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/profiles");
    let files = std::fs::read_dir(folder).expect(folder).map(|entry| entry.expect(folder).path());
    files.filter(|path| Format::from_path(path).is_some()).collect()
}

#[test]
fn every_example_reads_without_a_mistake() {
    let examples = examples();
    assert!(examples.len() >= 10, "{examples:?}");
    for path in examples {
        let profile = Profile::load(&path).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        assert!(profile.streams.iter().all(|stream| stream.packet_at.line > 0), "{path:?}");
    }
}

#[test]
fn every_example_runs_anywhere() {
    for path in examples() {
        for port in Profile::load(&path).unwrap_or_else(|mistakes| panic!("{mistakes}")).ports {
            let anywhere = ["loop:", "null:"].iter().any(|kind| port.address.starts_with(kind));
            assert!(anywhere, "{path:?}: {}", port.address);
        }
    }
}

#[test]
fn every_example_written_back_reads_the_same() {
    for path in examples() {
        let profile = Profile::load(&path).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let text = profile.to_toml();
        let again = Profile::parse(&text, "again", Format::Toml)
            .unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"));
        assert_eq!(again.to_value(), profile.to_value(), "{path:?}");
    }
}

#[test]
fn every_example_builds_and_has_the_fields_it_changes() {
    let no_files = |path: &str| Err(std::io::Error::other(path.to_owned()));
    for path in examples() {
        for stream in Profile::load(&path).unwrap_or_else(|mistakes| panic!("{mistakes}")).streams {
            let PacketSource::Layers(packet) = &stream.packet else { continue };
            let frame = packet
                .build(None, &no_files, 0)
                .unwrap_or_else(|e| panic!("{path:?} {}: {e}", stream.name));
            for vary in &stream.vary {
                let FieldRef::Name(field) = &vary.field else { continue };
                frame.field(field).unwrap_or_else(|e| panic!("{path:?} {}: {e}", stream.name));
            }
        }
    }
}
