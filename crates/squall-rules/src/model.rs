//! The common form of all rules, independent of the dialect in which a rule was written.
//!
//! Names follow Suricata's documentation; features that Suricata does not have follow Snort's
//! manual.

use std::path::PathBuf;

use crate::{Addresses, Buffer, Numbers};

/// The contents of a list of rule files, in the order of the files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleSet {
    /// All files, including those that `include` lines name.
    pub files: Vec<PathBuf>,
    pub rules: Vec<Rule>,
    /// Lines that gave no rule, with the reasons. Each line gives either a rule or a problem.
    pub problems: Vec<Problem>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Index into [`RuleSet::files`].
    pub file: u32,
    /// Line number (1-based). For a rule that spans several lines, that of the first.
    pub line: u32,
}

/// A line that could not be parsed as a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    pub place: Place,
    /// Column in characters (1-based); `None` if unknown.
    pub column: Option<u32>,
    /// The sid; `None` if the error precedes it.
    pub sid: Option<u32>,
    pub reason: Reason,
    /// The text found, the text expected, and a hint.
    pub text: String,
}

/// Why a line is not a rule. Reports group problems by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The line does not consist of an action, a header and options in parentheses.
    Syntax,
    /// No known engine has such an option.
    UnknownKeyword,
    /// Some engine has the option, but this crate does not support it.
    UnsupportedKeyword,
    /// The chosen engine ([`crate::Reader::engine`]) does not load the rule.
    NotLoaded,
    /// The value of an option violates its grammar.
    BadValue,
    /// Options contradict each other.
    Contradiction,
    /// `$NAME` is not defined.
    UndefinedVariable,
    /// An `include` names a file that cannot be read, or that is being included already.
    Include,
    /// An earlier rule has the same gid and sid, and the same or a newer revision.
    Duplicate,
    /// There is no sid.
    NoSid,
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub place: Place,
    /// The source text, with continuation lines joined.
    pub text: String,
    /// The byte range in `text` of each option (`name:value` without the semicolon), in order. A
    /// parsed test refers to its option by the index in this list ([`Step::option`]).
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
    /// Pairs of kind and value, such as `("cve", "2001-0214")`.
    pub references: Vec<(String, String)>,
    /// Pairs of key and value, such as `("policy", "max-detect-ips drop")` or `("service",
    /// "http")`.
    pub metadata: Vec<(String, String)>,
    /// Services in `service:` and in the metadata, in lower case.
    pub services: Vec<String>,
    pub flow: Flow,
    /// Tests of the packet's headers, in rule order.
    pub packet: Vec<Sourced<PacketTest>>,
    /// Tests of the application layer that need no buffer.
    pub application: Vec<Sourced<ApplicationTest>>,
    /// Tests of buffers, in the order in which the rule first names them. A buffer is listed once,
    /// unless it can occur several times in a transaction ([`Buffer::is_multiple`]): then each
    /// mention in the rule may match another instance and is listed separately.
    pub inspections: Vec<Inspection>,
    pub bits: Vec<Sourced<Bits>>,
    pub counts: Vec<Sourced<Count>>,
    /// Names of byte variables (`byte_extract`, `byte_math`), indexed by [`Variable`].
    pub variables: Vec<String>,
    /// With `noalert` or `flowbits:noalert`, the rule matches without raising an alert.
    pub silent: bool,
    /// The rule is commented out with `#`.
    pub disabled: bool,
}

/// A value and the option from which it was parsed, as an index into [`Rule::options`].
#[derive(Clone, Debug, PartialEq)]
pub struct Sourced<T> {
    pub option: u16,
    pub is: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Content modifiers (`content:"a"; http_uri;`), which Suricata reads as well.
    Snort2,
    /// Parameters after commas in `content`, sticky buffers with underscores.
    Snort3,
    /// Sticky buffers with dots, application protocols.
    Suricata,
}

