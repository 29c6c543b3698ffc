//! Attack rules, solved as jobs, and scores of detectors.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use axum::{Json, extract::State, http::StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use squall::Profile;
use squall_attacking::RuleOutcome;
use squall_offline::scoring;

use crate::{
    Refusal,
    api::{Asked, Body, Named, Operation, Routes},
    service::Service,
    threads::blocking,
};

pub fn routes() -> Routes {
    let doc = |summary| Operation::new("attacks", summary);
    Routes::new()
        .post(
            "/squall/v1/attacks/solve",
            solve,
            doc("Start a job that solves rules").takes::<Solve>().gives::<Begun>().status(202),
        )
        .get(
            "/squall/v1/attacks/jobs/{id}",
            job,
            doc("Get the progress of a job, and a page of its rules when it is done")
                .query::<Page>()
                .gives::<JobView>(),
        )
        .on(
            axum::http::Method::DELETE,
            "/squall/v1/attacks/jobs/{id}",
            stop,
            doc("Stop a job and delete it").status(204),
        )
        .post(
            "/squall/v1/attacks/score",
            score,
            doc("Compare the alerts of an engine with the labels of sent traffic")
                .takes::<NewScore>()
                .gives::<Value>(),
        )
}

/// Running jobs and the latest finished ones.
#[derive(Default)]
pub struct Solving {
    jobs: Mutex<BTreeMap<u64, Arc<Job>>>,
    next: AtomicUsize,
}

/// Maximum number of jobs that run at once, because each uses all CPUs.
const RUNNING: usize = 2;
/// Number of jobs to keep, so that results that no client fetches do not fill the memory.
const KEPT: usize = 8;
/// Maximum size of the rules in a request, in octets.
const MOST_RULES: usize = 32 << 20;
/// Options of `[[attack]]` that a request may set. The others name files or concern the whole run.
const OPTIONS: [&str; 12] = [
    "sid",
    "classtype",
    "msg",
    "engine",
    "variables",
    "inside",
    "outside",
    "family",
    "samples",
    "every_branch",
    "near_miss",
    "evasion",
];

#[derive(Default)]
struct Job {
    done: AtomicUsize,
    total: AtomicUsize,
    stop: AtomicBool,
    /// `None` while the job runs.
    ended: Mutex<Option<Result<Solved, Refusal>>>,
}

struct Solved {
    rules: Vec<RuleOutcome>,
    /// Number of lines that are not valid rules, by reason, and the first of these lines.
    problems: BTreeMap<String, u64>,
    problems_first: Vec<String>,
}

impl Solving {
    fn jobs(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job. Fails if too many are running.
    fn begin(&self) -> Result<(u64, Arc<Job>), Refusal> {
        let mut jobs = self.jobs();
        if jobs.values().filter(|job| job.ended().is_none()).count() >= RUNNING {
            let message = format!(
                "{RUNNING} jobs are running\n  try again when one has ended, or DELETE \
                 /squall/v1/attacks/jobs/ID"
            );
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "busy", message));
        }
        while jobs.len() >= KEPT {
            let Some(oldest) =
                jobs.iter().find(|(_, job)| job.ended().is_some()).map(|(id, _)| *id)
            else {
                break;
            };
            jobs.remove(&oldest);
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed) as u64 + 1;
        let job = Arc::new(Job::default());
        jobs.insert(id, job.clone());
        Ok((id, job))
    }

    fn find(&self, id: &str) -> Result<(u64, Arc<Job>), Refusal> {
        let number = id.strip_prefix("j-").and_then(|number| number.parse().ok());
        let job = number.and_then(|number| Some((number, self.jobs().get(&number)?.clone())));
        job.ok_or_else(|| {
            Refusal::not_found(format!("there is no job {id:?}: the last {KEPT} are kept"))
        })
    }
}

