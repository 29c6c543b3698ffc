//! §4.1 to §4.3 and §5: forwarding rates and latency.

use squall_report::render::human::{ns, ratio, si};

use super::{
    Settings, Test,
    groups::{Groups, Phases, members},
};
use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Figure, Limit, Outcome, Plot, Series, Table},
    rfc2544::LATENCY_NOTE,
    rig::Rig,
    search::{Highest, Search},
    stations::{arrived, unicast},
    trial::{Delay, Lane, Measured, Trial},
};

const MULTICAST: &str = "multicast";

/// Multicast to all ports but the first, mixed with unicast to each of them.
struct Traffic<'a> {
    settings: &'a Settings,
    rig: &'a Rig,
    groups: Groups,
    size: u32,
    /// Multicast share of the load.
    share: f64,
}

impl Traffic<'_> {
    fn receivers(&self) -> std::ops::Range<usize> {
        1..self.rig.ports.len()
    }

    fn unicast_name(&self, to: usize) -> String {
        format!("unicast to {}", self.rig.ports[to])
    }

    fn trial(&self, load: f64, label: String) -> Trial {
        self.trial_of(self.settings.trial_s, load, label)
    }

    fn trial_of(&self, data_s: f64, load: f64, label: String) -> Trial {
        let phases = Phases::new(self.settings, self.groups, data_s);
        let fps = self.rig.port_fps(self.size) * load;
        let lane = |name: String, template, rate_fps| Lane {
            name,
            template: Some(template),
            frame_size: Some(self.size),
            rate_fps,
            start_s: phases.data_s,
            duration_s: Some(data_s),
            ..Lane::default()
        };
        let (settings, rig) = (self.settings, self.rig);
        let mut lanes = members(settings, rig, self.groups, self.receivers(), 0.0, phases.leave_s);
        lanes.push(lane(MULTICAST.into(), self.groups.data(rig, 0), fps * self.share));
        let each = fps * (1.0 - self.share) / self.receivers().len() as f64;
        if each > 0.0 {
            // §4.1: multicast and unicast frames alternate (m1 u1 m2 u2 ...), the latter to each
            // receiver in turn.
            let turn_s = 1.0 / (fps * (1.0 - self.share));
            lanes.extend(self.receivers().zip(0..).map(|(to, turn)| {
                let lane = lane(self.unicast_name(to), unicast(rig, 0, to, 1), each);
                Lane { start_s: phases.data_s + (f64::from(turn) + 0.5) * turn_s, ..lane }
            }));
        }
        Trial { label, lanes, duration_s: phases.end_s, ..Trial::default() }
    }

    /// Number of multicast frames sent, and received by each receiver.
    fn multicast(&self, measured: &Measured) -> (u64, Vec<u64>) {
        let sent = measured.lane(MULTICAST).map_or(0, |lane| lane.sent);
        let came = |to: usize| {
            let unicast = measured.lane(&self.unicast_name(to)).map_or(0, |lane| lane.received);
            match measured.signed_at(&self.rig.ports[to]) {
                Some(all) => all.saturating_sub(unicast),
                None => arrived(measured, &self.rig.ports[to], MULTICAST),
            }
        };
        (sent, self.receivers().map(came).collect())
    }

    /// Multicast and unicast rates offered at the highest load, as text.
    fn offered(&self, highest: &Highest) -> [String; 2] {
        let at = highest.trials.iter().find(|(load, _)| *load == highest.offered);
        let frames = |name: &str| {
            let lane = at.and_then(|(_, measured)| measured.lane(name));
            lane.map_or(0, |lane| lane.sent)
        };
        let unicast = self.receivers().map(|to| frames(&self.unicast_name(to)));
        [frames(MULTICAST), unicast.sum()].map(|frames: u64| frames.to_string())
    }

    /// The highest loss ratio of any traffic class and receiver.
    fn loss(&self, measured: &Measured) -> f64 {
        let (sent, came) = self.multicast(measured);
        if sent == 0 {
            return 1.0;
        }
        let least = came.into_iter().min().unwrap_or(0);
        let multicast = sent.saturating_sub(least) as f64 / sent as f64;
        let unicast = self.receivers().filter_map(|to| measured.lane(&self.unicast_name(to)));
        let unicast = unicast.map(|lane| lane.lost as f64 / lane.sent.max(1) as f64);
        unicast.fold(multicast, f64::max)
    }

    fn highest(&self, label: &str, bench: &mut Bench<'_>) -> Result<Highest, MethodError> {
        let goal = Search {
            resolution: self.settings.resolution,
            tolerance: 0.0,
            verifications: 0,
            loss: &|measured| self.loss(measured),
        };
        goal.highest(label, bench, &|load, label| self.trial(load, label))
    }
}

