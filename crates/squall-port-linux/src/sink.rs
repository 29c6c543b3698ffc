//! An XDP program that counts and drops all arriving frames: the reference receiver for benchmarks
//! and tests, as close to the wire as a program can be.

use std::{io, sync::atomic::Ordering};

use squall_bpf::{
    Alu, Asm, Cond, MapKind, MapSpec, Object,
    Reg::*,
    Size::{U32, U64},
    helper, xdp_action, xdp_md,
};

use crate::{
    bpf::{Attached, Kind, MappedArray, Program, XdpMode},
    netlink::Netlink,
};

/// Width of a bin in the histogram of gaps, nanoseconds; and the number of bins. The last bin also
/// counts longer gaps.
pub const BIN_NS: u64 = 1 << BIN_BITS;
pub const BINS: usize = 16_384;
const BIN_BITS: i32 = 4;

// Words of the shared memory.
const FRAMES: usize = 0;
const OCTETS: usize = 1;
const LAST: usize = 2;
const FIRST: usize = 3;
const GAPS: usize = 4;

/// Arrivals so far. Octets exclude the FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub frames: u64,
    pub octets: u64,
    /// Nanoseconds from the first arrival to the last; 0 if arrival times are not recorded.
    pub lasted_ns: u64,
}

/// The program, attached until the value is dropped. Gaps are exact on an interface with one
/// receive queue.
#[derive(Debug)]
pub struct Sink {
    _program: (Program, Attached),
    memory: MappedArray,
}

impl Sink {
    /// Attaches the program to `interface`, in the driver if that supports it. With `gaps`, arrival
    /// times are recorded too, which costs some 30 ns per frame.
    ///
    /// # Errors
    /// There is no such interface, another program is attached, or permission is missing.
    pub fn attach(interface: &str, gaps: bool) -> io::Result<Self> {
        let links = Netlink::open()?.links()?;
        let link = links.into_iter().find(|l| l.name == interface).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("there is no interface {interface}"))
        })?;
        // Without multi-buffer support a veth with jumbo frames takes the program only in generic
        // mode.
        let program = Program::load(&object(gaps), Kind::Xdp { frags: true })?;
        let attached = program
            .attach_xdp(link.index, XdpMode::Native)
            .or_else(|_| program.attach_xdp(link.index, XdpMode::Generic))?;
        let memory = program.map(0).mapped()?;
        Ok(Self { _program: (program, attached), memory })
    }

    /// A consistent snapshot, unless frames arrive faster than the counters can be read.
    pub fn seen(&self) -> Seen {
        let word = |i: usize| self.memory.word(i).load(Ordering::Acquire);
        let read = || Seen {
            frames: word(FRAMES),
            octets: word(OCTETS),
            lasted_ns: word(LAST).saturating_sub(word(FIRST)),
        };
        let mut seen = read();
        for _ in 0..1000 {
            let again = read();
            if again == seen {
                break;
            }
            seen = again;
        }
        seen
    }

    /// Histogram of gaps between arrivals: bin i counts gaps of `i * BIN_NS` nanoseconds and
    /// longer, up to the next bin.
    pub fn gaps(&self) -> Vec<u64> {
        (0..BINS).map(|i| self.memory.word(GAPS + i).load(Ordering::Relaxed)).collect()
    }
}

fn object(gaps: bool) -> Object {
    let mut a = Asm::new("squall_sink");
    let memory = a.map(MapSpec {
        name: "squall_sink".into(),
        kind: MapKind::Array,
        key_octets: 4,
        value_octets: ((GAPS + BINS) * 8) as u32,
        entries: 1,
        mmap: true,
    });
    let word = |i: usize| (i * 8) as i16;
    let (out, first, short) = (a.label(), a.label(), a.label());
    a.mov(R6, R1).load_map_value(R8, memory, 0);
    a.load(U32, R1, R6, xdp_md::DATA).load(U32, R2, R6, xdp_md::DATA_END).alu(Alu::Sub, R2, R1);
    a.atomic_add(U64, R8, word(OCTETS), R2).mov(R2, 1).atomic_add(U64, R8, word(FRAMES), R2);
    if gaps {
        a.call(helper::KTIME_GET_NS).load(U64, R2, R8, word(LAST)).store(U64, R8, word(LAST), R0);
        a.jump_if(Cond::Eq, R2, 0, first).alu(Alu::Sub, R0, R2).shift_right(R0, BIN_BITS);
        a.jump_if(Cond::Lt, R0, BINS as i32, short).mov(R0, BINS as i32 - 1);
        a.bind(short).shift_left(R0, 3).add(R8, R0);
        a.load(U64, R1, R8, word(GAPS)).add(R1, 1).store(U64, R8, word(GAPS), R1).jump(out);
        a.bind(first).store(U64, R8, word(FIRST), R0);
    }
    a.bind(out).mov(R0, xdp_action::DROP).exit();
    if !gaps {
        // Every label must be bound, even if this variant does not jump to it.
        a.bind(first).bind(short);
    }
    a.finish()
}
