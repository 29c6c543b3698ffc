//! Parses assembled messages: with the evaluator, buffer by buffer, and with tshark if it is
//! installed.

use std::process::Command;

use proptest::prelude::*;
use squall_attacks::assemble::variants::{Variant, applied};
use squall_attacks::assemble::{Parts, Style, assemble, assemble_all};
use squall_attacks::wire::{self, Endpoints};
use squall_attacks::{Exchange, Octets, Origin, Transport, Turn};
use squall_rules::{Application, Buffer, End, RuleSet, Variables};
use squall_units::Nanos;

const CLIENT: End = End::Client;
const SERVER: End = End::Server;

fn exchange(application: Application, turns: Vec<Turn>) -> Exchange {
    use Application::*;
    let (transport, server_port) = match application {
        Dns => (Transport::Udp, 53),
        Mdns => (Transport::Udp, 5353),
        Sip => (Transport::Udp, 5060),
        Dhcp => (Transport::Udp, 67),
        Ntp => (Transport::Udp, 123),
        Tls => (Transport::Tcp, 443),
        Smtp => (Transport::Tcp, 25),
        Pop3 => (Transport::Tcp, 110),
        Imap => (Transport::Tcp, 143),
        Ftp | FtpData => (Transport::Tcp, 21),
        Telnet => (Transport::Tcp, 23),
        Ssh => (Transport::Tcp, 22),
        Nntp => (Transport::Tcp, 119),
        Irc => (Transport::Tcp, 6667),
        _ => (Transport::Tcp, 80),
    };
    let client_port = match application {
        Dhcp => 68,
        Mdns => 5353,
        _ => 40_000,
    };
    Exchange { transport, client_port, server_port, turns, same_address: false, ip_version: None }
}

fn frames(exchange: &Exchange) -> Vec<wire::Frame> {
    let ends = Endpoints {
        client: [192, 0, 2, 1].into(),
        server: [198, 51, 100, 1].into(),
        client_mac: [2, 0, 0, 0, 0, 1],
        server_mac: [2, 0, 0, 0, 0, 2],
    };
    wire::frames(exchange, &ends, &wire::Settings::default()).unwrap()
}

/// Whether the evaluator sees the options of a rule match a conversation.
fn is_seen(application: Application, turns: Vec<Turn>, options: &str) -> bool {
    let rule = format!("alert ip any any -> any any (msg:\"seen\"; {options} sid:1;)");
    let rules = RuleSet::parse(&rule, &Variables::standard());
    assert!(rules.problems.is_empty(), "{:?}", rules.problems);
    let compiled = squall_ids::Compiled::new(&rules);
    let (mut engine, refused) =
        squall_ids::Engine::new(&compiled, &[0], squall_ids::Settings::default());
    assert!(refused.is_empty(), "{refused:?}");
    for frame in frames(&exchange(application, turns)) {
        engine.frame(Nanos(1_000_000_000 + frame.at.0), &frame.octets);
    }
    engine.finish();
    !engine.alerts().is_empty()
}

fn parts(buffers: &[(Buffer, End, &[u8])]) -> Parts {
    let mut parts = Parts::default();
    for &(buffer, from, octets) in buffers {
        parts.push(buffer, from, Octets::of(octets, Origin::Option(0)));
    }
    parts
}

/// The octets, written as the value of a `content` option.
fn written(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("|{octet:02X}|")).collect()
}

/// Options that require a buffer of exactly these octets.
fn whole(buffer: Buffer, octets: &[u8]) -> String {
    format!("{}; content:\"{}\"; startswith; endswith;", buffer.name(), written(octets))
}

