use proptest::prelude::*;

use super::*;
use crate::log::Log;

const SECOND: Nanos = Nanos::SECOND;

fn seconds(seconds: u64) -> Nanos {
    Nanos(seconds * SECOND.0)
}

fn own() -> PeerSettings {
    PeerSettings {
        asn: 65_001,
        identifier: [192, 0, 2, 1].into(),
        families: [true, true],
        ipv4: Some([192, 0, 2, 1].into()),
        seed: 7,
        ..PeerSettings::default()
    }
}

/// The OPEN of the peer.
fn peer_open() -> Open {
    Open {
        asn: 65_002,
        hold: 90,
        identifier: [192, 0, 2, 2].into(),
        capabilities: Capabilities {
            families: [true, true],
            asn: Some(65_002),
            refresh: true,
            ..Capabilities::default()
        },
    }
}

/// A session, and its outputs since the last call of [`Test::done`].
struct Test {
    session: Session,
    now: Nanos,
    out: Vec<Output>,
    log: Log,
}

impl Test {
    fn new(settings: PeerSettings) -> Self {
        Self {
            session: Session::new(settings),
            now: seconds(1000),
            out: Vec::new(),
            log: Log::default(),
        }
    }

    fn give(&mut self, input: Input<'_>) -> &mut Self {
        self.session.handle(self.now, input, &mut self.out, &mut self.log);
        self
    }

    fn octets(&mut self, way: Way, octets: &[u8]) -> &mut Self {
        self.give(Input::Octets(way, octets))
    }

    /// Lets the session open a connection, and opens the session with the peer's OPEN.
    fn establish(settings: PeerSettings, open: &Open) -> Self {
        let mut test = Self::new(settings);
        test.give(Input::Start).come_up(Way::Active, open);
        test
    }

    fn come_up(&mut self, way: Way, open: &Open) -> &mut Self {
        self.give(Input::Opened(way)).octets(way, &open.octets());
        self.octets(way, &message::keepalive());
        assert_eq!(self.session.state(), State::Established, "{:?}", self.session.last_error());
        self
    }

    /// Runs the next timer.
    fn timer(&mut self) -> &mut Self {
        self.now = self.session.next_due().expect("a timer runs");
        self.give(Input::Timer)
    }

    /// The outputs of the session, as text.
    fn done(&mut self) -> Vec<String> {
        let text = |output: Output| match output {
            Output::Connect => "connect".to_owned(),
            Output::Send(way, message) => {
                let body = &message[HEADER..];
                let what = match message[18] {
                    1 => "OPEN".to_owned(),
                    3 => format!("NOTIFICATION {}/{}", body[0], body[1]),
                    4 => "KEEPALIVE".to_owned(),
                    5 => format!("REFRESH {}", body[2]),
                    kind => format!("{kind}"),
                };
                format!("{what} {way:?}")
            }
            Output::Feed { family, end } => format!("feed {family:?} {}", end[18]),
            Output::Refeed { family, begin, end } => {
                let subtypes = [begin, end].map(|mark| mark.get(HEADER + 2).copied());
                format!("refeed {family:?} {subtypes:?}")
            }
            Output::Unfeed => "unfeed".to_owned(),
            Output::Close(way) => format!("close {way:?}"),
            Output::Abort(way) => format!("abort {way:?}"),
        };
        std::mem::take(&mut self.out).into_iter().map(text).collect()
    }

    fn learnt(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log.0)
    }
}

/// An UPDATE that announces 10.0.0.0/8 from the peer, or withdraws it.
fn update(announce: bool) -> Vec<u8> {
    let attributes = [0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xea, 0x40, 3, 4, 192, 0, 2, 2];
    let mut out = message::begin(Kind::Update);
    match announce {
        true => {
            out.extend([0, 0, 0, attributes.len() as u8]);
            out.extend(attributes);
            out.extend([8, 10]);
        }
        false => out.extend([0, 2, 8, 10, 0, 0]),
    }
    message::finish(out)
}

#[test]
fn a_session_comes_up_and_announces_the_routes_of_its_families() {
    let mut test = Test::new(own());
    assert_eq!(test.session.state(), State::Idle);
    assert_eq!(test.give(Input::Start).done(), ["connect"]);
    assert_eq!(test.session.state(), State::Connect);
    assert_eq!(test.give(Input::Opened(Way::Active)).done(), ["OPEN Active"]);
    assert_eq!(test.session.state(), State::OpenSent);
    assert_eq!(test.octets(Way::Active, &peer_open().octets()).done(), ["KEEPALIVE Active"]);
    assert_eq!(test.session.state(), State::OpenConfirm);
    let done = test.octets(Way::Active, &message::keepalive()).done();
    assert_eq!(done, ["feed Ipv4 2", "feed Ipv6 2"]);
    assert_eq!(test.session.established_at(), Some(test.now));
    test.octets(Way::Active, &update(true)).octets(Way::Active, &update(false));
    assert_eq!(test.learnt(), ["+10.0.0.0/8#0 192.0.2.2 [65002]", "-10.0.0.0/8#0"]);
    let counters = test.session.counters();
    assert_eq!((counters.ups, counters.downs), (1, 0));
    let expected = MessageCounters { opens: 1, updates: 2, keepalives: 1, ..Default::default() };
    assert_eq!(counters.received, expected);
}

