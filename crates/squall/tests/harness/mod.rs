//! Runs tests in separate processes, because a process may only enter a private network while it
//! has a single thread.

use std::{
    error::Error,
    fmt,
    process::{Command, ExitCode},
};

pub type Outcome = Result<(), Box<dyn Error>>;

pub type Test = fn() -> Outcome;

/// The error of a test that cannot run on this machine.
#[derive(Debug)]
pub struct Skipped(pub String);

// By hand, because tests of crates without thiserror use this file.
impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Skipped {}

pub fn same<T: PartialEq + fmt::Debug>(name: &str, what: &str, found: T, expected: T) -> Outcome {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{name}: {what}: {found:?}, expected {expected:?}").into())
    }
}

/// Runs the `tests` named on the command line, each in its own process.
pub fn main(tests: &[(&str, Test)]) -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let ["--run", name] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return run_here(tests, name);
    }
    if arguments.iter().any(|a| a == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let filter = arguments.iter().find(|a| !a.starts_with('-')).map_or("", String::as_str);
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, _) in tests.iter().filter(|(name, _)| name.contains(filter)) {
        let status = Command::new(std::env::current_exe().expect("a test knows where it is"))
            .args(["--run", name])
            .status();
        match status.map(|s| s.code()) {
            Ok(Some(0)) => {
                println!("test {name} ... ok");
                passed += 1;
            }
            // 77 is automake's exit status for a skipped test.
            Ok(Some(77)) => skipped += 1,
            other => {
                println!("test {name} ... FAILED ({other:?})");
                failed += 1;
            }
        }
    }
    // Use libtest's format, for tools that add up results.
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; {skipped} ignored");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_here(tests: &[(&str, Test)], name: &str) -> ExitCode {
    let Some((_, test)) = tests.iter().find(|(known, _)| *known == name) else {
        return ExitCode::FAILURE;
    };
    match test() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error)
            if error.is::<Skipped>()
                || error.downcast_ref::<squall_port_linux::lab::LabError>().is_some_and(|e| {
                    matches!(e, squall_port_linux::lab::LabError::Forbidden { .. })
                }) =>
        {
            println!("SKIPPED: {name}: {error}");
            ExitCode::from(77)
        }
        Err(error) => {
            println!("FAILED: {name}: {error}");
            ExitCode::FAILURE
        }
    }
}
