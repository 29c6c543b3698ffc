//! Computes the changes that turn the plan of a current run into another plan.

use std::sync::Arc;

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
        let old_of = |s: &PlanStream| self.streams.iter().find(|old| old.name == s.name);
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
        let breaks = |kept: &[bool], i: usize| {
            kept[i] && new.streams[i].next.is_some_and(|n| !kept[n.stream])
        };
        while let Some(i) = (0..kept.len()).find(|&i| breaks(&kept, i)) {
            kept[i] = false;
        }
        let stays = |old: &PlanStream| {
            new.streams.iter().zip(&kept).any(|(s, kept)| *kept && s.name == old.name)
        };
        let gone = self.streams.iter().filter(|old| !stays(old));
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
        match (&self.flows, &new.flows) {
            (None, None) => Ok(()),
            (Some(old), Some(new)) if old.sides == new.sides => old.load.can_become(&new.load),
            _ => Err("ports or networks of flows".into()),
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
