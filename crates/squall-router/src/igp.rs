//! Settings of OSPF and IS-IS that profiles do not have: details of the link, and how the routes of
//! each group are announced.
//!
//! Daemons redistribute routes as external ones only. Routes inside an area (RFC 2328 section
//! 12.4.1), those of another area, and internal ones of IS-IS are networks of interfaces. So each
//! such group has a pair of virtual interfaces in the router's namespace, whose addresses come and
//! go with its routes.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr},
};

use crate::{Prefix, RouteGroup, RouterSettings};

/// Routes that are networks of interfaces, of all groups of a router. The router's own LSA has all
/// those of an area, 12 octets each, and at most 64 KiB (RFC 2328 section A.4.2).
pub const MOST_INTERIOR: u64 = 4_000;

/// The IPv4 dummy address (RFC 7600 section 4.8).
const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// Details of the link for OSPF and IS-IS. The default is that of profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Igp {
    /// OSPF: the other end of the link is one router. IS-IS has [`crate::Isis::point_to_point`].
    pub point_to_point: bool,
    /// OSPF: metric of the link; `None`: the daemon's default.
    pub cost: Option<u16>,
    /// Priority as a designated router or intermediate system; `None`: the daemon's default.
    pub priority: Option<u8>,
    /// OSPF: seconds after which an LSA is sent again that was not acknowledged.
    pub retransmit: Option<u16>,
    /// OSPF: neighbors that restart get no help (RFC 3623 section 3).
    pub no_helper: bool,
    /// `OSPFv3`: identifier of the instance on the link.
    pub instance: u8,
    /// `OSPFv2`: authentication of packets.
    pub authentication: Option<OspfAuthentication>,
    /// IS-IS; `None`: from the router ID.
    pub system_id: Option<[u8; 6]>,
    /// IS-IS: TLVs with narrow metrics (RFC 1195), in place of wide ones (RFC 5305).
    pub narrow: bool,
    /// IS-IS: dynamic hostname (RFC 5301).
    pub hostname: Option<String>,
    /// IS-IS: seconds after which LSPs are sent again, and for which they are valid.
    pub lifetimes: Option<(u16, u16)>,
    /// IS-IS: hello packets are as short as their content.
    pub unpadded: bool,
    /// How groups are announced, in their order. The others are external ones, with the daemon's
    /// default metric.
    pub routes: Vec<IgpRoutes>,
}

/// Authentication of `OSPFv2` (RFC 2328 appendix D).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OspfAuthentication {
    Simple(String),
    /// Numbers of keys, and the keys.
    Md5(Vec<(u8, String)>),
}

/// How the routes of a group are announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IgpRoutes {
    pub origin: RouteOrigin,
    pub metric: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteOrigin {
    /// Networks of the link's area; internal routes of IS-IS.
    Interior,
    /// Networks of another area of OSPF, to which the router is a border.
    InterArea(Ipv4Addr),
    /// External routes of OSPF whose metrics add to those of the way, and that do not.
    External1,
    External2,
}

impl Igp {
    /// How group `number` is announced, if its routes are networks of its interface.
    pub(crate) fn interior(&self, number: usize) -> Option<IgpRoutes> {
        let is_interior =
            |of: &IgpRoutes| matches!(of.origin, RouteOrigin::Interior | RouteOrigin::InterArea(_));
        self.routes.get(number).copied().filter(is_interior)
    }
}

impl RouterSettings {
    /// Groups whose routes are networks of interfaces, with their numbers.
    fn interior_groups(&self) -> impl Iterator<Item = (usize, &RouteGroup)> {
        let all = self.groups.iter().enumerate();
        all.filter(|(number, _)| self.igp.interior(*number).is_some())
    }

    /// The address of an interface whose network is `prefix`: its second host, or the first one
    /// after a network of the router's link, where hosts are neighbors. `None`: it has no such host.
    pub fn interior_host(&self, prefix: Prefix) -> Option<IpAddr> {
        let of_ipv4 = self.ipv4.map(|(own, length)| Prefix::of(own.into(), length));
        let of_ipv6 = self.ipv6.map(|(own, length)| Prefix::of(own.into(), length));
        // The first host of ::/32 would be ::1, which only the loopback may have.
        let usual = prefix.host(2).or_else(|| prefix.host(1))?;
        match of_ipv4.into_iter().chain(of_ipv6).find(|link| link.contains(usual)) {
            Some(link) if link.length > prefix.length => prefix.host_after(link),
            Some(_) => None,
            None => Some(usual),
        }
    }

    pub fn has_interior_groups(&self) -> bool {
        self.interior_groups().next().is_some()
    }

