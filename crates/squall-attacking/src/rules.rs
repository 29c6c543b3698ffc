//! Compiles the rule settings in a profile: files, variables, selection, hosts.

use std::{net::IpAddr, path::PathBuf, sync::Arc};

use regex::Regex;
use squall_attacks::{Evasion, assemble::variants::Variant, solve::Hosts, suite::Choice, wire};
use squall_flows::AddrRange;
use squall_plan::ReplayHosts;
use squall_profile::{Attack, AttackRules, ErrorCollector, Located, Profile};
use squall_rules::{Addresses, EngineVersion, Numbers, Problem, Reader, RuleSet, Variables};
use squall_units::Cannot;

use crate::Error;

/// Reads the rules in all files. If `engine` is given, only those that it loads. Returns `None` if
/// there are errors, which are added to `mistakes`.
///
/// # Errors
///
/// [`Error::Usage`] if a file is missing, [`Error::Environment`] if it cannot be read.
pub fn read(
    of: &AttackRules,
    engine: Option<EngineVersion>,
    mistakes: &mut ErrorCollector<'_>,
) -> Result<Option<Arc<RuleSet>>, Error> {
    let mut variables = Variables::standard();
    if let Some(config) = &of.config {
        let text = squall_profile::read_text(&config.text)
            .map_err(|error| Cannot::read(&config.text, &error))?;
        if variables.read(&text) == 0 {
            mistakes.note(
                config,
                &format!("{} defines no variables", config.text),
                "expected vars: of a suricata.yaml, or var, ipvar and portvar lines of a \
                 snort.conf",
            );
            return Ok(None);
        }
    }
    for (name, value) in &of.variables {
        variables.set(name.trim_start_matches('$'), &value.text);
    }
    let paths: Vec<PathBuf> = of.files.iter().map(|file| PathBuf::from(&file.text)).collect();
    for path in &paths {
        path.metadata().map_err(|error| Cannot::read(path, &error))?;
    }
    let reader = Reader { engine, ..Reader::default() };
    Ok(Some(Arc::new(reader.read(&paths, &variables))))
}

/// A line such as `local.rules:12:5 sid 1000: unknown_keyword: ...`.
pub fn problem_line(rules: &RuleSet, problem: &Problem) -> String {
    let file = rules.files.get(problem.place.file as usize).map(|file| file.display().to_string());
    let column = problem.column.map_or_else(String::new, |column| format!(":{column}"));
    let sid = problem.sid.map_or_else(String::new, |sid| format!("  sid {sid}:"));
    format!("{}:{}{column}{sid}  {}", file.unwrap_or_default(), problem.place.line, problem.text)
}

/// The selection of rules. Returns `None` if there are errors, which are added to `mistakes`.
pub fn choose(of: &AttackRules, mistakes: &mut ErrorCollector<'_>) -> Option<Choice> {
    let mut sids = (!of.sids.is_empty()).then(Numbers::none);
    let mut understood = true;
    for value in &of.sids {
        for text in value.text.split(',').map(str::trim) {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            match (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
                (Ok(first), Ok(last)) if first <= last => {
                    let range = Numbers::range(first.into()..=last.into());
                    sids = sids.map(|sids| sids.union(&range));
                }
                _ => {
                    mistakes.note(
                        value,
                        &format!("{text:?} is not a sid"),
                        "try \"1234\", or \"1000-2000\"",
                    );
                    understood = false;
                }
            }
        }
    }
    let msg = match &of.msg {
        Some(value) => match Regex::new(&value.text) {
            Ok(msg) => Some(msg),
            Err(error) => {
                mistakes.note(
                    value,
                    &format!("msg: {error}"),
                    "expected a regular expression: \"(?i)trojan\"",
                );
                return None;
            }
        },
        None => None,
    };
    let classtypes = of
        .classtypes
        .iter()
        .flat_map(|value| value.text.split(','))
        .map(|class| class.trim().to_owned());
    understood.then(|| Choice { sids, classtypes: classtypes.collect(), msg })
}

/// The hosts for attackers and targets. Returns `None` if there are errors, which are added to
/// `mistakes`.
pub fn hosts(spec: &Attack, mistakes: &mut ErrorCollector<'_>) -> Option<Hosts> {
    let mut of = |texts: &[Located]| -> Option<Option<Addresses>> {
        let ranges = ranges(texts, mistakes)?;
        let each =
            ranges.into_iter().map(|(_, range)| Addresses::range(range.first(), range.last()));
        Some(each.reduce(|all, range| all.union(&range)))
    };
    Some(Hosts { inside: of(&spec.inside)?, outside: of(&spec.outside)?, family: spec.family })
}

