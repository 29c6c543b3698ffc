//! Requests of BGP, and the errors in invalid ones.

use serde_json::{Value, json};
use squall_bgp::{Notification, Origin};
use squall_otg::replies::{
    ControlAction, ControlState, MetricsRequest, PrefixFilter, StatesRequest,
};
use squall_router::observe::Protocol;
use squall_units::Nanos;

fn action(bgp: Value) -> Result<ControlAction, Vec<String>> {
    let message = json!({ "choice": "protocol", "protocol": { "choice": "bgp", "bgp": bgp } });
    ControlAction::from_json(&message).map_err(|problems| problems.texts())
}

fn notification(mut members: Value) -> Result<ControlAction, Vec<String>> {
    members["names"] = json!(["b"]);
    action(json!({ "choice": "notification", "notification": members }))
}

#[test]
fn notifications_have_the_codes_of_their_words() {
    for (members, code, subcode) in [
        (json!({}), 6, 2),
        (json!({ "choice": "cease", "cease": { "subcode": "hard_reset_code6_subcode9" } }), 6, 9),
        (json!({ "message_header_error": { "subcode": "bad_message_type_code1_subcode3" } }), 1, 3),
        (json!({ "choice": "open_message_error" }), 2, 1),
        (
            json!({ "update_message_error": { "subcode": "abnormal_aspath_code3_subcode11" } }),
            3,
            11,
        ),
        (json!({ "choice": "hold_timer_expired" }), 4, 0),
        (json!({ "choice": "finite_state_machine_error" }), 5, 0),
        (json!({ "custom": { "code": 200, "subcode": 7 } }), 200, 7),
    ] {
        let expected = ControlAction::Notify {
            peers: vec!["b".into()],
            notification: Notification::new(code, subcode),
        };
        assert_eq!(notification(members), Ok(expected));
    }
    let missing = notification(json!({ "custom": { "code": 256 } })).expect_err("two problems");
    let at = "protocol.bgp.notification.custom";
    let expected = [
        format!("{at}.code: found 256, expected a whole number up to 255"),
        format!("{at}.subcode: missing: expected 0 to 255"),
    ];
    assert_eq!(missing, expected);
    let late = notification(json!({ "fin_delay": 5 })).expect_err("it is not supported");
    assert!(late[0].starts_with("protocol.bgp.notification.fin_delay: not supported"), "{late:?}");
}

#[test]
fn restarts_are_graceful_after_a_delay() {
    let restart = |members: Value| {
        action(json!({
            "choice": "initiate_graceful_restart", "initiate_graceful_restart": members,
        }))
    };
    let of = |seconds: u64, peers: &[&str]| ControlAction::Restart {
        peers: peers.iter().map(|peer| (*peer).to_owned()).collect(),
        after: Nanos(seconds * Nanos::SECOND.0),
    };
    assert_eq!(restart(json!({})), Ok(of(30, &[])));
    let given = json!({ "peer_names": ["b"], "restart_delay": 0 });
    assert_eq!(restart(given), Ok(of(0, &["b"])));
    let notifies = restart(json!({ "notification": {} })).expect_err("it is not supported");
    assert!(notifies[0].contains("initiate_graceful_restart.notification: not supported"));
}

#[test]
fn states_of_sessions_and_ranges_are_read() {
    let state = |protocol: Value| {
        ControlState::from_json(&json!({ "choice": "protocol", "protocol": protocol }))
            .map_err(|problems| problems.texts())
    };
    let route = json!({ "choice": "route", "route": { "names": ["r"], "state": "advertise" } });
    assert_eq!(state(route), Ok(ControlState::Routes { names: vec!["r".into()], advertise: true }));
    let peers = json!({ "choice": "peers", "peers": { "state": "up" } });
    let peers = json!({ "choice": "bgp", "bgp": peers });
    assert_eq!(state(peers), Ok(ControlState::BgpPeers { names: Vec::new(), up: true }));
    let without = state(json!({ "choice": "route", "route": {} })).expect_err("no state");
    assert!(without[0].starts_with("protocol.route.state: missing"), "{without:?}");
    let other = state(json!({ "choice": "rocev2", "rocev2": {} })).expect_err("not supported");
    assert!(other[0].starts_with("protocol.rocev2: not supported"), "{other:?}");
}

#[test]
fn states_and_metrics_of_routers_are_read() {
    let state = |key: &str, of: Value| {
        let message = json!({ "choice": "protocol", "protocol": { "choice": key, key: of } });
        ControlState::from_json(&message).map_err(|problems| problems.texts())
    };
    for (key, protocol) in
        [("ospfv2", Protocol::Ospf2), ("ospfv3", Protocol::Ospf3), ("isis", Protocol::Isis)]
    {
        let down = json!({ "choice": "routers", "routers": {
            "router_names": ["r"], "state": "down" } });
        let expected = ControlState::Routers { protocol, names: vec!["r".into()], up: false };
        assert_eq!(state(key, down), Ok(expected));
        let request = json!({ "choice": key, key: { "column_names": ["hellos_sent"] } });
        let columns = vec!["hellos_sent".to_owned()];
        let expected = MetricsRequest::Routers { protocol, names: Vec::new(), columns };
        assert_eq!(MetricsRequest::from_json(&request), Ok(expected));
    }
    let links = json!({ "choice": "simulated_links", "simulated_links": { "state": "up" } });
    let refused = state("ospfv2", links).expect_err("there are none");
    let at = "protocol.ospfv2.simulated_links: not supported";
    assert!(refused[0].starts_with(at), "{refused:?}");
}

#[test]
fn filters_of_prefixes_are_read() {
    let read = |request: Value| {
        let message = json!({ "choice": "bgp_prefixes", "bgp_prefixes": request });
        StatesRequest::from_json(&message).map_err(|problems| problems.texts())
    };
    let all = StatesRequest::BgpPrefixes {
        peers: Vec::new(),
        families: [true; 2],
        filters: [Vec::new(), Vec::new()],
    };
    assert_eq!(read(json!({})), Ok(all));
    let filter = PrefixFilter {
        addresses: vec!["2001:db8::".parse().unwrap()],
        length: Some(48),
        origin: Some(Origin::Incomplete),
        path: Some(7),
    };
    let some = StatesRequest::BgpPrefixes {
        peers: vec!["b".into()],
        families: [false, true],
        filters: [Vec::new(), vec![filter, PrefixFilter::default()]],
    };
    let request = json!({
        "bgp_peer_names": ["b"], "prefix_filters": ["ipv6_unicast"],
        "ipv6_unicast_filters": [
            {
                "addresses": ["2001:db8::"], "prefix_length": 48, "origin": "incomplete",
                "path_id": 7,
            },
            {},
        ],
    });
    assert_eq!(read(request), Ok(some));
    let wrong = read(json!({
        "prefix_filters": ["ipv4_mpls_unicast"],
        "ipv4_unicast_filters": [{ "addresses": ["2001:db8::"] }],
    }));
    let expected = [
        "bgp_prefixes.prefix_filters: found \"ipv4_mpls_unicast\", expected ipv4_unicast or \
         ipv6_unicast",
        "bgp_prefixes.ipv4_unicast_filters[0].addresses: found \"2001:db8::\", expected IPv4 \
         addresses",
    ];
    assert_eq!(wrong.expect_err("two problems"), expected);
}
