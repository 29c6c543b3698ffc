//! Converts a profile to Python.

use serde_json::{Map, Value};
use squall_profile::Profile;

/// Python code that builds `profile` with the package `squall`, one key per line.
pub fn python(profile: &Profile) -> String {
    let mut value = profile.to_value();
    let mut code = String::from("import squall\n\nprofile = squall.Profile(\n");
    let Value::Object(table) = &mut value else { return code + ")\n" };
    let lists = [
        ("stream", "streams", "Stream"),
        ("pool", "pools", "Pool"),
        ("template", "templates", "Template"),
        ("replay", "replays", "Replay"),
        ("attack", "attacks", "Attack"),
        ("host", "hosts", "HostGroup"),
        ("router", "routers", "Router"),
    ];
    let lists: Vec<_> = lists
        .iter()
        .filter_map(|(key, name, class)| Some((table.remove(*key)?, *name, *class)))
        .collect();
    for (key, value) in table.iter() {
        code += &format!("    {key}={},\n", literal(value));
    }
    for (list, name, class) in &lists {
        code += &format!("    {name}=[\n");
        for one in list.as_array().into_iter().flatten() {
            code += &format!("        squall.{class}(\n");
            for (key, value) in one.as_object().into_iter().flatten() {
                match value {
                    Value::Array(all) if key == "vary" => {
                        code += "            vary=[\n";
                        all.iter().filter_map(Value::as_object).for_each(|vary| {
                            code += &format!("                squall.Vary({}),\n", arguments(vary));
                        });
                        code += "            ],\n";
                    }
                    value => code += &format!("            {key}={},\n", literal(value)),
                }
            }
            code += "        ),\n";
        }
        code += "    ],\n";
    }
    code + ")\n"
}

fn arguments(table: &Map<String, Value>) -> String {
    table
        .iter()
        .map(|(key, value)| format!("{key}={}", literal(value)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A Python literal.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Number(number) => number.to_string(),
        // JSON's escapes are valid in Python strings, except those for characters above U+FFFF,
        // which are not escaped here.
        Value::String(text) => Value::from(text.as_str()).to_string(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", "))
        }
        Value::Object(table) => {
            let entry = |(key, value): (&String, &Value)| {
                format!("{}: {}", Value::from(key.as_str()), literal(value))
            };
            format!("{{{}}}", table.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}
