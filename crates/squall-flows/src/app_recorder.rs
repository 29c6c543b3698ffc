//! The applications, with a recorder for the outcomes of their flows.

use std::{collections::BTreeMap, fmt, time::Instant};

use squall_apps::{
    Apps, EarlyData, Http2, Http3, Observer, Program, ProgramError, ProgramId, ProtocolError,
    Report, State, Tls,
};
use squall_tcp::{
    Application, ClassId, Deed, Event, Events, FlowId, Piece, Reason, Socket, StateParts, Tuple,
};
use squall_units::Nanos;

use crate::{
    FailedConversation, Failure, FlowStatistics, Requests, Served, TlsStatistics, Tuples,
    link::ServedHosts, script::Serving, statistics::MOST_FAILED,
};

/// The applications, with the start time of each flow.
pub(crate) struct AppRecorder {
    pub apps: Apps<Recorder>,
    /// Selects the programs for a script's servers.
    pub serving: Option<Box<Serving>>,
    /// Client pools of the side that use UDP, each with the pool of its servers; `None`: hosts, whose
    /// addresses change.
    pub clients: Vec<(Option<Tuples>, Option<Tuples>)>,
    pub served: ServedHosts,
    /// The flow that is being begun, because a UDP flow may end before its number is known.
    pub beginning: Option<Begun>,
    /// Whether open flows are being aborted because time is up.
    pub stopping: bool,
    /// Why the side aborts the flow that it aborts now, if not for that reason.
    pub aborting: Option<Failure>,
}

/// When a flow was due and when it began. Packed into 8 octets, because millions of flows may be
/// open at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begun(u64);

/// Resolution of the start: 256 ns. Its 40 bits wrap after 78 hours, the longest time that a flow
/// may last.
const START_STEP: u32 = 8;
const START_BITS: u32 = 40;
/// Resolution of the delay before the start: 1024 ns, at most 8.5 s. Longer delays do not occur
/// with the default maximum delay of 1 s, because an arrival is then given up.
const WAIT_STEP: u32 = 10;
const WAIT_BITS: u32 = 23;
/// Whether the first answer has begun.
const ANSWERED: u64 = 1 << (START_BITS + WAIT_BITS);

impl Begun {
    #[inline]
    pub fn new(due: Nanos, start: Nanos) -> Self {
        let waited = (start.saturating_sub(due).0 >> WAIT_STEP).min((1 << WAIT_BITS) - 1);
        Self(waited << START_BITS | (start.0 >> START_STEP) & ((1 << START_BITS) - 1))
    }

    /// Age of the flow, and time from when it was due.
    #[inline]
    fn until(self, now: Nanos) -> (u64, u64) {
        // The mask also removes the delay, which is in the upper bits.
        let steps = (now.0 >> START_STEP).wrapping_sub(self.0) & ((1 << START_BITS) - 1);
        let took = steps << START_STEP;
        let waited = self.0 >> START_BITS & ((1 << WAIT_BITS) - 1);
        (took, took + (waited << WAIT_STEP))
    }

    /// The age of the flow at the begin of its first answer; `None` for later ones.
    fn first_answer(&mut self, now: Nanos) -> Option<u64> {
        let is_first = self.0 & ANSWERED == 0;
        self.0 |= ANSWERED;
        is_first.then(|| self.until(now).0)
    }
}

/// The recorded outcomes, by program. Each template has its own programs; a script's conversations
/// are counted for their template.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    programs: Vec<ProgramInfo>,
    recorded: Vec<Recorded>,
    /// Indexed by flow number; only for flows that this side began.
    begun: Vec<Begun>,
    failed: Vec<FailedConversation>,
    /// By number, why clients of conversations failed last. Unlike `failed`, it needs no limit,
    /// because it has one entry for each conversation at most.
    client_failures: BTreeMap<u32, Failure>,
    served: Served,
    /// Templates whose client flows have ended, with the time at which the cause was due: the
    /// arrivals of a closed loop continue from that time, because a late worker would otherwise
    /// lengthen think times.
    ended: Vec<(u32, Nanos)>,
    /// How the last flow ended: the reason, and whether its program had completed.
    gone: Option<(Reason, bool)>,
    /// Whether an answer began in the current event.
    answering: bool,
}

