//! DCE/RPC (C706) over TCP, in SMB pipes, and over UDP.

use squall_rules::{Buffer, End};

use super::octets::{Octets, Records};
use super::{Fact, FactIs, Reader, Transaction, number};

// Bounds on memory for untrusted traffic.
const MAX_TRANSACTIONS: usize = 1024;
const MAX_INTERFACES: usize = 256;
/// Maximum octets of stub data kept per call.
const MAX_STUB_LEN: usize = 1024 * 1024;

// PDU types and flags (C706, chapter 12).
const REQUEST: u8 = 0;
const RESPONSE: u8 = 2;
const BIND: u8 = 11;
const BIND_ACK: u8 = 12;
const ALTER_CONTEXT: u8 = 14;
const ALTER_CONTEXT_RESPONSE: u8 = 15;

const FIRST_FRAGMENT: u8 = 1;
const LAST_FRAGMENT: u8 = 2;
const HAS_OBJECT: u8 = 0x80;

/// The calls of one connection or pipe.
#[derive(Default)]
pub(super) struct Calls {
    interfaces: Vec<Interface>,
    /// Index in `interfaces` of the first interface in the last bind, which was not acknowledged
    /// yet.
    proposed: usize,
    /// Calls without a response so far: call identifier and index of the transaction.
    open: Vec<(u32, usize)>,
    opened: usize,
}

struct Interface {
    uuid: [u8; 16],
    version: u32,
    accepted: bool,
}

impl Calls {
    /// Parses a fragment with its header. The fragment may be truncated.
    pub fn fragment(&mut self, from: End, fragment: &[u8], transactions: &mut Vec<Transaction>) {
        // An invalid PDU contains nothing that rules test.
        let _ = self.read(from, fragment, transactions);
    }

    fn read(
        &mut self,
        from: End,
        fragment: &[u8],
        transactions: &mut Vec<Transaction>,
    ) -> Option<()> {
        let header = fragment.get(..16)?;
        if header[0] != 5 {
            return None;
        }
        let (kind, flags) = (header[2], header[3]);
        let order = Order { little: header[4] & 0x10 != 0 };
        let length = usize::from(order.u16(&header[8..10]));
        let call = order.u32(&header[12..16]);
        let body = &fragment[16..length.clamp(16, fragment.len())];
        match kind {
            REQUEST => {
                let arguments = body.get(8..)?;
                let opnum = order.u16(&body[6..8]);
                let arguments = if flags & HAS_OBJECT != 0 {
                    arguments.get(16..).unwrap_or_default()
                } else {
                    arguments
                };
                let at = match self.place(call).filter(|_| flags & FIRST_FRAGMENT == 0) {
                    Some(at) => at,
                    None => self.open(call, transactions)?,
                };
                let transaction = transactions.get_mut(at)?;
                if flags & FIRST_FRAGMENT != 0 || transaction.facts.is_empty() {
                    self.add_interfaces(transaction);
                    number(End::Client, "dcerpc.opnum", u64::from(opnum), transaction);
                    number(
                        End::Client,
                        "dcerpc.little_endian",
                        u64::from(order.little),
                        transaction,
                    );
                }
                add_stub(End::Client, arguments, transaction);
                transaction.done[0] = flags & LAST_FRAGMENT != 0;
            }
            RESPONSE => {
                let results = body.get(8..)?;
                let at = match self.place(call) {
                    Some(at) => at,
                    None => self.open(call, transactions)?,
                };
                let transaction = transactions.get_mut(at)?;
                if !transaction.facts.iter().any(|fact| fact.of == End::Server) {
                    number(
                        End::Server,
                        "dcerpc.little_endian",
                        u64::from(order.little),
                        transaction,
                    );
                }
                add_stub(End::Server, results, transaction);
                if flags & LAST_FRAGMENT != 0 {
                    transaction.done[1] = true;
                    self.open.retain(|(open, _)| *open != call);
                }
            }
            BIND | ALTER_CONTEXT if from == End::Client => {
                if kind == BIND {
                    self.interfaces.clear();
                }
                self.proposed = self.interfaces.len();
                let mut rest = Octets(body.get(8..)?);
                let count = rest.u8()?;
                rest.skip(3)?;
                for _ in 0..count {
                    rest.skip(2)?;
                    let syntaxes = rest.u8()?;
                    rest.skip(1)?;
                    let uuid = order.uuid(rest.take(16)?);
                    let version = u32::from(order.u16(rest.take(2)?));
                    rest.skip(2 + 20 * usize::from(syntaxes))?;
                    if self.interfaces.len() < MAX_INTERFACES {
                        self.interfaces.push(Interface { uuid, version, accepted: false });
                    }
                }
            }
            BIND_ACK | ALTER_CONTEXT_RESPONSE if from == End::Server => {
                let mut rest = Octets(body.get(8..)?);
                let address = usize::from(order.u16(rest.take(2)?));
                rest.skip(address)?;
                // Skips the padding to a multiple of four, counted from the header.
                rest.skip((4 - (2 + address) % 4) % 4)?;
                let count = rest.u8()?;
                rest.skip(3)?;
                for index in 0..usize::from(count) {
                    let result = order.u16(rest.take(2)?);
                    if let Some(interface) = self.interfaces.get_mut(self.proposed + index) {
                        interface.accepted = result == 0;
                    }
                    rest.skip(22)?;
                }
            }
            _ => {}
        }
        Some(())
    }

