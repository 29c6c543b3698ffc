//! Contents, regular expressions and buffer sizes.

use super::parts;
use crate::rule::{Parsed, RuleBuilder, bad, contradiction, not_loaded, unsupported};
use crate::set::quoted;
use crate::values::{numbers, pattern, plain, signed, unsigned};
use crate::{
    Base64Mode, Buffer, Content, End, EngineVersion, IsDataAt, Number, Numbers, Operation, Pcre,
    Transform,
};

/// Suricata's limit on `distance` and `within`, also used for `offset` and `depth`.
const MAX_DISTANCE: i64 = 1 << 20;

pub(crate) fn content(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let rest = add(builder, value)?;
    let Some(parameters) = rest.strip_prefix(',') else {
        return if rest.is_empty() {
            Ok(())
        } else {
            bad(format!("unexpected {} after the content", quoted(rest)))
        };
    };
    if let Some(engine) = builder.engine.filter(|engine| *engine != EngineVersion::Snort3) {
        return not_loaded(engine, "parameters after a content: that is Snort 3's syntax");
    }
    for parameter in parts(parameters) {
        let (name, value) = super::two_words(parameter);
        match name {
            "nocase" => nocase(builder, value)?,
            "offset" => offset(builder, value)?,
            "depth" => depth(builder, value)?,
            "distance" => distance(builder, value)?,
            "within" => within(builder, value)?,
            "fast_pattern" | "fast_pattern_offset" | "fast_pattern_length" => {
                fast_pattern(builder, "")?
            }
            // Hints for Snort's search, which have no effect on matches.
            "width" | "endian" | "" => {}
            _ => return bad(format!("unknown parameter {} of a content", quoted(name))),
        }
    }
    Ok(())
}

/// Adds a content. Returns the text after its closing quote.
fn add<'t>(builder: &mut RuleBuilder, value: &'t str) -> Parsed<&'t str> {
    let (pattern, negated, rest) = pattern(value)?;
    let here = builder.current_inspection();
    builder.step(here, Operation::Content(Content { pattern, negated, ..Content::default() }));
    Ok(rest)
}

pub(crate) fn uricontent(builder: &mut RuleBuilder, value: &str) -> Parsed {
    content(builder, value)?;
    builder.modify_buffer(Buffer::HttpUri)
}

/// Parses legacy keywords that test for a content in a buffer. `whole`: the content must be the
/// whole buffer.
pub(crate) fn quoted_content(
    builder: &mut RuleBuilder,
    buffer: Buffer,
    value: &str,
    whole: bool,
) -> Parsed {
    let (value, negated) =
        value.trim().strip_prefix('!').map_or((value, false), |rest| (rest, true));
    let pattern = plain(value).into_bytes();
    if pattern.is_empty() {
        return bad("the content is empty");
    }
    let here = builder.inspection(buffer);
    let depth = whole.then_some(Number::Is(pattern.len() as i64));
    let content = Content { pattern, negated, endswith: whole, depth, ..Content::default() };
    builder.step(here, Operation::Content(content));
    Ok(())
}

pub(crate) fn nocase(builder: &mut RuleBuilder, _: &str) -> Parsed {
    builder.content()?.nocase = true;
    Ok(())
}

pub(crate) fn rawbytes(builder: &mut RuleBuilder, _: &str) -> Parsed {
    // Has no effect in Suricata. In Snort, it skips decoding (such as Telnet's), which attacks do
    // not use.
    builder.content().map(drop)
}

pub(crate) fn fast_pattern(builder: &mut RuleBuilder, _: &str) -> Parsed {
    builder.content()?.fast_pattern = true;
    Ok(())
}

pub(crate) fn offset(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let number = builder.number(value, -MAX_DISTANCE, MAX_DISTANCE)?;
    builder.content()?.offset = Some(number);
    Ok(())
}

pub(crate) fn depth(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let number = builder.number(value, 0, MAX_DISTANCE)?;
    builder.content()?.depth = Some(number);
    Ok(())
}

