//! Attacks in a profile: the contents of the capture and of the labels.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

use squall::{Error, Format, Profile, Session, report::Report};

const RULES: &str = r#"
alert http $EXTERNAL_NET any -> $HOME_NET any (msg:"T page"; flow:established,to_server; http.uri; content:"/squall/page"; sid:1; rev:1;)
alert tcp $HOME_NET any -> $EXTERNAL_NET 7000 (msg:"T word"; flow:established,to_server; content:"kookaburra"; sid:2; rev:3;)
alert udp any any -> any 9000 (msg:"T datagram"; content:"|01 02 03|"; depth:3; sid:3; rev:1;)
alert icmp any any -> any any (msg:"T echo"; itype:8; content:"squall"; sid:4; rev:1;)
alert tcp any any -> any any (msg:"T never"; content:"a"; depth:1; content:"b"; depth:1; sid:5; rev:1;)
this is no rule
"#;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("squall-attack-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("t.rules"), RULES).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn profile(folder: &Folder, out: &str, more: &str) -> Profile {
    let text = format!(
        "[ports]\nA = \"pcap:{}\"\n[[attack]]\nrules = {:?}\n{more}",
        folder.file(out).display(),
        folder.file("t.rules")
    );
    Profile::parse(&text, "test", Format::Toml).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn run(folder: &Folder, out: &str, more: &str) -> Result<(Report, Vec<Row>), Error> {
    let labels = folder.file("labels.csv");
    let session = Session {
        options: squall::RunOptions {
            labels: Some(labels.clone()),
            force: Some(true),
            ..Default::default()
        },
        ..Session::new(profile(folder, out, more))
    };
    let report = session.open()?.start()?.finish()?;
    Ok((report, rows(&labels)))
}

/// A row of the labels, by column name.
type Row = std::collections::HashMap<String, String>;

fn rows(path: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let header = lines.next().unwrap();
    lines.map(|line| header.iter().cloned().zip(line).collect()).collect()
}

/// Time in nanoseconds, source and destination address of each IPv4 frame.
fn frames(path: &Path) -> Vec<(u64, IpAddr, IpAddr)> {
    let mut reader = squall_pcap::CaptureReader::open(path).unwrap();
    let mut all = Vec::new();
    while let Some(packet) = reader.next().unwrap() {
        let address = |at: usize| {
            IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(&packet.data[at..at + 4]).unwrap()))
        };
        all.push((packet.time_ns, address(26), address(30)));
    }
    all
}

#[test]
fn each_rule_has_an_attack_of_its_own_hosts_and_a_label_that_says_when() {
    let folder = Folder::new("labels");
    let (report, rows) = run(&folder, "a.pcap", "rate = 10\n").unwrap();
    let one = &report.attacks[0];
    assert_eq!((one.rules, one.chosen, one.solved, one.attacks), (5, 5, 4, 4));
    assert_eq!(
        (one.problems.values().sum::<u64>(), one.unsolved.get("contradiction")),
        (1, Some(&1))
    );
    assert!(one.problems_first[0].contains("t.rules:7"), "{:?}", one.problems_first);
    assert_eq!(one.unsolved_rules[0].sid, 5);
    let sent = frames(&folder.file("a.pcap"));
    assert_eq!((sent.len() as u64, report.ports[0].tx.packets), (one.frames, one.frames));
    assert_eq!(
        rows.iter().map(|row| row["sid"].as_str()).collect::<Vec<_>>(),
        ["1", "2", "3", "4"]
    );
    let nanos = |text: &str| text.replace('.', "").parse::<u64>().unwrap();
    for (number, row) in rows.iter().enumerate() {
        let (client, server): (IpAddr, IpAddr) =
            (row["source"].parse().unwrap(), row["destination"].parse().unwrap());
        let of: Vec<_> = sent
            .iter()
            .filter(|(_, from, to)| [(client, server), (server, client)].contains(&(*from, *to)))
            .collect();
        assert_eq!(of.len().to_string(), row["frames"], "{row:?}");
        assert_eq!((nanos(&row["begin"]), nanos(&row["end"])), (of[0].0, of[of.len() - 1].0));
        // One attack every tenth of a second.
        assert_eq!(of[0].0, 1_700_000_000_000_000_000 + 100_000_000 * number as u64);
    }
}

