//! `squall flows`: flows of one application.

use std::net::Ipv6Addr;

use super::{Numbered, Short, Table};
use crate::{Diagnostics, Profile, source::node::Value};

/// HTTP clients on port A for an external server. The first URL names the server.
///
/// # Errors
/// All errors, each with its argument.
pub fn http(short: Short<'_>) -> Result<Profile, Diagnostics> {
    let mut parts = Parts::read(short, "http")?;
    if let Some(url) = short.all().find(|one| one.key() == "url") {
        let (host, port) = authority(url.text()).ok_or_else(|| {
            let hint = "try http://10.0.0.2/, http://[fd00::2]:8080/x or \
                        3:https://www.example.net/";
            short.mistake(url, "expected [WEIGHT:]http://HOST[:PORT]/PATH or https://...", hint)
        })?;
        let host = url.node(host.as_str().into());
        // A word without a dot would be taken for the name of a pool.
        if matches!(&host.value, Value::Text(host) if !host.contains(['.', ':'])) {
            let mut servers = Table::default();
            servers.set("name", "servers");
            servers.append("addresses", host);
            parts.pools.push(servers);
            parts.template.set("servers", "servers");
        } else {
            parts.template.set("servers", host);
        }
        parts.template.set("listen", url.node(Value::Integer(port.into())));
    }
    parts.clients();
    let template = parts.template.clone();
    parts.profile(short, &["clients"], vec![template])
}

/// Clients for the application `app` on port A, and servers on port B. If there is no port B, the
/// servers are external.
///
/// # Errors
/// All errors, each with its argument.
pub fn app(short: Short<'_>, app: &str) -> Result<Profile, Diagnostics> {
    let mut parts = Parts::read(short, app)?;
    parts.clients();
    let mut template = parts.template.clone();
    parts.servers.iter().for_each(|one| template.append("servers", one.value()));
    parts.profile(short, &["clients", "servers"][..short.ports.len()], vec![template])
}

/// Servers for the application `app` on port A, for external clients.
///
/// # Errors
/// All errors, each with its argument.
pub fn serve(short: Short<'_>, app: &str) -> Result<Profile, Diagnostics> {
    let parts = Parts::read(short, app)?;
    let mut templates = Vec::new();
    for (family, anyone) in [("IPv4", "0.0.0.1"), ("IPv6", "::1")] {
        let mut template = parts.template.clone();
        let of = |one: &&Numbered<'_>| one.text().contains(':') == (family == "IPv6");
        parts.servers.iter().filter(of).for_each(|one| template.append("servers", one.value()));
        if !template.has("servers") {
            continue;
        }
        // All addresses of a template must be of one family.
        if parts.servers.iter().any(|one| !of(&one)) {
            template.set("name", format!("{app} {family}").as_str());
        }
        template.set("clients", anyone);
        templates.push(template);
    }
    parts.profile(short, &["servers"], templates)
}

/// Tables from which the profile is made.
#[derive(Default)]
struct Parts<'a> {
    flows: Table,
    pools: Vec<Table>,
    /// The clients' pool.
    pool: Table,
    template: Table,
    /// Address ranges of the servers.
    servers: Vec<Numbered<'a>>,
    /// The networks of ports A and B.
    networks: [Table; 2],
}

impl<'a> Parts<'a> {
    /// Reads the arguments that all commands share.
    fn read(short: Short<'a>, app: &str) -> Result<Self, Diagnostics> {
        let mut parts = Self::default();
        let [mut options, mut tcp, mut tls, mut http, mut proxy, mut data] =
            <[Table; 6]>::default();
        parts.template.set("name", app);
        parts.template.set("app", app);
        for one in short.all() {
            let (key, text) = (one.key(), one.text());
            let [first, second] = &mut parts.networks;
            match key {
                "option" => {
                    let (name, value) = short.pair(one)?;
                    options.add(name, one.node(value.into()));
                }
                "tcp" => short.set_pair(&mut tcp, one)?,
                "tls" => parts.template.set(key, one.value()),
                "tls_option" => {
                    let (name, value) = short.pair(one)?;
                    tls.set(name, one.node(tls_option(name, value)));
                }
                "hello" => tls.set(key, one.value()),
                "http2" => parts.template.set("http", one.node("2".into())),
                "http3" => http.set("version", one.node("3".into())),
                "streams" | "migrate_after" | "migrate_to" | "rebind_after" => {
                    http.set(key, one.value());
                }
                "http2_fallback" => http.set("fallback", one.value()),
                "proxy_protocol" => proxy.set("version", one.value()),
                "proxy_option" => {
                    let (name, value) = short.pair(one)?;
                    proxy.set(name, one.node(proxy_option(name, value)));
                }
                "content" => match text.strip_prefix('@') {
                    Some(path) => options.set("content_file", one.node(path.into())),
                    None => options.set(key, one.value()),
                },
                "url" | "method" | "header" | "post" | "cookies" | "follow" | "check"
                | "extract" | "requests" | "pipeline" | "body" => options.add(key, one.value()),
                "gateway" | "next_hop" | "wrap" => first.add(key, one.value()),
                "gateway2" => second.add("gateway", one.value()),
                "next_hop2" => second.add("next_hop", one.value()),
                "wrap2" => second.add("wrap", one.value()),
                "clients" => parts.pool.append("addresses", one.value()),
                "client_ports" => parts.pool.set("ports", one.value()),
                "order" => parts.pool.set(key, one.value()),
                "cps" | "users" | "think" | "listen" => parts.template.set(key, one.value()),
                "poisson" => parts.template.set("spacing", one.node("poisson".into())),
                "flows" => parts.template.set("limit", one.value()),
                "csv" => data.set("file", one.value()),
                "csv_order" => data.set("order", one.value()),
                "ramp_up" | "max_flows" => parts.flows.set(key, one.value()),
                "stage" => {
                    let (time, level) = one
                        .text()
                        .split_once(':')
                        .ok_or_else(|| short.mistake(one, "expected TIME:LEVEL", "try 10s:500"))?;
                    let mut stage = Table::default();
                    stage.set("duration", time);
                    stage.set("to", level);
                    parts.template.append("stages", one.node(stage.into()));
                }
                "servers" => parts.servers.push(one),
                _ => {}
            }
        }
        for (key, table) in [
            ("options", options),
            ("tcp", tcp),
            ("tls", tls),
            ("http", http),
            ("proxy_protocol", proxy),
            ("data", data),
        ] {
            parts.template.set_some(key, table);
        }
        Ok(parts)
    }

