//! Collects errors that are found when a profile is compiled.

use std::{fmt::Display, str::FromStr};

use crate::{At, Diagnostic, Diagnostics, Located, Profile, diagnostics::MAX_ERRORS};

/// Errors in a profile with their positions. They are collected, so that all can be reported at
/// once.
pub struct ErrorCollector<'a> {
    origin: &'a str,
    found: Vec<Diagnostic>,
    /// The number of errors beyond [`MAX_ERRORS`].
    more: usize,
}

impl<'a> ErrorCollector<'a> {
    pub fn of(profile: &'a Profile) -> Self {
        Self { origin: &profile.origin, found: Vec::new(), more: 0 }
    }

    /// Whether there is no error so far.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether further errors are only counted, in which case the caller may stop.
    pub fn is_full(&self) -> bool {
        self.found.len() >= MAX_ERRORS
    }

    /// # Errors
    /// All errors, if there are any.
    pub fn check(mut self) -> Result<(), Diagnostics> {
        if self.more > 0 {
            let text = format!("and {} more errors", self.more);
            let origin = self.origin.to_owned();
            self.found.push(Diagnostic { origin, message: text, ..Diagnostic::default() });
        }
        if self.found.is_empty() { Ok(()) } else { Err(Diagnostics(self.found)) }
    }

    pub fn note(&mut self, located: &Located, message: &str, hint: &str) {
        self.at(located.at, message, hint);
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

    /// Adds an error whose first line is the message, and whose other lines are hints.
    pub fn report(&mut self, located: &Located, error: &dyn Display) {
        let text = error.to_string();
        let (message, details) = text.split_once('\n').unwrap_or((&text, ""));
        self.note(located, message, details.trim());
    }

    pub fn parsed<T: FromStr>(
        &mut self,
        located: &Located,
        what: &str,
        example: &str,
    ) -> Option<T> {
        let parsed = located.text.parse().ok();
        if parsed.is_none() {
            self.note(
                located,
                &format!("{:?} is not {what}", located.text),
                &format!("try {example}"),
            );
        }
        parsed
    }

    pub fn number<T: FromStr>(&mut self, located: &Located, to: &mut T) {
        if let Some(number) = self.parsed(located, "a number in range", "10") {
            *to = number;
        }
    }

    pub fn truth(&mut self, located: &Located, to: &mut bool) {
        if let Some(truth) = self.parsed(located, "true or false", "true") {
            *to = truth;
        }
    }
}
