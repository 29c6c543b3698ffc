//! Parses a line of a rule file: its header, each of its options, and the constraints between
//! options.

use std::{fmt, ops::Range};

use crate::keywords::{self, What};
use crate::set::quoted;
use crate::variables::Resolver;
use crate::{
    Action, Addresses, Application, Buffer, Content, Dialect, Direction, End, Ends, EngineVersion,
    Flow, Header, Inspection, Number, Numbers, Operation, Place, Protocol, Reason, Rule, Sourced,
    Step, Transform, Variables,
};

/// The reason why a line is not a rule, and the offset of the error.
#[derive(Debug)]
pub(crate) struct LineError {
    pub reason: Reason,
    /// Offset of the error in the line, in octets.
    pub at: Option<usize>,
    pub sid: Option<u32>,
    pub text: String,
}

/// The reason why an option is not accepted.
#[derive(Debug)]
pub(crate) struct OptionError(pub Reason, pub String);

pub(crate) type Parsed<T = ()> = Result<T, OptionError>;

pub(crate) fn bad<T>(text: impl Into<String>) -> Parsed<T> {
    Err(OptionError(Reason::BadValue, text.into()))
}

pub(crate) fn contradiction<T>(text: impl Into<String>) -> Parsed<T> {
    Err(OptionError(Reason::Contradiction, text.into()))
}

pub(crate) fn not_loaded<T>(engine: EngineVersion, text: impl std::fmt::Display) -> Parsed<T> {
    Err(OptionError(Reason::NotLoaded, format!("{engine} does not load {text}")))
}

pub(crate) fn unsupported<T>(text: impl Into<String>) -> Parsed<T> {
    Err(OptionError(Reason::UnsupportedKeyword, text.into()))
}

const ACTIONS: &[(&str, Action)] = &[
    ("alert", Action::Alert),
    ("log", Action::Log),
    ("pass", Action::Pass),
    ("drop", Action::Drop),
    ("sdrop", Action::Drop),
    ("reject", Action::Reject),
    ("rejectsrc", Action::Reject),
    ("rejectdst", Action::Reject),
    ("rejectboth", Action::Reject),
    ("accept", Action::Other),
    ("block", Action::Other),
    ("rewrite", Action::Other),
    ("react", Action::Other),
    ("config", Action::Other),
    ("activate", Action::Other),
    ("dynamic", Action::Other),
    ("file_id", Action::Other),
];

pub(crate) fn is_action(word: &str) -> bool {
    action(word).is_some()
}

/// Parses an action. Suricata 8 also has actions with a scope (`drop:flow`), for its firewall.
fn action(word: &str) -> Option<Action> {
    let word = word.split(':').next().unwrap_or(word);
    ACTIONS.iter().find(|(name, _)| *name == word).map(|&(_, action)| action)
}

const PROTOCOLS: &[(&str, Protocol)] = &[
    ("ip", Protocol::Ip),
    ("pkthdr", Protocol::Ip),
    ("ip4", Protocol::Ip4),
    ("ipv4", Protocol::Ip4),
    ("ip6", Protocol::Ip6),
    ("ipv6", Protocol::Ip6),
    ("tcp", Protocol::Tcp),
    ("tcp-pkt", Protocol::TcpSegments),
    ("tcp-stream", Protocol::TcpReassembled),
    ("udp", Protocol::Udp),
    ("icmp", Protocol::Icmp),
    ("icmpv4", Protocol::Icmp),
    ("icmpv6", Protocol::Icmp6),
    ("sctp", Protocol::Sctp),
    // Snort 3: any TCP-based protocol that transfers files.
    ("file", Protocol::Tcp),
    ("user", Protocol::Tcp),
];

