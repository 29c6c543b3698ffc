//! The client: sends requests to a daemon and follows its runs. Address, token and certificate
//! follow the same rules as `squall.connect` in Python.

mod trust;

use std::{io, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use axum::http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use socket2::{SockRef, TcpKeepalive};
use squall::Error;
use squall_units::Cannot;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};
use tokio_stream::StreamExt;
use tokio_tungstenite::{WebSocketStream, tungstenite};

use crate::watch::WatchEvent;
use trust::Trust;

const PORT: u16 = 8443;
/// Time limit for connecting, and for each reply.
const TIMEOUT: Duration = Duration::from_secs(10);
/// First and longest interval between attempts to reconnect. The first is short, so that a
/// restarted daemon is found soon; the longest bounds the cost of an absent daemon.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// Maximum size of a reply, in octets. Limited, because the server may be something other than a
/// daemon.
const MAX_REPLY: usize = 64 << 20;

/// How to check a daemon's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Verify it against the certificate in the directory of a daemon on this machine, then with
    /// the system's authorities. If both fail, trust it on first use: the certificate is remembered
    /// (`~/.config/squall/known_daemons`) and must stay the same.
    Known,
    /// Verify it by its SHA-256 fingerprint.
    Fingerprint([u8; 32]),
    /// Verify it against the certificates in this PEM file.
    File(PathBuf),
    /// Verify it with the system's authorities only.
    Authorities,
    Nothing,
}

impl FromStr for Verify {
    type Err = String;

    /// Parses `sha256:AB:CD...`, `true` (authorities), `false` (no check), or the path of a file.
    fn from_str(text: &str) -> Result<Self, String> {
        match (text, trust::fingerprint(text)) {
            (_, Some(fingerprint)) => Ok(Self::Fingerprint(fingerprint)),
            ("true", None) => Ok(Self::Authorities),
            ("false", None) => Ok(Self::Nothing),
            (text, None) if text.is_empty() || text.to_ascii_lowercase().starts_with("sha256:") => {
                Err("expected sha256: and 64 hexadecimal digits, a file of certificates (PEM), \
                     true or false"
                    .into())
            }
            (file, None) => Ok(Self::File(file.into())),
        }
    }
}

/// A connection to a daemon. Requests run on its own thread, which ends when this is dropped.
pub struct Client {
    to: Arc<Target>,
    runtime: Option<tokio::runtime::Runtime>,
}

/// An event of [`Client::watch`].
#[derive(Clone, Debug)]
pub enum ClientEvent {
    /// Connected or reconnected. Events start from the beginning.
    Connected,
    WatchEvent(WatchEvent),
    /// Disconnected, with the reason. The client tries to reconnect.
    Lost(String),
    /// Refused permanently, for example because the certificate or the token has changed.
    Refused(String),
}

/// Address and credentials of a daemon.
struct Target {
    /// `https://127.0.0.1:8443`, `unix:/var/lib/squall/socket`
    url: String,
    /// Path of the Unix socket, used in place of host and port.
    socket: Option<PathBuf>,
    /// `127.0.0.1:8443`
    authority: String,
    host: String,
    port: u16,
    tls: Option<Tls>,
    token: Option<String>,
}

struct Tls {
    connector: TlsConnector,
    trust: Arc<Trust>,
    name: ServerName<'static>,
}

