//! Aligned columns for commands that print once.

pub use squall::render::columns::{Side, table};
