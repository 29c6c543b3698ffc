//! Runs: start, change, watch and look up.

use std::{path::PathBuf, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use squall::{
    Amount, Caller, Format, Multiplier, Profile, RunOptions, Session,
    report::{NodeClock, Report, Sample, VerdictStatus, fail_if::FailIf},
};
use squall_options::{CaptureOptions, ReceivedFlows, Time};
use squall_units::{Nanos, Rate};

use super::{
    Asked, Body, Named, Operation, Optional, Routes,
    ports::{owner, ttl},
};
use crate::{
    Refusal, budget,
    cluster::{ClusterSpec, OnLoss},
    history::{Asked as Wants, unreadable},
    inventory::Inventory,
    job::{Action, OnPorts},
    leases::Keep,
    runs::{Kind, Live, RunRow, Wanted, over},
    service::Service,
    threads::{acting, blocking},
};

pub fn routes() -> Routes {
    let doc = |summary| Operation::new("runs", summary);
    let mut routes = Routes::new()
        .get(
            "/squall/v1/runs",
            list,
            doc("List runs, newest first, live ones and history")
                .query::<Query>()
                .gives::<RunList>(),
        )
        .post(
            "/squall/v1/runs",
            start,
            doc("Start a run").takes::<NewRun>().gives::<Started>().status(201),
        )
        .get(
            "/squall/v1/runs/{id}",
            one,
            doc("Get a run, and renew the lease that it made itself").gives::<RunRow>(),
        )
        .on(
            Method::PATCH,
            "/squall/v1/runs/{id}",
            patch,
            doc("Rename a run, or set its note").takes::<Patch>().gives::<RunRow>(),
        )
        .on(
            Method::DELETE,
            "/squall/v1/runs/{id}",
            delete,
            doc("Delete a run from the history").status(204),
        )
        .get(
            "/squall/v1/runs/{id}/stats",
            stats,
            doc("Get the latest sample and report of a run").gives::<Stats>(),
        )
        .get(
            "/squall/v1/runs/{id}/report",
            report,
            doc("Get the report, final or so far; of a standard test, its outcome")
                .gives::<Report>(),
        )
        .get(
            "/squall/v1/runs/{id}/report.html",
            html,
            doc("Get the report as an HTML page").gives_octets("text/html"),
        )
        .get(
            "/squall/v1/runs/{id}/profile",
            profile,
            doc("Get the profile as it was started")
                .query::<ProfileQuery>()
                .gives_octets("text/plain"),
        )
        .post(
            "/squall/v1/runs/{id}/stop",
            stop,
            doc("Stop a run: nothing more is sent").gives::<RunRow>(),
        )
        .post(
            "/squall/v1/runs/{id}/go",
            go,
            doc("Begin a run that is held, at an instant of the cluster's clock")
                .takes::<Go>()
                .gives::<RunRow>(),
        )
        .on(
            Method::PUT,
            "/squall/v1/runs/{id}/clock",
            clock,
            doc("Renew the cluster's clock of a run").takes::<NodeClock>().gives::<RunRow>(),
        )
        .post(
            "/squall/v1/runs/{id}/pause",
            pause,
            doc("Pause a stream, a group, a template, a replay, or all")
                .may_take::<Which>()
                .gives::<RunRow>(),
        )
        .post(
            "/squall/v1/runs/{id}/resume",
            resume,
            doc("Resume a stream, a group, a template, a replay, or all")
                .may_take::<Which>()
                .gives::<RunRow>(),
        )
        .post(
            "/squall/v1/runs/{id}/trigger",
            trigger,
            doc("Trigger a capture that waits").gives::<RunRow>(),
        )
        .post(
            "/squall/v1/runs/{id}/step",
            step,
            doc("Send frames of a held replay").takes::<Step>().gives::<RunRow>(),
        )
        .post(
            "/squall/v1/runs/{id}/routers",
            order,
            doc("Withdraw routes of a router, end its sessions, or restart it")
                .takes::<RouterOrder>()
                .gives::<RunRow>(),
        )
        .post(
            "/squall/v1/runs/{id}/rate",
            rate,
            doc("Change a rate").takes::<NewRate>().gives::<RunRow>(),
        )
        .post(
            "/squall/v1/runs/{id}/change",
            change,
            doc("Replace the profile of a run").takes::<NewProfile>().gives::<RunRow>(),
        )
        .get(
            "/squall/v1/inventories",
            inventories,
            doc("List the inventories on whose nodes a run can go").gives::<Inventories>(),
        )
        .post(
            "/squall/v1/captures",
            capture,
            doc("Capture the frames that arrive on ports")
                .takes::<NewCapture>()
                .gives::<Started>()
                .status(201),
        );
    routes.router = budget::of_profiles(routes.router);
    routes
}

/// A profile as text (TOML, unless `format` says otherwise), or as an object.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Written {
    Text(String),
    Object(serde_json::Map<String, Value>),
}

