//! Carries out the steps of a router and live orders, in its namespace, with a control socket of
//! its own: the thread that asks for states may wait seconds for a reply.
//!
//! Single routes are lines for one `ip -batch`, which lives as long as the thread. The daemon hears
//! of them by netlink messages, of which it can lose some: after each step, the number of routes
//! that it has is compared with that of the table. Routes that flap wait if the numbers differ for
//! a second, because a number that changes all the time shows no loss.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, atomic::Ordering, mpsc},
    time::{Duration, Instant},
};

use squall_port::monotonic;
use squall_port_linux::{child, control::ControlSocket, lab::find_program};
use squall_router::{
    Daemon, DaemonCall, Due, GroupPart, RouterOrder, RouterSettings, Schedule, Steered, Step,
    StepState, bird, frr,
};
use squall_units::Nanos;

use super::{Shared, frr::Sockets};

/// Longest time between two reads of the flags of the other threads.
const LOOK: Duration = Duration::from_millis(100);
/// Shortest and longest time between two questions for the daemon's number of routes.
const ASK: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];
/// Time without a change after which the daemon is thought to have lost messages, and reads the
/// whole table again; and how often.
const LOST: Duration = Duration::from_secs(1);
const RELOADS: u32 = 5;
/// Time that a daemon has to end or to start.
const RESTART: Duration = Duration::from_secs(30);
/// Asks for the protocols that read the kernel's table.
const KERNEL: &str = "show protocols all \"kernel*\"\n";

pub enum Message {
    /// The start of the run, by the clock of [`monotonic`].
    Begin(Nanos),
    /// An order, the time after which its reverse follows, and the time of the order.
    Order(RouterOrder, Option<Nanos>, Nanos),
    Stop,
}

pub struct Steering {
    settings: RouterSettings,
    steered: Steered,
    schedule: Schedule,
    messages: mpsc::Receiver<Message>,
    shared: Arc<Shared>,
    start: Option<Nanos>,
}

impl Steering {
    pub fn new(
        settings: RouterSettings,
        steered: Steered,
        steps: &[Step],
        messages: mpsc::Receiver<Message>,
        shared: Arc<Shared>,
    ) -> Self {
        let schedule = Schedule::new(steps);
        let mut state = shared.state();
        state.groups = steered.counts(&settings);
        state.next_step = schedule.first().cloned();
        drop(state);
        Self { settings, steered, schedule, messages, shared, start: None }
    }

