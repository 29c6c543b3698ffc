//! Scripts in virtual time, a rule each, and properties of clients whose messages are lost, repeated
//! and exchanged.

use std::collections::VecDeque;

use proptest::prelude::*;
use squall_units::SplitMix64;

use super::*;
use crate::dhcp_server::{DhcpServer, ServerSettings};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);

/// One client, its time, and its last message.
struct Script {
    client: DhcpClient,
    now: Nanos,
    timers: DhcpTimers,
    settings: ClientSettings,
    own: Option<Ipv4Addr>,
    faults: Faults,
    check: bool,
    random: SplitMix64,
    last: Option<Request>,
    event: Option<DhcpEvent>,
}

fn seconds(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}

impl Script {
    /// A client that has sent its first DISCOVER.
    fn started() -> Self {
        let script = Self::begun(ClientSettings::default(), None);
        assert_eq!(script.sends(), Some((Kind::Discover, None)));
        script
    }

    /// A client that has sent its first message.
    fn begun(settings: ClientSettings, own: Option<Ipv4Addr>) -> Self {
        let mut script = Self {
            client: DhcpClient::default(),
            now: seconds(100.0),
            timers: DhcpTimers::default(),
            settings,
            own,
            faults: Faults::default(),
            check: false,
            random: SplitMix64(1),
            last: None,
            event: None,
        };
        script.step(DhcpClient::start);
        script
    }

    /// A client that is bound for `lease` seconds.
    fn bound(lease: u32) -> Self {
        let mut script = Self::started();
        script.offer();
        script.ack(lease);
        assert_eq!(script.client.state(), DhcpState::Bound);
        script
    }

