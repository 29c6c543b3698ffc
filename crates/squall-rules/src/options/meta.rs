//! What a rule is called and who may care.

use super::parts;
use crate::rule::{Building, Parsed, Refusal, bad};
use crate::set::quoted;
use crate::values::plain;
use crate::{EngineVersion, Reason};

pub(crate) fn msg(building: &mut Building, value: &str) -> Parsed {
    building.rule.msg = plain(value);
    Ok(())
}

fn number(value: &str) -> Parsed<u32> {
    value
        .trim()
        .parse()
        .or_else(|_| bad(format!("{} is not a number up to 4294967295", quoted(value))))
}

pub(crate) fn sid(building: &mut Building, value: &str) -> Parsed {
    let sid = number(value)?;
    if sid == 0 {
        return bad("0 is not a sid: sids begin at 1");
    }
    building.set_sid(sid);
    Ok(())
}

pub(crate) fn gid(building: &mut Building, value: &str) -> Parsed {
    building.rule.gid = number(value)?;
    Ok(())
}

pub(crate) fn rev(building: &mut Building, value: &str) -> Parsed {
    building.rule.rev = number(value)?;
    Ok(())
}

pub(crate) fn classtype(building: &mut Building, value: &str) -> Parsed {
    building.rule.classtype = Some(plain(value));
    Ok(())
}

pub(crate) fn priority(building: &mut Building, value: &str) -> Parsed {
    building.rule.priority = Some(number(value)?);
    Ok(())
}

pub(crate) fn reference(building: &mut Building, value: &str) -> Parsed {
    let (kind, of) = value.split_once(',').unwrap_or((value, ""));
    building.rule.references.push((kind.trim().to_owned(), plain(of)));
    Ok(())
}

pub(crate) fn metadata(building: &mut Building, value: &str) -> Parsed {
    for part in parts(value).filter(|part| !part.is_empty()) {
        let (key, value) = super::two_words(part);
        if key == "service" {
            add_service(building, value);
        }
        building.rule.metadata.push((key.to_owned(), value.to_owned()));
    }
    Ok(())
}

pub(crate) fn service(building: &mut Building, value: &str) -> Parsed {
    for service in parts(value).filter(|part| !part.is_empty()) {
        add_service(building, service);
    }
    Ok(())
}

fn add_service(building: &mut Building, service: &str) {
    let service = service.to_ascii_lowercase();
    if !building.rule.services.contains(&service) {
        building.rule.services.push(service);
    }
}

pub(crate) fn noalert(building: &mut Building, _: &str) -> Parsed {
    building.rule.silent = true;
    Ok(())
}

/// What the engine must be: ours is as one of version 8 in its usual build.
pub(crate) fn requires(building: &mut Building, value: &str) -> Parsed {
    let engine = building.engine.unwrap_or_default();
    for part in parts(value) {
        let (what, of) = super::two_words(part);
        let kept = match what {
            "version" => of.split('|').any(|either| {
                let mut words = either.split_whitespace().peekable();
                let mut all = true;
                while let Some(word) = words.next() {
                    // `>= 7`, `>=7`
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
                .is_some_and(|keyword| building.engine.is_none_or(|engine| keyword.is_of(engine))),
            _ => {
                return bad(format!(
                    "{} is not understood: expected version, feature or keyword",
                    quoted(part)
                ));
            }
        };
        if !kept {
            let reason = match building.engine {
                Some(_) => Reason::NotLoaded,
                None => Reason::UnsupportedKeyword,
            };
            let text = format!("{} is not met by {engine} in its usual build", quoted(part));
            return Err(Refusal(reason, text));
        }
    }
    Ok(())
}

fn holds(engine: EngineVersion, operator: &str, version: &str) -> bool {
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let asked =
        [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)];
    let ours = match engine {
        EngineVersion::Suricata7 => [7, 0, 17],
        _ => [8, 0, 6],
    };
    match operator {
        ">=" => ours >= asked,
        ">" => ours > asked,
        "<=" => ours <= asked,
        "<" => ours < asked,
        _ => ours == asked,
    }
}
