//! What became of the frames: programs for the kernel's tracepoints, which see what the driver took and what it did not.
//!
//! A frame is under way from the program's redirect until the driver has it or nobody does. Meanwhile the CPU lets no
//! other network work in, so whatever passes a device map on that CPU then is ours, in the order in which it was made.

use squall_bpf::{Alu, Asm, Cond, Object, Reg::*, Size::U64, helper};

use super::{Maps, layout::*, pace::word};

/// Frames that the kernel hands to a driver at once are 16.
const MOST_IN_BULK: i32 = 64;

// Of the callback's context on the stack: frames that the driver took, and when.
const SENT: i16 = -16;
const NOW: i16 = -8;

pub(super) fn all(layout: &Layout, mut maps: impl FnMut(&mut Asm) -> Maps) -> Vec<(&'static str, Object)> {
    let mut driver = Asm::new("squall_taken");
    let m = maps(&mut driver);
    taken(&mut driver, m, layout);
    let mut redirect = Asm::new("squall_refused");
    let m = maps(&mut redirect);
    refused(&mut redirect, m, layout);
    vec![("xdp_devmap_xmit", driver.finish()), ("xdp_redirect_err", redirect.finish())]
}

/// `xdp_devmap_xmit(from, to, sent, drops, err)`.
fn taken(a: &mut Asm, maps: Maps, layout: &Layout) {
    let (out, each, no_error, none_left) = (a.label(), a.label(), a.label(), a.label());
    a.mov(R6, R1).load_map_value(R8, maps.memory, 0);
    ours(a, out);
    a.load(U64, R7, R6, 24).load(U64, R9, R6, 16);
    // Both are ints.
    a.alu32(Alu::Mov, R7, R7).alu32(Alu::Mov, R9, R9);
    a.store(U64, R10, SENT, R9).add(R7, R9).jump_if(Cond::Gt, R7, MOST_IN_BULK, out);
    a.load(U64, R1, R6, 32).alu32(Alu::Mov, R1, R1).jump_if(Cond::Eq, R1, 0, no_error);
    a.store(U64, R8, word(DRIVER_ERROR), R1).bind(no_error);
    a.call(helper::KTIME_GET_NS).store(U64, R10, NOW, R0);
    a.jump_if(Cond::Eq, R9, 0, none_left).store(U64, R8, word(LAST_LEFT), R0).bind(none_left);
    a.mov(R1, R7).load_function(R2, each).mov(R3, R10).add(R3, i32::from(SENT)).mov(R4, 0).call(helper::LOOP);
    a.load(U64, R1, R8, word(TAKEN)).add(R1, R7).store(U64, R8, word(TAKEN), R1);
    a.load(U64, R1, R8, word(PENDING)).alu(Alu::Sub, R1, R7).store(U64, R8, word(PENDING), R1);
    a.bind(out).mov(R0, 0).exit();
    a.function("each", each);
    credit(a, maps, layout);
}

/// `xdp_redirect_err(dev, prog, target, err, ...)`: the frame made last goes nowhere.
fn refused(a: &mut Asm, maps: Maps, layout: &Layout) {
    let out = a.label();
    a.mov(R6, R1).load_map_value(R8, maps.memory, 0);
    ours(a, out);
    a.load(U64, R1, R6, 24).alu32(Alu::Mov, R1, R1).store(U64, R8, word(REDIRECT_ERROR), R1);
    a.load(U64, R1, R8, word(PENDING)).alu(Alu::Sub, R1, 1).store(U64, R8, word(PENDING), R1);
    a.load(U64, R2, R8, word(GENERATED)).alu(Alu::Sub, R2, 1).store(U64, R8, word(GENERATED), R2);
    account(a, layout, out);
    count(a, A_REFUSED, 1);
    a.bind(out).mov(R0, 0).exit();
}

/// Goes on if frames of ours are under way on this CPU.
fn ours(a: &mut Asm, out: squall_bpf::Label) {
    a.load(U64, R1, R8, word(PENDING)).jump_if(Cond::Eq, R1, 0, out);
    a.call(helper::GET_SMP_PROCESSOR_ID).load(U64, R1, R8, word(CPU)).jump_if32(Cond::Ne, R0, R1, out);
}

/// Of frame R2 of the ring: R5 becomes the address of its stream's account (less the words before), R4 its length, R3 its
/// stream, R2 its due instant.
fn account(a: &mut Asm, layout: &Layout, out: squall_bpf::Label) {
    a.and(R2, RING_FRAMES as i32 - 1).shift_left(R2, 4).mov(R1, R8).add(R1, R2);
    a.load(U64, R4, R1, word(RING)).load(U64, R2, R1, word(RING + 1)).mov(R3, R4).and(R3, 0xff).shift_right(R4, 8);
    a.jump_if(Cond::Ge, R3, layout.streams() as i32, out);
    a.mov(R1, R3).mul(R1, (ACCOUNT * 8) as i32).mov(R5, R8).add(R5, R1);
}

