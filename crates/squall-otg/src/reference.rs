//! Generates the reference page from the table of headers.

use std::fmt::Write;

use crate::headers::{Field, Fill, Form, HEADERS, Header, UNSUPPORTED};

/// Markdown that lists the supported parts of the schema with all their fields.
pub fn reference() -> String {
    let mut out = String::from(INTRODUCTION);
    for header in HEADERS {
        section(&mut out, header);
    }
    out += "\n### custom\n\n`bytes`: octets in hex digits, sent unchanged; `metric_tags` by bits \
            from their start.\n";
    out += "\n### Not supported\n\n";
    for (name, instead) in UNSUPPORTED {
        let _ = writeln!(out, "- {name}: {instead}");
    }
    out
}

fn section(out: &mut String, header: &Header) {
    let _ = write!(out, "\n### {}\n\n{}.", header.name, header.title);
    if let Some(choice) = &header.choice {
        let of = if choice.at.is_empty() { header.name } else { choice.at };
        let _ = write!(
            out,
            " `{of}` is one of {}, by default `{}`.",
            choice.of.join(", "),
            choice.default
        );
    }
    out.push_str("\n\n| field | bit | bits | default | patterns |\n|---|---|---|---|---|\n");
    for field in header.fields {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            field.name,
            field.bit,
            field.bits,
            default(field),
            patterns(field)
        );
    }
}

fn default(field: &Field) -> String {
    let value = match field.form {
        Form::Number => field.default.to_string(),
        Form::Mac => (0..6)
            .rev()
            .map(|i| format!("{:02x}", field.default >> (8 * i) & 255))
            .collect::<Vec<_>>()
            .join(":"),
        Form::Ipv4 => "0.0.0.0".into(),
        Form::Ipv6 => "::".into(),
        Form::Checksum => return "generated, good".into(),
    };
    match field.fill {
        Fill::Default => value,
        Fill::DeviceMac => format!("the device's, or {value}"),
        Fill::GatewayMac => format!("the gateway's, or {value}"),
        Fill::DeviceAddress => format!("the sending device's, or {value}"),
        Fill::PeerAddress => format!("the receiving device's, or {value}"),
        Fill::EtherType | Fill::Protocol | Fill::PppProtocol => {
            format!("by the next header, or {value}")
        }
        Fill::UdpPort => {
            format!("4789 before vxlan, 2152 before gtpv1, 2123 before gtpv2, or {value}")
        }
        Fill::Words => "octets of the header / 4".into(),
        Fill::Length => "octets of the header and everything after it".into(),
        Fill::After(skip) => format!("octets after the first {skip}"),
        Fill::Bottom => "1, or 0 before another label".into(),
    }
}

fn patterns(field: &Field) -> String {
    if field.form == Form::Checksum {
        return "generated, custom".into();
    }
    let mut patterns = vec!["value, values, increment, decrement"];
    // Addresses from DHCP are not supported.
    if field.auto && !matches!(field.form, Form::Ipv4 | Form::Ipv6) {
        patterns.push("auto");
    }
    if field.random {
        patterns.push("random");
    }
    patterns.join(", ")
}

const INTRODUCTION: &str = "# Open Traffic Generator

