//! JUnit XML for continuous integration: a test case for the verdict, and one for each figure.

use squall_report::render::page::escape;

use crate::outcome::{Comparison, Figure, Limit, Outcome, Status};

pub fn junit(outcome: &Outcome, against: &[Comparison]) -> String {
    let status = outcome.verdict.status;
    let text = outcome.verdict.text.join("\n");
    let verdict = match status {
        Status::Measured | Status::Passed => element("system-out", None, &text),
        Status::Failed => element("failure", Some("criteria are not met"), &text),
        // An error: the device was not measured, and CI systems show a skipped test as a success.
        Status::GeneratorBound | Status::Stopped => element("error", Some(status.text()), &text),
    };
    let mut cases = vec![("verdict", verdict)];
    cases.extend(outcome.figures.iter().map(|one| (one.name.as_str(), case(one, against))));
    let count = |tag: &str| cases.iter().filter(|(_, inside)| inside.starts_with(tag)).count();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"squall.{}\" \
         tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{:.3}\" timestamp=\"{}\">\n",
        escape(&outcome.method),
        cases.len(),
        count("<failure"),
        count("<error"),
        outcome.duration_s,
        escape(&outcome.started),
    );
    for (name, inside) in &cases {
        let (class, name) = (escape(&outcome.method), escape(name));
        out += &format!(
            "<testcase classname=\"squall.{class}\" name=\"{name}\">{inside}</testcase>\n"
        );
    }
    out + "</testsuite>\n</testsuites>\n"
}

/// Result of a figure: worse than the baseline, not a result of the device, or its value.
fn case(figure: &Figure, against: &[Comparison]) -> String {
    let Figure { value, unit, limit, .. } = figure;
    let text = format!("{} {value} {unit}", limit.mark()).trim_start().to_owned();
    match against.iter().find(|one| one.name == figure.name && one.regressed) {
        Some(one) => {
            let text = format!("{text} was {}", one.before);
            element("failure", Some("worse than the baseline"), &text)
        }
        None if *limit == Limit::Generator => {
            element("error", Some(Status::GeneratorBound.text()), &text)
        }
        None => element("system-out", None, &text),
    }
}

fn element(tag: &str, message: Option<&str>, text: &str) -> String {
    let message = message.map_or_else(String::new, |text| format!(" message=\"{}\"", escape(text)));
    format!("<{tag}{message}>{}</{tag}>", escape(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Better, Verdict};

    #[test]
    fn each_result_is_a_case_and_none_is_skipped() {
        let figure = |name: &str, limit| Figure::new(name, 5.0, "s", Better::Lower, 0.0, limit);
        let limits = [("a", Limit::Device), ("b", Limit::Generator), ("c", Limit::Trial)];
        let outcome = Outcome {
            method: "rfc2544".into(),
            verdict: Verdict { status: Status::GeneratorBound, text: vec!["<why>".into()] },
            figures: limits.map(|(name, limit)| figure(name, limit)).into(),
            ..Outcome::default()
        };
        let worse = Comparison {
            name: "a".into(),
            unit: "s".into(),
            before: 1.0,
            now: 5.0,
            change: Some(4.0),
            regressed: true,
            improved: false,
        };
        let xml = junit(&outcome, &[worse]);
        assert!(xml.contains("tests=\"4\" failures=\"1\" errors=\"2\""), "{xml}");
        assert!(xml.contains("name=\"a\"><failure message=\"worse than the baseline\">5 s was 1"));
        assert!(xml.contains("name=\"b\"><error message=\"GENERATOR-BOUND\">at least"), "{xml}");
        assert!(xml.contains("name=\"c\"><system-out>at least 5 s<"), "{xml}");
        assert!(xml.contains("&lt;why&gt;") && !xml.contains("skipped"), "{xml}");
    }
}
