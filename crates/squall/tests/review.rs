//! Rare cases: streams that are removed and added again, rate changes with several workers,
//! schedules that no machine can keep, gaps beyond the range of times.

mod calibration;

use std::{
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

use squall::{
    Format, Profile, Run, Session,
    report::{Report, StreamReport, flows::TemplateReport},
};

fn profile(address: &str, text: &str) -> Profile {
    let text = format!("ports = {{ A = \"{address}\" }}\n{text}");
    Profile::parse(&text, "review.toml", Format::Toml).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn stream(name: &str, rate: &str, more: &str) -> String {
    format!("[[stream]]\nname = \"{name}\"\nrate = \"{rate}\"\npacket = \"eth/ipv4/udp\"\n{more}\n")
}

fn start(profile: Profile) -> Run {
    Session::new(profile).open().unwrap_or_else(|e| panic!("{e}")).start().unwrap()
}

fn run(profile: Profile) -> Report {
    start(profile).finish().unwrap()
}

fn of<'a>(report: &'a Report, name: &str) -> &'a StreamReport {
    report.streams.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("there is no {name}"))
}

fn stop(run: Run) -> Report {
    run.stop();
    run.finish().unwrap()
}

#[test]
fn a_stream_that_was_removed_does_not_come_back() {
    let stays = stream("stays", "1 kpps", "mode = { burst = 300 }");
    let with = |more: &str| profile("null:", &(stays.clone() + more));
    let mut run = start(with(&stream("gone", "1 kpps", "")));
    sleep(Duration::from_millis(60));
    run.pause(Some("gone")).unwrap();
    run.change(with("")).unwrap();
    let (_, then) = run.sample();
    run.resume(None).unwrap();
    // The run does not wait until the stream is resumed either.
    let report = run.finish().unwrap();
    assert_eq!(of(&report, "stays").tx_packets, 300);
    assert_eq!(of(&report, "gone").tx_packets, of(&then, "gone").tx_packets);
}

#[test]
fn a_stream_that_starts_again_keeps_the_rate_it_was_changed_to() {
    let at =
        |rate: &str| profile("null:", &stream("one", rate, "mode = { burst = 5 }\nnext = \"one\""));
    let mut run = start(at("100 pps"));
    sleep(Duration::from_millis(60));
    let changed = Instant::now();
    run.change(at("10 kpps")).unwrap();
    let sent = |run: &mut Run| of(&run.sample().1, "one").tx_packets;
    while sent(&mut run) < 2000 {
        // At the initial rate, the stream would take 20 s.
        assert!(changed.elapsed() < Duration::from_secs(10), "{} frames", sent(&mut run));
        sleep(Duration::from_millis(20));
    }
    stop(run);
}

#[test]
fn workers_that_share_a_stream_keep_its_rate_when_it_becomes_one_in_bits() {
    let at = |rate: &str| {
        profile(
            "null:",
            &format!("duration = \"2 s\"\n{}", stream("one", rate, "size = [64, 192]")),
        )
    };
    let session = Session {
        options: squall::RunOptions { cores: Some(2), ..Default::default() },
        ..Session::new(at("20 kpps"))
    };
    let mut run = session.open().unwrap().start().unwrap();
    sleep(Duration::from_millis(60));
    // The mean is 128 octets, so there are as many frames as before.
    run.change(at("20.48 Mbps")).unwrap();
    // The number of frames that are due in this time does not depend on lateness. If a share was
    // not halved, or was halved twice, the number would differ by a quarter or more.
    let report = run.finish().unwrap();
    let one = of(&report, "one");
    let due = one.tx_packets + one.not_sent.values().sum::<u64>();
    assert!((39_600..=40_400).contains(&due), "{due} frames");
}

#[test]
fn streams_that_are_added_follow_each_other_as_their_profile_says() {
    let mut run = start(profile("null:", &stream("old", "1 kpps", "")));
    sleep(Duration::from_millis(40));
    let second = stream("second", "1 kpps", "mode = { burst = 20 }\nself_start = false");
    let first = stream(
        "first",
        "1 kpps",
        "mode = { burst = 10 }\nnext = { stream = \"second\", times = 1 }",
    );
    run.change(profile("null:", &(first + &second))).unwrap();
    let report = run.finish().unwrap();
    assert_eq!(["first", "second"].map(|name| of(&report, name).tx_packets), [10, 20]);
}

