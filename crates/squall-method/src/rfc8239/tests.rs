//! The tests on switches that decide frame by frame.

use super::*;
use crate::{
    Delay, FlowsMeasured, LaneMeasured, MaxLoad, Method, NoWatch, Outcome, RetryPolicy, Runner,
};

/// A switch with a queue at each egress port, which are all as fast as the ingress ports.
struct Switch {
    ports: usize,
    fps: f64,
    /// Frames that an egress queue holds, with the frame that is leaving.
    queue: f64,
    /// Whether a frame to a full queue holds up the frames after it at its ingress port, which has
    /// room for as many frames; otherwise it is dropped.
    blocks: bool,
}

impl Switch {
    fn ports(&self, lane: &Lane) -> Option<[usize; 2]> {
        let ends = lane.name.split(", ").next()?.split_once(" to ")?;
        let number = |name: &str| Some(usize::from(name.bytes().next()? - b'A'));
        Some([number(ends.0)?, number(ends.1)?])
    }
}

impl Runner for Switch {
    fn run(&mut self, trial: &Trial) -> Result<Measured, MethodError> {
        let mut frames = Vec::new();
        for (i, lane) in trial.lanes.iter().enumerate().filter(|(_, lane)| lane.is_measured()) {
            let due = lane.due(trial.duration_s);
            frames.extend((0..due).map(|n| (lane.start_s + n as f64 / lane.rate_fps, i)));
        }
        frames.sort_by(|a, b| a.partial_cmp(b).expect("finite"));
        let gap = 1.0 / self.fps;
        let (mut free_at, mut ingress) = (vec![0.0; self.ports], vec![Vec::new(); self.ports]);
        let mut lost = vec![0; trial.lanes.len()];
        let mut delays = vec![Vec::new(); trial.lanes.len()];
        for (at, i) in frames {
            let [from, to] = self.ports(&trial.lanes[i]).expect("two ports");
            // Less than a frame of tolerance for the sums of floating point numbers.
            let room = free_at[to] - (self.queue - 1.0) * gap;
            let mut enters = at;
            if self.blocks {
                let fifo: &mut Vec<f64> = &mut ingress[from];
                fifo.retain(|leaves| *leaves > at);
                if fifo.len() as f64 >= self.queue {
                    lost[i] += 1;
                    continue;
                }
                enters = fifo.last().copied().unwrap_or(at).max(room).max(at);
                fifo.push(enters);
            } else if room > at + gap * 1e-6 {
                lost[i] += 1;
                continue;
            }
            let leaves = f64::max(enters, free_at[to]);
            free_at[to] = leaves + gap;
            delays[i].push(((leaves - at) * 1e9) as u64);
        }
        let lane = |(i, lane): (usize, &Lane)| {
            let (sent, lost) = (lane.due(trial.duration_s), lost[i]);
            let max = delays[i].iter().max().copied().unwrap_or_default();
            let min = delays[i].iter().min().copied().unwrap_or_default();
            LaneMeasured {
                name: lane.name.clone(),
                sent,
                received: sent - lost,
                lost,
                offered_fps: lane.rate_fps,
                delay: Some(Delay {
                    min,
                    max,
                    mean: f64::midpoint(min as f64, max as f64),
                    ..Delay::default()
                }),
                ..LaneMeasured::default()
            }
        };
        let lanes = trial.lanes.iter().enumerate().filter(|(_, lane)| lane.is_measured());
        let flows = trial.flows.as_ref().and_then(|load| load.bulk).map(|bulk| FlowsMeasured {
            established: bulk.up.into(),
            uploaded_octets: 125_000,
            ..FlowsMeasured::default()
        });
        Ok(Measured { lanes: lanes.map(lane).collect(), flows, ..Measured::default() })
    }

    fn settle(&mut self, _: f64) -> Result<(), MethodError> {
        Ok(())
    }
}

fn rig(ports: u8, fps: f64) -> Rig {
    let ports: Vec<_> = (0..ports).map(|port| char::from(b'A' + port).to_string()).collect();
    Rig {
        clients: Some(ports[0].clone()),
        servers: Some(ports[1].clone()),
        ports,
        most: MaxLoad::Fps(fps),
        ..Rig::one_stream("A to B", 1e9)
    }
}

fn find(switch: &mut Switch, settings: Settings) -> Outcome {
    let rig = rig(switch.ports as u8, switch.fps);
    let mut watch = NoWatch;
    let mut bench = Bench::new(switch, &mut watch, RetryPolicy::default());
    Method::Rfc8239(settings).run(&rig, &mut bench).expect("it runs")
}

