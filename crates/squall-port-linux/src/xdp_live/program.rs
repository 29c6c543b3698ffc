//! The program that takes frames from a ring in shared memory, one a run, waits until each is due, and redirects it.
//!
//! Registers: R6 the context, R7 the number of the frame, R8 shared memory, R9 its slot.

use squall_bpf::{
    Alu, Asm, Cond, Label, MapId, MapKind, MapSpec, Object,
    Reg::*,
    Size::{U32, U64},
    helper,
    witness::{self, AT, TOOK, Words, word},
    xdp_action, xdp_md,
};

// Words of the memory that is shared. Those that our side writes are two cache lines away from those of the program.
/// Frames put into the ring.
pub const HEAD: usize = 0;
/// Not 0: take nothing, and say so in `SEEN`.
pub const ATTENTION: usize = 1;
/// Frames taken out of the ring.
pub const TAIL: usize = 16;
pub const SEEN: usize = 17;
/// The device map is empty: the interface is gone.
pub const GONE: usize = 18;
/// What cannot be, as [`TAIL`] plus 1.
pub const BROKEN: usize = 19;
/// Frames that the driver had no room for, and that were offered again.
pub const RETRIED: usize = 20;
/// Since when it has none, nanoseconds; 0: it has.
const FULL_SINCE: usize = 21;
/// The last reading of the clock.
const NOW: usize = 22;
pub const UNDER_WAY: Words =
    Words { cpu: 23, pending: 24, generated: 25, taken: 26, driver_error: 27, redirect_error: 28, last_left: 29 };
/// Numbers of the frames under way: a power of two, and more than a batch.
const RING: usize = 32;
const RING_FRAMES: usize = 64;
/// Of each slot what became of its frame: one of the words below, or the instant at which it left.
pub const RESULTS: usize = RING + RING_FRAMES;

/// Nothing yet.
pub const WAITING: u64 = 0;
/// The driver had no room for so long that it is no matter of waiting.
pub const DROPPED: u64 = 1;
/// The interface takes no such frame.
pub const REFUSED: u64 = 2;
/// There is no frame in the slot.
pub const SKIPPED: u64 = 3;

/// Frames in the ring: what the fastest takes in half a millisecond; a power of two.
pub const SLOTS: usize = 1024;
/// Words of each slot's description: length and due instant.
pub const DESCRIPTION: usize = 2;

/// Frames shorter than a header are refused by the kernel.
pub const SHORTEST: u32 = 14;

/// Nanoseconds. A wait that is longer is cut into parts, so that other work of this CPU is done; the last begins so far
/// ahead that the way through the kernel and back does not make the frame late.
const NEAR: i32 = 20_000;
const PART: i32 = 10_000;
/// No wait is longer while frames are under way: they leave when the kernel has run the program as often as it hands
/// frames over at once.
const HELD: i32 = 3_000;
/// Looks at the clock in one wait, at most: far more than a part takes.
const LOOKS: i32 = 10_000;
/// Looks at the ring for a new frame: some microseconds.
const PEEKS: i32 = 1000;
/// Nanoseconds. A driver that has no room for so long takes no more.
const PATIENCE: i32 = 10_000_000;

// Stack. The first two are the callback's: what time it is, and what it waits for.
const WAITED: i16 = -8;
const TARGET: i16 = -16;
const DUE: i16 = -24;
const LEN: i16 = -32;

/// Number of a map in the objects.
pub const MEMORY: usize = 0;
pub const EXIT: usize = 1;

/// Where slots are, octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Of a frame, without FCS.
    pub longest: u32,
    pub stride: usize,
}

impl Layout {
    /// `longest`: the longest frame, octets without FCS.
    pub fn new(longest: u32) -> Self {
        Self { longest, stride: squall_port::stride(longest as usize) }
    }

    /// Of slot `i`, the first word of its description.
    pub const fn description(i: usize) -> usize {
        RESULTS + SLOTS + DESCRIPTION * i
    }

    /// Of slot `i`, where its frame begins, octets.
    pub fn frame(&self, i: usize) -> usize {
        Self::description(SLOTS) * 8 + i * self.stride
    }

    fn octets(&self) -> usize {
        self.frame(SLOTS)
    }
}

