//! Renders a comparison of capture tools: loss at each rate, lossless rates, CPU cost, and tools
//! with wrong counts.

use squall_report::render::{
    human,
    page::{self, Axis, Group as Bars, Line, Page, Plot, Style as LineStyle, Unit},
    table::{Cell, Style},
};

use super::{Columns, Grid, Group, Shown, ShownStep, Steps, counts, in_order, or_dash};
use crate::{
    Comparison,
    compared::Spread,
    model::{DataInfo, Lossless, Step, WriteInfo},
};

impl Shown<Step> for Comparison {
    const SUBJECT: &'static str = "capture tools";

    fn facts(&self) -> Vec<(&'static str, String)> {
        let method = &self.method;
        let cpu = |cpu: Option<u32>| cpu.map_or("any".into(), |cpu| cpu.to_string());
        vec![
            ("Rounds", format!("{}; results are medians", method.rounds)),
            ("Step", human::seconds(method.step_s)),
            ("CPUs", format!("sender {}, tools {}", cpu(method.sender_cpu), cpu(method.tool_cpu))),
        ]
    }

    fn groups(&self) -> Vec<Group<'_, Step>> {
        let places = |data| self.own.write.iter().map(move |write| (data, write));
        let groups = self.own.data.iter().flat_map(places).map(|(data, write)| {
            let of = |s: &&Step| s.data == data.name && s.write == write.name;
            let found = |l: &&Lossless| l.data == data.name && l.write == write.name;
            let found: Vec<&Lossless> = self.own.lossless.iter().filter(found).collect();
            let below = human::ratio(self.method.lossless_below);
            let below = format!("largest rate with PLR < {below} (≥: no loss at full speed)");
            Group {
                title: title(data, write),
                heading: format!("{}: {}, written to {}", data.name, data.origin, write.name),
                steps: self.steps.iter().filter(of).collect(),
                below: (!found.is_empty()).then(|| (below, lossless(&found))),
            }
        });
        groups.filter(|group| !group.steps.is_empty() || group.below.is_some()).collect()
    }

    fn plots(&self, steps: &Steps<'_, Step>) -> Vec<Plot> {
        let plr = || Axis::new("PLR", Unit::Ratio);
        let arrived = || Axis::new("arrived (L2)", Unit::Bps);
        // Plot each round at its actual rate, so the plot is useful even if a busy machine misses
        // the requested ones.
        let single = |tool: &str| {
            let rounds = steps.of(tool).flat_map(|s| &s.rounds).filter(|r| r.failed.is_none());
            let mut points: Vec<_> = rounds.filter_map(|r| Some((r.bps(), r.plr?))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Line::new(tool, points).style(LineStyle::Points)
        };
        let singles = steps.tools().into_iter().map(single).collect();
        let loss = steps.lines(|s| Some((s.actual_bps?, s.plr_spread?)));
        vec![
            Plot::lines("Packet loss ratio against rate", arrived(), plr(), loss).subtitle(
                "share of packets that arrived at the interface and are not in the file; median, \
                 minimum and maximum of the rounds that kept to the rate",
            ),
            Plot::lines("Packet loss ratio of single rounds", arrived(), plr(), singles)
                .subtitle("all rounds, including those whose sender was off the requested rate"),
            steps.actual(("requested (L2)", "arrived (L2)", Unit::Bps), |s| {
                Some((s.asked_bps?, s.actual_bps_spread?))
            }),
            steps
                .bars("CPU time", Axis::new("s per million packets", Unit::S), |s| s.cpu_s_per_mpkt)
                .subtitle(
                    "seconds of the tool, user and system, per million packets that it captured",
                ),
            steps.bars("Peak memory", Axis::new("octets", Unit::Octets), |s| {
                Some(s.peak_memory_octets as f64).filter(|octets| *octets > 0.0)
            }),
        ]
    }

    fn below(&self, page: &mut Page) {
        all_lossless(self, page);
        data_sets(self, page);
    }
}

fn title(data: &DataInfo, write: &WriteInfo) -> String {
    let lengths = data.percentiles;
    format!(
        "{} (mean {:.0} octets, median {}, 90 % up to {}, {} to {}; {}), written to {}",
        data.name,
        data.mean_octets,
        lengths.p50,
        lengths.p90,
        lengths.min,
        lengths.max,
        data.origin,
        write.name
    )
}

