//! Converts TOML to [`Node`].

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::node::{Entry, Node, SyntaxMistake, Value};

pub(super) fn parse(source: &str) -> Result<Node, Vec<SyntaxMistake>> {
    let (document, errors) = DeTable::parse_recoverable(source);
    if !errors.is_empty() {
        return Err(mistakes(source, &errors));
    }
    let span = document.span();
    Ok(Node { start: span.start, end: span.end, value: table(document.get_ref()) })
}

/// The first error in each of the first few lines with errors. Further errors in a line are mostly
/// consequences of the first.
fn mistakes(source: &str, errors: &[toml::de::Error]) -> Vec<SyntaxMistake> {
    let mistake = |e: &toml::de::Error| SyntaxMistake {
        at: e.span().map_or(0, |span| span.start),
        message: e.message().into(),
    };
    let mut mistakes: Vec<SyntaxMistake> = errors.iter().map(mistake).collect();
    mistakes.sort_by_key(|m| m.at);
    // Keep only the first few, because a text that is not TOML has an error in every line.
    let mut first: Vec<SyntaxMistake> = Vec::new();
    // End of the line of the last error.
    let mut end = 0;
    for mistake in mistakes {
        if !first.is_empty() && mistake.at <= end {
            continue;
        }
        if first.len() == SHOWN {
            break;
        }
        let rest = source.as_bytes().get(mistake.at..).unwrap_or_default();
        end = mistake.at + rest.iter().position(|octet| *octet == b'\n').unwrap_or(rest.len());
        first.push(mistake);
    }
    first
}

/// Maximum number of syntax errors to show.
const SHOWN: usize = 5;

fn table(table: &DeTable<'_>) -> Value {
    let mut entries: Vec<Entry> = table
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            start: key.span().start,
            node: node(value),
        })
        .collect();
    // The library sorts keys by name, so restore their order.
    entries.sort_by_key(|entry| entry.start);
    Value::Table(entries)
}

fn node(spanned: &Spanned<DeValue<'_>>) -> Node {
    let value = match spanned.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        // An integer of more than 128 bits stays text, which its reader refuses.
        DeValue::Integer(n) => i128::from_str_radix(n.as_str(), n.radix())
            .map_or_else(|_| Value::Text(n.to_string()), Value::Integer),
        DeValue::Float(x) => {
            x.as_str().parse().map_or_else(|_| Value::Text(x.to_string()), Value::Float)
        }
        DeValue::Boolean(b) => Value::Bool(*b),
        DeValue::Datetime(time) => Value::Text(time.to_string()),
        DeValue::Array(items) => Value::List(items.iter().map(node).collect()),
        DeValue::Table(inner) => table(inner),
    };
    let span = spanned.span();
    Node { start: span.start, end: span.end, value }
}
