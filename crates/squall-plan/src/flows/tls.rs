//! Settings for TLS sessions, from a profile and the files that it names.

use std::{net::IpAddr, sync::Arc};

use squall_apps::{
    Data, Delays, ImportOptions, Imported, Instruction, Message, MessageRef, Part, Tls,
    builtin::HttpClient,
};
use squall_profile::{At, ErrorCollector, FlowContent, Located, Template, hello_capture};
use squall_tls::{Browser, Hello, TlsSettings, TlsSettingsError, TlsVersion};
use squall_units::Cannot;

use crate::Assets;

/// The TLS settings, if the template has `tls` or a URL with the scheme `https`. If there are no
/// local `servers`, the certificate is the clients'.
pub fn tls(
    template: &Template,
    servers: bool,
    (data, assets): (Option<&Data>, &dyn Assets),
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
        (None, None) if is_http3(template) => &default,
        (None, None) => return None,
    };
    let mut settings = settings(spec, servers, assets, mistakes)?;
    if is_http3(template) {
        settings.alpn = alpn_of_http3(spec, settings.alpn);
    } else if let Some(http) = &template.http {
        settings.alpn = alpn_of_http2(spec, settings.alpn, http.fallback, mistakes)?;
    }
    let names = spec.server_name.as_ref().filter(|name| name.text.contains("${"));
    let server_name = settings.server_name.clone().filter(|_| names.is_none());
    let server_name = server_name.or_else(|| url.and_then(|(_, url)| host(url_of(&url.text))));
    match Tls::new(&TlsSettings { server_name, ..settings }) {
        Ok(mut tls) => {
            if let Some(text) = names {
                set_names(&mut tls, template, text, data, mistakes)?;
            }
            let checked = match is_http3(template) {
                true => tls.check_http3(),
                false => Ok(()),
            };
            let early_data = match has_early_data(spec, template) {
                true => enable_early_data(&mut tls, template),
                false => Ok(()),
            };
            if let Err(text) = checked.and(early_data) {
                let (text, hint) = text.split_once("\n  ").unwrap_or((text, ""));
                mistakes.at(template.at, text, hint);
                return None;
            }
            Some(tls)
        }
        Err(error) => {
            report(&error, spec, template.at, mistakes);
            None
        }
    }
}

fn has_early_data(spec: &squall_profile::Tls, template: &Template) -> bool {
    spec.early_data || template.http.as_ref().is_some_and(|http| http.early_data)
}

/// # Errors
/// The setting that prevents it, and a better one.
fn enable_early_data(tls: &mut Tls, template: &Template) -> Result<(), &'static str> {
    if template.http.as_ref().is_some_and(|http| http.fallback) {
        let why = "tls.early_data needs one protocol, but http has a fallback\n  try http = \"2\"";
        return Err(why);
    }
    tls.enable_early_data()
}

/// Sets a name for each flow.
fn set_names(
    tls: &mut Tls,
    template: &Template,
    text: &Located,
    data: Option<&Data>,
    mistakes: &mut ErrorCollector<'_>,
) -> Option<()> {
    let message = Message::raw(text.text.as_bytes()).and_then(|message| match data {
        Some(data) => message.with_data(data),
        None => Ok(message),
    });
    let set = message.map_err(|error| error.to_string());
    let set = set.and_then(|message| match is_http3(template) {
        true => Err("over HTTP/3, all flows request one name".into()),
        false => tls.set_names(&message),
    });
    set.map_err(|error| mistakes.report(text, &format!("tls.server_name: {error}"))).ok()
}

/// Whether the name that clients request has a column of the template's data.
pub(super) fn uses_data(template: &Template) -> bool {
    let name = template.tls.as_ref().and_then(|tls| tls.server_name.as_ref());
    name.is_some_and(|name| name.text.contains("${data:"))
}

/// Whether the template is over HTTP/3, which always has TLS.
pub(super) fn is_http3(template: &Template) -> bool {
    let http = template.http.as_ref();
    http.is_some_and(|http| http.version == squall_profile::HttpVersion::Three)
}

