//! Standard tests: methods, estimates, starts, and results in other formats.

use std::{path::PathBuf, sync::Arc};

use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use squall::{Profile, RunOptions, Session};
use squall_method::{Estimate, Method, MethodInfo, Outcome, RetryPolicy, render};
use squall_trials::{Between, Test};

use super::{
    Body, Named, Operation, Routes,
    ports::{owner, ttl},
    runs::{Language, Started, Written, check_cores, read, report_of, wrong_name},
};
use crate::{
    Refusal, Token, budget,
    error::Detail,
    leases::Keep,
    runs::{Kind, Wanted},
    service::Service,
    threads::{acting, blocking},
};

pub fn routes() -> Routes {
    let doc = |summary| Operation::new("tests", summary);
    let mut routes = Routes::new()
        .get(
            "/squall/v1/tests/methods",
            methods,
            doc("List the methods of standard tests with the JSON schema of their settings")
                .gives::<Methods>(),
        )
        .post(
            "/squall/v1/tests/estimate",
            estimate,
            doc("Estimate the trials and the time of a standard test; send nothing")
                .takes::<NewTest>()
                .gives::<Estimate>(),
        )
        .post(
            "/squall/v1/tests",
            start,
            doc("Start a standard test: a run of kind test, with an outcome as its report")
                .takes::<NewTest>()
                .gives::<Started>()
                .status(201),
        )
        .get(
            "/squall/v1/runs/{id}/report.csv",
            csv,
            doc("Get the trials of a standard test as CSV").gives_octets("text/csv"),
        )
        .get(
            "/squall/v1/runs/{id}/report.xml",
            junit,
            doc("Get the verdict of a standard test as JUnit XML").gives_octets("text/xml"),
        );
    routes.router = budget::of_profiles(routes.router);
    routes
}

#[derive(Serialize, JsonSchema)]
struct Methods {
    methods: Vec<MethodInfo>,
    /// JSON schema of `between`.
    between: Value,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewTest {
    /// `rfc2544`, as `squall test` names it.
    method: String,
    /// Settings of the method that are not its defaults.
    #[serde(default)]
    settings: Map<String, Value>,
    /// Profile with the ports and streams: its text, or an object of its schema. Without a profile,
    /// `between` describes the traffic that is sent between `ports`.
    profile: Option<Written>,
    #[serde(default)]
    format: Language,
    /// Addresses by port name, in place of those in the profile.
    #[serde(default)]
    ports: Map<String, Value>,
    /// Traffic between the ports, without a profile.
    #[serde(default)]
    between: Between,
    /// Maximum rate of each port, on the line: "1 Gbps", "100 kpps"; absent: the speed of its
    /// link.
    max_rate: Option<String>,
    /// Use short trials and few repetitions.
    #[serde(default)]
    quick: bool,
    /// Maximum number of repetitions of a trial in which the generator did not keep its schedule;
    /// absent: 2.
    repeats: Option<u32>,
    /// Seconds between trials; absent: 5, with `quick` 0.2.
    rest_s: Option<f64>,
    /// Options of each trial: `cores`, `cpus`, `seed`, `clock`, `precision`, `linger` and
    /// `filter`.
    #[serde(default, deserialize_with = "squall_options::read")]
    options: RunOptions,
    /// File of the daemon to which trials are written as they end; absent: the id of the run, with
    /// `.journal`. If it has trials of the same test, the test continues after them.
    journal: Option<PathBuf>,
    name: Option<String>,
    owner: Option<String>,
    /// Lease of its ports. Without one, the run leases them itself, and each request that names the
    /// run renews that lease.
    lease: Option<String>,
    /// Duration of the run's own lease.
    ttl_s: Option<f64>,
    /// The run's own lease lasts as long as the test.
    #[serde(default)]
    detached: bool,
}

async fn methods() -> Json<Methods> {
    let between = schemars::schema_for!(Between).to_value();
    Json(Methods { methods: Method::all().into_iter().map(without_commands).collect(), between })
}

/// Removes the settings that run commands from a form, because the daemon refuses them.
fn without_commands(mut about: MethodInfo) -> MethodInfo {
    let properties = about.settings.get_mut("properties").and_then(Value::as_object_mut);
    let presets = about.defaults.as_object_mut().into_iter().chain(about.quick.as_object_mut());
    for table in properties.into_iter().chain(presets) {
        table.retain(|name, _| !runs_command(name));
    }
    about
}

fn runs_command(setting: &str) -> bool {
    setting.ends_with("_command")
}

async fn estimate(
    State(service): State<Arc<Service>>,
    Body(body): Body<Map<String, Value>>,
) -> Result<Json<Estimate>, Refusal> {
    acting(service, move |service| {
        let mut test = NewTest::of(&body)?.test(service, &body)?;
        for port in &mut test.profile.ports {
            port.address = service.ports.admit(&port.address, &service.files)?.address;
        }
        let estimate = test.estimate();
        estimate.map(Json).map_err(|error| service.files.without_paths(error.into()))
    })
    .await
}

async fn start(
    State(service): State<Arc<Service>>,
    Body(body): Body<Map<String, Value>>,
) -> Result<(StatusCode, Json<Started>), Refusal> {
    acting(service, move |service| {
        let new = NewTest::of(&body)?;
        if let Some(why) = new.name.as_deref().and_then(wrong_name) {
            return Err(wrong("name", why));
        }
        let test = new.test(service, &body)?;
        let session = Session::new(test.profile.clone()).command(test.command.clone());
        let wanted = Wanted {
            kind: Kind::Test,
            name: new.name.unwrap_or_else(|| name(&test)),
            owner: owner(new.owner)?,
            lease: new.lease,
            ttl: ttl(service, new.ttl_s)?,
            keep: if new.detached { Keep::Run } else { Keep::Renewed },
            text: test.profile.to_toml(),
            format: Language::Toml.word(),
            fail_if: Vec::new(),
            session,
        };
        let (live, _) = service.start(wanted, test)?;
        Ok((StatusCode::CREATED, Json(Started { run: live.row() })))
    })
    .await
}

fn name(test: &Test) -> String {
    let ports: Vec<_> = test.profile.ports.iter().map(|port| port.address.as_str()).collect();
    // The title begins with the standard: "RFC 2544: benchmarking ...".
    let title = test.method.title();
    let standard = title.split_once(':').map_or(title, |(standard, _)| standard);
    format!("{standard} on {}", ports.join(", "))
}

impl NewTest {
    fn of(body: &Map<String, Value>) -> Result<Self, Refusal> {
        serde_json::from_value(Value::Object(body.clone()))
            .map_err(|error| Refusal::bad_request("bad_request", error.to_string()))
    }

