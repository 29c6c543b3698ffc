//! Routes together with their descriptions in openapi.json, so that the two cannot differ.

use std::sync::Arc;

use axum::{
    Router,
    handler::Handler,
    http::Method,
    routing::{MethodFilter, on},
};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::service::Service;

pub type MakeSchema = fn(&mut SchemaGenerator) -> Schema;

/// Routes and their descriptions.
#[derive(Default)]
pub struct Routes {
    pub router: Router<Arc<Service>>,
    pub operations: Vec<Operation>,
}

/// The description of a route in openapi.json.
pub struct Operation {
    pub method: Method,
    /// `/squall/v1/runs/{id}`
    pub path: &'static str,
    pub summary: &'static str,
    pub tag: &'static str,
    /// A type whose properties are the query parameters.
    pub query: Option<MakeSchema>,
    pub body: Option<Content>,
    /// Whether the body may be absent.
    pub may_be_empty: bool,
    pub status: u16,
    pub reply: Content,
}

/// The content of a body.
#[derive(Clone, Copy)]
pub enum Content {
    Json(MakeSchema),
    /// Octets of this media type.
    Octets(&'static str),
    Nothing,
}

impl Operation {
    /// An operation that replies with 200 and no content. The methods below change that.
    pub fn new(tag: &'static str, summary: &'static str) -> Self {
        Self {
            method: Method::GET,
            path: "",
            summary,
            tag,
            query: None,
            body: None,
            may_be_empty: false,
            status: 200,
            reply: Content::Nothing,
        }
    }

    pub fn query<T: JsonSchema>(self) -> Self {
        Self { query: Some(|generator| generator.root_schema_for::<T>()), ..self }
    }

    pub fn takes<T: JsonSchema>(self) -> Self {
        Self { body: Some(Content::Json(|generator| generator.subschema_for::<T>())), ..self }
    }

    /// As [`Operation::takes`], but the body is optional.
    pub fn may_take<T: JsonSchema>(self) -> Self {
        Self { may_be_empty: true, ..self.takes::<T>() }
    }

    pub fn takes_octets(self) -> Self {
        Self { body: Some(Content::Octets("application/octet-stream")), may_be_empty: true, ..self }
    }

    pub fn gives<T: JsonSchema>(self) -> Self {
        Self { reply: Content::Json(|generator| generator.subschema_for::<T>()), ..self }
    }

    pub fn gives_octets(self, media: &'static str) -> Self {
        Self { reply: Content::Octets(media), ..self }
    }

    pub fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }
}

impl Routes {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn get<H: Handler<T, Arc<Service>>, T: 'static>(
        self,
        path: &'static str,
        handler: H,
        doc: Operation,
    ) -> Self {
        self.on(Method::GET, path, handler, doc)
    }

    pub fn post<H: Handler<T, Arc<Service>>, T: 'static>(
        self,
        path: &'static str,
        handler: H,
        doc: Operation,
    ) -> Self {
        self.on(Method::POST, path, handler, doc)
    }

    /// Adds a route.
    ///
    /// # Panics
    ///
    /// If the combination of path and method exists already.
    pub fn on<H: Handler<T, Arc<Service>>, T: 'static>(
        mut self,
        method: Method,
        path: &'static str,
        handler: H,
        doc: Operation,
    ) -> Self {
        let filter = MethodFilter::try_from(method.clone()).expect("a method of HTTP");
        self.router = self.router.route(path, on(filter, handler));
        self.operations.push(Operation { method, path, ..doc });
        self
    }

    pub fn and(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.operations.extend(other.operations);
        self
    }
}
