//! The settings of a template that surround its application, as the schema of profiles has them.

use serde_json::Value;

/// A key of a template with settings around its application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerInfo {
    /// `tls`, `http` or `proxy_protocol`.
    pub key: &'static str,
    /// Description in one line.
    pub about: String,
    /// Keys of its table.
    pub options: Vec<LayerOption>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerOption {
    pub name: String,
    /// The value that applies if the option is absent, or what happens then.
    pub default: Option<String>,
    /// Description in one line.
    pub about: String,
    pub kind: LayerOptionKind,
}

/// The form of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerOptionKind {
    /// A text or a number.
    Text,
    /// `true` or `false`.
    Boolean,
    /// A text, or a list of texts.
    List,
}

/// TLS, HTTP/2 and HTTP/3, and the PROXY protocol, with their options.
pub fn layers() -> Vec<LayerInfo> {
    let schema = squall_profile::schema();
    let template = &schema["properties"]["template"]["items"]["properties"];
    ["tls", "http", "proxy_protocol"].map(|key| layer(key, &template[key])).into()
}

fn layer(key: &'static str, schema: &Value) -> LayerInfo {
    let forms = schema["anyOf"].as_array().into_iter().flatten();
    let tables = forms.filter_map(|form| form["properties"].as_object());
    let options = tables.flatten().map(|(name, schema)| {
        let (about, default) = described(schema);
        let kind = match &schema["type"] {
            Value::String(kind) if kind == "boolean" => LayerOptionKind::Boolean,
            _ if schema["anyOf"].is_array() => LayerOptionKind::List,
            _ => LayerOptionKind::Text,
        };
        LayerOption { name: name.clone(), default, about, kind }
    });
    LayerInfo { key, about: described(schema).0, options: options.collect() }
}

/// The first sentence of a description, and the one about the default.
fn described(schema: &Value) -> (String, Option<String>) {
    let text = schema["description"].as_str().unwrap_or_default().trim_end_matches('.');
    let mut sentences = text.split(". ");
    let about = sentences.next().unwrap_or_default().to_owned();
    let default = sentences.find_map(|sentence| {
        let of = sentence.strip_prefix("Default ");
        let value = of.map(|of| of.split_once(": ").map_or(of, |(value, _)| value));
        value.or_else(|| sentence.strip_prefix("Default: ")).map(str::to_owned)
    });
    (about, default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_have_the_options_of_the_profile_with_their_defaults() {
        let all = layers();
        let option = |key: &str, name: &str| {
            let layer = all.iter().find(|layer| layer.key == key).expect("a layer");
            layer.options.iter().find(|option| option.name == name).expect("an option").clone()
        };
        let found = option("tls", "resumption");
        assert_eq!(found.about, "true: servers give tickets, and clients return with them");
        assert_eq!(
            (found.default.as_deref(), found.kind),
            (Some("false"), LayerOptionKind::Boolean)
        );
        let found = option("tls", "server_name");
        assert_eq!(found.default.as_deref(), Some("the server's address, which is not sent"));
        assert_eq!(option("tls", "alpn").kind, LayerOptionKind::List);
        let found = option("http", "window");
        assert_eq!((found.default.as_deref(), found.kind), (Some("65,535"), LayerOptionKind::Text));
        assert_eq!(option("proxy_protocol", "alpn").default, None);
        assert!(all.iter().all(|layer| !layer.about.is_empty() && layer.options.len() > 6));
    }
}
