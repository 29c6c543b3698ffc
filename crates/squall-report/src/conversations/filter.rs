//! Selection of flows, by `host 10.0.0.1 and not port 53` in tcpdump's syntax, or by parts of a
//! row's text.

use std::{fmt, net::IpAddr, str::FromStr};

use super::{Flow, HostAddress};

/// A filter for flows. The empty filter matches all flows.
///
/// ```text
/// filter    = and ("or" and)*                 || for or, && for and, ! for not
/// and       = not (["and"] not)*              words one after the other must all hold
/// not       = "not" not | "(" filter ")" | term
/// term      = ["src" | "dst"] ("host" ADDRESS | "net" NETWORK | "port" N | "port" N-M)
///           | "proto" NAME | "on" PORT | TEXT
/// ```
/// TEXT is a port if it is a number, and an address or a network if it is a complete one. Any other
/// TEXT is searched for in the addresses and the protocol: `10.0.`, `udp`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter(Option<Expr>);

/// An error in a filter, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// Position of the error in characters, 1-based.
    pub column: usize,
    pub message: String,
}

/// Limits of the length of a filter in octets and of nested parentheses, far above practical use.
const LONGEST: usize = 1000;
const DEEPEST: usize = 50;

#[derive(Clone, Debug, PartialEq)]
enum Expr {
    All(Vec<Expr>),
    Any(Vec<Expr>),
    Not(Box<Expr>),
    Host(Side, HostAddress),
    Net(Side, IpAddr, u8),
    Ports(Side, u16, u16),
    /// In lower case.
    Protocol(String),
    /// The name of a port of the run.
    On(String),
    /// In lower case.
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Src,
    Dst,
    Either,
}

impl Filter {
    /// Whether `flow` matches; `ports` are the names of the run's ports.
    pub fn matches(&self, flow: &Flow, ports: &[String]) -> bool {
        self.0.as_ref().is_none_or(|expr| expr.matches(flow, ports))
    }
}

impl Expr {
    fn matches(&self, flow: &Flow, ports: &[String]) -> bool {
        let of = |side: Side, src: bool, dst: bool| match side {
            Side::Src => src,
            Side::Dst => dst,
            Side::Either => src || dst,
        };
        match self {
            Self::All(parts) => parts.iter().all(|part| part.matches(flow, ports)),
            Self::Any(parts) => parts.iter().any(|part| part.matches(flow, ports)),
            Self::Not(part) => !part.matches(flow, ports),
            Self::Host(side, address) => of(*side, flow.src == *address, flow.dst == *address),
            Self::Net(side, net, len) => {
                of(*side, within(&flow.src, net, *len), within(&flow.dst, net, *len))
            }
            Self::Ports(side, from, to) => flow.ports.is_some_and(|(src, dst)| {
                of(*side, (*from..=*to).contains(&src), (*from..=*to).contains(&dst))
            }),
            Self::Protocol(name) => flow.protocol.eq_ignore_ascii_case(name),
            Self::On(name) => ports.get(flow.port).is_some_and(|port| port == name),
            Self::Text(text) => {
                let has = |address: &HostAddress| address.to_string().contains(text.as_str());
                flow.protocol.to_ascii_lowercase().contains(text.as_str())
                    || has(&flow.src)
                    || has(&flow.dst)
            }
        }
    }
}

/// Whether a network contains the address. It contains no addresses of the other IP version.
fn within(address: &HostAddress, net: &IpAddr, len: u8) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 4),
        IpAddr::V6(v6) => (v6.to_bits(), 6),
    };
    let HostAddress::Ip(address) = address else { return false };
    let ((address, version), (net, wanted)) = (bits(*address), bits(*net));
    // Shifting by 128 bits would overflow.
    version == wanted && (len == 0 || (address ^ net) >> (128 - u32::from(len)) == 0)
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        if text.len() > LONGEST {
            let message =
                format!("cannot read a filter of {} octets: at most {LONGEST}", text.len());
            return Err(FilterError { column: 1, message });
        }
        let words = words(text);
        let mut parser = Parser { words: &words, end: text.chars().count() + 1, depth: 0 };
        if words.is_empty() {
            return Ok(Self(None));
        }
        let expr = parser.any()?;
        match parser.words.first() {
            None => Ok(Self(Some(expr))),
            Some(word) => Err(word.wrong("this ) has no matching (")),
        }
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.message)
    }
}

