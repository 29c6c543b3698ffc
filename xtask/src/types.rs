//! The types that a JSON schema defines, in the form that code generators need: in order of
//! declaration, with descriptions.

use serde_json::{Map, Value};

/// Keys that are required in their profile tables, which have no meaning without them.
pub const NEEDED: &[&str] = &["Vary.op"];

pub struct Definition {
    pub name: String,
    /// Paragraphs.
    pub doc: Vec<String>,
    pub shape: Shape,
}

pub enum Shape {
    Object(Vec<Field>),
    /// One of several texts, each with its description.
    Words(Vec<(String, Vec<String>)>),
    Other(Type),
}

pub struct Field {
    pub name: String,
    pub doc: Vec<String>,
    /// The schema's name for this kind of value, such as `Time`.
    pub kind: Option<String>,
    pub is: Type,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    Text,
    Integer,
    Number,
    Truth,
    /// One of these strings.
    Words(Vec<String>),
    /// The definition with this name.
    Named(String),
    List(Box<Type>),
    Tuple(Vec<Type>),
    Table(Box<Type>),
    Either(Vec<Type>),
    /// The type, or `null`.
    Optional(Box<Type>),
    Unknown,
}

/// The root of the schema, if it has a title, and the definitions that it refers to.
pub fn of_schema(schema: &Value) -> Vec<Definition> {
    let title = schema["title"].as_str().map(|title| definition(title, schema));
    let definitions = schema["$defs"].as_object().into_iter().flatten();
    title.into_iter().chain(definitions.map(|(name, schema)| definition(name, schema))).collect()
}

/// The tables that a schema defines inline and that have a title. Outer tables come first.
pub fn of_tables(schema: &Value) -> Vec<Definition> {
    let mut found: Vec<Definition> = Vec::new();
    tables(schema, &mut found);
    found
}

