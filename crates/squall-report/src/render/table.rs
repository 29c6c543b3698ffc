//! Columns aligned to a given width, measured in terminal columns.

use std::{
    borrow::Cow,
    hash::{BuildHasher, RandomState},
    sync::OnceLock,
};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Style of a cell. Without color, all styles look the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    #[default]
    Plain,
    Dim,
    Bold,
    Good,
    Bad,
}

impl Style {
    /// Marks `text` with this style. Only [`terminal`] turns the marks into colors.
    pub fn paint(self, text: &str, color: bool) -> String {
        let code = match self {
            _ if !color || text.is_empty() => return text.into(),
            Self::Plain => return text.into(),
            Self::Dim => "2",
            Self::Bold => "1",
            Self::Good => "32",
            Self::Bad => "1;31",
        };
        format!("{}{code}m{text}{0}0m", mark())
    }
}

/// Mark that precedes a color until the text is printed. It is a random number of this process, so
/// text from a profile, a capture or a peer cannot contain it, and cannot set colors wherever it is
/// inserted.
fn mark() -> &'static str {
    static MARK: OnceLock<String> = OnceLock::new();
    MARK.get_or_init(|| format!("\x1b[{};", RandomState::new().hash_one("colours")))
}

/// Marks the colors in a library's text, which [`terminal`] then keeps.
pub fn own_colors(text: &str) -> String {
    let mut pieces = text.split("\x1b[");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        out += if color_of(piece).is_some() { mark() } else { "\x1b[" };
        out += piece;
    }
    out
}

/// A text and its style.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// Shows `n` in red unless it is 0; for losses and errors.
    pub fn fault(n: u64, text: String) -> Self {
        Self { text, style: if n == 0 { Style::Dim } else { Style::Bad } }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), style: Style::Plain }
    }
}

impl Cell {
    pub fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A table. The first column is a name, which is left-aligned and shortened first. The others are
/// right-aligned.
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    /// Minimum width of the name as long as other columns can be omitted.
    least_name: usize,
}

struct Column {
    head: String,
    /// Priority of omission: if space is short, columns with the highest number go first; 0: never.
    expendable: u8,
    least: usize,
}

/// Minimum width of a name; shorter ones cannot be distinguished.
const MIN_NAME: usize = 12;
const GAP: usize = 2;

impl Table {
    pub fn new(columns: &[(&str, u8)]) -> Self {
        let columns = columns
            .iter()
            .map(|(head, expendable)| Column {
                head: (*head).into(),
                expendable: *expendable,
                least: 0,
            })
            .collect();
        Self { columns, rows: Vec::new(), least_name: MIN_NAME }
    }

    /// Omits columns before the name becomes narrower than this.
    pub fn least_name(self, width: usize) -> Self {
        Self { least_name: width, ..self }
    }

    /// Sets the minimum widths of the columns, in order, which keeps a redrawn table from moving
    /// when its figures change.
    pub fn at_least(mut self, widths: &[usize]) -> Self {
        self.columns.iter_mut().zip(widths).for_each(|(column, width)| column.least = *width);
        self
    }

