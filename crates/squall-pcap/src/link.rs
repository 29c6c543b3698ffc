//! Link-layer header types.

use std::fmt;

/// Type of a packet's outermost header (the tcpdump.org list of link-layer header types).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    pub const NULL: Self = Self(0);
    pub const ETHERNET: Self = Self(1);
    pub const PPP: Self = Self(9);
    pub const RAW: Self = Self(101);
    pub const IEEE802_11: Self = Self(105);
    pub const LOOP: Self = Self(108);
    pub const LINUX_SLL: Self = Self(113);
    pub const IEEE802_11_RADIOTAP: Self = Self(127);
    pub const IPV4: Self = Self(228);
    pub const IPV6: Self = Self(229);
    pub const LINUX_SLL2: Self = Self(276);

    /// The name on tcpdump.org without `LINKTYPE_`, such as "ETHERNET" or "LINUX_SLL2"; `None` if
    /// the table does not have the type.
    pub fn name(self) -> Option<&'static str> {
        NAMES.binary_search_by_key(&self.0, |&(number, ..)| number).ok().map(|i| NAMES[i].1)
    }
}

/// Formats as "Ethernet", "Linux cooked v2", "link type 4711".
impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.binary_search_by_key(&self.0, |&(number, ..)| number) {
            Ok(i) => f.write_str(NAMES[i].2),
            Err(_) => write!(f, "link type {}", self.0),
        }
    }
}

