//! One host of a group for a table of hosts: its state, addresses, lease and counters.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_units::{MacAddr, Nanos};

use super::{HostGroup, mask_of};
use crate::{
    Addressing, Dhcp6State, DhcpServer, DhcpState, EventKind, HostEvent, HostLog, Ipv6State,
    LogProtocol,
};

/// Messages of a host, except those of ARP, neighbor discovery and echo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounters {
    pub sent: u32,
    pub received: u32,
    /// Repeated messages, which `sent` includes.
    pub retransmissions: u32,
}

/// One host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostView {
    /// Its number in the group, from 0.
    pub number: u32,
    pub mac: MacAddr,
    pub started: bool,
    /// `None`: the host has no IPv4.
    pub ipv4: Option<Ipv4View>,
    pub ipv6: Option<Ipv6View>,
    /// The state of 802.1X, if the host authenticates.
    pub auth: Option<&'static str>,
    /// Why it failed last, even if it has an address now.
    pub failure: Option<&'static str>,
    pub counters: HostCounters,
}

/// IPv4 of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipv4View {
    pub state: DhcpState,
    /// The address that it may use, and the length of the prefix of its network.
    pub address: Option<(Ipv4Addr, u8)>,
    /// The router, and its MAC address if the group has asked for it.
    pub gateway: Option<(Ipv4Addr, Option<MacAddr>)>,
    pub server: Option<Ipv4Addr>,
    /// T1, T2 and the end of the lease; `None`: no lease, or one without an end.
    pub lease: Option<[Nanos; 3]>,
}

/// IPv6 of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipv6View {
    pub state: Ipv6State,
    /// Addresses that it may use.
    pub link_local: Option<Ipv6Addr>,
    pub addresses: Vec<Ipv6Addr>,
    /// The delegated prefix.
    pub prefix: Option<(Ipv6Addr, u8)>,
    /// The router, and its MAC address if the group knows it.
    pub gateway: Option<(Ipv6Addr, Option<MacAddr>)>,
    /// The state of DHCPv6, if the host uses it; and T1, T2, the ends of the preferred and of the
    /// valid lifetime of its lease.
    pub dhcp: Option<(Dhcp6State, Option<[Nanos; 4]>)>,
}

impl HostGroup {
    /// State of host number `number` at `now`; `None`: the group has no such host.
    pub fn view(&self, number: u32, now: Nanos) -> Option<HostView> {
        let record = self.hosts.get(number as usize)?;
        let services = self.services.as_ref().filter(|_| self.settings.services.auth.is_some());
        Some(HostView {
            number,
            mac: self.mac(number),
            started: number < self.next,
            ipv4: self.has_ipv4().then(|| self.ipv4_view(number)),
            ipv6: self.ipv6_view(number, now),
            auth: services.map(|of| of.auth_state(number)),
            failure: record.failure,
            counters: record.counters,
        })
    }

    fn ipv4_view(&self, number: u32) -> Ipv4View {
        let client = &self.hosts[number as usize].client;
        let is_client = matches!(self.settings.addressing, Addressing::Dhcp(_));
        let length = |mask: Ipv4Addr| mask.to_bits().leading_ones() as u8;
        let prefix = match self.settings.addressing {
            Addressing::Static { prefix, .. } => prefix,
            Addressing::LinkLocal => 16,
            // Each end of a PPP link has a single address.
            Addressing::Ppp => 32,
            Addressing::Dhcp(_) | Addressing::None => length(client.mask().unwrap_or(mask_of(32))),
        };
        let address = self.address(number);
        let gateway = self.gateway_of(number);
        Ipv4View {
            state: self.state(number),
            address: address.map(|address| (address, prefix)),
            gateway: gateway.map(|router| (router, self.neighbors.known(router.into()))),
            server: client.server().filter(|_| is_client),
            lease: client.lease().filter(|_| is_client && address.is_some()),
        }
    }

    /// Length of the lease of host number `number` in seconds; `None`: no lease, or one without an
    /// end.
    pub fn lease_seconds(&self, number: u32) -> Option<u32> {
        self.hosts.get(number as usize)?.client.lease_seconds()
    }

    /// The group's DHCP server.
    pub fn dhcp_server(&self) -> Option<&DhcpServer> {
        self.server.as_ref()
    }

    /// The last events of all hosts.
    pub fn log(&self) -> &HostLog {
        &self.log
    }

    /// Adds an event of a host to its counters and to the log.
    pub(super) fn note(
        &mut self,
        host: u32,
        (protocol, kind): (LogProtocol, EventKind),
        word: &'static str,
        address: Option<IpAddr>,
    ) {
        let counters = &mut self.hosts[host as usize].counters;
        match kind {
            EventKind::Sent => counters.sent = counters.sent.saturating_add(1),
            EventKind::Retransmitted => {
                counters.sent = counters.sent.saturating_add(1);
                counters.retransmissions = counters.retransmissions.saturating_add(1);
            }
            EventKind::Received => counters.received = counters.received.saturating_add(1),
            EventKind::State | EventKind::Failed | EventKind::Ignored => {}
        }
        self.log.add(HostEvent { at: self.due, host, protocol, kind, word, address });
    }

