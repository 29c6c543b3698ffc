use serde_json::json;
use squall_units::be16;

use super::*;

const WIRE: Wire = Wire { source: [0x18; 6], destination: [0x10; 6], speed: 10e9 };

/// A stream whose packets are 60 octets of zeros before the field engine runs.
fn stream(mode: Value, instructions: Value) -> Value {
    json!({
        "flags": 0, "mode": mode, "packet": { "binary": STANDARD.encode([0u8; 60]) },
        "vm": { "instructions": instructions }, "flow_stats": { "enabled": false },
    })
}

fn pps(value: f64) -> Value {
    json!({ "type": "continuous", "rate": { "type": "pps", "value": value } })
}

fn burst(packets: u32) -> Value {
    json!({
        "type": "single_burst", "total_pkts": packets, "rate": { "type": "pps", "value": 1000.0 },
    })
}

fn var(name: &str, op: &str, range: [u64; 3], step: u64, next: Option<&str>) -> Value {
    let [init, min, max] = range;
    json!({
        "type": "flow_var", "name": name, "size": 2, "op": op, "init_value": init,
        "min_value": min, "max_value": max, "step": step, "next_var": next,
    })
}

fn write(name: &str, at: usize) -> Value {
    json!({
        "type": "write_flow_var", "name": name, "pkt_offset": at, "add_value": 0,
        "is_big_endian": true,
    })
}

/// The 16-bit words at offset `at` in the first `count` packets.
fn words(instructions: Value, at: usize, count: usize) -> Vec<u16> {
    let reference = Reference::read(&[stream(pps(1.0), instructions)], &WIRE).expect("sound");
    let word = |one: Departure| be16(&one.octets, at);
    reference.take(count).map(word).collect()
}

/// Departure times in microseconds, each with its stream.
fn times(streams: &[Value], count: usize) -> Vec<(u64, usize)> {
    let reference = Reference::read(streams, &WIRE).expect("sound");
    reference.take(count).map(|one| ((one.at * 1e6).round() as u64, one.stream)).collect()
}

#[test]
fn ranges_are_padded_to_whole_steps_and_begin_with_their_first_value() {
    let up = json!([var("v", "inc", [10, 10, 20], 4, None), write("v", 50)]);
    assert_eq!(words(up, 50, 5), [10, 14, 18, 10, 14]);
    let down = json!([var("v", "dec", [20, 10, 20], 4, None), write("v", 50)]);
    assert_eq!(words(down, 50, 5), [20, 16, 12, 20, 16]);
}

#[test]
fn a_next_variable_advances_with_each_wrap_and_lags_one_step_before_the_first() {
    let chain = |first| {
        let leader = var("a", "inc", [first, 1, 3], 1, Some("b"));
        json!([leader, var("b", "inc", [5, 5, 6], 1, None), write("b", 50)])
    };
    assert_eq!(words(chain(1), 50, 7), [5, 5, 5, 6, 6, 6, 5]);
    assert_eq!(words(chain(2), 50, 6), [6, 6, 5, 5, 5, 6]);
}

#[test]
fn seeded_numbers_are_those_of_the_congruence_and_repeat_at_the_limit() {
    let limited = json!({
        "type": "flow_var_rand_limit", "name": "v", "size": 2, "seed": 1, "limit": 2,
        "min_value": 0, "max_value": 65_535, "next_var": null,
    });
    let found = words(json!([limited, write("v", 50)]), 50, 4);
    // 214013 + 2531011 = 2745024; bits 16 to 30 are 41. The next draw is 18467.
    assert_eq!(found, [41, 18_467, 41, 18_467]);
}

#[test]
fn tuples_go_round_the_addresses_and_end_with_their_flows() {
    let tuple = json!({
        "type": "tuple_flow_var", "name": "t", "ip_min": 1, "ip_max": 2, "port_min": 10,
        "port_max": 20, "limit_flows": 3, "flags": 0,
    });
    let ip = json!([tuple, write("t.ip", 50)]);
    assert_eq!(words(ip.clone(), 52, 5), [1, 2, 1, 1, 2]);
    let port = json!([tuple, write("t.port", 50)]);
    assert_eq!(words(port, 50, 5), [10, 10, 11, 10, 10]);
}

