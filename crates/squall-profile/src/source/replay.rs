//! Captures to replay, as text: the table, and the values of [`crate::Replay`] that are made from
//! it.

use squall_units::Nanos;

use super::{
    flows::{Lists, OneOrMore, TextTable, two_ports},
    read::{Bounded, Count, Placed, Reader, table, words},
};
use crate::{At, Late, Located, Port, SpeedUnit, SplitRule, TooLong};

table! {
    /// Captures that are sent again, next to the other sources of the profile.
    ReplayTable makes
    /// Captures that are sent again, one after the other.
    Replay {
        name: String = String::new(),
        /// `-` is the standard input.
        files: Vec<Located> = Vec::new(),
        /// Index into [`crate::Profile::ports`]: the port of the clients' packets; without `port2`,
        /// of the servers' as well.
        port: usize = 0,
        port2: Option<usize> = None,
        /// `None`: as captured.
        speed: Option<(SpeedUnit, Located)> = None,
        /// How packets of the two ports are distinguished.
        split: Option<(SplitRule, Located)> = None,
        /// New addresses every this many loops.
        unique: Option<u64> = None,
        /// Changes to packets, named as the options of `squall edit`; a name can occur more than
        /// once.
        edit: Vec<(String, Located)> = Vec::new(),
        at: At = At::default(),
    } from {
        /// Unique; reports use it, and so do pause and resume. Default "replay 1" and so on.
        name: String,
        /// pcap or pcapng, compressed or not, one after the other; "-" is standard input. A file,
        /// or a list, relative to the profile.
        files: OneOrMore,
        /// true: all files together, in the order of their timestamps. Default false.
        merge: bool => bool,
        /// A name from [ports], for the clients' packets, and for the servers' if there is no
        /// `port2`. May be left out if there is only one port.
        port: String,
        /// A name from [ports], for the servers' packets.
        port2: String,
        /// This many times as fast as captured: 2, 0.5. Default 1. One of `multiplier`, `rate`,
        /// `mbps`, `ramp`.
        multiplier: Located,
        /// "10 kpps", "1.5 Gbps" (with FCS), "2 Gbps l1", or "max".
        rate: Located,
        /// Mb/s of frames without FCS, as tcpreplay counts.
        mbps: Located,
        /// Linearly from one rate to another, which then stays: "1kpps..100kpps:30s".
        ramp: Located,
        /// With a rate: the number of frames that leave at once, followed by the sum of their gaps.
        /// Default 1.
        together: Bounded<1, { u32::MAX as u64 }> => u32 = 1,
        /// The longest captured gap; longer ones are shortened to it.
        longest_gap: Nanos => Option<Nanos>,
        /// When the first frame is due, after the start of the run, or after the end of the source
        /// that it comes `after`. Default 0.
        start: Nanos => Nanos,
        /// Begins when the stream, replay, template or attack of this name has ended.
        after: Located => Option<Located>,
        /// Ends this long after its start, pauses included.
        duration: Nanos => Option<Nanos>,
        /// How many times; 0: until the run ends. Default 1.
        loops: Count => u64 = 1,
        /// The time between two loops. Default 0.
        loop_delay: Nanos => Nanos,
        /// Ends after this number of frames.
        limit: Count => Option<u64>,
        /// true: reads everything before the first frame leaves, once for all loops. Default false.
        preload: bool => bool,
        /// true: frames leave only when asked for, a number at a time (`step`). Default false.
        held: bool => bool,
        /// The policy for late frames. Default "smooth".
        late: Late => Late,
        /// How to choose the port of a packet, one of: { auto = "first" } (or bridge, router,
        /// client, server), { cidr = "10.0.0.0/8" }, { regex = "^10[.]" }, { mac =
        /// "02:00:00:00:00:01" }, { cache = "FILE" } (of squall prep or tcpprep), { port = true }
        /// (by the TCP and UDP ports of services), { file = true } (two files, each on its own
        /// port). Default { auto = "first" }.
        split: TextTable,
        /// true: exchanges the two ports. Default false.
        reverse: bool => bool,
        /// Changes the addresses every N loops, so that each time has its own flows; 1: in each
        /// loop. Default: always the same addresses.
        unique_ip: Count,
        /// false: does not count flows. Default true.
        flow_stats: bool => bool = true,
        /// A flow ends when it was idle for this time, as captured; its next packet begins another.
        flow_expiry: Nanos => Option<Nanos>,
        /// The highest number of flows that are counted separately. Default 1M.
        max_flows: Count => Option<u64>,
        /// Sends only packets that match this tcpdump filter: "tcp port 80".
        filter: Located => Option<Located>,
        /// Sends only these packets, by their numbers over all files: "1-5,9,20-".
        include: Located => Option<Located>,
        /// Leaves these packets out.
        exclude: Located => Option<Located>,
        /// The action for frames that are longer than the port takes: "skip" (and count),
        /// "truncate" or "fragment". Default "skip".
        too_long: TooLong => TooLong,
        /// Changes to packets, named as the options of `squall edit`: { enet_dmac =
        /// "02:00:00:00:00:02", pnat = "10.0.0.0/8:172.16.0.0/12" }.
        edit: Lists<false>,
        /// false: the replay is ignored. Default true.
        enabled: bool,
    }
}

