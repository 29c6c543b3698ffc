//! Packet scripts: their language, and what plays them.

pub mod index;
pub mod linux;
pub mod packet;
pub mod play;
pub mod script;

pub mod squall;
