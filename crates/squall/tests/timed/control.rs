//! Changes to a run in progress: nothing restarts, and nothing is lost. On real time over a loop,
//! so bounds on times are generous, while bounds on frames are exact.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use squall::{
    Amount, Format, Profile, Run, Session,
    report::{EndedBy, StreamReport, flows::RoleReport},
};

fn profile(link: &str, streams: &str) -> Profile {
    let text = format!("[ports]\nA = \"loop:{link}\"\nB = \"loop:{link}\"\n{streams}");
    Profile::parse(&text, "control.toml", Format::Toml).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn stream(name: &str, rate: &str, more: &str) -> String {
    format!(
        "[[stream]]\nname = \"{name}\"\nport = \"A\"\npacket = \"eth/ipv4/udp\"\nsize = 100\nrate \
         = \"{rate}\"\nlatency = true\n{more}\n"
    )
}

fn start(profile: Profile) -> Run {
    Session::new(profile).open().unwrap_or_else(|e| panic!("{e}")).start().unwrap()
}

fn sent(run: &mut Run, name: &str) -> u64 {
    let (_, report) = run.sample();
    report
        .streams
        .iter()
        .find(|s| s.name == name)
        .unwrap_or_else(|| panic!("there is no {name}"))
        .tx_packets
}

/// Waits until stream `name` has sent more than `than` frames.
fn wait_for_more(run: &mut Run, name: &str, than: u64) -> u64 {
    let begun = Instant::now();
    loop {
        let now = sent(run, name);
        if now > than {
            return now;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{name} stays at {now}");
        sleep(Duration::from_millis(5));
    }
}

/// Waits until stream "one" is sent at a rate in `expected`, in frames/s. Measures again if the
/// machine was busy.
fn wait_for_rate(run: &mut Run, expected: std::ops::Range<f64>) {
    let mut measured = Vec::new();
    while !measured.last().is_some_and(|pps| expected.contains(pps)) {
        assert!(measured.len() < 40, "{measured:?} pps, expected {expected:?}");
        let (begun, from) = (Instant::now(), sent(run, "one"));
        sleep(Duration::from_millis(400));
        let frames = sent(run, "one") - from;
        measured.push(frames as f64 / begun.elapsed().as_secs_f64());
    }
}

/// Asserts that each frame has arrived once and in order, from the first to the last.
fn complete(stream: &StreamReport) {
    let rx = stream.rx.as_ref().unwrap_or_else(|| panic!("{} was not seen", stream.name));
    let found = (rx.packets, rx.lost, rx.duplicates, rx.reordered);
    assert_eq!(found, (stream.tx_packets, 0, 0, 0), "{}", stream.name);
}

#[test]
fn a_pause_loses_nothing_and_ends_where_it_began() {
    let mut run = start(profile("pause", &stream("one", "2 kpps", "mode = { burst = 3000 }")));
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
    // 1.5 s of frames plus the pause: frames due during the pause did not leave in a burst.
    assert!(report.duration_s > 1.65, "{}", report.duration_s);
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
    // A second pause or resume has no effect.
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
    wait_for_rate(&mut run, 14_000.0..26_000.0);
    run.change(of("100 pps")).unwrap();
    wait_for_rate(&mut run, 50.0..200.0);
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
    run.change(with(
        &(stream("comes", "3 kpps", "mode = { burst = 600 }") + &stream("stays", "1 kpps", "")),
    ))
    .unwrap();
    sleep(Duration::from_millis(20));
    let gone = sent(&mut run, "leaves");
    wait_for_more(&mut run, "comes", 599);
    assert_eq!(sent(&mut run, "leaves"), gone);
    run.change(with("")).unwrap();
    let report = run.finish().unwrap();
    let of = |name: &str| {
        report
            .streams
            .iter()
            .find(|s| s.name == name)
            .unwrap_or_else(|| panic!("{name} is forgotten"))
    };
    assert_eq!((of("untouched").tx_packets, of("comes").tx_packets), (8000, 600));
    assert!(of("stays").tx_packets > 0);
    report.streams.iter().for_each(complete);
    assert_eq!(report.ports[0].tx.packets, report.ports[1].rx.packets);
    assert_eq!(
        report.ports[0].tx.packets,
        report.streams.iter().map(|s| s.tx_packets).sum::<u64>()
    );
}

#[test]
fn a_change_that_is_refused_changes_nothing() {
    let mut run = start(profile("refused", &stream("one", "5 kpps", "")));
    wait_for_more(&mut run, "one", 50);
    let other_port = profile("elsewhere", &stream("one", "5 kpps", ""));
    let longer =
        profile("refused", &stream("one", "5 kpps", "").replace("size = 100", "size = 1518"));
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
        let text = format!(
            "{stop}\nports = {{ A = \"null:\" }}\n[[stream]]\npacket = \"eth/ipv4/udp\"\nrate = \
             1\n"
        );
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
    let mut run = Session {
        options: squall::RunOptions { cores: Some(2), ..Default::default() },
        ..Session::new(of(1_000_000))
    }
    .open()
    .unwrap()
    .start()
    .unwrap();
    let error = run.change(of(1000)).unwrap_err().to_string();
    assert!(error.contains("2 workers") && error.contains("try"), "{error}");
    run.stop();
    run.finish().unwrap();
}

/// Flows between the two ends of a loop; `shared` is added to `[flows]`, `arrival` to the template.
fn flows(link: &str, shared: &str, arrival: &str, more: &str) -> Profile {
    flows_that_wait("0 ms", link, shared, arrival, more)
}

/// Like [`flows`], with clients that wait for `time` before they close.
fn flows_that_wait(time: &str, link: &str, shared: &str, arrival: &str, more: &str) -> Profile {
    let text = format!(
        "[ports]\nC = \"loop:{link}\"\nS = \"loop:{link}\"\nA = \"loop:{link}-streams\"\nB = \
         \"loop:{link}-streams\"\n[flows]\nclients = \"C\"\nservers = \"S\"\nmax_delay = \"60 \
         s\"\n{shared}\n[[template]]\nname = \"web\"\nclients = \"16.0.0.0/16\"\nservers = \
         \"48.0.0.1\"\nlisten = 80\nclient = ['send \"ping\"', 'recv 4', 'delay {time}', \
         'close']\nserver = ['recv 4', 'send \"pong\"', 'wait_peer_close']\n{arrival}\n{more}\n"
    );
    Profile::parse(&text, "control.toml", Format::Toml).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn clients(run: &mut Run) -> RoleReport {
    run.sample().1.flows.and_then(|load| load.total.client).unwrap_or_default()
}

/// Waits until more than `than` flows have begun.
fn wait_for_flows(run: &mut Run, than: u64) -> u64 {
    let begun = Instant::now();
    loop {
        let now = clients(run).attempted;
        if now > than {
            return now;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{now} flows have begun");
        sleep(Duration::from_millis(5));
    }
}

/// Asserts that every flow that began has been completed.
fn all_completed(run: Run) -> RoleReport {
    run.stop();
    let client =
        run.finish().unwrap().flows.and_then(|load| load.total.client).expect("flows have begun");
    assert_eq!(
        (client.completed, client.failures(), client.active),
        (client.attempted, 0, 0),
        "{client:?}"
    );
    client
}

#[test]
fn the_rate_of_a_load_changes_while_it_runs() {
    let mut run = start(flows("load-rate", "", "cps = 0.01", ""));
    wait_for_flows(&mut run, 0);
    // At the old rate, the second flow would be due in a hundred seconds.
    run.set_load(Some("web"), Amount::Cps(1000.0)).unwrap();
    wait_for_flows(&mut run, 300);
    assert_eq!(clients(&mut run).asked_cps, Some(1000.0));
    run.multiply("2x".parse().unwrap()).unwrap();
    let now = clients(&mut run);
    assert_eq!(now.asked_cps, Some(2000.0));
    wait_for_flows(&mut run, now.attempted + 300);
    run.change(flows("load-rate", "", "cps = 50", "")).unwrap();
    assert_eq!(clients(&mut run).asked_cps, Some(100.0), "the factor stays");
    all_completed(run);
}

#[test]
fn a_paused_load_lets_open_flows_end_and_goes_on() {
    // The pauses cover 400 flows or more. A preempted machine misses some flows as well, so try
    // several times.
    let missed: Vec<u64> =
        std::iter::repeat_with(pauses).take(5).take_while(|missed| *missed >= 200).collect();
    assert!(missed.len() < 5, "what was due meanwhile is not late: {missed:?}");
}

/// Pauses and resumes a load twice. Returns the number of flows that did not begin.
fn pauses() -> u64 {
    let mut run = start(flows("load-pause", "", "cps = 1000", ""));
    wait_for_flows(&mut run, 200);
    for name in [Some("web"), None] {
        run.pause(name).unwrap();
        let begun = Instant::now();
        let paused = loop {
            let paused = clients(&mut run);
            if (paused.active, paused.completed) == (0, paused.attempted) {
                break paused;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "flows stay open: {paused:?}");
            sleep(Duration::from_millis(20));
        };
        sleep(Duration::from_millis(100));
        assert_eq!(clients(&mut run).attempted, paused.attempted);
        run.resume(name).unwrap();
        wait_for_flows(&mut run, paused.attempted + 200);
    }
    all_completed(run).missed()
}

#[test]
fn targets_and_users_change_while_a_load_runs() {
    let mut run = start(flows_that_wait("20 ms", "load-active", "active = 10", "weight = 1", ""));
    wait_for_flows(&mut run, 100);
    assert_eq!(clients(&mut run).peak_active, 10);
    run.set_load(None, Amount::Active(40)).unwrap();
    let now = clients(&mut run).attempted;
    wait_for_flows(&mut run, now + 400);
    assert_eq!(clients(&mut run).peak_active, 40);
    all_completed(run);

    let mut run = start(flows_that_wait("20 ms", "load-users", "", "users = 3", ""));
    wait_for_flows(&mut run, 30);
    run.set_load(Some("web"), Amount::Users(9)).unwrap();
    let now = clients(&mut run).attempted;
    wait_for_flows(&mut run, now + 90);
    assert_eq!(clients(&mut run).peak_active, 9);
    all_completed(run);
}

#[test]
fn a_change_of_a_load_that_is_refused_changes_nothing() {
    let mut run = start(flows("load-refused", "", "cps = 1000", ""));
    wait_for_flows(&mut run, 10);
    let refused = |error: squall::Error, expected: &str| {
        let error = error.to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(run.set_load(Some("wbe"), Amount::Cps(1.0)).unwrap_err(), "did you mean \"web\"?");
    refused(run.set_load(Some("web"), Amount::Users(1)).unwrap_err(), "has cps");
    refused(run.set_load(Some("web"), Amount::Cps(0.0)).unwrap_err(), "a pause");
    refused(run.set_load(None, Amount::Active(1)).unwrap_err(), "has no load");
    refused(run.pause(Some("wbe")).unwrap_err(), "did you mean \"web\"?");
    let other_port = flows("load-refused", "", "cps = 1000", "limit = 1000000");
    refused(run.change(other_port).unwrap_err(), "\"web\"");
    refused(
        run.change(flows("load-refused", "ramp_up = \"1 s\"", "cps = 1000", "")).unwrap_err(),
        "the ramp",
    );
    assert_eq!(clients(&mut run).asked_cps, Some(1000.0));
    let now = clients(&mut run).attempted;
    wait_for_flows(&mut run, now + 10);
    all_completed(run);
}

#[test]
fn streams_run_with_flows() {
    let burst = stream("one", "20 kpps", "mode = { burst = 4000 }");
    for cores in [None, Some(1), Some(4)] {
        let profile =
            flows(&format!("beside{}", cores.unwrap_or(0)), "", "cps = 2000\nlimit = 400", &burst);
        let report = Session {
            options: squall::RunOptions { cores, ..Default::default() },
            ..Session::new(profile)
        }
        .open()
        .unwrap()
        .start()
        .unwrap()
        .finish()
        .unwrap();
        assert_eq!(report.streams[0].tx_packets, 4000);
        complete(&report.streams[0]);
        let client = report
            .flows
            .as_ref()
            .and_then(|load| load.total.client.as_ref())
            .expect("flows have begun");
        assert_eq!((client.attempted, client.completed), (400, 400), "{client:?}");
        let sent = |name: &str| {
            report.ports.iter().find(|port| port.name == name).map(|port| port.tx.packets)
        };
        assert_eq!((sent("A"), sent("B")), (Some(4000), Some(0)));
        assert!(
            sent("C") >= Some(1600) && sent("S") >= Some(1200),
            "{:?} {:?}",
            sent("C"),
            sent("S")
        );
    }
}

#[test]
fn streams_and_flows_change_in_one_run() {
    let of = |rate: &str, cps: &str| flows("both-change", "", cps, &stream("one", rate, ""));
    let mut run = start(of("1 kpps", "cps = 100"));
    wait_for_more(&mut run, "one", 20);
    run.change(of("10 kpps", "cps = 2000")).unwrap();
    let (frames, begun) = (sent(&mut run, "one"), clients(&mut run).attempted);
    wait_for_more(&mut run, "one", frames + 2000);
    wait_for_flows(&mut run, begun + 400);
    run.pause(None).unwrap();
    sleep(Duration::from_millis(100));
    let (frames, begun) = (sent(&mut run, "one"), clients(&mut run).attempted);
    sleep(Duration::from_millis(100));
    assert_eq!((sent(&mut run, "one"), clients(&mut run).attempted), (frames, begun));
    run.resume(None).unwrap();
    run.stop();
    let report = run.finish().unwrap();
    complete(&report.streams[0]);
    let steady =
        report.flows.and_then(|load| load.total.client?.steady).expect("there was no ramp");
    assert!(steady.duration_s > 0.0 && steady.completed_cps > 0.0, "{steady:?}");
    let sample = report.series.last().expect("it was looked at");
    assert_eq!((sample.flows.len(), sample.streams.len()), (2, 1), "{sample:?}");
}

#[test]
fn a_criterion_that_holds_ends_a_run_that_would_go_on() {
    let text =
        stream("web", "1 kpps", "") + "[run]\nabort_if = [\"web.tx > 20\", \"errors > 0\"]\n";
    let mut run = start(profile("abort", &text));
    let begun = Instant::now();
    while !run.wait(Duration::from_millis(100)) {
        // Only `abort_if` can end this run.
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody ended it");
    }
    assert!(run.aborted());
    let report = run.finish().unwrap();
    assert_eq!(report.verdict.ended_by, EndedBy::Criterion);
    let [criterion] = &report.verdict.failed[..] else { panic!("{:?}", report.verdict.failed) };
    assert!(criterion.starts_with("stream \"web\": tx = "), "{criterion}");
    // The run stops cleanly: the frames that were sent are received.
    assert!(report.streams[0].tx_packets > 20);
    complete(&report.streams[0]);
}
