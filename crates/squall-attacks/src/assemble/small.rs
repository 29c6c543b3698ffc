//! Protocols with few messages: TFTP (RFC 1350), PostgreSQL, IKE (RFC 2409, RFC 7296), RFB (RFC
//! 6143), RDP's connection request, BitTorrent DHT.

use squall_rules::{ApplicationTest, Buffer, End};

use super::fields::{Fields, fits, number, other, part_or, payload};
use super::{Impossible, Parts};
use crate::{Octets, Origin, Turn};

pub(super) fn tftp(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let file = part_or(parts, Buffer::TftpFile, End::Client, "config.txt");
    let mode = part_or(parts, Buffer::TftpMode, End::Client, "octet");
    for text in [&file, &mode] {
        if text.bytes().contains(&0) {
            return Err(Impossible("names in TFTP end at their first zero octet".into()));
        }
    }
    let extra = payload(parts, End::Client).unwrap_or_default();
    let data = payload(parts, End::Server).unwrap_or_else(|| "hostname router\n".into());
    fits(data.len(), 511)?;
    let request = Fields::new().be16(1).part(&file).byte(0).part(&mode).byte(0).part(&extra);
    Ok(vec![
        Turn::new(End::Client, request.done()),
        Turn::new(End::Server, Fields::new().be16(3).be16(1).part(&data).done()),
        Turn::new(End::Client, Fields::new().be16(4).be16(1).done()),
    ])
}

pub(super) fn pgsql(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let mut query =
        parts.get(Buffer::PgsqlQuery, End::Client).cloned().or_else(|| payload(parts, End::Client));
    let query = query.get_or_insert_with(|| "SELECT 1".into());
    let value = payload(parts, End::Server).unwrap_or_else(|| "1".into());
    let message =
        |kind: u8, body: Fields| Fields::of(&[kind]).be32(body.len() as u32 + 4).fields(body);
    let start = Fields::new().be32(196_608).raw(b"user\0postgres\0database\0postgres\0\0");
    let ready = || message(b'Z', Fields::of(b"I"));
    let welcome = message(b'R', Fields::new().be32(0))
        .fields(message(b'S', Fields::of(b"server_version\x0014.5\0")))
        .fields(message(b'K', Fields::new().be32(4242).be32(0x510a_7731)))
        .fields(ready());
    let length = fits(value.len(), 60_000)? as u32;
    let row = b"?column?\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0";
    let answer = message(b'T', Fields::new().be16(1).raw(row))
        .fields(message(b'D', Fields::new().be16(1).be32(length).part(&value)))
        .fields(message(b'C', Fields::of(b"SELECT 1\0")))
        .fields(ready());
    fits(query.len(), 60_000)?;
    Ok(vec![
        Turn::new(End::Client, Fields::new().be32(start.len() as u32 + 4).fields(start).done()),
        Turn::new(End::Server, welcome.done()),
        Turn::new(End::Client, message(b'Q', Fields::new().part(query).byte(0)).done()),
        Turn::new(End::Server, answer.done()),
        Turn::new(End::Client, message(b'X', Fields::new()).done()),
    ])
}

// Exchange types: Identity Protection (RFC 2408 §3.1) and IKE_SA_INIT (RFC 7296 §3.1).
const MAIN_MODE: u8 = 2;
const IKE_SA_INIT: u8 = 34;

