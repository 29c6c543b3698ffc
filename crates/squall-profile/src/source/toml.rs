//! Converts TOML to [`Node`].

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::node::{Entry, Node, SyntaxMistake, Value};

pub(super) fn parse(source: &str) -> Result<Node, Vec<SyntaxMistake>> {
    if source.len() > 2 * PART
        && let Some(root) = in_parts(source, PART)
    {
        return Ok(root);
    }
    let (document, errors) = DeTable::parse_recoverable(source);
    if !errors.is_empty() {
        return Err(mistakes(source, &errors));
    }
    let span = document.span();
    Ok(Node { start: span.start, end: span.end, value: table(document.into_inner(), 0) })
}

/// Least length of a part in octets. The library's tree of it fits a CPU's cache.
const PART: usize = 64 << 10;
/// More keys than a profile has. Each is compared with all others, so texts with more of them are left
/// to the library.
const MOST_KEYS: usize = 100;

/// Before the first key of a stream.
const STREAM: &str = "\n[[stream]]";

/// Parses a long list of streams in parts that begin with a stream and have at least `part` octets.
/// The library needs thirty times as much memory as the text has, and most of its time goes into
/// memory that is used for the first time.
///
/// `None`: only the whole text has a meaning, or an error at the right place. A cut within a value
/// (a string or list of several lines) makes the part before it invalid, so it is never wrong.
fn in_parts(source: &str, part: usize) -> Option<Node> {
    let begins = |from: usize| Some(from + source.get(from..)?.find(STREAM)? + 1);
    let mut begin = if source.starts_with(STREAM.trim_start()) { 0 } else { begins(0)? };
    let mut root = part_of(source, 0..begin)?;
    let mut streams = Vec::new();
    // The first stream makes the list, so nothing else may have made it.
    if root.iter().any(|entry| entry.key == "stream") {
        return None;
    }
    while begin < source.len() {
        let least = (begin + part..source.len()).find(|at| source.is_char_boundary(*at));
        let end = least.and_then(begins).unwrap_or(source.len());
        for entry in part_of(source, begin..end)? {
            match entry.node.value {
                Value::List(items) if entry.key == "stream" => {
                    if streams.is_empty() {
                        let node = Node { value: Value::List(Vec::new()), ..entry.node };
                        root.push(Entry { node, ..entry });
                    }
                    streams.extend(items);
                }
                // A table that another part has begun, too: whether it may go on here, and where
                // it is defined twice, only the whole text shows.
                _ if root.len() > MOST_KEYS || root.iter().any(|known| known.key == entry.key) => {
                    return None;
                }
                _ => root.push(entry),
            }
        }
        begin = end;
    }
    let list = root.iter_mut().find(|entry| entry.key == "stream")?;
    list.node.value = Value::List(streams);
    Some(Node { start: 0, end: 0, value: Value::Table(root) })
}

/// The tables in a part of the source; `None` if it is not valid on its own.
fn part_of(source: &str, range: Range<usize>) -> Option<Vec<Entry>> {
    let base = range.start;
    let (document, errors) = DeTable::parse_recoverable(source.get(range)?);
    match table(document.into_inner(), base) {
        Value::Table(entries) if errors.is_empty() => Some(entries),
        _ => None,
    }
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

/// Consumes the table, so that a large document is not in memory twice. Positions are those in the
/// table's text plus `base`.
fn table(table: DeTable<'_>, base: usize) -> Value {
    let mut entries: Vec<Entry> = table
        .into_iter()
        .map(|(key, value)| Entry {
            start: base + key.span().start,
            key: key.into_inner().into_owned(),
            node: node(value, base),
        })
        .collect();
    // The library sorts keys by name, so restore their order.
    entries.sort_by_key(|entry| entry.start);
    Value::Table(entries)
}

fn node(spanned: Spanned<DeValue<'_>>, base: usize) -> Node {
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
        DeValue::Array(items) => {
            Value::List(items.into_iter().map(|item| node(item, base)).collect())
        }
        DeValue::Table(inner) => table(inner, base),
    };
    Node { start: base + span.start, end: base + span.end, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAMS: &str = "\
[ports]
A = \"null:\"
# [[stream]]
[[stream]]
packet = \"eth/ipv4\"
rate = \"1 kpps\"
[[stream.vary]]
field = \"ipv4.dst\"
[[stream]]
name = 'größer'
[stream.mode]
burst = 0x10
[[ stream ]]
[[stream]]
size = [
  64,
  128, # both
]
[run]
cores = 1
[[stream]]
";

    fn whole(source: &str) -> Result<Node, Vec<SyntaxMistake>> {
        assert!(source.len() <= 2 * PART);
        parse(source)
    }

    #[test]
    fn parts_are_the_whole_wherever_it_is_cut() {
        let (_, first) = STREAMS.split_once("# ").unwrap();
        for source in [STREAMS.to_owned(), STREAMS.replace('\n', "\r\n"), first.to_owned()] {
            let whole = format!("{:?}", whole(&source).unwrap());
            for part in 1..source.len() {
                assert_eq!(format!("{:?}", in_parts(&source, part).unwrap()), whole, "{part}");
            }
        }
    }

    #[test]
    fn text_that_has_no_meaning_in_parts_is_parsed_as_a_whole() {
        for more in [
            "rate =",                              // no value
            "packet = \"\"\"\n[[stream]]\n\"\"\"", // no stream, but a text
            "hex = '''\n[[stream]]\n'''",
            "[run]\n[[stream]]\n[run]",       // twice
            "[[host]]\n[[stream]]\n[[host]]", // valid, but spread
            "[[stream]]\n[stream]",           // both a list and a table
        ] {
            let source = format!("{STREAMS}{more}\n");
            assert!(in_parts(&source, 1).is_none(), "{more}");
        }
        for before in ["stream = []\n", "[stream]\n", "[[ stream ]]\n"] {
            assert!(in_parts(&format!("{before}{STREAMS}"), 1).is_none(), "{before}");
        }
        assert!(in_parts("rate = 1\n", 1).is_none());
        let keys: String = (0..=MOST_KEYS).map(|i| format!("[k{i}]\n")).collect();
        assert!(in_parts(&format!("{STREAMS}{keys}"), 1).is_none(), "more than a profile has");
    }

    #[test]
    fn errors_in_long_texts_have_their_places() {
        let many = "[[stream]]\nrate = 1\n".repeat(PART / 8);
        let source = format!("{STREAMS}{many}rate = 2\n");
        let mistakes = parse(&source).unwrap_err();
        assert_eq!(mistakes[0].at, source.len() - "rate = 2\n".len());
    }
}
