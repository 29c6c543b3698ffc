//! What to change in a running plan so that it becomes another.

use std::sync::Arc;

use crate::{Plan, PlanStream};

/// One step from a plan to the next. Streams are told apart by name.
#[derive(Clone, Debug)]
pub enum Change {
    /// A stream that was not there; it starts when it is applied, after its start delay.
    Add(Box<PlanStream>),
    /// Stops at the next frame; its counters stay in the report.
    Remove(String),
    /// Same frames at another rate, from the next gap on.
    Rate(String, squall_program::Gap, Option<f64>),
}

impl Plan {
    /// Steps from `self` to `new`: streams of the same name, packet and variables keep running, at their new rate;
    /// others are removed and added.
    pub fn diff(&self, new: &Self) -> Vec<Change> {
        let find = |plan: &Self, name: &str| plan.streams.iter().position(|s| s.name == name);
        let mut changes = Vec::new();
        for s in &self.streams {
            if find(new, &s.name).is_none() {
                changes.push(Change::Remove(s.name.clone()));
            }
        }
        for s in &new.streams {
            match find(self, &s.name).map(|i| &self.streams[i]) {
                None => changes.push(Change::Add(Box::new(s.clone()))),
                Some(old) if !old.same_frames(s) => {
                    changes.push(Change::Remove(s.name.clone()));
                    changes.push(Change::Add(Box::new(s.clone())));
                }
                Some(old) if old.gap != s.gap => changes.push(Change::Rate(s.name.clone(), s.gap, s.asked_pps)),
                Some(_) => {}
            }
        }
        changes
    }
}

impl PlanStream {
    /// Everything but the rate is the same, and the number in the signature, which moves when an earlier stream
    /// goes: the engine keeps its own.
    fn same_frames(&self, other: &Self) -> bool {
        let unnumbered = |s: &Self| s.program.renumbered(0).map_or_else(|| s.program.clone(), Arc::new);
        self.port == other.port
            && self.law == other.law
            && self.pattern == other.pattern
            && self.late == other.late
            && unnumbered(self) == unnumbered(other)
    }
}