/// The program, and its witnesses with their tracepoints.
pub fn objects(layout: &Layout) -> (Object, Vec<(&'static str, Object)>) {
    let named = |name, write: &dyn Fn(&mut Asm, Maps)| {
        let mut a = Asm::new(name);
        let maps = Maps::declare(&mut a, layout);
        write(&mut a, maps);
        a.finish()
    };
    let driver = named("squall_taken", &|a, m| witness::driver(a, m.memory, &UNDER_WAY, |a| credit(a, m)));
    let redirect = named("squall_refused", &|a, m| {
        witness::redirect(a, m.memory, &UNDER_WAY, |a| {
            number(a);
            result(a, m);
            a.store(U64, R5, 0, REFUSED as i32);
        });
    });
    let program = named("squall_queue", &|a, m| write(a, m, layout));
    (program, vec![(witness::DRIVER, driver), (witness::REDIRECT, redirect)])
}

#[derive(Clone, Copy)]
struct Maps {
    memory: MapId,
    exit: MapId,
}

impl Maps {
    fn declare(a: &mut Asm, layout: &Layout) -> Self {
        let map = |name: &str, kind, value_octets, mmap| MapSpec {
            name: name.into(),
            kind,
            key_octets: 4,
            value_octets,
            entries: 1,
            mmap,
        };
        let memory = a.map(map("squall_ring", MapKind::Array, layout.octets() as u32, true));
        let exit = a.map(map("squall_exit", MapKind::DevMap, 4, false));
        Self { memory, exit }
    }
}

fn write(a: &mut Asm, maps: Maps, layout: &Layout) {
    let (idle, broken, skip, have) = (a.label(), a.label(), a.label(), a.label());
    let (until, peek, go, free, fits) = (a.label(), a.label(), a.label(), a.label(), a.label());
    a.mov(R6, R1).load_map_value(R8, maps.memory, 0);
    a.load(U64, R1, R8, word(ATTENTION)).jump_if(Cond::Eq, R1, 0, free).store(U64, R8, word(SEEN), R1).jump(idle);
    a.bind(free).load(U64, R7, R8, word(TAIL)).load(U64, R1, R8, word(HEAD)).jump_if(Cond::Ne, R1, R7, have);
    // What is under way leaves only when the batch of runs is over.
    a.load(U64, R1, R8, word(UNDER_WAY.pending)).jump_if(Cond::Ne, R1, 0, idle);
    a.store(U64, R10, TARGET, R7);
    a.mov(R1, PEEKS).load_function(R2, peek).mov(R3, R10).add(R3, i32::from(TARGET)).mov(R4, 0).call(helper::LOOP);
    a.load(U64, R1, R8, word(HEAD)).jump_if(Cond::Eq, R1, R7, idle);
    a.bind(have).mov(R9, R7).and(R9, SLOTS as i32 - 1);
    slot(a, maps, RESULTS, 1);
    a.load(U64, R1, R5, 0).jump_if(Cond::Ne, R1, WAITING as i32, skip);
    slot(a, maps, Layout::description(0), DESCRIPTION);
    a.load(U64, R1, R5, 0).store(U64, R10, LEN, R1).load(U64, R3, R5, 8).store(U64, R10, DUE, R3);
    wait(a, idle, until, go);

    a.bind(go).load(U64, R4, R10, LEN).jump_if(Cond::Lt, R4, SHORTEST as i32, broken);
    a.jump_if(Cond::Gt, R4, layout.longest as i32, broken);
    // Pages come back in the length that their last user left.
    a.load(U32, R2, R6, xdp_md::DATA_END).load(U32, R3, R6, xdp_md::DATA).alu(Alu::Sub, R2, R3);
    a.mov(R3, R4).alu(Alu::Sub, R3, R2).mov(R2, R3).jump_if(Cond::Eq, R2, 0, fits);
    a.mov(R1, R6).call(helper::XDP_ADJUST_TAIL).jump_if(Cond::Ne, R0, 0, broken);
    a.bind(fits).load(U64, R4, R10, LEN).jump_if(Cond::Lt, R4, SHORTEST as i32, broken);
    a.jump_if(Cond::Gt, R4, layout.longest as i32, broken);
    a.load_map_value(R3, maps.memory, layout.frame(0) as u32).mov(R2, R9).mul(R2, layout.stride as i32).add(R3, R2);
    a.mov(R1, R6).mov(R2, 0).call(helper::XDP_STORE_BYTES).jump_if(Cond::Ne, R0, 0, broken);
    a.load(U64, R1, R8, word(UNDER_WAY.generated)).and(R1, RING_FRAMES as i32 - 1).shift_left(R1, 3).mov(R2, R8);
    a.add(R2, R1).store(U64, R2, word(RING), R7).mov(R1, R7).add(R1, 1).store(U64, R8, word(TAIL), R1);
    UNDER_WAY.depart(a, maps.exit);
    a.store(U64, R8, word(TAIL), R7).store(U64, R8, word(GONE), 1).jump(idle);

    a.bind(skip).add(R7, 1).store(U64, R8, word(TAIL), R7).jump(idle);
    a.bind(broken).add(R7, 1).store(U64, R8, word(BROKEN), R7);
    a.bind(idle).mov(R0, xdp_action::DROP).exit();

    // Until the instant is there, or a frame: 1 ends the loop.
    let (again, waiting) = (a.label(), a.label());
    a.function("until", until).mov(R6, R2).call(helper::KTIME_GET_NS);
    a.store(U64, R6, WAITED - TARGET, R0).load(U64, R1, R6, 0).jump_if(Cond::Lt, R0, R1, again);
    a.mov(R0, 1).exit();
    a.bind(again).mov(R0, 0).exit();
    a.function("peek", peek).load_map_value(R1, maps.memory, 0).load(U64, R3, R1, word(HEAD)).load(U64, R4, R2, 0);
    a.mov(R0, 1).jump_if(Cond::Ne, R3, R4, waiting).load(U64, R0, R1, word(ATTENTION)).jump_if(
        Cond::Eq,
        R0,
        0,
        waiting,
    );
    a.mov(R0, 1).bind(waiting).exit();
}

/// Goes to `go` when the instant R3 (at [`DUE`], too) is there, to `idle` if that is not for long.
fn wait(a: &mut Asm, idle: Label, until: Label, go: Label) {
    let (alone, near) = (a.label(), a.label());
    // What was due when the clock was read last is due now.
    a.load(U64, R1, R8, word(NOW)).jump_if(Cond::Le, R3, R1, go);
    a.call(helper::KTIME_GET_NS).store(U64, R8, word(NOW), R0);
    a.load(U64, R3, R10, DUE).jump_if(Cond::Le, R3, R0, go);
    a.load(U64, R1, R8, word(UNDER_WAY.pending)).jump_if(Cond::Eq, R1, 0, alone);
    a.mov(R4, R0).add(R4, HELD).jump_if(Cond::Lt, R4, R3, idle);
    a.bind(alone).mov(R4, R0).add(R4, NEAR).jump_if(Cond::Ge, R4, R3, near);
    a.mov(R3, R0).add(R3, PART);
    a.bind(near).store(U64, R10, TARGET, R3).store(U64, R10, WAITED, R0);
    a.mov(R1, LOOKS).load_function(R2, until).mov(R3, R10).add(R3, i32::from(TARGET)).mov(R4, 0).call(helper::LOOP);
    a.load(U64, R0, R10, WAITED).store(U64, R8, word(NOW), R0).load(U64, R3, R10, DUE);
    a.jump_if(Cond::Gt, R3, R0, idle);
}

/// R5 becomes the address of what slot R9 has in a table at word `at`, of `words` each. Loses R2.
fn slot(a: &mut Asm, maps: Maps, at: usize, words: usize) {
    a.load_map_value(R5, maps.memory, 8 * at as u32).mov(R2, R9).mul(R2, 8 * words as i32).add(R5, R2);
}

/// R4 becomes the number of the frame that is the R2-th on its way. Loses R2.
fn number(a: &mut Asm) {
    a.and(R2, RING_FRAMES as i32 - 1).shift_left(R2, 3).mov(R1, R8).add(R1, R2).load(U64, R4, R1, word(RING));
}

/// R5 becomes the address of what became of frame number R4. Loses R3.
fn result(a: &mut Asm, maps: Maps) {
    a.mov(R3, R4).and(R3, SLOTS as i32 - 1).shift_left(R3, 3);
    a.load_map_value(R5, maps.memory, 8 * RESULTS as u32).add(R5, R3);
}

/// Of the frame that is the R2-th on its way: it has left, or is offered again with all behind it. A hand-over is no
/// larger than a batch of runs, so none of those behind it have left.
fn credit(a: &mut Asm, maps: Maps) {
    let (unsent, again, first, out) = (a.label(), a.label(), a.label(), a.label());
    number(a);
    result(a, maps);
    a.load(U64, R0, R7, AT).load(U64, R1, R7, TOOK).jump_if(Cond::Ge, R6, R1, unsent);
    a.store(U64, R5, 0, R0).store(U64, R8, word(FULL_SINCE), 0).jump(out);
    a.bind(unsent).jump_if(Cond::Ne, R6, R1, out);
    a.load(U64, R1, R8, word(FULL_SINCE)).jump_if(Cond::Eq, R1, 0, first);
    a.alu(Alu::Sub, R0, R1).jump_if(Cond::Lt, R0, PATIENCE, again);
    a.store(U64, R5, 0, DROPPED as i32).store(U64, R8, word(FULL_SINCE), 0).add(R4, 1);
    a.store(U64, R8, word(TAIL), R4).jump(out);
    a.bind(first).store(U64, R8, word(FULL_SINCE), R0);
    a.bind(again).store(U64, R8, word(TAIL), R4);
    a.load(U64, R1, R8, word(RETRIED)).add(R1, 1).store(U64, R8, word(RETRIED), R1);
    a.bind(out).mov(R0, 0);
}
