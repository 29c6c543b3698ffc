//! Shows the progress of long work in one line, which is rewritten in place on a terminal.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

/// A progress line. Shows nothing if standard error is not a terminal, or if the work ends quickly.
pub struct ProgressLine {
    on: bool,
    shown: bool,
    began: Instant,
    last: Instant,
}

const EVERY: Duration = Duration::from_millis(200);
const MOMENT: Duration = Duration::from_millis(500);

impl ProgressLine {
    pub fn new(quiet: bool) -> Self {
        let now = Instant::now();
        Self { on: !quiet && io::stderr().is_terminal(), shown: false, began: now, last: now }
    }

    pub fn began(&self) -> Instant {
        self.began
    }

    /// Shows `text` from time to time.
    pub fn update(&mut self, text: impl FnOnce() -> String) {
        if !self.on || self.last.elapsed() < EVERY || self.began.elapsed() < MOMENT {
            return;
        }
        self.last = Instant::now();
        let width = terminal_size::terminal_size_of(io::stderr())
            .map_or(80, |(width, _)| usize::from(width.0));
        let text: String =
            text().chars().filter(|c| !c.is_control()).take(width.saturating_sub(1)).collect();
        write(&format!("\r\x1b[K{text}"));
        self.shown = true;
    }

    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            write("\r\x1b[K");
        }
    }
}

/// Ignores errors: a closed terminal shows no progress anyway.
fn write(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}
