//! A self-contained HTML file: verdict, tables and plots of the standard, trials, and the command
//! that repeats the test.

use squall_report::render::{
    human,
    page::{self, Axis, Line, Page, Plot, Style, Unit, escape},
};

use crate::outcome::{Comparison, Outcome, Status};

pub fn html(outcome: &Outcome, against: &[Comparison]) -> String {
    let mut page = Page::new(format!("{} {}", outcome.title, outcome.started));
    header(outcome, page.markup());
    if !against.is_empty() {
        let rows: Vec<Vec<String>> = against.iter().map(row).collect();
        let columns = ["Figure", "Baseline", "Now", "Change", "Unit", ""];
        page::table("Against the baseline", &columns, &rows, page.markup());
    }
    page::notes(&outcome.notes, page.markup());
    if !outcome.plots.is_empty() {
        let plots: Vec<Plot> = outcome.plots.iter().map(plot).collect();
        page.plots("Plots", &plots);
    }
    for table in &outcome.tables {
        let columns: Vec<&str> = table.columns.iter().map(String::as_str).collect();
        page::table(&table.title, &columns, &table.rows, page.markup());
    }
    trials(outcome, page.markup());
    settings(outcome, page.markup());
    let version = format!("Squall {}", outcome.squall_version);
    page.footer(&[&version, &outcome.schema, "frame sizes include the FCS"]);
    page.finish()
}

fn header(outcome: &Outcome, page: &mut String) {
    let status = outcome.verdict.status;
    let class = match status {
        Status::Measured | Status::Passed => "valid",
        _ => "invalid",
    };
    *page += &format!(
        "<header>\n<div class=\"brand\">Squall <span>{}</span></div>\n<div class=\"verdict \
         {class}\"><strong>{}</strong>",
        escape(&outcome.title),
        status.text(),
    );
    outcome.verdict.text.iter().for_each(|text| *page += &format!("<p>{}</p>", escape(text)));
    *page += "</div>\n";
    let mut facts = vec![
        ("Started", outcome.started.clone()),
        ("Duration", human::seconds(outcome.duration_s)),
        ("Trials", outcome.trials.len().to_string()),
    ];
    facts.extend(outcome.host.iter().map(|(name, value)| (name.as_str(), value.clone())));
    page::facts(&outcome.command, &facts, page);
}

fn row(one: &Comparison) -> Vec<String> {
    let word = match (one.regressed, one.improved) {
        (true, _) => "worse",
        (_, true) => "better",
        _ => "",
    };
    let change = one.change.map_or_else(|| "new".into(), human::deviation);
    let [before, now] = [one.before, one.now].map(|value| format!("{value:.3}"));
    vec![one.name.clone(), before, now, change, one.unit.clone(), word.into()]
}

fn plot(plot: &crate::outcome::Plot) -> Plot {
    let axis = |text: &str| {
        let (name, unit) = text.rsplit_once(", ").unwrap_or((text, ""));
        match unit {
            "octets" => Axis::new(name, Unit::Length),
            "%" => Axis::new(name, Unit::Percent),
            "ns" => Axis::new(name, Unit::Ns),
            "s" => Axis::new(name, Unit::S),
            _ => Axis::new(text, Unit::Count),
        }
    };
    let line = |one: &crate::Series| {
        // A line needs two points.
        let style = if one.points.len() > 1 { Style::Solid } else { Style::Points };
        Line::new(&one.label, one.points.iter().copied()).style(style)
    };
    let series = plot.series.iter().map(line).collect();
    Plot::lines(&plot.title, axis(&plot.x), axis(&plot.y), series)
}

const TRIALS: [&str; 8] =
    ["Trial", "What", "Duration", "Sent", "Lost", "Ratio", "Mean latency", "Counted"];

fn trials(outcome: &Outcome, page: &mut String) {
    let row = |(i, recorded): (usize, &crate::RecordedTrial)| {
        let measured = &recorded.measured;
        let counted = match measured.not_kept.first() {
            None => "yes".into(),
            Some(why) => format!("no: {}", why.split(';').next().unwrap_or(why)),
        };
        // For trials with connections, show attempted and failed connections.
        let (sent, lost, ratio, delay) = match &measured.flows {
            Some(flows) => {
                (flows.attempted, flows.failures(), flows.failed_ratio(), flows.transaction)
            }
            None => (measured.sent(), measured.lost(), measured.loss_ratio(), measured.delay()),
        };
        vec![
            (i + 1).to_string(),
            recorded.trial.label.clone(),
            human::seconds(recorded.trial.duration_s),
            sent.to_string(),
            lost.to_string(),
            human::ratio(ratio),
            delay.map_or_else(String::new, |delay| human::ns(delay.mean)),
            counted,
        ]
    };
    let rows: Vec<Vec<String>> = outcome.trials.iter().enumerate().map(row).collect();
    page::table("Trials", &TRIALS, &rows, page);
}

fn settings(outcome: &Outcome, page: &mut String) {
    let settings = serde_json::to_string_pretty(&outcome.settings).unwrap_or_default();
    *page += &format!(
        "<section><h2>Configuration</h2><pre class=\"command file\">{}</pre>",
        escape(&settings)
    );
    if !outcome.profile.is_empty() {
        *page += &format!("<pre class=\"command file\">{}</pre>", escape(&outcome.profile));
    }
    *page += "</section>\n";
}