    fn step(&mut self, act: impl FnOnce(&mut DhcpClient, &DhcpContext<'_>) -> DhcpStep) {
        let cx = DhcpContext {
            now: self.now,
            chance: self.random.draw(),
            mac: MAC,
            timers: &self.timers,
            settings: &self.settings,
            own: self.own,
            faults: self.faults,
            check: self.check,
        };
        let step = act(&mut self.client, &cx);
        (self.last, self.event) = (step.send, step.event);
    }

    /// Goes to the next timer. Returns the time that has passed, in seconds.
    fn wait(&mut self) -> f64 {
        let due = self.client.due().expect("a timer");
        let passed = due - self.now;
        // A moment before, nothing happens.
        self.now = due - Nanos(1);
        self.step(DhcpClient::timer);
        assert_eq!(self.last, None);
        self.now = due;
        self.step(DhcpClient::timer);
        passed.as_secs_f64()
    }

    fn get(&mut self, message: &Message) {
        self.step(|client, cx| client.receive(cx, message));
    }

    fn reply(&self, kind: Kind) -> Message {
        let yiaddr = if kind == Kind::Nak { Ipv4Addr::UNSPECIFIED } else { ADDRESS };
        Message { server: Some(SERVER), yiaddr, ..Message::new(kind, self.client.xid, MAC) }
    }

    fn offer(&mut self) {
        self.get(&Message { lease: Some(600), ..self.reply(Kind::Offer) });
    }

    fn ack(&mut self, lease: u32) {
        self.get(&Message { lease: Some(lease), ..self.reply(Kind::Ack) });
    }

    fn sends(&self) -> Option<(Kind, Option<Ipv4Addr>)> {
        self.last.as_ref().map(|sent| (sent.message.kind, sent.unicast))
    }

    fn message(&self) -> &Message {
        &self.last.as_ref().expect("a message was sent").message
    }
}

fn is_about(seconds: f64, expected: f64) -> bool {
    (seconds - expected).abs() <= 1.0
}

#[test]
fn discover_is_sent_after_4_8_16_and_32_seconds_more_or_less_one_and_then_the_client_fails() {
    let mut script = Script::started();
    let xid = script.message().xid;
    for expected in [4.0, 8.0, 16.0, 32.0] {
        let waited = script.wait();
        assert!(is_about(waited, expected), "{waited} s, expected {expected} s");
        assert_eq!((script.message().kind, script.message().xid), (Kind::Discover, xid));
        assert!(script.last.as_ref().unwrap().retransmission);
        let elapsed = (script.now - seconds(100.0)).0 / 1_000_000_000;
        assert_eq!(u64::from(script.message().secs), elapsed);
    }
    assert!(is_about(script.wait(), 64.0));
    assert_eq!((script.sends(), script.client.state()), (None, DhcpState::Failed));
    assert_eq!(script.client.failure(), Some(DhcpFailure::NoOffer));
    assert_eq!(script.client.due(), None);
}

#[test]
fn delays_differ_between_clients_and_never_exceed_the_longest() {
    let timers = DhcpTimers::default();
    let mut random = SplitMix64(3);
    let delays: Vec<_> = (0..1000).map(|_| timers.delay(1, random.draw()).as_secs_f64()).collect();
    assert!(delays.iter().all(|delay| is_about(*delay, 4.0)));
    let mean = delays.iter().sum::<f64>() / 1000.0;
    assert!((mean - 4.0).abs() < 0.1, "mean {mean}");
    for tries in 5..=255 {
        assert!(is_about(timers.delay(tries, random.draw()).as_secs_f64(), 64.0));
    }
}

#[test]
fn an_offer_is_requested_from_its_server_with_the_same_xid_and_secs() {
    let mut script = Script::started();
    script.wait();
    let discover = script.message().clone();
    script.now = script.now + seconds(0.25);
    script.offer();
    let request = script.message().clone();
    assert_eq!(script.sends(), Some((Kind::Request, None)));
    assert_eq!((request.xid, request.secs), (discover.xid, discover.secs));
    assert_eq!((request.requested, request.server), (Some(ADDRESS), Some(SERVER)));
    assert!(request.ciaddr.is_unspecified());
    let after_first = script.now - seconds(100.0);
    assert_eq!(script.event, Some(DhcpEvent::Offered(after_first)), "after the first DISCOVER");
}

#[test]
fn a_request_without_answer_is_repeated_four_times_and_then_the_client_begins_again() {
    let mut script = Script::started();
    script.offer();
    for expected in [4.0, 8.0, 16.0, 32.0] {
        assert!(is_about(script.wait(), expected));
        assert_eq!(script.sends(), Some((Kind::Request, None)));
    }
    let xid = script.client.xid;
    assert!(is_about(script.wait(), 64.0));
    assert_eq!(script.sends(), Some((Kind::Discover, None)));
    assert_ne!(script.client.xid, xid, "another acquisition has another number");
    assert!(!script.last.as_ref().unwrap().retransmission);
}

#[test]
fn a_client_that_never_gets_an_ack_fails_after_its_restarts() {
    let mut script = Script::started();
    for _ in 0..4 {
        script.offer();
        for _ in 0..5 {
            script.wait();
        }
    }
    assert_eq!(script.client.failure(), Some(DhcpFailure::NoAck));
    assert_eq!(script.client.state(), DhcpState::Failed);
}

#[test]
fn a_nak_begins_again_at_once_and_fails_after_the_restarts() {
    let mut script = Script::started();
    for left in (0..4).rev() {
        script.offer();
        script.get(&script.reply(Kind::Nak));
        assert_eq!(script.event, Some(DhcpEvent::Refused));
        assert_eq!(script.sends().map(|sent| sent.0), (left > 0).then_some(Kind::Discover));
    }
    assert_eq!(script.client.failure(), Some(DhcpFailure::Nak));
}

#[test]
fn at_t1_the_server_is_asked_and_at_t2_all_servers() {
    let mut script = Script::bound(1000);
    assert_eq!(script.client.address(), Some(ADDRESS));
    let waited = script.wait();
    assert!((waited - 500.0).abs() < 1e-6, "T1 = half of the lease, not {waited} s");
    assert_eq!(script.sends(), Some((Kind::Request, Some(SERVER))));
    assert_eq!(script.client.state(), DhcpState::Renewing);
    let request = script.message().clone();
    // RFC 2131 table 5: neither the address nor the server is an option.
    assert_eq!((request.ciaddr, request.requested, request.server), (ADDRESS, None, None));
    assert_eq!(script.client.address(), Some(ADDRESS), "it is used meanwhile");
    // Half of the time that is left before T2, at least 60 s.
    for expected in [187.5, 93.75, 60.0] {
        let waited = script.wait();
        assert!((waited - expected).abs() < 1e-6, "{waited} s, expected {expected} s");
        assert_eq!(script.sends(), Some((Kind::Request, Some(SERVER))));
    }
    let waited = script.wait();
    assert!((waited - 33.75).abs() < 1e-6, "T2 = 7/8 of the lease: {waited} s later");
    assert_eq!(script.sends(), Some((Kind::Request, None)));
    assert_eq!(script.client.state(), DhcpState::Rebinding);
    assert_eq!(script.message().ciaddr, ADDRESS);
    assert!((script.wait() - 62.5).abs() < 1e-6);
}

#[test]
fn at_the_end_of_its_lease_the_client_has_no_address_and_begins_again() {
    let mut script = Script::bound(100);
    while script.event != Some(DhcpEvent::Expired) {
        script.wait();
    }
    assert!((script.now - seconds(200.0)).0 < 10, "100 s after the request");
    assert_eq!(script.client.address(), None);
    assert_eq!(script.sends(), Some((Kind::Discover, None)));
}

#[test]
fn an_ack_while_renewing_or_rebinding_extends_the_lease_from_its_request() {
    for rebinding in [false, true] {
        let mut script = Script::bound(1000);
        script.wait();
        while rebinding && script.client.state() != DhcpState::Rebinding {
            script.wait();
        }
        let asked = script.now;
        script.now = script.now + seconds(3.0);
        script.ack(1000);
        assert_eq!(script.event, Some(DhcpEvent::Renewed));
        assert_eq!(script.client.due(), Some(asked + seconds(500.0)));
    }
}

#[test]
fn a_nak_while_renewing_takes_the_address_away() {
    let mut script = Script::bound(1000);
    script.wait();
    script.get(&script.reply(Kind::Nak));
    assert_eq!((script.event, script.client.address()), (Some(DhcpEvent::Refused), None));
    assert_eq!(script.sends(), Some((Kind::Discover, None)));
}

#[test]
fn times_of_the_server_are_used_if_they_are_in_order() {
    for (renewal, rebinding, expected) in
        [(100, 200, 100.0), (0, 200, 300.0), (300, 200, 300.0), (100, 700, 300.0)]
    {
        let mut script = Script::started();
        script.offer();
        script.get(&Message {
            lease: Some(600),
            renewal: Some(renewal),
            rebinding: Some(rebinding),
            ..script.reply(Kind::Ack)
        });
        assert!((script.wait() - expected).abs() < 1e-6, "T1 {renewal}, T2 {rebinding}");
    }
}

#[test]
fn an_infinite_lease_is_never_renewed() {
    assert_eq!(Script::bound(INFINITE).client.due(), None);
}

#[test]
fn the_shortest_lease_is_renewed_twice_a_second_and_no_faster() {
    let mut script = Script::bound(1);
    assert!((script.wait() - 0.5).abs() < 1e-6);
    script.ack(1);
    assert!((script.wait() - 0.5).abs() < 1e-6);
}

#[test]
fn an_address_is_used_when_it_was_examined() {
    let mut script = Script { check: true, ..Script::started() };
    script.offer();
    script.ack(600);
    assert_eq!(script.event, Some(DhcpEvent::Acknowledged));
    assert_eq!((script.client.address(), script.client.candidate()), (None, Some(ADDRESS)));
    script.now = script.now + seconds(6.0);
    script.step(|client, cx| client.checked(cx, false));
    assert_eq!(script.event, Some(DhcpEvent::Bound(seconds(6.0))));
    assert_eq!(script.client.address(), Some(ADDRESS));
}

#[test]
fn an_address_of_another_host_is_declined_and_another_one_wanted_after_10_seconds() {
    let mut script = Script { check: true, ..Script::started() };
    script.offer();
    script.ack(600);
    script.step(|client, cx| client.checked(cx, true));
    let decline = script.message().clone();
    assert_eq!(script.sends(), Some((Kind::Decline, None)));
    assert_eq!((decline.requested, decline.server), (Some(ADDRESS), Some(SERVER)));
    assert!(decline.ciaddr.is_unspecified());
    assert!((script.wait() - 10.0).abs() < 1e-6);
    assert_eq!(script.sends(), Some((Kind::Discover, None)));
}

#[test]
fn a_conflict_of_an_address_in_use_begins_another_acquisition() {
    let mut script = Script::bound(1000);
    script.now = script.now + seconds(400.0);
    script.step(|client, cx| client.checked(cx, true));
    assert_eq!(script.sends(), Some((Kind::Decline, None)));
    script.wait();
    assert_eq!(script.message().secs, 0, "without the time for which it was bound");
    script.offer();
    script.ack(1000);
    assert_eq!(script.event, Some(DhcpEvent::Bound(Nanos::ZERO)));
}

#[test]
fn an_address_that_is_still_examined_is_released() {
    let mut script = Script::started();
    script.check = true;
    script.offer();
    script.ack(1000);
    assert_eq!(script.client.state(), DhcpState::Checking);
    script.step(DhcpClient::release);
    assert_eq!(script.sends(), Some((Kind::Release, Some(SERVER))));
    assert_eq!((script.message().ciaddr, script.client.state()), (ADDRESS, DhcpState::Released));
}

#[test]
fn a_release_goes_to_the_server_and_ends_the_client() {
    let mut script = Script::bound(600);
    script.step(DhcpClient::release);
    assert_eq!(script.sends(), Some((Kind::Release, Some(SERVER))));
    assert_eq!((script.message().ciaddr, script.message().server), (ADDRESS, Some(SERVER)));
    assert_eq!((script.client.address(), script.client.due()), (None, None));
    script.step(DhcpClient::release);
    assert_eq!(script.last, None, "once");
}

#[test]
fn messages_of_hostile_servers_are_ignored_with_a_reason() {
    let ignored = |script: &mut Script, message: &Message, reason| {
        let before = script.client.clone();
        script.get(message);
        assert_eq!(script.event, Some(DhcpEvent::Ignored(reason)));
        assert_eq!((script.last.as_ref(), &script.client), (None, &before), "{reason}");
    };
    let mut script = Script::started();
    let offer = Message { lease: Some(600), ..script.reply(Kind::Offer) };
    ignored(&mut script, &Message { xid: offer.xid ^ 1, ..offer.clone() }, "wrong_xid");
    ignored(&mut script, &Message { server: None, ..offer.clone() }, "no_server");
    ignored(&mut script, &Message { lease: Some(0), ..offer.clone() }, "zero_lease");
    for address in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [255, 255, 255, 255]] {
        ignored(&mut script, &Message { yiaddr: address.into(), ..offer.clone() }, "bad_address");
    }
    let early = Message { lease: Some(600), ..script.reply(Kind::Ack) };
    ignored(&mut script, &early, "late_ack");
    for (kind, reason) in [(Kind::Nak, "late_nak"), (Kind::Discover, "not_a_reply")] {
        let message = script.reply(kind);
        ignored(&mut script, &message, reason);
    }
    script.get(&offer);
    ignored(&mut script, &offer, "late_offer");
    let ack = Message { lease: Some(600), ..script.reply(Kind::Ack) };
    ignored(&mut script, &Message { lease: Some(0), ..ack.clone() }, "zero_lease");
    ignored(&mut script, &Message { lease: None, ..ack.clone() }, "no_lease");
    let other = Some([10, 0, 0, 66].into());
    ignored(&mut script, &Message { server: other, ..ack.clone() }, "wrong_server");
    let nak = script.reply(Kind::Nak);
    ignored(&mut script, &Message { server: other, ..nak }, "wrong_server");
    script.get(&ack);
    assert_eq!(script.client.state(), DhcpState::Bound);
    script.wait();
    let renewal = Message { lease: Some(600), ..script.reply(Kind::Ack) };
    let moved = Message { yiaddr: [10, 0, 0, 77].into(), ..renewal };
    ignored(&mut script, &moved, "bad_address");
}

