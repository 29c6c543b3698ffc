//! Routers of a profile as settings of a routing daemon.

use std::net::Ipv4Addr;

use squall_profile::{ErrorCollector, Profile, Router};
use squall_router::{Bgp, Neighbor, RouteRange, RouterSettings};
use squall_units::{MacAddr, Nanos};

use crate::{Assets, PortLimits};

/// A router on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRouter {
    pub name: String,
    pub port: usize,
    /// The port belongs to another node.
    pub elsewhere: bool,
    pub settings: RouterSettings,
}

/// Defaults: BGP's hold time is that of RFC 4271 section 10, the hello interval that of RFC 2328
/// appendix C.3, and the updates of RIP those of RFC 2453 section 3.8.
const HOLD: Nanos = Nanos(90 * Nanos::SECOND.0);
const HELLO: Nanos = Nanos(10 * Nanos::SECOND.0);
const UPDATE: Nanos = Nanos(30 * Nanos::SECOND.0);

pub(crate) fn compile(
    profile: &Profile,
    assets: &dyn Assets,
    limits: &[PortLimits],
    mistakes: &mut ErrorCollector<'_>,
) -> Vec<PlanRouter> {
    let mut routers = Vec::new();
    for (number, router) in profile.routers.iter().enumerate() {
        if limits[router.port].virtual_time {
            let what = format!("router {:?}: its daemon runs in real time", router.name);
            mistakes.at(router.at, &what, "try a port without virtual time");
        }
        let configuration = match router.config.as_deref().map(|path| (path, assets.payload(path)))
        {
            None => None,
            Some((_, Ok(octets))) => Some(String::from_utf8_lossy(&octets).into_owned()),
            Some((path, Err(error))) => {
                let what = format!("router {:?}: cannot read {path:?}: {error}", router.name);
                mistakes.at(router.at, &what, "the path is relative to the profile");
                continue;
            }
        };
        routers.push(PlanRouter {
            name: router.name.clone(),
            port: router.port,
            elsewhere: limits[router.port].elsewhere,
            settings: settings(number, router, configuration),
        });
    }
    routers
}

fn settings(number: usize, router: &Router, configuration: Option<String>) -> RouterSettings {
    let number = number as u8;
    let own = router.ipv4.map(|(address, _)| address);
    let narrow = |value: u64| value as u32;
    let hello = router.hello.unwrap_or(HELLO);
    let asn = router.asn.map(narrow);
    let neighbors = |asn: u32| {
        let of = |one: &squall_profile::BgpNeighbor| Neighbor {
            address: one.address,
            asn: one.asn.unwrap_or(asn),
        };
        router.neighbors.iter().map(of).collect()
    };
    let range = |routes: &squall_profile::Routes| RouteRange {
        first: routes.first,
        length: routes.length,
        count: routes.count,
    };
    RouterSettings {
        mac: router.mac.unwrap_or(MacAddr([2, 0x54, number, 0, 0, 1])),
        ipv4: router.ipv4,
        ipv6: router.ipv6,
        router_id: router.router_id.or(own).unwrap_or(Ipv4Addr::new(
            192,
            0,
            2,
            number.saturating_add(1),
        )),
        bgp: asn.map(|asn| Bgp {
            asn,
            neighbors: neighbors(asn),
            hold: router.hold.unwrap_or(HOLD),
            password: router.password.clone(),
            med: router.med.map(narrow),
            prepend: narrow(router.prepend),
            communities: router.communities.clone(),
        }),
        ospf: router.ospf,
        ospf3: router.ospf3,
        hello,
        dead: router.dead.unwrap_or(Nanos(4 * hello.0)),
        rip: router.rip,
        ripng: router.ripng,
        rip_update: router.rip_update.unwrap_or(UPDATE),
        bfd: router.bfd,
        routes: router.routes.iter().map(range).collect(),
        configuration,
    }
}
