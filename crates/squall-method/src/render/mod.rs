//! Renders an outcome as text, HTML, CSV and JUnit XML.

mod csv;
mod html;
mod junit;
mod text;

pub use csv::csv;
pub use html::html;
pub use junit::junit;
pub use text::{changes, text, trial_line};
