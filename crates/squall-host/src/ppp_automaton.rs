//! The automaton of PPP's control protocols (RFC 1661 section 4): LCP, IPCP and IPV6CP are in one of
//! ten states each, and agree on their options by requests and answers.

use squall_units::Nanos;

/// Timers and counters (section 4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PppTimers {
    /// Restart timer: time without an answer to a request, 3 s.
    pub restart: Nanos,
    /// Max-Terminate: Terminate-Requests without an answer, 2.
    pub max_terminate: u8,
    /// Max-Configure: Configure-Requests without an answer, 10.
    pub max_configure: u8,
    /// Max-Failure: Configure-Naks before options are rejected instead, 5.
    pub max_failure: u8,
}

impl Default for PppTimers {
    fn default() -> Self {
        Self { restart: Nanos(3_000_000_000), max_terminate: 2, max_configure: 10, max_failure: 5 }
    }
}

/// States (section 4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PppState {
    #[default]
    Initial,
    Starting,
    Closed,
    Stopped,
    Closing,
    Stopping,
    RequestSent,
    AckReceived,
    AckSent,
    Opened,
}

/// Packets that the automaton wants to send (section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PppOutput {
    /// With the identifier of [`Automaton::id`].
    ConfigureRequest,
    /// The Configure-Ack, -Nak or -Reject that answers the request.
    ConfigureAnswer,
    TerminateRequest,
    TerminateAck,
}

/// Reactions to an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PppActions {
    /// In the order in which they leave.
    pub send: [Option<PppOutput>; 2],
    /// This-Layer-Up, This-Layer-Down and This-Layer-Finished.
    pub up: bool,
    pub down: bool,
    pub finished: bool,
}

/// One automaton. Events that cannot occur in a state change nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Automaton {
    state: PppState,
    /// Identifier of the last request.
    id: u8,
    /// The restart counter, and the restart timer.
    restarts: u8,
    due: Option<Nanos>,
    /// Answers in a row, sent and received, that were no Configure-Ack.
    naks: u8,
    refusals: u8,
    /// The last request has its answer. A second one is a duplicate.
    answered: bool,
}

use PppOutput::{ConfigureAnswer, ConfigureRequest, TerminateAck, TerminateRequest};
use PppState::{
    AckReceived, AckSent, Closed, Closing, Initial, Opened, RequestSent, Starting, Stopped,
    Stopping,
};

impl Automaton {
    pub fn state(&self) -> PppState {
        self.state
    }

    pub fn is_opened(&self) -> bool {
        self.state == Opened
    }

    pub fn id(&self) -> u8 {
        self.id
    }

    /// Whether an answer with this identifier is one to the last request.
    pub fn awaits(&self, id: u8) -> bool {
        id == self.id && !self.answered
    }

    pub fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Whether options that are not acceptable are rejected, because naks have not led to agreement
    /// (Max-Failure).
    pub fn rejects(&self, timers: &PppTimers) -> bool {
        self.naks >= timers.max_failure
    }

    /// Up: the lower layer can carry packets.
    pub fn up(&mut self, now: Nanos, timers: &PppTimers) -> PppActions {
        match self.state {
            Initial => self.go(Closed),
            Starting => self.begin(now, timers),
            _ => PppActions::default(),
        }
    }

    /// Down: it no longer can.
    pub fn down(&mut self) -> PppActions {
        let down = self.state == Opened;
        let next = match self.state {
            Initial | Closed | Closing => Initial,
            _ => Starting,
        };
        PppActions { down, ..self.go(next) }
    }

    /// Open: the protocol may run.
    pub fn open(&mut self, now: Nanos, timers: &PppTimers) -> PppActions {
        match self.state {
            Initial => self.go(Starting),
            Closed => self.begin(now, timers),
            Closing => {
                self.state = Stopping;
                PppActions::default()
            }
            _ => PppActions::default(),
        }
    }

    /// Close: the protocol has to end.
    pub fn close(&mut self, now: Nanos, timers: &PppTimers) -> PppActions {
        match self.state {
            Initial | Closed | Closing => PppActions::default(),
            Starting => PppActions { finished: true, ..self.go(Initial) },
            Stopped => self.go(Closed),
            Stopping => {
                self.state = Closing;
                PppActions::default()
            }
            RequestSent | AckReceived | AckSent | Opened => {
                let down = self.state == Opened;
                PppActions { down, ..self.terminate(now, timers, Closing) }
            }
        }
    }

