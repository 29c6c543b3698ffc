//! The emulated hosts on a port with addresses, which answer their neighbors.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, atomic::Ordering},
};

use serde_json::{Value, json};
use squall::Error;
use squall_host::{Host, link_local};
use squall_machine::speaking::{self, HostThread};
use squall_units::Nanos;

use super::{Answer, Port, Server, nodes::NodeCounters};
use crate::rpc::{Params, Refusal};

/// TPIDs of a port's VLAN tags: with two, the outer one is a service tag.
pub const TAG: u16 = 0x8100;
pub const SERVICE_TAG: u16 = 0x88a8;

/// IPv6 settings of a port: the link-local address, and an optional additional one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    pub source: Option<Ipv6Addr>,
}

impl Ipv6 {
    /// Formats the settings for `get_port_status`.
    pub fn status(of: Option<Self>) -> Value {
        let source = of.and_then(|ipv6| ipv6.source);
        let source = source.map_or(String::new(), |source| source.to_string());
        json!({ "enabled": of.is_some(), "src": source })
    }
}

impl Server {
    /// # Errors
    /// The address is invalid, or the interface cannot be opened.
    pub(super) fn conf_ipv6(&mut self, port: usize, params: &Params<'_>) -> Answer {
        let source = match params.get("src_ipv6").and_then(Value::as_str) {
            None | Some("") => None,
            Some(text) => Some(text.parse().map_err(|_| {
                Refusal::parameters(format!("src_ipv6 = {text:?}: expected an IPv6 address"))
            })?),
        };
        self.ports[port].ipv6 = params.flag("enabled").then_some(Ipv6 { source });
        self.update_host(port)?;
        Ok(json!({}))
    }

    /// Makes the emulated hosts answer for the current addresses of the port and its nodes as long
    /// as the port's owner holds it. A port without an interface has no neighbors to answer.
    pub(super) fn update_host(&mut self, number: usize) -> Result<(), Refusal> {
        let port = &mut self.ports[number];
        let host = host_of(port);
        port.speaking = None;
        let silent = host.ipv4.is_empty() && host.ipv6.is_empty();
        let own = (!silent).then_some(host);
        let hosts: Vec<Host> = own.into_iter().chain(port.nodes.hosts()).collect();
        let interface = squall_machine::ports::interface_of(&port.info.address);
        if let Some(interface) = interface.filter(|_| self.holds && !hosts.is_empty()) {
            let hosts = OfPort { hosts, counters: port.nodes.counters.clone() };
            port.speaking = Some(HostThread::start(&interface, hosts).map_err(Error::from)?);
        }
        Ok(())
    }

    /// Stops answering on all ports when they have no owner.
    pub(super) fn stop_hosts(&mut self) {
        for port in &mut self.ports {
            port.speaking = None;
        }
    }
}

fn host_of(port: &Port) -> Host {
    let mut host = Host { mac: port.info.mac, ..Host::default() };
    match port.l3.as_ref().and_then(|l3| l3.source.parse().ok()) {
        Some(IpAddr::V4(source)) => host.ipv4.push(source),
        Some(IpAddr::V6(source)) => host.ipv6.push(source),
        None => {}
    }
    if let Some(Ipv6 { source }) = port.ipv6 {
        host.ipv6.push(link_local(port.info.mac));
        host.ipv6.extend(source);
    }
    let inner = port.vlan.len().saturating_sub(1);
    let tag = |(i, id): (usize, &u64)| (if i < inner { SERVICE_TAG } else { TAG }, *id as u16);
    host.tags = port.vlan.iter().enumerate().map(tag).collect();
    host
}

struct OfPort {
    hosts: Vec<Host>,
    counters: Arc<NodeCounters>,
}

impl speaking::Hosts for OfPort {
    fn handle(&mut self, _: Nanos, (frame, _): (&[u8], bool), out: &mut Vec<Vec<u8>>) {
        let before = out.len();
        // A host ignores frames for others, and those with other tags.
        out.extend(self.hosts.iter().filter_map(|host| host.handle(frame).reply));
        let answered = (out.len() - before) as u64;
        self.counters.received.fetch_add(1, Ordering::Relaxed);
        self.counters.answered.fetch_add(answered, Ordering::Relaxed);
    }

    fn turn(&mut self, _: Nanos, _: &mut Vec<Vec<u8>>) {}
}
