//! Messages of protocols from the contents of their buffers.
//!
//! What is said is complete and as its standard has it, whatever of it the parts leave open is
//! usual; every octet of a part keeps its [`Origin`](crate::Origin), all that is put around it is
//! [`Framing`](crate::Origin::Framing). One file a protocol.

mod dce;
mod der;
mod dns;
mod fields;
pub mod http;
mod industrial;
mod kerberos;
mod ldap;
mod mail;
mod mqtt;
mod rpc;
mod sip;
mod small;
mod smb;
mod snmp;
mod ssh;
mod talk;
#[cfg(test)]
mod testing;
mod text;
mod tls;
mod uri;
pub mod variants;
mod websocket;

use squall_rules::{Application, ApplicationTest, Buffer, End};

use crate::{Octets, Turn};

/// What the messages must hold.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Each with who sends it, in the order of the rule; of a [`Buffer::is_multiple`] one perhaps
    /// several.
    ///
    /// A part is the whole of its buffer, but for [`Buffer::HttpHeader`],
    /// [`Buffer::HttpRawHeader`], [`Buffer::HttpHeaderNames`], [`Buffer::HttpStart`],
    /// [`Buffer::HttpRequestLine`] and their like for responses and single lines: those may begin
    /// and end in the middle of a line and are completed, and stand at the beginning of the buffer
    /// where they can ([`Style::block_last`]: at its end). A [`Buffer::Payload`] is put where its
    /// octets fit (a line, else a body).
    pub buffers: Vec<(Buffer, End, Octets)>,
    /// What buffers must not hold, whatever its case: a usual header line, banner or body that
    /// would is left out or made otherwise. No octets at all: there is no such buffer. Of a
    /// payload, all messages of that end.
    pub without: Vec<(Buffer, End, Vec<u8>)>,
    /// What messages must be beside their buffers: interfaces and operations of DCE/RPC, opcodes,
    /// versions, states.
    pub tests: Vec<ApplicationTest>,
    pub style: Style,
}

/// How what the parts leave open is chosen. The solver tries several where the usual one does not
/// match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Style {
    /// Header lines that nobody asks for.
    pub lines: Lines,
    /// A block of lines is the last of its headers, not the first.
    pub block_last: bool,
    /// Bodies of HTTP are sent in chunks.
    pub chunked: bool,
    /// Bodies of HTTP responses are compressed.
    pub gzip: bool,
    /// HTTP/1.0 instead of 1.1, as far as no part says otherwise.
    pub old: bool,
    /// A blank is put behind the colon of a header line that has none.
    pub spaced: bool,
    /// Requests are POST, where nobody says otherwise.
    pub posted: bool,
    /// Letters of URIs are sent as escapes.
    pub escaped: bool,
    /// The server does not answer the last request.
    pub unanswered: bool,
    /// What fills a body up to the length that was asked for stands before what is asked of it, not
    /// behind.
    pub filled_first: bool,
    /// How files of mails are encoded.
    pub mime: Mime,
    /// Messages are framed as their protocol frames them over TCP (DNS, SIP, Kerberos).
    pub over_tcp: bool,
}

impl Style {
    /// The `attempt`th style to try, from 0: the usual one first.
    pub fn nth(attempt: u32) -> Self {
        let usual = Style::default();
        let all = [
            usual,
            Style { lines: Lines::Few, spaced: true, filled_first: true, ..usual },
            Style { block_last: true, ..usual },
            Style { lines: Lines::None, block_last: true, filled_first: true, ..usual },
            Style { posted: true, ..usual },
            Style { escaped: true, ..usual },
            Style { old: true, lines: Lines::Few, ..usual },
            Style { mime: Mime::Plain, block_last: true, lines: Lines::Few, ..usual },
        ];
        all[attempt as usize % all.len()]
    }
}

/// How many header lines are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lines {
    #[default]
    Usual,
    /// What the standard asks for.
    Few,
    /// None.
    None,
}

/// How a file is sent in a mail (RFC 2045 §6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mime {
    #[default]
    Base64,
    QuotedPrintable,
    /// Only what is text of lines.
    Plain,
}

/// Why messages cannot hold that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Impossible(pub String);