fn begins(begin: DhcpBegin) -> Script {
    Script::begun(ClientSettings { begin, ..ClientSettings::default() }, Some(ADDRESS))
}

#[test]
fn a_client_that_reboots_requests_its_former_address_of_any_server() {
    let mut script = begins(DhcpBegin::Reboot);
    assert_eq!(script.sends(), Some((Kind::Request, None)));
    let request = script.message().clone();
    assert_eq!((request.requested, request.server), (Some(ADDRESS), None));
    assert!(request.ciaddr.is_unspecified());
    assert_eq!((script.client.state(), script.client.address()), (DhcpState::Rebooting, None));
    script.now = script.now + seconds(0.5);
    script.ack(600);
    assert_eq!(script.event, Some(DhcpEvent::Bound(seconds(0.5))));
    assert_eq!(script.client.address(), Some(ADDRESS));
    assert!((script.wait() - 299.5).abs() < 1e-6, "T1 after the request");
    assert_eq!(script.sends(), Some((Kind::Request, Some(SERVER))));
}

#[test]
fn a_client_that_reboots_discovers_after_a_nak_and_after_five_requests_without_answer() {
    let mut refused = begins(DhcpBegin::Reboot);
    refused.get(&refused.reply(Kind::Nak));
    assert_eq!(refused.event, Some(DhcpEvent::Refused));
    assert_eq!(refused.sends(), Some((Kind::Discover, None)));
    let mut script = begins(DhcpBegin::Reboot);
    let xid = script.message().xid;
    for expected in [4.0, 8.0, 16.0, 32.0] {
        assert!(is_about(script.wait(), expected));
        assert_eq!((script.message().kind, script.message().xid), (Kind::Request, xid));
    }
    assert!(is_about(script.wait(), 64.0));
    assert_eq!(script.sends(), Some((Kind::Discover, None)));
    assert_eq!(script.message().requested, Some(ADDRESS), "it asks for it still");
}

