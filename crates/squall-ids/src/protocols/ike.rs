//! IKE 1 and 2 (RFC 2408, 7296). Each datagram is a transaction.

use squall_rules::{Buffer, End};

use super::octets::{Octets, hexadecimal};
use super::{Reader, Transaction, number};

// Bounds on memory for untrusted traffic.
const MAX_TRANSACTIONS: usize = 1024;
const MAX_PAYLOADS: usize = 100;

#[derive(Default)]
pub(super) struct Ike {
    opened: usize,
}

impl Reader for Ike {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        if self.opened >= MAX_TRANSACTIONS {
            return;
        }
        // On port 4500, four zero octets distinguish IKE from ESP (RFC 3948 §2.2).
        let octets = octets.strip_prefix(&[0; 4]).unwrap_or(octets);
        let mut transaction = Transaction { done: [true, true], ..Transaction::default() };
        let _ = read(from, octets, &mut transaction);
        if !transaction.facts.is_empty() {
            self.opened += 1;
            transactions.push(transaction);
        }
    }

    fn end(&mut self, _: End, _: &mut Vec<Transaction>) {}
}

fn read(from: End, octets: &[u8], transaction: &mut Transaction) -> Option<()> {
    let mut rest = Octets(octets);
    let (initiator, responder) = (rest.take(8)?, rest.take(8)?);
    let mut next = rest.u8()?;
    let version = rest.u8()? >> 4;
    let exchange = rest.u8()?;
    let flags = rest.u8()?;
    rest.skip(8)?;
    for (buffer, spi) in
        [(Buffer::IkeInitiatorSpi, initiator), (Buffer::IkeResponderSpi, responder)]
    {
        transaction.buffers.push((buffer, from, hexadecimal(spi)));
    }
    number(from, "ike.exchtype", u64::from(exchange), transaction);
    // The encryption flag of IKEv1.
    if version == 1 && flags & 1 != 0 {
        return Some(());
    }
    for _ in 0..MAX_PAYLOADS {
        if next == 0 || next == 46 {
            break;
        }
        let kind = next;
        next = rest.u8()?;
        rest.skip(1)?;
        let content = rest.u16()?.checked_sub(4)?;
        let content = rest.take(usize::from(content))?;
        match (version, kind) {
            (1, 4) | (2, 34) => {
                number(from, "ike.key_exchange_payload_length", content.len() as u64, transaction)
            }
            (1, 10) | (2, 40) => {
                number(from, "ike.nonce_payload_length", content.len() as u64, transaction)
            }
            (1, 13) | (2, 43) => {
                transaction.buffers.push((Buffer::IkeVendor, from, hexadecimal(content)))
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

    #[test]
    fn a_proposal_has_its_numbers_and_vendors_in_hexadecimal() {
        let header = [&[0xab; 8][..], &[0; 8], &[13, 0x10, 2, 0, 0, 0, 0, 0, 0, 0, 0, 36]].concat();
        let message = [&header[..], &[0, 0, 0, 8, 0xde, 0xad, 0xbe, 0xef]].concat();
        let (mut reader, mut transactions) = (Ike::default(), vec![]);
        reader.receive(End::Client, &message, &mut transactions);
        assert!(transactions[0].buffers.contains(&(
            Buffer::IkeInitiatorSpi,
            End::Client,
            b"abababababababab".to_vec()
        )));
        assert!(transactions[0].buffers.contains(&(
            Buffer::IkeVendor,
            End::Client,
            b"deadbeef".to_vec()
        )));
    }

    proptest! {
        #[test]
        fn any_octets_are_read(octets in proptest::collection::vec(any::<u8>(), 0..100)) {
            Ike::default().receive(End::Client, &octets, &mut vec![]);
        }
    }
}
