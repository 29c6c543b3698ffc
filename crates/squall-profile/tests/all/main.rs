//! One binary for all tests, because each further one is linked with all dependencies again.

mod examples;
mod forms;
mod mistakes;
