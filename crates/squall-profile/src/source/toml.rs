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
    Ok(Node { start: span.start, end: span.end, value: table(document.into_inner()) })
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

/// Consumes the table, so that a large document is not in memory twice.
fn table(table: DeTable<'_>) -> Value {
    let mut entries: Vec<Entry> = table
        .into_iter()
        .map(|(key, value)| Entry {
            start: key.span().start,
            key: key.into_inner().into_owned(),
            node: node(value),
        })
        .collect();
    // The library sorts keys by name, so restore their order.
    entries.sort_by_key(|entry| entry.start);
    Value::Table(entries)
}

fn node(spanned: Spanned<DeValue<'_>>) -> Node {
    let span = spanned.span();
    let value = match spanned.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        // An integer of more than 128 bits stays text, which its reader refuses.
        DeValue::Integer(n) => i128::from_str_radix(n.as_str(), n.radix())
            .map_or_else(|_| Value::Text(n.to_string()), Value::Integer),
        DeValue::Float(x) => {
            x.as_str().parse().map_or_else(|_| Value::Text(x.to_string()), Value::Float)
        }
        DeValue::Boolean(b) => Value::Bool(b),
        DeValue::Datetime(time) => Value::Text(time.to_string()),
        DeValue::Array(items) => Value::List(items.into_iter().map(node).collect()),
        DeValue::Table(inner) => table(inner),
    };
    Node { start: span.start, end: span.end, value }
}
