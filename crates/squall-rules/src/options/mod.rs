//! What options say, by what they are about.

pub(crate) mod application;
pub(crate) mod bytes;
pub(crate) mod content;
pub(crate) mod meta;
pub(crate) mod packet;
pub(crate) mod state;

/// The parts of a value between commas, without blanks around them.
fn parts(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim)
}

/// `track by_src` into its two words; of one word the second is empty.
fn two_words(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (first, second) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (first, second.trim())
}
