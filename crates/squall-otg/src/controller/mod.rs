//! Control of a configuration and its run.
//!
//! [`Controller`] implements an OTG session independently of the transport: JSON in, JSON out. A
//! [`Start`] starts its runs, so a daemon can grant or refuse ports.

mod bgp;
mod captures;
mod dhcp;
mod hosts;
mod lacp;
mod lldp;
mod metrics;
mod routers;
mod traffic;

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Serialize;
use serde_json::Value;
use squall::Error;
use squall_bgp::{Notification, cease};
use squall_control::driving::Start;
use squall_port_linux::LinkWatch;
use squall_router::{GroupPart, RouterOrder, observe::Protocol};
use squall_speaker::Order;

pub use crate::replies::Error as Refusal;

use crate::{
    BgpPeerInfo, Config, DeviceInfo, LagInfo, LagMemberInfo, Problems, Resolved, RouterInfo,
    Translated, lsas,
    replies::{
        CaptureRequest, ControlAction, ControlState, Ipv4Neighbor, Ipv6Neighbor, MetricsRequest,
        PingReply, StatesRequest, StatesResponse, TransmitState, Version, Warning,
    },
    translate, translate_with,
};
use captures::Captures;
use hosts::Hosts;
use traffic::Traffic;

/// Maximum age of reported counters. More frequent requests get the same answer: a query costs
/// worker time.
const AGE: Duration = Duration::from_millis(100);
/// Time limit for gateways to answer.
const GATEWAYS: Duration = Duration::from_secs(4);
/// Time limit for answers to echo requests.
const PINGS: Duration = Duration::from_secs(4);
/// Time limit for routing daemons to carry out orders.
const STEP_LIMIT: Duration = Duration::from_secs(4);

/// Configuration, traffic and captures of one client. Calls block until the request is done, for up
/// to several seconds.
///
/// ```
/// use serde_json::json;
/// use squall_control::driving::InProcess;
/// use squall_otg::Controller;
///
/// let mut otg = Controller::new(Box::<InProcess>::default());
/// otg.set_config(&json!({
///     "ports": [{ "name": "p1", "location": "loop:doc-otg" }, { "name": "p2", "location": "loop:doc-otg" }],
///     "flows": [{
///         "name": "f1",
///         "tx_rx": { "choice": "port", "port": { "tx_name": "p1", "rx_names": ["p2"] } },
///         "packet": [{ "choice": "ethernet", "ethernet": {} }],
///         "size": { "choice": "fixed", "fixed": 128 },
///         "rate": { "choice": "pps", "pps": "10000" },
///         "duration": { "choice": "fixed_packets", "fixed_packets": { "packets": 100 } },
///         "metrics": { "enable": true, "loss": true },
///     }],
/// }))?;
/// let traffic = |state| json!({ "choice": "traffic", "traffic": {
///     "choice": "flow_transmit", "flow_transmit": { "state": state } } });
/// otg.control_state(&traffic("start"))?;
/// let metrics = loop {
///     let metrics = otg.metrics(&json!({ "choice": "flow", "flow": {} }))?;
///     if metrics["flow_metrics"][0]["transmit"] == "stopped" {
///         break metrics;
///     }
///     std::thread::sleep(std::time::Duration::from_millis(50));
/// };
/// assert_eq!(metrics["flow_metrics"][0]["frames_tx"], "100");
/// # Ok::<_, squall_otg::Refusal>(())
/// ```
pub struct Controller {
    start: Box<dyn Start>,
    config: Config,
    translated: Translated,
    /// Whether this session holds the configuration's ports through [`Start::take`].
    held: bool,
    traffic: Traffic,
    captures: Captures,
    hosts: Hosts,
    /// Link monitors of the ports' interfaces, by interface name.
    links: HashMap<String, LinkWatch>,
    cache: ReplyCache,
    /// Why the ports were lost; reported once, with the next warnings.
    lost: Option<String>,
}

/// Recent metrics replies.
#[derive(Default)]
struct ReplyCache(Vec<(Instant, Value, Arc<Value>)>);

impl Controller {
    pub fn new(start: Box<dyn Start>) -> Self {
        let translated = translate(&Config::default()).expect("the empty configuration is one");
        Self {
            start,
            config: Config::default(),
            traffic: Traffic::of(&translated),
            translated,
            held: false,
            captures: Captures::default(),
            hosts: Hosts::default(),
            links: HashMap::new(),
            cache: ReplyCache::default(),
            lost: None,
        }
    }

