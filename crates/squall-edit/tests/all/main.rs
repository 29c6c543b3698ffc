//! One binary, since each further one would be linked with all dependencies.

mod golden;
mod groups;
mod links;
mod packets;
mod properties;
mod sctp;