words!(
    SpeedUnit,
    "a speed":
    "multiplier" => Captured,
    "rate" => Rate,
    "mbps" => Mbps,
    "ramp" => Ramp,
);
words!(
    SplitRule,
    "a way to split packets":
    "auto" => Auto,
    "cache" => Cache,
    "cidr" => Cidr,
    "regex" => Regex,
    "mac" => Mac,
    "port" => Port,
    "file" => File,
);
words!(
    TooLong,
    "a known action for frames that are too long":
    "skip" => Skip,
    "truncate" => Truncate,
    "fragment" => Fragment,
);

pub(super) fn replays(
    tables: Option<Placed<Vec<ReplayTable>>>,
    ports: &[Port],
    cx: &mut Reader<'_>,
) -> Vec<Replay> {
    let tables = tables.map_or_else(Vec::new, |tables| tables.value);
    let mut replays: Vec<Replay> = Vec::new();
    for (number, table) in tables.into_iter().enumerate() {
        if table.enabled.as_ref().is_some_and(|enabled| !enabled.value) {
            continue;
        }
        let name_place =
            table.name.as_ref().map_or_else(|| table.place.clone(), |name| name.place.clone());
        let Some(replay) = replay(number, table, ports, cx) else { continue };
        if replays.iter().any(|before| before.name == replay.name) {
            let what = format!("= {:?} is already the name of another replay", replay.name);
            cx.report(&name_place, &what, &[]);
        }
        replays.push(replay);
    }
    replays
}

fn replay(
    number: usize,
    mut table: ReplayTable,
    ports: &[Port],
    cx: &mut Reader<'_>,
) -> Option<Replay> {
    let at = cx.at(table.place.start);
    let file = |Located { text, at }: Located, cx: &Reader<'_>| {
        let text = if text == "-" { text } else { cx.resolve(&text) };
        Located { text, at }
    };
    let files: Vec<_> = match table.files.take() {
        Some(files) => files.value.0.into_iter().map(|given| file(given, cx)).collect(),
        None => Vec::new(),
    };
    if files.is_empty() && !table.given.has("files") {
        cx.report(&table.place, "has no files", &[r#"try files = "capture.pcap""#.into()]);
    }
    let (first, port2) =
        two_ports(&table.port, &table.port2, (&table.given, &table.place), ports, cx);
    let speeds = [
        (SpeedUnit::Captured, table.multiplier.take()),
        (SpeedUnit::Rate, table.rate.take()),
        (SpeedUnit::Mbps, table.mbps.take()),
        (SpeedUnit::Ramp, table.ramp.take()),
    ];
    let mut speeds = speeds.into_iter().filter_map(|(of, given)| Some((of, given?)));
    let speed = speeds.next();
    if let (Some((of, _)), Some((_, given))) = (&speed, speeds.next()) {
        let what = format!("cannot be combined with {}: expected one of them", of.word());
        cx.report(&given.place, &what, &[]);
    }
    let split = match table.split.take() {
        None => None,
        Some(Placed { value: TextTable(entries), place }) => match <[_; 1]>::try_from(entries) {
            Ok([(key, given)]) => {
                let of = SplitRule::WORDS.iter().find(|(name, _)| *name == key).map(|(_, of)| *of);
                let names: Vec<&str> = SplitRule::WORDS.iter().map(|(name, _)| *name).collect();
                let expected = format!("expected one of {}", names.join(", "));
                let what = format!("has {key:?}, which is not a way to split packets");
                let of = cx.must(&place, of, &what, &expected);
                if matches!(of, Some(SplitRule::Port | SplitRule::File)) && given.text == "false" {
                    cx.report(
                        &place,
                        "is false",
                        &["try leaving it out, or another way to split".into()],
                    );
                }
                of.map(|of| (of, if of == SplitRule::Cache { file(given, cx) } else { given }))
            }
            Err(_) => {
                cx.report(
                    &place,
                    "does not have exactly one entry",
                    &["try { auto = \"first\" }".into()],
                );
                None
            }
        },
    };
    if let (true, None) = (table.given.has("split"), port2)
        && !table.given.has("port2")
    {
        cx.report(&table.place, "has a split, but no port2", &["try port2 = \"B\"".into()]);
    }
    let name =
        table.name.take().map_or_else(|| format!("replay {}", number + 1), |name| name.value);
    let unique = table.unique_ip.take().map(|loops| loops.value.0).filter(|loops| *loops > 0);
    Some(Replay {
        name,
        files,
        port: first?,
        port2,
        speed: speed.map(|(of, given)| (of, given.value)),
        split,
        unique,
        edit: table.edit.take().map_or_else(Vec::new, |edit| edit.value.0),
        at,
        ..table.made()
    })
}
