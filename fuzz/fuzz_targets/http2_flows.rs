//! Any octets from the peer of a flow over HTTP/2, in place of its frames or between them: nothing
//! panics, sent data can be produced again, and no state of the flow or its streams is left. The
//! octets are also messages of gRPC: parts of any length do not change the messages. Input: an
//! octet that selects the side, the length of a correct exchange and whether it is one of gRPC or
//! WebSocket, then pieces of octets, each preceded by its length.
#![no_main]

#[path = "../src/ends.rs"]
mod ends;

use libfuzzer_sys::fuzz_target;
use squall_apps::{
    Apps, Counts, Http2, Program,
    builtin::{
        GrpcClient, GrpcServer, HttpClient, WebSocketClient, filler, http_server, websocket_server,
    },
    grpc::{Reader, Violation},
};

fuzz_target!(|data: &[u8]| {
    match data.first().map_or(0, |choice| choice >> 6) {
        1 => ends::exchange([websocket(false), websocket(true)], data),
        kind => ends::exchange([end(false, kind > 1), end(true, kind > 1)], data),
    }
    let whole = messages(data, data.len().max(1));
    for part in [1, 3, 6] {
        assert_eq!(messages(data, part), whole);
    }
});

/// The first violation, and whether the octets before it end with a whole message.
fn messages(octets: &[u8], part: usize) -> (Option<Violation>, bool) {
    let mut reader = Reader::default();
    let found = octets.chunks(part).find_map(|part| reader.read(part).err());
    (found, reader.is_between())
}

fn end(client: bool, grpc: bool) -> ends::End {
    let program = match (client, grpc) {
        (true, false) => {
            let client = HttpClient { requests: 2, post: Some(70_000), ..HttpClient::default() };
            client.program("c")
        }
        (false, false) => http_server("s", 70_000),
        (true, true) => {
            let message = filler(30_000);
            let client = GrpcClient { calls: 2, messages: 3, message, ..GrpcClient::default() };
            client.program("c")
        }
        (false, true) => GrpcServer { answers: 3, ..GrpcServer::default() }.program("s"),
    };
    over_http2(client, &program.expect("right"))
}

fn websocket(client: bool) -> ends::End {
    let program = match client {
        true => WebSocketClient { ping: true, ..WebSocketClient::default() }.program("c"),
        false => websocket_server("s"),
    };
    over_http2(client, &program.expect("right"))
}

fn over_http2(client: bool, program: &Program) -> ends::End {
    let mut apps = Apps::new(1, Counts::default());
    let program = apps.add(program).expect("right");
    apps.over_http2(program, &Http2 { streams: 3, ..Http2::default() });
    ends::End::new(apps, program, client)
}