/// The template and conversation of a program.
#[derive(Clone, Copy, Debug)]
struct ProgramInfo {
    /// The index in `recorded`.
    recorded: u32,
    /// Its conversation, if it belongs to a script.
    conversation: Option<u32>,
    /// Number of requests in one flow; `None`: unknown, so requests are not counted.
    requests: Option<u64>,
}

#[derive(Debug)]
struct Recorded {
    template: u32,
    client: bool,
    statistics: FlowStatistics,
}

impl AppRecorder {
    pub fn new(apps: Apps<Recorder>) -> Self {
        Self {
            apps,
            serving: None,
            clients: Vec::new(),
            served: ServedHosts::new(),
            beginning: None,
            stopping: false,
            aborting: None,
        }
    }

    /// Adds a template's program. Equal programs of two templates stay separate, because
    /// observations then reach a template's statistics without a lookup (ADR 0025).
    pub fn add(
        &mut self,
        template: usize,
        client: bool,
        program: &Program,
    ) -> Result<ProgramId, ProgramError> {
        let id = self.apps.add(program)?;
        let counted = self.apps.counters(id).iter().map(|name| (name.clone(), 0)).collect();
        let requests = self.apps.requests(id);
        let recorder = self.apps.observer_mut();
        let recorded = recorder.recorded.len() as u32;
        recorder.own(id, ProgramInfo { recorded, conversation: None, requests });
        recorder.recorded.push(Recorded {
            template: template as u32,
            client,
            statistics: FlowStatistics { counted, ..FlowStatistics::default() },
        });
        Ok(id)
    }

    /// Adds one side's program of conversation `number`, which is counted together with the program
    /// `kind`.
    pub fn add_conversation(
        &mut self,
        kind: ProgramId,
        number: usize,
        program: &Program,
    ) -> Result<ProgramId, ProgramError> {
        let id = self.apps.add(program)?;
        let requests = self.apps.requests(id);
        let recorder = self.apps.observer_mut();
        let recorded = recorder.programs[usize::from(kind.0)].recorded;
        recorder.own(id, ProgramInfo { recorded, conversation: Some(number as u32), requests });
        Ok(id)
    }

    /// Makes flows of this program TLS sessions.
    pub fn secure(&mut self, program: ProgramId, tls: &Tls) {
        self.apps.secure(program, tls);
        self.apps.observer_mut().at(program).tls = Some(Box::default());
    }

    /// Runs this program over streams of HTTP/2. To be called after [`secure`](Self::secure).
    pub fn over_http2(&mut self, program: ProgramId, http: &Http2) {
        self.apps.over_http2(program, http);
        let requests = self.apps.requests(program);
        self.apps.observer_mut().programs[usize::from(program.0)].requests = requests;
    }

    /// Runs this program over streams of HTTP/3.
    pub fn over_http3(&mut self, program: ProgramId, http: &Http3, tls: &Tls, origin: Instant) {
        self.apps.over_http3(program, http, tls, origin);
        let requests = self.apps.requests(program);
        self.apps.observer_mut().programs[usize::from(program.0)].requests = requests;
    }

    /// Records the start of a flow of this side.
    #[inline]
    pub fn began(&mut self, id: FlowId, program: ProgramId, begun: Begun) {
        // If `beginning` is already empty, the flow has ended and is recorded.
        if self.beginning.take().is_some() {
            self.apps.observer_mut().began(id, program, begun);
        }
    }

    /// The age of flow `id`, which this side began.
    pub fn lasted(&self, id: FlowId, now: Nanos) -> Option<Nanos> {
        let begun = self.apps.observer().begun.get(id.0 as usize);
        begun.map(|begun| Nanos(begun.until(now).0))
    }

