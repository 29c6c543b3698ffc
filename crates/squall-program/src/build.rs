//! Compiles a frame and its variables into a program: computes everything that is known before the
//! first frame leaves.

use std::ops::Range;

use squall_units::{Cut, FCS_LEN, TrexMark};
use squall_wire::{ChecksumField, ChecksumKind, CrcField, CrcKind, Frame, LengthField, checksum};

use crate::{Law, Sizes, ring::Ahead, signature};

/// The frames of a stream.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Built at the greatest length in `sizes`.
    pub frame: Frame,
    pub sizes: Sizes,
    pub vars: Vec<VarSpec>,
    /// The stream's number in the signature, if frames carry one.
    pub signature: Option<u16>,
}

/// A field that changes from frame to frame.
#[derive(Clone, Debug)]
pub struct VarSpec {
    /// Offset of the most significant bit from the start of the frame.
    pub bit: usize,
    /// 1 to 64; or 65 to 128 in whole octets.
    pub bits: usize,
    pub law: Law,
    pub turn: Turn,
    /// The law advances once per this number of frames: 1, or the period of the variable that this
    /// one depends on.
    pub every: u64,
    /// Position of that variable in its cycle at frame 0: this law advances whenever that variable
    /// wraps.
    pub phase: u64,
}

/// Transforms a law's value before it is written into a field of up to 64 bits: adds `add`, shifts
/// left by `shift` (right if negative), truncates to the field's width, and reverses the octets if
/// `reversed`. The default changes nothing.
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

    /// The result, for a field of `bits` bits.
    #[inline]
    pub fn apply(self, value: u64, bits: usize) -> u64 {
        let sum = value.wrapping_add(self.add);
        let far = u32::from(self.shift.unsigned_abs());
        let moved = if self.shift < 0 { sum.checked_shr(far) } else { sum.checked_shl(far) };
        let cut = moved.unwrap_or(0) & (u64::MAX >> (64 - bits));
        if self.reversed { cut.swap_bytes() >> (64 - bits) } else { cut }
    }
}

/// Why a program cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramError {
    /// Variable `index` ends at octet `end`, beyond the shortest frame.
    OutsideFrame { index: usize, end: usize, shortest: usize },
    /// Two variables write the same bits.
    Overlap { first: usize, second: usize },
    /// A value of variable `index` needs more bits than the field has.
    TooWide { index: usize, bits: usize, value: u128 },
    /// The width or alignment of variable `index` is not supported.
    Unaligned { index: usize },
    /// Variable `index` lies partly inside the coverage of a checksum.
    Straddles { index: usize },
    /// The shortest frame has `free` octets after its headers and variables; the signature needs
    /// 16.
    NoRoomForSignature { free: usize },
    /// The shortest frame is shorter than the headers.
    TooShort { need: usize, shortest: usize },
    /// The checksum at octet `at` covers a CRC that varies.
    CoveredCrc { at: usize },
    /// The signature would overwrite a CRC at the frame's end.
    SignedCrc,
}

/// Fills frames. Immutable, and the same on every worker and port.
#[derive(Clone, Debug, PartialEq)]
// The fields used for filling share one cache line, because with thousands of streams each frame
// belongs to a different program.
#[repr(C, align(64))]
pub struct Program {
    /// The first octets of the template, padded with zeros, so that small frames are copied from
    /// here in one piece.
    pub(crate) head: [u8; 64],
    pub(crate) template: Box<[u8]>,
    pub(crate) vars: Box<[Var]>,
    pub(crate) sums: Box<[Sum]>,
    pub(crate) lengths: Box<[LengthField]>,
    pub(crate) signature: Option<u16>,
    /// The signature key.
    pub(crate) key: u16,
    pub(crate) trex: Option<TrexMark>,
    pub(crate) sizes: Sizes,
    pub(crate) longest: u32,
    pub(crate) cut: Cut,
    pub(crate) ahead: Ahead,
    /// CRCs that differ between frames, each with the length of the padding after it.
    pub(crate) crcs: Box<[(CrcField, usize)]>,
    /// The TRex packet group whose mark is in the template. Last, because filling does not read it.
    pub(crate) group: Option<u16>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Var {
    pub law: Law,
    /// Present if values are transformed; with the field's width.
    pub turn: Option<(Turn, usize)>,
    /// Whether values have at most 32 bits.
    pub small: bool,
    pub every: u64,
    pub phase: u64,
    pub place: Place,
    pub adds: Box<[Add]>,
}

/// Where a value is written; offsets are in octets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    Octets1(usize),
    Octets2(usize),
    Octets4(usize),
    Octets6(usize),
    Octets8(usize),
    /// `octets` (at most 8) big-endian octets; the bits in `mask` are replaced by the value shifted
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

/// The contribution of a value to a checksum: the value times 2^shift, modulo 2^16 - 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Add {
    pub sum: usize,
    pub shift: u32,
}

