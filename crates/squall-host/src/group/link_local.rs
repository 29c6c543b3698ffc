//! IPv4 addresses that hosts choose themselves (RFC 3927).

use std::net::Ipv4Addr;

use squall_units::{Nanos, below, mix};

use super::{HostGroup, mac_bits};
use crate::{DhcpState, LogProtocol};

/// Addresses from 169.254.1.0 to 169.254.254.255 (section 2.1).
const FIRST: u16 = 0x0100;
pub const ADDRESSES: u16 = 0xff00 - FIRST;
/// Conflicts after which a host slows down, and the pause (section 9).
const MAX_CONFLICTS: u8 = 10;
const RATE_LIMIT_INTERVAL: Nanos = Nanos(60_000_000_000);
/// Conflicts after which a host has failed. The RFC has no limit; without one, a host on a link
/// without a free address would never have a result.
const MOST_CONFLICTS: u8 = 20;

/// The address with these last two octets.
pub(super) fn address(last: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(0xa9fe_0000 | u32::from(last))
}

impl HostGroup {
    /// Chooses an address for host number `host`, for the first time or after a conflict, and
    /// examines it (section 2.2).
    pub(super) fn choose(&mut self, host: u32, now: Nanos) {
        let conflicts = self.hosts[host as usize].conflicts;
        let former = address(self.hosts[host as usize].local);
        if self.addresses.get(&former) == Some(&host) {
            self.addresses.remove(&former);
            self.hosts[host as usize].conflicts = conflicts + 1;
        }
        let conflicts = self.hosts[host as usize].conflicts;
        if conflicts >= MOST_CONFLICTS || self.addresses.len() >= ADDRESSES.into() {
            self.note_failure(host, LogProtocol::Arp, "conflict");
            self.set_fixed(host, now, DhcpState::Failed);
            return;
        }
        // The MAC address is in the random number, so that no two hosts try the same addresses
        // (section 2.1). Hosts of a group do not hear each other.
        let mac = mac_bits(self.mac(host));
        let free = loop {
            let chance = mix(self.chance(host), mac);
            let last = FIRST + below(chance, ADDRESSES.into()) as u16;
            if !self.addresses.contains_key(&address(last)) {
                break last;
            }
        };
        self.addresses.insert(address(free), host);
        self.set_fixed(host, now, DhcpState::Checking);
        let pause = if conflicts >= MAX_CONFLICTS { RATE_LIMIT_INTERVAL } else { Nanos::ZERO };
        let (chance, timers) = (self.chance(host), self.settings.conflict);
        let record = &mut self.hosts[host as usize];
        record.local = free;
        record.conflict.start(now + pause, chance, &timers);
    }
}
