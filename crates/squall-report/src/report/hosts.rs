//! Hosts of a run: addresses that they got, and how long that took.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Distribution;

/// One `[[host]]` of a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostsReport {
    pub name: String,
    /// Name of the port.
    pub port: String,
    /// Hosts of the group, and hosts that have started.
    pub hosts: u64,
    pub started: u64,
    /// Requested starts per second; `null` if all start at once.
    pub asked_rate: Option<f64>,
    /// Hosts by their state at the end: `init` (not started), `selecting`, `requesting`,
    /// `rebooting`, `informing`, `checking`, `bound`, `renewing`, `rebinding`, `declined`,
    /// `released`, `failed` (RFC 2131 figure 5). A host with a static address is `checking`, `bound` or `failed`.
    pub states: BTreeMap<String, u64>,
    /// Times that a host got an address, and how often that was per second, from the first start to
    /// the last address; `null` if there was only one instant.
    pub bound: u64,
    pub bound_rate: Option<f64>,
    /// Hosts that failed, by reason: `no_offer`, `no_ack`, `nak`, `conflict`, `expired`.
    pub failed: BTreeMap<String, u64>,
    /// DHCP messages that hosts sent and received, by type; `retransmissions` of those sent were
    /// repeated.
    pub sent: BTreeMap<String, u64>,
    pub received: BTreeMap<String, u64>,
    pub retransmissions: u64,
    /// Leases that were extended, and leases that ended.
    pub renewed: u64,
    pub expired: u64,
    /// Messages that were ignored, by reason, such as `wrong_xid` or `zero_lease`.
    pub ignored: BTreeMap<String, u64>,
    /// Effects of faults, by the name: frames that they changed, added or suppressed, and messages
    /// that hosts ignored for them.
    pub faults: BTreeMap<String, u64>,
    /// Time from a host's first message of DHCP to its offer, and to its configuration.
    pub offer_ns: Option<Distribution>,
    pub dora_ns: Option<Distribution>,
    pub arp: HostArpReport,
    pub echo: HostEchoReport,
    /// Messages and leases of the group's DHCP server.
    pub server: Option<DhcpServerReport>,
}

/// ARP packets of hosts (RFC 826, RFC 5227).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostArpReport {
    /// Requests that were answered.
    pub answered: u64,
    pub probes: u64,
    pub announcements: u64,
    /// Announcements because another host used the address.
    pub defended: u64,
    /// Addresses that were given up, because another host has them.
    pub conflicts: u64,
    /// Requests for gateways and targets, and addresses that did not answer.
    pub requests: u64,
    pub unresolved: u64,
}

/// Echo requests and replies of hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostEchoReport {
    /// Answered requests of other hosts.
    pub answered: u64,
    /// Requests that hosts sent, the replies, and requests without a reply within 1 s.
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    /// Hosts that sent none, because the next hop did not answer ARP.
    pub unresolved: u64,
    pub rtt_ns: Option<Distribution>,
}

/// Messages that a DHCP server received and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DhcpServerReport {
    pub discovers: u64,
    pub offers: u64,
    pub requests: u64,
    pub acks: u64,
    pub naks: u64,
    pub declines: u64,
    pub releases: u64,
    pub informs: u64,
    /// DISCOVER messages without an offer, because no address was free.
    pub exhausted: u64,
    /// Leases at the end.
    pub leases: u64,
}

impl HostsReport {
    pub(super) fn distributions_mut(&mut self) -> [&mut Option<Distribution>; 3] {
        [&mut self.offer_ns, &mut self.dora_ns, &mut self.echo.rtt_ns]
    }
}
