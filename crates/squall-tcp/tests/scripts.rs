//! Packet scripts (tests/scripts, described in its README.md). Each runs against this stack in
//! virtual time, and, if Linux supports it, against Linux's TCP in a network namespace in real
//! time. docs/rfc/tcp.md lists them all.
//!
//! `cargo test -p squall-tcp --test scripts -- WORD` runs the scripts with WORD in their names.

mod runner;

use std::{
    collections::VecDeque,
    error::Error,
    fs,
    io::ErrorKind,
    panic,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::Mutex,
    thread,
};

use runner::{
    index, linux,
    play::{self, Mode},
    script::{Family, Linux, Script, Target},
    squall::Squall,
};
use squall_port_linux::lab::LabError;
use squall_units::Nanos;

/// Tolerance for Linux, whose packets are sent in real time on a shared machine.
const LINUX_TOLERANCE: Nanos = Nanos(30_000_000);
/// Relative tolerance for this stack: round-trip times have a precision of 16 bits, and timers of
/// several round trips multiply the error.
const STRETCH: f64 = 0.01;
/// A script that failed because the CPU was busy passes when it runs again, alone.
const ATTEMPTS: u32 = 3;
const MAX_RERUNS: usize = 10;
/// Number of scripts that run in parallel: they mostly wait.
const PARALLEL: usize = 12;
/// Name of the test that checks the list of scripts.
const INDEX: &str = "docs_list_all_scripts";
/// automake's exit status for a skipped test.
const SKIPPED: u8 = 77;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let ["--linux", file, family] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..]
    {
        return play_here(file, family);
    }
    let scripts = match read_all() {
        Ok(scripts) => scripts,
        Err(error) => {
            println!(
                "test all_scripts_are_read ... FAILED\n{error}\n\ntest result: FAILED. 0 passed; \
                 1 failed; 0 ignored"
            );
            return ExitCode::FAILURE;
        }
    };
    let filter = arguments.iter().find(|a| !a.starts_with('-')).map_or("", String::as_str);
    let tests: Vec<_> =
        tests(&scripts).into_iter().filter(|test| test.name().contains(filter)).collect();
    if arguments.iter().any(|a| a == "--list") {
        println!("{INDEX}: test");
        tests.iter().for_each(|test| println!("{}: test", test.name()));
        return ExitCode::SUCCESS;
    }
    let queue = Mutex::new(tests.into_iter().collect::<VecDeque<_>>());
    let outcomes = Mutex::new(vec![]);
    thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                while let Some(test) = { queue.lock().expect("no thread panics").pop_front() } {
                    let outcome = test.run();
                    outcomes.lock().expect("no thread panics").push((test, outcome));
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().expect("no thread panics");
    // If many scripts fail, a busy CPU is not the reason.
    let in_real_time = |test: &Test<'_>, outcome: &Outcome| {
        test.target == Target::Linux && matches!(outcome, Outcome::Failed(_))
    };
    let few =
        outcomes.iter().filter(|(test, outcome)| in_real_time(test, outcome)).count() <= MAX_RERUNS;
    let judge = |(test, outcome): (Test<'_>, Outcome)| {
        let run_again = few && in_real_time(&test, &outcome);
        (test.name(), if run_again { test.run_again() } else { outcome })
    };
    let mut outcomes: Vec<_> = outcomes.into_iter().map(judge).collect();
    if INDEX.contains(filter) {
        outcomes.push((
            INDEX.into(),
            index::check(&scripts).map_or_else(Outcome::Failed, |()| Outcome::Passed),
        ));
    }
    outcomes.sort_by(|a, b| a.0.cmp(&b.0));
    print_results(&outcomes)
}

enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

struct Test<'a> {
    script: &'a Script,
    target: Target,
    family: Family,
}

fn tests(scripts: &[Script]) -> Vec<Test<'_>> {
    let mut tests = vec![];
    for script in scripts {
        for &family in &script.families {
            tests.push(Test { script, target: Target::Squall, family });
            // Runs only once, because separate scripts cover the differences of IPv6.
            if script.linux == Linux::Yes && family == script.families[0] {
                tests.push(Test { script, target: Target::Linux, family });
            }
        }
    }
    tests
}