impl std::error::Error for FilterError {}

/// A word and its column. Words are in lower case where case does not matter.
struct Word<'a> {
    text: &'a str,
    column: usize,
}

impl Word<'_> {
    fn is(&self, any: &[&str]) -> bool {
        any.iter().any(|word| self.text.eq_ignore_ascii_case(word))
    }

    fn wrong(&self, message: impl Into<String>) -> FilterError {
        FilterError { column: self.column, message: message.into() }
    }
}

/// Splits at spaces, and at characters that are words themselves.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut rest = text;
    let mut column = 1;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            c if c.is_whitespace() => c.len_utf8(),
            '(' | ')' => 1,
            // `!=` is a single word, which the parser rejects; otherwise it would be read as `!`.
            '!' if !rest.starts_with("!=") => 1,
            '&' | '|' if rest[1..].starts_with(first) => 2,
            _ => {
                let end = |c: char| c.is_whitespace() || "()&|".contains(c);
                rest.char_indices().skip(1).find(|(_, c)| end(*c)).map_or(rest.len(), |(at, _)| at)
            }
        };
        let (word, after) = rest.split_at(len);
        if !first.is_whitespace() {
            words.push(Word { text: word, column });
        }
        column += word.chars().count();
        rest = after;
    }
    words
}

struct Parser<'a> {
    words: &'a [Word<'a>],
    /// Column after the last character of the filter.
    end: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn any(&mut self) -> Result<Expr, FilterError> {
        let mut parts = vec![self.all()?];
        while self.take(&["or", "||"]) {
            parts.push(self.all()?);
        }
        Ok(one_or(parts, Expr::Any))
    }

    fn all(&mut self) -> Result<Expr, FilterError> {
        let mut parts = vec![self.not()?];
        loop {
            let and = self.take(&["and", "&&"]);
            if !and && self.words.first().is_none_or(|word| word.is(&["or", "||", ")"])) {
                break;
            }
            parts.push(self.not()?);
        }
        Ok(one_or(parts, Expr::All))
    }

    fn not(&mut self) -> Result<Expr, FilterError> {
        let word = self.next("a word such as host, port or tcp")?;
        let nested = word.is(&["not", "!", "("]);
        if nested && self.depth == DEEPEST {
            return Err(word.wrong(format!("cannot nest deeper than {DEEPEST}")));
        }
        if word.is(&["not", "!"]) {
            self.depth += 1;
            let inner = self.not()?;
            self.depth -= 1;
            return Ok(Expr::Not(inner.into()));
        }
        if word.is(&["("]) {
            self.depth += 1;
            let inner = self.any()?;
            self.depth -= 1;
            if !self.take(&[")"]) {
                return Err(word.wrong("this ( has no matching )"));
            }
            return Ok(inner);
        }
        self.term(word)
    }

    fn term(&mut self, word: &'a Word<'a>) -> Result<Expr, FilterError> {
        let side = match () {
            () if word.is(&["src"]) => Side::Src,
            () if word.is(&["dst"]) => Side::Dst,
            () => Side::Either,
        };
        let kind = match side {
            Side::Either => word,
            _ => self.next("host, net or port")?,
        };
        if kind.is(&["host"]) {
            return address(self.next("an address")?, side);
        }
        if kind.is(&["net"]) {
            return network(self.next("a network such as 10.0.0.0/8")?, side);
        }
        if kind.is(&["port", "portrange"]) {
            return port(self.next("a port such as 53 or 1024-2047")?, side);
        }
        if side != Side::Either {
            return Err(kind.wrong(format!("expected host, net or port, found {:?}", kind.text)));
        }
        if word.is(&["proto"]) {
            let name = self.next("a protocol such as tcp, udp or icmp")?;
            return Ok(Expr::Protocol(name.text.to_ascii_lowercase()));
        }
        if word.is(&["on"]) {
            return Ok(Expr::On(self.next("the name of a port of the run")?.text.to_owned()));
        }
        text(word)
    }

    fn next(&mut self, expected: &str) -> Result<&'a Word<'a>, FilterError> {
        let wrong = |column, found: &str| {
            Err(FilterError { column, message: format!("expected {expected}, found {found}") })
        };
        match self.words.split_first() {
            // `and`, `or` or `)` where a term must be.
            Some((word, _)) if word.is(&["and", "&&", "or", "||", ")"]) => {
                wrong(word.column, &format!("{:?}", word.text))
            }
            Some((word, rest)) => {
                self.words = rest;
                Ok(word)
            }
            None => wrong(self.end, "the end"),
        }
    }

    fn take(&mut self, any: &[&str]) -> bool {
        match self.words.split_first() {
            Some((word, rest)) if word.is(any) => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }
}

