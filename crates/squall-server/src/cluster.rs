//! Runs over several machines: the controller (`squall run --nodes`) runs as a child process. Its
//! live view fills the run's row, and its report becomes the run's.
//!
//! The child's standard input is a pipe that the daemon never writes to. It closes when the daemon
//! ends, even by SIGKILL, so the controller ends too.

use std::{
    collections::VecDeque,
    env, fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall::{Error, Session, report::Report};
use squall_report::{
    conversations::Flows,
    host_table::{HostDetail, HostPage, HostQuestion},
};

use crate::{
    Refusal,
    inventory::Inventory,
    job::{Action, Ended, Job, Ports, RunResult, Thread, Work, spawn},
    runs::{Live, RunRow, State, lock},
    service::Service,
};

/// Number of lines of the controller's output that an error quotes.
const QUOTED_LINES: usize = 12;
/// Maximum size of a line, in octets. A line of the live view with a thousand nodes has a fifth of
/// that.
const MAX_LINE: u64 = 1 << 20;
/// Maximum number of lines in the queue. The reader blocks when it is full, so that a fast writer
/// cannot use up memory.
const QUEUED_LINES: usize = 64;
/// Interval for checking whether to stop the controller and whether it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time in which the lines of a controller that has ended are read.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The command and the time limits for the controller of runs over several machines.
#[derive(Clone, Debug)]
pub struct Controller {
    /// The program to start; it accepts the arguments of `squall`.
    pub program: PathBuf,
    /// Time without output after which the controller is killed. Each of its steps has its own,
    /// shorter limit.
    pub silent: Duration,
    /// Time from a stop request after which a controller without a report is killed.
    pub stopping: Duration,
}

impl Default for Controller {
    fn default() -> Self {
        Self {
            program: env::current_exe().unwrap_or_else(|_| "squall".into()),
            silent: Duration::from_secs(180),
            stopping: Duration::from_secs(75),
        }
    }
}

/// Action when a node is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnLoss {
    /// End the run on all nodes.
    #[default]
    End,
    /// Continue on the others.
    Continue,
    /// Continue on the others, and on the node when the controller reaches it again. Until then it
    /// does not send.
    Resume,
}

impl OnLoss {
    fn word(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Continue => "continue",
            Self::Resume => "resume",
        }
    }
}

/// State of a run over several machines, at most two seconds old.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterProgress {
    /// Name of the inventory.
    pub inventory: String,
    pub on_loss: OnLoss,
    /// Time since the nodes started to send; 0 before that.
    pub t_s: f64,
    /// Sums of all nodes.
    pub all: Totals,
    /// Empty before the start.
    pub nodes: Vec<NodeRow>,
}

impl ClusterProgress {
    /// Ends the progress: keeps the counts, and sets the rates to 0.
    pub fn over(&mut self) {
        let nodes = self.nodes.iter_mut().map(|node| &mut node.figures);
        for figures in nodes.chain([&mut self.all]) {
            (figures.tx_pps, figures.rx_pps) = (0.0, 0.0);
        }
    }
}

/// Rates, and frames so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    pub tx_pps: f64,
    pub rx_pps: f64,
    pub tx_packets: u64,
    pub rx_packets: u64,
    /// Gaps in the sequences so far.
    pub lost: u64,
}

/// A node in a run. The figures of a lost node are the last known ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRow {
    pub name: String,
    /// State of its own run: `ready`, `running`, `done` ...; or `lost`.
    pub state: String,
    /// Why it is lost; `null`: it is not.
    pub why: Option<String>,
    /// Maximum error of the estimate of its clock; `null` before it was measured.
    pub clock_bound_ns: Option<u64>,
    #[serde(flatten)]
    pub figures: Totals,
}

/// A line of the controller's live view.
#[derive(Deserialize)]
struct ViewLine {
    t_s: f64,
    all: Totals,
    nodes: Vec<NodeRow>,
}

/// The nodes on which to run.
pub struct ClusterSpec {
    pub inventory: Inventory,
    pub on_loss: OnLoss,
}

