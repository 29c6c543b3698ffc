//! The live view of a run, printed on stderr, which leaves stdout to `--json -`.
//!
//! On a terminal, a table is redrawn in place. On other outputs, a line is printed each second. The
//! state of the terminal never changes: each frame is a single write that turns line wrap off and
//! on again, the cursor stays visible below the table, and there is no raw mode. Therefore a panic
//! or kill needs no cleanup, and Ctrl-C is still the signal that stops the run.

use std::io::{self, IsTerminal};
use std::time::Duration;

use squall_units::median_high;
use unicode_width::UnicodeWidthStr;

use super::human;
use super::rows::{PortRow, StreamRow, port_table, stream_table};
use super::screen::Screen;
use super::table::{Style, printable, truncate};
use crate::report::{CaptureSample, Report, Sample};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveMode {
    /// A table that is redrawn in place.
    Terminal,
    /// A line per second.
    Lines,
    Quiet,
}

impl LiveMode {
    /// The mode for stderr: [`Self::Terminal`] if it is a terminal that can move its cursor,
    /// otherwise [`Self::Lines`].
    pub fn detect(quiet: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        match io::stderr().is_terminal() && !dumb {
            _ if quiet => Self::Quiet,
            true => Self::Terminal,
            false => Self::Lines,
        }
    }
}

/// Shows samples as they arrive. Call [`update`](Self::update) with each new sample, and
/// [`finish`](Self::finish) before the summary is printed.
pub struct Live {
    mode: LiveMode,
    title: String,
    total: Option<Duration>,
    screen: Screen,
    /// Sample time at which the next frame or line is due.
    due_s: f64,
    /// Seconds between two lines.
    line_s: f64,
}

/// Minimum interval between two frames; more frequent changes are not readable.
const FRAME_S: f64 = 0.1;
const LINE_S: f64 = 1.0;
/// Maximum number of ports in a line. For more ports, the line has their sum.
const PORTS_IN_A_LINE: usize = 4;

impl Live {
    /// `total` is the duration of the run, if it is known.
    pub fn new(mode: LiveMode, title: impl Into<String>, total: Option<Duration>) -> Self {
        Self::to(Screen::stderr(), mode, title.into(), total)
    }

    fn to(screen: Screen, mode: LiveMode, title: String, total: Option<Duration>) -> Self {
        Self { mode, title: printable(&title), total, screen, due_s: 0.0, line_s: LINE_S }
    }

    /// Sets the interval between lines. The first line is printed after one interval.
    pub fn line_each(&mut self, seconds: f64) {
        (self.line_s, self.due_s) = (seconds, seconds);
    }

    /// Shows `sample`, and totals from `so_far`. Skips samples that exceed the frame rate.
    pub fn update(&mut self, sample: &Sample, so_far: &Report) {
        // Samples are never taken exactly on time, so tolerate half a millisecond.
        if sample.t_s + 0.0005 < self.due_s {
            return;
        }
        let period = if self.mode == LiveMode::Terminal { FRAME_S } else { self.line_s };
        self.due_s = (sample.t_s / period + 0.001).floor() * period + period;
        match self.mode {
            LiveMode::Terminal => {
                let (columns, rows) = self.screen.size();
                let lines = self.frame(sample, so_far, columns, rows);
                self.screen.draw(&lines);
            }
            LiveMode::Lines => {
                let text = line(sample, so_far) + "\n";
                self.screen.write(&text);
            }
            LiveMode::Quiet => {}
        }
    }

    /// Prints a permanent line above the table.
    pub fn note(&mut self, text: &str) {
        if self.mode == LiveMode::Quiet {
            return;
        }
        self.screen.note(text);
    }

    /// Removes the table, which makes room for later output.
    pub fn finish(&mut self) {
        self.screen.erase();
    }

