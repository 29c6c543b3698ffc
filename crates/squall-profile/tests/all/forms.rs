//! Tests what each notation means, and that a written profile reads back the same.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr},
    path::Path,
    sync::Arc,
};

use proptest::prelude::*;
use serde_json::json;
use squall_options::{RunOptions, Time};
use squall_profile::*;
use squall_units::{Nanos, Rate, RateUnit, TrexMark};

const FULL: &str = r#"
seed = 7
duration = "1h30m"
packets = "10k"
octets = "1 GB"
[ports]
B = "null:"
A = "loop:0"

[[stream]]
name = "web"
port = "A"
group = "g"
hex = "02:00:00:00:00:01 02:00:00:00:00:02 88b5"
size = "imix"
rate = "1.5 Gbps l1"
departures = "poisson"
mode = { bursts = 5, packets = 4, gap = "1 s" }
start_delay = 0.25
next = { stream = "late one", times = 3 }
latency = true
late = "drop"
vary = [
  { field = "ipv4.src", op = "increment", min = "16.0.0.1", max = "16.0.0.254" },
  { field = "udp.sport", op = "decrement", min = 1024, max = 2048, step = 2, after = "ipv4.src" },
  { name = "tail", offset = 40, octets = 2, op = "list", values = [1, "0x10", 3], init = 3 },
  { offset = 44, octets = 4, mask = "0xff00", op = "list", values = [0, 1], after = "tail" },
  { field = "ipv6.dst", op = "random", max = "::ffff", limit = 10, seed = 3 },
  { field = "eth.dst", op = "weighted", values = ["02:00:00:00:00:01", 2], weights = [7, 1] },
  { field = "ipv4.ttl", op = "file", path = "ttl.txt" },
  { op = "tuple", ip_min = "10.0.0.1", ip_max = "10.0.0.4", port_min = 1, port_max = 9,
    fields = ["ipv4.dst", "udp.dport"] },
]

[[stream]]
enabled = false
name = "off"
port = "B"
rate = 1
pcap = "never.pcap"

[[stream]]
name = "late one"
port = "B"
pcap = "../x#1.pcap#3"
rate = "max"
self_start = false
mode = { burst = "1k" }
next = "web"
"#;

fn files(path: &Path) -> io::Result<String> {
    match path.to_str() {
        Some("dir/ttl.txt") => Ok("# hops\n1\n\n0x40 # the usual\n255\n".into()),
        other => panic!("read {other:?}"),
    }
}

fn read(text: &str, format: Format) -> Profile {
    Profile::parse_with(text, "dir/load.toml", format, &files)
        .unwrap_or_else(|e| panic!("{e}\nin\n{text}"))
}

/// A stream with the additional keys `more`.
fn stream(more: &str) -> Stream {
    let head = "ports = { A = \"loop:0\" }\n[[stream]]\nhex = \"020000000001020000000002 88b5\"\n";
    let rate = if more.contains("rate") { "" } else { "rate = 1\n" };
    read(&format!("{head}{rate}{more}"), Format::Toml).streams.remove(0)
}

fn step(min: u128, max: u128, init: u128, step: i128) -> Op {
    Op::Step { min, max, init, step }
}

#[test]
fn every_key_of_a_profile_reaches_its_value() {
    let profile = read(FULL, Format::Toml);
    assert_eq!(profile.origin, "dir/load.toml");
    assert_eq!(profile.seed, Some(7));
    let duration = Some(Nanos(5400 * Nanos::SECOND.0));
    assert_eq!(profile.stop, Stop { duration, packets: Some(10_000), octets: Some(1_000_000_000) });
    let ports: Vec<_> =
        profile.ports.iter().map(|p| (p.name.as_str(), p.address.as_str(), p.at.line)).collect();
    assert_eq!(ports, [("B", "null:", 7), ("A", "loop:0", 8)], "in the order of the file");
    let [web, late] = &profile.streams[..] else {
        panic!("the disabled stream is there: {profile:#?}")
    };

    assert_eq!((web.name.as_str(), web.port, web.group.as_deref()), ("web", 1, Some("g")));
    assert_eq!(
        web.packet,
        PacketSource::Octets(Arc::from([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]))
    );
    assert_eq!(web.size, SizeLaw::List(IMIX.to_vec()));
    assert_eq!(web.rate, Rate { num: 1_500_000_000, den: 1, unit: RateUnit::BpsL1 });
    assert_eq!(web.departures, Departures::Exponential);
    assert_eq!(web.mode, Mode::Bursts { bursts: 5, packets: 4, gap: Nanos::SECOND });
    assert_eq!(web.start_delay, Nanos(250_000_000));
    assert_eq!((web.self_start, web.latency, web.late), (true, true, Late::Drop));
    assert_eq!(web.next, Some(Next { stream: 1, times: Some(3) }));
    assert_eq!(
        (web.at.line, web.packet_at, web.rate_at.line),
        (10, At { line: 14, column: 7 }, 16)
    );

    let named = |name: &str| FieldRef::Name(name.into());
    let expected = [
        (named("ipv4.src"), step(0x1000_0001, 0x1000_00fe, 0x1000_0001, 1)),
        (named("udp.sport"), Op::After { of: 0, then: Box::new(step(1024, 2048, 2048, -2)) }),
        (
            FieldRef::Offset { offset: 40, octets: 2, mask: 0xffff },
            Op::List { values: vec![1, 16, 3], init: 2 },
        ),
        (
            FieldRef::Offset { offset: 44, octets: 4, mask: 0xff00 },
            Op::After { of: 2, then: Box::new(Op::List { values: vec![0, 1], init: 0 }) },
        ),
        (named("ipv6.dst"), Op::Random { min: 0, max: 0xffff, limit: Some(10), seed: Some(3) }),
        (named("eth.dst"), Op::Weighted { values: vec![(0x0200_0000_0001, 7), (2, 1)] }),
        (named("ipv4.ttl"), Op::List { values: vec![1, 0x40, 255], init: 0 }),
        (named("ipv4.dst"), step(0x0a00_0001, 0x0a00_0004, 0x0a00_0001, 1)),
        (named("udp.dport"), Op::After { of: 7, then: Box::new(step(1, 9, 1, 1)) }),
    ];
    let found: Vec<_> = web.vary.iter().map(|v| (v.field.clone(), v.op.clone())).collect();
    assert_eq!(found, expected);

    assert_eq!(late.packet, PacketSource::Capture { path: "dir/../x#1.pcap".into(), number: 3 });
    assert_eq!((late.rate, late.self_start, late.mode), (Rate::MAX, false, Mode::Burst(1000)));
    assert_eq!(late.next, Some(Next { stream: 0, times: None }));
}

#[test]
fn every_file_of_tls_is_named() {
    let keys = ["ca", "certificate", "key", "client_certificate", "client_key", "client_ca"];
    let located: Vec<_> = keys.iter().map(|key| format!("{key} = \"{key}.pem\"")).collect();
    let text = format!(
        "[ports]\nA = \"loop:0\"\nB = \"loop:0\"\n[flows]\nclients = \"A\"\nservers = \"B\"\n\
         [[template]]\nname = \"t\"\nclients = \"16.0.0.1\"\nservers = \"48.0.0.1\"\napp = \
         \"http\"\ncps = 1\ntls = {{ {} }}\n",
        located.join(", ")
    );
    let profile = read(&text, Format::Toml);
    let named: Vec<_> = profile.files().iter().map(|file| file.path.to_owned()).collect();
    assert_eq!(named, keys.map(|key| format!("dir/{key}.pem")));
}

