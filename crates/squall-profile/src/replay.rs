//! Captures as values: which files, by which ports, how fast. Speeds, filters and edits stay text
//! here, with their places: whoever compiles them knows what they mean.

use serde_json::{Map, Value as Json, json};
use squall_units::Nanos;

use crate::{
    At, Late, Said,
    emit::{count, duration, texts},
};

/// Captures that are sent again, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    pub name: String,
    /// `-` is the standard input.
    pub files: Vec<Said>,
    /// All are sent together, in the order of their time stamps.
    pub merge: bool,
    /// Index into [`crate::Profile::ports`]: what clients send leaves here; if there is no other,
    /// what servers send as well.
    pub port: usize,
    pub port2: Option<usize>,
    /// As captured, if nothing is said.
    pub speed: Option<(SpeedOf, Said)>,
    /// So many frames leave at once.
    pub together: u32,
    /// Captured gaps are no longer than this.
    pub longest_gap: Option<Nanos>,
    /// When the first frame is due, or may leave.
    pub start: Nanos,
    /// What has to end before: the start is counted from that.
    pub after: Option<Said>,
    /// Nothing is sent so long after the start.
    pub duration: Option<Nanos>,
    /// 0: without end.
    pub loops: u64,
    pub loop_delay: Nanos,
    /// Frames in all.
    pub limit: Option<u64>,
    /// All is read before the first frame leaves.
    pub preload: bool,
    /// No frame leaves before it is told to.
    pub held: bool,
    pub late: Late,
    /// What tells the packets of two ports apart.
    pub split: Option<(SplitOf, Said)>,
    /// The two ports are exchanged.
    pub reverse: bool,
    /// Other addresses with every so-many-th loop.
    pub unique: Option<u64>,
    /// Flows are counted; idle ones end after so long, as captured; at most so many.
    pub flow_stats: bool,
    pub flow_expiry: Option<Nanos>,
    pub max_flows: Option<u64>,
    /// Which packets: in the language of tcpdump, and by their numbers.
    pub filter: Option<Said>,
    pub include: Option<Said>,
    pub exclude: Option<Said>,
    pub too_long: TooLong,
    /// What is changed in packets, called as the options of `squall edit`; some may be said more
    /// than once.
    pub edit: Vec<(String, Said)>,
    pub at: At,
}

impl Default for Replay {
    fn default() -> Self {
        Self {
            name: String::new(),
            files: Vec::new(),
            merge: false,
            port: 0,
            port2: None,
            speed: None,
            together: 1,
            longest_gap: None,
            start: Nanos::ZERO,
            after: None,
            duration: None,
            loops: 1,
            loop_delay: Nanos::ZERO,
            limit: None,
            preload: false,
            held: false,
            late: Late::Smooth,
            split: None,
            reverse: false,
            unique: None,
            flow_stats: true,
            flow_expiry: None,
            max_flows: None,
            filter: None,
            include: None,
            exclude: None,
            too_long: TooLong::default(),
            edit: Vec::new(),
            at: At::default(),
        }
    }
}

/// In which words a speed is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeedOf {
    /// So many times as fast as captured.
    Captured,
    /// A rate, or `max`.
    Rate,
    /// Mb/s of frames without FCS.
    Mbps,
    /// From one rate to another.
    Ramp,
}

impl SpeedOf {
    pub(crate) const ALL: [(&str, Self); 4] = [
        ("multiplier", Self::Captured),
        ("rate", Self::Rate),
        ("mbps", Self::Mbps),
        ("ramp", Self::Ramp),
    ];

    /// As its key.
    pub fn key(self) -> &'static str {
        name_of(&Self::ALL, self)
    }
}

/// By what two ports' packets are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitOf {
    /// What hosts do in the capture.
    Auto,
    /// A file of `squall prep` or tcpprep.
    Cache,
    Cidr,
    Regex,
    Mac,
    /// Ports of services.
    Port,
    /// Of two captures that are merged, each leaves by a port of its own.
    File,
}

