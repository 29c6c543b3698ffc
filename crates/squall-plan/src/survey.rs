//! Surveys the captures in a plan before the run.

use squall_replay::{Departure, Reader, Replay, Survey, Timing};
use squall_units::Picos;

use crate::{Plan, PlanReplay, PortLimits};

/// Surveys each replay that is sent through local ports with these `limits`, as far as that is
/// quick.
///
/// # Errors
/// A capture cannot be read, or a frame is due later than any run lasts.
pub fn survey(plan: &Plan, limits: &[PortLimits]) -> Result<Vec<Option<Survey>>, String> {
    let survey = |replay: &PlanReplay| {
        // Attacks are generated during the run, and their rate determines their times.
        if !replay.is_here() || replay.fixed {
            return Ok(None);
        }
        let wrong = |what: String| Err(format!("replay {:?}: {what}", replay.name));
        let Some(left) = Picos::LONGEST_RUN.0.checked_sub(replay.start.0).filter(|left| *left > 0)
        else {
            return wrong(format!("it starts after {LONGEST}, where every run ends"));
        };
        let (num, den) = replay.speed;
        let horizon = u128::from(left) * u128::from(num) / u128::from(den);
        let horizon = Picos(u64::try_from(horizon).unwrap_or(u64::MAX)).min(LAST);
        let longest = replay.ports.iter().map(|&port| limits[port].max_frame).collect();
        let survey =
            Reader::survey(&replay.replay, longest, horizon).map_err(|error| error.to_string())?;
        // A run that is limited otherwise may end before the later frames.
        let ends = plan.stop.duration.is_some() || plan.stop.octets.is_some();
        let Some(survey) = survey else { return Ok(None) };
        if !ends && replay.end.is_none() {
            let most = plan.stop.packets.unwrap_or(u64::MAX);
            if let Some(what) = too_late(&replay.replay, &survey, horizon, most) {
                return wrong(what);
            }
        }
        Ok(Some(survey))
    };
    plan.replays.iter().map(survey).collect()
}

/// [`Picos::LONGEST_RUN`] as text.
const LONGEST: &str = "106 days";
/// The last valid time of a schedule.
const LAST: Picos = Picos(Departure::NEVER.0 - 1);

/// Describes the first frame due after `horizon` among the replay's first `most` frames, if any.
fn too_late(replay: &Replay, survey: &Survey, horizon: Picos, most: u64) -> Option<String> {
    let days = |due: Picos| match due {
        due if due > LAST => "more than 213 days".to_owned(),
        due => format!("{:.1} days", due.0 as f64 / 1e12 / 86_400.0),
    };
    let text = |what: String, hint: &str| {
        Some(format!("{what}, and every run ends after {LONGEST}\n  try {hint}"))
    };
    let frames: u64 = survey.ports.iter().map(|(frames, _)| frames).sum();
    if let Some((number, due)) = survey.beyond.filter(|(number, _)| *number <= most) {
        let of = if survey.whole { format!(" of {frames}") } else { String::new() };
        let what = format!("packet {number}{of} is due {} after the start", days(due));
        return text(what, "--maxsleep 1000 (longest_gap), a higher speed, or --duration");
    }
    // Give up if other parts send some of the frames, or if loops differ in length as with a ramp.
    if !survey.whole || !replay.part.is_whole() || matches!(replay.timing, Timing::Ramp { .. }) {
        return None;
    }
    let most = replay.limit.unwrap_or(u64::MAX).min(most);
    let loops = replay.loops.min(most.div_ceil(frames.max(1)));
    // The last loop may be incomplete.
    let whole = loops.checked_mul(frames).is_some_and(|all| all <= most);
    let last = if whole { survey.last } else { Picos(0) };
    let begin = u128::from(loops.saturating_sub(1)) * u128::from(survey.end.0);
    if loops < 2 || begin + u128::from(last.0) <= u128::from(horizon.0) {
        return None;
    }
    let first = horizon.0.saturating_sub(survey.last.0) / survey.end.0.max(1) + 2;
    let what = format!(
        "a loop takes {} with its delay, so loop {first} of {} would not end in time",
        days(survey.end),
        replay.loops
    );
    text(what, "fewer loops, --maxsleep (longest_gap), a higher speed, or --duration")
}
