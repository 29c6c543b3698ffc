//! The form that every rule has, whatever it was written in.
//!
//! Names are those of Suricata's documentation, and of Snort's manual where Suricata has no such
//! thing.

use std::path::PathBuf;

use crate::{Addresses, Buffer, Numbers};

/// All that was read from some files, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleSet {
    /// Those included as well.
    pub files: Vec<PathBuf>,
    pub rules: Vec<Rule>,
    /// Lines that gave no rule, and why. A line gives one of both, never both.
    pub problems: Vec<Problem>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Of [`RuleSet::files`].
    pub file: u32,
    /// From 1. Of a rule over several lines, the first.
    pub line: u32,
}

/// A line that is no rule of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    pub place: Place,
    /// From 1, in characters of the line; where it is known.
    pub column: Option<u32>,
    /// Where it could be read.
    pub sid: Option<u32>,
    pub reason: Reason,
    /// What was found, what was expected, what to try.
    pub text: String,
}

/// Why a line gave no rule: the code that reports group by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Neither an action, a header nor options in parentheses.
    Syntax,
    /// No engine has such an option, as far as we know.
    UnknownKeyword,
    /// Some engine has it, we do not.
    UnsupportedKeyword,
    /// The engine that was named does not load it ([`crate::Reader::engine`]).
    NotLoaded,
    /// An option's value that its grammar does not allow.
    BadValue,
    /// Options that do not go together.
    Contradiction,
    /// `$NAME` that nobody has defined.
    UndefinedVariable,
    /// An `include` that cannot be read or includes itself.
    Include,
    /// A sid that stood before, with the same gid and no newer revision.
    Duplicate,
    /// No sid.
    NoSid,
}

/// One rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub place: Place,
    /// As it stood, with lines joined.
    pub text: String,
    /// Each option's octets in `text`, `name:value` without the semicolon, in their order. What was
    /// made of an option refers to it by its index here ([`Step::option`]).
    pub options: Vec<std::ops::Range<usize>>,
    pub dialect: Dialect,
    pub action: Action,
    pub header: Header,
    pub gid: u32,
    pub sid: u32,
    pub rev: u32,
    pub msg: String,
    pub classtype: Option<String>,
    pub priority: Option<u32>,
    /// `("cve", "2001-0214")`.
    pub references: Vec<(String, String)>,
    /// `("policy", "max-detect-ips drop")`, `("service", "http")`.
    pub metadata: Vec<(String, String)>,
    /// Of `service:` and of the metadata, in lower case.
    pub services: Vec<String>,
    pub flow: Flow,
    /// What headers of a packet must be, in the order of the rule.
    pub packet: Vec<Sourced<PacketTest>>,
    /// What the application layer must be beside its buffers.
    pub application: Vec<Sourced<ApplicationTest>>,
    /// What buffers must hold, in the order in which the rule first names them. Each buffer stands
    /// once, but for those of which a transaction has several ([`Buffer::is_multiple`]): those once
    /// for each time that they are named.
    pub inspections: Vec<Inspection>,
    pub bits: Vec<Sourced<Bits>>,
    pub counts: Vec<Sourced<Count>>,
    /// Byte variables: what `byte_extract` and `byte_math` call them, [`Variable`] by index.
    pub variables: Vec<String>,
    /// `noalert`, `flowbits:noalert`: matches and says nothing.
    pub silent: bool,
    /// It stood behind `#`.
    pub disabled: bool,
}

/// With the option that it was made from: index in [`Rule::options`].
#[derive(Clone, Debug, PartialEq)]
pub struct Sourced<T> {
    pub option: u16,
    pub is: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Content modifiers (`content:"a"; http_uri;`). What Suricata reads as well.
    Snort2,
    /// Parameters of `content` after commas, sticky buffers with underscores.
    Snort3,
    /// Sticky buffers with dots, protocols of applications.
    Suricata,
}

/// A version of an engine: versions differ in which rules they load, and in what those match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EngineVersion {
    /// 2.9
    Snort2,
    Snort3,
    /// 7.0
    Suricata7,
    /// 8.0
    #[default]
    Suricata8,
}

impl EngineVersion {
    pub const ALL: [EngineVersion; 4] = [
        EngineVersion::Suricata7,
        EngineVersion::Suricata8,
        EngineVersion::Snort2,
        EngineVersion::Snort3,
    ];

