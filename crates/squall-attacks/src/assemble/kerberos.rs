//! Kerberos 5 (RFC 4120): a request for a ticket, and the reply or an error.

use squall_rules::{ApplicationTest, Buffer, End};

use super::der::{node, plain, sequence};
use super::fields::{Fields, number, other, payload};
use super::{Impossible, Parts};
use crate::{Octets, Turn};

// Message types (RFC 4120 §7.5.7).
const AS_REQ: u8 = 10;
const TGS_REQ: u8 = 12;
const AP_REQ: u8 = 14;
const ERROR: u8 = 30;
// Encryption types: RFC 3962 and RFC 4757.
const AES256: u8 = 18;
const RC4: u8 = 23;

pub(super) fn conversation(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let kind = number(
        parts,
        |test| match test {
            ApplicationTest::Krb5MessageType(numbers) => Some(numbers),
            _ => None,
        },
        &[11, 10, 13, 12, 30],
        30,
    )?;
    let code = other(parts, "krb5_err_code", &[], 255)?;
    let weak = other(parts, "krb5.weak_encryption", &[1, 0], 1)? == Some(1);
    let kind = kind.map_or(if code.is_some() { ERROR } else { 11 }, |kind| kind as u8);
    let exchange = TicketExchange {
        client: principal(1, &names(parts, Buffer::Krb5ClientName, "user")),
        server: principal(2, &names(parts, Buffer::Krb5ServerName, "krbtgt/EXAMPLE.COM")),
        encryption: if weak { RC4 } else { AES256 },
        payload: payload(parts, End::Client),
        answered: payload(parts, End::Server),
    };
    let (request, response) = match kind {
        AS_REQ | 11 => (exchange.request(AS_REQ), exchange.reply(11)),
        TGS_REQ | 13 => (exchange.request(TGS_REQ), exchange.reply(13)),
        AP_REQ | 15 => (exchange.use_of_ticket(), exchange.answer_to_use()),
        ERROR => (exchange.request(AS_REQ), exchange.error(code.unwrap_or(6) as u8)),
        other => return Err(Impossible(format!("no Kerberos message has type {other}"))),
    };
    let framed = |octets: Octets| -> Result<Octets, Impossible> {
        if parts.style.over_tcp {
            Ok(Fields::new().counted_be32(&octets)?.done())
        } else {
            Ok(octets)
        }
    };
    Ok(vec![Turn::new(End::Client, framed(request)?), Turn::new(End::Server, framed(response)?)])
}

/// The components of a name, one for each part.
fn names(parts: &Parts, buffer: Buffer, usual: &str) -> Vec<Octets> {
    let mut all: Vec<Octets> =
        parts.all(buffer, End::Client).chain(parts.all(buffer, End::Server)).cloned().collect();
    if all.is_empty() {
        all = usual.split('/').map(Octets::from).collect();
    }
    all
}

struct TicketExchange {
    client: Octets,
    server: Octets,
    encryption: u8,
    payload: Option<Octets>,
    answered: Option<Octets>,
}

impl TicketExchange {
    fn request(&self, kind: u8) -> Octets {
        let body = sequence([
            node(0xa0, [plain(3, &[0, 0x40, 0x81, 0, 0x10])]),
            node(0xa1, [self.client.clone()]),
            node(0xa2, [realm()]),
            node(0xa3, [self.server.clone()]),
            node(0xa5, [plain(0x18, b"20370913024805Z")]),
            node(0xa7, [plain(2, &[0x51, 0x0a, 0x77, 0x31])]),
            node(0xa8, [sequence([plain(2, &[self.encryption]), plain(2, &[17])])]),
        ]);
        let mut fields = vec![node(0xa1, [plain(2, &[5])]), node(0xa2, [plain(2, &[kind])])];
        if let Some(payload) = &self.payload {
            // Preauthentication data of an arbitrary type.
            let value = node(0xa2, [node(4, [payload.clone()])]);
            fields.push(node(0xa3, [sequence([sequence([node(0xa1, [plain(2, &[2])]), value])])]));
        }
        fields.push(node(0xa4, [body]));
        node(0x60 | kind, [sequence(fields)])
    }

    fn reply(&self, kind: u8) -> Octets {
        let fields = [
            node(0xa0, [plain(2, &[5])]),
            node(0xa1, [plain(2, &[kind])]),
            node(0xa3, [realm()]),
            node(0xa4, [self.client.clone()]),
            node(0xa5, [self.ticket()]),
            node(0xa6, [self.encrypted(self.answered.as_ref())]),
        ];
        node(0x60 | kind, [sequence(fields)])
    }

    fn ticket(&self) -> Octets {
        let fields = [
            node(0xa0, [plain(2, &[5])]),
            node(0xa1, [realm()]),
            node(0xa2, [self.server.clone()]),
            node(0xa3, [self.encrypted(None)]),
        ];
        node(0x61, [sequence(fields)])
    }

    fn encrypted(&self, content: Option<&Octets>) -> Octets {
        let content = content.cloned().unwrap_or_else(|| Octets::framing([0x5c; 56]));
        sequence([
            node(0xa0, [plain(2, &[self.encryption])]),
            node(0xa1, [plain(2, &[2])]),
            node(0xa2, [node(4, [content])]),
        ])
    }

    fn use_of_ticket(&self) -> Octets {
        let fields = [
            node(0xa0, [plain(2, &[5])]),
            node(0xa1, [plain(2, &[AP_REQ])]),
            node(0xa2, [plain(3, &[0, 0, 0, 0, 0])]),
            node(0xa3, [self.ticket()]),
            node(0xa4, [self.encrypted(self.payload.as_ref())]),
        ];
        node(0x6e, [sequence(fields)])
    }

    fn answer_to_use(&self) -> Octets {
        let fields = [
            node(0xa0, [plain(2, &[5])]),
            node(0xa1, [plain(2, &[15])]),
            node(0xa2, [self.encrypted(self.answered.as_ref())]),
        ];
        node(0x6f, [sequence(fields)])
    }

    fn error(&self, code: u8) -> Octets {
        let code = if code < 128 { plain(2, &[code]) } else { plain(2, &[0, code]) };
        let fields = [
            node(0xa0, [plain(2, &[5])]),
            node(0xa1, [plain(2, &[ERROR])]),
            node(0xa4, [plain(0x18, b"20260101000000Z")]),
            node(0xa5, [plain(2, &[0x51])]),
            node(0xa6, [code]),
            node(0xa7, [realm()]),
            node(0xa8, [self.client.clone()]),
            node(0xa9, [realm()]),
            node(0xaa, [self.server.clone()]),
        ];
        node(0x7e, [sequence(fields)])
    }
}

fn realm() -> Octets {
    plain(0x1b, b"EXAMPLE.COM")
}

fn principal(kind: u8, components: &[Octets]) -> Octets {
    let components = components.iter().map(|component| node(0x1b, [component.clone()]));
    sequence([node(0xa0, [plain(2, &[kind])]), node(0xa1, [sequence(components)])])
}