/// The protocols of QUIC's sessions (RFC 9114 section 3.1).
fn alpn_of_http3(spec: &squall_profile::Tls, alpn: Vec<String>) -> Vec<String> {
    match spec.alpn.is_empty() {
        true => vec!["h3".into()],
        false => alpn,
    }
}

/// The protocols of sessions with HTTP/2 inside, which sides agree on by ALPN (RFC 9113 section 3.2).
fn alpn_of_http2(
    spec: &squall_profile::Tls,
    alpn: Vec<String>,
    fallback: bool,
    mistakes: &mut ErrorCollector<'_>,
) -> Option<Vec<String>> {
    match spec.alpn.first() {
        None if fallback => Some(vec!["h2".into(), "http/1.1".into()]),
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
        resumption: spec.resumption || spec.early_data,
        fresh_key_shares: spec.fresh_key_shares,
        certificate_per_name: spec.certificate_per_name && servers,
        versions: spec.versions.iter().filter_map(|spec| version(spec, mistakes)).collect(),
        ciphers: spec.ciphers.iter().map(|name| name.text.clone()).collect(),
        groups: spec.groups.iter().map(|name| name.text.clone()).collect(),
        hello: spec.hello.as_ref().and_then(|text| hello(text, spec, servers, assets, mistakes)),
    };
    (mistakes.len() == before).then_some(settings)
}

/// The ClientHello of clients, with the protocols of the settings if they have any.
fn hello(
    text: &Located,
    spec: &squall_profile::Tls,
    servers: bool,
    assets: &dyn Assets,
    mistakes: &mut ErrorCollector<'_>,
) -> Option<Arc<Hello>> {
    let own = [("versions", &spec.versions), ("ciphers", &spec.ciphers), ("groups", &spec.groups)];
    for (name, given) in own {
        if let (Some(first), false) = (given.first(), servers) {
            let found = format!("tls.{name} has no effect: clients offer those of tls.hello");
            mistakes.note(first, &found, &format!("try leaving out {name}"));
        }
    }
    if spec.early_data && !servers {
        let found = "tls.early_data has no effect: clients with tls.hello send none";
        mistakes.note(text, found, "try leaving out one of them");
    }
    if let Some(certificate) = &spec.client_certificate {
        let found = "tls.client_certificate has no effect: clients with tls.hello show none";
        mistakes.note(certificate, found, "try leaving out one of them");
    }
    let read = match hello_capture(&text.text) {
        Some((path, number)) => captured_hello(path, number, assets),
        None => Hello::from_text(&text.text).map_err(|error| error.to_string()),
    };
    let protocols: Vec<String> = spec.alpn.iter().map(|name| name.text.clone()).collect();
    let with_protocols = read.and_then(|mut hello| {
        if !protocols.is_empty() {
            hello.set_alpn(&protocols).map_err(|error| error.to_string())?;
        }
        Ok(Arc::new(hello))
    });
    if spec.resumption && !servers && with_protocols.as_ref().is_ok_and(|hello| !hello.resumes()) {
        let found = "tls.resumption has no effect: this hello gets no tickets";
        mistakes.note(text, found, "try leaving out one of them");
    }
    with_protocols
        .map_err(|error| mistakes.report(text, &format!("tls.hello {:?}: {error}", text.text)))
        .ok()
}

/// ClientHello `number` of a capture, from 1, in the order in which its conversations begin.
fn captured_hello(path: &str, number: u64, assets: &dyn Assets) -> Result<Hello, String> {
    let options = ImportOptions { delays: Delays::Drop, ..ImportOptions::default() };
    let import = assets.conversations(path, None, &options)?;
    let sent = import.conversations.iter().map(first_octets);
    // A record of the handshake, with a ClientHello.
    let hellos: Vec<Vec<u8>> =
        sent.filter(|octets| matches!(octets[..], [22, 3, _, _, _, 1, ..])).collect();
    let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    let Some(octets) = index.and_then(|index| hellos.get(index)) else {
        let n = hellos.len();
        return Err(format!(
            "it has no ClientHello {number}: {n} of its conversations begin with one\n  try the \
             number of one of them, as in {path}:1, or a capture from the beginning of a session"
        ));
    };
    Hello::from_client_hello(octets).map_err(|error| error.to_string())
}