#[test]
fn an_open_has_the_settings_of_the_session() {
    let settings = PeerSettings {
        asn: 4_200_000_001,
        hold: 30,
        restart: Some(120),
        add_path: [Some(AddPath { send: true, receive: true }), None],
        extended_messages: false,
        ..own()
    };
    let mut test = Test::new(settings);
    test.give(Input::Start).give(Input::Opened(Way::Active));
    let Some(Output::Send(Way::Active, message)) = test.out.last() else { panic!("an OPEN") };
    let open = Open::read(&message[HEADER..]).unwrap();
    let capabilities = Capabilities {
        families: [true, true],
        other_families: false,
        asn: Some(4_200_000_001),
        add_path: settings.add_path,
        restart: Some(RestartCapability {
            restarting: false,
            seconds: 120,
            families: [Some(false); 2],
        }),
        refresh: true,
        enhanced_refresh: true,
        extended_messages: false,
    };
    let expected =
        Open { asn: 4_200_000_001, hold: 30, identifier: settings.identifier, capabilities };
    assert_eq!(open, expected);
}

#[test]
fn both_sides_agree_on_what_both_offer() {
    let settings = PeerSettings {
        add_path: [Some(AddPath { send: true, receive: true }); 2],
        hold: 180,
        ..own()
    };
    let mut open = peer_open();
    open.capabilities.add_path = [
        Some(AddPath { send: true, receive: false }),
        Some(AddPath { send: false, receive: true }),
    ];
    open.capabilities.extended_messages = true;
    let test = Test::establish(settings, &open);
    let expected = Negotiated {
        families: [true, true],
        add_path_send: [false, true],
        add_path_receive: [true, false],
        four_octet: true,
        is_internal: false,
        most: MOST_EXTENDED,
        hold: 90,
        refresh: true,
        enhanced_refresh: false,
        peer_asn: 65_002,
        peer_identifier: [192, 0, 2, 2].into(),
    };
    assert_eq!(test.session.established(), Some((Way::Active, &expected)));

    // A peer without capabilities: IPv4, numbers of two octets.
    let old = Open { capabilities: Capabilities::default(), ..peer_open() };
    let test = Test::establish(settings, &old);
    let expected = Negotiated { hold: 90, peer_asn: 65_002, ..expected };
    let expected = Negotiated {
        families: [true, false],
        add_path_send: [false; 2],
        add_path_receive: [false; 2],
        four_octet: false,
        refresh: false,
        most: MOST,
        ..expected
    };
    assert_eq!(test.session.established(), Some((Way::Active, &expected)));
}

#[test]
fn opens_with_unacceptable_values_are_refused() {
    let strict = PeerSettings { peer_asn: Some(65_002), ..own() };
    let with = |change: &dyn Fn(&mut Open)| {
        let mut open = peer_open();
        change(&mut open);
        open
    };
    for (what, open, expected) in [
        ("another number", with(&|open| open.capabilities.asn = Some(65_003)), "2/2"),
        ("the number 0", with(&|open| open.capabilities.asn = Some(0)), "2/2"),
        ("no identifier", with(&|open| open.identifier = [0; 4].into()), "2/3"),
        ("a hold time of 1 s", with(&|open| open.hold = 1), "2/6"),
        ("a hold time of 2 s", with(&|open| open.hold = 2), "2/6"),
    ] {
        let mut test = Test::new(strict);
        test.give(Input::Start).give(Input::Opened(Way::Active)).done();
        let done = test.octets(Way::Active, &open.octets()).done();
        let notification = format!("NOTIFICATION {expected} Active");
        assert_eq!(done, [notification, "close Active".to_owned()], "{what}");
        assert_eq!(test.session.state(), State::Idle, "{what}");
    }
    // RFC 6286 section 2.2: internal peers need different identifiers, others do not.
    let same = with(&|open| open.identifier = own().identifier);
    Test::establish(own(), &same);
    let mut test = Test::new(own());
    test.give(Input::Start).give(Input::Opened(Way::Active));
    let mut internal = same;
    internal.capabilities.asn = Some(65_001);
    test.octets(Way::Active, &internal.octets());
    assert_eq!(test.session.last_error(), Some(&LastError::Sent(Notification::new(2, 3))));
    let mut test = Test::new(PeerSettings { is_external: true, ..own() });
    test.give(Input::Start).give(Input::Opened(Way::Active));
    test.octets(Way::Active, &internal.octets());
    assert_eq!(test.session.last_error(), Some(&LastError::Sent(Notification::new(2, 2))));
}

