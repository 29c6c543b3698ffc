//! Outcomes of frames that a program has redirected to a device: programs for two kernel
//! tracepoints, which observe the frames that the driver accepted or refused. The redirect itself
//! does not report that.
//!
//! A frame is in flight from the program's redirect until the driver has it or it is dropped.
//! Meanwhile no other network code runs on the CPU, so all frames that pass a device map on that
//! CPU are the program's, in the order in which it made them.

use crate::{Alu, Asm, Cond, Label, MapId, Reg::*, Size::U64, helper, xdp_action};

/// A bound for bpf_loop(): the kernel passes at most 16 frames to a driver at once
/// (DEV_MAP_BULK_SIZE).
const MAX_BULK: i32 = 64;

// Offsets of the callback's context on the stack: the number of frames that the driver accepted,
// and the time.
const SENT: i16 = -16;
const NOW: i16 = -8;
/// Offsets from R7 for [`driver`]'s `each`: the number of frames that the driver accepted, and the
/// time (`CLOCK_MONOTONIC`, ns).
pub const TOOK: i16 = 0;
pub const AT: i16 = NOW - SENT;

/// Indexes, below 4096, of 64-bit words in the memory that a program and its witnesses share: the
/// value of an array with one entry, to which R8 points.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The CPU that has frames in flight, and their number. They stay on it until interrupts are
    /// enabled again.
    pub cpu: usize,
    pub pending: usize,
    /// Total of frames sent on their way, and total of frames with a known outcome. The program
    /// numbers frames by the first total, and stores each frame's outcome by that number.
    pub generated: usize,
    pub taken: usize,
    /// Error numbers of the last failed transfer to the driver, and of the last failed redirect.
    pub driver_error: usize,
    pub redirect_error: usize,
    /// When the driver last accepted a frame, in nanoseconds of the monotonic clock.
    pub last_left: usize,
}

impl Words {
    /// Sends the frame to entry 0 of the device map `exit` and ends the program. If the interface
    /// is gone, the program continues as if the frame had never been in flight. Clobbers R0 to R5.
    pub fn depart(&self, a: &mut Asm, exit: MapId) {
        let gone = a.label();
        self.add(a, self.generated, 1).add(a, self.pending, 1);
        a.call(helper::GET_SMP_PROCESSOR_ID).store(U64, R8, word(self.cpu), R0);
        a.load_map(R1, exit).mov(R2, 0).mov(R3, xdp_action::DROP).call(helper::REDIRECT_MAP);
        a.jump_if(Cond::Ne, R0, xdp_action::REDIRECT, gone).exit();
        // No tracepoint sees this frame.
        a.bind(gone);
        self.add(a, self.generated, -1).add(a, self.pending, -1);
    }

    fn add(&self, a: &mut Asm, index: usize, n: i32) -> &Self {
        a.load(U64, R1, R8, word(index)).add(R1, n).store(U64, R8, word(index), R1);
        self
    }

    /// Continues if this program has frames in flight on this CPU; otherwise jumps to `out`.
    fn continue_if_own(&self, a: &mut Asm, out: Label) {
        a.load(U64, R1, R8, word(self.pending)).jump_if(Cond::Eq, R1, 0, out);
        a.call(helper::GET_SMP_PROCESSOR_ID).load(U64, R1, R8, word(self.cpu)).jump_if32(
            Cond::Ne,
            R0,
            R1,
            out,
        );
    }
}

/// The program for [`DRIVER`]. `each` is the body of a function that is called for each frame that
/// the kernel passed to the driver in one call: R6 is the frame's index in that call, R7 as for
/// [`TOOK`], R2 the frame's number. Frames with an index below the number of accepted frames have
/// left; the others have not. The body must end with `R0 = 0`.
pub fn driver(a: &mut Asm, memory: MapId, w: &Words, each: impl FnOnce(&mut Asm)) {
    let (out, callback, no_error, none_left) = (a.label(), a.label(), a.label(), a.label());
    a.mov(R6, R1).load_map_value(R8, memory, 0);
    w.continue_if_own(a, out);
    a.load(U64, R7, R6, 24).load(U64, R9, R6, 16);
    // Both are of type int: the upper halves of the context's words are undefined.
    a.alu32(Alu::Mov, R7, R7).alu32(Alu::Mov, R9, R9);
    a.store(U64, R10, SENT, R9).add(R7, R9).jump_if(Cond::Gt, R7, MAX_BULK, out);
    a.load(U64, R1, R6, 32).alu32(Alu::Mov, R1, R1).jump_if(Cond::Eq, R1, 0, no_error);
    a.store(U64, R8, word(w.driver_error), R1).bind(no_error);
    a.call(helper::KTIME_GET_NS).store(U64, R10, NOW, R0);
    a.jump_if(Cond::Eq, R9, 0, none_left).store(U64, R8, word(w.last_left), R0).bind(none_left);
    a.mov(R1, R7)
        .load_function(R2, callback)
        .mov(R3, R10)
        .add(R3, i32::from(SENT))
        .mov(R4, 0)
        .call(helper::LOOP);
    a.load(U64, R1, R8, word(w.taken)).add(R1, R7).store(U64, R8, word(w.taken), R1);
    a.load(U64, R1, R8, word(w.pending)).alu(Alu::Sub, R1, R7).store(U64, R8, word(w.pending), R1);
    a.bind(out).mov(R0, 0).exit();
    a.function("each", callback).mov(R6, R1).mov(R7, R2).load_map_value(R8, memory, 0);
    a.load(U64, R2, R8, word(w.taken)).add(R2, R6);
    each(a);
    a.exit();
}

/// `xdp_devmap_xmit(from, to, sent, drops, err)`.
pub const DRIVER: &str = "xdp_devmap_xmit";

/// The program for [`REDIRECT`]: the most recent frame was dropped. `refuse` is the code for that
/// case, with the frame's number in R2.
pub fn redirect(a: &mut Asm, memory: MapId, w: &Words, refuse: impl FnOnce(&mut Asm)) {
    let out = a.label();
    a.mov(R6, R1).load_map_value(R8, memory, 0);
    w.continue_if_own(a, out);
    a.load(U64, R1, R6, 24).alu32(Alu::Mov, R1, R1).store(U64, R8, word(w.redirect_error), R1);
    w.add(a, w.pending, -1).add(a, w.generated, -1);
    a.mov(R2, R1);
    refuse(a);
    a.bind(out).mov(R0, 0).exit();
}

/// `xdp_redirect_err(dev, prog, target, err, ...)`.
pub const REDIRECT: &str = "xdp_redirect_err";

/// Offset of word `index`.
pub fn word(index: usize) -> i16 {
    i16::try_from(index * 8).expect("a word near the memory's beginning")
}
