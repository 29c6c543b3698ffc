//! Evaluations of tcpdump: packet loss by bit rate and kind of traffic, and whether the sender
//! reached the requested rate. This is `squall compare captures` with the conditions of the paper
//! and its figures.

use squall::Error;
use squall_report::render::human;
use squall_units::{Nanos, Rate, median};

use super::{
    Known, Run,
    model::{Axis, Figure, Source, Table, Unit},
};
use crate::{
    Comparison, DEFAULT_TOOLS, DataSet, Place, Settings, Tool, captures,
    model::{Round, Step},
    render::in_order,
};

pub const EXPERIMENT: Known = Known {
    name: "tcpdump",
    title: "Packet loss of capture tools by bit rate and kind of traffic",
    paper: "Evaluations of tcpdump: replayed video, voice and HTTP traffic at given bit rates",
    about: "Packet loss ratio and CPU time of capture tools against bit rate, for several kinds of \
            traffic, and the actual against the requested rate",
    takes_s: [115, 2700],
    run,
};

/// Kinds of traffic.
const DATA: [&str; 4] = ["video", "voip", "http", "mixed"];

fn run(run: &mut Run<'_>) -> Result<(), Error> {
    let full = run.settings.full;
    let tools = match &run.settings.tools {
        Some(list) => list,
        None if full => DEFAULT_TOOLS,
        None => "tcpdump,squall",
    };
    let rates: &[&str] = match full {
        true => &[
            "100Mbps", "200Mbps", "400Mbps", "600Mbps", "800Mbps", "1Gbps", "1.5Gbps", "2Gbps",
            "max",
        ],
        false => &["100Mbps", "400Mbps", "1Gbps", "max"],
    };
    let settings = Settings {
        tools: Tool::parse_list(tools, &run.settings.squall)?,
        data: DATA.iter().map(|name| DataSet::parse(name)).collect::<Result<_, _>>()?,
        steps: rates.iter().map(|rate| rate.parse::<Rate>().expect("a rate")).collect(),
        rounds: if full { 3 } else { 1 },
        step: run.step(Nanos(700_000_000), Nanos(2_000_000_000)),
        write: vec![Place::parse("tmpfs")?],
        search: None,
        command: run.settings.command.clone(),
    };
    let Run { progress, stop, result, .. } = run;
    let comparison = captures(&settings, progress, stop)?;
    result.tools.clone_from(&comparison.tools);
    result.notes.extend(comparison.notes.iter().cloned());
    run.fact("Rounds", settings.rounds.to_string());
    run.fact("Sending time of a step", human::seconds(settings.step.0 as f64 / 1e9));
    run.fact("Files", "in memory (tmpfs)");
    for data in &comparison.own.data {
        let mean = format!("{:.0} octets on average, {}", data.mean_octets, data.origin);
        run.fact(&format!("Traffic {}", data.name), mean);
    }
    run.missing(
        "the paper's captures of Flash and HTTP video, Skype and SIP",
        "they are not published; the distributions of lengths follow the literature \
         (squall compare captures, data sets)",
    );
    run.missing(
        "two machines and a NIC",
        "sender and tool share a machine, on a CPU each if it has two",
    );
    run.missing(
        "the paper's own numbers",
        "they are not part of Squall; compare with the paper itself",
    );
    present(run, &comparison);
    Ok(())
}

fn present(run: &mut Run<'_>, comparison: &Comparison) {
    let steps = &comparison.steps;
    for step in steps {
        let what = format!("{}, {} at {}", step.tool, step.data, step.asked);
        if let Some(why) = step.rounds.iter().find_map(|round| round.failed.as_ref()) {
            run.note(format!("{what}: it failed: {why}"));
        } else if let Some(wrong) = step.rounds.iter().find_map(|r| r.disagreements.first()) {
            run.note(format!("{what}: it {wrong}"));
        }
    }
    let result = &mut run.result;
    result.tables.push(loss_table(steps));
    result.figures.push(actual_figure(steps));
    for data in in_order(steps.iter().map(|step| step.data.as_str())) {
        let of: Vec<&Step> = steps.iter().filter(|step| step.data == data).collect();
        result.figures.push(against_rate(
            &format!("loss-{data}"),
            &format!("Packet loss ratio, {data}"),
            Axis::new("packet loss ratio", Unit::Ratio),
            &of,
            |round| round.plr,
        ));
        result.figures.push(against_rate(
            &format!("cpu-{data}"),
            &format!("CPU time per million packets, {data}"),
            Axis::new("CPU s per million packets", Unit::Number),
            &of,
            cpu_s_per_mpkt,
        ));
    }
}

fn good(step: &Step) -> impl Iterator<Item = &Round> {
    step.rounds.iter().filter(|round| round.failed.is_none())
}

fn cpu_s_per_mpkt(round: &Round) -> Option<f64> {
    round.per_mpkt(round.user_s + round.system_s)
}

