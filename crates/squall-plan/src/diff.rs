//! Computes the changes that turn the plan of a current run into another plan.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use squall_flows::Load;

use crate::{Plan, PlanFlows, PlanReplay, PlanStream};

/// One step from a plan to the next. Streams are identified by name.
#[derive(Clone, Debug)]
pub enum Change {
    /// Adds a stream, whose start delay begins when the change is applied. The follower (`next`) is
    /// named, because indices differ between plans.
    Add(Box<PlanStream>, Option<String>),
    /// Stops a stream before its next frame. Its counters stay in the report.
    Remove(String),
    /// Sends the same frames at another rate, from the next gap on.
    Rate(String, squall_program::Gap, Option<f64>),
    /// Applies the rates of this load to its templates. New templates begin; missing ones are
    /// removed.
    Load(Arc<PlanFlows>),
    /// Continues a replay at this multiple of its own speed.
    Speed(String, (u64, u64)),
}

impl Plan {
    /// The changes from `self` to `new`. Streams with the same name, packet and variables continue
    /// at their new rate; others are removed and added.
    pub fn diff(&self, new: &Self) -> Vec<Change> {
        // By name, because a search for each of a hundred thousand streams would take minutes.
        let old: HashMap<&str, &PlanStream> =
            self.streams.iter().map(|old| (old.name.as_str(), old)).collect();
        let old_of = |s: &PlanStream| old.get(s.name.as_str()).copied();
        let same = |s: &PlanStream| {
            old_of(s).is_some_and(|old| {
                old.same_frames(s)
                    && self.name_of_next(old) == new.name_of_next(s)
                    && old.next.map(|n| n.times) == s.next.map(|n| n.times)
            })
        };
        let mut kept: Vec<bool> = new.streams.iter().map(same).collect();
        // A stream whose follower is replaced would refer to the removed one, so it is replaced
        // too.
        let mut before: HashMap<usize, Vec<usize>> = HashMap::new();
        for (i, stream) in new.streams.iter().enumerate() {
            stream.next.iter().for_each(|n| before.entry(n.stream).or_default().push(i));
        }
        let mut replaced: Vec<usize> = (0..kept.len()).filter(|&i| !kept[i]).collect();
        while let Some(i) = replaced.pop() {
            for &i in before.get(&i).into_iter().flatten() {
                if std::mem::take(&mut kept[i]) {
                    replaced.push(i);
                }
            }
        }
        let stay: HashSet<&str> = new
            .streams
            .iter()
            .zip(&kept)
            .filter(|(_, kept)| **kept)
            .map(|(s, _)| s.name.as_str())
            .collect();
        let gone = self.streams.iter().filter(|old| !stay.contains(old.name.as_str()));
        let mut changes: Vec<Change> = gone.map(|old| Change::Remove(old.name.clone())).collect();
        for (s, kept) in new.streams.iter().zip(&kept) {
            if !kept {
                changes
                    .push(Change::Add(Box::new(s.clone()), new.name_of_next(s).map(str::to_owned)));
            } else if old_of(s).is_some_and(|old| old.gap != s.gap) {
                changes.push(Change::Rate(s.name.clone(), s.gap, s.asked_pps));
            }
        }
        let faster = |replay: &&PlanReplay| {
            self.replays.iter().any(|old| old.name == replay.name && old.speed != replay.speed)
        };
        let speeds = new.replays.iter().filter(faster);
        changes.extend(speeds.map(|replay| Change::Speed(replay.name.clone(), replay.speed)));
        if let (Some(old), Some(flows)) = (&self.flows, &new.flows) {
            let (a, b) = (&old.load, &flows.load);
            let of = |load: &Load| (load.target, load.limits, load.drain);
            if a.templates != b.templates || of(a) != of(b) {
                changes.insert(0, Change::Load(flows.clone()));
            }
        }
        changes
    }

    /// Checks that the flows can change to those of `new`.
    ///
    /// # Errors
    /// The first difference that a change cannot make.
    pub fn can_become(&self, new: &Self) -> Result<(), String> {
        if self.hosts != new.hosts {
            return Err("hosts".into());
        }
        if self.routers != new.routers {
            return Err("routers".into());
        }
        // A group's table for other sources is made at the start.
        if !new.shared_hosts().is_subset(&self.shared_hosts()) {
            return Err("hosts from which no source sends".into());
        }
        // As is the table of learnt routes.
        if !new.learnt_routes().is_subset(&self.learnt_routes()) {
            return Err("learnt routes to which no stream goes".into());
        }
        match (&self.flows, &new.flows) {
            (None, None) => Ok(()),
            (Some(old), Some(new)) if old.sides == new.sides => old.load.can_become(&new.load),
            _ => Err("ports, networks or max_flows of flows".into()),
        }
    }

    fn name_of_next(&self, stream: &PlanStream) -> Option<&str> {
        stream.next.map(|n| self.streams[n.stream].name.as_str())
    }
}