fn settings(test: Test) -> Settings {
    let frame_sizes = vec![128];
    Settings { tests: vec![test], frame_sizes, ..Settings::default() }.quick(&[])
}

fn value(outcome: &Outcome, name: &str) -> f64 {
    let names = outcome.figures.iter().map(|figure| &figure.name).collect::<Vec<_>>();
    outcome.figure(name).unwrap_or_else(|| panic!("{name}: {names:?}")).value
}

#[test]
fn buffers_are_those_of_the_switch_to_two_frames() {
    for (ports, queue) in [(3, 20.0), (4, 7.0), (6, 35.0), (8, 64.0)] {
        let mut switch = Switch { ports, fps: 1000.0, queue, blocks: false };
        let outcome = find(
            &mut switch,
            Settings { shifts: None, overload_s: 30.0, ..settings(Test::Buffering) },
        );
        for figure in outcome.figures.iter().filter(|figure| figure.unit == "frames") {
            assert!((figure.value - queue).abs() <= 2.0, "{ports} ports: {figure:?} of {queue}");
            assert_eq!(figure.limit, crate::Limit::Device, "{figure:?}");
        }
        assert!(value(&outcome, "buffer_octets/128") > 128.0);
        assert_eq!(outcome.figure("buffer.pair").is_some(), ports >= 6);
        assert!(value(&outcome, "buffer.port/A") > 0.0 && value(&outcome, "buffer.device/A") > 0.0);
    }
}

#[test]
fn a_microburst_fills_the_buffer_while_the_egress_port_forwards() {
    for (ports, queue) in [(3, 20.0), (5, 60.0)] {
        let mut switch = Switch { ports, fps: 1000.0, queue, blocks: false };
        let outcome = find(&mut switch, settings(Test::Microburst));
        let name = format!("microburst.{}/128", char::from(b'A' + ports as u8 - 1));
        let ingress = ports as f64 - 1.0;
        // Frames of all ports but one wait at the end.
        let expected = queue / (ingress - 1.0) * ingress;
        assert!(
            (value(&outcome, &name) - expected).abs() <= 2.0 * ingress,
            "{:?}",
            outcome.figures
        );
    }
}

#[test]
fn only_a_switch_that_blocks_loses_frames_to_a_port_that_is_not_congested() {
    for (ports, blocks) in [(4, false), (4, true), (8, false), (8, true)] {
        let mut switch = Switch { ports, fps: 1000.0, queue: 20.0, blocks };
        let outcome = find(&mut switch, settings(Test::HeadOfLine));
        let lost = value(&outcome, "head_of_line.loss/128");
        assert_eq!(lost > 0.01, blocks, "{ports} ports: {lost}");
        assert_eq!(lost > 0.0, blocks, "{ports} ports: {lost}");
    }
}

#[test]
fn a_switch_without_congestion_forwards_at_line_rate() {
    let mut switch = Switch { ports: 4, fps: 1000.0, queue: 20.0, blocks: false };
    let outcome = find(&mut switch, settings(Test::LineRate));
    for name in ["pairs", "mesh"] {
        assert_eq!(value(&outcome, &format!("line_rate.{name}.loss/128")), 0.0);
        assert_eq!(value(&outcome, &format!("line_rate.{name}.received/128")), 0.9998);
    }
}

#[test]
fn incast_has_a_row_for_each_number_of_ports_that_burst() {
    let mut switch = Switch { ports: 4, fps: 1000.0, queue: 20.0, blocks: false };
    let settings = Settings { incast_s: 1.0, ..settings(Test::Incast) };
    let outcome = find(&mut switch, settings.clone());
    assert_eq!(outcome.tables[0].rows.len(), 3, "{:?}", outcome.tables);
    assert_eq!(value(&outcome, "incast.goodput/2"), 1e6);
    // One port bursts at the rate of the egress port, two at twice its rate: 50 frames each.
    assert_eq!(value(&outcome, "incast.loss/1"), 0.0);
    assert!((value(&outcome, "incast.loss/2") - 0.3).abs() < 0.03, "{:?}", outcome.figures);
    let few = rig(2, 1000.0);
    let mut bench_watch = NoWatch;
    let mut bench = Bench::new(&mut switch, &mut bench_watch, RetryPolicy::default());
    let outcome = Method::Rfc8239(settings).run(&few, &mut bench).expect("it runs");
    assert!(outcome.figures.is_empty() && outcome.notes[0].contains("3 ports"), "{outcome:?}");
}