impl Job {
    fn ended(&self) -> MutexGuard<'_, Option<Result<Solved, Refusal>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Deserialize, JsonSchema)]
struct Solve {
    /// Text of the rules.
    rules: Option<String>,
    /// Name of a file on the daemon.
    file: Option<String>,
    /// Options as in `[[attack]]` of a profile: `sid`, `classtype`, `msg`, `variables`, `samples`,
    /// `near_miss` ...
    #[serde(default)]
    options: Map<String, Value>,
}

#[derive(Serialize, JsonSchema)]
struct Begun {
    job: String,
}

async fn solve(
    State(service): State<Arc<Service>>,
    Body(asked): Body<Solve>,
) -> Result<(StatusCode, Json<Begun>), Refusal> {
    let id = blocking(move || begin(&service, asked)).await?;
    Ok((StatusCode::ACCEPTED, Json(Begun { job: format!("j-{id}") })))
}

/// Temporary file for rules from a request, because the reader takes only files.
struct Unfinished(Option<PathBuf>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            _ = std::fs::remove_file(path);
        }
    }
}

fn begin(service: &Arc<Service>, asked: Solve) -> Result<u64, Refusal> {
    let mut attack = Map::new();
    for (key, value) in asked.options {
        if !OPTIONS.contains(&key.as_str()) {
            let message =
                format!("unknown key options.{key}\n  expected one of {}", OPTIONS.join(", "));
            return Err(Refusal::bad_request("bad_request", message));
        }
        attack.insert(key, value);
    }
    let (path, unfinished) = match (asked.rules, asked.file) {
        (Some(text), None) if text.len() <= MOST_RULES => {
            let path = service.files.unfinished();
            let failed = |error: std::io::Error| {
                Refusal::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "environment",
                    format!("cannot store the rules: {error}"),
                )
            };
            std::fs::write(&path, text).map_err(failed)?;
            (path.clone(), Unfinished(Some(path)))
        }
        (Some(_), None) => {
            return Err(Refusal::bad_request(
                "bad_request",
                "more than 32 MiB of rules\n  try a file",
            ));
        }
        (None, Some(file)) => (service.files.there(&file)?, Unfinished(None)),
        _ => return Err(super::one_of("rules and file")),
    };
    service.files.includes_nothing(&path)?;
    attack.insert("name".into(), json!("rules"));
    attack.insert("rules".into(), json!([path.to_string_lossy()]));
    let profile = json!({ "ports": { "A": "null:" }, "attack": [attack] });
    let profile = Profile::from_value(&profile, "").map_err(|mistakes| {
        service.files.without_paths(Refusal::from(squall::Error::Input(mistakes)))
    })?;
    let (id, job) = service.solving.begin()?;
    let (here, service) = (service, service.clone());
    std::thread::Builder::new()
        .name("solve".into())
        .spawn(move || {
            let progress = |done: usize, total: usize| {
                job.done.fetch_max(done, Ordering::Relaxed);
                job.total.store(total, Ordering::Relaxed);
                !job.stop.load(Ordering::Relaxed) && !*service.ending.borrow()
            };
            // A panic becomes the job's result, otherwise the job would count as one of the
            // [`RUNNING`] forever.
            let work = std::panic::AssertUnwindSafe(|| {
                squall_attacking::prepare(&profile, squall_units::Division::WHOLE, &progress)
            });
            let solved = match std::panic::catch_unwind(work) {
                Ok(Ok(Some(prepared))) => {
                    let report = prepared.reports.first();
                    let problems = report.map(|report| report.problems.clone()).unwrap_or_default();
                    let first =
                        report.map(|report| report.problems_first.clone()).unwrap_or_default();
                    let problems_first =
                        first.iter().map(|text| user_text(&service, text, &unfinished)).collect();
                    Ok(Solved { rules: prepared.rules(), problems, problems_first })
                }
                Ok(Ok(None)) => Err(Refusal::bad_request("bad_request", "there are no attacks")),
                Ok(Err(error)) => {
                    let mut refusal =
                        service.files.without_paths(squall::Error::from(error).into());
                    refusal.message = user_text(&service, &refusal.message, &unfinished);
                    Err(refusal)
                }
                Err(_) => Err(Refusal::internal(
                    "this is a bug in Squall, please report it with the rules",
                )),
            };
            *job.ended() = Some(solved);
        })
        .map_err(|error| {
            here.solving.jobs().remove(&id);
            Refusal::internal(format!("cannot start a thread: {error}"))
        })?;
    Ok(id)
}