#[test]
fn a_peer_without_a_common_family_learns_which_are_missing() {
    let mut open = peer_open();
    open.capabilities.families = [true, false];
    let mut test = Test::new(PeerSettings { families: [false, true], ..own() });
    test.give(Input::Start).give(Input::Opened(Way::Active));
    test.octets(Way::Active, &open.octets());
    let expected = Notification { code: 2, subcode: 7, data: vec![1, 4, 0, 2, 0, 1] };
    assert_eq!(test.session.last_error(), Some(&LastError::Sent(expected)));
    // Families that are not known here imply no IPv4.
    open.capabilities = Capabilities::default();
    for (other_families, expected) in [(false, State::OpenConfirm), (true, State::Idle)] {
        let mut octets = open.octets();
        if other_families {
            // EVPN, in a parameter.
            octets.extend([2, 6, 1, 4, 0, 25, 0, 70]);
            (octets[17], octets[28]) = (octets.len() as u8, 8);
        }
        let mut test = Test::new(own());
        test.give(Input::Start).give(Input::Opened(Way::Active)).octets(Way::Active, &octets);
        assert_eq!(test.session.state(), expected);
    }
}

#[test]
fn an_attempt_without_an_answer_is_repeated_after_the_retry_time() {
    let mut test = Test::new(own());
    test.give(Input::Start).done();
    let mut waits = Vec::new();
    for _ in 0..50 {
        let before = test.now;
        assert_eq!(test.timer().done(), ["abort Active", "connect"]);
        waits.push(test.now - before);
    }
    // Jitter of 0.75 to 1 (section 10).
    assert!(waits.iter().all(|wait| (Nanos(3_750_000_000)..=seconds(5)).contains(wait)));
    assert!(waits.iter().any(|wait| *wait < seconds(4)));
    assert!(waits.iter().any(|wait| *wait > Nanos(4_750_000_000)));
}

#[test]
fn after_a_refused_attempt_it_listens_until_the_retry_time() {
    let mut test = Test::new(own());
    test.give(Input::Start).give(Input::Ended(Way::Active, EndReason::Refused)).done();
    assert_eq!(test.session.state(), State::Active);
    assert!(test.session.accepts());
    assert_eq!(test.timer().done(), ["connect"]);
    test.give(Input::Ended(Way::Active, EndReason::Refused));
    test.come_up(Way::Passive, &peer_open());
    assert_eq!(test.session.established().map(|(way, _)| way), Some(Way::Passive));
    assert!(test.done().iter().all(|done| done != "connect"));
}

#[test]
fn a_passive_session_opens_no_connection() {
    let mut test = Test::new(PeerSettings { passive: true, ..own() });
    assert!(test.give(Input::Start).done().is_empty());
    assert_eq!((test.session.state(), test.session.next_due()), (State::Active, None));
    test.come_up(Way::Passive, &peer_open()).done();
    test.give(Input::Ended(Way::Passive, EndReason::Reset));
    assert_eq!((test.session.state(), test.session.next_due()), (State::Active, None));
}

#[test]
fn after_an_error_it_is_idle_for_the_retry_time_and_accepts_nothing() {
    let mut test = Test::establish(own(), &peer_open());
    test.done();
    let mut broken = message::keepalive();
    broken[3] = 0;
    let done = test.octets(Way::Active, &broken).done();
    assert_eq!(done, ["NOTIFICATION 1/1 Active", "close Active", "unfeed"]);
    assert_eq!(test.learnt(), ["cleared Ipv4", "cleared Ipv6"]);
    assert_eq!(test.session.state(), State::Idle);
    assert!(!test.session.accepts());
    assert_eq!(test.give(Input::Opened(Way::Passive)).done(), ["abort Passive"]);
    let before = test.now;
    assert_eq!(test.timer().done(), ["connect"]);
    assert!((Nanos(3_750_000_000)..=seconds(5)).contains(&(test.now - before)));
}

#[test]
fn a_peer_that_sends_no_open_has_four_minutes() {
    let mut test = Test::new(own());
    test.give(Input::Start).give(Input::Opened(Way::Active)).done();
    let before = test.now;
    assert_eq!(test.timer().done(), ["NOTIFICATION 4/0 Active", "close Active"]);
    assert_eq!(test.now - before, seconds(240));
}

