//! JSON-RPC 2 as TRex's clients use it: compressed frames, batches, error codes.

use std::io::Read;

use flate2::{Compression, read::ZlibDecoder, write::ZlibEncoder};
use serde_json::{Map, Value, json};

/// First octets of a compressed message; its length follows in four octets.
const MAGIC: [u8; 4] = [0xab, 0xe8, 0x5c, 0xea];
/// Maximum octets of an unpacked request: 10,000 streams of long packets, with a margin.
const LARGEST: u64 = 256 << 20;
/// Maximum requests in one message.
const MOST: usize = 100_000;
/// Minimum length of an answer that is compressed.
const WORTH: usize = 8 << 10;

/// The error of a refused request.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub code: i32,
    /// Text shown to the user.
    pub text: String,
}

impl Refusal {
    pub fn parameters(text: impl Into<String>) -> Self {
        Self { code: -32602, text: text.into() }
    }

    pub fn failed(text: impl Into<String>) -> Self {
        Self { code: -32000, text: text.into() }
    }

    pub fn unknown(text: impl Into<String>) -> Self {
        Self { code: -32601, text: text.into() }
    }

    fn message(&self) -> &'static str {
        match self.code {
            -32700 => "Parse error",
            -32600 => "Invalid Request",
            -32601 => "Method not found",
            -32602 => "Invalid params",
            -32603 => "Internal error",
            -32001 => "Try again",
            _ => "Failed To Execute Method",
        }
    }
}

/// Parameters of a request.
pub struct Params<'a>(pub &'a Map<String, Value>);

impl Params<'_> {
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn need<'a, T>(
        &'a self,
        name: &str,
        kind: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T, Refusal> {
        let value = self.get(name);
        let Some(value) = value else {
            return Err(Refusal::parameters(format!("field '{name}' is missing")));
        };
        read(value).ok_or_else(|| Refusal::parameters(format!("field '{name}': expected {kind}")))
    }

    pub fn number(&self, name: &str) -> Result<f64, Refusal> {
        self.need(name, "a number", Value::as_f64)
    }

    pub fn whole(&self, name: &str) -> Result<u64, Refusal> {
        self.need(name, "a whole number of 0 or more", Value::as_u64)
    }

    pub fn text(&self, name: &str) -> Result<&str, Refusal> {
        self.need(name, "text", Value::as_str)
    }

    pub fn object(&self, name: &str) -> Result<&Map<String, Value>, Refusal> {
        self.need(name, "an object", Value::as_object)
    }

    pub fn list(&self, name: &str) -> Result<&Vec<Value>, Refusal> {
        self.need(name, "a list", Value::as_array)
    }

    /// A Boolean; `false` if absent.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).and_then(Value::as_bool).unwrap_or(false)
    }
}

