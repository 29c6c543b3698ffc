//! One binary for all of these, as each more is linked with all that it needs; but for the packet
//! scripts, which have a runner of their own.

mod common;
mod pair;
mod properties;
mod script_language;
