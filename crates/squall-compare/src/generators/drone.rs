//! Controls Ostinato's drone without its GUI. Only the few messages that a stream needs are
//! implemented, encoded by hand.
//!
//! A message has a header (type, method and length, big endian) and a body in the encoding of
//! Protocol Buffers. Field numbers are those of the `.proto` files of Ostinato 1.2.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use super::wire::{self, Frame};

const PORT: u16 = 7878;
const VERSION: &str = "1.2.0";
/// Maximum wait for drone to listen: it first lists the interfaces of the machine.
const START: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(10);
/// Maximum length of the body of an answer, octets.
const LONGEST: u32 = 1 << 20;

// Message types.
const REQUEST: u16 = 1;
const ERROR: u16 = 4;
const NOTIFICATION: u16 = 5;

/// Methods, numbered by their position in the service definition.
#[derive(Clone, Copy, Debug)]
enum Method {
    GetPortIdList = 0,
    GetPortConfig = 1,
    AddStream = 5,
    ModifyStream = 7,
    StartTransmit = 8,
    CheckVersion = 15,
    Build = 27,
}

// Protocol numbers of the layers of a stream.
const MAC: u64 = 100;
const ETHERNET_2: u64 = 200;
const IPV4: u64 = 301;
const UDP: u64 = 401;
const PAYLOAD: u64 = 101;

/// Number of frames after which drone starts the stream again. Its pace continues across that.
const FRAMES: u64 = 1000;
/// Action after the last frame: continue with the first stream.
const GO_TO_FIRST: u64 = 2;

/// Once drone listens on the loopback address, starts to send `frame` from `interface` in a loop,
/// at `pps` or as fast as possible.
///
/// # Errors
///
/// The reason, as text.
pub fn transmit(interface: &str, frame: &Frame, pps: Option<f64>) -> Result<(), String> {
    let mut drone = Drone { socket: connect().map_err(|e| format!("drone: {e}"))? };
    drone.call(Method::CheckVersion, &[text(1, VERSION), text(2, "squall")].concat())?;
    let port = message(1, &number(1, drone.port(interface)?));
    drone.call(Method::AddStream, &[port.clone(), message(2, &number(1, 0))].concat())?;
    let stream = stream(frame, pps.unwrap_or(0.0));
    drone.call(Method::ModifyStream, &[port.clone(), message(2, &stream)].concat())?;
    drone.call(Method::Build, &port)?;
    drone.call(Method::StartTransmit, &port)?;
    Ok(())
}

