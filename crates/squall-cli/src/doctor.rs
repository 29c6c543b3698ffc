//! `squall doctor`: checks the machine and suggests fixes.

use std::process::ExitCode;

use serde_json::json;
use squall::Error;
use squall_doctor::{FRAMES, Finding, State, Trial, examine, nic::examine_nic};
use squall_port_linux::lab;

use crate::{features, output, ports};

/// Check what works on this machine, and try each kind of port
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall doctor
  sudo squall doctor          # with root's permissions
  squall doctor --nic eth1    # what this card offers, and settings that disturb
  squall doctor --nic 0000:01:00.0
  squall doctor --json -

Reads facts about CPUs, clock, permissions, kernel and libraries and changes nothing. Then sends at
least 1000 frames by each kind of port: in memory, into a temporary file, and through a private
network namespace. No frame reaches an interface of the machine. With --nic nothing is sent.

Exit status: 3 if a port that should work here does not.")]
pub struct Args {
    /// Examine this interface, or the device with this PCI address, and nothing else: link, queues,
    /// timestamps, offloads, XDP, DPDK
    #[arg(long, value_name = "IFACE|PCI")]
    nic: Option<String>,
    /// Write the findings as JSON; - is standard output
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
}

/// Headings in the order of the output.
const TOPICS: [(&str, &str); 11] = [
    ("cpu", "CPU and clock"),
    ("permissions", "Permissions"),
    ("kernel", "Kernel"),
    ("libraries", "Libraries"),
    ("ports", "Ports"),
    ("link", "Link"),
    ("queues", "Queues"),
    ("time", "Time"),
    ("offloads", "Offloads"),
    ("xdp", "XDP"),
    ("dpdk", "DPDK"),
];

pub fn doctor(args: &Args) -> Result<ExitCode, Error> {
    let findings = match &args.nic {
        Some(nic) => examine_nic(nic).map_err(Error::Environment)?,
        None => of_the_machine(),
    };
    if args.json.as_deref() != Some("-") {
        output::print(&text(&findings));
    }
    if let Some(file) = &args.json {
        let value = json!({
            "schema": "squall-doctor/1",
            "squall_version": env!("CARGO_PKG_VERSION"),
            "commit": features::COMMIT,
            "findings": findings,
        });
        output::write_to(file, &format!("{value:#}\n"))?;
    }
    let failed = findings.iter().any(|finding| finding.state == State::Failed);
    Ok(ExitCode::from(if failed { 3 } else { 0 }))
}

fn of_the_machine() -> Vec<Finding> {
    let mut findings = examine();
    // Do this while the process has a single thread: only then can it enter a user namespace.
    let lab = lab::enter_private(&lab::LabOptions::default()).map_err(|e| e.to_string());
    Trial { lab, folder: std::env::temp_dir() }.run(|finding| findings.push(finding.clone()));
    findings
}

fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
    let mut text = format!("squall {}\n", features::version());
    let there = |topic: &str| findings.iter().any(|finding| finding.topic == topic);
    for (topic, heading) in TOPICS.into_iter().filter(|(topic, _)| there(topic)) {
        text += &format!("\n{heading}");
        text += &if topic == "ports" {
            format!(": at least {FRAMES} frames by each kind\n")
        } else {
            "\n".to_owned()
        };
        for finding in findings.iter().filter(|finding| finding.topic == topic) {
            let state = match finding.state {
                State::Ok => "ok",
                State::Limited => "limited",
                State::Missing => "missing",
                State::Failed => "FAILED",
            };
            let found = ports::indented(width + 13, &finding.found);
            text += &format!("  {state:7}  {:width$}  {}\n", finding.name, found.trim());
            if let Some(advice) = &finding.advice {
                text += &ports::indented(width + 13, &format!("try {advice}"));
            }
        }
    }
    text + "\nInterfaces and the ports that work on them: squall ports\n"
}
