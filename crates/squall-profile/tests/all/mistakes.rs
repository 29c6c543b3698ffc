//! Tests the messages of errors. Each case is a profile and its message.

use squall_profile::{Format, Profile};

const HEAD: &str = "[ports]\nA = \"loop:0\"\nB = \"null:\"\n";
const STREAM: &str = "[[stream]]\nname = \"web\"\nport = \"A\"\nhex = \"020000000001020000000002 \
                      88b5\"\nrate = 10\n";

fn no_files(_: &std::path::Path) -> std::io::Result<String> {
    Err(std::io::ErrorKind::NotFound.into())
}

fn mistakes(text: &str, format: Format) -> String {
    match Profile::parse_with(text, "load.toml", format, &no_files) {
        Ok(profile) => panic!("no mistake was found in\n{text}\nread as {profile:#?}"),
        Err(mistakes) => mistakes.to_string(),
    }
}

/// All errors of a profile with one valid stream that has the additional keys `more`. The stream
/// begins in line 4.
fn in_stream(more: &str) -> String {
    mistakes(&format!("{HEAD}{STREAM}{more}"), Format::Toml)
}

#[track_caller]
fn assert_contains(found: &str, expected: &str) {
    assert!(found.contains(expected), "expected\n{expected}\nin\n{found}");
}

#[test]
fn sessions_of_pppoe_carry_groups_of_their_families_and_no_names_of_multicast() {
    let host = "[[host]]\nport = \"A\"\npppoe = \"none\"\n";
    for (more, what, hint) in [
        ("join = \"ff3e::1\"", "joins groups of IPv6, which its sessions", "try ipv6cp = true"),
        ("mdns = \"host-{}\"", "no other host is on the link", "a group of hosts without pppoe"),
    ] {
        let found = mistakes(&format!("{HEAD}{host}{more}\n"), Format::Toml);
        assert_contains(&found, what);
        assert_contains(&found, hint);
    }
    // A concentrator answers names on its link.
    let server = "ipv4 = \"10.0.0.1/16\"\nserve = \"10.0.1.0-10.0.1.9\"\nmdns = \"ac\"\n";
    let groups = "join = \"239.1.0.1\"\n";
    let both = "join = [\"239.1.0.1\", \"ff3e::1\"]\nipv6cp = true\n";
    for more in [server, groups, both] {
        let text = format!("{HEAD}{host}{more}");
        let read = Profile::parse_with(&text, "load.toml", Format::Toml, &no_files);
        assert!(read.is_ok(), "{}", read.unwrap_err());
    }
}

#[test]
fn options_of_a_run_are_read_with_their_places() {
    let run = |lines: &str| mistakes(&format!("[run]\n{lines}{HEAD}{STREAM}"), Format::Toml);
    let found = run("cores = 0\nlingr = 1\nseed = 7\nmult = \"quick\"\ncpus = [3, 2]\n");
    assert_contains(&found, "load.toml:2:9  run.cores = 0: expected 1 to 1024");
    assert_contains(
        &found,
        "load.toml:3:1  run.lingr is not a known key\n  did you mean \"linger\"?",
    );
    assert_contains(
        &found,
        "load.toml:4:1  run.seed is a top-level key of the profile\n  try seed at the top level",
    );
    assert_contains(&found, "load.toml:5:8  run.mult = \"quick\": expected a factor");
    assert_eq!(found.lines().filter(|line| line.starts_with("load.toml")).count(), 4, "{found}");
}

#[test]
fn all_mistakes_of_a_file_are_reported_at_once_in_order() {
    let found = mistakes(
        "seed = -1\ncolour = 3\n[ports]\nA = \"\"\n[[stream]]\nport = \"B\"\nrate = \"12 \
         Gbp\"\nlate = \"dorp\"\n[[stream]]\n",
        Format::Toml,
    );
    let places: Vec<&str> = found
        .lines()
        .filter(|l| l.starts_with("load"))
        .map(|l| l.split("  ").next().unwrap())
        .collect();
    assert_eq!(
        places,
        [
            "load.toml:1:8",
            "load.toml:2:1",
            "load.toml:4:5",
            "load.toml:5:1",
            "load.toml:6:8",
            "load.toml:7:8",
            "load.toml:8:8",
            "load.toml:9:1",
            "load.toml:9:1",
            "load.toml:9:1"
        ],
        "{found}"
    );
}

#[test]
fn a_misspelt_key_is_named_with_the_nearest_one() {
    assert_contains(
        &in_stream("raet = 3\n"),
        "load.toml:9:1  stream \"web\": raet is not a known key\n  did you mean \"rate\"?",
    );
    assert_contains(
        &in_stream("mode = { brust = 3 }"),
        "load.toml:9:10  stream \"web\": mode.brust is not a known key\n  did you mean \"burst\"?",
    );
}

