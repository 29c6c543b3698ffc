//! `squall ports`: lists interfaces and kinds of ports.

use std::process::ExitCode;

use squall::Error;
use squall_machine::{
    kinds::{KINDS, Kind},
    listing::{Listed, Listing, state, xdp_mode},
};
use squall_port_linux::{InterfaceInfo, Permissions};
use squall_report::render::{human, table::wrap};
use squall_units::Nanos;

use crate::{
    output, probe,
    table::{Side, table},
};

/// List this machine's interfaces, the kinds of ports that work on them, and their speed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall ports
  squall ports eth1                  # all details of eth1
  squall ports --json -
  squall ports --probe               # the speed of each kind, in a private lab
  sudo squall ports --probe eth1     # the speed of each kind on eth1: sends frames that no host \
                        accepts
  squall lab up && squall lab exec -- squall ports")]
pub struct Args {
    /// Show all details of this interface only
    #[arg(value_name = "IFACE")]
    interface: Option<String>,
    /// Measure each kind that works: in a private lab, or on IFACE. There, it first prints the
    /// frames to be sent: from the interface's own address to that address, of EtherType 0x88B5, as
    /// fast as possible
    #[arg(long)]
    probe: bool,
    /// Let each measurement of --probe take this time
    #[arg(long, value_name = "TIME", default_value = "500ms", requires = "probe")]
    time: Nanos,
    /// Write the list as JSON; - is standard output
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
}