#[test]
fn every_file_of_a_router_is_named() {
    let text = "[ports]\nA = \"loop:0\"\n[[router]]\nipv4 = \"10.0.0.1/24\"\nrip = true\nroutes = \
                [\"mrt:rib.bz2#3 x 1000\", \"random x 5\"]\n[[router.group]]\nname = \"edge\"\nroutes = \
                \"file:edge.txt\"\n[[router]]\nipv4 = \"10.0.0.2/24\"\nconfig = \"bird.conf\"\n";
    let profile = read(text, Format::Toml);
    let named: Vec<_> = profile.files().iter().map(|file| file.path.to_owned()).collect();
    assert_eq!(named, ["rib.bz2", "edge.txt", "bird.conf"]);
}

#[test]
fn omitted_keys_have_defaults() {
    let stream = stream("");
    assert_eq!(stream.name, "stream 1");
    assert_eq!((stream.port, &stream.size, stream.mode), (0, &SizeLaw::Natural, Mode::Continuous));
    assert_eq!((&stream.departures, stream.late), (&Departures::Constant, Late::Smooth));
    assert_eq!((stream.self_start, stream.latency, stream.next), (true, false, None));
    assert_eq!((stream.start_delay, stream.rate), (Nanos::ZERO, Rate::pps(1)));
}

#[test]
fn a_key_that_is_only_stored_is_written_unless_at_its_default() {
    let stored = |more: &str| {
        let profile = Profile { streams: vec![stream(more)], ..Profile::default() };
        let mut written = profile.to_value()["stream"][0].take();
        let table = written.as_object_mut().unwrap();
        table.retain(|key, _| !["name", "packet", "hex", "rate"].contains(&key.as_str()));
        written
    };
    assert_eq!(stored(""), json!({}));
    let defaults = "self_start = true\nlatency = false\nlate = \"smooth\"\nburst_end = \"gap\"\n\
                    start_delay = 0\nmode = \"continuous\"\nrecompute = true";
    assert_eq!(stored(defaults), json!({}));
    let others = "group = \"g\"\nlatency = true\nlate = \"drop\"\nburst_end = \"frame\"\n\
                  start_delay = \"1 s\"\nrecompute = false";
    let expected = json!({ "group": "g", "start_delay": "1 s", "latency": true, "late": "drop",
        "recompute": false, "burst_end": "frame" });
    assert_eq!(stored(others), expected);
}

#[test]
fn each_way_to_write_a_size_is_its_law() {
    for (text, law) in [
        ("64", SizeLaw::Fixed(64)),
        ("\"64-1518\"", SizeLaw::Range { min: 64, max: 1518, step: 1 }),
        ("\"64-1518/2\"", SizeLaw::Range { min: 64, max: 1518, step: 2 }),
        ("[64, 18]", SizeLaw::List(vec![64, 18])),
        ("{ weights = [[64, 7], [1518, 1]] }", SizeLaw::Weights(vec![(64, 7), (1518, 1)])),
        ("{ uniform = \"64-1518\" }", SizeLaw::Uniform { min: 64, max: 1518 }),
        (
            "{ normal = { mean = 594, sd = 10.5, max = 9216 } }",
            SizeLaw::Normal { mean: 594.0, sd: 10.5, min: 64, max: 9216 },
        ),
        ("{ genome = \"2aAz\", z = 1500, custom = [594] }", SizeLaw::List(vec![64, 64, 594, 1500])),
    ] {
        assert_eq!(stream(&format!("size = {text}")).size, law, "{text}");
    }
}

#[test]
fn each_way_to_write_departures_is_its_law() {
    for (text, law) in [
        ("\"constant\"", Departures::Constant),
        ("\"exponential\"", Departures::Exponential),
        ("{ uniform = 0.5 }", Departures::Uniform { spread: 0.5 }),
        ("{ normal = 0.1 }", Departures::Normal { sd: 0.1 }),
        ("{ pareto = 1.5 }", Departures::Pareto { shape: 1.5 }),
        ("{ weibull = 2 }", Departures::Weibull { shape: 2.0 }),
        ("{ gamma = 0.5 }", Departures::Gamma { shape: 0.5 }),
        (
            "{ on = \"10 ms\", off = \"90 ms\" }",
            Departures::OnOff { on: Nanos(10_000_000), off: Nanos(90_000_000) },
        ),
        ("{ file = \"gaps.txt\" }", Departures::File { path: "dir/gaps.txt".into() }),
    ] {
        assert_eq!(stream(&format!("departures = {text}")).departures, law, "{text}");
    }
}

#[test]
fn yaml_and_json_read_as_the_same_profile_as_toml() {
    let toml = read(FULL, Format::Toml);
    let json = toml.to_value().to_string();
    for format in [Format::Json, Format::Yaml] {
        assert_eq!(values(read(&json, format)), values(toml.clone()), "{format:?}");
    }
    let yaml = "
# merges and anchors
$schema: for the editor
ports: {A: 'loop:0'}
stream:
  - &base
    name: web
    hex: 02000000000102000000000288b5
    rate: 1_000 pps
    size: [64, 0x40]
    latency: yes it is
";
    assert!(Profile::parse(yaml, "x.yaml", Format::Yaml).is_err(), "latency is no truth value");
    let yaml = yaml.replace("yes it is", "true")
        + "  - <<: *base\n    name: b\n    rate: 2.5\n    port: ~\n";
    let profile = read(&yaml, Format::Yaml);
    assert_eq!(profile.streams[0].size, SizeLaw::List(vec![64, 64]));
    let digits = read(
        &yaml.replace("02000000000102000000000288b5", "0200000000010200000000020800"),
        Format::Yaml,
    );
    let PacketSource::Octets(octets) = &digits.streams[0].packet else { panic!("{digits:?}") };
    assert_eq!(octets[..3], [2, 0, 0], "digits alone are hexadecimal, too");
    assert_eq!(profile.streams[1].size, profile.streams[0].size, "merged");
    assert_eq!(profile.streams[1].rate, Rate { num: 5, den: 2, unit: RateUnit::Pps });
    assert!(profile.streams[1].latency);
}

/// The profile without source positions, which differ between formats.
fn values(mut profile: Profile) -> Profile {
    profile.origin.clear();
    profile.ports.iter_mut().for_each(|port| port.at = At::default());
    if let Some(flows) = &mut profile.flows {
        flows.pools.iter_mut().for_each(|pool| pool.at = At::default());
        flows.templates.iter_mut().for_each(|template| template.at = At::default());
        flows.replay.iter_mut().for_each(|replay| replay.at = At::default());
    }
    profile.attacks.iter_mut().for_each(|attack| attack.at = At::default());
    profile.replays.iter_mut().for_each(|replay| replay.at = At::default());
    profile.hosts.iter_mut().for_each(|group| group.at = At::default());
    for router in &mut profile.routers {
        router.at = At::default();
        router.group.iter_mut().for_each(|group| group.at = At::default());
        router.step.iter_mut().for_each(|step| step.place = At::default());
    }
    for stream in &mut profile.streams {
        for at in [
            &mut stream.at,
            &mut stream.packet_at,
            &mut stream.size_at,
            &mut stream.segment_at,
            &mut stream.rate_at,
        ] {
            *at = At::default();
        }
        stream.vary.iter_mut().for_each(|vary| vary.at = At::default());
        if let PacketSource::Capture { path, .. } = &mut stream.packet {
            *path = path.rsplit('/').next().unwrap_or_default().into();
        }
        if let Departures::File { path } = &mut stream.departures {
            *path = path.rsplit('/').next().unwrap_or_default().into();
        }
    }
    profile
}

