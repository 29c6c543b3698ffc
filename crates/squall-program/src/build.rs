//! From a frame and what varies in it to a program: all that can be computed before the first frame
//! leaves.

use std::ops::Range;

use squall_units::{Cut, FCS_LEN, TrexMark};
use squall_wire::{ChecksumField, ChecksumKind, CrcField, CrcKind, Frame, LengthField, checksum};

use crate::{Law, Sizes, ring::Ahead, signature};

/// What a stream's frames are.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Built at the longest length that `sizes` gives.
    pub frame: Frame,
    pub sizes: Sizes,
    pub vars: Vec<VarSpec>,
    /// The stream's number in the signature, if it carries one.
    pub signature: Option<u16>,
}

/// A field that changes from frame to frame.
#[derive(Clone, Debug)]
pub struct VarSpec {
    /// Offset of the most significant bit from the start of the frame.
    pub bit: usize,
    /// 1 to 64, or 65 to 128 and then whole octets.
    pub bits: usize,
    pub law: Law,
    pub turn: Turn,
    /// The law advances once in so many frames: 1, or the period of the variable that this one
    /// depends on.
    pub every: u64,
    /// Frames by which that variable was ahead of its cycle at frame 0, so that this one advances
    /// when it wraps.
    pub phase: u64,
}

/// What is done to a value of a law before it is written into a field of up to 64 bits: it grows by
/// `add`, is shifted left by `shift` (right where negative), cut to the field's bits, and its octets
/// are reversed. The default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    pub add: u64,
    pub shift: i8,
    pub reversed: bool,
}

impl Turn {
    fn is_none(self) -> bool {
        self == Self::default()
    }

    /// For a field of `bits`.
    #[inline]
    pub fn apply(self, value: u64, bits: usize) -> u64 {
        let sum = value.wrapping_add(self.add);
        let far = u32::from(self.shift.unsigned_abs());
        let moved = if self.shift < 0 { sum.checked_shr(far) } else { sum.checked_shl(far) };
        let cut = moved.unwrap_or(0) & (u64::MAX >> (64 - bits));
        if self.reversed { cut.swap_bytes() >> (64 - bits) } else { cut }
    }
}

/// Why there is no such program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramError {
    /// Variable `index` ends at octet `end`, behind the shortest frame.
    OutsideFrame { index: usize, end: usize, shortest: usize },
    /// Variables that write the same bits.
    Overlap { first: usize, second: usize },
    /// Variable `index` has values that need more bits than its field has.
    TooWide { index: usize, bits: usize, value: u128 },
    /// Variable `index` is of a width or alignment that is not supported.
    Unaligned { index: usize },
    /// Variable `index` is partly inside what a checksum covers.
    Straddles { index: usize },
    /// The shortest frame has `free` octets behind its headers and variables; the signature needs 16.
    NoRoomForSignature { free: usize },
    /// The shortest frame is shorter than its headers.
    TooShort { need: usize, shortest: usize },
    /// A CRC that differs from frame to frame is covered by the checksum at octet `at`.
    CoveredCrc { at: usize },
    /// The signature's place is that of a CRC at the frame's end.
    SignedCrc,
}

/// Fills frames. A value: the same on every worker and port.
#[derive(Clone, Debug, PartialEq)]
// With thousands of streams each frame is of another program: what filling looks at is one cache
// line.
#[repr(C, align(64))]
pub struct Program {
    /// The first octets of the template, zeros behind a shorter frame: small frames are copied from
    /// here in one piece.
    pub(crate) head: [u8; 64],
    pub(crate) template: Box<[u8]>,
    pub(crate) vars: Box<[Var]>,
    pub(crate) sums: Box<[Sum]>,
    pub(crate) lengths: Box<[LengthField]>,
    pub(crate) signature: Option<u16>,
    /// Of the signature.
    pub(crate) key: u16,
    pub(crate) trex: Option<TrexMark>,
    pub(crate) sizes: Sizes,
    pub(crate) longest: u32,
    pub(crate) cut: Cut,
    pub(crate) ahead: Ahead,
    /// Those that are not the same in every frame; of each the padding at the frame's end.
    pub(crate) crcs: Box<[(CrcField, usize)]>,
    /// The packet group of TRex whose mark is in the template; at the end, as filling has no use
    /// for it.
    pub(crate) group: Option<u16>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Var {
    pub law: Law,
    /// With the bits of the field.
    pub turn: Option<(Turn, usize)>,
    /// At most 32.
    pub small: bool,
    pub every: u64,
    pub phase: u64,
    pub place: Place,
    pub adds: Box<[Add]>,
}

/// Where a value is written, offsets in octets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    Octets1(usize),
    Octets2(usize),
    Octets4(usize),
    Octets6(usize),
    Octets8(usize),
    /// `octets` (at most 8) big-endian octets, of which `mask` is replaced by the value shifted
    /// left by `shift`.
    Bits {
        offset: usize,
        octets: usize,
        shift: u32,
        mask: u64,
    },
    /// Up to 16 whole octets.
    Wide {
        offset: usize,
        octets: usize,
    },
}

