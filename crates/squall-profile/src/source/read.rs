//! Reads the tree into typed tables. Reading continues after an error, so that all errors are
//! reported.

use std::{cell::Cell, fmt::Write as _, io, marker::PhantomData, path::Path};

use serde_json::{Value as Json, json};
use squall_units::{Nanos, Rate, UnitError, suggest};
use squall_wire::Packet;

use super::{
    node::{Entry, Node, Value},
    short::Argument,
};
use crate::{At, Diagnostic, diagnostics::MAX_ERRORS};

/// Number of octets of the source per entry of `Reader::characters`. Small, because each position
/// counts the characters of two partial blocks: with 1024, that took a seventh of the time to plan
/// a hundred thousand streams.
const BLOCK: usize = 1 << 7;

/// Up to how many lines after the last position the next one is searched for line by line: the keys
/// of a stream.
const LINES_NEAR: usize = 16;

/// Whether an octet is the first one of a UTF-8 character.
fn begins(octet: u8) -> bool {
    octet & 0xc0 != 0x80
}

/// Reads a file named in a profile: from the disk, or from a test's replacement.
pub type Files<'a> = dyn Fn(&Path) -> io::Result<String> + 'a;

/// A type that can be read from a node, and its JSON schema.
pub(super) trait Read: Sized {
    /// Reads a value. If this returns `None`, the error has been reported.
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self>;
    fn schema() -> Json;
}

/// A value and its position.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub value: T,
    pub place: Place,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pub start: usize,
    pub path: String,
}

/// The keys of a table, valid or not, with their positions.
#[derive(Clone, Debug, Default)]
pub(super) struct Given(Vec<(&'static str, usize)>);

impl Given {
    pub fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(given, _)| *given == key)
    }
}

