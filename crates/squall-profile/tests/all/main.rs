//! A single binary for all tests, because each binary is linked with all dependencies again.

mod examples;
mod forms;
mod mistakes;
