//! Type information (BTF): that of a program's functions, without which the kernel accepts no
//! callback, and the numbers of the kernel's own functions.

use crate::Function;

const MAGIC: u16 = 0xeb9f;
const HEADER: u32 = 24;
const KIND_INT: u32 = 1;
const KIND_PTR: u32 = 2;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const SIGNED: u32 = 1 << 24;

// Types are numbered in the order in which they are written, from 1.
const INT: u32 = 1;
const POINTER: u32 = 2;
const MAIN: u32 = 3;
const CALLBACK: u32 = 4;
const FIRST_FUNCTION: u32 = 5;

/// The number of the function `name` in `btf`, such as the content of /sys/kernel/btf/vmlinux: a
/// program calls a function of the kernel by it ([`crate::Asm::call_kernel`]). `None` if `btf` has
/// no such function, or is damaged (Documentation/bpf/btf.rst, in the byte order of this machine).
///
/// ```
/// use squall_bpf::{Function, function_id, functions_btf};
/// let (btf, info) = functions_btf(&[Function { name: "squall_recv".into(), at: 0 }]);
/// assert_eq!(function_id(&btf, "squall_recv"), Some(info[0][1]));
/// assert_eq!(function_id(&btf, "squall"), None);
/// ```
pub fn function_id(btf: &[u8], name: &str) -> Option<u32> {
    let word = |octets: &[u8], at: usize| -> Option<u32> {
        octets.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
    };
    if btf.first_chunk().map(|magic| u16::from_ne_bytes(*magic)) != Some(MAGIC) {
        return None;
    }
    // struct btf_header: magic, version, flags, hdr_len; then offset and length of types and of
    // strings, from the end of the header.
    let header = word(btf, 4)? as usize;
    let section = |at: usize| {
        let start = header.checked_add(word(btf, at)? as usize)?;
        btf.get(start..)?.get(..word(btf, at + 4)? as usize)
    };
    let (mut types, strings) = (section(8)?, section(16)?);
    let mut id = 1;
    while !types.is_empty() {
        // struct btf_type: name_off, info (number of members, kind), size or type.
        let info = word(types, 4)?;
        let (kind, members) = (info >> 24 & 0x1f, info as usize & 0xffff);
        if kind == KIND_FUNC {
            let text = strings.get(word(types, 0)? as usize..)?;
            if text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0)) {
                return Some(id);
            }
        }
        types = types.get(TYPE + octets_after(kind, members)?..)?;
        id += 1;
    }
    None
}

/// Size of `struct btf_type`.
const TYPE: usize = 12;

/// Octets that follow the `btf_type` of a type with `members` members; `None` for a kind that this
/// code does not know, because then nothing tells where the next type begins.
fn octets_after(kind: u32, members: usize) -> Option<usize> {
    // enum of BTF_KIND_*: INT 1, PTR, ARRAY, STRUCT, UNION, ENUM, FWD, TYPEDEF, VOLATILE, CONST,
    // RESTRICT, FUNC, FUNC_PROTO, VAR, DATASEC 15, FLOAT, DECL_TAG, TYPE_TAG, ENUM64 19.
    match kind {
        KIND_INT | 14 | 17 => Some(4),
        3 => Some(12),
        4 | 5 | 15 | 19 => Some(12 * members),
        6 | KIND_FUNC_PROTO => Some(8 * members),
        KIND_PTR | 7..=11 | KIND_FUNC | 16 | 18 => Some(0),
        _ => None,
    }
}

/// BTF for `functions`: the first is an `int (void *)`, the others `int (int, void *)`. Also
/// returns the first instruction and the type of each function, as `func_info` for BPF_PROG_LOAD.
pub fn functions_btf(functions: &[Function]) -> (Vec<u8>, Vec<[u32; 2]>) {
    let mut strings = vec![0];
    let mut name = |text: &str| {
        let at = strings.len() as u32;
        strings.extend(text.as_bytes());
        strings.push(0);
        at
    };
    let (int, index, context) = (name("int"), name("index"), name("context"));
    let mut types: Vec<u32> = Vec::new();
    types.extend([int, KIND_INT << 24, 4, SIGNED | 32]);
    types.extend([0, KIND_PTR << 24, 0]);
    types.extend([0, KIND_FUNC_PROTO << 24 | 1, INT, context, POINTER]);
    types.extend([0, KIND_FUNC_PROTO << 24 | 2, INT, index, INT, context, POINTER]);
    for (i, function) in functions.iter().enumerate() {
        types.extend([name(&function.name), KIND_FUNC << 24, if i == 0 { MAIN } else { CALLBACK }]);
    }
    let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut btf = Vec::new();
    btf.extend(MAGIC.to_ne_bytes());
    btf.extend([1, 0]);
    for word in [HEADER, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
        btf.extend(word.to_ne_bytes());
    }
    btf.extend(types);
    btf.extend(strings);
    let info = functions
        .iter()
        .enumerate()
        .map(|(i, f)| [f.at as u32, FIRST_FUNCTION + i as u32])
        .collect();
    (btf, info)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions() -> Vec<Function> {
        ["one", "two", "twofold"]
            .iter()
            .enumerate()
            .map(|(at, name)| Function { name: (*name).into(), at })
            .collect()
    }

    #[test]
    fn functions_are_found_by_their_whole_name() {
        let (btf, info) = functions_btf(&functions());
        for (function, [_, id]) in functions().iter().zip(info) {
            assert_eq!(function_id(&btf, &function.name), Some(id), "{}", function.name);
        }
        for unknown in ["twof", "three", "int", ""] {
            assert_eq!(function_id(&btf, unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn types_of_every_kind_are_stepped_over() {
        let (plain, _) = functions_btf(&functions());
        let word = |at: usize| u32::from_ne_bytes(*plain[at..].first_chunk().unwrap()) as usize;
        let (types, strings) = (word(12), word(20));
        // A type of each kind with three members, in front of those that `functions_btf` makes.
        let mut before: Vec<u8> = Vec::new();
        for kind in 1..20u32 {
            before.extend([1, kind << 24 | 3, 0].iter().flat_map(|word: &u32| word.to_ne_bytes()));
            before.resize(before.len() + octets_after(kind, 3).unwrap(), 0xee);
        }
        let mut btf = plain[..8].to_vec();
        let octets = before.len() + types;
        for word in [0, octets, octets, strings] {
            btf.extend((word as u32).to_ne_bytes());
        }
        btf.extend(&before);
        btf.extend(&plain[HEADER as usize..]);
        // Nineteen types, then the four of `functions_btf` and the first function.
        assert_eq!(function_id(&btf, "two"), Some(19 + FIRST_FUNCTION + 1));
        // The FUNC in front is called "int", the first string.
        assert_eq!(function_id(&btf, "int"), Some(KIND_FUNC));
    }

    #[test]
    fn damaged_types_have_no_functions() {
        let (btf, _) = functions_btf(&functions());
        for end in 0..btf.len() {
            assert_eq!(function_id(&btf[..end], "twofold"), None, "{end} octets");
        }
        let mut other = btf.clone();
        other[0] ^= 1;
        assert_eq!(function_id(&other, "one"), None);
        // The first type gets a kind that does not exist.
        let mut unknown = btf;
        unknown[HEADER as usize + 4..][..4].copy_from_slice(&(30u32 << 24).to_ne_bytes());
        assert_eq!(function_id(&unknown, "one"), None);
    }
}