/// Defines a table in a single location: its fields, with their documentation, reading and schema.
/// A field is `Some` if it is given and valid.
///
/// A table that `makes` a value also defines the type of that value. The fields that are computed
/// come first. Each key with `=>` is only stored, as the given type; its default is that of the
/// type, or the expression after `=`. One line thus defines how such a key is read, stored and
/// written.
macro_rules! table {
    ($(#[doc = $doc:literal])* $name:ident makes $(#[doc = $model_doc:literal])* $model:ident {
        $($(#[doc = $own_doc:literal])* $own:ident: $own_type:ty = $own_default:expr,)*
    } from {
        $($(#[doc = $field_doc:literal])* $field:ident: $type:ty $(=> $of:ty $(= $default:expr)?)?,)*
    }) => {
        $crate::source::read::table! {
            $(#[doc = $doc])* $name { $($(#[doc = $field_doc])* $field: $type,)* }
        }

        $(#[doc = $model_doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $model {
            $($(#[doc = $own_doc])* pub $own: $own_type,)*
            $($(#[doc = concat!("The key `", stringify!($field), "`.")] pub $field: $of,)?)*
        }

        impl Default for $model {
            fn default() -> Self {
                Self {
                    $($own: $own_default,)*
                    $($($field: $crate::source::read::default_of!($of $(, $default)?),)?)*
                }
            }
        }

        impl $name {
            /// The value with all stored keys. Its other fields have their defaults.
            pub(super) fn made(&mut self) -> $model {
                let mut made = $model::default();
                $($(if let Some(given) = self.$field.take() {
                    made.$field = <$of>::from(given.value);
                })?)*
                made
            }
        }

        impl $model {
            /// The written form, key by key. `own` returns the values of computed keys. Defaults
            /// are omitted.
            pub(crate) fn written(
                &self,
                #[allow(unused_variables)] own: impl Fn(&str) -> Option<serde_json::Value>,
            ) -> serde_json::Value {
                let default = Self::default();
                let mut entries = serde_json::Map::new();
                $(
                    let value = $crate::source::read::written_of!(
                        self, default, own, $field $(, $of)?
                    );
                    entries.extend(value.map(|value| (stringify!($field).to_owned(), value)));
                )*
                serde_json::Value::Object(entries)
            }
        }
    };
    ($(#[doc = $doc:literal])* $name:ident { $($(#[doc = $field_doc:literal])* $field:ident: $type:ty,)* }) => {
        $(#[doc = $doc])*
        #[derive(Debug)]
        pub(super) struct $name {
            pub place: $crate::source::read::Place,
            pub given: $crate::source::read::Given,
            $($(#[doc = $field_doc])* pub $field: Option<$crate::source::read::Placed<$type>>,)*
        }

        impl $crate::source::read::Read for $name {
            fn read(node: &$crate::source::node::Node, cx: &mut $crate::source::read::Reader<'_>) -> Option<Self> {
                let entries = cx.table(node)?;
                let mut table = Self { place: cx.place(node), given: Default::default(), $($field: None,)* };
                for entry in entries {
                    if cx.is_full() {
                        break;
                    }
                    match entry.key.as_str() {
                        $(stringify!($field) => table.$field = cx.field(entry, stringify!($field), &mut table.given),)*
                        _ => cx.unknown_key(entry, &[$(stringify!($field)),*]),
                    }
                }
                Some(table)
            }

            fn schema() -> serde_json::Value {
                $crate::source::read::table_schema(stringify!($name), &[$($doc),*], vec![
                    $((stringify!($field), &[$($field_doc),*], <$type as $crate::source::read::Read>::schema()),)*
                ])
            }
        }
    };
}
pub(super) use table;

/// The default of a stored key.
macro_rules! default_of {
    ($of:ty) => {
        <$of>::default()
    };
    ($of:ty, $default:expr) => {
        $default
    };
}
pub(super) use default_of;

/// The written form of a key.
macro_rules! written_of {
    ($self:ident, $default:ident, $own:ident, $field:ident) => {
        $own(stringify!($field))
    };
    ($self:ident, $default:ident, $own:ident, $field:ident, $of:ty) => {
        $crate::emit::unless::<$of>(&$default.$field, &$self.$field)
    };
}
pub(super) use written_of;

/// Defines an enum whose variants are keys of a table. The first key of a variant selects it. It
/// may be a flag that is `true` (`Kind = key`). Further keys follow with their defaults.
macro_rules! kinds {
    ($(#[$meta:meta])* $name:ident from $table:ident {
        $($(#[$kind_meta:meta])* $kind:ident
            $({
                $first:ident: $first_of:ty
                $(, $key:ident: $of:ty $(= $default:expr)?)* $(,)?
            })?
            $(($only:ident: $only_of:ty $(= $only_default:expr)?))?
            $(= $flag:ident)?,
        )*
    }) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$kind_meta])* $kind $({ $first: $first_of, $($key: $of),* })? $(($only_of))?,)*
        }

        impl $name {
            /// The first key of each variant.
            #[allow(dead_code)]
            pub(super) const KEYS: &[&str] = &[$(
                $(stringify!($first),)? $(stringify!($only),)? $(stringify!($flag),)?
            )*];

            /// Takes the keys of the first variant whose first key is in `table`.
            pub(super) fn taken(table: &mut $table) -> Option<Self> {
                $(
                    $(if let Some(first) = table.$first.take() {
                        return Some(Self::$kind {
                            $first: first.value.into(),
                            $($key: table.$key.take().map_or_else(
                                || $crate::source::read::default_of!($of $(, $default)?),
                                |given| given.value.into(),
                            ),)*
                        });
                    })?
                    $(if let Some(only) = table.$only.take() {
                        return Some(Self::$kind(only.value.into()));
                    })?
                    $(if table.$flag.take().is_some_and(|flag| flag.value) {
                        return Some(Self::$kind);
                    })?
                )*
                None
            }

            /// The written form of a key. `None` for a default value, and for a key of another
            /// variant.
            pub(crate) fn key(&self, key: &str) -> Option<serde_json::Value> {
                match self {
                    $(Self::$kind $({ $first, $($key),* })? $(($only))? => {
                        $(
                            if key == stringify!($first) {
                                return $crate::emit::Emit::emit($first);
                            }
                            $(if key == stringify!($key) {
                                let default = $crate::source::read::default_of!($of $(, $default)?);
                                return $crate::emit::unless(&default, $key);
                            })*
                        )?
                        $(if key == stringify!($only) {
                            $(return $crate::emit::unless(&$only_default, $only);)?
                            #[allow(unreachable_code)]
                            return $crate::emit::Emit::emit($only);
                        })?
                        $(if key == stringify!($flag) {
                            return Some(true.into());
                        })?
                        None
                    })*
                }
            }
        }
    };
}
pub(super) use kinds;

/// Defines how an enum is read and written: the word for each value, and the name for these values
/// in messages.
macro_rules! words {
    ($name:ty, $what:literal $(, $doc:literal)?: $($word:literal => $value:ident),* $(,)?) => {
        impl $name {
            pub(crate) const WORDS: &[(&str, Self)] = &[$(($word, Self::$value)),*];

            /// The word in profiles.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)*
                }
            }
        }

        impl $crate::source::read::Read for $name {
            fn read(
                node: &$crate::source::node::Node,
                cx: &mut $crate::source::read::Reader<'_>,
            ) -> Option<Self> {
                $crate::source::read::word(node, cx, $what, Self::WORDS)
            }

            fn schema() -> serde_json::Value {
                #[allow(unused_mut)]
                let mut schema = serde_json::json!({ "enum": [$($word),*] });
                $(schema["description"] = $doc.into();)?
                schema
            }
        }

        impl $crate::emit::Emit for $name {
            fn emit(&self) -> Option<serde_json::Value> {
                Some(self.word().into())
            }
        }
    };
}
pub(super) use words;

/// The file and the frame number (1-based) in `file.pcap#3`. The number is `None` if it is invalid.
pub(super) fn numbered(text: &str) -> (&str, Option<u64>) {
    match text.rsplit_once('#') {
        Some((path, number)) => (path, number.trim().parse().ok().filter(|number| *number > 0)),
        None => (text, Some(1)),
    }
}

/// Reads one of several words.
pub(super) fn word<T: Copy>(
    node: &Node,
    cx: &mut Reader<'_>,
    what: &str,
    words: &[(&str, T)],
) -> Option<T> {
    let text = if let Value::Text(text) = &node.value { text.as_str() } else { "" };
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Some(*value);
    }
    let hint = suggest(text, words.iter().map(|(word, _)| *word));
    cx.wrong(node, &format!("is not {what}"), &[hint]);
    None
}

/// Collects errors and their positions.
pub(super) struct Reader<'a> {
    origin: &'a str,
    source: &'a str,
    /// The offset at which each line starts.
    lines: Vec<usize>,
    /// Number of the line of the last position that was looked up, from 0. The next one is mostly
    /// in this line or soon after it.
    last_line: Cell<usize>,
    /// The number of characters before each block of the source; empty if each octet is one.
    characters: Vec<usize>,
    /// The names that streams have, for messages.
    streams: Vec<Option<Box<str>>>,
    /// For short forms, the arguments. The position of a value is the number of its argument, from
    /// 1.
    arguments: &'a [Argument],
    /// The path of the current value: `stream[3].vary[0].op`.
    path: String,
    pub files: &'a Files<'a>,
    pub mistakes: Vec<Diagnostic>,
}

impl<'a> Reader<'a> {
    /// `source` is empty if the values have no source text.
    pub fn new(origin: &'a str, source: &'a str, files: &'a Files<'a>) -> Self {
        let lines =
            std::iter::once(0).chain(source.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let blocks = if source.is_ascii() { &[] } else { source.as_bytes() };
        let characters = blocks.chunks(BLOCK).scan(0, |before, block| {
            let here = *before;
            *before += block.iter().filter(|octet| begins(**octet)).count();
            Some(here)
        });
        let characters = characters.collect();
        Self {
            origin,
            source,
            lines,
            last_line: Cell::new(0),
            characters,
            streams: Vec::new(),
            arguments: &[],
            path: String::new(),
            files,
            mistakes: Vec::new(),
        }
    }

    /// A reader for a short form. The position of a value is the number of its argument, from 1.
    pub fn of_arguments(command: &'a str, arguments: &'a [Argument]) -> Self {
        Self { arguments, ..Self::new(command, "", &|path| crate::read_text(path)) }
    }

    pub fn origin(&self) -> &str {
        self.origin
    }

    /// Stores the names of the streams, for messages about keys in them.
    pub fn name_streams(&mut self, root: &Node) {
        let Some(Value::List(streams)) = root.get("stream").map(|node| &node.value) else { return };
        let name = |node: &Node| match node.get("name").map(|name| &name.value) {
            Some(Value::Text(name)) => Some(name.as_str().into()),
            _ => None,
        };
        self.streams = streams.iter().map(name).collect();
    }

    pub fn at(&self, offset: usize) -> At {
        if self.source.is_empty() {
            return At::default();
        }
        let offset = (0..=offset.min(self.source.len()))
            .rev()
            .find(|i| self.source.is_char_boundary(*i))
            .unwrap_or(0);
        let line = self.line(offset);
        // Generated JSON may be a single line of megabytes, so do not count the column from the
        // start of the line.
        let column = self.characters(offset) - self.characters(self.lines[line - 1]) + 1;
        At { line: line as u32, column: column as u32 }
    }

    /// Number of the line of the octet at `offset`, from 1.
    fn line(&self, offset: usize) -> usize {
        let last = self.last_line.get();
        let near = self.lines[last..].iter().take(LINES_NEAR).position(|start| *start > offset);
        let line = match near.filter(|_| self.lines[last] <= offset) {
            Some(further) => last + further,
            None => self.lines.partition_point(|start| *start <= offset),
        };
        self.last_line.set(line - 1);
        line
    }

    /// Number of characters in the source before `offset`.
    fn characters(&self, offset: usize) -> usize {
        if self.characters.is_empty() {
            return offset;
        }
        let block = (offset / BLOCK).min(self.characters.len().saturating_sub(1));
        let rest = &self.source.as_bytes()[block * BLOCK..offset];
        let before = self.characters.get(block).copied().unwrap_or(0);
        before + rest.iter().filter(|octet| begins(**octet)).count()
    }

    /// Whether the maximum number of errors has been collected, so that reading may stop.
    pub fn is_full(&self) -> bool {
        self.mistakes.len() >= MAX_ERRORS
    }

    /// Reports a syntax error.
    pub fn syntax(&mut self, offset: usize, message: String) {
        self.push(offset, String::new(), message, Vec::new());
    }

    /// Reports an error about the key at `place`. In the message, `text` follows the name of the
    /// key.
    pub fn report(&mut self, place: &Place, text: &str, details: &[String]) {
        let message = match self.subject(&place.path) {
            (None, "") => text.to_owned(),
            (None, key) => format!("{key} {text}"),
            (Some(stream), "") => format!("{stream} {text}"),
            (Some(stream), key) => format!("{stream}: {key} {text}"),
        };
        self.push(place.start, place.path.clone(), message, details.to_vec());
    }

    /// Reports that the value of `node` is wrong. In the message, `text` follows `key = value`.
    pub fn wrong(&mut self, node: &Node, text: &str, details: &[String]) {
        let text = format!("= {} {text}", node.shown());
        self.report(&self.place(node), &text, details);
    }

    pub fn wrong_type<T>(&mut self, node: &Node, expected: &str, hint: &str) -> Option<T> {
        self.wrong(node, &format!("is not {expected}"), &[format!("try {hint}")]);
        None
    }

    fn push(&mut self, offset: usize, path: String, message: String, details: Vec<String>) {
        if self.is_full() {
            return;
        }
        let At { line, column } = self.at(offset);
        let argument = offset.checked_sub(1).and_then(|i| self.arguments.get(i));
        let origin = argument.map_or_else(
            || self.origin.to_owned(),
            |argument| format!("{}: {}", self.origin, argument.name),
        );
        let path = if self.arguments.is_empty() { path } else { String::new() };
        self.mistakes.push(Diagnostic { origin, line, column, path, message, details });
    }

    /// The stream that contains a path, and the rest of the path. Messages about a short form do
    /// not name the stream, because there is only one.
    fn subject<'p>(&self, path: &'p str) -> (Option<String>, &'p str) {
        if !self.arguments.is_empty() {
            return (None, in_one(path));
        }
        let split = || {
            let (index, rest) = path.strip_prefix("stream[")?.split_once(']')?;
            let index = index.parse::<usize>().ok()?;
            let stream = match self.streams.get(index)? {
                Some(name) => format!("stream {name:?}"),
                None => format!("stream {}", index + 1),
            };
            Some((stream, rest.strip_prefix('.').unwrap_or(rest)))
        };
        split().map_or((None, path), |(stream, rest)| (Some(stream), rest))
    }

    pub fn place(&self, node: &Node) -> Place {
        Place { start: node.start, path: self.path.clone() }
    }

    pub fn field<T: Read>(
        &mut self,
        entry: &Entry,
        key: &'static str,
        given: &mut Given,
    ) -> Option<Placed<T>> {
        // YAML and Python write a missing value like this.
        if matches!(entry.node.value, Value::Null) {
            return None;
        }
        given.0.push((key, entry.start));
        self.below(&entry.key, |cx| {
            let value = T::read(&entry.node, cx)?;
            Some(Placed { value, place: cx.place(&entry.node) })
        })
    }

    /// Reads a value at `key` below the current path.
    pub fn below<T>(&mut self, key: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        let len = self.path.len();
        if len > 0 && !key.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(key);
        let result = read(self);
        self.path.truncate(len);
        result
    }

    /// Reads item `index` of the list at the current path.
    pub fn item<T: Read>(&mut self, index: usize, node: &Node) -> Option<T> {
        let len = self.path.len();
        // Writing to a text does not fail.
        let _ = write!(self.path, "[{index}]");
        let item = T::read(node, self);
        self.path.truncate(len);
        item
    }

    pub fn table<'n>(&mut self, node: &'n Node) -> Option<&'n [Entry]> {
        match &node.value {
            Value::Table(entries) => Some(entries),
            _ => self.wrong_type(node, "a table", "{ key = value }"),
        }
    }

    pub fn unknown_key(&mut self, entry: &Entry, known: &[&str]) {
        // By this key, editors find the schema.
        if entry.key == "$schema" && self.path.is_empty() {
            return;
        }
        let place =
            self.below(&entry.key, |cx| Place { start: entry.start, path: cx.path.clone() });
        let hint = match entry.key.as_str() {
            // In other tables, `port` is a name from [ports].
            "port" if known.contains(&"listen") => {
                "try listen: the TCP or UDP port of servers".into()
            }
            key => suggest(key, known.iter().copied()),
        };
        self.report(&place, "is not a known key", &[hint]);
    }

    /// Reads a number or text with `parse`.
    pub fn unit<T>(
        &mut self,
        node: &Node,
        parse: impl Fn(&str) -> Result<T, UnitError>,
    ) -> Option<T> {
        match parse(&node.scalar().unwrap_or_default()) {
            Ok(value) => Some(value),
            Err(error) => self.wrong_type(node, error.expected, error.hint),
        }
    }

    /// Reports that `key` is missing, unless it is in `given`.
    pub fn need(&mut self, place: &Place, given: &Given, key: &str, example: &str) -> Option<()> {
        if given.has(key) {
            return Some(());
        }
        self.report(place, &format!("has no {key:?}"), &[format!("try {example}")]);
        None
    }

    /// Returns the key of `choice` that is given. Reports an error if none or several are.
    pub fn one_of<'c>(
        &mut self,
        place: &Place,
        given: &Given,
        choice: &[&'c str],
    ) -> Option<&'c str> {
        let found: Vec<&str> = choice.iter().copied().filter(|key| given.has(key)).collect();
        if let [one] = found[..] {
            return Some(one);
        }
        let found = if found.is_empty() { "none".into() } else { found.join(" and ") };
        self.report(place, &format!("has {found}, expected one of {}", choice.join(", ")), &[]);
        None
    }

    /// Reports keys that have no effect together with `with`, that is, all keys except `allowed`.
    pub fn only(&mut self, place: &Place, given: &Given, with: &str, allowed: &[&str]) {
        for (key, start) in given.0.iter().filter(|(key, _)| !allowed.contains(key)) {
            let place = Place { start: *start, path: format!("{}.{key}", place.path) };
            self.report(
                &place,
                &format!("has no effect with {with}"),
                &[format!("expected one of {}", allowed.join(", "))],
            );
        }
    }

    /// Returns the value. Reports an error if it is missing.
    pub fn must<T>(
        &mut self,
        place: &Place,
        value: Option<T>,
        text: &str,
        hint: &str,
    ) -> Option<T> {
        if value.is_none() {
            self.report(place, text, &[hint.into()]);
        }
        value
    }

    /// Converts a path that is relative to the profile into one relative to the working directory.
    pub fn resolve(&self, path: &str) -> String {
        match Path::new(self.origin).parent() {
            Some(folder) => folder.join(path).to_string_lossy().into_owned(),
            None => path.into(),
        }
    }

    /// The value's source text.
    pub fn raw(&self, node: &Node) -> Option<&'a str> {
        self.source.get(node.start..node.end).filter(|raw| !raw.is_empty())
    }

    /// The position in the source of octet `at` of the text that was decoded from `node`. Compares
    /// the source with the text, in order to skip quotes and escapes.
    pub fn inside(&self, node: &Node, text: &str, at: usize) -> usize {
        let raw = self.source.as_bytes().get(node.start..node.end).unwrap_or_default();
        let mut found = 0;
        for byte in text.as_bytes().iter().take(at + 1) {
            match raw.iter().skip(found).position(|r| r == byte) {
                Some(skipped) => found += skipped + 1,
                None => break,
            }
        }
        // The end of the text is one position after its last octet.
        node.start + if at < text.len() { found.saturating_sub(1) } else { found }
    }
}

/// The rest of a path, after tables of which a short form has only one, or whose keys are
/// arguments.
fn in_one(path: &str) -> &str {
    let mut rest = path;
    while let Some((table, inside)) = rest.split_once(']') {
        let Some(("stream" | "vary" | "replay" | "template" | "pool" | "attack" | "host", _)) =
            table.split_once('[')
        else {
            break;
        };
        rest = inside.trim_start_matches('.');
    }
    rest
}

/// The schema of a table. Tables and enums have titles, from which the generated Python classes and
/// TypeScript types get their names.
pub(super) fn table_schema(name: &str, doc: &[&str], fields: Vec<(&str, &[&str], Json)>) -> Json {
    let properties: serde_json::Map<String, Json> = fields
        .into_iter()
        .map(|(name, doc, mut schema)| {
            // The field's own text comes first, followed by that of its type.
            let text = [prose(doc), schema["description"].as_str().unwrap_or_default().into()];
            schema["description"] = text.join(" ").trim().into();
            (name.to_owned(), schema)
        })
        .collect();
    let title = name.strip_suffix("Table").unwrap_or(name);
    json!({ "type": "object", "title": title, "description": prose(doc), "properties": properties, "additionalProperties": false })
}

fn prose(doc: &[&str]) -> String {
    doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// An integer, also as `"10k"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count(pub u64);

/// An integer from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounded<const MIN: u64, const MAX: u64>(u64);

/// Implements the traits for each type that can hold the range.
macro_rules! bounded {
    ($($of:ty)*) => {
        $(
            impl<const MIN: u64, const MAX: u64> From<Bounded<MIN, MAX>> for $of {
                fn from(Bounded(number): Bounded<MIN, MAX>) -> Self {
                    const { assert!(MAX <= Self::MAX as u64) };
                    number as Self
                }
            }

            impl<const MIN: u64, const MAX: u64> From<Bounded<MIN, MAX>> for Option<$of> {
                fn from(number: Bounded<MIN, MAX>) -> Self {
                    Some(number.into())
                }
            }
        )*
    };
}
bounded!(u16 u32 u64 usize);

impl<const MIN: u64, const MAX: u64> Read for Bounded<MIN, MAX> {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        let Count(number) = Count::read(node, cx)?;
        if !(MIN..=MAX).contains(&number) {
            let hint = match MAX >= u32::MAX.into() {
                true => format!("expected {MIN} or more"),
                false => format!("expected {MIN} to {MAX}"),
            };
            cx.report(&cx.place(node), &format!("= {number} is out of bounds"), &[hint]);
            return None;
        }
        Some(Self(number))
    }
    fn schema() -> Json {
        let mut schema = Count::schema();
        schema["minimum"] = MIN.into();
        if MAX < u64::MAX {
            schema["maximum"] = MAX.into();
            schema["examples"] = json!([MIN.max(MAX.min(1000))]);
        }
        schema
    }
}

impl From<Count> for u64 {
    fn from(Count(count): Count) -> Self {
        count
    }
}

impl From<Count> for Option<u64> {
    fn from(Count(count): Count) -> Self {
        Some(count)
    }
}

/// An integer that may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whole(pub i64);

impl From<Whole> for i64 {
    fn from(Whole(number): Whole) -> Self {
        number
    }
}

/// A number of octets, also as `"10 MB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Octets(pub u64);

impl Read for String {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            _ => cx.wrong_type(node, "text", &format!("{:?}", node.shown())),
        }
    }
    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl Read for bool {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match node.value {
            Value::Bool(b) => Some(b),
            _ => cx.wrong_type(node, "true or false", "true"),
        }
    }
    fn schema() -> Json {
        json!({ "type": "boolean" })
    }
}

