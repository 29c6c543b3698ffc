//! Makes one frame of one stream, equal to that of [`Program::fill`](crate::Program::fill).
//!
//! Registers: R6 the context, R7 the frame, R8 the stream's words, R9 is preserved. Checksums are
//! 64-bit sums on the stack.

use squall_bpf::{
    Alu, Asm, Cond, Reg,
    Reg::*,
    Size::{self, U8, U16, U32, U64},
    helper, xdp_md,
};
use squall_units::SIGNATURE_HASH;

use super::{
    HEAD, Maps, Stream, Tables, UnsupportedStream,
    layout::*,
    pace::{Ends, LEN, NOW_NS, SCRATCH, SUMS},
};
use crate::{
    Law,
    build::{Add, Place, Var},
    signature,
    sizes::Kind,
};

pub(super) fn fits(s: &Stream<'_>) -> Result<(), UnsupportedStream> {
    let sums = s.program.sums.len();
    if sums > most_sums() {
        return Err(UnsupportedStream::new(s.name, format!("{sums} checksums in a frame")));
    }
    if !s.program.crcs.is_empty() {
        return Err(UnsupportedStream::new(s.name, "a CRC that differs from frame to frame"));
    }
    for var in &s.program.vars {
        if matches!(var.law, Law::RandomWide { .. }) {
            return Err(UnsupportedStream::new(s.name, "random values of more than 64 bits"));
        }
        if matches!(var.law, Law::Supplied { .. }) {
            return Err(UnsupportedStream::new(s.name, "addresses of hosts"));
        }
        if var.every == 0 {
            return Err(UnsupportedStream::new(s.name, "a field program that never advances"));
        }
    }
    Ok(())
}

/// The number of checksums that fit in the rest of the stack of 512 octets, a limit of the kernel's
/// verifier.
const fn most_sums() -> usize {
    (512 + SUMS as isize) as usize / 8
}

/// `page`: initial octets of each frame; `shared`: other streams use the same frames.
pub(super) fn write(
    a: &mut Asm,
    maps: Maps,
    ends: Ends,
    s: &Stream<'_>,
    (page, shared): (u32, bool),
    tables: &mut Tables,
) {
    let program = s.program;
    let (shortest, longest) = program.sizes().range();
    let only = program.sizes().only();
    find(a, ends, longest);
    // Restores the whole template, because another stream may have used the frame, or a signature
    // at another offset may have overwritten payload.
    let whole = shared || (program.signature.is_some() && only.is_none());
    restore(a, maps, ends, &program.template, whole, tables);
    if only != Some(page) {
        match only {
            Some(len) => a.mov(R2, len as i32),
            None => {
                length(a, maps, ends, s, tables);
                a.load(U64, R2, R10, LEN)
            }
        };
        a.alu(Alu::Sub, R2, page as i32).mov(R1, R6).call(helper::XDP_ADJUST_TAIL);
        a.jump_if(Cond::Ne, R0, 0, ends.broken);
        // Finds the frame again, because the kernel's verifier forgets the frame's bounds when its
        // length changes.
        find(a, ends, shortest);
    }
    for (i, sum) in program.sums.iter().enumerate() {
        start_sum(a, maps, ends, s, i, tables);
        debug_assert!(sum.at + 2 <= shortest as usize);
    }
    for (i, var) in program.vars.iter().enumerate() {
        let at = ((S_VARS + VAR * i) * 8) as i16;
        value(a, maps, ends, var, at, tables);
        add_value(a, var);
        place(a, var.place);
        step(a, var, at, s.share.1);
    }
    for l in &program.lengths {
        a.load(U64, R1, R10, LEN).alu(Alu::Sub, R1, l.from as i32).to_big_endian(R1, 16);
        a.store(U16, R7, l.at as i16, R1);
    }
    if let Some(stream) = program.signature {
        sign(a, ends, s, stream);
    }
    for i in 0..program.sums.len() {
        finish_sum(a, s, i);
    }
}

