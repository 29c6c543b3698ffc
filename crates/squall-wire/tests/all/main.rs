//! One binary, since each further one would be linked with all dependencies.

mod bytes;
mod plain;
mod properties;
mod syntax;
