//! Dialogs of text lines: a command, its reply, the next command.

use squall_rules::{Buffer, End};

use super::{Impossible, Parts, contains_nocase, merged};
use crate::{Octets, Turn};

/// A command and its reply.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub command: Octets,
    pub answer: Octets,
}

impl Step {
    pub fn new(command: &str, answer: &str) -> Self {
        Step { command: line(command), answer: line(answer) }
    }
}

/// A banner, and steps into which raw payloads can be inserted.
#[derive(Clone, Debug, Default)]
pub(super) struct Dialog {
    pub banner: Octets,
    pub steps: Vec<Step>,
    /// Index of the step before which further steps are inserted: the first one after the login.
    pub middle: usize,
}

impl Dialog {
    pub fn new(banner: &str) -> Self {
        Dialog { banner: line(banner), ..Dialog::default() }
    }

    pub fn step(&mut self, command: &str, answer: &str) {
        self.steps.push(Step::new(command, answer));
    }

    /// Inserts the payloads of both ends. The client's payload replaces the step with the same
    /// command, or becomes a new step. The server's payload becomes the reply to that, or the
    /// banner if it starts like one.
    pub fn payloads(&mut self, parts: &Parts) {
        let payload = |from| {
            let all = parts.all(Buffer::Payload, from).chain(parts.all(Buffer::RawPayload, from));
            Some(merged(all, b"")).filter(|payload| !payload.is_empty()).map(ended)
        };
        let word =
            |octets: &[u8]| octets.iter().take_while(|octet| octet.is_ascii_alphanumeric()).count();
        let mut place = None;
        if let Some(payload) = payload(End::Client) {
            let command = &payload.bytes()[..word(payload.bytes())];
            let same = |step: &Step| {
                let own = step.command.bytes();
                !command.is_empty() && own[..word(own)].eq_ignore_ascii_case(command)
            };
            let at = self.steps.iter().position(same);
            place = Some(at.unwrap_or_else(|| {
                let answer = self
                    .steps
                    .get(self.middle)
                    .map_or_else(|| line("OK"), |step| step.answer.clone());
                self.steps.insert(self.middle, Step { command: Octets::new(), answer });
                self.middle
            }));
            if let Some(step) = place.and_then(|at| self.steps.get_mut(at)) {
                step.command = payload;
            }
        }
        if let Some(payload) = payload(End::Server) {
            let same = |answer: &Octets| {
                let length = word(answer.bytes()).max(3);
                payload.len() >= length
                    && answer.len() >= length
                    && payload.bytes()[..length] == answer.bytes()[..length]
            };
            match (same(&self.banner), place) {
                (true, _) => self.banner = payload,
                (false, Some(at)) => self.steps[at].answer = payload,
                (false, None) => match self.steps.iter_mut().find(|step| same(&step.answer)) {
                    Some(step) => step.answer = payload,
                    None => {
                        let at = self.middle.min(self.steps.len().saturating_sub(1));
                        match self.steps.get_mut(at) {
                            Some(step) => step.answer = payload,
                            None => self.banner = payload,
                        }
                    }
                },
            }
        }
    }

    /// The turns of the dialog. Omits text that must not occur, unless a part requires it.
    pub fn turns(self, parts: &Parts) -> Result<Vec<Turn>, Impossible> {
        let mut turns = vec![];
        if !self.banner.is_empty() {
            turns.push(Turn::new(End::Server, self.banner));
        }
        let count = self.steps.len();
        for (at, step) in self.steps.into_iter().enumerate() {
            // The farewell is optional, so it can be omitted.
            if at + 1 == count
                && (is_unwanted(&step.command, End::Client, parts)
                    || is_unwanted(&step.answer, End::Server, parts))
            {
                break;
            }
            turns.push(Turn::new(End::Client, step.command));
            if !step.answer.is_empty() {
                turns.push(Turn::new(End::Server, step.answer));
            }
        }
        Ok(turns)
    }
}

fn is_unwanted(text: &Octets, from: End, parts: &Parts) -> bool {
    parts.without.iter().any(|(buffer, end, octets)| {
        *end == from
            && matches!(buffer, Buffer::Payload | Buffer::RawPayload)
            && !octets.is_empty()
            && contains_nocase(text.bytes(), octets)
    })
}

/// A line of text.
pub(super) fn line(text: &str) -> Octets {
    Octets::from(format!("{text}\r\n").as_str())
}

/// Appends a line end if there is none.
pub(super) fn ended(mut octets: Octets) -> Octets {
    if !octets.bytes().ends_with(b"\n") {
        octets.append(&"\r\n".into());
    }
    octets
}

/// Joins pieces to one line.
pub(super) fn joined(pieces: &[&Octets]) -> Octets {
    let mut all = Octets::new();
    for piece in pieces {
        all.append(piece);
    }
    all
}

/// Returns an error if a part of a line contains a line end.
pub(super) fn one_line(buffer: Buffer, octets: &Octets) -> Result<&Octets, Impossible> {
    match octets.bytes().iter().any(|octet| b"\r\n".contains(octet)) {
        true => Err(Impossible(format!("{} contains no line ends", buffer.name()))),
        false => Ok(octets),
    }
}
