//! Compiles TCP settings from the text of a profile.

use squall_profile::{ErrorCollector, Located, Tcp};
use squall_tcp::{Congestion, OptionOrder, Tunables};
use squall_units::{Nanos, parse_octets};

/// Settings that `tcp` does not have are those of `default`.
pub fn tunables(tcp: &Tcp, default: Tunables, mistakes: &mut ErrorCollector<'_>) -> Tunables {
    let mut all = default;
    for (name, located) in &tcp.settings {
        set(&mut all, name, located, mistakes);
    }
    follow(&mut all, tcp);
    if let Err(error) = all.check() {
        let nowhere = Located::default();
        let located = tcp
            .settings
            .iter()
            .find(|(name, _)| *name == error.name)
            .map_or(&nowhere, |(_, located)| located);
        mistakes.note(
            located,
            &format!("tcp.{} = {}", error.name, error.value),
            &format!("expected {}", error.expected),
        );
    }
    all
}

/// The settings of one side: the shared ones, overridden by the side's own.
pub fn of_side(both: &Tcp, own: &Tcp, mistakes: &mut ErrorCollector<'_>) -> Tunables {
    let others = both.settings.iter().filter(|(name, _)| !own.has(name));
    let settings = others.chain(&own.settings).cloned().collect();
    tunables(&Tcp { settings }, Tunables::default(), mistakes)
}

/// Adapts settings that the profile does not have: a smaller window holds fewer segments out of
/// order, a larger one needs a larger window scale.
fn follow(all: &mut Tunables, tcp: &Tcp) {
    const MOST: u32 = u16::MAX as u32;
    let located = |name: &str| tcp.has(name);
    if !located("wscale")
        && let Some(scale) = all.wscale
    {
        let needed = (scale..=14).find(|scale| all.window <= MOST << scale);
        all.wscale = Some(needed.unwrap_or(scale));
    }
    if !located("window") {
        all.window = all.window.min(MOST << all.wscale.unwrap_or(0).min(14));
    }
    if !located("reassembly") {
        all.reassembly = all.reassembly.min(all.window);
    }
    // Adapt limits first, then the values between them.
    if !located("rto_max") {
        all.rto_max = all.rto_max.max(all.rto_min);
    }
    if !located("rto_min") {
        all.rto_min = all.rto_min.min(all.rto_max);
    }
    if !located("rto_initial") && all.rto_min <= all.rto_max {
        all.rto_initial = all.rto_initial.clamp(all.rto_min, all.rto_max);
    }
}

pub const NAMES: [&str; 31] = [
    "mss",
    "peer_mss",
    "initwnd",
    "abc_limit",
    "send_buffer",
    "window",
    "wscale",
    "reassembly",
    "sack",
    "timestamps",
    "option_order",
    "no_delay",
    "delayed_ack",
    "ack_octets",
    "ack_push",
    "push_all",
    "rto_initial",
    "rto_min",
    "rto_max",
    "syn_retries",
    "retries",
    "keepidle",
    "keepintvl",
    "keepcnt",
    "time_wait",
    "fin_wait",
    "congestion",
    "ecn",
    "tos",
    "ttl",
    "udp_idle",
];

fn set(all: &mut Tunables, name: &str, located: &Located, mistakes: &mut ErrorCollector<'_>) {
    match name {
        "mss" => mistakes.number(located, &mut all.mss),
        "initwnd" => mistakes.number(located, &mut all.initwnd),
        "peer_mss" => mistakes.truth(located, &mut all.peer_mss),
        "abc_limit" => mistakes.number(located, &mut all.abc_limit),
        "send_buffer" => octets(located, &mut all.send_buffer, mistakes),
        "window" => octets(located, &mut all.window, mistakes),
        "wscale" if located.text == "false" => all.wscale = None,
        "wscale" => {
            all.wscale = mistakes.parsed(located, "a window scale", "7, or false").or(all.wscale)
        }
        "reassembly" => octets(located, &mut all.reassembly, mistakes),
        "sack" => mistakes.truth(located, &mut all.sack),
        "timestamps" => mistakes.truth(located, &mut all.timestamps),
        "option_order" => {
            let known = [("linux", OptionOrder::Linux), ("bsd", OptionOrder::Bsd)];
            either(name, located, &known, &mut all.option_order, mistakes);
        }
        "no_delay" => mistakes.truth(located, &mut all.no_delay),
        "delayed_ack" => time(located, &mut all.delayed_ack, mistakes),
        "ack_octets" => octets(located, &mut all.ack_octets, mistakes),
        "ack_push" => mistakes.truth(located, &mut all.ack_push),
        "push_all" => mistakes.truth(located, &mut all.push_all),
        "rto_initial" => time(located, &mut all.rto_initial, mistakes),
        "rto_min" => time(located, &mut all.rto_min, mistakes),
        "rto_max" => time(located, &mut all.rto_max, mistakes),
        "syn_retries" => mistakes.number(located, &mut all.syn_retries),
        "retries" => mistakes.number(located, &mut all.retries),
        "keepidle" => time(located, &mut all.keepidle, mistakes),
        "keepintvl" => time(located, &mut all.keepintvl, mistakes),
        "keepcnt" => mistakes.number(located, &mut all.keepcnt),
        "time_wait" => time(located, &mut all.time_wait, mistakes),
        "fin_wait" => time(located, &mut all.fin_wait, mistakes),
        "congestion" => {
            let known = [
                ("cubic", Congestion::Cubic),
                ("newreno", Congestion::NewReno),
                // Linux's name of it.
                ("reno", Congestion::NewReno),
                ("bbr", Congestion::Bbr),
            ];
            either(name, located, &known, &mut all.congestion, mistakes);
        }
        "ecn" => mistakes.truth(located, &mut all.ecn),
        "tos" => mistakes.number(located, &mut all.tos),
        "ttl" => mistakes.number(located, &mut all.ttl),
        "udp_idle" => time(located, &mut all.udp_idle, mistakes),
        _ => {
            let hint = squall_units::suggest(name, NAMES.iter().copied());
            mistakes.note(located, &format!("tcp.{name} is not a known setting"), &hint);
        }
    }
}

