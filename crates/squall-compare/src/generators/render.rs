//! A comparison of generators made visible: the tables and the page.

use squall_report::render::{
    human,
    page::{self, Axis, Group, Line, Page, Plot, Style as LineStyle, Unit},
    table::{Cell, Style, Table, wrap},
};

use super::model::{GeneratorStep, Generators};

/// Text tables, lines at most `width` columns (at least 60), `color` with ANSI colors.
pub fn summary(result: &Generators, width: usize, color: bool) -> String {
    let width = width.max(60);
    let mut out = Vec::new();
    for octets in sizes(result) {
        out.push(Style::Bold.paint(&format!("{octets} octets without FCS, UDP"), color));
        let mut table = Table::new(&[
            ("TOOL", 0),
            ("ASKED", 0),
            ("MEAN", 0),
            ("SD", 0),
            ("VARIANCE", 6),
            ("L2", 3),
            ("L1", 5),
            ("REACHED", 1),
            ("USER", 2),
            ("SYSTEM", 2),
            ("MEMORY", 4),
            ("COUNT", 1),
        ]);
        result.steps.iter().filter(|s| s.octets == octets).for_each(|s| table.row(row(s)));
        out.extend(table.lines(width, color));
        out.push(String::new());
    }
    let mut say = |style: Style, text: String| {
        out.extend(wrap(&text, width, 2).iter().map(|line| style.paint(line, color)));
    };
    for tool in &result.tools {
        if let Some(why) = &tool.why_not {
            say(Style::Dim, format!("{} was not compared: {why}", tool.name));
        }
    }
    for step in &result.steps {
        let what = format!("{}, {} octets at {}", step.tool, step.octets, step.asked);
        let failed = step.rounds.iter().find_map(|round| round.failed.as_ref());
        failed.into_iter().for_each(|why| say(Style::Bad, format!("{what}: failed: {why}")));
        let wrong = step.rounds.iter().find_map(|round| round.disagreement.as_ref());
        wrong.into_iter().for_each(|why| say(Style::Bad, format!("{what}: {why}")));
    }
    result.notes.iter().for_each(|note| say(Style::Plain, format!("note: {note}")));
    if result.interrupted {
        say(Style::Bad, "interrupted: these are the measurements made before".into());
    }
    out.join("\n") + "\n"
}

fn row(step: &GeneratorStep) -> Vec<Cell> {
    let mut cells: Vec<Cell> = columns(step).into_iter().map(Cell::from).collect();
    cells[11] = match count(step) {
        "wrong" => Cell::styled("wrong", Style::Bad),
        "correct" => Cell::styled("correct", Style::Good),
        other => other.into(),
    };
    cells
}

fn columns(step: &GeneratorStep) -> Vec<String> {
    let si = |value: Option<f64>, unit: &str| value.map_or("–".into(), |v| human::si(v, unit));
    let cpus = |value: Option<f64>| value.map_or("–".into(), |v| format!("{v:.2}"));
    vec![
        step.tool.clone(),
        step.asked.clone(),
        step.mean_pps.map_or("failed".into(), |v| human::si(v, "pps")),
        si(step.sd_pps, "pps"),
        step.variance_pps.map_or("–".into(), |v| format!("{v:.3e}")),
        si(step.bps_l2, "b/s"),
        si(step.bps_l1, "b/s"),
        step.reached.map_or("–".into(), |v| format!("{:.1} %", 100.0 * v)),
        cpus(step.user_cpus),
        cpus(step.system_cpus),
        si(step.mean_pps.map(|_| step.peak_memory_octets as f64), "B"),
        count(step).into(),
    ]
}

/// Whether what the tool says that it sent is what arrived.
fn count(step: &GeneratorStep) -> &'static str {
    if step.rounds.iter().any(|round| round.disagreement.is_some()) {
        return "wrong";
    }
    if step.rounds.iter().any(|round| round.claimed.is_some()) { "correct" } else { "–" }
}

fn sizes(result: &Generators) -> Vec<u32> {
    let mut sizes: Vec<u32> = Vec::new();
    for step in &result.steps {
        if !sizes.contains(&step.octets) {
            sizes.push(step.octets);
        }
    }
    sizes
}

/// The comparison as a self-contained page.
pub fn html(result: &Generators) -> String {
    let mut page = Page::new(format!("Squall generators {} {}", result.host.name, result.started));
    header(result, page.markup());
    page::notes(&result.notes, page.markup());
    let tools: Vec<Vec<String>> = result
        .tools
        .iter()
        .map(|tool| {
            let version = tool.version.clone().unwrap_or_default();
            let why =
                tool.why_not.as_ref().map_or("compared".into(), |w| format!("not compared: {w}"));
            vec![tool.name.clone(), tool.command.clone(), version, why]
        })
        .collect();
    page::table("Tools", &["Tool", "Command", "Version", ""], &tools, page.markup());
    for octets in sizes(result) {
        let steps: Vec<_> = result.steps.iter().filter(|s| s.octets == octets).collect();
        page.plots(&format!("Frames of {octets} octets"), &plots(&steps));
        let rows: Vec<_> = steps.iter().map(|step| columns(step)).collect();
        page::table("", &COLUMNS, &rows, page.markup());
    }
    let version = format!("Squall {}", result.squall_version);
    page.footer(&[
        &version,
        &result.schema,
        "octets of frames exclude the FCS, bits per second include it",
    ]);
    page.finish()
}

const COLUMNS: [&str; 12] = [
    "Tool",
    "Asked",
    "Mean",
    "SD",
    "Variance",
    "L2",
    "L1",
    "Reached",
    "User CPUs",
    "System CPUs",
    "Memory",
    "Its own count",
];