impl Test<'_> {
    fn name(&self) -> String {
        let target = if self.target == Target::Linux { "linux" } else { "squall" };
        format!("{target} {} {}", self.script.file, family_name(self.family))
    }

    fn run(&self) -> Outcome {
        if self.target == Target::Linux { self.on_linux() } else { self.on_squall() }
    }

    fn on_squall(&self) -> Outcome {
        let Self { script, family, .. } = *self;
        let mode = Mode {
            target: Target::Squall,
            family,
            tolerance: script.tolerance,
            stretch: STRETCH,
            grace: Nanos::ZERO,
        };
        let played = panic::catch_unwind(|| {
            let mut subject = Squall::new(script, family)?;
            play::play(script, mode, &mut subject)
        });
        match played {
            Ok(Ok(())) => Outcome::Passed,
            Ok(Err(problem)) => Outcome::Failed(problem),
            Err(_) => Outcome::Failed(format!("{}: the stack panicked (see above)", script.file)),
        }
    }

    fn on_linux(&self) -> Outcome {
        let own = std::env::current_exe().expect("a test knows where it is");
        let done = match Command::new(own)
            .args(["--linux", &self.script.file, family_name(self.family)])
            .output()
        {
            Ok(done) => done,
            Err(error) => return Outcome::Failed(error.to_string()),
        };
        let stderr = String::from_utf8_lossy(&done.stdout).into_owned()
            + &String::from_utf8_lossy(&done.stderr);
        match done.status.code().map(u8::try_from) {
            Some(Ok(0)) => Outcome::Passed,
            Some(Ok(SKIPPED)) => Outcome::Skipped(stderr),
            _ => Outcome::Failed(stderr),
        }
    }

    /// Runs a failed real-time test again, alone.
    fn run_again(&self) -> Outcome {
        (1..ATTEMPTS).fold(self.run(), |outcome, _| {
            if let Outcome::Failed(_) = outcome { self.run() } else { outcome }
        })
    }
}

fn family_name(family: Family) -> &'static str {
    if family == Family::V4 { "v4" } else { "v6" }
}

/// Runs one script against Linux, in its own process.
fn play_here(file: &str, family: &str) -> ExitCode {
    let family = if family == "v6" { Family::V6 } else { Family::V4 };
    let played = read(&folder().join(file)).and_then(|script| {
        let mut subject = linux::Linux::enter(&script, family)?;
        let tolerance = LINUX_TOLERANCE.max(script.tolerance);
        let mode =
            Mode { target: Target::Linux, family, tolerance, stretch: 0.2, grace: Nanos::SECOND };
        Ok(play::play(&script, mode, &mut subject)?)
    });
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::from(if error.downcast_ref().is_some_and(is_missing_privilege) {
                SKIPPED
            } else {
                1
            })
        }
    }
}

/// Whether namespaces, sysctls or the programs that set them up are unavailable.
fn is_missing_privilege(error: &LabError) -> bool {
    match error {
        LabError::Forbidden { .. } => true,
        LabError::Io { source, .. } => {
            matches!(
                source.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::NotFound
            )
        }
        _ => false,
    }
}

fn print_results(outcomes: &[(String, Outcome)]) -> ExitCode {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, outcome) in outcomes {
        match outcome {
            Outcome::Passed => {
                println!("test {name} ... ok");
                passed += 1;
            }
            Outcome::Skipped(reason) => {
                println!("SKIPPED: {name}: {}", reason.trim().replace('\n', " "));
                skipped += 1;
            }
            Outcome::Failed(reason) => {
                println!("test {name} ... FAILED\n  {}\n", reason.trim().replace('\n', "\n  "));
                failed += 1;
            }
        }
    }
    // The format of libtest, so that tools can add up the results.
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; {skipped} ignored");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

fn read_all() -> Result<Vec<Script>, Box<dyn Error>> {
    let mut files = vec![];
    let mut folders = vec![folder()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "pkt") {
                files.push(path);
            }
        }
    }
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

fn read(path: &Path) -> Result<Script, Box<dyn Error>> {
    let text = fs::read_to_string(path)?;
    let name = path.strip_prefix(folder()).unwrap_or(path).display().to_string();
    Ok(Script::parse(&name, &text)?)
}