/// Sets R7 to the frame, and proves to the kernel's verifier that it has `len` octets, because it
/// permits no other access.
fn find(a: &mut Asm, ends: Ends, len: u32) {
    a.load(U32, R7, R6, xdp_md::DATA).load(U32, R2, R6, xdp_md::DATA_END);
    a.mov(R1, R7).add(R1, len as i32).jump_if(Cond::Gt, R1, R2, ends.broken);
}

/// Restores the template or its head.
fn restore(a: &mut Asm, maps: Maps, ends: Ends, template: &[u8], whole: bool, tables: &mut Tables) {
    if whole && template.len() > HEAD {
        let at = tables.add(template);
        a.mov(R1, R6).mov(R2, 0).load_map_value(R3, maps.tables, at).mov(R4, template.len() as i32);
        a.call(helper::XDP_STORE_BYTES).jump_if(Cond::Ne, R0, 0, ends.broken);
        return find(a, ends, template.len() as u32);
    }
    let head = &template[..template.len().min(HEAD)];
    let mut at = 0;
    while at < head.len() {
        let (size, octets) = match head.len() - at {
            8.. => (U64, 8),
            4.. => (U32, 4),
            2.. => (U16, 2),
            _ => (U8, 1),
        };
        let mut word = [0; 8];
        word[..octets].copy_from_slice(&head[at..at + octets]);
        a.mov64(R1, u64::from_ne_bytes(word)).store(size, R7, at as i16, R1);
        at += octets;
    }
}

/// Sets [`LEN`] to the frame's length.
fn length(a: &mut Asm, maps: Maps, ends: Ends, s: &Stream<'_>, tables: &mut Tables) {
    let index = (S_NEXT * 8) as i16;
    match &s.program.sizes().0 {
        Kind::Fixed(_) => unreachable!("one length needs no choice"),
        Kind::List(sizes) => {
            let place = (S_SIZE * 8) as i16;
            let table = tables.add_words(sizes.iter().map(|&len| len.into()));
            a.load(U64, R1, R8, place).mov(R4, R1);
            look_up(a, maps, ends, table, sizes.len() as u64, 8);
            a.load(U64, R1, R1, 0).store(U64, R10, LEN, R1).mov(R1, R4);
            wrap(a, s.share.1, sizes.len() as u64);
            a.store(U64, R8, place, R1);
        }
        Kind::Uniform { min, count, seed } => {
            a.load(U64, R1, R8, index);
            mix(a, *seed);
            below(a, *count);
            a.add(R1, *min as i32).store(U64, R10, LEN, R1);
        }
        Kind::Drawn { sizes, alias, seed } => {
            a.load(U64, R1, R8, index);
            mix(a, *seed);
            let values: Vec<u64> = sizes.iter().map(|&len| len.into()).collect();
            draw_cell(a, maps, ends, alias.cells(), &values, tables);
            a.store(U64, R10, LEN, R1);
        }
    }
}

/// Replaces index R1 by the address of that entry in a table with `count` entries of `octets`
/// octets. Uses R2, R3.
fn look_up(a: &mut Asm, maps: Maps, ends: Ends, table: u32, count: u64, octets: i32) {
    a.mov64(R2, count).jump_if(Cond::Ge, R1, R2, ends.broken);
    a.mul(R1, octets).load_map_value(R2, maps.tables, table).add(R1, R2);
}

fn start_sum(a: &mut Asm, maps: Maps, ends: Ends, s: &Stream<'_>, i: usize, tables: &mut Tables) {
    let sum = &s.program.sums[i];
    let to = sum_at(i);
    if let Some(len) = s.program.sizes().only() {
        a.mov64(R1, sum.start(len).into()).store(U64, R10, to, R1);
        return;
    }
    if sum.tail.is_empty() {
        a.mov(R4, 0);
    } else {
        let table = tables.add(&sum.tail.iter().flat_map(|t| t.to_ne_bytes()).collect::<Vec<_>>());
        a.load(U64, R1, R10, LEN).alu(Alu::Sub, R1, sum.tail_from as i32);
        look_up(a, maps, ends, table, sum.tail.len() as u64, 2);
        a.load(U16, R4, R1, 0);
    }
    a.load(U64, R1, R10, LEN)
        .mov64(R2, sum.per_octet.into())
        .mul(R1, R2)
        .mov64(R2, sum.base.into())
        .add(R1, R2);
    a.add(R1, R4).store(U64, R10, to, R1);
}

