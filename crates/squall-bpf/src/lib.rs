//! eBPF programs as values. Input: instructions, one by one ([`Asm`]). Output: an [`Object`] to
//! load into the kernel: instructions, the maps that they refer to, and functions.
//!
//! Depends only on the instruction set (RFC 9669): no system calls, no packets, no clock. Squall's
//! programs are short and differ from run to run, so an assembler suits them better than a compiler
//! in the build.
#![forbid(unsafe_code)]

mod asm;
mod btf;
pub mod classic;
mod insn;
pub mod interpret;
pub mod owner;
mod reduce;
pub mod tracepoints;

pub use asm::{Asm, Label, MapId};
pub use btf::{function_id, functions_btf};
pub use insn::{Alu, Cond, Insn, Reg, Size, Source};

/// A program with everything needed to load it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// At most 15 octets, the kernel's limit.
    pub name: String,
    pub insns: Vec<Insn>,
    pub maps: Vec<MapSpec>,
    /// Instructions that refer to a map.
    pub relocations: Vec<Relocation>,
    /// In ascending order of their instructions; the first is the program itself.
    pub functions: Vec<Function>,
}

/// A map to create before the program is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapSpec {
    /// At most 15 octets.
    pub name: String,
    pub kind: MapKind,
    pub key_octets: u32,
    pub value_octets: u32,
    pub entries: u32,
    /// Whether its values can be mapped into memory; for arrays only.
    pub mmap: bool,
}

/// `enum bpf_map_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    Hash = 1,
    Array = 2,
    PerCpuArray = 6,
    /// Values are interface indexes.
    DevMap = 14,
    /// Values are descriptors of AF_XDP sockets.
    XskMap = 17,
}

/// The 64-bit immediate at `insn` is a map, or the address of octet `offset` in the value of an
/// array with one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    pub insn: usize,
    pub map: usize,
    pub offset: Option<u32>,
}

/// A function and its first instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub at: usize,
}

/// `struct xdp_md`: offsets in the context of an XDP program.
pub mod xdp_md {
    pub const DATA: i16 = 0;
    pub const DATA_END: i16 = 4;
    pub const DATA_META: i16 = 8;
    pub const INGRESS_IFINDEX: i16 = 12;
    pub const RX_QUEUE_INDEX: i16 = 16;
}

/// Return values of an XDP program.
pub mod xdp_action {
    pub const ABORTED: i32 = 0;
    pub const DROP: i32 = 1;
    pub const PASS: i32 = 2;
    pub const TX: i32 = 3;
    pub const REDIRECT: i32 = 4;
}

/// Numbers of helper functions (`enum bpf_func_id`).
pub mod helper {
    pub const MAP_LOOKUP_ELEM: i32 = 1;
    pub const MAP_UPDATE_ELEM: i32 = 2;
    pub const MAP_DELETE_ELEM: i32 = 3;
    pub const PROBE_READ_KERNEL: i32 = 113;
    pub const KTIME_GET_NS: i32 = 5;
    pub const GET_PRANDOM_U32: i32 = 7;
    pub const GET_SMP_PROCESSOR_ID: i32 = 8;
    pub const GET_CURRENT_PID_TGID: i32 = 14;
    pub const REDIRECT: i32 = 23;
    pub const CSUM_DIFF: i32 = 28;
    pub const XDP_ADJUST_HEAD: i32 = 44;
    pub const REDIRECT_MAP: i32 = 51;
    pub const XDP_ADJUST_META: i32 = 54;
    pub const XDP_ADJUST_TAIL: i32 = 65;
    pub const LOOP: i32 = 181;
    pub const XDP_GET_BUFF_LEN: i32 = 188;
    pub const XDP_LOAD_BYTES: i32 = 189;
    pub const XDP_STORE_BYTES: i32 = 190;
}
