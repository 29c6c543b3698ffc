//! The cases of h2spec 2.6 (github.com/summerwind/h2spec), by group, number and name. Each is sent
//! whole and octet by octet to a server that answers requests with five octets.

use super::*;

enum Expect {
    /// GOAWAY with one of these codes.
    GoAway(&'static [Code]),
    /// RST_STREAM or GOAWAY with one of these codes, as h2spec takes both.
    Error(&'static [Code]),
    /// HEADERS on the stream, and no error.
    Answer(u32),
    Pong([u8; 8]),
    /// SETTINGS with ACK, as often.
    Acks(usize),
    /// The first frame is SETTINGS without ACK.
    Settings,
    /// The first DATA have this length.
    Data(u32),
}

use Expect::{Acks, Answer, Data, GoAway, Pong};

const PROTOCOL: Expect = GoAway(&[Code::PROTOCOL_ERROR]);
const FLOW: Expect = GoAway(&[Code::FLOW_CONTROL_ERROR]);
const SIZE: Expect = GoAway(&[Code::FRAME_SIZE_ERROR]);
const COMPRESSION: Expect = GoAway(&[Code::COMPRESSION_ERROR]);
const CLOSED: Expect = GoAway(&[Code::STREAM_CLOSED]);
const STREAM_PROTOCOL: Expect = Expect::Error(&[Code::PROTOCOL_ERROR]);
const STREAM_CLOSED: Expect = Expect::Error(&[Code::STREAM_CLOSED]);
const STREAM_SIZE: Expect = Expect::Error(&[Code::FRAME_SIZE_ERROR]);
const NO_PING: [u8; 8] = [0; 8];
const BODY: u32 = 5;

struct Case {
    name: &'static str,
    /// After each of them, the server answers the requests that are complete.
    steps: Vec<Vec<u8>>,
    expect: Expect,
}

fn case<const N: usize>(name: &'static str, steps: [Vec<u8>; N], expect: Expect) -> Case {
    Case { name, steps: steps.into(), expect }
}

fn headers(id: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    raw(kind::HEADERS, flags, id, block)
}

fn continuation(id: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    raw(kind::CONTINUATION, flags, id, block)
}

fn priority(id: u32, on: u32, weight: u8) -> Vec<u8> {
    let [a, b, c, d] = on.to_be_bytes();
    raw(kind::PRIORITY, 0, id, &[a, b, c, d, weight])
}

fn get() -> Vec<u8> {
    request(1, &block(&GET))
}

fn post() -> Vec<u8> {
    opening(1, &block(&POST))
}

fn get_with(more: &[u8]) -> Vec<u8> {
    request(1, &[&block(&GET)[..], more].concat())
}

fn get_of(fields: &[(&str, &str)]) -> Vec<u8> {
    request(1, &block(fields))
}

fn go_away(code: u32) -> Vec<u8> {
    raw(kind::GOAWAY, 0, 0, &[[0; 4], code.to_be_bytes()].concat())
}

fn unknown() -> Vec<u8> {
    raw(0x16, 0, 0, &[0; 8])
}

fn dummy() -> Vec<u8> {
    block(&[("x-dummy0", "dummy")])
}

fn requests(count: u32) -> Vec<u8> {
    (0..count).flat_map(|nth| request(2 * nth + 1, &block(&GET))).collect()
}

const EH: u8 = flag::END_HEADERS;
const ES: u8 = flag::END_STREAM;

fn http2_1_to_5() -> Vec<Case> {
    vec![
        case("http2/3.5/1: Sends client connection preface", [], Expect::Settings),
        case(
            "http2/4.1/1: Sends a frame with unknown type",
            [unknown(), ping(&NO_PING)],
            Pong(NO_PING),
        ),
        case(
            "http2/4.1/2: Sends a frame with undefined flag",
            [raw(kind::PING, 0x16, 0, &NO_PING)],
            Pong(NO_PING),
        ),
        case(
            "http2/4.1/3: Sends a frame with reserved field bit",
            [raw(kind::PING, 0x16, 1 << 31, &NO_PING)],
            Pong(NO_PING),
        ),
        case(
            "http2/4.2/1: Sends a DATA frame with 2^14 octets in length",
            [post(), data(1, true, &[b'x'; 1 << 14])],
            Answer(1),
        ),
        case(
            "http2/4.2/2: Sends a large size DATA frame that exceeds the SETTINGS_MAX_FRAME_SIZE",
            [post(), data(1, true, &[b'x'; (1 << 14) + 1])],
            STREAM_SIZE,
        ),
        case(
            "http2/4.2/3: Sends a large size HEADERS frame that exceeds the \
             SETTINGS_MAX_FRAME_SIZE",
            [request(1, &[0; (1 << 14) + 1])],
            SIZE,
        ),
        case(
            "http2/4.3/1: Sends invalid header block fragment",
            [headers(1, EH | ES, b"\x40")],
            COMPRESSION,
        ),
        case(
            "http2/4.3/2: Sends a PRIORITY frame while sending the header blocks",
            [headers(1, 0, &block(&GET)), priority(1, 0, 255), continuation(1, EH, &dummy())],
            PROTOCOL,
        ),
        case(
            "http2/4.3/3: Sends a HEADERS frame to another stream while sending the header blocks",
            [headers(1, 0, &block(&GET)), request(3, &block(&GET))],
            PROTOCOL,
        ),
        case("http2/5.1/1: idle: Sends a DATA frame", [data(1, true, b"test")], PROTOCOL),
        case("http2/5.1/2: idle: Sends a RST_STREAM frame", [reset(1, Code::CANCEL)], PROTOCOL),
        case("http2/5.1/3: idle: Sends a WINDOW_UPDATE frame", [window(1, 100)], PROTOCOL),
        case(
            "http2/5.1/4: idle: Sends a CONTINUATION frame",
            [continuation(1, EH, &block(&GET))],
            PROTOCOL,
        ),
        case(
            "http2/5.1/5: half closed (remote): Sends a DATA frame",
            [join(&[get(), data(1, true, b"test")])],
            STREAM_CLOSED,
        ),
        case(
            "http2/5.1/6: half closed (remote): Sends a HEADERS frame",
            [join(&[get(), get()])],
            STREAM_CLOSED,
        ),
        case(
            "http2/5.1/7: half closed (remote): Sends a CONTINUATION frame",
            [join(&[get(), continuation(1, EH, &block(&GET))])],
            PROTOCOL,
        ),
        case(
            "http2/5.1/8: closed: Sends a DATA frame after sending RST_STREAM frame",
            [opening(1, &block(&GET)), reset(1, Code::CANCEL), data(1, true, b"test")],
            STREAM_CLOSED,
        ),
        case(
            "http2/5.1/9: closed: Sends a HEADERS frame after sending RST_STREAM frame",
            [opening(1, &block(&GET)), reset(1, Code::CANCEL), get()],
            STREAM_CLOSED,
        ),
        case(
            "http2/5.1/10: closed: Sends a CONTINUATION frame after sending RST_STREAM frame",
            [opening(1, &block(&GET)), reset(1, Code::CANCEL), continuation(1, EH, &dummy())],
            PROTOCOL,
        ),
        case("http2/5.1/11: closed: Sends a DATA frame", [get(), data(1, true, b"test")], CLOSED),
        case("http2/5.1/12: closed: Sends a HEADERS frame", [get(), get()], CLOSED),
        case(
            "http2/5.1/13: closed: Sends a CONTINUATION frame",
            [get(), continuation(1, EH, &dummy())],
            PROTOCOL,
        ),
        case(
            "http2/5.1.1/1: Sends even-numbered stream identifier",
            [request(2, &block(&GET))],
            PROTOCOL,
        ),
        case(
            "http2/5.1.1/2: Sends stream identifier that is numerically smaller than previous",
            [request(5, &block(&GET)), request(3, &block(&GET))],
            PROTOCOL,
        ),
        case(
            "http2/5.1.1/3: Sends HEADERS frame with the stream which is in half-closed (remote) \
             state",
            [join(&[request(5, &block(&GET)), request(5, &block(&GET))])],
            STREAM_CLOSED,
        ),
        case(
            "http2/5.1.2/1: Sends HEADERS frames that causes their advertised concurrent stream \
             limit \
             to be exceeded",
            [settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]), requests(101)],
            Expect::Error(&[Code::REFUSED_STREAM]),
        ),
        case(
            "http2/5.3.1/1: Sends HEADERS frame that depends on itself",
            [headers(
                1,
                EH | ES | flag::PRIORITY,
                &[&[0, 0, 0, 1, 255][..], &block(&GET)].concat(),
            )],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/5.3.1/2: Sends PRIORITY frame that depend on itself",
            [priority(1, 1, 255)],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/5.4.1/1 and 2: Sends an invalid PING frame for connection close",
            [raw(kind::PING, 0, 3, &NO_PING)],
            PROTOCOL,
        ),
        case(
            "http2/5.5/1: Sends an unknown extension frame",
            [unknown(), ping(&NO_PING)],
            Pong(NO_PING),
        ),
        case(
            "http2/5.5/2: Sends an unknown extension frame in the middle of a header block",
            [headers(1, ES, &block(&GET)), unknown()],
            PROTOCOL,
        ),
    ]
}