/// What both ends say, and what they say beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembled {
    pub turns: Vec<Turn>,
    /// A second connection of the same ends, opened when all of the first was said (the file of
    /// FTP).
    pub beside: Option<Beside>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Beside {
    /// The first connection has announced it.
    pub server_port: u16,
    pub turns: Vec<Turn>,
}

/// A conversation of `application` whose buffers are `parts`, all else usual, in one connection.
pub fn assemble(application: Application, parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let all = assemble_all(application, parts)?;
    match all.beside {
        None => Ok(all.turns),
        Some(_) => Err(Impossible(format!("{application:?} needs a second connection"))),
    }
}

/// As [`assemble`], with a second connection where the protocol needs one.
pub fn assemble_all(application: Application, parts: &Parts) -> Result<Assembled, Impossible> {
    use Application::*;
    let turns = match application {
        Http | Http1 => http::conversation(parts),
        Dns | Mdns => dns::conversation(application, parts),
        Tls => tls::conversation(parts),
        Smtp | Pop3 | Imap => mail::conversation(application, parts),
        Ftp | Telnet | Nntp | Irc => text::conversation(application, parts),
        FtpData => return text::file(parts),
        Ssh => ssh::conversation(parts),
        Sip | Sdp => sip::conversation(parts),
        Dhcp => sip::fixed::dhcp(parts),
        Ntp => sip::fixed::ntp(parts),
        DceRpc => dce::conversation(parts),
        Smb => smb::conversation(parts),
        Krb5 => kerberos::conversation(parts),
        Snmp => snmp::conversation(parts),
        Ldap => ldap::conversation(parts),
        Nfs => rpc::conversation(parts),
        Mqtt => mqtt::conversation(parts),
        Modbus => industrial::modbus(parts),
        Dnp3 => industrial::dnp3(parts),
        Enip => industrial::enip(parts),
        Tftp => small::tftp(parts),
        Pgsql => small::pgsql(parts),
        Ike => small::ike(parts),
        Rfb => small::rfb(parts),
        Rdp => small::rdp(parts),
        BitTorrentDht => small::dht(parts),
        WebSocket => websocket::conversation(parts),
        Http2 => websocket::http2(parts),
        _ => Err(Impossible(format!("messages of {application:?} are not supported yet"))),
    };
    Ok(Assembled { turns: turns?, beside: None })
}

impl Parts {
    pub fn push(&mut self, buffer: Buffer, from: End, octets: Octets) {
        self.buffers.push((buffer, from, octets));
    }

    /// Those of one buffer, in their order.
    fn all(&self, buffer: Buffer, from: End) -> impl Iterator<Item = &Octets> {
        self.buffers
            .iter()
            .filter(move |part| part.0 == buffer && part.1 == from)
            .map(|part| &part.2)
    }

    /// The only one, or the first.
    fn get(&self, buffer: Buffer, from: End) -> Option<&Octets> {
        self.all(buffer, from).next()
    }

    fn sends(&self, from: End) -> bool {
        self.buffers.iter().any(|part| part.1 == from)
    }
}

/// Where `needle` begins in `octets`.
fn find(octets: &[u8], needle: &[u8]) -> Option<usize> {
    match needle {
        [] => Some(0),
        _ => octets.windows(needle.len()).position(|window| window == needle),
    }
}

fn contains(octets: &[u8], needle: &[u8]) -> bool {
    find(octets, needle).is_some()
}

/// In any case.
fn contains_nocase(octets: &[u8], needle: &[u8]) -> bool {
    needle.is_empty()
        || octets.windows(needle.len()).any(|window| window.eq_ignore_ascii_case(needle))
}

/// Parts of the same thing as one: a part that stands in another is not repeated.
fn merged<'a>(parts: impl Iterator<Item = &'a Octets>, between: &[u8]) -> Octets {
    let mut all = Octets::new();
    for part in parts {
        if contains(all.bytes(), part.bytes()) {
            continue;
        }
        if contains(part.bytes(), all.bytes()) {
            all = part.clone();
            continue;
        }
        all.append(&Octets::framing(between));
        all.append(part);
    }
    all
}