/// Names by number: all current types, and common old ones.
const NAMES: &[(u16, &str, &str)] = &[
    (0, "NULL", "BSD loopback"),
    (1, "ETHERNET", "Ethernet"),
    (3, "AX25", "AX.25"),
    (6, "IEEE802_5", "token ring"),
    (7, "ARCNET_BSD", "ARCNET"),
    (8, "SLIP", "SLIP"),
    (9, "PPP", "PPP"),
    (10, "FDDI", "FDDI"),
    // Numbers that OpenBSD, other BSDs and Windows use in some captures.
    (12, "RAW", "raw IP"),
    (14, "RAW", "raw IP"),
    (50, "PPP_HDLC", "PPP in HDLC"),
    (51, "PPP_ETHER", "PPPoE"),
    (100, "ATM_RFC1483", "ATM, RFC 1483"),
    (101, "RAW", "raw IP"),
    (104, "C_HDLC", "Cisco HDLC"),
    (105, "IEEE802_11", "IEEE 802.11"),
    (107, "FRELAY", "frame relay"),
    (108, "LOOP", "OpenBSD loopback"),
    (109, "ENC", "OpenBSD IPsec"),
    (113, "LINUX_SLL", "Linux cooked v1"),
    (114, "LTALK", "LocalTalk"),
    (117, "PFLOG", "OpenBSD pflog"),
    (119, "IEEE802_11_PRISM", "IEEE 802.11 with Prism header"),
    (122, "IP_OVER_FC", "IP over Fibre Channel"),
    (123, "SUNATM", "SunATM"),
    (127, "IEEE802_11_RADIOTAP", "IEEE 802.11 with radiotap"),
    (129, "ARCNET_LINUX", "ARCNET of Linux"),
    (138, "APPLE_IP_OVER_IEEE1394", "IP over FireWire"),
    (139, "MTP2_WITH_PHDR", "MTP2 with pseudo-header"),
    (140, "MTP2", "MTP2"),
    (141, "MTP3", "MTP3"),
    (142, "SCCP", "SCCP"),
    (143, "DOCSIS", "DOCSIS"),
    (144, "LINUX_IRDA", "IrDA of Linux"),
    (147, "USER0", "user 0"),
    (148, "USER1", "user 1"),
    (149, "USER2", "user 2"),
    (150, "USER3", "user 3"),
    (151, "USER4", "user 4"),
    (152, "USER5", "user 5"),
    (153, "USER6", "user 6"),
    (154, "USER7", "user 7"),
    (155, "USER8", "user 8"),
    (156, "USER9", "user 9"),
    (157, "USER10", "user 10"),
    (158, "USER11", "user 11"),
    (159, "USER12", "user 12"),
    (160, "USER13", "user 13"),
    (161, "USER14", "user 14"),
    (162, "USER15", "user 15"),
    (163, "IEEE802_11_AVS", "IEEE 802.11 with AVS header"),
    (165, "BACNET_MS_TP", "BACnet MS/TP"),
    (166, "PPP_PPPD", "PPP of pppd"),
    (169, "GPRS_LLC", "GPRS LLC"),
    (177, "LINUX_LAPD", "LAPD of Linux"),
    (187, "BLUETOOTH_HCI_H4", "Bluetooth HCI"),
    (189, "USB_LINUX", "USB of Linux"),
    (192, "PPI", "PPI"),
    (195, "IEEE802_15_4_WITHFCS", "IEEE 802.15.4 with FCS"),
    (197, "ERF", "Endace ERF"),
    (201, "BLUETOOTH_HCI_H4_WITH_PHDR", "Bluetooth HCI with direction"),
    (203, "LAPD", "LAPD"),
    (204, "PPP_WITH_DIR", "PPP with direction"),
    (209, "I2C_LINUX", "I2C of Linux"),
    (215, "IEEE802_15_4_NONASK_PHY", "IEEE 802.15.4 with PHY header"),
    (220, "USB_LINUX_MMAPPED", "USB of Linux, padded"),
    (224, "FC_2", "Fibre Channel FC-2"),
    (226, "IPNET", "Solaris ipnet"),
    (227, "CAN_SOCKETCAN", "CAN"),
    (228, "IPV4", "raw IPv4"),
    (229, "IPV6", "raw IPv6"),
    (230, "IEEE802_15_4_NOFCS", "IEEE 802.15.4"),
    (231, "DBUS", "D-Bus"),
    (235, "DVB_CI", "DVB-CI"),
    (239, "NFLOG", "Linux NFLOG"),
    (240, "NETANALYZER", "netANALYZER"),
    (242, "IPOIB", "IP over InfiniBand"),
    (243, "MPEG_2_TS", "MPEG-2 transport stream"),
    (245, "NFC_LLCP", "NFC LLCP"),
    (247, "INFINIBAND", "InfiniBand"),
    (248, "SCTP", "SCTP"),
    (249, "USBPCAP", "USB of Windows"),
    (251, "BLUETOOTH_LE_LL", "Bluetooth LE"),
    (252, "WIRESHARK_UPPER_PDU", "Wireshark's upper PDU"),
    (253, "NETLINK", "Linux netlink"),
    (254, "BLUETOOTH_LINUX_MONITOR", "Bluetooth monitor of Linux"),
    (256, "BLUETOOTH_LE_LL_WITH_PHDR", "Bluetooth LE with pseudo-header"),
    (258, "PKTAP", "Apple PKTAP"),
    (259, "EPON", "EPON"),
    (266, "USB_DARWIN", "USB of macOS"),
    (271, "VSOCK", "Linux vsock"),
    (272, "NORDIC_BLE", "Nordic Bluetooth LE"),
    (274, "ETHERNET_MPACKET", "Ethernet mPackets"),
    (276, "LINUX_SLL2", "Linux cooked v2"),
    (283, "IEEE802_15_4_TAP", "IEEE 802.15.4 with TAP header"),
    (288, "USB_2_0", "USB 2.0"),
    (290, "ETW", "Event Tracing for Windows"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_stand_in_order_of_their_numbers() {
        assert!(NAMES.is_sorted_by_key(|&(number, ..)| number));
        let text = |number| (LinkType(number).name(), LinkType(number).to_string());
        assert_eq!(text(276), (Some("LINUX_SLL2"), "Linux cooked v2".into()));
        assert_eq!(text(4711), (None, "link type 4711".into()));
    }
}
