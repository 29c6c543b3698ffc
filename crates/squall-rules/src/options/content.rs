//! Contents, expressions and sizes of buffers.

use super::parts;
use crate::rule::{Building, Parsed, bad, contradiction, not_loaded, unsupported};
use crate::set::quoted;
use crate::values::{numbers, pattern, plain, signed, unsigned};
use crate::{
    Base64Mode, Buffer, Content, End, EngineVersion, IsDataAt, Number, Numbers, Operation, Pcre,
    Transform,
};

/// Suricata's most for distance and within, and ours for offset and depth.
const FARTHEST: i64 = 1 << 20;

pub(crate) fn content(building: &mut Building, value: &str) -> Parsed {
    let rest = add(building, value)?;
    let Some(parameters) = rest.strip_prefix(',') else {
        return if rest.is_empty() {
            Ok(())
        } else {
            bad(format!("unexpected {} after the content", quoted(rest)))
        };
    };
    if let Some(engine) = building.engine.filter(|engine| *engine != EngineVersion::Snort3) {
        return not_loaded(engine, "parameters after a content: that is Snort 3's syntax");
    }
    for parameter in parts(parameters) {
        let (name, value) = super::two_words(parameter);
        match name {
            "nocase" => nocase(building, value)?,
            "offset" => offset(building, value)?,
            "depth" => depth(building, value)?,
            "distance" => distance(building, value)?,
            "within" => within(building, value)?,
            "fast_pattern" | "fast_pattern_offset" | "fast_pattern_length" => {
                fast_pattern(building, "")?
            }
            // A hint for Snort's own search.
            "width" | "endian" | "" => {}
            _ => return bad(format!("unknown parameter {} of a content", quoted(name))),
        }
    }
    Ok(())
}

/// Returns what stands behind the closing quote.
fn add<'t>(building: &mut Building, value: &'t str) -> Parsed<&'t str> {
    let (pattern, negated, rest) = pattern(value)?;
    let here = building.here();
    building.step(here, Operation::Content(Content { pattern, negated, ..Content::default() }));
    Ok(rest)
}

pub(crate) fn uricontent(building: &mut Building, value: &str) -> Parsed {
    content(building, value)?;
    building.modify_buffer(Buffer::HttpUri)
}

/// Keywords of old that are a content of a buffer at once. `whole`: the content is all of it.
pub(crate) fn quoted_content(
    building: &mut Building,
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
    let here = building.inspection(buffer);
    let depth = whole.then_some(Number::Is(pattern.len() as i64));
    let content = Content { pattern, negated, endswith: whole, depth, ..Content::default() };
    building.step(here, Operation::Content(content));
    Ok(())
}

pub(crate) fn nocase(building: &mut Building, _: &str) -> Parsed {
    building.content()?.nocase = true;
    Ok(())
}

pub(crate) fn rawbytes(building: &mut Building, _: &str) -> Parsed {
    // Of no effect in Suricata; in Snort it says that nothing is decoded, and nothing of what we
    // make is coded.
    building.content().map(drop)
}

pub(crate) fn fast_pattern(building: &mut Building, _: &str) -> Parsed {
    building.content()?.fast_pattern = true;
    Ok(())
}

pub(crate) fn offset(building: &mut Building, value: &str) -> Parsed {
    let number = building.number(value, -FARTHEST, FARTHEST)?;
    building.content()?.offset = Some(number);
    Ok(())
}

pub(crate) fn depth(building: &mut Building, value: &str) -> Parsed {
    let number = building.number(value, 0, FARTHEST)?;
    building.content()?.depth = Some(number);
    Ok(())
}

pub(crate) fn distance(building: &mut Building, value: &str) -> Parsed {
    let number = building.number(value, -FARTHEST, FARTHEST)?;
    building.content()?.distance = Some(number);
    Ok(())
}

pub(crate) fn within(building: &mut Building, value: &str) -> Parsed {
    let number = building.number(value, 0, FARTHEST)?;
    building.content()?.within = Some(number);
    Ok(())
}

pub(crate) fn startswith(building: &mut Building, _: &str) -> Parsed {
    let content = building.content()?;
    if content.depth.is_some() || content.offset.is_some() || content.is_relative() {
        return contradiction(
            "startswith cannot be combined with offset, depth, distance or within",
        );
    }
    content.offset = Some(Number::Is(0));
    content.depth = Some(Number::Is(content.pattern.len() as i64));
    Ok(())
}

pub(crate) fn endswith(building: &mut Building, _: &str) -> Parsed {
    building.content()?.endswith = true;
    Ok(())
}

