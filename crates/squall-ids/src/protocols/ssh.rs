//! SSH: banners (RFC 4253 §4.2) and KEXINIT messages (§7.1).

use squall_rules::{Buffer, End};

use super::octets::{Octets, md5_hexadecimal};
use super::{Reader, SingleTransaction, Transaction};

const MAX_LEN: usize = 64 * 1024;

#[derive(Default)]
pub(super) struct Ssh {
    sides: [Side; 2],
    only: SingleTransaction,
}

#[derive(Default)]
struct Side {
    pending: Vec<u8>,
    has_banner: bool,
    done: bool,
}

impl Reader for Ssh {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        let side = &mut self.sides[usize::from(from == End::Server)];
        let Some(transaction) = self.only.get_or_open(transactions) else { return };
        if side.done {
            return;
        }
        side.pending.extend_from_slice(octets);
        while !side.has_banner {
            let Some(end) = memchr::memchr(b'\n', &side.pending) else {
                if side.pending.len() > MAX_LEN {
                    side.pending = vec![];
                    side.done = true;
                }
                return;
            };
            let line: Vec<u8> = side.pending.drain(..=end).collect();
            // The server may send other lines before its banner (RFC 4253 §4.2).
            side.has_banner = add_banner(from, &line, transaction);
        }
        let mut rest = Octets(&side.pending);
        let Some(length) = rest.u32() else { return };
        if length as usize > MAX_LEN {
            side.done = true;
            side.pending = vec![];
            return;
        }
        let Some(packet) = rest.take(length as usize) else { return };
        add_offers(from, packet, transaction);
        side.done = true;
        side.pending = vec![];
    }

    fn end(&mut self, from: End, transactions: &mut Vec<Transaction>) {
        let side = &mut self.sides[usize::from(from == End::Server)];
        if let Some(transaction) = self.only.end(from, transactions)
            && !side.has_banner
        {
            side.has_banner = add_banner(from, &std::mem::take(&mut side.pending), transaction);
        }
    }
}

/// Parses `SSH-2.0-software comments`; returns whether `line` is a banner.
fn add_banner(from: End, line: &[u8], transaction: &mut Transaction) -> bool {
    let Some(rest) = line.strip_prefix(b"SSH-") else { return false };
    let Some(dash) = memchr::memchr(b'-', rest) else { return false };
    let software = &rest[dash + 1..];
    let end = software
        .iter()
        .position(|octet| matches!(octet, b' ' | b'\r' | b'\n'))
        .unwrap_or(software.len());
    for (buffer, octets) in
        [(Buffer::SshProtocol, &rest[..dash]), (Buffer::SshSoftware, &software[..end])]
    {
        if !octets.is_empty() {
            transaction.buffers.push((buffer, from, octets.to_vec()));
        }
    }
    true
}

/// Adds HASSH and its input: key exchange algorithms, and ciphers, MACs and compressions for this
/// direction.
fn add_offers(from: End, packet: &[u8], transaction: &mut Transaction) -> Option<()> {
    let mut rest = Octets(packet);
    rest.skip(1)?;
    if rest.u8()? != 20 {
        return None;
    }
    rest.skip(16)?;
    let mut lists = vec![];
    for _ in 0..8 {
        let length = rest.u32()?;
        lists.push(rest.take(length as usize)?);
    }
    let own = usize::from(from == End::Server);
    let text = [lists[0], lists[2 + own], lists[4 + own], lists[6 + own]].join(&b';');
    let (hash, whole) = match from {
        End::Client => (Buffer::SshHassh, Buffer::SshHasshString),
        End::Server => (Buffer::SshHasshServer, Buffer::SshHasshServerString),
    };
    transaction.buffers.push((hash, from, md5_hexadecimal(&text)));
    transaction.buffers.push((whole, from, text));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_banner_is_protocol_and_software_and_the_offers_have_a_hash() {
        let mut stream = b"SSH-2.0-OpenSSH_9.6 Ubuntu-3\r\n".to_vec();
        let mut packet = vec![4, 20];
        packet.extend([0; 16]);
        for list in ["kex", "key", "c2s", "s2c", "m1", "m2", "z1", "z2"] {
            packet.extend((list.len() as u32).to_be_bytes());
            packet.extend(list.bytes());
        }
        stream.extend((packet.len() as u32).to_be_bytes());
        stream.extend(&packet);
        for size in [1, 5, 1000] {
            let (mut reader, mut transactions) = (Ssh::default(), vec![]);
            for piece in stream.chunks(size) {
                reader.receive(End::Client, piece, &mut transactions);
            }
            let get = |which: Buffer| {
                let found = transactions[0].buffers.iter().find(|(buffer, ..)| *buffer == which);
                String::from_utf8_lossy(&found.expect("it is there").2).into_owned()
            };
            assert_eq!(get(Buffer::SshProtocol), "2.0");
            assert_eq!(get(Buffer::SshSoftware), "OpenSSH_9.6");
            assert_eq!(get(Buffer::SshHasshString), "kex;c2s;m1;z1");
            assert_eq!(get(Buffer::SshHassh).len(), 32);
        }
    }
}