pub(crate) fn distance(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let number = builder.number(value, -MAX_DISTANCE, MAX_DISTANCE)?;
    builder.content()?.distance = Some(number);
    Ok(())
}

pub(crate) fn within(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let number = builder.number(value, 0, MAX_DISTANCE)?;
    builder.content()?.within = Some(number);
    Ok(())
}

pub(crate) fn startswith(builder: &mut RuleBuilder, _: &str) -> Parsed {
    let content = builder.content()?;
    if content.depth.is_some() || content.offset.is_some() || content.is_relative() {
        return contradiction(
            "startswith cannot be combined with offset, depth, distance or within",
        );
    }
    content.offset = Some(Number::Is(0));
    content.depth = Some(Number::Is(content.pattern.len() as i64));
    Ok(())
}

pub(crate) fn endswith(builder: &mut RuleBuilder, _: &str) -> Parsed {
    builder.content()?.endswith = true;
    Ok(())
}

/// Parses `!"/expression/flags, flow:name"` or `"m?expression?flags"`.
pub(crate) fn pcre(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let value = value.trim();
    let (value, negated) =
        value.strip_prefix('!').map_or((value, false), |rest| (rest.trim_start(), true));
    let Some(inside) = value.strip_prefix('"') else {
        return bad("expected an expression in quotes and slashes");
    };
    let Some((inside, modifiers)) = inside.rsplit_once('"') else {
        return bad("a quote is not closed");
    };
    let modifiers = modifiers.trim();
    let (rest, delimiter) =
        match inside.strip_prefix('m').and_then(|rest| Some((rest, rest.chars().next()?))) {
            Some((rest, delimiter)) if !delimiter.is_alphanumeric() && delimiter != '\\' => {
                (rest, delimiter)
            }
            _ => (inside, '/'),
        };
    let Some(rest) = rest.strip_prefix(delimiter) else {
        return bad("expected an expression between slashes");
    };
    let Some((text, flags)) = rest.rsplit_once(delimiter) else {
        return bad("the slash after the expression is missing");
    };
    if text.is_empty() {
        return bad("the expression is empty");
    }
    let mut pcre = Pcre { pattern: text.to_owned(), negated, ..Pcre::default() };
    let mut buffer = None;
    let mut flags = flags.split(',').map(str::trim);
    for flag in flags.next().unwrap_or("").chars() {
        let of = match flag {
            'i' => {
                pcre.caseless = true;
                None
            }
            's' => {
                pcre.dotall = true;
                None
            }
            'm' => {
                pcre.multiline = true;
                None
            }
            'x' => {
                pcre.extended = true;
                None
            }
            'A' => {
                pcre.anchored = true;
                None
            }
            'E' => {
                pcre.dollar_end_only = true;
                None
            }
            'G' => {
                pcre.ungreedy = true;
                None
            }
            'R' => {
                pcre.relative = true;
                None
            }
            // `O` overrides the match limits, `B` asks for raw octets.
            'O' | 'B' => None,
            'U' => Some(Buffer::HttpUri),
            'I' => Some(Buffer::HttpRawUri),
            'P' => Some(Buffer::HttpRequestBody),
            'Q' => Some(Buffer::HttpResponseBody),
            'H' => Some(Buffer::HttpHeader),
            'D' => Some(Buffer::HttpRawHeader),
            'M' => Some(Buffer::HttpMethod),
            'C' | 'K' => Some(Buffer::HttpCookie),
            'S' => Some(Buffer::HttpStatusCode),
            'Y' => Some(Buffer::HttpStatusMessage),
            'V' => Some(Buffer::HttpUserAgent),
            'W' => Some(Buffer::HttpHost),
            'Z' => Some(Buffer::HttpRawHost),
            c if c.is_whitespace() => None,
            c => return bad(format!("unknown flag {c:?} of an expression")),
        };
        if of.is_some()
            && builder.sticky_buffer().is_some()
            && let Some(engine) = builder.engine.filter(|engine| engine.is_suricata())
        {
            return not_loaded(
                engine,
                format!("the flag {flag:?} of an expression after a sticky buffer"),
            );
        }
        if of.is_some() && builder.engine == Some(EngineVersion::Snort3) {
            return not_loaded(
                EngineVersion::Snort3,
                format!("the flag {flag:?} of an expression: it names buffers before it"),
            );
        }
        if of.is_some() && buffer.is_some() && of != buffer {
            return contradiction("flags for two buffers");
        }
        buffer = buffer.or(of);
    }
    for capture in flags.filter(|capture| !capture.is_empty()) {
        match capture.split_once(':') {
            Some(("flow" | "pkt" | "alert", name)) => pcre.captures.push(name.trim().to_owned()),
            _ => return bad(format!("{} is not understood after the flags", quoted(capture))),
        }
    }
    for parameter in parts(modifiers).filter(|parameter| !parameter.is_empty()) {
        match parameter {
            "fast_pattern" => {}
            "nocase" => pcre.caseless = true,
            _ => return bad(format!("unexpected {} after the expression", quoted(parameter))),
        }
    }
    let relative = pcre.relative;
    let here = match buffer {
        Some(buffer) => builder.inspection(buffer),
        None => builder.current_inspection(),
    };
    if relative
        && builder.rule.inspections[here].steps.is_empty()
        && builder.sticky_buffer().is_none()
    {
        return contradiction("R needs a match before it in the same buffer");
    }
    builder.step(here, Operation::Pcre(pcre));
    Ok(())
}

