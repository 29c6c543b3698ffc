//! Routers of a run: starts their daemons, and asks for their states.

use std::io;

use squall_engine::RouterLinks;
use squall_machine::router::Router;
use squall_plan::Plan;
use squall_router::DaemonState;

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
            if router.elsewhere {
                links.push(None);
                continue;
            }
            let mtu = plan.ports[router.port].max_frame.saturating_sub(14).clamp(576, MTU);
            let started = Router::start(&router.name, &router.settings, mtu);
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

    pub fn states(&self) -> Vec<(usize, DaemonState)> {
        self.0.iter().map(|(number, daemon)| (*number, daemon.state())).collect()
    }
}