#[test]
fn each_wrong_value_says_what_was_expected() {
    for (line, expected) in [
        (
            "size = 17",
            "9:8  stream \"web\": size = 17 is not a frame length\n  frames are 18 to 65554 \
             octets with FCS",
        ),
        ("size = true", "size = true is not a frame length"),
        ("size = \"1518-64\"", "try the smaller one first: \"64-1518\""),
        ("size = []", "is not a list of lengths"),
        ("size = [64, 5]", "9:13  stream \"web\": size[1] = 5 is not a frame length"),
        ("size = \"imix:az\"", "z needs a length"),
        ("size = { weights = [[64, 0]] }", "size.weights has a sum that is out of range"),
        (
            "size = { weights = [[64, 1], [5, 1]] }",
            "size.weights is not a list of lengths and weights",
        ),
        ("size = { weights = [[64]] }", "size.weights[0] = [...] is not a length and its weight"),
        (
            "size = { weights = [[64, 1]], uniform = \"64-128\" }",
            "has weights and uniform, expected one of",
        ),
        ("size = { }", "has none, expected one of"),
        ("size = { uniform = \"64\" }", "is not a range of lengths"),
        ("size = { genome = \"aq\" }", "'q' is not a genome letter"),
        ("size = { weights = [[64, 1]], z = 1500 }", "size.z has no effect with weights"),
        ("size = { normal = { mean = 2000, sd = 10 } }", "is not a normal distribution of lengths"),
        ("size = { normal = { mean = 594, sd = 1e9 } }", "sd at most max - min"),
        ("size = { normal = { sd = 10 } }", "has no \"mean\""),
        ("departures = \"posson\"", "did you mean \"poisson\"?"),
        (
            "departures = { uniform = 1.5 }",
            "departures.uniform = 1.5 is out of bounds\n  expected more than 0, at most 1",
        ),
        ("departures = { pareto = 1 }", "more than 1, at most 100"),
        ("departures = { gamma = nan }", "is not a number"),
        ("departures = { on = \"1 s\" }", "has no \"off\""),
        ("departures = { off = \"1 s\" }", "has no \"on\""),
        ("departures = { on = 0, off = 1 }", "is never on"),
        ("mode = \"burst\"", "is not a mode"),
        ("mode = { burst = 0 }", "mode.burst = 0 sends nothing"),
        ("mode = { bursts = 2 }", "has no \"packets\""),
        ("mode = { burst = 2, gap = 1 }", "mode.gap has no effect with burst"),
        ("start_delay = \"10\\u00b5\"", "is not a duration"),
        ("latency = \"yes\"", "latency = \"yes\" is not true or false"),
        ("group = 3", "group = 3 is not text"),
        ("late = 3", "is not a policy for late frames"),
        ("next = \"web\"", "next never starts: the stream is continuous"),
        (
            "mode = { burst = 1 }\nnext = \"wbe\"",
            "next = \"wbe\" is not an enabled stream\n  did you mean \"web\"?",
        ),
        ("mode = { burst = 1 }\nnext = { times = 1 }", "next has no \"stream\""),
        (
            "mode = { burst = 1 }\nnext = { stream = \"web\", times = 0 }",
            "next.times = 0 is less than 1",
        ),
        ("self_start = false", "it would never start"),
        ("enabled = false", "there is nothing to send"),
        ("pcap = \"a.pcap\"", "has hex and pcap, expected one of packet, hex, pcap"),
        (
            "[[stream]]\nname = \"web\"\nport = \"A\"\nrate = 1\nhex = \"020000000001020000000002 \
             88b5\"",
            "= \"web\" is already the name of another stream",
        ),
    ] {
        assert_contains(&in_stream(line), expected);
    }
}

#[test]
fn frames_as_hex_are_checked_digit_by_digit() {
    let with = |hex: &str| {
        mistakes(
            &format!("ports = {{ A = \"null:\" }}\n[[stream]]\nrate = 1\nhex = {hex:?}"),
            Format::Toml,
        )
    };
    assert_contains(
        &with("0200 zz"),
        "load.toml:4:13  stream 1: hex says 'z', expected a hexadecimal digit",
    );
    assert_contains(&with("020"), "ends in the middle of an octet");
    assert_contains(&with("0200"), "is 2 octets, expected 14 to 65550");
    assert_contains(&with("0000 45 00\n0010 12"), "is 3 octets, expected 14 to 65550");
}

#[test]
fn a_capture_and_its_frame_are_checked() {
    for pcap in ["x.pcap#0", "x.pcap#", "x.pcap#a", "", "#3"] {
        let found = mistakes(
            &format!("ports = {{ A = \"null:\" }}\n[[stream]]\nrate = 1\npcap = {pcap:?}"),
            Format::Toml,
        );
        assert_contains(&found, "is not a frame of a capture\n  try \"capture.pcap#3\"");
    }
}

#[test]
fn a_stream_needs_a_port_a_packet_and_a_rate() {
    let found = mistakes("[ports]\nA = \"loop:0\"\nB = \"null:\"\n[[stream]]\n", Format::Toml);
    assert_contains(
        &found,
        "stream 1 has no port, and [ports] has several\n  try port = \"A\"; [ports] has A, B",
    );
    assert_contains(&found, "stream 1 has none, expected one of packet, hex, pcap");
    assert_contains(&found, "stream 1 has no \"rate\"\n  try rate = \"1 kpps\"");
    assert_contains(&mistakes("[[stream]]\nrate = 1", Format::Toml), "the profile has no [ports]");
    assert_contains(&mistakes("[ports]\nA = \"loop:0\"", Format::Toml), "there is nothing to send");
    assert_contains(&mistakes("", Format::Yaml), "is not a table");
}

