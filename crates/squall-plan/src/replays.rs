//! Compiles the replays in a profile: captures, schedules and edits.

use std::sync::Arc;

use squall_profile::{At, ErrorCollector, Late, Located, Profile, SplitRule};
use squall_replay::{
    Cache, Numbers, Replay, Speed, Split, SplitBy, Timing, TooLong, split::By, stats::Settings,
};
use squall_units::{Cannot, Picos, RateUnit};

use crate::{Assets, ReplayHosts};

/// A replay of captures. One worker serves all of its ports.
#[derive(Clone, Debug)]
pub struct PlanReplay {
    pub name: String,
    /// Plan indices of the ports, in the order of the replay's port numbers.
    pub ports: Vec<usize>,
    /// The start of the replay's schedule. If the replay waits, it counts from the end of the part
    /// that precedes the replay.
    pub start: Picos,
    /// The replay begins when the engine reports that the part before it has ended.
    pub waits: bool,
    /// End (exclusive) of the replay's schedule; `None`: the end of the run.
    pub end: Option<Picos>,
    /// The factor on the speed of the replay's own schedule: numerator and denominator, both above
    /// 0.
    pub speed: (u64, u64),
    /// Some or all of the replay's frames are sent through ports of other nodes, which are not in
    /// `ports`.
    pub elsewhere: bool,
    /// The multiplier does not apply, because another schedule depends on the replay's times.
    pub fixed: bool,
    /// The policy for late frames.
    pub late: Late,
    /// The hosts that send and receive its frames.
    pub hosts: Option<ReplayHosts>,
    /// The packets, with their own schedule.
    pub replay: Replay,
}

impl PlanReplay {
    /// A replay that lasts from the start to the end of the run.
    pub fn new(name: &str, ports: Vec<usize>, replay: Replay) -> Self {
        Self {
            name: name.to_owned(),
            ports,
            start: Picos(0),
            waits: false,
            end: None,
            speed: (1, 1),
            elsewhere: false,
            fixed: false,
            late: Late::Smooth,
            hosts: None,
            replay,
        }
    }

    /// Whether the replay continues until the run ends.
    pub fn is_endless(&self) -> bool {
        let Replay { loops, limit, .. } = self.replay;
        loops == 0 && limit.is_none() && self.end.is_none()
    }

    /// Drops the ports of other nodes. Frames of the other ports keep their times.
    pub(crate) fn keep_ports(&mut self, here: impl Fn(usize) -> bool) {
        let kept: Vec<_> = (0u8..).zip(&self.ports).filter(|(_, port)| here(**port)).collect();
        self.elsewhere = kept.len() < self.ports.len();
        if let ([(side, _)], true) = (&kept[..], self.elsewhere) {
            self.replay.only = Some(*side);
        }
        self.ports = kept.into_iter().map(|(_, port)| *port).collect();
    }

    /// Whether any frame is sent through a port of this node.
    pub fn is_here(&self) -> bool {
        !self.ports.is_empty()
    }

    pub(crate) fn multiply(&mut self, num: u64, den: u64) -> Result<(), String> {
        let (num, den) = (u128::from(num), u128::from(den));
        let speed = (num * u128::from(self.speed.0), den * u128::from(self.speed.1));
        self.speed = squall_units::near(speed.0, speed.1)
            .ok_or("the multiplied speed is out of range: try a smaller --mult")?;
        Ok(())
    }
}

/// Compiles the replays in a profile without opening captures. Replays in `opened` continue, at the
/// speeds in the profile.
pub(crate) fn compile(
    profile: &Profile,
    opened: Option<&[squall_profile::Replay]>,
    assets: &dyn Assets,
    mistakes: &mut ErrorCollector<'_>,
) -> Vec<PlanReplay> {
    let of = |spec: &squall_profile::Replay| {
        let replay = replay(spec, assets, mistakes);
        let ports = std::iter::once(spec.port).chain(spec.port2).collect();
        let start = Picos::from(spec.start);
        let end = spec.duration.map(|time| Picos(start.0.saturating_add(Picos::from(time).0)));
        let waits = spec.after.is_some();
        let late = spec.late;
        PlanReplay { start, waits, end, late, ..PlanReplay::new(&spec.name, ports, replay) }
    };
    let mut replays: Vec<_> = profile.replays.iter().map(of).collect();
    let opened = opened.unwrap_or(&profile.replays);
    if opened.len() != replays.len() {
        let text = "replays cannot be added or removed during a run";
        mistakes.at(At::default(), text, "try a new run, or a pause");
    }
    for ((old, new), replay) in opened.iter().zip(&profile.replays).zip(&mut replays) {
        match faster(old, new) {
            Ok(speed) => replay.speed = speed,
            Err(error) => mistakes.report(&Located { text: String::new(), at: new.at }, &error),
        }
    }
    replays
}