#[test]
fn a_client_that_reboots_takes_no_other_address_than_its_own() {
    let mut script = begins(DhcpBegin::Reboot);
    let yiaddr = [10, 0, 0, 77].into();
    script.get(&Message { lease: Some(600), yiaddr, ..script.reply(Kind::Ack) });
    assert_eq!(script.event, Some(DhcpEvent::Ignored("bad_address")));
    assert_eq!(script.client.state(), DhcpState::Rebooting);
}

#[test]
fn a_client_with_an_address_asks_for_the_other_parameters_alone() {
    let mut script = begins(DhcpBegin::Inform(16));
    assert_eq!(script.sends(), Some((Kind::Inform, None)));
    let inform = script.message().clone();
    assert_eq!((inform.ciaddr, inform.requested, inform.lease), (ADDRESS, None, None));
    assert_eq!(script.client.address(), Some(ADDRESS), "a server asks ARP for it");
    assert_eq!(script.client.mask(), Some([255, 255, 0, 0].into()));
    let router = Some([10, 0, 0, 254].into());
    let ack = Message { yiaddr: Ipv4Addr::UNSPECIFIED, router, ..script.reply(Kind::Ack) };
    script.get(&ack);
    assert_eq!(script.event, Some(DhcpEvent::Bound(Nanos::ZERO)));
    assert_eq!((script.client.router(), script.client.due()), (router, None));
    script.step(DhcpClient::release);
    assert_eq!(script.last, None, "no server gave the address");
}

