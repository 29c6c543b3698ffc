//! Services for a user interface: headers, packets, profiles, captures, rules.

#[cfg(feature = "attacks")]
mod attacks;
#[cfg(not(feature = "attacks"))]
#[path = "no_attacks.rs"]
mod attacks;
mod captures;
mod packets;
mod profiles;

use squall_editor::Problem;

pub use attacks::Solving;

use crate::{Refusal, api::Routes, error::Detail};

pub fn routes() -> Routes {
    Routes::new()
        .and(packets::routes())
        .and(profiles::routes())
        .and(captures::routes())
        .and(attacks::routes())
}

/// The refusal that lists the problems in a user's text.
fn refused(code: &'static str, problems: &[Problem]) -> Refusal {
    let line = |problem: &Problem| {
        let at = match (problem.line, problem.path.is_empty()) {
            (0, true) => String::new(),
            (0, false) => format!("{}: ", problem.path),
            (line, _) => format!("{line}:{}: ", problem.column),
        };
        format!("{at}{}\n  {}", problem.message, problem.details.join("\n  ")).trim_end().to_owned()
    };
    let message = problems.iter().map(line).collect::<Vec<_>>().join("\n");
    let detail = |problem: &Problem| Detail {
        line: problem.line,
        column: problem.column,
        path: problem.path.clone(),
        message: problem.message.clone(),
    };
    Refusal::bad_request(code, message).with(problems.iter().map(detail).collect())
}

