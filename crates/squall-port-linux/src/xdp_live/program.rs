//! The program that takes frames from a ring in shared memory, one per run, waits until each is
//! due, and redirects it.
//!
//! Registers: R6 the context, R7 the number of the frame, R8 shared memory, R9 its slot.

use squall_bpf::{
    Alu, Asm, Cond, Label, MapId, MapKind, MapSpec, Object,
    Reg::*,
    Size::{U32, U64},
    helper,
    tracepoints::{self, AT, TOOK, Words, word},
    xdp_action, xdp_md,
};

// Words of the shared memory. User space's words are two cache lines away from the program's, so
// that neither side's writes slow the other's reads.
/// Frames put into the ring.
pub const HEAD: usize = 0;
/// Not 0: the program takes no frame, and copies the value to `SEEN`.
pub const ATTENTION: usize = 1;
/// Frames taken from the ring. User space may advance it while the program rests and no frame is in
/// flight.
pub const TAIL: usize = 16;
pub const SEEN: usize = 17;
/// The device map is empty: the interface is gone.
pub const GONE: usize = 18;
/// Not 0: an impossible state was found; the value is that of [`TAIL`] at that time, plus 1.
pub const BROKEN: usize = 19;
/// Not 0: frames in flight have to leave before further ones are taken.
const LEAVING: usize = 20;
/// When the driver ran out of room, nanoseconds; 0: it has room.
pub const FULL_SINCE: usize = 21;
/// The last reading of the clock.
const NOW: usize = 22;
pub const UNDER_WAY: Words = Words {
    cpu: 23,
    pending: 24,
    generated: 25,
    taken: 26,
    driver_error: 27,
    redirect_error: 28,
    last_left: 29,
};
/// First word of the ring with the numbers of the frames in flight. Its size is a power of two,
/// greater than a batch.
const RING: usize = 32;
const RING_FRAMES: usize = 64;
/// First word of the results, one per slot: one of the values below, or the time at which the
/// slot's frame left.
pub const RESULTS: usize = RING + RING_FRAMES;

/// No result yet.
pub const WAITING: u64 = 0;
/// The driver had no room for longer than a full queue explains.
pub const DROPPED: u64 = 1;
/// The interface refused the frame.
pub const REFUSED: u64 = 2;
/// The slot has no frame.
pub const SKIPPED: u64 = 3;

/// User space has given up the frame: the link was down when it was due. The program skips it.
pub const LINK_DOWN: u64 = 4;

/// Frames in the ring: half a millisecond's worth at the highest rate; a power of two.
pub const SLOTS: usize = 1024;
/// Words of each slot's description: length and due time.
pub const DESCRIPTION: usize = 2;

/// The minimum that the kernel accepts: an Ethernet header.
pub const MIN_FRAME: u32 = 14;

/// Nanoseconds before the due time. A longer wait is split into parts, so that this CPU can do
/// other work; the last part begins this far ahead, because leaving the kernel and entering it
/// again must not make the frame late.
const LAST_PART: i32 = 20_000;
const PART: i32 = 10_000;
/// Longest wait while frames are in flight: they leave only when the kernel has run the program for
/// the whole batch, and the runs without a frame take about as long.
const MAX_WAIT_UNDER_WAY: i32 = 1_000;
/// Maximum number of readings of the clock in one wait, far more than a part takes: bpf_loop()
/// needs a bound.
const MAX_CLOCK_READS: i32 = 10_000;
/// Number of polls for a new frame in one run: enough for some microseconds.
const MAX_RING_POLLS: i32 = 1000;
/// Time without room in the driver after which a frame is given up, nanoseconds.
const FULL_TIMEOUT: i32 = 10_000_000;

// Offsets in the stack. The first two are for the callback: the current time, and the time for
// which it waits.
const WAITED: i16 = -8;
const TARGET: i16 = -16;
const DUE: i16 = -24;
const LEN: i16 = -32;

