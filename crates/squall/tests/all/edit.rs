//! Edits captures with `squall_offline::edit`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use squall_offline::edit::{
    Edited, Settings, Split, edit,
    edits::{Edits, When},
};
use squall_pcap::{
    CaptureReader, Direction, InterfaceFormat, LinkType, PacketNotes, PcapFormat, PcapWriter,
    PcapngWriter, Resolution,
};
use squall_replay::{Cache, Side};

/// A temporary directory, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("squall-edit-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A UDP packet without checksums from 10.0.0.1, port `number`.
fn packet(number: u8) -> Vec<u8> {
    let ip = [
        &[0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2][..],
        &[0, number, 0, 9, 0, 12, 0, 0],
        &[7; 4],
    ];
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], &ip.concat()].concat()
}

/// Writes the packets `numbers`, each of which is that many seconds after the start of 2023.
fn write(path: &Path, numbers: &[u8]) {
    let mut writer = PcapWriter::create(path, PcapFormat::default()).unwrap();
    for &number in numbers {
        let octets = packet(number);
        writer.write(time(number), octets.len() as u32, &octets).unwrap();
    }
    writer.finish().unwrap();
}

fn time(number: u8) -> u64 {
    1_700_000_000_000_000_001 + u64::from(number) * 1_000_000_000
}

/// Reads times and source ports.
fn read(path: &Path) -> Vec<(u64, u8)> {
    let mut reader = CaptureReader::open(path).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next().unwrap() {
        packets.push((packet.time_ns, packet.data[35]));
    }
    packets
}

fn numbers(path: &Path) -> Vec<u8> {
    let packets = read(path);
    assert!(
        packets.iter().all(|&(at, number)| at == time(number)),
        "nanoseconds stay: {packets:?}"
    );
    packets.into_iter().map(|(_, number)| number).collect()
}

fn run(inputs: &[PathBuf], out: &Path, settings: &Settings) -> Edited {
    let settings = Settings { permit: squall_port::output::Permit::FORCE, ..settings.clone() };
    edit(inputs, out, &settings, |_| true).unwrap()
}

#[test]
fn files_follow_one_another_or_merge_by_time() {
    let folder = Folder::new("merge");
    let inputs = ["a.pcap", "b.pcap", "c.pcap"].map(|name| folder.path(name));
    write(&inputs[0], &[1, 4, 7]);
    write(&inputs[1], &[]);
    write(&inputs[2], &[2, 3, 7, 9]);
    let out = folder.path("out.pcap");
    run(&inputs, &out, &Settings::default());
    assert_eq!(numbers(&out), [1, 4, 7, 2, 3, 7, 9]);
    let edited = run(&inputs, &out, &Settings { merge: true, ..Settings::default() });
    assert_eq!(numbers(&out), [1, 2, 3, 4, 7, 7, 9]);
    assert_eq!((edited.packets_read, edited.packets_written, edited.packets_changed), (7, 7, 0));
    assert_eq!(edited.inputs.iter().map(|input| input.packets).collect::<Vec<_>>(), [3, 0, 4]);
}

#[test]
fn a_capture_is_split_by_count_time_and_conversation() {
    let folder = Folder::new("split");
    let (input, out) = (folder.path("in.pcap"), folder.path("out.pcapng"));
    write(&input, &[1, 2, 3, 8, 2]);
    let parts = |split| {
        let edited = run(
            std::slice::from_ref(&input),
            &out,
            &Settings { split: Some(split), ..Settings::default() },
        );
        assert_eq!(edited.packets_written, 5);
        let parts: Vec<_> = edited
            .outputs
            .iter()
            .map(|output| (output.path.clone(), numbers(Path::new(&output.path))))
            .collect();
        assert!(
            parts
                .iter()
                .zip(1..)
                .all(|((path, _), i)| path.ends_with(&format!("out-{i:05}.pcapng"))),
            "{parts:?}"
        );
        parts.into_iter().map(|(_, numbers)| numbers).collect::<Vec<_>>()
    };
    assert_eq!(parts(Split::Count(2)), [vec![1, 2], vec![3, 8], vec![2]]);
    // Intervals of two seconds from 1 s on: 1 and 2, 3 and 4, ... A packet with an earlier
    // timestamp stays in the current file.
    assert_eq!(parts(Split::Time(2_000_000_000)), [vec![1, 2], vec![3], vec![8, 2]]);
    assert_eq!(parts(Split::Flows), [vec![1], vec![2, 2], vec![3], vec![8]]);
}

