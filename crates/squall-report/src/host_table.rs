//! The hosts of a running run, one by one: a page of them, and the last events of one.

use std::{net::IpAddr, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_units::MacAddr;

/// Number of rows that a page has by default, and at most.
pub const HOST_ROWS: usize = 100;
pub const MAX_HOST_ROWS: usize = 10_000;

/// Selects hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostQuestion {
    pub filter: HostFilter,
    /// Number of matching hosts to skip.
    pub offset: usize,
    pub limit: usize,
}

/// Some hosts of a run, in the order of groups and numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostPage {
    /// Number of hosts in the run, and of those that match the filter.
    pub total: u64,
    pub matching: u64,
    pub rows: Vec<HostRow>,
}

/// One host. Times are in seconds from the start of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostRow {
    pub group: String,
    /// Number of the host in its group, from 1.
    pub number: u32,
    pub port: String,
    pub mac: String,
    /// The state of 802.1X until the port is open, then that of IPv4, or of IPv6 for hosts without
    /// IPv4, or of 802.1X for hosts without addresses. Hosts without any of these are `started`.
    /// `init`: the host has not started.
    pub state: String,
    /// The state of 802.1X, if the host authenticates.
    pub auth: Option<String>,
    pub ipv4: Option<HostIpv4Row>,
    pub ipv6: Option<HostIpv6Row>,
    /// Why the host failed last, even if it has an address now.
    pub failure: Option<String>,
    /// Messages of DHCP, DHCPv6, 802.1X, IGMP and MLD that the host sent and received;
    /// `retransmissions` of those sent were repeated.
    pub sent: u64,
    pub received: u64,
    pub retransmissions: u64,
}

/// IPv4 of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostIpv4Row {
    pub state: String,
    /// Address and prefix length that the host may use: `10.0.1.7/16`.
    pub address: Option<String>,
    pub gateway: Option<String>,
    /// MAC address of the gateway, if the group has asked for it.
    pub gateway_mac: Option<String>,
    /// The DHCP server.
    pub server: Option<String>,
    /// `null`: no lease, or one that does not end.
    pub lease: Option<HostLeaseRow>,
}

/// IPv6 of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostIpv6Row {
    pub state: String,
    pub link_local: Option<String>,
    pub addresses: Vec<String>,
    /// Prefix that a server has delegated.
    pub prefix: Option<String>,
    pub gateway: Option<String>,
    /// MAC address of the gateway, if the group knows it.
    pub gateway_mac: Option<String>,
    /// State of the DHCPv6 client.
    pub dhcp: Option<String>,
    pub lease: Option<HostLeaseRow>,
}

/// Times of a lease, in seconds from the start of the run. `null`: never.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostLeaseRow {
    /// T1: the client asks its server for an extension.
    pub renew_s: Option<f64>,
    /// T2: it asks any server.
    pub rebind_s: Option<f64>,
    /// End of the preferred lifetime; over IPv4 that of the lease.
    pub preferred_s: Option<f64>,
    /// End of the lease.
    pub end_s: Option<f64>,
}

/// A host and its last events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostDetail {
    pub host: HostRow,
    /// The host's events that the log of its group still has, oldest first.
    pub events: Vec<HostEventRow>,
    /// The log has all events since this time, in seconds from the start of the run. `null`: it is
    /// empty.
    pub log_since_s: Option<f64>,
    /// Whether older events are lost, because the log is full.
    pub log_full: bool,
}

/// An event of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostEventRow {
    /// Seconds from the start of the run.
    pub time_s: f64,
    /// `arp`, `dhcp`, `ipv6`, `dhcp6`, `802.1x`, `pppoe` or `multicast`.
    pub protocol: String,
    /// `sent`, `retransmitted`, `received`, `state`, `failed` or `ignored`.
    pub event: String,
    /// Type of the message, new state, or reason.
    pub what: String,
    /// The address that the event is about.
    pub address: Option<String>,
}