/// Format of profiles as text.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    #[default]
    Toml,
    Yaml,
    Json,
}

impl Language {
    pub fn format(self) -> Format {
        match self {
            Self::Toml => Format::Toml,
            Self::Yaml => Format::Yaml,
            Self::Json => Format::Json,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Toml => "toml",
            Self::Yaml => "yaml",
            Self::Json => "json",
        }
    }
}

impl Written {
    /// The text and its language.
    pub fn text(self, language: Language) -> (String, Language) {
        match self {
            Self::Text(text) => (text, language),
            Self::Object(object) => (format!("{:#}", Value::Object(object)), Language::Json),
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewRun {
    /// Profile to run: its text, or an object of its schema.
    profile: Option<Written>,
    #[serde(default)]
    format: Language,
    name: Option<String>,
    owner: Option<String>,
    /// Lease of its ports. Without one, the run leases them itself, and each request that names the
    /// run renews that lease.
    lease: Option<String>,
    /// Duration of the run's own lease.
    ttl_s: Option<f64>,
    /// When the run's own lease has expired: pause its streams and replays for at most this many
    /// seconds before it ends, and resume them with the next request that names the run.
    pause_s: Option<f64>,
    /// The run's own lease lasts as long as the run, which needs an end.
    #[serde(default)]
    detached: bool,
    /// "loss > 0", "latency.p99 > 50us", "not valid".
    #[serde(default)]
    fail_if: Vec<String>,
    #[serde(default, deserialize_with = "squall_options::read")]
    options: RunOptions,
    /// Part of a divided run, such as "2/3"; in place of `part` of the options.
    part: Option<String>,
    /// Name of this node, for the report.
    node: Option<String>,
    /// The cluster's clock: frames are stamped by it, and delays are measured by it.
    clock: Option<NodeClock>,
    /// The key in the signatures of all nodes of the run, by which their frames differ from those of
    /// other runs; unused if the profile or the options have a seed. Absent: a key from the seed.
    key: Option<u16>,
    /// Open everything, and send nothing before `POST /runs/{id}/go`.
    #[serde(default)]
    hold: bool,
    /// Run on the nodes of this inventory of the daemon (`GET /inventories`): the ports are those
    /// that it names.
    nodes: Option<String>,
    /// Action when a node is lost; absent: `end`.
    on_loss: Option<OnLoss>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Go {
    /// Time on the cluster's clock at which the first frame is due.
    at_ns: u64,
}

#[derive(Clone, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
enum NumberOrText {
    Number(f64),
    Text(String),
}

#[derive(Deserialize, JsonSchema)]
// The options of the capture refuse unknown keys, because `flatten` excludes serde's own check.
#[schemars(deny_unknown_fields)]
struct NewCapture {
    /// Addresses.
    ports: Vec<String>,
    filter: Option<String>,
    duration_s: Option<f64>,
    name: Option<String>,
    owner: Option<String>,
    lease: Option<String>,
    ttl_s: Option<f64>,
    #[serde(default)]
    detached: bool,
    /// Overwrite `file` if it exists, and allow its disk to become more than 95 % full.
    #[serde(default)]
    force: bool,
    /// Count received traffic by flow, too, for `/runs/{id}/conversations` and
    /// `/runs/{id}/endpoints`.
    #[serde(default)]
    received_flows: bool,
    /// `false`: packets are counted and not written to a file.
    #[serde(default = "yes")]
    write: bool,
    #[serde(flatten, deserialize_with = "squall_options::read_capture")]
    capture: CaptureOptions,
}

#[derive(Serialize, JsonSchema)]
pub struct Started {
    pub run: RunRow,
}

#[derive(Serialize, JsonSchema)]
struct Inventories {
    inventories: Vec<Inventory>,
}

#[derive(Serialize, JsonSchema)]
struct RunList {
    runs: Vec<RunRow>,
}

#[derive(Deserialize, JsonSchema)]
struct Query {
    /// State of runs; `live`: every run that is not over.
    state: Option<String>,
    kind: Option<String>,
    /// Text to find in name, note, owner or ports.
    q: Option<String>,
    /// `valid`, `not-valid` or `interrupted`, as in the report.
    verdict: Option<VerdictStatus>,
    /// Whether the criteria of `fail_if` and `abort_if` were met.
    passed: Option<bool>,
    /// Only runs that were started at this time or later (RFC 3339).
    from: Option<String>,
    /// Only runs that were started before this time (RFC 3339).
    until: Option<String>,
    /// Only runs older than this one.
    before: Option<String>,
    /// 1 to 1000 [default: 50].
    limit: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Patch {
    name: Option<String>,
    note: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Stats {
    run: RunRow,
    /// Seconds since the start; `null` before the first sample.
    t_s: Option<f64>,
    sample: Option<Sample>,
    /// The report so far.
    report: Option<Report>,
}

#[derive(Deserialize, JsonSchema)]
struct ProfileQuery {
    /// `python`, `toml`, `json`; by default the format in which it was written.
    format: Option<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Which {
    /// Name; `null`: all.
    stream: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Step {
    frames: u64,
}

/// An order of a router: the keys of a step of the profile, without its times.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RouterOrder {
    /// Name of the router.
    #[serde(skip_serializing)]
    router: String,
    /// `withdraw`, `announce`, `down`, `up`, `restart`, `refresh`, `silent`, `talk` or `notify`.
    action: String,
    /// Group whose routes are withdrawn or announced; `null`: all groups.
    group: Option<String>,
    /// How many routes: the first that are announced, or withdrawn; `null`: all.
    count: Option<u64>,
    /// Address of the neighbor whose session goes down or up, or is refreshed; `null`: all.
    neighbor: Option<String>,
    /// Text for the neighbor whose session goes down (RFC 9003).
    message: Option<String>,
    /// Error code of a NOTIFICATION (RFC 4271 section 4.5), for `notify`.
    code: Option<u64>,
    /// Its subcode; `null`: 0.
    subcode: Option<u64>,
    /// Its data, in hexadecimal digits; `null`: none.
    data: Option<String>,
    /// Time after which the reverse follows: "5 s", or seconds; `null`: never.
    duration: Option<NumberOrText>,
}

/// Either `mult`, or `stream` and `rate`, or `by` with or without `stream`, or one amount for
/// `template` or for all templates.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewRate {
    /// 0.5 or "50%": factor on the rates of the profile; "1 Mpps": sum of the streams of each port.
    mult: Option<NumberOrText>,
    stream: Option<String>,
    /// "1 Mpps".
    rate: Option<String>,
    /// Factor on the current rate of the stream or of all: 1.1, 0.5.
    by: Option<NumberOrText>,
    template: Option<String>,
    cps: Option<f64>,
    users: Option<u32>,
    active: Option<u64>,
    weight: Option<u32>,
    bandwidth: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewProfile {
    profile: Written,
    #[serde(default)]
    format: Language,
}

fn bad(message: impl Into<String>) -> Refusal {
    Refusal::bad_request("bad_request", message)
}

impl NumberOrText {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }

    fn multiplier(&self, what: &str) -> Result<Multiplier, Refusal> {
        self.text().parse().map_err(|error| bad(format!("{what} = {:?}: {error}", self.text())))
    }
}

impl NumberOrText {
    /// For a live run, a percentage is relative to the profile's rates, not to the capacity of the
    /// ports.
    fn of_profile(&self, what: &str) -> Result<Multiplier, Refusal> {
        let text = self.text();
        let Some(percent) = text.trim().strip_suffix('%') else { return self.multiplier(what) };
        match percent.trim().parse() {
            Ok(Multiplier::Factor { num, den }) if den <= u64::MAX / 100 => {
                Ok(Multiplier::Factor { num, den: den * 100 })
            }
            _ => Err(bad(format!(
                "{what} = {text:?}: expected a percentage above 0, such as \"50%\""
            ))),
        }
    }
}

fn seconds(what: &str, value: f64) -> Result<Nanos, Refusal> {
    // The range of a nanosecond count in a `u64`, without zero.
    if (1e-9..1e9).contains(&value) {
        return Ok(Nanos((value * 1e9).round() as u64));
    }
    Err(bad(format!("{what} = {value}: expected seconds above 0")))
}

/// Resolves the file in the daemon's directory.
fn resolve_file(service: &Service, file: &mut Option<PathBuf>) -> Result<(), Refusal> {
    if let Some(path) = file {
        *path = service.new_file(&path.to_string_lossy())?;
    }
    Ok(())
}

/// Sets the capture to write to a file in the daemon's directory.
fn set_capture_file(service: &Service, capture: &mut CaptureOptions) -> Result<(), Refusal> {
    if capture.print.is_some() {
        return Err(bad("capture: print: the daemon shows no packets\n  try the file"));
    }
    capture.file.get_or_insert_with(squall::capture::new_name);
    resolve_file(service, &mut capture.file)
}

async fn start(
    State(service): State<Arc<Service>>,
    Body(mut new): Body<NewRun>,
) -> Result<(StatusCode, Json<Started>), Refusal> {
    acting(service, move |service| {
        let (text, language) =
            new.profile.take().map(|profile| profile.text(new.format)).unwrap_or_default();
        if text.is_empty() {
            return Err(bad("profile: expected text or an object"));
        }
        let profile = service.files.profile(&text, language.format())?;
        let mut options = new.options.clone().over(&profile.run);
        if let Some(part) = &new.part {
            let part = part.parse().map_err(|error| bad(format!("part: {error}")))?;
            options.part = Some(squall_options::PartOf(part));
        }
        if let Some(clock) = &new.clock {
            check_clock(clock)?;
        }
        let over = nodes_of(service, &new, &options)?;
        // The options of nodes are not checked here: their own daemons check them, because only
        // these know their CPUs.
        if over.is_none() {
            check_cores(&options)?;
            resolve_file(service, &mut options.labels)?;
            resolve_file(service, &mut options.key_log)?;
            resolve_file(service, &mut options.routes_csv)?;
            options
                .capture
                .iter_mut()
                .try_for_each(|capture| set_capture_file(service, capture))?;
        }
        let mut session = Session::new(profile).with(options)?;
        let key = new.key.filter(|_| session.profile.seed.is_none());
        let (node, clock, command) = (new.node, new.clock, "squall serve".into());
        session.caller = Caller { command, node, clock, key, ..Caller::default() };
        let rules = new.fail_if.iter().map(|text| {
            FailIf::parse(text).map_err(|error| bad(format!("fail_if = {text:?}: {error}")))
        });
        let fail_if = rules.collect::<Result<Vec<_>, _>>()?;
        let kind = Kind::of(&session);
        if new.detached && !has_end(&session) {
            return Err(bad(
                "a detached run needs an end\n  try options.duration, or a lease that is renewed",
            ));
        }
        let profile = &session.profile;
        let sends_on = profile.flows.is_some()
            || !profile.attacks.is_empty()
            || !profile.hosts.is_empty()
            || !profile.routers.is_empty();
        if new.pause_s.is_some() && sends_on {
            return Err(bad(
                "flows, attacks, hosts and routers cannot be paused while their lease has expired: \
                 open connections and hosts send on\n  try without pause_s (--on-loss end or \
                 continue)",
            ));
        }
        let asked = Ownership {
            name: new.name,
            owner: new.owner,
            lease: new.lease,
            ttl_s: new.ttl_s,
            pause_s: new.pause_s,
            detached: new.detached,
        };
        let wanted = Wanted { fail_if, ..asked.wanted(service, session, kind, (text, language))? };
        let live = match over {
            Some(over) => service.start(wanted, over)?.0,
            None => service.start(wanted, OnPorts { hold: new.hold })?.0,
        };
        Ok(started(&live))
    })
    .await
}

fn started(live: &Live) -> (StatusCode, Json<Started>) {
    (StatusCode::CREATED, Json(Started { run: live.row() }))
}

/// The nodes of a new run; `None` if it uses ports of this machine.
fn nodes_of(
    service: &Service,
    new: &NewRun,
    options: &RunOptions,
) -> Result<Option<ClusterSpec>, Refusal> {
    let Some(name) = &new.nodes else {
        return match new.on_loss {
            Some(_) => Err(bad("on_loss: the run has no nodes\n  try nodes, or no on_loss")),
            None => Ok(None),
        };
    };
    for (key, given) in [
        ("lease", new.lease.is_some()),
        ("part", options.part.is_some()),
        ("node", new.node.is_some()),
        ("clock", new.clock.is_some()),
        ("key", new.key.is_some()),
        ("hold", new.hold),
    ] {
        if given {
            return Err(bad(format!("{key}: not for a run with nodes\n  try without {key}")));
        }
    }
    let inventory = service.inventory(name)?;
    Ok(Some(ClusterSpec { inventory, on_loss: new.on_loss.unwrap_or_default() }))
}

/// Maximum drift of a cluster clock: 1,000 ppm, many times that of any quartz oscillator.
const MAX_DRIFT_PPB: f64 = 1e6;

/// Checks that the clock's drift is plausible.
fn check_clock(clock: &NodeClock) -> Result<(), Refusal> {
    match clock.drift_ppb {
        drift if drift.abs() <= MAX_DRIFT_PPB => Ok(()),
        drift => Err(bad(format!("clock: drift_ppb = {drift}: expected -1000000 to 1000000"))),
    }
}

async fn go(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
    Body(go): Body<Go>,
) -> Result<Json<RunRow>, Refusal> {
    with(service, id, move |_, live| live.apply(Action::Go(Nanos(go.at_ns)))).await
}

async fn clock(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
    Body(clock): Body<NodeClock>,
) -> Result<Json<RunRow>, Refusal> {
    with(service, id, move |_, live| {
        check_clock(&clock)?;
        live.apply(Action::Clock(clock))
    })
    .await
}

/// Refuses more workers than CPUs, because extra workers would take CPU time from other runs.
///
/// # Errors
/// Options that request more workers than there are CPUs.
pub fn check_cores(options: &RunOptions) -> Result<(), Refusal> {
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    if options.cores.is_some_and(|cores| cores > most) {
        return Err(bad(format!("cores: expected 1 to {most}, the CPUs of this machine")));
    }
    if options.cpus.as_ref().is_some_and(|cpus| !(1..=most).contains(&cpus.0.len())) {
        return Err(bad(format!("cpus: expected 1 to {most}, the CPUs of this machine")));
    }
    Ok(())
}

/// The reason why a run cannot have this name; `None` if the name is valid.
pub fn wrong_name(name: &str) -> Option<&'static str> {
    (name.chars().count() > 200).then_some("expected at most 200 characters")
}

fn yes() -> bool {
    true
}

fn has_end(session: &Session) -> bool {
    let profile = &session.profile;
    let sends =
        !(profile.streams.is_empty() && profile.replays.is_empty() && profile.attacks.is_empty());
    let streams = profile.streams.iter().all(|s| s.mode != squall::ProfileMode::Continuous);
    let replays = profile.replays.iter().all(|replay| replay.ends());
    profile.stop != Default::default() || (sends && streams && replays && profile.flows.is_none())
}

/// The name, owner and lease of a new run.
struct Ownership {
    name: Option<String>,
    owner: Option<String>,
    lease: Option<String>,
    ttl_s: Option<f64>,
    pause_s: Option<f64>,
    detached: bool,
}

impl Ownership {
    fn wanted(
        self,
        service: &Service,
        session: Session,
        kind: Kind,
        (text, language): (String, Language),
    ) -> Result<Wanted, Refusal> {
        let name = self.name.unwrap_or_default();
        if let Some(why) = wrong_name(&name) {
            return Err(bad(format!("name: {why}")));
        }
        let keep = match (self.pause_s, self.detached, &self.lease) {
            (None, false, _) => Keep::Renewed,
            (None, true, _) => Keep::Run,
            (Some(pause_s), false, None) => {
                Keep::Paused(Duration::from_nanos(seconds("pause_s", pause_s)?.0))
            }
            (Some(_), ..) => {
                return Err(bad("pause_s is about the run's own lease, which is renewed\n  try \
                                without lease and detached"));
            }
        };
        Ok(Wanted {
            session,
            kind,
            name,
            owner: owner(self.owner)?,
            lease: self.lease,
            ttl: ttl(service, self.ttl_s)?,
            keep,
            text,
            format: language.word(),
            fail_if: Vec::new(),
        })
    }
}

async fn capture(
    State(service): State<Arc<Service>>,
    Body(new): Body<NewCapture>,
) -> Result<(StatusCode, Json<Started>), Refusal> {
    acting(service, move |service| {
        if new.ports.is_empty() || new.ports.len() > 256 {
            return Err(bad("ports: expected 1 to 256 addresses"));
        }
        let mut capture = new.capture;
        let ends = capture.packets.is_some() || capture.octets.is_some();
        let capture = if new.write {
            set_capture_file(service, &mut capture)?;
            Some(capture)
        } else if capture == CaptureOptions::default() {
            None
        } else {
            return Err(bad(
                "write = false: no file is written\n  try without the options of files, or \
                            write = true",
            ));
        };
        let duration = new.duration_s.map(|value| seconds("duration_s", value)).transpose()?;
        let options = RunOptions {
            duration: duration.map(Time),
            capture,
            filter: new.filter,
            received_flows: new.received_flows.then_some(ReceivedFlows::Measured(true)),
            force: Some(new.force),
            ..RunOptions::default()
        };
        let session = Session::new(
            squall_machine::ports::listening(&new.ports).map_err(squall::Error::from)?,
        )
        .with(options)?
        .command("squall serve");
        if new.detached && !has_end(&session) && !ends {
            return Err(bad("a detached capture needs an end\n  try duration_s or packets, or a \
                            lease that is renewed"));
        }
        let text = session.profile.to_toml();
        let asked = Ownership {
            name: new.name,
            owner: new.owner,
            lease: new.lease,
            ttl_s: new.ttl_s,
            pause_s: None,
            detached: new.detached,
        };
        let wanted = asked.wanted(service, session, Kind::Capture, (text, Language::Toml))?;
        Ok(started(&service.start(wanted, OnPorts { hold: false })?.0))
    })
    .await
}

async fn inventories(State(service): State<Arc<Service>>) -> Result<Json<Inventories>, Refusal> {
    blocking(move || Ok(Json(Inventories { inventories: service.inventories()? }))).await
}

async fn list(
    State(service): State<Arc<Service>>,
    Asked(query): Asked<Query>,
) -> Result<Json<RunList>, Refusal> {
    blocking(move || {
        let live: Vec<_> = service.runs.all().iter().map(|live| live.row()).collect();
        let only_live = query.state.as_deref() == Some("live");
        let over = |state: &str| matches!(state, "done" | "failed" | "interrupted");
        // For live runs, the history has rows from their start or last checkpoint, so they are
        // filtered by state below.
        let wants = Wants {
            state: query.state.clone().filter(|state| over(state)),
            kind: query.kind,
            words: query.q.filter(|words| !words.trim().is_empty()),
            verdict: query.verdict,
            passed: query.passed,
            from: query.from.map(|text| instant("from", &text)).transpose()?,
            until: query.until.map(|text| instant("until", &text)).transpose()?,
            before: query.before,
            limit: query.limit.unwrap_or(50).clamp(1, 1000),
        };
        let mut runs = service.history.runs(&wants)?;
        for row in &mut runs {
            if let Some(now) = live.iter().find(|now| now.id == row.id) {
                *row = now.clone();
            }
        }
        if let Some(state) = query.state {
            runs.retain(
                |row| if only_live { !row.state.is_over() } else { state == row.state.word() },
            );
        }
        Ok(Json(RunList { runs }))
    })
    .await
}

/// A time of a query in the form of [`RunRow::started`], which sorts as text.
fn instant(key: &str, text: &str) -> Result<String, Refusal> {
    let time = humantime::parse_rfc3339(text).map_err(|error| {
        let message = format!("{key} = {text:?}: {error}\n  expected 2026-11-22T10:00:00Z");
        Refusal::bad_request("bad_request", message)
    })?;
    Ok(humantime::format_rfc3339_millis(time).to_string())
}

pub fn known(id: &str, row: Option<RunRow>) -> Result<RunRow, Refusal> {
    row.ok_or_else(|| Refusal::not_found(format!("there is no run {id:?}")))
}

/// Finds a live run and renews its own lease.
pub fn live(service: &Service, id: &str) -> Result<Arc<Live>, Refusal> {
    match service.runs.get(id) {
        Some(live) => {
            service.renew_own_lease(&live);
            Ok(live)
        }
        None => Err(match service.history.run(id)? {
            Some(_) => over(id),
            None => Refusal::not_found(format!("there is no run {id:?}")),
        }),
    }
}

fn row(service: &Service, id: &str) -> Result<RunRow, Refusal> {
    match service.runs.get(id) {
        Some(live) => {
            service.renew_own_lease(&live);
            Ok(live.row())
        }
        None => known(id, service.history.run(id)?),
    }
}

async fn one(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
) -> Result<Json<RunRow>, Refusal> {
    blocking(move || row(&service, &id).map(Json)).await
}

async fn patch(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
    Body(patch): Body<Patch>,
) -> Result<Json<RunRow>, Refusal> {
    blocking(move || {
        let long = |text: &Option<String>, most| {
            text.as_ref().is_some_and(|text| text.chars().count() > most)
        };
        if long(&patch.name, 200) || long(&patch.note, 10_000) {
            return Err(bad("expected at most 200 characters of a name, and 10,000 of a note"));
        }
        if let Some(live) = service.runs.get(&id) {
            let row = live.rename(patch.name.clone(), patch.note.clone());
            if service.note(&live, &row).map_err(unreadable)? {
                service.runs.touch();
                return Ok(Json(row));
            }
        }
        let mut row = known(&id, service.history.run(&id)?)?;
        row.name = patch.name.unwrap_or(row.name);
        row.note = patch.note.unwrap_or(row.note);
        service.history.update(&row, None).map_err(unreadable)?;
        service.runs.touch();
        Ok(Json(row))
    })
    .await
}

async fn delete(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
) -> Result<StatusCode, Refusal> {
    blocking(move || {
        if service.runs.get(&id).is_some() {
            return Err(Refusal::conflict(
                "run_live",
                format!("run {id} is running\n  try to stop it first"),
            ));
        }
        match service.history.delete(&id)? {
            true => Ok(StatusCode::NO_CONTENT),
            false => Err(Refusal::not_found(format!("there is no run {id:?}"))),
        }
    })
    .await
}

async fn stats(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
) -> Result<Json<Stats>, Refusal> {
    blocking(move || {
        if let Some(live) = service.runs.get(&id) {
            service.renew_own_lease(&live);
            let latest = live.latest();
            let report = live.result_so_far().and_then(|came| came.report().cloned());
            return Ok(Json(Stats {
                run: live.row(),
                t_s: latest.as_ref().map(|latest| latest.sample.t_s),
                sample: latest.as_ref().map(|latest| latest.sample.clone()),
                report: report.map(|report| service.files.with_user_names(Report::clone(&report))),
            }));
        }
        let run = known(&id, service.history.run(&id)?)?;
        let text = service.history.report(&id)?.filter(|_| run.kind.has_report());
        let report = text.map(|text| read(&text)).transpose()?;
        let report = report.map(|report| service.files.with_user_names(report));
        let sample = report.as_ref().and_then(|report| report.series.last().cloned());
        Ok(Json(Stats {
            run,
            t_s: report.as_ref().map(|report| report.duration_s),
            sample,
            report,
        }))
    })
    .await
}

pub fn read(text: &str) -> Result<Report, Refusal> {
    serde_json::from_str(text)
        .map_err(|error| Refusal::internal(format!("the history is damaged: {error}")))
}

/// The report of a finished run, or the report so far of a live run.
pub fn report_of(service: &Service, id: &str) -> Result<String, Refusal> {
    if let Some(live) = service.runs.get(id) {
        service.renew_own_lease(&live);
        let none = || Refusal::not_found("there is no report yet\n  try again in a moment");
        return live.result_so_far().ok_or_else(none)?.text(service);
    }
    known(id, service.history.run(id)?)?;
    let text = service.history.report(id)?.map(|text| service.files.without_root(&text));
    text.ok_or_else(|| Refusal::not_found(format!("run {id} has no report: it failed")))
}

async fn report(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
) -> Result<Response, Refusal> {
    let text = blocking(move || report_of(&service, &id)).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

async fn html(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
) -> Result<Response, Refusal> {
    let page = blocking(move || super::trials::page(&report_of(&service, &id)?)).await?;
    // The page has inline scripts and styles. The policy allows these and denies everything else,
    // because the report contains names chosen by users.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                  img-src data:; sandbox allow-scripts allow-downloads";
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, policy),
    ];
    Ok((headers, page).into_response())
}

async fn profile(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
    Asked(query): Asked<ProfileQuery>,
) -> Result<Response, Refusal> {
    let text = blocking(move || {
        let Some((text, written)) = service.history.profile(&id)? else {
            return Err(Refusal::not_found(format!("there is no run {id:?}")));
        };
        let parsed = || -> Result<Profile, Refusal> {
            let format = Format::from_path(std::path::Path::new(&format!("x.{written}")))
                .unwrap_or(Format::Toml);
            service.files.profile(&text, format)
        };
        match query.format.as_deref() {
            None => Ok(text),
            Some(same) if same == written => Ok(text),
            Some("toml") => Ok(service.files.without_root(&parsed()?.to_toml())),
            Some("json") => Ok(service.files.without_root(&format!("{:#}", parsed()?.to_value()))),
            Some("python") => Ok(super::python(&service.files.without_root(&parsed()?.to_toml()))),
            Some(other) => Err(bad(format!("format = {other:?}: expected toml, json or python"))),
        }
    })
    .await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
}

async fn stop(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
    Optional(_): Optional<Value>,
) -> Result<Json<RunRow>, Refusal> {
    blocking(move || {
        // Stopping a stopped run succeeds, so that clients can safely repeat the request.
        if let Some(live) = service.runs.get(&id) {
            service.renew_own_lease(&live);
            live.stop(None);
            service.runs.touch();
        }
        row(&service, &id).map(Json)
    })
    .await
}

/// Runs `what` on a live run. Returns the run's row afterward.
async fn with(
    service: Arc<Service>,
    id: String,
    what: impl FnOnce(&Service, &Live) -> Result<(), Refusal> + Send + 'static,
) -> Result<Json<RunRow>, Refusal> {
    acting(service, move |service| {
        let live = live(service, &id)?;
        let done = what(service, &live);
        service.runs.touch();
        done.map_err(|refusal| service.files.without_paths(refusal))?;
        Ok(Json(live.row()))
    })
    .await
}

async fn pause(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
    Optional(which): Optional<Which>,
) -> Result<Json<RunRow>, Refusal> {
    with(service, id, move |_, live| live.apply(Action::Pause(which.stream))).await
}

async fn resume(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
    Optional(which): Optional<Which>,
) -> Result<Json<RunRow>, Refusal> {
    with(service, id, move |_, live| live.apply(Action::Resume(which.stream))).await
}

async fn trigger(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
    Optional(_): Optional<Value>,
) -> Result<Json<RunRow>, Refusal> {
    with(service, id, |_, live| live.apply(Action::Trigger)).await
}

async fn step(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
    Body(step): Body<Step>,
) -> Result<Json<RunRow>, Refusal> {
    with(service, id, move |_, live| live.apply(Action::Step(step.frames))).await
}

async fn order(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
    Body(order): Body<RouterOrder>,
) -> Result<Json<RunRow>, Refusal> {
    with(service, id, move |_, live| {
        let table = serde_json::to_value(&order).map_err(|error| bad(error.to_string()))?;
        live.apply(Action::Order(order.router, table))
    })
    .await
}

async fn rate(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
    Body(new): Body<NewRate>,
) -> Result<Json<RunRow>, Refusal> {
    with(service, id, move |_, live| live.apply(new.action()?)).await
}

impl NewRate {
    fn action(self) -> Result<Action, Refusal> {
        let rate = |what: &str, text: &str| {
            text.parse::<Rate>().map_err(|error| bad(format!("{what} = {text:?}: {error}")))
        };
        let amounts = [
            self.cps.map(Amount::Cps),
            self.users.map(Amount::Users),
            self.active.map(Amount::Active),
            self.weight.map(Amount::Weight),
            self.bandwidth
                .as_ref()
                .map(|text| rate("bandwidth", text))
                .transpose()?
                .map(Amount::Bandwidth),
        ];
        let mut amounts = amounts.into_iter().flatten();
        let (amount, second) = (amounts.next(), amounts.next());
        let action = match (self.mult, self.stream, self.rate, self.by, amount) {
            (Some(by), None, None, None, None) if self.template.is_none() => {
                Action::Multiply(by.of_profile("mult")?)
            }
            (None, stream, None, Some(by), None) if self.template.is_none() => match by
                .multiplier("by")?
            {
                Multiplier::Factor { num, den } => Action::Scale(stream, (num, den)),
                Multiplier::Total(rate) => {
                    return Err(bad(format!("by = {rate}: expected a factor, such as 1.1 or 0.5")));
                }
            },
            (None, Some(stream), Some(text), None, None) if self.template.is_none() => {
                Action::Rate(stream, rate("rate", &text)?)
            }
            (None, None, None, None, Some(amount)) if second.is_none() => {
                Action::Load(self.template, amount)
            }
            _ => {
                return Err(bad("expected {\"mult\": \"50%\"}, {\"stream\": \"web\", \"rate\": \
                                \"1 Mpps\"}, {\"by\": 1.1} with or without stream, or one of \
                                cps, users, active, weight and bandwidth with or without \
                                template"));
            }
        };
        Ok(action)
    }
}

async fn change(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
    Body(new): Body<NewProfile>,
) -> Result<Json<RunRow>, Refusal> {
    with(service, id, move |service, live| {
        let (text, language) = new.profile.text(new.format);
        let mut profile = service.files.profile(&text, language.format())?;
        for port in &mut profile.ports {
            port.address = service.ports.admit(&port.address, &service.files)?.address;
        }
        live.apply(Action::Become(Box::new(profile)))
    })
    .await
}