#[test]
fn a_silent_peer_has_the_hold_time_and_gets_keepalives() {
    let mut test = Test::establish(own(), &peer_open());
    test.done();
    let begin = test.now;
    let mut times = vec![begin];
    let last = loop {
        match test.timer().done() {
            done if done == ["KEEPALIVE Active"] => times.push(test.now),
            done => break done,
        }
    };
    assert_eq!(last, ["NOTIFICATION 4/0 Active", "close Active", "unfeed"]);
    assert_eq!(test.now - begin, seconds(90));
    // A third of 90 s, with jitter.
    let gaps: Vec<Nanos> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.len() >= 3);
    let (low, high) = (Nanos(22_500_000_000), seconds(30));
    assert!(gaps.iter().all(|gap| (low..=high).contains(gap)), "{gaps:?}");
}

#[test]
fn keepalives_and_updates_restart_the_hold_time() {
    let mut test = Test::establish(own(), &peer_open());
    let messages =
        [message::keepalive(), update(true), message::keepalive(), end_of_rib(Family::Ipv4)];
    for message in messages {
        test.now = test.now + seconds(80);
        test.give(Input::Timer).octets(Way::Active, &message);
    }
    assert_eq!(test.session.state(), State::Established);
    test.now = test.now + seconds(90);
    test.give(Input::Timer);
    assert_eq!(test.session.last_error(), Some(&LastError::Sent(Notification::new(4, 0))));
}

#[test]
fn a_hold_time_of_zero_needs_no_keepalives() {
    let mut test = Test::establish(own(), &Open { hold: 0, ..peer_open() });
    assert_eq!(test.session.next_due(), None);
    test.now = test.now + seconds(100_000);
    test.done();
    assert!(test.give(Input::Timer).done().is_empty());
}

#[test]
fn the_interval_of_keepalives_is_the_configured_one_below_the_hold_time() {
    let mut test = Test::establish(PeerSettings { keepalive: Some(50), ..own() }, &peer_open());
    let before = test.now;
    assert_eq!(test.timer().done().last().map(String::as_str), Some("KEEPALIVE Active"));
    let gap = test.now - before;
    assert!((Nanos(37_500_000_000)..=seconds(50)).contains(&gap), "{gap:?}");
    // With the shorter hold time of the peer, it would be too long.
    let settings = PeerSettings { keepalive: Some(50), ..own() };
    let mut test = Test::establish(settings, &Open { hold: 30, ..peer_open() });
    let before = test.now;
    test.timer();
    assert!(test.now - before <= seconds(10));
}

#[test]
fn a_hold_time_of_three_seconds_has_keepalives_of_one() {
    let mut test = Test::establish(PeerSettings { hold: 3, ..own() }, &peer_open());
    let before = test.now;
    test.timer();
    assert_eq!(test.now - before, SECOND);
}

#[test]
fn messages_in_the_wrong_state_are_errors_of_the_state_machine() {
    let refresh = message::route_refresh(Family::Ipv4, Refresh::Request);
    let open = peer_open().octets();
    for (state, wrong) in [
        (State::OpenSent, vec![message::keepalive(), update(true), refresh.clone()]),
        (State::OpenConfirm, vec![open.clone(), update(true), refresh]),
        (State::Established, vec![open.clone()]),
    ] {
        for message in wrong {
            let mut test = Test::new(own());
            test.give(Input::Start).give(Input::Opened(Way::Active));
            if state >= State::OpenConfirm {
                test.octets(Way::Active, &open);
            }
            if state == State::Established {
                test.octets(Way::Active, &message::keepalive());
            }
            test.octets(Way::Active, &message);
            let subcode = state as u8 - State::OpenSent as u8 + 1;
            let expected = LastError::Sent(Notification::new(5, subcode));
            assert_eq!(test.session.last_error(), Some(&expected), "{state:?} {message:?}");
        }
    }
}

#[test]
fn a_notification_is_not_answered() {
    let error = Notification::cease(cease::MAXIMUM_PREFIXES);
    let mut test = Test::establish(own(), &peer_open());
    test.done();
    let done = test.octets(Way::Active, &error.octets()).done();
    assert_eq!(done, ["close Active", "unfeed"]);
    assert_eq!(test.session.last_error(), Some(&LastError::Received(error)));
    assert_eq!(test.session.state(), State::Idle);
}

#[test]
fn updates_that_cannot_be_read_end_the_session_and_others_do_not() {
    let mut test = Test::establish(own(), &peer_open());
    // ORIGIN 3: treated as withdrawn.
    let mut odd = update(true);
    odd[HEADER + 4 + 3] = 3;
    test.octets(Way::Active, &odd);
    assert_eq!(test.learnt(), ["-10.0.0.0/8#0"]);
    assert_eq!(test.session.counters().faults.treated_as_withdrawn, 1);
    // A prefix of 33 bits.
    let mut broken = update(true);
    let at = broken.len() - 2;
    broken[at] = 33;
    test.octets(Way::Active, &broken);
    assert_eq!(test.session.last_error(), Some(&LastError::Sent(Notification::new(3, 10))));
    assert_eq!(test.session.counters().downs, 1);
}

