//! Mail: SMTP (RFC 5321), POP3 (RFC 1939) and IMAP (RFC 9051), and the message itself (RFC 5322,
//! RFC 2045).

use squall_rules::{Application, ApplicationTest, Buffer, End};

use super::dialog::{Dialog, Step, joined, line, one_line};
use super::{Impossible, Mime, Parts, contains, merged};
use crate::{Octets, Origin, Turn};

// Contains `=_`, which occurs in neither quoted-printable nor base64 data (RFC 2045 §6.7).
const BOUNDARY: &str = "----=_Part_51_8.23";
/// Longest unencoded line (RFC 5322 §2.1.1).
const LINE_LIMIT: usize = 998;

/// Sends or fetches a mail.
pub(super) fn conversation(
    application: Application,
    parts: &Parts,
) -> Result<Vec<Turn>, Impossible> {
    match application {
        Application::Pop3 => pop3(parts),
        Application::Imap => imap(parts),
        _ => smtp(parts),
    }
}

fn smtp(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let from = End::Client;
    let mut dialog = Dialog::new("220 mail.example.com ESMTP");
    let line_of = |before: &str, buffer, usual: &str, after: &str| {
        let usual = Octets::from(usual);
        let value = one_line(buffer, parts.get(buffer, from).unwrap_or(&usual))?;
        Ok(joined(&[&before.into(), value, &after.into(), &"\r\n".into()]))
    };
    let steps = |buffer| -> Result<Vec<Octets>, Impossible> {
        parts.all(buffer, from).map(|part| one_line(buffer, part).cloned()).collect()
    };
    let helo = line_of("EHLO ", Buffer::SmtpHelo, "client.example.com", "")?;
    dialog
        .steps
        .push(Step { command: helo, answer: "250-mail.example.com\r\n250 8BITMIME\r\n".into() });
    let mut addresses =
        vec![("MAIL FROM:", steps(Buffer::SmtpMailFrom)?, "<sender@example.com>", "250 2.1.0 Ok")];
    addresses.push((
        "RCPT TO:",
        steps(Buffer::SmtpRcptTo)?,
        "<recipient@example.com>",
        "250 2.1.5 Ok",
    ));
    for (command, values, usual, answer) in addresses {
        let values = if values.is_empty() { vec![usual.into()] } else { values };
        for value in values {
            let command = joined(&[&command.into(), &bracketed(&value), &"\r\n".into()]);
            dialog.steps.push(Step { command, answer: line(answer) });
        }
    }
    dialog.step("DATA", "354 End data with <CR><LF>.<CR><LF>");
    let message = message(parts, from)?;
    let mut all = stuffed(&message);
    all.append(&".\r\n".into());
    dialog.middle = 1;
    let data = dialog.steps.len();
    dialog.steps.push(Step { command: all, answer: line("250 2.0.0 Ok: queued as 51") });
    dialog.step("QUIT", "221 2.0.0 Bye");
    // The message already contains a payload that resembles a header line.
    if !contains_payload(&dialog.steps[data].command, parts, from) {
        dialog.payloads(parts);
    }
    dialog.turns(parts)
}

/// Puts an address in angle brackets unless it has some.
fn bracketed(value: &Octets) -> Octets {
    match contains(value.bytes(), b"<")
        || contains(value.bytes(), b">")
        || value.bytes().first() == Some(&b' ')
    {
        true => value.clone(),
        false => joined(&[&"<".into(), value, &">".into()]),
    }
}

fn pop3(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let mut dialog = Dialog::new("+OK POP3 server ready");
    dialog.step("USER user", "+OK");
    dialog.step("PASS secret", "+OK logged in");
    dialog.middle = 2;
    let message = message(parts, End::Server)?;
    let mut answer = line(&format!("+OK {} octets", message.len()));
    answer.append(&stuffed(&message));
    answer.append(&".\r\n".into());
    let inside = contains_payload(&answer, parts, End::Server);
    dialog.steps.push(Step { command: line("RETR 1"), answer });
    dialog.step("QUIT", "+OK bye");
    dialog.payloads(&client_only(parts, inside));
    dialog.turns(parts)
}

fn imap(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let mut dialog = Dialog::new("* OK IMAP4rev1 server ready");
    dialog.step("a1 LOGIN user secret", "a1 OK LOGIN completed");
    dialog.step(
        "a2 SELECT INBOX",
        "* FLAGS (\\Seen)\r\n* 1 EXISTS\r\na2 OK [READ-WRITE] SELECT completed",
    );
    dialog.middle = 1;
    let message = message(parts, End::Server)?;
    let mut answer = line(&format!("* 1 FETCH (BODY[] {{{}}}", message.len()));
    answer.append(&message);
    answer.append(&")\r\na3 OK FETCH completed\r\n".into());
    let inside = contains_payload(&answer, parts, End::Server);
    dialog.steps.push(Step { command: line("a3 FETCH 1 BODY[]"), answer });
    dialog.step("a4 LOGOUT", "* BYE\r\na4 OK LOGOUT completed");
    dialog.payloads(&client_only(parts, inside));
    dialog.turns(parts)
}

