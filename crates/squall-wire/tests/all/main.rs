//! One binary for all of these, as each more is linked with all that it needs.

mod bytes;
mod plain;
mod properties;
mod syntax;
