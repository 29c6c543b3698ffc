//! FTP (RFC 959): commands with their replies, and files on data connections.

use squall_rules::{Application, Buffer, End};

use super::text::{Lines, word};
use super::{Expected, Reader, Transaction, number};

// Bound on memory for untrusted traffic.
const MAX_TRANSACTIONS: usize = 1024;

#[derive(Default)]
pub(super) struct Ftp {
    client: Lines,
    server: Lines,
    /// Index of the transaction to which the next reply belongs.
    awaiting_reply: Option<usize>,
    /// Indices of the transactions, in order.
    indices: Vec<usize>,
    /// Listener of the next data connection: the client after PORT, the server after PASV.
    data: Option<(End, u16)>,
    expected: Vec<Expected>,
    is_tls: bool,
    switched: bool,
}

impl Reader for Ftp {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        if self.is_tls {
            return;
        }
        match from {
            End::Client => {
                self.client.push(octets);
                while let Some(line) = self.client.next() {
                    self.command(&line.text, transactions);
                }
            }
            End::Server => {
                self.server.push(octets);
                while let Some(line) = self.server.next() {
                    self.reply(&line.text, transactions);
                }
            }
        }
    }

    fn end(&mut self, from: End, transactions: &mut Vec<Transaction>) {
        for at in &self.indices {
            if let Some(transaction) = transactions.get_mut(*at) {
                transaction.done[usize::from(from == End::Server)] = true;
            }
        }
    }

    fn switched(&mut self) -> Option<Option<Application>> {
        std::mem::take(&mut self.switched).then_some(Some(Application::Tls))
    }

    fn expected(&mut self) -> Vec<Expected> {
        std::mem::take(&mut self.expected)
    }
}

impl Ftp {
    fn command(&mut self, text: &[u8], transactions: &mut Vec<Transaction>) {
        if self.indices.len() >= MAX_TRANSACTIONS {
            return;
        }
        let (name, argument) = word(text);
        let mut transaction = Transaction { done: [true, false], ..Transaction::default() };
        if !name.is_empty() {
            transaction.buffers.push((Buffer::FtpCommand, End::Client, name.to_vec()));
        }
        if !argument.is_empty() {
            transaction.buffers.push((Buffer::FtpCommandData, End::Client, argument.to_vec()));
        }
        match &name.to_ascii_uppercase()[..] {
            b"PORT" => {
                if let Some((address, port)) = six_numbers(argument) {
                    number(End::Client, "ftp.dynamic_port", u64::from(port), &mut transaction);
                    number(End::Client, "ftp.address", u64::from(address), &mut transaction);
                    self.data = Some((End::Client, port));
                }
            }
            b"EPRT" => {
                if let Some(port) = extended_port(argument, 3) {
                    number(End::Client, "ftp.dynamic_port", u64::from(port), &mut transaction);
                    self.data = Some((End::Client, port));
                }
            }
            b"RETR" | b"STOR" => {
                if let Some((listener, port)) = self.data.take() {
                    self.expected.push(Expected {
                        application: Application::FtpData,
                        listener,
                        port,
                        command: name.to_ascii_uppercase(),
                        file: argument.to_vec(),
                    });
                }
            }
            _ => {}
        }
        self.awaiting_reply.get_or_insert(self.indices.len());
        self.indices.push(transactions.len());
        transactions.push(transaction);
    }

    fn reply(&mut self, text: &[u8], transactions: &mut Vec<Transaction>) {
        let Some(index) = self.awaiting_reply else {
            // A greeting or an unexpected reply is a transaction of its own.
            if self.indices.len() < MAX_TRANSACTIONS {
                let mut transaction = Transaction { done: [true, true], ..Transaction::default() };
                add_reply(text, &mut transaction);
                self.indices.push(transactions.len());
                transactions.push(transaction);
            }
            return;
        };
        let Some(transaction) = self.indices.get(index).and_then(|at| transactions.get_mut(*at))
        else {
            return;
        };
        add_reply(text, transaction);
        let command = transaction.buffers.iter().find(|(buffer, ..)| *buffer == Buffer::FtpCommand);
        let command = command.map_or(vec![], |(_, _, name)| name.to_ascii_uppercase());
        match (&command[..], text.get(..3).unwrap_or_default()) {
            (b"PASV", b"227") => {
                let open = memchr::memchr(b'(', text).map_or(0, |at| at + 1);
                if let Some((_, port)) = six_numbers(&text[open..]) {
                    number(End::Server, "ftp.dynamic_port", u64::from(port), transaction);
                    self.data = Some((End::Server, port));
                }
            }
            (b"EPSV", b"229") => {
                let open = memchr::memchr(b'(', text).map_or(0, |at| at + 1);
                if let Some(port) = extended_port(&text[open..], 3) {
                    number(End::Server, "ftp.dynamic_port", u64::from(port), transaction);
                    self.data = Some((End::Server, port));
                }
            }
            (b"AUTH", b"234") => {
                self.is_tls = true;
                self.switched = true;
            }
            _ => {}
        }
        let is_whole = text.len() >= 3
            && text[..3].iter().all(u8::is_ascii_digit)
            && text.get(3) != Some(&b'-');
        // 1yz is preliminary: another reply follows.
        if is_whole && text[0] != b'1' {
            transaction.done[1] = true;
            let next = index + 1;
            self.awaiting_reply = (next < self.indices.len()).then_some(next);
        }
    }
}