#[test]
fn a_stream_paused_before_it_began_waits_to_be_resumed() {
    let first = stream(
        "first",
        "50 pps",
        "mode = { burst = 50 }\nnext = { stream = \"second\", times = 1 }",
    );
    let second = stream("second", "1 kpps", "mode = { burst = 20 }\nself_start = false");
    let mut run = start(profile("null:", &(first + &second)));
    run.pause(Some("second")).unwrap();
    let begun = Instant::now();
    while of(&run.sample().1, "first").tx_packets < 50 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the first does not end");
        sleep(Duration::from_millis(5));
    }
    assert!(!run.wait(Duration::from_millis(200)));
    let (_, then) = run.sample();
    run.resume(Some("second")).unwrap();
    let report = run.finish().unwrap();
    assert_eq!(["first", "second"].map(|name| of(&then, name).tx_packets), [50, 0]);
    assert_eq!(["first", "second"].map(|name| of(&report, name).tx_packets), [50, 20]);
}

#[test]
fn a_stream_may_be_added_when_all_others_have_ended() {
    let file = std::env::temp_dir().join(format!("squall-review-{}.pcap", std::process::id()));
    let with = |more: &str| {
        profile(
            &format!("pcap:{}", file.display()),
            &(stream("one", "1 kpps", "mode = { burst = 10 }") + more),
        )
    };
    let mut run = start(with(""));
    assert!(run.wait(Duration::from_secs(60)));
    run.change(with(&stream("two", "1 kpps", "mode = { burst = 5 }"))).unwrap();
    let report = run.finish().unwrap();
    let octets = fs::metadata(&file).unwrap().len();
    fs::remove_file(&file).unwrap();
    assert!(report.verdict.valid, "{:?}", report.verdict);
    // A file header of 24 octets, and a record header of 16 octets for each frame of 60.
    assert_eq!((report.ports[0].tx.packets, octets), (15, 24 + 15 * 76));
}

#[test]
fn frames_that_took_another_queue_are_not_lost() {
    let text = String::from("duration = \"10 s\"\n") + &stream("one", "20 kpps", "latency = true");
    let session = Session {
        options: squall::RunOptions { cores: Some(2), ..Default::default() },
        ..Session::new(profile("loop:two-queues", &text))
    };
    let mut run = session.open().unwrap().start().unwrap();
    // The two queues are read one after the other. If a worker had no CPU at that time, the next
    // sample has its frames.
    let mut lost = Vec::new();
    while lost.last().is_none_or(|lost| *lost >= 500) {
        assert!(lost.len() < 40, "lost at each sample: {lost:?}");
        sleep(Duration::from_millis(200));
        let (sample, report) = run.sample();
        if report.streams[0].tx_packets > 3000 {
            lost.push(sample.streams[0].lost);
        }
    }
    stop(run);
}

#[test]
fn a_forgotten_run_sends_no_more() {
    // No other run in these tests has this number of workers.
    let session = Session {
        options: squall::RunOptions { cores: Some(6), ..Default::default() },
        ..Session::new(profile("null:", &stream("one", "1 kpps", "")))
    };
    let workers = || {
        let threads = fs::read_dir("/proc/self/task").unwrap();
        threads
            .filter(|t| {
                fs::read_to_string(t.as_ref().unwrap().path().join("comm"))
                    .is_ok_and(|c| c == "squall-5\n")
            })
            .count()
    };
    let run = session.open().unwrap().start().unwrap();
    let begun = Instant::now();
    while workers() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "a worker gives itself its name");
        sleep(Duration::from_millis(1));
    }
    drop(run);
    assert_eq!(workers(), 0);
}

