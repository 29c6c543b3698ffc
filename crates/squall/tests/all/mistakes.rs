//! Errors that show only when packets, ports and streams are combined. Each message has the
//! position, the value found, and a fix.

use squall::{Error, Format, Profile, Session};

fn mistake(ports: &str, streams: &str) -> String {
    let text = format!("[ports]\n{ports}\n{streams}");
    let profile =
        Profile::parse(&text, "load.toml", Format::Toml).unwrap_or_else(|e| panic!("{e}\n{text}"));
    match Session::new(profile).open() {
        Err(error @ (Error::Input(_) | Error::Usage(_))) => {
            assert_eq!(error.exit_status(), 2);
            error.to_string()
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("taken as right:\n{text}"),
    }
}

fn stream(more: &str) -> String {
    let rate = if more.contains("rate =") { "" } else { "rate = \"1 kpps\"\n" };
    format!("[[stream]]\nname = \"one\"\nport = \"A\"\npacket = \"eth/ipv4/udp\"\n{rate}{more}\n")
}

#[track_caller]
fn has(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in:\n{message}");
    }
}

#[test]
fn a_frame_that_receivers_drop_is_noted_once_for_all_its_streams() {
    let notes = |packets: &[&str]| {
        let streams: String = packets
            .iter()
            .enumerate()
            .map(|(i, text)| {
                format!("[[stream]]\nname = \"{i}\"\nport = \"A\"\n{text}\nrate = \"1 kpps\"\n")
            })
            .collect();
        let text = format!("packets = 1\n[ports]\nA = \"null:,virtual\"\n{streams}");
        let profile = Profile::parse(&text, "load.toml", Format::Toml)
            .unwrap_or_else(|e| panic!("{e}\n{text}"));
        Session::new(profile).plan_only().unwrap().plan.notes.join("\n")
    };
    let bad = "packet = \"eth/ipv4(ttl=64)/igmp\"";
    let good = "packet = \"eth/ipv4/igmp\"";
    has(
        &notes(&[good, bad, bad]),
        &["stream \"1\" and 1 more: IGMP with a TTL of 64", "try ttl=1"],
    );
    let varies =
        format!("{bad}\nvary = [{{ field = \"ipv4.ttl\", op = \"increment\", min = 1, max = 9 }}]");
    for right in [good, &varies] {
        let notes = notes(&[right]);
        assert!(!notes.contains("invalid"), "{notes}");
    }
}

#[test]
fn a_rate_above_the_port_says_what_the_port_can_carry() {
    let message =
        mistake("A = \"loop:ten,speed=10Gbps\"", &stream("size = 64\nrate = \"12 Gbps\""));
    has(
        &message,
        &["load.toml:8:8", "12 Gbps", "10 Gb/s link: at most 14.8810 Mpps", "try rate = \"100 %\""],
    );
    let message = mistake("A = \"loop:0\"", &stream("rate = \"10 %\""));
    has(&message, &["load.toml:7:8", "port A has none", "speed=10Gbps"]);
    // The hint works.
    let taken = Profile::parse(
        &format!(
            "packets = 1\n[ports]\nA = \"loop:ten,speed=10Gbps\"\n{}",
            stream("rate = \"10 %\"")
        ),
        "load.toml",
        Format::Toml,
    );
    assert!(Session::new(taken.unwrap()).open().is_ok());
}