    /// Sets a configuration; stops the previous traffic and captures, and resets the counters.
    ///
    /// # Errors
    /// Invalid or unsupported parts of the configuration; ports that are missing or in use. The
    /// previous configuration stays.
    pub fn set_config(&mut self, config: &Value) -> Result<Value, Refusal> {
        let config = Config::from_json(config).map_err(|problems| invalid(&problems))?;
        self.apply_config(config)
    }

    /// The configuration, with all later changes applied.
    pub fn config(&self) -> Value {
        self.config.to_json()
    }

    /// Adds flows; running flows continue.
    ///
    /// # Errors
    /// As for [`Controller::set_config`].
    pub fn append_config(&mut self, append: &Value) -> Result<Value, Refusal> {
        let config = self.config.append(append).map_err(|problems| invalid(&problems))?;
        self.change_config(config)
    }

    /// Changes rate or size of flows; running flows continue if their frames stay the same.
    ///
    /// # Errors
    /// As for [`Controller::set_config`].
    pub fn update_config(&mut self, update: &Value) -> Result<Value, Refusal> {
        let config = self.config.update(update).map_err(|problems| invalid(&problems))?;
        self.change_config(config)
    }

    /// Removes flows and stops them.
    ///
    /// # Errors
    /// As for [`Controller::set_config`].
    pub fn delete_config(&mut self, delete: &Value) -> Result<Value, Refusal> {
        let config = self.config.delete(delete).map_err(|problems| invalid(&problems))?;
        self.change_config(config)
    }

    /// # Errors
    /// Unknown names, states that the ports do not support, or a refusal of the run.
    pub fn control_state(&mut self, state: &Value) -> Result<Value, Refusal> {
        self.cache.forget();
        let mut warnings = Vec::new();
        match ControlState::from_json(state).map_err(|problems| invalid(&problems))? {
            ControlState::Traffic { flows, state } => {
                self.ensure_ports()?;
                if matches!(state, TransmitState::Start | TransmitState::Resume) {
                    self.resolve_gateways()?;
                }
                let recording = self.captures.run_options(&self.translated);
                let start = self.start.as_mut();
                let recorded =
                    self.traffic.transmit(start, &self.translated, &flows, state, recording)?;
                self.captures.run_started(recorded);
                warnings = self.traffic.warnings();
            }
            ControlState::Capture { ports, start: true } => {
                self.ensure_ports()?;
                let busy = self.traffic.is_on();
                self.captures.start(self.start.as_mut(), &self.translated, &ports, busy)?;
            }
            ControlState::Capture { ports, start: false } => {
                self.captures.stop(&self.translated, &ports)?
            }
            ControlState::Link { ports, up } => self.link(&ports, up)?,
            ControlState::Protocols { start: true } => {
                self.ensure_ports()?;
                self.hosts.stop();
                self.hosts = Hosts::start(&self.translated)?;
                self.resolve()?;
            }
            ControlState::Protocols { start: false } => self.hosts.stop(),
            ControlState::Lacp { ports, admin, up } => self.lacp(&ports, admin, up)?,
            ControlState::Routes { names, advertise } => self.routes(&names, advertise)?,
            ControlState::BgpPeers { names, up: true } => {
                self.sessions("peer_names", &names, |peer| vec![Order::Start(peer)])?;
            }
            ControlState::BgpPeers { names, up: false } => {
                let stop = |peer| vec![Order::Stop(peer, Notification::cease(cease::SHUTDOWN))];
                self.sessions("peer_names", &names, stop)?;
            }
            ControlState::Routers { protocol, names, up } => {
                let order = match up {
                    true => RouterOrder::Up { neighbor: None },
                    false => RouterOrder::Down { neighbor: None, message: String::new() },
                };
                let chosen = self.routers("router_names", protocol, &names)?;
                self.check_protocols_are_on()?;
                for router in chosen.iter().filter_map(|info| self.hosts.router(&info.name)) {
                    router.order(order.clone())?;
                }
                self.check_steps()?;
            }
        }
        self.with_warnings(warnings)
    }

