//! The assembler.

use crate::{Alu, Cond, Function, Insn, MapSpec, Object, Reg, Relocation, Size, Source};

const LD_IMM64: u8 = 0x18;
const LDX_MEM: u8 = 0x61;
const ST_MEM: u8 = 0x62;
const STX_MEM: u8 = 0x63;
const STX_ATOMIC: u8 = 0xc3;
const ALU32: u8 = 0x04;
const ALU64: u8 = 0x07;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const FROM_REG: u8 = 0x08;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const TO_BIG_ENDIAN: u8 = 0xdc;

/// Values of an instruction's `src`: the meaning of its 64-bit immediate, or of its call.
const PSEUDO_MAP: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;
const PSEUDO_FUNCTION: u8 = 4;
const PSEUDO_CALL: u8 = 1;
/// BPF_PSEUDO_KFUNC_CALL
const PSEUDO_KERNEL_CALL: u8 = 2;

/// A target of jumps and calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// A map of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapId(usize);

/// Writes a program instruction by instruction.
///
/// ```
/// use squall_bpf::{Asm, Cond, Reg::*, Size, xdp_action, xdp_md};
///
/// // Frames of fewer than 60 octets are dropped.
/// let mut a = Asm::new("short");
/// let drop = a.label();
/// a.load(Size::U32, R2, R1, xdp_md::DATA);
/// a.load(Size::U32, R3, R1, xdp_md::DATA_END);
/// a.add(R2, 60).jump_if(Cond::Gt, R2, R3, drop);
/// a.mov(R0, xdp_action::PASS).exit();
/// a.bind(drop).mov(R0, xdp_action::DROP).exit();
/// assert_eq!(a.finish().insns.len(), 8);
/// ```
#[derive(Debug)]
pub struct Asm {
    name: String,
    insns: Vec<Insn>,
    /// Index of the instruction that each label is bound to.
    labels: Vec<Option<usize>>,
    /// Instructions whose offset or immediate is the distance to a label: index, label, field.
    jumps: Vec<(usize, Label, JumpField)>,
    maps: Vec<MapSpec>,
    relocations: Vec<Relocation>,
    functions: Vec<Function>,
}

/// The field that holds the distance to a label.
#[derive(Clone, Copy, Debug)]
enum JumpField {
    Offset,
    Immediate,
}