/// Names of application protocols in all engines. Suricata's name is the first one for each
/// protocol.
const APPLICATIONS: &[(&str, Application)] = &[
    ("http", Application::Http),
    ("http1", Application::Http1),
    ("http2", Application::Http2),
    ("dns", Application::Dns),
    ("doh2", Application::Doh2),
    ("mdns", Application::Mdns),
    ("tls", Application::Tls),
    ("ssl", Application::Tls),
    ("ssh", Application::Ssh),
    ("ftp", Application::Ftp),
    ("ftp-data", Application::FtpData),
    ("smtp", Application::Smtp),
    ("pop3", Application::Pop3),
    ("imap", Application::Imap),
    ("smb", Application::Smb),
    ("netbios-ssn", Application::Smb),
    ("dcerpc", Application::DceRpc),
    ("sip", Application::Sip),
    ("sdp", Application::Sdp),
    ("krb5", Application::Krb5),
    ("kerberos", Application::Krb5),
    ("snmp", Application::Snmp),
    ("tftp", Application::Tftp),
    ("nfs", Application::Nfs),
    ("ike", Application::Ike),
    ("ikev2", Application::Ike),
    ("rdp", Application::Rdp),
    ("rfb", Application::Rfb),
    ("mqtt", Application::Mqtt),
    ("modbus", Application::Modbus),
    ("dnp3", Application::Dnp3),
    ("enip", Application::Enip),
    ("ntp", Application::Ntp),
    ("dhcp", Application::Dhcp),
    ("telnet", Application::Telnet),
    ("quic", Application::Quic),
    ("http3", Application::Quic),
    ("bittorrent-dht", Application::BitTorrentDht),
    ("pgsql", Application::Pgsql),
    ("ldap", Application::Ldap),
    ("websocket", Application::WebSocket),
    ("nntp", Application::Nntp),
    ("irc", Application::Irc),
];

impl fmt::Display for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = APPLICATIONS.iter().find(|(_, application)| application == self);
        f.write_str(known.map_or("an unnamed application", |(name, _)| name))
    }
}

pub(crate) fn application(name: &str) -> Option<Application> {
    APPLICATIONS.iter().find(|(known, _)| *known == name).map(|&(_, application)| application)
}

fn protocol(name: &str) -> Option<Protocol> {
    // Suricata 8 allows a hook after a colon, which is the state of the transaction in which the
    // rule is evaluated.
    let name = name.split(':').next().unwrap_or(name).to_ascii_lowercase();
    let known = PROTOCOLS.iter().find(|(known, _)| *known == name).map(|&(_, protocol)| protocol);
    known.or_else(|| application(&name).map(Protocol::Application))
}

/// Parses rules that share a set of variables.
pub(crate) struct LineParser<'v> {
    resolver: Resolver<'v>,
    engine: Option<EngineVersion>,
}

impl<'v> LineParser<'v> {
    pub fn new(variables: &'v Variables, engine: Option<EngineVersion>) -> Self {
        LineParser { resolver: variables.resolver(), engine }
    }

    /// Parses a rule. `line` must be trimmed.
    pub fn rule(&mut self, line: &str) -> Result<Rule, LineError> {
        let refuse = |reason, at, text: String| LineError { reason, at, sid: None, text };
        let Some(open) = line.find('(') else {
            let text = format!(
                "{} is not a rule: expected an action, a header and options in parentheses",
                quoted(line)
            );
            return Err(refuse(Reason::Syntax, None, text));
        };
        let Some(close) =
            line.rfind(')').filter(|&close| close > open && is_end(&line[close + 1..]))
        else {
            let text = "the options do not end with `)`: is the line cut off?".to_owned();
            return Err(refuse(Reason::Syntax, Some(line.len()), text));
        };
        let options = options(line, open + 1..close);
        let sid = options
            .iter()
            .find_map(|option| line[option.clone()].strip_prefix("sid"))
            .and_then(|rest| rest.trim_start().strip_prefix(':')?.trim().parse().ok());
        let (action, header, short) = match self.header(&line[..open]) {
            Ok(read) => read,
            Err((at, OptionError(reason, text))) => {
                return Err(LineError { reason, at: Some(at), sid, text });
            }
        };
        if options.len() > usize::from(u16::MAX) {
            return Err(refuse(
                Reason::BadValue,
                None,
                format!("{} options: expected at most 65535", options.len()),
            ));
        }
        let parts: Vec<(&str, &str)> =
            options.iter().map(|option| name_and_value(&line[option.clone()])).collect();
        if let Some(engine) = self.engine {
            loads_header(engine, &line[..open], &header, short).map_err(
                |OptionError(reason, text)| LineError { reason, at: Some(0), sid, text },
            )?;
        }
        let dialect =
            self.engine.map_or_else(|| dialect(&header, short, &parts), EngineVersion::dialect);
        let mut builder = RuleBuilder::new(line, action, header, dialect, self.engine);
        for (index, &(name, value)) in parts.iter().enumerate() {
            builder.option = index as u16;
            builder.keyword(name, value).map_err(|OptionError(reason, text)| LineError {
                reason,
                at: Some(options[index].start),
                sid,
                text: format!("{}: {text}", quoted(name)),
            })?;
        }
        builder.rule.options = options;
        builder.finish().map_err(|(option, OptionError(reason, text))| LineError {
            reason,
            at: option.and_then(|option| Some(option_range(line, open + 1..close, option)?.start)),
            sid,
            text,
        })
    }

