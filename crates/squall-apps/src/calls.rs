//! Flows that programs of other flows begin, and who waits for whom.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use squall_tcp::{FlowId, Tuple};

/// A program wants a flow of a template to begin, and waits for its end. Whoever has the stack
/// begins it ([`Calls::take`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The flow whose program waits, and its ends.
    pub caller: FlowId,
    pub tuple: Tuple,
    /// The template's name, as the program says it.
    pub template: Arc<str>,
}

/// Flows that programs ask for ([`crate::Apps::calls_mut`]), and who waits for them. It has only
/// flows that have to do with others: most have not.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    kin: HashMap<FlowId, Kin>,
    /// The next flow that begins is this one's.
    beginning: Option<FlowId>,
    asked: VecDeque<Call>,
    /// Those whose next hop does not answer yet.
    put_off: VecDeque<Call>,
    /// Flows that may go on, if they still wait for it.
    answered: Vec<FlowId>,
}

/// What there is to know of a flow that began another, or that another began.
#[derive(Clone, Debug, Default)]
struct Kin {
    caller: Option<FlowId>,
    called: Option<FlowId>,
    /// The template that `next` named last, here or in a flow that was begun from here.
    next: Option<Arc<str>>,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has asked for nothing.
    #[default]
    Apart,
    Waits,
    /// What it asked for is over.
    Over,
    /// What it asked for could not begin.
    Refused,
}

impl Calls {
    pub(crate) fn set_next(&mut self, flow: FlowId, template: Arc<str>) {
        self.kin.entry(flow).or_default().next = Some(template);
    }

    /// How the flow's wish stands. It is asked for if it was not yet: a flow of this template, or of
    /// the one that was named last. What was told once is forgotten.
    pub(crate) fn ask(
        &mut self,
        flow: FlowId,
        tuple: Tuple,
        template: Option<Arc<str>>,
    ) -> Standing {
        let kin = self.kin.entry(flow).or_default();
        match kin.standing {
            Standing::Apart => match template.or_else(|| kin.next.clone()) {
                Some(template) => {
                    kin.standing = Standing::Waits;
                    self.asked.push_back(Call { caller: flow, tuple, template });
                    Standing::Waits
                }
                None => Standing::Refused,
            },
            Standing::Waits => Standing::Waits,
            standing => {
                kin.standing = Standing::Apart;
                standing
            }
        }
    }

    /// A flow is there, which may be the one that was to [begin](Self::begin).
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
        self.put_off.retain(|call| call.caller != flow);
        let caller = kin.caller.and_then(|caller| Some((caller, self.kin.get_mut(&caller)?)));
        if let Some((id, caller)) = caller {
            caller.called = None;
            caller.next = kin.next.or(caller.next.take());
            self.answer(id, Standing::Over);
        }
    }

    /// It could not begin, which ends the flow that asked for it.
    pub fn refuse(&mut self, call: &Call) {
        self.answer(call.caller, Standing::Refused);
    }

    fn answer(&mut self, caller: FlowId, standing: Standing) {
        if let Some(kin) = self.kin.get_mut(&caller)
            && kin.standing == Standing::Waits
        {
            kin.standing = standing;
            self.answered.push(caller);
        }
    }

    /// A flow that is asked for. Whoever takes it tells [`begin`](Self::begin) right before the flow
    /// begins and [`started`](Self::started) after it has, or [`refuse`](Self::refuse).
    pub fn take(&mut self) -> Option<Call> {
        self.asked.pop_front()
    }

    /// It cannot be told yet whether the flow begins: it is asked for again after
    /// [`retry`](Self::retry).
    pub fn put_off(&mut self, call: Call) {
        self.put_off.push_back(call);
    }

    /// Those that were put off are asked for again.
    pub fn retry(&mut self) {
        self.asked.append(&mut self.put_off);
    }

    /// All flows are being ended: none begins for another, and none goes on.
    pub fn drop_all(&mut self) {
        self.asked.clear();
        self.put_off.clear();
        self.answered.clear();
    }

    /// The next flow that begins is the one that was asked for.
    pub fn begin(&mut self, call: &Call) {
        self.beginning = Some(call.caller);
    }

    /// The flow that was to begin did not.
    pub fn give_up(&mut self) {
        self.beginning = None;
    }

    /// A flow that goes on, as that which it asked for is over: it is to be woken
    /// ([`crate::FlowSocket::wake_at`]). Others have gone on by themselves, or are gone.
    pub fn take_answered(&mut self) -> Option<FlowId> {
        while let Some(flow) = self.answered.pop() {
            let standing = self.kin.get(&flow).map(|kin| kin.standing);
            if matches!(standing, Some(Standing::Over | Standing::Refused)) {
                return Some(flow);
            }
        }
        None
    }

    /// Whether no flow is asked for, and none to be woken.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.asked.is_empty() && self.answered.is_empty()
    }

    /// How many are asked for, and not put off.
    pub fn asked(&self) -> usize {
        self.asked.len()
    }

    /// Those that were put off.
    pub fn waiting(&self) -> impl Iterator<Item = &Call> {
        self.put_off.iter()
    }

    pub(crate) fn memory(&self) -> usize {
        self.kin.capacity() * size_of::<(FlowId, Kin)>()
            + (self.asked.capacity() + self.put_off.capacity()) * size_of::<Call>()
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
    fn nobody_is_woken_who_has_gone_on_or_is_gone() {
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
            assert_eq!(calls.ask(caller, tuple, Some("part".into())), Standing::Waits);
            let call = calls.take().expect("it is asked for");
            calls.begin(&call);
            calls.started(part);
        };
        begin(&mut calls);
        calls.gone(part);
        assert_eq!(calls.take_answered(), Some(caller));
        assert_eq!(calls.ask(caller, tuple, None), Standing::Over);
        begin(&mut calls);
        calls.gone(part);
        // Something came for it meanwhile.
        assert_eq!(calls.ask(caller, tuple, None), Standing::Over);
        assert_eq!(calls.take_answered(), None);
        begin(&mut calls);
        calls.gone(part);
        calls.gone(caller);
        assert_eq!((calls.take_answered(), calls.len()), (None, 0));
        // Another flow has its number.
        begin(&mut calls);
        calls.gone(caller);
        calls.gone(part);
        assert_eq!((calls.take_answered(), calls.len(), calls.is_idle()), (None, 0, true));
    }
}