#[test]
fn grpc_is_over_http2_without_the_key() {
    let text = |app: &str| {
        format!(
            "[ports]\nA = \"null:\"\nB = \"null:\"\n[flows]\nclients = \"A\"\nservers = \"B\"\n\
             [[template]]\napp = \"{app}\"\nclients = \"16.0.0.1\"\nservers = \"48.0.0.1\"\n\
             cps = 1\n"
        )
    };
    let http =
        |text: &str| read(text, Format::Toml).flows.expect("flows").templates[0].http.clone();
    assert_eq!(http(&text("grpc")), Some(Http::default()));
    assert_eq!(http(&text("http")), None);
    let given = http(&(text("grpc") + "http = { streams = 4 }\n"));
    assert_eq!(given, Some(Http { streams: 4, ..Http::default() }));
}

#[test]
fn pairs_of_ports_reach_their_values_and_are_written_again() {
    let text = r#"
[ports]
A = "null:"
B = "null:"
C = "null:"
D = "null:"
E = "null:"
[flows]
clients = "A"
servers = "B"
[[flows.pair]]
clients = "C"
servers = "D"
client_network = { wrap = "vlan 7" }
[[flows.pair]]
servers = "E"
[[template]]
app = "http"
clients = "16.0.0.1"
servers = "48.0.0.1"
cps = 1
pair = 2
[[template]]
app = "http"
clients = "16.0.0.1"
servers = "48.0.0.1"
pair = 3
"#;
    let profile = read(text, Format::Toml);
    let flows = profile.flows.as_ref().expect("flows");
    assert_eq!(flows.ports(), [0, 1, 2, 3, 4]);
    let ends = [1, 2, 3, 4].map(|pair| flows.ends(pair));
    let expected = [(Some(0), Some(1)), (Some(2), Some(3)), (None, Some(4)), (None, None)];
    assert_eq!(ends, expected);
    let [clients, _] = flows.pair(2).expect("the second pair");
    assert_eq!(clients.1.wrap, [located("vlan 7")]);
    // The servers of the third pair are for external clients, which begin the flows.
    let arrivals: Vec<_> = flows.templates.iter().map(|template| template.arrival).collect();
    assert_eq!(arrivals[1], Arrival::None);
    assert_eq!(values(read(&profile.to_toml(), Format::Toml)), values(profile));
}

#[test]
fn the_schema_on_disk_is_the_one_the_code_reads() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/profile.schema.json");
    let now = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let on_disk = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        on_disk == now,
        "schemas/profile.schema.json lags: BLESS=1 cargo test -p squall-profile schema"
    );
}

#[test]
fn the_schema_describes_every_key() {
    fn check(schema: &serde_json::Value, path: &str) {
        for (key, value) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{key}");
            assert!(
                value["description"].as_str().is_some_and(|text| text.len() > 3),
                "{path} has no description"
            );
            check(value, &path);
        }
        check_all(schema, path);
    }
    fn check_all(schema: &serde_json::Value, path: &str) {
        schema["anyOf"].as_array().into_iter().flatten().for_each(|choice| check(choice, path));
        if schema["items"].is_object() {
            check(&schema["items"], path);
        }
    }
    check(&schema(), "");
}

#[test]
fn short_forms_say_what_a_plan_needs() {
    assert_eq!(SizeLaw::List(IMIX.to_vec()).to_string(), "imix");
    assert_eq!(
        SizeLaw::List(vec![64; 100]).to_string(),
        "64, 64, 64, 64, 64, 64, ... (100 lengths)"
    );
    assert_eq!(SizeLaw::Weights(vec![(64, 7), (1518, 1)]).to_string(), "64:7, 1518:1");
    assert_eq!(
        Mode::Bursts { bursts: 5, packets: 4, gap: Nanos::SECOND }.to_string(),
        "5 bursts of 4, 1 s apart"
    );
    assert_eq!(
        Departures::OnOff { on: Nanos(10_000_000), off: Nanos::SECOND }.to_string(),
        "on 10 ms, off 1 s"
    );
    assert_eq!(step(1, 9, 3, -2).to_string(), "decrement 1 to 9 by 2 from 3");
    assert_eq!(
        Op::After { of: 0, then: Box::new(Op::List { values: vec![80, 443], init: 1 }) }
            .to_string(),
        "list 80, 443 from number 2, after number 1"
    );
    assert_eq!(
        FieldRef::Offset { offset: 40, octets: 2, mask: 0xff }.to_string(),
        "octets 40 to 41, mask 0xff"
    );
}

fn len() -> impl Strategy<Value = u32> {
    18u32..65_555
}

fn lens() -> impl Strategy<Value = (u32, u32)> {
    (len(), len()).prop_map(|(a, b)| (a.min(b), a.max(b)))
}

fn size() -> impl Strategy<Value = SizeLaw> {
    prop_oneof![
        Just(SizeLaw::Natural),
        len().prop_map(SizeLaw::Fixed),
        Just(SizeLaw::List(IMIX.to_vec())),
        prop::collection::vec(len(), 1..20).prop_map(SizeLaw::List),
        (lens(), 1u32..99).prop_map(|((min, max), step)| SizeLaw::Range { min, max, step }),
        lens().prop_map(|(min, max)| SizeLaw::Uniform { min, max }),
        (lens(), 0.0..1.0).prop_map(|((min, max), share)| {
            let span = f64::from(max - min);
            SizeLaw::Normal { mean: f64::from(min) + span * share, sd: span * share, min, max }
        }),
        prop::collection::vec((len(), 1u32..1000), 1..9).prop_map(SizeLaw::Weights),
    ]
}

fn departures() -> impl Strategy<Value = Departures> {
    prop_oneof![
        Just(Departures::Constant),
        Just(Departures::Exponential),
        (0.001..=1.0).prop_map(|spread| Departures::Uniform { spread }),
        (1.001..100.0).prop_map(|shape| Departures::Pareto { shape }),
        (0.2..100.0).prop_map(|shape| Departures::Gamma { shape }),
        (1u64.., any::<u64>())
            .prop_map(|(on, off)| Departures::OnOff { on: Nanos(on), off: Nanos(off) }),
        "[a-z]{1,8}".prop_map(|path| Departures::File { path }),
    ]
}

fn values_of_fields() -> impl Strategy<Value = u128> {
    prop_oneof![0u128..1000, any::<u32>().prop_map(u128::from), any::<u128>()]
}

fn turning_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        ([values_of_fields(), values_of_fields(), values_of_fields()], 1i128.., any::<bool>())
            .prop_map(|(mut v, by, up)| {
                v.sort();
                step(v[0], v[2], v[1], if up { by } else { -by })
            }),
        // Distinct values, because the initial value is ambiguous if it occurs twice.
        (prop::collection::btree_set(values_of_fields(), 1..9), any::<prop::sample::Index>())
            .prop_map(|(values, at)| {
                Op::List { init: at.index(values.len()), values: values.into_iter().collect() }
            }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => turning_op(),
        1 => (values_of_fields(), values_of_fields(), prop::option::of(1u64..), any::<Option<u64>>()).prop_map(
            |(a, b, limit, seed)| Op::Random { min: a.min(b), max: a.max(b), limit, seed }
        ),
        1 => prop::collection::vec((values_of_fields(), 1u32..1000), 1..5).prop_map(|values| Op::Weighted { values }),
    ]
}

