//! Streams with TRex's header in the place of a signature.

use squall::{Format, Profile, Session, report::Report};

fn run(link: &str, streams: &str) -> Result<Report, squall::Error> {
    let text = format!("duration = \"1 s\"\n[ports]\nA = \"{link}\"\nB = \"{link}\"\n{streams}");
    let profile = Profile::parse(&text, "trex.toml", Format::Toml)?;
    Session::new(profile).open()?.start()?.finish()
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
