//! All tests are in one binary, because every binary is linked with all dependencies.

mod bytes;
mod plain;
mod properties;
mod syntax;
