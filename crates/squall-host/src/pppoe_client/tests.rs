//! Clients and access concentrators, in virtual time.

use proptest::prelude::*;
use squall_units::{SplitMix64, below};

use super::*;
use crate::{PppAuth, PppPhase, PppoeServer, PppoeServerContext, PppoeServerSettings};

const CLIENT: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const SERVER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

fn seconds(seconds: u64) -> Nanos {
    Nanos(seconds * 1_000_000_000)
}

fn ppp() -> PppSettings {
    let (identity, password) = ("user{}".into(), "secret".into());
    PppSettings { auth: PppAuth::Chap, identity, password, ..PppSettings::default() }
}

fn client() -> PppoeClientSettings {
    PppoeClientSettings { ppp: ppp(), ..PppoeClientSettings::default() }
}

fn server(count: u32) -> PppoeServerSettings {
    PppoeServerSettings {
        ac_name: "ac".into(),
        service: "internet".into(),
        address: [10, 0, 0, 1].into(),
        first: [10, 0, 1, 0].into(),
        count,
        ppp: ppp(),
    }
}

/// One client and one server, whose frames arrive at once.
struct Script {
    client: PppoeClient,
    server: PppoeServer,
    settings: (PppoeClientSettings, PppoeServerSettings),
    now: Nanos,
    random: SplitMix64,
    loss: u64,
    repeats: u64,
    /// Whether the server hears nothing.
    alone: bool,
    queue: Vec<(bool, PppoeFrame)>,
    events: [Vec<PppoeEvent>; 2],
    sent: Vec<(&'static str, Nanos)>,
}

impl Script {
    fn new(client: PppoeClientSettings, server: PppoeServerSettings) -> Self {
        Self {
            client: PppoeClient::default(),
            server: PppoeServer::new(3),
            settings: (client, server),
            now: seconds(100),
            random: SplitMix64(11),
            loss: 0,
            repeats: 0,
            alone: false,
            queue: Vec::new(),
            events: Default::default(),
            sent: Vec::new(),
        }
    }

    fn started(client: PppoeClientSettings, server: PppoeServerSettings) -> Self {
        let mut script = Self::new(client, server);
        script.step(PppoeClient::start);
        script.exchange();
        script
    }

    fn queue(&mut self, to_server: bool, frames: Vec<PppoeFrame>) {
        for frame in frames {
            let copies = match below(self.random.draw(), 100) {
                draw if draw < self.loss => 0,
                draw if draw < self.loss + self.repeats => 2,
                _ => 1,
            };
            (0..copies).for_each(|_| self.queue.push((to_server, frame.clone())));
        }
    }

