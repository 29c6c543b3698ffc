//! The outer part of the program: selects the next stream, waits until it is due, and accounts for
//! the frame.
//!
//! Registers: R6 the context, R7 the chosen stream and then the frame, R8 shared memory, R9 the due
//! time.

use squall_bpf::{Alu, Asm, Cond, Label, Reg::*, Size::U64, helper, tracepoints::word, xdp_action};
use squall_units::FCS_LEN;

use super::{Maps, Stream, Tables, frame, layout::*};
use crate::clock::REGAIN;

/// The program's stack. The first two words are for the callback: the current time, and the time
/// that it waits for.
const WAITED: i16 = -8;
const TARGET: i16 = -16;
/// The current time: nanoseconds on the kernel's clock, and picoseconds from the start.
pub(super) const NOW_NS: i16 = -24;
const NOW_PS: i16 = -32;
/// Length of the current frame, and a scratch word.
pub(super) const LEN: i16 = -40;
pub(super) const SCRATCH: i16 = -48;
/// The checksums are at lower addresses.
pub(super) const SUMS: i16 = -56;

/// Nanoseconds. Longer waits are split, so that signals and other work on the CPU get their turn.
/// The last part begins this long before the frame is due, because leaving and entering the program
/// again must not make the frame late.
const NEAR: i32 = 60_000;
const PART: i32 = 30_000;
/// Nanoseconds. Longest wait while frames are in flight: they leave only when the kernel has run
/// the program once for each frame of its batch.
const HELD: i32 = 5_000;
/// Maximum number of clock readings per wait, far more than a part takes: the kernel's `bpf_loop`
/// needs a bound.
const LOOKS: i32 = 20_000;
/// Number of frames without gaps between two readings of the clock, minus one, so that most frames
/// do not pay for a reading. A mask for [`GENERATED`].
const STALE: i32 = 15;

/// Maximum number of turns, of one picosecond each, that streams without gaps can take before the
/// next reading of the clock.
const TURNS: i32 = 1000;

/// Exits of the program for runs that make no frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    /// Nothing is due.
    idle: Label,
    /// A state is impossible.
    pub broken: Label,
}

