#![no_main]
//! Open Traffic Generator requests, as JSON or protobuf: parsing terminates, and a value is the
//! same after it is written and parsed in either form.

#[path = "../../crates/squall-server/src/otg/schema.rs"]
mod schema;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&first, octets)) = data.split_first() else { return };
    let name = [
        "Config",
        "ConfigUpdate",
        "ConfigAppend",
        "ControlState",
        "MetricsRequest",
        "MetricsResponse",
    ];
    let of = schema::message(name[usize::from(first >> 1) % name.len()]);
    let read = if first & 1 == 0 {
        schema::from_json(&of, octets)
    } else {
        schema::from_protobuf(&of, octets)
    };
    let Ok(value) = read else { return };
    let json = schema::to_json(&of, &value);
    assert_eq!(schema::from_json(&of, json.as_bytes()).expect("our own JSON"), value);
    let protobuf =
        schema::to_protobuf(&of, &value).expect("what was read has the form of its message");
    assert_eq!(schema::from_protobuf(&of, &protobuf).expect("our own protobuf"), value);
});