fn field() -> impl Strategy<Value = FieldRef> {
    prop_oneof![
        prop::sample::select(vec![
            "ipv4.src",
            "ipv6.dst",
            "eth.src",
            "vlan[1].id",
            "udp[-1].sport",
            "no.such"
        ])
        .prop_map(|name| FieldRef::Name(name.into())),
        (0usize..65_536, 1usize..=8, any::<u64>()).prop_map(|(offset, octets, mask)| {
            let mask = (mask & (u64::MAX >> (64 - 8 * octets))).max(1);
            FieldRef::Offset { offset, octets, mask }
        }),
    ]
}

fn one_vary(op: impl Strategy<Value = Op>) -> impl Strategy<Value = Vary> {
    let changed = prop::option::of((any::<i64>(), -63i8..=63, any::<bool>()));
    (field(), op, changed).prop_map(|(field, op, changed)| {
        let (add, shift, little_endian) = changed.unwrap_or_default();
        Vary { field, op, add, shift, little_endian, ..Vary::default() }
    })
}

fn vary() -> impl Strategy<Value = Vec<Vary>> {
    let free = prop::collection::vec(one_vary(op()), 0..3);
    let dependent = (one_vary(turning_op()), field(), turning_op());
    (free, prop::option::of(dependent)).prop_map(move |(mut all, dependent)| {
        if let Some((first, field, then)) = dependent {
            all.push(first);
            let of = all.len() - 1;
            let op = Op::After { of, then: Box::new(then) };
            all.push(Vary { field, op, ..Vary::default() });
        }
        all
    })
}

fn packet() -> impl Strategy<Value = PacketSource> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 14..80)
            .prop_map(|octets| PacketSource::Octets(octets.into())),
        ("[a-z#]{1,8}", 1u64..).prop_map(|(path, number)| PacketSource::Capture { path, number }),
    ]
}

fn rate() -> impl Strategy<Value = Rate> {
    let unit = prop::sample::select(vec![
        RateUnit::Pps,
        RateUnit::BpsL1,
        RateUnit::BpsL2,
        RateUnit::Percent,
    ]);
    prop_oneof![
        Just(Rate::MAX),
        (any::<u64>(), 1u64..10_000, unit).prop_map(|(num, den, unit)| Rate { num, den, unit }
            .scaled(1, 1)
            .expect("it fitted before")),
    ]
}

prop_compose! {
    fn a_stream()(
        (packet, size, rate) in (packet(), size(), rate()),
        departures in departures(),
        mode in prop_oneof![
            Just(Mode::Continuous),
            (1u64..).prop_map(Mode::Burst),
            (1u64.., 1u64.., any::<u64>())
                .prop_map(|(bursts, packets, gap)| Mode::Bursts { bursts, packets, gap: Nanos(gap) }),
        ],
        (group, delay, latency) in (prop::option::of("\\PC{0,9}"), any::<u64>(), any::<bool>()),
        segment in prop::option::of(1u32..=65_535),
        late in prop::sample::select(vec![Late::Smooth, Late::CatchUp, Late::Drop, Late::Stretch]),
        next in prop::option::of((any::<prop::sample::Index>(), prop::option::of(1u64..))),
        vary in vary(),
        recompute in prop::sample::select(vec![Recompute::All, Recompute::Only(Vec::new()), Recompute::Only(vec!["ipv4.checksum".into()])]),
        port in 0usize..2,
        stages in prop::collection::vec((1u64..1 << 40, 0u64..3), 0..3),
    ) -> (Stream, Option<(prop::sample::Index, Option<u64>)>) {
        let of = |of: u64| match of { 0 => Rate { num: 0, den: 1, ..rate }, _ => rate };
        let mut stages: Vec<_> =
            stages.into_iter().map(|(lasts, to)| Stage { lasts: Nanos(lasts), to: of(to) }).collect();
        let shaped = stages.iter().any(|stage| !stage.to.is_zero());
        if rate.unit == RateUnit::Max || rate.is_zero() || matches!(mode, Mode::Bursts { .. }) || !shaped {
            stages.clear();
        }
        let stream = Stream {
            port, group, packet, size, rate, stages, departures, mode, start_delay: Nanos(delay), latency,
            duration: segment.map(|n| Nanos(n.into())), late, vary, recompute, segment, trex: (latency && delay % 2 == 0).then_some(TrexMark { hw_id: (delay % 128) as u8, flow_seq: (delay % 251) as u8 }),
            trex_group: (!latency && delay % 2 == 0).then_some((delay % 1023) as u16),
            ..Stream::default()
        };
        (stream, next)
    }
}

fn located(text: &str) -> Located {
    text.into()
}

fn network() -> impl Strategy<Value = Network> {
    let full = Network {
        mac: Some(located("02:00:00:00:00:09")),
        cluster: true,
        gateway: vec![located("10.0.0.1"), located("fd00::1")],
        next_hop: None,
        mtu: Some(1400),
        wrap: vec![located("vlan 7"), located("gre 10.0.0.1 10.0.0.2")],
        interface: vec![
            Interface {
                addresses: vec![located("16.0.0.1-16.0.0.9"), located("16.0.1.0/24")],
                mac: Some(located("02:00:00:00:00:0a")),
                next_hop: Some(located("02:00:00:00:00:0b")),
                wrap: vec![located("vlan 8")],
                ..Interface::default()
            },
            Interface { peers: vec![located("48.0.0.1")], ..Interface::default() },
        ],
    };
    prop_oneof![Just(Network::default()), Just(full)]
}

fn spacing() -> impl Strategy<Value = Spacing> {
    prop::sample::select(vec![Spacing::Constant, Spacing::Poisson])
}