    fn place(&self, call: u32) -> Option<usize> {
        self.open.iter().rev().find(|(open, _)| *open == call).map(|(_, at)| *at)
    }

    fn open(&mut self, call: u32, transactions: &mut Vec<Transaction>) -> Option<usize> {
        if self.opened >= MAX_TRANSACTIONS {
            return None;
        }
        self.opened += 1;
        self.open.push((call, transactions.len()));
        transactions.push(Transaction::default());
        Some(transactions.len() - 1)
    }

    fn add_interfaces(&self, transaction: &mut Transaction) {
        for interface in self.interfaces.iter().filter(|interface| interface.accepted) {
            let is = FactIs::DceInterface { uuid: interface.uuid, version: interface.version };
            transaction.facts.push(Fact { of: End::Client, is });
        }
    }
}

/// Appends a fragment's stub data to the buffer of its call.
fn add_stub(from: End, octets: &[u8], transaction: &mut Transaction) {
    if octets.is_empty() {
        return;
    }
    let there = transaction
        .buffers
        .iter_mut()
        .find(|(buffer, end, _)| *buffer == Buffer::DceStubData && *end == from);
    match there {
        Some((_, _, stub)) => {
            let room = MAX_STUB_LEN.saturating_sub(stub.len());
            stub.extend_from_slice(&octets[..octets.len().min(room)]);
        }
        None => transaction.buffers.push((Buffer::DceStubData, from, octets.to_vec())),
    }
}

/// The byte order of a PDU.
#[derive(Clone, Copy)]
struct Order {
    little: bool,
}

impl Order {
    fn u16(self, octets: &[u8]) -> u16 {
        let octets = [octets[0], octets[1]];
        if self.little { u16::from_le_bytes(octets) } else { u16::from_be_bytes(octets) }
    }

    fn u32(self, octets: &[u8]) -> u32 {
        let octets = [octets[0], octets[1], octets[2], octets[3]];
        if self.little { u32::from_le_bytes(octets) } else { u32::from_be_bytes(octets) }
    }

    /// The UUID with its octets in text order. In the PDU, the first three fields depend on the
    /// byte order.
    fn uuid(self, octets: &[u8]) -> [u8; 16] {
        let mut uuid: [u8; 16] = octets.try_into().expect("sixteen octets were taken");
        if self.little {
            uuid[..4].reverse();
            uuid[4..6].reverse();
            uuid[6..8].reverse();
        }
        uuid
    }
}

/// DCE/RPC over TCP.
#[derive(Default)]
pub(super) struct DceRpc {
    sides: [Records; 2],
    calls: Calls,
}

impl Reader for DceRpc {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        let side = usize::from(from == End::Server);
        self.sides[side].push(octets);
        while let Some(fragment) = self.sides[side].next(usize::from(u16::MAX), fragment_length) {
            self.calls.fragment(from, &fragment, transactions);
        }
    }

    fn end(&mut self, _: End, _: &mut Vec<Transaction>) {}
}

pub(super) fn fragment_length(octets: &[u8]) -> Option<usize> {
    let header = octets.get(..10)?;
    let order = Order { little: header[4] & 0x10 != 0 };
    Some(usize::from(order.u16(&header[8..10])).max(16))
}

/// DCE/RPC over UDP. Each datagram names its interface.
#[derive(Default)]
pub(super) struct DceRpcDatagrams {
    opened: usize,
}

impl Reader for DceRpcDatagrams {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        let Some((header, body)) = octets.split_at_checked(80) else { return };
        if header[0] != 4 || self.opened >= MAX_TRANSACTIONS {
            return;
        }
        self.opened += 1;
        let order = Order { little: header[4] & 0x10 != 0 };
        let mut transaction = Transaction { done: [true, true], ..Transaction::default() };
        let is = FactIs::DceInterface {
            uuid: order.uuid(&header[24..40]),
            version: order.u32(&header[60..64]),
        };
        transaction.facts.push(Fact { of: from, is });
        number(from, "dcerpc.opnum", u64::from(order.u16(&header[68..70])), &mut transaction);
        number(from, "dcerpc.little_endian", u64::from(order.little), &mut transaction);
        let length = usize::from(order.u16(&header[74..76]));
        add_stub(from, &body[..length.min(body.len())], &mut transaction);
        transactions.push(transaction);
    }

    fn end(&mut self, _: End, _: &mut Vec<Transaction>) {}
}

