//! Profiles for tests without one: the traffic that a method needs, from a list of ports.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use squall_method::Method;
use squall_profile::Profile;

use squall::Error;

/// Traffic between ports for a test without a profile: UDP from each port to the next one, or flows
/// between clients on the first port and servers on the second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(
    feature = "clap",
    derive(clap::Args),
    command(next_help_heading = "Traffic without a profile")
)]
pub struct Between {
    /// Send in one direction only
    #[cfg_attr(feature = "clap", arg(long))]
    pub one_way: bool,
    /// Part of the frames that are IPv6, from 0 to 1 (RFC 5180 §5.3)
    #[schemars(range(min = 0.0, max = 1.0))]
    #[cfg_attr(feature = "clap", arg(long, value_name = "PART", num_args = 0..=1,
        default_missing_value = "1", default_value_t = 0.0, hide_default_value = true))]
    pub ipv6: f64,
    /// Spread the frames of each direction over N flows, by UDP port
    #[schemars(range(min = 1, max = 16_000))]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = 1))]
    pub flows: u16,
    /// Addresses of clients, on the first port
    #[cfg_attr(feature = "clap", arg(long, value_name = "ADDRESSES",
        default_value_t = Between::default().clients))]
    pub clients: String,
    /// Addresses of servers, on the second port
    #[cfg_attr(feature = "clap", arg(long, value_name = "ADDRESSES",
        default_value_t = Between::default().servers))]
    pub servers: String,
    /// Router of the clients
    #[cfg_attr(feature = "clap", arg(long, value_name = "ADDRESS"))]
    pub gateway: Option<String>,
    /// Router of the servers
    #[cfg_attr(feature = "clap", arg(long, value_name = "ADDRESS"))]
    pub gateway2: Option<String>,
}

impl Default for Between {
    fn default() -> Self {
        Self {
            one_way: false,
            ipv6: 0.0,
            flows: 1,
            clients: "198.18.0.16-198.18.15.254".into(),
            servers: "198.19.0.16-198.19.0.19".into(),
            gateway: None,
            gateway2: None,
        }
    }
}

impl Between {
    /// The profile that `method` needs. `ports` maps names to addresses, in order.
    ///
    /// # Errors
    /// An address that cannot be used.
    pub fn profile(
        &self,
        method: &Method,
        ports: &Map<String, Value>,
        origin: &str,
    ) -> Result<Profile, Error> {
        if !(1..=16_000).contains(&self.flows) {
            let text = format!("flows = {}: expected 1 to 16000", self.flows);
            return Err(Error::Usage(text));
        }
        if !(0.0..=1.0).contains(&self.ipv6) {
            let text = format!("ipv6 = {}: expected a number from 0 to 1, such as 0.1", self.ipv6);
            return Err(Error::Usage(text));
        }
        let mut table = Map::from_iter([("ports".to_owned(), json!(ports))]);
        if method.wants_flows() {
            table.extend(self.clients_and_servers(ports));
        }
        // Methods that make their own streams take the speed of the links from these.
        if method.wants_streams() || method.wants_rate() {
            table.insert("stream".into(), self.streams(ports));
        }
        Ok(Profile::from_value(&Value::Object(table), origin)?)
    }

    /// Clients on the first port, servers on the second.
    fn clients_and_servers(&self, ports: &Map<String, Value>) -> Map<String, Value> {
        let mut names = ports.keys();
        let clients = names.next();
        let network = |gateway: &Option<String>| match gateway {
            Some(gateway) => json!({"gateway": [gateway]}),
            None => json!({}),
        };
        let tables = json!({
            "flows": {
                "clients": clients,
                "servers": names.next().or(clients),
                "client_network": network(&self.gateway),
                "server_network": network(&self.gateway2),
            },
            "template": [{
                "name": "http",
                "clients": self.clients,
                "servers": self.servers,
                "app": "http",
                "cps": 1,
            }],
        });
        tables.as_object().cloned().unwrap_or_default()
    }

    /// UDP from each port to the next, one stream per direction and IP version. Addresses and UDP
    /// ports are those of RFC 2544 appendix C and RFC 5180 §8.
    fn streams(&self, ports: &Map<String, Value>) -> Value {
        let names: Vec<&String> = ports.keys().collect();
        let mut pairs: Vec<(usize, usize)> = match names.len() {
            1 => vec![(0, 0)],
            n => (0..n).step_by(2).filter(|i| i + 1 < n).map(|i| (i, i + 1)).collect(),
        };
        if !self.one_way && names.len() > 1 {
            let back: Vec<_> = pairs.iter().map(|(from, to)| (*to, *from)).collect();
            pairs.extend(back);
        }
        let versions = [(4, 1.0 - self.ipv6), (6, self.ipv6)];
        let versions = versions.into_iter().filter(|(_, part)| *part > 0.0);
        let streams = versions.flat_map(|(version, part)| {
            pairs.iter().map(move |&(from, to)| (version, part, from, to))
        });
        streams.map(|one| self.stream(&names, one)).collect()
    }

    fn stream(
        &self,
        names: &[&String],
        (version, part, from, to): (u8, f64, usize, usize),
    ) -> Value {
        let several = self.ipv6 > 0.0 && self.ipv6 < 1.0;
        let of = if several { format!(", IPv{version}") } else { String::new() };
        let mut stream = json!({
            "name": format!("{} to {}{of}", names[from], names[to]),
            "port": names[from],
            "packet": packet(version, from, to),
            "rate": format!("{}pps", 1_000_000.0 * part),
        });
        if self.flows > 1 {
            let max = 49_184 + u32::from(self.flows) - 1;
            stream["vary"] = json!([{"field": "udp.sport", "op": "increment", "min": 49_184,
                "max": max}]);
        }
        stream
    }
}

/// A packet from port `from` to port `to`. Ports with an even index have addresses in one half of
/// the benchmarking range, odd ones in the other (RFC 2544 §C.2.2, RFC 5180 §5.2.2).
fn packet(version: u8, from: usize, to: usize) -> String {
    let mac = |i: usize| format!("02:00:c6:12:00:{:02x}", i + 1);
    let ip = |i: usize| match version {
        4 => format!("198.{}.0.{}", 18 + i % 2, i + 2),
        _ => format!("2001:2:0:{}::{:x}", ["0", "8000"][i % 2], i + 2),
    };
    format!(
        "eth(src={},dst={})/ipv{version}(src={},dst={})/udp(sport=49184,dport=7)",
        mac(from),
        mac(to),
        ip(from),
        ip(to),
    )
}
