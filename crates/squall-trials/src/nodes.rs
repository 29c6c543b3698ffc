//! Trials on the nodes of a cluster. Their controller is a separate process that runs as long as
//! the test, so nodes and clocks are set up only once. It reads the profile of each trial as a line
//! of JSON, and answers with the reports of the nodes (`squall.cluster._trials` in Python).

use std::{
    collections::{BTreeMap, VecDeque},
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use squall_method::Second;
use squall_options::RunOptions;
use squall_profile::Profile;

use crate::{Job, POLL_INTERVAL, RunResult, here::ActionRunner};
use squall::{Error, report::Report};
use squall_port::Address;

/// Timeouts of the controller.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Start of the nodes.
    ready: Duration,
    /// Silence during a trial, in which the controller sends several lines per second.
    silent: Duration,
    /// Start of a trial, including opening ports and sending files to nodes that lack them.
    begin: Duration,
    /// Time by which a trial may exceed its duration.
    more: Duration,
    /// Time from the request to exit until the exit.
    end: Duration,
}

const LIMITS: Limits = Limits {
    ready: Duration::from_secs(300),
    silent: Duration::from_secs(30),
    begin: Duration::from_secs(600),
    more: Duration::from_secs(150),
    end: Duration::from_secs(30),
};

/// Number of lines of the controller's standard error to keep.
const ERROR_LINES: usize = 20;

/// A port on a node.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct NodePort {
    node: String,
    address: String,
    speed_bps: Option<u64>,
}

/// Ports of the inventory, with their nodes.
type Places = Vec<(String, Vec<NodePort>)>;

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Request<'a> {
    Trial {
        label: &'a str,
        profile: Value,
        /// Directory of the files that the profile refers to.
        folder: &'a Path,
        options: &'a RunOptions,
        linger_s: f64,
    },
    Stop {},
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// All nodes are up. `ports` has the nodes of each port of the inventory.
    Ready {
        version: String,
        ports: Places,
    },
    /// Seconds since the start; negative before it, `null` while the nodes have not agreed on it.
    Elapsed(Option<f64>),
    Done {
        reports: BTreeMap<String, Report>,
        lost: BTreeMap<String, String>,
    },
    Refused {
        text: String,
        /// Whether it is a user error, not an error of a machine.
        usage: bool,
    },
}

/// The nodes of a cluster. Nodes that were started for the test end when it is dropped.
pub struct Nodes {
    controller: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
    stderr_lines: Arc<Mutex<VecDeque<String>>>,
    places: Places,
    limits: Limits,
}

impl Nodes {
    /// Starts the controller and waits until the nodes are up.
    ///
    /// # Errors
    /// The controller does not start, the inventory is invalid, or a node is missing.
    pub fn start(controller: Command, stop: &dyn Fn() -> bool) -> Result<Self, Error> {
        Self::within(LIMITS, controller, stop)
    }