impl Read for f64 {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match node.value {
            Value::Float(x) if x.is_finite() => Some(x),
            Value::Integer(n) => Some(n as f64),
            _ => cx.wrong_type(node, "a number", "1.5"),
        }
    }
    fn schema() -> Json {
        json!({ "type": "number" })
    }
}

impl Read for Count {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        cx.unit(node, squall_units::parse_count).map(Self)
    }
    fn schema() -> Json {
        json!({ "type": ["integer", "string"], "title": "Count", "minimum": 0, "examples": [1000, "10k", "1.5M"] })
    }
}

impl Read for Whole {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match &node.value {
            Value::Integer(number) => i64::try_from(*number).ok().map(Self),
            Value::Text(text) => text.trim().parse().ok().map(Self),
            _ => None,
        }
        .or_else(|| cx.wrong_type(node, "a whole number below 2^63", "-2"))
    }
    fn schema() -> Json {
        json!({ "type": ["integer", "string"], "title": "Whole", "examples": [1, -2] })
    }
}

impl Read for Octets {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        cx.unit(node, squall_units::parse_octets).map(Self)
    }
    fn schema() -> Json {
        json!({ "type": ["integer", "string"], "title": "Octets", "minimum": 0, "examples": [1500, "10 MB", "2 GiB"] })
    }
}