fn loss_table(steps: &[Step]) -> Table {
    let mut table = Table::new(
        "loss",
        "Packet loss by traffic, rate and tool",
        "Bit rates on layer 2 with FCS. Lost: share of packets that arrived at the interface and \
         are not in the tool's file, in all rounds. Kept: rounds in which the sender was within 2 % \
         of the rate.",
        &[
            ("Tool", Unit::Count),
            ("Traffic", Unit::Count),
            ("Requested, Mb/s", Unit::Number),
            ("Actual, Mb/s", Unit::Number),
            ("Actual, packets/s", Unit::Number),
            ("Lost", Unit::Ratio),
            ("CPU s/Mpkt", Unit::Number),
            ("Kept", Unit::Count),
            ("Its own counts", Unit::Count),
        ],
    );
    for step in steps {
        let counts = step.honest.map(|honest| if honest { "correct" } else { "wrong" });
        table.row(vec![
            step.tool.as_str().into(),
            step.data.as_str().into(),
            step.asked_bps.map_or("max".into(), |bps| (bps / 1e6).into()),
            step.actual_bps.map(|bps| bps / 1e6).into(),
            step.actual_pps.into(),
            median(good(step).filter_map(|round| round.plr)).into(),
            median(good(step).filter_map(cpu_s_per_mpkt)).into(),
            format!("{} of {}", step.rounds_counted, step.rounds.len()).into(),
            counts.into(),
        ]);
    }
    table
}

/// Figure 6 of the paper. All tools receive the same frames, so there is one line for each kind of
/// traffic: the median over the tools.
fn actual_figure(steps: &[Step]) -> Figure {
    let mut figure = Figure::lines(
        "actual",
        "Actual against requested rate (the paper's Figure 6)",
        "counted at the receiving interface; below the dashed line, the sender or the kernel is the \
         limit",
        Axis::new("requested (L2)", Unit::Bps),
        Axis::new("actual (L2)", Unit::Bps),
    );
    let mut all = Vec::new();
    for data in in_order(steps.iter().map(|step| step.data.as_str())) {
        let of = || steps.iter().filter(|step| step.data == data);
        let mut asked: Vec<f64> = of().filter_map(|step| step.asked_bps).collect();
        asked.sort_by(f64::total_cmp);
        asked.dedup();
        let points = asked.iter().filter_map(|asked| {
            let at = of().filter(|step| step.asked_bps == Some(*asked));
            Some((*asked, median(at.filter_map(|step| step.actual_bps))?))
        });
        figure.series(data, points);
        all.extend(asked);
    }
    let low = all.iter().copied().reduce(f64::min);
    if let Some((low, high)) = low.zip(all.iter().copied().reduce(f64::max)) {
        figure.reference("as requested", Source::Measured, [(low, low), (high, high)]);
    }
    figure
}

/// A series for each tool over the rate that arrived. Rounds in which the sender missed the
/// requested rate are also points.
fn against_rate(
    id: &str,
    title: &str,
    y: Axis,
    steps: &[&Step],
    value: fn(&Round) -> Option<f64>,
) -> Figure {
    let x = Axis::new("actual (L2)", Unit::Bps);
    let mut figure = Figure::lines(id, title, "each round, at the rate that arrived", x, y);
    for tool in in_order(steps.iter().map(|step| step.tool.as_str())) {
        let of = steps.iter().filter(|step| step.tool == tool);
        let rounds = of.flat_map(|step| good(step));
        let mut points: Vec<_> =
            rounds.filter_map(|round| Some((round.bps(), value(round)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        figure.series(tool, points);
    }
    figure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::sample::comparison;

    #[test]
    fn requested_and_actual_rates_are_one_line_for_each_traffic() {
        let figure = actual_figure(&comparison().steps);
        let labels: Vec<&str> = figure.series.iter().map(|s| s.label.as_str()).collect();
        assert_eq!(labels, ["60", "http", "as requested"]);
        // 2 Mpps were requested, but only 900 kpps were sent.
        let points = &figure.series[0].points;
        assert_eq!(points.len(), 3);
        assert!(points[2].1 < 0.6 * points[2].0, "{points:?}");
        assert_eq!(figure.series[2].points[1].0, points[2].0);
        assert_eq!(actual_figure(&[]).series, []);
    }

    #[test]
    fn the_table_has_every_step_and_the_figures_a_line_for_each_tool() {
        let comparison = comparison();
        let table = loss_table(&comparison.steps);
        assert_eq!(table.rows.len(), comparison.steps.len());
        let steps: Vec<&Step> = comparison.steps.iter().filter(|s| s.data == "60").collect();
        let y = Axis::new("", Unit::Ratio);
        assert_eq!(against_rate("a", "b", y, &steps, |round| round.plr).series.len(), 3);
    }
}
