//! Runs a session, from its start to the exit status. Handles signals and the live view.

use std::{
    io,
    process::ExitCode,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1},
    flag,
};
use squall::{
    Error, Resolved, Run, Session,
    report::{Asked, EndedBy, Report},
};
use squall_report::render::{Live, LiveMode, table};

use crate::{
    args::Output,
    output::{WIDTH, look},
    progress::ProgressLine,
};

/// Interval between checks for signals.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between updates of the live table or of the live lines.
const FRAME_S: f64 = 0.25;
const LINE_S: f64 = 1.0;

/// SIGINT, SIGTERM and SIGHUP: the first one stops the run, the second one ends the process.
pub struct Signals {
    came: Arc<AtomicBool>,
    which: Arc<AtomicUsize>,
}

impl Signals {
    pub fn catch() -> Result<Self, Error> {
        let flag = Arc::new(AtomicBool::new(false));
        let which = Arc::new(AtomicUsize::new(0));
        let register = |signal| -> io::Result<()> {
            // Registration order matters: the conditional shutdown must check the flag before the
            // same signal sets it.
            flag::register_conditional_shutdown(signal, 128 + signal, flag.clone())?;
            flag::register_usize(signal, which.clone(), signal as usize)?;
            flag::register(signal, flag.clone())?;
            Ok(())
        };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            register(signal)
                .map_err(|e| Error::Environment(format!("signals cannot be caught: {e}")))?;
        }
        Ok(Self { came: flag, which })
    }

    pub fn came(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }

    /// The exit status of a process that the signal ended.
    fn exit_code(&self) -> ExitCode {
        ExitCode::from(u8::try_from(128 + self.which.load(Ordering::Relaxed)).unwrap_or(u8::MAX))
    }

    /// Which signal was received, as the cause of the run's end.
    fn ended_by(&self) -> Option<EndedBy> {
        match self.which.load(Ordering::Relaxed) as i32 {
            SIGINT => Some(EndedBy::Sigint),
            SIGTERM => Some(EndedBy::Sigterm),
            SIGHUP => Some(EndedBy::Sighup),
            _ => None,
        }
    }
}

/// When to end a run that does not end by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    pub after_s: Option<f64>,
    pub received: Option<u64>,
    /// Whether SIGUSR1 triggers the capture.
    pub triggered: bool,
    /// Interval in seconds for printing a line of figures in place of the table.
    pub each_s: Option<u32>,
}

/// Opens, runs, watches and reports a session.
pub fn drive(session: Session, output: &Output, title: &str) -> Result<ExitCode, Error> {
    drive_until(session, output, title, End::default(), |_| {}, |_| String::new())
}

/// Like [`drive`], with `end` for sessions that only receive. `annotate` changes the report, and
/// `extra` is appended to the summary.
pub fn drive_until(
    mut session: Session,
    output: &Output,
    title: &str,
    end: End,
    annotate: impl Fn(&mut Report),
    extra: impl Fn(&Report) -> String,
) -> Result<ExitCode, Error> {
    let signals = Signals::catch()?;
    let trigger = Arc::new(AtomicBool::new(false));
    if end.triggered {
        flag::register(SIGUSR1, trigger.clone())
            .map_err(|e| Error::Environment(format!("signals cannot be caught: {e}")))?;
    }
    session.caller.ends_process = true;
    let resolved = resolve(session, output.quiet, &signals);
    let opened = resolved.and_then(|resolved| resolved.open(&|| signals.came()));
    if signals.came() {
        eprintln!("squall: interrupted before the start of the run");
        return Ok(signals.exit_code());
    }
    let opened = opened?;
    output.fail_if.iter().try_for_each(|criterion| opened.check(criterion))?;
    let files = output.create()?;
    let virtual_time = opened.virtual_time();
    // No live view in virtual time: the run takes as little time as the machine permits.
    let mode = match end.each_s.filter(|_| !output.quiet && !virtual_time) {
        Some(_) => LiveMode::Lines,
        None => LiveMode::detect(output.quiet || virtual_time),
    };
    let plan = opened.plan();
    let (listening, total) =
        (plan.only_receives(), plan.stop.duration.map(|d| d.as_secs_f64()).or(end.after_s));
    let mut live = Live::new(mode, title, total.map(Duration::from_secs_f64));
    end.each_s.iter().for_each(|seconds| live.line_each(f64::from(*seconds)));
    let shown = if mode == LiveMode::Quiet { Vec::new() } else { plan.notes.clone() };
    for note in one_for_both(&shown) {
        let (width, _) = look(true, WIDTH);
        table::wrap(&format!("note: {note}"), width, 6).iter().for_each(|line| live.note(line));
    }
    let mut run = opened.start()?;
    if listening {
        run.expect(Asked { duration_s: end.after_s, packets: end.received, octets: None });
    }
    let ended_by = match (listening, virtual_time) {
        (true, true) => read_files(&mut run, end, &signals),
        _ => watch(&mut run, &mut live, mode, end, &signals, &trigger),
    };
    if let Some(why) = ended_by {
        run.stop_because(why);
    }
    let mut report = run.finish()?;
    annotate(&mut report);
    live.finish();
    let extra = extra(&report);
    output.publish(report, files, &extra, &shown)
}