fn connect() -> std::io::Result<TcpStream> {
    let started = Instant::now();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    loop {
        match TcpStream::connect_timeout(&address, ANSWER) {
            Ok(socket) => {
                socket.set_read_timeout(Some(ANSWER))?;
                return Ok(socket);
            }
            Err(error) if started.elapsed() > START => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

struct Drone {
    socket: TcpStream,
}

impl Drone {
    /// Number of drone's port for an interface.
    fn port(&mut self, interface: &str) -> Result<u64, String> {
        let ids = self.call(Method::GetPortIdList, &[])?;
        let ports = self.call(Method::GetPortConfig, &ids)?;
        let found = fields(&ports).find_map(|(_, port)| {
            let Field::Octets(port) = port else { return None };
            let name = fields(port).any(|field| field == (2, Field::Octets(interface.as_bytes())));
            let id = fields(port).find_map(|(number, field)| match field {
                Field::Octets(id) if number == 1 => fields(id).next(),
                _ => None,
            });
            match id {
                Some((1, Field::Number(id))) if name => Some(id),
                _ => None,
            }
        });
        found.ok_or_else(|| format!("drone has no port {interface}"))
    }

    fn call(&mut self, method: Method, body: &[u8]) -> Result<Vec<u8>, String> {
        self.exchange(method, body).map_err(|error| format!("drone: {method:?}: {error}"))
    }

    fn exchange(&mut self, method: Method, body: &[u8]) -> Result<Vec<u8>, String> {
        let io = |error: std::io::Error| error.to_string();
        let mut request = [REQUEST.to_be_bytes(), (method as u16).to_be_bytes()].concat();
        request.extend((body.len() as u32).to_be_bytes());
        request.extend(body);
        self.socket.write_all(&request).map_err(io)?;
        loop {
            let mut header = [0; 8];
            self.socket.read_exact(&mut header).map_err(io)?;
            let [k0, k1, _, _, rest @ ..] = header;
            let length = u32::from_be_bytes(rest);
            if length > LONGEST {
                return Err(format!("an answer of {length} octets"));
            }
            let mut body = vec![0; length as usize];
            self.socket.read_exact(&mut body).map_err(io)?;
            match u16::from_be_bytes([k0, k1]) {
                ERROR => return Err(String::from_utf8_lossy(&body).trim().to_owned()),
                NOTIFICATION => {}
                _ => return Ok(body),
            }
        }
    }
}

/// The stream that sends a frame. 0 packets per second: as fast as possible.
fn stream(frame: &Frame, pps: f64) -> Vec<u8> {
    let with_fcs = u64::from(frame.octets + squall_units::FCS_LEN);
    let (enabled, ordinal, fixed_length) = (number(2, 1), number(3, 0), number(14, 0));
    let core = [text(1, "squall"), enabled, ordinal, fixed_length, number(15, with_fcs)].concat();
    let (packets, fixed) = (number(1, 0), number(2, 0));
    let next = [number(3, FRAMES), number(6, GO_TO_FIRST)].concat();
    let control = [packets, fixed, next, double(9, pps)].concat();
    let mac = |text: &str| {
        text.split(':').fold(0, |all, octet| {
            all << 8 | u64::from_str_radix(octet, 16).expect("a MAC address of the lab")
        })
    };
    let ip = |text: &str| text.parse::<Ipv4Addr>().expect("an address of the lab").to_bits();
    let (source, destination) = (number(5, mac(wire::MACS[0])), number(1, mac(wire::MACS[1])));
    let macs = [destination, number(2, 0), source, number(6, 0)].concat();
    let [from, to] = wire::ADDRESSES.map(ip);
    [
        message(1, &number(1, 0)),
        message(2, &core),
        message(3, &control),
        layer(MAC, &macs),
        layer(ETHERNET_2, &[]),
        layer(IPV4, &[fixed32(14, from), fixed32(18, to)].concat()),
        layer(UDP, &[]),
        layer(PAYLOAD, &[]),
    ]
    .concat()
}

fn layer(protocol: u64, fields: &[u8]) -> Vec<u8> {
    message(4, &[message(1, &number(1, protocol)), message(protocol, fields)].concat())
}

fn varint(mut n: u64) -> Vec<u8> {
    let mut octets = Vec::new();
    while n >= 0x80 {
        octets.push(n as u8 | 0x80);
        n >>= 7;
    }
    octets.push(n as u8);
    octets
}

fn number(field: u64, n: u64) -> Vec<u8> {
    [varint(field << 3), varint(n)].concat()
}

fn message(field: u64, body: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(body.len() as u64), body.to_vec()].concat()
}

fn text(field: u64, text: &str) -> Vec<u8> {
    message(field, text.as_bytes())
}

fn double(field: u64, x: f64) -> Vec<u8> {
    [varint(field << 3 | 1), x.to_le_bytes().to_vec()].concat()
}

fn fixed32(field: u64, n: u32) -> Vec<u8> {
    [varint(field << 3 | 5), n.to_le_bytes().to_vec()].concat()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Field<'a> {
    Number(u64),
    Octets(&'a [u8]),
}

/// The fields of a message, up to its end or the first truncated field.
fn fields(body: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    let mut rest = body;
    std::iter::from_fn(move || {
        let key = take_varint(&mut rest)?;
        let field = match key & 7 {
            0 => Field::Number(take_varint(&mut rest)?),
            kind => {
                let length = match kind {
                    1 => 8,
                    5 => 4,
                    _ => take_varint(&mut rest)?,
                };
                let (octets, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                rest = after;
                Field::Octets(octets)
            }
        };
        Some((key >> 3, field))
    })
}

fn take_varint(octets: &mut &[u8]) -> Option<u64> {
    let mut n = 0;
    for shift in (0..64).step_by(7) {
        let (octet, after) = octets.split_first()?;
        *octets = after;
        n |= u64::from(octet & 0x7f) << shift;
        if *octet < 0x80 {
            return Some(n);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_were_written() {
        let body = [number(1, 300), text(2, "veth-a"), double(9, 1.5), fixed32(14, 7)].concat();
        // The first field has the example of the documentation of Protocol Buffers: 300 is AC 02.
        assert_eq!(body[..3], [0x08, 0xac, 0x02]);
        let read: Vec<_> = fields(&body).collect();
        assert_eq!(
            read,
            [
                (1, Field::Number(300)),
                (2, Field::Octets(b"veth-a")),
                (9, Field::Octets(&1.5_f64.to_le_bytes())),
                (14, Field::Octets(&[7, 0, 0, 0])),
            ]
        );
    }

    #[test]
    fn a_message_that_is_cut_off_ends() {
        let body = [number(1, 300), text(2, "veth-a")].concat();
        for length in 0..body.len() {
            assert!(fields(&body[..length]).count() < 2, "{length}");
        }
        assert_eq!(fields(&[0xff; 20]).count(), 0);
    }

    #[test]
    fn a_stream_has_the_frames_length_with_fcs_and_its_rate() {
        let frame =
            Frame { octets: 512, packet: "eth".into(), capture: "c".into(), config: "d".into() };
        let stream = stream(&frame, 1000.0);
        let part = |wanted| {
            fields(&stream).find_map(|(n, field)| match field {
                Field::Octets(octets) if n == wanted => Some(octets),
                _ => None,
            })
        };
        assert!(fields(part(2).unwrap()).any(|field| field == (15, Field::Number(516))));
        let rate = 1000.0_f64.to_le_bytes();
        assert!(fields(part(3).unwrap()).any(|field| field == (9, Field::Octets(&rate))));
    }
}
