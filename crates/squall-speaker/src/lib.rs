//! Routers that speak BGP on a port, without a routing daemon: frames and the time go in, frames
//! come out.
//!
//! A [`Speaker`] holds routers with their addresses, each with sessions of `squall-bgp` over flows
//! of `squall-tcp`. It resolves and answers for addresses (ARP, neighbor discovery), answers echo
//! requests, announces groups of routes, and keeps the routes that it learns. All sessions share
//! one copy of the packed routes, except of groups whose routes have different attributes
//! ([`RouteSets`]); a session queues few of them at a time, and the rest follows as the peer
//! acknowledges. Has no clock, no port and no threads, and forwards no traffic.
#![forbid(unsafe_code)]

mod connections;
mod link;
mod peers;
mod speaker;

pub use peers::{Peer, Prefixes, RouteSets, SpeakerGroup};
pub use speaker::{Order, Speaker, SpeakerPeer, SpeakerRouter, SpeakerSettings};