#[test]
fn a_stop_sends_its_notification_and_lasts_until_the_next_start() {
    let mut test = Test::establish(own(), &peer_open());
    test.done();
    let done = test.give(Input::Stop(Notification::new(6, 42))).done();
    assert_eq!(done, ["NOTIFICATION 6/42 Active", "close Active", "unfeed"]);
    assert_eq!((test.session.state(), test.session.next_due()), (State::Idle, None));
    assert!(!test.session.accepts());
    assert_eq!(test.give(Input::Start).done(), ["connect"]);
    let done = test.give(Input::Stop(Notification::cease(cease::SHUTDOWN))).done();
    assert_eq!(done, ["abort Active"]);
}

/// A session with two connections, of which the active one is in OpenConfirm.
fn colliding(identifier: [u8; 4]) -> (Test, Open) {
    let mut test = Test::new(own());
    test.give(Input::Start).give(Input::Opened(Way::Passive));
    test.give(Input::Opened(Way::Active));
    let open = Open { identifier: identifier.into(), ..peer_open() };
    test.octets(Way::Active, &open.octets());
    assert_eq!(test.session.state(), State::OpenConfirm);
    test.done();
    (test, open)
}

#[test]
fn of_two_connections_that_of_the_higher_identifier_stays() {
    // The peer's is higher: the connection stays that it has opened.
    let (mut test, open) = colliding([192, 0, 2, 2]);
    let done = test.octets(Way::Passive, &open.octets()).done();
    assert_eq!(done, ["NOTIFICATION 6/7 Active", "close Active", "KEEPALIVE Passive"]);
    test.octets(Way::Passive, &message::keepalive());
    assert_eq!(test.session.established().map(|(way, _)| way), Some(Way::Passive));

    let (mut test, open) = colliding([192, 0, 2, 0]);
    let done = test.octets(Way::Passive, &open.octets()).done();
    assert_eq!(done, ["NOTIFICATION 6/7 Passive", "close Passive"]);
    test.octets(Way::Active, &message::keepalive());
    assert_eq!(test.session.established().map(|(way, _)| way), Some(Way::Active));

    // Equal ones: the peer's number is higher (RFC 6286 section 2.3).
    let (mut test, open) = colliding([192, 0, 2, 1]);
    test.octets(Way::Passive, &open.octets());
    assert_eq!(test.done()[0], "NOTIFICATION 6/7 Active");
}

#[test]
fn an_established_connection_is_not_replaced_by_a_colliding_one() {
    let (mut test, open) = colliding([192, 0, 2, 2]);
    test.octets(Way::Active, &message::keepalive()).done();
    let done = test.octets(Way::Passive, &open.octets()).done();
    assert_eq!(done, ["NOTIFICATION 6/7 Passive", "close Passive"]);
    assert_eq!(test.session.state(), State::Established);
    assert_eq!(test.session.counters().downs, 0);
    assert_eq!(test.session.last_error(), None, "the session goes on");
}

#[test]
fn an_established_session_gives_up_its_attempt() {
    let mut test = Test::new(own());
    test.give(Input::Start).come_up(Way::Passive, &peer_open());
    assert!(test.done().contains(&"abort Active".to_owned()));
    // It would be refused if it still came.
    assert_eq!(test.give(Input::Opened(Way::Active)).done(), ["abort Active"]);
}

#[test]
fn a_second_connection_takes_over_when_the_first_is_refused() {
    let (mut test, open) = colliding([192, 0, 2, 2]);
    let collision = Notification::cease(cease::COLLISION).octets();
    assert_eq!(test.octets(Way::Active, &collision).done(), ["close Active"]);
    assert_eq!(test.session.state(), State::OpenSent);
    test.octets(Way::Passive, &open.octets()).octets(Way::Passive, &message::keepalive());
    assert_eq!(test.session.state(), State::Established);
}

