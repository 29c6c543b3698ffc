//! One binary, since each further one would be linked with all dependencies.

mod answers;
mod common;
mod import;
mod mistakes;
mod programs;
mod tls;
