//! Translation of configurations, and the errors reported for invalid ones.

use std::net::IpAddr;

use proptest::prelude::*;
use serde_json::{Value, json};
use squall_otg::{
    Config, Counting, Problems, Resolved, TagValue, Translated, translate, translate_with,
};
use squall_profile::{Mode, Op, PacketSource, SizeLaw};
use squall_units::{Nanos, RateUnit};

fn read(value: &Value) -> Result<Translated, Problems> {
    translate(&Config::from_json(value)?)
}

/// A configuration with two ports, and one flow between them with additional `members`.
fn with(members: Value) -> Value {
    let mut flow =
        json!({ "name": "f", "tx_rx": { "port": { "tx_name": "p1", "rx_names": ["p2"] } } });
    for (key, value) in members.as_object().unwrap() {
        flow[key] = value.clone();
    }
    json!({
        "ports": [{ "name": "p1", "location": "loop:0" }, { "name": "p2", "location": "loop:0" }],
        "flows": [flow],
    })
}

fn ok(members: Value) -> Translated {
    read(&with(members)).unwrap_or_else(|problems| panic!("{problems}"))
}

fn problems(members: Value) -> Vec<String> {
    read(&with(members)).expect_err("it is wrong").texts()
}

fn octets(translated: &Translated, stream: usize) -> &[u8] {
    match &translated.profile.streams[stream].packet {
        PacketSource::Octets(octets) => octets,
        other => panic!("{other:?}"),
    }
}

fn udp() -> Value {
    json!([{ "choice": "ethernet" }, { "choice": "ipv4" }, { "choice": "udp" }])
}

#[test]
fn a_flow_without_anything_is_as_the_schema_says() {
    let translated = ok(json!({}));
    let stream = &translated.profile.streams[0];
    assert_eq!((stream.rate.to_string().as_str(), &stream.size), ("1 kpps", &SizeLaw::Fixed(64)));
    assert_eq!((stream.mode, stream.latency), (Mode::Continuous, false));
    let mut frame = [0; 60];
    frame[12..14].fill(0xff);
    assert_eq!(octets(&translated, 0), frame);
    let flow = &translated.flows[0];
    assert_eq!(
        (flow.tx_port.as_str(), flow.rx_ports.as_slice(), flow.size),
        ("p1", &["p2".to_owned()][..], Some(64))
    );
    assert_eq!(flow.packets, None);
}

#[test]
fn all_errors_are_reported_at_once_with_their_paths() {
    let config = json!({
        "ports": [{ "name": "p1", "location": "loop:0" }, { "name": "p1" }],
        "lags": [{ "name": "lag" }],
        "flows": [
            { "name": "a", "tx_rx": { "port": { "tx_name": "p3" } }, "colour": 1 },
            { "name": "b", "tx_rx": { "port": { "tx_name": "p1" } }, "size": { "fixed": "big" }, "packet": [
                { "choice": "ethernet", "ethernet": { "dst": { "value": "nowhere" } } },
                { "choice": "ipv4", "ipv4": { "src": { "auto": { "choice": "dhcp" } }, "tos": 1 } },
                { "choice": "rsvp", "rsvp": {} },
                { "choice": "udp", "udp": { "src_port": { "values": [1, 65536] } } },
            ] },
        ],
    });
    let texts = read(&config).expect_err("it is wrong").texts();
    for expected in [
        "ports[1].name: \"p1\" is also the name of another port",
        "ports[1].location: missing",
        "lags[0].ports: missing: expected ports",
        "flows[0].colour: unknown key",
        "flows[0].tx_rx.port.tx_name: there is no port \"p3\"",
        "flows[1].size.fixed: found \"big\", expected a whole number up to 65535",
        "flows[1].packet[0].ethernet.dst.value: found \"nowhere\", expected a MAC address",
        "flows[1].packet[1].ipv4.tos: unknown key",
        "flows[1].packet[1].ipv4.src.auto: not supported: addresses from DHCP",
        "flows[1].packet[2].rsvp: not supported: try the octets",
        "flows[1].packet[3].udp.src_port.values[1]: found 65536, expected a whole number up to \
         65535",
    ] {
        assert!(
            texts.iter().any(|text| text.starts_with(expected)),
            "{expected}\nnot in\n{}",
            texts.join("\n")
        );
    }
    assert_eq!(texts.len(), 11, "{}", texts.join("\n"));
}