impl PlanStream {
    /// Whether everything is equal except the rate and the stream number in the signature. That
    /// number depends on the preceding streams, and the engine keeps its own.
    fn same_frames(&self, other: &Self) -> bool {
        let unnumbered =
            |s: &Self| s.program.renumbered(0).map_or_else(|| s.program.clone(), Arc::new);
        self.port == other.port
            && self.hosts == other.hosts
            && self.routes == other.routes
            && self.law == other.law
            && self.pattern == other.pattern
            && self.late == other.late
            && self.start == other.start
            && self.lasts == other.lasts
            && self.waits == other.waits
            && self.self_start == other.self_start
            && unnumbered(self) == unnumbered(other)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fmt::Write,
        time::{Duration, Instant},
    };

    use squall_profile::{Format, Next, Profile};
    use squall_units::Segmentation;

    use super::*;
    use crate::{Inputs, Options, PortLimits, compile, place, test_files::TestFiles};

    fn plan(streams: &str) -> Plan {
        let text = format!("[ports]\nA = \"loop:0\"\n{streams}");
        let profile = Profile::parse(&text, "test.toml", Format::Toml).unwrap();
        let limits = PortLimits {
            max_frame: 1514,
            mac: None,
            speed_bps: None,
            tx_queues: 2,
            rx_queues: 0,
            paired_queues: false,
            node: None,
            virtual_time: false,
            segmentation: Segmentation::Engine,
            elsewhere: false,
        };
        let options = Options { cores: Some(2), cpus: 2, ..Options::default() };
        compile(&profile, &[limits], Inputs::of(&TestFiles(&[])), &options).unwrap()
    }

    /// Streams "0" to "n - 1", each followed by the one before it; the first of the chain is the
    /// last of the list. The frames of stream "0" have `dst`.
    fn chain(n: usize, dst: &str, rate: &str) -> Plan {
        let mut text = String::new();
        for i in 0..n {
            let (dst, next) = match i {
                0 => (dst, String::new()),
                _ => ("10.0.0.1", format!("next = \"{}\"\n", i - 1)),
            };
            let start = if i + 1 == n { "" } else { "self_start = false\n" };
            write!(
                text,
                "[[stream]]\nname = \"{i}\"\npacket = \"eth/ipv4(dst={dst})/udp\"\nrate = \
                 \"{rate}\"\nmode = {{ burst = 2 }}\n{next}{start}"
            )
            .unwrap();
        }
        plan(&text)
    }

    #[test]
    fn a_stream_whose_follower_is_replaced_is_replaced_too() {
        let (old, new) = (chain(4, "10.0.0.1", "1 kpps"), chain(4, "10.0.0.2", "1 kpps"));
        let names = |changes: &[Change]| -> (Vec<String>, Vec<String>) {
            let removed = changes.iter().filter_map(|change| match change {
                Change::Remove(name) => Some(name.clone()),
                _ => None,
            });
            let added = changes.iter().filter_map(|change| match change {
                Change::Add(stream, next) => Some(format!("{} {next:?}", stream.name)),
                _ => None,
            });
            (removed.collect(), added.collect())
        };
        let (removed, added) = names(&old.diff(&new));
        assert_eq!(removed, ["0", "1", "2", "3"]);
        assert_eq!(added, ["0 None", "1 Some(\"0\")", "2 Some(\"1\")", "3 Some(\"2\")"]);
        // The followers of a stream that stays stay, too.
        let faster = old.diff(&chain(4, "10.0.0.1", "2 kpps"));
        assert!(faster.iter().all(|change| matches!(change, Change::Rate(..))), "{faster:?}");
        assert_eq!(faster.len(), 4);
    }

    /// A pass over all streams for each of them takes longer than making the plans.
    #[test]
    fn plans_of_many_streams_are_compared_in_linear_time() {
        const MANY: usize = 50_000;
        let begun = Instant::now();
        let (old, new) = (chain(MANY, "10.0.0.1", "1 kpps"), chain(MANY, "10.0.0.2", "1 kpps"));
        let planned = begun.elapsed();
        assert_eq!(old.diff(&new).len(), 2 * MANY);
        let compared = begun.elapsed() - planned;
        assert!(compared < planned, "{compared:?}, and {planned:?} to plan both");
    }

    /// In quadratic time, this takes half a minute.
    #[test]
    fn a_long_chain_stays_on_one_worker_and_is_found_in_linear_time() {
        const MANY: usize = 200_000;
        let mut streams = vec![chain(1, "10.0.0.1", "1 kpps").streams.remove(0); MANY];
        for (i, stream) in streams.iter_mut().enumerate().skip(1) {
            stream.next = Some(Next { stream: i - 1, times: None });
        }
        let begun = Instant::now();
        let (chains, linked) = place::chains(&streams);
        assert!(chains.iter().all(|first| *first == 0) && linked.iter().all(|linked| *linked));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
}
