//! Scans, floods, brute force and beacons: turns parameters into conversations with times.
//!
//! They do not come from rules, so their labels have sid 0 and the template's name. A flood is also
//! available as the text of a single packet, for streams at rates that separate conversations
//! cannot reach. Both forms are made from the same exchange.
//!
//! ```
//! use squall_attacks::templates::{Parameters, named};
//! use squall_units::Nanos;
//!
//! let scan = named("syn-scan").unwrap();
//! let parameters = Parameters {
//!     clients: vec!["198.18.0.9".parse().unwrap()],
//!     servers: vec!["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()],
//!     ports: vec![22, 80],
//!     ..scan.usual()
//! };
//! let events: Vec<_> = scan.events(&parameters).unwrap().collect();
//! assert_eq!(events.len(), 4);
//! assert_eq!(events[1].at, Nanos(10_000_000));
//! ```

use std::net::IpAddr;

use squall_rules::End;
use squall_units::{Nanos, below, mix};
use squall_wire::{
    Packet,
    tcp_flags::{ACK, FIN, PSH, RST, SYN, URG},
};

use crate::{
    Exchange, Label, Octets, Origin, Shape, Transport, Turn,
    labels::Kind,
    solve::transform::base64,
    wire::{self, Endpoints, Settings},
};

/// The category of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Scan,
    Flood,
    BruteForce,
    Beacon,
}

/// A template of [`TEMPLATES`] or [`BEACONS`].
#[derive(Clone, Copy, Debug)]
pub struct Template {
    pub name: &'static str,
    pub class: Class,
    pub description: &'static str,
    /// Default TCP or UDP ports. Empty if the protocol has none.
    pub ports: &'static [u16],
    /// Default time from one conversation to the next.
    pub gap: Nanos,
    make: fn(&Parameters, u64) -> Vec<Turn>,
    transport: Transport,
}

/// Hosts, number and times of conversations.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Hosts that send, used in turn. For `dns-amplification`, the victims.
    pub clients: Vec<IpAddr>,
    /// Hosts that are attacked, used in turn. For `dns-amplification`, the servers that answer.
    pub servers: Vec<IpAddr>,
    pub ports: Vec<u16>,
    /// Time from one conversation to the next.
    pub gap: Nanos,
    /// Maximum random deviation of each conversation's start, in percent of the gap.
    pub jitter: u8,
    /// Number of conversations. `None`: for scans, each port of each server once; for others, 100.
    pub count: Option<u64>,
    /// Octets of a flood's payload, at most 1400.
    pub payload: u16,
    /// Seed for client ports, names, payloads and jitter.
    pub seed: u64,
}

/// A conversation with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Time from the start of the first conversation.
    pub at: Nanos,
    pub ends: Endpoints,
    pub exchange: Exchange,
    pub name: &'static str,
}

/// The reason why parameters are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

const MS: u64 = 1_000_000;