pub(crate) fn isdataat(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let value = value.trim();
    let (value, negated) =
        value.strip_prefix('!').map_or((value, false), |rest| (rest.trim_start(), true));
    let mut parts = parts(value);
    let at = builder.number(parts.next().unwrap_or(""), 0, 65535)?;
    let mut relative = false;
    for part in parts {
        match part {
            "relative" => relative = true,
            "rawbytes" | "" => {}
            _ => {
                return bad(format!(
                    "{} is not understood: expected relative or rawbytes",
                    quoted(part)
                ));
            }
        }
    }
    // Suricata turns this into a flag of the content, which then matches only at the end of the
    // buffer.
    if relative && negated && at == Number::Is(1) && builder.follows_content() {
        builder.content()?.endswith = true;
        return Ok(());
    }
    let here = builder.inspection_for(relative);
    builder.step(here, Operation::IsDataAt(IsDataAt { at, relative, negated }));
    Ok(())
}

pub(crate) fn bsize(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let size = numbers(value, u64::MAX, &[])?;
    if builder.sticky_buffer().is_none() {
        return contradiction("bsize needs a sticky buffer before it; for a payload use dsize");
    }
    let here = builder.current_inspection();
    builder.step(here, Operation::Size(size));
    Ok(())
}

/// Parses Snort 3's `bufferlen`. With `relative`, it counts the octets from the cursor to the end.
pub(crate) fn bufferlen(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let (size, rest) = value.split_once(',').unwrap_or((value, ""));
    let size = numbers(size, u64::from(u16::MAX), &[])?;
    let here = builder.inspection_for(rest.trim() == "relative");
    match rest.trim() {
        "" => builder.step(here, Operation::Size(size)),
        "relative" => {
            let (Some(least), Some(most)) = (size.first(), size.last()) else {
                return bad("no size is possible");
            };
            if size.ranges().count() > 1 {
                return unsupported("relative bufferlen with more than one range");
            }
            if least > 0 {
                let at = IsDataAt { at: Number::Is(least as i64), relative: true, negated: false };
                builder.step(here, Operation::IsDataAt(at));
            }
            if most < u64::from(u16::MAX) {
                let at =
                    IsDataAt { at: Number::Is(most as i64 + 1), relative: true, negated: true };
                builder.step(here, Operation::IsDataAt(at));
            }
        }
        other => return bad(format!("{} is not understood: expected relative", quoted(other))),
    }
    Ok(())
}