impl SplitOf {
    pub(crate) const ALL: [(&str, Self); 7] = [
        ("auto", Self::Auto),
        ("cache", Self::Cache),
        ("cidr", Self::Cidr),
        ("regex", Self::Regex),
        ("mac", Self::Mac),
        ("port", Self::Port),
        ("file", Self::File),
    ];

    /// As its key.
    pub fn key(self) -> &'static str {
        name_of(&Self::ALL, self)
    }
}

/// What is done with a frame that is longer than its port takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TooLong {
    /// It does not leave, and is counted.
    #[default]
    Skip,
    /// Its end is cut off.
    Truncate,
    /// An IP packet leaves as fragments.
    Fragment,
}

impl TooLong {
    pub(crate) const ALL: [(&str, Self); 3] =
        [("skip", Self::Skip), ("truncate", Self::Truncate), ("fragment", Self::Fragment)];
}

fn name_of<T: Copy + PartialEq>(names: &[(&'static str, T)], of: T) -> &'static str {
    names.iter().find(|(_, one)| *one == of).expect("each has a name").0
}

impl Replay {
    /// Whether it comes to an end by itself.
    pub fn ends(&self) -> bool {
        !self.held && (self.loops > 0 || self.limit.is_some() || self.duration.is_some())
    }

    /// Whether nothing but the speed differs, and the places in the profile.
    pub fn is_at_another_speed(&self, other: &Self) -> bool {
        let rest = |replay: &Self| {
            let value = Self { speed: None, ..replay.clone() }.to_value(|_| None);
            (replay.port, replay.port2, value)
        };
        rest(self) == rest(other)
    }

    /// As the schema describes it; `port` names ports.
    pub(crate) fn to_value<'a>(&self, port: impl Fn(usize) -> Option<&'a str>) -> Json {
        let mut entries = Map::new();
        let mut set = |key: &str, value: Option<Json>| {
            entries.extend(value.map(|value| (key.to_owned(), value)))
        };
        let text = |said: &Option<Said>| said.as_ref().map(|said| json!(said.text));
        let time = |time: Nanos| (time != Nanos::ZERO).then(|| duration(time));
        let flag = |flag: bool| flag.then_some(json!(true));
        set("name", Some(json!(self.name)));
        set("files", texts(&self.files));
        set("merge", flag(self.merge));
        set("port", port(self.port).map(|name| json!(name)));
        set("port2", self.port2.and_then(port).map(|name| json!(name)));
        if let Some((of, said)) = &self.speed {
            set(of.key(), Some(json!(said.text)));
        }
        set("together", (self.together != 1).then(|| json!(self.together)));
        set("longest_gap", self.longest_gap.map(duration));
        set("start", time(self.start));
        set("after", text(&self.after));
        set("duration", self.duration.map(duration));
        set("loops", (self.loops != 1).then(|| count(self.loops)));
        set("loop_delay", time(self.loop_delay));
        set("limit", self.limit.map(count));
        set("preload", flag(self.preload));
        set("held", flag(self.held));
        set("late", (self.late != Late::default()).then(|| json!(self.late.to_string())));
        let split = self.split.as_ref().map(|(of, said)| json!({ of.key(): said.text }));
        set("split", split);
        set("reverse", flag(self.reverse));
        set("unique_ip", self.unique.map(count));
        set("flow_stats", (!self.flow_stats).then_some(json!(false)));
        set("flow_expiry", self.flow_expiry.map(duration));
        set("max_flows", self.max_flows.map(count));
        set("filter", text(&self.filter));
        set("include", text(&self.include));
        set("exclude", text(&self.exclude));
        let too_long = (self.too_long != TooLong::default())
            .then(|| json!(name_of(&TooLong::ALL, self.too_long)));
        set("too_long", too_long);
        let mut edit = Map::new();
        for (name, said) in &self.edit {
            match edit.get_mut(name) {
                None => _ = edit.insert(name.clone(), json!(said.text)),
                Some(Json::Array(texts)) => texts.push(json!(said.text)),
                Some(one) => *one = json!([one.take(), said.text]),
            }
        }
        set("edit", (!edit.is_empty()).then_some(Json::Object(edit)));
        Json::Object(entries)
    }
}
