//! Features of a network card for high rates and exact times, and settings that disturb a
//! measurement.

use std::{
    fs,
    path::{Path, PathBuf},
};

use squall_port_linux::{
    InterfaceInfo, InterfaceState, XdpFeatures, af_packet::launch_discipline, list_interfaces,
};
use squall_report::render::human;

use crate::{Finding, State};

/// Drivers whose device stays with the kernel while DPDK uses it.
const SHARED_WITH_DPDK: [&str; 3] = ["mlx4_core", "mlx5_core", "mana"];
/// Drivers to which DPDK binds a device.
const FOR_DPDK: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

/// Examines the interface with this name, or the device with this PCI address (`0000:01:00.0`),
/// which may be bound to a driver of DPDK. Reads facts and changes nothing.
///
/// # Errors
/// If there is none, or if the interfaces cannot be listed.
pub fn examine_nic(name: &str) -> Result<Vec<Finding>, String> {
    let all = list_interfaces().map_err(|error| format!("cannot list the interfaces: {error}"))?;
    let address = pci_address(name);
    let found = all.iter().find(|one| one.name == name || one.bus == address);
    let bus = found.map_or(address.as_str(), |one| one.bus.as_str());
    let device = Device::at(Path::new("/sys/bus/pci/devices"), bus);
    if found.is_none() && device.is_none() {
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        return Err(format!(
            "no interface and no PCI device {name:?}\n  try one of: {}; or a PCI address \
             (0000:01:00.0)",
            names.join(", ")
        ));
    }
    let mut findings = Vec::new();
    if let Some(interface) = found {
        findings.extend(link(interface));
    }
    findings.extend(
        device.as_ref().map(|device| pci(device, found.and_then(|interface| interface.speed_bps))),
    );
    let node = found.and_then(|interface| interface.numa_node).or(device.as_ref().and_then(node));
    findings.push(numa(node));
    if let Some(interface) = found {
        findings.extend(queues(interface));
        findings.extend(times(interface));
        findings.extend(offloads(interface));
        findings.extend(xdp(interface));
    }
    findings.extend(dpdk(found, device.as_ref()));
    findings.push(huge_pages(node));
    Ok(findings)
}

/// A PCI address as sysfs spells it: lspci leaves out domain 0.
fn pci_address(name: &str) -> String {
    let domain = if name.matches(':').count() == 1 { "0000:" } else { "" };
    domain.to_owned() + &name.to_ascii_lowercase()
}

/// A PCI device in sysfs.
#[derive(Debug, PartialEq)]
struct Device {
    folder: PathBuf,
    driver: String,
    /// GT/s and number of lanes: now, and at most.
    link: Option<(Lanes, Lanes)>,
    has_iommu: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Lanes {
    gt_per_s: f64,
    width: u32,
}

impl Lanes {
    fn parse(speed: &str, width: &str) -> Option<Self> {
        let gt_per_s = speed.split_whitespace().next()?.parse().ok()?;
        let width = width.trim().parse().ok().filter(|width| (1..=32).contains(width))?;
        Some(Self { gt_per_s, width })
    }

    /// Bits per second that the lanes carry, less their line code (8b/10b up to 5 GT/s, then
    /// 128b/130b): more than a device can use, because each packet on the bus has a header.
    fn bps(self) -> f64 {
        let code = if self.gt_per_s > 5.0 { 128.0 / 130.0 } else { 0.8 };
        self.gt_per_s * 1e9 * code * f64::from(self.width)
    }

