//! Values of several fields in one argument of a command line: `name=PDR,loss_ratio=0.005`.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Parses fields as in a settings file; the values of the fields in `texts` are always strings.
pub fn parse<T: DeserializeOwned>(text: &str, texts: &[&str]) -> Result<T, String> {
    let fields = text.split(',').map(|field| one(field, texts));
    let fields = fields.collect::<Result<Map<_, _>, String>>()?;
    serde_json::from_value(fields.into()).map_err(|error| error.to_string())
}

fn one(field: &str, texts: &[&str]) -> Result<(String, Value), String> {
    let Some((key, value)) = field.split_once('=') else {
        return Err(format!("expected FIELD=VALUE, found \"{field}\""));
    };
    let (key, value) = (key.trim(), value.trim());
    let read = match texts.contains(&key) {
        true => value.into(),
        false => serde_json::from_str(value)
            .map_err(|_| format!("{key} = {value}, expected a number, true or false"))?,
    };
    Ok((key.into(), read))
}