/// A value's part in a checksum: the value times 2^shift, modulo 2^16 - 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Add {
    pub sum: usize,
    pub shift: u32,
}

/// A checksum as `base + per_octet * len + tail[len] + what varies`, unfolded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sum {
    pub at: usize,
    pub udp: bool,
    /// Below 2^17; 0 only if everything is 0.
    pub base: u32,
    pub per_octet: u32,
    /// Sum of the payload for each frame length from `tail_from`; empty where it is always the
    /// same.
    pub tail: Box<[u16]>,
    pub tail_from: usize,
    /// The signature is covered; its words are shifted when it lies at an odd distance from `from`.
    pub signed: bool,
    /// So many octets at the signature's end are not covered: behind an inner Ethernet frame that
    /// has its own FCS.
    pub uncovered: usize,
    pub from: usize,
    /// Sums that cover this one.
    pub adds: Box<[Add]>,
}

impl Program {
    /// # Errors
    /// See [`ProgramError`]; the caller knows the names.
    pub fn build(spec: Spec) -> Result<Self, ProgramError> {
        let Spec { frame, sizes, vars, signature } = spec;
        let (shortest, longest) = sizes.range();
        let (shortest, longest) = (shortest as usize, longest as usize);
        assert_eq!(frame.bytes.len(), longest, "the frame is built at its longest length");
        let variable = shortest != longest;
        let written: Vec<Range<usize>> = vars.iter().map(|v| v.bit..v.bit + v.bits).collect();
        check(&frame, &vars, &written, shortest, signature.is_some())?;

        // A variable on a checksum or a length means that the user wants it otherwise than right.
        let free = |at: usize| !written.iter().any(|w| w.start < at * 8 + 16 && at * 8 < w.end);
        let lengths: Vec<LengthField> =
            frame.lengths.iter().copied().filter(|l| free(l.at)).collect();
        let fields: Vec<&ChecksumField> = frame.checksums.iter().filter(|c| free(c.at)).collect();

        // What does not vary: the template with everything that does set to 0.
        let mut still = frame.bytes.clone();
        for w in &written {
            for bit in w.clone() {
                still[bit / 8] &= !(0x80 >> (bit % 8));
            }
        }
        for field in &fields {
            still[field.at..field.at + 2].fill(0);
        }
        let crcs = crcs(&frame, &written, &fields, variable, signature.is_some())?;
        if variable {
            for l in &lengths {
                still[l.at..l.at + 2].fill(0);
            }
        }
        if signature.is_some() && !variable {
            still[longest - signature::LEN..].fill(0);
        }

        let covered = |range: Range<usize>, c: &ChecksumField| covers(c, &frame, range);
        let mut sums = Vec::new();
        for (i, c) in fields.iter().enumerate() {
            let mut adds = Vec::new();
            for (sum, outer) in fields.iter().enumerate().skip(i + 1) {
                if covered(c.at..c.at + 2, outer) == Some(true) {
                    adds.push(Add { sum, shift: shift_of((c.at + 2) * 8, outer.from) });
                }
            }
            sums.push(Sum::build(c, &frame, &still, &lengths, shortest, signature.is_some(), adds));
        }
        let mut program_vars = Vec::new();
        for (index, (v, w)) in vars.into_iter().zip(&written).enumerate() {
            let octets = w.start / 8..w.end.div_ceil(8);
            let mut adds = Vec::new();
            for (sum, c) in fields.iter().enumerate() {
                match covered(octets.clone(), c) {
                    Some(true) => adds.push(Add { sum, shift: shift_of(w.end, c.from) }),
                    Some(false) => {}
                    None => return Err(ProgramError::Straddles { index }),
                }
            }
            let place = Place::of(w).ok_or(ProgramError::Unaligned { index })?;
            let VarSpec { bits, law, turn, every, phase, .. } = v;
            program_vars.push(Var {
                // A turn needs the bits that it shifts away.
                small: bits <= 32 && turn.is_none(),
                law,
                turn: (!turn.is_none()).then_some((turn, bits)),
                every: every.max(1),
                phase,
                place,
                adds: adds.into(),
            });
        }
        let mut program = Self {
            head: [0; 64],
            template: frame.bytes.into(),
            longest: longest as u32,
            cut: Cut::WHOLE,
            sizes,
            vars: program_vars.into(),
            lengths: if variable { lengths.into() } else { Box::default() },
            sums: sums.into(),
            crcs,
            signature,
            key: 0,
            trex: None,
            ahead: Ahead::default(),
            group: None,
        };
        program.settle(variable);
        let small = longest.min(program.head.len());
        program.head[..small].copy_from_slice(&program.template[..small]);
        Ok(program)
    }