fn template() -> impl Strategy<Value = Template> {
    let options =
        vec![("url".to_owned(), located("http://a/\"b\"")), ("body".to_owned(), located("100"))];
    let programs = |client: &[&str], server: &[&str]| FlowContent::Programs {
        client: client.iter().map(|text| located(text)).collect(),
        server: server.iter().map(|text| located(text)).collect(),
        messages: vec![("hello".to_owned(), located("hi\\r\\n${random:hex:8}"))],
    };
    let capture = |delays| FlowContent::Capture { path: located("c.pcap"), number: 3, delays };
    let exchange = prop_oneof![
        Just(FlowContent::App { app: located("http"), options }),
        Just(programs(&["send hello", "recv 3"], &["recv 10", "send \"abc\""])),
        Just(programs(&[], &["recv 10"])),
        Just(capture(Delays::Keep)),
        Just(capture(Delays::Drop)),
        Just(capture(Delays::Scale(0.5))),
    ];
    let arrival = prop_oneof![
        (1u32..1000, spacing())
            .prop_map(|(cps, spacing)| Arrival::Cps { cps: f64::from(cps) / 8.0, spacing }),
        (1u32.., spacing()).prop_map(|(weight, spacing)| Arrival::Weight { weight, spacing }),
        (1u32.., any::<u64>(), spacing()).prop_map(|(users, think, spacing)| {
            Arrival::Users { users, think: Nanos(think), spacing }
        }),
    ];
    let tcp = prop_oneof![
        Just(Tcp::default()),
        Just(Tcp { settings: vec![("mss".into(), located("1000"))] })
    ];
    let numbers = (0usize..3, 0usize..3, 1u16.., any::<bool>(), any::<Option<u64>>());
    let tls = (any::<bool>(), any::<Option<bool>>()).prop_map(|(named, given)| {
        let file = |name: &str| named.then(|| located(name));
        given.map(|resumption| Tls {
            server_name: file("a.test"),
            alpn: if named { vec![located("h2"), located("http/1.1")] } else { vec![] },
            ca: file("ca.pem"),
            certificate: file("a.pem"),
            key: file("a.key"),
            client_certificate: file("c.pem"),
            client_key: file("c.key"),
            client_ca: file("cs.pem"),
            resumption,
            fresh_key_shares: named,
            early_data: named,
            versions: if named { vec![located("1.2")] } else { vec![] },
            ciphers: if named { vec![located("ECDHE-RSA-AES128-GCM-SHA256")] } else { vec![] },
            groups: if named { vec![located("x25519"), located("P-256")] } else { vec![] },
            hello: file("firefox-135"),
            certificate_per_name: named,
        })
    });
    let proxy = prop_oneof![
        Just(None),
        Just(Some(ProxyProtocol { version: ProxyVersion::V1, ..ProxyProtocol::default() })),
        Just(Some(ProxyProtocol { local: true, ..ProxyProtocol::default() })),
        Just(Some(ProxyProtocol {
            version: ProxyVersion::V2,
            sources: Some(located("203.0.113.0/24")),
            local: false,
            alpn: Some(located("h2")),
            authority: Some(located("a.test")),
            unique_id: true,
            checksum: true,
        })),
    ];
    (exchange, arrival, tcp, (tls, proxy), numbers).prop_map(
        |(exchange, arrival, tcp, (tls, proxy), (clients, servers, port, udp, limit))| Template {
            proxy_protocol: proxy,
            name: String::new(),
            clients,
            servers,
            listen: Some(port),
            transport: if udp { Transport::Udp } else { Transport::Tcp },
            content: exchange,
            data: limit.map(|number| Data {
                file: located("users.csv"),
                order: [DataOrder::Circular, DataOrder::Once, DataOrder::Random]
                    [(number % 3) as usize],
            }),
            start: match arrival {
                Arrival::Weight { .. } => Nanos::ZERO,
                _ => Nanos(port.into()),
            },
            duration: limit.filter(|_| !matches!(arrival, Arrival::Weight { .. })).map(Nanos),
            stages: match arrival {
                Arrival::Cps { cps, .. } => [(0, 0.5), (port.into(), 1.0), (7, 0.0)]
                    .map(|(lasts, share)| Stage { lasts: Nanos(lasts), to: cps * share })
                    .into(),
                _ => Vec::new(),
            },
            arrival,
            limit,
            client_tcp: if udp { Tcp::default() } else { tcp.clone() },
            tcp,
            tls,
            http: limit.map(|number| match number % 3 {
                0 => Http {
                    version: HttpVersion::Three,
                    streams: 1 + (number % 100) as u16,
                    qpack_table: (number % 4_097) as u32,
                    migrate_after: (number % 7) as u32,
                    migrate_to: if number % 7 > 3 { MigrateTo::Address } else { MigrateTo::Port },
                    rebind_after: (number % 11) as u32,
                    forbid_migration: number % 4 == 0,
                    retry: number % 2 == 0,
                    early_data: number % 5 == 0,
                    ..Http::default()
                },
                _ => Http {
                    streams: 1 + (number % 100) as u16,
                    header_table: (number % 4_097) as u32,
                    fallback: number % 2 == 0,
                    ..Http::default()
                },
            }),
            ..Template::default()
        },
    )
}

fn flows() -> impl Strategy<Value = Flows> {
    let target = prop_oneof![
        Just(Target::Cps(0.5)),
        any::<u64>().prop_map(Target::Active),
        Just(Target::Bandwidth("1 Gbps".parse().expect("a rate"))),
    ];
    let ramp =
        (any::<u32>(), any::<Option<u32>>(), any::<u32>()).prop_map(|(up, hold, down)| Ramp {
            up: Nanos(up.into()),
            hold: hold.map(|hold| Nanos(hold.into())),
            down: Nanos(hold.map_or(0, |_| down.into())),
        });
    let limits = (any::<Option<u64>>(), any::<Option<u64>>(), any::<Option<u32>>());
    let templates = prop::collection::vec(template(), 1..4);
    let values = (templates, target, ramp, limits, network(), network());
    values.prop_map(
        |(
            mut templates,
            target,
            ramp,
            (limit, active_limit, drain),
            client_network,
            server_network,
        )| {
            templates
                .iter_mut()
                .enumerate()
                .for_each(|(i, template)| template.name = format!("t{i}"));
            if ramp != Ramp::default() {
                templates.iter_mut().for_each(|template| template.stages.clear());
            }
            let pool = |name: &str, address: &str, ports, order| Pool {
                name: name.into(),
                addresses: vec![located(address)],
                ports,
                order,
                shared: name == "a",
                at: At::default(),
            };
            let pools = vec![
                pool("a", "16.0.0.1-16.0.0.9", Some((1, 2)), Order::Random),
                pool("b.c", "48.0.0.0/24", None, Order::Sequential),
                pool("d", "fd00::1", None, Order::Hash),
            ];
            let drain = drain.map(|drain| Nanos(drain.into()));
            Flows {
                replay: None,
                pools,
                templates,
                clients: Some(1),
                servers: Some(0),
                pairs: vec![],
                client_network,
                server_network,
                target: Some(target),
                ramp,
                limit,
                active_limit,
                max_flows: active_limit.map(|limit| limit as u32 % (1 << 30) + 1),
                drain,
                max_delay: drain,
            }
        },
    )
}

/// A capture, of which the conversations are played.
fn played() -> impl Strategy<Value = Flows> {
    let begin = prop_oneof![
        (1u32..1000).prop_map(|factor| Begin::Captured(f64::from(factor) / 8.0)),
        (1u32..1000).prop_map(|cps| Begin::Cps(f64::from(cps) / 8.0)),
        Just(Begin::Top),
    ];
    let delays = prop_oneof![
        Just(None),
        Just(Some(Delays::Keep)),
        Just(Some(Delays::Drop)),
        (1u32..100).prop_map(|factor| Some(Delays::Scale(f64::from(factor) / 4.0))),
    ];
    let incomplete =
        prop_oneof![Just(Incomplete::Skip), Just(Incomplete::Cut), Just(Incomplete::Zeros)];
    let numbers = (any::<u64>(), any::<u32>(), any::<Option<u32>>(), 1u64.., any::<bool>());
    let values = (begin, delays, incomplete, numbers, network());
    values.prop_map(
        |(begin, delays, incomplete, (loops, delay, time, at_once, all), client_network)| Flows {
            replay: Some(Conversations {
                capture: located("a b.pcap"),
                begin,
                delays,
                shortest_delay: time.map(|time| Nanos(time.into())),
                loops,
                loop_delay: Nanos(delay.into()),
                at_once: all.then_some(at_once),
                clients: if all {
                    vec![located("16.0.0.0/24"), located("fd00::1")]
                } else {
                    vec![]
                },
                server: all.then(|| located("[fd00::2]:80")),
                incomplete,
                filter: all.then(|| located("tcp port 80")),
                within: time.map(|time| Nanos(time.into())),
                tcp: Tcp {
                    settings: if all { vec![("mss".into(), located("1000"))] } else { vec![] },
                },
                at: At::default(),
            }),
            clients: Some(0),
            servers: all.then_some(1),
            client_network,
            limit: all.then_some(delay.into()),
            ..Flows::default()
        },
    )
}

