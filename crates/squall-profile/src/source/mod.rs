//! The text forms of a profile. TOML, YAML or JSON is converted to a common tree, then to typed
//! tables, then to a checked [`Profile`].

mod attacks;
mod flows;
mod hosts;
mod json;
mod law;
mod lower;
mod node;
mod raw;
mod read;
mod replay;
mod routers;
pub mod short;
mod stages;
mod toml;
mod topology;
mod yaml;

use std::path::Path;

use serde_json::json;
use squall_units::Cannot;

use self::{
    node::{Node, SyntaxMistake},
    read::{Read, Reader},
};
use crate::{Diagnostic, Diagnostics, Profile, diagnostics::MAX_ERRORS};

pub use self::{
    attacks::Attack,
    flows::{
        Arrival, Begin, Conversations, Data, Flows, Http, Interface, Network, Pool, PortPair,
        ProxyProtocol, Target, Template, Tls,
    },
    hosts::HostGroup,
    raw::{FieldRef, Stream, Vary},
    read::Files,
    replay::Replay,
    routers::{Router, RouterGroup, RouterStep},
};
pub(crate) use self::{lower::SCHEMA, routers::ROUTES_GROUP};

/// The text format of a profile. The schema is the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Toml,
    Yaml,
    Json,
}

impl Format {
    /// The format that the file's extension implies.
    pub fn from_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "toml" => Some(Self::Toml),
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// The text of a file, and the format that its extension implies.
fn text_of(path: &Path) -> Result<(String, Format), Diagnostics> {
    let refuse = |cannot: Cannot| {
        let message = cannot.to_string();
        Diagnostics(vec![Diagnostic { message, ..Diagnostic::default() }])
    };
    let format = Format::from_path(path).ok_or_else(|| {
        let why = "unknown file extension; expected .toml, .yaml, .yml or .json";
        refuse(Cannot::new(format!("read {}", path.display()), why))
    })?;
    let text = crate::read_text(path).map_err(|error| refuse(Cannot::read(path, &error)))?;
    Ok((text, format))
}

impl Profile {
    /// Reads the profile in a file. The extension determines the format.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Diagnostics> {
        let path = path.as_ref();
        let (text, format) = text_of(path)?;
        Self::parse(&text, &path.to_string_lossy(), format)
    }

    /// Reads a profile. `origin` is its name in messages. Files named in the profile are read from
    /// the disk, relative to the directory of `origin`.
    ///
    /// ```
    /// use squall_profile::{Format, Profile};
    ///
    /// let text = r#"
    ///     [ports]
    ///     A = "loop:0"
    ///
    ///     [[stream]]
    ///     name = "web"
    ///     hex  = "020000000001 020000000002 88b5"
    ///     rate = "12 Gbp"
    /// "#;
    /// let mistakes = Profile::parse(text, "load.toml", Format::Toml).unwrap_err();
    /// assert_eq!(
    ///     mistakes.to_string().lines().next(),
    ///     Some(r#"load.toml:8:12  stream "web": rate = "12 Gbp" is not a rate"#)
    /// );
    /// let profile = Profile::parse(&text.replace("Gbp", "Gbps"), "load.toml", Format::Toml)?;
    /// assert_eq!(profile.streams[0].rate, "12 Gbps".parse()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parse(text: &str, origin: &str, format: Format) -> Result<Self, Diagnostics> {
        Self::parse_with(text, origin, format, &|path| crate::read_text(path))
    }

    /// Like [`Profile::parse`], but reads `files` instead of the disk.
    pub fn parse_with(
        text: &str,
        origin: &str,
        format: Format,
        files: &Files<'_>,
    ) -> Result<Self, Diagnostics> {
        // Editors on Windows may write a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        read(parse_tree(text, format), Reader::new(origin, text, files))
    }

    /// Reads a profile that has no source text, such as one from Python. Errors name the key.
    pub fn from_value(value: &serde_json::Value, origin: &str) -> Result<Self, Diagnostics> {
        read(Ok(value.into()), Reader::new(origin, "", &|path| crate::read_text(path)))
    }
}

impl RouterStep {
    /// Reads a live order: the table of a step without times, such as one from Python. Errors name
    /// the key.
    ///
    /// # Errors
    /// Keys that a step or an order does not have, and invalid values.
    pub fn order(value: &serde_json::Value, origin: &str) -> Result<Self, Diagnostics> {
        let mut cx = Reader::new(origin, "", &|path| crate::read_text(path));
        let step = Self::read(&value.into(), &mut cx);
        for key in ["at", "every", "times"] {
            if value.get(key).is_some_and(|value| !value.is_null()) {
                let message =
                    format!("{key} is for steps of a profile: an order is carried out now");
                cx.mistakes.push(Diagnostic { message, ..Diagnostic::default() });
            }
        }
        step.filter(|_| cx.mistakes.is_empty()).ok_or(Diagnostics(cx.mistakes))
    }
}

/// The value of any text in one of the formats of profiles.
///
/// # Errors
/// The first syntax error, with its line.
pub fn value_of(text: &str, format: Format) -> Result<serde_json::Value, String> {
    parse_tree(text, format).map(|node| (&node).into()).map_err(|mistakes| {
        mistakes.first().map_or_else(String::new, |mistake| {
            let line = text.get(..mistake.at).map_or(1, |before| before.lines().count().max(1));
            format!("line {line}: {}", mistake.message)
        })
    })
}

fn parse_tree(text: &str, format: Format) -> Result<Node, Vec<SyntaxMistake>> {
    match format {
        Format::Toml => toml::parse(text),
        Format::Yaml => yaml::parse(text),
        Format::Json => json::parse(text),
    }
}

fn read(
    tree: Result<Node, Vec<SyntaxMistake>>,
    mut cx: Reader<'_>,
) -> Result<Profile, Diagnostics> {
    let profile = match tree {
        Ok(mut root) => {
            cx.name_streams(&root);
            let streams = root.take_list("stream");
            let table = raw::ProfileTable::read(&root, &mut cx);
            drop(root);
            table.map(|table| lower::profile(table, streams, &mut cx))
        }
        Err(mistakes) => {
            mistakes.into_iter().for_each(|mistake| cx.syntax(mistake.at, mistake.message));
            None
        }
    };
    finished(profile, cx)
}

/// The value, if there were no errors; otherwise all errors.
fn finished<T>(value: Option<T>, mut cx: Reader<'_>) -> Result<T, Diagnostics> {
    match value {
        Some(value) if cx.mistakes.is_empty() => Ok(value),
        _ => {
            let full = cx.is_full();
            cx.mistakes.truncate(MAX_ERRORS);
            cx.mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
            if full {
                let message = format!("reading stopped after {MAX_ERRORS} errors");
                let origin = cx.origin().to_owned();
                cx.mistakes.push(Diagnostic { origin, message, ..Diagnostic::default() });
            }
            Err(Diagnostics(cx.mistakes))
        }
    }
}

/// The JSON Schema of a profile, used by editors and the reference.
pub fn schema() -> serde_json::Value {
    let mut schema = raw::ProfileTable::schema();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Squall profile");
    schema["properties"]["$schema"] =
        json!({ "type": "string", "description": "For editors: the location of this schema." });
    schema
}
