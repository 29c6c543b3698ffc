//! The reference, out of the table.

use std::fmt::Write;

use crate::headers::{Field, Fill, Form, HEADERS, Header, UNSUPPORTED};

/// Markdown: what of the schema is supported, and every field.
pub fn reference() -> String {
    let mut out = String::from(INTRODUCTION);
    for header in HEADERS {
        section(&mut out, header);
    }
    out += "\n### custom\n\n`bytes`: octets in hex digits, as they are; `metric_tags` by bits \
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
            " `{of}` is one of {}, `{}` unless said.",
            choice.of.join(", "),
            choice.default
        );
    }
    out.push_str("\n\n| field | bit | bits | unless said | patterns |\n|---|---|---|---|---|\n");
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
            format!("as the next header says, or {value}")
        }
        Fill::UdpPort => {
            format!("4789 before vxlan, 2152 before gtpv1, 2123 before gtpv2, or {value}")
        }
        Fill::Words => "octets of the header / 4".into(),
        Fill::Length => "octets of the header and of what follows".into(),
        Fill::Behind(behind) => format!("octets behind the first {behind}"),
        Fill::Bottom => "1, or 0 before a further label".into(),
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

What of a configuration of [Open Traffic Generator](https://github.com/open-traffic-generator/models) (`snappi` 1.58 to 1.62) \
does what. All that is not supported is an error of `set_config` that names each place: `flows[3].packet[2].rsvp: not \
supported: ...`. What has no effect is a warning of its reply.

## Configuration

| member | |
|---|---|
| ports | `location` is the address of a port (`af_packet:eth1`, `loop:0`, ...) or the name of an interface |
| layer1 | `speed` is what octets, and seconds at a percentage, are computed with; `mtu` and `promiscuous` are taken; \
the rest has no effect |
| captures | `format`, `overwrite`, `packet_size`; `filters` are all to be true; a mask of zeros compares all bits |
| devices | `ethernets` on ports with `mac`, `mtu`, `vlans`, `ipv4_addresses`, `ipv6_addresses`: they answer ARP, neighbour \
discovery and echo. No routing protocol, no DHCP, no loopback |
| flows | below |
| options, events | no effect |
| lags, lldp, stateful_flows, egress_only_tracking | not supported |

## Flows

| member | |
|---|---|
| tx_rx | `port`; `device` by names of devices, interfaces or addresses, `mesh` or `one_to_one`, not `bidirectional`. Each pair \
of a mesh has its share of rate and frames |
| size | `fixed`, `increment`, `random`, `weight_pairs`; with the FCS, at least 64 |
| rate | `pps`; `bps`, `kbps`, `mbps`, `gbps` of the link, with preamble and gap between frames; `percentage` |
| duration | `continuous`, `fixed_packets`, `fixed_seconds` (as a number of frames), `burst`; `delay` and `inter_burst_gap` in \
nanoseconds, microseconds, or octets where layer1 says the speed; `gap` has no effect |
| payload | all kinds; by default zeros |
| metrics | `enable`, `loss`, `latency`, `timestamps`, `rx_tx_ratio`, `predefined_metric_tags`. A flow that is measured carries \
a signature in the last 16 octets of its payload (frames of 64 octets have room for it behind Ethernet, IPv4 and UDP; not behind \
TCP). Without room, frames received are told by their port, there is no latency, and a warning says so |
| metric_tags | frames that differ in tags are told apart by streams of their own, which together send what one would; at most \
4096 combinations, not of random values |
| egress_packet | headers as they are received; of their fields, `metric_tags` alone counts. `tagged_metrics` are told apart by \
what stands there, too, and then say nothing of frames sent; at most 128 bits a flow, of flows whose frames have room for a \
signature |

## Headers

Bits count from the start of the header. What is not said has the value of the schema. Lengths, checksums and numbers of next \
headers are filled in when nothing is said, and kept right in frames that vary. An Ethernet header inside of another packet is \
that of a frame with an FCS of its own, which the lengths inside of it do not count, unless sizes vary. `tpid` of a tag is what \
stands in front of the tag if it is one of 0x8100, 0x88a8, 0x9100, 0x9200, 0x9300, or else what follows the tag. `increment` and \
`decrement` wrap at the end of the field. Options of `ipv4`: `router_alert`, `custom`, `end_of_options`. `pfc_queue` of \
`ethernet` has no effect; `dst_usids` of `ipv6` are not supported.
";
