//! Changes of a load or of a rate over time.

use serde_json::{Value as Json, json};
use squall_units::Nanos;

use crate::emit::duration;

/// A level (flows per second, users, or the rate of a stream) and the time in which it is reached,
/// linearly from the previous level. If the time is 0, it is reached at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage<T> {
    pub lasts: Nanos,
    pub to: T,
}

/// Maximum duration of a rise or fall that `squall_program::Shape` accepts.
pub(crate) const LONGEST: Nanos = Nanos(24 * 3600 * 1_000_000_000);

/// The stages in the form that profiles have. `None` if there are no stages.
pub(crate) fn to_value<T: Copy>(stages: &[Stage<T>], to: impl Fn(T) -> Json) -> Option<Json> {
    let one = |stage: &Stage<T>| json!({ "duration": duration(stage.lasts), "to": to(stage.to) });
    (!stages.is_empty()).then(|| stages.iter().map(one).collect())
}
