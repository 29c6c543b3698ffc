use super::*;
use driving::InProcess;
use squall_profile::Format;

fn here() -> InProcess {
    InProcess(Duration::from_millis(50))
}

/// Number of packets sent, and number received.
#[derive(Clone, Debug, Default, PartialEq)]
struct Packets(u64, u64);

impl Counts for Packets {
    fn add(&mut self, by: &Counted<'_>) {
        self.0 += by.stream.tx_packets;
        self.1 += by.stream.rx.iter().map(|(_, seen)| seen.packets).sum::<u64>();
    }
}

/// One stream per name, with its number of packets (0: endless).
fn session(link: &str, streams: &[(&str, u64)]) -> Session {
    let mut text = format!("[ports]\nA = \"loop:{link}\"\nB = \"loop:{link}\"\n");
    for (name, packets) in streams {
        text += &format!(
            "[[stream]]\nname = \"{name}\"\nport = \"A\"\npacket = \"eth/ipv4/udp\"\nrate = \"2 \
             kpps\"\nsize = 128\nlatency = true\n"
        );
        if *packets > 0 {
            text += &format!("mode = {{ burst = {packets} }}\n");
        }
    }
    Session::new(Profile::parse(&text, "test", Format::Toml).expect("a profile"))
}

fn until(control: &Control<u8, Packets>, is: impl Fn(&Seen<u8>) -> bool) {
    let late = Instant::now() + Duration::from_secs(60);
    while !control.see(Duration::ZERO).is_some_and(|seen| is(&seen)) {
        assert!(Instant::now() < late, "it takes too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn counters_survive_and_a_burst_is_sent_once() {
    let mut control = Control::<u8, Packets>::new(2);
    control.count("burst", 0, 1);
    control.count("endless", 0, 2);
    let first = session("control-survives", &[("burst", 50), ("endless", 0)]);
    // After a restart, counters continue for streams with the same names.
    control.restart(&mut here(), "test", first).expect("it starts");
    until(&control, |seen| control.member(1, Some(seen)) == Packets(50, 50));
    control.count("other", 0, 3);
    let all = [("burst", 50), ("endless", 0), ("other", 20)];
    let second = session("control-survives", &all);
    let endless = control.member(2, control.see(Duration::ZERO).as_ref()).0;
    control.restart(&mut here(), "test", second.clone()).expect("it starts");
    until(&control, |seen| {
        control.member(3, Some(seen)) == Packets(20, 20)
            && control.member(2, Some(seen)).0 > endless + 100
    });
    assert!(control.change(second.profile).expect("it can"), "to what it is");
    assert_eq!(control.sent(Duration::ZERO, ["burst", "other"].into_iter()), 70);
    let outcome = control.end().expect("it ends");
    outcome.expect("it ends well");
    assert_eq!(control.member(1, None), Packets(50, 50));
    let port = control.port(0, None).totals.tx_packets;
    assert_eq!(port, 70 + control.member(2, None).0);
    control.forget(|member| member == 1);
    assert_eq!(control.member(1, None), Packets(0, 0));
}

#[test]
fn streams_that_begin_anew_are_sent_whole() {
    let mut control = Control::<u8, Packets>::new(2);
    for _ in 0..2 {
        let session = session("control-anew", &[("burst", 30)]);
        control.begin(&mut here(), "test", session).expect("it starts");
        control.count("burst", 0, 1);
        let late = Instant::now() + Duration::from_secs(60);
        while control.outcome().is_none() {
            assert!(Instant::now() < late, "it takes too long");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    control.ended().expect("it is over").expect("it ended well");
    assert!(control.ended().is_none() && control.see(Duration::ZERO).is_none());
    assert_eq!(control.member(1, None), Packets(60, 60));
}

#[test]
fn a_run_that_is_over_changes_no_more() {
    let mut control = Control::<u8, Packets>::new(2);
    let one = session("control-over", &[("burst", 5)]);
    assert!(!control.change(one.profile.clone()).expect("no run is no error"));
    control.begin(&mut here(), "test", one.clone()).expect("it starts");
    while !control.is_over() {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(!control.change(one.profile).expect("neither is one that is over"));
}

#[test]
fn a_name_is_given_once_in_a_run() {
    let mut control = Control::<u8, Packets>::new(2);
    let session = session("control-names", &[("web", 0), ("web (2)", 0)]);
    control.begin(&mut here(), "test", session).expect("it starts");
    let names = [(); 3].map(|()| control.fresh_name("web"));
    assert_eq!(names, ["web (3)", "web (4)", "web (5)"]);
    control.end();
}