/// Answers a message. Every message gets an answer, valid or not.
pub fn answer(
    message: &[u8],
    mut dispatch: impl FnMut(&str, &Params<'_>) -> Result<Value, Refusal>,
) -> Vec<u8> {
    let answer = match unpacked(message)
        .and_then(|text| serde_json::from_slice::<Value>(&text).map_err(|error| error.to_string()))
    {
        Ok(Value::Array(requests)) if requests.is_empty() || requests.len() > MOST => {
            let text = format!("a batch of {} requests: expected 1 to {MOST}", requests.len());
            refused(&Value::Null, &Refusal { code: -32600, text })
        }
        Ok(Value::Array(requests)) => {
            Value::Array(requests.iter().map(|request| one(request, &mut dispatch)).collect())
        }
        Ok(request) => one(&request, &mut dispatch),
        Err(text) => refused(&Value::Null, &Refusal { code: -32700, text }),
    };
    packed(answer.to_string().into_bytes())
}

/// Refuses a message from a client without access: each request in it gets `why` as its error.
/// Returns the answer and the requested methods. A compressed message is not decompressed, which
/// could take much memory; it gets a single error.
pub fn refuse(message: &[u8], why: &str) -> (Vec<u8>, Vec<String>) {
    if message.starts_with(&MAGIC) {
        let refusal = refused(&Value::Null, &Refusal::failed(why));
        return (refusal.to_string().into_bytes(), Vec::new());
    }
    let mut methods = Vec::new();
    let answer = answer(message, |method, _| {
        if methods.len() < SHOWN && !methods.iter().any(|known| known == method) {
            methods.push(method.chars().take(LONGEST).collect());
        }
        Err(Refusal::failed(why))
    });
    (answer, methods)
}

/// Maximum number of methods of a refused message to show, and maximum length of each in
/// characters.
const SHOWN: usize = 10;
const LONGEST: usize = 40;

fn one(
    request: &Value,
    dispatch: &mut dyn FnMut(&str, &Params<'_>) -> Result<Value, Refusal>,
) -> Value {
    let id = &request["id"];
    let none = Map::new();
    let params = match &request["params"] {
        Value::Object(params) => params,
        Value::Null => &none,
        _ => {
            let text = "params: expected an object".into();
            return refused(id, &Refusal { code: -32600, text });
        }
    };
    let Some(method) = request["method"].as_str().filter(|_| request["jsonrpc"] == "2.0") else {
        let text = "expected jsonrpc \"2.0\" and a method".into();
        return refused(id, &Refusal { code: -32600, text });
    };
    match dispatch(method, &Params(params)) {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(refusal) => refused(id, &refusal),
    }
}

fn refused(id: &Value, refusal: &Refusal) -> Value {
    let error = json!({
        "code": refusal.code, "message": refusal.message(), "specific_err": refusal.text,
    });
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}

fn unpacked(message: &[u8]) -> Result<Vec<u8>, String> {
    let Some(rest) = message.strip_prefix(&MAGIC) else { return Ok(message.to_vec()) };
    let Some((length, packed)) = rest.split_first_chunk::<4>() else {
        return Err("a compressed message that ends in its header".into());
    };
    let length = u64::from(u32::from_be_bytes(*length));
    if length > LARGEST {
        return Err(format!("a message of {length} octets: expected at most {LARGEST}"));
    }
    let mut text = Vec::new();
    let read = ZlibDecoder::new(packed).take(length + 1).read_to_end(&mut text);
    match read {
        Ok(_) if text.len() as u64 == length => Ok(text),
        Ok(_) => Err(format!("a compressed message that does not have its {length} octets")),
        Err(error) => Err(format!("a compressed message that cannot be unpacked: {error}")),
    }
}

fn packed(text: Vec<u8>) -> Vec<u8> {
    if text.len() < WORTH {
        return text;
    }
    let mut to = MAGIC.to_vec();
    to.extend((text.len() as u32).to_be_bytes());
    let mut encoder = ZlibEncoder::new(to, Compression::fast());
    // Writing into memory cannot fail.
    match std::io::Write::write_all(&mut encoder, &text).and_then(|()| encoder.finish()) {
        Ok(packed) => packed,
        Err(_) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(message: &[u8]) -> Value {
        let answer = answer(message, |method, params| match method {
            "double" => Ok(json!(params.whole("n")? * 2)),
            "long" => Ok(json!("x".repeat(100_000))),
            _ => Err(Refusal::unknown(format!("Method {method} not registered"))),
        });
        serde_json::from_slice(&unpacked(&answer).expect("ours")).expect("JSON")
    }

    #[test]
    fn a_batch_is_answered_in_its_order_and_each_broken_request_by_its_code() {
        let batch = r#"[{"jsonrpc":"2.0","id":"a","method":"double","params":{"n":4}},
            {"jsonrpc":"2.0","id":"b","method":"double","params":{}},
            {"jsonrpc":"2.0","id":"c","method":"treble","params":{}},
            {"id":"d","method":"double"}, 7]"#;
        let answers = ask(batch.as_bytes());
        assert_eq!(answers[0], json!({ "jsonrpc": "2.0", "id": "a", "result": 8 }));
        let codes: Vec<_> = (1..5).map(|i| answers[i]["error"]["code"].as_i64()).collect();
        assert_eq!(codes, [Some(-32602), Some(-32601), Some(-32600), Some(-32600)]);
        assert_eq!(answers[1]["error"]["specific_err"], "field 'n' is missing");
    }

    #[test]
    fn a_refused_client_gets_the_reason_for_each_request_and_nothing_is_unpacked() {
        let batch = r#"[{"jsonrpc":"2.0","id":"a","method":"acquire","params":{"port_id":0}},
            {"jsonrpc":"2.0","id":"b","method":"acquire"}, {"jsonrpc":"2.0","id":"c","method":"ping"}]"#;
        let (answers, methods) = refuse(batch.as_bytes(), "not yours");
        let answers: Value = serde_json::from_slice(&answers).expect("JSON");
        let of = |i: usize| (answers[i]["id"].clone(), answers[i]["error"]["specific_err"].clone());
        assert_eq!([of(0), of(2)], ["a", "c"].map(|id| (json!(id), json!("not yours"))));
        assert_eq!(methods, ["acquire", "ping"]);
        let (answer, methods) = refuse(&packed(vec![b' '; 1 << 20]), "not yours");
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        assert_eq!(answer["error"]["specific_err"], "not yours");
        assert!(methods.is_empty());
    }

    #[test]
    fn compressed_messages_are_read_and_broken_or_too_large_ones_are_answered() {
        let text = br#"{"jsonrpc":"2.0","id":"a","method":"long"}"#.to_vec();
        let padded = [text.clone(), vec![b' '; 20_000]].concat();
        let compressed = packed(padded);
        assert!(compressed.len() < 1000 && compressed.starts_with(&MAGIC));
        assert_eq!(ask(&compressed)["result"].as_str().map(str::len), Some(100_000));
        for broken in [
            &b"{"[..],
            b"",
            b"[]",
            &MAGIC,
            b"\xab\xe8\x5c\xea\x00\x00\x00\x05abc",
            b"\xab\xe8\x5c\xea\xff\xff\xff\xffabc",
            &compressed[..compressed.len() - 9],
        ] {
            assert!(ask(broken)["error"]["code"].is_i64(), "{broken:?}");
        }
    }
}
