//! The daemon's log on standard error: lines with time and level, or in the format of systemd's
//! journal.

use std::{
    io::{self, Write},
    os::unix::fs::MetadataExt,
};

use squall_report::render;
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    fmt::MakeWriter,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// Starts logging. Must be called only once per process.
pub fn start(level: LevelFilter) {
    let journal = is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref());
    // Libraries log at WARN at most: at lower levels the HTTP library logs each frame.
    let targets =
        Targets::new().with_target("squall", level).with_default(level.min(LevelFilter::WARN));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(Lines { journal })
        // Log lines may contain paths and names from clients, which must not control a terminal.
        .with_ansi(false)
        // Write errors must not end the daemon: standard error may be a file on a full disk.
        .log_internal_errors(false);
    // The journal adds the time and the level itself.
    let lines = match journal {
        true => lines.without_time().with_level(false).boxed(),
        false => lines.boxed(),
    };
    _ = tracing_subscriber::registry().with(lines.with_filter(targets)).try_init();
}

/// Whether standard error goes to the journal: `JOURNAL_STREAM` (in `stream`) has the device and
/// inode of the journal's socket.
fn is_journal(stream: Option<&str>) -> bool {
    let about = std::fs::metadata("/proc/self/fd/2");
    let here = about.map(|about| format!("{}:{}", about.dev(), about.ino()));
    here.is_ok_and(|here| stream == Some(here.as_str()))
}

/// Writes to standard error line by line.
struct Lines {
    journal: bool,
}

/// Writer for a single event.
struct Line {
    /// Priority prefix as in sd-daemon(3).
    priority: &'static str,
}

impl MakeWriter<'_> for Lines {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line { priority: "" }
    }

    fn make_writer_for(&self, about: &tracing::Metadata<'_>) -> Line {
        Line { priority: if self.journal { priority(*about.level()) } else { "" } }
    }
}

fn priority(level: tracing::Level) -> &'static str {
    match level {
        tracing::Level::ERROR => "<3>",
        tracing::Level::WARN => "<4>",
        tracing::Level::INFO => "<6>",
        tracing::Level::DEBUG | tracing::Level::TRACE => "<7>",
    }
}

impl Write for Line {
    /// Writes an event with one call, because several threads log concurrently.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = [self.priority.as_bytes(), render::terminal(&text).as_bytes()].concat();
        io::stderr().lock().write_all(&line)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_known_by_what_standard_error_is() {
        let about = std::fs::metadata("/proc/self/fd/2").expect("there is one");
        assert!(is_journal(Some(&format!("{}:{}", about.dev(), about.ino()))));
        for other in [None, Some(""), Some("1:2"), Some("journal")] {
            assert!(!is_journal(other), "{other:?}");
        }
    }
}
