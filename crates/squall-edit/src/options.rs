//! Sets edits by the name and text of command line options, for callers that have no command line.

use std::{fmt::Display, str::FromStr, time::UNIX_EPOCH};

use squall_units::Nanos;

use crate::{Edits, PortMap, Vlan, VlanMode, When};

/// Option names that [`set`] accepts.
const NAMES: [&str; 43] = [
    "enet-dmac",
    "enet-smac",
    "enet-subsmac",
    "enet-mac-seed",
    "enet-mac-seed-keep-bytes",
    "skipl2broadcast",
    "enet-vlan",
    "enet-vlan-tag",
    "enet-vlan-cfi",
    "enet-vlan-pri",
    "enet-vlan-proto",
    "dlt",
    "efcs",
    "pnat",
    "srcipmap",
    "dstipmap",
    "endpoints",
    "seed",
    "anonymize",
    "skipbroadcast",
    "ttl",
    "tos",
    "tclass",
    "flowlabel",
    "portmap",
    "tcp-sequence",
    "fixcsum",
    "fuzz-seed",
    "fuzz-factor",
    "fixlen",
    "mtu",
    "mtu-trunc",
    "truncate",
    "pad",
    "unfold",
    "snaplen",
    "fragment",
    "packets",
    "from",
    "to",
    "dedup",
    "time-shift",
    "time-scale",
];

/// Changes `edits` like the option `name` of `squall edit` with the value `text`. The name may have
/// `_` instead of `-`. Options without a value take `true` and `false`. Repeatable options
/// accumulate.
///
/// ```
/// let mut edits = squall_edit::Edits::default();
/// squall_edit::set(&mut edits, "ttl", "-1")?;
/// squall_edit::set(&mut edits, "fixcsum", "true")?;
/// assert!(edits.ttl.is_some() && edits.fixcsum);
/// # Ok::<_, String>(())
/// ```
///
/// # Errors
/// The text is invalid; the error contains it and the expected form.
pub fn set(edits: &mut Edits, name: &str, text: &str) -> Result<(), String> {
    let plain = name.replace('_', "-");
    let option = Asked { name: &plain, text };
    match plain.as_str() {
        "enet-dmac" => edits.enet_dmac = Some(option.value()?),
        "enet-smac" => edits.enet_smac = Some(option.value()?),
        "enet-subsmac" => edits.enet_subsmac.push(option.value()?),
        "enet-mac-seed" => edits.enet_mac_seed = Some(option.value()?),
        "enet-mac-seed-keep-bytes" => edits.enet_mac_seed_keep_bytes = option.within(1, 6)? as u8,
        "skipl2broadcast" => edits.skip_l2_broadcast = option.flag()?,
        "enet-vlan" => vlan(edits).mode = option.mode()?,
        "enet-vlan-tag" => vlan(edits).tag = Some(option.within(0, 4095)? as u16),
        "enet-vlan-cfi" => vlan(edits).cfi = Some(option.within(0, 1)? as u8),
        "enet-vlan-pri" => vlan(edits).pri = Some(option.within(0, 7)? as u8),
        "enet-vlan-proto" => vlan(edits).service = option.service()?,
        "dlt" => edits.dlt = Some(option.value()?),
        "efcs" => edits.efcs = option.flag()?,
        "pnat" => edits.pnat.push(option.value()?),
        "srcipmap" => edits.srcipmap = Some(option.value()?),
        "dstipmap" => edits.dstipmap = Some(option.value()?),
        "endpoints" => edits.endpoints = Some(option.value()?),
        "seed" => edits.seed = Some(option.value()?),
        "anonymize" => edits.anonymize = Some(option.value()?),
        "skipbroadcast" => edits.skip_broadcast = option.flag()?,
        "ttl" => edits.ttl = Some(option.value()?),
        "tos" => edits.tos = Some(option.value()?),
        "tclass" => edits.tclass = Some(option.value()?),
        "flowlabel" => edits.flowlabel = Some(option.within(0, 0xf_ffff)? as u32),
        "portmap" => {
            let more = option.value::<PortMap>()?;
            edits.portmap.get_or_insert_with(|| PortMap(Vec::new())).0.extend(more.0);
        }
        "tcp-sequence" => edits.tcp_sequence = Some(option.value()?),
        "fixcsum" => edits.fixcsum = option.flag()?,
        "fuzz-seed" => edits.fuzz_seed = Some(option.value()?),
        "fuzz-factor" => edits.fuzz_factor = Some(option.within(1, u32::MAX.into())? as u32),
        "fixlen" => edits.fixlen = Some(option.value()?),
        "mtu" => edits.mtu = Some(option.value()?),
        "mtu-trunc" => edits.mtu_trunc = option.flag()?,
        "truncate" => edits.truncate = Some(option.value()?),
        "pad" => edits.pad = Some(option.value()?),
        "unfold" => edits.unfold = option.flag()?,
        "snaplen" => edits.snaplen = Some(option.value()?),
        "fragment" => edits.fragment = Some(option.value()?),
        "packets" => edits.packets = Some(option.value()?),
        "from" => edits.from = Some(option.read(parse_when)?),
        "to" => edits.to = Some(option.read(parse_when)?),
        "dedup" => edits.dedup = Some(option.within(2, 100_000)? as u32),
        "time-shift" => edits.time_shift_ns = option.read(parse_shift)?,
        "time-scale" => edits.time_scale = Some(option.value()?),
        _ => {
            let names = NAMES.map(|name| name.replace('-', "_")).join(", ");
            return Err(format!("{name:?} is not an edit\n  expected one of {names}"));
        }
    }
    Ok(())
}

