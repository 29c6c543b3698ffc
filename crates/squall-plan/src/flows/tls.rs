//! Settings for TLS sessions, from a profile and the files that it names.

use std::net::IpAddr;

use squall_apps::{Tls, builtin::HttpClient};
use squall_profile::{At, ErrorCollector, FlowContent, Located, Template};
use squall_tls::{TlsSettings, TlsSettingsError, TlsVersion};
use squall_units::Cannot;

use crate::Assets;

/// The TLS settings, if the template has `tls` or a URL with the scheme `https`. If there are no
/// local `servers`, the certificate is the clients'.
pub fn tls(
    template: &Template,
    servers: bool,
    assets: &dyn Assets,
    mistakes: &mut ErrorCollector<'_>,
) -> Option<Tls> {
    let url = match &template.content {
        FlowContent::App { options, .. } => {
            options.iter().find(|(name, spec)| name == "url" && is_https(url_of(&spec.text)))
        }
        _ => None,
    };
    let default = squall_profile::Tls::default();
    let spec = match (&template.tls, url) {
        (Some(spec), _) => spec,
        (None, Some(_)) => &default,
        (None, None) => return None,
    };
    let mut settings = settings(spec, servers, assets, mistakes)?;
    if template.http.is_some() {
        settings.alpn = alpn_of_http2(spec, settings.alpn, mistakes)?;
    }
    let server_name =
        settings.server_name.clone().or_else(|| url.and_then(|(_, url)| host(url_of(&url.text))));
    match Tls::new(&TlsSettings { server_name, ..settings }) {
        Ok(tls) => Some(tls),
        Err(error) => {
            report(&error, spec, template.at, mistakes);
            None
        }
    }
}

/// The protocols of sessions with HTTP/2 inside, which sides agree on by ALPN (RFC 9113 section 3.2).
fn alpn_of_http2(
    spec: &squall_profile::Tls,
    alpn: Vec<String>,
    mistakes: &mut ErrorCollector<'_>,
) -> Option<Vec<String>> {
    match spec.alpn.first() {
        None => Some(vec!["h2".into()]),
        Some(_) if alpn.iter().any(|name| name == "h2") => Some(alpn),
        Some(first) => {
            let text = "tls.alpn lacks \"h2\", which http = \"2\" needs";
            mistakes.note(first, text, "try leaving out alpn");
            None
        }
    }
}

/// The settings, with the files that they name. Without `servers`, the certificate is the clients'.
pub(crate) fn settings(
    spec: &squall_profile::Tls,
    servers: bool,
    assets: &dyn Assets,
    mistakes: &mut ErrorCollector<'_>,
) -> Option<TlsSettings> {
    let before = mistakes.len();
    let mut file = |spec: &Option<Located>| {
        let spec = spec.as_ref()?;
        match assets.file(&spec.text) {
            Ok(octets) => Some(octets),
            Err(error) => {
                let cannot = Cannot::read(&spec.text, &error).to_string();
                mistakes.note(spec, &cannot, "expected a PEM file");
                None
            }
        }
    };
    let (ca, client_ca) = (file(&spec.ca), file(&spec.client_ca));
    let mut certificate = file(&spec.certificate).zip(file(&spec.key));
    let mut client_certificate = file(&spec.client_certificate).zip(file(&spec.client_key));
    if !servers && client_certificate.is_none() {
        client_certificate = certificate.take();
    }
    let settings = TlsSettings {
        server_name: spec.server_name.as_ref().map(|name| name.text.clone()),
        any_name: false,
        alpn: spec.alpn.iter().map(|name| name.text.clone()).collect(),
        ca,
        certificate,
        client_certificate,
        client_ca,
        resumption: spec.resumption,
        versions: spec.versions.iter().filter_map(|spec| version(spec, mistakes)).collect(),
        ciphers: spec.ciphers.iter().map(|name| name.text.clone()).collect(),
        groups: spec.groups.iter().map(|name| name.text.clone()).collect(),
    };
    (mistakes.len() == before).then_some(settings)
}

/// Reports an error in settings, at their place or at that of their table, `at`.
pub(crate) fn report(
    error: &TlsSettingsError,
    spec: &squall_profile::Tls,
    at: At,
    mistakes: &mut ErrorCollector<'_>,
) {
    let place = match error.setting {
        "server_name" => spec.server_name.as_ref(),
        "alpn" => spec.alpn.first(),
        "ciphers" => spec.ciphers.first(),
        "groups" => spec.groups.first(),
        "ca" => spec.ca.as_ref(),
        "certificate" => spec.certificate.as_ref(),
        "key" => spec.key.as_ref(),
        "client_certificate" => spec.client_certificate.as_ref().or(spec.certificate.as_ref()),
        "client_key" => spec.client_key.as_ref().or(spec.key.as_ref()),
        "client_ca" => spec.client_ca.as_ref(),
        _ => None,
    };
    let whole = Located { text: String::new(), at };
    // An error that names no setting means that this build has no TLS.
    let of = if error.setting.is_empty() { "tls" } else { "tls." };
    mistakes.report(place.unwrap_or(&whole), &format!("{of}{}: {error}", error.setting));
}

/// The URL, with any weight removed.
fn url_of(text: &str) -> &str {
    match text.split_once(':') {
        Some((weight, url)) if weight.bytes().all(|octet| octet.is_ascii_digit()) => url,
        _ => text,
    }
}

fn is_https(url: &str) -> bool {
    HttpClient::from_url(url).is_some_and(|(client, _)| client.secure)
}

/// The host name in a URL, if it has one.
fn host(url: &str) -> Option<String> {
    let (client, _) = HttpClient::from_url(url)?;
    let name = client.host.split(':').next()?;
    let address = client.host.starts_with('[') || name.parse::<IpAddr>().is_ok();
    (!address).then(|| name.to_owned())
}

fn version(spec: &Located, mistakes: &mut ErrorCollector<'_>) -> Option<TlsVersion> {
    match spec.text.as_str() {
        "1.2" => Some(TlsVersion::Tls12),
        "1.3" => Some(TlsVersion::Tls13),
        other => {
            mistakes.note(
                spec,
                &format!("tls.versions: {other:?} is not supported"),
                "expected \"1.3\" or \"1.2\"",
            );
            None
        }
    }
}
