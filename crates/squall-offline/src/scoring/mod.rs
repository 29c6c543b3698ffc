//! Compares an engine's alerts with the attacks that were sent: [`score`].

mod text;

use std::{
    fs::File,
    io::{BufReader, Read},
    path::{Path, PathBuf},
};

use serde::Serialize;
pub use squall_attacks::score::{
    Confusion, Counts, Latency, Other, Rates, RuleScore, ScenarioScore, Score,
};
use squall_attacks::{
    Label, labels,
    score::{Scorer, Settings, alerts},
};
use squall_units::Cannot;

pub use text::{score_html, score_text};

use crate::Error;

/// A score and its inputs.
#[derive(Clone, Debug, Serialize)]
pub struct Scored {
    /// `squall-score/1`.
    pub schema: &'static str,
    pub command: String,
    pub labels_file: String,
    pub alerts_files: Vec<AlertsFile>,
    #[serde(flatten)]
    pub score: Score,
}

/// A log of alerts.
#[derive(Clone, Debug, Serialize)]
pub struct AlertsFile {
    pub path: String,
    /// `json`, `fast`, `csv`, `tsv`, `u2spewfoo`; `None` if the log is empty.
    pub format: Option<String>,
    pub lines: u64,
    pub alerts: u64,
    /// Number of events that are not alerts.
    pub skipped: u64,
    /// Number of lines that are not events.
    pub bad: u64,
    /// The first of these lines, with their positions.
    pub errors: Vec<String>,
}

/// Reads labels and alerts, and compares them. Adds `shift_ns` to the times of alerts.
///
/// # Errors
/// [`Error::Usage`] if a file is missing, labels are invalid or the format of a log is unknown;
/// [`Error::Environment`] if a file may not be read.
pub fn score(labels_file: &Path, logs: &[PathBuf], shift_ns: i64) -> Result<Scored, Error> {
    let labels = read_labels(labels_file)?;
    let first = labels.first().map(|label| label.begin);
    let mut scorer = Scorer::new(labels, Settings { shift_ns });
    let mut files = Vec::new();
    for path in logs {
        let name = path.display().to_string();
        let mut reader = alerts::Reader::new(BufReader::new(open(path)?));
        if let Some(first) = first {
            reader = reader.year_of(first);
        }
        let read = scorer.read(&mut reader);
        if read.alerts == 0 && read.bad > 0 {
            let first =
                read.errors.first().map_or_else(String::new, |error| format!("\n  {name}:{error}"));
            return Err(Error::Usage(format!(
                "{name}: none of {} lines is an alert{first}\n  expected eve.json, fast.log, \
                 alert_fast or alert CSV",
                read.lines
            )));
        }
        files.push(AlertsFile {
            format: read.format.map(|format| format!("{format:?}").to_lowercase()),
            lines: read.lines,
            alerts: read.alerts,
            skipped: read.skipped,
            bad: read.bad,
            errors: read.errors.iter().map(|error| format!("{name}:{error}")).collect(),
            path: name,
        });
    }
    Ok(Scored {
        schema: "squall-score/1",
        command: String::new(),
        labels_file: labels_file.display().to_string(),
        alerts_files: files,
        score: scorer.finish(),
    })
}

fn open(path: &Path) -> Result<Box<dyn Read>, Error> {
    if path == Path::new("-") {
        return Ok(Box::new(std::io::stdin()));
    }
    Ok(Box::new(File::open(path).map_err(|error| Cannot::read(path, &error))?))
}

fn read_labels(path: &Path) -> Result<Vec<Label>, Error> {
    let mut all = Vec::new();
    for label in labels::Reader::new(BufReader::new(open(path)?)) {
        // A score based on a part of the labels would be meaningless.
        all.push(label.map_err(|error| Error::Usage(format!("{}:{error}", path.display())))?);
    }
    match all.is_empty() {
        true => Err(Error::Usage(format!(
            "{}: there are no labels\n  try squall attack --labels",
            path.display()
        ))),
        false => Ok(all),
    }
}

impl Scored {
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a score is plain JSON")
    }

    /// CSV with one row per rule.
    pub fn to_csv(&self) -> String {
        let mut csv = Vec::new();
        self.score.write_csv(&mut csv).expect("memory takes all");
        String::from_utf8_lossy(&csv).into_owned()
    }

    /// Figures over all rules that a [`Criterion`] may use; `None` if the denominator is 0.
    pub fn figures(&self) -> impl Iterator<Item = (&'static str, Option<f64>)> {
        FIGURES.iter().map(|(name, figure)| (*name, figure(&self.score)))
    }
}

type Figure = fn(&Score) -> Option<f64>;