fn add_reply(text: &[u8], transaction: &mut Transaction) {
    number(End::Server, "ftp.reply_received", 1, transaction);
    let has_code = text.len() >= 3 && text[..3].iter().all(u8::is_ascii_digit);
    if has_code {
        transaction.buffers.push((Buffer::FtpCompletionCode, End::Server, text[..3].to_vec()));
    }
    let reply = if has_code { text.get(4..).unwrap_or_default() } else { text };
    if !reply.is_empty() {
        transaction.buffers.push((Buffer::FtpReply, End::Server, reply.to_vec()));
    }
}

/// Parses address and port from `h1,h2,h3,h4,p1,p2`.
fn six_numbers(text: &[u8]) -> Option<(u32, u16)> {
    let mut numbers = [0u8; 6];
    let mut parts = text.split(|octet| !octet.is_ascii_digit());
    for number in &mut numbers {
        *number = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    }
    let [a, b, c, d, high, low] = numbers;
    Some((u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([high, low])))
}

/// Parses the port, which is field `place` of `|1|address|port|` (RFC 2428).
fn extended_port(text: &[u8], place: usize) -> Option<u16> {
    let delimiter = *text.first()?;
    std::str::from_utf8(text.split(|&octet| octet == delimiter).nth(place)?).ok()?.parse().ok()
}

/// A data connection, which transfers one file.
pub(super) struct FtpData {
    limit: usize,
    expected: Option<Expected>,
    file: Vec<u8>,
    is_added: bool,
    at: Option<usize>,
}

impl FtpData {
    pub fn new(expected: Option<Expected>, limit: usize) -> FtpData {
        FtpData { limit, expected, file: vec![], is_added: false, at: None }
    }

    fn add_buffer(&mut self, from: End, transactions: &mut [Transaction]) {
        let Some(transaction) = self.at.and_then(|at| transactions.get_mut(at)) else { return };
        if !self.is_added {
            self.is_added = true;
            let file = std::mem::take(&mut self.file);
            number(from, "file.size", file.len() as u64, transaction);
            transaction.buffers.push((Buffer::FileData, from, file));
        }
    }
}

impl Reader for FtpData {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        if self.at.is_none() {
            self.at = Some(transactions.len());
            let mut transaction = Transaction::default();
            if let Some(expected) = &self.expected {
                let command = expected.command.to_ascii_lowercase();
                for end in [End::Client, End::Server] {
                    transaction.buffers.push((Buffer::FtpDataCommand, end, command.clone()));
                }
                if !expected.file.is_empty() {
                    transaction.buffers.push((Buffer::FileName, from, expected.file.clone()));
                }
            }
            transactions.push(transaction);
        }
        if !self.is_added {
            let room = self.limit.saturating_sub(self.file.len());
            self.file.extend_from_slice(&octets[..octets.len().min(room)]);
            if self.file.len() >= self.limit {
                self.add_buffer(from, transactions);
            }
        }
    }

    fn end(&mut self, from: End, transactions: &mut Vec<Transaction>) {
        if !self.file.is_empty() {
            self.add_buffer(from, transactions);
        }
        if let Some(transaction) = self.at.and_then(|at| transactions.get_mut(at)) {
            transaction.done[usize::from(from == End::Server)] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_command_and_its_replies_belong_together() {
        let (mut reader, mut transactions) = (Ftp::default(), vec![]);
        for (from, text) in [
            (End::Server, "220 hi\r\n"),
            (End::Client, "USER me\r\n"),
            (End::Server, "331-a\r\n331 b\r\n"),
            (End::Client, "LIST\r\n"),
            (End::Server, "150 c\r\n226 d\r\n"),
        ] {
            reader.receive(from, text.as_bytes(), &mut transactions);
        }
        assert_eq!(transactions.len(), 3);
        assert_eq!(all(&transactions[1], Buffer::FtpCommand), ["USER"]);
        assert_eq!(all(&transactions[1], Buffer::FtpCommandData), ["me"]);
        assert_eq!(all(&transactions[1], Buffer::FtpReply), ["a", "b"]);
        assert_eq!(all(&transactions[2], Buffer::FtpCompletionCode), ["150", "226"]);
    }

    #[test]
    fn a_file_is_expected_at_the_port_of_port_or_pasv() {
        let (mut reader, mut transactions) = (Ftp::default(), vec![]);
        reader.receive(End::Client, b"PORT 10,0,0,1,4,1\r\nSTOR up.txt\r\n", &mut transactions);
        let expected = reader.expected();
        assert_eq!(
            (expected[0].listener, expected[0].port, &expected[0].file[..]),
            (End::Client, 1025, &b"up.txt"[..])
        );
        let (mut reader, mut transactions) = (Ftp::default(), vec![]);
        for (from, text) in [
            (End::Client, "PASV\r\n"),
            (End::Server, "227 Entering Passive Mode (10,0,0,2,8,0)\r\n"),
            (End::Client, "RETR down\r\n"),
        ] {
            reader.receive(from, text.as_bytes(), &mut transactions);
        }
        let expected = reader.expected();
        assert_eq!((expected[0].listener, expected[0].port), (End::Server, 2048));
        let (mut reader, mut transactions) =
            (FtpData::new(expected.into_iter().next(), 100), vec![]);
        reader.receive(End::Server, b"con", &mut transactions);
        reader.receive(End::Server, b"tent", &mut transactions);
        reader.end(End::Server, &mut transactions);
        assert_eq!(all(&transactions[0], Buffer::FileData), ["content"]);
        assert_eq!(all(&transactions[0], Buffer::FileName), ["down"]);
    }
}