#[test]
fn the_same_seed_gives_the_same_octets_and_another_gives_others() {
    let folder = Folder::new("seed");
    let octets = |out: &str, more: &str| {
        run(&folder, out, more).unwrap();
        std::fs::read(folder.file(out)).unwrap()
    };
    let one = octets("1.pcap", "shuffle = true\nrepeat = 3\n");
    assert_eq!(one, octets("2.pcap", "shuffle = true\nrepeat = 3\n"));
    let mut other = profile(&folder, "3.pcap", "shuffle = true\nrepeat = 3\n");
    other.seed = Some(2);
    Session::new(other).open().unwrap().start().unwrap().finish().unwrap();
    assert_ne!(one, std::fs::read(folder.file("3.pcap")).unwrap());
}

#[test]
fn near_misses_follow_their_attacks_and_owe_nothing() {
    let folder = Folder::new("near");
    let (report, rows) = run(&folder, "n.pcap", "near_miss = \"also\"\nsid = \"1-3\"\n").unwrap();
    assert_eq!((report.attacks[0].attacks, report.attacks[0].near_misses), (3, 3));
    let kinds: Vec<_> = rows
        .iter()
        .map(|row| (row["sid"].as_str(), row["kind"].as_str(), row["alerts"].as_str()))
        .collect();
    assert_eq!(kinds[..2], [("1", "attack", "1"), ("1", "near_miss", "0")]);
    let (report, _) = run(&folder, "o.pcap", "near_miss = \"only\"\nsid = \"1-3\"\n").unwrap();
    assert_eq!((report.attacks[0].attacks, report.attacks[0].near_misses), (0, 3));
}

#[test]
fn chosen_rules_are_played_on_the_named_hosts() {
    let folder = Folder::new("hosts");
    let more =
        "msg = \"(?i)WORD\"\ninside = \"10.9.8.7\"\noutside = \"203.0.113.0/24\"\nrepeat = 5\n";
    let (report, rows) = run(&folder, "h.pcap", more).unwrap();
    assert_eq!((report.attacks[0].chosen, report.attacks[0].attacks), (1, 5));
    for row in &rows {
        assert_eq!(row["source"], "10.9.8.7");
        assert!(row["destination"].starts_with("203.0.113."), "{row:?}");
    }
    let (report, rows) = run(&folder, "6.pcap", "sid = 3\nfamily = 6\n").unwrap();
    assert_eq!(report.attacks[0].attacks, 1);
    assert!(rows[0]["source"].contains(':'), "{rows:?}");
}

#[test]
fn attacks_that_begin_later_leave_when_their_labels_say() {
    let folder = Folder::new("later");
    let (_, rows) = run(&folder, "later.pcap", "start = \"2 s\"\n").unwrap();
    let first = frames(&folder.file("later.pcap"))[0].0;
    assert_eq!((first, rows.len()), (1_700_000_002_000_000_000, 4));
    assert_eq!(rows[0]["begin"], "1700000002.000000000");
}

