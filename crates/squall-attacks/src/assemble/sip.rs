//! SIP (RFC 3261): a request and its response, with a session description (RFC 8866) as body.

use squall_rules::{ApplicationTest, Buffer, End};

use super::dialog::{joined, one_line};
use super::{Impossible, Parts, contains, find, merged};
use crate::{Octets, Turn};

/// Not OPTIONS, because HTTP has it, too, and engines would not detect SIP.
const METHOD: &str = "MESSAGE";

pub(super) fn conversation(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let mut turns = vec![Turn::new(End::Client, message(parts, End::Client)?)];
    if !parts.style.unanswered || parts.sends(End::Server) {
        turns.push(Turn::new(End::Server, message(parts, End::Server)?));
    }
    Ok(turns)
}

fn message(parts: &Parts, from: End) -> Result<Octets, Impossible> {
    let payload =
        merged(parts.all(Buffer::Payload, from).chain(parts.all(Buffer::RawPayload, from)), b"");
    let method =
        parts.get(Buffer::SipMethod, End::Client).cloned().unwrap_or_else(|| METHOD.into());
    let first = match (first_line(&payload), from) {
        (Some(line), _) => line,
        (None, End::Client) => request_line(parts, &method)?,
        (None, End::Server) => status_line(parts)?,
    };
    let method = match from {
        // Use the method in the given line.
        End::Client => {
            first.slice(0..first.bytes().iter().position(|&octet| octet == b' ').unwrap_or(0))
        }
        End::Server => method,
    };
    let body = body(parts, from, &payload);
    let mut header = Octets::new();
    // Given lines come first. Default lines with the same names are not added.
    let mut given = merged(parts.all(Buffer::SipHeader, from), b"\r\n");
    if let Some(lines) = lines_of(&payload) {
        given.append(&lines);
    }
    if !given.is_empty() {
        if !is_line(given.bytes()) {
            let mut whole = Octets::from("Subject: ");
            whole.append(&given);
            given = whole;
        }
        while given.bytes().ends_with(b"\r\n") {
            given = given.slice(0..given.len() - 2);
        }
        header.append(&given);
        header.append(&"\r\n".into());
    }
    let transport = if parts.style.over_tcp { "TCP" } else { "UDP" };
    let length = Octets::from(body.len().to_string().as_str());
    let command = joined(&[&"51 ".into(), &method]);
    let description: Octets = "application/sdp".into();
    let lines: [(Buffer, &str, Octets); 9] = [
        (
            Buffer::SipVia,
            "Via",
            format!("SIP/2.0/{transport} 192.0.2.1:5060;branch=z9hG4bK51").as_str().into(),
        ),
        (
            Buffer::Frame,
            "Max-Forwards",
            if from == End::Client { "70".into() } else { Octets::new() },
        ),
        (Buffer::SipFrom, "From", "<sip:user@example.com>;tag=51".into()),
        (Buffer::SipTo, "To", "<sip:other@example.com>".into()),
        (Buffer::Frame, "Call-ID", "51@192.0.2.1".into()),
        (Buffer::Frame, "CSeq", command),
        (Buffer::SipUserAgent, "User-Agent", Octets::new()),
        (
            Buffer::SipContentType,
            "Content-Type",
            if body.is_empty() { Octets::new() } else { description },
        ),
        (Buffer::SipContentLength, "Content-Length", length),
    ];
    for (buffer, name, usual) in lines {
        let mut values: Vec<Octets> = match buffer {
            Buffer::Frame => vec![],
            buffer => parts.all(buffer, from).cloned().collect(),
        };
        let there = is_there(given.bytes(), name);
        if values.is_empty() && !usual.is_empty() && !there {
            values.push(usual);
        }
        for value in &values {
            header.append(&joined(&[
                &format!("{name}: ").as_str().into(),
                one_line(buffer, value)?,
                &"\r\n".into(),
            ]));
        }
    }
    Ok(joined(&[&first, &"\r\n".into(), &header, &"\r\n".into(), &body]))
}

