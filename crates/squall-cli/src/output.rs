//! Writes the summary, the JSON and the HTML.

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    mem::ManuallyDrop,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
    process::ExitCode,
    sync::mpsc,
    thread,
};

use squall::{
    Error,
    report::{ReasonCode, Report, VerdictStatus, json::streams_to_json},
};
use squall_report::render;
use squall_units::Cannot;

use crate::{args::Output, pdf::Pdf};

/// Files for the result. Created before anything is sent: an invalid path must not cost ten minutes
/// of traffic.
pub struct Files {
    json: Option<(String, File)>,
    html: Option<(String, File)>,
    pdf: Option<Pdf>,
}

impl Output {
    pub fn create(&self) -> Result<Files, Error> {
        let json = self.json.as_deref().filter(|name| *name != "-").map(create).transpose()?;
        let html = self.report.as_ref().map(|path| create(&path.to_string_lossy())).transpose()?;
        let pdf = self.pdf.as_deref().map(Pdf::create).transpose()?;
        Ok(Files { json, html, pdf })
    }

    /// Writes the report to its destinations. Returns the exit status, which depends on the verdict
    /// and `--fail-if`. `extra` follows the summary. Leaves out the notes in `shown`, already
    /// printed on standard error, if the summary goes to the same terminal.
    pub fn publish(
        &self,
        report: Report,
        files: Files,
        extra: &str,
        shown: &[String],
    ) -> Result<ExitCode, Error> {
        // The process ends now, and freeing a million streams would take it as long as their text.
        let mut report = ManuallyDrop::new(report);
        let mut results = Results::default();
        results.write_json(files.json, &mut report);
        results.write(files.html, || render::html(&report));
        results.print(files.pdf, || render::html(&report));
        let packets_there = self.to_stderr;
        let to_stdout = self.json.as_deref() == Some("-") || (results.are_lost() && !packets_there);
        let to_stderr = to_stdout || self.to_stderr;
        let json = to_stdout.then(|| report.to_json() + "\n");
        if to_stderr || goes_to_one_place() {
            report.notes.retain(|note| !shown.contains(note));
        }
        let (width, color) = look(to_stderr, WIDTH);
        let page = self.report.as_deref().filter(|_| !results.are_lost());
        let pages = named(page) + &named(self.pdf.as_deref().filter(|_| !results.are_lost()));
        let text = || lines(&render::summary(&report, width, color)) + &pages + extra;
        match to_stderr {
            _ if self.quiet => {}
            true => eprint!("{}", text()),
            false => print(&text()),
        }
        json.iter().for_each(|json| print_data(json));
        if results.are_lost() && packets_there {
            eprint!("{}\n", report.to_json());
        }
        let mut violations = report.verdict.failed.clone();
        violations.extend(self.fail_if.iter().flat_map(|criterion| criterion.check(&report)));
        violations.iter().for_each(|violation| eprintln!("squall: failed: {violation}"));
        // A run that lost its port has failed, whatever its counters are.
        let lost = report.verdict.has(ReasonCode::PortLost);
        // With `--quiet` there is no summary with the reasons, so print them here.
        let why = report.verdict.reasons.iter().filter(|reason| match reason.code {
            ReasonCode::PortLost => self.quiet,
            _ => self.quiet && !self.allow_invalid,
        });
        why.for_each(|reason| eprintln!("squall: not valid: {}", reason.brief()));
        let unwritten = report.capture.as_ref().and_then(|capture| capture.error.as_ref());
        unwritten.iter().for_each(|error| eprintln!("squall: {error}"));
        let unread = report.replays.iter().find_map(|replay| replay.fault.as_ref());
        unread.iter().for_each(|fault| eprintln!("squall: {fault}"));
        let verdict = &report.verdict;
        let interrupted = verdict.ended_by.signal().filter(|_| report.cut_short && !self.saved);
        results.end()?;
        Ok(ExitCode::from(match (lost || unwritten.is_some(), unread, interrupted) {
            (true, ..) => 3,
            (_, Some(_), _) => 2,
            (_, _, Some(signal)) => 128 + signal,
            _ if !violations.is_empty() => 1,
            _ if verdict.status == VerdictStatus::NotValid && !self.allow_invalid => 4,
            _ => 0,
        }))
    }
}

