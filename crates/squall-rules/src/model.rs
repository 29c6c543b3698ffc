//! The common form of all rules, independent of the dialect they were written in.
//!
//! Names follow Suricata's documentation, and Snort's manual for features that Suricata lacks.

use std::path::PathBuf;

use crate::{Addresses, Buffer, Numbers};

/// Everything read from a list of rule files, in the files' order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleSet {
    /// Includes the files that `include` lines name.
    pub files: Vec<PathBuf>,
    pub rules: Vec<Rule>,
    /// Lines that gave no rule, each with the reason. Each line gives either a rule or a problem.
    pub problems: Vec<Problem>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Index in [`RuleSet::files`].
    pub file: u32,
    /// From 1. The first line of a rule that spans several lines.
    pub line: u32,
}

/// A line that could not be read as a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    pub place: Place,
    /// From 1, in characters of the line; `None` if unknown.
    pub column: Option<u32>,
    /// `None` if the line failed before its sid.
    pub sid: Option<u32>,
    pub reason: Reason,
    /// The text found, the text expected, and a hint.
    pub text: String,
}

/// Why a line gave no rule. Reports group problems by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The line does not consist of an action, a header and options in parentheses.
    Syntax,
    /// No known engine has such an option.
    UnknownKeyword,
    /// Some engine has the option, this crate does not.
    UnsupportedKeyword,
    /// The chosen engine does not load it ([`crate::Reader::engine`]).
    NotLoaded,
    /// An option's value that its grammar does not allow.
    BadValue,
    /// Options that exclude each other.
    Contradiction,
    /// `$NAME` without a definition.
    UndefinedVariable,
    /// An `include` that cannot be read or includes itself.
    Include,
    /// The same gid and sid as an earlier rule, with no newer revision.
    Duplicate,
    /// No sid.
    NoSid,
}

/// One rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub place: Place,
    /// The source text, continuation lines joined.
    pub text: String,
    /// The byte range of each option in `text` (`name:value` without the semicolon), in order.
    /// Parsed tests refer to their option by its index here ([`Step::option`]).
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
    /// Kind and value: `("cve", "2001-0214")`.
    pub references: Vec<(String, String)>,
    /// Key and value: `("policy", "max-detect-ips drop")`, `("service", "http")`.
    pub metadata: Vec<(String, String)>,
    /// From `service:` and from the metadata, in lower case.
    pub services: Vec<String>,
    pub flow: Flow,
    /// Tests of the packet's headers, in the order of the rule.
    pub packet: Vec<Sourced<PacketTest>>,
    /// Tests of the application layer that inspect no buffer.
    pub application: Vec<Sourced<ApplicationTest>>,
    /// Tests of buffers, in the order in which the rule first names them. A buffer is listed once,
    /// except buffers that occur several times in a transaction ([`Buffer::is_multiple`]): each
    /// mention in the rule may match another instance, so each is listed.
    pub inspections: Vec<Inspection>,
    pub bits: Vec<Sourced<Bits>>,
    pub counts: Vec<Sourced<Count>>,
    /// Names of byte variables (`byte_extract`, `byte_math`), indexed by [`Variable`].
    pub variables: Vec<String>,
    /// `noalert`, `flowbits:noalert`: the rule matches without an alert.
    pub silent: bool,
    /// The rule was commented out with `#`.
    pub disabled: bool,
}

/// A value with the option it was parsed from: an index in [`Rule::options`].
#[derive(Clone, Debug, PartialEq)]
pub struct Sourced<T> {
    pub option: u16,
    pub is: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Content modifiers (`content:"a"; http_uri;`). Suricata reads them too.
    Snort2,
    /// Parameters of `content` after commas, sticky buffers with underscores.
    Snort3,
    /// Sticky buffers with dots, application protocols.
    Suricata,
}

/// An engine and its version. Versions differ in which rules they load and what those match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EngineVersion {
    /// Version 2.9.
    Snort2,
    Snort3,
    /// Version 7.0.
    Suricata7,
    /// Version 8.0.
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

    /// The syntax that this engine reads.
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
    /// Also Suricata's `rejectsrc`, `rejectdst`, `rejectboth`.
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

/// The source or destination of a header, with variables resolved and exclusions subtracted.
#[derive(Clone, Debug, PartialEq)]
pub struct Ends {
    pub addresses: Addresses,
    /// Port numbers from 0 to 65535.
    pub ports: Numbers,
    /// The source text: `$HOME_NET`, `[80,8080]`.
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
    /// `ip`, `ip4`, `ip6` and `pkthdr`: any payload.
    Ip,
    Ip4,
    Ip6,
    Tcp,
    /// `tcp-pkt`: individual segments, not the reassembled stream.
    TcpSegments,
    /// `tcp-stream`: the reassembled stream, not individual segments.
    TcpReassembled,
    Udp,
    Icmp,
    Icmp6,
    Sctp,
    Application(Application),
}