    /// Sends pings from devices; starts the devices if needed. A missing answer is not an error.
    /// Ends or restarts BGP sessions.
    ///
    /// # Errors
    /// Unknown names, devices on ports without an interface, sessions that are not started, or
    /// unsupported actions.
    pub fn control_action(&mut self, action: &Value) -> Result<Value, Refusal> {
        self.cache.forget();
        let action = ControlAction::from_json(action).map_err(|problems| invalid(&problems))?;
        let (v6, requests) = match action {
            ControlAction::Ping { v6, requests } => (v6, requests),
            ControlAction::Notify { peers, notification } => {
                let reset = |peer| vec![Order::Reset(peer, notification.clone())];
                self.sessions("names", &peers, reset)?;
                return self.with_warnings(Vec::new());
            }
            ControlAction::Restart { peers, after } => {
                let chosen = chosen_sessions(&self.translated, "peer_names", &peers, None)?;
                if let Some(peer) = chosen.iter().find(|peer| peer.session.restart.is_none()) {
                    let why = format!("{:?} has no graceful_restart.enable_gr", peer.name);
                    return Err(invalid(&Problems::one("peer_names", why)));
                }
                self.sessions("peer_names", &peers, |peer| vec![Order::Restart(peer, after)])?;
                return self.with_warnings(Vec::new());
            }
        };
        let sources = requests.iter().map(|request| hosts::Ping::of(request, &self.translated));
        let pings = sources
            .collect::<Result<Vec<_>, _>>()
            .map_err(|problem| invalid(&Problems(vec![problem])))?;
        self.ensure_ports()?;
        if !self.hosts.are_on() && !pings.is_empty() {
            self.hosts.start_devices(&self.translated)?;
        }
        let answered = self.hosts.ping(pings, PINGS);
        let results = requests.into_iter().zip(answered).collect();
        Ok(PingReply { v6, results, warnings: self.lost.take().into_iter().collect() }.to_json())
    }

    /// Counters, at most 100 ms old. Within that time the same request gets the same answer.
    ///
    /// # Errors
    /// Unknown names, or unsupported requests.
    pub fn metrics(&mut self, request: &Value) -> Result<Arc<Value>, Refusal> {
        if let Some(cached) = self.cache.find(request) {
            return Ok(cached);
        }
        let reply =
            match MetricsRequest::from_json(request).map_err(|problems| invalid(&problems))? {
                MetricsRequest::Ports { names, columns } => {
                    let chosen = self.ports(&names)?;
                    metrics::ports(
                        &self.translated,
                        &mut self.traffic,
                        &self.captures,
                        &self.links,
                        &chosen,
                        &columns,
                    )
                }
                MetricsRequest::Flows { names, columns, tagged } => {
                    let chosen = traffic::chosen(&self.translated, &names)?;
                    metrics::flows(&self.translated, &mut self.traffic, &chosen, &columns, &tagged)
                }
                MetricsRequest::DhcpClients { names, columns, v6 } => {
                    let chosen = self.dhcp_clients("client_names", &names, v6)?;
                    match v6 {
                        true => {
                            let (all, hosts) = (&self.translated, &self.hosts);
                            metrics::dhcp6_clients(all, hosts, chosen, &columns)
                        }
                        false => metrics::dhcp_clients(&self.hosts, chosen, &columns),
                    }
                }
                MetricsRequest::DhcpServers { names, columns, v6 } => {
                    let chosen = self.dhcp_servers("server_names", &names, v6)?;
                    match v6 {
                        true => metrics::dhcp6_servers(&self.hosts, chosen, &columns),
                        false => metrics::dhcp_servers(&self.hosts, chosen, &columns),
                    }
                }
                MetricsRequest::Bgp { names, columns, v6 } => {
                    let of = &self.translated;
                    let chosen = chosen_sessions(of, "peer_names", &names, Some(v6))?;
                    let chosen = chosen.into_iter().map(|peer| &peer.name[..]).collect();
                    metrics::bgp(&self.hosts, chosen, &columns, v6)
                }
                MetricsRequest::Routers { protocol, names, columns } => {
                    let chosen = self.routers("router_names", protocol, &names)?;
                    self.check_daemons()?;
                    let chosen = chosen.into_iter().map(|info| &info.name[..]).collect();
                    metrics::routers(&self.hosts, protocol, chosen, &columns)
                }
                MetricsRequest::Lldp { names, columns } => {
                    metrics::lldp(&self.hosts, self.lldp("lldp_names", &names)?, &columns)
                }
                MetricsRequest::Lags { names, columns } => {
                    let Self { translated, traffic, hosts, .. } = self;
                    let chosen = chosen_lags(translated, &names)?;
                    metrics::lags(translated, traffic, hosts, &chosen, &columns)
                }
                MetricsRequest::Lacp { lags, ports, columns } => {
                    let lags = chosen_lags(&self.translated, &lags)?;
                    let chosen = members(&lags, "lag_member_port_names", &ports)?;
                    metrics::lacp(&self.hosts, chosen, &columns)
                }
            };
        let shared = Arc::new(self::reply(&reply)?);
        self.cache.keep(request, &shared);
        Ok(shared)
    }