    pub fn is_suricata(self) -> bool {
        matches!(self, EngineVersion::Suricata7 | EngineVersion::Suricata8)
    }

    /// The syntax that it reads.
    pub fn dialect(self) -> Dialect {
        match self {
            EngineVersion::Snort2 => Dialect::Snort2,
            EngineVersion::Snort3 => Dialect::Snort3,
            EngineVersion::Suricata7 | EngineVersion::Suricata8 => Dialect::Suricata,
        }
    }
}

impl std::fmt::Display for EngineVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            EngineVersion::Snort2 => "Snort 2",
            EngineVersion::Snort3 => "Snort 3",
            EngineVersion::Suricata7 => "Suricata 7",
            EngineVersion::Suricata8 => "Suricata 8",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Alert,
    Log,
    Pass,
    Drop,
    /// And `sdrop`'s other kinds, `rejectsrc`, `rejectdst`, `rejectboth`.
    Reject,
    /// Snort 3's `block`, `rewrite`, `react`.
    Other,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    pub protocol: Protocol,
    pub source: Ends,
    pub direction: Direction,
    pub destination: Ends,
}

/// Who sends, or who is sent to: variables are resolved, exclusions are taken away.
#[derive(Clone, Debug, PartialEq)]
pub struct Ends {
    pub addresses: Addresses,
    /// Of 0 to 65535.
    pub ports: Numbers,
    /// As they stood: `$HOME_NET`, `[80,8080]`.
    pub addresses_text: String,
    pub ports_text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// `->`
    To,
    /// `<>`
    Both,
    /// `=>`, Suricata 8: both directions of one transaction.
    Transaction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// `ip`, `ip4`, `ip6` and `pkthdr`: whatever it carries.
    Ip,
    Ip4,
    Ip6,
    Tcp,
    /// Single segments only.
    TcpSegments,
    /// The stream only.
    TcpReassembled,
    Udp,
    Icmp,
    Icmp6,
    Sctp,
    Application(Application),
}

/// Protocols of the application layer that an engine knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Application {
    /// HTTP of any version; what we make is 1.1 unless the rule asks for another.
    Http,
    Http1,
    Http2,
    Dns,
    Doh2,
    Mdns,
    Tls,
    Ssh,
    Ftp,
    FtpData,
    Smtp,
    Pop3,
    Imap,
    Smb,
    DceRpc,
    Sip,
    Sdp,
    Krb5,
    Snmp,
    Tftp,
    Nfs,
    Ike,
    Rdp,
    Rfb,
    Mqtt,
    Modbus,
    Dnp3,
    Enip,
    Ntp,
    Dhcp,
    Telnet,
    Quic,
    BitTorrentDht,
    Pgsql,
    Ldap,
    WebSocket,
    Nntp,
    Irc,
}

/// `flow:`, and who of both ends sends what the rule looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Index in [`Rule::options`].
    pub option: Option<u16>,
    pub to: Option<End>,
    /// `established` is `Some(true)`, `not_established` `Some(false)`.
    pub established: Option<bool>,
    pub stateless: bool,
    /// `only_stream` is `Some(true)`, `no_stream` `Some(false)`.
    pub stream: Option<bool>,
    /// `only_frag` is `Some(true)`, `no_frag` `Some(false)`.
    pub fragments: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    Client,
    Server,
}

impl End {
    pub fn other(self) -> End {
        match self {
            End::Client => End::Server,
            End::Server => End::Client,
        }
    }
}

/// A buffer, and what it must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    pub buffer: Buffer,
    /// Who sends it, where the rule says so beside the buffer's name (`file.data: to_client` of
    /// [`Direction::Transaction`]).
    pub sent_by: Option<End>,
    /// Only a part of it, as Snort 3 has it: the header or parameter of that name, in lower case,
    /// or `path`, `query` ... of a URI.
    pub part: Option<String>,
    /// Applied to the buffer in this order before anything is looked for.
    pub transforms: Vec<Sourced<Transform>>,
    /// In the order of the rule. Each begins where the one before has ended, where it says that it
    /// is relative.
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Index in [`Rule::options`] of the option itself, not of its modifiers.
    pub option: u16,
    pub operation: Operation,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    Content(Content),
    Pcre(Pcre),
    ByteTest(ByteTest),
    ByteJump(ByteJump),
    ByteExtract(ByteExtract),
    ByteMath(ByteMath),
    IsDataAt(IsDataAt),
    /// `bsize`, `urilen`, `bufferlen`: the buffer's octets. `dsize` is [`PacketTest::Size`].
    Size(Numbers),
    /// What is decoded is looked at as [`Buffer::Base64Data`].
    Base64Decode(Base64Decode),
    /// `absent`: there is no such buffer; `or_else`: or the other steps match.
    Absent {
        or_else: bool,
    },
    /// `entropy:`: least and most bits an octet of the buffer.
    Entropy {
        least: f64,
        most: f64,
        offset: u32,
        octets: Option<u32>,
    },
    Asn1(Asn1),
    /// A dataset's list of values.
    Dataset {
        is_set: bool,
        values: Vec<Vec<u8>>,
    },
}

