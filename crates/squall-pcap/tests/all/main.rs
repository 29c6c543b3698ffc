//! A single binary, because each binary is linked with all dependencies. `broken.rs` is separate,
//! because it measures the memory of its process.

mod batch;
mod captures;
#[path = "../octets/mod.rs"]
mod octets;