/// Index of each map in the objects.
pub const MEMORY: usize = 0;
pub const EXIT: usize = 1;

/// Offsets of the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Length of the longest frame, without FCS.
    pub longest: u32,
    pub stride: usize,
}

impl Layout {
    /// The layout for frames of up to `longest` octets without FCS.
    pub fn new(longest: u32) -> Self {
        Self { longest, stride: squall_port::stride(longest as usize) }
    }

    /// First word of slot `i`'s description.
    pub const fn description(i: usize) -> usize {
        RESULTS + SLOTS + DESCRIPTION * i
    }

    /// Offset of slot `i`'s frame, octets.
    pub fn frame(&self, i: usize) -> usize {
        Self::description(SLOTS) * 8 + i * self.stride
    }

    fn octets(&self) -> usize {
        self.frame(SLOTS)
    }
}

/// Assembles the XDP program and its witnesses: tracepoint programs that record what the driver does
/// with each frame, with the name of the tracepoint for each.
pub fn objects(layout: &Layout) -> (Object, Vec<(&'static str, Object)>) {
    let named = |name, write: &dyn Fn(&mut Asm, Maps)| {
        let mut a = Asm::new(name);
        let maps = Maps::declare(&mut a, layout);
        write(&mut a, maps);
        a.finish()
    };
    let driver = named("squall_taken", &|a, m| {
        tracepoints::driver(a, m.memory, &UNDER_WAY, |a| credit(a, m))
    });
    let redirect = named("squall_refused", &|a, m| {
        tracepoints::redirect(a, m.memory, &UNDER_WAY, |a| {
            number(a);
            result(a, m);
            a.store(U64, R5, 0, REFUSED as i32);
        });
    });
    let program = named("squall_queue", &|a, m| write(a, m, layout));
    (program, vec![(tracepoints::DRIVER, driver), (tracepoints::REDIRECT, redirect)])
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
    let leave = a.label();
    a.mov(R6, R1).load_map_value(R8, maps.memory, 0);
    a.load(U64, R1, R8, word(ATTENTION))
        .jump_if(Cond::Eq, R1, 0, free)
        .store(U64, R8, word(SEEN), R1)
        .jump(idle);
    // While frames have to leave, the rest of the batch runs without frames.
    let settled = a.label();
    a.bind(free).load(U64, R1, R8, word(LEAVING)).jump_if(Cond::Eq, R1, 0, settled);
    a.load(U64, R1, R8, word(UNDER_WAY.pending)).jump_if(Cond::Ne, R1, 0, idle).store(
        U64,
        R8,
        word(LEAVING),
        0,
    );
    a.bind(settled).load(U64, R7, R8, word(TAIL)).load(U64, R1, R8, word(HEAD)).jump_if(
        Cond::Ne,
        R1,
        R7,
        have,
    );
    // Frames in flight leave only when the batch of runs is over.
    a.load(U64, R1, R8, word(UNDER_WAY.pending)).jump_if(Cond::Ne, R1, 0, leave);
    a.store(U64, R10, TARGET, R7);
    a.mov(R1, MAX_RING_POLLS)
        .load_function(R2, peek)
        .mov(R3, R10)
        .add(R3, i32::from(TARGET))
        .mov(R4, 0)
        .call(helper::LOOP);
    a.load(U64, R1, R8, word(HEAD)).jump_if(Cond::Eq, R1, R7, idle);
    a.bind(have).mov(R9, R7).and(R9, SLOTS as i32 - 1);
    slot(a, maps, RESULTS, 1);
    a.load(U64, R1, R5, 0).jump_if(Cond::Ne, R1, WAITING as i32, skip);
    slot(a, maps, Layout::description(0), DESCRIPTION);
    a.load(U64, R1, R5, 0).store(U64, R10, LEN, R1).load(U64, R3, R5, 8).store(U64, R10, DUE, R3);
    wait(a, (idle, leave), until, go);

    a.bind(go).load(U64, R4, R10, LEN).jump_if(Cond::Lt, R4, MIN_FRAME as i32, broken);
    a.jump_if(Cond::Gt, R4, layout.longest as i32, broken);
    // Pages return from the pool with the length that their last user set.
    a.load(U32, R2, R6, xdp_md::DATA_END).load(U32, R3, R6, xdp_md::DATA).alu(Alu::Sub, R2, R3);
    a.mov(R3, R4).alu(Alu::Sub, R3, R2).mov(R2, R3).jump_if(Cond::Eq, R2, 0, fits);
    a.mov(R1, R6).call(helper::XDP_ADJUST_TAIL).jump_if(Cond::Ne, R0, 0, broken);
    a.bind(fits).load(U64, R4, R10, LEN).jump_if(Cond::Lt, R4, MIN_FRAME as i32, broken);
    a.jump_if(Cond::Gt, R4, layout.longest as i32, broken);
    a.load_map_value(R3, maps.memory, layout.frame(0) as u32)
        .mov(R2, R9)
        .mul(R2, layout.stride as i32)
        .add(R3, R2);
    a.mov(R1, R6).mov(R2, 0).call(helper::XDP_STORE_BYTES).jump_if(Cond::Ne, R0, 0, broken);
    a.load(U64, R1, R8, word(UNDER_WAY.generated))
        .and(R1, RING_FRAMES as i32 - 1)
        .shift_left(R1, 3)
        .mov(R2, R8);
    a.add(R2, R1).store(U64, R2, word(RING), R7).mov(R1, R7).add(R1, 1).store(
        U64,
        R8,
        word(TAIL),
        R1,
    );
    UNDER_WAY.depart(a, maps.exit);
    a.store(U64, R8, word(TAIL), R7).store(U64, R8, word(GONE), 1).jump(idle);

    a.bind(skip).add(R7, 1).store(U64, R8, word(TAIL), R7).jump(idle);
    a.bind(leave).store(U64, R8, word(LEAVING), 1).jump(idle);
    a.bind(broken).add(R7, 1).store(U64, R8, word(BROKEN), R7);
    a.bind(idle).mov(R0, xdp_action::DROP).exit();

    // Loop callbacks: wait for the time, or for a frame. Returning 1 ends the loop.
    let (again, waiting) = (a.label(), a.label());
    a.function("until", until).mov(R6, R2).call(helper::KTIME_GET_NS);
    a.store(U64, R6, WAITED - TARGET, R0).load(U64, R1, R6, 0).jump_if(Cond::Lt, R0, R1, again);
    a.mov(R0, 1).exit();
    a.bind(again).mov(R0, 0).exit();
    a.function("peek", peek)
        .load_map_value(R1, maps.memory, 0)
        .load(U64, R3, R1, word(HEAD))
        .load(U64, R4, R2, 0);
    a.mov(R0, 1).jump_if(Cond::Ne, R3, R4, waiting).load(U64, R0, R1, word(ATTENTION)).jump_if(
        Cond::Eq,
        R0,
        0,
        waiting,
    );
    a.mov(R0, 1).bind(waiting).exit();
}

/// Jumps to `go` when the time in R3 (also at [`DUE`]) has come, to `idle` if it is still far
/// ahead, and to `leave` if frames in flight have to leave before that.
fn wait(a: &mut Asm, (idle, leave): (Label, Label), until: Label, go: Label) {
    let (alone, near) = (a.label(), a.label());
    // A frame that was due at the last reading of the clock needs no new reading.
    a.load(U64, R1, R8, word(NOW)).jump_if(Cond::Le, R3, R1, go);
    a.call(helper::KTIME_GET_NS).store(U64, R8, word(NOW), R0);
    a.load(U64, R3, R10, DUE).jump_if(Cond::Le, R3, R0, go);
    a.load(U64, R1, R8, word(UNDER_WAY.pending)).jump_if(Cond::Eq, R1, 0, alone);
    a.mov(R4, R0).add(R4, MAX_WAIT_UNDER_WAY).jump_if(Cond::Lt, R4, R3, leave);
    a.bind(alone).mov(R4, R0).add(R4, LAST_PART).jump_if(Cond::Ge, R4, R3, near);
    a.mov(R3, R0).add(R3, PART);
    a.bind(near).store(U64, R10, TARGET, R3).store(U64, R10, WAITED, R0);
    a.mov(R1, MAX_CLOCK_READS)
        .load_function(R2, until)
        .mov(R3, R10)
        .add(R3, i32::from(TARGET))
        .mov(R4, 0)
        .call(helper::LOOP);
    a.load(U64, R0, R10, WAITED).store(U64, R8, word(NOW), R0).load(U64, R3, R10, DUE);
    a.jump_if(Cond::Gt, R3, R0, idle);
}

/// Sets R5 to the address of slot R9's entry in the table at word `at`, whose entries have `words`
/// words. Clobbers R2.
fn slot(a: &mut Asm, maps: Maps, at: usize, words: usize) {
    a.load_map_value(R5, maps.memory, 8 * at as u32)
        .mov(R2, R9)
        .mul(R2, 8 * words as i32)
        .add(R5, R2);
}

/// Sets R4 to the number of the R2-th frame in flight. Clobbers R2.
fn number(a: &mut Asm) {
    a.and(R2, RING_FRAMES as i32 - 1).shift_left(R2, 3).mov(R1, R8).add(R1, R2).load(
        U64,
        R4,
        R1,
        word(RING),
    );
}

/// Sets R5 to the address of the result of frame number R4. Clobbers R3.
fn result(a: &mut Asm, maps: Maps) {
    a.mov(R3, R4).and(R3, SLOTS as i32 - 1).shift_left(R3, 3);
    a.load_map_value(R5, maps.memory, 8 * RESULTS as u32).add(R5, R3);
}

/// Records the outcome of the R2-th frame in flight: it has left, or it is offered again with all
/// later ones. The driver gets at most a batch of runs at once, so none of the later ones have
/// left.
fn credit(a: &mut Asm, maps: Maps) {
    let (unsent, again, first, out) = (a.label(), a.label(), a.label(), a.label());
    number(a);
    result(a, maps);
    a.load(U64, R0, R7, AT).load(U64, R1, R7, TOOK).jump_if(Cond::Ge, R6, R1, unsent);
    a.store(U64, R5, 0, R0).store(U64, R8, word(FULL_SINCE), 0).jump(out);
    a.bind(unsent).jump_if(Cond::Ne, R6, R1, out);
    a.load(U64, R1, R8, word(FULL_SINCE)).jump_if(Cond::Eq, R1, 0, first);
    a.alu(Alu::Sub, R0, R1).jump_if(Cond::Lt, R0, FULL_TIMEOUT, again);
    a.store(U64, R5, 0, DROPPED as i32).store(U64, R8, word(FULL_SINCE), 0).add(R4, 1);
    a.store(U64, R8, word(TAIL), R4).jump(out);
    a.bind(first).store(U64, R8, word(FULL_SINCE), R0);
    a.bind(again).store(U64, R8, word(TAIL), R4);
    a.bind(out).mov(R0, 0);
}

#[cfg(test)]
mod tests {
    use squall_bpf::interpret::Machine;

    use super::*;

    const LONGEST: u32 = 1518;
    const REDIRECT: u64 = xdp_action::REDIRECT as u64;
    const DROP: u64 = xdp_action::DROP as u64;

    /// The program and its witnesses over one memory, as in a kernel.
    struct Kernel<'a> {
        program: Machine<'a>,
        driver: Machine<'a>,
        redirect: Machine<'a>,
        layout: Layout,
    }

    impl Kernel<'_> {
        fn word(&mut self, index: usize) -> u64 {
            u64::from_ne_bytes(self.program.maps[MEMORY][8 * index..][..8].try_into().unwrap())
        }

        fn set(&mut self, index: usize, value: u64) {
            self.program.maps[MEMORY][8 * index..][..8].copy_from_slice(&value.to_ne_bytes());
        }

        /// Puts a frame into the ring.
        fn put(&mut self, len: usize, due: u64) {
            let head = self.word(HEAD);
            let slot = head as usize % SLOTS;
            let at = self.layout.frame(slot);
            self.program.maps[MEMORY][at..at + len].copy_from_slice(&content(head, len));
            self.set(Layout::description(slot), len as u64);
            self.set(Layout::description(slot) + 1, due);
            self.set(HEAD, head + 1);
        }

        /// Runs the program over a page, which keeps its content from the previous run.
        fn run(&mut self, page: &mut Vec<u8>) -> u64 {
            self.program.run_xdp(page).unwrap()
        }

        /// Reports that the driver took `sent` of the frames in flight, and dropped `drops`.
        fn hand_over(&mut self, sent: u64, drops: u64, now: u64) {
            self.driver.maps.clone_from(&self.program.maps);
            self.driver.now = now;
            self.driver.run_tracepoint(&[0, 0, sent, drops, 0]).unwrap();
            self.program.maps.clone_from(&self.driver.maps);
        }

        fn refuse(&mut self, error: i32) {
            self.redirect.maps.clone_from(&self.program.maps);
            self.redirect.run_tracepoint(&[0, 0, 0, error as u32 as u64]).unwrap();
            self.program.maps.clone_from(&self.redirect.maps);
        }

        fn results(&mut self, n: usize) -> Vec<u64> {
            (0..n).map(|i| self.word(RESULTS + i)).collect()
        }
    }

    fn content(number: u64, len: usize) -> Vec<u8> {
        (0..len).map(|i| (number as usize * 7 + i * 3) as u8).collect()
    }

    fn with_kernel(test: impl FnOnce(&mut Kernel<'_>)) {
        let layout = Layout::new(LONGEST);
        let (program, witnesses) = objects(&layout);
        let mut kernel = Kernel {
            program: Machine::new(&program),
            driver: Machine::new(&witnesses[0].1),
            redirect: Machine::new(&witnesses[1].1),
            layout,
        };
        (kernel.program.now, kernel.program.tick) = (1_000_000, 50);
        test(&mut kernel);
    }

    #[test]
    fn frames_leave_in_order_with_their_octets_whatever_the_page_held() {
        with_kernel(|k| {
            let lengths = [60, 1518, 14, 300, 61, 1514];
            lengths.iter().for_each(|&len| k.put(len, 0));
            let mut page = vec![0xff; LONGEST as usize];
            for (number, &len) in lengths.iter().enumerate() {
                assert_eq!(k.run(&mut page), REDIRECT);
                assert_eq!(page, content(number as u64, len), "frame {number}");
            }
            assert_eq!((k.word(TAIL), k.word(UNDER_WAY.pending)), (6, 6));
            assert_eq!(k.run(&mut page), DROP, "there are no more");
            k.hand_over(6, 0, 7_000_000);
            assert_eq!(
                k.results(7),
                [7_000_000, 7_000_000, 7_000_000, 7_000_000, 7_000_000, 7_000_000, WAITING]
            );
            assert_eq!((k.word(UNDER_WAY.pending), k.word(BROKEN)), (0, 0));
        });
    }

    #[test]
    fn a_frame_waits_until_it_is_due_and_lets_those_before_it_leave() {
        with_kernel(|k| {
            let mut page = vec![0; 100];
            k.put(60, 0);
            k.put(60, 1_100_000);
            assert_eq!(k.run(&mut page), REDIRECT);
            for _ in 0..3 {
                assert_eq!(k.run(&mut page), DROP, "the first is under way");
            }
            k.hand_over(1, 0, k.program.now);
            let mut runs = 0;
            while k.run(&mut page) == DROP {
                runs += 1;
                assert!(k.program.now < 1_100_000, "a wait has parts");
            }
            assert!((2..20).contains(&runs), "{runs} parts");
            assert!((1_100_000..1_100_100).contains(&k.program.now), "{}", k.program.now);
        });
    }

    #[test]
    fn frames_that_find_no_room_in_the_driver_are_offered_again_in_order() {
        with_kernel(|k| {
            let mut page = vec![0; 100];
            (0..5).for_each(|_| k.put(60, 0));
            (0..4).for_each(|_| assert_eq!(k.run(&mut page), REDIRECT));
            k.hand_over(1, 3, 2_000_000);
            assert_eq!((k.word(TAIL), k.word(UNDER_WAY.pending)), (1, 0));
            for number in 1..5 {
                assert_eq!(k.run(&mut page), REDIRECT);
                assert_eq!(page, content(number, 60));
            }
            k.hand_over(0, 4, 2_000_100);
            // Retries are limited: the first frame is given up, and the others get a new time
            // limit.
            (0..4).for_each(|_| assert_eq!(k.run(&mut page), REDIRECT));
            k.hand_over(0, 4, 2_000_000 + FULL_TIMEOUT as u64);
            assert_eq!(
                (k.results(5), k.word(TAIL)),
                (vec![2_000_000, DROPPED, WAITING, WAITING, WAITING], 2)
            );
            (0..3).for_each(|_| assert_eq!(k.run(&mut page), REDIRECT));
            k.hand_over(3, 0, 20_000_000);
            assert_eq!(k.results(5), [2_000_000, DROPPED, 20_000_000, 20_000_000, 20_000_000]);
        });
    }

    #[test]
    fn only_the_refused_frame_is_reported_and_not_offered_again() {
        with_kernel(|k| {
            let mut page = vec![0; 100];
            (0..3).for_each(|_| k.put(60, 0));
            assert_eq!(k.run(&mut page), REDIRECT);
            assert_eq!(k.run(&mut page), REDIRECT);
            k.refuse(-90);
            assert_eq!(k.run(&mut page), REDIRECT);
            // The driver takes the first and the third frame, and then has no room.
            k.hand_over(0, 2, 2_000_000);
            assert_eq!((k.results(3), k.word(TAIL)), (vec![WAITING, REFUSED, WAITING], 0));
            let runs: Vec<u64> = (0..3).map(|_| k.run(&mut page)).collect();
            assert_eq!(runs, [REDIRECT, DROP, REDIRECT], "one was told of before");
            k.hand_over(2, 0, 3_000_000);
            assert_eq!(k.results(3), [3_000_000, REFUSED, 3_000_000]);
            assert_eq!(k.word(UNDER_WAY.redirect_error) as i32, -90);
        });
    }

    #[test]
    fn attention_is_seen_and_without_an_interface_nothing_is_taken() {
        with_kernel(|k| {
            let mut page = vec![0; 100];
            k.put(60, 0);
            k.set(ATTENTION, 7);
            assert_eq!((k.run(&mut page), k.word(SEEN), k.word(TAIL)), (DROP, 7, 0));
            k.set(ATTENTION, 0);
            k.program.redirect = xdp_action::DROP;
            assert_eq!((k.run(&mut page), k.word(GONE), k.word(TAIL)), (DROP, 1, 0));
            assert_eq!((k.word(UNDER_WAY.pending), k.word(UNDER_WAY.generated)), (0, 0));
        });
    }

    #[test]
    fn the_ring_wraps() {
        with_kernel(|k| {
            let mut page = vec![0; 100];
            for number in 0..2 * SLOTS as u64 + 3 {
                k.put(60 + number as usize % 50, 0);
                assert_eq!(k.run(&mut page), REDIRECT);
                assert_eq!(page, content(number, 60 + number as usize % 50));
                k.hand_over(1, 0, number + 10);
                let slot = number as usize % SLOTS;
                assert_eq!(k.word(RESULTS + slot), number + 10);
                k.set(RESULTS + slot, WAITING);
            }
        });
    }
}