    fn test(&self, service: &Service, body: &Map<String, Value>) -> Result<Test, Refusal> {
        let method = method(&self.method, &self.settings)?;
        let given: Vec<&str> = self.settings.keys().map(String::as_str).collect();
        let most = self.max_rate.as_ref().map(|text| {
            text.parse().map_err(|error| wrong("max_rate", &format!("{text:?}: {error}")))
        });
        let rest_s = self.rest_s.unwrap_or(if self.quick { 0.2 } else { 5.0 });
        if !(0.0..=3600.0).contains(&rest_s) {
            return Err(wrong("rest_s", &format!("{rest_s}, expected 0 to 3600")));
        }
        let mut profile = self.profile(service, &method)?;
        service.files.check(&profile)?;
        let run = std::mem::take(&mut profile.run);
        Ok(Test {
            method: if self.quick { method.quick(&given) } else { method },
            options: of_trials(self.options.clone().over(&run))?,
            profile,
            most: most.transpose()?,
            retry: RetryPolicy { repeats: self.repeats.unwrap_or(2), rest_s },
            journal: self.journal.clone(),
            command: command(service, body),
        })
    }

    fn profile(&self, service: &Service, method: &Method) -> Result<Profile, Refusal> {
        let Some(written) = self.profile.clone() else {
            if self.ports.is_empty() {
                let text =
                    "no profile and no ports\n  try \"ports\": {\"A\": \"eth1\", \"B\": \"eth2\"}";
                return Err(wrong("ports", text));
            }
            let origin = service.files.origin("ports");
            return Ok(self.between.profile(method, &self.ports, &origin)?);
        };
        let (text, language) = written.text(self.format);
        let mut profile = service.files.profile(&text, language.format())?;
        for (name, address) in &self.ports {
            let known = profile.ports.iter_mut().find(|port| port.name == *name);
            let path = format!("ports.{name}");
            let port = known.ok_or_else(|| wrong(&path, "the profile has no such port"))?;
            let address = address.as_str().ok_or_else(|| wrong(&path, "expected an address"))?;
            port.address = address.into();
        }
        Ok(profile)
    }
}

/// The options that apply to trials. The others are refused, because the method defines the end and
/// the measurements of a trial, and the daemon chooses its files.
fn of_trials(all: RunOptions) -> Result<RunOptions, Refusal> {
    check_cores(&all)?;
    let RunOptions { cores, cpus, seed, clock, precision, linger, filter, .. } = all;
    Ok(RunOptions { cores, cpus, seed, clock, precision, linger, filter, ..RunOptions::default() })
}

/// A shell command that starts the same test again.
fn command(service: &Service, body: &Map<String, Value>) -> String {
    let mut body = body.clone();
    // These values belong to this run only.
    for name in ["lease", "ttl_s", "journal"] {
        body.remove(name);
    }
    let scheme = if service.settings.plain { "http" } else { "https" };
    let at = service.bound.get().map_or(service.settings.listen, |(at, _)| *at);
    let token = match service.settings.token {
        Token::None => "",
        _ => " -H \"Authorization: Bearer $SQUALL_TOKEN\"",
    };
    // Close and reopen the quotes around each apostrophe, because a shell has no escape within
    // single quotes.
    let body = Value::Object(body).to_string().replace('\'', "'\\''");
    format!(
        "curl -k{token} -H 'content-type: application/json' {scheme}://{at}/squall/v1/tests -d \
         '{body}'"
    )
}

/// A method by name, with `settings` in place of its defaults.
fn method(name: &str, settings: &Map<String, Value>) -> Result<Method, Refusal> {
    let read = |settings: Value| serde_json::from_value::<Method>(json!({ name: settings }));
    read(json!({})).map_err(|error| wrong("method", &error.to_string()))?;
    for (key, value) in settings {
        let path = format!("settings.{key}");
        // Refused, because permission to send traffic does not include permission to run commands
        // on this machine.
        if runs_command(key) && !value.is_null() {
            return Err(wrong(&path, "the daemon runs no commands\n  try squall test"));
        }
        // Read each setting alone first, because serde's error does not name the field.
        read(json!({ key: value })).map_err(|error| wrong(&path, &error.to_string()))?;
    }
    read(Value::Object(settings.clone())).map_err(|error| wrong("settings", &error.to_string()))
}

fn wrong(path: &str, message: &str) -> Refusal {
    let detail = Detail { path: path.into(), message: message.into(), ..Detail::default() };
    Refusal::bad_request("bad_request", format!("{path}: {message}")).with(vec![detail])
}

/// The outcome of a standard test, if `text` is one.
fn outcome(text: &str) -> Option<Outcome> {
    let outcome: Outcome = serde_json::from_str(text).ok()?;
    outcome.schema.starts_with("squall.test/").then_some(outcome)
}

/// Renders a report or an outcome as an HTML page.
///
/// # Errors
/// If the text is neither.
pub fn page(text: &str) -> Result<String, Refusal> {
    match outcome(text) {
        Some(outcome) => Ok(render::html(&outcome, &[])),
        None => Ok(squall_report::render::html(&read(text)?)),
    }
}

async fn csv(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
) -> Result<Response, Refusal> {
    rendered(service, id, "text/csv; charset=utf-8", render::csv).await
}

async fn junit(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
) -> Result<Response, Refusal> {
    rendered(service, id, "text/xml; charset=utf-8", |outcome| render::junit(outcome, &[])).await
}

async fn rendered(
    service: Arc<Service>,
    id: String,
    media: &'static str,
    render: fn(&Outcome) -> String,
) -> Result<Response, Refusal> {
    let text = blocking(move || {
        let outcome = outcome(&report_of(&service, &id)?);
        let none = || {
            let text = format!("run {id} is no standard test\n  try report or report.html");
            Refusal::not_found(text)
        };
        Ok(render(&outcome.ok_or_else(none)?))
    })
    .await?;
    Ok(([(header::CONTENT_TYPE, media)], text).into_response())
}

#[cfg(test)]
mod tests {
    use axum::{body, http::Request};
    use tower::ServiceExt;

