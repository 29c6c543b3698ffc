//! Conversations of TRex's stock client with the server, recorded by `tests/interop/trex_record.py`
//! (which describes the files in `conversations/`): the same requests must get the same answers and
//! events. `BLESS=1` writes the answers of this server into the files.

#[path = "../../squall/tests/harness/mod.rs"]
#[expect(dead_code, reason = "the harness has more than these tests need")]
mod harness;

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::read::ZlibDecoder;
use serde_json::{Map, Value, json};

use harness::Outcome;
use squall::{Error, Session};
use squall_control::driving::{DrivenRun, InProcess, Start};
use squall_port_linux::lab::{self, LabOptions};
use squall_trex::{FlowMode, PortInfo, Server};
use squall_units::MacAddr;

/// Time limit for an event, and for counters to become final.
const WAIT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    harness::main(&[
        ("streams_of_the_stock_client_are_answered_as_recorded", || play("stl")),
        ("flows_of_the_stock_client_are_answered_as_recorded", || play("astf")),
        ("topologies_of_the_stock_client_are_answered_as_recorded", || play("topologies")),
        ("services_of_the_stock_client_are_answered_as_recorded", || {
            lab::enter_private(&LabOptions::default())?;
            play("services")
        }),
    ])
}

fn play(name: &str) -> Outcome {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/conversations/{name}.jsonl"));
    let text = fs::read_to_string(&path)?;
    let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let (head, exchanges) = lines.split_first().ok_or("an empty file")?;
    let mut player = Player::new(head)?;
    let bless = std::env::var_os("BLESS").is_some();
    let mut played = vec![head.clone()];
    for (number, exchange) in exchanges.iter().enumerate() {
        match player.exchange(exchange) {
            Ok(()) => played.push(exchange.clone()),
            Err(different) if bless => played.push(different.found),
            Err(different) => {
                return Err(format!("{name}.jsonl:{}: {}", number + 2, different.why).into());
            }
        }
    }
    if bless {
        let lines: Vec<String> = played.iter().map(Value::to_string).collect();
        fs::write(&path, lines.join("\n") + "\n")?;
    }
    Ok(())
}

/// A difference from the recording.
struct Different {
    why: String,
    /// The exchange with what the server has answered.
    found: Value,
}

struct Player {
    server: Server,
    /// Secrets of this server, by their names in the recording.
    secrets: BTreeMap<String, String>,
    /// For each session, the number of the next event, and events that are not compared yet.
    events: BTreeMap<u64, (u64, VecDeque<Value>)>,
}

impl Player {
    fn new(head: &Value) -> Result<Self, Box<dyn std::error::Error>> {
        let folder = Folder::new(&head["files"])?;
        let addresses = head["ports"].as_array().ok_or("no ports")?;
        let ports = addresses.iter().enumerate().map(|(number, address)| {
            let address = address.as_str().unwrap_or_default().to_owned();
            let interface = address.strip_prefix("af_packet:").unwrap_or(&address);
            PortInfo {
                description: interface.to_owned(),
                mac: MacAddr([2, 0, 0, 0, 0, number as u8]),
                speed_bps: Some(10e9),
                longest: 9_018,
                numa: None,
                driver: String::new(),
                bus: String::new(),
                address,
                dummy: false,
            }
        });
        let flows = (head["mode"] == "astf").then(FlowMode::default);
        let start = Starter(InProcess(Duration::from_millis(50)), folder);
        let server = Server::new(ports.collect(), Box::new(start), flows, false);
        Ok(Self { server, secrets: BTreeMap::new(), events: BTreeMap::new() })
    }