#[test]
fn unsupported_settings_of_dhcp_are_refused_with_their_paths() {
    let ethernet = |clients: Value| {
        json!({
            "name": "e1", "connection": { "port_name": "p1" }, "mac": "02:00:00:00:00:01",
            "ipv4_addresses": [{ "name": "i1", "address": "10.0.0.1", "gateway": "10.0.0.2" }],
            "dhcpv4_interfaces": clients,
        })
    };
    let config = |clients: Value, pools: Value| {
        json!({
            "ports": [{ "name": "p1", "location": "loop:0" }],
            "devices": [{
                "name": "d1", "ethernets": [ethernet(clients)],
                "dhcp_server": {
                    "ipv4_interfaces": [{ "name": "s1", "ipv4_name": "i1", "address_pools": pools }],
                },
            }],
        })
    };
    let clients = json!([
        { "name": "c1", "server_address": "10.0.0.9" },
        { "name": "c2" },
    ]);
    let pools = json!([
        { "start_address": "10.0.1.1", "count": 9, "step": 2, "options": {
            "echo_relay_with_tlv_82": false,
        } },
        { "start_address": "10.0.2.1" },
    ]);
    let texts = read(&config(clients, pools)).expect_err("it is wrong").texts();
    for expected in [
        "devices[0].ethernets[0].dhcpv4_interfaces[0].server_address: not supported",
        "devices[0].ethernets[0].dhcpv4_interfaces[1]: not supported",
        "devices[0].dhcp_server.ipv4_interfaces[0].address_pools[0].step: not supported",
        "devices[0].dhcp_server.ipv4_interfaces[0].address_pools[0].options.echo_relay_with_tlv_82: \
         not supported",
        "devices[0].dhcp_server.ipv4_interfaces[0].address_pools[1]: not supported",
    ] {
        let found = texts.iter().any(|text| text.starts_with(expected));
        assert!(found, "{expected}\nnot in\n{}", texts.join("\n"));
    }
    assert_eq!(texts.len(), 5, "{}", texts.join("\n"));
}

/// A device with a DHCPv6 client and a server with these leases.
fn dhcpv6(client: Value, server: Value) -> Value {
    json!({
        "ports": [{ "name": "p1", "location": "loop:0" }],
        "devices": [{
            "name": "d1", "ethernets": [{
                "name": "e1", "connection": { "port_name": "p1" }, "mac": "02:00:00:00:00:01",
                "ipv6_addresses": [{
                    "name": "i1", "address": "2001:db8::1", "gateway": "2001:db8::2",
                }],
                "dhcpv6_interfaces": [client],
            }],
            "dhcp_server": { "ipv6_interfaces": [server] },
        }],
    })
}

fn serve(ia_type: Value) -> Value {
    json!({ "name": "s1", "ipv6_name": "i1", "leases": [{ "ia_type": ia_type }] })
}

#[test]
fn clients_and_servers_of_dhcpv6_have_what_the_configuration_says() {
    let client = json!({ "name": "c1", "rapid_commit": true, "ia_type": { "choice": "iapd" } });
    let pools = json!({ "choice": "ianapd", "ianapd": {
        "iana": { "start_address": "2001:db8::100", "prefix_len": 112, "size": 3, "step": 2 },
        "iapd": {
            "start_prefix_address": "2001:db8:100::", "prefix_size": 4,
            "configured_prefix_len": 48, "advertised_prefix_len": 56,
        },
    } });
    let translated = read(&dhcpv6(client, serve(pools))).unwrap();
    let client = translated.devices[0].dhcpv6.as_ref().unwrap();
    assert_eq!((client.settings.address, client.settings.prefix), (false, Some(0)));
    assert!(client.settings.rapid_commit);
    let server = &translated.dhcp6_servers[0];
    assert_eq!((server.name.as_str(), server.interface), ("s1", 0));
    let settings = &server.settings;
    assert_eq!(&*settings.identifier, [0, 3, 0, 1, 2, 0, 0, 0, 0, 1]);
    assert_eq!((settings.count, settings.step), (3, 2 << 16));
    let prefix = "2001:db8:100::".parse().unwrap();
    assert_eq!(settings.prefixes, Some((prefix, 56, 4)));
    assert_eq!((settings.prefix_step, settings.valid), (1 << 80, 86_400));
    assert!(translated.warnings.is_empty(), "{:?}", translated.warnings);

    // The defaults of the schema.
    let pools = json!({ "choice": "iapd", "iapd": { "start_prefix_address": "2001:db8::" } });
    let translated = read(&dhcpv6(json!({ "name": "c1" }), serve(pools))).unwrap();
    let client = translated.devices[0].dhcpv6.as_ref().unwrap();
    assert_eq!((client.settings.address, client.settings.prefix), (true, None));
    let settings = &translated.dhcp6_servers[0].settings;
    assert_eq!(settings.prefixes, Some(("2001:db8::".parse().unwrap(), 64, 10)));
    assert_eq!((settings.prefix_step, settings.count), (1, 0));
    let [warning] = &translated.warnings[..] else { panic!("{:?}", translated.warnings) };
    assert!(warning.contains("ia_type.iapd: prefixes of the pool overlap"), "{warning}");
}

