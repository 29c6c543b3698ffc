//! Properties of the machine's interfaces, for `squall ports` and for the facts of a port.

use std::io;

use squall_port::InterfaceCounters;
use squall_units::MacAddr;

use crate::{
    lab,
    netlink::{GenericNetlink, Link, Netlink, Xdp},
    ntuple::FlowRules,
    sys::Socket,
};

/// One network interface, in the network namespace of the calling thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceInfo {
    pub name: String,
    pub index: u32,
    /// `veth`, `virtio_net`, `ixgbe`, ...; empty if the driver does not report its name.
    pub driver: String,
    /// Bus address of the hardware: `0000:01:00.0`; empty for virtual interfaces.
    pub bus: String,
    /// NUMA node of the hardware; `None` without hardware, or on a machine with one node.
    pub numa_node: Option<u32>,
    /// Longest IP packet, octets; the Ethernet header adds 14.
    pub mtu: u32,
    /// The driver's limit for `mtu`.
    pub max_mtu: Option<u32>,
    /// Link speed; `None` if unknown, or for a virtual interface, which reports a fictitious one (a
    /// veth: 10 Gb/s).
    pub speed_bps: Option<u64>,
    pub mac: Option<MacAddr>,
    /// Number of queues that the kernel allocated; [`Channels`] has the number that the driver
    /// uses.
    pub tx_queues: u32,
    pub rx_queues: u32,
    /// Queues in use; `None` if the driver does not report them.
    pub channels: Option<Channels>,
    /// `None` if the driver does not report them.
    pub rings: Option<Rings>,
    pub pause: Option<Pause>,
    /// Entries of the table that spreads received flows over queues (RSS); 0: the driver has none.
    pub rss_entries: u32,
    /// How it spreads them; `None` if the driver does not report it.
    pub rss: Option<Rss>,
    /// Rules that choose the queue of a flow (`ethtool -n`); `None`: not supported.
    pub flow_rules: Option<FlowRules>,
    pub offloads: Vec<Offload>,
    pub state: InterfaceState,
    pub timestamping: Timestamping,
    pub xdp: Xdp,
    /// Whether frames start with an Ethernet header, as ports require.
    pub ethernet: bool,
    /// Whether this is one of the two interfaces of a lab.
    pub of_lab: bool,
    /// Whether a default route leads to the interface, or to an interface on top of it: users
    /// probably access this machine through it.
    pub default_route: bool,
    /// Totals over the interface's lifetime, for all programs that use it.
    pub counters: InterfaceCounters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceState {
    Down,
    /// Up, without a carrier.
    NoCarrier,
    Up,
}

/// Queues in use, and their maxima (`ethtool -l`, `ethtool -L`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    pub rx: u32,
    pub tx: u32,
    /// Queues that serve both directions, in addition to `rx` and `tx`.
    pub combined: u32,
    pub max_rx: u32,
    pub max_tx: u32,
    pub max_combined: u32,
}

/// Descriptors of each queue's ring, and their maxima (`ethtool -g`, `ethtool -G`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    pub rx: u32,
    pub tx: u32,
    pub max_rx: u32,
    pub max_tx: u32,
}

/// How a device spreads received flows over its queues (`ethtool -x`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rss {
    /// Number of queues in the table.
    pub queues: u32,
    /// `toeplitz`, `xor` or `crc32`; empty: another, or unknown.
    pub hash: &'static str,
    /// Whether both directions of a flow come to one queue: the hash of exchanged addresses and
    /// ports is the same.
    pub symmetric: bool,
}