    fn within(
        limits: Limits,
        mut controller: Command,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, Error> {
        let program = controller.get_program().to_string_lossy().into_owned();
        // A separate process group: Ctrl-C then interrupts only this process, which asks the
        // controller to stop and still receives the results.
        controller.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut controller = controller.process_group(0).spawn().map_err(|error| {
            Error::Environment(format!(
                "cannot run {program}: {error}\n  try pip install '.[cluster]' in Squall's source folder, or \
                 SQUALL_PYTHON=/path/to/python"
            ))
        })?;
        let (requests, stderr_lines) = (controller.stdin.take(), Arc::default());
        let answers = listen(&mut controller, &stderr_lines);
        let places = Places::new();
        let mut nodes = Self { controller, requests, answers, stderr_lines, places, limits };
        nodes.wait_ready(stop)?;
        Ok(nodes)
    }

    fn wait_ready(&mut self, stop: &dyn Fn() -> bool) -> Result<(), Error> {
        let end = Instant::now() + self.limits.ready;
        while Instant::now() < end {
            match self.answer(POLL_INTERVAL)? {
                Some(Answer::Ready { version, ports }) => {
                    self.places = ports;
                    return same_version(&version);
                }
                Some(Answer::Refused { text, usage }) => return Err(refused(text, usage)),
                _ if stop() => return Err(Error::Usage("stopped".into())),
                _ => {}
            }
        }
        Err(self.timed_out("until the nodes are up", self.limits.ready))
    }

    /// Ports in the order of the inventory.
    pub fn ports(&self) -> impl Iterator<Item = &str> {
        self.places.iter().map(|(port, _)| port.as_str())
    }

    /// Nodes and addresses of all ports: `A = node1/af_packet:eth1`.
    pub(crate) fn places_text(&self) -> String {
        let place = |place: &NodePort| format!("{}/{}", place.node, place.address);
        let port = |(port, places): &(String, Vec<NodePort>)| {
            let places: Vec<String> = places.iter().map(place).collect();
            format!("{port} = {}", places.join(" + "))
        };
        self.places.iter().map(port).collect::<Vec<_>>().join(", ")
    }

    /// Moves the ports of the profile to nodes.
    pub(crate) fn place(&self, profile: &mut Profile) -> Result<(), Error> {
        for port in &mut profile.ports {
            let Some((_, places)) = self.places.iter().find(|(name, _)| *name == port.name) else {
                let known: Vec<&str> = self.ports().collect();
                return Err(Error::Usage(format!(
                    "{}: the inventory has no port {:?}: it has {}\n  try {} = \"NODE/ADDRESS\" \
                     below [ports] of the inventory",
                    profile.origin,
                    port.name,
                    known.join(", "),
                    port.name,
                )));
            };
            if let Some(place) = places.iter().find(|place| has_own_time(&place.address)) {
                return Err(Error::Usage(format!(
                    "port {} of node {:?} ({}) is on virtual time, which nodes do not share\n  try \
                     a port of real time, or the test without --nodes",
                    port.name, place.node, place.address
                )));
            }
            let nodes: Vec<&str> = places.iter().map(|place| place.node.as_str()).collect();
            port.address = format!("{}:{}", squall_port::elsewhere::KIND, nodes.join("+"));
        }
        Ok(())
    }

    /// Link speed of each port of the profile, bits per second, summed over the nodes that share
    /// it.
    pub(crate) fn speeds(&self, profile: &Profile) -> Vec<Option<u64>> {
        let speed = |port: &squall_profile::Port| {
            let (_, places) = self.places.iter().find(|(name, _)| *name == port.name)?;
            places.iter().map(NodePort::speed_bps).sum()
        };
        profile.ports.iter().map(speed).collect()
    }

    /// See [`crate::Place::run`].
    pub(crate) fn run(
        &mut self,
        job: Job<'_>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<RunResult>, Error> {
        let origin = Path::new(&job.profile.origin);
        let folder = origin.parent().filter(|folder| !folder.as_os_str().is_empty());
        let linger = job.options.linger.map_or(Duration::ZERO, Duration::from);
        self.send(&Request::Trial {
            label: job.label,
            profile: job.profile.to_value(),
            folder: folder.unwrap_or(Path::new(".")),
            options: &job.options,
            linger_s: linger.as_secs_f64(),
        })?;
        let mut acting = ActionRunner::of(job.action);
        let lasts = job.lasts_s.map(|seconds| Duration::from_secs_f64(seconds) + linger);
        let done = self.wait_trial(lasts, &mut acting, stop);
        acting.end();
        let Some((reports, lost)) = done? else { return Ok(None) };
        let seconds = seconds(reports.values(), job.seconds_s);
        Ok(Some(RunResult { reports: reports.into_iter().collect(), lost, seconds }))
    }

    /// Waits for the end of a trial of duration `lasts`, if known; `None` if it was stopped.
    fn wait_trial(
        &mut self,
        lasts: Option<Duration>,
        acting: &mut ActionRunner<'_>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<NodeReports>, Error> {
        let began = Instant::now();
        let (mut last_answer, mut started, mut stopped) = (began, false, false);
        let longest_s = lasts.map(|lasts| (lasts + self.limits.more).as_secs_f64());
        loop {
            let answer = self.answer(POLL_INTERVAL)?;
            if answer.is_some() {
                last_answer = Instant::now();
            }
            match answer {
                Some(Answer::Elapsed(Some(elapsed_s))) if elapsed_s >= 0.0 => {
                    if let Some(limit_s) = longest_s.filter(|limit_s| elapsed_s > *limit_s) {
                        let limit = Duration::from_secs_f64(limit_s);
                        return Err(self.timed_out("until a trial ended", limit));
                    }
                    started = true;
                    acting.poll(elapsed_s);
                }
                Some(Answer::Done { .. } | Answer::Refused { .. }) if stopped => return Ok(None),
                Some(Answer::Done { reports, lost }) => return Ok(Some((reports, lost))),
                Some(Answer::Refused { text, usage }) => return Err(refused(text, usage)),
                None if last_answer.elapsed() > self.limits.silent => {
                    return Err(self.timed_out("while a trial ran", self.limits.silent));
                }
                Some(Answer::Elapsed(_) | Answer::Ready { .. }) | None => {}
            }
            if !started && began.elapsed() > self.limits.begin {
                return Err(self.timed_out("until a trial began", self.limits.begin));
            }
            if stop() && !stopped {
                self.send(&Request::Stop {})?;
                stopped = true;
            }
        }
    }

    fn send(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let text = serde_json::to_string(request)
            .map_err(|error| Error::Usage(format!("cannot write the trial: {error}")))?;
        let written = self.requests.as_mut().map(|requests| writeln!(requests, "{text}"));
        match written {
            Some(Ok(())) => Ok(()),
            _ => Err(self.ended()),
        }
    }

    /// The next answer of the controller; `None` after the timeout.
    fn answer(&mut self, timeout: Duration) -> Result<Option<Answer>, Error> {
        match self.answers.recv_timeout(timeout) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(answer) => Ok(Some(answer)),
                Err(error) => {
                    let shown: String = line.chars().take(200).collect();
                    Err(self.fault(&format!("answered {shown:?}: {error}")))
                }
            },
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
        }
    }

    fn timed_out(&mut self, what: &str, limit: Duration) -> Error {
        self.fault(&format!("did not answer {what}, within {:.0} s", limit.as_secs_f64()))
    }

    /// Kills a controller that violates the protocol.
    fn fault(&mut self, what: &str) -> Error {
        let _ = self.controller.kill();
        let errors = self.error_lines();
        Error::Environment(format!(
            "the controller of the nodes {what}{errors}\n  try squall cluster status INVENTORY.toml"
        ))
    }

    /// The error of a controller that exited. It prints it like any command.
    fn ended(&mut self) -> Error {
        let status = wait(&mut self.controller, self.limits.end);
        let errors = self.error_lines();
        // Ray may print lines before the error.
        let text = errors.rsplit_once("\nsquall: ").map(|(_, text)| text.to_owned());
        match (status.and_then(|status| status.code()), text) {
            (Some(2), Some(text)) => Error::Usage(text),
            (Some(_), Some(text)) => Error::Environment(text),
            _ => {
                let how = status.map_or("has closed its output".into(), |s| format!("ended: {s}"));
                self.fault(&how)
            }
        }
    }

    fn error_lines(&self) -> String {
        let stderr_lines = self.stderr_lines.lock().unwrap_or_else(PoisonError::into_inner);
        stderr_lines.iter().map(|line| format!("\n{line}")).collect()
    }
}

