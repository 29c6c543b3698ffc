//! Options that convert octets to numbers.

use super::content::whole_number;
use super::{parts, two_words};
use crate::rule::{Parsed, RuleBuilder, bad, contradiction};
use crate::set::quoted;
use crate::values::unsigned;
use crate::{
    Arithmetic, Asn1, Base64Decode, ByteExtract, ByteJump, ByteMath, ByteTest, Comparison,
    JumpFrom, Number, Operation, Reading,
};

/// Maximum offset: the length of the longest packet.
const MAX_DISTANCE: i64 = 65535;
/// Maximum number of digits. A binary number has at most 8 octets.
const MAX_OCTETS: i64 = 23;

/// Parses `count, operator, value, offset, relative, little, string, dec ...`.
pub(crate) fn byte_test(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let mut parts = parts(value);
    let mut next = |what: &str| match parts.next() {
        Some(part) if !part.is_empty() => Ok(part),
        _ => bad(format!("{what} is missing: expected count, operator, value, offset")),
    };
    // Engines accept 0, which means no octets, or all available digits.
    let count = builder.number(next("the count of octets")?, 0, MAX_OCTETS)?;
    let operator = next("the operator")?;
    let (operator, negated) = match operator.strip_prefix('!') {
        Some("") => ("=", true),
        Some(rest) => (rest.trim(), true),
        None => (operator, false),
    };
    let operator = match operator {
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        "=" => Comparison::Equal,
        ">" => Comparison::Greater,
        ">=" => Comparison::GreaterOrEqual,
        "&" => Comparison::And,
        "^" => Comparison::Xor,
        other => {
            return bad(format!(
                "unknown operator {}: expected <, <=, =, >=, >, & or ^",
                quoted(other)
            ));
        }
    };
    let value = builder.number(next("the value")?, i64::MIN, i64::MAX)?;
    let offset = builder.number(next("the offset")?, -MAX_DISTANCE, MAX_DISTANCE)?;
    let mut reader = Reader::default();
    for part in parts {
        if !reader.part(part)? {
            return bad(format!("{} is not understood", quoted(part)));
        }
    }
    let reading = reader.finished(count)?;
    let here = builder.inspection_for(reading.relative);
    builder.step(
        here,
        Operation::ByteTest(ByteTest { count, negated, operator, value, offset, reading }),
    );
    Ok(())
}

pub(crate) fn byte_jump(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let mut parts = parts(value);
    let count = builder.number(parts.next().unwrap_or(""), 0, MAX_OCTETS)?;
    let Some(offset) = parts.next() else {
        return bad("the offset is missing: expected count, offset");
    };
    let offset = builder.number(offset, -MAX_DISTANCE, MAX_DISTANCE)?;
    let mut reader = Reader::default();
    let (mut multiplier, mut align, mut from, mut post_offset) =
        (1, false, JumpFrom::Here, Number::Is(0));
    for part in parts {
        if reader.part(part)? {
            continue;
        }
        match two_words(part) {
            ("multiplier", by) => multiplier = whole_number(by, 1, MAX_DISTANCE)? as u32,
            ("align", "") => align = true,
            ("from_beginning", "") => from = JumpFrom::Beginning,
            ("from_end", "") => from = JumpFrom::End,
            ("post_offset", by) => post_offset = builder.number(by, -MAX_DISTANCE, MAX_DISTANCE)?,
            _ => return bad(format!("{} is not understood", quoted(part))),
        }
    }
    let reading = reader.finished(count)?;
    let here = builder.inspection_for(reading.relative);
    let jump = ByteJump { count, offset, reading, multiplier, align, from, post_offset };
    builder.step(here, Operation::ByteJump(jump));
    Ok(())
}

pub(crate) fn byte_extract(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let mut parts = parts(value);
    let count = whole_number(parts.next().unwrap_or(""), 1, MAX_OCTETS)? as u8;
    let Some(offset) = parts.next() else {
        return bad("the offset is missing: expected count, offset, name");
    };
    let offset = builder.number(offset, -MAX_DISTANCE, MAX_DISTANCE)?;
    let Some(name) = parts.next() else {
        return bad("the name is missing: expected count, offset, name");
    };
    let mut reader = Reader::default();
    let (mut multiplier, mut align) = (1, 0);
    for part in parts {
        if reader.part(part)? {
            continue;
        }
        match two_words(part) {
            ("multiplier", by) => multiplier = whole_number(by, 1, MAX_DISTANCE)? as u32,
            ("align", "2") => align = 2,
            ("align", "4") => align = 4,
            _ => return bad(format!("{} is not understood", quoted(part))),
        }
    }
    let reading = reader.finished(Number::Is(count.into()))?;
    let variable = builder.define(name)?;
    let here = builder.inspection_for(reading.relative);
    builder.step(
        here,
        Operation::ByteExtract(ByteExtract { count, offset, variable, reading, multiplier, align }),
    );
    Ok(())
}

