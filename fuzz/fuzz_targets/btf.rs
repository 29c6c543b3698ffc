#![no_main]
//! Type information of a kernel: a function that is found has a number within the types, and nothing
//! panics. Input: the function's name, a zero octet, the type information.

use libfuzzer_sys::fuzz_target;
use squall_bpf::function_id;

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|octet| *octet == 0).unwrap_or(data.len());
    let (name, btf) = (String::from_utf8_lossy(&data[..end]), data.get(end + 1..));
    let btf = btf.unwrap_or_default();
    if let Some(id) = function_id(btf, &name) {
        // A type takes 12 octets or more.
        assert!(id >= 1 && id as usize <= btf.len() / 12, "{name}: {id}");
    }
});
