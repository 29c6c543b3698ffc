//! Converts JSON to [`Node`]. serde_json validates the text but keeps no positions, so a second
//! pass over the valid JSON records them.

use std::collections::HashSet;

use super::node::{Entry, Node, SyntaxMistake, Value};
use crate::diagnostics::MAX_ERRORS;

pub(super) fn parse(source: &str) -> Result<Node, Vec<SyntaxMistake>> {
    let checked: Result<serde_json::Value, _> = serde_json::from_str(source);
    if let Err(error) = checked {
        let message = error.to_string();
        // Diagnostics print the position themselves, so remove it here.
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        return Err(vec![SyntaxMistake {
            at: offset(source, error.line(), error.column()),
            message,
        }]);
    }
    let mut walk = Walk { source, at: 0, duplicates: Vec::new() };
    let node = walk.node();
    if walk.duplicates.is_empty() { Ok(node) } else { Err(walk.duplicates) }
}

/// The offset in octets. serde_json counts lines, and octets within a line, from 1. Column 0 is the
/// end of the previous line.
fn offset(source: &str, line: usize, column: usize) -> usize {
    let start: usize =
        source.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    start + column.saturating_sub(1)
}

/// A pass over valid JSON, whose depth the validation has bounded.
struct Walk<'a> {
    source: &'a str,
    at: usize,
    duplicates: Vec<SyntaxMistake>,
}

impl Walk<'_> {
    fn node(&mut self) -> Node {
        self.space();
        let start = self.at;
        let value = match self.peek() {
            b'{' => self.table(),
            b'[' => self.list(),
            b'"' => Value::Text(self.text()),
            _ => self.word(),
        };
        Node { start, end: self.at, value }
    }

    fn table(&mut self) -> Value {
        let mut entries: Vec<Entry> = Vec::new();
        let mut known = HashSet::new();
        while self.next_item(b'}') {
            let start = self.at;
            let key = self.text();
            self.space();
            self.at += 1; // the colon
            if !known.insert(key.clone()) && self.duplicates.len() < MAX_ERRORS {
                self.duplicates
                    .push(SyntaxMistake { at: start, message: format!("duplicate key {key:?}") });
            }
            let node = self.node();
            entries.push(Entry { key, start, node });
        }
        Value::Table(entries)
    }

    fn list(&mut self) -> Value {
        let mut items = Vec::new();
        while self.next_item(b']') {
            items.push(self.node());
        }
        Value::List(items)
    }

    /// Moves past the opening bracket or comma to the next item, or past the closing bracket.
    fn next_item(&mut self, end: u8) -> bool {
        self.space();
        if self.peek() != end {
            self.at += 1;
            self.space();
        }
        // Valid JSON has no trailing comma, so this closes only an empty list or table.
        let closed = self.peek() == end;
        self.at += usize::from(closed);
        !closed
    }

    fn text(&mut self) -> String {
        let start = self.at;
        self.at += 1;
        while !matches!(self.peek(), b'"' | 0) {
            self.at += if self.peek() == b'\\' { 2 } else { 1 };
        }
        self.at += 1;
        self.source
            .get(start..self.at)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    fn word(&mut self) -> Value {
        let rest = &self.source[self.at..];
        let len = rest.find([',', ']', '}', ' ', '\t', '\n', '\r']).unwrap_or(rest.len());
        self.at += len;
        match &rest[..len] {
            "null" => Value::Null,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            number => match (number.parse(), number.parse()) {
                (Ok(integer), _) => Value::Integer(integer),
                (_, Ok(float)) => Value::Float(float),
                _ => Value::Text(number.into()),
            },
        }
    }

    fn space(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
    }

    fn peek(&self) -> u8 {
        self.source.as_bytes().get(self.at).copied().unwrap_or(0)
    }
}
