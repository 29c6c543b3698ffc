//! What TLS sessions are made with: from the words of a profile, and the files that they name.

use std::net::IpAddr;

use squall_apps::{Tls, TlsSettings, TlsVersion, builtin::HttpClient};
use squall_profile::{Mistakes, Said, Says, Template};
use squall_units::Cannot;

use crate::Assets;

/// Of a template that says so itself, or by a URL that begins with `https`. Where no `servers` are
/// ours, its certificate is that of the clients.
pub fn tls(
    template: &Template,
    servers: bool,
    assets: &dyn Assets,
    mistakes: &mut Mistakes<'_>,
) -> Option<Tls> {
    let url = match &template.says {
        Says::App { options, .. } => {
            options.iter().find(|(name, said)| name == "url" && is_https(url_of(&said.text)))
        }
        _ => None,
    };
    let default = squall_profile::Tls::default();
    let said = match (&template.tls, url) {
        (Some(said), _) => said,
        (None, Some(_)) => &default,
        (None, None) => return None,
    };
    let before = mistakes.len();
    let mut file = |said: &Option<Said>| {
        let said = said.as_ref()?;
        match assets.file(&said.text) {
            Ok(octets) => Some(octets),
            Err(error) => {
                let cannot = Cannot::read(&said.text, &error).to_string();
                mistakes.note(said, &cannot, "expected a PEM file");
                None
            }
        }
    };
    let (ca, client_ca) = (file(&said.ca), file(&said.client_ca));
    let mut certificate = file(&said.certificate).zip(file(&said.key));
    let mut client_certificate = file(&said.client_certificate).zip(file(&said.client_key));
    if !servers && client_certificate.is_none() {
        client_certificate = certificate.take();
    }
    let settings = TlsSettings {
        server_name: match &said.server_name {
            Some(name) => Some(name.text.clone()),
            None => url.and_then(|(_, url)| host(url_of(&url.text))),
        },
        alpn: said.alpn.iter().map(|name| name.text.clone()).collect(),
        ca,
        certificate,
        client_certificate,
        client_ca,
        resumption: said.resumption,
        versions: said.versions.iter().filter_map(|said| version(said, mistakes)).collect(),
    };
    if mistakes.len() > before {
        return None;
    }
    match Tls::new(&settings) {
        Ok(tls) => Some(tls),
        Err(error) => {
            let place = match error.setting {
                "server_name" => said.server_name.as_ref(),
                "alpn" => said.alpn.first(),
                "ca" => said.ca.as_ref(),
                "certificate" => said.certificate.as_ref(),
                "key" => said.key.as_ref(),
                "client_certificate" => {
                    said.client_certificate.as_ref().or(said.certificate.as_ref())
                }
                "client_key" => said.client_key.as_ref().or(said.key.as_ref()),
                "client_ca" => said.client_ca.as_ref(),
                _ => None,
            };
            let whole = Said { text: String::new(), at: template.at };
            // Of no setting: there is no TLS at all.
            let of = if error.setting.is_empty() { "tls" } else { "tls." };
            mistakes.told(place.unwrap_or(&whole), &format!("{of}{}: {error}", error.setting));
            None
        }
    }
}

/// Without the weight in front.
fn url_of(text: &str) -> &str {
    match text.split_once(':') {
        Some((weight, url)) if weight.bytes().all(|octet| octet.is_ascii_digit()) => url,
        _ => text,
    }
}

fn is_https(url: &str) -> bool {
    HttpClient::from_url(url).is_some_and(|(client, _)| client.secure)
}

/// The name of a URL's host, if it has one.
fn host(url: &str) -> Option<String> {
    let (client, _) = HttpClient::from_url(url)?;
    let name = client.host.split(':').next()?;
    let address = client.host.starts_with('[') || name.parse::<IpAddr>().is_ok();
    (!address).then(|| name.to_owned())
}

fn version(said: &Said, mistakes: &mut Mistakes<'_>) -> Option<TlsVersion> {
    match said.text.as_str() {
        "1.2" => Some(TlsVersion::Tls12),
        "1.3" => Some(TlsVersion::Tls13),
        other => {
            mistakes.note(
                said,
                &format!("tls.versions: {other:?} is not supported"),
                "expected \"1.3\" or \"1.2\"",
            );
            None
        }
    }
}