impl Read for Nanos {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        cx.unit(node, str::parse)
    }
    fn schema() -> Json {
        json!({ "type": ["string", "number"], "title": "Time", "minimum": 0, "examples": ["10 s", "1.5 ms", "250 us", "1h30m", 10],
            "description": "Units: ns, us, ms, s, min, h; a bare number is seconds." })
    }
}

impl Read for Rate {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        cx.unit(node, str::parse)
    }
    fn schema() -> Json {
        json!({ "type": ["string", "number"], "title": "Rate", "minimum": 0,
            "examples": ["10 kpps", "1.5 Gbps", "2 Gbps l1", "30 %", "max", 1000],
            "description": "Frames per second (pps), bits per second of frames with FCS (bps), bits per second on the link, \
                with preamble and gap (bps l1), a share of the port's speed (%), or max; a bare number is pps." })
    }
}

impl Read for Packet {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        let text = String::read(node, cx)?;
        let error = match Packet::parse(&text) {
            Ok(packet) => return Some(packet),
            Err(error) => error,
        };
        let place = Place { start: cx.inside(node, &text, error.at.start), ..cx.place(node) };
        let mut details = Vec::new();
        if !text.contains('\n')
            && let (Some(before), Some(marked)) =
                (text.get(..error.at.start), text.get(error.at.clone()))
        {
            let marks = "^".repeat(marked.chars().count().max(1));
            details = vec![text.clone(), format!("{}{marks}", " ".repeat(before.chars().count()))];
        }
        if !error.hint.is_empty() {
            details.push(error.hint.clone());
        }
        cx.report(&place, &format!("says {}, expected {}", error.found, error.expected), &details);
        None
    }
    fn schema() -> Json {
        json!({ "type": "string", "examples": ["eth/ipv4(dst=48.0.0.1)/udp(dport=53)"] })
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        let Value::List(items) = &node.value else {
            return cx.wrong_type(node, "a list", "[ ... ]");
        };
        let (mut read, mut whole) = (Vec::with_capacity(items.len()), true);
        for (i, item) in items.iter().enumerate() {
            if cx.is_full() {
                break;
            }
            match cx.item(i, item) {
                Some(value) => read.push(value),
                None => whole = false,
            }
        }
        whole.then_some(read)
    }
    fn schema() -> Json {
        json!({ "type": "array", "items": T::schema() })
    }
}