fn http2_6() -> Vec<Case> {
    let window_of = |octets| settings(&[(setting::INITIAL_WINDOW_SIZE, octets)]);
    let max_frame = |octets| settings(&[(setting::MAX_FRAME_SIZE, octets)]);
    let padded = block(&GET);
    let too_much: u8 = (padded.len() + 2).try_into().unwrap();
    vec![
        case(
            "http2/6.1/1: Sends a DATA frame with 0x0 stream identifier",
            [data(0, true, b"test")],
            PROTOCOL,
        ),
        case(
            "http2/6.1/2: Sends a DATA frame on the stream that is not in \"open\" or \
             \"half-closed \
             (local)\" state",
            [join(&[request(1, &block(&POST)), data(1, true, b"test")])],
            STREAM_CLOSED,
        ),
        case(
            "http2/6.1/3: Sends a DATA frame with invalid pad length",
            [
                opening(1, &with(&POST, &[("content-length", "4")])),
                raw(kind::DATA, ES | flag::PADDED, 1, b"\x06Test"),
            ],
            PROTOCOL,
        ),
        case(
            "http2/6.2/1: Sends a HEADERS frame without the END_HEADERS flag, and a PRIORITY frame",
            [headers(1, 0, &block(&GET)), priority(1, 0, 255)],
            PROTOCOL,
        ),
        case(
            "http2/6.2/2: Sends a HEADERS frame to another stream while sending a HEADERS frame",
            [headers(1, 0, &block(&GET)), request(3, &block(&GET))],
            PROTOCOL,
        ),
        case(
            "http2/6.2/3: Sends a HEADERS frame with 0x0 stream identifier",
            [request(0, &block(&GET))],
            PROTOCOL,
        ),
        case(
            "http2/6.2/4: Sends a HEADERS frame with invalid pad length",
            [headers(1, EH | ES | flag::PADDED, &[&[too_much][..], &padded].concat())],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/6.3/1: Sends a PRIORITY frame with 0x0 stream identifier",
            [priority(0, 0, 255)],
            PROTOCOL,
        ),
        case(
            "http2/6.3/2: Sends a PRIORITY frame with a length other than 5 octets",
            [get(), raw(kind::PRIORITY, 0, 1, b"\x80\x00\x00\x01")],
            STREAM_SIZE,
        ),
        case(
            "http2/6.4/1: Sends a RST_STREAM frame with 0x0 stream identifier",
            [reset(0, Code::CANCEL)],
            PROTOCOL,
        ),
        case(
            "http2/6.4/2: Sends a RST_STREAM frame on a idle stream",
            [reset(1, Code::CANCEL)],
            PROTOCOL,
        ),
        case(
            "http2/6.4/3: Sends a RST_STREAM frame with a length other than 4 octets",
            [get(), raw(kind::RST_STREAM, 0, 1, &[0; 3])],
            SIZE,
        ),
        case(
            "http2/6.5/1: Sends a SETTINGS frame with ACK flag and payload",
            [raw(kind::SETTINGS, flag::ACK, 0, &[0])],
            SIZE,
        ),
        case(
            "http2/6.5/2: Sends a SETTINGS frame with a stream identifier other than 0x0",
            [raw(kind::SETTINGS, 0, 1, b"\x00\x03\x00\x00\x00\x64")],
            PROTOCOL,
        ),
        case(
            "http2/6.5/3: Sends a SETTINGS frame with a length other than a multiple of 6 octets",
            [raw(kind::SETTINGS, 0, 0, b"\x00\x03\x00\x00\x00\x64\x00\x02\x00")],
            SIZE,
        ),
        case(
            "http2/6.5.2/1: SETTINGS_ENABLE_PUSH (0x2): Sends the value other than 0 or 1",
            [settings(&[(setting::ENABLE_PUSH, 2)])],
            PROTOCOL,
        ),
        case(
            "http2/6.5.2/2: SETTINGS_INITIAL_WINDOW_SIZE (0x4): Sends the value above the maximum \
             flow control window size",
            [window_of(1 << 31)],
            FLOW,
        ),
        case(
            "http2/6.5.2/3: SETTINGS_MAX_FRAME_SIZE (0x5): Sends the value below the initial value",
            [max_frame((1 << 14) - 1)],
            PROTOCOL,
        ),
        case(
            "http2/6.5.2/4: SETTINGS_MAX_FRAME_SIZE (0x5): Sends the value above the maximum \
             allowed \
             frame size",
            [max_frame(1 << 24)],
            PROTOCOL,
        ),
        case(
            "http2/6.5.2/5: Sends a SETTINGS frame with unknown identifier",
            [settings(&[(0xff, 1)]), ping(&NO_PING)],
            Pong(NO_PING),
        ),
        case(
            "http2/6.5.3/1: Sends multiple values of SETTINGS_INITIAL_WINDOW_SIZE",
            [
                settings(&[(setting::INITIAL_WINDOW_SIZE, 100), (setting::INITIAL_WINDOW_SIZE, 1)]),
                get(),
            ],
            Data(1),
        ),
        case(
            "http2/6.5.3/2: Sends a SETTINGS frame without ACK flag",
            [settings(&[(setting::ENABLE_PUSH, 0)])],
            Acks(2),
        ),
        case("http2/6.7/1: Sends a PING frame", [ping(b"h2spec\0\0")], Pong(*b"h2spec\0\0")),
        case(
            "http2/6.7/2: Sends a PING frame with ACK",
            [raw(kind::PING, flag::ACK, 0, b"invalid\0"), ping(b"h2spec\0\0")],
            Pong(*b"h2spec\0\0"),
        ),
        case(
            "http2/6.7/3: Sends a PING frame with a stream identifier field value other than 0x0",
            [raw(kind::PING, 0, 1, &NO_PING)],
            PROTOCOL,
        ),
        case(
            "http2/6.7/4: Sends a PING frame with a length field value other than 8",
            [raw(kind::PING, 0, 0, &[0; 6])],
            SIZE,
        ),
        case(
            "http2/6.8/1: Sends a GOAWAY frame with a stream identifier other than 0x0",
            [raw(kind::GOAWAY, 0, 1, &[0; 8])],
            PROTOCOL,
        ),
        case(
            "http2/6.9/1: Sends a WINDOW_UPDATE frame with a flow control window increment of 0",
            [window(0, 0)],
            PROTOCOL,
        ),
        case(
            "http2/6.9/2: Sends a WINDOW_UPDATE frame with a flow control window increment of 0 \
             on a \
             stream",
            [post(), window(1, 0)],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/6.9/3: Sends a WINDOW_UPDATE frame with a length other than 4 octets",
            [raw(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 1])],
            SIZE,
        ),
        case(
            "http2/6.9.1/1: Sends SETTINGS frame to set the initial window size to 1 and sends \
             HEADERS frame",
            [window_of(1), get()],
            Data(1),
        ),
        case(
            "http2/6.9.1/2: Sends multiple WINDOW_UPDATE frames increasing the flow control \
             window to \
             above 2^31-1",
            [window(0, (1 << 31) - 1), window(0, (1 << 31) - 1)],
            FLOW,
        ),
        case(
            "http2/6.9.1/3: Sends multiple WINDOW_UPDATE frames increasing the flow control \
             window to \
             above 2^31-1 on a stream",
            [post(), window(1, (1 << 31) - 1), window(1, (1 << 31) - 1)],
            Expect::Error(&[Code::FLOW_CONTROL_ERROR]),
        ),
        case(
            "http2/6.9.2/1: Changes SETTINGS_INITIAL_WINDOW_SIZE after sending HEADERS frame",
            [window_of(0), get(), window_of(1)],
            Data(1),
        ),
        case(
            "http2/6.9.2/2: Sends a SETTINGS frame for window size to be negative",
            [window_of(3), get(), window_of(2), window(1, 2)],
            Data(3),
        ),
        case(
            "http2/6.9.2/3: Sends a SETTINGS_INITIAL_WINDOW_SIZE settings with an exceeded maximum \
             window size value",
            [raw(kind::SETTINGS, 0, 0, b"\x00\x04\x80\x00\x00\x00")],
            FLOW,
        ),
        case(
            "http2/6.10/1: Sends multiple CONTINUATION frames preceded by a HEADERS frame",
            [
                headers(1, ES, &block(&GET)),
                continuation(1, 0, &dummy()),
                continuation(1, EH, &dummy()),
            ],
            Answer(1),
        ),
        case(
            "http2/6.10/2: Sends a CONTINUATION frame followed by any frame other than \
             CONTINUATION",
            [headers(1, 0, &block(&POST)), continuation(1, 0, &dummy()), data(1, true, b"test")],
            PROTOCOL,
        ),
        case(
            "http2/6.10/3: Sends a CONTINUATION frame with 0x0 stream identifier",
            [headers(1, ES, &block(&GET)), continuation(0, EH, &dummy())],
            PROTOCOL,
        ),
        case(
            "http2/6.10/4: Sends a CONTINUATION frame preceded by a HEADERS frame with END_HEADERS \
             flag",
            [get(), continuation(1, EH, &dummy())],
            PROTOCOL,
        ),
        case(
            "http2/6.10/5: Sends a CONTINUATION frame preceded by a CONTINUATION frame with \
             END_HEADERS flag",
            [
                headers(1, ES, &block(&GET)),
                continuation(1, EH, &dummy()),
                continuation(1, EH, &dummy()),
            ],
            PROTOCOL,
        ),
        case(
            "http2/6.10/6: Sends a CONTINUATION frame preceded by a DATA frame",
            [post(), data(1, true, b"test"), continuation(1, EH, &dummy())],
            PROTOCOL,
        ),
    ]
}

