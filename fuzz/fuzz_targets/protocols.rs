#![no_main]
//! Parsers of application protocols: any octets from both sides, in pieces of any size, cause no
//! panic, and no buffer exceeds its limit. Input: the protocol, with the transport in the highest
//! bit; the number of octets per piece minus one; pieces from client and server in alternation.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| squall_ids::read_any_octets(data));