/// `!"/expression/flags, flow:name"`, `"m?expression?flags"`
pub(crate) fn pcre(building: &mut Building, value: &str) -> Parsed {
    let value = value.trim();
    let (value, negated) =
        value.strip_prefix('!').map_or((value, false), |rest| (rest.trim_start(), true));
    let Some(inside) = value.strip_prefix('"') else {
        return bad("expected an expression in quotes and slashes");
    };
    let Some((inside, behind)) = inside.rsplit_once('"') else {
        return bad("a quote is not closed");
    };
    let behind = behind.trim();
    let (begun, delimiter) =
        match inside.strip_prefix('m').and_then(|rest| Some((rest, rest.chars().next()?))) {
            Some((rest, delimiter)) if !delimiter.is_alphanumeric() && delimiter != '\\' => {
                (rest, delimiter)
            }
            _ => (inside, '/'),
        };
    let Some(begun) = begun.strip_prefix(delimiter) else {
        return bad("expected an expression between slashes");
    };
    let Some((text, flags)) = begun.rsplit_once(delimiter) else {
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
            // Limits of the engine's own, raw octets, and Suricata's choice of the buffer of the
            // packet.
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
            && building.sticky_buffer().is_some()
            && let Some(engine) = building.engine.filter(|engine| engine.is_suricata())
        {
            return not_loaded(
                engine,
                format!("the flag {flag:?} of an expression after a sticky buffer"),
            );
        }
        if of.is_some() && building.engine == Some(EngineVersion::Snort3) {
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
    for parameter in parts(behind).filter(|parameter| !parameter.is_empty()) {
        match parameter {
            "fast_pattern" => {}
            "nocase" => pcre.caseless = true,
            _ => return bad(format!("unexpected {} after the expression", quoted(parameter))),
        }
    }
    let relative = pcre.relative;
    let here = match buffer {
        Some(buffer) => building.inspection(buffer),
        None => building.here(),
    };
    if relative
        && building.rule.inspections[here].steps.is_empty()
        && building.sticky_buffer().is_none()
    {
        return contradiction("R needs a match before it in the same buffer");
    }
    building.step(here, Operation::Pcre(pcre));
    Ok(())
}

pub(crate) fn isdataat(building: &mut Building, value: &str) -> Parsed {
    let value = value.trim();
    let (value, negated) =
        value.strip_prefix('!').map_or((value, false), |rest| (rest.trim_start(), true));
    let mut parts = parts(value);
    let at = building.number(parts.next().unwrap_or(""), 0, 65535)?;
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
    // Suricata makes it a mark of the content, which is then looked for at the end only.
    if relative && negated && at == Number::Is(1) && building.follows_content() {
        building.content()?.endswith = true;
        return Ok(());
    }
    let here = building.here_or_behind(relative);
    building.step(here, Operation::IsDataAt(IsDataAt { at, relative, negated }));
    Ok(())
}

pub(crate) fn bsize(building: &mut Building, value: &str) -> Parsed {
    let size = numbers(value, u64::MAX, &[])?;
    if building.sticky_buffer().is_none() {
        return contradiction("bsize needs a sticky buffer before it; for a payload use dsize");
    }
    let here = building.here();
    building.step(here, Operation::Size(size));
    Ok(())
}

/// Snort 3's. From the cursor it is the octets that are left.
pub(crate) fn bufferlen(building: &mut Building, value: &str) -> Parsed {
    let (size, rest) = value.split_once(',').unwrap_or((value, ""));
    let size = numbers(size, u64::from(u16::MAX), &[])?;
    let here = building.here_or_behind(rest.trim() == "relative");
    match rest.trim() {
        "" => building.step(here, Operation::Size(size)),
        "relative" => {
            let (Some(least), Some(most)) = (size.first(), size.last()) else {
                return bad("no size is possible");
            };
            if size.ranges().count() > 1 {
                return unsupported("relative bufferlen with more than one range");
            }
            if least > 0 {
                let at = IsDataAt { at: Number::Is(least as i64), relative: true, negated: false };
                building.step(here, Operation::IsDataAt(at));
            }
            if most < u64::from(u16::MAX) {
                let at =
                    IsDataAt { at: Number::Is(most as i64 + 1), relative: true, negated: true };
                building.step(here, Operation::IsDataAt(at));
            }
        }
        other => return bad(format!("{} is not understood: expected relative", quoted(other))),
    }
    Ok(())
}

/// Of the normalised URI unless `raw` is said.
pub(crate) fn urilen(building: &mut Building, value: &str) -> Parsed {
    let (size, which) = value.split_once(',').unwrap_or((value, "norm"));
    let most = u64::from(u16::MAX);
    let size = match size.split_once("<>").map(|(first, last)| (unsigned(first), unsigned(last))) {
        // Suricata 8.0 reads `7<>8`, between which nothing is, as 7; Snort counts both ends in.
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
    let here = building.inspection(buffer);
    // No match that others are relative to.
    building.plain_step(here, Operation::Size(size));
    Ok(())
}

pub(crate) fn absent(building: &mut Building, value: &str) -> Parsed {
    let or_else = match value.trim() {
        "" => false,
        "or_else" => true,
        other => return bad(format!("{} is not understood: expected or_else", quoted(other))),
    };
    if building.sticky_buffer().is_none() {
        return contradiction("absent needs a sticky buffer before it");
    }
    let here = building.here();
    if !building.rule.inspections[here].steps.is_empty() {
        return contradiction("absent must come first after its buffer");
    }
    building.step(here, Operation::Absent { or_else });
    Ok(())
}

/// `entropy: value >= 4, bytes 0, offset 0`
pub(crate) fn entropy(building: &mut Building, value: &str) -> Parsed {
    let (mut least, mut most, mut offset, mut octets) = (0.0, 8.0, 0, None);
    let mut said = false;
    for part in parts(value) {
        let (name, of) = super::two_words(part);
        match name {
            "value" => {
                (least, most) = entropy_range(of)?;
                said = true;
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
    if !said {
        return bad("`value` is missing, such as value >= 4");
    }
    let here = building.here();
    building.step(here, Operation::Entropy { least, most, offset, octets });
    Ok(())
}

fn entropy_range(text: &str) -> Parsed<(f64, f64)> {
    let number = |text: &str| match text.trim().parse::<f64>() {
        Ok(number) if (0.0..=8.0).contains(&number) => Ok(number),
        _ => bad(format!("{} is not an entropy: expected 0.0 to 8.0 bits per octet", quoted(text))),
    };
    // As near as two numbers can be told apart: `<` and `>` leave their end out.
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

/// What is kept in files beside the rule cannot be known here; `set` asks nothing of the traffic.
pub(crate) fn dataset(building: &mut Building, value: &str) -> Parsed {
    let verb = parts(value).next().unwrap_or("");
    match verb {
        "set" | "unset" => Ok(()),
        "isset" | "isnotset" => {
            // `isset,name,type ip` of nothing that was loaded is what another rule has set.
            let _ = building;
            unsupported("a set of values outside the rule")
        }
        _ => bad(format!(
            "{} is not understood: expected set, unset, isset or isnotset",
            quoted(verb)
        )),
    }
}

pub(crate) fn xor(building: &mut Building, value: &str) -> Parsed {
    let text = plain(value);
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let nibble = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let key: Option<Vec<u8>> =
        digits.chunks(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(*pair.get(1)?)?)).collect();
    match key {
        Some(key) if !key.is_empty() => building.transform(Transform::Xor(key)),
        _ => bad("expected a hexadecimal key with two digits per octet"),
    }
}

/// `from_base64: bytes 12, offset 0, mode rfc4648`
pub(crate) fn from_base64(building: &mut Building, value: &str) -> Parsed {
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
    building.transform(Transform::FromBase64 { octets, offset, mode })
}

pub(crate) fn pcrexform(building: &mut Building, value: &str) -> Parsed {
    let value = value.trim();
    let inside = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    if inside.is_empty() {
        return bad("expected an expression with a group");
    }
    building.transform(Transform::PcreXform(inside.to_owned()))
}

pub(crate) fn luaxform(building: &mut Building, value: &str) -> Parsed {
    building.transform(Transform::Lua(value.trim().to_owned()))
}

/// The client's body, unless the rule looks at what the server sends.
pub(crate) fn http_raw_body(building: &mut Building, value: &str) -> Parsed {
    let buffer = match building.rule.flow.to {
        Some(End::Client) => Buffer::HttpResponseBody,
        _ => Buffer::HttpRequestBody,
    };
    building.stick(buffer, value)
}

/// Snort 3: `http_param:"name",nocase`
pub(crate) fn http_param(building: &mut Building, value: &str) -> Parsed {
    let (name, rest) = match value.trim().strip_prefix('"').and_then(|rest| rest.split_once('"')) {
        Some(split) => split,
        None => value.split_once(',').unwrap_or((value, "")),
    };
    if name.trim().is_empty()
        || !matches!(rest.trim().trim_start_matches(',').trim(), "" | "nocase")
    {
        return bad("expected a parameter name in quotes, optionally followed by nocase");
    }
    building.stick_part(Buffer::HttpParameter, name.to_owned());
    Ok(())
}

/// Of Snort with the methods that may be (`sip_method:invite,options`); without a value the buffer.
pub(crate) fn sip_method(building: &mut Building, value: &str) -> Parsed {
    if value.is_empty() {
        return building.stick(Buffer::SipMethod, "");
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
    let here = building.inspection(Buffer::SipMethod);
    building.plain_step(
        here,
        Operation::Pcre(Pcre { pattern, negated, caseless: true, ..Pcre::default() }),
    );
    Ok(())
}

/// A number of an expression that is not a set.
pub(crate) fn whole_number(text: &str, least: i64, most: i64) -> Parsed<i64> {
    match signed(text) {
        Some(number) if (least..=most).contains(&number) => Ok(number),
        Some(number) => bad(format!("{number} is out of range: expected {least} to {most}")),
        None => bad(format!("{} is not a number", quoted(text))),
    }
}
