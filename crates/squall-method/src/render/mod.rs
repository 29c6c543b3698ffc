//! Renders an outcome as text, HTML, CSV and JUnit XML, and in the formats of CSIT and NFVbench.

mod csit;
mod csv;
mod html;
mod junit;
mod nfvbench;
mod text;

pub use csit::csit;
pub use csv::csv;
pub use html::html;
pub use junit::junit;
pub use nfvbench::nfvbench;
pub use text::{changes, text, trial_line};
