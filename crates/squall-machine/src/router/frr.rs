//! FRR in a router's network namespace: its processes, and questions by their vty sockets.
//!
//! A process of FRR changes its user, by which the kernel clears `PR_SET_PDEATHSIG`. Their
//! supervisor does not: a shell that is the first process of a PID namespace, with which the kernel
//! ends all processes there. It ends with Squall's thread, and has a line for each process that has
//! ended.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    fs,
    io::{self, BufRead, BufReader},
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, atomic::Ordering, mpsc},
    time::{Duration, Instant},
};

use squall_port_linux::{child, control::ControlSocket, lab::find_program};
use squall_router::{
    RouterSettings,
    frr::{self, Process},
};

use super::{Folder, INTERVAL, Shared, cannot_make, last_line, nanos};

/// The user that the processes become, and its group.
const USER: &str = "frr";
/// Folders of its programs in packages of distributions.
const FOLDERS: [&str; 4] =
    ["/usr/lib/frr", "/usr/libexec/frr", "/usr/local/libexec/frr", "/usr/local/sbin"];

/// The supervisor: its arguments are the folder of the files, that of the programs, and the names
/// of the processes. Its output has the name and exit status of each process that ends. It ends
/// with its input, and with it all processes.
///
/// The other processes connect to zebra when they start, and try again after 10 s. It has its vty
/// socket when it accepts them.
const SUPERVISOR: &str = r#"
folder=$1 programs=$2
shift 2
exec 3>&1 >>"$folder/log" 2>&1
start() {
  name=$1
  case $name in
    zebra) set -- -s 33554432 ;;
    bgpd) set -- -n ;;
    bfdd) set -- --bfdctl "$folder/bfdd.sock" ;;
    *) set -- ;;
  esac
  (
    "$programs/$name" -f "$folder/$name.conf" -i "$folder/$name.pid" -z "$folder/zserv.api" \
      --vty_socket "$folder" -P 0 -u frr -g frr --log stdout --log-level warnings "$@" 3>&-
    echo "$name $?" >&3
  ) &
}
for name; do
  start "$name"
  until [ -S "$folder/zebra.vty" ]; do sleep 0.01; done
done
exec 3>&-
while read -r line; do :; done
"#;

