//! Utilization in percent of the threads that send and receive, over the last seconds of each
//! thread.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use serde_json::{Map, Value, json};
use squall::ThreadLoad;

use super::{Answer, Server};

/// Number of samples per thread in an answer.
const HISTORY: usize = 20;
/// Number of recent samples over which the utilization is averaged.
const AVERAGED: usize = 5;
const EVERY: Duration = Duration::from_secs(1);
/// TRex's pools of packet buffers, by the length of a buffer.
const POOLS: [&str; 8] = ["64b", "128b", "256b", "512b", "1024b", "2048b", "4096b", "9kb"];

/// The threads of the current or last run. After its end they count as idle.
#[derive(Default)]
pub struct Threads {
    threads: Vec<Thread>,
    taken: Option<Instant>,
}

#[derive(Default)]
struct Thread {
    now: ThreadLoad,
    /// Utilization in percent, the latest sample first.
    history: VecDeque<f64>,
}

impl Threads {
    pub fn is_due(&self, now: Instant) -> bool {
        self.taken.is_none_or(|taken| now >= taken + EVERY)
    }

    /// Takes a sample; `run`: the counters of each thread, empty if nothing runs.
    pub fn take(&mut self, now: Instant, run: Vec<ThreadLoad>) {
        self.taken = Some(now);
        let count = run.len();
        if count > 0 {
            self.threads.resize_with(count, Thread::default);
        }
        let idle = std::iter::repeat_with(ThreadLoad::default);
        for (thread, busy) in self.threads.iter_mut().zip(run.into_iter().chain(idle)) {
            thread.take(busy);
        }
    }

    /// Mean over the last seconds, and the latest sample, averaged over the threads that `chosen`
    /// selects; 0 if there are none.
    fn percent(&self, chosen: impl Fn(&ThreadLoad) -> bool) -> (f64, f64) {
        let chosen: Vec<&Thread> = self.threads.iter().filter(|t| chosen(&t.now)).collect();
        let of_all = |of: fn(&Thread) -> f64| mean(chosen.iter().map(|thread| of(thread)));
        (of_all(Thread::mean), of_all(Thread::latest))
    }

    /// Utilization of the threads that send.
    pub fn senders(&self) -> Percent {
        let sends = |busy: &ThreadLoad| !busy.tx.is_empty();
        let (mean, latest) = self.percent(sends);
        let count = self.threads.iter().filter(|thread| sends(&thread.now)).count();
        Percent { mean, latest, count }
    }

    /// Utilization of the threads that only receive, and their ports.
    pub fn receivers(&self) -> (f64, Vec<usize>) {
        let receives = |busy: &ThreadLoad| busy.tx.is_empty() && !busy.rx.is_empty();
        let chosen = self.threads.iter().filter(|thread| receives(&thread.now));
        (self.percent(receives).0, chosen.flat_map(|thread| thread.now.rx.clone()).collect())
    }

    /// Utilization of the threads that send on `port`.
    pub fn of_port(&self, port: usize) -> f64 {
        self.percent(|busy| busy.tx.contains(&port)).0
    }

    fn to_json(&self) -> Vec<Value> {
        let idle = Thread::default();
        // Clients expect at least one thread, and histories of one length.
        let all = if self.threads.is_empty() { vec![&idle] } else { self.threads.iter().collect() };
        let samples = all.iter().map(|thread| thread.history.len()).fold(1, usize::max);
        all.into_iter().map(|thread| thread.to_json(samples)).collect()
    }
}

/// Percent of a CPU, averaged over threads.
pub struct Percent {
    pub mean: f64,
    pub latest: f64,
    /// Number of threads.
    pub count: usize,
}

impl Thread {
    fn take(&mut self, busy: ThreadLoad) {
        // The counters of a new run begin at 0.
        let before = match busy.lived >= self.now.lived {
            true => &self.now,
            false => &ThreadLoad::default(),
        };
        let lived = busy.lived.saturating_sub(before.lived).0;
        let share = busy.busy.saturating_sub(before.busy).0 as f64 / lived.max(1) as f64;
        self.history.push_front((share * 100.0).min(100.0));
        self.history.truncate(HISTORY);
        self.now = busy;
    }

    fn latest(&self) -> f64 {
        self.history.front().copied().unwrap_or(0.0)
    }

    fn mean(&self) -> f64 {
        mean(self.history.iter().take(AVERAGED).copied())
    }

