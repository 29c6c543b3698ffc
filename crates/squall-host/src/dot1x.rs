//! 802.1X supplicants: the supplicant state machine of IEEE 802.1X-2004 section 8.2.11 with its
//! timers, and an EAP peer (RFC 3748).

use md5::{Digest, Md5};
use squall_units::{MacAddr, Nanos};

use crate::eap::{Credentials, EapMethod, Tunnel};

/// EtherType of EAPOL.
pub const EAPOL: u16 = 0x888e;
/// The group address of port access entities.
pub const PAE_GROUP: MacAddr = MacAddr([1, 0x80, 0xc2, 0, 0, 3]);

/// EAPOL version of frames: 802.1X-2004. Received frames may have any.
const VERSION: u8 = 2;
const EAP_PACKET: u8 = 0;
const START: u8 = 1;
const LOGOFF: u8 = 2;

/// Codes and types of EAP (RFC 3748 sections 4 and 5).
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
const SUCCESS: u8 = 3;
const FAILURE: u8 = 4;
const IDENTITY: u8 = 1;
const NOTIFICATION: u8 = 2;
const NAK: u8 = 3;
const MD5_CHALLENGE: u8 = 4;

/// Requests of a conversation that are answered. A long chain of certificates in small fragments
/// needs fewer.
const MOST_REQUESTS: u8 = 200;

/// Credentials, and the timers of section 8.2.11.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupplicantSettings {
    pub method: EapMethod,
    /// `{}` is the number of the host, here and in the next two.
    pub identity: String,
    /// The identity outside TLS, in plain text. Empty: that of inside.
    pub anonymous: String,
    pub password: String,
    /// `startPeriod`: time between EAPOL-Start frames, 30 s.
    pub start_period: Nanos,
    /// `maxStart`: EAPOL-Start frames without an answer, 3. The standard then takes the port as one
    /// without authentication; here the host has failed, because a test asked for it.
    pub max_start: u8,
    /// `authPeriod`: longest time to wait for the authenticator, 30 s.
    pub auth_period: Nanos,
    /// `heldPeriod`: pause after a failure, 60 s.
    pub held_period: Nanos,
    /// Failures in a row after which the host gives up, at least 1. The standard has no end.
    pub attempts: u8,
    /// How long after an authentication the host begins another one by itself; `None`: never.
    pub again: Option<Nanos>,
}

