//! One binary for all of these, as each more is linked with all that it needs.

mod answers;
mod common;
mod import;
mod mistakes;
mod programs;
mod tls;
