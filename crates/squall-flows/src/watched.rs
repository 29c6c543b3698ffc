//! The applications, and what is written down of what happens to them.

use squall_apps::{Apps, Observer, Program, ProgramError, ProgramId, ProtocolError, State};
use squall_tcp::{Application, ClassId, Event, FlowId, Piece, Reason, Socket, Tuple};
use squall_units::Nanos;

use crate::{Failure, FlowStatistics};

/// Applications, each flow's beginning beside them.
pub(crate) struct Watched {
    pub apps: Apps<Recorder>,
    /// Of the flows that we began, by their numbers.
    begun: Vec<Begun>,
    /// Of the flow that is being begun: it may be over before its number is known.
    pub beginning: Option<Begun>,
    /// Open flows are being aborted as time is up.
    pub stopping: bool,
}

/// When a flow was to begin, and when it did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begun {
    pub due: Nanos,
    pub start: Nanos,
}

/// What happened, by program: each template has programs of its own.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    programs: Vec<Recorded>,
    /// Templates of clients' flows that are gone, to be told to those who begin others.
    ended: Vec<u32>,
    /// Of the last flow that is gone: whether its program came to its end.
    finished: bool,
}

#[derive(Debug)]
struct Recorded {
    template: u32,
    client: bool,
    statistics: FlowStatistics,
}

impl Watched {
    pub fn new(apps: Apps<Recorder>) -> Self {
        Self { apps, begun: Vec::new(), beginning: None, stopping: false }
    }

    /// Takes a template's program in.
    pub fn add(&mut self, template: usize, client: bool, program: &Program) -> Result<ProgramId, ProgramError> {
        let id = self.apps.add(program)?;
        let programs = &mut self.apps.observer_mut().programs;
        assert_eq!(programs.len(), usize::from(id.0), "programs are numbered as they come");
        programs.push(Recorded { template: template as u32, client, statistics: FlowStatistics::default() });
        Ok(id)
    }

    /// We have begun this flow.
    #[inline]
    pub fn began(&mut self, id: FlowId, program: ProgramId, begun: Begun) {
        self.beginning = None;
        let at = id.0 as usize;
        if at >= self.begun.len() {
            self.begun.resize(at + 1, Begun::default());
        }
        self.begun[at] = begun;
        self.apps.observer_mut().opened(program);
    }

    /// Hands over the templates of clients' flows that are gone.
    #[inline]
    pub fn each_ended(&mut self, mut each: impl FnMut(usize)) {
        self.apps.observer_mut().ended.drain(..).for_each(|template| each(template as usize));
    }

    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.apps.observer().ended.is_empty()
    }

    pub fn memory(&self) -> usize {
        self.apps.memory() + self.begun.capacity() * size_of::<Begun>()
    }
}

impl Application for Watched {
    type State = State;

    #[inline]
    fn event(&mut self, socket: &mut Socket<'_, State>, event: Event<'_>) {
        let Event::Gone(reason) = event else { return self.apps.on_event(socket, event) };
        let program = self.apps.program(socket.state());
        self.apps.on_event(socket, event);
        let (id, now) = (socket.id().0 as usize, socket.now());
        let begun = self.beginning.or_else(|| self.begun.get(id).copied()).unwrap_or_default();
        self.apps.observer_mut().over(program, reason, self.stopping, now, begun);
    }

    #[inline]
    fn copy(&self, state: &State, flow: &Tuple, piece: Piece, offset: u32, out: &mut [u8]) {
        self.apps.write(state, flow, piece, offset, out);
    }

    #[inline]
    fn accept(&mut self, now: Nanos, flow: &Tuple) -> Option<(ClassId, State)> {
        let (class, state) = self.apps.on_accept(now, flow)?;
        let program = self.apps.program(&state);
        self.apps.observer_mut().opened(program);
        Some((class, state))
    }
}

impl Recorder {
    pub fn of(&self, program: ProgramId) -> &FlowStatistics {
        &self.programs[usize::from(program.0)].statistics
    }

    #[inline]
    fn at(&mut self, program: ProgramId) -> &mut FlowStatistics {
        &mut self.programs[usize::from(program.0)].statistics
    }

    #[inline]
    fn opened(&mut self, program: ProgramId) {
        let all = self.at(program);
        all.active += 1;
        all.peak = all.peak.max(all.active);
    }

    #[inline]
    fn over(&mut self, program: ProgramId, reason: Reason, stopping: bool, now: Nanos, begun: Begun) {
        let finished = std::mem::take(&mut self.finished);
        let recorded = &mut self.programs[usize::from(program.0)];
        let all = &mut recorded.statistics;
        // A flow over UDP that is over at once has not been counted in yet.
        all.active = all.active.saturating_sub(1);
        match Failure::of(reason, finished, stopping) {
            Some(failure) => all.failed.count(failure),
            None => {
                all.completed += 1;
                if recorded.client {
                    all.duration.record(now.saturating_sub(begun.start).0);
                    all.corrected.record(now.saturating_sub(begun.due).0);
                }
            }
        }
        if recorded.client {
            self.ended.push(recorded.template);
        }
    }
}

impl Observer for Recorder {
    #[inline]
    fn established(&mut self, program: ProgramId, setup: Nanos) {
        let recorded = &mut self.programs[usize::from(program.0)];
        recorded.statistics.established += 1;
        if recorded.client {
            recorded.statistics.setup.record(setup.0);
        }
    }

    #[inline]
    fn first_octet(&mut self, program: ProgramId, took: Nanos) {
        self.at(program).first_byte.record(took.0);
    }

    #[inline]
    fn transaction(&mut self, program: ProgramId, took: Nanos) {
        self.at(program).transaction.record(took.0);
    }

    #[inline]
    fn received(&mut self, program: ProgramId, octets: u32) {
        self.at(program).received_octets += u64::from(octets);
    }

    #[inline]
    fn status(&mut self, program: ProgramId, status: u16) {
        let class = usize::from(status / 100).wrapping_sub(1);
        if let Some(count) = self.at(program).http.get_mut(class) {
            *count += 1;
        }
    }

    #[cold]
    fn protocol_error(&mut self, program: ProgramId, error: ProtocolError) {
        *self.at(program).protocol_errors.entry(error.name()).or_default() += 1;
    }

    #[inline]
    fn gone(&mut self, _: ProgramId, _: Reason, finished: bool) {
        self.finished = finished;
    }
}