impl ShownStep for Step {
    const COLUMNS: Columns = &[
        ("TOOL", 0, "Tool"),
        ("ASKED", 0, "Requested"),
        ("ARRIVED", 0, "Arrived"),
        ("L2", 3, "L2"),
        ("", 0, "Rounds"),
        ("PLR", 0, "PLR"),
        ("RANGE", 1, "Range"),
        ("", 0, "Quartiles"),
        ("", 0, "PLR of sent"),
        ("CPU s/Mpkt", 0, "CPU s/Mpkt"),
        ("USER", 5, "User"),
        ("SYSTEM", 4, "System"),
        ("MEMORY", 2, "Peak memory"),
        ("COUNTS", 1, "Its own counts"),
    ];

    fn row(&self) -> Vec<Cell> {
        let range = |from: f64, to: f64| format!("{}..{}", human::ratio(from), human::ratio(to));
        let seconds = |value: Option<f64>| or_dash(value, |s| format!("{s:.2}"));
        let arrived = self.actual_pps.map_or("–".into(), |pps| human::si(pps, "pps"));
        vec![
            self.tool.as_str().into(),
            self.asked.as_str().into(),
            match self.sender_bound {
                true => Cell::styled(format!("{arrived} (sender-bound)"), Style::Dim),
                false => arrived.into(),
            },
            or_dash(self.actual_bps, |bps| human::si(bps, "b/s")),
            format!("{} of {}", self.rounds_counted, self.rounds.len()).into(),
            match self.plr {
                Some(plr) if plr > 0.0 => Cell::styled(human::ratio(plr), Style::Bad),
                Some(_) => "0 %".into(),
                None if self.sender_bound => Cell::styled("not counted", Style::Dim),
                None => Cell::styled("failed", Style::Bad),
            },
            or_dash(self.plr_spread, |Spread { min, max, .. }| range(min, max)),
            or_dash(self.plr_spread, |Spread { p25, p75, .. }| range(p25, p75)),
            or_dash(self.plr_of_sent, human::ratio),
            seconds(self.cpu_s_per_mpkt),
            seconds(self.user_s_per_mpkt),
            seconds(self.system_s_per_mpkt),
            human::si(self.peak_memory_octets as f64, "B").into(),
            counts(self.honest),
        ]
    }

    fn tool(&self) -> &str {
        &self.tool
    }

    fn asked(&self) -> &str {
        &self.asked
    }

    fn condition(&self) -> String {
        format!("{}, {}", self.data, self.write)
    }

    fn remarks(&self) -> Vec<(Style, String)> {
        let mut remarks = Vec::new();
        // If all rounds miss the rate, the table shows it already.
        let (off, of) = (self.rounds.iter().filter(|r| r.off_rate).count(), self.rounds.len());
        if off > 0 && !self.sender_bound {
            let text = format!("{off} of {of} rounds do not count: the sender was off the rate");
            remarks.push((Style::Dim, text));
        }
        if self.rounds.iter().any(|round| round.cut > 0) {
            remarks.push((Style::Bad, "its file has packets that are cut off".into()));
        }
        remarks
    }
}

/// The highest lossless rates, for one or several data sets and output locations.
fn lossless(all: &[&Lossless]) -> Grid {
    let first = all.first().map_or(0.0, |l| l.pps);
    let row = |l: &&Lossless| {
        let at_least = if l.sender_bound { "≥ " } else { "" };
        let (low, high) = l.pps_range;
        vec![
            l.tool.as_str().into(),
            place(l).into(),
            format!("{at_least}{}", human::si(l.pps, "pps")).into(),
            format!("{}..{}", human::si(low, ""), human::si(high, "")).into(),
            human::si(l.bps, "b/s").into(),
            or_dash(Some(first).filter(|first| *first > 0.0), |first| {
                format!("{:.2}", l.pps / first)
            }),
            or_dash(l.cpu_s_per_mpkt, |s| format!("{s:.2}")),
        ]
    };
    Grid {
        columns: &[
            ("TOOL", 0, "Tool"),
            ("", 0, "Data set, output"),
            ("LOSSLESS", 0, "Lossless"),
            ("RANGE", 3, "Rounds"),
            ("L2", 2, "L2"),
            ("TO FIRST", 1, ""),
            ("CPU s/Mpkt", 0, "CPU s/Mpkt"),
        ],
        rows: all.iter().map(row).collect(),
    }
}