/// A list whose items the caller reads one by one, because a profile may have a million of them and
/// their tables are several times as large as the values made of them: see [`Reader::item`].
#[derive(Debug)]
pub(super) struct Later<T>(PhantomData<T>);

impl<T: Read> Read for Later<T> {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match &node.value {
            Value::List(_) => Some(Self(PhantomData)),
            _ => cx.wrong_type(node, "a list", "[ ... ]"),
        }
    }
    fn schema() -> Json {
        Vec::<T>::schema()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_right_in_any_order_with_and_without_long_characters() {
        for word in ["x", "ö"] {
            let source: String = (0..200).map(|i| format!("{word}{i}\n")).collect();
            let starts: Vec<usize> = std::iter::once(0)
                .chain(source.match_indices('\n').map(|(at, _)| at + 1))
                .collect();
            let cx = Reader::new("test", &source, &|_| Err(io::ErrorKind::NotFound.into()));
            for step in [1, 5, 15, 16, 17, 90, 199] {
                for line in (0..200).map(|i| i * step % 200) {
                    let at = cx.at(starts[line] + word.len());
                    assert_eq!((at.line as usize, at.column), (line + 1, 2), "step {step}");
                }
            }
            let end = cx.at(usize::MAX);
            assert_eq!((end.line, end.column), (201, 1));
        }
    }
}
