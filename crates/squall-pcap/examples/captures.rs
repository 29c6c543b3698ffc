//! Exercises this crate, for comparison with other programs:
//!
//! `captures write FOLDER` writes captures that use every feature of the writers, for
//! tests/interop/captures.py. `captures read FILE` prints each packet, and each error with the
//! number of octets skipped after it.

use std::{error::Error, path::Path, process::ExitCode};

use squall_pcap::*;

/// 2023-11-14 22:13:20 UTC.
const START: u64 = 1_700_000_000_000_000_000;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", folder] => write(Path::new(folder)),
        ["read", file] => Ok(read(file)?),
        _ => Err("usage: captures write FOLDER | captures read FILE".into()),
    }
}

/// An Ethernet frame of `len` octets with IPv4 and UDP to port 5001.
fn frame(len: usize) -> Vec<u8> {
    let mut octets = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]].concat();
    octets.extend([8, 0, 0x45, 0]);
    octets.extend((len as u16 - 14).to_be_bytes());
    octets.extend([0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 19, 0, 1, 0xc0, 32, 0x13, 0x89]);
    octets.extend((len as u16 - 34).to_be_bytes());
    octets.resize(len, 0);
    octets
}

fn write(folder: &Path) -> Result<(), Box<dyn Error>> {
    let frames: Vec<_> =
        (0..40).map(|i| (START + i * 1_000_001, frame(42 + 37 * i as usize))).collect();
    for (name, nanoseconds, snaplen) in
        [("us", false, 262_144), ("ns", true, 262_144), ("snap", true, 96)]
    {
        let format = PcapFormat { nanoseconds, snaplen, ..PcapFormat::default() };
        let mut writer = PcapWriter::create(folder.join(format!("{name}.pcap")), format)?;
        for (time, octets) in &frames {
            writer.write(*time, octets.len() as u32, octets)?;
        }
        writer.finish()?;
    }
    for (name, link_type) in [("raw", LinkType::RAW), ("ipv4", LinkType::IPV4)] {
        let format = PcapFormat { link_type, ..PcapFormat::default() };
        let mut writer = PcapWriter::create(folder.join(format!("{name}.pcap")), format)?;
        for (time, octets) in &frames {
            writer.write(*time, octets.len() as u32 - 14, &octets[14..])?;
        }
        writer.finish()?;
    }

    let section = Section {
        hardware: Some("a machine of 2 cores".into()),
        os: Some("Linux 6.18".into()),
        application: Some("squall of the tests".into()),
        comment: Some("all that can be said".into()),
    };
    let eth = InterfaceFormat {
        name: Some("eth1".into()),
        description: Some("the wire".into()),
        filter: Some("udp port 9".into()),
        os: Some("Linux 6.18".into()),
        hardware: Some("a card".into()),
        comment: Some("as seen by the receiver".into()),
        mac: Some([2, 0, 0, 0, 0, 2]),
        speed_bps: Some(10_000_000_000),
        ..InterfaceFormat::default()
    };
    let tun = InterfaceFormat {
        name: Some("tun0".into()),
        link_type: LinkType::RAW,
        snaplen: 96,
        ..InterfaceFormat::default()
    };
    let mut writer = PcapngWriter::with_section(
        std::fs::File::create(folder.join("all.pcapng"))?,
        &section,
        vec![eth, tun],
    )?;
    for (i, (time, octets)) in frames.iter().enumerate() {
        let notes = PacketNotes {
            direction: Some([Direction::Inbound, Direction::Outbound][i % 2]),
            dropped: if i == 7 { 3 } else { 0 },
            comment: (i == 8).then_some("three were lost before"),
        };
        let octets = &octets[i % 2 * 14..];
        writer.write_with(i as u32 % 2, *time, octets.len() as u32, octets, &notes)?;
    }
    for interface in 0..2 {
        let statistics = Statistics {
            start_ns: Some(START),
            end_ns: Some(START + 1_000_000_000),
            received: Some(25),
            dropped_by_interface: Some(1),
            accepted: Some(23),
            dropped_by_system: Some(3),
            delivered: Some(20),
        };
        writer.statistics(interface, START + 1_000_000_000, statistics)?;
    }
    writer.finish()?;
    Ok(())
}

fn read(file: &str) -> Result<(), CaptureError> {
    let mut reader = CaptureReader::open(file)?;
    loop {
        match reader.next() {
            Ok(Some(packet)) => {
                let Packet { number, time_ns, wire_len, link_type, data, .. } = packet;
                println!("{number} {time_ns} {wire_len} {} {link_type}", data.len());
            }
            Ok(None) => return Ok(()),
            Err(error) => {
                println!("fault {error}");
                let Skipped { octets, found, .. } = reader.recover();
                println!("skipped {octets}{}", if found { "" } else { " to the end" });
            }
        }
    }
}
