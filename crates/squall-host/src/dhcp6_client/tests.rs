//! Scripts in virtual time, a rule each, and properties of clients whose messages are lost, repeated
//! and exchanged.

use std::collections::VecDeque;

use proptest::prelude::*;
use squall_units::SplitMix64;

use super::*;
use crate::{Dhcp6Server, Server6Settings};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
const PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, 0);

/// One client, its time, and its last message.
struct Script {
    client: Dhcp6Client,
    now: Nanos,
    settings: Dhcp6Settings,
    check: bool,
    random: SplitMix64,
    last: Option<Request6>,
    event: Option<Dhcp6Event>,
}

fn seconds(seconds: f64) -> Nanos {
    Nanos::from_secs_f64(seconds)
}

fn server(number: u8) -> Box<[u8]> {
    duid_of(MacAddr([4, 0, 0, 0, 0, number]))
}

impl Script {
    fn with(settings: Dhcp6Settings) -> Self {
        let mut script = Self {
            client: Dhcp6Client::default(),
            now: seconds(100.0),
            settings,
            check: false,
            random: SplitMix64(1),
            last: None,
            event: None,
        };
        script.step(Dhcp6Client::start);
        script
    }

    /// A client that has sent its first Solicit, and takes the first offer.
    fn started() -> Self {
        Self::with(Dhcp6Settings { collect: false, ..Dhcp6Settings::default() })
    }

    /// A client whose address is preferred for 800 and valid for 1000 seconds.
    fn bound() -> Self {
        let mut script = Self::started();
        script.get(&script.advertise(1));
        script.get(&script.reply());
        assert_eq!(script.client.state(), Dhcp6State::Bound);
        script
    }

