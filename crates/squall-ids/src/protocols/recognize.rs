//! Detects the protocol of a flow from its first octets and its ports.
//!
//! Follows Suricata's default configuration: patterns at fixed offsets are tried on all ports, each
//! for the data of one end. Some protocols are only detected on their own ports, after a
//! plausibility check of the first octets. The client's data has priority over the server's.

use squall_rules::{Application, EngineVersion};
use squall_units::be16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

/// The start of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First<'a> {
    pub transport: Transport,
    pub client_port: u16,
    pub server_port: u16,
    /// The engine determines the supported protocols and their patterns.
    pub engine: EngineVersion,
    /// All data that each end has sent, from its first octet. A few hundred octets are enough.
    pub client: &'a [u8],
    pub server: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Application(Application),
    /// More data may lead to a result.
    NeedMore,
    /// The data belongs to no supported protocol.
    Unknown,
}

/// Number of octets in which patterns are searched for.
const ENOUGH: usize = 64;

/// Detects the protocol.
pub(crate) fn recognize(first: &First<'_>) -> Verdict {
    for (octets, by_client) in [(first.client, true), (first.server, false)] {
        let known = |application: &Application| is_known(*application, first, octets, by_client);
        if let Some(application) = by_words(first, octets, by_client)
            .filter(known)
            .or_else(|| by_port(first, octets, by_client).filter(known))
        {
            return Verdict::Application(application);
        }
    }
    let is_enough = |octets: &[u8]| {
        octets.len() >= ENOUGH || first.transport == Transport::Udp && !octets.is_empty()
    };
    if is_enough(first.client) && is_enough(first.server) {
        Verdict::Unknown
    } else {
        Verdict::NeedMore
    }
}

/// Whether this engine version detects the protocol from these octets.
fn is_known(application: Application, first: &First<'_>, octets: &[u8], by_client: bool) -> bool {
    use Application::*;
    if first.engine != EngineVersion::Suricata7 {
        return true;
    }
    match application {
        Pop3 | Ldap | Mdns | Doh2 | WebSocket => false,
        Sip => first.transport == Udp,
        Smtp => by_client,
        Imap => octets.starts_with(b"1 capability"),
        _ => true,
    }
}

/// A pattern at the start of one end's data.
struct Words {
    transport: Transport,
    application: Application,
    by_client: bool,
    offset: usize,
    caseless: bool,
    any_of: &'static [&'static [u8]],
}

use Transport::{Tcp, Udp};

