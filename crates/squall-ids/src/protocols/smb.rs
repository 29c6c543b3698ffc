//! SMB 1 and 2 over NetBIOS sessions: shares, pipes and the calls in them, files, logins.

use std::collections::HashMap;

use squall_rules::{Buffer, End};

use super::dce::{Calls, fragment_length};
use super::octets::{Octets, Records};
use super::{Reader, Transaction, number};

// Bounds on memory for untrusted traffic.
const MAX_TRANSACTIONS: usize = 1024;
const MAX_RECORD_LEN: usize = 1024 * 1024;
const MAX_OPEN: usize = 1024;
/// FSCTL_PIPE_TRANSCEIVE
const PIPE_TRANSCEIVE: u32 = 0x0011_c017;

pub(super) struct Smb {
    limit: usize,
    sides: [Records; 2],
    opened: usize,
    /// Tree IDs of IPC shares, whose files are pipes.
    pipes: Vec<u32>,
    /// Requests whose effect depends on the response, by message ID.
    requests: HashMap<u64, Request>,
    files: HashMap<Vec<u8>, File>,
    calls: Calls,
    /// Fragments of calls that are split over several writes or reads.
    fragments: [Records; 2],
}

enum Request {
    Tree { at: usize, name: Vec<u8> },
    Create { name: Vec<u8> },
    Read { id: Vec<u8>, is_pipe: bool },
}

#[derive(Default)]
struct File {
    name: Vec<u8>,
    is_pipe: bool,
    /// The end that writes the file, the octets so far, and the index of its transaction.
    content: Option<(End, Vec<u8>, usize)>,
    is_added: bool,
}

impl Smb {
    pub fn new(limit: usize) -> Smb {
        Smb {
            limit,
            sides: Default::default(),
            opened: 0,
            pipes: vec![],
            requests: HashMap::new(),
            files: HashMap::new(),
            calls: Calls::default(),
            fragments: Default::default(),
        }
    }
}

impl Reader for Smb {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        let side = usize::from(from == End::Server);
        self.sides[side].push(octets);
        let length =
            |octets: &[u8]| Octets(octets.get(1..)?).u24().map(|length| 4 + length as usize);
        while let Some(record) = self.sides[side].next(MAX_RECORD_LEN, length) {
            if record[0] != 0 {
                continue;
            }
            let message = &record[4.min(record.len())..];
            // Fields parsed before the message ends or becomes invalid are kept.
            let _ = match message.first() {
                Some(0xff) => self.version_1(from, message, transactions),
                Some(0xfe) => self.version_2(from, message, transactions),
                _ => None,
            };
        }
    }

    fn end(&mut self, from: End, transactions: &mut Vec<Transaction>) {
        let ids: Vec<Vec<u8>> = self.files.keys().cloned().collect();
        for id in ids {
            if self.files[&id].content.as_ref().is_some_and(|(writer, ..)| *writer == from) {
                self.add_file(&id, transactions);
            }
        }
    }
}

