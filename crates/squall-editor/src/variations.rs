//! Shows the first frames of a stream with varying fields.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use squall_plan::explain::preview;

use super::{FileAccess, Problem, Written, planned, to_hex};

/// Maximum octets of all frames together.
const MAX_OCTETS: usize = 4 << 20;

/// Input of [`variations`].
#[derive(Clone, Copy, Debug)]
pub struct Varied<'a> {
    /// The packet as text.
    pub packet: &'a str,
    /// Entries, as for `vary` of a stream in a profile.
    pub vary: &'a [Value],
    /// As for `size` of a stream; `None`: the natural length of the packet.
    pub size: Option<&'a Value>,
    pub seed: Option<u64>,
}

/// Frames, and where they differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VariationsView {
    /// Octets without FCS, in the order of the stream.
    pub frames: Vec<String>,
    /// `[bit offset, bits]` of the bits that are not the same in all frames, including checksums,
    /// in order.
    pub changed: Vec<(usize, usize)>,
    /// `[bit offset, bits]` of the field that each entry of `vary` names; absent if it has no name.
    pub fields: Vec<Option<(usize, usize)>>,
}

/// ```
/// use squall_editor::{FileAccess, Varied, variations};
///
/// let vary = [serde_json::json!({"field": "ipv4.src", "op": "increment", "min": "10.0.0.1", "max": "10.0.0.3"})];
/// let varied = Varied { packet: "eth/ipv4/udp", vary: &vary, size: None, seed: None };
/// let view = variations(varied, 4, FileAccess::here()).unwrap();
/// assert_eq!((view.frames.len(), &view.frames[0] == &view.frames[3]), (4, true));
/// assert_eq!(view.fields, [Some((8 * 26, 32))]);
/// // Three addresses differ in their last two bits; the checksums follow.
/// assert!(view.changed.contains(&(8 * 30 - 2, 2)), "{:?}", view.changed);
/// ```
///
/// # Errors
/// Errors in the packet have the `path` `packet`, errors in variations `vary[0].min`, and errors in
/// the size `size`.
pub fn variations(
    varied: Varied<'_>,
    count: usize,
    around: FileAccess<'_>,
) -> Result<VariationsView, Vec<Problem>> {
    let mut stream = json!({ "packet": varied.packet, "rate": "1 Mpps", "vary": varied.vary });
    if let Some(size) = varied.size {
        stream["size"] = size.clone();
    }
    let profile =
        json!({ "seed": varied.seed.unwrap_or(1), "ports": { "A": "null:" }, "stream": [stream] });
    let within = |mut problem: Problem| {
        problem.path = problem.path.strip_prefix("stream[0].").unwrap_or(&problem.path).to_owned();
        problem
    };
    let planned = planned(Written::Value(&profile), around)
        .map_err(|problems| problems.into_iter().map(within).collect::<Vec<_>>())?;
    // Limits the size of the response for any frame size.
    let longest = planned.plan.streams.first().map_or(1, |stream| stream.program.max_len().max(1));
    let count = count.min((MAX_OCTETS / longest as usize).max(2));
    let frames: Vec<Vec<u8>> =
        preview(&planned.plan, count).into_iter().map(|frame| frame.octets).collect();
    let first = frames.first().map(|octets| squall_wire::Frame::dissect(octets.clone()));
    let named = squall_wire::Packet::parse(varied.packet)
        .ok()
        .and_then(|packet| packet.build(None, &|_| Ok(Vec::new()), 1).ok());
    let place = |vary: &Value| {
        let name = vary["field"].as_str()?;
        let at = named.as_ref().or(first.as_ref())?.field(name).ok()?;
        Some((at.bit, at.bits))
    };
    Ok(VariationsView {
        changed: changed(&frames),
        fields: varied.vary.iter().map(place).collect(),
        frames: frames.iter().map(|octets| to_hex(octets)).collect(),
    })
}

/// Runs of bits that are not the same in all frames. Bits that only some frames have are not
/// compared.
fn changed(frames: &[Vec<u8>]) -> Vec<(usize, usize)> {
    let Some((first, others)) = frames.split_first() else { return Vec::new() };
    let shortest = frames.iter().map(Vec::len).min().unwrap_or(0);
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for at in 0..shortest {
        let differs = others.iter().fold(0, |mask, other| mask | (other[at] ^ first[at]));
        for bit in (0..8).filter(|bit| differs & (0x80 >> bit) != 0).map(|bit| at * 8 + bit) {
            match runs.last_mut() {
                Some((start, bits)) if *start + *bits == bit => *bits += 1,
                _ => runs.push((bit, 1)),
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_named_by_its_key() {
        let vary = [json!({"field": "ipv4.scr", "op": "increment", "min": 1, "max": 2})];
        let varied = Varied { packet: "eth/ipv4/udp", vary: &vary, size: None, seed: None };
        let problems = variations(varied, 4, FileAccess::here()).unwrap_err();
        assert_eq!(problems[0].path, "vary[0]", "{problems:?}");
        let problems =
            variations(Varied { packet: "eth/ipv5", vary: &[], ..varied }, 4, FileAccess::here())
                .unwrap_err();
        assert_eq!((problems[0].path.as_str(), problems.len()), ("packet", 1), "{problems:?}");
    }

    #[test]
    fn frames_of_different_sizes_are_compared_as_far_as_all_go() {
        let size = json!([64, 128]);
        let varied = Varied { packet: "eth/raw", vary: &[], size: Some(&size), seed: None };
        assert!(variations(varied, 2, FileAccess::here()).is_err());
        let view =
            variations(Varied { packet: "eth/ipv4/udp/zeros", ..varied }, 2, FileAccess::here())
                .unwrap();
        assert_eq!((view.frames[0].len(), view.frames[1].len()), (120, 248));
        assert!(!view.changed.is_empty());
    }
}
