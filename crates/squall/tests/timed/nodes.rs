//! Flows whose clients are on one node and whose servers are on another: each has the other's port
//! as `elsewhere:`, and together they are what one node with both ports is.

use std::thread;

use squall::{Format, Profile, Session, report::Report};

const FLOWS: &str = r#"
ports = { C = "null:", S = "null:" }
[flows]
clients = "C"
servers = "S"
limit = 60
patience = "60 s"
[[template]]
name = "ping"
transport = "udp"
port = 53
clients = "16.0.0.0/28"
servers = "48.0.0.1"
cps = 300
client = ['send_packet "ping"', 'recv_packet_octets 4', 'close']
server = ['recv_packet_octets 4', 'send_packet "pong"']
[[template]]
name = "web"
app = "http"
clients = "16.0.1.0/28"
servers = "48.0.0.1"
cps = 100
"#;

fn session(ports: [&str; 2], stop: &str) -> Session {
    let text = format!("{stop}\n{FLOWS}");
    let mut profile =
        Profile::parse(&text, "nodes", Format::Toml).unwrap_or_else(|e| panic!("{e}"));
    profile.ports.iter_mut().zip(ports).for_each(|(port, address)| port.address = address.into());
    Session::new(profile)
}

#[test]
fn clients_and_servers_of_different_nodes_play_the_flows_of_one() {
    let alone = session(["loop:nodes-one", "loop:nodes-one"], "");
    let alone = alone.open().unwrap().start().unwrap().finish().unwrap();
    // Both are there before either begins.
    let servers = session(["elsewhere:a", "loop:nodes-two"], "").open().unwrap();
    let clients = session(["loop:nodes-two", "elsewhere:b"], "").open().unwrap();
    let servers = servers.start().unwrap();
    let clients = clients.start().unwrap().finish().unwrap();
    servers.stop();
    let servers = thread::spawn(|| servers.finish().unwrap()).join().unwrap();
    assert!(clients.flows.as_ref().unwrap().total.server.is_none());
    assert!(servers.flows.as_ref().unwrap().total.client.is_none());
    let whole = squall::whole(vec![("a".into(), clients), ("b".into(), servers)]).unwrap();
    let count = |report: &Report| -> Vec<_> {
        let templates = report.flows.as_ref().unwrap().templates.iter();
        let of = |role: &Option<squall::report::flows::RoleReport>| {
            role.as_ref().map(|r| (r.attempted, r.completed, r.received_octets, r.sent_octets))
        };
        templates.map(|t| (t.name.clone(), of(&t.roles.client), of(&t.roles.server))).collect()
    };
    assert_eq!(count(&whole), count(&alone));
    assert!(count(&whole)[0].2.is_some_and(|server| server.1 > 0));
    let ports: Vec<_> = whole.ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(ports, ["C", "S"]);
}
