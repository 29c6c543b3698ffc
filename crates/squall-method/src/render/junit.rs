//! JUnit XML for continuous integration: a test case for the verdict, and one for each figure that
//! regressed.

use squall_report::render::page::escape;

use crate::outcome::{Comparison, Outcome, Status};

pub fn junit(outcome: &Outcome, against: &[Comparison]) -> String {
    let status = outcome.verdict.status;
    let text = outcome.verdict.text.join("\n");
    let failure = |message: &str, text: &str| {
        format!("<failure message=\"{}\">{}</failure>", escape(message), escape(text))
    };
    let inside = match status {
        Status::Measured | Status::Passed => String::new(),
        Status::Failed => failure("criteria are not met", &text),
        // Neither status is evidence for or against the device.
        Status::GeneratorBound | Status::Stopped => {
            format!("<skipped message=\"{}\"/>", escape(status.text()))
        }
    };
    let mut cases = vec![("verdict".to_owned(), inside)];
    for one in against {
        let text = format!("{} {} was {}", one.now, one.unit, one.before);
        let inside =
            if one.regressed { failure("worse than the baseline", &text) } else { String::new() };
        cases.push((one.name.clone(), inside));
    }
    let count = |tag: &str| cases.iter().filter(|(_, inside)| inside.starts_with(tag)).count();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"squall.{}\" \
         tests=\"{}\" failures=\"{}\" skipped=\"{}\" time=\"{:.3}\" timestamp=\"{}\">\n",
        escape(&outcome.method),
        cases.len(),
        count("<failure"),
        count("<skipped"),
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