/// SMB 1.
impl Smb {
    fn version_1(
        &mut self,
        from: End,
        message: &[u8],
        transactions: &mut Vec<Transaction>,
    ) -> Option<()> {
        let header = message.get(..32)?;
        let command = header[4];
        let is_unicode = header[11] & 0x80 != 0;
        let tree = u32::from(u16::from_le_bytes([header[24], header[25]]));
        let id = u64::from(u16::from_le_bytes([header[30], header[31]])) | u64::from(command) << 32;
        let is_ok = header[5..9] == [0; 4];
        let mut rest = Octets(&message[32..]);
        let count = usize::from(rest.u8()?);
        let words = rest.take(2 * count)?;
        let bytes_at = message.len() - rest.len() + 2;
        let bytes = message.get(bytes_at..).unwrap_or_default();
        let word = |index: usize| {
            words.get(2 * index..2 * index + 2).map(|word| u16::from_le_bytes([word[0], word[1]]))
        };
        let text = |octets: &[u8], at: usize| text_at(octets, bytes_at + at, is_unicode);
        if from == End::Client {
            let at = self.open(1, transactions)?;
            let transaction = transactions.get_mut(at)?;
            match command {
                // TREE_CONNECT_ANDX
                0x75 => {
                    let name = text(bytes.get(usize::from(word(3)?)..)?, usize::from(word(3)?));
                    add_buffer(Buffer::SmbShare, from, &name, transaction);
                    self.await_response(id, Request::Tree { at, name });
                }
                // SESSION_SETUP_ANDX
                0x73 => add_login(bytes, transaction),
                // NT_CREATE_ANDX
                0xa2 => self.await_response(id, Request::Create { name: text(bytes, 0) }),
                // OPEN_ANDX
                0x2d => self.await_response(id, Request::Create { name: text(bytes, 0) }),
                // WRITE_ANDX
                0x2f => {
                    let file = word(2)?.to_le_bytes().to_vec();
                    let length = usize::from(word(10)?) | usize::from(word(9)?) << 16;
                    let data = from_offset(message, usize::from(word(11)?), length)?;
                    self.data(from, file, tree, data, at, transactions);
                }
                // READ_ANDX
                0x2e => {
                    let id_of_file = word(2)?.to_le_bytes().to_vec();
                    let is_pipe = self.is_pipe(&id_of_file, tree);
                    self.await_response(id, Request::Read { id: id_of_file, is_pipe });
                }
                // CLOSE
                0x04 => {
                    let file = word(0)?.to_le_bytes().to_vec();
                    self.close(&file, transactions);
                }
                // TRANSACTION: on a pipe if the first setup word is TransactNmPipe.
                0x25 => {
                    let data =
                        from_offset(message, usize::from(word(12)?), usize::from(word(11)?))?;
                    if word(14) == Some(0x26) {
                        self.pipe(from, data, transactions);
                    }
                }
                _ => {}
            }
            return Some(());
        }
        match (command, self.requests.remove(&id)) {
            (0x75, Some(Request::Tree { at, name })) if is_ok => {
                let service = bytes.split(|&octet| octet == 0).next().unwrap_or_default();
                self.tree(at, tree, service == b"IPC", &name, transactions);
            }
            (0xa2, Some(Request::Create { name })) if is_ok => {
                let id = words.get(5..7)?.to_vec();
                self.create(id, tree, name);
            }
            (0x2d, Some(Request::Create { name })) if is_ok => {
                self.create(word(2)?.to_le_bytes().to_vec(), tree, name)
            }
            (0x2e, Some(Request::Read { id, is_pipe })) => {
                let data = from_offset(message, usize::from(word(6)?), usize::from(word(5)?))?;
                self.read_answer(id, is_pipe, data, transactions);
            }
            (0x25, _) => {
                let data = from_offset(message, usize::from(word(7)?), usize::from(word(6)?))?;
                self.pipe(from, data, transactions);
            }
            _ => {}
        }
        Some(())
    }
}

/// SMB 2 and 3.
impl Smb {
    fn version_2(
        &mut self,
        from: End,
        message: &[u8],
        transactions: &mut Vec<Transaction>,
    ) -> Option<()> {
        let mut message = message;
        loop {
            let header = message.get(..64)?;
            if &header[..4] != b"\xfeSMB" {
                return None;
            }
            let next = u32::from_le_bytes(header[20..24].try_into().ok()?) as usize;
            let one = if next == 0 { message } else { message.get(..next)? };
            // An invalid message does not affect the others in the compound.
            let _ = self.version_2_one(from, one, transactions);
            if next < 64 {
                return Some(());
            }
            message = message.get(next..)?;
        }
    }

