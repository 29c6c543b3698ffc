#![no_main]
//! A capture filter and a frame: libpcap compiles or refuses the text; the program is checked, and
//! runs on any octets without a panic; skipping an outer VLAN tag does not change its result for a
//! frame without one. Input: the link type (16 bits), the expression, a zero octet, the frame.

use libfuzzer_sys::fuzz_target;
use squall_port_linux::filter::{FilterError, compile};

fuzz_target!(|data: &[u8]| {
    let Some((&link_type, rest)) = data.split_first_chunk() else { return };
    let (expression, frame) =
        rest.split_at(rest.iter().position(|octet| *octet == 0).unwrap_or(rest.len()));
    let frame = frame.get(1..).unwrap_or_default();
    let Ok(expression) = std::str::from_utf8(expression) else { return };
    // libpcap would resolve names by files and DNS, so expressions that may contain one are
    // skipped.
    if expression.len() > 200
        || !expression.split(|c: char| !c.is_ascii_alphanumeric()).all(is_known)
    {
        return;
    }
    match compile(expression, u16::from_be_bytes(link_type), 65_535) {
        Ok(program) => {
            let kept = program.run(frame, frame.len() as u32);
            let tagged = matches!(frame.get(12..14), Some([0x81, 0] | [0x88, 0xa8] | [0x91, 0]));
            if !tagged {
                assert_eq!(program.run_untagged(frame, frame.len() as u32), kept);
            }
        }
        Err(error) => assert!(matches!(error, FilterError::Expression { .. }), "{error}"),
    }
});

const WORDS: &str = "and or not host net port portrange src dst ether ip ip6 tcp udp icmp icmp6 arp rarp vlan mpls pppoes \
                     broadcast multicast less greater proto protochain len gateway inbound outbound geneve mask sctp \
                     tcpflags syn ack fin rst push urg icmptype icmpcode echo reply wlan fddi llc type subtype";

fn is_known(word: &str) -> bool {
    word.is_empty()
        || word.starts_with(|c: char| c.is_ascii_digit())
        || WORDS.split(' ').any(|known| known == word)
}
