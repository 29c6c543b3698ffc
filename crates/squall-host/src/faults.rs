//! Faults that hosts have on purpose, so that a device can be tried with hosts that misbehave.

/// A named fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// All hosts have the static address of the first one.
    DuplicateAddress,
    /// Hosts do not examine their addresses, and never give them up in a conflict (RFC 5227).
    KeepAddress,
    /// Hosts do not answer ARP.
    NoArp,
    /// Hosts announce the address of their gateway as theirs, and answer requests for it.
    SpoofGateway,
    /// Frames of DHCP have another source MAC address than their `chaddr`.
    SpoofMac,
    /// Echo requests have the address after the host's own as their source.
    SpoofAddress,
    /// Reactions to received frames leave later, after a fixed time.
    LateAnswer,
    /// Frames of ARP and DHCP leave [`FLOOD`] times.
    Flood,
    /// DHCP clients accept no offer, so that servers reserve addresses that no client uses.
    IgnoreOffer,
    /// DHCP clients ignore refusals.
    IgnoreNak,
    /// DHCP clients decline each address that they get.
    Decline,
    /// DHCP clients use their addresses forever, without renewals.
    KeepLease,
    /// UDP checksums of DHCP clients are wrong.
    BadChecksum,
    /// The last option of DHCP clients reaches beyond the end of the message.
    BadOptions,
}

/// Copies of each frame with [`Fault::Flood`].
pub const FLOOD: u32 = 10;

impl Fault {
    /// All faults, with their names.
    pub const ALL: [(Self, &'static str); 14] = [
        (Self::DuplicateAddress, "duplicate-address"),
        (Self::KeepAddress, "keep-address"),
        (Self::NoArp, "no-arp"),
        (Self::SpoofGateway, "spoof-gateway"),
        (Self::SpoofMac, "spoof-mac"),
        (Self::SpoofAddress, "spoof-address"),
        (Self::LateAnswer, "late-answer"),
        (Self::Flood, "flood"),
        (Self::IgnoreOffer, "ignore-offer"),
        (Self::IgnoreNak, "ignore-nak"),
        (Self::Decline, "decline"),
        (Self::KeepLease, "keep-lease"),
        (Self::BadChecksum, "bad-checksum"),
        (Self::BadOptions, "bad-options"),
    ];

    /// The fault's name.
    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// The faults of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults(u16);

impl Faults {
    pub fn has(self, fault: Fault) -> bool {
        self.0 & 1 << fault as u16 != 0
    }
}

impl FromIterator<Fault> for Faults {
    fn from_iter<I: IntoIterator<Item = Fault>>(faults: I) -> Self {
        Self(faults.into_iter().fold(0, |all, fault| all | 1 << fault as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_own_name_and_bit() {
        for (i, (fault, name)) in Fault::ALL.into_iter().enumerate() {
            assert_eq!((fault as usize, fault.word()), (i, name));
            let one: Faults = [fault].into_iter().collect();
            let others = Fault::ALL.into_iter().filter(|(other, _)| one.has(*other));
            assert_eq!(others.count(), 1);
        }
    }
}