/// Adds to a word of the account at R5. Uses R1.
fn count(a: &mut Asm, index: usize, n: impl Into<squall_bpf::Source>) {
    a.load(U64, R1, R5, word(ACCOUNTS + index)).add(R1, n).store(U64, R5, word(ACCOUNTS + index), R1);
}

/// The callback, for frame `index` (R1) of those handed over.
fn credit(a: &mut Asm, maps: Maps, layout: &Layout) {
    let (out, dropped, not_first, no_least) = (a.label(), a.label(), a.label(), a.label());
    let (no_most, early) = (a.label(), a.label());
    a.mov(R6, R1).mov(R7, R2).load_map_value(R8, maps.memory, 0);
    a.load(U64, R2, R8, word(TAKEN)).add(R2, R6);
    account(a, layout, out);
    a.load(U64, R1, R7, 0).jump_if(Cond::Ge, R6, R1, dropped);
    a.load(U64, R0, R7, NOW - SENT);
    count(a, A_OCTETS, R4);
    a.load(U64, R1, R5, word(ACCOUNTS + A_TAKEN)).jump_if(Cond::Ne, R1, 0, not_first);
    a.store(U64, R5, word(ACCOUNTS + A_FIRST), R0).bind(not_first);
    a.add(R1, 1).store(U64, R5, word(ACCOUNTS + A_TAKEN), R1).store(U64, R5, word(ACCOUNTS + A_LAST), R0);
    // Never was due, left as soon as it could.
    a.jump_if(Cond::Eq, R2, -1, out);
    // R0 becomes the lateness in nanoseconds.
    a.load(U64, R1, R8, word(START)).alu(Alu::Sub, R0, R1).mul(R0, 1000);
    a.jump_if(Cond::Ge, R0, R2, early).mov(R0, R2).bind(early).alu(Alu::Sub, R0, R2).alu(Alu::Div, R0, 1000);
    count(a, A_LATE_SUM, R0);
    a.load(U64, R1, R5, word(ACCOUNTS + A_LATE_MAX)).jump_if(Cond::Ge, R1, R0, no_most);
    a.store(U64, R5, word(ACCOUNTS + A_LATE_MAX), R0).bind(no_most);
    a.mov(R2, -1).alu(Alu::Sub, R2, R0).load(U64, R1, R5, word(ACCOUNTS + A_LATE_MIN));
    a.jump_if(Cond::Ge, R1, R2, no_least).store(U64, R5, word(ACCOUNTS + A_LATE_MIN), R2).bind(no_least);
    bin(a);
    a.jump_if(Cond::Ge, R0, BINS as i32, out);
    a.mul(R3, (BINS * 8) as i32).shift_left(R0, 3).load_map_value(R1, maps.memory, 8 * layout.histogram() as u32);
    a.add(R1, R3).add(R1, R0).load(U64, R2, R1, 0).add(R2, 1).store(U64, R1, 0, R2);
    a.mov(R0, 0).exit();
    a.bind(dropped);
    count(a, A_DROPPED, 1);
    a.bind(out).mov(R0, 0).exit();
}

/// R0, a lateness, becomes its bin: the octave is the place of the highest bit, 128 bins are in each. Uses R1, R2, R4.
fn bin(a: &mut Asm) {
    let (small, in_range) = (a.label(), a.label());
    a.mov64(R1, u32::MAX.into()).jump_if(Cond::Le, R0, R1, in_range).mov(R0, R1).bind(in_range);
    a.jump_if(Cond::Lt, R0, 128, small);
    // R1: the highest bit's place, by halves and without a branch; R2 what is left.
    a.mov(R2, R0).mov(R1, 0);
    for bits in [16, 8, 4, 2, 1] {
        // 1 if R2 is 2^bits and more.
        a.mov64(R4, (1 << bits) - 1).alu(Alu::Sub, R4, R2).shift_right(R4, 63).mul(R4, bits);
        a.add(R1, R4).alu(Alu::Rsh, R2, R4);
    }
    // Octave k = R1 - 6; the bin in it is the value shifted right by k - 1, less 128.
    a.alu(Alu::Sub, R1, 6).mov(R2, R1).alu(Alu::Sub, R2, 1).alu(Alu::Rsh, R0, R2).alu(Alu::Sub, R0, 128);
    a.shift_left(R1, 7).add(R0, R1).bind(small);
}