#[test]
fn unsupported_settings_of_dhcpv6_are_refused_with_their_paths() {
    let client = json!({
        "name": "c1", "ia_type": { "choice": "iata" }, "duid_type": { "choice": "en", "en": {} },
        "options": { "fqdn": {} }, "options_request": { "request": [] },
    });
    let server = json!({
        "name": "c1", "ipv6_name": "i9", "reconfigure_via_relay_agent": true,
        "options": { "dns": { "primary": "2001:db8::53" } },
        "leases": [{ "lease_time": 60, "ia_type": { "choice": "iata" } }, {}],
    });
    let mut config = dhcpv6(client, server);
    let more = json!({ "name": "c2" });
    config["devices"][0]["ethernets"][0]["dhcpv6_interfaces"].as_array_mut().unwrap().push(more);
    let texts = read(&config).expect_err("it is wrong").texts();
    let (client, server) =
        ("devices[0].ethernets[0].dhcpv6_interfaces", "devices[0].dhcp_server.ipv6_interfaces[0]");
    let expected = [
        format!("{client}[1]: not supported"),
        format!("{client}[0].ia_type.choice: not supported: temporary addresses"),
        format!("{client}[0].duid_type.en: not supported"),
        format!("{client}[0].options.fqdn: not supported"),
        format!("{server}.ipv6_name: the device has no IPv6 address \"i9\""),
        format!("{server}.options.dns: not supported"),
        format!("{server}.reconfigure_via_relay_agent: not supported"),
        format!("{server}.leases[1]: not supported"),
        format!("{server}.leases[0].lease_time: found 60, expected at least 300"),
        format!("{server}.leases[0].ia_type.iata: not supported: temporary addresses"),
        format!("{server}.name: \"c1\" is also the name of another client or server"),
    ];
    for expected in &expected {
        let found = texts.iter().any(|text| text.starts_with(expected));
        assert!(found, "{expected}\nnot in\n{}", texts.join("\n"));
    }
    assert_eq!(texts.len(), expected.len(), "{}", texts.join("\n"));
    // Without effect, in servers too.
    let client = json!({
        "name": "c1", "duid_type": { "choice": "llt" },
        "ia_type": { "iana": { "t1": 5, "t2": 483_840 } },
    });
    let pool = json!({ "iana": { "start_address": "2001:db8::100" } });
    let warnings = read(&dhcpv6(client, serve(pool))).unwrap().warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains(".ia_type.iana.t1: has no effect"), "{warnings:?}");
    assert!(warnings[1].contains(".duid_type: has no effect"), "{warnings:?}");
}

#[test]
fn pools_of_dhcpv6_without_addresses_for_clients_are_refused_with_their_paths() {
    let texts = |pool: Value| {
        let found = read(&dhcpv6(json!({ "name": "c1" }), serve(json!({ "iana": pool }))));
        found.err().map(|problems| problems.texts()).unwrap_or_default()
    };
    let path = "devices[0].dhcp_server.ipv6_interfaces[0].leases[0].ia_type.iana";
    for (pool, expected) in [
        (json!({}), ".start_address: missing"),
        (json!({ "start_address": "2001:db8::1" }), ".start_address: the pool has 2001:db8::1"),
        (
            json!({ "start_address": "2001:db7:ffff:ffff::1", "size": 2 }),
            ".start_address: the pool has 2001:db8::1",
        ),
        (json!({ "start_address": "2001:db8::2", "size": 0 }), ".size: found 0"),
        (json!({ "start_address": "2001:db8::2", "step": 0 }), ".step: found 0"),
        (json!({ "start_address": "ffff:ffff:ffff:ffff::", "size": 2 }), ".size: found 2, which"),
        (json!({ "start_address": "::2", "size": 2, "prefix_len": 0 }), ".size: found 2, which"),
    ] {
        let texts = texts(pool.clone());
        assert!(
            texts.len() == 1 && texts[0].starts_with(&format!("{path}{expected}")),
            "{texts:?}"
        );
    }
    for pool in [
        json!({ "start_address": "2001:db7:ffff:ffff::2", "size": 2 }),
        json!({ "start_address": "ffff:ffff:ffff:ffff::" }),
        json!({ "start_address": "2001:db8::2", "size": 9, "prefix_len": 128 }),
    ] {
        assert_eq!(texts(pool), [""; 0]);
    }
}

#[test]
fn lldp_announces_what_the_configuration_says() {
    let config = |instance: Value| {
        let ports = json!([{ "name": "p1", "location": "loop:0" }]);
        json!({ "ports": ports, "lldp": [instance] })
    };
    let plain = json!({ "name": "l", "connection": { "port_name": "p1" } });
    let info = read(&config(plain.clone())).unwrap().lldp.remove(0);
    let unit = &info.unit;
    assert_eq!((unit.ttl, info.interval, info.port.as_str()), (120, Nanos(30_000_000_000), "p1"));
    assert_eq!(unit.chassis.chassis(), info.mac.to_string());
    assert_eq!((unit.port.subtype, unit.port.port()), (5, "p1".into()));
    let mut full = plain.clone();
    for (key, value) in [
        ("hold_time", json!(40)),
        ("advertisement_interval", json!(10)),
        ("chassis_id", json!({ "local_subtype": "rack" })),
        (
            "port_id",
            json!({ "choice": "mac_address_subtype",
            "mac_address_subtype": "02:00:00:00:00:07" }),
        ),
        ("system_name", json!({ "choice": "value", "value": "host" })),
        (
            "org_infos",
            json!([{ "oui": "00120F", "subtype": 4,
            "information": { "choice": "info", "info": "05dc" } }]),
        ),
    ] {
        full[key] = value;
    }
    let info = read(&config(full)).unwrap().lldp.remove(0);
    let unit = info.unit;
    assert_eq!((unit.ttl, info.interval), (40, Nanos(10_000_000_000)));
    assert_eq!((unit.chassis.subtype, unit.chassis.chassis()), (7, "rack".into()));
    assert_eq!((unit.port.subtype, unit.port.port()), (3, "02:00:00:00:00:07".into()));
    assert_eq!(unit.system.as_deref(), Some("host"));
    let tlv = &unit.organizations[0];
    assert_eq!((tlv.oui, tlv.subtype, &tlv.information[..]), ([0, 0x12, 15], 4, &[5, 0xdc][..]));

    for (key, value, expected) in [
        ("connection", json!({ "port_name": "p9" }), ".connection.port_name: there is no port"),
        ("hold_time", json!(9), ".hold_time: found 9, expected at least 10 s"),
        ("advertisement_interval", json!(4), ".advertisement_interval: found 4"),
        (
            "chassis_id",
            json!({ "mac_address_subtype": { "choice": "value" } }),
            ".chassis_id.mac_address_subtype.value: missing",
        ),
        ("system_name", json!({ "value": "x".repeat(256) }), ".system_name.value: found 256"),
        (
            "org_infos",
            json!([{ "information": { "info": "1" } }]),
            ".org_infos[0].information.info",
        ),
        ("org_infos", json!([{ "oui": "00" }]), ".org_infos[0].oui: found \"00\", expected 3 to 3"),
        (
            "org_infos",
            json!([{ "information": { "info": "00".repeat(507) } },
                { "information": { "info": "00".repeat(507) } },
                { "information": { "info": "00".repeat(507) } }]),
            ".org_infos: the announcement has 15",
        ),
        ("speed", json!(1), ".speed: unknown key"),
    ] {
        let mut wrong = plain.clone();
        wrong[key] = value;
        let texts = read(&config(wrong)).expect_err(key).texts();
        assert!(
            texts.len() == 1 && texts[0].starts_with(&format!("lldp[0]{expected}")),
            "{texts:?}"
        );
    }
}

