//! Tests the OTG state machine with in-memory ports.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use squall_control::driving::InProcess;
use squall_otg::Controller;

/// Two connected ports, and flows from the first to the second.
fn config(link: &str, flows: &[Value]) -> Value {
    json!({
        "ports": [
            { "name": "p1", "location": format!("loop:otg-{link}") },
            { "name": "p2", "location": format!("loop:otg-{link}") },
        ],
        "flows": flows,
    })
}

fn flow(name: &str, pps: u64, duration: Value) -> Value {
    json!({
        "name": name,
        "tx_rx": { "choice": "port", "port": { "tx_name": "p1", "rx_names": ["p2"] } },
        "packet": [
            { "choice": "ethernet", "ethernet": { "dst": { "choice": "value", "value": "00:00:00:00:00:02" } } },
            { "choice": "ipv4", "ipv4": { "src": { "value": "10.0.0.1" }, "dst": { "value": "10.0.0.2" } } },
            { "choice": "udp", "udp": {} },
        ],
        "size": { "choice": "fixed", "fixed": 128 },
        "rate": { "choice": "pps", "pps": pps.to_string() },
        "duration": duration,
        "metrics": { "enable": true, "loss": true, "timestamps": true, "latency": { "enable": true } },
    })
}

fn packets(n: u64) -> Value {
    json!({ "choice": "fixed_packets", "fixed_packets": { "packets": n } })
}

fn forever() -> Value {
    json!({ "choice": "continuous" })
}

struct Client(Controller);

impl Client {
    fn with(config: &Value) -> Self {
        let mut otg = Controller::new(Box::<InProcess>::default());
        let reply = otg.set_config(config).unwrap_or_else(|refusal| panic!("{refusal:?}"));
        assert_eq!(reply, json!({ "warnings": [] }));
        Self(otg)
    }

    fn traffic(&mut self, state: &str, flows: &[&str]) {
        let transmit = json!({ "state": state, "flow_names": flows });
        let message = json!({ "choice": "traffic", "traffic": { "choice": "flow_transmit", "flow_transmit": transmit } });
        self.0.control_state(&message).unwrap_or_else(|refusal| panic!("{state}: {refusal:?}"));
    }

    fn capture(&mut self, state: &str) {
        let message = json!({ "choice": "port", "port": { "choice": "capture", "capture": { "state": state } } });
        self.0.control_state(&message).unwrap_or_else(|refusal| panic!("{state}: {refusal:?}"));
    }

    /// Metrics by flow or port name.
    fn metrics(&mut self, choice: &str) -> Vec<Value> {
        let reply = self.0.metrics(&json!({ "choice": choice })).expect("metrics");
        assert_eq!(reply["choice"], format!("{choice}_metrics"));
        reply[format!("{choice}_metrics")].as_array().expect("a list").clone()
    }

    fn flow(&mut self, name: &str) -> Value {
        let all = self.metrics("flow");
        all.iter()
            .find(|flow| flow["name"] == name)
            .unwrap_or_else(|| panic!("{name} in {all:?}"))
            .clone()
    }