/// The first message from each end.
pub(super) fn ike(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let exchange = number(
        parts,
        |test| match test {
            ApplicationTest::IkeExchangeType(numbers) => Some(numbers),
            _ => None,
        },
        &[MAIN_MODE.into(), IKE_SA_INIT.into(), 4, 5],
        255,
    )?
    .unwrap_or(MAIN_MODE.into()) as u8;
    let either = |buffer| parts.get(buffer, End::Client).or_else(|| parts.get(buffer, End::Server));
    let spi = |buffer, usual: [u8; 8]| -> Result<Octets, Impossible> {
        let Some(text) = either(buffer) else { return Ok(Octets::framing(usual)) };
        let octets = from_hexadecimal(text)?;
        if octets.len() != 8 {
            return Err(Impossible("an IKE SPI has eight octets, sixteen digits".into()));
        }
        Ok(octets)
    };
    let initiator = spi(Buffer::IkeInitiatorSpi, *b"\x51\x0a\x77\x31\x9c\x02\xe4\x5d")?;
    let responder = spi(Buffer::IkeResponderSpi, *b"\x53\x1b\x88\x42\xad\x13\xf5\x6e")?;
    let newer = exchange >= IKE_SA_INIT;
    let mut turns = vec![];
    for from in [End::Client, End::Server] {
        let mut payloads: Vec<(u8, Octets)> = vec![(if newer { 33 } else { 1 }, proposal(newer))];
        let length = |keyword: &str, usual: &[u64]| other(parts, keyword, usual, 4_000);
        let key = length("ike.key_exchange_payload_length", &[128])?;
        let nonce = length("ike.nonce_payload_length", &[20])?;
        if newer || key.is_some() {
            let group: &[u8] = if newer { &[0, 14, 0, 0] } else { &[] };
            let rest = (key.unwrap_or(256 + 4) as usize).saturating_sub(group.len());
            payloads.push((
                if newer { 34 } else { 4 },
                Fields::of(group).raw(&vec![0x5c; rest]).done(),
            ));
        }
        if newer || nonce.is_some() {
            let octets = vec![0x3a; nonce.unwrap_or(32) as usize];
            payloads.push((if newer { 40 } else { 10 }, Octets::framing(octets)));
        }
        for vendor in parts.all(Buffer::IkeVendor, from) {
            payloads.push((if newer { 43 } else { 13 }, from_hexadecimal(vendor)?));
        }
        if let Some(payload) = payload(parts, from) {
            payloads.push((if newer { 43 } else { 13 }, payload));
        }
        let mut body = Fields::new();
        for (at, (_, octets)) in payloads.iter().enumerate() {
            let next = payloads.get(at + 1).map_or(0, |(kind, _)| *kind);
            body =
                body.byte(next).byte(0).be16(fits(octets.len() + 4, 60_000)? as u16).part(octets);
        }
        let responds = from == End::Server;
        let empty = Octets::framing([0; 8]);
        // Unless a rule requires it, the initiator does not know the responder's SPI yet.
        let second =
            if responds || either(Buffer::IkeResponderSpi).is_some() { &responder } else { &empty };
        let flags = match (newer, responds) {
            (true, false) => 0x08,
            (true, true) => 0x20,
            (false, _) => 0,
        };
        let header = Fields::new()
            .part(&initiator)
            .part(second)
            .byte(payloads[0].0)
            .byte(if newer { 0x20 } else { 0x10 })
            .byte(exchange)
            .byte(flags)
            .be32(0)
            .be32(28 + body.len() as u32);
        turns.push(Turn::new(from, header.fields(body).done()));
    }
    Ok(turns)
}

/// A single proposal: AES, SHA-2 or SHA-1, a 2048-bit group.
fn proposal(newer: bool) -> Octets {
    if newer {
        let transforms: [&[u8]; 4] = [
            &[3, 0, 0, 12, 1, 0, 0, 12, 0x80, 14, 1, 0],
            &[3, 0, 0, 8, 2, 0, 0, 5],
            &[3, 0, 0, 8, 3, 0, 0, 12],
            &[0, 0, 0, 8, 4, 0, 0, 14],
        ];
        let all = transforms.concat();
        return Fields::new()
            .be16(0)
            .be16(8 + all.len() as u16)
            .raw(&[1, 1, 0, 4])
            .raw(&all)
            .done();
    }
    let attributes: [[u8; 4]; 6] = [
        [0x80, 1, 0, 7],
        [0x80, 14, 1, 0],
        [0x80, 2, 0, 2],
        [0x80, 4, 0, 14],
        [0x80, 3, 0, 1],
        [0x80, 11, 0, 1],
    ];
    let transform =
        Fields::of(&[0, 0]).be16(8 + 24).raw(&[1, 1, 0, 0]).raw(attributes.as_flattened());
    let proposal =
        Fields::of(&[0, 0]).be16(8 + transform.len() as u16).raw(&[1, 1, 0, 1]).fields(transform);
    Fields::new().be32(1).be32(1).fields(proposal).done()
}

/// Parses the hexadecimal digits in which engines present these octets.
fn from_hexadecimal(text: &Octets) -> Result<Octets, Impossible> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut all = Octets::new();
    for at in (0..text.len()).step_by(2) {
        let low = text.bytes().get(at + 1).copied().unwrap_or(b'0');
        let (Some(high), Some(low)) = (digit(text.bytes()[at]), digit(low)) else {
            return Err(Impossible("expected hexadecimal digits".into()));
        };
        all.push(high << 4 | low, text.origins()[at]);
    }
    Ok(all)
}