fn one_or(mut parts: Vec<Expr>, many: fn(Vec<Expr>) -> Expr) -> Expr {
    match parts.len() {
        1 => parts.remove(0),
        _ => many(parts),
    }
}

fn address(word: &Word<'_>, side: Side) -> Result<Expr, FilterError> {
    if let Ok(ip) = word.text.parse() {
        return Ok(Expr::Host(side, HostAddress::Ip(ip)));
    }
    if is_mac(word.text) {
        let mac = word.text.to_ascii_lowercase();
        return Ok(Expr::Host(side, HostAddress::Other(mac.into())));
    }
    Err(word.wrong(format!(
        "expected an IP or MAC address, found {:?}; try a part of an address without host",
        word.text
    )))
}

fn is_mac(text: &str) -> bool {
    let octet = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
    text.split(':').count() == 6 && text.split(':').all(octet)
}

fn network(word: &Word<'_>, side: Side) -> Result<Expr, FilterError> {
    let parsed = word.text.split_once('/').and_then(|(net, len)| {
        let net: IpAddr = net.parse().ok()?;
        let len: u8 = len.parse().ok()?;
        (len <= if net.is_ipv4() { 32 } else { 128 }).then_some(Expr::Net(side, net, len))
    });
    parsed.ok_or_else(|| {
        word.wrong(format!("expected a network such as 10.0.0.0/8, found {:?}", word.text))
    })
}

fn port(word: &Word<'_>, side: Side) -> Result<Expr, FilterError> {
    let (from, to) = word.text.split_once('-').unwrap_or((word.text, word.text));
    match (from.parse(), to.parse()) {
        (Ok(from), Ok(to)) if from <= to => Ok(Expr::Ports(side, from, to)),
        _ => Err(word.wrong(format!(
            "expected a port such as 53 or 1024-2047, 0 to 65535, found {:?}",
            word.text
        ))),
    }
}

