//! LSAs of OSPF and LSPs of IS-IS in the form of OTG states, as their originators sent them.
//!
//! Their octets come from the link. Truncated parts are omitted.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value, json};
use squall_router::observe::{
    Protocol,
    lsdb::{Database, Entry},
};
use squall_units::{Nanos, get_be16, get_be32};

use crate::RouterInfo;

/// Age at which an LSA ends, seconds (RFC 2328 appendix B).
const MAX_AGE: u64 = 3_600;
/// Octets of the header of an LSA, and of that of an LSP.
const LSA: usize = 20;
const LSP: usize = 27;

/// The entry of a router in `ospfv2_lsas`, `ospfv3_lsas` or `isis_lsps`, without the LSAs or LSPs
/// that it has originated.
pub fn state(info: &RouterInfo, database: &Database, now: Nanos) -> Value {
    let entries = database.iter();
    let mut of = Map::new();
    if info.protocol == Protocol::Isis {
        let own = info.settings.igp.system_id.unwrap_or_default();
        let lsps = entries.filter(|entry| !entry.octets[12..].starts_with(&own));
        let lsps: Vec<_> = lsps.filter_map(|entry| lsp(entry, now)).collect();
        return json!({ "isis_router_name": info.name, "lsps": lsps });
    }
    of.insert("router_name".into(), json!(info.name));
    let own = info.settings.router_id.octets();
    for entry in entries.filter(|entry| entry.octets[8..12] != own) {
        let found = match info.protocol {
            Protocol::Ospf2 => ospf2(entry, now),
            _ => ospf3(entry, now),
        };
        // An LSA may have no prefix.
        let Some((list, found)) = found.filter(|(_, lsas)| !lsas.is_empty()) else { continue };
        let list = of.entry(list).or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut() {
            list.extend(found);
        }
    }
    Value::Object(of)
}

/// Metrics of three octets.
fn be24(octets: &[u8], at: usize) -> Option<u32> {
    get_be32(octets, at.checked_sub(1)?).map(|metric| metric & 0xff_ffff)
}

fn ipv4(octets: &[u8], at: usize) -> Option<String> {
    get_be32(octets, at).map(|bits| Ipv4Addr::from_bits(bits).to_string())
}

/// IPv4 addresses from `at` on.
fn all_ipv4(octets: &[u8], at: usize) -> Vec<String> {
    let rest = octets.get(at..).unwrap_or_default();
    rest.chunks_exact(4).filter_map(|one| ipv4(one, 0)).collect()
}

/// An address of IPv6 by its first octets; the others are 0.
fn ipv6(octets: &[u8]) -> Option<String> {
    let mut address = [0; 16];
    address.get_mut(..octets.len())?.copy_from_slice(octets);
    Some(Ipv6Addr::from(address).to_string())
}

fn age(entry: &Entry, now: Nanos) -> u64 {
    let then = u64::from(get_be16(&entry.octets, 0).unwrap_or(0) & 0x7fff);
    (then + since(entry, now)).min(MAX_AGE)
}

/// Seconds since it came.
fn since(entry: &Entry, now: Nanos) -> u64 {
    now.saturating_sub(entry.received).0 / Nanos::SECOND.0
}

/// The header of an LSA.
fn header(entry: &Entry, now: Nanos) -> Value {
    let octets = &entry.octets;
    json!({
        "lsa_id": ipv4(octets, 4),
        "advertising_router_id": ipv4(octets, 8),
        "sequence_number": get_be32(octets, 12),
        "age": age(entry, now),
    })
}