impl Asm {
    /// `name`: at most 15 letters, digits, `_`.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            insns: Vec::new(),
            labels: Vec::new(),
            jumps: Vec::new(),
            maps: Vec::new(),
            relocations: Vec::new(),
            functions: vec![Function { name: name.to_owned(), at: 0 }],
        }
    }

    pub fn map(&mut self, spec: MapSpec) -> MapId {
        self.maps.push(spec);
        MapId(self.maps.len() - 1)
    }

    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds `label` to the next instruction.
    ///
    /// # Panics
    /// If it is already bound.
    pub fn bind(&mut self, label: Label) -> &mut Self {
        let place = &mut self.labels[label.0];
        assert!(place.is_none(), "a label is bound once");
        *place = Some(self.insns.len());
        self
    }

    /// Starts a function; the previous one must have ended. A function can be called, or be a
    /// callback of `bpf_loop`.
    pub fn function(&mut self, name: &str, label: Label) -> &mut Self {
        self.functions.push(Function { name: name.to_owned(), at: self.insns.len() });
        self.bind(label)
    }

    /// An operation on 64 bits.
    pub fn alu(&mut self, op: Alu, dst: Reg, src: impl Into<Source>) -> &mut Self {
        self.arithmetic(ALU64 | op as u8, dst, src.into())
    }

    /// An operation on 32 bits; the upper half of `dst` becomes 0.
    pub fn alu32(&mut self, op: Alu, dst: Reg, src: impl Into<Source>) -> &mut Self {
        self.arithmetic(ALU32 | op as u8, dst, src.into())
    }

    fn arithmetic(&mut self, code: u8, dst: Reg, src: Source) -> &mut Self {
        match src {
            Source::Reg(src) => self.put(code | FROM_REG, dst as u8, src as u8, 0, 0),
            Source::Imm(imm) => self.put(code, dst as u8, 0, 0, imm),
        }
    }

    pub fn mov(&mut self, dst: Reg, src: impl Into<Source>) -> &mut Self {
        self.alu(Alu::Mov, dst, src)
    }

    pub fn add(&mut self, dst: Reg, src: impl Into<Source>) -> &mut Self {
        self.alu(Alu::Add, dst, src)
    }

    pub fn and(&mut self, dst: Reg, src: impl Into<Source>) -> &mut Self {
        self.alu(Alu::And, dst, src)
    }

    pub fn mul(&mut self, dst: Reg, src: impl Into<Source>) -> &mut Self {
        self.alu(Alu::Mul, dst, src)
    }

    pub fn xor(&mut self, dst: Reg, src: impl Into<Source>) -> &mut Self {
        self.alu(Alu::Xor, dst, src)
    }

    pub fn shift_left(&mut self, dst: Reg, src: impl Into<Source>) -> &mut Self {
        self.alu(Alu::Lsh, dst, src)
    }

    pub fn shift_right(&mut self, dst: Reg, src: impl Into<Source>) -> &mut Self {
        self.alu(Alu::Rsh, dst, src)
    }

    /// Converts the low 16, 32 or 64 bits to network order; the bits above become 0.
    pub fn to_big_endian(&mut self, dst: Reg, bits: i32) -> &mut Self {
        self.put(TO_BIG_ENDIAN, dst as u8, 0, 0, bits)
    }

    /// Loads a 64-bit number.
    pub fn mov64(&mut self, dst: Reg, value: u64) -> &mut Self {
        if let Ok(small) = i32::try_from(value as i64) {
            return self.mov(dst, small);
        }
        self.wide(dst, 0, value as i32, (value >> 32) as i32)
    }

    /// `dst = *(src + off)`, zero-extended.
    pub fn load(&mut self, size: Size, dst: Reg, src: Reg, off: i16) -> &mut Self {
        self.put(LDX_MEM | size as u8, dst as u8, src as u8, off, 0)
    }

    /// `*(dst + off) = src`.
    pub fn store(&mut self, size: Size, dst: Reg, off: i16, src: impl Into<Source>) -> &mut Self {
        match src.into() {
            Source::Reg(src) => self.put(STX_MEM | size as u8, dst as u8, src as u8, off, 0),
            Source::Imm(imm) => self.put(ST_MEM | size as u8, dst as u8, 0, off, imm),
        }
    }

    /// `*(dst + off) += src`, atomically; 32 or 64 bits.
    pub fn atomic_add(&mut self, size: Size, dst: Reg, off: i16, src: Reg) -> &mut Self {
        self.put(STX_ATOMIC | size as u8, dst as u8, src as u8, off, 0)
    }

    pub fn jump(&mut self, to: Label) -> &mut Self {
        self.jumps.push((self.insns.len(), to, JumpField::Offset));
        self.put(JMP, 0, 0, 0, 0)
    }

    /// Jumps after a comparison of 64 bits.
    pub fn jump_if(
        &mut self,
        cond: Cond,
        dst: Reg,
        src: impl Into<Source>,
        to: Label,
    ) -> &mut Self {
        self.branch(JMP | cond as u8, dst, src.into(), to)
    }

    /// Jumps after a comparison of the low 32 bits.
    pub fn jump_if32(
        &mut self,
        cond: Cond,
        dst: Reg,
        src: impl Into<Source>,
        to: Label,
    ) -> &mut Self {
        self.branch(JMP32 | cond as u8, dst, src.into(), to)
    }

    fn branch(&mut self, code: u8, dst: Reg, src: Source, to: Label) -> &mut Self {
        self.jumps.push((self.insns.len(), to, JumpField::Offset));
        self.arithmetic(code, dst, src)
    }

    /// Calls a kernel helper (see [`crate::helper`]): arguments in R1 to R5, result in R0.
    pub fn call(&mut self, helper: i32) -> &mut Self {
        self.put(CALL, 0, 0, 0, helper)
    }

    /// Calls a function of this program.
    pub fn call_function(&mut self, function: Label) -> &mut Self {
        self.jumps.push((self.insns.len(), function, JumpField::Immediate));
        self.put(CALL, 0, PSEUDO_CALL, 0, 0)
    }

    /// Calls a function of the kernel by its number in the kernel's type information
    /// ([`crate::function_id`]): arguments in R1 to R5, result in R0.
    pub fn call_kernel(&mut self, function: u32) -> &mut Self {
        self.put(CALL, 0, PSEUDO_KERNEL_CALL, 0, function as i32)
    }

    pub fn exit(&mut self) -> &mut Self {
        self.put(EXIT, 0, 0, 0, 0)
    }

    /// Loads a reference to the map, for helpers.
    pub fn load_map(&mut self, dst: Reg, map: MapId) -> &mut Self {
        self.relocations.push(Relocation { insn: self.insns.len(), map: map.0, offset: None });
        self.wide(dst, PSEUDO_MAP, 0, 0)
    }

    /// Loads the address of octet `offset` in the value of an array with one entry, which needs
    /// neither a lookup nor a test for null.
    pub fn load_map_value(&mut self, dst: Reg, map: MapId, offset: u32) -> &mut Self {
        self.relocations.push(Relocation {
            insn: self.insns.len(),
            map: map.0,
            offset: Some(offset),
        });
        self.wide(dst, PSEUDO_MAP_VALUE, 0, offset as i32)
    }

    /// Loads a function's address, for `bpf_loop`.
    pub fn load_function(&mut self, dst: Reg, function: Label) -> &mut Self {
        self.jumps.push((self.insns.len(), function, JumpField::Immediate));
        self.wide(dst, PSEUDO_FUNCTION, 0, 0)
    }

    fn wide(&mut self, dst: Reg, src: u8, low: i32, high: i32) -> &mut Self {
        self.put(LD_IMM64, dst as u8, src, 0, low).put(0, 0, 0, 0, high)
    }

    fn put(&mut self, code: u8, dst: u8, src: u8, off: i16, imm: i32) -> &mut Self {
        self.insns.push(Insn { code, dst, src, off, imm });
        self
    }

    /// Number of instructions so far.
    pub fn len(&self) -> usize {
        self.insns.len()
    }

    pub fn is_empty(&self) -> bool {
        self.insns.is_empty()
    }

    /// Fills in the distances of jumps and calls.
    ///
    /// # Panics
    /// If a jump's label is not bound, or more than 32,767 instructions away.
    pub fn finish(mut self) -> Object {
        for (at, label, way) in self.jumps {
            let target = self.labels[label.0].expect("what is jumped to is bound");
            let distance = target as i64 - at as i64 - 1;
            match way {
                JumpField::Offset => {
                    self.insns[at].off = i16::try_from(distance).expect("jumps are short")
                }
                JumpField::Immediate => self.insns[at].imm = distance as i32,
            }
        }
        Object {
            name: self.name,
            insns: self.insns,
            maps: self.maps,
            relocations: self.relocations,
            functions: self.functions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MapKind, Reg::*};

    #[test]
    fn instructions_are_encoded_as_in_the_standard() {
        let mut a = Asm::new("t");
        a.mov(R1, 5).add(R1, R2).alu32(Alu::Rsh, R3, 16).load(Size::U16, R4, R1, 12).store(
            Size::U8,
            R10,
            -1,
            7,
        );
        a.store(Size::U64, R10, -16, R4)
            .atomic_add(Size::U64, R1, 0, R2)
            .to_big_endian(R4, 16)
            .call(5)
            .exit();
        let octets: Vec<[u8; 8]> = a.finish().insns.into_iter().map(Insn::octets).collect();
        assert_eq!(octets[0], [0xb7, 0x01, 0, 0, 5, 0, 0, 0]);
        assert_eq!(octets[1], [0x0f, 0x21, 0, 0, 0, 0, 0, 0]);
        assert_eq!(octets[2], [0x74, 0x03, 0, 0, 16, 0, 0, 0]);
        assert_eq!(octets[3], [0x69, 0x14, 12, 0, 0, 0, 0, 0]);
        assert_eq!(octets[4], [0x72, 0x0a, 0xff, 0xff, 7, 0, 0, 0]);
        assert_eq!(octets[5], [0x7b, 0x4a, 0xf0, 0xff, 0, 0, 0, 0]);
        assert_eq!(octets[6], [0xdb, 0x21, 0, 0, 0, 0, 0, 0]);
        assert_eq!(octets[7], [0xdc, 0x04, 0, 0, 16, 0, 0, 0]);
        assert_eq!(octets[8], [0x85, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!(octets[9], [0x95, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn numbers_that_do_not_fit_32_signed_bits_take_two_slots() {
        let mut a = Asm::new("t");
        a.mov64(R1, 1).mov64(R2, u64::MAX).mov64(R3, 0x8000_0000).mov64(R4, 0x1234_5678_9abc_def0);
        let insns = a.finish().insns;
        assert_eq!(insns.len(), 2 + 2 + 2);
        assert_eq!((insns[4].imm as u32, insns[5].imm as u32), (0x9abc_def0, 0x1234_5678));
    }

    #[test]
    fn jumps_and_calls_find_their_labels() {
        let mut a = Asm::new("t");
        let (back, function) = (a.label(), a.label());
        a.bind(back)
            .mov64(R1, u64::MAX / 3)
            .jump_if(Cond::Eq, R1, 0, back)
            .call_function(function)
            .exit();
        a.function("f", function).mov(R0, 0).exit();
        let object = a.finish();
        assert_eq!(object.insns[2].off, -3);
        assert_eq!((object.insns[3].src, object.insns[3].imm), (PSEUDO_CALL, 1));
        assert_eq!(object.functions[1], Function { name: "f".into(), at: 5 });
    }

    #[test]
    fn maps_are_left_to_the_loader() {
        let mut a = Asm::new("t");
        let map = a.map(MapSpec {
            name: "m".into(),
            kind: MapKind::Array,
            key_octets: 4,
            value_octets: 8,
            entries: 1,
            mmap: true,
        });
        a.load_map(R1, map).load_map_value(R2, map, 4).exit();
        let relocations = a.finish().relocations;
        assert_eq!(relocations[0], Relocation { insn: 0, map: 0, offset: None });
        assert_eq!(relocations[1], Relocation { insn: 2, map: 0, offset: Some(4) });
    }
}