#[test]
fn each_wrong_variation_says_what_was_expected() {
    for (vary, expected) in [
        ("op = \"increment\"\nmax = 3", "vary[0] has none, expected one of field, offset"),
        ("field = \"ipv4.src\"", "vary[0] has no \"op\""),
        ("field = \"a.b\"\nop = \"increnent\"", "did you mean \"increment\"?"),
        ("field = \"a.b\"\nop = \"increment\"", "has no \"max\""),
        (
            "field = \"a.b\"\nop = \"increment\"\nmin = \"10.0.0.9\"\nmax = \"10.0.0.1\"",
            "13:7  stream \"web\": vary[0].max = 10.0.0.1 is less than min = 10.0.0.9",
        ),
        (
            "field = \"a.b\"\nop = \"increment\"\nmax = 3\ninit = 4",
            "vary[0].init = 4 is out of bounds\n  expected 0 to 3",
        ),
        (
            "field = \"a.b\"\nop = \"decrement\"\nmax = 3\nstep = 0",
            "vary[0].step = 0 is not a step",
        ),
        ("field = \"a.b\"\nop = \"increment\"\nmax = -3", "= -3 is not a number or an address"),
        (
            "field = \"a.b\"\nop = \"increment\"\nmax = 3\nweights = [1]",
            "vary[0].weights has no effect with op = \"increment\"",
        ),
        ("field = \"a.b\"\nop = \"random\"\nmax = 3\nlimit = 0", "draws nothing"),
        ("field = \"a.b\"\nop = \"list\"", "has no \"values\""),
        ("field = \"a.b\"\nop = \"list\"\nvalues = []", "is empty"),
        (
            "field = \"a.b\"\nop = \"list\"\nvalues = [1, \"x\"]",
            "12:14  stream \"web\": vary[0].values[1] = \"x\" is not a number",
        ),
        ("field = \"a.b\"\nop = \"list\"\nvalues = [1]\ninit = 2", "is not among the values"),
        ("field = \"a.b\"\nop = \"weighted\"\nvalues = [1]", "has no \"weights\""),
        (
            "field = \"a.b\"\nop = \"weighted\"\nvalues = [1]\nweights = [1, 2]",
            "has 2 weights for 1 values",
        ),
        (
            "field = \"a.b\"\nop = \"weighted\"\nvalues = [1]\nweights = [0]",
            "has a sum that is out of range",
        ),
        (
            "field = \"a.b\"\nop = \"file\"\npath = \"x.txt\"",
            "cannot read x.txt: there is no such file",
        ),
        ("offset = 3\nop = \"list\"\nvalues = [1]", "has no \"octets\""),
        (
            "offset = 3\noctets = 9\nop = \"list\"\nvalues = [1]",
            "octets = 9 is out of bounds\n  expected 1 to 8",
        ),
        (
            "offset = 3\noctets = 1\nmask = 0x100\nop = \"list\"\nvalues = [1]",
            "expected 1 to 0xff, the bits of 1 octets",
        ),
        (
            "field = \"a.b\"\nmask = 1\nop = \"list\"\nvalues = [1]",
            "has \"mask\", which has no effect with \"field\"",
        ),
        (
            "field = \"a.b\"\nafter = \"c.d\"\nop = \"list\"\nvalues = [1]",
            "is not an earlier field program",
        ),
        (
            "field = \"a.b\"\nafter = \"a.b\"\nop = \"random\"\nmax = 1",
            "cannot be used with op = \"random\"",
        ),
        (
            "field = \"a.b\"\nop = \"random\"\nmax = 1\n[[stream.vary]]\nfield = \"c.d\"\nafter = \
             \"a.b\"\nop = \"list\"\nvalues = [1]",
            "= \"a.b\" is random and never wraps",
        ),
        ("op = \"tuple\"\nip_min = 2", "has no \"ip_max\""),
        ("op = \"tuple\"\nip_min = 2\nip_max = 1", "is less than ip_min = 2"),
        ("op = \"tuple\"\nip_min = 1\nip_max = 2\nport_max = 80", "is less than port_min = 1025"),
        ("op = \"tuple\"\nip_min = 1\nip_max = 2\nfields = [\"ipv4.src\"]", "is not two fields"),
        (
            "op = \"tuple\"\nip_min = 1\nip_max = 2\nfield = \"ipv4.src\"",
            "vary[0].field has no effect with op = \"tuple\"",
        ),
    ] {
        assert_contains(&in_stream(&format!("[[stream.vary]]\n{vary}\n")), expected);
    }
}

#[test]
fn text_that_is_no_toml_yaml_or_json_says_where() {
    assert_contains(&mistakes("seed = 1\nrate 3\n", Format::Toml), "load.toml:2:");
    assert_contains(&mistakes("a: 1\nb: }\n", Format::Yaml), "load.toml:2:");
    assert_contains(
        &mistakes("{\"a\": 1,\n \"b\" 3}", Format::Json),
        "load.toml:2:6  expected `:`",
    );
    assert_contains(
        &mistakes("a: &x [1]\na: 2\n", Format::Yaml),
        "load.toml:2:1  duplicate key \"a\"",
    );
    assert_contains(
        &mistakes("{\"a\": 1, \"a\": 2}", Format::Json),
        "load.toml:1:10  duplicate key \"a\"",
    );
    assert_contains(&mistakes("a = 1\na = 2\n", Format::Toml), "load.toml:2:1  duplicate key");
    assert_contains(&mistakes("a: 1\n---\nb: 2\n", Format::Yaml), "has a second document");
}

