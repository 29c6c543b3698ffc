//! One binary for all tests, since each binary links all dependencies again.

mod forms;
mod lines;