    /// Drains the templates of ended client flows, each with the time at which the end was due.
    #[inline]
    pub fn each_ended(&mut self, mut each: impl FnMut(usize, Nanos)) {
        let ended = self.apps.observer_mut().ended.drain(..);
        ended.for_each(|(template, due)| each(template as usize, due));
    }

    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.apps.observer().ended.is_empty()
    }

    pub fn memory(&self) -> usize {
        self.apps.memory() + self.apps.observer().begun.capacity() * size_of::<Begun>()
    }

    /// See [`Apps::rebound`].
    pub fn rebound(&mut self, socket: &mut Socket<'_, State>, moved: bool) {
        self.apps.rebound(socket, moved);
        self.note_answer(socket);
    }

    /// Records the begin of an answer in the step that has just run.
    #[inline]
    fn note_answer(&mut self, socket: &mut Socket<'_, State>) {
        if std::mem::take(&mut self.apps.observer_mut().answering) {
            let (flow, now) = (socket.id(), socket.real());
            let program = self.apps.program(socket.state());
            self.apps.observer_mut().answered(program, flow, now);
        }
    }

    /// Handles an event that [`Apps::on_closed`] does not.
    #[inline(never)]
    fn event_otherwise(&mut self, socket: &mut Socket<'_, State>, event: Event<'_>) {
        match event {
            Event::Gone(reason) => self.gone(socket, reason),
            _ => {
                self.apps.on_event(socket, event);
                self.note_answer(socket);
            }
        }
    }

    /// Records the end of a flow.
    fn gone(&mut self, socket: &mut Socket<'_, State>, reason: Reason) {
        let program = self.apps.program(socket.state());
        self.apps.on_event(socket, Event::Gone(reason));
        let (flow, at) = (socket.id(), (socket.real(), socket.due()));
        let aborted = self.aborting.or(self.stopping.then_some(Failure::Stopped));
        let begun = self.beginning.take();
        let recorder = self.apps.observer_mut();
        recorder.answering = false;
        if let Some(begun) = begun {
            // Recorded as begun here, because a UDP flow may end within `connect`, before `began`
            // is called.
            recorder.began(flow, program, begun);
        }
        let (reason, finished) = recorder.gone.take().unwrap_or((reason, false));
        recorder.over(program, flow, Failure::of(reason, finished, aborted), at);
    }

    /// The flow as listeners know it: hosts have substitute addresses there.
    fn listened(&self, flow: &Tuple) -> Tuple {
        let stand_in = self.served.get(&flow.local).copied();
        Tuple { local: stand_in.unwrap_or(flow.local), ..*flow }
    }
}

impl Application for AppRecorder {
    type State = State;

    #[inline]
    fn event(&mut self, socket: &mut Socket<'_, State>, event: Event<'_>) {
        let flow = socket.id();
        if event == Event::Gone(Reason::Closed)
            && let Some(program) = self.apps.on_closed(socket.state(), flow)
        {
            let at = (socket.real(), socket.due());
            return self.apps.observer_mut().over(program, flow, None, at);
        }
        self.event_otherwise(socket, event);
    }

    #[inline]
    fn at_once(
        &mut self,
        state: &mut State,
        flow: FlowId,
        now: Nanos,
        events: Events<'_>,
    ) -> Option<Deed> {
        self.apps.on_events(state, flow, now, events)
    }

    #[inline]
    fn fixed(&self, piece: Piece) -> Option<(&[u8], u64)> {
        self.apps.fixed(piece)
    }

    #[inline]
    fn copy(&self, state: &State, flow: &Tuple, piece: Piece, offset: u32, out: &mut [u8]) {
        self.apps.write(state, flow, piece, offset, out);
    }