fn request_line(parts: &Parts, method: &Octets) -> Result<Octets, Impossible> {
    let from = End::Client;
    if let Some(given) = parts.get(Buffer::SipRequestLine, from) {
        let given = one_line(Buffer::SipRequestLine, given)?;
        let words = given.bytes().split(|&octet| octet == b' ').count();
        return Ok(match words {
            3.. => given.clone(),
            2 if contains(given.bytes(), b"SIP/") => joined(&[&"MESSAGE ".into(), given]),
            2 => joined(&[given, &" SIP/2.0".into()]),
            _ if given.bytes().iter().all(u8::is_ascii_uppercase) => {
                joined(&[given, &" sip:other@example.com SIP/2.0".into()])
            }
            _ => joined(&[&"MESSAGE ".into(), given, &" SIP/2.0".into()]),
        });
    }
    let usual: [Octets; 2] = ["sip:other@example.com".into(), "SIP/2.0".into()];
    let uri = one_line(Buffer::SipUri, parts.get(Buffer::SipUri, from).unwrap_or(&usual[0]))?;
    let protocol =
        one_line(Buffer::SipProtocol, parts.get(Buffer::SipProtocol, from).unwrap_or(&usual[1]))?;
    Ok(joined(&[one_line(Buffer::SipMethod, method)?, &" ".into(), uri, &" ".into(), protocol]))
}

fn status_line(parts: &Parts) -> Result<Octets, Impossible> {
    let from = End::Server;
    if let Some(given) = parts.get(Buffer::SipResponseLine, from) {
        let given = one_line(Buffer::SipResponseLine, given)?;
        return Ok(match given.bytes().starts_with(b"SIP/") {
            true => given.clone(),
            false => joined(&[&"SIP/2.0 ".into(), given]),
        });
    }
    let mut code = Octets::from("200");
    for test in &parts.tests {
        if let ApplicationTest::SipStatusCode(codes) = test {
            let fits = [200, 404, 100, 401]
                .into_iter()
                .find(|&fits| codes.contains(fits))
                .or(codes.at_least(100));
            let fits = fits.filter(|&fits| fits < 1000);
            code = Octets::framing(
                fits.ok_or_else(|| Impossible("a status has three digits".into()))?.to_string(),
            );
        }
    }
    let usual: [Octets; 2] = ["SIP/2.0".into(), "OK".into()];
    let protocol = parts.get(Buffer::SipProtocol, from).unwrap_or(&usual[0]);
    let code =
        one_line(Buffer::SipStatusCode, parts.get(Buffer::SipStatusCode, from).unwrap_or(&code))?;
    let message = one_line(
        Buffer::SipStatusMessage,
        parts.get(Buffer::SipStatusMessage, from).unwrap_or(&usual[1]),
    )?;
    Ok(joined(&[protocol, &" ".into(), code, &" ".into(), message]))
}

fn body(parts: &Parts, from: End, payload: &Octets) -> Octets {
    let mut body = merged(parts.all(Buffer::SipBody, from), b"");
    let text = payload.bytes();
    if let Some(end) = find(text, b"\r\n\r\n") {
        body.append(&payload.slice(end + 4..payload.len()));
    } else if first_line(payload).is_none() && !is_line(text) {
        body.append(payload);
    }
    // A session description must start with at least these lines.
    if !body.is_empty() && !body.bytes().starts_with(b"v=") && body.bytes().get(1) == Some(&b'=') {
        let mut whole = Octets::from("v=0\r\no=- 51 51 IN IP4 192.0.2.1\r\ns=-\r\nt=0 0\r\n");
        whole.append(&body);
        body = whole;
    }
    body
}

/// The first line of a payload, if it is a request or status line.
fn first_line(payload: &Octets) -> Option<Octets> {
    let bytes = payload.bytes();
    let end = find(bytes, b"\r\n").unwrap_or(bytes.len());
    let word = bytes.iter().take_while(|octet| octet.is_ascii_uppercase()).count();
    if bytes.starts_with(b"SIP/") {
        return Some(payload.slice(0..end));
    }
    if word < 3 || bytes.get(word) != Some(&b' ') {
        return None;
    }
    let mut line = payload.slice(0..end);
    if !contains(line.bytes(), b"SIP/") {
        if line.bytes().ends_with(b" ") {
            line.append(&"sip:other@example.com".into());
        }
        line.append(&" SIP/2.0".into());
    }
    Some(line)
}

/// The header lines of a payload, without its first line and body.
fn lines_of(payload: &Octets) -> Option<Octets> {
    let bytes = payload.bytes();
    let begin = match first_line(payload) {
        Some(_) => find(bytes, b"\r\n")? + 2,
        None if is_line(bytes) => 0,
        None => return None,
    };
    let end = find(bytes, b"\r\n\r\n").unwrap_or(bytes.len());
    (begin < end).then(|| payload.slice(begin..end))
}

fn is_line(octets: &[u8]) -> bool {
    let name =
        octets.iter().take_while(|&&octet| octet.is_ascii_alphanumeric() || octet == b'-').count();
    name > 0 && octets.get(name) == Some(&b':')
}

fn is_there(given: &[u8], name: &str) -> bool {
    given.split(|&octet| octet == b'\n').any(|line| {
        line.len() > name.len()
            && line[..name.len()].eq_ignore_ascii_case(name.as_bytes())
            && line[name.len()] == b':'
    })
}