type Found = (&'static str, Vec<Value>);

/// The name of the list that has an LSA of `OSPFv2`, and its state there (RFC 2328 section A.4).
fn ospf2(entry: &Entry, now: Nanos) -> Option<Found> {
    const LINKS: [&str; 4] = ["point_to_point", "transit", "stub", "virtual"];
    let mut header = header(entry, now);
    header["option_bits"] = json!(entry.octets.get(2)?);
    let body = entry.octets.get(LSA..)?;
    let mask = ipv4(body, 0);
    let (list, lsa) = match entry.kind {
        1 => {
            let (mut links, mut at) = (Vec::new(), 4);
            for _ in 0..get_be16(body, 2)? {
                let Some(link) = body.get(at..at + 12) else { break };
                // A link may have further metrics for types of service (RFC 1583).
                at += 12 + 4 * usize::from(link[9]);
                let Some(kind) = LINKS.get(usize::from(link[8]).wrapping_sub(1)) else { continue };
                links.push(json!({
                    "type": kind,
                    "id": ipv4(link, 0),
                    "data": ipv4(link, 4),
                    "metric": get_be16(link, 10),
                }));
            }
            ("router_lsas", json!({ "links": links }))
        }
        2 => {
            let routers = all_ipv4(body, 4);
            ("network_lsas", json!({ "network_mask": mask?, "neighbor_router_ids": routers }))
        }
        3 | 4 => {
            let list = if entry.kind == 3 { "network_summary_lsas" } else { "summary_as_lsas" };
            (list, json!({ "network_mask": mask?, "metric": be24(body, 5)? }))
        }
        5 | 7 => {
            let kind = if body.get(4)? & 0x80 == 0 { 1 } else { 2 };
            let metric = be24(body, 5)?;
            let mut lsa = json!({ "network_mask": mask?, "metric": metric, "metric_type": kind });
            if entry.kind == 7 {
                lsa["forwarding_address"] = json!(ipv4(body, 8)?);
                ("nssa_lsas", lsa)
            } else {
                ("external_as_lsas", lsa)
            }
        }
        9..=11 => {
            let scope = ["local", "area", "domain"][usize::from(entry.kind - 9)];
            ("opaque_lsas", json!({ "type": scope, "id": be24(&entry.octets, 5)? }))
        }
        _ => return None,
    };
    Some((list, vec![with_header(lsa, header)]))
}

fn with_header(mut lsa: Value, header: Value) -> Value {
    lsa["header"] = header;
    lsa
}

/// As [`ospf2`], for `OSPFv3` (RFC 5340 section A.4). An LSA has a state for each of its prefixes.
fn ospf3(entry: &Entry, now: Nanos) -> Option<Found> {
    const LINKS: [&str; 4] = ["point_to_point", "transit", "stub", "virtual"];
    let header = header(entry, now);
    let body = entry.octets.get(LSA..)?;
    let one = |list, lsa| Some((list, vec![with_header(lsa, header.clone())]));
    match entry.kind {
        1 => {
            let all = body.get(4..)?.chunks_exact(16);
            let kind = |link: &[u8]| LINKS.get(usize::from(link[0]).wrapping_sub(1)).copied();
            let links = all.clone().filter_map(|link| {
                Some(json!({ "type": kind(link)?, "metric": get_be16(link, 2) }))
            });
            let mut lsa = json!({ "links": links.collect::<Vec<_>>() });
            // The schema has one neighbor for all links.
            let neighbors: Vec<_> = all.filter_map(|link| ipv4(link, 12)).collect();
            if let [first, rest @ ..] = &neighbors[..]
                && rest.iter().all(|other| other == first)
            {
                lsa["neighbor_router_id"] = json!(first);
            }
            one("router_lsas", lsa)
        }
        2 => one("network_lsas", json!({ "attached_router_ids": all_ipv4(body, 4) })),
        3 => {
            let (mut lsa, _) = prefix(body, 4)?;
            lsa["metric"] = json!(be24(body, 1)?);
            one("inter_area_prefix_lsas", lsa)
        }
        4 => {
            let (metric, router) = (be24(body, 5)?, ipv4(body, 8)?);
            let lsa = json!({ "metric": metric, "destination_router_id": router });
            one("inter_area_router_lsas", lsa)
        }
        5 | 7 => {
            const FORWARDING: u8 = 2;
            const TAG: u8 = 1;
            let flags = *body.first()?;
            let (mut lsa, mut at) = prefix(body, 4)?;
            lsa["metric"] = json!(be24(body, 1)?);
            if entry.kind == 5 {
                lsa["referenced_ls_type"] = json!(get_be16(body, 6)?);
            }
            if flags & FORWARDING != 0 {
                lsa["forwarding_address"] = json!(ipv6(body.get(at..at + 16)?)?);
                at += 16;
            }
            if flags & TAG != 0 {
                lsa["route_tag"] = json!(ipv4(body, at)?);
            }
            one(if entry.kind == 5 { "external_as_lsas" } else { "nssa_lsas" }, lsa)
        }
        8 => {
            let local = ipv6(body.get(4..20)?)?;
            let mut lsas = prefixes(body, get_be32(body, 20)?, 24, |_| None);
            if lsas.is_empty() {
                lsas.push(json!({}));
            }
            let lsas = lsas.into_iter().map(|mut lsa| {
                lsa["link_local_address"] = json!(local);
                with_header(lsa, header.clone())
            });
            Some(("link_lsas", lsas.collect()))
        }
        9 => {
            let metric = |of: &[u8]| get_be16(of, 2);
            let lsas = prefixes(body, get_be16(body, 0)?.into(), 12, metric).into_iter();
            let lsas = lsas.map(|lsa| with_header(lsa, header.clone())).collect();
            Some(("intra_area_prefix_lsas", lsas))
        }
        _ => None,
    }
}

/// A prefix (RFC 5340 section A.4.1), and where what follows it begins.
fn prefix(body: &[u8], at: usize) -> Option<(Value, usize)> {
    let length = *body.get(at).filter(|length| **length <= 128)?;
    let end = at + 4 + 4 * usize::from(length).div_ceil(32);
    let address = ipv6(body.get(at + 4..end)?)?;
    Some((json!({ "address_prefix": address, "prefix_length": length }), end))
}

/// Up to `count` prefixes from `at` on, each with the metric that its header has.
fn prefixes(
    body: &[u8],
    count: u32,
    mut at: usize,
    metric: impl Fn(&[u8]) -> Option<u16>,
) -> Vec<Value> {
    let mut found = Vec::new();
    for _ in 0..count {
        let Some((mut lsa, end)) = prefix(body, at) else { break };
        if let Some(metric) = metric(&body[at..]) {
            lsa["metric"] = json!(metric);
        }
        found.push(lsa);
        at = end;
    }
    found
}

/// An LSP (ISO/IEC 10589, RFC 1195, RFC 5305, RFC 5308).
fn lsp(entry: &Entry, now: Nanos) -> Option<Value> {
    let octets = &entry.octets;
    let id = octets.get(12..20)?;
    let flags = *octets.get(26)?;
    let lifetime = u64::from(get_be16(octets, 10)?);
    let bit = |bit: u8| flags & bit != 0;
    Some(json!({
        "lsp_id": format!("{}-{:02x}-{:02x}", hex(&id[..6]), id[6], id[7]),
        "pdu_type": if entry.kind == 1 { "level_1" } else { "level_2" },
        "remaining_lifetime": lifetime.saturating_sub(since(entry, now)),
        "sequence_number": get_be32(octets, 20)?.to_string(),
        "pdu_length": get_be16(octets, 8)?,
        "flags": {
            "partition_repair": bit(0x80),
            "attached_error": bit(0x40),
            "attached_expense": bit(0x20),
            "attached_delay": bit(0x10),
            "attached_default": bit(0x08),
            "overload": bit(0x04),
        },
        "is_type": flags & 3,
        "tlvs": tlvs(octets.get(LSP..)?),
    }))
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// The TLVs that states have.
fn tlvs(mut rest: &[u8]) -> Value {
    let mut all = Map::new();
    while let [kind, length, after @ ..] = rest {
        let Some((value, next)) = after.split_at_checked((*length).into()) else { break };
        rest = next;
        let (list, tlv) = match kind {
            137 => {
                let name = String::from_utf8_lossy(value).into_owned();
                ("hostname_tlvs", json!({ "hostname": name }))
            }
            2 => ("is_reachability_tlvs", json!({ "neighbors": neighbors(value) })),
            22 => {
                let found = json!({ "neighbors": wide_neighbors(value) });
                ("extended_is_reachability_tlvs", found)
            }
            128 => {
                let found = json!({ "prefixes": narrow_prefixes(value) });
                ("ipv4_internal_reachability_tlvs", found)
            }
            130 => {
                let found = json!({ "prefixes": narrow_prefixes(value) });
                ("ipv4_external_reachability_tlvs", found)
            }
            135 => {
                let found = json!({ "prefixes": wide_prefixes(value, false) });
                ("extended_ipv4_reachability_tlvs", found)
            }
            236 => {
                let found = json!({ "prefixes": wide_prefixes(value, true) });
                ("ipv6_reachability_tlvs", found)
            }
            _ => continue,
        };
        let list = all.entry(list).or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut() {
            list.push(tlv);
        }
    }
    Value::Object(all)
}

/// Neighbors with four metrics of an octet each, after the octet of a flag.
fn neighbors(value: &[u8]) -> Vec<Value> {
    let all = value.get(1..).unwrap_or_default().chunks_exact(11);
    all.map(|one| json!({ "system_id": hex(&one[4..10]) })).collect()
}

/// Neighbors with a metric of three octets, and further TLVs.
fn wide_neighbors(mut value: &[u8]) -> Vec<Value> {
    let mut found = Vec::new();
    while let Some((one, rest)) = value.split_at_checked(11) {
        found.push(json!({ "system_id": hex(&one[..6]) }));
        value = rest.get(usize::from(one[10])..).unwrap_or_default();
    }
    found
}

fn way(is_down: bool) -> &'static str {
    if is_down { "down" } else { "up" }
}

fn origin(is_external: bool) -> &'static str {
    if is_external { "external" } else { "internal" }
}

