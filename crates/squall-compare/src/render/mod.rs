//! A [`Comparison`](crate::Comparison) made visible.

mod html;
mod text;

pub use html::html;
pub use text::summary;

#[cfg(test)]
pub(super) mod sample;
