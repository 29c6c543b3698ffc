//! Ports: which ones exist, which may be used, and which addresses conflict.

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use squall_machine::kinds;
use squall_port::{Address, elsewhere::KIND as ELSEWHERE};
use squall_port_linux::{InterfaceInfo, InterfaceState, Permissions, list_interfaces};

use crate::{Refusal, files::Files, leases::Resource};

/// Kinds of ports on a kernel interface.
fn on_interface(kind: &str) -> bool {
    kind.is_empty()
        || kinds::KINDS.iter().any(|known| known.name == kind && known.interface.is_some())
}

/// Kinds that reach only this process and the daemon's directory, so they need no permission.
const HARMLESS: [&str; 4] = ["loop", "null", "pcap", ELSEWHERE];

/// Decides which addresses may be used: harmless kinds, interfaces of labs, and addresses that
/// match a pattern.
#[derive(Clone, Debug)]
pub struct Ports {
    /// Patterns of addresses, with `*`.
    allow: Vec<String>,
}

/// How a pattern matches an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    /// The pattern is the full name.
    Exactly,
    /// The pattern has a `*` and matches.
    Pattern,
    No,
}

const NOT_NAMED: &str =
    "by default, only ports in memory, files and interfaces of labs are allowed";
/// A pattern must not include an interface with a default route by accident, because that route
/// usually carries the operator's own access: traffic there could cut the machine off.
const DEFAULT_ROUTE: &str = "it has a default route, so it must be named in full, without *";

/// A port that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Address with file paths resolved.
    pub address: String,
    pub resource: Resource,
}

impl Ports {
    pub fn new(allow: Vec<String>) -> Self {
        Self { allow }
    }

    /// Resolves an address for a request: the address to open and the resource that it occupies.
    ///
    /// # Errors
    /// An address that is empty, not allowed, or a file outside the daemon's directory.
    pub fn admit(&self, address: &str, files: &Files) -> Result<Admitted, Refusal> {
        let wrong = |message: String| Refusal::bad_request("bad_port", message);
        let mut parsed: Address =
            address.parse().map_err(|error: squall_port::AddressError| wrong(error.to_string()))?;
        let (kind, name) = (parsed.kind().to_owned(), parsed.name().to_owned());
        let named = self.names(&kind, &name);
        let interface =
            || list_interfaces().ok()?.into_iter().find(|interface| interface.name == name);
        if let Err(why) = self.allowed(&kind, named, interface) {
            let name = if on_interface(&kind) { name } else { format!("{kind}:{name}") };
            let message = format!(
                "{address}: this daemon does not allow it: {why}\n  start it with --allow {name}"
            );
            return Err(Refusal::new(StatusCode::FORBIDDEN, "port_not_allowed", message));
        }
        let resource = match kind.as_str() {
            "null" | ELSEWHERE => None,
            "pcap" => {
                let reads = parsed
                    .take_flag("read")
                    .map_err(|error| wrong(error.to_string()))?
                    .unwrap_or(false);
                // Any number of runs may read a file, but only one may write it, otherwise their
                // frames would mix.
                let path = files.path(&name)?;
                if reads {
                    files.there(&name)?;
                }
                let options = address
                    .split_once(',')
                    .map(|(_, options)| format!(",{options}"))
                    .unwrap_or_default();
                let address = format!("pcap:{}{options}", path.display());
                return Ok(Admitted {
                    address,
                    resource: (!reads).then(|| format!("file {name}")),
                });
            }
            "dpdk" => {
                // Both kinds accept any drivers, devices and files by name, so requests may not use
                // these options.
                if parsed.has("eal") {
                    return Err(wrong(format!("{address}: eal= is not accepted from requests")));
                }
                if (name.starts_with("vdev") || parsed.has("vdev")) && named == Match::No {
                    return Err(wrong(format!(
                        "{address}: virtual devices are only accepted if the daemon was started \
                         with --allow 'dpdk:vdev*'"
                    )));
                }
                Some(format!("dpdk {name}"))
            }
            kind if on_interface(kind) => Some(format!("interface {name}")),
            kind => Some(format!("{kind} {name}")),
        };
        Ok(Admitted { address: address.to_owned(), resource })
    }