/// Failure of a request.
enum Failure {
    /// Temporary: another attempt may succeed.
    Away(String),
    /// Permanent: another attempt would fail, too.
    Refused(String),
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Client {
    /// Creates a client without connecting. `url` is `https://HOST[:PORT]` or `http://...`
    /// (default: https, port 8443), or `unix:PATH`, the socket of a daemon on this machine. If
    /// `token` is `None`, the client uses the token of a daemon on this machine, if its file can be
    /// read.
    ///
    /// # Errors
    /// An invalid URL; a file of certificates that cannot be read.
    pub fn new(url: &str, token: Option<String>, verify: &Verify) -> Result<Self, Error> {
        let wrong = |why: &str| Error::Usage(format!("URL {url:?}: {why}"));
        if token
            .as_ref()
            .is_some_and(|token| HeaderValue::from_str(&format!("Bearer {token}")).is_err())
        {
            return Err(Error::Usage("the token has invalid characters".into()));
        }
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime
            .map_err(|error| Error::Environment(format!("cannot start a thread: {error}")))?;
        let client = |to| Self { to: Arc::new(to), runtime: Some(runtime) };
        if let Some(path) = url.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(wrong("expected unix:PATH, such as unix:/var/lib/squall/socket"));
            }
            let (host, authority) = (String::new(), "localhost".to_owned());
            let (socket, tls) = (Some(path.into()), None);
            return Ok(client(Target {
                url: url.to_owned(),
                socket,
                authority,
                host,
                port: 0,
                tls,
                token,
            }));
        }
        let whole = if url.contains("://") { url.to_owned() } else { format!("https://{url}") };
        let parsed: Uri = whole.parse().map_err(|error| wrong(&format!("{error}")))?;
        let expected = format!("expected https://HOST:PORT, such as https://127.0.0.1:{PORT}");
        let (Some(scheme @ ("https" | "http")), Some(authority)) =
            (parsed.scheme_str(), parsed.authority())
        else {
            return Err(wrong(&expected));
        };
        if !matches!(parsed.path(), "" | "/")
            || parsed.query().is_some()
            || authority.as_str().contains('@')
        {
            return Err(wrong(
                "expected only https://HOST:PORT\n  try --token or SQUALL_TOKEN for the token",
            ));
        }
        let bracketed = authority.host();
        let port = match authority.as_str()[bracketed.len()..].strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| wrong(&expected))?,
            None => PORT,
        };
        let host = bracketed.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if host.is_empty() {
            return Err(wrong(&expected));
        }
        let authority = format!("{bracketed}:{port}");
        let url = format!("{scheme}://{authority}");
        let tls = match scheme {
            "https" => {
                let name = ServerName::try_from(host.clone())
                    .map_err(|error| wrong(&error.to_string()))?;
                let trust = Arc::new(Trust::new(&url, &host, port, verify)?);
                Some(Tls { connector: TlsConnector::from(trust::config(&trust)?), trust, name })
            }
            _ => None,
        };
        Ok(client(Target { url, socket: None, authority, host, port, tls, token }))
    }

    /// `https://127.0.0.1:8443`
    pub fn url(&self) -> &str {
        &self.to.url
    }

    /// Sends a GET and waits for the reply.
    ///
    /// # Errors
    ///
    /// If the daemon is unreachable, is another kind of server, or refuses the request.
    pub fn get(&self, path: &str) -> Result<Value, Error> {
        self.runtime().block_on(self.to.ask(Method::GET, path, None)).map_err(Failure::into_error)
    }

    /// Sends a POST and waits for the reply.
    ///
    /// # Errors
    ///
    /// As for [`Client::get`].
    pub fn send(&self, path: &str, body: Value) -> Result<Value, Error> {
        let reply = self.to.ask(Method::POST, path, Some(body));
        self.runtime().block_on(reply).map_err(Failure::into_error)
    }

    /// Sends a POST. Calls `then` with the reply or the error, on the client's thread.
    pub fn post(
        &self,
        path: String,
        body: Value,
        then: impl FnOnce(Result<Value, String>) + Send + 'static,
    ) {
        let to = self.to.clone();
        self.runtime().spawn(async move {
            then(
                to.ask(Method::POST, &path, Some(body))
                    .await
                    .map_err(|failure| failure.into_error().to_string()),
            );
        });
    }

    /// As [`Client::post`], but sends a GET.
    pub fn get_then(
        &self,
        path: String,
        then: impl FnOnce(Result<Value, String>) + Send + 'static,
    ) {
        let to = self.to.clone();
        self.runtime().spawn(async move {
            then(
                to.ask(Method::GET, &path, None)
                    .await
                    .map_err(|failure| failure.into_error().to_string()),
            );
        });
    }

    /// Follows all runs without renewing their leases. Reconnects when the daemon is away.
    pub fn watch(&self, every: Duration, mut on_event: impl FnMut(ClientEvent) + Send + 'static) {
        let to = self.to.clone();
        self.runtime().spawn(async move {
            let mut wait = RECONNECT.0;
            loop {
                let ended = match to.watch(every).await {
                    Ok(mut socket) => {
                        on_event(ClientEvent::Connected);
                        wait = RECONNECT.0;
                        to.listen(&mut socket, &mut on_event).await
                    }
                    Err(failure) => failure,
                };
                match ended {
                    Failure::Away(why) => on_event(ClientEvent::Lost(why)),
                    Failure::Refused(why) => return on_event(ClientEvent::Refused(why)),
                }
                sleep(wait).await;
                wait = (wait * 2).min(RECONNECT.1);
            }
        });
    }

    fn runtime(&self) -> &tokio::runtime::Runtime {
        self.runtime.as_ref().expect("it is there until the end")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Do not wait for requests in progress.
        self.runtime.take().into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
    }
}