    fn version_2_one(
        &mut self,
        from: End,
        message: &[u8],
        transactions: &mut Vec<Transaction>,
    ) -> Option<()> {
        let header = message.get(..64)?;
        let command = u16::from_le_bytes([header[12], header[13]]);
        let is_ok = header[8..12] == [0; 4];
        let id = u64::from_le_bytes(header[24..32].try_into().ok()?);
        let tree = u32::from_le_bytes(header[36..40].try_into().ok()?);
        let body = &message[64..];
        let u16_at = |at: usize| {
            body.get(at..at + 2)
                .map(|octets| usize::from(u16::from_le_bytes([octets[0], octets[1]])))
        };
        let u32_at = |at: usize| {
            body.get(at..at + 4).and_then(|octets| octets.try_into().ok()).map(u32::from_le_bytes)
        };
        if from == End::Client {
            let at = self.open(2, transactions)?;
            let transaction = transactions.get_mut(at)?;
            match command {
                // SESSION_SETUP
                1 => add_login(from_offset(message, u16_at(12)?, u16_at(14)?)?, transaction),
                // TREE_CONNECT
                3 => {
                    let name = unicode(from_offset(message, u16_at(4)?, u16_at(6)?)?);
                    add_buffer(Buffer::SmbShare, from, &name, transaction);
                    self.await_response(id, Request::Tree { at, name });
                }
                // CREATE
                5 => {
                    let name = unicode(from_offset(message, u16_at(44)?, u16_at(46)?)?);
                    self.await_response(id, Request::Create { name });
                }
                // CLOSE
                6 => {
                    let file = body.get(8..24)?.to_vec();
                    self.close(&file, transactions);
                }
                // READ
                8 => {
                    let file = body.get(16..32)?.to_vec();
                    let is_pipe = self.is_pipe(&file, tree);
                    self.await_response(id, Request::Read { id: file, is_pipe });
                }
                // WRITE
                9 => {
                    let data = from_offset(message, u16_at(2)?, u32_at(4)? as usize)?;
                    let file = body.get(16..32)?.to_vec();
                    self.data(from, file, tree, data, at, transactions);
                }
                // IOCTL
                11 if u32_at(4)? == PIPE_TRANSCEIVE => {
                    let data = from_offset(message, u32_at(24)? as usize, u32_at(28)? as usize)?;
                    self.pipe(from, data, transactions);
                }
                _ => {}
            }
            return Some(());
        }
        match (command, self.requests.remove(&id)) {
            (3, Some(Request::Tree { at, name })) if is_ok => {
                let is_pipe = body.get(2) == Some(&2);
                self.tree(at, tree, is_pipe, &name, transactions);
            }
            (5, Some(Request::Create { name })) if is_ok => {
                let file = body.get(64..80)?.to_vec();
                self.create(file, tree, name);
            }
            (8, Some(Request::Read { id, is_pipe })) => {
                let data = from_offset(message, usize::from(*body.get(2)?), u32_at(4)? as usize)?;
                self.read_answer(id, is_pipe, data, transactions);
            }
            (11, _) if u32_at(4)? == PIPE_TRANSCEIVE => {
                let data = from_offset(message, u32_at(32)? as usize, u32_at(36)? as usize)?;
                self.pipe(from, data, transactions);
            }
            _ => {}
        }
        Some(())
    }
}

/// Parts that both versions share.
impl Smb {
    fn open(&mut self, version: u64, transactions: &mut Vec<Transaction>) -> Option<usize> {
        if self.opened >= MAX_TRANSACTIONS {
            return None;
        }
        self.opened += 1;
        let mut transaction = Transaction { done: [true, false], ..Transaction::default() };
        number(End::Client, "smb.version", version, &mut transaction);
        number(End::Server, "smb.version", version, &mut transaction);
        transactions.push(transaction);
        Some(transactions.len() - 1)
    }

    fn await_response(&mut self, id: u64, requests: Request) {
        if self.requests.len() < MAX_OPEN {
            self.requests.insert(id, requests);
        }
    }

    fn tree(
        &mut self,
        at: usize,
        tree: u32,
        is_pipe: bool,
        name: &[u8],
        transactions: &mut [Transaction],
    ) {
        let Some(transaction) = transactions.get_mut(at) else { return };
        self.pipes.retain(|pipe| *pipe != tree);
        let buffer = if is_pipe { Buffer::SmbNamedPipe } else { Buffer::SmbShare };
        if is_pipe {
            if self.pipes.len() < MAX_OPEN {
                self.pipes.push(tree);
            }
            add_buffer(buffer, End::Client, name, transaction);
        }
        add_buffer(buffer, End::Server, name, transaction);
        transaction.done[1] = true;
    }

    fn create(&mut self, id: Vec<u8>, tree: u32, name: Vec<u8>) {
        if self.files.len() < MAX_OPEN {
            let is_pipe = self.pipes.contains(&tree);
            self.files.insert(id, File { name, is_pipe, ..File::default() });
        }
    }

