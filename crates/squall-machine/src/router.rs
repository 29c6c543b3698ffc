//! A routing daemon in a network namespace of its own, whose interface is a link to a port.
//!
//! A thread enters the namespace, makes the interface, starts the daemon, and asks it for the
//! states of its protocols until it is dropped. A second one in the namespace carries out the steps
//! of the profile and live orders (`steering.rs`). The kernel kills the daemon with its thread, and
//! the namespace ends with both: after a crash, only the folder of the daemon's files remains. The
//! daemon is BIRD here, and FRR in `frr.rs`.

mod frr;
mod gate;
mod steering;

use std::{
    fs,
    io::{self, Write},
    os::unix::{fs::DirBuilderExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use squall_host::link_local;
use squall_port::FrameLink;
use squall_port_linux::{child, control::ControlSocket, lab::find_program, tap::Tap};
use squall_router::{
    Daemon, DaemonState, ProtocolState, RouterOrder, RouterSettings, Steered, Step, bird,
};
use squall_units::Nanos;

use self::{
    frr::{Frr, Supervised},
    gate::{Gate, GatedLink},
    steering::{Message, Steering},
};

/// Time between two requests for the states of a daemon.
const INTERVAL: Duration = Duration::from_millis(100);
/// Time that a daemon has to end its sessions.
const GOODBYE: Duration = Duration::from_secs(1);
/// Octets at the end of a daemon's log in which its last message is looked for.
const LOG: usize = 16 * 1024;

/// A running daemon; dropping it ends the daemon.
pub struct Router {
    shared: Arc<Shared>,
    messages: mpsc::Sender<Message>,
    thread: Option<JoinHandle<()>>,
}

/// State that the threads of a daemon share.
#[derive(Default)]
struct Shared {
    state: Mutex<DaemonState>,
    /// The daemon is to end.
    stop: AtomicBool,
    /// It has ended.
    over: AtomicBool,
    /// It ends because a step restarts it, and is to be started again.
    restarting: AtomicBool,
    gate: Arc<Gate>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, DaemonState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire) || self.over.load(Ordering::Acquire)
    }
}

impl Router {
    /// Starts the daemon for `settings`, with an interface whose longest IP packet has `mtu`
    /// octets. Returns it with the other end of its link. The times of `steps` count from
    /// [`Router::begin`] on.
    ///
    /// # Errors
    /// The daemon or `ip` is not installed, a namespace or an interface is not permitted, or the
    /// daemon refuses its configuration: the error has its message.
    pub fn start(
        name: &str,
        settings: &RouterSettings,
        steps: &[Step],
        mtu: u32,
    ) -> io::Result<(Self, Box<dyn FrameLink>)> {
        let folder = Folder::new()?;
        let program = match settings.daemon {
            Daemon::Frr => Program::Frr(Box::new(Frr::new(settings, mtu, &folder.0)?)),
            Daemon::Bird | Daemon::Native(_) => Program::Bird(find_bird(settings, &folder.0)?),
        };
        let steered = Steered::new(settings);
        // The daemon finds the routes of the kernel's table at its start.
        let commands = interface(settings, mtu) + &steered.initial() + &settings.group_interfaces();
        let questions = bird::neighbor_questions(settings);
        let shared = Arc::new(Shared::default());
        let (messages, received) = mpsc::channel();
        let steering = Steering::new(settings.clone(), steered, steps, received, shared.clone());
        let (report, started) = mpsc::channel();
        let thread_shared = shared.clone();
        let steering_name = format!("rs {name}");
        let run = move || match program.start(&commands, &folder.0) {
            Ok((running, tap)) => {
                let begun = Instant::now();
                // Threads begin in the namespace of the thread that starts them.
                let files = folder.0.clone();
                let steer = std::thread::Builder::new().name(steering_name);
                match steer.spawn(move || steering.run(&files)) {
                    Ok(steering) => {
                        if report.send(Ok(tap)).is_ok() {
                            let shared = thread_shared.clone();
                            match running {
                                Running::Bird(child, program) => {
                                    let cpu_before = Nanos::ZERO;
                                    let watch = Watch {
                                        child,
                                        program,
                                        folder,
                                        shared,
                                        begun,
                                        cpu_before,
                                        questions,
                                    };
                                    watch.run();
                                }
                                Running::Frr(supervised, frr) => {
                                    frr::Watch { frr: *frr, supervised, folder, shared, begun }
                                        .run();
                                }
                            }
                        }
                        thread_shared.over.store(true, Ordering::Release);
                        let _ = steering.join();
                    }
                    Err(error) => _ = report.send(Err(error)),
                }
            }
            Err(error) => _ = report.send(Err(error)),
        };
        // The kernel keeps 15 octets.
        let thread = std::thread::Builder::new().name(format!("rt {name}")).spawn(run)?;
        let gate = shared.gate.clone();
        let router = Self { shared, messages, thread: Some(thread) };
        let tap = started.recv().map_err(|_| io::Error::other("its thread ended"))??;
        Ok((router, Box::new(GatedLink::new(Box::new(tap), gate))))
    }

