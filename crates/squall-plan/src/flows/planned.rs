//! Describes a load before the run.

use squall_flows::{Arrival, Ends, FlowKind, Load, Spacing, Think, Tuples};
use squall_profile::{FlowContent, Flows, Profile};
use squall_report::{render::human, report::flows::ConversationsReport};
use squall_tcp::Congestion;
use squall_units::Nanos;

use super::PlanFlows;
use crate::{Plan, text::in_stages};

/// Templates and pools of a load.
#[derive(Clone, Debug)]
pub struct PlannedLoad {
    pub templates: Vec<PlannedTemplate>,
    pub pools: Vec<PlannedPool>,
    /// The conversations of a capture, if one is played instead of templates.
    pub conversations: Option<ConversationsReport>,
    /// Maximum number of flows per worker and port, including those in TIME-WAIT, and the memory
    /// that they would take, octets.
    pub max_flows: u32,
    pub max_flows_octets: u64,
}

/// A kind of flows.
#[derive(Clone, Debug)]
pub struct PlannedTemplate {
    pub name: String,
    /// The built-in application, the conversation of a capture, or `programs`.
    pub content: String,
    /// `tcp`, `udp`, `tls` or `quic`.
    pub transport: &'static str,
    /// Names of the pools, and the port of the servers.
    pub clients: String,
    pub servers: String,
    pub port: u16,
    /// The arrivals, as text.
    pub arrival: String,
    /// New flows per second after all ramps; absent if the number depends on other flows.
    pub asked_cps: Option<f64>,
    /// Number of combinations of client, client port and server, which limits the number of open
    /// flows.
    pub tuples: u64,
}

/// Addresses and client ports of a pool.
#[derive(Clone, Debug)]
pub struct PlannedPool {
    pub name: String,
    pub addresses: u64,
    pub ports: u64,
    pub first: String,
    pub order: &'static str,
}

impl Plan {
    /// Describes the plan's flows with the names in `profile`, from which the plan was made. Adds
    /// hints to the notes.
    pub fn explain_flows(&mut self, profile: &Profile) -> Option<PlannedLoad> {
        let (spec, flows) = (profile.flows.as_ref()?, self.flows.as_ref()?);
        Some(PlannedLoad::of(spec, flows, &mut self.notes))
    }
}

impl PlannedLoad {
    fn of(spec: &Flows, flows: &PlanFlows, notes: &mut Vec<String>) -> Self {
        let load = &flows.load;
        let conversations =
            flows.script(false).or(flows.script(true)).map(|played| played.plan.report.clone());
        let max_flows = flows.sides.iter().map(|side| side.flows).max().unwrap_or(0);
        let bbr = load.templates.iter().any(|template| {
            [&template.client_tunables, &template.server_tunables]
                .iter()
                .any(|tunables| tunables.congestion == Congestion::Bbr)
        });
        // The model of BBR, which flows have from their handshake on.
        let each = squall_flows::FLOW_OCTETS + if bbr { 700 } else { 0 };
        let max_flows_octets = u64::from(max_flows) * each;
        if load.own_templates() == 0 {
            let (templates, pools) = (Vec::new(), Vec::new());
            return Self { templates, pools, conversations, max_flows, max_flows_octets };
        }
        // The compiler has validated them.
        let pools: Vec<Option<Tuples>> =
            load.clients.iter().map(|pool| Tuples::new(pool, 0).ok()).collect();
        let size = |pool: usize, of: fn(&Tuples) -> u64| {
            pools.get(pool).and_then(Option::as_ref).map_or(0, of)
        };
        let ends = load.client_tuples().unwrap_or_default();
        let share = |i: usize| ends.get(i).map_or((0, 0), |ends| (ends.len(), ends.ports()));
        let known_by_ports = |(i, template): &(usize, &squall_flows::Template)| {
            share(*i).1 < size(template.clients, Tuples::ports)
        };
        let own = || load.templates[..load.own_templates()].iter().enumerate();
        let known: Vec<_> = own().filter(known_by_ports).collect();
        if !known.is_empty() {
            let names: Vec<_> =
                known.iter().map(|(_, template)| format!("{:?}", template.name)).collect();
            notes.push(format!(
                "templates {} have servers at one address and port; each has a share of the \
                 clients' ports, by which servers identify it; if a device translates ports, \
                 try one server port per template",
                names.join(", ")
            ));
        }
        let template = |(i, template): (usize, &squall_flows::Template)| {
            let tuples = share(i).0.saturating_mul(size(template.servers, Tuples::addresses));
            let asked_cps = load.asked(i).map(squall_flows::Cps::value);
            // The side that closes first keeps the tuple in TIME-WAIT, so it cannot be reused for
            // that time.
            let kept = template.client_tunables.time_wait.as_secs_f64();
            if let Some(cps) = asked_cps
                && template.kind() == FlowKind::Tcp
                && cps * kept > tuples as f64
            {
                notes.push(format!(
                    "template {:?}: {} flows per second need more than its {} combinations of \
                     addresses and ports, because each is in use for {kept} s more; try more \
                     addresses, or a shorter tcp.time_wait",
                    template.name,
                    human::si(cps, ""),
                    human::count(tuples),
                ));
            }
            PlannedTemplate {
                name: template.name.clone(),
                content: spec
                    .templates
                    .iter()
                    .find(|t| t.name == template.name)
                    .map_or_else(String::new, exchange)
                    + played(template.ends),
                transport: match (template.tls.is_some(), template.kind()) {
                    (true, FlowKind::Udp) => "quic",
                    (true, FlowKind::Tcp) => "tls",
                    (false, FlowKind::Tcp) => "tcp",
                    (false, FlowKind::Udp) => "udp",
                },
                clients: load.clients[template.clients].name.clone(),
                servers: load.servers[template.servers].name.clone(),
                port: template.port,
                arrival: arrival(load, template),
                asked_cps,
                tuples,
            }
        };
        let templates = own().map(template).collect();
        type Pool<'a> = ((&'a squall_flows::Pool, &'a Option<Tuples>), &'a squall_profile::Pool);
        let pool = |((pool, tuples), spec): Pool<'_>| {
            let tuples = tuples.as_ref()?;
            Some(PlannedPool {
                name: pool.name.clone(),
                addresses: tuples.addresses(),
                ports: tuples.ports(),
                first: match spec.hosts() {
                    Some((_, at)) => at.text.clone(),
                    None => tuples.address(0).to_string(),
                },
                order: match pool.order {
                    squall_flows::Order::Sequential => "sequential",
                    squall_flows::Order::Random => "random",
                    squall_flows::Order::Hash => "hash",
                },
            })
        };
        let pools = load.clients.iter().zip(&pools).zip(&spec.pools).filter_map(pool).collect();
        // Templates of attacks are described with the attacks, not here.
        Self { templates, pools, conversations: None, max_flows, max_flows_octets }
    }
}

