//! Protocols encoded in BER: Kerberos (RFC 4120), SNMP (RFC 1157, 3416, 3412), LDAP (RFC 4511).

use squall_rules::{Buffer, End};

use super::octets::{Octets, Records, integer};
use super::{Reader, Transaction, Transport, number};

// Bounds on memory for untrusted traffic.
const MAX_TRANSACTIONS: usize = 1024;
const MAX_LEN: usize = 64 * 1024;

// Universal tags (X.690).
const INTEGER: u8 = 2;
const OCTET_STRING: u8 = 4;
const ENUMERATED: u8 = 10;

/// The content of the first element with `tag`.
fn inside(content: &[u8], tag: u8) -> Option<&[u8]> {
    let mut rest = Octets(content);
    std::iter::from_fn(|| rest.element()).find(|(found, _)| *found == tag).map(|(_, inner)| inner)
}

/// Length of the first element, including its header; `None` if more data is needed.
fn element_length(octets: &[u8]) -> Option<usize> {
    let first = usize::from(*octets.get(1)?);
    if first < 0x80 {
        return Some(2 + first);
    }
    let count = first & 0x7f;
    if count == 0 || count > 4 {
        return Some(usize::MAX / 2);
    }
    let length =
        octets.get(2..2 + count)?.iter().fold(0, |length, &octet| length << 8 | usize::from(octet));
    Some(2 + count + length)
}

fn add_buffer(buffer: Buffer, from: End, octets: &[u8], transaction: &mut Transaction) {
    if !octets.is_empty() {
        transaction.buffers.push((buffer, from, octets.to_vec()));
    }
}

/// Kerberos. Each message is a transaction.
pub(super) struct Krb5 {
    transport: Transport,
    sides: [Records; 2],
    opened: usize,
}

impl Krb5 {
    pub fn new(transport: Transport) -> Krb5 {
        Krb5 { transport, sides: Default::default(), opened: 0 }
    }

    fn message(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        if self.opened >= MAX_TRANSACTIONS {
            return;
        }
        let mut transaction = Transaction { done: [true, true], ..Transaction::default() };
        // Fields parsed before the message ends or becomes invalid are kept.
        let _ = krb5_message(from, octets, &mut transaction);
        if !transaction.facts.is_empty() {
            self.opened += 1;
            transactions.push(transaction);
        }
    }
}

impl Reader for Krb5 {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        if self.transport == Transport::Udp {
            return self.message(from, octets, transactions);
        }
        let side = usize::from(from == End::Server);
        self.sides[side].push(octets);
        let length =
            |octets: &[u8]| Octets(octets).u32().map(|length| 4 + (length & 0x7fff_ffff) as usize);
        while let Some(record) = self.sides[side].next(MAX_LEN, length) {
            self.message(from, record.get(4..).unwrap_or_default(), transactions);
        }
    }

    fn end(&mut self, _: End, _: &mut Vec<Transaction>) {}
}

fn krb5_message(from: End, octets: &[u8], transaction: &mut Transaction) -> Option<()> {
    let (tag, content) = Octets(octets).element()?;
    let (_, content) = Octets(content).element()?;
    let kind = tag & 0x1f;
    number(from, "krb5_msg_type", u64::from(kind), transaction);
    match kind {
        // AS-REQ, TGS-REQ: the names are in the request body.
        10 | 12 => {
            let (_, body) = Octets(inside(content, 0xa4)?).element()?;
            add_name(Buffer::Krb5ClientName, from, inside(body, 0xa1), transaction);
            add_name(Buffer::Krb5ServerName, from, inside(body, 0xa3), transaction);
        }
        // AS-REP, TGS-REP: the server name is in the ticket.
        11 | 13 => {
            add_name(Buffer::Krb5ClientName, from, inside(content, 0xa4), transaction);
            let (_, ticket) = Octets(inside(content, 0xa5)?).element()?;
            let (_, ticket) = Octets(ticket).element()?;
            add_name(Buffer::Krb5ServerName, from, inside(ticket, 0xa2), transaction);
            // Encryption type of the reply, of which DES and RC4 are weak.
            let (_, encrypted) = Octets(inside(content, 0xa6)?).element()?;
            let (_, kind) = Octets(inside(encrypted, 0xa0)?).element()?;
            if let Some(1 | 2 | 3 | 23 | 24) = integer(kind) {
                number(from, "krb5.weak_encryption", 1, transaction);
            }
        }
        30 => {
            let (_, code) = Octets(inside(content, 0xa6)?).element()?;
            number(from, "krb5_err_code", integer(code)?, transaction);
            add_name(Buffer::Krb5ClientName, from, inside(content, 0xa8), transaction);
            add_name(Buffer::Krb5ServerName, from, inside(content, 0xaa), transaction);
        }
        _ => {}
    }
    Some(())
}