    /// Counts a host that has failed.
    pub(super) fn note_failure(&mut self, host: u32, protocol: LogProtocol, reason: &'static str) {
        *self.counted.failed.entry(reason).or_default() += 1;
        self.hosts[host as usize].failure = Some(reason);
        self.note(host, (protocol, EventKind::Failed), reason, None);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{BEGIN, Link, fixed, seconds, settings},
        *,
    };
    use crate::{DhcpTimers, GroupSettings, ServerSettings};

    fn clients(count: u32) -> GroupSettings {
        let addressing = Addressing::Dhcp(DhcpTimers::default());
        GroupSettings { log: 100, setup: Some(1000), ..settings(count, 1, addressing) }
    }

    fn server() -> GroupSettings {
        let server = ServerSettings {
            address: [10, 0, 0, 1].into(),
            prefix: 16,
            router: Some([10, 0, 0, 254].into()),
            first: [10, 0, 1, 0].into(),
            count: 100,
            lease: 1000,
            ..ServerSettings::default()
        };
        GroupSettings { server: Some(server), ..fixed(1, 2, [10, 0, 0, 1]) }
    }

    /// The events of a host: protocol, kind and word.
    fn events(group: &HostGroup, host: u32) -> Vec<(&str, &str, &str)> {
        let words = |event: &HostEvent| (event.protocol.word(), event.kind.word(), event.word);
        group.log().of(host).map(words).collect()
    }

    #[test]
    fn a_client_shows_its_lease_and_how_it_got_it() {
        let mut link = Link::of([clients(20), server()]);
        link.run(None);
        let group = &link.groups[0];
        let host = group.view(7, link.now).unwrap();
        assert_eq!((host.mac, host.started), (MacAddr([2, 0, 0, 1, 0, 8]), true));
        let ipv4 = host.ipv4.unwrap();
        let address = group.address(7).unwrap();
        assert_eq!((ipv4.state, ipv4.address), (DhcpState::Bound, Some((address, 16))));
        assert_eq!(
            ipv4.gateway,
            Some(([10, 0, 0, 254].into(), None)),
            "no ARP request for its MAC address"
        );
        assert_eq!(ipv4.server, Some([10, 0, 0, 1].into()));
        // The lease counts from the REQUEST: 7 starts at 1000/s, and 2 ms for the offer.
        let requested = BEGIN + seconds(0.009);
        let times = [seconds(500.0), seconds(875.0), seconds(1000.0)];
        assert_eq!(ipv4.lease, Some(times.map(|after| requested + after)));
        let counters = HostCounters { sent: 2, received: 2, retransmissions: 0 };
        assert_eq!((host.counters, host.failure), (counters, None));
        let expected = [
            ("dhcp", "state", "selecting"),
            ("dhcp", "sent", "discover"),
            ("dhcp", "received", "offer"),
            ("dhcp", "state", "requesting"),
            ("dhcp", "sent", "request"),
            ("dhcp", "received", "ack"),
        ];
        assert_eq!(events(group, 7)[..6], expected);
        let bound = group.log().of(7).last().unwrap();
        assert_eq!((bound.word, bound.address), ("bound", Some(address.into())));
        assert_eq!(bound.at, BEGIN + seconds(0.011));
        assert_eq!(group.view(20, link.now), None);
    }

    #[test]
    fn a_client_without_a_server_shows_why_it_failed() {
        let mut link = Link::of([clients(3)]);
        link.run(None);
        let host = link.groups[0].view(2, link.now).unwrap();
        assert_eq!(host.failure, Some("no_offer"));
        assert_eq!(host.ipv4.unwrap().state, DhcpState::Failed);
        let counters = HostCounters { sent: 5, received: 0, retransmissions: 4 };
        assert_eq!(host.counters, counters);
        let events = events(&link.groups[0], 2);
        assert_eq!(events.last(), Some(&("dhcp", "failed", "no_offer")));
        let repeated = ("dhcp", "retransmitted", "discover");
        assert_eq!(events.iter().filter(|event| **event == repeated).count(), 4);
    }

    #[test]
    fn a_full_log_has_the_last_events_and_says_since_when() {
        let mut link = Link::of([clients(20), server()]);
        link.run(None);
        let log = link.groups[0].log();
        // 7 events of each of 20 hosts.
        assert!(log.is_full());
        let kept: usize = (0..20).map(|host| log.of(host).count()).sum();
        assert_eq!(kept, 100);
        let since = log.since().unwrap();
        assert!((0..20).flat_map(|host| log.of(host)).all(|event| event.at >= since));
    }

    #[test]
    fn a_gateway_that_was_asked_shows_its_mac_address() {
        let ping = crate::PingSettings {
            target: None,
            rate: 100,
            count: 1,
            timeout: Nanos(1_000_000_000),
        };
        let hosts = GroupSettings {
            ping: Some(ping),
            gateway: Some([10, 0, 0, 1].into()),
            ..fixed(2, 1, [10, 0, 0, 2])
        };
        let mut link = Link::of([hosts, server()]);
        link.run(None);
        let gateway = link.groups[0].view(1, link.now).unwrap().ipv4.unwrap().gateway;
        assert_eq!(gateway, Some(([10, 0, 0, 1].into(), Some(MacAddr([2, 0, 0, 2, 0, 1])))));
    }
}