/// All templates except beacons, in the order of the documentation.
pub static TEMPLATES: [Template; 15] = [
    scan("syn-scan", "a SYN to each port of each server; answered by a RST", syn_scan),
    scan("fin-scan", "a FIN to each port of each server; answered by a RST", |_, _| probe(FIN)),
    scan(
        "null-scan",
        "a segment without flags to each port of each server; answered by a RST",
        |_, _| probe(0),
    ),
    scan("xmas-scan", "FIN, PSH and URG to each port of each server; answered by a RST", |_, _| {
        probe(FIN | PSH | URG)
    }),
    Template {
        name: "udp-scan",
        class: Class::Scan,
        description: "an empty datagram to each port of each server, unanswered",
        ports: &[53, 69, 123, 137, 161, 500, 514, 1434, 1900, 5353],
        gap: Nanos(10 * MS),
        make: |_, _| vec![Turn::new(End::Client, Octets::new())],
        transport: Transport::Udp,
    },
    Template {
        name: "ping-sweep",
        class: Class::Scan,
        description: "an echo request to each server, which is answered",
        ports: &[],
        gap: Nanos(10 * MS),
        make: |_, n| {
            let payload: Vec<u8> = (b'a'..=b'w').chain(b'a'..=b'i').collect();
            let echo = |from| {
                let shape =
                    Shape { icmp_sequence: Some((n as u16).wrapping_add(1)), ..Shape::default() };
                Turn { shape, ..turn(from, &payload) }
            };
            vec![echo(End::Client), echo(End::Server)]
        },
        transport: Transport::Icmp,
    },
    flood(
        "syn-flood",
        "SYNs from changing client ports, unanswered",
        &[80],
        Transport::Segments,
        |p, n| vec![segment(End::Client, SYN, p.seed, n)],
    ),
    flood(
        "ack-flood",
        "ACKs without a connection, from changing client ports",
        &[80],
        Transport::Segments,
        |p, n| vec![segment(End::Client, ACK, p.seed, n)],
    ),
    flood(
        "udp-flood",
        "datagrams from changing client ports, unanswered",
        &[9],
        Transport::Udp,
        |p, n| vec![turn(End::Client, &noise(p, n))],
    ),
    flood("icmp-flood", "echo requests, unanswered", &[], Transport::Icmp, |p, n| {
        let shape = Shape { icmp_sequence: Some(n as u16), ..Shape::default() };
        vec![Turn { shape, ..turn(End::Client, &noise(p, n)) }]
    }),
    flood(
        "dns-amplification",
        "long answers from DNS servers to questions that the client did not ask",
        &[53],
        Transport::Udp,
        |p, n| vec![turn(End::Server, &dns_answer(mix(p.seed, n)))],
    ),
    Template {
        name: "ssh-brute-force",
        class: Class::BruteForce,
        description: "SSH connections that exchange versions and key methods, and end; no password is \
               visible",
        ports: &[22],
        gap: Nanos(500 * MS),
        make: ssh,
        transport: Transport::Tcp,
    },
    Template {
        name: "ftp-brute-force",
        class: Class::BruteForce,
        description: "FTP sessions, each with a different password, which is refused",
        ports: &[21],
        gap: Nanos(500 * MS),
        make: |p, n| {
            let (user, password) = credentials(p, n);
            dialogue(&[
                (End::Server, "220 FTP server ready.\r\n".into()),
                (End::Client, format!("USER {user}\r\n")),
                (End::Server, format!("331 Password required for {user}.\r\n")),
                (End::Client, format!("PASS {password}\r\n")),
                (End::Server, "530 Login incorrect.\r\n".into()),
                (End::Client, "QUIT\r\n".into()),
                (End::Server, "221 Goodbye.\r\n".into()),
            ])
        },
        transport: Transport::Tcp,
    },
    Template {
        name: "http-brute-force",
        class: Class::BruteForce,
        description: "HTTP requests with basic authentication, each with a different password, answered \
               by 401",
        ports: &[80],
        gap: Nanos(200 * MS),
        make: |p, n| {
            let (user, password) = credentials(p, n);
            let encoded = base64(format!("{user}:{password}").as_bytes());
            let encoded = String::from_utf8_lossy(&encoded);
            dialogue(&[
                (
                    End::Client,
                    format!(
                        "GET /admin/ HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: \
                         Mozilla/5.0\r\nAuthorization: Basic {encoded}\r\nAccept: */*\r\n\r\n"
                    ),
                ),
                (
                    End::Server,
                    "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic \
                     realm=\"admin\"\r\nContent-Type: text/plain\r\nContent-Length: \
                     13\r\n\r\nUnauthorized\n"
                        .into(),
                ),
            ])
        },
        transport: Transport::Tcp,
    },
    Template {
        name: "telnet-brute-force",
        class: Class::BruteForce,
        description: "telnet sessions, each with a different password, which is refused",
        ports: &[23],
        gap: Nanos(500 * MS),
        make: |p, n| {
            let (user, password) = credentials(p, n);
            let mut turns = vec![
                // WILL echo, WILL suppress go ahead; DO both (RFC 857, RFC 858).
                turn(End::Server, b"\xff\xfb\x01\xff\xfb\x03"),
                turn(End::Client, b"\xff\xfd\x01\xff\xfd\x03"),
            ];
            turns.extend(dialogue(&[
                (End::Server, "login: ".into()),
                (End::Client, format!("{user}\r\n")),
                (End::Server, "Password: ".into()),
                (End::Client, format!("{password}\r\n")),
                (End::Server, "\r\nLogin incorrect\r\n".into()),
            ]));
            turns
        },
        transport: Transport::Tcp,
    },
];

