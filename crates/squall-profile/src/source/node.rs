//! The common form of TOML, YAML and JSON: a tree with the position of each key and value.

/// A value and its position in the source, in octets. If there is no source text, start and end are
/// 0.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub start: usize,
    pub end: usize,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// Entries in the order of the source. Keys are unique.
    Table(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    /// The position of the key.
    pub start: usize,
    pub node: Node,
}

/// Text that is not valid TOML, YAML or JSON.
#[derive(Debug)]
pub(super) struct SyntaxMistake {
    pub at: usize,
    pub message: String,
}

impl Node {
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Table(entries) => entries.iter().find(|e| e.key == key).map(|e| &e.node),
            _ => None,
        }
    }

    /// Removes the items of the list at `key`. Returns them; empty if there is no such list.
    pub fn take_list(&mut self, key: &str) -> Vec<Node> {
        let Value::Table(entries) = &mut self.value else { return Vec::new() };
        match entries.iter_mut().find(|e| e.key == key).map(|e| &mut e.node.value) {
            Some(Value::List(items)) => std::mem::take(items),
            _ => Vec::new(),
        }
    }

    /// A number in its usual form, or the text itself, for values that may be either.
    pub fn scalar(&self) -> Option<String> {
        match &self.value {
            Value::Integer(n) => Some(n.to_string()),
            // Rust prints the shortest decimal that reads back the same, without an exponent, so
            // 0.1 stays exactly 1/10.
            Value::Float(x) => Some(x.to_string()),
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    /// The value, shortened to about 60 characters for messages.
    pub fn shown(&self) -> String {
        match &self.value {
            Value::Null => "null".into(),
            Value::Bool(b) => b.to_string(),
            Value::Integer(n) => n.to_string(),
            Value::Float(x) => x.to_string(),
            Value::Text(text) if text.chars().count() > 60 => {
                format!("{:?}...", text.chars().take(57).collect::<String>())
            }
            Value::Text(text) => format!("{text:?}"),
            Value::List(_) => "[...]".into(),
            Value::Table(_) => "{...}".into(),
        }
    }
}

impl From<&Node> for serde_json::Value {
    fn from(node: &Node) -> Self {
        match &node.value {
            Value::Null => Self::Null,
            Value::Bool(b) => Self::Bool(*b),
            Value::Integer(n) => match (i64::try_from(*n), u64::try_from(*n)) {
                (Ok(n), _) => n.into(),
                (_, Ok(n)) => n.into(),
                _ => n.to_string().into(),
            },
            Value::Float(x) => Self::from(*x),
            Value::Text(text) => text.clone().into(),
            Value::List(items) => items.iter().map(Self::from).collect(),
            Value::Table(entries) => {
                Self::Object(entries.iter().map(|e| (e.key.clone(), (&e.node).into())).collect())
            }
        }
    }
}

impl From<&serde_json::Value> for Node {
    fn from(json: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(b) => Value::Bool(*b),
            Json::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(n), _) => Value::Integer(n.into()),
                (_, Some(n)) => Value::Integer(n.into()),
                _ => Value::Float(n.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::Text(text.clone()),
            Json::Array(items) => Value::List(items.iter().map(Node::from).collect()),
            Json::Object(entries) => Value::Table(
                entries
                    .iter()
                    .map(|(key, node)| Entry { key: key.clone(), start: 0, node: node.into() })
                    .collect(),
            ),
        };
        Self { start: 0, end: 0, value }
    }
}
