//! Checks whether the files that a run writes to `pcap:FILE` fit on their disks, as far as that is
//! known before anything is sent.

use std::path::{Path, PathBuf};

use squall_plan::{Plan, PlanReplay, PlanStream, StreamDivision};
use squall_port::{
    Address, Port,
    output::{self, Permit, Space},
};
use squall_replay::{Survey, Timing};
use squall_units::{Cannot, FCS_LEN, Picos};

use crate::Error;

/// Number of frames and octets to be written on a port, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Load {
    frames: f64,
    octets: f64,
    /// Whether the load is completely known.
    whole: bool,
}

/// Permissions for the file of each port. `surveys` belong to the plan's replays.
///
/// # Errors
/// [`Error::Usage`] if a file exists, or the files would use more than half of a disk's free space,
/// unless `force`.
pub fn permits(
    plan: &Plan,
    ports: &[Box<dyn Port>],
    surveys: &[Option<Survey>],
    force: bool,
) -> Result<Vec<Permit>, Error> {
    let mut permits = vec![if force { Permit::FORCE } else { Permit::default() }; ports.len()];
    if force {
        return Ok(permits);
    }
    let mut loads: Vec<Load> = (0..ports.len()).map(|i| load(plan, i, surveys)).collect();
    bound(plan, &mut loads);
    // Files on the same disk share its free space.
    let mut disks: Vec<(Space, f64, Vec<usize>)> = Vec::new();
    for (i, port) in ports.iter().enumerate() {
        let Some(path) = written(port.as_ref()) else { continue };
        let name = &plan.ports[i].name;
        output::check(&path, permits[i]).map_err(|error| {
            Error::Usage(format!("port {name}: {}", Cannot::write(&path, &error)))
        })?;
        let Ok(Some(space)) = Space::at(&path) else { continue };
        let octets = loads[i].octets + loads[i].frames * around(&path);
        match disks.iter_mut().find(|(disk, ..)| disk.device == space.device) {
            Some((_, sum, of)) => {
                *sum += octets;
                of.push(i);
            }
            None => disks.push((space, octets, vec![i])),
        }
    }
    for (space, octets, of) in disks {
        if octets > space.free as f64 / 2.0 {
            let names: Vec<_> = of.iter().map(|&i| plan.ports[i].name.as_str()).collect();
            return Err(Error::Usage(format!(
                "port {}: about {} would be written, more than half of the {} that are free on \
                 the disk\n  try fewer frames, another disk, or --force",
                names.join(", "),
                output::size(octets as u64),
                output::size(space.free),
            )));
        }
        of.iter().for_each(|&i| permits[i].fill = loads[i].whole);
    }
    Ok(permits)
}

/// The file that a port writes, if it writes one.
fn written(port: &dyn Port) -> Option<PathBuf> {
    let facts = port.facts();
    let address: Address = facts.address.parse().ok()?;
    (facts.kind == "pcap" && facts.tx_queues > 0).then(|| address.name().into())
}

/// Number of octets that a record adds to its frame.
fn around(path: &Path) -> f64 {
    if path.extension().is_some_and(|end| end == "pcapng") { 36.0 } else { 16.0 }
}

fn load(plan: &Plan, port: usize, surveys: &[Option<Survey>]) -> Load {
    let mut load = Load { whole: !plan.plays_flows(port), ..Load::default() };
    for stream in plan.streams.iter().filter(|stream| stream.port == port) {
        match frames(plan, stream) {
            Some(frames) => {
                load.frames += frames;
                load.octets += frames * (stream.mean_len - f64::from(FCS_LEN));
            }
            None => load.whole = false,
        }
    }
    for (replay, survey) in plan.replays.iter().zip(surveys) {
        let Some(at) = replay.ports.iter().position(|of| *of == port) else { continue };
        match survey.as_ref().filter(|survey| survey.whole).and_then(|survey| {
            let loops = loops(plan, replay, survey)?;
            let (frames, octets) = survey.ports[at];
            Some((frames as f64 * loops, octets as f64 * loops))
        }) {
            Some((frames, octets)) => {
                load.frames += frames;
                load.octets += octets;
            }
            None => {
                load.octets += at_least(plan, replay) / replay.ports.len() as f64;
                load.whole = false;
            }
        }
    }
    load
}

/// Number of frames of a stream; `None` if it is unlimited or depends on other streams.
fn frames(plan: &Plan, stream: &PlanStream) -> Option<f64> {
    let share = match stream.division {
        StreamDivision::Here => 1.0,
        StreamDivision::Frames => 1.0 / f64::from(plan.part.of()),
        StreamDivision::OtherPart | StreamDivision::Elsewhere => return Some(0.0),
    };
    if !stream.self_start || stream.waits {
        return None;
    }
    let run = plan.stop.duration.map(|time| Picos::from(time).0.saturating_sub(stream.start.0));
    let span = run.into_iter().chain(stream.lasts.map(|lasts| lasts.0)).min();
    let in_time = span.and_then(|span| {
        let span = Picos(span).as_nanos();
        Some(stream.mean_rate_within(span)? * span.as_secs_f64())
    });
    let total = stream.pattern.total().map(|total| total as f64);
    let counted = plan.stop.packets.map(|packets| packets as f64);
    let most = [in_time, total, counted].into_iter().flatten().reduce(f64::min)?;
    Some(most * share)
}

