//! §5.1 to §5.4: throughput, loss and forwarding rates between many ports.

use squall_report::render::human::{ratio, si};

use super::{Settings, Test, rate};
use crate::{
    bench::{Bench, MethodError},
    outcome::{Outcome, Plot, Series, Table},
    rig::Rig,
    search::{Highest, Search},
    stations::{LEARN_S, learning, loss, unicast},
    trial::{Lane, Measured, Trial},
};

const PATTERNS: [Test; 5] =
    [Test::FullMesh, Test::OneToMany, Test::ManyToOne, Test::Backbone, Test::Unidirectional];

/// Pairs of a sending and a receiving port, as indices.
pub(super) type Pairs = Vec<(usize, usize)>;

pub(super) fn all(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    for pattern in PATTERNS.into_iter().filter(|test| settings.tests.contains(test)) {
        let mut found = Vec::new();
        for &size in &settings.frame_sizes {
            let mesh = Mesh::new(settings, rig, pairs(pattern, rig.ports.len()), size);
            let label = format!("{}, {size} octets", words(pattern).0);
            let goal = Search {
                resolution: settings.resolution,
                tolerance: 0.0,
                verifications: 0,
                loss: &loss,
            };
            let trial = |load, label| mesh.trial(load, label);
            let highest = goal.highest(&label, bench, &trial)?;
            found.push((size, mesh.most_fps(), highest));
        }
        report(settings, pattern, &found, outcome);
    }
    Ok(())
}

/// Name and title of a pattern. The title has the RFC's section.
fn words(pattern: Test) -> (&'static str, &'static str) {
    match pattern {
        Test::FullMesh => ("full-mesh", "Fully meshed (RFC 2889 §5.1)"),
        Test::OneToMany => ("one-to-many", "Partially meshed, one to many (RFC 2889 §5.2)"),
        Test::ManyToOne => ("many-to-one", "Partially meshed, many to one (RFC 2889 §5.2)"),
        Test::Backbone => ("backbone", "Partially meshed, multiple devices (RFC 2889 §5.3)"),
        _ => ("unidirectional", "Partially meshed, unidirectional (RFC 2889 §5.4)"),
    }
}

pub(super) fn pairs(pattern: Test, ports: usize) -> Pairs {
    let half = ports / 2;
    let to = |from: usize| -> Vec<usize> {
        match pattern {
            Test::OneToMany if from > 0 => Vec::new(),
            Test::ManyToOne => Vec::from_iter((from > 0).then_some(0)),
            Test::Unidirectional if from >= half => Vec::new(),
            Test::Backbone | Test::Unidirectional if from < half => rotated(half..ports, from),
            Test::Backbone => rotated(0..half, from - half),
            // §5.1.3: each port sends to the ports that follow it, in turn.
            _ => (1..ports).map(|step| (from + step) % ports).collect(),
        }
    };
    (0..ports).flat_map(|from| to(from).into_iter().map(move |to| (from, to))).collect()
}

/// §5.4.3: each sender starts with a different receiver, so no two senders send to one receiver at
/// the same time.
fn rotated(ports: std::ops::Range<usize>, first: usize) -> Vec<usize> {
    let n = ports.len();
    (0..n).map(|step| ports.start + (first + step) % n).collect()
}

/// Streams between pairs of ports. A sender divides its load equally among its receivers.
pub(super) struct Mesh<'a> {
    rig: &'a Rig,
    pairs: Pairs,
    size: u32,
    hosts: u32,
    trial_s: f64,
}

impl<'a> Mesh<'a> {
    pub(super) fn new(settings: &Settings, rig: &'a Rig, pairs: Pairs, size: u32) -> Self {
        Self { rig, pairs, size, hosts: settings.addresses_per_port, trial_s: settings.trial_s }
    }

    fn senders(&self) -> usize {
        let mut from: Vec<_> = self.pairs.iter().map(|pair| pair.0).collect();
        from.dedup();
        from.len()
    }

    /// Total rate of all senders at a load of 1, frames per second.
    pub(super) fn most_fps(&self) -> f64 {
        self.senders() as f64 * self.rig.port_fps(self.size)
    }

    pub(super) fn trial(&self, load: f64, label: String) -> Trial {
        let port_fps = self.rig.port_fps(self.size) * load;
        let lane = |(i, &(from, to)): (usize, &(usize, usize))| {
            let before = self.pairs[..i].iter().filter(|pair| pair.0 == from).count();
            let destinations = self.pairs.iter().filter(|pair| pair.0 == from).count();
            Lane {
                name: format!("{} to {}", self.rig.ports[from], self.rig.ports[to]),
                template: Some(unicast(self.rig, from, to, self.hosts)),
                frame_size: Some(self.size),
                rate_fps: port_fps / destinations as f64,
                // Round robin: each sender sends one frame to each of its receivers in turn.
                start_s: LEARN_S + before as f64 / port_fps,
                ..Lane::default()
            }
        };
        let lanes = self.pairs.iter().enumerate().map(lane);
        let lanes = learning(self.rig, self.hosts).chain(lanes).collect();
        Trial { label, lanes, duration_s: LEARN_S + self.trial_s, ..Trial::default() }
    }