/// The line of a summary that says where a page is.
pub fn named(page: Option<&Path>) -> String {
    let absolute = |page: &Path| std::path::absolute(page).unwrap_or_else(|_| page.into());
    page.map_or_else(String::new, |page| format!("Report: {}\n", absolute(page).display()))
}

/// Files for a result. If one cannot be written (a full disk, a removed directory), the result is
/// printed instead of lost.
#[derive(Default)]
pub struct Results {
    error: Option<Error>,
}

impl Results {
    pub fn write(&mut self, file: Option<(String, File)>, text: impl FnOnce() -> String) {
        if let Some((name, file)) = file
            && let Err(error) = write(&name, file, &text())
        {
            self.error.get_or_insert(error);
        }
    }

    /// Writes a report as JSON.
    pub fn write_json(&mut self, file: Option<(String, File)>, report: &mut Report) {
        let Some((name, mut file)) = file else { return };
        if let Err(error) = write_report(report, &mut file) {
            self.error.get_or_insert(Cannot::write(&name, &error).into());
        }
    }

    /// Prints a page.
    pub fn print(&mut self, pdf: Option<Pdf>, html: impl FnOnce() -> String) {
        if let Some(Err(error)) = pdf.map(|pdf| pdf.write(&html())) {
            self.error.get_or_insert(error);
        }
    }

    /// Whether a file could not be written, so the result must be printed as JSON.
    pub fn are_lost(&self) -> bool {
        self.error.is_some()
    }

    /// Ends the output after the result has been printed.
    ///
    /// # Errors
    /// If a file could not be written.
    pub fn end(self) -> Result<(), Error> {
        self.error.map_or(Ok(()), |error| {
            Err(Error::Environment(format!("{error}\n  the result was printed instead, as JSON")))
        })
    }
}

/// Number of streams whose text a thread makes at once: some 1.2 MB.
const AT_ONCE: usize = 4096;
/// Number of texts of a thread that may wait to be written.
const WAITING: usize = 2;
const MOST_THREADS: usize = 8;

/// Writes a report as JSON. Several threads make the text of many streams.
fn write_report(report: &mut Report, mut out: impl Write) -> io::Result<()> {
    if report.streams.len() <= AT_ONCE {
        return out.write_all((report.to_json() + "\n").as_bytes());
    }
    let (before, after) = report.json_around_streams();
    out.write_all(before.as_bytes())?;
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let parts = || report.streams.chunks(AT_ONCE);
    thread::scope(|scope| {
        let start = |first: usize| {
            let (sender, texts) = mpsc::sync_channel(WAITING);
            let parts = parts().skip(first).step_by(threads);
            let work = move || {
                for part in parts {
                    // There is no receiver after an error in `out`.
                    if sender.send(streams_to_json(part)).is_err() {
                        break;
                    }
                }
            };
            let thread = thread::Builder::new().name("squall-json".into());
            thread.spawn_scoped(scope, work).ok().map(|_| texts)
        };
        let texts: Vec<_> = (0..threads).map(start).collect();
        for (number, part) in parts().enumerate() {
            let text = texts[number % threads].as_ref().and_then(|texts| texts.recv().ok());
            // If its thread could not start, the text is made here.
            let text = text.unwrap_or_else(|| streams_to_json(part));
            // The first octet is the comma after the stream before.
            out.write_all(&text[usize::from(number == 0)..])?;
        }
        Ok::<_, io::Error>(())
    })?;
    out.write_all((after + "\n").as_bytes())
}

/// Width of a summary if the output is not a terminal.
pub const WIDTH: usize = 100;

