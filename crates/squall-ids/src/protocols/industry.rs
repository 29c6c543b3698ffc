//! Modbus, DNP3 and EtherNet/IP with CIP, as Suricata parses them. Its default configuration
//! disables them.

use squall_rules::{Buffer, End};

use super::octets::{Octets, Records};
use super::{Reader, Transaction, Transport, number};

// Bound on memory for untrusted traffic.
const MAX_TRANSACTIONS: usize = 1024;

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Modbus,
    Dnp3,
    Enip,
}

/// Each message is a transaction.
pub(super) struct Industry {
    kind: Kind,
    transport: Transport,
    sides: [Records; 2],
    /// DNP3: the application message assembled from segments.
    segments: [Vec<u8>; 2],
    opened: usize,
}

impl Industry {
    pub fn new(kind: Kind, transport: Transport) -> Industry {
        Industry {
            kind,
            transport,
            sides: Default::default(),
            segments: Default::default(),
            opened: 0,
        }
    }

    fn message(&mut self, from: End, message: &[u8], transactions: &mut Vec<Transaction>) {
        if self.opened >= MAX_TRANSACTIONS {
            return;
        }
        let mut transaction = Transaction { done: [true, true], ..Transaction::default() };
        // Fields parsed before the message ends or becomes invalid are kept.
        let _ = match self.kind {
            Kind::Modbus => modbus(from, message, &mut transaction),
            Kind::Dnp3 => dnp3(
                from,
                message,
                &mut self.segments[usize::from(from == End::Server)],
                &mut transaction,
            ),
            Kind::Enip => enip(from, message, &mut transaction),
        };
        if !transaction.facts.is_empty() {
            self.opened += 1;
            transactions.push(transaction);
        }
    }
}

impl Reader for Industry {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        if self.transport == Transport::Udp {
            return self.message(from, octets, transactions);
        }
        let side = usize::from(from == End::Server);
        self.sides[side].push(octets);
        let kind = self.kind;
        let length = move |octets: &[u8]| {
            Some(match kind {
                Kind::Modbus => 6 + usize::from(Octets(octets.get(4..)?).u16()?),
                // Each block of 16 octets, like the header, is followed by a CRC.
                Kind::Dnp3 => {
                    let data = usize::from(*octets.get(2)?).saturating_sub(5);
                    10 + data + 2 * data.div_ceil(16)
                }
                Kind::Enip => 24 + usize::from(Octets(octets.get(2..)?).u16_le()?),
            })
        };
        while let Some(message) = self.sides[side].next(24 + 65535, length) {
            self.message(from, &message, transactions);
        }
    }

    fn end(&mut self, _: End, _: &mut Vec<Transaction>) {}
}

fn modbus(from: End, message: &[u8], transaction: &mut Transaction) -> Option<()> {
    let mut rest = Octets(message.get(6..)?);
    let (unit, function) = (rest.u8()?, rest.u8()?);
    number(from, "modbus.unit", u64::from(unit), transaction);
    number(from, "modbus.function", u64::from(function & 0x7f), transaction);
    if !rest.is_empty() {
        transaction.buffers.push((Buffer::ModbusData, from, rest.0.to_vec()));
    }
    Some(())
}

fn dnp3(
    from: End,
    frame: &[u8],
    segments: &mut Vec<u8>,
    transaction: &mut Transaction,
) -> Option<()> {
    const MAX_LEN: usize = 4096;
    if !frame.starts_with(&[5, 0x64]) {
        return None;
    }
    let mut data: Vec<u8> = vec![];
    for block in frame.get(10..)?.chunks(18) {
        data.extend_from_slice(&block[..block.len().saturating_sub(2)]);
    }
    let (&transport, segment) = data.split_first()?;
    if transport & 0x40 != 0 {
        segments.clear();
    }
    let room = MAX_LEN.saturating_sub(segments.len());
    segments.extend_from_slice(&segment[..segment.len().min(room)]);
    if transport & 0x80 == 0 {
        return None;
    }
    let whole = std::mem::take(segments);
    number(from, "dnp3_func", u64::from(*whole.get(1)?), transaction);
    // The whole fragment, including its control octet and function code.
    transaction.buffers.push((Buffer::Dnp3Data, from, whole));
    Some(())
}