/// The refusal of a request that must have exactly one of several keys.
fn one_of(keys: &str) -> Refusal {
    Refusal::bad_request("bad_request", format!("expected exactly one of {keys}"))
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, sync::Arc, time::Duration};

    use axum::{
        body::Body,
        http::{Request, StatusCode, header},
    };
    use http_body_util::BodyExt;
    use serde_json::{Value, json};
    use tower::ServiceExt;

    use crate::{Settings, service::Service};

    struct Daemon {
        data: PathBuf,
        service: Arc<Service>,
    }

    impl Daemon {
        fn new(name: &str) -> Self {
            let data =
                std::env::temp_dir().join(format!("squall-design-{name}-{}", std::process::id()));
            _ = std::fs::remove_dir_all(&data);
            Self {
                service: Arc::new(
                    Service::open(Settings::of_test(data.clone())).expect("it opens"),
                ),
                data,
            }
        }

        fn file(&self, name: &str, text: &str) {
            std::fs::write(self.data.join("files").join(name), text).expect("written");
        }

        async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> (StatusCode, Value) {
            let request = Request::builder()
                .method(method)
                .uri(format!("/squall/v1{path}"))
                .header(header::CONTENT_TYPE, "application/json")
                .body(body.map_or_else(Body::empty, |body| Body::from(body.to_string())))
                .expect("a request");
            let router = super::routes().router.with_state(self.service.clone());
            let reply = router.oneshot(request).await.expect("a reply");
            let status = reply.status();
            let octets = reply.into_body().collect().await.expect("whole").to_bytes();
            (status, serde_json::from_slice(&octets).unwrap_or(Value::Null))
        }

        async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
            self.ask("POST", path, Some(body)).await
        }
    }

    impl Drop for Daemon {
        fn drop(&mut self) {
            _ = std::fs::remove_dir_all(&self.data);
        }
    }

    /// If `SQUALL_EXAMPLES=DIR` is set, stores the reply there for inspection.
    fn keep(name: &str, value: &Value) {
        if let Some(folder) = std::env::var_os("SQUALL_EXAMPLES") {
            let path = PathBuf::from(folder).join(format!("{name}.json"));
            std::fs::write(path, serde_json::to_string_pretty(value).expect("JSON"))
                .expect("written");
        }
    }

    #[tokio::test]
    async fn packets_are_taken_apart_and_their_mistakes_are_in_the_reply() {
        let daemon = Daemon::new("packets");
        let (status, headers) = daemon.ask("GET", "/headers", None).await;
        assert_eq!((status, headers["headers"][0]["name"].as_str()), (StatusCode::OK, Some("eth")));
        keep("headers", &headers);
        daemon.file("body", "hello");
        let text = "eth/vlan(id=7)/ipv4(ttl=3)/udp(dport=53)/file(\"body\")";
        let (status, view) = daemon.post("/packets/parse", json!({ "packet": text })).await;
        assert_eq!(
            (status, &view["packet"], view["length"].as_u64()),
            (StatusCode::OK, &json!(text), Some(64))
        );
        keep("packets-parse", &view);
        let (_, again) = daemon.post("/packets/parse", json!({ "hex": view["hex"] })).await;
        assert_eq!(again["hex"], view["hex"]);
        let (_, scapy) = daemon
            .post("/packets/parse", json!({ "scapy": "Ether()/IP(ttl=3)/UDP()", "size": 128 }))
            .await;
        assert_eq!(
            (scapy["length"].as_u64(), scapy["layers"][1]["name"].as_str()),
            (Some(128), Some("ipv4"))
        );
        let (status, wrong) = daemon.post("/packets/parse", json!({ "packet": "eth/ipv5" })).await;
        assert_eq!((status, &wrong["problems"][0]["span"]), (StatusCode::OK, &json!([4, 8])));
        keep("packets-parse-wrong", &wrong);
        for outside in ["../token", "/etc/passwd"] {
            let text = format!("eth/ipv4/udp/file(\"{outside}\")");
            let (_, refused) = daemon.post("/packets/parse", json!({ "packet": text })).await;
            assert!(
                refused["problems"][0]["message"]
                    .as_str()
                    .expect("a problem")
                    .contains("is outside"),
                "{refused}"
            );
        }
        assert_eq!(daemon.post("/packets/parse", json!({})).await.0, StatusCode::BAD_REQUEST);
        let vary = json!([{ "field": "ipv4.src", "op": "increment", "min": "10.0.0.1", "max": "10.0.0.9" }]);
        let asked = json!({ "packet": "eth/ipv4/udp", "vary": vary, "count": 4 });
        let (status, varied) = daemon.post("/packets/variations", asked).await;
        assert_eq!(
            (status, varied["frames"].as_array().map(Vec::len)),
            (StatusCode::OK, Some(4)),
            "{varied}"
        );
        keep("packets-variations", &varied);
        let (status, _) = daemon
            .post("/packets/variations", json!({ "packet": "eth", "vary": [], "count": 0 }))
            .await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
    }

    #[tokio::test]
    async fn applications_have_the_options_that_templates_take() {
        let daemon = Daemon::new("applications");
        let (status, reply) = daemon.ask("GET", "/applications", None).await;
        assert_eq!(status, StatusCode::OK);
        let applications = reply["applications"].as_array().expect("a list");
        assert!(applications.iter().any(|app| app["name"] == "mix"));
        for app in applications {
            let template = |options: Value| {
                json!({ "profile": {
                    "ports": { "A": "loop:apps", "B": "loop:apps" },
                    "flows": { "clients": "A", "servers": "B", "cps": 1 },
                    "template": [{
                        "clients": "16.0.0.1", "servers": "48.0.0.1", "app": app["name"],
                        "options": options, "weight": 1,
                    }],
                } })
            };
            let (_, checked) = daemon.post("/profiles/check", template(json!({}))).await;
            assert_eq!(checked["problems"], json!([]), "{app}");
            for option in app["options"].as_array().expect("a list") {
                let name = option["name"].as_str().expect("a name");
                let (_, checked) =
                    daemon.post("/profiles/check", template(json!({ name: [] }))).await;
                let problems = checked["problems"].to_string();
                assert!(!problems.contains("is none of"), "{app}: {problems}");
            }
        }
        let layers = reply["layers"].as_array().expect("a list");
        let early = json!({
            "name": "early_data", "kind": "boolean", "default": "false",
            "about": "true: sessions are resumed, clients with a ticket send their first requests \
                      before the handshake is complete (0-RTT), and servers accept and answer them",
        });
        let of = |key: &str| layers.iter().find(|layer| layer["key"] == key).expect("a layer");
        let options = |key: &str| of(key)["options"].as_array().expect("a list").clone();
        assert!(options("tls").contains(&early), "{:?}", options("tls"));
        assert!(options("http").iter().any(|option| option["name"] == "retry"));
        assert!(options("proxy_protocol").iter().any(|option| option["name"] == "sources"));
    }

    #[tokio::test]
    async fn profiles_are_checked_converted_and_planned_and_read_nothing_else() {
        let daemon = Daemon::new("profiles");
        let text = "[ports]\nA = \"null:\"\n[[stream]]\nname = \"web\"\npacket = \
                    \"eth/ipv4/udp\"\nrate = \"1 kpps\"\n";
        let (status, checked) = daemon.post("/profiles/check", json!({ "text": text })).await;
        assert_eq!((status, &checked["ok"]), (StatusCode::OK, &json!(true)), "{checked}");
        keep("profiles-check", &checked);
        let (_, object) = daemon
            .post("/profiles/check", json!({ "profile": checked["profile"], "format": "json" }))
            .await;
        assert_eq!(object["profile"], checked["profile"]);
        let (_, wrong) =
            daemon.post("/profiles/check", json!({ "text": text.replace("kpps", "kps") })).await;
        assert_eq!(
            (&wrong["ok"], &wrong["problems"][0]["line"], &wrong["problems"][0]["path"]),
            (&json!(false), &json!(6), &json!("stream[0].rate"))
        );
        keep("profiles-check-wrong", &wrong);
        for to in ["toml", "yaml", "json", "python"] {
            let (status, converted) =
                daemon.post("/profiles/convert", json!({ "text": text, "to": to })).await;
            assert_eq!(status, StatusCode::OK, "{to}: {converted}");
            if to != "python" {
                let again = json!({ "text": converted["text"], "format": to, "to": "json" });
                let wanted = json!({ "text": text, "to": "json" });
                let (again, wanted) = (
                    daemon.post("/profiles/convert", again).await,
                    daemon.post("/profiles/convert", wanted).await,
                );
                assert_eq!(again, wanted, "{to}");
            }
        }
        let (status, plan) = daemon.post("/plan", json!({ "profile": text })).await;
        assert_eq!(status, StatusCode::OK);
        assert!(plan["text"].as_str().expect("text").contains("web"), "{plan}");
        keep("plan", &plan);
        for outside in ["packet = 'eth/ipv4/udp/file(\"../token\")'", "pcap = \"/etc/passwd#1\""] {
            let text = text.replace("packet = \"eth/ipv4/udp\"", outside);
            let (_, checked) = daemon.post("/profiles/check", json!({ "text": text })).await;
            assert!(
                checked["ok"] == false && checked.to_string().contains("is outside"),
                "{checked}"
            );
            assert!(!checked.to_string().contains(&daemon.data.display().to_string()), "{checked}");
            assert_eq!(
                daemon.post("/plan", json!({ "text": text })).await.0,
                StatusCode::BAD_REQUEST
            );
        }
    }

    #[tokio::test]
    async fn captures_are_shown_and_imported() {
        let daemon = Daemon::new("captures");
        let profile = format!(
            "[ports]\nA = \"pcap:{}\"\n[[stream]]\npacket = \
             \"eth/ipv4(dst=48.0.0.1)/udp(dport=53)\"\nrate = 10\nmode = {{ burst = 5 }}\n",
            daemon.data.join("files/x.pcap").display()
        );
        let profile =
            squall::Profile::parse(&profile, "p", squall::Format::Toml).expect("a profile");
        squall::Session::new(profile)
            .open()
            .expect("opened")
            .start()
            .expect("started")
            .finish()
            .expect("done");
        let (status, page) =
            daemon.ask("GET", "/captures/x.pcap/packets?from=1&count=2", None).await;
        assert_eq!(
            (status, &page["total"], &page["packets"][0]["n"]),
            (StatusCode::OK, &json!(5), &json!(2)),
            "{page}"
        );
        keep("captures-packets", &page);
        let (_, none) = daemon.ask("GET", "/captures/x.pcap/packets?filter=tcp", None).await;
        assert_eq!(
            (&none["total"], none["packets"].as_array().map(Vec::len)),
            (&json!(0), Some(0))
        );
        let (status, wrong) =
            daemon.ask("GET", "/captures/x.pcap/packets?filter=what%20is", None).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{wrong}");
        let (status, one) = daemon.ask("GET", "/captures/x.pcap/packets/3", None).await;
        assert_eq!(
            (status, &one["n"], &one["layers"][1]["name"]),
            (StatusCode::OK, &json!(3), &json!("ipv4"))
        );
        keep("captures-packet", &one);
        for (path, wanted) in [
            ("/captures/x.pcap/packets/6", StatusCode::BAD_REQUEST),
            ("/captures/x.pcap/packets/x", StatusCode::BAD_REQUEST),
            ("/captures/y.pcap/packets", StatusCode::NOT_FOUND),
            ("/captures/..%2Ftoken/packets", StatusCode::BAD_REQUEST),
        ] {
            assert_eq!(daemon.ask("GET", path, None).await.0, wanted, "{path}");
        }
        let (status, found) = daemon
            .post(
                "/import",
                json!({ "kind": "pcap", "file": "x.pcap", "port": "loop:1", "limit": 2 }),
            )
            .await;
        assert_eq!(
            (status, found["streams"].as_array().map(Vec::len)),
            (StatusCode::OK, Some(2)),
            "{found}"
        );
        assert!(
            found["streams"][0]["packet"].as_str().expect("text").contains("dst=48.0.0.1"),
            "{found}"
        );
        keep("import", &found);
        let (_, scapy) = daemon
            .post("/import", json!({ "kind": "scapy", "text": "IP()/UDP()\nIP()/TCP()" }))
            .await;
        assert_eq!(scapy["streams"].as_array().map(Vec::len), Some(2), "{scapy}");
        let (status, trex) = daemon.post("/import", json!({ "kind": "trex", "text": "x" })).await;
        assert_eq!(
            (status, &trex["error"]["code"]),
            (StatusCode::BAD_REQUEST, &json!("not_supported"))
        );
        let (status, wrong) =
            daemon.post("/import", json!({ "kind": "scapy", "text": "IP()\nIQ()" })).await;
        assert_eq!(
            (status, &wrong["error"]["details"][0]["line"]),
            (StatusCode::BAD_REQUEST, &json!(2)),
            "{wrong}"
        );
    }

    #[tokio::test]
    async fn rules_are_solved_as_a_job_and_include_nothing() {
        let daemon = Daemon::new("rules");
        let rules = "alert tcp any any -> any 80 (msg:\"one\"; content:\"abc\"; sid:1; \
                     rev:1;)\nalert tcp any any -> any 80 (msg:\"two\"; content:\"a\"; depth:1; \
                     content:\"b\"; depth:1; sid:2; rev:1;)\nnonsense\n";
        let (status, begun) =
            daemon.post("/attacks/solve", json!({ "rules": rules, "options": {} })).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{begun}");
        let path = format!("/attacks/jobs/{}", begun["job"].as_str().expect("a job"));
        let mut view = Value::Null;
        for _ in 0..600 {
            view = daemon.ask("GET", &path, None).await.1;
            if view["state"] != "running" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(
            (&view["state"], &view["total"], &view["counts"]["solved"]),
            (&json!("done"), &json!(2), &json!(1)),
            "{view}"
        );
        let (one, two) = (&view["rules"][0], &view["rules"][1]);
        assert!(
            one["solved"] == true && one["frames"].as_u64() > Some(3) && one["protocol"] == "tcp",
            "{one}"
        );
        assert!(
            two["solved"] == false && two["why"].as_str().is_some_and(|why| !why.is_empty()),
            "{two}"
        );
        assert!(!view.to_string().contains(&daemon.data.display().to_string()), "{view}");
        keep("attacks-job", &view);
        let (_, page) = daemon.ask("GET", &format!("{path}?from=1&count=1"), None).await;
        assert_eq!(
            (page["rules"].as_array().map(Vec::len), &page["rules"][0]["sid"]),
            (Some(1), &json!(2))
        );
        assert_eq!(daemon.ask("DELETE", &path, None).await.0, StatusCode::NO_CONTENT);
        assert_eq!(daemon.ask("GET", &path, None).await.0, StatusCode::NOT_FOUND);
        for wrong in [
            json!({ "rules": "include /etc/passwd\n" }),
            json!({ "file": "../token" }),
            json!({ "rules": rules, "options": { "background": "/etc/passwd" } }),
            json!({}),
        ] {
            let (status, refused) = daemon.post("/attacks/solve", wrong.clone()).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{wrong}: {refused}");
        }
        daemon.file(
            "l.csv",
            "attack,begin,end,protocol,source,source_port,destination,destination_port,kind,gid,\
             sid,rev,msg,also,alerts,frames,name,note\n0,1700000000.0,1700000000.1,6,10.1.0.1,\
             40000,198.19.0.1,80,attack,1,9000001,1,one,,1,10,,\n",
        );
        let alerts = r#"{"timestamp":"2023-11-14T22:13:20.050000+0000","event_type":"alert","src_ip":"10.1.0.1","src_port":40000,"dest_ip":"198.19.0.1","dest_port":80,"proto":"TCP","alert":{"action":"allowed","gid":1,"signature_id":9000001,"rev":1,"signature":"one"}}"#;
        let (status, scored) =
            daemon.post("/attacks/score", json!({ "labels": "l.csv", "alerts": alerts })).await;
        assert_eq!((status, &scored["counts"]["hit"]), (StatusCode::OK, &json!(1)), "{scored}");
        keep("attacks-score", &scored);
        daemon.file("eve.json", alerts);
        let (_, again) =
            daemon.post("/attacks/score", json!({ "labels": "l.csv", "alerts": "eve.json" })).await;
        assert_eq!(again["counts"], scored["counts"]);
        assert!(
            std::fs::read_dir(daemon.data.join("unfinished")).expect("a folder").next().is_none()
        );
    }
}
