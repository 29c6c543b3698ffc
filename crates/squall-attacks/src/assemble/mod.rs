//! Assembles messages of protocols from the contents of their buffers.
//!
//! Messages are complete and conform to their standards. Fields that the parts leave open have
//! usual values. Octets of a part keep their [`Origin`](crate::Origin); octets added around them
//! are [`Framing`](crate::Origin::Framing). There is one file per protocol.

mod dce;
mod der;
mod dialog;
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
#[cfg(test)]
mod testing;
mod text;
mod tls;
mod uri;
pub mod variants;
mod websocket;

use squall_rules::{Application, ApplicationTest, Buffer, End};

use crate::{Octets, Turn};

/// The required contents of messages.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Buffers with their sender, in the order of the rule. A buffer with [`Buffer::is_multiple`]
    /// may occur several times.
    ///
    /// A part is the whole buffer, except for [`Buffer::HttpHeader`], [`Buffer::HttpRawHeader`],
    /// [`Buffer::HttpHeaderNames`], [`Buffer::HttpStart`], [`Buffer::HttpRequestLine`] and similar
    /// buffers for responses and single lines. Parts for those may start and end within a line;
    /// they are completed, and placed at the start of the buffer if possible
    /// ([`Style::block_last`]: at its end). A [`Buffer::Payload`] is placed wherever its octets
    /// fit: in a line, otherwise in a body.
    pub buffers: Vec<(Buffer, End, Octets)>,
    /// Contents that must not occur in a buffer, ignoring case. A default header line, banner or
    /// body that contains them is omitted or replaced. Empty contents mean that the buffer must not
    /// exist. For a payload, this applies to all messages from that end.
    pub without: Vec<(Buffer, End, Vec<u8>)>,
    /// Requirements other than buffers: interfaces and operations of DCE/RPC, opcodes, versions,
    /// states.
    pub tests: Vec<ApplicationTest>,
    pub style: Style,
}

/// Choices that the parts leave open. If the default does not match, the solver tries several
/// styles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Style {
    /// Header lines that no part requires.
    pub lines: Lines,
    /// Put a block of lines at the end of the headers instead of the start.
    pub block_last: bool,
    /// Send HTTP bodies in chunks.
    pub chunked: bool,
    /// Compress bodies of HTTP responses.
    pub gzip: bool,
    /// HTTP/1.0 instead of 1.1, unless a part requires another version.
    pub old: bool,
    /// Add a missing blank after the colon of a header line.
    pub spaced: bool,
    /// Use POST, unless a part requires another method.
    pub posted: bool,
    /// Escape letters of URIs.
    pub escaped: bool,
    /// Omit the response to the last request.
    pub unanswered: bool,
    /// In a body with a required length, put the filler before the required octets instead of after
    /// them.
    pub filled_first: bool,
    /// Encoding of files in mail messages.
    pub mime: Mime,
    /// Use the framing for TCP (DNS, SIP, Kerberos).
    pub over_tcp: bool,
}

impl Style {
    /// Style number `attempt` to try, from 0. The default style comes first.
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

/// Which header lines to add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lines {
    #[default]
    Usual,
    /// Only lines that the standard requires.
    Few,
    /// No additional lines.
    None,
}

/// Encoding of a file in a mail (RFC 2045 §6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mime {
    #[default]
    Base64,
    QuotedPrintable,
    /// Unencoded, for text lines only.
    Plain,
}

/// The reason why no messages can have these contents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Impossible(pub String);

/// The data that both ends send, with an optional second connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembled {
    pub turns: Vec<Turn>,
    /// A second connection between the same ends, opened after all data of the first has been sent
    /// (an FTP transfer).
    pub second: Option<SecondConnection>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SecondConnection {
    /// The port announced in the first connection.
    pub server_port: u16,
    pub turns: Vec<Turn>,
}

/// A conversation of `application` in one connection, with the buffers in `parts` and default
/// values for the rest.
pub fn assemble(application: Application, parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let all = assemble_all(application, parts)?;
    match all.second {
        None => Ok(all.turns),
        Some(_) => Err(Impossible(format!("{application} needs a second connection"))),
    }
}

/// Like [`assemble`], but with a second connection if the protocol needs one.
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
        _ => Err(Impossible(format!("messages of {application} are not supported yet"))),
    };
    Ok(Assembled { turns: turns?, second: None })
}

impl Parts {
    pub fn push(&mut self, buffer: Buffer, from: End, octets: Octets) {
        self.buffers.push((buffer, from, octets));
    }

    /// All parts for one buffer, in order.
    fn all(&self, buffer: Buffer, from: End) -> impl Iterator<Item = &Octets> {
        self.buffers
            .iter()
            .filter(move |part| part.0 == buffer && part.1 == from)
            .map(|part| &part.2)
    }

    /// The first part for one buffer.
    fn get(&self, buffer: Buffer, from: End) -> Option<&Octets> {
        self.all(buffer, from).next()
    }

    fn sends(&self, from: End) -> bool {
        self.buffers.iter().any(|part| part.1 == from)
    }
}

/// Offset of `needle` in `octets`.
fn find(octets: &[u8], needle: &[u8]) -> Option<usize> {
    match needle {
        [] => Some(0),
        _ => octets.windows(needle.len()).position(|window| window == needle),
    }
}

fn contains(octets: &[u8], needle: &[u8]) -> bool {
    find(octets, needle).is_some()
}

/// Like [`contains`], but ignores case.
fn contains_nocase(octets: &[u8], needle: &[u8]) -> bool {
    needle.is_empty()
        || octets.windows(needle.len()).any(|window| window.eq_ignore_ascii_case(needle))
}

/// Joins the parts for one element. A part contained in another is not repeated.
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
