//! Accounting for frames: the counters that [`squall_bpf::tracepoints`] keeps per stream.

use squall_bpf::{
    Alu, Asm, Cond, Object,
    Reg::*,
    Size::U64,
    tracepoints::{self, AT, TOOK, word},
};

use super::{Maps, layout::*};

pub(super) fn all(
    layout: &Layout,
    mut maps: impl FnMut(&mut Asm) -> Maps,
) -> Vec<(&'static str, Object)> {
    let mut driver = Asm::new("squall_taken");
    let m = maps(&mut driver);
    tracepoints::driver(&mut driver, m.memory, &UNDER_WAY, |a| credit(a, m, layout));
    let mut redirect = Asm::new("squall_refused");
    let m = maps(&mut redirect);
    tracepoints::redirect(&mut redirect, m.memory, &UNDER_WAY, |a| {
        let out = a.label();
        account(a, layout, out);
        count(a, A_REFUSED, 1);
        a.bind(out);
    });
    vec![(tracepoints::DRIVER, driver.finish()), (tracepoints::REDIRECT, redirect.finish())]
}

/// For frame R2 of the ring: sets R5 to the address of its stream's account (minus the words before
/// it), R4 to its length, R3 to its stream, R2 to its due time.
fn account(a: &mut Asm, layout: &Layout, out: squall_bpf::Label) {
    a.and(R2, RING_FRAMES as i32 - 1).shift_left(R2, 4).mov(R1, R8).add(R1, R2);
    a.load(U64, R4, R1, word(RING))
        .load(U64, R2, R1, word(RING + 1))
        .mov(R3, R4)
        .and(R3, 0xff)
        .shift_right(R4, 8);
    a.jump_if(Cond::Ge, R3, layout.streams() as i32, out);
    a.mov(R1, R3).mul(R1, (ACCOUNT * 8) as i32).mov(R5, R8).add(R5, R1);
}

/// Adds to a word of the account at R5. Uses R1.
fn count(a: &mut Asm, index: usize, n: impl Into<squall_bpf::Source>) {
    a.load(U64, R1, R5, word(ACCOUNTS + index)).add(R1, n).store(
        U64,
        R5,
        word(ACCOUNTS + index),
        R1,
    );
}

/// Counts frame R2, the R6-th frame given to the driver.
fn credit(a: &mut Asm, maps: Maps, layout: &Layout) {
    let (out, dropped, not_first, no_least) = (a.label(), a.label(), a.label(), a.label());
    let (no_most, early) = (a.label(), a.label());
    account(a, layout, out);
    a.load(U64, R1, R7, TOOK).jump_if(Cond::Ge, R6, R1, dropped);
    a.load(U64, R0, R7, AT);
    count(a, A_OCTETS, R4);
    a.load(U64, R1, R5, word(ACCOUNTS + A_TAKEN)).jump_if(Cond::Ne, R1, 0, not_first);
    a.store(U64, R5, word(ACCOUNTS + A_FIRST), R0).bind(not_first);
    a.add(R1, 1).store(U64, R5, word(ACCOUNTS + A_TAKEN), R1).store(
        U64,
        R5,
        word(ACCOUNTS + A_LAST),
        R0,
    );
    // No due time: the frame left as soon as it could.
    a.jump_if(Cond::Eq, R2, -1, out);
    // R0: the lateness in nanoseconds.
    a.load(U64, R1, R8, word(START)).alu(Alu::Sub, R0, R1).mul(R0, 1000);
    a.jump_if(Cond::Ge, R0, R2, early).mov(R0, R2).bind(early).alu(Alu::Sub, R0, R2).alu(
        Alu::Div,
        R0,
        1000,
    );
    count(a, A_LATE_SUM, R0);
    a.load(U64, R1, R5, word(ACCOUNTS + A_LATE_MAX)).jump_if(Cond::Ge, R1, R0, no_most);
    a.store(U64, R5, word(ACCOUNTS + A_LATE_MAX), R0).bind(no_most);
    a.mov(R2, -1).alu(Alu::Sub, R2, R0).load(U64, R1, R5, word(ACCOUNTS + A_LATE_MIN));
    a.jump_if(Cond::Ge, R1, R2, no_least)
        .store(U64, R5, word(ACCOUNTS + A_LATE_MIN), R2)
        .bind(no_least);
    bin(a);
    a.jump_if(Cond::Ge, R0, BINS as i32, out);
    a.mul(R3, (BINS * 8) as i32).shift_left(R0, 3).load_map_value(
        R1,
        maps.memory,
        8 * layout.histogram() as u32,
    );
    a.add(R1, R3).add(R1, R0).load(U64, R2, R1, 0).add(R2, 1).store(U64, R1, 0, R2);
    a.mov(R0, 0).exit();
    a.bind(dropped);
    count(a, A_DROPPED, 1);
    a.bind(out).mov(R0, 0);
}

/// Replaces a lateness in R0 by its bin: the octave is the position of the highest bit, and each
/// has 128 bins. Uses R1, R2, R4.
fn bin(a: &mut Asm) {
    let (small, in_range) = (a.label(), a.label());
    a.mov64(R1, u32::MAX.into()).jump_if(Cond::Le, R0, R1, in_range).mov(R0, R1).bind(in_range);
    a.jump_if(Cond::Lt, R0, 128, small);
    // R1: the position of the highest bit, by binary search without branches, which the kernel's
    // verifier would have to follow; R2: the rest.
    a.mov(R2, R0).mov(R1, 0);
    for bits in [16, 8, 4, 2, 1] {
        // R4: 1 if R2 is at least 2^bits, else 0.
        a.mov64(R4, (1 << bits) - 1).alu(Alu::Sub, R4, R2).shift_right(R4, 63).mul(R4, bits);
        a.add(R1, R4).alu(Alu::Rsh, R2, R4);
    }
    // Octave k = R1 - 6; the bin in it is the value shifted right by k - 1, less 128.
    a.alu(Alu::Sub, R1, 6).mov(R2, R1).alu(Alu::Sub, R2, 1).alu(Alu::Rsh, R0, R2).alu(
        Alu::Sub,
        R0,
        128,
    );
    a.shift_left(R1, 7).add(R0, R1).bind(small);
}
