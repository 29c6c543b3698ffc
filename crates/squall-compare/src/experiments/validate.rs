//! Validates the frames of a generator. tcpdump captures them at the receiving interface, and
//! tshark, which shares no code with any of the generators, finds malformed packets and wrong
//! checksums.

use std::{path::Path, process::Stdio, time::Duration};

use squall_pcap::{CaptureError, CaptureReader};

use crate::{process::Program, tools::Tool};

/// tshark's findings about the frames of a capture, and the gaps between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Validated {
    pub frames: u64,
    pub malformed: u64,
    pub bad_ipv4_checksums: u64,
    /// Wrong UDP, TCP or ICMP checksums.
    pub bad_payload_checksums: u64,
    /// Gaps between the frames by kernel timestamps, nanoseconds, in ascending order.
    pub gaps_ns: Vec<f64>,
}

const FRAMES: u32 = 1000;
/// Maximum wait for that number of frames.
const WAIT: Duration = Duration::from_secs(3);

/// Why frames cannot be validated here.
pub fn why_not() -> Option<String> {
    let absent = |name: &str| Tool::of_command(name, name).ok().and_then(|t| t.find()).is_none();
    let missing: Vec<&str> = ["tcpdump", "tshark"].into_iter().filter(|n| absent(n)).collect();
    (!missing.is_empty()).then(|| {
        let names = missing.join(" ");
        format!("not installed: {}; try apt-get install {names}", missing.join(", "))
    })
}

/// Records up to 1,000 frames that arrive at `interface` into `file`.
///
/// # Errors
/// The reason, as text.
pub fn record(interface: &str, file: &Path) -> Result<(), String> {
    // -Z: by default tcpdump changes to a user without write permission here.
    let command = format!(
        "tcpdump -i {interface} -n -Z root -Q in --time-stamp-precision=nano -c {FRAMES} -w"
    );
    let tool = Tool::of_command("tcpdump", &command).map_err(|e| e.to_string())?;
    let path = tool.find().ok_or("tcpdump is not installed")?;
    let mut arguments = tool.arguments;
    arguments.push(file.display().to_string());
    let mut program = Program::start(&path, &arguments, None, file.with_extension("log"))?;
    program.ends_within(WAIT);
    program.end(WAIT);
    Ok(())
}

/// Validates the frames of a capture.
///
/// # Errors
/// The reason, as text.
pub fn examine(file: &Path) -> Result<Validated, String> {
    let tshark = Tool::of_command("tshark", "tshark").map_err(|e| e.to_string())?;
    let path = tshark.find().ok_or("tshark is not installed")?;
    let mut command = std::process::Command::new(path);
    command.arg("-r").arg(file).args(["-n", "-T", "fields", "-E", "occurrence=f"]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    for protocol in ["ip", "udp", "tcp"] {
        command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("tshark: {e}"))?;
    if !output.status.success() {
        return Err(format!("tshark: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let gaps_ns = gaps(file).map_err(|e| e.to_string())?;
    Ok(Validated { gaps_ns, ..counted(&String::from_utf8_lossy(&output.stdout)) })
}

fn gaps(file: &Path) -> Result<Vec<f64>, CaptureError> {
    let mut reader = CaptureReader::open(file)?;
    let (mut gaps, mut last) = (Vec::new(), None);
    while let Some(packet) = reader.next()? {
        let at = packet.time_ns;
        gaps.extend(last.map(|last| at.saturating_sub(last) as f64));
        last = Some(at);
    }
    gaps.sort_by(f64::total_cmp);
    Ok(gaps)
}

const FIELDS: [&str; 6] = [
    "frame.number",
    "_ws.malformed",
    "ip.checksum.status",
    "udp.checksum.status",
    "tcp.checksum.status",
    "icmp.checksum.status",
];
/// tshark's value for a bad checksum.
const BAD: &str = "0";

/// Counts tshark's findings in its output, which has a line for each frame.
fn counted(text: &str) -> Validated {
    let mut all = Validated::default();
    for line in text.lines() {
        let mut fields = line.split('\t');
        let mut next = || fields.next().unwrap_or_default();
        let (_, malformed, ip) = (next(), next(), next());
        let payload = [next(), next(), next()];
        all.frames += 1;
        all.malformed += u64::from(!malformed.is_empty());
        all.bad_ipv4_checksums += u64::from(ip == BAD);
        all.bad_payload_checksums += u64::from(payload.contains(&BAD));
    }
    all
}

/// Turns off offloads, in which the kernel leaves work to a NIC. A veth pair passes such frames on
/// with checksums unset and segments joined, so all programs that use sockets would seem to send
/// wrong ones.
///
/// # Errors
/// The reason, as text.
pub fn without_offload(interfaces: &[String; 2]) -> Result<(), String> {
    for interface in interfaces {
        let command = format!("ethtool -K {interface} tx off rx off tso off gso off");
        let tool = Tool::of_command("ethtool", &command).map_err(|e| e.to_string())?;
        let path = tool.find().ok_or("not installed: ethtool; try apt-get install ethtool")?;
        let output = std::process::Command::new(path)
            .args(&tool.arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("ethtool: {e}"))?;
        if !output.status.success() {
            return Err(format!("ethtool: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_by_what_is_wrong_with_them() {
        // Valid UDP, wrong IPv4, wrong TCP, malformed, UDP without a checksum (3), ARP.
        let text = "1\t\t1\t1\t\t\n2\t\t0\t1\t\t\n3\t\t1\t\t0\t\n4\tMalformed \
                    Packet\t1\t1\t\t\n5\t\t1\t3\t\t\n6\t\t\t\t\t\n";
        let all = counted(text);
        assert_eq!((all.frames, all.malformed), (6, 1));
        assert_eq!((all.bad_ipv4_checksums, all.bad_payload_checksums), (1, 1));
    }
}
