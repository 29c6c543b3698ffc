//! Headers of the PROXY protocol, from a profile.

use std::sync::Arc;

use squall_apps::proxy::{ProxyProtocol, ProxyVersion};
use squall_flows::AddrRange;
use squall_profile::{ErrorCollector, Flows, Template};

/// The headers of a template's flows, if it has them.
pub fn proxy(
    template: &Template,
    flows: &Flows,
    mistakes: &mut ErrorCollector<'_>,
) -> Option<Arc<ProxyProtocol>> {
    let spec = template.proxy_protocol.as_ref()?;
    let sources = match spec.sources.as_ref().map(|text| (text, text.text.parse::<AddrRange>())) {
        Some((text, Err(error))) => {
            mistakes.report(text, &error);
            return None;
        }
        Some((_, Ok(range))) => Some(range.first()..=range.last()),
        None => None,
    };
    let made = ProxyProtocol {
        version: match spec.version {
            squall_profile::ProxyVersion::V1 => ProxyVersion::V1,
            squall_profile::ProxyVersion::V2 => ProxyVersion::V2,
        },
        sources,
        local: spec.local,
        alpn: spec.alpn.as_ref().map(|alpn| alpn.text.as_str().into()),
        authority: spec.authority.as_ref().map(|name| name.text.as_str().into()),
        unique_id: spec.unique_id,
        checksum: spec.checksum,
    };
    let plain = ProxyProtocol { version: made.version, ..ProxyProtocol::default() };
    if made != plain && !template.plays_clients(flows) {
        let text = format!(
            "template {:?}: proxy_protocol has settings of clients, but its clients are external",
            template.name
        );
        mistakes.at(
            template.at,
            &text,
            "try proxy_protocol = \"v2\": servers accept both versions",
        );
    }
    Some(Arc::new(made))
}
