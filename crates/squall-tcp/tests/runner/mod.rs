//! Packet scripts: their language, and their players.

pub mod index;
pub mod linux;
pub mod packet;
pub mod play;
pub mod script;

pub mod squall;