    #[inline]
    fn accept(&mut self, now: Nanos, flow: &Tuple) -> Option<(ClassId, State)> {
        // Refuses the flow, because it would be aborted immediately.
        if self.stopping {
            return None;
        }
        let substitute;
        let listened = match self.served.is_empty() {
            true => flow,
            false => {
                substitute = self.listened(flow);
                &substitute
            }
        };
        let (class, program, tuple) = match &mut self.serving {
            None => {
                let (class, program) = self.apps.server_of(listened)?;
                (class, program, listened)
            }
            Some(serving) => {
                let known = serving.take(flow);
                // A template may also have servers at the same address and port.
                let accepted = match known {
                    Some((_, true)) => None,
                    Some((_, false)) | None => self.apps.server_of(listened),
                };
                match accepted {
                    Some((class, program)) => (class, program, listened),
                    None => {
                        let known = known.map(|(program, _)| program);
                        let (class, program) = known.or_else(|| serving.take_other(flow))?;
                        (class, program, flow)
                    }
                }
            }
        };
        self.apps.observer_mut().opened(program);
        Some((class, self.apps.server(program, now, tuple)))
    }

    fn divide(state: &State) -> Option<StateParts> {
        Some(state.divide())
    }

    fn join(parts: &StateParts) -> State {
        State::join(parts)
    }

    fn listens(&self, flow: &Tuple) -> bool {
        self.serving.as_ref().is_some_and(|serving| serving.listens(flow))
            || self.apps.on_listens(&self.listened(flow))
    }

    fn begins(&self, flow: &Tuple, datagram: &[u8]) -> bool {
        self.apps.on_begins(&self.listened(flow), datagram)
    }

    fn moved(&self, flow: &Tuple, datagram: &[u8]) -> Option<FlowId> {
        self.apps.on_moved(&self.listened(flow), datagram)
    }

    /// Whether a datagram without a flow belongs to a flow that a client here has ended. A server
    /// over UDP may send for some time after its client has ended, as with RTP. A "port
    /// unreachable" would end the server's flow as refused, although the server did nothing wrong.
    fn ended(&self, flow: &Tuple) -> bool {
        let mut pools = self.clients.iter();
        self.stopping
            || pools.any(|(clients, servers)| {
                let has = |pool: &Option<Tuples>, address| {
                    pool.as_ref().is_none_or(|pool| pool.index_of(address).is_some())
                };
                has(clients, flow.local) && has(servers, flow.remote)
            })
    }
}

impl Recorder {
    pub fn of(&self, program: ProgramId) -> &FlowStatistics {
        &self.recorded[self.programs[usize::from(program.0)].recorded as usize].statistics
    }

    pub fn failed(&self) -> &[FailedConversation] {
        &self.failed
    }

    /// Why the client of a conversation failed last.
    pub fn client_failure(&self, number: u32) -> Option<Failure> {
        self.client_failures.get(&number).copied()
    }

    pub fn served(&self) -> &Served {
        &self.served
    }

    fn own(&mut self, program: ProgramId, of: ProgramInfo) {
        assert_eq!(
            self.programs.len(),
            usize::from(program.0),
            "programs are numbered as they come"
        );
        self.programs.push(of);
    }

    #[inline]
    fn recorded(&mut self, program: ProgramId) -> &mut Recorded {
        &mut self.recorded[self.programs[usize::from(program.0)].recorded as usize]
    }

    #[inline]
    fn at(&mut self, program: ProgramId) -> &mut FlowStatistics {
        &mut self.recorded(program).statistics
    }

    fn tls(&mut self, program: ProgramId) -> &mut TlsStatistics {
        self.at(program).tls.get_or_insert_default()
    }

    #[inline]
    fn opened(&mut self, program: ProgramId) {
        let requests = self.programs[usize::from(program.0)].requests;
        let all = self.at(program);
        all.active += 1;
        all.peak = all.peak.max(all.active);
        all.requests.asked += requests.unwrap_or(0);
    }

    /// `None` if requests are not counted.
    #[inline]
    fn requests(&mut self, program: ProgramId) -> Option<&mut Requests> {
        self.programs[usize::from(program.0)].requests?;
        Some(&mut self.at(program).requests)
    }

    /// Records the begin of the first answer of a flow of this side.
    fn answered(&mut self, program: ProgramId, flow: FlowId, now: Nanos) {
        let Some(begun) = self.begun.get_mut(flow.0 as usize) else { return };
        if let Some(took) = begun.first_answer(now) {
            self.at(program).first_byte_from_start.record(took);
        }
    }