fn replay(
    spec: &squall_profile::Replay,
    assets: &dyn Assets,
    mistakes: &mut ErrorCollector<'_>,
) -> Replay {
    let mut right = |at: &Located, made: Result<(), String>| {
        made.unwrap_or_else(|error| mistakes.report(at, &error));
    };
    let mut replay = Replay {
        inputs: spec.files.iter().map(|file| assets.capture(&file.text)).collect(),
        merge: spec.merge,
        longest_gap: spec.longest_gap.map(|gap| gap.0),
        loops: spec.loops,
        loop_delay: spec.loop_delay.into(),
        limit: spec.limit,
        preload: spec.preload,
        held: spec.held,
        too_long: match spec.too_long {
            squall_profile::TooLong::Skip => TooLong::Skip,
            squall_profile::TooLong::Truncate => TooLong::Truncate,
            squall_profile::TooLong::Fragment => TooLong::Fragment,
        },
        unique: spec.unique,
        flows: spec.flow_stats.then(|| flow_settings(spec)),
        ..Replay::default()
    };
    if spec.held {
        // A held replay sends each frame on request, so it has no schedule.
        replay.timing = Timing::Top;
    } else if let Some((_, at)) = &spec.speed {
        right(
            at,
            speed(spec)
                .and_then(|speed| speed.timing(spec.together))
                .map(|timing| replay.timing = timing),
        );
    }
    if let Some((SplitRule::File, at)) = &spec.split {
        replay.split = Some(SplitBy::Capture);
        if spec.reverse {
            let why = "each file has its own port\n  try exchanging the files instead of reverse";
            right(at, Err(why.into()));
        }
    } else if let Some((of, at)) = &spec.split {
        let split = split(of.word(), &at.text, spec.reverse, assets);
        right(at, split.map(|split| replay.split = Some(split)));
    } else if spec.reverse && spec.port2.is_some() {
        replay.split = split("auto", "first", true, assets).ok();
    }
    if let Some(at) = &spec.filter {
        let filter = assets.filter(&at.text).map(Arc::new);
        right(at, filter.map(|filter| replay.filter = Some(filter)));
    }
    for (at, to) in [(&spec.include, &mut replay.include), (&spec.exclude, &mut replay.exclude)] {
        if let Some(at) = at {
            let numbers = at.text.parse::<Numbers>();
            let numbers = numbers.map_err(|error| error.to_string());
            right(at, numbers.map(|numbers| *to = Some(numbers)));
        }
    }
    if let Some(most) = spec.max_flows.filter(|most| *most > MOST_FLOWS) {
        let at = Located { text: String::new(), at: spec.at };
        let text = format!(
            "max_flows = {most}: expected at most {MOST_FLOWS} (64 GB of memory)\n  try 1M"
        );
        right(&at, Err(text));
    }
    for (name, at) in &spec.edit {
        right(at, squall_edit::set(&mut replay.edits, name, &at.text));
    }
    replay
}

/// Maximum number of flows that can be counted separately. Each takes 128 octets of memory.
const MOST_FLOWS: u64 = 1 << 29;

fn flow_settings(spec: &squall_profile::Replay) -> Settings {
    let default = Settings::default();
    let most = spec.max_flows.map(|most| most.min(MOST_FLOWS) as u32);
    Settings {
        expiry_ns: spec.flow_expiry.map(|time| time.0),
        max_flows: most.unwrap_or(default.max_flows),
        ..default
    }
}

/// The speed of a replay; by default the captured one.
fn speed(spec: &squall_profile::Replay) -> Result<Speed, String> {
    let Some((of, text)) = &spec.speed else { return Ok(Speed::default()) };
    Speed::parse(of.word(), &text.text)
}

/// The ratio of the speeds of `new` and `old`.
///
/// # Errors
/// Anything else differs, or the ratio is unknown.
fn faster(
    old: &squall_profile::Replay,
    new: &squall_profile::Replay,
) -> Result<(u64, u64), String> {
    let fixed = |what: &str| {
        Err(format!("{what} of replay {:?} cannot change during a run\n  try a new run", old.name))
    };
    if !old.is_at_another_speed(new) {
        return fixed("more than the speed");
    }
    let by = |num: u64, den: u64, num2: u64, den2: u64| {
        squall_units::near(u128::from(num2) * u128::from(den), u128::from(den2) * u128::from(num))
    };
    // A rate of zero is invalid.
    speed(new)?.timing(new.together)?;
    let faster = match (speed(old)?, speed(new)?) {
        (old, new) if old == new => Some((1, 1)),
        (Speed::Captured(a), Speed::Captured(b)) | (Speed::Mbps(a), Speed::Mbps(b)) => {
            by(a.num, a.den, b.num, b.den)
        }
        (Speed::Rate(a), Speed::Rate(b)) if a.unit == b.unit && a.unit != RateUnit::Max => {
            by(a.num, a.den, b.num, b.den)
        }
        _ => return fixed("the kind of speed"),
    };
    faster
        .filter(|(num, den)| *num > 0 && *den > 0)
        .ok_or_else(|| "the speed is out of range".into())
}

/// The rule that splits packets between two ports. `kind` is `cache` (`text` names the file),
/// `auto`, `cidr`, `regex`, `mac` or `port` (the default services; `text` is ignored); `reverse`
/// swaps the ports.
fn split(kind: &str, text: &str, reverse: bool, assets: &dyn Assets) -> Result<SplitBy, String> {
    if kind == "cache" {
        if reverse {
            return Err(format!(
                "{text} decides the port of each packet\n  try exchanging the ports"
            ));
        }
        let octets = assets.file(text).map_err(|error| Cannot::read(text, &error).to_string())?;
        let cache = Cache::parse(&octets).map_err(|error| format!("{text}: {error}"))?;
        return Ok(SplitBy::Cache(Arc::new(cache)));
    }
    let by = By::parse(kind, text).map_err(|error| error.to_string())?;
    Ok(SplitBy::Rule(Box::new(Split { reverse, ..Split::new(by) })))
}