const WORDS: &[Words] = &[
    Words {
        transport: Tcp,
        application: Application::Http2,
        by_client: true,
        offset: 0,
        caseless: false,
        any_of: &[b"PRI * HTTP/2.0\r\n"],
    },
    Words {
        transport: Tcp,
        application: Application::Ssh,
        by_client: true,
        offset: 0,
        caseless: true,
        any_of: &[b"SSH-"],
    },
    Words {
        transport: Tcp,
        application: Application::Ssh,
        by_client: false,
        offset: 0,
        caseless: true,
        any_of: &[b"SSH-"],
    },
    Words {
        transport: Tcp,
        application: Application::Smtp,
        by_client: true,
        offset: 0,
        caseless: true,
        any_of: &[b"EHLO", b"HELO", b"QUIT"],
    },
    Words {
        transport: Tcp,
        application: Application::Ftp,
        by_client: true,
        offset: 0,
        caseless: true,
        any_of: &[b"FEAT", b"USER ", b"PASS ", b"PORT "],
    },
    Words {
        transport: Tcp,
        application: Application::Ftp,
        by_client: false,
        offset: 0,
        caseless: true,
        any_of: &[b"220 ("],
    },
    Words {
        transport: Tcp,
        application: Application::Imap,
        by_client: false,
        offset: 0,
        caseless: true,
        any_of: &[
            b"* OK ",
            b"* NO ",
            b"* BAD ",
            b"* LIST ",
            b"* ESEARCH ",
            b"* STATUS ",
            b"* FLAGS ",
        ],
    },
    Words {
        transport: Tcp,
        application: Application::Http1,
        by_client: false,
        offset: 0,
        caseless: true,
        any_of: &[b"HTTP/0.9", b"HTTP/1.0", b"HTTP/1.1"],
    },
    Words {
        transport: Tcp,
        application: Application::Rfb,
        by_client: false,
        offset: 0,
        caseless: true,
        any_of: &[b"RFB "],
    },
    Words {
        transport: Tcp,
        application: Application::Rfb,
        by_client: true,
        offset: 0,
        caseless: true,
        any_of: &[b"RFB "],
    },
    Words {
        transport: Tcp,
        application: Application::Tls,
        by_client: true,
        offset: 2,
        caseless: false,
        any_of: &[b"\x01\x00\x02"],
    },
    Words {
        transport: Tcp,
        application: Application::Tls,
        by_client: true,
        offset: 0,
        caseless: false,
        any_of: &[
            b"\x01\x03\x00",
            b"\x01\x03\x01",
            b"\x01\x03\x02",
            b"\x01\x03\x03",
            b"\x16\x03\x00",
            b"\x16\x03\x01",
            b"\x16\x03\x02",
            b"\x16\x03\x03",
        ],
    },
    Words {
        transport: Tcp,
        application: Application::Tls,
        by_client: false,
        offset: 0,
        caseless: false,
        any_of: &[
            b"\x15\x03\x00",
            b"\x15\x03\x01",
            b"\x15\x03\x02",
            b"\x15\x03\x03",
            b"\x16\x03\x00",
            b"\x16\x03\x01",
            b"\x16\x03\x02",
            b"\x16\x03\x03",
            b"\x17\x03\x00",
            b"\x17\x03\x01",
            b"\x17\x03\x02",
            b"\x17\x03\x03",
        ],
    },
    Words {
        transport: Udp,
        application: Application::BitTorrentDht,
        by_client: true,
        offset: 0,
        caseless: false,
        any_of: &[b"d1:ad2:id20:", b"d1:rd2:id20:", b"d2:ip", b"d1:el", b"d1:ad3:", b"d1:ad4:"],
    },
];

const SIP_METHODS: [&[u8]; 13] = [
    b"REGISTER",
    b"INVITE",
    b"ACK",
    b"BYE",
    b"CANCEL",
    b"UPDATE",
    b"REFER",
    b"PRACK",
    b"SUBSCRIBE",
    b"NOTIFY",
    b"PUBLISH",
    b"MESSAGE",
    b"INFO",
];

const HTTP_METHODS: [&[u8]; 28] = [
    b"GET",
    b"PUT",
    b"POST",
    b"HEAD",
    b"TRACE",
    b"OPTIONS",
    b"CONNECT",
    b"DELETE",
    b"PATCH",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"LOCK",
    b"UNLOCK",
    b"CHECKOUT",
    b"UNCHECKOUT",
    b"CHECKIN",
    b"UPDATE",
    b"LABEL",
    b"REPORT",
    b"MKWORKSPACE",
    b"MKACTIVITY",
    b"MERGE",
    b"INVALID",
    b"VERSION-CONTROL",
    b"BASELINE-CONTROL",
];

fn by_words(first: &First<'_>, octets: &[u8], by_client: bool) -> Option<Application> {
    let starts = |at: usize, word: &[u8], caseless: bool| {
        octets.get(at..at + word.len()).is_some_and(|start| {
            if caseless { start.eq_ignore_ascii_case(word) } else { start == word }
        })
    };
    for words in WORDS
        .iter()
        .filter(|words| words.transport == first.transport && words.by_client == by_client)
    {
        if words.any_of.iter().any(|word| starts(words.offset, word, words.caseless)) {
            return Some(words.application);
        }
    }
    if by_client
        && first.transport == Tcp
        && HTTP_METHODS.iter().any(|method| {
            starts(0, method, true) && matches!(octets.get(method.len()), Some(b' ' | b'\t'))
        })
    {
        return Some(Application::Http1);
    }
    let is_sip = if by_client {
        SIP_METHODS.iter().any(|method| starts(0, method, false))
    } else {
        starts(0, b"SIP/2.0", false)
    };
    if is_sip {
        return Some(Application::Sip);
    }
    // A tag of at most six characters precedes the command.
    if by_client
        && first.transport == Tcp
        && octets
            .get(..octets.len().min(17))?
            .windows(11)
            .any(|window| window.eq_ignore_ascii_case(b" CAPABILITY"))
    {
        return Some(Application::Imap);
    }
    match first.transport {
        Tcp if is_smb(octets) => Some(Application::Smb),
        Tcp if is_dce(octets) => Some(Application::DceRpc),
        Udp if by_client && is_dce_of_datagrams(octets) && first.server_port != 53 => {
            Some(Application::DceRpc)
        }
        _ => None,
    }
}