/// FRR keeps files of its own in /var/run/frr and /var/tmp/frr: these are others in its mount
/// namespace, and end with it.
const OWN_FOLDERS: &str = r#"
case $1 in
  /run/* | /var/run/* | /var/tmp/*) ;;
  *) for place in /var/run /var/tmp; do mount -t tmpfs -o mode=1777 squall $place; done ;;
esac
"#;

/// FRR on this machine, with its files for a router.
pub struct Frr {
    programs: PathBuf,
    processes: Vec<Process>,
    questions: Vec<(Process, &'static str)>,
    settings: RouterSettings,
}

/// Running processes.
pub struct Supervised {
    /// The parent of the supervisor.
    child: Child,
    /// The end of each process: its name and exit status.
    ends: mpsc::Receiver<String>,
}

impl Frr {
    /// Finds FRR, and writes its configurations into `folder`, which then belongs to its user.
    ///
    /// # Errors
    /// FRR is not installed, Squall is not root, or FRR's user cannot enter the folder.
    pub fn new(settings: &RouterSettings, mtu: u32, folder: &Path) -> io::Result<Self> {
        let missing = |text: &str| io::Error::new(io::ErrorKind::NotFound, text.to_owned());
        let processes = frr::processes(settings);
        let programs = programs().ok_or_else(|| {
            missing(
                "FRR is not installed\n  try apt-get install frr, or your system's own package of \
                 it (its service is not needed)",
            )
        })?;
        if let Some(process) = processes.iter().find(|of| !programs.join(of.name()).is_file()) {
            let text = format!("FRR has no {} in {}", process.name(), programs.display());
            return Err(missing(&text));
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let (user, group) = account(&users).ok_or_else(|| {
            missing("FRR's user is not there: frr\n  try apt-get install frr, which makes it")
        })?;
        for process in &processes {
            let path = folder.join(format!("{}.conf", process.name()));
            let text = frr::configuration(settings, *process, mtu);
            fs::write(&path, text).map_err(cannot_make(&path))?;
        }
        let own = |path: PathBuf| {
            chown(path, Some(user), Some(group)).map_err(|error| {
                let text = format!("FRR needs root: {error}\n  try sudo, or daemon = \"bird\"");
                io::Error::new(io::ErrorKind::PermissionDenied, text)
            })
        };
        for entry in fs::read_dir(folder)? {
            own(entry?.path())?;
        }
        own(folder.to_owned())?;
        if let Some(closed) = closed(folder, (user, group)) {
            let text =
                format!("FRR's user cannot enter {}\n  try another TMPDIR", closed.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let questions = frr::questions(settings);
        Ok(Self { programs, processes, questions, settings: settings.clone() })
    }

    /// Starts the processes in the network namespace of the calling thread, with which they end.
    ///
    /// # Errors
    /// `unshare` is not installed, or cannot be started.
    pub fn start(&self, folder: &Path) -> io::Result<Supervised> {
        let unshare = find_program("unshare").unwrap_or_else(|| "unshare".into());
        let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log"))?;
        let mut command = Command::new(unshare);
        command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c"]);
        command.arg(format!("{OWN_FOLDERS}{SUPERVISOR}")).arg("sh");
        command.arg(folder).arg(&self.programs).args(self.processes.iter().map(|of| of.name()));
        // The write end of its input is kept, and closed with Squall.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = child::spawn(&mut command, None)
            .map_err(|error| io::Error::new(error.kind(), format!("unshare: {error}")))?;
        let (sender, ends) = mpsc::channel();
        let watch = std::thread::current();
        if let Some(output) = child.stdout.take() {
            std::thread::Builder::new().name("frr ends".into()).spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                    watch.unpark();
                }
            })?;
        }
        Ok(Supervised { child, ends })
    }
}

/// The folder of FRR's programs.
fn programs() -> Option<PathBuf> {
    let of_path = find_program("zebra").and_then(|path| fs::canonicalize(path).ok());
    let of_path = of_path.and_then(|path| path.parent().map(Path::to_owned));
    let known = FOLDERS.into_iter().map(PathBuf::from);
    of_path.into_iter().chain(known).find(|folder| folder.join("zebra").is_file())
}

/// The numbers of FRR's user and its group, from the text of `/etc/passwd`.
fn account(users: &str) -> Option<(u32, u32)> {
    let of_user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let user = fields.nth(1)?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        (name == USER).then_some((user, group))
    };
    users.lines().find_map(of_user)
}

/// The first folder above `folder` that a user with this number, and that of its group, cannot
/// enter.
fn closed(folder: &Path, (user, group): (u32, u32)) -> Option<&Path> {
    let is_closed = |above: &&Path| {
        fs::metadata(above).is_ok_and(|of| {
            let bit = match (of.uid() == user, of.gid() == group) {
                (true, _) => 0o100,
                (false, true) => 0o010,
                (false, false) => 0o001,
            };
            of.mode() & bit == 0
        })
    };
    folder.ancestors().skip(1).find(is_closed)
}

/// The thread of a router's FRR.
pub struct Watch {
    pub frr: Frr,
    pub supervised: Supervised,
    pub folder: Folder,
    pub shared: Arc<Shared>,
    pub begun: Instant,
}

impl Watch {
    pub fn run(mut self) {
        let shared = self.shared.clone();
        let stopped = || shared.stop.load(Ordering::Acquire);
        let mut sockets = Sockets::new(&self.folder.0);
        let mut is_read = false;
        while !stopped() {
            if let Some(why) = self.supervised.ended(&self.folder.0) {
                shared.state().fail(why);
                break;
            }
            let ask = |(process, text): &(Process, &'static str)| {
                sockets.ask(*process, text, &stopped).map(|reply| (*text, reply))
            };
            let replies: io::Result<BTreeMap<_, _>> = self.frr.questions.iter().map(ask).collect();
            if let Ok(replies) = replies {
                // Each has read its configuration when it answers.
                if !std::mem::replace(&mut is_read, true)
                    && let Some(line) = refused(&log(&self.folder.0))
                {
                    shared.state().fail(format!("it refuses its configuration: {line}"));
                    break;
                }
                self.update(&replies);
            }
            std::thread::park_timeout(INTERVAL);
        }
        // Later its number may be that of another group.
        if let Ok(None) = self.supervised.child.try_wait() {
            child::kill(self.supervised.child.id());
            let _ = self.supervised.child.wait();
        }
    }

    fn update(&self, replies: &BTreeMap<&'static str, String>) {
        let all = child::tree(self.supervised.child.id());
        let cpu: Duration = all.iter().map(|pid| child::run_time(*pid)).sum();
        let memory: u64 = all.iter().map(|pid| child::peak_memory(*pid)).sum();
        let protocols = frr::protocols(&self.frr.settings, replies);
        let mut state = self.shared.state();
        state.update(protocols, nanos(self.begun.elapsed()));
        (state.cpu, state.memory) = (state.cpu.max(nanos(cpu)), state.memory.max(memory));
    }
}

impl Supervised {
    /// Why they have ended, if one of them has.
    fn ended(&mut self, folder: &Path) -> Option<String> {
        let how = match (self.ends.try_recv(), self.child.try_wait()) {
            (Ok(line), _) => how(&line),
            // The line of a process may come just after the end of the supervisor.
            (Err(_), Ok(Some(status))) => self
                .ends
                .recv_timeout(INTERVAL)
                .map_or_else(|_| format!("its supervisor: {status}"), |line| how(&line)),
            _ => return None,
        };
        let log = log(folder);
        let last = last_line(&log);
        Some(if last.is_empty() { how } else { format!("{how}: {last}") })
    }
}

/// How a process has ended, from its line of the supervisor.
fn how(line: &str) -> String {
    let Some((name, status)) = line.split_once(' ') else { return line.to_owned() };
    // A shell shows a signal as 128 and its number.
    match status.parse::<u32>() {
        Ok(status) if status > 128 => format!("{name}: signal {}", status - 128),
        _ => format!("{name}: exit status {status}"),
    }
}

fn log(folder: &Path) -> String {
    String::from_utf8_lossy(&fs::read(folder.join("log")).unwrap_or_default()).into_owned()
}

/// The first line of a log by which a process refuses a line of its configuration.
fn refused(log: &str) -> Option<&str> {
    let texts = ["on config line", "failed to read configuration file"];
    log.lines().find(|line| texts.iter().any(|text| line.contains(text)))
}

/// Connections to the vty sockets of FRR's processes.
pub struct Sockets {
    folder: PathBuf,
    open: HashMap<Process, ControlSocket>,
}

impl Sockets {
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), open: HashMap::new() }
    }

    /// Sends a command to a process, and returns its reply. `stopped` ends the wait for it.
    ///
    /// # Errors
    /// The process does not listen or answer, or refuses the command.
    pub fn ask(
        &mut self,
        process: Process,
        command: &str,
        stopped: &dyn Fn() -> bool,
    ) -> io::Result<String> {
        let name = process.name();
        let asked = self.connect(process, stopped).and_then(|socket| {
            // A command ends with a zero octet.
            socket.ask(&format!("{command}\0"), stopped)
        });
        let reply = asked.map_err(|error| {
            self.open.remove(&process);
            io::Error::new(error.kind(), format!("{name}: {error}"))
        })?;
        match frr::refusal(&reply) {
            Some(why) => Err(io::Error::other(format!("{name}: {command}: {why}"))),
            None => Ok(reply),
        }
    }

    /// The connection to a process.
    ///
    /// # Errors
    /// The process does not listen.
    pub fn connect(
        &mut self,
        process: Process,
        stopped: &dyn Fn() -> bool,
    ) -> io::Result<&mut ControlSocket> {
        match self.open.entry(process) {
            Entry::Occupied(socket) => Ok(socket.into_mut()),
            Entry::Vacant(place) => {
                let path = self.folder.join(format!("{}.vty", process.name()));
                let mut socket = ControlSocket::without_greeting(&path, frr::reply)?;
                // Without it, only questions are permitted.
                socket.ask("enable\0", stopped)?;
                Ok(place.insert(socket))
            }
        }
    }

    /// Carries out commands one after the other.
    ///
    /// # Errors
    /// As for [`Sockets::ask`]: the commands after it are left out.
    pub fn run(
        &mut self,
        process: Process,
        commands: &[String],
        stopped: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let done = commands.iter().try_for_each(|line| self.ask(process, line, stopped).map(drop));
        if done.is_err() {
            // The next command does not begin in the middle of a configuration.
            self.open.remove(&process);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixListener,
    };

    use super::*;

    #[test]
    fn the_user_of_frr_has_the_numbers_of_its_line() {
        let users = "root:x:0:0:root:/root:/bin/sh\nfrr:x:107:112:Frr,,,:/nonexistent:/bin/false\n";
        assert_eq!(account(users), Some((107, 112)));
        assert_eq!(account("frrvty:x:1:2\nfrr:x:y:1\nfrr\n"), None);
    }

    #[test]
    fn a_folder_that_the_user_cannot_enter_is_found() {
        let folder = Folder::new().unwrap();
        let file = folder.0.join("zebra.conf");
        let of = fs::metadata(&folder.0).unwrap();
        // Only its owner may enter it.
        let other = (of.uid() + 1, of.gid());
        assert_eq!(closed(&file, other), Some(&*folder.0));
        assert_ne!(closed(&file, (of.uid(), of.gid())), Some(&*folder.0));
    }

    #[test]
    fn a_signal_is_above_128() {
        assert_eq!(how("zebra 139"), "zebra: signal 11");
        assert_eq!(how("bgpd 1"), "bgpd: exit status 1");
    }

    #[test]
    fn the_end_of_the_supervisor_has_the_line_of_a_process_and_the_log() {
        let ended = |output: &str, log: &str| {
            let folder = Folder::new().unwrap();
            fs::write(folder.0.join("log"), log).unwrap();
            let mut child = Command::new("false").spawn().unwrap();
            child.wait().unwrap();
            let (sender, ends) = mpsc::channel();
            for line in output.lines() {
                sender.send(line.to_owned()).unwrap();
            }
            drop(sender);
            Supervised { child, ends }.ended(&folder.0)
        };
        assert_eq!(ended("zebra 1", "bad\n").as_deref(), Some("zebra: exit status 1: bad"));
        let alone = ended("", "mount: no permission\n");
        assert_eq!(alone.as_deref(), Some("its supervisor: exit status: 1: mount: no permission"));
    }

    #[test]
    fn commands_go_to_the_process_after_enable_and_end_with_the_first_that_is_refused() {
        let folder = std::env::temp_dir().join(format!("squall-vty-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let listener = UnixListener::bind(folder.join("bgpd.vty")).unwrap();
        let process = std::thread::spawn(move || {
            let mut commands = Vec::new();
            while commands.last().is_none_or(|last| *last != "again") {
                let (mut stream, _) = listener.accept().unwrap();
                let mut command = Vec::new();
                let mut octet = [0];
                while stream.read(&mut octet).unwrap() > 0 {
                    if octet[0] != 0 {
                        command.push(octet[0]);
                        continue;
                    }
                    let text = String::from_utf8(std::mem::take(&mut command)).unwrap();
                    let reply: &[u8] = match text.as_str() {
                        "bad" => b"% Unknown command.\n\0\0\0\x02",
                        "show" => b"{}\n\0\0\0\0",
                        _ => b"\0\0\0\0",
                    };
                    commands.push(text);
                    stream.write_all(reply).unwrap();
                }
            }
            commands
        });
        let mut sockets = Sockets::new(&folder);
        let shown = sockets.ask(Process::Bgpd, "show", &|| false).unwrap();
        assert_eq!(frr::text(&shown), "{}\n");
        let commands = ["configure", "bad", "left out"].map(str::to_owned);
        let error = sockets.run(Process::Bgpd, &commands, &|| false).unwrap_err();
        assert_eq!(error.to_string(), "bgpd: bad: % Unknown command.");
        sockets.run(Process::Bgpd, &["again".into()], &|| false).unwrap();
        let none = sockets.ask(Process::Ospfd, "show", &|| false).unwrap_err();
        assert!(none.to_string().starts_with("ospfd: "), "{none}");
        drop(sockets);
        let expected = ["enable", "show", "configure", "bad", "enable", "again"];
        assert_eq!(process.join().unwrap(), expected);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_line_that_a_process_refuses_is_found_in_the_log() {
        let log = "zebra: state\nOSPF: No such command on config line 3: ip ospf x\n";
        let found = refused(log);
        assert_eq!(found, Some("OSPF: No such command on config line 3: ip ospf x"));
        assert_eq!(refused("bgpd 8.4.4 starting\n"), None);
    }

    #[test]
    fn the_end_of_a_process_is_a_line_and_all_end_with_the_input() {
        let folder = Folder::new().unwrap();
        std::os::unix::fs::symlink("/bin/false", folder.0.join("zebra")).unwrap();
        let _socket = UnixListener::bind(folder.0.join("zebra.vty")).unwrap();
        let mut child = Command::new("sh")
            .args(["-c", SUPERVISOR, "sh"])
            .args([&folder.0, &folder.0])
            .arg("zebra")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = String::new();
        child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        assert_eq!(output, "zebra 1\n");
        assert!(child.try_wait().unwrap().is_none(), "it lives as long as its input");
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
