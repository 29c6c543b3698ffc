//! Routers of a profile as settings of a routing daemon.

use std::net::Ipv4Addr;

use squall_profile::{
    ErrorCollector, IsisLevel, IsisNetwork, MrtAttributes, Profile, RouteOrigin, Router,
    RouterAction, RouterDaemon, RouterGroup, RouterStep, Routes,
};
use squall_router::{
    Bgp, Copies, Daemon, Flap, GroupAttributes, GroupPart, Igp, Isis, Neighbor, Origin, Prefixes,
    RouteGroup, RouterOrder, RouterSettings, Step,
};
use squall_units::Nanos;

use crate::{Assets, PortLimits, route_tables::RouteTables, stream_routes};

/// A router on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRouter {
    pub name: String,
    pub port: usize,
    /// The port belongs to another node.
    pub elsewhere: bool,
    pub settings: RouterSettings,
    /// Changes to it during the run.
    pub steps: Vec<Step>,
    /// The routes that it should learn from the device.
    pub expect: Option<ExpectedRoutes>,
}

/// Routes that another router announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedRoutes {
    /// Index into [`Plan::routers`](crate::Plan::routers).
    pub router: usize,
    /// `None`: all groups.
    pub group: Option<String>,
}

/// Defaults: BGP's hold time is that of RFC 4271 section 10, the hello interval that of RFC 2328
/// appendix C.3, and the updates of RIP those of RFC 2453 section 3.8.
const HOLD: Nanos = Nanos(90 * Nanos::SECOND.0);
const HELLO: Nanos = Nanos(10 * Nanos::SECOND.0);
const UPDATE: Nanos = Nanos(30 * Nanos::SECOND.0);
/// Default time that a route that flaps is down.
const FLAP_DOWN: Nanos = Nanos::SECOND;

pub(crate) fn compile(
    profile: &Profile,
    assets: &dyn Assets,
    limits: &[PortLimits],
    notes: &mut Vec<String>,
    mistakes: &mut ErrorCollector<'_>,
) -> Vec<PlanRouter> {
    let mut routers = Vec::new();
    let tables = RouteTables::new(profile, assets);
    for (number, router) in profile.routers.iter().enumerate() {
        if limits[router.port].virtual_time && router.daemon != RouterDaemon::Native {
            let what = format!("router {:?}: its daemon runs in real time", router.name);
            let hint = "try a port without virtual time, or daemon = \"native\" for BGP";
            mistakes.at(router.at, &what, hint);
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
            settings: settings(
                number,
                router,
                groups(router, |group| tables.of_group(router, group, notes, mistakes)),
                configuration,
            ),
            steps: router.step.iter().filter_map(router_step).collect(),
            expect: None,
        });
    }
    for router in &profile.routers {
        let Some(expect) = &router.expect else { continue };
        let (what, hint) = match stream_routes::find(&expect.text, profile, &routers) {
            Ok((other, _)) if routers[other].name == router.name => {
                ("these are its own routes".to_owned(), "try another router".to_owned())
            }
            Ok((other, group)) => {
                let expected = ExpectedRoutes { router: other, group: group.map(str::to_owned) };
                let own = routers.iter_mut().find(|one| one.name == router.name);
                own.into_iter().for_each(|one| one.expect = Some(expected.clone()));
                continue;
            }
            Err(wrong) => wrong,
        };
        mistakes.note(expect, &format!("expect = {:?}: {what}", expect.text), &hint);
    }
    routers
}

/// A step of a profile, or a live order. `None`: it has no action.
pub fn router_step(step: &RouterStep) -> Option<Step> {
    let part = || GroupPart { group: step.group.clone(), count: step.count };
    let neighbor = step.neighbor;
    let order = match step.action? {
        RouterAction::Withdraw => RouterOrder::Withdraw(part()),
        RouterAction::Announce => RouterOrder::Announce(part()),
        RouterAction::Down => {
            let message = step.message.clone().unwrap_or_default();
            RouterOrder::Down { neighbor, message }
        }
        RouterAction::Up => RouterOrder::Up { neighbor },
        RouterAction::Restart => RouterOrder::Restart,
        RouterAction::Refresh => RouterOrder::Refresh { neighbor },
        RouterAction::Silent => RouterOrder::Silent,
        RouterAction::Talk => RouterOrder::Talk,
        RouterAction::Notify => RouterOrder::Notify {
            neighbor,
            code: step.code.unwrap_or(0) as u8,
            subcode: step.subcode.unwrap_or(0) as u8,
            data: step.data.clone(),
        },
    };
    let RouterStep { at, duration, every, times, .. } = *step;
    Some(Step { at, order, duration, every, times })
}

fn settings(
    number: usize,
    router: &Router,
    groups: Vec<RouteGroup>,
    configuration: Option<String>,
) -> RouterSettings {
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
    RouterSettings {
        daemon: match router.daemon {
            RouterDaemon::Bird => Daemon::Bird,
            RouterDaemon::Frr => Daemon::Frr,
            RouterDaemon::Native => Daemon::Native(Copies {
                count: narrow(router.count),
                asn_step: narrow(router.asn_step),
            }),
        },
        mac: router.mac.unwrap_or_else(|| Router::default_mac(number.into())),
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
        }),
        ospf: router.ospf,
        ospf3: router.ospf3,
        isis: router.isis.as_ref().map(|area| Isis {
            area: area.clone(),
            levels: match router.isis_level {
                IsisLevel::One => [true, false],
                IsisLevel::Two => [false, true],
                IsisLevel::Both => [true, true],
            },
            metric: narrow(router.isis_metric),
            point_to_point: router.isis_network == IsisNetwork::PointToPoint,
        }),
        igp: Igp::default(),
        hello,
        dead: router.dead.unwrap_or(Nanos(4 * hello.0)),
        rip: router.rip,
        ripng: router.ripng,
        rip_update: router.rip_update.unwrap_or(UPDATE),
        bfd: router.bfd,
        groups,
        graceful_restart: router.graceful_restart
            || router.step.iter().any(|step| step.action == Some(RouterAction::Restart)),
        configuration,
    }
}