fn http2_7_and_8() -> Vec<Case> {
    let [method, scheme, path, authority] = GET;
    let length = opening(1, &with(&POST, &[("content-length", "1")]));
    vec![
        case(
            "http2/7/1: Sends a GOAWAY frame with unknown error code",
            [go_away(0xff), ping(&NO_PING)],
            Pong(NO_PING),
        ),
        case(
            "http2/7/2: Sends a RST_STREAM frame with unknown error code",
            [post(), reset(1, Code(0xff)), ping(&NO_PING)],
            Pong(NO_PING),
        ),
        case(
            "http2/8.1/1: Sends a second HEADERS frame without the END_STREAM flag",
            [post(), data(1, false, b"test"), opening(1, &block(&[("x-test", "ok")]))],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/8.1.2/1: Sends a HEADERS frame that contains the header field name in uppercase \
             letters",
            [get_with(&block(&[("X-TEST", "ok")]))],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/8.1.2.1/1: Sends a HEADERS frame that contains a unknown pseudo-header field",
            [get_with(&block(&[(":test", "ok")]))],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/8.1.2.1/2: Sends a HEADERS frame that contains the pseudo-header field defined \
             for \
             response",
            [get_with(&block(&[(":status", "200")]))],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/8.1.2.1/3: Sends a HEADERS frame that contains a pseudo-header field as \
             trailers",
            [post(), data(1, false, b"test"), request(1, &block(&[(":method", "POST")]))],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/8.1.2.1/4: Sends a HEADERS frame that contains a pseudo-header field that \
             appears \
             in a header block after a regular header field",
            [get_of(&[("x-test", "ok"), method, scheme, path, authority])],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/8.1.2.2/1: Sends a HEADERS frame that contains the connection-specific header \
             field",
            [get_with(&block(&[("connection", "keep-alive")]))],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/8.1.2.2/2: Sends a HEADERS frame that contains the TE header field with any \
             value \
             other than \"trailers\"",
            [get_with(&block(&[("trailers", "test"), ("te", "trailers, deflate")]))],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/8.1.2.3/1: Sends a HEADERS frame with empty \":path\" pseudo-header field",
            [get_of(&[method, scheme, (":path", ""), authority])],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/8.1.2.3/2: Sends a HEADERS frame that omits \":method\" pseudo-header field",
            [get_of(&[scheme, path, authority])],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/8.1.2.3/3: Sends a HEADERS frame that omits \":scheme\" pseudo-header field",
            [get_of(&[method, path, authority])],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/8.1.2.3/4: Sends a HEADERS frame that omits \":path\" pseudo-header field",
            [get_of(&[method, scheme, authority])],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/8.1.2.3/5: Sends a HEADERS frame with duplicated \":method\" pseudo-header \
             field",
            [get_of(&[method, scheme, path, authority, method])],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/8.1.2.3/6: Sends a HEADERS frame with duplicated \":scheme\" pseudo-header \
             field",
            [get_of(&[method, scheme, path, authority, scheme])],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/8.1.2.3/7: Sends a HEADERS frame with duplicated \":path\" pseudo-header field",
            [get_of(&[method, scheme, path, authority, path])],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/8.1.2.6/1: Sends a HEADERS frame with the \"content-length\" header field which \
             does not equal the DATA frame payload length",
            [length.clone(), data(1, true, b"test")],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/8.1.2.6/2: Sends a HEADERS frame with the \"content-length\" header field which \
             does not equal the sum of the multiple DATA frames payload length",
            [length, data(1, false, b"test"), data(1, true, b"test")],
            STREAM_PROTOCOL,
        ),
        case(
            "http2/8.2/1: Sends a PUSH_PROMISE frame",
            [raw(kind::PUSH_PROMISE, EH, 1, &[&3_u32.to_be_bytes()[..], &block(&GET)].concat())],
            PROTOCOL,
        ),
    ]
}

