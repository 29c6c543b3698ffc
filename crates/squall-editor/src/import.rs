//! Imports streams from other formats: octets, scapy, captures, Open Traffic Generator.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use squall::Error;
use squall_pcap::CaptureReader;
use squall_profile::Profile;
use squall_wire::{Packet, parse_hex};

use super::{Problem, packet::of_octets};

/// The source of the imported streams.
#[derive(Clone, Copy, Debug)]
pub enum Import<'a> {
    /// The first frames of a capture, each of which becomes a stream.
    Pcap(&'a Path),
    /// Frames as octets, separated by empty lines.
    Hex(&'a str),
    /// A packet, or one packet per line.
    Scapy(&'a str),
    /// An Open Traffic Generator configuration as JSON.
    Otg(&'a str),
}

/// A profile made from the imported packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Imported {
    /// The profile as TOML.
    pub profile: String,
    /// Its streams, as in the schema of profiles.
    pub streams: Vec<Value>,
    pub notes: Vec<String>,
}

/// Imports at most `limit` streams, on a port with the address `port`.
///
/// ```
/// use squall_editor::{Import, import};
///
/// let found = import(Import::Scapy("Ether()/IP(ttl=3)/UDP()\nIP()/TCP()"), "loop:0", 10).unwrap();
/// assert_eq!(found.streams.len(), 2);
/// assert!(found.profile.contains("ttl=3"), "{}", found.profile);
/// ```
///
/// # Errors
/// All errors, each with its position.
pub fn import(from: Import<'_>, port: &str, limit: usize) -> Result<Imported, Vec<Problem>> {
    let one = |problem: Problem| vec![problem];
    let (packets, mut notes) = match from {
        Import::Pcap(path) => of_capture(path, limit)
            .map_err(|error| one(Problem { message: error.to_string(), ..Problem::default() }))?,
        Import::Hex(text) => of_hex(text, limit).map_err(one)?,
        Import::Scapy(text) => of_scapy(text, limit).map_err(one)?,
        Import::Otg(text) => return of_otg(text),
    };
    notes.dedup();
    let streams: Vec<Value> = packets
        .iter()
        .map(|(name, packet)| json!({ "name": name, "port": "A", "packet": packet.to_string(), "rate": "1 kpps" }))
        .collect();
    let profile = json!({ "ports": { "A": port }, "stream": streams });
    let profile = Profile::from_value(&profile, "import")
        .map_err(|mistakes| mistakes.0.into_iter().map(Problem::from).collect::<Vec<_>>())?;
    Ok(Imported { profile: profile.to_toml(), streams, notes })
}

type Found = (Vec<(String, Packet)>, Vec<String>);

fn of_capture(path: &Path, limit: usize) -> Result<Found, Error> {
    let mut reader = CaptureReader::open(path).map_err(|error| Error::Usage(error.to_string()))?;
    let (mut packets, mut notes) = (Vec::new(), Vec::new());
    let mut left_out = 0_u64;
    while packets.len() < limit {
        let packet = match reader.next() {
            Ok(Some(packet)) => packet,
            Ok(None) => break,
            Err(fault) => {
                notes.push(fault.to_string());
                break;
            }
        };
        if (packet.data.len() as u32) < packet.wire_len {
            left_out += 1;
            continue;
        }
        match squall_wire::link::to_ethernet(packet.link_type.0, packet.data) {
            Ok(octets) => packets.push((format!("packet {}", packet.number), of_octets(&octets).0)),
            Err(_) => left_out += 1,
        }
    }
    if left_out > 0 {
        notes.push(format!(
            "{left_out} packets left out: not captured whole, or not Ethernet frames"
        ));
    }
    if packets.len() == limit && matches!(reader.next(), Ok(Some(_))) {
        notes.push(format!("only the first {limit} packets; a replay sends the whole capture"));
    }
    match packets.is_empty() {
        true => Err(Error::Usage("no packet can be sent as an Ethernet frame".into())),
        false => Ok((packets, notes)),
    }
}

fn of_hex(text: &str, limit: usize) -> Result<Found, Problem> {
    let (mut packets, mut notes) = (Vec::new(), Vec::new());
    for (line, block) in blocks(text) {
        if packets.len() == limit {
            notes.push(format!("only the first {limit} frames"));
            break;
        }
        let octets = parse_hex(&block)
            .map_err(|error| Problem { line: error.line + line, ..error.into() })?;
        let (packet, note) = of_octets(&octets);
        packets.push((format!("frame {}", packets.len() + 1), packet));
        notes.extend(note);
    }
    match packets.is_empty() {
        true => Err(Problem::new(
            "no octets found",
            "expected hex digits, with an empty line between frames",
        )),
        false => Ok((packets, notes)),
    }
}

/// Blocks of lines separated by empty lines, each with the number of lines before it.
fn blocks(text: &str) -> Vec<(u32, String)> {
    let mut blocks: Vec<(u32, String)> = Vec::new();
    let mut open = false;
    for (number, line) in (0..).zip(text.lines()) {
        let empty = line.trim().is_empty();
        match blocks.last_mut().filter(|_| open && !empty) {
            Some((_, block)) => *block += &format!("{line}\n"),
            None if !empty => blocks.push((number, format!("{line}\n"))),
            None => {}
        }
        open = !empty;
    }
    blocks
}

fn of_scapy(text: &str, limit: usize) -> Result<Found, Problem> {
    // A packet may be written over several lines.
    if let Ok(read) = squall_wire::scapy::parse(text) {
        return Ok((vec![("packet 1".into(), read.packet)], read.notes));
    }
    let (mut packets, mut notes) = (Vec::new(), Vec::new());
    for (number, line) in (0..).zip(text.lines()) {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        if packets.len() == limit {
            notes.push(format!("only the first {limit} packets"));
            break;
        }
        let read = squall_wire::scapy::parse(line).map_err(|error| {
            let problem = Problem::of_syntax(&error, line);
            Problem { line: number + 1, ..problem }
        })?;
        packets.push((format!("packet {}", packets.len() + 1), read.packet));
        notes.extend(read.notes);
    }
    match packets.is_empty() {
        true => Err(Problem::new("no packet found", "expected packets such as Ether()/IP()/UDP()")),
        false => Ok((packets, notes)),
    }
}

fn of_otg(text: &str) -> Result<Imported, Vec<Problem>> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line() as u32, error.column() as u32);
        vec![Problem {
            line,
            column,
            ..Problem::new(error.to_string(), "expected a configuration in JSON")
        }]
    })?;
    let to_problems = |problems: squall_otg::Problems| -> Vec<Problem> {
        problems
            .to_string()
            .lines()
            .map(|line| Problem { message: line.into(), ..Problem::default() })
            .collect()
    };
    let config = squall_otg::Config::from_json(&value).map_err(to_problems)?;
    let translated = squall_otg::translate(&config).map_err(to_problems)?;
    let streams = translated.profile.to_value()["stream"].as_array().cloned().unwrap_or_default();
    Ok(Imported { profile: translated.profile.to_toml(), streams, notes: translated.warnings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_lines_separate_frames_and_errors_keep_their_line() {
        let udp = "020000000002020000000001080045000020000100004011f6b2c6120001c6130002c0200009000c0000 \
             68656c6c";
        let found = import(Import::Hex(&format!("{udp}\n\n\n{udp}\n")), "loop:0", 10).unwrap();
        assert_eq!(found.streams.len(), 2);
        assert!(found.streams[1]["packet"].as_str().unwrap().starts_with("eth/ipv4("), "{found:?}");
        let wrong = import(Import::Hex(&format!("{udp}\n\nzz")), "loop:0", 10).unwrap_err();
        assert_eq!((wrong[0].line, wrong[0].column), (3, 1));
        assert_eq!(
            import(Import::Hex(&format!("{udp}\n\n{udp}\n")), "loop:0", 1).unwrap().notes,
            ["only the first 1 frames"]
        );
    }

    #[test]
    fn a_configuration_of_open_traffic_generator_becomes_streams() {
        let config = r#"{"ports":[{"name":"tx","location":"loop:0"}],
            "flows":[{"name":"web","tx_rx":{"port":{"tx_name":"tx"}},"rate":{"choice":"pps","pps":10}}]}"#;
        let found = import(Import::Otg(config), "", 10).unwrap();
        assert_eq!(found.streams.len(), 1);
        assert!(!import(Import::Otg("{\"flows\": 3}"), "", 10).unwrap_err().is_empty());
        assert_eq!(import(Import::Otg("{\n!"), "", 10).unwrap_err()[0].line, 2);
    }
}
