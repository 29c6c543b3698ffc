//! Which ports there are, which of them may be used, and what two addresses cannot both be.

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use squall::{Address, InterfaceState, Permissions, kinds, list_interfaces};

use crate::{Refusal, files::Files, leases::Resource};

/// Kinds that stand on an interface of the kernel's.
fn on_interface(kind: &str) -> bool {
    kind.is_empty() || kinds::KINDS.iter().any(|known| known.name == kind && known.interface.is_some())
}

/// Which addresses may be used.
#[derive(Clone, Debug)]
pub struct Ports {
    /// Patterns; none: all.
    allow: Vec<String>,
}

/// A port that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// With files where they are.
    pub address: String,
    pub resource: Resource,
}

impl Ports {
    pub fn new(allow: Vec<String>) -> Self {
        Self { allow }
    }

    /// The address as it is opened for a request, and what it stands on.
    ///
    /// # Errors
    /// An address that says nothing, one that is not allowed, a file elsewhere.
    pub fn admit(&self, address: &str, files: &Files) -> Result<Admitted, Refusal> {
        let wrong = |message: String| Refusal::bad_request("bad_port", message);
        let mut parsed: Address = address.parse().map_err(|error: squall::AddressError| wrong(error.to_string()))?;
        let (kind, name) = (parsed.kind().to_owned(), parsed.name().to_owned());
        let named = self.names(&kind, &name);
        if !named && !self.allow.is_empty() {
            let allowed = self.allow.join(", ");
            let message = format!("{address}: this daemon does not allow it\n  it allows {allowed}");
            return Err(Refusal::new(StatusCode::FORBIDDEN, "port_not_allowed", message));
        }
        let resource = match kind.as_str() {
            "null" => None,
            "pcap" => {
                let reads = parsed.take_flag("read").map_err(|error| wrong(error.to_string()))?.unwrap_or(false);
                let path = files.path(&name)?;
                if reads {
                    files.there(&name)?;
                }
                let options = address.split_once(',').map(|(_, options)| format!(",{options}")).unwrap_or_default();
                let address = format!("pcap:{}{options}", path.display());
                return Ok(Admitted { address, resource: (!reads).then(|| format!("file {name}")) });
            }
            "dpdk" => {
                // Both lead to drivers, devices and files of any name.
                if parsed.has("eal") {
                    return Err(wrong(format!("{address}: eal= is not taken from requests")));
                }
                if (name.starts_with("vdev") || parsed.has("vdev")) && !named {
                    return Err(wrong(format!(
                        "{address}: a virtual device is taken only if the daemon was started with --allow 'dpdk:vdev*'"
                    )));
                }
                Some(format!("dpdk {name}"))
            }
            kind if on_interface(kind) => Some(format!("interface {name}")),
            kind => Some(format!("{kind} {name}")),
        };
        Ok(Admitted { address: address.to_owned(), resource })
    }

    /// Whether a pattern names it.
    fn names(&self, kind: &str, name: &str) -> bool {
        let whole = if kind.is_empty() { name.to_owned() } else { format!("{kind}:{name}") };
        // A pattern without a kind is an interface by any.
        let bare = on_interface(kind).then_some(name);
        self.allow.iter().any(|pattern| like(pattern, &whole) || bare.is_some_and(|name| like(pattern, name)))
    }

    /// The interfaces that may be used.
    ///
    /// # Errors
    /// Interfaces that cannot be listed.
    pub fn list(&self) -> Result<Vec<PortRow>, Refusal> {
        let rights = Permissions::of_this_process();
        let found = list_interfaces().map_err(|error| {
            Refusal::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "environment",
                format!("the interfaces cannot be listed: {error}"),
            )
        })?;
        let row = |interface: squall::InterfaceInfo| {
            let may = |kind: &str| self.allow.is_empty() || self.names(kind, &interface.name);
            let kinds: Vec<_> = kinds::on_interface(&interface, &rights).filter(|(kind, _)| may(kind.name)).collect();
            let works = |(kind, works): &(&kinds::Kind, Result<String, String>)| works.is_ok().then_some(kind.name);
            // Fastest first in the table; the last works most widely, and disturbs nobody.
            let backends: Vec<_> = kinds.iter().rev().filter_map(works).map(str::to_owned).collect();
            let kind = backends.first().cloned().or(kinds.last().map(|(kind, _)| kind.name.to_owned()))?;
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
                lease: None,
                run: None,
            })
        };
        Ok(found.into_iter().filter_map(row).collect())
    }
}

/// A port, and who has it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PortRow {
    /// As runs name it.
    pub address: String,
    /// `null`: it is none of the kernel's.
    pub interface: Option<String>,
    pub kind: String,
    /// `up`, `down` or `unknown`.
    pub state: &'static str,
    pub mac: Option<String>,
    pub mtu: Option<u32>,
    pub speed_bps: Option<u64>,
    /// Kinds of ports that work on it, the most general first.
    pub backends: Vec<String>,
    pub lease: Option<PortLease>,
    /// The run that uses it.
    pub run: Option<String>,
    /// What else is to be known: why nothing works there.
    pub note: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PortLease {
    pub id: String,
    pub owner: String,
    /// `null`: until its run ends, or its connection closes.
    pub expires_s: Option<f64>,
}

/// Whether `text` is as `pattern` says, in which `*` stands for anything.
fn like(pattern: &str, text: &str) -> bool {
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
    fn what_is_not_allowed_is_refused_and_two_addresses_of_an_interface_are_one_port() {
        let data = std::env::temp_dir().join(format!("squall-ports-{}", std::process::id()));
        std::fs::create_dir_all(&data).expect("a folder");
        let files = Files::open(&data).expect("it opens");
        let all = Ports::new(vec![]);
        let on = |address: &str| all.admit(address, &files).expect(address).resource;
        assert_eq!(on("af_packet:eth1,blocks=8"), on("af_xdp:eth1"));
        assert_eq!(on("eth1"), on("xdp_live:eth1"));
        assert_ne!(on("eth1"), on("eth2"));
        assert_ne!(on("loop:eth1"), on("eth1"));
        assert_eq!(on("null:"), None);
        assert_eq!(all.admit("pcap:../x", &files).expect_err("outside").code, "bad_path");
        assert!(all.admit("pcap:x.pcap,epoch=3", &files).expect("inside").address.ends_with("/files/x.pcap,epoch=3"));
        assert_eq!(all.admit("dpdk:vdev=net_pcap0,eal=-d;/tmp/x.so", &files).expect_err("eal").code, "bad_port");
        assert_eq!(all.admit("dpdk:vdev=net_pcap0", &files).expect_err("vdev").code, "bad_port");
        let some = Ports::new(vec!["af_packet:eth1*".into(), "eth2".into(), "loop:*".into()]);
        for (address, allowed) in [
            ("af_packet:eth10", true),
            ("af_xdp:eth1", false),
            ("af_xdp:eth2", true),
            ("eth2", true),
            ("loop:x", true),
            ("null:", false),
        ] {
            assert_eq!(some.admit(address, &files).is_ok(), allowed, "{address}");
        }
        std::fs::remove_dir_all(data).expect("removed");
    }
}