#[test]
fn bursts_in_time_are_kept_at_any_rate() {
    let law = "departures = { on = \"1 ms\", off = \"19 ms\" }";
    let profile = profile(
        "loop:bursts-in-time",
        &(String::from("duration = \"300 ms\"\n") + &stream("one", "max", law)),
    );
    calibration::measure(|| {
        let report = run(profile.clone());
        let gaps = report.ports[0].rx.arrival_gap_ns.as_ref().unwrap();
        let silences: u64 =
            gaps.bins.iter().filter(|bin| bin.0 > 12_000_000).map(|bin| bin.2).sum();
        if (8..=15).contains(&silences) {
            Ok(())
        } else {
            Err(format!("{silences} silences in 15 periods"))
        }
    });
}

#[test]
fn a_schedule_that_had_to_be_stretched_is_not_kept() {
    // Bounded by a number, because a loaded machine may leave the worker no CPU for any short time.
    let text =
        String::from("packets = 2_000_000\n") + &stream("one", "10 Gpps", "late = \"stretch\"");
    let report = run(profile("null:", &text));
    assert!(
        report.verdict.reasons.iter().any(|r| r.text.contains("stretched")),
        "{:?}",
        report.verdict
    );
}

#[test]
fn frames_dropped_for_being_late_are_counted_with_the_port_and_cost_no_time() {
    let text =
        String::from("duration = \"200 ms\"\n") + &stream("one", "10 Gpps", "late = \"drop\"");
    calibration::measure(|| {
        let begun = Instant::now();
        let report = run(profile("null:", &text));
        let took = begun.elapsed();
        let (port, stream) = (&report.ports[0].tx, &report.streams[0]);
        assert_eq!(stream.not_sent, port.not_sent.clone().into());
        assert_eq!(stream.tx_packets + stream.not_sent["late"], 2_000_000_000);
        let most = calibration::time_to_count(2_000_000_000);
        if took < most { Ok(()) } else { Err(format!("{took:?}, counting takes {most:?}")) }
    });
}

#[test]
fn a_gap_of_a_year_is_no_gap_of_nothing() {
    let mode = "mode = { bursts = 3, packets = 2, gap = \"9000 h\" }";
    let report = run(profile("null:virtual", &stream("one", "1 kpps", mode)));
    assert_eq!(report.streams[0].tx_packets, 2);
}

#[test]
fn a_multiplied_bit_rate_of_mixed_sizes_is_that_rate() {
    let text = String::from("packets = 12000\n") + &stream("one", "3 Mbps", "size = [64, 9000]");
    let multiplier = Some("123.456789012345 Mbps".parse().unwrap());
    let session = Session {
        options: squall::RunOptions { mult: multiplier, ..Default::default() },
        ..Session::new(profile("null:virtual", &text))
    };
    let report = session.open().unwrap().start().unwrap().finish().unwrap();
    let bps = report.ports[0].tx.bps_l2;
    assert!((bps / 123.456789012345e6 - 1.0).abs() < 1e-3, "{bps}");
}