    /// TO+ and TO-: runs the restart timer, if it is due.
    pub fn timer(&mut self, now: Nanos, timers: &PppTimers) -> PppActions {
        if self.due.is_none_or(|due| due > now) {
            return PppActions::default();
        }
        match (self.state, self.restarts) {
            (Closing, 0) => PppActions { finished: true, ..self.go(Closed) },
            (Stopping | RequestSent | AckReceived | AckSent, 0) => {
                PppActions { finished: true, ..self.go(Stopped) }
            }
            (Closing | Stopping, _) => self.send_terminate(now, timers),
            (RequestSent | AckReceived, _) => {
                self.state = RequestSent;
                self.send_request(now, timers)
            }
            (AckSent, _) => self.send_request(now, timers),
            _ => {
                self.due = None;
                PppActions::default()
            }
        }
    }

    /// RCR+ and RCR-: a Configure-Request, whose options are acceptable or not.
    pub fn configure_request(&mut self, now: Nanos, good: bool, timers: &PppTimers) -> PppActions {
        if matches!(self.state, RequestSent | AckReceived | AckSent | Opened | Stopped) {
            self.naks = if good { 0 } else { self.naks.saturating_add(1) };
            // The RFC has no limit for refusals; without one, two ends could refuse forever.
            if self.naks > timers.max_failure.saturating_add(timers.max_configure) {
                let down = self.state == Opened;
                return PppActions { down, finished: true, ..self.go(Stopped) };
            }
        }
        let answer = |actions: PppActions| {
            let [first, _] = actions.send;
            match first {
                Some(first) => PppActions { send: [Some(first), Some(ConfigureAnswer)], ..actions },
                None => PppActions { send: [Some(ConfigureAnswer), None], ..actions },
            }
        };
        match self.state {
            Closed => send(TerminateAck),
            Stopped => {
                let actions = self.begin(now, timers);
                self.state = if good { AckSent } else { RequestSent };
                answer(actions)
            }
            RequestSent | AckSent => {
                self.state = if good { AckSent } else { RequestSent };
                answer(PppActions::default())
            }
            AckReceived if good => {
                let actions = self.go(Opened);
                answer(PppActions { up: true, ..actions })
            }
            AckReceived => answer(PppActions::default()),
            Opened => {
                let actions = self.begin(now, timers);
                self.state = if good { AckSent } else { RequestSent };
                answer(PppActions { down: true, ..actions })
            }
            Initial | Starting | Closing | Stopping => PppActions::default(),
        }
    }

    /// RCA: a Configure-Ack for the last request.
    pub fn configure_ack(&mut self, now: Nanos, timers: &PppTimers) -> PppActions {
        self.answered = true;
        match self.state {
            Closed | Stopped => send(TerminateAck),
            RequestSent => {
                self.restarts = timers.max_configure;
                self.state = AckReceived;
                PppActions::default()
            }
            AckSent => PppActions { up: true, ..self.go(Opened) },
            AckReceived | Opened => self.again(now, timers),
            Initial | Starting | Closing | Stopping => PppActions::default(),
        }
    }

    /// RCN: a Configure-Nak or -Reject for the last request.
    pub fn configure_nak(&mut self, now: Nanos, timers: &PppTimers) -> PppActions {
        self.answered = true;
        match self.state {
            Closed | Stopped => send(TerminateAck),
            RequestSent | AckSent => {
                self.refusals = self.refusals.saturating_add(1);
                if self.refusals > timers.max_configure {
                    return PppActions { finished: true, ..self.go(Stopped) };
                }
                self.restarts = timers.max_configure;
                self.id = self.id.wrapping_add(1);
                self.send_request(now, timers)
            }
            AckReceived | Opened => self.again(now, timers),
            Initial | Starting | Closing | Stopping => PppActions::default(),
        }
    }

    /// RTR: a Terminate-Request.
    pub fn terminate_request(&mut self, now: Nanos, timers: &PppTimers) -> PppActions {
        match self.state {
            Initial | Starting => PppActions::default(),
            AckReceived | AckSent => {
                self.state = RequestSent;
                send(TerminateAck)
            }
            Opened => {
                // Zero-Restart-Count: a pause, in which the answer can arrive before the link ends.
                self.restarts = 0;
                self.state = Stopping;
                self.due = Some(now + timers.restart);
                PppActions { down: true, ..send(TerminateAck) }
            }
            Closed | Stopped | Closing | Stopping | RequestSent => send(TerminateAck),
        }
    }