    fn step(&mut self, act: impl FnOnce(&mut PppoeClient, &PppoeContext<'_>) -> PppoeStep) {
        let (now, chance, settings) = (self.now, self.random.draw(), &self.settings.0);
        let step = act(&mut self.client, &PppoeContext { now, chance, number: 7, settings });
        self.sent.extend(step.send.iter().map(|frame| (frame.word, now)));
        self.events[0].extend(step.events);
        self.queue(true, step.send);
    }

    fn serve(&mut self, act: impl FnOnce(&mut PppoeServer, &PppoeServerContext<'_>) -> PppoeStep) {
        let (now, chance, settings) = (self.now, self.random.draw(), &self.settings.1);
        let step = act(&mut self.server, &PppoeServerContext { now, chance, settings });
        self.events[1].extend(step.events);
        self.queue(false, step.send);
    }

    fn exchange(&mut self) {
        while !self.queue.is_empty() {
            let (to_server, frame) = self.queue.remove(0);
            let is_discovery = frame.kind == PPPOE_DISCOVERY;
            match (to_server, is_discovery) {
                (true, _) if self.alone => {}
                (true, true) => {
                    self.serve(|server, cx| server.receive_discovery(cx, CLIENT, &frame.octets));
                }
                (true, false) => {
                    self.serve(|server, cx| server.receive_session(cx, CLIENT, &frame.octets).0);
                }
                (false, true) => {
                    self.step(|client, cx| client.receive_discovery(cx, SERVER, &frame.octets));
                }
                (false, false) => {
                    self.step(|client, cx| client.receive_session(cx, SERVER, &frame.octets).0);
                }
            }
        }
    }

    fn run(&mut self, until: Nanos) {
        loop {
            let (own, server) = (self.client.due(), self.server.due().filter(|_| !self.alone));
            let Some(due) = own.into_iter().chain(server).min().filter(|due| *due <= until) else {
                break;
            };
            self.now = due.max(self.now);
            if own.is_some_and(|own| own <= self.now) {
                self.step(PppoeClient::timer);
            } else {
                self.serve(|server, cx| server.timer(cx, 10));
            }
            self.exchange();
        }
        self.now = until;
    }

    /// Hands the client a packet of the discovery; returns why it was ignored.
    fn ignored(&mut self, code: u8, session: u16, tags: &[u8]) -> &'static str {
        let frame = PppoeFrame::discovery(CLIENT, code, session, tags);
        let before = self.events[0].len();
        self.step(|client, cx| client.receive_discovery(cx, SERVER, &frame.octets));
        match self.events[0][before..] {
            [PppoeEvent::Ignored(reason)] => reason,
            _ => "accepted",
        }
    }

    fn times(&self, word: &str) -> Vec<u64> {
        let of = self.sent.iter().filter(|(sent, _)| *sent == word);
        of.map(|(_, at)| at.0 / 1_000_000_000 - 100).collect()
    }
}

fn tag(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut tag = Vec::new();
    push_tag(&mut tag, kind, value);
    tag
}

#[test]
fn a_client_finds_a_server_and_gets_an_address() {
    let mut script = Script::started(client(), server(10));
    assert_eq!(script.client.state(), PppoeState::Open);
    let addresses = script.client.addresses();
    assert_eq!(addresses, Some(([10, 0, 1, 0].into(), [10, 0, 0, 1].into())));
    assert_eq!(script.client.session(), (SERVER, 1));
    assert_eq!(script.server.client([10, 0, 1, 0].into()), Some((CLIENT, 1)));
    let zero = Nanos::ZERO;
    assert_eq!(script.events[0], [PppoeEvent::Session(zero), PppoeEvent::Up(zero)]);
    script.step(PppoeClient::stop);
    script.exchange();
    assert_eq!(script.client.state(), PppoeState::Closed);
    assert_eq!(script.events[0][2..], [PppoeEvent::Down, PppoeEvent::Ended("closed")]);
    assert!(script.events[1].contains(&PppoeEvent::Ended("padt")), "{:?}", script.events[1]);
    assert_eq!((script.server.sessions().count(), script.server.due()), (0, None));
    assert_eq!(script.times("padt").len(), 1);
}

#[test]
fn a_padi_is_repeated_after_times_that_double() {
    let mut script = Script::new(client(), server(1));
    script.alone = true;
    script.step(PppoeClient::start);
    script.exchange();
    script.run(seconds(500));
    assert_eq!(script.times("padi"), [0, 5, 15, 35, 75], "and at 60 s more, it gives up");
    assert_eq!(script.events[0], [PppoeEvent::Failed("no_pado")]);
    let longest = PppoeClientSettings { longest: seconds(10), ..client() };
    let mut script = Script::new(longest, server(1));
    script.alone = true;
    script.step(PppoeClient::start);
    script.exchange();
    script.run(seconds(500));
    assert_eq!(script.times("padi"), [0, 5, 15, 25, 35]);
}

#[test]
fn a_padr_without_an_answer_leads_back_to_the_discovery() {
    let settings = PppoeClientSettings { tries: 2, restarts: 1, ..client() };
    let mut script = Script::new(settings, server(1));
    script.alone = true;
    script.step(PppoeClient::start);
    let offer = |script: &Script| {
        let uniq = tag(HOST_UNIQ, &script.client.uniq.to_be_bytes());
        [uniq, tag(SERVICE_NAME, b""), tag(AC_COOKIE, b"cookie")].concat()
    };
    let tags = offer(&script);
    script.queue.clear();
    assert_eq!(script.ignored(PADO, 0, &tags), "accepted");
    let request = script.queue[0].1.octets.clone();
    let packet = PppoePacket::parse(&request).unwrap();
    assert_eq!(PppoeTags::parse(packet.payload).unwrap().cookie, Some(&b"cookie"[..]));
    script.exchange();
    // PADRs at 0 and 5 s; the pause ends 5 s after 15 s.
    script.run(seconds(119));
    assert_eq!((script.times("padr"), script.times("padi")), (vec![0, 5], vec![0]));
    script.run(seconds(120));
    assert_eq!(script.times("padi"), [0, 20]);
    let tags = offer(&script);
    assert_eq!(script.ignored(PADO, 0, &tags), "accepted");
    script.run(seconds(200));
    assert_eq!(script.events[0], [PppoeEvent::Failed("no_pads")]);
}

#[test]
fn offers_for_others_are_ignored_with_their_reasons() {
    let settings =
        PppoeClientSettings { service: "internet".into(), ac_name: "ac".into(), ..client() };
    let mut script = Script::new(settings, server(1));
    assert_eq!(script.ignored(PADO, 0, &[]), "unexpected");
    script.step(PppoeClient::start);
    let uniq = tag(HOST_UNIQ, &script.client.uniq.to_be_bytes());
    let with = |more: &[Vec<u8>]| [uniq.clone(), more.concat()].concat();
    let (service, name) =
        (tag(SERVICE_NAME, b"internet"), tag(crate::pppoe_message::AC_NAME, b"ac"));
    assert_eq!(script.ignored(PADO, 0, &tag(HOST_UNIQ, b"xxxx")), "wrong_host_uniq");
    assert_eq!(script.ignored(PADO, 0, &with(std::slice::from_ref(&name))), "wrong_service");
    assert_eq!(script.ignored(PADO, 0, &with(std::slice::from_ref(&service))), "wrong_ac_name");
    let good = [service, name];
    assert_eq!(script.ignored(PADO, 9, &with(&good)), "wrong_session");
    let giant = [&good[..], &[tag(AC_COOKIE, &[7; 600])]].concat();
    assert_eq!(script.ignored(PADO, 0, &with(&giant)), "giant_tag");
    let error = [&good[..], &[tag(0x0203, b"no")]].concat();
    assert_eq!(script.ignored(PADO, 0, &with(&error)), "generic_error");
    assert_eq!(script.ignored(PADI, 0, &with(&good)), "not_for_hosts");
    assert_eq!(script.ignored(PADO, 0, &with(&good)), "accepted");
    assert_eq!(script.ignored(PADS, 5, &tag(HOST_UNIQ, b"xxxx")), "wrong_host_uniq");
    assert_eq!(script.ignored(PADO, 0, &with(&good)), "unexpected", "a second offer");
    assert_eq!(script.ignored(PADS, 5, &with(&good)), "accepted");
    assert_eq!(script.client.state(), PppoeState::Session);
    assert_eq!(script.ignored(PADT, 6, &[]), "wrong_session");
    assert_eq!(script.ignored(PADT, 5, &[]), "accepted");
    assert_eq!(script.client.state(), PppoeState::Waiting);
}

#[test]
fn a_server_without_addresses_refuses_and_the_client_gives_up_after_its_attempts() {
    let mut script = Script::started(client(), server(0));
    assert_eq!(script.client.state(), PppoeState::Waiting);
    script.run(seconds(200));
    assert_eq!(script.times("padr"), [0, 5, 15, 35], "after 5, 10 and 20 s");
    assert_eq!(script.events[0], [PppoeEvent::Failed("refused")]);
    let other = PppoeClientSettings { service: "other".into(), ..client() };
    let script = Script::started(other, server(1));
    assert_eq!(script.events[1], [PppoeEvent::Ignored("wrong_service")]);
}

#[test]
fn a_session_that_the_server_ends_begins_again() {
    let mut script = Script::started(client(), server(10));
    let padt = PppoeFrame::discovery(CLIENT, PADT, 1, &[]);
    script.queue(false, vec![padt]);
    script.exchange();
    assert_eq!(script.events[0][2..], [PppoeEvent::Down, PppoeEvent::Ended("padt")]);
    script.run(seconds(106));
    assert_eq!(script.client.state(), PppoeState::Open);
    assert!(script.events[1].contains(&PppoeEvent::Ended("replaced")), "the server's old session");
    assert_eq!(script.client.session(), (SERVER, 2));
    // The times are those of the second attempt, without the pause before it.
    let times = [PppoeEvent::Session(Nanos::ZERO), PppoeEvent::Up(Nanos::ZERO)];
    assert!(script.events[0].ends_with(&times), "{:?}", script.events[0]);
    assert_eq!(script.server.sessions().collect::<Vec<_>>(), [(PppPhase::Network, true)]);
}

#[test]
fn a_session_that_negotiates_again_has_the_time_of_that_negotiation() {
    let mut script = Script::started(client(), server(10));
    script.now = seconds(150);
    let request = crate::PppPacket { code: 1, id: 200, data: &[] }.octets();
    script.queue(false, vec![PppoeFrame::session(CLIENT, 1, crate::LCP, &request)]);
    script.exchange();
    assert_eq!(script.client.state(), PppoeState::Open);
    for events in &script.events {
        let all: Vec<_> = events
            .iter()
            .filter(|event| matches!(event, PppoeEvent::Up(_) | PppoeEvent::Down))
            .collect();
        let up = PppoeEvent::Up(Nanos::ZERO);
        assert_eq!(all, [&up, &PppoeEvent::Down, &up]);
    }
}

#[test]
fn a_padt_after_a_refusal_leaves_the_reason() {
    let wrong = PppSettings { password: "wrong".into(), ..ppp() };
    let mut script =
        Script::new(PppoeClientSettings { ppp: wrong, restarts: 0, ..client() }, server(9));
    script.step(PppoeClient::start);
    while script.client.link().reason().is_none() {
        let (to_server, frame) = script.queue.remove(0);
        // One frame at a time, because the PADT comes instead of the end of PPP.
        match (to_server, frame.kind == PPPOE_DISCOVERY) {
            (true, true) => {
                script.serve(|server, cx| server.receive_discovery(cx, CLIENT, &frame.octets));
            }
            (true, false) => {
                script.serve(|server, cx| server.receive_session(cx, CLIENT, &frame.octets).0);
            }
            (false, true) => {
                script.step(|client, cx| client.receive_discovery(cx, SERVER, &frame.octets));
            }
            (false, false) => {
                script.step(|client, cx| client.receive_session(cx, SERVER, &frame.octets).0);
            }
        }
    }
    let padt = PppoeFrame::discovery(CLIENT, PADT, 1, &[]);
    script.step(|client, cx| client.receive_discovery(cx, SERVER, &padt.octets));
    assert_eq!(script.events[0].last(), Some(&PppoeEvent::Failed("auth_rejected")));
}

#[test]
fn a_silent_server_is_left_after_three_echo_requests() {
    let mut script = Script::started(client(), server(10));
    script.alone = true;
    script.run(seconds(219));
    assert_eq!(
        (script.times("echo_request"), script.client.state()),
        (vec![30, 60, 90], PppoeState::Open)
    );
    script.run(seconds(227));
    assert_eq!(
        (script.times("terminate_request"), script.times("padt")),
        (vec![120, 123], vec![126])
    );
    assert!(script.events[0].contains(&PppoeEvent::Ended("echo_timeout")));
    assert_eq!(script.client.state(), PppoeState::Waiting);
}

#[test]
fn a_server_checks_cookies_and_repeats_its_answer() {
    let mut script = Script::new(client(), server(10));
    let (uniq, name) = (tag(HOST_UNIQ, b"1234"), tag(SERVICE_NAME, b"internet"));
    let ask = |script: &mut Script, tags: &[u8]| {
        let frame = PppoeFrame::discovery(SERVER, PADR, 0, tags);
        script.serve(|server, cx| server.receive_discovery(cx, CLIENT, &frame.octets));
        let answers: Vec<_> = script.queue.drain(..).map(|(_, frame)| frame.octets).collect();
        answers
    };
    let forged = [uniq.clone(), name.clone(), tag(AC_COOKIE, &[0; 16])].concat();
    assert_eq!(ask(&mut script, &forged), Vec::<Vec<u8>>::new());
    assert_eq!(script.events[1], [PppoeEvent::Ignored("wrong_cookie")]);
    let padi = PppoeFrame::discovery(SERVER, PADI, 0, &[&uniq[..], &name[..]].concat());
    script.serve(|server, cx| server.receive_discovery(cx, CLIENT, &padi.octets));
    let pado = script.queue.remove(0).1.octets;
    let packet = PppoePacket::parse(&pado).unwrap();
    let cookie = tag(AC_COOKIE, PppoeTags::parse(packet.payload).unwrap().cookie.unwrap());
    let good = [uniq, name, cookie].concat();
    let first = ask(&mut script, &good);
    assert_eq!((first[0][1], &first[0][2..4]), (PADS, &[0, 1][..]));
    let again = ask(&mut script, &good);
    assert_eq!(again, first[..1], "the same session, and no second request of LCP");
    // Packets of another session are ignored.
    let other = PppoeFrame::session(SERVER, 2, 0xc021, &[1, 1, 0, 4]);
    script.serve(|server, cx| server.receive_session(cx, CLIENT, &other.octets).0);
    assert_eq!(script.events[1].last(), Some(&PppoeEvent::Ignored("wrong_session")));
}

#[test]
fn a_padr_is_repeated_after_times_that_double() {
    let mut script = Script::new(client(), server(1));
    script.alone = true;
    script.step(PppoeClient::start);
    let uniq = tag(HOST_UNIQ, &script.client.uniq.to_be_bytes());
    script.now = seconds(103);
    let tags = [uniq, tag(SERVICE_NAME, b"")].concat();
    assert_eq!(script.ignored(PADO, 0, &tags), "accepted");
    script.exchange();
    script.run(seconds(237));
    assert_eq!(script.times("padr"), [3, 8, 18, 38, 78], "RFC 2516 section 5.3");
    assert_eq!(script.client.state(), PppoeState::Request);
    // 60 s after the last one, the host gives this server up.
    script.run(seconds(238));
    assert_eq!(script.client.state(), PppoeState::Waiting);
}

#[test]
fn the_pause_before_another_attempt_doubles_up_to_the_longest_and_ends_after_the_restarts() {
    let settings = PppoeClientSettings { longest: seconds(15), restarts: 3, ..client() };
    // The server has no address to give, so that it refuses each request.
    let mut script = Script::started(settings, server(0));
    script.run(seconds(1000));
    assert_eq!(script.times("padi"), [0, 5, 15, 30], "pauses of 5, 10 and 15 s");
    assert_eq!(script.events[0], [PppoeEvent::Failed("refused")]);
}

#[test]
fn first_time_and_number_of_transmissions_are_settable() {
    let settings = PppoeClientSettings { first: seconds(1), tries: 3, ..client() };
    let mut script = Script::new(settings, server(1));
    script.alone = true;
    script.step(PppoeClient::start);
    script.exchange();
    script.run(Nanos(seconds(107).0 - 1));
    assert_eq!((script.times("padi"), script.events[0].len()), (vec![0, 1, 3], 0));
    script.run(seconds(107));
    assert_eq!(script.events[0], [PppoeEvent::Failed("no_pado")], "4 s after the last one");
}

#[test]
fn a_server_forgets_a_client_that_falls_silent_after_three_echo_requests() {
    let mut script = Script::started(client(), server(1));
    script.client = PppoeClient::default();
    script.run(seconds(100 + 120 - 1));
    assert_eq!(script.server.sessions().count(), 1);
    // Echo-Requests at 30, 60 and 90 s, and two Terminate-Requests from 120 s on.
    script.run(seconds(100 + 126));
    assert_eq!((script.server.sessions().count(), script.server.due()), (0, None));
    let ended = PppoeEvent::Ended("echo_timeout");
    assert!(script.events[1].contains(&ended), "{:?}", script.events[1]);
}

proptest! {
    #[test]
    fn a_client_is_open_or_has_failed_under_loss_and_duplication(
        seed: u64, loss in 0u64..70, repeats in 0u64..30,
    ) {
        let quiet = |ppp: PppSettings| PppSettings { echo: Nanos::ZERO, ..ppp };
        let clients = PppoeClientSettings { ppp: quiet(ppp()), ..client() };
        let servers = PppoeServerSettings { ppp: quiet(ppp()), ..server(4) };
        let mut script = Script::new(clients, servers);
        (script.random, script.loss, script.repeats) = (SplitMix64(seed), loss, repeats);
        script.step(PppoeClient::start);
        script.exchange();
        script.run(seconds(4000));
        let state = script.client.state();
        // After a duplicate of a request of LCP, both ends negotiate again.
        prop_assert!(
            matches!(state, PppoeState::Open | PppoeState::Failed),
            "{:?} {:?}", state, script.client
        );
        prop_assert!(script.server.sessions().count() <= 1, "no session leaks");
        if loss == 0 {
            prop_assert_eq!(state, PppoeState::Open);
        }
    }
}