/// The groups of a router: that of its key `routes` is the first. `prefixes` makes those of a
/// group.
fn groups(
    router: &Router,
    mut prefixes: impl FnMut((&str, &[Routes], MrtAttributes)) -> Vec<Prefixes>,
) -> Vec<RouteGroup> {
    let narrow = |value: u64| value as u32;
    let own = || GroupAttributes {
        med: router.med.map(narrow),
        prepend: narrow(router.prepend),
        communities: router.communities.clone(),
        ..GroupAttributes::default()
    };
    let routes = (!router.routes.is_empty()).then(|| RouteGroup {
        name: "routes".into(),
        attributes: own(),
        prefixes: prefixes(("routes", &router.routes, router.attributes)),
        flap: None,
        single: false,
    });
    let named = |group: &RouterGroup| RouteGroup {
        name: group.name.clone(),
        attributes: GroupAttributes {
            med: group.med.or(router.med).map(narrow),
            prepend: narrow(group.prepend.unwrap_or(router.prepend)),
            communities: group.communities.clone().unwrap_or_else(|| router.communities.clone()),
            as_path: group.as_path.clone(),
            origin: group.origin.map(|origin| match origin {
                RouteOrigin::Igp => Origin::Igp,
                RouteOrigin::Egp => Origin::Egp,
                RouteOrigin::Incomplete => Origin::Incomplete,
            }),
            next_hop: group.next_hop,
        },
        prefixes: prefixes((
            &group.name,
            &group.routes,
            group.attributes.unwrap_or(router.attributes),
        )),
        flap: group.flap.map(|rate| Flap {
            gap: Nanos((1e9 / rate) as u64),
            down: group.flap_down.unwrap_or(FLAP_DOWN),
        }),
        single: group.single,
    };
    let mut groups: Vec<_> = routes.into_iter().chain(router.group.iter().map(named)).collect();
    // FRR has all routes from the kernel's table.
    if router.daemon == RouterDaemon::Frr {
        groups.iter_mut().for_each(|group| group.single = true);
    }
    let is_only = groups.len() == 1;
    for step in router.step.iter().filter(|step| step.count.is_some()) {
        let is_named = |name: &str| step.group.as_deref().map_or(is_only, |group| group == name);
        groups
            .iter_mut()
            .filter(|group| is_named(&group.name))
            .for_each(|group| group.single = true);
    }
    groups
}

#[cfg(test)]
mod tests {
    use squall_units::MacAddr;

    use super::*;

    #[test]
    fn groups_override_the_router_and_a_count_makes_one_single() {
        let group = |name: &str| RouterGroup { name: name.into(), ..RouterGroup::default() };
        let router = Router {
            med: Some(7),
            communities: vec![(65001, 1)],
            group: vec![
                RouterGroup { med: Some(9), communities: Some(Vec::new()), ..group("edge") },
                RouterGroup { flap: Some(4.0), ..group("core") },
            ],
            step: vec![RouterStep {
                action: Some(RouterAction::Withdraw),
                group: Some("edge".into()),
                count: Some(2),
                ..RouterStep::default()
            }],
            ..Router::default()
        };
        let found = groups(&router, |_| Vec::new());
        let brief: Vec<_> = found
            .iter()
            .map(|group| (&*group.name, group.attributes.med, group.single, group.flap))
            .collect();
        let flap = Flap { gap: Nanos(250_000_000), down: FLAP_DOWN };
        assert_eq!(
            brief,
            [("edge", Some(9), true, None), ("core", Some(7), false, Some(flap))],
            "without routes of its own, the router has no group for them"
        );
        assert_eq!(found[0].attributes.communities, []);
        assert_eq!(found[1].attributes.communities, [(65001, 1)]);
    }

    #[test]
    fn the_mac_address_has_the_number_of_the_router_from_1_on() {
        let mac = |number| settings(number, &Router::default(), Vec::new(), None).mac;
        assert_eq!(mac(0), MacAddr([2, 0x54, 1, 0, 0, 1]));
        assert_eq!(mac(1), MacAddr([2, 0x54, 2, 0, 0, 1]));
    }

    #[test]
    fn frr_has_single_routes_only_and_the_levels_of_its_area() {
        let router = Router {
            daemon: RouterDaemon::Frr,
            isis: Some("49.0001".into()),
            isis_level: IsisLevel::Two,
            isis_metric: 20,
            routes: vec![Routes::Random { is_ipv6: false, count: 1 }],
            ..Router::default()
        };
        let groups = groups(&router, |_| Vec::new());
        assert!(groups.iter().all(|group| group.single) && groups.len() == 1);
        let settings = settings(0, &router, groups, None);
        let (area, levels) = ("49.0001".into(), [false, true]);
        let isis = Isis { area, levels, metric: 20, point_to_point: false };
        assert_eq!((settings.daemon, settings.isis), (Daemon::Frr, Some(isis)));
    }
}
