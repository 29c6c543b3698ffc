//! Reads JSON and reports every error with its path.

use serde_json::Value;

use crate::{Problem, Problems};

/// Maximum number of reported problems, which limits the reply to an invalid message.
const MOST: usize = 1000;

/// Problems and warnings found while reading.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub problems: Vec<Problem>,
    pub warnings: Vec<String>,
}

impl Notes {
    pub fn problem(&mut self, path: impl Into<String>, message: impl Into<String>) {
        if self.problems.len() < MOST {
            self.problems.push(Problem { path: path.into(), message: message.into() });
        }
    }

    /// Reports an unsupported part; `why` names the alternative.
    pub fn unsupported(&mut self, node: &Node<'_>, why: &str) {
        self.problem(&node.path, format!("not supported: {why}"));
    }

    pub fn warn(&mut self, path: &str, message: &str) {
        if self.warnings.len() < MOST {
            self.warnings.push(format!("{path}: {message}"));
        }
    }

    /// Returns `value` if there are no problems, otherwise the problems.
    pub fn end<T>(self, value: Option<T>) -> Result<T, Problems> {
        match value {
            Some(value) if self.problems.is_empty() => Ok(value),
            _ => Err(Problems(self.problems)),
        }
    }
}

/// A value and its path. A missing value is a `null` node, so every member has its default.
#[derive(Clone, Debug)]
pub(crate) struct Node<'a> {
    pub value: &'a Value,
    pub path: String,
}

static NOTHING: Value = Value::Null;

impl<'a> Node<'a> {
    pub fn root(value: &'a Value) -> Self {
        Self { value, path: String::new() }
    }

    pub fn is_present(&self) -> bool {
        !self.value.is_null()
    }

    /// The member `key`; `null` if missing.
    pub fn at(&self, key: &str) -> Self {
        let path =
            if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Self { value: self.value.get(key).unwrap_or(&NOTHING), path }
    }

    /// The member, or `None` if missing.
    pub fn get(&self, key: &str) -> Option<Self> {
        self.value.get(key).filter(|value| !value.is_null()).map(|_| self.at(key))
    }

    /// Reports a value that is not an object, and members that are not in the schema.
    pub fn known(&self, keys: &[&str], notes: &mut Notes) {
        match self.value {
            Value::Null => {}
            Value::Object(object) => {
                for key in object.keys().filter(|key| !keys.contains(&key.as_str())) {
                    notes.problem(&self.at(key).path, "unknown key");
                }
            }
            other => {
                notes.problem(&self.path, format!("found {}, expected an object", brief(other)))
            }
        }
    }

    /// Which of `choices` is selected: by `choice`, otherwise by the member that is present,
    /// otherwise `default`.
    pub fn choice(
        &self,
        choices: &[&'static str],
        default: Option<&'static str>,
        notes: &mut Notes,
    ) -> Option<&'static str> {
        match self.value {
            Value::Null | Value::Object(_) => {}
            other => {
                notes.problem(&self.path, format!("found {}, expected an object", brief(other)));
                return None;
            }
        }
        match self.value.get("choice") {
            None | Some(Value::Null) => {}
            Some(Value::String(word)) if word == "unspecified" => {}
            Some(Value::String(word)) => {
                let found = choices.iter().find(|choice| *choice == word).copied();
                if found.is_none() {
                    let expected = choices.join(", ");
                    notes.problem(
                        &self.at("choice").path,
                        format!("found {word:?}, expected one of {expected}"),
                    );
                }
                return found;
            }
            Some(other) => {
                notes.problem(
                    &self.at("choice").path,
                    format!("found {}, expected a word", brief(other)),
                );
                return None;
            }
        }
        let there = choices
            .iter()
            .copied()
            .find(|choice| self.value.get(choice).is_some_and(|v| !v.is_null()));
        if there.or(default).is_none() {
            notes.problem(&self.path, format!("expected one of {}", choices.join(", ")));
        }
        there.or(default)
    }

