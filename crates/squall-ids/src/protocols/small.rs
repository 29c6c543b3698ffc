//! Protocols with few keywords: TFTP (RFC 1350), NFS calls (RFC 5531), DHCP (RFC 2131), NTP (RFC
//! 5905), WebSocket (RFC 6455).

use squall_rules::{Buffer, End};

use super::octets::{Octets, Records};
use super::{Reader, Transaction, Transport, number};

// Bound on memory for untrusted traffic.
const MAX_TRANSACTIONS: usize = 1024;
/// Suricata's `max-payload-size` for WebSocket.
const MAX_PAYLOAD_LEN: usize = 64 * 1024;
const MAX_CALL_LEN: usize = 1024 * 1024;

/// Parses a message of a protocol without state.
type Read = fn(End, &[u8], &mut Transaction) -> Option<()>;

/// Each datagram in which any field was parsed is a transaction.
pub(super) struct Datagrams {
    read: Read,
    opened: usize,
}

impl Datagrams {
    pub fn new(read: Read) -> Datagrams {
        Datagrams { read, opened: 0 }
    }
}

impl Reader for Datagrams {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        let mut transaction = Transaction { done: [true, true], ..Transaction::default() };
        let _ = (self.read)(from, octets, &mut transaction);
        if self.opened < MAX_TRANSACTIONS
            && !(transaction.facts.is_empty() && transaction.buffers.is_empty())
        {
            self.opened += 1;
            transactions.push(transaction);
        }
    }

    fn end(&mut self, _: End, _: &mut Vec<Transaction>) {}
}

pub(super) fn tftp(from: End, octets: &[u8], transaction: &mut Transaction) -> Option<()> {
    let [0, 1 | 2, rest @ ..] = octets else { return None };
    let mut texts = rest.split(|&octet| octet == 0);
    for buffer in [Buffer::TftpFile, Buffer::TftpMode] {
        transaction.buffers.push((buffer, from, texts.next()?.to_vec()));
    }
    Some(())
}

pub(super) fn ntp(from: End, octets: &[u8], transaction: &mut Transaction) -> Option<()> {
    let mut rest = Octets(octets);
    let first = rest.u8()?;
    number(from, "ntp.version", u64::from(first >> 3 & 7), transaction);
    number(from, "ntp.mode", u64::from(first & 7), transaction);
    number(from, "ntp.stratum", u64::from(rest.u8()?), transaction);
    Some(())
}

pub(super) fn dhcp(from: End, octets: &[u8], transaction: &mut Transaction) -> Option<()> {
    let mut rest = Octets(octets.get(240..)?);
    loop {
        let option = rest.u8()?;
        let what = match option {
            0 => continue,
            255 => return Some(()),
            51 => "dhcp.leasetime",
            58 => "dhcp.renewal_time",
            59 => "dhcp.rebinding_time",
            _ => "",
        };
        let content = rest.counted_u8()?;
        if let (false, Some(seconds)) = (what.is_empty(), Octets(content).u32()) {
            number(from, what, u64::from(seconds), transaction);
        }
    }
}

pub(super) fn nfs(from: End, octets: &[u8], transaction: &mut Transaction) -> Option<()> {
    let mut rest = Octets(octets);
    rest.skip(4)?;
    // A call (0) of RPC version 2.
    if rest.u32()? != 0 || rest.u32()? != 2 {
        return None;
    }
    rest.skip(4)?;
    number(from, "nfs.version", u64::from(rest.u32()?), transaction);
    number(from, "nfs_procedure", u64::from(rest.u32()?), transaction);
    Some(())
}

/// NFS over TCP, with one call per record.
pub(super) struct NfsStream {
    sides: [Records; 2],
    calls: Datagrams,
}

impl NfsStream {
    pub fn new() -> NfsStream {
        NfsStream { sides: Default::default(), calls: Datagrams::new(nfs) }
    }
}

impl Reader for NfsStream {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        let side = usize::from(from == End::Server);
        self.sides[side].push(octets);
        let length =
            |octets: &[u8]| Octets(octets).u32().map(|mark| 4 + (mark & 0x7fff_ffff) as usize);
        while let Some(record) = self.sides[side].next(MAX_CALL_LEN, length) {
            self.calls.receive(from, record.get(4..).unwrap_or_default(), transactions);
        }
    }

    fn end(&mut self, _: End, _: &mut Vec<Transaction>) {}
}

/// The NFS parser for a transport.
pub(super) fn nfs_reader(transport: Transport) -> Box<dyn Reader + Send> {
    match transport {
        Transport::Tcp => Box::new(NfsStream::new()),
        Transport::Udp => Box::new(Datagrams::new(nfs)),
    }
}

/// WebSocket. Each message is a transaction: continuation frames are added to their first frame.
#[derive(Default)]
pub(super) struct WebSocket {
    sides: [Records; 2],
    /// Index of the unfinished transaction.
    open: [Option<usize>; 2],
    opened: usize,
}

impl Reader for WebSocket {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        let side = usize::from(from == End::Server);
        self.sides[side].push(octets);
        let length = |octets: &[u8]| {
            let (header, payload) = frame_lengths(octets)?;
            header.checked_add(payload).or(Some(usize::MAX / 2))
        };
        while let Some(frame) = self.sides[side].next(MAX_PAYLOAD_LEN, length) {
            let _ = self.frame(from, &frame, transactions);
        }
    }

    fn end(&mut self, _: End, _: &mut Vec<Transaction>) {}
}

