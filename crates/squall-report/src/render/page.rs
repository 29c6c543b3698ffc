//! A self-contained HTML file with style, uPlot, scripts and data. All pages that Squall writes are
//! based on it. Plots are plain data ([`Plot`]).
//!
//! Names come from users. Therefore markup escapes them ([`escape`]), data escapes `<`, and scripts
//! write only text nodes. A content security policy forbids all requests.
//!
//! ```
//! use squall_report::render::page::{Axis, Line, Page, Plot, Unit};
//!
//! let mut page = Page::new("Frame sizes");
//! *page.markup() += "<h1>Frame sizes</h1>";
//! let sizes = Line::new("frames", [(60.0, 7.0), (590.0, 4.0), (1514.0, 1.0)]);
//! page.plots("Lengths", &[Plot::lines("CDF", Axis::new("octets", Unit::Length), Axis::new("", Unit::Count), vec![sizes])]);
//! assert!(page.finish().contains("Frame sizes"));
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const CSS: &str = include_str!("assets/report.css");
const PAGE_JS: &str = include_str!("assets/page.js");
const START_JS: &str = include_str!("assets/start.js");
const UPLOT_CSS: &str = include_str!("assets/uPlot.min.css");
const UPLOT_JS: &str = include_str!("assets/uPlot.iife.min.js");
const UPLOT_LICENSE: &str = include_str!("assets/uPlot.LICENSE");

/// A page under construction: markup and plots in order.
#[derive(Debug)]
pub struct Page {
    title: String,
    body: String,
    footer: String,
    script: &'static str,
    data: Value,
    plots: Vec<Value>,
    colors: Vec<String>,
}

impl Page {
    pub fn new(title: impl Into<String>) -> Self {
        let body = String::with_capacity(64 * 1024);
        Self {
            title: title.into(),
            body,
            footer: String::new(),
            script: "",
            data: json!({}),
            plots: Vec::new(),
            colors: Vec::new(),
        }
    }

    /// The markup, to append to. Text from users must pass through [`escape`].
    pub fn markup(&mut self) -> &mut String {
        &mut self.body
    }

    /// Adds a section of plots under a heading.
    pub fn plots(&mut self, heading: &str, plots: &[Plot]) {
        self.body += &format!(
            "<section><h2>{}</h2><div class=\"plots\" data-plots=\"{}\"></div></section>\n",
            escape(heading),
            self.plots.len()
        );
        self.plots.push(json!(plots));
    }

    /// Assigns the color of its position in `labels` to each of these labels, in all plots of the
    /// page. Readers then recognize a tool by its color in every plot, including plots in which
    /// another tool has no value. Other series have the color of their position in the plot.
    pub fn colors<'a>(&mut self, labels: impl IntoIterator<Item = &'a str>) {
        self.colors = labels.into_iter().map(str::to_owned).collect();
    }

    /// Adds a script of the page. It can use `data` under that name, and everything in
    /// `assets/page.js`.
    pub fn script(&mut self, script: &'static str, data: Value) {
        (self.script, self.data) = (script, data);
    }

    /// Adds small print at the end of the page.
    pub fn footer(&mut self, parts: &[&str]) {
        self.footer = parts.iter().map(|part| escape(part)).collect::<Vec<_>>().join(" · ");
    }

    pub fn finish(mut self) -> String {
        let mut page = String::with_capacity(self.body.len() + 256 * 1024);
        page += "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
        page += "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
                 style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n";
        page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
        page += "<meta name=\"color-scheme\" content=\"light dark\">\n";
        page += &format!("<title>{}</title>\n", escape(&self.title));
        page += &format!("<style>\n{UPLOT_CSS}\n{CSS}</style>\n</head>\n<body>\n<main>\n");
        page += &self.body;
        let separator = if self.footer.is_empty() { "" } else { " · " };
        page += &format!("<footer>{}{separator}plots by uPlot</footer>\n</main>\n", self.footer);
        self.data["plots"] = self.plots.into();
        self.data["colors"] = self.colors.into();
        let data = serde_json::to_string(&self.data).expect("values are plain JSON");
        page += &format!(
            "<script type=\"application/json\" id=\"data\">{}</script>\n",
            script_safe(&data)
        );
        page += &format!("<script>\n/* uPlot\n{UPLOT_LICENSE}*/\n{UPLOT_JS}\n</script>\n");
        page += &format!(
            "<script>\n(() => {{\n{PAGE_JS}\n{}\n{START_JS}}})();\n</script>\n",
            self.script
        );
        page + "</body>\n</html>\n"
    }
}

