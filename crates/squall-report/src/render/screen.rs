//! Lines of a terminal that are redrawn in place.

use std::io::{self, Write};

use super::table::{printable, terminal};

/// Lines on stderr. The state of the terminal never changes: each frame is a single write that
/// turns line wrap off and on again, and the cursor stays visible below the lines.
pub struct Screen {
    out: Box<dyn Write + Send>,
    size: fn() -> (usize, usize),
    color: bool,
    /// Number of lines of the current frame, and the width of the terminal when it was drawn.
    drawn: usize,
    columns: usize,
}

impl Screen {
    pub fn stderr() -> Self {
        let size = || {
            let size = terminal_size::terminal_size_of(io::stderr());
            size.map_or((80, 24), |(columns, rows)| (columns.0.into(), rows.0.into()))
        };
        let color = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        Self::to(Box::new(io::stderr()), size, color)
    }

    fn to(out: Box<dyn Write + Send>, size: fn() -> (usize, usize), color: bool) -> Self {
        Self { out, size, color, drawn: 0, columns: 0 }
    }

    /// Columns and rows.
    pub fn size(&self) -> (usize, usize) {
        (self.size)()
    }

    pub fn color(&self) -> bool {
        self.color
    }

    /// Replaces the current lines.
    pub fn draw(&mut self, lines: &[String]) {
        let columns = self.size().0;
        // Synchronized update (2026) avoids flicker; terminals that do not support it ignore it.
        // Line wrap (7) is off, because a wrapped line would make the table move up the screen.
        let mut text = String::from("\x1b[?2026h\x1b[?7l");
        if self.drawn > 0 {
            text += &format!("\x1b[{}F", self.drawn);
        }
        // If the terminal has become narrower, it has wrapped the lines, so their number is
        // unknown.
        if self.drawn > 0 && columns < self.columns {
            text += "\x1b[H\x1b[J";
        }
        for line in lines {
            text += &format!("{}\x1b[K\n", terminal(line));
        }
        text += "\x1b[J\x1b[?7h\x1b[?2026l";
        (self.drawn, self.columns) = (lines.len(), columns);
        self.write(&text);
    }

    /// Prints a permanent line above the redrawn ones.
    pub fn note(&mut self, text: &str) {
        self.erase();
        self.write(&format!("{}\n", printable(text)));
    }

    /// Removes the lines, which makes room for later output.
    pub fn erase(&mut self) {
        match std::mem::take(&mut self.drawn) {
            0 => {}
            lines => self.write(&format!("\x1b[{lines}F\x1b[J")),
        }
    }

    pub(super) fn write(&mut self, text: &str) {
        // Ignored: an error of a view must not end the run.
        let _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }
}

#[cfg(test)]
pub(super) mod played {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A terminal of 80 columns and 24 rows that records the output.
    #[derive(Clone, Default)]
    pub struct Played(Arc<Mutex<Vec<u8>>>);

    impl Write for Played {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(octets);
            Ok(octets.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Played {
        pub fn screen(&self) -> Screen {
            Screen::to(Box::new(self.clone()), || (80, 24), false)
        }

        pub fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }

        /// The visible text, derived from the few escape sequences that Squall writes.
        pub fn shown(&self) -> Vec<String> {
            let text = self.text();
            let mut lines: Vec<Vec<char>> = vec![Vec::new()];
            let (mut row, mut column) = (0, 0);
            let mut rest = text.as_str();
            while let Some(c) = rest.chars().next() {
                if let Some(sequence) = rest.strip_prefix("\x1b[") {
                    let end = sequence.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                    match &sequence[end..=end] {
                        "F" => (row, column) = (row - sequence[..end].parse::<usize>().unwrap(), 0),
                        "J" => {
                            lines.truncate(row + 1);
                            lines[row].truncate(column);
                        }
                        "K" => lines[row].truncate(column),
                        "h" | "l" | "m" => {}
                        other => panic!("{other:?}"),
                    }
                    rest = &sequence[end + 1..];
                    continue;
                }
                rest = &rest[c.len_utf8()..];
                if c == '\n' {
                    (row, column) = (row + 1, 0);
                    lines.resize(lines.len().max(row + 1), Vec::new());
                } else {
                    if column < lines[row].len() {
                        lines[row][column] = c;
                    } else {
                        lines[row].push(c);
                    }
                    column += 1;
                }
            }
            lines.into_iter().map(|line| line.into_iter().collect()).collect()
        }
    }
}