    /// Writes checksums that are the same in every frame into the template, once.
    fn settle(&mut self, variable: bool) {
        if variable {
            return;
        }
        let mut live: Vec<bool> =
            self.sums.iter().map(|s| s.signed && self.signature.is_some()).collect();
        for add in self.vars.iter().flat_map(|v| &v.adds) {
            live[add.sum] = true;
        }
        for i in 0..self.sums.len() {
            let outer: Vec<usize> = self.sums[i].adds.iter().map(|a| a.sum).collect();
            outer.into_iter().for_each(|sum| live[sum] |= live[i]);
        }
        for i in (0..self.sums.len()).filter(|&i| !live[i]) {
            let sum = &self.sums[i];
            let value = match !checksum::fold(u64::from(sum.start(self.longest))) {
                0 if sum.udp => 0xffff,
                value => value,
            };
            let at = sum.at;
            self.template[at..at + 2].copy_from_slice(&value.to_be_bytes());
            for Add { sum, shift } in self.sums[i].adds.clone() {
                let sum = &mut self.sums[sum];
                sum.base = fold_to_17_bits(u64::from(sum.base) + (u64::from(value) << shift));
            }
        }
        // What is left is numbered anew.
        let number: Vec<usize> =
            live.iter().scan(0, |n, &l| Some(std::mem::replace(n, *n + usize::from(l)))).collect();
        let renumber = |adds: &[Add]| -> Box<[Add]> {
            adds.iter().filter(|a| live[a.sum]).map(|a| Add { sum: number[a.sum], ..*a }).collect()
        };
        self.sums = (0..self.sums.len())
            .filter(|&i| live[i])
            .map(|i| Sum { adds: renumber(&self.sums[i].adds), ..self.sums[i].clone() })
            .collect();
        for var in &mut self.vars {
            var.adds = renumber(&var.adds);
        }
    }

    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// The longest frame, octets without FCS.
    pub fn max_len(&self) -> u32 {
        self.longest
    }

    /// The same frames, to be cut by the port; they are all of one length.
    pub fn with_cut(self, cut: Cut) -> Self {
        assert!(
            cut.is_whole() || self.sizes.only().is_some(),
            "frames that are cut are of one length"
        );
        Self { cut, ..self }
    }

    /// The same frames, with TRex's header in the place of a signature of Squall's.
    pub fn with_trex(self, trex: Option<TrexMark>) -> Self {
        assert!(trex.is_none() || self.signature.is_some(), "there is a place for it");
        Self { trex, ..self }
    }

    /// The frames have TRex's header in the place of Squall's signature.
    pub fn trex(&self) -> Option<TrexMark> {
        self.trex
    }

    /// The same frames, which have the mark of this packet group of TRex and no signature.
    pub fn with_group(self, group: Option<u16>) -> Self {
        assert!(group.is_none() || self.signature.is_none(), "frames are known by one of the two");
        Self { group, ..self }
    }

    /// The packet group of TRex by whose mark receivers know the frames.
    pub fn group(&self) -> Option<u16> {
        self.group
    }

    /// Whether receivers know whose the frames are.
    pub fn is_known(&self) -> bool {
        self.signature.is_some() || self.group.is_some()
    }

    /// How a port is to cut the frames.
    pub fn cut(&self) -> Cut {
        self.cut
    }