fn contains_payload(message: &Octets, parts: &Parts, from: End) -> bool {
    let mut payloads =
        parts.all(Buffer::Payload, from).chain(parts.all(Buffer::RawPayload, from)).peekable();
    payloads.peek().is_some() && payloads.all(|payload| contains(message.bytes(), payload.bytes()))
}

/// Removes the server's payloads, if its message already contains them (`inside`).
fn client_only(parts: &Parts, inside: bool) -> Parts {
    let mut left = parts.clone();
    if inside {
        left.buffers.retain(|part| part.1 == End::Client);
    }
    left
}

/// A message with the required header, text and attachments. Ends with a line end.
fn message(parts: &Parts, from: End) -> Result<Octets, Impossible> {
    let mut all = Octets::new();
    let header: &[(Buffer, &str, &str)] = &[
        (Buffer::EmailReceived, "Received", ""),
        (Buffer::EmailFrom, "From", "Sender <sender@example.com>"),
        (Buffer::EmailTo, "To", "recipient@example.com"),
        (Buffer::EmailCc, "Cc", ""),
        (Buffer::EmailSubject, "Subject", "Message"),
        (Buffer::EmailDate, "Date", "Sat, 1 Jan 2022 00:00:00 +0000"),
        (Buffer::EmailMessageId, "Message-ID", "<51@example.com>"),
        (Buffer::EmailXMailer, "X-Mailer", ""),
    ];
    for &(buffer, name, usual) in header {
        let mut values: Vec<Octets> = parts.all(buffer, from).cloned().collect();
        let unwanted =
            parts.without.iter().any(|without| without.0 == buffer && without.2.is_empty());
        if values.is_empty() && !usual.is_empty() && !unwanted {
            values.push(usual.into());
        }
        for value in &values {
            // Long header lines are not folded, so that required octets stay adjacent.
            all.append(&joined(&[
                &format!("{name}: ").as_str().into(),
                one_line(buffer, value)?,
                &"\r\n".into(),
            ]));
        }
    }
    let mut text = Octets::new();
    for url in parts.all(Buffer::EmailUrl, from) {
        let scheme = if contains(url.bytes(), b"://") { "" } else { "http://" };
        text.append(&joined(&[&scheme.into(), one_line(Buffer::EmailUrl, url)?, &"\r\n".into()]));
    }
    for payload in parts.all(Buffer::Payload, from).chain(parts.all(Buffer::RawPayload, from)) {
        match is_header(payload.bytes()) {
            true => all.append(&super::dialog::ended(payload.clone())),
            false if from == End::Server => text.append(&super::dialog::ended(payload.clone())),
            false => {}
        }
    }
    if text.is_empty() {
        text.append(&"A message.\r\n".into());
    }
    let files: Vec<&Octets> = parts.all(Buffer::FileData, from).collect();
    let name = file_name(parts, from)?;
    if files.is_empty() && name.is_none() {
        all.append(
            &"MIME-Version: 1.0\r\nContent-Type: text/plain; charset=us-ascii\r\n\r\n".into(),
        );
        all.append(&text);
        return Ok(all);
    }
    let name = name.unwrap_or_else(|| "file.bin".into());
    all.append(&line(&format!(
        "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"{BOUNDARY}\"\r\n"
    )));
    all.append(&line(&format!("--{BOUNDARY}\r\nContent-Type: text/plain; charset=us-ascii\r\n")));
    all.append(&text);
    let data = match files.is_empty() {
        true => Octets::from("A file.\r\n"),
        false => merged(files.into_iter(), b""),
    };
    let (encoding, encoded) = encoded(&data, parts.style.mime)?;
    all.append(&line(&format!("--{BOUNDARY}\r\nContent-Type: application/octet-stream")));
    all.append(&line(&format!("Content-Transfer-Encoding: {encoding}")));
    all.append(&joined(&[
        &"Content-Disposition: attachment; filename=\"".into(),
        &name,
        &"\"\r\n\r\n".into(),
    ]));
    all.append(&encoded);
    all.append(&line(&format!("\r\n--{BOUNDARY}--")));
    Ok(all)
}