#[test]
fn a_request_of_routes_feeds_them_again() {
    let request = message::route_refresh(Family::Ipv6, Refresh::Request);
    let mut test = Test::establish(own(), &peer_open());
    test.done();
    // Without the enhanced kind, nothing marks the end.
    assert_eq!(test.octets(Way::Active, &request).done(), ["refeed Ipv6 [None, None]"]);

    let mut open = peer_open();
    open.capabilities.enhanced_refresh = true;
    let mut test = Test::establish(own(), &open);
    test.done();
    let done = test.octets(Way::Active, &request).done();
    assert_eq!(done, ["refeed Ipv6 [Some(1), Some(2)]"]);
    // RFC 7313 section 4: routes that the peer does not announce between the marks have ended.
    test.octets(Way::Active, &message::route_refresh(Family::Ipv4, Refresh::Begin));
    test.octets(Way::Active, &message::route_refresh(Family::Ipv4, Refresh::End));
    assert_eq!(test.learnt(), ["stale Ipv4", "swept Ipv4"]);

    let mut open = peer_open();
    open.capabilities.families = [true, false];
    let mut test = Test::establish(own(), &open);
    test.done();
    assert!(test.octets(Way::Active, &request).done().is_empty(), "a family it does not carry");
}

#[test]
fn a_peer_is_asked_for_its_routes_if_it_can_answer() {
    let mut test = Test::establish(own(), &peer_open());
    test.done();
    assert_eq!(test.give(Input::Refresh).done(), ["REFRESH 0 Active", "REFRESH 0 Active"]);
    assert_eq!(test.session.counters().sent.refreshes, 2);
    let mut open = peer_open();
    open.capabilities.refresh = false;
    let mut test = Test::establish(own(), &open);
    test.done();
    assert!(test.give(Input::Refresh).done().is_empty());
    let mut test = Test::new(own());
    assert!(test.give(Input::Refresh).done().is_empty(), "it is not established");
}

/// A session with a peer that restarts gracefully: IPv4 only.
fn graceful(restarting: bool, kept: bool) -> Open {
    let mut open = peer_open();
    open.capabilities.restart =
        Some(RestartCapability { restarting, seconds: 30, families: [Some(kept), None] });
    open
}

fn helper() -> Test {
    let settings = PeerSettings { restart: Some(120), ..own() };
    let mut test = Test::establish(settings, &graceful(false, false));
    test.done();
    test.learnt();
    test
}

#[test]
fn routes_of_a_peer_that_restarts_are_stale_until_it_has_announced_its_own() {
    let mut test = helper();
    test.give(Input::Ended(Way::Active, EndReason::Reset));
    assert_eq!(test.learnt(), ["stale Ipv4", "cleared Ipv6"]);
    assert!(test.session.accepts(), "the peer comes back at any time");
    test.now = test.now + SECOND;
    test.come_up(Way::Passive, &graceful(true, true));
    test.octets(Way::Passive, &update(true));
    test.octets(Way::Passive, &end_of_rib(Family::Ipv4));
    let announced = "+10.0.0.0/8#0 192.0.2.2 [65002]";
    assert_eq!(test.learnt(), [announced, "end Ipv4", "swept Ipv4"]);
}

#[test]
fn stale_routes_end_when_the_peer_has_not_kept_them_or_is_late() {
    let mut test = helper();
    test.give(Input::Ended(Way::Active, EndReason::Reset)).learnt();
    test.come_up(Way::Passive, &graceful(true, false));
    assert_eq!(test.learnt(), ["cleared Ipv4"]);

    // It is not back after its restart time.
    let mut test = helper();
    test.give(Input::Ended(Way::Active, EndReason::Reset)).learnt();
    let begin = test.now;
    while test.log.0.is_empty() {
        test.timer();
    }
    assert_eq!((test.learnt(), test.now - begin), (vec!["cleared Ipv4".to_owned()], seconds(30)));

    // It is back, but announces no end.
    let mut test = helper();
    test.give(Input::Ended(Way::Active, EndReason::Reset)).learnt();
    test.come_up(Way::Passive, &Open { hold: 0, ..graceful(true, true) });
    let begin = test.now;
    while test.log.0.is_empty() {
        test.timer();
    }
    assert_eq!((test.learnt(), test.now - begin), (vec!["swept Ipv4".to_owned()], seconds(360)));
}

#[test]
fn routes_that_are_still_stale_at_a_second_restart_end() {
    let mut test = helper();
    test.give(Input::Ended(Way::Active, EndReason::Reset));
    test.come_up(Way::Passive, &graceful(true, true)).learnt();
    test.give(Input::Ended(Way::Passive, EndReason::Reset));
    assert_eq!(test.learnt(), ["swept Ipv4", "stale Ipv4", "cleared Ipv6"]);
}

#[test]
fn marks_of_a_refresh_are_ignored_before_the_end_of_a_family_that_restarts() {
    let mut open = graceful(false, false);
    open.capabilities.enhanced_refresh = true;
    let mut test = Test::establish(PeerSettings { restart: Some(120), ..own() }, &open);
    let begin = message::route_refresh(Family::Ipv4, Refresh::Begin);
    test.octets(Way::Active, &begin);
    assert!(test.learnt().is_empty());
    test.octets(Way::Active, &end_of_rib(Family::Ipv4)).octets(Way::Active, &begin);
    assert_eq!(test.learnt(), ["end Ipv4", "stale Ipv4"]);
}

