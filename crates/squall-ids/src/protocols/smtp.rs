//! SMTP (RFC 5321): commands, and mail sent with DATA.

use std::collections::VecDeque;

use squall_rules::{Application, Buffer, End};

use super::mime::Mail;
use super::text::{Line, Lines, starts_caseless};
use super::{Reader, Transaction, Urgent, event};

/// Maximum number of commands that wait for a reply. Further ones are dropped.
const MAX_COMMANDS: usize = 1000;
// Bound on memory for untrusted traffic.
const MAX_TRANSACTIONS: usize = 256;

pub(super) struct Smtp {
    limit: usize,
    client: Lines,
    server: Lines,
    /// Commands that wait for a reply.
    waiting: VecDeque<Command>,
    greeted: bool,
    /// The server has announced PIPELINING (RFC 2920), so the client may send mail before the reply
    /// to DATA.
    pipelining: bool,
    /// Index of the open transaction.
    at: Option<usize>,
    opened: usize,
    mail: Option<Mail>,
    in_mail: bool,
    /// Octets left in a BDAT chunk.
    chunk_left: usize,
    is_tls: bool,
    switched: bool,
    urgent: Urgent,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Command {
    StartTls,
    Data,
    Other,
}

impl Smtp {
    pub fn new(limit: usize) -> Smtp {
        Smtp {
            limit,
            client: Lines::default(),
            server: Lines::default(),
            waiting: VecDeque::new(),
            greeted: false,
            pipelining: false,
            at: None,
            opened: 0,
            mail: None,
            in_mail: false,
            chunk_left: 0,
            is_tls: false,
            switched: false,
            urgent: Urgent::default(),
        }
    }
}

impl Reader for Smtp {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        if self.is_tls {
            return;
        }
        match from {
            End::Client => {
                self.client.push(octets);
                while let Some(line) = self.client.next() {
                    self.client_line(&line, transactions);
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
        if from == End::Client && !self.is_tls {
            if let Some(line) = self.client.rest() {
                self.client_line(&line, transactions);
            }
            self.end_of_mail(transactions);
        }
    }

    fn urgent(&mut self) -> Option<Urgent> {
        Some(std::mem::take(&mut self.urgent))
    }

    fn switched(&mut self) -> Option<Option<Application>> {
        std::mem::take(&mut self.switched).then_some(Some(Application::Tls))
    }
}

impl Smtp {
    fn client_line(&mut self, line: &Line, transactions: &mut Vec<Transaction>) {
        if self.in_mail {
            if self.chunk_left > 0 {
                self.chunk_left = self.chunk_left.saturating_sub(line.text.len() + line.end.len());
                self.mail_line(line, transactions);
                if self.chunk_left == 0 {
                    self.in_mail = false;
                }
            } else if line.text == b"." {
                self.end_of_mail(transactions);
            } else if line.text.starts_with(b".") {
                self.mail_line(
                    &Line { text: line.text[1..].to_vec(), end: line.end },
                    transactions,
                );
            } else {
                self.mail_line(line, transactions);
            }
            return;
        }
        self.urgent.command = true;
        let text = &line.text;
        let stays = starts_caseless(text, b"rset") || starts_caseless(text, b"quit");
        let is_open = self
            .at
            .and_then(|at| transactions.get(at))
            .is_some_and(|transaction| !transaction.done[0]);
        if self.at.is_none() || !is_open && !stays {
            if self.opened >= MAX_TRANSACTIONS {
                return;
            }
            self.opened += 1;
            self.at = Some(transactions.len());
            transactions.push(Transaction::default());
        }
        let Some(transaction) = self.at.and_then(|at| transactions.get_mut(at)) else { return };
        if !self.greeted {
            event(End::Client, "smtp.no_server_welcome_message", transaction);
        }
        let mut command = Command::Other;
        if starts_caseless(text, b"starttls") {
            command = Command::StartTls;
        } else if starts_caseless(text, b"data") {
            command = Command::Data;
            self.mail = Some(Mail::new(self.limit));
            self.in_mail = self.pipelining;
        } else if starts_caseless(text, b"bdat") {
            let length = String::from_utf8_lossy(&text[4..])
                .split_whitespace()
                .next()
                .and_then(|word| word.parse().ok());
            self.chunk_left = length.unwrap_or(0);
            self.in_mail = self.chunk_left > 0;
            if self.mail.is_none() {
                self.mail = Some(Mail::new(self.limit));
            }
        } else if starts_caseless(text, b"helo") || starts_caseless(text, b"ehlo") {
            add_buffer(Buffer::SmtpHelo, parameter(text, 4), transaction);
        } else if starts_caseless(text, b"mail from") {
            add_buffer(Buffer::SmtpMailFrom, parameter(text, 10), transaction);
        } else if starts_caseless(text, b"rcpt to") {
            add_buffer(Buffer::SmtpRcptTo, parameter(text, 8), transaction);
        } else if starts_caseless(text, b"rset") {
            transaction.done[0] = true;
            self.urgent.done = true;
        }
        if self.waiting.len() < MAX_COMMANDS {
            self.waiting.push_back(command);
        }
    }

    fn reply(&mut self, text: &[u8], transactions: &mut [Transaction]) {
        self.urgent.command = true;
        let code = text.get(..3).unwrap_or_default();
        let goes_on = text.get(3) == Some(&b'-');
        if !self.greeted {
            self.greeted = true;
            if code == b"220" {
                // The other lines of a greeting are not a reply to a command.
                self.greeted = !goes_on;
                return;
            }
        }
        if text.get(4..).is_some_and(|rest| rest.eq_ignore_ascii_case(b"pipelining")) {
            self.pipelining = true;
        }
        if goes_on {
            return;
        }
        let command = self.waiting.pop_front();
        match (command, code) {
            (Some(Command::StartTls), b"220") => {
                self.is_tls = true;
                self.switched = true;
            }
            (Some(Command::Data), b"354") => self.in_mail = self.mail.is_some(),
            (Some(Command::Data), _) => {
                if let Some(transaction) = self.at.and_then(|at| transactions.get_mut(at)) {
                    event(End::Server, "smtp.data_command_rejected", transaction);
                }
            }
            _ => {}
        }
    }

    fn mail_line(&mut self, line: &Line, transactions: &mut [Transaction]) {
        if let Some(mail) = &mut self.mail
            && let Some(transaction) = self.at.and_then(|at| transactions.get_mut(at))
        {
            let before = files(transaction);
            mail.line(line, transaction);
            self.urgent.file |= files(transaction) != before;
        }
    }

    fn end_of_mail(&mut self, transactions: &mut [Transaction]) {
        self.in_mail = false;
        if let Some(transaction) = self.at.and_then(|at| transactions.get_mut(at)) {
            if let Some(mut mail) = self.mail.take() {
                let before = files(transaction);
                mail.end(transaction);
                self.urgent.file |= files(transaction) != before;
                // The final dot is answered like a command.
                self.waiting.push_back(Command::Other);
            }
            transaction.done = [true, true];
            self.urgent.done = true;
        }
    }
}

/// Number of complete files.
fn files(transaction: &Transaction) -> usize {
    transaction.buffers.iter().filter(|(buffer, ..)| *buffer == Buffer::FileData).count()
}

/// The parameter after a command with `length` octets, up to the next blank.
fn parameter(text: &[u8], length: usize) -> &[u8] {
    let rest = text.get(length..).unwrap_or_default().trim_ascii_start();
    &rest[..rest.iter().position(|&octet| octet == b' ').unwrap_or(rest.len())]
}

fn add_buffer(buffer: Buffer, octets: &[u8], transaction: &mut Transaction) {
    if !octets.is_empty() {
        transaction.buffers.push((buffer, End::Client, octets.to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a dialog in pieces of `size` octets.
    fn read(script: &[(End, &str)], size: usize) -> (Smtp, Vec<Transaction>) {
        let (mut reader, mut transactions) = (Smtp::new(1000), vec![]);
        for (from, text) in script {
            for piece in text.as_bytes().chunks(size) {
                reader.receive(*from, piece, &mut transactions);
            }
        }
        reader.end(End::Client, &mut transactions);
        (reader, transactions)
    }

    const SESSION: &[(End, &str)] = &[
        (End::Server, "220-first\r\n220 mail ready\r\n"),
        (End::Client, "EHLO me.example extra\r\n"),
        (End::Server, "250-hello\r\n250 SIZE 1\r\n"),
        (End::Client, "MAIL FROM:<a@b> SIZE=3\r\n"),
        (End::Server, "250 ok\r\n"),
        (End::Client, "RCPT TO: <c@d>\r\nDATA\r\n"),
        (End::Server, "250 ok\r\n354 go\r\n"),
        (End::Client, "Subject: x\r\nContent-Type: a/b; name=f\r\n\r\nline\r\n..dot\r\n.\r\n"),
        (End::Server, "250 ok\r\n"),
        (End::Client, "QUIT\r\n"),
    ];

    #[test]
    fn a_mail_gives_its_envelope_its_headers_and_its_file_however_it_is_cut() {
        for size in [1, 3, 1000] {
            let (_, transactions) = read(SESSION, size);
            assert_eq!(transactions.len(), 1);
            let get = |which: Buffer| {
                let found = transactions[0].buffers.iter().find(|(buffer, ..)| *buffer == which);
                String::from_utf8_lossy(&found.expect("it is there").2).into_owned()
            };
            assert_eq!(get(Buffer::SmtpHelo), "me.example");
            assert_eq!(get(Buffer::SmtpMailFrom), "<a@b>");
            assert_eq!(get(Buffer::SmtpRcptTo), "<c@d>");
            assert_eq!(get(Buffer::EmailSubject), "x");
            assert_eq!(get(Buffer::FileData), "line\r\n.dot");
        }
    }

    #[test]
    fn without_the_servers_consent_no_mail_follows_data() {
        let script = [(End::Client, "EHLO a\r\nDATA\r\nSubject: x\r\n\r\nbody\r\n.\r\n")];
        let (_, transactions) = read(&script, 1000);
        assert!(transactions[0].buffers.iter().all(|(buffer, ..)| *buffer != Buffer::EmailSubject));
    }

    #[test]
    fn tls_follows_starttls() {
        let script = [
            (End::Server, "220 hi\r\n"),
            (End::Client, "EHLO a\r\n"),
            (End::Server, "250 ok\r\n"),
            (End::Client, "STARTTLS\r\n"),
            (End::Server, "220 go\r\n"),
        ];
        assert_eq!(read(&script, 1000).0.switched(), Some(Some(Application::Tls)));
    }
}