impl Rss {
    /// Reads a struct ethtool_rxfh with its table and key: cmd, rss_context, indir_size, key_size,
    /// hfunc and input_xfrm (octets), reserved; then the table, a word for each entry, and the key.
    fn read(info: &[u32]) -> Option<Self> {
        const CONFIG: usize = 6;
        // enum RXH_XFRM_*: the first two make a hash symmetric by its input.
        const SYMMETRIC_INPUT: u8 = 3;
        let [hash, input, ..] = info.get(4)?.to_ne_bytes();
        let (entries, key) = (*info.get(2)? as usize, *info.get(3)? as usize);
        let table = info.get(CONFIG..)?.get(..entries)?;
        let rest = info[CONFIG + entries..].iter().flat_map(|word| word.to_ne_bytes());
        let key: Vec<u8> = rest.take(key).collect();
        // A key with a period of 16 bits, because addresses and ports are multiples of that (Woo
        // and Park, Scalable TCP Session Monitoring with Symmetric Receive-side Scaling, 2012).
        let periodic = key.len() > 2 && key.windows(3).all(|octets| octets[0] == octets[2]);
        let mut queues = table.to_vec();
        queues.sort_unstable();
        queues.dedup();
        // ETH_RSS_HASH_TOP, _XOR, _CRC32: a bit for each.
        let hash = match hash {
            1 => "toeplitz",
            2 => "xor",
            4 => "crc32",
            _ => "",
        };
        let by_input = input != u8::MAX && input & SYMMETRIC_INPUT != 0;
        let symmetric = hash == "xor" || by_input || hash == "toeplitz" && periodic;
        Some(Self { queues: queues.len() as u32, hash, symmetric })
    }
}

/// Flow control (`ethtool -a`; IEEE 802.3 annex 31B).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// Whether received pause frames stop sending.
    pub rx: bool,
    /// Whether the interface sends pause frames when it cannot receive.
    pub tx: bool,
}

/// Work on frames that the driver does, or the kernel on its behalf (`ethtool -k`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    pub name: &'static str,
    pub on: bool,
    /// Whether the offload cannot be switched on or off.
    pub fixed: bool,
}

/// Squall's names for offloads, each with the kernel's features: the offload counts as on if any of
/// them is on.
const OFFLOADS: [(&str, &[&str]); 12] = [
    ("tx_checksum", &["tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"]),
    ("rx_checksum", &["rx-checksum"]),
    ("tso", &["tx-tcp-segmentation", "tx-tcp6-segmentation"]),
    ("udp_segmentation", &["tx-udp-segmentation"]),
    ("gso", &["tx-generic-segmentation"]),
    ("gro", &["rx-gro"]),
    ("hw_gro", &["rx-gro-hw"]),
    ("lro", &["rx-lro"]),
    ("tx_vlan", &["tx-vlan-hw-insert"]),
    ("rx_vlan", &["rx-vlan-hw-parse"]),
    ("ntuple", &["rx-ntuple-filter"]),
    ("rx_hash", &["rx-hashing"]),
];

/// Timestamps that the driver supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamping {
    pub software_tx: bool,
    pub software_rx: bool,
    pub hardware_tx: bool,
    pub hardware_rx: bool,
    /// N of the clock /dev/ptpN that hardware timestamps come from.
    pub clock: Option<u32>,
}