/// Adds each component of a name as a separate buffer.
fn add_name(buffer: Buffer, from: End, name: Option<&[u8]>, transaction: &mut Transaction) {
    let parts =
        name.and_then(|name| Octets(name).element()).and_then(|(_, name)| inside(name, 0xa1));
    let Some((_, parts)) = parts.and_then(|parts| Octets(parts).element()) else { return };
    let mut rest = Octets(parts);
    while let Some((_, part)) = rest.element() {
        add_buffer(buffer, from, part, transaction);
    }
}

/// SNMP. Each datagram is a transaction.
#[derive(Default)]
pub(super) struct Snmp {
    opened: usize,
}

impl Reader for Snmp {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        let mut transaction = Transaction { done: [true, true], ..Transaction::default() };
        let _ = snmp_message(from, octets, &mut transaction);
        if !transaction.facts.is_empty() && self.opened < MAX_TRANSACTIONS {
            self.opened += 1;
            transactions.push(transaction);
        }
    }

    fn end(&mut self, _: End, _: &mut Vec<Transaction>) {}
}

fn snmp_message(from: End, octets: &[u8], transaction: &mut Transaction) -> Option<()> {
    let (_, content) = Octets(octets).element()?;
    let mut rest = Octets(content);
    let (INTEGER, version) = rest.element()? else { return None };
    let version = integer(version)?;
    // The field has the version minus 1, except for version 3.
    number(from, "snmp.version", if version == 3 { 3 } else { version + 1 }, transaction);
    let (tag, pdu) = if version == 3 {
        rest.element()?;
        let (OCTET_STRING, security) = rest.element()? else { return None };
        if let Some((_, parameters)) = Octets(security).element() {
            let mut parameters = Octets(parameters);
            // The user name follows the engine ID, boots and time (RFC 3414 §2.4).
            let user = (0..4).map_while(|_| parameters.element()).nth(3);
            add_buffer(Buffer::SnmpUser, from, user.map_or(&[], |(_, user)| user), transaction);
        }
        let (0x30, scoped) = rest.element()? else { return None };
        let mut scoped = Octets(scoped);
        scoped.element()?;
        scoped.element()?;
        scoped.element()?
    } else {
        let (OCTET_STRING, community) = rest.element()? else { return None };
        add_buffer(Buffer::SnmpCommunity, from, community, transaction);
        rest.element()?
    };
    number(from, "snmp.pdu_type", u64::from(tag & 0x1f), transaction);
    if tag == 0xa4 {
        let mut fields = Octets(pdu);
        fields.element()?;
        fields.element()?;
        let (_, kind) = fields.element()?;
        number(from, "snmp.trap_type", integer(kind)?, transaction);
    }
    Some(())
}

/// LDAP. A request and its responses form a transaction.
pub(super) struct Ldap {
    transport: Transport,
    sides: [Records; 2],
    /// Message IDs, each with the index of its transaction.
    open: Vec<(u64, usize)>,
}

impl Ldap {
    pub fn new(transport: Transport) -> Ldap {
        Ldap { transport, sides: Default::default(), open: vec![] }
    }

