//! The application layer: parses the octets of a stream into transactions, and adds their parts to
//! the buffers that rules name.
//!
//! Each protocol has its module. `recognize` detects the protocol of a flow. The rest of the crate
//! is independent of protocols.
//!
//! The owner of a flow keeps one `Vec<Transaction>` and passes it to each call of the flow's
//! reader. The reader appends to it, completes entries, and refers to them by index. So the owner
//! may empty a transaction that is complete and inspected, but must never remove it. A buffer is
//! added when it is complete or has reached Suricata's limit for inspection, so a negated test can
//! be decided as soon as its buffer exists.

mod ber;
mod dce;
mod dns;
mod ftp;
mod http;
mod ike;
mod industry;
mod mime;
mod mqtt;
mod octets;
mod recognize;
mod rfb;
mod sip;
mod small;
mod smb;
mod smtp;
mod ssh;
mod text;
mod tls;

use squall_rules::{Application, Buffer, End, EngineVersion};

use crate::Settings;

pub(crate) use recognize::{First, Transport, Verdict, recognize};

/// Data that belongs together, such as a request and its response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transaction {
    /// Buffers in order of completion, with the end that sent each. A buffer with
    /// [`Buffer::is_multiple`] may occur several times.
    pub buffers: Vec<(Buffer, End, Vec<u8>)>,
    /// Values other than text: numbers and events.
    pub facts: Vec<Fact>,
    /// For client and server, whether that end will add nothing more.
    pub done: [bool; 2],
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fact {
    pub of: End,
    pub is: FactIs,
}

/// An observation that rules can test.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FactIs {
    /// An event, by its keyword.
    Event(&'static str),
    /// `what`: the keyword that tests the number: `dns.opcode` (without the response bit),
    /// `dns.rcode`, `dns.rrtype` (one for each question and record), `tls.version` (0x0303),
    /// `tls.cert_chain_len`, `dcerpc.opnum`, `dcerpc.little_endian` (0 or 1, from the header),
    /// `smb.version` (1 or 2), `file.size`, `http.stat_code`, `http.header_cnt`, `krb5_msg_type`,
    /// `krb5_err_code`, `snmp.version`, `snmp.pdu_type`, `ike.exchtype`, `rfb.sectype`, `mqtt.type`
    /// (and other MQTT keywords), `modbus.function`, `modbus.unit`, `dnp3_func`, `enip_command`,
    /// `cip_service`, `nfs_procedure`, `nfs.version`, `websocket.opcode`, `websocket.mask`,
    /// `ldap.request.operation`, `ldap.responses.operation`, `sip.stat_code`, `ftp.address` (from
    /// PORT), `ssl_state` (client_hello 1, server_hello 2, client_keyx 3, server_keyx 4).
    Number {
        what: &'static str,
        value: u64,
    },
    DceInterface {
        uuid: [u8; 16],
        version: u32,
    },
}

/// A connection that this flow has announced, such as one for an FTP file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expected {
    pub application: Application,
    /// The end of this flow that listens for the connection.
    pub listener: End,
    pub port: u16,
    /// The FTP command: `RETR`, `STOR`.
    pub command: Vec<u8>,
    pub file: Vec<u8>,
}

/// Parses both directions of a flow.
pub(crate) trait Reader {
    /// Parses data from `from`: the next octets of a stream, or a whole datagram.
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>);

    /// Ends the data from `from`.
    fn end(&mut self, from: End, transactions: &mut Vec<Transaction>);

    /// Returns the protocol of the following octets (after STARTTLS, CONNECT, Upgrade); `None`
    /// inside `Some` requests detection. Called after each `receive`; resets the value.
    fn switched(&mut self) -> Option<Option<Application>> {
        None
    }

    /// Returns whether the last data makes rules without a buffer urgent. `None`: these are urgent
    /// when a transaction is complete. Called after each `receive`; resets the value.
    fn urgent(&mut self) -> Option<Urgent> {
        None
    }

    /// Returns the connections that the last data announced. Called after each `receive`; resets
    /// the list.
    fn expected(&mut self) -> Vec<Expected> {
        vec![]
    }
}

/// Events at which an engine inspects rules without a buffer at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Urgent {
    /// A command or a reply.
    pub command: bool,
    /// The end of an attachment.
    pub file: bool,
    /// The end of a transaction.
    pub done: bool,
}

impl Urgent {
    pub fn is_inspected(self, engine: EngineVersion) -> bool {
        match engine {
            EngineVersion::Suricata7 => self.file,
            EngineVersion::Suricata8 => self.command || self.file,
            EngineVersion::Snort2 | EngineVersion::Snort3 => self.done,
        }
    }
}

/// Index of the flow's only transaction, which the first data creates.
#[derive(Default)]
struct SingleTransaction(Option<usize>);

impl SingleTransaction {
    fn get_or_open<'a>(
        &mut self,
        transactions: &'a mut Vec<Transaction>,
    ) -> Option<&'a mut Transaction> {
        let at = *self.0.get_or_insert_with(|| {
            transactions.push(Transaction::default());
            transactions.len() - 1
        });
        transactions.get_mut(at)
    }

    /// Ends the data from `from`. `None` if there is no transaction.
    fn end<'a>(
        &self,
        from: End,
        transactions: &'a mut [Transaction],
    ) -> Option<&'a mut Transaction> {
        let transaction = transactions.get_mut(self.0?)?;
        transaction.done[usize::from(from == End::Server)] = true;
        Some(transaction)
    }
}

