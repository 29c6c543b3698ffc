//! All tests are in one binary, because every binary is linked with all dependencies.
#![cfg(feature = "hello")]

mod handshakes;
mod hostile;
mod server;