#[test]
fn a_buffer_is_parsed_as_required() {
    use Application::*;
    let all: &[(Application, Buffer, End, &[u8])] = &[
        (Http, Buffer::HttpUri, CLIENT, b"/a b//c\\d.php?e=<f>&g=%#+\xff"),
        (Http, Buffer::HttpUri, CLIENT, b"/\xe9\x01"),
        (Http, Buffer::HttpMethod, CLIENT, b"PROPFIND"),
        (Http, Buffer::HttpUserAgent, CLIENT, b"evil (agent; 1)"),
        (Http, Buffer::HttpHost, CLIENT, b"evil.example"),
        (Http, Buffer::HttpCookie, CLIENT, b"id=1; evil=2"),
        (Http, Buffer::HttpReferer, CLIENT, b"http://evil.example/"),
        (Http, Buffer::HttpContentType, CLIENT, b"text/evil"),
        (Http, Buffer::HttpRequestBody, CLIENT, b"\x00evil=\xff\r\n\r\n"),
        (Http, Buffer::HttpHeaderNames, CLIENT, b"\r\nConnection\r\nHost\r\nX-Evil\r\n\r\n"),
        (Http, Buffer::HttpRequestLine, CLIENT, b"EVIL /a HTTP/1.0"),
        (Http, Buffer::HttpStatusCode, SERVER, b"404"),
        (Http, Buffer::HttpStatusMessage, SERVER, b"Evil message"),
        (Http, Buffer::HttpServer, SERVER, b"evil/1.0"),
        (Http, Buffer::HttpLocation, SERVER, b"http://evil.example/"),
        (Http, Buffer::HttpResponseBody, SERVER, b"MZ\x90\0evil"),
        (Http, Buffer::FileData, SERVER, b"MZ\x90\0evil"),
        (Dns, Buffer::DnsQuery, CLIENT, b"a-b.evil.example"),
        (Tls, Buffer::TlsSni, CLIENT, b"evil.example"),
        (Tls, Buffer::TlsSubject, SERVER, b"C=DE, O=Evil, Ltd, CN=evil.example"),
        (Tls, Buffer::TlsIssuer, SERVER, b"CN=evil"),
        (Tls, Buffer::TlsSerial, SERVER, b"0A:0B:0C"),
        (Smtp, Buffer::FileData, CLIENT, b"MZ\x90\0evil\r\n.\r\n"),
        (Smtp, Buffer::SmtpHelo, CLIENT, b"evil"),
        (Smtp, Buffer::EmailSubject, CLIENT, b"evil subject"),
        (Ftp, Buffer::FtpCommand, CLIENT, b"SITE"),
        (Ftp, Buffer::FtpCommandData, CLIENT, b"evil"),
        (Ssh, Buffer::SshSoftware, CLIENT, b"evil_1.0"),
        (Ssh, Buffer::SshProtocol, SERVER, b"2.0"),
        (Sip, Buffer::SipMethod, CLIENT, b"INVITE"),
        (Sip, Buffer::SipUri, CLIENT, b"sip:evil@example.com"),
        (Sip, Buffer::SipRequestLine, CLIENT, b"REGISTER sip:evil@example.com SIP/2.0"),
        (Sip, Buffer::SipStatusMessage, SERVER, b"Evil here"),
    ];
    for &(application, buffer, from, octets) in all {
        let turns = assemble(application, &parts(&[(buffer, from, octets)])).unwrap();
        let text = String::from_utf8_lossy(octets);
        assert!(is_seen(application, turns, &whole(buffer, octets)), "{buffer:?} {text:?}");
    }
}

#[test]
fn coded_bodies_are_seen_decoded() {
    let mut coded =
        parts(&[(Buffer::FileData, SERVER, b"evil \0 body of some length, of some length")]);
    for style in [
        Style { chunked: true, ..Style::default() },
        Style { gzip: true, ..Style::default() },
        Style { gzip: true, chunked: true, ..Style::default() },
        Style { old: true, ..Style::default() },
    ] {
        coded.style = style;
        let turns = assemble(Application::Http, &coded).unwrap();
        assert!(
            is_seen(Application::Http, turns, &whole(Buffer::FileData, coded.buffers[0].2.bytes())),
            "{style:?}"
        );
    }
}

#[test]
fn a_variant_is_parsed_like_its_original() {
    let buffers: &[(Buffer, End, &[u8])] = &[
        (Buffer::HttpUri, CLIENT, b"/dir/evil.php?id=1"),
        (Buffer::HttpHeader, CLIENT, b"X-Evil: one two\r\n"),
        (Buffer::HttpRequestBody, CLIENT, b"evil=body"),
        (Buffer::FileData, SERVER, b"evil response, with some octets"),
    ];
    let turns = assemble(Application::Http, &parts(buffers)).unwrap();
    for &variant in Variant::ALL {
        let varied = applied(variant, turns.clone());
        assert!(variant == Variant::GzipBody || varied != turns, "{variant:?}");
        for &(buffer, _, octets) in buffers {
            let option = format!("{}; content:\"{}\";", buffer.name(), written(octets));
            assert!(is_seen(Application::Http, varied.clone(), &option), "{variant:?} {buffer:?}");
        }
    }
}

