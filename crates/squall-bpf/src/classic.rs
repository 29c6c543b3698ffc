//! Classic BPF (McCanne and Jacobson, 1993), to which capture filters are compiled. A [`Filter`] is
//! checked once, like in the kernel's `bpf_check_classic`, and then runs on any octets without
//! failing. Programs longer than the kernel's limit, and programs with loops, run only here.

use std::fmt;

use crate::reduce::reduce;

/// `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

/// A checked program: every jump has a target, and every path ends in a return, or in a loop that
/// is ended by the limit on backward jumps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(Vec<Instruction>);

/// Why a program is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFilter {
    pub instruction: usize,
    pub problem: &'static str,
}

impl fmt::Display for BadFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction {}: {}", self.instruction, self.problem)
    }
}

impl std::error::Error for BadFilter {}

/// The kernel's limit on instructions, BPF_MAXINSNS.
pub const KERNEL_INSTRUCTIONS: usize = 4096;
/// More than libpcap generates from the longest expression.
const MAX_INSTRUCTIONS: usize = 1 << 18;
/// BPF_MEMWORDS.
pub(crate) const WORDS: usize = 16;
/// Maximum number of backward jumps in one run; beyond it, the frame does not match. libpcap
/// generates loops only for `protochain`: one iteration per header of a chain, each of at least 8
/// octets, in at most 256 KiB of a packet.
const MAX_TURNS: u32 = 1 << 15;

pub(crate) const LD: u16 = 0x00;
pub(crate) const LDX: u16 = 0x01;
pub(crate) const ST: u16 = 0x02;
pub(crate) const STX: u16 = 0x03;
pub(crate) const ALU: u16 = 0x04;
pub(crate) const JMP: u16 = 0x05;
pub(crate) const RET: u16 = 0x06;

impl Filter {
    /// Checks `program`.
    ///
    /// # Errors
    /// The kernel would refuse the program, for a reason other than its number of instructions or
    /// its backward jumps.
    pub fn new(program: Vec<Instruction>) -> Result<Self, BadFilter> {
        let bad = |instruction, problem| Err(BadFilter { instruction, problem });
        if program.is_empty() || program.len() > MAX_INSTRUCTIONS {
            return bad(0, "expected 1 to 262144 instructions");
        }
        for (at, insn) in program.iter().enumerate() {
            let room = program.len() - at - 1;
            match insn.code & 7 {
                LD | LDX => {
                    let (size, mode) = (insn.code & 0x18, insn.code & 0xe0);
                    let known = match (insn.code & 7, mode) {
                        (_, 0x00 | 0x80) => size == 0,
                        (_, 0x60) if insn.k as usize >= WORDS => {
                            return bad(at, "a memory word above 15");
                        }
                        (_, 0x60) => size == 0,
                        (LD, 0x20 | 0x40) => size != 0x18,
                        (LDX, 0xa0) => size == 0x10,
                        _ => false,
                    };
                    if !known {
                        return bad(at, "an unknown load");
                    }
                }
                ST | STX if insn.code & 0xf8 != 0 => return bad(at, "an unknown store"),
                ST | STX if insn.k as usize >= WORDS => return bad(at, "a memory word above 15"),
                ST | STX => {}
                ALU => match insn.code & 0xf8 {
                    0x30 | 0x90 if insn.k == 0 => return bad(at, "a division by zero"),
                    0x60 | 0x70 if insn.k > 31 => return bad(at, "a shift by more than 31"),
                    op if op & 0xf0 > 0xa0 => return bad(at, "an unknown operation"),
                    _ => {}
                },
                JMP => match insn.code & 0xf0 {
                    0x00 if target(at, insn.k).is_none_or(|to| to >= program.len()) => {
                        return bad(at, "a jump out of the program");
                    }
                    0x00 => {}
                    0x10..=0x40 if usize::from(insn.jt.max(insn.jf)) >= room => {
                        return bad(at, "a jump out of the program");
                    }
                    0x10..=0x40 => {}
                    _ => return bad(at, "an unknown jump"),
                },
                RET if !matches!(insn.code & 0x18, 0x00 | 0x10) => {
                    return bad(at, "an unknown return");
                }
                RET => {}
                _ if !matches!(insn.code & 0xf8, 0x00 | 0x80) => {
                    return bad(at, "an unknown operation");
                }
                _ => {}
            }
        }
        if program.last().is_none_or(|last| last.code & 7 != RET) {
            return bad(program.len() - 1, "the program does not end in a return");
        }
        Ok(Self(program))
    }

    /// A program that matches every frame and keeps `snaplen` octets of each.
    pub fn all(snaplen: u32) -> Self {
        Self(vec![Instruction { code: RET, jt: 0, jf: 0, k: snaplen }])
    }

    pub fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    /// Whether the kernel can run it as well: it accepts no loops.
    pub fn is_for_kernel(&self) -> bool {
        let loops = |insn: &Instruction| insn.code == JMP && insn.k > i32::MAX as u32;
        self.0.len() <= KERNEL_INSTRUCTIONS && !self.0.iter().any(loops)
    }