    /// Gateways of devices, with their MAC addresses if known; leases of DHCP; neighbors of LLDP;
    /// learnt routes of BGP.
    ///
    /// # Errors
    /// Unsupported requests.
    pub fn states(&mut self, request: &Value) -> Result<Value, Refusal> {
        let request = StatesRequest::from_json(request).map_err(|problems| invalid(&problems))?;
        let resolved = self.hosts.resolved();
        let asked = |names: &[String], device: &DeviceInfo| {
            names.is_empty() || names.contains(&device.ethernet)
        };
        let devices = &self.translated.devices;
        let mac_of = |device: &DeviceInfo,
                      given: Option<squall_units::MacAddr>,
                      gateway: IpAddr| {
            let peer = devices.iter().find(|other| match gateway {
                IpAddr::V4(gateway) => other.ipv4.iter().any(|v4| v4.address == gateway),
                IpAddr::V6(gateway) => other.ipv6.iter().any(|v6| v6.address == gateway),
            });
            let mac = given.or_else(|| resolved.get(&(device.ethernet.clone(), gateway)).copied());
            mac.or(peer.map(|other| other.mac)).map(|mac| mac.to_string())
        };
        let now = squall_port::monotonic();
        reply(&match request {
            StatesRequest::DhcpInterfaces { clients, v6 } => {
                let names = self.dhcp_clients("dhcp_client_names", &clients, v6)?.into_iter();
                match v6 {
                    true => StatesResponse::Dhcp6Interfaces {
                        dhcpv6_interfaces: names
                            .map(|name| metrics::dhcp6_interface(&self.hosts, name, now))
                            .collect(),
                    },
                    false => StatesResponse::DhcpInterfaces {
                        dhcpv4_interfaces: names
                            .map(|name| metrics::dhcp_interface(&self.hosts, name, now))
                            .collect(),
                    },
                }
            }
            StatesRequest::DhcpLeases { servers, v6 } => {
                let names = self.dhcp_servers("dhcp_server_names", &servers, v6)?.into_iter();
                match v6 {
                    true => StatesResponse::Dhcp6Leases {
                        dhcpv6_leases: names
                            .map(|name| metrics::dhcp6_leases(&self.hosts, name, now))
                            .collect(),
                    },
                    false => StatesResponse::DhcpLeases {
                        dhcpv4_leases: names
                            .map(|name| metrics::dhcp_leases(&self.hosts, name, now))
                            .collect(),
                    },
                }
            }
            StatesRequest::BgpPrefixes { peers, families, filters } => {
                let peers = chosen_sessions(&self.translated, "bgp_peer_names", &peers, None)?;
                let is_incomplete = |peer: &&&BgpPeerInfo| {
                    let found = self.hosts.bgp(&peer.name);
                    found.is_some_and(|(of, at)| of.with_peer(at, |it| it.learnt.not_kept > 0))
                };
                if let Some(peer) = peers.iter().find(is_incomplete) {
                    let why = format!(
                        "{:?} has announced more routes than the million that an interface keeps",
                        peer.name
                    );
                    return Err(invalid(&Problems::one("bgp_peer_names", why)));
                }
                let of = |peer| metrics::bgp_prefixes(&self.hosts, peer, families, &filters);
                StatesResponse::BgpPrefixes { bgp_prefixes: peers.into_iter().map(of).collect() }
            }
            StatesRequest::Databases { protocol, key, names } => {
                let mut found = Vec::new();
                self.check_daemons()?;
                for info in self.routers(key, protocol, &names)? {
                    let router = self.hosts.router(&info.name);
                    let database = router.map(|router| router.database(now)).unwrap_or_default();
                    if database.not_kept > 0 {
                        let why = format!("{:?} has received more than 64 MiB of them", info.name);
                        return Err(invalid(&Problems::one(key, why)));
                    }
                    found.push(lsas::state(info, &database, now));
                }
                match protocol {
                    Protocol::Ospf2 => StatesResponse::Ospfv2Lsas { ospfv2_lsas: found },
                    Protocol::Ospf3 => StatesResponse::Ospfv3Lsas { ospfv3_lsas: found },
                    Protocol::Isis => StatesResponse::IsisLsps { isis_lsps: found },
                }
            }
            StatesRequest::LldpNeighbors { names, ids } => StatesResponse::LldpNeighbors {
                lldp_neighbors: (self.lldp("lldp_names", &names)?.into_iter())
                    .flat_map(|name| metrics::lldp_neighbors(&self.hosts, name, now))
                    .filter(|neighbor| ids.is_empty() || ids.contains(&neighbor.neighbor_id))
                    .collect(),
            },
            StatesRequest::Ipv4Neighbors { ethernets } => StatesResponse::Ipv4Neighbors {
                ipv4_neighbors: (devices.iter().filter(|device| asked(&ethernets, device)))
                    .flat_map(|device| device.ipv4.iter().map(move |v4| (device, v4)))
                    .filter(|(_, v4)| !v4.is_loopback)
                    .map(|(device, v4)| Ipv4Neighbor {
                        ethernet_name: device.ethernet.clone(),
                        ipv4_address: v4.gateway.to_string(),
                        link_layer_address: mac_of(device, v4.gateway_mac, v4.gateway.into()),
                    })
                    .collect(),
            },
            StatesRequest::Ipv6Neighbors { ethernets } => StatesResponse::Ipv6Neighbors {
                ipv6_neighbors: (devices.iter().filter(|device| asked(&ethernets, device)))
                    .flat_map(|device| device.ipv6.iter().map(move |v6| (device, v6)))
                    .filter(|(_, v6)| !v6.is_loopback)
                    .map(|(device, v6)| Ipv6Neighbor {
                        ethernet_name: device.ethernet.clone(),
                        ipv6_address: v6.gateway.to_string(),
                        link_layer_address: mac_of(device, v6.gateway_mac, v6.gateway.into()),
                    })
                    .collect(),
            },
        })
    }

