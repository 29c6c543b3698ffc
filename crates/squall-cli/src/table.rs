//! Aligned columns, for commands that print once.

pub use squall_report::render::columns::{Side, table};
