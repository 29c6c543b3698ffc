//! Runs programs in user space: tests need neither a kernel nor permissions.
//!
//! Addresses are those of a small machine: context, packet, stack and map values are in regions
//! below 2^32, because `xdp_md` holds 32 bits of an address. Accesses outside of these regions,
//! which the verifier would refuse, are errors here too.

use crate::{Insn, Object, helper, xdp_md};

const CONTEXT: u64 = 0x1000_0000;
const PACKET: u64 = 0x2000_0000;
const STACKS: u64 = 0x3000_0000;
const MAPS: u64 = 0x4000_0000;
const MAP_STRIDE: u64 = 0x0400_0000;
const STACK: usize = 512;
const MAX_STEPS: u64 = 10_000_000;

/// The state of a program: map values that persist, a clock, and the current frame.
#[derive(Debug)]
pub struct Machine<'a> {
    object: &'a Object,
    /// Per map, the values of all entries; unused for device maps.
    pub maps: Vec<Vec<u8>>,
    /// Result of the last `bpf_ktime_get_ns`; each call first advances it by `tick`.
    pub now: u64,
    pub tick: u64,
    pub cpu: u64,
    /// Result of a redirect to a device map: `XDP_REDIRECT`; or the action in the flags, if the
    /// entry is empty.
    pub redirect: i32,
    context: Vec<u8>,
    packet: Vec<u8>,
    stacks: Vec<[u8; STACK]>,
    steps: u64,
}

impl<'a> Machine<'a> {
    pub fn new(object: &'a Object) -> Self {
        let maps =
            object.maps.iter().map(|m| vec![0; (m.value_octets * m.entries) as usize]).collect();
        Self {
            object,
            maps,
            now: 0,
            tick: 0,
            cpu: 0,
            redirect: crate::xdp_action::REDIRECT,
            context: Vec::new(),
            packet: Vec::new(),
            stacks: Vec::new(),
            steps: 0,
        }
    }

    /// Runs an XDP program over `frame`, whose length may change. Returns the program's result.
    ///
    /// # Errors
    /// The error, and the instruction that caused it.
    pub fn run_xdp(&mut self, frame: &mut Vec<u8>) -> Result<u64, String> {
        let mut context = vec![0; 24];
        let end = PACKET as u32 + frame.len() as u32;
        context[xdp_md::DATA as usize..][..4].copy_from_slice(&(PACKET as u32).to_le_bytes());
        context[xdp_md::DATA_END as usize..][..4].copy_from_slice(&end.to_le_bytes());
        self.context = context;
        self.packet = std::mem::take(frame);
        let result = self.call(0, [CONTEXT, 0]);
        *frame = std::mem::take(&mut self.packet);
        result
    }

    /// Runs a raw tracepoint program with `arguments`.
    ///
    /// # Errors
    /// As [`Machine::run_xdp`].
    pub fn run_tracepoint(&mut self, arguments: &[u64]) -> Result<u64, String> {
        self.context = arguments.iter().flat_map(|a| a.to_le_bytes()).collect();
        self.call(0, [CONTEXT, 0])
    }

    fn call(&mut self, at: usize, arguments: [u64; 2]) -> Result<u64, String> {
        let depth = self.stacks.len();
        if depth == 8 {
            return Err("more than 8 frames deep".into());
        }
        self.stacks.push([0; STACK]);
        let mut registers = [0; 11];
        registers[1..3].copy_from_slice(&arguments);
        registers[10] = STACKS + ((depth + 1) * STACK) as u64;
        self.steps = 0;
        let result = self.execute(at, &mut registers);
        self.stacks.pop();
        result
    }

