//! SIP (RFC 3261) over UDP and TCP. Each message is a transaction.

use squall_rules::{Buffer, End};

use super::text::starts_caseless;
use super::{Reader, Transaction, Transport, number};

// Bounds on memory for untrusted traffic.
const MAX_TRANSACTIONS: usize = 4096;
const MAX_LEN: usize = 128 * 1024;

pub(super) struct Sip {
    transport: Transport,
    pending: [Vec<u8>; 2],
    opened: usize,
}

impl Sip {
    pub fn new(transport: Transport) -> Sip {
        Sip { transport, pending: Default::default(), opened: 0 }
    }

    fn message(
        &mut self,
        from: End,
        headers: &[u8],
        body: &[u8],
        transactions: &mut Vec<Transaction>,
    ) {
        if self.opened < MAX_TRANSACTIONS
            && let Some(transaction) = read(from, headers, body)
        {
            self.opened += 1;
            transactions.push(transaction);
        }
    }
}

impl Reader for Sip {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        if self.transport == Transport::Udp {
            // Skip blank lines, which are keep-alives (RFC 5626 §3.5.1).
            let start = octets
                .iter()
                .position(|octet| !matches!(octet, b'\r' | b'\n'))
                .unwrap_or(octets.len());
            let message = &octets[start..];
            let end = end_of_headers(message).unwrap_or(message.len());
            return self.message(from, &message[..end], &message[end..], transactions);
        }
        let side = usize::from(from == End::Server);
        let mut pending = std::mem::take(&mut self.pending[side]);
        pending.extend_from_slice(octets);
        loop {
            let start = pending
                .iter()
                .position(|octet| !matches!(octet, b'\r' | b'\n'))
                .unwrap_or(pending.len());
            pending.drain(..start);
            let Some(end) = end_of_headers(&pending) else { break };
            let Some(whole) =
                end.checked_add(body_length(&pending[..end])).filter(|whole| *whole <= MAX_LEN)
            else {
                pending.clear();
                break;
            };
            if pending.len() < whole {
                break;
            }
            self.message(from, &pending[..end], &pending[end..whole], transactions);
            pending.drain(..whole);
        }
        if pending.len() > MAX_LEN {
            pending.clear();
        }
        self.pending[side] = pending;
    }

    fn end(&mut self, _: End, _: &mut Vec<Transaction>) {}
}

fn end_of_headers(message: &[u8]) -> Option<usize> {
    let whole = memchr::memmem::find(message, b"\r\n\r\n").map(|at| at + 4);
    let bare = memchr::memmem::find(message, b"\n\n").map(|at| at + 2);
    whole.into_iter().chain(bare).min()
}

fn body_length(headers: &[u8]) -> usize {
    lines(headers)
        .find_map(|line| {
            let value = if starts_caseless(line, b"content-length") {
                &line[14..]
            } else if starts_caseless(line, b"l:") {
                &line[1..]
            } else {
                return None;
            };
            std::str::from_utf8(value.trim_ascii().strip_prefix(b":")?.trim_ascii())
                .ok()?
                .parse()
                .ok()
        })
        .unwrap_or(0)
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&octet| octet == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

fn read(from: End, headers: &[u8], body: &[u8]) -> Option<Transaction> {
    let mut transaction = Transaction { done: [true, true], ..Transaction::default() };
    let mut add_buffer = |buffer: Buffer, octets: &[u8]| {
        if !octets.is_empty() {
            transaction.buffers.push((buffer, from, octets.to_vec()));
        }
    };
    let mut lines = lines(headers);
    let first = lines.next().filter(|line| !line.is_empty())?;
    let (word, rest) = cut(first)?;
    let mut status = None;
    if word.starts_with(b"SIP/") {
        let (code, reason) = cut(rest).unwrap_or((rest, &[]));
        add_buffer(Buffer::SipResponseLine, first);
        add_buffer(Buffer::SipProtocol, word);
        add_buffer(Buffer::SipStatusCode, code);
        add_buffer(Buffer::SipStatusMessage, reason);
        status = std::str::from_utf8(code).ok().and_then(|code| code.parse::<u64>().ok());
    } else {
        let (uri, protocol) = cut(rest)?;
        add_buffer(Buffer::SipRequestLine, first);
        add_buffer(Buffer::SipMethod, word);
        add_buffer(Buffer::SipUri, uri);
        add_buffer(Buffer::SipProtocol, protocol);
    }
    add_buffer(Buffer::SipHeader, headers);
    let mut folded: Vec<Vec<u8>> = vec![];
    for line in lines.filter(|line| !line.is_empty()) {
        match folded.last_mut() {
            Some(last) if matches!(line[0], b' ' | b'\t') => last.extend_from_slice(line),
            _ => folded.push(line.to_vec()),
        }
    }
    for line in &folded {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let value = line[colon + 1..].trim_ascii();
        let buffer = match &line[..colon].trim_ascii().to_ascii_lowercase()[..] {
            b"from" | b"f" => Buffer::SipFrom,
            b"to" | b"t" => Buffer::SipTo,
            b"via" | b"v" => Buffer::SipVia,
            b"user-agent" => Buffer::SipUserAgent,
            b"content-type" | b"c" => Buffer::SipContentType,
            b"content-length" | b"l" => Buffer::SipContentLength,
            _ => continue,
        };
        add_buffer(buffer, value);
    }
    add_buffer(Buffer::SipBody, body);
    if let Some(status) = status {
        number(from, "sip.stat_code", status, &mut transaction);
    }
    Some(transaction)
}

/// Splits at the first blank.
fn cut(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let blank = memchr::memchr(b' ', text)?;
    Some((&text[..blank], &text[blank + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &[u8] =
        b"INVITE sip:bob@b.example SIP/2.0\r\nv: SIP/2.0/UDP a\r\nFrom: <sip:a>\r\nContent-Length: 4\r\n\r\nv=0\n";
    const RESPONSE: &[u8] = b"SIP/2.0 180 Ringing Now\r\nTo: x\r\nContent-Length: 0\r\n\r\n";

    fn get(transaction: &Transaction, which: Buffer) -> String {
        let found = transaction.buffers.iter().find(|(buffer, ..)| *buffer == which);
        String::from_utf8_lossy(&found.expect("it is there").2).into_owned()
    }

    #[test]
    fn messages_give_their_lines_and_headers() {
        let (mut reader, mut transactions) = (Sip::new(Transport::Udp), vec![]);
        reader.receive(End::Client, REQUEST, &mut transactions);
        reader.receive(End::Server, RESPONSE, &mut transactions);
        assert_eq!(get(&transactions[0], Buffer::SipMethod), "INVITE");
        assert_eq!(get(&transactions[0], Buffer::SipUri), "sip:bob@b.example");
        assert_eq!(get(&transactions[0], Buffer::SipVia), "SIP/2.0/UDP a");
        assert_eq!(get(&transactions[0], Buffer::SipBody), "v=0\n");
        assert_eq!(get(&transactions[1], Buffer::SipStatusCode), "180");
        assert_eq!(get(&transactions[1], Buffer::SipStatusMessage), "Ringing Now");
    }

    #[test]
    fn over_tcp_messages_end_by_their_length() {
        let stream = [REQUEST, REQUEST].concat();
        for size in [1, 9, 1000] {
            let (mut reader, mut transactions) = (Sip::new(Transport::Tcp), vec![]);
            for piece in stream.chunks(size) {
                reader.receive(End::Client, piece, &mut transactions);
            }
            assert_eq!(transactions.len(), 2);
        }
    }
}