    use super::*;
    use crate::Settings;

    const RIG: &str = "ports.A = \"loop:estimates,virtual,drain=10kpps,buffer=50\"\n[[stream]]\nname = \
                       \"A to A\"\npacket = \"eth/ipv4/udp\"\nrate = 1\n";

    async fn ask(name: &str, asked: Value) -> (u16, Value) {
        post(name, "/squall/v1/tests/estimate", asked).await
    }

    async fn post(name: &str, path: &str, asked: Value) -> (u16, Value) {
        let id = std::process::id();
        let data = std::env::temp_dir().join(format!("squall-tests-{name}-{id}"));
        let service = Arc::new(Service::open(Settings::of_test(data.clone())).expect("it opens"));
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(body::Body::from(asked.to_string()))
            .expect("a request");
        let router = routes().router.with_state(service);
        let reply = router.oneshot(request).await.expect("a reply");
        let status = reply.status().as_u16();
        let octets = body::to_bytes(reply.into_body(), 1 << 20).await.expect("whole");
        _ = std::fs::remove_dir_all(data);
        (status, serde_json::from_slice(&octets).expect("JSON"))
    }

    fn throughput(trial_s: f64) -> Value {
        json!({
            "method": "rfc2544", "profile": RIG, "max_rate": "100kpps", "rest_s": 0,
            "settings": { "tests": ["throughput"], "frame_sizes": [64], "trial_s": trial_s },
        })
    }