    fn frame(&self, sample: &Sample, so_far: &Report, columns: usize, rows: usize) -> Vec<String> {
        let width = columns.max(20);
        let mut lines = vec![self.head(sample, width)];
        if let Some(bar) = self.bar(sample, width) {
            lines.push(bar);
        }
        // Leave a line for the cursor below the frame.
        let mut free = rows.max(8) - 1 - lines.len();
        let alone = sample.streams.is_empty()
            && sample.flows.is_empty()
            && so_far.received_flows.as_ref().is_none_or(|flows| flows.flows.is_empty());
        let ports = if alone { free } else { (free / 2).max(3) };
        lines.extend(
            port_table(&PortRow::of(sample, so_far), ports, None).lines(width, self.screen.color()),
        );
        lines.extend(sample.capture.as_ref().map(|capture| truncate(&captured(capture), width)));
        lines.extend(super::hosts::line(&so_far.hosts).map(|hosts| truncate(&hosts, width)));
        lines.extend(super::routers::line(&so_far.routers).map(|line| truncate(&line, width)));
        free = (rows.max(8) - 1).saturating_sub(lines.len());
        if !sample.flows.is_empty() && free >= 3 {
            let room = if sample.streams.is_empty() { free } else { (free / 2).max(3) };
            lines.push(String::new());
            lines.extend(
                super::flows::watched(&sample.flows, room - 1).lines(width, self.screen.color()),
            );
        }
        free = (rows.max(8) - 1).saturating_sub(lines.len());
        if !sample.streams.is_empty() && free >= 3 {
            lines.push(String::new());
            lines.extend(
                stream_table(&StreamRow::of(sample, so_far), free - 1, None)
                    .lines(width, self.screen.color()),
            );
        }
        free = (rows.max(8) - 1).saturating_sub(lines.len());
        if let Some(flows) =
            so_far.received_flows.as_ref().filter(|flows| free >= 3 && !flows.flows.is_empty())
        {
            lines.push(String::new());
            lines.extend(
                super::received_flows::watched(flows, free - 1).lines(width, self.screen.color()),
            );
        }
        lines.truncate(rows.max(8) - 1);
        lines
    }

    fn head(&self, sample: &Sample, width: usize) -> String {
        let time = match self.total {
            Some(total) => format!("{:.1} / {}", sample.t_s, human::seconds(total.as_secs_f64())),
            None => human::seconds((sample.t_s * 10.0).round() / 10.0),
        };
        let title = truncate(&self.title, width.saturating_sub(time.width() + 2));
        let gap = width.saturating_sub(title.width() + time.width());
        format!("{}{:gap$}{time}", Style::Bold.paint(&title, self.screen.color()), "")
    }

    fn bar(&self, sample: &Sample, width: usize) -> Option<String> {
        let total = self.total?.as_secs_f64();
        let share = if total > 0.0 { (sample.t_s / total).clamp(0.0, 1.0) } else { 1.0 };
        let halves = (share * 2.0 * width as f64) as usize;
        let half = if halves % 2 == 1 { "╸" } else { "" };
        let done = "━".repeat(halves / 2) + half;
        let rest = "─".repeat(width - halves.div_ceil(2));
        Some(
            Style::Good.paint(&done, self.screen.color())
                + &Style::Dim.paint(&rest, self.screen.color()),
        )
    }
}

/// A capture's current rates, and its files and losses so far.
fn captured(capture: &CaptureSample) -> String {
    let lost = human::count(capture.dropped_by_kernel + capture.dropped);
    let (pps, bps) = (human::si(capture.written_pps, "pps"), human::si(capture.written_bps, "b/s"));
    let files = match capture.files {
        0 => String::new(),
        n => format!(
            ", {} in {}",
            human::si(capture.file_octets as f64, "B"),
            human::counted(n, "file")
        ),
    };
    format!("written {pps} {bps}{files}, lost {lost}")
}

