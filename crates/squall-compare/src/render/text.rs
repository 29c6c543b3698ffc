//! The tables at the end of a comparison: loss at each rate, rates without loss, what it cost, who
//! did not tell the truth.

use squall_report::render::{
    human,
    table::{Cell, Style, Table, wrap},
};

use crate::{
    Comparison,
    model::{Lossless, Spread, Step},
};

/// Text tables, lines at most `width` columns (at least 60), `color` with ANSI colours.
pub fn summary(comparison: &Comparison, width: usize, color: bool) -> String {
    let width = width.max(60);
    let mut out = Vec::new();
    for data in &comparison.data {
        for write in &comparison.write {
            let of = |tool: &Step| tool.data == data.name && tool.write == write.name;
            let steps: Vec<&Step> = comparison.steps.iter().filter(|s| of(s)).collect();
            let of = |l: &&Lossless| l.data == data.name && l.write == write.name;
            let lossless: Vec<&Lossless> = comparison.lossless.iter().filter(of).collect();
            if steps.is_empty() && lossless.is_empty() {
                continue;
            }
            let mean = data.mean_octets;
            let lengths = data.percentiles;
            let title = format!(
                "{} (mean {mean:.0} octets, median {}, 90 % up to {}, {} to {}; {}), written to {}",
                data.name,
                lengths.p50,
                lengths.p90,
                lengths.min,
                lengths.max,
                data.origin,
                write.name
            );
            out.extend(wrap(&title, width, 2).iter().map(|line| Style::Bold.paint(line, color)));
            step_table(&steps, width, color, &mut out);
            lossless_table(&lossless, comparison.method.lossless_below, width, color, &mut out);
        }
    }
    troubles(comparison, width, color, &mut out);
    out.push(String::new());
    out.join("\n")
}

fn step_table(steps: &[&Step], width: usize, color: bool, out: &mut Vec<String>) {
    if steps.is_empty() {
        return;
    }
    let columns = [
        ("TOOL", 0),
        ("ASKED", 0),
        ("ARRIVED", 0),
        ("L2", 3),
        ("PLR", 0),
        ("RANGE", 1),
        ("CPU s/Mpkt", 0),
        ("USER", 5),
        ("SYSTEM", 4),
        ("MEMORY", 2),
        ("COUNTS", 1),
    ];
    let mut table = Table::new(&columns);
    for step in steps {
        let plr = match step.plr {
            Some(plr) if plr > 0.0 => Cell::styled(human::ratio(plr), Style::Bad),
            Some(_) => Cell::from("0 %"),
            None if step.sender_bound => Cell::styled("not counted", Style::Dim),
            None => Cell::styled("failed", Style::Bad),
        };
        let range = |s: &Spread| format!("{}..{}", human::ratio(s.min), human::ratio(s.max));
        let seconds =
            |value: Option<f64>| Cell::from(value.map_or("–".into(), |s| format!("{s:.2}")));
        let arrived = step.actual_pps.map_or("–".into(), |pps| human::si(pps, "pps"));
        table.row(vec![
            step.tool.as_str().into(),
            step.asked.as_str().into(),
            if step.sender_bound {
                Cell::styled(format!("{arrived} (sender-bound)"), Style::Dim)
            } else {
                arrived.into()
            },
            step.actual_bps.map_or("–".into(), |bps| human::si(bps, "b/s")).into(),
            plr,
            step.plr_spread.as_ref().map_or("–".into(), range).into(),
            seconds(step.cpu_s_per_mpkt),
            seconds(step.user_s_per_mpkt),
            seconds(step.system_s_per_mpkt),
            human::si(step.peak_memory_octets as f64, "B").into(),
            match step.honest {
                Some(true) => Cell::styled("correct", Style::Good),
                Some(false) => Cell::styled("wrong", Style::Bad),
                None => "–".into(),
            },
        ]);
    }
    out.extend(table.lines(width, color));
    out.push(String::new());
}