#[test]
fn an_inform_without_answer_is_repeated_four_times_and_a_conflict_is_not_declined() {
    let mut script = begins(DhcpBegin::Inform(16));
    for expected in [4.0, 8.0, 16.0, 32.0] {
        assert!(is_about(script.wait(), expected));
        assert_eq!(script.sends(), Some((Kind::Inform, None)));
    }
    assert!(is_about(script.wait(), 64.0));
    assert_eq!(script.client.failure(), Some(DhcpFailure::NoAck));
    assert_eq!((script.client.due(), script.client.address()), (None, None));
    let mut script = begins(DhcpBegin::Inform(16));
    script.step(|client, cx| client.checked(cx, true));
    assert_eq!((script.last.as_ref(), script.client.state()), (None, DhcpState::Failed));
    assert_eq!(script.client.failure(), Some(DhcpFailure::Conflict));
}

#[test]
fn a_rapid_client_is_bound_by_an_ack_that_says_so_and_still_accepts_offers() {
    let rapid = ClientSettings { rapid_commit: true, ..ClientSettings::default() };
    let mut script = Script::begun(rapid.clone(), None);
    assert!(script.message().rapid);
    let ack = Message { lease: Some(600), ..script.reply(Kind::Ack) };
    script.get(&ack);
    assert_eq!(script.event, Some(DhcpEvent::Ignored("late_ack")), "RFC 4039 section 3.1");
    script.get(&Message { rapid: true, server: None, ..ack.clone() });
    assert_eq!(script.event, Some(DhcpEvent::Ignored("no_server")));
    script.get(&Message { rapid: true, ..ack.clone() });
    assert_eq!(script.event, Some(DhcpEvent::Bound(Nanos::ZERO)));
    assert_eq!((script.last.as_ref(), script.client.server()), (None, Some(SERVER)));
    let mut offered = Script::begun(rapid, None);
    offered.offer();
    assert_eq!(offered.sends(), Some((Kind::Request, None)));
    assert!(!offered.message().rapid);
    let mut other = Script::started();
    other.get(&Message { rapid: true, ..Message { xid: other.client.xid, ..ack } });
    assert_eq!(other.event, Some(DhcpEvent::Ignored("late_ack")), "it did not ask");
}