/// `t=3.0s  A tx 1.00 Mpps 672 Mb/s L1, rx 0 pps 0 b/s L1  lost 0  lat p50 2.10 µs p99 5.00 µs  late p99 350 ns`
fn line(sample: &Sample, so_far: &Report) -> String {
    // A run that only receives has no rate of sending.
    let sends = so_far.sends() || sample.ports.iter().any(|port| port.tx_pps > 0.0);
    let direction = |name: &str, pps: f64, bps: f64| {
        format!("{name} {} {} L1", human::si(pps, "pps"), human::si(bps, "b/s"))
    };
    let port = |name: &str, tx: (f64, f64), rx: (f64, f64)| {
        let sent = if sends { direction("tx", tx.0, tx.1) + ", " } else { String::new() };
        format!("{} {sent}{}", printable(name), direction("rx", rx.0, rx.1))
    };
    let mut parts = vec![format!("t={:.1}s", sample.t_s)];
    if sample.ports.len() <= PORTS_IN_A_LINE {
        let ports = sample.ports.iter();
        parts
            .extend(ports.map(|p| port(&p.name, (p.tx_pps, p.tx_bps_l1), (p.rx_pps, p.rx_bps_l1))));
    } else {
        let sum =
            |f: fn(&crate::report::PortSample) -> f64| sample.ports.iter().map(f).sum::<f64>();
        let name = format!("{} ports", sample.ports.len());
        parts.push(port(
            &name,
            (sum(|p| p.tx_pps), sum(|p| p.tx_bps_l1)),
            (sum(|p| p.rx_pps), sum(|p| p.rx_bps_l1)),
        ));
    }
    parts.extend(sample.capture.as_ref().map(captured));
    parts.extend(super::flows::line(&sample.flows));
    parts.extend(super::hosts::line(&so_far.hosts));
    parts.extend(super::routers::line(&so_far.routers));
    let streams = &sample.streams;
    if !streams.is_empty() {
        parts.push(format!("lost {}", human::count(streams.iter().map(|s| s.lost).sum())));
    }
    let p99 = streams.iter().filter_map(|s| s.latency_p99_ns).max();
    if let (Some(p50), Some(p99)) =
        (median_high(streams.iter().filter_map(|s| s.latency_p50_ns)), p99)
    {
        parts.push(format!("lat p50 {} p99 {}", human::ns(p50 as f64), human::ns(p99 as f64)));
    }
    if let Some(late) = streams.iter().filter_map(|s| s.late_p99_ns).max() {
        parts.push(format!("late p99 {}", human::ns(late as f64)));
    }
    parts.join("  ")
}

#[cfg(test)]
mod tests {
    use super::super::sample::report;
    use super::super::screen::played::Played;
    use super::*;

    fn live(mode: LiveMode, screen: &Played) -> Live {
        let total = Some(Duration::from_secs(30));
        Live::to(screen.screen(), mode, "squall run imix.toml".into(), total)
    }

    #[test]
    fn the_table_is_drawn_over_itself_and_fits_the_terminal() {
        for streams in [0, 2, 1000] {
            let report = report(streams);
            let screen = Played::default();
            let mut live = live(LiveMode::Terminal, &screen);
            for sample in &report.series {
                live.update(sample, &report);
            }
            let shown = screen.shown();
            assert!(shown.len() <= 24, "{shown:#?}");
            assert!(shown.iter().all(|l| l.width() <= 80), "{shown:#?}");
            assert!(
                shown[0].starts_with("squall run imix.toml") && shown[0].ends_with("30.0 / 30.0 s"),
                "{shown:#?}"
            );
            assert_eq!(shown.iter().filter(|l| l.starts_with("PORT")).count(), 1);
            assert_eq!(shown.iter().any(|l| l.contains("more")), streams > 100);
        }
    }

    #[test]
    fn finish_leaves_nothing_but_the_notes() {
        let report = report(3);
        let screen = Played::default();
        let mut live = live(LiveMode::Terminal, &screen);
        live.update(&report.series[0], &report);
        live.note("port B lost its carrier");
        live.update(&report.series[9], &report);
        live.finish();
        live.finish();
        assert_eq!(screen.shown(), ["port B lost its carrier", ""]);
        let text = screen.text();
        assert_eq!(text.matches("\x1b[?7l").count(), text.matches("\x1b[?7h").count());
    }

