//! The configuration of a BIRD whose kernel forwards by the routes that it learns.
//!
//! Source: BIRD 2.0 User's Guide, chapters 3 and 6. Unlike the daemon on a port
//! ([`super::configuration`]), which announces routes and forwards nothing, it has several
//! interfaces, and the kernel's table gets its routes.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr},
};

use squall_units::Nanos;

use super::{milliseconds, seconds};

/// A router whose kernel forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardingSettings {
    pub router_id: Ipv4Addr,
    pub interfaces: Vec<ForwardingInterface>,
    /// Static routes, which all protocols announce.
    pub routes: Vec<StaticRoute>,
    pub bgp: Option<ForwardingBgp>,
    /// Areas of OSPFv2 (RFC 2328) and OSPFv3 (RFC 5340).
    pub ospf: Option<Ipv4Addr>,
    pub ospf3: Option<Ipv4Addr>,
    /// Times of OSPF and RIP; whole seconds.
    pub hello: Nanos,
    pub dead: Nanos,
    pub rip: bool,
    pub ripng: bool,
    pub rip_update: Nanos,
    /// BFD (RFC 5880) for the neighbors of BGP and OSPF: the interval of its packets.
    pub bfd: Option<Nanos>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardingInterface {
    pub name: String,
    pub link: LinkKind,
    /// OSPF's cost; `None`: the daemon's default.
    pub cost: Option<u16>,
}

/// The other end of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// Exactly one router.
    Point,
    /// Any number of routers.
    Shared,
    /// Hosts alone: routing protocols announce the network, and send nothing.
    Hosts,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticRoute {
    pub prefix: (IpAddr, u8),
    /// None: packets are dropped.
    pub next_hops: Vec<IpAddr>,
}

/// BGP (RFC 4271).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardingBgp {
    pub asn: u32,
    /// Addresses of the neighbors, and the numbers of their systems.
    pub neighbors: Vec<(IpAddr, u32)>,
}

/// The text of a configuration file.
pub fn configuration(settings: &ForwardingSettings) -> String {
    let mut text = String::new();
    let mut line = |line: &str| _ = writeln!(text, "{line}");
    line("log stderr all;");
    line(&format!("router id {};", settings.router_id));
    line("protocol device { scan time 1; }");
    // Without `check link`, a network whose cable is cut would still be announced.
    line("protocol direct { ipv4; ipv6; check link yes; }");
    for (name, family) in [("kernel4", "ipv4"), ("kernel6", "ipv6")] {
        line(&format!(
            "protocol kernel {name} {{ merge paths on; {family} {{ import none; export where source \
             != RTS_DEVICE; }}; }}"
        ));
    }
    if let Some(interval) = settings.bfd {
        let interval = milliseconds(interval);
        line(&format!(
            "protocol bfd bfd1 {{ interface \"*\" {{ interval {interval} ms; multiplier 3; }}; }}"
        ));
    }
    for (name, family, is_ipv4) in [("static4", "ipv4", true), ("static6", "ipv6", false)] {
        let routes = settings.routes.iter().filter(|route| route.prefix.0.is_ipv4() == is_ipv4);
        let routes: String = routes.map(static_route).collect();
        if !routes.is_empty() {
            line(&format!("protocol static {name} {{\n  {family};\n{routes}}}"));
        }
    }
    for (version, name, family, area) in
        [("v2", "ospf4", "ipv4", settings.ospf), ("v3", "ospf6", "ipv6", settings.ospf3)]
    {
        let Some(area) = area else { continue };
        line(&format!("protocol ospf {version} {name} {{"));
        line(&format!("  {family} {{ import all; export where source = RTS_STATIC; }};"));
        line(&format!("  area {area} {{"));
        settings.interfaces.iter().for_each(|one| line(&ospf_interface(one, settings)));
        line("  };");
        line("}");
    }
    for (kind, name, family, wanted) in
        [("rip", "rip4", "ipv4", settings.rip), ("rip ng", "rip6", "ipv6", settings.ripng)]
    {
        if !wanted {
            continue;
        }
        line(&format!("protocol {kind} {name} {{"));
        // RIP passes on the routes that it has learnt only if they are exported to it again.
        line(&format!("  {family} {{ import all; export all; }};"));
        for interface in &settings.interfaces {
            let passive = if interface.link == LinkKind::Hosts { " passive yes;" } else { "" };
            line(&format!(
                "  interface \"{}\" {{ update time {};{passive} check link yes; }};",
                interface.name,
                seconds(settings.rip_update)
            ));
        }
        line("}");
    }
    for (number, (address, asn)) in
        settings.bgp.iter().flat_map(|bgp| bgp.neighbors.iter()).enumerate()
    {
        let Some(bgp) = &settings.bgp else { break };
        let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
        let bfd = if settings.bfd.is_some() { " bfd on;" } else { "" };
        line(&format!("protocol bgp bgp{} {{", number + 1));
        line(&format!("  local as {};", bgp.asn));
        line(&format!("  neighbor {address} as {asn};{bfd}"));
        // The default waits 5 s before the first connection, and up to 300 s after errors.
        line("  connect delay time 1; connect retry time 5; error wait time 1, 10;");
        line(&format!("  {family} {{ import all; export all; next hop self; }};"));
        line("}");
    }
    text
}