/// Joins the notes of two ports that differ only in the interface.
fn one_for_both(notes: &[String]) -> Vec<String> {
    let parts = |note: &str| {
        let (name, rest) = note.split_once(": taken as ")?;
        Some((name.to_owned(), rest.replace(name, "IFACE")))
    };
    let mut joined: Vec<(Vec<String>, String)> = Vec::new();
    for note in notes {
        let (names, text) = parts(note)
            .map_or_else(|| (Vec::new(), note.clone()), |(name, text)| (vec![name], text));
        match joined.iter_mut().find(|one| !names.is_empty() && one.1 == text) {
            Some(one) => one.0.extend(names),
            None => joined.push((names, text)),
        }
    }
    let one = |(names, text): (Vec<String>, String)| match &names[..] {
        [] => text,
        [name] => format!("{name}: taken as {}", text.replace("IFACE", name)),
        _ => format!("{}: taken as {text}", names.join(", ")),
    };
    joined.into_iter().map(one).collect()
}

/// Solves the attacks of a session. Shows progress on a terminal, and stops on Ctrl-C.
pub fn resolve(session: Session, quiet: bool, signals: &Signals) -> Result<Resolved, Error> {
    let line = Mutex::new(ProgressLine::new(quiet));
    let resolved = session.resolve(&|done, all| {
        if let Ok(mut line) = line.lock() {
            line.update(|| format!("solving rules: {done} of {all}"));
        }
        !signals.came()
    })?;
    line.into_inner().into_iter().for_each(|mut line| line.clear());
    Ok(resolved)
}

/// Waits until everything is sent, `end` is reached, or a signal arrives. Returns `None` if the run
/// ended by itself.
fn watch(
    run: &mut Run,
    live: &mut Live,
    mode: LiveMode,
    end: End,
    signals: &Signals,
    trigger: &AtomicBool,
) -> Option<EndedBy> {
    let virtual_time = run.virtual_time();
    let listening = run.listening();
    let period = if mode == LiveMode::Terminal { FRAME_S } else { LINE_S };
    let mut due = period;
    let mut asked = 0.0;
    let sample = |run: &mut Run, live: &mut Live| match mode {
        LiveMode::Quiet => run.tick(),
        _ => {
            let (sample, report) = run.sample();
            live.update(&sample, &report);
        }
    };
    let ended_by = loop {
        let wait = if virtual_time {
            POLL_INTERVAL
        } else {
            seconds(due - run.elapsed_s()).min(POLL_INTERVAL)
        };
        let done = match listening {
            false => run.wait(wait).then_some(None),
            true => {
                let left = end.after_s.map_or(wait, |end| seconds(end - run.elapsed_s()).min(wait));
                std::thread::sleep(left);
                if end.after_s.is_some_and(|end| run.elapsed_s() >= end) {
                    Some(Some(EndedBy::Duration))
                } else if end.received.is_some_and(|count| run.received() >= count) {
                    Some(Some(EndedBy::Packets))
                } else {
                    // The last asks every worker, so less often than the others, but not much less:
                    // the time until then counts in the rates.
                    let asks = run.elapsed_s() >= asked + FRAME_S;
                    if asks {
                        asked = run.elapsed_s();
                    }
                    let over =
                        run.captured() || run.aborted() || (asks && run.receives_nothing_more());
                    over.then_some(Some(EndedBy::Done))
                }
            }
        };
        if trigger.swap(false, Ordering::Relaxed) {
            run.trigger();
        }
        if signals.came() {
            live.note("stopping; press Ctrl-C again to abort");
            return signals.ended_by();
        }
        if let Some(ended_by) = done {
            break ended_by;
        }
        if !virtual_time && run.elapsed_s() >= due {
            sample(run, live);
            due = (run.elapsed_s() / period).floor() * period + period;
        }
    };
    // Also sample the last, incomplete period, unless it is too short for a rate.
    if !virtual_time && run.elapsed_s() > due - period / 2.0 {
        sample(run, live);
    }
    ended_by
}

/// Reads files until packets stop arriving.
fn read_files(run: &mut Run, end: End, signals: &Signals) -> Option<EndedBy> {
    let (mut before, mut idle) = (0, 0);
    while idle < 3 && !signals.came() {
        std::thread::sleep(POLL_INTERVAL);
        let received = run.received();
        if end.received.is_some_and(|count| received >= count) {
            return Some(EndedBy::Packets);
        }
        if run.captured() {
            break;
        }
        idle = if received == before { idle + 1 } else { 0 };
        before = received;
    }
    Some(signals.ended_by().unwrap_or(EndedBy::Done))
}

fn seconds(s: f64) -> Duration {
    Duration::from_secs_f64(s.clamp(0.0, 3600.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_one_kind_have_one_note() {
        let note = |name: &str| format!("{name}: taken as af_packet:{name}: why ({name})");
        let other = "a rate is missing".to_owned();
        let joined = one_for_both(&[note("veth-a"), other.clone(), note("veth-b")]);
        let both = "veth-a, veth-b: taken as af_packet:IFACE: why (IFACE)".to_owned();
        assert_eq!(joined, [both, other]);
        assert_eq!(one_for_both(&[note("eth1")]), [note("eth1")]);
    }
}