/// A live run over several machines.
pub struct Cluster {
    progress: Mutex<ClusterProgress>,
    thread: Thread,
}

impl Job for Cluster {
    /// Returns `None`, because the nodes report only at the end.
    fn result_so_far(&self) -> Option<RunResult> {
        None
    }

    fn apply(&self, _: Action) -> Result<(), Refusal> {
        Err(unchangeable())
    }

    /// Stops the nodes, which report when they have stopped.
    fn stop(&self) {
        self.thread.stop();
    }

    fn outcome(&self) -> Option<Ended> {
        self.thread.outcome()
    }

    fn abandoned(&self) -> Ended {
        let text = "the daemon ended, and did not wait for the reports of the nodes";
        Err(Arc::new(Error::Environment(text.into())))
    }

    fn describe(&self, row: &mut RunRow) {
        let progress = lock(&self.progress).clone();
        row.elapsed_s = progress.t_s;
        row.cluster = Some(progress);
    }

    fn received_flows(&self) -> Result<Option<Arc<Flows>>, Refusal> {
        Err(unshown())
    }

    fn hosts(&self, _question: &HostQuestion) -> Result<HostPage, Refusal> {
        Err(unshown())
    }

    fn host(&self, _group: Option<&str>, _number: u32) -> Result<HostDetail, Refusal> {
        Err(unshown())
    }
}

fn unchangeable() -> Refusal {
    Refusal::conflict(
        "run_over_nodes",
        "a run over several machines cannot be changed\n  try to stop it",
    )
}

fn unshown() -> Refusal {
    Refusal::conflict(
        "run_over_nodes",
        "the nodes show their hosts and flows\n  try the daemon of the node",
    )
}

impl Work for ClusterSpec {
    type Job = Cluster;

    /// The ports of the nodes, not those of the profile.
    fn ports(&self, _: &Service, session: &mut Session) -> Result<Ports, Refusal> {
        let places = self.inventory.places(&session.profile)?;
        Ok(Ports {
            leased: places.iter().flat_map(|port| port.leased(&self.inventory.name)).collect(),
            shown: places.iter().map(|port| port.shown()).collect(),
        })
    }

    /// Starts the controller, and a thread that waits for it.
    fn begin(
        self,
        service: &Arc<Service>,
        live: &Arc<Live>,
        session: Session,
    ) -> Result<Arc<Cluster>, Error> {
        let files = ControllerFiles::new(service, &session, &self).map_err(|error| {
            Error::Environment(format!("cannot write the profile for the nodes: {error}"))
        })?;
        let cluster = Arc::new(Cluster {
            progress: Mutex::new(ClusterProgress {
                inventory: self.inventory.name,
                on_loss: self.on_loss,
                t_s: 0.0,
                all: Totals::default(),
                nodes: Vec::new(),
            }),
            thread: Thread::default(),
        });
        let how = ("squall-cluster", State::Starting);
        let run = move |cluster: &Cluster, service: &Service, live: &Arc<Live>| {
            cluster.run(service, live, &files)
        };
        spawn((service, live), &cluster, how, |cluster| &cluster.thread, run)?;
        Ok(cluster)
    }
}

impl Cluster {
    /// Waits for the controller.
    fn run(&self, service: &Service, live: &Live, files: &ControllerFiles) -> Ended {
        let words = files.run(&service.settings.controller, self, |line| {
            live.set_state(&[State::Starting], State::Running);
            let mut progress = lock(&self.progress);
            (progress.t_s, progress.all, progress.nodes) = (line.t_s, line.all, line.nodes);
        });
        files.came(words).map(|report| RunResult::Report(Arc::new(report))).map_err(Arc::new)
    }
}

/// The controller's input files, in a directory that is removed with this value.
struct ControllerFiles {
    folder: PathBuf,
    arguments: Vec<PathBuf>,
}

