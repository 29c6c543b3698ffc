//! Flows that are started by the programs of other flows, and which flow waits for which.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use squall_tcp::{FlowId, Tuple};

/// A program's request to begin a flow of a template; the program waits for the end of that flow.
/// The owner of the stack begins it ([`Calls::take`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The flow that waits, and the addresses and ports of its ends.
    pub caller: FlowId,
    pub tuple: Tuple,
    /// The template's name, as in the program.
    pub template: Arc<str>,
}

/// Requested flows ([`crate::Apps::calls_mut`]), and the flows that wait for them. Has entries only
/// for flows that are involved in such requests, which most flows are not.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    kin: HashMap<FlowId, Relations>,
    /// The flow that requested the next flow to begin.
    beginning: Option<FlowId>,
    asked: VecDeque<Call>,
    /// Deferred requests, whose next hop is not resolved yet.
    defer: VecDeque<Call>,
    /// Flows that may continue, if they still wait.
    answered: Vec<FlowId>,
    /// Flows to wake for another reason.
    woken: Vec<FlowId>,
}

/// Relations of a flow that began another flow, or was begun by one.
#[derive(Clone, Debug, Default)]
struct Relations {
    caller: Option<FlowId>,
    called: Option<FlowId>,
    /// The template last named by `next`, in this flow or in a flow that it began.
    next: Option<Arc<str>>,
    request: RequestState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RequestState {
    /// The flow has no request.
    #[default]
    Idle,
    Waits,
    /// The requested flow has ended.
    Over,
    /// The requested flow could not begin.
    Refused,
}

impl Calls {
    pub(crate) fn set_next(&mut self, flow: FlowId, template: Arc<str>) {
        self.kin.entry(flow).or_default().next = Some(template);
    }

    /// The state of the flow's request. If there is none, requests a flow of this template, or of
    /// the template named last. A final state is returned only once.
    pub(crate) fn ask(
        &mut self,
        flow: FlowId,
        tuple: Tuple,
        template: Option<Arc<str>>,
    ) -> RequestState {
        let kin = self.kin.entry(flow).or_default();
        match kin.request {
            RequestState::Idle => match template.or_else(|| kin.next.clone()) {
                Some(template) => {
                    kin.request = RequestState::Waits;
                    self.asked.push_back(Call { caller: flow, tuple, template });
                    RequestState::Waits
                }
                None => RequestState::Refused,
            },
            RequestState::Waits => RequestState::Waits,
            request => {
                kin.request = RequestState::Idle;
                request
            }
        }
    }

    /// Records that a flow has begun, possibly the announced one ([`begin`](Self::begin)).
    #[inline]
    pub fn started(&mut self, flow: FlowId) {
        if let Some(caller) = self.beginning.take() {
            self.join(flow, caller);
        }
    }

    #[cold]
    fn join(&mut self, flow: FlowId, caller: FlowId) {
        self.kin.entry(flow).or_default().caller = Some(caller);
        self.kin.entry(caller).or_default().called = Some(flow);
    }

    #[inline]
    pub(crate) fn gone(&mut self, flow: FlowId) {
        if !self.woken.is_empty() {
            self.woken.retain(|woken| *woken != flow);
        }
        if !self.kin.is_empty() {
            self.part(flow);
        }
    }

    #[cold]
    fn part(&mut self, flow: FlowId) {
        let Some(kin) = self.kin.remove(&flow) else { return };
        if let Some(called) = kin.called.and_then(|called| self.kin.get_mut(&called)) {
            called.caller = None;
        }
        self.asked.retain(|call| call.caller != flow);
        self.defer.retain(|call| call.caller != flow);
        let caller = kin.caller.and_then(|caller| Some((caller, self.kin.get_mut(&caller)?)));
        if let Some((id, caller)) = caller {
            caller.called = None;
            caller.next = kin.next.or(caller.next.take());
            self.answer(id, RequestState::Over);
        }
    }

    /// Records that the requested flow could not begin, which ends the flow that requested it.
    pub fn refuse(&mut self, call: &Call) {
        self.answer(call.caller, RequestState::Refused);
    }

