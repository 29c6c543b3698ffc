//! gRPC over streams of HTTP/2: a call is a stream. `apps/grpc.rs` runs the instructions.

mod frame;
mod status;

use std::fmt::Write;

use squall_http::h2::{Code, Fields, Head};
use squall_units::Nanos;

pub use frame::{Reader, Violation, header};
pub use status::{Status, Statuses};

use crate::{Message, MessageError, Mistake, Part};

/// Names of the counters of a program with gRPC, in order of their numbers: messages, and calls by
/// the number of their status.
pub(crate) const COUNTERS: [&str; 2 + Status::NAMES.len()] = [
    "grpc_messages_sent",
    "grpc_messages_received",
    "grpc_ok",
    "grpc_cancelled",
    "grpc_unknown",
    "grpc_invalid_argument",
    "grpc_deadline_exceeded",
    "grpc_not_found",
    "grpc_already_exists",
    "grpc_permission_denied",
    "grpc_resource_exhausted",
    "grpc_failed_precondition",
    "grpc_aborted",
    "grpc_out_of_range",
    "grpc_unimplemented",
    "grpc_internal",
    "grpc_unavailable",
    "grpc_data_loss",
    "grpc_unauthenticated",
];
pub(crate) const SENT: u16 = 0;
pub(crate) const RECEIVED: u16 = 1;

/// The counter of calls with this status.
pub(crate) fn counter_of(status: Status) -> u16 {
    2 + u16::from(status.number())
}

/// Input of a stream.
pub(crate) enum Incoming<'a> {
    Head(&'a Head<'a>),
    /// `end`: the end of the stream follows.
    Data {
        octets: &'a [u8],
        end: bool,
    },
    /// The server has ended the stream.
    End,
    /// The server has reset the stream.
    Reset(Code),
}

/// The call of a stream, in addition to the record of its lane.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Call {
    pub stage: Stage,
    pub reader: Reader,
    /// Messages that have arrived and that no instruction has taken.
    pub messages: u32,
    /// When the client ends the call, on the timer clock.
    pub deadline: Option<Nanos>,
    /// The status in the answer's head, and that of its trailers.
    pub http_status: u16,
    pub status: Option<Status>,
    /// Whether the answer is not that of gRPC, but a page of a proxy.
    pub foreign: bool,
    /// Whether the call ended before the messages that the client waited for.
    pub short: bool,
    /// How the server answers: an index of [`crate::code::AcceptOf`].
    pub accept: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No call has begun.
    #[default]
    Idle,
    /// The request's head was sent, or was accepted.
    Open,
    /// The head of the answer was sent (servers).
    Answering,
    Over,
}

/// Whether the content of a message is that of gRPC.
pub(crate) fn is_grpc(fields: Fields<'_>) -> bool {
    let kind = fields.get(b"content-type").and_then(|kind| kind.strip_prefix(CONTENT_TYPE));
    kind.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

const CONTENT_TYPE: &[u8] = b"application/grpc";

/// The head of a call's request, without the fields that `metadata` replaces.
///
/// # Errors
/// If `target` is no path, if `metadata` has a field that belongs to the call, or a line of it is
/// no field.
pub(crate) fn request(
    target: &Message,
    metadata: Option<&Message>,
    deadline: Option<Nanos>,
) -> Result<Message, Mistake> {
    if !matches!(target.parts.first(), Some(Part::Octets(path)) if path.starts_with(b"/")) {
        return Err(Mistake::Syntax {
            found: target.to_string(),
            expected: "a path: /package.Service/Method",
            hint: "grpc_call \"/squall.Test/Call\"",
        });
    }
    let names = metadata.map(field_names).unwrap_or_default();
    let own = ["te", "grpc-timeout", "content-length", "transfer-encoding", "connection"];
    if let Some(found) = names.iter().find(|name| own.contains(&&*name.to_ascii_lowercase())) {
        return Err(Mistake::FieldOfCall { found: found.clone() });
    }
    let mut head = String::from(" HTTP/1.1\\r\\n");
    for (name, value) in [
        ("Host", "${server}"),
        ("TE", "trailers"),
        ("Content-Type", "application/grpc"),
        ("User-Agent", "grpc-squall"),
    ] {
        if !names.iter().any(|of| of.eq_ignore_ascii_case(name)) {
            // Writing to a String cannot fail.
            let _ = write!(head, "{name}: {value}\\r\\n");
        }
    }
    if let Some(deadline) = deadline {
        let _ = write!(head, "grpc-timeout: {}\\r\\n", timeout(deadline));
    }
    Ok(Message::octets(*b"POST ")
        .then(target.clone())
        .then(head.parse()?)
        .then(metadata.cloned().unwrap_or_default())
        .then(Message::octets(*b"\r\n"))
        .joined())
}

/// Names of the fields in `fields`, whose values may have marks.
pub(crate) fn field_names(fields: &Message) -> Vec<String> {
    let octets = fields.parts.iter().flat_map(|part| match part {
        Part::Octets(octets) => &octets[..],
        _ => b"?",
    });
    let octets: Vec<u8> = octets.copied().collect();
    let name = |line: &[u8]| Some(str::from_utf8(line).ok()?.split_once(':')?.0.trim().to_owned());
    octets.split(|octet| *octet == b'\n').filter_map(name).collect()
}

/// The value of `grpc-timeout`: at most 8 digits and a unit. A fraction of a unit is rounded up.
fn timeout(time: Nanos) -> String {
    const MOST: u64 = 99_999_999;
    let units = [("n", 1), ("u", 1_000), ("m", 1_000_000), ("S", 1_000_000_000)];
    let (unit, size) =
        *units.iter().find(|(_, size)| time.0.div_ceil(*size) <= MOST).unwrap_or(&units[3]);
    format!("{}{unit}", time.0.div_ceil(size).min(MOST))
}

/// The field with the text of a status; its value is percent-encoded.
fn text_field(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let mut field = String::from("grpc-message: ");
    for octet in text.bytes() {
        match octet {
            b' '..=b'~' if octet != b'%' => field.push(octet.into()),
            _ => {
                let _ = write!(field, "%{octet:02X}");
            }
        }
    }
    field + "\r\n"
}

/// The head of an answer.
pub(crate) fn answer() -> Message {
    Message::octets(*b"HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\n\r\n")
}

/// The fields after the messages of an answer.
pub(crate) fn trailers(status: Status, text: &str) -> Message {
    let fields = format!("grpc-status: {}\r\n{}\r\n", status.number(), text_field(text));
    Message::octets(fields.into_bytes())
}

/// An answer without messages, whose head has the status.
pub(crate) fn only_status(status: Status, text: &str) -> Message {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\ngrpc-status: {}\r\n{}\r\n",
        status.number(),
        text_field(text)
    );
    Message::octets(head.into_bytes())
}