    /// RTA: a Terminate-Ack.
    pub fn terminate_ack(&mut self, now: Nanos, timers: &PppTimers) -> PppActions {
        match self.state {
            Closing => PppActions { finished: true, ..self.go(Closed) },
            Stopping => PppActions { finished: true, ..self.go(Stopped) },
            AckReceived => {
                self.state = RequestSent;
                PppActions::default()
            }
            Opened => self.again(now, timers),
            _ => PppActions::default(),
        }
    }

    /// RXJ-: the peer does not know the protocol, or a code that it needs.
    pub fn rejected(&mut self, now: Nanos, timers: &PppTimers) -> PppActions {
        match self.state {
            Initial | Starting => PppActions::default(),
            Closed | Closing => PppActions { finished: true, ..self.go(Closed) },
            Opened => PppActions { down: true, ..self.terminate(now, timers, Stopping) },
            Stopped | Stopping | RequestSent | AckReceived | AckSent => {
                PppActions { finished: true, ..self.go(Stopped) }
            }
        }
    }

    /// The next request from [`PppState::Opened`] or after a second Configure-Ack.
    fn again(&mut self, now: Nanos, timers: &PppTimers) -> PppActions {
        let down = self.state == Opened;
        if down {
            self.restarts = timers.max_configure;
        }
        self.state = RequestSent;
        self.id = self.id.wrapping_add(1);
        PppActions { down, ..self.send_request(now, timers) }
    }

    /// Initialize-Restart-Count, Send-Configure-Request.
    fn begin(&mut self, now: Nanos, timers: &PppTimers) -> PppActions {
        self.state = RequestSent;
        (self.restarts, self.refusals) = (timers.max_configure, 0);
        self.id = self.id.wrapping_add(1);
        self.send_request(now, timers)
    }

    fn send_request(&mut self, now: Nanos, timers: &PppTimers) -> PppActions {
        // The counter includes the first transmission (section 4.6).
        self.restarts = self.restarts.saturating_sub(1);
        self.due = Some(now + timers.restart);
        self.answered = false;
        send(ConfigureRequest)
    }

    fn terminate(&mut self, now: Nanos, timers: &PppTimers, next: PppState) -> PppActions {
        self.state = next;
        self.restarts = timers.max_terminate;
        self.id = self.id.wrapping_add(1);
        self.send_terminate(now, timers)
    }

    fn send_terminate(&mut self, now: Nanos, timers: &PppTimers) -> PppActions {
        self.restarts = self.restarts.saturating_sub(1);
        self.due = Some(now + timers.restart);
        send(TerminateRequest)
    }

    /// Enters a state without a timer.
    fn go(&mut self, next: PppState) -> PppActions {
        self.state = next;
        self.due = None;
        if next == Opened {
            (self.naks, self.refusals) = (0, 0);
        }
        PppActions::default()
    }
}

