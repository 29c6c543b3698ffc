//! Streams, captures, flows and attacks on the same ports in one run. Each has its own figures,
//! which add up to the port counters.

use std::path::{Path, PathBuf};

use squall::{
    Format, Profile, Session,
    report::{Report, source::SourceKind},
};

const RULES: &str = r#"
alert tcp $HOME_NET any -> $EXTERNAL_NET 7000 (msg:"word"; flow:established,to_server; content:"kookaburra"; sid:2; rev:3;)
alert udp any any -> any 9000 (msg:"datagram"; content:"|01 02 03|"; depth:3; sid:3; rev:1;)
"#;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("squall-mix-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("t.rules"), RULES).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn parsed(text: &str) -> Profile {
    Profile::parse(text, "mix.toml", Format::Toml).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn run(text: &str) -> Report {
    let opened = Session::new(parsed(text)).open().unwrap_or_else(|e| panic!("{e}\n{text}"));
    opened.start().unwrap().finish().unwrap()
}

fn ports(link: &str) -> String {
    format!("[ports]\nA = \"loop:{link}\"\nB = \"loop:{link}\"\n")
}

/// A stream to addresses that flows use as well. Its signature identifies its frames.
fn stream(name: &str, port: &str, more: &str) -> String {
    format!(
        "[[stream]]\nname = \"{name}\"\nport = \"{port}\"\npacket = \"eth/ipv4(src=16.0.0.9, \
         dst=48.0.0.1)/udp(dport=80)\"\nsize = 128\nlatency = true\n{more}\n"
    )
}

fn flows() -> String {
    "[flows]\nclients = \"A\"\nservers = \"B\"\nmax_delay = \"60 s\"\n[[template]]\nname = \
     \"web\"\nclients = \"16.0.0.0/24\"\nservers = \"48.0.0.1\"\napp = \"http\"\ncps = 300\nlimit \
     = 150\noptions = { body = \"4 KiB\" }\n"
        .into()
}

fn attacks(folder: &Folder) -> String {
    format!(
        "[[attack]]\nport = \"A\"\nport2 = \"B\"\nrules = {:?}\nrate = 100\nrepeat = 20\nlive = false\n",
        folder.0.join("t.rules")
    )
}

/// A capture of `count` frames at intervals of 1 ms, from `src` to an address that no host has.
fn capture(folder: &Folder, name: &str, count: u64, src: u8) -> PathBuf {
    let path = folder.0.join(name);
    let packet = format!("eth/ipv4(src=10.0.0.{src}, dst=10.1.0.1)/udp(dport=9)/zeros(40)");
    run(&format!(
        "[ports]\nA = \"pcap:{}\"\n[[stream]]\npacket = {packet:?}\nrate = \"1 kpps\"\nmode = {{ \
         burst = {count} }}\n",
        path.display()
    ));
    path
}

fn replay(name: &str, port: &str, file: &Path, more: &str) -> String {
    format!("[[replay]]\nname = \"{name}\"\nport = \"{port}\"\nfiles = {file:?}\n{more}\n")
}

/// Asserts what holds for any mix on a link in memory, which loses nothing.
fn adds_up(report: &Report) {
    let [a, b] = &report.ports[..] else { panic!("two ports") };
    assert_eq!((a.tx.packets, b.tx.packets), (b.rx.packets, a.rx.packets));
    assert_eq!((a.tx.octets, b.tx.octets), (b.rx.octets, a.rx.octets));
    for stream in &report.streams {
        let rx = stream.rx.as_ref().unwrap();
        assert_eq!((rx.packets, rx.lost, rx.duplicates), (stream.tx_packets, 0, 0));
        assert!(rx.latency_ns.is_some(), "{} has its delay", stream.name);
    }
}

fn of(report: &Report, kind: SourceKind) -> Vec<(&str, u64, u64)> {
    let of = report.sources.iter().filter(|source| source.kind == kind);
    of.map(|source| (source.name.as_str(), source.asked, source.sent)).collect()
}

fn completed(report: &Report) {
    let load = report.flows.as_ref().unwrap();
    let (client, server) =
        (load.total.client.as_ref().unwrap(), load.total.server.as_ref().unwrap());
    assert_eq!((client.attempted, client.completed), (150, 150), "{:?}", client.failed);
    assert_eq!((server.completed, client.http["2xx"]), (150, 150));
}

#[test]
fn streams_and_flows_share_both_ports() {
    let both = stream("there", "A", "rate = \"5 kpps\"\nmode = { burst = 3000 }")
        + &stream("back", "B", "rate = \"2 kpps\"\nmode = { burst = 1000 }");
    let report = run(&(ports("mix-flows") + &both + &flows()));
    adds_up(&report);
    completed(&report);
    assert_eq!(
        of(&report, SourceKind::Streams),
        [("streams by A", 3000, 3000), ("streams by B", 1000, 1000)]
    );
    assert_eq!(of(&report, SourceKind::Flows), [("web", 150, 150)]);
    let unsigned: u64 = report.ports.iter().map(|port| port.rx.unsigned_packets).sum();
    assert_eq!(unsigned, 0, "what is the flows' is not counted as somebody's");
}

#[test]
fn attacks_leave_among_streams_and_flows() {
    let folder = Folder::new("all");
    let streams = stream("background", "A", "rate = \"5 kpps\"\nmode = { burst = 3000 }");
    let report = run(&(ports("mix-all") + &streams + &flows() + &attacks(&folder)));
    adds_up(&report);
    completed(&report);
    let made = &report.attacks[0];
    assert!(made.frames > 0 && made.attacks == 40, "{made:?}");
    let sent: u64 = of(&report, SourceKind::Attacks).iter().map(|source| source.2).sum();
    assert_eq!(sent, made.frames);
    // Frames that belong to neither streams nor flows.
    let unsigned: u64 = report.ports.iter().map(|port| port.rx.unsigned_packets).sum();
    assert_eq!(unsigned, made.frames);
}

#[test]
fn a_capture_is_replayed_in_the_midst_of_streams_flows_and_attacks() {
    let folder = Folder::new("captures");
    let file = capture(&folder, "c.pcap", 200, 1);
    let streams = stream("there", "A", "rate = \"5 kpps\"\nmode = { burst = 3000 }");
    let replays = replay("first", "A", &file, "loops = 2")
        + &replay(
            "second",
            "A",
            &file,
            "port2 = \"B\"\nrate = \"1 kpps\"\nsplit = { cidr = \"10.9.0.0/16\" }",
        );
    let text = ports("mix-captures") + &streams + &replays + &flows() + &attacks(&folder);
    let report = run(&text);
    adds_up(&report);
    completed(&report);
    let made = &report.attacks[0];
    let replay = |name: &str| report.replays.iter().find(|replay| replay.name == name).unwrap();
    assert_eq!((replay("first").packets, replay("first").loops), (400, 2));
    assert_eq!(
        (replay("second").ports[0].successful, replay("second").ports[1].successful),
        (0, 200)
    );
    assert_eq!(replay("attack 1").packets, made.frames);
    assert_eq!(
        of(&report, SourceKind::Replay),
        [("first by A", 400, 400), ("second by A", 0, 0), ("second by B", 200, 200)]
    );
    let unsigned: u64 = report.ports.iter().map(|port| port.rx.unsigned_packets).sum();
    assert_eq!(unsigned, 600 + made.frames);
}

#[test]
fn attacks_are_spoken_live_between_the_hosts_of_flows_among_all_else() {
    let folder = Folder::new("live-attacks");
    let file = capture(&folder, "c.pcap", 200, 1);
    let streams = stream("there", "A", "rate = \"5 kpps\"\nmode = { burst = 3000 }");
    let live = attacks(&folder).replace("live = false\n", "")
        + "inside = \"16.0.0.10-16.0.0.99\"\noutside = \"48.0.0.1\"\nvariables = { HOME_NET = \
           \"16.0.0.0/24\", EXTERNAL_NET = \"48.0.0.1\" }\n";
    let text = ports("mix-live-attacks")
        + &streams
        + &replay("first", "A", &file, "loops = 2")
        + &flows()
        + &live;
    let report = run(&text);
    adds_up(&report);
    let load = report.flows.as_ref().unwrap();
    let clients: Vec<_> = load
        .templates
        .iter()
        .map(|one| (one.name.as_str(), one.roles.client.as_ref().unwrap().completed))
        .collect();
    assert_eq!(clients, [("web", 150), ("TCP 7000", 20), ("UDP 9000", 20)]);
    assert_eq!(of(&report, SourceKind::Flows), [("web", 150, 150)]);
    assert_eq!(of(&report, SourceKind::Attacks), [("TCP 7000", 20, 20), ("UDP 9000", 20, 20)]);
    let passage = report.attacks[0].passage.as_ref().unwrap();
    assert_eq!((passage.conversations, passage.passed), (40, 40), "{passage:?}");
    // The frames that belong to neither streams nor hosts are those of the capture.
    let unsigned: u64 = report.ports.iter().map(|port| port.rx.unsigned_packets).sum();
    assert_eq!(unsigned, 400);
}

#[test]
fn a_replay_begins_and_ends_when_its_profile_says_and_at_its_multiple() {
    let folder = Folder::new("times");
    let file = capture(&folder, "c.pcap", 100, 1);
    let out = folder.0.join("out.pcap");
    let sent = |more: &str, multiplier: Option<&str>| {
        let text = format!(
            "[ports]\nA = \"pcap:{}\"\n{}{}",
            out.display(),
            stream("clock", "A", "rate = \"1 kpps\"\nmode = { burst = 1 }"),
            replay("late", "A", &file, more)
        );
        let mut session = Session::new(parsed(&text));
        session.options.mult = multiplier.map(|text| text.parse().unwrap());
        session.options.force = Some(true);
        session.open().unwrap().start().unwrap().finish().unwrap();
        let mut reader = squall_pcap::CaptureReader::open(&out).unwrap();
        let mut times = Vec::new();
        while let Some(packet) = reader.next().unwrap() {
            times.push(packet.time_ns / 1000);
        }
        // The first frame belongs to the stream.
        let begin = times.remove(0);
        times.iter().map(|time| time - begin).collect::<Vec<_>>()
    };
    let every =
        |from: u64, gap: u64, count: u64| (0..count).map(|i| from + i * gap).collect::<Vec<_>>();
    assert_eq!(sent("start = \"5 ms\"", None), every(5000, 1000, 100));
    assert_eq!(sent("start = \"5 ms\"\nduration = \"10 ms\"", None), every(5000, 1000, 10));
    assert_eq!(sent("start = \"5 ms\"\nmultiplier = 2", None), every(5000, 500, 100));
    assert_eq!(sent("start = \"5 ms\"\nmultiplier = 2", Some("2")), every(5000, 250, 100));
    assert_eq!(sent("start = \"5 ms\"\nrate = \"max\"", None), [5000; 100]);
    assert_eq!(sent("rate = \"10 kpps\"\nloops = 2\nlimit = 150", None), every(0, 100, 150));
}

#[test]
fn a_replay_is_paused_and_hastened_by_its_name_while_others_go_on() {
    let folder = Folder::new("live");
    let file = capture(&folder, "c.pcap", 100, 1);
    let with = |more: &str| {
        let more = format!("loops = 0\n{more}");
        ports("mix-live")
            + &stream("there", "A", "rate = \"1 kpps\"")
            + &replay("again", "A", &file, &more)
    };
    let mut run = start(&with("rate = \"1 kpps\""));
    let sent = |run: &mut squall::Run| {
        let (_, report) = run.sample();
        (report.streams[0].tx_packets, report.ports[0].tx.packets - report.streams[0].tx_packets)
    };
    // Measures in windows until one has the right numbers, because the machine may be busy.
    let until = |run: &mut squall::Run, right: &dyn Fn(u64, u64) -> bool| {
        let all: Vec<_> = (0..20)
            .map(|_| {
                let before = sent(run);
                std::thread::sleep(std::time::Duration::from_millis(300));
                let now = sent(run);
                (now.0 - before.0, now.1 - before.1)
            })
            .scan(false, |done, (streamed, replayed)| {
                let on = !*done;
                *done = right(streamed, replayed);
                on.then_some((streamed, replayed))
            })
            .collect();
        assert!(all.last().is_some_and(|last| right(last.0, last.1)), "{all:?}");
    };
    until(&mut run, &|_, replayed| replayed > 100);
    run.pause(Some("again")).unwrap();
    until(&mut run, &|streamed, replayed| streamed > 100 && replayed == 0);
    run.resume(Some("again")).unwrap();
    run.change(parsed(&with("rate = \"20 kpps\""))).unwrap();
    until(&mut run, &|streamed, replayed| replayed > 4 * streamed);
    run.scale(1, 2).unwrap();
    run.change(parsed(&with("rate = \"1 kpps\""))).unwrap();
    until(&mut run, &|streamed, replayed| streamed > 0 && replayed < 2 * streamed);
    for (text, why) in [
        (with("limit = 5"), "more than the speed of replay \"again\" cannot change"),
        (with("multiplier = 2"), "the kind of speed"),
        (with("rate = \"0 pps\""), "a rate of 0"),
        (ports("mix-live") + &stream("there", "A", "rate = \"1 kpps\""), "added or removed"),
    ] {
        let refused = run.change(parsed(&text)).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    let unknown = run.pause(Some("agian")).unwrap_err().to_string();
    assert!(unknown.contains("again"), "{unknown}");
    run.stop();
    adds_up(&run.finish().unwrap());
}

#[test]
fn frames_due_while_a_replay_is_paused_are_not_late() {
    let folder = Folder::new("paused");
    let file = capture(&folder, "c.pcap", 100, 1);
    let begun = std::time::Instant::now();
    let again = replay("again", "A", &file, "loops = 0\nrate = \"1 kpps\"");
    let run = start(&(ports("mix-paused") + &again));
    run.pause(Some("again")).unwrap();
    let paused = std::time::Instant::now();
    std::thread::sleep(std::time::Duration::from_millis(600));
    let paused = paused.elapsed();
    run.resume(Some("again")).unwrap();
    run.stop();
    let report = run.finish().unwrap();
    // However busy the machine is, only frames that are due in the remaining time can be late.
    let asked = (begun.elapsed() - paused).as_millis() as u64;
    let late = report.sources[0].not_sent.get("late").copied().unwrap_or(0);
    assert!(late <= asked, "{late} of {asked}");
    adds_up(&report);
}

#[test]
fn attacks_that_cannot_run_with_flows_or_change_are_refused() {
    let folder = Folder::new("refused");
    let live = attacks(&folder).replace("live = false\n", "");
    let back = live.replace("port = \"A\"\nport2 = \"B\"", "port = \"B\"\nport2 = \"A\"");
    let text = ports("mix-refused") + &flows() + &back;
    let refused = Session::new(parsed(&text)).open().err().unwrap().to_string();
    assert!(refused.contains("opposite directions"), "{refused}");
    let with =
        |live: &str| ports("mix-refused") + &stream("there", "A", "rate = \"1 kpps\"") + live;
    let mut run = start(&with(&live));
    run.scale(2, 1).unwrap();
    let other = with(&live.replace("rate = 100", "rate = 50"));
    let refused = run.change(parsed(&other)).unwrap_err().to_string();
    assert!(refused.contains("the rate of attack \"attack 1\" cannot change"), "{refused}");
    let other = with(&live.replace("repeat = 20", "repeat = 21"));
    let refused = run.change(parsed(&other)).unwrap_err().to_string();
    assert!(refused.contains("only the rate of attacks can change"), "{refused}");
    run.stop();
    run.finish().unwrap();
}

/// For each conversation in a file (both addresses and ports), the time of its first frame in
/// nanoseconds.
fn conversations(file: &Path) -> std::collections::HashMap<[u8; 12], u64> {
    let mut reader = squall_pcap::CaptureReader::open(file).unwrap();
    let mut first = std::collections::HashMap::new();
    while let Some(packet) = reader.next().unwrap() {
        first.entry(*packet.data[26..].first_chunk().unwrap()).or_insert(packet.time_ns);
    }
    first
}

#[test]
fn attacks_are_paused_and_hastened_by_name_and_labels_say_when_they_left() {
    let folder = Folder::new("by-name");
    let (file, labels) = (folder.0.join("sent.pcap"), folder.0.join("labels.csv"));
    let attack = |name: &str, rate: u32| {
        let one =
            attacks(&folder).replace("port2 = \"B\"\n", "").replace("repeat = 20", "repeat = 50");
        let net = name.bytes().map(u32::from).sum::<u32>() % 250;
        let named = format!(
            "[[attack]]\nname = {name:?}\ninside = \"10.{net}.0.1-10.{net}.0.99\"\noutside = \"198.18.{net}.1\""
        );
        one.replace("[[attack]]", &named).replace("rate = 100", &format!("rate = {rate}"))
    };
    let text = |rate| {
        let ports = format!("[ports]\nA = \"pcap:{}\"\n", file.display());
        let short = attack("short", 100) + "duration = \"200 ms\"\n";
        ports + &attack("one", rate) + &attack("two", 100) + &short
    };
    let mut session = Session::new(parsed(&text(100)));
    session.options.clock = Some(squall_options::Clock::Real);
    session.options.labels = Some(labels.clone());
    let mut run = session.open().unwrap().start().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let pause = std::time::Instant::now();
    run.pause(Some("one")).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    run.resume(Some("one")).unwrap();
    let paused = pause.elapsed().as_secs_f64();
    run.change(parsed(&text(200))).unwrap();
    let report = run.finish().unwrap();
    let names: Vec<_> = report.sources.iter().map(|source| source.name.as_str()).collect();
    assert_eq!(names, ["one by A", "two by A", "short by A"]);
    assert_eq!(report.attacks.iter().map(|one| one.attacks).collect::<Vec<_>>(), [100, 100, 20]);
    let sent = conversations(&file);
    let mut begins = Vec::new();
    for line in std::fs::read_to_string(&labels).unwrap().lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [begin, source, sport, destination, dport] = [1, 4, 5, 6, 7].map(|i| fields[i]);
        let address = |text: &str| text.parse::<std::net::Ipv4Addr>().unwrap().octets();
        let port = |text: &str| text.parse::<u16>().unwrap().to_be_bytes();
        let mut key = [0; 12];
        key[..4].copy_from_slice(&address(source));
        key[4..8].copy_from_slice(&address(destination));
        key[8..10].copy_from_slice(&port(sport));
        key[10..].copy_from_slice(&port(dport));
        begins.push((begin.parse::<f64>().unwrap(), sent[&key] as f64 / 1e9));
    }
    // Times in the file are on the machine's clock, those in labels on the wall clock.
    let first =
        begins.iter().copied().fold((f64::MAX, f64::MAX), |a, b| (a.0.min(b.0), a.1.min(b.1)));
    for (begin, left) in &begins {
        let (begin, left) = (begin - first.0, left - first.1);
        assert!((left - begin).abs() < 0.4, "label {begin}, left at {left}");
    }
    assert_eq!(begins.len(), 220);
    // The attacks were paused for a second, then sent twice as fast.
    let last = begins.iter().map(|at| at.0).fold(0.0, f64::max);
    let took = last - first.0;
    let longest = 2.0 + paused;
    assert!((1.5..longest).contains(&took), "all took {took} s of {longest} s at most");
}

#[test]
fn on_virtual_time_all_leave_by_one_clock_in_the_order_of_their_instants() {
    let folder = Folder::new("virtual");
    let again = capture(&folder, "c.pcap", 200, 1);
    let once = || {
        let file = folder.0.join("mix.pcap");
        let _ = std::fs::remove_file(&file);
        let text = format!(
            "[ports]\nA = \"pcap:{}\"\n{}{}{}",
            file.display(),
            stream("background", "A", "rate = \"1 kpps\"\nmode = { burst = 500 }"),
            replay("again", "A", &again, "start = \"100 ms\"\nmultiplier = 0.7"),
            attacks(&folder).replace("port2 = \"B\"\n", "")
        );
        let report = run(&text);
        let mut reader = squall_pcap::CaptureReader::open(&file).unwrap();
        let (mut times, mut octets) = (Vec::new(), Vec::new());
        while let Some(packet) = reader.next().unwrap() {
            times.push(packet.time_ns);
            octets.extend_from_slice(packet.data);
        }
        let made = &report.attacks[0];
        assert_eq!(times.len() as u64, 700 + made.frames);
        assert_eq!(report.ports[0].tx.packets, 700 + made.frames);
        assert!(times.is_sorted(), "frames leave in the order of their instants");
        (times, octets)
    };
    assert!(once() == once(), "the same octets at the same instants");
}

#[test]
fn on_virtual_time_a_mix_has_the_same_frames_however_many_workers_are_asked_for() {
    let folder = Folder::new("workers");
    let again = capture(&folder, "c.pcap", 200, 1);
    let both = stream("there", "A", "rate = \"1 kpps\"\nmode = { burst = 500 }")
        + &stream("back", "B", "rate = \"1 kpps\"\nmode = { burst = 300 }");
    let live = attacks(&folder).replace("live = false\n", "");
    let frames = |cores| {
        let link = "loop:mix-workers,virtual";
        let text = format!("[ports]\nA = \"{link}\"\nB = \"{link}\"\n{both}")
            + &replay("again", "A", &again, "start = \"100 ms\"\nmultiplier = 0.7")
            + &flows()
            + &live;
        let mut session = Session::new(parsed(&text));
        (session.options.cores, session.options.fingerprint) = (Some(cores), Some(true));
        let report = session.open().unwrap().start().unwrap().finish().unwrap();
        adds_up(&report);
        assert_eq!(report.replays[0].packets, 200);
        let completed = report.flows.unwrap().total.client.unwrap().completed;
        assert_eq!(completed, 150 + 40);
        let print = |port: &squall::report::PortReport| {
            (port.rx.packets, port.rx.octets, port.rx.fingerprint.clone())
        };
        report.ports.iter().map(print).collect::<Vec<_>>()
    };
    let one = frames(1);
    assert!(one[0].2.is_some());
    assert_eq!(frames(2), one);
    assert_eq!(frames(1), one);
}

/// Two streams that are not divided (one signed, one in a chain), one that is divided,
/// conversations from captures, attacks from rules, and a scan.
#[test]
fn the_parts_of_a_mix_together_have_the_frames_and_labels_of_the_whole() {
    let folder = Folder::new("parts");
    let captures: String = (1..=6)
        .map(|src| {
            let file = capture(&folder, &format!("{src}.pcap"), 20, src);
            replay(&format!("again {src}"), "A", &file, "unique_ip = 2\nloops = 3")
        })
        .collect();
    let plain = "[[stream]]\nport = \"A\"\npacket = \"eth/ipv4/udp\"\nrate = \"1 kpps\"\nmode = { burst = 301 }\n";
    let scan = "[[attack]]\ntemplate = \"udp-scan\"\nport = \"A\"\noptions = { count = 25 }\n";
    let text = format!(
        "[ports]\nA = \"pcap:{}\"\n{}{}{plain}{captures}{}{scan}",
        folder.0.join("parts.pcap").display(),
        stream("one", "A", "rate = \"1 kpps\"\nmode = { burst = 50 }"),
        stream("other", "A", "rate = \"1 kpps\"\nmode = { burst = 30 }"),
        attacks(&folder).replace("port2 = \"B\"\n", "")
    );
    let sent = |part: Option<&str>| {
        let labels = folder.0.join("labels.csv");
        let mut session = Session::new(parsed(&text));
        session.options.part = part.map(|part| part.parse().unwrap());
        session.options.fingerprint = Some(true);
        session.options.labels = Some(labels.clone());
        session.options.force = Some(true);
        let report = session.open().unwrap().start().unwrap().finish().unwrap();
        assert!(report.sources.iter().all(|source| source.sent == source.asked));
        let print = report.ports[0].tx.fingerprint.clone().unwrap();
        let lines = std::fs::read_to_string(labels).unwrap();
        let mut lines: Vec<_> = lines.lines().skip(1).map(str::to_owned).collect();
        lines.sort_unstable();
        (report.ports[0].tx.packets, u128::from_str_radix(&print, 16).unwrap(), lines)
    };
    let whole = sent(None);
    assert!(whole.2.len() >= 45, "{} labels", whole.2.len());
    let mut together = (0, 0u128, Vec::new());
    for part in ["1/3", "2/3", "3/3"] {
        let one = sent(Some(part));
        assert!(one.0 > whole.0 / 6, "part {part}: {} of {} frames", one.0, whole.0);
        together.0 += one.0;
        together.1 = together.1.wrapping_add(one.1);
        together.2.extend(one.2);
    }
    together.2.sort_unstable();
    assert!(together == whole, "{} of {} frames", together.0, whole.0);
}

#[test]
fn indivisible_profiles_are_refused_with_a_hint() {
    let refused = |head: &str, text: &str| {
        let text = format!("{head}\nports = {{ A = \"null:\" }}\n{text}");
        let mut session = Session::new(parsed(&text));
        session.options.part = Some("1/2".parse().unwrap());
        session.plan_only().map(|_| ()).unwrap_err().to_string()
    };
    let two = stream("a", "A", "rate = \"1 kpps\"\nmode = { burst = 10 }")
        + &stream("b", "A", "rate = \"1 kpps\"\nafter = \"a\"");
    let found = refused("", &two);
    assert!(found.contains("try a start time instead"), "{found}");
    let found = refused("packets = 100", &two.replace("after = \"a\"", ""));
    assert!(found.contains("mode = { burst = N }"), "{found}");
}

#[test]
fn on_the_real_clock_frames_have_the_fingerprint_of_a_file() {
    let folder = Folder::new("prints");
    let again = capture(&folder, "c.pcap", 50, 1);
    let frames = |address: &str, cores| {
        let text = format!("[ports]\nA = {address:?}\n")
            + &stream("there", "A", "rate = \"5 kpps\"\nmode = { burst = 300 }")
            + &stream("more", "A", "rate = \"3 kpps\"\nmode = { burst = 200 }")
            + &replay("again", "A", &again, "")
            + &attacks(&folder).replace("port2 = \"B\"\n", "");
        let mut session = Session::new(parsed(&text));
        (session.options.cores, session.options.fingerprint) = (Some(cores), Some(true));
        let report = session.open().unwrap().start().unwrap().finish().unwrap();
        let tx = &report.ports[0].tx;
        (tx.packets, tx.fingerprint.clone().unwrap())
    };
    let file = frames(&format!("pcap:{}", folder.0.join("all.pcap").display()), 1);
    assert_eq!(frames("loop:prints", 1), file);
    assert_eq!(frames("loop:prints", 2), file);
    assert_eq!(frames("loop:prints,virtual", 1), file);
}

#[test]
fn on_a_link_in_memory_a_mix_loses_nothing_however_many_workers_there_are() {
    let folder = Folder::new("queues");
    let file = capture(&folder, "c.pcap", 200, 1);
    let text = ports("mix-queues")
        + &stream("there", "A", "rate = \"5 kpps\"\nmode = { burst = 1000 }")
        + &stream("back", "B", "rate = \"5 kpps\"\nmode = { burst = 1000 }")
        + &replay("again", "A", &file, "");
    let mut session = Session::new(parsed(&text));
    session.options.cores = Some(3);
    let report = session.open().unwrap().start().unwrap().finish().unwrap();
    adds_up(&report);
    assert_eq!(report.replays[0].packets, 200);
}

#[test]
fn a_count_ends_all_of_a_mix() {
    let streams = stream("there", "A", "rate = \"5 kpps\"") + &stream("back", "B", "rate = 5000");
    let report = run(&format!("packets = 2000\n{}{streams}{}", ports("mix-count"), flows()));
    let sent: u64 = report.streams.iter().map(|stream| stream.tx_packets).sum();
    assert_eq!(sent, 2000);
    adds_up(&report);
}

/// Starts a run.
fn start(text: &str) -> squall::Run {
    Session::new(parsed(text)).open().unwrap().start().unwrap()
}

#[test]
fn streams_are_added_to_ports_of_flows_where_they_are_measured() {
    let long = flows().replace("limit = 150", "limit = 450");
    let there = stream("there", "A", "rate = \"2 kpps\"");
    let back = stream("back", "B", "rate = \"2 kpps\"\nmode = { burst = 500 }");
    let ports = ports("mix-added");
    let mut run = start(&format!("{ports}{there}{long}"));
    run.change(parsed(&format!("{ports}{there}{back}{long}"))).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    run.change(parsed(&format!("{ports}{back}{long}"))).unwrap();
    let report = run.finish().unwrap();
    adds_up(&report);
    assert_eq!(report.streams[1].tx_packets, 500);
    let mut run = start(&format!("{ports}{long}"));
    let refused = run.change(parsed(&format!("{ports}{back}{long}"))).unwrap_err().to_string();
    assert!(refused.contains("counted but not measured"), "{refused}");
    run.stop();
    run.finish().unwrap();
}

/// Frames of a capture: nanoseconds since the first frame, and UDP source port.
fn frames(path: &Path) -> Vec<(u64, u16)> {
    let mut reader = squall_pcap::CaptureReader::open(path).unwrap();
    let mut all = Vec::new();
    let mut first = None;
    while let Some(frame) = reader.next().unwrap() {
        let at = frame.time_ns;
        let sport = u16::from_be_bytes(frame.data[34..36].try_into().unwrap());
        all.push((at - *first.get_or_insert(at), sport));
    }
    all
}

/// A stream with its own schedule, identified by the source port `sport`.
fn burst(name: &str, sport: u16, count: u64, more: &str) -> String {
    format!(
        "[[stream]]\nname = \"{name}\"\npacket = \"eth/ipv4(src=16.0.0.9, dst=48.0.0.1)/udp(\
         sport={sport}, dport=80)\"\nrate = \"1 kpps\"\nmode = {{ burst = {count} }}\n{more}\n"
    )
}

#[test]
fn parts_of_any_kind_begin_with_the_end_of_another_and_a_delay() {
    let folder = Folder::new("after");
    let file = capture(&folder, "c.pcap", 3, 1);
    let to = |name: &str| folder.0.join(name);
    let profile = |to: &Path| {
        format!("[ports]\nA = \"pcap:{}\"\n", to.display())
            + &burst("first", 1, 4, "")
            // This stream is active all the time; later streams send between its frames.
            + &burst("beside", 2, 60, "start_delay = \"100 us\"")
            + &replay("second", "A", &file, "after = \"first\"\nstart = \"5 ms\"")
            + &burst("third", 3, 2, "after = \"second\"")
            + &format!(
                "[[attack]]\nname = \"fourth\"\nrules = {:?}\nsid = 3\nrate = 1000\nrepeat = 2\n\
                 after = \"third\"\nstart = \"1 ms\"\n",
                folder.0.join("t.rules")
            )
            + &burst("fifth", 5, 1, "after = \"fourth\"\nstart_delay = \"2 ms\"")
    };
    let labels = to("labels.csv");
    let begin = |name: &str, cores| {
        let mut session = Session::new(parsed(&profile(&to(name))));
        (session.options.labels, session.options.cores) = (Some(labels.clone()), Some(cores));
        let opened = session.open().unwrap_or_else(|e| panic!("{e}"));
        opened.start().unwrap().finish().unwrap()
    };
    let report = begin("one.pcap", 1);
    assert!(report.notes.iter().all(|note| !note.contains("never")), "{:?}", report.notes);
    let all = frames(&to("one.pcap"));
    assert!(all.is_sorted_by_key(|frame| frame.0), "{all:?}");
    let of = |sport: u16| -> Vec<u64> {
        all.iter().filter(|frame| frame.1 == sport).map(|frame| frame.0 / 1000).collect()
    };
    assert_eq!(of(1), [0, 1000, 2000, 3000]);
    let background: Vec<u64> = (0..60).map(|i| 100 + i * 1000).collect();
    assert_eq!(of(2), background);
    // The other frames belong to attacks and to the capture, which has no separate port.
    let others: Vec<u64> =
        all.iter().filter(|frame| ![1, 2, 3, 5].contains(&frame.1)).map(|f| f.0 / 1000).collect();
    assert_eq!(others[..3], [9000, 10_000, 11_000], "4 ms of the first, and 5 ms");
    assert_eq!(of(3), [11_000, 12_000], "a capture ends with its last frame");
    assert_eq!(others[3..], [14_000, 15_000], "a stream ends with its last gap");
    assert_eq!(of(5), [17_000]);
    let csv = std::fs::read_to_string(&labels).unwrap();
    let column = csv.lines().next().unwrap().split(',').position(|name| name == "begin").unwrap();
    let begins = csv.lines().skip(1).map(|line| line.split(',').nth(column).unwrap().to_owned());
    let begins: Vec<f64> = begins.map(|begin| begin.parse::<f64>().unwrap()).collect();
    assert_eq!(begins.len(), 2);
    assert!((begins[0].fract() - 0.014).abs() < 1e-6, "labels say when they left: {begins:?}");
    begin("two.pcap", 2);
    let read = |name: &str| std::fs::read(to(name)).unwrap();
    assert!(read("one.pcap") == read("two.pcap"), "the same of two workers as of one");
}

#[test]
fn a_stream_ends_after_its_duration_and_is_waited_for() {
    let folder = Folder::new("lasts");
    let file = folder.0.join("lasts.pcap");
    let continuous = |name: &str, sport, more: &str| {
        burst(name, sport, 9, more).replace("mode = { burst = 9 }", "")
    };
    let text = format!("[ports]\nA = \"pcap:{}\"\n", file.display())
        + &continuous("first", 1, "start_delay = \"1 ms\"\nduration = \"4500 us\"")
        + &continuous("second", 2, "after = \"first\"\nduration = \"2 ms\"")
        + &burst("third", 3, 2, "after = \"second\"\nduration = \"1 s\"");
    run(&text);
    let micros = |(at, sport): (u64, u16)| (at / 1000, sport);
    let all: Vec<_> = frames(&file).into_iter().map(micros).collect();
    let first = [(0, 1), (1000, 1), (2000, 1), (3000, 1), (4000, 1)];
    assert_eq!(all[..5], first, "the next would be behind the end");
    assert_eq!(all[5..], [(4500, 2), (5500, 2), (6500, 3), (7500, 3)]);
    // A stream that sends as fast as the port accepts frames, on the real clock.
    let text = "[ports]\nA = \"null:\"\n".to_owned()
        + &continuous("first", 1, "duration = \"30 ms\"").replace("1 kpps", "max")
        + &burst("second", 2, 20, "after = \"first\"");
    let report = run(&text);
    let sent = |i: usize| report.streams[i].tx_packets;
    assert!(sent(0) > 0 && sent(1) == 20, "{} {}", sent(0), sent(1));
    assert!((0.048..1.0).contains(&report.duration_s), "{}", report.duration_s);
}

#[test]
fn flows_and_streams_wait_for_each_other_on_ports_and_workers_of_their_own() {
    for (virtual_time, asked) in [(",virtual", false), ("", true), ("", false)] {
        let text = format!(
            "[ports]\nA = \"loop:after-flows{virtual_time}\"\nB = \"loop:after-flows{virtual_time}\"\n\
             C = \"loop:after-streams{virtual_time}\"\n\
             [flows]\nclients = \"A\"\nservers = \"B\"\nmax_delay = \"60 s\"\n"
        );
        let template = |name: &str, more: &str| {
            format!(
                "[[template]]\nname = \"{name}\"\nclients = \"16.0.0.0/24\"\nservers = \
                 \"48.0.0.1\"\napp = \"exchange\"\n{more}\n"
            )
        };
        let text = text
            + &template("first", "cps = 1000\nlimit = 30\nlisten = 1001")
            + &template(
                "third",
                "users = 3\nlimit = 300\nlisten = 1003\nafter = \"second\"\nstart = \"10 ms\"",
            )
            + &template(
                "fourth",
                "cps = 500\nlisten = 1004\nafter = \"third\"\nduration = \"50 ms\"",
            )
            + &burst("second", 2, 20, "port = \"C\"\nafter = \"first\"")
            + &burst("fifth", 5, 10, "port = \"C\"\nafter = \"fourth\"");
        let mut session = Session::new(parsed(&text));
        session.options.cores = Some(3);
        session.options.clock = asked.then_some(squall_options::Clock::Virtual);
        let opened = session.open().unwrap_or_else(|e| panic!("{e}\n{text}"));
        let report = opened.start().unwrap().finish().unwrap();
        let load = report.flows.as_ref().unwrap();
        let began: Vec<_> = load
            .templates
            .iter()
            .map(|one| {
                let client = one.roles.client.as_ref().unwrap();
                (one.name.as_str(), client.attempted, client.completed)
            })
            .collect();
        assert_eq!(began, [("first", 30, 30), ("third", 300, 300), ("fourth", 25, 25)]);
        let sent: Vec<_> = report.streams.iter().map(|s| (s.name.as_str(), s.tx_packets)).collect();
        assert_eq!(sent, [("second", 20), ("fifth", 10)]);
        // The parts take at least 29 ms, 20 ms, 10 ms, 48 ms and 9 ms.
        assert!(report.duration_s > 0.115, "{}", report.duration_s);
        assert!(
            report.duration_s < 0.2 || !(asked || virtual_time == ",virtual"),
            "{}",
            report.duration_s
        );
    }
}

#[test]
fn parts_that_would_never_begin_are_refused_with_their_place() {
    let refused = |text: &str| {
        let text = format!("[ports]\nA = \"null:\"\n{text}");
        Profile::parse(&text, "after.toml", Format::Toml).unwrap_err().to_string()
    };
    let one = |more: &str| burst("one", 1, 2, more);
    let two = |more: &str| burst("two", 1, 2, more);
    for (text, why) in [
        (one("after = \"tow\"") + &two(""), "did you mean \"two\"?"),
        (one("after = \"one\""), "stream \"one\" waits for itself"),
        (one("after = \"two\"") + &two("after = \"one\""), "stream \"two\" waits for itself"),
        (
            one("after = \"two\"") + &two("").replace("mode = { burst = 2 }", ""),
            "that stream continues until the run ends",
        ),
        (
            one("after = \"two\"") + "[[replay]]\nname = \"two\"\nfiles = \"x.pcap\"\nloops = 0\n",
            "that replay continues until the run ends",
        ),
        (
            one("after = \"two\"\nself_start = false") + &two("next = \"one\""),
            "remove self_start, or after",
        ),
    ] {
        let error = refused(&text);
        assert!(error.contains(why) && error.contains("after.toml:"), "{text}\n{error}");
    }
}

#[test]
fn parts_whose_predecessors_never_end_are_reported() {
    let text = ports("after-never")
        + &stream("long", "A", "rate = \"1 kpps\"\nmode = { burst = 5000 }")
        + &stream("late", "B", "rate = \"1 kpps\"\nmode = { burst = 5 }\nafter = \"long\"");
    let report = run(&format!("duration = \"100 ms\"\n{text}"));
    assert_eq!(report.streams[1].tx_packets, 0);
    let never = "\"late\" never began: \"long\", which it waits for, did not end before the run";
    assert!(report.notes.iter().any(|note| note == never), "{:?}", report.notes);
}

/// A capture of `count` signed frames from an earlier run that had this seed.
fn earlier(folder: &Folder, seed: u64, count: u64) -> PathBuf {
    let path = folder.0.join(format!("{seed}.pcap"));
    let stream = stream("before", "A", &format!("rate = \"1 kpps\"\nmode = {{ burst = {count} }}"));
    run(&format!("seed = {seed}\n[ports]\nA = \"pcap:{}\"\n{stream}", path.display()));
    path
}

/// Frames of an earlier run are recognized by their key. If the seed and thus the key are the same,
/// they are recognized by their times.
#[test]
fn frames_of_an_earlier_run_are_in_no_stream() {
    let folder = Folder::new("earlier");
    let again = replay("again", "A", &earlier(&folder, 7, 1000), "rate = \"5 kpps\"");
    let now = stream("now", "A", "rate = \"1 kpps\"\nmode = { burst = 300 }");
    for (seed, same_key) in [("", false), ("seed = 7\n", true)] {
        let report = run(&(seed.to_owned() + &ports("mix-earlier") + &now + &again));
        let rx = report.streams[0].rx.as_ref().unwrap();
        assert_eq!((rx.packets, rx.lost, rx.duplicates), (300, 0, 0), "{seed}");
        let latency = rx.latency_ns.as_ref().unwrap();
        assert_eq!(latency.count, 300);
        let b = &report.ports[1].rx;
        assert_eq!((b.packets, b.foreign_packets, b.unsigned_packets), (1300, 1000, 0), "{seed}");
        assert_eq!(b.foreign.len(), 1, "{:?}", b.foreign);
        assert_eq!(b.foreign[0].same_key, same_key, "{:?}", b.foreign);
    }
}

#[test]
fn receive_only_runs_have_the_streams_of_each_sender() {
    let folder = Folder::new("runs");
    let [one, two] = [7, 8].map(|seed| earlier(&folder, seed, 500 + seed));
    let both = replay("one", "A", &one, "rate = \"5 kpps\"")
        + &replay("two", "A", &two, "rate = \"5 kpps\"");
    let report = run(&(ports("mix-runs") + &both));
    let mut seen: Vec<_> = report
        .streams
        .iter()
        .map(|stream| {
            let rx = stream.rx.as_ref().unwrap();
            (rx.packets, rx.lost, rx.duplicates, stream.name.starts_with("stream 1 of run "))
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [(507, 0, 0, true), (508, 0, 0, true)]);
    assert_eq!(report.ports[1].rx.unsigned_packets, 0);
}

/// The check value in signatures differs between runs, but a given seed fixes all octets.
#[test]
fn runs_without_a_stated_seed_have_keys_of_their_own() {
    let plan = |text: &str| Session::new(parsed(text)).open().unwrap().plan().key;
    let real = ports("mix-keys") + &stream("s", "A", "rate = \"1 kpps\"");
    let new: std::collections::BTreeSet<u16> = (0..8).map(|_| plan(&real)).collect();
    assert!(new.len() > 4, "{new:?}");
    let stated = |seed: u64| plan(&format!("seed = {seed}\n{real}"));
    assert_eq!((stated(7), stated(1)), (stated(7), 0));
    assert_ne!(stated(7), stated(8));
    let files = real.replace("loop:mix-keys", "loop:mix-keys,virtual");
    let files = format!("duration = \"1 s\"\n{files}");
    assert_eq!((plan(&files), plan(&files)), (0, 0));
}
