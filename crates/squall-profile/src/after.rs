//! `after = "NAME"`: sources of any kind that begin when another source has ended.

use std::collections::{HashMap, HashSet};

use squall_units::suggest;

use crate::{Arrival, Diagnostic, Located, Mode, Profile, Target, diagnostics::MAX_ERRORS};

/// A part of a profile that may wait for another part. Each has its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    Stream(usize),
    Replay(usize),
    Template(usize),
    Attack(usize),
}

/// `part` begins when `of` has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    pub part: Part,
    pub of: Part,
}

impl Part {
    fn kind(self) -> &'static str {
        match self {
            Self::Stream(_) => "stream",
            Self::Replay(_) => "replay",
            Self::Template(_) => "template",
            Self::Attack(_) => "attack",
        }
    }
}

impl Profile {
    /// The parts that wait for others.
    ///
    /// Parts that would never begin, with their positions. The part for which they wait does not
    /// exist, has no end of its own, or waits for them.
    pub fn afters(&self) -> Result<Vec<After>, Vec<Diagnostic>> {
        let (mut afters, mut mistakes) = (Vec::new(), Vec::new());
        if self.parts().all(|(.., target)| target.is_none()) {
            return Ok(afters);
        }
        let mut called: HashMap<&str, Vec<Part>> = HashMap::new();
        self.parts().for_each(|(part, name, _)| called.entry(name).or_default().push(part));
        for (part, name, target) in self.parts() {
            let Some(target) = target else { continue };
            if mistakes.len() >= MAX_ERRORS {
                break;
            }
            let mut wrong = |text: String, hint: String| {
                let text = format!("{} {name:?}: after = {:?}: {text}", part.kind(), target.text);
                mistakes.push(Diagnostic::at(target.at, text, vec![hint]));
            };
            if let Err((text, hint)) = self.can_wait(part) {
                wrong(text, hint);
                continue;
            }
            match called.get(target.text.as_str()).map_or(&[][..], Vec::as_slice) {
                [] => {
                    let known = self.parts().map(|(_, name, _)| name);
                    wrong("unknown name".into(), suggest(&target.text, known));
                }
                [of] => match self.has_end(*of) {
                    Ok(()) => afters.push(After { part, of: *of }),
                    Err((text, hint)) => wrong(text, hint),
                },
                [one, other, ..] => wrong(
                    format!("a {} and a {} have this name", one.kind(), other.kind()),
                    "try another name for one of them".into(),
                ),
            }
        }
        let cycles = cycles(&afters);
        for (part, name, target) in self.parts() {
            if let Some(target) = target.filter(|_| cycles.contains(&part)) {
                let text = format!("{} {name:?} waits for itself", part.kind());
                let hint = format!(
                    "{:?} begins after it, or after another part that waits for it",
                    target.text
                );
                mistakes.push(Diagnostic::at(target.at, text, vec![hint]));
            }
        }
        if mistakes.is_empty() { Ok(afters) } else { Err(mistakes) }
    }

    /// All parts that may wait, with their names, and the name of the part for which each waits.
    fn parts(&self) -> impl Iterator<Item = (Part, &str, Option<&Located>)> {
        let streams = self.streams.iter().enumerate();
        let streams = streams.map(|(i, s)| (Part::Stream(i), s.name.as_str(), s.after.as_ref()));
        let replays = self.replays.iter().enumerate();
        let replays = replays.map(|(i, r)| (Part::Replay(i), r.name.as_str(), r.after.as_ref()));
        let templates = self.flows.iter().flat_map(|flows| &flows.templates).enumerate();
        let templates =
            templates.map(|(i, t)| (Part::Template(i), t.name.as_str(), t.after.as_ref()));
        let attacks = self.attacks.iter().enumerate();
        let attacks = attacks.map(|(i, a)| (Part::Attack(i), a.name.as_str(), a.after.as_ref()));
        streams.chain(replays).chain(templates).chain(attacks)
    }

    /// Checks whether the start of `part` can depend on another part. The error has the reason and
    /// a hint.
    fn can_wait(&self, part: Part) -> Result<(), (String, String)> {
        match part {
            Part::Stream(i) if !self.streams[i].self_start => {
                let text = "self_start = false makes it wait for a stream that names it as next";
                Err((text.into(), "try only one of the two: remove self_start, or after".into()))
            }
            Part::Template(i) if self.moves_together(i) => {
                let text = "templates with a weight begin together if [flows] has active";
                Err((text.into(), "try users or cps of the template instead of weight".into()))
            }
            Part::Attack(i) if self.attacks[i].live => Err(live_attack()),
            _ => Ok(()),
        }
    }