/// Reports by node, and lost nodes with their reason.
type NodeReports = (BTreeMap<String, Report>, BTreeMap<String, String>);

impl Drop for Nodes {
    fn drop(&mut self) {
        // At the end of its input, the controller stops the run, ends the nodes that it started,
        // and exits.
        self.requests = None;
        if wait(&mut self.controller, self.limits.end).is_none() {
            let _ = self.controller.kill();
            let _ = self.controller.wait();
        }
    }
}

impl NodePort {
    fn speed_bps(&self) -> Option<u64> {
        let mut address = self.address.parse::<Address>().ok()?;
        let speed = address.take::<squall_units::Rate>("speed", "a rate").ok().flatten();
        speed.map(|speed| speed.value() as u64).or(self.speed_bps)
    }
}

/// Whether a port runs in virtual time: files, and ports whose address requests it.
fn has_own_time(address: &str) -> bool {
    address.starts_with("pcap:") || address.split([':', ',']).any(|part| part == "virtual")
}

fn same_version(found: &str) -> Result<(), Error> {
    let own = env!("CARGO_PKG_VERSION");
    if found == own {
        return Ok(());
    }
    Err(Error::Environment(format!(
        "this is squall {own}, and its Python package is {found}\n  try pip install \
         '.[cluster]' in the source folder of {own}, or SQUALL_PYTHON=/path/to/python"
    )))
}