    /// Adds a row with one cell per column. Replaces control characters.
    pub fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell for each column");
        self.rows.push(cells.into_iter().map(|c| Cell { text: printable(&c.text), ..c }).collect());
    }

    /// Lines without line ends. None is wider than `width`, unless the columns that cannot be
    /// omitted are.
    pub fn lines(&self, width: usize, color: bool) -> Vec<String> {
        let natural = |i: usize| {
            let cells = self.rows.iter().map(|r| r[i].text.width());
            cells.chain([self.columns[i].head.width(), self.columns[i].least]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..self.columns.len()).map(natural).collect();
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let total = |shown: &[usize], widths: &[usize]| {
            shown.iter().map(|i| widths[*i] + GAP).sum::<usize>().saturating_sub(GAP)
        };
        let name = widths[0];
        loop {
            let excess = total(&shown, &widths).saturating_sub(width);
            if excess == 0 {
                break;
            }
            if name >= excess + self.least_name.min(name) {
                widths[0] = name - excess;
                break;
            }
            let drop = shown.iter().copied().max_by_key(|i| (self.columns[*i].expendable, *i));
            match drop.filter(|i| self.columns[*i].expendable > 0) {
                Some(i) => shown.retain(|j| *j != i),
                None => {
                    widths[0] = name.saturating_sub(excess).max(MIN_NAME.min(name));
                    break;
                }
            }
        }
        let line = |cell: &dyn Fn(usize) -> (String, Style)| {
            let mut line = String::new();
            for &i in &shown {
                let (text, style) = cell(i);
                let text = if i == 0 { shorten(&text, widths[0]) } else { text };
                let pad = " ".repeat(widths[i].saturating_sub(text.width()));
                let painted = style.paint(&text, color);
                match i {
                    0 => line += &(painted + &pad),
                    _ => line += &format!("{:GAP$}{pad}{painted}", ""),
                }
            }
            line.trim_end().to_owned()
        };
        let mut lines = vec![line(&|i| (self.columns[i].head.clone(), Style::Dim))];
        lines.extend(self.rows.iter().map(|row| line(&|i| (row[i].text.clone(), row[i].style))));
        lines
    }
}

/// Replaces control characters with their visible symbols: names come from files and must not
/// control the terminal. The result is a single line.
pub fn printable(text: &str) -> String {
    text.chars().map(picture).collect()
}

fn picture(c: char) -> char {
    match c {
        '\0'..='\x1f' => char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'),
        '\x7f' => '␡',
        // Direction marks could disguise one text as another.
        c if c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
        {
            '\u{fffd}'
        }
        c => c,
    }
}

/// Text for a terminal, with the colors of [`Style::paint`] and nothing else that could control the
/// terminal. All output passes through here, wherever a name, a rule's message or an octet of a
/// capture was inserted.
pub fn terminal(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| picture(c) != c && c != '\n') {
        return text.into();
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        if let Some(code) = rest.strip_prefix(mark()).and_then(color_of) {
            out += &format!("\x1b[{code}m");
            rest = &rest[mark().len() + code.len() + 1..];
            continue;
        }
        out.push(if matches!(c, '\n' | '\t') { c } else { picture(c) });
        rest = &rest[c.len_utf8()..];
    }
    out.into()
}

/// The color code at the start of `text`, such as `31m`.
fn color_of(text: &str) -> Option<&'static str> {
    let begins = |code: &&&str| text.strip_prefix(**code).is_some_and(|end| end.starts_with('m'));
    COLORS.iter().find(begins).copied()
}

/// Codes used by [`Style`] and in command line errors. None of them hides text.
const COLORS: [&str; 8] = ["0", "1", "2", "4", "31", "32", "33", "1;31"];

/// Shortens to at most `width` columns, with an ellipsis at the end.
pub fn truncate(text: &str, width: usize) -> String {
    if text.width() <= width {
        text.into()
    } else {
        prefix(text, width.saturating_sub(1)).trim_end().to_owned() + "…"
    }
}

/// Shortens to at most `width` columns, with an ellipsis in the middle: the names of many streams
/// differ only at the end.
fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.into();
    }
    let free = width.saturating_sub(1);
    let tail =
        prefix(&text.chars().rev().collect::<String>(), free / 2).chars().rev().collect::<String>();
    prefix(text, free - free / 2).to_owned() + "…" + &tail
}

/// The longest prefix that fits into `width` columns.
fn prefix(text: &str, width: usize) -> &str {
    let mut used = 0;
    let fits = |c: char| {
        used += c.width().unwrap_or(0);
        used > width
    };
    text.find(fits).map_or(text, |end| &text[..end])
}