fn file_name(parts: &Parts, from: End) -> Result<Option<Octets>, Impossible> {
    if let Some(name) = parts.get(Buffer::FileName, from) {
        if name.bytes().contains(&b'"') {
            return Err(Impossible("a file name with quotation marks is not supported".into()));
        }
        return one_line(Buffer::FileName, name).cloned().map(Some);
    }
    Ok(parts.tests.iter().find_map(|test| match test {
        ApplicationTest::FileExtension { is, negated: false } => {
            Some(Octets::from(format!("file.{is}").as_str()))
        }
        ApplicationTest::FileName { holds, negated: false } => Some(Octets::from(holds.as_str())),
        _ => None,
    }))
}

/// Encodes an attachment. Returns the name of the encoding and the lines without the last line end.
fn encoded(data: &Octets, how: Mime) -> Result<(&'static str, Octets), Impossible> {
    match how {
        Mime::Base64 => Ok(("base64", base64(data))),
        Mime::QuotedPrintable => Ok(("quoted-printable", quoted_printable(data))),
        Mime::Plain => {
            let bytes = data.bytes();
            let bare = bytes.iter().enumerate().any(|(at, &octet)| match octet {
                b'\n' => at == 0 || bytes[at - 1] != b'\r',
                b'\r' => bytes.get(at + 1) != Some(&b'\n'),
                _ => octet == 0 || octet >= 0x80,
            });
            let lines = bytes.split(|&octet| octet == b'\n');
            let long = lines.clone().any(|line| line.len() > LINE_LIMIT);
            // Engines do not undo dot-stuffing.
            let dotted =
                lines.into_iter().any(|line| line.starts_with(b".") || line.starts_with(b"--"));
            match bare || long || dotted {
                true => Err(Impossible("this file cannot be sent unencoded in a mail".into())),
                false => Ok(("7bit", data.clone())),
            }
        }
    }
}

/// Encodes data in lines of 76 characters. Each character gets the highest origin among the octets
/// that it encodes.
pub(super) fn base64(data: &Octets) -> Octets {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut all = Octets::new();
    for (at, chunk) in data.bytes().chunks(3).enumerate() {
        if at > 0 && at % 19 == 0 {
            all.append(&"\r\n".into());
        }
        let origins = &data.origins()[at * 3..at * 3 + chunk.len()];
        let origin = |index: usize| {
            origins.get(index).or(origins.last()).copied().unwrap_or(Origin::Framing)
        };
        let number = (0..3)
            .fold(0u32, |number, index| number << 8 | u32::from(*chunk.get(index).unwrap_or(&0)));
        for sign in 0..4 {
            let padding = sign > chunk.len();
            let octet =
                if padding { b'=' } else { SIGNS[(number >> (18 - 6 * sign) & 63) as usize] };
            // The middle two of four characters encode bits of two octets, the others bits of one.
            all.push(octet, origin(sign.saturating_sub(1)).max(origin(sign)));
        }
    }
    all
}

/// Encodes data as quoted-printable (RFC 2045 §6.7). Line ends stay; all other control characters
/// are escaped.
fn quoted_printable(data: &Octets) -> Octets {
    let bytes = data.bytes();
    let mut all = Octets::new();
    let mut column = 0;
    let mut at = 0;
    while at < bytes.len() {
        let origin = data.origins()[at];
        if bytes[at..].starts_with(b"\r\n") {
            all.append(&data.slice(at..at + 2));
            at += 2;
            column = 0;
            continue;
        }
        let last = bytes.get(at + 1).is_none_or(|&next| next == b'\r');
        let plain = match bytes[at] {
            b' ' | b'\t' => !last,
            // A leading dot would be doubled, and leading hyphens could look like a boundary.
            b'.' | b'-' => column > 0,
            octet => octet.is_ascii_graphic() && octet != b'=',
        };
        let length = if plain { 1 } else { 3 };
        if column + length > 75 {
            all.append(&"=\r\n".into());
            column = 0;
            continue;
        }
        match plain {
            true => all.push(bytes[at], origin),
            false => all.extend(format!("={:02X}", bytes[at]).as_bytes(), origin),
        }
        column += length;
        at += 1;
    }
    // Add a soft line break, because the line end before the boundary does not belong to the file.
    all.append(&"=".into());
    all
}

/// Doubles leading dots (RFC 5321 §4.5.2).
fn stuffed(message: &Octets) -> Octets {
    let mut all = Octets::new();
    for (at, (&octet, &origin)) in message.bytes().iter().zip(message.origins()).enumerate() {
        if octet == b'.' && (at == 0 || message.bytes()[at - 1] == b'\n') {
            all.push(b'.', Origin::Framing);
        }
        all.push(octet, origin);
    }
    all
}