fn sum_at(i: usize) -> i16 {
    SUMS - 8 * i as i16
}

/// Sets R1 to the variable's value; for a wide one, R1 to the upper and R2 to the lower half.
fn value(a: &mut Asm, maps: Maps, ends: Ends, var: &Var, at: i16, tables: &mut Tables) {
    let wide = matches!(var.place, Place::Wide { .. });
    a.load(U64, R1, R8, at);
    match &var.law {
        Law::Step { first, step, .. } if wide => {
            a.store(U64, R10, SCRATCH, R1).mov64(R2, *step as u64);
            multiply_high(a);
            a.load(U64, R2, R10, SCRATCH).mov64(R3, (*step >> 64) as u64).mul(R3, R2).add(R1, R3);
            a.mov64(R3, *step as u64).mul(R2, R3);
            add_wide(a, *first);
        }
        Law::Step { first, step, .. } => {
            if *step as u64 != 1 {
                a.mov64(R2, *step as u64).mul(R1, R2);
            }
            a.mov64(R2, *first as u64).add(R1, R2);
        }
        Law::List { values, .. } if wide => {
            let table = tables.add_words(values.iter().flat_map(|&v| [(v >> 64) as u64, v as u64]));
            look_up(a, maps, ends, table, values.len() as u64, 16);
            a.load(U64, R2, R1, 8).load(U64, R1, R1, 0);
        }
        Law::List { values, .. } => {
            let table = tables.add_words(values.iter().map(|&v| v as u64));
            look_up(a, maps, ends, table, values.len() as u64, 8);
            a.load(U64, R1, R1, 0);
        }
        Law::Random { min, count, seed, .. } => {
            draw(a, *seed);
            below(a, *count);
            if wide {
                a.mov(R2, R1).mov(R1, 0);
                add_wide(a, *min);
            } else {
                a.mov64(R2, *min as u64).add(R1, R2);
            }
        }
        Law::Weighted { values, alias, seed } => {
            mix(a, *seed);
            if wide {
                let indices: Vec<u64> = (0..values.len() as u64).collect();
                draw_cell(a, maps, ends, alias.cells(), &indices, tables);
                let table =
                    tables.add_words(values.iter().flat_map(|&v| [(v >> 64) as u64, v as u64]));
                look_up(a, maps, ends, table, values.len() as u64, 16);
                a.load(U64, R2, R1, 8).load(U64, R1, R1, 0);
            } else {
                let values: Vec<u64> = values.iter().map(|&v| v as u64).collect();
                draw_cell(a, maps, ends, alias.cells(), &values, tables);
            }
        }
        Law::RandomWide { .. } | Law::Supplied { .. } => unreachable!("refused"),
    }
}

/// Adds to the 128 bits in R1 and R2.
fn add_wide(a: &mut Asm, number: u128) {
    let no_carry = a.label();
    a.mov64(R3, number as u64).add(R2, R3).mov64(R4, (number >> 64) as u64).add(R1, R4);
    a.jump_if(Cond::Ge, R2, R3, no_carry).add(R1, 1).bind(no_carry);
}

/// Advances the law's position at `at`, and the counter next to it if the variable advances once in
/// several frames.
fn step(a: &mut Asm, var: &Var, at: i16, by: u64) {
    let period = match &var.law {
        Law::Step { count: 0, .. } | Law::Weighted { .. } => 0,
        law => law.period().unwrap_or(0),
    };
    a.load(U64, R1, R8, at);
    if var.every == 1 {
        wrap(a, by, period);
        a.store(U64, R8, at, R1);
        return;
    }
    let same = a.label();
    let (each, rest) = (by / var.every, by % var.every);
    if each > 0 {
        wrap(a, each, period);
    }
    a.load(U64, R4, R8, at + 8).mov64(R2, rest).add(R4, R2).mov64(R2, var.every);
    a.jump_if(Cond::Lt, R4, R2, same).alu(Alu::Sub, R4, R2);
    wrap(a, 1, period);
    a.bind(same).store(U64, R8, at + 8, R4).store(U64, R8, at, R1);
}

