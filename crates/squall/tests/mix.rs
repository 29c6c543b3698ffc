//! Streams, flows and attacks by the same ports, in one run: each has its own figures, and together
//! they are what the ports counted.

use std::path::PathBuf;

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

/// To addresses that are the flows' as well: a signature says whose a frame is.
fn stream(name: &str, port: &str, more: &str) -> String {
    format!(
        "[[stream]]\nname = \"{name}\"\nport = \"{port}\"\npacket = \"eth/ipv4(src=16.0.0.9, \
         dst=48.0.0.1)/udp(dport=80)\"\nsize = 128\nlatency = true\n{more}\n"
    )
}

fn flows() -> String {
    "[flows]\nclients = \"A\"\nservers = \"B\"\npatience = \"60 s\"\n[[template]]\nname = \
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

/// What every mix comes to: nothing is lost between the ends of a link in memory.
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
    let load = report.load.as_ref().unwrap();
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
    // What is neither a stream's nor a flow's.
    let unsigned: u64 = report.ports.iter().map(|port| port.rx.unsigned_packets).sum();
    assert_eq!(unsigned, made.frames);
}

#[test]
fn on_virtual_time_all_leave_by_one_clock_in_the_order_of_their_instants() {
    let folder = Folder::new("virtual");
    let once = || {
        let file = folder.0.join("mix.pcap");
        let text = format!(
            "[ports]\nA = \"pcap:{}\"\n{}{}",
            file.display(),
            stream("background", "A", "rate = \"1 kpps\"\nmode = { burst = 500 }"),
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
        assert_eq!(times.len() as u64, 500 + made.frames);
        assert_eq!(report.ports[0].tx.packets, 500 + made.frames);
        assert!(times.is_sorted(), "frames leave in the order of their instants");
        (times, octets)
    };
    assert!(once() == once(), "the same octets at the same instants");
}

#[test]
fn a_count_ends_all_of_a_mix() {
    let streams = stream("there", "A", "rate = \"5 kpps\"") + &stream("back", "B", "rate = 5000");
    let report = run(&format!("packets = 2000\n{}{streams}{}", ports("mix-count"), flows()));
    let sent: u64 = report.streams.iter().map(|stream| stream.tx_packets).sum();
    assert_eq!(sent, 2000);
    adds_up(&report);
}

/// A run under way.
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
    assert!(refused.contains("counted and not measured"), "{refused}");
    run.stop();
    run.finish().unwrap();
}
