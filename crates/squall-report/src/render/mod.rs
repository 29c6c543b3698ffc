//! Views of a [`Report`](crate::report::Report): an HTML file, text tables, and a live view during
//! the run.
//!
//! Shows the values of the report. Only sums and agreements that the JSON lacks are computed here.

mod attack;
pub mod columns;
mod flow_page;
mod flows;
mod host_page;
mod hosts;
mod html;
pub mod human;
mod info;
mod live;
mod overview;
pub mod page;
mod received_flows;
mod replay;
mod routers;
mod routes;
mod rows;
mod screen;
pub mod table;
mod text;

pub use attack::{attack, one_attack};
pub use flows::conversations;
pub use html::html;
pub use info::{info_html, info_table, info_text};
pub use live::{Live, LiveMode};
pub use overview::{Overview, RunLine, Selected, Tone};
pub use received_flows::received_flows;
pub use replay::replay;
pub use routers::one as one_router;
pub use rows::{PortRow, StreamRow};
pub use screen::Screen;
pub use table::{own_colors, terminal};
pub use text::{reasons, summary};

#[cfg(test)]
pub(crate) mod sample;