fn by_port(first: &First<'_>, octets: &[u8], by_client: bool) -> Option<Application> {
    if octets.is_empty() {
        return None;
    }
    let either = [first.server_port, first.client_port];
    for port in either {
        let found = match first.transport {
            Tcp => tcp_port(port, first, octets, by_client),
            Udp => udp_port(port, octets, by_client),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn tcp_port(port: u16, first: &First<'_>, octets: &[u8], by_client: bool) -> Option<Application> {
    let found = match port {
        // A 220 banner may be FTP or SMTP, so wait until the client has sent something.
        21 if !by_client && is_220(octets) && !first.client.is_empty() => Application::Ftp,
        23 if is_telnet(octets) => Application::Telnet,
        25 | 465 if !by_client && is_220(octets) => Application::Smtp,
        53 if octets.len() > 2 && is_dns(&octets[2..]) => Application::Dns,
        88 if octets.len() > 4 && is_krb5(&octets[4..]) => Application::Krb5,
        110 if is_pop3(octets, by_client) => Application::Pop3,
        139 | 445 if is_session_request(octets) => Application::Smb,
        389 | 3268 if is_ldap(octets) => Application::Ldap,
        // Suricata's default configuration disables these protocols, and then also rejects rules
        // for them.
        502 if octets.len() >= 8 && octets[2..5] == [0, 0, 0] => Application::Modbus,
        20_000 if octets.starts_with(&[5, 0x64]) => Application::Dnp3,
        44_818 if is_enip(octets) => Application::Enip,
        443 if octets.len() > 2 && octets[0] & 0x80 != 0 && octets[2] == 1 => Application::Tls,
        1883 if is_mqtt(octets, by_client) => Application::Mqtt,
        2049 if octets.len() > 4 && is_rpc(&octets[4..], 100_003) => Application::Nfs,
        3389 if octets.starts_with(&[3, 0]) && matches!(octets.get(5), Some(0xe0 | 0xd0)) => {
            Application::Rdp
        }
        _ => return None,
    };
    Some(found)
}

fn udp_port(port: u16, octets: &[u8], by_client: bool) -> Option<Application> {
    let found = match port {
        53 if is_dns(octets) => Application::Dns,
        67 | 68 if octets.len() >= 240 && octets[236..240] == [99, 130, 83, 99] => {
            Application::Dhcp
        }
        69 if is_tftp(octets) => Application::Tftp,
        88 if is_krb5(octets) => Application::Krb5,
        123 if octets.len() >= 48 && matches!((octets[0] >> 3) & 7, 1..=4) => Application::Ntp,
        161 | 162 if is_snmp(octets) => Application::Snmp,
        389 | 3268 if is_ldap(octets) => Application::Ldap,
        443 if is_quic(octets, by_client) => Application::Quic,
        500 | 4500 if is_ike(octets) => Application::Ike,
        2049 if is_rpc(octets, 100_003) => Application::Nfs,
        44_818 if is_enip(octets) => Application::Enip,
        5060 | 5061 if is_sip(octets) => Application::Sip,
        5353 if is_dns(octets) => Application::Mdns,
        _ => return None,
    };
    Some(found)
}

fn is_220(octets: &[u8]) -> bool {
    octets.len() >= 5
        && octets.starts_with(b"220")
        && matches!(octets[3], b' ' | b'-')
        && octets.contains(&b'\n')
}

/// Whether this is a SIP start line, with any method.
fn is_sip(octets: &[u8]) -> bool {
    let line = octets.split(|&octet| octet == b'\n').next().unwrap_or_default();
    line.starts_with(b"SIP/2.0 ") || line.trim_ascii_end().ends_with(b" SIP/2.0")
}

fn is_smb(octets: &[u8]) -> bool {
    octets.len() >= 8 && octets[0] == 0 && matches!(octets[4], 0xfd..) && &octets[5..8] == b"SMB"
}

/// Whether this is a NetBIOS session message that precedes SMB: a request, a response to it, a
/// keep-alive.
fn is_session_request(octets: &[u8]) -> bool {
    if octets.len() < 4 || !matches!(octets[0], 0x81..=0x85) {
        return false;
    }
    let after = 4 + usize::from(octets[2]) * 256 + usize::from(octets[3]);
    octets.get(after..).is_some_and(is_smb)
}

fn is_dce(octets: &[u8]) -> bool {
    octets.len() >= 16
        && octets[0] == 5
        && octets[1] == 0
        && octets[2] <= 19
        && octets[4] & 0xee == 0
        && octets[5] <= 3
}

fn is_dce_of_datagrams(octets: &[u8]) -> bool {
    octets.len() >= 80
        && octets[0] == 4
        && octets[1] == 0
        && octets[3] & 0xfc == 0
        && octets[4] & 0xee == 0
        && octets[5] <= 3
}

fn is_telnet(octets: &[u8]) -> bool {
    octets[0] == 0xff && matches!(octets.get(1), Some(240..=254))
        || octets.contains(&b'\n') && octets.is_ascii()
}

fn is_pop3(octets: &[u8], by_client: bool) -> bool {
    if !by_client {
        return octets.starts_with(b"+OK") || octets.starts_with(b"-ERR");
    }
    const COMMANDS: [&[u8]; 13] = [
        b"USER", b"PASS", b"APOP", b"AUTH", b"CAPA", b"STAT", b"LIST", b"RETR", b"DELE", b"NOOP",
        b"TOP", b"UIDL", b"QUIT",
    ];
    COMMANDS.iter().any(|command| {
        octets.get(..command.len()).is_some_and(|start| start.eq_ignore_ascii_case(command))
    })
}

/// Whether there is a plausible header, followed by the start of a name.
fn is_dns(octets: &[u8]) -> bool {
    if octets.len() < 12 || (octets[2] >> 3) & 15 >= 7 {
        return false;
    }
    let count = |at: usize| be16(octets, at);
    let (questions, answers) = (count(4), count(6));
    if questions == 0 && answers == 0 && count(8) == 0 && count(10) == 0 {
        return false;
    }
    questions == 0 || begins_with_name(&octets[12..])
}

/// Whether labels are valid up to the end of the name, a compression pointer, or the end of the
/// data.
fn begins_with_name(octets: &[u8]) -> bool {
    let mut at = 0;
    loop {
        match octets.get(at) {
            Some(0 | 192..) => return at <= 255,
            Some(&label) if label < 64 => at += 1 + usize::from(label),
            Some(_) => return false,
            None => return at > 0 && at <= 255,
        }
    }
}

/// Whether this is BER with an application tag, which all Kerberos messages have.
fn is_krb5(octets: &[u8]) -> bool {
    matches!(octets.first(), Some(0x6a..=0x70 | 0x74..=0x76 | 0x7e))
        && octets.len() > 6
        && octets.contains(&0xa1)
}

fn is_snmp(octets: &[u8]) -> bool {
    if octets.first() != Some(&0x30) {
        return false;
    }
    let after = match octets.get(1) {
        Some(&length) if length < 0x80 => 2,
        Some(&length) => 2 + usize::from(length & 0x7f),
        None => return false,
    };
    octets.get(after..after + 2) == Some(&[2, 1])
        && octets.get(after + 2).is_some_and(|&version| version <= 3)
}

/// Whether this is a BER sequence with a message ID and an operation.
fn is_ldap(octets: &[u8]) -> bool {
    if octets.first() != Some(&0x30) {
        return false;
    }
    let after = match octets.get(1) {
        Some(&length) if length < 0x80 => 2,
        Some(&length) => 2 + usize::from(length & 0x7f),
        None => return false,
    };
    octets.get(after) == Some(&2)
        && octets.get(after + 1).is_some_and(|&length| {
            (1..=4).contains(&length)
                && octets.get(after + 2 + usize::from(length)).is_some_and(|tag| tag & 0xc0 == 0x40)
        })
}

fn is_tftp(octets: &[u8]) -> bool {
    octets.len() >= 4 && octets[0] == 0 && matches!(octets[1], 1 | 2) && octets[2..].contains(&0)
}

fn is_ike(octets: &[u8]) -> bool {
    let octets = octets.strip_prefix(&[0, 0, 0, 0]).unwrap_or(octets);
    octets.len() >= 28 && matches!(octets[17], 0x10 | 0x20) && octets[..8] != [0; 8]
}

/// Whether this is a known command with a plausible length.
fn is_enip(octets: &[u8]) -> bool {
    octets.len() >= 24
        && octets[1] == 0
        && matches!(octets[0], 0x00 | 0x04 | 0x63..=0x66 | 0x6f | 0x70 | 0x72 | 0x73)
}

fn is_quic(octets: &[u8], by_client: bool) -> bool {
    by_client
        && octets.len() >= 16
        && octets[0] & 0x80 != 0
        && octets[1..5] != [0; 4]
        && (octets[1..5] == [0, 0, 0, 1]
            || octets[1] == b'Q'
            || octets[1] == 0xff
            || octets[1..5] == [0x6b, 0x33, 0x43, 0xcf])
}

fn is_mqtt(octets: &[u8], by_client: bool) -> bool {
    if by_client {
        octets[0] == 0x10
            && octets.get(..16.min(octets.len())).is_some_and(|start| {
                start.windows(3).any(|window| window == b"MQT" || window == b"MQI")
            })
    } else {
        octets[0] == 0x20
    }
}

/// Whether this is a call of `program`, or a reply.
fn is_rpc(octets: &[u8], program: u32) -> bool {
    octets.len() >= 24
        && octets[4..8] == [0, 0, 0, 0]
        && octets[8..12] == [0, 0, 0, 2]
        && octets[12..16] == program.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tcp(server_port: u16, client: &[u8], server: &[u8]) -> Verdict {
        recognize(&First {
            transport: Tcp,
            client_port: 50_000,
            server_port,
            engine: EngineVersion::default(),
            client,
            server,
        })
    }

    #[test]
    fn words_count_on_any_port() {
        for (client, application) in [
            (&b"get /"[..], Application::Http1),
            (b"POST\t/a", Application::Http1),
            (b"SSH-2.0-x", Application::Ssh),
            (b"EHLO a", Application::Smtp),
            (b"USER me", Application::Ftp),
            (b"\x16\x03\x01\x00", Application::Tls),
            (b"INVITE sip:a SIP/2.0", Application::Sip),
            (b"\x00\x00\x00\x20\xffSMBr", Application::Smb),
            (b"a1 CAPABILITY\r\n", Application::Imap),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Application::Http2),
        ] {
            assert_eq!(tcp(9999, client, b""), Verdict::Application(application), "{client:?}");
        }
        assert_eq!(tcp(9999, b"GETTING", b""), Verdict::NeedMore);
        assert_eq!(
            tcp(9999, b" GET / HTTP/1.0", b"HTTP/1.1 200 OK"),
            Verdict::Application(Application::Http1)
        );
    }

    #[test]
    fn ambiguous_octets_count_on_their_own_port_only() {
        let query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01";
        let udp = |server_port| {
            recognize(&First {
                transport: Udp,
                client_port: 50_000,
                engine: EngineVersion::default(),
                server_port,
                client: query,
                server: b"",
            })
        };
        assert_eq!(udp(53), Verdict::Application(Application::Dns));
        assert_eq!(udp(54), Verdict::NeedMore);
        assert_eq!(tcp(25, b"", b"220 mail ready\r\n"), Verdict::Application(Application::Smtp));
        assert_eq!(tcp(26, b"", b"220 mail ready\r\n"), Verdict::NeedMore);
    }

    proptest! {
        #[test]
        fn any_octets_and_ports_have_a_verdict(
            client in proptest::collection::vec(any::<u8>(), 0..300),
            server in proptest::collection::vec(any::<u8>(), 0..300),
            port in prop_oneof![any::<u16>(), proptest::sample::select(vec![21u16, 23, 25, 53, 88, 110, 139, 389, 443, 445, 1883, 2049, 3389, 67, 69, 123, 161, 500, 5353])],
            is_tcp in any::<bool>(),
        ) {
            let transport = if is_tcp { Tcp } else { Udp };
            recognize(&First { transport, client_port: 1, server_port: port, engine: EngineVersion::default(), client: &client, server: &server });
        }
    }
}