const FIGURES: [(&str, Figure); 16] = [
    ("detection", |score| score.rates.detection),
    ("precision", |score| score.rates.precision),
    ("f1", |score| score.rates.f1),
    ("accuracy", |score| score.rates.accuracy),
    ("false_positive", |score| score.rates.false_positive),
    ("benign_false_positive", |score| score.rates.benign_false_positive),
    ("attacks", |score| Some(score.counts.attacks as f64)),
    ("hit", |score| Some(score.counts.hit as f64)),
    ("missed", |score| Some(score.counts.missed as f64)),
    ("near_misses_alerted", |score| Some(score.counts.near_misses_alerted as f64)),
    ("benign_alerted", |score| Some(score.counts.benign_alerted as f64)),
    ("collateral", |score| Some(score.counts.collateral as f64)),
    ("duplicates", |score| Some(score.counts.duplicates as f64)),
    ("outside", |score| Some(score.outside as f64)),
    ("latency_median_s", |score| {
        score.latency_from_end.as_ref().map(|latency| latency.median_ns as f64 / 1e9)
    }),
    ("latency_max_s", |score| {
        score.latency_from_end.as_ref().map(|latency| latency.max_ns as f64 / 1e9)
    }),
];

/// A criterion such as `detection < 0.97`, `missed > 0`, `false_positive > 1 %`.
#[derive(Clone, Debug, PartialEq)]
pub struct Criterion {
    text: String,
    figure: String,
    operator: &'static str,
    value: f64,
}

impl Criterion {
    /// The invalid text, and the expected form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let example =
            "expected a figure, an operator and a number: 'detection < 0.97', 'missed > 0'";
        let operators = ["<=", ">=", "==", "!=", "<", ">"];
        let found = operators
            .iter()
            .find_map(|operator| text.split_once(operator).map(|parts| (*operator, parts)));
        let Some((operator, (figure, value))) = found else {
            return Err(format!("{text:?}: {example}"));
        };
        let figure = figure.trim().to_owned();
        if !FIGURES.iter().any(|(name, _)| *name == figure) {
            let hint = squall_units::suggest(&figure, FIGURES.map(|(name, _)| name));
            return Err(format!("{figure:?} is not a figure of a score: {hint}"));
        }
        let value = value.trim();
        let (number, scale) =
            value.strip_suffix('%').map_or((value, 1.0), |percent| (percent.trim(), 0.01));
        match number.parse::<f64>() {
            Ok(number) if number.is_finite() => {
                Ok(Self { text: text.trim().into(), figure, operator, value: number * scale })
            }
            _ => Err(format!("{value:?} is not a number: {example}")),
        }
    }

    /// Returns an objection if the score violates the criterion. An unknown figure violates it,
    /// because a check without data must not pass.
    pub fn check(&self, scored: &Scored) -> Option<String> {
        let figure =
            scored.figures().find(|(name, _)| *name == self.figure).and_then(|(_, value)| value);
        let Some(figure) = figure else {
            return Some(format!("{} is unknown (fail if {})", self.figure, self.text));
        };
        let holds = match self.operator {
            "<=" => figure <= self.value,
            ">=" => figure >= self.value,
            "==" => figure == self.value,
            "!=" => figure != self.value,
            "<" => figure < self.value,
            _ => figure > self.value,
        };
        holds.then(|| format!("{} = {figure} (fail if {})", self.figure, self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: &str = "attack,begin,end,protocol,source,source_port,destination,\
                          destination_port,kind,gid,sid,rev,msg,also,alerts,frames,name,note\n0,\
                          1700000000.0,1700000000.1,6,10.1.0.1,40000,198.19.0.1,80,attack,1,\
                          9000001,1,one,,1,10,,\n1,1700000001.0,1700000001.1,6,10.1.0.2,40000,198.\
                          19.0.2,80,attack,1,9000002,1,two,,1,10,,\n2,1700000002.0,1700000002.1,6,\
                          10.1.0.3,40000,198.19.0.3,80,near_miss,1,9000001,1,one,,0,10,,\n";
    const EVE: &str = r#"{"timestamp":"2023-11-14T22:13:20.050000+0000","event_type":"alert","src_ip":"10.1.0.1","src_port":40000,"dest_ip":"198.19.0.1","dest_port":80,"proto":"TCP","alert":{"action":"allowed","gid":1,"signature_id":9000001,"rev":1,"signature":"one"}}
{"timestamp":"2023-11-14T22:13:20.050000+0000","event_type":"flow","src_ip":"10.1.0.1"}
"#;

    #[test]
    fn a_score_has_hits_misses_and_criteria() {
        let folder = std::env::temp_dir().join(format!("squall-score-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (labels, eve) = (folder.join("l.csv"), folder.join("eve.json"));
        std::fs::write(&labels, LABELS).unwrap();
        std::fs::write(&eve, EVE).unwrap();
        let scored = score(&labels, &[eve], 0).unwrap();
        assert_eq!((scored.score.counts.hit, scored.score.counts.missed), (1, 1));
        assert_eq!(
            (scored.score.counts.near_misses, scored.score.counts.near_misses_alerted),
            (1, 0)
        );
        let objection = |text: &str| Criterion::parse(text).unwrap().check(&scored);
        assert_eq!(
            objection("detection < 0.6").unwrap(),
            "detection = 0.5 (fail if detection < 0.6)"
        );
        assert_eq!((objection("missed > 1"), objection("false_positive > 0 %")), (None, None));
        assert!(objection("benign_false_positive > 0").unwrap().contains("is unknown"));
        assert!(
            Criterion::parse("detecton < 1").unwrap_err().contains("did you mean \"detection\"")
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