    /// Works until the daemon has ended. `folder` has its files.
    pub fn run(mut self, folder: &Path) {
        let moves = self.steered.has_singles() || self.settings.has_interior_groups();
        let ip = moves.then(|| Batch::start(folder));
        let mut hands = Hands {
            folder,
            shared: self.shared.clone(),
            daemon: self.settings.daemon,
            control: None,
            sockets: Sockets::new(folder),
            ip,
            unconfirmed: None,
            watched: None,
        };
        let mut counted = Instant::now();
        let (mut pause, mut waited) = (FlapPause::default(), Nanos::ZERO);
        while !self.shared.is_over() {
            let wait = self.wait(&hands, pause.is_on());
            match self.messages.recv_timeout(wait) {
                Ok(Message::Begin(at)) => self.start = Some(at),
                Ok(Message::Order(order, duration, at)) => {
                    // It is late if the thread was busy with another one.
                    let at = self.start.map_or(Nanos::ZERO, |start| at.saturating_sub(start));
                    self.schedule.order(at, order, duration);
                }
                Ok(Message::Stop) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            let (Some(start), Some(now)) = (self.start, self.now()) else { continue };
            hands.note_frames(start);
            while !self.shared.is_over()
                && let Some(due) = self.schedule.take(now)
            {
                self.carry_out(due, start, &mut hands);
            }
            let flaps = self.steered.next_flap().is_some();
            let ended = pause.update(flaps && hands.needs_rest(), now);
            if let Some(lasted) = ended {
                self.steered.delay_flaps(lasted);
                waited = waited + lasted;
            }
            if pause.is_on() || ended.is_some() {
                // The run may end before the pause does.
                self.shared.state().flaps_waited = waited + pause.so_far(now);
            }
            let lines = if pause.is_on() { String::new() } else { self.steered.flap(now) };
            if !lines.is_empty()
                && let Err(error) = hands.kernel(&lines)
                && !self.shared.is_over()
            {
                self.steered.end_flaps();
                let order = RouterOrder::Withdraw(GroupPart::default());
                self.shared.state().add_step(StepState {
                    due: Due { at: now, order, duration: None, is_live: false },
                    begun: now,
                    acknowledged: None,
                    routes: 0,
                    sent: None,
                    error: Some(format!("routes no longer flap: {error}")),
                });
            }
            if counted.elapsed() >= LOOK && self.steered.next_flap().is_some() {
                counted = Instant::now();
                self.shared.state().groups = self.steered.counts(&self.settings);
            }
            hands.confirm(self.steered.kernel_routes(), start);
        }
    }

    /// Time since the start of the run; `None` before it.
    fn now(&self) -> Option<Nanos> {
        since(self.start?)
    }

    fn wait(&self, hands: &Hands<'_>, flaps_wait: bool) -> Duration {
        let look = hands.unconfirmed.as_ref().map_or(LOOK, |unconfirmed| unconfirmed.pause);
        let flap = self.steered.next_flap().filter(|_| !flaps_wait);
        let next = self.schedule.next().into_iter().chain(flap).min();
        let (Some(start), Some(next)) = (self.start, next) else { return look };
        let at = start.0.saturating_add(next.0);
        Duration::from_nanos(at.saturating_sub(monotonic().0)).min(look)
    }

    fn carry_out(&mut self, due: Due, start: Nanos, hands: &mut Hands<'_>) {
        let begun = monotonic();
        // The gate keeps the frames of one step.
        hands.note_frames(start);
        self.shared.gate.watch(begun);
        let mut state = self.shared.state();
        state.next_step = Some(due.clone());
        let mut protocols = state.protocols.clone();
        drop(state);
        // Only the daemon knows the sessions of a configuration of the user's own, and the other
        // thread may not have asked it yet.
        if protocols.is_empty()
            && self.settings.configuration.is_some()
            && let Ok(reply) = hands.ask(bird::SHOW)
        {
            protocols = bird::protocols(&reply);
        }
        let mut step = StepState {
            begun: Nanos(begun.0.saturating_sub(start.0)),
            acknowledged: None,
            routes: 0,
            sent: None,
            error: None,
            due,
        };
        // Single routes are counted; the kernel is asked for the errors of other lines.
        let mut waits = false;
        match self.steered.calls(&self.settings, &protocols, &step.due.order) {
            Err(error) => step.error = Some(error.to_string()),
            Ok(calls) => {
                self.shared.state().excuse(calls.ends);
                step.routes = calls.routes;
                let has_lines =
                    calls.calls.iter().any(|call| matches!(call, DaemonCall::Kernel(_)));
                waits = has_lines && self.steered.has_singles();
                let mut done = calls.calls.into_iter().try_for_each(|call| hands.call(call));
                if has_lines && !waits && done.is_ok() {
                    done = hands.finish_lines();
                }
                step.error = done.err().map(|error| error.to_string());
                self.schedule.reverse(&step.due, calls.routes);
            }
        }
        let fails = step.error.is_some();
        let is_to_be_seen = waits && self.steered.kernel_routes().is_some();
        if !fails && !is_to_be_seen {
            step.acknowledged = since(start);
        }
        let mut state = self.shared.state();
        if !fails && step.due.order == RouterOrder::Talk {
            state.end_excuses(self.settings.recovery());
        }
        state.groups = self.steered.counts(&self.settings);
        state.next_step = self.schedule.first().cloned();
        let number = state.add_step(step);
        drop(state);
        hands.watched = number;
        if waits && !fails {
            let from = number.unwrap_or(usize::MAX);
            let unconfirmed = hands.unconfirmed.get_or_insert_with(|| Unconfirmed::new(from));
            unconfirmed.begun = Instant::now();
            (unconfirmed.since, unconfirmed.reloads) = (unconfirmed.begun, 0);
            unconfirmed.pause = ASK[0];
        }
    }
}

/// Since when flaps wait, on the clock of the run.
#[derive(Default)]
struct FlapPause(Option<Nanos>);

impl FlapPause {
    fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Begins or ends the pause as `wanted`. Returns how long it was, if it ends.
    fn update(&mut self, wanted: bool, now: Nanos) -> Option<Nanos> {
        if wanted {
            self.0.get_or_insert(now);
            return None;
        }
        Some(now.saturating_sub(self.0.take()?))
    }