fn generic() -> Vec<Case> {
    let held = || settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]);
    let all = settings(&[
        (setting::HEADER_TABLE_SIZE, 4096),
        (setting::ENABLE_PUSH, 1),
        (setting::MAX_CONCURRENT_STREAMS, 100),
        (setting::INITIAL_WINDOW_SIZE, 65_535),
        (setting::MAX_FRAME_SIZE, 16_384),
        (setting::MAX_HEADER_LIST_SIZE, 100),
    ]);
    let whole = block(&GET);
    let head = with(&GET[1..], &[]);
    let head = [block(&[(":method", "HEAD")]), head].concat();
    let padded = [&[8][..], &whole, &[0; 8]].concat();
    vec![
        case("generic/1/1: Sends a client connection preface", [], Expect::Settings),
        case(
            "generic/2/1: Sends a PRIORITY frame on idle stream",
            [priority(1, 0, 255), ping(&NO_PING)],
            Pong(NO_PING),
        ),
        case(
            "generic/2/2: Sends a WINDOW_UPDATE frame on half-closed (remote) stream",
            [held(), get(), window(1, 1)],
            Data(1),
        ),
        case(
            "generic/2/3: Sends a PRIORITY frame on half-closed (remote) stream",
            [held(), get(), priority(1, 0, 255), window(1, 1)],
            Data(1),
        ),
        case(
            "generic/2/4: Sends a RST_STREAM frame on half-closed (remote) stream",
            [join(&[get(), reset(1, Code::CANCEL), ping(&NO_PING)])],
            Pong(NO_PING),
        ),
        case(
            "generic/2/5: Sends a PRIORITY frame on closed stream",
            [get(), priority(1, 0, 255), ping(&NO_PING)],
            Pong(NO_PING),
        ),
        case("generic/3.1/1: Sends a DATA frame", [post(), data(1, true, b"test")], Answer(1)),
        case(
            "generic/3.1/2: Sends multiple DATA frames",
            [post(), data(1, false, b"test"), data(1, true, b"test")],
            Answer(1),
        ),
        case(
            "generic/3.1/3: Sends a DATA frame with padding",
            [post(), raw(kind::DATA, ES | flag::PADDED, 1, b"\x06test\0\0\0\0\0\0")],
            Answer(1),
        ),
        case("generic/3.2/1: Sends a HEADERS frame", [get()], Answer(1)),
        case(
            "generic/3.2/2: Sends a HEADERS frame with padding",
            [headers(1, EH | ES | flag::PADDED, &padded)],
            Answer(1),
        ),
        case(
            "generic/3.2/3: Sends a HEADERS frame with priority",
            [headers(1, EH | ES | flag::PRIORITY, &[&[0, 0, 0, 0, 255][..], &whole].concat())],
            Answer(1),
        ),
        case(
            "generic/3.3/1: Sends a PRIORITY frame with priority 1",
            [priority(1, 0, 0), get()],
            Answer(1),
        ),
        case(
            "generic/3.3/2: Sends a PRIORITY frame with priority 256",
            [priority(1, 0, 255), get()],
            Answer(1),
        ),
        case(
            "generic/3.3/3: Sends a PRIORITY frame with stream dependency",
            [priority(3, 1, 0), get()],
            Answer(1),
        ),
        case(
            "generic/3.3/4: Sends a PRIORITY frame with exclusive",
            [priority(1, 1 << 31, 0), get()],
            Answer(1),
        ),
        case(
            "generic/3.3/5: Sends a PRIORITY frame for an idle stream, then send a HEADER frame \
             for a \
             lower stream ID",
            [priority(3, 0, 255), get()],
            Answer(1),
        ),
        case(
            "generic/3.4/1: Sends a RST_STREAM frame",
            [post(), reset(1, Code::CANCEL), ping(&NO_PING)],
            Pong(NO_PING),
        ),
        case("generic/3.5/1: Sends a SETTINGS frame", [all], Acks(2)),
        case("generic/3.7/1: Sends a PING frame", [ping(b"h2spec\0\0")], Pong(*b"h2spec\0\0")),
        case("generic/3.8/1: Sends a GOAWAY frame", [go_away(0), ping(&NO_PING)], Pong(NO_PING)),
        case(
            "generic/3.9/1: Sends a WINDOW_UPDATE frame with stream ID 0",
            [held(), get(), window(0, 1), window(1, 1)],
            Data(1),
        ),
        case(
            "generic/3.9/2: Sends a WINDOW_UPDATE frame with stream ID 1",
            [post(), window(1, 1), data(1, true, b"")],
            Answer(1),
        ),
        case(
            "generic/3.10/1: Sends a CONTINUATION frame",
            [headers(1, ES, &whole[..5]), continuation(1, EH, &whole[5..])],
            Answer(1),
        ),
        case(
            "generic/3.10/2: Sends multiple CONTINUATION frames",
            [
                headers(1, ES, &whole[..5]),
                continuation(1, 0, &whole[5..10]),
                continuation(1, EH, &whole[10..]),
            ],
            Answer(1),
        ),
        case("generic/4/1: Sends a GET request", [get()], Answer(1)),
        case("generic/4/2: Sends a HEAD request", [request(1, &head)], Answer(1)),
        case("generic/4/3: Sends a POST request", [post(), data(1, true, b"test")], Answer(1)),
        case(
            "generic/4/4: Sends a POST request with trailers",
            [
                opening(1, &with(&POST, &[("trailer", "x-test")])),
                data(1, false, b"test"),
                request(1, &block(&[("x-test", "ok")])),
            ],
            Answer(1),
        ),
    ]
}