    /// The run starts at `at`, by the clock of [`squall_port::monotonic`].
    pub fn begin(&self, at: Nanos) {
        let _ = self.messages.send(Message::Begin(at));
    }

    /// Carries out an order at once, or at the start of the run. [`squall_router::check`] says
    /// whether the router can. `duration`: the reverse follows after this time.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn order(&self, order: RouterOrder, duration: Option<Nanos>) -> io::Result<()> {
        self.messages
            .send(Message::Order(order, duration, squall_port::monotonic()))
            .map_err(|_| io::Error::other("its daemon has ended"))
    }

    pub fn state(&self) -> DaemonState {
        self.with_state(DaemonState::clone)
    }

    /// Reads a part of the state without a copy of the rest.
    pub fn with_state<T>(&self, read: impl FnOnce(&DaemonState) -> T) -> T {
        read(&self.shared.state())
    }
}

impl Drop for Router {
    /// Ends the daemon. BIRD has a second to end its sessions; FRR is killed.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let _ = self.messages.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// A folder for files of one daemon, which ends with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("squall-router-{}-{number}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            // Only this user may read it: it can hold passwords.
            match fs::DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => return Ok(Self(folder)),
                // In a container, the process often has the number of an earlier one, whose folder
                // remains if it crashed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot_make(&folder)(error)),
            }
        }
    }
}

/// Adds `path` to an error, and what to try.
fn cannot_make(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| {
        let text = format!("cannot make {}: {error}\n  try another TMPDIR", path.display());
        io::Error::new(error.kind(), text)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The daemon of a router, with its files.
enum Program {
    Bird(PathBuf),
    Frr(Box<Frr>),
}

/// Its processes.
enum Running {
    Bird(Child, PathBuf),
    Frr(Supervised, Box<Frr>),
}

impl Program {
    /// Starts it in a new namespace, which the calling thread enters.
    fn start(self, commands: &str, folder: &Path) -> io::Result<(Running, Tap)> {
        let tap = enter(commands)?;
        let running = match self {
            Self::Bird(program) => Running::Bird(daemon(&program, folder, false)?, program),
            Self::Frr(frr) => Running::Frr(frr.start(folder)?, frr),
        };
        Ok((running, tap))
    }
}

/// The program of BIRD. Its configuration is in `folder` then.
fn find_bird(settings: &RouterSettings, folder: &Path) -> io::Result<PathBuf> {
    let program = find_program("bird").ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            "bird is not installed\n  try apt-get install bird2, or your system's own package of \
             it",
        )
    })?;
    let path = folder.join("bird.conf");
    fs::write(&path, bird::configuration(settings)).map_err(cannot_make(&path))?;
    check(&program, folder)?;
    Ok(program)
}

/// Refuses a configuration that the daemon does not understand.
fn check(program: &Path, folder: &Path) -> io::Result<()> {
    let output =
        Command::new(program).args(["-p", "-c", "bird.conf"]).current_dir(folder).output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.lines().map(str::trim).collect::<Vec<_>>().join(", ");
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("BIRD refuses its configuration: {text}"),
    ))
}