    /// Records the start of a flow of this side.
    #[inline]
    fn began(&mut self, flow: FlowId, program: ProgramId, begun: Begun) {
        let at = flow.0 as usize;
        if at >= self.begun.len() {
            self.begun.resize(at + 1, Begun::default());
        }
        self.begun[at] = begun;
        self.opened(program);
    }

    /// Records the end of a flow at `now`; the cause was due at `due`.
    #[inline]
    fn over(
        &mut self,
        program: ProgramId,
        flow: FlowId,
        failure: Option<Failure>,
        (now, due): (Nanos, Nanos),
    ) {
        let info = self.programs[usize::from(program.0)];
        let recorded = &mut self.recorded[info.recorded as usize];
        let all = &mut recorded.statistics;
        all.active -= 1;
        let client = recorded.client;
        let template = recorded.template;
        match failure {
            Some(failure) => {
                all.failed.count(failure);
                self.note(program, client, failure);
            }
            None => {
                all.completed += 1;
                if client {
                    let begun = self.begun.get(flow.0 as usize).copied().unwrap_or_default();
                    let (took, since_due) = begun.until(now);
                    all.duration.record(took);
                    all.corrected.record(since_due);
                } else if let Some(number) = info.conversation {
                    self.served.add(number);
                }
            }
        }
        if client {
            // Passed on later by `each_ended`, because a flow cannot begin inside an event of
            // another flow.
            self.ended.push((template, due));
        }
    }

    /// Records the effects of one segment; its statistics are looked up once. Inlined, because a
    /// report in memory would cost as much as the look-ups that it saves.
    #[inline(always)]
    fn record(&mut self, program: ProgramId, report: Report) {
        let ProgramInfo { recorded, requests, .. } = self.programs[usize::from(program.0)];
        let recorded = &mut self.recorded[recorded as usize];
        let all = &mut recorded.statistics;
        if let Some(setup) = report.established {
            all.established += 1;
            if recorded.client {
                all.setup.record(setup.0);
            }
        }
        all.received_octets += u64::from(report.received);
        if requests.is_some() {
            all.requests.sent += u64::from(report.requested);
            all.requests.answered += u64::from(report.transaction.is_some());
        }
        if let Some(took) = report.first_octet {
            all.first_byte.record(took.0);
        }
        if let Some(took) = report.transaction {
            all.transaction.record(took.0);
        }
    }

    /// Records the failed conversation of a script.
    #[cold]
    fn note(&mut self, program: ProgramId, client: bool, failure: Failure) {
        let Some(number) = self.programs[usize::from(program.0)].conversation else { return };
        if client {
            self.client_failures.insert(number, failure);
        }
        if self.failed.len() < MOST_FAILED {
            self.failed.push(FailedConversation { number, client, failure });
        }
    }
}

impl Observer for Recorder {
    #[inline]
    fn established(&mut self, program: ProgramId, setup: Nanos) {
        self.record(program, Report { established: Some(setup), ..Report::default() });
    }

    #[inline]
    fn first_octet(&mut self, program: ProgramId, took: Nanos) {
        self.answering = true;
        self.record(program, Report { first_octet: Some(took), ..Report::default() });
    }

    #[inline]
    fn transaction(&mut self, program: ProgramId, took: Nanos) {
        self.record(program, Report { transaction: Some(took), ..Report::default() });
    }

    #[inline]
    fn requested(&mut self, program: ProgramId, requested: u32) {
        self.record(program, Report { requested, ..Report::default() });
    }

    #[cold]
    fn redirected(&mut self, program: ProgramId) {
        if let Some(requests) = self.requests(program) {
            requests.asked += 1;
        }
    }

    #[inline]
    fn received(&mut self, program: ProgramId, received: u32) {
        self.record(program, Report { received, ..Report::default() });
    }