    fn so_far(&self, now: Nanos) -> Nanos {
        self.0.map_or(Nanos::ZERO, |since| now.saturating_sub(since))
    }
}

/// Time since `start`; `None` before it.
fn since(start: Nanos) -> Option<Nanos> {
    monotonic().0.checked_sub(start.0).map(Nanos)
}

/// Steps whose single routes the daemon may not have yet.
struct Unconfirmed {
    /// Number of the first one.
    from: usize,
    /// Time of the last one.
    begun: Instant,
    /// The daemon's last number of routes, and since when it has been the same.
    count: Option<u64>,
    since: Instant,
    reloads: u32,
    /// Time of the last question, and the pause after it.
    asked: Instant,
    pause: Duration,
}

impl Unconfirmed {
    fn new(from: usize) -> Self {
        let now = Instant::now();
        Self { from, begun: now, count: None, since: now, reloads: 0, asked: now, pause: ASK[0] }
    }
}

/// The connections of the thread to the daemon and the kernel.
struct Hands<'a> {
    folder: &'a Path,
    shared: Arc<Shared>,
    daemon: Daemon,
    /// The connection to BIRD, and those to the processes of FRR.
    control: Option<ControlSocket>,
    sockets: Sockets,
    ip: Option<io::Result<Batch>>,
    unconfirmed: Option<Unconfirmed>,
    /// The step after which frames of the daemon are noted.
    watched: Option<usize>,
}