    #[test]
    fn off_a_terminal_there_is_a_line_a_second_without_escapes() {
        let report = report(3);
        let screen = Played::default();
        let mut live = live(LiveMode::Lines, &screen);
        for sample in &report.series {
            live.update(sample, &report);
        }
        live.finish();
        let text = screen.text();
        // The first sample, and one for each of the thirty full seconds.
        assert_eq!(text.lines().count(), 31, "{text}");
        assert!(!text.contains('\x1b'));
        let line = text.lines().nth(3).unwrap();
        assert!(line.starts_with("t=3.0s  A tx 1.20 Mpps 3.7"), "{line}");
        for part in ["rx 1.20 Mpps", "lost ", "lat p50 ", "late p99 "] {
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn a_capture_shows_its_files_and_losses_while_it_runs() {
        let report = crate::render::sample::received(0);
        let capture = CaptureSample {
            written_pps: 2e6,
            written_bps: 8e9,
            files: 3,
            file_octets: 12_000_000,
            dropped_by_kernel: 5,
            dropped: 2,
        };
        let sample = Sample { capture: Some(capture), ..report.series[0].clone() };
        for mode in [LiveMode::Lines, LiveMode::Terminal] {
            let screen = Played::default();
            live(mode, &screen).update(&sample, &report);
            let shown = screen.text();
            assert!(
                shown.contains("written 2.00 Mpps 8.00 Gb/s, 12.0 MB in 3 files, lost 7"),
                "{shown}"
            );
        }
    }

    #[test]
    fn flows_show_while_they_run() {
        for templates in [1, 3, 500] {
            let report = crate::render::sample::loaded(templates);
            let screen = Played::default();
            let mut terminal = live(LiveMode::Terminal, &screen);
            report.series.iter().for_each(|sample| terminal.update(sample, &report));
            let shown = screen.shown();
            assert!(shown.len() <= 24 && shown.iter().all(|l| l.width() <= 80), "{shown:#?}");
            assert!(
                shown.iter().any(|l| l.starts_with("CLIENTS") && l.contains("BEGUN/S")),
                "{shown:#?}"
            );
            assert!(
                shown.iter().any(|l| l.contains("10.0 k") && l.contains("9.90 k")),
                "{shown:#?}"
            );
            assert_eq!(
                shown.iter().any(|l| l.starts_with("all templates")),
                templates > 1,
                "{shown:#?}"
            );
            let screen = Played::default();
            live(LiveMode::Lines, &screen).update(&report.series[11], &report);
            let line = screen.text();
            let flows = "flows 22 open, 10.0 k begun/s, 9.90 k done/s, 80.0 Mb/s, failed 12, not \
                         begun 5 (late 3), set-up p99 1.00 ms, answer p99 2.00 ms";
            assert!(line.contains(flows), "{line}");
        }
    }

    #[test]
    fn hosts_show_their_states_while_they_run() {
        let hosts = crate::report::hosts::HostsReport {
            states: [("bound".into(), 2), ("selecting".into(), 3)].into(),
            failed: [("no_offer".into(), 1)].into(),
            ..Default::default()
        };
        let report = Report { hosts: vec![hosts.clone(), hosts], ..report(0) };
        for mode in [LiveMode::Terminal, LiveMode::Lines] {
            let screen = Played::default();
            live(mode, &screen).update(&report.series[0], &report);
            let text = screen.text();
            assert!(text.contains("hosts bound 4, selecting 6, failed 2"), "{mode:?}: {text}");
        }
    }

    #[test]
    fn a_receiver_shows_no_rate_of_sending() {
        let mut received = crate::render::sample::received(2);
        received.ports.iter_mut().for_each(|port| port.tx = Default::default());
        let mut sample = report(1).series[0].clone();
        sample.ports.iter_mut().for_each(|port| port.tx_pps = 0.0);
        let screen = Played::default();
        live(LiveMode::Lines, &screen).update(&sample, &received);
        assert!(screen.text().contains(" rx ") && !screen.text().contains("tx "));
    }

    #[test]
    fn quiet_is_quiet() {
        let report = report(1);
        let screen = Played::default();
        let mut live = live(LiveMode::Quiet, &screen);
        live.update(&report.series[0], &report);
        live.note("nothing");
        live.finish();
        assert_eq!(screen.text(), "");
    }

    #[test]
    fn a_stream_that_left_does_not_shift_the_others() {
        let report = report(4);
        let mut sample = report.series[5].clone();
        sample.streams.remove(0);
        // "customer 00002" is not measured, at any position in the table.
        let lines = stream_table(&StreamRow::of(&sample, &report), 20, None).lines(100, false);
        let row = lines.iter().find(|l| l.starts_with("customer 00002")).unwrap();
        assert!(row.split_whitespace().filter(|w| *w == "-").count() >= 4, "{row}");
    }
}