/// Lengths of a frame's header and of its payload.
fn frame_lengths(octets: &[u8]) -> Option<(usize, usize)> {
    let mut rest = Octets(octets.get(1..)?);
    let second = rest.u8()?;
    let (extra, payload) = match second & 0x7f {
        126 => (2, usize::from(rest.u16()?)),
        127 => (
            8,
            usize::try_from(u64::from(rest.u32()?) << 32 | u64::from(rest.u32()?))
                .unwrap_or(usize::MAX),
        ),
        short => (0, usize::from(short)),
    };
    Some((2 + extra + if second & 0x80 != 0 { 4 } else { 0 }, payload))
}

impl WebSocket {
    fn frame(
        &mut self,
        from: End,
        frame: &[u8],
        transactions: &mut Vec<Transaction>,
    ) -> Option<()> {
        let side = usize::from(from == End::Server);
        let (header, _) = frame_lengths(frame)?;
        let (head, payload) = frame.split_at_checked(header)?;
        let (is_last, operation) = (head[0] & 0x80 != 0, head[0] & 15);
        let mut payload = payload.to_vec();
        let mask = if head[1] & 0x80 != 0 { head.get(header - 4..) } else { None };
        if let Some(mask) = mask {
            for (octet, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
                *octet ^= mask;
            }
        }
        if operation == 0
            && let Some(transaction) = self.open[side].and_then(|at| transactions.get_mut(at))
        {
            if let Some((.., whole)) = transaction.buffers.first_mut() {
                let room = MAX_PAYLOAD_LEN.saturating_sub(whole.len());
                whole.extend_from_slice(&payload[..payload.len().min(room)]);
            }
            transaction.done = [is_last, is_last];
            if is_last {
                self.open[side] = None;
            }
            return Some(());
        }
        if self.opened >= MAX_TRANSACTIONS {
            return None;
        }
        self.opened += 1;
        let mut transaction = Transaction { done: [is_last, is_last], ..Transaction::default() };
        number(from, "websocket.opcode", u64::from(operation), &mut transaction);
        number(from, "websocket.flags", u64::from(head[0] & 0xf0), &mut transaction);
        if let Some(mask) = mask.and_then(|mask| Octets(mask).u32()) {
            number(from, "websocket.mask", u64::from(mask), &mut transaction);
        }
        if !payload.is_empty() {
            transaction.buffers.push((Buffer::WebSocketPayload, from, payload));
        }
        if !is_last {
            self.open[side] = Some(transactions.len());
        }
        transactions.push(transaction);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocols::{Fact, FactIs};

    fn has(transaction: &Transaction, what: &'static str, value: u64) -> bool {
        transaction.facts.contains(&Fact { of: End::Client, is: FactIs::Number { what, value } })
    }

    #[test]
    fn a_request_of_tftp_names_its_file() {
        let mut transactions = vec![];
        Datagrams::new(tftp).receive(End::Client, b"\0\x01boot.bin\0octet\0", &mut transactions);
        assert_eq!(transactions[0].buffers[0].2, b"boot.bin");
        assert_eq!(transactions[0].buffers[1].2, b"octet");
    }

    #[test]
    fn a_call_of_nfs_has_a_version_and_a_procedure() {
        let call = [
            &[0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2][..],
            &100_003u32.to_be_bytes(),
            &[0, 0, 0, 3, 0, 0, 0, 7],
        ]
        .concat();
        let mut transactions = vec![];
        NfsStream::new().receive(
            End::Client,
            &[&[0x80, 0, 0, 24], &call[..]].concat(),
            &mut transactions,
        );
        assert!(
            has(&transactions[0], "nfs.version", 3) && has(&transactions[0], "nfs_procedure", 7)
        );
    }

    #[test]
    fn options_of_dhcp_are_numbers() {
        let message = [&[0; 240][..], &[0, 51, 4, 0, 0, 0x0e, 0x10, 255]].concat();
        let mut transactions = vec![];
        Datagrams::new(dhcp).receive(End::Client, &message, &mut transactions);
        assert!(has(&transactions[0], "dhcp.leasetime", 3600));
    }

    #[test]
    fn frames_of_websocket_are_unmasked_and_joined() {
        let frames = [1, 0x82, 1, 2, 3, 4, b'a' ^ 1, b'b' ^ 2, 0x80, 0x81, 9, 9, 9, 9, b'c' ^ 9];
        for size in [1, 4, 100] {
            let (mut reader, mut transactions) = (WebSocket::default(), vec![]);
            for piece in frames.chunks(size) {
                reader.receive(End::Client, piece, &mut transactions);
            }
            assert_eq!(transactions[0].buffers[0].2, b"abc");
            assert!(
                has(&transactions[0], "websocket.opcode", 1)
                    && has(&transactions[0], "websocket.mask", 0x0102_0304)
            );
            assert_eq!(transactions[0].done, [true, true]);
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_read(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
            for read in [tftp as Read, ntp, dhcp, nfs] {
                Datagrams::new(read).receive(End::Server, &octets, &mut vec![]);
            }
            NfsStream::new().receive(End::Client, &octets, &mut vec![]);
            WebSocket::default().receive(End::Client, &octets, &mut vec![]);
        }
    }
}