    /// Parses the header. Also returns whether it lacks addresses and ports.
    fn header(&mut self, text: &str) -> Result<(Action, Header, bool), (usize, OptionError)> {
        let words = words(text);
        let word = |index: usize| &text[words[index].clone()];
        let syntax = |at, text| (at, OptionError(Reason::Syntax, text));
        if words.is_empty() {
            return Err(syntax(0, "expected an action, such as alert".into()));
        }
        let Some(action) = action(word(0)) else {
            return Err(syntax(
                0,
                format!(
                    "unknown action {}: expected alert, drop, pass, log, reject ...",
                    quoted(word(0))
                ),
            ));
        };
        if words.len() != 7 && words.len() > 2 {
            let text = format!(
                "the header has {} words: expected `action protocol addresses ports -> addresses \
                 ports`, or in Snort 3 `alert http`",
                words.len()
            );
            return Err(syntax(words[words.len() - 1].start, text));
        }
        let protocol = match words.get(1) {
            None => Protocol::Ip,
            Some(range) => protocol(&text[range.clone()]).ok_or_else(|| {
                let text = format!("unknown protocol {}", quoted(&text[range.clone()]));
                (range.start, OptionError(Reason::UnsupportedKeyword, text))
            })?,
        };
        if words.len() <= 2 {
            let any = || Ends {
                addresses: Addresses::any(),
                ports: Numbers::range(0..=65535),
                addresses_text: "any".into(),
                ports_text: "any".into(),
            };
            let header =
                Header { protocol, source: any(), direction: Direction::To, destination: any() };
            return Ok((action, header, true));
        }
        let mut ends = |at: usize| {
            let resolved = self.resolver.addresses(word(at));
            let addresses =
                resolved.map_err(|(reason, text)| (words[at].start, OptionError(reason, text)))?;
            let resolved = self.resolver.ports(word(at + 1));
            let ports = resolved
                .map_err(|(reason, text)| (words[at + 1].start, OptionError(reason, text)))?;
            Ok(Ends {
                addresses,
                ports,
                addresses_text: word(at).to_owned(),
                ports_text: word(at + 1).to_owned(),
            })
        };
        let (source, destination) = (ends(2)?, ends(5)?);
        let direction = match word(4) {
            "->" => Direction::To,
            "<>" => Direction::Both,
            "=>" => Direction::Transaction,
            other => {
                let text = format!("unknown direction {}: expected ->, <> or =>", quoted(other));
                return Err(syntax(words[4].start, text));
            }
        };
        Ok((action, Header { protocol, source, direction, destination }, false))
    }
}

/// Checks that `engine` loads a rule with this header. `short`: the header has no addresses or
/// ports.
fn loads_header(engine: EngineVersion, text: &str, header: &Header, short: bool) -> Parsed {
    let mut words = text.split_whitespace();
    let (action, name) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let protocol = name.split(':').next().unwrap_or(name).to_ascii_lowercase();
    let is_transport = matches!(protocol.as_str(), "ip" | "tcp" | "udp" | "icmp");
    if short && engine != EngineVersion::Snort3 {
        return not_loaded(engine, "a rule without addresses and ports: that is Snort 3's syntax");
    }
    let known = match engine {
        EngineVersion::Snort2 => is_transport,
        EngineVersion::Snort3 => {
            is_transport
                || short
                || matches!(header.protocol, Protocol::Application(_))
                || matches!(protocol.as_str(), "file" | "user")
        }
        EngineVersion::Suricata7 | EngineVersion::Suricata8 => match header.protocol {
            Protocol::Application(application) => {
                is_known_to_suricata(application, engine, &protocol)
            }
            _ => !matches!(protocol.as_str(), "file" | "user"),
        },
    };
    if !known {
        return not_loaded(engine, format!("rules of the protocol {}", quoted(&protocol)));
    }
    if header.direction == Direction::Transaction && engine != EngineVersion::Suricata8 {
        return not_loaded(engine, "rules with the direction =>");
    }
    if (action.contains(':') || name.contains(':')) && engine != EngineVersion::Suricata8 {
        return not_loaded(engine, "an action or a protocol with a colon");
    }
    Ok(())
}