fn enip(from: End, message: &[u8], transaction: &mut Transaction) -> Option<()> {
    let mut rest = Octets(message);
    let command = rest.u16_le()?;
    number(from, "enip_command", u64::from(command), transaction);
    rest.skip(6)?;
    number(from, "enip.status", u64::from(rest.u32_le()?), transaction);
    rest.skip(12)?;
    match command {
        // ListIdentity reply with one item, in which version and address follow its type and
        // length.
        0x63 if from == End::Server => {
            rest.skip(2 + 4)?;
            number(from, "enip.protocol_version", u64::from(rest.u16_le()?), transaction);
            rest.skip(16)?;
            for what in [
                "enip.vendor_id",
                "enip.device_type",
                "enip.product_code",
                "enip.revision",
                "enip.identity_status",
            ] {
                number(from, what, u64::from(rest.u16_le()?), transaction);
            }
            number(from, "enip.serial", u64::from(rest.u32_le()?), transaction);
            transaction.buffers.push((Buffer::EnipProductName, from, rest.counted_u8()?.to_vec()));
            number(from, "enip.state", u64::from(rest.u8()?), transaction);
        }
        // ListServices reply.
        0x04 if from == End::Server => {
            rest.skip(2 + 4)?;
            number(from, "enip.protocol_version", u64::from(rest.u16_le()?), transaction);
            number(from, "enip.capabilities", u64::from(rest.u16_le()?), transaction);
            let name = rest.take(16)?;
            let name = name.split(|&octet| octet == 0).next().unwrap_or_default();
            transaction.buffers.push((Buffer::EnipServiceName, from, name.to_vec()));
        }
        // SendRRData, SendUnitData: a list of items; data items contain CIP.
        0x6f | 0x70 => {
            rest.skip(6)?;
            for _ in 0..rest.u16_le()? {
                let (kind, length) = (rest.u16_le()?, rest.u16_le()?);
                let item = rest.take(usize::from(length))?;
                match kind {
                    0xb2 => cip(from, item, transaction)?,
                    0xb1 => cip(from, item.get(2..)?, transaction)?,
                    _ => {}
                }
            }
        }
        _ => {}
    }
    Some(())
}

fn cip(from: End, item: &[u8], transaction: &mut Transaction) -> Option<()> {
    let mut rest = Octets(item);
    let service = rest.u8()?;
    number(from, "cip_service", u64::from(service & 0x7f), transaction);
    if service & 0x80 != 0 {
        rest.skip(1)?;
        number(from, "enip.cip_status", u64::from(rest.u8()?), transaction);
        return Some(());
    }
    let words = usize::from(rest.u8()?);
    let mut path = Octets(rest.take(2 * words)?);
    while let Some(kind) = path.u8() {
        let value = match kind & 3 {
            0 => u64::from(path.u8()?),
            1 => {
                path.skip(1)?;
                u64::from(path.u16_le()?)
            }
            _ => return None,
        };
        match kind & 0xfc {
            0x20 => {
                number(from, "enip.cip_class", value, transaction);
                number(from, "cip_service", value, transaction);
            }
            0x24 => number(from, "enip.cip_instance", value, transaction),
            0x30 => {
                number(from, "enip.cip_attribute", value, transaction);
                number(from, "cip_service", value, transaction);
            }
            _ => {}
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocols::{Fact, FactIs};

    fn has(transaction: &Transaction, of: End, what: &'static str, value: u64) -> bool {
        transaction.facts.contains(&Fact { of, is: FactIs::Number { what, value } })
    }

    fn play(kind: Kind, stream: &[u8], size: usize) -> Vec<Transaction> {
        let (mut reader, mut transactions) = (Industry::new(kind, Transport::Tcp), vec![]);
        for piece in stream.chunks(size) {
            reader.receive(End::Client, piece, &mut transactions);
        }
        transactions
    }

    #[test]
    fn messages_are_read_however_they_are_cut() {
        for size in [1, 5, 1000] {
            let modbus = play(Kind::Modbus, &[0, 1, 0, 0, 0, 6, 7, 3, 0, 0, 0, 1], size);
            assert!(
                has(&modbus[0], End::Client, "modbus.unit", 7)
                    && has(&modbus[0], End::Client, "modbus.function", 3)
            );

            let dnp3 = play(
                Kind::Dnp3,
                &[5, 0x64, 10, 0xc4, 1, 0, 2, 0, 0, 0, 0xc0, 0xc1, 13, 1, 2, 0, 0],
                size,
            );
            assert!(has(&dnp3[0], End::Client, "dnp3_func", 13));
            assert_eq!(dnp3[0].buffers, [(Buffer::Dnp3Data, End::Client, vec![0xc1, 13, 1, 2])]);

            let mut enip = vec![0x6f, 0, 22, 0];
            enip.extend([0; 20]);
            enip.extend([
                0, 0, 0, 0, 0, 0, 1, 0, 0xb2, 0, 10, 0, 0x4c, 4, 0x20, 6, 0x24, 1, 0x30, 9, 0, 0,
            ]);
            let enip = play(Kind::Enip, &enip, size);
            assert!(
                has(&enip[0], End::Client, "enip_command", 0x6f)
                    && has(&enip[0], End::Client, "enip.cip_class", 6)
            );
            assert!(has(&enip[0], End::Client, "cip_service", 0x4c));
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_read(octets in proptest::collection::vec(any::<u8>(), 0..100), command in prop_oneof![Just(0x6fu8), Just(0x63), Just(4), Just(5)]) {
            for kind in [Kind::Modbus, Kind::Dnp3, Kind::Enip] {
                for transport in [Transport::Tcp, Transport::Udp] {
                    for from in [End::Client, End::Server] {
                        let mut reader = Industry::new(kind, transport);
                        reader.receive(from, &[&[command, 0], &octets[..]].concat(), &mut vec![]);
                        reader.receive(from, &octets, &mut vec![]);
                    }
                }
            }
        }
    }
}