/// How many times the captures are sent, including fractions; `None` if that is unlimited.
fn loops(plan: &Plan, replay: &PlanReplay, survey: &Survey) -> Option<f64> {
    let all: u64 = survey.ports.iter().map(|(frames, _)| frames).sum();
    let bounds = [replay.replay.limit, plan.stop.packets];
    let counted = bounds.into_iter().flatten().min().map(|most| most as f64 / all.max(1) as f64);
    let run = plan.stop.duration.map(Picos::from);
    let end = run.into_iter().chain(replay.end).min().filter(|_| {
        // At top speed, the captures may be sent completely within any duration.
        replay.replay.timing != Timing::Top && survey.end > Picos(0)
    });
    let timed = end.map(|end| {
        let (num, den) = replay.speed;
        let passed = end.0.saturating_sub(replay.start.0) as f64 * num as f64 / den as f64;
        passed / survey.end.0 as f64
    });
    let looped = (replay.replay.loops > 0).then_some(replay.replay.loops as f64);
    [counted, timed, looped].into_iter().flatten().reduce(f64::min)
}

/// Octets of captures that are too large to read twice, assuming that all their packets are sent
/// unchanged. 0 for other captures.
fn at_least(plan: &Plan, replay: &PlanReplay) -> f64 {
    let of = &replay.replay;
    let chooses = of.filter.is_some() || of.include.is_some() || of.exclude.is_some();
    let ends = of.limit.is_some() || replay.end.is_some() || plan.stop != Default::default();
    if chooses || ends || !of.edits.is_empty() || !of.part.is_whole() || of.only.is_some() {
        return 0.0;
    }
    let file = |input: &squall_replay::Input| {
        let found = Path::new(&input.name).metadata().ok().filter(std::fs::Metadata::is_file);
        found.filter(|_| !input.once).map_or(0, |found| found.len())
    };
    let octets: u64 = of.inputs.iter().map(file).sum();
    octets as f64 * of.loops as f64
}

/// Applies the run's limits on frames and octets, which apply to all ports together.
fn bound(plan: &Plan, loads: &mut [Load]) {
    let sums =
        loads.iter().fold((0.0, 0.0), |sum, load| (sum.0 + load.frames, sum.1 + load.octets));
    let ratio = |most: Option<u64>, sum: f64| {
        most.map_or(1.0, |most| if sum > 0.0 { most as f64 / sum } else { 1.0 })
    };
    let part = ratio(plan.stop.packets, sums.0).min(ratio(plan.stop.octets, sums.1)).min(1.0);
    for load in loads {
        load.frames *= part;
        load.octets *= part;
    }
}

#[cfg(test)]
mod tests {
    use squall_profile::{Format, Profile};

    use super::*;
    use squall::Session;
    use squall_options::RunOptions;

    /// The load on the first port of a profile that has these streams.
    fn load_of(text: &str, options: &str) -> Load {
        let text = format!("ports.A = \"pcap:/no/such/file.pcap\"\n{text}");
        let profile = Profile::parse(&text, "test", Format::Toml).unwrap();
        let options = RunOptions::from_json(options).unwrap();
        let session = Session::new(profile).with(options).unwrap();
        let plan = session.check_only().unwrap().plan;
        let mut loads = vec![load(&plan, 0, &vec![None; plan.replays.len()])];
        bound(&plan, &mut loads);
        loads[0]
    }

    const STREAM: &str = "[[stream]]\npacket = \"eth/ipv4/udp\"\nsize = 1004\nrate = 1000\n";

    #[test]
    fn a_load_is_known_where_its_end_is() {
        for (text, options, frames, whole) in [
            (STREAM, r#"{ "duration": "2 s" }"#, 2000.0, true),
            (STREAM, r#"{ "packets": 300 }"#, 300.0, true),
            (STREAM, r#"{ "packets": 300, "duration": "2 s" }"#, 300.0, true),
            (STREAM, r#"{ "octets": 100400, "duration": "2 s" }"#, 100.4, true),
            (STREAM, "{}", 0.0, false),
            (&format!("{STREAM}duration = \"1 s\"\n"), "{}", 1000.0, true),
            (&format!("{STREAM}mode = {{ burst = 50 }}\n"), "{}", 50.0, true),
            (&format!("{STREAM}{STREAM}"), r#"{ "packets": 500 }"#, 500.0, true),
        ] {
            let load = load_of(text, options);
            assert!((load.frames - frames).abs() < 1.0, "{text}{options}: {load:?}");
            assert!((load.octets - 1000.0 * load.frames).abs() < 1.0, "{text}{options}: {load:?}");
            assert_eq!(load.whole, whole, "{text}{options}");
        }
    }

    #[test]
    fn captures_are_sent_within_loops_limits_and_times() {
        let survey = Survey {
            ports: vec![(10, 1000)],
            last: Picos::SECOND,
            end: Picos::SECOND,
            beyond: None,
            whole: true,
        };
        let replay = |loops, limit, end: Option<u64>| {
            let replay = squall_replay::Replay { loops, limit, ..Default::default() };
            let mut planned = PlanReplay::new("r", vec![0], replay);
            planned.end = end.map(|s| Picos(s * Picos::SECOND.0));
            planned
        };
        let plan = {
            let text = "ports.A = \"null:\"\n[[stream]]\npacket = \"eth\"\nrate = 1\n";
            let profile = Profile::parse(text, "test", Format::Toml).unwrap();
            Session::new(profile).check_only().unwrap().plan
        };
        for (replay, expected) in [
            (replay(7, None, None), Some(7.0)),
            (replay(7, Some(25), None), Some(2.5)),
            (replay(0, None, None), None),
            (replay(0, None, Some(30)), Some(30.0)),
        ] {
            assert_eq!(loops(&plan, &replay, &survey), expected);
        }
    }
}
