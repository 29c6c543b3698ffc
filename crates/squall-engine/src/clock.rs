//! The run's time: picoseconds from its start, by the system clock or by the schedule itself.

use squall_port::FastClock;
use squall_units::{Nanos, Picos};

/// Time as a worker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`; the run starts at this time.
    Real(Nanos),
    /// Time jumps to the next due time: as fast as the machine allows, with the same result on each
    /// run.
    Virtual,
}

impl Clock {
    /// Time from the start of the run to `now`; 0 before the start.
    #[inline]
    pub fn since_start(self, now: Nanos) -> Picos {
        match self {
            Self::Real(start) => now.saturating_sub(start).into(),
            Self::Virtual => now.into(),
        }
    }

    /// Time on the engine's clock at which a frame is due.
    #[inline]
    pub fn instant(self, due: Picos) -> Nanos {
        match self {
            Self::Real(start) => start + due.as_nanos(),
            Self::Virtual => due.as_nanos(),
        }
    }
}

/// Reads a worker's clock. Workers read it each turn, so a long time between two readings without a
/// planned sleep is a stall: the thread was stopped, preempted or throttled by its CPU quota.
#[derive(Debug)]
pub(crate) struct Watch {
    clock: Option<FastClock>,
    begun: Nanos,
    /// The thread's CPU time when the watch was made.
    cpu_before: Nanos,
    /// Sleep planned after the last reading.
    planned: Nanos,
    slept: Nanos,
    stalled: Nanos,
    longest: Nanos,
}

/// Time in which a worker was off its CPU without having planned to sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    pub total: Nanos,
    pub longest: Nanos,
}

impl Stalls {
    /// The maximum of each figure, so the worker with the worst stalls determines the result.
    pub fn or(self, other: Self) -> Self {
        Self { total: self.total.max(other.total), longest: self.longest.max(other.longest) }
    }
}

/// A shorter time between two readings counts as the worker's own work.
const STALL: Nanos = Nanos(1_000_000);

impl Watch {
    pub fn new(clock: Clock) -> Self {
        let mut clock = (clock != Clock::Virtual).then(FastClock::new);
        let begun = clock.as_mut().map_or(Nanos::ZERO, FastClock::now);
        let none = Nanos::ZERO;
        Self {
            clock,
            begun,
            cpu_before: thread_cpu_time(),
            planned: none,
            slept: none,
            stalled: none,
            longest: none,
        }
    }

    #[inline]
    pub fn now(&mut self) -> Nanos {
        let Some(clock) = &mut self.clock else { return Nanos::ZERO };
        let last = clock.last();
        let now = clock.now();
        if self.planned > Nanos::ZERO || now.saturating_sub(last) > STALL {
            self.account(now.saturating_sub(last));
        }
        now
    }

    #[cold]
    fn account(&mut self, passed: Nanos) {
        let slept = passed.min(std::mem::take(&mut self.planned));
        self.slept = self.slept + slept;
        let beyond = passed.saturating_sub(slept);
        if beyond > STALL {
            self.stalled = self.stalled + beyond;
            self.longest = self.longest.max(beyond);
        }
    }

    /// Announces a sleep of at most `most`, which then does not count as a stall.
    #[inline]
    pub fn plan_rest(&mut self, most: Nanos) {
        self.planned = self.planned + most;
    }

    /// The stalls so far; call it on the worker's thread. A long computation is not a stall,
    /// because the thread had its CPU.
    pub fn stalls(&self) -> Stalls {
        let wanted = self.last().saturating_sub(self.begun).saturating_sub(self.slept);
        let computed = thread_cpu_time().saturating_sub(self.cpu_before);
        let total = self.stalled.min(wanted.saturating_sub(computed));
        Stalls { total, longest: self.longest.min(total) }
    }

    /// Age of the watch, and the thread's CPU time in it.
    pub fn lived(&self) -> (Nanos, Nanos) {
        let cpu = thread_cpu_time().saturating_sub(self.cpu_before);
        (self.last().saturating_sub(self.begun), cpu)
    }

    /// The last reading of [`Watch::now`].
    #[inline]
    pub fn last(&self) -> Nanos {
        self.clock.as_ref().map_or(Nanos::ZERO, FastClock::last)
    }
}

/// The calling thread's CPU time.
pub(crate) fn thread_cpu_time() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Number of involuntary context switches of the calling thread, from the kernel's `/proc`.
pub(crate) fn preempted() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}