/// Parses `bytes 2, offset 0, oper +, rvalue 4, result length, relative, endian little, string dec
/// ...`.
pub(crate) fn byte_math(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let (mut count, mut offset, mut operator, mut right, mut result) =
        (None, None, None, None, None);
    let mut reader = Reader::default();
    for part in parts(value) {
        if reader.part(part)? {
            continue;
        }
        match two_words(part) {
            ("bytes", of) => count = Some(builder.number(of, 1, 10)?),
            ("offset", of) => offset = Some(builder.number(of, -MAX_DISTANCE, MAX_DISTANCE)?),
            ("oper", of) => {
                operator = Some(match of {
                    "+" => Arithmetic::Add,
                    "-" => Arithmetic::Subtract,
                    "*" => Arithmetic::Multiply,
                    "/" => Arithmetic::Divide,
                    "<<" => Arithmetic::ShiftLeft,
                    ">>" => Arithmetic::ShiftRight,
                    _ => {
                        return bad(format!(
                            "unknown operator {}: expected +, -, *, /, << or >>",
                            quoted(of)
                        ));
                    }
                });
            }
            ("rvalue", of) => right = Some(builder.number(of, 0, u32::MAX.into())?),
            ("result", of) => result = Some(of),
            _ => return bad(format!("{} is not understood", quoted(part))),
        }
    }
    let (Some(count), Some(offset), Some(operator), Some(value), Some(result)) =
        (count, offset, operator, right, result)
    else {
        return bad("expected bytes, offset, oper, rvalue and result");
    };
    if matches!((operator, value), (Arithmetic::Divide, Number::Is(0))) {
        return bad("division by 0");
    }
    let reading = reader.finished(count)?;
    let result = builder.define(result)?;
    let here = builder.inspection_for(reading.relative);
    builder.step(
        here,
        Operation::ByteMath(ByteMath { count, offset, operator, value, result, reading }),
    );
    Ok(())
}

/// Parameters that all these options have: how to convert octets to a number.
#[derive(Default)]
struct Reader {
    reading: Reading,
    string: bool,
}

impl Reader {
    /// Reads `part`. Returns false if it is not such a parameter.
    fn part(&mut self, part: &str) -> Parsed<bool> {
        let reading = &mut self.reading;
        match two_words(part) {
            ("relative", "") => reading.relative = true,
            ("little", "") | ("endian", "little") => reading.little_endian = true,
            ("big", "") | ("endian", "big") => reading.little_endian = false,
            ("dce", "") | ("endian", "dce") => reading.dce = true,
            ("string", base) => {
                self.string = true;
                if !base.is_empty() {
                    reading.digits = Some(self::base(base)?);
                }
            }
            ("hex" | "dec" | "oct", "") => reading.digits = Some(self::base(part)?),
            ("bitmask", mask) => {
                match unsigned(mask).or_else(|| u64::from_str_radix(mask, 16).ok()) {
                    Some(mask) if mask > 0 => reading.bitmask = Some(mask),
                    _ => {
                        return bad(format!(
                            "{} is not a mask: expected a number such as 0xff00",
                            quoted(mask)
                        ));
                    }
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn finished(mut self, count: Number) -> Parsed<Reading> {
        match (self.string, self.reading.digits) {
            (true, None) => self.reading.digits = Some(0),
            (false, Some(_)) => return contradiction("hex, dec and oct need string before them"),
            (false, None) if matches!(count, Number::Is(count) if count > 8) => {
                return bad("a number of more than 8 octets needs string");
            }
            _ => {}
        }
        Ok(self.reading)
    }
}

fn base(name: &str) -> Parsed<u8> {
    match name {
        "hex" => Ok(16),
        "dec" => Ok(10),
        "oct" => Ok(8),
        _ => bad(format!("unknown base {}: expected hex, dec or oct", quoted(name))),
    }
}

/// Parses `base64_decode:bytes 12, offset 1, relative` or `base64_decode;`.
pub(crate) fn base64_decode(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let mut decode = Base64Decode::default();
    for part in parts(value).filter(|part| !part.is_empty()) {
        match two_words(part) {
            ("bytes", of) => decode.octets = Some(whole_number(of, 1, MAX_DISTANCE)? as u32),
            ("offset", of) => decode.offset = whole_number(of, 0, MAX_DISTANCE)? as u32,
            ("relative", "") => decode.relative = true,
            _ => {
                return bad(format!(
                    "{} is not understood: expected bytes, offset or relative",
                    quoted(part)
                ));
            }
        }
    }
    let here = builder.inspection_for(decode.relative);
    builder.step(here, Operation::Base64Decode(decode));
    Ok(())
}

/// Parses `asn1:bitstring_overflow, double_overflow, oversize_length 500, relative_offset 2`.
pub(crate) fn asn1(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let mut asn1 = Asn1::default();
    let mut words = value.split([',', ' ', '\t']).map(str::trim).filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let mut number = |least| whole_number(words.next().unwrap_or(""), least, i32::MAX.into());
        match word {
            "bitstring_overflow" => asn1.bitstring_overflow = true,
            "double_overflow" => asn1.double_overflow = true,
            "oversize_length" => asn1.oversize_length = Some(number(0)? as u32),
            "absolute_offset" => asn1.offset = number(-MAX_DISTANCE)? as i32,
            "relative_offset" => {
                asn1.offset = number(-MAX_DISTANCE)? as i32;
                asn1.relative = true;
            }
            "print" => {}
            _ => return bad(format!("{} is not understood", quoted(word))),
        }
    }
    if !asn1.bitstring_overflow && !asn1.double_overflow && asn1.oversize_length.is_none() {
        return bad("expected bitstring_overflow, double_overflow or oversize_length");
    }
    let here = builder.inspection_for(asn1.relative);
    builder.step(here, Operation::Asn1(asn1));
    Ok(())
}