    fn execute(&mut self, mut at: usize, r: &mut [u64; 11]) -> Result<u64, String> {
        loop {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Err("runs without end".into());
            }
            let insn = *self.object.insns.get(at).ok_or("runs past the end of the program")?;
            let here = at;
            let error = |what: String| format!("instruction {here} ({insn:?}): {what}");
            let Insn { code, dst, src, off, imm } = insn;
            let (d, s) = (usize::from(dst), usize::from(src));
            let operand = if code & 8 != 0 { r[s] } else { i64::from(imm) as u64 };
            at += 1;
            match code & 7 {
                // ALU instructions, 32 and 64 bits.
                4 if code & 0xf0 == 0xd0 => {
                    r[d] = match (imm, code & 8 != 0) {
                        (16, true) => u64::from((r[d] as u16).to_be()),
                        (32, true) => u64::from((r[d] as u32).to_be()),
                        (64, true) => r[d].to_be(),
                        _ => return Err(error("no such byte swap".into())),
                    }
                }
                4 => {
                    let value =
                        arithmetic(code, u64::from(r[d] as u32), u64::from(operand as u32), 31);
                    r[d] =
                        u64::from(value.ok_or_else(|| error("no such arithmetic".into()))? as u32);
                }
                7 => {
                    r[d] = arithmetic(code, r[d], operand, 63)
                        .ok_or_else(|| error("no such arithmetic".into()))?
                }
                0 => {
                    let high = self.object.insns.get(at).ok_or("half an instruction")?.imm;
                    at += 1;
                    r[d] = match self.object.relocations.iter().find(|x| x.insn == at - 2) {
                        Some(x) => {
                            MAPS + x.map as u64 * MAP_STRIDE + u64::from(x.offset.unwrap_or(0))
                        }
                        // The address of a function is the index of its first instruction.
                        None if src == 4 => (at as i64 - 1 + i64::from(imm)) as u64,
                        None => u64::from(imm as u32) | (high as u64) << 32,
                    };
                }
                1 => {
                    let octets =
                        self.memory(r[s].wrapping_add(off as u64), width(code)).map_err(error)?;
                    let mut value = [0; 8];
                    value[..octets.len()].copy_from_slice(octets);
                    r[d] = u64::from_le_bytes(value);
                }
                2 | 3 => {
                    let value = if code & 7 == 3 { r[s] } else { i64::from(imm) as u64 };
                    let atomic = code & 0xe0 == 0xc0;
                    let octets =
                        self.memory(r[d].wrapping_add(off as u64), width(code)).map_err(error)?;
                    let mut old = [0; 8];
                    old[..octets.len()].copy_from_slice(octets);
                    let old = if atomic { u64::from_le_bytes(old) } else { 0 };
                    let len = octets.len();
                    octets.copy_from_slice(&old.wrapping_add(value).to_le_bytes()[..len]);
                }
                _ => match code {
                    0x95 => return Ok(r[0]),
                    0x85 if src == 1 => {
                        let steps = self.steps;
                        r[0] = self.call((at as i64 + i64::from(imm)) as usize, [r[1], r[2]])?;
                        self.steps += steps;
                    }
                    0x85 => r[0] = self.help(imm, r).map_err(error)?,
                    _ => {
                        let (a, b) = if code & 7 == 6 {
                            (u64::from(r[d] as u32), u64::from(operand as u32))
                        } else {
                            (r[d], operand)
                        };
                        if holds(code, a, b).ok_or_else(|| error("no such jump".into()))? {
                            at = (at as i64 + i64::from(off)) as usize;
                        }
                    }
                },
            }
        }
    }

    fn help(&mut self, number: i32, r: &[u64; 11]) -> Result<u64, String> {
        Ok(match number {
            helper::KTIME_GET_NS => {
                self.now += self.tick;
                self.now
            }
            helper::GET_SMP_PROCESSOR_ID => self.cpu,
            helper::REDIRECT_MAP => self.redirect as u64,
            helper::XDP_ADJUST_TAIL => {
                let len = self.packet.len() as i64 + i64::from(r[2] as i32);
                self.packet
                    .resize(usize::try_from(len).map_err(|_| "a frame of negative length")?, 0);
                let end = PACKET as u32 + self.packet.len() as u32;
                self.context[xdp_md::DATA_END as usize..][..4].copy_from_slice(&end.to_le_bytes());
                0
            }
            helper::XDP_STORE_BYTES => {
                let octets = self.memory(r[3], r[4] as usize)?.to_vec();
                self.memory(PACKET + r[2], octets.len())?.copy_from_slice(&octets);
                0
            }
            helper::LOOP => {
                let (limit, function, context) = (r[1], r[2] as usize, r[3]);
                let mut done = 0;
                while done < limit {
                    done += 1;
                    if self.call(function, [done - 1, context])? != 0 {
                        break;
                    }
                }
                done
            }
            other => return Err(format!("unknown helper {other}")),
        })
    }

    fn memory(&mut self, address: u64, len: usize) -> Result<&mut [u8], String> {
        let bad = || format!("{len} octets at {address:#x} are outside any memory");
        let (region, offset) = match address {
            MAPS.. => {
                let map = ((address - MAPS) / MAP_STRIDE) as usize;
                (&mut self.maps.get_mut(map).ok_or_else(bad)?[..], (address - MAPS) % MAP_STRIDE)
            }
            STACKS.. => (self.stacks.as_flattened_mut(), address - STACKS),
            PACKET.. => (&mut self.packet[..], address - PACKET),
            CONTEXT.. => (&mut self.context[..], address - CONTEXT),
            _ => return Err(bad()),
        };
        region.get_mut(offset as usize..offset as usize + len).ok_or_else(bad)
    }
}

