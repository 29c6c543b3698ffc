//! Matches a buffer against the steps of a rule as Suricata does: if a relative step fails, the
//! search for the preceding content continues at a later offset.

use memchr::{memchr2, memmem};
use pcre2::bytes::{CaptureLocations, Regex};
use squall_rules::{
    Arithmetic, Base64Decode, ByteExtract, ByteJump, ByteMath, ByteTest, Comparison, Content,
    EngineVersion, IsDataAt, JumpFrom, Number, Operation, Reading, Step,
};

use crate::expression;

/// Maximum number of steps for one buffer: Suricata's `inspection-recursion-limit`.
const MAX_STEPS: u32 = 3000;

/// A compiled step.
#[derive(Debug)]
pub(crate) struct CompiledStep<'a> {
    operation: &'a Operation,
    /// The next step is relative to this one: if it fails, this one is retried at a later offset.
    relative_next: bool,
    expression: Option<Regex>,
    /// Steps for the data that `base64_decode` produces.
    decoded: Vec<CompiledStep<'a>>,
}

/// Compiles steps. The steps of `decoded` belong to the first `base64_decode`.
///
/// # Errors
///
/// PCRE2's error message for an expression.
pub(crate) fn compile_steps<'a>(
    steps: &[&'a Step],
    decoded: &[&'a Step],
) -> Result<Vec<CompiledStep<'a>>, String> {
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
                    compile_steps(steps, &[])?
                }
                _ => vec![],
            };
            let relative_next =
                steps.get(index + 1).is_some_and(|next| is_relative(&next.operation));
            Ok(CompiledStep { operation: &step.operation, relative_next, expression, decoded })
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

/// Properties of a whole buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BufferProperties {
    /// Byte order for numbers with `dce`.
    pub little_endian: bool,
    pub engine: EngineVersion,
}

/// Whether `octets` match all of `steps`. `variables` has an element for each byte variable of the
/// rule; extracted values are written to it.
pub(crate) fn matches(
    steps: &[CompiledStep<'_>],
    octets: &[u8],
    variables: &mut [u64],
    properties: BufferProperties,
) -> bool {
    let mut look = Matcher { octets, variables, properties, cursor: 0, steps: 0 };
    look.from(steps) == Outcome::Match
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Match,
    NoMatch,
    /// No match, and matching earlier steps at later offsets would not help either.
    Never,
}

struct Matcher<'a> {
    octets: &'a [u8],
    variables: &'a mut [u64],
    properties: BufferProperties,
    /// The end of the previous match.
    cursor: usize,
    steps: u32,
}

impl Matcher<'_> {
    fn from(&mut self, steps: &[CompiledStep<'_>]) -> Outcome {
        use Outcome::*;
        let Some((step, rest)) = steps.split_first() else { return Match };
        self.steps += 1;
        if self.steps >= MAX_STEPS {
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
            // The existence of the buffer has already been checked.
            Operation::Absent { or_else } => *or_else,
            Operation::Base64Decode(decode) => {
                let Some(made) = self.base64(decode) else { return NoMatch };
                if made.is_empty() || step.decoded.is_empty() {
                    return NoMatch;
                }
                let mut look = Matcher {
                    octets: &made,
                    variables: self.variables,
                    properties: self.properties,
                    cursor: 0,
                    steps: self.steps,
                };
                let outcome = look.from(&step.decoded);
                self.steps = look.steps;
                // The decoded data is inspected last. In Suricata 7, a final failure inside it is
                // also final outside: no earlier content is retried.
                return match outcome {
                    Never if self.properties.engine != EngineVersion::Suricata7 => NoMatch,
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
                crate::ber::is_wrong(asn1, octets, self.properties.engine)
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

    fn content(
        &mut self,
        content: &Content,
        relative_next: bool,
        rest: &[CompiledStep<'_>],
    ) -> Outcome {
        use Outcome::*;
        let len = self.octets.len() as i64;
        let before = self.cursor as i64;
        let number =
            |look: &Self, number: &Option<Number>| number.map(|number| look.number(number));
        // Suricata's offsets have 32 bits; larger values match nothing.
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
            // Depth is relative to the offset even if that is before the start of the buffer, which
            // Snort 3 allows.
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
                    // This step is not relative to an earlier one, so retrying that one at other
                    // offsets would not help.
                    (false, false) => Never,
                };
            };
            let found = start + found;
            let matched_end = found + content.pattern.len();
            if content.negated {
                // The pattern is forbidden only at the end of the buffer, and this match ends
                // before it.
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
        rest: &[CompiledStep<'_>],
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
            // An error means that a limit was reached: neither the expression nor its negation
            // matches then.
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

    /// Index of `count` octets at `offset`; `None` if the buffer does not have all of them.
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

    /// Reads a number from `count` octets at `at`. Returns the number and the octets consumed;
    /// `None` if there is no number. With a count of 0, returns 0 or, for digits, reads to the end
    /// like strtoull.
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
                    if reading.dce { self.properties.little_endian } else { reading.little_endian };
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
        // The offset just after the last octet is valid, because a relative step with a negative
        // offset may start there.
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
        // A negated relative `isdataat` may match after the previous step has matched at a later
        // offset, where less data follows.
        if is_variable || (at.relative && at.negated) { NoMatch } else { Never }
    }

    /// Decodes up to the first octet outside the base64 alphabet; `None` if there is no data.
    fn base64(&self, decode: &Base64Decode) -> Option<Vec<u8>> {
        let from = if decode.relative { self.cursor } else { 0 } + decode.offset as usize;
        let octets = self.octets.get(from..).filter(|octets| !octets.is_empty())?;
        let octets = &octets[..octets.len().min(decode.octets.map_or(usize::MAX, |n| n as usize))];
        Some(base64(octets))
    }
}

/// Decodes base64 up to the first octet outside its alphabet.
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

/// Parses a number like strtoull: white space, a sign, `0x` in base 16, then digits. Returns the
/// number and the octets consumed. With base 0, the prefix determines the base as in C.
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

/// Entropy in bits per octet.
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

/// The first index at which `pattern` occurs.
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