    fn wait(&mut self, what: &str, mut until: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !until(self) {
            assert!(Instant::now() < deadline, "{what}: {:?}", self.metrics("flow"));
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Waits until a flow has stopped sending.
    fn wait_still(&mut self, flow: &str) {
        self.wait("it sends nothing", |client| {
            let before = client.flow(flow)["frames_tx"].clone();
            std::thread::sleep(Duration::from_millis(250));
            client.flow(flow)["frames_tx"] == before
        });
    }

    fn wait_stopped(&mut self) {
        self.wait("all flows end", |client| {
            client.metrics("flow").iter().all(|flow| flow["transmit"] == "stopped")
        });
        // When the run is over, frames in flight have arrived.
        self.wait("all frames come", |client| {
            client.metrics("flow").iter().all(|flow| flow["frames_rx"] == flow["frames_tx"])
        });
    }
}

fn count(of: &Value, name: &str) -> u64 {
    of[name].as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{name} in {of}"))
}

#[test]
fn fixed_packets_are_counted_on_flows_and_ports_and_the_counts_stay_when_all_is_sent() {
    let mut client = Client::with(&config(
        "fixed",
        &[flow("f1", 10_000, packets(300)), flow("f2", 5_000, packets(200))],
    ));
    assert_eq!(count(&client.flow("f1"), "frames_tx"), 0);
    client.traffic("start", &[]);
    client.wait_stopped();
    let f1 = client.flow("f1");
    assert_eq!(
        (count(&f1, "frames_tx"), count(&f1, "frames_rx"), count(&f1, "bytes_rx")),
        (300, 300, 300 * 128)
    );
    assert_eq!(
        (&f1["loss"], &f1["port_tx"], &f1["port_rx"], &f1["frames_tx_rate"]),
        (&json!(0), &json!("p1"), &json!("p2"), &json!(0))
    );
    let instant = |which: &str| f1["timestamps"][which].as_u64().expect("nanoseconds");
    let (first, last) = (instant("first_timestamp_ns"), instant("last_timestamp_ns"));
    // The arrival times are in this century.
    assert!(first > 1_600_000_000_000_000_000 && last > first, "{f1}");
    assert!(f1["latency"]["minimum_ns"].as_f64() <= f1["latency"]["average_ns"].as_f64(), "{f1}");
    let ports = client.metrics("port");
    assert_eq!((count(&ports[0], "frames_tx"), count(&ports[0], "frames_rx")), (500, 0));
    assert_eq!((count(&ports[1], "frames_tx"), count(&ports[1], "frames_rx")), (0, 500));
    assert_eq!(
        (&ports[0]["transmit"], &ports[0]["link"], &ports[1]["capture"]),
        (&json!("stopped"), &json!("up"), &json!("stopped"))
    );
}

#[test]
fn start_clears_what_was_counted_and_resume_after_stop_does_not() {
    let mut client = Client::with(&config("clear", &[flow("f1", 10_000, packets(100))]));
    for _ in 0..2 {
        client.traffic("start", &[]);
        client.wait_stopped();
        assert_eq!(count(&client.flow("f1"), "frames_rx"), 100);
    }
    client.traffic("resume", &[]);
    client.wait("100 more are sent", |client| count(&client.flow("f1"), "frames_rx") == 200);
    assert_eq!(count(&client.metrics("port")[1], "frames_rx"), 200);
}

#[test]
fn flows_start_and_stop_each_by_itself_in_one_run() {
    let mut client = Client::with(&config(
        "apart",
        &[
            flow("f1", 5_000, forever()),
            flow("f2", 5_000, packets(50)),
            flow("f3", 1_000, forever()),
        ],
    ));
    client.traffic("start", &["f1"]);
    client.wait("f1 is received", |client| count(&client.flow("f1"), "frames_rx") > 100);
    assert_eq!(
        (client.flow("f2")["transmit"].as_str(), count(&client.flow("f3"), "frames_tx")),
        (Some("stopped"), 0)
    );
    client.traffic("start", &["f2"]);
    client.wait("f2 ends", |client| {
        client.flow("f2")["transmit"] == "stopped" && count(&client.flow("f2"), "frames_rx") == 50
    });
    // Start f2 again while f1 continues: f2 counts from zero again, up to the same total.
    client.traffic("start", &["f2"]);
    client.wait("f2 ends again", |client| {
        client.flow("f2")["transmit"] == "stopped" && count(&client.flow("f2"), "frames_rx") == 50
    });
    client.traffic("start", &["f3"]);
    client.wait("f3 is received", |client| count(&client.flow("f3"), "frames_rx") > 10);
    client.traffic("stop", &["f1"]);
    let before = count(&client.flow("f3"), "frames_rx");
    client.wait("f3 goes on", |client| count(&client.flow("f3"), "frames_rx") > before + 50);
    let stopped = client.flow("f1");
    assert_eq!((&stopped["transmit"], &stopped["frames_tx_rate"]), (&json!("stopped"), &json!(0)));
    client.wait_still("f1");
    client.traffic("stop", &[]);
    client.wait_stopped();
    assert_eq!(count(&client.flow("f1"), "frames_tx"), count(&client.flow("f1"), "frames_rx"));
}

#[test]
fn a_paused_flow_sends_nothing_and_goes_on_where_it_was() {
    let mut client = Client::with(&config("pause", &[flow("f1", 2_000, forever())]));
    client.traffic("start", &[]);
    client.wait("it is received", |client| count(&client.flow("f1"), "frames_rx") > 50);
    assert_eq!(client.flow("f1")["transmit"], "started");
    client.traffic("pause", &[]);
    client.wait_still("f1");
    let paused = client.flow("f1");
    assert_eq!(paused["transmit"], "paused");
    client.traffic("resume", &[]);
    let before = count(&paused, "frames_tx");
    client.wait("it goes on", |client| count(&client.flow("f1"), "frames_rx") > before + 50);
    client.traffic("stop", &[]);
    client.wait_stopped();
    assert_eq!(client.flow("f1")["loss"], json!(0));
}

#[test]
fn flows_are_appended_updated_and_deleted_while_others_are_sent() {
    let mut client = Client::with(&config("change", &[flow("f1", 1_000, forever())]));
    client.traffic("start", &[]);
    client.wait("it is received", |client| count(&client.flow("f1"), "frames_rx") > 50);
    let append = json!({ "config_append_list": [{ "choice": "flows", "flows": [flow("f2", 1_000, packets(20))] }] });
    client.0.append_config(&append).expect("it is new");
    client.traffic("start", &["f2"]);
    client.wait("f2 ends", |client| count(&client.flow("f2"), "frames_rx") == 20);
    let before = count(&client.flow("f1"), "frames_rx");
    let faster = flow("f1", 5_000, forever());
    let update =
        json!({ "choice": "flows", "flows": { "property_names": ["rate"], "flows": [faster] } });
    client.0.update_config(&update).expect("it is there");
    client.wait("it is faster, and was not counted anew", |client| {
        let f1 = client.flow("f1");
        f1["frames_tx_rate"].as_f64() > Some(2_500.0) && count(&f1, "frames_rx") > before
    });
    let delete = json!({ "config_delete_list": [{ "choice": "flows", "flows": ["f2"] }] });
    client.0.delete_config(&delete).expect("it is there");
    assert_eq!(client.metrics("flow").len(), 1);
    assert_eq!(client.0.config()["flows"].as_array().map(Vec::len), Some(1));
    client.0.stop_all();
    assert_eq!(client.flow("f1")["transmit"], "stopped");
}

#[test]
fn each_start_of_a_flow_counts_from_zero_while_another_is_sent() {
    let flows = [flow("f1", 1_000, forever()), flow("f2", 2_000, packets(20))];
    let mut client = Client::with(&config("again", &flows));
    client.traffic("start", &["f1"]);
    for _ in 0..5 {
        client.traffic("start", &["f2"]);
        client.wait("f2 ends", |client| client.flow("f2")["transmit"] == "stopped");
        client.wait("all is received", |client| count(&client.flow("f2"), "frames_rx") >= 20);
        let f2 = client.flow("f2");
        assert_eq!((count(&f2, "frames_tx"), count(&f2, "frames_rx")), (20, 20));
    }
    assert_eq!(client.flow("f1")["transmit"], "started");
    client.0.stop_all();
}

#[test]
fn a_capture_has_every_frame_of_its_port_with_its_fcs() {
    for format in ["pcap", "pcapng"] {
        let mut config = config(format, &[flow("f1", 1_000, packets(10))]);
        config["captures"] = json!([{ "name": "c1", "port_names": ["p2"], "format": format }]);
        let mut client = Client::with(&config);
        client.0.capture(&json!({ "port_name": "p2" })).expect_err("nothing was captured");
        client.capture("start");
        assert_eq!(client.metrics("port")[1]["capture"], "started");
        client.traffic("start", &[]);
        client.wait_stopped();
        client.traffic("stop", &[]);
        client.capture("stop");
        assert_eq!(client.metrics("port")[1]["capture"], "stopped");
        let octets = client.0.capture(&json!({ "port_name": "p2" })).expect("a capture");
        let mut reader = squall_pcap::CaptureReader::from_read(&octets[..]).expect("a capture");
        let mut frames = 0;
        while let Some(packet) = reader.next().expect("a whole one") {
            assert_eq!((packet.data.len(), packet.wire_len), (128, 128), "with FCS");
            frames += 1;
        }
        assert_eq!(frames, 10);
        let first = client.0.capture(&json!({ "port_name": "p2", "packets": {
            "choice": "slice", "slice": { "choice": "initial", "initial": { "count": "3" } } } }));
        assert!(first.expect("a part of it").len() < octets.len() / 2);
    }
}

#[test]
fn invalid_requests_are_refused_with_their_place_and_change_nothing() {
    let mut client = Client::with(&config("wrong", &[flow("f1", 1_000, packets(10))]));
    let mut other = config("wrong", &[flow("f1", 1_000, packets(10))]);
    other["flows"][0]["tx_rx"]["port"]["tx_name"] = json!("p9");
    other["flows"][0]["packet"][2] = json!({ "choice": "nonsense" });
    let refusal = client.0.set_config(&other).expect_err("two mistakes");
    assert_eq!((refusal.code, refusal.kind.as_str(), refusal.errors.len()), (400, "validation", 2));
    assert!(refusal.errors.iter().any(|error| error.contains("flows[0].packet[2]")), "{refusal:?}");
    assert_eq!(client.metrics("flow").len(), 1);
    let message = json!({ "choice": "traffic", "traffic": { "choice": "flow_transmit", "flow_transmit": {
        "state": "start", "flow_names": ["f2"] } } });
    let refusal = client.0.control_state(&message).expect_err("no such flow");
    assert!(refusal.errors[0].contains("f2") && refusal.errors[0].contains("f1"), "{refusal:?}");
    client.0.metrics(&json!({ "choice": "rsvp" })).expect_err("not supported");
    client.0.capture(&json!({ "port_name": "p7" })).expect_err("no such port");
    let link =
        json!({ "choice": "port", "port": { "choice": "link", "link": { "state": "down" } } });
    let refusal = client.0.control_state(&link).expect_err("a loop has no link");
    assert!(refusal.errors[0].contains("loop:"), "{refusal:?}");
}

#[test]
fn traffic_resolves_gateways_and_leaves_dhcp_to_the_protocols() {
    let device = |number: u8, port: &str| {
        json!({ "name": format!("d{number}"), "ethernets": [{
            "name": format!("e{number}"),
            "connection": { "choice": "port_name", "port_name": port },
            "ipv4_addresses": [{
                "name": format!("i{number}"), "address": format!("10.0.0.{number}"),
                "gateway": "10.0.0.9",
            }],
            "dhcpv4_interfaces": [{ "name": format!("c{number}") }],
        }] })
    };
    let mut flow = flow("f1", 1_000, packets(10));
    flow["tx_rx"] = json!({ "choice": "device", "device": {
        "tx_names": ["i1"], "rx_names": ["i2"] } });
    flow["packet"][0] = json!({ "choice": "ethernet" });
    let mut config = config("gateways", &[flow]);
    config["devices"] = json!([device(1, "p1"), device(2, "p2")]);
    let mut client = Client::with(&config);
    let message = json!({ "choice": "traffic", "traffic": { "choice": "flow_transmit",
        "flow_transmit": { "state": "start" } } });
    // DHCP cannot start on these ports, which are no interfaces.
    let refusal = client.0.control_state(&message).expect_err("there is no gateway");
    assert!(refusal.errors[0].contains("gateway 10.0.0.9 of e1"), "{refusal:?}");
    let message = json!({ "choice": "protocol", "protocol": { "choice": "all", "all": {
        "state": "start" } } });
    let refusal = client.0.control_state(&message).expect_err("no interface");
    assert!(refusal.errors[0].contains("DHCP of"), "{refusal:?}");
}

#[test]
fn protocols_of_ports_need_interfaces_and_have_metrics_before_their_start() {
    let mut config = config("protocols", &[]);
    config["lags"] = json!([{ "name": "lag", "ports": [
        { "port_name": "p1", "ethernet": { "name": "e1" } } ] }]);
    config["lldp"] = json!([{ "name": "l1", "connection": { "port_name": "p2" } }]);
    let mut client = Client::with(&config);
    let mut metrics = |kind: &str, columns: Value| {
        let request = json!({ "choice": kind, kind: { "column_names": columns } });
        (*client.0.metrics(&request).expect("they are there")).clone()
    };
    assert_eq!(
        metrics("lag", json!(["oper_status", "member_ports_up", "frames_tx"])),
        json!({ "choice": "lag_metrics", "lag_metrics": [{
            "name": "lag", "oper_status": "down", "member_ports_up": 0, "frames_tx": "0",
        }] })
    );
    assert_eq!(
        metrics("lacp", json!(["system_id", "collecting", "port_num", "lacp_packets_tx"])),
        json!({ "choice": "lacp_metrics", "lacp_metrics": [{
            "lag_name": "lag", "lag_member_port_name": "p1", "system_id": "02:53:53:00:00:01",
            "collecting": false, "port_num": 1, "lacp_packets_tx": "0",
        }] })
    );
    assert_eq!(
        metrics("lldp", json!(["frames_tx"])),
        json!({ "choice": "lldp_metrics", "lldp_metrics": [{ "name": "l1", "frames_tx": "0" }] })
    );
    let states = client.0.states(&json!({ "choice": "lldp_neighbors" })).expect("none");
    assert_eq!(states, json!({ "choice": "lldp_neighbors", "lldp_neighbors": [] }));
    let wrong = json!({ "choice": "lacp", "lacp": { "lag_names": ["lug"] } });
    let refusal = client.0.metrics(&wrong).expect_err("no such LAG");
    assert!(refusal.errors[0].contains("LAG \"lug\"\n  "), "{refusal:?}");

    let mut refused = |protocol: Value| {
        let message = json!({ "choice": "protocol", "protocol": protocol });
        client.0.control_state(&message).expect_err("refused").errors.remove(0)
    };
    let admin = |ports: Value| {
        let admin = json!({ "state": "down", "lag_member_names": ports });
        json!({ "choice": "lacp", "lacp": { "choice": "admin", "admin": admin } })
    };
    assert!(refused(admin(json!(["p1"]))).contains("LACP is not started"));
    assert!(refused(admin(json!(["p2"]))).contains("cannot find port of a LAG \"p2\""));
    let why = refused(json!({ "choice": "all", "all": { "state": "start" } }));
    assert!(why.contains("cannot start LACP of \"lag\""), "{why}");
}

#[test]
fn sessions_need_interfaces_and_have_metrics_before_their_start() {
    let mut config = config("sessions", &[]);
    config["devices"] = json!([{
        "name": "d1",
        "ethernets": [{
            "name": "e1", "connection": { "choice": "port_name", "port_name": "p1" },
            "ipv4_addresses": [{ "name": "i1", "address": "10.0.0.1", "gateway": "10.0.0.2" }],
        }],
        "bgp": { "router_id": "192.0.2.1", "ipv4_interfaces": [{
            "ipv4_name": "i1",
            "peers": [{
                "name": "b1", "peer_address": "10.0.0.2", "as_type": "ebgp", "as_number": 65001,
                "v4_routes": [{ "name": "r1", "addresses": [{ "address": "198.51.100.0" }] }],
            }],
        }] },
    }]);
    let mut client = Client::with(&config);
    let request = json!({ "choice": "bgpv4", "bgpv4": {
        "column_names": ["session_state", "fsm_state", "routes_advertised"] } });
    assert_eq!(
        *client.0.metrics(&request).expect("they are there"),
        json!({ "choice": "bgpv4_metrics", "bgpv4_metrics": [{
            "name": "b1", "session_state": "down", "fsm_state": "idle", "routes_advertised": "0",
        }] })
    );
    let none = client.0.metrics(&json!({ "choice": "bgpv6" })).expect("of the other version");
    assert_eq!(*none, json!({ "choice": "bgpv6_metrics", "bgpv6_metrics": [] }));
    let request = json!({ "choice": "bgp_prefixes", "bgp_prefixes": {
        "bgp_peer_names": ["b1"], "prefix_filters": ["ipv4_unicast"] } });
    assert_eq!(
        client.0.states(&request).expect("none"),
        json!({ "choice": "bgp_prefixes", "bgp_prefixes": [{
            "bgp_peer_name": "b1", "ipv4_unicast_prefixes": [], "ipv6_unicast_prefixes": [],
        }] })
    );

    let mut refused = |protocol: Value| {
        let message = json!({ "choice": "protocol", "protocol": protocol });
        client.0.control_state(&message).expect_err("refused").errors.remove(0)
    };
    let routes = |names: Value| {
        let route = json!({ "names": names, "state": "withdraw" });
        json!({ "choice": "route", "route": route })
    };
    assert!(refused(routes(json!([]))).contains("protocols are not started"));
    assert!(refused(routes(json!(["r2"]))).contains("cannot find range of routes \"r2\""));
    let peers = json!({ "peer_names": ["b2"], "state": "down" });
    let why = refused(json!({ "choice": "bgp", "bgp": { "choice": "peers", "peers": peers } }));
    assert!(why.contains("cannot find BGP session \"b2\""), "{why}");
    let why = refused(json!({ "choice": "all", "all": { "state": "start" } }));
    assert!(why.contains("cannot start BGP of \"b1\""), "{why}");

    let mut action = |bgp: Value| {
        let action = json!({ "choice": "bgp", "bgp": bgp });
        let message = json!({ "choice": "protocol", "protocol": action });
        client.0.control_action(&message).expect_err("refused").errors.remove(0)
    };
    let restart = json!({ "peer_names": ["b1"] });
    let why = action(json!({
        "choice": "initiate_graceful_restart", "initiate_graceful_restart": restart,
    }));
    assert_eq!(why, "peer_names: \"b1\" has no graceful_restart.enable_gr");
    let why = action(json!({ "choice": "notification", "notification": { "names": ["b1"] } }));
    assert!(why.contains("protocols are not started"), "{why}");
}

#[test]
fn routers_need_interfaces_and_have_metrics_before_their_start() {
    let mut config = config("routers", &[]);
    config["devices"] = json!([{
        "name": "d1",
        "ethernets": [{
            "name": "e1", "connection": { "choice": "port_name", "port_name": "p1" },
            "ipv4_addresses": [{ "name": "i1", "address": "10.0.0.1", "gateway": "10.0.0.2" }],
        }],
        "ospfv2": {
            "name": "o1", "store_lsa": true,
            "interfaces": [{ "name": "x", "ipv4_name": "i1" }],
            "v4_routes": [
                { "name": "r1", "metric": 10, "addresses": [{ "address": "198.51.100.0" }] },
            ],
        },
    }]);
    let mut client = Client::with(&config);
    let request = json!({ "choice": "ospfv2", "ospfv2": {
        "column_names": ["full_state_count", "down_state_count", "router_lsa_received"] } });
    assert_eq!(
        *client.0.metrics(&request).expect("they are there"),
        json!({ "choice": "ospfv2_metrics", "ospfv2_metrics": [{
            "name": "o1", "full_state_count": "0", "router_lsa_received": "0",
        }] })
    );
    for choice in ["ospfv3", "isis"] {
        let metrics = format!("{choice}_metrics");
        let none = client.0.metrics(&json!({ "choice": choice })).expect("of other protocols");
        assert_eq!(*none, json!({ "choice": metrics, metrics.as_str(): [] }));
    }
    assert_eq!(
        client.0.states(&json!({ "choice": "ospfv2_lsas" })).expect("none"),
        json!({ "choice": "ospfv2_lsas", "ospfv2_lsas": [{ "router_name": "o1" }] })
    );
    let isis = json!({ "choice": "isis_lsps", "isis_lsps": { "isis_router_names": ["o1"] } });
    let why = client.0.states(&isis).expect_err("of another protocol").errors.remove(0);
    assert!(why.starts_with("isis_router_names: cannot find router \"o1\""), "{why}");

    let mut refused = |protocol: Value| {
        let message = json!({ "choice": "protocol", "protocol": protocol });
        client.0.control_state(&message).expect_err("refused").errors.remove(0)
    };
    let route = json!({ "names": ["r1"], "state": "withdraw" });
    let why = refused(json!({ "choice": "route", "route": route }));
    assert!(why.contains("protocols are not started"), "{why}");
    let routers = json!({ "choice": "routers", "routers": { "state": "down" } });
    let why = refused(json!({ "choice": "ospfv2", "ospfv2": routers }));
    assert!(why.contains("protocols are not started"), "{why}");
    let why = refused(json!({ "choice": "all", "all": { "state": "start" } }));
    assert!(why.contains("cannot start OSPFv2 of \"o1\""), "{why}");
}

#[test]
fn a_request_without_more_than_a_choice_is_answered() {
    let mut client = Client::with(&json!({}));
    assert_eq!(
        *client.0.metrics(&json!({})).expect("ports"),
        json!({ "choice": "port_metrics", "port_metrics": [] })
    );
    assert_eq!(client.0.config(), json!({}));
    assert_eq!(Controller::version()["api_spec_version"], "^1.0.0");
    client.traffic("start", &[]);
    client.traffic("stop", &[]);
    let protocols = json!({ "choice": "protocol", "protocol": { "choice": "all", "all": { "state": "start" } } });
    client.0.control_state(&protocols).expect("nothing to do");
}