fn text(word: &Word<'_>) -> Result<Expr, FilterError> {
    let known = |c: char| c.is_ascii_alphanumeric() || ".:-_/".contains(c);
    if !word.text.chars().all(known) {
        return Err(word.wrong(format!(
            "cannot read {:?}; try host 10.0.0.1, net 10.0.0.0/8, port 53, proto udp or a part of \
             an address",
            word.text
        )));
    }
    if word.text.bytes().all(|b| b.is_ascii_digit()) {
        return port(word, Side::Either);
    }
    if word.text.contains('/') {
        return network(word, Side::Either);
    }
    Ok(address(word, Side::Either).unwrap_or_else(|_| Expr::Text(word.text.to_ascii_lowercase())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(src: &str, dst: &str, ports: Option<(u16, u16)>, protocol: &'static str) -> Flow {
        Flow {
            port: 1,
            src: HostAddress::parse(src),
            dst: HostAddress::parse(dst),
            ports,
            protocol: protocol.into(),
            packets: 1,
            octets: 64,
            first_s: 0.0,
            last_s: 0.0,
            bps: 0.0,
            lost: None,
        }
    }

    fn takes(filter: &str, flow: &Flow) -> bool {
        let filter: Filter = filter.parse().unwrap_or_else(|error| panic!("{filter}: {error}"));
        filter.matches(flow, &["A".to_owned(), "B".to_owned()])
    }

    #[test]
    fn terms_take_what_they_name() {
        let dns = flow("10.0.0.1", "10.1.0.9", Some((4000, 53)), "UDP");
        let six = flow("2001:db8::1", "2001:db8::2", Some((1, 443)), "TCP");
        let arp = flow("02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff", None, "ARP");
        for yes in [
            "",
            "host 10.0.0.1",
            "10.1.0.9",
            "src host 10.0.0.1 and dst port 53",
            "net 10.1.0.0/16",
            "dst net 10.1.0.0/16",
            "10.0.0.0/15",
            "0.0.0.0/0",
            "port 53",
            "53",
            "port 50-60",
            "udp",
            "UD",
            "proto UDP",
            "on B",
            "10.1.",
            "not tcp",
            "!tcp && !icmp",
            "tcp or udp",
            "(tcp or udp) port 53",
            "udp 10.0.0.1 4000",
        ] {
            assert!(takes(yes, &dns), "{yes}");
        }
        for no in [
            "host 10.0.0.2",
            "dst host 10.0.0.1",
            "src net 10.1.0.0/16",
            "src port 53",
            "port 5",
            "proto ud",
            "on A",
            "tcp",
            "not udp",
            "udp and not port 53",
            "net ::/0",
            "tcp or udp and port 80",
        ] {
            assert!(!takes(no, &dns), "{no}");
        }
        assert!(takes("net 2001:db8::/32 and tcp", &six) && takes("2001:db8:", &six));
        assert!(takes("host 02:00:00:00:00:01", &arp) && takes("arp", &arp));
        assert!(!takes("port 0-65535", &arp), "it has no ports");
    }

    #[test]
    fn a_wrong_filter_says_where_and_what_was_expected() {
        for (filter, message) in [
            ("port", "column 5: expected a port such as 53 or 1024-2047, found the end"),
            (
                "udp port abc",
                "column 10: expected a port such as 53 or 1024-2047, 0 to 65535, found \"abc\"",
            ),
            (
                "port 65536",
                "column 6: expected a port such as 53 or 1024-2047, 0 to 65535, found \"65536\"",
            ),
            (
                "port 9-3",
                "column 6: expected a port such as 53 or 1024-2047, 0 to 65535, found \"9-3\"",
            ),
            (
                "host 10.0.",
                "column 6: expected an IP or MAC address, found \"10.0.\"; try a part of an address without host",
            ),
            (
                "net 10.0.0.0/33",
                "column 5: expected a network such as 10.0.0.0/8, found \"10.0.0.0/33\"",
            ),
            ("udp and", "column 8: expected a word such as host, port or tcp, found the end"),
            (
                "udp and and tcp",
                "column 9: expected a word such as host, port or tcp, found \"and\"",
            ),
            ("or tcp", "column 1: expected a word such as host, port or tcp, found \"or\""),
            ("(udp", "column 1: this ( has no matching )"),
            ("udp)", "column 4: this ) has no matching ("),
            ("src udp", "column 5: expected host, net or port, found \"udp\""),
            (
                "ip.addr == 10.0.0.1",
                "column 9: cannot read \"==\"; try host 10.0.0.1, net 10.0.0.0/8, port 53, proto udp or a part of an address",
            ),
        ] {
            let error = filter.parse::<Filter>().expect_err(filter);
            assert_eq!(error.to_string(), message, "{filter}");
        }
        assert!("(".repeat(900).parse::<Filter>().is_err());
        assert!("! ".repeat(400).parse::<Filter>().is_err());
        assert!("x ".repeat(600).parse::<Filter>().is_err(), "too long");
    }
}