    /// Frames on the wire for each that is filled.
    pub fn segments(&self) -> u32 {
        self.cut.segments(self.longest)
    }

    /// Mean length of a frame on the wire, octets with FCS.
    pub fn mean_wire_len(&self) -> f64 {
        match self.cut.is_whole() {
            true => self.sizes.mean() + f64::from(FCS_LEN),
            false => self.cut.octets(self.longest) as f64 / f64::from(self.segments()),
        }
    }

    /// From here on signatures have this key.
    pub fn set_key(&mut self, key: u16) {
        self.key = key;
    }

    /// The stream's number in the signature.
    pub fn signature(&self) -> Option<u16> {
        self.signature
    }

    /// The same frames under another number in the signature; `None` where there is no signature.
    pub fn renumbered(&self, stream: u32) -> Option<Self> {
        self.signature?;
        Some(Self { signature: u16::try_from(stream).ok(), ..self.clone() })
    }

    pub fn variables(&self) -> usize {
        self.vars.len()
    }
}

fn check(
    frame: &Frame,
    vars: &[VarSpec],
    written: &[Range<usize>],
    shortest: usize,
    signed: bool,
) -> Result<(), ProgramError> {
    if shortest < frame.payload.min(frame.bytes.len() - frame.trailer) {
        return Err(ProgramError::TooShort { need: frame.payload, shortest });
    }
    let mut used = frame.payload;
    for (index, (v, w)) in vars.iter().zip(written).enumerate() {
        let end = w.end.div_ceil(8);
        if end > shortest {
            return Err(ProgramError::OutsideFrame { index, end, shortest });
        }
        used = used.max(end);
        if let Some(first) =
            written[..index].iter().position(|o| o.start < w.end && w.start < o.end)
        {
            return Err(ProgramError::Overlap { first, second: index });
        }
        // Octets change places by whole octets; wide values are written as they are.
        if !v.turn.is_none() && (v.bits > 64 || v.turn.reversed && !v.bits.is_multiple_of(8)) {
            return Err(ProgramError::Unaligned { index });
        }
        let value = v.law.max();
        if v.turn.is_none() && v.bits < 128 && value >> v.bits != 0 {
            return Err(ProgramError::TooWide { index, bits: v.bits, value });
        }
    }
    let free = shortest.saturating_sub(used);
    if signed && (free < signature::LEN || frame.trailer > 0) {
        return Err(ProgramError::NoRoomForSignature {
            free: if frame.trailer > 0 { 0 } else { free },
        });
    }
    Ok(())
}

/// The CRCs that have to be computed for each frame.
fn crcs(
    frame: &Frame,
    written: &[Range<usize>],
    sums: &[&ChecksumField],
    variable: bool,
    signed: bool,
) -> Result<Box<[(CrcField, usize)]>, ProgramError> {
    let mut crcs = Vec::new();
    for crc in &frame.crcs {
        let end = crc.to.unwrap_or(frame.bytes.len() - frame.trailer);
        let place = crc.place(end);
        let touches = |w: &Range<usize>, octets: &Range<usize>| {
            w.start < octets.end * 8 && octets.start * 8 < w.end
        };
        // A variable on it means that the user wants it otherwise than right.
        if written.iter().any(|w| touches(w, &place)) {
            continue;
        }
        let at_end = matches!(crc.kind, CrcKind::Icrc { .. });
        if signed && at_end {
            return Err(ProgramError::SignedCrc);
        }
        if !variable && !signed && !written.iter().any(|w| touches(w, &(crc.from..end))) {
            continue;
        }
        if let Some(sum) = sums.iter().find(|c| covers(c, frame, place.clone()) != Some(false)) {
            return Err(ProgramError::CoveredCrc { at: sum.at });
        }
        crcs.push((*crc, frame.trailer));
    }
    Ok(crcs.into())
}

/// Whether `octets` are summed by `c`: `None` when only a part is.
fn covers(c: &ChecksumField, frame: &Frame, octets: Range<usize>) -> Option<bool> {
    let end = c.to.unwrap_or(frame.bytes.len() - frame.trailer);
    let mut inside = false;
    for range in c.pseudo.iter().cloned().chain(std::iter::once(c.from..end)) {
        if range.start <= octets.start && octets.end <= range.end {
            inside = true;
        } else if range.start < octets.end && octets.start < range.end {
            return None;
        }
    }
    Some(inside)
}