    fn text(self) -> String {
        let rate = human::si(self.bps(), "b/s");
        format!("{} GT/s x{}, {rate}", self.gt_per_s, self.width)
    }
}

impl Device {
    fn at(devices: &Path, bus: &str) -> Option<Self> {
        // The name becomes a part of a path.
        if bus.is_empty() || !bus.bytes().all(|c| c.is_ascii_alphanumeric() || b":.".contains(&c)) {
            return None;
        }
        let folder = devices.join(bus);
        if !folder.join("vendor").exists() {
            return None;
        }
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let lanes = |of: &str| {
            Lanes::parse(&read(&format!("{of}_link_speed")), &read(&format!("{of}_link_width")))
        };
        let driver = fs::read_link(folder.join("driver")).unwrap_or_default();
        Some(Self {
            driver: driver.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            link: lanes("current").zip(lanes("max")),
            has_iommu: folder.join("iommu_group").exists(),
            folder,
        })
    }
}

fn node(device: &Device) -> Option<u32> {
    // -1 means that the machine has one node.
    fs::read_to_string(device.folder.join("numa_node")).ok()?.trim().parse().ok()
}

fn link(interface: &InterfaceInfo) -> Vec<Finding> {
    let name = &interface.name;
    let mtu = match interface.max_mtu {
        Some(most) => format!("MTU {} of at most {most}", interface.mtu),
        None => format!("MTU {}", interface.mtu),
    };
    let known = [name, &interface.driver, &interface.bus, &mtu].map(String::as_str);
    let known: Vec<&str> = known.into_iter().filter(|text| !text.is_empty()).collect();
    let text = known.join(", ");
    let state = match interface.state {
        InterfaceState::Up => Finding::ok("link", "interface", text),
        InterfaceState::Down => Finding::ok("link", "interface", text + ", down")
            .advised(State::Limited, format!("sudo ip link set {name} up")),
        InterfaceState::NoCarrier => Finding::ok("link", "interface", text + ", no carrier")
            .advised(State::Limited, "the cable, the module, and the port at the other end"),
    };
    let speed = match interface.speed_bps {
        Some(bps) => human::si(bps as f64, "b/s"),
        None => "not reported".into(),
    };
    let mut all = vec![state, Finding::ok("link", "speed", speed)];
    if interface.default_route {
        all.push(Finding::ok("link", "default route", "leads through this interface").advised(
            State::Limited,
            "another interface: a test may cut the connection to this machine",
        ));
    }
    match interface.pause {
        Some(pause) if pause.rx || pause.tx => {
            let which = match (pause.rx, pause.tx) {
                (true, true) => "obeys and sends pause frames",
                (true, false) => "obeys pause frames",
                _ => "sends pause frames",
            };
            let advice = format!(
                "sudo ethtool -A {name} autoneg off rx off tx off, if the device under test must \
                 not slow the sender, or hide its loss"
            );
            all.push(Finding::ok("link", "flow control", which).advised(State::Limited, advice));
        }
        Some(_) => all.push(Finding::ok("link", "flow control", "off")),
        None => {}
    }
    all
}

fn pci(device: &Device, speed_bps: Option<u64>) -> Finding {
    let Some((now, most)) = device.link else {
        return Finding::ok("link", "PCI Express", "no link reported (a virtual device)");
    };
    let finding = Finding::ok("link", "PCI Express", now.text());
    let carries = |lanes: Lanes| speed_bps.is_none_or(|speed| lanes.bps() > speed as f64);
    if !carries(now) && carries(most) {
        return finding.advised(
            State::Limited,
            format!("a slot with the card's own link ({}): this one is slower", most.text()),
        );
    }
    match carries(now) {
        true => finding,
        false => finding.advised(State::Limited, "a lower rate than the port's: the bus is slower"),
    }
}

fn numa(node: Option<u32>) -> Finding {
    let Some(node) = node else {
        return Finding::ok("queues", "NUMA node", "none: all CPUs are equally near");
    };
    let path = format!("/sys/devices/system/node/node{node}/cpulist");
    let cpus = fs::read_to_string(path).unwrap_or_default();
    let text = format!("node {node}, near CPUs {}", cpus.trim());
    Finding::ok("queues", "NUMA node", text)
        .advised(State::Ok, format!("--cpus with some of {}, for this port", cpus.trim()))
}

fn queues(interface: &InterfaceInfo) -> Vec<Finding> {
    let name = &interface.name;
    let mut all = Vec::new();
    all.push(match interface.channels {
        Some(queues) => {
            let used = [queues.rx + queues.combined, queues.tx + queues.combined];
            let most = [queues.max_rx + queues.max_combined, queues.max_tx + queues.max_combined];
            let text = format!(
                "{} to receive (of {}), {} to send (of {})",
                used[0], most[0], used[1], most[1]
            );
            Finding::ok("queues", "queues", text)
        }
        None => {
            let text =
                format!("{} to receive, {} to send", interface.rx_queues, interface.tx_queues);
            Finding::ok("queues", "queues", text)
        }
    });
    if let Some(rings) = interface.rings {
        let text = format!(
            "{} to receive (of {}), {} to send (of {})",
            rings.rx, rings.max_rx, rings.tx, rings.max_tx
        );
        let finding = Finding::ok("queues", "descriptors", text);
        all.push(match rings.rx < rings.max_rx {
            true => finding.advised(
                State::Limited,
                format!(
                    "sudo ethtool -G {name} rx {}, to lose fewer frames in bursts",
                    rings.max_rx
                ),
            ),
            false => finding,
        });
    }
    all.push(match interface.rss_entries {
        0 => Finding::ok("queues", "RSS", "no table reported").advised(
            State::Missing,
            "one receive queue, or rules (ethtool -N): flows cannot be spread over queues",
        ),
        entries => {
            let mut text = format!("a table of {entries} entries");
            if let Some(rss) = interface.rss {
                let queues = if rss.queues == 1 { "queue" } else { "queues" };
                text += &format!(" for {} {queues}", rss.queues);
                if !rss.hash.is_empty() {
                    text += &format!(", {}", rss.hash);
                }
                text += if rss.symmetric { ", both directions of a flow to one queue" } else { "" };
            }
            let used = interface.channels.map_or(0, |queues| queues.rx + queues.combined);
            let finding = Finding::ok("queues", "RSS", text);
            match interface.rss {
                Some(rss) if rss.queues < used => finding.advised(
                    State::Limited,
                    format!(
                        "sudo ethtool -X {name} equal {used}: {} of {used} queues receive",
                        rss.queues
                    ),
                ),
                _ => finding,
            }
        }
    });
    all.push(flow_rules(interface));
    all
}

/// Rules of the card that choose the queue of a frame.
fn flow_rules(interface: &InterfaceInfo) -> Finding {
    let name = &interface.name;
    let supported = offload(interface, "queues", "flow rules", &["ntuple"], "ethtool -N");
    let Some(rules) = &interface.flow_rules else { return supported };
    let room = rules.room.map_or(String::new(), |room| format!(" of {room}"));
    let set = format!("{}{room} set", rules.set);
    if !rules.stale.is_empty() {
        let stale: Vec<String> = rules.stale.iter().map(u32::to_string).collect();
        let commands = stale.iter().map(|at| format!("sudo ethtool -N {name} delete {at}"));
        let commands = commands.collect::<Vec<_>>().join("; ");
        let found = format!("{set}; left by a killed run of Squall: {}", stale.join(", "));
        return Finding::ok("queues", "flow rules", found).advised(State::Limited, commands);
    }
    if rules.set > 0 {
        return Finding::ok("queues", "flow rules", set).advised(
            State::Limited,
            format!("ethtool -n {name}: they choose queues in place of RSS, or drop frames"),
        );
    }
    // Some drivers have a table, but no such offload.
    match (supported.state, rules.room) {
        (State::Ok, _) | (State::Missing, Some(_)) => {
            Finding::ok("queues", "flow rules", set + "; used by af_xdp ports with steer")
        }
        _ => supported,
    }
}

/// Whether one of these offloads is on, or can be switched on.
fn offload(
    interface: &InterfaceInfo,
    topic: &'static str,
    what: &'static str,
    names: &[&str],
    by: &str,
) -> Finding {
    let mut those = interface.offloads.iter().filter(|one| names.contains(&one.name));
    if those.clone().any(|one| one.on) {
        return Finding::ok(topic, what, format!("on ({by})"));
    }
    let keys: Vec<&str> =
        those.clone().filter(|one| !one.fixed).filter_map(|one| key(one.name)).collect();
    if those.all(|one| one.fixed) || keys.is_empty() {
        return Finding { state: State::Missing, ..Finding::ok(topic, what, "not by this driver") };
    }
    let on = keys.iter().map(|key| format!(" {key} on")).collect::<String>();
    Finding::ok(topic, what, "off")
        .advised(State::Limited, format!("sudo ethtool -K {}{on}", interface.name))
}

/// The name of an offload for `ethtool -K`.
fn key(name: &str) -> Option<&'static str> {
    Some(match name {
        "tx_checksum" => "tx",
        "rx_checksum" => "rx",
        "tso" => "tso",
        "udp_segmentation" => "tx-udp-segmentation",
        "gro" => "gro",
        "hw_gro" => "rx-gro-hw",
        "lro" => "lro",
        "rx_vlan" => "rxvlan",
        "ntuple" => "ntuple",
        _ => return None,
    })
}

