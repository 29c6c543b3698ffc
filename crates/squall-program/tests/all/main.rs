//! One binary for all of these tests, because every binary is linked with all dependencies.

mod fill;
mod kernel;