pub(super) fn mixed(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let columns = [
        "Frame size",
        "Multicast share",
        "Multicast offered",
        "Unicast offered",
        "Throughput",
        "Multicast",
        "Unicast",
        "Of the highest rate",
        "",
    ];
    let mut table = Table::new("Mixed class throughput (RFC 3918 §4.1)", &columns);
    for size in settings.sizes() {
        for &share in &settings.multicast_shares {
            let groups = Groups::new(settings, 0, settings.groups);
            let traffic = Traffic { settings, rig, groups, size, share };
            let label = format!("mixed class, {size} octets, {} multicast", ratio(share));
            let highest = traffic.highest(&label, bench)?;
            let fps = highest.load * rig.port_fps(size);
            let name = format!("mixed_class@{:.0}%/{size}", share * 100.0);
            let noise = fps * settings.resolution;
            let figure = Figure::new(name, fps, "frames/s", Better::Higher, noise, highest.limit);
            outcome.figures.push(figure);
            let rate = |fps: f64| format!("{fps:.0} frames/s");
            let [multicast, unicast] = traffic.offered(&highest);
            table.rows.push(vec![
                size.to_string(),
                ratio(share),
                multicast,
                unicast,
                rate(fps),
                rate(fps * share),
                rate(fps * (1.0 - share)),
                ratio(highest.load),
                highest.limit.mark().into(),
            ]);
        }
    }
    outcome.tables.push(table);
    Ok(())
}

/// `capacity`: the group capacity of the device, if measured.
pub(super) fn matrix(
    settings: &Settings,
    rig: &Rig,
    capacity: Option<u32>,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let columns =
        ["Frame size", "Groups", "Offered", "Least at a receiver", "Forwarded", "Forwarding rate"];
    let mut table = Table::new("Scaled group forwarding matrix (RFC 3918 §4.2)", &columns);
    let mut series = Vec::new();
    let fits = |count: u32| capacity.is_none_or(|capacity| count <= capacity);
    for count in settings.matrix.iter().filter(|count| !fits(**count)) {
        let text = "not run, as the device keeps fewer (RFC 3918 §4.2)";
        outcome.notes.push(format!("group matrix of {count} groups: {text}"));
    }
    for size in settings.sizes() {
        let mut points = Vec::new();
        for &count in settings.matrix.iter().filter(|count| fits(**count)) {
            let groups = Groups::new(settings, 0, count);
            let traffic = Traffic { settings, rig, groups, size, share: 1.0 };
            let label = format!("group matrix, {size} octets, {count} groups");
            let measured = bench.trial(traffic.trial(1.0, label))?;
            if !measured.kept() {
                let what = format!("group matrix of {count} groups at {size} octets");
                outcome.not_measured(what, &measured.not_kept);
                continue;
            }
            let (sent, came) = traffic.multicast(&measured);
            let least = came.iter().copied().min().unwrap_or(0);
            let part = came.iter().sum::<u64>() as f64 / (sent * came.len() as u64).max(1) as f64;
            let fps = part * rig.port_fps(size);
            let name = format!("group_matrix@{count}/{size}");
            let better = Better::Higher;
            outcome.figures.push(Figure::new(
                name,
                fps,
                "frames/s",
                better,
                fps * 0.001,
                Limit::Device,
            ));
            points.push((f64::from(count), fps));
            table.rows.push(vec![
                size.to_string(),
                count.to_string(),
                sent.to_string(),
                least.to_string(),
                ratio(part),
                format!("{fps:.0} frames/s"),
            ]);
        }
        series.push(Series { label: format!("{size} octets"), points });
    }
    outcome.tables.push(table);
    outcome.plots.push(Plot::new(
        "Scaled group forwarding matrix",
        "Groups",
        "Forwarding rate at a receiver, frames/s",
        series,
    ));
    Ok(())
}