fn send(one: PppOutput) -> PppActions {
    PppActions { send: [Some(one), None], ..PppActions::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMERS: PppTimers = PppTimers {
        restart: Nanos(3_000_000_000),
        max_terminate: 2,
        max_configure: 10,
        max_failure: 5,
    };

    fn seconds(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    /// An automaton in this state, at second 100.
    fn at(state: PppState) -> Automaton {
        let now = seconds(100);
        let mut one = Automaton::default();
        let steps: &[fn(&mut Automaton, Nanos)] =
            &[|a, n| _ = a.open(n, &TIMERS), |a, n| _ = a.up(n, &TIMERS)];
        let run = |one: &mut Automaton| steps.iter().for_each(|step| step(one, now));
        match state {
            Initial => {}
            Starting => _ = one.open(now, &TIMERS),
            Closed => _ = one.up(now, &TIMERS),
            RequestSent => run(&mut one),
            AckReceived => {
                run(&mut one);
                one.configure_ack(now, &TIMERS);
            }
            AckSent => {
                run(&mut one);
                one.configure_request(now, true, &TIMERS);
            }
            Opened => {
                run(&mut one);
                one.configure_request(now, true, &TIMERS);
                one.configure_ack(now, &TIMERS);
            }
            Closing => {
                run(&mut one);
                one.close(now, &TIMERS);
            }
            Stopping => {
                one = at(Opened);
                one.terminate_request(now, &TIMERS);
            }
            Stopped => {
                run(&mut one);
                one.rejected(now, &TIMERS);
            }
        }
        assert_eq!(one.state(), state);
        one
    }

    /// The reaction as the table of section 4.1 writes it: `tld,scr,sca/8`.
    fn reaction(
        state: PppState,
        event: impl FnOnce(&mut Automaton, Nanos) -> PppActions,
    ) -> String {
        let mut one = at(state);
        let actions = event(&mut one, seconds(100));
        let mut words = Vec::new();
        if actions.down {
            words.push("tld");
        }
        for output in actions.send.into_iter().flatten() {
            words.push(match output {
                ConfigureRequest => "scr",
                ConfigureAnswer => "answer",
                TerminateRequest => "str",
                TerminateAck => "sta",
            });
        }
        if actions.up {
            words.push("tlu");
        }
        if actions.finished {
            words.push("tlf");
        }
        format!("{}/{}", words.join(","), one.state() as u8)
    }

    const ALL: [PppState; 10] = [
        Initial,
        Starting,
        Closed,
        Stopped,
        Closing,
        Stopping,
        RequestSent,
        AckReceived,
        AckSent,
        Opened,
    ];

    fn row(expected: [&str; 10], event: impl Fn(&mut Automaton, Nanos) -> PppActions) {
        for (state, expected) in ALL.into_iter().zip(expected) {
            assert_eq!(reaction(state, &event), expected, "{state:?}");
        }
    }

    #[test]
    fn the_table_of_the_rfc_holds_in_each_state() {
        row(["/2", "scr/6", "/2", "/3", "/4", "/5", "/6", "/7", "/8", "/9"], |a, now| {
            a.up(now, &TIMERS)
        });
        row(["/0", "/1", "/0", "/1", "/0", "/1", "/1", "/1", "/1", "tld/1"], |a, _| a.down());
        row(["/1", "/1", "scr/6", "/3", "/5", "/5", "/6", "/7", "/8", "/9"], |a, now| {
            a.open(now, &TIMERS)
        });
        row(
            ["/0", "tlf/0", "/2", "/2", "/4", "/4", "str/4", "str/4", "str/4", "tld,str/4"],
            |a, now| a.close(now, &TIMERS),
        );
        let good = [
            "/0",
            "/1",
            "sta/2",
            "scr,answer/8",
            "/4",
            "/5",
            "answer/8",
            "answer,tlu/9",
            "answer/8",
            "tld,scr,answer/8",
        ];
        row(good, |a, now| a.configure_request(now, true, &TIMERS));
        let bad = [
            "/0",
            "/1",
            "sta/2",
            "scr,answer/6",
            "/4",
            "/5",
            "answer/6",
            "answer/7",
            "answer/6",
            "tld,scr,answer/6",
        ];
        row(bad, |a, now| a.configure_request(now, false, &TIMERS));
        row(
            ["/0", "/1", "sta/2", "sta/3", "/4", "/5", "/7", "scr/6", "tlu/9", "tld,scr/6"],
            |a, now| a.configure_ack(now, &TIMERS),
        );
        row(
            ["/0", "/1", "sta/2", "sta/3", "/4", "/5", "scr/6", "scr/6", "scr/8", "tld,scr/6"],
            |a, now| a.configure_nak(now, &TIMERS),
        );
        row(
            [
                "/0",
                "/1",
                "sta/2",
                "sta/3",
                "sta/4",
                "sta/5",
                "sta/6",
                "sta/6",
                "sta/6",
                "tld,sta/5",
            ],
            |a, now| a.terminate_request(now, &TIMERS),
        );
        row(["/0", "/1", "/2", "/3", "tlf/2", "tlf/3", "/6", "/6", "/8", "tld,scr/6"], |a, now| {
            a.terminate_ack(now, &TIMERS)
        });
        row(
            [
                "/0",
                "/1",
                "tlf/2",
                "tlf/3",
                "tlf/2",
                "tlf/3",
                "tlf/3",
                "tlf/3",
                "tlf/3",
                "tld,str/5",
            ],
            |a, now| a.rejected(now, &TIMERS),
        );
    }

    #[test]
    fn a_request_is_repeated_every_three_seconds_ten_times_and_then_the_layer_is_finished() {
        let mut one = at(RequestSent);
        for number in 1..10 {
            let now = seconds(100 + 3 * number);
            assert_eq!(one.timer(Nanos(now.0 - 1), &TIMERS), PppActions::default());
            assert_eq!(one.timer(now, &TIMERS), send(ConfigureRequest), "{number}");
        }
        assert_eq!(one.id(), 1, "a repetition has the identifier of the request");
        let end = one.timer(seconds(130), &TIMERS);
        assert_eq!((end.finished, one.state(), one.due()), (true, Stopped, None));
    }

    #[test]
    fn a_termination_is_repeated_once() {
        let mut one = at(Closing);
        assert_eq!(one.timer(seconds(103), &TIMERS), send(TerminateRequest));
        assert!(one.timer(seconds(106), &TIMERS).finished);
        assert_eq!(one.state(), Closed);
    }

    #[test]
    fn after_the_termination_of_the_peer_the_link_ends_a_restart_period_later() {
        let mut one = at(Stopping);
        assert!(!one.timer(Nanos(seconds(103).0 - 1), &TIMERS).finished);
        assert!(one.timer(seconds(103), &TIMERS).finished);
    }

    #[test]
    fn an_ack_without_a_request_of_the_peer_is_followed_by_a_request() {
        let mut one = at(AckReceived);
        assert_eq!(one.timer(seconds(103), &TIMERS), send(ConfigureRequest));
        assert_eq!(one.state(), RequestSent);
    }

    #[test]
    fn naks_become_rejections_and_refusals_have_an_end() {
        let mut one = at(RequestSent);
        for number in 0..5 {
            assert!(!one.rejects(&TIMERS), "{number}");
            one.configure_request(seconds(100), false, &TIMERS);
        }
        assert!(one.rejects(&TIMERS));
        let end = (0..11).map(|_| one.configure_request(seconds(100), false, &TIMERS)).last();
        assert_eq!(end.map(|end| end.finished), Some(true));
        let mut one = at(RequestSent);
        let end = (0..11).map(|_| one.configure_nak(seconds(100), &TIMERS)).last();
        assert_eq!(end.map(|end| end.finished), Some(true));
    }

    #[test]
    fn restart_timer_and_counters_are_settable() {
        let timers =
            PppTimers { restart: Nanos(500_000_000), max_configure: 3, max_terminate: 4, ..TIMERS };
        let count = |one: &mut Automaton, output| {
            let mut sent = 0;
            while let Some(due) = one.due() {
                assert_eq!(one.timer(Nanos(due.0 - 1), &timers), PppActions::default());
                let actions = one.timer(due, &timers);
                sent += u32::from(actions == send(output));
            }
            sent
        };
        let mut one = Automaton::default();
        one.open(seconds(100), &timers);
        one.up(seconds(100), &timers);
        assert_eq!(one.due(), Some(Nanos(100_500_000_000)));
        assert_eq!((count(&mut one, ConfigureRequest), one.state()), (2, Stopped));
        let mut one = at(Opened);
        one.close(seconds(100), &timers);
        assert_eq!((count(&mut one, TerminateRequest), one.state()), (3, Closed));
    }

    #[test]
    fn an_ack_and_a_nak_begin_the_count_of_requests_again() {
        for is_ack in [false, true] {
            let mut one = at(RequestSent);
            for number in 1..8 {
                one.timer(seconds(100 + 3 * number), &TIMERS);
            }
            match is_ack {
                true => one.configure_ack(seconds(122), &TIMERS),
                false => one.configure_nak(seconds(122), &TIMERS),
            };
            let mut requests = 0;
            while let Some(due) = one.due() {
                requests += u32::from(one.timer(due, &TIMERS) == send(ConfigureRequest));
            }
            // A nak is followed by a request at once, which is the first of ten.
            assert_eq!((requests, one.state()), (if is_ack { 10 } else { 9 }, Stopped));
        }
    }

    #[test]
    fn a_request_of_the_peer_does_not_move_the_restart_timer() {
        let mut one = at(RequestSent);
        for good in [true, false] {
            one.configure_request(seconds(102), good, &TIMERS);
            assert_eq!(one.due(), Some(seconds(103)));
        }
    }

    #[test]
    fn an_open_layer_has_no_timer_and_negotiates_again_with_all_requests() {
        let mut one = at(Opened);
        assert_eq!(one.due(), None);
        one.configure_request(seconds(200), true, &TIMERS);
        let mut requests = 1;
        while let Some(due) = one.due() {
            requests += u32::from(one.timer(due, &TIMERS) == send(ConfigureRequest));
        }
        assert_eq!((requests, one.state()), (10, Stopped));
    }

    #[test]
    fn a_termination_of_the_peer_does_not_end_the_own_one_earlier() {
        let mut one = at(Closing);
        assert_eq!(one.terminate_request(seconds(101), &TIMERS), send(TerminateAck));
        assert_eq!((one.state(), one.due()), (Closing, Some(seconds(103))));
    }

    #[test]
    fn a_lower_layer_that_goes_down_stops_the_timer() {
        for state in [Closing, Stopping, RequestSent, AckReceived, AckSent] {
            let mut one = at(state);
            assert!(one.due().is_some(), "{state:?}");
            one.down();
            assert_eq!(one.due(), None, "{state:?}");
        }
    }
}