/// Whether the octets resemble a header line of a message.
fn is_header(octets: &[u8]) -> bool {
    let names = [
        "From:",
        "To:",
        "Cc:",
        "Subject:",
        "Date:",
        "Received:",
        "Reply-To:",
        "Content-",
        "X-",
        "Message-ID:",
        "MIME-",
        "Sender:",
    ];
    names.iter().any(|name| {
        octets.len() >= name.len() && octets[..name.len()].eq_ignore_ascii_case(name.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{
        assemble,
        testing::{texts, with},
    };
    use super::*;

    #[test]
    fn a_mail_has_its_attachment_in_base64_under_its_name() {
        let parts = with(&[
            (Buffer::FileData, End::Client, "evil code"),
            (Buffer::FileName, End::Client, "a.exe"),
        ]);
        let text = texts(Application::Smtp, &parts).concat();
        let head = "Content-Transfer-Encoding: base64\r\nContent-Disposition: attachment; \
                    filename=\"a.exe\"\r\n\r\nZXZpbCBjb2Rl\r\n--";
        assert!(text.contains(head), "{text}");
        assert!(
            text.starts_with("220 mail.example.com ESMTP\r\nEHLO client.example.com\r\n250-"),
            "{text}"
        );
        assert!(
            text.ends_with("--\r\n.\r\n250 2.0.0 Ok: queued as 51\r\nQUIT\r\n221 2.0.0 Bye\r\n"),
            "{text}"
        );
    }

    #[test]
    fn envelope_and_header_are_as_required() {
        let parts = with(&[
            (Buffer::SmtpHelo, End::Client, "evil"),
            (Buffer::SmtpMailFrom, End::Client, "a@b"),
            (Buffer::SmtpRcptTo, End::Client, "<c@d>"),
            (Buffer::EmailSubject, End::Client, "Win"),
        ]);
        let text = texts(Application::Smtp, &parts).concat();
        for line in
            ["EHLO evil\r\n", "MAIL FROM:<a@b>\r\n", "RCPT TO:<c@d>\r\n", "Subject: Win\r\n"]
        {
            assert!(text.contains(line), "{line} in {text}");
        }
        let two_lines = with(&[(Buffer::EmailSubject, End::Client, "a\r\nb")]);
        assert!(assemble(Application::Smtp, &two_lines).is_err());
    }

    #[test]
    fn a_fetched_mail_is_announced_with_its_length() {
        let parts = with(&[(Buffer::FileData, End::Server, "evil")]);
        let imap = texts(Application::Imap, &parts).concat();
        let (head, rest) = imap.split_once("BODY[] {").unwrap();
        assert!(head.ends_with("* 1 FETCH ("));
        let (length, rest) = rest.split_once("}\r\n").unwrap();
        assert!(rest[length.parse().unwrap()..].starts_with(")\r\na3 OK"), "{rest}");
        assert!(texts(Application::Pop3, &parts).concat().contains("\r\n.\r\nQUIT\r\n"));
    }

    #[test]
    fn a_payload_is_the_command_it_begins_with() {
        let text =
            texts(Application::Smtp, &with(&[(Buffer::Payload, End::Client, "MAIL FROM: evil")]))
                .concat();
        assert!(text.contains("MAIL FROM: evil\r\n250") && !text.contains("MAIL FROM:<"), "{text}");
    }

    proptest! {
        #[test]
        fn encodings_of_a_file_are_undone(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            let octets = Octets::framing(data.clone());
            let quoted = quoted_printable(&octets);
            let lines = quoted.bytes().split(|&octet| octet == b'\n');
            for line in lines {
                prop_assert!(line.len() <= 77 && !line.starts_with(b"."));
            }
            let mut seen = vec![];
            let mut rest = quoted.bytes();
            loop {
                rest = match rest {
                    [b'=', b'\r', b'\n', rest @ ..] => rest,
                    [b'='] => break,
                    [b'=', high, low, rest @ ..] => {
                        seen.push(u8::from_str_radix(&format!("{}{}", *high as char, *low as char), 16).unwrap());
                        rest
                    }
                    [octet, rest @ ..] => {
                        seen.push(*octet);
                        rest
                    }
                    [] => break,
                };
            }
            prop_assert_eq!(&seen, &data);
            let encoded = base64(&octets);
            prop_assert_eq!(encoded.bytes().iter().filter(|octet| !b"\r\n".contains(octet)).count(), data.len().div_ceil(3) * 4);
            prop_assert!(encoded.bytes().split(|&octet| octet == b'\n').all(|line| line.len() <= 77));
        }
    }
}
