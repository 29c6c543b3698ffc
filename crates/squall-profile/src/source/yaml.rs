//! Converts YAML 1.2 to [`Node`], including anchors, aliases and `<<` merges.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Span};

use super::node::{Entry, Node, SyntaxMistake, Value};

/// Maximum number of nodes to which aliases may expand, because a few lines of nested aliases could
/// expand to 2^60.
const UNFOLDED_MAX: usize = 100_000;
const DEPTH_MAX: usize = 100;

pub(super) fn parse(source: &str) -> Result<Node, Vec<SyntaxMistake>> {
    build(source).map_err(|mistake| vec![mistake])
}

fn build(source: &str) -> Result<Node, SyntaxMistake> {
    let mut builder =
        Builder { open: Vec::new(), root: None, anchors: HashMap::new(), unfolded: 0 };
    let mut documents = 0;
    for event in Parser::new_from_str(source) {
        let (event, span) = event.map_err(|error| {
            let at = error.marker().byte_offset().unwrap_or(0);
            SyntaxMistake { at, message: error.info() }
        })?;
        let (start, end) = octets(&span);
        let mistake = |message: &str| Err(SyntaxMistake { at: start, message: message.into() });
        match event {
            Event::DocumentStart(..) => {
                documents += 1;
                if documents > 1 {
                    return mistake("the file has a second document; a profile is one document");
                }
            }
            Event::SequenceStart(_, anchor, _) => {
                builder.open(Open { anchor, start, value: Value::List(Vec::new()), key: None })?
            }
            Event::MappingStart(_, anchor, _) => {
                builder.open(Open { anchor, start, value: Value::Table(Vec::new()), key: None })?
            }
            Event::SequenceEnd | Event::MappingEnd => {
                // The parser emits an end only after its start.
                if let Some(Open { anchor, start, value, .. }) = builder.open.pop() {
                    let value =
                        if let Value::Table(entries) = value { merge(entries)? } else { value };
                    builder.place(Node { start, end, value }, anchor)?;
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain
                    && tag.is_none_or(|tag| tag.core_suffix() != Some("str"));
                let value = if plain { resolve(&text) } else { Value::Text(text.into_owned()) };
                builder.place(Node { start, end, value }, anchor)?;
            }
            Event::Alias(anchor) => match builder.anchors.get(&anchor) {
                Some((node, size)) => {
                    builder.unfolded += size;
                    if builder.unfolded > UNFOLDED_MAX {
                        return mistake("aliases expand to more than 100000 values");
                    }
                    let node = node.clone();
                    builder.place(node, 0)?;
                }
                None => return mistake("alias inside its own anchor"),
            },
            _ => {}
        }
    }
    Ok(builder.root.unwrap_or(Node { start: 0, end: 0, value: Value::Null }))
}

fn octets(span: &Span) -> (usize, usize) {
    span.byte_range().map_or((0, 0), |range| (range.start, range.end))
}

struct Builder {
    open: Vec<Open>,
    root: Option<Node>,
    anchors: HashMap<usize, (Node, usize)>,
    unfolded: usize,
}

/// A list or table whose end has not been parsed.
struct Open {
    anchor: usize,
    start: usize,
    value: Value,
    /// For a table, the key whose value comes next.
    key: Option<(String, usize)>,
}

impl Builder {
    fn open(&mut self, open: Open) -> Result<(), SyntaxMistake> {
        if self.open.len() == DEPTH_MAX {
            return Err(SyntaxMistake {
                at: open.start,
                message: "nested more than 100 levels deep".into(),
            });
        }
        self.open.push(open);
        Ok(())
    }

    fn place(&mut self, node: Node, anchor: usize) -> Result<(), SyntaxMistake> {
        if anchor != 0 {
            let size = count(&node);
            self.anchors.insert(anchor, (node.clone(), size));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut open.value {
            Value::List(items) => items.push(node),
            Value::Table(entries) => match open.key.take() {
                Some((key, start)) => entries.push(Entry { key, start, node }),
                None => {
                    let at = node.start;
                    let Some(key) = node.scalar() else {
                        return Err(SyntaxMistake { at, message: "a key must be text".into() });
                    };
                    if key != "<<" && entries.iter().any(|e| e.key == key) {
                        return Err(SyntaxMistake {
                            at,
                            message: format!("duplicate key {key:?}"),
                        });
                    }
                    open.key = Some((key, at));
                }
            },
            _ => unreachable!("only lists and tables are opened"),
        }
        Ok(())
    }
}

/// `<<: *base` and `<<: [*a, *b]`: adds keys that the table lacks from these.
fn merge(entries: Vec<Entry>) -> Result<Value, SyntaxMistake> {
    let (merges, mut entries): (Vec<_>, Vec<_>) = entries.into_iter().partition(|e| e.key == "<<");
    let mut bases = Vec::new();
    for Entry { node, .. } in merges {
        match node.value {
            Value::List(items) => bases.extend(items),
            _ => bases.push(node),
        }
    }
    for base in bases {
        let Value::Table(inherited) = base.value else {
            return Err(SyntaxMistake {
                at: base.start,
                message: "<< takes a table, or a list of tables".into(),
            });
        };
        for entry in inherited {
            if !entries.iter().any(|e| e.key == entry.key) {
                entries.push(entry);
            }
        }
    }
    Ok(Value::Table(entries))
}

fn count(node: &Node) -> usize {
    1 + match &node.value {
        Value::List(items) => items.iter().map(count).sum(),
        Value::Table(entries) => entries.iter().map(|e| count(&e.node)).sum(),
        _ => 0,
    }
}

/// Resolves a plain scalar with the core schema (YAML 1.2.2 §10.3.2).
fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let integer = match (text.strip_prefix("0x"), text.strip_prefix("0o")) {
        (Some(hex), _) if !hex.starts_with(['+', '-']) => i128::from_str_radix(hex, 16),
        (_, Some(octal)) if !octal.starts_with(['+', '-']) => i128::from_str_radix(octal, 8),
        _ => text.parse(),
    };
    if let Ok(integer) = integer {
        return Value::Integer(integer);
    }
    // Rust also parses "inf", "nan" and "infinity", but in YAML these are plain text.
    let numeric = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    match text.parse() {
        Ok(float) if numeric => Value::Float(float),
        _ => Value::Text(text.into()),
    }
}