    fn message(
        &mut self,
        from: End,
        octets: &[u8],
        transactions: &mut Vec<Transaction>,
    ) -> Option<()> {
        let (0x30, content) = Octets(octets).element()? else { return None };
        let mut rest = Octets(content);
        let (INTEGER, id) = rest.element()? else { return None };
        let id = integer(id)?;
        let (tag, body) = rest.element()?;
        let operation = u64::from(tag & 0x1f);
        let there = self.open.iter().rev().find(|(open, _)| *open == id).map(|(_, at)| *at);
        let at = match there.filter(|_| from == End::Server) {
            Some(at) => at,
            None if self.open.len() >= MAX_TRANSACTIONS => return None,
            None => {
                self.open.push((id, transactions.len()));
                transactions.push(Transaction::default());
                transactions.len() - 1
            }
        };
        let transaction = transactions.get_mut(at)?;
        let mut fields = Octets(body);
        if from == End::Client {
            number(from, "ldap.request.operation", operation, transaction);
            transaction.done[0] = true;
            let dn = match operation {
                // A bind request starts with a version.
                0 => {
                    fields.element()?;
                    fields.element()?.1
                }
                // A delete request consists of a name only, and an unbind request is empty.
                10 => body,
                3 | 6 | 8 | 12 | 14 => fields.element()?.1,
                _ => return Some(()),
            };
            add_buffer(Buffer::LdapRequestDn, from, dn, transaction);
            return Some(());
        }
        number(from, "ldap.responses.operation", operation, transaction);
        if operation == 4 {
            add_buffer(Buffer::LdapResponseDn, from, fields.element()?.1, transaction);
            return Some(());
        }
        transaction.done[1] = true;
        let responses = transaction.facts.iter().filter(|fact| fact.of == End::Server).count();
        number(from, "ldap.responses.count", responses as u64, transaction);
        let (ENUMERATED, code) = fields.element()? else { return None };
        number(from, "ldap.responses.result_code", integer(code)?, transaction);
        add_buffer(Buffer::LdapResponseDn, from, fields.element()?.1, transaction);
        Some(())
    }
}