#[test]
fn more_conversations_than_files_may_be_open_are_written_whole() {
    let folder = Folder::new("many");
    let (input, out) = (folder.path("in.pcap"), folder.path("out.pcap"));
    let once: Vec<u8> = (0..=255).collect();
    write(&input, &[&once[..], &once, &once].concat());
    let edited =
        run(&[input], &out, &Settings { split: Some(Split::Flows), ..Settings::default() });
    assert_eq!((edited.outputs.len(), edited.packets_written), (256, 768));
    for (number, output) in edited.outputs.iter().enumerate() {
        assert_eq!(numbers(Path::new(&output.path)), [number as u8; 3]);
    }
}

#[test]
fn packets_before_a_fault_are_written_and_the_fault_is_reported() {
    let folder = Folder::new("fault");
    let (input, out) = (folder.path("in.pcap"), folder.path("out.pcap"));
    write(&input, &[1, 2, 3]);
    let whole = fs::read(&input).unwrap();
    fs::write(&input, &whole[..whole.len() - 5]).unwrap();
    let second = folder.path("second.pcap");
    write(&second, &[4]);
    let edited = run(&[input, second], &out, &Settings::default());
    assert_eq!(numbers(&out), [1, 2, 4]);
    let fault = edited.inputs[0].fault.as_ref().unwrap();
    assert_eq!(fault.offset, 24 + 2 * 62);
    assert!(fault.text.contains("ends inside"), "{}", fault.text);
    assert_eq!(edited.inputs[1].fault, None);
}

#[test]
fn a_file_is_not_written_over_what_is_read() {
    let folder = Folder::new("same");
    let (input, link) = (folder.path("in.pcap"), folder.path("link.pcap"));
    write(&input, &[1]);
    fs::hard_link(&input, &link).unwrap();
    let before = fs::read(&input).unwrap();
    for out in [&input, &link] {
        let edited = edit(std::slice::from_ref(&input), out, &Settings::default(), |_| true);
        let error = squall::Error::from(edited.unwrap_err());
        assert_eq!(error.exit_status(), 2);
        assert!(error.to_string().contains("would be lost"), "{error}");
    }
    // The same, if the input has a name that the split would produce.
    let input = folder.path("out-00001.pcap");
    fs::write(&input, &before).unwrap();
    let settings = Settings { split: Some(Split::Count(1)), ..Settings::default() };
    assert!(
        edit(std::slice::from_ref(&input), &folder.path("out.pcap"), &settings, |_| true).is_err()
    );
    assert_eq!(fs::read(&input).unwrap(), before);
}

#[test]
fn metadata_of_interfaces_and_packets_stays_in_a_pcapng() {
    let folder = Folder::new("pcapng");
    let (input, out) = (folder.path("in.pcapng"), folder.path("out.pcapng"));
    let interface = |name: &str, link_type| InterfaceFormat {
        name: Some(name.into()),
        link_type,
        ..InterfaceFormat::default()
    };
    let interfaces = vec![interface("eth1", LinkType::ETHERNET), interface("tun0", LinkType::RAW)];
    let mut writer = PcapngWriter::create(&input, interfaces).unwrap();
    let (octets, notes) = (
        packet(5),
        PacketNotes { direction: Some(Direction::Outbound), dropped: 3, comment: Some("mark") },
    );
    writer.write_with(1, 7, 32, &octets[14..], &notes).unwrap();
    writer.write(0, 8, 46, &octets).unwrap();
    writer.finish().unwrap();
    let settings = Settings {
        edits: Edits { ttl: Some("9".parse().unwrap()), ..Edits::default() },
        ..Settings::default()
    };
    let edited = run(std::slice::from_ref(&input), &out, &settings);
    assert_eq!(edited.packets_changed, 2);
    let mut reader = CaptureReader::open(&out).unwrap();
    let first = reader.next().unwrap().unwrap();
    assert_eq!((first.time_ns, first.link_type, first.data[8]), (7, LinkType::RAW, 9));
    assert_eq!(
        (first.options.direction(), first.options.dropped()),
        (Some(Direction::Outbound), Some(3))
    );
    assert_eq!(first.options.comments().collect::<Vec<_>>(), ["mark"]);
    let second = reader.next().unwrap().unwrap();
    assert_eq!((second.time_ns, second.link_type, second.data[22]), (8, LinkType::ETHERNET, 9));
    let names: Vec<_> =
        reader.interfaces().iter().map(|interface| interface.name.clone().unwrap()).collect();
    assert_eq!(names, ["tun0", "eth1"]);
    // A pcap has only one link type: the edit is refused with a hint, or packets are converted to
    // one type.
    let pcap = folder.path("out.pcap");
    let error =
        edit(std::slice::from_ref(&input), &pcap, &settings, |_| true).unwrap_err().to_string();
    assert!(error.contains("--dlt enet"), "{error}");
    let settings = Settings {
        edits: Edits { dlt: Some("enet".parse().unwrap()), ..Edits::default() },
        ..Settings::default()
    };
    run(&[input], &pcap, &settings);
    assert_eq!(read(&pcap), [(7, 5), (8, 5)]);
}

