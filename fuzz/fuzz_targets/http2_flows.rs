//! Any octets from the peer of a flow over HTTP/2, in place of its frames or between them: nothing
//! panics, sent data can be produced again, and no state of the flow or its streams is left. Input:
//! an octet that selects the side and the length of a correct exchange, then pieces of octets, each
//! preceded by its length.
#![no_main]

#[path = "../src/ends.rs"]
mod ends;

use libfuzzer_sys::fuzz_target;
use squall_apps::{
    Apps, Counts, Http2,
    builtin::{HttpClient, http_server},
};

fuzz_target!(|data: &[u8]| ends::exchange([end(false), end(true)], data));

fn end(client: bool) -> ends::End {
    let program = if client {
        let client = HttpClient { requests: 2, post: Some(70_000), ..HttpClient::default() };
        client.program("c")
    } else {
        http_server("s", 70_000)
    };
    let mut apps = Apps::new(1, Counts::default());
    let program = apps.add(&program.expect("right")).expect("right");
    apps.over_http2(program, &Http2 { streams: 3, ..Http2::default() });
    ends::End::new(apps, program, client)
}