pub fn ports(args: &Args) -> Result<ExitCode, Error> {
    if args.probe {
        return probe::probe(args.interface.as_deref(), args.time, args.json.as_deref());
    }
    let listing = Listing::new(args.interface.as_deref())?;
    let value = listing.to_value();
    let Listing { interfaces, rights } = listing;
    if args.json.as_deref() != Some("-") {
        match args.interface {
            Some(_) => output::print(&interfaces.iter().map(details).collect::<String>()),
            None => output::print(&(overview(&interfaces) + "\n" + &process(&rights))),
        }
    }
    if let Some(name) = &args.json {
        output::write_to(name, &format!("{:#}\n", value))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists all interfaces.
pub fn list() -> Result<ExitCode, Error> {
    ports(&Args { interface: None, probe: false, time: Nanos::ZERO, json: None })
}

fn overview(listed: &[Listed]) -> String {
    let columns = [
        ("INTERFACE", Side::Left),
        ("DRIVER", Side::Left),
        ("STATE", Side::Left),
        ("MTU", Side::Right),
        ("SPEED", Side::Right),
        ("MAC", Side::Left),
        ("QUEUES", Side::Right),
        ("TIMESTAMPS", Side::Left),
        ("XDP", Side::Left),
        ("PORTS", Side::Left),
    ];
    let row = |Listed { interface: i, kinds }: &Listed| {
        let working: Vec<_> =
            kinds.iter().filter(|(_, works)| works.is_ok()).map(|(kind, _)| kind.name).collect();
        let (tx, rx) = queues(i);
        vec![
            i.name.clone(),
            dash(i.driver.clone()),
            state(i.state).to_owned(),
            i.mtu.to_string(),
            dash(i.speed_bps.map(|s| human::si(s as f64, "b/s")).unwrap_or_default()),
            dash(i.mac.map(|m| m.to_string()).unwrap_or_default()),
            format!("{tx}/{rx}"),
            timestamps(i).to_owned(),
            xdp(i).to_owned(),
            dash(working.join(" ")),
        ]
    };
    let rows: Vec<_> = listed.iter().map(row).collect();
    let mut text = table(&columns, &rows);
    // A reason shared by several interfaces is printed only once.
    let mut shown: Vec<String> = Vec::new();
    for Listed { interface, kinds } in listed {
        for (kind, why) in
            kinds.iter().filter_map(|(kind, works)| Some((kind, works.as_ref().err()?)))
        {
            let general = format!("{}{}", kind.name, why.replace(&interface.name, ""));
            if !shown.contains(&general) {
                text += &format!("\n{}\n", reason(kind, &interface.name, why));
                shown.push(general);
            }
        }
    }
    text += "\nQUEUES: sending/receiving. XDP: where programs run. Details: squall ports IFACE. \
             Addresses of ports:\n";
    let width = KINDS.iter().map(|kind| kind.address.len()).max().unwrap_or(0);
    for kind in KINDS {
        text += &format!("  {:width$}  {}\n", kind.address, kind.what);
        if let Err(why) = (kind.here)() {
            text += &indented(width + 4, &format!("not here: {why}"));
        }
    }
    text
}

/// Lines of text, wrapped and indented by `indent`.
pub fn indented(indent: usize, text: &str) -> String {
    let (width, _) = output::look(false, output::WIDTH);
    let lines = text.lines().flat_map(|line| wrap(line.trim(), width.saturating_sub(indent), 2));
    lines.map(|line| format!("{:indent$}{line}\n", "")).collect()
}

/// Prefixes a reason with the port's address, unless it already starts with that.
fn reason(kind: &Kind, interface: &str, why: &str) -> String {
    let address = format!("{}:{interface}", kind.name);
    if why.starts_with(&address) { why.to_owned() } else { format!("{address}: {why}") }
}

/// Permissions of this process, which may explain why a port cannot be opened.
fn process(rights: &Permissions) -> String {
    let capabilities: Vec<_> = rights.names().collect();
    let where_from = if rights.user_namespace { " of its own namespace (a lab)" } else { "" };
    let memory =
        rights.memlock.map_or("without limit".into(), |octets| human::si(octets as f64, "B"));
    let mut text = format!(
        "This process: user {}{where_from}, capabilities {}, locked memory {memory}\n",
        rights.uid,
        if capabilities.is_empty() { "none".to_owned() } else { capabilities.join(" ") }
    );
    let (packets, programs) = (rights.packet_sockets(), rights.xdp_programs());
    let line = |what: &str, may: Result<(), String>| match may {
        Ok(()) => format!("  {what}: yes\n"),
        Err(why) => format!("  {what}: no, {why}\n"),
    };
    text += &line("packet sockets (af_packet)", packets);
    text += &line("XDP programs", programs);
    text + "Requirements of each kind: docs/reference/ports.md, docs/guide/permissions.md\n"
}

fn details(Listed { interface: i, kinds }: &Listed) -> String {
    let (tx, rx) = queues(i);
    let numa = i.numa_node.map(|n| format!(", NUMA node {n}")).unwrap_or_default();
    let bus = if i.bus.is_empty() { String::new() } else { format!(" at {}", i.bus) };
    let channels = i.channels.map(|c| {
        let each =
            |name: &str, now: u32, max: u32| (max > 0).then(|| format!("{name} {now} of {max}"));
        let list = [
            each("rx", c.rx, c.max_rx),
            each("tx", c.tx, c.max_tx),
            each("combined", c.combined, c.max_combined),
        ];
        format!(" (channels: {})", list.into_iter().flatten().collect::<Vec<_>>().join(", "))
    });
    let rss = if i.rss_entries > 0 {
        format!("over {} entries", i.rss_entries)
    } else {
        "not by the driver".into()
    };
    let on = |on: bool| -> Vec<String> {
        let wanted = i.offloads.iter().filter(|o| o.on == on && (on || !o.fixed));
        wanted
            .map(|o| format!("{}{}", o.name, if o.on && o.fixed { " (fixed)" } else { "" }))
            .collect()
    };
    let stamps = |hardware, software| match (hardware, software) {
        (true, _) => "hardware",
        (false, true) => "software",
        (false, false) => "none",
    };
    let t = &i.timestamping;
    let clock = t.clock.map(|n| format!(", clock /dev/ptp{n}")).unwrap_or_default();
    let mut lines = vec![
        ("driver", format!("{}{bus}{numa}", dash(i.driver.clone()))),
        ("state", state(i.state).to_owned()),
        ("mac", dash(i.mac.map(|m| m.to_string()).unwrap_or_default())),
        (
            "mtu",
            format!("{}{}", i.mtu, i.max_mtu.map(|m| format!(", at most {m}")).unwrap_or_default()),
        ),
        (
            "speed",
            i.speed_bps
                .map_or("unknown, or without meaning".into(), |s| human::si(s as f64, "b/s")),
        ),
        ("queues", format!("{tx} sending, {rx} receiving{}", channels.unwrap_or_default())),
        ("RSS", rss),
        ("offloads on", dash(on(true).join(", "))),
        ("offloads off", dash(on(false).join(", "))),
        (
            "timestamps",
            format!(
                "sending {}, receiving {}{clock}",
                stamps(t.hardware_tx, t.software_tx),
                stamps(t.hardware_rx, t.software_rx)
            ),
        ),
        ("XDP", xdp_details(i)),
    ];
    for (kind, works) in kinds {
        let text = match works {
            Ok(how) => format!("works: {how}"),
            Err(why) => {
                format!("no: {}", why.lines().map(str::trim).collect::<Vec<_>>().join(", "))
            }
        };
        lines.push((kind.name, text));
    }
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines =
        lines.iter().map(|(name, text)| format!("  {name:width$}  {text}\n")).collect::<String>();
    format!("{}\n{lines}", i.name)
}

fn xdp_details(i: &InterfaceInfo) -> String {
    let attached = i
        .xdp
        .programs
        .iter()
        .map(|(mode, id)| format!(", program {id} attached ({})", xdp_mode(*mode)));
    let attached: String = attached.collect();
    let Some(f) = i.xdp.features else {
        return format!("the kernel does not report the driver's XDP features{attached}");
    };
    let words = [
        (f.native, "native"),
        (f.redirect, "redirect"),
        (f.redirect_target, "redirect target"),
        (f.zero_copy, "zero-copy sockets"),
        (f.multi_buffer, "several buffers per frame"),
        (f.hardware, "in hardware"),
        (f.tx_timestamp, "transmit timestamps"),
        (f.tx_checksum, "transmit checksums"),
        (f.launch_time, "launch time"),
        (f.rx_timestamp, "receive timestamps"),
    ];
    let words: Vec<_> = words.into_iter().filter(|(has, _)| *has).map(|(_, word)| word).collect();
    let words = if words.is_empty() { "generic only".to_owned() } else { words.join(", ") };
    words + &attached
}

fn dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

/// Numbers of TX and RX queues. If the driver reports them, those in use.
fn queues(i: &InterfaceInfo) -> (u32, u32) {
    match i.channels {
        Some(c) if c.tx + c.rx + c.combined > 0 => (c.tx + c.combined, c.rx + c.combined),
        _ => (i.tx_queues, i.rx_queues),
    }
}

/// The best source of receive timestamps that is available.
fn timestamps(interface: &InterfaceInfo) -> &'static str {
    if interface.timestamping.hardware_rx { "hardware" } else { "kernel" }
}

/// The best attach mode for XDP programs that is available.
fn xdp(interface: &InterfaceInfo) -> &'static str {
    match interface.xdp.features {
        None => "?",
        Some(f) if f.zero_copy => "zero-copy",
        Some(f) if f.native => "native",
        Some(_) => "generic",
    }
}
