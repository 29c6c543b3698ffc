//! The page of a comparison, with the plots of the papers: loss against rate, asked against actual
//! rate, and the cost.

use squall_report::render::{
    human,
    page::{self, Axis, Group, Line, Page, Plot, Style, Unit},
};

use crate::{
    Comparison,
    model::{Lossless, Spread, Step},
};

/// The comparison as a self-contained page.
pub fn html(comparison: &Comparison) -> String {
    let mut page =
        Page::new(format!("Squall comparison {} {}", comparison.host.name, comparison.started));
    header(comparison, page.markup());
    page::notes(&comparison.notes, page.markup());
    tools(comparison, page.markup());
    for data in &comparison.data {
        for write in &comparison.write {
            let of = |s: &&Step| s.data == data.name && s.write == write.name;
            let steps: Vec<&Step> = comparison.steps.iter().filter(of).collect();
            if !steps.is_empty() {
                let heading = format!("{}: {}, written to {}", data.name, data.origin, write.name);
                page.plots(&heading, &plots(comparison, &steps));
                page::table(
                    "",
                    &STEP_COLUMNS,
                    &steps.iter().map(|s| step_row(s)).collect::<Vec<_>>(),
                    page.markup(),
                );
            }
        }
    }
    lossless(comparison, &mut page);
    data_sets(comparison, &mut page);
    let version = format!("Squall {}", comparison.squall_version);
    page.footer(&[
        &version,
        &comparison.schema,
        "octets of frames exclude the FCS, bits per second include it",
    ]);
    page.finish()
}

fn header(comparison: &Comparison, page: &mut String) {
    *page += "<header>\n<div class=\"brand\">Squall <span>capture tools</span></div>\n";
    if comparison.interrupted {
        *page += "<div class=\"verdict invalid\"><strong>Interrupted</strong><p>The page has the \
                  measurements made before.</p></div>\n";
    }
    let method = &comparison.method;
    let cpu = |cpu: Option<u32>| cpu.map_or("any".into(), |cpu| cpu.to_string());
    let mut facts = vec![
        ("Started", comparison.started.clone()),
        ("Duration", human::seconds(comparison.duration_s)),
        ("Rounds", format!("{}; results are medians", method.rounds)),
        ("Step", human::seconds(method.step_s)),
        ("CPUs", format!("sender {}, tools {}", cpu(method.sender_cpu), cpu(method.tool_cpu))),
    ];
    facts.extend(comparison.host.facts());
    page::facts(&comparison.command, &facts, page);
}

fn tools(comparison: &Comparison, page: &mut String) {
    let rows: Vec<Vec<String>> = comparison
        .tools
        .iter()
        .map(|tool| {
            let steps = || comparison.steps.iter().filter(|s| s.tool == tool.name);
            let lie = steps().flat_map(|s| &s.rounds).find_map(|r| r.disagreements.first());
            let says = match (&tool.why_not, lie) {
                (Some(why), _) => format!("not compared: {why}"),
                (None, Some(lie)) => format!("wrong: it {lie}"),
                (None, None) if steps().any(|s| s.honest == Some(true)) => "correct".into(),
                (None, None) => "–".into(),
            };
            let takes = if tool.takes_frames { "taken from the host" } else { "" };
            let version = tool.version.clone().unwrap_or_default();
            vec![tool.name.clone(), tool.command.clone(), version, takes.into(), says]
        })
        .collect();
    page::table("Tools", &["Tool", "Command", "Version", "Frames", "Its own counts"], &rows, page);
}

