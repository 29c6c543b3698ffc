//! What is wrong with a profile beyond its form, gathered while it is compiled.

use std::{fmt::Display, str::FromStr};

use crate::{At, Diagnostic, Diagnostics, Profile, Said, diagnostics::MOST_MISTAKES};

/// What is wrong with a profile, with its places: all of it is told at once.
pub struct Mistakes<'a> {
    origin: &'a str,
    found: Vec<Diagnostic>,
    /// Mistakes that are not kept.
    more: usize,
}

impl<'a> Mistakes<'a> {
    pub fn of(profile: &'a Profile) -> Self {
        Self { origin: &profile.origin, found: Vec::new(), more: 0 }
    }

    /// Whether there are none so far.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether further ones are only counted, so that it is time to end.
    pub fn is_full(&self) -> bool {
        self.found.len() >= MOST_MISTAKES
    }

    /// # Errors
    /// All of them, if there are any.
    pub fn check(mut self) -> Result<(), Diagnostics> {
        if self.more > 0 {
            let text = format!("and {} more errors", self.more);
            let origin = self.origin.to_owned();
            self.found.push(Diagnostic { origin, message: text, ..Diagnostic::default() });
        }
        if self.found.is_empty() { Ok(()) } else { Err(Diagnostics(self.found)) }
    }

    pub fn note(&mut self, said: &Said, message: &str, hint: &str) {
        self.at(said.at, message, hint);
    }

    pub fn at(&mut self, at: At, message: &str, hint: &str) {
        let details = if hint.is_empty() { Vec::new() } else { vec![hint.to_owned()] };
        self.add(Diagnostic::at(at, message.to_owned(), details));
    }

    pub fn add(&mut self, mut diagnostic: Diagnostic) {
        if self.is_full() {
            self.more += 1;
            return;
        }
        diagnostic.origin = self.origin.to_owned();
        self.found.push(diagnostic);
    }

    /// An error whose first line says what is wrong, and the rest what to try.
    pub fn told(&mut self, said: &Said, error: &dyn Display) {
        let text = error.to_string();
        let (message, details) = text.split_once('\n').unwrap_or((&text, ""));
        self.note(said, message, details.trim());
    }

    pub fn parsed<T: FromStr>(&mut self, said: &Said, what: &str, example: &str) -> Option<T> {
        let parsed = said.text.parse().ok();
        if parsed.is_none() {
            self.note(said, &format!("{:?} is not {what}", said.text), &format!("try {example}"));
        }
        parsed
    }

    pub fn number<T: FromStr>(&mut self, said: &Said, to: &mut T) {
        if let Some(number) = self.parsed(said, "a number in range", "10") {
            *to = number;
        }
    }

    pub fn truth(&mut self, said: &Said, to: &mut bool) {
        if let Some(truth) = self.parsed(said, "true or false", "true") {
            *to = truth;
        }
    }
}