    #[tokio::test]
    async fn a_test_that_runs_commands_or_has_no_ports_does_not_start() {
        let mut commands = throughput(1.0);
        commands["settings"]["reset_command"] = json!("true");
        let mut portless = throughput(1.0);
        portless.as_object_mut().expect("an object").remove("profile");
        for (name, asked, path) in
            [("commands", commands, "settings.reset_command"), ("portless", portless, "ports")]
        {
            let (status, reply) = post(name, "/squall/v1/tests", asked).await;
            let found = &reply["error"]["details"][0]["path"];
            assert_eq!((status, found), (400, &json!(path)), "{reply}");
        }
    }

    #[tokio::test]
    async fn each_method_has_a_form_whose_defaults_are_accepted() {
        let Json(Methods { methods: all, .. }) = methods().await;
        assert!(all.len() >= 11, "{all:?}");
        for about in all {
            let form = about.settings["properties"].as_object().expect("an object");
            assert!(!form.keys().any(|name| runs_command(name)), "{about:?}");
            for preset in [&about.defaults, &about.quick] {
                let preset = preset.as_object().expect("an object");
                assert!(preset.keys().all(|name| form.contains_key(name)), "{about:?}");
                method(&about.name, preset).expect(&about.name);
            }
            let seconds = |preset: &Value| preset["trial_s"].as_f64();
            if about.name == "rfc2544" {
                assert!(seconds(&about.quick) < seconds(&about.defaults), "{about:?}");
            }
        }
    }

    #[tokio::test]
    async fn an_estimate_grows_with_the_trials() {
        let (status, short) = ask("short", throughput(1.0)).await;
        assert_eq!(status, 200, "{short}");
        let (_, long) = ask("long", throughput(10.0)).await;
        for (estimate, trial_s) in [(&short, 1.0), (&long, 10.0)] {
            let trials = estimate["trials"].as_f64().expect("a number");
            let each = estimate["seconds"].as_f64().expect("s") / trials;
            // The estimate includes the time to open ports and to wait for the last frame.
            assert!(trials > 2.0 && each >= trial_s && each < trial_s + 1.0, "{estimate}");
        }
    }

    #[tokio::test]
    async fn errors_have_the_name_of_the_setting() {
        let with = |key: &str, value: Value| {
            let mut asked = throughput(1.0);
            asked["settings"][key] = value;
            asked
        };
        let mut rate = throughput(1.0);
        rate["max_rate"] = json!("fast");
        let mut method = throughput(1.0);
        method["method"] = json!("rfc1");
        for (name, asked, path) in [
            ("type", with("trial_s", json!("long")), "settings.trial_s"),
            ("unknown", with("trails", json!(1)), "settings.trails"),
            ("command", with("reset_command", json!("true")), "settings.reset_command"),
            ("rate", rate, "max_rate"),
            ("method", method, "method"),
        ] {
            let (status, reply) = ask(name, asked).await;
            assert_eq!(
                (status, &reply["error"]["details"][0]["path"]),
                (400, &json!(path)),
                "{reply}"
            );
        }
        let (status, reply) = ask("range", with("trial_s", json!(-1.0))).await;
        assert!(status == 400 && reply.to_string().contains("trial_s = -1"), "{reply}");
    }
}
