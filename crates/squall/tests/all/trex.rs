//! Streams that have TRex's header or mark instead of a signature.

use squall::{
    Format, Profile, Session,
    report::{KnownBy, Report, StreamRx},
};

fn run(link: &str, streams: &str) -> Result<Report, squall::Error> {
    let text = text(link, streams);
    let profile = Profile::parse(&text, "trex.toml", Format::Toml)?;
    Session::new(profile).open()?.start()?.finish()
}

fn text(link: &str, streams: &str) -> String {
    format!("duration = \"1 s\"\n[ports]\nA = \"{link}\"\nB = \"{link}\"\n{streams}")
}

fn stream(name: &str, port: &str, more: &str) -> String {
    format!(
        "[[stream]]\nname = \"{name}\"\nport = \"{port}\"\npacket = \"eth/ipv4/udp\"\n\
         rate = \"1 kpps\"\nlatency = true\n{more}\n"
    )
}

#[test]
fn receivers_measure_what_a_lossy_link_does_to_them() {
    let streams = stream("trex", "A", "trex_hw_id = 5")
        + &stream("back", "B", "trex_hw_id = 127\ntrex_flow_seq = 9")
        + &stream("squall", "A", "");
    let report =
        run("loop:trex,virtual,lose=gilbert:0.01:0.25", &streams).unwrap_or_else(|e| panic!("{e}"));
    for stream in &report.streams {
        let rx = stream.rx.as_ref().expect("measured");
        let name = &stream.name;
        assert_eq!(stream.tx_packets, 1000, "{name}");
        assert!(rx.lost > 0 && rx.packets + rx.lost == 1000, "{name}: {rx:?}");
        assert_eq!((rx.duplicates, rx.reordered), (0, 0), "{name}");
        assert!(rx.latency_ns.is_some(), "{name}");
    }
    assert!(report.ports.iter().all(|port| port.rx.unsigned_packets == 0));
}

#[test]
fn the_padding_of_a_short_packet_has_room_for_a_signature() {
    // An IPv4 header without payload, and 26 octets of padding.
    let packet = "ffffffffffff 020000000001 0800 45000014000100004000 66e7 0a000001 0a000002";
    let padded = |name: &str, more: &str| {
        let hex = format!("{packet}{}", "00".repeat(26));
        stream(name, "A", more).replace("packet = \"eth/ipv4/udp\"", &format!("hex = \"{hex}\""))
    };
    let streams = padded("trex", "trex_hw_id = 5") + &padded("squall", "");
    let report = run("loop:trex-padding,virtual", &streams).unwrap_or_else(|e| panic!("{e}"));
    for stream in &report.streams {
        let rx = stream.rx.as_ref().expect("measured");
        assert_eq!((rx.packets, rx.octets, rx.lost), (1000, 64_000, 0), "{}", stream.name);
        assert!(rx.latency_ns.is_some(), "{}", stream.name);
    }
    let short = padded("short", "").replace("45000014", "45000020");
    let error = run("loop:trex-padding,virtual", &short).unwrap_err().to_string();
    assert!(error.contains("has 14"), "{error}");
}

#[test]
fn an_hw_id_that_is_used_twice_or_too_large_is_refused() {
    let wrong = |streams: String| run("loop:trex-twice,virtual", &streams).unwrap_err().to_string();
    let twice = stream("one", "A", "trex_hw_id = 5") + &stream("two", "B", "trex_hw_id = 5");
    let text = wrong(twice);
    assert!(text.contains("trex_hw_id = 5 is that of stream \"one\""), "{text}");
    let text = wrong(stream("one", "A", "trex_hw_id = 128"));
    assert!(text.contains("expected 0 to 127"), "{text}");
    let text = wrong(stream("one", "A", "trex_flow_seq = 2"));
    assert!(text.contains("try trex_hw_id"), "{text}");
    let text = wrong(stream("one", "A", "trex_hw_id = 1").replace("latency = true", ""));
    assert!(text.contains("needs latency = true"), "{text}");
}

/// A stream with 1,000 frames/s of 64 octets, including the FCS.
fn marked(name: &str, port: &str, packet: &str, more: &str) -> String {
    format!(
        "[[stream]]\nname = \"{name}\"\nport = \"{port}\"\npacket = \"{packet}\"\n\
         rate = \"1 kpps\"\n{more}\n"
    )
}

fn received<'a>(report: &'a Report, name: &str) -> &'a StreamRx {
    let stream = report.streams.iter().find(|s| s.name == name).expect("a stream of that name");
    stream.rx.as_ref().expect("counted")
}

