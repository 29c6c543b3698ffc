//! A configuration as received, kept unchanged for clients that read it back.

use serde_json::{Value, json};

use crate::{
    Problems,
    read::{Node, Notes},
};

/// The result of `set_config` and of later `append`, `update` and `delete`. Always an object;
/// [`crate::translate`] validates its content.
#[derive(Clone, Debug, PartialEq)]
pub struct Config(pub(crate) Value);

impl Default for Config {
    fn default() -> Self {
        Self(json!({}))
    }
}

impl Config {
    /// # Errors
    /// The value is not an object.
    pub fn from_json(value: &Value) -> Result<Self, Problems> {
        match value {
            Value::Object(_) => Ok(Self(value.clone())),
            // An empty body is an empty configuration.
            Value::Null => Ok(Self::default()),
            _ => Err(Problems::one("", "the configuration is not an object")),
        }
    }

    /// The configuration as set.
    pub fn to_json(&self) -> Value {
        self.0.clone()
    }

    /// `ConfigAppend`: `{"config_append_list": [{"choice": "flows", "flows": [...]}]}`.
    /// [`crate::translate`] checks that names are new.
    ///
    /// # Errors
    /// An invalid message; the configuration stays unchanged.
    pub fn append(&self, append: &Value) -> Result<Self, Problems> {
        let mut notes = Notes::default();
        let mut config = self.clone();
        let root = Node::root(append);
        root.known(&["config_append_list"], &mut notes);
        for node in root.list("config_append_list", &mut notes) {
            node.known(&["choice", "flows"], &mut notes);
            let Some((_, _)) = node.member(&["flows"], Some("flows"), &mut notes) else { continue };
            let flows = node.list("flows", &mut notes).into_iter().map(|flow| flow.value.clone());
            config.flows().extend(flows);
        }
        notes.end(Some(config))
    }

    /// `ConfigUpdate`: `{"choice": "flows", "flows": {"property_names": ["rate"], "flows":
    /// [{"name": ...}]}}`.
    ///
    /// # Errors
    /// As for [`Config::append`].
    pub fn update(&self, update: &Value) -> Result<Self, Problems> {
        let mut notes = Notes::default();
        let mut config = self.clone();
        let root = Node::root(update);
        root.known(&["choice", "flows", "protocols"], &mut notes);
        let Some((choice, inner)) = root.member(&["flows", "protocols"], None, &mut notes) else {
            return notes.end(None);
        };
        if choice == "protocols" {
            notes.unsupported(&inner, "protocols cannot be changed; try set_config");
            return notes.end(None);
        }
        inner.known(&["property_names", "flows"], &mut notes);
        let properties = inner.texts("property_names", &mut notes);
        for property in
            properties.iter().filter(|property| !["rate", "size"].contains(&property.as_str()))
        {
            notes.problem(
                inner.at("property_names").path,
                format!("found {property:?}, expected rate or size"),
            );
        }
        for node in inner.list("flows", &mut notes) {
            let Some(name) = node.needed_text("name", &mut notes) else { continue };
            let named = |flow: &&mut Value| flow.get("name").and_then(Value::as_str) == Some(name);
            let Some(Value::Object(flow)) = config.flows().iter_mut().find(named) else {
                notes.problem(node.at("name").path, format!("there is no flow {name:?}"));
                continue;
            };
            for property in &properties {
                match node.get(property) {
                    Some(new) => flow.insert(property.clone(), new.value.clone()),
                    None => flow.remove(property),
                };
            }
        }
        notes.end(Some(config))
    }

    /// `ConfigDelete`: `{"config_delete_list": [{"choice": "flows", "flows": ["name"]}]}`.
    ///
    /// # Errors
    /// As for [`Config::append`].
    pub fn delete(&self, delete: &Value) -> Result<Self, Problems> {
        let mut notes = Notes::default();
        let mut config = self.clone();
        let root = Node::root(delete);
        root.known(&["config_delete_list"], &mut notes);
        for node in root.list("config_delete_list", &mut notes) {
            node.known(&["choice", "flows"], &mut notes);
            if node.member(&["flows"], Some("flows"), &mut notes).is_none() {
                continue;
            }
            for name in node.texts("flows", &mut notes) {
                let before = config.flows().len();
                config
                    .flows()
                    .retain(|flow| flow.get("name").and_then(Value::as_str) != Some(&name));
                if config.flows().len() == before {
                    notes.problem(node.at("flows").path, format!("there is no flow {name:?}"));
                }
            }
        }
        notes.end(Some(config))
    }

    /// The list of flows; creates it if it is missing or not a list.
    fn flows(&mut self) -> &mut Vec<Value> {
        let flows = &mut self.0["flows"];
        if !flows.is_array() {
            *flows = Value::Array(Vec::new());
        }
        flows.as_array_mut().expect("it was made a list")
    }
}