/// Attacks from rules, or from a template.
fn attack() -> impl Strategy<Value = Attack> {
    let rules = Just(AttackOf::Rules(AttackRules {
        files: vec![located("a b.rules"), located("more")],
        config: Some(located("suricata.yaml")),
        variables: vec![("HOME_NET".into(), located("[10.0.0.0/8,!10.1.1.1]"))],
        sids: vec![located("1-5"), located("7")],
        classtypes: vec![located("trojan-activity")],
        msg: Some(located("(?i)a \"b\"")),
        engine: Some(IdsEngine::Snort3),
    }));
    let few = Just(AttackOf::Rules(AttackRules {
        files: vec![located("x.rules")],
        ..AttackRules::default()
    }));
    let template = Just(AttackOf::Template {
        name: located("syn-scan"),
        options: vec![("ports".into(), located("1-5"))],
    });
    let pace = prop_oneof![
        (1u32..1000).prop_map(|rate| AttackPace::PerSecond(f64::from(rate) / 8.0)),
        (1u32..8).prop_map(|share| AttackPace::Share(f64::from(share) / 8.0)),
    ];
    let near_miss = prop_oneof![Just(NearMiss::No), Just(NearMiss::Also), Just(NearMiss::Only)];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let numbers = (any::<u32>(), 1u64.., 1u32..=10_000, any::<Option<u32>>());
    let values = (prop_oneof![rules, few, template], pace, near_miss, flags, numbers, network());
    values.prop_map(
        |(
            what,
            pace,
            near_miss,
            (two, live, shuffle, all),
            (start, repeat, samples, gap),
            network,
        )| {
            Attack {
                name: "one".into(),
                what,
                port: 1,
                port2: two.then_some(0),
                live: two && live,
                pace,
                start: Nanos(start.into()),
                duration: all.then_some(Nanos(repeat)),
                after: None,
                repeat,
                shuffle,
                samples,
                every_branch: shuffle,
                near_miss,
                evasion: if all { vec![located("segments=8"), located("reorder")] } else { vec![] },
                clients: shuffle.then(|| located("host:subscribers")),
                servers: (shuffle && all).then(|| located("host:servers")),
                inside: if all { vec![located("10.0.0.1-10.0.0.9")] } else { vec![] },
                outside: if all {
                    vec![located("198.18.0.0/24"), located("2001:2::1")]
                } else {
                    vec![]
                },
                family: all.then_some(6),
                wrap: if all { vec![located("vlan 7")] } else { vec![] },
                client_network: network.clone(),
                server_network: network,
                gap: gap.map(|gap| Nanos(gap.into())),
                background: matches!(pace, AttackPace::Share(_)).then(|| located("clean.pcap")),
                at: At::default(),
            }
        },
    )
}

/// Captures, on one port or on two.
fn replay() -> impl Strategy<Value = Replay> {
    use squall_profile::{SpeedUnit, SplitRule, TooLong};
    let speed = prop_oneof![
        Just(None),
        Just(Some((SpeedUnit::Captured, located("2.5")))),
        Just(Some((SpeedUnit::Rate, located("10 kpps")))),
        Just(Some((SpeedUnit::Mbps, located("100")))),
        Just(Some((SpeedUnit::Ramp, located("1kpps..2kpps:1s")))),
    ];
    let split = prop_oneof![
        Just(None),
        Just(Some((SplitRule::Cidr, located("10.0.0.0/8")))),
        Just(Some((SplitRule::Cache, located("a.cache")))),
        Just(Some((SplitRule::Port, located("true")))),
    ];
    let too_long =
        prop_oneof![Just(TooLong::Skip), Just(TooLong::Truncate), Just(TooLong::Fragment)];
    let counts = (1u32.., any::<u64>(), any::<Option<u64>>(), any::<Option<u32>>(), any::<u32>());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (speed, split, too_long, counts, flags).prop_map(
        |(speed, split, too_long, (together, loops, limit, time, start), (two, a, b))| Replay {
            name: "again".into(),
            files: if a {
                vec![located("-"), located("b c.pcap")]
            } else {
                vec![located("a.pcap")]
            },
            merge: a,
            port: 1,
            port2: two.then_some(0),
            speed,
            together,
            longest_gap: time.map(|time| Nanos(time.into())),
            start: Nanos(start.into()),
            after: None,
            duration: time.map(|time| Nanos(time.into())),
            loops,
            loop_delay: Nanos(start.into()),
            limit,
            preload: b,
            held: a,
            late: if b { Late::Drop } else { Late::Smooth },
            split: split.filter(|_| two),
            reverse: two && b,
            unique: limit.filter(|loops| *loops > 0),
            flow_stats: a,
            flow_expiry: time.map(|time| Nanos(time.into())),
            max_flows: limit,
            filter: a.then(|| located("tcp port 80")),
            include: b.then(|| located("1-5,9,20-")),
            exclude: a.then(|| located("3")),
            too_long,
            edit: match b {
                true => [("pnat", "a:b"), ("pnat", "c:d"), ("pnat", "e:f"), ("ttl", "3")]
                    .map(|(name, text)| (name.into(), located(text)))
                    .into(),
                false => Vec::new(),
            },
            at: At::default(),
        },
    )
}