/// Application-layer protocols that some engine detects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Application {
    /// HTTP of any version. Attacks use 1.1 unless the rule asks for another.
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

/// `flow:`, including the end that sends the inspected data.
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

/// A buffer and the tests that it must pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    pub buffer: Buffer,
    /// The end that sends the buffer, if the rule names it with the buffer (`file.data: to_client`
    /// in a [`Direction::Transaction`] rule).
    pub sent_by: Option<End>,
    /// Snort 3: the part of the buffer to test, if not all of it: the header or parameter of that
    /// name, in lower case, or a component of a URI (`path`, `query`, ...).
    pub part: Option<String>,
    /// Applied to the buffer in this order before any step.
    pub transforms: Vec<Sourced<Transform>>,
    /// In the order of the rule. A relative step starts at the end of the previous match.
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
    /// `bsize`, `urilen`, `bufferlen`: the buffer's length in octets. `dsize` is
    /// [`PacketTest::Size`].
    Size(Numbers),
    /// The decoded octets become [`Buffer::Base64Data`].
    Base64Decode(Base64Decode),
    /// `absent`: the buffer does not exist. With `or_else`, the other steps may match instead.
    Absent {
        or_else: bool,
    },
    /// `entropy:`: the bounds in bits per octet.
    Entropy {
        least: f64,
        most: f64,
        offset: u32,
        octets: Option<u32>,
    },
    Asn1(Asn1),
    /// The values of a dataset.
    Dataset {
        is_set: bool,
        values: Vec<Vec<u8>>,
    },
}

/// A number, or an extracted variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    Is(i64),
    Variable(Variable),
}

pub type Variable = u16;

/// `content:`. Without `distance` and `within`, the search starts at the beginning of the buffer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    pub pattern: Vec<u8>,
    pub negated: bool,
    pub nocase: bool,
    pub fast_pattern: bool,
    /// Octets to skip from the beginning. `startswith` is offset 0 with the pattern's length as
    /// depth.
    pub offset: Option<Number>,
    /// Octets from `offset` on that must contain the whole pattern.
    pub depth: Option<Number>,
    /// Octets to skip after the end of the previous match; may be negative.
    pub distance: Option<Number>,
    /// Octets from `distance` on that must contain the whole pattern.
    pub within: Option<Number>,
    /// The match must end at the end of the buffer.
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
    /// The expression between the delimiters.
    pub pattern: String,
    pub negated: bool,
    /// The flag `R`: start at the end of the previous match.
    pub relative: bool,
    /// The flag `i`.
    pub caseless: bool,
    /// The flag `s`.
    pub dotall: bool,
    /// The flag `m`.
    pub multiline: bool,
    /// The flag `x`.
    pub extended: bool,
    /// The flag `A`: match only at the start position.
    pub anchored: bool,
    /// The flag `E`: `$` matches only at the very end.
    pub dollar_end_only: bool,
    /// The flag `G`.
    pub ungreedy: bool,
    /// Names of capture groups 1, 2, ... (`flow:name`, `pkt:name`).
    pub captures: Vec<String>,
}

/// How octets are converted to a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Reading {
    pub relative: bool,
    pub little_endian: bool,
    /// Use the byte order of the DCE/RPC header.
    pub dce: bool,
    /// Text digits in base 8, 10 or 16 instead of a binary number. 0: the prefix decides as in C (0
    /// for octal, 0x for hexadecimal).
    pub digits: Option<u8>,
    /// Masks the number, which is then shifted right by the trailing zeros of the mask.
    pub bitmask: Option<u64>,
}

/// `byte_test:`
#[derive(Clone, Debug, PartialEq)]
pub struct ByteTest {
    /// Octets: 1 to 8, up to 23 with digits. 0 gives the number 0, or all available digits.
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
    /// At least one bit is set in both.
    And,
    /// `^` in Snort and Suricata: at least one bit differs.
    Xor,
}

