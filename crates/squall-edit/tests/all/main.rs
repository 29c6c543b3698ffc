//! A single binary for all tests, because each binary is linked with all dependencies.

mod addresses;
mod golden;
mod groups;
mod links;
mod packets;
mod properties;
mod sctp;
