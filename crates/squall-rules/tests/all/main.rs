//! A single binary for all tests, because each binary is linked with all dependencies.

mod forms;
mod lines;
