#![no_main]
//! The evaluator terminates for any frames, and is deterministic. Input: an octet that selects raw
//! frames or segments of a connection (which reach deeper code); then frames, each preceded by its
//! length in two octets.

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use squall_ids::{Alert, Compiled, Engine, Settings};
use squall_rules::{RuleSet, Variables};
use squall_units::Nanos;

const RULES: &str = r#"
alert tcp any any -> any any (msg:"1"; flow:established; content:"a"; content:"b"; distance:0; within:9; pcre:"/c+d?/R"; sid:1;)
alert ip any any -> any any (msg:"2"; byte_extract:1,0,n; content:"x"; offset:n; byte_test:2,>,n,0,relative; sid:2;)
alert tcp any any -> any any (msg:"3"; byte_jump:4,0,relative,little,align,multiplier 3,post_offset -2; isdataat:4,relative; sid:3;)
alert http any any -> any any (msg:"4"; http.uri; content:"/"; pcre:"/^(\w+\/?)+$/"; http.header; content:!"x"; sid:4;)
alert http any any => any any (msg:"5"; http.method; content:"GET"; http.stat_code; content:"2"; flowbits:set,f; sid:5;)
alert tcp any any -> any any (msg:"6"; flowbits:isset,f; base64_decode:relative; base64_data; content:"a"; sid:6;)
alert ip any any -> any any (msg:"7"; file.data; content:"M"; to_lowercase; content:"z"; threshold:type both,track by_src,count 2,seconds 9; sid:7;)
alert udp any any -> any any (msg:"8"; asn1:oversize_length 9,bitstring_overflow; sid:8;)
alert dns any any -> any any (msg:"9"; dns.query; content:"a"; bsize:<40; dotprefix; content:".a"; endswith; sid:9;)
alert ip any any -> any any (msg:"10"; ttl:<9; xbits:set,x,track ip_src,expire 9; sid:10;)
"#;

fn rules() -> &'static Compiled<'static> {
    static SET: OnceLock<RuleSet> = OnceLock::new();
    static COMPILED: OnceLock<Compiled<'static>> = OnceLock::new();
    COMPILED.get_or_init(|| {
        Compiled::new(SET.get_or_init(|| RuleSet::parse(RULES, &Variables::standard())))
    })
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, mut rest)) = data.split_first() else { return };
    let mut frames: Vec<Vec<u8>> = if how & 1 == 1 { handshake(how) } else { vec![] };
    let mut next = [1001u32, 5001];
    while let Some((&[high, low], octets)) = rest.split_first_chunk() {
        let (part, after) =
            octets.split_at(usize::from(u16::from_be_bytes([high & 7, low])).min(octets.len()));
        rest = after;
        if how & 1 == 0 {
            frames.push(part.to_vec());
            continue;
        }
        let from = usize::from(high >> 7);
        let sequence = next[from].wrapping_add(u32::from(high >> 4 & 3));
        frames.push(segment(how, from, 24, sequence, next[1 - from], part));
        next[from] = next[from].wrapping_add(part.len() as u32);
    }
    assert_eq!(run(&frames), run(&frames));
});

fn run(frames: &[Vec<u8>]) -> Vec<Alert> {
    let which: Vec<usize> = (0..rules().rules().rules.len()).collect();
    let (mut engine, refused) =
        Engine::new(rules(), &which, Settings { checksums: false, ..Settings::default() });
    assert!(refused.is_empty());
    for (index, frame) in frames.iter().enumerate() {
        engine.frame(Nanos(index as u64), frame);
    }
    engine.finish();
    engine.alerts()
}

fn handshake(how: u8) -> Vec<Vec<u8>> {
    vec![
        segment(how, 0, 2, 1000, 0, b""),
        segment(how, 1, 18, 5000, 1001, b""),
        segment(how, 0, 16, 1001, 5001, b""),
    ]
}

fn segment(
    how: u8,
    from: usize,
    flags: u8,
    sequence: u32,
    acknowledged: u32,
    payload: &[u8],
) -> Vec<u8> {
    let port = [80u16, 25, 443, 21, 445, 5060, 110, 53][usize::from(how >> 1 & 7)];
    let ports = [40_000, port];
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((40 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, 6, 0, 0]);
    frame.extend([10, 0, 0, 1 + from as u8]);
    frame.extend([10, 0, 0, 2 - from as u8]);
    frame.extend(ports[from].to_be_bytes());
    frame.extend(ports[1 - from].to_be_bytes());
    frame.extend(sequence.to_be_bytes());
    frame.extend(acknowledged.to_be_bytes());
    frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame.extend(payload);
    frame
}