/// Templates that contact the attacker's server. They are separate because their gaps are long.
pub static BEACONS: [Template; 2] = [
    Template {
        name: "http-beacon",
        class: Class::Beacon,
        description: "short HTTP requests from one client at intervals, with very short answers",
        ports: &[80],
        gap: Nanos(60_000 * MS),
        make: |p, n| {
            // The same client calls each time, and its counter increases.
            let id = mix(p.seed, 1) as u32;
            dialogue(&[
                (
                    End::Client,
                    format!(
                        "GET /api/poll?id={id:08x}&n={n} HTTP/1.1\r\nHost: \
                         cdn.example.net\r\nUser-Agent: Mozilla/5.0\r\nAccept: */*\r\nConnection: \
                         close\r\n\r\n"
                    ),
                ),
                (
                    End::Server,
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: \
                     3\r\nConnection: close\r\n\r\nok\n"
                        .into(),
                ),
            ])
        },
        transport: Transport::Tcp,
    },
    Template {
        name: "dns-tunnel",
        class: Class::Beacon,
        description: "DNS questions for long random names in one domain, with TXT answers",
        ports: &[53],
        gap: Nanos(1_000 * MS),
        make: |p, n| {
            let seed = mix(p.seed, n);
            let labels: Vec<String> = (0..3).map(|i| word(mix(seed, i), 50)).collect();
            let name = [labels[0].as_str(), &labels[1], &labels[2], "t", "example", "org"];
            let answer = word(mix(seed, 3), 120);
            let id = seed as u16;
            vec![
                turn(End::Client, &dns(id, 0x0100, &name, 16, &[])),
                turn(End::Server, &dns(id, 0x8180, &name, 16, &[answer.as_bytes()])),
            ]
        },
        transport: Transport::Udp,
    },
];

/// All templates, including beacons.
pub fn templates() -> impl Iterator<Item = &'static Template> {
    TEMPLATES.iter().chain(&BEACONS)
}

/// Finds a template by name.
///
/// # Errors
///
/// If the name is unknown. The message lists all names.
pub fn named(name: &str) -> Result<&'static Template, Error> {
    templates().find(|template| template.name == name).ok_or_else(|| {
        let names: Vec<&str> = templates().map(|template| template.name).collect();
        Error(format!("found template {name:?}, expected one of {}", names.join(", ")))
    })
}

impl Template {
    /// Default parameters, without hosts.
    pub fn usual(&self) -> Parameters {
        Parameters {
            clients: vec![],
            servers: vec![],
            ports: self.ports.to_vec(),
            gap: self.gap,
            jitter: if self.class == Class::Beacon { 10 } else { 0 },
            count: None,
            payload: 64,
            seed: 0,
        }
    }

