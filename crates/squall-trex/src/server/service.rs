//! Service mode: the frames that captures and receive queues of a port may see.

use serde_json::{Value, json};
use squall::{Ignored, Services};

use super::{Answer, Server};
use crate::rpc::{Params, Refusal};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Service {
    #[default]
    Off,
    All,
    /// Captures and queues see the frames of the protocols in TRex's mask.
    Filtered(u64),
}

// Bits of the mask.
const NO_TCP_UDP: u64 = 1;
const BGP: u64 = 2;
const DHCP: u64 = 4;
const TRANSPORT: u64 = 8;
const MDNS: u64 = 16;
const ALL: u64 = 255;

impl Service {
    fn read(params: &Params<'_>) -> Result<Self, Refusal> {
        let mask = params.get("mask").and_then(Value::as_u64);
        match (params.flag("enabled"), params.flag("filtered")) {
            (true, false) => Ok(Self::All),
            (false, false) => Ok(Self::Off),
            (false, true) => match mask.filter(|mask| mask & ALL != 0) {
                Some(mask) => Ok(Self::Filtered(mask & ALL)),
                None => Err(Refusal::parameters(format!("mask: expected 1 to {ALL}"))),
            },
            (true, true) => Err(Refusal::parameters("enabled, filtered: expected one of them")),
        }
    }

    /// TRex's mask of protocols; 0: no filter.
    pub fn mask(self) -> u64 {
        if let Self::Filtered(mask) = self { mask } else { 0 }
    }

    fn has(self, bit: u64) -> bool {
        self.mask() & bit != 0
    }

    /// Protocols that captures and queues reserve, so that flows do not get them.
    fn services(self) -> Services {
        Services {
            bgp: self.has(BGP),
            dhcp: self.has(DHCP),
            high: self.has(TRANSPORT),
            mdns: self.has(MDNS),
        }
    }

    /// Combines the mask with a capture's own filter.
    pub fn filter(self, own: &str) -> Option<String> {
        let parts = [
            (NO_TCP_UDP, "not (tcp or udp)"),
            (BGP, "tcp port 179"),
            (DHCP, "udp port 67 or udp port 547"),
            (TRANSPORT, "tcp portrange 65280-65535 or udp portrange 65280-65535"),
            (MDNS, "(udp src port 5353 and udp dst port 5353)"),
        ];
        let chosen: Vec<&str> =
            parts.iter().filter(|(bit, _)| self.has(*bit)).map(|(_, text)| *text).collect();
        match (chosen.join(" or "), own) {
            (of_service, own) if of_service.is_empty() => (!own.is_empty()).then(|| own.to_owned()),
            (of_service, "") => Some(of_service),
            (of_service, own) => Some(format!("({of_service}) and ({own})")),
        }
    }
}

impl Server {
    /// # Errors
    /// The mode is unknown.
    pub(super) fn service(&mut self, port: usize, params: &Params<'_>) -> Answer {
        self.set_service(port, Service::read(params)?);
        Ok(json!({}))
    }

    /// Sets the mode of all ports. With a filter, flows do not get the frames of its protocols.
    pub(super) fn flow_service(&mut self, params: &Params<'_>) -> Answer {
        let service = Service::read(params)?;
        (0..self.ports.len()).for_each(|port| self.set_service(port, service));
        let services = service.services();
        self.ignore(Ignored { services, ..self.ignored().clone() })
    }

    fn set_service(&mut self, port: usize, service: Service) {
        self.ports[port].service = service;
        let on = service != Service::Off;
        self.traffic.set_seen(port, on);
        if !on {
            self.end_service(port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Service, Refusal> {
        let params: Value = serde_json::from_str(text).expect("JSON");
        Service::read(&Params(params.as_object().expect("an object")))
    }

    #[test]
    fn a_mask_is_a_filter_together_with_the_captures_own() {
        let filtered =
            |mask: u64| read(&format!(r#"{{"enabled": false, "filtered": true, "mask": {mask}}}"#));
        let bgp = filtered(3).expect("a mask");
        assert_eq!(bgp.filter("").as_deref(), Some("not (tcp or udp) or tcp port 179"));
        let with = bgp.filter("vlan").expect("a filter");
        assert_eq!(with, "(not (tcp or udp) or tcp port 179) and (vlan)");
        assert!(bgp.services().bgp && !bgp.services().dhcp);
        filtered(0).expect_err("of nothing");
        let all = read(r#"{"enabled": true}"#).expect("a mode");
        assert_eq!(
            (all, all.filter(""), all.filter("arp")),
            (Service::All, None, Some("arp".into()))
        );
        assert_eq!(read("{}").expect("a mode"), Service::Off);
        read(r#"{"enabled": true, "filtered": true, "mask": 1}"#).expect_err("both");
    }
}