/// An engine with its version. Versions differ in the rules that they load, and in how these match.
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

    /// The syntax of the rules that this engine reads.
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
    /// `reject`, and Suricata's `rejectsrc`, `rejectdst` and `rejectboth`.
    Reject,
    /// Snort 3's `block`, `rewrite` and `react`.
    Other,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    pub protocol: Protocol,
    pub source: Ends,
    pub direction: Direction,
    pub destination: Ends,
}

/// The source or the destination in a header, with variables resolved and exclusions subtracted.
#[derive(Clone, Debug, PartialEq)]
pub struct Ends {
    pub addresses: Addresses,
    /// TCP or UDP ports from 0 to 65535.
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
    /// `ip`, `ip4`, `ip6` and `pkthdr`: any transport protocol.
    Ip,
    Ip4,
    Ip6,
    Tcp,
    /// `tcp-pkt`: single segments, not the reassembled stream.
    TcpSegments,
    /// `tcp-stream`: the reassembled stream, not single segments.
    TcpReassembled,
    Udp,
    Icmp,
    Icmp6,
    Sctp,
    Application(Application),
}

/// Application-layer protocols that at least one engine detects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Application {
    /// HTTP of any version. Attacks use HTTP/1.1 unless the rule requires another version.
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

/// The `flow:` option, with the end that must have sent the inspected data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Index into [`Rule::options`].
    pub option: Option<u16>,
    pub to: Option<End>,
    /// `Some(true)` for `established`, `Some(false)` for `not_established`.
    pub established: Option<bool>,
    pub stateless: bool,
    /// `Some(true)` for `only_stream`, `Some(false)` for `no_stream`.
    pub stream: Option<bool>,
    /// `Some(true)` for `only_frag`, `Some(false)` for `no_frag`.
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

/// A buffer, with the tests that it must pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    pub buffer: Buffer,
    /// The end that sends the buffer, if the rule names one with the buffer (`file.data: to_client`
    /// in a [`Direction::Transaction`] rule).
    pub sent_by: Option<End>,
    /// Snort 3: the part of the buffer to test, if not all of it. This is the name, in lower case,
    /// of a header field, a parameter, or a component of a URI (`path`, `query`, ...).
    pub part: Option<String>,
    /// Transforms to apply to the buffer before any step, in this order.
    pub transforms: Vec<Sourced<Transform>>,
    /// Steps in rule order. A relative step starts at the end of the previous match.
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Index into [`Rule::options`] of the option itself, not of its modifiers.
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
    /// `bsize`, `urilen`, `bufferlen`: the length of the buffer in octets. For `dsize` see
    /// [`PacketTest::Size`].
    Size(Numbers),
    /// Decodes octets to [`Buffer::Base64Data`].
    Base64Decode(Base64Decode),
    /// `absent`: the buffer must not exist. With `or_else`, it may exist if it matches the other
    /// steps.
    Absent {
        or_else: bool,
    },
    /// `entropy:`, with bounds in bits per octet.
    Entropy {
        least: f64,
        most: f64,
        offset: u32,
        octets: Option<u32>,
    },
    Asn1(Asn1),
    /// A dataset with its values.
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

/// `content:`. If there is no `distance` or `within`, the search starts at the beginning of the
/// buffer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    pub pattern: Vec<u8>,
    pub negated: bool,
    pub nocase: bool,
    pub fast_pattern: bool,
    /// Octets to skip from the beginning. `startswith` is offset 0 with the length of the pattern
    /// as depth.
    pub offset: Option<Number>,
    /// Number of octets from `offset` on in which the whole pattern must be.
    pub depth: Option<Number>,
    /// Octets to skip after the end of the previous match. May be negative.
    pub distance: Option<Number>,
    /// Number of octets from `distance` on in which the whole pattern must be.
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
    /// The text between the delimiters.
    pub pattern: String,
    pub negated: bool,
    /// The flag `R`: start at the end of the previous match.
    pub relative: bool,
    /// The flag `i`: ignore case.
    pub caseless: bool,
    /// The flag `s`: a dot also matches a line end.
    pub dotall: bool,
    /// The flag `m`: `^` and `$` match at each line.
    pub multiline: bool,
    /// The flag `x`: ignore white space and comments in the pattern.
    pub extended: bool,
    /// The flag `A`: match only at the start position.
    pub anchored: bool,
    /// The flag `E`: `$` matches only at the end of the buffer.
    pub dollar_end_only: bool,
    /// The flag `G`: quantifiers are lazy by default.
    pub ungreedy: bool,
    /// Names for the capture groups 1, 2, ... (`flow:name`, `pkt:name`).
    pub captures: Vec<String>,
}