impl ControllerFiles {
    fn new(service: &Service, session: &Session, over: &ClusterSpec) -> std::io::Result<Self> {
        let folder = service.files.unfinished();
        fs::create_dir(&folder)?;
        let mut files = Self { folder, arguments: Vec::new() };
        let mut profile = session.profile.clone();
        profile.run = session.options.clone();
        // The profile has these settings already, so the options must not repeat them.
        let run = &mut profile.run;
        (run.duration, run.packets, run.octets, run.seed) = (None, None, None, None);
        let file = files.folder.join("profile.toml");
        fs::write(&file, profile.to_toml())?;
        files.arguments = vec!["run".into(), file, "--nodes".into(), over.inventory.file.clone()];
        files.arguments.extend(["--on-loss".into(), over.on_loss.word().into()]);
        files.arguments.extend(["--live".into(), "json".into(), "--allow-invalid".into()]);
        files.arguments.extend(["--json".into(), files.report()]);
        files.arguments.extend(["--for-daemon".into(), service.files.root().to_owned()]);
        Ok(files)
    }

    fn report(&self) -> PathBuf {
        self.folder.join("report.json")
    }

    /// Runs the controller to its end. Returns the last lines that it printed.
    fn run(
        &self,
        how: &Controller,
        cluster: &Cluster,
        on_line: impl FnMut(ViewLine),
    ) -> Vec<String> {
        let mut command = Command::new(&how.program);
        // Started in its own process group, so that a SIGINT of the terminal does not reach it, and
        // that `kill` reaches its children.
        command.args(&self.arguments).process_group(0);
        // The live view is on standard error, and the report goes to a file instead of standard
        // output.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        match command.spawn() {
            Ok(child) => ControllerProcess::new(child).until_end(how, cluster, on_line),
            Err(error) => vec![format!("cannot run {}: {error}", how.program.display())],
        }
    }

    /// Returns the report, or the reason why there is none.
    fn came(&self, words: Vec<String>) -> Result<Report, Error> {
        match read(&self.report()) {
            Ok(Some(report)) => Ok(report),
            Ok(None) => Err(Error::Environment(words.join("\n"))),
            Err(error) => Err(Error::Environment(format!("the report of the nodes: {error}"))),
        }
    }
}

impl Drop for ControllerFiles {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.folder);
    }
}