#[test]
fn sizes_and_fields_are_checked_against_the_packet() {
    let one = |more: &str| mistake("A = \"loop:of-sizes\"", &stream(more));
    has(&one("size = 40"), &["load.toml:8:8", "size = 40", "46 octets", "truncate(36)"]);
    has(
        &one("size = 60\nlatency = true"),
        &["latency = true needs 16 octets", "at least 2 larger"],
    );
    let vary = |field: &str, more: &str| {
        one(&format!("[[stream.vary]]\nfield = \"{field}\"\nop = \"increment\"\n{more}"))
    };
    has(&vary("ipv4.scr", "max = 1"), &["load.toml:8:1", "ipv4.scr", "did you mean ipv4.src?"]);
    has(
        &vary("tcp.sport", "max = 1"),
        &["no field \"tcp.sport\" in eth/ipv4/udp", "the frame has no tcp"],
    );
    has(&vary("vlan[1].id", "max = 1"), &["the frame has no vlan"]);
    has(&vary("ipv4.ttl", "max = 256"), &["value 256", "8 bits", "the largest value is 255"]);
    has(&vary("payload[100:4]", "max = 1"), &["payload[100:4]"]);
    let wide = "min = \"::\"\nmax = \"ffff::\"\ninit = \"fffe:ffff:ffff:ffff:ffff:ffff:ffff:fff0\"";
    let message = mistake(
        "A = \"loop:of-sizes\"",
        &stream(&format!("[[stream.vary]]\nfield = \"ipv6.src\"\nop = \"increment\"\n{wide}"))
            .replace("ipv4", "ipv6"),
    );
    has(&message, &["load.toml:8:1", "more than 2^64 values", "try an init further from the end"]);
}

#[test]
fn a_chain_stays_on_its_port() {
    let message = mistake(
        "A = \"loop:0\"\nB = \"loop:0\"",
        &(stream("mode = { burst = 1 }\nnext = \"two\"")
            + &stream("self_start = false").replace("one", "two").replace("\"A\"", "\"B\"")),
    );
    has(
        &message,
        &[
            "load.toml:4:1",
            "next = \"two\" is on port B, but this stream is on port A",
            "try after = \"one\" of stream \"two\", without self_start",
        ],
    );
}

#[test]
fn endless_profiles_are_refused_on_virtual_time_and_others_are_not() {
    let two = |first: &str, second: &str| {
        stream(&format!("mode = {{ burst = 2 }}\nnext = {first}"))
            + &stream(&format!("mode = {{ burst = 2 }}\nself_start = false\n{second}"))
                .replace("\"one\"", "\"two\"")
    };
    let endless = "never ends\n  try duration";
    has(&mistake("A = \"null:virtual\"", &stream("")), &[endless]);
    has(&mistake("A = \"null:virtual\"", &two("\"two\"", "next = \"two\"")), &[endless]);
    for second in ["", "next = { stream = \"two\", times = 3 }"] {
        let text = format!("[ports]\nA = \"null:virtual\"\n{}", two("\"two\"", second));
        let report =
            Session::new(Profile::parse(&text, "load.toml", Format::Toml).unwrap()).open().unwrap();
        let report = report.start().unwrap().finish().unwrap();
        assert_eq!(report.ports[0].tx.packets, if second.is_empty() { 4 } else { 10 });
    }
}

#[test]
fn an_address_error_has_its_line() {
    has(
        &mistake("A = \"af_paket:eth0\"", &stream("")),
        &["load.toml:2:1", "unknown kind \"af_paket\"", "af_packet:IFACE"],
    );
    has(
        &mistake("A = \"loop:0,drpo=1\"", &stream("")),
        &["load.toml:2:1", "unknown option drpo", "drop"],
    );
    has(&mistake("A = \"null:foo\"", &stream("")), &["load.toml:2:1", "null:virtual"]);
    has(
        &mistake("A = \"pcap:/no/such/x.pcap\"", &stream("")),
        &["load.toml:2:1", "cannot write /no/such/x.pcap: there is no such folder"],
    );
}