/// Tests the length of the normalized URI, or with `raw` that of the raw URI.
pub(crate) fn urilen(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let (size, which) = value.split_once(',').unwrap_or((value, "norm"));
    let most = u64::from(u16::MAX);
    let size = match size.split_once("<>").map(|(first, last)| (unsigned(first), unsigned(last))) {
        // If both ends were excluded, `7<>8` would be empty. Suricata 8.0 takes it as 7; Snort
        // includes both ends.
        Some((Some(first), Some(last))) if last == first.saturating_add(1) && first <= most => {
            Numbers::one(first)
        }
        _ => numbers(size, most, &[])?,
    };
    let buffer = match which.trim() {
        "norm" => Buffer::HttpUri,
        "raw" => Buffer::HttpRawUri,
        other => return bad(format!("{} is not understood: expected norm or raw", quoted(other))),
    };
    let here = builder.inspection(buffer);
    // The test is not a match, so later options cannot be relative to it.
    builder.plain_step(here, Operation::Size(size));
    Ok(())
}

pub(crate) fn absent(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let or_else = match value.trim() {
        "" => false,
        "or_else" => true,
        other => return bad(format!("{} is not understood: expected or_else", quoted(other))),
    };
    if builder.sticky_buffer().is_none() {
        return contradiction("absent needs a sticky buffer before it");
    }
    let here = builder.current_inspection();
    if !builder.rule.inspections[here].steps.is_empty() {
        return contradiction("absent must come first after its buffer");
    }
    builder.step(here, Operation::Absent { or_else });
    Ok(())
}

/// Parses `entropy: value >= 4, bytes 0, offset 0`.
pub(crate) fn entropy(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let (mut least, mut most, mut offset, mut octets) = (0.0, 8.0, 0, None);
    let mut has_value = false;
    for part in parts(value) {
        let (name, of) = super::two_words(part);
        match name {
            "value" => {
                (least, most) = entropy_range(of)?;
                has_value = true;
            }
            "offset" => offset = small(of)?,
            "bytes" => octets = Some(small(of)?).filter(|&octets| octets > 0),
            _ => {
                return bad(format!(
                    "{} is not understood: expected value, bytes or offset",
                    quoted(part)
                ));
            }
        }
    }
    if !has_value {
        return bad("`value` is missing, such as value >= 4");
    }
    let here = builder.current_inspection();
    builder.step(here, Operation::Entropy { least, most, offset, octets });
    Ok(())
}

fn entropy_range(text: &str) -> Parsed<(f64, f64)> {
    let number = |text: &str| match text.trim().parse::<f64>() {
        Ok(number) if (0.0..=8.0).contains(&number) => Ok(number),
        _ => bad(format!("{} is not an entropy: expected 0.0 to 8.0 bits per octet", quoted(text))),
    };
    // Smallest difference between two bounds: `<` and `>` exclude the bound itself.
    const NEAR: f64 = 1e-9;
    if let Some(rest) = text.strip_prefix(">=") {
        Ok((number(rest)?, 8.0))
    } else if let Some(rest) = text.strip_prefix("<=") {
        Ok((0.0, number(rest)?))
    } else if let Some(rest) = text.strip_prefix('>') {
        Ok((number(rest)? + NEAR, 8.0))
    } else if let Some(rest) = text.strip_prefix('<') {
        Ok((0.0, number(rest)? - NEAR))
    } else if text.starts_with('!') {
        unsupported("an entropy that differs from a value")
    } else if let Some((least, most)) = text.split_once('-') {
        Ok((number(least)? + NEAR, number(most)? - NEAR))
    } else {
        let exactly = number(text.trim_start_matches('='))?;
        Ok((exactly, exactly))
    }
}

fn small(text: &str) -> Parsed<u32> {
    match unsigned(text).and_then(|number| u32::try_from(number).ok()) {
        Some(number) => Ok(number),
        None => bad(format!("{} is not a number", quoted(text))),
    }
}

/// Datasets in files are not available here. `set` and `unset` do not restrict the traffic.
pub(crate) fn dataset(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let verb = parts(value).next().unwrap_or("");
    match verb {
        "set" | "unset" => Ok(()),
        "isset" | "isnotset" => {
            // Even without a file, `isset,name,type ip` depends on values that another rule has
            // added.
            let _ = builder;
            unsupported("a set of values outside the rule")
        }
        _ => bad(format!(
            "{} is not understood: expected set, unset, isset or isnotset",
            quoted(verb)
        )),
    }
}