/// Hosts with static addresses, or those of DHCP.
fn host() -> impl Strategy<Value = HostGroup> {
    use squall_profile::{
        ArpUse, AuthMethod, DhcpUse, DnsType, HostAddress, HostFault, HostFaults, HostIpv6,
        HostOption, InterfaceId, LacpMode, LacpRate, PingTarget, PppMethod,
    };
    let first = Ipv4Addr::new(10, 0, 0, 2);
    let first6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
    let addresses = prop_oneof![
        Just((HostAddress::Dhcp, None)),
        Just((HostAddress::Static { first, prefix: 16 }, Some(HostIpv6::Slaac))),
        Just((HostAddress::Static { first, prefix: 16 }, None)),
        Just((HostAddress::None, Some(HostIpv6::Stateless))),
        Just((HostAddress::Dhcp, Some(HostIpv6::Dhcp))),
        Just((HostAddress::None, Some(HostIpv6::Static { first: first6, prefix: 64 }))),
        Just((HostAddress::None, None)),
        Just((HostAddress::LinkLocal, None)),
        Just((HostAddress::Pppoe, None)),
    ];
    let ping = prop_oneof![
        Just(None),
        Just(Some(PingTarget::Gateway)),
        Just(Some(PingTarget::Address(first.into()))),
        Just(Some(PingTarget::Address(first6.into()))),
    ];
    let arp = prop_oneof![Just(ArpUse::Probe), Just(ArpUse::Announce), Just(ArpUse::Silent)];
    let numbers = (1u32..1000, any::<Option<u32>>(), any::<bool>(), any::<bool>());
    (addresses, ping, arp, numbers).prop_map(
        move |((ipv4, ipv6), ping, arp, (count, time, all, serves))| {
            // Sessions carry neither multicast groups nor DNS.
            let ipv4 = if all && ipv4 == HostAddress::Pppoe { HostAddress::Dhcp } else { ipv4 };
            let static6 = matches!(ipv6, Some(HostIpv6::Static { .. }));
            let serves6 = serves && static6;
            let serves = serves && matches!(ipv4, HostAddress::Static { .. });
            let is_dhcp = ipv4 == HostAddress::Dhcp;
            let is_static = matches!(ipv4, HostAddress::Static { .. });
            let time = time.map(|time| Nanos(time.into()));
            let in_sessions = all && serves && ipv6.is_none();
            HostGroup {
                name: "subscribers".into(),
                log: if all { 0 } else { 10_000 },
                port: 1,
                mac: all.then_some(squall_units::MacAddr([2, 0, 0, 0, 0, 9])),
                ipv4,
                ipv6,
                gateway: all.then_some(first),
                gateway6: all.then_some(first6),
                interface_id: if all { InterfaceId::Stable } else { InterfaceId::Eui64 },
                dad: if all { 2 } else { 1 },
                prefix: all.then_some(56),
                rapid_commit: all,
                first_offer: all,
                advertise: serves6.then_some((first6, 64)),
                serve6: serves6.then_some((first6, first6)),
                delegate: serves6.then_some((first6, 40, 56)),
                setup: all.then_some(2000),
                serve: serves.then_some((first, Ipv4Addr::new(10, 0, 9, 9))),
                ping,
                count: if serves || serves6 { 1 } else { count },
                vlan: all.then_some(7),
                requested: (all && is_dhcp).then_some(first),
                options: match all {
                    true => vec![
                        HostOption::Text(12, "pc{n}".into()),
                        HostOption::Hex(61, "01{mac}".into()),
                    ],
                    false => Vec::new(),
                },
                relay: all.then_some(first),
                start: time.unwrap_or(Nanos::ZERO),
                arp,
                release: all,
                vendor: all.then(|| "a \"b\"".into()),
                retry: time,
                tries: all.then_some(3),
                retry_max: time,
                restarts: if all { 0 } else { 3 },
                decline_wait: time,
                renew_wait: time,
                dhcp: match (all && !serves, is_dhcp, is_static) {
                    (true, true, _) => DhcpUse::Reboot,
                    (true, _, true) => DhcpUse::Inform,
                    _ => DhcpUse::Discover,
                },
                broadcast: all,
                circuit: all.then(|| "ge-0/0/{n}".into()),
                remote: all.then(|| "{mac}".into()),
                probe_wait: time,
                probes: if all { 1 } else { 3 },
                probe_min: time,
                probe_max: time,
                announce_wait: time,
                announcements: if all { 0 } else { 2 },
                announce_interval: time,
                defend_interval: time,
                faults: HostFaults(match all {
                    true => vec![HostFault::Flood, HostFault::LateAnswer],
                    false => Vec::new(),
                }),
                late: time.unwrap_or(Nanos::SECOND),
                lease: all.then_some(Nanos(7_000_000_000)),
                ping_rate: if all { 50 } else { 100 },
                ping_count: if all { 1 } else { 3 },
                icmp_errors: all,
                link_flap: (all && ipv6 == Some(HostIpv6::Dhcp)).then_some(Nanos::SECOND),
                join: match all {
                    true => vec![
                        (Ipv4Addr::new(239, 1, 0, 0).into(), 300),
                        ("ff3e::1".parse().unwrap(), 1),
                    ],
                    false => Vec::new(),
                },
                join_each: all.then_some(4),
                join_rate: all.then_some(100),
                join_time: time.filter(|_| all),
                sources: all.then_some(first.into()).into_iter().collect(),
                exclude: all && serves,
                igmp: if all { 3 } else { 1 },
                mld: if all { 2 } else { 1 },
                robustness: if all { 7 } else { 2 },
                unsolicited: time,
                older_querier: time,
                querier: (serves && all).then_some(Nanos(125_000_000_000)),
                query_response: time,
                last_member: time,
                lldp: time.filter(|time| *time > Nanos::ZERO),
                lldp_hold: if all { 4 } else { 9 },
                lldp_fast: if all { 1 } else { 4 },
                lldp_name: all.then(|| "host-{}".into()),
                cdp: time.filter(|time| *time > Nanos::ZERO),
                cdp_hold: all.then_some(Nanos(9_000_000_000)),
                cdp_name: all.then(|| "device-{}".into()),
                resolve: all.then(|| "www{}.q{q}.example".to_owned()).into_iter().collect(),
                resolve_type: if all { DnsType::Both } else { DnsType::A },
                resolve_rate: if all { 7 } else { 100 },
                resolve_count: if all { 3 } else { 1 },
                resolve_timeout: time.filter(|time| *time > Nanos::ZERO),
                resolve_tries: if all { 1 } else { 2 },
                dns_server: all.then_some(first.into()),
                answers: match all {
                    true => vec![
                        ("www.example".into(), first.into()),
                        ("*.example".into(), first6.into()),
                    ],
                    false => Vec::new(),
                },
                answer_ttl: time,
                mdns: all.then(|| "host-{}".into()),
                auth: match (all, serves) {
                    (false, _) => AuthMethod::None,
                    (true, false) => AuthMethod::Md5,
                    (true, true) => AuthMethod::TtlsMschapV2,
                },
                tls: (all && serves).then(|| squall_profile::Tls {
                    ca: Some(located("ca.pem")),
                    ..squall_profile::Tls::default()
                }),
                identity: all.then(|| "user{}".into()),
                anonymous_identity: all.then(|| "anonymous".into()),
                password: all.then(|| "a \"b\"".into()),
                auth_start: time,
                auth_starts: all.then_some(2),
                auth_wait: time,
                auth_held: time,
                auth_tries: all.then_some(1),
                auth_again: time,
                pppoe: match ipv4 {
                    HostAddress::Pppoe => Some(PppMethod::None),
                    _ => in_sessions.then_some(PppMethod::Chap),
                },
                pppoe_service: in_sessions.then(|| "internet".into()),
                pppoe_ac: in_sessions.then(|| "a \"b\"".into()),
                mru: if all { 1_400 } else { 1_492 },
                ppp_restart: time.filter(|time| *time > Nanos::ZERO),
                ppp_configures: if all { 1 } else { 10 },
                ppp_terminates: if all { 1 } else { 2 },
                ppp_failures: if all { 1 } else { 5 },
                ppp_wait: time.filter(|time| *time > Nanos::ZERO),
                ppp_auth_retry: time.filter(|time| *time > Nanos::ZERO),
                ppp_auth_wait: time.filter(|time| *time > Nanos::ZERO),
                ppp_echo: time,
                ppp_echo_failures: if all { 1 } else { 3 },
                ppp_dns: all,
                ipv6cp: all,
                lacp: (serves && all).then_some(LacpMode::Passive),
                lacp_rate: if all { LacpRate::Slow } else { LacpRate::Fast },
                lacp_system: all.then_some(squall_units::MacAddr([2, 0, 0, 0, 0, 8])),
                lacp_system_priority: if all { 0 } else { 32_768 },
                lacp_key: if all { 7 } else { 1 },
                lacp_port: all.then_some(9),
                lacp_port_priority: if all { 1 } else { 32_768 },
                lacp_fast: time.filter(|time| *time >= Nanos::SECOND),
                lacp_slow: time.filter(|time| *time >= Nanos::SECOND),
                lacp_short: time.filter(|time| *time >= Nanos::SECOND),
                lacp_long: time.filter(|time| *time >= Nanos::SECOND),
                lacp_wait: time,
                lacp_churn: time,
                at: At::default(),
            }
        },
    )
}