/// Width of the summary on standard error or standard output, and whether to color it. If the
/// output is not a terminal, the width is `otherwise`.
pub fn look(to_stderr: bool, otherwise: usize) -> (usize, bool) {
    let (size, terminal) = match to_stderr {
        true => (terminal_size::terminal_size_of(io::stderr()), io::stderr().is_terminal()),
        false => (terminal_size::terminal_size_of(io::stdout()), io::stdout().is_terminal()),
    };
    let color = terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    (size.map_or(otherwise, |(width, _)| usize::from(width.0)), color)
}

/// Whether standard output and standard error go to the same terminal or file (`2>&1`).
pub fn goes_to_one_place() -> bool {
    let file = |stream: BorrowedFd<'_>| {
        let found = File::from(stream.try_clone_to_owned().ok()?).metadata().ok()?;
        Some((found.dev(), found.ino()))
    };
    let same =
        file(io::stdout().as_fd()).is_some_and(|out| file(io::stderr().as_fd()) == Some(out));
    same || (io::stdout().is_terminal() && io::stderr().is_terminal())
}

fn lines(text: &str) -> String {
    format!("{}\n", text.trim_end_matches('\n'))
}

/// Prints readable text on standard output. A closed pipe (`| head`) is not an error.
pub fn print(text: &str) {
    _ = print_on(text);
}

/// Like [`print`]. Returns whether the pipe is still open, for commands that print repeatedly.
pub fn print_on(text: &str) -> bool {
    write_on(&render::terminal(text))
}

/// Prints data for programs (JSON, TOML) on standard output. Changes nothing unless that is a
/// terminal.
pub fn print_data(text: &str) {
    match io::stdout().is_terminal() {
        true => print(text),
        false => _ = write_on(text),
    }
}

/// Writes to standard error. Ignores errors: a closed standard error must not end the run.
pub fn tell(text: &str) {
    let mut stderr = io::stderr().lock();
    _ = stderr.write_all(render::terminal(text).as_bytes()).and_then(|()| stderr.flush());
}

fn write_on(text: &str) -> bool {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => false,
        Err(error) => {
            eprintln!(
                "squall: {}\n  its content is here instead",
                Cannot::write("standard output", &error)
            );
            tell(text);
            std::process::exit(3);
        }
    }
}

/// Writes to a file, or to standard output for `-`.
pub fn write_to(name: &str, text: &str) -> Result<(), Error> {
    if name == "-" {
        print_data(text);
        return Ok(());
    }
    let (name, file) = create(name)?;
    write(&name, file, text)
}

pub fn create(name: &str) -> Result<(String, File), Error> {
    let file = File::create(name).map_err(|error| Cannot::write(name, &error))?;
    Ok((name.to_owned(), file))
}

pub fn write(name: &str, mut file: File, text: &str) -> Result<(), Error> {
    Ok(file.write_all(text.as_bytes()).map_err(|error| Cannot::write(name, &error))?)
}

#[cfg(test)]
mod tests {
    use squall::report::StreamReport;

    use super::*;

    /// A file on a disk with room for this number of octets.
    struct Disk(Vec<u8>, usize);

    impl Write for Disk {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            if self.0.len() + text.len() > self.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn streams(number: usize) -> Report {
        let stream = |i: usize| StreamReport {
            name: format!("stream {i}"),
            tx_packets: i as u64,
            asked_pps: (!i.is_multiple_of(3)).then_some(0.1 * i as f64),
            not_sent: i.is_multiple_of(2).then_some(("late", 7)).into_iter().collect(),
            ..StreamReport::default()
        };
        Report { streams: (0..number).map(stream).collect(), ..Report::default() }
    }

    #[test]
    fn reports_with_many_streams_are_written_as_a_whole() {
        for number in [0, 1, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE + 7] {
            let (mut report, mut disk) = (streams(number), Disk(Vec::new(), usize::MAX));
            write_report(&mut report, &mut disk).unwrap();
            assert!(disk.0 == (report.to_json() + "\n").as_bytes(), "{number} streams");
            assert_eq!(report.streams.len(), number);
        }
    }

    #[test]
    fn a_full_disk_ends_the_text_of_a_report_with_many_streams() {
        let error = write_report(&mut streams(9 * AT_ONCE), Disk(Vec::new(), 3_000_000));
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
