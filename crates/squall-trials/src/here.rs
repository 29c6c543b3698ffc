//! Runs a trial in this process.

use std::{
    collections::BTreeMap,
    process::{Child, Command, Stdio},
};

use squall_method::{Action, Second};

use crate::{Job, POLL_INTERVAL, RunResult};
use squall::{Error, Run, Session};

/// See [`crate::Place::run`].
pub(crate) fn run(job: Job<'_>, stop: &dyn Fn() -> bool) -> Result<Option<RunResult>, Error> {
    let mut run = Session::new(job.profile).with(job.options)?.open()?.start()?;
    let mut acting = ActionRunner::of(job.action);
    let mut seconds = Seconds::until(job.seconds_s);
    let done = watch(&mut run, &mut acting, &mut seconds, stop);
    acting.end();
    let report = run.finish()?;
    Ok(done.then(|| RunResult {
        reports: vec![(String::new(), report)],
        seconds: seconds.streams,
        ..RunResult::default()
    }))
}

/// Waits for the end of the run; returns false if it was stopped.
fn watch(
    run: &mut Run,
    acting: &mut ActionRunner<'_>,
    seconds: &mut Seconds,
    stop: &dyn Fn() -> bool,
) -> bool {
    while !run.wait(POLL_INTERVAL) {
        acting.poll(run.elapsed_s());
        seconds.poll(run);
        if stop() {
            run.stop();
            return false;
        }
    }
    true
}

/// Frames that streams sent and received in each second of a trial.
#[derive(Default)]
struct Seconds {
    /// End of the current second. Seconds that would end after `last_s` are not counted.
    next_s: f64,
    last_s: f64,
    so_far: BTreeMap<String, [u64; 2]>,
    streams: BTreeMap<String, Vec<Second>>,
}

impl Seconds {
    /// Counts frames of the seconds up to `end_s`; 0: none. The last second may end up to half a
    /// second late, because it is read by polling.
    fn until(end_s: f64) -> Self {
        let last_s = if end_s > 0.0 { end_s + 0.5 } else { 0.0 };
        Self { next_s: 1.0, last_s, ..Self::default() }
    }

    fn poll(&mut self, run: &mut Run) {
        let elapsed_s = run.elapsed_s();
        if elapsed_s < self.next_s || elapsed_s > self.last_s {
            return;
        }
        self.next_s += 1.0;
        for stream in &run.sample().1.streams {
            let received =
                stream.rx.as_ref().map_or(0, |rx| rx.packets.saturating_sub(rx.duplicates));
            let now = [stream.tx_packets, received];
            let then = self.so_far.insert(stream.name.clone(), now).unwrap_or_default();
            let [sent, received] = std::array::from_fn(|i| now[i].saturating_sub(then[i]));
            let counted = self.streams.entry(stream.name.clone()).or_default();
            counted.push(Second { sent, received });
        }
    }
}

/// Runs the action of a trial when it is due.
pub(crate) struct ActionRunner<'a> {
    waiting: Option<&'a Action>,
    running: Option<Child>,
}

impl<'a> ActionRunner<'a> {
    pub(crate) fn of(action: Option<&'a Action>) -> Self {
        Self { waiting: action, running: None }
    }

    pub(crate) fn poll(&mut self, elapsed_s: f64) {
        let Some(action) = self.waiting.take_if(|action| elapsed_s >= action.at_s) else { return };
        let mut command = Command::new("sh");
        command.args(["-c", &action.command]).stdin(Stdio::null()).stdout(Stdio::null());
        // A failure to start the shell does not affect the measurement: the method then reports
        // that it saw no reset.
        self.running = command.spawn().ok();
    }

    /// Kills the command if it is still running, because it could hang.
    pub(crate) fn end(self) {
        if let Some(mut child) = self.running
            && !matches!(child.try_wait(), Ok(Some(_)))
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