#[test]
fn a_background_goes_on_until_the_attacks_end_and_its_flows_are_benign() {
    let folder = Folder::new("background");
    let clean = format!(
        "duration = \"100 ms\"\n[ports]\nA = \"pcap:{}\"\n[[stream]]\npacket = \
         \"eth/ipv4(src=10.5.0.1,dst=10.6.0.1)/udp(sport=5,dport=6)\"\nrate = 1000\nsize = 200\n",
        folder.file("clean.pcap").display()
    );
    Session::new(Profile::parse(&clean, "clean", Format::Toml).unwrap())
        .open()
        .unwrap()
        .start()
        .unwrap()
        .finish()
        .unwrap();
    let more = format!("rate = 10\nrepeat = 10\nbackground = {:?}\n", folder.file("clean.pcap"));
    let (report, rows) = run(&folder, "mixed.pcap", &more).unwrap();
    let one = &report.attacks[0];
    let sent = frames(&folder.file("mixed.pcap"));
    assert!(sent.windows(2).all(|pair| pair[0].0 <= pair[1].0), "in the order of time");
    let clean = sent.iter().filter(|(_, from, _)| from.to_string() == "10.5.0.1").count() as u64;
    // Four rules ten times at ten attacks per second take four seconds, the last of which is
    // incomplete.
    assert!((3_800..=4_100).contains(&clean), "{clean}");
    assert_eq!(report.ports[0].tx.packets, one.frames + clean);
    let benign: Vec<_> = rows.iter().filter(|row| row["kind"] == "benign").collect();
    assert_eq!(
        (benign.len(), benign[0]["source"].as_str(), benign[0]["alerts"].as_str()),
        (1, "10.5.0.1", "0")
    );
    assert_eq!(benign[0]["frames"], clean.to_string(), "of all loops");
    let numbers: std::collections::HashSet<_> = rows.iter().map(|row| &row["attack"]).collect();
    assert_eq!(numbers.len(), rows.len(), "each conversation has a number of its own");

    let more =
        format!("share = \"10 %\"\nrepeat = 10\nbackground = {:?}\n", folder.file("clean.pcap"));
    let (report, _) = run(&folder, "share.pcap", &more).unwrap();
    let (attacks, all) = (report.attacks[0].octets as f64, report.ports[0].tx.octets as f64);
    assert!((0.08..0.12).contains(&(attacks / all)), "{attacks} of {all}");
}

#[test]
fn a_run_that_ends_early_owes_no_alerts_of_what_it_cut_short() {
    let folder = Folder::new("early");
    let text = profile(&folder, "e.pcap", "rate = 10\n").to_toml();
    let mut profile = Profile::parse(&text, "test", Format::Toml).unwrap();
    profile.stop.duration = Some("100500 us".parse().unwrap());
    let labels = folder.file("labels.csv");
    let session = Session {
        options: squall::RunOptions { labels: Some(labels.clone()), ..Default::default() },
        ..Session::new(profile)
    };
    session.open().unwrap().start().unwrap().finish().unwrap();
    let rows = rows(&labels);
    let owed: Vec<_> =
        rows.iter().map(|row| (row["sid"].as_str(), row["alerts"].as_str())).collect();
    assert_eq!(owed, [("1", "1"), ("2", "0")]);
}

/// Runs attacks from one port to the other, with the options `device` on the second port.
fn through(
    folder: &Folder,
    name: &str,
    device: &str,
    rules: &str,
    more: &str,
) -> (Report, Vec<Row>) {
    std::fs::write(folder.file("d.rules"), rules).unwrap();
    let text = format!(
        "[ports]\nA = \"loop:{name}-{pid},virtual\"\nB = \
         \"loop:{name}-{pid},virtual{device}\"\n[[attack]]\nrules = {:?}\nport = \"A\"\nport2 = \
         \"B\"\n{more}",
        folder.file("d.rules"),
        pid = std::process::id()
    );
    let labels = folder.file("labels.csv");
    let profile = Profile::parse(&text, "test", Format::Toml)
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    let session = Session {
        options: squall::RunOptions { labels: Some(labels.clone()), ..Default::default() },
        ..Session::new(profile)
    };
    (session.open().unwrap().start().unwrap().finish().unwrap(), rows(&labels))
}

const THROUGH: &str = r#"
alert udp $EXTERNAL_NET any -> $HOME_NET 111 (msg:"T portmap"; content:"|00 01 86 A0|"; sid:1; rev:1;)
alert tcp $EXTERNAL_NET any -> $HOME_NET 7000 (msg:"T word"; flow:established,to_server; content:"kookaburra"; sid:2; rev:1;)
alert icmp $EXTERNAL_NET any -> $HOME_NET any (msg:"T echo"; itype:8; content:"squall"; sid:3; rev:1;)
alert tcp $EXTERNAL_NET any -> $HOME_NET 7001 (msg:"T flags"; flags:SF; sid:4; rev:1;)
"#;