    fn answer(&mut self, caller: FlowId, request: RequestState) {
        if let Some(kin) = self.kin.get_mut(&caller)
            && kin.request == RequestState::Waits
        {
            kin.request = request;
            self.answered.push(caller);
        }
    }

    /// The next request. The caller calls [`begin`](Self::begin) right before the flow begins and
    /// [`started`](Self::started) after it, or [`refuse`](Self::refuse).
    pub fn take(&mut self) -> Option<Call> {
        self.asked.pop_front()
    }

    /// Defers a request that cannot be decided yet, until [`retry`](Self::retry).
    pub fn defer(&mut self, call: Call) {
        self.defer.push_back(call);
    }

    /// Makes the deferred requests available again.
    pub fn retry(&mut self) {
        self.asked.append(&mut self.defer);
    }

    /// Drops all requests because all flows are being ended; no flow continues.
    pub fn drop_all(&mut self) {
        self.asked.clear();
        self.defer.clear();
        self.answered.clear();
        self.woken.clear();
    }

    /// Announces that the next flow to begin is the requested one.
    pub fn begin(&mut self, call: &Call) {
        self.beginning = Some(call.caller);
    }

    /// Withdraws the announcement: the flow did not begin.
    pub fn give_up(&mut self) {
        self.beginning = None;
    }

    /// Wakes a flow, from an event of another.
    pub(crate) fn wake(&mut self, flow: FlowId) {
        self.woken.push(flow);
    }

    /// The next flow to wake ([`crate::FlowSocket::wake_at`]) because the flow that it waits for
    /// has ended, or for a message. Skips flows that have continued by themselves or ended.
    pub fn take_answered(&mut self) -> Option<FlowId> {
        if let Some(flow) = self.woken.pop() {
            return Some(flow);
        }
        while let Some(flow) = self.answered.pop() {
            let request = self.kin.get(&flow).map(|kin| kin.request);
            if matches!(request, Some(RequestState::Over | RequestState::Refused)) {
                return Some(flow);
            }
        }
        None
    }

    /// Whether there are neither requests nor flows to wake.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.asked.is_empty() && self.answered.is_empty() && self.woken.is_empty()
    }

    /// Number of requests that are not deferred.
    pub fn asked(&self) -> usize {
        self.asked.len()
    }

    /// Deferred requests.
    pub fn waiting(&self) -> impl Iterator<Item = &Call> {
        self.defer.iter()
    }

    pub(crate) fn memory(&self) -> usize {
        self.kin.capacity() * size_of::<(FlowId, Relations)>()
            + (self.asked.capacity() + self.defer.capacity()) * size_of::<Call>()
    }

    pub(crate) fn len(&self) -> usize {
        self.kin.len()
    }
}

#[cfg(test)]
mod tests {
    use squall_tcp::FlowKind;

    use super::*;

    #[test]
    fn flows_that_continued_or_ended_are_not_woken() {
        let address = [10, 0, 0, 1].into();
        let tuple = Tuple {
            kind: FlowKind::Tcp,
            local: address,
            local_port: 1,
            remote: address,
            remote_port: 2,
        };
        let (caller, part) = (FlowId(1), FlowId(2));
        let mut calls = Calls::default();
        let begin = |calls: &mut Calls| {
            assert_eq!(calls.ask(caller, tuple, Some("part".into())), RequestState::Waits);
            let call = calls.take().expect("it is asked for");
            calls.begin(&call);
            calls.started(part);
        };
        begin(&mut calls);
        calls.gone(part);
        assert_eq!(calls.take_answered(), Some(caller));
        assert_eq!(calls.ask(caller, tuple, None), RequestState::Over);
        begin(&mut calls);
        calls.gone(part);
        // A datagram arrived in between, so the flow asked again.
        assert_eq!(calls.ask(caller, tuple, None), RequestState::Over);
        assert_eq!(calls.take_answered(), None);
        begin(&mut calls);
        calls.gone(part);
        calls.gone(caller);
        assert_eq!((calls.take_answered(), calls.len()), (None, 0));
        // Another flow has reused the number.
        begin(&mut calls);
        calls.gone(caller);
        calls.gone(part);
        assert_eq!((calls.take_answered(), calls.len(), calls.is_idle()), (None, 0, true));
    }
}