#[test]
fn hints_of_the_settings_are_in_the_messages_that_may_have_them() {
    let settings =
        ClientSettings { lease: Some(7200), broadcast: true, ..ClientSettings::default() };
    let mut script = Script::begun(settings, Some(ADDRESS));
    let discover = script.message().clone();
    assert_eq!((discover.requested, discover.lease), (Some(ADDRESS), Some(7200)));
    assert!(discover.broadcast);
    script.offer();
    assert!(script.message().broadcast);
    assert_eq!(script.message().lease, Some(7200));
    script.ack(600);
    script.wait();
    assert!(!script.message().broadcast, "it has an address");
    script.step(|client, cx| client.checked(cx, true));
    let decline = script.message();
    assert_eq!((decline.kind, decline.lease, decline.broadcast), (Kind::Decline, None, false));
}

#[test]
fn a_lease_counts_from_the_first_of_repeated_requests_unless_it_would_be_over() {
    for (lease, t1) in [(600, 288.0), (10, 5.0)] {
        let mut script = Script::started();
        script.offer();
        let first = script.now;
        script.wait();
        script.wait();
        let (sent, about) = (script.now, (script.now - first).as_secs_f64());
        assert!((10.0..=14.0).contains(&about));
        script.ack(lease);
        let expected = if lease == 600 { first + seconds(300.0) } else { sent + seconds(t1) };
        assert_eq!(script.client.due(), Some(expected), "lease of {lease} s");
    }
}

#[test]
fn one_time_of_the_server_is_used_without_the_other() {
    for (renewal, rebinding, expected) in [(Some(100), None, 100.0), (None, Some(400), 300.0)] {
        let mut script = Script::started();
        script.offer();
        let ack = script.reply(Kind::Ack);
        script.get(&Message { lease: Some(600), renewal, rebinding, ..ack });
        assert!((script.wait() - expected).abs() < 1e-6, "T1 {renewal:?}, T2 {rebinding:?}");
    }
}

#[test]
fn a_client_whose_addresses_all_belong_to_others_fails_after_four() {
    let mut script = Script { check: true, ..Script::started() };
    let mut declines = 0;
    while script.client.state() != DhcpState::Failed {
        script.offer();
        script.ack(600);
        script.step(|client, cx| client.checked(cx, true));
        declines += u32::from(script.sends().is_some_and(|(kind, _)| kind == Kind::Decline));
        script.wait();
    }
    assert_eq!((declines, script.client.failure()), (4, Some(DhcpFailure::Conflict)));
}

#[test]
fn the_times_of_a_discover_are_settable() {
    let mut script = Script::started();
    let (first, longest, spread) = (seconds(1.0), seconds(3.0), Nanos::ZERO);
    script.timers = DhcpTimers { first, longest, spread, discovers: 5, ..script.timers };
    script.wait();
    for expected in [2.0, 3.0, 3.0] {
        assert!((script.wait() - expected).abs() < 1e-6, "RFC 2131 section 4.1");
        assert_eq!(script.sends(), Some((Kind::Discover, None)));
    }
    script.wait();
    assert_eq!(script.client.failure(), Some(DhcpFailure::NoOffer));
}

#[test]
fn the_times_of_a_request_begin_anew_after_those_of_the_discover() {
    let mut script = Script::started();
    for _ in 0..3 {
        script.wait();
    }
    script.offer();
    assert!(is_about(script.wait(), 4.0), "not 32 s");
    assert!(is_about(script.wait(), 8.0));
}

#[test]
fn a_discover_after_a_refusal_begins_with_4_seconds() {
    let mut script = Script::started();
    script.wait();
    script.offer();
    script.wait();
    script.get(&script.reply(Kind::Nak));
    assert_eq!(script.sends(), Some((Kind::Discover, None)));
    assert!(is_about(script.wait(), 4.0));
}

#[test]
fn while_rebinding_half_of_the_rest_of_the_lease_passes_and_at_least_a_minute() {
    let mut script = Script::bound(1000);
    while script.client.state() != DhcpState::Rebinding {
        script.wait();
    }
    assert_eq!(script.now, seconds(975.0));
    for expected in [62.5, 60.0] {
        let waited = script.wait();
        assert!((waited - expected).abs() < 1e-6, "{waited} s, expected {expected} s");
        assert_eq!(script.sends(), Some((Kind::Request, None)), "RFC 2131 section 4.4.5");
    }
    assert!((script.wait() - 2.5).abs() < 1e-6);
    assert_eq!(script.event, Some(DhcpEvent::Expired));
}

