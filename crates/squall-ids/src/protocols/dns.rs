//! DNS (RFC 1035) over UDP and TCP, and multicast DNS. Each message is a transaction.

use squall_rules::{Buffer, End};

use super::octets::{Octets, Records};
use super::{Reader, Transaction, Transport, event, number};

// Bounds on memory for untrusted traffic. The last one is Suricata's maximum length of a name.
const MAX_TRANSACTIONS: usize = 4096;
const MAX_RECORDS: usize = 512;
const MAX_NAME_LEN: usize = 1025;

pub(super) struct Dns {
    transport: Transport,
    is_multicast: bool,
    streams: [Records; 2],
    opened: usize,
}

impl Dns {
    pub fn new(transport: Transport, is_multicast: bool) -> Dns {
        Dns { transport, is_multicast, streams: Default::default(), opened: 0 }
    }

    fn message(&mut self, from: End, message: &[u8], transactions: &mut Vec<Transaction>) {
        if self.opened >= MAX_TRANSACTIONS {
            return;
        }
        let mut transaction = Transaction { done: [true, true], ..Transaction::default() };
        if read(from, message, self.is_multicast, &mut transaction).is_none() {
            if transaction.facts.is_empty() {
                return;
            }
            event(from, "dns.malformed_data", &mut transaction);
        }
        self.opened += 1;
        transactions.push(transaction);
    }
}

impl Reader for Dns {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        if self.transport == Transport::Udp {
            return self.message(from, octets, transactions);
        }
        let side = usize::from(from == End::Server);
        self.streams[side].push(octets);
        let length = |octets: &[u8]| Octets(octets).u16().map(|length| 2 + usize::from(length));
        while let Some(record) = self.streams[side].next(2 + 65535, length) {
            self.message(from, record.get(2..).unwrap_or_default(), transactions);
        }
    }

    fn end(&mut self, _: End, _: &mut Vec<Transaction>) {}
}

/// Parses a message; `None` if it is truncated or invalid. Fields parsed before that are kept.
fn read(
    from: End,
    message: &[u8],
    is_multicast: bool,
    transaction: &mut Transaction,
) -> Option<()> {
    let mut header = Octets(message);
    header.skip(2)?;
    let flags = header.u16()?;
    let counts = [header.u16()?, header.u16()?, header.u16()?, header.u16()?];
    let is_response = flags & 0x8000 != 0;
    number(from, "dns.opcode", u64::from(flags >> 11 & 15), transaction);
    if is_response {
        number(from, "dns.rcode", u64::from(flags & 15), transaction);
    }
    let mut at = 12;
    for _ in 0..counts[0] {
        let (name, after) = name(message, at)?;
        let mut fields = Octets(message.get(after..)?);
        number(from, "dns.rrtype", u64::from(fields.u16()?), transaction);
        fields.skip(2)?;
        at = after + 4;
        if !name.is_empty() {
            if !is_response {
                add_buffer(
                    if is_multicast { Buffer::MdnsQueryName } else { Buffer::DnsQuery },
                    from,
                    &name,
                    transaction,
                );
            }
            add_buffer(Buffer::DnsQueryName, from, &name, transaction);
            if is_response {
                add_buffer(
                    if is_multicast { Buffer::MdnsResponseName } else { Buffer::DnsResponseName },
                    from,
                    &name,
                    transaction,
                );
            }
        }
    }
    let mut left = MAX_RECORDS;
    for (count, buffer) in counts[1..].iter().zip([
        Buffer::DnsAnswerName,
        Buffer::DnsAuthorityName,
        Buffer::DnsAdditionalName,
    ]) {
        for _ in 0..*count {
            left = left.checked_sub(1)?;
            let (name, after) = name(message, at)?;
            let mut fields = Octets(message.get(after..)?);
            let kind = fields.u16()?;
            fields.skip(6)?;
            let length = usize::from(fields.u16()?);
            fields.take(length)?;
            let data_at = after + 10;
            at = data_at + length;
            number(from, "dns.rrtype", u64::from(kind), transaction);
            let all = if is_multicast { Buffer::MdnsResponseName } else { Buffer::DnsResponseName };
            if !name.is_empty() {
                add_buffer(buffer, from, &name, transaction);
                add_buffer(all, from, &name, transaction);
            }
            // In NS, CNAME, SOA, PTR, MX and SRV records, a name follows a fixed number of octets.
            let before = match kind {
                2 | 5 | 6 | 12 => 0,
                15 => 2,
                33 => 6,
                _ => continue,
            };
            if let Some((name, _)) = self::name(message, data_at + before)
                && !name.is_empty()
            {
                add_buffer(all, from, &name, transaction);
            }
        }
    }
    Some(())
}