/// Fields after those of a request, in all representations: `user-agent` and `x-test`, with the
/// value `h2spec`.
fn generic_hpack() -> Vec<Case> {
    let accepts = |name, more: &[u8]| case(name, [get_with(more)], Answer(1));
    let agent = b"\x0auser-agent\x06h2spec";
    let agent_coded = b"\x87\xb5\x05\xb1\x61\xcc\x5a\x93\x84\x9c\x48\xac\xa4";
    let test = b"\x06x-test\x06h2spec";
    let test_coded = b"\x85\xf2\xb2\x4a\x84\xff\x84\x9c\x48\xac\xa4";
    let by = |first: u8, rest: &[u8]| [&[first][..], rest].concat();
    let resized = |updates: &[u8]| request(1, &[updates, &block(&GET)].concat());
    vec![
        accepts("generic/5/1: Sends a indexed header field representation", b"\xba"),
        accepts(
            "generic/5/2: Sends a literal header field with incremental indexing - indexed name",
            &by(0x7a, b"\x06h2spec"),
        ),
        accepts(
            "generic/5/3: Sends a literal header field with incremental indexing - indexed name \
             (with \
             Huffman coding)",
            &by(0x7a, b"\x84\x9c\x48\xac\xa4"),
        ),
        accepts(
            "generic/5/4: Sends a literal header field with incremental indexing - new name",
            &by(0x40, test),
        ),
        accepts(
            "generic/5/5: Sends a literal header field with incremental indexing - new name (with \
             Huffman coding)",
            &by(0x40, test_coded),
        ),
        accepts(
            "generic/5/6: Sends a literal header field without indexing - indexed name",
            &by(0x00, agent),
        ),
        accepts(
            "generic/5/7: Sends a literal header field without indexing - indexed name (with \
             Huffman \
             coding)",
            &by(0x00, agent_coded),
        ),
        accepts(
            "generic/5/8: Sends a literal header field without indexing - new name",
            &by(0x00, test),
        ),
        accepts(
            "generic/5/9: Sends a literal header field without indexing - new name (huffman \
             encoded)",
            &by(0x00, test_coded),
        ),
        accepts(
            "generic/5/10: Sends a literal header field never indexed - indexed name",
            &by(0x10, agent),
        ),
        accepts(
            "generic/5/11: Sends a literal header field never indexed - indexed name (huffman \
             encoded)",
            &by(0x10, agent_coded),
        ),
        accepts(
            "generic/5/12: Sends a literal header field never indexed - new name",
            &by(0x10, test),
        ),
        accepts(
            "generic/5/13: Sends a literal header field never indexed - new name (huffman encoded)",
            &by(0x10, test_coded),
        ),
        case("generic/5/14: Sends a dynamic table size update", [resized(b"\x20")], Answer(1)),
        case(
            "generic/5/15: Sends multiple dynamic table size update",
            [resized(b"\x20\x3f\xe1\x1f")],
            Answer(1),
        ),
    ]
}

