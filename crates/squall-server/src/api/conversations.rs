//! Flows that a run received, by conversation and by host, as in Wireshark's *Conversations* and
//! *Endpoints*.

use std::sync::{Arc, PoisonError};

use axum::{Json, extract::State, http::StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use squall_report::conversations::{
    By, Conversation, ConversationColumn, Endpoint, EndpointColumn, Flows, MAX_ROWS, Page,
    Question, ROWS,
};

use super::{
    Asked, Named, Operation, Routes,
    runs::{known, read},
};
use crate::{Refusal, error::Detail, service::Service, threads::blocking};

pub fn routes() -> Routes {
    let doc = |summary| Operation::new("runs", summary);
    Routes::new()
        .get(
            "/squall/v1/runs/{id}/conversations",
            conversations,
            doc("List the conversations that a run received, live or from its report")
                .query::<ConversationQuery>()
                .gives::<Page<Conversation>>(),
        )
        .get(
            "/squall/v1/runs/{id}/endpoints",
            endpoints,
            doc("List what each address of a run sent and received, live or from its report")
                .query::<EndpointQuery>()
                .gives::<Page<Endpoint>>(),
        )
}

#[derive(Deserialize, JsonSchema)]
struct ConversationQuery {
    /// Rows are 5-tuples, or pairs of addresses.
    #[serde(default)]
    by: By,
    /// Filter of the flows that count: `host 10.0.0.1 and not port 53`.
    #[serde(default)]
    filter: String,
    #[serde(default)]
    sort: ConversationColumn,
    #[serde(default)]
    order: Order,
    /// Number of rows to skip.
    #[serde(default)]
    offset: usize,
    /// 1 to 10000 [default: 200].
    limit: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
struct EndpointQuery {
    /// Filter of the flows that count: `host 10.0.0.1 and not port 53`.
    #[serde(default)]
    filter: String,
    #[serde(default)]
    sort: EndpointColumn,
    #[serde(default)]
    order: Order,
    /// Number of rows to skip.
    #[serde(default)]
    offset: usize,
    /// 1 to 10000 [default: 200].
    limit: Option<usize>,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    Ascending,
    #[default]
    Descending,
}

async fn conversations(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
    Asked(query): Asked<ConversationQuery>,
) -> Result<Json<Page<Conversation>>, Refusal> {
    blocking(move || {
        let question = question(&query.filter, query.sort, query.order, query.offset, query.limit)?;
        Ok(Json(flows(&service, &id)?.conversations(query.by, &question)))
    })
    .await
}

async fn endpoints(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
    Asked(query): Asked<EndpointQuery>,
) -> Result<Json<Page<Endpoint>>, Refusal> {
    blocking(move || {
        let question = question(&query.filter, query.sort, query.order, query.offset, query.limit)?;
        Ok(Json(flows(&service, &id)?.endpoints(&question)))
    })
    .await
}

fn question<C>(
    filter: &str,
    sort: C,
    order: Order,
    offset: usize,
    limit: Option<usize>,
) -> Result<Question<C>, Refusal> {
    let filter = filter.parse().map_err(|error: squall_report::conversations::FilterError| {
        let detail = Detail {
            line: 1,
            column: error.column as u32,
            path: "filter".into(),
            message: error.message.clone(),
        };
        Refusal::bad_request("bad_filter", format!("filter: {error}")).with(vec![detail])
    })?;
    Ok(Question {
        filter,
        sort,
        descending: order == Order::Descending,
        offset,
        limit: limit.unwrap_or(ROWS).clamp(1, MAX_ROWS),
    })
}

/// The flows so far of a live run, or those in a finished run's report.
fn flows(service: &Service, id: &str) -> Result<Arc<Flows>, Refusal> {
    let none = || {
        Refusal::new(
            StatusCode::NOT_FOUND,
            "no_received_flows",
            format!(
                "run {id} does not measure received flows\n  try a run with options = \
                 {{\"received_flows\": true}}"
            ),
        )
    };
    if let Some(live) = service.runs.get(id) {
        service.renew_own_lease(&live);
        return live.received_flows()?.ok_or_else(none);
    }
    // Query the history even for a cached run, because a deleted run must not show its
    // conversations.
    if !known(id, service.history.run(id)?)?.kind.has_report() {
        return Err(none());
    }
    let mut last = service.flows.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((of, flows)) = &*last
        && of == id
    {
        return Ok(flows.clone());
    }
    let text = service.history.report(id)?;
    let text =
        text.ok_or_else(|| Refusal::not_found(format!("run {id} has no report: it failed")))?;
    let flows = Arc::new(Flows::of(&read(&text)?).ok_or_else(none)?);
    *last = Some((id.to_owned(), flows.clone()));
    Ok(flows)
}