    /// Adds the clients' pool.
    fn clients(&mut self) {
        self.pool.set("name", "clients");
        self.template.set("clients", "clients");
        self.pools.insert(0, std::mem::take(&mut self.pool));
    }

    /// `sides` has the roles of the ports, in order from A.
    fn profile(
        mut self,
        short: Short<'_>,
        sides: &[&str],
        templates: Vec<Table>,
    ) -> Result<Profile, Diagnostics> {
        for ((side, port), network) in sides.iter().zip(["A", "B"]).zip(self.networks) {
            self.flows.set(side, port);
            self.flows.set_some(&format!("{}_network", side.trim_end_matches('s')), network);
        }
        let mut profile = Table::default();
        profile.set("flows", self.flows);
        if !self.pools.is_empty() {
            profile.set("pool", Value::from_iter(self.pools));
        }
        profile.set("template", Value::from_iter(templates));
        short.profile(profile)
    }
}

/// A TLS setting.
fn tls_option(name: &str, value: &str) -> Value {
    match (name, value) {
        ("resumption", "true") => true.into(),
        ("resumption", "false") => false.into(),
        ("fresh_key_shares", "true") => true.into(),
        ("fresh_key_shares", "false") => false.into(),
        ("early_data", "true") => true.into(),
        ("early_data", "false") => false.into(),
        ("certificate_per_name", "true") => true.into(),
        ("certificate_per_name", "false") => false.into(),
        ("alpn" | "versions" | "ciphers" | "groups", _) => value.split(',').collect(),
        _ => value.into(),
    }
}

/// A setting of the PROXY protocol.
fn proxy_option(name: &str, value: &str) -> Value {
    match (name, value) {
        ("local" | "unique_id" | "checksum", "true") => true.into(),
        ("local" | "unique_id" | "checksum", "false") => false.into(),
        _ => value.into(),
    }
}

/// Host and port of the server in a URL, which may have a weight in front.
fn authority(url: &str) -> Option<(String, u16)> {
    let url = match url.split_once(':') {
        Some((weight, url)) if weight.bytes().all(|octet| octet.is_ascii_digit()) => url,
        _ => url,
    };
    let (scheme, rest) = url.split_once("://")?;
    let usual = match () {
        () if scheme.eq_ignore_ascii_case("http") => 80,
        () if scheme.eq_ignore_ascii_case("https") => 443,
        () => return None,
    };
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let (host, port) = match authority.strip_prefix('[') {
        Some(v6) => {
            let (host, rest) = v6.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            (host, rest.strip_prefix(':'))
        }
        None => {
            authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)))
        }
    };
    let name = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.:".contains(&octet);
    (!host.is_empty() && host.bytes().all(name)).then_some(())?;
    Some((host.to_owned(), port.map_or(Some(usual), |port| port.parse().ok())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_found_in_a_url() {
        for (url, expected) in [
            ("http://10.0.0.2/", Some(("10.0.0.2", 80))),
            ("http://10.0.0.2:8080", Some(("10.0.0.2", 8080))),
            ("http://[fd00::2]/x", Some(("fd00::2", 80))),
            ("http://[fd00::2]:81/x", Some(("fd00::2", 81))),
            ("http://example.net/", Some(("example.net", 80))),
            ("3:http://example.net:81?x", Some(("example.net", 81))),
            ("x:http://example.net/", None),
            ("http:///x", None),
            ("http://[fd00::z]/", None),
            ("https://10.0.0.2/", Some(("10.0.0.2", 443))),
            ("https://[fd00::2]:8443/", Some(("fd00::2", 8443))),
            ("HTTP://10.0.0.2:8080/up", Some(("10.0.0.2", 8080))),
            ("2:Https://10.0.0.2/", Some(("10.0.0.2", 443))),
            ("ftp://10.0.0.2/", None),
            ("http://10.0.0.2:x/", None),
        ] {
            assert_eq!(
                authority(url),
                expected.map(|(host, port)| (host.to_owned(), port)),
                "{url}"
            );
        }
    }
}