/// Parses a time: `+10s` after the first packet, `2026-11-22T10:00:00Z`, or seconds since 1970
/// (`1700000000.25`).
///
/// # Errors
/// The text is invalid; the error contains the expected form.
pub fn parse_when(text: &str) -> Result<When, String> {
    const EXPECTED: &str =
        "expected +10s (after the first packet), 2026-11-22T10:00:00Z, or seconds since 1970";
    if let Some(after) = text.strip_prefix('+') {
        return after
            .parse()
            .map(|Nanos(ns)| When::After(ns))
            .map_err(|error| format!("{error}; {EXPECTED}"));
    }
    if let Ok(time) = humantime::parse_rfc3339_weak(text) {
        let since = time.duration_since(UNIX_EPOCH).map_err(|_| "the time is before 1970")?;
        return u64::try_from(since.as_nanos())
            .map(When::At)
            .map_err(|_| "the time is after 2554".into());
    }
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) || fraction.len() > 9 {
        return Err(EXPECTED.into());
    }
    let ns: u64 = format!("{fraction:0<9}").parse().map_err(|_| EXPECTED)?;
    let seconds: u64 = seconds.parse().map_err(|_| EXPECTED)?;
    seconds
        .checked_mul(1_000_000_000)
        .and_then(|s| s.checked_add(ns))
        .map(When::At)
        .ok_or("the time is after 2554".into())
}

/// Parses a time with an optional sign to nanoseconds: `1h`, `-30s`.
///
/// # Errors
/// The text is invalid; the error contains the expected form.
pub fn parse_shift(text: &str) -> Result<i64, String> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let ns = rest.parse::<Nanos>().map_err(|error| error.to_string())?.0;
    i64::try_from(ns).map(|ns| sign * ns).map_err(|_| "the time is longer than 292 years".into())
}

/// Parses `add`, `del` or `rewrite`.
///
/// # Errors
/// The text is invalid; the error contains the expected form.
pub fn parse_vlan_mode(text: &str) -> Result<VlanMode, String> {
    match text {
        "add" => Ok(VlanMode::Add),
        "del" => Ok(VlanMode::Del),
        "rewrite" => Ok(VlanMode::Rewrite),
        _ => Err("expected add, del or rewrite".into()),
    }
}

fn vlan(edits: &mut Edits) -> &mut Vlan {
    edits.vlan.get_or_insert_default()
}

/// An option name and its value.
struct Asked<'a> {
    name: &'a str,
    text: &'a str,
}

impl Asked<'_> {
    fn wrong(&self, why: impl Display) -> String {
        format!("{} = {:?}: {why}", self.name.replace('-', "_"), self.text)
    }

    fn read<T>(&self, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, String> {
        parse(self.text).map_err(|why| self.wrong(why))
    }

    fn value<T: FromStr<Err: Display>>(&self) -> Result<T, String> {
        self.text.parse().map_err(|why| self.wrong(why))
    }

    fn within(&self, least: u64, most: u64) -> Result<u64, String> {
        let fits = self.text.parse().ok().filter(|n| (least..=most).contains(n));
        fits.ok_or_else(|| self.wrong(format_args!("expected {least} to {most}")))
    }

    fn flag(&self) -> Result<bool, String> {
        match self.text {
            "true" | "True" => Ok(true),
            "false" | "False" => Ok(false),
            _ => Err(self.wrong("expected true or false")),
        }
    }

    fn mode(&self) -> Result<VlanMode, String> {
        self.read(parse_vlan_mode)
    }

    fn service(&self) -> Result<bool, String> {
        match self.text {
            "802.1q" => Ok(false),
            "802.1ad" => Ok(true),
            _ => Err(self.wrong("expected 802.1q or 802.1ad")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_known_and_each_invalid_text_names_the_expectation() {
        for name in NAMES {
            let error = set(&mut Edits::default(), name, "?!")
                .map_or_else(|error| error.to_string(), |()| String::new());
            // For `anonymize`, any text is valid.
            assert!(name == "anonymize" || error.contains("\"?!\""), "{name}: {error}");
            assert!(!error.contains("is not an edit"), "{name}: {error}");
        }
        let error = set(&mut Edits::default(), "tttl", "1").expect_err("no such edit").to_string();
        assert!(error.contains("time_shift"), "{error}");
    }

    #[test]
    fn repeatable_options_accumulate() {
        let mut edits = Edits::default();
        for map in ["80:8080", "443:8443"] {
            set(&mut edits, "portmap", map).expect("a map");
        }
        assert_eq!(edits.portmap.map(|map| map.0.len()), Some(2));
    }

    #[test]
    fn a_tag_is_put_together_of_its_options() {
        let mut edits = Edits::default();
        for (name, text) in
            [("enet_vlan", "rewrite"), ("enet_vlan_tag", "7"), ("enet_vlan_proto", "802.1ad")]
        {
            set(&mut edits, name, text).expect("a tag");
        }
        let vlan =
            Vlan { mode: VlanMode::Rewrite, tag: Some(7), cfi: None, pri: None, service: true };
        assert_eq!(edits.vlan, Some(vlan));
    }
}