impl Default for SupplicantSettings {
    fn default() -> Self {
        Self {
            method: EapMethod::default(),
            identity: String::new(),
            anonymous: String::new(),
            password: String::new(),
            start_period: Nanos(30_000_000_000),
            max_start: 3,
            auth_period: Nanos(30_000_000_000),
            held_period: Nanos(60_000_000_000),
            attempts: 3,
            again: None,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SupplicantState {
    /// DISCONNECTED: the host has not started.
    #[default]
    Disconnected,
    Connecting,
    Authenticating,
    Authenticated,
    /// The authenticator has refused; the host waits before it begins again.
    Held,
    /// LOGOFF.
    LoggedOff,
    /// The host has given up.
    Failed,
}

impl SupplicantState {
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Disconnected, "disconnected"),
        (Self::Connecting, "connecting"),
        (Self::Authenticating, "authenticating"),
        (Self::Authenticated, "authenticated"),
        (Self::Held, "held"),
        (Self::LoggedOff, "logged_off"),
        (Self::Failed, "failed"),
    ];
}

/// A frame to send, and a change of state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SupplicantStep {
    /// The frame after its Ethernet header, and its name for counters.
    pub send: Option<(&'static str, Vec<u8>)>,
    pub event: Option<SupplicantEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupplicantEvent {
    /// The port is open, this long after the first frame.
    Authenticated(Nanos),
    /// As before, after a re-authentication.
    Reauthenticated(Nanos),
    /// An EAP-Failure, for this reason. The port is closed.
    Refused(&'static str),
    /// The authenticator stopped to answer. The port is closed.
    TimedOut,
    /// The host gave up, for the reason of its last failure.
    Failed(&'static str),
    /// A frame was ignored, for this reason.
    Ignored(&'static str),
}

/// Progress of a host in a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shown {
    /// At most its identity.
    #[default]
    Identity,
    /// That it does not have the methods that were asked for.
    Declined,
    /// That it begins the method.
    Method,
    /// That it knows the password.
    Password,
}

/// One supplicant.
#[derive(Debug, Default)]
pub struct Supplicant {
    state: SupplicantState,
    /// `portStatus`: stays authorized during a re-authentication.
    authorized: bool,
    /// `startWhen`, `authWhile` or `heldWhile`.
    due: Option<Nanos>,
    /// EAPOL-Start frames of this attempt, and failures in a row.
    starts: u8,
    failures: u8,
    /// Identifier of the last response, and the requests of this conversation.
    answered: Option<u8>,
    requests: u8,
    shown: Shown,
    /// Begin of the attempt.
    begun: Nanos,
    /// TLS, while a method with it runs.
    tunnel: Option<Box<Tunnel>>,
}

impl Supplicant {
    pub fn state(&self) -> SupplicantState {
        self.state
    }

    /// Whether the host may send and receive other frames.
    pub fn is_authorized(&self) -> bool {
        self.authorized
    }

    /// Whether the host has neither succeeded nor given up.
    pub fn is_pending(&self) -> bool {
        use SupplicantState::{Authenticating, Connecting, Disconnected, Held};
        matches!(self.state, Disconnected | Connecting | Authenticating | Held)
    }

    pub fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Whether memory is held for a session of TLS.
    #[cfg(all(test, feature = "tls"))]
    pub(crate) fn has_tunnel(&self) -> bool {
        self.tunnel.is_some()
    }

    /// Sends the first EAPOL-Start.
    pub fn start(&mut self, now: Nanos, settings: &SupplicantSettings) -> SupplicantStep {
        *self = Self::default();
        self.connect(now, settings)
    }

    /// Runs the timer, if it is due.
    pub fn timer(&mut self, now: Nanos, settings: &SupplicantSettings) -> SupplicantStep {
        if self.due.is_none_or(|due| due > now) {
            return SupplicantStep::default();
        }
        match self.state {
            SupplicantState::Connecting if self.starts >= settings.max_start.max(1) => {
                self.give_up("no_authenticator")
            }
            SupplicantState::Connecting => self.send_start(now, settings),
            SupplicantState::Authenticating => {
                self.authorized = false;
                self.failures = self.failures.saturating_add(1);
                if self.failures >= settings.attempts {
                    let known = self.tunnel.as_ref().and_then(|tunnel| tunnel.failure());
                    return self.give_up(known.unwrap_or("auth_timeout"));
                }
                let event = Some(SupplicantEvent::TimedOut);
                SupplicantStep { event, ..self.connect(now, settings) }
            }
            SupplicantState::Held | SupplicantState::Authenticated => self.connect(now, settings),
            _ => {
                self.due = None;
                SupplicantStep::default()
            }
        }
    }

    /// Handles what follows the Ethernet header of an EAPOL frame. `number` of the host.
    pub fn receive(
        &mut self,
        now: Nanos,
        frame: &[u8],
        number: u32,
        settings: &SupplicantSettings,
    ) -> SupplicantStep {
        let packet = match eap(frame) {
            Ok(packet) => packet,
            Err(reason) => return ignored(reason),
        };
        use SupplicantState::{Disconnected, Failed, LoggedOff};
        if matches!(self.state, Disconnected | LoggedOff | Failed) {
            return ignored("unexpected");
        }
        match packet {
            Eap::Request { id, kind, data } => {
                self.request(now, (id, kind, data), number, settings)
            }
            Eap::End { id, success } => self.end(now, id, success, settings),
        }
    }

    /// Closes the port. Returns the EAPOL-Logoff, unless the port was closed already. A host that
    /// has given up stays so, because that is its result.
    pub fn logoff(&mut self) -> Option<Vec<u8>> {
        let open = self.authorized;
        let state = match self.state {
            SupplicantState::Failed => SupplicantState::Failed,
            _ => SupplicantState::LoggedOff,
        };
        *self = Self { state, ..Self::default() };
        open.then(|| eapol(LOGOFF, &[]))
    }

    fn connect(&mut self, now: Nanos, settings: &SupplicantSettings) -> SupplicantStep {
        self.state = SupplicantState::Connecting;
        self.starts = 0;
        self.begin(now);
        self.send_start(now, settings)
    }

    fn begin(&mut self, now: Nanos) {
        (self.answered, self.requests, self.begun) = (None, 0, now);
        (self.shown, self.tunnel) = (Shown::Identity, None);
    }

    fn send_start(&mut self, now: Nanos, settings: &SupplicantSettings) -> SupplicantStep {
        self.starts += 1;
        self.due = Some(now + settings.start_period);
        SupplicantStep { send: Some(("start", eapol(START, &[]))), event: None }
    }

    fn give_up(&mut self, reason: &'static str) -> SupplicantStep {
        *self = Self { state: SupplicantState::Failed, ..Self::default() };
        SupplicantStep { send: None, event: Some(SupplicantEvent::Failed(reason)) }
    }

    fn request(
        &mut self,
        now: Nanos,
        (id, kind, data): (u8, u8, &[u8]),
        number: u32,
        settings: &SupplicantSettings,
    ) -> SupplicantStep {
        // In other states, the request begins a conversation, so earlier ones do not count.
        if self.state == SupplicantState::Authenticating && self.requests >= MOST_REQUESTS {
            return ignored("too_many_requests");
        }
        let text = |text: &str| text.replace("{}", &number.to_string());
        let (own, own_word) = settings.method.kind();
        let (word, answer, data) = match kind {
            IDENTITY => {
                let outer = match settings.anonymous.is_empty() {
                    true => &settings.identity,
                    false => &settings.anonymous,
                };
                ("identity", IDENTITY, text(outer).into_bytes())
            }
            NOTIFICATION => ("notification", NOTIFICATION, Vec::new()),
            NAK => return ignored("bad_type"),
            _ if kind != own => ("nak", NAK, vec![own]),
            MD5_CHALLENGE => {
                let challenge = data
                    .split_first()
                    .and_then(|(len, rest)| rest.get(..usize::from(*len)))
                    .filter(|challenge| !challenge.is_empty());
                let Some(challenge) = challenge else { return ignored("bad_challenge") };
                let password = text(&settings.password);
                (own_word, MD5_CHALLENGE, md5_response(id, password.as_bytes(), challenge))
            }
            _ => {
                let (identity, password) = (text(&settings.identity), text(&settings.password));
                let credentials =
                    Credentials { identity: identity.as_bytes(), password: &password };
                match self.converse(id, data, credentials, &settings.method) {
                    Ok(data) => (own_word, own, data),
                    Err(reason) => return ignored(reason),
                }
            }
        };
        // The begin of an authentication: in AUTHENTICATED and HELD, the authenticator asks for it.
        if self.state != SupplicantState::Authenticating {
            if self.state != SupplicantState::Connecting {
                let tunnel = self.tunnel.take();
                self.begin(now);
                self.tunnel = tunnel;
            }
            self.state = SupplicantState::Authenticating;
        }
        self.shown = match (answer, &self.tunnel) {
            // A new conversation, in which nothing is proved yet.
            (IDENTITY, _) => {
                self.tunnel = None;
                Shown::Identity
            }
            (NAK, _) if self.shown == Shown::Identity => Shown::Declined,
            (NAK | NOTIFICATION, _) => self.shown,
            (_, Some(tunnel)) if !tunnel.is_proved() => Shown::Method,
            _ => Shown::Password,
        };
        self.answered = Some(id);
        self.requests += 1;
        self.due = Some(now + settings.auth_period);
        let len = (5 + data.len()) as u16;
        let [high, low] = len.to_be_bytes();
        let response = [&[RESPONSE, id, high, low, answer], &data[..]].concat();
        SupplicantStep { send: Some((word, eapol(EAP_PACKET, &response))), event: None }
    }

    /// The answer of a method with TLS.
    fn converse(
        &mut self,
        id: u8,
        data: &[u8],
        credentials: Credentials<'_>,
        method: &EapMethod,
    ) -> Result<Vec<u8>, &'static str> {
        let tunnel = match &mut self.tunnel {
            // A repeated request (RFC 3748 section 4.1): TLS would take its octets as new ones.
            Some(tunnel) if self.answered == Some(id) => return Ok(tunnel.last().to_vec()),
            Some(tunnel) => tunnel,
            none => none.insert(Tunnel::begin(method, data)?),
        };
        tunnel.answer(id, data, credentials)
    }

    /// EAP-Success and EAP-Failure have the identifier of the response that they follow
    /// (RFC 3748 section 4.2). Others may be forged.
    fn end(
        &mut self,
        now: Nanos,
        id: u8,
        success: bool,
        settings: &SupplicantSettings,
    ) -> SupplicantStep {
        let revoked = self.state == SupplicantState::Authenticated && !success;
        if self.state != SupplicantState::Authenticating && !revoked {
            return ignored("unexpected");
        }
        // Some authenticators count on: theirs is the identifier after that of the response.
        let known = self.answered.is_some_and(|last| id == last || id == last.wrapping_add(1));
        if !known {
            return ignored("wrong_identifier");
        }
        if revoked {
            // The authenticator has closed its port. AUTHENTICATED leads through RESTART to
            // AUTHENTICATING, as in wpa_supplicant: the authenticator has `authPeriod` to begin
            // another authentication, and then the host begins.
            self.begin(now);
            self.state = SupplicantState::Authenticating;
            self.due = Some(now + settings.auth_period);
            return SupplicantStep::default();
        }
        if !success {
            self.authorized = false;
            self.failures = self.failures.saturating_add(1);
            let reason = self.reason();
            self.tunnel = None;
            if self.failures >= settings.attempts {
                return self.give_up(reason);
            }
            self.state = SupplicantState::Held;
            self.due = Some(now + settings.held_period);
            return SupplicantStep { send: None, event: Some(SupplicantEvent::Refused(reason)) };
        }
        if self.shown != Shown::Password {
            return ignored("early_success");
        }
        let again = self.authorized;
        let after = now.saturating_sub(self.begun);
        (self.state, self.authorized) = (SupplicantState::Authenticated, true);
        (self.due, self.failures) = (settings.again.map(|again| now + again), 0);
        self.tunnel = None;
        let event = match again {
            true => SupplicantEvent::Reauthenticated(after),
            false => SupplicantEvent::Authenticated(after),
        };
        SupplicantStep { send: None, event: Some(event) }
    }

    /// Why the authenticator has refused the host.
    fn reason(&self) -> &'static str {
        let known = self.tunnel.as_ref().and_then(|tunnel| tunnel.failure());
        known.unwrap_or(match self.shown {
            Shown::Identity => "identity_refused",
            Shown::Declined => "no_common_method",
            Shown::Method | Shown::Password => "rejected",
        })
    }
}

fn ignored(reason: &'static str) -> SupplicantStep {
    SupplicantStep { send: None, event: Some(SupplicantEvent::Ignored(reason)) }
}

/// RFC 3748 section 5.4 with RFC 1994 section 4.1: size, then the digest of identifier, password
/// and challenge.
fn md5_response(id: u8, password: &[u8], challenge: &[u8]) -> Vec<u8> {
    let digest =
        Md5::new_with_prefix([id]).chain_update(password).chain_update(challenge).finalize();
    [&[16], &digest[..]].concat()
}

/// An EAPOL frame after its Ethernet header.
fn eapol(kind: u8, body: &[u8]) -> Vec<u8> {
    let [high, low] = (body.len() as u16).to_be_bytes();
    [&[VERSION, kind, high, low], body].concat()
}

/// A packet of an authenticator.
enum Eap<'a> {
    Request { id: u8, kind: u8, data: &'a [u8] },
    End { id: u8, success: bool },
}

fn eap(frame: &[u8]) -> Result<Eap<'_>, &'static str> {
    let (head, rest) = frame.split_first_chunk::<4>().ok_or("truncated")?;
    let body = rest.get(..u16::from_be_bytes([head[2], head[3]]).into()).ok_or("truncated")?;
    if head[1] != EAP_PACKET {
        return Err("not_eap");
    }
    let (eap, _) = body.split_first_chunk::<4>().ok_or("truncated")?;
    let len = usize::from(u16::from_be_bytes([eap[2], eap[3]]));
    let data = body.get(4..len).ok_or("bad_length")?;
    match (eap[0], data.split_first()) {
        (REQUEST, Some((kind, data))) => Ok(Eap::Request { id: eap[1], kind: *kind, data }),
        (REQUEST, None) => Err("truncated"),
        (SUCCESS, None) => Ok(Eap::End { id: eap[1], success: true }),
        (FAILURE, None) => Ok(Eap::End { id: eap[1], success: false }),
        (SUCCESS | FAILURE, Some(_)) => Err("bad_length"),
        (RESPONSE, _) => Err("not_a_request"),
        _ => Err("bad_code"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    fn settings() -> SupplicantSettings {
        let (identity, password) = ("user{}".into(), "secret{}".into());
        SupplicantSettings { identity, password, ..SupplicantSettings::default() }
    }

    fn request(id: u8, kind: u8, data: &[u8]) -> Vec<u8> {
        let len = (5 + data.len()) as u8;
        eapol(EAP_PACKET, &[&[REQUEST, id, 0, len, kind], data].concat())
    }

    fn end(code: u8, id: u8) -> Vec<u8> {
        eapol(EAP_PACKET, &[code, id, 0, 4])
    }

    const CHALLENGE: [u8; 5] = [4, 1, 2, 3, 4];

    struct Script {
        supplicant: Supplicant,
        settings: SupplicantSettings,
        now: Nanos,
    }

    impl Script {
        fn started() -> Self {
            let mut script =
                Self { supplicant: Supplicant::default(), settings: settings(), now: seconds(100) };
            let step = script.supplicant.start(script.now, &script.settings);
            assert_eq!(step.send, Some(("start", vec![2, 1, 0, 0])));
            script
        }

        fn receive(&mut self, frame: &[u8]) -> SupplicantStep {
            self.supplicant.receive(self.now, frame, 7, &self.settings)
        }

        /// The answer to a frame after its EAPOL header.
        fn answer(&mut self, frame: &[u8]) -> Vec<u8> {
            self.receive(frame).send.expect("an answer").1[4..].to_vec()
        }

        fn event(&mut self, frame: &[u8]) -> SupplicantEvent {
            self.receive(frame).event.expect("an event")
        }

        /// Time until the next timer, and its step.
        fn wait(&mut self) -> (Nanos, SupplicantStep) {
            let due = self.supplicant.due().expect("a timer");
            let early = self.supplicant.timer(due.saturating_sub(Nanos(1)), &self.settings);
            assert_eq!(early, SupplicantStep::default());
            let waited = due.saturating_sub(self.now);
            self.now = due;
            (waited, self.supplicant.timer(due, &self.settings))
        }

        fn authenticated() -> Self {
            let mut script = Self::started();
            script.answer(&request(1, IDENTITY, &[]));
            script.answer(&request(2, MD5_CHALLENGE, &CHALLENGE));
            script.event(&end(SUCCESS, 2));
            assert!(script.supplicant.is_authorized());
            script
        }
    }

    #[test]
    fn the_response_to_a_challenge_is_that_of_rfc_1994() {
        // MD5 of 02 "secret7" 01 02 03 04, by md5sum.
        let mut script = Script::started();
        assert_eq!(script.answer(&request(1, IDENTITY, b"who")), b"\x02\x01\x00\x0a\x01user7");
        let answer = script.answer(&request(2, MD5_CHALLENGE, &CHALLENGE));
        assert_eq!(answer[..6], [2, 2, 0, 22, 4, 16]);
        let hex: String = answer[6..].iter().map(|octet| format!("{octet:02x}")).collect();
        assert_eq!(hex, "198cedcd3da68e4883cb4b0b6875a9e6");
        script.now = seconds(103);
        assert!(!script.supplicant.is_authorized());
        let event = script.event(&end(SUCCESS, 2));
        assert_eq!(event, SupplicantEvent::Authenticated(seconds(3)));
        assert!(script.supplicant.is_authorized() && script.supplicant.due().is_none());
    }

    #[test]
    fn start_frames_are_30_s_apart_and_after_three_the_host_fails() {
        let mut script = Script::started();
        for _ in 0..2 {
            let (waited, step) = script.wait();
            assert_eq!((waited, step.send.unwrap().0), (seconds(30), "start"));
        }
        let (waited, step) = script.wait();
        let failed = SupplicantEvent::Failed("no_authenticator");
        assert_eq!((waited, step.event, step.send), (seconds(30), Some(failed), None));
        assert_eq!(script.supplicant.due(), None);
    }

    #[test]
    fn start_period_and_number_of_starts_are_settable() {
        let mut script = Script::started();
        (script.settings.start_period, script.settings.max_start) = (seconds(2), 5);
        script.wait();
        for _ in 0..3 {
            let (waited, step) = script.wait();
            assert_eq!((waited, step.send.is_some()), (seconds(2), true));
        }
        assert!(matches!(script.wait().1.event, Some(SupplicantEvent::Failed(_))));
    }

    #[test]
    fn an_authenticator_that_stops_to_answer_is_asked_again_after_30_s() {
        let mut script = Script::started();
        script.answer(&request(1, IDENTITY, &[]));
        let (waited, step) = script.wait();
        assert_eq!((waited, step.event), (seconds(30), Some(SupplicantEvent::TimedOut)));
        assert_eq!(step.send.unwrap().0, "start");
        assert_eq!(script.supplicant.state(), SupplicantState::Connecting);
    }

    #[test]
    fn each_answer_restarts_the_time_to_wait() {
        let mut script = Script::started();
        script.settings.auth_period = seconds(4);
        script.answer(&request(1, IDENTITY, &[]));
        script.now = seconds(103);
        script.answer(&request(2, MD5_CHALLENGE, &CHALLENGE));
        assert_eq!(script.supplicant.due(), Some(seconds(107)));
    }

    #[test]
    fn three_timeouts_in_a_row_are_a_failure() {
        let mut script = Script::started();
        for attempt in 1..=3 {
            script.answer(&request(1, IDENTITY, &[]));
            let step = script.wait().1;
            let failed = SupplicantEvent::Failed("auth_timeout");
            let event = if attempt < 3 { SupplicantEvent::TimedOut } else { failed };
            assert_eq!(step.event, Some(event));
        }
    }

    #[test]
    fn a_refused_host_is_held_for_60_s_and_begins_again() {
        let mut script = Script::started();
        script.answer(&request(1, IDENTITY, &[]));
        script.answer(&request(2, MD5_CHALLENGE, &CHALLENGE));
        assert_eq!(script.event(&end(FAILURE, 2)), SupplicantEvent::Refused("rejected"));
        assert_eq!(script.supplicant.state(), SupplicantState::Held);
        let (waited, step) = script.wait();
        assert_eq!((waited, step.send.unwrap().0), (seconds(60), "start"));
    }

    #[test]
    fn a_refusal_without_a_method_has_its_own_reason() {
        let mut script = Script::started();
        script.answer(&request(1, IDENTITY, &[]));
        let refused = |reason| SupplicantEvent::Refused(reason);
        assert_eq!(script.event(&end(FAILURE, 1)), refused("identity_refused"));
        script.answer(&request(2, IDENTITY, &[]));
        script.answer(&request(3, 25, &[0x20]));
        assert_eq!(script.event(&end(FAILURE, 3)), refused("no_common_method"));
    }

    #[test]
    fn a_host_authenticates_again_by_itself_and_its_port_stays_open() {
        let mut script = Script::started();
        script.settings.again = Some(seconds(600));
        for again in [false, true] {
            script.answer(&request(1, IDENTITY, &[]));
            script.answer(&request(2, MD5_CHALLENGE, &CHALLENGE));
            let event = match again {
                false => SupplicantEvent::Authenticated(Nanos::ZERO),
                true => SupplicantEvent::Reauthenticated(Nanos::ZERO),
            };
            assert_eq!(script.event(&end(SUCCESS, 2)), event);
            let (waited, step) = script.wait();
            assert_eq!((waited, step.send.unwrap().0), (seconds(600), "start"));
            assert!(script.supplicant.is_authorized());
        }
        for _ in 0..2 {
            script.wait();
        }
        let failed = SupplicantEvent::Failed("no_authenticator");
        assert_eq!(script.wait().1.event, Some(failed));
        assert!(!script.supplicant.is_authorized());
    }

    #[test]
    fn a_request_ends_the_time_of_a_held_host() {
        let mut script = Script::started();
        script.settings.held_period = seconds(5);
        script.answer(&request(1, IDENTITY, &[]));
        script.event(&end(FAILURE, 1));
        assert_eq!(script.supplicant.due(), Some(seconds(105)));
        script.answer(&request(9, IDENTITY, &[]));
        assert_eq!(script.supplicant.state(), SupplicantState::Authenticating);
        assert_eq!(script.supplicant.due(), Some(seconds(130)));
    }

    #[test]
    fn three_refusals_in_a_row_are_a_failure() {
        let mut script = Script::started();
        for attempt in 1..=3 {
            script.answer(&request(1, IDENTITY, &[]));
            let event = script.event(&end(FAILURE, 1));
            let reason = "identity_refused";
            let event_of = match attempt {
                3 => SupplicantEvent::Failed(reason),
                _ => SupplicantEvent::Refused(reason),
            };
            assert_eq!(event, event_of);
            if attempt < 3 {
                script.wait();
            }
        }
        assert!(!script.supplicant.is_pending());
    }

    #[test]
    fn the_port_stays_open_while_the_host_authenticates_again() {
        let mut script = Script::authenticated();
        script.now = seconds(200);
        script.answer(&request(5, IDENTITY, &[]));
        assert!(script.supplicant.is_authorized());
        script.answer(&request(6, MD5_CHALLENGE, &CHALLENGE));
        script.now = seconds(201);
        let event = script.event(&end(SUCCESS, 6));
        assert_eq!(event, SupplicantEvent::Reauthenticated(seconds(1)));
        script.answer(&request(7, IDENTITY, &[]));
        script.event(&end(FAILURE, 7));
        assert!(!script.supplicant.is_authorized(), "a refusal closes it");
    }

    #[test]
    fn a_re_authentication_without_answer_closes_the_port_after_30_s() {
        let mut script = Script::authenticated();
        script.answer(&request(5, IDENTITY, &[]));
        let (waited, step) = script.wait();
        assert_eq!((waited, step.event), (seconds(30), Some(SupplicantEvent::TimedOut)));
        assert!(!script.supplicant.is_authorized());
    }

    #[test]
    fn a_repeated_request_gets_the_same_answer() {
        let mut script = Script::started();
        script.answer(&request(1, IDENTITY, &[]));
        let challenge = request(2, MD5_CHALLENGE, &CHALLENGE);
        assert_eq!(script.answer(&challenge), script.answer(&challenge));
    }

    #[test]
    fn other_methods_are_declined_in_favor_of_md5() {
        let mut script = Script::started();
        assert_eq!(script.answer(&request(3, 25, &[0x20])), [2, 3, 0, 6, 3, 4]);
        assert_eq!(script.answer(&request(4, NOTIFICATION, b"hello")), [2, 4, 0, 5, 2]);
    }

    #[test]
    fn only_an_authenticated_host_logs_off() {
        assert_eq!(Script::started().supplicant.logoff(), None);
        let mut script = Script::authenticated();
        assert_eq!(script.supplicant.logoff(), Some(vec![2, 2, 0, 0]));
        assert!(!script.supplicant.is_authorized());
        assert_eq!(script.supplicant.state(), SupplicantState::LoggedOff);
        let event = script.event(&request(1, IDENTITY, &[]));
        assert_eq!(event, SupplicantEvent::Ignored("unexpected"));
    }

    #[test]
    fn an_open_port_is_logged_off_in_any_state_and_a_failed_host_stays_so() {
        let mut script = Script::authenticated();
        script.answer(&request(5, IDENTITY, &[]));
        assert_eq!(script.supplicant.state(), SupplicantState::Authenticating);
        assert_eq!(script.supplicant.logoff(), Some(vec![2, 2, 0, 0]));
        assert_eq!(script.supplicant.logoff(), None, "once");
        let mut script = Script::started();
        while script.supplicant.is_pending() {
            script.wait();
        }
        assert_eq!(script.supplicant.logoff(), None);
        assert_eq!(script.supplicant.state(), SupplicantState::Failed);
    }

    #[test]
    fn a_conversation_does_not_count_the_requests_of_the_one_before() {
        let mut script = Script::authenticated();
        script.supplicant.requests = MOST_REQUESTS;
        script.answer(&request(3, IDENTITY, &[]));
        for _ in 1..MOST_REQUESTS {
            script.answer(&request(3, NOTIFICATION, &[]));
        }
        let event = script.event(&request(3, NOTIFICATION, &[]));
        assert_eq!(event, SupplicantEvent::Ignored("too_many_requests"));
    }

    #[test]
    fn a_host_whose_authenticator_closes_the_port_authenticates_again() {
        let mut script = Script::authenticated();
        assert_eq!(script.event(&end(FAILURE, 77)), SupplicantEvent::Ignored("wrong_identifier"));
        assert_eq!(script.event(&end(SUCCESS, 2)), SupplicantEvent::Ignored("unexpected"));
        assert_eq!(script.receive(&end(FAILURE, 2)), SupplicantStep::default());
        assert_eq!(script.supplicant.state(), SupplicantState::Authenticating);
        // The authenticator may begin, and otherwise the host does.
        let (waited, step) = script.wait();
        assert_eq!((waited, step.event), (seconds(30), Some(SupplicantEvent::TimedOut)));
        assert_eq!(step.send.unwrap().0, "start");
        assert!(!script.supplicant.is_authorized());
    }

    #[test]
    fn hostile_frames_are_ignored_with_a_reason() {
        let mut script = Script::started();
        let mut reason = |frame: &[u8]| match script.receive(frame) {
            SupplicantStep { send: None, event: Some(SupplicantEvent::Ignored(reason)) } => reason,
            step => panic!("{step:?}"),
        };
        assert_eq!(reason(&end(SUCCESS, 0)), "unexpected", "before any request");
        assert_eq!(reason(&[2, 0, 0]), "truncated");
        assert_eq!(reason(&[2, 0, 0, 9, 1, 1, 0, 9]), "truncated");
        assert_eq!(reason(&eapol(3, &[1, 1, 0, 4])), "not_eap");
        assert_eq!(reason(&eapol(0, &[1, 1, 0, 9, 1])), "bad_length");
        assert_eq!(reason(&eapol(0, &[1, 1, 0, 2])), "bad_length");
        assert_eq!(reason(&eapol(0, &[1, 1, 0, 4])), "truncated");
        assert_eq!(reason(&eapol(0, &[2, 1, 0, 5, 1])), "not_a_request");
        assert_eq!(reason(&eapol(0, &[9, 1, 0, 4])), "bad_code");
        assert_eq!(reason(&request(1, MD5_CHALLENGE, &[])), "bad_challenge");
        assert_eq!(reason(&request(1, MD5_CHALLENGE, &[0])), "bad_challenge");
        assert_eq!(reason(&request(1, MD5_CHALLENGE, &[200, 1, 2])), "bad_challenge");
        script.answer(&request(1, IDENTITY, &[]));
        assert_eq!(
            script.event(&end(SUCCESS, 1)),
            SupplicantEvent::Ignored("early_success"),
            "no password was asked for"
        );
        script.answer(&request(2, MD5_CHALLENGE, &CHALLENGE));
        assert_eq!(script.event(&end(SUCCESS, 77)), SupplicantEvent::Ignored("wrong_identifier"));
        assert_eq!(script.event(&end(FAILURE, 77)), SupplicantEvent::Ignored("wrong_identifier"));
        assert!(!script.supplicant.is_authorized());
    }

    #[test]
    fn a_response_is_not_repeated_without_a_request() {
        let mut script = Script::started();
        script.answer(&request(1, IDENTITY, &[]));
        // Retransmission is the authenticator's (RFC 3748 section 4.3).
        for second in 101..130 {
            let step = script.supplicant.timer(seconds(second), &script.settings);
            assert_eq!(step, SupplicantStep::default(), "at {second} s");
        }
        assert_eq!(script.supplicant.due(), Some(seconds(130)));
    }

    #[test]
    fn a_repeated_request_restarts_the_time_to_wait_with_the_same_answer() {
        let mut script = Script::started();
        let first = script.answer(&request(1, IDENTITY, &[]));
        script.now = seconds(120);
        assert_eq!(script.answer(&request(1, IDENTITY, &[])), first);
        assert_eq!(script.supplicant.due(), Some(seconds(150)), "authPeriod");
    }

    #[test]
    fn a_request_after_the_second_start_begins_the_authentication() {
        let mut script = Script::started();
        script.wait();
        script.answer(&request(1, IDENTITY, &[]));
        assert_eq!(script.supplicant.due(), Some(seconds(160)), "authPeriod, not startPeriod");
    }

    #[test]
    fn the_starts_of_each_attempt_are_counted_anew() {
        let mut script = Script::started();
        script.wait();
        script.answer(&request(1, IDENTITY, &[]));
        assert_eq!(script.wait().1.event, Some(SupplicantEvent::TimedOut));
        // Two further ones after that of the new attempt (maxStart).
        for _ in 0..2 {
            assert_eq!(script.wait().1.send.unwrap().0, "start");
        }
        let failed = SupplicantEvent::Failed("no_authenticator");
        assert_eq!(script.wait().1.event, Some(failed));
    }

    #[test]
    fn a_failure_while_the_host_is_held_does_not_prolong_the_time() {
        let mut script = Script::started();
        script.answer(&request(1, IDENTITY, &[]));
        script.event(&end(FAILURE, 1));
        script.now = seconds(130);
        assert_eq!(script.event(&end(FAILURE, 1)), SupplicantEvent::Ignored("unexpected"));
        assert_eq!(script.event(&end(SUCCESS, 1)), SupplicantEvent::Ignored("unexpected"));
        assert_eq!(script.supplicant.due(), Some(seconds(160)), "heldPeriod");
    }

    #[test]
    fn a_success_ends_the_time_to_wait_and_the_count_of_failures() {
        let mut script = Script::started();
        for _ in 0..2 {
            script.answer(&request(1, IDENTITY, &[]));
            script.event(&end(FAILURE, 1));
            script.wait();
        }
        script.answer(&request(1, IDENTITY, &[]));
        script.answer(&request(2, MD5_CHALLENGE, &CHALLENGE));
        script.event(&end(SUCCESS, 2));
        assert_eq!(script.supplicant.due(), None);
        // As many failures as at the begin until the host gives up.
        for attempt in 1..=3 {
            script.answer(&request(3, IDENTITY, &[]));
            let gives_up = matches!(script.event(&end(FAILURE, 3)), SupplicantEvent::Failed(_));
            assert_eq!(gives_up, attempt == 3, "attempt {attempt}");
        }
    }

    #[test]
    fn a_host_that_logged_off_has_no_timer() {
        let mut script = Script::authenticated();
        script.supplicant.logoff();
        assert_eq!(script.supplicant.due(), None);
        let step = script.supplicant.timer(seconds(9999), &script.settings);
        assert_eq!(step, SupplicantStep::default());
    }
}