    /// The chosen member and its name.
    pub fn member(
        &self,
        choices: &[&'static str],
        default: Option<&'static str>,
        notes: &mut Notes,
    ) -> Option<(&'static str, Self)> {
        let choice = self.choice(choices, default, notes)?;
        Some((choice, self.at(choice)))
    }

    /// Reads one of several keywords.
    pub fn word(
        &self,
        key: &str,
        words: &[&'static str],
        default: Option<&'static str>,
        notes: &mut Notes,
    ) -> Option<&'static str> {
        let node = self.at(key);
        match node.value {
            Value::Null => {}
            Value::String(word) if word == "unspecified" => {}
            Value::String(word) => {
                let found = words.iter().find(|known| *known == word).copied();
                if found.is_none() {
                    notes.problem(
                        &node.path,
                        format!("found {word:?}, expected one of {}", words.join(", ")),
                    );
                }
                return found;
            }
            other => {
                notes.problem(&node.path, format!("found {}, expected a word", brief(other)));
                return None;
            }
        }
        if default.is_none() {
            notes.problem(&node.path, format!("missing: expected one of {}", words.join(", ")));
        }
        default
    }

    pub fn text(&self, key: &str, notes: &mut Notes) -> Option<&'a str> {
        let node = self.at(key);
        match node.value {
            Value::Null => None,
            Value::String(text) => Some(text),
            other => {
                notes.problem(&node.path, format!("found {}, expected a string", brief(other)));
                None
            }
        }
    }

    pub fn needed_text(&self, key: &str, notes: &mut Notes) -> Option<&'a str> {
        if self.get(key).is_none() {
            notes.problem(&self.at(key).path, "missing");
        }
        self.text(key, notes)
    }

    pub fn flag(&self, key: &str, default: bool, notes: &mut Notes) -> bool {
        let node = self.at(key);
        match node.value {
            Value::Null => default,
            Value::Bool(flag) => *flag,
            other => {
                notes
                    .problem(&node.path, format!("found {}, expected true or false", brief(other)));
                default
            }
        }
    }

    /// Reads a whole number up to `max`, which may be a string if it has 64 bits.
    pub fn uint(&self, key: &str, max: u64, notes: &mut Notes) -> Option<u64> {
        let node = self.at(key);
        if !node.is_present() {
            return None;
        }
        node.own_uint(max, notes)
    }

    /// Reads the value of this node.
    pub fn own_uint(&self, max: u64, notes: &mut Notes) -> Option<u64> {
        let number = match self.value {
            Value::Number(number) => number.as_u64().or_else(|| {
                // Some clients send all numbers as floats.
                number
                    .as_f64()
                    .filter(|n| n.fract() == 0.0 && (0.0..1.8e19).contains(n))
                    .map(|n| n as u64)
            }),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        if number.is_none_or(|number| number > max) {
            notes.problem(
                &self.path,
                format!("found {}, expected a whole number up to {max}", brief(self.value)),
            );
            return None;
        }
        number
    }

    pub fn float(&self, key: &str, notes: &mut Notes) -> Option<f64> {
        let node = self.at(key);
        let number = match node.value {
            Value::Null => return None,
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        let number = number.filter(|number: &f64| number.is_finite() && *number >= 0.0);
        if number.is_none() {
            notes.problem(
                &node.path,
                format!("found {}, expected a number from 0", brief(node.value)),
            );
        }
        number
    }

    /// The members of a list; empty if missing.
    pub fn list(&self, key: &str, notes: &mut Notes) -> Vec<Self> {
        let node = self.at(key);
        match node.value {
            Value::Null => Vec::new(),
            Value::Array(list) => {
                let item = |(i, value)| Self { value, path: format!("{}[{i}]", node.path) };
                list.iter().enumerate().map(item).collect()
            }
            other => {
                notes.problem(&node.path, format!("found {}, expected a list", brief(other)));
                Vec::new()
            }
        }
    }

    pub fn texts(&self, key: &str, notes: &mut Notes) -> Vec<String> {
        let mut texts = Vec::new();
        for node in self.list(key, notes) {
            match node.value {
                Value::String(text) => texts.push(text.clone()),
                other => {
                    notes.problem(&node.path, format!("found {}, expected a string", brief(other)))
                }
            }
        }
        texts
    }
}

/// Formats a value for a message, truncated.
pub(crate) fn brief(value: &Value) -> String {
    const LONGEST: usize = 40;
    match value {
        Value::Null => "nothing".into(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        other => {
            let text = other.to_string();
            if text.chars().count() > LONGEST {
                text.chars().take(LONGEST).chain(['…']).collect()
            } else {
                text
            }
        }
    }
}