/// `byte_jump:`
#[derive(Clone, Debug, PartialEq)]
pub struct ByteJump {
    /// If 0 and `from` is `End`, jump to the end without reading a number.
    pub count: Number,
    pub offset: Number,
    pub reading: Reading,
    pub multiplier: u32,
    /// Round up to a multiple of four.
    pub align: bool,
    pub from: JumpFrom,
    pub post_offset: Number,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum JumpFrom {
    /// Jump from the end of the octets read.
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
    /// The multiple to round up to: 2 or 4; 0 for none.
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

/// `asn1:`: defects in the BER encoding. Any of them matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asn1 {
    pub bitstring_overflow: bool,
    pub double_overflow: bool,
    /// Matches an element whose length exceeds this number of octets.
    pub oversize_length: Option<u32>,
    /// Start position: from the beginning, or from the end of the previous match if `relative`.
    pub offset: i32,
    pub relative: bool,
}

/// `base64_decode:`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Base64Decode {
    /// Maximum number of octets to decode.
    pub octets: Option<u32>,
    pub offset: u32,
    pub relative: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Transform {
    /// Replace each run of white space by one space.
    CompressWhitespace,
    StripWhitespace,
    ToLowercase,
    ToUppercase,
    ToMd5,
    ToSha1,
    ToSha256,
    UrlDecode,
    /// XOR with the key, repeated.
    Xor(Vec<u8>),
    /// `dotprefix`: put a dot in front.
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
    /// `pcrexform`: keep the first group of the expression.
    PcreXform(String),
    /// `domain` and `tld`
    Domain,
    Tld,
    /// `gunzip` and `zlib_deflate` of Suricata 8
    Gunzip,
    ZlibDeflate,
    /// `luaxform`: not supported, since no Lua is run.
    Lua(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base64Mode {
    Rfc4648,
    Rfc2045,
    Strict,
}

/// A test of a packet's headers.
#[derive(Clone, Debug, PartialEq)]
pub enum PacketTest {
    /// Bits as in the TCP header: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128. Bits
    /// in `ignored` are masked out.
    Flags {
        bits: u8,
        ignored: u8,
        which: Which,
    },
    /// `dsize`: octets of the payload.
    Size(Numbers),
    Ttl(Numbers),
    Tos(Numbers),
    /// Identification field of the IP header.
    Id(Numbers),
    /// Option type: rr 7, nop 1, ts 68, sec 130, esec 133, lsrr 131, ssrr 137, satid 136, eol 0.
    /// `None`: any option.
    IpOption {
        kind: Option<u8>,
        negated: bool,
    },
    /// More fragments 1, don't fragment 2, reserved 4.
    FragmentBits {
        bits: u8,
        which: Which,
    },
    /// In units of eight octets, as in the header.
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
    /// `sameip`: source and destination have the same address.
    SameAddress,
    /// `rpc:`: program, version and procedure of a call. `None` matches any.
    Rpc {
        program: u32,
        version: Option<u32>,
        procedure: Option<u32>,
    },
    /// `stream_size:`: octets sent.
    StreamSize {
        of: StreamSizeOf,
        size: Numbers,
    },
    /// `flow.age` in seconds; `flow.pkts`, `flow.bytes` and their variants per direction.
    FlowAge(Numbers),
    FlowPackets {
        of: Option<End>,
        count: Numbers,
    },
    FlowOctets {
        of: Option<End>,
        count: Numbers,
    },
    /// IP version by `l3_proto`: 4 or 6.
    IpVersion(u8),
    /// A numeric keyword: `vlan.id`, `vlan.layers`. For `ipv4-csum` and other checksum keywords, 0
    /// is invalid and 1 is valid.
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

/// How the listed bits must be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// The listed bits and no others.
    Exactly,
    /// `+`: the listed bits and any others.
    All,
    /// `*`: at least one listed bit.
    Any,
    /// `!`: none of the listed bits.
    None,
}

/// A test of the application layer that inspects no buffer.
#[derive(Clone, Debug, PartialEq)]
pub enum ApplicationTest {
    /// `app-layer-protocol:`. `None` is `unknown` or `failed`.
    Protocol {
        is: Option<Application>,
        negated: bool,
    },
    /// `app-layer-event:`, `decode-event:`, `stream-event:`, `engine-event:`: an anomaly in the
    /// traffic, by the engine's name for it.
    Event(String),
    DnsOpcode {
        opcode: Numbers,
    },
    DnsRcode(Numbers),
    DnsType(Numbers),
    /// `tls.version`, `ssl_version`: the version numbers of the record (0x0303). Any of them
    /// matches.
    TlsVersion {
        any_of: Vec<u16>,
        negated: bool,
    },
    /// `ssl_state`: client_hello, server_hello, client_keyx, server_keyx, unknown. Any of them
    /// matches.
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
    /// `fileext`, `filename`: tests of the name, not of the content.
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
    /// `sip_stat_code` as a number. SIP buffers are [`Buffer`]s.
    SipStatusCode(Numbers),
    HttpStatusCode(Numbers),
    /// `http.header_cnt` and related keywords.
    HttpHeaderCount {
        of: End,
        count: Numbers,
    },
    SshVersion(String),
    FtpBounce,
    /// Keywords that test a number or a flag, such as `ftp.reply_received` and `ftp.dynamic_port`.
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
    /// `xbits`, `hostbits`: bits of an address, not of a flow.
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
    /// Set it and clear the other bits of its group.
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
    /// `xbits`: one set of bits for all traffic.
    Global,
}

/// `threshold`, `detection_filter`, and the count of `rate_filter`.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    pub kind: CountKind,
    pub track: Track,
    pub count: u32,
    /// Length of the window. 0: no time limit.
    pub seconds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CountKind {
    /// Alert for the first `count` matches within `seconds`.
    Limit,
    /// Alert at every `count`th match within `seconds`.
    Threshold,
    /// Alert once within `seconds`, at the `count`th match.
    Both,
    /// Alert for every match after the first `count`.
    DetectionFilter,
    Backoff {
        multiplier: u32,
    },
}