    /// Frames per second that arrived at the ports for which they were meant.
    pub(super) fn forwarded_fps(&self, load: f64, measured: &Measured) -> f64 {
        // At most the output rate: frames that only filled a buffer were not forwarded.
        self.most_fps() * load * (1.0 - loss(measured)).min(measured.output_ratio())
    }
}

fn report(
    settings: &Settings,
    pattern: Test,
    found: &[(u32, f64, Highest)],
    outcome: &mut Outcome,
) {
    let (name, title) = words(pattern);
    let columns = [
        "Frame size",
        "Throughput",
        "Of the highest rate",
        "Layer 1",
        "Forwarding rate at most load",
        "Loss at most load",
        "Maximum forwarding rate",
        "At a load of",
        "",
    ];
    let mut table = Table::new(title, &columns);
    let mut line = Vec::new();
    for (size, most, highest) in found {
        let fps = most * highest.load;
        let uncertainty = fps * settings.resolution;
        let figure = rate(format!("throughput.{name}/{size}"), fps, uncertainty, highest.limit);
        outcome.figures.push(figure);
        line.push((f64::from(*size), fps));
        // The search starts at the highest load. That trial is missing if the generator missed its
        // schedule.
        let at_most = highest.trials.iter().find(|(load, _)| *load >= 1.0);
        let at_most = at_most.map(|(load, measured)| {
            let lost = loss(measured);
            (most * load * (1.0 - lost), lost)
        });
        if let Some((forwarded, _)) = at_most {
            let name = format!("forwarding_rate.{name}/{size}");
            outcome.figures.push(rate(name, forwarded, fps * 0.01, highest.limit));
        }
        // §5.1.4.2: the maximum of all measured rates, as a device may forward less at a higher
        // load.
        let lossy = highest.trials.iter().filter(|(_, measured)| loss(measured) > 0.0);
        let rates = lossy.map(|(load, measured)| (*load, most * load * (1.0 - loss(measured))));
        let (at, highest_fps) =
            rates.fold((highest.load, fps), |best, one| if one.1 > best.1 { one } else { best });
        let figure = rate(
            format!("max_forwarding_rate.{name}/{size}"),
            highest_fps,
            fps * 0.01,
            highest.limit,
        );
        outcome.figures.push(figure);
        let dash = || "-".to_owned();
        table.rows.push(vec![
            size.to_string(),
            format!("{:.0} frames/s", fps.floor()),
            ratio(highest.load),
            si(fps * 8.0 * (f64::from(*size) + 20.0), "b/s"),
            at_most.map_or_else(dash, |(forwarded, _)| format!("{forwarded:.0} frames/s")),
            at_most.map_or_else(dash, |(_, lost)| ratio(lost)),
            format!("{highest_fps:.0} frames/s"),
            ratio(at),
            highest.limit.mark().into(),
        ]);
    }
    outcome.tables.push(table);
    outcome.plots.push(Plot {
        title: title.into(),
        x: "Frame size, octets".into(),
        y: "Frames/s, all ports".into(),
        series: vec![
            Series { label: "throughput".into(), points: line },
            Series {
                label: "highest rate".into(),
                points: found.iter().map(|one| (f64::from(one.0), one.1)).collect(),
            },
        ],
    });
    let each = found.iter().map(|(size, most, highest)| {
        format!("{} frames/s at {size}", si(most * highest.load, "").trim())
    });
    outcome.verdict.text.push(format!("{name}: {}", each.collect::<Vec<_>>().join(", ")));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receivers of the port `from`, in order.
    fn order(pattern: Test, ports: usize, from: usize) -> Vec<usize> {
        pairs(pattern, ports).into_iter().filter(|pair| pair.0 == from).map(|pair| pair.1).collect()
    }

    #[test]
    fn ports_send_in_the_order_of_the_rfc() {
        // The tables of §5.1.3 and §5.4.3, with 0-based ports.
        assert_eq!(order(Test::FullMesh, 6, 2), [3, 4, 5, 0, 1]);
        assert_eq!(order(Test::Unidirectional, 8, 0), [4, 5, 6, 7]);
        assert_eq!(order(Test::Unidirectional, 8, 2), [6, 7, 4, 5]);
        assert!(order(Test::Unidirectional, 8, 5).is_empty());
        assert_eq!(order(Test::Backbone, 6, 4), [1, 2, 0]);
        assert_eq!(order(Test::OneToMany, 4, 0), [1, 2, 3]);
        assert_eq!(pairs(Test::ManyToOne, 3), [(1, 0), (2, 0)]);
    }
}