    /// The conversations in order of creation. With jitter, two of them may be due in reverse
    /// order.
    ///
    /// # Errors
    ///
    /// If hosts or ports are missing, or no pair of hosts has a common IP version.
    pub fn events<'a>(&self, parameters: &'a Parameters) -> Result<Events<'a>, Error> {
        let p = parameters;
        let lacks =
            |what: &str| Err(Error(format!("{}: no {what}, expected at least one", self.name)));
        if p.clients.is_empty() || p.servers.is_empty() {
            return lacks(if p.clients.is_empty() { "clients" } else { "servers" });
        }
        if p.ports.is_empty() && !self.ports.is_empty() {
            return lacks("ports");
        }
        let first = p.clients[0].is_ipv4();
        if let Some(other) =
            p.clients.iter().chain(&p.servers).find(|address| address.is_ipv4() != first)
        {
            let text = format!(
                "{}: {} and {other} are of different families, expected one family",
                self.name, p.clients[0]
            );
            return Err(Error(text));
        }
        if p.payload > MAX_PAYLOAD || p.jitter > 100 {
            let text = format!(
                "{}: a payload of {} octets and a jitter of {} %, expected at most {MAX_PAYLOAD} \
                 and 100",
                self.name, p.payload, p.jitter
            );
            return Err(Error(text));
        }
        let all = p.servers.len() as u64 * p.ports.len().max(1) as u64;
        let count = p.count.unwrap_or(if self.class == Class::Scan { all } else { 100 });
        Ok(Events { template: *self, parameters, next: 0, count })
    }

    /// The text of a flood's packet for streams ([`squall_wire::Packet::parse`]): equal to the
    /// first event, except for padding. `None` for templates other than floods.
    ///
    /// # Errors
    ///
    /// Like [`events`](Self::events).
    pub fn packet(&self, parameters: &Parameters) -> Result<Option<String>, Error> {
        if self.class != Class::Flood {
            return Ok(None);
        }
        let parameters = Parameters { count: Some(1), ..parameters.clone() };
        let Some(event) = self.events(&parameters)?.next() else { return Ok(None) };
        let frames = event.frames(&Settings { seed: parameters.seed, ..Settings::default() });
        let frames = frames.map_err(|e| Error(e.to_string()))?;
        Ok(frames.first().map(|frame| Packet::of_octets(&frame.octets).to_string()))
    }
}

/// The events of a template.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    template: Template,
    parameters: &'a Parameters,
    next: u64,
    count: u64,
}

impl Iterator for Events<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let n = self.next;
        if n >= self.count {
            return None;
        }
        self.next += 1;
        let p = self.parameters;
        let of = |list: &[IpAddr], n: u64| list[(n % list.len() as u64) as usize];
        // A scan visits all servers on one port before the next port.
        let (client, server) = (of(&p.clients, n), of(&p.servers, n));
        let round = n / p.servers.len() as u64;
        let server_port = match p.ports.len() as u64 {
            0 => 0,
            ports => p.ports[(round % ports) as usize],
        };
        let has_ports = !self.template.ports.is_empty();
        let exchange = Exchange {
            transport: self.template.transport,
            client_port: if has_ports { client_port(p.seed, n) } else { 0 },
            server_port: if has_ports { server_port } else { 0 },
            turns: (self.template.make)(p, n),
            same_address: false,
            ip_version: None,
        };
        let mac = |kind: u8, address: IpAddr| {
            let tail: [u8; 3] = match address {
                IpAddr::V4(a) => [a.octets()[1], a.octets()[2], a.octets()[3]],
                IpAddr::V6(a) => [a.octets()[13], a.octets()[14], a.octets()[15]],
            };
            // Locally administered.
            [0x02, 0x51, kind, tail[0], tail[1], tail[2]]
        };
        let ends = Endpoints {
            client,
            server,
            client_mac: mac(0x0c, client),
            server_mac: mac(0x0d, server),
        };
        Some(Event { at: p.due(n), ends, exchange, name: self.template.name })
    }

    /// Skips events without generating them: an event depends only on its number.
    fn nth(&mut self, n: usize) -> Option<Event> {
        self.next = self.next.saturating_add(n as u64).min(self.count);
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.count - self.next).ok();
        (left.unwrap_or(usize::MAX), left)
    }
}

impl Parameters {
    /// Start of conversation `n`.
    fn due(&self, n: u64) -> Nanos {
        let gap = self.gap.0;
        let on_time = gap.saturating_mul(n);
        let most = (u128::from(gap) * u128::from(self.jitter.min(100)) / 100) as u64;
        if most == 0 || n == 0 {
            return Nanos(on_time);
        }
        let late = below(mix(mix(self.seed, 2), n), 2 * u64::min(most, u64::MAX / 2));
        Nanos(on_time.saturating_sub(most).saturating_add(late))
    }
}

impl Event {
    /// The frames of the event, timed from its start.
    ///
    /// # Errors
    ///
    /// Like [`wire::frames`].
    pub fn frames(&self, settings: &Settings) -> Result<Vec<wire::Frame>, wire::Error> {
        let seed = mix(settings.seed, u64::from(self.exchange.client_port) ^ self.at.0);
        wire::frames(&self.exchange, &self.ends, &Settings { seed, ..settings.clone() })
    }

