//! Any octets from the server of a client that sends the hello of a browser, also under the keys of
//! the session, which the target takes from the client's key log: nothing panics, errors stay, and
//! the answers are small. A ticket that the client has is in the hello of another. Input: an octet
//! that selects the browser and how far a correct handshake goes, then pieces of octets, each
//! preceded by its content type, whether it is encrypted or the content of a ServerHello, and its
//! length.
#![no_main]

#[allow(dead_code)] // The tests use all of it.
#[path = "../../crates/squall-tls/tests/all/server.rs"]
mod server;

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use server::{Choice, RETRY, Secrets, Server, choice, record};
use squall_tls::{Browser, HelloClient, TlsSettings, hello_client_config};

fuzz_target!(|data: &[u8]| {
    let Some((&selector, mut input)) = data.split_first() else { return };
    let browsers = Browser::all().count();
    let browser = Browser::all().nth(usize::from(selector >> 2) % browsers).expect("one of them");
    let secrets = Arc::new(Secrets::default());
    let config = hello_client_config(&TlsSettings::default(), Arc::new(browser.hello()));
    let mut config = config.expect("right settings");
    config.key_log = secrets.clone();
    config.keep_tickets(Arc::new(rustls::time_provider::DefaultTimeProvider));
    let config = Arc::new(config);
    let new = || HelloClient::new(config.clone(), "a.test".try_into().expect("a name"));
    let mut client = new();
    let (mut out, mut plain) = (vec![], vec![]);
    assert_eq!(client.progress(&mut [], &mut out, &mut plain).result, Ok(()));
    let mut server = Server::new(secrets, &out);
    if selector & 3 > 0 {
        let hello = server.hello(&choice());
        give(&mut client, &record(22, &hello));
        server.use_keys("SERVER_HANDSHAKE_TRAFFIC_SECRET");
    }
    if selector & 3 > 1 {
        let flight = server.flight(&[], &[]);
        let octets = server.seal(22, &flight);
        give(&mut client, &octets);
        assert!(!client.is_handshaking());
        server.use_keys("SERVER_TRAFFIC_SECRET_0");
    }
    while let [head, len, rest @ ..] = input {
        let (octets, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        input = rest;
        if head & 8 > 0 {
            server_hello(&mut client, &mut server, head & 16 > 0, octets);
            continue;
        }
        let (kind, text) = (20 + (head & 3), octets.repeat(usize::from(head >> 4) + 1));
        let octets = if head & 4 > 0 { server.seal(kind, &text) } else { record(kind, &text) };
        give(&mut client, &octets);
    }
    // The hello of another session has a ticket, if the server has given one.
    out.clear();
    assert_eq!(new().progress(&mut [], &mut out, &mut plain).result, Ok(()));
    assert!(out.len() < 1 << 16);
});

/// A ServerHello, or a HelloRetryRequest, with the session ID of the client. `fields`: the version,
/// the cipher suite and extensions.
fn server_hello(client: &mut HelloClient, server: &mut Server, retry: bool, fields: &[u8]) {
    let [v0, v1, s0, s1, extensions @ ..] = fields else { return };
    let hello = server.hello(&Choice {
        version: u16::from_be_bytes([*v0, *v1]),
        random: if retry { RETRY } else { [7; 32] },
        suite: u16::from_be_bytes([*s0, *s1]),
        extensions: extensions.to_vec(),
    });
    give(client, &record(22, &hello));
    if client.is_handshaking() {
        server.use_keys("SERVER_HANDSHAKE_TRAFFIC_SECRET");
    }
}

/// One call, as a session makes it.
fn give(client: &mut HelloClient, octets: &[u8]) {
    let (mut octets, mut out, mut plain) = (octets.to_vec(), vec![], vec![]);
    let progress = client.progress(&mut octets, &mut out, &mut plain);
    assert!(progress.used <= octets.len());
    assert!(plain.len() <= octets.len() && out.len() < 1 << 16);
    if progress.result.is_err() {
        assert!(!client.encrypt(Some(b"x"), &mut out));
        assert_eq!(client.progress(&mut [], &mut out, &mut plain).result, progress.result);
    } else if !client.is_handshaking() {
        assert!(client.encrypt(Some(b"x"), &mut out));
    }
}