fn add_buffer(buffer: Buffer, from: End, name: &[u8], transaction: &mut Transaction) {
    transaction.buffers.push((buffer, from, name.to_vec()));
}

/// Reads a name, with dots between labels. Returns it with the offset after it.
fn name(message: &[u8], start: usize) -> Option<(Vec<u8>, usize)> {
    let (mut name, mut at, mut after, mut jumps) = (vec![], start, None, 0);
    loop {
        let length = *message.get(at)?;
        match length {
            0 => return Some((name, after.unwrap_or(at + 1))),
            1..64 => {
                if !name.is_empty() {
                    name.push(b'.');
                }
                name.extend_from_slice(message.get(at + 1..at + 1 + usize::from(length))?);
                at += 1 + usize::from(length);
                if name.len() > MAX_NAME_LEN {
                    name.truncate(MAX_NAME_LEN);
                    return Some((name, after.unwrap_or(at)));
                }
            }
            192.. => {
                after.get_or_insert(at + 2);
                at = usize::from(u16::from_be_bytes([length, *message.get(at + 1)?]) & 0x3fff);
                jumps += 1;
                if jumps > 255 {
                    return None;
                }
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUERY: &[u8] =
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07Example\x03com\x00\x00\x01\x00\x01";
    /// A response with a CNAME record that refers to the name by a compression pointer.
    const ANSWER: &[u8] = b"\x12\x34\x81\x83\x00\x01\x00\x01\x00\x00\x00\x00\x03www\x07Example\x03com\x00\x00\x01\x00\x01\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x09\x00\x04\x01a\xc0\x10";

    fn all(transaction: &Transaction, which: Buffer) -> Vec<String> {
        let text = |octets: &Vec<u8>| String::from_utf8_lossy(octets).into_owned();
        transaction
            .buffers
            .iter()
            .filter(|(buffer, ..)| *buffer == which)
            .map(|(_, _, octets)| text(octets))
            .collect()
    }

    #[test]
    fn names_have_dots_between_their_labels() {
        let (mut reader, mut transactions) = (Dns::new(Transport::Udp, false), vec![]);
        reader.receive(End::Client, QUERY, &mut transactions);
        reader.receive(End::Server, ANSWER, &mut transactions);
        assert_eq!(all(&transactions[0], Buffer::DnsQuery), ["www.Example.com"]);
        assert_eq!(all(&transactions[1], Buffer::DnsAnswerName), ["www.Example.com"]);
        assert_eq!(
            all(&transactions[1], Buffer::DnsResponseName),
            ["www.Example.com", "www.Example.com", "a.Example.com"]
        );
        let has = |what, value| {
            transactions[1]
                .facts
                .iter()
                .any(|fact| fact.is == super::super::FactIs::Number { what, value })
        };
        assert!(has("dns.rcode", 3) && has("dns.opcode", 0) && has("dns.rrtype", 5));
    }

    #[test]
    fn over_tcp_a_length_precedes_each_message() {
        let stream = [&[0, QUERY.len() as u8], QUERY, &[0, QUERY.len() as u8], QUERY].concat();
        for size in [1, 7, 1000] {
            let (mut reader, mut transactions) = (Dns::new(Transport::Tcp, false), vec![]);
            for piece in stream.chunks(size) {
                reader.receive(End::Client, piece, &mut transactions);
            }
            assert_eq!(transactions.len(), 2);
        }
    }

    #[test]
    fn a_name_that_points_at_itself_is_given_up() {
        assert_eq!(name(b"\xc0\x00", 0), None);
    }

    proptest! {
        #[test]
        fn any_octets_are_read(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (mut reader, mut transactions) = (Dns::new(Transport::Udp, true), vec![]);
            reader.receive(End::Server, &octets, &mut transactions);
            let (mut reader, mut transactions) = (Dns::new(Transport::Tcp, false), vec![]);
            reader.receive(End::Client, &octets, &mut transactions);
        }
    }
}