fn width(code: u8) -> usize {
    match code & 0x18 {
        0x00 => 4,
        0x08 => 2,
        0x10 => 1,
        _ => 8,
    }
}

fn arithmetic(code: u8, a: u64, b: u64, shift: u64) -> Option<u64> {
    Some(match code & 0xf0 {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        // A division by 0 results in 0, and a modulo by 0 in the dividend (RFC 9669 §4.1).
        0x30 => a.checked_div(b).unwrap_or(0),
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a << (b & shift),
        0x70 => a >> (b & shift),
        0x90 => a.checked_rem(b).unwrap_or(a),
        0xa0 => a ^ b,
        0xb0 => b,
        0xc0 if shift == 63 => ((a as i64) >> (b & shift)) as u64,
        0xc0 => ((a as i32) >> (b & shift)) as u64,
        _ => return None,
    })
}

fn holds(code: u8, a: u64, b: u64) -> Option<bool> {
    let (sa, sb) = if code & 7 == 6 {
        (i64::from(a as i32), i64::from(b as i32))
    } else {
        (a as i64, b as i64)
    };
    Some(match code & 0xf0 {
        0x00 => true,
        0x10 => a == b,
        0x20 => a > b,
        0x30 => a >= b,
        0x40 => a & b != 0,
        0x50 => a != b,
        0x60 => sa > sb,
        0x70 => sa >= sb,
        0xa0 => a < b,
        0xb0 => a <= b,
        0xc0 => sa < sb,
        0xd0 => sa <= sb,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Alu, Asm, Cond, MapKind, MapSpec, Reg::*, Size};

    #[test]
    fn a_program_computes_and_stores_its_results() {
        let mut a = Asm::new("t");
        let spec = MapSpec {
            name: "m".into(),
            kind: MapKind::Array,
            key_octets: 4,
            value_octets: 16,
            entries: 1,
            mmap: false,
        };
        let map = a.map(spec);
        let (each, short) = (a.label(), a.label());
        a.mov(R6, R1).mov(R1, 10).load_function(R2, each).mov(R3, 0).mov(R4, 0).call(helper::LOOP);
        a.load(Size::U32, R2, R6, xdp_md::DATA).load(Size::U32, R3, R6, xdp_md::DATA_END);
        a.mov(R1, R2).add(R1, 14).jump_if(Cond::Gt, R1, R3, short);
        a.mov64(R4, 0x1122_3344_5566_7788).to_big_endian(R4, 64).store(Size::U64, R2, 0, R4);
        a.bind(short)
            .load_map_value(R1, map, 8)
            .load(Size::U64, R0, R1, 0)
            .alu(Alu::Sub, R0, 1)
            .exit();
        a.function("each", each)
            .load_map_value(R3, map, 8)
            .mov(R4, 3)
            .atomic_add(Size::U64, R3, 0, R4)
            .mov(R0, 0);
        a.exit();
        let object = a.finish();
        let mut machine = Machine::new(&object);
        let mut frame = vec![0; 60];
        assert_eq!(machine.run_xdp(&mut frame), Ok(29));
        assert_eq!(frame[..8], [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
        assert_eq!(machine.run_xdp(&mut vec![0; 10]), Ok(59));
    }

    #[test]
    fn a_read_outside_of_everything_is_an_error() {
        let mut a = Asm::new("t");
        a.load(Size::U32, R2, R1, xdp_md::DATA_END).load(Size::U64, R0, R2, 0).exit();
        assert!(
            Machine::new(&a.finish())
                .run_xdp(&mut vec![0; 60])
                .unwrap_err()
                .contains("outside any memory")
        );
    }
}