/// Commands of `ip -batch` for the interface.
fn interface(settings: &RouterSettings, mtu: u32) -> String {
    let name = bird::INTERFACE;
    let mut lines = vec![
        "link set lo up".to_owned(),
        format!("link set {name} address {} mtu {mtu}", settings.mac),
    ];
    let addresses = settings.ipv4.map(|(address, length)| (address.into(), length));
    let addresses =
        addresses.into_iter().chain(settings.ipv6.map(|(a, length)| (a.into(), length)));
    for (address, length) in addresses {
        let address: std::net::IpAddr = address;
        let more = if address.is_ipv6() { " nodad" } else { "" };
        lines.push(format!("addr add {address}/{length} dev {name}{more}"));
    }
    if settings.ipv6.is_some() {
        // The kernel makes this address by itself, but a second late, after the detection of
        // duplicates: daemons send their first packets before, and the next ones of RIPng up to
        // 45 s later.
        lines.push(format!("link set {name} addrgenmode none"));
        lines.push(format!("addr add {}/64 dev {name} nodad", link_local(settings.mac)));
    }
    lines.push(format!("link set {name} up"));
    lines.join("\n") + "\n"
}

/// Moves the calling thread into a new network namespace with the interface.
fn enter(commands: &str) -> io::Result<Tap> {
    let tap = Tap::in_new_namespace(bird::INTERFACE)?;
    // Routers take no routes from advertisements (RFC 4861 section 6.2.7). /proc/sys may be
    // read-only in a container.
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{}/accept_ra", bird::INTERFACE), "0");
    let ip = find_program("ip").unwrap_or_else(|| "ip".into());
    let mut ip = Command::new(ip)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("ip: {error}")))?;
    if let Some(mut input) = ip.stdin.take() {
        // A program that ends early closes its input, and has a better message.
        let _ = input.write_all(commands.as_bytes());
    }
    let output = ip.wait_with_output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(io::Error::other(format!("ip: {text}")));
    }
    Ok(tap)
}