    /// A program with the same result for every frame, without tests whose outcome follows from
    /// earlier tests; it is usually a fraction as long. Unchanged if it has loops.
    pub fn reduced(self) -> Self {
        // Since `self` was checked, it replaces a result that fails the check.
        reduce(&self.0).and_then(|program| Self::new(program).ok()).unwrap_or(self)
    }

    /// Whether no return keeps a frame. In a [reduced](Filter::reduced) program all returns are
    /// reachable, so no frame matches then.
    pub fn takes_nothing(&self) -> bool {
        self.0.iter().all(|insn| insn.code & 7 != RET || insn.code & 0x18 == 0 && insn.k == 0)
    }

    /// Number of octets of the frame to keep; 0 if the frame does not match, as for a read beyond
    /// the end of `octets`. `wire_len`: the frame's length on the wire.
    #[inline]
    pub fn run(&self, octets: &[u8], wire_len: u32) -> u32 {
        self.step_through(octets, wire_len).unwrap_or(0)
    }

    /// As [`Filter::run`], for an Ethernet frame as Linux shows it to packet sockets: without its
    /// outer VLAN tag.
    #[inline]
    pub fn run_untagged(&self, octets: &[u8], wire_len: u32) -> u32 {
        match octets.get(TAG_AT..TAG_AT + 2) {
            Some([0x81, 0x00] | [0x88, 0xa8]) if octets.len() >= TAG_AT + TAG + 2 => self
                .step_through(&Untagged(octets), wire_len.saturating_sub(TAG as u32))
                .unwrap_or(0),
            _ => self.run(octets, wire_len),
        }
    }

    fn step_through<O: Octets + ?Sized>(&self, octets: &O, wire_len: u32) -> Option<u32> {
        let (mut a, mut x) = (0u32, 0u32);
        let mut memory = [0u32; WORDS];
        let (mut at, mut turns) = (0usize, 0);
        loop {
            // In bounds: jumps were checked, and the last instruction returns.
            let Instruction { code, jt, jf, k } = self.0[at];
            at += 1;
            match code & 7 {
                LD => {
                    a = match code & 0xe0 {
                        0x00 => k,
                        0x20 => load(octets, k, code)?,
                        // As in the kernel: the sum may wrap, but a negative offset fails.
                        0x40 => load(
                            octets,
                            Some(x.wrapping_add(k)).filter(|at| *at <= i32::MAX as u32)?,
                            code,
                        )?,
                        0x60 => memory[k as usize],
                        _ => wire_len,
                    }
                }
                LDX => {
                    x = match code & 0xe0 {
                        0x00 => k,
                        0x60 => memory[k as usize],
                        0x80 => wire_len,
                        _ => u32::from(octets.chunk::<1>(k as usize)?[0] & 15) * 4,
                    }
                }
                ST => memory[k as usize] = a,
                STX => memory[k as usize] = x,
                ALU => {
                    a = alu(code & 0xf0, a, if code & 8 == 0 { k } else { x })?;
                }
                JMP if code & 0xf0 == 0 => {
                    if k > i32::MAX as u32 {
                        turns += 1;
                        if turns > MAX_TURNS {
                            return None;
                        }
                    }
                    at = at.wrapping_add_signed(k as i32 as isize);
                }
                JMP => {
                    let by = if code & 8 == 0 { k } else { x };
                    at += usize::from(if holds(code & 0xf0, a, by) { jt } else { jf });
                }
                RET => return Some(if code & 0x18 == 0 { k } else { a }),
                _ if code & 0x80 == 0 => x = a,
                _ => a = x,
            }
        }
    }
}

/// The target index of the jump at `at`, whose offset is signed. `None` if it is before the
/// program.
fn target(at: usize, k: u32) -> Option<usize> {
    (at + 1).checked_add_signed(k as i32 as isize)
}

/// Result of the arithmetic operation `op`; `None` for a division by zero, which ends the program.
#[inline]
pub(crate) fn alu(op: u16, a: u32, by: u32) -> Option<u32> {
    Some(match op {
        0x00 => a.wrapping_add(by),
        0x10 => a.wrapping_sub(by),
        0x20 => a.wrapping_mul(by),
        0x30 => a.checked_div(by)?,
        0x40 => a | by,
        0x50 => a & by,
        // As in the kernel and on CPUs: shifts use the low five bits.
        0x60 => a.wrapping_shl(by),
        0x70 => a.wrapping_shr(by),
        0x80 => a.wrapping_neg(),
        0x90 => a.checked_rem(by)?,
        _ => a ^ by,
    })
}

/// Whether the condition of jump `op` holds.
#[inline]
pub(crate) fn holds(op: u16, a: u32, by: u32) -> bool {
    match op {
        0x10 => a == by,
        0x20 => a > by,
        0x30 => a >= by,
        _ => a & by != 0,
    }
}

/// Offset and length of the VLAN tag in an Ethernet frame.
const TAG_AT: usize = 12;
const TAG: usize = 4;

/// The octets that a program reads.
trait Octets {
    fn chunk<const N: usize>(&self, at: usize) -> Option<[u8; N]>;
}