fn refused(text: String, usage: bool) -> Error {
    if usage { Error::Usage(text) } else { Error::Environment(text) }
}

/// Passes lines of the controller's output to the receiver, and keeps its standard error in
/// `stderr_lines`.
fn listen(controller: &mut Child, stderr_lines: &Arc<Mutex<VecDeque<String>>>) -> Receiver<String> {
    let (sender, answers) = channel();
    let (output, errors) = (controller.stdout.take(), controller.stderr.take());
    let stderr_lines = stderr_lines.clone();
    let errors = thread::spawn(move || {
        let lines = errors.map(BufReader::new).into_iter().flat_map(BufRead::lines);
        for line in lines.map_while(Result::ok) {
            let mut stderr_lines = stderr_lines.lock().unwrap_or_else(PoisonError::into_inner);
            if stderr_lines.len() == ERROR_LINES {
                stderr_lines.pop_front();
            }
            stderr_lines.push_back(line);
        }
    });
    thread::spawn(move || {
        let lines = output.map(BufReader::new).into_iter().flat_map(BufRead::lines);
        for line in lines.map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
        // Wait for the last error lines before the channel closes, but not forever: child processes
        // may keep the pipe open.
        let end = Instant::now() + Duration::from_secs(1);
        while !errors.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
    });
    answers
}

/// Waits for the exit status; `None` if the process is still running after `limit`.
fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() > end {
            return None;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Frames of streams per second, from the samples of the nodes. Nodes sample at different times, so
/// the frames between two samples are spread evenly. Only seconds for which all nodes have samples
/// count.
fn seconds<'a>(
    reports: impl Iterator<Item = &'a Report> + Clone,
    end_s: f64,
) -> BTreeMap<String, Vec<Second>> {
    let last = |report: &Report| report.series.last().map_or(0.0, |sample| sample.t_s);
    // The last sample of a trial may be slightly before its end.
    let whole = (reports.clone().map(last).fold(end_s, f64::min) + 0.05).max(0.0) as usize;
    let mut all: BTreeMap<String, Vec<[f64; 2]>> = BTreeMap::new();
    for report in reports {
        let mut since_s = 0.0;
        for sample in &report.series {
            for stream in &sample.streams {
                let of_none = || vec![[0.0; 2]; whole];
                let counts = all.entry(stream.name.clone()).or_insert_with(of_none);
                spread(counts, (since_s, sample.t_s), [stream.tx_pps, stream.rx_pps]);
            }
            since_s = sample.t_s;
        }
    }
    let second = |[sent, received]: [f64; 2]| Second {
        sent: sent.round() as u64,
        received: received.round() as u64,
    };
    let counted =
        |(name, counts): (_, Vec<[f64; 2]>)| (name, counts.into_iter().map(second).collect());
    all.into_iter().map(counted).collect()
}

/// Spreads the frames of an interval over its seconds.
fn spread(counts: &mut [[f64; 2]], (from_s, to_s): (f64, f64), pps: [f64; 2]) {
    let (first, last) = (from_s.max(0.0) as usize, to_s.max(0.0).ceil() as usize);
    for (second, count) in counts.iter_mut().enumerate().take(last).skip(first) {
        let at = second as f64;
        let part = (to_s.min(at + 1.0) - from_s.max(at)).max(0.0);
        (0..2).for_each(|i| count[i] += pps[i] * part);
    }
}

#[cfg(test)]
mod tests;