/// The aggregated throughput (§4.3), and the latency at that rate.
pub(super) fn aggregated(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let columns =
        ["Frame size", "Offered", "Throughput", "All receivers", "Of the highest rate", ""];
    let mut table = Table::new("Aggregated multicast throughput (RFC 3918 §4.3)", &columns);
    // §5.1 measures one tagged frame at each receiver; Squall measures every frame.
    let columns =
        ["Frame size", "Rate", "Port", "Minimum", "Mean", "p99", "Maximum", "Maximum - minimum"];
    let mut latency = Table::new("Multicast latency (RFC 3918 §5)", &columns);
    let mut each = Vec::new();
    let wants = |test| settings.tests.contains(&test);
    for size in settings.sizes() {
        let groups = Groups::new(settings, 0, settings.groups);
        let traffic = Traffic { settings, rig, groups, size, share: 1.0 };
        let highest = traffic.highest(&format!("aggregated, {size} octets"), bench)?;
        let fps = highest.load * rig.port_fps(size);
        each.push(format!("{} frames/s at {size}", si(fps, "").trim()));
        let noise = fps * settings.resolution;
        let (name, better) = (format!("aggregated/{size}"), Better::Higher);
        outcome.figures.push(Figure::new(name, fps, "frames/s", better, noise, highest.limit));
        let [offered, _] = traffic.offered(&highest);
        table.rows.push(vec![
            size.to_string(),
            offered,
            format!("{fps:.0} frames/s"),
            format!("{:.0} frames/s", fps * traffic.receivers().len() as f64),
            ratio(highest.load),
            highest.limit.mark().into(),
        ]);
        if wants(Test::Latency) && highest.load > 0.0 {
            let label = format!("multicast latency, {size} octets");
            let trial = traffic.trial_of(settings.latency_s, highest.load, label);
            let measured = bench.trial(trial)?;
            report_latency(size, fps, &measured, &mut latency, outcome);
        }
    }
    outcome.tables.push(table);
    if wants(Test::Latency) {
        outcome.tables.push(latency);
        outcome.notes.push(LATENCY_NOTE.into());
    }
    outcome.verdict.text.push(format!("aggregated multicast throughput: {}", each.join(", ")));
    Ok(())
}

fn report_latency(
    size: u32,
    fps: f64,
    measured: &Measured,
    table: &mut Table,
    outcome: &mut Outcome,
) {
    let Some(delay) = measured.delay().filter(|_| measured.kept()) else {
        let what = format!("multicast latency at {size} octets");
        return outcome.no_figure(what, "nothing came", &measured.not_kept);
    };
    let range = (delay.max - delay.min) as f64;
    let spread = (delay.p99 - delay.min) as f64 / 2.0;
    for (name, value) in [("latency", delay.mean), ("latency_range", range)] {
        let name = format!("{name}/{size}");
        outcome.figures.push(Figure::new(name, value, "ns", Better::Lower, spread, Limit::Device));
    }
    let mut row = |port: &str, delay: Delay| {
        let range = (delay.max - delay.min) as f64;
        let times = [delay.min as f64, delay.mean, delay.p99 as f64, delay.max as f64, range];
        let head = [size.to_string(), format!("{fps:.0} frames/s"), port.to_owned()];
        table.rows.push(head.into_iter().chain(times.map(ns)).collect());
    };
    // §5.1 requires the latency of each egress interface, §5.2 the range over all of them.
    for receiver in measured.lanes.iter().flat_map(|lane| &lane.receivers) {
        receiver.delay.into_iter().for_each(|delay| row(&receiver.port, delay));
    }
    row("all", delay);
}
