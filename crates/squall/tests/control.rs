//! A run under way is changed: nothing restarts, nothing is lost. In real time on a loop, so bounds on time are generous;
//! bounds on frames are exact.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use squall::{Format, Profile, Run, Session, report::StreamReport};

fn profile(link: &str, streams: &str) -> Profile {
    let text = format!("[ports]\nA = \"loop:{link}\"\nB = \"loop:{link}\"\n{streams}");
    Profile::parse(&text, "control.toml", Format::Toml).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn stream(name: &str, rate: &str, more: &str) -> String {
    format!(
        "[[stream]]\nname = \"{name}\"\nport = \"A\"\npacket = \"eth/ipv4/udp\"\nsize = 100\nrate = \"{rate}\"\n\
         latency = true\n{more}\n"
    )
}

fn start(profile: Profile) -> Run {
    Session::new(profile).open().unwrap_or_else(|e| panic!("{e}")).start().unwrap()
}

fn sent(run: &mut Run, name: &str) -> u64 {
    let (_, report) = run.sample();
    report.streams.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("there is no {name}")).tx_packets
}

/// Waits until `name` has sent more than `than`.
fn wait_for_more(run: &mut Run, name: &str, than: u64) -> u64 {
    let begun = Instant::now();
    loop {
        let now = sent(run, name);
        if now > than {
            return now;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{name} stays at {now}");
        sleep(Duration::from_millis(5));
    }
}

/// Each frame once, in order, from the first to the last.
fn complete(stream: &StreamReport) {
    let rx = stream.rx.as_ref().unwrap_or_else(|| panic!("{} was not seen", stream.name));
    let found = (rx.packets, rx.lost, rx.duplicates, rx.reordered);
    assert_eq!(found, (stream.tx_packets, 0, 0, 0), "{}", stream.name);
}

#[test]
fn a_pause_loses_nothing_and_ends_where_it_began() {
    let mut run = start(profile("pause", &stream("one", "10 kpps", "mode = { burst = 3000 }")));
    wait_for_more(&mut run, "one", 500);
    run.pause(None).unwrap();
    sleep(Duration::from_millis(20));
    let before = sent(&mut run, "one");
    sleep(Duration::from_millis(150));
    assert_eq!(sent(&mut run, "one"), before, "paused");
    assert!(before < 3000);
    run.resume(None).unwrap();
    let report = run.finish().unwrap();
    assert_eq!(report.streams[0].tx_packets, 3000);
    complete(&report.streams[0]);
    // 300 ms of frames and the pause: what was due meanwhile was not sent in one go.
    assert!(report.duration_s > 0.45, "{}", report.duration_s);
    let late = report.streams[0].not_sent.values().sum::<u64>();
    assert_eq!(late, 0);
}

#[test]
fn pausing_one_stream_leaves_the_other_alone() {
    let streams = stream("one", "5 kpps", "") + &stream("two", "5 kpps", "");
    let mut run = start(profile("pause-one", &streams));
    wait_for_more(&mut run, "one", 200);
    run.pause(Some("one")).unwrap();
    sleep(Duration::from_millis(20));
    let (one, two) = (sent(&mut run, "one"), sent(&mut run, "two"));
    wait_for_more(&mut run, "two", two + 500);
    assert_eq!(sent(&mut run, "one"), one);
    // Twice is once.
    run.pause(Some("one")).unwrap();
    run.resume(Some("one")).unwrap();
    run.resume(Some("one")).unwrap();
    wait_for_more(&mut run, "one", one + 100);
    run.stop();
    let report = run.finish().unwrap();
    report.streams.iter().for_each(complete);
}

#[test]
fn an_unknown_stream_is_an_error_that_names_it() {
    let run = start(profile("unknown", &stream("web", "1 kpps", "")));
    let error = run.pause(Some("wbe")).unwrap_err().to_string();
    assert!(error.contains("\"wbe\"") && error.contains("did you mean \"web\"?"), "{error}");
    run.stop();
    run.finish().unwrap();
}

#[test]
fn a_rate_changes_without_a_break_in_the_sequence() {
    let of = |rate| profile("rate", &stream("one", rate, ""));
    let mut run = start(of("1 kpps"));
    wait_for_more(&mut run, "one", 100);
    run.change(of("20 kpps")).unwrap();
    let (begun, from) = (Instant::now(), sent(&mut run, "one"));
    sleep(Duration::from_millis(500));
    let (took, frames) = (begun.elapsed().as_secs_f64(), sent(&mut run, "one") - from);
    let pps = frames as f64 / took;
    assert!((14_000.0..26_000.0).contains(&pps), "{pps} pps");
    run.change(of("100 pps")).unwrap();
    sleep(Duration::from_millis(50));
    let from = sent(&mut run, "one");
    sleep(Duration::from_millis(400));
    let frames = sent(&mut run, "one") - from;
    assert!((20..=80).contains(&frames), "{frames} frames in 400 ms at 100 pps");
    run.stop();
    let report = run.finish().unwrap();
    complete(&report.streams[0]);
}

#[test]
fn streams_come_and_go_while_another_runs_untouched() {
    let untouched = stream("untouched", "10 kpps", "mode = { burst = 8000 }");
    let with = |more: &str| profile("come-and-go", &(untouched.clone() + more));
    let mut run = start(with(&stream("leaves", "2 kpps", "")));
    wait_for_more(&mut run, "leaves", 100);
    run.change(with(&(stream("comes", "3 kpps", "mode = { burst = 600 }") + &stream("stays", "1 kpps", "")))).unwrap();
    sleep(Duration::from_millis(20));
    let gone = sent(&mut run, "leaves");
    wait_for_more(&mut run, "comes", 599);
    assert_eq!(sent(&mut run, "leaves"), gone);
    run.change(with("")).unwrap();
    let report = run.finish().unwrap();
    let of =
        |name: &str| report.streams.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("{name} is forgotten"));
    assert_eq!((of("untouched").tx_packets, of("comes").tx_packets), (8000, 600));
    assert!(of("stays").tx_packets > 0);
    report.streams.iter().for_each(complete);
    assert_eq!(report.ports[0].tx.packets, report.ports[1].rx.packets);
    assert_eq!(report.ports[0].tx.packets, report.streams.iter().map(|s| s.tx_packets).sum::<u64>());
}

