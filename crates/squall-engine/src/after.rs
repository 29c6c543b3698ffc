//! Parts that start when other parts have ended (`after` in a profile): sources report ends, and
//! all workers see them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use squall_plan::{Part, Plan};
use squall_units::Picos;

use crate::worker::Waker;

/// The `after` links of a run, shared by its workers.
pub(crate) struct Afters {
    links: Vec<Link>,
    /// Number of links whose predecessors have all ended.
    ended: AtomicUsize,
    wakers: Vec<Waker>,
}

struct Link {
    after: squall_plan::After,
    /// Number of shares of the predecessors that have not ended. A part counts once for each worker
    /// that has a share of it.
    open: AtomicUsize,
    /// The latest end so far, in picoseconds.
    end: AtomicU64,
}

impl Afters {
    /// `None`: the plan has no `after`.
    pub fn of(plan: &Plan, wakers: &[Waker]) -> Option<Arc<Self>> {
        let link = |after: &squall_plan::After| Link {
            after: after.clone(),
            open: AtomicUsize::new(after.of.iter().map(|&part| pieces(plan, part)).sum()),
            end: AtomicU64::new(0),
        };
        let links: Vec<_> = plan.afters.iter().map(link).collect();
        let ended = AtomicUsize::new(0);
        (!links.is_empty()).then(|| Arc::new(Self { links, ended, wakers: wakers.to_vec() }))
    }

    /// For each dependent part, when it could start; `None` if not before the run's `end`, which
    /// ends all active parts.
    pub fn began(&self, end: Picos) -> Vec<(Part, Option<Picos>)> {
        let of = |link: &Link| {
            let at = link.end().filter(|at| *at < end);
            link.after.then.iter().map(move |&part| (part, at)).collect::<Vec<_>>()
        };
        self.links.iter().flat_map(of).collect()
    }
}

impl Link {
    /// When the last predecessor ended; `None`: not yet.
    fn end(&self) -> Option<Picos> {
        let ended = self.open.load(Ordering::Acquire) == 0;
        ended.then(|| Picos(self.end.load(Ordering::Relaxed)))
    }
}

/// The number of workers that have a share of `part`.
fn pieces(plan: &Plan, part: Part) -> usize {
    let has = |worker: &usize| match part {
        Part::Stream(number) => plan.share(number, *worker).is_some(),
        Part::Replay(number) => plan.replays_of(*worker).any(|own| own == number),
        Part::Template(number) => plan.flows.iter().any(|flows| {
            let mut sides = flows.sides.iter().filter(|side| side.clients.has(&flows.load, number));
            sides.any(|side| plan.players(side.port).any(|player| player == *worker))
        }),
    };
    (0..plan.workers.len()).filter(has).count()
}

/// Whether another part waits for `part`.
pub(crate) fn is_awaited(plan: &Plan, part: Part) -> bool {
    plan.afters.iter().any(|after| after.of.contains(&part))
}

/// A worker's view of [`Afters`].
pub(crate) struct Waiting {
    afters: Arc<Afters>,
    /// For each link, whether its dependents have started on this worker; and the number of ended
    /// links seen so far.
    begun: Vec<bool>,
    seen: usize,
}

impl Waiting {
    pub fn new(afters: Arc<Afters>) -> Self {
        Self { begun: vec![false; afters.links.len()], seen: 0, afters }
    }

    /// Reports the ends of parts on this worker.
    #[cold]
    pub fn report(&self, ended: &mut Vec<(Part, Picos)>) {
        for (part, at) in ended.drain(..) {
            for link in self.afters.links.iter().filter(|link| link.after.of.contains(&part)) {
                // `end` is written before `open`: the decrement has release ordering, so workers
                // that see 0 also see `end`.
                link.end.fetch_max(at.0, Ordering::Relaxed);
                if link.open.fetch_sub(1, Ordering::AcqRel) == 1 {
                    self.afters.ended.fetch_add(1, Ordering::Release);
                    self.afters.wakers.iter().for_each(Waker::wake);
                }
            }
        }
    }

    /// Whether a link has ended after the last [`Waiting::take`].
    #[inline]
    pub fn has_ended(&self) -> bool {
        // Relaxed: the worker polls this each turn, and `take` synchronizes.
        self.afters.ended.load(Ordering::Relaxed) != self.seen
    }

    /// The parts that start now, each with the end of its predecessors.
    #[cold]
    pub fn take(&mut self) -> Vec<(Part, Picos)> {
        // Loaded before the links are read, so a link that ends meanwhile is found in the next
        // turn.
        self.seen = self.afters.ended.load(Ordering::Acquire);
        let mut begin = Vec::new();
        for (link, begun) in self.afters.links.iter().zip(&mut self.begun) {
            if let Some(at) = link.end().filter(|_| !*begun) {
                *begun = true;
                begin.extend(link.after.then.iter().map(|&part| (part, at)));
            }
        }
        begin
    }
}
