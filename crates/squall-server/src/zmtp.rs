//! ZMTP 3, the protocol of ZeroMQ (rfc.zeromq.org/spec/37), limited to the needs of a server for
//! requests and events: the NULL mechanism, REP and PUB sockets, heartbeats.
//!
//! Squall does not use a ZeroMQ library, because access is decided by the peer of each connection,
//! and the sockets of these libraries merge all peers.

use bytes::{Buf, Bytes, BytesMut};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Length of a greeting in octets: signature, version, mechanism, as-server, filler.
const GREETING: usize = 64;
const VERSION: [u8; 2] = [3, 1];
/// The NULL mechanism, because access is decided by the peer's user, whom the kernel identifies.
const MECHANISM: &[u8; 20] = b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

// Flags of a frame (ZeroMQ RFC 37); the other bits must be 0.
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Maximum number of frames of a message: one for the client, and one for each router on the path.
const FRAMES: usize = 64;
/// Maximum size of a command, in octets: enough for a handshake, a heartbeat or a subscription.
const COMMAND_OCTETS: usize = 4 << 10;

/// The socket type of this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Replies to requests.
    Rep,
    /// Sends events to subscribers.
    Pub,
}

impl Role {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Rep => b"REP",
            Self::Pub => b"PUB",
        }
    }

    fn peers(self) -> [&'static [u8]; 2] {
        match self {
            Self::Rep => [b"REQ", b"DEALER"],
            Self::Pub => [b"SUB", b"XSUB"],
        }
    }
}

/// A received message or command.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// All frames of a message.
    Message(Vec<Bytes>),
    Command {
        name: Bytes,
        data: Bytes,
    },
}

#[derive(Debug, PartialEq, Eq)]
struct Frame {
    flags: u8,
    body: Bytes,
}

