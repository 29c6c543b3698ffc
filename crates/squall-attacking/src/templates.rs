//! Scans, floods, brute force and beacons: options, timeline and labels.

use std::{net::IpAddr, sync::Arc};

use squall_attacks::{
    templates::{Class, Parameters, Template, named, templates},
    wire,
};
use squall_plan::ReplayHosts;
use squall_profile::{Attack, AttackPace, ErrorCollector, Located, NearMiss, Profile};
use squall_units::{Division, Nanos};

use crate::{
    CLIENT_MAC, Frames, Overlapping, SERVER_MAC, Section, SentRecorder, Timed, Timeline, rules,
};

/// Maximum number of addresses in all ranges. Each conversation has a label, so a scan of more than
/// a /16 would fill memory and reports.
const MAX_HOSTS: usize = 65_536;

pub(crate) fn section(
    profile: &Profile,
    spec: &Attack,
    (name, options, hosts_of): (&Located, &[(String, Located)], Option<ReplayHosts>),
    part: Division,
    mut recorder: SentRecorder<'_>,
    mistakes: &mut ErrorCollector<'_>,
) -> Option<Section> {
    let template = match named(&name.text) {
        Ok(template) => template,
        Err(error) => {
            mistakes.note(name, &error.to_string(), "`squall attack --templates` describes them");
            return None;
        }
    };
    let of_rules = [
        ("near_miss", spec.near_miss != NearMiss::No),
        ("samples", spec.samples != 1),
        ("every_branch", spec.every_branch),
        ("shuffle", spec.shuffle),
        ("share", matches!(spec.pace, AttackPace::Share(_))),
    ];
    if let Some((option, _)) = of_rules.iter().find(|(_, is_set)| *is_set) {
        mistakes.note(
            name,
            &format!("{option} applies to rules, but {} is a template", template.name),
            "leave it out",
        );
        return None;
    }
    let family = match hosts_of.map(|hosts| hosts.is_ipv6(profile)) {
        Some(true) => 6,
        Some(false) => 4,
        None => spec.family.unwrap_or(4),
    };
    let parameters = parameters(profile, (spec, family), template, options, mistakes)?;
    let wire = rules::wire(profile, spec, hosts_of, mistakes)?;
    let mut section = Section::default();
    let events = match template.events(&parameters) {
        Ok(events) => events,
        Err(error) => {
            mistakes.note(name, &error.to_string(), "");
            return None;
        }
    };
    for (number, event) in (0..).zip(events) {
        section.numbers = number + 1;
        let begin = Nanos(spec.start.0.saturating_add(event.at.0));
        if !part.has(number) || begin >= spec.end() {
            continue;
        }
        match event.frames(&wire) {
            Ok(frames) => {
                section.report.attacks += 1;
                section.report.frames += frames.len() as u64;
                section.report.octets +=
                    frames.iter().map(|frame| frame.octets.len() as u64).sum::<u64>();
                recorder.add(spec, section.labels.len(), &frames);
                section.labels.push(event.label(number, begin, &frames));
            }
            Err(error) => {
                mistakes.note(name, &format!("{}: {error}", template.name), "");
                return None;
            }
        }
    }
    let frames = EventFrames {
        template,
        parameters: Arc::new(parameters),
        wire,
        start: spec.start,
        end: spec.end(),
        by_port: spec.port2.is_some(),
        of_hosts: hosts_of.is_some(),
        part,
    };
    section.lines.push(Arc::new(move || -> Timeline { Box::new(Frames::new(frames.clone())) }));
    Some(section)
}

fn parameters(
    profile: &Profile,
    (spec, family): (&Attack, u8),
    template: &Template,
    options: &[(String, Located)],
    mistakes: &mut ErrorCollector<'_>,
) -> Option<Parameters> {
    let mut parameters = Parameters { seed: profile.effective_seed(), ..template.usual() };
    let usual = |one: &str, other: &str| -> Vec<IpAddr> {
        let text = if family == 6 { other } else { one };
        text.parse().into_iter().collect()
    };
    let outside =
        hosts(&spec.outside, mistakes)?.unwrap_or_else(|| usual("198.18.0.1", "2001:2::1"));
    let inside = hosts(&spec.inside, mistakes)?
        .unwrap_or_else(|| usual("10.129.0.1", "fd51:7561:6c6c:1::1"));
    // Clients are outside hosts, with two exceptions: a beacon reports from inside to an outside
    // server, and the clients in an amplification attack are the victims, which outside servers
    // flood.
    let from_inside = template.class == Class::Beacon || template.name == "dns-amplification";
    (parameters.clients, parameters.servers) =
        if from_inside { (inside, outside) } else { (outside, inside) };
    if let AttackPace::PerSecond(rate) = spec.pace
        && spec.pace != AttackPace::default()
    {
        parameters.gap = Nanos((1e9 / rate) as u64);
    }
    for (option, value) in options {
        let list = std::slice::from_ref(value);
        match option.as_str() {
            "clients" => parameters.clients = hosts(list, mistakes)?.unwrap_or_default(),
            "servers" => parameters.servers = hosts(list, mistakes)?.unwrap_or_default(),
            "ports" => parameters.ports = ports(value, mistakes)?,
            "count" => parameters.count = Some(mistakes.parsed(value, "a number", "1000")?),
            "jitter" => {
                let percent = value.text.trim_end_matches(['%', ' ']).to_owned();
                let percent = Located { text: percent, at: value.at };
                parameters.jitter = mistakes.parsed(&percent, "a percentage", "10")?;
            }
            "payload" => parameters.payload = mistakes.parsed(value, "a number of octets", "64")?,
            "gap" => parameters.gap = mistakes.parsed(value, "a time", "10ms")?,
            other => {
                let hint = squall_units::suggest(other, OPTIONS.map(|(name, _)| name));
                mistakes.note(value, &format!("{} has no option {other:?}", template.name), &hint);
                return None;
            }
        }
    }
    parameters.count = match (parameters.count, spec.repeat) {
        (Some(count), repeat) => Some(count.saturating_mul(repeat)),
        (None, 1) => None,
        (None, repeat) => {
            let once = template.events(&parameters).map_or(0, |events| events.size_hint().0 as u64);
            Some(once.saturating_mul(repeat))
        }
    };
    Some(parameters)
}