#[test]
fn yaml_and_json_say_line_and_column_too() {
    let yaml = "ports: {A: 'loop:0'}\nstream:\n  - name: web\n    hex: \
                0200000000010200000000020800\n    rate: 12 Gbp\n";
    assert_contains(
        &mistakes(yaml, Format::Yaml),
        "load.toml:5:11  stream \"web\": rate = \"12 Gbp\" is not a rate",
    );
    let json = "{\"ports\": {\"A\": \"loop:0\"},\n\"stream\": [{\"hex\": \
                \"0200000000010200000000020800\",\n \"rate\": \"12 Gbp\"}]}";
    assert_contains(
        &mistakes(json, Format::Json),
        "load.toml:3:10  stream 1: rate = \"12 Gbp\" is not a rate",
    );
}

#[test]
fn aliases_that_unfold_without_end_are_refused() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..30 {
        let item = format!("*a{}", i - 1);
        bomb += &format!("a{i}: &a{i} [{}]\n", [item.as_str(); 10].join(", "));
    }
    assert_contains(&mistakes(&bomb, Format::Yaml), "aliases expand to more than 100000 values");
    assert_contains(&mistakes(&"[".repeat(5000), Format::Yaml), "load.toml:1:");
    assert_contains(&mistakes(&"[".repeat(5000), Format::Json), "load.toml:1:");
    assert_contains(&mistakes(&format!("a = {}", "[".repeat(5000)), Format::Toml), "load.toml:1:");
}

#[test]
fn values_that_never_were_text_are_named_by_their_key() {
    let value =
        serde_json::json!({ "ports": { "A": "null:" }, "stream": [{ "rate": [], "hex": "00" }] });
    let found = Profile::from_value(&value, "<python>").unwrap_err().to_string();
    assert_contains(&found, "<python>: stream[0].rate  stream 1: rate = [...] is not a rate");
}

#[test]
fn a_file_whose_extension_says_nothing_is_refused() {
    assert_contains(
        &Profile::load("profile.txt").unwrap_err().to_string(),
        "unknown file extension; expected .toml, .yaml, .yml or .json",
    );
    assert_contains(
        &Profile::load("/nonexistent/profile.toml").unwrap_err().to_string(),
        "cannot read /nonexistent/profile.toml: there is no such file",
    );
}

#[test]
fn a_mistake_in_packet_text_points_into_the_text() {
    let with = |packet: &str| {
        mistakes(
            &format!("{HEAD}[[stream]]\nport = \"A\"\nrate = 1\npacket = {packet}\n"),
            Format::Toml,
        )
    };
    let found = with("\"eth/ipv4(dts=1.2.3.4)/udp\"");
    assert_contains(&found, "load.toml:7:20  stream 1: packet says");
    assert_contains(&found, "\n  eth/ipv4(dts=1.2.3.4)/udp\n           ^^^");
    assert_contains(&with("\"\\u0065th/ipv4(dts=1.2.3.4)/udp\""), "load.toml:7:");
    assert_contains(
        &with("\"\"\"\\\n  eth/ipv4(\\\n  dts=1.2.3.4)/udp\"\"\""),
        "load.toml:9:3  stream 1: packet says",
    );
    assert_contains(&with("\"eth/ipv4(\""), "load.toml:7:");
}

/// All errors of a profile with one template, which begins in line 4 and is followed by `more`.
fn in_template(template: &str, more: &str) -> String {
    mistakes(&format!("{HEAD}[[template]]\nname = \"web\"\n{template}{more}"), Format::Toml)
}

#[test]
fn missing_keys_of_a_template_are_reported() {
    let found = in_template("", "");
    assert_contains(
        &found,
        "load.toml:4:1  template[0] has no exchange\n  expected app, or client and server, or \
         capture",
    );
    assert_contains(&found, "has no \"cps\"\n  try cps = 1000, or weight = 1, or users = 100");
    assert_contains(
        &found,
        "has no \"clients\"\n  try clients = \"16.0.0.1-16.0.0.254\", or the name of a pool",
    );
    assert_contains(&found, "has no \"servers\"");
    let ends = "clients = \"16.0.0.1\"\nservers = \"48.0.0.1\"\ncps = 1\n";
    let http = |value: &str| in_template(ends, &format!("app = \"http\"\nhttp = {value}\n"));
    assert_contains(&http("{}"), "load.toml:10:8  template[0].http has no settings");
    let found = http("\"4\"");
    assert_contains(&found, "is not \"2\", \"2,1.1\", \"3\" or a table\n  try \"2\", or { streams");
    assert_contains(&http("{ streams = 0 }"), "expected 1 to 100");
    let found = http("{ version = \"3\", fallback = true }");
    assert_contains(&found, "has \"fallback\", but HTTP/3 has no such setting");
    let found = http("{ retry = true }");
    assert_contains(&found, "has \"retry\", but HTTP/2 has none\n  try version = \"3\"");
    let found = http("{ version = \"3\", migrate_to = \"address\" }");
    assert_contains(&found, "has \"migrate_to\", but no connection migrates\n  try migrate_after");
    let found = http("{ version = \"3\", migrate_after = 1, migrate_to = \"host\" }");
    assert_contains(&found, "is not an end to migrate to");
    let found = http("{ early_data = true }");
    let expected = "has \"early_data\", but HTTP/2 has none\n  try tls = { early_data = true }";
    assert_contains(&found, expected);
    assert_contains(
        &in_template(ends, "client = [\"recv 1\"]\n"),
        "has no \"listen\"\n  try listen = 80",
    );
    assert_contains(&in_template(ends, "client = []\nlisten = 1\n"), "has no instructions");
    assert_contains(
        &in_template(ends, "client = []\napp = \"http\"\n"),
        "has app, and client and server",
    );
    assert_contains(
        &in_template(ends, "capture = \"x.pcap#0\"\n"),
        "9:11  template[0].capture = \"x.pcap#0\" has no conversation number after #",
    );
    assert_contains(
        &in_template(ends, "app = \"http\"\ndelays = \"drop\"\n"),
        "\"delays\", which has no effect without capture",
    );
}