/// A connection after its handshake.
pub struct Zmtp<S> {
    stream: S,
    read: BytesMut,
    /// Frames of an incomplete message.
    frames: Vec<Bytes>,
    /// Maximum size of a message, in octets.
    most: usize,
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl<S: AsyncRead + AsyncWrite + Unpin> Zmtp<S> {
    /// Performs the handshake. Messages may have up to `most` octets afterward.
    ///
    /// # Errors
    /// If the peer uses another protocol, version or mechanism, or its socket type does not fit the
    /// role.
    pub async fn open(stream: S, role: Role, most: usize) -> io::Result<Self> {
        let mut zmtp = Self { stream, read: BytesMut::new(), frames: Vec::new(), most };
        zmtp.stream.write_all(&greeting()).await?;
        while zmtp.read.len() < GREETING {
            check_greeting(&zmtp.read)?;
            zmtp.more().await?;
        }
        check_greeting(&zmtp.read.split_to(GREETING))?;
        let ready = [b"\x05READY", &property(b"Socket-Type", role.name())[..]].concat();
        zmtp.write(&[(COMMAND, &ready)]).await?;
        match zmtp.next().await? {
            Incoming::Command { name, data } if name == b"READY"[..] => {
                let kind = value_of(&data, b"socket-type").unwrap_or_default();
                if !role.peers().contains(&kind) {
                    let why = "this address is for another type of socket";
                    let error = [&b"\x05ERROR"[..], &[why.len() as u8], why.as_bytes()].concat();
                    zmtp.write(&[(COMMAND, &error)]).await?;
                    return Err(wrong(why));
                }
                Ok(zmtp)
            }
            _ => Err(wrong("expected READY")),
        }
    }

    /// The next message or command. Safe to cancel, because received data stays in the buffer.
    ///
    /// # Errors
    /// If the connection ends, the data is not ZMTP, or a message is too long.
    pub async fn next(&mut self) -> io::Result<Incoming> {
        loop {
            let held = self.frames.iter().map(Bytes::len).sum::<usize>();
            let Some(frame) = split(&mut self.read, self.most - held)? else {
                self.more().await?;
                continue;
            };
            if frame.flags & COMMAND != 0 {
                return command(frame.body);
            }
            self.frames.push(frame.body);
            if frame.flags & MORE == 0 {
                return Ok(Incoming::Message(std::mem::take(&mut self.frames)));
            }
            if self.frames.len() == FRAMES {
                return Err(wrong(format!("a message of more than {FRAMES} frames")));
            }
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Errors of the connection.
    pub async fn send(&mut self, frames: &[&[u8]]) -> io::Result<()> {
        let last = frames.len().saturating_sub(1);
        let frames: Vec<_> = frames
            .iter()
            .enumerate()
            .map(|(i, frame)| (if i < last { MORE } else { 0 }, *frame))
            .collect();
        self.write(&frames).await
    }

    /// Replies to `PING`. `data` is a time to live, and a context to return.
    ///
    /// # Errors
    /// Errors of the connection.
    pub async fn pong(&mut self, data: &[u8]) -> io::Result<()> {
        let context = data.get(2..).unwrap_or_default();
        self.write(&[(COMMAND, &[b"\x04PONG", context].concat())]).await
    }

    async fn write(&mut self, frames: &[(u8, &[u8])]) -> io::Result<()> {
        let mut octets = Vec::new();
        for (flags, body) in frames {
            match u8::try_from(body.len()) {
                Ok(length) => octets.extend([*flags, length]),
                Err(_) => {
                    octets.push(flags | LONG);
                    octets.extend((body.len() as u64).to_be_bytes());
                }
            }
            octets.extend_from_slice(body);
        }
        self.stream.write_all(&octets).await?;
        self.stream.flush().await
    }

    async fn more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

fn greeting() -> [u8; GREETING] {
    let mut greeting = [0; GREETING];
    // The signature, by which peers reject other protocols (ZeroMQ RFC 37).
    (greeting[0], greeting[9]) = (0xff, 0x7f);
    greeting[10..12].copy_from_slice(&VERSION);
    greeting[12..32].copy_from_slice(MECHANISM);
    greeting
}

/// Checks the part of a greeting that has arrived so far, because a peer with another protocol may
/// wait without sending the rest.
fn check_greeting(octets: &[u8]) -> io::Result<()> {
    let at = |i: usize| octets.get(i).copied();
    if at(0).is_some_and(|first| first != 0xff) || at(9).is_some_and(|last| last & 1 == 0) {
        return Err(wrong("not ZMTP"));
    }
    if at(10).is_some_and(|version| version < VERSION[0]) {
        return Err(wrong("a version before 3 (ZeroMQ 4.0)"));
    }
    match octets.get(12..32) {
        Some(mechanism) if mechanism != MECHANISM => Err(wrong("another mechanism than NULL")),
        _ => Ok(()),
    }
}

fn property(name: &[u8], value: &[u8]) -> Vec<u8> {
    let length = (value.len() as u32).to_be_bytes();
    [&[name.len() as u8], name, &length, value].concat()
}

/// The value of a property in a handshake. Names are compared without regard to case (ZeroMQ RFC
/// 37).
fn value_of<'a>(mut properties: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    loop {
        let (&length, rest) = properties.split_first()?;
        let (name, rest) = rest.split_at_checked(length.into())?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        properties = rest;
    }
}

fn command(mut body: Bytes) -> io::Result<Incoming> {
    let length = usize::from(*body.first().ok_or_else(|| wrong("a command without a name"))?);
    body.advance(1);
    if body.len() < length {
        return Err(wrong("a command that ends in its name"));
    }
    let name = body.split_to(length);
    Ok(Incoming::Command { name, data: body })
}

/// The first frame, if it is complete. Its body may have at most `most` octets.
fn split(octets: &mut BytesMut, most: usize) -> io::Result<Option<Frame>> {
    let Some(&flags) = octets.first() else { return Ok(None) };
    if flags & !(MORE | LONG | COMMAND) != 0 || flags & (MORE | COMMAND) == MORE | COMMAND {
        return Err(wrong(format!("a frame with flags {flags:#x}")));
    }
    let (length, header) = match flags & LONG {
        0 => match octets.get(1) {
            Some(&length) => (u64::from(length), 2),
            None => return Ok(None),
        },
        _ => match octets.get(1..).and_then(|rest| rest.first_chunk()) {
            Some(length) => (u64::from_be_bytes(*length), 9),
            None => return Ok(None),
        },
    };
    let most = if flags & COMMAND != 0 { COMMAND_OCTETS } else { most };
    let length = usize::try_from(length).ok().filter(|length| *length <= most);
    let length = length.ok_or_else(|| wrong(format!("a frame of more than {most} octets")))?;
    if octets.len() < header + length {
        // Reserve at most 1 MiB at a time, so that an announced length alone allocates nothing.
        octets.reserve((header + length - octets.len()).min(1 << 20));
        return Ok(None);
    }
    octets.advance(header);
    Ok(Some(Frame { flags, body: octets.split_to(length).freeze() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sends a client's octets. Returns the server's result and the octets that the server sent.
    async fn handshake(kind: &[u8]) -> (io::Result<Zmtp<tokio::io::DuplexStream>>, Vec<u8>) {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let ready = [b"\x05READY", &property(b"Socket-Type", kind)[..]].concat();
        let sent = [&greeting()[..], &[COMMAND, ready.len() as u8], &ready].concat();
        client.write_all(&sent).await.expect("it is read");
        let opened = Zmtp::open(server, Role::Rep, 1000).await;
        let mut octets = vec![0; 1 << 16];
        let length = client.read(&mut octets).await.expect("an answer");
        octets.truncate(length);
        // Keep the client's end open, because the test continues with the server's end.
        std::mem::forget(client);
        (opened, octets)
    }

    #[tokio::test]
    async fn a_request_socket_is_let_in_and_another_hears_why_it_is_not() {
        let (opened, answer) = handshake(b"REQ").await;
        assert!(opened.is_ok());
        // ZeroMQ RFC 37: signature, version 3.1, NULL, then a READY command.
        assert_eq!(&answer[..12], b"\xff\0\0\0\0\0\0\0\0\x7f\x03\x01");
        assert_eq!(&answer[12..16], b"NULL");
        assert_eq!(&answer[64..], b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03REP");
        let (opened, answer) = handshake(b"PUSH").await;
        assert!(opened.is_err());
        assert!(String::from_utf8_lossy(&answer).contains("another type of socket"));
    }

    #[test]
    fn other_protocols_are_known_by_their_first_octets() {
        for (octets, sound) in [
            (&b""[..], true),
            (b"\xff\0\0\0", true),
            (&greeting(), true),
            (b"GET / HTTP/1.1\r\n", false),
            // ZeroMQ 3.2.
            (b"\xff\0\0\0\0\0\0\0\x01\x7f\x01", false),
        ] {
            assert_eq!(check_greeting(octets).is_ok(), sound, "{octets:?}");
        }
        let mut plain = greeting();
        plain[12..17].copy_from_slice(b"PLAIN");
        assert!(check_greeting(&plain).is_err());
    }

    proptest! {
        #[test]
        fn frames_are_the_same_however_they_arrive(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 1..5),
            piece in 1usize..700,
        ) {
            let mut octets = Vec::new();
            for body in &bodies {
                match u8::try_from(body.len()) {
                    Ok(length) => octets.extend([MORE, length]),
                    Err(_) => {
                        octets.push(MORE | LONG);
                        octets.extend((body.len() as u64).to_be_bytes());
                    }
                }
                octets.extend(body);
            }
            let (mut buffer, mut found) = (BytesMut::new(), Vec::new());
            for piece in octets.chunks(piece) {
                buffer.extend_from_slice(piece);
                while let Some(frame) = split(&mut buffer, 600).expect("sound") {
                    found.push(frame.body.to_vec());
                }
            }
            prop_assert_eq!(found, bodies);
            prop_assert!(buffer.is_empty());
        }

        #[test]
        fn no_octets_make_it_panic_or_hold_more_than_they_are(
            octets in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut buffer = BytesMut::from(&octets[..]);
            while let Ok(Some(frame)) = split(&mut buffer, 100) {
                prop_assert!(frame.body.len() <= COMMAND_OCTETS);
                _ = command(frame.body);
            }
            _ = (value_of(&octets, b"identity"), check_greeting(&octets));
        }
    }
}
