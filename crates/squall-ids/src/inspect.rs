//! A buffer against the steps that a rule has for it, as Suricata goes through them: a content that
//! is followed by a relative step is looked for again, further on, when what follows does not
//! match.

use memchr::{memchr2, memmem};
use pcre2::bytes::{CaptureLocations, Regex};
use squall_rules::{
    Arithmetic, Base64Decode, ByteExtract, ByteJump, ByteMath, ByteTest, Comparison, Content,
    EngineVersion, IsDataAt, JumpFrom, Number, Operation, Reading, Step,
};

use crate::expression;

/// Steps that one look at a buffer may take: Suricata's `inspection-recursion-limit`.
const STEPS: u32 = 3000;

/// A step made ready.
#[derive(Debug)]
pub(crate) struct Ready<'a> {
    operation: &'a Operation,
    /// The next step begins where this one ends: if it does not match, this one is tried further
    /// on.
    relative_next: bool,
    expression: Option<Regex>,
    /// What is looked for in what `base64_decode` makes.
    decoded: Vec<Ready<'a>>,
}

/// Makes steps ready; those of `decoded` belong to the first `base64_decode`.
///
/// # Errors
/// A sentence, if PCRE2 refuses an expression.
pub(crate) fn ready<'a>(
    steps: &[&'a Step],
    decoded: &[&'a Step],
) -> Result<Vec<Ready<'a>>, String> {
    let mut decoded = Some(decoded);
    steps
        .iter()
        .enumerate()
        .map(|(index, step)| {
            let expression = match &step.operation {
                Operation::Pcre(pcre) => Some(expression::compile(pcre)?),
                _ => None,
            };
            let decoded = match (&step.operation, decoded) {
                (Operation::Base64Decode(_), Some(steps)) => {
                    decoded = None;
                    ready(steps, &[])?
                }
                _ => vec![],
            };
            let relative_next =
                steps.get(index + 1).is_some_and(|next| is_relative(&next.operation));
            Ok(Ready { operation: &step.operation, relative_next, expression, decoded })
        })
        .collect()
}

fn is_relative(operation: &Operation) -> bool {
    match operation {
        Operation::Content(content) => content.is_relative(),
        Operation::Pcre(pcre) => pcre.relative,
        Operation::ByteTest(test) => test.reading.relative,
        Operation::ByteJump(jump) => jump.reading.relative,
        Operation::ByteExtract(extract) => extract.reading.relative,
        Operation::ByteMath(math) => math.reading.relative,
        Operation::IsDataAt(at) => at.relative,
        Operation::Base64Decode(decode) => decode.relative,
        _ => false,
    }
}

/// What is true of the buffer as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct About {
    /// `dce`: numbers are of this byte order.
    pub little_endian: bool,
    pub engine: EngineVersion,
}

/// Whether `octets` match all of `steps`. `variables` has a place for each of the rule's; what is
/// extracted stays there.
pub(crate) fn matches(
    steps: &[Ready<'_>],
    octets: &[u8],
    variables: &mut [u64],
    about: About,
) -> bool {
    let mut look = Look { octets, variables, about, cursor: 0, steps: 0 };
    look.from(steps) == Outcome::Match
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Match,
    NoMatch,
    /// Nor would it, were an earlier step tried further on.
    Never,
}

struct Look<'a> {
    octets: &'a [u8],
    variables: &'a mut [u64],
    about: About,
    /// Where the match before has ended.
    cursor: usize,
    steps: u32,
}