    /// `interface` is called only if the answer depends on it, because a lookup lists all
    /// interfaces.
    ///
    /// # Errors
    /// The reason for a refusal.
    fn allowed(
        &self,
        kind: &str,
        named: Match,
        interface: impl FnOnce() -> Option<InterfaceInfo>,
    ) -> Result<(), &'static str> {
        if named == Match::Exactly || HARMLESS.contains(&kind) {
            return Ok(());
        }
        if !on_interface(kind) {
            return if named == Match::Pattern { Ok(()) } else { Err(NOT_NAMED) };
        }
        // A missing interface is reported when the port is opened.
        match interface() {
            Some(interface) if interface.default_route => Err(DEFAULT_ROUTE),
            Some(interface) if !interface.of_lab && named == Match::No => Err(NOT_NAMED),
            None if named == Match::No => Err(NOT_NAMED),
            _ => Ok(()),
        }
    }

    /// Whether a pattern names the port, and how.
    fn names(&self, kind: &str, name: &str) -> Match {
        let whole = if kind.is_empty() { name.to_owned() } else { format!("{kind}:{name}") };
        // A pattern without a kind matches the interface with any kind.
        let bare = on_interface(kind).then_some(name);
        let any = |fits: &dyn Fn(&str, &str) -> bool| {
            self.allow.iter().any(|pattern| {
                fits(pattern, &whole) || bare.is_some_and(|name| fits(pattern, name))
            })
        };
        if any(&|pattern, text| pattern == text) {
            Match::Exactly
        } else if any(&like) {
            Match::Pattern
        } else {
            Match::No
        }
    }

    /// Interfaces that no request may use, each with the reason.
    pub fn withheld(&self) -> Vec<(String, &'static str)> {
        let why = |interface: InterfaceInfo| {
            let name = interface.name.clone();
            let refused = |kind: &kinds::Kind| {
                let interface = interface.clone();
                self.allowed(kind.name, self.names(kind.name, &name), || Some(interface)).err()
            };
            let all = kinds::KINDS.iter().filter(|kind| kind.interface.is_some()).map(refused);
            all.collect::<Option<Vec<_>>>().and_then(|whys| Some((name.clone(), *whys.first()?)))
        };
        list_interfaces()
            .unwrap_or_default()
            .into_iter()
            .filter(|one| one.ethernet)
            .filter_map(why)
            .collect()
    }

    /// The interfaces that requests may use.
    ///
    /// # Errors
    /// If the interfaces cannot be listed.
    pub fn list(&self) -> Result<Vec<PortRow>, Refusal> {
        let rights = Permissions::of_this_process();
        let found = list_interfaces().map_err(|error| {
            Refusal::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "environment",
                format!("cannot list the interfaces: {error}"),
            )
        })?;
        let row = |interface: InterfaceInfo| {
            let may = |kind: &str| {
                self.allowed(kind, self.names(kind, &interface.name), || Some(interface.clone()))
                    .is_ok()
            };
            let kinds: Vec<_> = kinds::on_interface(&interface, &rights)
                .filter(|(kind, _)| may(kind.name))
                .collect();
            let works = |(kind, works): &(&kinds::Kind, Result<String, String>)| {
                works.is_ok().then_some(kind.name)
            };
            // The list starts with the fastest kind. The last one works with most drivers and
            // leaves the interface to the kernel.
            let backends: Vec<_> =
                kinds.iter().rev().filter_map(works).map(str::to_owned).collect();
            let kind =
                backends.first().cloned().or(kinds.last().map(|(kind, _)| kind.name.to_owned()))?;
            let why_not = kinds.last().and_then(|(_, works)| works.as_ref().err());
            Some(PortRow {
                address: format!("{kind}:{}", interface.name),
                interface: Some(interface.name.clone()),
                kind,
                state: match interface.state {
                    InterfaceState::Up => "up",
                    InterfaceState::Down | InterfaceState::NoCarrier => "down",
                },
                mac: interface.mac.map(|mac| mac.to_string()),
                mtu: Some(interface.mtu),
                speed_bps: interface.speed_bps,
                note: match (&why_not, backends.is_empty()) {
                    (Some(why), true) => (*why).clone(),
                    _ if interface.state == InterfaceState::NoCarrier => "no carrier".into(),
                    _ => String::new(),
                },
                backends,
                counters: Some(PortCounters {
                    tx_packets: interface.counters.tx_packets,
                    tx_octets: interface.counters.tx_octets,
                    tx_errors: interface.counters.tx_errors,
                    tx_dropped: interface.counters.tx_dropped,
                    rx_packets: interface.counters.rx_packets,
                    rx_octets: interface.counters.rx_octets,
                    rx_errors: interface.counters.rx_errors,
                    rx_dropped: interface.counters.rx_dropped,
                }),
                lease: None,
                run: None,
            })
        };
        Ok(found.into_iter().filter_map(row).collect())
    }
}