fn features(interface: &InterfaceInfo) -> XdpFeatures {
    interface.xdp.features.unwrap_or_default()
}

fn times(interface: &InterfaceInfo) -> Vec<Finding> {
    let times = interface.timestamping;
    let clock = times.clock.map_or(String::new(), |clock| format!(", clock /dev/ptp{clock}"));
    let features = features(interface);
    vec![
        supported(
            "time",
            "arrival stamps",
            times.hardware_rx,
            format!("by the hardware{clock}; used by dpdk ports (timestamps=hardware)"),
            "software stamps: they include the time until the driver polls",
        ),
        supported(
            "time",
            "arrival stamps in XDP",
            // A veth has stamps for programs, but no clock that makes them.
            features.rx_timestamp && times.clock.is_some(),
            "af_xdp ports with timestamps=hardware".into(),
            "dpdk with timestamps=hardware, if the card stamps",
        ),
        supported(
            "time",
            "departure stamps",
            features.tx_timestamp,
            "af_xdp ports with tx_stamps".into(),
            "dpdk or a second port that receives, to measure departures",
        ),
        supported(
            "time",
            "launch time",
            features.launch_time,
            "af_xdp ports with launch=MICROSECONDS".into(),
            "xdp_live, the most exact in software, or a card with launch time (igc, mlx5 in dpdk)",
        ),
        match launch_discipline(interface.index) {
            Some(discipline) => Finding::ok(
                "time",
                "launch times in the kernel",
                format!("kept by {discipline}: af_packet ports with launch=MICROSECONDS"),
            ),
            None => Finding::ok("time", "launch times in the kernel", "no fq or etf").advised(
                State::Missing,
                format!(
                    "sudo tc qdisc replace dev {} root fq, for even gaps of slow streams at little \
                     CPU time",
                    interface.name
                ),
            ),
        },
    ]
}