/// A suffix for the description of the exchange.
fn played(ends: Ends) -> &'static str {
    match ends {
        Ends::Both => "",
        Ends::Clients => " (clients)",
        Ends::Servers => " (servers)",
    }
}

fn exchange(template: &squall_profile::Template) -> String {
    let data = template.data.as_ref();
    let data = data.map_or_else(String::new, |data| format!(", data {}", data.file.text));
    let proxy = template.proxy_protocol.as_ref();
    let proxy = proxy.map_or_else(String::new, |of| format!(", PROXY {}", of.version.word()));
    let version = if super::tls::is_http3(template) { 3 } else { 2 };
    let http = match template.http.as_ref().map(|http| http.streams) {
        None => String::new(),
        Some(1) => format!(", HTTP/{version}"),
        Some(streams) => format!(", HTTP/{version} with {streams} streams"),
    };
    what(template) + &data + &proxy + &http
}

fn what(template: &squall_profile::Template) -> String {
    match &template.content {
        FlowContent::App { app, options } => {
            let options = options.iter().map(|(name, value)| format!(" {name}={}", value.text));
            std::iter::once(app.text.clone()).chain(options).collect()
        }
        FlowContent::Programs { .. } => "programs".into(),
        FlowContent::Capture { path, number, .. } => format!("{} #{number}", path.text),
    }
}

fn arrival(load: &Load, template: &squall_flows::Template) -> String {
    let law = |spacing: Spacing| match spacing {
        Spacing::Constant => "",
        Spacing::Poisson => ", Poisson",
    };
    let mut times = String::new();
    if template.start > Nanos::ZERO {
        times += &format!(", from {}", template.start);
    }
    if let Some(lasts) = template.duration {
        times += &format!(", for {lasts}");
    }
    if let Some(limit) = template.limit {
        times += &format!(", at most {}", human::counted(limit, "flow"));
    }
    let of = match template.arrival {
        Arrival::Open { cps, spacing } => {
            format!("{} flows/s{}", human::si(cps.value(), ""), law(spacing))
        }
        Arrival::Weight { weight, spacing } => {
            format!("{weight}/{} of the total{}", load.weights(), law(spacing))
        }
        Arrival::Closed { users, think } => match think {
            Think::Fixed(time) if time.0 == 0 => format!("{users} users"),
            Think::Fixed(time) => format!("{users} users, think time {time}"),
            Think::Exponential(mean) => format!("{users} users, think time {mean} on average"),
        },
        Arrival::Called => "begun by other flows".into(),
        Arrival::None => "served".into(),
    };
    let most = match template.arrival {
        Arrival::Open { cps, .. } => cps.value(),
        Arrival::Closed { users, .. } => users.into(),
        Arrival::Weight { .. } | Arrival::Called | Arrival::None => 0.0,
    };
    if let Some(shape) = &template.shape {
        times += &in_stages(shape, most, "");
    }
    of + &times
}