#[test]
fn uncuttable_frames_are_refused_with_the_reason() {
    let tcp = |more: &str| {
        mistake("A = \"loop:cut\"", &stream(more).replace("eth/ipv4/udp", "eth/ipv4/tcp"))
    };
    has(&tcp("segment = 1460\nlatency = true"), &["load.toml:8:11", "cannot have the signature"]);
    has(&tcp("segment = 1460\nsize = \"imix\""), &["load.toml:9:8", "must have one size"]);
    has(&tcp("segment = 1460\nsize = 65554"), &["65535"]);
    let vary = "segment = 100\nsize = 1000\n[[stream.vary]]\nop = \"random\"\nmax = 9\nfield = ";
    has(
        &tcp(&format!("{vary}\"tcp.checksum\"")),
        &["load.toml:10:1", "cannot change from frame to frame"],
    );
    let other = |packet: &str| {
        mistake(
            "A = \"loop:cut\"",
            &stream("segment = 100\nsize = 1000").replace("eth/ipv4/udp", packet),
        )
    };
    has(&other("eth/ipv4/icmp"), &["load.toml:8:11", "eth/ipv4/icmp cannot be cut", "tcp or udp"]);
    has(&other("eth/ipv4/udp/vxlan/eth/ipv4/udp"), &["cannot be cut"]);
    has(&other("eth/ipv4/tcp(checksum=7)"), &["load.toml:6:10", "but the packet has its own"]);
    has(&other("eth/ipv4(length=99)/udp"), &["but the packet has its own"]);
    let narrow =
        mistake("A = \"loop:narrow,max_frame=1514\"", &stream("segment = 1473\nsize = 9000"));
    has(
        &narrow,
        &["load.toml:8:11", "1519 octets are longer than port A takes", "try segment = 1472"],
    );
}

/// Flows between the two ends of a loop; `shared` is the content of `[flows]`.
fn flows(shared: &str, templates: &str) -> String {
    let ports = "C = \"loop:flow-mistakes\"\nS = \"loop:flow-mistakes\"\n[flows]\nclients = \
                 \"C\"\nservers = \"S\"";
    mistake(&format!("{ports}\n{shared}"), templates)
}

fn template(name: &str, more: &str) -> String {
    let cps = if more.contains("users") || more.contains("weight") { "" } else { "cps = 10\n" };
    let clients = if more.contains("clients") { "" } else { "clients = \"16.0.0.0/24\"\n" };
    format!("[[template]]\nname = \"{name}\"\n{clients}servers = \"48.0.0.1\"\n{cps}{more}\n")
}