impl Look<'_> {
    fn from(&mut self, steps: &[Ready<'_>]) -> Outcome {
        use Outcome::*;
        let Some((step, rest)) = steps.split_first() else { return Match };
        self.steps += 1;
        if self.steps >= STEPS {
            return Never;
        }
        let matched = match step.operation {
            Operation::Content(content) => return self.content(content, step.relative_next, rest),
            Operation::Pcre(pcre) => {
                let Some(regex) = &step.expression else { return Never };
                return self.pcre(pcre.relative, pcre.negated, regex, step.relative_next, rest);
            }
            Operation::ByteTest(test) => self.byte_test(test),
            Operation::ByteJump(jump) => self.byte_jump(jump),
            Operation::ByteExtract(extract) => self.byte_extract(extract),
            Operation::ByteMath(math) => self.byte_math(math),
            Operation::IsDataAt(at) => match self.is_data_at(at) {
                Match => true,
                other => return other,
            },
            Operation::Size(sizes) => {
                if !sizes.contains(self.octets.len() as u64) {
                    return Never;
                }
                true
            }
            // Whether there is a buffer at all is decided before it is looked into.
            Operation::Absent { or_else } => *or_else,
            Operation::Base64Decode(decode) => {
                let Some(made) = self.base64(decode) else { return NoMatch };
                if made.is_empty() || step.decoded.is_empty() {
                    return NoMatch;
                }
                let mut look = Look {
                    octets: &made,
                    variables: self.variables,
                    about: self.about,
                    cursor: 0,
                    steps: self.steps,
                };
                let outcome = look.from(&step.decoded);
                self.steps = look.steps;
                // What is decoded is the last that is looked at. In Suricata 7, giving up inside
                // gives up outside as well: a content before it is not tried further on.
                return match outcome {
                    Never if self.about.engine != EngineVersion::Suricata7 => NoMatch,
                    outcome => outcome,
                };
            }
            Operation::Entropy { least, most, offset, octets } => {
                let from = usize::try_from(*offset).unwrap_or(usize::MAX).min(self.octets.len());
                let part = &self.octets[from..];
                let part = &part[..part.len().min(octets.map_or(usize::MAX, |n| n as usize))];
                (*least..=*most).contains(&entropy(part))
            }
            Operation::Asn1(asn1) => {
                let base = if asn1.relative { self.cursor } else { 0 };
                let Some(octets) = base
                    .checked_add_signed(asn1.offset as isize)
                    .and_then(|at| self.octets.get(at..))
                else {
                    return NoMatch;
                };
                crate::ber::is_wrong(asn1, octets, self.about.engine)
            }
            Operation::Dataset { is_set, values } => {
                if values.iter().any(|value| value == self.octets) != *is_set {
                    return Never;
                }
                true
            }
        };
        if matched { self.from(rest) } else { NoMatch }
    }

    fn number(&self, number: Number) -> i64 {
        match number {
            Number::Is(number) => number,
            Number::Variable(variable) => {
                self.variables.get(usize::from(variable)).map_or(0, |&value| value as i64)
            }
        }
    }

    fn content(&mut self, content: &Content, relative_next: bool, rest: &[Ready<'_>]) -> Outcome {
        use Outcome::*;
        let len = self.octets.len() as i64;
        let before = self.cursor as i64;
        let number =
            |look: &Self, number: &Option<Number>| number.map(|number| look.number(number));
        // Offsets are 32 bits wide there; values beyond that match nothing anyway.
        let bound = |value: i64| value.clamp(-(1 << 33), 1 << 33);
        let (mut from, mut to);
        if content.is_relative() {
            let distance = bound(number(self, &content.distance).unwrap_or(0));
            from = (before + distance).max(0);
            to = len;
            if let Some(within) = number(self, &content.within) {
                to = to.min(before + bound(within) + distance);
            }
            if let Some(depth) = number(self, &content.depth) {
                to = to
                    .min(before + bound(depth) + bound(number(self, &content.offset).unwrap_or(0)));
            }
            if let Some(offset) = number(self, &content.offset) {
                from = from.max(bound(offset));
            }
        } else {
            let offset = bound(number(self, &content.offset).unwrap_or(0));
            // In the model depth counts from the offset, also from one before the buffer's
            // beginning, as Snort 3 allows it.
            to = match number(self, &content.depth) {
                Some(depth) => bound(depth) + offset,
                None => len,
            };
            from = offset.max(0);
        }
        to = to.min(len);
        let mut again: Option<usize> = None;
        loop {
            let start = again.map_or(from, |again| again as i64);
            if start > to || to <= 0 {
                return if content.negated { self.from(rest) } else { NoMatch };
            }
            let (start, end) = (start as usize, to as usize);
            let found = if content.endswith && end < self.octets.len() {
                None
            } else {
                find(&self.octets[start..end], &content.pattern, content.nocase)
            };
            let Some(found) = found else {
                return match (content.negated, content.is_relative()) {
                    (true, _) => self.from(rest),
                    (false, true) => NoMatch,
                    // It stands for itself: no other place of an earlier step would help.
                    (false, false) => Never,
                };
            };
            let found = start + found;
            let matched_end = found + content.pattern.len();
            if content.negated {
                // Seen, but not where it must not be: at the end.
                if content.endswith && end - start != matched_end {
                    return self.from(rest);
                }
                return NoMatch;
            }
            self.cursor = matched_end;
            if !content.endswith || matched_end == self.octets.len() {
                match self.from(rest) {
                    NoMatch if relative_next => (),
                    NoMatch => return Never,
                    other => return other,
                }
            }
            again = Some(found + 1);
        }
    }

    fn pcre(
        &mut self,
        relative: bool,
        negated: bool,
        regex: &Regex,
        relative_next: bool,
        rest: &[Ready<'_>],
    ) -> Outcome {
        use Outcome::*;
        let before = self.cursor;
        let base = if relative { before.min(self.octets.len()) } else { 0 };
        let subject = &self.octets[base..];
        let mut from = 0;
        let mut places: CaptureLocations = regex.capture_locations();
        loop {
            if from > subject.len() {
                return NoMatch;
            }
            // An error is a limit that was reached: no match, whether negated or not.
            let Ok(found) = regex.captures_read_at(&mut places, subject, from) else {
                return NoMatch;
            };
            match (found, negated) {
                (Some(_), true) | (None, false) => return NoMatch,
                (None, true) => return self.from(rest),
                (Some(found), false) => {
                    self.cursor = base + found.end();
                    if !relative_next {
                        return self.from(rest);
                    }
                    let next = found.start() + 1;
                    match self.from(rest) {
                        NoMatch => from = next,
                        other => return other,
                    }
                }
            }
        }
    }

    /// Where `count` octets at `offset` begin; `None` if they are not all there.
    fn place(&self, reading: Reading, offset: i64, count: usize) -> Option<usize> {
        let mut base = 0;
        if reading.relative {
            base = self.cursor as i64;
            if base + offset >= self.octets.len() as i64 {
                return None;
            }
        }
        let at = usize::try_from(base.checked_add(offset)?).ok()?;
        (at.checked_add(count)? <= self.octets.len()).then_some(at)
    }

    /// The number in `count` octets at `at`, and how many of them it took; `None` where there is
    /// none. No octets are 0; no digits, all that follow, as strtoull reads a text whose length
    /// nobody says.
    fn read(&self, reading: Reading, at: usize, count: usize) -> Option<(u64, usize)> {
        let octets = match (reading.digits, count) {
            (Some(_), 0) => self.octets.get(at..)?,
            _ => self.octets.get(at..at + count)?,
        };
        let (value, length) = match reading.digits {
            Some(base) => digits(octets, base.into())?,
            None if count > 8 => return None,
            None => {
                let fold = |value: u64, octet: &u8| value << 8 | u64::from(*octet);
                let little =
                    if reading.dce { self.about.little_endian } else { reading.little_endian };
                let value = if little {
                    octets.iter().rev().fold(0, fold)
                } else {
                    octets.iter().fold(0, fold)
                };
                (value, count)
            }
        };
        let value = match reading.bitmask {
            Some(0) | None => value,
            Some(mask) => (value & mask) >> mask.trailing_zeros(),
        };
        Some((value, length))
    }

    fn byte_test(&self, test: &ByteTest) -> bool {
        let Ok(count) = usize::try_from(self.number(test.count)) else { return false };
        if count > 23 {
            return false;
        }
        let Some(at) = self.place(test.reading, self.number(test.offset), count) else {
            return false;
        };
        let Some((found, _)) = self.read(test.reading, at, count) else { return false };
        let value = self.number(test.value) as u64;
        let matched = match test.operator {
            Comparison::Less => found < value,
            Comparison::LessOrEqual => found <= value,
            Comparison::Equal => found == value,
            Comparison::Greater => found > value,
            Comparison::GreaterOrEqual => found >= value,
            Comparison::And => found & value != 0,
            Comparison::Xor => found ^ value != 0,
        };
        matched != test.negated
    }

    fn byte_jump(&mut self, jump: &ByteJump) -> bool {
        if self.octets.is_empty() {
            return false;
        }
        let Ok(count) = usize::try_from(self.number(jump.count)) else { return false };
        if count > 23 {
            return false;
        }
        let Some(at) = self.place(jump.reading, self.number(jump.offset), count) else {
            return false;
        };
        let Some((value, length)) = self.read(jump.reading, at, count) else { return false };
        let mut value = value.wrapping_mul(jump.multiplier.max(1).into());
        if jump.align && !value.is_multiple_of(4) {
            value = value.wrapping_add(4 - value % 4);
        }
        let value = i128::from(value.wrapping_add(self.number(jump.post_offset) as u64) as i64);
        let len = self.octets.len() as i128;
        let to = match jump.from {
            JumpFrom::Here => at as i128 + length as i128 + value,
            JumpFrom::Beginning => value,
            JumpFrom::End => len + value,
        };
        // Just behind the last octet is still good: there a relative step with a negative offset
        // may begin.
        if to > len {
            return false;
        }
        self.cursor = to.max(0) as usize;
        true
    }

    fn byte_extract(&mut self, extract: &ByteExtract) -> bool {
        let count = usize::from(extract.count);
        let Some(at) = self.place(extract.reading, self.number(extract.offset), count) else {
            return false;
        };
        let Some((value, length)) = self.read(extract.reading, at, count) else { return false };
        let mut value = value.wrapping_mul(extract.multiplier.max(1).into());
        let align = u64::from(extract.align);
        if align > 1 && !value.is_multiple_of(align) {
            value = value.wrapping_add(align - value % align);
        }
        self.cursor = at + length;
        self.keep(extract.variable, value)
    }

    fn byte_math(&mut self, math: &ByteMath) -> bool {
        let Ok(count) = usize::try_from(self.number(math.count)) else { return false };
        if count > 23 {
            return false;
        }
        let Some(at) = self.place(math.reading, self.number(math.offset), count) else {
            return false;
        };
        let reading = Reading { bitmask: None, ..math.reading };
        let Some((found, length)) = self.read(reading, at, count) else { return false };
        let value = self.number(math.value) as u64;
        let made = match math.operator {
            Arithmetic::Add => found.wrapping_add(value),
            Arithmetic::Subtract => found.wrapping_sub(value),
            Arithmetic::Multiply => found.wrapping_mul(value),
            Arithmetic::Divide => match found.checked_div(value) {
                Some(made) => made,
                None => return false,
            },
            Arithmetic::ShiftLeft => {
                if value < 64 {
                    found << value
                } else {
                    0
                }
            }
            Arithmetic::ShiftRight => {
                if value < 64 {
                    found >> value
                } else {
                    0
                }
            }
        };
        let made = match math.reading.bitmask {
            Some(0) | None => made,
            Some(mask) => (made & mask) >> mask.trailing_zeros(),
        };
        self.cursor = at + length;
        self.keep(math.result, made)
    }

    fn keep(&mut self, variable: u16, value: u64) -> bool {
        match self.variables.get_mut(usize::from(variable)) {
            Some(place) => {
                *place = value;
                true
            }
            None => false,
        }
    }

    fn is_data_at(&self, at: &IsDataAt) -> Outcome {
        use Outcome::*;
        let is_variable = matches!(at.at, Number::Variable(_));
        let offset = self.number(at.at);
        let len = self.octets.len() as i64;
        let there = if at.relative {
            (self.cursor as i64).saturating_add(offset) <= len
        } else {
            offset >= 0 && offset < len
        };
        if there != at.negated {
            return Match;
        }
        // Relative and negated: a later place of the step before may have less behind it.
        if is_variable || (at.relative && at.negated) { NoMatch } else { Never }
    }

    /// What is decoded: up to the first octet that is none of base64. `None`: there is nothing to
    /// decode.
    fn base64(&self, decode: &Base64Decode) -> Option<Vec<u8>> {
        let from = if decode.relative { self.cursor } else { 0 } + decode.offset as usize;
        let octets = self.octets.get(from..).filter(|octets| !octets.is_empty())?;
        let octets = &octets[..octets.len().min(decode.octets.map_or(usize::MAX, |n| n as usize))];
        Some(base64(octets))
    }
}

/// Decodes base64 up to the first octet that is not of its alphabet.
fn base64(octets: &[u8]) -> Vec<u8> {
    let mut made = Vec::with_capacity(octets.len() / 4 * 3);
    let (mut bits, mut have) = (0u32, 0);
    for octet in octets {
        let value = match octet {
            b'A'..=b'Z' => octet - b'A',
            b'a'..=b'z' => octet - b'a' + 26,
            b'0'..=b'9' => octet - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => break,
        };
        bits = bits << 6 | u32::from(value);
        have += 6;
        if have >= 8 {
            have -= 8;
            made.push((bits >> have) as u8);
            bits &= (1 << have) - 1;
        }
    }
    made
}

/// As strtoull reads it: blanks, a sign, `0x` before hexadecimal, then digits; how many octets that
/// took. Base 0: as in C.
fn digits(octets: &[u8], base: u32) -> Option<(u64, usize)> {
    let mut at =
        octets.iter().take_while(|octet| octet.is_ascii_whitespace() || **octet == 0x0b).count();
    let negative = match octets.get(at) {
        Some(b'-') => {
            at += 1;
            true
        }
        Some(b'+') => {
            at += 1;
            false
        }
        _ => false,
    };
    let hexadecimal =
        matches!(octets.get(at..), Some([b'0', b'x' | b'X', next, ..]) if next.is_ascii_hexdigit());
    let base = match base {
        0 if hexadecimal => 16,
        0 if octets.get(at) == Some(&b'0') => 8,
        0 => 10,
        base => base,
    };
    if base == 16 && hexadecimal {
        at += 2;
    }
    let first = at;
    let mut value = 0u64;
    while let Some(digit) = octets.get(at).and_then(|octet| char::from(*octet).to_digit(base)) {
        value = value.checked_mul(base.into())?.checked_add(digit.into())?;
        at += 1;
    }
    (at > first).then_some((if negative { value.wrapping_neg() } else { value }, at))
}

/// In bits an octet.
fn entropy(octets: &[u8]) -> f64 {
    if octets.is_empty() {
        return 0.0;
    }
    let mut counts = [0u32; 256];
    for &octet in octets {
        counts[usize::from(octet)] += 1;
    }
    let all = octets.len() as f64;
    counts
        .iter()
        .filter(|&&count| count > 0)
        .map(|&count| f64::from(count) / all)
        .map(|share| -share * share.log2())
        .sum()
}

/// The first place of `pattern`.
pub(crate) fn find(octets: &[u8], pattern: &[u8], nocase: bool) -> Option<usize> {
    if !nocase {
        return memmem::find(octets, pattern);
    }
    let Some(&first) = pattern.first() else { return Some(0) };
    let last = octets.len().checked_sub(pattern.len())?;
    let (lower, upper) = (first.to_ascii_lowercase(), first.to_ascii_uppercase());
    let mut at = 0;
    while at <= last {
        at += memchr2(lower, upper, &octets[at..=last])?;
        if octets[at..at + pattern.len()].eq_ignore_ascii_case(pattern) {
            return Some(at);
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests;