/// A number, or the name of one that was extracted: index in [`Rule::variables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    Is(i64),
    Variable(Variable),
}

pub type Variable = u16;

/// `content:`. Without `distance` and `within` it is looked for from the buffer's beginning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    pub pattern: Vec<u8>,
    pub negated: bool,
    pub nocase: bool,
    pub fast_pattern: bool,
    /// Octets from the beginning that are left out. `startswith` is offset 0 with depth of the
    /// pattern's length.
    pub offset: Option<Number>,
    /// Octets, from `offset` on, inside which the whole pattern lies.
    pub depth: Option<Number>,
    /// Octets from the end of the match before that are left out; may be negative.
    pub distance: Option<Number>,
    /// Octets, from `distance` on, inside which the whole pattern lies.
    pub within: Option<Number>,
    /// The pattern is the buffer's last.
    pub endswith: bool,
}

impl Content {
    pub fn is_relative(&self) -> bool {
        self.distance.is_some() || self.within.is_some()
    }
}

/// `pcre:` and `regex:`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pcre {
    /// Between the delimiters.
    pub pattern: String,
    pub negated: bool,
    /// R: from the end of the match before.
    pub relative: bool,
    /// i
    pub caseless: bool,
    /// s
    pub dotall: bool,
    /// m
    pub multiline: bool,
    /// x
    pub extended: bool,
    /// A
    pub anchored: bool,
    /// E: `$` is the very end.
    pub dollar_end_only: bool,
    /// G
    pub ungreedy: bool,
    /// Names that groups 1, 2 ... are given (`flow:name`, `pkt:name`).
    pub captures: Vec<String>,
}

/// How octets are a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Reading {
    pub relative: bool,
    pub little_endian: bool,
    /// The byte order of the DCE/RPC header.
    pub dce: bool,
    /// Digits instead of a binary number, of base 8, 10 or 16; 0: as in C, by a 0 or 0x before
    /// them.
    pub digits: Option<u8>,
    /// Taken together with the number read, and shifted down by its trailing zeros.
    pub bitmask: Option<u64>,
}

/// `byte_test:`
#[derive(Clone, Debug, PartialEq)]
pub struct ByteTest {
    /// Octets: 1 to 8, to 23 with digits. 0: the number 0; with digits, all digits that there are.
    pub count: Number,
    pub negated: bool,
    pub operator: Comparison,
    pub value: Number,
    pub offset: Number,
    pub reading: Reading,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    Less,
    LessOrEqual,
    Equal,
    Greater,
    GreaterOrEqual,
    /// Some bit of both.
    And,
    /// Snort's `^`, Suricata's as well: some bit of one and not of the other.
    Xor,
}

/// `byte_jump:`
#[derive(Clone, Debug, PartialEq)]
pub struct ByteJump {
    /// 0 with `from` `End`: just there.
    pub count: Number,
    pub offset: Number,
    pub reading: Reading,
    pub multiplier: u32,
    /// Up to the next multiple of four.
    pub align: bool,
    pub from: JumpFrom,
    pub post_offset: Number,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum JumpFrom {
    /// From behind the octets read.
    #[default]
    Here,
    Beginning,
    End,
}

/// `byte_extract:`
#[derive(Clone, Debug, PartialEq)]
pub struct ByteExtract {
    pub count: u8,
    pub offset: Number,
    pub variable: Variable,
    pub reading: Reading,
    pub multiplier: u32,
    /// 0, 2 or 4.
    pub align: u8,
}

/// `byte_math:`
#[derive(Clone, Debug, PartialEq)]
pub struct ByteMath {
    pub count: Number,
    pub offset: Number,
    pub operator: Arithmetic,
    pub value: Number,
    pub result: Variable,
    pub reading: Reading,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    ShiftLeft,
    ShiftRight,
}

/// `isdataat:`
#[derive(Clone, Debug, PartialEq)]
pub struct IsDataAt {
    pub at: Number,
    pub relative: bool,
    pub negated: bool,
}

/// `asn1:`, what is wrong with BER; any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asn1 {
    pub bitstring_overflow: bool,
    pub double_overflow: bool,
    /// Octets that an element's length exceeds.
    pub oversize_length: Option<u32>,
    /// From the beginning, or from the end of the match before.
    pub offset: i32,
    pub relative: bool,
}