#[test]
fn masks_shift_add_and_leave_the_other_bits() {
    let mask = json!({
        "type": "write_mask_flow_var", "name": "v", "pkt_offset": 50, "pkt_cast_size": 2,
        "mask": 0x0ff0, "shift": 4, "add_value": 1, "is_big_endian": true,
    });
    let found = words(json!([var("v", "inc", [255, 254, 255], 1, None), mask]), 50, 2);
    assert_eq!(found, [0, 0x0ff0]);
}

#[test]
fn packets_of_a_cache_repeat() {
    let mut one = stream(pps(1.0), json!([var("v", "inc", [0, 0, 99], 1, None), write("v", 50)]));
    one["vm"]["cache"] = json!(3);
    let reference = Reference::read(&[one], &WIRE).expect("sound");
    let octets: Vec<u8> = reference.take(5).map(|one| one.octets[51]).collect();
    assert_eq!(octets, [0, 1, 2, 0, 1]);
}

#[test]
fn a_burst_starts_the_next_stream_after_its_gap_as_often_as_it_may() {
    let named = |name: &str, next: &str, starts: bool, isg: f64, actions: u32| {
        let mut one = stream(burst(2), json!([]));
        one["name"] = json!(name);
        one["next"] = json!(next);
        one["self_start"] = json!(starts);
        one["isg"] = json!(isg);
        one["action_count"] = json!(actions);
        one
    };
    // The second stream restarts the first, once.
    let both = [named("a", "b", true, 10.0, 0), named("b", "a", false, 100.0, 2)];
    let found = times(&both, 20);
    let expected =
        [(10, 0), (1010, 0), (1110, 1), (2110, 1), (2120, 0), (3120, 0), (3220, 1), (4220, 1)];
    assert_eq!(found, expected);
}

#[test]
fn rates_in_bits_count_the_fcs_and_on_layer_1_preamble_and_gap() {
    let mode = |unit: &str, value: f64| json!({ "type": "continuous", "rate": { "type": unit, "value": value } });
    for (unit, value) in
        [("bps_L2", 64.0 * 8e3), ("bps_L1", 84.0 * 8e3), ("percentage", 84.0 * 8e3 / 1e8)]
    {
        let found = times(&[stream(mode(unit, value), json!([]))], 2);
        assert_eq!(found, [(0, 0), (1000, 0)], "{unit}");
    }
}

#[test]
fn lengths_follow_a_variable_and_checksums_what_is_left() {
    let mut packet = vec![0u8; 100];
    packet[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    let mut one = stream(
        pps(1.0),
        json!([
            var("len", "inc", [60, 60, 400], 20, None), { "type": "trim_pkt_size", "name": "len" },
            write("len", 16), { "type": "fix_checksum_ipv4", "pkt_offset": 14 },
        ]),
    );
    one["packet"]["binary"] = json!(STANDARD.encode(&packet));
    let reference = Reference::read(&[one], &WIRE).expect("sound");
    for (one, len) in reference.take(3).zip([60, 80, 100]) {
        assert_eq!(one.octets.len(), len);
        let words = one.octets[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
        assert_eq!(words.sum::<u32>() % 0xffff, 0, "the header's sum is 0xffff");
    }
}

#[test]
fn random_numbers_without_a_seed_are_taken_over_if_they_are_in_range() {
    let one = stream(pps(1.0), json!([var("v", "random", [5, 5, 9], 1, None), write("v", 50)]));
    let mut reference = Reference::read(&[one], &WIRE).expect("sound");
    let expected = reference.next().expect("a packet").octets;
    let node = &reference.nodes[0];
    let chance = node.program.chance().expect("random");
    let mut found = expected.clone();
    found[51] = 9;
    assert_eq!(chance.adopt(node.packet(), &expected, &found), Ok(found.clone()));
    found[51] = 10;
    assert!(chance.adopt(node.packet(), &expected, &found).expect_err("10").contains("is 10"));
}
