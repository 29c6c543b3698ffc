//! Any octets as the stream of a BGP peer: nothing panics, learnt routes are bounded, and a session
//! that has ended starts again. Input: an octet that selects the settings and how far the session
//! is; then the stream, in pieces after their lengths.
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_bgp::{
    AddPath, EndReason, Family, Input, Learnt, LearntLimit, Output, PeerSettings, Session, State,
    Way,
};
use squall_units::Nanos;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, mut rest)) = data.split_first() else { return };
    let paths = Some(AddPath { send: true, receive: true });
    let settings = |number: u8| PeerSettings {
        asn: 65_000 + if choice & 1 == 0 { 0 } else { u32::from(number) },
        identifier: [192, 0, 2, number].into(),
        families: [true, choice & 2 == 0],
        add_path: if choice & 4 == 0 { [None; 2] } else { [paths; 2] },
        four_octet: choice & 8 == 0,
        restart: (choice & 16 == 0).then_some(10),
        extended_messages: choice & 32 == 0,
        seed: number.into(),
        ..PeerSettings::default()
    };
    let mut session = Session::new(settings(1));
    let mut peer = Session::new(settings(2));
    let mut learnt = Learnt::new(LearntLimit::new(1000)).with_attributes();
    let (mut now, mut out) = (Nanos(1_000_000_000), Vec::new());
    session.handle(now, Input::Start, &mut out, &mut learnt);
    session.handle(now, Input::Opened(Way::Active), &mut out, &mut learnt);
    if choice & 64 == 0 {
        establish(now, &mut session, &mut peer, &mut out, &mut learnt);
        assert_eq!(session.state(), State::Established);
    }
    while let [len, more @ ..] = rest {
        let (octets, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        now = Nanos(now.0 + 1_000_000);
        session.handle(now, Input::Octets(Way::Active, octets), &mut out, &mut learnt);
        assert!(out.len() < 1000, "outputs are bounded by the octets");
        out.clear();
    }
    assert!(learnt.routes(Family::Ipv4) + learnt.routes(Family::Ipv6) <= 1000);
    session.handle(now, Input::Ended(Way::Active, EndReason::Closed), &mut out, &mut learnt);
    assert!(session.state() < State::OpenSent);
    now = session.next_due().expect("it tries again");
    session.handle(now, Input::Timer, &mut out, &mut learnt);
});

fn establish(
    now: Nanos,
    session: &mut Session,
    peer: &mut Session,
    out: &mut Vec<Output>,
    learnt: &mut Learnt,
) {
    let mut answers = Vec::new();
    let mut unused = Learnt::new(LearntLimit::new(0));
    peer.handle(now, Input::Start, &mut answers, &mut unused);
    peer.handle(now, Input::Opened(Way::Passive), &mut answers, &mut unused);
    for _ in 0..2 {
        for output in std::mem::take(out) {
            if let Output::Send(_, message) = output {
                let input = Input::Octets(Way::Passive, &message);
                peer.handle(now, input, &mut answers, &mut unused);
            }
        }
        for output in std::mem::take(&mut answers) {
            if let Output::Send(_, message) = output {
                session.handle(now, Input::Octets(Way::Active, &message), out, learnt);
            }
        }
    }
    out.clear();
}