    /// With a history of this many samples; those from before the thread are 0.
    fn to_json(&self, samples: usize) -> Value {
        let mut ports: Vec<i64> =
            self.now.tx.iter().chain(&self.now.rx).map(|port| *port as i64).collect();
        ports.sort_unstable();
        ports.dedup();
        ports.resize(2, -1);
        let mut history: Vec<u64> = self.history.iter().map(|share| share.round() as u64).collect();
        history.resize(samples, 0);
        json!({ "history": history, "ports": ports })
    }
}

/// The mean; 0 rather than -0 if empty.
fn mean(of: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = of.len();
    if count == 0 { 0.0 } else { of.sum::<f64>() / count as f64 }
}

impl Server {
    /// Takes a sample of the threads when one is due.
    pub(super) fn sample_threads(&mut self, now: Instant) {
        if self.threads.is_due(now) {
            self.threads.take(now, self.traffic.threads());
        }
    }

    pub(super) fn utilization(&self) -> Answer {
        // Squall has no pools of packet buffers. The console fails without a pool, and divides by
        // the number of its buffers; TRex's regression tests look for the two largest.
        let pools: Map<String, Value> =
            POOLS.iter().map(|pool| (String::from(*pool), json!([1, 1]))).collect();
        let pools = json!({ "cpu-socket-0": pools });
        Ok(json!({ "cpu": self.threads.to_json(), "mbuf_stats": pools }))
    }
}

#[cfg(test)]
mod tests {
    use squall_units::Nanos;

    use super::{super::tests::Client, *};

    fn busy(tx: &[usize], busy: u64, lived: u64) -> ThreadLoad {
        ThreadLoad { tx: tx.into(), rx: vec![1], busy: Nanos(busy), lived: Nanos(lived) }
    }

    #[test]
    fn shares_are_those_of_the_last_seconds_and_none_where_nothing_runs() {
        let now = Instant::now();
        let mut threads = Threads::default();
        assert_eq!(threads.to_json(), [json!({ "history": [0], "ports": [-1, -1] })]);
        threads.take(now, vec![busy(&[0], 50, 1000), busy(&[], 900, 1000)]);
        threads.take(now, vec![busy(&[0], 800, 2000), busy(&[], 900, 2000)]);
        assert_eq!(threads.to_json()[0], json!({ "history": [75, 5], "ports": [0, 1] }));
        let senders = threads.senders();
        assert_eq!((senders.mean, senders.latest, senders.count), (40.0, 75.0, 1));
        assert_eq!(threads.receivers(), (45.0, vec![1]));
        assert_eq!((threads.of_port(0), threads.of_port(1)), (40.0, 0.0));
        // The next sample is from another run.
        threads.take(now, vec![busy(&[0], 10, 100)]);
        assert_eq!(threads.to_json(), [json!({ "history": [10, 75, 5], "ports": [0, 1] })]);
        threads.take(now, Vec::new());
        assert_eq!(threads.to_json(), [json!({ "history": [0, 10, 75, 5], "ports": [-1, -1] })]);
        assert_eq!(threads.senders().latest, 0.0);
        for _ in 0..HISTORY {
            threads.take(now, Vec::new());
        }
        assert_eq!(threads.to_json()[0]["history"].as_array().expect("a list").len(), HISTORY);
        // The console's table has as many columns for each thread as for the first.
        threads.take(now, vec![busy(&[0], 50, 1000), busy(&[1], 500, 1000)]);
        let later = threads.to_json()[1]["history"].as_array().expect("a list").clone();
        assert_eq!((later.len(), &later[0], &later[1]), (HISTORY, &json!(50), &json!(0)));
    }

    #[test]
    fn utilization_has_the_pools_that_clients_look_for() {
        let client = Client::new("trex-pools", false);
        let pools = &client.server.utilization().expect("known")["mbuf_stats"]["cpu-socket-0"];
        // TRex's regression tests take the totals of these two, the console divides by all.
        assert_eq!((&pools["4096b"][1], &pools["9kb"][1]), (&json!(1), &json!(1)));
        let all = pools.as_object().expect("by name").values();
        assert!(all.into_iter().all(|pool| pool[1] != json!(0)));
    }

    #[test]
    fn a_thread_whose_run_is_over_and_one_of_another_as_long_are_not_mixed_up() {
        let now = Instant::now();
        let mut threads = Threads::default();
        threads.take(now, vec![busy(&[0], 500, 1000)]);
        threads.take(now, Vec::new());
        threads.take(now, vec![busy(&[0], 100, 1000)]);
        assert_eq!(threads.senders().latest, 10.0);
    }
}