/// All interfaces, by name.
pub fn list_interfaces() -> io::Result<Vec<InterfaceInfo>> {
    let ethtool = Ethtool::open()?;
    let netlink = Netlink::open()?;
    let links = netlink.links()?;
    let routed = with_those_below(netlink.default_routes()?, &links);
    let mut all: Vec<_> = links.iter().map(|link| describe(link, &ethtool)).collect();
    all.iter_mut()
        .for_each(|interface| interface.default_route = routed.contains(&interface.index));
    if let Some(netdev) = GenericNetlink::open("netdev") {
        all.iter_mut()
            .for_each(|interface| netdev.xdp_features(interface.index, &mut interface.xdp));
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Counters of an interface over its lifetime.
pub fn interface_counters(name: &str) -> io::Result<InterfaceCounters> {
    let links = Netlink::open()?.links()?;
    let link = links.into_iter().find(|link| link.name == name);
    Ok(link.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?.counters)
}

/// Switches generic receive offload on or off. With it a veth uses NAPI, and only then accepts
/// frames that its peer's XDP program redirects.
///
/// # Errors
/// Not permitted, or not supported by the driver.
pub fn set_gro(name: &str, on: bool) -> io::Result<()> {
    // struct ethtool_value: cmd, data.
    Ethtool::open()?.0.ethtool(name, &mut [ETHTOOL_SGRO, u32::from(on)])
}

/// Makes an interface send complete checksums and no GSO frames, so that what its peer receives is
/// what would be on a wire.
///
/// # Errors
/// As [`set_gro`].
pub(crate) fn set_tx_checksum_off(name: &str) -> io::Result<()> {
    // The kernel segments where a driver has no checksums.
    Ethtool::open()?.0.ethtool(name, &mut [ETHTOOL_STXCSUM, 0])
}

pub(crate) fn describe(link: &Link, ethtool: &Ethtool) -> InterfaceInfo {
    let (driver, bus) = ethtool.driver(&link.name).unwrap_or_default();
    let driver = if driver.is_empty() { link.kind.clone() } else { driver };
    // Only hardware has a real speed: an interface with a link kind is made by the kernel.
    let is_virtual = !link.kind.is_empty() || matches!(driver.as_str(), "tun" | "veth" | "dummy");
    InterfaceInfo {
        name: link.name.clone(),
        index: link.index,
        driver,
        numa_node: numa_node(&bus),
        bus,
        mtu: link.mtu,
        max_mtu: (link.max_mtu > 0).then_some(link.max_mtu),
        speed_bps: if is_virtual { None } else { ethtool.speed_bps(&link.name) },
        mac: link.mac,
        tx_queues: link.tx_queues,
        rx_queues: link.rx_queues,
        channels: ethtool.channels(&link.name),
        rings: ethtool.rings(&link.name),
        pause: ethtool.pause(&link.name),
        rss_entries: ethtool.rss_entries(&link.name).unwrap_or(0),
        rss: ethtool.rss(&link.name),
        flow_rules: FlowRules::of(&link.name),
        offloads: ethtool.offloads(&link.name).unwrap_or_default(),
        state: match link {
            link if !link.is_up() => InterfaceState::Down,
            link if !link.is_running() => InterfaceState::NoCarrier,
            _ => InterfaceState::Up,
        },
        timestamping: ethtool.timestamping(&link.name).unwrap_or_default(),
        xdp: link.xdp.clone(),
        ethernet: matches!(link.hardware, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK),
        of_lab: lab::is_alias(&link.alias),
        default_route: false,
        counters: link.counters,
    }
}

/// Adds the interfaces below those in `indexes`, which carry the same frames: members of a bridge
/// or bond, parent of a VLAN.
fn with_those_below(mut indexes: Vec<u32>, links: &[Link]) -> Vec<u32> {
    let mut at = 0;
    while let Some(&upper) = indexes.get(at) {
        let lower = links
            .iter()
            .find(|link| link.index == upper)
            .map(|link| link.lower)
            .filter(|&lower| lower != 0);
        let members =
            links.iter().filter(|link| link.master == upper && upper != 0).map(|link| link.index);
        for below in members.chain(lower).collect::<Vec<_>>() {
            if !indexes.contains(&below) {
                indexes.push(below);
            }
        }
        at += 1;
    }
    indexes
}

/// NUMA node of a PCI device. The device's path in sysfs, unlike that of the interface, is the same
/// in every network namespace.
fn numa_node(bus: &str) -> Option<u32> {
    if bus.is_empty() || bus.contains('/') {
        return None;
    }
    std::fs::read_to_string(format!("/sys/bus/pci/devices/{bus}/numa_node"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// The ethtool ioctl; like netlink, the socket stays in the namespace it was opened in.
pub(crate) struct Ethtool(Socket);

// linux/ethtool.h
const ETHTOOL_GDRVINFO: u32 = 3;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_GPAUSEPARAM: u32 = 0x12;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_SGRO: u32 = 0x2c;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GRSSH: u32 = 0x46;
const ETH_SS_FEATURES: u32 = 4;
const ETH_GSTRING_LEN: usize = 32;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;
const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;
const SPEED_UNKNOWN: u32 = u32::MAX;

impl Ethtool {
    pub fn open() -> io::Result<Self> {
        Socket::new(libc::AF_INET, libc::SOCK_DGRAM, 0).map(Self)
    }

    /// Driver and bus address.
    fn driver(&self, name: &str) -> Option<(String, String)> {
        // struct ethtool_drvinfo: cmd, driver[32], version[32], fw_version[32], bus_info[32], ...
        // 196 octets.
        let mut info = [0; 64];
        info[0] = ETHTOOL_GDRVINFO;
        self.0.ethtool(name, &mut info).ok()?;
        Some((text(&info[1..9]), text(&info[25..33])))
    }

    fn channels(&self, name: &str) -> Option<Channels> {
        // struct ethtool_channels: cmd, maxima of rx, tx, other, combined, then the current
        // numbers.
        let mut info = [0; 9];
        info[0] = ETHTOOL_GCHANNELS;
        self.0.ethtool(name, &mut info).ok()?;
        let [_, max_rx, max_tx, _, max_combined, rx, tx, _, combined] = info;
        Some(Channels { rx, tx, combined, max_rx, max_tx, max_combined })
    }

    fn rings(&self, name: &str) -> Option<Rings> {
        // struct ethtool_ringparam: cmd, maxima of rx, rx_mini, rx_jumbo, tx, then the current
        // numbers.
        let mut info = [0; 9];
        info[0] = ETHTOOL_GRINGPARAM;
        self.0.ethtool(name, &mut info).ok()?;
        let [_, max_rx, _, _, max_tx, rx, _, _, tx] = info;
        (max_rx > 0 || max_tx > 0).then_some(Rings { rx, tx, max_rx, max_tx })
    }

    fn pause(&self, name: &str) -> Option<Pause> {
        // struct ethtool_pauseparam: cmd, autoneg, rx_pause, tx_pause.
        let mut info = [ETHTOOL_GPAUSEPARAM, 0, 0, 0];
        self.0.ethtool(name, &mut info).ok()?;
        Some(Pause { rx: info[2] != 0, tx: info[3] != 0 })
    }

    fn rss_entries(&self, name: &str) -> Option<u32> {
        // struct ethtool_rxfh: cmd, rss_context, indir_size, key_size, ...; with sizes of 0 the
        // kernel returns the sizes.
        let mut info = [0; 8];
        info[0] = ETHTOOL_GRSSH;
        self.0.ethtool(name, &mut info).ok()?;
        Some(info[2])
    }

    fn rss(&self, name: &str) -> Option<Rss> {
        // As in `rss_entries`; the second call repeats the sizes.
        let mut sizes = [0; 8];
        sizes[0] = ETHTOOL_GRSSH;
        self.0.ethtool(name, &mut sizes).ok()?;
        let [_, _, entries, key, ..] = sizes;
        // Tables have at most some thousand entries; the limits bound the buffer for the answer.
        if entries == 0 || entries > 1 << 16 || key > 1 << 10 {
            return None;
        }
        let mut info = vec![0; 6 + entries as usize + key.div_ceil(4) as usize];
        (info[0], info[2], info[3]) = (ETHTOOL_GRSSH, entries, key);
        self.0.ethtool(name, &mut info).ok()?;
        Rss::read(&info)
    }

    fn offloads(&self, name: &str) -> Option<Vec<Offload>> {
        let names = self.feature_names(name)?;
        // struct ethtool_gfeatures: cmd, size, then for each block of 32 features: available,
        // requested, active, never_changed.
        let blocks = names.len().div_ceil(32);
        let mut info = vec![0; 2 + 4 * blocks];
        (info[0], info[1]) = (ETHTOOL_GFEATURES, blocks as u32);
        self.0.ethtool(name, &mut info).ok()?;
        let bit = |feature: usize, word: usize| {
            info[2 + feature / 32 * 4 + word] >> (feature % 32) & 1 == 1
        };
        let find = |kernels: &[&str]| -> Vec<usize> {
            kernels
                .iter()
                .filter_map(|kernel| names.iter().position(|name| name == kernel))
                .collect()
        };
        let offload = |(name, kernels): &(&'static str, &[&str])| {
            let features = find(kernels);
            let fixed = features.iter().all(|&f| bit(f, 3) || !bit(f, 0));
            Offload { name, on: features.iter().any(|&f| bit(f, 2)), fixed }
        };
        Some(OFFLOADS.iter().map(offload).collect())
    }

    /// Names of all features of this kernel, in bit order.
    fn feature_names(&self, name: &str) -> Option<Vec<String>> {
        // struct ethtool_sset_info: cmd, reserved, sset_mask (64 bits), a count for each requested
        // set.
        let mask = (1u64 << ETH_SS_FEATURES).to_ne_bytes();
        let (low, high) = mask.split_at(4);
        let word = |octets: &[u8]| u32::from_ne_bytes([octets[0], octets[1], octets[2], octets[3]]);
        let mut info = [ETHTOOL_GSSET_INFO, 0, word(low), word(high), 0];
        self.0.ethtool(name, &mut info).ok()?;
        // Kernels have some hundred features; the limit bounds the buffer for the answer.
        let count = usize::try_from(info[4]).ok().filter(|count| *count <= 4096)?;
        // struct ethtool_gstrings: cmd, string_set, len, then `len` strings of 32 octets.
        let words = ETH_GSTRING_LEN / 4;
        let mut strings = vec![0; 3 + words * count];
        (strings[0], strings[1], strings[2]) = (ETHTOOL_GSTRINGS, ETH_SS_FEATURES, info[4]);
        self.0.ethtool(name, &mut strings).ok()?;
        Some(strings[3..].chunks_exact(words).map(text).collect())
    }

    fn speed_bps(&self, name: &str) -> Option<u64> {
        // struct ethtool_link_settings: cmd, speed, ..., link_mode_masks_nwords at octet 15, 48
        // octets, then the masks. The first call returns the number of words per mask, negated; the
        // second must repeat it.
        let mut settings = [0u32; 12 + 3 * 128];
        settings[0] = ETHTOOL_GLINKSETTINGS;
        self.0.ethtool(name, &mut settings).ok()?;
        const WORDS_AT: usize = 15;
        let words = settings[WORDS_AT / 4].to_ne_bytes()[WORDS_AT % 4] as i8;
        if words >= 0 {
            return None;
        }
        settings.fill(0);
        settings[0] = ETHTOOL_GLINKSETTINGS;
        let mut word = [0; 4];
        word[WORDS_AT % 4] = words.unsigned_abs();
        settings[WORDS_AT / 4] = u32::from_ne_bytes(word);
        self.0.ethtool(name, &mut settings).ok()?;
        match settings[1] {
            0 | SPEED_UNKNOWN => None,
            megabits => Some(u64::from(megabits) * 1_000_000),
        }
    }

    fn timestamping(&self, name: &str) -> Option<Timestamping> {
        // struct ethtool_ts_info: cmd, so_timestamping, phc_index, tx_types, reserved[3],
        // rx_filters, reserved[3].
        let mut info = [0; 11];
        info[0] = ETHTOOL_GET_TS_INFO;
        self.0.ethtool(name, &mut info).ok()?;
        let has = |flag: u32| info[1] & flag != 0;
        Some(Timestamping {
            software_tx: has(libc::SOF_TIMESTAMPING_TX_SOFTWARE),
            software_rx: has(libc::SOF_TIMESTAMPING_RX_SOFTWARE),
            hardware_tx: has(libc::SOF_TIMESTAMPING_TX_HARDWARE),
            hardware_rx: has(libc::SOF_TIMESTAMPING_RX_HARDWARE),
            // -1 means that the device has no clock.
            clock: (info[2] as i32 >= 0).then_some(info[2]),
        })
    }
}

/// Decodes the C string that the driver wrote into these words.
fn text(words: &[u32]) -> String {
    let octets: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    String::from_utf8_lossy(octets.split(|&c| c == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer to ETHTOOL_GRSSH with this hash and input transformation.
    fn answer(hash: u8, input: u8, table: &[u32], key: &[u8]) -> Vec<u32> {
        let kind = u32::from_ne_bytes([hash, input, 0, 0]);
        let mut info = vec![ETHTOOL_GRSSH, 0, table.len() as u32, key.len() as u32, kind, 0];
        info.extend(table);
        let words = key.chunks(4).map(|part| {
            let mut word = [0; 4];
            word[..part.len()].copy_from_slice(part);
            u32::from_ne_bytes(word)
        });
        info.extend(words);
        info
    }

    #[test]
    fn a_table_names_its_queues_and_a_key_of_16_bits_is_symmetric() {
        let (table, key) = ([0, 1, 2, 3, 0, 1, 2, 3], [0x6d, 0x5a].repeat(20));
        let read = |hash, input, key: &[u8]| Rss::read(&answer(hash, input, &table, key)).unwrap();
        let symmetric = Rss { queues: 4, hash: "toeplitz", symmetric: true };
        assert_eq!(read(1, 0, &key), symmetric);
        let mut other = key.clone();
        other[39] ^= 1;
        assert_eq!(read(1, 0, &other), Rss { symmetric: false, ..symmetric });
        // Linux 6.8: symmetric by the hash's input, with any key. 0xff: not known.
        assert_eq!(read(1, 1, &other), symmetric);
        assert!(!read(1, 0xff, &other).symmetric);
        assert_eq!(read(2, 0, &other), Rss { hash: "xor", ..symmetric });
        assert_eq!(read(4, 0, &key), Rss { queues: 4, hash: "crc32", symmetric: false });
        let cut = answer(1, 0, &table, &key);
        assert_eq!(Rss::read(&cut[..6 + table.len() - 1]), None);
    }
}
