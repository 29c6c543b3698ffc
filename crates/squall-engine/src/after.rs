//! What begins when something else has ended (`after` of a profile): sources tell what has ended,
//! all workers hear of it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use squall_plan::{Part, Plan};
use squall_units::Picos;

use crate::worker::Waker;

/// Who waits for whom in a run; all its workers share it.
pub(crate) struct Afters {
    links: Vec<Link>,
    /// Links whose parts have all ended.
    ended: AtomicUsize,
    wakers: Vec<Waker>,
}

struct Link {
    after: squall_plan::After,
    /// Pieces that go on: each part is one on each worker that has some of it.
    open: AtomicUsize,
    /// When the last of those that have ended did; picoseconds.
    end: AtomicU64,
}

impl Afters {
    /// `None`: nobody waits.
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

    /// When those could begin that waited for others; `None`: not before the run's `end`, where all
    /// that goes on has its own.
    pub fn began(&self, end: Picos) -> Vec<(Part, Option<Picos>)> {
        let of = |link: &Link| {
            let at = link.end().filter(|at| *at < end);
            link.after.then.iter().map(move |&part| (part, at)).collect::<Vec<_>>()
        };
        self.links.iter().flat_map(of).collect()
    }
}

impl Link {
    /// When all had ended.
    fn end(&self) -> Option<Picos> {
        let ended = self.open.load(Ordering::Acquire) == 0;
        ended.then(|| Picos(self.end.load(Ordering::Relaxed)))
    }
}

/// On how many workers some of `part` is.
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

/// Whether anybody waits for `part`.
pub(crate) fn is_awaited(plan: &Plan, part: Part) -> bool {
    plan.afters.iter().any(|after| after.of.contains(&part))
}

/// A worker's view of it.
pub(crate) struct Waiting {
    afters: Arc<Afters>,
    /// By link: whether who waited here has begun; and how many of them.
    begun: Vec<bool>,
    heard: usize,
}

impl Waiting {
    pub fn new(afters: Arc<Afters>) -> Self {
        Self { begun: vec![false; afters.links.len()], heard: 0, afters }
    }

    /// What has ended here, and when.
    #[cold]
    pub fn tell(&self, ended: &mut Vec<(Part, Picos)>) {
        for (part, at) in ended.drain(..) {
            for link in self.afters.links.iter().filter(|link| link.after.of.contains(&part)) {
                link.end.fetch_max(at.0, Ordering::Relaxed);
                if link.open.fetch_sub(1, Ordering::AcqRel) == 1 {
                    self.afters.ended.fetch_add(1, Ordering::Release);
                    self.afters.wakers.iter().for_each(Waker::wake);
                }
            }
        }
    }

    /// Whether there is news of what others wait for.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.afters.ended.load(Ordering::Relaxed) != self.heard
    }

    /// Who begins now, each after when.
    #[cold]
    pub fn take(&mut self) -> Vec<(Part, Picos)> {
        // More may come meanwhile, and is then heard of next time.
        self.heard = self.afters.ended.load(Ordering::Acquire);
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
