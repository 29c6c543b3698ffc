//! TRex's settings of flows, one by one: each changes a flow's packets, or is refused.

use std::{collections::BTreeMap, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use squall::RunOptions;
use squall_options::{CaptureOptions, Time};
use squall_units::Nanos;

use super::{Scratch, flows, frames::Found, packets_of, run};
use crate::{Astf, File, FlowSetting};

const PSH: u8 = 8;
const ACK: u8 = 16;
const MILLISECOND: u64 = 1_000_000;

/// A request of 100 octets, and a response of 30,000.
fn download() -> [Vec<Value>; 2] {
    let client =
        [json!({ "name": "tx", "buf_index": 0 }), json!({ "name": "rx", "min_bytes": 30_000 })];
    let server =
        [json!({ "name": "rx", "min_bytes": 100 }), json!({ "name": "tx", "buf_index": 1 })];
    [client.into(), server.into()]
}

/// A request after ten seconds of silence.
fn silence() -> [Vec<Value>; 2] {
    let [mut client, server] = download();
    client.insert(0, json!({ "name": "delay", "usec": 10_000_000 }));
    [client, server]
}

/// A profile of one template with these programs, and one setting of the profile or the template.
fn profile(programs: &[Vec<Value>; 2], limit: Option<u64>) -> Value {
    let buffer = |octets: u32| json!({ "base": STANDARD.encode("a"), "size": octets });
    let range =
        |start: &str, end: &str| json!({ "ip_start": start, "ip_end": end, "distribution": "seq" });
    let [client, server] = programs;
    json!({
        "buf_list": [buffer(100), buffer(30_000)],
        "ip_gen_dist_list": [range("16.0.0.1", "16.0.0.9"), range("48.0.0.1", "48.0.0.9")],
        "program_list": [{ "commands": client }, { "commands": server }],
        "templates": [{
            "client_template": {
                "program_index": 0, "port": 80, "cps": 10.0, "limit": limit,
                "ip_gen": { "dist_client": { "index": 0 }, "dist_server": { "index": 1 } },
            },
            "server_template": { "program_index": 1 },
        }],
    })
}

/// The packets within 15 seconds over a link with `faults`.
fn wire(value: &Value, faults: &str) -> Result<Vec<Found>, String> {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let ports = [format!("loop:wire-{number},virtual,max_frame=9018{faults}")];
    let tunables = BTreeMap::new();
    let path = Path::new("wire.json");
    let file = File {
        path,
        library: None,
        tunables: &tunables,
        ports: &ports,
        headers: false,
        clusters: None,
    };
    let scratch = Scratch::new().map_err(|error| error.to_string())?;
    let out = scratch.0.join("wire.pcap");
    let options = RunOptions {
        duration: Some(Time(Nanos(15_000_000_000))),
        capture: Some(CaptureOptions { file: Some(out.clone()), ..CaptureOptions::default() }),
        ..RunOptions::default()
    };
    let profile = file.of_flows(value).map_err(|error| error.to_string())?;
    run(profile, options).and_then(|()| packets_of(&out)).map_err(|error| error.to_string())
}

/// A segment: by the client, flags, octets of data, time in nanoseconds, the frame.
struct Segment {
    by_client: bool,
    flags: u8,
    octets: usize,
    at_ns: u64,
    options: Vec<u8>,
    frame: Vec<u8>,
}

fn segments(packets: &[Found]) -> Vec<Segment> {
    let all = packets.iter().filter_map(|packet| {
        let one = flows::parse(&packet.octets)?;
        Some(Segment {
            by_client: one.to.1 == 80,
            flags: one.flags,
            octets: one.data.len(),
            at_ns: packet.at_ns,
            options: one.options.to_vec(),
            frame: packet.octets.clone(),
        })
    });
    all.collect()
}

/// A setting and its section, the programs, the faults of the link, the property that it changes,
/// and the value of that property by default and with the setting.
struct Case {
    name: &'static str,
    value: Value,
    scope: Scope,
    programs: fn() -> [Vec<Value>; 2],
    faults: &'static str,
    limit: Option<u64>,
    figure: fn(&[Segment]) -> u64,
    expected: [u64; 2],
}

#[derive(Clone, Copy)]
enum Scope {
    Client,
    Server,
    ClientTemplate,
    ServerTemplate,
}

fn set(value: &mut Value, name: &str, to: &Value, scope: Scope) {
    let info = match scope {
        Scope::Client => &mut value["c_glob_info"],
        Scope::Server => &mut value["s_glob_info"],
        Scope::ClientTemplate => &mut value["templates"][0]["client_template"]["glob_info"],
        Scope::ServerTemplate => &mut value["templates"][0]["server_template"]["glob_info"],
    };
    let (section, name) = name.split_once('.').expect("a section");
    info[section][name] = to.clone();
}

fn longest(segments: &[Segment]) -> u64 {
    segments.iter().map(|one| one.octets as u64).max().unwrap_or(0)
}

/// Octets of the server before the client's first answer.
fn first_flight(segments: &[Segment]) -> u64 {
    let first = segments.iter().position(|one| !one.by_client && one.octets > 0).unwrap_or(0);
    let flight = segments[first..].iter().take_while(|one| !one.by_client);
    flight.map(|one| one.octets as u64).sum()
}

/// Milliseconds from the server's first octets to the client's answer.
fn answer_ms(segments: &[Segment]) -> u64 {
    let first = segments.iter().position(|one| !one.by_client && one.octets > 0).unwrap_or(0);
    let answer = segments[first..].iter().find(|one| one.by_client).map_or(0, |one| one.at_ns);
    (answer.saturating_sub(segments[first].at_ns)) / MILLISECOND
}

fn window(segments: &[Segment]) -> u64 {
    let ip = 14 + 20;
    let of = |one: &Segment| u64::from(one.frame[ip + 14]) << 8 | u64::from(one.frame[ip + 15]);
    segments.iter().filter(|one| one.by_client && one.octets > 0).map(of).max().unwrap_or(0)
}

fn has_option(segments: &[Segment], kind: u8, octets: u8) -> u64 {
    u64::from(segments[0].options.windows(2).any(|pair| pair == [kind, octets]))
}

/// Segments of the server with data and without PSH.
fn unpushed(segments: &[Segment]) -> u64 {
    let mut of = segments.iter().filter(|one| !one.by_client && one.octets > 0);
    u64::from(of.any(|one| one.flags & PSH == 0))
}

fn cases() -> Vec<Case> {
    let case = |name, value: u64, scope, figure, expected| Case {
        name,
        value: json!(value),
        scope,
        programs: download,
        faults: "",
        limit: Some(1),
        figure,
        expected,
    };
    let by_template = [
        case("tcp.mss", 1000, Scope::ServerTemplate, longest, [1448, 988]),
        case("tcp.initwnd", 1, Scope::ServerTemplate, first_flight, [14_480, 1448]),
        case("tcp.rxbufsize", 8192, Scope::ClientTemplate, window, [32_768, 8192]),
        case("tcp.txbufsize", 4096, Scope::ServerTemplate, first_flight, [14_480, 4096]),
        case("tcp.no_delay_counter", 2920, Scope::ClientTemplate, answer_ms, [200, 0]),
        case("tcp.no_delay", 2, Scope::ServerTemplate, unpushed, [1, 0]),
        // The lowest bit of TOS and a TTL above 127 are TRex's own.
        case("ip.tos", 0x83, Scope::ClientTemplate, |all| all[0].frame[15].into(), [0, 0x82]),
        case("ip.ttl", 41, Scope::ClientTemplate, |all| all[0].frame[22].into(), [127, 41]),
        case("ip.ttl", 200, Scope::ClientTemplate, |all| all[0].frame[22].into(), [127, 127]),
        case("ipv6.enable", 1, Scope::ClientTemplate, |all| (all[0].frame[14] >> 4).into(), [4, 6]),
    ];
    let of_profile = [
        case("tcp.do_rfc1323", 0, Scope::Client, |all| has_option(all, 8, 10), [1, 0]),
        case("tcp.do_sack", 0, Scope::Client, |all| has_option(all, 4, 2), [1, 0]),
        case("tcp.do_ecn", 1, Scope::Client, |all| (all[0].flags & 0xc0).into(), [0, 0xc0]),
        case("tcp.do_ecn", 2, Scope::Client, |all| (all[0].flags & 0xc0).into(), [0, 0]),
        case("tcp.delay_ack_msec", 50, Scope::Client, answer_ms, [200, 50]),
        Case {
            programs: silence,
            ..case(
                "tcp.keepidle",
                4,
                Scope::Server,
                |all| {
                    let quiet = 1_000 * MILLISECOND..9_000 * MILLISECOND;
                    let mut probes = all.iter().filter(|one| !one.by_client);
                    u64::from(probes.any(|one| quiet.contains(&one.at_ns)))
                },
                [0, 1],
            )
        },
        Case {
            limit: None,
            ..case(
                "scheduler.rampup_sec",
                10,
                Scope::Client,
                |all| {
                    let begins = all.iter().filter(|one| one.flags & ACK == 0);
                    begins.filter(|one| one.at_ns < 3_000 * MILLISECOND).count() as u64 / 10
                },
                [3, 0],
            )
        },
    ];
    by_template.into_iter().chain(of_profile).collect()
}

#[test]
fn a_setting_that_is_taken_changes_what_is_on_the_wire() {
    let mut wrong = Vec::new();
    for case in cases() {
        let value = profile(&(case.programs)(), case.limit);
        let mut other = value.clone();
        set(&mut other, case.name, &case.value, case.scope);
        let found = [value, other].map(|value| {
            let packets = wire(&value, case.faults).expect(case.name);
            let first = packets.first().map_or(0, |packet| packet.at_ns);
            let mut all = segments(&packets);
            all.iter_mut().for_each(|one| one.at_ns -= first);
            (case.figure)(&all)
        });
        if found != case.expected {
            let Case { name, value, expected, .. } = &case;
            wrong.push(format!("{name} = {value}: {found:?} in place of {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_upper_bits_of_a_template_are_those_of_its_addresses() {
    let mut value = profile(&download(), Some(1));
    let bits = |low: u8| json!([0xff, low, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut plain = value["templates"][0].clone();
    for (name, to) in [("enable", json!(1)), ("src_msb", bits(2)), ("dst_msb", bits(3))] {
        set(&mut value, &format!("ipv6.{name}"), &to, Scope::ClientTemplate);
    }
    plain["client_template"]["port"] = json!(81);
    value["templates"].as_array_mut().expect("a list").push(plain);
    let packets = wire(&value, "").expect("it plays");
    let version = |packet: &Found| packet.octets[14] >> 4;
    let is_tcp = |packet: &&Found| version(packet) == 6 && packet.octets[20] == 6;
    let six = packets.iter().find(is_tcp).expect("IPv6");
    assert_eq!(six.octets[22..24], [0xff, 2]);
    assert_eq!(six.octets[34..38], [16, 0, 0, 1]);
    assert_eq!((&six.octets[38..40], &six.octets[50..54]), (&[0xff, 3][..], &[48, 0, 0, 1][..]));
    assert!(packets.iter().any(|packet| version(packet) == 4), "the other template");
}

#[test]
fn flows_of_all_templates_take_the_clients_of_a_pool_in_turn() {
    for distribution in ["seq", "rand", "normal"] {
        let mut value = profile(&download(), Some(4));
        value["ip_gen_dist_list"][0]["distribution"] = json!(distribution);
        let mut other = value["templates"][0].clone();
        other["client_template"]["port"] = json!(81);
        value["templates"].as_array_mut().expect("a list").push(other);
        let packets = wire(&value, "").expect("it plays");
        let begins =
            |packet: &&Found| flows::parse(&packet.octets).is_some_and(|one| one.flags == 2);
        let clients: Vec<u8> =
            packets.iter().filter(begins).map(|packet| packet.octets[29]).collect();
        assert_eq!(clients, [1, 2, 3, 4, 5, 6, 7, 8], "{distribution}");
    }
}

#[test]
fn received_data_is_acknowledged_before_a_reset_and_before_data_after_connect() {
    let (request, receive) =
        (json!({ "name": "tx", "buf_index": 0 }), json!({ "name": "rx", "min_bytes": 100 }));
    let client = [
        json!({ "name": "connect" }),
        request.clone(),
        receive.clone(),
        json!({ "name": "reset" }),
    ];
    let server = [receive, request, json!({ "name": "nc" })];
    let packets = wire(&profile(&[client.into(), server.into()], Some(1)), "").expect("it plays");
    let all = segments(&packets);
    let found: Vec<_> = all.iter().map(|one| (one.by_client, one.flags, one.octets)).collect();
    let (syn, rst) = (2, 4);
    let expected = [
        (true, syn, 0),
        (false, syn | ACK, 0),
        (true, ACK, 0),
        (true, PSH | ACK, 100),
        (false, PSH | ACK, 100),
        (true, ACK, 0),
        (true, rst | ACK, 0),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_congestion_control_is_seen_where_segments_are_lost() {
    let value = profile(&download(), None);
    let mut cubic = value.clone();
    set(&mut cubic, "tcp.cc_algo", &json!(1), Scope::Server);
    let course = |value: &Value| {
        let packets = wire(value, ",drop=1/31").expect("it plays");
        let of = |one: &Segment| (one.by_client, one.octets, one.at_ns);
        segments(&packets).iter().map(of).collect::<Vec<_>>()
    };
    assert!(course(&value) != course(&cubic));
}

/// Settings that show only with a slow or silent peer: the scripts of `squall-tcp` have these.
#[test]
fn the_time_for_a_connection_and_nagles_algorithm_are_settings_of_tcp() {
    let of = |name: &str, to: u64, setting: &str| {
        let mut value = profile(&download(), Some(1));
        set(&mut value, name, &json!(to), Scope::Client);
        let flows = Astf::read(&value).and_then(|astf| astf.flows(&FlowSetting::default()));
        let template = flows.expect("sound").templates.remove(0);
        let mut settings = template.client_tcp.settings.into_iter();
        settings.find(|(name, _)| name == setting).expect("a setting").1.text
    };
    // SYNs leave after 1, 3, 7, ... seconds.
    for (seconds, number) in [(2, "1"), (3, "1"), (4, "2"), (5, "2"), (8, "3"), (65_533, "14")] {
        assert_eq!(of("tcp.keepinit", seconds, "syn_retries"), number, "{seconds} s");
    }
    for (value, no_delay, push_all) in [(1, "true", "false"), (2, "false", "true")] {
        assert_eq!(of("tcp.no_delay", value, "no_delay"), no_delay);
        assert_eq!(of("tcp.no_delay", value, "push_all"), push_all);
    }
}

#[test]
fn a_setting_without_an_equivalent_is_refused() {
    for (name, default, other) in [
        ("tcp.rexmtthresh", 3, 2),
        ("tcp.blackhole", 0, 1),
        ("tcp.reass_maxqlen", 100, 5),
        ("ip.dont_use_inbound_mac", 0, 1),
    ] {
        let mut value = profile(&download(), Some(1));
        set(&mut value, name, &json!(default), Scope::Server);
        wire(&value, "").expect("TRex's default");
        set(&mut value, name, &json!(other), Scope::Server);
        let why = wire(&value, "").map(drop).expect_err(name);
        assert!(why.contains(name), "{why}");
    }
    let mut value = profile(&download(), Some(1));
    set(&mut value, "scheduler.accurate", &json!(1), Scope::Client);
    let why = wire(&value, "").map(drop).expect_err("no setting of TRex's");
    assert!(why.contains("scheduler.accurate: not known"), "{why}");
}
