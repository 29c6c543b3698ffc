//! Measures how long the translation of a configuration with many flows takes: `cargo run --release
//! -p squall-otg --example translate [FLOWS | FILE]`.
use std::time::Instant;

use serde_json::{Value, json};
use squall_otg::{Config, translate};

fn main() {
    let what = std::env::args().nth(1).unwrap_or_else(|| "4096".into());
    let value: Value = match what.parse::<u32>() {
        Ok(flows) => json!({
            "ports": [{ "name": "p1", "location": "loop:0" }, { "name": "p2", "location": "loop:0" }],
            "flows": (0..flows).map(flow).collect::<Vec<_>>(),
        }),
        Err(_) => {
            serde_json::from_str(&std::fs::read_to_string(&what).expect("a file")).expect("JSON")
        }
    };
    let config = Config::from_json(&value).expect("an object");
    let start = Instant::now();
    match translate(&config) {
        Ok(translated) => {
            let streams = translated.profile.streams.len();
            println!(
                "{} flows, {streams} streams in {:?}",
                translated.flows.len(),
                start.elapsed()
            );
            translated.warnings.iter().for_each(|warning| println!("{warning}"));
        }
        Err(problems) => println!("{problems}\nin {:?}", start.elapsed()),
    }
}

fn flow(i: u32) -> Value {
    let address = |net: u32| format!("{net}.{}.{}.1", i >> 8 & 255, i & 255);
    json!({
        "name": format!("f{i}"),
        "tx_rx": { "choice": "port", "port": { "tx_name": "p1", "rx_names": ["p2"] } },
        "packet": [
            { "choice": "ethernet", "ethernet": {
                "src": { "choice": "value", "value": "00:11:22:33:44:55" },
                "dst": { "choice": "value", "value": "00:11:22:33:44:66" } } },
            { "choice": "ipv4", "ipv4": {
                "src": { "choice": "value", "value": address(10) },
                "dst": { "choice": "increment", "increment": { "start": address(20), "step": "0.0.0.1", "count": 5 } } } },
            { "choice": "udp", "udp": {
                "src_port": { "choice": "value", "value": 5000 },
                "dst_port": { "choice": "values", "values": [6000, 6001, 6002] } } },
        ],
        "size": { "choice": "fixed", "fixed": 128 },
        "rate": { "choice": "pps", "pps": 100 },
        "duration": { "choice": "fixed_packets", "fixed_packets": { "packets": 100 } },
        "metrics": { "enable": true, "loss": true, "latency": { "enable": true } },
    })
}
