//! Linux's TCP as the subject: in a network namespace, over a veth pair, in real time.
//!
//! The process must have only one thread when it enters the namespace, and stays in it until it
//! ends.

use std::{
    collections::VecDeque,
    fs,
    io::{self, ErrorKind, Read, Write},
    process::Command,
    thread,
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use squall_port::{Port, RxQueue, TxQueue, monotonic};
use squall_port_linux::lab::{self, INTERFACES, LabOptions};
use squall_units::{MacAddr, Nanos};

use super::{
    packet::{self, Ends},
    play::{Observation, Subject},
    script::{Family, Gone, Script, Setting, Verb},
};

pub struct Linux {
    /// Frames from and to the interface.
    rx: Box<dyn RxQueue>,
    tx: Box<dyn TxQueue>,
    _port: Box<dyn Port>,
    /// Ethernet header of injected frames.
    header: [u8; 14],
    ends: Ends,
    options: Options,
    listener: Option<Socket>,
    stream: Option<Socket>,
    connecting: bool,
    reading: bool,
    paused: bool,
    /// Octets that the application has sent and the socket has not accepted yet.
    unsent: VecDeque<u8>,
    sent: u32,
    close_when_sent: bool,
    aborted: bool,
}

/// A script's tunables as socket options.
#[derive(Default)]
struct Options {
    mss: Option<u32>,
    no_delay: bool,
    quick_ack: bool,
    window: Option<usize>,
    keepalive: Option<TcpKeepalive>,
    /// Linux's name for the congestion control, if that is not CUBIC.
    congestion: Option<&'static str>,
}

/// Disables features of Linux that go beyond the RFCs under test, or depend on chance.
const PLAIN: &[(&str, &str)] = &[
    // Tail loss probes and F-RTO would replace the retransmissions of RFC 6298.
    ("tcp_early_retrans", "0"),
    ("tcp_frto", "0"),
    ("tcp_syn_linear_timeouts", "0"),
    ("tcp_autocorking", "0"),
    // Duplicate SACKs (RFC 2883), and SACKs that Linux delays to compress them.
    ("tcp_dsack", "0"),
    ("tcp_comp_sack_nr", "0"),
    ("tcp_invalid_ratelimit", "0"),
    ("tcp_no_metrics_save", "1"),
    ("tcp_ecn", "0"),
    ("tcp_timestamps", "0"),
    ("icmp_ratelimit", "0"),
];

const SYN_SENT: &str = "02";
const SYN_RECEIVED: &str = "03";
const TIME_WAIT: &str = "06";
const LISTENS: &str = "0A";

impl Linux {
    /// Enters a new namespace and configures it for `script`.
    pub fn enter(script: &Script, family: Family) -> Result<Self, lab::LabError> {
        // The MSS is 1460 for both families, so scripts need not distinguish them.
        let mtu = if family == Family::V4 { 1500 } else { 1520 };
        lab::enter_private(&LabOptions { mtu, queues: 1 })?;
        let other = |source: io::Error| lab::LabError::Io {
            what: format!("cannot set up the network of {}", script.file),
            source,
        };
        Self::make(script, family).map_err(other)
    }

    fn make(script: &Script, family: Family) -> io::Result<Self> {
        let ends = Ends::of(family);
        for (name, value) in PLAIN {
            // An older kernel that lacks the switch also lacks the feature.
            match sysctl(name, value) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                set => set?,
            }
        }
        let mut options = Options { no_delay: true, ..Options::default() };
        let mut route = vec![];
        for tunable in &script.tunables {
            set(tunable, &mut options, &mut route)?;
        }
        for Setting { name, value, .. } in &script.sysctls {
            sysctl(name, value)?;
        }
        let [local_interface, peer_interface] = INTERFACES;
        run("ethtool", &["-K", local_interface, "tx", "off", "tso", "off", "gso", "off"])?;
        let (net, local) = (prefix(ends.local), ends.local.ip().to_string());
        if family == Family::V6 {
            fs::write(format!("/proc/sys/net/ipv6/conf/{local_interface}/disable_ipv6"), "0")?;
            run(
                "ip",
                &[
                    "addr",
                    "add",
                    &format!("{local}/64"),
                    "dev",
                    local_interface,
                    "nodad",
                    "noprefixroute",
                ],
            )?;
        } else {
            run(
                "ip",
                &["addr", "add", &format!("{local}/24"), "dev", local_interface, "noprefixroute"],
            )?;
        }
        let mut arguments = vec!["route", "add", &net, "dev", local_interface];
        arguments.extend(route.iter().map(String::as_str));
        run("ip", &arguments)?;
        let peer = ends.peer.ip().to_string();
        run(
            "ip",
            &[
                "neigh",
                "replace",
                &peer,
                "lladdr",
                "02:00:00:00:00:02",
                "dev",
                local_interface,
                "nud",
                "permanent",
            ],
        )?;

        let address = format!("af_packet:{peer_interface}").parse().map_err(io::Error::other)?;
        let mut port = squall_port_linux::open(&address)?.expect("a port of that crate");
        let (rx, tx) = (port.open_rx(0)?, port.open_tx(0, 1534)?);
        let mut header = [0; 14];
        header[..6].copy_from_slice(&mac(local_interface)?.0);
        header[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
        header[12..].copy_from_slice(if family == Family::V4 { &[8, 0] } else { &[0x86, 0xdd] });
        Ok(Self {
            rx,
            tx,
            _port: port,
            header,
            ends,
            options,
            listener: None,
            stream: None,
            connecting: false,
            reading: false,
            paused: false,
            unsent: VecDeque::new(),
            sent: 0,
            close_when_sent: false,
            aborted: false,
        })
    }

    fn socket(&self) -> io::Result<Socket> {
        let socket =
            Socket::new(Domain::for_address(self.ends.local), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        if let Some(mss) = self.options.mss {
            socket.set_tcp_mss(mss)?;
        }
        if let Some(octets) = self.options.window {
            socket.set_recv_buffer_size(octets)?;
        }
        // Set by a socket option, because the sysctl of a namespace accepts only values from
        // tcp_allowed_congestion_control.
        socket.set_tcp_congestion(self.options.congestion.unwrap_or("cubic").as_bytes())?;
        socket.bind(&self.ends.local.into())?;
        Ok(socket)
    }

    /// Sets the options that connections do not inherit from a listener.
    fn prepare(&self, stream: &Socket) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_tcp_nodelay(self.options.no_delay)?;
        stream.set_send_buffer_size(4 << 20)?;
        // As RFC 6093 advises; otherwise the stream would lack an octet.
        stream.set_out_of_band_inline(true)?;
        if let Some(keepalive) = &self.options.keepalive {
            stream.set_tcp_keepalive(keepalive)?;
        }
        Ok(())
    }

    fn started(&mut self) -> io::Result<()> {
        self.reading = true;
        // Linux acknowledges the first segments of a flow at once and delays ACKs only once it
        // considers the flow interactive.
        self.stream
            .as_ref()
            .map_or(Ok(()), |stream| stream.set_tcp_quickack(self.options.quick_ack))
    }

    fn frames(&mut self, seen: &mut Vec<(Nanos, Observation)>) -> io::Result<()> {
        for (frame, facts) in self.rx.receive()?.iter() {
            if let Some(packet) = frame.get(14..) {
                seen.push((facts.time, Observation::Packet(packet.to_vec())));
            }
        }
        Ok(())
    }

    /// Polls the sockets for events.
    fn events(&mut self, seen: &mut Vec<(Nanos, Observation)>) -> io::Result<()> {
        let now = monotonic();
        if self.stream.is_none()
            && let Some(listener) = &self.listener
        {
            match listener.accept() {
                Ok((stream, _)) => {
                    self.prepare(&stream)?;
                    self.stream = Some(stream);
                    self.started()?;
                    seen.push((now, Observation::Established));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        if self.connecting {
            let stream = self.stream.as_ref().expect("a socket that connects");
            if let Some(error) = stream.take_error()? {
                seen.push((now, Observation::Gone(self.reason(&error))));
                (self.stream, self.connecting) = (None, false);
                return Ok(());
            }
            // getpeername(2) succeeds in SYN-RECEIVED, too.
            if self.states().iter().any(|state| state == SYN_SENT || state == SYN_RECEIVED) {
                return Ok(());
            }
            self.connecting = false;
            self.started()?;
            seen.push((now, Observation::Established));
        }
        if let Err(error) = self.write().and_then(|()| self.read(now, seen)) {
            seen.push((now, Observation::Gone(self.reason(&error))));
            (self.stream, self.reading) = (None, false);
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(mut stream) = self.stream.as_ref().filter(|_| !self.connecting) else {
            return Ok(());
        };
        while !self.unsent.is_empty() {
            match stream.write(self.unsent.make_contiguous()) {
                Ok(octets) => drop(self.unsent.drain(..octets)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if std::mem::take(&mut self.close_when_sent) {
            // Fails if the flow has already ended, which is not an error of the script.
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        Ok(())
    }

    fn read(&mut self, now: Nanos, seen: &mut Vec<(Nanos, Observation)>) -> io::Result<()> {
        let Some(mut stream) = self.stream.as_ref().filter(|_| !self.connecting) else {
            return Ok(());
        };
        // Checked only if the flow is not read, because read(2) reports its end: SO_ERROR also
        // reports ICMP errors that do not end a flow.
        if !self.reading
            && let Some(error) = stream.take_error()?
        {
            return Err(error);
        }
        let mut octets = vec![0; 65_536];
        while self.reading && !self.paused {
            match stream.read(&mut octets) {
                Ok(0) => {
                    self.reading = false;
                    seen.push((now, Observation::PeerClosed));
                }
                Ok(n) => seen.push((now, Observation::Received(octets[..n].to_vec()))),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn reason(&self, error: &io::Error) -> Gone {
        match error.kind() {
            ErrorKind::ConnectionRefused => Gone::Refused,
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Gone::Unreachable,
            ErrorKind::TimedOut if self.connecting => Gone::ConnectTimeout,
            ErrorKind::TimedOut if self.options.keepalive.is_some() && self.sent == 0 => {
                Gone::KeepaliveTimeout
            }
            ErrorKind::TimedOut => Gone::Timeout,
            // ENOPROTOOPT: ICMP protocol unreachable.
            _ if error.raw_os_error() == Some(92) => Gone::Unreachable,
            _ => Gone::Reset,
        }
    }

    /// States of all flows in this namespace as the kernel prints them, orphaned ones included.
    fn states(&self) -> Vec<String> {
        let table =
            if self.ends.local.is_ipv4() { "/proc/self/net/tcp" } else { "/proc/self/net/tcp6" };
        let text = fs::read_to_string(table).unwrap_or_default();
        text.lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().nth(3).map(str::to_owned))
            .collect()
    }

    fn do_verb(&mut self, verb: &Verb) -> io::Result<()> {
        match verb {
            Verb::Listen => {
                let listener = self.socket()?;
                listener.listen(8)?;
                listener.set_tcp_quickack(self.options.quick_ack)?;
                self.listener = Some(listener);
            }
            Verb::Connect => {
                let stream = self.socket()?;
                self.prepare(&stream)?;
                match stream.connect(&self.ends.peer.into()) {
                    Ok(()) => {}
                    // EINPROGRESS
                    Err(error) if error.raw_os_error() == Some(115) => {}
                    Err(error) => return Err(error),
                }
                (self.stream, self.connecting) = (Some(stream), true);
            }
            Verb::Send(octets) => {
                self.unsent.extend(packet::octets(0, self.sent, *octets));
                self.sent += octets;
                self.write()?;
            }
            Verb::Close if self.connecting => {
                (self.stream, self.connecting, self.aborted) = (None, false, true)
            }
            Verb::Close => {
                self.close_when_sent = true;
                self.write()?;
            }
            Verb::Abort => {
                if let Some(stream) = self.stream.take() {
                    stream.set_linger(Some(Duration::ZERO))?;
                }
                (self.reading, self.connecting, self.aborted) = (false, false, true);
            }
            Verb::Pause => self.paused = true,
            Verb::Resume => self.paused = false,
            Verb::NextFlow => {
                (self.stream, self.reading, self.sent) = (None, false, 0);
                self.unsent.clear();
            }
        }
        Ok(())
    }
}

impl Subject for Linux {
    fn now(&mut self) -> Nanos {
        monotonic()
    }

    fn wait(&mut self, until: Nanos) -> Vec<(Nanos, Observation)> {
        let mut seen = vec![];
        loop {
            if std::mem::take(&mut self.aborted) {
                seen.push((monotonic(), Observation::Gone(Gone::Aborted)));
            }
            let looked = self.frames(&mut seen).and_then(|()| self.events(&mut seen));
            looked.expect("a socket and a port of this process can be asked");
            let now = monotonic();
            if !seen.is_empty() || now >= until {
                return seen;
            }
            thread::sleep(Duration::from_nanos((until.0 - now.0).min(400_000)));
        }
    }

    fn inject(&mut self, packet: &[u8]) {
        let len = 14 + packet.len();
        let mut deadline = 1000;
        loop {
            let mut batch = self.tx.lend(1);
            if !batch.is_empty() {
                let frame = batch.frame(0, len, Nanos::ZERO);
                frame[..14].copy_from_slice(&self.header);
                frame[14..].copy_from_slice(packet);
                if self.tx.send(1).expect("a veth takes frames") == 1 {
                    return;
                }
            }
            deadline -= 1;
            assert!(deadline > 0, "a veth takes a frame within a second");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn act(&mut self, verb: &Verb) -> Result<(), String> {
        self.do_verb(verb).map_err(|error| format!("{verb:?}: {error}"))
    }

    fn is_gone(&mut self) -> bool {
        self.states().iter().all(|state| state == TIME_WAIT || state == LISTENS)
    }
}

/// Applies a tunable to Linux.
fn set(tunable: &Setting, options: &mut Options, route: &mut Vec<String>) -> io::Result<()> {
    let value = tunable.value.as_str();
    match tunable.name.as_str() {
        "mss" => options.mss = Some(number(tunable)?),
        "initwnd" => route.extend(["initcwnd".to_owned(), value.to_owned()]),
        "window" => options.window = Some(number(tunable)? as usize),
        "wscale" if value == "off" => sysctl("tcp_window_scaling", "0")?,
        // Results from the buffer sizes.
        "wscale" => {}
        "sack" => sysctl("tcp_sack", if flag(tunable)? { "1" } else { "0" })?,
        "timestamps" => sysctl("tcp_timestamps", if flag(tunable)? { "1" } else { "0" })?,
        "no_delay" => options.no_delay = flag(tunable)?,
        "delayed_ack" => {
            if seconds(tunable)? == Duration::ZERO {
                route.extend(["quickack".to_owned(), "1".to_owned()]);
                options.quick_ack = true;
            }
        }
        "rto_min" => sysctl("tcp_rto_min_us", &seconds(tunable)?.as_micros().to_string())?,
        "rto_max" => sysctl("tcp_rto_max_ms", &seconds(tunable)?.as_millis().to_string())?,
        "syn_retries" => {
            sysctl("tcp_syn_retries", value)?;
            sysctl("tcp_synack_retries", value)?;
        }
        "retries" => sysctl("tcp_retries2", value)?,
        "keepidle" => keepalive(options, |k| Ok(k.with_time(seconds(tunable)?)))?,
        "keepintvl" => keepalive(options, |k| Ok(k.with_interval(seconds(tunable)?)))?,
        "keepcnt" => keepalive(options, |k| Ok(k.with_retries(number(tunable)?)))?,
        "fin_wait" => sysctl("tcp_fin_timeout", &seconds(tunable)?.as_secs().to_string())?,
        "congestion" if value == "newreno" => options.congestion = Some("reno"),
        "congestion" if value == "cubic" => {}
        "ecn" => sysctl("tcp_ecn", if flag(tunable)? { "1" } else { "0" })?,
        _ => return Err(unknown(tunable, "one that Linux has, too: else `linux: no (why)`")),
    }
    Ok(())
}

fn keepalive(
    options: &mut Options,
    with: impl FnOnce(TcpKeepalive) -> io::Result<TcpKeepalive>,
) -> io::Result<()> {
    options.keepalive = Some(with(options.keepalive.take().unwrap_or_else(TcpKeepalive::new))?);
    Ok(())
}

fn unknown(setting: &Setting, expected: &str) -> io::Error {
    let Setting { name, value, at } = setting;
    io::Error::other(format!(
        "line {}, column {}: {name}={value}: expected {expected}",
        at.line, at.column
    ))
}

fn number(setting: &Setting) -> io::Result<u32> {
    setting.value.parse().map_err(|_| unknown(setting, "a number"))
}

fn seconds(setting: &Setting) -> io::Result<Duration> {
    let time: Nanos = setting.value.parse().map_err(|_| unknown(setting, "a duration (200ms)"))?;
    Ok(Duration::from_nanos(time.0))
}

fn flag(setting: &Setting) -> io::Result<bool> {
    match setting.value.as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(unknown(setting, "on or off")),
    }
}

/// Sets a sysctl of this namespace.
fn sysctl(name: &str, value: &str) -> io::Result<()> {
    let file = format!("/proc/sys/net/ipv4/{name}");
    fs::write(&file, value)
        .map_err(|error| io::Error::new(error.kind(), format!("{file}={value}: {error}")))
}

fn run(program: &str, arguments: &[&str]) -> io::Result<()> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let done = Command::new(program).args(arguments).env("PATH", path).output()?;
    if done.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&done.stderr);
    Err(io::Error::other(format!("{program} {}: {stderr}", arguments.join(" "))))
}

fn prefix(local: std::net::SocketAddr) -> String {
    if local.is_ipv4() { "192.0.2.0/24".into() } else { "2001:db8::/64".into() }
}

fn mac(interface: &str) -> io::Result<MacAddr> {
    let found = squall_port_linux::list_interfaces()?
        .into_iter()
        .find(|i| i.name == interface)
        .and_then(|i| i.mac);
    found.ok_or_else(|| io::Error::other(format!("{interface} has no MAC address")))
}
