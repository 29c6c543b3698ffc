//! Outages: times in which no frame passed, derived from the lost frames.

use crate::trial::LaneMeasured;

/// A time in which no frame of a lane passed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outage {
    /// Time from the departure of the last frame that passed before the outage to that of the first
    /// one after it, seconds (RFC 2544 §26.6). If there is no such frame, the outage is measured
    /// from the first or to the last lost frame.
    pub s: f64,
    /// Departure of the last frame that passed before it, seconds since the start of the lane.
    pub at_s: f64,
    /// Whether frames passed before and after it. If not, `s` is a lower bound.
    pub begun: bool,
    pub ended: bool,
}

impl Outage {
    /// The longest outage of a lane that sent `fps` frames per second; `None`: no frame was lost.
    pub fn longest(measured: &LaneMeasured, fps: f64) -> Option<Self> {
        let losses = measured.losses()?;
        let (from, frames) = (losses.longest_from, losses.longest);
        let (begun, ended) = (from > 0, from + frames < measured.sent);
        let gaps = frames - 1 + u64::from(begun) + u64::from(ended);
        Some(Self { s: gaps as f64 / fps, at_s: from.saturating_sub(1) as f64 / fps, begun, ended })
    }

    /// The longer outage. A lower bound counts as longer than an equal measured outage.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        let key = |one: &Self| (one.s, !one.is_whole());
        if key(&other) > key(&self) { other } else { self }
    }

    /// Whether `s` is the time of the outage, not a lower bound.
    pub fn is_whole(&self) -> bool {
        self.begun && self.ended
    }

    /// Which end the trial did not show, in words; empty if it showed both.
    pub fn lacks(&self) -> &'static str {
        match (self.begun, self.ended) {
            (true, true) => "",
            (true, false) => "not back within the trial",
            (false, true) => "out before the first frame",
            (false, false) => "nothing came back within the trial",
        }
    }
}

/// The longest outage of a lane over consecutive trials. An outage that continues from the end of
/// one trial to the beginning of the next counts as one, without the pause between the trials.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outages {
    pub longest: Option<Outage>,
    /// The outage that continued to the end of the last trial.
    open: Option<Outage>,
}

impl Outages {
    /// Adds a trial that started at `at_s` and sent `fps` frames per second.
    pub fn add(&mut self, measured: &LaneMeasured, fps: f64, at_s: f64) {
        let Some(arrived) = measured.arrived else {
            let found = Outage::longest(measured, fps);
            return self.consider(found.map(|one| Outage { at_s: at_s + one.at_s, ..one }));
        };
        let seconds = |frames: u64| frames as f64 / fps;
        let none_came = arrived.end == 0;
        let before = if none_came { measured.sent } else { arrived.first };
        if before > 0 {
            let open = self.open.unwrap_or(Outage { at_s, ..Outage::default() });
            let open = Outage { s: open.s + seconds(before), ended: !none_came, ..open };
            self.consider(Some(open));
            self.open = none_came.then_some(open);
        } else {
            self.interrupt();
        }
        if none_came {
            return;
        }
        let within = arrived.losses_of(arrived.end, measured.lost.saturating_sub(after(measured)));
        let within = within.filter(|losses| losses.longest_from > 0);
        self.consider(within.map(|losses| Outage {
            s: seconds(losses.longest + 1),
            at_s: at_s + seconds(losses.longest_from - 1),
            begun: true,
            ended: true,
        }));
        if after(measured) > 0 {
            let open = Outage {
                s: seconds(after(measured)),
                at_s: at_s + seconds(arrived.end - 1),
                begun: true,
                ended: false,
            };
            self.consider(Some(open));
            self.open = Some(open);
        }
    }

    /// Ends the outage that continued to the end of the last trial, if the next trial does not
    /// follow immediately or starts with a frame that passed.
    pub fn interrupt(&mut self) {
        self.open = None;
    }

    fn consider(&mut self, outage: Option<Outage>) {
        self.longest = match (self.longest, outage) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
    }
}

/// Frames lost after the last one that arrived.
fn after(measured: &LaneMeasured) -> u64 {
    let end = measured.arrived.map_or(measured.sent, |arrived| arrived.end);
    measured.sent.saturating_sub(end)
}