#[test]
fn the_shortest_time_between_renewals_is_settable() {
    let mut script = Script::bound(1000);
    script.timers.renewal = seconds(10.0);
    script.wait();
    for expected in [187.5, 93.75, 46.875, 23.4375, 11.71875, 10.0] {
        let waited = script.wait();
        assert!((waited - expected).abs() < 1e-6, "{waited} s, expected {expected} s");
        assert_eq!(script.client.state(), DhcpState::Renewing);
    }
    script.wait();
    assert_eq!((script.client.state(), script.now), (DhcpState::Rebinding, seconds(975.0)));
}

#[test]
fn a_nak_while_rebinding_takes_the_address_away() {
    let mut script = Script::bound(1000);
    while script.client.state() != DhcpState::Rebinding {
        script.wait();
    }
    script.get(&script.reply(Kind::Nak));
    assert_eq!((script.event, script.client.address()), (Some(DhcpEvent::Refused), None));
    assert_eq!(script.sends(), Some((Kind::Discover, None)));
}

#[test]
fn another_server_may_extend_the_lease_while_rebinding() {
    let mut script = Script::bound(1000);
    while script.client.state() != DhcpState::Rebinding {
        script.wait();
    }
    let server = Some([10, 0, 0, 66].into());
    script.get(&Message { server, lease: Some(1000), ..script.reply(Kind::Ack) });
    assert_eq!((script.event, script.client.server()), (Some(DhcpEvent::Renewed), server));
    script.wait();
    assert_eq!(script.sends(), Some((Kind::Request, server)), "at T1 that server is asked");
}

#[test]
fn an_ack_that_comes_after_the_end_of_the_lease_is_ignored() {
    let mut script = Script::bound(100);
    while script.client.state() != DhcpState::Rebinding {
        script.wait();
    }
    let ack = Message { lease: Some(100), ..script.reply(Kind::Ack) };
    while script.event != Some(DhcpEvent::Expired) {
        script.wait();
    }
    script.get(&ack);
    assert_eq!(script.event, Some(DhcpEvent::Ignored("wrong_xid")));
    assert_eq!(script.client.address(), None);
}

#[test]
fn a_lease_with_t1_at_t2_is_rebound_without_a_renewal() {
    let mut script = Script::started();
    script.offer();
    let (lease, renewal) = (Some(600), Some(300));
    script.get(&Message { lease, renewal, rebinding: renewal, ..script.reply(Kind::Ack) });
    assert!((script.wait() - 300.0).abs() < 1e-6);
    assert_eq!(
        (script.sends(), script.client.state()),
        (Some((Kind::Request, None)), DhcpState::Rebinding)
    );
}

#[test]
fn the_pause_after_a_decline_is_settable() {
    let mut script = Script { check: true, ..Script::started() };
    script.timers.declined = seconds(33.0);
    script.offer();
    script.ack(600);
    script.step(|client, cx| client.checked(cx, true));
    assert!((script.wait() - 33.0).abs() < 1e-6, "RFC 2131 section 3.1.5");
    assert_eq!(script.sends(), Some((Kind::Discover, None)));
}

#[test]
fn the_lease_counts_from_its_request_while_the_address_is_examined() {
    let mut script = Script { check: true, ..Script::started() };
    script.offer();
    script.ack(600);
    script.now = script.now + seconds(6.0);
    script.step(|client, cx| client.checked(cx, false));
    assert!((script.wait() - 294.0).abs() < 1e-6, "T1 is 300 s after the request");
}

fn with(fault: Fault) -> Script {
    Script { faults: [fault].into_iter().collect(), ..Script::started() }
}

#[test]
fn a_client_that_ignores_offers_repeats_its_discover_until_it_fails() {
    let mut script = with(Fault::IgnoreOffer);
    for _ in 0..5 {
        script.offer();
        assert_eq!(script.event, Some(DhcpEvent::Ignored("ignore-offer")));
        script.wait();
    }
    assert_eq!(script.client.failure(), Some(DhcpFailure::NoOffer));
}