/// A configuration with three ports, the first two of them in a LAG.
fn lag() -> Value {
    let member = |port: &str| json!({ "port_name": port, "ethernet": { "name": port } });
    let port = |name: &str| json!({ "name": name, "location": "loop:0" });
    json!({
        "ports": [port("p1"), port("p2"), port("p3")],
        "lags": [{
            "name": "lag", "min_links": 2, "ports": [member("p1"), member("p2")],
            "protocol": { "choice": "lacp", "lacp": {
                "actor_system_id": "01:01:01:01:01:01", "actor_system_priority": 3, "actor_key": 7,
            } },
        }],
    })
}

#[test]
fn ports_of_a_lag_send_the_frames_of_a_flow_in_turn_and_receive_one_copy() {
    let mut config = lag();
    let flow = |name: &str, tx: &str, rx: &str| {
        json!({ "name": name, "rate": { "pps": 1000 }, "metrics": { "enable": true },
            "duration": { "fixed_packets": { "packets": 11 } },
            "tx_rx": { "port": { "tx_name": tx, "rx_names": [rx] } } })
    };
    config["flows"] = json!([flow("f", "lag", "p3"), flow("g", "p3", "lag")]);
    let translated = read(&config).unwrap();
    let [f, g] = &translated.flows[..] else { panic!("two flows") };
    let senders: Vec<_> = f.streams.iter().map(|stream| stream.tx_port.as_str()).collect();
    assert_eq!((senders, f.packets, f.rx_copies), (vec!["p1", "p2"], Some(11), 1.0));
    let modes: Vec<_> = translated.profile.streams.iter().map(|stream| stream.mode).collect();
    assert_eq!(modes, [Mode::Burst(6), Mode::Burst(5), Mode::Burst(11)]);
    assert_eq!((g.rx_ports.join(" "), g.rx_copies), ("p1 p2".into(), 1.0));
    let lag = &translated.lags[0];
    assert_eq!((lag.name.as_str(), lag.min_links), ("lag", 2));
    let actors: Vec<_> = lag.members.iter().map(|member| member.settings.actor).collect();
    assert_eq!((actors[0].system.to_string(), actors[0].key), ("01:01:01:01:01:01".into(), 7));
    assert_eq!((actors[0].port, actors[1].port, actors[1].system_priority), (1, 2, 3));
}

#[test]
fn lags_that_cannot_be_are_refused_with_their_paths() {
    let wrong = |change: fn(&mut Value)| {
        let mut config = lag();
        change(&mut config);
        read(&config).expect_err("it is wrong").texts()
    };
    let device = |config: &mut Value| {
        config["devices"] = json!([{ "name": "d", "ethernets": [{
            "name": "e", "connection": { "choice": "lag_name", "lag_name": "lag" } }] }]);
    };
    type Change = fn(&mut Value);
    let cases: [(Change, &str); 6] = [
        (|of| of["lags"][0]["protocol"] = json!({ "choice": "static" }), "lags[0].protocol.static"),
        (|of| of["lags"][0]["name"] = json!("p3"), "lags[0].name: \"p3\" is also the name"),
        (
            |of| of["lags"][0]["ports"][1]["port_name"] = json!("p1"),
            "lags[0].ports[1].port_name: port \"p1\" is already in a LAG",
        ),
        (
            |of| of["lags"][0]["ports"][1]["port_name"] = json!("p9"),
            "lags[0].ports[1].port_name: there is no port",
        ),
        (
            |of| of["lags"][0]["ports"][1]["macsec"] = json!({}),
            "lags[0].ports[1].macsec: not supported",
        ),
        (device, "devices[0].ethernets[0].connection.lag_name: not supported"),
    ];
    for (change, expected) in cases {
        let texts = wrong(change);
        assert!(texts.len() == 1 && texts[0].starts_with(expected), "{expected}: {texts:?}");
    }
    // A device on a LAG of one port is on that port.
    let mut config = lag();
    config["lags"][0]["ports"].as_array_mut().unwrap().pop();
    device(&mut config);
    assert_eq!(read(&config).unwrap().devices[0].port, "p1");
}