/// Creates the parser for a protocol; `None` if there is none.
pub(crate) fn reader(
    application: Application,
    transport: Transport,
    settings: &Settings,
) -> Option<Box<dyn Reader + Send>> {
    let body_limit = settings.body_limit;
    Some(match application {
        Application::Http | Application::Http1 => {
            Box::new(http::Http::new(body_limit, settings.engine))
        }
        Application::Dns => Box::new(dns::Dns::new(transport, false)),
        Application::Mdns => Box::new(dns::Dns::new(transport, true)),
        Application::Smb => Box::new(smb::Smb::new(body_limit)),
        Application::DceRpc => match transport {
            Transport::Tcp => Box::new(dce::DceRpc::default()),
            Transport::Udp => Box::new(dce::DceRpcDatagrams::default()),
        },
        Application::Tls => Box::new(tls::Tls::default()),
        Application::Ssh => Box::new(ssh::Ssh::default()),
        Application::Sip => Box::new(sip::Sip::new(transport)),
        Application::Smtp => Box::new(smtp::Smtp::new(body_limit)),
        Application::Ftp => Box::new(ftp::Ftp::default()),
        Application::FtpData => Box::new(ftp::FtpData::new(None, body_limit)),
        Application::Krb5 => Box::new(ber::Krb5::new(transport)),
        Application::Snmp => Box::new(ber::Snmp::default()),
        Application::Ldap => Box::new(ber::Ldap::new(transport)),
        Application::Mqtt => Box::new(mqtt::Mqtt::default()),
        Application::Rfb => Box::new(rfb::Rfb::default()),
        Application::Ike => Box::new(ike::Ike::default()),
        Application::Modbus => Box::new(industry::Industry::new(industry::Kind::Modbus, transport)),
        Application::Dnp3 => Box::new(industry::Industry::new(industry::Kind::Dnp3, transport)),
        Application::Enip => Box::new(industry::Industry::new(industry::Kind::Enip, transport)),
        Application::Tftp => Box::new(small::Datagrams::new(small::tftp)),
        Application::Ntp => Box::new(small::Datagrams::new(small::ntp)),
        Application::Dhcp => Box::new(small::Datagrams::new(small::dhcp)),
        Application::Nfs => small::nfs_reader(transport),
        Application::WebSocket => Box::new(small::WebSocket::default()),
        // These are only detected. Suricata has no buffers for most of them; HTTP/2, QUIC and
        // PostgreSQL are not supported.
        Application::Http2
        | Application::Doh2
        | Application::Pop3
        | Application::Imap
        | Application::Sdp
        | Application::Rdp
        | Application::Telnet
        | Application::Quic
        | Application::BitTorrentDht
        | Application::Pgsql
        | Application::Nntp
        | Application::Irc => return None,
    })
}

/// Runs all parsers on fuzzer input: an octet for protocol and transport, one for the size of the
/// pieces, then data of both ends in alternation.
///
/// # Panics
///
/// If a buffer exceeds its limit, or a parser removes transactions.
pub fn read_any_octets(data: &[u8]) {
    const LIMIT: usize = 2048;
    let [which, size, data @ ..] = data else { return };
    let application = APPLICATIONS[usize::from(*which) % APPLICATIONS.len()];
    let transport = if which & 0x80 == 0 { Transport::Tcp } else { Transport::Udp };
    let first = First {
        transport,
        client_port: 50_000,
        server_port: u16::from(*size),
        engine: EngineVersion::default(),
        client: data,
        server: data,
    };
    recognize(&first);
    let settings = Settings { body_limit: LIMIT, ..Settings::default() };
    let Some(mut reader) = reader(application, transport, &settings) else { return };
    let mut transactions = vec![];
    for (index, piece) in data.chunks(1 + usize::from(*size)).enumerate() {
        let from = if index % 2 == 0 { End::Client } else { End::Server };
        let before = transactions.len();
        reader.receive(from, piece, &mut transactions);
        assert!(transactions.len() >= before, "transactions are only added");
        reader.switched();
        reader.urgent();
        reader.expected();
    }
    for end in [End::Client, End::Server] {
        reader.end(end, &mut transactions);
    }
    for (buffer, _, octets) in transactions.iter().flat_map(|transaction| &transaction.buffers) {
        let is_body =
            matches!(buffer, Buffer::FileData | Buffer::HttpRequestBody | Buffer::HttpResponseBody);
        assert!(!is_body || octets.len() <= LIMIT, "{buffer:?} has {} octets", octets.len());
    }
}

/// All protocols that have a parser.
const APPLICATIONS: [Application; 24] = [
    Application::Http1,
    Application::Dns,
    Application::Mdns,
    Application::Tls,
    Application::Ssh,
    Application::Ftp,
    Application::FtpData,
    Application::Smtp,
    Application::Smb,
    Application::DceRpc,
    Application::Sip,
    Application::Krb5,
    Application::Snmp,
    Application::Ldap,
    Application::Mqtt,
    Application::Rfb,
    Application::Ike,
    Application::Modbus,
    Application::Dnp3,
    Application::Enip,
    Application::Tftp,
    Application::Dhcp,
    Application::Nfs,
    Application::WebSocket,
];

/// Creates the parser for an announced connection.
pub(crate) fn reader_of_expected(expected: &Expected, body_limit: usize) -> Box<dyn Reader + Send> {
    Box::new(ftp::FtpData::new(Some(expected.clone()), body_limit))
}

fn event(of: End, name: &'static str, transaction: &mut Transaction) {
    transaction.facts.push(Fact { of, is: FactIs::Event(name) });
}

fn number(of: End, what: &'static str, value: u64, transaction: &mut Transaction) {
    transaction.facts.push(Fact { of, is: FactIs::Number { what, value } });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_reader_panics_or_exceeds_its_limits(which in any::<u8>(), size in any::<u8>(), data in proptest::collection::vec(any::<u8>(), 0..2000)) {
            super::read_any_octets(&[&[which, size], &data[..]].concat());
        }
    }
}