#[test]
fn a_pcap_of_microseconds_stays_one() {
    let folder = Folder::new("us");
    let (input, out) = (folder.path("in.pcap"), folder.path("out.pcap"));
    let mut writer =
        PcapWriter::create(&input, PcapFormat { nanoseconds: false, ..PcapFormat::default() })
            .unwrap();
    writer.write(1_000, 46, &packet(1)).unwrap();
    writer.finish().unwrap();
    run(std::slice::from_ref(&input), &out, &Settings::default());
    assert_eq!(fs::read(&input).unwrap(), fs::read(&out).unwrap());
    let finer =
        Settings { edits: Edits { time_shift_ns: 1, ..Edits::default() }, ..Settings::default() };
    run(&[input], &out, &finer);
    assert_eq!(CaptureReader::open(&out).unwrap().interfaces()[0].resolution, Resolution(9));
    assert_eq!(read(&out), [(1_001, 1)]);
}

#[test]
fn a_cache_says_who_sends_and_what_stays_as_it_is() {
    let folder = Folder::new("cache");
    let (input, out, cache) =
        (folder.path("in.pcap"), folder.path("out.pcap"), folder.path("cache"));
    write(&input, &[1, 2, 3]);
    let mut sides = Cache::new("");
    [Side::Secondary, Side::Skip, Side::Primary].into_iter().for_each(|side| sides.push(side));
    fs::write(&cache, sides.to_bytes()).unwrap();
    let edits = Edits { endpoints: Some("1.1.1.1:2.2.2.2".parse().unwrap()), ..Edits::default() };
    let settings = Settings { edits, cache: Some(cache), ..Settings::default() };
    run(std::slice::from_ref(&input), &out, &settings);
    let mut reader = CaptureReader::open(&out).unwrap();
    for src in [[2, 2, 2, 2], [10, 0, 0, 1], [1, 1, 1, 1]] {
        assert_eq!(reader.next().unwrap().unwrap().data[26..30], src);
    }
    write(&input, &[1, 2, 3, 4]);
    let out = folder.path("longer.pcap");
    let error = edit(&[input], &out, &settings, |_| true).unwrap_err().to_string();
    assert!(error.contains("packet 4: the cache belongs to a capture of 3 packets"), "{error}");
}

#[test]
fn stopping_keeps_all_packets_read() {
    let folder = Folder::new("stop");
    let (input, out) = (folder.path("in.pcap"), folder.path("out.pcap"));
    write(&input, &[3; 10_000]);
    let edited = edit(&[input], &out, &Settings::default(), |_| false).unwrap();
    assert!(edited.stopped && edited.packets_read < 10_000);
    assert_eq!(numbers(&out).len() as u64, edited.packets_read);
}

#[test]
fn nothing_after_the_last_wanted_packet_is_read() {
    let folder = Folder::new("slice");
    let (input, out) = (folder.path("in.pcap"), folder.path("out.pcap"));
    write(&input, &(0..100).collect::<Vec<_>>());
    let edits = Edits { packets: Some("2-3,5".parse().unwrap()), ..Edits::default() };
    let edited = run(&[input], &out, &Settings { edits, ..Settings::default() });
    assert_eq!(numbers(&out), [1, 2, 4]);
    assert_eq!((edited.packets_read, edited.packets_dropped), (5, 2));
}

#[test]
fn a_capture_without_packets_becomes_one() {
    let folder = Folder::new("none");
    let (input, out) = (folder.path("in.pcap"), folder.path("out.pcapng"));
    write(&input, &[]);
    assert_eq!(run(&[input], &out, &Settings::default()).packets_written, 0);
    assert_eq!(read(&out), []);
}