#[test]
fn loopbacks_are_further_addresses_of_their_interface() {
    let mut config = devices(json!({ "choice": "auto" }));
    config["devices"][0]["ipv4_loopbacks"] =
        json!([{ "name": "lo1", "eth_name": "e1", "address": "192.0.2.1" }]);
    config["flows"][0]["tx_rx"]["device"]["tx_names"] = json!(["lo1"]);
    let translated = read(&config).unwrap();
    let loopback = &translated.devices[0].ipv4[1];
    assert_eq!((loopback.name.as_str(), loopback.prefix, loopback.is_loopback), ("lo1", 32, true));
    assert_eq!(loopback.gateway, translated.devices[0].ipv4[0].gateway);
    assert_eq!(octets(&translated, 0)[26..34], [192, 0, 2, 1, 10, 0, 2, 1]);
    assert_eq!(translated.unresolved[0].gateway, "10.0.1.254".parse::<IpAddr>().unwrap());
    for (version, loopback, expected) in [
        ("ipv4", json!({ "name": "x", "eth_name": "e2", "address": "192.0.2.1" }), "eth_name: the"),
        ("ipv4", json!({ "name": "x", "eth_name": "e1" }), "address: missing"),
        (
            "ipv4",
            json!({ "name": "ip1", "eth_name": "e1", "address": "192.0.2.1" }),
            "name: \"ip1\"",
        ),
        ("ipv6", json!({ "name": "x", "eth_name": "e1", "address": "::9" }), "eth_name: interface"),
    ] {
        let mut config = devices(json!({}));
        let key = format!("{version}_loopbacks");
        config["devices"][0][&key] = json!([loopback]);
        let texts = read(&config).expect_err("it is wrong").texts();
        let expected = format!("devices[0].{key}[0].{expected}");
        assert!(texts.len() == 1 && texts[0].starts_with(&expected), "{expected}: {texts:?}");
    }
}

#[test]
fn pools_without_addresses_for_clients_are_refused_with_their_paths() {
    let pool = |first: &str, count: u64| {
        let config = json!({
            "ports": [{ "name": "p1", "location": "loop:0" }],
            "devices": [{
                "name": "d1",
                "ethernets": [{
                    "name": "e1", "connection": { "port_name": "p1" },
                    "ipv4_addresses": [{
                        "name": "i1", "address": "10.0.0.9", "gateway": "10.0.0.2",
                    }],
                }],
                "dhcp_server": { "ipv4_interfaces": [{
                    "name": "s1", "ipv4_name": "i1",
                    "address_pools": [{ "start_address": first, "count": count }],
                }] },
            }],
        });
        read(&config).err().map(|problems| problems.texts()).unwrap_or_default()
    };
    let path = "devices[0].dhcp_server.ipv4_interfaces[0].address_pools[0]";
    for (first, count, expected) in [
        ("10.0.0.1", 9, ".start_address: the pool has 10.0.0.9"),
        ("10.0.0.9", 1, ".start_address: the pool has 10.0.0.9"),
        ("10.0.0.1", 0, ".count: found 0, expected at least 1"),
        ("255.255.255.250", 7, ".count: found 7, expected at most 6"),
    ] {
        let texts = pool(first, count);
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert!(texts[0].starts_with(&format!("{path}{expected}")), "{texts:?}");
    }
    for (first, count) in [("10.0.0.1", 8), ("10.0.0.10", 9), ("255.255.255.250", 6)] {
        assert_eq!(pool(first, count), [""; 0]);
    }
}

#[test]
fn a_choice_that_is_missing_follows_from_what_is_there() {
    let translated = ok(
        json!({ "rate": { "percentage": 12.5 }, "size": { "increment": { "start": 64, "end": 100, "step": 10 } } }),
    );
    let stream = &translated.profile.streams[0];
    assert_eq!((stream.rate.unit, stream.rate.value()), (RateUnit::Percent, 12.5));
    assert_eq!(stream.size, SizeLaw::Range { min: 64, max: 94, step: 10 });
    // 64-bit numbers are strings, and 32-bit floats keep their digits.
    let translated = ok(json!({ "rate": { "bps": "672000" } }));
    assert_eq!(
        (translated.profile.streams[0].rate.unit, translated.profile.streams[0].rate.num),
        (RateUnit::BpsL1, 672_000)
    );
    let translated = ok(json!({ "rate": { "percentage": f64::from(0.1f32) } }));
    assert_eq!(
        (translated.profile.streams[0].rate.num, translated.profile.streams[0].rate.den),
        (1, 10)
    );
}

