//! One binary, since each further one would be linked with all dependencies; `broken.rs` has its
//! own, because it measures the memory of its process.

mod batch;
mod captures;
#[path = "../octets/mod.rs"]
mod octets;