/// A checksum as `base + per_octet * len + tail[len] + variables`, unfolded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sum {
    pub at: usize,
    pub udp: bool,
    /// Below 2^17. It is 0 only if all octets are 0, because a sum of 0 has a different complement
    /// from a sum of 2^16 - 1.
    pub base: u32,
    pub per_octet: u32,
    /// Payload sums by frame length, from `tail_from`; empty if all lengths have the same sum.
    pub tail: Box<[u16]>,
    pub tail_from: usize,
    /// Whether the checksum covers the signature, whose words are shifted if it lies at an odd
    /// distance from `from`.
    pub signed: bool,
    /// Octets at the signature's end that the checksum does not cover: they come after an inner
    /// Ethernet frame that has its own FCS.
    pub uncovered: usize,
    pub from: usize,
    /// The checksums that cover this one.
    pub adds: Box<[Add]>,
}

impl Program {
    /// Builds the program.
    ///
    /// # Errors
    /// [`ProgramError`]; the caller knows the names of the variables.
    pub fn build(spec: Spec) -> Result<Self, ProgramError> {
        let Spec { frame, sizes, vars, signature } = spec;
        let (shortest, longest) = sizes.range();
        let (shortest, longest) = (shortest as usize, longest as usize);
        assert_eq!(frame.bytes.len(), longest, "the frame is built at its longest length");
        let variable = shortest != longest;
        let written: Vec<Range<usize>> = vars.iter().map(|v| v.bit..v.bit + v.bits).collect();
        check(&frame, &vars, &written, shortest, signature.is_some())?;

        // A checksum or length field under a variable is not corrected, because the user then wants
        // a wrong one.
        let free = |at: usize| !written.iter().any(|w| w.start < at * 8 + 16 && at * 8 < w.end);
        let lengths: Vec<LengthField> =
            frame.lengths.iter().copied().filter(|l| free(l.at)).collect();
        let fields: Vec<&ChecksumField> = frame.checksums.iter().filter(|c| free(c.at)).collect();

        // The constant part: the template with all variable bits set to 0.
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
            let place = match v.law {
                Law::Supplied { .. } => Place::whole(w),
                _ => Place::of(w),
            };
            let place = place.ok_or(ProgramError::Unaligned { index })?;
            let VarSpec { bits, law, turn, every, phase, .. } = v;
            program_vars.push(Var {
                // False if values are transformed, because the shift needs all bits of the law's
                // value.
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

    /// Writes checksums that are the same in every frame into the template, so that filling skips
    /// them.
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
                // RFC 768: 0 would mean that the sender computed no checksum.
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
        // Removing settled sums shifts the indexes of the others.
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

    /// The longest frame in octets without FCS.
    pub fn max_len(&self) -> u32 {
        self.longest
    }

    /// Sets how the port segments the frames, which must all have one length.
    pub fn with_cut(self, cut: Cut) -> Self {
        assert!(
            cut.is_whole() || self.sizes.only().is_some(),
            "frames that are cut are of one length"
        );
        Self { cut, ..self }
    }

    /// Replaces the signature by a TRex header.
    pub fn with_trex(self, trex: Option<TrexMark>) -> Self {
        assert!(trex.is_none() || self.signature.is_some(), "there is a place for it");
        Self { trex, ..self }
    }

    /// The TRex header that replaces the signature of the frames, if they carry one.
    pub fn trex(&self) -> Option<TrexMark> {
        self.trex
    }

    /// Sets the TRex packet group that marks the frames; excludes a signature.
    pub fn with_group(self, group: Option<u16>) -> Self {
        assert!(group.is_none() || self.signature.is_none(), "frames are known by one of the two");
        Self { group, ..self }
    }

    /// The TRex packet group, if receivers recognize the frames by its mark.
    pub fn group(&self) -> Option<u16> {
        self.group
    }

    /// Whether receivers can attribute the frames to their stream.
    pub fn is_known(&self) -> bool {
        self.signature.is_some() || self.group.is_some()
    }

    /// How the port segments the frames.
    pub fn cut(&self) -> Cut {
        self.cut
    }

    /// Frames on the wire per filled frame.
    pub fn segments(&self) -> u32 {
        self.cut.segments(self.longest)
    }

    /// Mean length of a frame on the wire in octets with FCS.
    pub fn mean_wire_len(&self) -> f64 {
        match self.cut.is_whole() {
            true => self.sizes.mean() + f64::from(FCS_LEN),
            false => self.cut.octets(self.longest) as f64 / f64::from(self.segments()),
        }
    }

    /// Sets the key of signatures.
    pub fn set_key(&mut self, key: u16) {
        self.key = key;
    }

    /// The stream's number in the signature.
    pub fn signature(&self) -> Option<u16> {
        self.signature
    }

    /// The same program with another stream number in the signature; `None`: frames have no
    /// signature.
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
        // Reversal works on whole octets, and values above 64 bits are not transformed.
        if !v.turn.is_none() && (v.bits > 64 || v.turn.reversed && !v.bits.is_multiple_of(8)) {
            return Err(ProgramError::Unaligned { index });
        }
        let value = v.law.max();
        if v.turn.is_none() && v.bits < 128 && value >> v.bits != 0 {
            return Err(ProgramError::TooWide { index, bits: v.bits, value });
        }
    }
    let free = match (frame.trailer, shortest == frame.bytes.len()) {
        (0, _) => shortest.saturating_sub(used),
        // The signature is in the padding as a whole, or checksums would cover a part of it.
        (padding, true) => padding.min(shortest.saturating_sub(used)),
        (_, false) => 0,
    };
    if signed && free < signature::LEN {
        return Err(ProgramError::NoRoomForSignature { free });
    }
    Ok(())
}

/// The CRCs that must be computed per frame.
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
        // A CRC under a variable is not corrected, because the user then wants a wrong one.
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

/// Whether checksum `c` covers `octets`; `None`: it covers only some of them.
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

/// The exponent of the weight (a power of 2, modulo 2^16 - 1) of the least significant bit of a
/// field that ends at bit `end`, in a sum of 16-bit words from octet `from`.
fn shift_of(end: usize, from: usize) -> u32 {
    let last = (end - 1) / 8;
    let within = 7 - (end - 1) % 8;
    (if (last as isize - from as isize).rem_euclid(2) == 1 { within } else { within + 8 }) as u32
}

/// Folds a sum so that it can be added to others within 32 bits. Nonzero sums stay nonzero.
pub(crate) fn fold_to_17_bits(sum: u64) -> u32 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u32
}

impl Place {
    /// Up to 16 whole octets, written one by one.
    fn whole(bits: &Range<usize>) -> Option<Self> {
        let (offset, octets) = (bits.start / 8, bits.len() / 8);
        let whole = bits.start.is_multiple_of(8) && bits.end.is_multiple_of(8) && octets <= 16;
        whole.then_some(Self::Wide { offset, octets })
    }

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
        let signed = signed
            && match c.to {
                None => frame.trailer < signature::LEN,
                Some(to) => !variable && to + signature::LEN > longest,
            };
        let uncovered = if signed { longest - end_at(longest) } else { 0 };
        let tail_end = |len: usize| if signed { len - signature::LEN } else { end_at(len) };
        base += checksum::sum(&still[c.from..tail_end(shortest)]);
        // Subtracts modulo 2^16 - 1, with a result above 0. Adds nothing if nothing is subtracted,
        // because a sum of zeros must stay 0 (its complement differs).
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
