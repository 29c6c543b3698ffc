#![no_main]
//! Readers of the application layer: any octets of both sides, in pieces of any size, never make
//! one panic, and no buffer is longer than its limit. Input: the protocol and (its highest bit) the
//! transport, octets of a piece less one, pieces of client and server in turn.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| squall_ids::read_any_octets(data));