/// Breaks `text` into lines of at most `width` columns, at spaces if possible. All lines but the
/// first are indented by `indent`.
pub fn wrap(text: &str, width: usize, indent: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in printable(text).split(' ') {
        let mut word = word;
        loop {
            let lead = if lines.is_empty() { 0 } else { indent };
            let free = width.saturating_sub(lead).max(8);
            let sep = usize::from(!line.is_empty());
            if line.width() + sep + word.width() <= free {
                line += &" ".repeat(sep);
                line += word;
                break;
            }
            if line.is_empty() {
                // Cut a word that is wider than a line.
                let cut = prefix(word, free).len();
                line += &word[..cut];
                word = &word[cut..];
            }
            lines.push(format!("{:lead$}{line}", ""));
            line.clear();
        }
    }
    let lead = if lines.is_empty() { 0 } else { indent };
    lines.push(format!("{:lead$}{line}", ""));
    lines
}

/// Breaks the text of a section as [`wrap`] does, with all lines indented below the title of the
/// section.
pub(super) fn indented(text: &str, width: usize) -> Vec<String> {
    let lines = wrap(text, width.saturating_sub(2), 2).into_iter();
    lines.map(|line| format!("  {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[("NAME", 0), ("TX", 0), ("EXTRA", 1)]);
        table.row(vec!["a very long stream name".into(), "1,000".into(), "x".into()]);
        table.row(vec!["b".into(), Cell::fault(3, "3".into()), "y".into()]);
        table
    }

    #[test]
    fn columns_align_and_the_name_gives_way_first_then_what_is_expendable() {
        assert_eq!(table().lines(80, false)[2], "b                            3      y");
        assert_eq!(table().lines(30, false)[1], "a very l…am name  1,000      x");
        assert_eq!(table().lines(20, false)[1], "a very…m name  1,000");
        assert!(table().lines(20, false).iter().all(|l| l.width() <= 20));
    }

    #[test]
    fn color_does_not_move_columns() {
        let strip = |l: &String| {
            terminal(l).replace("\x1b[1;31m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
        };
        let table = table();
        let painted: Vec<_> = table.lines(60, true).iter().map(strip).collect();
        assert_eq!(painted, table.lines(60, false));
    }

    #[test]
    fn names_do_not_steer_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\n\u{202e}"), "a␛[2Jb␊\u{fffd}");
        assert_eq!(
            terminal("a\x1b[2Jb\n\u{202e}\r\x07\u{9b}1m\x7f\t."),
            "a␛[2Jb\n\u{fffd}␍␇\u{fffd}1m␡\t."
        );
        let painted =
            Style::Bad.paint("red", true) + &Style::Good.paint("é", true) + "\x1b[8mhidden\x1b[1";
        assert_eq!(terminal(&painted), "\x1b[1;31mred\x1b[0m\x1b[32mé\x1b[0m␛[8mhidden␛[1");
        // Only text painted here has colors. Those in the text itself are removed.
        let foreign = Style::Bold.paint("\x1b[31mred\x1b[7;31mm", true);
        assert_eq!(terminal(&foreign), "\x1b[1m␛[31mred␛[7;31mm\x1b[0m");
        let library = own_colors("\x1b[1;31merror:\x1b[0m \x1b[5mblinks");
        assert_eq!(terminal(&library), "\x1b[1;31merror:\x1b[0m ␛[5mblinks");
        assert!(matches!(terminal("plain\nlines"), Cow::Borrowed(_)));
        assert_eq!(truncate("日本語", 5), "日本…");
    }

    #[test]
    fn wrapped_text_keeps_to_its_width_even_without_spaces() {
        let lines = wrap(&format!("note: some words and {}", "x".repeat(50)), 20, 2);
        assert!(lines.iter().all(|l| l.width() <= 20), "{lines:?}");
        assert_eq!(lines[0], "note: some words and");
        assert_eq!(lines.concat().matches('x').count(), 50);
    }

    #[test]
    fn lines_of_a_section_are_indented_and_keep_to_the_width() {
        let lines = indented("a line of a section that is long", 20);
        assert_eq!(lines, ["  a line of a", "    section that is", "    long"]);
    }
}
