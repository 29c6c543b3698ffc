//! Both ends of links, in virtual time.

use proptest::prelude::*;
use squall_units::{SplitMix64, below};

use super::*;

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const GIVEN: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 7);

fn seconds(seconds: u64) -> Nanos {
    Nanos(seconds * 1_000_000_000)
}

fn settings(auth: PppAuth) -> PppSettings {
    let (identity, password) = ("user{}".into(), "secret{}".into());
    PppSettings { auth, identity, password, ..PppSettings::default() }
}

/// Two ends, whose packets arrive at once.
struct Pair {
    links: [PppLink; 2],
    settings: [PppSettings; 2],
    now: Nanos,
    random: SplitMix64,
    /// Percent of the packets.
    loss: u64,
    repeats: u64,
    /// Packets on the way: the end to which they go.
    queue: Vec<(usize, u16, Vec<u8>)>,
    /// Events of the client and of the server.
    events: [Vec<PppEvent>; 2],
    sent: Vec<&'static str>,
}

impl Pair {
    fn new(client: PppSettings, server: PppSettings) -> Self {
        Self {
            links: Default::default(),
            settings: [client, server],
            now: seconds(100),
            random: SplitMix64(5),
            loss: 0,
            repeats: 0,
            queue: Vec::new(),
            events: Default::default(),
            sent: Vec::new(),
        }
    }

    fn started(client: PppSettings, server: PppSettings) -> Self {
        let mut pair = Self::new(client, server);
        pair.step(0, |link, cx| link.start(cx));
        pair.step(1, |link, cx| link.start(cx));
        pair.exchange();
        pair
    }