#[test]
fn a_notification_ends_routes_of_a_peer_that_restarts_gracefully_too() {
    let mut test = helper();
    test.octets(Way::Active, &Notification::cease(cease::RESET).octets());
    assert_eq!(test.learnt(), ["cleared Ipv4", "cleared Ipv6"]);
}

#[test]
fn a_new_connection_of_a_graceful_peer_replaces_the_established_one() {
    let mut test = helper();
    assert!(test.session.accepts());
    test.now = test.now + SECOND;
    let done = test.give(Input::Opened(Way::Passive)).done();
    assert_eq!(done, ["abort Active", "unfeed", "OPEN Passive"]);
    assert_eq!(test.learnt(), ["stale Ipv4", "cleared Ipv6"]);
    test.octets(Way::Passive, &graceful(true, true).octets());
    test.octets(Way::Passive, &message::keepalive());
    assert_eq!(test.session.state(), State::Established);
    // The same for two passive ones, of which the caller ends the first.
    assert!(test.session.accepts());
    test.give(Input::Ended(Way::Passive, EndReason::Replaced));
    test.come_up(Way::Passive, &graceful(true, true));
}

#[test]
fn a_connection_that_a_graceful_peer_opened_at_the_same_time_collides() {
    let mut test = helper();
    assert_eq!(test.give(Input::Opened(Way::Passive)).done(), ["OPEN Passive"]);
    let done = test.octets(Way::Passive, &graceful(false, true).octets()).done();
    assert_eq!(done, ["NOTIFICATION 6/7 Passive", "close Passive"]);
    assert_eq!((test.session.state(), test.learnt().len()), (State::Established, 0));
}

#[test]
fn after_its_own_restart_it_waits_for_the_routes_of_the_peer() {
    let mut test = helper();
    let done = test.give(Input::Restart { after: seconds(10) }).done();
    assert_eq!(done, ["abort Active", "unfeed"]);
    assert_eq!(test.learnt(), ["cleared Ipv4", "cleared Ipv6"], "it has lost them");
    assert_eq!(test.session.state(), State::Idle);
    let begin = test.now;
    assert_eq!(test.timer().done(), ["connect"]);
    assert_eq!(test.now - begin, seconds(10));
    test.give(Input::Opened(Way::Active));
    let Some(Output::Send(_, message)) = test.out.last() else { panic!("an OPEN") };
    let open = Open::read(&message[HEADER..]).unwrap();
    let families = [Some(true); 2];
    let expected = RestartCapability { restarting: true, seconds: 120, families };
    assert_eq!(open.capabilities.restart, Some(expected));
    test.done();
    test.octets(Way::Active, &graceful(false, false).octets());
    test.octets(Way::Active, &message::keepalive());
    // IPv6 is not among the peer's families.
    assert_eq!(test.done(), ["KEEPALIVE Active", "feed Ipv6 2"]);
    assert!(test.session.is_deferring());
    let deferred = Family::ALL.map(|family| test.session.is_deferred(family));
    assert_eq!(deferred, [true, false]);
    assert_eq!(test.octets(Way::Active, &end_of_rib(Family::Ipv4)).done(), ["feed Ipv4 2"]);
    assert!(!test.session.is_deferring());
    // Once only.
    assert!(test.octets(Way::Active, &end_of_rib(Family::Ipv4)).done().is_empty());
}

#[test]
fn after_its_own_restart_it_waits_for_no_peer_that_restarts_and_not_forever() {
    let mut test = helper();
    test.give(Input::Restart { after: SECOND }).timer();
    test.done();
    test.come_up(Way::Active, &graceful(true, true));
    assert_eq!(test.done(), ["OPEN Active", "KEEPALIVE Active", "feed Ipv4 2", "feed Ipv6 2"]);

    let mut test = helper();
    test.give(Input::Restart { after: SECOND }).timer();
    test.come_up(Way::Active, &Open { hold: 0, ..graceful(false, true) }).done();
    let begin = test.now;
    assert_eq!(test.timer().done(), ["feed Ipv4 2"]);
    assert_eq!(test.now - begin, seconds(360));
}

#[test]
fn inputs_of_connections_that_are_not_there_do_nothing() {
    let mut test = Test::new(own());
    test.give(Input::Timer).octets(Way::Active, &message::keepalive());
    test.give(Input::Ended(Way::Passive, EndReason::Closed));
    test.give(Input::Restart { after: SECOND });
    assert_eq!((test.done().len(), test.session.state()), (0, State::Idle));
    assert_eq!(test.session.next_due(), None);
}