    fn exchange(&mut self, exchange: &Value) -> Result<(), Different> {
        if let Some(session) = exchange["session"].as_u64() {
            return self.wait_for_events(session, exchange);
        }
        let asks = exchange["batch"].as_array();
        let asks = asks.map_or(std::slice::from_ref(exchange), Vec::as_slice);
        let until = Instant::now() + WAIT;
        loop {
            let answers = self.ask(asks);
            let mut different = None;
            for (ask, answer) in asks.iter().zip(&answers) {
                let found = self.compare(ask, answer, ask["method"].as_str().unwrap_or_default());
                different = different.or(found.err());
            }
            let Some(why) = different else { return Ok(()) };
            // Counters become final a little after the event for the end of traffic.
            if Instant::now() >= until || !asks.iter().all(is_read_only) {
                let all: Vec<Value> = asks
                    .iter()
                    .zip(&answers)
                    .map(|(ask, found)| self.blessed(ask, found))
                    .collect();
                let found = match exchange["batch"].is_array() {
                    true => json!({ "batch": all }),
                    false => all[0].clone(),
                };
                return Err(Different { why, found });
            }
            self.server.look();
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Sends the requests as one message; returns each with its answer, as recorded.
    fn ask(&mut self, asks: &[Value]) -> Vec<Value> {
        let request = |ask: &Value| {
            let params = self.with_secrets(&ask["params"]);
            json!({ "jsonrpc": "2.0", "id": "a", "method": ask["method"], "params": params })
        };
        let requests: Vec<Value> = asks.iter().map(request).collect();
        let message = match &requests[..] {
            [one] => one.to_string(),
            all => json!(all).to_string(),
        };
        let answers = match unpacked(&self.server.answer(message.as_bytes()).octets) {
            Value::Array(answers) => answers,
            one => vec![one],
        };
        let joined = |(ask, answer): (&Value, &Value)| {
            let mut all = json!({ "method": ask["method"], "params": ask["params"] });
            for key in ["result", "error"] {
                if let Some(value) = answer.get(key) {
                    all[key] = value.clone();
                }
            }
            all
        };
        asks.iter().zip(&answers).map(joined).collect()
    }

    /// Polls until all events of the recording have arrived.
    fn wait_for_events(&mut self, session: u64, exchange: &Value) -> Result<(), Different> {
        let none = Vec::new();
        let expected = exchange["events"].as_array().unwrap_or(&none);
        let until = Instant::now() + WAIT;
        loop {
            self.server.look();
            let ask = json!({ "method": "get_async_events",
                "params": { "api_h": "<handle>", "session_id": session, "user": "sub" } });
            let arrived = self.ask(&[ask])[0]["result"]["data"].take();
            let (next, queue) = self.events.entry(session).or_default();
            for event in arrived.as_array().into_iter().flatten() {
                let mut event = event.clone();
                let number = event.as_object_mut().and_then(|event| event.remove("seq"));
                assert_eq!(number, Some(json!(*next)), "the number of an event");
                *next += 1;
                queue.push_back(event);
            }
            if queue.len() >= expected.len() || Instant::now() >= until {
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let (_, queue) = self.events.entry(session).or_default();
        let count = queue.len().min(expected.len());
        let found: Vec<Value> = queue.drain(..count).collect();
        // The order of events of different ports is left to chance.
        let by_port = |events: &[Value]| {
            let mut events = events.to_vec();
            events.sort_by_key(|event| event["data"]["port_id"].as_u64());
            json!({ "session": session, "events": events })
        };
        let (expected, found) = (by_port(expected), by_port(&found));
        self.compare(&expected, &found, "").map_err(|why| {
            let found = self.blessed(&expected, &found);
            Different { why, found }
        })
    }

    fn with_secrets(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => json!(self.secrets.get(text).unwrap_or(text)),
            Value::Array(all) => all.iter().map(|one| self.with_secrets(one)).collect(),
            Value::Object(all) => Value::Object(
                all.iter().map(|(key, one)| (key.clone(), self.with_secrets(one))).collect(),
            ),
            other => other.clone(),
        }
    }

    /// # Errors
    /// The place of the first difference, and both values.
    fn compare(&mut self, expected: &Value, found: &Value, at: &str) -> Result<(), String> {
        match (expected, found) {
            _ if is_any(expected, found) => Ok(()),
            (Value::String(name), Value::String(secret)) if name.starts_with("<hand") => {
                let known = self.secrets.entry(name.clone()).or_insert_with(|| secret.clone());
                match known == secret || name == secret {
                    true => Ok(()),
                    false => Err(format!("{at}: {secret}: expected {name}, which is {known}")),
                }
            }
            (Value::Object(expected), Value::Object(found)) => {
                let keys = |of: &Map<String, Value>, other: &Map<String, Value>| {
                    of.keys().find(|key| !other.contains_key(*key)).cloned()
                };
                if let Some(key) = keys(expected, found) {
                    return Err(format!("{at}: {key} is missing: {}", expected[&key]));
                }
                if let Some(key) = keys(found, expected) {
                    return Err(format!("{at}: {key} is not recorded: {}", found[&key]));
                }
                expected.iter().try_for_each(|(key, one)| {
                    self.compare(one, &found[key], &format!("{at}.{key}"))
                })
            }
            (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
                let pairs = expected.iter().zip(found).enumerate();
                for (number, (expected, found)) in pairs {
                    self.compare(expected, found, &format!("{at}.{number}"))?;
                }
                Ok(())
            }
            _ if expected == found => Ok(()),
            _ => Err(format!("{at}: {found}, expected {expected}")),
        }
    }

    /// `found` as the recording would have it.
    fn blessed(&self, expected: &Value, found: &Value) -> Value {
        match (expected, found) {
            _ if is_any(expected, found) => expected.clone(),
            (_, Value::String(text)) => {
                let secret = self.secrets.iter().find(|(_, secret)| *secret == text);
                json!(secret.map_or(text, |(name, _)| name))
            }
            (_, Value::Object(all)) => Value::Object(
                all.iter()
                    .map(|(key, one)| (key.clone(), self.blessed(&expected[key], one)))
                    .collect(),
            ),
            (_, Value::Array(all)) => all
                .iter()
                .enumerate()
                .map(|(number, one)| self.blessed(&expected[number], one))
                .collect(),
            _ => found.clone(),
        }
    }
}

/// Whether `expected` matches any value of a type, and `found` has this type.
fn is_any(expected: &Value, found: &Value) -> bool {
    match expected.as_str() {
        Some("<number>") => found.is_number() || found.is_boolean(),
        Some("<text>") => found.is_string(),
        Some("<list>") => found.is_array(),
        Some("<object>") => found.is_object(),
        _ => false,
    }
}

/// Whether a request may be repeated until its answer is as recorded.
fn is_read_only(ask: &Value) -> bool {
    let method = ask["method"].as_str().unwrap_or_default();
    match method {
        "get_rx_queue_pkts" => false,
        "capture" => ask["params"]["command"] == "status",
        _ => method.starts_with("get_"),
    }
}

/// Reads an answer, which is compressed if it is long.
fn unpacked(octets: &[u8]) -> Value {
    let mut text = Vec::new();
    match octets.strip_prefix(&[0xab, 0xe8, 0x5c, 0xea]) {
        Some(packed) => _ = ZlibDecoder::new(&packed[4..]).read_to_end(&mut text),
        None => text.extend(octets),
    }
    serde_json::from_slice(&text).expect("an answer is JSON")
}

/// Starts runs in this process. Names of files are those of a folder, as in the daemon.
struct Starter(InProcess, Folder);

impl Start for Starter {
    fn start(&mut self, name: &str, session: Session) -> Result<Arc<DrivenRun>, Error> {
        self.0.start(name, session)
    }

    fn file(&self, name: &str) -> Result<PathBuf, Error> {
        Ok(self.1.0.join(name))
    }
}

/// A temporary folder with the files that the daemon had.
struct Folder(PathBuf);

impl Folder {
    fn new(files: &Value) -> Result<Self, Box<dyn std::error::Error>> {
        let folder = std::env::temp_dir().join(format!("squall-trex-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        for (name, content) in files.as_object().into_iter().flatten() {
            fs::write(folder.join(name), STANDARD.decode(content.as_str().unwrap_or_default())?)?;
        }
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}