/// DHCP discover and offer (RFC 2131), NTP request and reply (RFC 5905). The keywords for these
/// protocols test payloads.
pub(super) mod fixed {
    use super::*;

    pub fn dhcp(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
        let message = |from: End| {
            let (operation, kind) = if from == End::Client { (1, 1) } else { (2, 2) };
            let mut all = Octets::framing([operation, 1, 6, 0, 0x51, 0, 0x51, 1]);
            all.append(&Octets::framing(vec![0; 8]));
            all.append(&Octets::framing(if from == End::Client {
                [0; 4]
            } else {
                [192, 0, 2, 10]
            }));
            all.append(&Octets::framing(vec![0; 8]));
            all.append(&Octets::framing([2, 0, 0, 0, 0x51, 1]));
            // The rest of the hardware address, the server name, the boot file.
            all.append(&Octets::framing(vec![0; 10 + 64 + 128]));
            all.append(&Octets::framing([99, 130, 83, 99, 53, 1, kind]));
            let payload = payload(parts, from);
            if !payload.is_empty() && payload.len() < 256 {
                // Use the payload as the host name.
                all.append(&Octets::framing([12, payload.len() as u8]));
                all.append(&payload);
            }
            all.append(&Octets::framing([255]));
            Turn::new(from, all)
        };
        Ok(vec![message(End::Client), message(End::Server)])
    }

    pub fn ntp(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
        let message = |from: End| {
            let mode = if from == End::Client { 0x23 } else { 0x24 };
            let mut all = vec![mode, if from == End::Client { 0 } else { 2 }, 6, 0xec];
            all.extend([0; 12]);
            for stamp in 0..4 {
                let known = from == End::Server || stamp == 3;
                all.extend(if known {
                    [0xe5, 0x7a, 0x1c, 0x40 + stamp, 0, 0, 0, stamp]
                } else {
                    [0; 8]
                });
            }
            let payload = payload(parts, from);
            let octets = if payload.is_empty() { Octets::framing(all) } else { payload };
            Turn::new(from, octets)
        };
        Ok(vec![message(End::Client), message(End::Server)])
    }

    fn payload(parts: &Parts, from: End) -> Octets {
        merged(parts.all(Buffer::Payload, from).chain(parts.all(Buffer::RawPayload, from)), b"")
    }
}

#[cfg(test)]
mod tests {
    use squall_rules::{Application, Numbers};

    use super::super::{
        assemble,
        testing::{self, with},
    };
    use super::*;

    fn messages(parts: &Parts) -> Vec<String> {
        testing::texts(Application::Sip, parts)
    }

    #[test]
    fn a_request_has_all_lines_that_it_needs() {
        let messages = messages(&with(&[
            (Buffer::SipMethod, End::Client, "INVITE"),
            (Buffer::SipBody, End::Client, "a=evil\r\n"),
        ]));
        assert!(
            messages[0].starts_with(
                "INVITE sip:other@example.com SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch="
            ),
            "{}",
            messages[0]
        );
        assert!(
            messages[0].contains("\r\nCSeq: 51 INVITE\r\n")
                && messages[0].contains("\r\nContent-Length: 53\r\n\r\nv=0\r\n"),
            "{}",
            messages[0]
        );
        assert!(messages[1].starts_with("SIP/2.0 200 OK\r\n"));
    }

    #[test]
    fn header_lines_of_a_payload_are_among_the_headers() {
        let messages = messages(&with(&[(
            Buffer::Payload,
            End::Client,
            "REGISTER sip:x SIP/2.0\r\nFrom: evil\r\nX-A",
        )]));
        assert!(
            messages[0].starts_with("REGISTER sip:x SIP/2.0\r\nFrom: evil\r\nX-A\r\nVia: "),
            "{}",
            messages[0]
        );
        assert_eq!(messages[0].matches("From:").count(), 1);
    }

    #[test]
    fn a_status_is_one_of_those_required() {
        let mut parts = with(&[]);
        parts.tests.push(ApplicationTest::SipStatusCode(Numbers::range(400..=499)));
        assert!(messages(&parts)[1].starts_with("SIP/2.0 404 "));
    }

    #[test]
    fn messages_of_one_form_have_their_lengths() {
        let turns = assemble(Application::Ntp, &Parts::default()).unwrap();
        assert!(turns.iter().all(|turn| turn.octets.len() == 48));
        let turns = assemble(Application::Dhcp, &Parts::default()).unwrap();
        assert!(
            turns.iter().all(|turn| turn.octets.bytes()[236..240] == [99, 130, 83, 99]
                && turn.octets.len() == 244)
        );
    }
}