    /// The label of the event: an attack without a rule, so no alert is expected for it.
    pub fn label(&self, attack: u64, begin: Nanos, frames: &[wire::Frame]) -> Label {
        let at = |frame: Option<&wire::Frame>| {
            Nanos(begin.0.saturating_add(frame.map_or(0, |frame| frame.at.0)))
        };
        Label {
            attack,
            begin: at(frames.first()),
            end: at(frames.last()),
            protocol: self.exchange.transport.ip_protocol(self.ends.client),
            source: self.ends.client,
            source_port: self.exchange.client_port,
            destination: self.ends.server,
            destination_port: self.exchange.server_port,
            kind: Kind::Attack,
            gid: 0,
            sid: 0,
            rev: 0,
            msg: String::new(),
            also: vec![],
            alerts: 0,
            frames: frames.len() as u32,
            name: self.name.into(),
            note: String::new(),
        }
    }
}

/// Maximum payload that fits into an Ethernet frame with all headers.
const MAX_PAYLOAD: u16 = 1400;

const fn scan(
    name: &'static str,
    description: &'static str,
    make: fn(&Parameters, u64) -> Vec<Turn>,
) -> Template {
    const PORTS: &[u16] = &[
        21, 22, 23, 25, 53, 80, 110, 111, 135, 139, 143, 443, 445, 993, 995, 1433, 3306, 3389,
        5900, 8080,
    ];
    Template {
        name,
        class: Class::Scan,
        description,
        ports: PORTS,
        gap: Nanos(10 * MS),
        make,
        transport: Transport::Segments,
    }
}

const fn flood(
    name: &'static str,
    description: &'static str,
    ports: &'static [u16],
    transport: Transport,
    make: fn(&Parameters, u64) -> Vec<Turn>,
) -> Template {
    Template { name, class: Class::Flood, description, ports, gap: Nanos(MS), make, transport }
}

/// A port in IANA's dynamic range (RFC 6335 §6). All ports are used once before any is reused.
fn client_port(seed: u64, n: u64) -> u16 {
    const PORTS: u64 = 16_384;
    (49_152 + (mix(seed, 3).wrapping_add(n)) % PORTS) as u16
}

fn turn(from: End, octets: &[u8]) -> Turn {
    Turn::new(from, Octets::of(octets, Origin::Free))
}

fn dialogue(lines: &[(End, String)]) -> Vec<Turn> {
    lines.iter().map(|(from, line)| turn(*from, line.as_bytes())).collect()
}

fn syn_scan(p: &Parameters, n: u64) -> Vec<Turn> {
    vec![segment(End::Client, SYN, p.seed, n), refused()]
}

fn probe(flags: u8) -> Vec<Turn> {
    let shape = Shape { flags: Some(flags), window: Some(1024), ..Shape::default() };
    vec![Turn { shape, ..Turn::new(End::Client, Octets::new()) }, refused()]
}

/// The reply from a closed port (RFC 9293 §3.10.7.1).
fn refused() -> Turn {
    let shape =
        Shape { flags: Some(RST | ACK), sequence: Some(0), window: Some(0), ..Shape::default() };
    Turn { shape, ..Turn::new(End::Server, Octets::new()) }
}

fn segment(from: End, flags: u8, seed: u64, n: u64) -> Turn {
    let draw = mix(mix(seed, 4), n);
    let shape = Shape {
        flags: Some(flags),
        sequence: Some(draw as u32),
        acknowledgment: (flags & ACK != 0).then_some((draw >> 32) as u32),
        ..Shape::default()
    };
    Turn { shape, ..Turn::new(from, Octets::new()) }
}

fn noise(p: &Parameters, n: u64) -> Vec<u8> {
    let seed = mix(mix(p.seed, 5), n);
    (0..u64::from(p.payload.min(MAX_PAYLOAD))).map(|i| mix(seed, i) as u8).collect()
}

/// A pseudorandom word of letters and digits in base 32.
fn word(seed: u64, len: u64) -> String {
    (0..len)
        .map(|i| char::from(b"abcdefghijklmnopqrstuvwxyz234567"[(mix(seed, i) & 31) as usize]))
        .collect()
}