/// Returns whether this version of Suricata registers the protocol under this name.
fn is_known_to_suricata(application: Application, engine: EngineVersion, name: &str) -> bool {
    use Application::*;
    match application {
        Nntp => false,
        Doh2 | Mdns | Sdp | Pop3 | Ldap | WebSocket => engine == EngineVersion::Suricata8,
        _ => !matches!(name, "http3" | "ssl" | "netbios-ssn" | "kerberos" | "ikev2"),
    }
}

/// The byte range of an option, for an error message. The line is parsed again, which is acceptable
/// because errors are rare.
fn option_range(line: &str, body: Range<usize>, option: u16) -> Option<Range<usize>> {
    options(line, body).into_iter().nth(option.into())
}

fn is_end(text: &str) -> bool {
    let text = text.trim();
    text.is_empty() || text.starts_with('#')
}

/// Splits `text` at white space, except in lists: a list in brackets is one word.
fn words(text: &str) -> Vec<Range<usize>> {
    let mut words = vec![];
    let mut start = None;
    let mut depth = 0i64;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        match start {
            Some(first) if c.is_whitespace() && depth <= 0 => {
                words.push(first..at);
                start = None;
            }
            None if !c.is_whitespace() => start = Some(at),
            _ => {}
        }
    }
    words.extend(start.map(|first| first..text.len()));
    words
}

/// Returns the byte range of each option in `line`, trimmed and without its semicolon.
///
/// A semicolon ends an option unless a backslash precedes it. Snort also allows a semicolon in
/// quotes, so a value that starts with a quote extends to the closing quote, if there is one.
fn options(line: &str, body: Range<usize>) -> Vec<Range<usize>> {
    let bytes = line.as_bytes();
    let mut found = vec![];
    let mut at = body.start;
    // Set if the rest of the line has no closing quote: otherwise each opening quote would be
    // followed by a search to the end of the line, which takes quadratic time for an invalid line.
    let mut no_quote = false;
    while at < body.end {
        let mut end = at;
        let mut opens = false;
        let mut colon = false;
        while end < body.end && bytes[end] != b';' {
            match bytes[end] {
                b'\\' => end += 1,
                b':' if !colon => {
                    colon = true;
                    opens = true;
                }
                b'"' if opens && !no_quote => match closing_quote(bytes, end + 1, body.end) {
                    Some(closing) => end = closing,
                    None => no_quote = true,
                },
                b'!' => {}
                byte if byte.is_ascii_whitespace() => {}
                _ => opens = false,
            }
            end += 1;
        }
        let end = end.min(body.end);
        let text = &line[at..end];
        let start = at + (text.len() - text.trim_start().len());
        if !text.trim().is_empty() {
            found.push(start..start + text.trim().len());
        }
        at = end + 1;
    }
    found
}