/// Every combination of profile keys either passes plan, preview and run, or is refused.
#[test]
fn no_profile_makes_a_panic() {
    let packets = [
        "eth",
        "eth/ipv4/udp",
        "eth/vlan/ipv6/tcp",
        "eth/ipv4/gre/ipv4/icmp",
        "eth/ipv4/udp/vxlan/eth/ipv6/udp",
        "eth/mpls/ipv4/tcp/payload(text=\"abc\")",
        "eth/arp",
    ];
    let sizes = [
        "",
        "size = 64",
        "size = \"64-66\"",
        "size = \"imix\"",
        "size = { normal = { mean = 70, sd = 0 } }",
        "size = 65535",
    ];
    let rates = [
        "1 upps",
        "0.000001 pps",
        "1 bps",
        "0.1 bps l1",
        "33.333333333 Mbps",
        "1e18 pps",
        "10 Tbps",
        "max",
    ];
    let mores = [
        "",
        "latency = true",
        "mode = { burst = 1 }",
        "mode = { bursts = 18446744073709551615, packets = 1, gap = \"500 h\" }",
        "mode = { bursts = 2, packets = 18446744073709551615 }",
        "departures = { on = \"1 ns\", off = \"160000 h\" }",
        "departures = { pareto = 1.000001 }",
        "departures = { weibull = 0.11 }\nlate = \"drop\"",
        "start_delay = \"5000000 h\"",
        "mode = { burst = 2 }\nnext = \"one\"\nstart_delay = \"1000 h\"",
        "latency = true\nlate = \"stretch\"\ndepartures = \"poisson\"",
    ];
    let (mut asked, mut ran) = (0, 0);
    let mut one = |packet: &str, more: &str, rate: &str| {
        // Test a fixed sample of all combinations.
        asked += 1;
        if asked % 5 != 0 {
            return;
        }
        let text = format!(
            "packets = 70\nports = {{ A = \"null:virtual\" }}\n{}",
            stream("one", rate, more)
        )
        .replace("eth/ipv4/udp", packet.replace('"', "\\\"").as_str());
        let Ok(profile) = Profile::parse(&text, "review.toml", Format::Toml) else { return };
        let Ok(opened) = Session::new(profile).open() else { return };
        squall_plan::explain::preview(opened.plan(), 40);
        let report = opened.start().unwrap().finish().unwrap();
        assert!(report.ports[0].tx.packets <= 70, "{text}");
        ran += 1;
    };
    for packet in packets {
        for cut in 0..70 {
            one(&format!("{packet}/truncate({cut})"), "", "1 kpps");
            one(&format!("{packet}/truncate({cut})"), "latency = true\nsize = \"64-66\"", "1 kpps");
        }
        for size in sizes {
            for more in mores {
                for rate in rates {
                    one(packet, &format!("{size}\n{more}"), rate);
                }
            }
        }
    }
    assert!(ran > 300, "{ran}");
}

/// A load of templates, each given as name, port and further keys.
fn load(templates: &[(&str, u16, &str)]) -> Profile {
    let mut text =
        "[ports]\nA = \"loop:join\"\nB = \"loop:join\"\n[flows]\ndrain = \"2 s\"\n".to_owned();
    for (name, port, more) in templates {
        text += &format!(
            "[[template]]\nname = \"{name}\"\nlisten = {port}\n{more}\n\
             clients = \"16.0.0.1-16.0.0.50\"\nservers = \"48.0.0.1\"\n\
             client = ['send \"ping\"', \"recv 4\"]\nserver = [\"recv 4\", 'send \"pong\"']\n"
        );
    }
    Profile::parse(&text, "load.toml", Format::Toml).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn templates_join_a_load_and_leave_it() {
    let web = ("web", 80, "cps = 500\nduration = \"300 ms\"");
    let mut run = start(load(&[web]));
    sleep(Duration::from_millis(100));
    let same_port = run.change(load(&[web, ("more", 80, "cps = 10")])).map_err(|e| e.to_string());
    assert!(same_port.is_err_and(|text| text.contains("port 80")));
    run.change(load(&[web, ("more", 81, "cps = 200\nlimit = 40")])).unwrap();
    // Wait until all flows have ended, then begin others.
    while !run.wait(Duration::from_millis(100)) {}
    // Slow enough that a busy machine looks before they have all ended.
    run.change(load(&[("last", 81, "cps = 50\nlimit = 25")])).unwrap();
    assert!(!run.wait(Duration::ZERO));
    let report = run.finish().unwrap();
    assert_eq!(completed(&report), [("web", 150), ("more", 40), ("last", 25)]);
}

/// The number of flows of each template, including those that a busy machine would have begun too
/// late. Asserts that both ends agree and that nothing failed.
fn completed(report: &Report) -> Vec<(&str, u64)> {
    let flows = report.flows.as_ref().expect("flows were played");
    let of = |template: &TemplateReport| {
        let both = (template.roles.client.as_ref(), template.roles.server.as_ref());
        let (Some(client), Some(server)) = both else { panic!("{}: no flows", template.name) };
        assert_eq!(client.completed, server.completed, "{}", template.name);
        let late = client.not_begun.get("late").copied().unwrap_or(0);
        assert!(client.failed.is_empty(), "{client:?}");
        assert_eq!(client.not_begun.values().sum::<u64>(), late, "{client:?}");
        client.completed + late
    };
    flows.templates.iter().map(|template| (template.name.as_str(), of(template))).collect()
}