    fn is_pipe(&self, id: &[u8], tree: u32) -> bool {
        self.files.get(id).is_some_and(|file| file.is_pipe) || self.pipes.contains(&tree)
    }

    /// Parses data on a pipe: a call or part of a call.
    fn pipe(&mut self, from: End, data: &[u8], transactions: &mut Vec<Transaction>) {
        let side = usize::from(from == End::Server);
        self.fragments[side].push(data);
        while let Some(fragment) = self.fragments[side].next(usize::from(u16::MAX), fragment_length)
        {
            if fragment[0] != 5 {
                self.fragments[side].clear();
                return;
            }
            self.calls.fragment(from, &fragment, transactions);
        }
    }

    fn read_answer(
        &mut self,
        id: Vec<u8>,
        is_pipe: bool,
        data: &[u8],
        transactions: &mut Vec<Transaction>,
    ) {
        if is_pipe {
            self.pipe(End::Server, data, transactions);
        } else if let Some(at) = self.open_for_file(&id, transactions) {
            self.data(End::Server, id, u32::MAX, data, at, transactions);
        }
    }

    /// Index of a file's transaction, created if necessary.
    fn open_for_file(&mut self, id: &[u8], transactions: &mut Vec<Transaction>) -> Option<usize> {
        match self.files.get(id).and_then(|file| file.content.as_ref()) {
            Some((_, _, at)) => Some(*at),
            None => self.open(0, transactions),
        }
    }

    fn data(
        &mut self,
        from: End,
        id: Vec<u8>,
        tree: u32,
        data: &[u8],
        at: usize,
        transactions: &mut Vec<Transaction>,
    ) {
        // If the tree is unknown, data that resembles a call is treated as one.
        let looks_like_call =
            data.len() >= 16 && data[0] == 5 && data[1] == 0 && !self.files.contains_key(&id);
        if self.is_pipe(&id, tree) || looks_like_call {
            return self.pipe(from, data, transactions);
        }
        if self.files.len() >= MAX_OPEN && !self.files.contains_key(&id) {
            return;
        }
        let limit = self.limit;
        let file = self.files.entry(id.clone()).or_default();
        if file.is_added {
            return;
        }
        if file.content.is_none()
            && !file.name.is_empty()
            && let Some(transaction) = transactions.get_mut(at)
        {
            add_buffer(Buffer::FileName, from, &file.name, transaction);
        }
        let (_, content, _) = file.content.get_or_insert_with(|| (from, vec![], at));
        let room = limit.saturating_sub(content.len());
        content.extend_from_slice(&data[..data.len().min(room)]);
        if content.len() >= limit {
            self.add_file(&id, transactions);
        }
    }

    fn close(&mut self, id: &[u8], transactions: &mut [Transaction]) {
        self.add_file(id, transactions);
        self.files.remove(id);
    }

    fn add_file(&mut self, id: &[u8], transactions: &mut [Transaction]) {
        if let Some(file) = self.files.get_mut(id)
            && let Some((from, content, at)) = file.content.take()
            && !file.is_added
            && let Some(transaction) = transactions.get_mut(at)
        {
            file.is_added = true;
            number(from, "file.size", content.len() as u64, transaction);
            transaction.buffers.push((Buffer::FileData, from, content));
        }
    }
}

fn add_buffer(buffer: Buffer, from: End, octets: &[u8], transaction: &mut Transaction) {
    if !octets.is_empty() {
        transaction.buffers.push((buffer, from, octets.to_vec()));
    }
}

/// Up to `length` octets at `offset` from the start of the message.
fn from_offset(message: &[u8], offset: usize, length: usize) -> Option<&[u8]> {
    let rest = message.get(offset..)?;
    Some(&rest[..length.min(rest.len())])
}

/// A text terminated by zero. In UTF-16 it is aligned to an even offset of the message. `at` is the
/// offset of `octets` in the message.
fn text_at(octets: &[u8], at: usize, is_unicode: bool) -> Vec<u8> {
    if !is_unicode {
        return octets.split(|&octet| octet == 0).next().unwrap_or_default().to_vec();
    }
    let octets = if at % 2 == 1 { octets.get(1..).unwrap_or_default() } else { octets };
    let end = octets
        .chunks_exact(2)
        .position(|pair| pair == [0, 0])
        .map_or(octets.len(), |pairs| 2 * pairs);
    unicode(&octets[..end])
}