    /// The frames that the port captured, as a pcap or pcapng file. Each frame includes its FCS.
    ///
    /// # Errors
    /// The port has no capture.
    pub fn capture(&mut self, request: &Value) -> Result<Vec<u8>, Refusal> {
        let request = CaptureRequest::from_json(request).map_err(|problems| invalid(&problems))?;
        self.ports(std::slice::from_ref(&request.port))?;
        Ok(self.captures.fetch(&self.translated, &request.port, request.initial)?)
    }

    pub fn version() -> Value {
        reply(&Version::of(env!("CARGO_PKG_VERSION"))).expect("texts are JSON")
    }

    /// Stops traffic and captures and frees the ports. Keeps the configuration and the counters.
    pub fn stop_all(&mut self) {
        self.cache.forget();
        self.traffic.end();
        self.captures.stop_all();
        self.hosts.stop();
        if std::mem::take(&mut self.held) {
            // Always granted: an empty request takes no port from another client.
            let _ = self.start.take(&[]);
        }
    }

    /// Stops traffic and captures, frees the ports, and removes the files of captures.
    pub fn end(&mut self) {
        self.stop_all();
        self.captures = Captures::default();
    }

    /// Like [`Controller::stop_all`], for the case that another client took the ports or this
    /// client was silent for too long. The next reply with warnings includes `why`.
    pub fn report_ports_lost(&mut self, why: &str) {
        if self.held {
            self.lost = Some(format!("traffic and captures were stopped: {why}"));
        }
        self.stop_all();
    }

    /// Returns a reply with the warnings. Adds the loss of the ports if it was not reported yet.
    fn with_warnings(&mut self, mut warnings: Vec<String>) -> Result<Value, Refusal> {
        warnings.extend(self.lost.take());
        warnings.extend(self.hosts.failures());
        warnings.extend(self.hosts.failed_steps(Duration::ZERO));
        reply(&Warning { warnings })
    }

    fn apply_config(&mut self, config: Config) -> Result<Value, Refusal> {
        let translated = translate(&config).map_err(|problems| invalid(&problems))?;
        for (i, port) in translated.ports.iter().enumerate() {
            squall_machine::ports::is_there(&port.address).map_err(|error| {
                invalid(&Problems::one(format!("ports[{i}].location"), error.to_string()))
            })?;
        }
        self.stop_all();
        self.take(&translated)?;
        (self.config, self.translated) = (config, translated);
        self.traffic = Traffic::of(&self.translated);
        self.captures = Captures::default();
        self.hosts = Hosts::default();
        let interfaces = self
            .translated
            .ports
            .iter()
            .filter_map(|port| squall_machine::ports::interface_of(&port.address));
        // No link changes are reported for an interface that cannot be monitored.
        self.links = interfaces
            .filter_map(|name| Some((name.clone(), LinkWatch::open(&name).ok()?)))
            .collect();
        self.with_warnings(self.translated.warnings.clone())
    }

