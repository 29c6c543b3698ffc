//! The standard tests: what one would take.

use std::sync::Arc;

use axum::{Json, extract::State};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use squall::{
    RunOptions,
    method::{Estimate, Method, Patience},
    trials::Test,
};

use super::{
    Body, Operation, Routes,
    runs::{Language, Written},
};
use crate::{Refusal, error::Detail, service::Service, threads::acting};

pub fn routes() -> Routes {
    Routes::new().post(
        "/squall/v1/tests/estimate",
        estimate,
        Operation::new(
            "tests",
            "Estimate the trials and the time of a standard test; send nothing",
        )
        .takes::<NewTest>()
        .gives::<Estimate>(),
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewTest {
    /// `rfc2544`, as `squall test` names it.
    method: String,
    /// Settings of the method that are not its defaults.
    #[serde(default)]
    settings: Map<String, Value>,
    /// Profile with the ports and streams: its text, or an object of its schema.
    profile: Written,
    #[serde(default)]
    format: Language,
    /// The most that each port sends, on the line: "1 Gbps", "100 kpps"; absent: what its link
    /// carries.
    max_rate: Option<String>,
    /// Use short trials and few repetitions.
    #[serde(default)]
    quick: bool,
    /// Repeat a trial up to this often if the generator did not keep to it; absent: 2.
    repeats: Option<u32>,
    /// Seconds between trials; absent: 5, with `quick` 0.2.
    rest_s: Option<f64>,
}

async fn estimate(
    State(service): State<Arc<Service>>,
    Body(new): Body<NewTest>,
) -> Result<Json<Estimate>, Refusal> {
    acting(service, move |service| {
        let estimate = new.test(service)?.estimate();
        estimate.map(Json).map_err(|error| service.files.unsaid(error.into()))
    })
    .await
}

impl NewTest {
    fn test(self, service: &Service) -> Result<Test, Refusal> {
        let method = method(&self.method, &self.settings)?;
        let most = self.max_rate.map(|text| {
            text.parse().map_err(|error| wrong("max_rate", &format!("{text:?}: {error}")))
        });
        let rest_s = self.rest_s.unwrap_or(if self.quick { 0.2 } else { 5.0 });
        if !(0.0..=3600.0).contains(&rest_s) {
            return Err(wrong("rest_s", &format!("{rest_s}, expected 0 to 3600")));
        }
        let (text, language) = self.profile.text(self.format);
        let mut profile = service.files.profile(&text, language.format())?;
        service.files.check(&profile)?;
        for port in &mut profile.ports {
            port.address = service.ports.admit(&port.address, &service.files)?.address;
        }
        Ok(Test {
            method: if self.quick { method.quick() } else { method },
            options: RunOptions::default().over(&profile.run),
            profile,
            most: most.transpose()?,
            patience: Patience { repeats: self.repeats.unwrap_or(2), rest_s },
            journal: None,
            command: "squall serve".into(),
        })
    }
}

/// A method by its name, with `settings` in place of its defaults.
fn method(name: &str, settings: &Map<String, Value>) -> Result<Method, Refusal> {
    let read = |settings: Value| serde_json::from_value::<Method>(json!({ name: settings }));
    read(json!({})).map_err(|error| wrong("method", &error.to_string()))?;
    for (key, value) in settings {
        let path = format!("settings.{key}");
        // Whoever may send traffic may not therefore run commands on this machine.
        if key.ends_with("_command") && !value.is_null() {
            return Err(wrong(&path, "the daemon runs no commands\n  try squall test"));
        }
        // One at a time: an error of serde does not have the name of the field.
        read(json!({ key: value })).map_err(|error| wrong(&path, &error.to_string()))?;
    }
    read(Value::Object(settings.clone())).map_err(|error| wrong("settings", &error.to_string()))
}

fn wrong(path: &str, message: &str) -> Refusal {
    let detail = Detail { path: path.into(), message: message.into(), ..Detail::default() };
    Refusal::bad_request("bad_request", format!("{path}: {message}")).with(vec![detail])
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
        let id = std::process::id();
        let data = std::env::temp_dir().join(format!("squall-tests-{name}-{id}"));
        let service = Arc::new(Service::open(Settings::of_test(data.clone())).expect("it opens"));
        let request = Request::post("/squall/v1/tests/estimate")
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
    async fn an_estimate_grows_with_the_trials() {
        let (status, short) = ask("short", throughput(1.0)).await;
        assert_eq!(status, 200, "{short}");
        let (_, long) = ask("long", throughput(10.0)).await;
        assert_eq!(long["trials"], short["trials"]);
        let trials = short["trials"].as_f64().expect("a number");
        let longer = long["seconds"].as_f64().expect("s") - short["seconds"].as_f64().expect("s");
        assert!(trials > 5.0 && (longer - 9.0 * trials).abs() < 0.1 * trials, "{short} {long}");
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