#[test]
fn no_message_is_malformed_to_tshark() {
    use Application::*;
    let Ok(tshark) = Command::new("tshark").arg("--version").output() else {
        println!("SKIPPED: tshark is not installed");
        return;
    };
    assert!(tshark.status.success());
    let path = std::env::temp_dir().join(format!("squall-messages-{}.pcap", std::process::id()));
    let mut writer =
        squall_pcap::PcapWriter::create(&path, squall_pcap::PcapFormat::default()).unwrap();
    let mut at = 1_600_000_000_000_000_000;
    let with_file =
        parts(&[(Buffer::FileData, SERVER, b"evil"), (Buffer::FileData, CLIENT, b"evil")]);
    let with_name = parts(&[
        (Buffer::TlsSubject, SERVER, b"CN=evil"),
        (Buffer::TlsSni, CLIENT, b"evil.example"),
    ]);
    let with_query = parts(&[(Buffer::DnsQuery, CLIENT, b"evil.example")]);
    let mut port = 40_000;
    for application in [
        Http, Dns, Mdns, Tls, Smtp, Pop3, Imap, Ftp, Telnet, Nntp, Irc, Ssh, Sip, Dhcp, Ntp,
        FtpData,
    ] {
        for given in [&Parts::default(), &with_file, &with_name, &with_query] {
            let turns = assemble_all(application, given).unwrap().turns;
            let mut exchange = exchange(application, turns);
            if exchange.client_port == 40_000 {
                port += 1;
                exchange.client_port = port;
            }
            for frame in frames(&exchange) {
                writer.write(at + frame.at.0, frame.octets.len() as u32, &frame.octets).unwrap();
            }
            at += 10_000_000_000;
        }
    }
    writer.flush().unwrap();
    drop(writer);
    let filter = "_ws.malformed or _ws.expert.severity >= 0x00800000 or tcp.checksum.status == 0 \
                  or ip.checksum.status == 0";
    let output = Command::new("tshark")
        .arg("-r")
        .arg(&path)
        .args(["-o", "tcp.check_checksum:TRUE", "-Y", filter])
        .output()
        .unwrap();
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    std::fs::remove_file(&path).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(found.is_empty(), "{found}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_uri_is_parsed_as_required(octets in proptest::collection::vec(any::<u8>(), 1..24)) {
        let mut uri = b"/u".to_vec();
        uri.extend(octets);
        if let Ok(turns) = assemble(Application::Http, &parts(&[(Buffer::HttpUri, CLIENT, &uri)])) {
            prop_assert!(is_seen(Application::Http, turns, &whole(Buffer::HttpUri, &uri)));
        }
    }

    #[test]
    fn a_header_block_is_parsed_as_required(block in "[ -~]{1,12}(\r\n[A-Za-z-]{1,8}: [!-~]{1,8}){0,2}(\r\n)?[A-Za-z]{0,4}") {
        if let Ok(turns) = assemble(Application::Http, &parts(&[(Buffer::HttpHeader, CLIENT, block.as_bytes())])) {
            let option = format!("http.header; content:\"{}\";", written(block.as_bytes()));
            prop_assert!(is_seen(Application::Http, turns, &option), "{}", block);
        }
    }

    #[test]
    fn a_file_of_a_mail_is_seen_as_it_was_sent(octets in proptest::collection::vec(any::<u8>(), 1..200)) {
        use squall_attacks::assemble::Mime;
        for mime in [Mime::Base64, Mime::QuotedPrintable] {
            let mut parts = parts(&[(Buffer::FileData, CLIENT, &octets)]);
            parts.style.mime = mime;
            let turns = assemble(Application::Smtp, &parts).unwrap();
            prop_assert!(is_seen(Application::Smtp, turns, &whole(Buffer::FileData, &octets)), "{:?}", mime);
        }
    }
}
