//! The frames that tools send, and the addresses of tools that use sockets.

use std::{
    fs,
    io::Write,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use squall::{Error, Session};
use squall_pcap::CaptureReader;

use serde_json::json;

/// Addresses of the sending and the receiving end (RFC 2544 §C.2.2).
pub const ADDRESSES: [&str; 2] = ["198.18.1.2", "198.18.2.2"];
pub const MACS: [&str; 2] = ["02:00:00:00:0a:02", "02:00:00:00:0b:02"];
/// UDP ports of the sender and the receiver.
pub const PORTS: [u16; 2] = [5001, 5002];
/// Octets of the Ethernet, IPv4 and UDP headers.
const HEADERS: u32 = 42;

/// The frame that all tools send, as far as they can.
#[derive(Clone, Debug)]
pub struct Frame {
    pub octets: u32,
    /// In Squall's packet syntax.
    pub packet: String,
    /// Capture with a single frame.
    pub capture: PathBuf,
    /// The same frame as a configuration of trafgen.
    pub config: PathBuf,
}

impl Frame {
    pub fn payload(&self) -> u32 {
        self.octets - HEADERS
    }
}

/// The packet without its payload, in Squall's packet syntax.
pub fn packet() -> String {
    format!(
        "eth(src={},dst={})/ipv4(src={},dst={})/udp(sport={},dport={})",
        MACS[0], MACS[1], ADDRESSES[0], ADDRESSES[1], PORTS[0], PORTS[1]
    )
}

/// Writes a capture for each frame size to `folder`.
pub fn captures(sizes: &[u32], folder: &Path) -> Result<Vec<Frame>, Error> {
    sizes.iter().map(|octets| capture(*octets, packet(), folder)).collect()
}

/// A frame with an MGEN message as its payload, which MGEN's receiver accepts from any sender.
/// `octets` is the frame size without FCS, at least 78.
///
/// # Errors
/// The capture cannot be written to `folder`.
pub fn mgen_frame(octets: u32, folder: &Path) -> Result<Frame, Error> {
    let [a, b, c, d] = ADDRESSES[1].parse::<Ipv4Addr>().expect("an address").octets();
    // The format of MGEN 5.02: message size, version 2, flags; flow 1; number 0; seconds and
    // microseconds of departure; port, address type and length, address; no host; no position.
    let message = format!(
        "{:04x}0208{:08x}{:08x}{:08x}{:08x}{:04x}0104{a:02x}{b:02x}{c:02x}{d:02x}{:016x}",
        octets - HEADERS,
        1,
        0,
        0,
        0,
        PORTS[1],
        0
    );
    capture(octets, format!("{}/hex({message})", packet()), folder)
}

/// Sends the streams of a profile to its `pcap` ports, which are files in a directory of this run.
///
/// # Errors
///
/// The same as of [`Session::open`] and the calls after it.
pub fn write(profile: &serde_json::Value) -> Result<(), Error> {
    let mut session = Session::new(squall::Profile::from_value(profile, "squall compare")?);
    // No other program uses this directory, so its files can be overwritten.
    session.options.force = Some(true);
    session.open()?.start()?.finish()?;
    Ok(())
}

fn capture(octets: u32, packet: String, folder: &Path) -> Result<Frame, Error> {
    let capture = folder.join(format!("{octets}.pcap"));
    let profile = json!({
        "ports": { "A": format!("pcap:{}", capture.display()) },
        "stream": [{
            "port": "A", "packet": &packet, "size": octets + squall_units::FCS_LEN,
            "rate": "1 kpps", "mode": { "burst": 1 },
        }],
    });
    write(&profile)?;
    let failed = |error: String| Error::Environment(format!("{}: {error}", capture.display()));
    let mut reader = CaptureReader::open(&capture).map_err(|e| failed(e.to_string()))?;
    let first = reader.next().map_err(|e| failed(e.to_string()))?;
    let octets_text: Vec<String> = first
        .ok_or_else(|| failed("it has no packet".into()))?
        .data
        .iter()
        .map(|octet| format!("0x{octet:02x}"))
        .collect();
    let config = folder.join(format!("{octets}.trafgen"));
    fs::write(&config, format!("{{ {} }}\n", octets_text.join(", ")))
        .map_err(|e| failed(e.to_string()))?;
    Ok(Frame { octets, packet, capture, config })
}

/// Gives each end of the lab an address, and makes packets between the two use the link. By
/// default, the kernel delivers packets between two local addresses directly. Therefore the rule
/// for the `local` table, which comes first by default, is moved after the routes for all packets
/// but received ones.
///
/// # Errors
/// The reason, as text. Tools that send raw frames work without addresses.
pub fn address(interfaces: &[String; 2]) -> Result<(), String> {
    for (file, value) in [("all/accept_local", "1"), ("all/rp_filter", "0")] {
        let path = format!("/proc/sys/net/ipv4/conf/{file}");
        fs::write(&path, value).map_err(|e| format!("no addresses for the lab: {path}: {e}"))?;
    }
    for interface in interfaces {
        let path = format!("/proc/sys/net/ipv4/conf/{interface}/rp_filter");
        fs::write(&path, "0").map_err(|e| format!("no addresses for the lab: {path}: {e}"))?;
    }
    let mut batch = String::new();
    for (i, interface) in interfaces.iter().enumerate() {
        let (own, other) = (ADDRESSES[i], ADDRESSES[1 - i]);
        let (own_mac, other_mac, table) = (MACS[i], MACS[1 - i], 100 + i);
        batch += &format!(
            "link set {interface} address {own_mac}\naddr add {own}/32 dev {interface}\nneigh \
             replace {other} lladdr {other_mac} dev {interface} nud permanent\nroute add {other}/32 \
             dev {interface} src {own} table {table}\nrule add pref {} iif {interface} lookup \
             local\nrule add pref {} to {other} lookup {table}\n",
            1 + i,
            3 + i
        );
    }
    batch += "rule add pref 100 lookup local\nrule del pref 0\n";
    ip(&batch)
        .map_err(|why| format!("no addresses for the lab: ip: {why}; try apt-get install iproute2"))
}

/// Makes the kernel's interface answer to `network`, whose addresses a program at the other end
/// uses: by a route, and by ARP.
///
/// # Errors
/// The same as of [`address`].
pub fn route_back(interface: &str, network: &str) -> Result<(), String> {
    let table = 101;
    let own = ADDRESSES[1];
    ip(&format!(
        "link set {interface} arp on\nroute add {network} dev {interface} src {own} table \
         {table}\nrule add pref 5 to {network} lookup {table}\n"
    ))
    .map_err(|why| format!("cannot route to {network}: ip: {why}"))
}

/// Runs commands of `ip`.
///
/// # Errors
/// The reason, as text.
pub fn ip(batch: &str) -> Result<(), String> {
    let program = ["/usr/sbin/ip", "/sbin/ip"].into_iter().find(|path| Path::new(path).is_file());
    let mut command = Command::new(program.unwrap_or("ip"));
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let _ = child.stdin.take().expect("it is piped").write_all(batch.as_bytes());
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