#[test]
fn durations_are_numbers_of_frames_and_bursts() {
    let mode = |duration: Value| {
        let translated = ok(json!({ "duration": duration, "rate": { "pps": 1000 } }));
        (
            translated.profile.streams[0].mode,
            translated.profile.streams[0].start_delay,
            translated.flows[0].packets,
        )
    };
    let delay = json!({ "choice": "microseconds", "microseconds": 1.5 });
    assert_eq!(
        mode(json!({ "fixed_packets": { "packets": 7, "delay": delay } })),
        (Mode::Burst(7), Nanos(1500), Some(7))
    );
    assert_eq!(
        mode(json!({ "fixed_seconds": { "seconds": 2.5 } })),
        (Mode::Burst(2500), Nanos(0), Some(2500))
    );
    let gap = json!({ "choice": "nanoseconds", "nanoseconds": 5e6 });
    let bursts = Mode::Bursts { bursts: 3, packets: 4, gap: Nanos(4_000_000) };
    let burst = json!({ "burst": { "bursts": 3, "packets": 4, "inter_burst_gap": gap } });
    assert_eq!(mode(burst), (bursts, Nanos(0), Some(12)));
    let endless = Mode::Bursts { bursts: u64::MAX, packets: 4, gap: Nanos(0) };
    assert_eq!(mode(json!({ "burst": { "packets": 4 } })), (endless, Nanos(0), None));
    let texts =
        problems(json!({ "duration": { "fixed_seconds": {} }, "rate": { "percentage": 10 } }));
    assert!(
        texts[0]
            .starts_with("flows[0].duration.fixed_seconds: not supported: seconds at a percentage"),
        "{texts:?}"
    );
}

#[test]
fn sizes_have_to_hold_the_headers() {
    let texts = problems(json!({
        "packet": [{ "choice": "ethernet" }, { "choice": "ipv6" }, { "choice": "tcp" }],
        "size": { "fixed": 64 },
    }));
    assert_eq!(texts, ["flows[0].size: 64 octets are too few: headers and FCS need 78"]);
    let translated = ok(json!({ "size": { "weight_pairs": { "predefined": "imix" } } }));
    assert_eq!(
        translated.profile.streams[0].size,
        SizeLaw::Weights(vec![(64, 7), (570, 4), (1518, 1)])
    );
}

/// In a frame of 64 octets, the payload has 18 octets over UDP/IPv4, and 6 over TCP; a signature
/// takes 16.
#[test]
fn frames_without_room_for_a_mark_are_sent_without() {
    let translated = ok(json!({ "packet": udp(), "metrics": { "enable": true } }));
    assert_eq!(translated.flows[0].streams[0].counting, Counting::Signature);
    assert!(translated.profile.streams[0].latency && translated.warnings.is_empty());
    let tcp = json!([{ "choice": "ethernet" }, { "choice": "ipv4" }, { "choice": "tcp" }]);
    let translated = ok(json!({ "packet": tcp, "metrics": { "enable": true } }));
    assert_eq!(translated.flows[0].streams[0].counting, Counting::Unsigned);
    assert!(
        translated.warnings[0].starts_with("flows[0].size: no room"),
        "{:?}",
        translated.warnings
    );
}

#[test]
fn steps_wrap_at_the_end_of_a_field() {
    let op = |pattern: Value| {
        let packet = json!([{ "choice": "ethernet" }, { "choice": "ipv4" },
            { "choice": "udp", "udp": { "src_port": pattern } }]);
        ok(json!({ "packet": packet })).profile.streams[0].vary.first().map(|vary| vary.op.clone())
    };
    let step = |choice: &str, start: u32, step: u32, count: u32| {
        op(json!({ choice: { "start": start, "step": step, "count": count } }))
    };
    assert_eq!(step("increment", 10, 5, 3), Some(Op::Step { min: 10, max: 20, init: 10, step: 5 }));
    assert_eq!(step("decrement", 10, 5, 3), Some(Op::Step { min: 0, max: 10, init: 10, step: -5 }));
    assert_eq!(
        step("increment", 65_534, 1, 3),
        Some(Op::List { values: vec![65_534, 65_535, 0], init: 0 })
    );
    assert_eq!(step("decrement", 1, 1, 3), Some(Op::List { values: vec![1, 0, 65_535], init: 0 }));
    assert_eq!(step("increment", 10, 5, 1), None);
    let random = op(json!({ "random": { "min": 1, "max": 9, "seed": 3, "count": 5 } }));
    assert_eq!(random, Some(Op::Random { min: 1, max: 9, limit: Some(5), seed: Some(3) }));
}

/// Field values of each stream's frames, in order, as the engine makes them.
#[test]
fn streams_that_distinguish_tags_together_send_the_frames_of_one() {
    let packet = json!([{ "choice": "ethernet" },
        { "choice": "ipv4", "ipv4": { "priority": { "dscp": { "phb": {
            "values": [10, 46], "metric_tags": [{ "name": "dscp" }] } } },
            "dst": { "increment": { "start": "10.0.0.1", "step": "0.0.0.1", "count": 6 } } } },
        { "choice": "udp", "udp": { "dst_port": { "value": 80, "metric_tags": [{ "name": "low", "offset": 12, "length": 4 }] } } }]);
    let members = json!({ "packet": packet, "metrics": { "enable": true }, "rate": { "pps": 100 },
        "duration": { "fixed_packets": { "packets": 7 } } });
    let translated = ok(members);
    let flow = &translated.flows[0];
    assert_eq!(
        (flow.tag_names.as_slice(), flow.packets),
        (&["dscp".to_owned(), "low".into()][..], Some(7))
    );
    let hex = |digits: &str| TagValue::Hex(digits.into());
    assert_eq!(flow.streams[0].tags, [hex("0a"), hex("0")]);
    assert_eq!(flow.streams[1].tags, [hex("2e"), hex("0")]);
    let streams = &translated.profile.streams;
    assert_eq!(
        streams.iter().map(|s| s.mode).collect::<Vec<_>>(),
        [Mode::Burst(4), Mode::Burst(3)]
    );
    assert_eq!(streams[1].start_delay, Nanos(10_000_000));
    assert!(streams.iter().all(|stream| stream.rate.value() == 50.0));
    for (i, stream) in streams.iter().enumerate() {
        let first = 0x0a00_0001 + i as u128;
        assert_eq!(
            stream.vary[0].op,
            Op::Step { min: first, max: first + 4, init: first, step: 2 }
        );
        // The header checksum is correct in each stream's frame.
        let frame = squall_wire::Frame::dissect(octets(&translated, i).to_vec());
        assert!(frame.checksums.iter().any(|sum| sum.at == 24), "stream {i}");
    }
}