/// The octets that the client of a conversation sends before it receives.
fn first_octets(conversation: &Imported) -> Vec<u8> {
    let client = &conversation.client;
    let messages = client.instructions.iter().map_while(|instruction| match instruction {
        Instruction::Connect => Some(None),
        Instruction::Send(MessageRef::Given(message)) => Some(Some(message)),
        Instruction::Send(MessageRef::Named(name)) => client.messages.get(name).map(Some),
        _ => None,
    });
    messages.flatten().flat_map(|message| &message.parts).fold(vec![], |mut octets, part| {
        match part {
            Part::Octets(more) => octets.extend_from_slice(more),
            Part::Repeat { pattern, len } => {
                octets.extend(pattern.iter().cycle().take(*len as usize));
            }
            Part::Mark(_) => {}
        }
        octets
    })
}

/// The browsers whose ClientHello clients can send, one per line, with the JA4 values that others
/// have published for it.
pub fn browsers() -> String {
    let mut text = "hello of TLS\n".to_owned();
    for browser in Browser::all() {
        let ja4: Vec<&str> = browser.published().map(|(value, _)| value).collect();
        text += &format!("    {:<20} JA4 {}\n", browser.name, ja4.join(" or "));
    }
    text
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
        "hello" => spec.hello.as_ref(),
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

#[cfg(test)]
mod tests {
    use squall_apps::Import;
    use squall_profile::Profile;

    use super::*;

    /// A capture whose conversations begin with these octets of the client.
    struct Capture(Vec<Vec<u8>>);

    impl Assets for Capture {
        fn file(&self, _: &str) -> std::io::Result<Vec<u8>> {
            Ok(vec![])
        }
        fn payload(&self, _: &str) -> std::io::Result<Vec<u8>> {
            unreachable!("no test names a payload")
        }
        fn table(&self, _: &str) -> std::io::Result<Box<dyn std::io::Read>> {
            unreachable!("no test names a table")
        }
        fn capture_frame(&self, _: &str, _: u64) -> Result<Vec<u8>, String> {
            unreachable!("no test names a frame")
        }
        fn capture(&self, _: &str) -> squall_replay::Input {
            unreachable!("no test replays")
        }
        fn conversations(
            &self,
            path: &str,
            _: Option<&str>,
            _: &ImportOptions,
        ) -> Result<Import, String> {
            assert_eq!(path, "visit.pcap");
            let conversation = |octets: &Vec<u8>| {
                let (one, other) = octets.split_at(octets.len() / 2);
                let sends = [one, other].map(|part| {
                    Instruction::Send(MessageRef::Given(Message::octets(part.to_vec())))
                });
                let wait = Instruction::Recv { octets: 1, within: None };
                let more = Instruction::Send(MessageRef::Given(Message::octets(vec![0; 9])));
                let instructions = sends.into_iter().chain([wait, more]).collect();
                let client = squall_apps::Program {
                    name: "client".into(),
                    role: squall_apps::Role::Client,
                    transport: squall_apps::Transport::Tcp,
                    instructions,
                    messages: Default::default(),
                };
                let end = (IpAddr::from([10, 0, 0, 1]), 443);
                Imported {
                    server: client.clone(),
                    client,
                    client_end: end,
                    server_end: end,
                    report: Default::default(),
                }
            };
            let conversations = self.0.iter().map(conversation).collect();
            Ok(Import { conversations, ..Import::default() })
        }
        fn filter(&self, _: &str) -> Result<squall_bpf::classic::Filter, String> {
            unreachable!("no test has a filter")
        }
    }

    /// The hello of these settings, or the errors.
    fn read(spec: &squall_profile::Tls, servers: bool) -> Result<Arc<Hello>, String> {
        let profile = Profile::default();
        let mut mistakes = ErrorCollector::of(&profile);
        let written = |name: &str| {
            let random = [1; 64];
            let fresh = squall_tls::Fresh {
                name: Some("www.test"),
                shares: &[],
                random: &random,
                retry: None,
                psk: None,
                ticket: None,
            };
            let mut message = vec![];
            Hello::named(name).unwrap().write(&fresh, &mut message);
            let n = u16::try_from(message.len()).unwrap().to_be_bytes();
            [&[22, 3, 1][..], &n, &message].concat()
        };
        let capture =
            Capture(vec![written("safari-15.5"), b"GET / HTTP/1.1".to_vec(), written("tor-14.5")]);
        let made = settings(spec, servers, &capture, &mut mistakes);
        mistakes.check().map_err(|error| error.to_string())?;
        Ok(made.and_then(|made| made.hello).expect("a hello"))
    }

    #[test]
    fn a_hello_is_that_of_a_browser_a_text_or_a_capture() {
        let of = |text: &str| squall_profile::Tls {
            hello: Some(Located::from(text)),
            ..squall_profile::Tls::default()
        };
        let named = |name: &str| Hello::named(name).unwrap();
        assert_eq!(*read(&of("firefox-135"), false).unwrap(), named("firefox-135"));
        let ja3 = named("firefox-135").ja3();
        assert_eq!(read(&of(&ja3), false).unwrap().ja3(), ja3);
        assert_eq!(*read(&of("visit.pcap"), false).unwrap(), named("safari-15.5"));
        assert_eq!(*read(&of("visit.pcap:2"), true).unwrap(), named("tor-14.5"));
        for (text, expected) in [
            ("visit.pcap:0", "no ClientHello 0: 2 of its conversations begin with one"),
            ("visit.pcap:3", "no ClientHello 3: 2 of its"),
            ("netscape-4", "no browser of the list has this name"),
        ] {
            let why = read(&of(text), false).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn settings_that_a_hello_has_itself_are_errors_but_for_servers_and_protocols() {
        let hello = Some(Located::from("chrome-99"));
        let alpn = vec![Located::from("http/1.1")];
        let spec = squall_profile::Tls { hello, alpn, ..squall_profile::Tls::default() };
        let hello = read(&spec, false).unwrap();
        assert_eq!(hello.alpn().collect::<Vec<_>>(), [b"http/1.1"]);
        assert!(hello.ja4().starts_with("t13d1516h1_"));
        let groups = vec![Located::from("x25519")];
        let spec = squall_profile::Tls { groups, ..spec };
        assert!(read(&spec, true).is_ok());
        let why = read(&spec, false).unwrap_err();
        assert!(why.contains("tls.groups has no effect"), "{why}");
        let spec = squall_profile::Tls { resumption: true, groups: vec![], ..spec };
        assert!(read(&spec, true).is_ok() && read(&spec, false).is_ok());
        let old = Some(Located::from("771,49195-49199,0-10-11-13,29-23,0"));
        let without = squall_profile::Tls { hello: old, ..spec.clone() };
        assert!(read(&without, true).is_ok());
        let why = read(&without, false).unwrap_err();
        assert!(why.contains("tls.resumption has no effect"), "{why}");
        // With session_ticket, and TLS 1.2 at most.
        let old = Some(Located::from("771,49195-49199,0-10-11-13-35,29-23,0"));
        assert!(read(&squall_profile::Tls { hello: old, ..spec.clone() }, false).is_ok());
        let spec = squall_profile::Tls { early_data: true, resumption: false, ..spec };
        assert!(read(&spec, true).is_ok());
        let why = read(&spec, false).unwrap_err();
        assert!(why.contains("tls.early_data has no effect"), "{why}");
        let client_certificate = Some(Located::from("me.pem"));
        let spec = squall_profile::Tls { client_certificate, ..spec };
        let why = read(&spec, true).unwrap_err();
        assert!(why.contains("tls.client_certificate has no effect"), "{why}");
    }
}