fn lossless_table(
    found: &[&Lossless],
    below: f64,
    width: usize,
    color: bool,
    out: &mut Vec<String>,
) {
    let Some(first) = found.first() else { return };
    let columns =
        [("TOOL", 0), ("LOSSLESS", 0), ("RANGE", 3), ("L2", 2), ("TO FIRST", 1), ("CPU s/Mpkt", 0)];
    let mut table = Table::new(&columns);
    for l in found {
        let at_least = if l.sender_bound { "≥ " } else { "" };
        let (low, high) = l.pps_range;
        table.row(vec![
            l.tool.as_str().into(),
            format!("{at_least}{}", human::si(l.pps, "pps")).into(),
            format!("{}..{}", human::si(low, ""), human::si(high, "")).into(),
            human::si(l.bps, "b/s").into(),
            if first.pps > 0.0 { format!("{:.2}", l.pps / first.pps) } else { "–".into() }.into(),
            l.cpu_s_per_mpkt.map_or("–".into(), |s| format!("{s:.2}")).into(),
        ]);
    }
    out.push(format!("largest rate with PLR < {} (≥: no loss at full speed)", human::ratio(below)));
    out.extend(table.lines(width, color));
    out.push(String::new());
}

fn troubles(comparison: &Comparison, width: usize, color: bool, out: &mut Vec<String>) {
    let mut say = |style: Style, text: String| {
        out.extend(wrap(&text, width, 2).iter().map(|line| style.paint(line, color)));
    };
    for tool in &comparison.tools {
        if let Some(why) = &tool.why_not {
            say(Style::Dim, format!("{} was not compared: {why}", tool.name));
        } else if tool.takes_frames {
            say(Style::Dim, format!("{} takes the frames away from the host", tool.name));
        }
    }
    for step in &comparison.steps {
        let what = format!("{}, {}, {} at {}", step.tool, step.data, step.write, step.asked);
        // One of a kind is enough: the others are in the JSON.
        if let Some(lie) = step.rounds.iter().find_map(|round| round.disagreements.first()) {
            say(Style::Bad, format!("{what}: it {lie}"));
        }
        let failed: Vec<_> = step.rounds.iter().filter_map(|round| round.failed.as_ref()).collect();
        if let Some(why) = failed.first() {
            say(
                Style::Bad,
                format!("{what}: {} of {} rounds failed: {why}", failed.len(), step.rounds.len()),
            );
        }
        // If all are, the table has it.
        let off = step.rounds.iter().filter(|round| round.off_rate).count();
        if off > 0 && !step.sender_bound {
            let of = step.rounds.len();
            say(
                Style::Dim,
                format!("{what}: {off} of {of} rounds do not count: the sender was off the rate"),
            );
        }
        if step.rounds.iter().any(|round| round.cut > 0) {
            say(Style::Bad, format!("{what}: its file has packets that are cut off"));
        }
    }
    for note in &comparison.notes {
        say(Style::Plain, format!("note: {note}"));
    }
    if comparison.interrupted {
        say(Style::Bad, "interrupted: these are the measurements made before".into());
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sample::comparison, *};

    #[test]
    fn the_tables_say_who_lost_and_who_lied() {
        let text = summary(&comparison(), 120, false);
        for expected in [
            "tcpdump",
            "sender-bound",
            "wrong",
            "correct",
            "not counted",
            "1 of 3 rounds do not count",
            "44.4 %..44.4 %",
            "median 60, 90 % up to 1514, 60 to 1514",
            "≥ 950 kpps",
            "was not compared",
        ] {
            assert!(text.contains(expected), "{expected}:\n{text}");
        }
        assert!(
            text.lines().all(|line| unicode_width::UnicodeWidthStr::width(line) <= 120),
            "{text}"
        );
    }

    #[test]
    fn a_comparison_of_nothing_is_a_text_too() {
        assert_eq!(summary(&Comparison::default(), 80, false), "");
    }
}
