//! Instructions and their encoding (RFC 9669 §3).

/// One instruction slot, like the kernel's `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    pub code: u8,
    pub dst: u8,
    pub src: u8,
    pub off: i16,
    pub imm: i32,
}

impl Insn {
    /// The instruction in memory, in this machine's byte order.
    pub fn octets(self) -> [u8; 8] {
        let registers = if cfg!(target_endian = "little") {
            self.src << 4 | self.dst
        } else {
            self.dst << 4 | self.src
        };
        let (off, imm) = (self.off.to_ne_bytes(), self.imm.to_ne_bytes());
        [self.code, registers, off[0], off[1], imm[0], imm[1], imm[2], imm[3]]
    }
}

/// R0 is the result, calls clobber the arguments R1 to R5 and keep R6 to R9, R10 is the frame
/// pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// Width of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Size {
    U32 = 0x00,
    U16 = 0x08,
    U8 = 0x10,
    U64 = 0x18,
}

/// Arithmetic operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Div = 0x30,
    Or = 0x40,
    And = 0x50,
    Lsh = 0x60,
    Rsh = 0x70,
    Mod = 0x90,
    Xor = 0xa0,
    Mov = 0xb0,
    Arsh = 0xc0,
}

/// Comparisons, unsigned unless the name says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cond {
    Eq = 0x10,
    Gt = 0x20,
    Ge = 0x30,
    /// The operands have bits in common.
    Set = 0x40,
    Ne = 0x50,
    SignedGt = 0x60,
    SignedGe = 0x70,
    Lt = 0xa0,
    Le = 0xb0,
    SignedLt = 0xc0,
    SignedLe = 0xd0,
}

/// The second operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Reg(Reg),
    Imm(i32),
}

impl From<Reg> for Source {
    fn from(reg: Reg) -> Self {
        Self::Reg(reg)
    }
}

impl From<i32> for Source {
    fn from(imm: i32) -> Self {
        Self::Imm(imm)
    }
}