fn read(file: &Path) -> Result<Option<Report>, String> {
    match fs::read_to_string(file) {
        // The controller was killed before it wrote the report.
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| error.to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// The controller's process and its output.
struct ControllerProcess {
    child: Child,
    pid: Option<Pid>,
    lines: mpsc::Receiver<String>,
    last_output: Instant,
    stopped: Option<Instant>,
    words: VecDeque<String>,
}

impl ControllerProcess {
    fn new(mut child: Child) -> Self {
        let (tell, lines) = mpsc::sync_channel(QUEUED_LINES);
        if let Some(printed) = child.stderr.take() {
            // The thread ends when the last process that holds the pipe ends.
            thread::spawn(move || {
                let mut printed = BufReader::new(printed);
                while let Some(line) = next_line(&mut printed) {
                    if tell.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (last_output, stopped, words) = (Instant::now(), None, VecDeque::new());
        Self { child, pid, lines, last_output, stopped, words }
    }

    /// Waits for the end. Returns the reason if the controller leaves no report.
    fn until_end(
        mut self,
        how: &Controller,
        cluster: &Cluster,
        mut on_line: impl FnMut(ViewLine),
    ) -> Vec<String> {
        while !self.has_ended() {
            self.read_lines(&mut on_line);
            if let Some(why) = self.overdue(how, cluster) {
                _ = self.kill();
                return vec![why];
            }
        }
        // Kill the group even if the controller has ended, because its children may still run.
        let status = self.kill();
        self.read_rest(&mut on_line);
        if self.words.is_empty() && self.stopped.is_some() {
            self.words.push_back("it was stopped before the nodes could report".into());
        } else if self.words.is_empty() {
            let status = status.map_or_else(|error| error.to_string(), |s| s.to_string());
            self.words.push_back(format!("the controller ended without a word: {status}"));
        }
        self.words.into()
    }

    /// Reads all lines that have arrived. Waits for the first one.
    fn read_lines(&mut self, on_line: &mut impl FnMut(ViewLine)) {
        let mut wait = POLL_INTERVAL;
        loop {
            match self.lines.recv_timeout(wait) {
                Ok(line) => self.line(line, on_line),
                Err(RecvTimeoutError::Timeout) => return,
                // The child has closed its standard error and still runs. Sleep, otherwise the loop
                // would spin.
                Err(RecvTimeoutError::Disconnected) => return thread::sleep(wait),
            }
            wait = Duration::ZERO;
        }
    }

    /// Reads the last lines. The thread may not have read them yet, so this waits until the pipe is
    /// closed, or for a short time if a process outside of the group has it.
    fn read_rest(&mut self, on_line: &mut impl FnMut(ViewLine)) {
        let until = Instant::now() + LAST_LINES;
        let left = || until.saturating_duration_since(Instant::now());
        while let Ok(line) = self.lines.recv_timeout(left()) {
            self.line(line, on_line);
        }
    }

    fn line(&mut self, line: String, on_line: &mut impl FnMut(ViewLine)) {
        self.last_output = Instant::now();
        if let Ok(now) = serde_json::from_str(&line) {
            return on_line(now);
        }
        // Earlier lines are dropped, because those before an error of Squall itself are warnings.
        let own = line.strip_prefix("squall: ").map(ToOwned::to_owned);
        if own.is_some() {
            self.words.clear();
        }
        if self.words.len() == QUOTED_LINES {
            self.words.pop_front();
        }
        self.words.push_back(own.unwrap_or(line));
    }

    /// Sends the stop signal once, when a stop is requested. Returns the reason if the child has
    /// exceeded a time limit.
    fn overdue(&mut self, how: &Controller, cluster: &Cluster) -> Option<String> {
        if cluster.thread.is_stopped() && self.stopped.is_none() {
            self.stopped = Some(Instant::now());
            // Signal only the process and not its group, so that it can finish merging a report.
            _ = self.pid.map(|pid| kill_process(pid, Signal::INT));
        }
        let (limit, what) = match self.stopped {
            Some(at) if at.elapsed() >= how.stopping => {
                (how.stopping, "did not report after a stop")
            }
            None if self.last_output.elapsed() >= how.silent => (how.silent, "printed nothing"),
            _ => return None,
        };
        Some(format!(
            "the controller {what} for {} s and was killed; its nodes end with their lease\n  try \
             squall cluster status",
            limit.as_secs_f64()
        ))
    }

    /// Kills the child and all processes that it has started.
    fn kill(&mut self) -> std::io::Result<ExitStatus> {
        _ = self.pid.map(|pid| kill_process_group(pid, Signal::KILL));
        self.child.wait()
    }

    /// Whether the child has ended. NOWAIT leaves it a zombie, so that the kernel cannot reuse its
    /// process number before [`Self::kill`].
    fn has_ended(&self) -> bool {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        self.pid.is_none_or(|pid| !matches!(waitid(WaitId::Pid(pid), how), Ok(None)))
    }
}

/// The next line, truncated to [`MAX_LINE`] octets; `None` at the end of the output.
fn next_line(printed: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    printed.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).ok()?;
    if line.is_empty() {
        return None;
    }
    if !line.ends_with(b"\n") {
        // Read the rest in pieces, because an endless line must not fill the memory.
        let mut rest = Vec::new();
        while printed.by_ref().take(MAX_LINE).read_until(b'\n', &mut rest).ok()? > 0 {
            if rest.ends_with(b"\n") {
                break;
            }
            rest.clear();
        }
    }
    Some(String::from_utf8_lossy(&line).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_cut_and_the_next_one_is_whole() {
        let long = "x".repeat(3 * MAX_LINE as usize + 5);
        let text = format!("first\n{long}\nlast\n");
        let mut printed = text.as_bytes();
        let lines: Vec<_> = std::iter::from_fn(|| next_line(&mut printed)).collect();
        let lengths: Vec<_> = lines.iter().map(String::len).collect();
        assert_eq!((lengths, &*lines[2]), (vec![5, MAX_LINE as usize, 4], "last"));
    }
}