#[test]
fn stages_that_cannot_be_are_refused_where_they_stand() {
    let refused = |load: &str, stages: &str| {
        let text = format!(
            "[ports]\nA = \"loop:0\"\nB = \"loop:0\"\n[flows]\nclients = \"A\"\nservers = \
             \"B\"\n{load}\n[[template]]\nname = \"web\"\nclients = \"16.0.0.1\"\nservers = \
             \"48.0.0.1\"\napp = \"http\"\nstages = {stages}\n"
        );
        mistakes(&text, Format::Toml)
    };
    for (load, stages, expected) in [
        ("", "[{ duration = \"10 s\", to = 0 }]", "never reaches a level above 0"),
        ("", "[{ to = 5 }]", "never reaches a level above 0"),
        ("", "[{}, { duration = 1, to = 5 }]", "stages[0] has neither duration nor to"),
        ("", "[{ duration = \"25 h\", to = 5 }]", "is too long for a level that rises or falls"),
        ("", "[{ duration = 1, to = -5 }]", "is not a number, 0 or more"),
        ("", "[{ duration = 9, to = 50 }]\ncps = 20", "= 50 is more than cps = 20"),
        ("", "[{ duration = 9, to = 50 }]\nusers = 20", "= 50 is more than users = 20"),
        ("cps = 9", "[{ duration = 9, to = 50 }]\nweight = 2", "cannot be combined with weight"),
        ("ramp_up = 2", "[{ duration = 9, to = 50 }]", "both shape the load"),
    ] {
        assert_contains(&refused(load, stages), expected);
    }
}

#[test]
fn settings_of_the_proxy_protocol_fit_its_version() {
    let ends = "clients = \"16.0.0.1\"\nservers = \"48.0.0.1\"\napp = \"http\"\ncps = 1\n";
    for (proxy, expected) in [
        ("\"v3\"", "proxy_protocol = \"v3\" is not a version of the PROXY protocol"),
        ("true", "is not a version or a table\n  try \"v2\", or { version = \"v1\""),
        (
            "{ version = \"v1\", unique_id = true }",
            "has \"unique_id\", but version 1 has no such field\n  try version = \"v2\"",
        ),
        (
            "{ local = true, sources = \"10.0.0.1\" }",
            "has \"sources\", but headers with local are empty\n  try local = false",
        ),
        ("{ alpn = \"\" }", "has \"alpn\" with 0 octets\n  expected 1 to 255"),
    ] {
        let found = in_template(ends, &format!("proxy_protocol = {proxy}\n"));
        assert_contains(&found, expected);
    }
}

#[test]
fn stages_of_a_stream_have_one_unit_and_an_end() {
    let refused = |keys: &str| {
        let text = format!(
            "ports = {{ A = \"loop:0\" }}\n[[stream]]\npacket = \"eth/ipv4/udp\"\n{keys}\n"
        );
        mistakes(&text, Format::Toml)
    };
    for (keys, expected) in [
        (
            "stages = [{ duration = 1, to = 5 }]\nrate = \"max\"",
            "need a rate with a number, not \"max\"",
        ),
        ("stages = [{ duration = 1, to = \"max\" }]", "need a rate with a number, not \"max\""),
        (
            "stages = [{ duration = 1, to = \"5 %\" }]\nrate = 5",
            "does not have the unit of the other rates",
        ),
        ("stages = [{ duration = 1, to = 6 }]\nrate = 5", "is more than rate = 5 pps"),
        ("stages = [{ duration = 1 }]\nrate = 5", "never reaches a level above 0"),
        (
            "stages = [{ duration = 1, to = 5 }]\nmode = { bursts = 2, packets = 1, gap = 1 }",
            "cannot be combined with several bursts",
        ),
        ("stages = [{ duration = 1, at = 5 }]", "stages[0]"),
    ] {
        assert_contains(&refused(keys), expected);
    }
}

