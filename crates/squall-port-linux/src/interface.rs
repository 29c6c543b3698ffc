//! What the machine's interfaces are, for `squall ports` and for the facts of a port.

use std::io;

use squall_units::MacAddr;

use crate::{
    netlink::{Link, Netlink},
    sys::Socket,
};

/// One network interface, in the network namespace of the calling thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceInfo {
    pub name: String,
    /// `veth`, `virtio_net`, `ixgbe`; empty when the driver does not say.
    pub driver: String,
    /// Octets of an IP packet; the frame has 14 more.
    pub mtu: u32,
    /// `None`: unknown, or a virtual interface, whose speed means nothing (a veth says 10 Gb/s).
    pub speed_bps: Option<u64>,
    pub mac: Option<MacAddr>,
    pub tx_queues: u32,
    pub rx_queues: u32,
    pub state: InterfaceState,
    pub timestamping: Timestamping,
    /// Frames start with an Ethernet header: af_packet ports need that.
    pub ethernet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceState {
    Down,
    /// Up, but there is nobody at the other end.
    NoCarrier,
    Up,
}

/// Which instants the driver can stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamping {
    pub software_tx: bool,
    pub software_rx: bool,
    pub hardware_tx: bool,
    pub hardware_rx: bool,
}

/// All of them, by name.
pub fn list_interfaces() -> io::Result<Vec<InterfaceInfo>> {
    let ethtool = Ethtool::open()?;
    let mut all: Vec<_> = Netlink::open()?.links()?.iter().map(|link| describe(link, &ethtool)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

pub(crate) fn describe(link: &Link, ethtool: &Ethtool) -> InterfaceInfo {
    let driver = ethtool.driver(&link.name).unwrap_or_else(|| link.kind.clone());
    // Of hardware alone: a kind means that the kernel made the interface up.
    let is_virtual = !link.kind.is_empty() || matches!(driver.as_str(), "tun" | "veth" | "dummy");
    InterfaceInfo {
        name: link.name.clone(),
        driver,
        mtu: link.mtu,
        speed_bps: if is_virtual { None } else { ethtool.speed_bps(&link.name) },
        mac: link.mac,
        tx_queues: link.tx_queues,
        rx_queues: link.rx_queues,
        state: match link {
            link if !link.is_up() => InterfaceState::Down,
            link if !link.is_running() => InterfaceState::NoCarrier,
            _ => InterfaceState::Up,
        },
        timestamping: ethtool.timestamping(&link.name).unwrap_or_default(),
        ethernet: matches!(link.hardware, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK),
    }
}

/// The ethtool ioctl; like netlink, it stays in the namespace it was opened in.
pub(crate) struct Ethtool(Socket);

// linux/ethtool.h
const ETHTOOL_GDRVINFO: u32 = 3;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;
const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;
const SPEED_UNKNOWN: u32 = u32::MAX;

impl Ethtool {
    pub fn open() -> io::Result<Self> {
        Socket::new(libc::AF_INET, libc::SOCK_DGRAM, 0).map(Self)
    }

    fn driver(&self, name: &str) -> Option<String> {
        // struct ethtool_drvinfo: cmd, driver[32], ... 196 octets.
        let mut info = [0; 64];
        info[0] = ETHTOOL_GDRVINFO;
        self.0.ethtool(name, &mut info).ok()?;
        let octets: Vec<u8> = info[1..9].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let driver = String::from_utf8_lossy(octets.split(|&c| c == 0).next()?).into_owned();
        (!driver.is_empty()).then_some(driver)
    }

    fn speed_bps(&self, name: &str) -> Option<u64> {
        // struct ethtool_link_settings: cmd, speed, ..., link_mode_masks_nwords at octet 15, 48 octets, then the masks.
        // The first call says, as a negative number, how many words a mask has; the second must say it back.
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
        // struct ethtool_ts_info: cmd, so_timestamping, phc_index, tx_types, reserved[3], rx_filters, reserved[3].
        let mut info = [0; 11];
        info[0] = ETHTOOL_GET_TS_INFO;
        self.0.ethtool(name, &mut info).ok()?;
        let has = |flag: u32| info[1] & flag != 0;
        Some(Timestamping {
            software_tx: has(libc::SOF_TIMESTAMPING_TX_SOFTWARE),
            software_rx: has(libc::SOF_TIMESTAMPING_RX_SOFTWARE),
            hardware_tx: has(libc::SOF_TIMESTAMPING_TX_HARDWARE),
            hardware_rx: has(libc::SOF_TIMESTAMPING_RX_HARDWARE),
        })
    }
}
