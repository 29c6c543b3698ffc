//! Any octets from the peer of a TLS session, in place of its handshake or during it: nothing
//! panics, sent data can be produced again, and no state of the flow is left. Input: an octet that
//! selects the side and the length of a correct handshake, and whether the client resumes a session
//! with early data, then pieces of octets, each preceded by its length.
#![no_main]

#[path = "../src/ends.rs"]
mod ends;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use squall_apps::{Apps, Counts, Program, Tls, TlsSettings, TlsVersion};

/// Created once: generating a certificate takes longer than everything else here.
static TLS: OnceLock<Tls> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let tls = TLS.get_or_init(|| {
        let versions = vec![TlsVersion::Tls12, TlsVersion::Tls13];
        let settings = TlsSettings { resumption: true, versions, ..TlsSettings::default() };
        let mut tls = Tls::new(&settings).expect("right settings");
        tls.enable_early_data().expect("TLS 1.3");
        tls
    });
    ends::exchange([end(tls, false), end(tls, true)], data);
});

fn end(tls: &Tls, client: bool) -> ends::End {
    let builder = if client { Program::client("c") } else { Program::server("s") };
    let builder = if client {
        builder.send("hello\r\n").recv_until("\r\n").close()
    } else {
        builder.recv_until("\r\n").send("${repeat:40000:x}\r\n").close()
    };
    let mut apps = Apps::new(1, Counts::default());
    let program = apps.add(&builder.build().expect("right")).expect("right");
    apps.secure(program, tls);
    ends::End::new(apps, program, client)
}