fn plots(comparison: &Comparison, steps: &[&Step]) -> Vec<Plot> {
    let of = |tool: &str| steps.iter().copied().filter(move |s| s.tool == tool).collect::<Vec<_>>();
    let tools: Vec<&str> =
        comparison.tools.iter().map(|t| t.name.as_str()).filter(|t| !of(t).is_empty()).collect();
    // By rising rate, as a line wants them; a step that failed has no place.
    let line = |tool: &&str, point: &dyn Fn(&Step) -> Option<(f64, Spread)>| {
        let mut points: Vec<(f64, Spread)> = of(tool).into_iter().filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ranges: Vec<_> = points.iter().map(|(_, s)| [s.min, s.max]).collect();
        Line::new(*tool, points.iter().map(|(x, s)| (*x, s.median))).ranges(ranges)
    };
    let loss = tools.iter().map(|tool| line(tool, &|s| Some((s.actual_bps?, s.plr_spread?))));
    let loss = loss.collect();
    // Each at the rate that it got, so that a machine too busy to keep to rates still shows something.
    let single = |tool: &&str| {
        let rounds = of(tool).into_iter().flat_map(|s| &s.rounds).filter(|r| r.failed.is_none());
        let mut points: Vec<(f64, f64)> = rounds.filter_map(|r| Some((r.bps(), r.plr?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line::new(*tool, points).style(Style::Points)
    };
    let singles = tools.iter().map(single).collect();
    let actual =
        tools.iter().map(|tool| line(tool, &|s| Some((s.asked_bps?, s.actual_bps_spread?))));
    let mut actual: Vec<Line> = actual.collect();
    let asked = steps.iter().filter_map(|s| s.asked_bps);
    let (low, high) =
        asked.fold((f64::INFINITY, 0.0_f64), |(low, high), bps| (low.min(bps), high.max(bps)));
    if low < high {
        actual.push(Line::new("as requested", [(low, low), (high, high)]).style(Style::Dashed));
    }
    let mut rates: Vec<&str> = Vec::new();
    for step in steps {
        if !rates.contains(&step.asked.as_str()) {
            rates.push(&step.asked);
        }
    }
    let bars = |value: &dyn Fn(&Step) -> Option<f64>| -> Vec<Group<f64>> {
        let at = |tool: &str, rate: &str| {
            steps.iter().find(|s| s.tool == tool && s.asked == rate).and_then(|s| value(s))
        };
        let group = |tool: &&str| Group {
            label: (*tool).into(),
            y: rates.iter().map(|r| at(tool, r)).collect(),
        };
        tools.iter().map(group).collect()
    };
    let categories = || rates.iter().map(|rate| (*rate).to_owned()).collect::<Vec<_>>();
    let rate = |name: &str| Axis::new(name, Unit::Bps);
    vec![
        Plot::lines(
            "Packet loss ratio against rate",
            rate("arrived (L2)"),
            Axis::new("PLR", Unit::Ratio),
            loss,
        )
        .subtitle(
            "share of packets that arrived at the interface and are not in the file; median, minimum \
             and maximum of the rounds that kept to the rate",
        ),
        Plot::lines(
            "Packet loss ratio of single rounds",
            rate("arrived (L2)"),
            Axis::new("PLR", Unit::Ratio),
            singles,
        )
        .subtitle("all rounds, including those whose sender was off the requested rate"),
        Plot::lines(
            "Actual against requested rate",
            rate("requested (L2)"),
            rate("arrived (L2)"),
            actual,
        )
        .subtitle("below the dashed line, the sender or the kernel is the limit"),
        Plot::bars(
            "CPU time",
            "requested",
            categories(),
            Axis::new("s per million packets", Unit::S),
            bars(&|s| s.cpu_s_per_mpkt),
        )
        .subtitle("seconds of the tool, user and system, per million packets that it captured"),
        Plot::bars(
            "Peak memory",
            "requested",
            categories(),
            Axis::new("octets", Unit::Octets),
            bars(&|s| Some(s.peak_memory_octets as f64).filter(|octets| *octets > 0.0)),
        ),
    ]
}

const STEP_COLUMNS: [&str; 14] = [
    "Tool",
    "Requested",
    "Arrived",
    "L2",
    "Rounds",
    "PLR",
    "Range",
    "Quartiles",
    "PLR of sent",
    "CPU s/Mpkt",
    "User",
    "System",
    "Peak memory",
    "Its own counts",
];

fn step_row(step: &Step) -> Vec<String> {
    let or_none = |text: Option<String>| text.unwrap_or("–".into());
    let seconds = |value: Option<f64>| or_none(value.map(|s| format!("{s:.2}")));
    let bound = if step.sender_bound { " (sender-bound)" } else { "" };
    let failed =
        step.rounds.iter().find_map(|r| r.failed.as_ref()).map(|why| format!("failed: {why}"));
    let not_counted = step.sender_bound.then(|| "not counted".to_owned());
    vec![
        step.tool.clone(),
        step.asked.clone(),
        or_none(step.actual_pps.map(|pps| human::si(pps, "pps") + bound)),
        or_none(step.actual_bps.map(|bps| human::si(bps, "b/s"))),
        format!("{} of {}", step.rounds_counted, step.rounds.len()),
        step.plr.map(human::ratio).or(failed).or(not_counted).unwrap_or("–".into()),
        or_none(step.plr_spread.map(|s| ratios(s.min, s.max))),
        or_none(step.plr_spread.map(|s| ratios(s.p25, s.p75))),
        or_none(step.plr_of_sent.map(human::ratio)),
        seconds(step.cpu_s_per_mpkt),
        seconds(step.user_s_per_mpkt),
        seconds(step.system_s_per_mpkt),
        human::si(step.peak_memory_octets as f64, "B"),
        match step.honest {
            Some(true) => "correct".into(),
            Some(false) => "wrong".into(),
            None => "–".into(),
        },
    ]
}

fn ratios(from: f64, to: f64) -> String {
    format!("{} to {}", human::ratio(from), human::ratio(to))
}

fn lossless(comparison: &Comparison, page: &mut Page) {
    let all = &comparison.lossless;
    if all.is_empty() {
        return;
    }
    let below = human::ratio(comparison.method.lossless_below);
    let heading = format!("Largest rate with a loss ratio below {below}");
    let place = |l: &Lossless| format!("{}, {}", l.data, l.write);
    let mut places: Vec<String> = Vec::new();
    for l in all {
        if !places.contains(&place(l)) {
            places.push(place(l));
        }
    }
    let group = |tool: &str| {
        let at = |p: &String| all.iter().find(|l| l.tool == tool && place(l) == *p).map(|l| l.pps);
        Group { label: tool.into(), y: places.iter().map(at).collect() }
    };
    let tools = comparison.tools.iter().filter(|t| all.iter().any(|l| l.tool == t.name));
    let groups = tools.map(|t| group(&t.name)).collect();
    let bars = Plot::bars(
        "Lossless",
        "data set, output",
        places.clone(),
        Axis::new("packets per second", Unit::Pps),
        groups,
    );
    page.plots(
        &heading,
        &[bars.subtitle("≥ in the table: no loss at full speed, the tool may reach more")],
    );
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|l| {
            let at_least = if l.sender_bound { "≥ " } else { "" };
            let (low, high) = l.pps_range;
            vec![
                l.tool.clone(),
                place(l),
                format!("{at_least}{}", human::si(l.pps, "pps")),
                format!("{} to {}", human::si(low, "pps"), human::si(high, "pps")),
                human::si(l.bps, "b/s"),
                l.cpu_s_per_mpkt.map_or("–".into(), |s| format!("{s:.2}")),
            ]
        })
        .collect();
    page::table(
        "",
        &["Tool", "Data set, output", "Lossless", "Rounds", "L2", "CPU s/Mpkt"],
        &rows,
        page.markup(),
    );
}

fn data_sets(comparison: &Comparison, page: &mut Page) {
    let Some(first) = comparison.data.first() else { return };
    let bins = first.histogram.iter().map(|bin| match bin.from == bin.to {
        true => bin.to.to_string(),
        false => format!("{}–{}", bin.from, bin.to),
    });
    let shares = comparison.data.iter().map(|data| Group {
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
    use super::{super::sample::comparison, *};

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
}