impl Hands<'_> {
    fn call(&mut self, call: DaemonCall) -> io::Result<()> {
        match call {
            DaemonCall::Control(line) => {
                let reply = self.ask(&line)?;
                match bird::refusal(&reply) {
                    Some(why) => Err(io::Error::other(format!("BIRD: {why}"))),
                    None => Ok(()),
                }
            }
            DaemonCall::Vty(process, lines) => {
                let shared = self.shared.clone();
                let stopped = || shared.is_over();
                // It may still be starting.
                let until = Instant::now() + RESTART;
                while self.sockets.connect(process, &stopped).is_err()
                    && !stopped()
                    && Instant::now() < until
                {
                    std::thread::sleep(ASK[1]);
                }
                let done = self.sockets.run(process, &lines, &stopped);
                done.map_err(|error| io::Error::new(error.kind(), format!("FRR: {error}")))
            }
            DaemonCall::Kernel(lines) => self.kernel(&lines),
            DaemonCall::Restart => self.restart(),
            DaemonCall::Link(passes) => {
                self.shared.gate.silence(!passes);
                Ok(())
            }
        }
    }

    /// Sends a command to the daemon, which may still be starting.
    fn ask(&mut self, line: &str) -> io::Result<String> {
        let shared = self.shared.clone();
        let stopped = || shared.is_over();
        let socket = self.folder.join("control");
        let until = Instant::now() + RESTART;
        while self.control.is_none() {
            match ControlSocket::open(&socket, bird::reply, &stopped) {
                Ok(control) => self.control = Some(control),
                Err(error) if stopped() || Instant::now() > until => return Err(error),
                Err(_) => std::thread::sleep(ASK[1]),
            }
        }
        let Some(control) = &mut self.control else { return Err(io::ErrorKind::NotFound.into()) };
        let reply = control.ask(line, &stopped);
        if reply.is_err() {
            self.control = None;
        }
        reply
    }

    fn kernel(&mut self, lines: &str) -> io::Result<()> {
        let ip = match &mut self.ip {
            Some(Ok(ip)) => ip,
            Some(Err(error)) => return Err(io::Error::new(error.kind(), format!("ip: {error}"))),
            None => return Err(io::Error::other("ip is not running")),
        };
        // Millions of routes take minutes, and the end of a run does not wait for them.
        for part in lines.as_bytes().chunks(1 << 16) {
            if self.shared.is_over() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            ip.input.write_all(part)?;
        }
        ip.input.flush()
    }

    /// Waits until `ip` has carried out all lines, and returns its first error among those since the
    /// last call.
    fn finish_lines(&mut self) -> io::Result<()> {
        let Some(Ok(ip)) = &mut self.ip else { return Ok(()) };
        let shared = self.shared.clone();
        ip.finish(self.folder, &|| shared.is_over())
    }

    /// Ends the daemon without a goodbye to its neighbors, where these agreed to that. The other
    /// thread starts it again.
    fn restart(&mut self) -> io::Result<()> {
        self.shared.restarting.store(true, Ordering::Release);
        let shared = self.shared.clone();
        // The daemon may end before its reply has left.
        let _ = self.ask("graceful restart\n");
        self.control = None;
        let until = Instant::now() + RESTART;
        while shared.restarting.load(Ordering::Acquire) {
            if shared.is_over() || Instant::now() > until {
                shared.restarting.store(false, Ordering::Release);
                return Err(io::Error::other("BIRD did not end for its restart"));
            }
            std::thread::sleep(ASK[1]);
        }
        // A reply shows that it runs.
        self.ask("show status\n").map(|_| ())
    }

    /// Whether the daemon's number of single routes has differed long enough that no route should
    /// change until it has been compared.
    fn needs_rest(&self) -> bool {
        self.unconfirmed.as_ref().is_some_and(|unconfirmed| unconfirmed.begun.elapsed() >= LOST)
    }

    /// Number of single routes that the daemon has.
    fn single_routes(&mut self) -> io::Result<u64> {
        if self.daemon != Daemon::Frr {
            return self.ask(KERNEL).map(|reply| bird::imported(&reply));
        }
        let shared = self.shared.clone();
        let stopped = || shared.is_over();
        let [of_4, of_6] =
            frr::KERNEL.map(|text| self.sockets.ask(frr::Process::Zebra, text, &stopped));
        Ok(frr::kernel_routes([of_4?.as_str(), of_6?.as_str()]))
    }

    /// Compares the daemon's number of single routes with `expected`, if steps wait for it.
    fn confirm(&mut self, expected: Option<u64>, start: Nanos) {
        let Some(expected) = expected else {
            self.unconfirmed = None;
            return;
        };
        match &mut self.unconfirmed {
            Some(unconfirmed) if unconfirmed.asked.elapsed() >= unconfirmed.pause => {
                unconfirmed.asked = Instant::now();
                unconfirmed.pause = (2 * unconfirmed.pause).min(ASK[1]);
            }
            _ => return,
        }
        let Ok(found) = self.single_routes() else { return };
        let Some(unconfirmed) = &mut self.unconfirmed else { return };
        if found == expected {
            let from = unconfirmed.from;
            self.shared.state().acknowledge(from, since(start).unwrap_or_default());
            self.unconfirmed = None;
            return;
        }
        if unconfirmed.count != Some(found) {
            (unconfirmed.count, unconfirmed.since) = (Some(found), Instant::now());
        } else if unconfirmed.since.elapsed() >= LOST {
            unconfirmed.since = Instant::now();
            unconfirmed.reloads += 1;
            if unconfirmed.reloads > RELOADS {
                let log = Batch::last_error(self.folder);
                let name = self.daemon.name();
                let why = format!("{name} has {found} of {expected} routes of the kernel{log}");
                let from = unconfirmed.from;
                self.shared.state().fail_steps(from, &why);
                self.unconfirmed = None;
                return;
            }
            // FRR ends if it loses messages.
            if self.daemon != Daemon::Frr {
                let _ = self.ask("reload in \"kernel*\"\n");
            }
        }
    }

    /// Takes over the times of the frames that the daemon has sent after the last step.
    fn note_frames(&self, start: Nanos) {
        let Some(number) = self.watched else { return };
        if let Some((first, last)) = self.shared.gate.sent() {
            let after = |time: Nanos| Nanos(time.0.saturating_sub(start.0));
            self.shared.state().note_frames(number, (after(first), after(last)));
        }
    }
}