/// Two sessions with a path between them on which everything takes a millisecond. Both open
/// connections, so that they collide.
struct Pair {
    sides: [Test; 2],
    /// Due time, receiving side, its connection, what arrives.
    path: Vec<(Nanos, usize, Way, Arrival)>,
}

#[derive(Clone, Debug)]
enum Arrival {
    Syn,
    Opened,
    Octets(Vec<u8>),
    End(EndReason),
}

impl Pair {
    fn run(&mut self, until: Nanos) {
        loop {
            self.carry();
            let arrival = self.path.iter().map(|(due, ..)| *due).min();
            let timers = self.sides.iter().filter_map(|side| side.session.next_due());
            let Some(now) = arrival.into_iter().chain(timers).min().filter(|now| *now <= until)
            else {
                return;
            };
            self.sides.iter_mut().for_each(|side| side.now = now);
            if arrival == Some(now) {
                let at = self.path.iter().position(|(due, ..)| *due == now).expect("it is there");
                let (_, to, way, what) = self.path.remove(at);
                self.arrive(to, way, what);
            } else {
                self.sides.iter_mut().for_each(|side| _ = side.give(Input::Timer));
            }
        }
    }

    fn arrive(&mut self, to: usize, way: Way, what: Arrival) {
        let side = &mut self.sides[to];
        let later = side.now + Nanos(1_000_000);
        match what {
            Arrival::Syn if side.session.accepts() => {
                self.path.push((later, 1 - to, way.other(), Arrival::Opened));
                side.give(Input::Opened(way));
            }
            Arrival::Syn => {
                let end = Arrival::End(EndReason::Refused);
                self.path.push((later, 1 - to, way.other(), end));
            }
            Arrival::Opened => _ = side.give(Input::Opened(way)),
            Arrival::Octets(octets) => _ = side.octets(way, &octets),
            Arrival::End(reason) => _ = side.give(Input::Ended(way, reason)),
        }
    }

    /// Puts what the sessions send on the path.
    fn carry(&mut self) {
        for from in [0, 1] {
            let later = self.sides[from].now + Nanos(1_000_000);
            for output in std::mem::take(&mut self.sides[from].out) {
                let (way, what) = match output {
                    Output::Connect => (Way::Active, Arrival::Syn),
                    Output::Send(way, octets) => (way, Arrival::Octets(octets)),
                    Output::Close(way) => (way, Arrival::End(EndReason::Closed)),
                    Output::Abort(way) => (way, Arrival::End(EndReason::Reset)),
                    Output::Feed { .. } | Output::Refeed { .. } | Output::Unfeed => continue,
                };
                self.path.push((later, 1 - from, way.other(), what));
            }
        }
    }
}

#[test]
fn two_sessions_that_connect_at_once_come_up_on_the_same_connection() {
    for (first, second) in [([192, 0, 2, 1], [192, 0, 2, 2]), ([192, 0, 2, 2], [192, 0, 2, 1])] {
        let side = |asn, identifier: [u8; 4]| {
            let mut test = Test::new(PeerSettings { asn, identifier: identifier.into(), ..own() });
            test.give(Input::Start);
            test
        };
        let mut pair =
            Pair { sides: [side(65_001, first), side(65_002, second)], path: Vec::new() };
        pair.run(seconds(1002));
        let ways = pair.sides.each_ref().map(|side| {
            let established = side.session.established().map(|(way, _)| way);
            (established, side.session.counters().downs)
        });
        let (winner, loser) = ((Some(Way::Active), 0), (Some(Way::Passive), 0));
        let expected = if first > second { [winner, loser] } else { [loser, winner] };
        assert_eq!(ways, expected);
        // And they stay up.
        pair.run(seconds(2000));
        let states = pair.sides.each_ref().map(|side| side.session.counters().ups);
        assert_eq!(states, [1, 1]);
    }
}

proptest! {
    #[test]
    fn cuts_of_the_stream_change_nothing(cuts in proptest::collection::vec(0usize..400, 0..12)) {
        let stream = [
            peer_open().octets(), message::keepalive(), update(true), end_of_rib(Family::Ipv6),
            update(false), message::keepalive(), update(true),
        ].concat();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let mut test = Test::new(own());
        test.give(Input::Start).give(Input::Opened(Way::Active));
        for pair in cuts.windows(2) {
            test.octets(Way::Active, &stream[pair[0]..pair[1]]);
        }
        let announced = "+10.0.0.0/8#0 192.0.2.2 [65002]";
        prop_assert_eq!(test.learnt(), [announced, "end Ipv6", "-10.0.0.0/8#0", announced]);
        prop_assert_eq!(test.session.counters().received.updates, 4);
    }
}
