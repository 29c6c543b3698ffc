//! Frames of configurations written by snappi. The golden octets were checked by hand and with
//! scapy.

use std::{fmt::Write, path::Path};

use serde_json::Value;
use squall_otg::{Config, Translated, translate};
use squall_profile::PacketSource;

fn config(name: &str) -> Config {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs").join(name);
    let text = std::fs::read_to_string(path).expect("the file is there");
    Config::from_json(&serde_json::from_str(&text).expect("it is JSON")).expect("it is an object")
}

/// Formats the streams' octets and varying fields.
fn frames(translated: &Translated) -> String {
    let mut text = String::new();
    for stream in &translated.profile.streams {
        let PacketSource::Octets(octets) = &stream.packet else { panic!("streams are of octets") };
        let hex: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
        let signed = if stream.latency { " signed" } else { "" };
        writeln!(text, "{} {} {}{signed}", stream.name, stream.rate, hex.trim_end_matches("00"))
            .unwrap();
        for vary in &stream.vary {
            writeln!(text, "  {} {:?}", vary.field, vary.op).unwrap();
        }
    }
    text
}

#[test]
fn headers_are_the_octets_that_were_read() {
    let translated = translate(&config("headers.json")).expect("all of it is supported");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs/headers.txt");
    let found = frames(&translated);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(&path).unwrap_or_default());
}

#[test]
fn a_configuration_reads_back_as_set() {
    let config = config("headers.json");
    let again = Config::from_json(&config.to_json()).unwrap();
    assert_eq!(config, again);
    assert!(matches!(config.to_json(), Value::Object(_)));
}