/// Replaces R1, below `count`, by `(R1 + by) mod count`; `count` 0 means 2^64. Uses R2, R3.
fn wrap(a: &mut Asm, by: u64, count: u64) {
    if count == 0 {
        a.mov64(R2, by).add(R1, R2);
        return;
    }
    let (over, done) = (a.label(), a.label());
    let by = by % count;
    a.mov64(R2, by).mov64(R3, count).add(R1, R2);
    if count >> 63 != 0 {
        a.jump_if(Cond::Lt, R1, R2, over);
    }
    a.jump_if(Cond::Lt, R1, R3, done).bind(over).alu(Alu::Sub, R1, R3).bind(done);
}

/// Replaces index R1 by a random number: [`squall_units::mix`]. Uses R2.
fn mix(a: &mut Asm, seed: u64) {
    a.add(R1, 1).mov64(R2, 0x9e37_79b9_7f4a_7c15).mul(R1, R2).mov64(R2, seed).add(R1, R2);
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
        a.mov(R2, R1).shift_right(R2, shift).xor(R1, R2).mov64(R2, factor).mul(R1, R2);
    }
    a.mov(R2, R1).shift_right(R2, 31).xor(R1, R2);
}

/// Replaces index R1 by a random number: `rng::draw`. Uses R0, R2 to R5.
fn draw(a: &mut Asm, seed: u64) {
    a.mov64(R2, 0xa076_1d64_78bd_642f).mul(R1, R2).mov64(R2, seed).add(R1, R2);
    a.mov64(R3, 0xe703_7ed1_a0b4_28db).mov(R2, R1).xor(R2, R3);
    a.mov(R3, R1).mul(R3, R2).store(U64, R10, SCRATCH, R3);
    multiply_high(a);
    a.load(U64, R2, R10, SCRATCH).xor(R1, R2);
}

/// Replaces random R1 by a number below `count`: [`squall_units::below`]. Uses R0, R2 to R5.
fn below(a: &mut Asm, count: u64) {
    if count == 0 {
        return;
    }
    a.mov64(R2, count);
    if count >> 32 != 0 {
        return multiply_high(a);
    }
    low_half(a, R3, R1);
    a.shift_right(R1, 32)
        .mul(R1, R2)
        .mul(R3, R2)
        .shift_right(R3, 32)
        .add(R1, R3)
        .shift_right(R1, 32);
}

/// Sets R1 to the upper half of R1 times R2. Uses R0, R3 to R5. In 32-bit parts, because eBPF has
/// no such instruction.
fn multiply_high(a: &mut Asm) {
    low_half(a, R3, R1);
    low_half(a, R4, R2);
    a.mov(R5, R3).mul(R5, R4).shift_right(R5, 32).shift_right(R1, 32).shift_right(R2, 32);
    a.mov(R0, R1).mul(R0, R4).add(R0, R5);
    low_half(a, R5, R0);
    a.shift_right(R0, 32)
        .mul(R3, R2)
        .add(R3, R5)
        .shift_right(R3, 32)
        .mul(R1, R2)
        .add(R1, R0)
        .add(R1, R3);
}

fn low_half(a: &mut Asm, dst: Reg, src: Reg) {
    a.alu32(Alu::Mov, dst, src);
}

/// Replaces random R1 by one of `values`, chosen as in [`crate::rng::Alias::draw`].
fn draw_cell(
    a: &mut Asm,
    maps: Maps,
    ends: Ends,
    cells: &[(u32, u32)],
    values: &[u64],
    tables: &mut Tables,
) {
    let cell = |(i, &(stay, other)): (usize, &(u32, u32))| {
        // A probability of 2^32 - 1 means certainty, and every draw is below 2^32.
        let stay = if stay == u32::MAX { 1 << 32 } else { u64::from(stay) };
        [stay, values[i], values[other as usize]]
    };
    let table = tables.add_words(cells.iter().enumerate().flat_map(cell));
    let (stays, done) = (a.label(), a.label());
    a.store(U64, R10, SCRATCH, R1);
    below(a, cells.len() as u64);
    look_up(a, maps, ends, table, cells.len() as u64, 24);
    a.load(U32, R2, R10, SCRATCH).load(U64, R3, R1, 0).jump_if(Cond::Lt, R2, R3, stays);
    a.load(U64, R1, R1, 16).jump(done).bind(stays).load(U64, R1, R1, 8).bind(done);
}