fn place(l: &Lossless) -> String {
    format!("{}, {}", l.data, l.write)
}

fn all_lossless(comparison: &Comparison, page: &mut Page) {
    let all: Vec<&Lossless> = comparison.own.lossless.iter().collect();
    if all.is_empty() {
        return;
    }
    let below = human::ratio(comparison.method.lossless_below);
    let names: Vec<String> = all.iter().map(|l| place(l)).collect();
    let places = in_order(names.iter().map(String::as_str));
    let bars = in_order(all.iter().map(|l| l.tool.as_str())).into_iter().map(|tool| {
        let at = |p: &&str| all.iter().find(|l| l.tool == tool && place(l) == *p).map(|l| l.pps);
        Bars { label: tool.into(), y: places.iter().map(at).collect() }
    });
    let categories = places.iter().map(|place| (*place).to_owned()).collect();
    let pps = Axis::new("packets per second", Unit::Pps);
    let bars = Plot::bars("Lossless", "data set, output", categories, pps, bars.collect());
    page.plots(
        &format!("Largest rate with a loss ratio below {below}"),
        &[bars.subtitle("≥ in the table: no loss at full speed, the tool may reach more")],
    );
    lossless(&all).put(page);
}

fn data_sets(comparison: &Comparison, page: &mut Page) {
    let Some(first) = comparison.own.data.first() else { return };
    let bins = first.histogram.iter().map(|bin| match bin.from == bin.to {
        true => bin.to.to_string(),
        false => format!("{}–{}", bin.from, bin.to),
    });
    let shares = comparison.own.data.iter().map(|data| Bars {
        label: data.name.clone(),
        y: data.histogram.iter().map(|bin| Some(bin.share)).collect(),
    });
    let lengths = Plot::bars(
        "Lengths",
        "octets without FCS",
        bins.collect(),
        Axis::new("share", Unit::Ratio),
        shares.collect(),
    );
    page.plots("Data sets", &[lengths.subtitle("share of packets in the bins of RFC 2819")]);
    let rows: Vec<Vec<String>> = comparison
        .own
        .data
        .iter()
        .map(|data| {
            let length =
                |(octets, share): &(u32, f64)| format!("{octets}: {}", human::ratio(*share));
            let lengths = data.lengths.iter().map(length).collect::<Vec<_>>().join(", ");
            let packets = data.packets.map_or("–".into(), human::count);
            let p = &data.percentiles;
            let percentiles = [p.min, p.p25, p.p50, p.p75, p.p90, p.max].map(|l| l.to_string());
            let mean = format!("{:.0}", data.mean_octets);
            let mut row = vec![data.name.clone(), data.origin.clone(), packets, mean];
            row.extend(percentiles);
            row.push(lengths);
            row
        })
        .collect();
    page::table("", &DATA_COLUMNS, &rows, page.markup());
}

const DATA_COLUMNS: [&str; 11] = [
    "Data set",
    "From",
    "Packets",
    "Mean octets",
    "Min",
    "25 %",
    "50 %",
    "75 %",
    "90 %",
    "Max",
    "Most frequent",
];

#[cfg(test)]
mod tests {
    use super::{
        super::{html, sample::comparison, summary},
        *,
    };

    #[test]
    fn the_page_has_the_plots_and_no_name_leaves_its_place() {
        let page = html(&comparison());
        for expected in [
            "Packet loss ratio against rate",
            "Actual against requested rate",
            "Packet loss ratio of single rounds",
            "CPU time",
            "Data sets",
            "61–1514",
            "\"range\":[[",
            "3 of 3",
            "<td>not counted",
            "≥ 950 kpps",
        ] {
            assert!(page.contains(expected), "{expected}");
        }
        assert!(!page.contains("<b>evil"));
        assert!(page.contains("&lt;b&gt;evil&lt;/b&gt; &lt;/script&gt;"));
    }

    #[test]
    fn a_comparison_of_nothing_is_a_page_too() {
        assert!(html(&Comparison::default()).ends_with("</html>\n"));
    }

    #[test]
    fn tables_show_loss_and_wrong_counts() {
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