    fn step(&mut self, end: usize, act: impl FnOnce(&mut PppLink, &PppContext<'_>) -> PppStep) {
        let role = [PppRole::Client, PppRole::Server(OWN, GIVEN)][end];
        let (now, chance, settings) = (self.now, self.random.draw(), &self.settings[end]);
        let cx = PppContext { now, chance, number: 7, role, settings };
        let step = act(&mut self.links[end], &cx);
        for (protocol, octets) in step.send {
            self.sent.push(crate::ppp_word(protocol, &octets));
            let copies = match below(self.random.draw(), 100) {
                draw if draw < self.loss => 0,
                draw if draw < self.loss + self.repeats => 2,
                _ => 1,
            };
            (0..copies).for_each(|_| self.queue.push((1 - end, protocol, octets.clone())));
        }
        self.events[end].extend(step.events);
    }

    fn exchange(&mut self) {
        while !self.queue.is_empty() {
            let (end, protocol, octets) = self.queue.remove(0);
            self.step(end, |link, cx| link.receive(cx, protocol, &octets));
        }
    }

    /// Runs the timers until `until`; packets of the client arrive nowhere, if it is `alone`.
    fn run(&mut self, until: Nanos, alone: bool) {
        loop {
            let due = self.links.iter().map(|link| link.due());
            let Some((end, due)) =
                due.enumerate().filter_map(|(i, due)| Some((i, due?))).min_by_key(|one| one.1)
            else {
                break;
            };
            if due > until || alone && end == 1 {
                break;
            }
            self.now = due.max(self.now);
            self.step(end, |link, cx| link.timer(cx));
            if alone {
                self.queue.clear();
            }
            self.exchange();
        }
        self.now = until;
    }

    /// The answer of an end to a packet.
    fn answer(&mut self, end: usize, protocol: u16, packet: &[u8]) -> Vec<(u16, Vec<u8>)> {
        self.step(end, |link, cx| link.receive(cx, protocol, packet));
        self.queue.drain(..).map(|(_, protocol, octets)| (protocol, octets)).collect()
    }
}

fn packet(code: u8, id: u8, data: &[u8]) -> Vec<u8> {
    PppPacket { code, id, data }.octets()
}

#[test]
fn a_client_proves_its_password_and_gets_its_address() {
    for (auth, word) in [(PppAuth::Pap, "pap_ack"), (PppAuth::Chap, "chap_success")] {
        let mut pair = Pair::started(settings(PppAuth::Any), settings(auth));
        assert_eq!(pair.events, [vec![PppEvent::Up], vec![PppEvent::Up]], "{auth:?}");
        assert!(pair.sent.contains(&word), "{:?}", pair.sent);
        assert_eq!(pair.links[0].addresses(), (GIVEN, OWN));
        assert_eq!(pair.links[1].addresses(), (OWN, GIVEN));
        assert_eq!(pair.links[0].peer_mru(), HIGHEST_MRU);
        pair.run(seconds(125), false);
        assert_eq!(pair.links[0].phase(), PppPhase::Network, "no timer of the negotiation is left");
    }
}

#[test]
fn a_link_without_authentication_goes_straight_to_the_network() {
    let pair = Pair::started(settings(PppAuth::None), settings(PppAuth::None));
    assert!(pair.links.iter().all(PppLink::is_up));
    assert!(!pair.sent.iter().any(|word| word.starts_with("pap") || word.starts_with("chap")));
}

#[test]
fn the_method_of_the_client_is_agreed_if_the_server_has_it() {
    let pair = Pair::started(settings(PppAuth::Pap), settings(PppAuth::Any));
    assert!(pair.links[0].is_up() && pair.sent.contains(&"pap_request"), "{:?}", pair.sent);
    let pair = Pair::started(settings(PppAuth::Pap), settings(PppAuth::Chap));
    assert!(pair.events[1].contains(&PppEvent::Ended("no_auth_method")), "{:?}", pair.events);
    let pair = Pair::started(settings(PppAuth::None), settings(PppAuth::Chap));
    assert!(pair.events[1].contains(&PppEvent::Ended("no_auth_method")), "{:?}", pair.events);
}

#[test]
fn a_wrong_password_ends_the_link_at_both_ends() {
    for auth in [PppAuth::Pap, PppAuth::Chap] {
        let wrong = PppSettings { password: "wrong".into(), ..settings(PppAuth::Any) };
        let mut pair = Pair::started(wrong, settings(auth));
        pair.run(seconds(110), false);
        for events in &pair.events {
            assert!(events.contains(&PppEvent::Ended("auth_rejected")), "{events:?}");
            assert!(!events.contains(&PppEvent::Up));
        }
    }
}

#[test]
fn a_server_knows_the_identities_of_its_pattern() {
    let settings = settings(PppAuth::Pap);
    assert_eq!(password_of(&settings, b"user12"), Some(b"secret12".to_vec()));
    assert_eq!(password_of(&settings, b"user"), None);
    assert_eq!(password_of(&settings, b"userx"), None);
    let one = PppSettings { identity: "one".into(), password: "two".into(), ..settings };
    assert_eq!(password_of(&one, b"one"), Some(b"two".to_vec()));
    assert_eq!(password_of(&one, b"on"), None);
}

#[test]
fn the_response_to_a_challenge_is_that_of_the_rfc() {
    // The digest of identifier, secret and challenge, computed with Python's hashlib.
    let expected = [
        0x50, 0xca, 0x64, 0x9e, 0x8b, 0xa8, 0x49, 0xcc, 0xcf, 0x31, 0x25, 0x23, 0xf6, 0x22, 0xe0,
        0xfe,
    ];
    assert_eq!(digest(1, b"secret7", &[1, 2, 3, 4]), expected);
}

#[test]
fn options_that_are_not_wanted_are_rejected_and_others_are_corrected() {
    let mut pair = Pair::new(settings(PppAuth::Any), settings(PppAuth::Any));
    pair.step(0, |link, cx| link.start(cx));
    pair.queue.clear();
    // Protocol and address field compression.
    let asked = packet(1, 9, &[7, 2, 8, 2, 1, 4, 5, 0xdc]);
    assert_eq!(pair.answer(0, LCP, &asked), [(LCP, packet(4, 9, &[7, 2, 8, 2]))]);
    // An MRU of 1500, which no frame of PPPoE can carry.
    let asked = packet(1, 10, &[1, 4, 5, 0xdc]);
    assert_eq!(pair.answer(0, LCP, &asked), [(LCP, packet(3, 10, &[1, 4, 5, 0xd4]))]);
    // Five naks at most, and rejections after these (Max-Failure).
    let codes: Vec<u8> =
        (0..5).map(|id| pair.answer(0, LCP, &packet(1, id, &[1, 4, 5, 0xdc]))[0].1[0]).collect();
    assert_eq!(codes, [3, 3, 3, 4, 4], "two requests came before");
    let good = packet(1, 20, &[1, 4, 5, 0xd4]);
    assert_eq!(pair.answer(0, LCP, &good), [(LCP, packet(2, 20, &[1, 4, 5, 0xd4]))]);
}

#[test]
fn the_own_magic_number_of_a_loop_is_refused_and_another_one_is_taken_after_a_nak() {
    let mut pair = Pair::new(settings(PppAuth::None), settings(PppAuth::None));
    pair.step(0, |link, cx| link.start(cx));
    let own = pair.queue.remove(0).2;
    let answer = pair.answer(0, LCP, &own).remove(0).1;
    assert_eq!((answer[0], answer[4]), (3, MAGIC), "{answer:?}");
    let request = pair.answer(0, LCP, &answer[..]);
    // The nak has the identifier of the own request, as on a real loop.
    assert_eq!(request.len(), 1);
    assert_ne!(request[0].1[8..], own[8..], "another number");
}

#[test]
fn echo_requests_keep_a_link_and_their_loss_ends_it() {
    let mut pair = Pair::started(settings(PppAuth::None), settings(PppAuth::None));
    pair.sent.clear();
    pair.run(seconds(191), false);
    assert_eq!(
        pair.sent.iter().filter(|word| **word == "echo_request").count(),
        6,
        "at 30, 60, 90 s"
    );
    assert_eq!(pair.sent.iter().filter(|word| **word == "echo_reply").count(), 6);
    // From now on, nothing of the client arrives.
    pair.links[1] = PppLink::default();
    pair.sent.clear();
    pair.events[0].clear();
    pair.run(seconds(309), true);
    assert_eq!(pair.sent, ["echo_request"; 3], "at 220, 250 and 280 s");
    assert!(pair.links[0].is_up());
    pair.run(seconds(310), true);
    assert_eq!(pair.sent[3..], ["terminate_request"]);
    pair.run(seconds(316), true);
    assert_eq!(pair.sent[3..], ["terminate_request"; 2]);
    assert_eq!(pair.events[0], [PppEvent::Down, PppEvent::Ended("echo_timeout")]);
    assert_eq!(pair.links[0].due(), None);
}

#[test]
fn an_echo_request_is_answered_with_its_data_and_the_own_magic_number() {
    let mut pair = Pair::started(settings(PppAuth::None), settings(PppAuth::None));
    let reply = pair.answer(0, LCP, &packet(9, 3, &[0, 0, 0, 9, 1, 2]));
    let own = pair.links[0].magic.to_be_bytes();
    assert_eq!(reply, [(LCP, packet(10, 3, &[&own[..], &[1, 2]].concat()))]);
    assert_eq!(pair.answer(0, LCP, &packet(9, 3, &own)), [], "a loop");
    assert_eq!(pair.answer(0, LCP, &packet(10, 9, &own)), [], "of no request");
    let ignored: Vec<_> = pair.events[0].iter().skip(1).cloned().collect();
    assert_eq!(ignored, [PppEvent::Ignored("looped_back"), PppEvent::Ignored("wrong_identifier")]);
}

#[test]
fn a_request_of_pap_is_repeated_every_three_seconds_for_thirty() {
    let mut pair = Pair::new(settings(PppAuth::Pap), settings(PppAuth::Pap));
    pair.step(0, |link, cx| link.start(cx));
    let own = pair.queue.remove(0).2;
    let data = own[4..].to_vec();
    pair.answer(0, LCP, &packet(1, 1, &[3, 4, 0xc0, 0x23]));
    pair.answer(0, LCP, &packet(2, own[1], &data));
    pair.sent.clear();
    pair.run(seconds(129), true);
    assert_eq!(pair.sent, ["pap_request"; 9]);
    pair.run(seconds(136), true);
    assert_eq!(pair.events[0].last(), Some(&PppEvent::Ended("auth_timeout")));
}

#[test]
fn a_challenge_and_a_response_are_repeated() {
    let mut pair = Pair::new(settings(PppAuth::Chap), settings(PppAuth::Chap));
    pair.step(1, |link, cx| link.start(cx));
    let own = pair.queue.remove(0).2;
    let data = own[4..].to_vec();
    pair.answer(1, LCP, &packet(1, 1, &[]));
    let challenge = pair.answer(1, LCP, &packet(2, own[1], &data));
    assert_eq!((challenge[0].0, challenge[0].1[0]), (CHAP, 1));
    pair.now = seconds(103);
    pair.step(1, |link, cx| link.timer(cx));
    assert_eq!(pair.queue.pop().map(|one| one.2), Some(challenge[0].1.clone()), "after 3 s");

    let mut pair = Pair::new(settings(PppAuth::Chap), settings(PppAuth::Chap));
    pair.step(0, |link, cx| link.start(cx));
    let own = pair.queue.remove(0).2;
    pair.answer(0, LCP, &packet(1, 1, &[3, 5, 0xc2, 0x23, 5]));
    pair.answer(0, LCP, &packet(2, own[1], &own[4..]));
    assert_eq!(pair.links[0].phase(), PppPhase::Authenticate);
    let response = pair.answer(0, CHAP, &packet(1, 8, &[4, 1, 2, 3, 4, b'x']));
    assert_eq!(response[0].1[..6], [2, 8, 0, 26, 16, digest(8, b"secret7", &[1, 2, 3, 4])[0]]);
    pair.now = seconds(103);
    pair.step(0, |link, cx| link.timer(cx));
    assert_eq!(pair.queue.pop().map(|one| one.2), Some(response[0].1.clone()), "after 3 s");
    // Only the answer to this response counts.
    pair.answer(0, CHAP, &packet(3, 7, &[]));
    assert_eq!(pair.links[0].phase(), PppPhase::Authenticate);
    pair.answer(0, CHAP, &packet(3, 8, &[]));
    assert_eq!(pair.links[0].phase(), PppPhase::Network);
    // A challenge of an open link is answered, too (RFC 1994 section 2).
    assert_eq!(pair.answer(0, CHAP, &packet(1, 9, &[1, 1]))[0].1[0], 2);
}

#[test]
fn a_repeated_request_of_pap_has_the_same_answer_in_the_network_phase() {
    let mut pair = Pair::started(settings(PppAuth::Pap), settings(PppAuth::Pap));
    let data = [&[5][..], b"user7", &[7], b"secret7"].concat();
    assert_eq!(pair.answer(1, PAP, &packet(1, 1, &data))[0].1[0], 2);
    assert!(pair.links[1].is_up());
}

#[test]
fn name_servers_and_ipv6_are_negotiated_on_request() {
    let client = PppSettings { name_servers: true, ipv6: true, ..settings(PppAuth::None) };
    let server = PppSettings { ipv6: true, ..settings(PppAuth::None) };
    let pair = Pair::started(client.clone(), server);
    assert_eq!(pair.links[0].name_servers().collect::<Vec<_>>(), [OWN; 2]);
    assert!(pair.links.iter().all(PppLink::is_up6));
    assert_ne!(pair.links[0].link_local(), pair.links[1].link_local());
    assert_eq!(pair.links[0].link_local().segments()[0], 0xfe80);
    // A server without IPv6 rejects the protocol, and IPv4 goes on.
    let pair = Pair::started(client, settings(PppAuth::None));
    assert!(pair.sent.contains(&"protocol_reject"), "{:?}", pair.sent);
    assert!(pair.links[0].is_up() && !pair.links[0].is_up6());
}

#[test]
fn unknown_protocols_and_codes_are_rejected_with_the_packet() {
    let mut pair = Pair::started(settings(PppAuth::None), settings(PppAuth::None));
    let rejection = pair.answer(0, 0x80fd, &packet(1, 1, &[9]));
    assert_eq!(rejection[0].1[..2], [8, 1]);
    assert_eq!(rejection[0].1[4..], [0x80, 0xfd, 1, 1, 0, 5, 9]);
    let rejection = pair.answer(0, LCP, &packet(99, 1, &[9]));
    assert_eq!(rejection[0].1, packet(7, 2, &packet(99, 1, &[9])));
    assert_eq!(pair.answer(0, PPP_IPV6, &[0x60]), [], "but not those of data");
}

#[test]
fn a_peer_that_rejects_ipcp_or_a_code_ends_the_link() {
    let mut pair = Pair::started(settings(PppAuth::None), settings(PppAuth::None));
    let answer = pair.answer(0, LCP, &packet(8, 1, &[0x80, 0x21, 1, 1, 0, 4]));
    assert_eq!(pair.events[0].last(), Some(&PppEvent::Down));
    assert_eq!(answer[0].0, IPCP, "IPCP is terminated, and LCP after it");
    pair.run(seconds(112), true);
    assert_eq!(pair.events[0].last(), Some(&PppEvent::Ended("no_ipcp")), "{:?}", pair.events[0]);
    let mut pair = Pair::started(settings(PppAuth::None), settings(PppAuth::None));
    pair.answer(0, LCP, &packet(7, 1, &packet(1, 1, &[])));
    pair.run(seconds(108), true);
    assert_eq!(pair.events[0].last(), Some(&PppEvent::Ended("lcp_timeout")));
}

#[test]
fn an_answer_that_is_not_to_the_last_request_is_ignored() {
    let mut pair = Pair::new(settings(PppAuth::None), settings(PppAuth::None));
    pair.step(0, |link, cx| link.start(cx));
    let own = pair.queue.remove(0).2;
    pair.answer(0, LCP, &packet(2, own[1] + 1, &own[4..]));
    pair.answer(0, LCP, &packet(2, own[1], &own[5..]));
    pair.answer(0, LCP, &packet(4, own[1] + 1, &[1, 4, 5, 0xd4]));
    let (ack, id) = (PppEvent::Ignored("wrong_ack"), PppEvent::Ignored("wrong_identifier"));
    assert_eq!(pair.events[0], [ack.clone(), ack, id]);
    // Packets of IPCP before LCP is opened are discarded.
    pair.answer(0, IPCP, &packet(1, 1, &[]));
    assert_eq!(pair.events[0].last(), Some(&PppEvent::Ignored("wrong_phase")));
}

#[test]
fn a_peer_that_never_asks_has_a_minute() {
    let mut pair = Pair::new(settings(PppAuth::None), settings(PppAuth::None));
    pair.step(0, |link, cx| link.start(cx));
    // Each request has its Ack, but none of the peer comes.
    while pair.now < seconds(159) {
        let request = pair.queue.iter().rev().find(|one| one.2[0] == 1).map(|one| one.2.clone());
        pair.queue.clear();
        if let Some(request) = request {
            pair.step(0, |link, cx| link.receive(cx, LCP, &packet(2, request[1], &request[4..])));
        }
        pair.now = Nanos(pair.now.0 + 1_000_000_000);
        pair.step(0, |link, cx| link.timer(cx));
    }
    assert_eq!(pair.events[0], []);
    pair.run(seconds(170), true);
    assert_eq!(pair.events[0], [PppEvent::Ended("ppp_timeout")]);
}

#[test]
fn a_negotiation_of_an_open_link_has_a_minute_too() {
    let quiet = || PppSettings { echo: Nanos::ZERO, ..settings(PppAuth::None) };
    for protocol in [LCP, IPCP] {
        let mut pair = Pair::started(quiet(), quiet());
        pair.now = seconds(200);
        // A request that is not acceptable opens the negotiation, and none follows.
        pair.step(0, |link, cx| link.receive(cx, protocol, &packet(1, 99, &[99, 2])));
        while pair.now < seconds(259) {
            let request = pair.queue.iter().find(|one| one.2[0] == 1).map(|one| one.2.clone());
            pair.queue.clear();
            if let Some(request) = request {
                let ack = packet(2, request[1], &request[4..]);
                pair.step(0, |link, cx| link.receive(cx, protocol, &ack));
            }
            pair.now = pair.now + seconds(1);
            pair.step(0, |link, cx| link.timer(cx));
        }
        assert_eq!(pair.events[0], [PppEvent::Up, PppEvent::Down]);
        pair.run(seconds(270), true);
        assert_eq!(pair.events[0].last(), Some(&PppEvent::Ended("ppp_timeout")), "{protocol:x}");
    }
}

#[test]
fn a_peer_that_never_answers_ends_lcp_after_ten_requests() {
    let mut pair = Pair::new(settings(PppAuth::None), settings(PppAuth::None));
    pair.step(0, |link, cx| link.start(cx));
    pair.queue.clear();
    pair.run(seconds(131), true);
    assert_eq!(pair.sent, ["lcp_request"; 10]);
    assert_eq!(pair.events[0], [PppEvent::Ended("lcp_timeout")]);
}

#[test]
fn a_termination_is_confirmed_and_the_link_of_the_peer_ends_a_moment_later() {
    let mut pair = Pair::started(settings(PppAuth::None), settings(PppAuth::None));
    pair.step(0, |link, cx| link.terminate(cx, "closed"));
    pair.exchange();
    assert_eq!(pair.events[0][1..], [PppEvent::Down, PppEvent::Ended("closed")]);
    assert_eq!(pair.events[1][1..], [PppEvent::Down]);
    pair.run(seconds(103), false);
    assert_eq!(pair.events[1][2..], [PppEvent::Ended("terminated")]);
}

#[test]
fn a_new_request_of_lcp_negotiates_all_anew() {
    let mut pair = Pair::started(settings(PppAuth::Chap), settings(PppAuth::Chap));
    pair.step(1, |link, cx| link.start(cx));
    pair.exchange();
    assert_eq!(pair.events[0], [PppEvent::Up, PppEvent::Down, PppEvent::Up]);
    assert!(pair.links.iter().all(PppLink::is_up));
}

#[test]
fn the_times_of_an_authentication_are_settable() {
    let times =
        |auth| PppSettings { auth_interval: seconds(1), auth_wait: seconds(5), ..settings(auth) };
    let mut pair = Pair::new(times(PppAuth::Pap), times(PppAuth::Pap));
    pair.step(0, |link, cx| link.start(cx));
    let own = pair.queue.remove(0).2;
    pair.answer(0, LCP, &packet(1, 1, &[3, 4, 0xc0, 0x23]));
    pair.answer(0, LCP, &packet(2, own[1], &own[4..]));
    pair.sent.clear();
    pair.run(Nanos(seconds(105).0 - 1), true);
    assert_eq!(pair.sent, ["pap_request"; 4], "at 1, 2, 3 and 4 s");
    pair.run(seconds(105), true);
    assert_eq!(pair.links[0].reason(), Some("auth_timeout"));
}

#[test]
fn a_server_ends_a_link_whose_client_proves_nothing_within_thirty_seconds() {
    for auth in [PppAuth::Pap, PppAuth::Chap] {
        let mut pair = Pair::new(settings(auth), settings(auth));
        pair.step(1, |link, cx| link.start(cx));
        let own = pair.queue.remove(0).2;
        pair.answer(1, LCP, &packet(1, 1, &[]));
        pair.answer(1, LCP, &packet(2, own[1], &own[4..]));
        assert_eq!(pair.links[1].phase(), PppPhase::Authenticate);
        pair.sent.clear();
        // Packets of the server arrive nowhere.
        while let Some(due) = pair.links[1].due().filter(|due| *due < seconds(130)) {
            pair.now = due;
            pair.step(1, |link, cx| link.timer(cx));
            pair.queue.clear();
        }
        let challenges = if auth == PppAuth::Chap { 9 } else { 0 };
        assert_eq!(pair.sent, vec!["chap_challenge"; challenges], "one each three seconds");
        pair.now = seconds(130);
        pair.step(1, |link, cx| link.timer(cx));
        assert_eq!(pair.links[1].reason(), Some("auth_timeout"));
    }
}

#[test]
fn interval_and_number_of_echo_requests_are_settable() {
    let echo = |echo, echo_failures| PppSettings { echo, echo_failures, ..settings(PppAuth::None) };
    let mut pair = Pair::started(echo(seconds(2), 1), echo(Nanos::ZERO, 3));
    pair.links[1] = PppLink::default();
    pair.sent.clear();
    pair.run(seconds(103), true);
    assert_eq!(pair.sent, ["echo_request"]);
    pair.run(seconds(104), true);
    assert_eq!(pair.links[0].reason(), Some("echo_timeout"), "after one without a reply");
    let pair = Pair::started(echo(Nanos::ZERO, 1), echo(Nanos::ZERO, 1));
    assert!(pair.links.iter().all(|link| link.due().is_none()), "zero: none are sent");
}

#[test]
fn a_reply_to_an_echo_request_begins_the_count_again() {
    let mut pair = Pair::started(settings(PppAuth::None), settings(PppAuth::None));
    let server = pair.links[1].clone();
    for silence in [190, 190 + 90] {
        // Two requests are lost, and the third one has its reply.
        pair.links[1] = PppLink::default();
        pair.run(seconds(silence - 30), true);
        assert!(pair.links[0].is_up());
        pair.links[1] = server.clone();
        pair.links[1].echo_due = None;
        pair.run(seconds(silence), false);
        assert_eq!(pair.links[0].unanswered, 0, "{silence}");
    }
}

#[test]
fn the_longest_time_of_a_negotiation_is_settable() {
    let wait = seconds(7);
    let mut pair =
        Pair::new(PppSettings { wait, ..settings(PppAuth::None) }, settings(PppAuth::None));
    pair.step(0, |link, cx| link.start(cx));
    pair.queue.clear();
    pair.run(Nanos(seconds(107).0 - 1), true);
    assert_eq!(pair.links[0].reason(), None);
    pair.run(seconds(107), true);
    assert_eq!(pair.links[0].reason(), Some("ppp_timeout"));
}

proptest! {
    #[test]
    fn a_client_is_up_or_has_a_reason_under_loss_and_duplication(
        seed: u64, loss in 0u64..60, repeats in 0u64..30, auth in 0usize..3,
    ) {
        let auth = [PppAuth::None, PppAuth::Pap, PppAuth::Chap][auth];
        let quiet = |auth| PppSettings { echo: Nanos::ZERO, ..settings(auth) };
        let mut pair = Pair::new(quiet(PppAuth::Any), quiet(auth));
        (pair.random, pair.loss, pair.repeats) = (SplitMix64(seed), loss, repeats);
        pair.step(0, |link, cx| link.start(cx));
        pair.step(1, |link, cx| link.start(cx));
        pair.exchange();
        pair.run(seconds(300), false);
        // A late request may have begun another negotiation, which has a minute.
        (pair.loss, pair.repeats) = (0, 0);
        pair.run(seconds(400), false);
        let ended = pair.events[0].iter().any(|event| matches!(event, PppEvent::Ended(_)));
        prop_assert!(ended || pair.links[0].is_up(), "{:?}", pair.links[0]);
        if loss == 0 && repeats == 0 {
            prop_assert!(pair.links[0].is_up());
        }
        if pair.links[0].is_up() {
            prop_assert_eq!(pair.links[0].addresses(), (GIVEN, OWN));
        }
    }

    #[test]
    fn no_packets_make_it_panic(
        packets in proptest::collection::vec((0usize..8, proptest::collection::vec(any::<u8>(), 0..40)), 0..30),
        end in 0usize..2,
    ) {
        let protocols = [LCP, LCP, PAP, CHAP, IPCP, IPV6CP, PPP_IPV4, 0x80fd];
        let mut pair = Pair::started(settings(PppAuth::Any), settings(PppAuth::Any));
        for (protocol, octets) in packets {
            pair.answer(end, protocols[protocol], &octets);
            let link = &pair.links[end];
            prop_assert!(link.due().is_none_or(|due| due >= pair.now));
            prop_assert!(link.phase() == PppPhase::Dead || link.due().is_some(), "{:?}", link);
        }
    }
}
