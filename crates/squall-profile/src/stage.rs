//! How a load or a rate changes over time.

use serde_json::{Value as Json, json};
use squall_units::Nanos;

use crate::emit::duration;

/// A level (flows a second, users; the rate of a stream) that is reached in a time, linearly from the
/// one before; at once where that is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage<T> {
    pub lasts: Nanos,
    pub to: T,
}

/// A level that rises or falls for longer is refused: see `squall_program::Shape`.
pub(crate) const LONGEST: Nanos = Nanos(24 * 3600 * 1_000_000_000);

/// As it is written; `None` without stages.
pub(crate) fn to_value<T: Copy>(stages: &[Stage<T>], to: impl Fn(T) -> Json) -> Option<Json> {
    let one = |stage: &Stage<T>| json!({ "duration": duration(stage.lasts), "to": to(stage.to) });
    (!stages.is_empty()).then(|| stages.iter().map(one).collect())
}