#[test]
fn invalid_loads_are_reported() {
    let ends = "clients = \"users\"\nservers = \"48.0.0.1\"\napp = \"http\"\n";
    let pool = "[[pool]]\nname = \"user\"\naddresses = \"16.0.0.1\"\n";
    let found = in_template(ends, &format!("cps = 1\n{pool}"));
    assert_contains(
        &found,
        "6:11  template[0].clients = \"users\" is not a pool\n  did you mean \"user\"?",
    );
    let ends = ends.replace("users", "user");
    assert_contains(
        &in_template(&ends, &format!("weight = 1\n{pool}")),
        "weight needs a load in [flows]\n  try adding to [flows]",
    );
    assert_contains(
        &in_template(&ends, &format!("weight = 1\ncps = 2\n{pool}")),
        "has several of cps, weight and users",
    );
    assert_contains(
        &in_template(&ends, &format!("cps = \"no\"\n{pool}")),
        "cps = \"no\" is not a number above 0",
    );
    assert_contains(
        &in_template(&ends, &format!("cps = 1\nthink = 1\n{pool}")),
        "think needs users",
    );
    assert_contains(
        &in_template(&ends, &format!("called = true\nlimit = 5\nafter = \"x\"\n{pool}")),
        "has no effect beside limit, after: other flows begin those of the template",
    );
    let mix = ends.replace("http", "mix");
    assert_contains(&in_template(&mix, &format!("called = true\n{pool}")), "a mix has several");
    assert_contains(
        &in_template(&ends, &format!("cps = 1\n{pool}{pool}")),
        "is already the name of another pool",
    );
    let flows =
        "[flows]\nclients = \"C\"\nramp_down = 3\ncps = 1\nactive = 2\nbandwidth = \"3 kpps\"\n";
    let found = in_template(&ends, &format!("cps = 1\n{pool}{flows}"));
    assert_contains(&found, "flows.clients = \"C\" is not among [ports]");
    assert_contains(&found, "flows has several of cps, active and bandwidth");
    assert_contains(&found, "flows.ramp_down never starts");
    assert_contains(&found, "flows.bandwidth = 3 kpps is not a bandwidth in bits per second");
    let network = "[flows.client_network]\nmtu = 100\ngateway = \"10.0.0.1\"\nnext_hop = \
                   \"02:00:00:00:00:01\"\n";
    let found = in_template(&ends, &format!("cps = 1\n{pool}{network}"));
    assert_contains(
        &found,
        "flows.client_network.mtu = 100 is out of bounds\n  expected 576 to 65535",
    );
    assert_contains(&found, "flows.client_network has both gateway and next_hop");
    let pairs = "[flows]\nlimit = 5\n[[flows.pair]]\n[[flows.pair]]\nclients = \"A\"\n";
    let found = in_template(&ends, &format!("pair = 4\ncps = 1\n{pool}{pairs}"));
    assert_contains(&found, "pair = 4, but [flows] has 3 pairs of ports");
    assert_contains(&found, "flows.pair cannot be combined with limit");
    assert_contains(&found, "has no port, expected clients or servers");
    assert_contains(&found, "clients = \"A\" is the port of another pair");
    assert_contains(
        &mistakes(&format!("{HEAD}{pool}"), Format::Toml),
        "is [[pool]], but the profile has no template",
    );
}

#[test]
fn a_profile_of_another_version_is_refused() {
    let found = mistakes(&format!("schema = 2\n{HEAD}{STREAM}"), Format::Toml);
    assert_contains(&found, "load.toml:1:10  schema = 2 is not a known version");
    assert_contains(&found, "expected 1");
}

#[test]
fn errors_of_a_replay_have_places() {
    let of = |more: &str| mistakes(&format!("{HEAD}[[replay]]\n{more}"), Format::Toml);
    assert_contains(&of("port = \"A\"\n"), "has no files");
    assert_contains(
        &of("files = \"a.pcap\"\n"),
        "has no port, and [ports] does not have exactly one",
    );
    assert_contains(
        &of("files = \"a.pcap\"\nport = \"A\"\nport2 = \"A\"\n"),
        "is the same as port",
    );
    let two = of("files = \"a.pcap\"\nport = \"A\"\nrate = 10\nmbps = 3\n");
    assert_contains(
        &two,
        "load.toml:8:8  replay[0].mbps cannot be combined with rate: expected one of them",
    );
    let split = "files = \"a.pcap\"\nport = \"A\"\nport2 = \"B\"\nsplit = { colour = \"red\" }\n";
    assert_contains(&of(split), "has \"colour\", which is not a way to split packets");
    assert_contains(
        &of("files = \"a.pcap\"\nport = \"A\"\nsplit = { auto = \"first\" }\n"),
        "no port2",
    );
    assert_contains(&of("files = \"a.pcap\"\nport = \"A\"\ntogether = 0\n"), "expected 1 or more");
    assert_contains(&of("files = \"a.pcap\"\nport = \"A\"\ntoo_long = \"fold\"\n"), "skip");
    let twice = "files = \"a.pcap\"\nport = \"A\"\nname = \"x\"\n";
    assert_contains(
        &of(&format!("{twice}[[replay]]\n{twice}")),
        "is already the name of another replay",
    );
    let as_stream = in_stream("[[replay]]\nfiles = \"a.pcap\"\nport = \"A\"\nname = \"web\"\n");
    assert_contains(&as_stream, "replay \"web\" has the same name as a stream");
    let template = "[[template]]\nname = \"web\"\nclients = \"16.0.0.1\"\nservers = \
                    \"48.0.0.1\"\napp = \"http\"\ncps = 1\n";
    assert_contains(&in_stream(template), "template \"web\" has the same name as a stream");
    let second = format!("name = \"replay 2\"\n{twice}").replace("name = \"x\"\n", "");
    let unnamed = twice.replace("name = \"x\"\n", "");
    assert_contains(
        &of(&format!("{second}[[replay]]\n{unnamed}")),
        "is already the name of another replay",
    );
}

