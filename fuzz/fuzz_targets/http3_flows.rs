//! Any datagrams from the peer of a flow over HTTP/3, in place of its packets or between them:
//! nothing panics, and no state of the flow or its streams is left. They are not encrypted, so that
//! they test only the code before decryption; `http3_streams` tests the rest. Input: an octet that
//! selects the side, the length of a correct exchange and settings, then datagrams, each preceded by
//! its length.
#![no_main]

#[path = "../src/ends.rs"]
mod ends;

use std::sync::OnceLock;

use ends::End;
use libfuzzer_sys::fuzz_target;
use squall_apps::{Http3, Tls, TlsSettings};

/// Created once: generating a certificate takes longer than everything else here.
static TLS: OnceLock<Tls> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let tls = TLS.get_or_init(|| {
        let settings = TlsSettings { alpn: vec!["h3".into()], ..TlsSettings::default() };
        Tls::new(&settings).expect("right settings")
    });
    let first = data.first().copied().unwrap_or(0);
    let settings = Http3 {
        streams: 3,
        qpack_table: 4_096 * u32::from(first & 0x20 != 0),
        retry: first & 0x80 != 0,
        reserved_version: first & 0x40 != 0,
        ..Http3::default()
    };
    let ends = [false, true].map(|client| End::over_http3(tls, &settings, client));
    ends::exchange(ends, data);
});