fn narrow_prefixes(value: &[u8]) -> Vec<Value> {
    let prefix = |one: &[u8]| {
        json!({
            "ipv4_address": ipv4(one, 4),
            "prefix_length": get_be32(one, 8).map(u32::count_ones),
            "redistribution_type": way(one[0] & 0x80 != 0),
            "default_metric": one[0] & 0x3f,
            "origin_type": origin(one[0] & 0x40 != 0),
        })
    };
    value.chunks_exact(12).map(prefix).collect()
}

/// Prefixes with a metric of four octets, and further TLVs if a flag says so.
fn wide_prefixes(mut value: &[u8], is_ipv6: bool) -> Vec<Value> {
    let mut found = Vec::new();
    while let (Some(metric), Some(flags)) = (get_be32(value, 0), value.get(4)) {
        // IPv4 has the length in the octet of flags.
        let (length, begin, more) = match is_ipv6 {
            true => (value.get(5).copied().unwrap_or(u8::MAX), 6, flags & 0x20 != 0),
            false => (flags & 0x3f, 5, flags & 0x40 != 0),
        };
        let mut end = begin + usize::from(length).div_ceil(8);
        let address = value.get(begin..end).and_then(|octets| match is_ipv6 {
            true => ipv6(octets),
            false => {
                let mut address = [0; 4];
                address.get_mut(..octets.len())?.copy_from_slice(octets);
                ipv4(&address, 0)
            }
        });
        let Some(address) = address else { break };
        let mut one = json!({
            "prefix_length": length,
            "metric": metric,
            "redistribution_type": way(flags & 0x80 != 0),
        });
        if is_ipv6 {
            one["ipv6_address"] = json!(address);
            one["origin_type"] = json!(origin(flags & 0x40 != 0));
        } else {
            one["ipv4_address"] = json!(address);
        }
        found.push(one);
        if more {
            end += 1 + usize::from(value.get(end).copied().unwrap_or(0));
        }
        value = value.get(end..).unwrap_or_default();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos(20_000_000_000);

    fn entry(kind: u8, octets: &[u8]) -> Entry {
        Entry { kind, octets: octets.to_vec(), received: Nanos(15_000_000_000) }
    }

    /// An LSA of 5 s age.
    fn lsa(body: &[u8]) -> Vec<u8> {
        let header = [0, 5, 2, 0, 10, 0, 0, 2, 10, 0, 0, 9, 0x80, 0, 0, 1, 0, 0, 0, 0];
        [&header[..], body].concat()
    }

    fn of2(kind: u8, body: &[u8]) -> Option<Found> {
        ospf2(&entry(kind, &lsa(body)), NOW)
    }

    #[test]
    fn lsas_of_ospf2_are_read() {
        let header = json!({
            "lsa_id": "10.0.0.2", "advertising_router_id": "10.0.0.9",
            "sequence_number": 0x8000_0001_u32, "age": 10, "option_bits": 2,
        });
        let links = [
            &[0, 0, 0, 2][..],
            // A transit link with a metric for a type of service, and a stub.
            &[10, 0, 0, 1, 10, 0, 0, 2, 2, 1, 0, 7, 9, 9, 9, 9],
            &[10, 1, 0, 0, 255, 255, 255, 0, 3, 0, 0, 20],
        ];
        let (list, found) = of2(1, &links.concat()).unwrap();
        assert_eq!(list, "router_lsas");
        assert_eq!(
            found,
            [json!({ "header": header, "links": [
                { "type": "transit", "id": "10.0.0.1", "data": "10.0.0.2", "metric": 7 },
                { "type": "stub", "id": "10.1.0.0", "data": "255.255.255.0", "metric": 20 },
            ] })]
        );
        let network = [255, 255, 255, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let expected = json!({ "header": header, "network_mask": "255.255.255.0",
            "neighbor_router_ids": ["10.0.0.1", "10.0.0.2"] });
        assert_eq!(of2(2, &network), Some(("network_lsas", vec![expected])));
        let summary = [255, 255, 255, 0, 0, 1, 0, 2];
        let expected =
            json!({ "header": header, "network_mask": "255.255.255.0", "metric": 0x1_0002 });
        assert_eq!(of2(3, &summary), Some(("network_summary_lsas", vec![expected.clone()])));
        assert_eq!(of2(4, &summary), Some(("summary_as_lsas", vec![expected])));
        let external = [255, 255, 255, 0, 0x80, 0, 0, 9, 10, 0, 0, 7, 0, 0, 0, 0];
        let expected = json!({ "header": header, "network_mask": "255.255.255.0", "metric": 9,
            "metric_type": 2 });
        assert_eq!(of2(5, &external), Some(("external_as_lsas", vec![expected.clone()])));
        let mut nssa = expected;
        nssa["forwarding_address"] = json!("10.0.0.7");
        assert_eq!(of2(7, &external), Some(("nssa_lsas", vec![nssa])));
        let opaque = json!({ "header": header, "type": "area", "id": 2 });
        assert_eq!(of2(10, &[]), Some(("opaque_lsas", vec![opaque])));
        assert_eq!(of2(6, &external), None);
    }

    #[test]
    fn lsas_of_ospf3_are_read_and_each_prefix_is_a_state() {
        let of3 = |kind, body: &[u8]| {
            let (list, mut found) = ospf3(&entry(kind, &lsa(body)), NOW).unwrap();
            for one in &mut found {
                let header = one.as_object_mut().unwrap().remove("header").unwrap();
                assert_eq!((&header["age"], header.get("option_bits")), (&json!(10), None));
            }
            (list, Value::Array(found))
        };
        let link = [1, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 2, 9, 9, 9, 9];
        let router = [&[0; 4][..], &link].concat();
        let expected = json!([{ "neighbor_router_id": "9.9.9.9",
            "links": [{ "type": "point_to_point", "metric": 7 }] }]);
        assert_eq!(of3(1, &router), ("router_lsas", expected));
        let mut other = link;
        other[15] = 8;
        let (_, two) = of3(1, &[&router[..], &other].concat());
        assert_eq!(two[0].get("neighbor_router_id"), None, "it has two");
        let expected = json!([{ "attached_router_ids": ["1.2.3.4"] }]);
        assert_eq!(of3(2, &[0, 0, 0, 0, 1, 2, 3, 4]), ("network_lsas", expected));
        let prefix = [48, 0, 0, 5, 0x20, 1, 0xd, 0xb8, 0, 1, 0, 0];
        let inter = [&[0, 0, 0, 10][..], &prefix].concat();
        let expected =
            json!([{ "address_prefix": "2001:db8:1::", "prefix_length": 48, "metric": 10 }]);
        assert_eq!(of3(3, &inter), ("inter_area_prefix_lsas", expected));
        let expected = json!([{ "metric": 3, "destination_router_id": "1.2.3.4" }]);
        let body = [0, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3, 4];
        assert_eq!(of3(4, &body), ("inter_area_router_lsas", expected));
        let external = [&[3, 0, 0, 4][..], &prefix, &[0xfe; 16], &[1, 2, 3, 4]].concat();
        let expected = json!([{ "address_prefix": "2001:db8:1::", "prefix_length": 48, "metric": 4,
            "referenced_ls_type": 5, "route_tag": "1.2.3.4",
            "forwarding_address": "fefe:fefe:fefe:fefe:fefe:fefe:fefe:fefe" }]);
        assert_eq!(of3(5, &external), ("external_as_lsas", expected));
        let mut local = [0; 24];
        (local[4], local[5], local[19]) = (0xfe, 0x80, 1);
        let expected = json!([{ "link_local_address": "fe80::1" }]);
        assert_eq!(of3(8, &local), ("link_lsas", expected));
        local[23] = 1;
        let expected = json!([{ "link_local_address": "fe80::1", "prefix_length": 48,
            "address_prefix": "2001:db8:1::" }]);
        assert_eq!(of3(8, &[&local[..], &prefix].concat()), ("link_lsas", expected));
        let intra = [&[0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &prefix, &[0, 0, 0, 6]].concat();
        let expected = json!([
            { "address_prefix": "2001:db8:1::", "prefix_length": 48, "metric": 5 },
            { "address_prefix": "::", "prefix_length": 0, "metric": 6 },
        ]);
        assert_eq!(of3(9, &intra), ("intra_area_prefix_lsas", expected));
    }

    /// An LSP of level 2 with these TLVs, of 100 s lifetime.
    fn lsp_of(tlvs: &[u8]) -> Vec<u8> {
        let mut octets = vec![0; LSP];
        (octets[9], octets[11]) = (99, 100);
        octets[12..20].copy_from_slice(&[0x64, 0, 0, 0, 0, 1, 0, 2]);
        (octets[23], octets[26]) = (7, 0x0f);
        [&octets, tlvs].concat()
    }

    #[test]
    fn lsps_are_read_with_their_tlvs() {
        let tlvs = [
            &[137, 2, b'r', b'1'][..],
            &[2, 12, 0, 10, 0, 0, 0, 0x65, 0, 0, 0, 0, 1, 0],
            &[22, 13, 0x65, 0, 0, 0, 0, 2, 0, 0, 0, 10, 2, 9, 9],
            &[128, 12, 0xc5, 0, 0, 0, 10, 1, 0, 0, 255, 255, 0, 0],
            &[135, 18, 0, 0, 0, 20, 0x58, 10, 2, 3, 2, 9, 9, 0, 0, 0, 1, 0x88, 10],
            &[99, 1, 0],
            &[236, 10, 0, 0, 0, 30, 0x40, 32, 0x20, 1, 0xd, 0xb8],
            &[135, 200],
        ];
        let found = lsp(&entry(2, &lsp_of(&tlvs.concat())), NOW).unwrap();
        let prefixes = |list: &str| found["tlvs"][list][0]["prefixes"].clone();
        assert_eq!(
            (&found["lsp_id"], &found["pdu_type"], &found["remaining_lifetime"]),
            (&json!("640000000001-00-02"), &json!("level_2"), &json!(95))
        );
        assert_eq!((&found["sequence_number"], &found["pdu_length"]), (&json!("7"), &json!(99)));
        let flags = &found["flags"];
        assert_eq!((&flags["overload"], &flags["attached_default"]), (&json!(true), &json!(true)));
        assert_eq!((&flags["attached_delay"], &found["is_type"]), (&json!(false), &json!(3)));
        assert_eq!(found["tlvs"]["hostname_tlvs"], json!([{ "hostname": "r1" }]));
        let neighbor = |list: &str| found["tlvs"][list][0]["neighbors"][0]["system_id"].clone();
        assert_eq!(neighbor("is_reachability_tlvs"), "650000000001");
        assert_eq!(neighbor("extended_is_reachability_tlvs"), "650000000002");
        assert_eq!(
            prefixes("ipv4_internal_reachability_tlvs"),
            json!([{ "ipv4_address": "10.1.0.0", "prefix_length": 16, "default_metric": 5,
                "redistribution_type": "down", "origin_type": "external" }])
        );
        assert_eq!(
            prefixes("extended_ipv4_reachability_tlvs"),
            json!([
                { "ipv4_address": "10.2.3.0", "prefix_length": 24, "metric": 20,
                    "redistribution_type": "up" },
                { "ipv4_address": "10.0.0.0", "prefix_length": 8, "metric": 1,
                    "redistribution_type": "down" },
            ])
        );
        assert_eq!(
            prefixes("ipv6_reachability_tlvs"),
            json!([{ "ipv6_address": "2001:db8::", "prefix_length": 32, "metric": 30,
                "redistribution_type": "up", "origin_type": "external" }])
        );
    }

    #[test]
    fn truncated_octets_are_omitted() {
        let body = [[1; 60], [0; 60], [255; 60]].concat();
        for kind in 0..16 {
            for end in 0..body.len() {
                for from in [0, 50, 110] {
                    let octets = lsa(&body[from.min(end)..end]);
                    let _ = ospf2(&entry(kind, &octets), NOW);
                    let _ = ospf3(&entry(kind, &octets), NOW);
                }
            }
        }
        let all = lsp_of(&body);
        for end in 0..all.len() {
            assert_eq!(lsp(&entry(1, &all[..end]), NOW).is_some(), end >= LSP);
        }
    }
}