pub(super) fn rfb(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let security = number(
        parts,
        |test| match test {
            ApplicationTest::RfbSecurityType(numbers) => Some(numbers),
            _ => None,
        },
        &[1, 2],
        255,
    )?
    .unwrap_or(1) as u8;
    let result = other(parts, "rfb.secresult", &[0], 2)?.unwrap_or(0) as u32;
    let name = part_or(parts, Buffer::RfbName, End::Server, "desktop");
    let version = || Octets::from("RFB 003.008\n");
    let mut turns = vec![
        Turn::new(End::Server, version()),
        Turn::new(End::Client, version()),
        Turn::new(End::Server, Octets::framing([1, security])),
        Turn::new(End::Client, Octets::framing([security])),
    ];
    if security == 2 {
        turns.push(Turn::new(End::Server, Octets::framing([0x5c; 16])));
        turns.push(Turn::new(End::Client, Octets::framing([0x3a; 16])));
    }
    if result > 0 {
        let refusal = Fields::new().be32(result).counted_be32(&"Authentication failed".into())?;
        turns.push(Turn::new(End::Server, refusal.done()));
        return Ok(turns);
    }
    let welcome = Fields::new()
        .be16(1280)
        .be16(1024)
        .raw(&[32, 24, 0, 1, 0, 0xff, 0, 0xff, 0, 0xff, 16, 8, 0, 0, 0, 0])
        .counted_be32(&name)?;
    turns.push(Turn::new(End::Server, Fields::new().be32(0).done()));
    turns.push(Turn::new(End::Client, Octets::framing([1])));
    turns.push(Turn::new(End::Server, welcome.done()));
    if let Some(payload) = payload(parts, End::Client) {
        // ClientCutText.
        turns
            .push(Turn::new(End::Client, Fields::of(&[6, 0, 0, 0]).counted_be32(&payload)?.done()));
    }
    if let Some(payload) = payload(parts, End::Server) {
        turns
            .push(Turn::new(End::Server, Fields::of(&[3, 0, 0, 0]).counted_be32(&payload)?.done()));
    }
    Ok(turns)
}

/// Connection request and confirm (X.224 in TPKT).
pub(super) fn rdp(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let cookie = payload(parts, End::Client).unwrap_or_else(|| "Cookie: mstshash=user\r\n".into());
    let ended = Fields::new().part(&cookie).raw(if cookie.bytes().ends_with(b"\r\n") {
        b""
    } else {
        b"\r\n"
    });
    let framed = |kind: u8, body: Fields| -> Result<Octets, Impossible> {
        let rest = fits(6 + body.len(), 254)? as u8;
        let header = Fields::of(&[3, 0]).be16(u16::from(rest) + 5).byte(rest).byte(kind);
        Ok(header.be16(0).be16(if kind == 0xd0 { 0x1234 } else { 0 }).byte(0).fields(body).done())
    };
    let required = framed(0xe0, ended.raw(&[1, 0, 8, 0, 3, 0, 0, 0]))?;
    let confirmed = framed(0xd0, Fields::of(&[2, 0, 8, 0, 1, 0, 0, 0]))?;
    let mut turns = vec![Turn::new(End::Client, required), Turn::new(End::Server, confirmed)];
    if let Some(payload) = payload(parts, End::Server) {
        let length = fits(payload.len() + 7, 65_000)? as u16;
        turns.push(Turn::new(
            End::Server,
            Fields::of(&[3, 0]).be16(length).raw(&[2, 0xf0, 0x80]).part(&payload).done(),
        ));
    }
    Ok(turns)
}

pub(super) fn dht(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let dht_message = |from: End, begin: &str, end: &str| {
        let id = payload(parts, from)
            .unwrap_or_else(|| Octets::of(*b"squall-node-00000051", Origin::Free));
        let length = id.len().to_string();
        let octets = Fields::of(begin.as_bytes())
            .raw(length.as_bytes())
            .byte(b':')
            .part(&id)
            .raw(end.as_bytes());
        Turn::new(from, octets.done())
    };
    Ok(vec![
        dht_message(End::Client, "d1:ad2:id", "e1:q4:ping1:t2:aa1:y1:qe"),
        dht_message(End::Server, "d1:rd2:id", "e1:t2:aa1:y1:re"),
    ])
}
