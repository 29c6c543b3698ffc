//! Routers of a run: starts their daemons, asks for their states, and passes orders. Native routers
//! have no daemon: they are a part of the engine.

use std::io;

use squall_engine::{RouterLinks, Running, Snapshot};
use squall_machine::router::Router;
use squall_plan::Plan;
use squall_profile::RouterStep;
use squall_router::DaemonState;
use squall_units::Nanos;

use crate::Error;

/// Longest IP packet of a router's interface, octets.
const MTU: u32 = 1_500;

/// The daemons of a run, by the numbers of their routers. They end with it.
#[derive(Default)]
pub(crate) struct Routers(Vec<(usize, Router)>);

impl Routers {
    /// Starts the routers of `plan` whose ports are here. Returns them with the links to them, by
    /// number.
    ///
    /// # Errors
    /// [`Error::Usage`]: the daemon refuses its configuration. [`Error::Environment`]: it is not
    /// installed, or a namespace, an interface or a folder for it cannot be made.
    pub fn start(plan: &Plan) -> Result<(Self, RouterLinks), Error> {
        let (mut daemons, mut links) = (Vec::new(), Vec::new());
        for (number, router) in plan.routers.iter().enumerate() {
            if router.elsewhere || router.settings.daemon.native().is_some() {
                links.push(None);
                continue;
            }
            let mtu = plan.ports[router.port].max_frame.saturating_sub(14).clamp(576, MTU);
            let started = Router::start(&router.name, &router.settings, &router.steps, mtu);
            let (daemon, link) = started.map_err(|error| {
                let text = format!("cannot start router {:?}: {error}", router.name);
                match error.kind() {
                    io::ErrorKind::InvalidInput => Error::Usage(text),
                    _ => Error::Environment(text),
                }
            })?;
            daemons.push((number, daemon));
            links.push(Some(link));
        }
        Ok((Self(daemons), links))
    }

    /// The run starts at `at`, on the engine's clock. The steps of routers count from there.
    pub fn begin(&self, at: Nanos) {
        self.0.iter().for_each(|(_, daemon)| daemon.begin(at));
    }

    /// Carries out an order.
    ///
    /// # Errors
    /// [`Error::Usage`]: there is no such router here, or it does not have what the order names.
    /// [`Error::Environment`]: its daemon has ended.
    pub fn order(&self, running: &Running, name: &str, step: &RouterStep) -> Result<(), Error> {
        let plan = running.plan();
        let names = || plan.routers.iter().map(|router| router.name.as_str());
        let number = names().position(|one| one == name).ok_or_else(|| {
            let hint = squall_units::suggest(name, names());
            Error::Usage(format!("there is no router {name:?}\n  {hint}"))
        })?;
        let router = &plan.routers[number];
        let step = squall_plan::router_step(step)
            .ok_or_else(|| Error::Usage(format!("the order for router {name:?} has no action")))?;
        squall_router::check(&router.settings, &step.order)
            .map_err(|error| Error::Usage(format!("router {name:?}: {error}")))?;
        if router.settings.daemon.native().is_some() && !router.elsewhere {
            running.order(number, step.order, step.duration);
            return Ok(());
        }
        let here = self.0.iter().find(|(one, _)| *one == number).map(|(_, daemon)| daemon);
        let daemon = here.ok_or_else(|| {
            Error::Usage(format!(
                "router {name:?} is on another node\n  try the daemon of that node"
            ))
        })?;
        daemon
            .order(step.order, step.duration)
            .map_err(|error| Error::Environment(format!("router {name:?}: {error}")))
    }

    /// The states of the daemons, with the numbers of their routers.
    pub fn states(&self) -> Vec<(usize, DaemonState)> {
        self.0.iter().map(|(number, daemon)| (*number, daemon.state())).collect()
    }
}

/// The states of native routers, with their numbers.
pub(crate) fn native_states(snapshots: &[Snapshot]) -> impl Iterator<Item = (usize, DaemonState)> {
    let all = snapshots.iter().flat_map(|snapshot| &snapshot.routers);
    all.filter_map(|of| Some((of.router, of.native.as_deref()?.clone())))
}