/// The values of a host that a filter reads.
#[derive(Clone, Debug)]
pub struct HostKeys<'a> {
    pub group: &'a str,
    /// From 1.
    pub number: u32,
    pub mac: MacAddr,
    /// States of 802.1X, IPv4 and IPv6, as far as the host has them, and that of its row.
    pub states: [Option<&'a str>; 4],
    /// All addresses, and the network that a server has delegated.
    pub addresses: &'a [IpAddr],
    pub failure: Option<&'a str>,
}

/// A filter of hosts: terms that must all match. A term is `state=`, `group=`, `number=` (17 or
/// 17-40), `mac=`, `address=` (an address or a network) or `failure=` with a value, or a text that
/// one of these values contains. A value with spaces is in quotes: `group="hosts 1"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFilter {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    State(String),
    Group(String),
    Number(u32, u32),
    /// Text with which the MAC address begins.
    Mac(String),
    Address(IpAddr, u8),
    Failure(String),
    Text(String),
}

/// The JSON schemas of [`HostPage`] and [`HostDetail`].
pub fn schemas() -> [serde_json::Value; 2] {
    [schemars::schema_for!(HostPage).into(), schemars::schema_for!(HostDetail).into()]
}

impl FromStr for HostFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (key, value, after) = split_term(rest)?;
            terms.push(match key {
                None => Term::Text(value.to_ascii_lowercase()),
                Some(key) => term(&rest[..rest.len() - after.len()], key, value)?,
            });
            rest = after.trim_start();
        }
        Ok(Self { terms })
    }
}

/// Splits the first term from a filter: its key, its value without quotes, and the rest. A quote
/// within a value is part of it.
fn split_term(text: &str) -> Result<(Option<&str>, &str, &str), String> {
    let (word, after) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    let key = word.split_once('=').map(|(key, _)| key).filter(|key| !key.starts_with(QUOTES));
    let value = &text[key.map_or(0, |key| key.len() + 1)..];
    let Some(quote) = value.chars().next().filter(|first| QUOTES.contains(first)) else {
        return Ok((key, &value[..value.len() - after.len()], after));
    };
    let wrong = |expected: &str| format!("{text:?}: expected {expected}");
    let Some((value, after)) = value[1..].split_once(quote) else {
        return Err(wrong(&format!("a second {quote} at the end of the value")));
    };
    if !after.is_empty() && !after.starts_with(char::is_whitespace) {
        return Err(wrong(&format!("a space after the second {quote}")));
    }
    Ok((key, value, after))
}

const QUOTES: [char; 2] = ['"', '\''];

fn term(text: &str, key: &str, value: &str) -> Result<Term, String> {
    let wrong = |expected: &str| format!("{text:?}: expected {expected}");
    Ok(match key {
        "state" => Term::State(value.to_ascii_lowercase()),
        "group" => Term::Group(value.to_owned()),
        "mac" => Term::Mac(value.to_ascii_lowercase()),
        "failure" => Term::Failure(value.to_ascii_lowercase()),
        "number" => {
            let (first, last) = value.split_once('-').unwrap_or((value, value));
            let bounds = first.parse().ok().zip(last.parse().ok());
            let (first, last) =
                bounds.ok_or_else(|| wrong("a number, or two: number=17, number=17-40"))?;
            Term::Number(first, last)
        }
        "address" => {
            let (address, length) =
                value.split_once('/').map_or((value, None), |(a, l)| (a, Some(l)));
            let parsed = address.parse::<IpAddr>().ok().and_then(|address| {
                let longest = if address.is_ipv4() { 32 } else { 128 };
                let length = length.map_or(Some(longest), |text| text.parse().ok());
                Some(Term::Address(address, length.filter(|length| *length <= longest)?))
            });
            parsed.ok_or_else(|| wrong("an address or a network: 10.0.1.7, 10.0.1.0/24"))?
        }
        _ => {
            let keys = "state=, group=, number=, mac=, address= or failure=, or a text without =";
            return Err(wrong(keys));
        }
    })
}

impl HostFilter {
    /// Whether all hosts match.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn matches(&self, host: &HostKeys<'_>) -> bool {
        self.terms.iter().all(|term| term.matches(host))
    }
}

