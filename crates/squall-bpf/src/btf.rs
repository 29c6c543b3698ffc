//! Type information (BTF) that declares each function as static: without it, the kernel accepts no
//! callback.

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