#[test]
fn a_change_that_is_refused_changes_nothing() {
    let mut run = start(profile("refused", &stream("one", "5 kpps", "")));
    wait_for_more(&mut run, "one", 50);
    let other_port = profile("elsewhere", &stream("one", "5 kpps", ""));
    let longer = profile("refused", &stream("one", "5 kpps", "").replace("size = 100", "size = 1518"));
    for refused in [other_port, longer] {
        assert!(run.change(refused).is_err());
    }
    let now = sent(&mut run, "one");
    wait_for_more(&mut run, "one", now + 50);
    run.stop();
    complete(&run.finish().unwrap().streams[0]);
}

#[test]
fn the_end_of_a_run_moves_with_its_profile() {
    let of = |stop: &str| {
        let mut profile = profile("end", &stream("one", "10 kpps", ""));
        let text = format!("{stop}\nports = {{ A = \"null:\" }}\n[[stream]]\npacket = \"eth/ipv4/udp\"\nrate = 1\n");
        profile.stop = Profile::parse(&text, "stop.toml", Format::Toml).unwrap().stop;
        profile
    };
    let mut run = start(of("duration = \"1 h\""));
    wait_for_more(&mut run, "one", 100);
    run.change(of("packets = 3000")).unwrap();
    let report = run.finish().unwrap();
    assert_eq!(report.streams[0].tx_packets, 3000);
    complete(&report.streams[0]);

    let mut run = start(of("packets = 1_000_000"));
    wait_for_more(&mut run, "one", 100);
    run.change(of("duration = \"300 ms\"")).unwrap();
    let stream = &run.finish().unwrap().streams[0];
    assert_eq!(stream.tx_packets + stream.not_sent.values().sum::<u64>(), 3000);
}

#[test]
fn the_total_of_several_workers_stays() {
    let of = |count: u64| {
        let mut profile = profile("total", &stream("one", "1 kpps", ""));
        profile.stop.packets = Some(count);
        profile
    };
    let mut run = Session { cores: Some(2), ..Session::new(of(1_000_000)) }.open().unwrap().start().unwrap();
    let error = run.change(of(1000)).unwrap_err().to_string();
    assert!(error.contains("2 workers") && error.contains("try"), "{error}");
    run.stop();
    run.finish().unwrap();
}
