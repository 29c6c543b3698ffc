//! Measures how fast each kind of port sends on an interface: a short run at full rate for each,
//! counted by the interface itself.

use std::time::Duration;

use squall_options::{Clock, RunOptions};
use squall_port::InterfaceCounters;
use squall_port_linux::{InterfaceInfo, interface_counters, sink::Sink};
use squall_profile::{Format, Profile};
use squall_units::{FCS_LEN, L1_OVERHEAD, Nanos};

use squall::{Error, Session, report::Report};

/// Frame sizes to try, in octets with FCS: the smallest, and the largest that every Ethernet link
/// can carry.
pub const SIZES: [u32; 2] = [64, 1518];

/// Result for one kind of port and one frame size.
#[derive(Clone, Debug)]
pub struct Measured {
    pub kind: &'static str,
    /// Frame size in octets, with FCS.
    pub size: u32,
    /// Time since the first departure, in seconds.
    pub seconds: f64,
    /// Frames counted by the sending interface.
    pub sent: u64,
    /// Frames counted by the other end: the peer interface, or the receiving port.
    pub received: Option<u64>,
    /// User and system time that this process used per million frames, in seconds.
    pub cpu_s_per_mpkt: Option<f64>,
}

impl Measured {
    pub fn pps(&self) -> f64 {
        self.sent as f64 / self.seconds.max(1e-9)
    }

    /// Bit rate of these frames on the wire, in bits per second, counting preambles and gaps.
    pub fn bps_l1(&self) -> f64 {
        self.pps() * f64::from(self.size + L1_OVERHEAD) * 8.0
    }
}

/// Frames from the interface's own address to itself, with the EtherType for local experiments
/// (IEEE 802 §9.2.4). A switch that has learned the address does not forward them, and no host
/// accepts them.
pub fn packet(interface: &InterfaceInfo) -> Result<String, Error> {
    let mac = interface.mac.ok_or_else(|| {
        Error::Environment(format!("{} has no Ethernet address to send to", interface.name))
    })?;
    Ok(format!("eth(dst={mac},src={mac},type=0x88b5)"))
}

/// Makes `peer`, the other end of a lab link, accept frames of `kind` until the result is dropped.
/// A veth accepts frames from XDP only while its peer uses NAPI, which an XDP program on the peer
/// enables. The program counts the frames and drops them.
pub fn attach_sink(kind: &str, peer: Option<&str>) -> Option<Sink> {
    let peer = peer.filter(|_| kind == "xdp_live")?;
    Sink::attach(peer, false).ok()
}

/// The frame sizes to try on this interface, limited by its MTU.
pub fn sizes(interface: &InterfaceInfo) -> [u32; 2] {
    SIZES.map(|size| size.min(interface.mtu + 14 + FCS_LEN))
}

/// Sends with `kind` from `interface` at full speed for `time`, or until `stop` returns true.
/// `peer`: the interface at the other end of a lab link.
///
/// # Errors
/// The port cannot be opened or is lost.
pub fn send(
    kind: &'static str,
    interface: &InterfaceInfo,
    peer: Option<&str>,
    size: u32,
    time: Nanos,
    stop: &dyn Fn() -> bool,
) -> Result<Measured, Error> {
    let address = format!("{kind}:{}", interface.name);
    let counters =
        || -> Result<_, Error> { Ok((count(&interface.name)?, peer.map(count).transpose()?)) };
    let before = counters()?;
    let mut sender = session(&[&address], interface, size, time)?;
    sender.options.receive = Some(false);
    let report = run(sender, stop)?;
    let after = counters()?;
    let received =
        after.1.zip(before.1).map(|(after, before)| after.rx_packets - before.rx_packets);
    Ok(Measured {
        received,
        ..measured(kind, size, &report, after.0.tx_packets - before.0.tx_packets)
    })
}

/// Receives with `kind` at `peer` the frames that the port `sender`, a complete address on
/// `interface`, sends at full speed.
///
/// # Errors
/// As for [`send`].
pub fn receive(
    kind: &'static str,
    sender: &str,
    interface: &InterfaceInfo,
    peer: &str,
    size: u32,
    time: Nanos,
    stop: &dyn Fn() -> bool,
) -> Result<Measured, Error> {
    let report = run(session(&[sender, &format!("{kind}:{peer}")], interface, size, time)?, stop)?;
    let sent = report.ports[0].tx.packets;
    Ok(Measured {
        received: Some(report.ports[1].rx.packets),
        ..measured(kind, size, &report, sent)
    })
}

fn session(
    addresses: &[&str],
    interface: &InterfaceInfo,
    size: u32,
    time: Nanos,
) -> Result<Session, Error> {
    let ports: String = addresses
        .iter()
        .zip(["A", "B"])
        .map(|(address, name)| format!("{name} = \"{address}\"\n"))
        .collect();
    let text = format!(
        "duration = \"{} ns\"\n[ports]\n{ports}[[stream]]\nport = \"A\"\npacket = \"{}\"\nsize = \
         {size}\nrate = \"max\"\n",
        time.0,
        packet(interface)?
    );
    let options = RunOptions { clock: Some(Clock::Real), ..RunOptions::default() };
    Session::new(Profile::parse(&text, "<probe>", Format::Toml)?).with(options)
}

fn run(session: Session, stop: &dyn Fn() -> bool) -> Result<Report, Error> {
    let mut run = session.open()?.start()?;
    while !run.wait(Duration::from_millis(20)) {
        if stop() {
            run.stop();
        }
    }
    run.finish()
}

fn measured(kind: &'static str, size: u32, report: &Report, sent: u64) -> Measured {
    let cpu = report.cpu.user_s + report.cpu.system_s;
    Measured {
        kind,
        size,
        seconds: report.duration_s,
        sent,
        received: None,
        cpu_s_per_mpkt: (sent > 0).then(|| cpu / sent as f64 * 1e6),
    }
}

fn count(interface: &str) -> Result<InterfaceCounters, Error> {
    interface_counters(interface)
        .map_err(|e| Error::Environment(format!("{interface}: no counters: {e}")))
}