#[test]
fn frames_without_room_for_a_signature_are_counted_by_their_mark() {
    let size = "size = 64\ntrex_group";
    let streams = marked("tcp", "A", "eth/ipv4/tcp", &format!("{size} = 0"))
        + &marked("tagged", "A", "eth/vlan/vlan/ipv4/tcp", "trex_group = 300")
        + &marked("v6", "A", "eth/ipv6/tcp", "trex_group = 1022")
        + &marked("back", "B", "eth/ipv4/tcp", &format!("{size} = 1"))
        + &marked("nobody's", "B", "eth/ipv4(id=0xff00)/tcp", "size = 64")
        + &stream("signed", "A", "");
    let link = "loop:trex-marks,virtual,lose=gilbert:0.01:0.25";
    let report = run(link, &streams).unwrap_or_else(|e| panic!("{e}"));
    for name in ["tcp", "tagged", "v6", "back"] {
        let rx = received(&report, name);
        assert_eq!(rx.known_by, KnownBy::Mark, "{name}");
        assert!(rx.lost > 0 && rx.packets + rx.lost == 1000, "{name}: {rx:?}");
        assert_eq!(rx.loss_ratio, rx.lost as f64 / 1000.0, "{name}");
        assert_eq!((rx.duplicates, rx.reordered), (0, 0), "{name}");
        let delays = [&rx.latency_ns, &rx.ipdv_ns, &rx.arrival_gap_ns];
        assert!(delays.iter().all(|delay| delay.is_none()), "{name}");
    }
    let tcp = received(&report, "tcp");
    assert_eq!((tcp.octets, &tcp.ports[..]), (64 * tcp.packets, &["B".to_owned()][..]));
    assert_eq!(received(&report, "signed").known_by, KnownBy::Signature);
    let nobodys = report.streams.iter().find(|s| s.name == "nobody's").expect("sent");
    assert!(nobodys.rx.is_none());
    let at = |port: usize| report.ports[port].rx.unsigned_packets;
    // The frames of B do not have the mark's bit in the type of service.
    assert!((900..1000).contains(&at(0)) && at(1) == 0, "{} {}", at(0), at(1));
    let note = report.notes.iter().find(|note| note.contains("have a mark")).expect("a note");
    assert!(note.starts_with("stream \"tcp\" and 3 more: its frames"), "{note}");
    assert!(report.verdict.valid, "{:?}", report.verdict);
}

#[test]
fn a_mark_that_cannot_be_is_refused_with_the_reason() {
    let wrong = |more: &str| {
        let streams = marked("one", "A", "eth/ipv4/tcp", more);
        run("loop:trex-no-mark,virtual", &streams).unwrap_err().to_string()
    };
    let vary = |field: &str| {
        format!("trex_group = 1\nvary = [{{ field = \"{field}\", op = \"random\", max = 1 }}]")
    };
    for (more, why) in [
        ("trex_group = 1023", "expected 0 to 1022"),
        ("trex_group = 1\nlatency = true", "try latency = false"),
        ("trex_group = 1\nsegment = 100\nsize = 1000", "try without segment"),
        (&vary("ipv4.id"), "writes over the mark"),
        (&vary("ipv4.tos"), "writes over the mark"),
    ] {
        let text = wrong(more);
        assert!(text.contains(why), "{more}: {text}");
    }
    let twice = marked("one", "A", "eth/ipv4/tcp", "trex_group = 5")
        + &marked("two", "B", "eth/ipv6/tcp", "trex_group = 5");
    let text = run("loop:trex-no-mark,virtual", &twice).unwrap_err().to_string();
    assert!(text.contains("trex_group = 5 is that of stream \"one\""), "{text}");
    let arp = marked("one", "A", "eth/arp", "trex_group = 5");
    let text = run("loop:trex-no-mark,virtual", &arp).unwrap_err().to_string();
    assert!(text.contains("no IP header"), "{text}");
}

#[test]
fn streams_that_are_added_and_removed_while_running_are_counted_by_their_marks() {
    let burst = "size = 64\nmode = { burst = 200 }\ntrex_group";
    let keeps = marked("keeps", "A", "eth/ipv4/tcp", "size = 64\ntrex_group = 0")
        + &marked("back", "B", "eth/ipv4/tcp", "size = 64\ntrex_group = 2");
    let first = marked("first", "A", "eth/ipv4/tcp", &format!("{burst} = 1"));
    let second = marked("second", "B", "eth/ipv4/tcp", &format!("{burst} = 1"));
    let link = "loop:trex-marks-live";
    let parsed = |streams: &str| {
        // Stopped below: a busy machine takes longer.
        let text = text(link, streams).replace("duration = \"1 s\"", "duration = \"100 s\"");
        Profile::parse(&text, "trex.toml", Format::Toml).expect("sound")
    };
    let mut run = Session::new(parsed(&(keeps.clone() + &first))).open().unwrap().start().unwrap();
    let wait = |run: &mut squall::Run, name: &str| {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            let totals = run.totals();
            let of = totals.streams.iter().find(|s| s.name == name).expect("a stream");
            let came: u64 = of.rx.iter().map(|(_, seen)| seen.packets).sum();
            if came == 200 || std::time::Instant::now() > until {
                return (came, of.rx.iter().map(|(_, seen)| seen.unique).sum::<u64>());
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    assert_eq!(wait(&mut run, "first"), (200, 200));
    // The mark of the removed stream can be used by another stream.
    run.change(parsed(&(keeps + &second))).expect("it can change");
    assert_eq!(wait(&mut run, "second"), (200, 200));
    run.stop();
    let report = run.finish().expect("a report");
    for name in ["first", "second"] {
        let rx = received(&report, name);
        assert_eq!((rx.packets, rx.lost, rx.duplicates), (200, 0, 0), "{name}");
    }
    assert_eq!(received(&report, "first").ports, ["B"]);
    assert_eq!(received(&report, "second").ports, ["A"]);
    let kept = report.streams.iter().find(|s| s.name == "keeps").expect("kept");
    assert_eq!(kept.rx.as_ref().map(|rx| rx.packets), Some(kept.tx_packets));
}