/// Converts UTF-16LE to UTF-8.
fn unicode(octets: &[u8]) -> Vec<u8> {
    let units: Vec<u16> =
        octets.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    String::from_utf16_lossy(&units).into_bytes()
}

/// User and domain in the AUTHENTICATE message of NTLMSSP (MS-NLMP §2.2.1.3).
fn add_login(octets: &[u8], transaction: &mut Transaction) {
    let Some(start) = memchr::memmem::find(octets, b"NTLMSSP\0\x03\0\0\0") else { return };
    let message = &octets[start..];
    let is_unicode = message.get(60).is_some_and(|flags| flags & 1 != 0);
    for (buffer, at) in [(Buffer::SmbNtlmDomain, 28), (Buffer::SmbNtlmUser, 36)] {
        let mut field = Octets(message.get(at..).unwrap_or_default());
        let (Some(length), Some(_), Some(offset)) =
            (field.u16_le(), field.u16_le(), field.u32_le())
        else {
            continue;
        };
        let Some(text) =
            message.get(offset as usize..).and_then(|rest| rest.get(..usize::from(length)))
        else {
            continue;
        };
        let text = if is_unicode { unicode(text) } else { text.to_vec() };
        add_buffer(buffer, End::Client, &text, transaction);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::dce::samples::{UUID, bind, bind_ack, request};
    use super::super::{Fact, FactIs};
    use super::*;

    fn framed(message: &[u8]) -> Vec<u8> {
        [&(message.len() as u32).to_be_bytes()[..], message].concat()
    }

    fn version_1(command: u8, is_reply: bool, id: u8, words: &[u8], bytes: &[u8]) -> Vec<u8> {
        let mut message = b"\xffSMB".to_vec();
        message.push(command);
        message.extend([0; 4]);
        message.push(if is_reply { 0x80 } else { 0 });
        message.extend([0, 0]);
        message.extend([0; 12]);
        message.extend([7, 0, 0, 0, 0, 0, id, 0]);
        message.push((words.len() / 2) as u8);
        message.extend(words);
        message.extend((bytes.len() as u16).to_le_bytes());
        message.extend(bytes);
        framed(&message)
    }

    fn write_1(file: u8, data: &[u8]) -> Vec<u8> {
        let mut words = vec![0xff, 0, 0, 0, file, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        words.extend((data.len() as u16).to_le_bytes());
        words.extend([59, 0]);
        version_1(0x2f, false, 9, &words, data)
    }

    fn read_1(id: u8, file: u8, data: &[u8]) -> [(End, Vec<u8>); 2] {
        let request = version_1(0x2e, false, id, &[0xff, 0, 0, 0, file, 0], b"");
        let mut words = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        words.extend((data.len() as u16).to_le_bytes());
        words.extend([49, 0]);
        [(End::Client, request), (End::Server, version_1(0x2e, true, id, &words, data))]
    }

    fn play(script: &[(End, Vec<u8>)], size: usize) -> Vec<Transaction> {
        let (mut reader, mut transactions) = (Smb::new(1000), vec![]);
        for (from, octets) in script {
            for piece in octets.chunks(size) {
                reader.receive(*from, piece, &mut transactions);
            }
        }
        reader.end(End::Client, &mut transactions);
        reader.end(End::Server, &mut transactions);
        transactions
    }

    fn all(transactions: &[Transaction], which: Buffer) -> Vec<String> {
        let text = |octets: &Vec<u8>| String::from_utf8_lossy(octets).into_owned();
        let buffers = transactions.iter().flat_map(|transaction| &transaction.buffers);
        buffers.filter(|(buffer, ..)| *buffer == which).map(|(_, _, octets)| text(octets)).collect()
    }

    #[test]
    fn calls_in_a_pipe_of_version_1_are_read_however_they_are_cut() {
        let connect =
            version_1(0x75, false, 1, &[0xff, 0, 0, 0, 0, 0, 0, 0], b"\\\\H\\IPC$\0?????\0");
        let connected = version_1(0x75, true, 1, &[0xff, 0, 0, 0, 0, 0], b"IPC\0");
        let mut script = vec![
            (End::Client, connect),
            (End::Server, connected),
            (End::Client, write_1(1, &bind(true))),
        ];
        script.extend(read_1(4, 1, &bind_ack(true, 0)));
        script.push((End::Client, write_1(1, &request(true, 3, 15, b"stub"))));
        for size in [1, 11, 10_000] {
            let transactions = play(&script, size);
            assert_eq!(all(&transactions, Buffer::SmbNamedPipe), ["\\\\H\\IPC$", "\\\\H\\IPC$"]);
            assert_eq!(all(&transactions, Buffer::DceStubData), ["stub"]);
            let is = FactIs::DceInterface { uuid: UUID, version: 3 };
            let fact = Fact { of: End::Client, is };
            assert!(transactions.iter().any(|transaction| transaction.facts.contains(&fact)));
        }
    }

    #[test]
    fn data_written_to_a_share_is_a_file() {
        let connect =
            version_1(0x75, false, 1, &[0xff, 0, 0, 0, 0, 0, 0, 0], b"\\\\H\\C$\0?????\0");
        let connected = version_1(0x75, true, 1, &[0xff, 0, 0, 0, 0, 0], b"A:\0");
        let create = version_1(0xa2, false, 2, &[0; 48], b"\\a.exe\0");
        let mut words = [0; 68];
        words[5] = 5;
        let created = version_1(0xa2, true, 2, &words, b"");
        let script = [
            (End::Client, connect),
            (End::Server, connected),
            (End::Client, create),
            (End::Server, created),
            (End::Client, write_1(5, b"con")),
            (End::Client, write_1(5, b"tent")),
            (End::Client, version_1(0x04, false, 3, &[5, 0, 0, 0, 0, 0], b"")),
        ];
        let transactions = play(&script, 10_000);
        assert_eq!(all(&transactions, Buffer::SmbShare), ["\\\\H\\C$", "\\\\H\\C$"]);
        assert_eq!(all(&transactions, Buffer::FileName), ["\\a.exe"]);
        assert_eq!(all(&transactions, Buffer::FileData), ["content"]);
    }

    fn version_2(command: u8, id: u8, body: &[u8]) -> Vec<u8> {
        let mut message = b"\xfeSMB\x40\0".to_vec();
        message.extend([0; 6]);
        message.extend([command, 0]);
        message.extend([0; 10]);
        message.push(id);
        message.extend([0; 39]);
        message.extend(body);
        framed(&message)
    }

    #[test]
    fn version_2_has_shares_pipes_and_files_too() {
        let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let share = wide("\\\\H\\IPC$");
        let connect = [&[9, 0, 0, 0, 72, 0, share.len() as u8, 0][..], &share].concat();
        let mut ioctl = vec![57, 0, 0, 0, 0x17, 0xc0, 0x11, 0];
        ioctl.extend([0; 16]);
        let data = request(true, 3, 4, b"two");
        ioctl.extend([120, 0, 0, 0, data.len() as u8, 0, 0, 0]);
        ioctl.extend([0; 24]);
        ioctl.extend(&data);
        let script = [
            (End::Client, version_2(3, 1, &connect)),
            (End::Server, version_2(3, 1, &[16, 0, 2, 0, 0, 0, 0, 0])),
            (End::Client, version_2(11, 2, &ioctl)),
        ];
        let transactions = play(&script, 10_000);
        assert_eq!(all(&transactions, Buffer::SmbNamedPipe), ["\\\\H\\IPC$", "\\\\H\\IPC$"]);
        assert_eq!(all(&transactions, Buffer::DceStubData), ["two"]);
    }

    proptest! {
        #[test]
        fn any_octets_are_read(command in any::<u8>(), words in proptest::collection::vec(any::<u8>(), 0..80), bytes in proptest::collection::vec(any::<u8>(), 0..120), server in any::<bool>()) {
            let from = if server { End::Server } else { End::Client };
            let words = &words[..words.len() / 2 * 2];
            play(&[(End::Client, version_1(command, false, 1, words, &bytes)), (from, version_1(command, server, 1, words, &bytes)), (from, version_2(command % 20, 1, &bytes)), (from, bytes)], 50);
        }
    }
}
