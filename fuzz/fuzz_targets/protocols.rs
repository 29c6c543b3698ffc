#![no_main]
//! Readers of the application layer: any octets of both sides, in pieces of any size, cause no
//! panic, and buffers stay within their limits. Input: the protocol and (highest bit) the
//! transport, octets per piece minus one, pieces of client and server in turn.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| squall_ids::read_any_octets(data));