    fn step(&mut self, act: impl FnOnce(&mut Dhcp6Client, &Dhcp6Context<'_>) -> Dhcp6Step) {
        let cx = Dhcp6Context {
            now: self.now,
            chance: self.random.draw(),
            mac: MAC,
            settings: &self.settings,
            check: self.check,
        };
        let step = act(&mut self.client, &cx);
        (self.last, self.event) = (step.send, step.event);
    }

    /// Goes to the next timer. Returns the time that has passed, in seconds.
    fn wait(&mut self) -> f64 {
        let due = self.client.due().expect("a timer");
        let passed = due.saturating_sub(self.now);
        // A moment before, nothing happens.
        self.now = due - Nanos(1);
        self.step(Dhcp6Client::timer);
        assert_eq!(self.last, None);
        self.now = due;
        self.step(Dhcp6Client::timer);
        passed.as_secs_f64()
    }

    /// Goes on until the client sends a message of this kind.
    fn wait_for(&mut self, kind: Kind6) -> f64 {
        let begin = self.now;
        for _ in 0..50 {
            self.wait();
            if self.sends() == Some(kind) {
                return (self.now - begin).as_secs_f64();
            }
        }
        panic!("no {kind:?} in 50 timers");
    }

    fn get(&mut self, message: &Message6) {
        self.step(|client, cx| client.receive(cx, message));
    }

    fn of_kind(&self, kind: Kind6) -> Message6 {
        Message6 {
            client: Some(duid_of(MAC)),
            server: Some(server(1)),
            ..Message6::new(kind, self.client.xid)
        }
    }

    fn leases(&self, mut message: Message6, preferred: u32, valid: u32) -> Message6 {
        let lease = |address, length| Lease6 { address, length, preferred, valid };
        let one =
            |lease| Some(Association { id: 1, leases: vec![lease], ..Association::default() });
        if self.settings.address {
            message.addresses = one(lease(ADDRESS, 128));
        }
        if self.settings.prefix.is_some() {
            message.prefixes = one(lease(PREFIX, 56));
        }
        message
    }

    fn advertise(&self, number: u8) -> Message6 {
        let message = self.leases(self.of_kind(Kind6::Advertise), 800, 1000);
        Message6 { server: Some(server(number)), ..message }
    }

    fn reply(&self) -> Message6 {
        self.leases(self.of_kind(Kind6::Reply), 800, 1000)
    }

    fn status(&self, code: u16) -> Message6 {
        Message6 { status: Some(code), ..self.of_kind(Kind6::Reply) }
    }

    fn sends(&self) -> Option<Kind6> {
        self.last.as_ref().map(|sent| sent.message.kind)
    }

    fn message(&self) -> &Message6 {
        &self.last.as_ref().expect("a message was sent").message
    }
}

/// Whether an interval is about twice as long as the one before: 2 * RT + RAND * RT.
fn doubles(before: f64, after: f64) -> bool {
    (1.899..=2.101).contains(&(after / before))
}

#[test]
fn solicit_is_repeated_after_1_2_4_and_8_seconds_and_then_the_client_fails() {
    let mut script = Script::started();
    assert_eq!(script.sends(), Some(Kind6::Solicit));
    let xid = script.message().xid;
    let mut before = script.wait();
    assert!((1.0..=1.1).contains(&before), "the first is never shorter than IRT: {before} s");
    for _ in 0..3 {
        assert_eq!((script.sends(), script.message().xid), (Some(Kind6::Solicit), xid));
        assert!(script.last.as_ref().unwrap().retransmission);
        let elapsed = (script.now - seconds(100.0)).0 / 10_000_000;
        assert_eq!(script.message().elapsed.map(u64::from), Some(elapsed));
        let waited = script.wait();
        assert!(doubles(before, waited), "{before} s, then {waited} s");
        before = waited;
    }
    script.wait();
    assert_eq!((script.sends(), script.client.state()), (None, Dhcp6State::Failed));
    assert_eq!(script.client.failure(), Some(Dhcp6Failure::NoAdvertise));
    assert_eq!(script.client.due(), None);
}

#[test]
fn times_between_solicits_never_exceed_an_hour_by_more_than_a_tenth() {
    let mut settings = Dhcp6Settings::default();
    settings.timers.solicit.count = 0;
    let mut script = Script::with(settings);
    let waits: Vec<_> = (0..20).map(|_| script.wait()).collect();
    assert!(waits[14..].iter().all(|wait| (3240.0..=3960.0).contains(wait)), "{waits:?}");
}

#[test]
fn a_server_sets_the_longest_time_between_solicits_within_60_seconds_and_a_day() {
    for (given, longest) in [(Some(60), 66.0), (Some(59), 3960.0), (Some(86_401), 3960.0)] {
        let mut settings = Dhcp6Settings::default();
        settings.timers.solicit.count = 0;
        let mut script = Script::with(settings);
        let none = Message6 { sol_max_rt: given, ..script.of_kind(Kind6::Advertise) };
        script.get(&none);
        assert_eq!(script.event, Some(Dhcp6Event::Ignored("no_lease")));
        let wait = (0..20).map(|_| script.wait()).fold(0.0, f64::max);
        assert!(wait <= longest && wait > longest * 0.7, "SOL_MAX_RT {given:?}: {wait} s");
    }
}

#[test]
fn the_first_message_waits_up_to_the_delay() {
    let mut settings = Dhcp6Settings::default();
    settings.timers.delay = seconds(1.0);
    let mut script = Script::with(settings);
    assert_eq!(script.sends(), None);
    assert!((0.0..=1.0).contains(&script.wait()), "SOL_MAX_DELAY");
    assert_eq!((script.sends(), script.message().elapsed), (Some(Kind6::Solicit), Some(0)));
    assert!(!script.last.as_ref().unwrap().retransmission);
}

#[test]
fn offers_are_collected_until_the_first_retransmission_and_the_best_is_taken() {
    let mut script = Script::with(Dhcp6Settings::default());
    script.get(&Message6 { preference: Some(3), ..script.advertise(3) });
    assert_eq!((script.sends(), script.event), (None, None));
    script.get(&Message6 { preference: Some(7), ..script.advertise(7) });
    script.get(&Message6 { preference: Some(5), ..script.advertise(5) });
    assert!((1.0..=1.1).contains(&script.wait()));
    assert_eq!(script.sends(), Some(Kind6::Request));
    assert_eq!(script.message().server, Some(server(7)));
    assert!(matches!(script.event, Some(Dhcp6Event::Advertised(_))));
}

#[test]
fn a_preference_of_255_ends_the_wait() {
    let mut script = Script::with(Dhcp6Settings::default());
    script.get(&Message6 { preference: Some(255), ..script.advertise(1) });
    assert_eq!(script.sends(), Some(Kind6::Request));
}

#[test]
fn after_the_first_retransmission_the_first_offer_is_taken() {
    let mut script = Script::with(Dhcp6Settings::default());
    script.wait();
    assert_eq!(script.sends(), Some(Kind6::Solicit));
    script.get(&script.advertise(1));
    assert_eq!(script.sends(), Some(Kind6::Request));
}

#[test]
fn a_request_names_the_server_and_the_address_and_has_another_number() {
    let mut script = Script::started();
    let xid = script.client.xid;
    script.now = script.now + seconds(0.25);
    script.get(&script.advertise(1));
    assert_eq!(script.event, Some(Dhcp6Event::Advertised(seconds(0.25))));
    let request = script.message();
    assert_eq!((request.kind, request.server.clone()), (Kind6::Request, Some(server(1))));
    assert_eq!(request.addresses.as_ref().unwrap().leases[0].address, ADDRESS);
    assert_eq!((request.elapsed, request.xid == xid), (Some(0), false));
}

#[test]
fn a_request_is_repeated_ten_times_at_most_30_seconds_apart_and_then_the_client_begins_again() {
    let mut script = Script::started();
    script.get(&script.advertise(1));
    let mut waits = Vec::new();
    for _ in 0..9 {
        waits.push(script.wait());
        assert_eq!(script.sends(), Some(Kind6::Request));
    }
    assert!((0.9..=1.1).contains(&waits[0]), "REQ_TIMEOUT: {waits:?}");
    assert!(waits[6..].iter().all(|wait| (27.0..=33.0).contains(wait)), "REQ_MAX_RT: {waits:?}");
    script.wait();
    assert_eq!(script.sends(), Some(Kind6::Solicit));
}

#[test]
fn a_client_that_never_gets_a_reply_fails_after_its_restarts() {
    let mut script = Script::started();
    for _ in 0..4 {
        script.get(&script.advertise(1));
        for _ in 0..10 {
            script.wait();
        }
    }
    assert_eq!(script.client.failure(), Some(Dhcp6Failure::NoReply));
    assert_eq!(script.client.state(), Dhcp6State::Failed);
}

#[test]
fn rapid_commit_binds_with_two_messages_if_both_sides_want_it() {
    let settings = Dhcp6Settings { rapid_commit: true, ..Dhcp6Settings::default() };
    let mut script = Script::with(settings);
    assert!(script.message().rapid_commit);
    script.get(&script.reply());
    assert_eq!(script.event, Some(Dhcp6Event::Ignored("no_rapid_commit")));
    script.get(&Message6 { rapid_commit: true, ..script.reply() });
    assert_eq!(script.event, Some(Dhcp6Event::Bound(Nanos::ZERO)));
    assert_eq!(script.client.address(), Some(ADDRESS));
    let mut script = Script::started();
    script.get(&Message6 { rapid_commit: true, ..script.reply() });
    assert_eq!(script.event, Some(Dhcp6Event::Ignored("no_rapid_commit")), "it did not ask");
}

#[test]
fn at_t1_the_server_is_asked_and_at_t2_all_servers() {
    let mut script = Script::bound();
    let waited = script.wait();
    assert!((waited - 400.0).abs() < 1e-6, "half of the preferred lifetime, not {waited} s");
    assert_eq!((script.sends(), script.client.state()), (Some(Kind6::Renew), Dhcp6State::Renewing));
    assert_eq!(script.message().server, Some(server(1)));
    assert_eq!(script.client.address(), Some(ADDRESS), "it is used meanwhile");
    let mut before = script.wait();
    assert!((9.0..=11.0).contains(&before), "REN_TIMEOUT: {before} s");
    for _ in 0..3 {
        assert_eq!(script.sends(), Some(Kind6::Renew));
        let waited = script.wait();
        assert!(doubles(before, waited), "{before} s, then {waited} s");
        before = waited;
    }
    script.wait_for(Kind6::Rebind);
    assert!((script.now - seconds(740.0)).0 < 10, "at 640 s: four fifths");
    assert_eq!((script.message().server.as_ref(), script.message().elapsed), (None, Some(0)));
    assert!((9.0..=11.0).contains(&script.wait()), "REB_TIMEOUT");
}

#[test]
fn addresses_are_deprecated_and_then_end_without_an_answer() {
    let mut script = Script::bound();
    while script.event != Some(Dhcp6Event::Deprecated) {
        script.wait();
    }
    assert!((script.now - seconds(900.0)).0 < 10, "after 800 s");
    assert!(script.client.address().is_some() && !script.client.is_preferred());
    while script.event != Some(Dhcp6Event::Expired) {
        script.wait();
    }
    assert!((script.now - seconds(1100.0)).0 < 10, "after 1000 s");
    assert_eq!((script.client.address(), script.sends()), (None, Some(Kind6::Solicit)));
}

#[test]
fn a_reply_while_renewing_or_rebinding_extends_the_lease() {
    for kind in [Kind6::Renew, Kind6::Rebind] {
        let mut script = Script::bound();
        script.wait_for(kind);
        script.now = script.now + seconds(3.0);
        script.get(&script.reply());
        assert_eq!(script.event, Some(Dhcp6Event::Renewed));
        assert_eq!(script.client.due(), Some(script.now + seconds(400.0)));
    }
}

#[test]
fn a_valid_lifetime_of_0_ends_the_own_lease_and_no_other() {
    let both = Dhcp6Settings { prefix: Some(56), collect: false, ..Dhcp6Settings::default() };
    let address = Dhcp6Settings { prefix: None, ..both };
    let prefix = Dhcp6Settings { address: false, ..both };
    for settings in [address, prefix, both] {
        for kind in [Kind6::Renew, Kind6::Rebind] {
            let mut script = Script::with(settings);
            script.get(&script.advertise(1));
            script.get(&script.reply());
            script.wait_for(kind);
            let ended = script.leases(script.of_kind(Kind6::Reply), 0, 0);
            let mut other = ended.clone();
            for association in [&mut other.addresses, &mut other.prefixes].into_iter().flatten() {
                let lease = &mut association.leases[0];
                lease.address = Ipv6Addr::from_bits(lease.address.to_bits() ^ 1 << 80);
            }
            script.get(&other);
            assert_eq!(script.event, Some(Dhcp6Event::Ignored("no_lease")));
            script.get(&ended);
            assert_eq!(
                (script.event, script.sends()),
                (Some(Dhcp6Event::Refused), Some(Kind6::Solicit))
            );
            assert_eq!((script.client.address(), script.client.prefix()), (None, None));
        }
    }
}

#[test]
fn a_server_without_the_binding_is_requested_to_make_it_again() {
    let mut script = Script::bound();
    script.wait();
    let mut reply = script.reply();
    let association = reply.addresses.as_mut().unwrap();
    (association.status, association.leases) = (Some(status::NO_BINDING), Vec::new());
    script.get(&reply);
    assert_eq!((script.event, script.sends()), (Some(Dhcp6Event::Refused), Some(Kind6::Request)));
    script.get(&script.reply());
    assert_eq!(script.client.state(), Dhcp6State::Bound);
}

#[test]
fn times_of_the_server_are_used_and_zero_leaves_the_choice_to_the_client() {
    for (t1, t2, expected) in [(100, 200, 100.0), (0, 0, 400.0), (0, 200, 200.0), (90, 0, 90.0)] {
        let mut script = Script::started();
        script.get(&script.advertise(1));
        let mut reply = script.reply();
        let association = reply.addresses.as_mut().unwrap();
        (association.t1, association.t2) = (t1, t2);
        script.get(&reply);
        assert!((script.wait() - expected).abs() < 1e-6, "T1 {t1}, T2 {t2}");
    }
}

#[test]
fn infinite_leases_are_never_renewed() {
    let mut script = Script::started();
    script.get(&script.advertise(1));
    script.get(&script.leases(script.of_kind(Kind6::Reply), INFINITE, INFINITE));
    assert_eq!((script.client.state(), script.client.due()), (Dhcp6State::Bound, None));
}

#[test]
fn no_lifetimes_make_a_client_send_more_than_once_a_second() {
    let mut script = Script::started();
    script.get(&script.advertise(1));
    script.get(&script.leases(script.of_kind(Kind6::Reply), 1, 5));
    for _ in 0..4 {
        assert!(script.wait_for(Kind6::Rebind) >= 0.99);
        script.get(&script.leases(script.of_kind(Kind6::Reply), 1, 5));
    }
}

#[test]
fn an_address_is_used_when_it_was_examined() {
    let mut script = Script { check: true, ..Script::started() };
    script.get(&script.advertise(1));
    script.get(&script.reply());
    assert_eq!(script.event, Some(Dhcp6Event::Acknowledged));
    assert_eq!((script.client.address(), script.client.candidate()), (None, Some(ADDRESS)));
    script.now = script.now + seconds(1.0);
    script.step(|client, cx| client.checked(cx, false));
    assert_eq!(script.event, Some(Dhcp6Event::Bound(seconds(1.0))));
    assert_eq!(script.client.address(), Some(ADDRESS));
}

#[test]
fn an_address_of_another_host_is_declined_four_times_and_another_one_wanted() {
    let mut script = Script { check: true, ..Script::started() };
    script.get(&script.advertise(1));
    script.get(&script.reply());
    script.step(|client, cx| client.checked(cx, true));
    let decline = script.message();
    assert_eq!((decline.kind, decline.server.clone()), (Kind6::Decline, Some(server(1))));
    assert_eq!(decline.addresses.as_ref().unwrap().leases[0].address, ADDRESS);
    let mut before = script.wait();
    assert!((0.9..=1.1).contains(&before), "DEC_TIMEOUT");
    for _ in 0..2 {
        assert_eq!(script.sends(), Some(Kind6::Decline));
        let waited = script.wait();
        assert!(doubles(before, waited));
        before = waited;
    }
    script.wait();
    assert_eq!(script.sends(), Some(Kind6::Solicit), "after DEC_MAX_RC = 4");
}

#[test]
fn a_reply_ends_a_decline_whatever_its_status() {
    let mut script = Script { check: true, ..Script::started() };
    script.get(&script.advertise(1));
    script.get(&script.reply());
    script.step(|client, cx| client.checked(cx, true));
    script.get(&script.status(status::NO_BINDING));
    assert_eq!(script.sends(), Some(Kind6::Solicit));
}

#[test]
fn a_release_is_repeated_four_times_without_an_address() {
    let mut script = Script::bound();
    script.step(Dhcp6Client::release);
    assert_eq!((script.sends(), script.client.address()), (Some(Kind6::Release), None));
    assert_eq!(script.message().server, Some(server(1)));
    for expected in [0.9, 1.8, 3.6] {
        let waited = script.wait();
        assert!(waited >= expected, "{waited} s");
        assert_eq!(script.sends(), Some(Kind6::Release));
    }
    script.wait();
    assert_eq!((script.sends(), script.client.state()), (None, Dhcp6State::Released));
    script.step(Dhcp6Client::release);
    assert_eq!(script.last, None, "once");
}

#[test]
fn a_reply_ends_a_release() {
    let mut script = Script::bound();
    script.step(Dhcp6Client::release);
    script.get(&script.status(status::SUCCESS));
    assert_eq!((script.client.state(), script.client.due()), (Dhcp6State::Released, None));
}

#[test]
fn confirm_is_repeated_for_ten_seconds_and_then_the_address_is_kept() {
    let mut script = Script::bound();
    let begin = script.now;
    script.step(Dhcp6Client::confirm);
    let confirm = script.message();
    assert_eq!((confirm.kind, confirm.server.as_ref()), (Kind6::Confirm, None));
    assert_eq!(confirm.addresses.as_ref().unwrap().leases[0].address, ADDRESS);
    let mut waits = Vec::new();
    while script.event != Some(Dhcp6Event::Unconfirmed) {
        assert_eq!(script.sends(), Some(Kind6::Confirm));
        waits.push(script.wait());
    }
    assert!((0.9..=1.1).contains(&waits[0]), "CNF_TIMEOUT: {waits:?}");
    assert!(waits.iter().all(|wait| *wait <= 4.4), "CNF_MAX_RT: {waits:?}");
    assert!((script.now - begin - seconds(10.0)).0 < 10, "CNF_MAX_RD");
    assert_eq!(
        (script.client.state(), script.client.address()),
        (Dhcp6State::Bound, Some(ADDRESS))
    );
}

#[test]
fn a_confirmed_address_is_kept_and_one_of_another_link_is_not() {
    let mut script = Script::bound();
    script.step(Dhcp6Client::confirm);
    script.get(&script.status(status::SUCCESS));
    assert_eq!(script.event, Some(Dhcp6Event::Confirmed(Nanos::ZERO)));
    assert_eq!(script.client.due(), Some(seconds(500.0)), "T1, as before");
    script.step(Dhcp6Client::confirm);
    script.get(&script.status(status::NOT_ON_LINK));
    assert_eq!((script.event, script.sends()), (Some(Dhcp6Event::Refused), Some(Kind6::Solicit)));
    assert_eq!(script.client.address(), None);
}

#[test]
fn a_client_with_a_prefix_rebinds_instead_of_a_confirm() {
    let settings = Dhcp6Settings { prefix: Some(56), collect: false, ..Dhcp6Settings::default() };
    let mut script = Script::with(settings);
    let hint = script.message().prefixes.as_ref().unwrap().leases[0];
    assert_eq!((hint.address, hint.length), (Ipv6Addr::UNSPECIFIED, 56));
    script.get(&script.advertise(1));
    script.get(&script.reply());
    assert_eq!(script.client.prefix(), Some((PREFIX, 56)));
    script.step(Dhcp6Client::confirm);
    assert_eq!(script.sends(), Some(Kind6::Rebind));
    script.now = script.now + seconds(0.5);
    script.get(&script.reply());
    assert_eq!(script.event, Some(Dhcp6Event::Confirmed(seconds(0.5))));
    // The reply extends the leases, too.
    assert_eq!(script.client.due(), Some(script.now + seconds(400.0)));
    let begin = script.now;
    script.step(Dhcp6Client::confirm);
    let mut waits = Vec::new();
    while script.event != Some(Dhcp6Event::Unconfirmed) {
        assert_eq!(script.sends(), Some(Kind6::Rebind));
        waits.push(script.wait());
    }
    assert!(waits.iter().all(|wait| *wait <= 4.4), "CNF_MAX_RT, not REB_MAX_RT: {waits:?}");
    assert!((script.now - begin - seconds(10.0)).0 < 10, "CNF_MAX_RD");
    assert_eq!(script.client.prefix(), Some((PREFIX, 56)));
}

#[test]
fn a_link_that_fails_makes_the_client_confirm_its_address_after_a_random_delay() {
    let flap = Some(seconds(60.0));
    let settings = Dhcp6Settings { flap, collect: false, ..Dhcp6Settings::default() };
    let mut script = Script::with(settings);
    script.get(&script.advertise(1));
    script.get(&script.reply());
    let bound = script.now;
    for number in 1..=3 {
        script.wait();
        assert_eq!((script.now - bound).as_secs_f64(), 60.0 * f64::from(number));
        assert_eq!(script.sends(), Some(Kind6::Confirm));
        script.get(&script.status(status::SUCCESS));
    }
    script.settings.timers.delay = seconds(1.0);
    script.wait();
    assert_eq!(script.sends(), None);
    let waited = script.wait();
    assert!((0.0..=1.0).contains(&waited), "CNF_MAX_DELAY: {waited}");
    assert_eq!(script.sends(), Some(Kind6::Confirm));
    assert_eq!(script.last.as_ref().unwrap().message.elapsed, Some(0));
}

#[test]
fn a_confirmed_client_still_renews_at_t1() {
    let flap = Some(seconds(399.0));
    let settings = Dhcp6Settings { flap, collect: false, ..Dhcp6Settings::default() };
    let mut script = Script::with(settings);
    script.get(&script.advertise(1));
    script.get(&script.reply());
    let bound = script.now;
    script.wait();
    assert_eq!(script.sends(), Some(Kind6::Confirm));
    // The server is silent until T1 has passed.
    while script.event != Some(Dhcp6Event::Unconfirmed) {
        script.wait();
    }
    script.step(Dhcp6Client::timer);
    assert_eq!(script.sends(), Some(Kind6::Renew));
    assert!((script.now - bound).as_secs_f64() >= 400.0);
}

#[test]
fn a_link_that_fails_more_often_than_a_client_asks_does_not_keep_it_from_renewing() {
    let flap = Some(seconds(5.0));
    for prefix in [None, Some(56)] {
        let settings = Dhcp6Settings { flap, prefix, collect: false, ..Dhcp6Settings::default() };
        let mut script = Script::with(settings);
        script.get(&script.advertise(1));
        script.get(&script.reply());
        // The server is silent from now on.
        let (mut unconfirmed, mut renewed) = (Vec::new(), None);
        for _ in 0..1000 {
            script.wait();
            if script.event != Some(Dhcp6Event::Unconfirmed) {
                continue;
            }
            unconfirmed.push((script.now - seconds(100.0)).as_secs_f64());
            script.step(Dhcp6Client::timer);
            if script.sends() == Some(Kind6::Renew) {
                renewed = unconfirmed.last().copied();
                break;
            }
        }
        assert_eq!(unconfirmed[..2], [15.0, 30.0], "10 s after the failures at 5 and 20 s");
        // T1 is 400 s, and the client asks about the link until 405 s.
        assert_eq!(renewed, Some(405.0));
    }
}

#[test]
fn one_of_address_and_prefix_is_better_than_none() {
    let settings = Dhcp6Settings { prefix: Some(0), collect: false, ..Dhcp6Settings::default() };
    let mut script = Script::with(settings);
    script.get(&script.advertise(1));
    let mut reply = script.reply();
    let association = reply.addresses.as_mut().unwrap();
    (association.status, association.leases) = (Some(status::NO_ADDRESSES), Vec::new());
    script.get(&reply);
    assert_eq!(script.client.state(), Dhcp6State::Bound);
    assert_eq!((script.client.address(), script.client.prefix()), (None, Some((PREFIX, 56))));
}

#[test]
fn other_configuration_is_asked_for_and_renewed_after_a_day_or_what_the_server_says() {
    for (given, expected) in [(None, 86_400.0), (Some(3600), 3600.0), (Some(5), 600.0)] {
        let settings = Dhcp6Settings { address: false, ..Dhcp6Settings::default() };
        let mut script = Script::with(settings);
        assert_eq!(script.sends(), Some(Kind6::InformationRequest));
        assert_eq!((&script.message().addresses, &script.message().prefixes), (&None, &None));
        assert!((0.9..=1.1).contains(&script.wait()), "INF_TIMEOUT");
        assert_eq!(script.sends(), Some(Kind6::InformationRequest));
        script.get(&Message6 { refresh: given, ..script.of_kind(Kind6::Reply) });
        assert!(matches!(script.event, Some(Dhcp6Event::Informed(_))));
        assert!((script.wait() - expected).abs() < 1e-6, "{given:?}");
        assert_eq!(script.sends(), Some(Kind6::InformationRequest));
    }
}

#[test]
fn refusals_begin_again_and_fail_after_the_restarts() {
    for (code, failure) in [
        (status::NOT_ON_LINK, Dhcp6Failure::Refused),
        (status::NO_ADDRESSES, Dhcp6Failure::NoLease),
    ] {
        let mut script = Script::started();
        for left in (0..4).rev() {
            script.get(&script.advertise(1));
            script.get(&script.status(code));
            assert_eq!(script.event, Some(Dhcp6Event::Refused));
            assert_eq!(script.sends(), (left > 0).then_some(Kind6::Solicit));
        }
        assert_eq!(script.client.failure(), Some(failure));
    }
}

#[test]
fn messages_of_hostile_servers_are_ignored_with_a_reason() {
    let ignored = |script: &mut Script, message: &Message6, reason| {
        let state = script.client.state();
        script.get(message);
        assert_eq!(script.event, Some(Dhcp6Event::Ignored(reason)));
        assert_eq!((script.last.as_ref(), script.client.state()), (None, state), "{reason}");
    };
    let mut script = Script::started();
    let offer = script.advertise(1);
    ignored(&mut script, &Message6 { xid: offer.xid ^ 1, ..offer.clone() }, "wrong_xid");
    ignored(&mut script, &Message6 { server: None, ..offer.clone() }, "no_server");
    ignored(&mut script, &Message6 { client: None, ..offer.clone() }, "wrong_client");
    let other = Some(duid_of(MacAddr([9; 6])));
    ignored(&mut script, &Message6 { client: other, ..offer.clone() }, "wrong_client");
    let with = |lease: Lease6| {
        let addresses = Some(Association { id: 1, leases: vec![lease], ..Association::default() });
        Message6 { addresses, ..offer.clone() }
    };
    let good = offer.addresses.as_ref().unwrap().leases[0];
    ignored(&mut script, &with(Lease6 { valid: 0, preferred: 0, ..good }), "no_lease");
    ignored(&mut script, &with(Lease6 { valid: 5, preferred: 6, ..good }), "no_lease");
    for address in ["::", "::1", "ff02::1", "fe80::1"] {
        let lease = Lease6 { address: address.parse().unwrap(), ..good };
        ignored(&mut script, &with(lease), "no_lease");
    }
    let mut late = offer.clone();
    late.addresses.as_mut().unwrap().t1 = 200;
    late.addresses.as_mut().unwrap().t2 = 100;
    ignored(&mut script, &late, "no_lease");
    let mut foreign = offer.clone();
    foreign.addresses.as_mut().unwrap().id = 9;
    ignored(&mut script, &foreign, "no_lease");
    for (kind, reason) in [(Kind6::Reconfigure, "reconfigure"), (Kind6::Solicit, "not_a_reply")] {
        let message = script.of_kind(kind);
        ignored(&mut script, &message, reason);
    }
    script.get(&offer);
    assert_eq!(script.client.state(), Dhcp6State::Requesting);
    let late = script.advertise(1);
    ignored(&mut script, &late, "late_advertise");
    let other = Message6 { server: Some(server(6)), ..script.reply() };
    ignored(&mut script, &other, "wrong_server");
    let reply = script.reply();
    script.get(&reply);
    assert_eq!(script.client.state(), Dhcp6State::Bound);
    ignored(&mut script, &reply, "late_reply");
}

/// The time of a message that is repeated without an answer, after `count` repetitions.
fn settled(script: &mut Script, kind: Kind6, count: usize) -> f64 {
    for _ in 0..count {
        script.wait();
        assert_eq!(script.sends(), Some(kind));
    }
    script.wait()
}

/// A client whose address is preferred for 100,000 s and valid for 200,000 s.
fn bound_for_long() -> Script {
    let mut script = Script::started();
    script.get(&script.advertise(1));
    script.get(&script.leases(script.of_kind(Kind6::Reply), 100_000, 200_000));
    script
}

#[test]
fn renew_is_repeated_every_ten_minutes_at_most() {
    let mut script = bound_for_long();
    assert!((script.wait_for(Kind6::Renew) - 50_000.0).abs() < 1e-3);
    let waited = settled(&mut script, Kind6::Renew, 12);
    assert!((540.0..=660.0).contains(&waited), "REN_MAX_RT: {waited} s");
}

#[test]
fn rebind_is_repeated_every_ten_minutes_at_most_until_the_lease_ends() {
    let mut script = bound_for_long();
    let begin = script.now;
    while script.sends() != Some(Kind6::Rebind) {
        script.wait();
    }
    assert!((script.now - begin - seconds(80_000.0)).0 < 10, "T2");
    let waited = settled(&mut script, Kind6::Rebind, 12);
    assert!((540.0..=660.0).contains(&waited), "REB_MAX_RT: {waited} s");
    while script.event != Some(Dhcp6Event::Expired) {
        script.wait();
    }
    assert!((script.now - begin - seconds(200_000.0)).0 < 10, "the end of the valid lifetime");
}

#[test]
fn the_first_times_between_requests_double() {
    let mut script = Script::started();
    script.get(&script.advertise(1));
    let mut before = script.wait();
    for _ in 0..3 {
        let waited = script.wait();
        assert!(doubles(before, waited), "{before} s, then {waited} s");
        before = waited;
    }
}

#[test]
fn an_information_request_without_an_answer_is_repeated_four_times() {
    let settings = Dhcp6Settings { address: false, ..Dhcp6Settings::default() };
    let mut script = Script::with(settings);
    let mut before = script.wait();
    assert!((0.9..=1.1).contains(&before), "INF_TIMEOUT: {before} s");
    for _ in 0..3 {
        assert_eq!(script.sends(), Some(Kind6::InformationRequest));
        let waited = script.wait();
        assert!(doubles(before, waited), "{before} s, then {waited} s");
        before = waited;
    }
    script.wait();
    assert_eq!((script.sends(), script.client.state()), (None, Dhcp6State::Failed));
    assert_eq!(script.client.failure(), Some(Dhcp6Failure::NoReply));
}

#[test]
fn times_between_information_requests_never_exceed_an_hour_or_what_a_server_has_set() {
    for (given, longest) in [(None, 3600.0), (Some(120), 120.0), (Some(59), 3600.0)] {
        let mut settings = Dhcp6Settings { address: false, ..Dhcp6Settings::default() };
        settings.timers.information.count = 0;
        let mut script = Script::with(settings);
        script.get(&Message6 { inf_max_rt: given, ..script.of_kind(Kind6::Reply) });
        script.wait_for(Kind6::InformationRequest);
        let waited = settled(&mut script, Kind6::InformationRequest, 16);
        let range = longest * 0.9..=longest * 1.1;
        assert!(range.contains(&waited), "INF_MAX_RT {given:?}: {waited} s");
    }
}

#[test]
fn the_first_information_request_waits_up_to_the_delay() {
    let mut settings = Dhcp6Settings { address: false, ..Dhcp6Settings::default() };
    settings.timers.delay = seconds(1.0);
    let mut script = Script::with(settings);
    assert_eq!(script.sends(), None);
    assert!((0.0..=1.0).contains(&script.wait()), "INF_MAX_DELAY");
    assert_eq!(script.sends(), Some(Kind6::InformationRequest));
}

#[test]
fn configuration_without_an_end_is_never_renewed() {
    let settings = Dhcp6Settings { address: false, ..Dhcp6Settings::default() };
    let mut script = Script::with(settings);
    script.get(&Message6 { refresh: Some(INFINITE), ..script.of_kind(Kind6::Reply) });
    assert_eq!((script.client.state(), script.client.due()), (Dhcp6State::Informed, None));
}

#[test]
fn a_reply_to_renew_makes_deprecated_addresses_preferred_again() {
    let mut script = Script::bound();
    while script.event != Some(Dhcp6Event::Deprecated) {
        script.wait();
    }
    script.get(&script.reply());
    assert_eq!(script.event, Some(Dhcp6Event::Renewed));
    assert!(script.client.is_preferred());
    assert_eq!(script.client.lease_seconds(), Some(1000));
}

#[test]
fn t1_without_an_end_leaves_a_lease_to_its_lifetimes() {
    let mut script = Script::started();
    script.get(&script.advertise(1));
    let mut reply = script.reply();
    let association = reply.addresses.as_mut().unwrap();
    (association.t1, association.t2) = (INFINITE, INFINITE);
    script.get(&reply);
    for (expected, event) in [(800.0, Dhcp6Event::Deprecated), (200.0, Dhcp6Event::Expired)] {
        assert!((script.wait() - expected).abs() < 1e-6);
        assert_eq!(script.event, Some(event), "without a Renew and a Rebind");
    }
}

#[test]
fn the_shorter_lifetimes_of_address_and_prefix_count_for_both() {
    let settings = Dhcp6Settings { prefix: Some(56), collect: false, ..Dhcp6Settings::default() };
    let mut script = Script::with(settings);
    script.get(&script.advertise(1));
    let mut reply = script.reply();
    let prefix = &mut reply.prefixes.as_mut().unwrap().leases[0];
    (prefix.preferred, prefix.valid) = (200, 300);
    script.get(&reply);
    assert!((script.wait() - 100.0).abs() < 1e-6, "T1");
    while script.event != Some(Dhcp6Event::Expired) {
        script.wait();
    }
    assert!((script.now - seconds(400.0)).0 < 10, "300 s after the reply");
}

#[test]
fn the_times_of_all_messages_are_settable() {
    let rules = Retransmission {
        first: seconds(3.0),
        longest: seconds(5.0),
        count: 3,
        duration: Nanos::ZERO,
    };
    let mut settings = Dhcp6Settings { collect: false, ..Dhcp6Settings::default() };
    settings.timers.solicit = rules;
    settings.timers.request = rules;
    settings.timers.release = rules;
    let mut script = Script::with(settings);
    let times = |script: &mut Script, kind| {
        let all: Vec<f64> = (0..2).map(|_| script.wait()).collect();
        assert_eq!(script.sends(), Some(kind));
        assert!((2.7..=3.3).contains(&all[0]), "IRT: {all:?}");
        assert!((4.5..=5.5).contains(&all[1]), "MRT: {all:?}");
    };
    times(&mut script, Kind6::Solicit);
    script.get(&script.advertise(1));
    times(&mut script, Kind6::Request);
    script.get(&script.reply());
    script.step(Dhcp6Client::release);
    times(&mut script, Kind6::Release);
    script.wait();
    assert_eq!((script.sends(), script.client.state()), (None, Dhcp6State::Released), "MRC");
}

#[test]
fn a_duration_ends_the_repetitions_of_any_message() {
    let mut settings = Dhcp6Settings { collect: false, ..Dhcp6Settings::default() };
    settings.timers.solicit.duration = seconds(4.0);
    let mut script = Script::with(settings);
    let begin = script.now;
    while script.client.state() != Dhcp6State::Failed {
        script.wait();
    }
    assert_eq!(script.now - begin, seconds(4.0), "MRD");
}

#[test]
fn the_record_of_a_client_is_small() {
    assert!(size_of::<Dhcp6Client>() <= 192, "{} octets", size_of::<Dhcp6Client>());
}

proptest! {
    /// Each message is lost, repeated or overtaken at random. Every client is bound or has failed
    /// with a reason when its timers have run, and no two have one address.
    #[test]
    fn every_client_ends_bound_or_failed_whatever_happens_to_messages(
        seed: u64, loss in 0u64..100, repeats in 0u64..50, clients in 1usize..20, pool in 1u32..30,
        rapid_commit: bool,
    ) {
        let mut server = Dhcp6Server::new(Server6Settings {
            identifier: server(1),
            first: "2001:db8::100".parse().unwrap(),
            count: pool,
            preferred: 100_000,
            valid: 200_000,
            ..Server6Settings::default()
        });
        let mut random = SplitMix64(seed);
        let settings = Dhcp6Settings { rapid_commit, ..Dhcp6Settings::default() };
        let mac = |i: usize| MacAddr([2, 0, 0, 0, 1, i as u8]);
        let mut all = vec![Dhcp6Client::default(); clients];
        let mut wire: VecDeque<Message6> = VecDeque::new();
        let mut now = seconds(1.0);
        let send = |message: Message6, random: &mut SplitMix64, wire: &mut VecDeque<Message6>| {
            if random.draw() % 100 < loss {
                return;
            }
            if random.draw() % 100 < repeats {
                wire.push_back(message.clone());
            }
            match random.draw() % 4 {
                0 => wire.push_front(message),
                _ => wire.push_back(message),
            }
        };
        let context = |now, chance, i| {
            Dhcp6Context { now, chance, mac: mac(i), settings: &settings, check: false }
        };
        for (i, client) in all.iter_mut().enumerate() {
            let step = client.start(&context(now, random.draw(), i));
            step.send.into_iter().for_each(|sent| send(sent.message, &mut random, &mut wire));
        }
        for _ in 0..100_000 {
            if let Some(message) = wire.pop_front() {
                now = now + Nanos(1_000_000);
                if message.kind.is_reply() {
                    let of = |i: &usize| message.client.as_deref() == Some(&*duid_of(mac(*i)));
                    let Some(i) = (0..clients).find(of) else { continue };
                    let step = all[i].receive(&context(now, random.draw(), i), &message);
                    step.send.into_iter().for_each(|sent| send(sent.message, &mut random, &mut wire));
                } else if let Ok(reply) = server.receive(now, &message) {
                    reply.into_iter().for_each(|reply| send(reply, &mut random, &mut wire));
                }
                continue;
            }
            let waiting = all.iter().filter(|client| client.state().is_pending());
            let Some(due) = waiting.filter_map(Dhcp6Client::due).min() else { break };
            now = now.max(due);
            for (i, client) in all.iter_mut().enumerate() {
                let step = client.timer(&context(now, random.draw(), i));
                step.send.into_iter().for_each(|sent| send(sent.message, &mut random, &mut wire));
            }
        }
        let mut addresses = Vec::new();
        for client in &all {
            match client.state() {
                Dhcp6State::Failed => prop_assert!(client.failure().is_some()),
                state => prop_assert!(state.has_lease(), "{:?}", state),
            }
            addresses.extend(client.address());
        }
        let bound = addresses.len();
        addresses.sort();
        addresses.dedup();
        prop_assert_eq!(addresses.len(), bound, "an address was given twice");
        if loss == 0 && pool as usize >= clients {
            prop_assert_eq!(bound, clients);
        }
        // The server leaks no address: all can be given again when offers and leases have ended.
        now = now + seconds(200_000.0);
        server.expire(now);
        prop_assert_eq!((server.bound(), server.leases().count()), (0, 0));
        for i in 0..pool {
            let solicit = Message6 {
                client: Some(duid_of(MacAddr([4, 0, 0, 0, 1, i as u8]))),
                addresses: Some(Association { id: 1, ..Association::default() }),
                ..Message6::new(Kind6::Solicit, 1)
            };
            let offer = server.receive(now, &solicit).unwrap().unwrap();
            let given = offer.addresses.map(|of| of.leases.len());
            prop_assert_eq!(given, Some(1), "address {} of {}", i, pool);
        }
    }

    /// Random messages of a server that knows the number of the exchange leave no client without a
    /// timer or a result.
    #[test]
    fn no_messages_leave_a_client_without_a_timer_or_a_result(
        seed: u64, prefix: bool, address: bool, check: bool,
    ) {
        let mut random = SplitMix64(seed);
        let settings = Dhcp6Settings {
            address, prefix: prefix.then_some(56), rapid_commit: true, ..Dhcp6Settings::default()
        };
        let mut script = Script { check, ..Script::with(settings) };
        for _ in 0..60 {
            let number = random.draw();
            let codes = [0, 1, 2, 3, 4, 6];
            let kind = [Kind6::Advertise, Kind6::Reply][(number % 2) as usize];
            let times = [(0, 0), (1, 1), (5, 9), (600, 1200), (INFINITE, INFINITE)];
            let (preferred, valid) = times[(number >> 8) as usize % times.len()];
            let mut message = script.leases(script.of_kind(kind), preferred, valid);
            message.rapid_commit = number >> 16 & 1 == 1;
            message.status = (number >> 17 & 3 == 0).then(|| codes[(number >> 20) as usize % 6]);
            match number >> 40 & 3 {
                0 => script.get(&message),
                1 if script.client.state() == Dhcp6State::Checking => {
                    script.step(|client, cx| client.checked(cx, number >> 50 & 1 == 1));
                }
                _ if script.client.due().is_some() => { script.wait(); }
                _ => {}
            }
            let state = script.client.state();
            let waits = state.is_pending() && state != Dhcp6State::Checking;
            prop_assert!(!waits || script.client.due().is_some(), "{:?} waits for nothing", state);
            prop_assert!(script.client.due().is_none_or(|due| due + Nanos(1) >= script.now));
        }
    }
}