    /// Applies a configuration with the same ports; unchanged flows continue.
    fn change_config(&mut self, config: Config) -> Result<Value, Refusal> {
        let translated = translate(&config).map_err(|problems| invalid(&problems))?;
        self.cache.forget();
        self.traffic.apply_flows(&self.translated, &translated)?;
        (self.config, self.translated) = (config, translated);
        self.with_warnings(self.translated.warnings.clone())
    }

    /// Resolves the gateways that packets need and that have not been queried yet.
    fn resolve_gateways(&mut self) -> Result<(), Refusal> {
        if self.translated.unresolved.is_empty() {
            return Ok(());
        }
        if !self.hosts.are_on() {
            self.hosts.start_devices(&self.translated)?;
        }
        self.resolve()?;
        let silent = self.translated.unresolved.iter().map(|one| {
            let (gateway, ethernet, port) = (one.gateway, &one.ethernet, &one.port);
            format!(
                "gateway {gateway} of {ethernet} does not answer on port {port}\n  try \
                 gateway_mac with a value"
            )
        });
        match silent.collect::<Vec<_>>() {
            none if none.is_empty() => Ok(()),
            errors => Err(Refusal { errors, ..Refusal::internal("") }),
        }
    }

    /// Updates the packets with the gateways' MAC addresses.
    fn resolve(&mut self) -> Result<(), Refusal> {
        let wanted: Vec<_> = self
            .translated
            .unresolved
            .iter()
            .map(|one| (one.ethernet.clone(), one.gateway))
            .collect();
        if !wanted.is_empty() && self.hosts.are_on() {
            let resolved: Resolved = self.hosts.resolve(&wanted, GATEWAYS);
            self.translated =
                translate_with(&self.config, &resolved).map_err(|problems| invalid(&problems))?;
        }
        Ok(())
    }

    /// Takes the configuration's ports for this session.
    fn ensure_ports(&mut self) -> Result<(), Refusal> {
        if self.held { Ok(()) } else { self.take(&self.translated.clone()) }
    }

    fn take(&mut self, of: &Translated) -> Result<(), Refusal> {
        let addresses: Vec<_> = of.ports.iter().map(|port| port.address.clone()).collect();
        self.start.take(&addresses)?;
        self.held = true;
        Ok(())
    }

    /// Indices of the named ports, or of all if `names` is empty.
    fn ports(&self, names: &[String]) -> Result<Vec<usize>, Refusal> {
        let all = &self.translated.ports;
        if names.is_empty() {
            return Ok((0..all.len()).collect());
        }
        let find = |name: &String| {
            let found = all.iter().position(|port| port.name == *name);
            found.ok_or_else(|| {
                unknown("port_names", "port", name, all.iter().map(|port| port.name.as_str()))
            })
        };
        names.iter().map(find).collect()
    }

    /// The DHCP clients with these names, or all; `key` is that of the names, `v6`: DHCPv6.
    fn dhcp_clients(&self, key: &str, names: &[String], v6: bool) -> Result<Vec<&str>, Refusal> {
        let clients = self.translated.devices.iter().filter_map(|device| match v6 {
            true => Some(&device.dhcpv6.as_ref()?.name[..]),
            false => Some(&device.dhcpv4.as_ref()?.name[..]),
        });
        chosen(key, "DHCP client", names, clients.collect())
    }

    /// As [`Controller::dhcp_clients`], for servers.
    fn dhcp_servers(&self, key: &str, names: &[String], v6: bool) -> Result<Vec<&str>, Refusal> {
        let Translated { dhcp_servers, dhcp6_servers, .. } = &self.translated;
        let servers = match v6 {
            true => dhcp6_servers.iter().map(|server| &server.name[..]).collect(),
            false => dhcp_servers.iter().map(|server| &server.name[..]).collect(),
        };
        chosen(key, "DHCP server", names, servers)
    }

    /// As [`Controller::dhcp_clients`], for LLDP instances.
    fn lldp(&self, key: &str, names: &[String]) -> Result<Vec<&str>, Refusal> {
        let instances = self.translated.lldp.iter().map(|info| &info.name[..]);
        chosen(key, "LLDP instance", names, instances.collect())
    }

