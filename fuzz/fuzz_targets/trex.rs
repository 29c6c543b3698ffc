//! Messages from TRex's clients, one per line, to a single server: each gets an answer, and nothing
//! panics. `HANDLE` and `OWNED` in a line are replaced by values that the server has assigned.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use squall::{Error, Session};
use squall_control::driving::{DrivenRun, Start};
use squall_trex::{PortInfo, Server};
use squall_units::MacAddr;

/// A start that sends no frames.
struct Nowhere;

impl Start for Nowhere {
    fn start(&mut self, _: &str, session: Session) -> Result<Arc<DrivenRun>, Error> {
        session.plan_only()?;
        Err(Error::Usage("nothing is sent".into()))
    }
}

fn field(answer: &[u8], key: &str) -> String {
    let text = String::from_utf8_lossy(answer);
    let after = text.split(key).nth(1).unwrap_or_default();
    after.chars().filter(char::is_ascii_alphanumeric).take(8).collect()
}

fuzz_target!(|octets: &[u8]| {
    let info = |number| PortInfo {
        address: "loop:fuzz".into(),
        description: String::new(),
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        speed_bps: Some(1e10),
        longest: 1518,
        numa: None,
        driver: String::new(),
        bus: String::new(),
    };
    // The first octet selects streams or flows.
    let flows = octets.first().is_some_and(|first| first & 1 == 1);
    let mut server = Server::new(vec![info(0), info(1)], Box::new(Nowhere), flows, false);
    let (name, major) = if flows { ("ASTF", 2) } else { ("STL", 5) };
    let hello = format!(
        r#"{{"jsonrpc":"2.0","id":"1","method":"api_sync_v2","params":{{"name":"{name}","major":{major},"minor":0}}}}"#
    );
    let handle = field(&server.answer(hello.as_bytes()).octets, "api_h");
    let acquire = format!(
        r#"{{"jsonrpc":"2.0","id":"2","method":"acquire","params":{{"api_h":"{handle}","port_id":0,"user":"a","session_id":1,"force":true}}}}"#
    );
    let owned =
        field(&server.answer(acquire.as_bytes()).octets, if flows { "handler" } else { "result" });
    for line in octets.split(|octet| *octet == b'\n').take(50) {
        let message = match std::str::from_utf8(line) {
            Ok(text) => text.replace("HANDLE", &handle).replace("OWNED", &owned).into_bytes(),
            Err(_) => line.to_vec(),
        };
        assert!(!server.answer(&message).octets.is_empty());
        server.look();
    }
});