#[test]
fn octets_that_arrive_decide_whether_an_attack_passed() {
    let folder = Folder::new("through");
    let passage = |name: &str, device: &str, more: &str| {
        let (report, _) = through(&folder, name, device, THROUGH, more);
        report.attacks[0].passage.clone().unwrap()
    };
    let open = passage("open", "", "live = false\nrepeat = 3\n");
    assert_eq!(
        (open.conversations, open.as_frames, open.passed, open.altered),
        (12, 12, 12, 0),
        "{open:?}"
    );
    assert!(
        open.blocked.is_empty()
            && open.rules.iter().all(|rule| (rule.attacks, rule.passed) == (3, 3))
    );
    // No frame reaches the servers, but the servers' frames arrive.
    let closed = passage("closed", ",drop=1", "live = false\nrepeat = 3\n");
    assert_eq!((closed.conversations, closed.passed), (12, 0), "{closed:?}");
    assert_eq!(closed.blocked.values().sum::<u64>(), 12, "{closed:?}");
    assert!(closed.blocked["not_received"] >= 6, "{closed:?}");
    assert!(closed.rules.iter().all(|rule| (rule.passed, rule.blocked) == (0, 3)), "{closed:?}");
    // One bit of each frame is flipped.
    let corrupt = passage("corrupt", ",corrupt=1", "live = false\nsid = 1\nrepeat = 9\n");
    assert!(corrupt.passed < 9 || corrupt.altered > 0, "{corrupt:?}");
    // Both ends play a live conversation, and there are frames outside conversations.
    let live = passage("live", "", "sid = \"1-2\"\nrepeat = 2\n");
    assert_eq!((live.conversations, live.as_frames, live.passed), (4, 0, 4), "{live:?}");
}

#[test]
fn labels_promise_what_is_seen_of_the_frames_as_they_are_sent() {
    let folder = Folder::new("promise");
    std::fs::write(
        folder.file("t.rules"),
        r#"
alert tcp $EXTERNAL_NET any -> $HOME_NET 7000 (msg:"T stream"; flow:established,to_server; content:"kookaburra"; sid:1;)
alert tcp-pkt $EXTERNAL_NET any -> $HOME_NET 7000 (msg:"T packet"; flow:established,to_server; content:"kookaburra"; sid:2;)
alert udp $EXTERNAL_NET any -> $HOME_NET 7000 (msg:"T datagram"; content:"kookaburra"; dsize:40; sid:3;)
"#,
    )
    .unwrap();
    let owed = |more: &str| -> (u64, Vec<(String, String)>) {
        let (report, rows) = run(&folder, "p.pcap", more).unwrap();
        for row in &rows {
            assert_eq!(row["alerts"] == "0", row["note"].contains("not matched"), "{row:?}");
        }
        (
            report.attacks[0].unseen,
            rows.iter().map(|row| (row["sid"].clone(), row["alerts"].clone())).collect(),
        )
    };
    let all = |alerts: [&str; 3]| {
        ["1", "2", "3"].map(String::from).into_iter().zip(alerts.map(String::from)).collect()
    };
    assert_eq!(owed(""), (0, all(["1", "1", "1"])));
    // No single packet has the whole pattern; streams are reassembled.
    assert_eq!(owed("evasion = \"segments=8\"\n"), (1, all(["1", "0", "1"])));
    // Headers of 8 octets plus 40: the last fragment is overlapped completely, so the receiver
    // never learns where the packet ends.
    assert_eq!(owed("evasion = \"fragments-overlap=40\"\nsid = 3\n").0, 1);
    assert_eq!(owed("evasion = \"fragments=40\"\nsid = 3\n").0, 0);
    assert_eq!(owed("evasion = \"fragments-overlap=40\"\nsid = 3\nengine = \"snort2\"\n").0, 0);
}