/// A port and its users.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PortRow {
    /// Address, as runs name it.
    pub address: String,
    /// `null`: not an interface of the kernel.
    pub interface: Option<String>,
    pub kind: String,
    /// `up`, `down` or `unknown`.
    pub state: &'static str,
    pub mac: Option<String>,
    pub mtu: Option<u32>,
    pub speed_bps: Option<u64>,
    /// Kinds of ports that work on it, the most general first.
    pub backends: Vec<String>,
    /// The interface's own counters since it was created, over all programs; `null` if there is no
    /// interface.
    pub counters: Option<PortCounters>,
    pub lease: Option<PortLease>,
    /// The run that uses it.
    pub run: Option<String>,
    /// Remark: why nothing works there.
    pub note: String,
}

/// The interface's own counters. Octets without FCS.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PortCounters {
    pub tx_packets: u64,
    pub tx_octets: u64,
    pub tx_errors: u64,
    pub tx_dropped: u64,
    pub rx_packets: u64,
    pub rx_octets: u64,
    pub rx_errors: u64,
    pub rx_dropped: u64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PortLease {
    pub id: String,
    pub owner: String,
    /// `null`: until its run ends, or its connection closes.
    pub expires_s: Option<f64>,
}

/// Whether `text` matches `pattern`, in which `*` matches any text.
pub fn like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<_> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, expected) in [
            ("eth1", "eth1", true),
            ("eth1", "eth10", false),
            ("eth*", "eth10", true),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("ab*ba", "aba", false),
            ("af_packet:*", "af_xdp:eth1", false),
        ] {
            assert_eq!(like(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_lab_needs_no_name_and_an_interface_with_the_default_route_its_own() {
        let found = list_interfaces().expect("a list");
        let like_lo = found.iter().find(|interface| interface.name == "lo").expect("lo");
        let of = |of_lab, default_route| InterfaceInfo { of_lab, default_route, ..like_lo.clone() };
        for (interface, named, allowed) in [
            (of(true, false), Match::No, true),
            (of(false, false), Match::No, false),
            (of(false, false), Match::Pattern, true),
            (of(false, true), Match::Pattern, false),
            (of(true, true), Match::No, false),
            (of(false, true), Match::Exactly, true),
        ] {
            let found = Ports::new(vec![]).allowed("af_packet", named, || Some(interface.clone()));
            assert_eq!(
                found.is_ok(),
                allowed,
                "{named:?} {} {}",
                interface.of_lab,
                interface.default_route
            );
        }
    }

    #[test]
    fn ports_that_are_not_allowed_are_refused_and_two_addresses_of_an_interface_are_one_port() {
        let data = std::env::temp_dir().join(format!("squall-ports-{}", std::process::id()));
        std::fs::create_dir_all(&data).expect("a folder");
        let files = Files::open(&data).expect("it opens");
        let all = Ports::new(vec!["*".into()]);
        let on = |address: &str| all.admit(address, &files).expect(address).resource;
        assert_eq!(on("af_packet:eth91,blocks=8"), on("af_xdp:eth91"));
        assert_eq!(on("eth91"), on("xdp_live:eth91"));
        assert_ne!(on("eth91"), on("eth92"));
        assert_ne!(on("loop:eth91"), on("eth91"));
        assert_eq!(on("null:"), None);
        let none = Ports::new(vec![]);
        assert_eq!(none.admit("pcap:../x", &files).expect_err("outside").code, "bad_path");
        assert!(
            none.admit("pcap:x.pcap,epoch=3", &files)
                .expect("inside")
                .address
                .ends_with("/files/x.pcap,epoch=3")
        );
        let dpdk = Ports::new(vec!["dpdk:0000*".into()]);
        assert_eq!(
            all.admit("dpdk:vdev=net_pcap0,eal=-d;/tmp/x.so", &files).expect_err("eal").code,
            "bad_port"
        );
        assert_eq!(
            dpdk.admit("dpdk:vdev=net_pcap0", &files).expect_err("vdev").code,
            "port_not_allowed"
        );
        let some = Ports::new(vec!["af_packet:eth91*".into(), "eth92".into()]);
        for (address, allowed) in [
            ("af_packet:eth910", true),
            ("af_xdp:eth91", false),
            ("af_xdp:eth92", true),
            ("eth92", true),
            ("eth93", false),
            ("loop:x", true),
            ("null:", true),
            ("dpdk:0000:01:00.0", false),
        ] {
            assert_eq!(some.admit(address, &files).is_ok(), allowed, "{address}");
        }
        std::fs::remove_dir_all(data).expect("removed");
    }
}
