//! `/squall/v1`: the native API.

mod conversations;
mod extract;
mod files;
mod hosts;
mod info;
mod openapi;
pub mod ports;
mod routes;
mod runs;
mod trials;

pub use extract::{Asked, Body, Named, Optional};

pub use openapi::document;
pub use routes::{Operation, Routes};

use std::sync::Arc;

use axum::Router;

use crate::{audit, design, metrics, service::Service, watch};

/// All operations. Routes and documentation come from this one table.
pub fn routes() -> Routes {
    Routes::new()
        .and(info::routes())
        .and(audit::routes())
        .and(ports::routes())
        .and(runs::routes())
        .and(trials::routes())
        .and(conversations::routes())
        .and(hosts::routes())
        .and(files::routes())
        .and(watch::routes())
        .and(metrics::routes())
        .and(openapi::routes())
        .and(design::routes())
}

pub fn router() -> Router<Arc<Service>> {
    routes().router
}

/// A Python script that runs the given profile (TOML).
pub fn python(toml: &str) -> String {
    let quoted = toml.replace('\\', "\\\\").replace("\"\"\"", "\\\"\\\"\\\"");
    format!(
        "import squall\n\nprofile = squall.Profile.from_toml(\"\"\"\n{quoted}\"\"\")\nreport = \
         squall.run(profile)\nprint(report)\n"
    )
}