#[test]
fn a_client_that_ignores_refusals_keeps_its_address_until_the_lease_ends() {
    let mut script = with(Fault::IgnoreNak);
    script.offer();
    script.ack(600);
    script.wait();
    script.get(&script.reply(Kind::Nak));
    assert_eq!(script.event, Some(DhcpEvent::Ignored("ignore-nak")));
    assert_eq!(script.client.address(), Some(ADDRESS));
    while script.event != Some(DhcpEvent::Expired) {
        script.wait();
    }
    assert_eq!((script.now - seconds(100.0)).0 / 1_000_000_000, 600);
}

#[test]
fn a_client_that_declines_gives_back_each_address_that_it_gets() {
    let mut script = with(Fault::Decline);
    for left in (0..4).rev() {
        script.offer();
        script.ack(600);
        assert_eq!(script.sends(), Some((Kind::Decline, None)));
        assert_eq!(script.message().requested, Some(ADDRESS));
        assert!((script.wait() - 10.0).abs() < 1e-6);
        assert_eq!(script.sends().is_some(), left > 0);
    }
    assert_eq!(script.client.failure(), Some(DhcpFailure::Conflict));
}

#[test]
fn a_client_that_keeps_its_lease_never_renews_it() {
    let mut script = with(Fault::KeepLease);
    script.offer();
    script.ack(10);
    assert_eq!((script.client.due(), script.client.address()), (None, Some(ADDRESS)));
}

proptest! {
    /// Each message is lost, repeated or overtaken at random. Every client is bound or has failed
    /// with a reason when its timers have run, and no two have one address.
    #[test]
    fn every_client_ends_bound_or_failed_whatever_happens_to_messages(
        seed: u64, loss in 0u64..100, repeats in 0u64..50, clients in 1usize..20, pool in 1u32..30,
    ) {
        let settings = ServerSettings {
            address: SERVER,
            first: [10, 0, 0, 10].into(),
            count: pool,
            lease: 100_000,
            ..ServerSettings::default()
        };
        let mut server = DhcpServer::new(settings);
        let mut random = SplitMix64(seed);
        let timers = DhcpTimers::default();
        let mac = |i: usize| MacAddr([2, 0, 0, 0, 1, i as u8]);
        let mut all = vec![DhcpClient::default(); clients];
        let mut wire: VecDeque<Message> = VecDeque::new();
        let mut now = seconds(1.0);
        let send = |message: Message, random: &mut SplitMix64, wire: &mut VecDeque<Message>| {
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
        let (shared, faults) = (ClientSettings::default(), Faults::default());
        let context = |now, chance, i| {
            let (mac, timers, settings) = (mac(i), &timers, &shared);
            DhcpContext { now, chance, mac, timers, settings, own: None, faults, check: false }
        };
        for (i, client) in all.iter_mut().enumerate() {
            let step = client.start(&context(now, random.draw(), i));
            step.send.into_iter().for_each(|sent| send(sent.message, &mut random, &mut wire));
        }
        for _ in 0..100_000 {
            if let Some(message) = wire.pop_front() {
                now = now + Nanos(1_000_000);
                if message.kind.is_reply() {
                    let Some(i) = (0..clients).find(|i| mac(*i) == message.chaddr) else { continue };
                    let step = all[i].receive(&context(now, random.draw(), i), &message);
                    step.send.into_iter().for_each(|sent| send(sent.message, &mut random, &mut wire));
                } else if let Ok(reply) = server.receive(now, &message) {
                    reply.into_iter().for_each(|reply| send(reply, &mut random, &mut wire));
                }
                continue;
            }
            let pending = |client: &DhcpClient| client.state().is_pending();
            let waiting = all.iter().filter(|client| pending(client));
            let Some(due) = waiting.filter_map(DhcpClient::due).min() else { break };
            now = now.max(due);
            for (i, client) in all.iter_mut().enumerate() {
                let step = client.timer(&context(now, random.draw(), i));
                step.send.into_iter().for_each(|sent| send(sent.message, &mut random, &mut wire));
            }
        }
        let mut addresses = Vec::new();
        for client in &all {
            match client.state() {
                DhcpState::Failed => prop_assert!(client.failure().is_some()),
                state => prop_assert!(state.has_address(), "{:?}", state),
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
        now = now + seconds(100_000.0);
        server.expire(now);
        prop_assert_eq!((server.bound(), server.leases().count()), (0, 0));
        for i in 0..pool {
            let message = Message::new(Kind::Discover, 1, MacAddr([4, 0, 0, 0, 0, i as u8]));
            let offer = server.receive(now, &message).unwrap();
            prop_assert!(offer.is_some(), "address {} of {}", i, pool);
        }
    }
}