/// The next quote that is not escaped by a backslash.
fn closing_quote(bytes: &[u8], from: usize, end: usize) -> Option<usize> {
    let mut at = from;
    while at < end {
        match bytes[at] {
            b'\\' => at += 1,
            b'"' => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

fn name_and_value(option: &str) -> (&str, &str) {
    let (name, value) = option.split_once(':').unwrap_or((option, ""));
    // An option may have no value (`http.header_lowercase`). Otherwise a colon separates the two
    // (`http_header: field host`).
    (name.trim(), value.trim())
}

/// Determines the dialect from features that only one dialect has.
fn dialect(header: &Header, short: bool, options: &[(&str, &str)]) -> Dialect {
    let mut suricata = matches!(
        header.protocol,
        Protocol::Application(_) | Protocol::TcpSegments | Protocol::TcpReassembled
    );
    let mut seen_content = false;
    for &(name, value) in options {
        match name {
            "content" => {
                seen_content = true;
                let bytes = value.as_bytes();
                let open = bytes.iter().position(|&byte| byte == b'"');
                let close = open.and_then(|open| closing_quote(bytes, open + 1, bytes.len()));
                if close.is_some_and(|close| value[close + 1..].trim_start().starts_with(',')) {
                    return Dialect::Snort3;
                }
            }
            "pcre" | "uricontent" => seen_content = true,
            "nocase" | "depth" | "offset" | "distance" | "within" | "rawbytes" => {
                return if suricata { Dialect::Suricata } else { suricata_or_snort2(options) };
            }
            "service" | "rem" | "bufferlen" | "http_param" | "http_raw_body"
            | "http_raw_request" | "http_raw_status" | "http_true_ip" | "http_version"
            | "file_type" | "js_data" | "vba_data" | "appids" | "regex" | "sd_pattern" | "so"
            | "soid" | "raw_data" | "icmp_type" => return Dialect::Snort3,
            _ if name.contains('.') => suricata = true,
            _ => {
                let modifier = matches!(keywords::find(name), Some(keyword) if matches!(keyword.what, What::Modifier(_)));
                if modifier && (!seen_content || !value.is_empty()) {
                    return Dialect::Snort3;
                }
                if keywords::find(name).is_some_and(keywords::Keyword::is_suricatas_only) {
                    suricata = true;
                }
            }
        }
    }
    match (short, suricata) {
        (true, _) => Dialect::Snort3,
        (_, true) => Dialect::Suricata,
        _ => Dialect::Snort2,
    }
}

/// Chooses between Suricata and Snort 2, once Snort 3 is ruled out.
fn suricata_or_snort2(options: &[(&str, &str)]) -> Dialect {
    let suricata = options.iter().any(|(name, _)| {
        name.contains('.') || keywords::find(name).is_some_and(keywords::Keyword::is_suricatas_only)
    });
    if suricata { Dialect::Suricata } else { Dialect::Snort2 }
}

/// A rule that is being built.
pub(crate) struct RuleBuilder {
    pub rule: Rule,
    /// Index of the option that is being parsed.
    pub option: u16,
    /// The engine that must load the rule, if one was chosen.
    pub engine: Option<EngineVersion>,
    /// The current sticky buffer; `None`: the payload.
    sticky: Option<Sticky>,
    /// Indices of the inspection and the step whose content the next modifiers apply to.
    content: Option<(usize, usize)>,
    /// Index of the inspection to which the latest step belongs.
    last: Option<usize>,
    /// Whether the latest step is a content.
    last_is_content: bool,
    /// Whether the latest content or regular expression is a content.
    last_match_is_content: bool,
    has_sid: bool,
}

/// A named buffer. The first step on it adds an inspection.
struct Sticky {
    buffer: Buffer,
    sent_by: Option<End>,
    part: Option<String>,
    transforms: Vec<Sourced<Transform>>,
    inspection: Option<usize>,
}

impl RuleBuilder {
    fn new(
        line: &str,
        action: Action,
        header: Header,
        dialect: Dialect,
        engine: Option<EngineVersion>,
    ) -> Self {
        let rule = Rule {
            place: Place::default(),
            text: line.to_owned(),
            options: vec![],
            dialect,
            action,
            header,
            gid: 1,
            sid: 0,
            rev: 0,
            msg: String::new(),
            classtype: None,
            priority: None,
            references: vec![],
            metadata: vec![],
            services: vec![],
            flow: Flow::default(),
            packet: vec![],
            application: vec![],
            inspections: vec![],
            bits: vec![],
            counts: vec![],
            variables: vec![],
            silent: false,
            disabled: false,
        };
        RuleBuilder {
            rule,
            option: 0,
            engine,
            sticky: None,
            content: None,
            last: None,
            last_is_content: false,
            last_match_is_content: false,
            has_sid: false,
        }
    }

    fn keyword(&mut self, name: &str, value: &str) -> Parsed {
        let Some(keyword) = keywords::find(name) else {
            let nearest = keywords::nearest(name)
                .map(|nearest| format!(", did you mean {nearest}?"))
                .unwrap_or_default();
            return Err(OptionError(Reason::UnknownKeyword, format!("unknown option{nearest}")));
        };
        if let Some(engine) = self.engine
            && !keyword.is_of(engine)
        {
            return not_loaded(engine, "this option");
        }
        match &keyword.what {
            What::Ignored => Ok(()),
            What::Unsupported(why) => unsupported(*why),
            &What::Sticky(buffer) => self.stick(buffer, value),
            &What::Modifier(buffer) => match self.rule.dialect {
                Dialect::Snort3 => self.stick(buffer, value),
                _ => self.modify_buffer(buffer),
            },
            What::Application(most, names, make) => {
                let numbers = crate::values::numbers(value, *most, names)?;
                self.application(make(numbers, keyword.name));
                Ok(())
            }
            What::Packet(most, names, make) => {
                let numbers = crate::values::numbers(value, *most, names)?;
                self.packet(make(numbers, keyword.name));
                Ok(())
            }
            What::Own(read) => read(self, value),
        }
    }

    pub fn application(&mut self, is: crate::ApplicationTest) {
        self.rule.application.push(Sourced { option: self.option, is });
    }

    pub fn packet(&mut self, is: crate::PacketTest) {
        self.rule.packet.push(Sourced { option: self.option, is });
    }

    /// Makes `buffer` the buffer of the following contents. `value` may name the sending end, or in
    /// Snort 3 a part of the buffer.
    pub fn stick(&mut self, buffer: Buffer, value: &str) -> Parsed {
        let (mut sent_by, mut part_of) = (None, None);
        let mut buffer = buffer;
        for part in value.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_whitespace().collect::<Vec<_>>()[..] {
                ["to_client" | "to_server"] if self.rule.dialect != Dialect::Snort3 => {
                    sent_by = Some(if part == "to_server" { End::Client } else { End::Server });
                }
                ["request"] => sent_by = Some(End::Client),
                ["with_header" | "with_body" | "with_trailer"] => {}
                ["field", name] => match header_buffer(name) {
                    Some(known) if buffer == Buffer::HttpHeader => buffer = known,
                    _ => part_of = Some(name.to_ascii_lowercase()),
                },
                ["scheme" | "host" | "port" | "path" | "query" | "fragment"] => {
                    part_of = Some(part.to_owned())
                }
                _ => {
                    return bad(format!(
                        "{} is not understood after the name of a buffer",
                        quoted(part)
                    ));
                }
            }
        }
        self.sticky =
            Some(Sticky { buffer, sent_by, part: part_of, transforms: vec![], inspection: None });
        Ok(())
    }

    /// Makes a parameter in a buffer sticky (Snort 3's `http_param`).
    pub fn stick_part(&mut self, buffer: Buffer, part: String) {
        self.sticky = Some(Sticky {
            buffer,
            sent_by: None,
            part: Some(part),
            transforms: vec![],
            inspection: None,
        });
    }

    pub fn unstick(&mut self) {
        self.sticky = None;
    }

    pub fn sticky_buffer(&self) -> Option<Buffer> {
        self.sticky.as_ref().map(|sticky| sticky.buffer)
    }

    pub fn transform(&mut self, transform: Transform) -> Parsed {
        let option = self.option;
        match &mut self.sticky {
            Some(sticky) if sticky.inspection.is_none() || sticky.transforms.is_empty() => {
                // Contents before the transform keep the untransformed buffer. Contents after it
                // apply to the transform's output, which is another inspection.
                sticky.inspection = None;
                sticky.transforms.push(Sourced { option, is: transform });
                Ok(())
            }
            Some(_) => contradiction(
                "a transform must directly follow the name of a buffer, another transform, or a \
                 match in the buffer as it is; name the buffer again",
            ),
            None => contradiction("a transform needs a sticky buffer before it"),
        }
    }

    /// Index of the inspection to which the next step belongs. Creates the inspection on first use.
    pub fn current_inspection(&mut self) -> usize {
        let Some(sticky) = &self.sticky else { return self.inspection(Buffer::Payload) };
        if let Some(index) = sticky.inspection {
            return index;
        }
        let known = self.rule.inspections.iter().position(|inspection| {
            inspection.buffer == sticky.buffer
                && !sticky.buffer.is_multiple()
                && inspection.sent_by == sticky.sent_by
                && inspection.part == sticky.part
                && inspection
                    .transforms
                    .iter()
                    .map(|one| &one.is)
                    .eq(sticky.transforms.iter().map(|one| &one.is))
        });
        let index = known.unwrap_or(self.rule.inspections.len());
        let new = Inspection {
            buffer: sticky.buffer,
            sent_by: sticky.sent_by,
            part: sticky.part.clone(),
            transforms: sticky.transforms.clone(),
            steps: vec![],
        };
        if known.is_none() {
            self.rule.inspections.push(new);
        }
        if let Some(sticky) = &mut self.sticky {
            sticky.inspection = Some(index);
        }
        index
    }

    /// Index of the inspection of `buffer` without transforms. Modifiers and flags refer to it.
    pub fn inspection(&mut self, buffer: Buffer) -> usize {
        let known = self.rule.inspections.iter().position(|inspection| {
            inspection.buffer == buffer
                && inspection.transforms.is_empty()
                && inspection.sent_by.is_none()
                && inspection.part.is_none()
        });
        known.unwrap_or_else(|| {
            self.rule.inspections.push(Inspection {
                buffer,
                sent_by: None,
                part: None,
                transforms: vec![],
                steps: vec![],
            });
            self.rule.inspections.len() - 1
        })
    }

    /// Index of the inspection for an option that names no buffer. A relative option applies to the
    /// inspection of the previous step.
    pub fn inspection_for(&mut self, relative: bool) -> usize {
        match self.last {
            Some(last) if relative && self.sticky.is_none() => last,
            _ => self.current_inspection(),
        }
    }

    pub fn step(&mut self, inspection: usize, operation: Operation) {
        let is_content = matches!(operation, Operation::Content(_));
        self.last_is_content = is_content;
        self.last_match_is_content = match operation {
            Operation::Content(_) => true,
            Operation::Pcre(_) => false,
            _ => self.last_match_is_content,
        };
        let steps = &mut self.rule.inspections[inspection].steps;
        steps.push(Step { option: self.option, operation });
        if is_content {
            self.content = Some((inspection, steps.len() - 1));
        }
        self.last = Some(inspection);
    }

    /// Adds a step that is not a match, so no later option can be relative to it.
    pub fn plain_step(&mut self, inspection: usize, operation: Operation) {
        self.rule.inspections[inspection].steps.push(Step { option: self.option, operation });
    }

    /// Whether a relative option at this point would follow a content, as Suricata determines it:
    /// in a sticky buffer, only contents and regular expressions count.
    pub fn follows_content(&self) -> bool {
        if self.sticky.is_some() { self.last_match_is_content } else { self.last_is_content }
    }

    /// The content that modifiers apply to.
    pub fn content(&mut self) -> Parsed<&mut Content> {
        let Some((inspection, step)) = self.content else {
            return contradiction("it needs a content before it");
        };
        match self.rule.inspections[inspection].steps.get_mut(step).map(|step| &mut step.operation)
        {
            Some(Operation::Content(content)) => Ok(content),
            _ => contradiction("it needs a content before it"),
        }
    }

    /// Applies a content modifier such as `http_uri` to the preceding content.
    pub fn modify_buffer(&mut self, buffer: Buffer) -> Parsed {
        let Some((from, at)) = self.content else {
            return match self.engine {
                Some(engine) => not_loaded(engine, "it without a content before it"),
                None => contradiction(
                    "it needs a content before it; as a sticky buffer it is written with dots",
                ),
            };
        };
        if let Some(engine) =
            self.engine.filter(|engine| engine.is_suricata() && self.sticky.is_some())
        {
            return not_loaded(
                engine,
                "it after a sticky buffer: write pkt_data before the content",
            );
        }
        let own = self.sticky.as_ref().and_then(|sticky| sticky.inspection);
        if self.rule.inspections[from].buffer != Buffer::Payload && own != Some(from) {
            return contradiction("the content before it already has a buffer");
        }
        // Move the content now, so later steps come after it in the list of its buffer.
        let step = self.rule.inspections[from].steps.remove(at);
        let to = self.inspection(buffer);
        self.rule.inspections[to].steps.push(step);
        self.content = Some((to, self.rule.inspections[to].steps.len() - 1));
        self.last = Some(to);
        Ok(())
    }

    pub fn set_sid(&mut self, sid: u32) {
        self.rule.sid = sid;
        self.has_sid = true;
    }

    /// Returns the index of a byte variable. Adds the variable if it is new.
    pub fn define(&mut self, name: &str) -> Parsed<u16> {
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
        {
            return bad(format!("{} is not a name of a variable", quoted(name)));
        }
        if let Some(known) = self.rule.variables.iter().position(|known| known == name) {
            return Ok(known as u16);
        }
        // Bounds memory for untrusted input; far above the engines' own limits.
        if self.rule.variables.len() >= 1000 {
            return bad("more than 1000 byte variables");
        }
        self.rule.variables.push(name.to_owned());
        Ok((self.rule.variables.len() - 1) as u16)
    }

    /// Parses a number from `least` to `most`, or the name of a variable that an earlier option
    /// sets.
    pub fn number(&self, text: &str, least: i64, most: i64) -> Parsed<Number> {
        let text = text.trim();
        if let Some(number) = crate::values::signed(text) {
            return if (least..=most).contains(&number) {
                Ok(Number::Is(number))
            } else {
                bad(format!("{number} is out of range: expected {least} to {most}"))
            };
        }
        match self.rule.variables.iter().position(|known| known == text) {
            Some(known) => Ok(Number::Variable(known as u16)),
            None => bad(format!(
                "{} is neither a number nor a variable set earlier by byte_extract or byte_math",
                quoted(text)
            )),
        }
    }

    /// Checks the constraints between options.
    fn finish(mut self) -> Result<Rule, (Option<u16>, OptionError)> {
        if !self.has_sid {
            return Err((
                None,
                OptionError(
                    Reason::NoSid,
                    "a rule needs `sid:`, the number that identifies it in alerts".into(),
                ),
            ));
        }
        for inspection in &self.rule.inspections {
            for step in &inspection.steps {
                let Operation::Content(content) = &step.operation else { continue };
                check(content).map_err(|refusal| (Some(step.option), refusal))?;
            }
        }
        let rule = &mut self.rule;
        rule.inspections.retain(|inspection| !inspection.steps.is_empty());
        rule.inspections.sort_by_key(|inspection| inspection.steps[0].option);
        // In a set of millions of rules, the spare capacity of vectors would be half of all memory.
        rule.inspections.shrink_to_fit();
        rule.inspections.iter_mut().for_each(|inspection| inspection.steps.shrink_to_fit());
        rule.metadata.shrink_to_fit();
        rule.references.shrink_to_fit();
        rule.services.shrink_to_fit();
        rule.packet.shrink_to_fit();
        rule.application.shrink_to_fit();
        rule.bits.shrink_to_fit();
        rule.options.shrink_to_fit();
        rule.msg.shrink_to_fit();
        Ok(self.rule)
    }
}

/// Maximum length of a content: that of the longest IP packet.
const MAX_OCTETS: usize = 65_535;

fn check(content: &Content) -> Parsed {
    if content.pattern.len() > MAX_OCTETS {
        return bad(format!(
            "a content of {} octets: expected at most {MAX_OCTETS}, the longest packet",
            content.pattern.len()
        ));
    }
    let length = content.pattern.len() as i64;
    let too_small =
        |number: Option<Number>| matches!(number, Some(Number::Is(number)) if number < length);
    if too_small(content.depth) {
        return contradiction(format!("depth is smaller than the content's {length} octets"));
    }
    if too_small(content.within) {
        return contradiction(format!("within is smaller than the content's {length} octets"));
    }
    if content.is_relative() && (content.offset.is_some() || content.depth.is_some()) {
        return contradiction("offset and depth cannot be combined with distance and within");
    }
    Ok(())
}

/// The buffer that contains only this header field, if there is one.
fn header_buffer(name: &str) -> Option<Buffer> {
    Some(match name.to_ascii_lowercase().as_str() {
        "user-agent" => Buffer::HttpUserAgent,
        "host" => Buffer::HttpRawHost,
        "referer" => Buffer::HttpReferer,
        "accept" => Buffer::HttpAccept,
        "accept-encoding" => Buffer::HttpAcceptEncoding,
        "accept-language" => Buffer::HttpAcceptLanguage,
        "connection" => Buffer::HttpConnection,
        "content-type" => Buffer::HttpContentType,
        "content-length" => Buffer::HttpContentLength,
        "server" => Buffer::HttpServer,
        "location" => Buffer::HttpLocation,
        _ => return None,
    })
}