/// The program `ip`, which reads commands for the routes of the namespace.
struct Batch {
    child: Child,
    input: ChildStdin,
    /// Octets of its errors that have been read.
    read: usize,
    marks: u32,
}

/// The file of its errors.
const ERRORS: &str = "ip.log";

impl Batch {
    fn start(folder: &Path) -> io::Result<Self> {
        let program = find_program("ip").unwrap_or_else(|| "ip".into());
        let errors = fs::File::create(folder.join(ERRORS))?;
        let mut command = Command::new(program);
        // After an error, the next command is still carried out.
        command.args(["-force", "-batch", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(errors);
        let mut child = child::spawn(&mut command, None)?;
        let input = child.stdin.take().ok_or_else(|| io::Error::other("it has no input"))?;
        Ok(Self { child, input, read: 0, marks: 0 })
    }

    /// Waits until all lines are carried out. `ip` answers none, but a word that it does not know
    /// is an error, before which are those of the lines.
    fn finish(&mut self, folder: &Path, stopped: &dyn Fn() -> bool) -> io::Result<()> {
        self.marks += 1;
        let mark = format!("mark-{}", self.marks);
        writeln!(self.input, "{mark}")?;
        self.input.flush()?;
        let until = Instant::now() + RESTART;
        loop {
            let errors = fs::read(folder.join(ERRORS))?;
            let new = String::from_utf8_lossy(errors.get(self.read..).unwrap_or_default());
            let marked = new.find(&format!("Object \"{mark}\""));
            if let Some(end) = marked.filter(|end| new[*end..].contains('\n')) {
                let is_error = |line: &&str| !line.starts_with("Command failed");
                let error = new[..end].lines().find(is_error).map(str::to_owned);
                // The number of the mark's line may follow.
                self.read += end + new[end..].find('\n').map_or(0, |length| length + 1);
                return error.map_or(Ok(()), |error| Err(io::Error::other(format!("ip: {error}"))));
            }
            if stopped() || Instant::now() > until || self.child.try_wait()?.is_some() {
                return Err(io::Error::other("ip does not answer"));
            }
            std::thread::sleep(ASK[0]);
        }
    }

    /// `: ` and the last error of the program, if there is one.
    fn last_error(folder: &Path) -> String {
        let text = fs::read_to_string(folder.join(ERRORS)).unwrap_or_default();
        text.lines().next_back().map_or_else(String::new, |line| format!(": ip: {line}"))
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            child::kill(self.child.id());
        }
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        os::unix::net::UnixListener,
        path::PathBuf,
        sync::atomic::AtomicBool,
        thread::JoinHandle,
    };

    use squall_router::GroupPart;

    use super::*;

    /// A folder with the socket of a daemon that has one route of two until it reads the table.
    /// While `flaps` is set, its number of routes is another one with each reply. It returns the
    /// number at the end.
    fn lossy_daemon(name: &str, flaps: Arc<AtomicBool>) -> (PathBuf, JoinHandle<u32>) {
        let name = format!("squall-steering-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let listener = UnixListener::bind(folder.join("control")).unwrap();
        let daemon = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let requests = BufReader::new(stream.try_clone().unwrap());
            stream.write_all(b"0001 BIRD 2.0.12 ready.\n").unwrap();
            let mut routes = 1;
            for (number, request) in (0u32..).zip(requests.lines().map_while(Result::ok)) {
                routes += u32::from(request.starts_with("reload in"));
                let more = if flaps.load(Ordering::Acquire) { 2 + number % 3 } else { 0 };
                let found = routes + more;
                let reply = format!("1006-\n     Routes:         {found} imported\n0000 \n");
                stream.write_all(reply.as_bytes()).unwrap();
            }
            routes
        });
        (folder, daemon)
    }