fn supported(
    topic: &'static str,
    name: &'static str,
    there: bool,
    how: String,
    advice: &str,
) -> Finding {
    match there {
        true => Finding::ok(topic, name, how),
        false => Finding::ok(topic, name, "not by this driver").advised(State::Missing, advice),
    }
}

fn offloads(interface: &InterfaceInfo) -> Vec<Finding> {
    let name = &interface.name;
    // With `ethtool -K`, as far as the driver lets them be switched off.
    let on = |wanted: &str| {
        interface.offloads.iter().any(|one| one.name == wanted && one.on && !one.fixed)
    };
    let mut all = vec![
        offload(interface, "offloads", "checksums", &["tx_checksum"], "sent checksums"),
        offload(
            interface,
            "offloads",
            "segmentation",
            &["tso", "udp_segmentation"],
            "GSO frames of af_packet are cut by the driver",
        ),
    ];
    let merging: Vec<&str> = ["gro", "hw_gro", "lro"].into_iter().filter(|one| on(one)).collect();
    if !merging.is_empty() {
        let keys = merging.iter().filter_map(|one| key(one));
        let off = keys.map(|key| format!(" {key} off")).collect::<String>();
        all.push(Finding::ok("offloads", "merging", format!("{} on", merging.join(", "))).advised(
            State::Limited,
            format!("sudo ethtool -K {name}{off}, if arrival times of TCP segments matter"),
        ));
    }
    if on("rx_vlan") {
        all.push(Finding::ok("offloads", "VLAN tags", "removed from received frames").advised(
            State::Limited,
            format!("sudo ethtool -K {name} rxvlan off, for tagged frames on af_xdp ports"),
        ));
    }
    all
}