#[test]
fn tags_of_received_frames_stand_where_their_headers_say() {
    let egress = json!([{ "choice": "ethernet" },
        { "choice": "vlan", "vlan": { "id": { "metric_tags": [{ "name": "vlan" }] } } },
        { "choice": "ipv4", "ipv4": { "dst": { "metric_tags": [{ "name": "net", "offset": 8, "length": 16 }] } } }]);
    let packet = json!([{ "choice": "ethernet" }, { "choice": "ipv4" }, { "choice": "udp" }]);
    let flow = |size: u32, egress: &Value| json!({ "packet": packet, "egress_packet": egress, "size": { "fixed": size }, "metrics": { "enable": true } });
    let translated = ok(flow(100, &egress));
    assert_eq!(translated.profile.streams.len(), 1);
    let found = translated.flows[0].egress.as_ref().expect("there are tags");
    let found: Vec<_> =
        found.tags.iter().map(|tag| (tag.name.as_str(), tag.bit, tag.bits)).collect();
    assert_eq!(found, [("vlan", 14 * 8 + 4, 12), ("net", (18 + 16) * 8 + 8, 16)]);
    let long = json!([{ "choice": "ethernet", "ethernet": { "src": { "metric_tags": [{ "name": "mac" }] } } },
        { "choice": "ipv6", "ipv6": { "src": { "metric_tags": [{ "name": "ip" }] } } }]);
    assert_eq!(
        problems(flow(100, &long)),
        ["flows[0].egress_packet: not supported: 176 bits in metric_tags; at most 128 in total"]
    );
    let mut silent = flow(100, &egress);
    silent["metrics"] = json!({ "enable": false });
    let texts = problems(silent);
    assert!(
        texts[0].starts_with("flows[0].egress_packet: metrics of the flow are off"),
        "{texts:?}"
    );
}

#[test]
fn tags_of_random_values_are_refused() {
    let packet = json!([{ "choice": "ethernet" }, { "choice": "ipv4" }, { "choice": "udp", "udp": {
        "src_port": { "random": { "count": 9 }, "metric_tags": [{ "name": "port" }] } } }]);
    let texts = problems(json!({ "packet": packet, "metrics": { "enable": true } }));
    assert!(
        texts[0].starts_with(
            "flows[0].packet[2].udp.src_port.metric_tags: not supported: tags of random"
        ),
        "{texts:?}"
    );
}

fn devices(dst: Value) -> Value {
    let device = |i: u32| {
        json!({ "name": format!("d{i}"), "ethernets": [{
            "name": format!("e{i}"), "mac": format!("00:00:00:00:00:0{i}"),
            "connection": { "choice": "port_name", "port_name": format!("p{i}") },
            "ipv4_addresses": [{ "name": format!("ip{i}"), "address": format!("10.0.{i}.1"), "gateway": format!("10.0.{i}.254") }],
        }] })
    };
    json!({
        "ports": [{ "name": "p1", "location": "loop:0" }, { "name": "p2", "location": "loop:0" }],
        "devices": [device(1), device(2)],
        "flows": [{ "name": "f", "tx_rx": { "device": { "tx_names": ["ip1"], "rx_names": ["d2"] } },
            "packet": [{ "choice": "ethernet", "ethernet": { "dst": dst } }, { "choice": "ipv4" }] }],
    })
}

#[test]
fn flows_between_devices_have_their_addresses_and_the_gateways_that_were_asked() {
    let config = Config::from_json(&devices(json!({ "choice": "auto" }))).unwrap();
    let translated = translate(&config).unwrap();
    let wanted = &translated.unresolved[0];
    let gateway: IpAddr = "10.0.1.254".parse().unwrap();
    assert_eq!(
        (wanted.ethernet.as_str(), wanted.port.as_str(), wanted.gateway),
        ("e1", "p1", gateway)
    );
    let mac = "02:00:00:00:00:09".parse().unwrap();
    let resolved: Resolved = [(("e1".to_owned(), gateway), mac)].into();
    let translated = translate_with(&config, &resolved).unwrap();
    assert!(translated.unresolved.is_empty());
    let frame = octets(&translated, 0);
    assert_eq!(frame[..12], [2, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 1]);
    assert_eq!(frame[26..34], [10, 0, 1, 1, 10, 0, 2, 1]);
    assert_eq!(translated.flows[0].rx_ports, ["p2"]);
    assert_eq!(translated.devices[1].ipv4[0].prefix, 24);
    // Packets with configured addresses need no resolution.
    let config = Config::from_json(&devices(json!({ "value": "00:00:00:00:00:02" }))).unwrap();
    assert!(translate(&config).unwrap().unresolved.is_empty());
}