fn hpack() -> Vec<Case> {
    let refuses = |name, more: &[u8]| case(name, [get_with(more)], COMPRESSION);
    let test = b"\x00\x85\xf2\xb2\x4a\x84\xff";
    let by = |rest: &[u8]| [&test[..], rest].concat();
    let too_large = [&b"\x3f\xe2\x1f"[..], &block(&GET)].concat();
    vec![
        refuses(
            "hpack/2.3.3/1: Sends a indexed header field representation with invalid index",
            b"\xfe",
        ),
        refuses(
            "hpack/2.3.3/2: Sends a literal header field representation with invalid index",
            b"\x7e\x05empty",
        ),
        refuses(
            "hpack/4.2/1: Sends a dynamic table size update at the end of header block",
            b"\x21",
        ),
        refuses(
            "hpack/5.2/1: Sends a Huffman-encoded string literal representation with padding \
             longer \
             than 7 bits",
            &by(b"\x84\x49\x50\x9f\xff"),
        ),
        refuses(
            "hpack/5.2/2: Sends a Huffman-encoded string literal representation padded by zero",
            &by(b"\x83\x49\x50\x90"),
        ),
        refuses(
            "hpack/5.2/3: Sends a Huffman-encoded string literal representation containing the EOS \
             symbol",
            &by(b"\x87\xff\xff\xff\xfd\x25\x42\x7f"),
        ),
        refuses("hpack/6.1/1: Sends a indexed header field representation with index 0", b"\x80"),
        case(
            "hpack/6.3/1: Sends a dynamic table size update larger than the value of \
             SETTINGS_HEADER_TABLE_SIZE",
            [request(1, &too_large)],
            COMPRESSION,
        ),
    ]
}