/// Returns `text` without the daemon's directory and without the name of the temporary file, which
/// means nothing to the client.
fn user_text(service: &Service, text: &str, unfinished: &Unfinished) -> String {
    let text = service.files.without_root(text);
    match &unfinished.0 {
        Some(path) => text.replace(&path.display().to_string(), "the request"),
        None => text,
    }
}

#[derive(Deserialize, JsonSchema)]
struct Page {
    /// Index of the first rule, from 0; absent: 0.
    #[serde(default)]
    from: usize,
    /// At most 5000; absent: 500.
    count: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
struct JobView {
    /// `running`, `done` or `failed`.
    state: &'static str,
    /// Number of rules, out of `total`, that are solved or found to be unsolvable.
    done: usize,
    total: usize,
    /// Outcomes of rules; empty until all are done.
    rules: Vec<RuleOutcome>,
    counts: Counts,
    /// Why it failed.
    error: Option<String>,
}

#[derive(Default, Serialize, JsonSchema)]
struct Counts {
    solved: usize,
    /// Unsolved rules by reason.
    unsolved: BTreeMap<String, usize>,
    /// Lines that are not a valid rule, by reason.
    problems: BTreeMap<String, u64>,
    /// The first of these lines.
    problems_first: Vec<String>,
}

async fn job(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
    Asked(page): Asked<Page>,
) -> Result<Json<JobView>, Refusal> {
    let (_, job) = service.solving.find(&id)?;
    let ended = job.ended();
    let mut view = JobView {
        state: "running",
        done: job.done.load(Ordering::Relaxed),
        total: job.total.load(Ordering::Relaxed),
        rules: Vec::new(),
        counts: Counts::default(),
        error: None,
    };
    match &*ended {
        None => {}
        Some(Err(refusal)) => (view.state, view.error) = ("failed", Some(refusal.message.clone())),
        Some(Ok(solved)) => {
            view.state = "done";
            (view.done, view.total) = (solved.rules.len(), solved.rules.len());
            view.rules = solved
                .rules
                .iter()
                .skip(page.from)
                .take(page.count.unwrap_or(500).min(5000))
                .cloned()
                .collect();
            view.counts.solved = solved.rules.iter().filter(|rule| rule.solved).count();
            for reason in solved.rules.iter().filter_map(|rule| rule.reason.as_ref()) {
                *view.counts.unsolved.entry(reason.clone()).or_default() += 1;
            }
            view.counts.problems.clone_from(&solved.problems);
            view.counts.problems_first.clone_from(&solved.problems_first);
        }
    }
    Ok(Json(view))
}

async fn stop(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
) -> Result<StatusCode, Refusal> {
    let (number, job) = service.solving.find(&id)?;
    job.stop.store(true, Ordering::Relaxed);
    service.solving.jobs().remove(&number);
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize, JsonSchema)]
struct NewScore {
    /// Name of a file of labels on the daemon.
    labels: String,
    /// Name of a file of alerts on the daemon, or the text of the alerts: eve.json, fast.log,
    /// alert_fast, alert CSV.
    alerts: String,
    /// Offset added to the times of alerts; absent: 0.
    #[serde(default)]
    shift_ns: i64,
}

async fn score(
    State(service): State<Arc<Service>>,
    Body(asked): Body<NewScore>,
) -> Result<Json<Value>, Refusal> {
    blocking(move || {
        let labels = service.files.there(&asked.labels)?;
        // A file name has neither several lines nor a brace, so such text contains the alerts
        // themselves.
        let is_text = asked.alerts.contains(['\n', '{']);
        let (alerts, unfinished) = if is_text {
            let path = service.files.unfinished();
            std::fs::write(&path, &asked.alerts)
                .map_err(|error| Refusal::internal(format!("cannot store the alerts: {error}")))?;
            (path.clone(), Unfinished(Some(path)))
        } else {
            (service.files.there(&asked.alerts)?, Unfinished(None))
        };
        let scored = scoring::score(&labels, &[alerts], asked.shift_ns).map_err(|error| {
            let refusal = service.files.without_paths(squall::Error::from(error).into());
            Refusal { message: user_text(&service, &refusal.message, &unfinished), ..refusal }
        })?;
        let text = user_text(&service, &scored.to_json(), &unfinished);
        serde_json::from_str(&text).map(Json).map_err(|error| Refusal::internal(error.to_string()))
    })
    .await
}