#[test]
fn keys_without_effect_on_flows_are_refused() {
    for (more, parts) in [
        (
            "app = \"mix\"\nlisten = 8080",
            &["load.toml:8:1", "listen = 8080 has no effect on a mix"][..],
        ),
        ("app = \"http\"\ntransport = \"udp\"", &["transport = \"udp\" has no effect"]),
        (
            "client = [\"begin other\"]\nserver = [\"wait_peer_close\"]\nlisten = 80",
            &["begins flows of \"other\"", "no such template"],
        ),
        (
            "app = \"http\"\ntcp = { udp_idle = \"1 s\" }",
            &["load.toml:14:", "tcp.udp_idle has no effect", "over TCP"],
        ),
        (
            "app = \"http\"\noptions = { requests = 3 }\nhttp = { streams = 3, max_streams = 2 }",
            &["load.toml:8:1", "streams = 3 of a client are more than", "try max_streams = 3"],
        ),
        (
            "app = \"http\"\nclients = \"16.0.0.1\"\nhttp = { version = \"3\", migrate_after = 1, \
             migrate_to = \"address\" }",
            &[
                "load.toml:8:1",
                "migrate_to = \"address\", but its clients have one address",
                "try clients with more addresses, or migrate_to = \"port\"",
            ],
        ),
        ("app = \"dns\"\ntcp = { sack = false }", &["tcp.sack has no effect", "over UDP"]),
        (
            "app = \"http\"\nusers = 3\nspacing = \"poisson\"",
            &["spacing = \"poisson\" has no effect", "try think"],
        ),
        (
            "app = \"http\"\noptions = { pipeline = 3 }",
            &["options.pipeline has no effect", "try requests = 3"],
        ),
        (
            "app = \"http\"\noptions = { think = \"1 ms\" }",
            &["options.think has no effect", "try requests = 2"],
        ),
        (
            "app = \"http\"\noptions = { requests = 10 }\nhttp = { streams = 4 }",
            &["10 requests cannot be divided among 4 streams", "try requests = 12"],
        ),
        (
            "app = \"http\"\nhttp = \"2\"\ntls = { alpn = \"http/1.1\" }",
            &["load.toml:15:", "tls.alpn lacks \"h2\"", "try leaving out alpn"],
        ),
        (
            "client = [\"send \\\"hello\\\"\"]\nserver = [\"recv 5\"]\nlisten = 80\nhttp = \"2\"",
            &["load.toml:13:", "whole request or response"],
        ),
        ("app = \"http\"\nhttp = \"2,1.1\"", &["no end can choose HTTP/1.1", "try tls = true"]),
        (
            "app = \"http\"\nhttp = \"2,1.1\"\ntls = { early_data = true }",
            &["load.toml:8:1", "tls.early_data needs one protocol", "try http = \"2\""],
        ),
        (
            "app = \"http\"\ntls = { early_data = true, versions = \"1.2\" }",
            &["load.toml:8:1", "early data need TLS 1.3", "try leaving out tls.versions"],
        ),
        (
            "app = \"websocket\"\ntls = true\nhttp = { streams = 2, fallback = true }",
            &["cannot carry WebSocket for 2 streams", "try streams = 1"],
        ),
        (
            "app = \"websocket\"\noptions = { push = \"100 ms\", ping = true }",
            &["options.ping has no effect with push", "try leaving it out"],
        ),
        (
            "app = \"websocket\"\noptions = { groups = 2 }",
            &["options.groups has no effect without push", "try push = \"100 ms\""],
        ),
        (
            "app = \"websocket\"\noptions = { push = \"1 s\", fan_out = true }",
            &["sends no own messages", "try one of both"],
        ),
        (
            "app = \"websocket\"\noptions = { fan_out = true }\nhttp = \"2\"",
            &["ws_fan_out", "try a template without http"],
        ),
        ("app = \"dns\"\nhttp = \"2\"", &["cannot be used over HTTP/2", "over TCP"]),
        ("app = \"smtp\"\nhttp = \"2\"", &["try http_response"]),
        ("app = \"grpc\"\nhttp = \"2,1.1\"\ntls = true", &["gRPC is over HTTP/2 alone"]),
        ("app = \"grpc\"\nhttp = \"3\"", &["gRPC is over HTTP/2 alone", "try http = \"2\""]),
        (
            "client = ['grpc_call \"/a/b\"', \"grpc_status OK\"]\nserver = [\"wait_peer_close\"]\n\
             listen = 80",
            &["load.toml:13:", "`grpc_call` needs streams of HTTP/2", "try http = \"2\""],
        ),
        (
            "app = \"dns\"\nproxy_protocol = \"v2\"",
            &["the PROXY protocol needs TCP", "try without proxy_protocol"],
        ),
        (
            "app = \"http\"\nproxy_protocol = { sources = \"fd00::/64\" }",
            &["source addresses", "of different families"],
        ),
        (
            "app = \"http\"\nproxy_protocol = { sources = \"here\" }",
            &["load.toml:14:", "\"here\" is not a range of addresses"],
        ),
    ] {
        has(&flows("", &template("web", more)), parts);
    }
    let shared = "active = 10";
    let more = "app = \"http\"\nweight = 1\nspacing = \"poisson\"";
    has(&flows(shared, &template("web", more)), &["spacing = \"poisson\" has no effect"]);
    let one_port = "A = \"loop:0\"\n[flows]\nclients = \"A\"\nservers = \"A\"\nserver_network = { \
                    wrap = \"vlan 7\" }";
    let message = mistake(one_port, &template("web", "app = \"http\""));
    has(&message, &["load.toml:6:", "server_network has no effect", "client_network"]);
}

#[test]
fn templates_that_servers_cannot_distinguish_are_named_with_their_place() {
    let pool = "[[pool]]\nname = \"one\"\naddresses = \"16.0.0.1\"\nports = \"5000-5001\"\n";
    let three = |app: &str| template(app, &format!("app = \"{app}\"\nclients = \"one\""));
    let message =
        flows("", &(pool.to_owned() + &three("http") + &three("http-get") + &three("http-post")));
    has(
        &message,
        &[
            "load.toml:18:1",
            "template \"http-get\"",
            "template \"http\" has the same servers",
            "try at least 3 ports",
        ],
    );
    let mix = pool.to_owned() + &template("office", "app = \"mix\"\nclients = \"one\"");
    has(&flows("", &mix), &["load.toml:12:1", "template \"office http-get\""]);
}