impl Octets for [u8] {
    #[inline]
    fn chunk<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.get(at..)?.first_chunk().copied()
    }
}

/// A tagged frame without its outer VLAN tag.
struct Untagged<'a>(&'a [u8]);

impl Octets for Untagged<'_> {
    #[inline]
    fn chunk<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        if at >= TAG_AT {
            return self.0.chunk(at + TAG);
        }
        if at + N <= TAG_AT {
            return self.0.chunk(at);
        }
        let mut octets = [0; N];
        for (i, octet) in octets.iter_mut().enumerate() {
            [*octet] = self.chunk(at + i)?;
        }
        Some(octets)
    }
}

#[inline]
fn load<O: Octets + ?Sized>(octets: &O, at: u32, code: u16) -> Option<u32> {
    let at = at as usize;
    Some(match code & 0x18 {
        0x00 => u32::from_be_bytes(octets.chunk(at)?),
        0x08 => u32::from(u16::from_be_bytes(octets.chunk(at)?)),
        _ => u32::from(octets.chunk::<1>(at)?[0]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insn(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
        Instruction { code, jt, jf, k }
    }

    #[test]
    fn udp_over_ipv4_matches_and_the_rest_does_not() {
        // tcpdump -d 'ip proto 17'
        let udp = Filter::new(vec![
            insn(0x28, 0, 0, 12),
            insn(0x15, 0, 3, 0x800),
            insn(0x30, 0, 0, 23),
            insn(0x15, 0, 1, 17),
            insn(0x06, 0, 0, 262_144),
            insn(0x06, 0, 0, 0),
        ])
        .unwrap();
        let mut frame = vec![0; 60];
        (frame[12], frame[23]) = (8, 17);
        assert_eq!(udp.run(&frame, 60), 262_144);
        frame[23] = 6;
        assert_eq!(udp.run(&frame, 60), 0);
        assert_eq!(udp.run(&frame[..20], 60), 0, "what is not there does not match");
    }

    #[test]
    fn a_tag_is_skipped_where_linux_takes_it_off() {
        let mut tagged: Vec<u8> = (0..64).collect();
        tagged[12..14].copy_from_slice(&[0x81, 0x00]);
        let mut plain = tagged.clone();
        plain.drain(12..16);
        for at in 0..64 {
            for size in [0x00, 0x08, 0x10] {
                // Reads the octets themselves; the result is the length to keep.
                let read =
                    Filter::new(vec![insn(0x20 | size, 0, 0, at), insn(0x16, 0, 0, 0)]).unwrap();
                assert_eq!(read.run_untagged(&tagged, 64), read.run(&plain, 60), "{at}");
                assert_eq!(read.run_untagged(&plain, 60), read.run(&plain, 60));
            }
        }
        let length = Filter::new(vec![insn(0x80, 0, 0, 0), insn(0x16, 0, 0, 0)]).unwrap();
        assert_eq!((length.run_untagged(&tagged, 64), length.run_untagged(&plain, 60)), (60, 60));
    }

    #[test]
    fn a_loop_ends_and_is_not_for_the_kernel() {
        // Adds the octet at index A until the sum is 40; a 0 makes it loop forever.
        let chain = Filter::new(vec![
            insn(0x00, 0, 0, 0),
            insn(0x07, 0, 0, 0),
            insn(0x50, 0, 0, 0),
            insn(0x0c, 0, 0, 0),
            insn(0x15, 0, 1, 40),
            insn(0x06, 0, 0, 1),
            insn(0x05, 0, 0, -6_i32 as u32),
            insn(0x06, 0, 0, 0),
        ])
        .unwrap();
        assert!(!chain.is_for_kernel());
        let mut octets = [0; 64];
        (octets[0], octets[8]) = (8, 32);
        assert_eq!(chain.run(&octets, 64), 1);
        octets[8] = 33;
        assert_eq!(chain.run(&octets, 64), 0, "41 is 0, and so on without end");
        octets[8] = 200;
        assert_eq!(chain.run(&octets, 64), 0, "it leaves the frame");
        assert_eq!(chain.clone().reduced(), chain);
    }

    #[test]
    fn instructions_that_could_fail_are_refused() {
        for (program, what) in [
            (vec![], "empty"),
            (vec![insn(0x05, 0, 0, -2_i32 as u32), insn(0x06, 0, 0, 0)], "jump before the start"),
            (vec![insn(0x05, 0, 0, 1), insn(0x06, 0, 0, 0)], "jump behind the end"),
            (vec![insn(0x15, 0, 1, 0), insn(0x06, 0, 0, 0)], "branch behind the end"),
            (vec![insn(0x00, 0, 0, 0)], "no return"),
            (vec![insn(0x60, 0, 0, 16), insn(0x06, 0, 0, 0)], "memory"),
            (vec![insn(0x34, 0, 0, 0), insn(0x06, 0, 0, 0)], "division"),
            (vec![insn(0x64, 0, 0, 32), insn(0x06, 0, 0, 0)], "shift"),
        ] {
            assert!(Filter::new(program).is_err(), "{what}");
        }
    }
}
