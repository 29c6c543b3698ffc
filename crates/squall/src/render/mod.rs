//! A [`Report`](crate::report::Report) made visible: an HTML file, text tables, and a live view while it grows.
//!
//! Renders what the report says and computes nothing that the JSON does not hold, but sums and agreements.

pub mod compare;
mod flow_page;
mod flows;
mod html;
pub mod human;
mod info;
mod live;
mod load;
pub mod page;
mod replay;
mod table;
mod text;

pub use flows::flows;
pub use html::html;
pub use info::{info_html, info_table, info_text};
pub use live::{Live, LiveMode};
pub use load::conversations;
pub use replay::replay;
pub use text::{reasons, summary};

#[cfg(test)]
pub(crate) mod sample;