fn xdp(interface: &InterfaceInfo) -> Vec<Finding> {
    let Some(features) = interface.xdp.features else {
        return vec![Finding::ok("xdp", "features", "not reported by this kernel").advised(
            State::Missing,
            "Linux 6.3 or later, or squall ports --probe, which tries what works",
        )];
    };
    let mut all = vec![
        supported(
            "xdp",
            "in the driver",
            features.native,
            "af_xdp ports receive before the stack".into(),
            "af_packet; af_xdp works in the stack (mode=generic), and is slower",
        ),
        supported(
            "xdp",
            "zero copy",
            features.zero_copy,
            "af_xdp ports send and receive without copies".into(),
            "xdp_live to send, dpdk for both: af_xdp copies here",
        ),
        supported(
            "xdp",
            "sending programs",
            features.redirect_target,
            "xdp_live ports work".into(),
            "af_xdp or af_packet; a veth takes frames while its peer polls (ethtool -K PEER gro on)",
        ),
        supported(
            "xdp",
            "jumbo frames",
            features.multi_buffer,
            "in several buffers".into(),
            "af_packet for frames longer than a page",
        ),
    ];
    if let Some((mode, id)) = interface.xdp.programs.first() {
        all.push(
            Finding::ok("xdp", "programs", format!("{mode:?}, id {id}").to_lowercase()).advised(
                State::Limited,
                format!(
                    "sudo bpftool prog show id {id}: af_xdp cannot receive beside another program"
                ),
            ),
        );
    }
    all
}

fn dpdk(interface: Option<&InterfaceInfo>, device: Option<&Device>) -> Vec<Finding> {
    let Some(device) = device else {
        let driver = interface.map_or("", |interface| interface.driver.as_str());
        return vec![
            Finding::ok("dpdk", "device", format!("none on PCI ({driver})"))
                .advised(State::Missing, "dpdk:vdev=net_af_xdp0;iface=..., or af_xdp"),
        ];
    };
    let bus = device.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let driver = device.driver.as_str();
    let bound = if SHARED_WITH_DPDK.contains(&driver) {
        Finding::ok("dpdk", "driver", format!("{driver}, shared with the kernel: dpdk:{bus}"))
    } else if FOR_DPDK.contains(&driver) {
        Finding::ok("dpdk", "driver", format!("{driver}: dpdk:{bus}"))
    } else {
        let found = if driver.is_empty() { "none" } else { driver };
        Finding::ok("dpdk", "driver", found).advised(
            State::Limited,
            format!("sudo dpdk-devbind.py -b vfio-pci {bus}, for dpdk ports; the kernel loses it"),
        )
    };
    let iommu = match device.has_iommu {
        true => Finding::ok("dpdk", "IOMMU", "on"),
        // Only vfio needs it.
        false if SHARED_WITH_DPDK.contains(&driver) => Finding::ok("dpdk", "IOMMU", "off"),
        false => Finding::ok("dpdk", "IOMMU", "off").advised(
            State::Limited,
            "intel_iommu=on or amd_iommu=on with iommu=pt on the kernel's command line",
        ),
    };
    vec![bound, iommu]
}

/// Free huge pages of the node, which DPDK takes, by size.
fn huge_pages(node: Option<u32>) -> Finding {
    let root = match node {
        Some(node) => PathBuf::from(format!("/sys/devices/system/node/node{node}/hugepages")),
        None => PathBuf::from("/sys/kernel/mm/hugepages"),
    };
    let free = |(kib, size): (u64, &str)| {
        let path = root.join(format!("hugepages-{kib}kB/free_hugepages"));
        let pages = fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()?;
        (pages > 0).then(|| format!("{} of {size}", human::counted(pages, "free page")))
    };
    let sizes = [(2048, "2 MiB"), (1 << 20, "1 GiB")];
    let all: Vec<String> = sizes.into_iter().filter_map(free).collect();
    let near = node.map_or(String::new(), |node| format!(" on node {node}"));
    match all.is_empty() {
        true => Finding::ok("dpdk", "huge pages", format!("none free{near}"))
            .advised(State::Limited, "sudo sysctl vm.nr_hugepages=1024, for dpdk ports"),
        false => Finding::ok("dpdk", "huge pages", all.join(", ") + &near),
    }
}

