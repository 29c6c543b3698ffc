//! Parses PCRE2 syntax (pcre2pattern(3), release 10.43) into a tree. It works on octets, because
//! rules match octets and not characters.
//!
//! Options such as `(?i)` are resolved during parsing: sets are case-folded, and `^` records
//! whether it is in multi-line mode.

use std::collections::BTreeMap;

use super::ByteSet;

/// The reason why an expression is invalid, and its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expression, at octet {at}: {text}")]
pub struct ExpressionError {
    /// Offset in the expression, from 0.
    pub at: usize,
    pub text: String,
}

/// Options given outside the expression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub caseless: bool,
    pub dotall: bool,
    pub multiline: bool,
    pub extended: bool,
    pub anchored: bool,
    pub dollar_end_only: bool,
    pub ungreedy: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Empty,
    /// An octet of the set, and the preferred one: the literal octet, or the simplest printable
    /// one.
    Set(ByteSet, Option<u8>),
    Concat(Vec<Node>),
    Alternate(Vec<Node>),
    Capture(u32, Box<Node>),
    /// A group that must capture exactly these octets.
    CaptureOf(u32, Box<Node>, Vec<u8>),
    Repeat {
        node: Box<Node>,
        min: u32,
        max: Option<u32>,
        kind: RepeatKind,
    },
    Assert(Assertion),
    Look {
        ahead: bool,
        negative: bool,
        node: Box<Node>,
    },
    Atomic(Box<Node>),
    /// Back-reference to the first of these groups that has matched.
    Back {
        groups: Vec<u32>,
        caseless: bool,
    },
    /// Subroutine call of a group; 0 is the whole expression.
    Call(u32),
    Condition {
        condition: Condition,
        yes: Box<Node>,
        no: Box<Node>,
    },
    /// `\K`
    Keep,
    Fail,
    /// `(*ACCEPT)`
    Accept,
    /// A reference by name, until names are resolved after parsing.
    Named {
        name: Vec<u8>,
        at: usize,
        is: NamedIs,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedIs {
    Back { caseless: bool },
    Call,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RepeatKind {
    Greedy,
    Lazy,
    Possessive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assertion {
    SubjectStart,
    LineStart,
    /// `$`: the end, or before a final line feed.
    SubjectEndOrLastLine,
    /// `\z`
    SubjectEnd,
    LineEnd,
    WordEdge,
    NoWordEdge,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Condition {
    /// One of these groups has matched.
    Groups(Vec<u32>),
    Name(Vec<u8>, usize),
    Recursion,
    Always(bool),
}

pub(super) struct Syntax {
    pub root: Node,
    /// The highest group number.
    pub groups: u32,
    pub names: BTreeMap<Vec<u8>, Vec<u32>>,
}

pub(super) const WORD: ByteSet = ByteSet::range(b'0', b'9')
    .or(ByteSet::range(b'a', b'z'))
    .or(ByteSet::range(b'A', b'Z'))
    .with(b'_');
pub(super) const NEWLINE: ByteSet = ByteSet::of(b'\n');
// `\d`, `\s`, `\h` and `\v` below code point 256 (pcre2pattern(3), "Generic character types").
const DIGIT: ByteSet = ByteSet::range(b'0', b'9');
const SPACE: ByteSet = ByteSet::range(9, 13).with(b' ');
const HORIZONTAL: ByteSet = ByteSet::of(9).with(b' ').with(0xa0);
const VERTICAL: ByteSet = ByteSet::range(10, 13).with(0x85);

/// PCRE2's limit on the nesting of parentheses.
const MAX_DEPTH: u32 = 250;
// PCRE2's limits on quantifiers and groups.
const MAX_REPEATS: u32 = 65_535;
/// Maximum length of an expression, far more than any in rules.
const MAX_LEN: usize = 65_536;
const MAX_GROUPS: u32 = 65_535;

pub(super) fn parse(pattern: &[u8], flags: Flags) -> Result<Syntax, ExpressionError> {
    if pattern.len() > MAX_LEN {
        return Err(ExpressionError {
            at: MAX_LEN,
            text: format!("is longer than {MAX_LEN} octets"),
        });
    }
    let options = Options {
        caseless: flags.caseless,
        dotall: flags.dotall,
        multiline: flags.multiline,
        extended: flags.extended,
        extended_more: false,
        ungreedy: flags.ungreedy,
        no_capture: false,
        dollar_end_only: flags.dollar_end_only,
    };
    let mut parser = Parser {
        text: pattern,
        at: 0,
        options,
        groups: 0,
        depth: 0,
        names: BTreeMap::new(),
        references: Vec::new(),
    };
    parser.leading_verbs()?;
    let root = parser.alternation()?;
    if parser.at < pattern.len() {
        return Err(parser.error("found `)` without a `(` before; try `\\)`"));
    }
    let Parser { groups, names, references, .. } = parser;
    for (at, group) in references {
        if group > groups {
            return Err(ExpressionError {
                at,
                text: format!("refers to group {group}, but has only {groups}"),
            });
        }
    }
    let mut root = root;
    resolve(&mut root, &names)?;
    if flags.anchored {
        root = Node::Concat(vec![Node::Assert(Assertion::SubjectStart), root]);
    }
    Ok(Syntax { root, groups, names })
}

/// Replaces names by numbers.
fn resolve(node: &mut Node, names: &BTreeMap<Vec<u8>, Vec<u32>>) -> Result<(), ExpressionError> {
    let find = |name: &Vec<u8>, at: usize| {
        names.get(name).cloned().ok_or_else(|| ExpressionError {
            at,
            text: format!("refers to group `{}`, which does not exist", name.escape_ascii()),
        })
    };
    match node {
        Node::Named { name, at, is } => {
            let groups = find(name, *at)?;
            *node = match is {
                NamedIs::Back { caseless } => Node::Back { groups, caseless: *caseless },
                NamedIs::Call => Node::Call(groups[0]),
            };
        }
        Node::Condition { condition, yes, no } => {
            if let Condition::Name(name, at) = condition {
                *condition = Condition::Groups(find(name, *at)?);
            }
            resolve(yes, names)?;
            resolve(no, names)?;
        }
        Node::Concat(nodes) | Node::Alternate(nodes) => {
            for node in nodes {
                resolve(node, names)?;
            }
        }
        Node::Capture(_, node)
        | Node::CaptureOf(_, node, _)
        | Node::Repeat { node, .. }
        | Node::Look { node, .. }
        | Node::Atomic(node) => {
            resolve(node, names)?;
        }
        Node::Empty
        | Node::Set(..)
        | Node::Assert(_)
        | Node::Back { .. }
        | Node::Call(_)
        | Node::Keep
        | Node::Fail
        | Node::Accept => {}
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Options {
    caseless: bool,
    dotall: bool,
    multiline: bool,
    extended: bool,
    extended_more: bool,
    ungreedy: bool,
    no_capture: bool,
    dollar_end_only: bool,
}

struct Parser<'p> {
    text: &'p [u8],
    at: usize,
    options: Options,
    groups: u32,
    depth: u32,
    names: BTreeMap<Vec<u8>, Vec<u32>>,
    /// References to groups by number, checked at the end.
    references: Vec<(usize, u32)>,
}

/// The meaning of an escape.
enum Escape {
    Byte(u8),
    Set(ByteSet, Option<u8>),
    Node(Node),
    /// `\Q`
    Quote,
    /// `\E` without a `\Q`.
    Nothing,
}

impl Parser<'_> {
    fn error(&self, text: impl Into<String>) -> ExpressionError {
        ExpressionError { at: self.at, text: text.into() }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self) -> Option<u8> {
        let byte = self.peek();
        self.at += usize::from(byte.is_some());
        byte
    }

    fn eat(&mut self, text: &[u8]) -> bool {
        let found = self.text[self.at..].starts_with(text);
        if found {
            self.at += text.len();
        }
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), ExpressionError> {
        if self.eat(&[byte]) {
            Ok(())
        } else {
            Err(self.error(format!("expected `{}`", char::from(byte))))
        }
    }

    /// Consumes the text up to and including `end`.
    fn until(&mut self, end: u8) -> Result<Vec<u8>, ExpressionError> {
        let rest = &self.text[self.at..];
        let Some(length) = rest.iter().position(|byte| *byte == end) else {
            return Err(self.error(format!("has no closing `{}`", char::from(end))));
        };
        self.at += length + 1;
        Ok(rest[..length].to_vec())
    }

    /// Skips verbs at the start (`(*UTF)`, `(*LIMIT_MATCH=1)`), which do not constrain the text.
    fn leading_verbs(&mut self) -> Result<(), ExpressionError> {
        const SETTINGS: [&[u8]; 20] = [
            b"UTF)",
            b"UTF8)",
            b"UCP)",
            b"CR)",
            b"LF)",
            b"CRLF)",
            b"ANYCRLF)",
            b"ANY)",
            b"NUL)",
            b"BSR_ANYCRLF)",
            b"BSR_UNICODE)",
            b"NOTEMPTY)",
            b"NOTEMPTY_ATSTART)",
            b"NO_AUTO_POSSESS)",
            b"NO_DOTSTAR_ANCHOR)",
            b"NO_JIT)",
            b"NO_START_OPT)",
            b"LIMIT_MATCH=",
            b"LIMIT_DEPTH=",
            b"LIMIT_HEAP=",
        ];
        while self.text[self.at..].starts_with(b"(*") {
            let rest = &self.text[self.at + 2..];
            if !SETTINGS.iter().any(|setting| rest.starts_with(setting)) {
                break;
            }
            self.until(b')')?;
        }
        Ok(())
    }

    /// Parses up to a `)` or the end, neither of which is consumed.
    fn alternation(&mut self) -> Result<Node, ExpressionError> {
        self.alternatives(false)
    }

    fn alternatives(&mut self, reset: bool) -> Result<Node, ExpressionError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!("nests parentheses more than {MAX_DEPTH} deep")));
        }
        let first_group = self.groups;
        let mut most = self.groups;
        let mut ways = vec![self.sequence()?];
        while self.eat(b"|") {
            if reset {
                most = most.max(self.groups);
                self.groups = first_group;
            }
            ways.push(self.sequence()?);
        }
        if reset {
            self.groups = self.groups.max(most);
        }
        self.depth -= 1;
        Ok(if ways.len() == 1 { ways.remove(0) } else { Node::Alternate(ways) })
    }

    fn sequence(&mut self) -> Result<Node, ExpressionError> {
        let mut nodes: Vec<Node> = Vec::new();
        // Whether the last item has a quantifier. After `\E`, the next character can then only
        // change the kind of that quantifier.
        let mut quantified = false;
        while let Some(byte) = self.peek() {
            match byte {
                b'|' | b')' => break,
                b'#' if self.options.extended => {
                    while self.take().is_some_and(|byte| byte != b'\n') {}
                    continue;
                }
                _ if self.options.extended && SPACE.has(byte) => {
                    self.at += 1;
                    continue;
                }
                _ if self.eat(b"(?#") => {
                    self.until(b')')?;
                    continue;
                }
                _ if self.eat(b"\\E") || self.eat(b"\\Q\\E") => {
                    match nodes.last_mut() {
                        Some(Node::Repeat { kind, .. }) if quantified => {
                            *kind = self.kind().unwrap_or(*kind)
                        }
                        _ => quantified = self.quantify_last(&mut nodes)?,
                    }
                    continue;
                }
                _ if self.eat(b"\\Q") => {
                    let rest = &self.text[self.at..];
                    let length =
                        rest.windows(2).position(|two| two == b"\\E").unwrap_or(rest.len());
                    nodes.extend(rest[..length].iter().map(|byte| self.literal(*byte)));
                    self.at = (self.at + length + 2).min(self.text.len());
                    quantified = self.quantify_last(&mut nodes)?;
                    continue;
                }
                _ => {}
            }
            let Some(atom) = self.atom()? else { continue };
            nodes.push(atom);
            quantified = self.quantify_last(&mut nodes)?;
        }
        Ok(match nodes.len() {
            0 => Node::Empty,
            1 => nodes.remove(0),
            _ => Node::Concat(nodes),
        })
    }

    fn literal(&self, byte: u8) -> Node {
        Node::Set(ByteSet::letter(byte, self.options.caseless), Some(byte))
    }

    /// Parses an atom. Returns `None` for option settings and empty items.
    fn atom(&mut self) -> Result<Option<Node>, ExpressionError> {
        let Some(byte) = self.take() else { return Ok(None) };
        Ok(Some(match byte {
            b'.' => Node::Set(if self.options.dotall { ByteSet::ALL } else { NEWLINE.not() }, None),
            b'^' if self.options.multiline => Node::Assert(Assertion::LineStart),
            b'^' => Node::Assert(Assertion::SubjectStart),
            b'$' if self.options.multiline => Node::Assert(Assertion::LineEnd),
            b'$' if self.options.dollar_end_only => Node::Assert(Assertion::SubjectEnd),
            b'$' => Node::Assert(Assertion::SubjectEndOrLastLine),
            b'[' if self.eat(b"[:<:]]") => word_edge_before(true),
            b'[' if self.eat(b"[:>:]]") => word_edge_before(false),
            b'[' => self.class()?,
            b'(' => return self.group(),
            b'\\' => match self.escape(false)? {
                Escape::Byte(byte) => self.literal(byte),
                Escape::Set(set, hint) => Node::Set(set, hint),
                Escape::Node(node) => node,
                Escape::Quote | Escape::Nothing => return Ok(None),
            },
            b'*' | b'+' | b'?' | b'{' => {
                self.at -= 1;
                let at = self.at;
                if self.quantifier()?.is_some() {
                    let text = format!(
                        "found `{0}` with nothing before it to repeat; try `\\{0}`",
                        char::from(byte)
                    );
                    return Err(ExpressionError { at, text });
                }
                self.at += 1;
                self.literal(byte)
            }
            byte => self.literal(byte),
        }))
    }

    /// Parses a quantifier for the last node. Returns whether there was one.
    fn quantify_last(&mut self, nodes: &mut Vec<Node>) -> Result<bool, ExpressionError> {
        self.skip_extended();
        let Some((min, max)) = self.quantifier()? else { return Ok(false) };
        self.skip_extended();
        let usual = if self.options.ungreedy { RepeatKind::Lazy } else { RepeatKind::Greedy };
        let kind = self.kind().unwrap_or(usual);
        let Some(node) = nodes.pop() else { return Ok(false) };
        if max.is_some_and(|max| max < min) {
            return Err(self.error(format!(
                "has a repetition of at least {min} and at most {}",
                max.unwrap_or(0)
            )));
        }
        nodes.push(Node::Repeat { node: Box::new(node), min, max, kind });
        Ok(true)
    }

    /// Parses the suffix that determines the kind of a quantifier.
    fn kind(&mut self) -> Option<RepeatKind> {
        if self.eat(b"+") {
            Some(RepeatKind::Possessive)
        } else if self.eat(b"?") {
            Some(if self.options.ungreedy { RepeatKind::Greedy } else { RepeatKind::Lazy })
        } else {
            None
        }
    }

    /// Skips comments and the white space of extended syntax, which may precede a quantifier.
    fn skip_extended(&mut self) {
        loop {
            match self.peek() {
                Some(b'(') if self.text[self.at..].starts_with(b"(?#") => {
                    let rest = &self.text[self.at..];
                    let Some(length) = rest.iter().position(|byte| *byte == b')') else { break };
                    self.at += length + 1;
                }
                Some(byte) if self.options.extended && SPACE.has(byte) => self.at += 1,
                Some(b'#') if self.options.extended => {
                    while self.take().is_some_and(|byte| byte != b'\n') {}
                }
                _ => break,
            }
        }
    }

    fn quantifier(&mut self) -> Result<Option<(u32, Option<u32>)>, ExpressionError> {
        let simple = match self.peek() {
            Some(b'*') => (0, None),
            Some(b'+') => (1, None),
            Some(b'?') => (0, Some(1)),
            Some(b'{') => return self.counted(),
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(simple))
    }

    /// Parses `{n}`, `{n,}`, `{,m}`, `{n,m}`. Any other `{` is a literal.
    fn counted(&mut self) -> Result<Option<(u32, Option<u32>)>, ExpressionError> {
        let rest = &self.text[self.at + 1..];
        let Some(length) = rest.iter().position(|byte| *byte == b'}') else { return Ok(None) };
        let inner = &rest[..length];
        if inner.is_empty()
            || !inner
                .iter()
                .all(|byte| byte.is_ascii_digit() || matches!(byte, b',' | b' ' | b'\t'))
        {
            return Ok(None);
        }
        let number = |digits: &[u8]| -> Option<Option<u32>> {
            let digits = digits.trim_ascii();
            if digits.is_empty() {
                return Some(None);
            }
            if !digits.iter().all(u8::is_ascii_digit) {
                return None;
            }
            let value = digits.iter().fold(0_u32, |sum, digit| {
                sum.saturating_mul(10).saturating_add(u32::from(digit - b'0'))
            });
            Some(Some(value))
        };
        let mut halves = inner.split(|byte| *byte == b',');
        let (first, second) = (halves.next().and_then(number), halves.next().map(number));
        let (min, max) = match (first, second, halves.next()) {
            (Some(Some(count)), None, None) => (count, Some(count)),
            (Some(Some(min)), Some(Some(max)), None) => (min, max),
            (Some(None), Some(Some(Some(max))), None) => (0, Some(max)),
            _ => return Ok(None),
        };
        if min > MAX_REPEATS || max.is_some_and(|max| max > MAX_REPEATS) {
            return Err(self.error(format!("repeats more than {MAX_REPEATS} times")));
        }
        self.at += length + 2;
        Ok(Some((min, max)))
    }

    /// Parses a class after its `[`.
    fn class(&mut self) -> Result<Node, ExpressionError> {
        let begin = self.at - 1;
        let negated = self.eat(b"^");
        let mut set = ByteSet::NONE;
        let mut hint = None;
        let mut members = 0;
        let mut quoted = false;
        // The previous octet, which may start a range.
        let mut low: Option<u8> = None;
        let mut after_set = false;
        let mut first = true;
        loop {
            let Some(byte) = self.take() else {
                return Err(ExpressionError {
                    at: begin,
                    text: "has a `[` without its `]`; try `\\[`".into(),
                });
            };
            if quoted {
                if byte == b'\\' && self.eat(b"E") {
                    quoted = false;
                } else {
                    set = set.with(byte);
                    low = Some(byte);
                    members += 1;
                    hint = hint.or(Some(byte));
                }
                continue;
            }
            let member = match byte {
                b']' if !first => break,
                b' ' | b'\t' if self.options.extended_more => continue,
                b'[' if matches!(self.peek(), Some(b':' | b'.' | b'=')) => match self.posix()? {
                    Some(posix) => Escape::Set(posix, None),
                    None => Escape::Byte(b'['),
                },
                b'\\' => self.escape(true)?,
                b'-' if low.is_some() && self.peek().is_some_and(|byte| byte != b']') => {
                    let from = low.take().unwrap_or(b'-');
                    let mut next = self.take().unwrap_or(b'-');
                    let mut escaped = Escape::Byte(next);
                    if next == b'\\' {
                        escaped = self.escape(true)?;
                    } else if next == b'['
                        && matches!(self.peek(), Some(b':' | b'.' | b'='))
                        && let Some(posix) = self.posix()?
                    {
                        escaped = Escape::Set(posix, None);
                    }
                    match escaped {
                        Escape::Byte(byte) => next = byte,
                        _ => {
                            return Err(self
                                .error("has a range in a class that does not end with one octet"));
                        }
                    }
                    if next < from {
                        return Err(self.error(format!(
                            "has a descending range from `{}` to `{}`",
                            from.escape_ascii(),
                            next.escape_ascii()
                        )));
                    }
                    set = set.or(ByteSet::range(from, next));
                    members += 2;
                    continue;
                }
                b'-' if after_set && self.peek().is_some_and(|byte| byte != b']') => {
                    return Err(self.error(
                        "has a `-` in a class after something that is not one octet; try `\\-`",
                    ));
                }
                byte => Escape::Byte(byte),
            };
            first = false;
            after_set = matches!(member, Escape::Set(..));
            match member {
                Escape::Byte(byte) => {
                    set = set.with(byte);
                    low = Some(byte);
                    members += 1;
                    hint = hint.or(Some(byte));
                }
                Escape::Set(other, _) => {
                    set = set.or(other);
                    low = None;
                    members += 2;
                }
                Escape::Quote => quoted = true,
                Escape::Nothing => {}
                Escape::Node(_) => {
                    return Err(self.error("has an escape that is not allowed in a class"));
                }
            }
        }
        if self.options.caseless {
            set = set.caseless();
        }
        if negated {
            set = set.not();
        }
        Ok(Node::Set(set, hint.filter(|_| members == 1 && !negated)))
    }

    /// Parses a POSIX class after the second `[` of `[[:alpha:]]`. Returns `None` if it is a plain
    /// `[`.
    fn posix(&mut self) -> Result<Option<ByteSet>, ExpressionError> {
        let rest = &self.text[self.at..];
        let kind = rest[0];
        let Some(end) =
            rest.windows(2).skip(1).position(|two| two == [kind, b']']).map(|at| at + 1)
        else {
            return Ok(None);
        };
        let name = &rest[1..end];
        if !name.iter().all(|byte| byte.is_ascii_alphabetic() || *byte == b'^') {
            return Ok(None);
        }
        if kind != b':' {
            return Err(self.error("has a collating element, which PCRE2 does not support"));
        }
        let (negated, name) = name.strip_prefix(b"^").map_or((false, name), |name| (true, name));
        let letters = ByteSet::range(b'a', b'z').or(ByteSet::range(b'A', b'Z'));
        // If case is ignored, classes for one case include the other.
        let (lower, upper) = if self.options.caseless {
            (letters, letters)
        } else {
            (ByteSet::range(b'a', b'z'), ByteSet::range(b'A', b'Z'))
        };
        let graphic = ByteSet::range(33, 126);
        let set = match name {
            b"alpha" => letters,
            b"lower" => lower,
            b"upper" => upper,
            b"alnum" => letters.or(DIGIT),
            b"ascii" => ByteSet::range(0, 127),
            b"blank" => ByteSet::of(9).with(b' '),
            b"cntrl" => ByteSet::range(0, 31).with(127),
            b"digit" => DIGIT,
            b"graph" => graphic,
            b"print" => graphic.with(b' '),
            b"punct" => graphic.and(letters.or(DIGIT).not()),
            b"space" => SPACE,
            b"word" => WORD,
            b"xdigit" => DIGIT.or(ByteSet::range(b'a', b'f')).or(ByteSet::range(b'A', b'F')),
            _ => {
                return Err(
                    self.error(format!("has the unknown class `[:{}:]`", name.escape_ascii()))
                );
            }
        };
        self.at += end + 2;
        Ok(Some(if negated { set.not() } else { set }))
    }

    /// Parses an escape after its backslash.
    fn escape(&mut self, in_class: bool) -> Result<Escape, ExpressionError> {
        let Some(byte) = self.take() else {
            return Err(self.error("ends with a `\\`; try `\\\\`"));
        };
        let set = |set: ByteSet| Ok(Escape::Set(set, None));
        let assertion = |assertion| Ok(Escape::Node(Node::Assert(assertion)));
        match byte {
            b'a' => Ok(Escape::Byte(7)),
            b'e' => Ok(Escape::Byte(27)),
            b'f' => Ok(Escape::Byte(12)),
            b'n' => Ok(Escape::Byte(b'\n')),
            b'r' => Ok(Escape::Byte(b'\r')),
            b't' => Ok(Escape::Byte(b'\t')),
            b'd' => set(DIGIT),
            b'D' => set(DIGIT.not()),
            b'w' => set(WORD),
            b'W' => set(WORD.not()),
            b's' => Ok(Escape::Set(SPACE, Some(b' '))),
            b'S' => set(SPACE.not()),
            b'h' => Ok(Escape::Set(HORIZONTAL, Some(b' '))),
            b'H' => set(HORIZONTAL.not()),
            b'v' => Ok(Escape::Set(VERTICAL, Some(b'\n'))),
            b'V' => set(VERTICAL.not()),
            b'Q' => Ok(Escape::Quote),
            b'E' => Ok(Escape::Nothing),
            b'c' => match self.take() {
                Some(next @ 32..=126) => Ok(Escape::Byte(next.to_ascii_uppercase() ^ 0x40)),
                _ => Err(self.error("has a `\\c` without a printable character after it")),
            },
            b'x' => self.hexadecimal(),
            b'o' => {
                self.expect(b'{')?;
                let digits = self.until(b'}')?;
                self.code_point(&digits, 8)
            }
            b'0' => Ok(Escape::Byte(self.octal(0, 2))),
            b'1'..=b'9' => self.digits(byte, in_class),
            b'p' | b'P' => self.property(byte == b'P'),
            b'b' if in_class => Ok(Escape::Byte(8)),
            b'B' | b'R' | b'X' | b'N' if in_class => Err(self
                .error(format!("has `\\{}`, which is not allowed in a class", char::from(byte)))),
            b'b' => assertion(Assertion::WordEdge),
            b'B' => assertion(Assertion::NoWordEdge),
            // Matching starts only once, so its start is the start of the subject.
            b'A' | b'G' if !in_class => assertion(Assertion::SubjectStart),
            b'z' if !in_class => assertion(Assertion::SubjectEnd),
            b'Z' if !in_class => assertion(Assertion::SubjectEndOrLastLine),
            b'K' if !in_class => Ok(Escape::Node(Node::Keep)),
            b'N' if self.eat(b"{U+") => {
                let digits = self.until(b'}')?;
                self.code_point(&digits, 16)
            }
            b'N' => set(NEWLINE.not()),
            b'C' | b'X' if !in_class => set(ByteSet::ALL),
            b'R' => {
                let no_line_feed = Node::Look {
                    ahead: true,
                    negative: true,
                    node: Box::new(Node::Set(NEWLINE, None)),
                };
                let return_ = Node::Set(ByteSet::of(b'\r'), None);
                Ok(Escape::Node(Node::Alternate(vec![
                    Node::Set(VERTICAL.without(b'\r'), Some(b'\n')),
                    Node::Concat(vec![return_.clone(), Node::Set(NEWLINE, None)]),
                    Node::Concat(vec![return_, no_line_feed]),
                ])))
            }
            b'g' if !in_class => self.reference(),
            b'k' if !in_class => {
                let name = match self.take() {
                    Some(b'{') => self.until(b'}')?,
                    Some(b'<') => self.until(b'>')?,
                    Some(b'\'') => self.until(b'\'')?,
                    _ => return Err(self.error("has a `\\k` without a name, such as `\\k<name>`")),
                };
                Ok(Escape::Node(self.named_back(name)))
            }
            byte if byte.is_ascii_alphanumeric() => {
                self.at -= 1;
                Err(self
                    .error(format!("has `\\{}`, which PCRE2 does not support", char::from(byte))))
            }
            byte => Ok(Escape::Byte(byte)),
        }
    }

    fn named_back(&mut self, name: Vec<u8>) -> Node {
        let name = name.trim_ascii().to_vec();
        Node::Named { name, at: self.at, is: NamedIs::Back { caseless: self.options.caseless } }
    }

    /// Parses the digits after `\x`.
    fn hexadecimal(&mut self) -> Result<Escape, ExpressionError> {
        if self.peek() == Some(b'{') {
            let rest = &self.text[self.at + 1..];
            let length = rest.iter().position(|byte| *byte == b'}').unwrap_or(0);
            let digits = rest[..length].trim_ascii();
            if !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit) {
                self.at += length + 2;
                return self.code_point(digits, 16);
            }
        }
        let mut value = 0;
        for _ in 0..2 {
            let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(16)) else {
                break;
            };
            value = value * 16 + digit as u8;
            self.at += 1;
        }
        Ok(Escape::Byte(value))
    }

    fn code_point(&self, digits: &[u8], radix: u32) -> Result<Escape, ExpressionError> {
        let text = std::str::from_utf8(digits).unwrap_or_default().trim();
        match u32::from_str_radix(text, radix).map(u8::try_from) {
            Ok(Ok(byte)) => Ok(Escape::Byte(byte)),
            _ => Err(self.error(format!("has the character `{text}`, which is not an octet"))),
        }
    }

    fn octal(&mut self, mut value: u32, most: usize) -> u8 {
        for _ in 0..most {
            let Some(digit @ b'0'..=b'7') = self.peek() else { break };
            value = value * 8 + u32::from(digit - b'0');
            self.at += 1;
        }
        // `\777` is not an octet. PCRE2 rejects it, and so does the engine.
        value as u8
    }

    /// `\1` to `\9...`: a group, or an octal code if there is no such group yet.
    fn digits(&mut self, first: u8, in_class: bool) -> Result<Escape, ExpressionError> {
        if !in_class {
            let begin = self.at;
            let mut value = u32::from(first - b'0');
            while let Some(digit @ b'0'..=b'9') = self.peek() {
                value = value.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
                self.at += 1;
            }
            if value < 10 || first >= b'8' || value <= self.groups {
                return Ok(Escape::Node(self.back(value)));
            }
            self.at = begin;
        }
        if first >= b'8' {
            return Ok(Escape::Byte(first));
        }
        Ok(Escape::Byte(self.octal(u32::from(first - b'0'), 2)))
    }

    fn back(&mut self, group: u32) -> Node {
        self.references.push((self.at, group));
        Node::Back { groups: vec![group], caseless: self.options.caseless }
    }

    /// Parses a reference after `\g`.
    fn reference(&mut self) -> Result<Escape, ExpressionError> {
        let (name, is_call) = match self.peek() {
            Some(open @ (b'{' | b'<' | b'\'')) => {
                self.at += 1;
                let close = match open {
                    b'{' => b'}',
                    b'<' => b'>',
                    _ => b'\'',
                };
                (self.until(close)?, open != b'{')
            }
            _ => {
                let begin = self.at;
                self.at += usize::from(matches!(self.peek(), Some(b'-' | b'+')));
                while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                    self.at += 1;
                }
                (self.text[begin..self.at].to_vec(), false)
            }
        };
        let name = name.trim_ascii().to_vec();
        if let Some(group) = self.group_number(&name)? {
            return Ok(Escape::Node(if is_call { self.call(group) } else { self.back(group) }));
        }
        if name.is_empty() {
            return Err(self.error("has a `\\g` without a number or name"));
        }
        let is =
            if is_call { NamedIs::Call } else { NamedIs::Back { caseless: self.options.caseless } };
        Ok(Escape::Node(Node::Named { name, at: self.at, is }))
    }

    fn call(&mut self, group: u32) -> Node {
        self.references.push((self.at, group));
        Node::Call(group)
    }

    /// Parses `3`, `-1` or `+1`. Returns `None` for a name.
    fn group_number(&self, text: &[u8]) -> Result<Option<u32>, ExpressionError> {
        let (sign, digits) = match text {
            [sign @ (b'-' | b'+'), digits @ ..] => (Some(*sign), digits),
            digits => (None, digits),
        };
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Ok(None);
        }
        let value = digits.iter().fold(0_u32, |sum, digit| {
            sum.saturating_mul(10).saturating_add(u32::from(digit - b'0'))
        });
        match sign {
            None => Ok(Some(value)),
            Some(b'+') => Ok(Some(self.groups.saturating_add(value))),
            _ if value == 0 || value > self.groups => Err(self.error(format!(
                "refers {value} groups back, but only {} are before it",
                self.groups
            ))),
            _ => Ok(Some(self.groups - value + 1)),
        }
    }

    /// Parses a property after `\p` or `\P`, for Latin-1 only, because the subject consists of
    /// octets.
    fn property(&mut self, mut negated: bool) -> Result<Escape, ExpressionError> {
        let name = match self.take() {
            Some(b'{') => self.until(b'}')?,
            Some(letter) => vec![letter],
            None => return Err(self.error("has a `\\p` without a property")),
        };
        let mut name: Vec<u8> = name
            .iter()
            .filter(|byte| !matches!(byte, b' ' | b'_' | b'-'))
            .map(u8::to_ascii_lowercase)
            .collect();
        if name.first() == Some(&b'^') {
            name.remove(0);
            negated = !negated;
        }
        let category = |wanted: fn(char) -> bool| {
            (0..=255_u8).filter(|byte| wanted(char::from(*byte))).fold(ByteSet::NONE, ByteSet::with)
        };
        let punctuation =
            ByteSet::from_bytes(b"!\"#%&'()*,-./:;?@[\\]_{}\xa1\xa7\xab\xb6\xb7\xbb\xbf");
        let symbol = ByteSet::from_bytes(
            b"$+<=>^`|~\xa2\xa3\xa4\xa5\xa6\xa8\xa9\xac\xae\xaf\xb0\xb1\xb4\xb8\xd7\xf7",
        );
        let set = match name.as_slice() {
            b"any" => ByteSet::ALL,
            b"l" => category(char::is_alphabetic),
            b"l&" | b"lc" => {
                category(|c| c.is_lowercase() || c.is_uppercase()).without(0xaa).without(0xba)
            }
            b"lu" => category(char::is_uppercase),
            b"ll" => category(char::is_lowercase).without(0xaa).without(0xba),
            b"lo" => ByteSet::from_bytes(b"\xaa\xba"),
            b"lt" | b"lm" | b"m" | b"mn" | b"mc" | b"me" | b"nl" | b"zl" | b"zp" | b"cn"
            | b"co" | b"cs" => ByteSet::NONE,
            b"n" => DIGIT.or(ByteSet::from_bytes(b"\xb2\xb3\xb9\xbc\xbd\xbe")),
            b"nd" => DIGIT,
            b"no" => ByteSet::from_bytes(b"\xb2\xb3\xb9\xbc\xbd\xbe"),
            b"p" => punctuation,
            b"s" => symbol,
            b"z" | b"zs" => ByteSet::of(b' ').with(0xa0),
            b"c" => ByteSet::range(0, 31).or(ByteSet::range(127, 159)).with(0xad),
            b"cc" => ByteSet::range(0, 31).or(ByteSet::range(127, 159)),
            b"cf" => ByteSet::of(0xad),
            b"xan" => category(char::is_alphanumeric),
            b"xwd" => category(char::is_alphanumeric).with(b'_'),
            b"xsp" | b"xps" => SPACE.with(0x85).with(0xa0),
            b"latin" => category(char::is_alphabetic),
            _ => {
                return Err(
                    self.error(format!("has the unknown property `{}`", name.escape_ascii()))
                );
            }
        };
        Ok(Escape::Set(if negated { set.not() } else { set }, None))
    }

    /// Parses a group after its `(`. Returns `None` for option settings.
    fn group(&mut self) -> Result<Option<Node>, ExpressionError> {
        let begin = self.at - 1;
        let outside = self.options;
        let node = if self.eat(b"*") {
            self.verb()?
        } else if self.eat(b"?") {
            match self.special()? {
                Some(node) => node,
                None => return Ok(None),
            }
        } else if self.options.no_capture {
            self.alternation()?
        } else {
            let group = self.new_group()?;
            Node::Capture(group, Box::new(self.alternation()?))
        };
        self.options = outside;
        if !self.eat(b")") {
            return Err(ExpressionError {
                at: begin,
                text: "has a `(` without its `)`; try `\\(`".into(),
            });
        }
        Ok(Some(node))
    }

    fn new_group(&mut self) -> Result<u32, ExpressionError> {
        if self.groups >= MAX_GROUPS {
            return Err(self.error("has too many groups"));
        }
        self.groups += 1;
        Ok(self.groups)
    }

    fn named_group(&mut self, name: Vec<u8>) -> Result<Node, ExpressionError> {
        if name.is_empty() || !name.iter().all(|byte| WORD.has(*byte)) || name[0].is_ascii_digit() {
            return Err(
                self.error(format!("has a group with the invalid name `{}`", name.escape_ascii()))
            );
        }
        let group = self.new_group()?;
        let groups = self.names.entry(name).or_default();
        if !groups.contains(&group) {
            groups.push(group);
        }
        Ok(Node::Capture(group, Box::new(self.alternation()?)))
    }

    fn look(&mut self, ahead: bool, negative: bool) -> Result<Node, ExpressionError> {
        Ok(Node::Look { ahead, negative, node: Box::new(self.alternation()?) })
    }

    /// Parses a group after `(?`, up to its `)`. Returns `None` for option settings, whose `)` it
    /// consumes.
    fn special(&mut self) -> Result<Option<Node>, ExpressionError> {
        let rest = &self.text[self.at..];
        Ok(Some(match rest {
            [b':', ..] => {
                self.at += 1;
                self.alternation()?
            }
            [b'|', ..] => {
                self.at += 1;
                self.alternatives(true)?
            }
            [b'>', ..] => {
                self.at += 1;
                Node::Atomic(Box::new(self.alternation()?))
            }
            [b'=', ..] | [b'*', ..] => {
                self.at += 1;
                self.look(true, false)?
            }
            [b'!', ..] => {
                self.at += 1;
                self.look(true, true)?
            }
            [b'<', b'=' | b'*', ..] => {
                self.at += 2;
                self.look(false, false)?
            }
            [b'<', b'!', ..] => {
                self.at += 2;
                self.look(false, true)?
            }
            [b'P', b'<', ..] | [b'<', ..] => {
                self.at += if rest[0] == b'P' { 2 } else { 1 };
                let name = self.until(b'>')?;
                self.named_group(name)?
            }
            [b'\'', ..] => {
                self.at += 1;
                let name = self.until(b'\'')?;
                self.named_group(name)?
            }
            [b'P', b'=', ..] => {
                self.at += 2;
                let name = self.name();
                self.named_back(name)
            }
            [b'P', b'>', ..] | [b'&', ..] => {
                self.at += if rest[0] == b'P' { 2 } else { 1 };
                Node::Named { name: self.name(), at: self.at, is: NamedIs::Call }
            }
            [b'R', ..] => {
                self.at += 1;
                Node::Call(0)
            }
            [b'0'..=b'9', ..] | [b'+' | b'-', b'0'..=b'9', ..] => {
                let begin = self.at;
                self.at += 1;
                while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                    self.at += 1;
                }
                match self.group_number(&self.text[begin..self.at])? {
                    Some(group) => self.call(group),
                    None => return Err(self.error("has no group number")),
                }
            }
            [b'(', ..] => self.condition()?,
            // A callout does not constrain the text.
            [b'C', ..] => {
                while self.peek().is_some_and(|byte| byte != b')') {
                    self.at += 1;
                }
                Node::Empty
            }
            _ => return self.option_setting(),
        }))
    }

    fn name(&mut self) -> Vec<u8> {
        let begin = self.at;
        while self.peek().is_some_and(|byte| WORD.has(byte)) {
            self.at += 1;
        }
        self.text[begin..self.at].to_vec()
    }

    /// Parses `(?i-s)` including its `)`, or `(?i-s:...` up to its `)`.
    fn option_setting(&mut self) -> Result<Option<Node>, ExpressionError> {
        let mut on = true;
        loop {
            let Some(byte) = self.take() else { return Err(self.error("ends within `(?`")) };
            match byte {
                b'^' => {
                    let dollar_end_only = self.options.dollar_end_only;
                    let ungreedy = self.options.ungreedy;
                    self.options = Options {
                        caseless: false,
                        dotall: false,
                        multiline: false,
                        extended: false,
                        extended_more: false,
                        no_capture: false,
                        ungreedy,
                        dollar_end_only,
                    };
                }
                b'-' => on = false,
                b'i' => self.options.caseless = on,
                b's' => self.options.dotall = on,
                b'm' => self.options.multiline = on,
                b'x' => {
                    self.options.extended_more = on && self.eat(b"x");
                    self.options.extended = on;
                }
                b'U' => self.options.ungreedy = on,
                b'n' => self.options.no_capture = on,
                // Duplicate names are always accepted, `a` concerns only Unicode, and `r` restricts
                // case folding to ASCII.
                b'J' | b'a' | b'r' => {
                    self.at += usize::from(
                        byte == b'a'
                            && matches!(self.peek(), Some(b'D' | b'S' | b'W' | b'P' | b'T')),
                    );
                }
                b')' => return Ok(None),
                b':' => return Ok(Some(self.alternation()?)),
                byte => {
                    self.at -= 1;
                    return Err(self.error(format!(
                        "has `(?{}`, which PCRE2 does not support",
                        byte.escape_ascii()
                    )));
                }
            }
        }
    }

    /// Parses a condition after `(?`, at the second `(`.
    fn condition(&mut self) -> Result<Node, ExpressionError> {
        if matches!(
            self.text[self.at + 1..],
            [b'?', b'=' | b'!' | b'*', ..] | [b'?', b'<', b'=' | b'!' | b'*', ..] | [b'*', ..]
        ) {
            self.at += 1;
            let Some(Node::Look { ahead, negative, node }) = self.group()? else {
                return Err(self.error("has a condition that is not an assertion"));
            };
            let (yes, no) = self.both_ways()?;
            let held = Node::Look { ahead, negative, node: node.clone() };
            let not_held = Node::Look { ahead, negative: !negative, node };
            return Ok(Node::Alternate(vec![
                Node::Concat(vec![held, yes]),
                Node::Concat(vec![not_held, no]),
            ]));
        }
        self.at += 1;
        let at = self.at;
        let text = self.until(b')')?;
        let name = match text.as_slice() {
            [b'<', name @ .., b'>'] | [b'\'', name @ .., b'\''] => name,
            name => name,
        };
        let condition = if let Some(group) = self.group_number(name)? {
            self.references.push((at, group));
            Condition::Groups(vec![group])
        } else if name == b"DEFINE" {
            Condition::Always(false)
        } else if name.starts_with(b"VERSION") {
            Condition::Always(true)
        } else if name == b"R"
            || name.starts_with(b"R&")
            || (name.starts_with(b"R") && name[1..].iter().all(u8::is_ascii_digit))
        {
            Condition::Recursion
        } else {
            Condition::Name(name.to_vec(), at)
        };
        let (yes, no) = self.both_ways()?;
        Ok(Node::Condition { condition, yes: Box::new(yes), no: Box::new(no) })
    }

    fn both_ways(&mut self) -> Result<(Node, Node), ExpressionError> {
        let yes = self.sequence()?;
        let no = if self.eat(b"|") { self.sequence()? } else { Node::Empty };
        if self.peek() == Some(b'|') {
            return Err(self.error("has a condition with more than two alternatives"));
        }
        Ok((yes, no))
    }

    /// Parses a verb after `(*`, up to its `)`.
    fn verb(&mut self) -> Result<Node, ExpressionError> {
        let begin = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_') {
            self.at += 1;
        }
        let name = &self.text[begin..self.at];
        if self.peek() == Some(b':') && name.first().is_some_and(u8::is_ascii_lowercase) {
            self.at += 1;
            return match name {
                b"pla" | b"positive_lookahead" | b"napla" | b"non_atomic_positive_lookahead" => {
                    self.look(true, false)
                }
                b"nla" | b"negative_lookahead" => self.look(true, true),
                b"plb" | b"positive_lookbehind" | b"naplb" | b"non_atomic_positive_lookbehind" => {
                    self.look(false, false)
                }
                b"nlb" | b"negative_lookbehind" => self.look(false, true),
                b"atomic" => Ok(Node::Atomic(Box::new(self.alternation()?))),
                b"sr" | b"script_run" => self.alternation(),
                b"asr" | b"atomic_script_run" => Ok(Node::Atomic(Box::new(self.alternation()?))),
                _ => Err(self.error(format!(
                    "has `(*{}:`, which PCRE2 does not support",
                    name.escape_ascii()
                ))),
            };
        }
        let node = match name {
            b"F" | b"FAIL" => Node::Fail,
            b"ACCEPT" => Node::Accept,
            b"COMMIT" | b"PRUNE" | b"SKIP" | b"THEN" | b"MARK" | b"" => Node::Empty,
            _ => {
                return Err(self.error(format!(
                    "has the verb `(*{})`, which PCRE2 does not support",
                    name.escape_ascii()
                )));
            }
        };
        while self.peek().is_some_and(|byte| byte != b')') {
            self.at += 1;
        }
        Ok(node)
    }
}

/// `[[:<:]]` and `[[:>:]]`: start and end of a word.
fn word_edge_before(word: bool) -> Node {
    let look = Node::Look { ahead: true, negative: !word, node: Box::new(Node::Set(WORD, None)) };
    Node::Concat(vec![Node::Assert(Assertion::WordEdge), look])
}
