//! RFB, the protocol of VNC (RFC 6143). Each flow is one transaction.

use squall_rules::{Buffer, End};

use super::octets::Octets;
use super::{Reader, SingleTransaction, Transaction, number};

// Bound on memory for untrusted traffic.
const MAX_LEN: usize = 4096;

#[derive(Default)]
pub(super) struct Rfb {
    pending: [Vec<u8>; 2],
    step: Step,
    /// The server announced version 3.3, in which the server chooses the security type.
    server_chooses: bool,
    only: SingleTransaction,
}

/// The next message, in the order of RFC 6143 §7.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Step {
    #[default]
    ServerVersion,
    ClientVersion,
    SecurityTypes,
    SecurityType,
    Challenge,
    Response,
    Result,
    ClientInit,
    ServerInit,
    Over,
}

impl Step {
    fn by(self) -> End {
        match self {
            Step::ClientVersion | Step::SecurityType | Step::Response | Step::ClientInit => {
                End::Client
            }
            _ => End::Server,
        }
    }
}

impl Reader for Rfb {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        let Some(transaction) = self.only.get_or_open(transactions) else { return };
        let pending = &mut self.pending[usize::from(from == End::Server)];
        let room = MAX_LEN.saturating_sub(pending.len());
        pending.extend_from_slice(&octets[..octets.len().min(room)]);
        while self.step != Step::Over {
            let side = usize::from(self.step.by() == End::Server);
            let pending = std::mem::take(&mut self.pending[side]);
            let mut rest = Octets(&pending);
            let taken = self.take(&mut rest, transaction);
            self.pending[side] = if taken.is_some() { rest.0.to_vec() } else { pending };
            if taken.is_none() {
                break;
            }
        }
    }

    fn end(&mut self, from: End, transactions: &mut Vec<Transaction>) {
        self.only.end(from, transactions);
    }
}

impl Rfb {
    /// Parses the next message; `None` if more data is needed.
    fn take(&mut self, rest: &mut Octets<'_>, transaction: &mut Transaction) -> Option<()> {
        self.step = match self.step {
            Step::ServerVersion => {
                let version = rest.take(12)?;
                self.server_chooses = &version[8..11] == b"003";
                if version.starts_with(b"RFB ") { Step::ClientVersion } else { Step::Over }
            }
            Step::ClientVersion => {
                rest.skip(12)?;
                Step::SecurityTypes
            }
            Step::SecurityTypes if self.server_chooses => {
                let kind = rest.u32()?;
                self.secure(kind, transaction)
            }
            Step::SecurityTypes => match rest.counted_u8()? {
                [] => Step::Over,
                _ => Step::SecurityType,
            },
            Step::SecurityType => {
                let kind = u32::from(rest.u8()?);
                self.secure(kind, transaction)
            }
            Step::Challenge => {
                rest.skip(16)?;
                Step::Response
            }
            Step::Response => {
                rest.skip(16)?;
                Step::Result
            }
            Step::Result => {
                let result = rest.u32()?;
                number(End::Server, "rfb.secresult", u64::from(result), transaction);
                if result == 0 { Step::ClientInit } else { Step::Over }
            }
            Step::ClientInit => {
                rest.skip(1)?;
                Step::ServerInit
            }
            Step::ServerInit => {
                let mut ahead = *rest;
                ahead.skip(20)?;
                let length = ahead.u32()?;
                let name = ahead.take(length as usize)?;
                transaction.buffers.push((Buffer::RfbName, End::Server, name.to_vec()));
                *rest = ahead;
                Step::Over
            }
            Step::Over => return None,
        };
        Some(())
    }

    fn secure(&mut self, kind: u32, transaction: &mut Transaction) -> Step {
        for end in [End::Client, End::Server] {
            number(end, "rfb.sectype", u64::from(kind), transaction);
        }
        match kind {
            1 if self.server_chooses => Step::ClientInit,
            1 => Step::Result,
            2 => Step::Challenge,
            _ => Step::Over,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocols::{Fact, FactIs};

    #[test]
    fn a_desktop_has_a_name_however_it_is_cut() {
        let server =
            [&b"RFB 003.008\n\x02\x01\x02"[..], &[9; 16], &[0; 4], &[0; 20], b"\0\0\0\x04desk"]
                .concat();
        let client = [&b"RFB 003.008\n\x02"[..], &[8; 16], &[1]].concat();
        for size in [1, 7, 1000] {
            let (mut reader, mut transactions) = (Rfb::default(), vec![]);
            for (from, octets) in [(End::Server, &server), (End::Client, &client)] {
                for piece in octets.chunks(size) {
                    reader.receive(from, piece, &mut transactions);
                }
            }
            assert_eq!(transactions[0].buffers, [(Buffer::RfbName, End::Server, b"desk".to_vec())]);
            let is = FactIs::Number { what: "rfb.sectype", value: 2 };
            assert!(transactions[0].facts.contains(&Fact { of: End::Server, is }));
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_read(server in proptest::collection::vec(any::<u8>(), 0..100), client in proptest::collection::vec(any::<u8>(), 0..100)) {
            let (mut reader, mut transactions) = (Rfb::default(), vec![]);
            reader.receive(End::Server, &[b"RFB 003.003\n", &server[..]].concat(), &mut transactions);
            reader.receive(End::Client, &client, &mut transactions);
        }
    }
}
