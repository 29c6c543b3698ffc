//! Any requests from a server of an EAP method with TLS: nothing panics, the reader of fragments
//! keeps its limit, and the port stays closed, because TLS never ends here. Input: an octet that
//! selects the method, then records of a length and what follows the type of a request.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use squall_host::{EapMethod, Fragment, FragmentReader, Supplicant, SupplicantSettings, TlsClient};
use squall_tls::TlsSettings;
use squall_units::Nanos;

static TLS: OnceLock<TlsClient> = OnceLock::new();

const MOST: usize = 64 << 10;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, mut rest)) = data.split_first() else { return };
    let client = TLS.get_or_init(|| TlsClient::new(&TlsSettings::default()).expect("right"));
    let (method, kind) = match choice & 3 {
        0 => (EapMethod::Tls(client.clone()), 13),
        1 => (EapMethod::Peap(client.clone()), 25),
        2 => (EapMethod::TtlsPap(client.clone()), 21),
        _ => (EapMethod::TtlsMschapV2(client.clone()), 21),
    };
    let settings = SupplicantSettings {
        method,
        identity: "user{}".into(),
        password: "secret".into(),
        ..SupplicantSettings::default()
    };
    let (mut supplicant, mut reader) = (Supplicant::default(), FragmentReader::default());
    let mut now = Nanos(1);
    supplicant.start(now, &settings);
    // The start of TLS, unless the input has another one.
    let mut id = 0;
    let mut receive = |data: &[u8]| {
        id += 1;
        let [high, low] = (5 + data.len() as u16).to_be_bytes();
        let head = [2, 0, high, low, 1, id as u8, high, low, kind];
        // Requests without an answer, a second apart, let the time of the authentication end.
        now = Nanos(now.0 + 1_000_000_000);
        while supplicant.due().is_some_and(|due| due <= now) {
            supplicant.timer(now, &settings);
        }
        let step = supplicant.receive(now, &[&head, data].concat(), 7, &settings);
        if let Some((_, frame)) = step.send {
            assert!(frame.len() <= 1500, "longer than a frame");
        }
        assert!(!supplicant.is_authorized());
    };
    if choice & 4 == 0 {
        receive(&[0x20]);
    }
    while let [len, more @ ..] = rest {
        let (packet, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        receive(packet);
        if let Ok(fragment) = Fragment::parse(packet) {
            // Long messages need many fragments, which an input cannot have.
            let times = if choice & 8 == 0 { 1 } else { 300 };
            for _ in 0..times {
                if let Ok(Some(message)) = reader.read(&fragment) {
                    assert!(message.len() <= MOST);
                }
                assert!(reader.stored() <= MOST);
            }
        }
    }
});