fn credentials(p: &Parameters, n: u64) -> (&'static str, String) {
    const USERS: [&str; 5] = ["root", "admin", "user", "test", "guest"];
    const PASSWORDS: [&str; 10] = [
        "123456", "password", "admin", "12345678", "qwerty", "root", "letmein", "toor", "1q2w3e4r",
        "changeme",
    ];
    let password = PASSWORDS[(n % 10) as usize];
    // After the end of the list, append numbers to its passwords.
    let password = if n < 10 { password.to_string() } else { format!("{password}{}", n / 10) };
    (USERS[(mix(p.seed, 6).wrapping_add(n / 10) % 5) as usize], password)
}

/// Banners and KEXINIT messages from both ends (RFC 4253 §4.2, §7.1).
fn ssh(p: &Parameters, n: u64) -> Vec<Turn> {
    const LISTS: [&str; 10] = [
        "curve25519-sha256,ecdh-sha2-nistp256,diffie-hellman-group14-sha256",
        "ssh-ed25519,ecdsa-sha2-nistp256,rsa-sha2-512",
        "aes128-ctr,aes256-ctr",
        "aes128-ctr,aes256-ctr",
        "hmac-sha2-256,hmac-sha1",
        "hmac-sha2-256,hmac-sha1",
        "none",
        "none",
        "",
        "",
    ];
    let key_exchange = |seed: u64| {
        let mut message = vec![20];
        message.extend((0..16).map(|i| mix(seed, i) as u8));
        for list in LISTS {
            message.extend((list.len() as u32).to_be_bytes());
            message.extend(list.as_bytes());
        }
        message.extend([0; 5]);
        // Length and padding length come first. The total is a multiple of eight octets, with at
        // least four octets of padding (RFC 4253 §6).
        let padding = 8 - (message.len() + 5) % 8;
        let padding = if padding < 4 { padding + 8 } else { padding };
        let mut packet = ((message.len() + 1 + padding) as u32).to_be_bytes().to_vec();
        packet.push(padding as u8);
        packet.extend(message);
        packet.resize(packet.len() + padding, 0);
        packet
    };
    let seed = mix(mix(p.seed, 7), n);
    vec![
        turn(End::Client, b"SSH-2.0-libssh2_1.11.0\r\n"),
        turn(End::Server, b"SSH-2.0-OpenSSH_9.6\r\n"),
        turn(End::Client, &key_exchange(seed)),
        turn(End::Server, &key_exchange(mix(seed, 1))),
    ]
}

/// A DNS message with one question, and a TXT record for each text (RFC 1035 §4).
fn dns(id: u16, flags: u16, name: &[&str], kind: u16, texts: &[&[u8]]) -> Vec<u8> {
    let mut message: Vec<u8> = [id, flags, 1, texts.len() as u16, 0, 0]
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect();
    for label in name {
        message.push(label.len() as u8);
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend([kind, 1].iter().flat_map(|word| word.to_be_bytes()));
    for text in texts {
        // Pointer to the question's name, type TXT, class IN, TTL of an hour.
        message.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 14, 16]);
        message.extend((text.len() as u16 + 1).to_be_bytes());
        message.push(text.len() as u8);
        message.extend(*text);
    }
    message
}

