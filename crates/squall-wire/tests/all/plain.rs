//! Headers that their table rows describe completely: built frames are dissected into the same
//! layers, and the text of these layers builds the same octets. tests/interop/headers.py compares
//! the same examples with other programs.

use squall_wire::{Frame, Packet, headers};

const EXAMPLES: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/headers/examples.txt"));

fn examples() -> impl Iterator<Item = &'static str> {
    let lines = EXAMPLES.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(" | ").next().unwrap())
}

fn built(text: &str) -> Frame {
    let packet = Packet::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    packet.build(None, &|_| unreachable!("no file is named"), 0).unwrap()
}

#[test]
fn each_header_round_trips_through_octets_and_text() {
    for text in examples() {
        let frame = built(text);
        let found = Frame::dissect(frame.bytes.clone());
        // No number identifies the layer after raw octets or RTP.
        if !frame.names().contains("hex") && !frame.names().contains("rtp") {
            assert_eq!(found.names(), frame.names(), "{text}");
            assert_eq!(found.checksums, frame.checksums, "{text}");
            assert_eq!(found.lengths, frame.lengths, "{text}");
        }
        let printed = Packet::of_octets(&frame.bytes).to_string();
        assert_eq!(built(&printed).bytes, frame.bytes, "{text}: {printed}");
    }
}

#[test]
fn each_header_has_an_example_and_fields_that_fit_it() {
    let plain = headers().iter().skip_while(|header| header.name != "esp");
    for header in plain {
        let named = |text: &str| text.split(['/', '(']).any(|layer| layer.trim() == header.name);
        assert!(examples().any(named), "{} has no example", header.name);
        for field in header.fields.iter().filter(|field| field.bits > 0) {
            assert!(field.bit + field.bits <= header.min_len * 8, "{}.{}", header.name, field.name);
            assert!(field.default <= field.max(), "{}.{}", header.name, field.name);
        }
    }
}

#[test]
fn lengths_of_headers_follow_set_fields() {
    for (text, at, octet) in [
        ("eth/ipv4/ah(icv=[hex(00112233)])/udp", 14 + 20 + 1, 2),
        ("eth/ipv4/udp/geneve(options=[hex(0102800100000000)])/ipv4", 14 + 20 + 8, 2),
        ("eth/nsh/ipv4", 14 + 1, 0xc6),
        ("eth/ipv4/udp/bfd", 14 + 20 + 8 + 3, 24),
        ("eth/ipv4/udp/bfd(length=7)", 14 + 20 + 8 + 3, 7),
        ("eth/pppoe/ppp/hex(010203)", 14 + 5, 5),
        ("eth/pppoe(length=9)/ppp/hex(010203)", 14 + 5, 9),
    ] {
        assert_eq!(built(text).bytes[at], octet, "{text}");
    }
    // In a longer frame the lengths grow, and stay correct.
    let packet = Packet::parse("eth/pppoe/ppp/ipv4/udp").unwrap();
    let frame = packet.build(Some(1000), &|_| unreachable!(), 0).unwrap();
    assert_eq!(frame.bytes[18..20], (1000u16 - 20).to_be_bytes());
}

#[test]
fn octets_that_only_have_a_headers_number_stay_payload() {
    for text in [
        "eth/ipv4/udp(dport=53)/hex(00ff)",
        "eth/ipv4/udp(dport=53)/inc(40)",
        "eth/ipv4/udp(dport=67)/zeros(300)",
        "eth/ipv4/udp(dport=3784)/zeros(24)",
        "eth/ipv4/udp(dport=123)/inc(48)",
        "eth(type=0x8864)/zeros(40)",
    ] {
        let frame = built(text);
        assert_eq!(Frame::dissect(frame.bytes.clone()).names(), frame.names(), "{text}");
    }
}

#[test]
fn a_value_too_long_for_its_length_field_is_refused() {
    let text = |name: &str, octets| format!("eth/{name}(\"{}\")])", "a".repeat(octets));
    for (name, most) in [
        ("ipv4/udp/dhcp(options=[hostname", 255),
        ("lldp(tlvs=[system-name", 511),
        ("pppoed(tags=[ac-name", 1396),
    ] {
        built(&text(name, most));
        let error = Packet::parse(&text(name, most + 1)).unwrap_err();
        assert!(error.expected.starts_with("at most "), "{error}");
    }
}

/// tests/interop/headers.py checks the octets that scapy makes from the text; this test checks that
/// the text parses to the same octets.
#[test]
fn packets_in_scapy_notation_have_the_same_octets() {
    let mut read = 0;
    for line in EXAMPLES.lines().filter(|line| !line.starts_with('#')) {
        let mut parts = line.split(" | ");
        let (Some(native), Some(scapy)) = (parts.next(), parts.next()) else { continue };
        // Identifications are 0 in the examples.
        let scapy = scapy.replace("IP(", "IP(id=0,").replace(",)", ")");
        match squall_wire::scapy::parse(&scapy) {
            Ok(packet) => {
                let frame = packet.packet.build(None, &|_| unreachable!(), 0).unwrap();
                assert_eq!(frame.bytes, built(native).bytes, "{scapy}: {}", packet.packet);
                read += 1;
            }
            // Some classes and lists have no counterpart in the table.
            Err(error) => assert!(!error.hint.is_empty(), "{scapy}"),
        }
    }
    assert!(read >= 18, "{read} of them");
}