impl Term {
    fn matches(&self, host: &HostKeys<'_>) -> bool {
        let states = || host.states.iter().flatten();
        match self {
            Self::State(state) => states().any(|of| of == state),
            Self::Group(group) => host.group == group,
            Self::Number(first, last) => (*first..=*last).contains(&host.number),
            Self::Mac(mac) => host.mac.to_string().starts_with(mac),
            Self::Address(address, length) => {
                host.addresses.iter().any(|of| in_network(*of, *address, *length))
            }
            Self::Failure(reason) => host.failure == Some(reason),
            Self::Text(text) => {
                let has = |value: &str| value.to_ascii_lowercase().contains(text);
                has(host.group)
                    || states().any(|state| has(state))
                    || host.failure.is_some_and(has)
                    || has(&host.mac.to_string())
                    || host.addresses.iter().any(|address| has(&address.to_string()))
            }
        }
    }
}

/// Whether the first `length` bits of two addresses are equal.
fn in_network(address: IpAddr, network: IpAddr, length: u8) -> bool {
    let (differs, bits) = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => ((u128::from(a.to_bits() ^ b.to_bits())) << 96, 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits(), 128),
        _ => return false,
    };
    differs.leading_zeros() >= u32::from(length.min(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(filter: &str) -> bool {
        matches_in("subscribers", filter)
    }

    fn matches_in(group: &str, filter: &str) -> bool {
        let addresses = ["10.0.1.7".parse().unwrap(), "2001:db8:100::".parse().unwrap()];
        let host = HostKeys {
            group,
            number: 17,
            mac: MacAddr([2, 0, 0, 0, 0xab, 1]),
            states: [None, Some("bound"), Some("failed"), Some("bound")],
            addresses: &addresses,
            failure: Some("no_router"),
        };
        filter.parse::<HostFilter>().unwrap().matches(&host)
    }

    #[test]
    fn all_terms_of_a_filter_must_match() {
        for filter in [
            "",
            "state=bound",
            "state=failed failure=no_router",
            "group=subscribers number=17",
            "number=1-17",
            "mac=02:00:00:00:AB",
            "address=10.0.1.7",
            "address=10.0.0.0/16",
            "address=0.0.0.0/0",
            "address=2001:db8:100::/40",
            "ab:01",
            "subscr BOUND",
        ] {
            assert!(matches(filter), "{filter}");
        }
        for filter in [
            "state=init",
            "state=bound group=others",
            "number=18-20",
            "mac=00",
            "address=10.0.1.8",
            "address=10.0.1.8/31",
            "address=::/1 address=10.0.1.8",
            "10.0.2",
        ] {
            assert!(!matches(filter), "{filter}");
        }
    }

    #[test]
    fn values_with_spaces_are_in_quotes() {
        for (group, filter) in [
            ("hosts 1", "group=\"hosts 1\""),
            ("hosts 1", " number=17  group='hosts 1' state=bound "),
            ("hosts 1", "\"s 1\" group=\"hosts 1\""),
            ("hosts 1", "HOSTS 1"),
            ("my \"a=b\" group", "group='my \"a=b\" group'"),
            ("my \"a=b\" group", "'\"a=b\" g'"),
            ("Ann's", "group=Ann's"),
            ("", "group=\"\""),
        ] {
            assert!(matches_in(group, filter), "{group} {filter}");
        }
        assert!(!matches_in("hosts 12", "group=\"hosts 1\""));
        assert!(!matches_in("hosts  1", "group=\"hosts 1\""));
        for (filter, expected) in [
            ("group=\"hosts 1", "expected a second \" at the end"),
            ("state=bound 'x", "expected a second ' at the end"),
            ("group=\"hosts\"1", "expected a space after the second \""),
        ] {
            let error = filter.parse::<HostFilter>().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_wrong_term_says_what_is_expected() {
        for filter in ["colour=red", "number=x", "address=10.0.0.1/33", "address=host"] {
            let error = filter.parse::<HostFilter>().unwrap_err();
            assert!(error.contains(filter) && error.contains("expected"), "{error}");
        }
    }
}
