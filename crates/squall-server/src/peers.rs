//! Other daemons whose pages may access this one, and which this daemon's page may access: a list
//! of origins. A request from such a page needs the token. Cookies and the identity of a local user
//! do not count, because the page's reader may not have meant to send the request.

use std::{fmt, str::FromStr};

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};

/// `https://lab2.example:8443`, as browsers write it: lower case, without the scheme's default
/// port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

/// Set on requests from pages of other daemons. Clients gain nothing by setting it themselves,
/// because it only adds requirements.
pub const PAGE: HeaderName = HeaderName::from_static("squall-page");

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} is not an origin\n  try https://lab2.example:8443, without a path")
        };
        let uri: Uri = text.trim_end_matches('/').parse().map_err(|_| wrong())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(wrong());
        };
        let default = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return Err(wrong()),
        };
        // Restrict the host's characters, because the origin is written into a policy header and
        // must not end its source expression.
        let host = authority.host();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-.:[]".contains(c);
        let path = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
        if !path || authority.as_str().contains('@') || host.is_empty() || !host.chars().all(plain)
        {
            return Err(wrong());
        }
        let port = authority.port_u16().filter(|port| *port != default);
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        Ok(Self(format!("{scheme}://{}{port}", host.to_ascii_lowercase())))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Origin {
    /// The origin for WebSockets: `wss://...`.
    fn socket(&self) -> String {
        format!("ws{}", &self.0["http".len()..])
    }
}

/// Sources for `connect-src`, which let the page connect to the daemon's peers.
pub fn sources(peers: &[Origin]) -> String {
    peers.iter().map(|peer| format!(" {peer} {}", peer.socket())).collect()
}

/// The origin of the request, if it is a peer and pages may access the path.
pub fn page<'a>(peers: &'a [Origin], uri: &Uri, headers: &HeaderMap) -> Option<&'a Origin> {
    let origin = headers.get(header::ORIGIN)?.to_str().ok()?;
    let api = uri.path().starts_with("/squall/v1/");
    // Login and logout are excluded, because they set cookies, which pages of other origins must
    // not get.
    let cookies = matches!(uri.path(), "/squall/v1/login" | "/squall/v1/logout");
    peers.iter().find(|peer| api && !cookies && peer.0.eq_ignore_ascii_case(origin))
}

/// The reply to a CORS preflight (Fetch standard), which browsers send without the token.
pub fn preflight(method: &Method, headers: &HeaderMap) -> Option<Response> {
    let asks =
        *method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let answer = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, PATCH, DELETE"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    asks.then(|| (StatusCode::NO_CONTENT, answer).into_response())
}

/// Permits only this page to read the reply, and never with cookies.
pub fn allow(response: &mut Response, page: &Origin) {
    let headers = response.headers_mut();
    if let Ok(origin) = HeaderValue::from_str(&page.0) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    headers.append(header::VARY, HeaderValue::from_static("origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_as_browsers_write_them_and_nothing_else_is_one() {
        for (text, origin) in [
            ("https://Lab2.example:8443/", "https://lab2.example:8443"),
            ("https://lab2:443", "https://lab2"),
            ("http://127.0.0.1:80", "http://127.0.0.1"),
            ("https://[::1]:8443", "https://[::1]:8443"),
        ] {
            assert_eq!(text.parse::<Origin>().expect(text).0, origin);
        }
        for text in [
            "lab2:8443",
            "*",
            "https://*",
            "https://lab2/path",
            "https://lab2?x",
            "ftp://lab2",
            "https://me@lab2",
            "https://a b",
            "https://lab2; script-src *",
            "null",
            "",
        ] {
            assert!(text.parse::<Origin>().is_err(), "{text}");
        }
        let peers = ["https://lab2:1".parse().expect("an origin")];
        assert_eq!(sources(&peers), " https://lab2:1 wss://lab2:1");
    }
}