    /// Changes ports of LAGs while protocols are started: with `admin`, whether they announce
    /// themselves as in sync; otherwise whether they speak LACP at all.
    fn lacp(&self, ports: &[String], admin: bool, up: bool) -> Result<(), Refusal> {
        let lags = chosen_lags(&self.translated, &[])?;
        let chosen = members(&lags, "lag_member_names", ports)?;
        if !self.hosts.protocols_are_on() {
            return Err(Error::Usage("LACP is not started\n  try protocol.all first".into()).into());
        }
        let now = squall_port::monotonic();
        for member in chosen.iter().filter_map(|(_, info)| self.hosts.lacp(&info.port)) {
            if admin {
                member.set_standby(now, !up);
            } else {
                member.enable(now, up);
            }
        }
        Ok(())
    }

    /// Announces or withdraws ranges of routes while protocols are started.
    fn routes(&self, names: &[String], advertise: bool) -> Result<(), Refusal> {
        let Translated { bgp, routers, .. } = &self.translated;
        let of_bgp = bgp.iter().flat_map(|peer| &peer.ranges).map(|range| &range.name[..]);
        let of_routers = routers.iter().flat_map(|info| &info.settings.groups);
        let of_routers = of_routers.map(|group| &group.name[..]);
        let known = of_bgp.chain(of_routers).collect();
        let chosen = chosen("names", "range of routes", names, known)?;
        self.check_protocols_are_on()?;
        let order = if advertise { Order::Announce } else { Order::Withdraw };
        let now = squall_port::monotonic();
        for (speaker, range) in chosen.iter().filter_map(|name| self.hosts.range(name)) {
            speaker.order(now, order(range));
        }
        for info in routers {
            let Some(router) = self.hosts.router(&info.name) else { continue };
            let groups = info.settings.groups.iter();
            for group in groups.filter(|group| chosen.contains(&&group.name[..])) {
                let part = GroupPart { group: Some(group.name.clone()), count: None };
                router.order(match advertise {
                    true => RouterOrder::Announce(part),
                    false => RouterOrder::Withdraw(part),
                })?;
            }
        }
        self.check_steps()
    }

    /// Fails if routing daemons cannot carry out their orders. Errors of those that take longer are
    /// warnings of later replies.
    fn check_steps(&self) -> Result<(), Refusal> {
        match self.hosts.failed_steps(STEP_LIMIT) {
            none if none.is_empty() => Ok(()),
            errors => Err(Refusal { errors, ..Refusal::internal("") }),
        }
    }

    /// Fails if a routing daemon has ended by itself: the figures of its router would be old.
    fn check_daemons(&self) -> Result<(), Refusal> {
        match self.hosts.failures() {
            none if none.is_empty() => Ok(()),
            errors => Err(Refusal { errors, ..Refusal::internal("") }),
        }
    }

    /// The routers of a protocol with these names, or all; `key` is that of the names.
    fn routers(
        &self,
        key: &str,
        protocol: Protocol,
        names: &[String],
    ) -> Result<Vec<&RouterInfo>, Refusal> {
        let of_protocol = self.translated.routers.iter().filter(|info| info.protocol == protocol);
        let known: Vec<&RouterInfo> = of_protocol.collect();
        let all = known.iter().map(|info| &info.name[..]).collect();
        let found = chosen(key, "router", names, all)?;
        Ok(known.into_iter().filter(|info| found.contains(&&info.name[..])).collect())
    }

    /// Gives orders to BGP sessions while protocols are started; `key` is that of their names.
    fn sessions(
        &self,
        key: &str,
        names: &[String],
        of: impl Fn(usize) -> Vec<Order>,
    ) -> Result<(), Refusal> {
        let chosen = chosen_sessions(&self.translated, key, names, None)?;
        self.check_protocols_are_on()?;
        let now = squall_port::monotonic();
        for (speaker, number) in chosen.iter().filter_map(|peer| self.hosts.bgp(&peer.name)) {
            of(number).into_iter().for_each(|order| speaker.order(now, order));
        }
        Ok(())
    }

    fn check_protocols_are_on(&self) -> Result<(), Refusal> {
        match self.hosts.protocols_are_on() {
            true => Ok(()),
            false => {
                let why = "protocols are not started\n  try protocol.all first";
                Err(Error::Usage(why.into()).into())
            }
        }
    }

