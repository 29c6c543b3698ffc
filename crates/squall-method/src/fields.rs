//! Several fields in one command-line argument: `name=PDR,loss_ratio=0.005`.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use squall_units::{Rate, RateUnit};

/// Parses fields as in a settings file. Values of the fields in `texts` are always strings.
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
    let read = match serde_json::from_str(value) {
        _ if texts.contains(&key) => value.into(),
        Ok(read) => read,
        Err(_) if key.ends_with("_bps") => json!(bps(key, value)?),
        Err(_) => return Err(format!("{key} = {value}, expected a number, true or false")),
    };
    Ok((key.into(), read))
}

/// Parses a rate with a unit (`6Mbps`) as bits per second of frames with FCS.
fn bps(key: &str, value: &str) -> Result<f64, String> {
    let wrong = |why: String| format!("{key} = {value}, {why}\n  try {key}=6Mbps or {key}=6e6");
    match value.parse::<Rate>() {
        Ok(rate) if rate.unit == RateUnit::BpsL2 => Ok(rate.value()),
        Ok(_) => Err(wrong("expected bits per second of frames with FCS".into())),
        Err(error) => Err(wrong(error.to_string())),
    }
}
