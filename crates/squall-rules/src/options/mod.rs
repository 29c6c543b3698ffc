//! Parsers for options, grouped by subject.

pub(crate) mod application;
pub(crate) mod bytes;
pub(crate) mod content;
pub(crate) mod meta;
pub(crate) mod packet;
pub(crate) mod state;

/// Splits a value at commas and trims the parts.
fn parts(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim)
}

/// Splits `track by_src` into two words. The second is empty if there is only one.
fn two_words(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (first, second) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (first, second.trim())
}