    fn link(&self, ports: &[String], up: bool) -> Result<(), Refusal> {
        for port in self.ports(ports)? {
            let address = &self.translated.ports[port].address;
            let name = squall_machine::ports::interface_of(address).ok_or_else(|| {
                Error::Usage(format!(
                    "port {address} has no link that can be set {}",
                    if up { "up" } else { "down" }
                ))
            })?;
            let set =
                if up { squall_port_linux::lab::set_up } else { squall_port_linux::lab::set_down };
            set(&name).map_err(|error| {
                Error::Environment(format!("cannot set the link of {name}: {error}"))
            })?;
            if let Some(member) = self.hosts.lacp(&self.translated.ports[port].name) {
                member.set_link(squall_port::monotonic(), up);
            }
        }
        Ok(())
    }
}

impl Drop for Controller {
    /// A dropped session must not continue to send.
    fn drop(&mut self) {
        self.stop_all();
    }
}

impl ReplyCache {
    fn find(&mut self, request: &Value) -> Option<Arc<Value>> {
        self.0.retain(|(at, ..)| at.elapsed() < AGE);
        Some(self.0.iter().find(|(_, of, _)| of == request)?.2.clone())
    }

    fn keep(&mut self, request: &Value, reply: &Arc<Value>) {
        // Maximum number of distinct requests with cached replies; further requests are computed
        // each time.
        const MOST: usize = 8;
        self.0.truncate(MOST - 1);
        self.0.push((Instant::now(), request.clone(), reply.clone()));
    }

    fn forget(&mut self) {
        self.0.clear();
    }
}

fn reply(of: &impl Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(of).map_err(|error| Refusal::internal(error.to_string()))
}

fn invalid(problems: &Problems) -> Refusal {
    Refusal::validation(problems)
}

/// Which of `all` these names select; none: all of them. `key` is that of the names.
fn chosen<'a>(
    key: &str,
    what: &str,
    names: &[String],
    all: Vec<&'a str>,
) -> Result<Vec<&'a str>, Refusal> {
    if names.is_empty() {
        return Ok(all);
    }
    let find = |name: &String| {
        let found = all.iter().copied().find(|known| known == name);
        found.ok_or_else(|| unknown(key, what, name, all.iter().copied()))
    };
    names.iter().map(find).collect()
}

/// The BGP sessions with these names, or all; `v6`: only those over this IP version. `key` is that
/// of the names.
fn chosen_sessions<'a>(
    all: &'a Translated,
    key: &str,
    names: &[String],
    v6: Option<bool>,
) -> Result<Vec<&'a BgpPeerInfo>, Refusal> {
    let is_known = |peer: &&BgpPeerInfo| v6.is_none_or(|v6| v6 == peer.local.is_ipv6());
    let known: Vec<&BgpPeerInfo> = all.bgp.iter().filter(is_known).collect();
    let found = chosen(key, "BGP session", names, known.iter().map(|of| &of.name[..]).collect())?;
    Ok(known.into_iter().filter(|peer| found.contains(&&peer.name[..])).collect())
}

/// The LAGs with these names, or all.
fn chosen_lags<'a>(all: &'a Translated, names: &[String]) -> Result<Vec<&'a LagInfo>, Refusal> {
    let known = all.lags.iter().map(|lag| &lag.name[..]).collect();
    let found = chosen("lag_names", "LAG", names, known)?;
    Ok(all.lags.iter().filter(|lag| found.contains(&&lag.name[..])).collect())
}

/// The ports of `lags` with these names, or all; `key` is that of the names.
fn members<'a>(
    lags: &[&'a LagInfo],
    key: &str,
    names: &[String],
) -> Result<Vec<(&'a LagInfo, &'a LagMemberInfo)>, Refusal> {
    let all = || lags.iter().flat_map(|lag| lag.members.iter().map(move |member| (*lag, member)));
    let known = all().map(|(_, member)| &member.port[..]).collect();
    let found = chosen(key, "port of a LAG", names, known)?;
    Ok(all().filter(|(_, member)| found.contains(&&member.port[..])).collect())
}

fn unknown<'a>(
    path: &str,
    what: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Refusal {
    let hint = squall_units::suggest(name, known);
    invalid(&Problems::one(path, format!("cannot find {what} {name:?}\n  {hint}")))
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error.exit_status() {
            2 => invalid(&Problems::one("", error.to_string())),
            _ => Self::internal(error.to_string()),
        }
    }
}
