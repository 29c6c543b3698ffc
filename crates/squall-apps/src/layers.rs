//! Common parts of the layers between TCP and programs: the PROXY protocol, TLS and HTTP/2.

use std::collections::VecDeque;

use crate::ProgramId;

/// Gives a program its part of a layer. `programs`: by number; `None`: without the layer.
pub(crate) fn set<T>(programs: &mut Vec<Option<T>>, program: ProgramId, own: T) {
    let at = usize::from(program.0);
    if programs.len() <= at {
        programs.resize_with(at + 1, || None);
    }
    programs[at] = Some(own);
}

/// Whether a program has the layer.
#[inline]
pub(crate) fn has<T>(programs: &[Option<T>], program: ProgramId) -> bool {
    programs.get(usize::from(program.0)).is_some_and(Option::is_some)
}

/// Copies octets that are kept until they are acknowledged, from position `from` on.
///
/// # Panics
/// If these octets are not kept any more.
pub(crate) fn copy_kept(kept: &VecDeque<u8>, from: usize, out: &mut [u8]) {
    let (first, second) = kept.as_slices();
    let in_first = first.len().saturating_sub(from).min(out.len());
    let (head, tail) = out.split_at_mut(in_first);
    if in_first > 0 {
        head.copy_from_slice(&first[from..from + in_first]);
    }
    let skip = from.saturating_sub(first.len());
    tail.copy_from_slice(&second[skip..skip + tail.len()]);
}