    /// Checks whether `part` ends before the run does. The error has the reason and a hint.
    fn has_end(&self, part: Part) -> Result<(), (String, String)> {
        let endless = |what: &str, hint: &str| {
            Err((
                format!("{what} continues until the run ends"),
                format!("try giving it an end: {hint}"),
            ))
        };
        match part {
            Part::Stream(i) => {
                let stream = &self.streams[i];
                let again =
                    stream.next.is_some_and(|next| next.stream == i && next.times.is_none());
                let unbounded = stream.mode == Mode::Continuous && stream.stages.is_empty();
                if again || (unbounded && stream.duration.is_none()) {
                    return endless("that stream", "duration, or mode = { burst = 1000 }");
                }
            }
            Part::Replay(i) => {
                let replay = &self.replays[i];
                if replay.loops == 0 && replay.limit.is_none() && replay.duration.is_none() {
                    return endless("that replay", "loops, limit, or duration");
                }
            }
            Part::Template(i) => {
                let Some(flows) = &self.flows else { return Ok(()) };
                let template = &flows.templates[i];
                if flows.clients.is_none() || template.arrival == Arrival::None {
                    return Err((
                        "its clients are external, so Squall cannot know when they have ended"
                            .into(),
                        "try a source that begins on this machine".into(),
                    ));
                }
                if template.arrival == Arrival::Called {
                    return Err((
                        "its flows are begun by other flows, and may be at any time".into(),
                        "try the template of those".into(),
                    ));
                }
                let limit = flows.limit.or(template.limit);
                let shaped = flows.ramp.hold.is_some() || !template.stages.is_empty();
                if limit.is_none() && template.duration.is_none() && !shaped {
                    return endless("that template", "limit or duration");
                }
            }
            Part::Attack(i) if self.attacks[i].live => return Err(live_attack()),
            Part::Attack(_) => {}
        }
        Ok(())
    }

    /// Checks the parts that need their own start or end.
    ///
    /// # Errors
    ///
    /// Templates that can only begin and end together with others.
    pub(crate) fn beginnings(&self) -> Result<(), Vec<Diagnostic>> {
        let templates = self.flows.iter().flat_map(|flows| &flows.templates).enumerate();
        let wrong = templates
            .filter(|(i, one)| {
                (one.start.0 > 0 || one.duration.is_some()) && self.moves_together(*i)
            })
            .map(|(_, one)| {
                let text = format!(
                    "template {:?}: templates with a weight begin and end together if [flows] has \
                     active",
                    one.name
                );
                let hint = "try users or cps of the template instead of weight";
                Diagnostic::at(one.at, text, vec![hint.into()])
            });
        let wrong: Vec<_> = wrong.collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// Whether a template shares a target number of open flows with others. If so, it has no start
    /// and end by itself.
    fn moves_together(&self, template: usize) -> bool {
        self.flows.as_ref().is_some_and(|flows| {
            matches!(flows.target, Some(Target::Active(_)))
                && matches!(flows.templates[template].arrival, Arrival::Weight { .. })
        })
    }
}

fn live_attack() -> (String, String) {
    let text = "the start times of live attacks are set before the run";
    (text.into(), "try start, or live = false".into())
}

/// Parts that wait for themselves, directly or through others.
fn cycles(afters: &[After]) -> HashSet<Part> {
    let of: HashMap<Part, Part> = afters.iter().map(|after| (after.part, after.of)).collect();
    let (mut cycles, mut known) = (HashSet::new(), HashSet::new());
    for after in afters {
        let (mut way, mut at) = (Vec::new(), after.part);
        while known.insert(at) {
            way.push(at);
            match of.get(&at) {
                Some(next) => at = *next,
                None => break,
            }
        }
        let begin = way.iter().position(|part| *part == at && of.contains_key(&at));
        // Only a chain that returns to itself is a cycle; one that reaches a part of an earlier
        // chain is not.
        cycles.extend(begin.into_iter().flat_map(|begin| way[begin..].to_vec()));
    }
    cycles
}