/// Parses lists of addresses, networks and ranges. Each range keeps its source text. Returns `None`
/// if there are errors, which are added to `mistakes`.
pub fn ranges<'a>(
    values: &'a [Located],
    mistakes: &mut ErrorCollector<'_>,
) -> Option<Vec<(&'a Located, AddrRange)>> {
    let mut all = Vec::new();
    for value in values {
        for text in value.text.split(',').map(str::trim) {
            match text.parse() {
                Ok(range) => all.push((value, range)),
                Err(error) => {
                    mistakes.report(value, &error);
                    return None;
                }
            }
        }
    }
    Some(all)
}

/// The evasions that change messages, as opposed to those that change packets.
pub fn variants(spec: &Attack) -> Vec<Variant> {
    spec.evasion.iter().filter_map(variant).collect()
}

/// All variants. `MixedCase` is not in [`Variant::ALL`], because the rule may no longer match with
/// it.
pub fn all_variants() -> impl Iterator<Item = Variant> {
    Variant::ALL.iter().copied().chain([Variant::MixedCase])
}

fn variant(spec: &Located) -> Option<Variant> {
    all_variants().find(|variant| variant.name() == spec.text.trim())
}

/// The settings with which frames are made. Returns `None` if there are errors, which are added to
/// `mistakes`.
pub fn wire(
    profile: &Profile,
    spec: &Attack,
    hosts: Option<ReplayHosts>,
    mistakes: &mut ErrorCollector<'_>,
) -> Option<wire::Settings> {
    let vlan = hosts.and_then(|hosts| hosts.vlan(profile));
    let mut settings = wire::Settings {
        seed: profile.effective_seed(),
        vlans: vlan.map(|id| id as u16).into_iter().collect(),
        sessions: hosts.map_or([false; 2], |hosts| hosts.sessions(profile)),
        ..wire::Settings::default()
    };
    if let Some(mru) = hosts.and_then(|hosts| hosts.mru(profile)) {
        // 40 octets of IPv4 and TCP, which sessions carry.
        (settings.mtu, settings.mss) = (mru, mru - 40);
    }
    if let Some(gap) = spec.gap {
        settings.gap = gap;
    }
    for evasion in &spec.evasion {
        match evasion.text.parse::<Evasion>() {
            // Variants are applied to messages, before packets are made.
            _ if variant(evasion).is_some() => {}
            Ok(evasion) => settings.evasions.push(evasion),
            Err(error) => mistakes.note(
                evasion,
                &format!("evasion: {error}"),
                "`squall attack --evasions` describes each",
            ),
        }
    }
    for wrap in &spec.wrap {
        let words: Vec<&str> = wrap.text.split_whitespace().collect();
        let id = |text: &str| text.parse::<u16>().ok().filter(|id| *id < 4096);
        match &words[..] {
            ["vlan" | "qinq", number] if settings.gre.is_none() && id(number).is_some() => {
                settings.vlans.extend(id(number))
            }
            ["vlan" | "qinq", ..] if settings.gre.is_some() => mistakes.note(
                wrap,
                "a VLAN tag inside GRE is not supported",
                "expected tags first: \"vlan 7\", \"gre FROM TO\"",
            ),
            ["vlan" | "qinq", _] => mistakes.note(
                wrap,
                &format!("{:?} is not a VLAN", wrap.text),
                "expected an identifier from 0 to 4095",
            ),
            ["gre", ..] if settings.gre.is_some() => mistakes.note(
                wrap,
                "GRE inside GRE is not supported",
                "expected one \"gre FROM TO\"",
            ),
            ["gre", from, to] => match (from.parse::<IpAddr>(), to.parse::<IpAddr>()) {
                (Ok(source), Ok(destination)) if source.is_ipv4() == destination.is_ipv4() => {
                    settings.gre = Some(wire::Gre { source, destination });
                }
                (Ok(_), Ok(_)) => mistakes.note(
                    wrap,
                    &format!("{:?} has addresses of two families", wrap.text),
                    "expected two IPv4 or two IPv6 addresses",
                ),
                _ => mistakes.note(
                    wrap,
                    &format!("{:?} does not have two addresses", wrap.text),
                    "try \"gre 192.0.2.1 192.0.2.2\"",
                ),
            },
            _ => mistakes.note(
                wrap,
                &format!("{:?} is not supported around frames of attacks", wrap.text),
                "expected \"vlan 7\" or \"gre FROM TO\"",
            ),
        }
    }
    Some(settings)
}