/// Appends the end of the page header: the command line, and facts by name, without empty ones.
pub fn facts(command: &str, facts: &[(&str, String)], page: &mut String) {
    *page += &format!("<pre class=\"command\">{}</pre>\n<dl class=\"facts\">", escape(command));
    for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
        *page += &format!("<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
    }
    *page += "</dl>\n</header>\n";
}

/// Appends the figures that users look up first: (name, whether it is bad, (figure, small print)).
pub fn tiles(tiles: &[(&str, bool, (String, String))], page: &mut String) {
    *page += "<div class=\"tiles\">";
    for (name, bad, (value, detail)) in tiles {
        let (class, value, detail) =
            (if *bad { " bad" } else { "" }, escape(value), escape(detail));
        *page += &format!(
            "<div class=\"tile{class}\"><h3>{}</h3><p>{value}</p><small \
             title=\"{detail}\">{detail}</small></div>",
            escape(name)
        );
    }
    *page += "</div>\n";
}

/// Appends a list of notes, if there are any.
pub fn notes(notes: &[String], page: &mut String) {
    if !notes.is_empty() {
        *page += "<section class=\"notes\"><h2>Notes</h2><ul>";
        notes.iter().for_each(|n| *page += &format!("<li>{}</li>", escape(n)));
        *page += "</ul></section>\n";
    }
}

/// Appends a table. The first cell of each row is its name. Escapes all cells.
pub fn table(heading: &str, columns: &[&str], rows: &[Vec<String>], page: &mut String) {
    *page +=
        &format!("<section><h2>{}</h2><div class=\"scroll\"><table><thead><tr>", escape(heading));
    for (i, column) in columns.iter().enumerate() {
        *page += &format!("<th{}>{}", if i == 0 { " class=\"name\"" } else { "" }, escape(column));
    }
    *page += "</thead>\n<tbody>";
    for row in rows {
        *page += "<tr>";
        for (i, cell) in row.iter().enumerate() {
            let open = if i == 0 { "<th class=\"name\" scope=\"row\">" } else { "<td>" };
            *page += &format!("{open}{}", escape(cell));
        }
        *page += "\n";
    }
    *page += "</tbody></table></div></section>\n";
}

/// Meaning of a plot's numbers. Determines how axes and values are formatted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// `1.5 k`
    #[default]
    Count,
    /// `1,500`: a number without prefix, for quantities whose unit is in the name of the axis.
    Number,
    /// Packets per second.
    Pps,
    /// Bits per second.
    Bps,
    /// `1.5 MB`
    Octets,
    /// `1514 B`, as an integer.
    Length,
    /// Nanoseconds, formatted as `15.2 us`, `3 s`.
    Ns,
    /// Seconds.
    S,
    /// 0 to 1, formatted as `12.3 %`.
    Ratio,
    /// 0 to 100.
    Percent,
}

/// An axis of a plot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Axis {
    pub name: String,
    pub unit: Unit,
    /// Whether the axis is logarithmic. Values up to 0 are then left out (x) or drawn at the
    /// minimum (y).
    pub log: bool,
}

impl Axis {
    pub fn new(name: impl Into<String>, unit: Unit) -> Self {
        Self { name: name.into(), unit, log: false }
    }

    /// Makes the axis logarithmic.
    pub fn log(self) -> Self {
        Self { log: true, ..self }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    #[default]
    Solid,
    Dashed,
    /// Each value holds until the next x, as in a CDF.
    Steps,
    /// Steps that are filled down to the axis, for a histogram by its lower edges. The last point
    /// has the last upper edge.
    Filled,
    Points,
}

/// A series of points, ascending in x.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub label: String,
    pub style: Style,
    x: Vec<f64>,
    y: Vec<Option<f64>>,
    /// Both ends of the error bar for each point.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    range: Vec<[f64; 2]>,
}

impl Line {
    pub fn new(label: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let (x, y) = points.into_iter().map(|(x, y)| (x, y.is_finite().then_some(y))).unzip();
        Self { label: label.into(), style: Style::default(), x, y, range: Vec::new() }
    }

    pub fn style(self, style: Style) -> Self {
        Self { style, ..self }
    }

