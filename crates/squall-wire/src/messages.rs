//! Application messages built from one line of text. They are payload: no header identifies them.

use crate::header::Proto;

/// The octets of a message.
///
/// # Errors
/// Invalid text; the error has the expected form.
pub(crate) fn octets(proto: Proto, text: &str) -> Result<Vec<u8>, String> {
    match proto {
        Proto::Http => lines(text, "HTTP/"),
        Proto::Sip => lines(text, "SIP/"),
        Proto::Mqtt => mqtt(text),
        Proto::Snmp => snmp(text),
        _ => Ok(text.as_bytes().to_vec()),
    }
}

/// A start line and header fields, each ended by CR LF, then an empty line (RFC 9112 §2.1, RFC 3261
/// §7).
fn lines(text: &str, version: &str) -> Result<Vec<u8>, String> {
    let start = text.lines().next().unwrap_or_default();
    let words = start.split(' ').count();
    let answer = start.starts_with(version) && words >= 2;
    let request =
        words == 3 && start.rsplit(' ').next().is_some_and(|last| last.starts_with(version));
    if !answer && !request {
        return Err(format!(
            "a start line such as \"OPTIONS * {version}1.1\" or \"{version}1.1 200 OK\", then \
             header fields, one per line"
        ));
    }
    let fields = text.lines().map(|line| format!("{line}\r\n"));
    Ok(fields.chain(["\r\n".into()]).collect::<String>().into_bytes())
}

/// Builds a message of MQTT 3.1.1, at quality of service 0.
fn mqtt(text: &str) -> Result<Vec<u8>, String> {
    let mut words = text.splitn(3, ' ');
    let (command, first, rest) = (words.next(), words.next(), words.next());
    let string = |text: &str| {
        let len = (text.len() as u16).to_be_bytes();
        [&len[..], text.as_bytes()].concat()
    };
    let (kind, body) = match (command, first, rest) {
        (Some("connect"), Some(client), None) => {
            // Protocol level 4, clean session, keepalive 60 s.
            (0x10, [string("MQTT"), vec![4, 2, 0, 60], string(client)].concat())
        }
        (Some("connack"), None, None) => (0x20, vec![0, 0]),
        (Some("publish"), Some(topic), message) => {
            (0x30, [string(topic), message.unwrap_or_default().as_bytes().to_vec()].concat())
        }
        (Some("subscribe"), Some(topic), None) => {
            (0x82, [vec![0, 1], string(topic), vec![0]].concat())
        }
        (Some("pingreq"), None, None) => (0xc0, Vec::new()),
        (Some("pingresp"), None, None) => (0xd0, Vec::new()),
        (Some("disconnect"), None, None) => (0xe0, Vec::new()),
        _ => {
            return Err(
                "connect CLIENT, connack, publish TOPIC MESSAGE, subscribe TOPIC, pingreq, \
                        pingresp or disconnect"
                    .into(),
            );
        }
    };
    let (mut octets, mut left) = (vec![kind], body.len());
    loop {
        let more = if left > 127 { 0x80 } else { 0 };
        octets.push((left & 127) as u8 | more);
        left >>= 7;
        if left == 0 {
            break;
        }
    }
    Ok([octets, body].concat())
}

/// An SNMPv2c message (RFC 1901, RFC 3416): the operation and its objects; the request id is 1.
fn snmp(text: &str) -> Result<Vec<u8>, String> {
    const FORMS: &str = "get, getnext or getbulk, a community, and objects: get public \
                         1.3.6.1.2.1.1.1.0";
    let mut words = text.split_whitespace();
    let (kind, repetitions) = match words.next() {
        Some("get") => (0xa0, 0),
        Some("getnext") => (0xa1, 0),
        Some("getbulk") => (0xa5, 10),
        _ => return Err(FORMS.into()),
    };
    let community = words.next().ok_or(FORMS)?;
    let mut bindings = Vec::new();
    for object in words {
        let value = [ber(6, &object_identifier(object).ok_or(FORMS)?), ber(5, &[])].concat();
        bindings.extend(ber(0x30, &value));
    }
    if bindings.is_empty() {
        return Err(FORMS.into());
    }
    let pdu = [ber(2, &[1]), ber(2, &[0]), ber(2, &[repetitions]), ber(0x30, &bindings)].concat();
    let message = [ber(2, &[1]), ber(4, community.as_bytes()), ber(kind, &pdu)].concat();
    Ok(ber(0x30, &message))
}

/// A BER element: tag, length and octets (X.690 §8.1).
fn ber(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = content.len();
    let head = match len {
        0..128 => vec![tag, len as u8],
        128..256 => vec![tag, 0x81, len as u8],
        _ => vec![tag, 0x82, (len >> 8) as u8, len as u8],
    };
    [&head[..], content].concat()
}

/// Encodes an object identifier (X.690 §8.19): the first two numbers are combined, and each octet
/// has 7 bits of a number.
fn object_identifier(text: &str) -> Option<Vec<u8>> {
    let numbers: Vec<u32> =
        text.trim_start_matches('.').split('.').map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let (&[first, second], rest) = numbers.split_first_chunk()?;
    if first > 2 || second > 39 {
        return None;
    }
    let mut octets = vec![(first * 40 + second) as u8];
    for number in rest {
        let groups = (32 - number.leading_zeros()).div_ceil(7).max(1);
        for group in (0..groups).rev() {
            octets.push((number >> (7 * group)) as u8 & 127 | if group > 0 { 128 } else { 0 });
        }
    }
    Some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_as_the_protocols_have_it() {
        let octets = octets(Proto::Http, "GET / HTTP/1.1\nHost: a.example").unwrap();
        assert_eq!(octets, b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert!(lines("SIP/2.0 200 OK", "SIP/").is_ok());
        assert!(lines("GET /", "HTTP/").is_err());
    }

    #[test]
    fn lengths_have_as_many_octets_as_they_need() {
        let long = format!("publish t {}", "x".repeat(200));
        assert_eq!(mqtt(&long).unwrap()[..3], [0x30, 0xcb, 1]);
        assert_eq!(ber(4, &[0; 300])[..4], [4, 0x82, 1, 44]);
        assert_eq!(
            object_identifier("1.3.6.1.4.1.2680.1"),
            Some(vec![0x2b, 6, 1, 4, 1, 0x94, 0x78, 1])
        );
        assert_eq!(object_identifier("1"), None);
        assert!(snmp("get public").is_err() && snmp("walk public 1.3").is_err());
    }
}
