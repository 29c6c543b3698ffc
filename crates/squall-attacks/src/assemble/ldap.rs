//! LDAP (RFC 4511): a request and its responses.

use squall_rules::{ApplicationTest, Buffer, End};

use super::der::{node, plain, sequence};
use super::fields::{number, other, payload};
use super::{Impossible, Parts};
use crate::{Octets, Turn};

// Application tags of `protocolOp` (RFC 4511, appendix B).
const BIND: u8 = 0;
const UNBIND: u8 = 2;
const SEARCH: u8 = 3;
const ENTRY: u8 = 4;
const DONE: u8 = 5;
const DELETE: u8 = 10;
const ABANDON: u8 = 16;
const REFERENCE: u8 = 19;
const EXTENDED: u8 = 23;
const INTERMEDIATE: u8 = 25;

pub(super) fn conversation(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let required = number(
        parts,
        |test| match test {
            ApplicationTest::LdapRequestOperation(numbers) => Some(numbers),
            _ => None,
        },
        &[SEARCH.into(), BIND.into(), 6, 8, DELETE.into(), 12, 14],
        EXTENDED.into(),
    )?;
    let answered = number(
        parts,
        |test| match test {
            ApplicationTest::LdapResponseOperation(numbers) => Some(numbers),
            _ => None,
        },
        &[DONE.into(), ENTRY.into(), 1],
        INTERMEDIATE.into(),
    )?;
    let result = other(parts, "ldap.responses.result_code", &[0], 127)?.unwrap_or(0) as u8;
    let count = other(parts, "ldap.responses.count", &[1, 2], 1_000)?;
    let operation = match (required, answered) {
        (Some(required), _) => required as u8,
        (None, Some(4 | 5 | 19)) => SEARCH,
        (None, Some(24 | 25)) => EXTENDED,
        (None, Some(answer)) => (answer as u8).saturating_sub(1),
        (None, None) => SEARCH,
    };
    let dn = parts
        .get(Buffer::LdapRequestDn, End::Client)
        .cloned()
        .unwrap_or_else(|| "dc=example,dc=com".into());
    let client_payload = payload(parts, End::Client).unwrap_or_else(|| "objectClass".into());
    let id = node(2, [Octets::from(&[2])]);
    let message = |operation: Octets| sequence([id.clone(), operation]);
    let mut turns = vec![Turn::new(End::Client, message(request(operation, &dn, client_payload)?))];
    let mut answers: Vec<Octets> = vec![];
    let value = payload(parts, End::Server).unwrap_or_else(|| "top".into());
    let names: Vec<Octets> = parts.all(Buffer::LdapResponseDn, End::Server).cloned().collect();
    let outcome = |kind: u8, name: Option<&Octets>| {
        let name = name.cloned().unwrap_or_default();
        node(0x60 | kind, [plain(0x0a, &[result]), node(4, [name]), plain(4, b"")])
    };
    let entry = |name: &Octets| {
        let values = node(0x31, [node(4, [value.clone()])]);
        node(
            0x60 | ENTRY,
            [node(4, [name.clone()]), sequence([sequence([plain(4, b"objectClass"), values])])],
        )
    };
    match operation {
        UNBIND | ABANDON => {}
        SEARCH => {
            answers.extend(names.iter().map(entry));
            let usual = [Octets::from("cn=user,dc=example,dc=com")];
            let needs_entry =
                answered == Some(ENTRY.into()) || payload(parts, End::Server).is_some();
            // The final SearchResultDone counts as a response, too.
            let wanted =
                count.map_or(0, |count| count as usize).max(if needs_entry { 2 } else { 0 });
            while answers.len() + 1 < wanted {
                answers.push(entry(&usual[0]));
            }
            if answered == Some(REFERENCE.into()) {
                answers.push(node(
                    0x60 | REFERENCE,
                    [plain(4, b"ldap://ldap.example.com/dc=example,dc=com")],
                ));
            }
            answers.push(outcome(DONE, None));
        }
        EXTENDED => {
            if answered == Some(INTERMEDIATE.into()) {
                answers.push(node(0x60 | INTERMEDIATE, [plain(0x80, b"1.3.6.1.4.1.4203.1.9.1.4")]));
            }
            answers.push(outcome(24, names.first()));
        }
        operation => answers.push(outcome(operation + 1, names.first())),
    }
    if !answers.is_empty() {
        let mut response = Octets::new();
        answers.into_iter().for_each(|answer| response.append(&message(answer)));
        turns.push(Turn::new(End::Server, response));
    }
    Ok(turns)
}

fn request(operation: u8, dn: &Octets, payload: Octets) -> Result<Octets, Impossible> {
    let name = || node(4, [dn.clone()]);
    let attribute =
        |payload: Octets| sequence([plain(4, b"description"), node(0x31, [node(4, [payload])])]);
    let tag = 0x60 | operation;
    Ok(match operation {
        BIND => node(tag, [plain(2, &[3]), name(), plain(0x80, b"secret")]),
        UNBIND => plain(0x42, b""),
        SEARCH => node(
            tag,
            [
                name(),
                plain(0x0a, &[2]),
                plain(0x0a, &[0]),
                plain(2, &[0]),
                plain(2, &[0]),
                plain(1, &[0]),
                node(0x87, [payload]),
                sequence([]),
            ],
        ),
        6 => node(tag, [name(), sequence([sequence([plain(0x0a, &[2]), attribute(payload)])])]),
        8 => node(tag, [name(), sequence([attribute(payload)])]),
        DELETE => node(0x4a, [dn.clone()]),
        12 => node(tag, [name(), node(4, [Octets::from("cn=other")]), plain(1, &[0xff])]),
        14 => node(tag, [name(), sequence([plain(4, b"description"), node(4, [payload])])]),
        ABANDON => plain(0x50, &[1]),
        EXTENDED => node(tag, [plain(0x80, b"1.3.6.1.4.1.4203.1.11.3"), node(0x81, [payload])]),
        other => return Err(Impossible(format!("no LDAP request has operation {other}"))),
    })
}
