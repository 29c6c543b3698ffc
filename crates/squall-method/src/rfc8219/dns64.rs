//! §9: the resolution performance of a DNS64 server: the highest rate of queries for AAAA records at
//! which it answers each one in time, with a synthesized record.

use squall_report::render::human::si;

use super::{Settings, delay::Sample};
use crate::{
    bench::{Bench, MethodError},
    connections::Search,
    outcome::{Better, Figure, Limit, Outcome, Status, Table},
    trial::{Dns, FlowLoad, FlowsMeasured, Trial},
};

/// The longest domain: names have another 17 octets, and all of them fit in 255 (RFC 1035 §2.3.4).
const LONGEST: usize = 200;

/// Checks a domain name.
pub(super) fn domain(name: &str, domain: &String) -> Result<(), MethodError> {
    let label = |label: &str| {
        let letters = label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_');
        letters && (1..=63).contains(&label.len())
    };
    match domain.len() <= LONGEST && domain.split('.').all(label) {
        true => Ok(()),
        false => {
            let text = format!("{name} = {domain:?}: expected a domain name, such as dns64.test");
            Err(MethodError::Usage(text))
        }
    }
}

pub(super) fn all(
    settings: &Settings,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let (mut rates, mut limit, mut failure) = (Sample::default(), Limit::Device, String::new());
    let mut points = Vec::new();
    for number in 1..=settings.dns_repetitions {
        let trial = |qps: f64| trial(settings, number, qps);
        let passes = |_: f64, flows: &FlowsMeasured| flows.completed >= flows.attempted;
        let searched = Search {
            most: settings.dns_max_qps,
            resolution: settings.resolution,
            recovery_s: settings.dns_timeout_s,
            trial: &trial,
            passes: &passes,
        }
        .run(bench)?;
        rates.0.push(searched.found);
        limit = if searched.limit() == Limit::Device { limit } else { searched.limit() };
        failure = searched.failure;
        points = searched.points;
    }
    let [median, first, last] = [0.5, 0.01, 0.99].map(|q| rates.quantile(q).unwrap_or(0.0));
    let noise = (median * settings.resolution).max((last - first) / 2.0);
    outcome.figures.push(Figure::new("dns64", median, "queries/s", Better::Higher, noise, limit));
    let shown = |value: f64| si(value, "queries/s");
    let columns =
        ["Median", "1st percentile", "99th percentile", "Searches", "First that failed", ""];
    let mut table = Table::new("DNS64 resolution performance (RFC 8219 §9.2)", &columns);
    table.rows.push(vec![
        shown(median),
        shown(first),
        shown(last),
        rates.0.len().to_string(),
        failure.clone(),
        limit.mark().into(),
    ]);
    outcome.tables.push(table);
    outcome.plots.push(crate::Plot::new(
        "DNS64: queries without a valid answer",
        "Load, queries/s",
        "Failed, %",
        vec![crate::Series { label: "failed".into(), points }],
    ));
    let text = format!("DNS64: {} {}", limit.mark(), shown(median)).replace("  ", " ");
    outcome.verdict.text.push(text);
    if median == 0.0 && limit == Limit::Device {
        outcome.verdict.status = Status::Failed;
        outcome.notes.push(format!("DNS64: no load passed: {failure}"));
    }
    Ok(())
}

/// Queries at a constant rate. Each one is a flow of its own, for a name of its own.
fn trial(settings: &Settings, number: u32, qps: f64) -> Trial {
    let load = FlowLoad { cps: qps, dns: Some(settings.dns()), ..FlowLoad::default() };
    Trial {
        label: format!("DNS64, {number}, {qps:.1} queries/s"),
        duration_s: settings.trial_s,
        flows: Some(load),
        ..Trial::default()
    }
}

impl Settings {
    pub(crate) fn dns(&self) -> Dns {
        Dns { domain: self.dns_domain.clone(), within_s: self.dns_timeout_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Method, NoWatch, RetryPolicy, Rig, rfc8219};

    #[test]
    fn the_rate_is_that_of_the_server_and_no_frames_are_sent() {
        let settings = Settings {
            tests: vec![rfc8219::Test::Dns64],
            dns_repetitions: 3,
            ..Settings::default()
        };
        let mut device = Device { cps: 4321.0, ..Device::ideal() };
        let mut watch = NoWatch;
        let mut bench = Bench::new(&mut device, &mut watch, RetryPolicy::default());
        let method = Method::Rfc8219(settings);
        assert!(method.wants_flows() && !method.wants_streams());
        let rig = Rig { lanes: Vec::new(), ..Rig::one_stream("A to B", 1e9) };
        let outcome = method.run(&rig, &mut bench).expect("it runs");
        let found = outcome.figure("dns64").expect("a figure").value;
        assert!(found <= 4321.0 && found > 0.998 * 4321.0, "{found}");
        assert!(outcome.trials.iter().all(|one| one.trial.lanes.is_empty()));
    }

    #[test]
    fn a_domain_has_labels() {
        for (name, good) in [("dns64.test", true), ("", false), ("a..b", false), ("a b", false)] {
            assert_eq!(domain("dns_domain", &name.to_owned()).is_ok(), good, "{name}");
        }
    }
}