/// The longest answer to a question of type ANY that fits.
fn dns_answer(seed: u64) -> Vec<u8> {
    let texts: Vec<String> = (0..5).map(|i| word(mix(seed, i), 250)).collect();
    let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    dns(seed as u16, 0x8180, &["example", "com"], 255, &texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(template: &Template, version: u8) -> Parameters {
        let address = |n: u8| match version {
            4 => IpAddr::from([198, 18, 0, n]),
            _ => IpAddr::from([0x2001, 2, 0, 0, 0, 0, 0, u16::from(n)]),
        };
        let servers = vec![address(1), address(2), address(3)];
        Parameters {
            clients: vec![address(100), address(101)],
            servers,
            seed: 5,
            ..template.usual()
        }
    }

    #[test]
    fn every_template_makes_frames_whose_checksums_and_lengths_are_right() {
        for (template, version) in templates().flat_map(|t| [(t, 4), (t, 6)]) {
            let parameters = parameters(template, version);
            let events: Vec<Event> = template.events(&parameters).unwrap().collect();
            let expected = match template.class {
                Class::Scan => 3 * template.ports.len().max(1),
                _ => 100,
            };
            assert_eq!(events.len(), expected, "{}", template.name);
            for (n, event) in events.iter().enumerate() {
                let frames = event.frames(&Settings::default()).unwrap();
                for frame in &frames {
                    let frame = squall_wire::Frame::dissect(frame.octets.clone());
                    // IPv4 has checksums in the IP header and in the transport header, IPv6 only in
                    // the latter. DNS and other protocols are payload.
                    let right = if version == 4 { 2 } else { 1 };
                    assert_eq!(
                        frame.checksums.len(),
                        right,
                        "{} {}",
                        template.name,
                        frame.summary()
                    );
                    assert!(frame.bytes.len() <= 1514);
                }
                let label = event.label(n as u64, event.at, &frames);
                assert_eq!(
                    (label.sid, label.name.as_str(), label.frames as usize),
                    (0, template.name, frames.len())
                );
            }
        }
    }

    #[test]
    fn a_flood_s_packet_is_the_frame_of_its_first_event() {
        for (template, version) in templates().flat_map(|t| [(t, 4), (t, 6)]) {
            let parameters = parameters(template, version);
            let text = template.packet(&parameters).unwrap();
            assert_eq!(text.is_some(), template.class == Class::Flood);
            let Some(text) = text else { continue };
            let packet = Packet::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
            let built = packet.build(None, &|_| unreachable!(), 0).unwrap();
            let event = template.events(&parameters).unwrap().next().unwrap();
            let frame = event
                .frames(&Settings { seed: 5, ..Settings::default() })
                .unwrap()
                .remove(0)
                .octets;
            assert_eq!(built.bytes[..built.bytes.len() - built.trailer], frame, "{text}");
        }
    }

    #[test]
    fn a_scan_visits_each_port_of_each_server_once() {
        let scan = named("syn-scan").unwrap();
        let parameters = parameters(scan, 4);
        let visited: std::collections::HashSet<_> = scan
            .events(&parameters)
            .unwrap()
            .map(|e| (e.ends.server, e.exchange.server_port))
            .collect();
        assert_eq!(visited.len(), 3 * scan.ports.len());
    }

    #[test]
    fn a_beacon_keeps_its_interval_but_for_the_jitter() {
        let beacon = named("http-beacon").unwrap();
        let parameters = parameters(beacon, 4);
        let gap = i128::from(beacon.gap.0);
        let off: Vec<i128> = beacon
            .events(&parameters)
            .unwrap()
            .enumerate()
            .map(|(n, e)| i128::from(e.at.0) - n as i128 * gap)
            .collect();
        assert!(off.iter().all(|off| off.abs() <= gap / 10), "{off:?}");
        assert!(off.iter().any(|&off| off > gap / 50) && off.iter().any(|&off| off < -gap / 50));
        let other: Vec<Event> =
            beacon.events(&Parameters { seed: 6, ..parameters.clone() }).unwrap().collect();
        assert_ne!(other, beacon.events(&parameters).unwrap().collect::<Vec<_>>());
    }

    #[test]
    fn invalid_parameters_are_errors() {
        let scan = named("syn-scan").unwrap();
        let good = parameters(scan, 4);
        let error = |p: Parameters| scan.events(&p).unwrap_err().to_string();
        assert_eq!(error(scan.usual()), "syn-scan: no clients, expected at least one");
        assert_eq!(
            error(Parameters { ports: vec![], ..good.clone() }),
            "syn-scan: no ports, expected at least one"
        );
        let mixed = Parameters { clients: vec!["::1".parse().unwrap()], ..good.clone() };
        assert!(error(mixed).contains("different families"));
        assert!(error(Parameters { payload: 1401, ..good }).contains("at most 1400"));
        assert!(named("scan").unwrap_err().to_string().contains("syn-scan, fin-scan"));
    }
}