    /// Adds error bars: the lower and upper end for each point.
    ///
    /// # Panics
    /// If the number of error bars is not that of the points.
    pub fn ranges(self, range: Vec<[f64; 2]>) -> Self {
        assert_eq!(range.len(), self.x.len(), "a range for each point");
        Self { range, ..self }
    }
}

/// A plot as data; `assets/page.js` draws it.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Plot {
    Lines {
        title: String,
        sub: String,
        x: Axis,
        y: Axis,
        series: Vec<Line>,
    },
    /// A bar for each category and series.
    Bars {
        title: String,
        sub: String,
        categories: Vec<String>,
        x: Axis,
        y: Axis,
        series: Vec<Group<f64>>,
    },
    /// A box for each category and series. The whiskers end at the extremes.
    Boxes {
        title: String,
        sub: String,
        categories: Vec<String>,
        x: Axis,
        y: Axis,
        series: Vec<Group<FiveNumbers>>,
    },
}

/// Minimum, lower quartile, median, upper quartile, maximum.
pub type FiveNumbers = [f64; 5];

/// One value per category of a plot; `None` if a category has no value.
#[derive(Clone, Debug, Serialize)]
pub struct Group<T> {
    pub label: String,
    pub y: Vec<Option<T>>,
}

impl Plot {
    pub fn lines(title: impl Into<String>, x: Axis, y: Axis, series: Vec<Line>) -> Self {
        Self::Lines { title: title.into(), sub: String::new(), x, y, series }
    }

    /// `x` has the names of the categories.
    pub fn bars(
        title: impl Into<String>,
        x: impl Into<String>,
        categories: Vec<String>,
        y: Axis,
        series: Vec<Group<f64>>,
    ) -> Self {
        let x = Axis::new(x, Unit::Count);
        Self::Bars { title: title.into(), sub: String::new(), categories, x, y, series }
    }

    pub fn boxes(
        title: impl Into<String>,
        x: impl Into<String>,
        categories: Vec<String>,
        y: Axis,
        series: Vec<Group<FiveNumbers>>,
    ) -> Self {
        let x = Axis::new(x, Unit::Count);
        Self::Boxes { title: title.into(), sub: String::new(), categories, x, y, series }
    }

    /// Sets the small print under the title.
    pub fn subtitle(mut self, text: impl Into<String>) -> Self {
        let (Self::Lines { sub, .. } | Self::Bars { sub, .. } | Self::Boxes { sub, .. }) =
            &mut self;
        *sub = text.into();
        self
    }
}

/// The five numbers of a sample, with quartiles by linear interpolation; `None` if it is empty.
pub fn five_numbers(sample: &[f64]) -> Option<FiveNumbers> {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = |q: f64| {
        let place = q * last as f64;
        let (below, above) = (sorted[place as usize], sorted[(place as usize + 1).min(last)]);
        below + (above - below) * place.fract()
    };
    Some([at(0.0), at(0.25), at(0.5), at(0.75), at(1.0)])
}

/// Escapes for use in text and in attributes within double quotes.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            c => safe.push(c),
        }
    }
    safe
}

/// Escapes `<`, so the JSON can neither end the `<script>` around it nor start a comment in it. In
/// JSON, `<` occurs only in strings.
fn script_safe(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_leave_their_place() {
        let evil = "</script><script>alert(1)</script><!--\"'&";
        let mut page = Page::new(evil);
        tiles(&[(evil, false, (evil.into(), evil.into()))], page.markup());
        notes(&[evil.into()], page.markup());
        table(evil, &[evil], &[vec![evil.into()]], page.markup());
        let count = || Axis::new(evil, Unit::Count);
        page.plots(
            evil,
            &[Plot::lines(evil, count(), count(), vec![Line::new(evil, [(0.0, 1.0)])])
                .subtitle(evil)],
        );
        page.footer(&[evil]);
        let page = page.finish();
        assert!(!page.contains("<script>alert") && !page.contains("<!--"));
        assert_eq!((page.matches("<script").count(), page.matches("</script>").count()), (3, 3));
    }

    #[test]
    fn quartiles_lie_between_the_values() {
        assert_eq!(five_numbers(&[4.0, 1.0, 3.0, 2.0]), Some([1.0, 1.75, 2.5, 3.25, 4.0]));
        assert_eq!(five_numbers(&[7.0]), Some([7.0; 5]));
        assert_eq!(five_numbers(&[]), None);
    }
}