fn static_route(route: &StaticRoute) -> String {
    let (address, length) = route.prefix;
    let hops: String = route.next_hops.iter().map(|hop| format!(" via {hop}")).collect();
    let hops = if hops.is_empty() { " blackhole".to_owned() } else { hops };
    format!("  route {address}/{length}{hops};\n")
}

fn ospf_interface(interface: &ForwardingInterface, settings: &ForwardingSettings) -> String {
    let cost = interface.cost.map_or(String::new(), |cost| format!(" cost {cost};"));
    let name = &interface.name;
    let kind = match interface.link {
        LinkKind::Hosts => return format!("    interface \"{name}\" {{ stub yes;{cost} }};"),
        LinkKind::Point => "ptp",
        LinkKind::Shared => "broadcast",
    };
    let bfd = if settings.bfd.is_some() { " bfd yes;" } else { "" };
    format!(
        "    interface \"{name}\" {{ type {kind}; hello {}; dead {}; check link yes;{cost}{bfd} }};",
        seconds(settings.hello),
        seconds(settings.dead)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> ForwardingSettings {
        let interface =
            |name: &str, link, cost| ForwardingInterface { name: name.into(), link, cost };
        ForwardingSettings {
            router_id: [10, 0, 0, 1].into(),
            interfaces: vec![
                interface("eth0", LinkKind::Hosts, None),
                interface("eth1", LinkKind::Point, Some(20)),
                interface("eth2", LinkKind::Shared, None),
            ],
            routes: vec![
                StaticRoute {
                    prefix: ([10, 9, 0, 0].into(), 16),
                    next_hops: vec![[10, 0, 1, 2].into(), [10, 0, 1, 3].into()],
                },
                StaticRoute { prefix: ("2001:db8::".parse().unwrap(), 32), next_hops: vec![] },
            ],
            bgp: None,
            ospf: None,
            ospf3: None,
            hello: Nanos::SECOND,
            dead: Nanos(4 * Nanos::SECOND.0),
            rip: false,
            ripng: false,
            rip_update: Nanos(30 * Nanos::SECOND.0),
            bfd: None,
        }
    }

    #[test]
    fn each_link_has_the_ospf_that_fits_it() {
        let text = configuration(&ForwardingSettings {
            ospf: Some(Ipv4Addr::UNSPECIFIED),
            bfd: Some(Nanos(50_000_000)),
            ..settings()
        });
        for line in [
            "    interface \"eth0\" { stub yes; };",
            "    interface \"eth1\" { type ptp; hello 1; dead 4; check link yes; cost 20; bfd yes; };",
            "    interface \"eth2\" { type broadcast; hello 1; dead 4; check link yes; bfd yes; };",
            "  route 10.9.0.0/16 via 10.0.1.2 via 10.0.1.3;",
            "  route 2001:db8::/32 blackhole;",
            "protocol ospf v2 ospf4 {",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        assert!(!text.contains("ospf v3") && !text.contains("protocol rip"), "{text}");
    }

    #[test]
    fn hosts_get_no_rip_and_bgp_has_all_its_neighbors() {
        let bgp = ForwardingBgp {
            asn: 65_001,
            neighbors: vec![([10, 0, 1, 2].into(), 65_002), ("fd00::2".parse().unwrap(), 65_001)],
        };
        let text = configuration(&ForwardingSettings { rip: true, bgp: Some(bgp), ..settings() });
        for line in [
            "  interface \"eth0\" { update time 30; passive yes; check link yes; };",
            "  interface \"eth1\" { update time 30; check link yes; };",
            "  neighbor 10.0.1.2 as 65002;",
            "protocol bgp bgp2 {",
            "  neighbor fd00::2 as 65001;",
            "  ipv6 { import all; export all; next hop self; };",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
    }
}
