//! The emulated hosts of a live run: pages of them, and one with its last events.

use std::sync::Arc;

use axum::{Json, extract::State};
use schemars::JsonSchema;
use serde::Deserialize;
use squall_report::host_table::{HOST_ROWS, HostDetail, HostPage, HostQuestion, MAX_HOST_ROWS};

use super::{Asked, Named, Operation, Routes, runs::live};
use crate::{Refusal, error::Detail, service::Service, threads::blocking};

pub fn routes() -> Routes {
    let doc = |summary| Operation::new("runs", summary);
    Routes::new()
        .get(
            "/squall/v1/runs/{id}/hosts",
            hosts,
            doc("List the emulated hosts of a live run").query::<HostsQuery>().gives::<HostPage>(),
        )
        .get(
            "/squall/v1/runs/{id}/hosts/{number}",
            host,
            doc("Get one emulated host of a live run, with its last events")
                .query::<HostQuery>()
                .gives::<HostDetail>(),
        )
}

#[derive(Deserialize, JsonSchema)]
struct HostsQuery {
    /// Terms that must all match: `state=bound address=10.0.1.0/24`. Keys are `state`, `group`,
    /// `number`, `mac`, `address` and `failure`; a text without a key may be in any of them. A value
    /// with spaces is in quotes: `group="hosts 1"`.
    #[serde(default)]
    filter: String,
    /// Number of matching hosts to skip.
    #[serde(default)]
    offset: usize,
    /// 1 to 10000 [default: 100].
    limit: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
struct HostQuery {
    /// Name of the group. May be omitted if the run has only one.
    group: Option<String>,
}

async fn hosts(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
    Asked(query): Asked<HostsQuery>,
) -> Result<Json<HostPage>, Refusal> {
    blocking(move || {
        let filter = query.filter.parse().map_err(|message: String| {
            let text = format!("filter: {message}");
            let detail = Detail { line: 1, column: 1, path: "filter".into(), message };
            Refusal::bad_request("bad_filter", text).with(vec![detail])
        })?;
        let limit = query.limit.unwrap_or(HOST_ROWS);
        if !(1..=MAX_HOST_ROWS).contains(&limit) {
            let text = format!("limit = {limit}: expected 1 to {MAX_HOST_ROWS}");
            return Err(Refusal::bad_request("bad_query", text));
        }
        let question = HostQuestion { filter, offset: query.offset, limit };
        live(&service, &id)?.hosts(&question).map(Json)
    })
    .await
}

async fn host(
    State(service): State<Arc<Service>>,
    Named((id, number)): Named<(String, u32)>,
    Asked(query): Asked<HostQuery>,
) -> Result<Json<HostDetail>, Refusal> {
    blocking(move || live(&service, &id)?.host(query.group.as_deref(), number).map(Json)).await
}