/// Routers with each protocol, or with a configuration of their own.
fn router() -> impl Strategy<Value = Router> {
    use squall_profile::{
        BgpNeighbor, IsisLevel, IsisNetwork, MrtAttributes, RouteOrigin, RouterAction,
        RouterDaemon, RouterGroup, RouterStep, Routes,
    };
    let (own, other) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let own6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    (any::<bool>(), 0..4, prop::option::of(3u64..100)).prop_map(move |(all, kind, seconds)| {
        let time = seconds.map(|seconds| Nanos(seconds * Nanos::SECOND.0));
        let plain = Router {
            name: "r1".into(),
            port: 1,
            ipv4: Some((own, 24)),
            at: At::default(),
            ..Router::default()
        };
        if kind == 1 {
            return Router { config: Some("bird.conf".into()), ..plain };
        }
        if kind == 3 {
            return Router {
                daemon: RouterDaemon::Frr,
                isis: Some("49.0001".into()),
                isis_level: if all { IsisLevel::One } else { IsisLevel::Both },
                isis_metric: if all { 1 } else { 10 },
                isis_network: match all {
                    true => IsisNetwork::PointToPoint,
                    false => IsisNetwork::Broadcast,
                },
                hello: time,
                dead: time.map(|hello| Nanos(3 * hello.0)),
                ..plain
            };
        }
        if kind == 2 {
            let address = Ipv4Addr::new(10, 0, 0, 99).into();
            return Router {
                daemon: RouterDaemon::Native,
                attributes: if all { MrtAttributes::Mrt } else { MrtAttributes::Own },
                routes: vec![Routes::Mrt { path: "rib.gz".into(), peer: None, most: None }],
                count: 50,
                asn_step: if all { 2 } else { 0 },
                asn: Some(65001),
                neighbors: vec![BgpNeighbor { address, asn: Some(7) }],
                hold: time,
                step: vec![RouterStep {
                    action: Some(RouterAction::Notify),
                    neighbor: all.then_some(address),
                    code: Some(6),
                    subcode: all.then_some(0),
                    data: if all { vec![0, 255] } else { Vec::new() },
                    duration: time,
                    ..RouterStep::default()
                }],
                ..plain
            };
        }
        Router {
            mac: all.then_some(squall_units::MacAddr([2, 0, 0, 0, 0, 9])),
            ipv6: all.then_some((own6, 64)),
            router_id: all.then_some(other),
            asn: Some(65001),
            neighbors: vec![
                BgpNeighbor { address: other.into(), asn: all.then_some(u32::MAX) },
                BgpNeighbor { address: Ipv4Addr::new(10, 0, 0, 3).into(), asn: Some(7) },
            ],
            hold: time,
            password: all.then(|| "secret".into()),
            med: all.then_some(0),
            prepend: if all { 3 } else { 0 },
            communities: if all { vec![(65001, 1), (0, 65535)] } else { Vec::new() },
            ospf: all.then_some(Ipv4Addr::UNSPECIFIED),
            ospf3: all.then_some(own),
            hello: time,
            dead: time,
            rip: all,
            ripng: all,
            rip_update: time,
            bfd: all.then_some(Nanos(100_000_000)),
            routes: vec![
                Routes::Range { first: Ipv4Addr::new(10, 1, 0, 0).into(), length: 24, count: 1000 },
                Routes::Range { first: own6.into(), length: 128, count: 1 },
                Routes::Random { is_ipv6: all, count: 1_000_000 },
                Routes::Mrt {
                    path: "rib x.bz2".into(),
                    peer: all.then_some(3),
                    most: all.then_some(7),
                },
                Routes::File { path: "edge x 2.txt".into() },
            ],
            group: vec![
                RouterGroup {
                    name: "edge".into(),
                    routes: vec![Routes::Range { first: other.into(), length: 32, count: 2 }],
                    med: all.then_some(7),
                    prepend: all.then_some(0),
                    communities: all.then(Vec::new),
                    as_path: if all { vec![65010, u32::MAX] } else { Vec::new() },
                    origin: all.then_some(RouteOrigin::Incomplete),
                    attributes: all.then_some(MrtAttributes::Own),
                    next_hop: all.then_some(other.into()),
                    flap: all.then_some(0.5),
                    flap_down: time.filter(|_| all),
                    single: all,
                    at: At::default(),
                },
                RouterGroup {
                    name: "core".into(),
                    routes: vec![Routes::Range { first: own6.into(), length: 128, count: 1 }],
                    communities: Some(vec![(65001, 9)]),
                    ..RouterGroup::default()
                },
            ],
            step: vec![
                RouterStep {
                    at: Nanos(10 * Nanos::SECOND.0),
                    action: Some(RouterAction::Withdraw),
                    group: Some("edge".into()),
                    count: all.then_some(1),
                    duration: time,
                    every: all.then_some(Nanos(100 * Nanos::SECOND.0)),
                    times: all.then_some(3),
                    ..RouterStep::default()
                },
                RouterStep {
                    action: Some(RouterAction::Down),
                    neighbor: Some(other.into()),
                    message: all.then(|| "maintenance".into()),
                    ..RouterStep::default()
                },
            ],
            graceful_restart: all,
            expect: all.then(|| "r2/edge".into()),
            ..plain
        }
    })
}

prop_compose! {
    fn profile()(
        host in prop::option::of(host()),
        router in prop::option::of(router()),
        replay in prop::option::of(replay()),
        attack in prop::option::of(attack()),
        flows in prop::option::of(prop_oneof![flows(), played()]),
        mut streams in prop::collection::vec(a_stream(), 1..4),
        (seed, duration, packets) in (any::<Option<u64>>(), any::<Option<u64>>(), any::<Option<u64>>()),
        word in "\\PC{0,6}",
    ) -> Profile {
        let count = streams.len();
        for (i, (stream, next)) in streams.iter_mut().enumerate() {
            stream.name = format!("{word}\"\\\u{7f}{i}");
            if stream.mode != Mode::Continuous {
                stream.next = next.map(|(to, times)| Next { stream: to.index(count), times });
            }
        }
        let port = |name: &str| Port { name: name.into(), address: "loop:0".into(), at: At::default() };
        Profile {
            origin: String::new(),
            ports: vec![port("b c"), port("A")],
            streams: streams.into_iter().map(|(stream, _)| stream).collect(),
            replays: replay.into_iter().collect(),
            flows,
            attacks: attack.into_iter().collect(),
            hosts: host.into_iter().collect(),
            routers: router.into_iter().collect(),
            seed,
            stop: Stop { duration: duration.map(Nanos), packets, octets: packets },
            run: RunOptions {
                cores: duration.map(|_| 2),
                linger: packets.map(|n| Time(Nanos(n % 1_000_000))),
                filter: packets.map(|_| word),
                ..RunOptions::default()
            },
        }
    }
}

proptest! {
    #[test]
    fn a_profile_that_is_written_reads_back_in_every_form(profile in profile()) {
        let refuse = |path: &Path| panic!("read {path:?}");
        let toml = profile.to_toml();
        let value = profile.to_value();
        prop_assert_eq!(&values(Profile::from_value(&value, "").expect("value")), &profile);
        let json = value.to_string();
        // JSON permits a raw DEL character, but YAML does not.
        let yaml = json.replace('\u{7f}', "\\u007f");
        for (text, format) in [(toml, Format::Toml), (json, Format::Json), (yaml, Format::Yaml)] {
            match Profile::parse_with(&text, "", format, &refuse) {
                Ok(read) => prop_assert_eq!(&values(read), &profile, "{:?} {}", format, text),
                Err(mistakes) => prop_assert!(false, "{mistakes}\nin\n{text}"),
            }
        }
    }

    #[test]
    fn no_text_makes_reading_panic(
        text in "\\PC*",
        near in "(ports|stream|size|vary|template|pool|flows|\\[\\[stream\\]\\]|hex)( ?[:=] ?[\\[{\"]?[a-z0-9#.-]{0,6}[\\]}\"]?,?\n){0,9}",
        cut in any::<prop::sample::Index>(),
        noise in "\\PC{0,3}",
    ) {
        let boundary = (0..=cut.index(FULL.len())).rev().find(|i| FULL.is_char_boundary(*i)).unwrap_or(0);
        let broken = format!("{}{noise}{}", &FULL[..boundary], &FULL[boundary..]);
        for format in [Format::Toml, Format::Yaml, Format::Json] {
            for text in [&text, &near, &broken] {
                let _ = Profile::parse_with(text, "x", format, &|_| Err(io::ErrorKind::NotFound.into()));
            }
        }
    }
}