impl Reader for Ldap {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        if self.transport == Transport::Udp {
            let _ = self.message(from, octets, transactions);
            return;
        }
        let side = usize::from(from == End::Server);
        self.sides[side].push(octets);
        while let Some(record) = self.sides[side].next(MAX_LEN, element_length) {
            let _ = self.message(from, &record, transactions);
        }
    }

    fn end(&mut self, _: End, _: &mut Vec<Transaction>) {}
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocols::{Fact, FactIs};

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, content.len() as u8][..], content].concat()
    }

    fn all(transaction: &Transaction, which: Buffer) -> Vec<String> {
        let text = |octets: &Vec<u8>| String::from_utf8_lossy(octets).into_owned();
        transaction
            .buffers
            .iter()
            .filter(|(buffer, ..)| *buffer == which)
            .map(|(_, _, octets)| text(octets))
            .collect()
    }

    fn has(transaction: &Transaction, of: End, what: &'static str, value: u64) -> bool {
        transaction.facts.contains(&Fact { of, is: FactIs::Number { what, value } })
    }

    #[test]
    fn a_request_of_kerberos_has_a_kind_and_names() {
        let name = |parts: &[&str]| {
            let parts: Vec<u8> =
                parts.iter().flat_map(|part| element(0x1b, part.as_bytes())).collect();
            element(
                0x30,
                &[element(0xa0, &[2, 1, 1]), element(0xa1, &element(0x30, &parts))].concat(),
            )
        };
        let body = element(
            0x30,
            &[element(0xa1, &name(&["alice"])), element(0xa3, &name(&["krbtgt", "REALM"]))]
                .concat(),
        );
        let request = element(
            0x6a,
            &element(
                0x30,
                &[element(0xa1, &[2, 1, 5]), element(0xa2, &[2, 1, 10]), element(0xa4, &body)]
                    .concat(),
            ),
        );
        let stream = [&(request.len() as u32).to_be_bytes()[..], &request].concat();
        for size in [1, 9, 1000] {
            let (mut reader, mut transactions) = (Krb5::new(Transport::Tcp), vec![]);
            for piece in stream.chunks(size) {
                reader.receive(End::Client, piece, &mut transactions);
            }
            assert!(has(&transactions[0], End::Client, "krb5_msg_type", 10));
            assert_eq!(all(&transactions[0], Buffer::Krb5ClientName), ["alice"]);
            assert_eq!(all(&transactions[0], Buffer::Krb5ServerName), ["krbtgt", "REALM"]);
        }
    }

    #[test]
    fn snmp_has_a_version_a_community_and_a_kind() {
        let message = element(
            0x30,
            &[element(2, &[1]), element(4, b"public"), element(0xa1, &[2, 1, 0])].concat(),
        );
        let (mut reader, mut transactions) = (Snmp::default(), vec![]);
        reader.receive(End::Client, &message, &mut transactions);
        assert!(has(&transactions[0], End::Client, "snmp.version", 2));
        assert!(has(&transactions[0], End::Client, "snmp.pdu_type", 1));
        assert_eq!(all(&transactions[0], Buffer::SnmpCommunity), ["public"]);
        let user = element(
            0x30,
            &[element(4, b"e"), element(2, &[1]), element(2, &[2]), element(4, b"bob")].concat(),
        );
        let scoped =
            element(0x30, &[element(4, b"c"), element(4, b""), element(0xa0, &[2, 1, 0])].concat());
        let message = element(
            0x30,
            &[element(2, &[3]), element(0x30, &[2, 1, 9]), element(4, &user), scoped].concat(),
        );
        reader.receive(End::Client, &message, &mut transactions);
        assert_eq!(all(&transactions[1], Buffer::SnmpUser), ["bob"]);
        assert!(has(&transactions[1], End::Client, "snmp.pdu_type", 0));
    }

    #[test]
    fn a_request_of_ldap_has_its_responses_with_it() {
        let (mut reader, mut transactions) = (Ldap::new(Transport::Tcp), vec![]);
        let message = |operation: Vec<u8>| element(0x30, &[element(2, &[7]), operation].concat());
        reader.receive(
            End::Client,
            &message(element(0x63, &element(4, b"dc=a"))),
            &mut transactions,
        );
        reader.receive(
            End::Server,
            &message(element(0x64, &element(4, b"cn=b"))),
            &mut transactions,
        );
        let done = [element(10, &[32]), element(4, b"dc=c"), element(4, b"")].concat();
        reader.receive(End::Server, &message(element(0x65, &done)), &mut transactions);
        assert_eq!(transactions.len(), 1);
        assert_eq!(all(&transactions[0], Buffer::LdapRequestDn), ["dc=a"]);
        assert_eq!(all(&transactions[0], Buffer::LdapResponseDn), ["cn=b", "dc=c"]);
        assert!(has(&transactions[0], End::Client, "ldap.request.operation", 3));
        assert!(has(&transactions[0], End::Server, "ldap.responses.count", 2));
        assert!(has(&transactions[0], End::Server, "ldap.responses.result_code", 32));
    }

    proptest! {
        #[test]
        fn any_octets_are_read(octets in proptest::collection::vec(any::<u8>(), 0..100), tag in prop_oneof![Just(0x30u8), Just(0x6a), Just(0x6b), Just(0x7e)]) {
            let whole = element(tag, &element(0x30, &octets));
            for octets in [&octets, &whole] {
                for transport in [Transport::Tcp, Transport::Udp] {
                    for from in [End::Client, End::Server] {
                        Krb5::new(transport).receive(from, octets, &mut vec![]);
                        Snmp::default().receive(from, octets, &mut vec![]);
                        Ldap::new(transport).receive(from, octets, &mut vec![]);
                    }
                }
            }
        }
    }
}