impl Failure {
    fn into_error(self) -> Error {
        match self {
            Self::Away(why) | Self::Refused(why) => Error::Environment(why),
        }
    }
}

impl Target {
    async fn connect(&self) -> Result<Box<dyn Stream>, Failure> {
        let connect = || format!("connect to {}", self.url);
        let away = |error: &io::Error| {
            let hint = "squall serve there, if it is not running";
            Failure::Away(Cannot::of_io(connect(), error).with_hint(hint).to_string())
        };
        let no_answer = || io::Error::new(io::ErrorKind::TimedOut, "no answer");
        if let Some(path) = &self.socket {
            return match timeout(TIMEOUT, UnixStream::connect(path)).await {
                Ok(Ok(stream)) => Ok(Box::new(stream)),
                Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                    let hint = "only root and the user who started the daemon can use it";
                    let cannot = Cannot::of_io(connect(), &error);
                    Err(Failure::Refused(format!("{cannot}\n  {hint}")))
                }
                Ok(Err(error)) => Err(away(&error)),
                Err(_) => Err(away(&no_answer())),
            };
        }
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let stream = match timeout(TIMEOUT, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(away(&error)),
            Err(_) => return Err(away(&no_answer())),
        };
        _ = stream.set_nodelay(true);
        // Detects within 30 s that the machine has vanished.
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(10))
            .with_interval(Duration::from_secs(5))
            .with_retries(4);
        _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        match timeout(TIMEOUT, tls.connector.connect(tls.name.clone(), stream)).await {
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(error)) => Err(match tls.trust.why_not() {
                Some(why) => Failure::Refused(why),
                None if is_no_tls(&error) => Failure::Refused(
                    Cannot::new(connect(), "the server does not use TLS")
                        .with_hint(format!("http://{}", self.authority))
                        .to_string(),
                ),
                None => away(&error),
            }),
            Err(_) => Err(away(&no_answer())),
        }
    }

    /// The given token, or else the one stored next to the certificate that the daemon presented.
    fn bearer(&self) -> Option<HeaderValue> {
        let found = || self.tls.as_ref().and_then(|tls| tls.trust.token());
        let token = self.token.clone().or_else(found)?;
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        // Prevents the token from appearing in debug output.
        value.set_sensitive(true);
        Some(value)
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value, Failure> {
        // Twice the time limit, because a request includes connecting, which has its own limit.
        match timeout(TIMEOUT * 2, self.asked(method, path, body)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Away(self.cannot_ask("no answer").to_string())),
        }
    }

    async fn asked(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Failure> {
        let stream = self.connect().await?;
        let away =
            |error: &dyn std::fmt::Display| Failure::Away(self.cannot_ask(error).to_string());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| away(&error))?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.authority)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("squall/", env!("CARGO_PKG_VERSION")));
        if let Some(bearer) = self.bearer() {
            request = request.header(header::AUTHORIZATION, bearer);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let octets = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request =
            request.body(Full::new(octets)).map_err(|error| Failure::Refused(error.to_string()))?;
        let answer =
            sender.send_request(request).await.map_err(|error| match error.is_parse() {
                true if self.tls.is_none() => Failure::Refused(
                    self.cannot_ask("the server does not use plain HTTP")
                        .with_hint(format!("https://{}", self.authority))
                        .to_string(),
                ),
                true => self.stranger(),
                false => away(&error),
            })?;
        let status = answer.status();
        let octets = Limited::new(answer.into_body(), MAX_REPLY)
            .collect()
            .await
            .map_err(|error| away(&error))?
            .to_bytes();
        if !status.is_success() {
            return Err(self.refused(status, &octets));
        }
        if octets.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&octets).map_err(|_| self.stranger())
    }

    async fn watch(&self, every: Duration) -> Result<WebSocketStream<Box<dyn Stream>>, Failure> {
        let stream = self.connect().await?;
        let url = format!(
            "ws://{}/squall/v1/watch?runs=all&every_ms={}",
            self.authority,
            every.as_millis()
        );
        let mut request = tungstenite::client::IntoClientRequest::into_client_request(url)
            .map_err(|error| Failure::Refused(self.cannot_ask(error).to_string()))?;
        if let Some(bearer) = self.bearer() {
            request.headers_mut().insert(header::AUTHORIZATION, bearer);
        }
        match timeout(TIMEOUT, tokio_tungstenite::client_async(request, stream)).await {
            Ok(Ok((socket, _))) => Ok(socket),
            Ok(Err(tungstenite::Error::Http(answer))) => {
                Err(self.refused(answer.status(), answer.body().as_deref().unwrap_or_default()))
            }
            Ok(Err(error)) => Err(Failure::Away(self.cannot_ask(error).to_string())),
            Err(_) => Err(Failure::Away(self.cannot_ask("no answer").to_string())),
        }
    }

    async fn listen(
        &self,
        socket: &mut WebSocketStream<Box<dyn Stream>>,
        on_event: &mut impl FnMut(ClientEvent),
    ) -> Failure {
        loop {
            match socket.next().await {
                Some(Ok(tungstenite::Message::Text(text))) => match serde_json::from_str(&text) {
                    Ok(message) => on_event(ClientEvent::WatchEvent(message)),
                    Err(_) => return self.stranger(),
                },
                Some(Ok(tungstenite::Message::Close(_))) | None => {
                    return Failure::Away(self.cannot_ask("the daemon has ended").to_string());
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Failure::Away(self.cannot_ask(error).to_string()),
            }
        }
    }

    fn refused(&self, status: StatusCode, octets: &[u8]) -> Failure {
        if status == StatusCode::UNAUTHORIZED {
            let what = match self.bearer() {
                Some(_) => "the token is wrong",
                None => "the token is missing",
            };
            let hint = "--token TOKEN or SQUALL_TOKEN=TOKEN, with the contents of the file `token` \
                        in the daemon's data folder";
            return Failure::Refused(self.cannot_ask(what).with_hint(hint).to_string());
        }
        let reply: Option<Value> = serde_json::from_slice(octets).ok();
        match reply.as_ref().and_then(|reply| reply["error"]["message"].as_str()) {
            // The request is tried again, because a daemon that is ending may be restarted soon. If
            // it is not, the next attempt fails to connect.
            Some(message) if status == StatusCode::CONFLICT || status.is_server_error() => {
                Failure::Away(message.to_owned())
            }
            Some(message) => Failure::Refused(message.to_owned()),
            None => self.stranger(),
        }
    }

    fn stranger(&self) -> Failure {
        let why = "the server is not a `squall serve` of this version";
        Failure::Refused(self.cannot_ask(why).to_string())
    }

    fn cannot_ask(&self, why: impl std::fmt::Display) -> Cannot {
        Cannot::new(format!("query {}", self.url), why)
    }
}