/// How to convert octets to a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Reading {
    pub relative: bool,
    pub little_endian: bool,
    /// Use the byte order in the DCE/RPC header.
    pub dce: bool,
    /// The octets are digits in base 8, 10 or 16 rather than a binary number. 0: the prefix
    /// determines the base as in C (0 is octal, 0x is hexadecimal).
    pub digits: Option<u8>,
    /// A mask for the number, which is then shifted right by the number of trailing zeros in the
    /// mask.
    pub bitmask: Option<u64>,
}

/// `byte_test:`
#[derive(Clone, Debug, PartialEq)]
pub struct ByteTest {
    /// Number of octets: 1 to 8, or up to 23 for digits. 0 gives the number 0, or all available
    /// digits.
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
    /// At least one bit is set in both numbers.
    And,
    /// `^` in Snort and Suricata: at least one bit differs.
    Xor,
}

/// `byte_jump:`
#[derive(Clone, Debug, PartialEq)]
pub struct ByteJump {
    /// Number of octets to read. If this is 0 and `from` is `End`, jump to the end without reading
    /// a number.
    pub count: Number,
    pub offset: Number,
    pub reading: Reading,
    pub multiplier: u32,
    /// Round the number up to a multiple of four.
    pub align: bool,
    pub from: JumpFrom,
    pub post_offset: Number,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum JumpFrom {
    /// Jump from the end of the octets that were read.
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
    /// Round the number up to a multiple of this: 2 or 4; 0: do not round.
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

/// `asn1:`: defects in the BER encoding. Matches if there is any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asn1 {
    pub bitstring_overflow: bool,
    pub double_overflow: bool,
    /// An element whose length exceeds this number of octets.
    pub oversize_length: Option<u32>,
    /// Start offset: from the beginning, or if `relative` from the end of the previous match.
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
    /// Replace each run of white space with a single space.
    CompressWhitespace,
    StripWhitespace,
    ToLowercase,
    ToUppercase,
    ToMd5,
    ToSha1,
    ToSha256,
    UrlDecode,
    /// XOR with this key, which is repeated.
    Xor(Vec<u8>),
    /// `dotprefix`: insert a dot at the beginning.
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
    /// `pcrexform`: keep only the first capture group of the expression.
    PcreXform(String),
    /// `domain` and `tld`
    Domain,
    Tld,
    /// Suricata 8: `gunzip` and `zlib_deflate`.
    Gunzip,
    ZlibDeflate,
    /// `luaxform`: not supported, because Lua code is never run.
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
    /// Bits of the TCP header: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128. Bits in
    /// `ignored` are not tested.
    Flags {
        bits: u8,
        ignored: u8,
        which: Which,
    },
    /// `dsize`: length of the payload in octets.
    Size(Numbers),
    Ttl(Numbers),
    Tos(Numbers),
    /// Identification field of IPv4, or of IPv6's fragment header.
    Id(Numbers),
    /// Type of an IPv4 option: rr 7, nop 1, ts 68, sec 130, esec 133, lsrr 131, ssrr 137, satid
    /// 136, eol 0. `None`: any option.
    IpOption {
        kind: Option<u8>,
        negated: bool,
    },
    /// Bits: more fragments 1, don't fragment 2, reserved 4.
    FragmentBits {
        bits: u8,
        which: Which,
    },
    /// Fragment offset in units of eight octets, as in the header.
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
    /// `sameip`: source and destination address are equal.
    SameAddress,
    /// `rpc:`: program, version and procedure of a call. `None`: any.
    Rpc {
        program: u32,
        version: Option<u32>,
        procedure: Option<u32>,
    },
    /// `stream_size:`: the number of octets sent.
    StreamSize {
        of: StreamSizeOf,
        size: Numbers,
    },
    /// `flow.age`, in seconds. The next two: `flow.pkts`, `flow.bytes` and their variants per
    /// direction.
    FlowAge(Numbers),
    FlowPackets {
        of: Option<End>,
        count: Numbers,
    },
    FlowOctets {
        of: Option<End>,
        count: Numbers,
    },
    /// `l3_proto`: the IP version, 4 or 6.
    IpVersion(u8),
    /// A keyword with a number: `vlan.id`, `vlan.layers`. For `ipv4-csum` and other checksum
    /// keywords, 0 means invalid and 1 valid.
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

/// Which of the listed bits must be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// The listed bits, and no others.
    Exactly,
    /// `+`: all listed bits, and possibly others.
    All,
    /// `*`: at least one listed bit.
    Any,
    /// `!`: none of the listed bits.
    None,
}

/// A test of the application layer that needs no buffer.
#[derive(Clone, Debug, PartialEq)]
pub enum ApplicationTest {
    /// `app-layer-protocol:`. `None`: `unknown` or `failed`.
    Protocol {
        is: Option<Application>,
        negated: bool,
    },
    /// `app-layer-event:`, `decode-event:`, `stream-event:`, `engine-event:`: an anomaly in the
    /// traffic, under the engine's name for it.
    Event(String),
    DnsOpcode {
        opcode: Numbers,
    },
    DnsRcode(Numbers),
    DnsType(Numbers),
    /// `tls.version`, `ssl_version`: version numbers in the record (0x0303). Matches if the version
    /// is one of them.
    TlsVersion {
        any_of: Vec<u16>,
        negated: bool,
    },
    /// `ssl_state`: client_hello, server_hello, client_keyx, server_keyx, unknown. Matches if the
    /// state is one of them.
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
    /// `fileext`, `filename`: tests of the file's name, not of its content.
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
    /// `sip_stat_code` with a number. The texts of SIP messages are [`Buffer`]s.
    SipStatusCode(Numbers),
    HttpStatusCode(Numbers),
    /// `http.header_cnt` and similar keywords.
    HttpHeaderCount {
        of: End,
        count: Numbers,
    },
    SshVersion(String),
    FtpBounce,
    /// Keywords that test a single number or flag, such as `ftp.reply_received` and
    /// `ftp.dynamic_port`.
    Other {
        keyword: &'static str,
        numbers: Numbers,
    },
}

/// `flowbits`, `xbits`, `hostbits` and `flowint`.
#[derive(Clone, Debug, PartialEq)]
pub enum Bits {
    Flow {
        verb: BitVerb,
        names: Vec<String>,
        all: bool,
    },
    /// `xbits`, `hostbits`: bits that belong to an address rather than a flow.
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
    /// Set the bit, and clear the others in its group.
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
    /// `xbits`: one set of bits shared by all traffic.
    Global,
}

/// `threshold`, `detection_filter`, and the count in `rate_filter`.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    pub kind: CountKind,
    pub track: Track,
    pub count: u32,
    /// Length of the time window; 0: unlimited.
    pub seconds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CountKind {
    /// Raise alerts for the first `count` matches in each window.
    Limit,
    /// Raise an alert for every `count`th match in a window.
    Threshold,
    /// Raise one alert per window, at the `count`th match.
    Both,
    /// Raise alerts for all matches after the first `count`.
    DetectionFilter,
    Backoff {
        multiplier: u32,
    },
}
