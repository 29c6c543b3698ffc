//! The runs of a daemon, with details of one of them: a frame of `squall top`.

use unicode_width::UnicodeWidthStr;

use super::human;
use super::rows::{MARK, PortRow, StreamRow, port_table, stream_table};
use super::table::{Cell, Style, Table, printable, truncate};

/// Content of a frame.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    pub title: String,
    pub runs: Vec<RunLine>,
    /// Index of the run to which the ports and streams belong.
    pub shown: Option<usize>,
    pub ports: Vec<PortRow>,
    pub streams: Vec<StreamRow>,
    pub selected: Option<Selected>,
    /// Messages that replace ports and streams.
    pub instead: Vec<String>,
    /// The lines at the bottom.
    pub foot: Vec<(Tone, String)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunLine {
    pub id: String,
    pub name: String,
    pub owner: String,
    pub state: String,
    pub elapsed_s: f64,
    pub duration_s: Option<f64>,
    /// Whether the run is late, or ended with an error.
    pub failed: bool,
}

/// The selected row in the run that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selected {
    Port(usize),
    Stream(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Faint,
    Fault,
}

impl Overview {
    /// Lines for a terminal of `columns` by `rows`, with a line left for the cursor.
    pub fn lines(&self, columns: usize, rows: usize, color: bool) -> Vec<String> {
        let (width, most) = (columns.max(20), rows.max(10) - 1);
        let mut lines = vec![Style::Bold.paint(&truncate(&printable(&self.title), width), color)];
        let foot = self.foot.len().min(most / 2);
        let room = |lines: &[String]| (most - foot).saturating_sub(lines.len());
        match self.runs.is_empty() {
            true => lines.push(Style::Dim.paint("no runs", color)),
            false => lines.extend(self.run_table((room(&lines) / 4).max(3)).lines(width, color)),
        }
        if !self.instead.is_empty() {
            lines.push(String::new());
            lines.extend(self.instead.iter().map(|line| truncate(&printable(line), width)));
        } else {
            let (port, stream) = match self.selected {
                None => (None, None),
                Some(Selected::Port(i)) => (Some(i), None),
                Some(Selected::Stream(i)) => (None, Some(i)),
            };
            if !self.ports.is_empty() && room(&lines) >= 3 {
                lines.push(String::new());
                let left = room(&lines);
                let part = if self.streams.is_empty() { left } else { (left / 2).max(3) };
                lines.extend(port_table(&self.ports, part, Some(port)).lines(width, color));
            }
            if !self.streams.is_empty() && room(&lines) >= 3 {
                lines.push(String::new());
                lines.extend(
                    stream_table(&self.streams, room(&lines), Some(stream)).lines(width, color),
                );
            }
        }
        lines.truncate(most - foot);
        for (tone, text) in &self.foot[self.foot.len() - foot..] {
            let style = match tone {
                Tone::Plain => Style::Plain,
                Tone::Faint => Style::Dim,
                Tone::Fault => Style::Bad,
            };
            lines.push(style.paint(&truncate(&printable(text), width), color));
        }
        lines
    }

    /// The table of runs. Always includes the run that is shown.
    fn run_table(&self, rows: usize) -> Table {
        let columns = [("  RUN", 0), ("STATE", 0), ("TIME", 0), ("OWNER", 2), ("NUMBER", 1)];
        let mut table = Table::new(&columns).at_least(&[0, 8, 8, 0, 0]);
        let fit =
            if self.runs.len() < rows { self.runs.len() } else { rows.saturating_sub(2).max(1) };
        let first = self
            .shown
            .map_or(0, |shown| (shown + 1).saturating_sub(fit).min(self.runs.len() - fit));
        for (i, run) in self.runs.iter().enumerate().skip(first).take(fit) {
            let mark =
                if self.shown == Some(i) { MARK.to_owned() } else { " ".repeat(MARK.width()) };
            let state = match (run.failed, run.state.as_str()) {
                (true, _) => Style::Bad,
                (_, "running") => Style::Good,
                _ => Style::Plain,
            };
            let elapsed = (run.elapsed_s * 10.0).round() / 10.0;
            let time = match run.duration_s {
                Some(total) => format!("{elapsed:.1} / {}", human::seconds(total)),
                None => human::seconds(elapsed),
            };
            table.row(vec![
                Cell::styled(
                    format!("{mark}{}", run.name),
                    if self.shown == Some(i) { Style::Bold } else { Style::Plain },
                ),
                Cell::styled(run.state.as_str(), state),
                time.into(),
                run.owner.as_str().into(),
                Cell::styled(run.id.as_str(), Style::Dim),
            ]);
        }
        let more = self.runs.len() - fit;
        if more > 0 {
            let mut row =
                vec![Cell::styled(format!("  {} more", human::count(more as u64)), Style::Dim)];
            row.resize_with(columns.len(), || "".into());
            table.row(row);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overview(runs: usize, ports: usize, streams: usize) -> Overview {
        let run = |i| RunLine {
            id: format!("r-20261122-{i:04}"),
            name: format!("run {i}"),
            owner: "alice".into(),
            state: "running".into(),
            elapsed_s: 12.34,
            duration_s: Some(60.0),
            failed: false,
        };
        Overview {
            title: "squall top https://127.0.0.1:8443".into(),
            runs: (0..runs).map(run).collect(),
            shown: runs.checked_sub(1),
            ports: (0..ports)
                .map(|i| PortRow { name: format!("P{i}"), ..PortRow::default() })
                .collect(),
            streams: (0..streams)
                .map(|i| StreamRow { name: format!("s{i}"), ..StreamRow::default() })
                .collect(),
            selected: streams.checked_sub(1).map(Selected::Stream),
            instead: Vec::new(),
            foot: vec![(Tone::Fault, "web: no".into()), (Tone::Faint, "? help".into())],
        }
    }

    #[test]
    fn all_content_fits_the_terminal_and_the_selection_is_visible() {
        for (runs, ports, streams) in [(0, 0, 0), (1, 2, 1), (3, 64, 1000), (64, 2, 5)] {
            for (columns, rows) in [(80, 24), (132, 50), (40, 10), (1, 1)] {
                let shown = overview(runs, ports, streams).lines(columns, rows, false);
                assert!(shown.len() < rows.max(10), "{shown:#?}");
                assert!(
                    columns < 40 || shown.iter().all(|line| line.width() <= columns),
                    "{shown:#?}"
                );
                assert_eq!(shown.last().unwrap(), "? help");
                let marked = shown.iter().filter(|line| line.starts_with(MARK)).count();
                assert!(
                    rows < 24 || marked == usize::from(runs > 0) + usize::from(streams > 0),
                    "{shown:#?}"
                );
                assert_eq!(shown.iter().any(|line| line.contains("no runs")), runs == 0);
            }
        }
        let shown = overview(1, 1, 1).lines(80, 24, false);
        assert!(shown[2].contains("running") && shown[2].contains("12.3 / 60.0 s"), "{shown:#?}");
    }
}
