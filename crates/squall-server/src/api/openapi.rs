//! openapi.json, generated from the table of routes and from the types of the bodies.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    Asked, Operation, Routes,
    routes::{Content, MakeSchema},
};
use crate::{error::Refused, log::Entry, service::Service};

pub fn routes() -> Routes {
    let doc = |summary| Operation::new("daemon", summary);
    Routes::new()
        .get(
            "/squall/v1/requests",
            requests,
            doc("List the latest requests, newest first").query::<Query>().gives::<Requests>(),
        )
        .get(
            "/squall/v1/openapi.json",
            openapi,
            doc("Get this description").gives_octets("application/json"),
        )
}

#[derive(Deserialize, JsonSchema)]
struct Query {
    /// 1 to 1000 [default: 100].
    limit: Option<usize>,
    /// Only requests after this number.
    after: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
struct Requests {
    requests: Vec<Entry>,
}

async fn requests(
    State(service): State<Arc<Service>>,
    Asked(query): Asked<Query>,
) -> Json<Requests> {
    let limit = query.limit.unwrap_or(100).clamp(1, 1000);
    Json(Requests { requests: service.log.latest(limit, query.after.unwrap_or(0)) })
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document()).into_response()
}

/// The text of schemas/openapi.json.
pub fn document() -> String {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let refused = schema(&mut generator, |generator| generator.subschema_for::<Refused>());
    let mut paths: Map<String, Value> = Map::new();
    for operation in super::routes().operations {
        let method = operation.method.as_str().to_ascii_lowercase();
        // OpenAPI cannot describe a parameter that spans the rest of a path.
        let path = operation.path.replace("{*", "{");
        let described = describe(&operation, &path, &mut generator);
        paths.entry(path).or_insert_with(|| json!({}))[method] = described;
    }
    let schemas = generator.take_definitions(true);
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Squall",
            "version": "v1",
            "description": "Runs, leases of ports, files, statistics and designs of \
                            `squall serve`. Its Open Traffic Generator API has a separate \
                            description.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "https://127.0.0.1:8443" }],
        "security": [{ "token": [] }, { "cookie": [] }, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "cookie": { "type": "apiKey", "in": "cookie", "name": "squall" },
            },
            "responses": {
                "Refused": {
                    "description": "The request was refused, with the reason.",
                    "content": { "application/json": { "schema": refused } },
                },
            },
            "schemas": schemas,
        },
    });
    format!("{document:#}\n")
}

fn schema(generator: &mut SchemaGenerator, make: MakeSchema) -> Value {
    make(generator).to_value()
}

fn describe(operation: &Operation, path: &str, generator: &mut SchemaGenerator) -> Value {
    let mut parameters: Vec<Value> = path
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split('}').next())
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    if let Some(query) = operation.query {
        let of = schema(generator, query);
        let required = |name: &str| {
            of["required"].as_array().is_some_and(|list| list.iter().any(|one| one == name))
        };
        for (name, schema) in of["properties"].as_object().into_iter().flatten() {
            let mut schema = schema.clone();
            let description =
                schema.as_object_mut().and_then(|schema| schema.remove("description"));
            let mut parameter = json!({ "name": name, "in": "query", "required": required(name), "schema": schema });
            if let Some(description) = description {
                parameter["description"] = description;
            }
            parameters.push(parameter);
        }
    }
    let content = |content: Content, generator: &mut SchemaGenerator| match content {
        Content::Json(make) => {
            Some(json!({ "application/json": { "schema": schema(generator, make) } }))
        }
        Content::Octets(media) => Some(json!({ media: {} })),
        Content::Nothing => None,
    };
    let mut reply = json!({ "description": "Done." });
    if let Some(content) = content(operation.reply, generator) {
        reply["content"] = content;
    }
    let words: Vec<_> =
        path.split(['/', '{', '}', '.']).filter(|word| !word.is_empty()).skip(2).collect();
    let mut described = json!({
        "operationId": format!("{}_{}", operation.method.as_str().to_ascii_lowercase(), words.join("_")),
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": parameters,
        "responses": {
            operation.status.to_string(): reply,
            "default": { "$ref": "#/components/responses/Refused" },
        },
    });
    if let Some(body) = operation.body.and_then(|body| content(body, generator)) {
        described["requestBody"] = json!({ "required": !operation.may_be_empty, "content": body });
    }
    described
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_somewhere_and_every_operation_has_a_name_of_its_own() {
        let document: Value = serde_json::from_str(&document()).expect("JSON");
        let mut references = Vec::new();
        collect(&document, &mut references);
        assert!(references.len() > 50);
        for reference in references {
            let pointer = reference.strip_prefix('#').expect("within the document");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        let operations = document["paths"]
            .as_object()
            .expect("paths")
            .values()
            .flat_map(|path| path.as_object().expect("methods").values());
        let mut names: Vec<_> = operations
            .map(|operation| operation["operationId"].as_str().expect("a name"))
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    fn collect(value: &Value, references: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                references.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                members.values().for_each(|value| collect(value, references));
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, references)),
            _ => {}
        }
    }
}
