//! Runs that would never end, and replays that are longer than any run.

use std::path::PathBuf;

use squall::{
    Error, Format, Profile, Session,
    report::{ReasonCode, Report},
};
use squall_options::RunOptions;
use squall_pcap::{PcapFormat, PcapWriter};

const DAY: u64 = 86_400_000_000_000;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("squall-bounds-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A capture with a frame of 60 octets at each of these times, in nanoseconds.
    fn capture(&self, times: &[u64]) -> PathBuf {
        let path = self.0.join("in.pcap");
        let mut writer = PcapWriter::create(&path, PcapFormat::default()).unwrap();
        for (number, time) in times.iter().enumerate() {
            writer.write(*time, 60, &[number as u8; 60]).unwrap();
        }
        writer.finish().unwrap();
        path
    }

    /// Replays that capture into a file, with these keys in the profile.
    fn replay(&self, keys: &str, options: &str) -> Result<Report, Error> {
        let text = format!(
            "[ports]\nA = \"pcap:{}\"\n[[replay]]\nname = \"r\"\nfiles = {:?}\n{keys}\n",
            self.0.join("out.pcap").display(),
            self.0.join("in.pcap")
        );
        let profile = Profile::parse(&text, "test", Format::Toml)?;
        let options = RunOptions {
            force: Some(true),
            ..RunOptions::from_json(options).expect("options of a run")
        };
        Session::new(profile).with(options)?.open()?.start()?.finish()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn options_hold_however_a_session_is_made() {
    let text =
        "[ports]\nA = \"null:virtual\"\n[[stream]]\npacket = \"eth/ipv4/udp\"\nrate = 1000\n";
    let profile = Profile::parse(text, "test", Format::Toml).unwrap();
    let session = |options: &str| {
        let options = RunOptions::from_json(options).unwrap();
        Session { options, ..Session::new(profile.clone()) }
    };
    let run = session(r#"{ "packets": 7, "seed": 5 }"#).open().unwrap().start().unwrap();
    assert_eq!(run.profile().seed, Some(5));
    assert_eq!(run.finish().unwrap().ports[0].tx.packets, 7);
    for (options, why) in [
        (r#"{ "received_flows": { "by": "sauce" } }"#, "received_flows: by = \"sauce\": expected"),
        (r#"{ "received_flows": { "limit": 0 } }"#, "limit of 0 flows"),
        (r#"{ "capture": { "trigger": "udp" } }"#, "a trigger without pre_trigger"),
        (r#"{ "capture": { "gso_frames": "join" } }"#, "expected \"cut\" or \"keep\""),
    ] {
        let refused = session(options).open().err().expect(options).to_string();
        assert!(refused.contains(why), "{options}: {refused}");
    }
}

#[test]
fn frames_due_after_the_last_instant_of_a_run_are_refused_before_anything_is_sent() {
    let folder = Folder::new("late");
    let start = 1_700_000_000_000_000_000;
    // 34 packets, then a gap, then 143 packets.
    let with_gap = |gap: u64| {
        let time = |i: u64| start + i * 1000 + if i >= 34 { gap } else { 0 };
        folder.capture(&(0..177).map(time).collect::<Vec<_>>())
    };
    let refused = |keys: &str, options: &str| match folder.replay(keys, options) {
        Err(error) => error.to_string(),
        Ok(report) => panic!("{keys}{options}: {:?}", report.sources),
    };
    let all = |keys: &str, options: &str, sent: u64| {
        let report = folder.replay(keys, options).unwrap_or_else(|error| panic!("{error}"));
        let source = &report.sources[0];
        assert_eq!((source.asked, source.sent), (sent, sent), "{keys}{options}");
        assert!(report.verdict.valid, "{:?}", report.verdict);
    };
    with_gap(123 * DAY);
    for keys in ["", "loops = 3", "rate = \"10 pps\"\nstart = \"3600 h\""] {
        let text = refused(keys, "{}");
        assert!(text.contains("106 days"), "{text}");
    }
    let text = refused("", "{}");
    assert!(text.contains("packet 35 of 177 is due 123.0 days after the start"), "{text}");
    assert!(text.contains("--maxsleep"), "{text}");
    // Accepted if fewer frames are requested, or if all are due earlier.
    all("longest_gap = \"1 s\"", "{}", 177);
    all("multiplier = 2", "{}", 177);
    all("rate = \"1 kpps\"", "{}", 177);
    all("limit = 34", "{}", 34);
    all("include = \"1-30\"", "{}", 30);
    all("", r#"{ "packets": 34 }"#, 34);
    all("", r#"{ "duration": "10 s" }"#, 34);
    // The gap after a timestamp of 0 is 53 years.
    folder.capture(&[0, start, start + 1]);
    let text = refused("", "{}");
    assert!(text.contains("packet 2 of 3 is due more than 213 days after the start"), "{text}");
    // The lengths of loops and the delays between them add up.
    with_gap(40 * DAY);
    all("loops = 2", "{}", 354);
    let text = refused("loops = 3", "{}");
    assert!(text.contains("loop 3 of 3 would not end in time"), "{text}");
    let text = refused("loops = 10\nloop_delay = \"1440 h\"\nrate = \"max\"", "{}");
    assert!(text.contains("loop 3 of 10"), "{text}");
    for (keys, options, expected) in [
        ("rate = \"0.00000001 pps\"", "{}", "the rate is too low"),
        ("max_flows = 600000000", "{}", "max_flows = 600000000: expected at most 536870912"),
        ("", r#"{ "duration": "2600 h" }"#, "a run ends after 106 days"),
    ] {
        let text = refused(keys, options);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_capture_too_large_to_be_read_twice_is_not_valid_if_its_end_is_never_due() {
    let folder = Folder::new("large");
    let path = folder.0.join("in.pcap");
    let mut writer = PcapWriter::create(&path, PcapFormat::default()).unwrap();
    const LAST: u64 = 17 << 10;
    for i in 0..LAST + 100 {
        let time = i * 1000 + if i >= LAST { 123 * DAY } else { 0 };
        writer.write(time, 1000, &[0; 1000]).unwrap();
    }
    writer.finish().unwrap();
    let report = folder.replay("", "{}").unwrap();
    let source = &report.sources[0];
    assert_eq!((source.asked, source.sent), (LAST + 100, LAST));
    assert_eq!(source.not_sent["after_the_end"], 100);
    assert!(!report.verdict.valid && report.verdict.has(ReasonCode::NotDone));
    let fault = report.replays[0].fault.as_ref().expect("it is the exit status");
    assert!(fault.contains("100 of 17508 packets are due more than 106 days"), "{fault}");
    // The second loop would begin later than a run can last.
    let report = folder.replay("loops = 4", "{}").unwrap();
    assert_eq!(report.sources[0].asked, 4 * (LAST + 100));
}

#[test]
fn a_program_that_sends_until_a_time_has_passed_ends_on_virtual_time() {
    // The octets that fit on the link in 50 ms, plus those in its queue.
    for (speed, least, most) in
        [("", 58_000_000, 66_000_000), (",speed=1Gbps", 5_800_000, 6_600_000)]
    {
        let text = format!(
            "duration = \"3 s\"\n[ports]\nA = \"loop:endless,virtual{speed}\"\nB = \
             \"loop:endless,virtual{speed}\"\n[flows]\nclients = \"A\"\nservers = \
             \"B\"\n[[template]]\nname = \"endless\"\nclients = \"16.0.0.1\"\nservers = \
             \"48.0.0.1\"\nlisten = 80\ncps = 1\nlimit = 1\nclient = ['send \"x\"', \
             \"wait_peer_close\"]\nserver = [\"recv 1\", \"set t clock\", \"label again\", 'send \
             \"${{repeat:100000:x}}\"', \"flush\", \"jump again if elapsed t < 50 ms\"]\n"
        );
        let profile = Profile::parse(&text, "test", Format::Toml).unwrap_or_else(|e| panic!("{e}"));
        let report = Session::new(profile).open().unwrap().start().unwrap().finish().unwrap();
        let client = report.flows.as_ref().unwrap().total.client.as_ref().unwrap();
        assert_eq!((client.attempted, client.completed), (1, 1), "{:?}", client.failed);
        let octets = report.ports[1].tx.octets;
        assert!((least..most).contains(&octets), "{speed}: {octets}");
    }
}
