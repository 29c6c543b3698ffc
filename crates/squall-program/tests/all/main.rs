//! One binary for all of these tests, because each further one links all dependencies again.

mod fill;
mod kernel;