/// Whether the server replied to the TLS hello with other data: most likely it speaks plain HTTP.
fn is_no_tls(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidMessage(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_host_and_a_port() {
        for (reply, url) in [
            ("https://127.0.0.1:8443", "https://127.0.0.1:8443"),
            ("lab7.example", "https://lab7.example:8443"),
            ("http://[::1]:80/", "http://[::1]:80"),
            ("localhost:9", "https://localhost:9"),
            ("unix:/run/squall/socket", "unix:/run/squall/socket"),
        ] {
            assert_eq!(
                Client::new(reply, None, &Verify::Known)
                    .map_err(|e| e.to_string())
                    .expect(reply)
                    .url(),
                url
            );
        }
        for reply in [
            "ftp://a",
            "https://",
            "https://a/b",
            "https://a?b",
            "https://u:p@a",
            "a:99999",
            "a:",
            "a b",
            "",
            "unix:",
        ] {
            let error = Client::new(reply, None, &Verify::Known).err().expect(reply);
            assert_eq!(error.exit_status(), 2, "{reply}: {error}");
        }
    }

    #[test]
    fn how_certificates_are_checked_is_read_as_in_python() {
        let digits = "ab".repeat(32);
        for reply in [
            format!("sha256:{digits}"),
            digits.clone(),
            format!("SHA256:{}", vec!["AB"; 32].join(":")),
        ] {
            assert_eq!(reply.parse(), Ok(Verify::Fingerprint([0xab; 32])));
        }
        assert_eq!("true".parse(), Ok(Verify::Authorities));
        assert_eq!("false".parse(), Ok(Verify::Nothing));
        assert_eq!("a.pem".parse(), Ok(Verify::File("a.pem".into())));
        assert!("sha256:abc".parse::<Verify>().is_err() && "".parse::<Verify>().is_err());
    }
}