    /// The connections to a daemon, which should have taken over a step by now.
    fn waiting<'a>(folder: &'a Path, shared: &Arc<Shared>) -> Hands<'a> {
        let order = RouterOrder::Announce(GroupPart::default());
        let number = shared.state().add_step(StepState {
            due: Due { at: Nanos::ZERO, order, duration: None, is_live: false },
            begun: Nanos::ZERO,
            acknowledged: None,
            routes: 1,
            sent: None,
            error: None,
        });
        Hands {
            folder,
            shared: shared.clone(),
            daemon: Daemon::Bird,
            control: None,
            sockets: Sockets::new(folder),
            ip: None,
            unconfirmed: number.map(Unconfirmed::new),
            watched: None,
        }
    }

    #[test]
    fn a_daemon_that_has_lost_messages_of_the_kernel_reads_its_table_again() {
        let (folder, daemon) = lossy_daemon("lost", Arc::default());
        let shared = Arc::new(Shared::default());
        let mut hands = waiting(&folder, &shared);
        let start = monotonic();
        while hands.unconfirmed.is_some() {
            hands.confirm(Some(2), start);
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(hands);
        assert_eq!(daemon.join().unwrap(), 2);
        let step = shared.state().steps[0].clone();
        assert!(step.acknowledged.is_some() && step.error.is_none(), "{step:?}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn errors_of_ip_are_those_of_the_lines_before() {
        if find_program("ip").is_none() {
            return;
        }
        let name = format!("squall-steering-ip-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let shared = Arc::new(Shared::default());
        let mut hands = waiting(&folder, &shared);
        hands.ip = Some(Batch::start(&folder));
        for (lines, expected) in [
            ("", None),
            ("addr show dev none-a\naddr show dev none-b\n", Some("none-a")),
            ("", None),
            ("addr show dev none-c\n", Some("none-c")),
        ] {
            hands.kernel(lines).unwrap();
            let error = hands.finish_lines().err().map(|error| error.to_string());
            let is_expected = match (&error, expected) {
                (Some(error), Some(part)) => error.contains(part),
                (found, _) => found.is_none() && expected.is_none(),
            };
            assert!(is_expected, "{error:?} {expected:?}");
        }
        drop(hands);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn routes_that_flap_wait_until_lost_messages_are_repaired() {
        let flaps = Arc::new(AtomicBool::new(true));
        let (folder, daemon) = lossy_daemon("flaps", flaps.clone());
        let shared = Arc::new(Shared::default());
        let mut hands = waiting(&folder, &shared);
        let (start, until) = (monotonic(), Instant::now() + Duration::from_secs(60));
        let mut pause = FlapPause::default();
        let lasted = loop {
            assert!(Instant::now() < until, "the loss is not repaired");
            let over = pause.update(hands.needs_rest(), since(start).unwrap_or_default());
            flaps.store(!pause.is_on(), Ordering::Release);
            if let Some(lasted) = over {
                break lasted;
            }
            hands.confirm(Some(2), start);
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(lasted > Nanos::ZERO && hands.unconfirmed.is_none());
        drop(hands);
        assert_eq!(daemon.join().unwrap(), 2);
        let step = shared.state().steps[0].clone();
        assert!(step.acknowledged.is_some() && step.error.is_none(), "{step:?}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