pub(super) fn write(
    a: &mut Asm,
    maps: Maps,
    streams: &[Stream<'_>],
    layout: &Layout,
    tables: &mut Tables,
) {
    let ends = Ends { idle: a.label(), broken: a.label() };
    let callback = a.label();
    let signed = streams.iter().any(|s| s.program.signature().is_some());
    a.mov(R6, R1).load_map_value(R8, maps.memory, 0);
    let go = a.label();
    load(a, R1, ATTENTION)
        .jump_if(Cond::Eq, R1, 0, go)
        .store(U64, R8, word(SEEN), R1)
        .jump(ends.idle)
        .bind(go);
    load(a, R1, PACKETS).jump_if(Cond::Eq, R1, 0, ends.idle);
    load(a, R1, OCTETS).jump_if(Cond::Eq, R1, 0, ends.idle);
    choose(a, streams.len());
    load(a, R1, END).jump_if(Cond::Ge, R9, R1, ends.idle);
    wait(a, ends, callback, signed);
    load(a, R1, LAST);
    load(a, R3, READ).jump_if(Cond::Ge, R3, R1, ends.idle);
    a.store(U64, R10, NOW_PS, R2);

    let page = streams.iter().map(|s| s.program.max_len()).max().unwrap_or(0);
    let bodies: Vec<Label> = streams.iter().map(|_| a.label()).collect();
    dispatch(a, &bodies, 0);
    for (i, (stream, body)) in streams.iter().zip(bodies).enumerate() {
        a.bind(body).load_map_value(R8, maps.memory, 8 * layout.stream(i) as u32);
        frame::write(a, maps, ends, stream, (page, streams.len() > 1), tables);
        advance(a, maps, streams, i, layout);
        push(a, maps, ends, stream, i);
    }
    a.bind(ends.broken).load_map_value(R1, maps.memory, 0).store(U64, R1, word(BROKEN), 1);
    a.bind(ends.idle).mov(R0, xdp_action::DROP).exit();

    // Loops until the time is reached; returning 1 ends the loop.
    let again = a.label();
    a.function("until", callback).mov(R6, R2).call(helper::KTIME_GET_NS);
    a.store(U64, R6, WAITED - TARGET, R0).load(U64, R1, R6, 0).jump_if(Cond::Lt, R0, R1, again);
    a.mov(R0, 1).exit();
    a.bind(again).mov(R0, 0).exit();
}

fn load(a: &mut Asm, to: squall_bpf::Reg, index: usize) -> &mut Asm {
    a.load(U64, to, R8, word(index))
}

/// Sets R9 to the earliest due time and R7 to its stream; if several are equal, the first, as in
/// the wheel, so that frames have the same order as on other ports.
fn choose(a: &mut Asm, streams: usize) {
    a.mov(R7, 0);
    load(a, R9, KEYS);
    for i in 1..streams {
        let next = a.label();
        load(a, R1, KEYS + i).jump_if(Cond::Ge, R1, R9, next);
        a.mov(R9, R1).mov(R7, i as i32).bind(next);
    }
}

/// Continues when R9 is reached, with the time in R2 and in [`NOW_NS`].
fn wait(a: &mut Asm, ends: Ends, callback: Label, signed: bool) {
    let (read, ahead, alone, near, ready) = (a.label(), a.label(), a.label(), a.label(), a.label());
    if !signed {
        // If frames carry no time, a frame that was due at the last reading of the clock is due
        // now.
        load(a, R1, GENERATED).and(R1, STALE).jump_if(Cond::Eq, R1, 0, read);
        load(a, R2, NOW).jump_if(Cond::Le, R9, R2, ready);
    }
    a.bind(read).call(helper::KTIME_GET_NS);
    since_start(a, ahead);
    a.jump_if(Cond::Le, R9, R2, ready);

    a.bind(ahead).mov(R3, R9);
    load(a, R1, LAG).add(R3, R1).add(R3, 999).alu(Alu::Div, R3, 1000);
    load(a, R1, START).add(R3, R1);
    load(a, R1, PENDING).jump_if(Cond::Eq, R1, 0, alone);
    a.mov(R4, R0).add(R4, HELD).jump_if(Cond::Lt, R4, R3, ends.idle);
    a.bind(alone).mov(R4, R0).add(R4, NEAR).jump_if(Cond::Ge, R4, R3, near);
    a.mov(R3, R0).add(R3, PART);
    a.bind(near).store(U64, R10, TARGET, R3).store(U64, R10, WAITED, R0);
    a.mov(R1, LOOKS).load_function(R2, callback).mov(R3, R10).add(R3, i32::from(TARGET)).mov(R4, 0);
    a.call(helper::LOOP).load(U64, R0, R10, WAITED);
    since_start(a, ends.idle);
    a.jump_if(Cond::Gt, R9, R2, ends.idle).bind(ready);
}

/// Converts the clock reading in R0 to schedule time, in picoseconds in R2 and in memory; jumps to
/// `early` before the start. As in [`crate::clock::PortClock`], the schedule lags if the frame due
/// at R9 is later than allowed.
fn since_start(a: &mut Asm, early: Label) {
    let (regained, on_time, kept) = (a.label(), a.label(), a.label());
    a.store(U64, R10, NOW_NS, R0);
    load(a, R1, START);
    a.mov(R2, R0).alu(Alu::Sub, R2, R1).jump_if(Cond::SignedLt, R2, 0, early);
    a.mul(R2, 1000);
    load(a, R3, READ).mov(R4, R2).alu(Alu::Sub, R4, R3).store(U64, R8, word(READ), R2);
    load(a, R1, LAG).jump_if(Cond::Eq, R1, 0, kept).alu(Alu::Div, R4, REGAIN as i32);
    a.jump_if(Cond::Ge, R1, R4, regained).mov(R4, R1).bind(regained).alu(Alu::Sub, R1, R4);
    a.store(U64, R8, word(LAG), R1).alu(Alu::Sub, R2, R1).bind(kept);
    a.mov(R3, R2).jump_if(Cond::Lt, R3, R9, on_time).alu(Alu::Sub, R3, R9);
    load(a, R4, ALLOWED).jump_if(Cond::Le, R3, R4, on_time).alu(Alu::Sub, R3, R4);
    a.alu(Alu::Sub, R2, R3).add(R1, R3).store(U64, R8, word(LAG), R1);
    load(a, R4, MOVED).add(R4, R3).store(U64, R8, word(MOVED), R4).bind(on_time);
    a.store(U64, R8, word(NOW), R2);
}

/// Jumps to the code of stream R7, by binary search: 64 streams cost six comparisons instead of 63.
fn dispatch(a: &mut Asm, bodies: &[Label], first: usize) {
    match bodies {
        [only] => {
            a.jump(*only);
        }
        _ => {
            let (low, high) = bodies.split_at(bodies.len() / 2);
            let above = a.label();
            a.jump_if(Cond::Ge, R7, (first + low.len()) as i32, above);
            dispatch(a, low, first);
            a.bind(above);
            dispatch(a, high, first + low.len());
        }
    }
}

/// Advances the stream to its next frame: [`crate::Timeline::advance`].
fn advance(a: &mut Asm, maps: Maps, streams: &[Stream<'_>], i: usize, layout: &Layout) {
    let stream = &streams[i];
    let at = |index: usize| (index * 8) as i16;
    let (paced, same_burst, last, unchanged, store) =
        (a.label(), a.label(), a.label(), a.label(), a.label());
    a.load(U64, R1, R8, at(S_NEXT)).mov64(R2, stream.share.1).add(R1, R2).store(
        U64,
        R8,
        at(S_NEXT),
        R1,
    );

    // R2: the next due time; R9 keeps the due time of this frame, or none.
    a.mov(R2, R9).load(U64, R1, R8, at(S_UNPACED)).jump_if(Cond::Eq, R1, 0, paced);
    // Streams without gaps take turns: each frame is due a picosecond after the previous one of its
    // stream, counted from a nanosecond ago.
    let (turn, late) = (a.label(), a.label());
    a.load(U64, R1, R10, NOW_PS)
        .jump_if(Cond::Lt, R1, TURNS, turn)
        .alu(Alu::Sub, R1, TURNS)
        .bind(turn);
    a.add(R2, 1).jump_if(Cond::Ge, R2, R1, late).mov(R2, R1).bind(late).mov(R9, -1);
    a.bind(paced).load(U64, R3, R8, at(S_WHOLE)).load(U64, R4, R8, at(S_REST)).load(
        U64,
        R5,
        R8,
        at(S_DEN),
    );
    if stream.program.sizes().only().is_none() {
        a.load(U64, R1, R10, LEN).mul(R4, R1).add(R3, R4).mov(R4, R3);
        a.alu(Alu::Div, R3, R5).alu(Alu::Mod, R4, R5);
    }
    a.add(R2, R3).load(U64, R1, R8, at(S_FRACTION)).add(R1, R4);
    a.jump_if(Cond::Lt, R1, R5, unchanged).alu(Alu::Sub, R1, R5).add(R2, 1);
    a.bind(unchanged).store(U64, R8, at(S_FRACTION), R1);

    // R1: frames left.
    a.load(U64, R1, R8, at(S_LEFT)).jump_if(Cond::Eq, R1, -1, same_burst);
    a.alu(Alu::Sub, R1, 1).jump_if(Cond::Ne, R1, 0, same_burst);
    a.load(U64, R3, R8, at(S_BURSTS)).jump_if(Cond::Eq, R3, -1, last).alu(Alu::Sub, R3, 1);
    a.store(U64, R8, at(S_BURSTS), R3).bind(last).jump_if(Cond::Eq, R3, 0, same_burst);
    let (fits, gaps) = (a.label(), a.label());
    a.jump_if(Cond::Ne, R9, -1, gaps).load(U64, R2, R10, NOW_PS).bind(gaps);
    a.mov64(R1, stream.pattern.packets).mov64(R3, stream.pattern.gap.0).add(R2, R3);
    a.jump_if(Cond::Ge, R2, R3, fits).mov(R2, -1).bind(fits);
    a.bind(same_burst).store(U64, R8, at(S_LEFT), R1).store(U64, R8, at(S_DUE), R2);
    let done = a.label();
    a.jump_if(Cond::Ne, R1, 0, store);
    key(a, maps, i).store(U64, R1, 0, -1);
    if let Some((next, times)) = stream.next {
        start_next(a, maps, (next, &streams[next]), times, layout, done);
    }
    a.jump(done);
    a.bind(store);
    key(a, maps, i).store(U64, R1, 0, R2).bind(done);
}

/// Sets R1 to the address of stream `i`'s key.
fn key(a: &mut Asm, maps: Maps, i: usize) -> &mut Asm {
    a.load_map_value(R1, maps.memory, 8 * (KEYS + i) as u32)
}

/// The stream ended at R2 (or now, if it has no gaps): starts its successor, unless that is active
/// or removed.
fn start_next(
    a: &mut Asm,
    maps: Maps,
    (j, next): (usize, &Stream<'_>),
    times: Option<u64>,
    layout: &Layout,
    done: Label,
) {
    let at = |index: usize| (index * 8) as i16;
    let (gaps, runs, fits) = (a.label(), a.label(), a.label());
    if let Some(times) = times {
        a.load(U64, R1, R8, at(S_ARROWS)).mov64(R3, times).jump_if(Cond::Ge, R1, R3, done);
    }
    a.load(U64, R1, R8, at(S_ARROWS)).add(R1, 1).store(U64, R8, at(S_ARROWS), R1);
    a.jump_if(Cond::Ne, R9, -1, gaps).load(U64, R2, R10, NOW_PS).bind(gaps);
    a.load_map_value(R3, maps.memory, 8 * layout.stream(j) as u32);
    a.load(U64, R1, R3, at(S_LEFT)).jump_if(Cond::Ne, R1, 0, done);
    a.load(U64, R1, R3, at(S_REMOVED)).jump_if(Cond::Ne, R1, 0, done);
    // R4: when its first frame is due.
    a.mov(R4, R2)
        .mov64(R1, next.start.0)
        .add(R4, R1)
        .jump_if(Cond::Ge, R4, R1, fits)
        .mov(R4, -1)
        .bind(fits);
    a.store(U64, R3, at(S_DUE), R4).store(U64, R3, at(S_FRACTION), 0);
    a.mov64(R1, next.pattern.packets).store(U64, R3, at(S_LEFT), R1);
    a.mov64(R1, next.pattern.bursts).store(U64, R3, at(S_BURSTS), R1);
    a.load(U64, R1, R3, at(S_PAUSED)).jump_if(Cond::Eq, R1, 0, runs);
    a.add(R2, 1).store(U64, R3, at(S_PAUSED), R2).jump(done);
    a.bind(runs);
    key(a, maps, j).store(U64, R1, 0, R4);
}

/// Pushes the frame to the ring of frames in flight and redirects it to the interface.
fn push(a: &mut Asm, maps: Maps, ends: Ends, stream: &Stream<'_>, i: usize) {
    let (endless, spent, kept, unlimited) = (a.label(), a.label(), a.label(), a.label());
    a.load_map_value(R8, maps.memory, 0);
    load(a, R1, GENERATED).mov(R2, R1).and(R2, RING_FRAMES as i32 - 1).shift_left(R2, 4);
    a.mov(R3, R8).add(R3, R2);
    match stream.program.sizes().only() {
        Some(len) => a.mov(R4, len as i32),
        None => a.load(U64, R4, R10, LEN),
    };
    a.add(R4, FCS_LEN as i32).mov(R5, R4).shift_left(R5, 8).alu(Alu::Or, R5, i as i32);
    a.store(U64, R3, word(RING), R5).store(U64, R3, word(RING + 1), R9);
    load(a, R1, PACKETS).jump_if(Cond::Eq, R1, -1, endless).alu(Alu::Sub, R1, 1).store(
        U64,
        R8,
        word(PACKETS),
        R1,
    );
    a.bind(endless);
    load(a, R1, OCTETS).jump_if(Cond::Eq, R1, -1, unlimited).jump_if(Cond::Le, R1, R4, spent);
    a.alu(Alu::Sub, R1, R4).jump(kept).bind(spent).mov(R1, 0).bind(kept).store(
        U64,
        R8,
        word(OCTETS),
        R1,
    );
    a.bind(unlimited);
    UNDER_WAY.depart(a, maps.exit);
    a.store(U64, R8, word(GONE), 1);
    let refused = ACCOUNTS + ACCOUNT * i + A_REFUSED;
    load(a, R1, refused).add(R1, 1).store(U64, R8, word(refused), R1).jump(ends.idle);
}
