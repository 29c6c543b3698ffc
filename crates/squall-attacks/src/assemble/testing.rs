//! Helpers for the tests of several protocols.

use squall_rules::{Application, Buffer, End};

use super::{Parts, assemble};
use crate::{Octets, Origin};

pub fn with(buffers: &[(Buffer, End, &str)]) -> Parts {
    let octets = |text: &str| Octets::of(text, Origin::Option(1));
    Parts {
        buffers: buffers.iter().map(|&(buffer, from, text)| (buffer, from, octets(text))).collect(),
        ..Parts::default()
    }
}

/// The text of each turn.
pub fn texts(application: Application, parts: &Parts) -> Vec<String> {
    let turns = assemble(application, parts).unwrap();
    turns.iter().map(|turn| String::from_utf8_lossy(turn.octets.bytes()).into_owned()).collect()
}