/// Builds fragments for the tests of this module and of SMB.
#[cfg(test)]
pub(super) mod samples {
    pub const UUID: [u8; 16] = [
        0x4b, 0x32, 0x4f, 0xc8, 0x16, 0x70, 0x01, 0xd3, 0x12, 0x78, 0x5a, 0x47, 0xbf, 0x6e, 0xe1,
        0x88,
    ];

    pub fn fragment(kind: u8, flags: u8, little: bool, call: u32, body: &[u8]) -> Vec<u8> {
        let length = (16 + body.len()) as u16;
        let mut out = vec![5, 0, kind, flags, if little { 0x10 } else { 0 }, 0, 0, 0];
        out.extend(if little { length.to_le_bytes() } else { length.to_be_bytes() });
        out.extend([0, 0]);
        out.extend(if little { call.to_le_bytes() } else { call.to_be_bytes() });
        out.extend(body);
        out
    }

    pub fn bind(little: bool) -> Vec<u8> {
        let mut uuid = UUID;
        if little {
            uuid[..4].reverse();
            uuid[4..6].reverse();
            uuid[6..8].reverse();
        }
        let version = if little { [3, 0] } else { [0, 3] };
        let body =
            [&[0; 8][..], &[1, 0, 0, 0, 0, 0, 1, 0], &uuid, &version, &[0, 0], &[0; 20]].concat();
        fragment(11, 3, little, 1, &body)
    }

    pub fn bind_ack(little: bool, result: u8) -> Vec<u8> {
        let (length, result) = if little { ([4, 0], [result, 0]) } else { ([0, 4], [0, result]) };
        // The secondary address (a port as text), then padding to a multiple of four.
        let body =
            [&[0; 8][..], &length, b"135\0", &[0, 0], &[1, 0, 0, 0], &result, &[0; 22]].concat();
        fragment(12, 3, little, 1, &body)
    }

    pub fn request(little: bool, flags: u8, opnum: u8, stub: &[u8]) -> Vec<u8> {
        let opnum = if little { [opnum, 0] } else { [0, opnum] };
        fragment(0, flags, little, 2, &[&[0; 6][..], &opnum, stub].concat())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::samples::{UUID, bind, bind_ack, fragment, request};
    use super::*;

    #[test]
    fn a_call_is_of_the_accepted_interface_in_either_byte_order_however_it_is_cut() {
        for little in [true, false] {
            for size in [1, 13, 10_000] {
                let (mut reader, mut transactions) = (DceRpc::default(), vec![]);
                let parts = [
                    (End::Client, bind(little)),
                    (End::Server, bind_ack(little, 0)),
                    (End::Client, request(little, FIRST_FRAGMENT, 15, b"arg")),
                    (End::Client, request(little, LAST_FRAGMENT, 15, b"uments")),
                    (End::Server, fragment(RESPONSE, 3, little, 2, b"12345678result")),
                ];
                for (from, octets) in parts {
                    for piece in octets.chunks(size) {
                        reader.receive(from, piece, &mut transactions);
                    }
                }
                assert_eq!(transactions.len(), 1);
                let is = FactIs::DceInterface { uuid: UUID, version: 3 };
                assert!(transactions[0].facts.contains(&Fact { of: End::Client, is }));
                let is = FactIs::Number { what: "dcerpc.opnum", value: 15 };
                assert!(transactions[0].facts.contains(&Fact { of: End::Client, is }));
                assert_eq!(
                    transactions[0].buffers[0],
                    (Buffer::DceStubData, End::Client, b"arguments".to_vec())
                );
                assert_eq!(
                    transactions[0].buffers[1],
                    (Buffer::DceStubData, End::Server, b"result".to_vec())
                );
                assert_eq!(transactions[0].done, [true, true]);
            }
        }
    }

    #[test]
    fn an_interface_that_was_not_accepted_is_none() {
        for acknowledged in [false, true] {
            let (mut reader, mut transactions) = (DceRpc::default(), vec![]);
            reader.receive(End::Client, &bind(true), &mut transactions);
            if acknowledged {
                reader.receive(End::Server, &bind_ack(true, 2), &mut transactions);
            }
            reader.receive(End::Client, &request(true, 3, 1, b"x"), &mut transactions);
            assert!(
                !transactions[0]
                    .facts
                    .iter()
                    .any(|fact| matches!(fact.is, FactIs::DceInterface { .. }))
            );
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_read(kind in 0u8..20, flags in any::<u8>(), little in any::<bool>(), body in proptest::collection::vec(any::<u8>(), 0..120), server in any::<bool>()) {
            let (mut reader, mut transactions) = (DceRpc::default(), vec![]);
            let from = if server { End::Server } else { End::Client };
            reader.receive(End::Client, &bind(little), &mut transactions);
            reader.receive(from, &fragment(kind, flags, little, 1, &body), &mut transactions);
            reader.receive(from, &body, &mut transactions);
            DceRpcDatagrams::default().receive(from, &body, &mut transactions);
        }
    }
}