The supported parts of a configuration of [Open Traffic \
Generator](https://github.com/open-traffic-generator/models) (`snappi` 1.58 to 1.62). \
`set_config` refuses unsupported parts with an error that names each position: \
`flows[3].packet[2].rsvp: not supported: ...`. Its reply has a warning for each setting without \
effect.

## Configuration

| member | |
|---|---|
| ports | `location` is the address of a port (`af_packet:eth1`, `loop:0`, ...) or the name of an \
interface |
| layer1 | `speed` is used to convert octets, and seconds at a percentage; `mtu` and \
`promiscuous` are accepted; the rest has no effect |
| captures | `format`, `overwrite`, `packet_size`; all `filters` must match; a mask of zeros \
compares all bits |
| devices | `ethernets` on ports with `mac`, `mtu`, `vlans`, `ipv4_addresses`, `ipv6_addresses`: \
they answer ARP, neighbor discovery and echo; `connection` to a port or to a LAG of one port; \
`dhcpv4_interfaces` (one per interface, the first server), `dhcpv6_interfaces` (one per interface; \
`iana`, `iapd`, `ianapd`, `rapid_commit`; no `options`), `dhcp_server.ipv4_interfaces` (one pool \
with `step` 1), `dhcp_server.ipv6_interfaces` (one lease of `iana`, `iapd` or `ianapd`, \
`rapid_commit`; no `options`); `ipv4_loopbacks` and `ipv6_loopbacks` of interfaces with an address \
of that version; `bgp`, `ospfv2`, `ospfv3`, `isis`: below |
| lldp | all; `auto` values are a generated MAC address, the name of the port, and `squall` |
| lags | `lacp`, no `static`; `actor_system_id`, `actor_key` and `actor_port_number` of 0 are \
generated; no `macsec` |
| flows | below |
| options, events | no effect |
| stateful_flows, egress_only_tracking | not supported |

## BGP

| member of a peer | |
|---|---|
| peer_address | in the subnet of the interface, which is an `ipv4_name` or `ipv6_name` with a \
configured address: no loopback, no DHCP |
| as_type, as_number, as_number_width | all. The number of an `ebgp` peer comes from its OPEN |
| advanced | `hold_time_interval`, `keep_alive_interval`, `passive_mode`; ports are 179, \
`time_to_live` is 64, `update_interval` is 0; no `md5_key` |
| capability | `ipv4_unicast`, `ipv6_unicast`, and `add_path` of both; `route_refresh` is always on |
| learned_information_filter | `unicast_ipv4_prefix` and `unicast_ipv6_prefix`: without them, \
`bgp_prefixes` has no routes. A million routes are kept for an interface |
| graceful_restart | `enable_gr`, `restart_time`; `enable_notification` has no effect; no \
`enable_llgr` |
| v4_routes, v6_routes | `addresses`, up to 10 million in all; `next_hop_mode`, with next hops of \
the IP version of the routes; `advanced`, where `ORIGIN` and, to internal peers, `LOCAL_PREF` \
are not left out, and there is no MED unless it is set; `communities`; `extended_communities`, \
whose states are `raw`; `as_path`; `add_path` |
| evpn_ethernet_segments, v4_srte_policies, v6_srte_policies, segment_routing, replay_updates, \
ext_communities, mpls_labels | not supported |

An `as_path` that is set is the whole path, so that `as_set_mode` decides whether it has the own \
number. Without one, external peers get the own number, and internal ones an empty path.

## OSPF

Routers are BIRD 2. Each is on one interface; a device can have one of each version there. A \
configuration has at most 64 routers of OSPF and IS-IS.

| member of a router, or of an instance | |
|---|---|
| router_id | all; `auto` is the first IPv4 address, or the end of the MAC address |
| interfaces | one, by an `ipv4_name` or `ipv6_name` with a configured address, no loopback. `area`; \
`network_type`: no `point_to_multipoint`; `advanced`, where the MTU is always compared; \
`authentication`; `instance_id`; no `traffic_engineering`, `link_protection`, `srlg_values`, \
`adjacency_sids` |
| lsa_retransmit_time, graceful_restart | all |
| lsa_refresh_time, inter_burst_lsu_interval, max_flood_lsu_per_burst | the default only |
| capabilities, options | no effect: BIRD sets the bits that its areas and routes need; others are \
refused |
| store_lsa | without it, states have no LSAs |
| v4_routes, v6_routes | `addresses`; `metric`; `route_origin`: no `nssa_external`, no `flags`. \
Routes of `intra_area` and `inter_area` are networks of virtual interfaces of the router: at most \
4,000, a metric of 0 becomes 1 with a warning, and hosts of IPv6 (/128) have 0. \
At most 100,000 external ones |
| segment_routing, prefix_sids | not supported |

## IS-IS

Routers are FRR. Each is on one interface.

| member | |
|---|---|
| system_id | all |
| interfaces | one, with the first IPv4 and IPv6 address of its `eth_name`. `metric`, `network_type`, \
`level_type`; `l1_settings` and `l2_settings`, the same if both levels are spoken, with a \
`dead_interval` of 2 to 100 times `hello_interval`; no `authentication`, `multi_topology_ids`, \
`traffic_engineering`, `link_protection`, `srlg_values`, `adjacency_sids`, `srv6_adjacency_sids`. In \
`advanced`, `auto_adjust` has no effect, and the rest has the default only |
| basic | `hostname`, `enable_wide_metric`; without `learned_lsp_filter`, states have no LSPs; \
`ipv4_te_router_id` has no effect |
| advanced | one of `area_addresses`, by default 490001; `lsp_refresh_rate`, `lsp_lifetime`, \
`enable_hello_padding`; `enable_attached_bit` has no effect; the rest has the default only |
| v4_routes, v6_routes | `addresses`, at most 4,000 networks of a router; `link_metric`; only \
`internal` ones that go `up`; no `prefix_attr_enabled`, no `prefix_sids` |
| instance, router_auth, segment_routing | not supported; `graceful_restart` has no effect |

## Flows

| member | |
|---|---|
| tx_rx | `port`, or the name of a LAG, whose ports send in turn; `device` by names of devices, interfaces, addresses or ranges of routes, `mesh` or `one_to_one`, \
not `bidirectional`. Each pair of a mesh has its share of rate and frames |
| size | `fixed`, `increment`, `random`, `weight_pairs`; with the FCS, at least 64 |
| rate | `pps`; `bps`, `kbps`, `mbps`, `gbps` of the link, with preamble and gap between frames; \
`percentage` |
| duration | `continuous`, `fixed_packets`, `fixed_seconds` (as a number of frames), `burst`; \
`delay` and `inter_burst_gap` in nanoseconds, microseconds, or octets if layer1 has the speed; \
`gap` has no effect |
| payload | all kinds; by default zeros |
| metrics | `enable`, `loss`, `latency`, `timestamps`, `rx_tx_ratio`, `predefined_metric_tags`. A \
measured flow carries a signature in the last 16 octets of its payload (frames of 64 octets have \
room for it after Ethernet, IPv4 and UDP, not after TCP). Without room, received frames are \
counted by port, there is no latency, and the reply has a warning |
| metric_tags | each combination of tags has a separate stream; together they send the same \
frames as one stream. At most 4096 combinations, no random values |
| egress_packet | headers as they are received; only their `metric_tags` have an effect. \
`tagged_metrics` are then also split by the values received, without counts of sent frames; at \
most 128 bits per flow, only flows whose frames have room for a signature |

## Headers

Bits count from the start of the header. Fields that are not set have the default of the schema. \
Lengths, checksums and numbers of next headers are filled in if they are not set, and stay \
correct in frames that vary. An Ethernet header inside another packet belongs to a frame with its \
own FCS, which the lengths inside that frame do not include, unless sizes vary. `tpid` of a tag \
is the type before the tag if it is 0x8100, 0x88a8, 0x9100, 0x9200 or 0x9300, otherwise the type \
after the tag. `increment` and `decrement` wrap at the end of the field. Options of `ipv4`: \
`router_alert`, `custom`, `end_of_options`. `pfc_queue` of `ethernet` has no effect; `dst_usids` \
of `ipv6` are not supported.
";