/// Answers requests that have ended, as far as windows allow.
fn answer(server: &mut End, bodies: &mut Vec<(u32, u32)>) {
    for event in server.take_events() {
        if let Event::Head(id, _, _, true) | Event::Data(id, _, true) = event
            && server.head(id, false, &OK)
        {
            bodies.push((id, BODY));
        }
    }
    bodies.retain_mut(|(id, left)| {
        *left -= server.data(*id, *left, true);
        *left > 0
    });
    server.control();
}

fn run(case: &Case, chunk: usize) -> Vec<u8> {
    let mut server = End::server();
    let mut bodies = vec![];
    let begin = [PREFACE.to_vec(), settings(&[]), acknowledged()].concat();
    for step in [&[begin][..], &case.steps[..]].concat() {
        for piece in step.chunks(chunk) {
            let _ = server.receive(piece);
        }
        answer(&mut server, &mut bodies);
    }
    server.out
}

fn passes(expect: &Expect, sent: &[(Header, &[u8])]) -> bool {
    let of = |wanted: u8| sent.iter().filter(move |(header, _)| header.kind == wanted);
    let code = |wanted: u8| of(wanted).map(|(_, payload)| code_of(payload)).next();
    let error = code(kind::GOAWAY).is_some() || code(kind::RST_STREAM).is_some();
    match expect {
        GoAway(codes) => {
            sent.last().is_some_and(|(header, _)| header.kind == kind::GOAWAY)
                && code(kind::GOAWAY).is_some_and(|code| codes.contains(&code))
        }
        Expect::Error(codes) => {
            [code(kind::GOAWAY), code(kind::RST_STREAM)]
                .into_iter()
                .flatten()
                .all(|code| codes.contains(&code))
                && error
        }
        Answer(id) => !error && of(kind::HEADERS).any(|(header, _)| header.stream == *id),
        Pong(octets) => {
            let mut pongs = of(kind::PING);
            let right =
                |(header, payload): &(Header, &[u8])| header.has(flag::ACK) && payload == octets;
            !error && pongs.next().is_some_and(right) && pongs.next().is_none()
        }
        Acks(count) => {
            !error && of(kind::SETTINGS).filter(|(h, _)| h.has(flag::ACK)).count() == *count
        }
        Expect::Settings => {
            !error && sent.first().is_some_and(|(h, _)| h.kind == kind::SETTINGS && h.flags == 0)
        }
        Data(len) => !error && of(kind::DATA).next().is_some_and(|(h, _)| h.len == *len),
    }
}