fn tables(schema: &Value, found: &mut Vec<Definition>) {
    match schema {
        Value::Object(members) => {
            if let (Some(title), true) =
                (schema["title"].as_str(), schema["properties"].is_object())
                && !found.iter().any(|known| known.name == title)
            {
                found.push(definition(title, schema));
            }
            members.values().for_each(|value| tables(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| tables(value, found)),
        _ => {}
    }
}

/// The definitions that responses in an OpenAPI document refer to. Those used only by requests are
/// omitted.
pub fn of_answers(openapi: &Value) -> Vec<Definition> {
    let schemas = openapi["components"]["schemas"].as_object().expect("OpenAPI has components");
    let mut wanted = Vec::new();
    let operations = openapi["paths"].as_object().into_iter().flatten();
    for operation in operations.flat_map(|(_, path)| path.as_object().into_iter().flatten()) {
        references(&operation.1["responses"], &mut wanted);
    }
    references(&openapi["components"]["responses"], &mut wanted);
    let mut next = 0;
    while let Some(name) = wanted.get(next).cloned() {
        if let Some(schema) = schemas.get(&name) {
            references(schema, &mut wanted);
        }
        next += 1;
    }
    let answers = schemas.iter().filter(|(name, _)| wanted.contains(name));
    answers.map(|(name, schema)| definition(name, schema)).collect()
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if let Some(name) = members.get("$ref").and_then(Value::as_str).map(last)
                && !found.contains(&name)
            {
                found.push(name);
            }
            members.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

fn definition(name: &str, schema: &Value) -> Definition {
    let fields = |properties: &Map<String, Value>| {
        let field = |(name, schema): (&String, &Value)| Field {
            name: name.clone(),
            doc: paragraphs(schema),
            kind: schema["title"].as_str().map(String::from),
            is: type_of(schema),
        };
        properties.iter().map(field).collect()
    };
    let shape = match (schema["properties"].as_object(), words(schema)) {
        (Some(properties), _) => Shape::Object(fields(properties)),
        (None, Some(words)) => Shape::Words(words),
        (None, None) => Shape::Other(type_of(schema)),
    };
    Definition { name: name.to_owned(), doc: paragraphs(schema), shape }
}

/// The values of an enum without data: `enum` if no variant has a description, `oneOf` if some have
/// one.
fn words(schema: &Value) -> Option<Vec<(String, Vec<String>)>> {
    if let Some(one) = schema["const"].as_str() {
        return Some(vec![(one.to_owned(), paragraphs(schema))]);
    }
    if let Some(list) = schema["enum"].as_array() {
        return list.iter().map(|word| Some((word.as_str()?.to_owned(), Vec::new()))).collect();
    }
    let variants: Option<Vec<_>> = schema["oneOf"].as_array()?.iter().map(words).collect();
    Some(variants?.concat())
}

fn type_of(schema: &Value) -> Type {
    if let Some(reference) = schema["$ref"].as_str() {
        return Type::Named(last(reference));
    }
    if let (Some(title), true) = (schema["title"].as_str(), schema["properties"].is_object()) {
        return Type::Named(title.to_owned());
    }
    if let Some(list) = schema["anyOf"].as_array() {
        let is_null = |schema: &&Value| schema["type"] == "null";
        let one = either(list.iter().filter(|s| !is_null(s)).map(type_of).collect());
        return if list.iter().any(|s| is_null(&s)) { optional(one) } else { one };
    }
    match &schema["type"] {
        Value::String(name) => named(name, schema),
        Value::Array(names) => {
            let names: Vec<_> = names.iter().filter_map(Value::as_str).collect();
            let types = names.iter().filter(|name| **name != "null");
            let one = either(types.map(|name| named(name, schema)).collect());
            if names.contains(&"null") { optional(one) } else { one }
        }
        Value::Null => words(schema).map_or(Type::Unknown, |words| {
            Type::Words(words.into_iter().map(|(word, _)| word).collect())
        }),
        _ => Type::Unknown,
    }
}

fn either(types: Vec<Type>) -> Type {
    <[Type; 1]>::try_from(types).map_or_else(Type::Either, |[one]| one)
}

fn optional(is: Type) -> Type {
    Type::Optional(Box::new(is))
}

fn named(name: &str, schema: &Value) -> Type {
    match name {
        "string" => Type::Text,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Truth,
        "array" => match schema["prefixItems"].as_array() {
            Some(items) => Type::Tuple(items.iter().map(type_of).collect()),
            None => Type::List(Box::new(type_of(&schema["items"]))),
        },
        "object" => Type::Table(Box::new(type_of(&schema["additionalProperties"]))),
        _ => Type::Unknown,
    }
}

fn last(reference: &str) -> String {
    reference.rsplit('/').next().unwrap_or_default().to_owned()
}

/// The paragraphs of a description, each as one line.
fn paragraphs(schema: &Value) -> Vec<String> {
    let text = schema["description"].as_str().unwrap_or_default();
    let lines =
        text.split("\n\n").map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).collect()
}

/// Appends `text` to `out` in lines of at most `width` columns, with `indent` before each.
pub fn fill(out: &mut String, text: &str, indent: &str, width: usize) {
    let mut line = String::from(indent);
    for word in text.split(' ') {
        let joined = line.chars().count() + 1 + word.chars().count();
        if line.len() > indent.len() && joined > width {
            out.push_str(&line);
            out.push('\n');
            line = String::from(indent);
        }
        if line.len() > indent.len() {
            line.push(' ');
        }
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

/// Converts `[`A::b`]`, a rustdoc link, to ``A.b``.
pub fn without_links(text: &str) -> String {
    let mut parts = text.split("[`");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (link, rest) = part.split_once("`]").expect("a link of rustdoc ends with `]");
        out.extend(["`", &link.replace("::", "."), "`", rest]);
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_way_to_write_an_optional_value_is_read() {
        let optional = |is| Type::Optional(Box::new(is));
        assert_eq!(type_of(&json!({ "type": ["integer", "null"] })), optional(Type::Integer));
        let reference = json!({ "anyOf": [{ "$ref": "#/$defs/Host" }, { "type": "null" }] });
        assert_eq!(type_of(&reference), optional(Type::Named("Host".into())));
    }

    #[test]
    fn tables_in_place_are_named_by_their_titles() {
        let inner = json!({ "type": "object", "title": "Mode", "properties": {
            "gap": { "type": ["string", "number"], "title": "Time" },
            "end": { "enum": ["gap", "frame"] },
        } });
        let schema = json!({ "type": "object", "title": "Stream", "properties": {
            "mode": { "anyOf": [{ "const": "continuous" }, inner] },
        } });
        let found = of_tables(&schema);
        let names: Vec<_> = found.iter().map(|definition| definition.name.as_str()).collect();
        assert_eq!(names, ["Stream", "Mode"]);
        let fields = |definition: &Definition| match &definition.shape {
            Shape::Object(fields) => {
                fields.iter().map(|f| (f.kind.clone(), f.is.clone())).collect()
            }
            _ => Vec::new(),
        };
        let word = |word: &str| Type::Words(vec![word.into()]);
        let mode = Type::Either(vec![word("continuous"), Type::Named("Mode".into())]);
        assert_eq!(fields(&found[0]), [(None, mode)]);
        let time = Type::Either(vec![Type::Text, Type::Number]);
        let end = Type::Words(vec!["gap".into(), "frame".into()]);
        assert_eq!(fields(&found[1]), [(Some("Time".into()), time), (None, end)]);
    }

    #[test]
    fn answers_are_there_with_what_they_refer_to_and_requests_are_not() {
        let content =
            |name: &str| json!({ "schema": { "$ref": format!("#/components/schemas/{name}") } });
        let openapi = json!({
            "paths": { "/a": { "post": { "requestBody": content("Asked"), "responses": { "200": content("Given") } } } },
            "components": { "schemas": {
                "Asked": { "type": "object" },
                "Given": { "type": "object", "properties": { "part": { "$ref": "#/components/schemas/Part" } } },
                "Part": { "type": "string" },
            } },
        });
        let names: Vec<_> = of_answers(&openapi).into_iter().map(|d| d.name).collect();
        assert_eq!(names, ["Given", "Part"]);
    }

    #[test]
    fn text_is_filled_to_its_width() {
        let mut out = String::new();
        fill(&mut out, "one two three", "  ", 9);
        assert_eq!(out, "  one two\n  three\n");
    }
}
