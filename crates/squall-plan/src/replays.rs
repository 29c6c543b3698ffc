//! Replays of a profile, compiled: captures that are sent again, at which instants, with which edits.

use std::sync::Arc;

use squall_profile::{At, Late, Mistakes, Profile, Said, SplitOf};
use squall_replay::{
    Cache, Numbers, Replay, Speed, Split, SplitBy, Timing, TooLong, split::By, stats::Settings,
};
use squall_units::{Cannot, Picos, RateUnit};

use crate::Assets;

/// Captures that are replayed; one worker serves all ports of theirs.
#[derive(Clone, Debug)]
pub struct PlanReplay {
    pub name: String,
    /// In the order in which the replay numbers them.
    pub ports: Vec<usize>,
    /// When its own schedule begins; of one that waits, after what it waits for has ended.
    pub start: Picos,
    /// Begins when it is told that what it comes after has ended.
    pub waits: bool,
    /// From then on nothing of it is due; `None`: as long as the run.
    pub end: Option<Picos>,
    /// So many times as fast as its own schedule: numerator and denominator, both above 0.
    pub speed: (u64, u64),
    /// Some of its frames, or all, leave by ports of other nodes, which are not among `ports`.
    pub elsewhere: bool,
    /// No multiplier changes that: its instants are promised elsewhere.
    pub fixed: bool,
    /// What to do with late frames.
    pub late: Late,
    /// What is read, and its own schedule.
    pub replay: Replay,
}

impl PlanReplay {
    /// `replay` from the start to the end of the run.
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
            replay,
        }
    }

    /// Whether it goes on until the run ends.
    pub fn is_endless(&self) -> bool {
        let Replay { loops, limit, .. } = self.replay;
        loops == 0 && limit.is_none() && self.end.is_none()
    }

    /// What is left of it where some of its ports are other nodes': the frames that leave by the
    /// others, at the same instants.
    pub(crate) fn keep_ports(&mut self, here: impl Fn(usize) -> bool) {
        let kept: Vec<_> = (0u8..).zip(&self.ports).filter(|(_, port)| here(**port)).collect();
        self.elsewhere = kept.len() < self.ports.len();
        if let ([(side, _)], true) = (&kept[..], self.elsewhere) {
            self.replay.only = Some(*side);
        }
        self.ports = kept.into_iter().map(|(_, port)| *port).collect();
    }

    /// Whether any of it leaves by a port of this node.
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

/// The replays of a profile; no capture is opened. Those that a run was `opened` with go on, at the
/// speeds that the profile asks for.
pub(crate) fn compile(
    profile: &Profile,
    opened: Option<&[squall_profile::Replay]>,
    assets: &dyn Assets,
    mistakes: &mut Mistakes<'_>,
) -> Vec<PlanReplay> {
    let of = |said: &squall_profile::Replay| {
        let replay = replay(said, assets, mistakes);
        let ports = std::iter::once(said.port).chain(said.port2).collect();
        let start = Picos::from(said.start);
        let end = said.duration.map(|time| Picos(start.0.saturating_add(Picos::from(time).0)));
        let waits = said.after.is_some();
        let late = said.late;
        PlanReplay { start, waits, end, late, ..PlanReplay::new(&said.name, ports, replay) }
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
            Err(error) => mistakes.told(&Said { text: String::new(), at: new.at }, &error),
        }
    }
    replays
}

fn replay(
    said: &squall_profile::Replay,
    assets: &dyn Assets,
    mistakes: &mut Mistakes<'_>,
) -> Replay {
    let mut right = |at: &Said, made: Result<(), String>| {
        made.unwrap_or_else(|error| mistakes.told(at, &error));
    };
    let mut replay = Replay {
        inputs: said.files.iter().map(|file| assets.capture(&file.text)).collect(),
        merge: said.merge,
        longest_gap: said.longest_gap.map(|gap| gap.0),
        loops: said.loops,
        loop_delay: said.loop_delay.into(),
        limit: said.limit,
        preload: said.preload,
        held: said.held,
        too_long: match said.too_long {
            squall_profile::TooLong::Skip => TooLong::Skip,
            squall_profile::TooLong::Truncate => TooLong::Truncate,
            squall_profile::TooLong::Fragment => TooLong::Fragment,
        },
        unique: said.unique,
        flows: said.flow_stats.then(|| flow_settings(said)),
        ..Replay::default()
    };
    if said.held {
        // Instants are for nobody where each frame is told when to leave.
        replay.timing = Timing::Top;
    } else if let Some((_, at)) = &said.speed {
        right(
            at,
            speed(said)
                .and_then(|speed| speed.timing(said.together))
                .map(|timing| replay.timing = timing),
        );
    }
    if let Some((SplitOf::File, at)) = &said.split {
        replay.split = Some(SplitBy::Capture);
        if said.reverse {
            let why = "each file has its own port\n  try exchanging the files instead of reverse";
            right(at, Err(why.into()));
        }
    } else if let Some((of, at)) = &said.split {
        let split = split(of.word(), &at.text, said.reverse, assets);
        right(at, split.map(|split| replay.split = Some(split)));
    } else if said.reverse && said.port2.is_some() {
        replay.split = split("auto", "first", true, assets).ok();
    }
    if let Some(at) = &said.filter {
        let filter = assets.filter(&at.text).map(Arc::new);
        right(at, filter.map(|filter| replay.filter = Some(filter)));
    }
    for (at, to) in [(&said.include, &mut replay.include), (&said.exclude, &mut replay.exclude)] {
        if let Some(at) = at {
            let numbers = at.text.parse::<Numbers>();
            let numbers = numbers.map_err(|error| error.to_string());
            right(at, numbers.map(|numbers| *to = Some(numbers)));
        }
    }
    if let Some(most) = said.max_flows.filter(|most| *most > MOST_FLOWS) {
        let at = Said { text: String::new(), at: said.at };
        let text = format!(
            "max_flows = {most}: expected at most {MOST_FLOWS} (64 GB of memory)\n  try 1M"
        );
        right(&at, Err(text));
    }
    for (name, at) in &said.edit {
        right(at, squall_edit::set(&mut replay.edits, name, &at.text));
    }
    replay
}

/// Flows that are told apart, of 128 octets each.
const MOST_FLOWS: u64 = 1 << 29;

fn flow_settings(said: &squall_profile::Replay) -> Settings {
    let default = Settings::default();
    let most = said.max_flows.map(|most| most.min(MOST_FLOWS) as u32);
    Settings {
        expiry_ns: said.flow_expiry.map(|time| time.0),
        max_flows: most.unwrap_or(default.max_flows),
        ..default
    }
}

/// As captured, if nothing is said.
fn speed(said: &squall_profile::Replay) -> Result<Speed, String> {
    let Some((of, text)) = &said.speed else { return Ok(Speed::default()) };
    Speed::parse(of.word(), &text.text)
}

/// How much faster `new` is than `old`, which differ in nothing else.
///
/// # Errors
/// They do, or it is not known.
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
    // A rate of nothing is none.
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

/// What tells two ports' packets apart: `kind` is `cache` (`text` names its file), `auto`, `cidr`,
/// `regex`, `mac` or `port` (of services, without a text); `reverse` exchanges the ports.
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