fn all_pass(cases: Vec<Case>, count: usize) {
    assert_eq!(cases.len(), count);
    for case in cases {
        let whole = run(&case, usize::MAX);
        let sent = frames(&whole);
        assert!(passes(&case.expect, &sent), "{}: {sent:x?}", case.name);
        assert_eq!(run(&case, 1), whole, "{}: octet by octet", case.name);
    }
}

#[test]
fn cases_of_sections_3_to_5() {
    all_pass(http2_1_to_5(), 32);
    let mut server = End::server();
    let error = server.receive(b"INVALID CONNECTION PREFACE\r\n\r\n").unwrap_err();
    assert_eq!(error.code, Code::PROTOCOL_ERROR, "http2/3.5/2: Sends invalid connection preface");
}

#[test]
fn cases_of_section_6() {
    all_pass(http2_6(), 42);
}

#[test]
fn cases_of_sections_7_and_8() {
    all_pass(http2_7_and_8(), 20);
}

#[test]
fn cases_of_group_generic() {
    all_pass(generic(), 29);
    all_pass(generic_hpack(), 15);
}

#[test]
fn cases_of_group_hpack() {
    all_pass(hpack(), 8);
}

#[test]
fn a_window_that_was_negative_is_filled_exactly() {
    // The rest of http2/6.9.2/2: three octets, then one.
    let window_of = |octets| settings(&[(setting::INITIAL_WINDOW_SIZE, octets)]);
    let steps = vec![window_of(3), get(), window_of(2), window(1, 2)];
    let out = run(&Case { name: "", steps, expect: Data(3) }, usize::MAX);
    let lens = frames(&out).into_iter().filter(|(h, _)| h.kind == kind::DATA).map(|(h, _)| h.len);
    assert_eq!(lens.collect::<Vec<_>>(), [3, 1]);
}
