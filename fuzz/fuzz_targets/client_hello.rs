//! Any octets as a ClientHello, and as the text of a fingerprint. A hello that is read is written
//! and read again, with the same cipher suites; so is the second hello, after HelloRetryRequest.
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_tls::{Fresh, Hello, Psk, Retry};

/// The limit of the reader.
const MAX_LEN: usize = 1 << 14;

fuzz_target!(|data: &[u8]| {
    let text = std::str::from_utf8(data).ok().and_then(|text| Hello::from_text(text).ok());
    let mut random = [0; 64];
    random.iter_mut().zip(data.iter().rev()).for_each(|(to, from)| *to = *from);
    for hello in Hello::from_client_hello(data).ok().into_iter().chain(text) {
        let ja4 = hello.ja4();
        assert!(ja4.len() == 36 && !hello.ja3().is_empty());
        let (name, shares) = (Some("a.test"), &[][..]);
        let first = Fresh { name, shares, random: &random, retry: None, psk: None, ticket: None };
        let retry = Some(Retry { group: 29, cookie: b"cookie" });
        let second = Fresh { shares: &[(29, &[7; 32])], retry, ..first };
        let psk = Some(Psk { identity: b"ticket", obfuscated_age: 7, binder: 32 });
        let ticket = Some(&b"ticket"[..]);
        for fresh in [
            first,
            second,
            Fresh { psk, ..first },
            Fresh { psk, ..second },
            Fresh { ticket, ..first },
        ] {
            let mut octets = vec![];
            hello.write(&fresh, &mut octets);
            let mut same = vec![];
            hello.write(&fresh, &mut same);
            assert_eq!(octets, same);
            if octets.len() <= MAX_LEN {
                let read = Hello::from_client_hello(&octets).expect("it was written");
                assert_eq!(read.suites, hello.suites);
                assert_eq!(read.offers_extension(0), hello.offers_extension(0));
                assert_eq!(read.groups().collect::<Vec<_>>(), hello.groups().collect::<Vec<_>>());
            }
        }
    }
});
