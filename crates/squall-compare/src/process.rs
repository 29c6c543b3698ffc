//! One run of a tool: start, wait until it is ready, stop when it has finished.

use std::{
    fs::{self, File},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use squall_port_linux::child::{self, CpuTime};
use squall_units::Cannot;

use super::tools::Tool;

/// Maximum wait for a tool to be ready. A ring of gigabytes takes long to allocate.
const START: Duration = Duration::from_secs(60);
/// Time without CPU use after which a tool counts as idle.
const STILL: Duration = Duration::from_millis(150);
/// Time after which a tool that listens counts as ready even if it is never idle.
const RESTLESS: Duration = Duration::from_secs(3);
/// libpcap passes a partly filled block to tcpdump only after a second.
const LAST_BLOCK: Duration = Duration::from_millis(1200);
/// Maximum wait for a tool to write its buffered packets.
const DRAIN: Duration = Duration::from_secs(30);
/// Time from the interrupt to SIGTERM, and from there to the kill.
const END: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(5)];
/// SIGINT is 2 on every Linux architecture.
const SIGINT: i32 = 2;
const LOOK: Duration = Duration::from_millis(10);

/// A running program, killed when dropped. Its output goes to a file.
pub struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts the program.
    ///
    /// # Errors
    /// The error, as text.
    pub fn start(
        path: &Path,
        arguments: &[String],
        cpu: Option<u32>,
        log: PathBuf,
    ) -> Result<Self, String> {
        let failed = |error: std::io::Error| Cannot::write(&log, &error).to_string();
        let output = File::create(&log).map_err(failed)?;
        let again = output.try_clone().map_err(failed)?;
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::null()).stdout(output).stderr(again);
        let child = child::spawn(&mut command, cpu).map_err(|error| {
            Cannot::of_io(format!("run {}", path.display()), &error).to_string()
        })?;
        Ok(Self { child, log })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits up to `at_most` for the end of the program, and returns whether it ended.
    pub fn ends_within(&self, at_most: Duration) -> bool {
        let started = Instant::now();
        while !child::has_ended(self.pid()) {
            if started.elapsed() > at_most {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }

    /// Interrupts the program as Ctrl-C does; kills it after `at_most`. Returns its output.
    pub fn end(&mut self, at_most: Duration) -> String {
        child::interrupt(self.pid());
        self.ends_within(at_most);
        child::kill(self.pid());
        let _ = self.child.wait();
        self.output()
    }

    fn output(&self) -> String {
        let octets = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&octets).into_owned()
    }

    /// The last lines of its output.
    pub fn last_lines(&self) -> String {
        let text = self.output();
        let lines: Vec<&str> =
            text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty()).collect();
        match &lines[lines.len().saturating_sub(3)..] {
            [] => "it printed nothing".into(),
            last => last.join(" | ").chars().take(300).collect(),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // After `wait`, another process may have the process ID.
        if let Ok(None) = self.child.try_wait() {
            child::kill(self.pid());
            let _ = self.child.wait();
        }
    }
}

pub struct Running {
    program: Program,
    /// CPU time at the time when the tool was ready: in steps of 10 ms, and exact.
    before: (CpuTime, Duration),
}

/// The outcome of a run.
pub struct Finished {
    pub cpu: CpuTime,
    pub peak_memory: u64,
    /// Its complete output.
    pub output: String,
    /// An error if the tool was killed or exited with one.
    pub wrong: Option<String>,
}

impl Running {
    /// Starts the tool on `cpu`. Waits until `listens` returns true and the tool is idle.
    ///
    /// # Errors
    /// The error, as text, with the last lines of its output.
    pub fn start(
        tool: &Tool,
        arguments: &[String],
        listens: &dyn Fn() -> bool,
        cpu: Option<u32>,
        log: &Path,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, String> {
        let program =
            tool.find().ok_or_else(|| format!("{} is not installed", tool.program.display()))?;
        let program = Program::start(&program, arguments, cpu, log.into())?;
        let mut running = Self { program, before: Default::default() };
        running.wait_until_ready(listens, stop)?;
        running.before = (child::cpu_time(running.pid()), child::run_time(running.pid()));
        Ok(running)
    }

    fn pid(&self) -> u32 {
        self.program.pid()
    }

    fn wait_until_ready(
        &mut self,
        listens: &dyn Fn() -> bool,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let started = Instant::now();
        let mut since = None;
        let mut still = Still::new(self.pid());
        loop {
            std::thread::sleep(LOOK);
            if child::has_ended(self.pid()) {
                return Err(format!("it ended before it captured: {}", self.program.last_lines()));
            }
            if stop() {
                return Err("interrupted".into());
            }
            if since.is_none() && listens() {
                // Idle time counts only once the tool listens.
                (since, still) = (Some(Instant::now()), Still::new(self.pid()));
            }
            match since {
                Some(at) if still.holds() || at.elapsed() > RESTLESS => return Ok(()),
                None if started.elapsed() > START => {
                    return Err(format!(
                        "it did not capture within {} s: {}",
                        START.as_secs(),
                        self.program.last_lines()
                    ));
                }
                _ => {}
            }
        }
    }

    /// After the last frame: waits until the tool is idle.
    pub fn settle(&self) {
        let started = Instant::now();
        let mut still = Still::new(self.pid());
        while started.elapsed() < DRAIN && !child::has_ended(self.pid()) {
            std::thread::sleep(LOOK);
            if still.holds() && started.elapsed() > LAST_BLOCK {
                return;
            }
        }
    }

    /// Interrupts the tool as Ctrl-C does; kills it if it does not end.
    pub fn finish(mut self) -> Finished {
        let pid = self.pid();
        let early = child::has_ended(pid);
        let peak_memory = child::peak_memory(pid);
        let (worked, exact) = (
            child::cpu_time(pid).since(self.before.0),
            child::run_time(pid).saturating_sub(self.before.1),
        );
        child::interrupt(pid);
        let mut wrong = early.then(|| format!("it ended early: {}", self.program.last_lines()));
        if !self.program.ends_within(END[0]) {
            wrong = Some(format!("it did not end within {} s after SIGINT", END[0].as_secs()));
            child::terminate(pid);
            self.program.ends_within(END[1]);
        }
        // The CPU time of a zombie can be read until `wait`.
        let ending = child::cpu_time(pid).since(self.before.0).since(worked);
        let worked = worked.of_total(exact);
        let cpu =
            CpuTime { user: worked.user + ending.user, system: worked.system + ending.system };
        child::kill(pid);
        // The requested end: tools exit with 0 if they handle Ctrl-C, otherwise by SIGINT, which
        // shells report as 130.
        let status = self.program.child.wait();
        if let Ok(status) = status
            && wrong.is_none()
            && !status.success()
            && status.code() != Some(130)
            && status.signal() != Some(SIGINT)
        {
            wrong = Some(format!("it ended with {status}: {}", self.program.last_lines()));
        }
        Finished { cpu, peak_memory, output: self.program.output(), wrong }
    }
}

/// Detects that a process has used almost no CPU time for a while.
struct Still {
    pid: u32,
    since: Instant,
    at: Duration,
}

/// CPU time that an idle tool may use to wake up for its timers.
const TRACE: Duration = Duration::from_millis(2);

impl Still {
    fn new(pid: u32) -> Self {
        Self { pid, since: Instant::now(), at: child::run_time(pid) }
    }

    fn holds(&mut self) -> bool {
        let now = child::run_time(self.pid);
        if now.abs_diff(self.at) > TRACE {
            (self.at, self.since) = (now, Instant::now());
        }
        self.since.elapsed() >= STILL
    }
}