/// Starts the daemon in the namespace of the calling thread. `again`: it was there before, and
/// neighbors have kept its routes (RFC 4724).
fn daemon(program: &Path, folder: &Path, again: bool) -> io::Result<Child> {
    let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log"))?;
    let mut command = Command::new(program);
    command.args(["-f", "-c", "bird.conf", "-s", "control"]).current_dir(folder);
    if again {
        command.arg("-R");
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    child::spawn(&mut command, None)
}

/// The thread of a daemon.
struct Watch {
    child: Child,
    program: PathBuf,
    folder: Folder,
    shared: Arc<Shared>,
    begun: Instant,
    /// CPU time of daemons that have been restarted.
    cpu_before: Nanos,
    /// Protocols whose neighbors are asked for, and the questions.
    questions: Vec<(&'static str, &'static str)>,
}

impl Watch {
    fn run(mut self) {
        let shared = self.shared.clone();
        let stopped = || shared.stop.load(Ordering::Acquire);
        let socket = self.folder.0.join("control");
        let mut control = None;
        while !stopped() {
            if let Ok(Some(status)) = self.child.try_wait() {
                let again = match shared.restarting.load(Ordering::Acquire) {
                    true => daemon(&self.program, &self.folder.0, true).map_err(|e| e.to_string()),
                    false => Err(self.why(status)),
                };
                match again {
                    Ok(child) => self.child = child,
                    Err(why) => {
                        shared.state().fail(why);
                        return;
                    }
                }
                control = None;
                self.cpu_before = shared.state().cpu;
                shared.restarting.store(false, Ordering::Release);
            }
            if control.is_none() {
                control = ControlSocket::open(&socket, bird::reply, &stopped).ok();
            }
            match control.as_mut().map(|control| self.ask(control, &stopped)) {
                Some(Ok(protocols)) => self.update(protocols),
                Some(Err(_)) => control = None,
                None => {}
            }
            std::thread::park_timeout(INTERVAL);
        }
        end(&mut self.child, GOODBYE);
    }

    /// Asks for the states of the protocols.
    fn ask(
        &self,
        control: &mut ControlSocket,
        stopped: &dyn Fn() -> bool,
    ) -> io::Result<Vec<ProtocolState>> {
        let mut protocols = bird::protocols(&control.ask(bird::SHOW, stopped)?);
        for (name, question) in &self.questions {
            let neighbors = bird::neighbors(&control.ask(question, stopped)?);
            if let Some(protocol) = protocols.iter_mut().find(|one| one.name == *name) {
                protocol.neighbors = neighbors;
            }
        }
        Ok(protocols)
    }

    fn update(&self, protocols: Vec<ProtocolState>) {
        let pid = self.child.id();
        let (cpu, memory) = (nanos(child::run_time(pid)), child::peak_memory(pid));
        let mut state = self.shared.state();
        state.update(protocols, nanos(self.begun.elapsed()));
        (state.cpu, state.memory) = (self.cpu_before + cpu, state.memory.max(memory));
    }

    fn why(&self, status: ExitStatus) -> String {
        let log = fs::read(self.folder.0.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log[log.len().saturating_sub(LOG)..]).into_owned();
        let last = last_line(&log);
        let how = match (status.signal(), status.code()) {
            (Some(signal), _) => format!("signal {signal}"),
            (None, code) => format!("exit status {}", code.unwrap_or_default()),
        };
        if last.is_empty() { how } else { format!("{how}: {last}") }
    }
}

/// The last line of a daemon's log that may explain its end.
fn last_line(log: &str) -> &str {
    let explains = |line: &&str| !line.contains("<INFO>");
    log.trim().lines().rev().find(explains).unwrap_or_default()
}

/// Ends a daemon. BIRD takes back its routes and closes its sessions, for which it has `time`.
fn end(child: &mut Child, time: Duration) {
    child::terminate(child.id());
    let until = Instant::now() + time;
    while let Ok(None) = child.try_wait() {
        // Only a process that was not waited for: later its number, by which the whole group is
        // killed, may be that of another group.
        if Instant::now() >= until {
            child::kill(child.id());
            let _ = child.wait();
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};

    use super::*;

    #[test]
    fn a_folder_that_a_crash_left_is_passed_over() {
        let first = Folder::new().unwrap();
        let name = first.0.file_name().unwrap().to_str().unwrap();
        let (process, number) = name.rsplit_once('-').unwrap();
        let number: u32 = number.parse().unwrap();
        // Other tests may take some of the numbers meanwhile.
        let left: Vec<_> = (number + 1..number + 20)
            .map(|number| std::env::temp_dir().join(format!("{process}-{number}")))
            .filter(|folder| fs::create_dir(folder).is_ok())
            .map(Folder)
            .collect();
        let next = Folder::new().unwrap();
        assert!(next.0.is_dir() && left.iter().all(|folder| folder.0 != next.0), "{:?}", next.0);
    }

    #[test]
    fn an_error_has_the_path_of_the_folder() {
        let error = cannot_make(Path::new("/none/x"))(io::ErrorKind::NotFound.into());
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().starts_with("cannot make /none/x: "), "{error}");
    }

    /// A shell that has begun `script`, with its output.
    fn shell(script: &str) -> (Child, BufReader<std::process::ChildStdout>) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = child::spawn(&mut command, None).unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        (child, output)
    }

    #[test]
    fn no_signal_follows_a_daemon_that_has_ended() {
        // A process that remains plays a later group of the same number.
        let script = "(trap '' TERM; echo ready; sleep 1; echo alive) & wait";
        let (mut child, mut output) = shell(script);
        end(&mut child, Duration::from_secs(30));
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "alive\n");
    }

    #[test]
    fn a_daemon_that_does_not_end_is_killed() {
        let (mut child, _output) = shell("trap '' TERM; echo ready; while :; do sleep 1; done");
        end(&mut child, Duration::from_millis(20));
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn a_link_local_address_is_made_of_the_mac_address() {
        let mac = squall_units::MacAddr([2, 0, 0x5e, 0x10, 0, 1]);
        assert_eq!(link_local(mac), "fe80::5eff:fe10:1".parse::<std::net::Ipv6Addr>().unwrap());
    }
}
