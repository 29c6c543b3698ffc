//! A routing daemon in a network namespace of its own, whose interface is a link to a port.
//!
//! A thread enters the namespace, makes the interface, starts the daemon, and asks it for the states
//! of its protocols until it is dropped. The kernel kills the daemon with the thread, and the
//! namespace ends with both: nothing remains after a crash.

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

use squall_port::FrameLink;
use squall_port_linux::{child, control::ControlSocket, lab::find_program, tap::Tap};
use squall_router::{DaemonState, ProtocolState, RouterSettings, bird};
use squall_units::Nanos;

/// Time between two requests for the states of a daemon.
const INTERVAL: Duration = Duration::from_millis(100);
/// Time that a daemon has to end its sessions.
const GOODBYE: Duration = Duration::from_secs(1);
/// Octets of a daemon's log that are kept.
const LOG: usize = 16 * 1024;

/// A running daemon; dropping it ends the daemon.
pub struct Router {
    state: Arc<Mutex<DaemonState>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Router {
    /// Starts the daemon for `settings`, with an interface whose longest IP packet has `mtu` octets.
    /// Returns it with the other end of its link.
    ///
    /// # Errors
    /// The daemon or `ip` is not installed, a namespace or an interface is not permitted, or the
    /// daemon refuses its configuration: the error has its message.
    pub fn start(
        name: &str,
        settings: &RouterSettings,
        mtu: u32,
    ) -> io::Result<(Self, Box<dyn FrameLink>)> {
        let program = find_program("bird").ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "bird is not installed\n  try apt-get install bird2, or your system's own package \
                 of it",
            )
        })?;
        let folder = Folder::new()?;
        fs::write(folder.0.join("bird.conf"), bird::configuration(settings))?;
        check(&program, &folder.0)?;
        let commands = interface(settings, mtu);
        let state = Arc::new(Mutex::new(DaemonState::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let (report, started) = mpsc::channel();
        let (of_thread, stopped) = (state.clone(), stop.clone());
        let run = move || match enter(&commands, &program, &folder.0) {
            Ok((child, tap)) => {
                let begun = Instant::now();
                if report.send(Ok(tap)).is_ok() {
                    Watch { child, folder, state: of_thread, stop: stopped, begun }.run();
                }
            }
            Err(error) => _ = report.send(Err(error)),
        };
        // The kernel keeps 15 octets.
        let thread = std::thread::Builder::new().name(format!("rt {name}")).spawn(run)?;
        let router = Self { state, stop, thread: Some(thread) };
        let tap = started.recv().map_err(|_| io::Error::other("its thread ended"))??;
        Ok((router, Box::new(tap)))
    }

    pub fn state(&self) -> DaemonState {
        lock(&self.state).clone()
    }
}

impl Drop for Router {
    /// Ends the daemon, which first ends its sessions.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<DaemonState>) -> MutexGuard<'_, DaemonState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder for files of one daemon, which ends with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("squall-router-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // Only this user may read it: it can hold passwords.
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
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
    lines.push(format!("link set {name} up"));
    lines.join("\n") + "\n"
}

/// Moves the calling thread into a new network namespace with the interface, and starts the daemon
/// there.
fn enter(commands: &str, program: &Path, folder: &Path) -> io::Result<(Child, Tap)> {
    let tap = Tap::in_new_namespace(bird::INTERFACE)?;
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
    let log = fs::File::create(folder.join("log"))?;
    let mut command = Command::new(program);
    command.args(["-f", "-c", "bird.conf", "-s", "control"]).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Ok((child::spawn(&mut command, None)?, tap))
}

/// The thread of a daemon.
struct Watch {
    child: Child,
    folder: Folder,
    state: Arc<Mutex<DaemonState>>,
    stop: Arc<AtomicBool>,
    begun: Instant,
}

impl Watch {
    fn run(mut self) {
        let mut control = None;
        while !self.stop.load(Ordering::Acquire) {
            if let Ok(Some(status)) = self.child.try_wait() {
                lock(&self.state).failed = Some(self.why(status));
                return;
            }
            if control.is_none() {
                control = ControlSocket::open(&self.folder.0.join("control"), bird::reply).ok();
            }
            let reply = control
                .as_mut()
                .map(|control| control.ask(bird::SHOW, &|| self.stop.load(Ordering::Acquire)));
            match reply {
                Some(Ok(reply)) => self.update(bird::protocols(&reply)),
                Some(Err(_)) => control = None,
                None => {}
            }
            std::thread::park_timeout(INTERVAL);
        }
        // BIRD takes back its routes and closes its sessions.
        child::terminate(self.child.id());
        let until = Instant::now() + GOODBYE;
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        child::kill(self.child.id());
        let _ = self.child.wait();
    }

    fn update(&self, protocols: Vec<ProtocolState>) {
        let pid = self.child.id();
        let (cpu, memory) = (nanos(child::run_time(pid)), child::peak_memory(pid));
        let mut state = lock(&self.state);
        for one in &protocols {
            let known = state.up_after.iter().any(|(name, _)| *name == one.name);
            if one.is_up && !known {
                state.up_after.push((one.name.clone(), nanos(self.begun.elapsed())));
            }
            let before = state.protocols.iter().find(|before| before.name == one.name);
            let fell = before.is_some_and(|before| before.is_up) && !one.is_up;
            state.downs += u64::from(fell);
        }
        (state.protocols, state.cpu, state.memory) = (protocols, cpu, memory);
    }

    fn why(&self, status: ExitStatus) -> String {
        let log = fs::read(self.folder.0.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log[log.len().saturating_sub(LOG)..]).into_owned();
        let telling = |line: &&str| !line.contains("<INFO>");
        let last = log.trim().lines().rev().find(telling).unwrap_or_default().to_owned();
        let how = match (status.signal(), status.code()) {
            (Some(signal), _) => format!("signal {signal}"),
            (None, code) => format!("exit status {}", code.unwrap_or_default()),
        };
        if last.is_empty() { how } else { format!("{how}: {last}") }
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
