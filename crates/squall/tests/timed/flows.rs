//! Flows between the two ends of a link in memory, from the profile to the report.

use squall::{
    Format, Profile, Session,
    report::{
        Reason, Report,
        flows::{RequestsReport, RolesReport},
    },
};

/// Runs clients on one end and servers on the other.
fn run(link: &str, shared: &str, templates: &str) -> Report {
    let text = format!(
        "{shared}\n[ports]\nC = \"loop:{link}\"\nS = \"loop:{link}\"\n[flows]\nclients = \
         \"C\"\nservers = \"S\"\nmax_delay = \"60 s\"\n{templates}"
    );
    let profile =
        Profile::parse(&text, "flows.toml", Format::Toml).unwrap_or_else(|e| panic!("{e}\n{text}"));
    Session::new(profile).open().unwrap().start().unwrap().finish().unwrap()
}

fn template(name: &str, more: &str) -> String {
    format!(
        "[[template]]\nname = \"{name}\"\nclients = \"16.0.0.0/24\"\nservers = \
         \"48.0.0.1\"\n{more}\n"
    )
}

/// The results of a template's clients and servers. Asserts that all flows were completed.
fn completed(report: &Report, name: &str, flows: u64) -> RolesReport {
    let load = report.flows.as_ref().unwrap();
    let roles = load.templates.iter().find(|template| template.name == name).unwrap().roles.clone();
    for role in [&roles.client, &roles.server] {
        let role = role.as_ref().unwrap_or_else(|| panic!("{name} has no flows"));
        assert_eq!((role.attempted, role.completed), (flows, flows), "{name}: {role:?}");
    }
    roles
}

#[test]
fn two_templates_of_http_on_one_server_have_each_their_own_answer() {
    let of = |body: &str| {
        format!("app = \"http\"\ncps = 200\nlimit = 40\noptions = {{ body = \"{body}\" }}")
    };
    let report =
        run("two-http", "", &(template("small", &of("1 KiB")) + &template("large", &of("64 KiB"))));
    for (name, octets) in [("small", 1 << 10), ("large", 64 << 10)] {
        let client = completed(&report, name, 40).client.unwrap();
        // A response header has some 100 octets.
        let each = client.received_octets / 40;
        assert!((octets..octets + 200).contains(&each), "{name}: {each} octets an answer");
        assert_eq!(client.http["2xx"], 40);
    }
}

/// Applications in a mix that all use port 80.
#[test]
fn applications_at_one_port_are_served_as_they_are_by_themselves() {
    let all = ["http", "http-get", "http-post"];
    let of = |name: &str| template(name, &format!("app = \"{name}\"\ncps = 50\nlimit = 3"));
    let together = run("apps", "", &all.map(of).concat());
    for name in all {
        let octets = |report: &Report| completed(report, name, 3).client.unwrap().received_octets;
        let (here, alone) =
            (octets(&together), octets(&run(&format!("apps-{name}"), "", &of(name))));
        // Bodies may have random lengths.
        assert!(here.abs_diff(alone) * 20 < alone, "{name}: {here} octets, by itself {alone}");
    }
}

#[test]
fn begun_a_second_are_those_of_the_time_in_which_flows_were_due() {
    let slow = "listen = 7\nclient = ['send \"ping\"', 'recv 4', 'delay 300 ms', 'close']\nserver = \
                ['recv 4', 'send \"pong\"', 'wait_peer_close']\ncps = 200";
    for (what, shared, more) in [("count", "", "limit = 200"), ("time", "duration = \"1 s\"", "")] {
        let report =
            run(&format!("cps-{what}"), shared, &template("slow", &format!("{slow}\n{more}")));
        let load = report.flows.as_ref().unwrap();
        let RolesReport { client, server } = load.total.clone();
        let (client, server) = (client.unwrap(), server.unwrap());
        // On a busy machine fewer flows begin in time. The others count as late.
        assert_eq!(
            (client.asked, client.attempted + client.missed()),
            (Some(200), 200),
            "{client:?}"
        );
        assert_eq!(
            (load.arrivals_s, client.cps, server.asked),
            (1.0, client.attempted as f64, None),
            "{what}"
        );
        assert!(load.duration_s > 1.0 && server.cps == client.cps, "{}", load.duration_s);
    }
}

#[test]
fn both_ends_of_calls_over_udp_count_the_same() {
    // The servers continue to send when their clients have ended.
    let rtp = "app = \"rtp\"\ncps = 100\nlimit = 20\noptions = { packets = 8 }";
    let report = run("rtp", "", &template("rtp", rtp));
    let roles = completed(&report, "rtp", 20);
    let (client, server) = (roles.client.unwrap(), roles.server.unwrap());
    // RTP headers, each with 160 octets of voice.
    let octets = 20 * 8 * 172;
    assert_eq!((client.sent_octets, server.received_octets), (octets, octets), "{client:?}");
    // Frames that a server sends after its client has ended are not received.
    assert_eq!((client.requests, server.sent_octets), (None, octets));
}

#[test]
fn requests_that_a_server_closes_before_are_named_and_a_client_with_others_is_complete() {
    let server = "server = ['loop 2', 'recv_until \"\\r\\n\\r\\n\"', 'send ok', 'end', \
                  'recv_until \"\\r\\n\\r\\n\"', 'send last', 'close', 'wait_peer_close']\n\
                  messages = { get = 'GET / HTTP/1.1\\r\\n\\r\\n', ok = 'HTTP/1.1 200 \
                  OK\\r\\nContent-Length: 5\\r\\n\\r\\nhello', last = 'HTTP/1.1 200 \
                  OK\\r\\nConnection: close\\r\\nContent-Length: 5\\r\\n\\r\\nhello' }";
    for (requests, (completed, sent), valid) in [(3, (6, 18), true), (4, (0, 18), false)] {
        let web = format!(
            "listen = 80\ncps = 200\nlimit = 6\n{server}\nclient = ['loop {requests}', 'send get', \
             'http_response', 'end', 'close']"
        );
        let report = run(&format!("early-{requests}"), "", &template("web", &web));
        let client = report.flows.as_ref().unwrap().total.client.clone().unwrap();
        let asked = RequestsReport { asked: 6 * requests, sent, answered: 18 };
        assert_eq!(client.requests, Some(asked), "{client:?}");
        assert_eq!((client.completed, client.failures()), (completed, 6 - completed));
        let early = client.protocol_errors.get("closed_early").copied().unwrap_or(0);
        assert_eq!((early, client.lacks_requests()), (6 - completed, !valid));
        let none = |reason: &Reason| reason.text.contains("none of 6 flows completed");
        assert_eq!(report.verdict.reasons.iter().any(none), !valid, "{:?}", report.verdict);
        let text = squall_report::render::summary(&report, 120, false);
        assert_eq!(text.contains("requests: 24 asked, 18 sent, 18 answered"), !valid, "{text}");
    }
}
