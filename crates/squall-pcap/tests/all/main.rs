//! One binary for all of these, as each more is linked with all that it needs; but for `broken.rs`,
//! which holds its process to a bound of memory.

mod batch;
mod captures;
#[path = "../octets/mod.rs"]
mod octets;