/// The answer to a request that is not a call.
pub(crate) fn unsupported() -> Message {
    Message::octets(*b"HTTP/1.1 415 Unsupported Media Type\r\nContent-Length: 0\r\n\r\n")
}

/// A message with the header of its frame.
///
/// # Errors
/// If its length differs from flow to flow.
pub(crate) fn framed(message: &Message) -> Result<Message, Mistake> {
    let len = message.fixed_len().ok_or(Mistake::GrpcLength)?;
    let len = u32::try_from(len).map_err(|_| MessageError::OutOfRange {
        what: "its length",
        found: len,
        expected: "less than 4 GiB",
    })?;
    Ok(Message::octets(header(len)).then(message.clone()).joined())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_have_at_most_eight_digits() {
        for (nanos, expected) in [
            (1, "1n"),
            (99_999_999, "99999999n"),
            (100_000_000, "100000u"),
            (100_000_001, "100001u"),
            (3_600_000_000_000, "3600000m"),
            (86_400_000_000_000, "86400000m"),
            (200_000_000_000_001, "200001S"),
        ] {
            assert_eq!(timeout(Nanos(nanos)), expected);
        }
    }

    #[test]
    fn texts_of_statuses_are_percent_encoded() {
        let text = "\t\ntest with whitespace\r\nand Unicode BMP ☺ 100 %\t\n";
        let expected = "grpc-message: %09%0Atest with whitespace%0D%0Aand Unicode BMP %E2%98%BA 100 \
                        %25%09%0A\r\n";
        assert_eq!(text_field(text), expected);
        assert_eq!(text_field(""), "");
    }

    #[test]
    fn fields_of_the_user_replace_those_of_requests() {
        let of = |target: &str, fields: &str| {
            let (target, fields) = (target.parse().expect("text"), fields.parse().expect("text"));
            request(&target, Some(&fields), Some(Nanos(1_500_000))).map(|head| head.to_string())
        };
        let head = of("/a.B/C", r"HOST: a\r\nX-Id: ${flow:3}\r\n").expect("right");
        let expected = concat!(
            r"POST /a.B/C HTTP/1.1\r\nTE: trailers\r\nContent-Type: application/grpc\r\n",
            r"User-Agent: grpc-squall\r\ngrpc-timeout: 1500000n\r\nHOST: a\r\n",
            r"X-Id: ${flow:3}\r\n\r\n"
        );
        assert_eq!(head, expected);
        for (target, fields, error) in
            [("a.B/C", "", "a path"), ("/a.B/C", r"grpc-timeout: 1S\r\n", "grpc-timeout")]
        {
            let found = of(target, fields).expect_err(error).to_string();
            assert!(found.contains(error), "{found}");
        }
    }
}
