//! Options that identify and describe a rule.

use super::parts;
use crate::rule::{OptionError, Parsed, RuleBuilder, bad};
use crate::set::quoted;
use crate::values::plain;
use crate::{EngineVersion, Reason};

pub(crate) fn msg(builder: &mut RuleBuilder, value: &str) -> Parsed {
    builder.rule.msg = plain(value);
    Ok(())
}

fn number(value: &str) -> Parsed<u32> {
    value
        .trim()
        .parse()
        .or_else(|_| bad(format!("{} is not a number up to 4294967295", quoted(value))))
}

pub(crate) fn sid(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let sid = number(value)?;
    if sid == 0 {
        return bad("0 is not a sid: sids begin at 1");
    }
    builder.set_sid(sid);
    Ok(())
}

pub(crate) fn gid(builder: &mut RuleBuilder, value: &str) -> Parsed {
    builder.rule.gid = number(value)?;
    Ok(())
}

pub(crate) fn rev(builder: &mut RuleBuilder, value: &str) -> Parsed {
    builder.rule.rev = number(value)?;
    Ok(())
}

pub(crate) fn classtype(builder: &mut RuleBuilder, value: &str) -> Parsed {
    builder.rule.classtype = Some(plain(value));
    Ok(())
}

pub(crate) fn priority(builder: &mut RuleBuilder, value: &str) -> Parsed {
    builder.rule.priority = Some(number(value)?);
    Ok(())
}

pub(crate) fn reference(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let (kind, of) = value.split_once(',').unwrap_or((value, ""));
    builder.rule.references.push((kind.trim().to_owned(), plain(of)));
    Ok(())
}

pub(crate) fn metadata(builder: &mut RuleBuilder, value: &str) -> Parsed {
    for part in parts(value).filter(|part| !part.is_empty()) {
        let (key, value) = super::two_words(part);
        if key == "service" {
            add_service(builder, value);
        }
        builder.rule.metadata.push((key.to_owned(), value.to_owned()));
    }
    Ok(())
}

pub(crate) fn service(builder: &mut RuleBuilder, value: &str) -> Parsed {
    for service in parts(value).filter(|part| !part.is_empty()) {
        add_service(builder, service);
    }
    Ok(())
}

fn add_service(builder: &mut RuleBuilder, service: &str) {
    let service = service.to_ascii_lowercase();
    if !builder.rule.services.contains(&service) {
        builder.rule.services.push(service);
    }
}

pub(crate) fn noalert(builder: &mut RuleBuilder, _: &str) -> Parsed {
    builder.rule.silent = true;
    Ok(())
}

/// Parses requirements on the engine. If no engine was chosen, they are checked against Suricata 8
/// in its usual build.
pub(crate) fn requires(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let engine = builder.engine.unwrap_or_default();
    for part in parts(value) {
        let (what, of) = super::two_words(part);
        let kept = match what {
            "version" => of.split('|').any(|either| {
                let mut words = either.split_whitespace().peekable();
                let mut all = true;
                while let Some(word) = words.next() {
                    // Both `>= 7` and `>=7` are valid.
                    let operator = word.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
                    let version = if word.len() > operator.len() {
                        &word[operator.len()..]
                    } else {
                        words.next().unwrap_or("")
                    };
                    all &= holds(engine, operator, version);
                }
                all
            }),
            "feature" => !matches!(of, "ja4" | "output::file-store" | "ndpi"),
            "keyword" => crate::keywords::find(of)
                .is_some_and(|keyword| builder.engine.is_none_or(|engine| keyword.is_of(engine))),
            _ => {
                return bad(format!(
                    "{} is not understood: expected version, feature or keyword",
                    quoted(part)
                ));
            }
        };
        if !kept {
            let reason = match builder.engine {
                Some(_) => Reason::NotLoaded,
                None => Reason::UnsupportedKeyword,
            };
            let text = format!("{} is not met by {engine} in its usual build", quoted(part));
            return Err(OptionError(reason, text));
        }
    }
    Ok(())
}

fn holds(engine: EngineVersion, operator: &str, version: &str) -> bool {
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let required =
        [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)];
    let supported = match engine {
        EngineVersion::Suricata7 => [7, 0, 17],
        _ => [8, 0, 6],
    };
    match operator {
        ">=" => supported >= required,
        ">" => supported > required,
        "<=" => supported <= required,
        "<" => supported < required,
        _ => supported == required,
    }
}