/// The power of two, modulo 2^16 - 1, that the least significant bit of a field ending at bit `end`
/// has in a sum over 16-bit words from octet `from`.
fn shift_of(end: usize, from: usize) -> u32 {
    let last = (end - 1) / 8;
    let within = 7 - (end - 1) % 8;
    (if (last as isize - from as isize).rem_euclid(2) == 1 { within } else { within + 8 }) as u32
}

/// A sum in the form that can be added to others in 32 bits. Nonzero sums stay nonzero.
pub(crate) fn fold_to_17_bits(sum: u64) -> u32 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u32
}

impl Place {
    fn of(bits: &Range<usize>) -> Option<Self> {
        let (offset, octets) = (bits.start / 8, bits.end.div_ceil(8) - bits.start / 8);
        if bits.start.is_multiple_of(8) && bits.end.is_multiple_of(8) {
            return Some(match octets {
                1 => Self::Octets1(offset),
                2 => Self::Octets2(offset),
                4 => Self::Octets4(offset),
                6 => Self::Octets6(offset),
                8 => Self::Octets8(offset),
                3..=7 => {
                    Self::Bits { offset, octets, shift: 0, mask: u64::MAX >> (64 - 8 * octets) }
                }
                9..=16 => Self::Wide { offset, octets },
                _ => return None,
            });
        }
        let shift = (8 - bits.end % 8) % 8;
        let width = bits.len();
        (octets <= 8 && width < 64).then(|| Self::Bits {
            offset,
            octets,
            shift: shift as u32,
            mask: ((1 << width) - 1) << shift,
        })
    }
}

impl Sum {
    fn build(
        c: &ChecksumField,
        frame: &Frame,
        still: &[u8],
        lengths: &[LengthField],
        shortest: usize,
        signed: bool,
        adds: Vec<Add>,
    ) -> Self {
        let longest = frame.bytes.len();
        let variable = shortest != longest;
        let end_at = |len: usize| c.to.unwrap_or(len - frame.trailer);
        let mut base: u64 = c.pseudo.iter().map(|r| checksum::sum(&still[r.clone()])).sum();
        let mut per_octet = 0u32;
        let mut taken = 0u64;
        if let Some(protocol) = c.protocol {
            base += u64::from(protocol);
            match c.to {
                Some(to) => base += (to - c.from) as u64,
                None => {
                    per_octet += 1;
                    taken += (c.from + frame.trailer) as u64;
                }
            }
        }
        if variable {
            for l in lengths.iter().filter(|l| covers(c, frame, l.at..l.at + 2) == Some(true)) {
                let shift = shift_of((l.at + 2) * 8, c.from);
                per_octet += 1 << shift;
                taken += (l.from as u64) << shift;
            }
        }
        let signed = signed && c.to.is_none_or(|to| !variable && to + signature::LEN > longest);
        let uncovered = if signed { longest - end_at(longest) } else { 0 };
        let tail_end = |len: usize| if signed { len - signature::LEN } else { end_at(len) };
        base += checksum::sum(&still[c.from..tail_end(shortest)]);
        // As many multiples of 2^16 - 1 as keep it above 0; none where nothing is taken away,
        // because a sum of nothing but zeros must stay 0.
        base = base + taken.next_multiple_of(65_535) - taken;
        let mut tail = Vec::new();
        if variable && c.to.is_none() {
            let mut running = 0u64;
            for len in shortest..=longest {
                if len > shortest {
                    let octet = tail_end(len) - 1;
                    running += u64::from(still[octet])
                        << if (octet - c.from).is_multiple_of(2) { 8 } else { 0 };
                }
                tail.push(checksum::fold(running));
            }
            if tail.iter().all(|&t| t == 0) {
                tail.clear();
            }
        }
        Self {
            at: c.at,
            udp: c.kind == ChecksumKind::Udp,
            base: fold_to_17_bits(base),
            per_octet,
            tail: tail.into(),
            tail_from: shortest,
            signed,
            uncovered,
            from: c.from,
            adds: adds.into(),
        }
    }

    #[inline]
    pub fn start(&self, len: u32) -> u32 {
        let tail = if self.tail.is_empty() {
            0
        } else {
            u32::from(self.tail[len as usize - self.tail_from])
        };
        self.base + self.per_octet * len + tail
    }
}
