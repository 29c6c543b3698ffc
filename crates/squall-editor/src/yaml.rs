//! Converts a profile to YAML.

use serde_json::Value;

/// Uses block style for tables and lists of tables, flow style for everything else. Quotes text as
/// in JSON, which YAML accepts.
pub fn yaml(value: &Value) -> String {
    let mut text = String::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        entry(&mut text, "", key, value);
    }
    text
}

fn entry(text: &mut String, indent: &str, key: &str, value: &Value) {
    let key = if plain(key) { key.to_owned() } else { Value::from(key).to_string() };
    match value {
        Value::Object(table) if !table.is_empty() && indent.is_empty() => {
            *text += &format!("{indent}{key}:\n");
            table.iter().for_each(|(key, value)| entry(text, &format!("{indent}  "), key, value));
        }
        Value::Array(items) if !items.is_empty() && items.iter().all(Value::is_object) => {
            *text += &format!("{indent}{key}:\n");
            for item in items {
                let mut block = String::new();
                let inner = format!("{indent}    ");
                item.as_object()
                    .into_iter()
                    .flatten()
                    .for_each(|(key, value)| entry(&mut block, &inner, key, value));
                // The first key is on the line of the dash.
                *text += &format!("{indent}  - {}", block.strip_prefix(&inner).unwrap_or("{}\n"));
            }
        }
        value => *text += &format!("{indent}{key}: {value}\n"),
    }
}

/// Whether a key needs no quotes: YAML reads it as a string anyway.
fn plain(key: &str) -> bool {
    let word =
        key.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'_' || octet == b'-');
    let special = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    word && key.starts_with(|c: char| c.is_ascii_alphabetic())
        && !special.contains(&key.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use squall_profile::{Format, Profile};

    #[test]
    fn yaml_parses_back_to_the_same_profile() {
        let text = r#"
            duration = "1 s"
            [ports]
            A = "loop:0"
            on = "loop:1"
            [[stream]]
            port = "A"
            packet = 'eth/ipv4/udp/text("a: b # \n\"c\"")'
            rate = "1 kpps"
            size = { weights = [[64, 7], [1518, 1]] }
            mode = { bursts = 2, packets = 3, gap = "1 ms" }
            [[stream.vary]]
            field = "ipv4.src"
            op = "list"
            values = ["10.0.0.1", "10.0.0.2"]
            [[stream.vary]]
            field = "udp.sport"
            op = "increment"
            min = 1
            max = 9
        "#;
        let profile = Profile::parse(text, "p", Format::Toml).unwrap();
        let yaml = super::yaml(&profile.to_value());
        let again = Profile::parse(&yaml, "p", Format::Yaml)
            .unwrap_or_else(|error| panic!("{error}\n{yaml}"));
        assert_eq!(again.to_value(), profile.to_value(), "{yaml}");
    }
}