#[test]
fn a_router_that_cannot_work_is_refused_with_a_reason() {
    let good = "ipv4 = \"10.0.0.1/24\"\nasn = 65001\nneighbors = \"10.0.0.2 as 65002\"";
    let group = |lines: &str| {
        format!("{good}\n[[router.group]]\nname = \"edge\"\nroutes = \"10.1.0.0/24\"\n{lines}")
    };
    let step = |lines: &str| format!("{}\n[[router.step]]\n{lines}", group(""));
    let native = |lines: &str| format!("{good}\ndaemon = \"native\"\n{lines}");
    let frr = |lines: &str| format!("{good}\nisis = \"49.0001\"\n{lines}");
    for (lines, expected) in [
        ("rip = true".to_owned(), "has no address"),
        ("ipv4 = \"10.0.0.1/24\"".into(), "speaks no protocol"),
        ("ipv4 = \"10.0.0.1\"\nrip = true".into(), "is not an address with a prefix"),
        ("ipv6 = \"2001:db8::1/64\"\nrip = true".into(), "RIPv2 without an IPv4 address"),
        ("ipv4 = \"10.0.0.1/24\"\nasn = 65001".into(), "without neighbors"),
        (format!("{good}\nconfig = \"bird.conf\""), "a configuration of its own"),
        (good.replace("10.0.0.2", "2001:db8::2"), "of which it has no address"),
        (good.replace(" as 65002", " as 0"), "is not a neighbor of BGP"),
        (format!("{good}\nroutes = \"10.0.0.1/24\""), "is not a range of routes"),
        (format!("{good}\nroutes = \"255.255.255.0/24 x 2\""), "is not a range of routes"),
        (format!("{good}\nroutes = \"::/0 x 2\""), "is not a range of routes"),
        (format!("{good}\nroutes = \"random\""), "is not a range of routes"),
        (format!("{good}\nroutes = \"random6 x 0\""), "is not a range of routes"),
        (format!("{good}\nroutes = \"mrt:rib.gz#65536\""), "is not a range of routes"),
        (format!("{good}\nroutes = \"file:\""), "is not a range of routes"),
        (format!("{good}\nroutes = \"::/32 x 10000001\""), "announces 10000001 routes"),
        (format!("{good}\npassword = 'a\"b'"), "not 1 to 80 octets without quotation marks"),
        (format!("{good}\npassword = ''"), "not 1 to 80 octets"),
        (format!("{good}\npassword = '{}'", "a".repeat(81)), "not 1 to 80 octets"),
        (format!("{good}\nhold = \"100 ms\""), "not in whole seconds"),
        (format!("{good}\nmac = \"01:00:00:00:00:01\""), "is not the MAC address of an interface"),
        (format!("{good}\ncommunities = \"70000:1\""), "is not a community"),
        (format!("{good}\nospf = \"backbone\""), "is not an area"),
        (format!("{good}\n[[router.group]]\nname = \"edge\""), "has no \"routes\""),
        (format!("{good}\n[[router.group]]\nroutes = \"::/0\""), "has no \"name\""),
        (
            format!(
                "{good}\nroutes = \"::/0\"\n[[router.group]]\nname = \"routes\"\nroutes = \"::/1\""
            ),
            ":8:1  router \"router 1\": \"routes\" is already the name of another group",
        ),
        (
            group("flap = \"100\""),
            ":10:8  router[0].group[0].flap = \"100\" is not a number of routes",
        ),
        (group("flap_down = \"1 s\""), "needs flap"),
        (group("next_hop = \"2001:db8::1\""), "no routes of its next hop's IP version"),
        (group("as_path = \"0\""), "is not an AS path"),
        (group("origin = \"bgp\""), "is not an origin of routes"),
        (step("at = \"1 s\""), "has no \"action\""),
        (step("action = \"drop\""), "is not an action of a router"),
        (step("action = \"withdraw\"\ngroup = \"edges\""), "the group \"edges\", which is not"),
        (step("action = \"withdraw\"\nneighbor = \"10.0.0.2\""), "has no effect with action"),
        (step("action = \"down\"\nneighbor = \"10.0.0.3\""), "a neighbor that is not in neighbors"),
        (step("action = \"down\"\nmessage = 'a\"b'"), "quotation marks"),
        (
            format!("routes = \"::/0\"\n{}", step("action = \"withdraw\"\ncount = 1")),
            "a step has a count, but no group\n  known: routes, edge",
        ),
        (
            "ipv4 = \"10.0.0.1/24\"\nrip = true\n[[router.step]]\naction = \"refresh\"".into(),
            "speaks no BGP",
        ),
        (step("action = \"up\"\ntimes = 3"), "has times without an interval"),
        (
            step("action = \"silent\"\nduration = \"1 s\"\nevery = \"1 s\""),
            "or not above its duration",
        ),
        (
            format!("{good}\n[[router.step]]\naction = \"announce\""),
            "action = \"announce\", but there are no routes",
        ),
        (
            "ipv4 = \"10.0.0.1/24\"\nconfig = \"b\"\n[[router.step]]\naction = \"restart\"".into(),
            "a configuration of its own",
        ),
        (frr("daemon = \"bird\""), "speaks IS-IS, which only FRR does"),
        (frr("").replace("49.0001", "49.001"), "is not an area of IS-IS"),
        (frr("").replace("49.0001", "4"), "is not an area of IS-IS"),
        (frr("isis_level = \"3\""), "is not a level of IS-IS"),
        (frr("isis_network = \"nbma\""), "is not a network of IS-IS"),
        (frr("isis_metric = 16777215"), "isis_metric"),
        (frr("hello = \"2 s\"\ndead = \"5 s\""), "2 to 100 hello intervals of IS-IS"),
        (frr("hello = \"601 s\""), "a hello interval above 600 s"),
        (frr("rip = true\nrip_update = \"4 s\""), "an interval of RIP that is shorter than 5 s"),
        (frr("hold = \"2 s\""), "a hold time below 3 s, which FRR cannot have"),
        (frr("bfd = \"9 ms\""), "an interval of BFD below 10 ms, which FRR cannot have"),
        (frr("password = \"a b\""), "a password with a space, which FRR cannot read"),
        (frr("graceful_restart = true"), "offers a graceful restart, which needs BIRD"),
        (frr("count = 2"), "has a count or an asn_step, but is a daemon"),
        (
            "ipv4 = \"10.0.0.1/24\"\ndaemon = \"frr\"\nconfig = \"b\"".into(),
            "a configuration file, which is for BIRD",
        ),
        (frr("[[router.step]]\naction = \"restart\""), "restarts its daemon, which needs BIRD"),
        (format!("{good}\ncount = 2"), "has a count or an asn_step, but is a daemon"),
        (format!("{good}\ndaemon = \"gobgp\""), "is not a daemon of a router"),
        (
            native("ospf = \"0\"\nbfd = \"1 s\""),
            "has ospf, bfd, but daemon = \"native\" speaks BGP only",
        ),
        (native("config = \"bird.conf\""), "has config, but daemon = \"native\" speaks BGP only"),
        (native("password = \"a\""), "cannot sign segments (RFC 2385)\n  try daemon = \"bird\""),
        (format!("{good}\nattributes = \"mrt\""), "which only a native router announces"),
        (
            format!(
                "{good}\n[[router.group]]\nname = \"a\"\nroutes = \"mrt:a\"\nattributes = \"mrt\""
            ),
            "has attributes of MRT files",
        ),
        (format!("{good}\nattributes = \"file\""), "is not a source of attributes"),
        (native("attributes = \"mrt\""), "has attributes of MRT files, but no routes of these"),
        (
            native(
                "attributes = \"mrt\"\n[[router.group]]\nname = \"a\"\nroutes = \"mrt:a\"\n\
                 attributes = \"own\"",
            ),
            "has attributes of MRT files, but no routes of these",
        ),
        (
            native(
                "routes = \"mrt:a\"\nattributes = \"mrt\"\n[[router.group]]\nname = \"a\"\n\
                 routes = \"10.1.0.0/16\"\nattributes = \"mrt\"",
            ),
            "has attributes of MRT files for \"a\", but no such routes",
        ),
        (native("hold = \"1 s\""), "has a hold time that is not 3 s to 65,535 s"),
        (native("count = 2"), "the neighbor 10.0.0.2, which is not another address of its network"),
        (native("").replace("/24", "/31"), "the neighbor 10.0.0.2, which is not another address"),
        (
            native("count = 15").replace("10.0.0.1/24", "10.0.0.17/28"),
            "has 15 routers from 10.0.0.17 on, but its network is smaller",
        ),
        (native("asn_step = 1").replace(" as 65002", ""), "a neighbor that is in the same system"),
        (
            native("asn_step = 65535\ncount = 9").replace("65001", "4294967000"),
            "has too many autonomous systems",
        ),
        (native("mac = \"fe:ff:ff:ff:ff:ff\"\ncount = 9"), "has too many MAC addresses"),
        (step("action = \"notify\"\ncode = 6"), "\"notify\", but the router is a daemon"),
        (native("[[router.step]]\naction = \"notify\""), "has no \"code\""),
        (native("[[router.step]]\naction = \"notify\"\ncode = 6\ndata = \"abc\""), "is not octets"),
    ] {
        let text = format!("[ports]\nA = \"loop:0\"\n[[router]]\n{lines}\n");
        assert_contains(&mistakes(&text, Format::Toml), expected);
    }
    let text = format!(
        "[ports]\nA = \"loop:0\"\n[[router]]\n{good}\n[[router]]\nname = \"router 1\"\n{good}"
    );
    assert_contains(&mistakes(&text, Format::Toml), "is already the name of another router");
    let mac = |last: u8, count: u8| {
        format!(
            "[ports]\nA = \"loop:0\"\n[[router]]\n{good}\nmac = \"02:00:00:00:00:05\"\n\
             [[router]]\nname = \"r2\"\n{}\nmac = \"02:00:00:00:00:0{last}\"\ncount = {count}",
            native("").replace("10.0.0.1/24", "10.0.0.3/24")
        )
    };
    let shared = "router[1] has a MAC address of router \"router 1\", on the same port";
    assert_contains(&mistakes(&mac(3, 3), Format::Toml), shared);
    assert_contains(&mistakes(&mac(5, 1), Format::Toml), shared);
    // The MAC address that another router has by default.
    let default = |own: &str| {
        format!(
            "[ports]\nA = \"loop:0\"\n[[router]]\n{good}\n[[router]]\nname = \"r2\"\n{good}\nmac = \
             \"{own}\""
        )
    };
    assert_contains(&mistakes(&default("02:54:01:00:00:01"), Format::Toml), shared);
    for text in [mac(3, 2), mac(6, 1), default("02:54:02:00:00:01")] {
        let read = Profile::parse_with(&text, "load.toml", Format::Toml, &no_files);
        assert!(read.is_ok(), "{}", read.unwrap_err());
    }
}
