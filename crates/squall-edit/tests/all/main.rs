//! One binary for all of these, as each more is linked with all that it needs.

mod golden;
mod groups;
mod links;
mod packets;
mod properties;
mod sctp;