#[test]
fn errors_are_reported_before_a_file_is_made() {
    let folder = Folder::new("mistakes");
    let (input, out) = (folder.path("in.pcap"), folder.path("out.pcap"));
    write(&input, &[1]);
    let edits = Edits { seed: Some(1), anonymize: Some("x".parse().unwrap()), ..Edits::default() };
    let error = edit(&[input], &out, &Settings { edits, ..Settings::default() }, |_| true)
        .unwrap_err()
        .to_string();
    assert!(error.contains("--anonymize: cannot be combined with --seed"), "{error}");
    let error = edit(&[folder.path("not there")], &out, &Settings::default(), |_| true)
        .unwrap_err()
        .to_string();
    assert!(error.contains("cannot read"), "{error}");
    assert!(!out.exists());
}

/// A pcapng block of type 3: a length and the packet, without a timestamp.
fn simple_block(octets: &[u8]) -> Vec<u8> {
    let padded = octets.len().next_multiple_of(4);
    let len = (16 + padded as u32).to_le_bytes();
    let mut block = [&[3, 0, 0, 0], &len, &(octets.len() as u32).to_le_bytes(), octets].concat();
    block.resize(12 + padded, 0);
    [&block[..], &len].concat()
}

#[test]
fn a_packet_without_a_time_keeps_none_or_takes_that_of_the_packet_before() {
    let folder = Folder::new("simple");
    let input = folder.path("in.pcapng");
    let part = |numbers: &[u8]| {
        let mut writer = PcapngWriter::new(Vec::new(), vec![InterfaceFormat::default()]).unwrap();
        for &number in numbers {
            let octets = packet(number);
            writer.write(0, time(number), octets.len() as u32, &octets).unwrap();
        }
        writer.finish().unwrap()
    };
    let (head, before, after) = (part(&[]).len(), part(&[1]), part(&[3]));
    fs::write(&input, [&before[..], &simple_block(&packet(2)), &after[head..]].concat()).unwrap();

    let timed = |path: &Path| {
        let mut reader = CaptureReader::open(path).unwrap();
        let mut found = Vec::new();
        while let Some(packet) = reader.next().unwrap() {
            found.push((packet.time_ns, packet.timed, packet.data[35]));
        }
        found
    };
    let input = [input];
    let out = folder.path("out.pcapng");
    run(&input, &out, &Settings::default());
    let kept = [(time(1), true, 1), (time(1), false, 2), (time(3), true, 3)];
    assert_eq!(timed(&out), kept);
    // In a pcap, every packet has a timestamp, even if its octets are truncated.
    let taken = kept.map(|(time_ns, _, number)| (time_ns, true, number));
    run(&input, &folder.path("out.pcap"), &Settings::default());
    assert_eq!(timed(&folder.path("out.pcap")), taken);
    let edits = Edits { snaplen: Some(40), ..Edits::default() };
    run(&input, &out, &Settings { edits, ..Settings::default() });
    assert_eq!(timed(&out), taken);
    // A packet without a timestamp is selected if the previous packet is.
    let edits = Edits { to: Some(When::After(1)), ..Edits::default() };
    run(&input, &out, &Settings { edits, ..Settings::default() });
    assert_eq!(timed(&out), kept[..2]);
}

#[test]
fn an_output_that_failed_is_not_left() {
    let folder = Folder::new("failed");
    let input = folder.path("in.pcapng");
    let links = [1, 101].map(|link_type| InterfaceFormat {
        link_type: LinkType(link_type),
        ..InterfaceFormat::default()
    });
    let mut writer = PcapngWriter::create(&input, links.to_vec()).unwrap();
    for (interface, number) in [(0, 1), (0, 2), (1, 3)] {
        let octets = &packet(number)[if interface == 1 { 14 } else { 0 }..];
        writer.write(interface, time(number), octets.len() as u32, octets).unwrap();
    }
    writer.finish().unwrap();
    let inputs = [input];
    for split in [None, Some(Split::Count(1))] {
        let out = folder.path("out.pcap");
        let settings = Settings { split, ..Settings::default() };
        let result = edit(&inputs, &out, &settings, |_| true);
        match split {
            None => assert!(result.unwrap_err().to_string().contains("one link type")),
            // Each link type has a separate file.
            Some(_) => assert_eq!(result.unwrap().outputs.len(), 3),
        }
        assert!(!out.exists());
    }
    // Files of other kinds are not removed, nor is a file that the edit did not begin.
    let kept = folder.path("kept.pcap");
    write(&kept, &[1]);
    let edits = Edits { enet_mac_seed_keep_bytes: 9, ..Edits::default() };
    edit(&inputs, &kept, &Settings { edits, ..Settings::default() }, |_| true).unwrap_err();
    assert_eq!(numbers(&kept), [1]);
    edit(&inputs, Path::new("/dev/null"), &Settings::default(), |_| true).unwrap();
}