fn either<T: Copy>(
    name: &str,
    located: &Located,
    known: &[(&str, T)],
    to: &mut T,
    mistakes: &mut ErrorCollector<'_>,
) {
    match known.iter().find(|(word, _)| *word == located.text) {
        Some((_, value)) => *to = *value,
        None => {
            let words: Vec<_> = known.iter().map(|(word, _)| format!("{word:?}")).collect();
            mistakes.note(
                located,
                &format!("tcp.{name} = {:?}", located.text),
                &format!("expected {}", words.join(" or ")),
            );
        }
    }
}

fn octets(located: &Located, to: &mut u32, mistakes: &mut ErrorCollector<'_>) {
    match parse_octets(&located.text).ok().and_then(|n| u32::try_from(n).ok()) {
        Some(n) => *to = n,
        None => mistakes.note(
            located,
            &format!("{:?} is not a number of octets", located.text),
            "try \"256 KiB\"",
        ),
    }
}

fn time(located: &Located, to: &mut Nanos, mistakes: &mut ErrorCollector<'_>) {
    if let Some(time) = mistakes.parsed(located, "a time", "\"200 ms\"") {
        *to = time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(settings: &[(&str, &str)]) -> Result<Tunables, String> {
        let profile = squall_profile::Profile::default();
        let mut mistakes = ErrorCollector::of(&profile);
        let settings =
            settings.iter().map(|(name, value)| ((*name).to_owned(), Located::from(*value)));
        let all =
            tunables(&Tcp { settings: settings.collect() }, Tunables::default(), &mut mistakes);
        mistakes.check().map(|()| all).map_err(|error| error.to_string())
    }

    #[test]
    fn omitted_settings_follow_given_ones() {
        let small = of(&[("window", "4 KiB")]).unwrap();
        assert_eq!((small.window, small.reassembly, small.wscale), (4096, 4096, Some(7)));
        let large = of(&[("window", "64 MiB")]).unwrap();
        assert_eq!((large.window, large.wscale), (64 << 20, Some(11)));
        let unscaled = of(&[("wscale", "false")]).unwrap();
        assert_eq!((unscaled.window, unscaled.reassembly), (65_535, 65_535));
        let quick = of(&[("rto_max", "100 ms")]).unwrap();
        assert_eq!([quick.rto_min, quick.rto_initial, quick.rto_max], [Nanos(100_000_000); 3]);
        assert_eq!(of(&[("rto_min", "2 s")]).unwrap().rto_initial, Nanos(2_000_000_000));
    }

    #[test]
    fn each_congestion_control_has_its_name() {
        let control = |name| of(&[("congestion", name)]).map(|all| all.congestion);
        assert_eq!(control("bbr"), Ok(Congestion::Bbr));
        assert_eq!(control("cubic"), Ok(Congestion::Cubic));
        assert_eq!([control("reno"), control("newreno")], [const { Ok(Congestion::NewReno) }; 2]);
        let error = control("vegas").unwrap_err();
        assert!(error.contains(r#"expected "cubic" or "newreno" or "reno" or "bbr""#), "{error}");
    }

    #[test]
    fn settings_of_both_sides_must_fit() {
        for wrong in [
            &[("window", "4 KiB"), ("reassembly", "8 KiB")][..],
            &[("window", "64 MiB"), ("wscale", "7")],
            &[("window", "2 GiB")],
            &[("rto_min", "2 s"), ("rto_max", "1 s")],
            &[("rto_initial", "100 ms")],
        ] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }
}