#[test]
fn captures_have_filters_of_tcpdump() {
    let mut config = with(json!({}));
    config["captures"] = json!([{ "name": "c", "port_names": ["p2"], "format": "pcapng", "packet_size": 100, "filters": [
        { "choice": "ethernet", "ethernet": { "src": { "value": "000011223344" } } },
        { "choice": "ipv4", "ipv4": { "protocol": { "value": "11", "negate": true } } },
        { "choice": "vlan", "vlan": { "id": { "value": "005", "mask": "fff" } } },
        { "choice": "custom", "custom": { "offset": 40, "bit_length": 4, "value": "a" } },
    ] }]);
    let capture = &read(&config).unwrap().captures[0];
    assert_eq!((capture.pcapng, capture.packet_size), (true, Some(100)));
    assert_eq!(
        capture.filter.as_deref(),
        Some(
            "(ether[6:4] = 0x1122 and ether[10:2] = 0x3344) and (ether[12:2] = 0x0800 and not \
             (ether[23:1] = 0x11)) and (ether[12:2] = 0x8100 and ether[14:2] & 0xfff = 0x5) and \
             (ether[40:1] & 0xf0 = 0xa0)"
        )
    );
}

#[test]
fn flows_are_appended_updated_and_deleted_by_name() {
    let config = Config::from_json(&with(json!({}))).unwrap();
    let more = json!({ "name": "g", "tx_rx": { "port": { "tx_name": "p2" } } });
    let both = config
        .append(&json!({ "config_append_list": [{ "choice": "flows", "flows": [more] }] }))
        .unwrap();
    assert_eq!(translate(&both).unwrap().flows.len(), 2);
    assert!(
        translate(&both.append(&json!({ "config_append_list": [{ "flows": [more] }] })).unwrap())
            .is_err()
    );

    let update = |name: &str, property: &str| {
        both.update(&json!({ "choice": "flows", "flows": { "property_names": [property],
            "flows": [{ "name": name, "rate": { "choice": "pps", "pps": 7 }, "size": { "fixed": 1000 } }] } }))
    };
    let updated = translate(&update("g", "rate").unwrap()).unwrap();
    assert_eq!(
        (updated.profile.streams[1].rate.num, &updated.profile.streams[1].size),
        (7, &SizeLaw::Fixed(64))
    );
    assert_eq!(
        update("h", "rate").unwrap_err().texts(),
        ["flows.flows[0].name: there is no flow \"h\""]
    );
    assert_eq!(update("g", "colour").unwrap_err().0.len(), 1);

    let delete = |name: &str| {
        both.delete(&json!({ "config_delete_list": [{ "choice": "flows", "flows": [name] }] }))
    };
    assert_eq!(delete("f").unwrap().to_json()["flows"], json!([more]));
    assert!(delete("h").is_err());
}

#[test]
fn a_tag_says_what_stands_in_front_of_it_or_what_follows() {
    let types = |tpid: Value, ether_type: Value| {
        let packet = json!([{ "choice": "ethernet", "ethernet": { "ether_type": ether_type } },
            { "choice": "vlan", "vlan": { "tpid": tpid } }, { "choice": "ipv4" }]);
        let translated = ok(json!({ "packet": packet }));
        let frame = octets(&translated, 0);
        (u16::from_be_bytes([frame[12], frame[13]]), u16::from_be_bytes([frame[16], frame[17]]))
    };
    let value = |value: u32| json!({ "choice": "value", "value": value });
    let auto = json!({ "choice": "auto" });
    assert_eq!(types(json!({}), auto.clone()), (0x8100, 0x0800));
    assert_eq!(types(value(0x88a8), auto.clone()), (0x88a8, 0x0800));
    assert_eq!(types(value(0xffff), auto), (0x8100, 0x0800));
    assert_eq!(types(value(0x6007), value(0x8100)), (0x8100, 0x6007));
}

/// Any JSON value.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z_0-9:.]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec(("[a-z_]{1,10}", inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// `config` with the value at index `place` replaced, counted depth first.
fn replaced(config: &Value, mut place: usize, by: &Value) -> Value {
    fn walk(value: &mut Value, place: &mut usize, by: &Value) -> bool {
        if *place == 0 {
            *value = by.clone();
            return true;
        }
        *place -= 1;
        match value {
            Value::Array(list) => list.iter_mut().any(|item| walk(item, place, by)),
            Value::Object(object) => object.values_mut().any(|item| walk(item, place, by)),
            _ => false,
        }
    }
    let mut config = config.clone();
    walk(&mut config, &mut place, by);
    config
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_json_in_any_place_gives_a_profile_or_problems(place in 0usize..400, by in any_json()) {
        let text = include_str!("../configs/headers.json");
        let config = replaced(&serde_json::from_str(text).unwrap(), place, &by);
        if let Ok(config) = Config::from_json(&config) {
            match translate(&config) {
                Ok(translated) => prop_assert!(translated.flows.iter().all(|flow| !flow.streams.is_empty())),
                Err(problems) => prop_assert!(!problems.0.is_empty()),
            }
            let _ = (config.append(&by), config.update(&by), config.delete(&by));
        }
    }
}