pub(crate) fn xor(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let text = plain(value);
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let nibble = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let key: Option<Vec<u8>> =
        digits.chunks(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(*pair.get(1)?)?)).collect();
    match key {
        Some(key) if !key.is_empty() => builder.transform(Transform::Xor(key)),
        _ => bad("expected a hexadecimal key with two digits per octet"),
    }
}

/// Parses `from_base64: bytes 12, offset 0, mode rfc4648`.
pub(crate) fn from_base64(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let (mut octets, mut offset, mut mode) = (None, 0, Base64Mode::Rfc4648);
    for part in parts(value).filter(|part| !part.is_empty()) {
        let (name, of) = super::two_words(part);
        match (name, of.to_ascii_lowercase().as_str()) {
            ("bytes", _) => octets = Some(small(of)?),
            ("offset", _) => offset = small(of)?,
            ("mode", "rfc4648") => mode = Base64Mode::Rfc4648,
            ("mode", "rfc2045") => mode = Base64Mode::Rfc2045,
            ("mode", "strict") => mode = Base64Mode::Strict,
            _ => {
                return bad(format!(
                    "{} is not understood: expected bytes, offset or mode",
                    quoted(part)
                ));
            }
        }
    }
    builder.transform(Transform::FromBase64 { octets, offset, mode })
}

pub(crate) fn pcrexform(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let value = value.trim();
    let inside = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    if inside.is_empty() {
        return bad("expected an expression with a group");
    }
    builder.transform(Transform::PcreXform(inside.to_owned()))
}

pub(crate) fn luaxform(builder: &mut RuleBuilder, value: &str) -> Parsed {
    builder.transform(Transform::Lua(value.trim().to_owned()))
}

/// Selects the client's body, unless the rule inspects the server's data.
pub(crate) fn http_raw_body(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let buffer = match builder.rule.flow.to {
        Some(End::Client) => Buffer::HttpResponseBody,
        _ => Buffer::HttpRequestBody,
    };
    builder.stick(buffer, value)
}

/// Parses Snort 3's `http_param:"name",nocase`.
pub(crate) fn http_param(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let (name, rest) = match value.trim().strip_prefix('"').and_then(|rest| rest.split_once('"')) {
        Some(split) => split,
        None => value.split_once(',').unwrap_or((value, "")),
    };
    if name.trim().is_empty()
        || !matches!(rest.trim().trim_start_matches(',').trim(), "" | "nocase")
    {
        return bad("expected a parameter name in quotes, optionally followed by nocase");
    }
    builder.stick_part(Buffer::HttpParameter, name.to_owned());
    Ok(())
}

/// Parses Snort's list of allowed methods (`sip_method:invite,options`). If there is no value, the
/// keyword selects the sticky buffer.
pub(crate) fn sip_method(builder: &mut RuleBuilder, value: &str) -> Parsed {
    if value.is_empty() {
        return builder.stick(Buffer::SipMethod, "");
    }
    let (value, negated) = value.strip_prefix('!').map_or((value, false), |rest| (rest, true));
    let methods: Vec<&str> = parts(value).map(|method| method.trim_matches('"')).collect();
    if methods
        .iter()
        .any(|method| method.is_empty() || !method.chars().all(|c| c.is_ascii_alphanumeric()))
    {
        return bad("expected names of methods, such as invite");
    }
    let pattern = format!("^(?:{})$", methods.join("|"));
    let here = builder.inspection(Buffer::SipMethod);
    builder.plain_step(
        here,
        Operation::Pcre(Pcre { pattern, negated, caseless: true, ..Pcre::default() }),
    );
    Ok(())
}

/// Parses a single number rather than a set.
pub(crate) fn whole_number(text: &str, least: i64, most: i64) -> Parsed<i64> {
    match signed(text) {
        Some(number) if (least..=most).contains(&number) => Ok(number),
        Some(number) => bad(format!("{number} is out of range: expected {least} to {most}")),
        None => bad(format!("{} is not a number", quoted(text))),
    }
}