/// Adds the value in R1 (and R2) to the checksums that cover it. Uses R3 to R5.
fn add_value(a: &mut Asm, var: &Var) {
    if var.adds.is_empty() {
        return;
    }
    if matches!(var.place, Place::Wide { .. }) {
        halves(a);
    } else if var.small {
        low_half(a, R3, R1);
    } else {
        low_half(a, R3, R1);
        a.mov(R4, R1).shift_right(R4, 32).add(R3, R4);
    }
    var.adds.iter().for_each(|add| add_sum(a, *add));
}

/// Sets R3 to the sum of the four 32-bit words of R1 and R2. Uses R4.
fn halves(a: &mut Asm) {
    low_half(a, R3, R1);
    a.mov(R4, R1).shift_right(R4, 32).add(R3, R4);
    low_half(a, R4, R2);
    a.add(R3, R4).mov(R4, R2).shift_right(R4, 32).add(R3, R4);
}

/// As [`halves`], for a signature without its last `uncovered` octets, 1 to 15. Uses R5 too.
fn covered_halves(a: &mut Asm, uncovered: usize) {
    let cut = |a: &mut Asm, octets: usize| match octets * 8 {
        0 => {}
        64 => _ = a.mov(R5, 0),
        bits => _ = a.shift_right(R5, bits as i32).shift_left(R5, bits as i32),
    };
    a.mov(R5, R1);
    cut(a, uncovered.saturating_sub(8));
    low_half(a, R3, R5);
    a.shift_right(R5, 32).add(R3, R5).mov(R5, R2);
    cut(a, uncovered.min(8));
    low_half(a, R4, R5);
    a.add(R3, R4).shift_right(R5, 32).add(R3, R5);
}

/// Adds R3, of at most 34 bits, to a checksum. Uses R4, R5.
fn add_sum(a: &mut Asm, Add { sum, shift }: Add) {
    a.load(U64, R4, R10, sum_at(sum)).mov(R5, R3);
    if shift > 0 {
        a.shift_left(R5, shift as i32);
    }
    a.add(R4, R5).store(U64, R10, sum_at(sum), R4);
}

/// Writes the value in R1 (and R2). Uses R3, R4.
fn place(a: &mut Asm, place: Place) {
    let at = |offset: usize| offset as i16;
    match place {
        Place::Octets1(o) => {
            a.store(U8, R7, at(o), R1);
        }
        Place::Octets2(o) => whole(a, o, U16, 16),
        Place::Octets4(o) => whole(a, o, U32, 32),
        Place::Octets8(o) => whole(a, o, U64, 64),
        Place::Octets6(o) => {
            a.shift_left(R1, 16).to_big_endian(R1, 64).store(U32, R7, at(o), R1);
            a.shift_right(R1, 32).store(U16, R7, at(o + 4), R1);
        }
        Place::Bits { offset, octets, shift, mask } => {
            a.shift_left(R1, shift as i32);
            for i in 0..octets {
                let up = 8 * (octets - 1 - i);
                let own = (mask >> up) as u8;
                if own == 0 {
                    continue;
                }
                a.mov(R3, R1).shift_right(R3, up as i32);
                if own != 0xff {
                    a.and(R3, i32::from(own))
                        .load(U8, R4, R7, at(offset + i))
                        .and(R4, i32::from(!own));
                    a.alu(Alu::Or, R3, R4);
                }
                a.store(U8, R7, at(offset + i), R3);
            }
        }
        Place::Wide { offset, octets } => {
            a.to_big_endian(R2, 64).store(U64, R7, at(offset + octets - 8), R2);
            for i in (0..octets - 8).rev() {
                a.store(U8, R7, at(offset + i), R1).shift_right(R1, 8);
            }
        }
    }
}