    /// Lines for `ip -batch` that make the interfaces of groups, with all their routes.
    pub fn group_interfaces(&self) -> String {
        let mut lines = String::new();
        for (number, group) in self.interior_groups() {
            let (name, number) = (interface(number), number + 1);
            _ = writeln!(lines, "link add {name} type veth peer name peer{number}");
            _ = writeln!(lines, "link set peer{number} up");
            let has_ipv6 = group.prefixes().any(|prefix| prefix.address.is_ipv6());
            if has_ipv6 {
                // OSPFv3 uses no interface without a link-local address, and an automatic one comes
                // a second late, after the detection of duplicates.
                _ = writeln!(lines, "link set {name} addrgenmode none");
            }
            _ = writeln!(lines, "link set {name} up");
            if has_ipv6 {
                _ = writeln!(lines, "addr replace fe80::1/64 dev {name} nodad");
            }
            lines += &change(self, number - 1, group, false);
        }
        lines
    }
}

/// The interface of group `number` in the router's namespace.
pub(crate) fn interface(number: usize) -> String {
    format!("group{}", number + 1)
}

/// Lines for `ip -batch` that withdraw or announce group `number`, whose routes are networks of its
/// interface.
pub(crate) fn change(
    settings: &RouterSettings,
    number: usize,
    group: &RouteGroup,
    withdraw: bool,
) -> String {
    let name = interface(number);
    if withdraw {
        return format!("addr flush dev {name} scope global\n");
    }
    let mut lines = String::new();
    for prefix in group.prefixes() {
        // BIRD announces the address of a host with metric 0, but a peer's with that of the link.
        if settings.ospf.is_some() && prefix.address.is_ipv4() && prefix.length == 32 {
            let peer = prefix.address;
            _ = writeln!(lines, "addr replace {DUMMY} peer {peer}/32 dev {name}");
            continue;
        }
        let Some(address) = settings.interior_host(prefix) else { continue };
        let length = prefix.length;
        let more = if address.is_ipv6() { " nodad" } else { "" };
        _ = writeln!(lines, "addr replace {address}/{length} dev {name}{more}");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Daemon, DaemonCall, GroupPart, Isis, RouterOrder, Steered,
        bird::{
            self,
            tests::{group, settings},
        },
        frr,
    };

    /// A router of OSPFv2 alone, with a group of each origin.
    fn ospf() -> RouterSettings {
        let groups = ["in", "inter", "one", "two"].into_iter().zip(1..);
        let groups = groups.map(|(name, third)| group(name, [192, 0, third, 0].into(), 24));
        let origins = [
            RouteOrigin::Interior,
            RouteOrigin::InterArea([0, 0, 0, 1].into()),
            RouteOrigin::External1,
            RouteOrigin::External2,
        ];
        let routes =
            origins.into_iter().zip(5..).map(|(origin, metric)| IgpRoutes { origin, metric });
        RouterSettings {
            bgp: None,
            rip: false,
            bfd: None,
            groups: groups.collect(),
            igp: Igp { routes: routes.collect(), ..Igp::default() },
            ..settings()
        }
    }

    #[test]
    fn bird_announces_each_group_as_its_origin_says() {
        let mut settings = ospf();
        settings.igp.point_to_point = true;
        (settings.igp.cost, settings.igp.priority) = (Some(7), Some(0));
        (settings.igp.retransmit, settings.igp.no_helper) = (Some(3), true);
        settings.igp.authentication = Some(OspfAuthentication::Simple("ot\"g".into()));
        let text = bird::configuration(&settings);
        for part in [
            "  area 0.0.0.0 { interface \"eth0\" { type ptp; hello 10; dead 40; cost 7; priority \
             0; retransmit 3; authentication simple; password \"otg\"; }; interface \"group1\" { \
             stub yes; cost 5; }; };\n  area 0.0.0.1 { interface \"group2\" { stub yes; cost 6; }; };\n",
            "export filter { if proto = \"group3_4\" then { ospf_metric1 = 7; accept; } if proto = \
             \"group4_4\" then { ospf_metric2 = 8; accept; } reject; };",
            "  graceful restart off;\n",
            "protocol static group3_4 {",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("protocol static group1") && !text.contains("static group2"));

        let keys = vec![(1, "one".into()), (2, "two".into())];
        settings.igp.authentication = Some(OspfAuthentication::Md5(keys));
        let text = bird::configuration(&settings);
        let part = "authentication cryptographic; password \"one\" { id 1; }; password \"two\" { \
                    id 2; };";
        assert!(text.contains(part), "{text}");
    }

    #[test]
    fn routes_of_ospf3_are_networks_of_interfaces_with_a_link_local_address() {
        let mut settings = ospf();
        (settings.ospf, settings.ospf3) = (None, Some([0, 0, 0, 0].into()));
        settings.groups = vec![group("six", "2001:db8:1::".parse().unwrap(), 48)];
        settings.igp.instance = 9;
        let text = bird::configuration(&settings);
        let part = "interface \"eth0\" instance 9 { type broadcast; hello 10; dead 40; }; \
                    interface \"group1\" instance 9 { stub yes; cost 5; }; };";
        assert!(text.contains(part), "{text}");
        let lines = settings.group_interfaces();
        let wanted = "link add group1 type veth peer name peer1\nlink set peer1 up\nlink set \
                      group1 addrgenmode none\nlink set group1 up\naddr replace fe80::1/64 dev \
                      group1 nodad\naddr replace 2001:db8:1::2/48 dev group1 nodad\naddr replace \
                      2001:db8:2::2/48 dev group1 nodad\n";
        assert_eq!(lines, wanted);
    }

    #[test]
    fn interior_groups_are_withdrawn_with_the_addresses_of_their_interfaces() {
        let settings = ospf();
        assert!(settings.has_interior_groups());
        assert!(!crate::RouterSettings { igp: Igp::default(), ..ospf() }.has_interior_groups());
        let mut steered = Steered::new(&settings);
        let part = |group: &str| GroupPart { group: Some(group.into()), count: None };
        let mut calls = |order| steered.calls(&settings, &[], &order).unwrap().calls;
        assert_eq!(
            calls(RouterOrder::Withdraw(part("inter"))),
            [DaemonCall::Kernel("addr flush dev group2 scope global\n".into())]
        );
        assert_eq!(calls(RouterOrder::Withdraw(part("inter"))), [], "it is withdrawn already");
        let lines = "addr replace 192.0.2.2/24 dev group2\naddr replace 192.0.3.2/24 dev group2\n";
        assert_eq!(calls(RouterOrder::Announce(part("inter"))), [DaemonCall::Kernel(lines.into())]);
        assert_eq!(
            calls(RouterOrder::Withdraw(part("two"))),
            [DaemonCall::Control("disable group4_4\n".into())]
        );
    }

    #[test]
    fn addresses_of_interfaces_are_no_neighbors() {
        let mut settings = ospf();
        settings.ipv4 = Some(([10, 0, 0, 1].into(), 24));
        settings.ipv6 = Some(("fd00::1".parse().unwrap(), 64));
        for (prefix, host) in [
            ("10.0.0.0/8", Some("10.0.1.0")),
            ("10.0.0.0/23", Some("10.0.1.0")),
            ("10.0.1.0/24", Some("10.0.1.2")),
            ("10.0.0.0/24", None),
            ("10.0.0.2/32", None),
            ("fd00::/16", Some("fd00:0:0:1::")),
            ("fd00::/64", None),
        ] {
            let found = settings.interior_host(Prefix::parse(prefix).unwrap());
            assert_eq!(found, host.map(|host| host.parse().unwrap()), "{prefix}");
        }
        let wide = group("wide", [10, 0, 0, 0].into(), 8);
        let lines = change(&settings, 0, &wide, false);
        assert!(lines.starts_with("addr replace 10.0.1.0/8 dev group1\n"), "{lines}");
    }

    #[test]
    fn hosts_are_peers_of_the_interface_for_ospf_alone() {
        let mut settings = ospf();
        let host = group("host", [192, 0, 2, 7].into(), 32);
        let lines = change(&settings, 0, &host, false);
        assert!(
            lines.starts_with("addr replace 192.0.0.8 peer 192.0.2.7/32 dev group1\n"),
            "{lines}"
        );
        settings.ospf = None;
        let lines = change(&settings, 0, &host, false);
        assert!(lines.starts_with("addr replace 192.0.2.7/32 dev group1\n"), "{lines}");
    }

    #[test]
    fn frr_has_a_passive_interface_for_each_group_of_internal_routes() {
        let mut settings = ospf();
        settings.daemon = Daemon::Frr;
        settings.ospf = None;
        let levels = [false, true];
        let isis = Isis { area: "49.0001".into(), levels, metric: 11, point_to_point: true };
        settings.isis = Some(isis);
        settings.igp = Igp {
            system_id: Some([0x64, 0, 0, 0, 0, 1]),
            narrow: true,
            hostname: Some("r1".into()),
            priority: Some(3),
            lifetimes: Some((600, 1200)),
            unpadded: true,
            routes: vec![IgpRoutes { origin: RouteOrigin::Interior, metric: 20 }],
            ..Igp::default()
        };
        settings.groups.truncate(1);
        let text = frr::configuration(&settings, frr::Process::Isisd, 1_500);
        for line in [
            "hostname r1",
            " net 49.0001.6400.0000.0001.00",
            " metric-style narrow",
            " lsp-refresh-interval 600",
            " max-lsp-lifetime 1200",
            " isis priority 3",
            " no isis hello padding",
            "interface group1",
            " isis passive",
            " isis metric 20",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        assert!(!text.contains("redistribute"), "{text}");
    }
}