const OPTIONS: [(&str, &str); 7] = [
    (
        "clients",
        "addresses of clients, in turn: 198.18.0.1-198.18.0.9 (default: one outside; for \
         beacons, tunnels and amplification inside)",
    ),
    ("servers", "addresses of servers, in turn: 10.0.0.0/24 (default: one on the other side)"),
    ("ports", "TCP or UDP ports of servers: 22,80,8000-8100"),
    (
        "count",
        "number of conversations (default: for scans each port of each server once, else 100)",
    ),
    ("gap", "time from one conversation to the next: 10ms; or use --rate"),
    ("jitter", "percentage of the gap by which they begin earlier or later"),
    ("payload", "octets of payload of a flood"),
];

/// The output of `--templates`.
pub fn list_templates() -> String {
    let mut text = String::new();
    for template in templates() {
        text += &format!("{:<20} {}\n", template.name, template.description);
    }
    text += "\nOptions (--option NAME=VALUE):\n";
    for (name, description) in OPTIONS {
        text += &format!("  {name:<18} {description}\n");
    }
    text
}

/// All addresses in the ranges of `value`. The inner option is `None` if no hosts are given.
fn hosts(value: &[Located], mistakes: &mut ErrorCollector<'_>) -> Option<Option<Vec<IpAddr>>> {
    let mut all = Vec::new();
    for (value, range) in rules::ranges(value, mistakes)? {
        let mut address = range.first();
        loop {
            if all.len() == MAX_HOSTS {
                mistakes.note(
                    value,
                    &format!("more than {MAX_HOSTS} hosts"),
                    "try a smaller range",
                );
                return None;
            }
            all.push(address);
            if address == range.last() {
                break;
            }
            address = match address {
                IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() + 1).into()),
                IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() + 1).into()),
            };
        }
    }
    Some((!all.is_empty()).then_some(all))
}

fn ports(value: &Located, mistakes: &mut ErrorCollector<'_>) -> Option<Vec<u16>> {
    let mut all = Vec::new();
    for text in value.text.split(',').map(str::trim) {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
            (Ok(first), Ok(last)) if first <= last => all.extend(first..=last),
            _ => {
                mistakes.note(value, &format!("{text:?} is not a port"), "try \"22,80,8000-8100\"");
                return None;
            }
        }
    }
    Some(all)
}

#[derive(Clone)]
struct EventFrames {
    template: &'static Template,
    parameters: Arc<Parameters>,
    wire: wire::Settings,
    start: Nanos,
    /// No event starts at or after this time.
    end: Nanos,
    /// Whether there are two ports, between which the MAC addresses decide.
    by_port: bool,
    /// Whether frames name their conversation, for their hosts.
    of_hosts: bool,
    part: Division,
}

impl Overlapping for EventFrames {
    fn earliest(&self, nth: usize) -> Option<Nanos> {
        let gap = self.parameters.gap.0;
        let jitter = (u128::from(gap) * u128::from(self.parameters.jitter) / 100) as u64;
        Some(Nanos(
            self.start.0.saturating_add(gap.saturating_mul(nth as u64).saturating_sub(jitter)),
        ))
    }

    fn frames(&self, nth: usize) -> Option<Vec<Timed>> {
        if !self.part.has(nth as u64) {
            return Some(Vec::new());
        }
        let mut event = self.template.events(&self.parameters).ok()?.nth(nth)?;
        if self.of_hosts {
            let server = ReplayHosts::server_mac(nth as u64);
            (event.ends.client_mac, event.ends.server_mac) = (CLIENT_MAC.0, server.0);
        } else if self.by_port {
            (event.ends.client_mac, event.ends.server_mac) = (CLIENT_MAC.0, SERVER_MAC.0);
        }
        // All events were written once already, to make their labels, so errors have been reported.
        let begin = Nanos(self.start.0.saturating_add(event.at.0));
        if begin >= self.end {
            return Some(Vec::new());
        }
        let frames = event.frames(&self.wire).unwrap_or_default();
        Some(frames.into_iter().map(|frame| Timed::of(frame, begin)).collect())
    }
}