#[cfg(test)]
mod tests {
    use squall_port_linux::{Channels, FlowRules, Offload, Pause, Rings, Rss};

    use super::*;

    fn lo() -> InterfaceInfo {
        let all = list_interfaces().expect("a list");
        all.into_iter().find(|one| one.name == "lo").expect("lo")
    }

    fn named<'a>(findings: &'a [Finding], name: &str) -> &'a Finding {
        findings.iter().find(|one| one.name == name).expect(name)
    }

    #[test]
    fn a_bus_that_is_slower_than_the_port_is_a_limit() {
        let lanes = |speed, width| Lanes::parse(speed, width).expect("lanes");
        let (narrow, whole) = (lanes("8.0 GT/s PCIe\n", "8\n"), lanes("16.0 GT/s PCIe", "16"));
        assert!((narrow.bps() - 63.0e9).abs() < 0.1e9 && (whole.bps() - 252.1e9).abs() < 0.1e9);
        assert!((lanes("2.5 GT/s", "4").bps() - 8e9).abs() < 1.0);
        assert_eq!([Lanes::parse("Unknown", "8"), Lanes::parse("8.0 GT/s", "0")], [None, None]);
        let device = |now, most| Device {
            folder: PathBuf::new(),
            driver: String::new(),
            link: Some((now, most)),
            has_iommu: false,
        };
        let state = |now, most, speed| {
            let finding = pci(&device(now, most), Some(speed));
            (finding.state, finding.advice.unwrap_or_default())
        };
        let (limited, advice) = state(narrow, whole, 100_000_000_000);
        assert!(limited == State::Limited && advice.contains("16 GT/s x16"), "{advice}");
        assert_eq!(state(whole, whole, 100_000_000_000).0, State::Ok);
        assert!(state(narrow, narrow, 100_000_000_000).1.contains("lower rate"));
    }

    #[test]
    fn settings_that_disturb_have_the_command_that_changes_them() {
        let on = |name| Offload { name, on: true, fixed: false };
        let card = InterfaceInfo {
            pause: Some(Pause { rx: true, tx: false }),
            rings: Some(Rings { rx: 512, tx: 512, max_rx: 8192, max_tx: 8192 }),
            offloads: vec![
                on("gro"),
                on("rx_vlan"),
                Offload { name: "ntuple", on: false, fixed: false },
                Offload { name: "tso", on: false, fixed: true },
                Offload { name: "lro", on: true, fixed: true },
            ],
            rss_entries: 128,
            ..lo()
        };
        let all: Vec<Finding> =
            [link(&card), queues(&card), offloads(&card)].into_iter().flatten().collect();
        for (name, advice) in [
            ("flow control", "ethtool -A lo autoneg off rx off tx off"),
            ("descriptors", "ethtool -G lo rx 8192"),
            ("flow rules", "ethtool -K lo ntuple on"),
            ("merging", "ethtool -K lo gro off"),
            ("VLAN tags", "ethtool -K lo rxvlan off"),
        ] {
            let finding = named(&all, name);
            assert_eq!(finding.state, State::Limited, "{finding:?}");
            assert!(finding.advice.as_ref().is_some_and(|a| a.contains(advice)), "{finding:?}");
        }
        assert_eq!(named(&all, "segmentation").state, State::Missing);
        assert_eq!(named(&all, "RSS").state, State::Ok);
    }

    #[test]
    fn stamps_for_programs_need_a_clock() {
        let features = XdpFeatures { rx_timestamp: true, ..XdpFeatures::default() };
        let clock = |clock| {
            let mut card = lo();
            card.xdp.features = Some(features);
            card.timestamping.clock = clock;
            named(&times(&card), "arrival stamps in XDP").state
        };
        assert_eq!([clock(None), clock(Some(0))], [State::Missing, State::Ok]);
    }

    #[test]
    fn queues_without_flows_and_rules_are_found() {
        let rss = Rss { queues: 2, hash: "toeplitz", symmetric: true };
        let channels = Channels { combined: 8, max_combined: 8, ..Channels::default() };
        let card = InterfaceInfo {
            rss_entries: 128,
            rss: Some(rss),
            flow_rules: Some(FlowRules { set: 3, room: Some(1024), stale: vec![] }),
            channels: Some(channels),
            ..lo()
        };
        let all = queues(&card);
        let found = named(&all, "RSS");
        let wanted = "128 entries for 2 queues, toeplitz, both directions of a flow to one queue";
        assert!(found.found.contains(wanted) && found.state == State::Limited, "{found:?}");
        let advice = "ethtool -X lo equal 8: 2 of 8";
        assert!(found.advice.as_ref().is_some_and(|a| a.contains(advice)), "{found:?}");
        let found = named(&all, "flow rules");
        assert!(found.found == "3 of 1024 set" && found.state == State::Limited, "{found:?}");
        let rules = |set, stale| {
            let ntuple = Offload { name: "ntuple", on: true, fixed: false };
            let flow_rules = Some(FlowRules { set, room: Some(1024), stale });
            super::flow_rules(&InterfaceInfo { offloads: vec![ntuple], flow_rules, ..card.clone() })
        };
        let left = rules(2, vec![1022, 1023]);
        let wanted = "2 of 1024 set; left by a killed run of Squall: 1022, 1023";
        let commands = "sudo ethtool -N lo delete 1022; sudo ethtool -N lo delete 1023";
        assert_eq!((left.found.as_str(), left.advice.as_deref()), (wanted, Some(commands)));
        let free = rules(0, vec![]);
        assert!(free.found.contains("0 of 1024 set") && free.state == State::Ok, "{free:?}");
        let whole = InterfaceInfo { rss: Some(Rss { queues: 8, ..rss }), ..card };
        assert_eq!(named(&queues(&whole), "RSS").state, State::Ok);
    }

    #[test]
    fn a_device_is_read_from_sysfs_by_its_address() {
        let root = std::env::temp_dir().join(format!("squall-nic-{}", std::process::id()));
        let device = root.join("0000:01:00.0");
        fs::create_dir_all(device.join("iommu_group")).expect("a folder");
        for (name, text) in [
            ("vendor", "0x15b3"),
            ("current_link_speed", "8.0 GT/s PCIe"),
            ("current_link_width", "8"),
            ("max_link_speed", "16.0 GT/s PCIe"),
            ("max_link_width", "16"),
            ("numa_node", "1"),
        ] {
            fs::write(device.join(name), text).expect("a file");
        }
        std::os::unix::fs::symlink("/sys/bus/pci/drivers/vfio-pci", device.join("driver"))
            .expect("a link");
        let found = Device::at(&root, "0000:01:00.0").expect("a device");
        assert_eq!(
            (found.driver.as_str(), found.has_iommu, node(&found)),
            ("vfio-pci", true, Some(1))
        );
        assert_eq!(found.link.map(|(now, most)| (now.width, most.width)), Some((8, 16)));
        let of_dpdk = dpdk(None, Some(&found));
        assert_eq!(named(&of_dpdk, "driver").found, "vfio-pci: dpdk:0000:01:00.0");
        assert_eq!([Device::at(&root, "0000:02:00.0"), Device::at(&root, "../x")], [None, None]);
        assert_eq!(["3B:00.1", "0001:3b:00.1"].map(pci_address), ["0000:3b:00.1", "0001:3b:00.1"]);
        fs::remove_dir_all(root).expect("it goes");
    }

    #[test]
    fn a_name_that_is_no_card_is_refused_with_those_that_are_there() {
        let why = examine_nic("nosuch0").expect_err("none");
        assert!(why.contains("nosuch0") && why.contains("lo"), "{why}");
        assert!(examine_nic("lo").is_ok_and(|found| found.iter().any(|one| one.topic == "dpdk")));
    }
}