fn header(result: &Generators, page: &mut String) {
    *page += "<header>\n<div class=\"brand\">Squall <span>generators</span></div>\n";
    if result.interrupted {
        *page += "<div class=\"verdict invalid\"><strong>Interrupted</strong><p>The page has the \
                  measurements made before.</p></div>\n";
    }
    let method = &result.method;
    let mut facts = vec![
        ("Started", result.started.clone()),
        ("Duration", human::seconds(result.duration_s)),
        ("Rounds", method.rounds.to_string()),
        ("Step", human::seconds(method.step_s)),
        ("CPU of the tools", method.sender_cpu.map_or("any".into(), |cpu| cpu.to_string())),
    ];
    facts.extend(result.host.facts());
    page::facts(&result.command, &facts, page);
}

/// Rates as boxes over the seconds, asked against actual rate, CPU and memory.
fn plots(steps: &[&GeneratorStep]) -> Vec<Plot> {
    let (mut tools, mut rates): (Vec<&str>, Vec<&str>) = Default::default();
    for step in steps {
        if !tools.contains(&step.tool.as_str()) {
            tools.push(&step.tool);
        }
        if !rates.contains(&step.asked.as_str()) {
            rates.push(&step.asked);
        }
    }
    let at = |tool: &str, rate: &str| steps.iter().find(|s| s.tool == tool && s.asked == rate);
    let categories = || rates.iter().map(|rate| (*rate).to_owned()).collect::<Vec<_>>();
    let boxes = tools.iter().map(|tool| Group {
        label: (*tool).into(),
        y: rates
            .iter()
            .map(|r| at(tool, r).and_then(|s| page::five_numbers(&s.samples())))
            .collect(),
    });
    let bars = |value: &dyn Fn(&GeneratorStep) -> Option<f64>| {
        let group = |tool: &&str| Group {
            label: (*tool).into(),
            y: rates.iter().map(|rate| at(tool, rate).and_then(|s| value(s))).collect(),
        };
        tools.iter().map(group).collect::<Vec<_>>()
    };
    let mut lines: Vec<Line> = Vec::new();
    let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
    for tool in &tools {
        let of = steps.iter().filter(|s| s.tool == **tool);
        let mut points: Vec<_> = of.filter_map(|s| Some((s.asked_pps?, s.mean_pps?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.iter().for_each(|(x, _)| (low, high) = (low.min(*x), high.max(*x)));
        if !points.is_empty() {
            lines.push(Line::new(*tool, points));
        }
    }
    if low < high {
        lines.push(Line::new("as asked", [(low, low), (high, high)]).style(LineStyle::Dashed));
    }
    let pps = |name: &str| Axis::new(name, Unit::Pps);
    let mut plots = vec![
        Plot::boxes("Rate", "asked", categories(), pps("arrived"), boxes.collect())
            .subtitle("a box has the seconds of all rounds"),
        Plot::bars(
            "CPU time, user and system",
            "asked",
            categories(),
            Axis::new("CPUs", Unit::Count),
            bars(&|s| Some(s.user_cpus? + s.system_cpus?)),
        ),
        Plot::bars(
            "Peak memory",
            "asked",
            categories(),
            Axis::new("memory", Unit::Octets),
            bars(&|s| Some(s.peak_memory_octets as f64)),
        ),
    ];
    if !lines.is_empty() {
        plots.insert(
            1,
            Plot::lines("Actual against asked rate", pps("asked"), pps("arrived"), lines),
        );
    }
    plots
}

#[cfg(test)]
mod tests {
    use super::{
        super::model::{GENERATORS_SCHEMA, GeneratorRound},
        *,
    };
    use crate::model::ToolInfo;

    fn sample() -> Generators {
        let step = |tool: &str, asked: &str, asked_pps, claimed| {
            let mut round = GeneratorRound {
                pps: vec![90e3, 110e3],
                user_cpus: 0.25,
                arrived: 200_000,
                claimed,
                ..GeneratorRound::default()
            };
            round.judge();
            let mut step = GeneratorStep {
                tool: tool.into(),
                octets: 60,
                asked: asked.into(),
                asked_pps,
                rounds: vec![round],
                ..GeneratorStep::default()
            };
            step.sum_up();
            step
        };
        let info = |name: &str, why: Option<&str>| ToolInfo {
            name: name.into(),
            why_not: why.map(str::to_owned),
            ..ToolInfo::default()
        };
        Generators {
            schema: GENERATORS_SCHEMA.into(),
            tools: vec![info("squall", None), info("<b>", Some("not installed: try apt"))],
            steps: vec![
                step("squall", "100 kpps", Some(100e3), Some(200_000)),
                step("squall", "200 kpps", Some(200e3), Some(200_000)),
                step("<b>", "max", None, Some(300_000)),
            ],
            ..Generators::default()
        }
    }

    #[test]
    fn the_table_and_the_page_say_how_fast_and_who_counts_wrong() {
        let text = summary(&sample(), 140, false);
        for expected in [
            "100 kpps",
            "100.0 %",
            "50.0 %",
            "14.1 kpps",
            "2.000e8",
            "51.2 Mb/s",
            "67.2 Mb/s",
            "correct",
            "wrong",
            "claims 300,000 sent frames, 200,000 arrived",
            "<b> was not compared: not installed",
        ] {
            assert!(text.contains(expected), "{expected}:\n{text}");
        }
        let page = html(&sample());
        for expected in ["Actual against asked rate", "CPU time", "Peak memory", "51.2 Mb/s"] {
            assert!(page.contains(expected), "{expected}");
        }
        assert!(!page.contains("<td><b>") && page.contains("&lt;b&gt;"));
    }
}