#[test]
fn rules_that_the_named_engine_does_not_load_are_refused() {
    let folder = Folder::new("engine");
    for (engine, refused, version) in
        [("snort2", 1, "Snort 2 does not load"), ("snort3", 3, "Snort 3 does not load")]
    {
        let (report, rows) = run(&folder, "out.pcap", &format!("engine = {engine:?}\n")).unwrap();
        let attack = &report.attacks[0];
        assert_eq!(attack.problems["not_loaded"], refused, "{:?}", attack.problems_first);
        let named = attack.problems_first.iter().filter(|text| text.contains(version)).count();
        assert_eq!(named as u64, refused, "{:?}", attack.problems_first);
        assert!(rows.iter().all(|row| row["sid"] != "1"), "{rows:?}");
    }
    for engine in ["suricata7", "suricata8"] {
        let (report, rows) = run(&folder, "out.pcap", &format!("engine = {engine:?}\n")).unwrap();
        assert!(!report.attacks[0].problems.contains_key("not_loaded"));
        assert!(rows.iter().any(|row| row["sid"] == "1"), "{rows:?}");
    }
    let text = "[ports]\nA = \"null:\"\n[[attack]]\nrules = \"x\"\nengine = \"snort\"\n";
    let error = Profile::parse(text, "test", Format::Toml).unwrap_err().to_string();
    assert!(error.contains("is not an engine") && error.contains("snort2"), "{error}");
}

#[test]
fn templates_have_labels_of_no_rule() {
    let folder = Folder::new("template");
    let text = format!(
        "[ports]\nA = \"pcap:{}\"\n[[attack]]\nname = \"scan\"\ntemplate = \"syn-scan\"\noptions \
         = {{ ports = \"1-100\" }}\noutside = \"198.18.1.1\"\ninside = \
         \"10.0.0.1-10.0.0.2\"\nrate = 1000\n",
        folder.file("s.pcap").display()
    );
    let labels = folder.file("labels.csv");
    let profile = Profile::parse(&text, "test", Format::Toml).unwrap();
    let report = Session {
        options: squall::RunOptions { labels: Some(labels.clone()), ..Default::default() },
        ..Session::new(profile)
    }
    .open()
    .unwrap()
    .start()
    .unwrap()
    .finish()
    .unwrap();
    assert_eq!((report.attacks[0].attacks, report.ports[0].tx.packets), (200, 400));
    let rows = rows(&labels);
    assert_eq!(
        (rows.len(), rows[199]["sid"].as_str(), rows[199]["name"].as_str()),
        (200, "0", "syn-scan")
    );
    let (first, last) =
        (frames(&folder.file("s.pcap"))[0].0, rows[199]["begin"].parse::<f64>().unwrap());
    assert!((last - first as f64 / 1e9 - 0.199).abs() < 1e-3);
}

#[test]
fn errors_have_their_places() {
    let folder = Folder::new("mistakes");
    let error_of = |more: &str| match run(&folder, "m.pcap", more) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{more} was taken"),
    };
    for (more, expected) in [
        ("sid = \"x\"\n", "\"x\" is not a sid"),
        ("sid = 99\n", "none of 5 rules is selected"),
        ("msg = \"(\"\n", "msg:"),
        ("evasion = \"segment=8\"\n", "segments"),
        ("evasion = \"segments=0\"\n", "1 to 1460"),
        ("inside = \"10.0.0.300\"\n", "10.0.0.300"),
        ("wrap = \"mpls 3\"\n", "expected \"vlan 7\""),
        ("background = \"nowhere.pcap\"\n", "nowhere.pcap"),
    ] {
        let text = error_of(more);
        assert!(text.contains(expected) && text.contains("test:"), "{more} gives {text}");
    }
    let twice = "[ports]\nA = \"af_packet:eth7\"\nB = \"af_packet:eth7\"\n[[attack]]\nrules = \
                 RULES\nport = \"A\"\nport2 = \"B\"\n";
    let twice = twice.replace("RULES", &format!("{:?}", folder.file("t.rules")));
    let error = Session::new(Profile::parse(&twice, "test", Format::Toml).unwrap())
        .plan_only()
        .map(|_| ())
        .unwrap_err();
    assert!(error.to_string().contains("on the same interface"), "{error}");
    let error = run(&Folder(folder.file("none")), "m.pcap", "").unwrap_err();
    assert!(matches!(error, Error::Usage(_)), "{error}");
}