fn whole(a: &mut Asm, offset: usize, size: Size, bits: i32) {
    a.to_big_endian(R1, bits).store(size, R7, offset as i16, R1);
}

/// Writes the signature at the frame's end: [`signature::Signature::halves`].
fn sign(a: &mut Asm, ends: Ends, s: &Stream<'_>, stream: u16) {
    // R1: the upper half; R2: the lower.
    a.load(U64, R3, R8, (S_NEXT * 8) as i16);
    low_half(a, R1, R3);
    a.shift_right(R1, 16).mov(R4, i32::from(stream)).shift_left(R4, 16).alu(Alu::Or, R1, R4);
    a.load(U64, R2, R10, NOW_NS).shift_left(R2, 16).shift_right(R2, 16);
    a.shift_left(R3, 48).alu(Alu::Or, R2, R3);
    let [of_low, constant, of_all] = SIGNATURE_HASH;
    a.mov64(R3, of_low).mul(R3, R2).xor(R3, R1).mov64(R4, constant).xor(R3, R4);
    a.mov(R4, R3).shift_right(R4, 32).xor(R3, R4).mov64(R4, of_all).mul(R3, R4);
    let key = i32::from(s.program.key);
    a.shift_right(R3, 32).xor(R3, key).shift_left(R3, 32).alu(Alu::Or, R1, R3);
    halves(a);
    // Sums that cover only a part come last, because they need a different R3.
    let covering = |all: bool| {
        s.program
            .sums
            .iter()
            .enumerate()
            .filter(move |(_, sum)| sum.signed && (sum.uncovered == 0) == all)
    };
    for (i, sum) in covering(true).chain(covering(false)) {
        if sum.uncovered > 0 {
            covered_halves(a, sum.uncovered);
        }
        match s.program.sizes().only() {
            Some(len) => {
                let shift = ((len as usize - signature::LEN - sum.from) & 1) * 8;
                add_sum(a, Add { sum: i, shift: shift as u32 });
            }
            None => {
                a.load(U64, R5, R10, LEN)
                    .alu(Alu::Sub, R5, (signature::LEN + sum.from) as i32)
                    .and(R5, 1);
                a.shift_left(R5, 3).mov(R4, R3).alu(Alu::Lsh, R4, R5);
                a.load(U64, R5, R10, sum_at(i)).add(R5, R4).store(U64, R10, sum_at(i), R5);
            }
        }
    }
    a.to_big_endian(R1, 64).to_big_endian(R2, 64);
    match s.program.sizes().only() {
        Some(len) => {
            let at = len as i16 - signature::LEN as i16;
            a.store(U64, R7, at, R1).store(U64, R7, at + 8, R2);
        }
        None => {
            let most = s.program.max_len() as i32 - signature::LEN as i32;
            a.load(U64, R3, R10, LEN).alu(Alu::Sub, R3, signature::LEN as i32);
            a.jump_if(Cond::Gt, R3, most, ends.broken)
                .add(R3, R7)
                .mov(R4, R3)
                .add(R4, signature::LEN as i32);
            a.load(U32, R5, R6, xdp_md::DATA_END).jump_if(Cond::Gt, R4, R5, ends.broken);
            a.store(U64, R3, 0, R1).store(U64, R3, 8, R2);
        }
    }
}

fn finish_sum(a: &mut Asm, s: &Stream<'_>, i: usize) {
    let sum = &s.program.sums[i];
    a.load(U64, R1, R10, sum_at(i));
    low_half(a, R2, R1);
    a.shift_right(R1, 32).add(R1, R2);
    for _ in 0..3 {
        a.mov(R2, R1).and(R2, 0xffff).shift_right(R1, 16).add(R1, R2);
    }
    a.xor(R1, 0xffff);
    if sum.udp {
        let some = a.label();
        a.jump_if(Cond::Ne, R1, 0, some).mov(R1, 0xffff).bind(some);
    }
    a.mov(R3, R1);
    sum.adds.iter().for_each(|add| add_sum(a, *add));
    a.to_big_endian(R1, 16).store(U16, R7, sum.at as i16, R1);
}