    #[inline]
    fn status(&mut self, program: ProgramId, class: u8) {
        if let Some(count) = self.at(program).http.get_mut(usize::from(class).wrapping_sub(1)) {
            *count += 1;
        }
    }

    fn secured(&mut self, program: ProgramId, took: Nanos, resumed: bool, cipher: &'static str) {
        let tls = self.tls(program);
        tls.handshakes += 1;
        tls.resumed += u64::from(resumed);
        tls.handshake.record(took.0);
        *tls.ciphers.entry(cipher).or_default() += 1;
    }

    fn early_data(&mut self, program: ProgramId, early: EarlyData) {
        let tls = self.tls(program);
        match early {
            EarlyData::Offered => tls.early_offered += 1,
            EarlyData::Accepted(octets) => {
                tls.early_accepted += 1;
                tls.early_octets_accepted += u64::from(octets);
            }
            EarlyData::Refused(octets) => {
                tls.early_refused += 1;
                tls.early_octets_refused += u64::from(octets);
            }
        }
    }

    #[cold]
    fn insecure(&mut self, program: ProgramId, why: &dyn fmt::Display) {
        self.tls(program).fail(why.to_string());
    }

    #[inline]
    fn encrypted(&mut self, program: ProgramId, octets: u32) {
        self.tls(program).sent_octets += u64::from(octets);
    }

    fn proxied(&mut self, program: ProgramId, octets: u32) {
        self.at(program).proxied_octets += u64::from(octets);
    }

    #[cold]
    fn truncated(&mut self, program: ProgramId) {
        self.tls(program).truncated += 1;
    }

    #[cold]
    fn protocol_error(&mut self, program: ProgramId, error: ProtocolError) {
        *self.at(program).protocol_errors.entry(error.name()).or_default() += 1;
    }

    #[inline]
    fn counted(&mut self, program: ProgramId, counter: u16, amount: u32) {
        if let Some((_, n)) = self.at(program).counted.get_mut(usize::from(counter)) {
            *n += u64::from(amount);
        }
    }

    #[inline]
    fn gone(&mut self, _: ProgramId, reason: Reason, finished: bool) {
        self.gone = Some((reason, finished));
    }

    #[inline(always)]
    fn at_once(&mut self, program: ProgramId, flow: FlowId, now: Nanos, report: Report) {
        self.record(program, report);
        if report.first_octet.is_some() {
            self.answered(program, flow, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failure_of_a_client_is_known_also_beyond_the_list_of_failures() {
        let mut recorder = Recorder::default();
        let [first, second] = [0, 1].map(ProgramId);
        for (program, number) in [(first, 7), (second, 9)] {
            let of = ProgramInfo { recorded: 0, conversation: Some(number), requests: None };
            recorder.own(program, of);
        }
        (0..MOST_FAILED).for_each(|_| recorder.note(first, true, Failure::Refused));
        recorder.note(second, true, Failure::AddressLost);
        recorder.note(first, false, Failure::Reset);
        assert_eq!(recorder.failed().len(), MOST_FAILED);
        let failures = [7, 8, 9].map(|number| recorder.client_failure(number));
        assert_eq!(failures, [Some(Failure::Refused), None, Some(Failure::AddressLost)]);
    }

    #[test]
    fn times_of_flows_are_kept_in_few_octets() {
        let day = 86_400_000_000_000;
        for start in [0, 1_000_000, day, 300 * day] {
            for (waited, took) in [(0, 0), (5_000_000, 70_000), (8_500_000_000, day)] {
                let mut begun = Begun::new(Nanos(start), Nanos(start + waited));
                let end = Nanos(start + waited + took);
                let first = begun.first_answer(end).expect("the first answer");
                assert_eq!(begun.first_answer(end), None);
                let (duration, since_due) = begun.until(end);
                assert_eq!(first, duration);
                assert!(duration.abs_diff(took) <= 256, "{duration} {took}");
                assert!(
                    since_due.abs_diff(took + waited) <= 1024 + 256,
                    "{since_due} {took} {waited}"
                );
            }
        }
        assert_eq!(size_of::<Begun>(), 8);
    }
}