/// `base64_decode:`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Base64Decode {
    /// Octets that are decoded at most.
    pub octets: Option<u32>,
    pub offset: u32,
    pub relative: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Transform {
    /// Runs of white space become one blank.
    CompressWhitespace,
    StripWhitespace,
    ToLowercase,
    ToUppercase,
    ToMd5,
    ToSha1,
    ToSha256,
    UrlDecode,
    /// By the key's octets in turn.
    Xor(Vec<u8>),
    /// `DotPrefix`: a dot is put before it.
    DotPrefix,
    /// `header_lowercase`
    HeaderLowercase,
    /// `strip_pseudo_headers`
    StripPseudoHeaders,
    /// `from_base64: mode, bytes, offset`
    FromBase64 {
        octets: Option<u32>,
        offset: u32,
        mode: Base64Mode,
    },
    /// The first group of the expression.
    PcreXform(String),
    /// `domain` and `tld`
    Domain,
    Tld,
    /// `gunzip` and `zlib_deflate` of Suricata 8
    Gunzip,
    ZlibDeflate,
    /// `luaxform`: cannot be run.
    Lua(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base64Mode {
    Rfc4648,
    Rfc2045,
    Strict,
}

/// What a packet's headers must be.
#[derive(Clone, Debug, PartialEq)]
pub enum PacketTest {
    /// Bits as in the TCP header: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128;
    /// those of `ignored` do not count.
    Flags {
        bits: u8,
        ignored: u8,
        which: Which,
    },
    /// Octets of the payload: `dsize`.
    Size(Numbers),
    Ttl(Numbers),
    Tos(Numbers),
    /// Of the IP header.
    Id(Numbers),
    /// The kind of option: rr 7, nop 1, ts 68, sec 130, esec 133, lsrr 131, ssrr 137, satid 136,
    /// eol 0; `None`: any.
    IpOption {
        kind: Option<u8>,
        negated: bool,
    },
    /// More fragments 1, don't fragment 2, reserved 4.
    FragmentBits {
        bits: u8,
        which: Which,
    },
    /// In units of eight octets.
    FragmentOffset(Numbers),
    IpProtocol(Numbers),
    Sequence(Numbers),
    Acknowledgment(Numbers),
    Window(Numbers),
    Mss(Numbers),
    WindowScale(Numbers),
    IcmpType(Numbers),
    IcmpCode(Numbers),
    IcmpId(Numbers),
    IcmpSequence(Numbers),
    /// `icmpv6.mtu`
    Icmp6Mtu(Numbers),
    /// Source and destination are one address.
    SameAddress,
    /// `rpc:`: program, version and procedure of a call; `None`: any.
    Rpc {
        program: u32,
        version: Option<u32>,
        procedure: Option<u32>,
    },
    /// `stream_size:`, octets that were sent.
    StreamSize {
        of: StreamSizeOf,
        size: Numbers,
    },
    /// `flow.age`, seconds; `flow.pkts`, `flow.bytes` and their like of one end or of both.
    FlowAge(Numbers),
    FlowPackets {
        of: Option<End>,
        count: Numbers,
    },
    FlowOctets {
        of: Option<End>,
        count: Numbers,
    },
    /// `l3_proto`: 4 or 6.
    IpVersion(u8),
    /// A keyword that is a number: `vlan.id`, `vlan.layers`; `ipv4-csum` and its like are 0 for
    /// invalid, 1 for valid.
    Other {
        keyword: &'static str,
        numbers: Numbers,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamSizeOf {
    Client,
    Server,
    Both,
    Either,
}

/// Which of the bits must be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// Those and no other.
    Exactly,
    /// `+`: those, and perhaps others.
    All,
    /// `*`: one of them.
    Any,
    /// `!`: none of them.
    None,
}

/// What the application layer must be, beside its buffers.
#[derive(Clone, Debug, PartialEq)]
pub enum ApplicationTest {
    /// `app-layer-protocol:`; `None` is `unknown` or `failed`.
    Protocol {
        is: Option<Application>,
        negated: bool,
    },
    /// `app-layer-event:`, `decode-event:`, `stream-event:`, `engine-event:`: a defect in what was
    /// sent, by the engine's name for it.
    Event(String),
    DnsOpcode {
        opcode: Numbers,
    },
    DnsRcode(Numbers),
    DnsType(Numbers),
    /// `tls.version`, `ssl_version`: as the record's number, 0x0303; any of them.
    TlsVersion {
        any_of: Vec<u16>,
        negated: bool,
    },
    /// `ssl_state`: client_hello, server_hello, client_keyx, server_keyx, unknown; any of them.
    SslState {
        any_of: Vec<String>,
        negated: bool,
    },
    TlsCertCount(Numbers),
    /// `dce_iface`, `dcerpc.iface`.
    DceInterface {
        uuid: [u8; 16],
        version: Numbers,
        any_fragment: bool,
    },
    DceOpnum(Numbers),
    SmbVersion(Numbers),
    /// `fileext`, `filename`, without looking into it.
    FileExtension {
        is: String,
        negated: bool,
    },
    FileName {
        holds: String,
        negated: bool,
    },
    FileMagic {
        holds: String,
        negated: bool,
    },
    FileSize(Numbers),
    FileHash {
        kind: &'static str,
        list: Vec<Vec<u8>>,
        negated: bool,
    },
    /// `filestore`, `tag`, `target`, `logto` and others that ask nothing of the traffic are left
    /// out.
    Krb5MessageType(Numbers),
    SnmpVersion(Numbers),
    SnmpPduType(Numbers),
    IkeExchangeType(Numbers),
    RfbSecurityType(Numbers),
    MqttType(Numbers),
    ModbusFunction(Numbers),
    ModbusUnit(Numbers),
    Dnp3Function(Numbers),
    EnipCommand(Numbers),
    CipService(Vec<Numbers>),
    NfsProcedure(Numbers),
    NfsVersion(Numbers),
    WebSocketOpcode(Numbers),
    WebSocketMask(bool),
    LdapRequestOperation(Numbers),
    LdapResponseOperation(Numbers),
    /// `sip_stat_code` as a number; the buffers are apart.
    SipStatusCode(Numbers),
    HttpStatusCode(Numbers),
    /// `urilen` and others are sizes of buffers; `http.header_cnt` and its like are counts.
    HttpHeaderCount {
        of: End,
        count: Numbers,
    },
    SshVersion(String),
    FtpBounce,
    /// `ftp.reply_received`, `ftp.dynamic_port` and others that are a number or a flag: keyword and
    /// numbers.
    Other {
        keyword: &'static str,
        numbers: Numbers,
    },
}

/// `flowbits`, `xbits`, `hostbits`, `flowint`.
#[derive(Clone, Debug, PartialEq)]
pub enum Bits {
    Flow {
        verb: BitVerb,
        names: Vec<String>,
        all: bool,
    },
    /// Of addresses instead of a flow.
    Host {
        verb: BitVerb,
        name: String,
        track: Track,
        seconds: Option<u32>,
    },
    Int {
        name: String,
        verb: IntVerb,
        value: IntValue,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BitVerb {
    Set,
    /// Sets, and unsets the others of its group.
    SetExclusively,
    Unset,
    Toggle,
    IsSet,
    IsNotSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntVerb {
    Add,
    Subtract,
    Set,
    Is(Comparison),
    IsNot,
    IsSet,
    NotSet,
}

#[derive(Clone, Debug, PartialEq)]
pub enum IntValue {
    Is(u32),
    Of(String),
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Track {
    BySource,
    ByDestination,
    ByPair,
    ByBoth,
    ByRule,
    ByFlow,
    /// xbits: one for all.
    Global,
}

/// `threshold`, `detection_filter`, `rate_filter`'s count.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    pub kind: CountKind,
    pub track: Track,
    pub count: u32,
    /// 0: for ever.
    pub seconds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CountKind {
    /// Alerts for the first `count` matches within the time.
    Limit,
    /// Alerts at each `count`th match within the time.
    Threshold,
    /// Once within the time, at the `count`th match.
    Both,
    /// Alerts for every match after `count` of them.
    DetectionFilter,
    Backoff {
        multiplier: u32,
    },
}
