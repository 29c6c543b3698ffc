//! One binary for all of these, as each more is linked with all that it needs.

mod configs;
mod frames;
mod plan;
